//! Rows as people and programs see them: the public columns, under their names.

use crate::clock::Timestamp;
use crate::outbox::facts::{AttemptKind, Facts};
use crate::outbox::hold::Hold;
use crate::outbox::outcome::OutcomeKind;
use crate::outbox::rules::Recorded;
use crate::outbox::state::{BlockReason, Effect, State};
use serde::Serialize;

/// One operation, with the columns of `handoff_outbox` and what `handoff_approvals` adds.
#[derive(Clone, Debug, Serialize)]
pub struct OperationRow {
    /// Its key.
    pub operation_key: String,
    /// Where it goes.
    pub receiver: String,
    /// Where it stands.
    pub state: State,
    /// Why a person must look, if blocked.
    pub blocked_reason: Option<BlockReason>,
    /// What is known of the receiver.
    pub effect: Effect,
    /// Deliveries begun.
    pub attempts: u32,
    /// When it is looked at next; `None` if it waits for something without a time.
    pub due_at: Option<Timestamp>,
    /// When the first delivery began.
    pub first_attempt_at: Option<Timestamp>,
    /// The receipt.
    pub remote_id: Option<String>,
    /// Who or what settled it.
    pub settled_by: Option<String>,
    /// What went wrong last; cleared by success.
    pub last_error: Option<String>,
    /// The number of facts; a verb names the version that the person saw.
    pub version: u64,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// When the receipt was stored.
    pub sent_at: Option<Timestamp>,
    /// Who approved it.
    pub approved_by: String,
    /// Not to be delivered before.
    pub deliver_after: Option<Timestamp>,
    /// SHA-256 of the canonical payload, once the daemon has seen it.
    pub fingerprint: Option<String>,
    /// The application's trace context.
    pub traceparent: Option<String>,
    /// The payload, canonical once the daemon has seen it.
    pub payload: Option<serde_json::Value>,
    /// What the policy reads. Not shown as it is.
    #[serde(skip)]
    pub facts: Facts,
    /// What the rules read. Not shown as it is.
    #[serde(skip)]
    pub recorded: Recorded,
}

/// An operation with what only a store needs.
#[derive(Clone, Debug)]
pub(in crate::store) struct Loaded {
    /// Its place in the order of recording.
    pub(in crate::store) id: i64,
    /// It was in flight at a crash and is tried alone.
    pub(in crate::store) suspect: bool,
    /// What is stored.
    pub(in crate::store) stored: Stored,
    pub(in crate::store) row: OperationRow,
}

/// Tells whether the stored row is still the one in memory: each fact makes another
/// version, and a clock step moves the beginning of the budget.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Stored {
    pub(in crate::store) version: u64,
    pub(in crate::store) budget_start: Option<Timestamp>,
}

impl Stored {
    pub(in crate::store) fn of(facts: &Facts) -> Self {
        Self { version: facts.version, budget_start: facts.budget_start }
    }
}

/// One attempt, with the columns of `handoff_attempts`.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptRow {
    /// The operation.
    pub operation_key: String,
    /// Its number within the operation.
    pub number: u32,
    /// What it did.
    pub kind: AttemptKind,
    /// When it was committed.
    pub started_at: Timestamp,
    /// When it ended for us; `None` while it is under way.
    pub finished_at: Option<Timestamp>,
    /// The process that made it.
    pub instance: String,
    /// How it ended.
    pub outcome: Option<OutcomeKind>,
    /// A short stable word for the cause.
    pub error_code: Option<String>,
    /// Status of the HTTP answer.
    pub http_status: Option<u16>,
    /// Whether a byte of the request left.
    pub request_sent: Option<bool>,
    /// How long the call took.
    pub duration_ms: Option<i64>,
    /// What was seen.
    pub evidence: Option<String>,
    /// The id that the receiver named.
    pub remote_id: Option<String>,
}

/// A person's act on receivers.
#[derive(Clone, Debug)]
pub struct HoldAct {
    /// Their names.
    pub receivers: Vec<String>,
    /// Who acts.
    pub who: String,
    /// Why.
    pub reason: Option<String>,
}

/// Which operations to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only of this receiver.
    pub receiver: Option<String>,
    /// Only in this state.
    pub state: Option<State>,
    /// Only blocked for this reason.
    pub reason: Option<BlockReason>,
    /// Only keys that begin so.
    pub prefix: Option<String>,
    /// At most so many, the most recently recorded.
    pub limit: Option<u32>,
}

/// Counts and ages of everything in the database.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// By receiver, in order of name.
    pub receivers: Vec<ReceiverCounts>,
    /// The holds in force.
    pub holds: Vec<Hold>,
}

/// Counts and ages of one receiver's operations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReceiverCounts {
    /// Its name.
    pub receiver: String,
    /// Pending, in flight included.
    pub pending: i64,
    /// Of the pending ones, those with an attempt under way.
    pub in_flight: i64,
    /// Acknowledged.
    pub sent: i64,
    /// A person must look.
    pub blocked: i64,
    /// Taken back.
    pub withdrawn: i64,
    /// When the oldest operation that is due fell due.
    pub oldest_due_at: Option<Timestamp>,
    /// When the oldest pending operation was recorded.
    pub oldest_pending_at: Option<Timestamp>,
    /// When the oldest blocked operation was recorded.
    pub oldest_blocked_at: Option<Timestamp>,
    /// Blocked ones by reason.
    pub blocked_by_reason: std::collections::BTreeMap<&'static str, i64>,
}
