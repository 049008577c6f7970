//! The command receiver, through the daemon as a process of its own.

mod crashes;
mod exits;
mod process;
