//! What holds for a person's acts in every combination.

use crate::space::{Case, Space};
use handoff::outbox::facts::{Answer, Facts};
use handoff::outbox::policy::{Step, next};
use handoff::outbox::settle::{Word, reconcile, resolve};
use handoff::outbox::state::{Effect, SettledBy, State, Verb};
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

const SENT: fn() -> Word = || Word::Sent { remote_id: "7".to_owned() };

fn looked_up(case: &Case, state: State) -> (Facts, Result<(), Refusal>) {
    let mut facts = case.facts.clone();
    let done = reconcile(&mut facts, state, &case.around, &case.terms);
    (facts, done)
}

fn vouched_for(case: &Case, state: State, word: &Word) -> (Facts, Result<(), Refusal>) {
    let mut facts = case.facts.clone();
    let done = resolve(&mut facts, state, word, "ann", &case.terms, case.now);
    (facts, done)
}

/// A person's word is all that settles it.
fn by_a_person(case: &Case) -> bool {
    matches!(&case.facts.proof, Some(proof) if matches!(proof.by, SettledBy::Person(_)))
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
        let verbs = open_verbs(&case.facts, state, &case.around, &case.terms, case.now);
        // What is withdrawn can still be looked up, and a person can say what is there.
        let still = |verb: &Verb| match (case.facts.open, state, verb) {
            (None, State::Withdrawn, verb) => matches!(verb, Verb::Reconcile | Verb::Resolve),
            (None, State::Sent, verb) => *verb == Verb::Resolve && by_a_person(case),
            (_, _, _) => false,
        };
        assert!(verbs.iter().all(still), "{verbs:?}: {case:?}");
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
                Verb::Reconcile => looked_up(case, State::Blocked).0,
                Verb::Resolve => vouched_for(case, State::Blocked, &SENT()).0,
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

#[test]
fn a_look_up_that_a_person_asks_for_comes_next_wherever_the_receiver_can_be_asked() {
    let mut done = 0_u64;
    Space::edges().each(|case| {
        let state = state(case);
        let (facts, outcome) = looked_up(case, state);
        let can = case.terms.contract.look_up.is_some()
            && case.facts.open.is_none()
            && state != State::Sent
            && case.around.configured
            && case.around.valid;
        assert_eq!(outcome.is_ok(), can, "{case:?}: {outcome:?}");
        if !can {
            return assert_eq!(facts, case.facts, "{case:?}");
        }
        done += 1;
        let version = case.facts.version + 1;
        assert_eq!(facts, Facts { ask_now: true, asks: 0, version, ..case.facts.clone() });
        assert_eq!(next(&facts, &case.around, &case.terms, case.now).step, Step::Ask, "{case:?}");
    });
    assert!(done > 0);
}

#[test]
fn a_person_vouches_for_sent_only_where_something_may_have_happened_or_it_is_blocked() {
    Space::edges().each(|case| {
        let state = state(case);
        let effect = case.facts.effect(&case.terms.contract);
        let (facts, outcome) = vouched_for(case, state, &SENT());
        let may = case.facts.open.is_none()
            && (state == State::Blocked || state == State::Withdrawn && effect == Effect::Possible);
        assert_eq!(outcome.is_ok(), may, "{case:?}: {outcome:?}");
        if may {
            let then = next(&facts, &case.around, &case.terms, case.now).step;
            assert_eq!(then, Step::Sent, "{case:?}");
        }
    });
}

#[test]
fn not_sent_leaves_no_doubt_no_answer_and_a_whole_budget() {
    let (mut early, mut done) = (0_u64, 0_u64);
    Space::edges().each(|case| {
        let state = state(case);
        let word = |force| Word::NotSent { looked_at: case.now.wall, force };
        let (facts, outcome) = vouched_for(case, state, &word(false));
        let may = case.facts.open.is_none() && (state == State::Blocked || by_a_person(case));
        let settles = case.terms.contract.settle_delay;
        let settled = case
            .facts
            .possible
            .as_ref()
            .is_none_or(|possible| possible.until.plus(settles) <= case.now.steady);
        assert_eq!(outcome.is_ok(), may && settled, "{case:?}: {outcome:?}");
        assert_eq!(vouched_for(case, state, &word(true)).1.is_ok(), may, "{case:?}");
        if !settled && may {
            early += 1;
            assert!(matches!(outcome, Err(Refusal::TooEarly { .. })), "{case:?}");
        }
        if outcome.is_err() {
            return assert_eq!(facts, case.facts, "{case:?}");
        }
        done += 1;
        let Facts { attempts, withdrawn, version, .. } = case.facts;
        let version = version + 1;
        assert_eq!(facts, Facts { attempts, withdrawn, version, ..Facts::recorded() });
        assert_eq!(facts.effect(&case.terms.contract), Effect::None);
    });
    assert!(early > 0 && done > 0);
}
