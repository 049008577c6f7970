//! Rules about the program as a process: it is started, killed, told and asked
//! from outside, as systemd, an application and an operator would.
//!
//! `HANDOFF_TEST_ROUNDS` sets the rounds of the kill test, `HANDOFF_TEST_SEED`
//! repeats one that failed.

#![cfg(feature = "daemon")]

mod approve;
mod cli;
mod clock;
mod daemon;
mod database;
mod disk;
mod documented;
mod hold;
mod hostile;
mod http;
mod identity;
mod interrupted;
mod kill;
mod logs;
mod notify;
mod pace;
mod readonly;
mod settle;
mod signals;
mod support;
mod tables;
mod terminal;
