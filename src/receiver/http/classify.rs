//! What the end of an exchange means. Pure: the same answer, the same outcome.
//!
//! The operator's rules come first, in their order; then the table that
//! `docs/http.md` publishes. Whatever fits neither is unknown: an answer is
//! never taken for a success because nothing else was thought of.

use super::exchange::{Answer, Ended, Failure, FailureCode};
use super::pace;
use super::rule::{Receipt, Rule, RuleOutcome};
use crate::outbox::outcome::{NotTakenWhy, Outcome, Report};
use hyper::header::{CONTENT_TYPE, LOCATION};

/// So much of a body is looked at for evidence, in characters.
const BODY_CHARS: usize = 4_096;

/// How answers are read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Where the receiver's id is.
    pub receipt: Option<Receipt>,
    /// What an answer means; the first that matches counts.
    pub rules: Vec<Rule>,
}

/// A report, and what was seen: neither cut nor free of secrets yet.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) report: Report,
    pub(super) seen: String,
}

/// What the end of an exchange means.
pub(super) fn classify(ended: &Ended, reading: &Reading) -> Verdict {
    match ended {
        Ended::NotConnected(failure) => not_sent(failure),
        Ended::NoAnswer { sent: false, failure } => not_sent(failure),
        Ended::NoAnswer { sent: true, failure } => {
            Verdict { report: Report::unknown(failure.code.as_str()), seen: failure.why.clone() }
        }
        Ended::Answered(answer) => answered(answer, reading),
    }
}

fn not_sent(failure: &Failure) -> Verdict {
    let code = failure.code.as_str();
    let report = match failure.code {
        FailureCode::NoRequest => {
            let report = Report::new(Outcome::Unexpected).code(code);
            Report { request_sent: Some(false), ..report }
        }
        _ => Report::not_taken(NotTakenWhy::Unreachable, code),
    };
    Verdict { report, seen: failure.why.clone() }
}

fn answered(answer: &Answer, reading: &Reading) -> Verdict {
    let matched = reading.rules.iter().enumerate().find(|(_, rule)| rule.matches(answer));
    let (outcome, code, mut seen) = match matched {
        Some((index, rule)) => {
            let code = rule.code(index);
            let seen = vec![format!("rule {}", index + 1)];
            (by_rule(rule.outcome, answer, reading.receipt.as_ref()), Some(code), seen)
        }
        None => {
            let (outcome, code) = by_table(answer, reading.receipt.as_ref());
            (outcome, code, Vec::new())
        }
    };
    let is_applied = matches!(outcome, Outcome::Applied { .. });
    if !is_applied || matched.is_some() {
        seen.insert(0, format!("status {}", answer.status));
    }
    if !is_applied {
        seen.extend(answer.cut.map(str::to_owned));
        seen.extend(target(answer).map(|target| format!("it points to {target}")));
        let body = String::from_utf8_lossy(&answer.body);
        let body: String = body.chars().take(BODY_CHARS).collect();
        seen.extend((!body.trim().is_empty()).then(|| format!("body: {}", body.trim())));
    }
    let error_code = code.filter(|_| !is_applied);
    let report = Report { error_code, http_status: Some(answer.status), ..Report::new(outcome) };
    Verdict { report, seen: seen.join("; ") }
}

fn by_rule(outcome: RuleOutcome, answer: &Answer, receipt: Option<&Receipt>) -> Outcome {
    let remote_id = || receipt.and_then(|receipt| receipt.find(answer));
    let not_before = pace::not_before(&answer.headers);
    match outcome {
        RuleOutcome::Applied => Outcome::Applied { remote_id: remote_id(), replayed: false },
        RuleOutcome::Replayed => Outcome::Applied { remote_id: remote_id(), replayed: true },
        RuleOutcome::AlreadyExists => Outcome::AlreadyExists { remote_id: remote_id() },
        RuleOutcome::Unavailable => Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before },
        RuleOutcome::Throttled => Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before },
        RuleOutcome::InProgress => Outcome::InProgress { not_before },
        RuleOutcome::Rejected => Outcome::Rejected,
        RuleOutcome::Conflict => Outcome::Conflict,
        RuleOutcome::Unauthorised => Outcome::Unauthorised { whole_receiver: false },
        RuleOutcome::Unknown => Outcome::Unknown,
    }
}

/// The published table.
fn by_table(answer: &Answer, receipt: Option<&Receipt>) -> (Outcome, Option<String>) {
    let not_before = pace::not_before(&answer.headers);
    let outcome = match answer.status {
        // Of several parts, some may have failed.
        207 => Outcome::Unknown,
        200..=299 => return succeeded(answer, receipt),
        // The request belongs elsewhere, and it is said so instead of an answer to it.
        301 | 307 | 308 => Outcome::Unexpected,
        // The credential itself is refused, or only what it may do.
        401 => Outcome::Unauthorised { whole_receiver: true },
        403 => Outcome::Unauthorised { whole_receiver: false },
        408 | 425 => Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before },
        429 => Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before },
        // Still at work, done before, other content, or a clash: only a rule can tell.
        409 => Outcome::Unknown,
        400..=499 => Outcome::Rejected,
        // Also 302 and 303: a form's handler answers so when it has done its work.
        _ => Outcome::Unknown,
    };
    (outcome, Some(format!("http_{}", answer.status)))
}

/// A status that claims success.
fn succeeded(answer: &Answer, receipt: Option<&Receipt>) -> (Outcome, Option<String>) {
    let applied = |remote_id| (Outcome::Applied { remote_id, replayed: false }, None);
    let unknown = |code: &str| (Outcome::Unknown, Some(code.to_owned()));
    if let Some(id) = receipt.and_then(|receipt| receipt.find(answer)) {
        return applied(Some(id));
    }
    if answer.cut.is_some() {
        return unknown("answer_cut");
    }
    let is_empty = answer.body.trim_ascii().is_empty();
    // Without its receipt, an answer that says something says something else.
    if !is_empty && (receipt.is_some() || is_html(answer)) {
        return unknown("unexpected_answer");
    }
    applied(None)
}

fn is_html(answer: &Answer) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("html"))
}

/// Where an answer points, without user, password and query.
fn target(answer: &Answer) -> Option<String> {
    if !(300..=399).contains(&answer.status) {
        return None;
    }
    let location = String::from_utf8_lossy(answer.headers.get(LOCATION)?.as_bytes()).into_owned();
    let plain = location.split(['?', '#']).next().unwrap_or_default();
    Some(match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => plain.to_owned(),
    })
}
