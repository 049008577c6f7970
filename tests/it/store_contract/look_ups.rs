//! What a look-up finds, and what follows from it.

use crate::support::{Place, World, crm, history, key, site};
use handoff::outbox::facts::AttemptKind;
use handoff::outbox::look_up::{Content, Finding};
use handoff::outbox::outcome::Report;
use handoff::outbox::state::{BlockReason, State};
use handoff::store::OperationRow;
use std::time::Duration;

/// A CRM that creates at every call, and can be asked for a key.
const LOOK_UP: &str =
    r#"mode = "look_up", settle_delay = "5s", look_up = { polls = 2, interval = "20s" }"#;
/// One that overwrites, and is asked first.
const UPSERT: &str =
    r#"mode = "upsert", window = "forever", look_up = { polls = 1, interval = "20s" }"#;
const SETTLE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(20);
const LOSE: &str = r#"{ on = "attempt", n = 1, fault = "lose_reply" }"#;

fn found(content: Content) -> Finding {
    Finding::Found { remote_id: Some("7".to_owned()), content }
}

/// One operation whose first delivery has ended unknown.
async fn in_doubt(place: &'static dyn Place, contract: &str) -> World {
    let world = World::on(place, &crm(contract, "", "")).await;
    world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world
}

/// Begins the one delivery that is due, makes it, and saves what came of it.
async fn deliver(world: &World) {
    let attempt = world.begin_one().await;
    let report = world.deliver(&attempt).await;
    world.save(&[world.conclude(attempt, report)]).await;
}

async fn row(world: &World) -> OperationRow {
    world.row(&key("case-104")).await
}

/// Time passes until it is due.
async fn wait(world: &mut World) {
    let due = row(world).await.due_at.unwrap();
    world.pass_time(due.since(world.now.wall));
}

fn standing(row: &OperationRow) -> (State, Option<BlockReason>, Option<&str>, Option<&str>) {
    (row.state, row.blocked_reason, row.remote_id.as_deref(), row.settled_by.as_deref())
}

pub(super) async fn a_lost_reply_is_looked_up_and_settled_without_a_second_task(
    place: &'static dyn Place,
) {
    for contract in [LOOK_UP, UPSERT] {
        let mut world = World::on(place, &crm(contract, LOSE, "")).await;
        let key = world.approve("case-104").await;
        world.turn_to_the_end().await;
        let row = row(&world).await;
        assert_eq!(standing(&row), (State::Sent, None, Some("1"), Some("look_up")), "{contract}");
        assert_eq!((world.site.task_count(), row.attempts), (1, 1), "{contract}");
        let history = world.store.history(&key).await.unwrap();
        let kinds: Vec<AttemptKind> = history.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [AttemptKind::Deliver, AttemptKind::LookUp]);
        history::check(&world).await;
    }
}

pub(super) async fn a_look_up_begins_only_when_the_receiver_can_act_no_more(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    assert_eq!(row(&world).await.due_at, Some(world.now.wall.plus(SETTLE)));
    world.pass_time(SETTLE.saturating_sub(Duration::from_millis(1)));
    assert!(world.begin().await.begun.is_empty());
    world.pass_time(Duration::from_millis(1));
    let look_up = world.begin_one().await;
    // It is on disk before it is made, and costs no try.
    let facts = row(&world).await.facts;
    assert_eq!((facts.asks, facts.spent, facts.attempts), (1, 1, 1));
    let open = facts.open.unwrap();
    assert_eq!((open.kind, open.number), (AttemptKind::LookUp, look_up.id().number));
    history::check(&world).await;
}

pub(super) async fn each_finding_ends_as_the_table_says(place: &'static dyn Place) {
    let conflict = (State::Blocked, Some(BlockReason::Conflict), None, None);
    let sent = (State::Sent, None, Some("7"), Some("look_up"));
    let again = (State::Pending, None, None, None);
    for (finding, expected, effect) in [
        (found(Content::Equal), sent, "confirmed"),
        (found(Content::NotCompared), sent, "confirmed"),
        (found(Content::Differs), conflict, "possible"),
        (Finding::Many, conflict, "possible"),
        (Finding::Absent, again, "possible"),
        (Finding::CannotTell { not_before: None }, again, "possible"),
    ] {
        let mut world = in_doubt(place, LOOK_UP).await;
        wait(&mut world).await;
        world.look_up(finding.clone()).await;
        let row = row(&world).await;
        assert_eq!(standing(&row), expected, "{finding:?}");
        assert_eq!(row.effect.as_str(), effect, "{finding:?}");
        history::check(&world).await;
    }
}

pub(super) async fn an_absence_is_believed_after_the_declared_look_ups_and_licenses_no_repeat(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    wait(&mut world).await;
    world.look_up(Finding::Absent).await;
    let first = row(&world).await;
    assert_eq!((first.facts.absences, first.state), (1, State::Pending));
    assert_eq!(first.due_at, Some(world.now.wall.plus(INTERVAL)));
    wait(&mut world).await;
    world.look_up(Finding::Absent).await;
    let second = row(&world).await;
    assert_eq!(
        standing(&second),
        (State::Blocked, Some(BlockReason::Ambiguous), None, None),
        "nothing is created again"
    );
    world.pass_time(Duration::from_secs(86_400));
    assert!(world.turn().await.is_idle());
    history::check(&world).await;
}

pub(super) async fn a_look_up_that_cannot_tell_is_made_again_as_often_as_the_budget_says(
    place: &'static dyn Place,
) {
    let down = r#"{ on = "attempt", n = 1, fault = "lose_reply" },
                  { on = "look_up", fault = "unreachable" }"#;
    let config = crm(LOOK_UP, down, "max_attempts = 3");
    let mut world = World::on(place, &config).await;
    let key = world.approve("case-104").await;
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Blocked, Some(BlockReason::Ambiguous), None, None));
    assert_eq!((row.facts.asks, row.facts.spent), (3, 1));
    assert_eq!(world.store.history(&key).await.unwrap().len(), 4);
    assert!(row.last_error.unwrap().contains("unreachable"));
    history::check(&world).await;
}

pub(super) async fn a_receiver_that_acts_late_is_found_by_the_second_look_up(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, LOOK_UP).await;
    wait(&mut world).await;
    // It acts within no delay that it has declared; the first look-up is too early.
    let attempt = world.begin_one().await;
    let report = world.ask(&attempt).await;
    world.save(&[world.found(attempt, report)]).await;
    assert_eq!(row(&world).await.facts.absences, 1);
    world.site.put_task(&key("case-104"), &site::payload("case-104", site::TITLE));
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Sent, None, Some("1"), Some("look_up")));
    history::check(&world).await;
}

pub(super) async fn several_records_or_other_content_block_as_a_conflict(
    place: &'static dyn Place,
) {
    let payload = site::payload("case-104", site::TITLE);
    for tasks in [vec![payload.as_str(), payload.as_str()], vec!["{}"]] {
        let mut world = in_doubt(place, LOOK_UP).await;
        tasks.iter().for_each(|task| world.site.put_task(&key("case-104"), task));
        world.turn_to_the_end().await;
        let row = row(&world).await;
        assert_eq!(standing(&row), (State::Blocked, Some(BlockReason::Conflict), None, None));
        assert_eq!(world.site.task_count(), tasks.len());
        history::check(&world).await;
    }
}

pub(super) async fn what_a_person_has_edited_is_not_overwritten_by_a_repeat(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &crm(UPSERT, LOSE, "")).await;
    world.approve("case-104").await;
    deliver(&world).await;
    world.site.change_crm("UPDATE tasks SET payload = '{\"title\":\"edited\"}'");
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Blocked, Some(BlockReason::Conflict), None, None));
    let kept = world.site.crm("SELECT payload FROM tasks");
    assert!(format!("{kept:?}").contains("edited"), "{kept:?}");
}

pub(super) async fn what_was_never_made_is_delivered_after_an_absence_where_a_repeat_is_allowed(
    place: &'static dyn Place,
) {
    let mut world = in_doubt(place, UPSERT).await;
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Sent, None, Some("1"), Some("reply")));
    assert_eq!((row.attempts, world.site.task_count()), (2, 1));
    history::check(&world).await;
}

pub(super) async fn a_look_up_of_a_dead_process_changes_nothing_and_is_made_again(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &crm(LOOK_UP, LOSE, "")).await;
    let key = world.approve("case-104").await;
    deliver(&world).await;
    wait(&mut world).await;
    drop(world.begin_one().await);
    let before = row(&world).await;
    let mut world = world.restart().await;
    history::check(&world).await;
    let after = row(&world).await;
    assert_eq!(after.facts.possible, before.facts.possible);
    assert_eq!((after.facts.spent, after.facts.solo_crashes), (1, 0));
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Sent, None, Some("1"), Some("look_up")));
    let outcomes: Vec<_> = world.store.history(&key).await.unwrap();
    let outcomes: Vec<_> = outcomes.iter().map(|one| one.outcome.unwrap().as_str()).collect();
    assert_eq!(outcomes, ["unknown", "interrupted", "found"]);
    history::check(&world).await;
}

pub(super) async fn an_absence_at_another_account_proves_nothing(place: &'static dyn Place) {
    let mut world = in_doubt(place, LOOK_UP).await;
    world.reconfigure(&crm(LOOK_UP, "", "").replace("crm.db", "moved.db")).await;
    world.turn_to_the_end().await;
    let row = row(&world).await;
    assert_eq!(standing(&row), (State::Blocked, Some(BlockReason::Ambiguous), None, None));
    assert_eq!((row.facts.absences, row.facts.asks), (0, 0));
}
