//! Logs. (in work)

use crate::text_enum::text_enum;

text_enum! {
    /// How log records look.
    pub enum Format {
        /// Text on a terminal, JSON elsewhere.
        Auto = "auto",
        /// One line of text.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

text_enum! {
    /// The least important record that is written.
    pub enum Level {
        /// Only what needs a person.
        Error = "error",
        /// And what may need one.
        Warn = "warn",
        /// And what happened.
        Info = "info",
        /// And how.
        Debug = "debug",
        /// And everything else.
        Trace = "trace",
    }
}

/// What to log, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How records look.
    pub format: Format,
    /// Which are written.
    pub level: Level,
}
