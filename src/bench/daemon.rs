//! The program as a service: how soon it sees another program's commit, what it
//! costs while nothing is due, and how it comes back after a kill.

use super::product::{open, record, supervisor_of};
use super::{BenchError, Told, connection, fdatasync_ms_median};
use crate::clock::Clock;
use crate::outbox::outcome::Report;
use crate::outbox::rules::Rules;
use crate::receiver::{Journal, Receiver};
use crate::store::Attempt;
use crate::supervisor::{Control, Pulse, Settings};
use crate::wake::Watcher;
use async_trait::async_trait;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

/// How long another process commits, one operation each 20 ms.
const WAKING: Duration = Duration::from_secs(6);
/// How long the idle daemon is watched.
const IDLE: Duration = Duration::from_mins(1);
/// Operations that wait when the daemon is killed, as a share of those in `memory`.
const RECOVERY_SHARE: usize = 10;
/// Deliveries under way at the kill: the default concurrency of a receiver.
const IN_FLIGHT: u32 = 64;
/// Between two looks at what a daemon has done.
const LOOK: Duration = Duration::from_millis(2);
/// What is waited for longer does not come.
const PATIENCE: Duration = Duration::from_mins(2);

/// One figure of a running daemon.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub case: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The median of the samples, or the one sample.
    pub value: f64,
    /// The 99th percentile, where there are many samples.
    pub p99: Option<f64>,
    /// Samples.
    pub samples: usize,
    /// Operations that were pending.
    pub pending: usize,
    /// Of a 4 KiB write and its sync, in milliseconds, before the case.
    pub fdatasync_ms_median: f64,
}

/// Measures every figure, and tells each as soon as it is known.
pub(super) async fn measure(
    folder: &Path,
    rules: &Rules,
    pending: usize,
    tell: &mut impl FnMut(Told),
) -> Result<(), BenchError> {
    tell(Told::Begins("wake_up"));
    tell(Told::Figure(wake_up(folder, rules).await?));
    tell(Told::Begins("idle_processor"));
    tell(Told::Figure(idle(folder).await?));
    tell(Told::Begins("resident_memory"));
    tell(Told::Figure(memory(folder, rules, pending).await?));
    tell(Told::Begins("recovery_after_kill"));
    let pending = (pending / RECOVERY_SHARE).max(100);
    tell(Told::Figure(recovery(folder, rules, pending).await?));
    Ok(())
}

/// From the return of another process's commit to the start of the delivery.
async fn wake_up(folder: &Path, rules: &Rules) -> Result<Figure, BenchError> {
    let fdatasync = fdatasync_ms_median(folder)?;
    let file = folder.join("wake.db");
    let store = open(&file, rules).await?;
    let seen = Arc::new(Seen::default());
    let supervisor = supervisor_of(&store, rules, Arc::clone(&seen) as Arc<dyn Receiver>);
    let wake = Arc::new(Notify::new());
    let _watcher = Watcher::start(&file, Arc::clone(&wake)).map_err(std::io::Error::other)?;
    let (stop, mut control) = mpsc::channel(1);
    let (clock, pulse) = (Clock::resume(None), Pulse::default());
    let (poll_interval, reconcile) = (Duration::from_secs(1), None);
    let settings = Settings { poll_interval, shutdown_grace: IDLE, reconcile };
    let other = async {
        let output = super::beside::other(&file, WAKING)?.wait_with_output().await;
        stop.send(Control::Drain).await.ok();
        output
    };
    let (output, ended) =
        tokio::join!(other, supervisor.run(&clock, &settings, &wake, &mut control, &pulse));
    let output = output?;
    ended?;
    let seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    let samples = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let [_, committed, key] = *line.split(' ').collect::<Vec<_>>() else { return None };
            let began = *seen.get(key)?;
            // It may be seen before the commit has returned.
            Some(Duration::from_nanos(began.saturating_sub(committed.parse().ok()?)))
        })
        .collect::<Vec<_>>();
    Ok(Figure::of_many("wake_up", "ms", samples, fdatasync))
}

/// A receiver that notes when each delivery began.
#[derive(Default)]
struct Seen(Mutex<HashMap<String, u64>>);

#[async_trait]
impl Receiver for Seen {
    async fn deliver(&self, attempt: &Attempt, _: &dyn Journal) -> Report {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(attempt.key().as_str().to_owned(), monotonic_ns());
        Report::applied(None)
    }
}

/// A clock that two processes share, in nanoseconds.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor time of a daemon that has nothing to do, as a share of one core.
async fn idle(folder: &Path) -> Result<Figure, BenchError> {
    let fdatasync = fdatasync_ms_median(folder)?;
    let world = World::make(folder, "idle")?;
    let daemon = world.start()?;
    world.until("SELECT count(*) FROM handoff_receivers", 1).await?;
    // What the start has left to do.
    sleep(Duration::from_secs(2)).await;
    let (before, start) = (processor_time(&daemon)?, Instant::now());
    sleep(IDLE).await;
    let used = processor_time(&daemon)?.saturating_sub(before);
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    Ok(Figure::of_one("idle_processor", "percent of one core", share, 0, fdatasync))
}

/// Resident memory with many operations pending, as many under way as may be.
async fn memory(folder: &Path, rules: &Rules, pending: usize) -> Result<Figure, BenchError> {
    let fdatasync = fdatasync_ms_median(folder)?;
    let world = World::make(folder, "memory")?;
    record(&world.database(), rules, 0, pending).await?;
    let daemon = world.start()?;
    world.until("SELECT count(*) FROM handoff_attempts", IN_FLIGHT).await?;
    sleep(Duration::from_secs(2)).await;
    let resident = resident_mib(&daemon)?;
    Ok(Figure::of_one("resident_memory", "MiB", resident, pending, fdatasync))
}

/// From the start after a kill to the first new deliveries.
async fn recovery(folder: &Path, rules: &Rules, pending: usize) -> Result<Figure, BenchError> {
    let fdatasync = fdatasync_ms_median(folder)?;
    let world = World::make(folder, "recovery")?;
    record(&world.database(), rules, 0, pending).await?;
    let mut daemon = world.start()?;
    let begun = "SELECT count(*) FROM handoff_attempts";
    world.until(begun, IN_FLIGHT).await?;
    daemon.kill().await?;
    let start = Instant::now();
    let _daemon = world.start()?;
    world.until(begun, IN_FLIGHT + 1).await?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    Ok(Figure::of_one("recovery_after_kill", "ms", took, pending, fdatasync))
}

impl Figure {
    fn of_one(
        case: &'static str,
        unit: &'static str,
        value: f64,
        pending: usize,
        fdatasync_ms_median: f64,
    ) -> Self {
        Self { case, unit, value, p99: None, samples: 1, pending, fdatasync_ms_median }
    }

    fn of_many(
        case: &'static str,
        unit: &'static str,
        mut samples: Vec<Duration>,
        fdatasync_ms_median: f64,
    ) -> Self {
        samples.sort_unstable();
        let at = |share: usize| {
            let sample = samples.get((samples.len() * share / 100).min(samples.len().max(1) - 1));
            sample.map_or(0.0, |sample| sample.as_secs_f64() * 1e3)
        };
        let (value, p99, samples) = (at(50), Some(at(99)), samples.len());
        Self { case, unit, value, p99, samples, pending: 0, fdatasync_ms_median }
    }
}

/// A folder with a configuration whose CRM never answers.
struct World(PathBuf);

impl World {
    fn make(folder: &Path, name: &str) -> Result<Self, BenchError> {
        let folder = folder.join(name);
        std::fs::create_dir(&folder)?;
        let configuration = "[store]\nurl = \"sqlite:app.db\"\n[receivers.crm]\n\
            kind = \"simulated\"\npath = \"crm.db\"\ntimeout = \"1h\"\n\
            faults = [{ on = \"every\", fault = \"slow\", delay = \"30m\" }]\n\
            [receivers.crm.contract]\nmode = \"idempotency_key\"\nwindow = \"forever\"\n";
        std::fs::write(folder.join("handoff.toml"), configuration)?;
        Ok(Self(folder))
    }

    fn database(&self) -> PathBuf {
        self.0.join("app.db")
    }

    /// A daemon that does not outlive its handle.
    fn start(&self) -> Result<Child, BenchError> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["run", "--quiet", "--config", "handoff.toml"]).current_dir(&self.0);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.kill_on_drop(true).spawn()?)
    }

    /// Waits until a query gives at least so many.
    async fn until(&self, sql: &str, count: u32) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let file = self.database();
            let found = if file.exists() {
                // Before the tables are there, it is an error.
                connection(&file)?.query_row(sql, [], |row| row.get::<_, u32>(0)).ok()
            } else {
                None
            };
            if found.is_some_and(|found| found >= count) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(BenchError::Silent);
            }
            sleep(LOOK).await;
        }
    }
}

/// Time that all threads of a process have had on a processor.
fn processor_time(daemon: &Child) -> Result<Duration, BenchError> {
    let tasks = format!("/proc/{}/task", daemon.id().ok_or(BenchError::Silent)?);
    let mut all = Duration::ZERO;
    for task in std::fs::read_dir(tasks)? {
        let times = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let on_processor = times.split(' ').next().and_then(|ns| ns.parse().ok());
        all += Duration::from_nanos(on_processor.unwrap_or_default());
    }
    Ok(all)
}

fn resident_mib(daemon: &Child) -> Result<f64, BenchError> {
    let status = format!("/proc/{}/status", daemon.id().ok_or(BenchError::Silent)?);
    let status = std::fs::read_to_string(status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or(BenchError::Silent)
}
