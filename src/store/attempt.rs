//! [`Attempt`] and [`Concluded`]: the only way to a receiver and back.

use crate::clock::{Now, Steps, Timestamp};
use crate::outbox::facts::{AttemptKind, RequestFingerprint};
use crate::outbox::key::OperationKey;
use crate::outbox::look_up::LookUpReport;
use crate::outbox::outcome::{Ending, Report, Seen};
use crate::store::rows::Loaded;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which attempt: of which operation, and the how manyth.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The operation's key, as stored.
    pub key: Arc<str>,
    /// Its number within the operation, from 1.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt {}", self.key, self.number)
    }
}

/// A delivery or a look-up that is on disk and may begin.
///
/// Only a store makes one, after its commit has returned; only [`conclude`]
/// ends one. One that is dropped stays open on disk and counts as a lost reply.
///
/// [`conclude`]: Attempt::conclude
///
/// # Example: none can be made elsewhere
///
/// ```compile_fail,E0624
/// fn anything<T>() -> T {
///     unreachable!("this never compiles")
/// }
/// let attempt = handoff::store::Attempt::committed(anything());
/// ```
///
/// # Example: one comes from a pass of a store
///
/// ```
/// fn begun(passed: handoff::store::Passed) -> Vec<handoff::store::Attempt> {
///     passed.begun
/// }
/// ```
#[must_use = "an attempt that is dropped counts as a lost reply"]
#[derive(Debug)]
pub struct Attempt {
    begun: Begun,
}

/// What a store knows of an attempt that it has begun.
#[derive(Clone, Debug)]
pub(in crate::store) struct Begun {
    pub(in crate::store) id: AttemptId,
    pub(in crate::store) kind: AttemptKind,
    pub(in crate::store) key: OperationKey,
    pub(in crate::store) payload: String,
    pub(in crate::store) request: RequestFingerprint,
    pub(in crate::store) started: Now,
    pub(in crate::store) instance: Arc<str>,
    /// The operation as the beginning has left it.
    pub(in crate::store) operation: Loaded,
}

impl Attempt {
    /// Only a store makes one, after its commit has returned.
    pub(in crate::store) fn committed(begun: Begun) -> Self {
        Self { begun }
    }

    /// Which attempt it is.
    pub fn id(&self) -> &AttemptId {
        &self.begun.id
    }

    /// What it does.
    pub fn kind(&self) -> AttemptKind {
        self.begun.kind
    }

    /// The operation key, the same on every attempt.
    pub fn key(&self) -> &OperationKey {
        &self.begun.key
    }

    /// The receiver's name.
    pub fn receiver(&self) -> &str {
        &self.begun.operation.row.receiver
    }

    /// The canonical payload, the same on every attempt.
    pub fn payload(&self) -> &str {
        &self.begun.payload
    }

    /// The how manyth delivery of the operation this is, from 1; for a look-up,
    /// how many there were.
    pub fn delivery(&self) -> u32 {
        self.begun.operation.row.attempts
    }

    /// The how manyth look-up since the last delivery this is, from 1.
    pub fn look_up(&self) -> u32 {
        self.begun.operation.row.facts.asks
    }

    /// The operation was in flight at a crash and is tried alone.
    pub fn is_suspect(&self) -> bool {
        self.begun.operation.suspect
    }

    /// When it was committed.
    pub fn started(&self) -> Timestamp {
        self.begun.started.wall
    }

    /// Ends the attempt with what the receiver's adapter reported.
    pub fn conclude(self, report: Report, ended: Now, took: Duration) -> Concluded {
        let ending = Ending::Outcome(report.outcome.clone().heard_at(ended.wall));
        Concluded { begun: self.begun, ending, seen: Some(report.into()), ended, took }
    }

    /// Ends a look-up with what the receiver's adapter reported.
    pub fn conclude_look_up(self, report: LookUpReport, ended: Now, took: Duration) -> Concluded {
        let ending = Ending::LookedUp(report.finding.clone().heard_at(ended.wall));
        Concluded { begun: self.begun, ending, seen: Some(report.into()), ended, took }
    }

    /// Ends the attempt because this process stops and waits no longer.
    pub fn cut_off(self, ended: Now, took: Duration) -> Concluded {
        Concluded { begun: self.begun, ending: Ending::CutOff, seen: None, ended, took }
    }
}

const _: () = {
    const fn owned<T: Send + Sync + 'static>() {}
    owned::<Attempt>();
};

/// An attempt that has ended, not yet saved.
#[must_use = "an outcome that is not saved is lost"]
#[derive(Clone, Debug)]
pub struct Concluded {
    pub(in crate::store) begun: Begun,
    pub(in crate::store) ending: Ending,
    pub(in crate::store) seen: Option<Seen>,
    pub(in crate::store) ended: Now,
    pub(in crate::store) took: Duration,
}

impl Concluded {
    /// Which attempt it was.
    pub fn id(&self) -> &AttemptId {
        &self.begun.id
    }

    /// The receiver's name.
    pub fn receiver(&self) -> &str {
        &self.begun.operation.row.receiver
    }

    /// The name of the operation's type.
    pub fn kind(&self) -> &str {
        self.begun.key.kind()
    }

    /// The operation was in flight at a crash and was tried alone.
    pub fn is_suspect(&self) -> bool {
        self.begun.operation.suspect
    }

    /// How it ended.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// What the adapter saw beside the end; `None` if our own stop ended the wait.
    pub fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    /// Moves its end to where the clocks stand after these steps.
    pub fn move_by(&mut self, steps: Steps) {
        self.ended = steps.after(self.ended);
    }

    /// How long the call took.
    pub fn took(&self) -> Duration {
        self.took
    }
}
