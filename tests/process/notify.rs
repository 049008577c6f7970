//! What the service manager is told, seen from a socket of the test's own.

use crate::daemon::Daemon;
use crate::support::{Crm, World, until};
use nix::sys::signal::Signal;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A service manager: a socket, and what has come through it.
struct Manager {
    socket: UnixDatagram,
    told: Vec<String>,
}

impl Manager {
    fn new(world: &World) -> Self {
        let socket = UnixDatagram::bind(world.path("notify.sock")).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        Self { socket, told: Vec::new() }
    }

    fn start(&self, world: &World, arguments: &[&str], watchdog_ms: Option<u64>) -> Daemon {
        let mut command = world.command(&["run"]);
        command.args(arguments).env("NOTIFY_SOCKET", world.path("notify.sock"));
        if let Some(milliseconds) = watchdog_ms {
            command.env("WATCHDOG_USEC", (milliseconds * 1_000).to_string());
        }
        Daemon::start(&mut command)
    }

    /// Reads what has come.
    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
    }

    /// Waits for the first message with this line, and forgets what came before.
    #[track_caller]
    fn hears(&mut self, line: &str) -> String {
        until(line, || {
            self.read();
            let found = self.told.iter().position(|message| has(message, line))?;
            Some(self.told.drain(..=found).next_back().expect("it was found"))
        })
    }

    /// Whether a message that is here holds this line.
    fn has_heard(&mut self, line: &str) -> bool {
        self.read();
        self.told.iter().any(|message| has(message, line))
    }
}

fn has(message: &str, line: &str) -> bool {
    message.lines().any(|found| found == line)
}

/// The number after `NAME=` in a message.
fn number(message: &str, name: &str) -> u64 {
    let value = message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {message}"))
}

#[test]
fn readiness_is_told_only_once_the_daemon_serves() {
    let world = World::new();
    // The place of the database is missing: the daemon waits for it.
    let url = ["--set", "store.url=sqlite:later/app.db"];
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &url, None);
    daemon.event("store_unavailable");
    until("a status", || {
        manager.read();
        let waits = |message: &String| message.contains("STATUS=waiting for the database");
        manager.told.iter().any(waits).then_some(())
    });
    assert!(!manager.has_heard("READY=1"));
    std::fs::create_dir(world.path("later")).expect("the folder");
    let ready = manager.hears("READY=1");
    assert!(has(&ready, "STATUS=serving"), "{ready}");
    daemon.stop();
}

#[test]
fn a_start_that_makes_the_tables_for_long_asks_for_more_time() {
    let world = World::new();
    // The application's own file: while it writes, no table can be made.
    let db = world.open("app.db");
    db.execute_batch("CREATE TABLE cases (id INTEGER); PRAGMA journal_mode = WAL;")
        .expect("a file");
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &[], None);
    for _ in 0..2 {
        let more = until("more time", || {
            manager.read();
            let asks = |message: &String| message.contains("EXTEND_TIMEOUT_USEC");
            let found = manager.told.iter().position(asks)?;
            Some(manager.told.remove(found))
        });
        assert!(number(&more, "EXTEND_TIMEOUT_USEC") >= 10_000_000, "{more}");
    }
    assert!(!manager.has_heard("READY=1"));
    db.execute_batch("COMMIT").expect("the lock goes");
    manager.hears("READY=1");
    daemon.stop();
}

#[test]
fn an_abstract_socket_is_told_as_well() {
    let world = World::new();
    let name = format!("handoff-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    socket.set_nonblocking(true).expect("a socket that does not wait");
    let mut manager = Manager { socket, told: Vec::new() };
    let mut command = world.command(&["run"]);
    let daemon = Daemon::start(command.env("NOTIFY_SOCKET", format!("@{name}")));
    manager.hears("READY=1");
    daemon.stop();
    manager.hears("STOPPING=1");
}

#[test]
fn the_status_line_says_what_goes_on() {
    let world = World::new().migrated();
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &[], None);
    manager.hears("READY=1");
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    manager.hears("STATUS=0 in flight; since the start: 1 attempts, 1 sent, 0 blocked");
    daemon.stop();
}

#[test]
fn a_reload_is_told_from_its_beginning_to_its_end() {
    let world = World::new();
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &[], None);
    manager.hears("READY=1");
    let mut last = 0;
    for bad in [false, true] {
        if bad {
            world.write("handoff.toml", "no TOML");
        }
        daemon.signal(Signal::SIGHUP);
        let begins = manager.hears("RELOADING=1");
        let moment = number(&begins, "MONOTONIC_USEC");
        assert!(moment > last, "{begins}");
        last = moment;
        let ends = manager.hears("READY=1");
        assert_eq!(ends.contains("the new one was refused"), bad, "{ends}");
    }
    daemon.stop();
}

#[test]
fn a_stop_is_told_with_the_time_that_it_may_take() {
    let faults = r#"[{ on = "attempt", n = 1, fault = "slow", delay = "10m" }]"#;
    let world = World::with(&Crm { faults, timeout: "30m", ..Crm::default() }).migrated();
    let mut manager = Manager::new(&world);
    let mut daemon = manager.start(&world, &["--set", "worker.shutdown_grace=600s"], None);
    manager.hears("READY=1");
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    daemon.signal(Signal::SIGTERM);
    let stopping = manager.hears("STOPPING=1");
    assert!(number(&stopping, "EXTEND_TIMEOUT_USEC") > 600_000_000, "{stopping}");
    // A reload that comes now must not say that it serves.
    daemon.signal(Signal::SIGHUP);
    daemon.event("reload_refused");
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);
    assert!(!manager.has_heard("READY=1"), "{:?}", manager.told);
}

#[test]
fn the_watchdog_is_fed_where_there_is_one() {
    let world = World::new();
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &[], Some(2_000));
    manager.hears("READY=1");
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    daemon.stop();
    assert!(!manager.has_heard("WATCHDOG=trigger"));
}

#[test]
fn without_a_watchdog_none_is_fed() {
    let world = World::new();
    let mut manager = Manager::new(&world);
    let daemon = manager.start(&world, &[], None);
    manager.hears("READY=1");
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
    assert!(!manager.has_heard("WATCHDOG=1"));
}

#[test]
fn a_socket_that_is_gone_stops_nothing() {
    let world = World::new().migrated();
    let manager = Manager::new(&world);
    std::fs::remove_file(world.path("notify.sock")).expect("it was there");
    let daemon = manager.start(&world, &[], Some(2_000));
    daemon.event("started");
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    daemon.stop();
}
