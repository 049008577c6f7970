//! Clocks that were set: what was stamped before moves with them.
//!
//! Due times and pauses are kept by the wall clock, which may be set either way.
//! The steady clock never goes back, but believes every step forward, so that no
//! receiver's memory of keys is thought longer than it is. A wait that must not be
//! too short may not believe it: its beginning moves with the step.

use super::meta;
use crate::clock::{Now, SteadyMark, Steps};
use crate::outbox::rules::Rules;
use rusqlite::{Connection, OptionalExtension, params};

/// Rows that a clock can matter to, each in words that one index answers.
const UNSETTLED: [&str; 3] =
    ["state = 'pending' AND open_number IS NULL", "open_number IS NOT NULL", "state = 'blocked'"];

/// Moves everything to where the clocks stand now, and keeps that.
///
/// Reads the stored mark in the same transaction, so that doing it again after an
/// error whose end is unknown moves nothing twice.
pub(super) fn mind(
    db: &Connection,
    rules: &Rules,
    mark: &SteadyMark,
    now: Now,
) -> Result<Steps, rusqlite::Error> {
    let kept = meta::read_mark(db)?;
    let steps = kept.map(|kept| mark.steps_since(&kept)).unwrap_or_default();
    if steps.wall != 0 {
        move_pauses(db, steps.wall)?;
        move_holds(db, steps.wall)?;
        bring_forward(db, rules, now)?;
        make_due(db, now)?;
    }
    if !steps.steady.is_zero() {
        let by = i64::try_from(steps.steady.as_millis()).unwrap_or(i64::MAX);
        move_waits(db, by)?;
    }
    meta::write_mark(db, mark)?;
    Ok(steps)
}

/// What backs off waits as long as it would have, by a clock that was not set; also
/// once what is under way has ended, or a late answer has ended its block. Where a
/// later delivery was asked for too, the claim sees to that.
fn move_pauses(db: &Connection, by: i64) -> Result<(), rusqlite::Error> {
    for rows in UNSETTLED {
        db.prepare_cached(&format!(
            "UPDATE handoff_outbox
                SET not_before = not_before + ?1,
                    due_at = CASE WHEN open_number IS NOT NULL THEN due_at
                                  WHEN due_at IS NOT NULL THEN not_before + ?1 END
              WHERE not_before IS NOT NULL AND {rows}"
        ))?
        .execute([by])?;
    }
    Ok(())
}

/// A receiver is held as long as it would have been.
fn move_holds(db: &Connection, by: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("UPDATE handoff_holds SET since = since + ?1, until = until + ?1")?
        .execute([by])?;
    db.prepare_cached(
        "UPDATE handoff_breakers SET opened_at = opened_at + ?1, open_until = open_until + ?1",
    )?
    .execute([by])?;
    Ok(())
}

/// Waits for a receiver to settle, and budgets of time, count time that has passed.
/// Beginnings of attempts stay: from them runs the receiver's memory of keys. So does
/// all that is settled: nothing waits for it any more.
fn move_waits(db: &Connection, by: i64) -> Result<(), rusqlite::Error> {
    db.prepare_cached("UPDATE handoff_holds SET since_steady = since_steady + ?1")?
        .execute([by])?;
    for rows in UNSETTLED {
        db.prepare_cached(&format!(
            "UPDATE handoff_attempts SET finished_steady = finished_steady + ?1
              WHERE operation_key IN (SELECT operation_key FROM handoff_outbox WHERE {rows})"
        ))?
        .execute([by])?;
        db.prepare_cached(&format!(
            "UPDATE handoff_outbox
                SET possible_until = possible_until + ?1, failed_at = failed_at + ?1,
                    budget_start = budget_start + ?1
              WHERE {rows}"
        ))?
        .execute([by])?;
    }
    Ok(())
}

/// A retry further off than the longest delay was stamped by a clock that was wrong.
/// Returns how many were brought forward.
pub(super) fn bring_forward(
    db: &Connection,
    rules: &Rules,
    now: Now,
) -> Result<usize, rusqlite::Error> {
    let mut changed = 0;
    for (receiver, known) in &rules.receivers {
        let look_up = known.terms.contract.look_up.as_ref();
        let interval = look_up.map(|look_up| look_up.interval).unwrap_or_default();
        let longest = known.terms.retry.longest().max(interval);
        let latest = now.wall.plus(longest).as_millis();
        for suspect in [false, true] {
            changed += db
                .prepare_cached(
                    "UPDATE handoff_outbox SET due_at = ?3, not_before = ?3
                      WHERE receiver = ?1 AND suspect = ?2 AND state = 'pending'
                        AND open_number IS NULL AND due_at > ?3 AND not_before > ?3",
                )?
                .execute(params![receiver, suspect, latest])?;
        }
    }
    Ok(changed)
}

/// What backs off from nothing and was asked for no later is due now: the clock by
/// which it was recorded, or put off, was ahead. The claim looks at it and knows more.
/// Also for a receiver that is not configured: it may be again before the next start.
pub(super) fn make_due(db: &Connection, now: Now) -> Result<(), rusqlite::Error> {
    let mut next = db.prepare_cached(
        "SELECT receiver FROM handoff_outbox
          WHERE state = 'pending' AND open_number IS NULL AND receiver > ?1
          ORDER BY receiver LIMIT 1",
    )?;
    let mut receiver = String::new();
    loop {
        receiver = match next.query_row([&receiver], |row| row.get(0)).optional()? {
            Some(receiver) => receiver,
            None => return Ok(()),
        };
        for suspect in [false, true] {
            db.prepare_cached(
                "UPDATE handoff_outbox AS o SET due_at = ?3
                  WHERE receiver = ?1 AND suspect = ?2 AND state = 'pending'
                    AND open_number IS NULL AND due_at > ?3 AND not_before IS NULL
                    AND NOT EXISTS (SELECT 1 FROM handoff_approvals AS a
                                     WHERE a.operation_key = o.operation_key
                                       AND a.deliver_after >= o.due_at)",
            )?
            .execute(params![receiver, suspect, now.wall.as_millis()])?;
        }
    }
}
