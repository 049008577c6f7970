//! The fault plan of the simulated CRM: which attempt meets which bad day.
//!
//! What a delivery meets is a pure function of the plan, the seed and the
//! [`Delivery`], so that a rehearsal can be repeated.

use crate::jitter::Seed;
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
    /// Every look-up, or the one of this number, counted from 1 since the
    /// operation's last delivery.
    LookUp(Option<u32>),
    /// Every delivery. This and the other lines meet no look-up, but [`On::Time`] does.
    Every,
    /// This share of deliveries, from 0 to 1, by seed, key and number.
    Random(f64),
    /// Deliveries of keys that match.
    Key(glob::Pattern),
    /// Deliveries and look-ups between two moments, counted from the start of the daemon.
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
    /// 401: whoever we say we are.
    LockedOut,
    /// Accepted at once; the reply takes the delay.
    Slow(Duration),
    /// Accepted; the reply cannot be read.
    Malformed,
    /// The daemon dies before the CRM has accepted.
    CrashBefore,
    /// The daemon dies after the CRM has accepted.
    CrashAfter,
}

/// A delivery, as far as the plan looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The operation's key.
    pub key: &'a str,
    /// The how manyth delivery of the operation it is, from 1.
    pub number: u32,
    /// How long after the start it comes.
    pub elapsed: Duration,
}

/// What the look-up of this number meets, `elapsed` after the start.
pub fn met_by_look_up(plan: &[Fault], number: u32, elapsed: Duration) -> Option<What> {
    let meets = |fault: &&Fault| match &fault.on {
        On::LookUp(which) => which.is_none_or(|which| which == number),
        On::Time { from, to } => (*from..*to).contains(&elapsed),
        On::Attempt(_) | On::Every | On::Random(_) | On::Key(_) => false,
    };
    plan.iter().find(meets).map(|fault| fault.what)
}

/// What a delivery meets: the first line of the plan that matches; `None` if none does.
pub fn met_by(plan: &[Fault], delivery: Delivery<'_>, seed: Seed) -> Option<What> {
    let matching = |(line, fault): (usize, &Fault)| {
        fault.on.matches(line, delivery, seed).then_some(fault.what)
    };
    plan.iter().enumerate().find_map(matching)
}

impl On {
    fn matches(&self, line: usize, delivery: Delivery<'_>, seed: Seed) -> bool {
        match self {
            Self::Attempt(number) => delivery.number == *number,
            Self::LookUp(_) => false,
            Self::Every => true,
            // With the line in the text, two random lines are two throws of the
            // dice; and none is the throw that the delay of a retry comes from.
            Self::Random(rate) => delivery.draw(&format!("fault {line}"), seed) < *rate,
            Self::Key(pattern) => pattern.matches(delivery.key),
            Self::Time { from, to } => (*from..*to).contains(&delivery.elapsed),
        }
    }
}

impl Delivery<'_> {
    /// Whether a delivery that meets [`What::ServerError`] is accepted all the same.
    pub fn accepted_despite_error(self, seed: Seed) -> bool {
        self.draw("server error", seed) < 0.5
    }

    fn draw(self, purpose: &str, seed: Seed) -> f64 {
        seed.unit(&format!("{purpose} {}", self.key), u64::from(self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "harbor:create-followup:v1:case-104";

    fn delivery(key: &str, number: u32, elapsed: u64) -> Delivery<'_> {
        Delivery { key, number, elapsed: Duration::from_secs(elapsed) }
    }

    fn plan(lines: Vec<(On, What)>) -> Vec<Fault> {
        lines.into_iter().map(|(on, what)| Fault { on, what }).collect()
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        let plan = plan(vec![
            (On::Attempt(2), What::Reject),
            (On::Key(glob::Pattern::new("*:case-104").unwrap()), What::LoseReply),
            (On::Every, What::Unreachable),
        ]);
        let met = |key, number| met_by(&plan, delivery(key, number, 0), Seed(1));
        assert_eq!(met(KEY, 1), Some(What::LoseReply));
        assert_eq!(met(KEY, 2), Some(What::Reject));
        assert_eq!(met("harbor:create-followup:v1:case-1", 1), Some(What::Unreachable));
    }

    #[test]
    fn a_delivery_that_no_line_matches_meets_nothing() {
        let plan = plan(vec![(On::Attempt(1), What::LoseReply)]);
        assert_eq!(met_by(&plan, delivery(KEY, 2, 0), Seed(1)), None);
        assert_eq!(met_by(&[], delivery(KEY, 1, 0), Seed(1)), None);
    }

    #[test]
    fn a_key_pattern_fits_the_whole_key() {
        let on = On::Key(glob::Pattern::new("harbor:*:case-1").unwrap());
        assert!(on.matches(0, delivery("harbor:create-followup:v1:case-1", 1, 0), Seed(1)));
        assert!(!on.matches(0, delivery(KEY, 1, 0), Seed(1)));
    }

    #[test]
    fn a_span_of_time_holds_its_first_moment_and_not_its_last() {
        let on = On::Time { from: Duration::from_secs(10), to: Duration::from_secs(60) };
        let meets = |elapsed| on.matches(0, delivery(KEY, 1, elapsed), Seed(1));
        assert_eq!([9, 10, 59, 60].map(meets), [false, true, true, false]);
    }

    #[test]
    fn chance_is_a_pure_function_of_seed_key_number_and_line() {
        let met = |line, seed| {
            let met = move |number| On::Random(0.5).matches(line, delivery(KEY, number, 0), seed);
            (1..200).map(met).collect::<Vec<_>>()
        };
        assert_eq!(met(0, Seed(7)), met(0, Seed(7)));
        assert_ne!(met(0, Seed(7)), met(0, Seed(8)));
        assert_ne!(met(0, Seed(7)), met(1, Seed(7)), "two lines are two throws");
    }

    #[test]
    fn a_random_line_meets_its_share_of_deliveries() {
        let share = |rate| {
            let met =
                |number: &u32| On::Random(rate).matches(0, delivery(KEY, *number, 0), Seed(1));
            (1..=10_000_u32).filter(met).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 10_000));
        assert!((1_900..2_100).contains(&share(0.2)), "{}", share(0.2));
        assert_eq!(share(f64::NAN), 0);
    }

    #[test]
    fn half_of_the_server_errors_are_accepted_whatever_line_they_come_from() {
        let accepted = |number: &u32| delivery(KEY, *number, 0).accepted_despite_error(Seed(1));
        let count = (1..=10_000_u32).filter(accepted).count();
        assert!((4_800..5_200).contains(&count), "{count}");
    }
}
