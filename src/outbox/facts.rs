//! Facts: what is known of one operation, and how each event changes it.
//!
//! A fact is added and never taken for a decision. The stored facts follow from
//! attempts, a person's words and restore marks alone; tests recompute them
//! from the history.

use super::contract::{Contract, Exists};
use super::outcome::{Ending, Outcome, OutcomeKind};
use super::state::{Effect, SettledBy};
use crate::clock::{Now, Timestamp};
use crate::text_enum::text_enum;

text_enum! {
    /// The last answer that settles nothing by itself.
    pub enum Answer {
        /// None that counts.
        None = "none",
        /// "Exists", of a delivery.
        Exists = "exists",
        /// "Never", of a delivery.
        Rejected = "rejected",
        /// "You may not", about this one operation.
        Refused = "refused",
        /// Our own side failed before anything was handed over.
        Unexpected = "unexpected",
        /// "Other content under this key."
        Conflict = "conflict",
        /// A look-up found a record with other content.
        Differs = "differs",
        /// A look-up found several.
        Many = "many",
    }
}

text_enum! {
    /// What an attempt does.
    pub enum AttemptKind {
        /// Hands the operation over.
        Deliver = "deliver",
        /// Asks for the key; changes nothing at the receiver.
        LookUp = "look_up",
    }
}

/// What a request would change at the receiver, condensed: account, credential
/// where it counts, place, body and key. Equal texts are the same request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestFingerprint(pub String);

/// The receipt, or another word that settles the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The receiver's id for what it made.
    pub remote_id: Option<String>,
    /// Whose word it is.
    pub by: SettledBy,
}

/// The deliveries that may have acted, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possible {
    /// Earliest start, by the steady clock.
    pub since: Timestamp,
    /// Latest end for us, by the steady clock.
    pub until: Timestamp,
    /// The request that all of them carried; `None` if they differ.
    pub request: Option<RequestFingerprint>,
    /// How many they are, restore marks included.
    pub count: u32,
    /// How many of them are restore marks.
    pub marks: u32,
}

impl Possible {
    /// One delivery that may have acted between two moments.
    pub fn delivery(since: Timestamp, until: Timestamp, request: RequestFingerprint) -> Self {
        Self { since, until, request: Some(request), count: 1, marks: 0 }
    }

    /// Whether nothing but a restore gives the doubt.
    pub fn only_marks(&self) -> bool {
        self.marks == self.count
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            since: self.since.min(other.since),
            until: self.until.max(other.until),
            request: if self.request == other.request { self.request } else { None },
            count: self.count.saturating_add(other.count),
            marks: self.marks.saturating_add(other.marks),
        }
    }
}

/// An attempt that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its number within the operation.
    pub number: u32,
    /// What it does.
    pub kind: AttemptKind,
}

/// Everything that is known of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What settles it.
    pub proof: Option<Proof>,
    /// Deliveries that may have acted.
    pub possible: Option<Possible>,
    /// The last answer that settles nothing by itself.
    pub answer: Answer,
    /// Valid look-ups in a row that found nothing.
    pub absences: u32,
    /// What is under way.
    pub open: Option<Open>,
    /// Tries spent since the budget began.
    pub spent: u32,
    /// Look-ups begun since the last delivery.
    pub asks: u32,
    /// End of the last delivery that left it unsettled, by the steady clock.
    pub failed_at: Option<Timestamp>,
    /// When the budget began, by the steady clock.
    pub budget_start: Option<Timestamp>,
    /// Times the process died with this as the only suspect in flight.
    pub solo_crashes: u32,
    /// A person asked for one more delivery; kept until one begins.
    pub grant: bool,
    /// A person asked for a look-up; kept until one begins.
    pub ask_now: bool,
    /// A person took it back.
    pub withdrawn: bool,
    /// Not to be tried sooner, by the wall clock.
    pub not_before: Option<Timestamp>,
    /// Deliveries begun.
    pub attempts: u32,
    /// Deliveries begun since the budget began; the delays grow with it.
    pub tries: u32,
    /// The number of facts.
    pub version: u64,
}

/// What an ended attempt adds to the facts.
#[derive(Clone, Debug)]
pub struct Ended<'a> {
    /// The attempt's number.
    pub number: u32,
    /// Its start, by the steady clock.
    pub started: Timestamp,
    /// Its end for us, by the steady clock.
    pub ended: Timestamp,
    /// The request that it carried.
    pub request: RequestFingerprint,
    /// How it ended.
    pub ending: &'a Ending,
    /// What the provisional ending that this one replaces had spent.
    pub had_spent: u32,
    /// The earliest next try.
    pub not_before: Option<Timestamp>,
}

impl Facts {
    /// The facts of an operation that has just been recorded.
    pub const fn recorded() -> Self {
        Self {
            proof: None,
            possible: None,
            answer: Answer::None,
            absences: 0,
            open: None,
            spent: 0,
            asks: 0,
            failed_at: None,
            budget_start: None,
            solo_crashes: 0,
            grant: false,
            ask_now: false,
            withdrawn: false,
            not_before: None,
            attempts: 0,
            tries: 0,
            version: 1,
        }
    }

    /// A delivery begins: from here on it may have acted.
    pub fn delivery_begins(&mut self, number: u32, now: Now, request: RequestFingerprint) {
        let this = Possible::delivery(now.steady, now.steady, request);
        self.possible = Some(match self.possible.take() {
            Some(earlier) => earlier.and(this),
            None => this,
        });
        self.open = Some(Open { number, kind: AttemptKind::Deliver });
        self.answer = Answer::None;
        self.absences = 0;
        self.asks = 0;
        self.grant = false;
        // This delivery has waited for it; what is said from now on counts anew.
        self.not_before = None;
        self.attempts = self.attempts.saturating_add(1);
        self.tries = self.tries.saturating_add(1);
        self.budget_start.get_or_insert(now.steady);
        self.version += 1;
    }

    /// Whether [`Facts::delivery_ends`] has to be told of the other deliveries.
    ///
    /// `earlier` is how this delivery had ended before, if it had: after a
    /// definite end it is none of those that may have acted.
    pub fn has_others(&self, earlier: Option<OutcomeKind>) -> bool {
        let itself = u32::from(earlier.is_none_or(OutcomeKind::may_have_acted));
        self.possible.as_ref().is_some_and(|possible| possible.count > itself)
    }

    /// A delivery ends, or a late answer takes the place of a provisional end.
    ///
    /// `others` folds the *other* deliveries that may have acted. A late answer
    /// tells of its own delivery only: it takes away no answer of another one,
    /// and brings no try forward that another one has put off.
    pub fn delivery_ends(
        &mut self,
        end: &Ended<'_>,
        others: Option<Possible>,
        contract: &Contract,
    ) {
        self.possible = if end.ending.may_have_acted() {
            let this = Possible::delivery(end.started, end.ended, end.request.clone());
            Some(match others {
                Some(others) => others.and(this),
                None => this,
            })
        } else {
            others
        };
        if self.open.is_some_and(|open| open.number == end.number) {
            self.open = None;
        }
        self.spent = self.spent.saturating_sub(end.had_spent).saturating_add(end.ending.spends());
        self.version += 1;
        if let Ending::Outcome(Outcome::Applied { remote_id, .. }) = end.ending {
            return self.proven(remote_id.clone(), SettledBy::Reply);
        }
        if self.proof.is_none() {
            self.failed_at = self.failed_at.max(Some(end.ended));
        }
        self.not_before = self.not_before.max(end.not_before);
        self.answered(end.ending, contract);
    }

    /// A late answer of a delivery of which a person has said that it has not acted. It
    /// is none of those that may have acted, and costs nothing of a budget that began
    /// after it; what the answer proves, or says of the key, counts all the same.
    pub fn resolved_delivery_ends(&mut self, ending: &Ending, contract: &Contract) {
        self.version += 1;
        match ending {
            Ending::Outcome(Outcome::Applied { remote_id, .. }) => {
                self.proven(remote_id.clone(), SettledBy::Reply);
            }
            Ending::Outcome(Outcome::Unknown)
            | Ending::Interrupted { .. }
            | Ending::CutOff
            | Ending::LookedUp(_) => {}
            Ending::Outcome(_) => self.answered(ending, contract),
        }
    }

    /// What has just ended cost its operation nothing: it was tried for others as well.
    pub fn give_back(&mut self, spent: u32) {
        self.spent = self.spent.saturating_sub(spent);
    }

    /// The receiver has it. Its word takes the place of a person's; its first
    /// receipt stays, whichever answer told it. What is settled has not failed.
    pub(super) fn proven(&mut self, remote_id: Option<String>, by: SettledBy) {
        self.failed_at = None;
        self.proof = Some(match self.proof.take() {
            None | Some(Proof { by: SettledBy::Person(_), .. }) => Proof { remote_id, by },
            Some(Proof { remote_id: first, by: SettledBy::Policy }) => {
                Proof { remote_id: first.or(remote_id), by }
            }
            Some(Proof {
                remote_id: first,
                by: known @ (SettledBy::Reply | SettledBy::LookUp),
            }) => Proof { remote_id: first.or(remote_id), by: known },
        });
    }

    /// What an ending without a receipt says. One that says nothing (a lost
    /// reply, an interruption) leaves the answer of another delivery as it is;
    /// its own was taken away when it began.
    fn answered(&mut self, ending: &Ending, contract: &Contract) {
        let outcome = match ending {
            Ending::Outcome(outcome) => outcome,
            Ending::Interrupted { alone } => {
                self.solo_crashes = self.solo_crashes.saturating_add(u32::from(*alone));
                &Outcome::Unknown
            }
            // A delivery never ends like a look-up; nothing would be known of it.
            Ending::CutOff | Ending::LookedUp(_) => &Outcome::Unknown,
        };
        match outcome {
            Outcome::Unknown => self.absences = 0,
            Outcome::AlreadyExists { remote_id } => {
                self.answer = Answer::Exists;
                // Kept as proof, so that a later "no" of another delivery cannot unsay it.
                if contract.exists == Exists::Proof {
                    self.proven(remote_id.clone(), SettledBy::Policy);
                }
            }
            Outcome::Rejected => self.answer = Answer::Rejected,
            Outcome::Unauthorised { whole_receiver: false } => self.answer = Answer::Refused,
            Outcome::Unexpected => self.answer = Answer::Unexpected,
            Outcome::Conflict => self.answer = Answer::Conflict,
            Outcome::Applied { .. }
            | Outcome::InProgress { .. }
            | Outcome::NotTaken { .. }
            | Outcome::Unauthorised { whole_receiver: true } => {}
        }
    }

    /// What is known of the receiver.
    pub fn effect(&self, contract: &Contract) -> Effect {
        let exists_proves = self.answer == Answer::Exists && contract.exists == Exists::Proof;
        if self.proof.is_some() || exists_proves {
            Effect::Confirmed
        } else if self.possible.is_some() || matches!(self.answer, Answer::Exists | Answer::Many) {
            Effect::Possible
        } else {
            Effect::None
        }
    }
}
