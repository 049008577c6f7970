//! What holds for a person's acts in every combination.

use crate::space::{Case, Space};
use handoff::outbox::facts::{Answer, Facts};
use handoff::outbox::policy::{Step, next};
use handoff::outbox::state::{State, Verb};
use handoff::outbox::verbs::{Refusal, open_verbs, retry, withdraw};

/// The state that a store would keep.
fn state(case: &Case) -> State {
    match case.next().step {
        Step::Sent => State::Sent,
        Step::Stay => State::Withdrawn,
        Step::Block(_) => State::Blocked,
        Step::Ask if case.facts.withdrawn => State::Withdrawn,
        Step::Wait { .. } | Step::Ask | Step::Deliver => State::Pending,
    }
}

/// Does `retry`, and gives the facts after it.
fn try_again(case: &Case, state: State) -> (Facts, Result<Step, Refusal>) {
    let mut facts = case.facts.clone();
    let done = retry(&mut facts, state, &case.around, &case.terms, case.now);
    (facts, done.map(|next| next.step))
}

fn take_back(case: &Case, state: State) -> (Facts, Result<(), Refusal>) {
    let mut facts = case.facts.clone();
    let done = withdraw(&mut facts, state);
    (facts, done)
}

/// The facts as the text of the verb leaves them.
fn granted(facts: &Facts) -> Facts {
    let no = [Answer::Rejected, Answer::Refused, Answer::Unexpected].contains(&facts.answer);
    let cleared = no && facts.possible.is_none();
    Facts {
        grant: true,
        not_before: None,
        answer: if cleared { Answer::None } else { facts.answer },
        version: facts.version + 1,
        ..facts.clone()
    }
}

#[test]
fn a_retry_is_refused_exactly_where_the_policy_would_block_it_all_the_same() {
    let (mut refused, mut done) = (0_u64, 0_u64);
    Space::lively().each(|case| {
        let state = state(case);
        if !matches!(state, State::Pending | State::Blocked) {
            return;
        }
        let expected = granted(&case.facts);
        let follows = next(&expected, &case.around, &case.terms, case.now);
        let (facts, outcome) = try_again(case, state);
        if let Step::Block(reason) = follows.step {
            assert_eq!(outcome, Err(Refusal::WouldBlock { row: follows.row, reason }));
            assert_eq!(facts, case.facts, "a refused retry changed something: {case:?}");
            refused += 1;
        } else {
            assert_eq!(outcome, Ok(follows.step), "{case:?}");
            assert_eq!(facts, expected, "{case:?}");
            done += 1;
        }
    });
    assert!(refused > 0 && done > 0);
}

#[test]
fn no_verb_is_accepted_while_an_attempt_is_under_way_or_once_it_is_settled() {
    Space::edges().each(|case| {
        let state = state(case);
        let settled = matches!(state, State::Sent | State::Withdrawn);
        let expected = match (case.facts.open, settled) {
            (Some(_), _) => Refusal::InFlight,
            (None, true) => Refusal::State { state },
            (None, false) => return,
        };
        let (facts, outcome) = try_again(case, state);
        assert_eq!(outcome, Err(expected.clone()), "{case:?}");
        assert_eq!(facts, case.facts, "{case:?}");
        let (facts, outcome) = take_back(case, state);
        assert_eq!(outcome, Err(expected), "{case:?}");
        assert_eq!(facts, case.facts, "{case:?}");
        assert!(open_verbs(&case.facts, state, &case.around, &case.terms, case.now).is_empty());
    });
}

#[test]
fn from_every_block_a_verb_leads_out() {
    Space::edges().each(|case| {
        if state(case) != State::Blocked {
            return;
        }
        let verbs = open_verbs(&case.facts, State::Blocked, &case.around, &case.terms, case.now);
        assert!(verbs.contains(&Verb::Withdraw), "{case:?}");
        for verb in verbs {
            let facts = match verb {
                Verb::Retry => try_again(case, State::Blocked).0,
                Verb::Withdraw => take_back(case, State::Blocked).0,
            };
            let then = next(&facts, &case.around, &case.terms, case.now).step;
            assert!(!matches!(then, Step::Block(_)), "{verb} leads nowhere: {case:?}");
        }
    });
}

#[test]
fn a_withdrawal_keeps_what_is_known_and_ends_all_deliveries() {
    Space::edges().each(|case| {
        let (facts, outcome) = take_back(case, state(case));
        if outcome.is_err() {
            return;
        }
        let version = case.facts.version + 1;
        assert_eq!(facts, Facts { withdrawn: true, version, ..case.facts.clone() });
        let contract = &case.terms.contract;
        assert_eq!(facts.effect(contract), case.facts.effect(contract));
        // A look-up that a person asked for before is still made.
        let expected = if facts.ask_now { Step::Ask } else { Step::Stay };
        let then = next(&facts, &case.around, &case.terms, case.now).step;
        assert_eq!(then, expected, "{case:?}");
    });
}

#[test]
fn a_retry_brings_nothing_forward_that_the_application_has_scheduled() {
    Space::lively().each(|case| {
        let Some(due) = case.around.deliver_after else { return };
        let (_, outcome) = try_again(case, state(case));
        assert!(due <= case.now.wall || outcome != Ok(Step::Deliver), "{case:?}");
    });
}
