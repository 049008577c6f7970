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

/// A field, a line of text and a line of JSON that were never logged.
const FORGED: &str = "x outcome=\"sent\" event=\"stopped\"\n2026-12-01T00:00:00.000000Z  INFO \
                      event=\"stopped\"\n{\"event\":\"stopped\"}\n\" event=stopped \"";

/// A line of text, broken at the blanks that are outside of quotes.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' if !escaped => quoted = !quoted,
            ' ' if !quoted => {
                words.push(&line[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        escaped = c == '\\' && quoted && !escaped;
    }
    words.push(&line[start..]);
    words
}

/// The events of a log, of which each record must have one.
fn events(lines: &[String], format: &str) -> Vec<String> {
    let event = |line: &String| {
        if format == "json" {
            let record: Value = serde_json::from_str(line).expect("a record is one line");
            return record["event"].as_str().expect("a name").to_owned();
        }
        assert!(line.starts_with("20") && line[..30].contains("Z "), "no time: {line}");
        let events = words(line).into_iter().filter_map(|word| word.strip_prefix("event="));
        let events: Vec<&str> = events.collect();
        assert_eq!(events.len(), 1, "{line}");
        events[0].trim_matches('"').to_owned()
    };
    lines.iter().map(event).collect()
}

/// Texts that somebody who writes to the file by hand could leave in it.
fn hostile_texts() -> Vec<String> {
    let long = |text: &str| text.repeat(100_000 / text.len());
    vec![format!("{HOSTILE}\0"), FORGED.to_owned(), long("x"), long(HOSTILE), long(FORGED)]
}

#[test]
fn hostile_keys_names_and_payloads_of_any_length_are_one_record_each() {
    for format in ["json", "text"] {
        let world = World::new().migrated();
        let db = world.open("app.db");
        // The triggers refuse such rows: whoever writes them has not asked.
        db.execute_batch("DROP TRIGGER handoff_approvals_check").expect("no guard");
        let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
                   VALUES (?1, 'crm', ?2, ?1)";
        let good = "harbor:create-followup:v1:";
        for (n, text) in hostile_texts().iter().enumerate() {
            let field = serde_json::json!({ "case_id": text, "title": text, text: text });
            for key in [text.clone(), format!("{good}{text}")] {
                db.execute(sql, [&key, &field.to_string()]).expect("it is written");
            }
            db.execute(sql, [&format!("{good}case-{n}"), text]).expect("it is written");
        }
        let daemon = world.daemon_with(&["--set", &format!("log.format={format}")]);
        let pending = "SELECT count(*) FROM handoff_outbox WHERE state = 'pending'";
        crate::support::until("all to be settled", || {
            (world.value::<i64>(pending, []) == 0).then_some(())
        });
        let key = world.record("case-104");
        world.until_state(&key, "sent");
        let lines = daemon.stop();
        for line in &lines {
            is_harmless(line);
            assert!(line.len() < 48 * 1024, "the journal would break it: {} bytes", line.len());
        }
        let events = events(&lines, format);
        let count = |event: &str| events.iter().filter(|found| *found == event).count();
        assert_eq!((count("started"), count("stopped")), (1, 1), "{lines:#?}");
        assert_eq!(count("operation_blocked"), 10, "{lines:#?}");
        assert_eq!(count("repeats_summarised"), 1, "{lines:#?}");
        for command in [&["list"][..], &["status"], &["list", "--json"]] {
            let done = harmless(world.run(command).ok());
            assert!(command.contains(&"--json") || done.stdout.len() < 100_000, "it is cut");
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
        // A lone surrogate, a byte-order mark, UTF-16, and UTF-8 that is overlong.
        "printf '{\"remote_id\":\"\\\\ud800\"}'".to_owned(),
        "printf '\\357\\273\\277{\"remote_id\":\"7\"}'".to_owned(),
        "printf '\\377\\376{\\000}\\000'".to_owned(),
        "printf '{\"remote_id\":\"\\300\\257\"}'".to_owned(),
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
