//! A reader that keeps the log of the database from being moved into it.

use super::{each_once, record_many, until_all_sent};
use crate::support::{Crm, World, until};

/// Beyond the documented limit of 64 MiB.
const LARGE: u64 = 70 << 20;
const LIMIT: u64 = 64 << 20;

#[test]
fn a_log_that_a_reader_pins_is_told_of_and_shrinks_once_the_reader_has_gone() {
    let world = World::with(&Crm { contract: super::NO_PROMISE, ..Crm::default() }).migrated();
    let db = world.open("app.db");
    db.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE blobs (b BLOB)").expect("a table");
    let log = || std::fs::metadata(world.path("app.db-wal")).map_or(0, |log| log.len());
    let daemon = world.serving();
    let reader = world.open("app.db");
    reader.execute_batch("BEGIN; SELECT count(*) FROM handoff_outbox").expect("it reads");
    while log() < LARGE {
        db.execute("INSERT INTO blobs VALUES (zeroblob(4000000))", []).expect("there is room");
    }
    let keys = record_many(&db, 100);
    until_all_sent(&world);
    let large = daemon.event("wal_large");
    assert!(large["wal_bytes"].as_u64().is_some_and(|bytes| bytes > LIMIT), "{large}");
    assert!(log() >= LARGE, "the reader is in the way");
    // What it sees is as it was.
    let seen: i64 = reader
        .query_row("SELECT count(*) FROM handoff_outbox", [], |row| row.get(0))
        .expect("it reads");
    assert_eq!(seen, 0);
    reader.execute_batch("COMMIT").expect("it goes");
    // Nobody commits any more, and it shrinks all the same.
    until("the log to be small", || (log() <= LIMIT).then_some(()));
    daemon.event("wal_shrunk");
    assert_eq!(daemon.events("wal_large").len(), 1, "{:#?}", daemon.events("wal_large"));
    each_once(&world, &keys);
    daemon.stop();
}
