//! A commit that fails after its pages were written: it may be there or not, and
//! nobody is told otherwise. No half group, no answer lost, no call repeated.

use super::place::Fault;
use super::{NO_PROMISE, SLOW, each_has_one_effect, each_once, is_sound, record_many};
use super::{until_all_sent, until_begun};
use crate::daemon::Daemon;
use crate::support::{Crm, Done, World, until};
use nix::sys::signal::Signal;
use std::process::Command;

/// Every sync of the log fails with EIO.
const NO_SYNC: &str = "sync app.db-wal 5 0 1000000";
const APPROVE: [&str; 6] =
    ["approve", "create-followup", "--field", "case_id=case-1", "--field", "title=Call about it"];

/// A world on a disk that may fail. The application has it open.
fn world(crm: &Crm<'_>) -> Option<(World, Fault)> {
    let world = World::with(crm).migrated();
    let fault = Fault::new(&world)?;
    Some((world, fault))
}

fn serving(world: &World, fault: &Fault) -> Daemon {
    let daemon = Daemon::start(fault.on(&mut world.command(&["run"])));
    daemon.event("started");
    daemon
}

/// Waits until the daemon says that it does not know what became of a commit.
#[track_caller]
fn says_that_it_is_not_known(daemon: &Daemon) {
    let known = |record: &serde_json::Value| {
        record["error"].as_str().is_some_and(|error| error.contains("may or may not be there"))
    };
    until("a commit that is not known", || {
        daemon.events("store_trouble").iter().any(known).then_some(())
    });
}

/// Records while the daemon stands still, and lets it go on on a failing disk.
fn claim_on_a_failing_disk(world: &World, fault: &Fault, daemon: &Daemon) -> Vec<String> {
    daemon.signal(Signal::SIGSTOP);
    let keys = record_many(&world.open("app.db"), 20);
    fault.rules(NO_SYNC);
    daemon.signal(Signal::SIGCONT);
    says_that_it_is_not_known(daemon);
    assert!(fault.met() > 0);
    keys
}

#[test]
fn a_claim_whose_commit_is_not_known_calls_nobody_and_leaves_nothing_in_flight() {
    let Some((world, fault)) = world(&Crm { contract: NO_PROMISE, ..Crm::default() }) else {
        return;
    };
    let daemon = serving(&world, &fault);
    let keys = claim_on_a_failing_disk(&world, &fault, &daemon);
    assert_eq!(world.tasks(&keys[0]), 0, "nothing was called");
    fault.mend();
    until_all_sent(&world);
    each_once(&world, &keys);
    daemon.stop();
}

#[test]
fn a_claim_that_comes_alive_after_the_process_has_died_is_neither_lost_nor_doubled() {
    let Some((world, fault)) = world(&Crm::default()) else { return };
    let mut daemon = serving(&world, &fault);
    let keys = claim_on_a_failing_disk(&world, &fault, &daemon);
    // Nobody has the database open now: the next one reads the log as it lies there.
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    fault.mend();
    let daemon = world.serving();
    until_all_sent(&world);
    let alive = "SELECT count(*) FROM handoff_attempts WHERE outcome = 'interrupted'";
    println!("{} came alive", world.value::<i64>(alive, []));
    each_has_one_effect(&world, &keys);
    daemon.stop();
}

#[test]
fn answers_whose_commit_is_not_known_are_written_again_and_nothing_is_called_again() {
    let crm = Crm { contract: NO_PROMISE, faults: SLOW, ..Crm::default() };
    let Some((world, fault)) = world(&crm) else { return };
    let daemon = serving(&world, &fault);
    let keys = record_many(&world.open("app.db"), 20);
    until_begun(&world, 20);
    fault.rules(NO_SYNC);
    says_that_it_is_not_known(&daemon);
    until("every call to be over", || keys.iter().all(|key| world.tasks(key) == 1).then_some(()));
    fault.mend();
    until_all_sent(&world);
    daemon.event("store_recovered");
    each_once(&world, &keys);
    daemon.stop();
}

/// The log takes part of the group, and then no more.
#[test]
fn a_log_that_takes_half_of_a_group_keeps_nothing_of_it() {
    let crm = Crm { contract: NO_PROMISE, faults: SLOW, ..Crm::default() };
    let Some((world, fault)) = world(&crm) else { return };
    let daemon = serving(&world, &fault);
    let keys = record_many(&world.open("app.db"), 20);
    until_begun(&world, 20);
    fault.rules("write app.db-wal 28 3 1000000");
    let trouble = daemon.event("store_trouble");
    assert!(trouble["error"].as_str().is_some_and(|error| error.contains("full")), "{trouble}");
    let stored = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NOT NULL";
    assert_eq!(world.value::<i64>(stored, []), 0, "no half group");
    fault.mend();
    until_all_sent(&world);
    each_once(&world, &keys);
    daemon.stop();
}

/// The pass saves the answer of one and begins the next. Neither is written
/// together, nor is the answer alone; then the disk is well.
#[test]
fn an_attempt_that_was_committed_without_its_answer_being_heard_is_given_up_and_made_again() {
    let world = World::configured(&format!(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\nconcurrency = 1\n\
         faults = {SLOW}\n[receivers.crm.contract]\n{NO_PROMISE}\n"
    ));
    let world = world.migrated();
    let Some(fault) = Fault::new(&world) else { return };
    let daemon = serving(&world, &fault);
    let keys = record_many(&world.open("app.db"), 2);
    world.until_attempts(&keys[0], 1);
    fault.rules("write app.db-wal 28 0 2");
    daemon.event("store_trouble");
    until_all_sent(&world);
    assert_eq!(fault.met(), 2);
    each_has_one_effect(&world, &keys);
    let sql = "SELECT group_concat(outcome) FROM handoff_attempts WHERE operation_key = ?1";
    assert_eq!(world.value::<String>(sql, [&keys[0]]), "applied");
    assert_eq!(world.value::<String>(sql, [&keys[1]]), "not_taken,applied");
    daemon.stop();
}

/// The command's process group has to be on disk before it may begin its work.
#[test]
fn a_command_whose_process_cannot_be_written_down_does_not_begin() {
    let world = World::bare();
    let path = |name: &str| world.path(name).display().to_string();
    let (script, done) = (path("deliver.sh"), path("done"));
    world.configure(&format!(
        "[receivers.crm]\nkind = \"command\"\nprogram = [\"/bin/sh\", \"{script}\"]\n\
         [receivers.crm.contract]\n{NO_PROMISE}\n"
    ));
    let answer = r#"{"remote_id":"7"}"#;
    world.write("deliver.sh", format!("cat >/dev/null\necho done >>{done}\necho '{answer}'\n"));
    let world = world.migrated();
    let Some(fault) = Fault::new(&world) else { return };
    let daemon = serving(&world, &fault);
    // The first sync is the claim's, the next two are those of the note.
    fault.rules("sync app.db-wal 5 1 2");
    let key = world.record("case-1");
    world.until_state(&key, "sent");
    assert_eq!(fault.met(), 2);
    let sql = "SELECT group_concat(coalesce(error_code, outcome)) FROM handoff_attempts";
    assert_eq!(world.value::<String>(sql, []), "not_noted,applied");
    let runs = std::fs::read_to_string(world.path("done")).expect("it ran");
    assert_eq!(runs, "done\n", "it ran once");
    is_sound(&world);
    daemon.stop();
}

#[test]
fn an_answer_whose_commit_is_not_known_is_not_doubled_when_the_process_dies() {
    let crm = Crm { faults: SLOW, ..Crm::default() };
    let Some((world, fault)) = world(&crm) else { return };
    let mut daemon = serving(&world, &fault);
    let keys = record_many(&world.open("app.db"), 3);
    until_begun(&world, 3);
    fault.rules(NO_SYNC);
    says_that_it_is_not_known(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    fault.mend();
    let daemon = world.serving();
    until_all_sent(&world);
    each_has_one_effect(&world, &keys);
    daemon.stop();
}

/// Approves on a disk that fails by these rules; another program has it open, so
/// that the log is there.
fn approve_on(rules: &str) -> Option<(World, Done)> {
    let (world, fault) = world(&Crm::default())?;
    let application = world.open("app.db");
    application.execute_batch("CREATE TABLE cases (id TEXT)").expect("a table");
    fault.rules(rules);
    let done = Done::of(fault.on(&mut world.command(&APPROVE)));
    assert!(fault.met() > 0);
    fault.mend();
    drop(application);
    Some((world, done))
}

#[test]
fn an_approval_whose_commit_is_not_known_says_so_and_may_be_repeated() {
    // The second: what the first try left unknown stays so, whatever the next one meets.
    for rules in [NO_SYNC, "sync app.db-wal 5 0 1\nwrite app.db-wal 28 0 1000000"] {
        let Some((world, done)) = approve_on(rules) else { return };
        let done = done.exits(69).says("may or may not be there");
        let done = done.says("not known whether it is there: repeat it with the same key");
        assert!(!done.stderr.contains("nothing was changed"), "{rules}: {done:?}");
        let again = world.run(&APPROVE).ok().stdout;
        assert!(again.contains("recorded"), "{again}");
        let daemon = world.serving();
        until_all_sent(&world);
        each_once(&world, &["harbor:create-followup:v1:case-1".to_owned()]);
        daemon.stop();
    }
}

#[test]
fn an_approval_that_fails_before_its_commit_has_changed_nothing() {
    let Some((world, done)) = approve_on("write app.db-wal 28 0 1000000") else { return };
    done.exits(69).says("nothing was changed; make room");
    assert_eq!(world.value::<i64>("SELECT count(*) FROM handoff_approvals", []), 0);
    is_sound(&world);
}

#[test]
fn a_disk_that_fails_once_costs_an_approval_nothing() {
    let Some((world, done)) = approve_on("sync app.db-wal 5 0 1") else { return };
    done.ok();
    assert_eq!(world.value::<i64>("SELECT count(*) FROM handoff_outbox", []), 1);
    is_sound(&world);
}

/// Records, does not know whether that is committed, and dies.
const APPLICATION: &str = r#"
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA synchronous = FULL")
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO cases VALUES ('case-1')")
db.execute("INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by) VALUES"
           "(?, 'crm', ?, 'ann')", sys.argv[2:4])
try:
    db.execute("COMMIT")
except sqlite3.OperationalError as error:
    print(error, flush=True)
    os._exit(0)
"#;

#[test]
fn an_application_that_does_not_know_of_its_commit_records_again_and_has_one_operation() {
    let Some((world, fault)) = world(&Crm::default()) else { return };
    if !crate::support::present("python3") {
        return eprintln!("skipped: no python3");
    }
    world.open("app.db").execute_batch("CREATE TABLE cases (id TEXT)").expect("a table");
    let key = "harbor:create-followup:v1:case-1";
    let payload = r#"{"case_id":"case-1","title":"Call about case-1"}"#;
    // The first sync is that of a new log's head, the second that of the commit.
    fault.rules("sync app.db-wal 5 1 1000000");
    let mut python = Command::new("python3");
    python.args(["-c", APPLICATION]).arg(world.path("app.db")).args([key, payload]);
    let done = Done::of(fault.on(&mut python)).ok();
    assert!(done.stdout.contains("disk I/O error"), "{done:?}");
    fault.mend();
    let count = |table: &str| world.value::<i64>(&format!("SELECT count(*) FROM {table}"), []);
    let there = count("cases");
    for table in ["handoff_approvals", "handoff_outbox"] {
        assert_eq!(count(table), there, "all of it or nothing: {table}");
    }
    assert_eq!(there, 1, "told that it had failed, and it is there");
    world.record("case-1");
    let daemon = world.serving();
    until_all_sent(&world);
    each_once(&world, &[key.to_owned()]);
    daemon.stop();
}
