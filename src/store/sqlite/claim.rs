//! The claim: what is due is looked at, and what may be delivered begins.

use super::operation::{self, COLUMNS, Change, Loaded, TABLES};
use super::versions;
use crate::clock::{Now, Timestamp};
use crate::outbox::facts::{Facts, RequestFingerprint};
use crate::outbox::key::OperationKey;
use crate::outbox::policy::{Next, Step, next};
use crate::outbox::rules::{Judged, Ready, Rules};
use crate::store::attempt::{AttemptId, Begun};
use crate::store::{Event, Slots};
use rusqlite::{Connection, OptionalExtension, params};
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
}

/// Whether anything is due at a receiver with room. Reads only.
pub(super) fn anything_due(
    db: &Connection,
    slots: &BTreeMap<String, Slots>,
    now: Now,
) -> Result<bool, rusqlite::Error> {
    for (receiver, room) in slots {
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
    let mut claimed = Claimed::default();
    for (receiver, room) in slots {
        let mut free = room.free;
        // A suspect goes first, alone: it has waited for a restart.
        for suspect in kinds(*room) {
            let limit = if suspect { free.min(1) } else { free };
            free -= fill(db, rules, receiver, suspect, limit, instance, now, &mut claimed)?;
        }
    }
    claimed.next_due = next_due(db, slots, now)?;
    Ok(claimed)
}

/// Which rows are looked at: suspects, if one may begin, and the others.
fn kinds(room: Slots) -> impl Iterator<Item = bool> {
    [true, false].into_iter().filter(move |suspect| !suspect || room.suspect)
}

/// Fills up to `limit` slots of a receiver; returns how many it has filled.
#[expect(clippy::too_many_arguments, reason = "the inner loop of one claim, called once")]
fn fill(
    db: &Connection,
    rules: &Rules,
    receiver: &str,
    suspect: bool,
    limit: usize,
    instance: &Arc<str>,
    now: Now,
    claimed: &mut Claimed,
) -> Result<usize, rusqlite::Error> {
    let mut filled = 0;
    let mut looked_at = 0;
    while filled < limit {
        let wanted = (limit - filled).min(LOOKED_AT - looked_at);
        let due = due(db, receiver, suspect, wanted, now)?;
        looked_at += due.len();
        let exhausted = due.len() < wanted;
        for mut loaded in due {
            if let Some(begun) = act(db, rules, &mut loaded, instance, now, claimed)? {
                claimed.begun.push(begun);
                filled += 1;
            }
        }
        if exhausted {
            return Ok(filled);
        }
        if looked_at >= LOOKED_AT {
            claimed.more |= filled < limit;
            return Ok(filled);
        }
    }
    Ok(filled)
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

/// Does what follows from an operation's facts.
fn act(
    db: &Connection,
    rules: &Rules,
    loaded: &mut Loaded,
    instance: &Arc<str>,
    now: Now,
    claimed: &mut Claimed,
) -> Result<Option<Begun>, rusqlite::Error> {
    if loaded.row.recorded.fingerprint.is_none()
        && let Ok(key) = OperationKey::parse(&loaded.row.operation_key)
    {
        loaded.row.recorded.other_version = versions::other_version(db, &key, loaded.id)?;
    }
    let judged = rules.judge(&loaded.row.recorded, now);
    let terms = rules.terms(&loaded.row.receiver);
    let follows = next(&loaded.row.facts, &judged.around, terms, now);
    if let (Step::Deliver, Some(ready)) = (follows.step, &judged.ready) {
        return begin(db, rules, loaded, &judged, ready, instance, now).map(Some);
    }
    let error = match follows.step {
        Step::Block(_) => judged.fault.clone(),
        Step::Sent | Step::Stay | Step::Wait { .. } | Step::Ask | Step::Deliver => None,
    };
    write(db, rules, loaded, &judged, follows, error, now)?;
    let (key, receiver) = (loaded.row.operation_key.clone(), loaded.row.receiver.clone());
    claimed.events.push(Event::Settled { key, receiver, next: follows, fault: judged.fault });
    Ok(None)
}

fn write(
    db: &Connection,
    rules: &Rules,
    loaded: &mut Loaded,
    judged: &Judged,
    follows: Next,
    error: Option<String>,
    now: Now,
) -> Result<(), rusqlite::Error> {
    let contract = &rules.terms(&loaded.row.receiver).contract;
    let change = Change {
        next: follows,
        judged,
        effect: loaded.row.facts.effect(contract),
        error,
        suspect: loaded.suspect,
        now: now.wall,
    };
    operation::write(db, loaded, change)
}

/// Writes the attempt and its first fact: from here on it may have acted.
fn begin(
    db: &Connection,
    rules: &Rules,
    loaded: &mut Loaded,
    judged: &Judged,
    ready: &Ready,
    instance: &Arc<str>,
    now: Now,
) -> Result<Begun, rusqlite::Error> {
    let number = next_number(db, &loaded.row.operation_key)?;
    let request = judged.around.request.clone();
    let row = &mut loaded.row;
    row.facts.delivery_begins(number, now, request.clone());
    row.first_attempt_at.get_or_insert(now.wall);
    let contract = &rules.terms(&row.receiver).contract;
    let follows = next(&row.facts, &judged.around, rules.terms(&row.receiver), now);
    let change = Change {
        next: follows,
        judged,
        effect: row.facts.effect(contract),
        error: None,
        suspect: loaded.suspect,
        now: now.wall,
    };
    operation::write(db, loaded, change)?;
    let facts = &loaded.row.facts;
    insert_attempt(db, &ready.key, number, &request, instance, facts, now)?;
    Ok(Begun {
        id: AttemptId { key: Arc::from(ready.key.as_str()), number },
        key: ready.key.clone(),
        receiver: loaded.row.receiver.clone(),
        payload: ready.payload.clone(),
        delivery: facts.attempts,
        started: now,
        instance: Arc::clone(instance),
        suspect: loaded.suspect,
    })
}

fn insert_attempt(
    db: &Connection,
    key: &OperationKey,
    number: u32,
    request: &RequestFingerprint,
    instance: &str,
    facts: &Facts,
    now: Now,
) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT INTO handoff_attempts
           (operation_key, number, kind, started_at, started_steady, instance, request, begun_fact)
         VALUES (?1, ?2, 'deliver', ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        key.as_str(),
        number,
        now.wall.as_millis(),
        now.steady.as_millis(),
        instance,
        request.0,
        i64::try_from(facts.version).unwrap_or(i64::MAX),
    ])?;
    Ok(())
}

fn next_number(db: &Connection, key: &str) -> Result<u32, rusqlite::Error> {
    db.prepare_cached(
        "SELECT coalesce(max(number), 0) + 1 FROM handoff_attempts WHERE operation_key = ?1",
    )?
    .query_row([key], |row| row.get(0))
}

/// When the next operation of a receiver with room falls due.
pub(super) fn next_due(
    db: &Connection,
    slots: &BTreeMap<String, Slots>,
    now: Now,
) -> Result<Option<Timestamp>, rusqlite::Error> {
    let mut earliest: Option<Timestamp> = None;
    for (receiver, room) in slots {
        for suspect in kinds(*room) {
            let due = first_due(db, receiver, suspect, now.wall.as_millis())?;
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
