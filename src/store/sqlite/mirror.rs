//! The configured names, made known to the recording triggers.

use super::{breakers, holds};
use crate::outbox::rules::Rules;
use crate::store::Mirror;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;

/// Writes the names of receivers and types where they have changed, and
/// releases operations that waited for theirs to be configured.
pub(super) fn mirror(db: &Connection, rules: &Rules, how: Mirror) -> Result<(), rusqlite::Error> {
    let receivers: BTreeSet<String> = rules.receivers.keys().cloned().collect();
    let stored = db
        .prepare("SELECT name FROM handoff_receivers")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<BTreeSet<String>, _>>()?;
    if how == Mirror::IfEmpty && !stored.is_empty() {
        return Ok(());
    }
    if stored != receivers {
        db.execute("DELETE FROM handoff_receivers", [])?;
        for name in &receivers {
            db.execute("INSERT INTO handoff_receivers (name) VALUES (?1)", [name])?;
        }
    }
    let types: BTreeSet<(String, u16, bool)> = rules
        .types
        .values()
        .map(|kind| (kind.name.clone(), kind.version, kind.subject_pattern.is_none()))
        .collect();
    let stored = db
        .prepare("SELECT name, version, plain_subject FROM handoff_types")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<BTreeSet<(String, u16, bool)>, _>>()?;
    if stored != types {
        db.execute("DELETE FROM handoff_types", [])?;
        for (name, version, plain) in &types {
            db.execute(
                "INSERT INTO handoff_types (name, version, plain_subject) VALUES (?1, ?2, ?3)",
                params![name, version, plain],
            )?;
        }
    }
    breakers::forget_others(db, rules)?;
    if how == Mirror::Replace {
        holds::lift_suspensions(db)?;
    }
    release(db)
}

/// Makes what waits for no time due again: the next claim looks at it anew.
fn release(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute(
        "UPDATE handoff_outbox SET due_at = recorded_at
          WHERE state = 'pending' AND open_number IS NULL AND due_at IS NULL",
        [],
    )?;
    Ok(())
}
