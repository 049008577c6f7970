//! Killed and stopped at random moments under load: nothing is lost and nothing
//! is done twice.

use crate::daemon::Daemon;
use crate::support::{Crm, World, pause, record, until};
use handoff::jitter::Seed;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Everything that may go wrong and still keeps the CRM's promise.
const FAULTS: &str = r#"[
  { on = "random", rate = 0.25, fault = "lose_reply" },
  { on = "random", rate = 0.1, fault = "server_error" },
  { on = "random", rate = 0.1, fault = "unreachable" },
  { on = "random", rate = 0.1, fault = "malformed" },
  { on = "random", rate = 0.05, fault = "late", delay = "40ms" },
  { on = "random", rate = 0.2, fault = "slow", delay = "30ms" },
  { on = "random", rate = 0.3, fault = "slow", delay = "200ms" },
]"#;
const RETRY: &str = "initial = \"5ms\"\nmax_interval = \"40ms\"\nmax_attempts = 10000";
/// The longest that a daemon lives, in milliseconds: its start, and some work.
const LIFE: u64 = 400;

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
    let seed = number("HANDOFF_TEST_SEED").unwrap_or_else(|| Seed::draw().0);
    let rounds = number("HANDOFF_TEST_ROUNDS").unwrap_or(100);
    // Shown by the test harness if the test fails.
    println!("HANDOFF_TEST_SEED={seed} HANDOFF_TEST_ROUNDS={rounds}");
    let world = World::with(&Crm { faults: FAULTS, retry: RETRY, ..Crm::default() }).migrated();
    let over = AtomicBool::new(false);
    let (recorded, logs) = std::thread::scope(|scope| {
        let application = scope.spawn(|| application(&world, seed, &over));
        let logs = rounds_of_kills(&world, seed, rounds);
        over.store(true, Ordering::Relaxed);
        (application.join().expect("the application records"), logs)
    });
    assert!(recorded.len() as u64 > rounds, "there was load: {}", recorded.len());
    let quiet = settle(&world);
    for line in logs.iter().chain(&quiet) {
        assert!(!line.contains("panicked"), "{line}");
    }
    check_ledger(&world, &recorded);
    let count = |outcome: &str| -> i64 {
        world.value("SELECT count(*) FROM handoff_attempts WHERE outcome = ?1", [outcome])
    };
    let (interrupted, cut_off) = (count("interrupted"), count("cut_off"));
    println!("{} recorded, {interrupted} interrupted, {cut_off} cut off", recorded.len());
    assert!(interrupted > 0 || rounds < 50, "the kills met calls under way");
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// Starts a daemon again and again, and ends each in its own way.
fn rounds_of_kills(world: &World, seed: u64, rounds: u64) -> Vec<String> {
    let mut chance = Chance { seed: Seed(seed), drawn: 0 };
    let mut logs = Vec::new();
    for _ in 0..rounds {
        let mut daemon = world.daemon_with(&["--set", "worker.shutdown_grace=60ms"]);
        chance.pause(LIFE);
        match chance.below(10) {
            0..=5 => daemon.signal(Signal::SIGKILL),
            6 | 7 => {
                daemon.signal(Signal::SIGTERM);
                served_exits_well(&mut daemon);
            }
            8 => {
                daemon.signal(Signal::SIGTERM);
                chance.pause(20);
                daemon.signal(Signal::SIGTERM);
                served_exits_well(&mut daemon);
            }
            _ => {
                daemon.signal(Signal::SIGTERM);
                chance.pause(90);
                daemon.signal(Signal::SIGKILL);
            }
        }
        daemon.ended();
        logs.extend(daemon.lines());
    }
    logs
}

/// One that is told to stop before it listens is ended by the signal itself.
fn served_exits_well(daemon: &mut Daemon) {
    let status = daemon.ended();
    let served = !daemon.events("started").is_empty();
    assert!(status.success() || !served, "{status}: {:#?}", daemon.lines());
}

/// Records by plain SQL and by the command line until told to end.
fn application(world: &World, seed: u64, over: &AtomicBool) -> BTreeSet<String> {
    let mut chance = Chance { seed: Seed(seed ^ 1), drawn: 0 };
    let mut recorded = BTreeSet::new();
    let mut case = 0_u64;
    while !over.load(Ordering::Relaxed) {
        // A connection for each batch: between two, the file may be nobody's.
        let db = world.open("app.db");
        for _ in 0..=chance.below(4) {
            case += 1;
            recorded.insert(record(&db, &format!("sql-{case}")));
        }
        drop(db);
        if chance.below(8) == 0 {
            case += 1;
            let (case_id, title) = (format!("case_id=cli-{case}"), format!("title=Call {case}"));
            let fields = ["--field", case_id.as_str(), "--field", title.as_str()];
            world.run(&[&["approve", "create-followup"], &fields[..]].concat()).ok();
            recorded.insert(format!("harbor:create-followup:v1:cli-{case}"));
        }
        chance.pause(80);
    }
    recorded
}

/// Lets a daemon work until nothing is pending. What was alone in flight at three
/// kills is left to a person, who has it tried again, one delivery at a time.
fn settle(world: &World) -> Vec<String> {
    let daemon = world.serving();
    until("every operation to be sent", || {
        let db = world.open("app.db");
        let open = "SELECT count(*) FROM handoff_outbox WHERE state = 'pending'";
        let open: i64 = db.query_row(open, [], |row| row.get(0)).expect("there are operations");
        let mut blocked = db
            .prepare(
                "SELECT operation_key, blocked_reason FROM handoff_outbox
                       WHERE state = 'blocked'",
            )
            .expect("there are operations");
        let blocked = blocked
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect::<Result<Vec<(String, String)>, _>>)
            .expect("they can be read");
        for (key, reason) in &blocked {
            assert_eq!(reason, "crashed", "{key}");
            world.run(&["retry", key]).ok();
        }
        (open == 0 && blocked.is_empty()).then_some(())
    });
    daemon.stop()
}

fn check_ledger(world: &World, recorded: &BTreeSet<String>) {
    let db = world.open("app.db");
    db.execute("ATTACH ?1 AS crm", [world.path("crm.db").to_str()]).expect("the CRM opens");
    let keys = |sql: &str| -> Vec<String> {
        let mut read = db.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let rows = read.query_map([], |row| row.get(0)).and_then(Iterator::collect);
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    let each: Vec<String> = recorded.iter().cloned().collect();
    let ordered = "ORDER BY operation_key";
    for table in ["handoff_outbox", "handoff_approvals", "crm.tasks"] {
        let found = keys(&format!("SELECT operation_key FROM {table} {ordered}"));
        assert_eq!(found, each, "each recorded key stands once in {table}, and no other");
    }
    for (rule, exceptions) in [
        (
            "every effect follows a stored attempt of its number",
            "SELECT operation_key FROM crm.effects AS e WHERE NOT EXISTS
               (SELECT 1 FROM handoff_attempts AS t WHERE t.operation_key = e.operation_key
                   AND t.number = e.attempt AND t.started_at <= e.at)",
        ),
        (
            "every operation is sent, with the task's id as its receipt",
            "SELECT operation_key || ' is ' ||
                    concat_ws(', ', state, blocked_reason, effect, remote_id, last_error)
               FROM handoff_outbox AS o WHERE state <> 'sent'
                OR effect <> 'confirmed' OR last_error IS NOT NULL OR remote_id IS NOT
                (SELECT CAST(task_id AS TEXT) FROM crm.tasks AS t
                  WHERE t.operation_key = o.operation_key)",
        ),
        (
            "no attempt is left open",
            "SELECT operation_key FROM handoff_attempts
              WHERE outcome IS NULL OR finished_at IS NULL",
        ),
        (
            "what was delivered is what was recorded",
            "SELECT t.operation_key FROM crm.tasks AS t
               JOIN handoff_approvals AS a USING (operation_key)
              WHERE json(t.payload) IS NOT json(a.payload)",
        ),
    ] {
        assert_eq!(keys(exceptions), Vec::<String>::new(), "{rule}");
    }
    for name in ["app.db", "crm.db"] {
        let sound: String = world
            .open(name)
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("the check runs");
        assert_eq!(sound, "ok", "{name}");
    }
}
