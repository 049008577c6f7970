//! Durations with a unit: what is allowed, and how they are shown.

use std::time::Duration;

/// Longest text of a duration; longer ones are nonsense.
const BYTES_MAX: usize = 64;
/// Most digits in a row; no sum of such numbers overflows, whatever the unit.
const DIGITS_MAX: usize = 12;

const MILLISECOND: u64 = 1;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Milliseconds as a duration.
pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Hours as a duration.
pub(super) const fn hours(count: u64) -> Duration {
    Duration::from_millis(count * HOUR)
}

/// Days as a duration.
pub(super) const fn days(count: u64) -> Duration {
    Duration::from_millis(count * DAY)
}

/// Reads a duration such as `1m30s`, `500ms` or `25 days`.
///
/// Months and years have no fixed length, and `M` is easily mistaken for
/// minutes: they are refused.
///
/// # Errors
///
/// Says what is wrong with it, in a few words.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    check(text)?;
    let unrepresentable = |_| "it is too long, or no whole number of milliseconds".to_owned();
    let duration = humantime::parse_duration(text).map_err(unrepresentable)?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("nothing finer than a millisecond".to_owned());
    }
    Ok(duration)
}

/// Checks number, unit, number, unit …; what passes cannot overflow.
fn check(text: &str) -> Result<(), String> {
    if text.starts_with('-') {
        return Err("it is negative".to_owned());
    }
    if text.len() > BYTES_MAX {
        return Err("it is too long a text".to_owned());
    }
    let mut rest = text;
    loop {
        let whole = leading(&mut rest, |c| c.is_ascii_digit());
        let mut digits = whole.len();
        if let (1.., Some(after)) = (digits, rest.strip_prefix('.')) {
            rest = after;
            let fraction = leading(&mut rest, |c| c.is_ascii_digit());
            digits = if fraction.is_empty() { 0 } else { digits.max(fraction.len()) };
        }
        match digits {
            0 => return Err("a number and its unit were expected".to_owned()),
            1..=DIGITS_MAX => {}
            _ => return Err("it is too long".to_owned()),
        }
        leading(&mut rest, |c| c == ' ');
        check_unit(leading(&mut rest, char::is_alphabetic))?;
        if rest.is_empty() {
            return Ok(());
        }
        leading(&mut rest, |c| c == ' ');
    }
}

/// Takes the characters of one kind off the start of the rest.
fn leading<'a>(rest: &mut &'a str, kind: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !kind(c)).unwrap_or(rest.len());
    let (taken, after) = rest.split_at(end);
    *rest = after;
    taken
}

fn check_unit(unit: &str) -> Result<(), String> {
    match unit {
        "ms" | "msec" | "millis" => Ok(()),
        "s" | "sec" | "secs" | "second" | "seconds" => Ok(()),
        "m" | "min" | "mins" | "minute" | "minutes" => Ok(()),
        "h" | "hr" | "hrs" | "hour" | "hours" => Ok(()),
        "d" | "day" | "days" | "w" | "wk" | "wks" | "week" | "weeks" => Ok(()),
        "" => Err("the unit is missing".to_owned()),
        "M" => Err("\"M\" could be months; minutes are \"m\"".to_owned()),
        "month" | "months" | "y" | "yr" | "yrs" | "year" | "years" => {
            Err("months and years have no fixed length; count days".to_owned())
        }
        "ns" | "nsec" | "nanos" | "us" | "µs" | "usec" => {
            Err("nothing finer than a millisecond".to_owned())
        }
        _ => Err("its unit is none of ms, s, m, h, d, w".to_owned()),
    }
}

/// A duration in the form that [`parse`] reads, such as `1m30s`.
pub(super) fn show(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut shown = String::new();
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (MILLISECOND, "ms")];
    for (length, unit) in units {
        if rest >= length {
            shown.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_a_unit_and_no_doubt() {
        for (text, expected) in [
            ("30s", 30_000),
            ("30m", 1_800_000),
            ("1m30s", 90_000),
            ("1m 30s", 90_000),
            ("25d", 25 * 86_400_000),
            ("1.5s", 1_500),
            ("5 minutes", 300_000),
            ("500ms", 500),
            ("0s", 0),
            ("2w", 14 * 86_400_000),
            ("999999999999s", 999_999_999_999_000),
        ] {
            assert_eq!(parse(text), Ok(ms(expected)), "{text}");
        }
        for (text, word) in [
            ("30", "unit is missing"),
            ("0", "unit is missing"),
            ("", "expected"),
            (" 30s", "expected"),
            ("s", "expected"),
            ("1.s", "expected"),
            (".5s", "expected"),
            ("30M", "minutes are \"m\""),
            ("30 S", "none of"),
            ("30x", "none of"),
            ("1 month", "count days"),
            ("1y", "count days"),
            ("-5s", "negative"),
            ("1e3s", "none of"),
            ("1m30", "unit is missing"),
            ("1 5s", "unit is missing"),
            ("10us", "finer"),
            ("0.0005s", "finer"),
            ("0.3333333d", "whole number"),
            ("1000000000000s", "too long"),
            ("18446744073709551615s 1000000000ns", "too long"),
            ("584942417355y", "count days"),
            ("٣s", "expected"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(word), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_shown_reads_back(text in "[0-9a-zM. µ-]{0,70}", millis: u64) {
            drop(parse(&text));
            let duration = ms(millis % 1_000_000_000_000);
            prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }
    }
}
