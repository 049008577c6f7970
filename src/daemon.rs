//! The daemon: builds every part, supervises it, and ends it in order.

use crate::clock::Clock;
use crate::config::{self, ConfigError, Loaded, Request};
use crate::jitter::Seed;
use crate::process::ProcessGroup;
use crate::receiver::BuildError;
use crate::signal::{self, Asked};
use crate::store::sqlite::{Access, DaemonLock, Sqlite};
use crate::store::{Event, Mirror, Store, StoreError};
use crate::supervisor::{Control, Logbook, Parts, Pulse, Supervisor};
use crate::wake::Watcher;
use crate::{systemd, telemetry};
use backon::{BackoffBuilder, ExponentialBuilder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// Pauses while the database is unavailable: the first, and the longest.
const OPEN_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long the end of a left-over command is waited for.
const GROUP_END: Duration = Duration::from_secs(5);
/// How often the status line is renewed.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// What a stop takes beyond its grace: storing outcomes, and the checkpoint.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// Why the daemon did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is bad.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A receiver cannot be set up.
    #[error(transparent)]
    Receiver(#[from] BuildError),
    /// The operating system said no.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// Runs until it is told to stop.
///
/// `greet` is called once the daemon serves, with the database's path.
///
/// # Errors
///
/// [`DaemonError`]; nothing is under way then.
pub async fn run(
    request: &Request,
    loaded: Loaded,
    greet: impl FnOnce(&Path),
) -> Result<(), DaemonError> {
    let log = telemetry::start(loaded.settings.log);
    let mut asked = signal::listen()
        .map_err(|source| DaemonError::System { doing: "listen for signals", source })?;
    let instance = instance();
    let mut logbook = Logbook::default();
    let opening = async |_: &mut Logbook| open(&loaded, &instance).await;
    let opened = patiently(&mut asked, &mut logbook, opening).await?;
    let Some((store, _lock)) = opened else { return Ok(()) };
    let store = Arc::new(store);
    let seed = Seed::draw();
    let parts = Parts::build(loaded.settings.rules(seed), &loaded.settings.receivers)?;
    logbook.know(parts.names());
    let recovering = async |logbook: &mut Logbook| recover(&store, &parts, logbook).await;
    let recovered = patiently(&mut asked, &mut logbook, recovering).await?;
    let Some(clock) = recovered else { return Ok(()) };
    let wake = Arc::new(Notify::new());
    let watcher = Watcher::start(store.path(), Arc::clone(&wake));
    if let Err(error) = &watcher {
        tracing::warn!(event = "no_wake_up", error = %error, "new operations wait for the poll");
    }
    tracing::info!(
        event = "started", version = env!("CARGO_PKG_VERSION"), instance, seed = seed.0,
        store = %store.path().display(), "serving"
    );
    greet(store.path());
    systemd::ready("serving");
    let supervisor = Supervisor::reporting(store, parts, logbook);
    serve(request, loaded, seed, supervisor, &clock, &wake, asked, &log).await?;
    tracing::info!(event = "stopped", "stopped");
    Ok(())
}

/// The loop, and beside it what listens to signals and feeds the watchdog.
#[expect(clippy::too_many_arguments, reason = "everything that was built, handed on once")]
async fn serve(
    request: &Request,
    loaded: Loaded,
    seed: Seed,
    supervisor: Supervisor,
    clock: &Clock,
    wake: &Notify,
    asked: mpsc::UnboundedReceiver<Asked>,
    log: &telemetry::Handle,
) -> Result<(), StoreError> {
    let pulse = Pulse::default();
    let (control, mut told) = mpsc::channel(16);
    let settings = loaded.settings.worker.clone();
    let patience = Pulse::patience(loaded.settings.store.busy_timeout);
    let watchdog = tokio::spawn(systemd::watchdog(pulse.clone(), patience));
    let status = tokio::spawn(status_line(supervisor.counts()));
    let ears = Ears { request: request.clone(), loaded, seed, log: log.clone(), control };
    let ears = tokio::spawn(ears.listen(asked));
    let ended = supervisor.run(clock, &settings, wake, &mut told, &pulse).await;
    for task in [watchdog, status, ears] {
        task.abort();
    }
    ended
}

/// A name for this process that no other has.
fn instance() -> String {
    let host = nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    format!("{host}-{}-{:08x}", std::process::id(), Seed::draw().0 & 0xFFFF_FFFF)
}

/// Does what needs the database, again and again while that says what may pass.
///
/// `None` if the daemon was told to stop meanwhile.
async fn patiently<T>(
    asked: &mut mpsc::UnboundedReceiver<Asked>,
    logbook: &mut Logbook,
    mut attempt: impl AsyncFnMut(&mut Logbook) -> Result<T, StoreError>,
) -> Result<Option<T>, DaemonError> {
    let mut pauses = ExponentialBuilder::new()
        .with_min_delay(OPEN_PAUSES.0)
        .with_max_delay(OPEN_PAUSES.1)
        .without_max_times()
        .build();
    loop {
        let error = match systemd::at_work(attempt(logbook)).await {
            Ok(done) => return Ok(Some(done)),
            Err(error @ (StoreError::InUse { .. } | StoreError::Unusable { .. })) => {
                return Err(error.into());
            }
            Err(error) => error,
        };
        let pause = pauses.next().unwrap_or(OPEN_PAUSES.1);
        logbook.store_unavailable(&error, pause);
        logbook.tick();
        systemd::status(&format!("waiting for the database: {error}"));
        tokio::select! {
            what = asked.recv() => if what == Some(Asked::Stop) {
                logbook.flush();
                return Ok(None);
            },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Opens the database and takes its lock.
async fn open(loaded: &Loaded, instance: &str) -> Result<(Sqlite, DaemonLock), StoreError> {
    let store = Sqlite::open(&loaded.settings.store, Access::Create, instance).await?;
    // The file exists now, so that every path to it leads to the same lock.
    let lock = DaemonLock::take(store.path(), instance)?;
    Ok((store, lock))
}

/// Ends what an earlier process left, its commands first, then its attempts, and
/// goes on with its clock. Doing so again changes nothing.
async fn recover(
    store: &Sqlite,
    parts: &Parts,
    logbook: &mut Logbook,
) -> Result<Clock, StoreError> {
    let clock = Clock::resume(store.steady_mark().await?.as_ref());
    // Goes with the recovery, so that what the clock has just learnt is not lost.
    store.keep_mark(clock.mark());
    for (id, group) in store.left_processes().await? {
        let ended = end_group(group).await;
        tracing::warn!(
            event = "command_ended", operation.key = %id.key, attempt.number = id.number,
            ended, "a command of an earlier process was left running"
        );
    }
    let now = clock.now();
    let recovered = store.recover(&parts.rules, Some(&clock.mark()), now).await?;
    logbook.clock_fault(recovered.steps);
    for event in &recovered.interrupted {
        logbook.event(event, None);
    }
    let interrupted = recovered.interrupted.iter();
    let count = interrupted.filter(|event| matches!(event, Event::Ended { .. })).count();
    if count > 0 || recovered.brought_forward > 0 {
        tracing::warn!(
            event = "recovered",
            interrupted = count,
            brought_forward = recovered.brought_forward,
            "an earlier process ended during these attempts; each may have acted"
        );
    }
    store.mirror(&parts.rules, Mirror::Replace).await?;
    Ok(clock)
}

async fn end_group(group: ProcessGroup) -> bool {
    let end = move || group.end_and_wait(GROUP_END);
    tokio::task::spawn_blocking(end).await.unwrap_or(false)
}

/// Renews the status line that the service manager shows.
async fn status_line(counts: crate::supervisor::Counts) {
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    let mut last = String::new();
    loop {
        ticks.tick().await;
        let line = counts.line();
        if line != last {
            systemd::status(&line);
            last = line;
        }
    }
}

/// What turns signals into commands to the supervisor.
struct Ears {
    request: Request,
    loaded: Loaded,
    seed: Seed,
    log: telemetry::Handle,
    control: mpsc::Sender<Control>,
}

impl Ears {
    async fn listen(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut stopping = false;
        while let Some(what) = asked.recv().await {
            let told = match what {
                // READY would undo the STOPPING that the service manager was told.
                Asked::Reload if stopping => {
                    tracing::warn!(event = "reload_refused", error = "it is stopping", "no reload");
                    continue;
                }
                Asked::Reload => {
                    self.reload().await;
                    continue;
                }
                Asked::Summary => Control::Summary,
                Asked::Stop if stopping => Control::StopNow,
                Asked::Stop => {
                    stopping = true;
                    systemd::stopping(self.loaded.settings.worker.shutdown_grace + STOP_MARGIN);
                    Control::Drain
                }
            };
            if self.control.send(told).await.is_err() {
                return;
            }
        }
    }

    /// All or nothing: a bad configuration leaves the old one in force.
    async fn reload(&mut self) {
        systemd::reloading();
        let status = match self.try_reload().await {
            Ok(()) => {
                tracing::info!(event = "reloaded", "the new configuration is in force");
                "serving".to_owned()
            }
            Err(problem) => {
                tracing::error!(
                    event = "reload_refused", error = %problem,
                    "the old configuration stays in force"
                );
                "serving with the old configuration: the new one was refused".to_owned()
            }
        };
        systemd::ready(&status);
    }

    async fn try_reload(&mut self) -> Result<(), String> {
        let loaded = config::load(&self.request).map_err(|error| error.to_string())?;
        let (new, old) = (&loaded.settings, &self.loaded.settings);
        for (path, changed) in [
            ("store", new.store != old.store),
            ("reconcile", new.worker.reconcile != old.worker.reconcile),
            ("worker", new.worker != old.worker),
            ("log.format", new.log.format != old.log.format),
        ] {
            if changed {
                return Err(format!("{path} has changed; that needs a restart"));
            }
        }
        let parts = Parts::build(new.rules(self.seed), &new.receivers)
            .map_err(|error| error.to_string())?;
        let (answer, wait) = oneshot::channel();
        let told = Control::Replace(Box::new(parts), answer);
        self.control.send(told).await.map_err(|_| "the daemon is stopping".to_owned())?;
        let replaced = wait.await.map_err(|_| "the daemon is stopping".to_owned())?;
        replaced.map_err(|error| error.to_string())?;
        self.log.set_level(new.log.level);
        self.loaded = loaded;
        Ok(())
    }
}

/// The database that a configuration names, for messages.
pub fn store_path(loaded: &Loaded) -> Option<PathBuf> {
    crate::store::sqlite::path_of(&loaded.settings.store.url)
}
