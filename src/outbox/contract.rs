//! Contracts: what a receiver promises about replays of a key.
//!
//! The contract alone decides whether an unknown outcome may be repeated.

use crate::text_enum::text_enum;
use std::time::Duration;

text_enum! {
    /// The preset that a receiver's configuration names.
    pub enum Mode {
        /// No promise: what is unknown stays with a person.
        None = "none",
        /// Creates must not be repeated, but a key can be looked up.
        LookUp = "look_up",
        /// A replay of the key returns the same resource.
        IdempotencyKey = "idempotency_key",
        /// A unique key: a replay answers "exists".
        CreateOnly = "create_only",
        /// A replay overwrites the same record.
        Upsert = "upsert",
    }
}

text_enum! {
    /// What "exists" proves.
    pub enum Exists {
        /// The receiver's id is derived from our key, so it is ours.
        Proof = "proof",
        /// Nothing; it has to be looked up or asked.
        Ask = "ask",
    }
}

text_enum! {
    /// How it is known that the receiver keeps the contract.
    pub enum Verified {
        /// Tried against the receiver.
        Probe = "probe",
        /// Read in its documentation.
        Docs = "docs",
        /// Not at all.
        No = "no",
    }
}

/// How long a receiver remembers a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// It never forgets.
    Forever,
    /// So long after it first saw the key.
    For(Duration),
}

/// Whether a delivery may be repeated while an earlier one may have acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Not at all.
    Never,
    /// As long as the receiver remembers the key.
    Within(Window),
}

/// How a key is looked up at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// Valid look-ups in a row that must find nothing before that is believed.
    pub polls: u32,
    /// Between two of them.
    pub interval: Duration,
}

/// What a receiver promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The preset it came from, shown to people and part of the request fingerprint.
    pub mode: Mode,
    /// Whether an unknown delivery may be repeated.
    pub repeat: Repeat,
    /// The check of the key and the creation are one step, also for two calls at once.
    pub atomic: bool,
    /// How long the receiver may still act after we gave up waiting.
    pub settle_delay: Duration,
    /// How a key can be looked up, if it can.
    pub look_up: Option<LookUp>,
    /// Whether to look up before a repeat, so that a person's edit survives.
    pub look_first: bool,
    /// What "exists" proves.
    pub exists: Exists,
    /// Requests to another address reach the same account.
    pub same_account: bool,
    /// How it is known.
    pub verified: Verified,
}

impl Contract {
    /// No promise at all: what holds for a receiver that declares nothing.
    pub const fn none() -> Self {
        Self {
            mode: Mode::None,
            repeat: Repeat::Never,
            atomic: true,
            settle_delay: Duration::ZERO,
            look_up: None,
            look_first: false,
            exists: Exists::Ask,
            same_account: false,
            verified: Verified::No,
        }
    }

    /// A replay of the key returns the same resource, for the window.
    pub const fn idempotency_key(window: Window) -> Self {
        Self { mode: Mode::IdempotencyKey, repeat: Repeat::Within(window), ..Self::none() }
    }

    /// A replay answers "exists", for as long as nobody deletes the record.
    pub const fn create_only(window: Window, exists: Exists) -> Self {
        Self { mode: Mode::CreateOnly, repeat: Repeat::Within(window), exists, ..Self::none() }
    }

    /// A replay overwrites the same record, for the window.
    pub const fn upsert(window: Window, look_up: Option<LookUp>) -> Self {
        Self {
            mode: Mode::Upsert,
            repeat: Repeat::Within(window),
            look_first: look_up.is_some(),
            look_up,
            ..Self::none()
        }
    }

    /// Creates are never repeated, but a key can be looked up.
    pub const fn look_up(look_up: LookUp) -> Self {
        Self { mode: Mode::LookUp, look_up: Some(look_up), ..Self::none() }
    }
}
