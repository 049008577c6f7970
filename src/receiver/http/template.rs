//! Templates of a request: texts with `{{ … }}` in them. Pure.
//!
//! A name that is not known is refused when the configuration is read, a field
//! that a payload lacks when the request is made; nothing is left out silently.
//! What a value may do depends on where it lands: in a path and in a form it
//! is percent-encoded, in a header it must be plain ASCII on one line, and in
//! JSON it is put in as a value, so that it cannot change the shape.

use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};
use serde_json::Map;
use std::fmt;
use std::sync::LazyLock;

/// The names that a template may use.
pub const NAMES: &[&str] = &["payload", "key", "encoded_key", "type", "version", "subject"];

/// Where a text lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a path or a query.
    Url,
    /// In a field of a form.
    Form,
    /// In a header.
    Header,
    /// In a body that is plain text, or in a text within JSON.
    Text,
}

/// A text with names in it.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    place: Place,
}

/// A body in JSON, with templates in its texts.
#[derive(Clone, Debug)]
pub struct JsonTemplate(serde_json::Value);

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

impl TemplateError {
    pub(super) fn unfit() -> Self {
        Self("it holds what no header can".to_owned())
    }
}

static URL: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Place::Url));
static FORM: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Place::Form));
static HEADER: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Place::Header));
static TEXT: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Place::Text));

impl Place {
    fn environment(self) -> &'static Environment<'static> {
        match self {
            Self::Url => &URL,
            Self::Form => &FORM,
            Self::Header => &HEADER,
            Self::Text => &TEXT,
        }
    }
}

fn environment(place: Place) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(move |out, _, value| {
        let text = put(place, value).map_err(|why| {
            minijinja::Error::new(ErrorKind::InvalidOperation, format!("a value {why}"))
        })?;
        out.write_str(&text).map_err(minijinja::Error::from)
    });
    environment
}

/// A value as it stands in its place.
fn put(place: Place, value: &Value) -> Result<String, &'static str> {
    let text = match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => value.to_string(),
        ValueKind::Undefined => return Err("is missing"),
        ValueKind::None => return Err("is null, which no text can hold"),
        _ => return Err("is a list or a table, which no text can hold"),
    };
    match place {
        Place::Url if text.is_empty() => Err("is empty, which would change the URL's meaning"),
        Place::Url if matches!(text.as_str(), "." | "..") => Err("would climb in the path"),
        Place::Url | Place::Form => Ok(percent_encoded(&text)),
        Place::Header if text.bytes().any(|byte| !(b' '..=b'~').contains(&byte)) => {
            Err("holds what no header can: control characters, or letters beyond ASCII")
        }
        Place::Header | Place::Text => Ok(text),
    }
}

/// Everything but letters, digits and `-._~` as `%XX`.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if its syntax is wrong, or it uses a name that does not exist.
    pub fn parse(source: &str, place: Place) -> Result<Self, TemplateError> {
        let read = place.environment().template_from_str(source).map_err(|error| told(&error))?;
        known(read.undeclared_variables(false))?;
        Ok(Self { source: source.to_owned(), place })
    }

    /// The text for these values.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if a value is missing or does not fit the place.
    pub fn render(&self, values: &Values) -> Result<String, TemplateError> {
        let environment = self.place.environment();
        environment.render_str(&self.source, &values.0).map_err(|error| told(&error))
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl JsonTemplate {
    /// Reads a body that is JSON before anything is put in.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if it is no JSON, or a text in it is no template.
    pub fn parse(source: &str) -> Result<Self, TemplateError> {
        let value = serde_json::from_str(source)
            .map_err(|error| TemplateError(format!("it is no JSON: {error}")))?;
        check_json(&value)?;
        Ok(Self(value))
    }

    /// The JSON for these values. A text that is one `{{ … }}` and nothing else becomes
    /// the value itself, with its type.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if a value is missing.
    pub fn render(&self, values: &Values) -> Result<serde_json::Value, TemplateError> {
        fill(&self.0, values)
    }

    /// As it was read, always in the same form.
    pub fn source(&self) -> String {
        self.0.to_string()
    }
}

fn check_json(value: &serde_json::Value) -> Result<(), TemplateError> {
    match value {
        serde_json::Value::String(text) => match sole_expression(text) {
            Some(inside) => {
                let read = TEXT.compile_expression(inside).map_err(|error| told(&error))?;
                known(read.undeclared_variables(false))
            }
            None => Template::parse(text, Place::Text).map(|_| ()),
        },
        serde_json::Value::Array(items) => items.iter().try_for_each(check_json),
        serde_json::Value::Object(fields) => fields.values().try_for_each(check_json),
        _ => Ok(()),
    }
}

fn fill(value: &serde_json::Value, values: &Values) -> Result<serde_json::Value, TemplateError> {
    Ok(match value {
        serde_json::Value::String(text) => match sole_expression(text) {
            Some(inside) => {
                let read = TEXT.compile_expression(inside).map_err(|error| told(&error))?;
                let found = read.eval(&values.0).map_err(|error| told(&error))?;
                if found.is_undefined() {
                    return Err(TemplateError(format!("{inside} is missing")));
                }
                serde_json::to_value(&found).map_err(|error| TemplateError(error.to_string()))?
            }
            None => Template { source: text.clone(), place: Place::Text }.render(values)?.into(),
        },
        serde_json::Value::Array(items) => {
            items.iter().map(|item| fill(item, values)).collect::<Result<Vec<_>, _>>()?.into()
        }
        serde_json::Value::Object(fields) => {
            let field = |(name, value): (&String, _)| Ok((name.clone(), fill(value, values)?));
            fields.iter().map(field).collect::<Result<Map<_, _>, TemplateError>>()?.into()
        }
        plain => plain.clone(),
    })
}

/// What stands between the braces, if the text is one expression and nothing else.
fn sole_expression(text: &str) -> Option<&str> {
    let inside = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    (!inside.contains("{{") && !inside.contains("}}")).then_some(inside)
}

fn known(names: impl IntoIterator<Item = String>) -> Result<(), TemplateError> {
    let mut unknown: Vec<String> =
        names.into_iter().filter(|name| !NAMES.contains(&name.as_str())).collect();
    unknown.sort();
    match unknown.first() {
        None => Ok(()),
        Some(name) => {
            let names = NAMES.join(", ");
            Err(TemplateError(format!("there is no {name}; there are {names}")))
        }
    }
}

fn told(error: &minijinja::Error) -> TemplateError {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    TemplateError(match error.line() {
        Some(line) if line > 1 => format!("{what} (line {line})"),
        _ => what,
    })
}

/// What stands for the names.
#[derive(Clone, Debug)]
pub struct Values(Value);

impl Values {
    /// Of an operation and its canonical payload.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if the payload is no JSON.
    pub fn of(
        key: &crate::outbox::key::OperationKey,
        encoded_key: &str,
        payload: &str,
    ) -> Result<Self, TemplateError> {
        let payload: serde_json::Value = serde_json::from_str(payload)
            .map_err(|error| TemplateError(format!("the payload is no JSON: {error}")))?;
        Ok(Self(Value::from(Serde(serde_json::json!({
            "payload": payload,
            "key": key.as_str(),
            "encoded_key": encoded_key,
            "type": key.kind(),
            "version": key.version(),
            "subject": key.subject(),
        })))))
    }
}
