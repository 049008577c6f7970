//! No setting of the application's connection or file loosens a rule.

use crate::support::{CLAUSES, KEY, Python, Row, World};

/// The rules in short, under every clause, for a connection that is set up already.
fn the_rules_hold(world: &World, python: &mut Python, setting: &str) {
    for (number, clause) in (0..).zip(CLAUSES) {
        let context = format!("{setting}, {clause:?}");
        let row = Row::good().key(format!("harbor:x:v1:{number}"));
        let expected = number;
        for wrong in [
            row.clone().payload("[]"),
            row.clone().payload("{\"a\":\"\u{0}\"}"),
            row.clone().key("harbor:x:v1:a b"),
            row.clone().key("h\u{e4}rbor:x:v1:a"),
            row.clone().receiver("nobody"),
            row.clone().approved_by(" \u{a0}"),
            row.clone().deliver_after(1),
            row.clone().traceparent("\u{e9}"),
        ] {
            let refused = python.record(clause, &wrong).unwrap_err();
            assert!(refused.starts_with("handoff: "), "{context}: {refused}");
        }
        assert_eq!(world.counts(), (expected, expected), "{context}");
        assert_eq!(python.record(clause, &row), Ok(1), "{context}");
        assert_eq!(python.record(clause, &row), Ok(0), "{context}");
        let conflict = python.record(clause, &row.payload("{}")).unwrap_err();
        assert!(conflict.starts_with("handoff: conflict"), "{context}: {conflict}");
        assert_eq!(world.counts(), (expected + 1, expected + 1), "{context}");
    }
    let before = world.contents();
    for sql in [
        "DELETE FROM handoff_approvals",
        "DELETE FROM handoff_outbox",
        "UPDATE OR REPLACE handoff_approvals SET operation_key = 'harbor:x:v1:0'",
        "UPDATE OR REPLACE handoff_outbox SET rowid = 1",
        "UPDATE handoff_approvals SET payload = NULL",
        "REPLACE INTO handoff_outbox (operation_key, receiver, recorded_at)
         VALUES ('harbor:x:v1:0', 'crm', 0)",
    ] {
        python.refused(sql, "");
        assert_eq!(world.contents(), before, "{setting}: {sql}");
    }
}

#[test]
fn the_rules_hold_whatever_a_connection_is_set_to() {
    for setting in [
        "recursive_triggers = ON",
        "recursive_triggers = OFF",
        "foreign_keys = ON",
        "foreign_keys = OFF",
        "ignore_check_constraints = ON",
        "defer_foreign_keys = ON",
        "reverse_unordered_selects = ON",
        "case_sensitive_like = ON",
        "legacy_alter_table = ON",
        "writable_schema = ON",
        "automatic_index = OFF",
        "read_uncommitted = ON",
        "synchronous = FULL",
        "temp_store = MEMORY",
    ] {
        let world = World::new();
        let mut python = world.python();
        python.must(&format!("PRAGMA {setting}"));
        the_rules_hold(&world, &mut python, setting);
    }
}

#[test]
fn a_schema_that_is_not_trusted_keeps_the_rules_or_lets_nothing_in() {
    let world = World::new();
    let mut python = world.python();
    python.must("PRAGMA trusted_schema = OFF");
    // From 3.38 to 3.40 SQLite took its own JSON functions for unsafe in triggers.
    if ["3.38.", "3.39.", "3.40."].iter().any(|old| python.version.starts_with(old)) {
        for clause in CLAUSES {
            let refused = python.record(clause, &Row::good()).unwrap_err();
            assert_eq!(refused, "unsafe use of json_valid()", "{clause:?}");
        }
        assert_eq!(world.counts(), (0, 0));
        python.must("PRAGMA trusted_schema = ON");
    }
    the_rules_hold(&world, &mut python, "trusted_schema");
}

#[test]
fn the_rules_hold_in_every_kind_of_file() {
    for setting in [
        "journal_mode = DELETE",
        "journal_mode = TRUNCATE",
        "journal_mode = PERSIST",
        "encoding = 'UTF-16le'",
        "encoding = 'UTF-16be'",
        "page_size = 512",
        "page_size = 65536",
        "auto_vacuum = FULL",
        "auto_vacuum = INCREMENTAL",
    ] {
        let world = World::prepared(&format!("PRAGMA {setting}"));
        the_rules_hold(&world, &mut world.python(), setting);
    }
}

#[test]
fn statistics_and_reindexing_change_nothing() {
    let world = World::new();
    let mut python = world.python();
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    let before = world.contents();
    for sql in ["ANALYZE", "PRAGMA optimize", "REINDEX", "VACUUM"] {
        python.must(sql);
        assert_eq!(world.contents(), before, "{sql}");
        assert_eq!(python.record(CLAUSES[2], &Row::good().key(KEY)), Ok(0), "{sql}");
    }
}
