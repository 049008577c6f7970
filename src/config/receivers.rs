//! Receivers: their kinds, and what each needs.

use super::check::{Checked, boolean, choice, duration, integer, list, text};
use super::duration::{hours, ms};
use super::read::{Read, Reader, Reported, SET, Table, Wrong};
use super::{contract, faults, http, protection, retry};
use crate::outbox::contract::Mode;
use crate::receiver::{Kind, Settings, command, simulated};
use ::config::{Value, ValueKind};
use std::path::PathBuf;

const SIMULATED: &str = "simulated";
const COMMAND: &str = "command";
const HTTP: &str = "http";
const KINDS: &[&str] = &[SIMULATED, COMMAND, HTTP];
/// The keys that only one kind has.
const OWN_KEYS: &[(&str, &[&str])] = &[
    (SIMULATED, &["path", "behaviour", "faults"]),
    (COMMAND, &["program", "environment"]),
    (HTTP, http::KEYS),
];

/// Reads every receiver, in the order of their names.
pub(super) fn read(reader: &mut Reader, root: &Table<'_>) -> Read<Vec<Settings>> {
    let all = reader.section(root, "receivers")?;
    let mut read = Vec::new();
    for name in all.keys() {
        read.push(read_one(reader, &all, &name));
    }
    read.into_iter().collect()
}

fn read_one(reader: &mut Reader, all: &Table<'_>, name: &str) -> Read<Settings> {
    let table = reader.section(all, name)?;
    let kind = read_kind(reader, &table);
    let timeout = reader.required(&table, "timeout", SET, duration(ms(1)..=hours(1)));
    let concurrency = reader.required(&table, "concurrency", SET, integer::<u16>(1..=1024));
    let retry = retry::read(reader, &table);
    let max_attempts = retry.as_ref().ok().map(|retry| retry.max_attempts);
    let can_look_up = kind.as_ref().map_or(true, Kind::can_look_up);
    let contract = contract::read(reader, &table, timeout.ok(), max_attempts, can_look_up);
    let kind = kind.and_then(|kind| match kind {
        Kind::Http(settings) => {
            let settings = http::with_connect_timeout(reader, &table, *settings, timeout?)?;
            Ok(Kind::Http(Box::new(settings)))
        }
        other => Ok(other),
    });
    let protection = protection::read(reader, &table);
    Ok(Settings {
        name: name.to_owned(),
        kind: kind?,
        timeout: timeout?,
        concurrency: usize::from(concurrency?),
        contract: contract?,
        retry: retry?,
        protection: protection?,
    })
}

fn read_kind(reader: &mut Reader, table: &Table<'_>) -> Read<Kind> {
    let remedy = "write kind = \"simulated\", kind = \"command\" or kind = \"http\" (a built-in \
                  receiver exists only where the file defines none)";
    let check = choice(KINDS, |kind| kind, &[]);
    let Ok(kind) = reader.required(table, "kind", remedy, check) else {
        // Which keys it needs depends on the kind; whether they can be read does not.
        reader.optional(table, "path", text).ok();
        read_behaviour(reader, table).ok();
        faults::read(reader, table).ok();
        reader.optional(table, "program", program).ok();
        reader.optional(table, "environment", list(variable)).ok();
        return Err(Reported);
    };
    let others = OWN_KEYS.iter().filter(|(owner, _)| *owner != kind);
    let others: Vec<&str> = others.flat_map(|(_, keys)| *keys).copied().collect();
    let others = reader.none_of(table, &others, &format!("for kind = \"{kind}\""));
    let read = match kind {
        SIMULATED => read_simulated(reader, table).map(Kind::Simulated),
        HTTP => http::read(reader, table).map(|settings| Kind::Http(Box::new(settings))),
        _ => read_command(reader, table).map(Kind::Command),
    };
    others?;
    read
}

fn read_simulated(reader: &mut Reader, table: &Table<'_>) -> Read<simulated::Settings> {
    let remedy = "write for example path = \"handoff-data/simulated-crm.db\"";
    let path = reader.required(table, "path", remedy, text);
    let behaviour = read_behaviour(reader, table);
    let faults = faults::read(reader, table);
    let (unique, mode) = behaviour?;
    Ok(simulated::Settings { path: PathBuf::from(path?), unique, mode, faults: faults? })
}

/// What it really does, as far as that differs from what it declares.
fn read_behaviour(reader: &mut Reader, table: &Table<'_>) -> Read<(Option<bool>, Option<Mode>)> {
    let Some(table) = reader.table(table, "behaviour")? else { return Ok((None, None)) };
    let unique = reader.optional(&table, "unique", boolean);
    let mode = reader.optional(&table, "mode", contract::mode());
    Ok((unique?, mode?))
}

fn read_command(reader: &mut Reader, table: &Table<'_>) -> Read<command::Settings> {
    let remedy = "write for example program = [\"/usr/local/bin/deliver\"]";
    let program = reader.required(table, "program", remedy, program);
    let environment = reader.or(table, "environment", ("[]", Vec::new()), list(variable));
    Ok(command::Settings { program: program?, environment: environment? })
}

fn program(value: &Value) -> Checked<Vec<String>> {
    let must = "must be a list of texts that begins with an absolute path";
    let remedy = "write for example [\"/usr/local/bin/deliver\", \"--fast\"]";
    let argument = |value: &Value| match &value.kind {
        ValueKind::String(argument) if !argument.contains('\0') => Ok(argument.clone()),
        _ => Err(Wrong::new("must be a text", "write it in quotes")),
    };
    let program = list(argument)(value)?;
    match program.first() {
        Some(path) if path.starts_with('/') && !path.ends_with('/') => Ok(program),
        Some(_) | None => Err(Wrong::new(must, remedy)),
    }
}

/// The name of an environment variable.
pub(super) fn variable(value: &Value) -> Checked<String> {
    let allowed = |text: &str| {
        !text.is_empty()
            && !text.starts_with(|first: char| first.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match &value.kind {
        ValueKind::String(text) if allowed(text) => Ok(text.clone()),
        _ => {
            let must = "must be the name of an environment variable, [A-Za-z_][A-Za-z0-9_]*";
            // Someone may have written NAME=secret.
            Err(Wrong::new(must, "write the name alone, without a value").hidden())
        }
    }
}
