//! One operation's row, written: the facts, and what follows from them.

use crate::clock::Timestamp;
use crate::outbox::policy::{Gate, Next, Step};
use crate::outbox::rules::Ready;
use crate::outbox::state::{BlockReason, Effect, SettledBy, State};
use crate::store::OperationRow;
use crate::store::rows::{Loaded, Stored};
use rusqlite::{CachedStatement, Connection, params};

/// What is written beside the facts when they have changed.
pub(super) struct Change<'a> {
    /// What follows from them.
    pub(super) next: Next,
    /// What would be delivered, if it had to be looked at and can be.
    pub(super) ready: Option<&'a Ready>,
    /// What is known of the receiver.
    pub(super) effect: Effect,
    /// What went wrong last; `None` leaves what is there.
    pub(super) error: Option<String>,
    /// Whether it is a suspect from now on.
    pub(super) suspect: bool,
    /// The wall clock.
    pub(super) now: Timestamp,
}

/// Writes operations. Its statements are looked up once for a whole group.
pub(super) struct Update<'c> {
    /// For one whose payload has been prepared.
    again: CachedStatement<'c>,
    /// For one whose payload is stored with it.
    first: CachedStatement<'c>,
}

impl<'c> Update<'c> {
    pub(super) fn prepare(db: &'c Connection) -> Result<Self, rusqlite::Error> {
        let again = db.prepare_cached(&update_sql(""))?;
        let first = "fingerprint = ?35, payload = coalesce(?36, payload),";
        Ok(Self { again, first: db.prepare_cached(&update_sql(first))? })
    }

    /// Writes the facts and what follows from them, and updates the row in memory.
    ///
    /// Says whether the stored row was still the one in memory; else nothing is written.
    pub(super) fn write(
        &mut self,
        loaded: &mut Loaded,
        change: Change<'_>,
    ) -> Result<bool, rusqlite::Error> {
        settle(&mut loaded.row, &change);
        loaded.suspect = change.suspect;
        let written = match (&loaded.row.recorded.fingerprint, change.ready) {
            (None, Some(ready)) => {
                let payload = keep_prepared(&mut loaded.row, ready);
                bind(&mut self.first, loaded)?;
                self.first.raw_bind_parameter(35, ready.fingerprint.as_str())?;
                self.first.raw_bind_parameter(36, payload)?;
                self.first.raw_execute()?
            }
            (Some(_), _) | (None, None) => {
                bind(&mut self.again, loaded)?;
                self.again.raw_execute()?
            }
        };
        loaded.stored = Stored::of(&loaded.row.facts);
        Ok(written == 1)
    }
}

/// What is delivered from now on. Returns the payload where it differs from what was
/// recorded: only then it is stored once more.
fn keep_prepared<'a>(row: &mut OperationRow, ready: &'a Ready) -> Option<&'a str> {
    row.fingerprint = Some(ready.fingerprint.as_str().to_owned());
    row.recorded.fingerprint = Some(ready.fingerprint.clone());
    if row.recorded.payload.as_deref() == Some(ready.payload.as_str()) {
        return None;
    }
    row.recorded.payload = Some(ready.payload.clone());
    Some(&ready.payload)
}

/// Puts what follows into the public columns.
fn settle(row: &mut OperationRow, change: &Change<'_>) {
    let facts = &row.facts;
    row.effect = change.effect;
    row.attempts = facts.attempts;
    row.version = facts.version;
    if let Some(error) = &change.error {
        row.last_error = Some(error.clone());
    }
    row.blocked_reason = None;
    if facts.proof.is_none() && change.next.step != Step::Sent {
        // A person's word may have been taken back.
        (row.remote_id, row.settled_by, row.sent_at) = (None, None, None);
    }
    match change.next.step {
        Step::Sent => {
            row.state = State::Sent;
            row.last_error = None;
            row.sent_at.get_or_insert(change.now);
            match &facts.proof {
                Some(proof) => {
                    row.remote_id.clone_from(&proof.remote_id);
                    row.settled_by = Some(proof.by.to_string());
                }
                // An old "exists", which proves it under today's contract.
                None => row.settled_by = Some(SettledBy::Policy.to_string()),
            }
            row.due_at = None;
        }
        Step::Stay => {
            row.state = State::Withdrawn;
            row.due_at = None;
        }
        Step::Block(reason) => {
            row.state = State::Blocked;
            row.blocked_reason = Some(reason);
            row.due_at = None;
        }
        Step::Deliver | Step::Ask => {
            row.state = State::Pending;
            row.due_at = Some(change.now);
        }
        Step::Wait { gate, until } => {
            row.state = State::Pending;
            row.due_at = match gate {
                // Its end makes it due; the time is not looked at before.
                Gate::InFlight => Some(change.now),
                Gate::NotConfigured
                | Gate::Settling
                | Gate::Scheduled
                | Gate::BackingOff
                | Gate::ReceiverHeld => until,
            };
        }
    }
}

/// Payload and fingerprint are named only when they are stored: to name them runs the
/// trigger that guards them.
fn update_sql(prepared: &str) -> String {
    format!(
        "UPDATE handoff_outbox SET {prepared}
           state = ?2, blocked_reason = ?3, effect = ?4, attempts = ?5, due_at = ?6,
           first_attempt_at = ?7, remote_id = ?8, settled_by = ?9, last_error = ?10,
           version = ?11, sent_at = ?12, possible_since = ?13, possible_until = ?14,
           possible_request = ?15, possible_count = ?16, possible_marks = ?17, answer = ?18,
           absences = ?19, open_number = ?20, open_kind = ?21, spent = ?22, asks = ?23,
           failed_at = ?24, budget_start = ?25, solo_crashes = ?26, granted = ?27,
           ask_now = ?28, withdrawn = ?29, not_before = ?30, tries = ?31, suspect = ?32
         WHERE id = ?1 AND version = ?33 AND budget_start IS ?34"
    )
}

/// Binds what [`update_sql`] always names.
fn bind(update: &mut CachedStatement<'_>, loaded: &Loaded) -> Result<(), rusqlite::Error> {
    let row = &loaded.row;
    let facts = &row.facts;
    let possible = facts.possible.as_ref();
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    let values = params![
        loaded.id,
        row.state.as_str(),
        row.blocked_reason.map(BlockReason::as_str),
        row.effect.as_str(),
        facts.attempts,
        millis(row.due_at),
        millis(row.first_attempt_at),
        row.remote_id,
        row.settled_by,
        row.last_error,
        number(facts.version),
        millis(row.sent_at),
        possible.map(|possible| possible.since.as_millis()),
        possible.map(|possible| possible.until.as_millis()),
        possible.and_then(|possible| possible.request.as_ref().map(|request| &request.0)),
        possible.map_or(0, |possible| possible.count),
        possible.map_or(0, |possible| possible.marks),
        facts.answer.as_str(),
        facts.absences,
        facts.open.map(|open| open.number),
        facts.open.map(|open| open.kind.as_str()),
        facts.spent,
        facts.asks,
        millis(facts.failed_at),
        millis(facts.budget_start),
        facts.solo_crashes,
        facts.grant,
        facts.ask_now,
        facts.withdrawn,
        millis(facts.not_before),
        facts.tries,
        loaded.suspect,
        number(loaded.stored.version),
        millis(loaded.stored.budget_start),
    ];
    for (place, value) in (1..).zip(values) {
        update.raw_bind_parameter(place, value)?;
    }
    Ok(())
}

fn number(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}
