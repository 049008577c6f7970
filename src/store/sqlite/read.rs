//! Reading for people: one operation, its history, lists and counts.

use super::holds;
use super::operation::{self, COLUMNS, TABLES};
use crate::clock::{Now, Timestamp};
use crate::outbox::facts::AttemptKind;
use crate::outbox::outcome::OutcomeKind;
use crate::outbox::state::{BlockReason, State};
use crate::store::{AttemptRow, Filter, OperationRow, ReceiverCounts, Summary};
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, named_params};

/// What a person must look at: also a row whose state is a word that nobody
/// knows, which nothing else would ever show.
const SHOWN_AS_BLOCKED: &str = "state NOT IN ('pending', 'sent', 'withdrawn')";

/// One operation, with its payload.
pub(super) fn find(db: &Connection, key: &str) -> Result<Option<OperationRow>, rusqlite::Error> {
    Ok(operation::by_key(db, key)?.map(|loaded| with_payload(loaded.row)))
}

fn with_payload(mut row: OperationRow) -> OperationRow {
    row.payload = row.recorded.payload.as_deref().map(|text| {
        // What is no JSON is shown as the text that it is.
        serde_json::from_str(text).unwrap_or_else(|_| serde_json::Value::String(text.to_owned()))
    });
    row
}

/// The attempts of an operation, oldest first.
pub(super) fn history(db: &Connection, key: &str) -> Result<Vec<AttemptRow>, rusqlite::Error> {
    let mut read = db.prepare_cached(
        "SELECT operation_key, number, kind, started_at, finished_at, instance, outcome,
                error_code, http_status, request_sent, duration_ms, evidence, remote_id
           FROM handoff_attempts WHERE operation_key = ?1 ORDER BY number",
    )?;
    let rows = read.query_map([key], |row| {
        let kind: String = row.get("kind")?;
        let outcome: Option<String> = row.get("outcome")?;
        let finished: Option<i64> = row.get("finished_at")?;
        Ok(AttemptRow {
            operation_key: row.get("operation_key")?,
            number: row.get("number")?,
            kind: AttemptKind::parse(&kind).unwrap_or(AttemptKind::Deliver),
            started_at: Timestamp::from_millis(row.get("started_at")?),
            finished_at: finished.map(Timestamp::from_millis),
            instance: row.get("instance")?,
            outcome: outcome.and_then(|text| OutcomeKind::parse(&text)),
            error_code: row.get("error_code")?,
            http_status: row.get("http_status")?,
            request_sent: row.get("request_sent")?,
            duration_ms: row.get("duration_ms")?,
            evidence: row.get("evidence")?,
            remote_id: row.get("remote_id")?,
        })
    })?;
    rows.collect()
}

/// Operations in order of recording; with a limit, the most recent ones.
pub(super) fn list(db: &Connection, filter: &Filter) -> Result<Vec<OperationRow>, rusqlite::Error> {
    let mut conditions = Vec::new();
    let mut values: Vec<(&str, Box<dyn ToSql>)> = Vec::new();
    if let Some(receiver) = &filter.receiver {
        conditions.push("o.receiver = :receiver");
        values.push((":receiver", Box::new(receiver.clone())));
    }
    match filter.state {
        None => {}
        Some(State::Blocked) => conditions.push(SHOWN_AS_BLOCKED),
        Some(state) => {
            conditions.push("o.state = :state");
            values.push((":state", Box::new(state.as_str())));
        }
    }
    if let Some(reason) = filter.reason {
        conditions.push("o.state = 'blocked' AND o.blocked_reason = :reason");
        values.push((":reason", Box::new(reason.as_str())));
    }
    if let Some(prefix) = &filter.prefix {
        conditions.push("substr(o.operation_key, 1, length(:prefix)) = :prefix");
        values.push((":prefix", Box::new(prefix.clone())));
    }
    let conditions = if conditions.is_empty() { "1".to_owned() } else { conditions.join(" AND ") };
    values.push((":limit", Box::new(filter.limit.map_or(-1, i64::from))));
    let mut read = db.prepare(&format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE {conditions} ORDER BY o.id DESC LIMIT :limit"
    ))?;
    let bound: Vec<(&str, &dyn ToSql)> =
        values.iter().map(|(name, value)| (*name, value.as_ref())).collect();
    let rows = read.query_map(bound.as_slice(), operation::read)?;
    let mut all = rows
        .map(|loaded| loaded.map(|loaded| with_payload(loaded.row)))
        .collect::<Result<Vec<_>, _>>()?;
    all.reverse();
    Ok(all)
}

/// Counts and ages by receiver.
pub(super) fn summary(db: &Connection, now: Now) -> Result<Summary, rusqlite::Error> {
    let mut read = db.prepare_cached(&format!(
        "SELECT receiver,
                sum(state = 'pending'), sum(open_number IS NOT NULL), sum(state = 'sent'),
                sum({SHOWN_AS_BLOCKED}), sum(state = 'withdrawn'),
                min(CASE WHEN state = 'pending' AND due_at <= :now AND open_number IS NULL
                         THEN due_at END),
                min(CASE WHEN state = 'pending' THEN recorded_at END),
                min(CASE WHEN {SHOWN_AS_BLOCKED} THEN recorded_at END)
           FROM handoff_outbox GROUP BY receiver ORDER BY receiver"
    ))?;
    let time = |millis: Option<i64>| millis.map(Timestamp::from_millis);
    let mut receivers = read
        .query_map(named_params! { ":now": now.wall.as_millis() }, |row| {
            Ok(ReceiverCounts {
                receiver: row.get(0)?,
                pending: row.get(1)?,
                in_flight: row.get(2)?,
                sent: row.get(3)?,
                blocked: row.get(4)?,
                withdrawn: row.get(5)?,
                oldest_due_at: time(row.get(6)?),
                oldest_pending_at: time(row.get(7)?),
                oldest_blocked_at: time(row.get(8)?),
                blocked_by_reason: std::collections::BTreeMap::new(),
            })
        })?
        .collect::<Result<Vec<_>, _>>()?;
    for counts in &mut receivers {
        for reason in BlockReason::ALL {
            let number: Option<i64> = db
                .prepare_cached(
                    "SELECT count(*) FROM handoff_outbox
                      WHERE state = 'blocked' AND receiver = ?1 AND blocked_reason = ?2",
                )?
                .query_row([counts.receiver.as_str(), reason.as_str()], |row| row.get(0))
                .optional()?;
            if let Some(number) = number.filter(|number| *number > 0) {
                counts.blocked_by_reason.insert(reason.as_str(), number);
            }
        }
    }
    Ok(Summary { receivers, holds: holds::in_force(db, now)? })
}
