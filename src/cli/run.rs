//! `run`: the daemon.

use super::arguments::Global;
use super::{Exit, Failure, output};
use crate::config::{self, Loaded};
use crate::daemon;
use crate::receiver::Kind;
use std::path::Path;

pub(super) async fn run(global: &Global) -> Result<Exit, Failure> {
    let request = global.request();
    let loaded = config::load(&request)?;
    let greeting =
        (request.file.is_none() && !global.quiet && !global.json).then(|| greeting(&loaded));
    let greet = |store: &Path| {
        if let Some(greeting) = greeting {
            output::note(&format!("handoff serves {}\n{greeting}", store.display()));
        }
    };
    daemon::run(&request, loaded, greet).await?;
    Ok(Exit::Done)
}

/// Where everything is, and what to type in a second terminal.
fn greeting(loaded: &Loaded) -> String {
    let mut lines = Vec::new();
    for receiver in &loaded.settings.receivers {
        if let Kind::Simulated(settings) = &receiver.kind {
            let path = settings.path.display();
            lines.push(format!("receiver {} is a simulated CRM in {path}", receiver.name));
        }
    }
    let program = std::env::args().next().unwrap_or_else(|| "handoff".to_owned());
    lines.push("In a second terminal, in this folder:".to_owned());
    lines.push(format!(
        "  {program} approve create-followup --field case_id=case-104 \\\n      \
         --field title=\"Call the customer\""
    ));
    let namespace = &loaded.settings.namespace;
    lines.push(format!("  {program} wait {namespace}:create-followup:v1:case-104"));
    lines.push(format!("  {program} list"));
    lines.push("Ctrl-C stops.\n".to_owned());
    lines.join("\n")
}
