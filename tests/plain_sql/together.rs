//! Approval and outbox row exist together or not at all.

use crate::support::{CLAUSES, KEY, PAYLOAD, Python, Row, World};
use handoff::rusqlite::Connection;
use serde_json::json;

#[test]
fn a_rollback_leaves_neither() {
    let world = World::new();
    let mut python = world.python();
    for clause in CLAUSES {
        python.must("BEGIN IMMEDIATE");
        assert_eq!(python.record(clause, &Row::good()), Ok(1), "{clause:?}");
        python.must("ROLLBACK");
        assert_eq!(world.counts(), (0, 0), "{clause:?}");
    }
}

#[test]
fn a_savepoint_that_is_rolled_back_leaves_neither_and_one_that_is_released_keeps_both() {
    let world = World::new();
    let mut python = world.python();
    python.must("BEGIN IMMEDIATE");
    for clause in CLAUSES {
        python.must("SAVEPOINT here");
        assert_eq!(python.record(clause, &Row::good()), Ok(1), "{clause:?}");
        python.must("ROLLBACK TO here");
        let both = "SELECT (SELECT count(*) FROM handoff_approvals),
                           (SELECT count(*) FROM handoff_outbox)";
        assert_eq!(python.must(both).rows, json!([[0, 0]]), "{clause:?}");
    }
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    python.must("RELEASE here");
    python.must("COMMIT");
    assert_eq!(world.counts(), (1, 1));
}

#[test]
fn a_process_killed_before_its_commit_leaves_neither() {
    for clause in CLAUSES {
        let world = World::new();
        let mut python = world.python();
        // So small a cache that the rows are in the file, uncommitted, when it dies.
        python.must("PRAGMA cache_size = 1");
        python.must("BEGIN IMMEDIATE");
        python.must("INSERT INTO cases VALUES ('case-104', 'approved')");
        assert_eq!(python.record(clause, &Row::good()), Ok(1), "{clause:?}");
        python.must("INSERT INTO cases SELECT hex(randomblob(500)), '' FROM pragma_function_list");
        python.kill();
        assert_eq!(world.counts(), (0, 0), "{clause:?}");
        // The key is as free as before.
        assert_eq!(world.python().record(clause, &Row::good()), Ok(1), "{clause:?}");
        assert_eq!(world.counts(), (1, 1), "{clause:?}");
    }
}

#[test]
fn a_process_killed_after_its_commit_leaves_both() {
    let world = World::new();
    let mut python = world.python();
    python.must("BEGIN IMMEDIATE");
    python.must("INSERT INTO cases VALUES ('case-104', 'approved')");
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    python.must("COMMIT");
    python.kill();
    assert_eq!(world.counts(), (1, 1));
}

/// Records under a clause while a trigger hinders the outbox row; gives back the error.
fn hindered(world: &World, clause: (&str, &str), trigger: &str) -> String {
    let mut python = world.python();
    python.must(trigger);
    let error = python.record(clause, &Row::good()).unwrap_err();
    assert_eq!(world.counts(), (0, 0), "{clause:?}: {trigger}");
    error
}

#[test]
fn an_outbox_row_that_cannot_be_written_takes_the_approval_with_it() {
    for clause in CLAUSES {
        for how in ["RAISE(ABORT, 'disk on fire')", "RAISE(ROLLBACK, 'disk on fire')"] {
            let trigger = format!(
                "CREATE TEMP TRIGGER hinder BEFORE INSERT ON handoff_outbox
                 BEGIN SELECT {how}; END"
            );
            let error = hindered(&World::new(), clause, &trigger);
            assert_eq!(error, "disk on fire", "{clause:?}");
        }
    }
}

#[test]
fn an_outbox_row_that_is_skipped_without_a_word_takes_the_approval_with_it() {
    for clause in CLAUSES {
        let trigger = "CREATE TEMP TRIGGER hinder BEFORE INSERT ON handoff_outbox
                       BEGIN SELECT RAISE(IGNORE); END";
        let error = hindered(&World::new(), clause, trigger);
        assert_eq!(error, "handoff: the outbox row was not written", "{clause:?}");
    }
}

/// A world with one operation, and an index of the application's that a second one breaks.
fn with_an_index_in_the_way() -> (World, Row) {
    let world = World::new();
    let mut python = world.python();
    let first = Row::good().key("harbor:x:v1:first");
    assert_eq!(python.record(CLAUSES[0], &first), Ok(1));
    python.must("CREATE UNIQUE INDEX one_each ON handoff_outbox (receiver)");
    (world, first)
}

/// These clauses let SQLite end a statement half-way, or remove a row of ours,
/// where no trigger can prevent it; hence no index on our tables is allowed.
fn is_beyond_a_trigger(clause: (&str, &str)) -> bool {
    clause.0.contains("FAIL") || clause.0.contains("REPLACE")
}

#[test]
fn a_constraint_that_would_drop_the_outbox_row_takes_the_approval_with_it() {
    for clause in CLAUSES.into_iter().filter(|clause| !is_beyond_a_trigger(*clause)) {
        let (world, _) = with_an_index_in_the_way();
        let before = world.contents();
        world.python().record(clause, &Row::good()).unwrap_err();
        assert_eq!(world.contents(), before, "{clause:?}");
    }
}

#[test]
fn an_approval_left_alone_by_an_index_of_the_applications_is_told_apart_at_the_next_repeat() {
    for clause in CLAUSES.into_iter().filter(|clause| is_beyond_a_trigger(*clause)) {
        let (world, first) = with_an_index_in_the_way();
        let mut python = world.python();
        let recorded = python.record(clause, &Row::good());
        let alone = if recorded.is_ok() { first } else { Row::good() };
        for again in CLAUSES {
            let refused = python.record(again, &alone).unwrap_err();
            assert!(refused.starts_with("handoff: damaged"), "{clause:?}, {again:?}: {refused}");
        }
    }
}

#[test]
fn a_database_that_is_full_takes_neither() {
    for clause in CLAUSES {
        let world = World::new();
        let mut python = world.python();
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(200_000));
        let pages = python.must("PRAGMA page_count").rows[0][0].as_i64().unwrap();
        python.must(&format!("PRAGMA max_page_count = {}", pages + 20));
        python.must("BEGIN IMMEDIATE");
        let full = python.record(clause, &Row::good().payload(large)).unwrap_err();
        assert!(full.contains("full"), "{clause:?}: {full}");
        // An application that goes on regardless.
        if python.in_transaction {
            python.must("COMMIT");
        }
        assert_eq!(world.counts(), (0, 0), "{clause:?}");
    }
}

#[test]
fn the_applications_own_row_commits_with_them_or_not_at_all() {
    let world = World::new();
    let cases = || -> i64 {
        world.open().query_row("SELECT count(*) FROM cases", [], |row| row.get(0)).unwrap()
    };
    let mut python = world.python();
    for (end, expected) in [("ROLLBACK", (0, (0, 0))), ("COMMIT", (1, (1, 1)))] {
        python.must("BEGIN IMMEDIATE");
        python.must("INSERT INTO cases VALUES ('case-104', 'approved')");
        assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
        assert_eq!((cases(), world.counts()), (0, (0, 0)), "nobody sees it before the end");
        python.must(end);
        assert_eq!((cases(), world.counts()), expected, "{end}");
    }
}

#[test]
fn in_an_attached_file_both_rows_are_written_there() {
    let world = World::new();
    let elsewhere = world.folder().join("elsewhere.db");
    let mut python = Python::start(&elsewhere);
    // A table of the same name in the main file is left alone.
    python.must("CREATE TABLE handoff_outbox (operation_key)");
    python.must(&format!("ATTACH '{}' AS hand", world.path().display()));
    for (verb, tail) in CLAUSES {
        python.must("BEGIN IMMEDIATE");
        python.must(&format!(
            "{verb} INTO hand.handoff_approvals (operation_key, receiver, payload, approved_by)
             VALUES ('{KEY}', 'crm', '{PAYLOAD}', 'ann') {tail}"
        ));
        python.must("ROLLBACK");
        assert_eq!(world.counts(), (0, 0), "{verb} {tail}");
    }
    python.must(&format!(
        "INSERT INTO hand.handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{KEY}', 'crm', '{PAYLOAD}', 'ann')"
    ));
    assert_eq!(world.counts(), (1, 1));
    assert_eq!(python.must("SELECT count(*) FROM main.handoff_outbox").rows, json!([[0]]));
}

#[test]
fn triggers_of_the_application_that_only_look_on_do_no_harm() {
    let world = World::new();
    let mut python = world.python();
    python.must("CREATE TABLE seen (operation_key TEXT)");
    for (name, when) in [
        ("before_approval", "BEFORE INSERT ON handoff_approvals"),
        ("after_approval", "AFTER INSERT ON handoff_approvals"),
        ("before_row", "BEFORE INSERT ON handoff_outbox"),
        ("after_row", "AFTER INSERT ON handoff_outbox"),
    ] {
        python.must(&format!(
            "CREATE TRIGGER {name} {when} BEGIN INSERT INTO seen VALUES (NEW.operation_key); END"
        ));
    }
    for (number, clause) in (0..).zip(CLAUSES) {
        let row = Row::good().key(format!("harbor:x:v1:{number}"));
        assert_eq!(python.record(clause, &row), Ok(1), "{clause:?}");
        assert_eq!(python.record(clause, &row), Ok(0), "{clause:?}");
        assert_eq!(world.counts(), (number + 1, number + 1), "{clause:?}");
    }
}

#[test]
fn a_foreign_key_of_the_application_can_point_at_the_operation() {
    let world = World::new();
    let mut python = world.python();
    python.must("PRAGMA foreign_keys = ON");
    python.must(
        "CREATE TABLE reminders (follow_up TEXT NOT NULL REFERENCES handoff_outbox (operation_key))",
    );
    python.run("INSERT INTO reminders VALUES (?)", &[json!(KEY)]).unwrap_err();
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    python.run("INSERT INTO reminders VALUES (?)", &[json!(KEY)]).unwrap();
    world.daemon("UPDATE handoff_outbox SET state = 'sent'");
}

#[test]
fn whoever_reads_sees_both_rows_or_none() {
    let world = World::new();
    let mut python = world.python();
    let reader: Connection = world.open();
    for number in 0..50 {
        python.ask_to_record(&Row::good().key(format!("harbor:x:v1:{number}")));
        // As often as it can while the other process writes.
        for _ in 0..20 {
            let (approvals, rows): (i64, i64) = reader
                .query_row(
                    "SELECT (SELECT count(*) FROM handoff_approvals),
                            (SELECT count(*) FROM handoff_outbox)",
                    [],
                    |row| row.try_into(),
                )
                .unwrap();
            assert_eq!(approvals, rows);
        }
        assert_eq!(python.answer().unwrap().changed, 1);
    }
}
