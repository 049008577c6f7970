//! The end of an attempt: saving what came of it, once, and only if it is ours.

use super::breakers::Breakers;
use super::update::{Change, Update};
use super::words::{asked, error_text, named_id};
use super::{holds, meta, operation};
use crate::clock::{Now, Timestamp};
use crate::outbox::facts::{AttemptKind, Ended, Possible, RequestFingerprint};
use crate::outbox::look_up::LookedUp;
use crate::outbox::outcome::{Ending, Outcome, OutcomeKind, Seen};
use crate::outbox::rules::Rules;
use crate::outbox::state::State;
use crate::store::OperationRow;
use crate::store::rows::Loaded;
use crate::store::{AttemptId, Concluded, Event};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use std::time::Duration;

/// An attempt's end, whoever noticed it.
pub(super) struct End<'a> {
    pub(super) id: &'a AttemptId,
    /// The process that made the attempt.
    pub(super) instance: &'a str,
    pub(super) ending: &'a Ending,
    pub(super) seen: Option<&'a Seen>,
    pub(super) ended: Now,
    pub(super) took: Option<Duration>,
    /// It has to be tried alone from now on.
    pub(super) suspect: bool,
}

impl<'a> From<&'a Concluded> for End<'a> {
    fn from(concluded: &'a Concluded) -> Self {
        Self {
            id: &concluded.begun.id,
            instance: &concluded.begun.instance,
            ending: &concluded.ending,
            seen: concluded.seen.as_ref(),
            ended: concluded.ended,
            took: Some(concluded.took),
            suspect: false,
        }
    }
}

/// What is stored of the attempt that ends.
struct Open {
    kind: AttemptKind,
    /// The fact that it began with.
    begun: i64,
    outcome: Option<OutcomeKind>,
    started: Timestamp,
    request: RequestFingerprint,
    spent: u32,
}

/// What the end of an attempt has added.
struct Added {
    event: Event,
    cost: Cost,
}

/// What an end is worth to its operation.
#[derive(Clone, Copy)]
struct Cost {
    /// It is no absence, or one that counts.
    counts: bool,
    /// What it takes from the budget.
    spent: u32,
}

/// The code of an absence that proves nothing: looked for too early, or elsewhere.
const NOT_COUNTED: &str = "not_counted";

/// Saves ends of attempts. Its statements are looked up once for a whole group.
pub(super) struct Saving<'c> {
    db: &'c Connection,
    rules: &'c Rules,
    update: Update<'c>,
    close: CachedStatement<'c>,
    breakers: Breakers,
}

impl<'c> Saving<'c> {
    pub(super) fn prepare(db: &'c Connection, rules: &'c Rules) -> Result<Self, rusqlite::Error> {
        let close = db.prepare_cached(
            "UPDATE handoff_attempts SET
               finished_at = ?4, finished_steady = ?5, outcome = ?6, error_code = ?7,
               http_status = ?8, request_sent = ?9, duration_ms = ?10, evidence = ?11,
               remote_id = ?12, spent = ?13, alone = max(alone, ?14), ended_fact = ?15
             WHERE operation_key = ?1 AND number = ?2 AND instance = ?3
               AND (?16 OR outcome IS NULL)",
        )?;
        let (update, breakers) = (Update::prepare(db)?, Breakers::default());
        Ok(Self { db, rules, update, close, breakers })
    }

    /// Saves an end, unless the attempt is not ours or has ended for good.
    ///
    /// Saving the same end again changes nothing and gives no event.
    pub(super) fn save(&mut self, end: &End<'_>) -> Result<Option<Event>, rusqlite::Error> {
        let Some(attempt) = open_attempt(self.db, end)? else {
            return Ok(Some(Event::Fenced { id: end.id.clone() }));
        };
        match attempt.outcome {
            None => {}
            // An answer replaces a provisional end, whenever it comes.
            Some(earlier) if earlier.is_provisional() && !end.ending.kind().is_provisional() => {}
            Some(earlier) if earlier == end.ending.kind() => return Ok(None),
            // A success is never thrown away, whatever was believed before.
            Some(_) if matches!(end.ending.kind(), OutcomeKind::Applied | OutcomeKind::Found) => {}
            Some(_) => return Ok(Some(Event::Fenced { id: end.id.clone() })),
        }
        let Some(mut loaded) = operation::by_key(self.db, &end.id.key)? else { return Ok(None) };
        let added = self.add_to_facts(end, &attempt, &mut loaded)?;
        let cost = match &added {
            Some(added) => added.cost,
            None => Cost { counts: true, spent: spends(end, &attempt) },
        };
        self.close(end, &attempt, loaded.row.facts.version, cost)?;
        Ok(added.map(|added| added.event))
    }

    /// Saves the end of an attempt whose operation nobody has touched since it began:
    /// what was written then is still in memory and need not be read again.
    ///
    /// # Errors
    ///
    /// Besides the database's: the operation says that the attempt is open, and its row
    /// does not. What is there must then be read.
    pub(super) fn save_remembered(
        &mut self,
        concluded: &Concluded,
    ) -> Result<Option<Event>, rusqlite::Error> {
        let end: End<'_> = concluded.into();
        let begun = &concluded.begun;
        let attempt = Open {
            kind: begun.kind,
            begun: i64::MAX,
            outcome: None,
            started: begun.started.steady,
            request: begun.request.clone(),
            spent: 0,
        };
        let mut loaded = begun.operation.clone();
        let Some(added) = self.add_to_facts(&end, &attempt, &mut loaded)? else {
            return self.save(&end);
        };
        match self.close(&end, &attempt, loaded.row.facts.version, added.cost)? {
            1 => Ok(Some(added.event)),
            none => Err(rusqlite::Error::StatementChangedRows(none)),
        }
    }

    /// Adds the end to the facts and writes what follows, if the stored row is still
    /// the one in memory. Returns also what the end has cost.
    fn add_to_facts(
        &mut self,
        end: &End<'_>,
        attempt: &Open,
        loaded: &mut Loaded,
    ) -> Result<Option<Added>, rusqlite::Error> {
        let row = &mut loaded.row;
        let terms = self.rules.terms(&row.receiver);
        let had_receipt = row.facts.proof.as_ref().and_then(|proof| proof.remote_id.clone());
        let was_withdrawn = row.facts.withdrawn && row.state != State::Sent;
        let capped =
            asked(end.ending).is_some_and(|asked| terms.retry.bites(asked, end.ended.wall));
        let cost = match attempt.kind {
            AttemptKind::Deliver => {
                Cost { counts: true, spent: self.delivery_ends(end, attempt, row)? }
            }
            AttemptKind::LookUp => {
                let looked_up = LookedUp {
                    number: end.id.number,
                    started: attempt.started,
                    ended: end.ended.wall,
                    request: &attempt.request,
                    ending: end.ending,
                };
                let (seed, key) = (self.rules.seed, &row.operation_key);
                let counts = row.facts.look_up_ends(&looked_up, terms, seed, key);
                Cost { counts, spent: spends(end, attempt) }
            }
        };
        let (follows, judged) = self.rules.follow(&row.facts, &row.recorded, end.ended);
        let change = Change {
            next: follows,
            ready: judged.as_ref().and_then(|judged| judged.ready.as_ref()),
            effect: row.facts.effect(&terms.contract),
            error: Some(error_text(end, attempt.kind)),
            suspect: end.suspect,
            now: end.ended.wall,
        };
        if !self.update.write(loaded, change)? {
            return Ok(None);
        }
        if attempt.outcome.is_none() {
            let span = (attempt.started, end.ended);
            let receiver = &loaded.row.receiver;
            self.breakers.hear(self.db, self.rules, receiver, end.ending, span)?;
            holds::hear(self.db, receiver, &terms.retry, end.ending, end.ended)?;
        }
        let sent = loaded.row.state == State::Sent;
        let named_id = named_id(end.ending);
        let event = Event::Ended {
            id: end.id.clone(),
            receiver: loaded.row.receiver.clone(),
            outcome: end.ending.kind(),
            next: follows,
            state: loaded.row.state,
            receipt_mismatch: sent
                && had_receipt.is_some()
                && named_id.is_some()
                && had_receipt.as_deref() != named_id,
            after_withdrawal: sent && was_withdrawn,
            retry_after_capped: capped,
        };
        Ok(Some(Added { event, cost }))
    }

    /// What this end costs its operation. A probe was tried for all others as well:
    /// that the receiver did not take it costs nothing.
    fn spent(
        &mut self,
        end: &End<'_>,
        attempt: &Open,
        receiver: &str,
    ) -> Result<u32, rusqlite::Error> {
        let is_in_vain = matches!(end.ending, Ending::Outcome(Outcome::NotTaken { .. }));
        let started = attempt.started;
        if is_in_vain && self.breakers.is_probe(self.db, self.rules, receiver, started)? {
            return Ok(0);
        }
        Ok(end.ending.spends())
    }

    /// A delivery's end becomes a fact. Returns what it costs.
    fn delivery_ends(
        &mut self,
        end: &End<'_>,
        attempt: &Open,
        row: &mut OperationRow,
    ) -> Result<u32, rusqlite::Error> {
        let terms = self.rules.terms(&row.receiver);
        let has_others = row.facts.has_others(attempt.outcome);
        let resolved = if has_others || attempt.outcome.is_some() {
            meta::resolution(self.db, &end.id.key)?
        } else {
            // A person resolves nothing while it is under way.
            0
        };
        if attempt.begun <= resolved {
            row.facts.resolved_delivery_ends(end.ending, &terms.contract);
            return Ok(spends(end, attempt));
        }
        let others = if has_others { others(self.db, end.id, resolved)? } else { None };
        let (tries, key) = (row.facts.tries, row.operation_key.as_str());
        let (retry, seed) = (&terms.retry, self.rules.seed);
        let not_before = retry.not_before(end.ending, tries, end.ended.wall, seed, key);
        let ended = Ended {
            number: end.id.number,
            started: attempt.started,
            ended: end.ended.steady,
            request: attempt.request.clone(),
            ending: end.ending,
            had_spent: attempt.spent,
            not_before,
        };
        row.facts.delivery_ends(&ended, others, &terms.contract);
        let spent = self.spent(end, attempt, &row.receiver)?;
        row.facts.give_back(end.ending.spends().saturating_sub(spent));
        Ok(spent)
    }

    /// Ends the attempt, whether or not it has ended before. Returns how many did.
    fn close(
        &mut self,
        end: &End<'_>,
        attempt: &Open,
        version: u64,
        cost: Cost,
    ) -> Result<usize, rusqlite::Error> {
        let delivers = attempt.kind == AttemptKind::Deliver;
        let alone = delivers && matches!(end.ending, Ending::Interrupted { alone: true });
        let seen = end.seen;
        let ignored =
            (end.ending.kind() == OutcomeKind::Absent && !cost.counts).then_some(NOT_COUNTED);
        self.close.execute(params![
            end.id.key,
            end.id.number,
            end.instance,
            end.ended.wall.as_millis(),
            end.ended.steady.as_millis(),
            end.ending.kind().as_str(),
            ignored.or(seen.and_then(|seen| seen.error_code.as_deref())),
            seen.and_then(|seen| seen.http_status),
            seen.and_then(|seen| seen.request_sent),
            end.took.map(|took| i64::try_from(took.as_millis()).unwrap_or(i64::MAX)),
            seen.and_then(|seen| seen.evidence.as_deref()),
            named_id(end.ending),
            cost.spent,
            alone,
            i64::try_from(version).unwrap_or(i64::MAX),
            attempt.outcome.is_some(),
        ])
    }
}

/// What such an end costs: a look-up costs nothing.
fn spends(end: &End<'_>, attempt: &Open) -> u32 {
    match attempt.kind {
        AttemptKind::Deliver => end.ending.spends(),
        AttemptKind::LookUp => 0,
    }
}

fn open_attempt(db: &Connection, end: &End<'_>) -> Result<Option<Open>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT outcome, started_steady, request, spent, kind, begun_fact
           FROM handoff_attempts
          WHERE operation_key = ?1 AND number = ?2 AND instance = ?3",
    )?
    .query_row(params![end.id.key, end.id.number, end.instance], |row| {
        let outcome: Option<String> = row.get(0)?;
        let kind: String = row.get(4)?;
        Ok(Open {
            // What nobody can read may have acted.
            kind: AttemptKind::parse(&kind).unwrap_or(AttemptKind::Deliver),
            begun: row.get(5)?,
            // A word that nobody knows is not provisional: nothing replaces it.
            outcome: outcome
                .map(|text| OutcomeKind::parse(&text).unwrap_or(OutcomeKind::Unexpected)),
            started: Timestamp::from_millis(row.get(1)?),
            request: RequestFingerprint(row.get(2)?),
            spent: row.get(3)?,
        })
    })
    .optional()
}

/// The other deliveries of the operation since the fact `resolved` that may have
/// acted, folded.
fn others(
    db: &Connection,
    id: &AttemptId,
    resolved: i64,
) -> Result<Option<Possible>, rusqlite::Error> {
    let mut read = db.prepare_cached(
        "SELECT started_steady, coalesce(finished_steady, started_steady), request
           FROM handoff_attempts
          WHERE operation_key = ?1 AND number <> ?2 AND kind = 'deliver' AND begun_fact > ?3
            AND (outcome IS NULL OR outcome IN
                 ('already_exists', 'in_progress', 'unknown', 'interrupted', 'cut_off'))",
    )?;
    let rows = read.query_map(params![id.key, id.number, resolved], |row| {
        let since = Timestamp::from_millis(row.get(0)?);
        let until = Timestamp::from_millis(row.get(1)?);
        Ok(Possible::delivery(since, until, RequestFingerprint(row.get(2)?)))
    })?;
    let mut all: Option<Possible> = None;
    for row in rows {
        let row = row?;
        all = Some(match all {
            Some(earlier) => earlier.and(row),
            None => row,
        });
    }
    Ok(all)
}
