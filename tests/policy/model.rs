//! The model check: every state of a small world that few moves can reach.

use crate::history::fold;
use crate::space::LOOK_UP;
use crate::world::{Bounds, Move, SETTLE, Trouble, WINDOW, World, terms};
use handoff::outbox::contract::{Contract, Exists, Window};
use handoff::outbox::policy::Step;
use handoff::outbox::state::Effect;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// A world, how it came about, and how many moves that took.
struct Reached {
    world: World,
    path: Vec<Move>,
}

/// Visits every world within the bounds once, breadth first, and checks each.
/// Says how many there were.
fn explore(contract: &Contract, memory: Option<u8>, depth: [usize; 2]) -> String {
    let troubles = [Trouble::Daemon, Trouble::Surroundings].into_iter().zip(depth);
    let reports = troubles.map(|(trouble, depth)| {
        let terms = terms(contract.clone());
        visit(&Bounds { terms, memory, calls: 3, time: 9, depth, trouble })
    });
    format!("{}: {}", contract.mode, reports.collect::<Vec<_>>().join("; "))
}

fn visit(bounds: &Bounds) -> String {
    let mut known = HashSet::from([World::new().essence()]);
    let mut queue = VecDeque::from([Reached { world: World::new(), path: Vec::new() }]);
    let (mut moves, mut sent, mut blocked) = (0_u64, 0_u64, 0_u64);
    while let Some(Reached { world, path }) = queue.pop_front() {
        match world.next(bounds).step {
            Step::Sent => sent += 1,
            Step::Block(_) => blocked += 1,
            Step::Stay | Step::Wait { .. } | Step::Ask | Step::Deliver => {}
        }
        if path.len() == bounds.depth {
            continue;
        }
        for what in world.moves(bounds) {
            let mut after = world.clone();
            after.make(what, bounds);
            moves += 1;
            check(&world, what, &after, bounds, &path);
            if known.insert(after.essence()) {
                let path = path.iter().copied().chain([what]).collect();
                queue.push_back(Reached { world: after, path });
            }
        }
    }
    assert!(sent > 0 && blocked > 0, "the model reaches too little");
    let (states, depth) = (known.len(), bounds.depth);
    format!("{states} states, {moves} moves, depth {depth}, {sent} sent, {blocked} blocked")
}

/// What holds in every world and at every move.
fn check(before: &World, what: Move, after: &World, bounds: &Bounds, path: &[Move]) {
    let say = |law: &str| format!("{law} after {path:?} and {what:?}\n{after:#?}");
    let effect = after.facts.effect(&bounds.terms.contract);
    let step = after.next(bounds).step;
    assert!(after.effects <= 1, "{}", say("a second effect"));
    assert!(step != Step::Sent || after.effects > 0, "{}", say("sent without an effect"));
    assert!(effect != Effect::Confirmed || after.effects > 0, "{}", say("confirmed nothing"));
    let nothing = after.effects == 0 && !after.may_still_act(bounds);
    assert!(effect != Effect::None || nothing, "{}", say("none, but it happened or may yet"));
    assert!(!after.success || step == Step::Sent, "{}", say("a stored success is not shown"));
    let rows = after.rows();
    assert_eq!(after.facts.possible, fold(rows.iter()), "{}", say("another doubt"));
    assert!(
        !after.facts.withdrawn || !matches!(step, Step::Deliver | Step::Ask),
        "{}",
        say("delivered after a withdrawal")
    );
    if matches!(what, Move::Pass(_)) && matches!(before.next(bounds).step, Step::Block(_)) {
        assert!(matches!(step, Step::Block(_)), "{}", say("time alone ended a block"));
    }
    let again = what == Move::Deliver && before.facts.possible.is_some();
    assert!(!again || bounds.memory.is_some(), "{}", say("repeated without a promise"));
}

fn settling(contract: Contract) -> Contract {
    Contract { settle_delay: Duration::from_secs(u64::from(SETTLE)), ..contract }
}

fn window() -> Window {
    Window::For(Duration::from_secs(u64::from(WINDOW)))
}

#[test]
fn a_receiver_without_a_promise_never_gets_a_second_effect() {
    println!("{}", explore(&Contract::none(), None, [12, 9]));
    println!("{}", explore(&settling(Contract::look_up(LOOK_UP)), None, [11, 9]));
}

#[test]
fn a_receiver_that_never_forgets_a_key_never_gets_a_second_effect() {
    println!("{}", explore(&Contract::idempotency_key(Window::Forever), Some(u8::MAX), [8, 8]));
}

#[test]
fn a_receiver_that_forgets_a_key_after_its_window_never_gets_a_second_effect() {
    println!("{}", explore(&Contract::idempotency_key(window()), Some(WINDOW), [9, 8]));
}

#[test]
fn a_receiver_that_is_not_atomic_never_gets_a_second_effect() {
    let contract = settling(Contract::idempotency_key(window()));
    println!("{}", explore(&Contract { atomic: false, ..contract }, Some(WINDOW), [9, 8]));
}

#[test]
fn a_receiver_that_answers_exists_is_believed_as_far_as_its_contract_goes() {
    let ask = settling(Contract::create_only(window(), Exists::Ask));
    println!("{}", explore(&ask, Some(WINDOW), [8, 8]));
    let proof = Contract::create_only(window(), Exists::Proof);
    println!("{}", explore(&proof, Some(WINDOW), [8, 8]));
}
