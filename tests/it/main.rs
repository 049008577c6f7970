//! The rules that handoff keeps, each shown on the real parts.

#![cfg(feature = "daemon")]
#![expect(clippy::unwrap_used, reason = "where a rule cannot be tried, it fails there")]

mod clocks;
mod command;
mod locks;
mod order;
mod protection;
mod store_contract;
mod support;
mod tutorial;
