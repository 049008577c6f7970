//! The wall clock is set, by an hour and by a year, and the process is stopped
//! and goes on: nothing comes early, nothing is stuck, each due row is done once.

use crate::daemon::Daemon;
use crate::support::{World, pause, present, until, until_or};
use handoff::clock::wall;
use nix::sys::signal::Signal;
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread::scope;
use std::time::Duration;

const HOUR: i64 = 3_600;
const YEAR: i64 = 365 * 24 * HOUR;
const STEPS: [i64; 4] = [HOUR, -HOUR, YEAR, -YEAR];
/// What the CRM asks for at the first attempt of each operation.
const PAUSE: Duration = Duration::from_secs(6);

/// `crm` wants a pause before it takes anything; `slow` takes one call at a time,
/// and a while for each.
const RECEIVERS: &str = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
timeout = "20s"
faults = [{ on = "attempt", n = 1, fault = "throttle", retry_after = "6s" }]
contract = { mode = "idempotency_key", window = "forever" }
retry = { initial = "1ms" }
[receivers.slow]
kind = "simulated"
path = "crm.db"
timeout = "20s"
concurrency = 1
faults = [{ on = "every", fault = "slow", delay = "1500ms" }]
contract = { mode = "idempotency_key", window = "forever" }
retry = { initial = "1ms" }
[operations.crm]
receiver = "crm"
subject = "case_id"
schema = "builtin:create-followup"
[operations.slow]
receiver = "slow"
subject = "case_id"
schema = "builtin:create-followup"
"#;

/// Where the wall clock can be set for the programs that run in it.
struct Machine {
    world: World,
    library: PathBuf,
    /// Programs that the library has put something into shared memory for.
    started: Mutex<Vec<u32>>,
}

impl Machine {
    /// `None` where the library is missing, which fails a run in CI.
    fn new(receivers: &str) -> Option<Self> {
        if !present("faketime") || !present("sqlite3") {
            return None;
        }
        let libraries = std::fs::read_dir("/usr/lib").expect("a folder of libraries");
        let library = libraries
            .map(|folder| folder.expect("a folder").path().join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.exists())
            .expect("the package faketime brings its library");
        let world = World::configured(receivers).migrated();
        let machine = Self { world, library, started: Mutex::default() };
        machine.set(0);
        Some(machine)
    }

    /// Sets the clock to so many seconds ahead of the true one. The time since
    /// boot, and the clock that timers run by, go on as they do.
    fn set(&self, ahead: i64) {
        self.world.write("clock.new", format!("{ahead:+}\n"));
        let [new, now] = ["clock.new", "clock"].map(|name| self.world.path(name));
        std::fs::rename(new, now).expect("the clock is set at one stroke");
    }

    fn under<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.world.path("clock"))
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1")
    }

    fn serving(&self) -> Daemon {
        let daemon = Daemon::start(self.under(&mut self.world.command(&["run"])));
        self.started.lock().expect("no test has panicked with it").push(daemon.pid());
        daemon.event("started");
        daemon
    }

    /// Records as an application on this machine would; `after` is in seconds.
    fn record(&self, kind: &str, case: &str, after: Option<i64>) -> String {
        let key = format!("harbor:{kind}:v1:{case}");
        let after = after.map_or("NULL".to_owned(), |after| {
            format!("(CAST(strftime('%s', 'now') AS INTEGER) + {after}) * 1000")
        });
        let sql = format!(
            "PRAGMA wal_autocheckpoint = 0;
             INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by,
                                            deliver_after)
             VALUES ('{key}', '{kind}', '{{\"case_id\":\"{case}\",\"title\":\"Call\"}}', 'ann',
                     {after})"
        );
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-cmd", ".timeout 20000"]).arg(self.world.path("app.db")).arg(sql);
        let output = self.under(&mut command).output().expect("sqlite3 starts");
        assert!(output.status.success(), "{output:?}");
        key
    }

    fn attempts(&self, key: &str) -> i64 {
        let sql = "SELECT count(*) FROM handoff_attempts WHERE operation_key = ?1";
        self.world.value(sql, [key])
    }

    fn until_sent(&self, key: &str) {
        until_or(
            || (self.world.state(key) == "sent").then_some(()),
            || format!("{key} to be sent: {}", self.world.run(&["explain", key]).stdout),
        );
        assert_eq!(self.world.tasks(key), 1, "{key}");
    }

    fn ended(&self, key: &str, number: i64) -> bool {
        let sql = "SELECT count(*) FROM handoff_attempts
                    WHERE operation_key = ?1 AND number = ?2 AND outcome IS NOT NULL";
        self.world.value::<i64>(sql, (key, number)) == 1
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The library tidies up after programs that end, not after those that are killed.
        for pid in self.started.get_mut().iter().flat_map(|started| started.iter()) {
            for name in ["sem.faketime_sem_", "faketime_shm_"] {
                drop(std::fs::remove_file(format!("/dev/shm/{name}{pid}")));
            }
        }
    }
}

/// Does the same for all of them at once: most of it is waiting.
fn for_each<T: Copy + Debug + Send>(all: &[T], test: impl Fn(T) + Sync) {
    scope(|scope| {
        let test = &test;
        let tests: Vec<_> = all.iter().map(|&one| (one, scope.spawn(move || test(one)))).collect();
        for (one, test) in tests {
            assert!(test.join().is_ok(), "with {one:?}");
        }
    });
}

/// The daemon on the other side of the step.
fn across(machine: &Machine, daemon: Daemon, step: i64, restarted: Option<Signal>) -> Daemon {
    let daemon = match restarted {
        None => {
            machine.set(step);
            daemon
        }
        Some(signal) => {
            let mut daemon = daemon;
            daemon.signal(signal);
            daemon.ended();
            machine.set(step);
            machine.serving()
        }
    };
    let fault = daemon.event("clock_fault");
    let seen = fault["step_ms"].as_i64().expect("a number") / 1000;
    assert!((seen - step).abs() <= 2, "{fault}");
    daemon
}

fn a_step(step: i64, restarted: Option<Signal>) {
    let Some(machine) = Machine::new(RECEIVERS) else { return };
    let daemon = machine.serving();
    let later = machine.record("crm", "later", Some(HOUR / 2));
    let under_way = machine.record("slow", "under-way", None);
    machine.world.until_attempts(&under_way, 1);
    let queued = machine.record("slow", "queued", None);
    // The tester's own clock is not set.
    let begun = wall();
    let paused = machine.record("crm", "paused", None);
    until("the CRM to ask for a pause", || machine.ended(&paused, 1).then_some(()));
    let daemon = across(&machine, daemon, step, restarted);
    let fresh = machine.record("crm", "fresh", None);
    until("the pause to end", || (machine.attempts(&paused) == 2).then_some(()));
    let lasted = wall().since(begun);
    assert!(lasted >= PAUSE, "the pause lasted {lasted:?}");
    for key in [&paused, &under_way, &queued, &fresh] {
        machine.until_sent(key);
    }
    if step < 0 {
        assert_eq!((machine.attempts(&later), machine.world.state(&later)), (0, "pending".into()));
        machine.set(HOUR / 2 + 1);
    }
    machine.until_sent(&later);
    for key in [&paused, &fresh, &later] {
        assert_eq!(machine.attempts(key), 2, "{key}");
    }
    assert_eq!(machine.attempts(&queued), 1);
    daemon.stop();
}

#[test]
fn a_clock_set_while_the_daemon_runs_makes_nothing_early_and_keeps_nothing_waiting() {
    for_each(&STEPS, |step| a_step(step, None));
}

#[test]
fn a_clock_set_between_stop_and_start_makes_nothing_early_and_keeps_nothing_waiting() {
    for_each(&STEPS, |step| a_step(step, Some(Signal::SIGTERM)));
}

#[test]
fn a_clock_set_between_kill_and_start_makes_nothing_early_and_keeps_nothing_waiting() {
    for_each(&STEPS, |step| a_step(step, Some(Signal::SIGKILL)));
}

/// A CRM that loses its first reply and remembers a key for so long; the repeat
/// comes after half of the pause at least.
fn forgetful(window: &str, pause: &str) -> String {
    format!(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\ntimeout = \"500ms\"\n\
         faults = [{{ on = \"attempt\", n = 1, fault = \"lose_reply\" }}]\n\
         contract = {{ mode = \"idempotency_key\", window = \"{window}\" }}\n\
         retry = {{ initial = \"{pause}\", multiplier = 1.0, max_interval = \"{pause}\" }}\n\
         [operations.crm]\nreceiver = \"crm\"\nsubject = \"case_id\"\n\
         schema = \"builtin:create-followup\"\n"
    )
}

/// What becomes of a lost reply if the clock is set before the repeat.
fn lost_reply(window: &str, pause: &str, step: i64, restarted: Option<Signal>) -> Option<String> {
    let machine = Machine::new(&forgetful(window, pause))?;
    let daemon = machine.serving();
    let key = machine.record("crm", "case-104", None);
    until("the reply to be lost", || machine.ended(&key, 1).then_some(()));
    let daemon = across(&machine, daemon, step, restarted);
    let settled = until("it to be settled", || {
        let state = machine.world.state(&key);
        (state != "pending").then_some(state)
    });
    assert_eq!(machine.world.tasks(&key), 1);
    daemon.stop();
    let reason = "SELECT coalesce(blocked_reason, state) FROM handoff_outbox";
    let reason: String = machine.world.value(reason, []);
    assert_eq!(machine.attempts(&key), if settled == "sent" { 2 } else { 1 }, "{reason}");
    Some(reason)
}

#[test]
fn a_clock_set_back_lengthens_no_window() {
    let ways = [None, Some(Signal::SIGTERM), Some(Signal::SIGKILL)];
    let cases = ways.map(|restarted| [(-HOUR, restarted), (-YEAR, restarted)]);
    for_each(&cases.concat(), |(step, restarted)| {
        let Some(reason) = lost_reply("2s", "4s", step, restarted) else { return };
        assert_eq!(reason, "window_closed");
        // Nor does it close one that is open.
        let reason = lost_reply("10m", "2s", step, restarted);
        assert_eq!(reason.as_deref(), Some("sent"));
    });
}

/// Nobody can tell that from a machine that was paused for an hour.
#[test]
fn a_clock_set_forward_closes_the_windows_that_it_passes() {
    let (closed, sent) = ("window_closed", "sent");
    let cases =
        [(HOUR, "59m", closed), (HOUR, "2h", sent), (YEAR, "364d", closed), (YEAR, "366d", sent)];
    for_each(&cases, |(step, window, expected)| {
        let Some(reason) = lost_reply(window, "8s", step, None) else { return };
        assert_eq!(reason, expected);
    });
}

/// How long a process is stopped: two minutes, if there is time for it.
fn stop_length() -> Duration {
    let long = std::env::var_os("HANDOFF_TEST_LONG").is_some();
    Duration::from_secs(if long { 120 } else { 6 })
}

/// A receiver whose reply takes a while, with an operation type of its name.
fn answering(name: &str, after: &str, timeout: &str, contract: &str) -> String {
    format!(
        "[receivers.{name}]\nkind = \"simulated\"\npath = \"crm.db\"\ntimeout = \"{timeout}\"\n\
         faults = [{{ on = \"attempt\", n = 1, fault = \"slow\", delay = \"{after}\" }}]\n\
         contract = {contract}\nretry = {{ initial = \"3s\" }}\n\
         [operations.{name}]\nreceiver = \"{name}\"\nsubject = \"case_id\"\n\
         schema = \"builtin:create-followup\"\n"
    )
}

fn record(world: &World, kind: &str, case: &str) -> String {
    let key = format!("harbor:{kind}:v1:{case}");
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, ?2, json_object('case_id', ?3, 'title', 'Call'), 'ann')";
    world.open("app.db").execute(sql, (&key, kind, case)).expect("it is recorded");
    key
}

#[test]
fn a_process_that_is_stopped_and_goes_on_does_each_due_row_once() {
    let keyed = "{ mode = \"idempotency_key\", window = \"forever\" }";
    let receivers = [
        answering("patient", "1s", "10m", keyed),
        answering("hasty", "3s", "2s", keyed),
        answering("blind", "3s", "2s", "{ mode = \"none\" }"),
        answering("quick", "0s", "2s", keyed),
    ];
    let world = World::configured(&receivers.concat()).migrated();
    let daemon = world.serving();
    let calls = ["patient", "hasty", "blind"].map(|kind| record(&world, kind, "under-way"));
    for key in &calls {
        until("the CRM to have it", || (world.tasks(key) == 1).then_some(()));
    }
    daemon.signal(Signal::SIGSTOP);
    let quick: Vec<_> = (0..20).map(|n| record(&world, "quick", &format!("due-{n}"))).collect();
    pause(stop_length());
    let begun = "SELECT count(*) FROM handoff_attempts";
    assert_eq!(world.value::<i64>(begun, []), 3, "it was stopped");
    daemon.signal(Signal::SIGCONT);
    until("nothing to be pending", || {
        let open = "SELECT count(*) FROM handoff_outbox WHERE state = 'pending'";
        (world.value::<i64>(open, []) == 0).then_some(())
    });
    let stands = |key: &String| -> String {
        let sql = "SELECT concat_ws(' ', state, blocked_reason) FROM handoff_outbox
                    WHERE operation_key = ?1";
        assert_eq!(world.tasks(key), 1, "{key}");
        world.value(sql, [key])
    };
    let [patient, hasty, blind] = &calls;
    for key in quick.iter().chain([patient, hasty]) {
        assert_eq!(stands(key), "sent", "{key}");
    }
    // Its time was over when it went on, and so was the answer there.
    assert!(["sent", "blocked ambiguous"].contains(&stands(blind).as_str()), "{}", stands(blind));
    assert!(daemon.events("clock_fault").is_empty(), "{:#?}", daemon.lines());
    daemon.stop();
    let outcomes = "SELECT group_concat(outcome, ' ') FROM handoff_attempts
                     WHERE operation_key = ?1";
    assert_eq!(world.value::<String>(outcomes, [patient]), "applied");
    let hasty: String = world.value(outcomes, [hasty]);
    assert!(["applied", "unknown applied"].contains(&hasty.as_str()), "{hasty}");
}
