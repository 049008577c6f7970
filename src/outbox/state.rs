//! The stored states of an operation, and the words that go with them.

use crate::text_enum::text_enum;

text_enum! {
    /// Where an operation stands. Everything else that is shown is derived.
    pub enum State {
        /// Not settled; the daemon works on it or waits for its time.
        Pending = "pending",
        /// The receiver acknowledged it. Says nothing about the employee's work.
        Sent = "sent",
        /// A person must look. Does not prove that nothing happened.
        Blocked = "blocked",
        /// Taken back by a person.
        Withdrawn = "withdrawn",
    }
}

text_enum! {
    /// Why a person must look.
    pub enum BlockReason {
        /// The receiver holds other content under this key, or several records.
        Conflict = "conflict",
        /// The receiver will never take it.
        Rejected = "rejected",
        /// This operation alone is refused.
        Unauthorised = "unauthorised",
        /// Attempts or time are spent.
        BudgetExhausted = "budget_exhausted",
        /// Unknown effect and no safe repeat.
        Ambiguous = "ambiguous",
        /// Unknown effect, and the receiver's memory of keys has lapsed.
        WindowClosed = "window_closed",
        /// The process died three times with this operation alone in flight.
        Crashed = "crashed",
        /// May have been sent since the backup that was restored.
        Restored = "restored",
        /// Unreadable, or the payload does not fit its type or its fingerprint.
        Invalid = "invalid",
        /// The approval is older than the type allows.
        Expired = "expired",
        /// The adapter failed before anything was handed over.
        Unexpected = "unexpected",
    }
}

text_enum! {
    /// What is known of the receiver.
    pub enum Effect {
        /// Nothing can have happened there.
        None = "none",
        /// Something may have happened there.
        Possible = "possible",
        /// The receiver said, or a person vouched, that it holds the operation.
        Confirmed = "confirmed",
    }
}

text_enum! {
    /// A person's act on an operation.
    pub enum Verb {
        /// One more attempt now, under the same key.
        Retry = "retry",
        /// Take the operation back.
        Withdraw = "withdraw",
        /// Look the key up now.
        Reconcile = "reconcile",
        /// Vouch for what the receiver holds.
        Resolve = "resolve",
    }
}

/// Who or what settled an operation: `reply`, `look_up`, `policy` or `person:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The receiver's answer to a delivery.
    Reply,
    /// The receiver's answer to a look-up.
    LookUp,
    /// A person's word.
    Person(String),
    /// The policy, from the receiver's contract.
    Policy,
}

impl std::fmt::Display for SettledBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reply => f.write_str("reply"),
            Self::LookUp => f.write_str("look_up"),
            Self::Person(name) => write!(f, "person:{name}"),
            Self::Policy => f.write_str("policy"),
        }
    }
}

impl SettledBy {
    /// Reads the text form back.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "reply" => Some(Self::Reply),
            "look_up" => Some(Self::LookUp),
            "policy" => Some(Self::Policy),
            other => other.strip_prefix("person:").map(|name| Self::Person(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_itself() {
        assert!(State::ALL.iter().all(|word| State::parse(word.as_str()) == Some(*word)));
        assert!(BlockReason::ALL.iter().all(|w| BlockReason::parse(w.as_str()) == Some(*w)));
        assert!(Effect::ALL.iter().all(|word| Effect::parse(word.as_str()) == Some(*word)));
        for by in [SettledBy::Reply, SettledBy::LookUp, SettledBy::Person("ann".into())] {
            assert_eq!(SettledBy::parse(&by.to_string()), Some(by));
        }
    }
}
