//! Text from outside cannot break a line, steer a terminal, or hide its neighbours.

use crate::support::{Done, World};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Clears the screen, breaks the line, writes backwards, hides, and so on.
const HOSTILE: &str = "\u{1b}[2Jx\r\n\u{9b}31my\u{202e}z\u{2028}\u{200b}\u{7f}\u{8}\u{feff}";
const KEY: &str = "harbor:create-followup:v1:case-104";

/// Nothing in it but line feeds may do anything to a terminal.
#[track_caller]
fn is_harmless(text: &str) {
    let bad = |c: char| {
        (c.is_control() && c != '\n')
            || "\u{202e}\u{2028}\u{200b}\u{feff}\u{ad}\u{2066}".contains(c)
    };
    assert!(!text.contains(bad), "{text:?}");
}

#[track_caller]
fn harmless(done: Done) -> Done {
    is_harmless(&done.stdout);
    is_harmless(&done.stderr);
    done
}

/// A pending operation with hostile text wherever somebody else's text is kept.
fn poisoned() -> World {
    let world = World::new().migrated();
    let daemon = world.serving();
    world.record("case-104");
    world.until_state(KEY, "sent");
    daemon.stop();
    let text = format!("{HOSTILE}\0");
    let db = world.open("app.db");
    for sql in [
        "UPDATE handoff_outbox SET last_error = ?1, remote_id = ?1",
        "UPDATE handoff_attempts SET evidence = ?1, error_code = ?1, remote_id = ?1, instance = ?1",
    ] {
        db.execute(sql, [&text]).expect("it is written");
    }
    let payload = serde_json::json!({ "case_id": "b", "title": HOSTILE }).to_string();
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES ('harbor:create-followup:v1:b', 'crm', ?1, ?2)";
    db.execute(sql, [&payload, "ann\u{202e}\u{2028}\u{200b}"]).expect("it is recorded");
    world
}

#[test]
fn hostile_text_in_the_database_is_shown_escaped() {
    let world = poisoned();
    let lines = |done: &Done| done.stdout.lines().count();
    let list = harmless(world.run(&["list"]).ok());
    assert_eq!(lines(&list), 3, "a heading and two operations: {list:?}");
    assert!(list.stdout.contains("\\u{1b}[2J"), "{list:?}");
    harmless(world.run(&["show", KEY]).ok());
    harmless(world.run(&["show", "harbor:create-followup:v1:b"]).ok());
    harmless(world.run(&["explain", KEY]).ok());
    harmless(world.run(&["wait", KEY]).ok());
    harmless(world.run(&["status"]).ok());
    harmless(world.run(&["retry", KEY]).exits(1));
}

#[test]
fn hostile_text_is_the_same_text_in_json_and_harmless_there_too() {
    let world = poisoned();
    let show = harmless(world.run(&["show", KEY, "--json"]).ok());
    assert_eq!(show.stdout.lines().count(), 1);
    assert_eq!(show.json()["last_error"], format!("{HOSTILE}\0"));
    assert_eq!(show.json()["history"][0]["evidence"], format!("{HOSTILE}\0"));
    let show = harmless(world.run(&["show", "harbor:create-followup:v1:b", "--json"]).ok());
    assert_eq!(show.json()["payload"]["title"], HOSTILE);
    harmless(world.run(&["list", "--json"]).ok());
    harmless(world.run(&["explain", KEY, "--json"]).ok());
}

#[test]
fn a_word_that_is_none_makes_an_operation_invalid_and_harms_nothing_else() {
    let world = World::new().migrated();
    world.record("case-104");
    let sql = "UPDATE handoff_outbox SET answer = ?1, effect = ?1";
    world.open("app.db").execute(sql, [HOSTILE]).expect("it is written");
    for arguments in [&["list"][..], &["show", KEY], &["explain", KEY], &["list", "--json"]] {
        harmless(world.run(arguments).ok());
    }
    for format in ["json", "text"] {
        let daemon = world.daemon_with(&["--set", &format!("log.format={format}")]);
        world.until_state(KEY, "blocked");
        let other = world.record(format);
        world.until_state(&other, "sent");
        for line in daemon.stop() {
            is_harmless(&line);
        }
    }
}

/// A receiver whose program says what it likes.
fn with_program(script: &str) -> World {
    let world = World::bare();
    world.write("program", format!("#!/bin/sh\n{script}\n"));
    let path = world.path("program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    world.configure(&format!(
        "[receivers.crm]\nkind = \"command\"\nprogram = [\"{}\"]\n\
         [receivers.crm.retry]\ninitial = \"10ms\"\nmax_interval = \"10ms\"\nmax_attempts = 2\n",
        path.display()
    ));
    world.migrated()
}

#[test]
fn what_a_program_says_reaches_no_log_and_no_terminal_raw() {
    let octal = "\\033[2Jx\\r\\n\\302\\2331m\\342\\200\\256y\\342\\200\\250\\007\\377";
    for script in [
        format!("printf '{octal}' >&2; exit 3"),
        format!("printf '{{\"outcome\":\"rejected\",\"message\":\"{octal}\"}}'"),
        format!("printf '{octal}'; exit 0"),
        "printf '{\"remote_id\":\"\\\\u001b[2J\\\\n\\\\u202e\"}'".to_owned(),
        format!("printf '{octal}' >&2; exit 75"),
    ] {
        for format in ["json", "text"] {
            let world = with_program(&script);
            let daemon = world.daemon_with(&["--set", &format!("log.format={format}")]);
            let key = world.record("case-104");
            world.run(&["wait", &key, "--timeout", "60s"]);
            assert_ne!(world.state(&key), "pending", "{script}");
            for line in daemon.stop() {
                is_harmless(&line);
                let starts = if format == "json" { "{" } else { "20" };
                assert!(line.starts_with(starts), "a record is one line: {line:?}");
            }
            for command in ["show", "explain", "wait"] {
                harmless(world.run(&[command, &key]));
                harmless(world.run(&[command, &key, "--json"]));
            }
            harmless(world.run(&["list"]).ok());
        }
    }
}

#[test]
fn a_refused_reload_with_many_problems_is_one_record() {
    for format in ["json", "text"] {
        let world = World::new().migrated();
        let daemon = world.daemon_with(&["--set", &format!("log.format={format}")]);
        let key = world.record("case-104");
        world.until_state(&key, "sent");
        world.write("handoff.toml", "namespace = 7\nnonsens = \"\\u001b[2J\"\n[worker]\nx = 1\n");
        daemon.signal(Signal::SIGHUP);
        let refused = |line: &String| line.contains("reload_refused");
        crate::support::until("a refusal", || daemon.lines().iter().any(refused).then_some(()));
        let lines = daemon.stop();
        for line in &lines {
            is_harmless(line);
            let whole = line.starts_with("20") || serde_json::from_str::<Value>(line).is_ok();
            assert!(whole, "a record is one line: {line:?}");
        }
        let record = lines.iter().find(|line| refused(line)).expect("it was logged");
        assert!(record.contains("namespace") && record.contains("nonsens"), "{record}");
    }
}

#[test]
fn hostile_arguments_and_files_are_not_repeated_raw() {
    let world = World::new().migrated();
    for arguments in [
        &["show", HOSTILE][..],
        &["list", "--state", HOSTILE],
        &["approve", HOSTILE, "--field", "a=b"],
        &["approve", "create-followup", "--field", HOSTILE],
        &["approve", "create-followup", "--payload", HOSTILE],
        &["approve", "create-followup", "--field", "a=b", "--deliver-after", HOSTILE],
        &["migrate", "--url", HOSTILE],
        &["list", "--set", &format!("store.url=sqlite:{HOSTILE}/x")],
        &["list", "--set", &format!("namespace={HOSTILE}")],
        &["list", "--config", HOSTILE],
    ] {
        let done = harmless(world.run(arguments));
        assert_ne!(done.code, Some(0), "{done:?}");
    }
}
