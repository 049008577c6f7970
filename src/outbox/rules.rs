//! Rules: the configured types and receivers, as far as the policy needs them.

use super::breaker;
use super::facts::{Facts, RequestFingerprint};
use super::key::OperationKey;
use super::operation_type::{OperationType, TypeError};
use super::payload::{Fingerprint, Payload, read_object};
use super::policy::{self, Next, Surroundings, Terms};
use super::rate;
use crate::clock::{Now, Timestamp};
use crate::jitter::Seed;
use std::collections::BTreeMap;

/// Everything configured that decides about operations. Replaced as a whole.
#[derive(Clone, Debug)]
pub struct Rules {
    /// By name and version.
    pub types: BTreeMap<(String, u16), OperationType>,
    /// By name.
    pub receivers: BTreeMap<String, ReceiverRules>,
    /// Seed of the jitter.
    pub seed: Seed,
}

/// A receiver, as far as the policy needs it.
#[derive(Clone, Debug)]
pub struct ReceiverRules {
    /// What decides about repeats.
    pub terms: Terms,
    /// What makes it the same account: the place that operations are sent to.
    pub identity: String,
    /// What makes it the same request: how it is made from an operation, as configured.
    pub request_form: String,
    /// What protects it.
    pub protection: Protection,
}

/// What protects a receiver as a whole. By default nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// When it is left alone because it is down.
    pub breaker: Option<breaker::Settings>,
    /// How many calls may begin in a time.
    pub rate: Option<rate::Settings>,
}

/// What is stored of an operation and does not change once it is prepared.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The key as stored.
    pub key: String,
    /// The receiver's name.
    pub receiver: String,
    /// The payload as recorded, or its canonical form once that is known;
    /// `None` if it was pruned.
    pub payload: Option<String>,
    /// SHA-256 of the canonical form; `None` until the daemon has prepared it.
    pub fingerprint: Option<Fingerprint>,
    /// When it was recorded and approved.
    pub recorded_at: Timestamp,
    /// Not to be delivered before.
    pub deliver_after: Option<Timestamp>,
    /// A key recorded earlier for the same subject under another version.
    pub other_version: Option<String>,
    /// What could not be read of the row.
    pub damage: Option<String>,
}

/// An operation seen under the rules.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What the policy needs to know from outside the facts.
    pub around: Surroundings,
    /// What would be delivered; `None` if it cannot be.
    pub ready: Option<Ready>,
    /// What is wrong with it.
    pub fault: Option<String>,
}

/// An operation that may be delivered as it is.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its key.
    pub key: OperationKey,
    /// The canonical payload.
    pub payload: String,
    /// SHA-256 of it.
    pub fingerprint: Fingerprint,
}

/// Of a receiver that is not configured.
static UNDECLARED: Terms = Terms::UNDECLARED;

impl Rules {
    /// The terms of a receiver. One that is not configured promises nothing.
    pub fn terms(&self, receiver: &str) -> &Terms {
        self.receivers.get(receiver).map_or(&UNDECLARED, |rules| &rules.terms)
    }

    /// The type of a key, in the version that the key names.
    pub fn type_of(&self, key: &OperationKey) -> Option<&OperationType> {
        self.types.get(&(key.kind().to_owned(), key.version()))
    }

    /// What follows from an operation's facts. The operation itself is looked at only
    /// where they do not settle it, since that takes its payload and a digest.
    pub fn follow(&self, facts: &Facts, recorded: &Recorded, now: Now) -> (Next, Option<Judged>) {
        if let Some(next) = policy::settled(facts) {
            return (next, None);
        }
        let judged = self.judge(recorded, now);
        let next = policy::next(facts, &judged.around, self.terms(&recorded.receiver), now);
        (next, Some(judged))
    }

    /// Sees a recorded operation under these rules.
    pub fn judge(&self, recorded: &Recorded, now: Now) -> Judged {
        let parsed = OperationKey::parse(&recorded.key);
        let kind = parsed.as_ref().ok().and_then(|key| self.type_of(key));
        let receiver = self.receivers.get(&recorded.receiver);
        let ready = match (&parsed, kind) {
            (Ok(key), Some(kind)) => ready(recorded, key, kind),
            (Ok(_), None) => Err("its type is not configured in this version".to_owned()),
            (Err(error), _) => Err(error.to_string()),
        };
        let request = match (&ready, receiver) {
            (Ok(ready), Some(receiver)) => request(receiver, ready),
            (Ok(_), None) | (Err(_), _) => RequestFingerprint(String::new()),
        };
        let expired = kind
            .and_then(|kind| kind.approval_max_age)
            .is_some_and(|age| now.wall > recorded.recorded_at.plus(age));
        let (ready, fault) = match ready {
            Ok(ready) => (Some(ready), None),
            Err(fault) => (None, Some(fault)),
        };
        let around = Surroundings {
            // A key that cannot be read is the row's fault, not the configuration's.
            configured: receiver.is_some() && (kind.is_some() || parsed.is_err()),
            valid: ready.is_some(),
            approval_expired: expired,
            deliver_after: recorded.deliver_after,
            request,
        };
        Judged { around, ready, fault }
    }
}

/// The payload that would be delivered, or what is wrong.
fn ready(recorded: &Recorded, key: &OperationKey, kind: &OperationType) -> Result<Ready, String> {
    if let Some(damage) = &recorded.damage {
        return Err(damage.clone());
    }
    let text = recorded.payload.as_deref().ok_or("its payload is no longer kept")?;
    if kind.receiver != recorded.receiver {
        return Err(format!(
            "its type goes to the receiver {}, but it was recorded for {}",
            kind.receiver, recorded.receiver
        ));
    }
    if let Some(known) = &recorded.fingerprint {
        // Prepared earlier, and frozen since: only damage can make it unfit.
        if Fingerprint::of(text) != *known {
            return Err("its payload no longer fits its fingerprint".to_owned());
        }
        let (payload, fingerprint) = (text.to_owned(), known.clone());
        return Ok(Ready { key: key.clone(), payload, fingerprint });
    }
    if let (Some(other), false) = (&recorded.other_version, kind.independent_versions) {
        return Err(format!(
            "the same subject was recorded as {other}; another version is no way round it"
        ));
    }
    let payload = prepare(text, key, kind).map_err(|error| error.to_string())?;
    let fingerprint = payload.fingerprint();
    Ok(Ready { key: key.clone(), payload: payload.into_canonical(), fingerprint })
}

fn prepare(text: &str, key: &OperationKey, kind: &OperationType) -> Result<Payload, TypeError> {
    let payload = kind.prepare(read_object(text)?)?;
    kind.check_subject(key, &payload)?;
    Ok(payload)
}

/// The fingerprint of the request that a delivery made now would carry.
fn request(receiver: &ReceiverRules, ready: &Ready) -> RequestFingerprint {
    let contract = &receiver.terms.contract;
    let account = if contract.same_account { "" } else { receiver.identity.as_str() };
    let mode = contract.mode.as_str();
    let mut parts = vec![account, mode, ready.key.as_str(), ready.fingerprint.as_str()];
    if !receiver.request_form.is_empty() {
        parts.push(&receiver.request_form);
    }
    RequestFingerprint(Fingerprint::of(&parts.join("\n")).as_str().to_owned())
}
