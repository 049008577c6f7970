//! Contracts: what a receiver is declared to promise.

use super::check::{Checked, boolean, choice, duration, integer};
use super::duration::{days, ms, show};
use super::read::{Read, Reader, Reported, Table};
use crate::outbox::contract::{Contract, Exists, LookUp, Mode, Verified, Window};
use ::config::{Value, ValueKind};
use std::time::Duration;

/// The modes of this version.
const MODES: &[Mode] =
    &[Mode::None, Mode::LookUp, Mode::IdempotencyKey, Mode::CreateOnly, Mode::Upsert];
/// How long nobody deletes a record, unless it is said.
const CREATE_ONLY_WINDOW: (&str, Window) = ("\"30d\"", Window::For(days(30)));
/// Between two look-ups, unless it is said.
const INTERVAL: (&str, Duration) = ("\"30s\"", Duration::from_secs(30));
/// The longest window that is not `forever`.
const WINDOW_MAX: Duration = days(36_500);

/// A mode of this version.
pub(super) fn mode() -> impl Fn(&Value) -> Checked<Mode> {
    choice(MODES, Mode::as_str, &[])
}

/// Reads a receiver's contract; none is declared where there is no table.
///
/// The receiver's timeout and budget are those of [`Settings`](crate::receiver::Settings),
/// if they could be read. `can_look_up` says whether its kind can be asked for a key.
pub(super) fn read(
    reader: &mut Reader,
    receiver: &Table<'_>,
    timeout: Option<Duration>,
    max_attempts: Option<u32>,
    can_look_up: bool,
) -> Read<Contract> {
    let Some(table) = reader.table(receiver, "contract")? else {
        reader.note(receiver, "contract.mode", "\"none\"");
        return Ok(Contract::none());
    };
    let remedy = "write for example mode = \"none\", or leave the table out";
    let mode = reader.required(&table, "mode", remedy, mode());
    let settle_delay = duration(Duration::ZERO..=days(30));
    let settle_delay = reader.or(&table, "settle_delay", ("\"0s\"", Duration::ZERO), settle_delay);
    let atomic = read_atomic(reader, &table, settle_delay.ok());
    let same_account = reader.or(&table, "same_account", ("false", false), boolean);
    let verified = choice(Verified::ALL, Verified::as_str, &[]);
    let verified = reader.or(&table, "verified", ("\"no\"", Verified::No), verified);
    let Ok(mode) = mode else {
        // What they mean depends on the mode; whether they can be read does not.
        reader.optional(&table, "window", check_window).ok();
        reader.optional(&table, "exists", check_exists()).ok();
        read_look_up(reader, &table, None, max_attempts, can_look_up).ok();
        return Err(Reported);
    };
    let margin = timeout.zip(settle_delay.ok()).map(|(timeout, delay)| timeout + delay);
    let window = read_window(reader, &table, mode, margin);
    let exists = read_exists(reader, &table, mode);
    let look_up = read_look_up(reader, &table, Some(mode), max_attempts, can_look_up);
    let promised = promised(mode, window?, exists?, look_up?);
    Ok(Contract {
        settle_delay: settle_delay?,
        atomic: atomic?,
        same_account: same_account?,
        verified: verified?,
        ..promised
    })
}

/// The preset of a mode.
fn promised(mode: Mode, window: Window, exists: Exists, look_up: Option<LookUp>) -> Contract {
    let declared = match mode {
        Mode::IdempotencyKey => Contract::idempotency_key(window),
        Mode::CreateOnly => Contract::create_only(window, exists),
        Mode::Upsert => Contract::upsert(window, look_up),
        Mode::LookUp => Contract { mode, ..Contract::none() },
        Mode::None => Contract::none(),
    };
    Contract { look_up, ..declared }
}

/// How a key is looked up, if it is. Whether it can be read does not depend on the mode.
fn read_look_up(
    reader: &mut Reader,
    contract: &Table<'_>,
    mode: Option<Mode>,
    max_attempts: Option<u32>,
    can_look_up: bool,
) -> Read<Option<LookUp>> {
    let Some(table) = reader.table(contract, "look_up")? else {
        if mode != Some(Mode::LookUp) {
            return Ok(None);
        }
        let remedy = "write for example look_up = { polls = 2, interval = \"30s\" }";
        let problem = "missing; mode = \"look_up\" needs it";
        return Err(reader.refuse(contract, "look_up", problem, remedy));
    };
    if !can_look_up {
        let why = "for a receiver of this kind, which cannot be asked for a key";
        reader.none_of(contract, &["look_up"], why)?;
    }
    if mode == Some(Mode::None) {
        reader.none_of(contract, &["look_up"], "with mode = \"none\"; see mode = \"look_up\"")?;
    }
    let remedy = "write how many look-ups in a row must find nothing, such as polls = 2";
    let polls = reader.required(&table, "polls", remedy, integer::<u32>(1..=100));
    let interval = reader.or(&table, "interval", INTERVAL, duration(ms(1)..=days(30)));
    let polls = polls?;
    if max_attempts.is_some_and(|most| polls > most) {
        let remedy = "look up less often, or raise retry.max_attempts";
        let problem = "must not be more than retry.max_attempts";
        return Err(reader.refuse(&table, "polls", problem, remedy));
    }
    Ok(Some(LookUp { polls, interval: interval? }))
}

fn read_atomic(
    reader: &mut Reader,
    table: &Table<'_>,
    settle_delay: Option<Duration>,
) -> Read<bool> {
    let atomic = reader.or(table, "atomic", ("true", true), boolean)?;
    if !atomic && settle_delay == Some(Duration::ZERO) {
        let remedy = "set settle_delay: how long an earlier call may still act";
        return Err(reader.refuse(table, "atomic", "false requires a settle_delay", remedy));
    }
    Ok(atomic)
}

/// The window; `Forever` stands in where the mode has none.
fn read_window(
    reader: &mut Reader,
    table: &Table<'_>,
    mode: Mode,
    margin: Option<Duration>,
) -> Read<Window> {
    let window = match mode {
        Mode::None | Mode::LookUp => {
            reader.none_of(table, &["window"], "without a promise to keep")?;
            return Ok(Window::Forever);
        }
        Mode::CreateOnly => reader.or(table, "window", CREATE_ONLY_WINDOW, check_window)?,
        Mode::IdempotencyKey | Mode::Upsert => {
            let remedy = "write how long the receiver remembers a key, such as window = \"24h\" \
                          or window = \"forever\"";
            reader.required(table, "window", remedy, check_window)?
        }
    };
    match (window, margin) {
        (Window::For(length), Some(margin)) if length <= margin => {
            let must = format!("must be longer than timeout and settle_delay, {}", show(margin));
            let remedy = "set a shorter timeout, or the window that the receiver really has";
            Err(reader.refuse(table, "window", must, remedy))
        }
        (window, _) => Ok(window),
    }
}

fn check_window(value: &Value) -> Checked<Window> {
    match &value.kind {
        ValueKind::String(text) if text == "forever" => Ok(Window::Forever),
        _ => match duration(ms(1)..=WINDOW_MAX)(value) {
            Ok(length) => Ok(Window::For(length)),
            Err(wrong) => Err(wrong.or("\"forever\"")),
        },
    }
}

fn read_exists(reader: &mut Reader, table: &Table<'_>, mode: Mode) -> Read<Exists> {
    if mode != Mode::CreateOnly {
        reader.none_of(table, &["exists"], "without mode = \"create_only\"")?;
        return Ok(Exists::Ask);
    }
    reader.or(table, "exists", ("\"ask\"", Exists::Ask), check_exists())
}

fn check_exists() -> impl Fn(&Value) -> Checked<Exists> {
    choice(Exists::ALL, Exists::as_str, &[])
}
