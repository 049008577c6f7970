//! What must hold at the moment when a receiver is called.

use crate::ground::{Call, Ground};
use crate::lanes::{Lane, millis};
use crate::rows::{Try, attempts};
use handoff::outbox::contract::{Repeat, Window};

/// A call may be held up so long between its decision and its first byte.
const START_GRACE: i64 = 5_000;

/// Checks a call that begins now, with this timeout in milliseconds.
pub(crate) fn check(ground: &mut Ground, call: &Call, timeout: i64) {
    let mut broken = Vec::new();
    nothing_is_locked(ground, &mut broken);
    it_is_the_frozen_request(ground, call, &mut broken);
    it_is_the_first_of_its_number(ground, call, &mut broken);
    let tries = attempts(&ground.db, &call.key);
    match tries.iter().position(|one| one.number == call.number) {
        None => broken.push("the attempt is not stored".to_owned()),
        Some(place) => {
            it_is_open_and_ours(ground, call, &tries[place], &mut broken);
            let lane = ground.lanes[call.lane].clone();
            if place + 1 != tries.len() {
                broken.push("it is not the last attempt".to_owned());
            }
            if tries[..place].iter().any(Try::is_doubtful) {
                ground.count("repeated");
            }
            earlier_ones_are_stored(ground, call, &tries[..place], &mut broken);
            a_repeat_is_allowed(&lane, &tries[..place], &tries[place], timeout, &mut broken);
            a_try_is_left(ground, call, &tries[..place], &mut broken);
            let doubtful = tries[..place].iter().filter(|one| one.is_doubtful());
            let doubtful: Vec<u32> = doubtful.map(|one| one.number).collect();
            super::times::check_call(ground, call, &doubtful, timeout, &mut broken);
        }
    }
    let held_up = ground.times.truth - ground.decided;
    if held_up > START_GRACE.min(timeout) {
        broken.push(format!("it was held up for {held_up} ms and has begun all the same"));
    }
    there_is_room(ground, call, &mut broken);
    // What a receiver asked for holds for the next try.
    ground.pauses.remove(&call.key);
    for what in broken {
        ground.violation(format!("{}: {what}", call.name()));
    }
}

/// No transaction is open while a receiver is called.
pub(crate) fn nothing_is_locked(ground: &Ground, broken: &mut Vec<String>) {
    if let Err(error) = ground.db.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        broken.push(format!("a transaction is open: {error}"));
    }
}

fn it_is_the_frozen_request(ground: &Ground, call: &Call, broken: &mut Vec<String>) {
    match ground.expected(&call.key) {
        None => broken.push("nobody approved it".to_owned()),
        Some(payload) if *payload != call.payload => {
            broken.push(format!("the payload is {}, approved was {payload}", call.payload));
        }
        Some(_) => {}
    }
    if ground.calls.iter().any(|one| one.key == call.key && one.payload != call.payload) {
        broken.push("the bytes differ from those of an earlier call".to_owned());
    }
}

fn it_is_the_first_of_its_number(ground: &Ground, call: &Call, broken: &mut Vec<String>) {
    let same = |one: &&Call| one.key == call.key && one.number == call.number;
    if ground.calls.iter().any(|one| same(&one)) {
        broken.push("this attempt was called before".to_owned());
    }
}

/// Its row is there, in the database, before its first byte leaves.
fn it_is_open_and_ours(ground: &Ground, call: &Call, stored: &Try, broken: &mut Vec<String>) {
    if stored.outcome.is_some() {
        broken.push(format!("the attempt has ended: {stored:?}"));
    }
    if stored.instance != format!("process-{}", call.process) {
        broken.push(format!("the attempt is of {}", stored.instance));
    }
    if stored.started > ground.times.now().steady.as_millis() {
        broken.push("the attempt has not begun yet".to_owned());
    }
    let open = "SELECT state = 'pending' AND withdrawn = 0 AND open_number IS ?2
        FROM handoff_outbox WHERE operation_key = ?1";
    let open = ground.db.prepare_cached(open).unwrap();
    let is_open = { open }.query_row((&call.key, call.number), |row| row.get(0));
    if is_open != Ok(true) {
        broken.push("its operation does not wait for it".to_owned());
    }
    let Some(before) = ground.seen.get(&call.key) else { return };
    if before.state != "pending" {
        broken.push(format!("it was {} before", before.state));
    }
    // The application means the wall clock.
    if before.deliver_after.is_some_and(|time| stored.started_at < time) {
        broken.push("it began before it was asked for".to_owned());
    }
}

/// A known outcome is stored before anything else happens to its operation.
fn earlier_ones_are_stored(ground: &Ground, call: &Call, tries: &[Try], broken: &mut Vec<String>) {
    if let Some(open) = tries.iter().find(|one| one.outcome.is_none()) {
        broken.push(format!("attempt {} is still open", open.number));
    }
    let known = |told: &&crate::ground::Told| told.key == call.key && told.process == call.process;
    for told in ground.told.iter().filter(known) {
        let stored = tries.iter().find(|one| one.number == told.number);
        if stored.and_then(|one| one.outcome.as_deref()) != Some(told.kind.as_str()) {
            broken
                .push(format!("attempt {} ended {}, which is not stored", told.number, told.kind));
        }
    }
}

/// The contract's word on repeats, from the attempts alone.
fn a_repeat_is_allowed(
    lane: &Lane,
    earlier: &[Try],
    this: &Try,
    timeout: i64,
    broken: &mut Vec<String>,
) {
    let doubtful: Vec<&Try> = earlier.iter().filter(|one| one.is_doubtful()).collect();
    let Some(since) = doubtful.iter().map(|one| one.started).min() else { return };
    let settle = i64::try_from(lane.contract.settle_delay.as_millis()).unwrap();
    match lane.contract.repeat {
        Repeat::Never => broken.push("it is a repeat, and the contract allows none".to_owned()),
        Repeat::Within(Window::Forever) => {}
        Repeat::Within(Window::For(window)) => {
            let last_byte = this.started + timeout + settle;
            if millis(last_byte - since) >= window {
                broken.push("it is a repeat outside the window".to_owned());
            }
        }
    }
    if doubtful.iter().any(|one| one.request != this.request) {
        broken.push("it is a repeat of another request".to_owned());
    }
    let until = doubtful.iter().filter_map(|one| one.finished).max().unwrap_or(since);
    if !lane.contract.atomic && this.started < until + settle {
        broken.push("it is a repeat while the receiver may still act".to_owned());
    }
}

/// The budget, and the crashes that may be blamed on it.
fn a_try_is_left(ground: &Ground, call: &Call, earlier: &[Try], broken: &mut Vec<String>) {
    let granted = ground.seen.get(&call.key).is_some_and(|before| before.granted);
    if granted {
        return;
    }
    let spent: u32 = earlier.iter().map(|one| one.spent).sum();
    let most = ground.lanes[call.lane].retry.max_attempts;
    if spent >= most {
        broken.push(format!("{spent} tries of {most} were spent"));
    }
    let alone = earlier.iter().filter(|one| one.alone).count();
    if alone >= 3 && earlier.iter().any(Try::is_doubtful) {
        broken.push("it was alone at three crashes".to_owned());
    }
}

fn there_is_room(ground: &Ground, call: &Call, broken: &mut Vec<String>) {
    let beside =
        |one: &&Call| one.ear.is_some() && one.process == call.process && one.lane == call.lane;
    let beside: Vec<&Call> = ground.calls.iter().filter(beside).collect();
    let most = ground.lanes[call.lane].concurrency;
    if beside.len() >= most {
        broken.push(format!("{} calls are under way, {most} may be", beside.len() + 1));
    }
    if call.suspect && beside.iter().any(|one| one.suspect) {
        broken.push("another suspect is under way".to_owned());
    }
}
