//! The stop: no new attempt, every answer that still comes is stored, and what
//! is cut off is named.

use super::wait::{Control, Pulse};
use super::{Supervisor, logbook};
use crate::clock::Clock;
use crate::store::{Concluded, Pass, StoreError};
use std::sync::Arc;
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
        self.stop_claiming();
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
            let (now, _) = self.look(|| (clock.now(), clock.mark()));
            self.collect(now);
        }
        self.save_all(clock, pulse).await;
        if let Err(error) = self.store.close().await {
            self.logbook.store_trouble(&error, None, "no checkpoint at the end");
        }
        self.logbook.flush();
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
            if let Err(error) = self.step_at(clock).await {
                self.logbook.store_trouble(&error, None, "will be written again");
            }
            self.logbook.tick();
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

    /// Ends the wait for every call under way, and names each. What came of them
    /// is saved by the steps that follow.
    pub fn cut_off(&self) {
        for (id, held) in &self.in_flight {
            tracing::warn!(
                event = "attempt_cut_off", operation.key = %id.key,
                operation.type = logbook::kind(&id.key), attempt.number = id.number,
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
            match self.step_at(clock).await {
                Ok(_) => return,
                Err(error) if is_damage(&error) => return self.save_one_by_one(clock, pulse).await,
                Err(error) if Instant::now() >= deadline => {
                    self.unsaved.iter().for_each(|one| log_lost(one, &error));
                    return;
                }
                Err(_) => sleep(SAVE_PAUSE).await,
            }
        }
    }

    /// A damaged page that one outcome meets must not cost the others.
    async fn save_one_by_one(&mut self, clock: &Clock, pulse: &Pulse) {
        let mut hopeless = None;
        for one in std::mem::take(&mut self.unsaved) {
            pulse.beat();
            if let Some(error) = &hopeless {
                log_lost(&one, error);
                continue;
            }
            let concluded = Arc::new(vec![Arc::clone(&one)]);
            let pass = Pass { concluded, ..Pass::default() };
            let saved = match self.store.pass(&self.parts.rules, pass, clock.now()).await {
                Ok(passed) => passed.events,
                Err(StoreError::ClaimFailed { saved, .. }) => saved,
                Err(error) => {
                    log_lost(&one, &error);
                    // What else is in the way, such as a lock, is in the way of all.
                    hopeless = (!is_damage(&error)).then_some(error);
                    continue;
                }
            };
            self.logbook.events(&saved, std::slice::from_ref(&one), &self.counts);
        }
    }
}

fn log_lost(lost: &Concluded, error: &StoreError) {
    tracing::error!(
        event = "outcome_not_stored", operation.key = %lost.id().key,
        operation.type = lost.kind(), attempt.number = lost.id().number,
        receiver.name = lost.receiver(),
        outcome = lost.ending().kind().as_str(),
        receipt = logbook::receipt(Some(lost)), error = %error,
        "the database did not take this outcome; the attempt stays open"
    );
}

/// Waiting mends no damage.
fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Unusable { .. })
}
