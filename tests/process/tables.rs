//! What `migrate` makes, and the chain of the audit, recomputed from outside.

use crate::support::{World, present};
use handoff::rusqlite::Connection;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::process::{Command, Stdio};

fn schema(db: &Connection) -> Vec<String> {
    let sql = "SELECT name || ': ' || coalesce(sql, '') FROM sqlite_master ORDER BY name";
    let mut read = db.prepare(sql).expect("a schema");
    let rows = read.query_map([], |row| row.get(0)).and_then(Iterator::collect);
    rows.expect("it can be read")
}

#[test]
fn the_printed_sql_makes_the_same_tables_as_the_command() {
    if !present("sqlite3") {
        return eprintln!("skipped: no sqlite3 here");
    }
    let world = World::new().migrated();
    let printed = world.run(&["migrate", "--print"]).ok();
    assert_eq!(printed.stderr, "");
    world.write("tables.sql", &printed.stdout);
    let script = std::fs::File::open(world.path("tables.sql")).expect("a script");
    let mut sqlite3 = Command::new("sqlite3");
    sqlite3.args(["-bail", "by-hand.db"]).current_dir(world.path("")).stdin(Stdio::from(script));
    let done = sqlite3.output().expect("sqlite3 starts");
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    assert_eq!(schema(&world.open("by-hand.db")), schema(&world.open("app.db")));
    let url = ["--set", "store.url=sqlite:by-hand.db"];
    let field = ["--field", "case_id=case-104", "--field", "title=Call"];
    world.run(&[&["approve", "create-followup"], &field[..], &url].concat()).ok();
    let daemon = world.daemon_with(&url);
    let key = "harbor:create-followup:v1:case-104";
    world.run(&[&["wait", key, "--timeout", "60s"], &url[..]].concat()).ok();
    daemon.stop();
}

#[test]
fn a_migration_can_be_repeated_and_changes_nothing_then() {
    let world = World::new().migrated();
    world.record("case-104");
    let before = world.contents();
    world.run(&["migrate"]).ok();
    world.run(&["migrate", "--url", "sqlite:app.db"]).ok();
    assert_eq!(world.contents(), before);
}

#[test]
fn a_copy_of_a_migrated_file_has_the_tables() {
    for _ in 0..5 {
        let world = World::new().migrated();
        std::fs::copy(world.path("app.db"), world.path("copy.db")).expect("a copy");
        assert_eq!(schema(&world.open("copy.db")), schema(&world.open("app.db")));
    }
}

#[test]
fn two_migrations_at_once_end_well() {
    for _ in 0..5 {
        let world = World::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| world.run(&["migrate"]).ok());
            }
        });
        world.record("case-104");
    }
}

/// Kills it at one call to the system after another, until none is left.
#[test]
fn a_migration_that_is_killed_leaves_the_file_as_it_was_or_migrated() {
    if !present("strace") {
        return eprintln!("skipped: no strace here");
    }
    let mut kills = 0;
    let mut seen = [false; 2];
    let long = std::env::var_os("HANDOFF_TEST_LONG").is_some();
    for (call, step) in [("unlink", 1), ("fsync", 1), ("pwrite64", if long { 1 } else { 6 })] {
        for nth in (1..).step_by(step) {
            let world = World::new();
            let application = "CREATE TABLE cases (id TEXT); INSERT INTO cases VALUES ('case-104')";
            world.open("app.db").execute_batch(application).expect("an application");
            let program = world.command(&["migrate"]);
            let mut strace = Command::new("strace");
            let inject = format!("inject={call}:signal=KILL:when={nth}");
            strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
            strace.arg(program.get_program()).args(program.get_args());
            let ended = strace.current_dir(world.path("")).output().expect("strace starts");
            if ended.status.success() {
                break;
            }
            kills += 1;
            let migrated = world.run(&["list"]).code == Some(0);
            seen[usize::from(migrated)] = true;
            if !migrated {
                let ours = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'handoff%'";
                assert_eq!(world.value::<i64>(ours, []), 0, "{call} {nth}: half of it");
            }
            world.run(&["migrate"]).ok();
            let whole = World::new().migrated();
            let of_ours = |world: &World| {
                let all = schema(&world.open("app.db")).into_iter();
                all.filter(|line| line.starts_with("handoff")).collect::<Vec<_>>()
            };
            assert_eq!(of_ours(&world), of_ours(&whole), "{call} {nth}");
            let case: String = world.value("SELECT id FROM cases", []);
            assert_eq!(case, "case-104");
            world.record("case-104");
            let sound: String = world.value("PRAGMA integrity_check", []);
            assert_eq!(sound, "ok", "{call} {nth}");
        }
    }
    assert!(kills > 10 && seen == [true, true], "{kills} kills, before and after: {seen:?}");
}

/// One row of the audit, as the chain is made of it.
#[derive(Debug)]
struct Entry {
    chained: serde_json::Value,
    previous: String,
    hash: String,
    before: String,
    after: String,
}

fn audit(db: &Connection) -> Vec<Entry> {
    let sql = "SELECT previous_hash, at, who, verb, operation_key, reason, before, after, hash
                 FROM handoff_audit ORDER BY id";
    let mut read = db.prepare(sql).expect("an audit");
    let rows = read.query_map([], |row| {
        let text = |n| row.get::<_, Option<String>>(n);
        let at: i64 = row.get(1)?;
        let chained =
            json!([text(0)?, at, text(2)?, text(3)?, text(4)?, text(5)?, text(6)?, text(7)?]);
        let (previous, hash) = (row.get(0)?, row.get(8)?);
        Ok(Entry { chained, previous, hash, before: row.get(6)?, after: row.get(7)? })
    });
    rows.and_then(Iterator::collect).expect("it can be read")
}

#[test]
fn each_act_of_a_person_is_a_link_in_the_chain_of_the_audit() {
    let world = World::new().migrated();
    let keys = ["a", "b", "c"].map(|case| world.record(case));
    let reason = "he said \"no\", \u{1b}[1m\nand left";
    world.run(&["retry", &keys[0], "--as", "ann"]).ok();
    world.run(&["retry", &keys[1], "--as", "ann", "--reason", "now"]).ok();
    world.run(&["withdraw", &keys[2], "--as", "bob", "--reason", reason]).ok();
    // What is refused is no act.
    world.run(&["withdraw", &keys[2], "--reason", "again"]).exits(1);
    let entries = audit(&world.open("app.db"));
    assert_eq!(entries.len(), 3);
    let mut previous = "0".repeat(64);
    for entry in &entries {
        assert_eq!(entry.previous, previous);
        let hash = hex::encode(Sha256::digest(entry.chained.to_string()));
        assert_eq!(entry.hash, hash, "{entry:?}");
        previous = hash;
    }
    let last = &entries[2];
    assert_eq!(last.chained[2], "bob");
    assert_eq!(last.chained[3], "withdraw");
    assert_eq!(last.chained[5], reason);
    let state = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
    assert_eq!(state(&last.before)["state"], "pending");
    assert_eq!(state(&last.after)["state"], "withdrawn");
}
