//! The rules that handoff keeps, each shown on the real parts.

#![cfg(feature = "daemon")]

mod store_contract;
mod support;
mod tutorial;
