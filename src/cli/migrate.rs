//! `migrate`: the tables, in the configured database or the application's own.

use super::arguments::{Global, Migrate};
use super::{Exit, Failure, output};
use crate::clock::wall;
use crate::config;
use crate::jitter::Seed;
use crate::schema;
use crate::store::sqlite::{Access, Sqlite, path_of};
use crate::store::{Mirror, Store};
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct Migrated {
    store: String,
    version: u32,
    receivers: Vec<String>,
}

#[derive(Serialize)]
struct Printed<'a> {
    sql: &'a str,
}

pub(super) async fn migrate(global: &Global, command: &Migrate) -> Result<Exit, Failure> {
    let loaded = config::load(&global.request())?;
    let rules = Arc::new(loaded.settings.rules(Seed::draw()));
    let receivers: Vec<String> = rules.receivers.keys().cloned().collect();
    if command.print {
        let mut script = schema::script(wall());
        for name in &receivers {
            // Names hold letters, digits and hyphens only.
            script.push_str(&format!(
                "INSERT OR IGNORE INTO handoff_receivers (name) VALUES ('{name}');\n"
            ));
        }
        global.output().result(&Printed { sql: script.trim_end() }, &script)?;
        return Ok(Exit::Done);
    }
    let mut settings = loaded.settings.store.clone();
    if let Some(url) = &command.url {
        if path_of(url).is_none() {
            let message = format!("--url {:?} is no sqlite:FILE", output::plain(url));
            return Err(Failure::new(Exit::Usage, message));
        }
        settings.url.clone_from(url);
        settings.explicit = true;
    }
    let store = Sqlite::open(&settings, Access::Create, "cli").await?;
    store.mirror(&rules, Mirror::Replace).await?;
    // So that a copy of the file alone has the tables. They are safe in any case.
    drop(store.close().await);
    let migrated =
        Migrated { store: store.path().display().to_string(), version: schema::VERSION, receivers };
    let text = format!(
        "{} has the handoff tables, version {}; receivers: {}",
        output::plain(&migrated.store),
        migrated.version,
        migrated.receivers.join(", ")
    );
    global.output().result(&migrated, &text)?;
    Ok(Exit::Done)
}
