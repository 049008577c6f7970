//! What every command does with good and bad input: its exit code, what it says
//! where, and what it leaves as it was.

use crate::support::{Crm, Done, World};
use serde_json::Value;

const KEY: &str = "harbor:create-followup:v1:case-104";
const OTHER: &str = "harbor:create-followup:v1:none";
const APPROVE: &[&str] = &[
    "approve",
    "create-followup",
    "--field",
    "case_id=case-104",
    "--field",
    "title=Call the customer",
];
/// The columns of `handoff_outbox` that design and README name.
const OUTBOX: &[&str] = &[
    "operation_key",
    "receiver",
    "state",
    "blocked_reason",
    "effect",
    "attempts",
    "due_at",
    "first_attempt_at",
    "remote_id",
    "settled_by",
    "last_error",
    "version",
    "recorded_at",
    "sent_at",
];
const ATTEMPTS: &[&str] = &[
    "operation_key",
    "number",
    "kind",
    "started_at",
    "finished_at",
    "instance",
    "outcome",
    "error_code",
    "http_status",
    "request_sent",
    "duration_ms",
    "evidence",
];
/// Commands that name an operation.
const ON_ONE: [&[&str]; 7] = [
    &["show"],
    &["explain"],
    &["wait", "--timeout", "1ms"],
    &["retry"],
    &["withdraw", "--reason", "none"],
    &["reconcile"],
    &["resolve", "--as", "sent", "--remote-id", "7", "--evidence", "seen"],
];

/// One operation in each state, delivered by a daemon that is gone.
fn settled() -> World {
    let faults = r#"[
      { on = "key", match = "*:blocked", fault = "reject" },
      { on = "key", match = "*:doubt", fault = "lose_reply" },
    ]"#;
    let crm = Crm { faults, contract: "mode = \"none\"", ..Crm::default() };
    let world = World::with(&crm).migrated();
    let daemon = world.serving();
    for (case, state) in [("sent", "sent"), ("blocked", "blocked"), ("doubt", "blocked")] {
        let key = world.record(case);
        world.until_state(&key, state);
    }
    daemon.stop();
    let withdrawn = world.record("withdrawn");
    world.run(&["withdraw", &withdrawn, "--reason", "no longer wanted"]).ok();
    world.record("pending");
    world
}

fn key(case: &str) -> String {
    format!("harbor:create-followup:v1:{case}")
}

#[track_caller]
fn has_columns(object: &Value, columns: &[&str]) {
    for column in columns {
        assert!(object.get(column).is_some(), "no {column} in {object}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_prints_no_result() {
    let world = World::new().migrated();
    for arguments in [
        &[][..],
        &["delete"],
        &["list", "--nonsense"],
        &["list", "--limit", "many"],
        &["list", "--state", "done"],
        &["list", "--reason", "unlucky"],
        &["show"],
        &["show", KEY, KEY],
        &["wait", KEY, "--timeout", "soon"],
        &["retry", KEY, "--version", "-1"],
        &["withdraw", KEY],
        &["approve", "create-followup"],
        &["approve"],
        &["approve", "create-followup", "--field", "a=b", "--payload", "f"],
        &["migrate", "--url", "app.db"],
        &["completions", "tcl"],
        &["check", "--origin", "yes"],
    ] {
        let done = world.run(arguments).exits(2);
        assert_eq!(done.stdout, "", "{arguments:?}");
        assert_ne!(done.stderr, "", "{arguments:?}");
    }
    world.run(&["list", "--state", "done"]).says("pending, sent, blocked, withdrawn");
    world.run(&["list", "--reason", "unlucky"]).says("budget_exhausted");
}

#[test]
fn a_bad_configuration_exits_with_78_whatever_the_command_and_shows_every_problem() {
    let world = World::new().migrated();
    world.write("handoff.toml", "[worker]\npoll_intervall = \"1s\"\nshutdown_grace = 25\n");
    let commands = [&["run"][..], &["list"], &["status"], &["check"], &["migrate"], APPROVE];
    for command in commands.into_iter().chain([&["show", KEY][..], &["wait", KEY]]) {
        let done = world.run(command).exits(78);
        let done = done.says("poll_intervall").says("shutdown_grace").says("handoff.toml");
        assert_eq!(done.stdout, "");
    }
    world.write("handoff.toml", "");
    let done = world.run(&["check", "--set", "worker.poll_interval=1"]).exits(78);
    done.says("--set").says("poll_interval");
    std::fs::remove_file(world.path("handoff.toml")).expect("it was there");
    world.run(&["check", "--config", "none.toml"]).exits(78).says("none.toml");
}

#[test]
fn an_unknown_key_exits_with_1_and_says_so() {
    let world = World::new().migrated();
    for command in ON_ONE {
        for unknown in [OTHER, "", "harbor:\u{1b}[2J:v1:x", "a\nb", "💥"] {
            let done = world.run(&[command, &[unknown]].concat()).exits(1);
            assert!(done.stderr.contains("there is no operation"), "{done:?}");
            assert!(!done.stderr.contains('\u{1b}'), "{done:?}");
            assert_eq!(done.stdout, "");
        }
    }
}

#[test]
fn a_wait_ends_with_what_became_of_the_operation() {
    let world = settled();
    world.run(&["wait", &key("sent")]).ok();
    world.run(&["wait", &key("blocked")]).exits(3).says("handoff explain");
    world.run(&["wait", &key("withdrawn")]).exits(3);
    world.run(&["wait", &key("pending"), "--timeout", "1ms"]).exits(1).says("the time is over");
    let daemon = world.serving();
    world.run(&["wait", &key("pending"), "--timeout", "120s"]).ok();
    daemon.stop();
}

#[test]
fn a_status_check_exits_with_3_if_a_person_must_look() {
    let world = World::new().migrated();
    world.run(&["status", "--check"]).ok();
    let world = settled();
    let done = world.run(&["status", "--check"]).exits(3);
    assert!(done.stdout.contains("1 rejected"), "{done:?}");
    world.run(&["status"]).ok().says("handoff list --state blocked");
}

#[test]
fn a_verb_is_bound_to_the_version_that_the_person_saw() {
    let world = settled();
    for command in [&["retry"][..], &["withdraw", "--reason", "none"]] {
        let pending = key("pending");
        let before = world.contents();
        let stale = [command, &[&pending, "--version", "7"]].concat();
        world.run(&stale).exits(4).says("version 1");
        assert_eq!(world.contents(), before);
    }
    world.run(&["retry", &key("pending"), "--version", "1"]).ok();
    world.run(&["withdraw", &key("pending"), "--version", "2", "--reason", "none"]).ok();
}

#[test]
fn a_retry_is_refused_where_the_contract_does_not_allow_it_and_names_the_row() {
    let world = settled();
    let before = world.contents();
    let row = world.run(&["explain", &key("doubt"), "--json"]).ok().json()["row"].clone();
    let row = format!("row {}", row.as_str().expect("a row"));
    world.run(&["retry", &key("doubt")]).exits(1).says(&row).says("handoff explain");
    for (case, state) in [("sent", "sent"), ("withdrawn", "withdrawn")] {
        world.run(&["retry", &key(case)]).exits(1).says(state);
        world.run(&["withdraw", &key(case), "--reason", "none"]).exits(1).says(state);
    }
    assert_eq!(world.contents(), before);
    // What was rejected for certain may be tried again.
    world.run(&["retry", &key("blocked")]).ok();
    assert_eq!(world.state(&key("blocked")), "pending");
}

#[test]
fn a_withdrawal_keeps_and_shows_what_is_known_of_the_receiver() {
    let world = settled();
    for (case, effect) in [("pending", "none"), ("blocked", "none"), ("doubt", "possible")] {
        let done = world.run(&["withdraw", &key(case), "--reason", "none"]).ok();
        assert!(done.stdout.contains(&format!("effect at the receiver: {effect}")), "{done:?}");
        assert_eq!(world.state(&key(case)), "withdrawn");
    }
    let daemon = world.serving();
    let later = world.record("later");
    world.until_state(&later, "sent");
    daemon.stop();
    assert_eq!(world.tasks(&key("pending")), 0, "it was taken back");
}

#[test]
fn a_verb_is_refused_while_an_attempt_is_under_way() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "10m" }]"#;
    let world = World::with(&Crm { faults, timeout: "30m", ..Crm::default() }).migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    let before = world.contents();
    world.run(&["retry", &key]).exits(1).says("an attempt is under way");
    world.run(&["withdraw", &key, "--reason", "none"]).exits(1).says("an attempt is under way");
    assert_eq!(world.contents(), before);
    drop(daemon);
}

#[test]
fn a_person_and_a_reason_are_asked_for_in_a_form_that_can_be_kept() {
    let world = settled();
    let before = world.contents();
    let long = "x".repeat(2_001);
    for (name, reason) in [
        ("", "none"),
        (" \t", "none"),
        ("ann\nroot", "none"),
        ("\u{1b}[2J", "none"),
        (&long[..201], "none"),
        ("ann", ""),
        ("ann", " \n"),
        ("ann", &long),
    ] {
        let arguments = ["withdraw", &key("pending"), "--as", name, "--reason", reason];
        world.run(&arguments).exits(65);
    }
    assert_eq!(world.contents(), before);
}

#[test]
fn a_list_shows_what_was_asked_for_and_in_order_of_recording() {
    let world = settled();
    let keys = |arguments: &[&str]| -> Vec<String> {
        let done = world.run(&[&["list", "--json"], arguments].concat()).ok();
        let rows = done.json();
        let rows = rows.as_array().expect("an array");
        let key = |row: &Value| row["operation_key"].as_str().expect("a key").to_owned();
        rows.iter().map(key).collect()
    };
    let all = ["sent", "blocked", "doubt", "withdrawn", "pending"].map(key);
    assert_eq!(keys(&[]), all);
    assert_eq!(keys(&["--limit", "2"]), all[3..]);
    assert_eq!(keys(&["--limit", "0"]), [""; 0]);
    assert_eq!(keys(&["--state", "blocked"]), all[1..3]);
    assert_eq!(keys(&["--reason", "ambiguous"]), all[2..3]);
    assert_eq!(keys(&["--state", "sent", "--reason", "ambiguous"]), [""; 0]);
    assert_eq!(keys(&["--receiver", "crm"]).len(), 5);
    assert_eq!(keys(&["--receiver", "mail"]), [""; 0]);
    assert_eq!(keys(&["--prefix", "harbor:create-followup:v1:w"]), all[3..4]);
    assert_eq!(keys(&["--prefix", "%"]), [""; 0]);
    let none = world.run(&["list", "--receiver", "mail"]).ok();
    assert_eq!(none.stdout, "no operations match\n");
}

#[test]
fn json_is_the_whole_of_standard_output_and_uses_the_names_of_the_columns() {
    let world = settled();
    let json = |arguments: &[&str]| -> Value {
        let done = Done::of(&mut world.command(&[arguments, &["--json"]].concat()));
        assert!(matches!(done.code, Some(0 | 3)), "{done:?}");
        assert_eq!(done.stdout.lines().count(), 1, "{done:?}");
        done.json()
    };
    let list = json(&["list"]);
    has_columns(&list[0], OUTBOX);
    assert!(list[0]["recorded_at"].is_i64(), "{list}");
    let show = json(&["show", &key("sent")]);
    has_columns(&show, OUTBOX);
    has_columns(&show["history"][0], ATTEMPTS);
    let explain = json(&["explain", &key("doubt")]);
    has_columns(&explain, OUTBOX);
    has_columns(&explain, &["row", "decision", "next_at", "gate", "verbs"]);
    assert_eq!(explain["verbs"], serde_json::json!(["withdraw", "resolve"]));
    has_columns(&json(&["wait", &key("doubt")]), OUTBOX);
    let status = json(&["status"]);
    assert_eq!((&status["attention"], &status["receivers"][0]["sent"]), (&true.into(), &1.into()));
    assert_eq!(json(&["check"])["ok"], true);
    has_columns(&json(&["check", "--origin"])["values"][0], &["path", "value", "origin"]);
    assert_eq!(json(&["migrate"])["version"], 1);
    assert!(json(&["migrate", "--print"])["sql"].is_string());
    assert!(json(&["completions", "bash"])["script"].is_string());
    let recorded = json(APPROVE);
    has_columns(&recorded, OUTBOX);
    assert_eq!(recorded["recorded"], "new");
    assert_eq!(json(APPROVE)["recorded"], "existing");
    has_columns(&json(&["retry", KEY]), OUTBOX);
    let withdrawn = json(&["withdraw", KEY, "--reason", "none"]);
    assert_eq!(withdrawn["state"], "withdrawn");
}

#[test]
fn a_failure_is_json_on_standard_error_if_json_was_asked_for() {
    let world = settled();
    for (arguments, code) in [
        (&["show", OTHER][..], 1),
        (&["retry", &key("pending"), "--version", "9"], 4),
        (&["approve", "nonsense", "--field", "a=b"], 65),
        (&["list", "--set", "store.url=sqlite:none/app.db"], 69),
        (&["list", "--set", "nonsense=1"], 78),
    ] {
        let done = world.run(&[arguments, &["--json"]].concat()).exits(code);
        assert_eq!(done.stdout, "");
        let error: Value = serde_json::from_str(&done.stderr).expect("JSON");
        assert_eq!(error["exit"], code);
        assert!(error["error"].is_string(), "{error}");
    }
}

#[test]
fn hints_are_kept_from_results_and_can_be_switched_off() {
    let world = settled();
    let shown = world.run(&["show", &key("doubt")]).ok().says("next: handoff explain");
    let quiet = world.run(&["show", &key("doubt"), "--quiet"]).ok();
    assert_eq!((quiet.stdout, quiet.stderr), (shown.stdout, String::new()));
    let quiet = world.run(&[APPROVE, &["--quiet"]].concat()).ok();
    assert_eq!(quiet.stderr, "");
    world
        .run(&["approve", "create-followup", "--field", "case_id=a", "--field", "title=b"])
        .ok()
        .says("no daemon serves");
}
