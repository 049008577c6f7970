//! Holds: a receiver is left alone for a time, whatever is due for it.
//!
//! A hold only delays. It is the last gate of all: it adds no fact, spends nothing,
//! and decides nothing about repeats.

use super::policy::{Gate, Next, Step};
use crate::clock::Timestamp;
use crate::text_enum::text_enum;
use serde::Serialize;
use std::fmt;

text_enum! {
    /// What holds a receiver.
    pub enum HeldBy {
        /// A person.
        Pause = "pause",
        /// The receiver refuses us as a whole, until our credential is another one.
        Suspension = "suspension",
        /// The receiver, which has asked for a pause.
        RetryAfter = "retry_after",
        /// Its circuit breaker: it is down, as far as calls can tell.
        Breaker = "breaker",
    }
}

impl HeldBy {
    /// Whether the time counts for no operation's budget: nobody was to deliver then.
    pub const fn stops_the_clock(self) -> bool {
        match self {
            Self::Pause | Self::Suspension => true,
            Self::RetryAfter | Self::Breaker => false,
        }
    }
}

/// A receiver is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// The receiver's name.
    pub receiver: String,
    /// What holds it.
    pub held_by: HeldBy,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself; `None` if somebody has to end it.
    pub until: Option<Timestamp>,
    /// The person who wanted it.
    pub who: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

impl Hold {
    /// Whether it is in force.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.held_by)?;
        if let Some(who) = &self.who {
            write!(f, " by {who}")?;
        }
        write!(f, " since {}", self.since)?;
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// Of the holds in force the one of this receiver that lasts longest.
pub fn last<'a>(holds: &'a [Hold], receiver: &str, now: Timestamp) -> Option<&'a Hold> {
    let ends = |hold: &&Hold| (hold.until.is_none(), hold.until);
    let its = holds.iter().filter(|hold| hold.receiver == receiver && hold.holds(now));
    its.max_by_key(ends)
}

/// The last gate: what would be done at a receiver that is held waits.
#[must_use]
pub fn behind(next: Next, hold: Option<&Hold>) -> Next {
    match (next.step, hold) {
        (Step::Deliver | Step::Ask, Some(hold)) => {
            Next { step: Step::Wait { gate: Gate::ReceiverHeld, until: hold.until }, ..next }
        }
        (_, _) => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::policy::Row;
    use crate::outbox::state::BlockReason;

    fn hold(until: Option<i64>) -> Hold {
        Hold {
            receiver: "crm".to_owned(),
            held_by: HeldBy::Pause,
            since: Timestamp::from_millis(0),
            until: until.map(Timestamp::from_millis),
            who: None,
            reason: None,
        }
    }

    #[test]
    fn a_hold_delays_a_delivery_and_keeps_nothing_from_being_settled() {
        let held = hold(Some(7));
        let step = |step| behind(Next { row: Row::Fresh, step }, Some(&held)).step;
        let until = Some(Timestamp::from_millis(7));
        let waits = Step::Wait { gate: Gate::ReceiverHeld, until };
        assert_eq!((step(Step::Deliver), step(Step::Ask)), (waits, waits));
        let block = Step::Block(BlockReason::Expired);
        for other in [Step::Sent, Step::Stay, block] {
            assert_eq!(step(other), other);
        }
    }

    #[test]
    fn the_hold_that_lasts_longest_counts_and_one_without_end_outlasts_all() {
        let all = [hold(Some(5)), hold(None), hold(Some(9))];
        let now = Timestamp::from_millis(0);
        assert_eq!(last(&all, "crm", now).map(|hold| hold.until), Some(None));
        assert_eq!(last(&[hold(Some(9)), hold(Some(5))], "crm", now), Some(&hold(Some(9))));
        assert_eq!(last(&all, "mail", now), None);
        assert!(hold(None).holds(Timestamp::from_millis(i64::MAX)));
        let ends = hold(Some(5));
        assert!(ends.holds(Timestamp::from_millis(4)) && !ends.holds(Timestamp::from_millis(5)));
    }
}
