//! [`Attempt`] and [`Concluded`]: the only way to a receiver and back.

use crate::clock::{Now, Steps, Timestamp};
use crate::outbox::facts::RequestFingerprint;
use crate::outbox::key::OperationKey;
use crate::outbox::outcome::{Ending, Report};
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

/// A delivery that is on disk and may begin.
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

/// What a store knows of a delivery that it has begun.
#[derive(Clone, Debug)]
pub(in crate::store) struct Begun {
    pub(in crate::store) id: AttemptId,
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

    /// The how manyth delivery of the operation this is, from 1.
    pub fn delivery(&self) -> u32 {
        self.begun.operation.row.attempts
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
        Concluded { begun: self.begun, ending, report: Some(report), ended, took }
    }

    /// Ends the attempt because this process stops and waits no longer.
    pub fn cut_off(self, ended: Now, took: Duration) -> Concluded {
        Concluded { begun: self.begun, ending: Ending::CutOff, report: None, ended, took }
    }
}

const _: () = {
    const fn owned<T: Send + Sync + 'static>() {}
    owned::<Attempt>();
};

/// A delivery that has ended, not yet saved.
#[must_use = "an outcome that is not saved is lost"]
#[derive(Clone, Debug)]
pub struct Concluded {
    pub(in crate::store) begun: Begun,
    pub(in crate::store) ending: Ending,
    pub(in crate::store) report: Option<Report>,
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

    /// What the adapter reported; `None` if our own stop ended the wait.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
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
