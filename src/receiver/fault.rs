//! The fault plan of the simulated CRM: which attempt meets which bad day.

use std::time::Duration;

/// One line of the plan. The first one that matches an attempt counts.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which attempts it meets.
    pub on: On,
    /// What happens to them.
    pub what: What,
}

/// Which attempts a fault meets.
#[derive(Clone, Debug)]
pub enum On {
    /// The delivery of this number, counted for each operation from 1.
    Attempt(u32),
    /// Every delivery.
    Every,
    /// This share of deliveries, from 0 to 1, by seed, key and number.
    Random(f64),
    /// Deliveries of keys that match.
    Key(glob::Pattern),
    /// Deliveries between two moments, counted from the start of the daemon.
    Time {
        /// From then on.
        from: Duration,
        /// Until then.
        to: Duration,
    },
}

/// What happens to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It never arrives.
    Unreachable,
    /// Accepted, and the reply is lost.
    LoseReply,
    /// Accepted only after the delay; the reply is lost at once.
    Late(Duration),
    /// 429, with the Retry-After if there is one.
    Throttle(Option<Duration>),
    /// 500; accepted or not by chance.
    ServerError,
    /// 422.
    Reject,
    /// 409: other content under this key.
    Conflict,
    /// 403.
    Unauthorised,
    /// Accepted at once; the reply takes the delay.
    Slow(Duration),
    /// Accepted; the reply cannot be read.
    Malformed,
    /// The daemon dies before the CRM has accepted.
    CrashBefore,
    /// The daemon dies after the CRM has accepted.
    CrashAfter,
}
