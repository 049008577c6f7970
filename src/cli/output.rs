//! What commands print: text for people, JSON for programs.

use crate::outbox::state::State;
use crate::plain;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::io::{self, Write};

pub(super) use crate::plain::plain;

/// Where a command prints to, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// JSON instead of text.
    pub(crate) json: bool,
    /// No hints, no progress.
    pub(crate) quiet: bool,
}

impl Output {
    /// Prints the result: the object as JSON, or the text.
    pub(crate) fn result(self, object: &impl Serialize, text: &str) -> io::Result<()> {
        if self.json {
            let line = serde_json::to_string(object)?;
            print(&plain::json(&line))
        } else {
            print(text.trim_end())
        }
    }

    /// Tells a person something beside the result, on standard error.
    pub(crate) fn hint(self, text: &str) {
        if !self.quiet && !self.json {
            note(text);
        }
    }

    /// Tells a person what to mind, whatever the form of the result.
    pub(crate) fn warn(self, text: &str) {
        if !self.quiet {
            note(&format!("warning: {}", plain::line(text)));
        }
    }
}

/// Prints to standard output. A reader that has gone away is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Prints to standard error; there is nowhere left to report a failure to.
pub(crate) fn note(text: &str) {
    drop(writeln!(anstream::stderr().lock(), "{text}"));
}

/// A state in its colour; the colour is dropped where there is no terminal.
pub(crate) fn state(state: State, shown: &str) -> String {
    let colour = match state {
        State::Pending => AnsiColor::Yellow,
        State::Sent => AnsiColor::Green,
        State::Blocked => AnsiColor::Red,
        State::Withdrawn => AnsiColor::BrightBlack,
    };
    let style = Style::new().fg_color(Some(colour.into()));
    format!("{style}{shown}{style:#}")
}

/// Columns under a heading, each as wide as its widest cell.
///
/// `paint` is given each cell after it has been padded.
pub(crate) fn table(
    heading: &[&str],
    rows: &[Vec<String>],
    paint: impl Fn(usize, usize, String) -> String,
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    for (column, name) in heading.iter().enumerate() {
        text.push_str(&format!("{name:<width$}  ", width = widths[column]));
    }
    let mut lines = vec![text.trim_end().to_owned()];
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let padded = if last {
                cell.clone()
            } else {
                format!("{cell:<width$}  ", width = widths[column])
            };
            line.push_str(&paint(number, column, padded));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}
