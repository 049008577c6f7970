//! What a value must be: one check for each kind of value.

use super::duration;
use super::keys::{NAME_FORM, NOT_YET};
use super::read::Wrong;
use super::show;
use crate::outbox::key::is_name;
use ::config::{Value, ValueKind};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a check says of a value.
pub(super) type Checked<T> = Result<T, Wrong>;

/// A text that is not empty, without NUL.
pub(super) fn text(value: &Value) -> Checked<String> {
    match &value.kind {
        ValueKind::String(text) if !text.is_empty() && !text.contains('\0') => Ok(text.clone()),
        _ => Err(Wrong::new("must be a text, not empty", "write it in quotes")),
    }
}

/// A name of a namespace, a receiver or a type.
pub(super) fn name(value: &Value) -> Checked<String> {
    match &value.kind {
        ValueKind::String(text) if is_name(text) => Ok(text.clone()),
        _ => Err(Wrong::new(format!("must be a text that matches {NAME_FORM}"), "choose another")),
    }
}

/// `true` or `false`.
pub(super) fn boolean(value: &Value) -> Checked<bool> {
    match value.kind {
        ValueKind::Boolean(yes) => Ok(yes),
        _ => Err(Wrong::new("must be true or false", "write it without quotes, in small letters")),
    }
}

/// A whole number in a range.
pub(super) fn integer<T: TryFrom<i64> + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&Value) -> Checked<T> {
    move |value| {
        if let ValueKind::I64(number) = value.kind
            && let Ok(number) = T::try_from(number)
            && range.contains(&number)
        {
            return Ok(number);
        }
        let must = format!("must be a whole number from {} to {}", range.start(), range.end());
        Err(Wrong::new(must, "write it in digits, without quotes in a file"))
    }
}

/// A number in a range.
pub(super) fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Checked<f64> {
    move |value| {
        let number = match value.kind {
            ValueKind::Float(number) => Some(number),
            ValueKind::I64(number) => i32::try_from(number).ok().map(f64::from),
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let must = format!("must be a number from {} to {}", range.start(), range.end());
            Wrong::new(must, "write it in digits, without quotes in a file")
        })
    }
}

/// A duration in a range, with its unit.
pub(super) fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Value) -> Checked<Duration> {
    move |value| {
        let why = match &value.kind {
            ValueKind::String(text) => match duration::parse(text) {
                Ok(read) if range.contains(&read) => return Ok(read),
                Ok(_) => None,
                Err(why) => Some(why),
            },
            ValueKind::I64(_) | ValueKind::Float(_) => Some("the unit is missing".to_owned()),
            _ => None,
        };
        let (from, to) = (duration::show(*range.start()), duration::show(*range.end()));
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let must = format!("must be a duration from {from} to {to}, with its unit{why}");
        Err(Wrong::new(must, "write for example \"1s\", \"500ms\" or \"1m30s\""))
    }
}

/// One of several words; some are known but not in this version.
pub(super) fn choice<T: Copy>(
    all: &'static [T],
    word: fn(T) -> &'static str,
    later: &'static [&'static str],
) -> impl Fn(&Value) -> Checked<T> {
    move |value| {
        let ValueKind::String(text) = &value.kind else { return Err(no_choice(all, word)) };
        if later.contains(&text.as_str()) {
            return Err(Wrong::new(NOT_YET, format!("choose {}", words(all, word))));
        }
        let chosen = all.iter().find(|one| word(**one) == text);
        chosen.copied().ok_or_else(|| no_choice(all, word))
    }
}

fn no_choice<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Wrong {
    Wrong::new(format!("must be {}", words(all, word)), "choose one of them")
}

fn words<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> String {
    all.iter().map(|one| show::text(word(*one))).collect::<Vec<_>>().join(" or ")
}

/// A list whose items pass a check.
pub(super) fn list<T>(item: impl Fn(&Value) -> Checked<T>) -> impl Fn(&Value) -> Checked<Vec<T>> {
    move |value| {
        let ValueKind::Array(items) = &value.kind else {
            return Err(Wrong::new("must be a list", "write it as [\"one\", \"two\"]"));
        };
        let check = |(index, value)| item(value).map_err(|wrong| wrong.of_item(index, value));
        items.iter().enumerate().map(check).collect()
    }
}
