//! The loop round the step, and what it waits for.

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
/// A wall clock that goes back further than this was set back; less is slewing.
const CLOCK_STEP: Duration = Duration::from_secs(1);

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
    pub async fn run(
        mut self,
        clock: &Clock,
        settings: &super::Settings,
        wake: &Notify,
        control: &mut mpsc::Receiver<Control>,
        pulse: &Pulse,
    ) {
        let mut trouble: Option<Trouble> = None;
        let mut last = clock.now();
        loop {
            pulse.beat();
            let now = clock.now();
            self.mind_clock(last, now).await;
            last = now;
            self.store.keep_mark(clock.mark());
            self.repeats.look();
            let pause = match self.step(now).await {
                Ok(progress) => {
                    end_of_trouble(&mut trouble);
                    if progress.more {
                        Duration::ZERO
                    } else {
                        let due = progress.next_due.map(|due| due.since(clock.now().wall));
                        due.unwrap_or(Duration::MAX).min(settings.poll_interval)
                    }
                }
                Err(error) => trouble.get_or_insert_with(Trouble::new).pause(&error),
            };
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
                    return self.drain(clock, settings.shutdown_grace, control, pulse).await;
                }
                Some(Control::StopNow) => {
                    return self.drain(clock, Duration::ZERO, control, pulse).await;
                }
            }
        }
    }

    /// After the wall clock was set back, retries stamped by it lie too far ahead.
    async fn mind_clock(&self, last: Now, now: Now) {
        if now.wall.plus(CLOCK_STEP) >= last.wall {
            return;
        }
        tracing::warn!(
            event = "clock_fault",
            stepped_back_ms = u64::try_from(last.wall.since(now.wall).as_millis()).ok(),
            "the wall clock was set back"
        );
        if let Err(error) = self.store.bring_forward(&self.parts.rules, now).await {
            tracing::warn!(event = "store_trouble", error = %error, "retries not brought forward");
        }
    }

    async fn log_summary(&self, now: Now) {
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
            Err(error) => {
                tracing::warn!(event = "store_trouble", error = %error, "cannot count");
            }
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

    /// Logs the error and says how long to wait before the next pass.
    fn pause(&mut self, error: &StoreError) -> Duration {
        let pause = self.pauses.next().unwrap_or(TROUBLE_PAUSES.1);
        tracing::warn!(
            event = "store_trouble", error = %error,
            pause_ms = u64::try_from(pause.as_millis()).ok(),
            "the database says no; outcomes are kept and written again"
        );
        pause
    }
}

fn end_of_trouble(trouble: &mut Option<Trouble>) {
    if let Some(past) = trouble.take() {
        tracing::info!(
            event = "store_recovered",
            lasted_ms = u64::try_from(past.since.elapsed().as_millis()).ok(),
            "the database works again"
        );
    }
}
