//! The supervisor: turns passes, runs calls, and never waits inside a transaction. (in work)

use std::time::Duration;

/// How the supervisor works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often it looks for due operations when nothing wakes it.
    pub poll_interval: Duration,
    /// How long a stop waits for calls that are under way.
    pub shutdown_grace: Duration,
}
