//! `reconcile` and `resolve`: what nobody knows is looked up, or a person says it.

use crate::support::{Crm, World};

const LOOK_UP: &str = "mode = \"look_up\"\nlook_up = { polls = 1, interval = \"20ms\" }";
const NONE: &str = "mode = \"none\"\nsettle_delay = \"1ms\"";
const LOSE: &str = r#"[{ on = "attempt", n = 1, fault = "lose_reply" }]"#;
/// Not even the task is made, and nobody knows.
const LATE: &str = r#"[{ on = "attempt", n = 1, fault = "late", delay = "1d" }]"#;

fn world(contract: &str, faults: &str) -> World {
    World::with(&Crm { contract, faults, ..Crm::default() }).migrated()
}

/// Blocked operations, left by a daemon that is gone.
fn blocked(contract: &str, faults: &str, cases: &[&str]) -> (World, Vec<String>) {
    let world = world(contract, faults);
    let keys: Vec<String> = cases.iter().map(|case| world.record(case)).collect();
    let daemon = world.serving();
    keys.iter().for_each(|key| world.until_state(key, "blocked"));
    daemon.stop();
    (world, keys)
}

/// The task of an operation turns up at the CRM.
fn make_task(world: &World, key: &str) {
    let payload: String = world.value(
        "SELECT coalesce(o.payload, a.payload) FROM handoff_outbox AS o
           JOIN handoff_approvals AS a USING (operation_key) WHERE operation_key = ?1",
        [key],
    );
    let sql = "INSERT INTO tasks (operation_key, payload) VALUES (?1, ?2)";
    world.open("crm.db").execute(sql, [key, &payload]).expect("a task");
}

#[test]
fn a_lost_reply_is_looked_up_by_the_daemon_and_ends_as_one_task() {
    let world = world(LOOK_UP, LOSE);
    let key = world.record("case-104");
    let daemon = world.serving();
    world.until_state(&key, "sent");
    daemon.stop();
    assert_eq!(world.tasks(&key), 1);
    let shown = world.run(&["show", &key, "--json"]).ok().json();
    assert_eq!((&shown["settled_by"], &shown["attempts"]), (&"look_up".into(), &1.into()));
    assert_eq!(shown["history"][1]["kind"], "look_up");
    assert_eq!(shown["history"][1]["outcome"], "found");
}

#[test]
fn a_killed_daemon_leaves_a_look_up_that_the_next_one_makes_again() {
    let faults = r#"[{ on = "attempt", n = 1, fault = "lose_reply" },
      { on = "look_up", n = 1, fault = "crash_before" }]"#;
    let world = world(LOOK_UP, faults);
    let key = world.record("case-104");
    let mut killed = world.serving();
    assert!(!killed.ended().success());
    let daemon = world.serving();
    world.until_state(&key, "sent");
    daemon.stop();
    assert_eq!(world.tasks(&key), 1);
    let shown = world.run(&["show", &key, "--json"]).ok().json();
    assert_eq!(shown["history"][1]["outcome"], "interrupted");
    assert_eq!(shown["history"][2]["outcome"], "found");
}

#[test]
fn reconcile_settles_what_turns_up_at_the_receiver() {
    let (world, keys) = blocked(LOOK_UP, LATE, &["case-104"]);
    make_task(&world, &keys[0]);
    world.run(&["reconcile", &keys[0], "--as", "ann"]).ok();
    let daemon = world.serving();
    world.until_state(&keys[0], "sent");
    daemon.stop();
    assert_eq!(world.tasks(&keys[0]), 1);
    let who: String = world.value("SELECT verb || ' ' || who FROM handoff_audit", []);
    assert_eq!(who, "reconcile ann");
}

#[test]
fn reconcile_in_bulk_says_what_it_would_do_and_does_it_only_when_told() {
    let (world, keys) = blocked(LOOK_UP, LATE, &["case-1", "case-2"]);
    let before = world.contents();
    let dry = world.run(&["reconcile", "--all", "--dry-run", "--json"]).ok().json();
    assert_eq!(dry.as_array().map(Vec::len), Some(2));
    assert_eq!(dry[0]["result"], "would_ask");
    world.run(&["reconcile", "--receiver", "crm"]).exits(2).says("2 blocked").says("--yes");
    let other = ["reconcile", "--all", "--reason", "conflict", "--yes"];
    assert!(world.run(&other).ok().stdout.contains("nothing"));
    world.run(&["reconcile", "--receiver", "crn", "--yes"]).exits(2).says("configured are: crm");
    world.run(&["reconcile", &keys[0], "--version", "1"]).exits(4);
    assert_eq!(world.contents(), before);
    world.run(&["reconcile", "--receiver", "crm", "--reason", "ambiguous", "--yes"]).ok();
    let asked: i64 = world.value("SELECT count(*) FROM handoff_outbox WHERE ask_now", []);
    assert_eq!(asked, 2);
}

#[test]
fn reconcile_is_refused_where_the_receiver_cannot_be_asked() {
    let (world, keys) = blocked(NONE, LOSE, &["case-104"]);
    let before = world.contents();
    let done = world.run(&["reconcile", &keys[0]]).exits(1);
    assert!(done.stdout.contains("declares no look-up"), "{done:?}");
    let done = world.run(&["reconcile", "--receiver", "crm", "--yes"]).exits(1);
    done.says("declares no look-up").says("handoff resolve");
    assert_eq!(world.contents(), before);
}

#[test]
fn resolve_as_sent_keeps_the_receipt_and_the_evidence() {
    let (world, keys) = blocked(NONE, LOSE, &["case-104"]);
    let resolve = ["resolve", &keys[0], "--as", "sent", "--actor", "ann"];
    let before = world.contents();
    world.run(&[&resolve[..], &["--evidence", "seen"]].concat()).exits(2).says("--remote-id");
    let id = ["--remote-id", "4711"];
    world.run(&[&resolve[..], &id, &["--evidence", " "]].concat()).exits(65).says("--evidence");
    assert_eq!(world.contents(), before);
    let row = world.run(&[&resolve[..], &id, &["--evidence", "seen", "--json"]].concat()).ok();
    let row = row.json();
    assert_eq!((&row["state"], &row["remote_id"]), (&"sent".into(), &"4711".into()));
    assert_eq!((&row["settled_by"], &row["effect"]), (&"person:ann".into(), &"confirmed".into()));
    let evidence: String = world.value("SELECT reason FROM handoff_audit", []);
    assert_eq!(evidence, "seen");
}

#[test]
fn resolve_as_not_sent_delivers_again_under_the_same_key() {
    let (world, keys) = blocked(NONE, LATE, &["case-104"]);
    let resolve = ["resolve", &keys[0], "--as", "not-sent", "--evidence", "no task"];
    let before = world.contents();
    world.run(&resolve).exits(2).says("--looked-at");
    let early = ["--looked-at", "1d"];
    world.run(&[&resolve[..], &early].concat()).exits(1).says("could still act").says("--force");
    let forced = ["--force"];
    world.run(&[&resolve[..], &early, &forced].concat()).exits(2).says("--reason");
    world.run(&[&resolve[..], &["--looked-at", "yesterday"]].concat()).exits(65).says("is no time");
    assert_eq!(world.contents(), before);
    let now = ["--looked-at", "1ms"];
    let done = world.run(&[&resolve[..], &now].concat()).ok();
    assert!(done.stdout.contains("is pending"), "{done:?}");
    let daemon = world.serving();
    world.until_state(&keys[0], "sent");
    daemon.stop();
    let attempts: i64 = world.value("SELECT attempts FROM handoff_outbox", []);
    assert_eq!((attempts, world.tasks(&keys[0])), (2, 1));
}

#[test]
fn explain_names_the_verbs_that_settle_an_unknown_outcome() {
    let (world, keys) = blocked(LOOK_UP, LATE, &["case-104"]);
    let explained = world.run(&["explain", &keys[0], "--json"]).ok().json();
    let verbs: Vec<&str> =
        explained["verbs"].as_array().into_iter().flatten().filter_map(|v| v.as_str()).collect();
    assert_eq!(verbs, ["withdraw", "reconcile", "resolve"]);
}

#[test]
fn what_is_blocked_is_looked_up_by_itself_where_that_is_configured() {
    let (world, keys) = blocked(LOOK_UP, LATE, &["case-104"]);
    make_task(&world, &keys[0]);
    let unasked = world.serving();
    let sql = "SELECT count(*) FROM handoff_attempts";
    let before: i64 = world.value(sql, []);
    unasked.stop();
    assert_eq!(world.value::<i64>(sql, []), before, "nobody asks unless it is configured");
    let daemon = world.daemon_with(&["--set", "reconcile.every=100ms"]);
    world.until_state(&keys[0], "sent");
    daemon.stop();
    assert_eq!(world.tasks(&keys[0]), 1);
    let who: String = world.value("SELECT verb || ' ' || who FROM handoff_audit", []);
    assert_eq!(who, "reconcile policy:reconcile");
}
