//! What a person may do, and what is kept of it.

use super::{KEYED, NONE, keyed};
use crate::support::{Place, Value, World, crm, history};
use handoff::outbox::outcome::{NotTakenWhy, Report};
use handoff::outbox::state::State;
use handoff::outbox::verbs::Deed;
use handoff::store::{Act, Acted};
use std::collections::BTreeSet;
use std::time::Duration;

fn unreachable() -> Report {
    Report::not_taken(NotTakenWhy::Unreachable, "unreachable")
}

pub(super) async fn a_retry_is_one_more_delivery_after_the_budget(place: &'static dyn Place) {
    let mut world = World::on(place, &crm(KEYED, "", "max_attempts = 1")).await;
    let key = world.approve("case-104").await;
    for _ in 0..2 {
        world.attempt(unreachable()).await;
        assert_eq!(world.row(&key).await.state, State::Blocked);
        world.pass_time(Duration::from_secs(60));
        let Acted::Done(row, _) = world.act(&key, Deed::Retry).await else { panic!() };
        assert_eq!((row.state, row.due_at), (State::Pending, Some(world.now.wall)));
        history::check(&world).await;
    }
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    history::check(&world).await;
}

pub(super) async fn a_retry_is_refused_where_the_contract_allows_no_repeat(
    place: &'static dyn Place,
) {
    let world = World::on(place, &crm(NONE, "", "")).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    let before = world.site.stored();
    let acted = world.act(&key, Deed::Retry).await;
    assert!(matches!(acted, Acted::Refused(..)), "{acted:?}");
    assert_eq!(world.site.stored(), before);
    // Nor while an attempt is under way, nor after the end.
    let world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    for deed in [Deed::Retry, Deed::Withdraw] {
        assert!(matches!(world.act(&key, deed).await, Acted::Refused(..)));
    }
    world.save(&[world.conclude(attempt, Report::applied(None))]).await;
    let before = world.site.stored();
    for deed in [Deed::Retry, Deed::Withdraw] {
        assert!(matches!(world.act(&key, deed).await, Acted::Refused(..)));
    }
    assert_eq!(world.site.stored(), before);
}

pub(super) async fn a_verb_is_bound_to_the_version_that_was_seen(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    let key = world.approve("case-104").await;
    let version = world.row(&key).await.version;
    world.attempt(unreachable()).await;
    let before = world.site.stored();
    for (key, version, moved) in [(&key, version, true), (&crate::support::key("none"), 1, false)] {
        let (who, reason) = ("ann".to_owned(), None);
        let act = Act { key: key.clone(), deed: Deed::Withdraw, version, who, reason };
        let acted = world.store.act(&world.rules, act, world.now).await.unwrap();
        let fits = match acted {
            Acted::Moved(_) => moved,
            Acted::NoSuchKey => !moved,
            other => panic!("{other:?}"),
        };
        assert!(fits);
    }
    assert_eq!(world.site.stored(), before);
}

pub(super) async fn a_withdrawn_operation_is_never_delivered(place: &'static dyn Place) {
    let mut world = World::on(place, &keyed()).await;
    let pending = world.approve("case-1").await;
    let doubtful = world.approve("case-2").await;
    assert!(matches!(world.act(&pending, Deed::Withdraw).await, Acted::Done(..)));
    world.attempt(Report::unknown("timeout")).await;
    assert!(matches!(world.act(&doubtful, Deed::Withdraw).await, Acted::Done(..)));
    world.pass_time(Duration::from_secs(86_400));
    let mut world = world.restart().await;
    assert!(world.turn().await.is_idle());
    assert_eq!(world.site.task_count(), 0);
    for (key, effect) in [(&pending, "none"), (&doubtful, "possible")] {
        let row = world.row(key).await;
        assert_eq!((row.state, row.effect.as_str()), (State::Withdrawn, effect));
    }
    history::check(&world).await;
}

pub(super) async fn every_act_is_chained_to_the_one_before(place: &'static dyn Place) {
    let world = World::on(place, &crm(KEYED, "", "max_attempts = 1")).await;
    let key = world.approve("case-104").await;
    world.attempt(unreachable()).await;
    world.act(&key, Deed::Retry).await;
    world.act(&key, Deed::Withdraw).await;
    let rows = world.site.rows("SELECT previous_hash, hash, who FROM handoff_audit ORDER BY id");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1][0], rows[0][1]);
    let hashes: BTreeSet<String> = rows.iter().map(|row| format!("{:?}", row[1])).collect();
    assert_eq!(hashes.len(), 2);
    for change in ["UPDATE handoff_audit SET who = 'eve'", "DELETE FROM handoff_audit"] {
        world.site.place().run(world.site.folder(), change).unwrap_err();
    }
    assert_eq!(world.site.value("SELECT count(*) FROM handoff_audit"), Value::Integer(2));
    assert_eq!(key, crate::support::key("case-104"));
}
