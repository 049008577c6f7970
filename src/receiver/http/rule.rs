//! Rules of the operator: what an answer means, and where its receipt is. Pure.

use super::exchange::Answer;
use crate::text_enum::text_enum;
use hyper::header::HeaderName;
use regex::Regex;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Longest id that is taken for a receipt, in characters.
const REMOTE_ID_CHARS_MAX: usize = 500;

text_enum! {
    /// What a rule may say of an answer.
    pub enum RuleOutcome {
        /// Done now.
        Applied = "applied",
        /// Done, and it had been done before.
        Replayed = "replayed",
        /// Something is there under the key.
        AlreadyExists = "already_exists",
        /// Not taken, may pass later.
        Unavailable = "unavailable",
        /// Not taken, since there were too many calls.
        Throttled = "throttled",
        /// Still at work on this key.
        InProgress = "in_progress",
        /// Will never be taken.
        Rejected = "rejected",
        /// Other content is there under the key.
        Conflict = "conflict",
        /// Refused for want of rights.
        Unauthorised = "unauthorised",
        /// Nobody can tell.
        Unknown = "unknown",
    }
}

/// Which answers a rule is about, and what they mean.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, kept with the attempt.
    pub name: Option<String>,
    /// The statuses; any if absent.
    pub status: Option<Statuses>,
    /// The part that is looked at.
    pub part: Part,
    /// The part is exactly this text.
    pub equals: Option<String>,
    /// The part holds something that matches.
    pub matches: Option<Regex>,
    /// What it means.
    pub outcome: RuleOutcome,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The value of a header.
    Header(HeaderName),
    /// What a JSON pointer finds in the body.
    Pointer(String),
    /// The body as text.
    Body,
}

/// Statuses: `"409"`, `"4xx"`, `"500-504"`, or several with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// Reads statuses; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let range = |text: &str| {
            let text = text.trim();
            if let Some(class) = text.strip_suffix("xx") {
                let class = status(&format!("{class}00"))?;
                return Some(class..=class + 99);
            }
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            let (from, to) = (status(from)?, status(to)?);
            (from <= to).then_some(from..=to)
        };
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(Self)
    }

    pub(super) fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

fn status(text: &str) -> Option<u16> {
    let digits = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|status| digits && *status >= 100)
}

impl Rule {
    /// Whether this answer is one of those. What is not the whole of a body is
    /// looked into by no rule.
    pub(super) fn matches(&self, answer: &Answer) -> bool {
        if self.status.as_ref().is_some_and(|statuses| !statuses.contains(answer.status)) {
            return false;
        }
        let texts = self.part.texts(answer);
        if let (Part::Body, None, None) = (&self.part, &self.equals, &self.matches) {
            return true;
        }
        texts.iter().any(|text| {
            self.equals.as_ref().is_none_or(|wanted| text == wanted)
                && self.matches.as_ref().is_none_or(|pattern| pattern.is_match(text))
        })
    }

    /// The word that is kept with an attempt that it decided.
    pub(super) fn code(&self, index: usize) -> String {
        self.name.clone().unwrap_or_else(|| format!("rule_{}", index + 1))
    }
}

impl Part {
    fn texts<'a>(&self, answer: &'a Answer) -> Vec<Cow<'a, str>> {
        match self {
            Self::Header(name) => {
                let values = answer.headers.get_all(name).iter();
                values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect()
            }
            _ if answer.cut.is_some() => Vec::new(),
            Self::Body => vec![String::from_utf8_lossy(&answer.body)],
            Self::Pointer(pointer) => {
                let found = json(answer).and_then(|body| match body.pointer(pointer)? {
                    Value::Null => None,
                    Value::String(text) => Some(text.clone()),
                    other => Some(other.to_string()),
                });
                found.into_iter().map(Cow::Owned).collect()
            }
        }
    }
}

fn json(answer: &Answer) -> Option<Value> {
    serde_json::from_slice(&answer.body).ok()
}

/// Where an answer holds the receiver's id.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// Which part.
    pub part: Part,
    /// What of it: the first group, or the whole match.
    pub pattern: Option<Regex>,
}

impl Receipt {
    /// The id, if there is one that can be kept as it is.
    pub(super) fn find(&self, answer: &Answer) -> Option<String> {
        let text = match &self.part {
            Part::Pointer(pointer) if answer.cut.is_none() => {
                match json(answer)?.pointer(pointer)? {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => exact(number)?,
                    _ => return None,
                }
            }
            part => part.texts(answer).into_iter().next()?.into_owned(),
        };
        let id = match &self.pattern {
            None => text,
            Some(pattern) => {
                let found = pattern.captures(&text)?;
                found.get(1).or_else(|| found.get(0))?.as_str().to_owned()
            }
        };
        let fits = id.chars().count() <= REMOTE_ID_CHARS_MAX && !id.chars().any(char::is_control);
        (fits && !id.trim().is_empty()).then_some(id)
    }
}

/// A number as it was written; `None` where reading it may have changed it.
fn exact(number: &Number) -> Option<String> {
    (number.is_i64() || number.is_u64()).then(|| number.to_string())
}
