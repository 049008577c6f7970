//! What a pass changed, as log records.

use super::Counts;
use super::repeats::Repeats;
use crate::outbox::outcome::{Ending, Outcome};
use crate::outbox::policy::Step;
use crate::outbox::state::State;
use crate::store::{Concluded, Event};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Logs the events of a pass and counts them. Returns how many are ends of attempts.
pub(super) fn log_events(
    events: &[Event],
    concluded: &[Arc<Concluded>],
    counts: &Counts,
    repeats: &mut Repeats,
) -> usize {
    let mut ends = 0;
    for event in events {
        let one = match event {
            Event::Ended { id, .. } | Event::Fenced { id } => {
                ends += 1;
                concluded.iter().find(|one| one.id() == id)
            }
            Event::Settled { .. } => None,
        };
        count(event, counts);
        let one = one.map(Arc::as_ref);
        if repeats.admits(event, one) {
            log_event(event, one);
        }
    }
    ends
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

/// Writes one event to the log.
pub fn log_event(event: &Event, concluded: Option<&Concluded>) {
    match event {
        Event::Ended {
            id,
            next,
            state,
            receipt_mismatch,
            after_withdrawal,
            retry_after_capped,
        } => {
            log_end(id, next.step, *state, concluded);
            if *retry_after_capped {
                tracing::warn!(
                    event = "retry_after_capped", operation.key = %id.key,
                    attempt.number = id.number,
                    receiver.name = concluded.map(Concluded::receiver),
                    "the receiver asked for a longer pause than retry_after_ceiling allows"
                );
            }
            if *receipt_mismatch {
                tracing::error!(
                    event = "receipt_mismatch", operation.key = %id.key,
                    attempt.number = id.number, receipt = receipt(concluded),
                    "the receiver gave a second, different receipt: it may hold two records"
                );
            }
            if *after_withdrawal {
                tracing::error!(
                    event = "effect_after_withdrawal", operation.key = %id.key,
                    attempt.number = id.number, receipt = receipt(concluded),
                    "it was withdrawn, and the receiver has it all the same"
                );
            }
        }
        Event::Settled { key, next, fault } => match next.step {
            Step::Block(reason) => tracing::warn!(
                event = "operation_blocked", operation.key = ?key, decision = "block",
                reason = reason.as_str(), row = next.row.as_str(),
                detail = fault.as_deref(), "blocked; a person must look"
            ),
            Step::Wait { gate, .. } => tracing::debug!(
                event = "operation_waits", operation.key = ?key, decision = "wait",
                gate = gate.as_str(), detail = fault.as_deref(), "not yet"
            ),
            Step::Sent => tracing::info!(
                event = "operation_sent", operation.key = ?key, decision = "sent", "sent"
            ),
            Step::Stay | Step::Ask | Step::Deliver => {}
        },
        Event::Fenced { id } => tracing::warn!(
            event = "outcome_fenced", operation.key = %id.key, attempt.number = id.number,
            outcome = concluded.map(|one| one.ending().kind().as_str()),
            receipt = receipt(concluded),
            "the attempt had ended already; what is stored stays"
        ),
    }
}

fn log_end(id: &crate::store::AttemptId, step: Step, state: State, concluded: Option<&Concluded>) {
    let report = concluded.and_then(Concluded::report);
    let decision = step.word();
    let outcome = concluded.map_or("interrupted", |one| one.ending().kind().as_str());
    let duration_ms =
        concluded.map(|one| u64::try_from(one.took().as_millis()).unwrap_or(u64::MAX));
    // One macro call for each level: the level of a record is part of its place.
    macro_rules! record {
        ($level:ident, $event:literal, $message:literal) => {
            tracing::$level!(
                event = $event,
                operation.key = %id.key,
                operation.type = concluded.map(Concluded::kind),
                attempt.number = id.number,
                receiver.name = concluded.map(Concluded::receiver),
                outcome,
                decision,
                reason = reason(step),
                error.code = report.and_then(|report| report.error_code.as_deref()),
                http.status = report.and_then(|report| report.http_status),
                receipt = receipt(concluded),
                duration_ms,
                $message
            )
        };
    }
    match state {
        State::Sent => record!(info, "operation_sent", "sent"),
        State::Blocked => record!(warn, "operation_blocked", "blocked; a person must look"),
        State::Pending => record!(info, "attempt_ended", "not settled yet"),
        State::Withdrawn => record!(info, "attempt_ended", "stays withdrawn"),
    }
}

fn reason(step: Step) -> Option<&'static str> {
    match step {
        Step::Block(reason) => Some(reason.as_str()),
        Step::Wait { gate, .. } => Some(gate.as_str()),
        Step::Sent | Step::Stay | Step::Ask | Step::Deliver => None,
    }
}

/// The receipt of an attempt.
pub(super) fn receipt(concluded: Option<&Concluded>) -> Option<&str> {
    match concluded?.ending() {
        Ending::Outcome(
            Outcome::Applied { remote_id, .. } | Outcome::AlreadyExists { remote_id },
        ) => remote_id.as_deref(),
        Ending::Outcome(_) | Ending::Interrupted { .. } | Ending::CutOff => None,
    }
}
