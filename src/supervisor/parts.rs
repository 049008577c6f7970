//! The receivers and the rules that a supervisor works with.

use crate::outbox::rules::Rules;
use crate::receiver::{self, BuildError, Receiver, Registry};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a configuration makes of receivers and rules. Replaced as a whole.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What decides.
    pub rules: Arc<Rules>,
    pub(super) lanes: BTreeMap<String, Lane>,
}

/// One receiver with its limits. No lane takes a slot of another.
#[derive(Clone)]
pub(super) struct Lane {
    pub(super) receiver: Arc<dyn Receiver>,
    pub(super) concurrency: usize,
    pub(super) timeout: Duration,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({} at once, {:?})", self.concurrency, self.timeout)
    }
}

impl Parts {
    /// Sets up the receivers.
    ///
    /// # Errors
    ///
    /// [`BuildError`] names the receiver that cannot be set up.
    pub fn build(rules: Rules, receivers: &[receiver::Settings]) -> Result<Self, BuildError> {
        let registry = Registry::build(receivers, rules.seed)?;
        let lane = |settings: &receiver::Settings| {
            let receiver = Arc::clone(registry.get(&settings.name)?);
            let (concurrency, timeout) = (settings.concurrency, settings.timeout);
            Some((settings.name.clone(), Lane { receiver, concurrency, timeout }))
        };
        let lanes = receivers.iter().filter_map(lane).collect();
        Ok(Self { rules: Arc::new(rules), lanes })
    }

    /// The names of the receivers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lanes.keys().map(String::as_str)
    }

    /// One receiver that is not configured but made by the caller.
    pub fn single(
        rules: Rules,
        name: &str,
        receiver: Arc<dyn Receiver>,
        concurrency: usize,
        timeout: Duration,
    ) -> Self {
        let parts = Self { rules: Arc::new(rules), lanes: BTreeMap::new() };
        parts.and(name, receiver, concurrency, timeout)
    }

    /// The same with one more receiver that is made by the caller.
    #[must_use]
    pub fn and(
        mut self,
        name: &str,
        receiver: Arc<dyn Receiver>,
        concurrency: usize,
        timeout: Duration,
    ) -> Self {
        self.lanes.insert(name.to_owned(), Lane { receiver, concurrency, timeout });
        self
    }
}
