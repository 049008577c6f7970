//! The database file: whose it is, what may be wrong with it, who else writes to it.

use crate::support::{Crm, Done, World, until};
use handoff::rusqlite::Connection;
use nix::sys::signal::Signal;
use std::os::unix::fs::symlink;

/// Commands that need a database which is there.
const READING: [&[&str]; 6] = [
    &["list"],
    &["status"],
    &["show", "harbor:create-followup:v1:case-104"],
    &["explain", "harbor:create-followup:v1:case-104"],
    &["wait", "harbor:create-followup:v1:case-104", "--timeout", "1ms"],
    &["withdraw", "harbor:create-followup:v1:case-104", "--reason", "none"],
];
const APPROVE: &[&str] = &[
    "approve",
    "create-followup",
    "--field",
    "case_id=case-104",
    "--field",
    "title=Call the customer",
];

/// What `run` says and how it ends, where it must end by itself.
fn run(world: &World, arguments: &[&str]) -> Done {
    world.run(&[&["run"], arguments].concat())
}

#[test]
fn a_second_daemon_on_the_same_file_is_told_who_holds_it() {
    let world = World::new().migrated();
    let daemon = world.serving();
    symlink(world.path("app.db"), world.path("link.db")).expect("a link");
    std::fs::create_dir(world.path("folder")).expect("a folder");
    symlink(world.path("app.db"), world.path("folder/far.db")).expect("a link");
    let holder = format!("process {}", daemon.pid());
    for url in ["sqlite:app.db", "sqlite:link.db", "sqlite:folder/../folder/far.db"] {
        let second = run(&world, &["--set", &format!("store.url={url}")]).exits(75).says(&holder);
        assert_eq!(second.stdout, "");
    }
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
    world.serving().stop();
}

#[test]
fn a_command_beside_a_daemon_needs_no_lock() {
    let world = World::new().migrated();
    let daemon = world.serving();
    let approved = world.run(APPROVE).ok();
    assert!(!approved.stderr.contains("no daemon"), "{approved:?}");
    world.run(&["wait", "harbor:create-followup:v1:case-104", "--timeout", "60s"]).ok();
    daemon.stop();
    let after = world.run(&["status", "--json"]).ok();
    assert_eq!(after.json()["daemon"], false);
}

/// Files that are no database of ours to write to, and what is said of each.
fn strangers(world: &World) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    world.run(&["migrate", "--url", "sqlite:good.db"]).ok();
    let db = world.open("good.db");
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
    let good = std::fs::read(world.path("good.db")).expect("a database");
    let mut bad_magic = good.clone();
    bad_magic[..16].copy_from_slice(b"SQLite format 2\0");
    let mut bad_header = good.clone();
    bad_header[16..24].fill(0xFF);
    let mut bad_schema = good.clone();
    bad_schema[100..200].fill(0xAB);
    let half = good[..good.len() / 2].to_vec();
    vec![
        ("text", b"Dear customer,\n".repeat(100), "not an SQLite database"),
        ("short", b"Dear".to_vec(), "not an SQLite database"),
        ("magic", bad_magic, "not an SQLite database"),
        ("header", bad_header, "not an SQLite database"),
        ("torn", good[..60].to_vec(), "damaged"),
        ("schema", bad_schema, "damaged"),
        ("half", half, "damaged"),
    ]
}

#[test]
fn a_file_that_is_no_sound_database_is_refused_and_left_as_it_is() {
    let world = World::new();
    for (name, bytes, said) in strangers(&world) {
        let file = format!("{name}.db");
        world.write(&file, &bytes);
        let url = format!("store.url=sqlite:{file}");
        let set = ["--set", url.as_str()];
        for command in [&["run"][..], &["list"], &["migrate"], APPROVE] {
            world.run(&[command, &set].concat()).exits(78).says(said).says(&file);
        }
        let after = std::fs::read(world.path(&file)).expect("it is still there");
        assert_eq!(after, bytes, "{name} was changed");
    }
}

#[test]
fn a_folder_in_the_place_of_the_database_is_refused() {
    let world = World::new();
    std::fs::create_dir(world.path("app.db")).expect("a folder");
    for command in [&["run"][..], &["list"], &["migrate"], APPROVE] {
        world.run(command).exits(78).says("app.db").says("it is a folder");
    }
}

#[test]
fn tables_of_a_newer_program_are_left_alone() {
    let world = World::new().migrated();
    let sql = "INSERT INTO handoff_schema (version, applied_at, program) VALUES (99, 0, 'later')";
    world.open("app.db").execute(sql, []).expect("it is written");
    for command in [&["run"][..], &["migrate"], APPROVE].into_iter().chain(READING) {
        world.run(command).exits(78).says("version 99");
    }
    let count: i64 = world.value("SELECT count(*) FROM handoff_approvals", []);
    assert_eq!(count, 0);
}

#[test]
fn a_database_without_our_tables_gets_them_by_run_and_not_by_looking() {
    let world = World::new();
    world.open("app.db").execute_batch("CREATE TABLE cases (id TEXT)").expect("a table");
    for command in READING {
        world.run(command).exits(78).says("handoff migrate");
    }
    world.serving().stop();
    world.run(&["list"]).ok();
}

#[test]
fn commands_do_not_make_a_database_by_looking() {
    let world = World::bare();
    for command in READING {
        world.run(command).exits(69);
    }
    assert!(!world.path("handoff-data").exists());
}

#[test]
fn a_missing_folder_that_was_named_is_waited_for_by_run_alone() {
    let world = World::new();
    let set = ["--set", "store.url=sqlite:later/app.db"];
    for command in [&["migrate"][..], APPROVE].into_iter().chain(READING) {
        world.run(&[command, &set].concat()).exits(69).says("there is no folder later");
    }
    let daemon = world.daemon_with(&set);
    daemon.event("store_unavailable");
    std::fs::create_dir(world.path("later")).expect("the folder");
    daemon.event("started");
    daemon.stop();
    assert!(world.path("later/app.db").exists());
}

#[test]
fn a_daemon_that_waits_for_its_database_stops_when_told() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let world = World::new();
        let mut daemon = world.daemon_with(&["--set", "store.url=sqlite:later/app.db"]);
        daemon.event("store_unavailable");
        daemon.signal(Signal::SIGHUP);
        daemon.nth_event("store_unavailable", 2);
        daemon.signal(signal);
        daemon.exits(0);
        assert!(!world.path("later").exists());
    }
}

#[test]
fn a_database_that_is_locked_at_the_start_is_waited_for() {
    let world = World::new().migrated();
    let db = world.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let daemon = world.daemon_with(&["--set", "store.busy_timeout=50ms"]);
    daemon.event("store_unavailable");
    db.execute_batch("COMMIT").expect("it is released");
    daemon.event("started");
    daemon.stop();
}

#[test]
fn run_and_approve_make_the_default_place_and_say_where() {
    let world = World::bare();
    world.run(APPROVE).ok().says("handoff-data/handoff.db");
    assert!(world.path("handoff-data/handoff.db").exists());
    let again = world.run(APPROVE).ok();
    assert!(!again.stderr.contains("made"), "{again:?}");

    let world = World::bare();
    let mut daemon = world.daemon();
    let said = || daemon.lines().iter().any(|line| line.contains("handoff-data/handoff.db"));
    until("the place to be named", || said().then_some(()));
    assert!(world.path("handoff-data/handoff.db").exists());
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);
}

#[test]
fn a_command_gives_up_on_a_locked_database_and_has_changed_nothing() {
    let world = World::new().migrated();
    let key = world.record("case-1");
    let before = world.contents();
    let db = world.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let patience = ["--set", "store.busy_timeout=50ms"];
    let withdraw = ["withdraw", &key, "--reason", "none"];
    for command in [APPROVE, &withdraw, &["retry", &key], &["migrate"]] {
        let done = world.run(&[command, &patience].concat()).exits(69);
        done.says("busy").says("nothing was changed; repeat it");
    }
    // Who only looks is not in the way, and nothing is in his.
    for command in [&["list"][..], &["show", &key], &["status"]] {
        world.run(&[command, &patience].concat()).ok();
    }
    db.execute_batch("COMMIT").expect("it is released");
    assert_eq!(world.contents(), before);
    world.run(APPROVE).ok();
}

/// The answer comes while another program holds the write lock for long.
#[test]
fn an_answer_outlives_a_database_that_is_locked_and_nothing_is_called_again() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "300ms" }]"#;
    // Without a promise, a second call would be a second task.
    let world = World::with(&Crm { faults, contract: "mode = \"none\"", ..Crm::default() });
    let world = world.migrated();
    let daemon = world.daemon_with(&["--set", "store.busy_timeout=50ms"]);
    daemon.event("started");
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    let other = world.open("app.db");
    other.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let trouble = daemon.nth_event("store_trouble", 3);
    assert_eq!(trouble["level"], "WARN", "{trouble}");
    assert_eq!(world.state(&key), "pending");
    other.execute_batch("COMMIT").expect("it is released");
    world.until_state(&key, "sent");
    daemon.event("store_recovered");
    assert_eq!(world.tasks(&key), 1);
    let attempts: i64 = world.value("SELECT count(*) FROM handoff_attempts", []);
    assert_eq!(attempts, 1);
    daemon.stop();
}

#[test]
fn a_stop_while_the_database_is_locked_stores_the_answer_once_it_can() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "300ms" }]"#;
    let world = World::with(&Crm { faults, ..Crm::default() }).migrated();
    let mut daemon = world.daemon_with(&["--set", "store.busy_timeout=50ms"]);
    daemon.event("started");
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    let other = world.open("app.db");
    other.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    daemon.event("store_trouble");
    daemon.signal(Signal::SIGTERM);
    daemon.event("draining");
    other.execute_batch("COMMIT").expect("it is released");
    daemon.exits(0);
    assert_eq!(world.state(&key), "sent");
    assert!(daemon.events("outcome_not_stored").is_empty());
}

#[test]
fn an_outcome_that_cannot_be_stored_before_the_end_is_logged_with_its_receipt() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "300ms" }]"#;
    let world = World::with(&Crm { faults, ..Crm::default() }).migrated();
    let mut daemon = world.daemon_with(&["--set", "store.busy_timeout=50ms"]);
    daemon.event("started");
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    let other = world.open("app.db");
    other.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    daemon.event("store_trouble");
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);
    let lost = &daemon.events("outcome_not_stored")[0];
    assert_eq!((&lost["operation.key"], &lost["receipt"]), (&key.clone().into(), &"1".into()));
    other.execute_batch("COMMIT").expect("it is released");
    drop(other);
    let next = world.serving();
    world.until_state(&key, "sent");
    assert_eq!(world.tasks(&key), 1);
    next.stop();
}

#[test]
fn a_commit_of_another_program_starts_the_delivery_without_the_poll() {
    let world = World::new().migrated();
    let daemon = world.daemon_with(&["--set", "worker.poll_interval=1h"]);
    daemon.event("started");
    // Also after a rollback, and for a connection that is opened anew each time.
    let db = world.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE; CREATE TABLE t (x); ROLLBACK").expect("a rollback");
    for case in ["case-1", "case-2", "case-3"] {
        let key = world.record(case);
        world.until_state(&key, "sent");
    }
    world.run(APPROVE).ok();
    world.until_state("harbor:create-followup:v1:case-104", "sent");
    daemon.stop();
}

/// The schema of everything that is not ours, and the marks of its owner.
fn of_the_application(db: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for pragma in ["user_version", "application_id", "auto_vacuum", "encoding", "page_size"] {
        let value = db.pragma_query_value(None, pragma, |row| {
            row.get::<_, handoff::rusqlite::types::Value>(0)
        });
        all.push(format!("{pragma} {:?}", value.expect("a pragma")));
    }
    let sql = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'handoff\\_%' ESCAPE '\\'
                  AND tbl_name NOT LIKE 'handoff\\_%' ESCAPE '\\' ORDER BY name";
    let mut read = db.prepare(sql).expect("a schema");
    let rows = read.query_map([], |row| row.get::<_, Option<String>>(0)).expect("rows");
    all.extend(rows.map(|sql| format!("{:?}", sql.expect("a row"))));
    all
}

#[test]
fn in_the_applications_own_file_nothing_of_it_is_touched() {
    let world = World::new();
    let db = world.open("app.db");
    db.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA user_version = 42;
         PRAGMA application_id = 1234567;
         CREATE TABLE cases (id TEXT PRIMARY KEY, title TEXT NOT NULL);
         CREATE INDEX by_title ON cases (title);
         CREATE VIEW open_cases AS SELECT * FROM cases;
         CREATE TRIGGER upper AFTER INSERT ON cases BEGIN
           UPDATE cases SET title = upper(title) WHERE id = NEW.id; END;
         INSERT INTO cases VALUES ('case-104', 'call');",
    )
    .expect("an application");
    let before = of_the_application(&db);
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
    let after = of_the_application(&db);
    // The one table that AUTOINCREMENT brings is SQLite's own.
    let after: Vec<_> = after.into_iter().filter(|sql| !sql.contains("sqlite_sequence")).collect();
    assert_eq!(after, before);
    let title: String = world.value("SELECT title FROM cases", []);
    assert_eq!(title, "CALL");
}
