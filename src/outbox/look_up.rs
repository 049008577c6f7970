//! Look-ups: what a receiver holds under a key, asked without changing anything there.

use super::facts::{Answer, AttemptKind, Facts, Open, RequestFingerprint};
use super::outcome::{EVIDENCE_CHARS_MAX, Ending, NotBefore, OutcomeKind};
use super::policy::Terms;
use super::state::SettledBy;
use crate::clock::Timestamp;
use crate::jitter::Seed;

/// Whether a record that was found holds what we would deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// It does.
    Equal,
    /// It holds something else.
    Differs,
    /// The receiver does not tell.
    NotCompared,
}

/// What a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One record under the key.
    Found {
        /// The receiver's id for it, if it told one.
        remote_id: Option<String>,
        /// What it holds.
        content: Content,
    },
    /// Several records under the key.
    Many,
    /// No record under the key, as far as the receiver knows by now.
    Absent,
    /// Nobody can tell: it cannot be reached, did not answer, or cannot be asked.
    CannotTell {
        /// Not to be asked again sooner.
        not_before: Option<NotBefore>,
    },
}

impl Finding {
    /// The word that is stored.
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Found { content: Content::Equal | Content::NotCompared, .. } => {
                OutcomeKind::Found
            }
            Self::Found { content: Content::Differs, .. } => OutcomeKind::Differs,
            Self::Many => OutcomeKind::Many,
            Self::Absent => OutcomeKind::Absent,
            Self::CannotTell { .. } => OutcomeKind::CannotTell,
        }
    }

    /// The same, with a pause in place of a moment, as
    /// [`Outcome::heard_at`](super::outcome::Outcome::heard_at).
    #[must_use]
    pub fn heard_at(mut self, now: Timestamp) -> Self {
        if let Self::CannotTell { not_before: Some(asked) } = &mut self {
            *asked = NotBefore::After(asked.at(now).since(now));
        }
        self
    }
}

/// What an adapter reports of one look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpReport {
    /// What it found.
    pub finding: Finding,
    /// A short stable word for the cause, such as `timeout`.
    pub error_code: Option<String>,
    /// Status of the HTTP answer, if there was one.
    pub http_status: Option<u16>,
    /// What was seen, cut to [`EVIDENCE_CHARS_MAX`]. Never holds a secret.
    pub evidence: Option<String>,
}

impl LookUpReport {
    /// A report without further details.
    pub const fn new(finding: Finding) -> Self {
        Self { finding, error_code: None, http_status: None, evidence: None }
    }

    /// Nobody can tell, for this cause: a short stable word.
    pub fn cannot_tell(error_code: &str) -> Self {
        Self::new(Finding::CannotTell { not_before: None }).code(error_code)
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

/// What an ended look-up adds to the facts.
#[derive(Clone, Debug)]
pub struct LookedUp<'a> {
    /// The attempt's number.
    pub number: u32,
    /// Its start, by the steady clock.
    pub started: Timestamp,
    /// Its end for us, by the wall clock.
    pub ended: Timestamp,
    /// The request that a delivery made at its start would have carried.
    pub request: &'a RequestFingerprint,
    /// How it ended.
    pub ending: &'a Ending,
}

impl Facts {
    /// A look-up begins. The receiver is asked and not changed.
    pub fn look_up_begins(&mut self, number: u32) {
        self.open = Some(Open { number, kind: AttemptKind::LookUp });
        self.asks = self.asks.saturating_add(1);
        self.ask_now = false;
        self.version += 1;
    }

    /// A look-up ends, or a late answer takes the place of a provisional end.
    ///
    /// Returns whether an absence counts: only one that was looked for after the
    /// receiver could no longer act, that nothing has overtaken, and that was
    /// looked for where every delivery that may have acted had gone.
    pub fn look_up_ends(
        &mut self,
        end: &LookedUp<'_>,
        terms: &Terms,
        seed: Seed,
        key: &str,
    ) -> bool {
        let under_way = self.open.is_some_and(|open| open.number == end.number);
        if under_way {
            self.open = None;
        }
        self.version += 1;
        match end.ending {
            Ending::LookedUp(Finding::Found { content: Content::Differs, .. }) => {
                self.answer = Answer::Differs;
            }
            Ending::LookedUp(Finding::Found { remote_id, .. }) => {
                self.proven(remote_id.clone(), SettledBy::LookUp);
            }
            Ending::LookedUp(Finding::Many) => self.answer = Answer::Many,
            Ending::LookedUp(Finding::Absent) => {
                return self.absent(end, under_way, terms);
            }
            Ending::LookedUp(Finding::CannotTell { not_before }) => {
                let asks = self.asks.max(1);
                let pause = terms.retry.pause(*not_before, asks, end.ended, seed, key);
                self.not_before = self.not_before.max(Some(pause));
            }
            Ending::Interrupted { .. } | Ending::CutOff | Ending::Outcome(_) => {}
        }
        false
    }

    fn absent(&mut self, end: &LookedUp<'_>, under_way: bool, terms: &Terms) -> bool {
        let settle_delay = terms.contract.settle_delay;
        let fits = self.possible.as_ref().is_none_or(|possible| {
            end.started >= possible.until.plus(settle_delay)
                && possible.request.as_ref() == Some(end.request)
        });
        let counts = under_way && fits;
        self.absences = self.absences.saturating_add(u32::from(counts));
        // The next one, if there is to be one, comes after a pause.
        if let Some(look_up) = &terms.contract.look_up
            && self.absences < look_up.polls
        {
            self.not_before = self.not_before.max(Some(end.ended.plus(look_up.interval)));
        }
        counts
    }
}
