//! What an earlier process left open, and what this one has lost hold of.

use super::conclude::{End, Saving};
use super::steps;
use crate::clock::{Now, SteadyMark};
use crate::outbox::facts::AttemptKind;
use crate::outbox::look_up::LookUpReport;
use crate::outbox::outcome::{Ending, NotTakenWhy, Report, Seen};
use crate::outbox::rules::Rules;
use crate::process::ProcessGroup;
use crate::store::{AttemptId, Event, Recovered};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use std::collections::BTreeSet;
use std::sync::Arc;

struct LeftOpen {
    id: AttemptId,
    instance: String,
    suspect: bool,
    process: Option<String>,
    kind: AttemptKind,
}

/// Every attempt that is open in the database.
fn left_open(db: &Connection) -> Result<Vec<LeftOpen>, rusqlite::Error> {
    let mut read = db.prepare_cached(
        "SELECT o.operation_key, o.open_number, t.instance, o.suspect, t.process, t.kind
           FROM handoff_outbox AS o
           JOIN handoff_attempts AS t
             ON t.operation_key = o.operation_key AND t.number = o.open_number
          WHERE o.open_number IS NOT NULL ORDER BY o.id",
    )?;
    let rows = read.query_map([], |row| {
        Ok(LeftOpen {
            id: AttemptId { key: Arc::from(row.get::<_, String>(0)?), number: row.get(1)? },
            instance: lossy(row, 2)?.unwrap_or_default(),
            suspect: row.get(3)?,
            process: lossy(row, 4)?,
            kind: match lossy(row, 5)?.as_deref() {
                Some("look_up") => AttemptKind::LookUp,
                // What nobody can read may have acted.
                _ => AttemptKind::Deliver,
            },
        })
    })?;
    rows.collect()
}

/// A text whose bytes may be damaged, which must not keep the daemon from starting.
fn lossy(row: &Row<'_>, column: usize) -> Result<Option<String>, rusqlite::Error> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => row.get(column)?,
    })
}

/// The process groups of open attempts.
pub(super) fn left_processes(
    db: &Connection,
) -> Result<Vec<(AttemptId, ProcessGroup)>, rusqlite::Error> {
    let with_group = |open: LeftOpen| {
        let group = ProcessGroup::parse(open.process.as_deref()?)?;
        Some((open.id, group))
    };
    Ok(left_open(db)?.into_iter().filter_map(with_group).collect())
}

/// Moves what clocks that were set have left behind, ends what earlier processes left
/// open, and brings impossible times forward.
pub(super) fn recover(
    db: &Connection,
    rules: &Rules,
    mark: Option<&SteadyMark>,
    now: Now,
) -> Result<Recovered, rusqlite::Error> {
    // First, or the clamp of times would cut what only has to move.
    let steps = mark.map(|mark| steps::mind(db, rules, mark, now)).transpose()?;
    restore_lost_attempts(db, now)?;
    let open = left_open(db)?;
    let alone = only_suspect(&open);
    let mut recovered = Recovered { steps: steps.unwrap_or_default(), ..Recovered::default() };
    let mut saving = Saving::prepare(db, rules)?;
    for left in &open {
        let ending = Ending::Interrupted { alone: alone.as_ref() == Some(&left.id) };
        let end = End {
            id: &left.id,
            instance: &left.instance,
            ending: &ending,
            seen: None,
            ended: now,
            took: None,
            suspect: true,
        };
        recovered.interrupted.extend(saving.save(&end)?);
    }
    steps::make_due(db, now)?;
    recovered.brought_forward = steps::bring_forward(db, rules, now)?;
    Ok(recovered)
}

/// An attempt that is open although its row is gone may have acted, and nobody
/// knows with which request: it gets a row again, so that it can end.
fn restore_lost_attempts(db: &Connection, now: Now) -> Result<(), rusqlite::Error> {
    db.prepare_cached(
        "INSERT INTO handoff_attempts
           (operation_key, number, kind, started_at, started_steady, instance, request, begun_fact)
         SELECT o.operation_key, o.open_number,
                CASE WHEN o.open_kind = 'look_up' THEN 'look_up' ELSE 'deliver' END,
                ?1, ?2, 'unknown', '', o.version
           FROM handoff_outbox AS o
          WHERE o.open_number IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM handoff_attempts AS t
                             WHERE t.operation_key = o.operation_key
                               AND t.number = o.open_number)",
    )?
    .execute(params![now.wall.as_millis(), now.steady.as_millis()])?;
    Ok(())
}

/// The one operation that the crash can be blamed on, if there is but one: the
/// only one in flight, or the only one of them that was in flight at a crash before.
fn only_suspect(open: &[LeftOpen]) -> Option<AttemptId> {
    let known: Vec<_> = open.iter().filter(|left| left.suspect).collect();
    match (known.as_slice(), open) {
        ([one], _) => Some(one.id.clone()),
        ([], [one]) => Some(one.id.clone()),
        _ => None,
    }
}

/// Ends open attempts of this process that it does not hold.
pub(super) fn disown(
    db: &Connection,
    rules: &Rules,
    instance: &str,
    holding: &BTreeSet<AttemptId>,
    now: Now,
) -> Result<Vec<Event>, rusqlite::Error> {
    let not_taken = Report::not_taken(NotTakenWhy::Stale, "not_begun");
    let delivery: (Ending, Seen) = (Ending::Outcome(not_taken.outcome.clone()), not_taken.into());
    let unasked = LookUpReport::cannot_tell("not_begun");
    let look_up: (Ending, Seen) = (Ending::LookedUp(unasked.finding.clone()), unasked.into());
    let mut saving = Saving::prepare(db, rules)?;
    let mut events = Vec::new();
    for left in left_open(db)? {
        if left.instance != instance || holding.contains(&left.id) {
            continue;
        }
        let (ending, seen) = match left.kind {
            AttemptKind::Deliver => &delivery,
            AttemptKind::LookUp => &look_up,
        };
        let end = End {
            id: &left.id,
            instance,
            ending,
            seen: Some(seen),
            ended: now,
            took: None,
            suspect: left.suspect,
        };
        events.extend(saving.save(&end)?);
    }
    Ok(events)
}

/// Keeps the process group of a command with its attempt.
pub(super) fn note_process(
    db: &Connection,
    id: &AttemptId,
    instance: &str,
    group: &ProcessGroup,
) -> Result<usize, rusqlite::Error> {
    db.prepare_cached(
        "UPDATE handoff_attempts SET process = ?4
          WHERE operation_key = ?1 AND number = ?2 AND instance = ?3 AND outcome IS NULL",
    )?
    .execute(params![id.key, id.number, instance, group.to_string()])
}
