//! What holds for every combination, whatever the table says.

use crate::space::{
    Case, STEADY, Space, TIMEOUT, WALL, WINDOW, at, may_repeat, millis, this_request,
};
use crate::table::{self, TABLE};
use handoff::clock::{Now, Timestamp};
use handoff::outbox::contract::{Contract, Exists, Repeat, Window};
use handoff::outbox::facts::{Answer, Facts, Possible};
use handoff::outbox::policy::{Gate, Row, Step, next};
use handoff::outbox::state::{BlockReason, Effect};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Checks every combination of both spaces, and that `check` was meant for some.
fn holds(check: impl Fn(&Case) -> bool) {
    let mut meant = 0_u64;
    for space in [Space::lively(), Space::edges()] {
        space.each(|case| meant += u64::from(check(case)));
    }
    assert!(meant > 0, "the law was never put to the test");
}

fn doubt(case: &Case) -> Option<&Possible> {
    case.facts.possible.as_ref()
}

fn is_ours(possible: &Possible) -> bool {
    possible.request == Some(this_request())
}

fn has_settled(case: &Case, possible: &Possible) -> bool {
    STEADY >= possible.until.as_millis() + case.settle()
}

#[test]
fn the_first_line_of_the_table_that_fits_decides_every_combination() {
    let mut rows = BTreeSet::new();
    for space in [Space::whole(), Space::shielded()] {
        let count = space.each(|case| {
            let expected = table::read(case);
            rows.insert(expected.row);
            assert_eq!(case.next(), expected, "{case:?}");
        });
        println!("{count} combinations");
    }
    assert!(rows.iter().eq(Row::ALL), "a row that no combination reaches");
    assert!(TABLE.iter().map(|line| line.row).eq(Row::ALL.iter().copied()), "another order");
}

#[test]
fn the_policy_is_total_and_says_the_same_when_asked_again() {
    holds(|case| {
        assert_eq!(case.next(), case.next(), "{case:?}");
        true
    });
}

#[test]
fn with_proof_it_is_always_sent() {
    Space::shielded().each(|case| {
        if case.facts.proof.is_some() {
            assert_eq!(case.next().step, Step::Sent, "{case:?}");
            assert_eq!(case.facts.effect(&case.terms.contract), Effect::Confirmed);
        }
    });
}

#[test]
fn nothing_but_proof_or_an_exists_that_proves_makes_it_sent() {
    holds(|case| {
        let proven = case.facts.answer == Answer::Exists
            && case.terms.contract.exists == Exists::Proof
            && case.facts.effect(&case.terms.contract) == Effect::Confirmed;
        let sent = case.next().step == Step::Sent;
        assert!(!sent || proven || case.facts.proof.is_some(), "{case:?}");
        sent && proven
    });
}

#[test]
fn a_withdrawn_operation_is_never_delivered_and_only_a_person_has_it_asked_after() {
    Space::shielded().each(|case| {
        if !case.facts.withdrawn || case.facts.proof.is_some() {
            return;
        }
        let asked = case.facts.ask_now && case.facts.open.is_none();
        let expected = if asked { Step::Ask } else { Step::Stay };
        assert_eq!(case.next().step, expected, "{case:?}");
    });
}

#[test]
fn nothing_begins_while_an_attempt_or_a_look_up_is_under_way() {
    Space::shielded().each(|case| {
        let begins = matches!(case.next().step, Step::Deliver | Step::Ask);
        assert!(case.facts.open.is_none() || !begins, "{case:?}");
    });
}

#[test]
fn a_delivery_never_follows_doubt_under_a_contract_that_allows_no_repeat() {
    holds(|case| {
        let meant = doubt(case).is_some() && !may_repeat(&case.terms.contract);
        assert!(!meant || case.next().step != Step::Deliver, "{case:?}");
        meant
    });
}

#[test]
fn a_delivery_after_doubt_is_the_same_request_and_ends_within_the_window() {
    holds(|case| {
        let Some(possible) = doubt(case) else { return false };
        if case.next().step != Step::Deliver {
            return false;
        }
        assert!(is_ours(possible), "{case:?}");
        match case.terms.contract.repeat {
            Repeat::Never => panic!("{case:?}"),
            Repeat::Within(Window::Forever) => {}
            Repeat::Within(Window::For(_)) => {
                let last_byte = STEADY + TIMEOUT + case.settle();
                assert!(last_byte < possible.since.as_millis() + WINDOW, "{case:?}");
            }
        }
        true
    });
}

#[test]
fn a_repeat_at_a_receiver_that_is_not_atomic_waits_until_it_has_settled() {
    holds(|case| {
        let Some(possible) = doubt(case) else { return false };
        let waits = !case.terms.contract.atomic || case.terms.contract.look_first;
        if !waits || case.next().step != Step::Deliver {
            return false;
        }
        assert!(has_settled(case, possible), "{case:?}");
        true
    });
}

#[test]
fn a_repeat_that_could_undo_an_edit_comes_after_look_ups_that_found_nothing() {
    holds(|case| {
        let Contract { look_first, look_up: Some(look_up), .. } = case.terms.contract else {
            return false;
        };
        let repeats = doubt(case).is_some() && case.next().step == Step::Deliver;
        assert!(!(look_first && repeats) || case.facts.absences >= look_up.polls, "{case:?}");
        look_first && repeats
    });
}

#[test]
fn a_look_up_is_made_only_where_its_answer_would_count() {
    holds(|case| {
        if case.next().step != Step::Ask || case.facts.ask_now {
            return false;
        }
        let look_up = case.terms.contract.look_up.expect("a look-up is declared");
        assert!(case.facts.absences < look_up.polls, "{case:?}");
        assert!(case.facts.asks < case.terms.retry.max_attempts, "{case:?}");
        assert!(
            doubt(case).is_none_or(|possible| is_ours(possible) && has_settled(case, possible)),
            "{case:?}"
        );
        true
    });
}

#[test]
fn nothing_is_delivered_before_its_time() {
    holds(|case| {
        let times = [case.around.deliver_after, case.facts.not_before];
        let to_come = times.iter().flatten().any(|time| time.as_millis() > WALL);
        assert!(!to_come || case.next().step != Step::Deliver, "{case:?}");
        to_come
    });
}

#[test]
fn nothing_is_delivered_after_a_definite_answer_or_for_a_row_that_is_not_fit() {
    holds(|case| {
        let fit = case.around.configured && case.around.valid;
        let answered = case.facts.answer != Answer::None;
        assert!((fit && !answered) || case.next().step != Step::Deliver, "{case:?}");
        answered
    });
}

#[test]
fn an_approval_that_is_too_old_delivers_nothing_that_was_not_delivered_before() {
    holds(|case| {
        let untried = doubt(case).is_none_or(Possible::only_marks);
        let meant = case.around.approval_expired && untried;
        assert!(!meant || case.next().step != Step::Deliver, "{case:?}");
        meant
    });
}

#[test]
fn a_spent_budget_and_a_third_crash_alone_deliver_only_with_a_grant() {
    holds(|case| {
        let Facts { spent, budget_start, failed_at, solo_crashes, grant, .. } = case.facts;
        let elapsed = failed_at.zip(budget_start).map(|(failed, start)| failed.since(start));
        let over = spent >= case.terms.retry.max_attempts
            || elapsed.is_some_and(|elapsed| elapsed >= case.terms.retry.max_elapsed)
            || (solo_crashes >= 3 && doubt(case).is_some());
        assert!(!over || grant || case.next().step != Step::Deliver, "{case:?}");
        over && grant && case.next().step == Step::Deliver
    });
}

#[test]
fn the_reason_of_a_block_fits_what_is_known_of_the_receiver() {
    holds(|case| {
        let Step::Block(reason) = case.next().step else { return false };
        let effect = case.facts.effect(&case.terms.contract);
        let fits = match reason {
            BlockReason::Ambiguous
            | BlockReason::WindowClosed
            | BlockReason::Crashed
            | BlockReason::Restored => effect == Effect::Possible,
            // None, or nothing but a restore gives the doubt.
            BlockReason::Expired => doubt(case).is_none_or(Possible::only_marks),
            BlockReason::Rejected
            | BlockReason::Unauthorised
            | BlockReason::Unexpected
            | BlockReason::BudgetExhausted => {
                let known = if doubt(case).is_some() { Effect::Possible } else { Effect::None };
                effect == known
            }
            BlockReason::Conflict => effect != Effect::Confirmed,
            BlockReason::Invalid => !case.around.valid,
        };
        assert!(fits, "{reason} with effect {effect}: {case:?}");
        let only_marks = doubt(case).is_some_and(Possible::only_marks);
        assert!(reason != BlockReason::Restored || only_marks, "{case:?}");
        assert!(reason != BlockReason::WindowClosed || may_repeat(&case.terms.contract));
        true
    });
}

#[test]
fn an_effect_is_none_only_if_no_delivery_can_have_acted() {
    holds(|case| {
        let none = case.facts.effect(&case.terms.contract) == Effect::None;
        assert!(!none || (doubt(case).is_none() && case.facts.proof.is_none()), "{case:?}");
        none
    });
}

/// The same case a while later; both clocks have moved by as much.
fn later(case: &Case, by: i64) -> Now {
    Now { wall: case.now.wall.plus(millis(by)), steady: case.now.steady.plus(millis(by)) }
}

#[test]
fn what_waits_for_a_time_finds_that_gate_open_then_and_not_a_moment_sooner() {
    holds(|case| {
        let Step::Wait { gate, until: Some(until) } = case.next().step else { return false };
        let ahead = until.as_millis() - WALL;
        assert!(ahead > 0, "{case:?}");
        let look = |by| next(&case.facts, &case.around, &case.terms, later(case, by)).step;
        let shut = |step| matches!(step, Step::Wait { gate: still, .. } if still == gate);
        assert!(!shut(look(ahead)), "{case:?}");
        // It may close for good meanwhile, when the window does.
        assert!(ahead == 1 || shut(look(ahead - 1)) || may_repeat(&case.terms.contract));
        true
    });
}

#[test]
fn only_an_attempt_under_way_or_a_missing_configuration_has_it_wait_without_a_time() {
    holds(|case| {
        let Step::Wait { gate, until } = case.next().step else { return false };
        let untimed = match gate {
            Gate::InFlight => case.facts.open.is_some(),
            Gate::NotConfigured => !case.around.configured,
            Gate::Settling | Gate::Scheduled | Gate::BackingOff => false,
            Gate::ReceiverHeld => panic!("the table knows of no receiver that is held: {case:?}"),
        };
        assert_eq!(until.is_none(), untimed, "{case:?}");
        true
    });
}

#[test]
fn the_passing_of_time_never_turns_a_block_into_anything_else() {
    holds(|case| {
        let blocked = case.next();
        if !matches!(blocked.step, Step::Block(_)) {
            return false;
        }
        for by in [1, 2, TIMEOUT, WINDOW, 366 * 86_400_000] {
            let then = next(&case.facts, &case.around, &case.terms, later(case, by));
            assert!(matches!(then.step, Step::Block(_)), "{by} ms later {then:?}: {case:?}");
        }
        true
    });
}

#[test]
fn a_step_of_the_wall_clock_opens_no_window_and_settles_no_receiver() {
    let gated = |step| match step {
        Step::Deliver | Step::Ask => Step::Deliver,
        Step::Wait { gate: Gate::Scheduled | Gate::BackingOff, .. } => Step::Deliver,
        Step::Wait { gate, .. } => Step::Wait { gate, until: None },
        other => other,
    };
    holds(|case| {
        let before = case.next();
        for wall in [at(WALL - 3_600_000), at(WALL + 3_600_000)] {
            let now = Now { wall, ..case.now };
            let after = next(&case.facts, &case.around, &case.terms, now);
            assert_eq!(after.row, before.row, "{case:?}");
            assert_eq!(gated(after.step), gated(before.step), "{case:?}");
        }
        doubt(case).is_some()
    });
}

#[test]
fn a_grant_never_blocks_what_was_not_blocked_and_lifts_only_a_spent_budget_or_crashes() {
    holds(|case| {
        if case.facts.grant {
            return false;
        }
        let facts = Facts { grant: true, ..case.facts.clone() };
        let granted = next(&facts, &case.around, &case.terms, case.now);
        let plain = case.next();
        let lifted = matches!(plain.row, Row::Spent | Row::AgainSpent);
        assert!(lifted || granted == plain, "{case:?}");
        let blocks = |step| matches!(step, Step::Block(_));
        assert!(blocks(plain.step) || !blocks(granted.step), "{case:?}");
        lifted
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_table_decides_alike_also_away_from_the_edges(
        contract in 0..crate::space::contracts().len(),
        folded in proptest::option::of((0..90_000_i64, 0..20_000_i64, 0..3_u32, 0..3_u32, 0..3)),
        answer in 0..Answer::ALL.len(),
        counts in (0..4_u32, 0..5_u32, 0..5_u32, 0..5_u32),
        budget in (0..900_000_i64, 0..900_000_i64),
        times in (-9_i64..9, -9_i64..9),
        flags in any::<[bool; 6]>(),
    ) {
        let request = |which| match which {
            0 => Some(this_request()),
            1 => Some(crate::space::other_request()),
            _ => None,
        };
        let mut case = crate::space::case(contract);
        case.facts.possible = folded.map(|(since, until, count, marks, which)| Possible {
            since: at(STEADY - since.max(until)),
            until: at(STEADY - until),
            request: request(which),
            count: count + marks.max(1),
            marks,
        });
        case.facts.answer = Answer::ALL[answer];
        let (absences, spent, asks, solo_crashes) = counts;
        let soon = |by: i64| -> Option<Timestamp> { (by != 0).then(|| at(WALL + by)) };
        case.facts = Facts {
            absences,
            spent,
            asks,
            solo_crashes,
            budget_start: Some(at(STEADY - budget.0 - budget.1)),
            failed_at: flags[0].then(|| at(STEADY - budget.1)),
            grant: flags[1],
            ask_now: flags[2] && flags[3],
            withdrawn: flags[3] && flags[4],
            not_before: soon(times.0),
            ..case.facts
        };
        case.around.deliver_after = soon(times.1);
        case.around.approval_expired = flags[5];
        prop_assert_eq!(case.next(), table::read(&case));
    }
}
