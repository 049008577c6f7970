//! The rows of the database as an auditor sees them.

use crate::time::{Frame, Times};
use handoff::rusqlite::types::Value;
use handoff::rusqlite::{Connection, OptionalExtension, Row};
use std::collections::BTreeMap;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) receiver: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) effect: String,
    pub(crate) attempts: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) remote_id: Option<String>,
    pub(crate) settled_by: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) sent_at: Option<i64>,
    pub(crate) open_number: Option<i64>,
    pub(crate) not_before: Option<i64>,
    pub(crate) granted: bool,
    pub(crate) withdrawn: bool,
    pub(crate) deliver_after: Option<i64>,
    pub(crate) recorded: String,
    pub(crate) version: i64,
    pub(crate) possible_until: Option<i64>,
    pub(crate) failed_at: Option<i64>,
    pub(crate) budget_start: Option<i64>,
}

/// One attempt.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) number: u32,
    pub(crate) started_at: i64,
    pub(crate) started: i64,
    pub(crate) finished: Option<i64>,
    pub(crate) instance: String,
    pub(crate) outcome: Option<String>,
    pub(crate) request: String,
    pub(crate) spent: u32,
    pub(crate) alone: bool,
}

impl Try {
    /// The receiver may have acted on it.
    pub(crate) fn is_doubtful(&self) -> bool {
        let doubtful = ["already_exists", "in_progress", "unknown", "interrupted", "cut_off"];
        self.outcome.as_deref().is_none_or(|word| doubtful.contains(&word))
    }
}

const ALL: &str = "SELECT o.operation_key, o.receiver, o.state, o.blocked_reason, o.effect,
    o.attempts, o.due_at, o.remote_id, o.settled_by, o.last_error, o.sent_at, o.open_number,
    o.not_before, o.granted, o.withdrawn, a.deliver_after, a.payload,
    o.version, o.possible_until, o.failed_at, o.budget_start
  FROM handoff_outbox AS o JOIN handoff_approvals AS a USING (operation_key) ORDER BY o.id";

/// Every operation by its key.
pub(crate) fn operations(db: &Connection) -> BTreeMap<String, Seen> {
    let read = |row: &Row<'_>| {
        let seen = Seen {
            receiver: row.get(1)?,
            state: row.get(2)?,
            reason: row.get(3)?,
            effect: row.get(4)?,
            attempts: row.get(5)?,
            due_at: row.get(6)?,
            remote_id: row.get(7)?,
            settled_by: row.get(8)?,
            last_error: row.get(9)?,
            sent_at: row.get(10)?,
            open_number: row.get(11)?,
            not_before: row.get(12)?,
            granted: row.get(13)?,
            withdrawn: row.get(14)?,
            deliver_after: row.get(15)?,
            recorded: row.get(16)?,
            version: row.get(17)?,
            possible_until: row.get(18)?,
            failed_at: row.get(19)?,
            budget_start: row.get(20)?,
        };
        Ok((row.get(0)?, seen))
    };
    let mut query = db.prepare_cached(ALL).unwrap();
    query.query_map([], read).unwrap().map(Result::unwrap).collect()
}

/// The attempts of an operation, in order.
pub(crate) fn attempts(db: &Connection, key: &str) -> Vec<Try> {
    let read = |row: &Row<'_>| {
        Ok(Try {
            number: row.get(0)?,
            started_at: row.get(1)?,
            started: row.get(2)?,
            finished: row.get(3)?,
            instance: row.get(4)?,
            outcome: row.get(5)?,
            request: row.get(6)?,
            spent: row.get(7)?,
            alone: row.get(8)?,
        })
    };
    let sql = "SELECT number, started_at, started_steady, finished_steady, instance, outcome,
        request, spent, alone FROM handoff_attempts WHERE operation_key = ?1 ORDER BY number";
    let mut query = db.prepare_cached(sql).unwrap();
    query.query_map([key], read).unwrap().map(Result::unwrap).collect()
}

/// What the stored times mean; `None` before the first daemon has started.
pub(crate) fn frame(db: &Connection, times: &Times) -> Option<Frame> {
    let sql = "SELECT value FROM handoff_meta WHERE name = 'clock.steady'";
    let mark = db.prepare_cached(sql).unwrap().query_row([], |row| row.get(0)).optional();
    mark.unwrap().map(|mark: String| times.frame(&mark))
}

/// The single number that a query gives.
pub(crate) fn number(db: &Connection, sql: &str) -> i64 {
    db.prepare_cached(sql).unwrap().query_row([], |row| row.get(0)).unwrap()
}

/// The rows of a query.
pub(crate) fn rows(db: &Connection, sql: &str) -> Vec<Vec<Value>> {
    let mut query = db.prepare_cached(sql).unwrap();
    let columns = query.column_count();
    let read = |row: &Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    query.query_map([], read).unwrap().map(Result::unwrap).collect()
}
