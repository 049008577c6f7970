//! Killed and stopped at random moments under load: nothing is lost, and nothing
//! is done twice where the contract, or our own restraint, excludes it.

mod ledger;

use crate::daemon::Daemon;
use crate::support::{Running, World, pause, present, until};
use handoff::jitter::Seed;
use ledger::Ledger;
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Receivers, each with an operation type of its name and a CRM of its own: what
/// the contract says, and what the CRM does beyond it.
pub(crate) const RECEIVERS: [(&str, &str, &str); 4] = [
    ("keyed", "mode = \"idempotency_key\"\nwindow = \"forever\"", "{}"),
    ("proved", "mode = \"create_only\"\nexists = \"proof\"", "{}"),
    ("vague", "mode = \"create_only\"\nexists = \"ask\"", "{}"),
    ("blind", "mode = \"none\"", "{ unique = false }"),
];

/// Everything that may go wrong and still keeps the CRM's promise.
const FAULTS: &str = r#"[
  { on = "random", rate = 0.15, fault = "lose_reply" },
  { on = "random", rate = 0.1, fault = "server_error" },
  { on = "random", rate = 0.1, fault = "unreachable" },
  { on = "random", rate = 0.05, fault = "throttle", retry_after = "10ms" },
  { on = "random", rate = 0.02, fault = "reject" },
  { on = "random", rate = 0.05, fault = "malformed" },
  { on = "random", rate = 0.05, fault = "late", delay = "40ms" },
  { on = "random", rate = 0.2, fault = "slow", delay = "30ms" },
  { on = "random", rate = 0.3, fault = "slow", delay = "150ms" },
]"#;
/// The longest that a daemon lives, in milliseconds: its start, and some work.
const LIFE: u64 = 400;
/// From so many rounds on it would be no chance if no kill met a call under way.
const MANY: u64 = 100;

/// Draws that can be repeated.
struct Chance {
    seed: Seed,
    drawn: u64,
}

impl Chance {
    /// A number below the limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.drawn += 1;
        let drawn = self.seed.unit("kill", self.drawn);
        (drawn * limit as f64) as u64
    }

    fn pause(&mut self, below_ms: u64) {
        pause(Duration::from_millis(self.below(below_ms)));
    }
}

#[test]
fn a_daemon_killed_at_random_moments_loses_nothing_and_does_nothing_twice() {
    if !present("python3") {
        return;
    }
    let seed = number("HANDOFF_TEST_SEED").unwrap_or_else(|| Seed::draw().0);
    let rounds = number("HANDOFF_TEST_ROUNDS").unwrap_or(300);
    // Shown by the test harness if the test fails.
    println!("HANDOFF_TEST_SEED={seed} HANDOFF_TEST_ROUNDS={rounds}");
    let world = World::configured(&configuration()).migrated();
    let own = "CREATE TABLE approved_here (operation_key TEXT PRIMARY KEY)";
    world.open("app.db").execute_batch(own).expect("a table of the application");
    let mut logs = rounds_of_kills(&world, seed, rounds);
    logs.extend(settle(&world));
    for line in &logs {
        assert!(!line.contains("panicked"), "{line}");
    }
    let ledger = Ledger::open(&world);
    ledger.check();
    for (receiver, _, _) in RECEIVERS {
        let found = ledger.found(receiver);
        println!("{receiver}: {found:?}");
        assert!(found.operations > i64::try_from(rounds / 4).unwrap(), "{receiver}: no load");
        let met = found.interrupted > 0 && found.cut_off > 0;
        assert!(met || rounds < MANY, "no kill met a call of {receiver} under way");
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

fn configuration() -> String {
    let mut text = String::new();
    for (name, contract, behaviour) in RECEIVERS {
        write!(
            text,
            "[receivers.{name}]\nkind = \"simulated\"\npath = \"{name}.db\"\ntimeout = \"30s\"\n\
             behaviour = {behaviour}\nfaults = {FAULTS}\n\
             circuit_breaker = {{ open = \"20ms\", max_open = \"80ms\" }}\n\
             [receivers.{name}.contract]\n{contract}\n\
             [receivers.{name}.retry]\ninitial = \"5ms\"\nmax_interval = \"40ms\"\n\
             max_attempts = 10000\n\
             [operations.{name}]\nreceiver = \"{name}\"\nsubject = \"case_id\"\n\
             schema = \"builtin:create-followup\"\ntrim = [\"title\"]\n"
        )
        .expect("a string takes everything");
    }
    text
}

/// Another program that records. It is killed now and then, and another goes on.
struct Writer<'a> {
    world: &'a World,
    seed: u64,
    started: u64,
    running: Running,
}

impl<'a> Writer<'a> {
    fn start(world: &'a World, seed: u64) -> Self {
        Self { world, seed, started: 1, running: Self::spawn(world, 1, seed) }
    }

    fn spawn(world: &World, number: u64, seed: u64) -> Running {
        let log = |name: &str| {
            let open = File::options().create(true).append(true).open(world.path(name));
            Stdio::from(open.expect("a log of the writer"))
        };
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("kill/writer.py")]);
        command.arg(world.path("app.db")).args([format!("w{number}"), seed.to_string()]);
        command.args(RECEIVERS.map(|(name, _, _)| name));
        command.stdin(Stdio::null()).stdout(log("writer.log")).stderr(log("writer.err"));
        Running(command.spawn().expect("python3 starts"))
    }

    /// The next one takes its place, with names of its own.
    fn kill(&mut self) {
        self.started += 1;
        // Replaced is dropped, and dropped is killed.
        self.running = Self::spawn(self.world, self.started, self.seed);
    }

    fn still_writes(&mut self) {
        let ended = self.running.0.try_wait().expect("it is our child");
        let said = std::fs::read_to_string(self.world.path("writer.err")).unwrap_or_default();
        assert!(ended.is_none() && said.is_empty(), "{ended:?}: {said}");
    }
}

/// Starts a daemon again and again, and ends each in its own way.
fn rounds_of_kills(world: &World, seed: u64, rounds: u64) -> Vec<String> {
    let mut chance = Chance { seed: Seed(seed), drawn: 0 };
    let mut logs = Vec::new();
    let mut writer = Writer::start(world, seed);
    for round in 0..rounds {
        let mut daemon = world.daemon_with(&["--set", "worker.shutdown_grace=60ms"]);
        if chance.below(20) == 0 {
            let (case_id, title) = (format!("case_id=cli-{round}"), format!("title=Call {round}"));
            let fields = ["--field", case_id.as_str(), "--field", title.as_str()];
            world.run(&[&["approve", "keyed"], &fields[..]].concat()).ok();
        }
        if chance.below(10) == 0 {
            writer.kill();
        }
        chance.pause(LIFE);
        end(&mut daemon, &mut chance);
        writer.still_writes();
        logs.extend(daemon.lines());
    }
    logs
}

fn end(daemon: &mut Daemon, chance: &mut Chance) {
    match chance.below(10) {
        0..=5 => daemon.signal(Signal::SIGKILL),
        6 | 7 => {
            daemon.signal(Signal::SIGTERM);
            served_exits_well(daemon);
        }
        8 => {
            daemon.signal(Signal::SIGTERM);
            chance.pause(20);
            daemon.signal(Signal::SIGTERM);
            served_exits_well(daemon);
        }
        _ => {
            daemon.signal(Signal::SIGTERM);
            chance.pause(90);
            daemon.signal(Signal::SIGKILL);
        }
    }
    daemon.ended();
}

/// One that is told to stop before it listens is ended by the signal itself.
fn served_exits_well(daemon: &mut Daemon) {
    let status = daemon.ended();
    let served = !daemon.events("started").is_empty();
    assert!(status.success() || !served, "{status}: {:#?}", daemon.lines());
}

/// Lets a daemon work until nothing is pending. What was alone in flight at three
/// kills is left to a person, who has it tried again, one delivery at a time.
fn settle(world: &World) -> Vec<String> {
    let daemon = world.serving();
    until("every operation to be settled", || {
        let db = world.open("app.db");
        let crashed = "SELECT operation_key FROM handoff_outbox
                        WHERE state = 'blocked' AND blocked_reason = 'crashed'";
        let mut crashed = db.prepare(crashed).expect("there are operations");
        let crashed = crashed
            .query_map([], |row| row.get(0))
            .and_then(Iterator::collect::<Result<Vec<String>, _>>)
            .expect("they can be read");
        for key in &crashed {
            world.run(&["retry", key]).ok();
        }
        let open = "SELECT count(*) FROM handoff_outbox WHERE state = 'pending'";
        let open: i64 = db.query_row(open, [], |row| row.get(0)).expect("there are operations");
        (open == 0 && crashed.is_empty()).then_some(())
    });
    daemon.stop()
}
