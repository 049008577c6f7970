//! Operation types: their schema, and what their subjects look like.

use super::check::{Checked, choice, duration, integer, list, name, text};
use super::duration::{days, ms};
use super::file;
use super::read::{Read, Reader, Table, Wrong};
use crate::outbox::operation_type::{BUILTIN_CREATE_FOLLOWUP, OperationType, Schema};
use ::config::Value;
use regex::Regex;
use std::path::Path;

const DEPENDENT: &str = "dependent";
const INDEPENDENT: &str = "independent";
const VERSIONS: &[&str] = &[DEPENDENT, INDEPENDENT];

/// Reads every type, in the order of their names.
pub(super) fn read(
    reader: &mut Reader,
    root: &Table<'_>,
    folder: &Path,
) -> Read<Vec<OperationType>> {
    let all = reader.section(root, "operations")?;
    let receivers = root.keys_of("receivers");
    let mut read = Vec::new();
    for name in all.keys() {
        read.push(read_one(reader, &all, &name, receivers.as_deref(), folder));
    }
    read.into_iter().collect()
}

fn read_one(
    reader: &mut Reader,
    all: &Table<'_>,
    name: &str,
    receivers: Option<&[String]>,
    folder: &Path,
) -> Read<OperationType> {
    let table = reader.section(all, name)?;
    let version = reader.or(&table, "version", ("1", 1), integer::<u16>(1..=999));
    let receiver = read_receiver(reader, &table, receivers);
    let remedy = "write the field that holds the subject, such as subject = \"case_id\"";
    let subject = reader.required(&table, "subject", remedy, text);
    let subject_pattern = reader.optional(&table, "subject_pattern", pattern);
    let remedy = "write the path of a JSON Schema, or schema = \"builtin:create-followup\"";
    let schema = reader.required(&table, "schema", remedy, |value| schema(value, folder));
    let trim = reader.or(&table, "trim", ("[]", Vec::new()), list(text));
    let age = duration(ms(1)..=days(36_500));
    let approval_max_age = reader.optional(&table, "approval_max_age", age);
    let versions = choice(VERSIONS, |word| word, &[]);
    let versions = reader.or(&table, "versions", ("\"dependent\"", DEPENDENT), versions);
    Ok(OperationType {
        name: name.to_owned(),
        version: version?,
        receiver: receiver?,
        subject: subject?,
        subject_pattern: subject_pattern?,
        schema: schema?,
        trim: trim?,
        approval_max_age: approval_max_age?,
        independent_versions: versions? == INDEPENDENT,
    })
}

/// The receiver, which must be one of those that there are, if they can be told.
fn read_receiver(
    reader: &mut Reader,
    table: &Table<'_>,
    receivers: Option<&[String]>,
) -> Read<String> {
    let known = receivers.unwrap_or_default().join(", ");
    let remedy = format!("write the name of a receiver; there are {known}");
    let receiver = reader.required(table, "receiver", &remedy, name)?;
    match receivers {
        Some(known) if !known.contains(&receiver) => {
            let builtin =
                "this type is built in: define types of your own in the file, or set this key";
            let remedy = if table.is_given("receiver") { remedy } else { builtin.to_owned() };
            Err(reader.refuse(table, "receiver", "there is no such receiver", remedy))
        }
        Some(_) | None => Ok(receiver),
    }
}

/// A pattern for whole subjects.
fn pattern(value: &Value) -> Checked<Regex> {
    let remedy = "write for example \"[A-Z]{2}-[0-9]+\"";
    let pattern = text(value)?;
    if !pattern.bytes().all(|byte| byte.is_ascii_graphic()) {
        let must = "must be a pattern of visible ASCII, as subjects are";
        return Err(Wrong::new(must, remedy));
    }
    // First alone: `a)|(b` would be a pattern between the anchors' brackets.
    let whole = Regex::new(&pattern).and_then(|_| Regex::new(&format!(r"\A(?:{pattern})\z")));
    whole.map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Wrong::new(format!("must be a regular expression ({why})"), remedy)
    })
}

/// The built-in schema, or one in a file beside the configuration.
fn schema(value: &Value, folder: &Path) -> Checked<Schema> {
    let place = text(value)?;
    let unusable = |error: &dyn std::fmt::Display| Wrong::new(error.to_string(), "mend the schema");
    if place == BUILTIN_CREATE_FOLLOWUP {
        return Schema::create_followup().map_err(|error| unusable(&error));
    }
    if place.starts_with("builtin:") {
        let known = format!("there is \"{BUILTIN_CREATE_FOLLOWUP}\", or the path of a file");
        return Err(Wrong::new("no such schema is built in", known));
    }
    let path = folder.join(place);
    let said =
        |problem: String| format!("{}: {problem}", super::show::line(&path.display().to_string()));
    let text = file::read(&path).map_err(|(problem, remedy)| Wrong::new(said(problem), remedy))?;
    let schema = serde_json::from_str(&text)
        .map_err(|error| Wrong::new(said(format!("it is no JSON: {error}")), "mend the schema"))?;
    Schema::compile(&schema).map_err(|error| unusable(&said(error.to_string())))
}
