//! The rate limit of a receiver: how many calls may begin, and when the next one may.
//!
//! Pure, and one stored number: until when the calls that have begun are paid for. A
//! claim asks for the room before it writes an attempt and pays for what it has begun in
//! the same transaction, so that nothing is begun that would have to wait, a restart
//! makes no room, and what found nothing to do costs nothing.

use crate::clock::Timestamp;
use std::time::Duration;

/// How many calls may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// So many in each period.
    pub count: u32,
    /// The period.
    pub period: Duration,
    /// So many of them at once, after a time without calls.
    pub burst: u32,
}

impl Settings {
    /// What one call costs, in nanoseconds.
    fn price(&self) -> i64 {
        let nanos = self.period.as_nanos().div_ceil(u128::from(self.count.max(1)));
        i64::try_from(nanos).unwrap_or(i64::MAX).max(1)
    }

    /// How far ahead calls may be paid for, in nanoseconds.
    fn depth(&self) -> i64 {
        self.price().saturating_mul(i64::from(self.burst.max(1)))
    }
}

/// Until when what has begun is paid for, in nanoseconds of the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paid(pub i64);

fn nanos(now: Timestamp) -> i64 {
    now.as_millis().saturating_mul(1_000_000)
}

impl Paid {
    /// Nothing is owed now, or what is, but never more than a whole burst: a clock that
    /// was wrong holds nobody for longer.
    fn at(self, now: Timestamp, settings: &Settings) -> i64 {
        let now = nanos(now);
        self.0.clamp(now, now.saturating_add(settings.depth()))
    }

    /// How many calls may begin now, by the steady clock.
    pub fn room(self, now: Timestamp, settings: &Settings) -> usize {
        let ahead = self.at(now, settings).saturating_sub(nanos(now));
        let left = settings.depth().saturating_sub(ahead) / settings.price();
        usize::try_from(left).unwrap_or(0)
    }

    /// So many have begun.
    #[must_use]
    pub fn begun(self, calls: usize, now: Timestamp, settings: &Settings) -> Self {
        let calls = i64::try_from(calls).unwrap_or(i64::MAX);
        Self(self.at(now, settings).saturating_add(settings.price().saturating_mul(calls)))
    }

    /// How long until the next call may begin.
    pub fn wait(self, now: Timestamp, settings: &Settings) -> Duration {
        let ahead = self.at(now, settings).saturating_sub(nanos(now));
        let free = settings.depth().saturating_sub(settings.price());
        let wait = u64::try_from(ahead.saturating_sub(free)).unwrap_or(0);
        Duration::from_millis(wait.div_ceil(1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SETTINGS: Settings =
        Settings { count: 100, period: SECOND.saturating_mul(10), burst: 20 };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_burst_and_then_one_after_another() {
        let paid = Paid(i64::MIN);
        assert_eq!(paid.room(at(0), &SETTINGS), 20);
        let paid = paid.begun(20, at(0), &SETTINGS);
        assert_eq!((paid.room(at(0), &SETTINGS), paid.room(at(99), &SETTINGS)), (0, 0));
        assert_eq!(paid.wait(at(0), &SETTINGS), SECOND / 10);
        assert_eq!((paid.room(at(100), &SETTINGS), paid.room(at(1_000), &SETTINGS)), (1, 10));
        assert_eq!(paid.room(at(86_400_000), &SETTINGS), 20, "a day off makes no larger burst");
        assert_eq!(Paid(i64::MAX).wait(at(0), &SETTINGS), SECOND / 10, "nor does a wrong clock");
    }

    proptest! {
        #[test]
        fn no_period_sees_more_than_its_count_and_one_burst(
            count in 1..50_u32, period in 1..5_000_u64, burst in 1..30_u32,
            pauses in prop::collection::vec(0..700_i64, 1..60),
        ) {
            let settings = Settings { count, period: Duration::from_millis(period), burst };
            let (mut paid, mut now) = (Paid(0), 0);
            let mut calls: Vec<i64> = Vec::new();
            for pause in pauses {
                now += pause;
                let room = paid.room(at(now), &settings);
                paid = paid.begun(room, at(now), &settings);
                calls.extend(std::iter::repeat_n(now, room));
                let wait = i64::try_from(paid.wait(at(now), &settings).as_millis()).unwrap();
                prop_assert!(paid.room(at(now + wait), &settings) > 0, "the wait is long enough");
            }
            let period = i64::try_from(period).unwrap();
            for first in &calls {
                let within = calls.iter().filter(|at| (*first..*first + period).contains(at));
                prop_assert!(within.count() <= usize::try_from(count + burst).unwrap());
            }
        }
    }
}
