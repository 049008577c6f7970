//! How much the log holds while a receiver is down.

use crate::support::{Crm, World, record, until};
use std::collections::BTreeMap;

/// Enough that a record for each of them would be a flood.
const OPERATIONS: usize = 600;

#[test]
fn a_receiver_that_is_down_does_not_flood_the_log_and_the_database_holds_each_attempt() {
    let faults = r#"[{ on = "every", fault = "unreachable" }]"#;
    let retry = "initial = \"300ms\"\nmax_interval = \"1s\"\nmax_attempts = 10000";
    let world = World::with(&Crm { faults, retry, ..Crm::default() }).migrated();
    let mut db = world.open("app.db");
    let all = db.transaction().expect("a transaction");
    let keys: Vec<String> = (0..OPERATIONS).map(|n| record(&all, &format!("case-{n}"))).collect();
    all.commit().expect("they are recorded");
    let daemon = world.serving();
    let twice = "SELECT count(*) FROM (SELECT 1 FROM handoff_attempts WHERE outcome = 'not_taken'
                  GROUP BY operation_key HAVING count(*) > 1)";
    let all = i64::try_from(OPERATIONS).expect("a small number");
    until("two attempts of each", || (world.value::<i64>(twice, []) == all).then_some(()));
    let log = daemon.stop();
    let mut count = BTreeMap::<String, u64>::new();
    for line in &log {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record is JSON");
        let event = record["event"].as_str().expect("it has a name").to_owned();
        *count.entry(event).or_default() += record["count"].as_u64().unwrap_or(1);
    }
    assert!(log.len() < OPERATIONS / 2, "{} lines: {count:?}", log.len());
    let ended = count["attempt_ended"] + count["attempts_repeated"];
    let stored: i64 = world.value("SELECT count(*) FROM handoff_attempts", []);
    assert_eq!(Ok(ended), u64::try_from(stored), "each attempt is written or counted");
    let shown = world.run(&["show", &keys[OPERATIONS - 1], "--json"]).ok().json();
    assert!(shown["history"].as_array().is_some_and(|all| all.len() > 1), "{shown}");
}
