//! The configuration file: from TOML to values that know where they stand.
//!
//! The conversion is ours, since `config` would take a date for a text, and
//! parts of a quoted key for a path.

use super::keys::{ROOT, sift};
use super::problem::{Problem, Problems, join};
use super::show;
use ::config::{Map, Value, ValueKind};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file and checks its keys. `None` if it cannot be used at all.
pub(super) fn load(path: &Path, problems: &mut Problems) -> Option<Map<String, Value>> {
    let name = path.display().to_string();
    match read(path) {
        Ok(text) => parse(&text, Some(&name), problems),
        Err((problem, remedy)) => {
            problems.add(Some(&name), "", None, problem, remedy);
            None
        }
    }
}

/// Reads a text file of sensible size; else says what is wrong and what to do.
pub(super) fn read(path: &Path) -> Result<String, (String, String)> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            ("there is no such file".to_owned(), "create it, or name another one".to_owned())
        }
        _ => (format!("it cannot be read: {error}"), "mend it, or name another one".to_owned()),
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        let problem = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err((problem, "make it shorter, or name another one".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        (format!("it is no UTF-8 from byte {at} on"), "save it as UTF-8".to_owned())
    })
}

/// Parses a file's text and checks its keys. No origin means the defaults.
pub(super) fn parse(
    text: &str,
    origin: Option<&str>,
    problems: &mut Problems,
) -> Option<Map<String, Value>> {
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            problems.push(syntax(text, origin, &error));
            return None;
        }
    };
    let mut conversion = Conversion::new(origin);
    let mut values = conversion.table(table, "");
    if let Some(origin) = origin {
        let starts = line_starts(text);
        let line = |offset: usize| starts.partition_point(|start| *start <= offset);
        let lines: BTreeMap<String, usize> =
            conversion.places.into_iter().map(|(path, offset)| (path, line(offset))).collect();
        problems.know_lines(origin.to_owned(), lines);
    }
    for (path, problem) in conversion.odd {
        problems.add(origin, &path, None, problem, "write it as the key expects");
    }
    sift(&mut values, ROOT, "", origin, problems);
    Some(values)
}

/// A fault of syntax. The line itself is not repeated: it may hold anything.
fn syntax(text: &str, origin: Option<&str>, error: &toml::de::Error) -> Problem {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or(text);
    let (line, column) = match before.rsplit_once('\n') {
        Some((above, start)) => (above.matches('\n').count() + 2, start.chars().count() + 1),
        None => (1, before.chars().count() + 1),
    };
    Problem {
        source: show::line(origin.unwrap_or("default")),
        line: Some(line),
        column: Some(column),
        path: String::new(),
        value: None,
        problem: format!("this is no TOML: {}", show::short(&show::line(error.message()))),
        remedy: "mend the syntax".to_owned(),
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    let after = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(after).collect()
}

/// A value written in TOML's inline syntax; `None` if it is none.
pub(super) fn inline(text: &str, origin: &str) -> Option<Value> {
    let value = DeValue::parse(text).ok()?.into_inner();
    let mut conversion = Conversion::new(Some(origin));
    let value = conversion.value(value, "");
    conversion.odd.is_empty().then_some(value)
}

/// Turns what the TOML parser gives into values, and keeps what it meets on the way.
struct Conversion {
    origin: Option<String>,
    /// Where each key begins, in bytes.
    places: Vec<(String, usize)>,
    /// Values that no key takes.
    odd: Vec<(String, &'static str)>,
}

impl Conversion {
    fn new(origin: Option<&str>) -> Self {
        Self { origin: origin.map(str::to_owned), places: Vec::new(), odd: Vec::new() }
    }

    fn table(&mut self, table: DeTable<'_>, path: &str) -> Map<String, Value> {
        let mut values = Map::new();
        for (key, value) in table {
            let at = join(path, key.get_ref());
            self.places.push((at.clone(), key.span().start));
            let value = self.value(value.into_inner(), &at);
            values.insert(key.into_inner().into_owned(), value);
        }
        values
    }

    fn value(&mut self, value: DeValue<'_>, path: &str) -> Value {
        let kind = match value {
            DeValue::String(text) => ValueKind::String(text.into_owned()),
            DeValue::Boolean(yes) => ValueKind::Boolean(yes),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => ValueKind::I64(number),
                    Err(_) => self.odd(path, "the number is beyond 64 bits"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => ValueKind::Float(number),
                Ok(_) | Err(_) => self.odd(path, "the number is not finite"),
            },
            DeValue::Datetime(_) => self.odd(path, "no key takes a date or a time of day"),
            DeValue::Array(items) => {
                let items = items.into_iter().enumerate().map(|(index, item)| {
                    let at = format!("{path}[{index}]");
                    self.places.push((at.clone(), item.span().start));
                    self.value(item.into_inner(), &at)
                });
                ValueKind::Array(items.collect())
            }
            DeValue::Table(table) => ValueKind::Table(self.table(table, path)),
        };
        Value::new(self.origin.as_ref(), kind)
    }

    fn odd(&mut self, path: &str, problem: &'static str) -> ValueKind {
        self.odd.push((path.to_owned(), problem));
        ValueKind::Nil
    }
}
