//! When to come again, as a receiver asks: Retry-After and its relatives. Pure.

use crate::clock::Timestamp;
use crate::outbox::outcome::NotBefore;
use hyper::header::{DATE, HeaderMap, RETRY_AFTER};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers beyond this are no delay in seconds but a moment (September 2001).
const MOMENT_MIN: u64 = 1_000_000_000;
/// The longest delay that is taken over; the receiver's own ceiling is far below.
const DELAY_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

/// Reads the longest of what is asked; what cannot be read or is past asks nothing.
///
/// Retry-After goes before the rate-limit headers, which only say when the
/// next window begins.
pub(super) fn not_before(headers: &HeaderMap) -> Option<NotBefore> {
    let date =
        text(headers, DATE.as_str()).find_map(|text| seconds(httpdate::parse_http_date(text)));
    let asked = text(headers, RETRY_AFTER.as_str()).filter_map(|text| match text.parse::<u64>() {
        Ok(delay) => Some(after(delay)),
        Err(_) => moment(seconds(httpdate::parse_http_date(text))?, date),
    });
    // Two moments are only compared where both are delays; else the first counts.
    longest(asked).or_else(|| longest(rate_limit(headers, date)))
}

fn longest(asked: impl Iterator<Item = NotBefore>) -> Option<NotBefore> {
    asked.reduce(|one, other| match (one, other) {
        (NotBefore::After(a), NotBefore::After(b)) => NotBefore::After(a.max(b)),
        (NotBefore::At(a), NotBefore::At(b)) => NotBefore::At(a.max(b)),
        (at @ NotBefore::At(_), NotBefore::After(_))
        | (NotBefore::After(_), at @ NotBefore::At(_)) => at,
    })
}

/// The draft's `RateLimit: "default";r=0;t=30`, its older forms and what was there before.
fn rate_limit(headers: &HeaderMap, date: Option<u64>) -> impl Iterator<Item = NotBefore> {
    let parameter = |text: &str| {
        text.split([';', ',']).find_map(|part| {
            let (name, value) = part.trim().split_once('=')?;
            matches!(name, "t" | "reset").then(|| value.trim().parse::<u64>().ok())?
        })
    };
    let structured = text(headers, "ratelimit").filter_map(parameter);
    let plain = ["ratelimit-reset", "x-ratelimit-reset-after", "x-ratelimit-reset"];
    let plain = plain.into_iter().flat_map(|name| text(headers, name));
    let plain = plain.filter_map(|text| text.parse::<u64>().ok());
    let all: Vec<u64> = structured.chain(plain).collect();
    all.into_iter().filter_map(move |number| {
        if number < MOMENT_MIN { Some(after(number)) } else { moment(number, date) }
    })
}

fn after(delay: u64) -> NotBefore {
    NotBefore::After(Duration::from_secs(delay.min(DELAY_SECONDS_MAX)))
}

/// A moment by the receiver's clock. Where its answer says what that clock shows, it is
/// a delay, so that our clock need not agree.
fn moment(at: u64, date: Option<u64>) -> Option<NotBefore> {
    match date {
        Some(now) => at.checked_sub(now).map(after),
        None => {
            let millis = i64::try_from(at.checked_mul(1000)?).ok()?;
            Some(NotBefore::At(Timestamp::from_millis(millis)))
        }
    }
}

fn seconds<E>(time: Result<SystemTime, E>) -> Option<u64> {
    Some(time.ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::trim)
}
