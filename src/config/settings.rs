//! The whole tree, read into the settings of the parts.

use super::check::{Checked, choice, duration, name};
use super::duration::{days, hours, ms};
use super::keys::NOT_YET;
use super::read::{Read, Reader, SET, Table, Wrong};
use super::{Settings, operations, receivers};
use crate::store;
use crate::supervisor;
use crate::telemetry::{self, Format, Level};
use ::config::{Value, ValueKind};
use std::path::Path;
use std::time::Duration;

/// Reads everything; paths of schemas are relative to the folder.
pub(super) fn read(reader: &mut Reader, root: &Table<'_>, folder: &Path) -> Read<Settings> {
    let namespace = reader.required(root, "namespace", SET, name);
    let store = read_store(reader, root);
    let server = read_server(reader, root);
    let worker = read_worker(reader, root);
    let log = read_log(reader, root);
    let receivers = receivers::read(reader, root);
    let operations = operations::read(reader, root, folder);
    server?;
    Ok(Settings {
        namespace: namespace?,
        store: store?,
        worker: worker?,
        log: log?,
        receivers: receivers?,
        operations: operations?,
    })
}

fn read_store(reader: &mut Reader, root: &Table<'_>) -> Read<store::Settings> {
    let table = reader.section(root, "store")?;
    let url = reader.required(&table, "url", SET, store_url);
    // Well below the unit's WatchdogSec: a wait for the lock is no hung loop.
    let range = ms(1)..=ms(20_000);
    let busy_timeout = reader.required(&table, "busy_timeout", SET, duration(range));
    let explicit = table.is_given("url");
    Ok(store::Settings { url: url?, busy_timeout: busy_timeout?, explicit })
}

/// A URL is never repeated where it could hold a password.
fn store_url(value: &Value) -> Checked<String> {
    let remedy = "write for example \"sqlite:/var/lib/handoff/handoff.db\"";
    let ValueKind::String(url) = &value.kind else {
        return Err(Wrong::new("must be \"sqlite:PATH\"", remedy));
    };
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        return Err(Wrong::new(format!("PostgreSQL is {NOT_YET}"), remedy).hidden());
    }
    let wrong = |why: &str| Wrong::new(format!("must be \"sqlite:PATH\" ({why})"), remedy);
    let Some(path) = url.strip_prefix("sqlite:") else {
        let wrong = wrong("no other database is known");
        return Err(if url.contains(['@', '/']) { wrong.hidden() } else { wrong });
    };
    if path.is_empty() || path.ends_with('/') {
        return Err(wrong("the file is missing"));
    }
    if path.starts_with("//") {
        return Err(wrong("one slash begins an absolute path, none a relative one"));
    }
    if path.starts_with(':') || path.starts_with("file:") {
        return Err(wrong("it must be a plain file; one in memory records nothing"));
    }
    if path.contains(['?', '#', '\0']) {
        return Err(wrong("parameters are not supported"));
    }
    Ok(url.clone())
}

/// Whether what is blocked is looked up again by itself.
fn read_reconcile(reader: &mut Reader, root: &Table<'_>) -> Read<Option<supervisor::Reconcile>> {
    let Some(table) = reader.table(root, "reconcile")? else { return Ok(None) };
    let remedy = "write for example every = \"1h\", or leave the table out";
    let every = reader.required(&table, "every", remedy, duration(ms(100)..=days(365)));
    let within = ("\"7d\"", days(7));
    let within = reader.or(&table, "within", within, duration(ms(1)..=days(3_650)));
    Ok(Some(supervisor::Reconcile { every: every?, within: within? }))
}

/// The server comes later; until then it can only be switched off.
fn read_server(reader: &mut Reader, root: &Table<'_>) -> Read<()> {
    let table = reader.section(root, "server")?;
    reader.required(&table, "listen", SET, |value| match &value.kind {
        ValueKind::Array(addresses) if addresses.is_empty() => Ok(()),
        _ => Err(Wrong::new(format!("a server is {NOT_YET}"), "write listen = []")),
    })
}

fn read_worker(reader: &mut Reader, root: &Table<'_>) -> Read<supervisor::Settings> {
    let table = reader.section(root, "worker")?;
    let poll_interval = reader.required(&table, "poll_interval", SET, duration(ms(10)..=hours(1)));
    let grace = duration(Duration::ZERO..=hours(1));
    let shutdown_grace = reader.required(&table, "shutdown_grace", SET, grace);
    let reconcile = read_reconcile(reader, root);
    Ok(supervisor::Settings {
        poll_interval: poll_interval?,
        shutdown_grace: shutdown_grace?,
        reconcile: reconcile?,
    })
}

fn read_log(reader: &mut Reader, root: &Table<'_>) -> Read<telemetry::Settings> {
    let table = reader.section(root, "log")?;
    let format = reader.required(&table, "format", SET, choice(Format::ALL, Format::as_str, &[]));
    let level = reader.required(&table, "level", SET, choice(Level::ALL, Level::as_str, &[]));
    Ok(telemetry::Settings { format: format?, level: level? })
}
