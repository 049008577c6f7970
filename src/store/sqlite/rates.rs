//! Rate limits, stored: paid in the transaction that begins what they pay for.

use crate::clock::{Now, Timestamp};
use crate::outbox::rate::Paid;
use crate::outbox::rules::Rules;
use crate::store::Slots;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;

/// Room at each receiver, and when there is some again where there is none.
pub(super) struct Room {
    pub(super) open: BTreeMap<String, Slots>,
    pub(super) later: BTreeMap<String, Timestamp>,
}

/// What the limits leave of the room.
pub(super) fn limit(
    db: &Connection,
    rules: &Rules,
    open: BTreeMap<String, Slots>,
    now: Now,
) -> Result<Room, rusqlite::Error> {
    let mut room = Room { open, later: BTreeMap::new() };
    for (receiver, known) in &rules.receivers {
        let Some(settings) = &known.protection.rate else { continue };
        let Some(slots) = room.open.get_mut(receiver) else { continue };
        let paid = paid(db, receiver)?;
        slots.free = slots.free.min(paid.room(now.steady, settings));
        if slots.free == 0 {
            room.open.remove(receiver);
            let again = now.wall.plus(paid.wait(now.steady, settings));
            room.later.insert(receiver.clone(), again);
        }
    }
    Ok(room)
}

/// So many calls have begun at a receiver.
pub(super) fn pay(
    db: &Connection,
    rules: &Rules,
    receiver: &str,
    calls: usize,
    now: Now,
) -> Result<(), rusqlite::Error> {
    let settings = rules.receivers.get(receiver).and_then(|known| known.protection.rate);
    let Some(settings) = settings else { return Ok(()) };
    let Paid(until) = paid(db, receiver)?.begun(calls, now.steady, &settings);
    db.prepare_cached("REPLACE INTO handoff_rates (receiver, paid_until) VALUES (?1, ?2)")?
        .execute(params![receiver, until])?;
    Ok(())
}

fn paid(db: &Connection, receiver: &str) -> Result<Paid, rusqlite::Error> {
    let mut read = db.prepare_cached("SELECT paid_until FROM handoff_rates WHERE receiver = ?1")?;
    let until = read.query_row([receiver], |row| row.get(0)).optional()?;
    Ok(Paid(until.unwrap_or(i64::MIN)))
}
