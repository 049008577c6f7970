//! Receivers that are held: by a person, and by their circuit breaker.

use crate::support::{Crm, World, until};
use nix::sys::signal::Signal;
use serde_json::json;

#[test]
fn a_paused_receiver_is_called_no_more_and_what_was_under_way_ends() {
    let faults = r#"[{ on = "key", match = "*:under-way", fault = "slow", delay = "1500ms" }]"#;
    let world = World::with(&Crm { faults, ..Crm::default() }).migrated();
    let mut daemon = world.serving();
    let under_way = world.record("under-way");
    world.until_attempts(&under_way, 1);
    world.run(&["pause", "crm", "--as", "ann", "--reason", "they migrate"]).ok();
    let held = daemon.event("receiver_held");
    assert_eq!((&held["receiver.name"], &held["reason"]), (&json!("crm"), &json!("pause")));
    assert_eq!((&held["who"], &held["detail"]), (&json!("ann"), &json!("they migrate")));
    let waits = world.record("waits");
    world.until_state(&under_way, "sent");
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);

    // Neither another process nor its start knows of a way round.
    let daemon = world.serving();
    daemon.event("receiver_held");
    daemon.signal(Signal::SIGUSR1);
    daemon.nth_event("summary", 2);
    assert_eq!(world.value::<i64>("SELECT sum(attempts) FROM handoff_outbox", []), 1);
    let explained = world.run(&["explain", &waits, "--json"]).ok().json();
    assert_eq!(
        (&explained["gate"], &explained["decision"]),
        (&json!("receiver_held"), &json!("wait"))
    );
    let hold = &explained["hold"];
    assert_eq!((&hold["who"], &hold["reason"]), (&json!("ann"), &json!("they migrate")));
    assert_eq!((&hold["held_by"], &hold["until"]), (&json!("pause"), &json!(null)));
    let list = world.run(&["list"]).ok().stdout;
    assert!(list.contains("receiver held, pause by ann since"), "{list}");
    world.run(&["status", "--check"]).exits(3);

    world.run(&["resume", "crm"]).ok();
    world.until_state(&waits, "sent");
    daemon.event("receiver_released");
    world.run(&["status", "--check"]).ok();
}

#[test]
fn every_receiver_is_held_at_once_without_a_daemon_and_the_audit_keeps_who_and_why() {
    let world = World::new().migrated();
    let held = world.run(&["pause", "--all", "--as", "ann", "--reason", "fire", "--json"]).ok();
    assert_eq!(held.json()[0]["receiver"], "crm");
    // The first word counts, and a repeat changes nothing.
    let again = world.run(&["pause", "crm", "--as", "bob", "--json"]).ok().json();
    assert_eq!((&again[0]["who"], &again[0]["reason"]), (&json!("ann"), &json!("fire")));
    let status = world.run(&["status"]).ok().stdout;
    assert!(status.contains("crm is held: pause by ann since"), "{status}");
    let ended = world.run(&["resume", "--all", "--as", "eve", "--json"]).ok().json();
    assert_eq!(ended[0]["held_by"], "pause");
    assert_eq!(world.run(&["resume", "crm", "--json"]).ok().json(), json!([]));

    let db = world.open("app.db");
    let sql = "SELECT verb || ' ' || who || ' ' || coalesce(reason, '-') || ' '
                 || json_array_length(before, '$.holds') || json_array_length(after, '$.holds')
               FROM handoff_audit WHERE operation_key IS NULL ORDER BY id";
    let mut read = db.prepare(sql).expect("an audit");
    let rows = read.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let rows: Vec<String> = rows.map(|row| row.expect("a row")).collect();
    assert_eq!(rows, ["pause ann fire 01", "resume eve - 10"]);
}

#[test]
fn a_receiver_that_nobody_configured_is_not_held() {
    let world = World::new().migrated();
    world.run(&["pause", "mail"]).exits(1).says("there are: crm");
    world.run(&["pause"]).exits(2);
    world.run(&["pause", "crm", "--all"]).exits(2);
    assert_eq!(world.value::<i64>("SELECT count(*) FROM handoff_holds", []), 0);
}

#[test]
fn a_receiver_that_is_down_is_held_and_gone_on_with_once_it_is_back() {
    let config = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
concurrency = 1
faults = [{ on = "every", fault = "unreachable" }]
contract = { mode = "idempotency_key", window = "forever" }
retry = { initial = "20ms", max_interval = "100ms", max_attempts = 3 }
circuit_breaker = { failures = 2, open = "400ms", max_open = "800ms" }
"#;
    let operation = "[operations.create-followup]\nreceiver = \"crm\"\nsubject = \"case_id\"\n\
                     schema = \"builtin:create-followup\"\n";
    let config = format!("{config}{operation}");
    let world = World::configured(&config).migrated();
    let keys: Vec<String> = (1..=30).map(|case| world.record(&format!("case-{case}"))).collect();
    let daemon = world.serving();
    assert_eq!(daemon.event("receiver_held")["reason"], "breaker");
    let status = world.run(&["status", "--json"]).ok().json();
    assert_eq!(status["holds"][0]["held_by"], "breaker", "{status}");
    let probes = "SELECT count(*) - 2 FROM handoff_attempts";
    until("three probes", || (world.value::<i64>(probes, []) >= 3).then_some(()));
    world.configure(&config.replace(r#"[{ on = "every", fault = "unreachable" }]"#, "[]"));
    daemon.signal(Signal::SIGHUP);
    for key in keys {
        world.until_state(&key, "sent");
    }
    assert_eq!(daemon.event("receiver_released")["reason"], "breaker");
    assert_eq!(daemon.events("receiver_held").len(), 1, "a probe in vain is no end of it");
    let spent: i64 = world.value("SELECT sum(spent) FROM handoff_outbox", []);
    assert_eq!(spent, 2, "no probe has cost anything");
}
