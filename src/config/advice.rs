//! Advice: what is allowed, and still worth a word.

use super::Settings;
use super::duration::show;
use crate::outbox::contract::{Repeat, Verified, Window};
use crate::outbox::retry::Delays;
use crate::receiver::http::Scheme;
use crate::receiver::{self, Kind};

/// What to say of these settings.
pub(super) fn of(settings: &Settings) -> Vec<String> {
    settings.receivers.iter().flat_map(of_receiver).collect()
}

fn of_receiver(receiver: &receiver::Settings) -> Vec<String> {
    let said = [
        simulated(receiver),
        in_the_clear(receiver),
        status_alone(receiver),
        horizon(receiver),
        unverified(receiver),
        no_retry(receiver),
    ];
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

/// Requests that anyone on the way can read and change.
fn in_the_clear(receiver: &receiver::Settings) -> Option<String> {
    let Kind::Http(http) = &receiver.kind else { return None };
    let exposed = http.address.scheme == Scheme::Http && !http.address.is_loopback();
    exposed.then(|| {
        let name = &receiver.name;
        format!(
            "receivers.{name}.base_url is without TLS: anyone on the way can read and change it"
        )
    })
}

/// A receiver that may answer 200 to say that it has failed.
fn status_alone(receiver: &receiver::Settings) -> Option<String> {
    let Kind::Http(http) = &receiver.kind else { return None };
    (http.reading.receipt.is_none() && http.reading.rules.is_empty()).then(|| {
        format!(
            "receivers.{} has neither receipt nor rules: every 2xx is taken for a success, \
             whatever the answer says",
            receiver.name
        )
    })
}

/// A promise that nobody has looked into.
fn unverified(receiver: &receiver::Settings) -> Option<String> {
    let contract = &receiver.contract;
    let repeats = matches!(contract.repeat, Repeat::Within(_));
    let real = !matches!(receiver.kind, Kind::Simulated(_));
    (repeats && real && contract.verified == Verified::No).then(|| {
        format!(
            "receivers.{}.contract.mode = {} is not verified: if it is not kept, a repeat \
             acts twice; try it with one key twice, then set verified = \"probe\"",
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
