//! What a person may do to an operation, and what it adds to the facts.

use super::facts::{Answer, Facts};
use super::policy::{Next, Row, Step, Surroundings, Terms, next};
use super::settle::{Word, reconcile, resolve};
use super::state::{BlockReason, Effect, State, Verb};
use crate::clock::{Now, Timestamp};

/// Why a verb was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An attempt is under way; its answer comes first.
    #[error("an attempt is under way; wait for its answer")]
    InFlight,
    /// The verb does not apply to this state.
    #[error("it is {state}")]
    State {
        /// The state found.
        state: State,
    },
    /// With the retry granted, the policy would still block.
    #[error("row {row} of the policy would block it again: {}", row.meaning())]
    WouldBlock {
        /// The row that decides.
        row: Row,
        /// The reason that it would give.
        reason: BlockReason,
    },
    /// The receiver cannot be asked for a key.
    #[error("its receiver declares no look-up (receivers.NAME.contract.look_up)")]
    NoLookUp,
    /// It cannot be read, or there is nothing left to compare with.
    #[error("its payload is not kept or unfit, or it is not configured: nothing can be compared")]
    Unfit,
    /// The person says to have looked at a time that has not come.
    #[error("{looked_at} has not come yet")]
    NotYetLooked {
        /// The time named.
        looked_at: Timestamp,
    },
    /// The person looked while the receiver could still act.
    #[error("the receiver could still act on an attempt until {until}: look again after that")]
    TooEarly {
        /// From when on a look counts.
        until: Timestamp,
    },
}

/// A person's act, with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// See [`retry`].
    Retry,
    /// See [`withdraw`].
    Withdraw,
    /// See [`reconcile`].
    Reconcile,
    /// See [`resolve`].
    Resolve(Word),
}

impl Deed {
    /// Its verb.
    pub const fn verb(&self) -> Verb {
        match self {
            Self::Retry => Verb::Retry,
            Self::Withdraw => Verb::Withdraw,
            Self::Reconcile => Verb::Reconcile,
            Self::Resolve(_) => Verb::Resolve,
        }
    }

    /// Does it to the facts of an operation, for `who`; returns what follows.
    ///
    /// # Errors
    ///
    /// [`Refusal`]; the facts are then as they were.
    pub fn done_to(
        &self,
        facts: &mut Facts,
        state: State,
        who: &str,
        around: &Surroundings,
        terms: &Terms,
        now: Now,
    ) -> Result<Next, Refusal> {
        match self {
            Self::Retry => return retry(facts, state, around, terms, now),
            Self::Withdraw => withdraw(facts, state)?,
            Self::Reconcile => reconcile(facts, state, around, terms)?,
            Self::Resolve(word) => resolve(facts, state, word, who, terms, now)?,
        }
        Ok(next(facts, around, terms, now))
    }
}

/// `retry`: one more delivery now, under the same key.
///
/// The facts are changed only if the verb is not refused.
///
/// # Errors
///
/// [`Refusal`] where an attempt is under way, the operation is settled, or the
/// contract does not allow another delivery.
pub fn retry(
    facts: &mut Facts,
    state: State,
    around: &Surroundings,
    terms: &Terms,
    now: Now,
) -> Result<Next, Refusal> {
    refuse_in(facts, state)?;
    let mut granted = facts.clone();
    granted.grant = true;
    granted.not_before = None;
    let was_no = matches!(granted.answer, Answer::Rejected | Answer::Refused | Answer::Unexpected);
    if was_no && granted.possible.is_none() {
        granted.answer = Answer::None;
    }
    granted.version += 1;
    let follows = next(&granted, around, terms, now);
    if let Step::Block(reason) = follows.step {
        return Err(Refusal::WouldBlock { row: follows.row, reason });
    }
    *facts = granted;
    Ok(follows)
}

/// `withdraw`: take it back. The effect stays as it is, and is shown.
///
/// # Errors
///
/// [`Refusal`] where an attempt is under way or the operation is settled.
pub fn withdraw(facts: &mut Facts, state: State) -> Result<(), Refusal> {
    refuse_in(facts, state)?;
    facts.withdrawn = true;
    facts.version += 1;
    Ok(())
}

fn refuse_in(facts: &Facts, state: State) -> Result<(), Refusal> {
    if facts.open.is_some() {
        return Err(Refusal::InFlight);
    }
    match state {
        // One that was withdrawn is pending while a person has it looked up.
        State::Pending if facts.withdrawn => Err(Refusal::State { state: State::Withdrawn }),
        State::Pending | State::Blocked => Ok(()),
        State::Sent | State::Withdrawn => Err(Refusal::State { state }),
    }
}

/// The verbs of this version that lead on from here, for `explain`.
pub fn open_verbs(
    facts: &Facts,
    state: State,
    around: &Surroundings,
    terms: &Terms,
    now: Now,
) -> Vec<Verb> {
    let mut verbs = Vec::new();
    if retry(&mut facts.clone(), state, around, terms, now).is_ok() {
        verbs.push(Verb::Retry);
    }
    if withdraw(&mut facts.clone(), state).is_ok() {
        verbs.push(Verb::Withdraw);
    }
    if reconcile(&mut facts.clone(), state, around, terms).is_ok() {
        verbs.push(Verb::Reconcile);
    }
    let sent = Word::Sent { remote_id: String::new() };
    let not_sent = Word::NotSent { looked_at: now.wall, force: true };
    let may_resolve = |word| resolve(&mut facts.clone(), state, word, "", terms, now).is_ok();
    if may_resolve(&sent) || may_resolve(&not_sent) {
        verbs.push(Verb::Resolve);
    }
    verbs
}

/// What a person should do next about an operation, in one line.
pub fn advice(state: State, reason: Option<BlockReason>, effect: Effect) -> &'static str {
    match (state, reason) {
        (State::Sent, _) => "nothing to do: the receiver acknowledged it",
        (State::Withdrawn, _) if effect == Effect::Possible => {
            "it was taken back, but an attempt may have acted: look at the receiver"
        }
        (State::Withdrawn, _) => "nothing to do: it was taken back",
        (State::Pending, _) => "nothing to do: the daemon works on it",
        (State::Blocked, None) => "look at its history",
        (State::Blocked, Some(reason)) => blocked_advice(reason, effect),
    }
}

fn blocked_advice(reason: BlockReason, effect: Effect) -> &'static str {
    match (reason, effect) {
        (BlockReason::Invalid, _) => "mend the configuration and retry, or withdraw it",
        (BlockReason::Expired, _) => {
            "its approval no longer counts: withdraw it; a new act needs a key of its own"
        }
        (BlockReason::Conflict, _) => {
            "compare what the receiver holds under this key, then resolve or withdraw it"
        }
        (BlockReason::Rejected, Effect::None) => "the receiver will not take it: withdraw it",
        (BlockReason::Unauthorised, Effect::None) => "mend the rights at the receiver and retry",
        (BlockReason::Unexpected, Effect::None) => "mend what failed on our side and retry",
        (BlockReason::BudgetExhausted, Effect::None) => {
            "nothing happened at the receiver: retry when it is healthy, or withdraw it"
        }
        (
            BlockReason::Rejected
            | BlockReason::Unauthorised
            | BlockReason::Unexpected
            | BlockReason::BudgetExhausted
            | BlockReason::Ambiguous
            | BlockReason::WindowClosed
            | BlockReason::Crashed
            | BlockReason::Restored,
            _,
        ) => "look at the receiver for this key, by reconcile or yourself, then resolve it",
    }
}
