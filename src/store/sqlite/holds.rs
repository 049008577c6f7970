//! Receivers that are held: who holds them, and what a claim leaves alone.

use super::audit::{self, Entry};
use super::{breakers, meta};
use crate::clock::{Now, Timestamp};
use crate::outbox::hold::{HeldBy, Hold};
use crate::outbox::outcome::{Ending, NotTakenWhy, Outcome};
use crate::outbox::retry::Retry;
use crate::store::{HoldAct, Slots};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

/// Every hold that is in force, by receiver; also of open breakers that wait for a probe.
pub(super) fn in_force(db: &Connection, now: Now) -> Result<Vec<Hold>, rusqlite::Error> {
    let mut read = db.prepare_cached(
        "SELECT receiver, held_by, since, until, who, reason FROM handoff_holds
          WHERE until IS NULL OR until > ?1 ORDER BY receiver, held_by",
    )?;
    let rows = read.query_map([now.wall.as_millis()], hold)?;
    // A word that nobody knows is a later program's hold: not ours to keep.
    let mut all = rows.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    all.extend(breakers::holds(db)?);
    all.sort_by(|one, other| (&one.receiver, one.held_by).cmp(&(&other.receiver, other.held_by)));
    Ok(all)
}

fn hold(row: &Row<'_>) -> Result<Option<Hold>, rusqlite::Error> {
    let held_by: String = row.get(1)?;
    let Some(held_by) = HeldBy::parse(&held_by) else { return Ok(None) };
    Ok(Some(Hold {
        receiver: row.get(0)?,
        held_by,
        since: Timestamp::from_millis(row.get(2)?),
        until: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
        who: row.get(4)?,
        reason: row.get(5)?,
    }))
}

/// Receivers that may be called, with their room: one call where it is a probe.
pub(super) fn not_held(
    slots: &BTreeMap<String, Slots>,
    held: &[Hold],
    now: Now,
) -> BTreeMap<String, Slots> {
    let open = |(name, room): (&String, &Slots)| {
        let mut free = room.free;
        for hold in held.iter().filter(|hold| hold.receiver == *name) {
            free = free.min(usize::from(!hold.holds(now.wall)));
        }
        (free > 0).then(|| (name.clone(), Slots { free, ..*room }))
    };
    slots.iter().filter_map(open).collect()
}

/// A person holds receivers. Those that a person holds already stay as they are.
///
/// Returns the pauses that are in force now.
pub(super) fn pause(
    db: &Connection,
    act: &HoldAct,
    now: Now,
) -> Result<Vec<Hold>, rusqlite::Error> {
    let mut paused = Vec::new();
    for receiver in &act.receivers {
        let before = of(db, receiver, now)?;
        let new = db
            .prepare_cached(
                "INSERT INTO handoff_holds
                   (receiver, held_by, since, since_steady, until, who, reason)
                 VALUES (?1, 'pause', ?2, ?3, NULL, ?4, ?5) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                receiver,
                now.wall.as_millis(),
                now.steady.as_millis(),
                act.who,
                act.reason
            ])?;
        let after = of(db, receiver, now)?;
        if new == 1 {
            write_down(db, "pause", receiver, act, (&before, &after), now)?;
        }
        paused.extend(after.into_iter().filter(|hold| hold.held_by == HeldBy::Pause));
    }
    Ok(paused)
}

/// What the end of a call asks for: a pause, or that nobody is refused any more.
pub(super) fn hear(
    db: &Connection,
    receiver: &str,
    retry: &Retry,
    ending: &Ending,
    now: Now,
) -> Result<(), rusqlite::Error> {
    let (held_by, until, reason) = match ending {
        Ending::Outcome(Outcome::Unauthorised { whole_receiver: true }) => {
            (HeldBy::Suspension, None, "it refuses whoever we say we are")
        }
        Ending::Outcome(Outcome::NotTaken {
            why: NotTakenWhy::Throttled,
            not_before: Some(asked),
        }) => (HeldBy::RetryAfter, Some(retry.capped(*asked, now.wall)), "it asked for a pause"),
        Ending::Outcome(_) | Ending::LookedUp(_) | Ending::Interrupted { .. } | Ending::CutOff => {
            return Ok(());
        }
    };
    if until.is_some_and(|until| until <= now.wall) {
        return Ok(());
    }
    // The longer pause counts; one that is over begins anew.
    db.prepare_cached(
        "INSERT INTO handoff_holds (receiver, held_by, since, since_steady, until, who, reason)
         VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6)
         ON CONFLICT DO UPDATE
            SET since = CASE WHEN until <= excluded.since THEN excluded.since ELSE since END,
                until = max(until, excluded.until)",
    )?
    .execute(params![
        receiver,
        held_by.as_str(),
        now.wall.as_millis(),
        now.steady.as_millis(),
        until.map(Timestamp::as_millis),
        reason
    ])?;
    Ok(())
}

/// Another configuration is in force, which may hold another credential: it is tried.
pub(super) fn lift_suspensions(db: &Connection) -> Result<(), rusqlite::Error> {
    let suspended = db
        .prepare_cached("SELECT receiver FROM handoff_holds WHERE held_by = 'suspension'")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<Vec<String>, _>>()?;
    let mark = meta::read_mark(db)?.map(|mark| Now { wall: mark.wall, steady: mark.steady });
    for receiver in suspended {
        // A pause that goes on gives all of its time back when it ends.
        if let Some(now) = mark
            && of(db, &receiver, now)?.iter().all(|hold| hold.held_by != HeldBy::Pause)
            && let Some(since) = clock_stopped_at(db, &receiver)?
        {
            give_time_back(db, &receiver, since, now)?;
        }
        db.prepare_cached(
            "DELETE FROM handoff_holds WHERE receiver = ?1 AND held_by = 'suspension'",
        )?
        .execute([&receiver])?;
    }
    Ok(())
}

/// A person lets receivers be called again, whatever holds them. Returns what has ended.
pub(super) fn resume(
    db: &Connection,
    act: &HoldAct,
    now: Now,
) -> Result<Vec<Hold>, rusqlite::Error> {
    let mut ended = Vec::new();
    for receiver in &act.receivers {
        let before = of(db, receiver, now)?;
        end(db, receiver, now)?;
        if !before.is_empty() {
            write_down(db, "resume", receiver, act, (&before, &[]), now)?;
        }
        ended.extend(before);
    }
    Ok(ended)
}

/// Ends every hold of a receiver.
fn end(db: &Connection, receiver: &str, now: Now) -> Result<(), rusqlite::Error> {
    if let Some(stopped) = clock_stopped_at(db, receiver)? {
        give_time_back(db, receiver, stopped, now)?;
    }
    db.prepare_cached("DELETE FROM handoff_holds WHERE receiver = ?1")?.execute([receiver])?;
    breakers::forget(db, receiver)
}

/// Since when no operation of the receiver was to be delivered, by the steady clock.
fn clock_stopped_at(db: &Connection, receiver: &str) -> Result<Option<Timestamp>, rusqlite::Error> {
    let mut read =
        db.prepare_cached("SELECT held_by, since_steady FROM handoff_holds WHERE receiver = ?1")?;
    let rows = read.query_map([receiver], |row| {
        let held_by: String = row.get(0)?;
        let stops = HeldBy::parse(&held_by).is_some_and(HeldBy::stops_the_clock);
        let since = Timestamp::from_millis(row.get(1)?);
        Ok(stops.then_some(since))
    })?;
    let mut earliest = None;
    for since in rows {
        earliest = [earliest, since?].into_iter().flatten().min();
    }
    Ok(earliest)
}

/// The time of a hold counts for no budget: those that have begun, begin later.
fn give_time_back(
    db: &Connection,
    receiver: &str,
    since: Timestamp,
    now: Now,
) -> Result<(), rusqlite::Error> {
    for rows in ["state = 'pending' AND open_number IS NULL", "open_number IS NOT NULL"] {
        db.prepare_cached(&format!(
            "UPDATE handoff_outbox SET budget_start = budget_start + ?3 - max(?2, budget_start)
              WHERE receiver = ?1 AND budget_start < ?3 AND {rows}"
        ))?
        .execute(params![receiver, since.as_millis(), now.steady.as_millis()])?;
    }
    Ok(())
}

fn of(db: &Connection, receiver: &str, now: Now) -> Result<Vec<Hold>, rusqlite::Error> {
    let all = in_force(db, now)?;
    Ok(all.into_iter().filter(|hold| hold.receiver == receiver).collect())
}

fn write_down(
    db: &Connection,
    verb: &str,
    receiver: &str,
    act: &HoldAct,
    (before, after): (&[Hold], &[Hold]),
    now: Now,
) -> Result<(), rusqlite::Error> {
    let shown =
        |holds: &[Hold]| serde_json::json!({ "receiver": receiver, "holds": holds }).to_string();
    let entry = Entry {
        at: now.wall,
        who: &act.who,
        verb,
        operation_key: None,
        reason: act.reason.as_deref(),
        before: &shown(before),
        after: &shown(after),
    };
    audit::add(db, &entry)
}
