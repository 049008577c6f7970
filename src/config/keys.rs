//! The keys of a configuration: which there are, what each takes, which come later.

use super::problem::{Problems, join};
use crate::outbox::key::is_name;
use ::config::{Map, Value, ValueKind};

/// What names of receivers and operation types look like.
pub(super) const NAME_FORM: &str = "[a-z][a-z0-9-]{0,39}";

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    /// A text, a duration, or one of several words.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list of plain values.
    List,
    /// A list of tables with these keys.
    Tables(&'static [Key]),
    /// A table with these keys.
    Table(&'static [Key]),
    /// A table of tables with names of the operator's choice, with these keys.
    Named(&'static [Key]),
    /// Nothing in this version.
    Later,
}

/// A key that a table may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Its name; `*` stands for every other name.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) takes: Takes,
}

const fn text(name: &'static str) -> Key {
    Key { name, takes: Takes::Text }
}

const fn integer(name: &'static str) -> Key {
    Key { name, takes: Takes::Integer }
}

const fn number(name: &'static str) -> Key {
    Key { name, takes: Takes::Number }
}

const fn boolean(name: &'static str) -> Key {
    Key { name, takes: Takes::Boolean }
}

const fn list(name: &'static str) -> Key {
    Key { name, takes: Takes::List }
}

const fn table(name: &'static str, keys: &'static [Key]) -> Key {
    Key { name, takes: Takes::Table(keys) }
}

const fn named(name: &'static str, keys: &'static [Key]) -> Key {
    Key { name, takes: Takes::Named(keys) }
}

const fn later(name: &'static str) -> Key {
    Key { name, takes: Takes::Later }
}

/// Every key of a configuration.
pub(super) const ROOT: &[Key] = &[
    text("namespace"),
    table("store", STORE),
    table("server", SERVER),
    table("worker", WORKER),
    table("log", LOG),
    named("receivers", RECEIVER),
    named("operations", OPERATION),
    later("sources"),
    later("drafters"),
    later("review"),
    later("alerts"),
    later("retention"),
    table("reconcile", &[text("every"), text("within")]),
];

const STORE: &[Key] = &[text("url"), text("busy_timeout")];

const SERVER: &[Key] = &[list("listen"), later("allowed_hosts"), later("*")];

const WORKER: &[Key] = &[text("poll_interval"), text("shutdown_grace"), later("lease")];

const LOG: &[Key] = &[text("format"), text("level")];

const RECEIVER: &[Key] = &[
    text("kind"),
    text("timeout"),
    integer("concurrency"),
    text("path"),
    table("behaviour", &[boolean("unique"), text("mode")]),
    Key { name: "faults", takes: Takes::Tables(FAULT) },
    list("program"),
    list("environment"),
    table("contract", CONTRACT),
    table("retry", RETRY),
    table("circuit_breaker", CIRCUIT_BREAKER),
    table("rate_limit", RATE_LIMIT),
    text("base_url"),
    text("connect_timeout"),
    text("ca_file"),
    table("auth", AUTH),
    table("request", REQUEST),
    table("receipt", RECEIPT),
    Key { name: "rules", takes: Takes::Tables(RULE) },
    later("extends"),
    later("look_up"),
];

const AUTH: &[Key] = &[
    table("bearer", SECRET),
    table("basic", &[text("user"), text("file"), text("env")]),
    table("header", &[text("name"), text("file"), text("env")]),
];

const SECRET: &[Key] = &[text("file"), text("env")];

const REQUEST: &[Key] = &[
    text("method"),
    text("path"),
    list("headers"),
    text("body_kind"),
    text("body"),
    text("idempotency_header"),
    text("key_encoding"),
    integer("key_max_length"),
];

const RECEIPT: &[Key] = &[text("pointer"), text("header"), text("pattern")];

const RULE: &[Key] = &[
    text("name"),
    text("status"),
    text("header"),
    text("pointer"),
    text("equals"),
    text("matches"),
    text("outcome"),
];

const FAULT: &[Key] = &[
    text("on"),
    text("fault"),
    integer("n"),
    number("rate"),
    text("match"),
    text("from"),
    text("to"),
    text("delay"),
    text("retry_after"),
];

const CONTRACT: &[Key] = &[
    text("mode"),
    text("window"),
    boolean("atomic"),
    text("settle_delay"),
    text("exists"),
    boolean("same_account"),
    text("verified"),
    later("scope"),
    later("conflict_detected"),
    later("caches_failures"),
    table("look_up", LOOK_UP),
];

const LOOK_UP: &[Key] = &[integer("polls"), text("interval")];

const RETRY: &[Key] = &[
    text("initial"),
    number("multiplier"),
    text("max_interval"),
    list("schedule"),
    integer("max_attempts"),
    text("max_elapsed"),
    text("retry_after_ceiling"),
];

const CIRCUIT_BREAKER: &[Key] = &[integer("failures"), text("open"), text("max_open")];

const RATE_LIMIT: &[Key] = &[integer("count"), text("period"), integer("burst")];

const OPERATION: &[Key] = &[
    integer("version"),
    text("receiver"),
    text("subject"),
    text("schema"),
    list("trim"),
    text("subject_pattern"),
    text("approval_max_age"),
    text("versions"),
    later("ordering"),
    later("marks"),
    later("callback"),
];

/// The key of this name.
pub(super) fn find(keys: &'static [Key], name: &str) -> Option<&'static Key> {
    keys.iter().find(|key| key.name == name && name != "*")
}

/// Takes out of a table, and reports, what this version does not know.
///
/// The values of such keys are never repeated: they may be secrets.
pub(super) fn sift(
    values: &mut Map<String, Value>,
    keys: &'static [Key],
    path: &str,
    origin: Option<&str>,
    problems: &mut Problems,
) {
    for name in sorted(values) {
        let at = join(path, &name);
        let Some(key) = find(keys, &name) else {
            let (problem, remedy) = unknown(keys, &name, path);
            problems.add(origin, &at, None, problem, remedy);
            values.remove(&name);
            continue;
        };
        let inside = values.get_mut(&name).map(|value| &mut value.kind);
        match (key.takes, inside) {
            (Takes::Later, _) => {
                problems.add(origin, &at, None, NOT_YET, "remove it");
                values.remove(&name);
            }
            (Takes::Table(keys), Some(ValueKind::Table(inside))) => {
                sift(inside, keys, &at, origin, problems);
            }
            (Takes::Tables(keys), Some(ValueKind::Array(items))) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let ValueKind::Table(inside) = &mut item.kind {
                        sift(inside, keys, &format!("{at}[{index}]"), origin, problems);
                    }
                }
            }
            (Takes::Named(keys), Some(ValueKind::Table(inside))) => {
                sift_named(inside, keys, &at, origin, problems);
            }
            // What is no table where one belongs is refused when it is read.
            _ => {}
        }
    }
}

fn sift_named(
    values: &mut Map<String, Value>,
    keys: &'static [Key],
    path: &str,
    origin: Option<&str>,
    problems: &mut Problems,
) {
    for name in sorted(values) {
        let at = join(path, &name);
        if !is_name(&name) {
            let problem = format!("the name must match {NAME_FORM}");
            problems.add(origin, &at, None, problem, "choose another name");
            values.remove(&name);
        } else if let Some(ValueKind::Table(inside)) = values.get_mut(&name).map(|v| &mut v.kind) {
            sift(inside, keys, &at, origin, problems);
        }
    }
}

/// What is said of everything that a later version will know.
pub(super) const NOT_YET: &str = "not in this version";

/// What to say of a key that is none of these.
fn unknown(keys: &'static [Key], name: &str, table: &str) -> (String, String) {
    let known = keys.iter().filter(|key| !matches!(key.takes, Takes::Later));
    let known: Vec<&str> = known.map(|key| key.name).collect();
    let near = nearest(name, &known);
    if near.is_none() && keys.iter().any(|key| key.name == "*") {
        return (NOT_YET.to_owned(), "remove it".to_owned());
    }
    let place = if table.is_empty() { "at the top".to_owned() } else { format!("in {table}") };
    let list = format!("{place} there are {}", known.join(", "));
    let remedy = match near {
        Some(near) => format!("did you mean {near}? {list}"),
        None => format!("remove it; {list}"),
    };
    ("unknown key".to_owned(), remedy)
}

/// The word that someone who wrote this one may have meant.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain: String = word.chars().take(64).collect::<String>().to_lowercase().replace('-', "_");
    let near = known.iter().map(|candidate| (distance(&plain, candidate), *candidate));
    let (steps, candidate) = near.min()?;
    (steps <= 2 && steps * 2 < candidate.len()).then_some(candidate)
}

/// How many characters must be added, removed or changed to make one word of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, left) in from.chars().enumerate() {
        let mut diagonal = line;
        let mut before = line + 1;
        for (right, cell) in to.iter().zip(row.iter_mut().skip(1)) {
            let changed = diagonal + usize::from(left != *right);
            diagonal = *cell;
            before = changed.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The names in a table, in order, so that problems come in the same order each time.
pub(super) fn sorted(values: &Map<String, Value>) -> Vec<String> {
    let mut names: Vec<String> = values.keys().cloned().collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_another_word_is_not() {
        let known = ["poll_interval", "shutdown_grace", "url", "n"];
        assert_eq!(nearest("pol_interval", &known), Some("poll_interval"));
        assert_eq!(nearest("poll-interval", &known), Some("poll_interval"));
        assert_eq!(nearest("POLL_INTERVAL", &known), Some("poll_interval"));
        assert_eq!(nearest("uri", &known), Some("url"));
        assert_eq!(nearest("lease", &known), None);
        assert_eq!(nearest("x", &known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("", "abc"), distance("abc", "")), (3, 3));
    }
}
