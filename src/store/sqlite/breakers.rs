//! Circuit breakers, stored: each changes with the outcome that changes it.

use crate::clock::{Now, Timestamp};
use crate::outbox::breaker::{Breaker, Open, Settings, Voice};
use crate::outbox::hold::{HeldBy, Hold};
use crate::outbox::outcome::Ending;
use crate::outbox::rules::Rules;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;
use std::time::Duration;

const COLUMNS: &str = "receiver, failures, changed_steady, opened_at, open_until, open_ms";

/// The breakers that a group of outcomes has met, read once.
#[derive(Default)]
pub(super) struct Breakers {
    known: BTreeMap<String, Breaker>,
}

impl Breakers {
    /// Keeps what a call's end says of its receiver.
    pub(super) fn hear(
        &mut self,
        db: &Connection,
        rules: &Rules,
        receiver: &str,
        ending: &Ending,
        (started, ended): (Timestamp, Now),
    ) -> Result<(), rusqlite::Error> {
        let Some((before, settings)) = self.of(db, rules, receiver)? else { return Ok(()) };
        let after = before.hear(Voice::of(ending), started, ended, &settings);
        if after != before {
            write(db, receiver, after)?;
            self.known.insert(receiver.to_owned(), after);
        }
        Ok(())
    }

    /// Whether the call that began then is a probe.
    pub(super) fn is_probe(
        &mut self,
        db: &Connection,
        rules: &Rules,
        receiver: &str,
        started: Timestamp,
    ) -> Result<bool, rusqlite::Error> {
        let known = self.of(db, rules, receiver)?;
        Ok(known.is_some_and(|(breaker, _)| breaker.is_probe(started)))
    }

    /// The receiver's breaker as it stands; `None` if it has none.
    fn of(
        &mut self,
        db: &Connection,
        rules: &Rules,
        receiver: &str,
    ) -> Result<Option<(Breaker, Settings)>, rusqlite::Error> {
        let settings = rules.receivers.get(receiver).and_then(|rules| rules.protection.breaker);
        let Some(settings) = settings else { return Ok(None) };
        if let Some(known) = self.known.get(receiver) {
            return Ok(Some((*known, settings)));
        }
        let stored = by_name(db, receiver)?;
        self.known.insert(receiver.to_owned(), stored);
        Ok(Some((stored, settings)))
    }
}

/// A receiver's breaker.
pub(super) fn by_name(db: &Connection, receiver: &str) -> Result<Breaker, rusqlite::Error> {
    let mut read =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM handoff_breakers WHERE receiver = ?1"))?;
    let known = read.query_row([receiver], breaker).optional()?;
    Ok(known.unwrap_or(Breaker::CLOSED))
}

fn breaker(row: &Row<'_>) -> Result<Breaker, rusqlite::Error> {
    let time = |at: usize| row.get::<_, Option<i64>>(at);
    let open = match (time(3)?, time(4)?, time(5)?) {
        (Some(since), Some(until), Some(length)) => Some(Open {
            since: Timestamp::from_millis(since),
            until: Timestamp::from_millis(until),
            length: Duration::from_millis(u64::try_from(length).unwrap_or_default()),
        }),
        (_, _, _) => None,
    };
    let changed = Timestamp::from_millis(row.get(2)?);
    Ok(Breaker { failures: row.get(1)?, changed, open })
}

pub(super) fn write(
    db: &Connection,
    receiver: &str,
    breaker: Breaker,
) -> Result<(), rusqlite::Error> {
    let open = breaker.open;
    db.prepare_cached(&format!(
        "REPLACE INTO handoff_breakers ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
    ))?
    .execute(params![
        receiver,
        breaker.failures,
        breaker.changed.as_millis(),
        open.map(|open| open.since.as_millis()),
        open.map(|open| open.until.as_millis()),
        open.map(|open| i64::try_from(open.length.as_millis()).unwrap_or(i64::MAX)),
    ])?;
    Ok(())
}

/// Open breakers as holds, also those whose time is over and that wait for a probe.
pub(super) fn holds(db: &Connection) -> Result<Vec<Hold>, rusqlite::Error> {
    let mut read = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handoff_breakers WHERE open_until IS NOT NULL"
    ))?;
    let rows = read.query_map([], |row| {
        let (receiver, breaker) = (row.get(0)?, breaker(row)?);
        Ok(breaker.open.map(|open| Hold {
            receiver,
            held_by: HeldBy::Breaker,
            since: open.since,
            until: Some(open.until),
            who: None,
            reason: Some(format!("{} calls in a row failed", breaker.failures)),
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// Forgets the breakers of receivers that have none any more.
pub(super) fn forget_others(db: &Connection, rules: &Rules) -> Result<(), rusqlite::Error> {
    let names = db
        .prepare_cached("SELECT receiver FROM handoff_breakers")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<Vec<String>, _>>()?;
    for name in names {
        let kept = rules.receivers.get(&name).is_some_and(|r| r.protection.breaker.is_some());
        if !kept {
            forget(db, &name)?;
        }
    }
    Ok(())
}

/// Closes a receiver's breaker.
pub(super) fn forget(db: &Connection, receiver: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached("DELETE FROM handoff_breakers WHERE receiver = ?1")?.execute([receiver])?;
    Ok(())
}
