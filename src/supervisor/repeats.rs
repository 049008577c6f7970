//! Records that say the same of one operation after another: the first ones of a
//! while are written, the others are counted. Each attempt stands in the database.

use crate::outbox::state::State;
use crate::store::{Concluded, Event};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long a while is.
const WHILE: Duration = Duration::from_secs(30);
/// Records of one kind that are written in a while.
const WRITTEN: u64 = 20;

/// Receiver and outcome: what attempts have in common that say the same.
type Kind = (String, &'static str);

/// What was said in the current while.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    since: Option<Instant>,
    seen: BTreeMap<Kind, u64>,
}

impl Repeats {
    /// Whether this event is to be written. If not, it is counted.
    ///
    /// Only ends of attempts that settle nothing are ever left out.
    pub(super) fn admits(&mut self, event: &Event, concluded: Option<&Concluded>) -> bool {
        let Event::Ended { state, receipt_mismatch, after_withdrawal, .. } = event else {
            return true;
        };
        let (State::Pending, Some(concluded)) = (state, concluded) else { return true };
        if *receipt_mismatch || *after_withdrawal {
            return true;
        }
        self.counts(concluded.receiver(), concluded.ending().kind().as_str())
    }

    fn counts(&mut self, receiver: &str, outcome: &'static str) -> bool {
        self.since.get_or_insert_with(Instant::now);
        let seen = self.seen.entry((receiver.to_owned(), outcome)).or_default();
        *seen += 1;
        *seen <= WRITTEN
    }

    /// Says what was left out, once the while is over.
    pub(super) fn look(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= WHILE) {
            self.say();
        }
    }

    /// Says what was left out so far.
    pub(super) fn say(&mut self) {
        for ((receiver, outcome), count) in self.left_out() {
            tracing::info!(
                event = "attempts_repeated",
                receiver.name = receiver,
                outcome,
                count,
                "so many more attempts ended like this and settled nothing"
            );
        }
    }

    fn left_out(&mut self) -> Vec<(Kind, u64)> {
        self.since = None;
        let seen = std::mem::take(&mut self.seen).into_iter();
        let more = seen.filter(|(_, count)| *count > WRITTEN);
        more.map(|(kind, count)| (kind, count - WRITTEN)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Repeats, WRITTEN};

    #[test]
    fn the_first_of_each_kind_are_written_and_the_others_are_counted() {
        let mut repeats = Repeats::default();
        for n in 0..50 {
            assert_eq!(repeats.counts("crm", "not_taken"), n < WRITTEN, "{n}");
        }
        assert!(repeats.counts("crm", "unknown"), "another outcome");
        assert!(repeats.counts("mail", "not_taken"), "another receiver");
        assert_eq!(repeats.left_out(), [(("crm".to_owned(), "not_taken"), 50 - WRITTEN)]);
        assert!(repeats.counts("crm", "not_taken"), "another while");
        assert!(repeats.left_out().is_empty());
    }
}
