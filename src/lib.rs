//! handoff (map to be drawn)

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
mod record;
pub mod schema;
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
