//! Logs: one record a line, on standard error.
//!
//! Every record has an `event`, which is its stable name. The fields are the
//! same everywhere: `operation.key`, `operation.type`, `attempt.number`,
//! `receiver.name`, `outcome`, `decision`, `error.code`, `http.status`,
//! `duration_ms`. Payloads are never logged.

use crate::plain;
use crate::text_enum::text_enum;
use anstyle::Style;
use serde_json::Value;
use std::fmt::Debug;
use std::io::{IsTerminal, Write};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The longest field, in characters before anything is escaped.
const FIELD_CHARS: usize = 500;
/// The longest error, since a refused configuration has many problems, and the
/// longest receipt, which may be kept nowhere else.
const LONG_CHARS: usize = 3_000;
/// A record of JSON that is no longer than this is left as it is.
const RECORD_BYTES: usize = 8 * 1024;

text_enum! {
    /// How log records look.
    pub enum Format {
        /// Text on a terminal, JSON elsewhere.
        Auto = "auto",
        /// One line of text.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

text_enum! {
    /// The least important record that is written.
    pub enum Level {
        /// Only what needs a person.
        Error = "error",
        /// And what may need one.
        Warn = "warn",
        /// And what happened.
        Info = "info",
        /// And how.
        Debug = "debug",
        /// And everything else.
        Trace = "trace",
    }
}

/// What to log, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How records look.
    pub format: Format,
    /// Which are written.
    pub level: Level,
}

/// Changes what is logged while the program runs.
#[derive(Clone, Debug)]
pub struct Handle {
    filter: reload::Handle<LevelFilter, Registry>,
}

impl Handle {
    /// From here on, records of this level and above.
    pub fn set_level(&self, level: Level) {
        if let Err(error) = self.filter.modify(|filter| *filter = level.into()) {
            tracing::warn!(event = "log_level_kept", error = %error, "the log level stays");
        }
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// Starts to log. Only the first call of a process counts.
pub fn start(settings: Settings) -> Handle {
    let terminal = std::io::stderr().is_terminal();
    let text = match settings.format {
        Format::Auto => terminal,
        Format::Text => true,
        Format::Json => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (filter, handle) = reload::Layer::new(LevelFilter::from(settings.level));
    let layer = if text {
        let layer = fmt::layer().with_writer(std::io::stderr).with_target(false);
        layer.with_ansi(colour).fmt_fields(format::debug_fn(write_field).delimited(" ")).boxed()
    } else {
        fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_target(false)
            .with_writer(|| JsonLines(std::io::stderr()))
            .boxed()
    };
    // The filter lies below the layer, so that it holds for dependencies too.
    drop(tracing_subscriber::registry().with(filter).with(layer).try_init());
    Handle { filter: handle }
}

/// One field in a line of text.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let value = cut(field.name(), format!("{value:?}"));
    if field.name() == "message" {
        return write!(writer, "{}", plain::line(&value));
    }
    // Not everything that comes from outside is quoted by whoever logs it.
    let quoted = if reads_as_one(&value) { value } else { format!("{value:?}") };
    let value = plain::line(&quoted);
    let dim = if writer.has_ansi_escapes() { Style::new().dimmed() } else { Style::new() };
    write!(writer, "{dim}{field}={dim:#}{value}")
}

/// Whether a value cannot be taken for several fields: it is one word, or quoted.
fn reads_as_one(value: &str) -> bool {
    let inside = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inside {
        Some(inside) => {
            let mut escaped = false;
            let closes = |c| {
                let bare = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                bare
            };
            !inside.chars().any(closes) && !escaped
        }
        None => !value.contains(|c: char| c.is_whitespace() || c == '=' || c == '"'),
    }
}

/// The text of a field, cut so that the record fits into one line of the journal,
/// whatever is escaped in it. What is cut can be read in the database.
fn cut(field: &str, mut text: String) -> String {
    let most = if matches!(field, "error" | "receipt") { LONG_CHARS } else { FIELD_CHARS };
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The same record with its fields cut, if it is long.
fn shortened(record: &str) -> Option<String> {
    if record.len() <= RECORD_BYTES {
        return None;
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_str(record) else { return None };
    for (name, value) in &mut fields {
        if let Value::String(text) = value {
            *text = cut(name, std::mem::take(text));
        }
    }
    Some(format!("{}\n", Value::Object(fields)))
}

/// Writes records of JSON, in which nothing can steer a terminal.
struct JsonLines<W>(W);

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        // A record comes in one piece, and is text.
        let text = String::from_utf8_lossy(record);
        let safe = plain::json(shortened(&text).as_deref().unwrap_or(&text));
        self.0.write_all(safe.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_could_pass_for_several_fields_is_quoted() {
        for one in ["sent", "harbor:create-followup:v1:case-104", "7", "\"a b\"", "\"a\\\"b\""] {
            assert!(reads_as_one(one), "{one}");
        }
        for several in
            ["a b", "a=b", "a\"", "\"a\" b=\"c\"", "\"a\\\\\" b=\"c\"", "\"a\\\"", "a\u{a0}b"]
        {
            assert!(!reads_as_one(several), "{several}");
        }
    }

    #[test]
    fn a_long_record_is_cut_and_stays_one_object() {
        let hostile = "\u{e0001}\n\u{202e}é\"".repeat(50_000);
        let fields =
            serde_json::json!({ "event": "x", "error": hostile, "operation.key": hostile });
        let record = format!("{fields}\n");
        let mut written = Vec::new();
        JsonLines(&mut written).write_all(record.as_bytes()).unwrap();
        assert!(written.len() < 48 * 1024, "journald breaks it: {}", written.len());
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.lines().count(), 1);
        let read: Value = serde_json::from_str(&text).unwrap();
        let chars = |field: &str| read[field].as_str().map(|text| text.chars().count());
        assert_eq!((chars("error"), chars("event")), (Some(LONG_CHARS + 1), Some(1)));
        assert_eq!(chars("operation.key"), Some(FIELD_CHARS + 1));
    }
}
