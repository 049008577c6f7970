//! The file is the application's: another SQLite works on it at full rate.

use super::{each_once, until_all_sent};
use crate::support::{Crm, Done, World, present};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

/// An application with marks, keys and triggers of its own: a case and its
/// follow-up in one transaction, again and again; `checkpoints` it makes itself.
const APPLICATION: &str = r#"
import sqlite3, sys, time
path, name, seconds, checkpoints = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute("PRAGMA synchronous = FULL")
db.execute("PRAGMA foreign_keys = ON")
end, n = time.monotonic() + seconds, 0
while time.monotonic() < end:
    n += 1
    case = f"{name}-{n}"
    key = f"harbor:create-followup:v1:{case}"
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO cases (id, title) VALUES (?, 'call')", (case,))
    db.execute(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)"
        " VALUES (?, 'crm', ?, 'ann')",
        (key, '{"case_id":"%s","title":"Call"}' % case))
    db.execute("INSERT INTO follow_ups VALUES (?, ?)", (case, key))
    db.execute("COMMIT")
    print(key, flush=True)
    if checkpoints == "yes" and n % 20 == 0:
        db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert db.execute("PRAGMA foreign_key_check").fetchall() == []
"#;

/// Takes the write lock for 40 ms, again and again.
const HOG: &str = r#"
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE counted SET n = n + 1")
    time.sleep(0.04)
    db.execute("COMMIT")
    time.sleep(0.02)
"#;

/// Opens it for reading alone and closes it, again and again.
const READER: &str = r#"
end=$(($(date +%s) + $2))
while [ "$(date +%s)" -lt "$end" ]; do
    sqlite3 -readonly -cmd '.timeout 60000' "$1" 'SELECT count(*) FROM cases' >/dev/null || exit 1
done
"#;

const TABLES: &str = "PRAGMA user_version = 42; PRAGMA application_id = 1234567;
    CREATE TABLE counted (n INTEGER);
    INSERT INTO counted VALUES (0);
    CREATE TABLE cases (id TEXT PRIMARY KEY, title TEXT NOT NULL);
    CREATE TABLE follow_ups (case_id TEXT REFERENCES cases, operation_key TEXT NOT NULL
      REFERENCES handoff_outbox (operation_key));
    CREATE TRIGGER counts AFTER INSERT ON cases BEGIN UPDATE counted SET n = n + 1; END;";

/// Seconds of full rate.
fn seconds() -> &'static str {
    if std::env::var_os("HANDOFF_TEST_LONG").is_some() { "20" } else { "3" }
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

/// Its output, once it has ended well.
fn ended(child: Child) -> String {
    Done::from(child.wait_with_output().expect("it ends")).ok().stdout
}

#[test]
fn an_application_with_an_old_sqlite_at_full_rate_and_the_daemon_leave_each_other_whole() {
    if !(present("python3") && present("sqlite3")) {
        return eprintln!("skipped: no python3 or no sqlite3");
    }
    let world = World::with(&Crm { contract: super::NO_PROMISE, ..Crm::default() }).migrated();
    world.open("app.db").execute_batch(TABLES).expect("an application");
    let path = world.path("app.db").display().to_string();
    let daemon = world.serving();
    let rate = seconds();
    let python = |script: &str, more: &[&str]| {
        start(Command::new("python3").args(["-c", script, &path]).args(more))
    };
    let writers =
        [python(APPLICATION, &["a", rate, "yes"]), python(APPLICATION, &["b", rate, "no"])];
    let others =
        [python(HOG, &[rate]), start(Command::new("sh").args(["-c", READER, "sh", &path, rate]))];
    let recorded: Vec<String> = writers.into_iter().map(ended).collect();
    others.into_iter().for_each(|other| drop(ended(other)));
    let keys: BTreeSet<String> =
        recorded.iter().flat_map(|out| out.lines()).map(str::to_owned).collect();
    println!("{} recorded", keys.len());
    assert!(keys.len() > 20, "there was load: {}", keys.len());
    until_all_sent(&world);
    each_once(&world, &keys.into_iter().collect::<Vec<_>>());
    for (sql, is) in [
        ("PRAGMA user_version", 42),
        ("PRAGMA application_id", 1_234_567),
        ("SELECT count(*) FROM pragma_foreign_key_check", 0),
        (
            "SELECT count(*) FROM cases LEFT JOIN follow_ups ON case_id = id
           WHERE operation_key IS NULL",
            0,
        ),
    ] {
        assert_eq!(world.value::<i64>(sql, []), is, "{sql}");
    }
    let trouble: Vec<_> = daemon.events("store_trouble");
    assert!(trouble.is_empty(), "{trouble:#?}");
    daemon.stop();
}

#[test]
fn a_second_daemon_changes_nothing_and_the_next_one_starts_where_the_first_was_killed() {
    let world = World::new().migrated();
    let mut first = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    let lock = || std::fs::read(world.path("app.db.daemon-lock")).expect("it is there");
    let (before, held) = (world.contents(), lock());
    world.run(&["run"]).exits(75);
    assert_eq!((world.contents(), lock()), (before, held));
    first.signal(Signal::SIGKILL);
    first.ended();
    let next = world.serving();
    assert!(next.events("store_unavailable").is_empty(), "it did not have to wait");
    let other = world.record("case-105");
    world.until_state(&other, "sent");
    next.stop();
}
