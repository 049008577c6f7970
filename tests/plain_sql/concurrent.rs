//! Many processes at once under one key.

use crate::support::{Python, Row, World};
use serde_json::json;

const WRITERS: usize = 20;

/// Twenty processes, ready and waiting, and what each got for its row. All are
/// asked before any answer is read.
fn all_at_once(world: &World, row: impl Fn(usize) -> Row) -> Vec<Result<i64, String>> {
    let mut writers: Vec<Python> = (0..WRITERS).map(|_| world.python()).collect();
    for (number, writer) in writers.iter_mut().enumerate() {
        writer.ask_to_record(&row(number));
    }
    writers.iter_mut().map(|writer| Ok(writer.answer()?.changed)).collect()
}

#[test]
fn writers_of_the_same_content_get_one_row_and_no_error() {
    for journal in ["WAL", "DELETE"] {
        let world = World::prepared(&format!("PRAGMA journal_mode = {journal}"));
        let outcomes = all_at_once(&world, |_| Row::good());
        let changed: Result<Vec<i64>, String> = outcomes.into_iter().collect();
        assert_eq!(changed.map(|all| all.iter().sum()), Ok(1), "{journal}");
        assert_eq!(world.counts(), (1, 1), "{journal}");
    }
}

#[test]
fn of_writers_with_different_content_one_wins_and_the_others_get_a_conflict() {
    for journal in ["WAL", "DELETE"] {
        let world = World::prepared(&format!("PRAGMA journal_mode = {journal}"));
        let payload = |number: usize| format!("{{\"n\":{number}}}");
        let outcomes = all_at_once(&world, |number| Row::good().payload(payload(number)));
        let winners: Vec<usize> =
            (0..WRITERS).filter(|number| outcomes[*number] == Ok(1)).collect();
        let &[winner] = winners.as_slice() else { panic!("{journal}: {outcomes:?}") };
        for (number, outcome) in outcomes.iter().enumerate() {
            let conflict = outcome.as_ref().is_err_and(|e| e.starts_with("handoff: conflict"));
            assert!(number == winner || conflict, "{journal}: {outcome:?}");
        }
        let stored: String = world
            .open()
            .query_row("SELECT payload FROM handoff_approvals", [], |row| row.get(0))
            .unwrap();
        assert_eq!(stored, payload(winner), "{journal}");
    }
}

#[test]
fn a_transaction_that_read_before_is_refused_rather_than_blind() {
    let world = World::new();
    let mut late = world.python();
    late.must("BEGIN");
    assert_eq!(late.must("SELECT count(*) FROM handoff_approvals").rows, json!([[0]]));
    assert_eq!(world.python().record(("INSERT", ""), &Row::good()), Ok(1));
    // It cannot see the other's row, so it must not write under the same key.
    let refused = late.record(("INSERT OR IGNORE", ""), &Row::good().payload("{}")).unwrap_err();
    assert!(refused.contains("locked"), "{refused}");
    late.must("ROLLBACK");
    let refused = late.record(("INSERT OR IGNORE", ""), &Row::good().payload("{}")).unwrap_err();
    assert!(refused.starts_with("handoff: conflict"), "{refused}");
    assert_eq!(world.counts(), (1, 1));
}
