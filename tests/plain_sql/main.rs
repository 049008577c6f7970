//! Recording by plain SQL: an application in Python, the `sqlite3` program, and
//! the rules that hold for both under every conflict clause and every setting.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accepted;
mod concurrent;
#[cfg(feature = "daemon")]
mod daemon;
mod documented;
mod frozen;
mod refused;
mod repeats;
mod schema;
mod settings;
mod shell;
mod support;
mod time;
mod together;
