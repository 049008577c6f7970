//! What SQLite itself allows: the same rows written by plain loops, with the
//! same durability, and nothing else round them.

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

/// Operations that share one transaction in the loop that commits in groups.
pub(super) const GROUP: usize = 64;

/// Delivers every pending operation one by one: claim and attempt in one
/// transaction, outcome and receipt in another. Returns how many.
pub(super) fn two_transactions(db: &mut Connection, now: i64) -> Result<usize, rusqlite::Error> {
    let mut done = 0;
    loop {
        let tx = begin(db)?;
        let claimed = claim(&tx, 1, now)?;
        tx.commit()?;
        if claimed.is_empty() {
            return Ok(done);
        }
        let tx = begin(db)?;
        settle(&tx, &claimed, now)?;
        tx.commit()?;
        done += claimed.len();
    }
}

/// Delivers every pending operation in groups: one transaction settles the last
/// group and claims the next.
pub(super) fn group_commit(db: &mut Connection, now: i64) -> Result<usize, rusqlite::Error> {
    let mut done = 0;
    let mut under_way = Vec::new();
    loop {
        let tx = begin(db)?;
        settle(&tx, &under_way, now)?;
        let claimed = claim(&tx, GROUP, now)?;
        tx.commit()?;
        done += under_way.len();
        under_way = claimed;
        if under_way.is_empty() {
            return Ok(done);
        }
    }
}

/// Records operations `from..from + count` in groups, into two tables that have
/// neither trigger nor check.
pub(super) fn record(
    db: &mut Connection,
    from: usize,
    count: usize,
) -> Result<(), rusqlite::Error> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS raw_approvals (
           operation_key TEXT PRIMARY KEY, receiver TEXT, payload TEXT, approved_by TEXT
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS raw_outbox (
           id INTEGER PRIMARY KEY AUTOINCREMENT, operation_key TEXT UNIQUE, receiver TEXT,
           state TEXT, due_at INTEGER, recorded_at INTEGER) STRICT;
         CREATE INDEX IF NOT EXISTS raw_due ON raw_outbox (receiver, due_at, id)
           WHERE state = 'pending';",
    )?;
    let mut number = from;
    while number < from + count {
        let tx = begin(db)?;
        for number in number..(number + GROUP).min(from + count) {
            let (key, payload) = super::sample(number);
            tx.prepare_cached("INSERT INTO raw_approvals VALUES (?1, 'crm', ?2, 'bench')")?
                .execute(params![key, payload])?;
            tx.prepare_cached(
                "INSERT INTO raw_outbox (operation_key, receiver, state, due_at, recorded_at)
                 VALUES (?1, 'crm', 'pending', 1, 1)",
            )?
            .execute([key])?;
        }
        tx.commit()?;
        number += GROUP;
    }
    Ok(())
}

fn begin(db: &mut Connection) -> Result<Transaction<'_>, rusqlite::Error> {
    db.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn claim(
    tx: &Transaction<'_>,
    limit: usize,
    now: i64,
) -> Result<Vec<(i64, String)>, rusqlite::Error> {
    let mut read = tx.prepare_cached(
        "SELECT o.id, o.operation_key, a.payload FROM handoff_outbox AS o
           JOIN handoff_approvals AS a ON a.operation_key = o.operation_key
          WHERE o.receiver = 'crm' AND o.suspect = 0 AND o.state = 'pending'
            AND o.open_number IS NULL AND o.due_at <= ?1
          ORDER BY o.due_at, o.id LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let claimed = read
        .query_map(params![now, limit], |row| {
            let _payload: String = row.get(2)?;
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<Vec<(i64, String)>, _>>()?;
    for (id, key) in &claimed {
        tx.prepare_cached(
            "UPDATE handoff_outbox SET attempts = 1, open_number = 1, open_kind = 'deliver',
               version = 2, first_attempt_at = ?2, possible_since = ?2, possible_until = ?2,
               possible_request = operation_key, possible_count = 1, budget_start = ?2,
               tries = 1, effect = 'possible', fingerprint = operation_key WHERE id = ?1",
        )?
        .execute(params![id, now])?;
        tx.prepare_cached(
            "INSERT INTO handoff_attempts
               (operation_key, number, kind, started_at, started_steady, instance, request,
                begun_fact)
             VALUES (?1, 1, 'deliver', ?2, ?2, 'raw', ?1, 2)",
        )?
        .execute(params![key, now])?;
    }
    Ok(claimed)
}

fn settle(
    tx: &Transaction<'_>,
    claimed: &[(i64, String)],
    now: i64,
) -> Result<(), rusqlite::Error> {
    for (id, key) in claimed {
        tx.prepare_cached(
            "UPDATE handoff_attempts SET finished_at = ?2, finished_steady = ?2,
               outcome = 'applied', request_sent = 1, duration_ms = 0, remote_id = '1',
               ended_fact = 3 WHERE operation_key = ?1 AND number = 1",
        )?
        .execute(params![key, now])?;
        tx.prepare_cached(
            "UPDATE handoff_outbox SET state = 'sent', effect = 'confirmed', remote_id = '1',
               settled_by = 'reply', sent_at = ?2, due_at = NULL, open_number = NULL,
               open_kind = NULL, possible_since = NULL, possible_until = NULL,
               possible_request = NULL, possible_count = 0, version = 3 WHERE id = ?1",
        )?
        .execute(params![id, now])?;
    }
    Ok(())
}
