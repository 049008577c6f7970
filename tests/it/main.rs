//! The rules that handoff keeps, each shown on the real parts.

#![cfg(feature = "daemon")]

mod command;
mod locks;
mod order;
mod store_contract;
mod support;
mod tutorial;
