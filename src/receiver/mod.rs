//! Receivers: where operations are delivered.
//!
//! A receiver classifies what happened. It never decides, retries, waits
//! between tries, stores, or reads a clock; [`policy`](crate::outbox::policy)
//! decides. The caller imposes the timeout by dropping the future, after which
//! nothing of the call may go on running on this machine.

pub mod command;
pub mod fault;
pub mod http;
pub mod launcher;
pub mod simulated;
#[cfg(test)]
mod waiting;

use crate::jitter::Seed;
use crate::outbox::contract::Contract;
use crate::outbox::look_up::LookUpReport;
use crate::outbox::outcome::Report;
use crate::outbox::retry::Retry;
use crate::outbox::rules::Protection;
use crate::process::ProcessGroup;
use crate::store::{Attempt, AttemptId};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A place that operations are delivered to.
#[async_trait]
pub trait Receiver: Send + Sync + 'static {
    /// Delivers the attempt's payload under its key, once.
    ///
    /// The journal is told of a process before that process may do its work.
    async fn deliver(&self, attempt: &Attempt, journal: &dyn Journal) -> Report;

    /// Asks what the receiver holds under the attempt's key. Changes nothing there.
    ///
    /// One that cannot be asked cannot tell.
    async fn look_up(&self, _attempt: &Attempt, _journal: &dyn Journal) -> LookUpReport {
        LookUpReport::cannot_tell("no_look_up")
    }
}

/// What a receiver may have written down while its call is under way.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Keeps the group of a process that is about to do the attempt's work.
    ///
    /// # Errors
    ///
    /// [`NotKept`] if it could not be stored; the work must then not begin.
    async fn process_started(
        &self,
        attempt: &AttemptId,
        group: &ProcessGroup,
    ) -> Result<(), NotKept>;
}

/// The store did not take a note.
#[derive(Debug, thiserror::Error)]
#[error("the store did not take the note: {0}")]
pub struct NotKept(pub String);

/// A receiver, as configured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The longest that one call may take.
    pub timeout: Duration,
    /// Calls under way at once.
    pub concurrency: usize,
    /// What it promises.
    pub contract: Contract,
    /// Delays and budget.
    pub retry: Retry,
    /// What protects it as a whole.
    pub protection: Protection,
}

/// The kinds of receiver, with what each needs.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A CRM in a file of its own, with faults to order.
    Simulated(simulated::Settings),
    /// A program that is started for each attempt.
    Command(command::Settings),
    /// A place that speaks HTTP.
    Http(Box<http::Settings>),
}

impl Kind {
    /// Whether such a receiver can be asked what it holds under a key.
    pub const fn can_look_up(&self) -> bool {
        match self {
            Self::Simulated(_) => true,
            Self::Command(_) | Self::Http(_) => false,
        }
    }
}

impl Settings {
    /// What makes it the same account: where its operations really go.
    pub fn identity(&self) -> String {
        match &self.kind {
            Kind::Simulated(settings) => format!("simulated:{}", settings.path.display()),
            Kind::Command(settings) => format!("command:{}", settings.program.join("\u{1f}")),
            Kind::Http(settings) => settings.identity(),
        }
    }

    /// What its requests look like, as far as its configuration decides.
    pub fn request_form(&self) -> String {
        match &self.kind {
            Kind::Simulated(_) | Kind::Command(_) => String::new(),
            Kind::Http(settings) => settings.request.form(),
        }
    }

    fn build(&self, seed: Seed) -> Result<Arc<dyn Receiver>, BuildError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| BuildError {
            name: self.name.clone(),
            source,
        };
        Ok(match &self.kind {
            Kind::Simulated(settings) => Arc::new(
                simulated::Simulated::open(settings, &self.contract, seed)
                    .map_err(|error| failed(error.into()))?,
            ),
            Kind::Command(settings) => {
                Arc::new(command::Command::new(settings.clone(), self.name.clone()))
            }
            Kind::Http(settings) => {
                Arc::new(http::Http::new(settings).map_err(|error| failed(error.into()))?)
            }
        })
    }
}

/// A receiver could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("receiver {name} cannot be set up: {source}")]
pub struct BuildError {
    /// Its name.
    pub name: String,
    /// Why not.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The receivers by name.
#[derive(Clone, Default)]
pub struct Registry {
    by_name: BTreeMap<String, Arc<dyn Receiver>>,
}

impl Registry {
    /// Sets up every receiver.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the first that cannot be set up.
    pub fn build(all: &[Settings], seed: Seed) -> Result<Self, BuildError> {
        let build = |settings: &Settings| Ok((settings.name.clone(), settings.build(seed)?));
        Ok(Self { by_name: all.iter().map(build).collect::<Result<_, _>>()? })
    }

    /// The receiver of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Receiver>> {
        self.by_name.get(name)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}
