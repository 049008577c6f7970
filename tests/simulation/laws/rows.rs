//! What must hold of the rows after every move.

use crate::application::is_valid;
use crate::fold::recomputed;
use crate::ground::Ground;
use crate::rows::{Seen, attempts, number, operations, rows};
use handoff::outbox::contract::Exists;
use handoff::outbox::facts::Facts;
use handoff::outbox::verbs::open_verbs;
use handoff::store::OperationRow;
use std::collections::BTreeSet;

/// What may have moved an operation since the last look.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// A person's acts that may have been done, by key.
    pub(crate) retried: BTreeSet<String>,
    pub(crate) withdrawn: BTreeSet<String>,
    /// A process that has been taken for dead has told what it knew.
    pub(crate) late: bool,
}

/// Checks every row, and remembers it.
pub(crate) fn check(ground: &mut Ground, moved: &Moved) {
    let now = operations(&ground.db);
    let mut broken = Vec::new();
    everything_recorded_is_there(ground, now.keys().cloned().collect(), &mut broken);
    for (key, row) in &now {
        let mut say = |what: String| broken.push(format!("{key}: {what}: {row:?}"));
        it_is_of_one_piece(row, &mut say);
        it_is_frozen(ground, key, row, &mut say);
        if row.reason.as_deref() == Some("invalid") && is_valid(&row.recorded) {
            say("nothing is wrong with it".to_owned());
        }
        its_attempts_are_counted(ground, key, row, &mut say);
        the_receiver_agrees(ground, key, row, &mut say);
        super::times::check_row(ground, key, row, &mut say);
        if let Some(before) = ground.seen.get(key) {
            it_moved_as_it_may(key, before, row, moved, &mut say);
        }
    }
    for what in broken {
        ground.violation(what);
    }
    check_ends(ground);
    ground.seen = now;
    ground.frame = crate::rows::frame(&ground.db, &ground.times);
    ground.seen_at = ground.times.truth;
}

/// Checks how attempts have ended, and remembers it. Also before a step of a clock is
/// minded: what is settled by then stays as it was stamped, whatever the mark says next.
pub(crate) fn check_ends(ground: &mut Ground) {
    let mut broken = Vec::new();
    let keys: Vec<String> = ground.payloads.keys().cloned().collect();
    for key in keys {
        no_end_is_overwritten(ground, &key, &mut broken);
    }
    for what in broken {
        ground.violation(what);
    }
}

fn everything_recorded_is_there(
    ground: &Ground,
    there: BTreeSet<String>,
    broken: &mut Vec<String>,
) {
    let recorded: BTreeSet<String> = ground.payloads.keys().cloned().collect();
    for key in recorded.difference(&there) {
        broken.push(format!("{key} was recorded and is gone"));
    }
    for key in there.difference(&recorded) {
        broken.push(format!("{key} is there and was never committed"));
    }
    for table in ["handoff_approvals", "handoff_outbox"] {
        let count = number(&ground.db, &format!("SELECT count(*) FROM {table}"));
        if count != i64::try_from(there.len()).unwrap() {
            broken.push(format!("{table} has {count} rows, of {} operations", there.len()));
        }
    }
}

/// An end stays, unless it was provisional and an answer comes, or a success.
fn no_end_is_overwritten(ground: &mut Ground, key: &str, broken: &mut Vec<String>) {
    for one in attempts(&ground.db, key) {
        let place = (key.to_owned(), one.number);
        let before = ground.ends.insert(place, one.outcome.clone()).flatten();
        if before != one.outcome {
            broken.extend(super::times::check_end(ground, key, &one));
        }
        let (Some(before), now) = (before, one.outcome.as_deref().unwrap_or("open")) else {
            continue;
        };
        let provisional = |word: &str| matches!(word, "interrupted" | "cut_off");
        let answered = provisional(&before) && !provisional(now) && now != "open";
        if before != now && !answered && now != "applied" {
            broken.push(format!("{key}#{} was {before} and is {now}", one.number));
        }
    }
}

/// The public columns fit each other.
fn it_is_of_one_piece(row: &Seen, say: &mut impl FnMut(String)) {
    let blocked = row.state == "blocked";
    if blocked != row.reason.is_some() {
        say("blocked and its reason go together".to_owned());
    }
    let sent = row.state == "sent";
    if sent != row.settled_by.is_some() || sent != row.sent_at.is_some() {
        say("sent and its proof go together".to_owned());
    }
    if sent && (row.effect != "confirmed" || row.last_error.is_some()) {
        say("sent is confirmed, and nothing went wrong".to_owned());
    }
    if row.open_number.is_some() && row.effect == "none" {
        say("an attempt is under way: it may have acted".to_owned());
    }
    if row.state == "withdrawn" && !row.withdrawn {
        say("nobody has withdrawn it".to_owned());
    }
}

fn it_is_frozen(ground: &Ground, key: &str, row: &Seen, say: &mut impl FnMut(String)) {
    if let Some(before) = ground.seen.get(key)
        && (before.recorded != row.recorded || before.receiver != row.receiver)
    {
        say("what was approved has changed".to_owned());
    }
}

fn its_attempts_are_counted(ground: &Ground, key: &str, row: &Seen, say: &mut impl FnMut(String)) {
    let tries = attempts(&ground.db, key);
    let numbers: Vec<usize> = tries.iter().map(|one| one.number as usize).collect();
    if numbers != (1..=tries.len()).collect::<Vec<_>>() {
        say(format!("its attempts are {numbers:?}"));
    }
    if row.attempts != i64::try_from(tries.len()).unwrap() {
        say(format!("it has {} attempts", tries.len()));
    }
    let open: Vec<_> = tries.iter().filter(|one| one.outcome.is_none()).collect();
    let open: Vec<i64> = open.iter().map(|one| i64::from(one.number)).collect();
    if open != row.open_number.into_iter().collect::<Vec<_>>() {
        say(format!("open are {open:?}"));
    }
}

/// A single effect, and `effect` says what is known of it.
fn the_receiver_agrees(ground: &Ground, key: &str, row: &Seen, say: &mut impl FnMut(String)) {
    let effects = ground.effects(key);
    if effects.len() > 1 {
        say(format!("a second effect: {effects:?}"));
    }
    match row.effect.as_str() {
        "none" if !effects.is_empty() => say(format!("the receiver has it: {effects:?}")),
        "none" if ground.may_still_act(key) => say("the receiver may still act".to_owned()),
        "confirmed" if effects.is_empty() => say("the receiver does not have it".to_owned()),
        _ => {}
    }
    let known = |id: &String| effects.iter().any(|effect| effect.id.to_string() == *id);
    if row.remote_id.as_ref().is_some_and(|id| !known(id)) {
        say(format!("the receipt is of nothing: {effects:?}"));
    }
}

/// Time alone moves nothing that a person or the receiver has settled.
fn it_moved_as_it_may(
    key: &str,
    before: &Seen,
    row: &Seen,
    moved: &Moved,
    say: &mut impl FnMut(String),
) {
    let may = match (before.state.as_str(), row.state.as_str()) {
        (from, to) if from == to => true,
        ("pending", "withdrawn") => moved.withdrawn.contains(key),
        ("pending", _) => true,
        ("blocked", "pending") => moved.retried.contains(key) || moved.late,
        ("blocked", "withdrawn") => moved.withdrawn.contains(key),
        ("blocked" | "withdrawn", "sent") => moved.late,
        _ => false,
    };
    if !may {
        say(format!("it was {} before", before.state));
    }
    if before.state == "sent" && (before.remote_id != row.remote_id && before.remote_id.is_some()) {
        say(format!("the first receipt was {:?}", before.remote_id));
    }
}

/// The facts follow from the history, and a verb leads out of each block.
pub(crate) fn check_facts(
    ground: &mut Ground,
    all: &[OperationRow],
    rules: &handoff::outbox::rules::Rules,
) {
    let mut broken = Vec::new();
    for row in all {
        let key = &row.operation_key;
        let Some(lane) = ground.lanes.iter().find(|lane| lane.name() == row.receiver) else {
            continue;
        };
        let proves = lane.truth.proof;
        assert!(!proves || lane.contract.exists == Exists::Proof);
        let facts = recomputed(&|sql| rows(&ground.db, sql), key, proves);
        // The time that a receiver asked for is not kept with its attempt.
        // And of a clock that was set nothing but what it has moved.
        let budget_start = facts.budget_start.and(row.facts.budget_start);
        let not_before = row.facts.not_before;
        let mut facts = Facts { not_before, budget_start, ..facts };
        if facts.open.is_some()
            && let Some((possible, stored)) =
                facts.possible.as_mut().zip(row.facts.possible.as_ref())
        {
            possible.until = possible.until.max(stored.until);
        }
        if ground.late.contains(key) {
            // What a late answer takes the place of may have ended after it.
            facts.failed_at =
                facts.failed_at.map(|at| row.facts.failed_at.map_or(at, |b| b.max(at)));
        }
        if facts != row.facts {
            broken.push(format!("{key}: stored {:?}, recomputed {facts:?}", row.facts));
        }
        if row.effect != facts.effect(&lane.contract) {
            broken.push(format!("{key}: the effect is not what follows from {facts:?}"));
        }
        let now = ground.times.now();
        let (around, terms) = (rules.judge(&row.recorded, now).around, rules.terms(&row.receiver));
        let blocked = row.state == handoff::State::Blocked;
        if blocked && open_verbs(&row.facts, row.state, &around, terms, now).is_empty() {
            broken.push(format!("{key}: no verb leads out"));
        }
    }
    for what in broken {
        ground.violation(what);
    }
}
