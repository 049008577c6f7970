//! What the daemon does when it is told something by a signal.

use crate::daemon::Daemon;
use crate::support::{Crm, World, until};
use nix::sys::signal::Signal;

/// A CRM that takes it at once and answers after a while.
const SLOW: &str = r#"[{ on = "every", fault = "slow", delay = "700ms" }]"#;
/// A CRM that takes it at once and answers long after any grace.
const NEVER: &str = r#"[{ on = "attempt", n = 1, fault = "slow", delay = "10m" }]"#;

/// A daemon in the middle of its first call.
fn calling(world: &World, arguments: &[&str]) -> (Daemon, String) {
    let daemon = world.daemon_with(arguments);
    daemon.event("started");
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    until("the CRM to have it", || (world.tasks(&key) == 1).then_some(()));
    (daemon, key)
}

fn outcome(world: &World, key: &str) -> String {
    let sql = "SELECT outcome FROM handoff_attempts WHERE operation_key = ?1";
    world.value(sql, [key])
}

#[test]
fn a_stop_stores_the_answer_that_comes_within_the_grace_and_begins_nothing_new() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let world = World::with(&Crm { faults: SLOW, ..Crm::default() }).migrated();
        let (mut daemon, key) = calling(&world, &[]);
        daemon.signal(signal);
        daemon.event("draining");
        let later = world.record("case-105");
        daemon.exits(0);
        assert_eq!((world.state(&key), outcome(&world, &key)), ("sent".into(), "applied".into()));
        assert_eq!(world.state(&later), "pending");
        let none: i64 =
            world.value("SELECT count(*) FROM handoff_attempts WHERE operation_key = ?1", [&later]);
        assert_eq!(none, 0, "an attempt began during the drain");
        assert!(daemon.events("attempt_cut_off").is_empty());
        assert_eq!(daemon.events("stopped").len(), 1);
    }
}

/// The attempt is named in the log, spends nothing, and the next daemon repeats it.
fn assert_cut_off(world: &World, daemon: &Daemon, key: &str) {
    let named = daemon.events("attempt_cut_off");
    assert_eq!(named.len(), 1, "{:#?}", daemon.lines());
    assert_eq!(named[0]["operation.key"], key);
    assert_eq!(outcome(world, key), "cut_off");
    assert_eq!(world.state(key), "pending");
    let spent = "SELECT spent FROM handoff_outbox WHERE operation_key = ?1";
    assert_eq!(world.value::<i64>(spent, [key]), 0);
    let effect = "SELECT effect FROM handoff_outbox WHERE operation_key = ?1";
    assert_eq!(world.value::<String>(effect, [key]), "possible");
    let next = world.serving();
    world.until_state(key, "sent");
    assert_eq!(world.tasks(key), 1);
    next.stop();
}

#[test]
fn a_call_that_outlasts_the_grace_is_cut_off_and_named() {
    let world = World::with(&Crm { faults: NEVER, timeout: "30m", ..Crm::default() }).migrated();
    let (mut daemon, key) = calling(&world, &["--set", "worker.shutdown_grace=300ms"]);
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);
    assert_cut_off(&world, &daemon, &key);
}

#[test]
fn a_second_stop_waits_no_longer_and_loses_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let crm = Crm { faults: NEVER, timeout: "30m", ..Crm::default() };
        let world = World::with(&crm).migrated();
        let (mut daemon, key) = calling(&world, &["--set", "worker.shutdown_grace=1h"]);
        daemon.signal(signal);
        daemon.event("draining");
        daemon.signal(signal);
        daemon.event("stop_now");
        daemon.exits(0);
        assert_cut_off(&world, &daemon, &key);
    }
}

#[test]
fn a_killed_daemon_leaves_its_attempt_to_the_next_one() {
    let world = World::with(&Crm { faults: NEVER, timeout: "30m", ..Crm::default() }).migrated();
    let (mut daemon, key) = calling(&world, &[]);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let open = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NULL";
    assert_eq!(world.value::<i64>(open, []), 1, "the attempt was on disk");
    let next = world.serving();
    let recovered = next.event("recovered");
    assert_eq!(recovered["interrupted"], 1);
    world.until_state(&key, "sent");
    assert_eq!(world.tasks(&key), 1);
    assert_eq!(next.stop().iter().filter(|line| line.contains("panicked")).count(), 0);
}

#[test]
fn a_stop_of_an_idle_daemon_leaves_no_write_ahead_log_to_replay() {
    let world = World::new().migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
    let left = std::fs::metadata(world.path("app.db-wal")).map_or(0, |file| file.len());
    assert_eq!(left, 0, "bytes in the WAL");
}

/// Two receivers, so that the second one is known only after a reload.
const TWO: &str = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
contract = { mode = "idempotency_key", window = "forever" }
[receivers.mail]
kind = "simulated"
path = "mail.db"
contract = { mode = "idempotency_key", window = "forever" }
[operations.create-followup]
receiver = "crm"
subject = "case_id"
schema = "builtin:create-followup"
[operations.send-reply]
receiver = "mail"
subject = "case_id"
schema = "builtin:create-followup"
"#;

#[test]
fn after_a_reload_a_new_receiver_can_be_used_at_once() {
    let world = World::new().migrated();
    let daemon = world.serving();
    world.configure(TWO);
    daemon.signal(Signal::SIGHUP);
    daemon.event("reloaded");
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES ('harbor:send-reply:v1:case-104', 'mail',
                       '{\"case_id\":\"case-104\",\"title\":\"Re\"}', 'ann')";
    world.open("app.db").execute(sql, []).expect("the new receiver is known to the triggers");
    world.until_state("harbor:send-reply:v1:case-104", "sent");
    let key = world.record("case-1");
    world.until_state(&key, "sent");
    daemon.stop();
}

#[test]
fn a_bad_configuration_is_refused_as_a_whole_and_the_old_one_goes_on() {
    let world = World::new().migrated();
    let daemon = world.serving();
    let bad = [
        "[receivers.crm]\nkind = \"simulatd\"\ntimeout = 3\n".to_owned(),
        "this is no TOML".to_owned(),
        // Good, but the place of the store cannot change under a running daemon.
        format!("[store]\nurl = \"sqlite:other.db\"\n{TWO}"),
    ];
    for (n, bad) in bad.iter().enumerate() {
        world.write("handoff.toml", bad);
        daemon.signal(Signal::SIGHUP);
        let refused = daemon.nth_event("reload_refused", n + 1);
        assert_eq!(refused["level"], "ERROR", "{refused}");
        let key = world.record(&format!("case-{n}"));
        world.until_state(&key, "sent");
    }
    assert!(!world.path("other.db").exists());
    let both = &daemon.events("reload_refused")[0]["error"];
    let both = both.as_str().expect("a text");
    assert!(both.contains("kind") && both.contains("timeout"), "{both}");
    daemon.stop();
}

#[test]
fn reloads_in_quick_succession_end_with_the_last_configuration() {
    let world = World::new().migrated();
    let daemon = world.serving();
    for round in 0..20 {
        let text = if round % 2 == 0 { "no TOML" } else { TWO };
        world.configure(text);
        daemon.signal(Signal::SIGHUP);
    }
    world.configure(TWO);
    daemon.signal(Signal::SIGHUP);
    let mail = "SELECT count(*) FROM handoff_receivers WHERE name = 'mail'";
    until("the last configuration", || (world.value::<i64>(mail, []) == 1).then_some(()));
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
}

#[test]
fn a_reload_changes_the_log_level_but_not_what_needs_a_restart() {
    let world = World::new().migrated();
    let info = std::fs::read_to_string(world.path("handoff.toml")).expect("a configuration");
    let error = info.replace("[log]", "[log]\nlevel = \"error\"");
    world.write("handoff.toml", &error);
    let daemon = world.daemon();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    world.write("handoff.toml", error.replace("\"100ms\"", "\"1h\""));
    daemon.signal(Signal::SIGHUP);
    let refused = daemon.event("reload_refused");
    assert!(refused["error"].as_str().is_some_and(|text| text.contains("worker")), "{refused}");
    assert_eq!(daemon.lines().len(), 1, "info is off: {:#?}", daemon.lines());
    world.write("handoff.toml", info);
    daemon.signal(Signal::SIGHUP);
    daemon.event("reloaded");
    daemon.signal(Signal::SIGUSR1);
    daemon.event("summary");
    daemon.stop();
}

#[test]
fn a_summary_is_logged_when_asked_for() {
    let world = World::new().migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.signal(Signal::SIGUSR1);
    let counts = daemon.nth_event("summary", 1);
    assert_eq!(counts["receiver.name"], "crm");
    assert_eq!((&counts["sent"], &counts["pending"]), (&1.into(), &0.into()));
    let since = daemon.nth_event("summary", 2);
    assert!(since["status"].as_str().is_some_and(|text| text.contains("1 sent")), "{since}");
    daemon.stop();
}

#[test]
fn every_log_record_is_one_json_object_with_a_stable_name() {
    let world = World::new().migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.signal(Signal::SIGUSR1);
    daemon.nth_event("summary", 2);
    for line in daemon.stop() {
        let record: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(record["event"].is_string(), "{line}");
    }
}
