//! The audit: what people did, each row chained to the one before.

use crate::clock::Timestamp;
use crate::outbox::payload::Fingerprint;
use crate::outbox::settle::Word;
use crate::outbox::verbs::Deed;
use crate::store::OperationRow;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

/// The hash before the first row.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What a person did.
pub(super) struct Entry<'a> {
    pub(super) at: Timestamp,
    pub(super) who: &'a str,
    pub(super) verb: &'a str,
    /// `None` if it was done to a receiver.
    pub(super) operation_key: Option<&'a str>,
    pub(super) reason: Option<&'a str>,
    pub(super) before: &'a str,
    pub(super) after: &'a str,
}

/// The part of an operation that an audit row shows before.
pub(super) fn snapshot(row: &OperationRow) -> String {
    shown(row).to_string()
}

/// The same after a deed, with what a person has vouched for.
pub(super) fn after(row: &OperationRow, deed: &Deed) -> String {
    let mut shown = shown(row);
    if let Deed::Resolve(word) = deed {
        shown["word"] = match word {
            Word::Sent { remote_id } => json!({ "as": "sent", "remote_id": remote_id }),
            Word::NotSent { looked_at, force } => {
                json!({ "as": "not-sent", "looked_at": looked_at, "force": force })
            }
        };
    }
    shown.to_string()
}

fn shown(row: &OperationRow) -> Value {
    json!({
        "state": row.state,
        "blocked_reason": row.blocked_reason,
        "effect": row.effect,
        "attempts": row.attempts,
        "version": row.version,
    })
}

/// Adds a row to the chain.
pub(super) fn add(db: &Connection, entry: &Entry<'_>) -> Result<(), rusqlite::Error> {
    let previous: Option<String> = db
        .prepare_cached("SELECT hash FROM handoff_audit ORDER BY id DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let previous = previous.unwrap_or_else(|| GENESIS.to_owned());
    let hash = hash(&previous, entry);
    db.prepare_cached(
        "INSERT INTO handoff_audit
           (at, who, verb, operation_key, reason, before, after, previous_hash, hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        entry.at.as_millis(),
        entry.who,
        entry.verb,
        entry.operation_key,
        entry.reason,
        entry.before,
        entry.after,
        previous,
        hash,
    ])?;
    Ok(())
}

/// SHA-256 over the previous hash and every field, as a JSON array so that no
/// text can pass for a border between two fields.
fn hash(previous: &str, entry: &Entry<'_>) -> String {
    let fields = serde_json::json!([
        previous,
        entry.at,
        entry.who,
        entry.verb,
        entry.operation_key,
        entry.reason,
        entry.before,
        entry.after,
    ]);
    Fingerprint::of(&fields.to_string()).as_str().to_owned()
}
