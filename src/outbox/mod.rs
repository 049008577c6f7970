//! The domain: pure. No runtime, no I/O, no store.
//!
//! | word | meaning | we avoid |
//! | --- | --- | --- |
//! | operation | one approved business act with a key, a receiver and a frozen payload | job, message, task |
//! | operation key | `namespace:type:vN:subject`, the same on every attempt | id |
//! | to record | write approval and outbox row in the caller's transaction | enqueue, publish |
//! | attempt | one try at delivery, on disk before the first byte is sent | run, send |
//! | receiver | where operations are delivered | destination, endpoint |
//! | contract | what a receiver promises about replays of a key | |
//! | outcome | how the call ended, as the receiver's adapter saw it | result, error |
//! | fact | what an outcome, a crash or a person's word adds to what is known | |
//! | effect | what is known of the receiver: `none`, `possible`, `confirmed` | |
//! | receipt | the receiver's id for what it made (`remote_id`) | |
//!
//! ```text
//!               recorded
//!                  │
//!                  ▼           a fact settles it
//!   retry ┌──── pending ───────────────────────────► sent
//!         │     ▲  │ │                                ▲
//!         │     │  │ └── withdraw ──► withdrawn ──────┤
//!         └─────┤  ▼                                  │ a late success
//!               └ blocked ────────────────────────────┘ is never lost
//! ```

pub mod key;
pub mod operation;
pub mod payload;
pub mod state;

#[cfg(feature = "daemon")]
pub mod breaker;
#[cfg(feature = "daemon")]
pub mod contract;
#[cfg(feature = "daemon")]
pub mod facts;
#[cfg(feature = "daemon")]
pub mod hold;
#[cfg(feature = "daemon")]
pub mod look_up;
#[cfg(feature = "daemon")]
pub mod operation_type;
#[cfg(feature = "daemon")]
pub mod outcome;
#[cfg(feature = "daemon")]
pub mod policy;
#[cfg(feature = "daemon")]
pub mod rate;
#[cfg(feature = "daemon")]
pub mod retry;
#[cfg(feature = "daemon")]
pub mod rules;
#[cfg(feature = "daemon")]
pub mod settle;
#[cfg(feature = "daemon")]
pub mod verbs;
