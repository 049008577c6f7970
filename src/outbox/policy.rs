//! The policy: what follows from the facts, and the only place that says so.
//!
//! [`next`] is a table read from the top; the first row that fits decides. It
//! reads no clock, no chance and no store, and no decision is kept: it runs when
//! a fact is added, to settle or to schedule, and again at the claim, to act.
//!
//! Rows that need what this version does not have are absent: dependence and
//! ordering (8a, and two gates). The last gate of all, the hold of a whole receiver,
//! is in [`hold`](super::hold).

#![deny(clippy::wildcard_enum_match_arm)]

use super::contract::{Contract, Exists, LookUp, Repeat, Window};
use super::facts::{Answer, Facts, Possible, RequestFingerprint};
use super::retry::Retry;
use super::state::BlockReason;
use crate::clock::{Now, Timestamp};
use crate::text_enum::text_enum;
use std::time::Duration;

/// Crashes with an operation as the only suspect, after which it is not tried again.
pub const SOLO_CRASHES_MAX: u32 = 3;

/// What is known from outside the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Its type (in its version) and its receiver are configured.
    pub configured: bool,
    /// It is readable, fits its type, and its payload fits its fingerprint.
    pub valid: bool,
    /// Its approval is older than its type allows.
    pub approval_expired: bool,
    /// The application asked for a later delivery.
    pub deliver_after: Option<Timestamp>,
    /// The request that a delivery made now would carry.
    pub request: RequestFingerprint,
}

/// A receiver's settings, as far as they decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// What it promises.
    pub contract: Contract,
    /// Delays and budget.
    pub retry: Retry,
    /// The longest that one call may take.
    pub timeout: Duration,
}

impl Terms {
    /// Of a receiver that is not configured: no promise, and nothing to spend.
    pub const UNDECLARED: Self =
        Self { contract: Contract::none(), retry: Retry::UNDECLARED, timeout: Duration::ZERO };
}

/// What follows, and the row of the table that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The row of the table.
    pub row: Row,
    /// What to do.
    pub step: Step,
}

/// What to do with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is settled.
    Sent,
    /// It stays as a person left it.
    Stay,
    /// A person must look.
    Block(BlockReason),
    /// Nothing now.
    Wait {
        /// What has to open.
        gate: Gate,
        /// When it opens by itself, by the wall clock.
        until: Option<Timestamp>,
    },
    /// Look the key up.
    Ask,
    /// Deliver it.
    Deliver,
}

impl Step {
    /// The step as one word, the same in logs and in `explain`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Stay => "stay",
            Self::Block(_) => "block",
            Self::Wait { .. } => "wait",
            Self::Ask => "ask",
            Self::Deliver => "deliver",
        }
    }
}

text_enum! {
    /// What an operation waits for.
    pub enum Gate {
        /// An attempt is under way.
        InFlight = "in_flight",
        /// Its type or its receiver is not configured.
        NotConfigured = "not_configured",
        /// The receiver may still act on an earlier attempt.
        Settling = "settling",
        /// The application asked for a later delivery.
        Scheduled = "scheduled",
        /// The time of the next try has not come.
        BackingOff = "backing_off",
        /// The whole receiver is held; see [`hold`](super::hold).
        ReceiverHeld = "receiver_held",
    }
}

text_enum! {
    /// The rows of the table in the order in which they are read.
    pub enum Row {
        /// There is proof.
        Proof = "1",
        /// A person asked for a look-up.
        AskNow = "1a",
        /// A person took it back.
        Withdrawn = "2",
        /// An attempt is under way.
        Open = "2a",
        /// The receiver holds something else.
        Conflict = "3",
        /// It cannot be delivered as it is, or is not configured.
        Invalid = "4",
        /// "Exists", which proves it.
        ExistsProves = "5",
        /// "Exists", which proves nothing.
        ExistsAsks = "6",
        /// A definite no, and nothing else may have acted.
        No = "7",
        /// A definite no, after a delivery that may have acted.
        NoAfterDoubt = "8",
        /// The approval is too old.
        Expired = "9",
        /// Nothing happened, and the budget is spent.
        Spent = "10",
        /// Nothing happened: deliver.
        Fresh = "11",
        /// A repeat is allowed, after the receiver has settled.
        Settling = "12",
        /// A repeat is allowed, after a look-up.
        LookFirst = "13",
        /// A repeat is allowed.
        Again = "14",
        /// A repeat would be allowed, but the budget is spent or it keeps crashing.
        AgainSpent = "15",
        /// A repeat is not allowed.
        NoRepeat = "16",
    }
}

impl Row {
    /// The row in words, for `explain`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Proof => "the receiver's receipt, or a person's word, settles it",
            Self::AskNow => "a person asked to look the key up",
            Self::Withdrawn => "a person took it back",
            Self::Open => "an attempt is under way",
            Self::Conflict => "the receiver holds other content, or several records, for this key",
            Self::Invalid => "it cannot be delivered as it is, or its type is not configured",
            Self::ExistsProves => "the receiver has it, under an id made from the key",
            Self::ExistsAsks => "the receiver has something under this key; nobody knows what",
            Self::No => "the receiver said no, and no attempt can have acted",
            Self::NoAfterDoubt => "the receiver said no, but an earlier attempt may have acted",
            Self::Expired => "the approval is older than its type allows",
            Self::Spent => "nothing happened at the receiver, and the budget is spent",
            Self::Fresh => "no attempt can have acted, so it may be delivered",
            Self::Settling => "an attempt may still act; a repeat waits until it cannot",
            Self::LookFirst => "a repeat is allowed, but a look-up comes first",
            Self::Again => "an attempt may have acted, and the contract allows a repeat",
            Self::AgainSpent => "an attempt may have acted, and no further try is left",
            Self::NoRepeat => "an attempt may have acted, and the contract allows no repeat",
        }
    }
}

/// Says what follows from the facts.
pub fn next(facts: &Facts, around: &Surroundings, terms: &Terms, now: Now) -> Next {
    settled(facts)
        .or_else(|| unfit(facts, around))
        .or_else(|| answered(facts, around, terms, now))
        .unwrap_or_else(|| match &facts.possible {
            None => fresh(facts, around, terms, now),
            Some(possible) => in_doubt(facts, possible, around, terms, now),
        })
}

/// Rows 1 to 2a: what depends on nothing but the facts.
pub(super) fn settled(facts: &Facts) -> Option<Next> {
    if facts.proof.is_some() {
        return Some(Next { row: Row::Proof, step: Step::Sent });
    }
    if facts.ask_now && facts.open.is_none() {
        return Some(Next { row: Row::AskNow, step: Step::Ask });
    }
    if facts.withdrawn {
        return Some(Next { row: Row::Withdrawn, step: Step::Stay });
    }
    facts.open.map(|_| Next { row: Row::Open, step: wait(Gate::InFlight, None) })
}

/// Rows 3 and 4: what no delivery can mend.
fn unfit(facts: &Facts, around: &Surroundings) -> Option<Next> {
    match facts.answer {
        Answer::Conflict | Answer::Differs | Answer::Many => {
            return Some(Next { row: Row::Conflict, step: Step::Block(BlockReason::Conflict) });
        }
        Answer::None | Answer::Exists | Answer::Rejected | Answer::Refused | Answer::Unexpected => {
        }
    }
    let step = match (around.configured, around.valid) {
        (false, _) => wait(Gate::NotConfigured, None),
        (true, false) => Step::Block(BlockReason::Invalid),
        (true, true) => return None,
    };
    Some(Next { row: Row::Invalid, step })
}

/// Rows 5 to 8: what the last answer says.
fn answered(facts: &Facts, around: &Surroundings, terms: &Terms, now: Now) -> Option<Next> {
    let reason = match facts.answer {
        Answer::Exists => {
            return Some(match terms.contract.exists {
                Exists::Proof => Next { row: Row::ExistsProves, step: Step::Sent },
                Exists::Ask => Next {
                    row: Row::ExistsAsks,
                    step: ask(BlockReason::Ambiguous, facts, around, terms, now),
                },
            });
        }
        Answer::Rejected => BlockReason::Rejected,
        Answer::Refused => BlockReason::Unauthorised,
        Answer::Unexpected => BlockReason::Unexpected,
        Answer::None | Answer::Conflict | Answer::Differs | Answer::Many => return None,
    };
    Some(if facts.possible.is_none() {
        Next { row: Row::No, step: Step::Block(reason) }
    } else {
        Next { row: Row::NoAfterDoubt, step: ask(reason, facts, around, terms, now) }
    })
}

/// Rows 9 to 11: no delivery can have acted.
fn fresh(facts: &Facts, around: &Surroundings, terms: &Terms, now: Now) -> Next {
    if around.approval_expired {
        return Next { row: Row::Expired, step: Step::Block(BlockReason::Expired) };
    }
    if !facts.grant && budget_spent(facts, &terms.retry) {
        return Next { row: Row::Spent, step: Step::Block(BlockReason::BudgetExhausted) };
    }
    Next { row: Row::Fresh, step: go(Step::Deliver, facts, around, now) }
}

/// Rows 9 and 12 to 16: a delivery may have acted.
fn in_doubt(
    facts: &Facts,
    possible: &Possible,
    around: &Surroundings,
    terms: &Terms,
    now: Now,
) -> Next {
    if possible.only_marks() && around.approval_expired {
        return Next { row: Row::Expired, step: Step::Block(BlockReason::Expired) };
    }
    if !repeat_allowed(possible, around, terms, now) {
        let reason = why_no_repeat(possible, &terms.contract);
        return Next { row: Row::NoRepeat, step: ask(reason, facts, around, terms, now) };
    }
    let contract = &terms.contract;
    if (!contract.atomic || contract.look_first)
        && let Some(wait) = settling(possible, contract, now)
    {
        return Next { row: Row::Settling, step: wait };
    }
    if contract.look_first
        && let Some(look_up) = &contract.look_up
        && facts.absences < look_up.polls
    {
        let step = poll(BlockReason::Ambiguous, facts, around, terms, now);
        return Next { row: Row::LookFirst, step };
    }
    let spent = budget_spent(facts, &terms.retry);
    if facts.grant || (!spent && facts.solo_crashes < SOLO_CRASHES_MAX) {
        return Next { row: Row::Again, step: go(Step::Deliver, facts, around, now) };
    }
    let reason = if spent { BlockReason::BudgetExhausted } else { BlockReason::Crashed };
    Next { row: Row::AgainSpent, step: ask(reason, facts, around, terms, now) }
}

/// Whether the budget is spent, in tries or in time.
pub fn budget_spent(facts: &Facts, retry: &Retry) -> bool {
    let elapsed = match (facts.budget_start, facts.failed_at) {
        (Some(start), Some(failed)) => failed.since(start),
        (None, _) | (_, None) => Duration::ZERO,
    };
    facts.spent >= retry.max_attempts || elapsed >= retry.max_elapsed
}

/// REPEAT: the contract lets the same request be made again.
fn repeat_allowed(possible: &Possible, around: &Surroundings, terms: &Terms, now: Now) -> bool {
    let inside = match terms.contract.repeat {
        Repeat::Never => false,
        Repeat::Within(Window::Forever) => true,
        // The last byte of a repeat must still reach the receiver inside its window.
        Repeat::Within(Window::For(window)) => {
            now.steady.plus(terms.timeout).plus(terms.contract.settle_delay)
                < possible.since.plus(window)
        }
    };
    inside && same_request(possible, around)
}

/// Whether every delivery that may have acted carried what one made now would carry.
fn same_request(possible: &Possible, around: &Surroundings) -> bool {
    possible.request.as_ref() == Some(&around.request)
}

/// Why a repeat is not allowed.
fn why_no_repeat(possible: &Possible, contract: &Contract) -> BlockReason {
    match contract.repeat {
        Repeat::Never | Repeat::Within(_) if possible.only_marks() => BlockReason::Restored,
        Repeat::Never => BlockReason::Ambiguous,
        Repeat::Within(_) => BlockReason::WindowClosed,
    }
}

/// ASK: look up where that can tell; else a person must look.
fn ask(reason: BlockReason, facts: &Facts, around: &Surroundings, terms: &Terms, now: Now) -> Step {
    let contract = &terms.contract;
    let Some(LookUp { polls, .. }) = contract.look_up else { return Step::Block(reason) };
    if let Some(possible) = &facts.possible {
        if !same_request(possible, around) {
            return Step::Block(reason);
        }
        if let Some(wait) = settling(possible, contract, now) {
            return wait;
        }
    }
    if facts.absences < polls {
        poll(reason, facts, around, terms, now)
    } else {
        Step::Block(reason)
    }
}

/// One more look-up, unless there have been too many.
fn poll(
    reason: BlockReason,
    facts: &Facts,
    around: &Surroundings,
    terms: &Terms,
    now: Now,
) -> Step {
    if facts.asks >= terms.retry.max_attempts {
        Step::Block(reason)
    } else {
        go(Step::Ask, facts, around, now)
    }
}

/// A wait while the receiver may still act on an earlier attempt.
fn settling(possible: &Possible, contract: &Contract, now: Now) -> Option<Step> {
    let settled = possible.until.plus(contract.settle_delay);
    (now.steady < settled)
        .then(|| wait(Gate::Settling, Some(now.wall.plus(settled.since(now.steady)))))
}

/// GO: the step, unless a gate is closed.
fn go(step: Step, facts: &Facts, around: &Surroundings, now: Now) -> Step {
    match (around.deliver_after, facts.not_before) {
        (Some(due), _) if now.wall < due => wait(Gate::Scheduled, Some(due)),
        (_, Some(due)) if now.wall < due => wait(Gate::BackingOff, Some(due)),
        (_, _) => step,
    }
}

fn wait(gate: Gate, until: Option<Timestamp>) -> Step {
    Step::Wait { gate, until }
}
