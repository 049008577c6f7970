//! What clocks that are set must not change: how long pauses last, how long ago
//! something happened, and what a budget of time has spent.

use crate::ground::{Call, Ground};
use crate::lanes::{Lane, millis};
use crate::rows::{Seen, Try};
use crate::time::Frame;
use handoff::outbox::contract::{Repeat, Window};

/// No pause and no wait for a receiver is declared longer, in milliseconds.
const LONGEST: i64 = 3_600_000;
const LONGEST_SETTLING: i64 = 16_000;

fn longest_since(ground: &Ground, key: &str) -> Option<i64> {
    let first = ground.calls.iter().find(|call| call.key == key && call.number == 1)?;
    Some(ground.times.truth - first.begun)
}

/// Times of an operation that still waits, or that a person can make wait again.
pub(crate) fn check_row(ground: &Ground, key: &str, row: &Seen, say: &mut impl FnMut(String)) {
    let Some(frame) = crate::rows::frame(&ground.db, &ground.times) else { return };
    if !matches!(row.state.as_str(), "pending" | "blocked") {
        return;
    }
    it_has_happened(ground, row, &frame, say);
    it_waits_no_longer_than_it_must(ground, key, row, &frame, say);
    let Some((before, old)) = ground.seen.get(key).zip(ground.frame.as_ref()) else { return };
    if before.version == row.version && before.state == row.state {
        nothing_is_longer_ago(ground, [(before, old), (row, &frame)], say);
        its_pause_stays(ground, [(before, old), (row, &frame)], say);
    }
    if let (None, Some(start)) = (before.budget_start, row.budget_start) {
        let start = start - frame.steady;
        if start + ground.times.drift_since(frame.taken) < ground.seen_at {
            say(format!("its budget began at {start}, before anything began"));
        }
    }
    if row.reason.as_deref() == Some("budget_exhausted") && before.reason != row.reason {
        its_budget_is_spent(ground, key, row, say);
    }
}

/// Clocks that were set spend no budget.
fn its_budget_is_spent(ground: &Ground, key: &str, row: &Seen, say: &mut impl FnMut(String)) {
    let Some(lane) = ground.lanes.iter().find(|lane| lane.name() == row.receiver) else { return };
    let tries = crate::rows::attempts(&ground.db, key);
    let spent: u32 = tries.iter().map(|one| one.spent).sum();
    let Some(elapsed) = longest_since(ground, key) else { return };
    let drift = ground.times.drift_since(0);
    if spent < lane.retry.max_attempts && millis(elapsed + drift) < lane.retry.max_elapsed {
        say(format!("its budget is spent after {spent} tries and {elapsed} ms"));
    }
}

fn it_has_happened(ground: &Ground, row: &Seen, frame: &Frame, say: &mut impl FnMut(String)) {
    let drift = ground.times.drift_since(frame.taken);
    for (what, time) in past(row) {
        if time.is_some_and(|time| time - frame.steady > ground.times.truth + drift) {
            say(format!("{what} lies ahead"));
        }
    }
}

fn past(row: &Seen) -> [(&'static str, Option<i64>); 3] {
    [
        ("its last end", row.possible_until),
        ("its last failure", row.failed_at),
        ("the beginning of its budget", row.budget_start),
    ]
}

/// What happened stays as long ago as it is, whatever the steady clock believes. Of
/// the time before a boot nobody knows how long it lasted.
fn nothing_is_longer_ago(
    ground: &Ground,
    [(before, old), (row, frame)]: [(&Seen, &Frame); 2],
    say: &mut impl FnMut(String),
) {
    let drift = ground.times.drift_since(old.taken);
    for ((what, was), (_, is)) in past(before).into_iter().zip(past(row)) {
        let Some((was, is)) = was.zip(is) else { continue };
        let later = (is - frame.steady) - (was - old.steady);
        if later < -drift || (later > drift && old.boot == frame.boot) {
            say(format!("{what} was moved by {later} ms of true time"));
        }
    }
}

/// A pause ends when it would have ended, unless it was impossibly long.
fn its_pause_stays(
    ground: &Ground,
    [(before, old), (row, frame)]: [(&Seen, &Frame); 2],
    say: &mut impl FnMut(String),
) {
    let Some((was, is)) = before.not_before.zip(row.not_before) else { return };
    if old.boot != frame.boot {
        return;
    }
    let drift = ground.times.drift_since(old.taken);
    let (was, is) = (was - old.wall, is - frame.wall);
    let lane = ground.lanes.iter().find(|lane| lane.name() == row.receiver);
    let longest = lane.map_or(LONGEST, Lane::longest);
    let clamped = is >= ground.seen_at + longest - drift;
    if is - was > drift || (was - is > drift && !clamped) {
        say(format!("its pause ended at {was} and ends at {is}, of true time"));
    }
}

/// Nothing hangs on a clock that was ahead.
fn it_waits_no_longer_than_it_must(
    ground: &Ground,
    key: &str,
    row: &Seen,
    frame: &Frame,
    say: &mut impl FnMut(String),
) {
    let (Some(due), None) = (row.due_at, row.open_number) else { return };
    let is_asked_for = row.deliver_after.is_some_and(|time| time >= due);
    if row.state != "pending" || is_asked_for || ground.ahead.contains(key) {
        return;
    }
    let drift = ground.times.drift_since(frame.taken);
    let pause = row.not_before.map_or(i64::MIN, |time| time - frame.wall);
    let settled =
        row.possible_until.map_or(i64::MIN, |time| time - frame.steady + LONGEST_SETTLING);
    let latest = pause.max(settled).max(ground.times.truth) + drift;
    if due - frame.wall > latest {
        say(format!("it is due at {}, could be at {latest}, of true time", due - frame.wall));
    }
    if pause > ground.times.truth + LONGEST + drift {
        say("its pause is longer than any".to_owned());
    }
}

/// An attempt that has ended since the last look ended when its process heard of it.
pub(crate) fn check_end(ground: &Ground, key: &str, stored: &Try) -> Option<String> {
    let frame = crate::rows::frame(&ground.db, &ground.times)?;
    let same = |call: &&Call| call.key == key && call.number == stored.number;
    let over = ground.calls.iter().find(same)?.over?;
    let finished = stored.finished? - frame.steady;
    let drift = ground.times.drift_since(frame.taken.min(over));
    let early = finished + drift < over;
    early.then(|| format!("{key}#{} ended at {over}, stored is {finished}", stored.number))
}

/// The laws of time for a call that begins now, from what the world knows alone.
pub(crate) fn check_call(
    ground: &Ground,
    call: &Call,
    doubtful: &[u32],
    timeout: i64,
    broken: &mut Vec<String>,
) {
    if let Some((noted, until)) = ground.pauses.get(&call.key)
        && ground.decided + ground.times.drift_since(*noted) < *until
    {
        broken.push("it began before the receiver wants it".to_owned());
    }
    its_own_pause_is_over(ground, call, broken);
    let lane = &ground.lanes[call.lane];
    let settle = i64::try_from(lane.contract.settle_delay.as_millis()).unwrap();
    let earlier = |one: &&Call| one.key == call.key && doubtful.contains(&one.number);
    let earlier: Vec<&Call> = ground.calls.iter().filter(earlier).collect();
    if let Some(over) = earlier.iter().filter_map(|one| one.over).max()
        && !lane.contract.atomic
        && ground.decided + ground.times.drift_since(over) < over + settle
    {
        broken.push(format!("the receiver may still act: it was given up at {over}"));
    }
    if let Some(since) = earlier.iter().map(|one| one.begun).min()
        && let Repeat::Within(Window::For(window)) = lane.contract.repeat
        && millis(ground.decided + timeout + settle - since) >= window
    {
        broken.push(format!("the receiver may have forgotten its key since {since}"));
    }
}

fn its_own_pause_is_over(ground: &Ground, call: &Call, broken: &mut Vec<String>) {
    let Some((before, frame)) = ground.seen.get(&call.key).zip(ground.frame.as_ref()) else {
        return;
    };
    let Some(pause) = before.not_before else { return };
    let drift = ground.times.drift_since(frame.taken);
    let longest = ground.lanes[call.lane].longest();
    let until = (pause - frame.wall).min(ground.seen_at + longest);
    if ground.decided + drift < until {
        broken.push(format!("it began before it was due, at {until} of true time"));
    }
}
