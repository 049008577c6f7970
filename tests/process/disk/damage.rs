//! A damaged database: at the start it is refused and left alone; one that turns
//! out to be damaged later ends the daemon, which says what it could not store.

use super::{NO_PROMISE, SLOW, record_many, until_begun};
use crate::support::{Crm, World, until};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;

/// Moves everything from the log into the database; gives the root page of a table.
fn settled(world: &World, table: &str) -> u64 {
    let db = world.open("app.db");
    let one = |sql: &str| -> i64 {
        db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    let moved = || one("PRAGMA wal_checkpoint(TRUNCATE)");
    until("the log to be moved", || (moved() == 0).then_some(()));
    assert_eq!(one("PRAGMA page_size"), 4096);
    let root = one(&format!("SELECT rootpage FROM sqlite_master WHERE name = '{table}'"));
    u64::try_from(root).expect("a page")
}

fn file(world: &World) -> File {
    let file = OpenOptions::new().read(true).write(true).open(world.path("app.db"));
    file.expect("it is ours")
}

/// Overwrites a page as a failing disk would, and has everybody look at it anew.
fn overwrite(world: &World, page: u64) {
    let bytes = [0xAB_u8; PAGE as usize];
    file(world).write_all_at(&bytes, (page - 1) * PAGE).expect("it is overwritten");
    world.open("app.db").execute_batch("CREATE TABLE look (again INTEGER)").expect("a table");
}

#[test]
fn a_database_that_turns_out_to_be_damaged_ends_the_daemon_and_is_left_alone() {
    let world = World::new().migrated();
    let mut daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    let root = settled(&world, "handoff_outbox_due");
    overwrite(&world, root);
    daemon.exits(78);
    let unusable = daemon.event("store_unusable");
    assert!(
        unusable["error"].as_str().is_some_and(|error| error.contains("damaged")),
        "{unusable}"
    );
    let before = std::fs::read(world.path("app.db")).expect("it is there");
    world.run(&["run"]).exits(78).says("damaged").says("restore a backup");
    let after = std::fs::read(world.path("app.db")).expect("it is there");
    assert!(before == after, "it was changed");
}

/// The rightmost leaf below a page of a table.
fn last_leaf(world: &World, root: u64) -> u64 {
    let mut head = [0_u8; 12];
    file(world).read_exact_at(&mut head, (root - 1) * PAGE).expect("a page");
    assert!(matches!(head[0], 2 | 5), "it has leaves below it: {head:?}");
    u64::from(u32::from_be_bytes([head[8], head[9], head[10], head[11]]))
}

#[test]
fn of_the_answers_that_meet_damage_each_is_stored_or_logged_with_its_receipt() {
    let faults = SLOW.replace("2500ms", "4s");
    let crm = Crm { contract: NO_PROMISE, faults: &faults, ..Crm::default() };
    let world = World::with(&crm).migrated();
    let mut daemon = world.serving();
    let keys = record_many(&world.open("app.db"), 64);
    until_begun(&world, 64);
    let root = settled(&world, "handoff_attempts");
    overwrite(&world, last_leaf(&world, root));
    daemon.exits(78);
    daemon.event("store_unusable");
    let named = |event: &str| -> BTreeSet<String> {
        let records = daemon.events(event).into_iter();
        records
            .map(|record| {
                assert!(record["receipt"].is_string(), "{record}");
                record["operation.key"].as_str().expect("a key").to_owned()
            })
            .collect()
    };
    // The log counts the sent ones; what is lost stands nowhere else.
    let lost = named("outcome_not_stored");
    let stored: BTreeSet<String> =
        keys.iter().filter(|key| world.state(key) == "sent").cloned().collect();
    println!("{} stored, {} logged", stored.len(), lost.len());
    assert!(!stored.is_empty() && !lost.is_empty(), "{} {}", stored.len(), lost.len());
    assert!(stored.is_disjoint(&lost));
    assert_eq!(stored.union(&lost).cloned().collect::<BTreeSet<_>>(), keys.into_iter().collect());
    for key in stored.iter().chain(&lost) {
        assert_eq!(world.tasks(key), 1, "{key}");
    }
}

#[test]
fn an_empty_file_is_a_new_database_unless_its_log_is_there() {
    let world = World::new();
    world.write("app.db", "");
    world.serving().stop();
    world.record("case-104");

    // A log without its database: SQLite would throw it away.
    let world = World::new().migrated();
    let mut daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    daemon.ended();
    let log = std::fs::read(world.path("app.db-wal")).expect("it is there");
    assert!(!log.is_empty());
    for remove in [false, true] {
        if remove {
            std::fs::remove_file(world.path("app.db")).expect("it is there");
        } else {
            world.write("app.db", "");
        }
        for command in [&["run"][..], &["migrate"], &["list"]] {
            world.run(command).exits(78).says("app.db-wal").says("restore a backup");
        }
        assert_eq!(std::fs::read(world.path("app.db-wal")).expect("it is there"), log);
        assert_eq!(world.path("app.db").exists(), !remove);
    }
}

#[test]
fn a_database_that_is_replaced_under_the_daemon_ends_it() {
    for replace in [true, false] {
        let world = World::new().migrated();
        let mut daemon = world.serving();
        std::fs::rename(world.path("app.db"), world.path("old.db")).expect("it is there");
        if replace {
            std::fs::copy(world.path("old.db"), world.path("app.db")).expect("it is there");
        }
        daemon.exits(78);
        let unusable = daemon.event("store_unusable");
        let error = unusable["error"].as_str().unwrap_or_default();
        assert!(error.contains("removed or replaced"), "{unusable}");
        assert_eq!(world.path("app.db").exists(), replace);
    }
}
