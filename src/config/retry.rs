//! Delays and budget of a receiver.

use super::check::{duration, integer, list, number};
use super::duration::{days, ms};
use super::read::{Read, Reader, SET, Table, Wrong};
use crate::outbox::retry::{Delays, Retry};
use std::time::Duration;

/// The longest delay between two tries.
const DELAY_MAX: Duration = days(365);
/// The longest time that a budget may last.
const ELAPSED_MAX: Duration = days(3_650);
/// Most delays in a schedule.
const SCHEDULE_MAX: usize = 1_000;

/// Reads a receiver's delays and budget.
pub(super) fn read(reader: &mut Reader, receiver: &Table<'_>) -> Read<Retry> {
    let table = reader.section(receiver, "retry")?;
    let delays = match read_schedule(reader, &table) {
        Ok(None) => read_growth(reader, &table),
        Ok(Some(schedule)) => Ok(Delays::Schedule(schedule)),
        Err(reported) => Err(reported),
    };
    let attempts = reader.required(&table, "max_attempts", SET, integer::<u32>(1..=10_000));
    let elapsed = reader.required(&table, "max_elapsed", SET, duration(ms(1)..=ELAPSED_MAX));
    let ceiling = duration(ms(1)..=DELAY_MAX);
    let ceiling = reader.required(&table, "retry_after_ceiling", SET, ceiling);
    Ok(Retry {
        delays: delays?,
        max_attempts: attempts?,
        max_elapsed: elapsed?,
        retry_after_ceiling: ceiling?,
    })
}

fn read_schedule(reader: &mut Reader, table: &Table<'_>) -> Read<Option<Vec<Duration>>> {
    let mut growth = Ok(());
    if table.is_given("schedule") {
        let keys = ["initial", "multiplier", "max_interval"];
        growth = reader.none_of(table, &keys, "beside schedule, which lists the delays itself");
    }
    let delay = list(duration(ms(1)..=DELAY_MAX));
    let schedule = reader.optional(table, "schedule", |value| match delay(value)? {
        delays if delays.is_empty() || delays.len() > SCHEDULE_MAX => {
            let must = format!("must be a list of 1 to {SCHEDULE_MAX} durations");
            Err(Wrong::new(must, "write for example [\"5s\", \"1m\", \"1h\"]"))
        }
        delays => Ok(delays),
    })?;
    growth?;
    Ok(schedule)
}

fn read_growth(reader: &mut Reader, table: &Table<'_>) -> Read<Delays> {
    let initial = reader.required(table, "initial", SET, duration(ms(1)..=DELAY_MAX));
    let multiplier = reader.required(table, "multiplier", SET, number(1.0..=1_000.0));
    let max_interval = reader.required(table, "max_interval", SET, duration(ms(1)..=DELAY_MAX));
    let (initial, multiplier, max_interval) = (initial?, multiplier?, max_interval?);
    if initial > max_interval {
        let key = if table.is_given("initial") { "initial" } else { "max_interval" };
        let must = "initial must not be longer than max_interval";
        return Err(reader.refuse(table, key, must, "shorten initial, or lengthen max_interval"));
    }
    Ok(Delays::Exponential { initial, multiplier, max_interval })
}
