//! What a receiver of kind `http` needs.

use super::check::{Checked, choice, duration, integer, list, text};
use super::duration::{hours, ms, show};
use super::read::{Read, Reader, Reported, Table, Wrong};
use crate::outbox::key::is_name;
use crate::receiver::http::{
    Address, Auth, Body, JsonTemplate, KeyEncoding, Part, Place, Reading, Receipt, Reference,
    RequestTemplate, Rule, RuleOutcome, Settings, Statuses, Template,
};
use ::config::{Value, ValueKind};
use hyper::Method;
use hyper::header::HeaderName;
use regex::Regex;
use std::path::PathBuf;
use std::time::Duration;

/// The keys of this kind alone.
pub(super) const KEYS: &[&str] =
    &["base_url", "connect_timeout", "ca_file", "auth", "request", "receipt", "rules"];
const METHODS: &[&str] = &["POST", "PUT", "PATCH", "GET", "DELETE"];
const BODY_KINDS: &[&str] = &["payload", "json", "form", "text", "none"];
/// The longest that a connection may take, unless it is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What the connection, the body and `auth` decide is not for `headers`.
const NOT_FREE: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "authorization",
    "proxy-authorization",
    "accept-encoding",
    "cookie",
];

/// Reads everything but the `connect_timeout`.
pub(super) fn read(reader: &mut Reader, table: &Table<'_>) -> Read<Settings> {
    let remedy = "write for example base_url = \"https://crm.example.com/api\"";
    let address = reader.required(table, "base_url", remedy, address);
    let ca_file = reader.optional(table, "ca_file", text);
    let auth = read_auth(reader, table);
    let request = read_request(reader, table);
    let receipt = read_receipt(reader, table);
    let rules = read_rules(reader, table);
    Ok(Settings {
        address: address?,
        connect_timeout: CONNECT_TIMEOUT,
        ca_file: ca_file?.map(PathBuf::from),
        auth: auth?,
        request: request?,
        reading: Reading { receipt: receipt?, rules: rules? },
    })
}

/// Reads the `connect_timeout`, which must end before the call does: else nobody could
/// tell that nothing was sent.
pub(super) fn with_connect_timeout(
    reader: &mut Reader,
    table: &Table<'_>,
    settings: Settings,
    timeout: Duration,
) -> Read<Settings> {
    let default = CONNECT_TIMEOUT.min(timeout / 2);
    let shown = format!("\"{}\"", show(default));
    let check = duration(ms(1)..=hours(1));
    let read = reader.or(table, "connect_timeout", (&shown, default), check)?;
    if read >= timeout {
        let problem = format!("must be shorter than the timeout of {}", show(timeout));
        return Err(reader.refuse(table, "connect_timeout", problem, "write a shorter one"));
    }
    Ok(Settings { connect_timeout: read, ..settings })
}

fn address(value: &Value) -> Checked<Address> {
    let url = text(value).map_err(Wrong::hidden)?;
    let remedy = "write for example \"https://crm.example.com/api\"";
    Address::parse(&url).map_err(|why| Wrong::new(why, remedy).hidden())
}

fn read_auth(reader: &mut Reader, receiver: &Table<'_>) -> Read<Option<Auth>> {
    let Some(table) = reader.table(receiver, "auth")? else { return Ok(None) };
    let (mut read, mut kinds) = (Err(Reported), 0);
    if let Some(table) = reader.table(&table, "bearer")? {
        kinds += 1;
        read = reference(reader, &table).map(Auth::Bearer);
    }
    if let Some(table) = reader.table(&table, "basic")? {
        kinds += 1;
        let user = reader.required(&table, "user", "name the user", user);
        let password = reference(reader, &table);
        read = user.and_then(|user| Ok(Auth::Basic { user, password: password? }));
    }
    if let Some(table) = reader.table(&table, "header")? {
        kinds += 1;
        let name = reader.required(&table, "name", "write for example \"X-Api-Key\"", header);
        let value = reference(reader, &table);
        read = name.and_then(|name| Ok(Auth::Header { name, value: value? }));
    }
    if kinds != 1 {
        let problem = "must hold one of bearer, basic and header";
        return Err(reader.refuse(receiver, "auth", problem, "write for example bearer.file = …"));
    }
    read.map(Some)
}

/// A secret, by reference only.
fn reference(reader: &mut Reader, table: &Table<'_>) -> Read<Reference> {
    let file = reader.optional(table, "file", text)?;
    let variable = reader.optional(table, "env", variable)?;
    match (file, variable) {
        (Some(file), None) => Ok(Reference::File(PathBuf::from(file))),
        (None, Some(name)) => Ok(Reference::Environment(name)),
        _ => {
            let problem = "one of file and env must say where the secret is";
            Err(reader.refuse(table, "file", problem, "write one; the secret itself goes nowhere"))
        }
    }
}

fn user(value: &Value) -> Checked<String> {
    let user = text(value)?;
    if user.contains(':') || user.chars().any(char::is_control) {
        return Err(Wrong::new("must hold no colon and no control characters", "mend it").hidden());
    }
    Ok(user)
}

fn variable(value: &Value) -> Checked<String> {
    super::receivers::variable(value)
}

fn header(value: &Value) -> Checked<HeaderName> {
    let name = text(value)?;
    HeaderName::try_from(name)
        .map_err(|_| Wrong::new("must be the name of a header", "write for example \"X-Api-Key\""))
}

fn read_request(reader: &mut Reader, receiver: &Table<'_>) -> Read<RequestTemplate> {
    let Some(table) = reader.table(receiver, "request")? else {
        let remedy = "write [receivers.NAME.request] with path = \"/tasks\"";
        return Err(reader.refuse(receiver, "request", "missing", remedy));
    };
    let method = reader.or(&table, "method", ("\"POST\"", "POST"), choice(METHODS, |m| m, &[]));
    let remedy = "write for example path = \"/tasks\"";
    let path = reader.required(&table, "path", remedy, path);
    let headers = reader.or(&table, "headers", ("[]", Vec::new()), list(header_line));
    let body = read_body(reader, &table);
    let idempotency_header = reader.optional(&table, "idempotency_header", header);
    let encoding = choice(KeyEncoding::ALL, KeyEncoding::as_str, &[]);
    let key_encoding = reader.or(&table, "key_encoding", ("\"raw\"", KeyEncoding::Raw), encoding);
    let length = integer::<u16>(1..=1000);
    let key_max_length = reader.or(&table, "key_max_length", ("255", 255), length);
    let (headers, idempotency_header) = (headers?, idempotency_header?);
    let mut seen = Vec::new();
    for name in headers.iter().map(|(name, _)| name).chain(&idempotency_header) {
        if seen.contains(&name) || NOT_FREE.contains(&name.as_str()) {
            let problem = format!("{name} stands there twice, or is not free to choose");
            return Err(reader.refuse(&table, "headers", problem, "remove it"));
        }
        seen.push(name);
    }
    Ok(RequestTemplate {
        method: method?.parse::<Method>().map_err(|_| Reported)?,
        path: path?,
        headers,
        body: body?,
        idempotency_header,
        key_encoding: key_encoding?,
        key_max_length: usize::from(key_max_length?),
    })
}

fn path(value: &Value) -> Checked<Template> {
    let path = text(value)?;
    if !path.starts_with('/') || path.contains('#') {
        let must = "must begin with a slash and hold no fragment";
        return Err(Wrong::new(must, "write for example \"/tasks/{{ subject }}\""));
    }
    template(&path, Place::Url)
}

fn template(source: &str, place: Place) -> Checked<Template> {
    Template::parse(source, place).map_err(|error| {
        Wrong::new(format!("is no template: {error}"), "write names as {{ payload.title }}")
    })
}

/// `Name: template`, as on the wire.
fn header_line(value: &Value) -> Checked<(HeaderName, Template)> {
    let wrong = || Wrong::new("must be \"Name: value\"", "write for example \"Prefer: minimal\"");
    let line = text(value)?;
    let (name, source) = line.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::try_from(name).map_err(|_| wrong())?;
    Ok((name, template(source.trim(), Place::Header)?))
}

fn read_body(reader: &mut Reader, table: &Table<'_>) -> Read<Body> {
    let kinds = choice(BODY_KINDS, |kind| kind, &[]);
    let kind = reader.or(table, "body_kind", ("\"payload\"", "payload"), kinds)?;
    if matches!(kind, "payload" | "none") {
        reader.none_of(table, &["body"], &format!("with body_kind = \"{kind}\""))?;
        return Ok(if kind == "none" { Body::None } else { Body::Payload });
    }
    let remedy = format!("body_kind = \"{kind}\" needs a body");
    reader.required(table, "body", &remedy, |value| {
        let source = text(value)?;
        let wrong = |why: String| {
            Wrong::new(format!("is no template of this kind: {why}"), "mend it, see docs/http.md")
        };
        match kind {
            "json" => JsonTemplate::parse(&source)
                .map(Body::Json)
                .map_err(|error| wrong(error.to_string())),
            "form" => form(&source),
            _ => template(&source, Place::Text).map(Body::Text),
        }
    })
}

/// Lines of `name = template`.
fn form(source: &str) -> Checked<Body> {
    let wrong =
        || Wrong::new("must be lines of name = value", "write for example \"To = {{ subject }}\"");
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
    let fields = lines.map(|line| {
        let (name, source) = line.split_once('=').ok_or_else(wrong)?;
        Ok((name.trim().to_owned(), template(source.trim(), Place::Form)?))
    });
    let fields: Vec<_> = fields.collect::<Checked<_>>()?;
    if fields.is_empty() { Err(wrong()) } else { Ok(Body::Form(fields)) }
}

fn read_receipt(reader: &mut Reader, receiver: &Table<'_>) -> Read<Option<Receipt>> {
    let Some(table) = reader.table(receiver, "receipt")? else { return Ok(None) };
    let part = read_part(reader, &table)?;
    let pattern = reader.optional(&table, "pattern", pattern)?;
    if part == Part::Body && pattern.is_none() {
        let problem = "says nowhere where the id is";
        let remedy = "write pointer = \"/id\", header = \"Location\" or a pattern";
        return Err(reader.refuse(receiver, "receipt", problem, remedy));
    }
    Ok(Some(Receipt { part, pattern }))
}

fn read_part(reader: &mut Reader, table: &Table<'_>) -> Read<Part> {
    let pointer = reader.optional(table, "pointer", pointer);
    let header = reader.optional(table, "header", header);
    match (pointer?, header?) {
        (Some(_), Some(_)) => {
            Err(reader.refuse(table, "header", "senseless beside a pointer", "remove one"))
        }
        (Some(pointer), None) => Ok(Part::Pointer(pointer)),
        (None, Some(header)) => Ok(Part::Header(header)),
        (None, None) => Ok(Part::Body),
    }
}

fn pointer(value: &Value) -> Checked<String> {
    let pointer = text(value)?;
    if !pointer.starts_with('/') {
        return Err(Wrong::new("must be a JSON pointer", "write for example \"/data/id\""));
    }
    Ok(pointer)
}

fn pattern(value: &Value) -> Checked<Regex> {
    Regex::new(&text(value)?).map_err(|_| {
        Wrong::new("must be a regular expression", "see the syntax of the regex crate")
    })
}

fn read_rules(reader: &mut Reader, receiver: &Table<'_>) -> Read<Vec<Rule>> {
    let mut read = Vec::new();
    for table in reader.tables(receiver, "rules")? {
        read.push(read_rule(reader, &table));
    }
    read.into_iter().collect()
}

fn read_rule(reader: &mut Reader, table: &Table<'_>) -> Read<Rule> {
    let name = reader.optional(table, "name", rule_name);
    let status = reader.optional(table, "status", |value| {
        let remedy = "write for example \"409\", \"4xx\", \"500-504\" or \"409, 412\"";
        let ValueKind::String(text) = &value.kind else {
            return Err(Wrong::new("must be a text", remedy));
        };
        Statuses::parse(text).ok_or_else(|| Wrong::new("must be statuses of HTTP", remedy))
    });
    let part = read_part(reader, table);
    let equals = reader.optional(table, "equals", |value| match &value.kind {
        ValueKind::String(text) => Ok(text.clone()),
        _ => Err(Wrong::new("must be a text", "write it in quotes; false is \"false\"")),
    });
    let matches = reader.optional(table, "matches", pattern);
    let outcomes = choice(RuleOutcome::ALL, RuleOutcome::as_str, &[]);
    let remedy = "write for example outcome = \"already_exists\"";
    let outcome = reader.required(table, "outcome", remedy, outcomes);
    let rule = Rule {
        name: name?,
        status: status?,
        part: part?,
        equals: equals?,
        matches: matches?,
        outcome: outcome?,
    };
    let says_nothing = rule.status.is_none() && rule.part == Part::Body;
    if says_nothing && rule.equals.is_none() && rule.matches.is_none() {
        let problem = "matches every answer";
        return Err(reader.refuse(table, "status", problem, "say which answers it is about"));
    }
    Ok(rule)
}

fn rule_name(value: &Value) -> Checked<String> {
    let name = text(value)?;
    if !is_name(&name) {
        return Err(Wrong::new("must be a name, [a-z][a-z0-9-]{0,39}", "choose another"));
    }
    Ok(name)
}
