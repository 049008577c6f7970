//! The strict reader of the merged tree.
//!
//! Values are taken as they stand: nothing is converted from one type to
//! another. What is wrong goes into the list of problems, and reading goes on.

use super::Shown;
use super::layers::{ENVIRONMENT, FLAG};
use super::problem::{Problems, join};
use super::show;
use ::config::{Map, Value, ValueKind};

/// What was read, or the word that its problem is in the list.
pub(super) type Read<T> = Result<T, Reported>;

/// The problem is in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// What to do where a key is missing that usually has a default.
pub(super) const SET: &str = "set it";

/// Where someone may have written a secret, though none belongs there: such values are
/// never repeated.
const SECRETIVE: &[&str] = &["auth", "base_url", "request", "headers", "body"];

/// Why a value is refused.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Where in the value, such as `[2]`; empty for the whole.
    at: String,
    /// The part that is wrong, if not the whole.
    part: Option<String>,
    /// It may hold a secret.
    hidden: bool,
    /// What is wrong, and what is allowed.
    problem: String,
    /// What to do.
    remedy: String,
}

impl Wrong {
    /// A value is refused as a whole.
    pub(super) fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            at: String::new(),
            part: None,
            hidden: false,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// The value is not to be repeated.
    #[must_use]
    pub(super) fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    /// Something else would be allowed too.
    #[must_use]
    pub(super) fn or(self, other: &str) -> Self {
        Self { problem: format!("{}; or {other}", self.problem), ..self }
    }

    /// The same, of an item of a list.
    #[must_use]
    pub(super) fn of_item(self, index: usize, item: &Value) -> Self {
        let part = self.part.unwrap_or_else(|| show::toml(item));
        Self { at: format!("[{index}]{}", self.at), part: Some(part), ..self }
    }
}

/// A table of the merged tree.
#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    path: String,
    values: &'a Map<String, Value>,
    /// Where it comes from itself; tables that were merged come from nowhere.
    origin: Option<&'a str>,
    /// Whether its values are listed one by one, or as part of a list that they stand in.
    listed: bool,
}

impl<'a> Table<'a> {
    /// The whole tree.
    pub(super) fn root(values: &'a Map<String, Value>) -> Self {
        Self { path: String::new(), values, origin: None, listed: true }
    }

    /// Whether someone gave the key a value; a default does not count.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| origin(value).is_some())
    }

    /// The keys of a table within, in order; `None` if it is no table.
    pub(super) fn keys_of(&self, key: &str) -> Option<Vec<String>> {
        match &self.values.get(key)?.kind {
            ValueKind::Table(values) => Some(super::keys::sorted(values)),
            _ => None,
        }
    }

    /// Whether it lies in a table of this name, or is one.
    fn is_within(&self, name: &str) -> bool {
        self.path.split('.').any(|part| part == name)
    }

    /// Its keys, in order.
    pub(super) fn keys(&self) -> Vec<String> {
        super::keys::sorted(self.values)
    }
}

/// Reads tables, and keeps the problems and the values in effect.
#[derive(Debug)]
pub(super) struct Reader {
    /// What is wrong.
    pub(super) problems: Problems,
    /// What is in effect.
    pub(super) shown: Vec<Shown>,
}

impl Reader {
    /// A reader that goes on with a list of problems.
    pub(super) fn new(problems: Problems) -> Self {
        Self { problems, shown: Vec::new() }
    }

    /// A value that may be absent.
    pub(super) fn optional<T>(
        &mut self,
        table: &Table<'_>,
        key: &str,
        check: impl Fn(&Value) -> Result<T, Wrong>,
    ) -> Read<Option<T>> {
        let Some(value) = table.values.get(key) else { return Ok(None) };
        if matches!(value.kind, ValueKind::Nil) {
            return Err(Reported);
        }
        match check(value) {
            Ok(read) => {
                self.show(table, key, show::toml(value), value.origin());
                Ok(Some(read))
            }
            Err(wrong) => {
                let path = join(&table.path, key) + &wrong.at;
                let part = wrong.part.unwrap_or_else(|| show::toml(value));
                let hidden = wrong.hidden || SECRETIVE.contains(&key) || table.is_within("auth");
                let part = (!hidden).then_some(part);
                self.problems.add(
                    origin(value),
                    &path,
                    part.as_deref(),
                    wrong.problem,
                    wrong.remedy,
                );
                Err(Reported)
            }
        }
    }

    /// A value that must be there.
    pub(super) fn required<T>(
        &mut self,
        table: &Table<'_>,
        key: &str,
        remedy: &str,
        check: impl Fn(&Value) -> Result<T, Wrong>,
    ) -> Read<T> {
        self.optional(table, key, check)?.ok_or_else(|| self.refuse(table, key, "missing", remedy))
    }

    /// A value with a default, given as TOML text and as what it means.
    pub(super) fn or<T>(
        &mut self,
        table: &Table<'_>,
        key: &str,
        default: (&str, T),
        check: impl Fn(&Value) -> Result<T, Wrong>,
    ) -> Read<T> {
        if let Some(read) = self.optional(table, key, check)? {
            return Ok(read);
        }
        self.show(table, key, default.0.to_owned(), None);
        Ok(default.1)
    }

    /// A table within a table.
    pub(super) fn table<'a>(&mut self, table: &Table<'a>, key: &str) -> Read<Option<Table<'a>>> {
        let Some(value) = table.values.get(key) else { return Ok(None) };
        let path = join(&table.path, key);
        match &value.kind {
            ValueKind::Table(values) => {
                let origin = value.origin();
                Ok(Some(Table { path, values, origin, listed: table.listed }))
            }
            ValueKind::Nil => Err(Reported),
            _ => Err(self.refuse(table, key, "must be a table", format!("write [{path}]"))),
        }
    }

    /// A table that the defaults hold.
    pub(super) fn section<'a>(&mut self, table: &Table<'a>, key: &str) -> Read<Table<'a>> {
        self.table(table, key)?.ok_or_else(|| self.refuse(table, key, "missing", SET))
    }

    /// A list of tables; absent is empty. The list is shown as one value.
    pub(super) fn tables<'a>(&mut self, table: &Table<'a>, key: &str) -> Read<Vec<Table<'a>>> {
        let no_tables = "must be a list of tables";
        let remedy = format!("write {key} = [{{ … }}], or {key} = []");
        let Some(value) = table.values.get(key) else {
            self.show(table, key, "[]".to_owned(), None);
            return Ok(Vec::new());
        };
        let ValueKind::Array(items) = &value.kind else {
            return Err(self.refuse(table, key, no_tables, remedy));
        };
        let mut tables = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let ValueKind::Table(values) = &item.kind else {
                return Err(self.refuse(table, key, no_tables, remedy));
            };
            let path = format!("{}[{index}]", join(&table.path, key));
            tables.push(Table { path, values, origin: item.origin(), listed: false });
        }
        self.show(table, key, show::toml(value), value.origin());
        Ok(tables)
    }

    /// Refuses keys that someone gave and that mean nothing here.
    pub(super) fn none_of(&mut self, table: &Table<'_>, keys: &[&str], why: &str) -> Read<()> {
        let mut read = Ok(());
        for key in keys.iter().filter(|key| table.is_given(key)) {
            read = Err(self.refuse(table, key, format!("senseless {why}"), "remove it"));
        }
        read
    }

    /// Adds a problem of a key, which may be absent.
    pub(super) fn refuse(
        &mut self,
        table: &Table<'_>,
        key: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Reported {
        let value = table.values.get(key);
        let origin = match value {
            Some(value) => origin(value),
            None => origin_of(table.values).or(table.origin),
        };
        let hidden = SECRETIVE.contains(&key) || SECRETIVE.iter().any(|of| table.is_within(of));
        let shown = value.filter(|_| !hidden).map(show::toml);
        self.problems.add(origin, &join(&table.path, key), shown.as_deref(), problem, remedy);
        Reported
    }

    /// Notes a value that holds by default, though its table is absent.
    pub(super) fn note(&mut self, table: &Table<'_>, path: &str, value: &str) {
        let path = format!("{}.{path}", table.path);
        self.shown.push(Shown { path, value: value.to_owned(), origin: "default".to_owned() });
    }

    fn show(&mut self, table: &Table<'_>, key: &str, value: String, origin: Option<&str>) {
        if table.listed {
            let origin = origin.map_or_else(|| "default".to_owned(), show::line);
            self.shown.push(Shown { path: join(&table.path, key), value, origin });
        }
    }
}

/// Where a value comes from; `None` for the defaults. Merged tables have no origin of
/// their own, so that one of what they hold is taken.
fn origin(value: &Value) -> Option<&str> {
    match &value.kind {
        ValueKind::Table(values) => value.origin().or_else(|| origin_of(values)),
        _ => value.origin(),
    }
}

/// The origin of what a table holds; that of a file rather than of what overrides it.
fn origin_of(values: &Map<String, Value>) -> Option<&str> {
    let overrides = |from: &&str| *from == FLAG || from.starts_with(ENVIRONMENT);
    values.values().filter_map(origin).min_by_key(|from| (overrides(from), *from))
}
