//! The same operation again, and another one under the same key.

use crate::support::{CLAUSES, KEY, PAYLOAD, Row, World};
use serde_json::json;

/// A world in which the good row is recorded.
fn recorded() -> World {
    let world = World::new();
    assert_eq!(world.python().record(CLAUSES[0], &Row::good()), Ok(1));
    world
}

#[test]
fn a_repeat_changes_no_row_under_every_conflict_clause() {
    let world = recorded();
    let before = world.contents();
    let mut python = world.python();
    let spaced = "\n{ \"case_id\" : \"case-104\" ,\t\"title\":\"Call the customer\"}\r\n";
    let later = 1_796_108_400_000_i64;
    for clause in CLAUSES {
        for row in [
            Row::good(),
            Row::good().payload(spaced),
            // Who approves, when and in which trace are not content.
            Row::good().approved_by("bob"),
            Row::good().deliver_after(later).traceparent("00-x"),
        ] {
            assert_eq!(python.record(clause, &row), Ok(0), "{clause:?}");
            assert_eq!(world.contents(), before, "{clause:?}");
        }
    }
}

#[test]
fn other_content_or_another_receiver_is_a_conflict_and_changes_nothing() {
    let world = recorded();
    let before = world.contents();
    let mut python = world.python();
    for clause in CLAUSES {
        for row in [
            Row::good().payload(r#"{"case_id":"case-104","title":"Call the customer!"}"#),
            Row::good().payload(r#"{"case_id":"case-104"}"#),
            Row::good().payload("{}"),
            Row::good().payload(r#"{"case_id":"case-104","title":"call the customer"}"#),
            Row::good().payload(r#"{"case_id":"case-104","title":"Call  the customer"}"#),
            Row::good().receiver("other"),
            Row::good().receiver("nobody"),
            Row::good().receiver(json!(null)),
        ] {
            let refused = python.record(clause, &row).unwrap_err();
            assert!(refused.starts_with("handoff: conflict"), "{clause:?}: {refused}");
            assert_eq!(world.contents(), before, "{clause:?}");
        }
    }
}

#[test]
fn plain_sql_tells_the_same_names_in_another_order_from_the_same_text() {
    let world = recorded();
    let reordered = r#"{"title":"Call the customer","case_id":"case-104"}"#;
    let mut python = world.python();
    let refused = python.record(CLAUSES[0], &Row::good().payload(reordered)).unwrap_err();
    assert!(refused.starts_with("handoff: conflict"), "{refused}");
}

#[test]
fn a_repeat_is_known_whatever_has_become_of_the_operation_and_the_configuration() {
    for change in [
        "UPDATE handoff_outbox SET state = 'sent', effect = 'confirmed'",
        "UPDATE handoff_outbox SET state = 'blocked', blocked_reason = 'ambiguous'",
        "UPDATE handoff_outbox SET state = 'withdrawn'",
        "UPDATE handoff_outbox SET payload = '{}', fingerprint = 'f'",
        "DELETE FROM handoff_receivers",
        "DELETE FROM handoff_receivers WHERE name = 'crm'",
    ] {
        let world = recorded();
        world.daemon(change);
        let before = world.contents();
        let mut python = world.python();
        for clause in CLAUSES {
            assert_eq!(python.record(clause, &Row::good()), Ok(0), "{change}, {clause:?}");
        }
        assert_eq!(world.contents(), before, "{change}");
    }
    // A subject that the type's pattern allowed once.
    let world = World::new();
    world.daemon("INSERT INTO handoff_types VALUES ('invoice', 1, 0)");
    let row = Row::good().key("harbor:invoice:v1:2026/11");
    let mut python = world.python();
    assert_eq!(python.record(CLAUSES[0], &row), Ok(1));
    world.daemon("DELETE FROM handoff_types");
    assert_eq!(python.record(CLAUSES[0], &row), Ok(0));
}

#[test]
fn a_repeat_after_the_payload_was_pruned_is_told_that_it_is_settled() {
    for state in ["sent", "withdrawn"] {
        let world = recorded();
        world.daemon(&format!("UPDATE handoff_outbox SET state = '{state}'"));
        world.daemon("UPDATE handoff_approvals SET payload = NULL");
        let before = world.contents();
        let mut python = world.python();
        for clause in CLAUSES {
            for row in [Row::good(), Row::good().payload("{}"), Row::good().receiver("other")] {
                let refused = python.record(clause, &row).unwrap_err();
                assert!(refused.starts_with("handoff: settled"), "{clause:?}: {refused}");
            }
        }
        assert_eq!(world.contents(), before);
    }
}

#[test]
fn two_rows_of_one_statement_are_held_against_each_other() {
    for clause in CLAUSES {
        let world = World::new();
        let mut python = world.python();
        let other = Row::good().and(Row::good().payload("{}"));
        let refused = python.record_two(clause, &other).unwrap_err();
        assert!(refused.starts_with("handoff: conflict"), "{clause:?}: {refused}");
        assert_eq!(world.counts(), (0, 0), "{clause:?}");
        let same = Row::good().and(Row::good());
        assert_eq!(python.record_two(clause, &same), Ok(1), "{clause:?}");
        assert_eq!(world.counts(), (1, 1), "{clause:?}");
    }
}

#[test]
fn returning_and_changes_tell_a_new_row_from_a_repeat() {
    let world = World::new();
    let mut python = world.python();
    for (verb, tail) in CLAUSES {
        let key = format!("harbor:x:v1:{}", world.counts().0);
        let sql = format!(
            "{verb} INTO handoff_approvals (operation_key, receiver, payload, approved_by)
             VALUES ('{key}', 'crm', '{PAYLOAD}', 'ann') {tail} RETURNING operation_key"
        );
        let first = python.must(&sql);
        assert_eq!(first.rows, json!([[key]]), "{verb} {tail}");
        assert_eq!(python.must("SELECT changes()").rows, json!([[1]]), "{verb} {tail}");
        assert_eq!(python.must(&sql).rows, json!([]), "{verb} {tail}");
        assert_eq!(python.must("SELECT changes()").rows, json!([[0]]), "{verb} {tail}");
    }
}

#[test]
fn recording_leaves_the_applications_last_insert_rowid_alone() {
    let world = World::new();
    let mut python = world.python();
    python.must("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)");
    python.must("INSERT INTO notes VALUES (77, 'approved')");
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    assert_eq!(python.must("SELECT last_insert_rowid()").rows, json!([[77]]));
}

#[test]
fn an_approval_whose_outbox_row_is_gone_is_never_taken_for_a_repeat() {
    let world = recorded();
    // No statement that the triggers let through gets here.
    world.daemon(
        "DROP TRIGGER handoff_outbox_kept;
         DELETE FROM handoff_outbox;",
    );
    let mut python = world.python();
    for clause in CLAUSES {
        let refused = python.record(clause, &Row::good().key(KEY)).unwrap_err();
        assert!(refused.starts_with("handoff: damaged"), "{clause:?}: {refused}");
    }
    assert_eq!(world.counts(), (1, 0));
}
