//! A full disk: the daemon goes on by itself once there is room.

use super::place::Small;
use super::{NO_PROMISE, SLOW, each_once, record_many, until_all_sent, until_begun};
use crate::daemon::Daemon;
use crate::support::{Crm, World, record, until};
use handoff::rusqlite::{Connection, params};
use nix::sys::signal::Signal;

/// Fills the disk while the daemon stands still, and records before.
fn fill_under(daemon: &Daemon, small: &Small, record: impl FnOnce(&Connection)) {
    daemon.signal(Signal::SIGSTOP);
    record(&small.world.open("app.db"));
    small.fill(0);
    daemon.signal(Signal::SIGCONT);
}

/// The daemon has said that the disk is full, more than once, and lives.
#[track_caller]
fn says_that_the_disk_is_full(daemon: &Daemon) {
    let trouble = daemon.nth_event("store_trouble", 2);
    let error = trouble["error"].as_str().unwrap_or_default();
    assert!(error.contains("disk is full"), "{trouble}");
    daemon.signal(Signal::SIGUSR1);
    daemon.event("summary");
}

#[test]
fn a_claim_on_a_full_disk_begins_nothing_and_is_made_once_there_is_room() {
    let crm = Crm { contract: NO_PROMISE, ..Crm::default() };
    let Some(small) = Small::new("3m", &crm) else { return };
    let world = &small.world;
    let daemon = world.serving();
    let mut keys = Vec::new();
    fill_under(&daemon, &small, |db| keys = record_many(db, 20));
    says_that_the_disk_is_full(&daemon);
    let begun: i64 = world.value("SELECT count(*) FROM handoff_attempts", []);
    assert_eq!(begun, 0, "no attempt was committed");
    assert_eq!(world.tasks(&keys[0]), 0, "nothing was called");
    small.free();
    until_all_sent(world);
    daemon.event("store_recovered");
    each_once(world, &keys);
    daemon.stop();
}

#[test]
fn answers_that_come_while_the_disk_is_full_are_stored_later_and_nothing_is_called_again() {
    let crm = Crm { contract: NO_PROMISE, faults: SLOW, ..Crm::default() };
    let Some(small) = Small::new("3m", &crm) else { return };
    let world = &small.world;
    let daemon = world.serving();
    let keys = record_many(&world.open("app.db"), 20);
    until_begun(world, 20);
    fill_under(&daemon, &small, |_| {});
    says_that_the_disk_is_full(&daemon);
    until("every call to be over", || keys.iter().all(|key| world.tasks(key) == 1).then_some(()));
    let stored: i64 =
        world.value("SELECT count(*) FROM handoff_attempts WHERE outcome IS NOT NULL", []);
    assert_eq!(stored, 0, "none of the answers was stored");
    small.free();
    until_all_sent(world);
    daemon.event("store_recovered");
    each_once(world, &keys);
    daemon.stop();
}

/// The claim keeps a copy of each payload; together they are more than SQLite keeps in
/// memory, so that the disk is full before the group is.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_group_takes_nothing_of_it() {
    let receivers = format!(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\n\
         [receivers.crm.contract]\n{NO_PROMISE}\n\
         [operations.create-followup]\nreceiver = \"crm\"\nsubject = \"case_id\"\n\
         schema = \"any.json\"\n"
    );
    let world = World::configured(&receivers);
    world.write("any.json", r#"{"type":"object"}"#);
    let Some(small) = Small::around("64m", world) else { return };
    let world = &small.world;
    let daemon = world.serving();
    daemon.signal(Signal::SIGSTOP);
    // What it writes stays in the log, so that the claim has to make that longer.
    let db = world.open("app.db");
    db.execute_batch("PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE").expect("it is ours");
    let note = "x".repeat(100_000);
    let keys: Vec<String> =
        (1..=60).map(|n| record_with(&db, &format!("case-{n}"), &note)).collect();
    db.execute_batch("COMMIT").expect("it is committed");
    drop(db);
    small.fill(3_000_000);
    daemon.signal(Signal::SIGCONT);
    says_that_the_disk_is_full(&daemon);
    let changed = "SELECT (SELECT count(*) FROM handoff_attempts)
                        + (SELECT count(*) FROM handoff_outbox WHERE open_number IS NOT NULL)";
    assert_eq!(world.value::<i64>(changed, []), 0, "no half group");
    small.free();
    until_all_sent(world);
    each_once(world, &keys);
    daemon.stop();
}

fn record_with(db: &Connection, case: &str, note: &str) -> String {
    let key = format!("harbor:create-followup:v1:{case}");
    // Not in canonical form, so that the daemon keeps a copy that is.
    let payload = format!(r#"{{ "case_id": "{case}", "note": "{note}" }}"#);
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, 'crm', ?2, 'ann')";
    db.execute(sql, params![key, payload]).expect("it is recorded");
    key
}

#[test]
fn what_is_recorded_on_a_full_disk_is_refused_whole_and_can_be_repeated() {
    let Some(small) = Small::new("3m", &Crm::default()) else { return };
    let world = &small.world;
    let db = world.open("app.db");
    db.execute_batch("CREATE TABLE cases (id TEXT, note TEXT)").expect("a table");
    let daemon = world.serving();
    small.fill(0);
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let application = || -> Result<(), handoff::rusqlite::Error> {
        db.execute("INSERT INTO cases VALUES ('case-1', 'approved')", [])?;
        record(&db, "case-1");
        db.execute_batch("COMMIT")
    };
    let error = application().expect_err("the disk is full").to_string();
    assert!(error.contains("full"), "{error}");
    if !db.is_autocommit() {
        db.execute_batch("ROLLBACK").expect("it ends");
    }
    let approve = ["approve", "create-followup", "--field", "case_id=case-2", "--field", "title=t"];
    let done = world.run(&approve).exits(69).says("disk is full");
    done.says("nothing was changed; make room, then repeat it");
    let rows = "SELECT (SELECT count(*) FROM cases) + (SELECT count(*) FROM handoff_approvals)
                     + (SELECT count(*) FROM handoff_outbox)";
    assert_eq!(world.value::<i64>(rows, []), 0, "nothing half is there");
    small.free();
    let first = record(&db, "case-1");
    assert_eq!(world.run(&approve).ok().stdout.trim(), "recorded harbor:create-followup:v1:case-2");
    until_all_sent(world);
    each_once(world, &[first, "harbor:create-followup:v1:case-2".to_owned()]);
    daemon.stop();
}

#[test]
fn a_daemon_that_starts_on_a_full_disk_waits_for_room() {
    let Some(small) = Small::new("1m", &Crm::default()) else { return };
    let world = &small.world;
    let key = world.record("case-104");
    small.fill(0);
    let daemon = world.daemon();
    daemon.nth_event("store_unavailable", 2);
    // Nobody else has the database open either.
    let approve = ["approve", "create-followup", "--field", "case_id=case-2", "--field", "title=t"];
    world.run(&approve).exits(69);
    assert!(daemon.events("started").is_empty());
    small.free();
    daemon.event("started");
    until_all_sent(world);
    each_once(world, &[key]);
    daemon.stop();
}
