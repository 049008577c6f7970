//! The loop round the step, and what it waits for.

use super::reconcile::Rounds;
use super::upkeep::Care;
use super::{Parts, Supervisor};
use crate::clock::{Clock, Now};
use crate::store::StoreError;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};

/// The loop shows that it lives at least this often, whatever the poll interval.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);
/// Waits for a lock that one round of the loop may hold: what it disowned, its pass,
/// and what it was told.
const LOCKS_A_ROUND: u32 = 3;
/// Pauses between passes while the database says no: the first, and the longest.
const TROUBLE_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What the loop may be told.
#[derive(Debug)]
pub enum Control {
    /// Stop: wait for calls under way as long as the grace lasts.
    Drain,
    /// Stop now.
    StopNow,
    /// Take this configuration; the answer says whether it is in force.
    Replace(Box<Parts>, oneshot::Sender<Result<(), StoreError>>),
    /// Log counts and ages.
    Summary,
}

/// A sign of life of the loop, for the watchdog.
#[derive(Clone, Debug)]
pub struct Pulse {
    start: Instant,
    last: Arc<AtomicU64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { start: Instant::now(), last: Arc::new(AtomicU64::new(0)) }
    }
}

impl Pulse {
    /// The loop has come round.
    pub fn beat(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// How long ago it last did.
    pub fn age(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    /// How old it may become while all is well, if each lock is waited for so long.
    pub fn patience(busy_timeout: Duration) -> Duration {
        PULSE_INTERVAL + busy_timeout * LOCKS_A_ROUND
    }
}

impl Supervisor {
    /// Delivers until it is told to stop, then drains.
    ///
    /// `wake` is a hint that something may be due; the poll is the guarantee.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if the database turns out to be damaged: nothing
    /// more is begun, and what came of the calls under way is stored or logged.
    pub async fn run(
        mut self,
        clock: &Clock,
        settings: &super::Settings,
        wake: &Notify,
        control: &mut mpsc::Receiver<Control>,
        pulse: &Pulse,
    ) -> Result<(), StoreError> {
        let mut trouble: Option<Trouble> = None;
        let mut care = Care::default();
        let mut rounds = Rounds::default();
        loop {
            pulse.beat();
            let stepped = match care.take(self.store.as_ref()).await {
                Ok(()) => self.step_at(clock).await,
                Err(error) => Err(error),
            };
            if stepped.is_ok() {
                self.look_again(&mut rounds, settings, clock.now()).await;
            }
            let pause = match stepped {
                Ok(progress) => {
                    if let Some(past) = trouble.take() {
                        self.logbook.store_recovered(past.since.elapsed());
                    }
                    if progress.more {
                        Duration::ZERO
                    } else {
                        let due = progress.next_due.map(|due| due.since(clock.now().wall));
                        due.unwrap_or(Duration::MAX).min(settings.poll_interval)
                    }
                }
                Err(error @ StoreError::Unusable { .. }) => {
                    tracing::error!(
                        event = "store_unusable", error = %error, "no more is begun; it ends"
                    );
                    self.drain(clock, settings.shutdown_grace, control, pulse).await;
                    return Err(error);
                }
                Err(error) => {
                    let pause = trouble.get_or_insert_with(Trouble::new).pause();
                    let message = "the database says no; outcomes are kept and written again";
                    self.logbook.store_trouble(&error, Some(pause), message);
                    pause
                }
            };
            self.logbook.tick();
            let told = tokio::select! {
                told = control.recv() => Some(told.unwrap_or(Control::Drain)),
                () = wake.notified() => None,
                () = self.answered(), if trouble.is_none() => None,
                () = sleep(pause.min(PULSE_INTERVAL)) => None,
            };
            match told {
                None => {}
                Some(Control::Replace(parts, answer)) => {
                    drop(answer.send(self.replace_parts(*parts).await));
                }
                Some(Control::Summary) => self.log_summary(clock.now()).await,
                Some(Control::Drain) => {
                    self.drain(clock, settings.shutdown_grace, control, pulse).await;
                    return Ok(());
                }
                Some(Control::StopNow) => {
                    self.drain(clock, Duration::ZERO, control, pulse).await;
                    return Ok(());
                }
            }
        }
    }

    /// Has blocked operations looked up whose time has come.
    async fn look_again(&mut self, rounds: &mut Rounds, settings: &super::Settings, now: Now) {
        let (store, rules) = (self.store.as_ref(), &self.parts.rules);
        if let Err(error) = rounds.take(store, rules, settings.reconcile, now).await {
            let message = "what is blocked is looked up again later";
            self.logbook.store_trouble(&error, None, message);
        }
    }

    async fn log_summary(&mut self, now: Now) {
        self.logbook.flush();
        match self.store.summary(now).await {
            Ok(summary) => {
                for counts in &summary.receivers {
                    tracing::info!(
                        event = "summary",
                        receiver.name = counts.receiver,
                        pending = counts.pending,
                        in_flight = counts.in_flight,
                        sent = counts.sent,
                        blocked = counts.blocked,
                        withdrawn = counts.withdrawn,
                        "counts in the database"
                    );
                }
            }
            Err(error) => self.logbook.store_trouble(&error, None, "cannot count"),
        }
        tracing::info!(event = "summary", status = self.counts.line(), "counts since the start");
    }
}

/// A time during which the database says no.
struct Trouble {
    pauses: ExponentialBackoff,
    since: Instant,
}

impl Trouble {
    fn new() -> Self {
        let (first, longest) = TROUBLE_PAUSES;
        let pauses = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .without_max_times()
            .build();
        Self { pauses, since: Instant::now() }
    }

    /// How long to wait before the next pass.
    fn pause(&mut self) -> Duration {
        self.pauses.next().unwrap_or(TROUBLE_PAUSES.1)
    }
}
