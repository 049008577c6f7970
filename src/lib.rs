//! handoff (map to be drawn)

pub mod clock;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod jitter;
pub mod outbox;
#[cfg(feature = "daemon")]
pub mod process;
#[cfg(feature = "daemon")]
pub mod receiver;
#[cfg(feature = "daemon")]
pub mod store;
#[cfg(feature = "daemon")]
pub mod supervisor;
#[cfg(feature = "daemon")]
pub mod telemetry;
mod text_enum;

pub use outbox::key::{KeyError, OperationKey};
pub use outbox::operation::{Operation, OperationError};
pub use outbox::payload::{Fingerprint, Payload, PayloadError};
