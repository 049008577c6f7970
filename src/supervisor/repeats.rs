//! Repeats of log records: of each kind some are written in full every minute,
//! the others are counted, so that no outage floods the log.
//!
//! Pure: time is a parameter, as the time since the start. What is kept is
//! bounded by the configuration: kinds of record times names of receivers.

use crate::text_enum::text_enum;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::time::Duration;

/// So many of one kind are written in full in any minute, for each receiver.
pub(super) const IN_FULL: usize = 10;
/// Over so long they are counted before one line says how many there were.
const MINUTE: Duration = Duration::from_secs(60);

text_enum! {
    /// Records that may come in any number: their names as events.
    pub enum Repeated {
        /// It was acknowledged.
        Sent = "operation_sent",
        /// A person must look.
        Blocked = "operation_blocked",
        /// It settled nothing.
        Ended = "attempt_ended",
        /// The receiver asked for a longer pause than is believed.
        Capped = "retry_after_capped",
        /// A second, different receipt.
        Mismatch = "receipt_mismatch",
        /// Taken back, and the receiver has it all the same.
        AfterWithdrawal = "effect_after_withdrawal",
        /// Nothing more is begun at a receiver.
        Held = "receiver_held",
        /// It may be called again.
        Released = "receiver_released",
        /// An answer without a receipt for an attempt that had ended.
        Fenced = "outcome_fenced",
        /// The database is waited for at the start.
        Unavailable = "store_unavailable",
        /// The database says no.
        Trouble = "store_trouble",
        /// It works again.
        Recovered = "store_recovered",
        /// The wall clock was set back.
        ClockFault = "clock_fault",
    }
}

impl Repeated {
    /// Each receiver has its own; the others are the daemon's as a whole.
    const fn is_of_a_receiver(self) -> bool {
        !matches!(self, Self::Unavailable | Self::Trouble | Self::Recovered | Self::ClockFault)
    }

    /// The level of its records, and of the line that counts them.
    pub(super) const fn level(self) -> tracing::Level {
        match self {
            Self::Sent | Self::Ended | Self::Released | Self::Recovered => tracing::Level::INFO,
            Self::Blocked | Self::Capped | Self::Held | Self::Fenced => tracing::Level::WARN,
            Self::Unavailable | Self::Trouble | Self::ClockFault => tracing::Level::WARN,
            Self::Mismatch | Self::AfterWithdrawal => tracing::Level::ERROR,
        }
    }
}

/// The most lines that repeats make of any minute with so many receivers, at any
/// level but debug and trace. docs/operating.md says it to the operator.
pub const fn lines_a_minute(receivers: usize) -> usize {
    let (mut of_a_receiver, mut of_the_daemon, mut at) = (0, 0, 0);
    while at < Repeated::ALL.len() {
        if Repeated::ALL[at].is_of_a_receiver() {
            of_a_receiver += 1;
        } else {
            of_the_daemon += 1;
        }
        at += 1;
    }
    // Receivers that are configured no longer share one more place.
    (IN_FULL + 1) * (of_a_receiver * (receivers + 1) + of_the_daemon)
}

/// A record that may be one of many.
#[derive(Clone, Copy)]
pub(super) struct Repeat<'a> {
    pub(super) event: Repeated,
    pub(super) receiver: Option<&'a str>,
    pub(super) key: Option<&'a str>,
    pub(super) outcome: Option<&'static str>,
    pub(super) reason: Option<&'static str>,
    pub(super) error: Option<&'a dyn Display>,
}

impl Repeat<'_> {
    pub(super) const fn of(event: Repeated) -> Self {
        Self { event, receiver: None, key: None, outcome: None, reason: None, error: None }
    }
}

/// Records of one kind that were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) event: Repeated,
    pub(super) receiver: Option<String>,
    pub(super) count: u64,
    /// From the first of them on.
    pub(super) lasted: Duration,
    /// The key of the first.
    pub(super) key: Option<String>,
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    /// The error of the last.
    pub(super) error: Option<String>,
}

/// One kind of record at one receiver.
#[derive(Debug, Default)]
struct Kind {
    /// When the last ones in full were written.
    written: VecDeque<Duration>,
    /// Since when others are counted, and those.
    counted: Option<(Duration, Counted)>,
}

type Kinds = BTreeMap<Repeated, Kind>;

/// What was written of late, and what was only counted.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    receivers: BTreeMap<String, Kinds>,
    /// Of the daemon as a whole, and of receivers that are not configured.
    others: Kinds,
}

impl Repeats {
    /// Takes these names for the receivers. What was counted for others is
    /// handed out.
    pub(super) fn know<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        now: Duration,
    ) -> Vec<Counted> {
        let mut known = std::mem::take(&mut self.receivers);
        self.receivers =
            names.map(|name| (name.to_owned(), known.remove(name).unwrap_or_default())).collect();
        let mut gone: Vec<Kind> = known.into_values().flat_map(BTreeMap::into_values).collect();
        gone.iter_mut().filter_map(|kind| kind.hand_out(now)).collect()
    }

    /// Whether to write this one in full; it is counted otherwise.
    pub(super) fn in_full(&mut self, repeat: Repeat<'_>, now: Duration) -> bool {
        let named = repeat.receiver.and_then(|name| self.receivers.get_mut(name));
        let receiver = named.is_some().then(|| repeat.receiver.map(str::to_owned)).flatten();
        let kind = named.unwrap_or(&mut self.others).entry(repeat.event).or_default();
        while kind.written.front().is_some_and(|written| *written + MINUTE <= now) {
            kind.written.pop_front();
        }
        if kind.written.len() < IN_FULL {
            kind.written.push_back(now);
            return true;
        }
        let (_, counted) = kind.counted.get_or_insert_with(|| (now, first(repeat, receiver)));
        counted.count += 1;
        for (words, word) in
            [(&mut counted.outcomes, repeat.outcome), (&mut counted.reasons, repeat.reason)]
        {
            if let Some(word) = word {
                *words.entry(word).or_default() += 1;
            }
        }
        if let Some(error) = repeat.error {
            counted.error = Some(error.to_string());
        }
        false
    }

    /// What has been counted for a minute.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Counted> {
        self.hand_out(now, MINUTE)
    }

    /// All that has been counted so far.
    pub(super) fn flush(&mut self, now: Duration) -> Vec<Counted> {
        self.hand_out(now, Duration::ZERO)
    }

    fn hand_out(&mut self, now: Duration, after: Duration) -> Vec<Counted> {
        let kinds = self.receivers.values_mut().chain([&mut self.others]);
        let is_due = |kind: &&mut Kind| {
            kind.counted.as_ref().is_some_and(|(since, _)| *since + after <= now)
        };
        kinds
            .flat_map(BTreeMap::values_mut)
            .filter(is_due)
            .filter_map(|kind| kind.hand_out(now))
            .collect()
    }
}

impl Kind {
    fn hand_out(&mut self, now: Duration) -> Option<Counted> {
        let (since, counted) = self.counted.take()?;
        Some(Counted { lasted: now.saturating_sub(since), ..counted })
    }
}

/// Nothing counted yet; the first of them gives the key.
fn first(repeat: Repeat<'_>, receiver: Option<String>) -> Counted {
    Counted {
        event: repeat.event,
        receiver,
        count: 0,
        lasted: Duration::ZERO,
        key: repeat.key.map(str::to_owned),
        outcomes: BTreeMap::new(),
        reasons: BTreeMap::new(),
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    fn ended<'a>(receiver: &'a str, key: &'a str) -> Repeat<'a> {
        let outcome = Some("not_taken");
        Repeat { receiver: Some(receiver), key: Some(key), outcome, ..Repeat::of(Repeated::Ended) }
    }

    fn knowing(names: &[&'static str]) -> Repeats {
        let mut repeats = Repeats::default();
        assert!(repeats.know(names.iter().copied(), AT(0)).is_empty());
        repeats
    }

    #[test]
    fn the_first_of_a_minute_are_written_in_full_and_the_others_counted() {
        let mut repeats = knowing(&["crm"]);
        for n in 0..1_000 {
            let key = format!("key-{n}");
            let in_full = repeats.in_full(ended("crm", &key), AT(n));
            assert_eq!(in_full, n < 10, "{n}");
        }
        assert!(repeats.due(AT(60_009)).is_empty(), "not before the minute is over");
        let due = repeats.due(AT(60_010));
        assert_eq!(due.len(), 1);
        let counted = &due[0];
        assert_eq!((counted.event, counted.receiver.as_deref()), (Repeated::Ended, Some("crm")));
        assert_eq!((counted.count, counted.lasted), (990, AT(60_000)));
        assert_eq!(counted.key.as_deref(), Some("key-10"), "the oldest");
        assert_eq!(counted.outcomes, BTreeMap::from([("not_taken", 990)]));
        assert!(repeats.flush(AT(60_011)).is_empty(), "each is said once");
    }

    #[test]
    fn no_minute_has_more_lines_than_are_documented() {
        let mut repeats = knowing(&["crm", "mail"]);
        let mut lines: Vec<u64> = Vec::new();
        // Every 100 ms everything that can come comes five times, with pauses.
        for tick in (0..6_000).filter(|tick| tick % 1_000 < 700) {
            let now = tick * 100;
            for event in Repeated::ALL {
                for receiver in ["crm", "mail", "gone", "gone-2"] {
                    let repeat = Repeat { receiver: Some(receiver), ..Repeat::of(*event) };
                    let receiver = event.is_of_a_receiver().then_some(receiver);
                    let repeat = Repeat { receiver, ..repeat };
                    lines.extend((0..5).filter(|_| repeats.in_full(repeat, AT(now))).map(|_| now));
                }
            }
            lines.extend(repeats.due(AT(now)).iter().map(|_| now));
        }
        let most = lines
            .iter()
            .enumerate()
            .map(|(n, from)| lines[n..].iter().take_while(|line| **line < from + 60_000).count());
        assert_eq!(most.max(), Some(lines_a_minute(2)), "the bound is met and never passed");
    }

    #[test]
    fn a_receiver_does_not_use_up_the_lines_of_another() {
        let mut repeats = knowing(&["crm", "mail"]);
        for n in 0..50 {
            repeats.in_full(ended("crm", "a"), AT(n));
        }
        assert!(repeats.in_full(ended("mail", "b"), AT(50)));
        let of_another_kind = Repeat { event: Repeated::Sent, ..ended("crm", "a") };
        assert!(repeats.in_full(of_another_kind, AT(50)));
    }

    #[test]
    fn names_that_are_not_configured_share_one_place() {
        let mut repeats = knowing(&["crm"]);
        for n in 0..1_000 {
            repeats.in_full(ended(&format!("receiver-{n}"), "a"), AT(n));
        }
        let counted = repeats.flush(AT(1_000));
        assert_eq!(counted.len(), 1, "{counted:?}");
        assert_eq!((counted[0].count, counted[0].receiver.as_deref()), (990, None));
        assert_eq!(repeats.others.len() + repeats.receivers.len(), 2);
    }

    #[test]
    fn other_receivers_take_the_place_of_those_before_and_nothing_counted_is_lost() {
        let mut repeats = knowing(&["crm", "mail"]);
        for n in 0..20 {
            repeats.in_full(ended("crm", "a"), AT(n));
            repeats.in_full(ended("mail", "b"), AT(n));
        }
        let gone = repeats.know(["crm"].into_iter(), AT(20));
        assert_eq!((gone.len(), gone[0].receiver.as_deref()), (1, Some("mail")));
        assert!(!repeats.in_full(ended("crm", "a"), AT(21)), "what stays has no fresh start");
        assert_eq!(repeats.flush(AT(22))[0].count, 11);
    }

    #[test]
    fn the_error_of_a_summary_is_the_last_one() {
        let mut repeats = Repeats::default();
        for n in 0..15 {
            let error = format!("no {n}");
            repeats.in_full(Repeat { error: Some(&error), ..Repeat::of(Repeated::Trouble) }, AT(n));
        }
        assert_eq!(repeats.flush(AT(20))[0].error.as_deref(), Some("no 14"));
    }
}
