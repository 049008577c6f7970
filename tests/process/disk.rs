//! The disk under the database: full, failing, read-only, damaged; and who else
//! works on the file meanwhile. Whatever it is, nothing accepted is lost, no call
//! is made again, and the daemon says what is wrong.
//!
//! Needs root, who may mount. Without it a rule is skipped, and says so; with
//! `CI` set it fails.

mod commit;
mod damage;
mod full;
mod place;
mod readonly;
mod shared;
mod wal;

use crate::support::{World, until, until_or};
use handoff::rusqlite::{Connection, params};

/// Without a promise: a second call would be a second task.
const NO_PROMISE: &str = "mode = \"none\"";

/// Answers that come when a test is ready for them.
const SLOW: &str = r#"[{ on = "every", fault = "slow", delay = "2500ms" }]"#;

/// Records this many follow-ups in one transaction, and returns their keys.
fn record_many(db: &Connection, count: usize) -> Vec<String> {
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let keys = (1..=count).map(|n| crate::support::record(db, &format!("case-{n}"))).collect();
    db.execute_batch("COMMIT").expect("it is committed");
    keys
}

/// Waits until so many attempts are on disk.
#[track_caller]
fn until_begun(world: &World, count: i64) {
    let sql = "SELECT count(*) FROM handoff_attempts";
    until("the attempts to begin", || (world.value::<i64>(sql, []) >= count).then_some(()));
}

/// Waits until every operation is sent.
#[track_caller]
fn until_all_sent(world: &World) {
    let open = "SELECT count(*) FROM handoff_outbox WHERE state <> 'sent'";
    let states = "SELECT group_concat(concat_ws(' ', state, blocked_reason, last_error), '; ')
                    FROM handoff_outbox";
    until_or(
        || (world.value::<i64>(open, []) == 0).then_some(()),
        || format!("the end of all: {}", world.value::<String>(states, [])),
    );
}

/// Each of these operations is sent by its only call, and had one effect.
///
/// An attempt that was held up for so long that it was not begun is no call.
#[track_caller]
fn each_once(world: &World, keys: &[String]) {
    let calls = "SELECT count(*) FROM handoff_attempts WHERE outcome <> 'not_taken'";
    assert_eq!(world.value::<i64>(calls, []), i64::try_from(keys.len()).expect("few"));
    each_has_one_effect(world, keys);
}

/// Each of these operations, and no other, is sent and had one effect.
#[track_caller]
fn each_has_one_effect(world: &World, keys: &[String]) {
    let all: i64 = world.value("SELECT count(*) FROM handoff_outbox", []);
    assert_eq!(all, i64::try_from(keys.len()).expect("few"));
    let crm = world.open("crm.db");
    for key in keys {
        assert_eq!(world.state(key), "sent", "{key}");
        for table in ["tasks", "effects"] {
            let sql = format!("SELECT count(*) FROM {table} WHERE operation_key = ?1");
            let count: i64 =
                crm.query_row(&sql, params![key], |row| row.get(0)).expect("the CRM can be read");
            assert_eq!(count, 1, "{key} in {table}");
        }
    }
    is_sound(world);
}

#[track_caller]
fn is_sound(world: &World) {
    let sound: String = world.value("PRAGMA integrity_check", []);
    assert_eq!(sound, "ok");
    let open = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NULL";
    assert_eq!(world.value::<i64>(open, []), 0, "no attempt is left open");
}
