//! Stories: the facts carried along through every short history and many long
//! ones, against those worked out anew.

use crate::history::{Delivery, Event, Word, deliveries, fold, not_before, recompute};
use crate::space::{at, other_request, terms, this_request};
use handoff::clock::Now;
use handoff::outbox::contract::{Contract, Exists, Window};
use handoff::outbox::facts::{Ended, Facts};
use handoff::outbox::outcome::{Ending, NotTakenWhy, Outcome};
use handoff::outbox::policy::{Step, Surroundings, next};
use handoff::outbox::state::{Effect, State};
use handoff::outbox::verbs::{retry, withdraw};
use proptest::prelude::*;

/// One operation: the facts carried along, and the list of words.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) facts: Facts,
    words: Vec<Word>,
    contract: Contract,
}

impl Story {
    pub(crate) fn new(contract: Contract) -> Self {
        Self { facts: Facts::recorded(), words: Vec::new(), contract }
    }

    fn around() -> Surroundings {
        Surroundings {
            configured: true,
            valid: true,
            approval_expired: false,
            deliver_after: None,
            request: this_request(),
        }
    }

    fn now(&self) -> Now {
        let seconds = 1_000_000 + i64::try_from(self.words.len()).expect("few");
        Now::at(at(seconds * 1_000))
    }

    pub(crate) fn step(&self) -> Step {
        next(&self.facts, &Self::around(), &terms(self.contract.clone()), self.now()).step
    }

    fn state(&self) -> State {
        match self.step() {
            Step::Sent => State::Sent,
            Step::Stay => State::Withdrawn,
            Step::Block(_) => State::Blocked,
            Step::Wait { .. } | Step::Ask | Step::Deliver => State::Pending,
        }
    }

    /// Everything that can happen now.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for delivery in deliveries(&self.words) {
            if delivery.is_open() {
                events.extend({
                    let number = delivery.number;
                    endings(number).map(move |ending| Event::End(number, ending))
                });
            } else if delivery.is_provisional() {
                let late = outcomes(delivery.number).map(Ending::Outcome);
                events.extend(late.map(|ending| Event::End(delivery.number, ending)));
            } else if !delivery.is_applied() {
                // A success is never thrown away, whatever was believed before.
                let success = outcomes(delivery.number).take(1).map(Ending::Outcome);
                events.extend(success.map(|ending| Event::End(delivery.number, ending)));
            }
        }
        if self.facts.open.is_none() {
            let settled = self.facts.proof.is_some() || self.facts.withdrawn;
            if !settled {
                events.extend([this_request(), other_request()].map(Event::Begin));
            }
            events.extend([Event::Retry, Event::Withdraw]);
        }
        events
    }

    /// Lets it happen, and compares; `false` for a verb that is refused.
    pub(crate) fn tell(&mut self, event: Event) -> bool {
        let now = self.now();
        let (facts, state) = (self.facts.clone(), self.state());
        let accepted = match &event {
            Event::Begin(request) => {
                let number = self.facts.attempts + 1;
                self.facts.delivery_begins(number, now, request.clone());
                true
            }
            Event::End(number, ending) => {
                self.end(*number, ending, now);
                true
            }
            Event::Retry => {
                let terms = terms(self.contract.clone());
                retry(&mut self.facts, state, &Self::around(), &terms, now).is_ok()
            }
            Event::Withdraw => withdraw(&mut self.facts, state).is_ok(),
        };
        if !accepted {
            assert_eq!(self.facts, facts, "a refused verb changed something");
            return false;
        }
        self.words.push(Word { when: now.steady, what: event });
        assert_eq!(self.facts, recompute(&self.words, &self.contract), "{:?}", self.words);
        self.check();
        true
    }

    /// Ends a delivery as a store does: it reads the others from their rows.
    fn end(&mut self, number: u32, ending: &Ending, now: Now) {
        let list = deliveries(&self.words);
        let this = list.iter().find(|delivery| delivery.number == number).expect("it began");
        let earlier = this.ended.as_ref().map(|(_, ending)| ending.kind());
        let others = self.facts.has_others(earlier).then(|| {
            fold(list.iter().filter(|delivery| delivery.number != number)).expect("there are")
        });
        let end = Ended {
            number,
            started: this.started,
            ended: now.steady,
            request: this.request.clone(),
            ending,
            had_spent: this.spends(),
            not_before: not_before(number, ending, now.wall),
        };
        self.facts.delivery_ends(&end, others, &self.contract);
    }

    /// What holds at any point of any history.
    fn check(&self) {
        let list = deliveries(&self.words);
        let doubt = list.iter().any(Delivery::may_have_acted);
        let effect = self.facts.effect(&self.contract);
        assert!(!doubt || effect != Effect::None, "{:#?}", self.words);
        let success = |word: &Word| match &word.what {
            Event::End(_, Ending::Outcome(Outcome::Applied { .. })) => true,
            Event::End(_, Ending::Outcome(Outcome::AlreadyExists { .. })) => {
                self.contract.exists == Exists::Proof
            }
            Event::End(..) | Event::Begin(_) | Event::Retry | Event::Withdraw => false,
        };
        let stored = self.words.iter().any(success);
        assert_eq!(stored, effect == Effect::Confirmed, "{:#?}", self.words);
        assert_eq!(stored, self.step() == Step::Sent, "{:#?}", self.words);
    }
}

/// Every outcome, with another receipt for each delivery.
fn outcomes(number: u32) -> impl Iterator<Item = Outcome> {
    let id = |word: &str| Some(format!("{word}-{number}"));
    let not_taken = |why| Outcome::NotTaken { why, not_before: None };
    [
        Outcome::Applied { remote_id: id("applied"), replayed: false },
        Outcome::Applied { remote_id: None, replayed: true },
        Outcome::AlreadyExists { remote_id: id("exists") },
        not_taken(NotTakenWhy::Unreachable),
        not_taken(NotTakenWhy::Throttled),
        not_taken(NotTakenWhy::Stale),
        Outcome::InProgress { not_before: None },
        Outcome::Rejected,
        Outcome::Conflict,
        Outcome::Unauthorised { whole_receiver: false },
        Outcome::Unknown,
        Outcome::Unexpected,
    ]
    .into_iter()
}

fn endings(number: u32) -> impl Iterator<Item = Ending> {
    let without =
        [Ending::Interrupted { alone: true }, Ending::Interrupted { alone: false }, Ending::CutOff];
    outcomes(number).map(Ending::Outcome).chain(without)
}

fn contracts() -> [Contract; 2] {
    let window = Window::Forever;
    [Contract::idempotency_key(window), Contract::create_only(window, Exists::Proof)]
}

/// Tells every story that goes on from here for so many events.
fn tell_all(story: &Story, events: usize) -> u64 {
    if events == 0 {
        return 1;
    }
    let mut count = 1;
    for event in story.events() {
        let mut longer = story.clone();
        if longer.tell(event) {
            count += tell_all(&longer, events - 1);
        }
    }
    count
}

#[test]
fn the_facts_carried_along_are_those_worked_out_anew_in_every_short_history() {
    for contract in contracts() {
        println!("{} histories", tell_all(&Story::new(contract), 5));
    }
}

#[test]
fn a_late_answer_takes_back_what_its_interruption_had_added_whatever_came_between() {
    let mut count = 0;
    for contract in contracts() {
        for provisional in [Ending::Interrupted { alone: true }, Ending::CutOff] {
            let mut story = Story::new(contract.clone());
            assert!(story.tell(Event::Begin(this_request())));
            assert!(story.tell(Event::End(1, provisional)));
            count += tell_all(&story, 4);
        }
    }
    println!("{count} histories");
}

#[test]
fn four_deliveries_leave_the_same_facts_however_each_of_them_ends() {
    fn go_on(story: &Story, left: u32) -> u64 {
        if left == 0 || story.facts.proof.is_some() {
            return 1;
        }
        let ended = |ending| {
            let mut longer = story.clone();
            assert!(longer.tell(Event::Begin(this_request())));
            assert!(longer.tell(Event::End(longer.facts.attempts, ending)));
            go_on(&longer, left - 1)
        };
        endings(story.facts.attempts + 1).map(ended).sum()
    }
    for contract in contracts() {
        println!("{} histories", go_on(&Story::new(contract), 4));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_facts_carried_along_are_those_worked_out_anew_in_long_histories(
        contract in 0..2_usize,
        draws in proptest::collection::vec(any::<prop::sample::Index>(), 1..40),
    ) {
        let mut story = Story::new(contracts()[contract].clone());
        for draw in draws {
            let events = story.events();
            if !events.is_empty() {
                story.tell(draw.get(&events).clone());
            }
        }
    }
}
