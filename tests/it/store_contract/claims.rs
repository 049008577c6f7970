//! What begins, how many at once, and in which order.

use super::{KEYED, keyed};
use crate::support::place::text;
use crate::support::{Place, Value, World, crm, history, key};
use handoff::clock::Timestamp;
use handoff::outbox::outcome::Report;
use handoff::store::{Event, Pass, Slots};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn an_attempt_is_stored_before_it_is_handed_out(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    let stored = world.site.rows("SELECT operation_key, number, outcome FROM handoff_attempts");
    assert_eq!(stored, [[text(&key("case-104")), Value::Integer(1), Value::Null]]);
    assert_eq!(world.site.standing(), ("pending".into(), None, "possible".into(), 1, None));
    assert_eq!((attempt.delivery(), attempt.id().number), (1, 1));
    history::check(&world).await;
}

pub(super) async fn two_processes_never_begin_the_same_operation(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    for number in 0..40 {
        world.approve(&format!("case-{number}")).await;
    }
    let mut tasks = Vec::new();
    for instance in ["left", "right"] {
        let store = world.neighbour(instance).await;
        let (rules, now) = (Arc::clone(&world.rules), world.now);
        tasks.push(tokio::spawn(async move {
            let slots = BTreeMap::from([("crm".to_owned(), Slots { free: 3, suspect: true })]);
            let mut begun = Vec::new();
            loop {
                let pass = Pass { slots: slots.clone(), ..Pass::default() };
                let passed = store.pass(&rules, pass, now).await.unwrap();
                if passed.begun.is_empty() {
                    return begun;
                }
                begun.extend(passed.begun.into_iter().map(|attempt| attempt.id().clone()));
            }
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert_eq!(all.len(), 40);
    assert!(all.iter().all(|id| id.number == 1));
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 40);
}

pub(super) async fn no_operation_begins_while_another_attempt_of_it_is_open(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    world.pass_time(Duration::from_secs(86_400 * 365));
    let before = world.site.stored();
    assert!(world.begin().await.begun.is_empty());
    assert_eq!(world.site.stored(), before);
    drop(attempt);
}

pub(super) async fn operations_begin_by_due_time_and_then_in_order_of_recording(
    place: &'static dyn Place,
) {
    let world = World::on(place, &keyed()).await;
    let early = world.now.wall.minus(Duration::from_secs(1));
    let late = Timestamp::from_millis(early.as_millis() + 500);
    for (case, time) in [("z", late), ("c", early), ("a", early), ("b", late)] {
        world.approve_for(case, time).await;
    }
    let begun = world.begin().await.begun;
    let keys: Vec<&str> = begun.iter().map(|attempt| attempt.key().subject()).collect();
    assert_eq!(keys, ["c", "a", "z", "b"]);
}

pub(super) async fn no_more_begins_than_there_is_room(place: &'static dyn Place) {
    let config = format!("{}concurrency = 2", crm(KEYED, "", ""));
    let mut world = World::on(place, &config).await;
    for number in 0..5 {
        world.approve(&format!("case-{number}")).await;
    }
    let progress = world.step().await;
    assert_eq!(progress.begun, 2);
    let open = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NULL";
    assert_eq!(world.site.value(open), Value::Integer(2));
    world.turn().await;
    assert_eq!(world.site.task_count(), 5);
}

pub(super) async fn what_was_committed_without_our_knowing_is_disowned_and_spends_nothing(
    place: &'static dyn Place,
) {
    let world = World::on(place, &keyed()).await;
    let [first, second, third] = ["case-1", "case-2", "case-3"].map(|case| (case, key(case)));
    for (case, _) in [&first, &second] {
        world.approve(case).await;
    }
    let mut begun = world.begin().await.begun;
    let held = begun.remove(0);
    world.approve(third.0).await;
    let other = world.neighbour("other").await;
    assert_eq!(other.pass(&world.rules, world.room(), world.now).await.unwrap().begun.len(), 1);
    drop(begun);
    let holding = vec![held.id().clone()];
    let events = world.store.disown(&world.rules, holding.clone(), world.now).await.unwrap();
    let ends = events.iter().map(|event| match event {
        Event::Ended { id, outcome, .. } => (id.key.as_ref(), outcome.as_str()),
        Event::Settled { .. } | Event::Fenced { .. } => panic!("{event:?}"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(second.1.as_str(), "not_taken")]);
    let left = "SELECT operation_key, outcome, error_code, spent FROM handoff_attempts
                 WHERE outcome IS NOT NULL";
    let stale = [text(&second.1), text("not_taken"), text("not_begun"), Value::Integer(0)];
    assert_eq!(world.site.rows(left), [stale.to_vec()]);
    let row = world.row(&second.1).await;
    assert_eq!((row.effect.as_str(), row.facts.spent), ("none", 0));
    assert_eq!(row.due_at, Some(world.now.wall), "it is due at once");
    assert_eq!(world.row(&first.1).await.facts.open.map(|open| open.number), Some(1));
    assert_eq!(world.row(&third.1).await.facts.open.map(|open| open.number), Some(1));
    let again = world.store.disown(&world.rules, holding, world.now).await.unwrap();
    assert!(again.is_empty());
    assert_eq!(world.begin_one().await.id().number, 2);
    world.save(&[world.conclude(held, Report::applied(Some("7".into())))]).await;
    history::check(&world).await;
}
