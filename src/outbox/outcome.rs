//! Outcomes: every way a call can end, as the receiver's adapter saw it.
//!
//! An outcome is not an error. A lost reply is [`Outcome::Unknown`], which is
//! neither a failure nor a success, and nothing here says what follows: that is
//! [`policy`](super::policy).

use super::look_up::{Finding, LookUpReport};
use crate::clock::Timestamp;
use crate::text_enum::text_enum;
use std::time::Duration;

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver acknowledged it.
    Applied {
        /// The receiver's id for what it made, if it told one.
        remote_id: Option<String>,
        /// The receiver said that it had done so earlier.
        replayed: bool,
    },
    /// The receiver has something under this key. Proves neither that the work
    /// was done nor that the content is ours.
    AlreadyExists {
        /// The id it named, if any.
        remote_id: Option<String>,
    },
    /// Definitely not taken; may pass later.
    NotTaken {
        /// What stood in the way.
        why: NotTakenWhy,
        /// Not to be tried again sooner.
        not_before: Option<NotBefore>,
    },
    /// The receiver is still at work on this key.
    InProgress {
        /// Not to be tried again sooner.
        not_before: Option<NotBefore>,
    },
    /// The receiver will never take it.
    Rejected,
    /// The receiver holds other content under this key.
    Conflict,
    /// The receiver refuses for want of rights.
    Unauthorised {
        /// It refuses whoever we say we are, and so everything.
        whole_receiver: bool,
    },
    /// Handed over, and nobody can tell what became of it.
    Unknown,
    /// Our side failed before anything was handed over, in a way without a class.
    Unexpected,
}

text_enum! {
    /// Why an operation was definitely not taken.
    pub enum NotTakenWhy {
        /// Refused connection, no route, no such program: nothing was handed over.
        Unreachable = "unreachable",
        /// The receiver asked for fewer calls.
        Throttled = "throttled",
        /// The receiver declared that it cannot take it for now.
        Unavailable = "unavailable",
        /// The attempt waited too long inside this process and was never begun.
        Stale = "stale",
    }
}

impl Outcome {
    /// The same, with a pause in place of a moment: that is meant by the clock of
    /// the answer, which may be set before the answer is stored.
    #[must_use]
    pub fn heard_at(mut self, now: Timestamp) -> Self {
        if let Self::NotTaken { not_before: Some(asked), .. }
        | Self::InProgress { not_before: Some(asked) } = &mut self
        {
            *asked = NotBefore::After(asked.at(now).since(now));
        }
        self
    }
}

/// The earliest time of another try, as a receiver tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBefore {
    /// So long after the answer.
    After(Duration),
    /// At this moment.
    At(Timestamp),
}

impl NotBefore {
    /// The moment meant by an answer that came at `answered_at`.
    pub fn at(self, answered_at: Timestamp) -> Timestamp {
        match self {
            Self::After(delay) => answered_at.plus(delay),
            Self::At(time) => time,
        }
    }
}

text_enum! {
    /// What `handoff_attempts.outcome` says: an outcome, or that there was none.
    pub enum OutcomeKind {
        /// See [`Outcome::Applied`].
        Applied = "applied",
        /// See [`Outcome::AlreadyExists`].
        AlreadyExists = "already_exists",
        /// See [`Outcome::NotTaken`].
        NotTaken = "not_taken",
        /// See [`Outcome::InProgress`].
        InProgress = "in_progress",
        /// See [`Outcome::Rejected`].
        Rejected = "rejected",
        /// See [`Outcome::Conflict`].
        Conflict = "conflict",
        /// See [`Outcome::Unauthorised`].
        Unauthorised = "unauthorised",
        /// See [`Outcome::Unknown`].
        Unknown = "unknown",
        /// See [`Outcome::Unexpected`].
        Unexpected = "unexpected",
        /// A look-up: [`Finding::Found`], with what we would deliver.
        Found = "found",
        /// A look-up: [`Finding::Found`], with something else.
        Differs = "differs",
        /// A look-up: see [`Finding::Many`].
        Many = "many",
        /// A look-up: see [`Finding::Absent`].
        Absent = "absent",
        /// A look-up: see [`Finding::CannotTell`].
        CannotTell = "cannot_tell",
        /// The process that made the attempt is gone.
        Interrupted = "interrupted",
        /// Our own stop ended the wait.
        CutOff = "cut_off",
    }
}

impl OutcomeKind {
    /// Whether a later answer of the same attempt takes its place.
    pub const fn is_provisional(self) -> bool {
        matches!(self, Self::Interrupted | Self::CutOff)
    }

    /// Whether the receiver may have acted, or may still act, on an attempt
    /// that ended so.
    pub const fn may_have_acted(self) -> bool {
        match self {
            Self::AlreadyExists
            | Self::InProgress
            | Self::Unknown
            | Self::Interrupted
            | Self::CutOff => true,
            Self::Applied
            | Self::NotTaken
            | Self::Rejected
            | Self::Conflict
            | Self::Unauthorised
            | Self::Unexpected
            | Self::Found
            | Self::Differs
            | Self::Many
            | Self::Absent
            | Self::CannotTell => false,
        }
    }
}

/// How an attempt ended: with an outcome, or without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call ended.
    Outcome(Outcome),
    /// The process that made the attempt is gone.
    Interrupted {
        /// It was the only suspect in flight.
        alone: bool,
    },
    /// Our own stop ended the wait.
    CutOff,
    /// The look-up ended.
    LookedUp(Finding),
}

impl Ending {
    /// The word that is stored.
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Interrupted { .. } => OutcomeKind::Interrupted,
            Self::CutOff => OutcomeKind::CutOff,
            Self::LookedUp(finding) => finding.kind(),
            Self::Outcome(outcome) => match outcome {
                Outcome::Applied { .. } => OutcomeKind::Applied,
                Outcome::AlreadyExists { .. } => OutcomeKind::AlreadyExists,
                Outcome::NotTaken { .. } => OutcomeKind::NotTaken,
                Outcome::InProgress { .. } => OutcomeKind::InProgress,
                Outcome::Rejected => OutcomeKind::Rejected,
                Outcome::Conflict => OutcomeKind::Conflict,
                Outcome::Unauthorised { .. } => OutcomeKind::Unauthorised,
                Outcome::Unknown => OutcomeKind::Unknown,
                Outcome::Unexpected => OutcomeKind::Unexpected,
            },
        }
    }

    /// Whether the receiver may have acted, or may still act, on this attempt.
    pub const fn may_have_acted(&self) -> bool {
        self.kind().may_have_acted()
    }

    /// How many tries of the budget this ending costs, 0 or 1.
    pub const fn spends(&self) -> u32 {
        match self {
            Self::Interrupted { .. } | Self::Outcome(Outcome::Unknown) => 1,
            Self::Outcome(Outcome::NotTaken { why, .. }) => match why {
                NotTakenWhy::Unreachable | NotTakenWhy::Unavailable => 1,
                NotTakenWhy::Throttled | NotTakenWhy::Stale => 0,
            },
            Self::CutOff
            | Self::LookedUp(_)
            | Self::Outcome(
                Outcome::Applied { .. }
                | Outcome::AlreadyExists { .. }
                | Outcome::InProgress { .. }
                | Outcome::Rejected
                | Outcome::Conflict
                | Outcome::Unauthorised { .. }
                | Outcome::Unexpected,
            ) => 0,
        }
    }
}

/// What an adapter reports of one delivery: the outcome, and what a person will ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// A short stable word for the cause, such as `timeout`.
    pub error_code: Option<String>,
    /// Status of the HTTP answer, if there was one.
    pub http_status: Option<u16>,
    /// Whether a byte of the request left; `None` where that cannot be known.
    pub request_sent: Option<bool>,
    /// What was seen, cut to [`EVIDENCE_CHARS_MAX`]. Never holds a secret.
    pub evidence: Option<String>,
}

/// Longest evidence that is kept of one attempt, in characters.
pub const EVIDENCE_CHARS_MAX: usize = 500;

impl Report {
    /// A report without further details, of a request that was handed over.
    pub fn new(outcome: Outcome) -> Self {
        let (error_code, http_status, evidence) = (None, None, None);
        Self { outcome, error_code, http_status, request_sent: Some(true), evidence }
    }

    /// The receiver acknowledged it.
    pub fn applied(remote_id: Option<String>) -> Self {
        Self::new(Outcome::Applied { remote_id, replayed: false })
    }

    /// Nothing was handed over.
    pub fn not_taken(why: NotTakenWhy, error_code: &str) -> Self {
        let report = Self::new(Outcome::NotTaken { why, not_before: None }).code(error_code);
        Self { request_sent: Some(false), ..report }
    }

    /// Handed over, and nobody can tell what became of it.
    pub fn unknown(error_code: &str) -> Self {
        Self::new(Outcome::Unknown).code(error_code)
    }

    /// The same report with a short stable word for the cause.
    #[must_use]
    pub fn code(self, error_code: &str) -> Self {
        Self { error_code: Some(error_code.to_owned()), ..self }
    }

    /// The same report with what was seen, cut to the limit.
    #[must_use]
    pub fn evidence(self, text: &str) -> Self {
        let cut = text.trim().chars().take(EVIDENCE_CHARS_MAX).collect::<String>();
        Self { evidence: (!cut.is_empty()).then_some(cut), ..self }
    }
}

/// What was seen of an attempt beside how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// A short stable word for the cause, such as `timeout`.
    pub error_code: Option<String>,
    /// Status of the HTTP answer, if there was one.
    pub http_status: Option<u16>,
    /// Whether a byte of the request left; `None` where that cannot be known.
    pub request_sent: Option<bool>,
    /// What was seen.
    pub evidence: Option<String>,
}

impl From<Report> for Seen {
    fn from(report: Report) -> Self {
        let Report { error_code, http_status, request_sent, evidence, .. } = report;
        Self { error_code, http_status, request_sent, evidence }
    }
}

impl From<LookUpReport> for Seen {
    fn from(report: LookUpReport) -> Self {
        let LookUpReport { error_code, http_status, evidence, .. } = report;
        Self { error_code, http_status, request_sent: None, evidence }
    }
}
