//! The simulated CRM. (stub to be replaced)
use super::*;
use std::path::PathBuf;
/// Settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its database file.
    pub path: PathBuf,
    /// Whether it enforces unique keys; as its mode says, if absent.
    pub unique: Option<bool>,
    /// What it really does; as its contract says, if absent.
    pub mode: Option<crate::outbox::contract::Mode>,
    /// What goes wrong.
    pub faults: Vec<fault::Fault>,
}
/// Simulated.
pub struct Simulated {}
impl Simulated {
    /// Open.
    pub fn open(
        _settings: &Settings,
        _contract: &Contract,
        _seed: crate::jitter::Seed,
    ) -> Result<Self, std::io::Error> {
        Ok(Self {})
    }
}
#[async_trait]
impl Receiver for Simulated {
    async fn deliver(&self, _attempt: &Attempt, _journal: &dyn Journal) -> Report {
        Report::unknown("stub")
    }
}
