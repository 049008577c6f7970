//! A program that is started for each attempt. (stub to be replaced)
use super::*;
/// Settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program's absolute path, and its arguments.
    pub program: Vec<String>,
    /// Names of the environment variables that it is given.
    pub environment: Vec<String>,
}
/// Command.
pub struct Command {}
impl Command {
    /// New.
    pub fn new(_settings: Settings, _name: String) -> Self {
        Self {}
    }
}
#[async_trait]
impl Receiver for Command {
    async fn deliver(&self, _attempt: &Attempt, _journal: &dyn Journal) -> Report {
        Report::unknown("stub")
    }
}
