//! Configuration: layered from flags, environment, file and defaults, then read strictly.
//!
//! ```text
//!  --set        environment        file        config/handoff.toml (built in)
//!    └──────────────┴── layers ──────┴─────────────┘
//!                         │  unknown keys are out, each value knows its origin
//!                         ▼
//!                       read ──► problems, all at once   or   settings of the parts
//! ```
//!
//! No value is converted from one type to another: `1.7` is no `2`, `"30"` no
//! duration, and a text from the environment is read as its key expects. The
//! parts of the program never import this module; each has its own `Settings`.

mod advice;
mod check;
mod contract;
mod duration;
mod faults;
mod file;
mod http;
mod keys;
mod layers;
mod operations;
mod problem;
mod protection;
mod read;
mod receivers;
mod retry;
mod settings;
mod show;
#[cfg(test)]
mod tests;

pub(crate) use duration::parse as parse_duration;
pub use problem::{ConfigError, Problem};

use crate::jitter::Seed;
use crate::outbox::operation_type::OperationType;
use crate::outbox::policy::Terms;
use crate::outbox::rules::{ReceiverRules, Rules};
use layers::Layer;
use problem::Problems;
use read::{Reader, Table};
use std::path::{Path, PathBuf};

/// The complete, commented file of defaults.
pub const DEFAULT_FILE: &str = include_str!("../../config/handoff.toml");

/// Where to look for a configuration.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The file. Without one, none is looked for.
    pub file: Option<PathBuf>,
    /// What `--set` says, as `KEY=VALUE` with a dotted path. The last one wins.
    pub set: Vec<String>,
    /// The environment. Only names that begin with `HANDOFF_` are looked at.
    pub environment: Vec<(String, String)>,
}

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings of the parts.
    pub settings: Settings,
    /// Every value in effect, always in the same order.
    pub values: Vec<Shown>,
    /// What is allowed, and still worth a word.
    pub advice: Vec<String>,
}

/// A value in effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shown {
    /// The path of its key.
    pub path: String,
    /// The value as TOML.
    pub value: String,
    /// The file, `environment NAME`, `--set`, or `default`.
    pub origin: String,
}

/// The settings of the parts of the program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The business, the first part of every key.
    pub namespace: String,
    /// The durable record.
    pub store: crate::store::Settings,
    /// The supervisor.
    pub worker: crate::supervisor::Settings,
    /// The log.
    pub log: crate::telemetry::Settings,
    /// The receivers, in the order of their names.
    pub receivers: Vec<crate::receiver::Settings>,
    /// The operation types, in the order of their names.
    pub operations: Vec<OperationType>,
}

impl Settings {
    /// What decides about operations, with the seed of this process.
    pub fn rules(&self, seed: Seed) -> Rules {
        let types = self.operations.iter().cloned();
        let receivers = self.receivers.iter().map(|receiver| {
            let terms = Terms {
                contract: receiver.contract.clone(),
                retry: receiver.retry.clone(),
                timeout: receiver.timeout,
            };
            let (identity, request_form) = (receiver.identity(), receiver.request_form());
            let protection = receiver.protection;
            let rules = ReceiverRules { terms, identity, request_form, protection };
            (receiver.name.clone(), rules)
        });
        Rules {
            types: types.map(|kind| ((kind.name.clone(), kind.version), kind)).collect(),
            receivers: receivers.collect(),
            seed,
        }
    }
}

/// Loads a configuration.
///
/// # Errors
///
/// [`ConfigError`] lists everything that is wrong. Where the file cannot be
/// parsed at all, what depends on its content is left out.
pub fn load(request: &Request) -> Result<Loaded, ConfigError> {
    let mut problems = Problems::default();
    let file = match &request.file {
        Some(path) => file::load(path, &mut problems),
        None => Some(::config::Map::new()),
    };
    let folder = request.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    assemble(file.map(Layer), folder, request, problems)
}

/// Lays what was found over the defaults, and reads it.
fn assemble(
    file: Option<Layer>,
    folder: &Path,
    request: &Request,
    mut problems: Problems,
) -> Result<Loaded, ConfigError> {
    let environment = layers::environment(&request.environment, &mut problems);
    let flags = layers::flags(&request.set, &mut problems);
    let builtin = file::parse(DEFAULT_FILE, None, &mut problems);
    let (Some(file), Some(builtin)) = (file, builtin) else { return Err(problems.into_error()) };
    let above = [environment, flags].concat();
    let defaults = layers::defaults(builtin, &file, &above);
    let merged = match layers::merge([vec![defaults, file], above].concat()) {
        Ok(merged) => merged,
        Err(error) => {
            problems.add(None, "", None, error.to_string(), "report this as a fault");
            return Err(problems.into_error());
        }
    };
    let mut reader = Reader::new(problems);
    match settings::read(&mut reader, &Table::root(&merged), folder) {
        Ok(settings) if reader.problems.is_empty() => {
            let advice = advice::of(&settings);
            Ok(Loaded { settings, values: reader.shown, advice })
        }
        Ok(_) | Err(_) => Err(reader.problems.into_error()),
    }
}
