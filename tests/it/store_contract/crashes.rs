//! What a new process makes of the attempts that the old one left open.

use super::{KEYED, NONE, keyed};
use crate::support::place::text;
use crate::support::{Place, Value, World, crm, history};
use handoff::outbox::outcome::Report;
use handoff::outbox::state::{BlockReason, State};
use handoff::store::{Pass, Slots};
use std::collections::BTreeMap;

pub(super) async fn an_attempt_of_a_dead_process_is_interrupted(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    let key = world.approve("case-104").await;
    let attempt = world.begin_one().await;
    let (world, recovered) = world.crash().await;
    drop(attempt);
    assert_eq!(recovered.interrupted.len(), 1);
    let row = world.row(&key).await;
    assert_eq!((row.state, row.effect.as_str(), row.facts.spent), (State::Pending, "possible", 1));
    assert_eq!(row.due_at, Some(world.now.wall), "the next attempt waits for nothing");
    let outcome = "SELECT outcome, spent FROM handoff_attempts";
    assert_eq!(world.site.rows(outcome), [[text("interrupted"), Value::Integer(1)]]);
    let before = world.site.stored();
    let (world, recovered) = world.crash().await;
    assert!(recovered.interrupted.is_empty());
    assert_eq!(world.site.stored(), before);
    history::check(&world).await;
}

pub(super) async fn an_open_attempt_whose_row_is_gone_is_in_doubt_and_stops_nothing(
    place: &'static dyn Place,
) {
    let world = World::on(place, &keyed()).await;
    let key = world.approve("case-104").await;
    drop(world.begin_one().await);
    // Damage does not ask the triggers.
    world.site.tamper("DROP TRIGGER handoff_attempts_kept");
    world.site.tamper("DELETE FROM handoff_attempts");
    let mut world = world.restart().await;
    let row = world.row(&key).await;
    let reason = Some(BlockReason::WindowClosed);
    assert_eq!((row.state, row.blocked_reason), (State::Blocked, reason), "another request");
    let healthy = world.approve("case-105").await;
    world.turn().await;
    assert_eq!(world.row(&healthy).await.state, State::Sent);
}

pub(super) async fn an_attempt_of_an_unreadable_process_stops_nothing(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    drop(world.begin_one().await);
    world.site.tamper("UPDATE handoff_attempts SET instance = CAST(x'e9' AS TEXT)");
    let mut world = world.restart().await;
    let healthy = world.approve("case-105").await;
    world.turn().await;
    assert_eq!(world.row(&healthy).await.state, State::Sent);
}

/// How often each operation alone was blamed for a crash, in order of recording.
fn blamed(world: &World) -> Vec<Value> {
    let rows = world.site.rows("SELECT solo_crashes FROM handoff_outbox ORDER BY id");
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

pub(super) async fn a_crash_with_one_in_flight_is_blamed_on_it(place: &'static dyn Place) {
    let mut world = World::on(place, &keyed()).await;
    world.approve("case-1").await;
    world.approve_for("case-2", world.now.wall.plus(std::time::Duration::from_secs(60))).await;
    for crashes in 1..=2 {
        drop(world.begin_one().await);
        world = world.restart().await;
        assert_eq!(blamed(&world), [Value::Integer(crashes), Value::Integer(0)]);
    }
    history::check(&world).await;
}

pub(super) async fn a_crash_with_several_in_flight_is_blamed_on_none(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    for case in ["case-1", "case-2"] {
        world.approve(case).await;
    }
    assert_eq!(world.begin().await.begun.len(), 2);
    let world = world.restart().await;
    assert_eq!(blamed(&world), [Value::Integer(0), Value::Integer(0)]);
    history::check(&world).await;
}

pub(super) async fn a_crash_with_one_suspect_in_flight_is_blamed_on_the_suspect(
    place: &'static dyn Place,
) {
    let world = World::on(place, &keyed()).await;
    for case in ["case-1", "case-2"] {
        world.approve(case).await;
    }
    assert_eq!(world.begin().await.begun.len(), 2);
    let world = world.restart().await;
    world.approve("case-3").await;
    let begun = world.begin().await.begun;
    let suspects: Vec<bool> = begun.iter().map(|attempt| attempt.is_suspect()).collect();
    assert_eq!(suspects, [true, false], "one of the two suspects, and the new one beside it");
    drop(begun);
    let world = world.restart().await;
    assert_eq!(blamed(&world), [1, 0, 0].map(Value::Integer));
    history::check(&world).await;
}

pub(super) async fn three_crashes_with_one_alone_in_flight_block_it_as_crashed(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &keyed()).await;
    let key = world.approve("case-1").await;
    for _ in 1..=3 {
        assert_eq!(world.row(&key).await.state, State::Pending);
        let attempt = world.begin_one().await;
        drop(world.deliver(&attempt).await);
        world = world.restart().await;
    }
    let row = world.row(&key).await;
    assert_eq!((row.state, row.blocked_reason), (State::Blocked, Some(BlockReason::Crashed)));
    assert_eq!((row.effect.as_str(), row.facts.spent, row.remote_id), ("possible", 3, None));
    world.approve("case-2").await;
    world.turn().await;
    assert_eq!((world.row(&key).await.state, world.site.task_count()), (State::Blocked, 2));
    history::check(&world).await;
}

pub(super) async fn a_crash_where_nothing_may_be_repeated_is_ambiguous_at_once(
    place: &'static dyn Place,
) {
    let world = World::on(place, &crm(NONE, "", "")).await;
    world.approve("case-104").await;
    drop(world.begin_one().await);
    let mut world = world.restart().await;
    let blocked = ("blocked".into(), Some("ambiguous".into()), "possible".into(), 1, None);
    assert_eq!(world.site.standing(), blocked);
    world.turn_to_the_end().await;
    assert_eq!((world.site.standing(), world.site.task_count()), (blocked, 0));
    history::check(&world).await;
}

pub(super) async fn suspects_are_tried_one_at_a_time_with_others_beside_them(
    place: &'static dyn Place,
) {
    let mail = crm(KEYED, "", "").replace("receivers.crm", "receivers.mail");
    let types = ["create-followup", "send-mail"].map(|kind| {
        let receiver = if kind == "send-mail" { "mail" } else { "crm" };
        format!(
            "[operations.{kind}]\nreceiver = \"{receiver}\"\nsubject = \"case_id\"\n\
             schema = \"builtin:create-followup\"\n"
        )
    });
    let world = World::on(place, &[keyed(), mail, types.concat()].concat()).await;
    for case in ["a", "b", "c"] {
        world.approve(case).await;
        let (kind, receiver) = ("send-mail", "mail");
        world.site.tamper(&format!(
            "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
             VALUES ('harbor:{kind}:v1:{case}', '{receiver}',
                     '{{\"case_id\":\"{case}\",\"title\":\"x\"}}', 'ann')"
        ));
    }
    assert_eq!(world.begin().await.begun.len(), 6);
    let world = world.restart().await;
    for case in ["d", "e"] {
        world.approve(case).await;
    }
    let begun = world.begin().await.begun;
    let shown: Vec<_> =
        begun.iter().map(|one| (one.receiver(), one.key().subject(), one.is_suspect())).collect();
    let one_each_and_the_new_ones =
        [("crm", "a", true), ("crm", "d", false), ("crm", "e", false), ("mail", "a", true)];
    assert_eq!(shown, one_each_and_the_new_ones);
    // While they are under way there is no room for a suspect.
    let slots = Slots { free: 100, suspect: false };
    let slots = ["crm", "mail"].map(|name| (name.to_owned(), slots));
    let pass = Pass { slots: BTreeMap::from(slots), ..Pass::default() };
    let passed = world.store.pass(&world.rules, pass, world.now).await.unwrap();
    assert!(passed.begun.is_empty());
    drop(begun);
    let mut world = world.restart().await;
    let progress = world.step().await;
    assert_eq!(progress.begun, 2, "the supervisor asks for one suspect of each receiver");
    world.turn().await;
    let unsent = "SELECT count(*) FROM handoff_outbox WHERE state <> 'sent'";
    assert_eq!(world.site.value(unsent), Value::Integer(0));
    history::check(&world).await;
}

pub(super) async fn a_suspect_that_got_its_answer_is_none_any_more(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    let key = world.approve("case-104").await;
    drop(world.begin_one().await);
    let mut world = world.restart().await;
    assert_eq!(world.site.value("SELECT suspect FROM handoff_outbox"), Value::Integer(1));
    world.attempt(Report::unknown("timeout")).await;
    assert_eq!(world.site.value("SELECT suspect FROM handoff_outbox"), Value::Integer(0));
    let due = world.row(&key).await.due_at.unwrap();
    world.pass_time(due.since(world.now.wall));
    assert!(!world.begin_one().await.is_suspect());
    history::check(&world).await;
}
