//! The facts worked out anew from a plain list of words.
//!
//! A history says: a delivery began, it ended so, a person asked for another.
//! [`recompute`] reads the whole list and shares no code with the facts that
//! the product carries along.

use handoff::clock::Timestamp;
use handoff::outbox::contract::{Contract, Exists};
use handoff::outbox::facts::{
    Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint,
};
use handoff::outbox::outcome::{Ending, NotTakenWhy, Outcome};
use handoff::outbox::state::SettledBy;
use std::time::Duration;

/// What happens next.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Begin(RequestFingerprint),
    /// To the delivery under way, or late: to one whose end was provisional, or
    /// a success to any.
    End(u32, Ending),
    Retry,
    Withdraw,
}

/// What happened, and when by the steady clock.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) when: Timestamp,
    pub(crate) what: Event,
}

/// A delivery, as its row in the database has it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) number: u32,
    pub(crate) request: RequestFingerprint,
    pub(crate) started: Timestamp,
    pub(crate) ended: Option<(Timestamp, Ending)>,
}

impl Delivery {
    pub(crate) fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn is_provisional(&self) -> bool {
        matches!(&self.ended, Some((_, Ending::Interrupted { .. } | Ending::CutOff)))
    }

    pub(crate) fn is_applied(&self) -> bool {
        matches!(&self.ended, Some((_, Ending::Outcome(Outcome::Applied { .. }))))
    }

    /// It may have acted unless its answer denies it; a receipt is no doubt.
    pub(crate) fn may_have_acted(&self) -> bool {
        let Some((_, Ending::Outcome(outcome))) = &self.ended else { return true };
        match outcome {
            Outcome::Unknown | Outcome::AlreadyExists { .. } | Outcome::InProgress { .. } => true,
            Outcome::Applied { .. }
            | Outcome::NotTaken { .. }
            | Outcome::Rejected
            | Outcome::Conflict
            | Outcome::Unauthorised { .. }
            | Outcome::Unexpected => false,
        }
    }

    pub(crate) fn spends(&self) -> u32 {
        let spends = match &self.ended {
            None | Some((_, Ending::CutOff | Ending::LookedUp(_))) => false,
            Some((_, Ending::Interrupted { .. })) => true,
            Some((_, Ending::Outcome(Outcome::NotTaken { why, .. }))) => {
                *why != NotTakenWhy::Throttled && *why != NotTakenWhy::Stale
            }
            Some((_, Ending::Outcome(outcome))) => *outcome == Outcome::Unknown,
        };
        u32::from(spends)
    }
}

pub(crate) fn deliveries(words: &[Word]) -> Vec<Delivery> {
    let mut list: Vec<Delivery> = Vec::new();
    for word in words {
        match &word.what {
            Event::Begin(request) => list.push(Delivery {
                number: u32::try_from(list.len() + 1).expect("few"),
                request: request.clone(),
                started: word.when,
                ended: None,
            }),
            Event::End(number, ending) => {
                let delivery = list.iter_mut().find(|delivery| delivery.number == *number);
                delivery.expect("it began").ended = Some((word.when, ending.clone()));
            }
            Event::Retry | Event::Withdraw => {}
        }
    }
    list
}

/// Those that may have acted, folded.
pub(crate) fn fold<'a>(list: impl Iterator<Item = &'a Delivery>) -> Option<Possible> {
    let list: Vec<_> = list.filter(|delivery| delivery.may_have_acted()).collect();
    let ended = |delivery: &Delivery| delivery.ended.as_ref().map_or(delivery.started, |end| end.0);
    let request = &list.first()?.request;
    let same = list.iter().all(|delivery| delivery.request == *request);
    Some(Possible {
        since: list.iter().map(|delivery| delivery.started).min()?,
        until: list.iter().map(|delivery| ended(delivery)).max()?,
        request: same.then(|| request.clone()),
        count: u32::try_from(list.len()).expect("few"),
        marks: 0,
    })
}

/// When the next try may be, as an adapter and the delays would say: a long
/// time for the odd numbers, a short one for the even.
pub(crate) fn not_before(number: u32, ending: &Ending, ended: Timestamp) -> Option<Timestamp> {
    let waits = match ending {
        Ending::Outcome(Outcome::NotTaken { why, .. }) => *why != NotTakenWhy::Stale,
        Ending::Outcome(outcome) => {
            matches!(outcome, Outcome::Unknown | Outcome::InProgress { .. })
        }
        Ending::Interrupted { .. } | Ending::CutOff | Ending::LookedUp(_) => false,
    };
    let delay = Duration::from_secs(if number % 2 == 1 { 1_000 } else { 10 });
    waits.then(|| ended.plus(delay))
}

fn answer_of(ending: &Ending) -> Option<Answer> {
    let Ending::Outcome(outcome) = ending else { return None };
    match outcome {
        Outcome::AlreadyExists { .. } => Some(Answer::Exists),
        Outcome::Rejected => Some(Answer::Rejected),
        Outcome::Unauthorised { whole_receiver: false } => Some(Answer::Refused),
        Outcome::Unauthorised { whole_receiver: true } => None,
        Outcome::Unexpected => Some(Answer::Unexpected),
        Outcome::Conflict => Some(Answer::Conflict),
        Outcome::Applied { .. }
        | Outcome::NotTaken { .. }
        | Outcome::InProgress { .. }
        | Outcome::Unknown => None,
    }
}

/// The facts, from the list of words alone.
pub(crate) fn recompute(words: &[Word], contract: &Contract) -> Facts {
    let list = deliveries(words);
    let begun = |word: &Word| matches!(word.what, Event::Begin(_));
    let last_begin = words.iter().rposition(begun).unwrap_or(0);
    let since_begin = &words[last_begin..];
    let last_retry = since_begin.iter().rposition(|word| matches!(word.what, Event::Retry));
    let since_retry = &since_begin[last_retry.unwrap_or(0)..];
    let endings = |words: &[Word]| -> Vec<(u32, Ending, Timestamp)> {
        let end = |word: &Word| match &word.what {
            Event::End(number, ending) => Some((*number, ending.clone(), word.when)),
            Event::Begin(_) | Event::Retry | Event::Withdraw => None,
        };
        words.iter().filter_map(end).collect()
    };
    let all = endings(words);
    let applied = |ending: &Ending| matches!(ending, Ending::Outcome(Outcome::Applied { .. }));
    let attempts = u32::try_from(list.len()).expect("few");
    let crash = |ending: &Ending| *ending == Ending::Interrupted { alone: true };
    Facts {
        proof: proof(&all, contract),
        possible: fold(list.iter()),
        answer: answer(words, last_begin),
        absences: 0,
        open: list
            .iter()
            .find(|delivery| delivery.is_open())
            .map(|delivery| Open { number: delivery.number, kind: AttemptKind::Deliver }),
        spent: list.iter().map(Delivery::spends).sum(),
        asks: 0,
        // What is settled has not failed.
        failed_at: match proof(&all, contract) {
            Some(_) => None,
            None => all.iter().filter(|end| !applied(&end.1)).map(|end| end.2).max(),
        },
        budget_start: list.first().map(|delivery| delivery.started),
        solo_crashes: u32::try_from(all.iter().filter(|end| crash(&end.1)).count()).expect("few"),
        grant: last_retry.is_some(),
        ask_now: false,
        withdrawn: words.iter().any(|word| matches!(word.what, Event::Withdraw)),
        not_before: endings(since_retry)
            .iter()
            .filter_map(|(number, ending, when)| not_before(*number, ending, *when))
            .max(),
        attempts,
        tries: attempts,
        version: 1 + u64::try_from(words.len()).expect("few"),
    }
}

/// The receiver's word, a reply before an "exists" that proves, with the first
/// id that either told.
fn proof(endings: &[(u32, Ending, Timestamp)], contract: &Contract) -> Option<Proof> {
    let proves = contract.exists == Exists::Proof;
    let words = endings.iter().filter_map(|(_, ending, _)| match ending {
        Ending::Outcome(Outcome::Applied { remote_id, .. }) => Some((true, remote_id.clone())),
        Ending::Outcome(Outcome::AlreadyExists { remote_id }) if proves => {
            Some((false, remote_id.clone()))
        }
        Ending::Outcome(_) | Ending::Interrupted { .. } | Ending::CutOff | Ending::LookedUp(_) => {
            None
        }
    });
    let (replies, ids): (Vec<bool>, Vec<_>) = words.unzip();
    let by = if replies.contains(&true) { SettledBy::Reply } else { SettledBy::Policy };
    let remote_id = ids.into_iter().flatten().next();
    (!replies.is_empty()).then_some(Proof { remote_id, by })
}

/// The last answer since the last delivery began. An end without an answer
/// takes none away; a retry takes a "no" away where nothing can have acted.
fn answer(words: &[Word], last_begin: usize) -> Answer {
    let mut answer = Answer::None;
    for (index, word) in words.iter().enumerate().skip(last_begin) {
        match &word.what {
            Event::End(_, ending) => answer = answer_of(ending).unwrap_or(answer),
            Event::Retry => {
                let no = [Answer::Rejected, Answer::Refused, Answer::Unexpected].contains(&answer);
                if no && fold(deliveries(&words[..index]).iter()).is_none() {
                    answer = Answer::None;
                }
            }
            Event::Begin(_) | Event::Withdraw => {}
        }
    }
    answer
}
