//! `approve`: records an operation as a person's approval.

use super::arguments::{Approve, Global};
use super::{Exit, Failure, Session, actor, output};
use crate::clock::{Timestamp, wall};
use crate::config::{self, Loaded};
use crate::daemon::store_path;
use crate::jitter::Seed;
use crate::outbox::key::OperationKey;
use crate::outbox::operation::Operation;
use crate::outbox::operation_type::OperationType;
use crate::outbox::payload::{PAYLOAD_BYTES_MAX, Payload};
use crate::outbox::rules::Rules;
use crate::record::{RecordError, Recorded};
use crate::store::sqlite::Access;
use crate::store::{Mirror, Store};
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The last moment of the year 9999, in milliseconds since 1970.
const DUE_MAX: i64 = 253_402_300_799_999;

pub(super) async fn approve(global: &Global, command: &Approve) -> Result<Exit, Failure> {
    let loaded = config::load(&global.request())?;
    let rules = Arc::new(loaded.settings.rules(Seed::draw()));
    let (kind, operation) = operation(&loaded, &rules, command)?;
    // What is refused up to here leaves no file behind.
    let path = store_path(&loaded);
    let is_new = path.as_ref().is_some_and(|path| !path.exists());
    let session = Session::with(global, &loaded, Arc::clone(&rules), Access::Create).await?;
    if is_new {
        let made = format!("made the database {}", session.store.path().display());
        session.output.hint(&output::plain(&made));
    }
    // The names of a database that has some are the daemon's to change.
    session.store.mirror(&rules, Mirror::IfEmpty).await?;
    refuse_other_version(&session, kind, &operation.key).await?;
    let key = operation.key.as_str().to_owned();
    let recorded = session.store.record(&rules, operation).await?;
    report(&session, &key, recorded).await
}

/// The operation that the command line describes, and its type.
fn operation<'a>(
    loaded: &Loaded,
    rules: &'a Rules,
    command: &Approve,
) -> Result<(&'a OperationType, Operation), Failure> {
    let kind = type_named(rules, &command.kind)?;
    let object = match &command.payload {
        Some(file) => read_payload(file)?,
        None => fields(&command.field)?,
    };
    let refused = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Refused, error).hint("nothing was recorded; mend the input and repeat")
    };
    let payload = kind.prepare(object).map_err(|error| refused(&error))?;
    let subject = kind.subject_of(&payload).map_err(|error| refused(&error))?;
    let namespace = &loaded.settings.namespace;
    let key = OperationKey::new(namespace, &kind.name, kind.version, subject)
        .map_err(|error| refused(&error))?;
    let approver = actor(command.approver.as_deref());
    let mut operation =
        Operation::new(key, &kind.receiver, payload, &approver).map_err(|error| refused(&error))?;
    if let Some(text) = &command.deliver_after {
        operation = operation.deliver_after(due(text)?);
    }
    Ok((kind, operation))
}

fn type_named<'a>(rules: &'a Rules, name: &str) -> Result<&'a OperationType, Failure> {
    let types = rules.types.values();
    types.clone().find(|kind| kind.name == name).ok_or_else(|| {
        let known: Vec<&str> = types.map(|kind| kind.name.as_str()).collect();
        Failure::new(Exit::Refused, format!("there is no operation type {:?}", output::plain(name)))
            .hint(format!("configured are: {}", known.join(", ")))
    })
}

fn fields(pairs: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    for pair in pairs {
        let refused = |problem: &str| {
            let message = format!("--field {:?}: {problem}", output::plain(pair));
            Failure::new(Exit::Refused, message).hint("write --field NAME=VALUE, each name once")
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| refused("there is no '='"))?;
        if name.is_empty() {
            return Err(refused("the name is empty"));
        }
        if object.insert(name.to_owned(), Value::String(value.to_owned())).is_some() {
            return Err(refused("the name occurs twice"));
        }
    }
    Ok(object)
}

fn read_payload(file: &Path) -> Result<Map<String, Value>, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        let name = output::plain(&file.display().to_string());
        Failure::new(Exit::Refused, format!("payload {name}: {error}"))
    };
    // One byte more than allowed tells a payload that is too large.
    let limit = u64::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| refused(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        refused(&format_args!("it is no UTF-8, or longer than {PAYLOAD_BYTES_MAX} bytes"))
    })?;
    let payload = Payload::parse(&text).map_err(|error| refused(&error))?;
    Ok(payload.object().clone())
}

fn due(text: &str) -> Result<Timestamp, Failure> {
    let refused = |problem: &str| {
        let message = format!("--deliver-after {:?} {problem}", output::plain(text));
        Failure::new(Exit::Refused, message)
            .hint("write a time such as 2027-01-31T09:00:00Z, or a duration such as 2h")
    };
    let time = match config::parse_duration(text) {
        Ok(delay) => wall().plus(delay),
        Err(_) => text.parse().map_err(|_| refused("is no time"))?,
    };
    if (0..=DUE_MAX).contains(&time.as_millis()) {
        Ok(time)
    } else {
        Err(refused("is not between the years 1970 and 9999"))
    }
}

/// Another version of the same subject is no way round an operation that exists.
async fn refuse_other_version(
    session: &Session,
    kind: &OperationType,
    key: &OperationKey,
) -> Result<(), Failure> {
    if kind.independent_versions {
        return Ok(());
    }
    match session.store.other_version(key).await? {
        None => Ok(()),
        Some(other) => Err(Failure::new(
            Exit::Refused,
            format!("the same subject is recorded as {other}; another version is no way round it"),
        )
        .hint(format!("handoff explain {other}"))),
    }
}

async fn report(
    session: &Session,
    key: &str,
    recorded: Result<Recorded, RecordError>,
) -> Result<Exit, Failure> {
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(RecordError::Conflict(conflict)) => {
            let stored = conflict.stored.as_ref().map_or("not kept", |known| known.as_str());
            let hint = format!(
                "stored is {stored}, given was {}; \"handoff show {key}\" shows what is stored",
                conflict.given
            );
            return Err(Failure::from(RecordError::Conflict(conflict)).hint(hint));
        }
        Err(error) => return Err(error.into()),
    };
    let (word, text) = match recorded {
        Recorded::New => ("new", format!("recorded {key}")),
        Recorded::Existing { state } => {
            ("existing", format!("{key} was recorded before (state {state}); nothing was changed"))
        }
    };
    let row = session.store.find(key).await?.ok_or_else(|| super::no_such_key(key))?;
    let mut object =
        serde_json::to_value(&row).map_err(|error| Failure::new(Exit::Failed, error))?;
    object["recorded"] = Value::String(word.to_owned());
    session.output.result(&object, &text)?;
    session.output.hint(&format!("next: handoff wait {key}"));
    session.warn_without_daemon();
    Ok(Exit::Done)
}
