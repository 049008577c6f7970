//! The shipped unit under a real service manager, installed as docs/operating.md
//! says: systemd is the first process of a machine of its own for each test, and
//! the user, the sandbox, the limits and the restarts are those of the unit.
//!
//! Where a test has to shorten a time limit of the unit, a drop-in beside the
//! test says so; everything else is in force as it is shipped.
//!
//! Needs root and systemd (Debian: `systemd`), which need not be running. Without
//! them a rule is skipped, and says so; with `CI` set it fails.

#![cfg(feature = "daemon")]

mod beside;
mod exits;
mod machine;
mod ready;
mod reload;
mod restart;
mod stop;
mod watchdog;
