//! The table of the policy, written a second time from its text.
//!
//! The lines stand in the order of the text; the first that fits decides. It
//! counts in plain milliseconds and shares no code with the product.

use crate::space::Case;
use handoff::clock::Timestamp;
use handoff::outbox::contract::{Contract, Exists, Repeat, Window};
use handoff::outbox::facts::{Answer, Possible};
use handoff::outbox::policy::{Gate, Next, Row, Step};
use handoff::outbox::state::BlockReason;

/// One line of the table.
pub(crate) struct Line {
    pub(crate) row: Row,
    pub(crate) fits: fn(&Case) -> bool,
    pub(crate) then: fn(&Case) -> Step,
}

/// What the text says about a combination.
pub(crate) fn read(case: &Case) -> Next {
    let line = TABLE.iter().find(|line| (line.fits)(case));
    let line = line.unwrap_or_else(|| panic!("no line fits {case:?}"));
    Next { row: line.row, step: (line.then)(case) }
}

/// The table, from the top.
pub(crate) const TABLE: &[Line] = &[
    Line { row: Row::Proof, fits: |case| case.facts.proof.is_some(), then: |_| Step::Sent },
    Line {
        row: Row::AskNow,
        fits: |case| case.facts.ask_now && case.facts.open.is_none(),
        then: |_| Step::Ask,
    },
    Line { row: Row::Withdrawn, fits: |case| case.facts.withdrawn, then: |_| Step::Stay },
    Line {
        row: Row::Open,
        fits: |case| case.facts.open.is_some(),
        then: |_| Step::Wait { gate: Gate::InFlight, until: None },
    },
    Line {
        row: Row::Conflict,
        fits: |case| answers(case, &[Answer::Conflict, Answer::Differs, Answer::Many]),
        then: |_| Step::Block(BlockReason::Conflict),
    },
    Line {
        row: Row::Invalid,
        fits: |case| !(case.around.valid && case.around.configured),
        then: |case| match case.around.configured {
            true => Step::Block(BlockReason::Invalid),
            false => Step::Wait { gate: Gate::NotConfigured, until: None },
        },
    },
    Line {
        row: Row::ExistsProves,
        fits: |case| {
            answers(case, &[Answer::Exists]) && case.terms.contract.exists == Exists::Proof
        },
        then: |_| Step::Sent,
    },
    Line {
        row: Row::ExistsAsks,
        fits: |case| answers(case, &[Answer::Exists]),
        then: |case| ask(case, BlockReason::Ambiguous),
    },
    Line {
        row: Row::No,
        fits: |case| said_no(case).is_some() && case.facts.possible.is_none(),
        then: |case| Step::Block(said_no(case).expect("it said no")),
    },
    Line {
        row: Row::NoAfterDoubt,
        fits: |case| said_no(case).is_some(),
        then: |case| ask(case, said_no(case).expect("it said no")),
    },
    Line {
        row: Row::Expired,
        fits: |case| (case.facts.possible.is_none() || marks(case)) && case.around.approval_expired,
        then: |_| Step::Block(BlockReason::Expired),
    },
    Line {
        row: Row::Spent,
        fits: |case| case.facts.possible.is_none() && !case.facts.grant && spent(case),
        then: |_| Step::Block(BlockReason::BudgetExhausted),
    },
    Line {
        row: Row::Fresh,
        fits: |case| case.facts.possible.is_none(),
        then: |case| go(case, Step::Deliver),
    },
    Line {
        row: Row::Settling,
        fits: |case| {
            let contract = &case.terms.contract;
            repeat(case) && (!contract.atomic || contract.look_first) && settles_at(case).is_some()
        },
        then: |case| wait_to_settle(case),
    },
    Line {
        row: Row::LookFirst,
        fits: |case| {
            let contract = &case.terms.contract;
            repeat(case)
                && contract.look_first
                && contract.look_up.is_some_and(|look_up| case.facts.absences < look_up.polls)
        },
        then: |case| match case.facts.asks >= case.terms.retry.max_attempts {
            true => Step::Block(BlockReason::Ambiguous),
            false => go(case, Step::Ask),
        },
    },
    Line {
        row: Row::Again,
        fits: |case| {
            let left = !spent(case) && case.facts.solo_crashes < 3;
            repeat(case) && (left || case.facts.grant)
        },
        then: |case| go(case, Step::Deliver),
    },
    Line {
        row: Row::AgainSpent,
        fits: |case| repeat(case),
        then: |case| match spent(case) {
            true => ask(case, BlockReason::BudgetExhausted),
            false => ask(case, BlockReason::Crashed),
        },
    },
    Line { row: Row::NoRepeat, fits: |case| !repeat(case), then: |case| ask(case, doubt(case)) },
];

fn answers(case: &Case, answers: &[Answer]) -> bool {
    answers.contains(&case.facts.answer)
}

fn said_no(case: &Case) -> Option<BlockReason> {
    match case.facts.answer {
        Answer::Rejected => Some(BlockReason::Rejected),
        Answer::Refused => Some(BlockReason::Unauthorised),
        Answer::Unexpected => Some(BlockReason::Unexpected),
        Answer::None | Answer::Exists | Answer::Conflict | Answer::Differs | Answer::Many => None,
    }
}

/// There are marks, and nothing else may have acted.
fn marks(case: &Case) -> bool {
    case.facts.possible.as_ref().is_some_and(|possible| possible.count == possible.marks)
}

fn spent(case: &Case) -> bool {
    let elapsed = match (case.facts.budget_start, case.facts.failed_at) {
        (Some(start), Some(failed)) => failed.as_millis() - start.as_millis(),
        (None, _) | (_, None) => 0,
    };
    case.facts.spent >= case.terms.retry.max_attempts
        || i128::from(elapsed) >= as_millis(case.terms.retry.max_elapsed)
}

fn as_millis(duration: std::time::Duration) -> i128 {
    i128::try_from(duration.as_millis()).expect("no such duration")
}

fn steady(time: Timestamp) -> i128 {
    i128::from(time.as_millis())
}

/// REPEAT of the text.
fn repeat(case: &Case) -> bool {
    let Some(possible) = &case.facts.possible else { return false };
    let Contract { repeat, settle_delay, .. } = &case.terms.contract;
    let allowed = match repeat {
        Repeat::Never => false,
        Repeat::Within(Window::Forever) => true,
        Repeat::Within(Window::For(window)) => {
            steady(case.now.steady) + as_millis(case.terms.timeout) + as_millis(*settle_delay)
                < steady(possible.since) + as_millis(*window)
        }
    };
    allowed && same_request(case, possible)
}

fn same_request(case: &Case, possible: &Possible) -> bool {
    possible.request.as_ref().is_some_and(|request| *request == case.around.request)
}

/// When the receiver can no longer act, if that is still to come.
fn settles_at(case: &Case) -> Option<i128> {
    let possible = case.facts.possible.as_ref()?;
    let settled = steady(possible.until) + as_millis(case.terms.contract.settle_delay);
    (steady(case.now.steady) < settled).then_some(settled)
}

fn wait_to_settle(case: &Case) -> Step {
    let settled = settles_at(case).expect("it is still to settle");
    let wall = steady(case.now.wall) + settled - steady(case.now.steady);
    let until = Timestamp::from_millis(i64::try_from(wall).expect("a time in range"));
    Step::Wait { gate: Gate::Settling, until: Some(until) }
}

/// The reason of the last row.
fn doubt(case: &Case) -> BlockReason {
    match case.terms.contract.repeat {
        _ if marks(case) => BlockReason::Restored,
        // Not allowed although there is a window: it lapsed, or the request is another.
        Repeat::Within(_) => BlockReason::WindowClosed,
        Repeat::Never => BlockReason::Ambiguous,
    }
}

/// ASK(reason) of the text.
fn ask(case: &Case, reason: BlockReason) -> Step {
    let Some(look_up) = case.terms.contract.look_up else { return Step::Block(reason) };
    let another = |possible| !same_request(case, possible);
    if case.facts.possible.as_ref().is_some_and(another) {
        Step::Block(reason)
    } else if settles_at(case).is_some() {
        wait_to_settle(case)
    } else if case.facts.absences >= look_up.polls
        || case.facts.asks >= case.terms.retry.max_attempts
    {
        Step::Block(reason)
    } else {
        go(case, Step::Ask)
    }
}

/// GO(x) of the text, as far as this version has gates.
fn go(case: &Case, step: Step) -> Step {
    let to_come = |time: &Timestamp| *time > case.now.wall;
    if let Some(until) = case.around.deliver_after.filter(to_come) {
        return Step::Wait { gate: Gate::Scheduled, until: Some(until) };
    }
    if let Some(until) = case.facts.not_before.filter(to_come) {
        return Step::Wait { gate: Gate::BackingOff, until: Some(until) };
    }
    step
}
