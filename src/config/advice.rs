//! Advice: what is allowed, and still worth a word.

use super::Settings;
use super::duration::show;
use crate::outbox::contract::{Repeat, Verified, Window};
use crate::outbox::retry::Delays;
use crate::receiver::{self, Kind};

/// What to say of these settings.
pub(super) fn of(settings: &Settings) -> Vec<String> {
    settings.receivers.iter().flat_map(of_receiver).collect()
}

fn of_receiver(receiver: &receiver::Settings) -> Vec<String> {
    let said = [simulated(receiver), horizon(receiver), unverified(receiver), no_retry(receiver)];
    said.into_iter().flatten().collect()
}

fn simulated(receiver: &receiver::Settings) -> Option<String> {
    let name = &receiver.name;
    match receiver.kind {
        Kind::Simulated(_) => {
            Some(format!("receivers.{name} is simulated: what is delivered there reaches nobody"))
        }
        Kind::Command(_) | Kind::Http(_) => None,
    }
}

/// Retries that go on after the receiver has forgotten the key.
fn horizon(receiver: &receiver::Settings) -> Option<String> {
    let Repeat::Within(Window::For(window)) = receiver.contract.repeat else { return None };
    let (name, elapsed) = (&receiver.name, receiver.retry.max_elapsed);
    (elapsed > window).then(|| {
        format!(
            "receivers.{name}.retry.max_elapsed = {} is longer than the contract's window of {}: \
             an operation whose outcome is still unknown then is blocked, not repeated",
            show(elapsed),
            show(window)
        )
    })
}

/// A promise that nobody has looked into, of a program that may do anything.
fn unverified(receiver: &receiver::Settings) -> Option<String> {
    let contract = &receiver.contract;
    let repeats = matches!(contract.repeat, Repeat::Within(_));
    let command = matches!(receiver.kind, Kind::Command(_));
    (repeats && command && contract.verified == Verified::No).then(|| {
        format!(
            "receivers.{}.contract.mode = {} is not verified: if the program does not keep it, a \
             repeat acts twice; try it with one key twice, then set verified = \"probe\"",
            receiver.name, contract.mode
        )
    })
}

/// A budget that ends before the first retry.
fn no_retry(receiver: &receiver::Settings) -> Option<String> {
    let first = match &receiver.retry.delays {
        Delays::Exponential { initial, .. } => *initial,
        Delays::Schedule(delays) => delays.first().copied()?,
    };
    let (name, elapsed) = (&receiver.name, receiver.retry.max_elapsed);
    (elapsed < first).then(|| {
        format!(
            "receivers.{name}.retry.max_elapsed = {} is shorter than the first delay of {}: the \
             budget may end before a second attempt",
            show(elapsed),
            show(first)
        )
    })
}
