//! Exit codes, and errors that carry one.

use crate::config::ConfigError;
use crate::daemon::DaemonError;
use crate::receiver::BuildError;
use crate::record::RecordError;
use crate::store::StoreError;
use serde::Serialize;
use std::fmt;

/// How a command ended. Scripts and the service unit rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed, or the condition that was waited for did not come.
    Failed = 1,
    /// The command line is wrong. Given by the command line parser.
    Usage = 2,
    /// A person must look.
    Attention = 3,
    /// The same key with other content, or the operation has moved on.
    Conflict = 4,
    /// The input was refused (EX_DATAERR of sysexits.h).
    Refused = 65,
    /// The database is unavailable (EX_UNAVAILABLE).
    Unavailable = 69,
    /// Another daemon serves the database (EX_TEMPFAIL).
    InUse = 75,
    /// Bad configuration, or a database that must not be touched (EX_CONFIG).
    Config = 78,
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong, and where.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// The failure as a program reads it.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    error: &'a str,
    exit: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl Failure {
    /// A failure with its exit code.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// The same failure, with what to do next.
    #[must_use]
    pub fn hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    pub(crate) fn shown(&self) -> Shown<'_> {
        Shown { error: &self.message, exit: self.exit as u8, hint: self.hint.as_deref() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::Busy(_) | StoreError::Full(_) | StoreError::Unavailable { .. } => {
                Exit::Unavailable
            }
            StoreError::CommitUnknown(_) | StoreError::Closed => Exit::Unavailable,
            StoreError::Unusable { .. } => Exit::Config,
            StoreError::InUse { .. } => Exit::InUse,
            StoreError::ClaimFailed { .. } | StoreError::NotOpen | StoreError::Database(_) => {
                Exit::Failed
            }
        };
        let failure = Self::new(exit, &error);
        match error {
            StoreError::CommitUnknown(_) => {
                failure.hint("not known whether it is there: repeat it with the same key")
            }
            StoreError::Busy(_) => failure.hint("nothing was changed; repeat it"),
            StoreError::Full(_) => failure.hint("nothing was changed; make room, then repeat it"),
            StoreError::InUse { .. } => {
                failure.hint("stop the other daemon first, or give this one a database of its own")
            }
            StoreError::Unavailable { .. }
            | StoreError::Unusable { .. }
            | StoreError::ClaimFailed { .. }
            | StoreError::NotOpen
            | StoreError::Database(_)
            | StoreError::Closed => failure,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Config, error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::new(Exit::Config, error)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Config(error) => error.into(),
            DaemonError::Store(error) => error.into(),
            DaemonError::Receiver(error) => error.into(),
            error @ DaemonError::System { .. } => Self::new(Exit::Failed, error),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Conflict(_) => Self::new(Exit::Conflict, error),
            RecordError::Refused(_) => Self::new(Exit::Refused, error),
            RecordError::NoTables(_) => Self::new(Exit::Config, error),
            RecordError::Database(_) => Self::new(Exit::Failed, error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, error)
    }
}
