//! What the daemon logs of its work. Repeats are counted.

use super::Counts;
use super::repeats::{Counted, Repeat, Repeated, Repeats};
use crate::clock::Steps;
use crate::outbox::hold::Hold;
use crate::outbox::key::OperationKey;
use crate::outbox::look_up::Finding;
use crate::outbox::outcome::{Ending, Outcome};
use crate::outbox::policy::{Next, Step};
use crate::outbox::state::State;
use crate::store::{AttemptId, Concluded, Event};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Writes log records, and counts those that repeat.
#[derive(Debug)]
pub struct Logbook {
    start: Instant,
    repeats: Repeats,
    /// The holds that have been told.
    pub(super) held: Vec<Hold>,
}

impl Default for Logbook {
    fn default() -> Self {
        Self { start: Instant::now(), repeats: Repeats::default(), held: Vec::new() }
    }
}

impl Logbook {
    /// These are the receivers from here on.
    pub fn know<'a>(&mut self, receivers: impl Iterator<Item = &'a str>) {
        self.repeats.know(receivers, self.start.elapsed()).iter().for_each(summarise);
    }

    /// Writes what has been counted for a minute. To be called every few seconds.
    pub fn tick(&mut self) {
        self.repeats.due(self.start.elapsed()).iter().for_each(summarise);
    }

    /// Writes all that has been counted.
    pub fn flush(&mut self) {
        self.repeats.flush(self.start.elapsed()).iter().for_each(summarise);
    }

    /// Whether to write this one. Whoever asks for debug records gets all of them.
    pub(super) fn in_full(&mut self, repeat: Repeat<'_>) -> bool {
        tracing::enabled!(tracing::Level::DEBUG)
            || self.repeats.in_full(repeat, self.start.elapsed())
    }

    /// The events of a pass. Returns how many are ends of attempts.
    pub(super) fn events(
        &mut self,
        events: &[Event],
        concluded: &[Arc<Concluded>],
        counts: &Counts,
    ) -> usize {
        let mut ends = 0;
        // The events come in the order of what was concluded.
        let mut rest = concluded.iter();
        for event in events {
            let one = match event {
                Event::Ended { id, .. } | Event::Fenced { id } => {
                    ends += 1;
                    rest.find(|one| one.id() == id)
                }
                Event::Settled { .. } => None,
            };
            count(event, counts);
            self.event(event, one.map(Arc::as_ref));
        }
        ends
    }

    /// One event.
    pub fn event(&mut self, event: &Event, concluded: Option<&Concluded>) {
        match event {
            Event::Ended { .. } => {
                self.end(event, concluded);
                self.beside_the_end(event, concluded);
            }
            Event::Settled { key, receiver, next, fault } => {
                self.settled(key, receiver, *next, fault.as_deref());
            }
            Event::Fenced { id } => self.fenced(id, concluded),
        }
    }

    fn end(&mut self, event: &Event, concluded: Option<&Concluded>) {
        let Event::Ended { id, receiver, outcome, next, state, .. } = event else { return };
        let seen = concluded.and_then(Concluded::seen);
        let (step, outcome) = (next.step, outcome.as_str());
        let decision = step.word();
        let (event, message) = match state {
            State::Sent => (Repeated::Sent, "sent"),
            State::Blocked => (Repeated::Blocked, "blocked; a person must look"),
            State::Pending => (Repeated::Ended, "not settled yet"),
            State::Withdrawn => (Repeated::Ended, "stays withdrawn"),
        };
        let repeat = Repeat {
            receiver: Some(receiver),
            key: Some(&id.key),
            outcome: Some(outcome),
            reason: reason(step),
            ..Repeat::of(event)
        };
        if !self.in_full(repeat) {
            return;
        }
        // One macro call for each level: the level of a record is part of its place.
        macro_rules! record {
            ($level:ident) => {
                tracing::$level!(
                    event = event.as_str(),
                    operation.key = %id.key,
                    operation.type = kind(&id.key),
                    attempt.number = id.number,
                    receiver.name = receiver,
                    outcome,
                    decision,
                    reason = reason(step),
                    error.code = seen.and_then(|seen| seen.error_code.as_deref()),
                    http.status = seen.and_then(|seen| seen.http_status),
                    receipt = receipt(concluded),
                    duration_ms = concluded.and_then(|one| millis(one.took())),
                    "{message}"
                )
            };
        }
        if *state == State::Blocked { record!(warn) } else { record!(info) }
    }

    /// What is remarkable about the end of an attempt.
    fn beside_the_end(&mut self, event: &Event, concluded: Option<&Concluded>) {
        let Event::Ended {
            id,
            receiver,
            receipt_mismatch,
            after_withdrawal,
            retry_after_capped,
            ..
        } = event
        else {
            return;
        };
        let mut is_said = |flag: bool, event: Repeated| {
            let repeat =
                Repeat { receiver: Some(receiver), key: Some(&id.key), ..Repeat::of(event) };
            flag && self.in_full(repeat)
        };
        if is_said(*retry_after_capped, Repeated::Capped) {
            tracing::warn!(
                event = Repeated::Capped.as_str(), operation.key = %id.key,
                attempt.number = id.number, receiver.name = receiver,
                "the receiver asked for a longer pause than retry_after_ceiling allows"
            );
        }
        if is_said(*receipt_mismatch, Repeated::Mismatch) {
            tracing::error!(
                event = Repeated::Mismatch.as_str(), operation.key = %id.key,
                attempt.number = id.number, receiver.name = receiver,
                receipt = receipt(concluded),
                "the receiver gave a second, different receipt: it may hold two records"
            );
        }
        if is_said(*after_withdrawal, Repeated::AfterWithdrawal) {
            tracing::error!(
                event = Repeated::AfterWithdrawal.as_str(), operation.key = %id.key,
                attempt.number = id.number, receiver.name = receiver,
                receipt = receipt(concluded),
                "it was withdrawn, and the receiver has it all the same"
            );
        }
    }

    /// The claim found that an operation cannot be delivered.
    fn settled(&mut self, key: &str, receiver: &str, next: Next, fault: Option<&str>) {
        let repeat = |event| Repeat {
            receiver: Some(receiver),
            key: Some(key),
            reason: reason(next.step),
            ..Repeat::of(event)
        };
        match next.step {
            Step::Block(reason) if self.in_full(repeat(Repeated::Blocked)) => tracing::warn!(
                event = Repeated::Blocked.as_str(), operation.key = %key,
                operation.type = kind(key), receiver.name = receiver, decision = "block",
                reason = reason.as_str(), row = next.row.as_str(), detail = fault,
                "blocked; a person must look"
            ),
            Step::Sent if self.in_full(repeat(Repeated::Sent)) => tracing::info!(
                event = Repeated::Sent.as_str(), operation.key = %key,
                operation.type = kind(key), receiver.name = receiver, decision = "sent", "sent"
            ),
            Step::Wait { gate, .. } => tracing::debug!(
                event = "operation_waits", operation.key = %key, operation.type = kind(key),
                receiver.name = receiver, decision = "wait", reason = gate.as_str(),
                detail = fault, "not yet"
            ),
            Step::Block(_) | Step::Sent | Step::Stay | Step::Ask | Step::Deliver => {}
        }
    }

    /// An answer that changed nothing. Its receipt is kept nowhere else.
    fn fenced(&mut self, id: &AttemptId, concluded: Option<&Concluded>) {
        let outcome = concluded.map(|one| one.ending().kind().as_str());
        let (receiver, receipt) = (concluded.map(Concluded::receiver), receipt(concluded));
        let repeat =
            Repeat { receiver, key: Some(&id.key), outcome, ..Repeat::of(Repeated::Fenced) };
        if receipt.is_some() || self.in_full(repeat) {
            tracing::warn!(
                event = Repeated::Fenced.as_str(), operation.key = %id.key,
                operation.type = kind(&id.key), attempt.number = id.number,
                receiver.name = receiver, outcome, receipt,
                "the attempt had ended already; what is stored stays"
            );
        }
    }

    /// The database said no to something, which is tried again after a pause.
    pub(super) fn store_trouble(
        &mut self,
        error: &dyn Display,
        pause: Option<Duration>,
        message: &'static str,
    ) {
        if self.in_full(Repeat { error: Some(error), ..Repeat::of(Repeated::Trouble) }) {
            tracing::warn!(
                event = Repeated::Trouble.as_str(), error = %error,
                pause_ms = pause.and_then(millis), "{message}"
            );
        }
    }

    /// The database works again.
    pub(super) fn store_recovered(&mut self, lasted: Duration) {
        if self.in_full(Repeat::of(Repeated::Recovered)) {
            tracing::info!(
                event = Repeated::Recovered.as_str(),
                lasted_ms = millis(lasted),
                "the database works again"
            );
        }
    }

    /// The database is waited for at the start.
    pub fn store_unavailable(&mut self, error: &dyn Display, pause: Duration) {
        if self.in_full(Repeat { error: Some(error), ..Repeat::of(Repeated::Unavailable) }) {
            tracing::warn!(
                event = Repeated::Unavailable.as_str(), error = %error,
                pause_ms = millis(pause), "waiting for the database"
            );
        }
    }

    /// Says that the wall clock was set, if it was.
    pub fn clock_fault(&mut self, steps: Steps) {
        if steps.wall != 0 && self.in_full(Repeat::of(Repeated::ClockFault)) {
            tracing::warn!(
                event = Repeated::ClockFault.as_str(),
                step_ms = steps.wall,
                "the wall clock was set; pauses between tries move with it"
            );
        }
    }
}

/// One line for all that were not written.
fn summarise(counted: &Counted) {
    macro_rules! record {
        ($level:ident) => {
            tracing::$level!(
                event = "repeats_summarised",
                repeated = counted.event.as_str(),
                receiver.name = counted.receiver,
                count = counted.count,
                outcomes = words(&counted.outcomes),
                reasons = words(&counted.reasons),
                operation.key = counted.key,
                error = counted.error,
                lasted_ms = millis(counted.lasted),
                "so many more of these, of which the key is the first and the error the last"
            )
        };
    }
    match counted.event.level() {
        tracing::Level::ERROR => record!(error),
        tracing::Level::WARN => record!(warn),
        _ => record!(info),
    }
}

/// Words with their counts, as text; `None` if there are none.
fn words(counts: &BTreeMap<&'static str, u64>) -> Option<String> {
    let words: Vec<String> = counts.iter().map(|(word, count)| format!("{word} {count}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn count(event: &Event, counts: &Counts) {
    let step = match event {
        Event::Ended { next, .. } | Event::Settled { next, .. } => next.step,
        Event::Fenced { .. } => return,
    };
    match step {
        Step::Sent => counts.sent.fetch_add(1, Ordering::Relaxed),
        Step::Block(_) => counts.blocked.fetch_add(1, Ordering::Relaxed),
        Step::Stay | Step::Wait { .. } | Step::Ask | Step::Deliver => return,
    };
}

/// The name of the type that a key names, if it can be read.
pub(super) fn kind(key: &str) -> Option<String> {
    OperationKey::parse(key).ok().map(|key| key.kind().to_owned())
}

fn reason(step: Step) -> Option<&'static str> {
    match step {
        Step::Block(reason) => Some(reason.as_str()),
        Step::Wait { gate, .. } => Some(gate.as_str()),
        Step::Sent | Step::Stay | Step::Ask | Step::Deliver => None,
    }
}

/// Whole milliseconds, for a log field.
pub(super) fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

/// The receipt of an attempt.
pub(super) fn receipt(concluded: Option<&Concluded>) -> Option<&str> {
    match concluded?.ending() {
        Ending::Outcome(
            Outcome::Applied { remote_id, .. } | Outcome::AlreadyExists { remote_id },
        )
        | Ending::LookedUp(Finding::Found { remote_id, .. }) => remote_id.as_deref(),
        Ending::Outcome(_) | Ending::LookedUp(_) | Ending::Interrupted { .. } | Ending::CutOff => {
            None
        }
    }
}
