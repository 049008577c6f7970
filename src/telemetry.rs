//! Logs: one record a line, on standard error.
//!
//! Every record has an `event`, which is its stable name. The fields are the
//! same everywhere: `operation.key`, `operation.type`, `attempt.number`,
//! `receiver.name`, `outcome`, `decision`, `error.code`, `http.status`,
//! `duration_ms`. Payloads are never logged.

use crate::plain;
use crate::text_enum::text_enum;
use anstyle::Style;
use std::fmt::Debug;
use std::io::{IsTerminal, Write};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

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

/// One field in a line of text. Not every error quotes what comes from outside.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let value = plain::line(&format!("{value:?}"));
    if field.name() == "message" {
        return write!(writer, "{value}");
    }
    let dim = if writer.has_ansi_escapes() { Style::new().dimmed() } else { Style::new() };
    write!(writer, "{dim}{field}={dim:#}{value}")
}

/// Writes records of JSON, in which nothing can steer a terminal.
struct JsonLines<W>(W);

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, record: &[u8]) -> std::io::Result<usize> {
        // A record comes in one piece, and is text.
        let safe = plain::json(&String::from_utf8_lossy(record));
        self.0.write_all(safe.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
