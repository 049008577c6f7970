//! When to try again, and for how long: delays and budget of a receiver.

use super::outcome::{Ending, NotBefore, NotTakenWhy, Outcome};
use crate::clock::Timestamp;
use crate::jitter::Seed;
use std::time::Duration;

/// Delays and budget, as configured for a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// How delays grow.
    pub delays: Delays,
    /// Tries that may be spent; the budget ends with the one that reaches it.
    pub max_attempts: u32,
    /// Time from the first attempt to the last failure after which the budget ends.
    pub max_elapsed: Duration,
    /// The longest that a receiver's Retry-After is believed.
    pub retry_after_ceiling: Duration,
}

/// How delays grow.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// `initial`, then `multiplier` times more, at most `max_interval`.
    Exponential {
        /// Before the second try.
        initial: Duration,
        /// Growth from one delay to the next, at least 1.
        multiplier: f64,
        /// The longest delay.
        max_interval: Duration,
    },
    /// These, one after another; the last one again and again.
    Schedule(Vec<Duration>),
}

impl Retry {
    /// Of a receiver that is not configured: no delay, no try.
    pub const UNDECLARED: Self = Self {
        delays: Delays::Schedule(Vec::new()),
        max_attempts: 0,
        max_elapsed: Duration::ZERO,
        // A pause that was asked for holds when the receiver is configured again.
        retry_after_ceiling: Duration::from_hours(24),
    };

    /// When the next try may be, for an attempt that ended so at `ended_at`.
    ///
    /// `tries` counts deliveries since the budget began, this one included.
    /// `None` where nothing needs to be waited for: an attempt of ours that was
    /// never begun and asks for no pause, or that the end of a process or a
    /// stop interrupted.
    ///
    /// # Properties
    ///
    /// The delay lies between half of the full delay and all of it, and never
    /// below what the receiver asked for, as far as `retry_after_ceiling`.
    pub fn not_before(
        &self,
        ending: &Ending,
        tries: u32,
        ended_at: Timestamp,
        seed: Seed,
        key: &str,
    ) -> Option<Timestamp> {
        let asked = match ending {
            Ending::Interrupted { .. }
            | Ending::CutOff
            | Ending::LookedUp(_)
            | Ending::Outcome(
                Outcome::Applied { .. }
                | Outcome::AlreadyExists { .. }
                | Outcome::Rejected
                | Outcome::Conflict
                | Outcome::Unauthorised { .. }
                | Outcome::Unexpected
                | Outcome::NotTaken { why: NotTakenWhy::Stale, not_before: None },
            ) => return None,
            Ending::Outcome(Outcome::Unknown) => None,
            Ending::Outcome(
                Outcome::NotTaken { not_before, .. } | Outcome::InProgress { not_before },
            ) => *not_before,
        };
        Some(self.pause(asked, tries, ended_at, seed, key))
    }

    /// The end of a pause after so many tries in vain (from 1).
    pub fn pause(
        &self,
        asked: Option<NotBefore>,
        tries: u32,
        ended_at: Timestamp,
        seed: Seed,
        key: &str,
    ) -> Timestamp {
        let draw = seed.unit(key, u64::from(tries));
        let own = ended_at.plus(self.full_delay(tries).mul_f64(0.5 + draw / 2.0));
        asked.map_or(own, |asked| own.max(self.capped(asked, ended_at)))
    }

    /// The time that a receiver asked for, as far as it is believed.
    pub fn capped(&self, asked: NotBefore, ended_at: Timestamp) -> Timestamp {
        asked.at(ended_at).min(ended_at.plus(self.retry_after_ceiling))
    }

    /// Whether the receiver asked for more than is believed. Said in the log.
    pub fn bites(&self, asked: NotBefore, ended_at: Timestamp) -> bool {
        asked.at(ended_at) > ended_at.plus(self.retry_after_ceiling)
    }

    /// The delay before jitter, after so many tries (from 1).
    pub fn full_delay(&self, tries: u32) -> Duration {
        let step = tries.saturating_sub(1);
        match &self.delays {
            Delays::Exponential { initial, multiplier, max_interval } => {
                let factor = multiplier.powi(i32::try_from(step).unwrap_or(i32::MAX));
                let seconds = initial.as_secs_f64() * factor;
                // Not finite or beyond the limit: the limit.
                if seconds < max_interval.as_secs_f64() {
                    Duration::from_secs_f64(seconds)
                } else {
                    *max_interval
                }
            }
            Delays::Schedule(delays) => {
                let step = usize::try_from(step).unwrap_or(usize::MAX);
                delays.get(step).or(delays.last()).copied().unwrap_or_default()
            }
        }
    }

    /// The longest time a retry can lie ahead; a later one is a clock fault.
    pub fn longest(&self) -> Duration {
        let delay = match &self.delays {
            Delays::Exponential { max_interval, .. } => *max_interval,
            Delays::Schedule(delays) => delays.iter().max().copied().unwrap_or_default(),
        };
        delay.max(self.retry_after_ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn retry(initial_ms: u64, multiplier: f64, max_ms: u64) -> Retry {
        Retry {
            delays: Delays::Exponential {
                initial: Duration::from_millis(initial_ms),
                multiplier,
                max_interval: Duration::from_millis(max_ms),
            },
            max_attempts: 12,
            max_elapsed: Duration::from_secs(86_400),
            retry_after_ceiling: Duration::from_secs(86_400),
        }
    }

    fn throttled(not_before: NotBefore) -> Ending {
        let why = NotTakenWhy::Throttled;
        Ending::Outcome(Outcome::NotTaken { why, not_before: Some(not_before) })
    }

    #[test]
    fn an_explicit_schedule_repeats_its_last_delay() {
        let delays = Delays::Schedule(vec![Duration::from_secs(1), Duration::from_secs(9)]);
        let retry = Retry { delays, ..retry(1, 1.0, 1) };
        let seconds: Vec<_> = (1..5).map(|n| retry.full_delay(n).as_secs()).collect();
        assert_eq!(seconds, [1, 9, 9, 9]);
    }

    #[test]
    fn a_retry_after_is_never_undercut_and_never_believed_beyond_its_ceiling() {
        let retry = retry(1_000, 2.0, 60_000);
        let at = Timestamp::from_millis(1_000_000);
        let after = |asked| retry.not_before(&throttled(asked), 1, at, Seed(1), "k").unwrap();
        let hour = Duration::from_secs(3_600);
        assert_eq!(after(NotBefore::After(hour)), at.plus(hour));
        assert_eq!(after(NotBefore::At(at.plus(hour))), at.plus(hour));
        assert_eq!(after(NotBefore::After(hour * 1_000)), at.plus(hour * 24));
        assert!(after(NotBefore::At(at.minus(hour))) > at, "a past date gives our own delay");
        assert!(retry.bites(NotBefore::After(hour * 25), at));
    }

    #[test]
    fn what_never_reached_the_receiver_through_our_own_fault_waits_for_nothing() {
        let retry = retry(1_000, 2.0, 60_000);
        let at = Timestamp::from_millis(0);
        let stale = Outcome::NotTaken { why: NotTakenWhy::Stale, not_before: None };
        for ending in [Ending::CutOff, Ending::Interrupted { alone: true }, Ending::Outcome(stale)]
        {
            assert_eq!(retry.not_before(&ending, 1, at, Seed(1), "k"), None);
        }
    }

    proptest! {
        #[test]
        fn a_delay_lies_between_half_and_all_of_it_whatever_the_settings(
            initial in 0_u64..10_000_000,
            multiplier in 1.0_f64..1e9,
            max in 0_u64..1_000_000_000,
            tries in any::<u32>(),
            seed in any::<u64>(),
        ) {
            let retry = retry(initial, multiplier, max);
            let at = Timestamp::from_millis(0);
            let unknown = Ending::Outcome(Outcome::Unknown);
            let next = retry.not_before(&unknown, tries, at, Seed(seed), "k").unwrap();
            let full = retry.full_delay(tries);
            prop_assert!(full <= Duration::from_millis(max));
            prop_assert!(next <= at.plus(full));
            prop_assert!(next >= at.plus(full.mul_f64(0.499)));
        }
    }
}
