//! The stop: no new attempt, every answer that still comes is stored, and what
//! is cut off is named.

use super::wait::{Control, Pulse};
use super::{Supervisor, report};
use crate::clock::Clock;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// How long outcomes are tried to be stored after the last call has ended.
const SAVING: Duration = Duration::from_secs(10);
/// Between two tries.
const SAVE_PAUSE: Duration = Duration::from_millis(100);

impl Supervisor {
    /// Stops: waits for calls until the grace ends, then cuts them off, and
    /// stores what came of each.
    pub(super) async fn drain(
        mut self,
        clock: &Clock,
        grace: Duration,
        control: &mut mpsc::Receiver<Control>,
        pulse: &Pulse,
    ) {
        self.claiming = false;
        let calls = self.in_flight.len();
        tracing::info!(
            event = "draining",
            in_flight = calls,
            grace_ms = u64::try_from(grace.as_millis()).ok(),
            "no new attempts; waiting for calls under way"
        );
        self.wait_for_calls(clock, Instant::now() + grace, control, pulse).await;
        self.cut_off();
        // Each call ends at once now: its future has been told to stop. One that
        // broke is in flight for ever, but runs no more.
        while !self.tasks.is_empty() {
            self.answered().await;
            self.collect(clock.now());
        }
        self.save_all(clock, pulse).await;
        self.repeats.say();
        if let Err(error) = self.store.close().await {
            tracing::warn!(event = "store_trouble", error = %error, "no checkpoint at the end");
        }
    }

    async fn wait_for_calls(
        &mut self,
        clock: &Clock,
        deadline: Instant,
        control: &mut mpsc::Receiver<Control>,
        pulse: &Pulse,
    ) {
        loop {
            pulse.beat();
            if let Err(error) = self.step(clock.now()).await {
                tracing::warn!(event = "store_trouble", error = %error, "will be written again");
            }
            if self.in_flight.is_empty() || Instant::now() >= deadline {
                return;
            }
            tokio::select! {
                () = self.answered() => {}
                () = sleep_until(deadline) => return,
                () = sleep(Duration::from_secs(1)) => {}
                told = control.recv() => {
                    if matches!(told, None | Some(Control::StopNow | Control::Drain)) {
                        tracing::warn!(event = "stop_now", "told again to stop; waiting no longer");
                        return;
                    }
                }
            }
        }
    }

    /// Ends the wait for every call under way, and names each.
    fn cut_off(&self) {
        for (id, held) in &self.in_flight {
            tracing::warn!(
                event = "attempt_cut_off", operation.key = %id.key, attempt.number = id.number,
                receiver.name = held.receiver, outcome = "cut_off",
                "stopped before the answer came; it may have acted"
            );
        }
        self.cut.send_replace(true);
    }

    /// Stores every outcome; what cannot be stored is logged with its receipt.
    async fn save_all(&mut self, clock: &Clock, pulse: &Pulse) {
        let deadline = Instant::now() + SAVING;
        while !self.unsaved.is_empty() {
            pulse.beat();
            match self.step(clock.now()).await {
                Ok(_) => return,
                Err(error) if Instant::now() >= deadline => {
                    for lost in &self.unsaved {
                        tracing::error!(
                            event = "outcome_not_stored", operation.key = %lost.id().key,
                            attempt.number = lost.id().number,
                            receiver.name = lost.receiver(),
                            outcome = lost.ending().kind().as_str(),
                            receipt = report::receipt(Some(lost)), error = %error,
                            "the database did not take this outcome; the attempt stays open"
                        );
                    }
                    return;
                }
                Err(_) => sleep(SAVE_PAUSE).await,
            }
        }
    }
}
