//! Rows that cannot be delivered as they are: each stops only itself, and says so.

use super::{KEYED, keyed};
use crate::support::place::text;
use crate::support::site::{TITLE, payload};
use crate::support::{Place, Value, World, crm, history, key};
use handoff::outbox::outcome::Report;
use handoff::outbox::state::{BlockReason, Effect, State};
use handoff::outbox::verbs::Deed;
use handoff::store::Acted;

/// A type of this name, version and receiver, with more keys.
pub(super) fn kind(name: &str, version: u16, receiver: &str, more: &str) -> String {
    format!(
        "[operations.{name}]\nversion = {version}\nreceiver = \"{receiver}\"\n\
         subject = \"case_id\"\nschema = \"builtin:create-followup\"\n{more}\n"
    )
}

/// Records in plain SQL; `payload` is an expression.
fn insert(key: &str, payload: &str) -> String {
    format!(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{key}', 'crm', {payload}, 'ann')"
    )
}

async fn blocked_as_invalid(world: &World, key: &str, effect: Effect) {
    let row = world.row(key).await;
    let shown = (row.state, row.blocked_reason, row.effect);
    assert_eq!(shown, (State::Blocked, Some(BlockReason::Invalid), effect), "{row:?}");
    assert!(row.last_error.is_some_and(|error| !error.is_empty()), "it says why");
}

/// Damage does not ask the triggers.
const UNGUARDED: &str = "DROP TRIGGER IF EXISTS handoff_outbox_prepared";

pub(super) async fn an_unknown_type_parks_the_row_until_it_is_configured(
    place: &'static dyn Place,
) {
    let other = format!("{}{}", keyed(), kind("other", 1, "crm", ""));
    let mut world = World::on(place, &other).await;
    let key = world.approve("case-104").await;
    world.turn().await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.due_at, row.attempts), (State::Pending, None, 0));
    let before = world.site.stored();
    world.pass_time(std::time::Duration::from_secs(86_400));
    assert!(world.turn().await.is_idle(), "it is not looked at on every poll");
    assert_eq!(world.site.stored(), before);
    world.reconfigure(&keyed()).await;
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    history::check(&world).await;
}

pub(super) async fn an_unknown_receiver_parks_the_row_until_it_is_configured(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &keyed()).await;
    let key = world.approve("case-104").await;
    let mail = keyed().replace("receivers.crm", "receivers.mail").replace("crm.db", "mail.db");
    let mail = format!("{mail}{}", kind("other", 1, "mail", ""));
    world.reconfigure(&mail).await;
    assert!(world.turn().await.is_idle());
    assert_eq!(world.row(&key).await.state, State::Pending);
    world = world.restart().await;
    assert!(world.turn().await.is_idle());
    world.reconfigure(&keyed()).await;
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    history::check(&world).await;
}

/// The same subject under version 1, which is sent, and then under version 2.
async fn two_versions(place: &'static dyn Place, more: &str) -> World {
    let mut world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    world.turn().await;
    let second = format!("{}{}", keyed(), kind("create-followup", 2, "crm", more));
    world.reconfigure(&second).await;
    for case in ["case-104", "case-105"] {
        let key = key(case).replace(":v1:", ":v2:");
        world.site.tamper(&insert(&key, &format!("'{}'", payload(case, TITLE))));
    }
    world.turn().await;
    world
}

pub(super) async fn another_version_of_the_same_subject_is_invalid(place: &'static dyn Place) {
    let world = two_versions(place, "").await;
    blocked_as_invalid(&world, "harbor:create-followup:v2:case-104", Effect::None).await;
    let other_subject = world.row("harbor:create-followup:v2:case-105").await;
    assert_eq!((other_subject.state, world.site.task_count()), (State::Sent, 2));
}

pub(super) async fn independent_versions_of_one_subject_are_different_acts(
    place: &'static dyn Place,
) {
    let world = two_versions(place, "versions = \"independent\"").await;
    for case in ["case-104", "case-105"] {
        let row = world.row(&key(case).replace(":v1:", ":v2:")).await;
        assert_eq!(row.state, State::Sent);
    }
    assert_eq!(world.site.task_count(), 3);
}

pub(super) async fn a_word_that_nobody_knows_blocks_its_row_alone(place: &'static dyn Place) {
    for column in ["answer", "effect", "settled_by", "blocked_reason"] {
        let mut world = World::on(place, &keyed()).await;
        let damaged = world.approve("case-1").await;
        let healthy = world.approve("case-2").await;
        let damage = format!("UPDATE handoff_outbox SET {column} = 'nonsense' WHERE id = 1");
        world.site.tamper(&damage);
        world.turn().await;
        blocked_as_invalid(&world, &damaged, Effect::None).await;
        assert_eq!(world.row(&healthy).await.state, State::Sent, "{column}");
        assert_eq!(world.site.task_count(), 1, "{column}");
    }
}

pub(super) async fn a_state_that_nobody_knows_is_seen_and_stops_nothing_else(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &keyed()).await;
    let damaged = world.approve("case-1").await;
    let healthy = world.approve("case-2").await;
    world.site.tamper("UPDATE handoff_outbox SET state = 'nonsense' WHERE id = 1");
    world.turn().await;
    assert_eq!(world.row(&healthy).await.state, State::Sent);
    assert_eq!(world.row(&damaged).await.state, State::Blocked);
    assert_eq!(world.site.task_count(), 1);
    let summary = world.store.summary(world.now).await.unwrap();
    assert_eq!(summary.receivers[0].blocked, 1, "a person is told to look: {summary:?}");
}

pub(super) async fn a_payload_that_does_not_fit_its_fingerprint_is_invalid(
    place: &'static dyn Place,
) {
    let other = payload("case-1", "Another title");
    for damage in [
        "UPDATE handoff_outbox SET fingerprint = 'f00' WHERE id = 1".to_owned(),
        format!("UPDATE handoff_outbox SET payload = '{other}' WHERE id = 1"),
        "UPDATE handoff_outbox SET payload = '{broken' WHERE id = 1".to_owned(),
    ] {
        let mut world = World::on(place, &keyed()).await;
        let damaged = world.approve("case-1").await;
        world.attempt(Report::unknown("timeout")).await;
        world.site.tamper(UNGUARDED);
        world.site.tamper(&damage);
        let healthy = world.approve("case-2").await;
        world.turn_to_the_end().await;
        blocked_as_invalid(&world, &damaged, Effect::Possible).await;
        assert_eq!(world.row(&healthy).await.state, State::Sent, "{damage}");
        assert_eq!(world.site.task_count(), 1, "{damage}");
        history::check(&world).await;
    }
}

pub(super) async fn a_payload_that_is_no_json_is_invalid(place: &'static dyn Place) {
    let mut world = World::on(place, &keyed()).await;
    let damaged = world.approve("case-1").await;
    let healthy = world.approve("case-2").await;
    world.site.tamper("UPDATE handoff_outbox SET payload = '{broken' WHERE id = 1");
    world.turn().await;
    blocked_as_invalid(&world, &damaged, Effect::None).await;
    assert_eq!(world.row(&healthy).await.state, State::Sent);
    history::check(&world).await;
}

pub(super) async fn a_text_that_is_no_utf_8_blocks_its_row_alone(place: &'static dyn Place) {
    // What a program that works in Latin-1 would bind: {"case_id":"case-1","title":"é"}
    let latin = "CAST(x'7b22636173655f6964223a22636173652d31222c227469746c65223a22e9227d' AS TEXT)";
    let update = |column: &str| {
        format!("UPDATE handoff_outbox SET {column} = CAST(x'e9' AS TEXT) WHERE id = 1")
    };
    let of_ours = ["fingerprint", "last_error", "remote_id", "answer", "possible_request"];
    for damage in of_ours.map(update).into_iter().chain([String::new()]) {
        let mut world = World::on(place, &keyed()).await;
        let damaged = key("case-1");
        if damage.is_empty() {
            world.site.tamper(&insert(&damaged, latin));
        } else {
            world.approve("case-1").await;
            world.site.tamper("UPDATE handoff_outbox SET possible_since = 1 WHERE id = 1");
            world.site.tamper(UNGUARDED);
            world.site.tamper(&damage);
        }
        let healthy = world.approve("case-2").await;
        world.turn().await;
        assert_eq!(world.row(&healthy).await.state, State::Sent, "{damage}");
        let row = world.row(&damaged).await;
        let reason = Some(BlockReason::Invalid);
        assert_eq!((row.state, row.blocked_reason), (State::Blocked, reason), "{damage}");
        assert_eq!(world.store.list(handoff::store::Filter::default()).await.unwrap().len(), 2);
        assert_eq!(world.site.task_count(), 1, "{damage}");
    }
}

pub(super) async fn an_invalid_row_is_delivered_after_it_was_mended_and_retried(
    place: &'static dyn Place,
) {
    let mut world = World::on(place, &keyed()).await;
    let key = key("case-104");
    let long = payload("case-104", &"x".repeat(161));
    world.site.tamper(&insert(&key, &format!("'{long}'")));
    world.turn().await;
    blocked_as_invalid(&world, &key, Effect::None).await;
    assert!(matches!(world.act(&key, Deed::Retry).await, Acted::Refused(..)));
    std::fs::write(world.site.path("loose.json"), r#"{"type":"object"}"#).unwrap();
    let loose = kind("create-followup", 1, "crm", "");
    let loose = loose.replace("builtin:create-followup", "FOLDER/loose.json");
    world.reconfigure(&format!("{}{loose}", crm(KEYED, "", ""))).await;
    assert!(matches!(world.act(&key, Deed::Retry).await, Acted::Done(..)));
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    let sent = world.site.crm("SELECT payload FROM tasks");
    assert_eq!(sent, [[text(&long)]]);
    assert_eq!(world.site.value("SELECT count(*) FROM handoff_attempts"), Value::Integer(1));
    history::check(&world).await;
}
