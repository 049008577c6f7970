//! What protects a receiver: its circuit breaker.

use super::check::{duration, integer};
use super::duration::{hours, ms};
use super::read::{Read, Reader, SET, Table};
use crate::outbox::breaker;
use crate::outbox::rules::Protection;

/// Reads what protects a receiver.
pub(super) fn read(reader: &mut Reader, receiver: &Table<'_>) -> Read<Protection> {
    Ok(Protection { breaker: read_breaker(reader, receiver)? })
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
