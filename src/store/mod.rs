//! The durable record: what a store promises, whatever the database.
//!
//! A store makes an [`Attempt`] only after its commit has returned, and takes
//! back a [`Concluded`]. It never makes a remote call and never hands out a
//! transaction, so none can be open while something is waited for.
//!
//! # Example: a transaction held while something is waited for
//!
//! The compiler refuses a task that does so: a transaction cannot be sent
//! between threads.
//!
//! ```compile_fail
//! # use rusqlite::Connection;
//! async fn call_the_receiver() {}
//!
//! fn deliver(mut db: Connection) {
//!     tokio::spawn(async move {
//!         {
//!             let tx = db.transaction().expect("it begins");
//!             tx.execute("DELETE FROM notes", []).expect("it is written");
//!             call_the_receiver().await;
//!             tx.commit().expect("it ends");
//!         }
//!     });
//! }
//! ```
//!
//! # Example: one that has ended before
//!
//! ```
//! # use rusqlite::Connection;
//! async fn call_the_receiver() {}
//!
//! fn deliver(mut db: Connection) {
//!     tokio::spawn(async move {
//!         {
//!             let tx = db.transaction().expect("it begins");
//!             tx.execute("DELETE FROM notes", []).expect("it is written");
//!             tx.commit().expect("it ends");
//!         }
//!         call_the_receiver().await;
//!     });
//! }
//! ```

mod attempt;
mod rows;
pub mod sqlite;

pub use attempt::{Attempt, AttemptId, Concluded};
pub use rows::{AttemptRow, Filter, HoldAct, OperationRow, ReceiverCounts, Summary};

use crate::clock::{Now, SteadyMark, Steps, Timestamp};
use crate::outbox::hold::Hold;
use crate::outbox::key::OperationKey;
use crate::outbox::operation::Operation;
use crate::outbox::outcome::OutcomeKind;
use crate::outbox::policy::Next;
use crate::outbox::rules::Rules;
use crate::outbox::state::State;
use crate::outbox::verbs::{Deed, Refusal};
use crate::process::ProcessGroup;
use crate::record::{RecordError, Recorded};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where the database is, and how patient to be with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `sqlite:PATH`.
    pub url: String,
    /// How long a write waits for another writer before it reports "busy".
    pub busy_timeout: Duration,
    /// Someone chose the place; a folder that is missing there is not made.
    pub explicit: bool,
}

/// What one pass of the supervisor asks of the store.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Attempts that have ended. Saved first.
    pub concluded: Arc<Vec<Arc<Concluded>>>,
    /// How many attempts may begin, by receiver.
    pub slots: BTreeMap<String, Slots>,
}

/// Room at one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Calls that may begin.
    pub free: usize,
    /// One of them may be a suspect: an operation that was in flight at a crash.
    pub suspect: bool,
}

/// What one pass did.
#[derive(Debug, Default)]
pub struct Passed {
    /// Attempts that have begun; each is committed and synced.
    pub begun: Vec<Attempt>,
    /// What changed, for the log.
    pub events: Vec<Event>,
    /// When the next operation of a receiver with room falls due.
    pub next_due: Option<Timestamp>,
    /// More is due than fitted.
    pub more: bool,
    /// The receivers that are held, of which nothing has begun.
    pub held: Vec<Hold>,
}

/// A change that is worth a line in the log.
#[derive(Clone, Debug)]
pub enum Event {
    /// An attempt ended, and this follows.
    Ended {
        /// The attempt.
        id: AttemptId,
        /// The receiver's name.
        receiver: String,
        /// How it ended.
        outcome: OutcomeKind,
        /// What follows.
        next: Next,
        /// The state now.
        state: State,
        /// It had a receipt already, and this is another one.
        receipt_mismatch: bool,
        /// A person had taken it back, and the receiver has it all the same.
        after_withdrawal: bool,
        /// The receiver asked for a longer pause than is believed.
        retry_after_capped: bool,
    },
    /// The claim found that an operation cannot be delivered.
    Settled {
        /// The operation.
        key: String,
        /// The receiver's name.
        receiver: String,
        /// What follows.
        next: Next,
        /// What is wrong with it, if anything is.
        fault: Option<String>,
    },
    /// The attempt was not ours any more, and nothing was changed.
    Fenced {
        /// The attempt.
        id: AttemptId,
    },
}

/// What was found and ended at the start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// By how much the clocks were set since the earlier process.
    pub steps: Steps,
    /// Attempts whose process is gone.
    pub interrupted: Vec<Event>,
    /// Retries that lay impossibly far ahead and were brought forward.
    pub brought_forward: usize,
}

/// When the configured names take the place of the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// Always: the caller's configuration is the one in force.
    Replace,
    /// Only where none are stored.
    IfEmpty,
}

/// A person's act on one operation.
#[derive(Clone, Debug)]
pub struct Act {
    /// The operation.
    pub key: String,
    /// What to do.
    pub deed: Deed,
    /// The version that the person saw.
    pub version: u64,
    /// Who acts.
    pub who: String,
    /// Why, or on what evidence.
    pub reason: Option<String>,
}

/// What became of a person's act.
#[derive(Clone, Debug)]
pub enum Acted {
    /// Done; the operation as it is now.
    Done(Box<OperationRow>, Next),
    /// There is no such operation.
    NoSuchKey,
    /// The operation has changed since the person saw it.
    Moved(Box<OperationRow>),
    /// The verb does not apply.
    Refused(Box<OperationRow>, Refusal),
    /// Its type or its receiver is not configured here.
    NotConfigured(Box<OperationRow>),
}

/// A durable record of operations.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Saves what has concluded, then begins what is due and fits, in one transaction.
    ///
    /// When it returns, both are durable. Saving the same conclusion again
    /// changes nothing. After an error nothing of the pass may be taken as
    /// done: repeat it, and [`Store::disown`] what may have begun.
    async fn pass(&self, rules: &Arc<Rules>, pass: Pass, now: Now) -> Result<Passed, StoreError>;

    /// Waits as long as it pays to wait for what is about to end, so that one pass
    /// takes it along.
    async fn ready(&self) {}

    /// Moves everything to where the clocks stand now, and ends every open attempt of
    /// an earlier process as interrupted, in one transaction.
    ///
    /// The commands that such attempts started have been ended before. Without a mark
    /// the clocks are taken for never set.
    async fn recover(
        &self,
        rules: &Arc<Rules>,
        mark: Option<&SteadyMark>,
        now: Now,
    ) -> Result<Recovered, StoreError>;

    /// Ends open attempts of this process that it does not hold: they were
    /// committed, but their call never began.
    async fn disown(
        &self,
        rules: &Arc<Rules>,
        holding: Vec<AttemptId>,
        now: Now,
    ) -> Result<Vec<Event>, StoreError>;

    /// Moves with the clocks what was stamped before they were set: a pause lasts
    /// as long as it would have lasted, and what was due is due. Returns the steps
    /// since the mark that is stored, in whose place this one is stored.
    async fn mind_steps(
        &self,
        rules: &Arc<Rules>,
        mark: &SteadyMark,
        now: Now,
    ) -> Result<Steps, StoreError>;

    /// Stores the process group of a command before it may begin its work.
    async fn note_process(
        &self,
        attempt: &AttemptId,
        group: &ProcessGroup,
    ) -> Result<(), StoreError>;

    /// The process groups of open attempts of earlier processes.
    async fn left_processes(&self) -> Result<Vec<(AttemptId, ProcessGroup)>, StoreError>;

    /// Records an approved operation in a transaction of its own. Its payload is
    /// as its type would have it.
    ///
    /// The inner result is the recording's own; the outer error says that the
    /// store could not try, or that it is not known whether it succeeded.
    async fn record(
        &self,
        rules: &Arc<Rules>,
        operation: Operation,
    ) -> Result<Result<Recorded, RecordError>, StoreError>;

    /// A key recorded for the same subject under another version of its type.
    async fn other_version(&self, key: &OperationKey) -> Result<Option<String>, StoreError>;

    /// Does what a person asked, if the operation has not moved on.
    async fn act(&self, rules: &Arc<Rules>, act: Act, now: Now) -> Result<Acted, StoreError>;

    /// Holds receivers until somebody lets them go. What is under way ends as it may.
    /// Returns the pauses in force, of which some may be older.
    async fn pause(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError>;

    /// Ends every hold of these receivers. Returns those that have ended.
    async fn resume(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError>;

    /// The holds in force, by receiver.
    async fn holds(&self, now: Now) -> Result<Vec<Hold>, StoreError>;

    /// Makes the names of receivers and types known to the recording triggers,
    /// and releases what waited for its type or receiver to be configured.
    async fn mirror(&self, rules: &Arc<Rules>, how: Mirror) -> Result<(), StoreError>;

    /// One operation.
    async fn find(&self, key: &str) -> Result<Option<OperationRow>, StoreError>;

    /// Its attempts, oldest first.
    async fn history(&self, key: &str) -> Result<Vec<AttemptRow>, StoreError>;

    /// Operations in order of recording.
    async fn list(&self, filter: Filter) -> Result<Vec<OperationRow>, StoreError>;

    /// Counts and ages, by receiver.
    async fn summary(&self, now: Now) -> Result<Summary, StoreError>;

    /// Where the clocks stood when the last group was committed.
    async fn steady_mark(&self) -> Result<Option<SteadyMark>, StoreError>;

    /// Keeps the clocks' mark; committed with the next pass. Between it and the one
    /// before no clock was set, or [`Store::mind_steps`] has been told.
    fn keep_mark(&self, mark: SteadyMark);

    /// Looks after what grows beside the database. Waits for nobody.
    async fn upkeep(&self) -> Result<Upkeep, StoreError>;

    /// Tidies up before the process ends. Nothing durable depends on it.
    async fn close(&self) -> Result<(), StoreError>;
}

/// What the upkeep has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing is larger than it should be.
    Fine,
    /// The log of what was committed stays large: somebody reads an old state of
    /// the database, or it cannot be written.
    LargeLog {
        /// Its size.
        bytes: u64,
    },
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer held the database for too long. Nothing was changed.
    #[error("the database is busy; another program holds its write lock")]
    Busy(#[source] rusqlite::Error),
    /// The disk is full. Nothing was changed.
    #[error("the database's disk is full")]
    Full(#[source] rusqlite::Error),
    /// It cannot be known whether the commit took place; read by key.
    #[error("the database failed at the commit ({0}); what was written may or may not be there")]
    CommitUnknown(#[source] rusqlite::Error),
    /// The database cannot be opened or used for now.
    #[error("cannot use the database {place}: {problem}")]
    Unavailable {
        /// Its path.
        place: String,
        /// What is in the way, and what to do.
        problem: String,
    },
    /// The database is nothing that this program may touch.
    #[error("cannot use the database {place}: {problem}")]
    Unusable {
        /// Its path.
        place: String,
        /// Why not, and what to do.
        problem: String,
    },
    /// A daemon serves the database already.
    #[error("another daemon serves {place} ({holder})")]
    InUse {
        /// Its path.
        place: String,
        /// What is known of the other daemon.
        holder: String,
    },
    /// Anything else that the database said. Nothing was changed.
    #[error("the database failed: {0}")]
    Database(#[source] rusqlite::Error),
    /// The outcomes of a pass were saved, its claim was not.
    #[error("what is due could not be claimed: {source}")]
    ClaimFailed {
        /// What the outcomes changed.
        saved: Vec<Event>,
        /// Why the claim failed.
        source: Box<StoreError>,
    },
    /// The attempt has ended, or is not ours.
    #[error("the attempt is not open any more")]
    NotOpen,
    /// The thread of the connection is gone.
    #[error("the connection to the database is closed")]
    Closed,
}
