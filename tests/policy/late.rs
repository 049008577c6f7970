//! Late answers: one that comes after its delivery was taken for lost, while
//! others have begun or ended.

use crate::history::Event;
use crate::space::{at, this_request};
use crate::story::Story;
use handoff::clock::Now;
use handoff::outbox::contract::{Contract, Exists, Window};
use handoff::outbox::facts::{Answer, Ended, Facts, Possible, Proof};
use handoff::outbox::outcome::{Ending, NotTakenWhy, Outcome};
use handoff::outbox::policy::Step;
use handoff::outbox::state::{BlockReason, Effect, SettledBy};

const INTERRUPTED: Ending = Ending::Interrupted { alone: false };

fn keyed() -> Contract {
    Contract::idempotency_key(Window::Forever)
}

fn exists_proves() -> Contract {
    Contract::create_only(Window::Forever, Exists::Proof)
}

fn applied(remote_id: Option<&str>) -> Ending {
    Ending::Outcome(Outcome::Applied { remote_id: remote_id.map(str::to_owned), replayed: false })
}

fn exists(remote_id: Option<&str>) -> Ending {
    Ending::Outcome(Outcome::AlreadyExists { remote_id: remote_id.map(str::to_owned) })
}

fn not_taken(why: NotTakenWhy) -> Ending {
    Ending::Outcome(Outcome::NotTaken { why, not_before: None })
}

/// Deliveries that begin and end one after another.
fn story(contract: Contract, endings: impl IntoIterator<Item = Ending>) -> Story {
    let mut story = Story::new(contract);
    for ending in endings {
        begin(&mut story);
        let number = story.facts.attempts;
        end(&mut story, number, ending);
    }
    story
}

fn begin(story: &mut Story) {
    assert!(story.tell(Event::Begin(this_request())));
}

fn end(story: &mut Story, number: u32, ending: Ending) {
    assert!(story.tell(Event::End(number, ending)));
}

#[test]
fn a_late_refused_connection_takes_the_doubt_away() {
    let mut story = story(Contract::none(), [INTERRUPTED]);
    assert_eq!(story.step(), Step::Block(BlockReason::Ambiguous));
    end(&mut story, 1, not_taken(NotTakenWhy::Stale));
    assert_eq!(story.facts.effect(&Contract::none()), Effect::None);
    assert_eq!(story.facts.spent, 0);
    assert_eq!(story.step(), Step::Deliver);
}

#[test]
fn a_late_success_is_kept_from_whatever_state() {
    let mut blocked = story(Contract::none(), [Ending::CutOff]);
    end(&mut blocked, 1, applied(Some("7")));
    assert_eq!(blocked.step(), Step::Sent);

    let mut withdrawn = story(keyed(), [INTERRUPTED]);
    assert!(withdrawn.tell(Event::Withdraw));
    end(&mut withdrawn, 1, applied(Some("7")));
    assert_eq!(withdrawn.step(), Step::Sent);

    let mut under_way = story(keyed(), [INTERRUPTED]);
    begin(&mut under_way);
    end(&mut under_way, 1, applied(Some("7")));
    assert_eq!(under_way.step(), Step::Sent);
    end(&mut under_way, 2, Ending::Outcome(Outcome::Conflict));
    assert_eq!(under_way.step(), Step::Sent);
}

#[test]
fn a_late_no_leaves_the_doubt_of_the_other_deliveries() {
    let mut story = story(keyed(), [INTERRUPTED, Ending::Outcome(Outcome::Unknown)]);
    end(&mut story, 1, Ending::Outcome(Outcome::Rejected));
    assert_eq!(story.facts.effect(&keyed()), Effect::Possible);
    assert_eq!(story.step(), Step::Block(BlockReason::Rejected));
}

#[test]
fn a_late_answer_brings_no_try_forward_that_another_answer_put_off() {
    let throttled = not_taken(NotTakenWhy::Throttled);
    let mut story = story(keyed(), [INTERRUPTED, throttled]);
    let put_off = story.facts.not_before;
    assert!(put_off.is_some());
    end(&mut story, 1, not_taken(NotTakenWhy::Stale));
    assert_eq!(story.facts.not_before, put_off);
}

#[test]
fn an_end_without_an_answer_takes_none_of_another_delivery_away() {
    for lost in [Ending::Outcome(Outcome::Unknown), INTERRUPTED, Ending::CutOff] {
        let mut story = story(keyed(), [INTERRUPTED]);
        begin(&mut story);
        end(&mut story, 1, Ending::Outcome(Outcome::Conflict));
        end(&mut story, 2, lost);
        assert_eq!(story.step(), Step::Block(BlockReason::Conflict));
    }
    let mut story = story(keyed(), [INTERRUPTED, Ending::Outcome(Outcome::Rejected)]);
    end(&mut story, 1, Ending::Outcome(Outcome::Unknown));
    assert_eq!(story.facts.answer, Answer::Rejected);
    assert_eq!(story.step(), Step::Block(BlockReason::Rejected));
}

#[test]
fn an_exists_that_proves_stays_a_success_whatever_another_delivery_answers_later() {
    let later = [
        Outcome::Rejected,
        Outcome::Conflict,
        Outcome::Unauthorised { whole_receiver: false },
        Outcome::Unknown,
    ];
    for late in later {
        let mut story = story(exists_proves(), [INTERRUPTED, exists(Some("8"))]);
        assert_eq!(story.step(), Step::Sent);
        end(&mut story, 1, Ending::Outcome(late));
        assert_eq!(story.step(), Step::Sent);
        assert_eq!(story.facts.effect(&exists_proves()), Effect::Confirmed);
    }
}

#[test]
fn an_exists_that_proves_is_settled_by_the_policy_until_a_reply_settles_it() {
    let proof = |id: &str, by| Some(Proof { remote_id: Some(id.to_owned()), by });
    let mut story = story(exists_proves(), [INTERRUPTED, exists(Some("8"))]);
    assert_eq!(story.facts.proof, proof("8", SettledBy::Policy));
    end(&mut story, 1, applied(Some("7")));
    assert_eq!(story.facts.proof, proof("8", SettledBy::Reply), "the first receipt stays");
}

#[test]
fn a_success_that_names_no_id_takes_none_away() {
    let mut story = story(exists_proves(), [INTERRUPTED, exists(Some("8"))]);
    end(&mut story, 1, applied(None));
    let id = Some("8".to_owned());
    assert_eq!(story.facts.proof, Some(Proof { remote_id: id, by: SettledBy::Reply }));
}

#[test]
fn the_first_receipt_stays_when_another_delivery_brings_a_second() {
    let mut story = story(keyed(), [INTERRUPTED, applied(Some("7"))]);
    end(&mut story, 1, applied(Some("9")));
    let id = Some("7".to_owned());
    assert_eq!(story.facts.proof, Some(Proof { remote_id: id, by: SettledBy::Reply }));
}

#[test]
fn a_late_success_after_a_definite_end_leaves_the_doubt_of_the_other_deliveries() {
    let refused = not_taken(NotTakenWhy::Unreachable);
    let mut story = story(keyed(), [refused, Ending::Outcome(Outcome::Unknown)]);
    let doubt = story.facts.possible.clone();
    assert!(doubt.is_some());
    end(&mut story, 1, applied(Some("7")));
    assert_eq!(story.facts.possible, doubt);
    assert_eq!(story.step(), Step::Sent);
}

#[test]
fn an_end_that_is_stored_late_does_not_move_the_last_failure_back() {
    let unknown = Ending::Outcome(Outcome::Unknown);
    let mut facts = Facts::recorded();
    let mut deliver = |number: u32, started: i64, ended: i64, others: Option<Possible>| {
        if facts.attempts < number {
            facts.delivery_begins(number, Now::at(at(started)), this_request());
        }
        let end = Ended {
            number,
            started: at(started),
            ended: at(ended),
            request: this_request(),
            ending: &unknown,
            had_spent: 0,
            not_before: None,
        };
        facts.delivery_ends(&end, others, &keyed());
        facts.failed_at
    };
    let doubt = |started, ended| Some(Possible::delivery(at(started), at(ended), this_request()));
    assert_eq!(deliver(1, 1, 2, None), Some(at(2)));
    assert_eq!(deliver(2, 5, 9, doubt(1, 2)), Some(at(9)));
    assert_eq!(deliver(1, 1, 4, doubt(5, 9)), Some(at(9)));
}
