//! The database sets the time; the application can only ask for a later delivery.

use crate::support::{CLAUSES, Row, World};
use handoff::clock::wall;

/// `recorded_at` and `due_at` of the only operation.
fn times(world: &World) -> (i64, i64) {
    world
        .open()
        .query_row("SELECT recorded_at, due_at FROM handoff_outbox", [], |row| row.try_into())
        .unwrap()
}

#[test]
fn an_operation_is_recorded_now_and_due_at_once() {
    for clause in CLAUSES {
        let world = World::new();
        let mut python = world.python();
        let before = wall().as_millis();
        assert_eq!(python.record(clause, &Row::good()), Ok(1), "{clause:?}");
        let after = wall().as_millis();
        let (recorded_at, due_at) = times(&world);
        // SQLite's clock is read as days and may be a millisecond off.
        assert!((before - 1..=after + 1).contains(&recorded_at), "{before} {recorded_at} {after}");
        assert_eq!(due_at, recorded_at, "{clause:?}");
    }
}

#[test]
fn an_operation_is_due_at_its_own_time_if_that_is_later() {
    let tomorrow = wall().as_millis() + 86_400_000;
    for (asked, expected) in [(tomorrow, Some(tomorrow)), (100_000_000_000, None)] {
        let world = World::new();
        let mut python = world.python();
        assert_eq!(python.record(CLAUSES[0], &Row::good().deliver_after(asked)), Ok(1));
        let (recorded_at, due_at) = times(&world);
        assert_eq!(due_at, expected.unwrap_or(recorded_at), "{asked}");
    }
}

#[test]
fn operations_are_numbered_in_the_order_in_which_they_are_recorded() {
    let world = World::new();
    let mut python = world.python();
    for number in [3, 1, 2] {
        python.must("BEGIN IMMEDIATE");
        let passing = Row::good().key("harbor:x:v1:passing");
        assert_eq!(python.record(CLAUSES[0], &passing), Ok(1));
        python.must("ROLLBACK");
        let row = Row::good().key(format!("harbor:x:v1:{number}"));
        assert_eq!(python.record(CLAUSES[0], &row), Ok(1));
    }
    let db = world.open();
    let mut read = db.prepare("SELECT operation_key FROM handoff_outbox ORDER BY id").unwrap();
    let keys: Vec<String> =
        read.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(keys, ["harbor:x:v1:3", "harbor:x:v1:1", "harbor:x:v1:2"]);
}
