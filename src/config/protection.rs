//! What protects a receiver: its circuit breaker and its rate limit.

use super::check::{duration, integer};
use super::duration::{hours, ms};
use super::read::{Read, Reader, SET, Table};
use crate::outbox::rules::Protection;
use crate::outbox::{breaker, rate};

/// Reads what protects a receiver.
pub(super) fn read(reader: &mut Reader, receiver: &Table<'_>) -> Read<Protection> {
    let breaker = read_breaker(reader, receiver);
    let rate = read_rate(reader, receiver);
    Ok(Protection { breaker: breaker?, rate: rate? })
}

/// The breaker; none where it never opens.
fn read_breaker(reader: &mut Reader, receiver: &Table<'_>) -> Read<Option<breaker::Settings>> {
    let table = reader.section(receiver, "circuit_breaker")?;
    let failures = reader.required(&table, "failures", SET, integer::<u32>(0..=10_000));
    let open = reader.required(&table, "open", SET, duration(ms(1)..=hours(24)));
    let max_open = reader.required(&table, "max_open", SET, duration(ms(1)..=hours(24)));
    let (failures, open, max_open) = (failures?, open?, max_open?);
    if open > max_open {
        let key = if table.is_given("open") { "open" } else { "max_open" };
        let must = "open must not be longer than max_open";
        return Err(reader.refuse(&table, key, must, "shorten open, or lengthen max_open"));
    }
    Ok((failures > 0).then_some(breaker::Settings { failures, open, max_open }))
}

/// The rate limit, if there is one.
fn read_rate(reader: &mut Reader, receiver: &Table<'_>) -> Read<Option<rate::Settings>> {
    let Some(table) = reader.table(receiver, "rate_limit")? else { return Ok(None) };
    let remedy = "write for example { count = 100, period = \"10s\", burst = 20 }";
    let count = reader.required(&table, "count", remedy, integer::<u32>(1..=1_000_000));
    let period = reader.required(&table, "period", remedy, duration(ms(1)..=hours(24)));
    let burst = reader.or(&table, "burst", ("1", 1), integer::<u32>(1..=1_000_000));
    Ok(Some(rate::Settings { count: count?, period: period?, burst: burst? }))
}
