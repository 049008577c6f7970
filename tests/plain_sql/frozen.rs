//! What is recorded stays as it is: no change, no replacement, no deletion.

use crate::support::{CLAUSES, KEY, PAYLOAD, Row, World};

/// Two operations, with an attempt and a row of the audit each.
fn recorded() -> World {
    let world = World::new();
    let mut python = world.python();
    for key in [KEY, "harbor:x:v1:second"] {
        let row = Row::good().key(key).deliver_after(1_796_108_400_000_i64).traceparent("00-a");
        assert_eq!(python.record(CLAUSES[0], &row), Ok(1));
        world.daemon(&format!(
            "INSERT INTO handoff_attempts
               (operation_key, number, kind, started_at, instance, request, started_steady, begun_fact)
             VALUES ('{key}', 1, 'deliver', 0, 'i', 'r', 0, 2), ('{key}', 2, 'deliver', 0, 'i', 'r', 0, 3);
             INSERT INTO handoff_audit (at, who, verb, before, after, previous_hash, hash)
             VALUES (0, 'ann', 'retry', '{{}}', '{{}}', 'p', 'h');"
        ));
    }
    world
}

/// Tries statements that must all be refused and leave everything as it was.
fn nothing_moves<S: AsRef<str>>(world: &World, statements: &[S], why: &str) {
    let before = world.contents();
    let mut python = world.python();
    for recursive in ["ON", "OFF"] {
        python.must(&format!("PRAGMA recursive_triggers = {recursive}"));
        for sql in statements {
            python.refused(sql.as_ref(), why);
            assert_eq!(world.contents(), before, "{}", sql.as_ref());
        }
    }
}

/// An assignment under every conflict clause that UPDATE knows.
fn updates(table: &str, assignments: &[&str]) -> Vec<String> {
    let verbs = ["", "OR ABORT", "OR IGNORE", "OR REPLACE", "OR FAIL", "OR ROLLBACK"];
    let update = |set: &&str| verbs.map(|verb| format!("UPDATE {verb} handoff_{table} SET {set}"));
    assignments.iter().flat_map(update).collect()
}

#[test]
fn an_approval_is_never_changed() {
    let sql = updates(
        "approvals",
        &[
            "operation_key = 'harbor:x:v1:third' WHERE receiver = 'crm'",
            "operation_key = 'harbor:x:v1:second' WHERE operation_key LIKE '%104'",
            "operation_key = CAST(operation_key AS BLOB)",
            "receiver = 'other'",
            "receiver = NULL",
            "payload = '{}'",
            "payload = payload || ' '",
            "payload = CAST(payload AS BLOB)",
            "payload = NULL",
            "approved_by = 'bob'",
            "deliver_after = NULL",
            "deliver_after = deliver_after + 1",
            "deliver_after = CAST(deliver_after AS TEXT)",
            "traceparent = NULL",
            "ordering_key = 'x'",
            "depends_on = 'x'",
            "(receiver, payload) = ('other', '{}')",
            "receiver = o.state FROM handoff_outbox AS o",
        ],
    );
    nothing_moves(&recorded(), &sql, "an approval is never changed");
}

#[test]
fn an_approval_is_never_deleted() {
    let sql = ["DELETE FROM handoff_approvals", "DELETE FROM handoff_approvals WHERE true"];
    nothing_moves(&recorded(), &sql, "an approval is never deleted");
}

#[test]
fn an_operation_is_never_deleted() {
    let sql = ["DELETE FROM handoff_outbox", "DELETE FROM handoff_outbox WHERE id = 1"];
    let world = recorded();
    nothing_moves(&world, &sql, "an operation is never deleted");
    world.daemon("UPDATE handoff_outbox SET state = 'sent'");
    nothing_moves(&world, &sql, "an operation is never deleted");
}

#[test]
fn key_receiver_number_and_time_of_an_operation_are_never_changed() {
    let sql = updates(
        "outbox",
        &[
            "operation_key = 'harbor:x:v1:third' WHERE id = 1",
            "operation_key = 'harbor:x:v1:second' WHERE id = 1",
            "receiver = 'other'",
            "recorded_at = recorded_at + 1",
            "id = id + 100",
            "id = 2 WHERE id = 1",
            // Other names of the same column, under which one row could push out another.
            "rowid = 2 WHERE id = 1",
            "oid = 2 WHERE id = 1",
            "_rowid_ = 2 WHERE id = 1",
            "RowID = 77 WHERE id = 1",
            "(state, \"rowid\") = ('sent', 2) WHERE id = 1",
        ],
    );
    nothing_moves(&recorded(), &sql, "key, receiver and time of recording are never changed");
}

#[test]
fn what_the_daemon_has_prepared_is_never_changed() {
    let world = recorded();
    world.daemon("UPDATE handoff_outbox SET payload = '{\"a\":1}', fingerprint = 'f' WHERE id = 1");
    world.daemon("UPDATE handoff_outbox SET fingerprint = 'g' WHERE id = 2");
    let sql = updates(
        "outbox",
        &[
            "payload = '{}'",
            "payload = NULL WHERE id = 1",
            "payload = '{}' WHERE id = 2",
            "fingerprint = 'h'",
            "fingerprint = NULL",
        ],
    );
    nothing_moves(&world, &sql, "the payload is never changed");
    world.daemon("UPDATE handoff_outbox SET state = 'sent'");
    nothing_moves(&world, &updates("outbox", &["payload = '{}'"]), "the payload is never changed");
    world.daemon("UPDATE handoff_outbox SET payload = NULL");
}

#[test]
fn no_operation_can_be_written_past_its_approval() {
    let mut sql = Vec::new();
    for (verb, tail) in CLAUSES {
        let tail = if tail.contains("UPDATE") {
            "ON CONFLICT (operation_key) DO UPDATE SET state = 'sent'"
        } else {
            tail
        };
        for (columns, values) in [
            ("operation_key, receiver, recorded_at", format!("'{KEY}', 'crm', 0")),
            ("operation_key, receiver, recorded_at", "'harbor:x:v1:new', 'crm', 0".to_owned()),
            ("operation_key, receiver", "'harbor:x:v1:new', 'crm'".to_owned()),
            ("id, operation_key, receiver, recorded_at", format!("1, '{KEY}', 'crm', 0")),
            ("id, operation_key, receiver, recorded_at", "1, 'harbor:x:v1:n', 'crm', 0".to_owned()),
            ("rowid, operation_key, receiver, recorded_at", format!("2, '{KEY}', 'crm', 0")),
            ("id, operation_key, receiver, recorded_at", format!("-1, '{KEY}', 'crm', 0")),
            ("operation_key", "NULL".to_owned()),
        ] {
            sql.push(format!("{verb} INTO handoff_outbox ({columns}) VALUES ({values}) {tail}"));
        }
    }
    nothing_moves(&recorded(), &sql, "record operations in handoff_approvals");
}

#[test]
fn a_payload_is_pruned_only_once_the_operation_is_final() {
    for state in ["pending", "blocked", "nonsense"] {
        let world = recorded();
        world.daemon(&format!("UPDATE handoff_outbox SET state = '{state}'"));
        let sql = updates("approvals", &["payload = NULL"]);
        nothing_moves(&world, &sql, "an approval is never changed");
    }
    for state in ["sent", "withdrawn"] {
        let world = recorded();
        world.daemon(&format!("UPDATE handoff_outbox SET state = '{state}'"));
        let mut python = world.python();
        assert_eq!(python.must("UPDATE handoff_approvals SET payload = NULL").changed, 2);
        let back = updates("approvals", &["payload = '{}'"]);
        nothing_moves(&world, &back, "an approval is never changed");
    }
}

#[test]
fn the_audit_is_only_added_to() {
    let world = recorded();
    let changes =
        updates("audit", &["who = 'bob'", "id = 99 WHERE id = 2", "rowid = 2 WHERE id = 1"]);
    nothing_moves(&world, &changes, "the audit is never changed");
    nothing_moves(&world, &["DELETE FROM handoff_audit"], "the audit is never deleted");
    let row = "(id, at, who, verb, before, after, previous_hash, hash)";
    for id in ["1", "2", "-1", "0"] {
        let inserts = CLAUSES.map(|(verb, tail)| {
            let tail = if tail.contains("UPDATE") { "ON CONFLICT DO UPDATE SET who = 'b'" } else { "" };
            format!(
                "{verb} INTO handoff_audit {row} VALUES ({id}, 0, 'bob', 'v', '', '', '', '') {tail}"
            )
        });
        nothing_moves(&world, &inserts, "the audit");
    }
    world.daemon(
        "INSERT INTO handoff_audit (at, who, verb, before, after, previous_hash, hash)
         VALUES (0, 'bob', 'withdraw', '', '', '', '')",
    );
}

#[test]
fn attempts_are_kept_until_the_operation_is_final() {
    let world = recorded();
    let columns = "(operation_key, number, kind, started_at, instance, request, started_steady, \
                   begun_fact)";
    let replaced = CLAUSES.map(|(verb, tail)| {
        let tail = if tail.contains("UPDATE") { "ON CONFLICT DO UPDATE SET kind = 'k'" } else { "" };
        format!(
            "{verb} INTO handoff_attempts {columns} VALUES ('{KEY}', 1, 'k', 1, 'j', 's', 0, 9) {tail}"
        )
    });
    let moved = updates(
        "attempts",
        &[
            "operation_key = 'gone'",
            "number = number + 100",
            "number = 2 WHERE number = 1",
            "operation_key = 'harbor:x:v1:second' WHERE operation_key <> 'harbor:x:v1:second'",
        ],
    );
    let deleted = ["DELETE FROM handoff_attempts", "DELETE FROM handoff_attempts WHERE number = 1"];
    for state in ["pending", "blocked", "nonsense"] {
        world.daemon(&format!("UPDATE handoff_outbox SET state = '{state}'"));
        nothing_moves(&world, &replaced, "an attempt is never replaced");
        nothing_moves(&world, &moved, "key and number of an attempt are never changed");
        nothing_moves(&world, &deleted, "the attempts of an unsettled operation are kept");
    }
    world.daemon(
        "UPDATE handoff_outbox SET state = 'sent' WHERE id = 1;
         UPDATE handoff_outbox SET state = 'withdrawn' WHERE id = 2;",
    );
    nothing_moves(&world, &replaced, "an attempt is never replaced");
    assert_eq!(world.python().must("DELETE FROM handoff_attempts").changed, 4);
}

#[test]
fn the_daemons_own_changes_go_through() {
    let world = recorded();
    world.daemon(
        "UPDATE handoff_outbox SET payload = '{}', fingerprint = 'f', state = 'blocked',
                attempts = 1, version = 2, due_at = NULL WHERE id = 1;
         UPDATE handoff_outbox SET fingerprint = 'f', state = 'sent', remote_id = '7' WHERE id = 1;
         UPDATE handoff_attempts SET outcome = 'applied', finished_at = 1;",
    );
    let payload: String = world
        .open()
        .query_row("SELECT payload FROM handoff_approvals WHERE operation_key = ?1", [KEY], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(payload, PAYLOAD);
}
