//! The fault plan of a simulated receiver.

use super::check::{Checked, choice, duration, integer, number, text};
use super::duration::days;
use super::read::{Read, Reader, Table, Wrong};
use crate::receiver::fault::{Fault, On, What};
use ::config::Value;
use std::time::Duration;

/// The longest delay of a fault.
const DELAY_MAX: Duration = days(1);
/// The latest moment of a fault, and the longest Retry-After.
const MOMENT_MAX: Duration = days(365);

/// What a line of the plan may begin with, and the keys that it then needs.
const ON: &[(&str, &[&str])] = &[
    ("attempt", &["n"]),
    ("look_up", &["n"]),
    ("every", &[]),
    ("random", &["rate"]),
    ("key", &["match"]),
    ("time", &["from", "to"]),
];

/// The faults, and the key that some of them take.
const FAULTS: &[(&str, Option<&str>)] = &[
    ("unreachable", None),
    ("lose_reply", None),
    ("late", Some("delay")),
    ("throttle", Some("retry_after")),
    ("server_error", None),
    ("reject", None),
    ("conflict", None),
    ("unauthorised", None),
    ("locked_out", None),
    ("slow", Some("delay")),
    ("malformed", None),
    ("crash_before", None),
    ("crash_after", None),
];

/// Reads the plan of a receiver; absent is empty.
pub(super) fn read(reader: &mut Reader, receiver: &Table<'_>) -> Read<Vec<Fault>> {
    let mut read = Vec::new();
    for table in reader.tables(receiver, "faults")? {
        let on = read_on(reader, &table);
        let what = read_what(reader, &table);
        read.push(on.and_then(|on| Ok(Fault { on, what: what? })));
    }
    read.into_iter().collect()
}

fn read_on(reader: &mut Reader, table: &Table<'_>) -> Read<On> {
    let remedy = "write for example on = \"every\"";
    let (on, needed) = reader.required(table, "on", remedy, choice(ON, |(on, _)| on, &[]))?;
    let others = ON.iter().flat_map(|(_, keys)| *keys).filter(|key| !needed.contains(key));
    let others: Vec<&str> = others.copied().collect();
    let others = reader.none_of(table, &others, &format!("with on = \"{on}\""));
    let remedy = format!("on = \"{on}\" needs {}", needed.join(" and "));
    let read = match on {
        "attempt" => reader.required(table, "n", &remedy, integer(1..=10_000)).map(On::Attempt),
        "look_up" => reader.optional(table, "n", integer(1..=10_000)).map(On::LookUp),
        "random" => reader.required(table, "rate", &remedy, number(0.0..=1.0)).map(On::Random),
        "key" => reader.required(table, "match", &remedy, pattern).map(On::Key),
        "time" => read_time(reader, table, &remedy),
        _ => Ok(On::Every),
    };
    others?;
    read
}

fn read_time(reader: &mut Reader, table: &Table<'_>, remedy: &str) -> Read<On> {
    let moment = || duration(Duration::ZERO..=MOMENT_MAX);
    let from = reader.required(table, "from", remedy, moment());
    let to = reader.required(table, "to", remedy, moment());
    let (from, to) = (from?, to?);
    if from >= to {
        return Err(reader.refuse(table, "to", "must be later than from", "swap them"));
    }
    Ok(On::Time { from, to })
}

fn pattern(value: &Value) -> Checked<glob::Pattern> {
    let remedy = "write for example \"*:case-104\"";
    glob::Pattern::new(&text(value)?)
        .map_err(|error| Wrong::new(format!("must be a pattern of keys ({error})"), remedy))
}

fn read_what(reader: &mut Reader, table: &Table<'_>) -> Read<What> {
    let remedy = "write for example fault = \"lose_reply\"";
    let check = choice(FAULTS, |(fault, _)| fault, &[]);
    let (fault, takes) = reader.required(table, "fault", remedy, check)?;
    let mut others = vec!["delay", "retry_after"];
    others.retain(|key| takes != Some(*key));
    let others = reader.none_of(table, &others, &format!("with fault = \"{fault}\""));
    let delay = duration(Duration::ZERO..=DELAY_MAX);
    let remedy = format!("fault = \"{fault}\" needs a delay, such as delay = \"2s\"");
    let read = match fault {
        "late" => reader.required(table, "delay", &remedy, delay).map(What::Late),
        "slow" => reader.required(table, "delay", &remedy, delay).map(What::Slow),
        "throttle" => {
            let retry_after = duration(Duration::ZERO..=MOMENT_MAX);
            reader.optional(table, "retry_after", retry_after).map(What::Throttle)
        }
        "unreachable" => Ok(What::Unreachable),
        "lose_reply" => Ok(What::LoseReply),
        "server_error" => Ok(What::ServerError),
        "reject" => Ok(What::Reject),
        "conflict" => Ok(What::Conflict),
        "unauthorised" => Ok(What::Unauthorised),
        "locked_out" => Ok(What::LockedOut),
        "malformed" => Ok(What::Malformed),
        "crash_before" => Ok(What::CrashBefore),
        _ => Ok(What::CrashAfter),
    };
    others?;
    read
}
