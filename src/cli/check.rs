//! `check`: the configuration, without starting anything.

use super::arguments::Global;
use super::output::{plain, table};
use super::{Exit, Failure};
use crate::config;
use serde::Serialize;

#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    advice: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Value<'a>>>,
}

#[derive(Serialize)]
struct Value<'a> {
    path: &'a str,
    value: &'a str,
    origin: &'a str,
}

pub(super) fn check(global: &Global, origin: bool) -> Result<Exit, Failure> {
    let loaded = config::load(&global.request())?;
    let values: Vec<Value<'_>> = loaded
        .values
        .iter()
        .map(|shown| Value { path: &shown.path, value: &shown.value, origin: &shown.origin })
        .collect();
    let mut text = String::new();
    if origin {
        let rows: Vec<Vec<String>> = values
            .iter()
            .map(|shown| vec![plain(shown.path), plain(shown.value), plain(shown.origin)])
            .collect();
        text.push_str(&table(&["KEY", "VALUE", "FROM"], &rows, |_, _, cell| cell));
        text.push_str("\n\n");
    }
    text.push_str("the configuration is good");
    for advice in &loaded.advice {
        text.push_str(&format!("\nadvice: {}", plain(advice)));
    }
    let checked = Checked { ok: true, advice: &loaded.advice, values: origin.then_some(values) };
    global.output().result(&checked, &text)?;
    Ok(Exit::Done)
}
