//! `handoff` delivers approved operations to a CRM and never turns a lost reply
//! into a guess. This page is the map: how one operation lives, which file does
//! what, and what is deliberately absent.
//!
//! # The life of one operation
//!
//! 1. An application **records** it in its own transaction: one row in
//!    `handoff_approvals`, from which a trigger makes the row in
//!    `handoff_outbox` ([`fn@record`], or plain SQL in any language; the tables are
//!    in [`schema`]).
//! 2. The `wake` watcher notices the commit. The `supervisor` makes a
//!    *pass*: the `store` looks at what is due, asks the
//!    policy (`outbox::policy`) what follows from its facts, and where that is
//!    *deliver*, writes an attempt. Only after the commit has returned does an
//!    `store::Attempt` exist.
//! 3. The supervisor hands the attempt to its `receiver`. No
//!    transaction is open meanwhile. The receiver reports an
//!    outcome (`outbox::outcome`); *unknown* is one of them.
//! 4. `Attempt::conclude` moves the attempt into a
//!    `store::Concluded`, which the next pass saves. The outcome
//!    adds a fact (`outbox::facts`), the policy runs again, and the operation is
//!    sent, blocked, or waits for its time.
//! 5. If the process dies in between, the next start finds the open attempt and
//!    adds the fact *interrupted*: it may have acted. Whether it is repeated is
//!    decided by the receiver's contract (`outbox::contract`) alone.
//!
//! # Who may use whom
//!
//! ```text
//!   clock   jitter   process   plain   scripted
//!      \      |      /
//!        outbox ────────── pure: no runtime, no I/O, no store
//!          │
//!   schema ┤
//!   record ┤
//!          ▼
//!        store ─────────── durable; never calls a receiver
//!          ▲
//!      receiver ────────── knows Attempt, not the store's methods
//!          ▲
//!      supervisor   wake   signal   systemd   telemetry
//!          ▲
//!        daemon ── config (fills each part's Settings; no part imports it)
//!          ▲
//!         cli ── main
//! ```
//!
//! `tests/tidy.rs` holds these arrows.
//!
//! # Where to find it
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`outbox`] | the domain: keys, payloads, facts, and the one table that decides |
//! | [`schema`] | the tables, and how a file gets them |
//! | [`record`](mod@record) | what an application calls inside its own transaction |
//! | `store` | the durable record; `store::sqlite` is the embedded one |
//! | `receiver` | where operations go: `simulated`, `command`, `http` |
//! | `supervisor` | a pass that tests turn by hand, the loop and the drain round it, and the logbook that counts repeats |
//! | `wake` | another program's commit is seen within milliseconds |
//! | `daemon` | builds the parts, recovers, reloads, stops |
//! | `config` | finds, layers and strictly checks the configuration |
//! | `cli` | the commands |
//! | `bench` | the program's rates beside those of SQLite alone |
//! | `scripted` | a CRM at a socket that does what a script says; names no other module |
//! | `clock`, `jitter`, `process` | the only doors to time, chance and processes |
//! | `signal`, `systemd`, `telemetry` | signals, the service manager, logs |
//! | `plain` | text from data, made safe to show |
//!
//! Read first: [`outbox`], `outbox::policy`, `store`, `supervisor`, and then
//! `tests/it/tutorial.rs`. That is the whole idea.
//!
//! # What always holds
//!
//! * An attempt is committed and synced before its first byte leaves. An
//!   `Attempt` cannot be made otherwise.
//! * No transaction is open while a receiver, a command or a person is waited
//!   for. Transactions are plain closures inside `store`; none can await.
//! * A known outcome is written again until it is stored. A busy or full
//!   database repeats the write, never the call.
//! * An outcome that is not ours to write changes nothing, and a success is
//!   never thrown away: a late one makes even a withdrawn operation sent.
//! * `blocked` says why, and `effect` says what is known of the receiver.
//!
//! # What is deliberately absent
//!
//! * No stored decisions: the policy runs whenever a fact is added and at each
//!   claim, so none can be stale.
//! * No clock, chance or store in [`outbox`]: they are parameters.
//! * No retry inside a receiver, and no error type for "the reply was lost".
//! * No global state: two daemons in one process work (with two databases).
//! * No server, no PostgreSQL, no ordering in this version; their
//!   configuration keys are refused by name.
//!
//! With `default-features = false, features = ["record"]` only the recording
//! side is built, without runtime and without server.

#[cfg(feature = "daemon")]
pub mod bench;
#[cfg(feature = "daemon")]
pub mod cli;
pub mod clock;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod jitter;
pub mod outbox;
#[cfg(feature = "daemon")]
pub mod plain;
#[cfg(feature = "daemon")]
pub mod process;
#[cfg(feature = "daemon")]
pub mod receiver;
pub mod record;
pub mod schema;
#[cfg(feature = "daemon")]
pub mod scripted;
#[cfg(feature = "daemon")]
pub mod signal;
#[cfg(feature = "daemon")]
pub mod store;
#[cfg(feature = "daemon")]
pub mod supervisor;
#[cfg(feature = "daemon")]
pub mod systemd;
#[cfg(feature = "daemon")]
pub mod telemetry;
mod text_enum;
#[cfg(feature = "daemon")]
pub mod wake;

pub use outbox::key::{KeyError, OperationKey};
pub use outbox::operation::{Operation, OperationError};
pub use outbox::payload::{Fingerprint, Payload, PayloadError};
pub use outbox::state::State;
pub use record::{Conflict, RecordError, Recorded, record};
/// Re-exported, since only one SQLite may be linked into a program.
pub use rusqlite;
