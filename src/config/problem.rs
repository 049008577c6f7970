//! What is wrong with a configuration: everything at once, each with its place.

use super::show;
use std::collections::BTreeMap;
use std::fmt;

/// Everything that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "the configuration cannot be used: {one}"),
            many => {
                write!(f, "the configuration cannot be used; {} problems:", many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The file, `environment NAME`, `--set`, or `default`.
    pub source: String,
    /// The line of the file, from 1, where it is known.
    pub line: Option<usize>,
    /// The column of the file, in characters from 1, of a fault of syntax.
    pub column: Option<usize>,
    /// The path of the key; empty where no key is concerned.
    pub path: String,
    /// The value, shortened; `None` where there is none or it may be a secret.
    pub value: Option<String>,
    /// What is wrong, and what is allowed.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}; {}", self.problem, self.remedy)
    }
}

/// The problems found so far, and what is needed to say where they are.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    file: Option<String>,
    lines: BTreeMap<String, usize>,
}

impl Problems {
    /// From now on, keys of this file are shown with their lines.
    pub(super) fn know_lines(&mut self, file: String, lines: BTreeMap<String, usize>) {
        self.file = Some(file);
        self.lines = lines;
    }

    /// Adds a problem of a key. No origin means the defaults.
    pub(super) fn add(
        &mut self,
        origin: Option<&str>,
        path: &str,
        value: Option<&str>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        // What a table of the file lacks has no origin of its own.
        let origin = origin.or_else(|| self.file.as_deref().filter(|_| self.holds_table_of(path)));
        let line = origin.and_then(|origin| self.line(origin, path));
        self.found.push(Problem {
            source: show::line(origin.unwrap_or("default")),
            line,
            column: None,
            path: path.to_owned(),
            value: value.map(show::short),
            problem: problem.into(),
            remedy: remedy.into(),
        });
    }

    /// Adds a problem.
    pub(super) fn push(&mut self, problem: Problem) {
        self.found.push(problem);
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, as an error.
    pub(super) fn into_error(self) -> ConfigError {
        ConfigError { problems: self.found }
    }

    /// Whether the file has the table that a key belongs to.
    fn holds_table_of(&self, path: &str) -> bool {
        path.rsplit_once('.').is_some_and(|(table, _)| self.lines.contains_key(table))
    }

    /// The line of a key, or of the nearest table around it.
    fn line(&self, origin: &str, path: &str) -> Option<usize> {
        if self.file.as_deref() != Some(origin) {
            return None;
        }
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// The path of a key within a table.
pub(super) fn join(table: &str, key: &str) -> String {
    let key = show::name(key);
    if table.is_empty() { key } else { format!("{table}.{key}") }
}
