//! Time: what it is, and the only place that reads it.
//!
//! A decision never reads a clock. It is given a [`Now`], which carries two
//! readings: the wall clock, which people and due times use, and the steady
//! clock, which measures how long ago something happened and never goes back.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A moment as whole milliseconds since 1970-01-01T00:00:00Z.
///
/// SQL and JSON show the number; text shows RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment that many milliseconds after 1970 (before it, if negative).
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This moment moved forward; stays at the end of time rather than wrap.
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// This moment moved back; stays at the beginning of time rather than wrap.
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Whole milliseconds of a duration, at most `i64::MAX`.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{} ms after 1970", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    /// Reads RFC 3339, with any offset.
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_millisecond()))
    }
}

/// One reading of both clocks, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What the machine says the time is. May jump either way.
    pub wall: Timestamp,
    /// Wall time plus every backward step seen. Never goes back, so that a
    /// receiver's memory of keys is never believed to be longer than it is.
    pub steady: Timestamp,
}

impl Now {
    /// Both clocks at the same moment: right where no step has been seen yet.
    pub const fn at(time: Timestamp) -> Self {
        Self { wall: time, steady: time }
    }

    /// Both clocks moved forward together.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self { wall: self.wall.plus(by), steady: self.steady.plus(by) }
    }
}

/// The machine's wall clock, for programs that only stamp and never decide.
#[expect(clippy::disallowed_methods, reason = "the one place where wall time comes in")]
pub fn wall() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

#[cfg(feature = "daemon")]
pub use system::{Clock, Reading, SteadyMark, Steps};

#[cfg(feature = "daemon")]
mod system {
    use super::{Duration, Now, Timestamp, wall};
    use nix::time::{ClockId, clock_gettime};
    use std::sync::Mutex;

    /// A step of a clock that is smaller is not minded: clocks are read one
    /// after another, and a clock that is set right is moved in small steps.
    const STEP_MIN: Duration = Duration::from_secs(1);

    /// Where the clocks stood, kept in the database across restarts.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SteadyMark {
        /// The wall clock at that moment.
        pub wall: Timestamp,
        /// The highest steady time ever used.
        pub steady: Timestamp,
        /// Time since boot at that moment.
        pub boot_time: Duration,
        /// The boot in which it was taken; another boot has another zero.
        pub boot_id: String,
    }

    /// How far the clocks have moved beyond the time that has passed for sure.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Steps {
        /// The wall clock, in milliseconds; below zero if it was set back.
        pub wall: i64,
        /// The steady clock, which believes every step forward.
        pub steady: Duration,
    }

    impl Steps {
        /// A moment that was read before these steps, as it would be read after them.
        #[must_use]
        pub fn after(self, before: Now) -> Now {
            let wall = Timestamp(before.wall.0.saturating_add(self.wall));
            Now { wall, steady: before.steady.plus(self.steady) }
        }

        /// Whether no clock has moved by itself.
        pub fn are_none(self) -> bool {
            self == Self::default()
        }
    }

    impl SteadyMark {
        /// What happened to the clocks between an earlier mark and this one.
        ///
        /// Only within one boot is it known how much time has passed. After a
        /// reboot the time since boot is all that has passed for sure, and
        /// nothing can be said of the wall clock.
        pub fn steps_since(&self, earlier: &Self) -> Steps {
            let one_boot = self.boot_id == earlier.boot_id;
            let before = if one_boot { earlier.boot_time } else { Duration::ZERO };
            let passed = self.boot_time.saturating_sub(before);
            let wall = if one_boot {
                self.wall.as_millis().saturating_sub(earlier.wall.plus(passed).as_millis())
            } else {
                0
            };
            let steady = self.steady.since(earlier.steady.plus(passed));
            let counts = |by: Duration| by >= STEP_MIN;
            Steps {
                wall: if counts(Duration::from_millis(wall.unsigned_abs())) { wall } else { 0 },
                steady: if counts(steady) { steady } else { Duration::ZERO },
            }
        }
    }

    /// The system's clocks, joined into one that never goes back.
    #[derive(Debug)]
    pub struct Clock {
        boot_id: String,
        last: Mutex<Reading>,
    }

    /// Both clocks at one moment, and what they go on from. Pure; [`Clock`] feeds it.
    #[derive(Clone, Copy, Debug)]
    pub struct Reading {
        /// Both clocks.
        pub now: Now,
        /// Time since boot at that moment, suspend included.
        pub boot_time: Duration,
    }

    impl Reading {
        /// The first one of a process, from the mark that the last one left.
        ///
        /// Within the same boot the time since the mark is known whatever the
        /// wall clock did; after a reboot it is as much as the wall clock has
        /// gone on, whatever had been taken out of that before.
        pub fn resume(
            mark: Option<&SteadyMark>,
            wall: Timestamp,
            boot_time: Duration,
            boot_id: &str,
        ) -> Self {
            let steady = match mark {
                None => wall,
                Some(mark) if mark.boot_id == boot_id => {
                    wall.max(mark.steady.plus(boot_time.saturating_sub(mark.boot_time)))
                }
                Some(mark) => wall.max(mark.steady.plus(wall.since(mark.wall))),
            };
            Self { now: Now { wall, steady }, boot_time }
        }

        /// The steady clock moves by the larger of what the wall clock and the
        /// time since boot say: a step back is taken out, a step forward is not.
        #[must_use]
        pub fn advance(self, wall: Timestamp, boot_time: Duration) -> Self {
            let by_boot = boot_time.saturating_sub(self.boot_time);
            let by_wall = wall.since(self.now.wall);
            let steady = self.now.steady.plus(by_boot.max(by_wall));
            Self { now: Now { wall, steady }, boot_time: boot_time.max(self.boot_time) }
        }

        /// The mark to keep of it.
        pub fn mark(&self, boot_id: &str) -> SteadyMark {
            let Now { wall, steady } = self.now;
            SteadyMark { steady, wall, boot_time: self.boot_time, boot_id: boot_id.to_owned() }
        }
    }

    impl Clock {
        /// Starts from the mark that the last daemon left, if there is one.
        pub fn resume(mark: Option<&SteadyMark>) -> Self {
            let boot_id = boot_id();
            let last = Reading::resume(mark, wall(), boot_time(), &boot_id);
            Self { boot_id, last: Mutex::new(last) }
        }

        /// Reads both clocks.
        pub fn now(&self) -> Now {
            let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let reading = last.advance(wall(), boot_time());
            *last = reading;
            reading.now
        }

        /// What to keep in the database so that a restart can go on from here.
        pub fn mark(&self) -> SteadyMark {
            let last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            last.mark(&self.boot_id)
        }
    }

    /// Time since boot, suspend included. Zero where the kernel has no such clock.
    fn boot_time() -> Duration {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
    }

    /// The kernel's random name for this boot; empty where it cannot be read.
    pub(super) fn boot_id() -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn reading(wall: i64, steady: i64, boot: u64) -> Reading {
            let now =
                Now { wall: Timestamp::from_millis(wall), steady: Timestamp::from_millis(steady) };
            Reading { now, boot_time: Duration::from_millis(boot) }
        }

        #[test]
        fn a_step_back_of_the_wall_clock_does_not_turn_the_steady_clock_back() {
            let hour = 3_600_000;
            let later = reading(hour, hour, 0)
                .advance(Timestamp::from_millis(10), Duration::from_millis(10));
            assert_eq!(later.now.wall.as_millis(), 10);
            assert_eq!(later.now.steady.as_millis(), hour + 10);
        }

        #[test]
        fn a_step_forward_is_believed_so_that_windows_close_rather_than_stay_open() {
            let later =
                reading(0, 0, 0).advance(Timestamp::from_millis(5_000), Duration::from_millis(10));
            assert_eq!(later.now.steady.as_millis(), 5_000);
        }

        fn mark(wall: i64, steady: i64, boot: u64, boot_id: &str) -> SteadyMark {
            SteadyMark {
                wall: Timestamp::from_millis(wall),
                steady: Timestamp::from_millis(steady),
                boot_time: Duration::from_millis(boot),
                boot_id: boot_id.to_owned(),
            }
        }

        #[test]
        fn a_step_is_what_a_clock_moved_beyond_the_time_since_boot() {
            let earlier = mark(100_000, 100_000, 5_000, "a");
            let steps = |later: SteadyMark| {
                let Steps { wall, steady } = later.steps_since(&earlier);
                (wall, steady.as_millis())
            };
            assert_eq!(steps(mark(110_000, 110_000, 15_000, "a")), (0, 0));
            assert_eq!(steps(mark(110_500, 110_500, 15_000, "a")), (0, 0), "too small");
            assert_eq!(steps(mark(170_000, 170_000, 15_000, "a")), (60_000, 60_000));
            assert_eq!(steps(mark(50_000, 110_000, 15_000, "a")), (-60_000, 0));
            assert_eq!(steps(mark(170_000, 170_000, 15_000, "b")), (0, 55_000), "another boot");
        }

        #[test]
        fn a_clock_set_back_while_the_daemon_was_down_is_seen_within_one_boot() {
            let here = boot_id();
            let later = wall().plus(Duration::from_secs(3600));
            let mark =
                SteadyMark { steady: later, wall: later, boot_time: Duration::ZERO, boot_id: here };
            assert!(Clock::resume(Some(&mark)).now().steady >= mark.steady);
        }

        #[test]
        fn a_step_back_before_a_reboot_is_still_taken_out_after_it() {
            let hour = Duration::from_secs(3600);
            let before = Timestamp::from_millis(10_000_000);
            let seen = Reading { now: Now::at(before), boot_time: hour };
            let mark = seen.advance(before.minus(hour), hour).mark("one boot");
            // The machine was off for a while, and its wall clock went on.
            let off = Duration::from_secs(600);
            let wall = before.minus(hour).plus(off);
            let after = Reading::resume(Some(&mark), wall, Duration::ZERO, "another boot");
            assert_eq!(after.now, Now { wall, steady: before.plus(off) });
        }
    }
}

/// The kernel's random name for this boot; empty where it cannot be read.
#[cfg(feature = "daemon")]
pub fn boot_id() -> String {
    system::boot_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_shown_as_rfc_3339_and_read_back() {
        let time = Timestamp::from_millis(1_796_108_400_123);
        assert_eq!(time.to_string().parse::<Timestamp>().ok(), Some(time));
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn time_never_wraps() {
        assert_eq!(Timestamp::from_millis(i64::MAX).plus(Duration::MAX).as_millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(0).since(Timestamp::from_millis(5)), Duration::ZERO);
    }
}
