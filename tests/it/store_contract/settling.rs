//! What a person does to settle what nobody knows: has it looked up, or says what is there.

use super::NONE;
use crate::support::{Place, Value, World, crm, history, key, site};
use handoff::clock::Timestamp;
use handoff::outbox::facts::AttemptKind;
use handoff::outbox::look_up::{Content, Finding};
use handoff::outbox::outcome::{NotTakenWhy, Report};
use handoff::outbox::settle::Word;
use handoff::outbox::state::{BlockReason, Effect, State};
use handoff::outbox::verbs::{Deed, Refusal};
use handoff::store::{Acted, Event, OperationRow};
use std::sync::Arc;
use std::time::Duration;

const LOOK_UP: &str = r#"mode = "look_up", look_up = { polls = 1 }"#;
const SLOW: &str = r#"mode = "none", settle_delay = "1m""#;
const MINUTE: Duration = Duration::from_secs(60);

fn sent(remote_id: &str) -> Deed {
    Deed::Resolve(Word::Sent { remote_id: remote_id.to_owned() })
}

fn not_sent(looked_at: Timestamp) -> Deed {
    Deed::Resolve(Word::NotSent { looked_at, force: false })
}

async fn row(world: &World) -> OperationRow {
    world.row(&key("case-104")).await
}

/// One operation whose only delivery has ended unknown.
async fn in_doubt(place: &'static dyn Place, contract: &str) -> World {
    let world = World::on(place, &crm(contract, "", "")).await;
    world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world
}

async fn done(world: &World, deed: Deed) -> OperationRow {
    match world.act(&key("case-104"), deed).await {
        Acted::Done(row, _) => *row,
        other => panic!("{other:?}"),
    }
}

async fn refused(world: &World, deed: Deed) -> Refusal {
    let before = world.site.stored();
    let refusal = match world.act(&key("case-104"), deed).await {
        Acted::Refused(_, refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(world.site.stored(), before, "{refusal}");
    refusal
}

pub(super) async fn a_reconciliation_looks_once_and_settles_what_is_found(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    world.turn_to_the_end().await;
    assert_eq!(row(&world).await.blocked_reason, Some(BlockReason::Ambiguous));
    // A task turns up, and a person has it looked up.
    world.site.put_task(&key("case-104"), &site::payload("case-104", site::TITLE));
    let asked = done(&world, Deed::Reconcile).await;
    assert_eq!((asked.state, asked.due_at), (State::Pending, Some(world.now.wall)));
    history::check(&world).await;
    world.turn().await;
    let row = row(&world).await;
    assert_eq!((row.state, row.settled_by.as_deref()), (State::Sent, Some("look_up")));
    assert_eq!((row.attempts, world.site.task_count()), (1, 1));
    history::check(&world).await;
}

pub(super) async fn a_reconciliation_that_finds_nothing_leaves_it_with_the_person(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    world.turn_to_the_end().await;
    let before = row(&world).await;
    done(&world, Deed::Reconcile).await;
    world.turn_to_the_end().await;
    let after = row(&world).await;
    assert_eq!((after.state, after.blocked_reason), (before.state, before.blocked_reason));
    assert_eq!((after.attempts, world.site.task_count()), (1, 0));
    assert_eq!(world.store.history(&key("case-104")).await.unwrap().len(), 3);
    history::check(&world).await;
}

pub(super) async fn what_is_withdrawn_is_sent_if_a_look_up_finds_it_and_that_is_said(
    place: &'static dyn Place,
) {
    let world = in_doubt(place, LOOK_UP).await;
    done(&world, Deed::Withdraw).await;
    done(&world, Deed::Reconcile).await;
    assert!(matches!(refused(&world, Deed::Retry).await, Refusal::State { .. }));
    let found = Finding::Found { remote_id: Some("7".to_owned()), content: Content::Equal };
    let events = world.look_up(found).await;
    let [Event::Ended { after_withdrawal, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert!(after_withdrawal);
    assert_eq!(row(&world).await.state, State::Sent);
    history::check(&world).await;
    // And stays withdrawn if it finds nothing.
    let world = in_doubt(place, LOOK_UP).await;
    done(&world, Deed::Withdraw).await;
    done(&world, Deed::Reconcile).await;
    world.look_up(Finding::Absent).await;
    assert_eq!(row(&world).await.state, State::Withdrawn);
    history::check(&world).await;
}

pub(super) async fn no_reconciliation_where_the_receiver_cannot_be_asked(
    place: &'static dyn Place,
) {
    let world = in_doubt(place, NONE).await;
    assert_eq!(refused(&world, Deed::Reconcile).await, Refusal::NoLookUp);
    let mut world = World::on(place, &crm(LOOK_UP, "", "")).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    assert_eq!(refused(&world, Deed::Reconcile).await, Refusal::InFlight);
    world.save(&[world.conclude(attempt, Report::applied(None))]).await;
    assert!(matches!(refused(&world, Deed::Reconcile).await, Refusal::State { .. }));
    assert!(world.turn().await.is_idle());
}

pub(super) async fn a_look_up_that_can_no_longer_be_made_is_not_waited_for(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    world.turn_to_the_end().await;
    done(&world, Deed::Reconcile).await;
    world.site.tamper("UPDATE handoff_outbox SET settled_by = 'nobody knows this word'");
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!((row.state, row.blocked_reason), (State::Blocked, Some(BlockReason::Invalid)));
}

pub(super) async fn a_person_vouches_for_what_was_sent_and_a_reply_outranks_it(
    place: &'static dyn Place,
) {
    let world = in_doubt(place, NONE).await;
    let row_now = done(&world, sent("4711")).await;
    assert_eq!((row_now.state, row_now.effect), (State::Sent, Effect::Confirmed));
    assert_eq!(row_now.remote_id.as_deref(), Some("4711"));
    assert_eq!(row_now.settled_by.as_deref(), Some("person:ann"));
    history::check(&world).await;
    assert!(matches!(refused(&world, sent("4712")).await, Refusal::State { .. }));
    let audit = world.site.value("SELECT verb || ' ' || reason FROM handoff_audit");
    assert_eq!(audit, Value::Text("resolve because".to_owned()));
}

pub(super) async fn not_sent_begins_anew_with_the_same_key_and_payload(place: &'static dyn Place) {
    let mut world = World::on(place, &crm(NONE, "", "max_attempts = 1")).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world.pass_time(MINUTE);
    let fingerprint = row(&world).await.fingerprint;
    let anew = done(&world, not_sent(world.now.wall)).await;
    assert_eq!((anew.state, anew.effect), (State::Pending, Effect::None));
    assert_eq!(anew.fingerprint, fingerprint);
    assert_eq!((anew.facts.spent, anew.facts.budget_start), (0, None));
    history::check(&world).await;
    world.turn().await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.attempts, world.site.task_count()), (State::Sent, 2, 1));
    history::check(&world).await;
}

pub(super) async fn whoever_looked_too_early_is_refused_unless_it_is_forced(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, SLOW).await;
    let ended = world.now.wall;
    world.pass_time(MINUTE);
    for early in [ended, ended.plus(MINUTE.saturating_sub(Duration::from_millis(1)))] {
        let until = ended.plus(MINUTE);
        assert_eq!(refused(&world, not_sent(early)).await, Refusal::TooEarly { until });
    }
    let later = world.now.wall.plus(Duration::from_millis(1));
    let not_yet = Refusal::NotYetLooked { looked_at: later };
    assert_eq!(refused(&world, not_sent(later)).await, not_yet);
    done(&world, not_sent(ended.plus(MINUTE))).await;
    let world = in_doubt(place, SLOW).await;
    let forced = Word::NotSent { looked_at: world.now.wall, force: true };
    done(&world, Deed::Resolve(forced)).await;
    history::check(&world).await;
}

pub(super) async fn a_persons_own_word_can_be_taken_back_and_no_others(place: &'static dyn Place) {
    let world = in_doubt(place, NONE).await;
    done(&world, sent("4711")).await;
    let anew = done(&world, not_sent(world.now.wall)).await;
    assert_eq!((anew.state, anew.remote_id, anew.settled_by), (State::Pending, None, None));
    assert_eq!(anew.sent_at, None);
    history::check(&world).await;
    world.attempt(Report::applied(Some("1".to_owned()))).await;
    assert!(matches!(refused(&world, not_sent(world.now.wall)).await, Refusal::State { .. }));
    history::check(&world).await;
}

/// Interrupted, said not to have been sent, and delivered again: under way.
async fn delivered_again(
    place: &'static dyn Place,
) -> (World, Arc<handoff::store::Concluded>, handoff::store::Attempt) {
    let world = World::on(place, &crm(NONE, "", "")).await;
    world.approve("case-104").await;
    let first = world.begin_one().await;
    let late = world.conclude(first, Report::applied(Some("1".to_owned())));
    // Another process takes this one for dead.
    let neighbour = world.neighbour("neighbour").await;
    neighbour.recover(&world.rules, None, world.now).await.unwrap();
    done(&world, not_sent(world.now.wall)).await;
    let second = world.begin_one().await;
    (world, late, second)
}

pub(super) async fn an_earlier_attempt_that_answers_after_not_sent_changes_no_doubt_of_a_later_one(
    place: &'static dyn Place,
) {
    let world = World::on(place, &crm(NONE, "", "")).await;
    world.approve("case-104").await;
    let first = world.begin_one().await;
    let refused = Report::not_taken(NotTakenWhy::Unreachable, "unreachable");
    let late = world.conclude(first, refused);
    let neighbour = world.neighbour("neighbour").await;
    neighbour.recover(&world.rules, None, world.now).await.unwrap();
    done(&world, not_sent(world.now.wall)).await;
    let second = world.begin_one().await;
    world.save(&[late]).await;
    let during = row(&world).await;
    assert_eq!((during.effect, during.facts.spent), (Effect::Possible, 0));
    world.save(&[world.conclude(second, Report::unknown("timeout"))]).await;
    let row = row(&world).await;
    assert_eq!((row.state, row.blocked_reason), (State::Blocked, Some(BlockReason::Ambiguous)));
    assert_eq!(row.facts.possible.as_ref().map(|possible| possible.count), Some(1));
    history::check(&world).await;
}

pub(super) async fn a_success_after_not_sent_and_another_delivery_is_two_receipts(
    place: &'static dyn Place,
) {
    let (world, late, second) = delivered_again(place).await;
    world.save(&[world.conclude(second, Report::applied(Some("2".to_owned())))]).await;
    let events = world.save(&[late]).await;
    let [Event::Ended { receipt_mismatch, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert!(receipt_mismatch);
    assert_eq!(row(&world).await.remote_id.as_deref(), Some("2"));
    let receipts = world.site.rows("SELECT remote_id FROM handoff_attempts ORDER BY number");
    assert_eq!(receipts.len(), 2, "both are on record: {receipts:?}");
    let kinds = world.store.history(&key("case-104")).await.unwrap();
    assert!(kinds.iter().all(|one| one.kind == AttemptKind::Deliver));
}

pub(super) async fn the_same_word_said_twice_is_refused_the_second_time(place: &'static dyn Place) {
    let world = in_doubt(place, NONE).await;
    let version = row(&world).await.version;
    let act = handoff::store::Act {
        key: key("case-104"),
        deed: not_sent(world.now.wall),
        version,
        who: "ann".to_owned(),
        reason: Some("looked".to_owned()),
    };
    let first = world.store.act(&world.rules, act.clone(), world.now).await.unwrap();
    assert!(matches!(first, Acted::Done(..)));
    let before = world.site.stored();
    let second = world.store.act(&world.rules, act, world.now).await.unwrap();
    assert!(matches!(second, Acted::Moved(_)));
    assert_eq!(world.site.stored(), before);
}

pub(super) async fn an_absence_that_was_looked_for_too_early_counts_for_nothing(
    place: &'static dyn Place,
) {
    let slow = r#"mode = "look_up", settle_delay = "1m", look_up = { polls = 1 }"#;
    let mut world = in_doubt(place, slow).await;
    let ended = world.now.wall;
    done(&world, Deed::Reconcile).await;
    world.look_up(Finding::Absent).await;
    let early = row(&world).await;
    assert_eq!((early.state, early.facts.absences), (State::Pending, 0));
    let code = "SELECT error_code FROM handoff_attempts WHERE kind = 'look_up'";
    assert_eq!(world.site.value(code), Value::Text("not_counted".to_owned()));
    assert!(early.due_at >= Some(ended.plus(MINUTE)), "{:?}", early.due_at);
    history::check(&world).await;
    // What the receiver did meanwhile is found when it can act no more.
    world.site.put_task(&key("case-104"), &site::payload("case-104", site::TITLE));
    world.turn_to_the_end().await;
    assert_eq!(row(&world).await.state, State::Sent);
    history::check(&world).await;
}
