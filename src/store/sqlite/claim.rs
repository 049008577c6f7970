//! The claim: what is due is looked at, and what may be delivered begins.

use super::operation::{self, COLUMNS, TABLES};
use super::update::{Change, Update};
use super::versions::Versions;
use super::{breakers, holds, rates};
use crate::clock::{Now, Timestamp};
use crate::outbox::facts::AttemptKind;
use crate::outbox::hold::{self, Hold};
use crate::outbox::key::OperationKey;
use crate::outbox::policy::{Gate, Next, Row, Step, Terms, next};
use crate::outbox::rules::{Judged, Ready, Rules};
use crate::store::attempt::{AttemptId, Begun};
use crate::store::rows::Loaded;
use crate::store::{Event, Slots};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that one claim looks at for a receiver, at most, so that a transaction
/// stays short however many rows turn out not to be deliverable.
const LOOKED_AT: usize = 256;

/// What a claim has done; the attempts count only once it is committed.
#[derive(Default)]
pub(super) struct Claimed {
    pub(super) begun: Vec<Begun>,
    pub(super) events: Vec<Event>,
    pub(super) next_due: Option<Timestamp>,
    pub(super) more: bool,
    pub(super) held: Vec<Hold>,
}

/// What a claim would find.
#[derive(Default)]
pub(super) struct Seen {
    /// Something is due.
    pub(super) due: bool,
    /// When something will be, if nothing is.
    pub(super) next_due: Option<Timestamp>,
    pub(super) held: Vec<Hold>,
}

/// Looks whether a claim is worth its write lock. Reads only.
pub(super) fn look(
    db: &Connection,
    rules: &Rules,
    slots: &BTreeMap<String, Slots>,
    now: Now,
) -> Result<Seen, rusqlite::Error> {
    let held = holds::in_force(db, now)?;
    let room = rates::limit(db, rules, holds::not_held(slots, &held, now), now)?;
    let due = anything_due(db, &room.open, now)?;
    let next_due = if due { None } else { next_due(db, slots, (&held, &room.later), now)? };
    Ok(Seen { due, next_due, held })
}

/// Whether anything is due at one of these receivers.
fn anything_due(
    db: &Connection,
    open: &BTreeMap<String, Slots>,
    now: Now,
) -> Result<bool, rusqlite::Error> {
    for (receiver, room) in open {
        for suspect in kinds(*room) {
            if let Some(due) = first_due(db, receiver, suspect, i64::MIN)?
                && due <= now.wall
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Begins what is due and fits, and settles what cannot be delivered.
pub(super) fn claim(
    db: &Connection,
    rules: &Rules,
    slots: &BTreeMap<String, Slots>,
    instance: &Arc<str>,
    now: Now,
) -> Result<Claimed, rusqlite::Error> {
    let held = holds::in_force(db, now)?;
    let mut claim = Claim::prepare(db, rules, instance, now)?;
    let room = rates::limit(db, rules, holds::not_held(slots, &held, now), now)?;
    for (receiver, room) in &room.open {
        let (mut free, before) = (room.free, claim.claimed.begun.len());
        // A suspect goes first, alone: it has waited for a restart.
        for suspect in kinds(*room) {
            let limit = if suspect { free.min(1) } else { free };
            free -= claim.fill(receiver, suspect, limit)?;
        }
        let begun = claim.claimed.begun.len() - before;
        if begun > 0 {
            claim.mind_probe(receiver)?;
            rates::pay(db, rules, receiver, begun, now)?;
        }
    }
    let mut claimed = claim.claimed;
    let room = rates::limit(db, rules, holds::not_held(slots, &held, now), now)?;
    claimed.next_due = next_due(db, slots, (&held, &room.later), now)?;
    claimed.held = held;
    Ok(claimed)
}

/// Which rows are looked at: suspects, if one may begin, and the others.
fn kinds(room: Slots) -> impl Iterator<Item = bool> {
    [true, false].into_iter().filter(move |suspect| !suspect || room.suspect)
}

/// One claim under way. Its statements are looked up once for all of its rows.
struct Claim<'c> {
    db: &'c Connection,
    rules: &'c Rules,
    instance: &'c Arc<str>,
    now: Now,
    update: Update<'c>,
    next_number: CachedStatement<'c>,
    insert_attempt: CachedStatement<'c>,
    versions: Versions<'c>,
    claimed: Claimed,
}

impl<'c> Claim<'c> {
    fn prepare(
        db: &'c Connection,
        rules: &'c Rules,
        instance: &'c Arc<str>,
        now: Now,
    ) -> Result<Self, rusqlite::Error> {
        let next_number = db.prepare_cached(
            "SELECT coalesce(max(number), 0) + 1 FROM handoff_attempts WHERE operation_key = ?1",
        )?;
        let insert_attempt = db.prepare_cached(
            "INSERT INTO handoff_attempts
               (operation_key, number, kind, started_at, started_steady, instance, request,
                begun_fact)
             VALUES (?1, ?2, ?8, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let (update, versions) = (Update::prepare(db)?, Versions::new(db));
        let claimed = Claimed::default();
        Ok(Self {
            db,
            rules,
            instance,
            now,
            update,
            next_number,
            insert_attempt,
            versions,
            claimed,
        })
    }

    /// Fills up to `limit` slots of a receiver; returns how many it has filled.
    fn fill(
        &mut self,
        receiver: &str,
        suspect: bool,
        limit: usize,
    ) -> Result<usize, rusqlite::Error> {
        let mut filled = 0;
        let mut looked_at = 0;
        while filled < limit {
            let wanted = (limit - filled).min(LOOKED_AT - looked_at);
            let due = due(self.db, receiver, suspect, wanted, self.now)?;
            looked_at += due.len();
            let exhausted = due.len() < wanted;
            for loaded in due {
                filled += usize::from(self.act(loaded)?);
            }
            if exhausted {
                return Ok(filled);
            }
            if looked_at >= LOOKED_AT {
                self.claimed.more |= filled < limit;
                return Ok(filled);
            }
        }
        Ok(filled)
    }

    /// Begins no other probe of the receiver while this one is under way.
    fn mind_probe(&self, receiver: &str) -> Result<(), rusqlite::Error> {
        let breaker = breakers::by_name(self.db, receiver)?;
        if breaker.wants_a_probe(self.now) {
            let timeout = self.rules.terms(receiver).timeout;
            breakers::write(self.db, receiver, breaker.probed(self.now, timeout))?;
        }
        Ok(())
    }

    /// Does what follows from an operation's facts. Says whether an attempt has begun.
    fn act(&mut self, mut loaded: Loaded) -> Result<bool, rusqlite::Error> {
        if loaded.row.recorded.fingerprint.is_none()
            && let Ok(key) = OperationKey::parse(&loaded.row.operation_key)
        {
            loaded.row.recorded.other_version = self.versions.other(&key, loaded.id)?;
        }
        let judged = self.rules.judge(&loaded.row.recorded, self.now);
        let terms = self.rules.terms(&loaded.row.receiver);
        let mut follows = next(&loaded.row.facts, &judged.around, terms, self.now);
        let kind = match follows.step {
            Step::Deliver => Some(AttemptKind::Deliver),
            Step::Ask => Some(AttemptKind::LookUp),
            Step::Sent | Step::Stay | Step::Wait { .. } | Step::Block(_) => None,
        };
        if let (Some(kind), Some(ready), true) = (kind, &judged.ready, judged.around.configured) {
            self.begin(loaded, kind, &judged, ready)?;
            return Ok(true);
        }
        if follows.step == Step::Ask {
            follows = unasked(&mut loaded, &judged, terms, self.now);
        }
        let error = match follows.step {
            Step::Block(_) => judged.fault.clone(),
            Step::Sent | Step::Stay | Step::Wait { .. } | Step::Ask | Step::Deliver => None,
        };
        let change = Change {
            next: follows,
            ready: judged.ready.as_ref(),
            effect: loaded.row.facts.effect(&terms.contract),
            error,
            suspect: loaded.suspect,
            now: self.now.wall,
        };
        self.update.write(&mut loaded, change)?;
        let (key, receiver) = (loaded.row.operation_key, loaded.row.receiver);
        let (next, fault) = (follows, judged.fault);
        self.claimed.events.push(Event::Settled { key, receiver, next, fault });
        Ok(false)
    }

    /// Writes the attempt and its first fact: from here on it may have acted.
    fn begin(
        &mut self,
        mut loaded: Loaded,
        kind: AttemptKind,
        judged: &Judged,
        ready: &Ready,
    ) -> Result<(), rusqlite::Error> {
        let now = self.now;
        let number = self.next_number.query_row([&loaded.row.operation_key], |row| row.get(0))?;
        let request = judged.around.request.clone();
        let row = &mut loaded.row;
        match kind {
            AttemptKind::Deliver => {
                row.facts.delivery_begins(number, now, request.clone());
                row.first_attempt_at.get_or_insert(now.wall);
            }
            AttemptKind::LookUp => row.facts.look_up_begins(number),
        }
        let terms = self.rules.terms(&row.receiver);
        let change = Change {
            next: next(&row.facts, &judged.around, terms, now),
            ready: Some(ready),
            effect: row.facts.effect(&terms.contract),
            error: None,
            suspect: loaded.suspect,
            now: now.wall,
        };
        self.update.write(&mut loaded, change)?;
        self.insert_attempt.execute(params![
            ready.key.as_str(),
            number,
            now.wall.as_millis(),
            now.steady.as_millis(),
            self.instance,
            request.0,
            i64::try_from(loaded.row.facts.version).unwrap_or(i64::MAX),
            kind.as_str(),
        ])?;
        self.claimed.begun.push(Begun {
            id: AttemptId { key: Arc::from(ready.key.as_str()), number },
            kind,
            key: ready.key.clone(),
            payload: ready.payload.clone(),
            request,
            started: now,
            instance: Arc::clone(self.instance),
            operation: loaded,
        });
        Ok(())
    }
}

/// What follows where a person asked for a look-up that cannot be made: it waits to
/// be configured, or what it was before follows.
fn unasked(loaded: &mut Loaded, judged: &Judged, terms: &Terms, now: Now) -> Next {
    if !judged.around.configured {
        let step = Step::Wait { gate: Gate::NotConfigured, until: None };
        return Next { row: Row::AskNow, step };
    }
    loaded.row.facts.ask_now = false;
    loaded.row.facts.version += 1;
    next(&loaded.row.facts, &judged.around, terms, now)
}

/// The rows that are due, by due time, then by order of recording.
fn due(
    db: &Connection,
    receiver: &str,
    suspect: bool,
    limit: usize,
    now: Now,
) -> Result<Vec<Loaded>, rusqlite::Error> {
    let mut read = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM {TABLES}
          WHERE o.receiver = ?1 AND o.suspect = ?2 AND o.state = 'pending'
            AND o.open_number IS NULL AND o.due_at <= ?3
          ORDER BY o.due_at, o.id LIMIT ?4"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows =
        read.query_map(params![receiver, suspect, now.wall.as_millis(), limit], operation::read)?;
    rows.collect()
}

/// When the next operation of a receiver with room falls due and may begin.
fn next_due(
    db: &Connection,
    slots: &BTreeMap<String, Slots>,
    (held, later): (&[Hold], &BTreeMap<String, Timestamp>),
    now: Now,
) -> Result<Option<Timestamp>, rusqlite::Error> {
    let mut earliest: Option<Timestamp> = None;
    for (receiver, room) in slots {
        let (after, opens) = match hold::last(held, receiver, now.wall).map(|hold| hold.until) {
            None => match later.get(receiver) {
                None => (now.wall.as_millis(), None),
                // Nor does it begin before there is room.
                Some(again) => (i64::MIN, Some(*again)),
            },
            // What has fallen due begins when the hold ends.
            Some(Some(until)) => (i64::MIN, Some(until)),
            Some(None) => continue,
        };
        for suspect in kinds(*room) {
            let due = first_due(db, receiver, suspect, after)?;
            let due = due.map(|due| opens.map_or(due, |opens| due.max(opens)));
            earliest = [earliest, due].into_iter().flatten().min();
        }
    }
    Ok(earliest)
}

/// The earliest due time after `after`.
fn first_due(
    db: &Connection,
    receiver: &str,
    suspect: bool,
    after: i64,
) -> Result<Option<Timestamp>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT due_at FROM handoff_outbox
          WHERE receiver = ?1 AND suspect = ?2 AND state = 'pending' AND open_number IS NULL
            AND due_at > ?3
          ORDER BY due_at LIMIT 1",
    )?
    .query_row(params![receiver, suspect, after], |row| Ok(Timestamp::from_millis(row.get(0)?)))
    .optional()
}
