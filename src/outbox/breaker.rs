//! The circuit breaker of a receiver: one that is down is asked now and then by one
//! operation, not by every one that is due.
//!
//! Pure, and without a half-open state: the claim that finds an open breaker's time
//! over begins one attempt, the probe, and moves that time past the probe's own end.
//! A probe that tells nothing, since its process is gone, is followed by another one.

use super::outcome::{Ending, NotTakenWhy, Outcome};
use crate::clock::{Now, Timestamp};
use std::time::Duration;

/// What a probe may take beyond the receiver's timeout before another one begins.
const PROBE_MARGIN: Duration = Duration::from_secs(5);

/// When it opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Calls in a row that failed for a reason of the receiver's.
    pub failures: u32,
    /// How long it is left alone then.
    pub open: Duration,
    /// Twice as long after each probe in vain, and never longer than this.
    pub max_open: Duration,
}

/// What the end of a call says of the receiver as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It is there and at work.
    Up,
    /// It is not, or takes nothing.
    Down,
    /// Nothing.
    Silent,
}

impl Voice {
    /// What this end says. Noes count as failures: of a wrong address they are all there is.
    pub const fn of(ending: &Ending) -> Self {
        match ending {
            // A look-up may be served by something else than deliveries.
            Ending::LookedUp(_) | Ending::Interrupted { .. } | Ending::CutOff => Self::Silent,
            Ending::Outcome(outcome) => match outcome {
                Outcome::Applied { .. }
                | Outcome::AlreadyExists { .. }
                | Outcome::InProgress { .. }
                | Outcome::Conflict => Self::Up,
                Outcome::NotTaken { why, .. } => match why {
                    NotTakenWhy::Unreachable | NotTakenWhy::Unavailable => Self::Down,
                    NotTakenWhy::Throttled => Self::Up,
                    NotTakenWhy::Stale => Self::Silent,
                },
                Outcome::Unknown | Outcome::Rejected | Outcome::Unexpected => Self::Down,
                Outcome::Unauthorised { .. } => Self::Silent,
            },
        }
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row, while it is closed.
    pub failures: u32,
    /// Its last opening, closing or probe in vain, by the steady clock.
    pub changed: Timestamp,
    /// It is open.
    pub open: Option<Open>,
}

/// An open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Since when, by the wall clock.
    pub since: Timestamp,
    /// When one attempt may begin, by the wall clock.
    pub until: Timestamp,
    /// How long it was opened for.
    pub length: Duration,
}

impl Breaker {
    /// Of a receiver that nothing is known of.
    pub const CLOSED: Self =
        Self { failures: 0, changed: Timestamp::from_millis(i64::MIN), open: None };

    /// A call that began at `started`, by the steady clock, has ended now.
    ///
    /// One that began before the last change tells of the time before it.
    #[must_use]
    pub fn hear(self, voice: Voice, started: Timestamp, now: Now, settings: &Settings) -> Self {
        let is_late = match self.open {
            None => started < self.changed,
            Some(_) => started <= self.changed,
        };
        match (voice, self.open) {
            (_, _) if is_late => self,
            (Voice::Silent, None) => self,
            // A probe that tells nothing makes room for another one.
            (Voice::Silent, Some(open)) => {
                Self { open: Some(Open { until: open.until.min(now.wall), ..open }), ..self }
            }
            (Voice::Up, None) => Self { failures: 0, ..self },
            (Voice::Up, Some(_)) => Self { failures: 0, changed: now.steady, open: None },
            (Voice::Down, None) => {
                let failures = self.failures.saturating_add(1);
                if failures < settings.failures {
                    return Self { failures, ..self };
                }
                let length = settings.open;
                let (since, until) = (now.wall, now.wall.plus(length));
                Self { failures, changed: now.steady, open: Some(Open { since, until, length }) }
            }
            (Voice::Down, Some(open)) => {
                let length = open.length.saturating_mul(2).min(settings.max_open);
                let until = now.wall.plus(length);
                let open = Some(Open { since: open.since, until, length });
                Self { failures: self.failures.saturating_add(1), changed: now.steady, open }
            }
        }
    }

    /// Whether an attempt that began at `started` is a probe.
    pub fn is_probe(&self, started: Timestamp) -> bool {
        self.open.is_some() && started > self.changed
    }

    /// Whether one attempt may begin, but no more.
    pub fn wants_a_probe(&self, now: Now) -> bool {
        self.open.is_some_and(|open| open.until <= now.wall)
    }

    /// The probe begins.
    #[must_use]
    pub fn probed(self, now: Now, timeout: Duration) -> Self {
        let until = now.wall.plus(timeout).plus(PROBE_MARGIN);
        Self { open: self.open.map(|open| Open { until, ..open }), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SETTINGS: Settings = Settings {
        failures: 3,
        open: SECOND.saturating_mul(10),
        max_open: SECOND.saturating_mul(30),
    };

    fn at(second: i64) -> Now {
        Now::at(Timestamp::from_millis(second * 1_000))
    }

    /// What a call makes of it.
    fn after(breaker: Breaker, voice: Voice, started: i64, ended: i64) -> Breaker {
        breaker.hear(voice, at(started).steady, at(ended), &SETTINGS)
    }

    fn opened() -> Breaker {
        (1..=3).fold(Breaker::CLOSED, |breaker, second| after(breaker, Voice::Down, 0, second))
    }

    fn until(breaker: Breaker) -> Option<i64> {
        breaker.open.map(|open| open.until.as_millis() / 1_000)
    }

    #[test]
    fn it_opens_after_so_many_failures_in_a_row_and_a_success_begins_the_row_anew() {
        let two = (1..=2).fold(Breaker::CLOSED, |it, second| after(it, Voice::Down, 0, second));
        assert_eq!(until(two), None);
        let anew = after(after(two, Voice::Up, 0, 3), Voice::Down, 0, 4);
        assert_eq!((until(anew), anew.failures), (None, 1));
        assert_eq!(until(after(two, Voice::Silent, 0, 3)), None);
        assert_eq!(until(opened()), Some(13));
        assert!(!opened().wants_a_probe(at(12)) && opened().wants_a_probe(at(13)));
    }

    #[test]
    fn each_probe_in_vain_doubles_the_time_up_to_the_longest() {
        let mut breaker = opened();
        for (start, ends) in [(13, 34), (34, 65), (65, 96)] {
            let probing = breaker.probed(at(start), SECOND);
            assert_eq!(until(probing), Some(start + 6), "one probe, and no other beside it");
            breaker = after(probing, Voice::Down, start, start + 1);
            assert_eq!(until(breaker), Some(ends));
        }
        let closed = after(breaker, Voice::Up, 96, 97);
        assert_eq!((closed.open, closed.failures), (None, 0));
        let again = (98..=100).fold(closed, |it, second| after(it, Voice::Down, 97, second));
        assert_eq!(until(again), Some(110), "it begins anew with the shortest");
    }

    #[test]
    fn calls_that_began_before_the_last_change_do_not_count() {
        let late = after(opened(), Voice::Up, 2, 9);
        assert_eq!(late, opened(), "a success of before the outage closes nothing");
        assert_eq!(after(opened(), Voice::Down, 3, 9), opened(), "nor does a failure prolong it");
        let closed = after(opened().probed(at(13), SECOND), Voice::Up, 13, 14);
        let slow = (15..=20).fold(closed, |it, second| after(it, Voice::Down, 2, second));
        assert_eq!(slow, closed, "what hung through the outage opens nothing");
    }

    #[test]
    fn a_probe_that_is_lost_is_followed_by_another_one() {
        let probing = opened().probed(at(13), SECOND);
        assert!(probing.is_probe(at(13).steady) && !probing.is_probe(at(3).steady));
        assert!(!probing.wants_a_probe(at(18)) && probing.wants_a_probe(at(19)));
        let gone = after(probing, Voice::Silent, 13, 15);
        assert!(gone.wants_a_probe(at(15)) && gone.open.is_some());
        assert_eq!(after(opened(), Voice::Silent, 2, 9), opened(), "an old call was no probe");
    }
}
