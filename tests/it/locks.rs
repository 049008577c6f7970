//! No transaction is open while something is waited for: other programs write
//! to the same file at once, with no patience at all.

use crate::support::place::text;
use crate::support::{Daemon, Site, Value, World, command, crm, fifo, key, release, told};
use handoff::outbox::state::{Effect, State};
use nix::sys::signal::Signal;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// Takes the write lock, writes and commits, and gives up at once where it has to wait.
const IN_PYTHON: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO cases VALUES (?)", (sys.argv[2],))
db.execute("COMMIT")
"#;

/// Two other programs write while the daemon is at `what`.
fn others_can_write(site: &Site, what: &str) {
    let python = ["-c", IN_PYTHON, &site.database().display().to_string(), what];
    let written = Command::new("python3").args(python).output().unwrap();
    assert!(written.status.success(), "{what}: {written:?}");
    let script = format!("BEGIN IMMEDIATE; INSERT INTO cases VALUES ('{what}'); COMMIT;");
    let written = Command::new("sqlite3")
        .args(["-cmd", ".timeout 0", "-bail"])
        .arg(site.database())
        .arg(script)
        .output()
        .unwrap();
    assert!(written.status.success(), "{what}: {written:?}");
    let count = format!("SELECT count(*) FROM cases WHERE id = '{what}'");
    assert_eq!(site.value(&count), Value::Integer(2));
    let open = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NULL";
    assert_eq!(site.value(open), Value::Integer(1), "the call is still under way");
}

#[test]
fn others_write_at_once_while_a_receiver_is_waited_for_and_during_the_drain() {
    let site = Site::new(&command(r#"mode = "none""#, ""));
    site.write(
        "deliver.sh",
        "echo started > FOLDER/started\nread line < FOLDER/go\necho '{\"remote_id\":\"7\"}'\n",
    );
    fifo(&site.path("started"));
    fifo(&site.path("go"));
    site.must(&["migrate"]);
    site.tamper("CREATE TABLE cases (id TEXT)");
    assert!(site.approve("case-104", "Call").status.success());
    let mut daemon = Daemon::start(&site);
    assert_eq!(told(&site.path("started")), "started\n");
    others_can_write(&site, "call");
    daemon.signal(Signal::SIGTERM);
    daemon.event("draining");
    others_can_write(&site, "drain");
    release(&site.path("go"));
    assert!(daemon.ended().success());
    let state = "SELECT state, remote_id FROM handoff_outbox";
    assert_eq!(site.rows(state), [[text("sent"), text("7")]], "{}", key("case-104"));
}

/// Holds the write lock for a while; the receiver tells when it has it.
fn hold_the_lock(site: &Site, lasting: Duration) -> mpsc::Receiver<()> {
    let (has, held) = mpsc::channel();
    let path = site.database();
    std::thread::spawn(move || {
        let db = rusqlite::Connection::open(path).expect("it opens");
        db.execute_batch("BEGIN IMMEDIATE").expect("it is free");
        has.send(()).expect("somebody waits");
        // Nobody sends: the time passes.
        let (_silent, never) = mpsc::channel::<()>();
        assert!(never.recv_timeout(lasting).is_err());
        db.execute_batch("COMMIT").expect("it ends");
    });
    held
}

/// A receiver that is waited for no longer than 300 ms.
fn impatient() -> String {
    crm(r#"mode = "none""#, "", "").replace("path =", "timeout = \"300ms\"\npath =")
}

#[tokio::test]
async fn an_attempt_whose_commit_was_held_up_is_not_begun_and_spends_nothing() {
    let mut world = World::new(&impatient()).await;
    let key = world.approve("case-104").await;
    let held = hold_the_lock(&world.site, Duration::from_millis(900));
    held.recv().expect("the lock is held");
    world.turn().await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.effect, row.facts.spent), (State::Pending, Effect::None, 0));
    assert_eq!(row.last_error.as_deref(), Some("not_taken: late_start"));
    assert_eq!(world.site.task_count(), 0, "the receiver was not called");
    world.pass_time(Duration::from_secs(10));
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    assert_eq!(world.site.task_count(), 1);
}

#[tokio::test]
async fn an_attempt_held_up_by_what_comes_before_its_claim_is_not_begun() {
    let mut world = World::new(&impatient()).await;
    let key = world.approve("case-104").await;
    world.site.tamper(
        "CREATE TRIGGER in_the_way BEFORE INSERT ON handoff_attempts BEGIN
           SELECT RAISE(ABORT, 'in the way'); END",
    );
    world.step_in_vain().await;
    world.site.tamper("DROP TRIGGER in_the_way");
    // The next pass has to look first for what may have begun.
    let held = hold_the_lock(&world.site, Duration::from_millis(900));
    held.recv().expect("the lock is held");
    world.turn().await;
    assert_eq!(world.row(&key).await.last_error.as_deref(), Some("not_taken: late_start"));
    assert_eq!(world.site.task_count(), 0, "the receiver was not called");
}
