//! Which request meets which course: the first rule that fits counts.

use super::course::{Course, Hears, Pause};
use super::records::Contract;
use super::reply::Dialect;
use super::request::KeyAt;
use std::time::Duration;

/// What a server does: the CRM that it plays, and the rules for bad days.
#[derive(Clone, Debug)]
pub struct Script {
    pub(super) key: KeyAt,
    pub(super) look_up: Option<KeyAt>,
    pub(super) contract: Contract,
    pub(super) dialect: Dialect,
    rules: Vec<(When, Course)>,
}

impl Script {
    /// A CRM that finds the operation's key there, and keeps that contract.
    #[must_use]
    pub fn new(key: KeyAt, contract: Contract) -> Self {
        let dialect = Dialect::default();
        Self { key, look_up: None, contract, dialect, rules: Vec::new() }
    }

    /// A GET with a key in this place is answered with the record of that key.
    #[must_use]
    pub fn look_up(mut self, key: KeyAt) -> Self {
        self.look_up = Some(key);
        self
    }

    /// How the CRM words its answers.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Adds a rule behind those that are there.
    #[must_use]
    pub fn rule(mut self, when: When, course: Course) -> Self {
        self.rules.push((when, course));
        self
    }

    /// The first rule whose turn comes too late for what it orders.
    pub(super) fn first_too_late(&self) -> Option<TooLate> {
        let mut decided = Stage::Accepted;
        self.rules.iter().enumerate().find_map(|(rule, (when, course))| {
            decided = decided.max(when.decided_at(&self.key));
            let needed = needed_at(course);
            (decided > needed).then_some(TooLate { rule: rule + 1, decided, needed })
        })
    }

    /// The course that a request meets, as soon as that can be told.
    pub(super) fn pick(&self, seen: &Seen<'_>) -> Option<Course> {
        for (when, course) in &self.rules {
            match when.holds(seen) {
                Some(true) => return Some(course.clone()),
                Some(false) => {}
                None => return None,
            }
        }
        Some(Course::default())
    }
}

/// A rule that cannot be followed, since it is decided only later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rule {rule} orders something for the stage {needed:?}, but whether it is met, or one before \
     it, is known only at the stage {decided:?}"
)]
pub struct TooLate {
    /// Its place in the script, from 1.
    pub rule: usize,
    /// When it is known whether it is met.
    pub decided: Stage,
    /// When it would have to be known.
    pub needed: Stage,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The connection is made.
    Accepted,
    /// Its first byte has come.
    Arrived,
    /// Its head has been read.
    Head,
    /// Its body has been read, or has ended early.
    Body,
}

fn needed_at(course: &Course) -> Stage {
    match course.hears {
        Hears::NoConnection | Hears::Hello => Stage::Accepted,
        Hears::Nothing => Stage::Arrived,
        _ if !matches!(course.before_reading, Pause::None) => Stage::Arrived,
        Hears::Head | Hears::Body(_) => Stage::Head,
        Hears::Everything if course.pace.is_some() || !course.invites => Stage::Head,
        Hears::Everything => Stage::Body,
    }
}

/// Which requests a rule is for. All counts begin with 1.
#[derive(Clone, Debug)]
pub enum When {
    /// All.
    Always,
    /// Those on the connection of this number.
    Connection(u64),
    /// Those on a connection that has carried another one.
    Reused,
    /// The request of this number, in the order of their first bytes.
    Arrival(u64),
    /// Those that come in this span of time, counted from the start of the server.
    Between {
        /// From then on.
        from: Duration,
        /// Until then.
        to: Duration,
    },
    /// Those of this method.
    Method(&'static str),
    /// Those whose target begins so.
    Target(String),
    /// Those that carry this key.
    Key(String),
    /// The request of this number among those that carry the same key.
    OfItsKey(u64),
    /// Those for which all of these hold.
    All(Vec<When>),
}

/// What is known of a request so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) stage: Stage,
    pub(super) elapsed: Duration,
    pub(super) connection: u64,
    /// The how manyth on its connection.
    pub(super) turn: u64,
    pub(super) arrival: u64,
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    pub(super) key: Key<'a>,
}

/// What is known of a request's key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'a> {
    NotYet,
    None,
    Is {
        key: &'a str,
        /// The how manyth request with it.
        number: u64,
    },
}

impl When {
    /// A request that this and the other hold for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::All(vec![self, other])
    }

    fn decided_at(&self, key: &KeyAt) -> Stage {
        match self {
            Self::Always | Self::Connection(_) => Stage::Accepted,
            Self::Reused | Self::Arrival(_) | Self::Between { .. } => Stage::Arrived,
            Self::Method(_) | Self::Target(_) => Stage::Head,
            Self::Key(_) | Self::OfItsKey(_) if key.is_in_the_head() => Stage::Head,
            Self::Key(_) | Self::OfItsKey(_) => Stage::Body,
            Self::All(parts) => {
                let stages = parts.iter().map(|part| part.decided_at(key));
                stages.max().unwrap_or(Stage::Accepted)
            }
        }
    }

    /// Whether a request is meant; `None` if that is not known yet.
    fn holds(&self, seen: &Seen<'_>) -> Option<bool> {
        let from = |stage: Stage, holds: bool| (seen.stage >= stage).then_some(holds);
        match self {
            Self::Always => Some(true),
            Self::Connection(number) => Some(seen.connection == *number),
            Self::Reused => from(Stage::Arrived, seen.turn > 1),
            Self::Arrival(number) => from(Stage::Arrived, seen.arrival == *number),
            Self::Between { from: first, to } => {
                from(Stage::Arrived, (*first..*to).contains(&seen.elapsed))
            }
            Self::Method(method) => from(Stage::Head, seen.method == *method),
            Self::Target(start) => from(Stage::Head, seen.target.starts_with(start)),
            Self::Key(wanted) => match seen.key {
                Key::NotYet => None,
                Key::None => Some(false),
                Key::Is { key, .. } => Some(key == wanted),
            },
            Self::OfItsKey(wanted) => match seen.key {
                Key::NotYet => None,
                Key::None => Some(false),
                Key::Is { number, .. } => Some(number == *wanted),
            },
            Self::All(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| part.holds(seen)).collect();
                let refused = parts.contains(&Some(false));
                if refused {
                    Some(false)
                } else {
                    parts.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
                }
            }
        }
    }
}
