//! Every bad day of the simulated CRM under every contract: what becomes of the
//! operation, and how many tasks there are in the end.

use super::{KEYED, NONE};
use crate::support::{Daemon, Place, Site, World, crm, eventually, history, key};
use handoff::jitter::Seed;
use handoff::receiver::fault::Delivery;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const EXISTS_ASKS: &str = r#"mode = "create_only""#;
const EXISTS_PROVES: &str = r#"mode = "create_only", exists = "proof""#;
const UPSERT: &str = r#"mode = "upsert", window = "forever""#;
const ALL: [&str; 5] = [NONE, KEYED, EXISTS_ASKS, EXISTS_PROVES, UPSERT];

/// State, reason, effect, attempts and tasks in the end.
type End = (&'static str, Option<&'static str>, &'static str, i64, usize);

const SENT_AT_ONCE: End = ("sent", None, "confirmed", 1, 1);
const SENT_BY_REPEAT: End = ("sent", None, "confirmed", 2, 1);

/// The end after the first delivery was accepted and its answer lost.
fn accepted_and_lost(contract: &str) -> End {
    match contract {
        NONE => ("blocked", Some("ambiguous"), "possible", 1, 1),
        EXISTS_ASKS => ("blocked", Some("ambiguous"), "possible", 2, 1),
        _ => SENT_BY_REPEAT,
    }
}

/// The end after the first delivery never arrived, and nobody could know.
fn lost_on_the_way(contract: &str) -> End {
    match contract {
        NONE => ("blocked", Some("ambiguous"), "possible", 1, 0),
        _ => SENT_BY_REPEAT,
    }
}

fn assert_end(site: &Site, end: End, what: &str) {
    let (state, reason, effect, attempts, receipt) = site.standing();
    let shown = (&*state, reason.as_deref(), &*effect, attempts, site.task_count());
    assert_eq!(shown, end, "{what}");
    assert_eq!(receipt.is_some(), state == "sent", "{what}: a receipt only if it is sent");
}

/// The first delivery meets the fault, later ones meet none.
fn first(fault: &str) -> String {
    format!(r#"{{ on = "attempt", n = 1, {fault} }}"#)
}

pub(super) async fn every_fault_ends_as_its_contract_says(place: &'static dyn Place) {
    for contract in ALL {
        for (fault, end) in [
            (r#"fault = "unreachable""#, SENT_BY_REPEAT),
            (r#"fault = "lose_reply""#, accepted_and_lost(contract)),
            (r#"fault = "late", delay = "0s""#, accepted_and_lost(contract)),
            (r#"fault = "throttle""#, SENT_BY_REPEAT),
            (r#"fault = "throttle", retry_after = "1h""#, SENT_BY_REPEAT),
            (r#"fault = "reject""#, ("blocked", Some("rejected"), "none", 1, 0)),
            (r#"fault = "conflict""#, ("blocked", Some("conflict"), "none", 1, 0)),
            (r#"fault = "unauthorised""#, ("blocked", Some("unauthorised"), "none", 1, 0)),
            (r#"fault = "slow", delay = "1ms""#, SENT_AT_ONCE),
            (r#"fault = "malformed""#, accepted_and_lost(contract)),
        ] {
            let mut world = World::on(place, &crm(contract, &first(fault), "")).await;
            world.approve("case-104").await;
            world.turn().await;
            if fault.contains("late") {
                eventually("the CRM acts late", || world.site.task_count() == 1).await;
            }
            world.turn_to_the_end().await;
            assert_end(&world.site, end, &format!("{contract}: {fault}"));
            history::check(&world).await;
        }
    }
}

pub(super) async fn a_server_error_makes_one_task_whether_it_was_accepted_or_not(
    place: &'static dyn Place,
) {
    let key = key("case-104");
    let delivery = Delivery { key: &key, number: 1, elapsed: Duration::ZERO };
    for accepted in [true, false] {
        let luck = |seed: &Seed| delivery.accepted_despite_error(*seed) == accepted;
        let seed = (0..1_000).map(Seed).find(luck).unwrap();
        for contract in ALL {
            let config = crm(contract, &first(r#"fault = "server_error""#), "");
            let mut world = World::with_seed(place, &config, seed).await;
            world.approve("case-104").await;
            world.turn_to_the_end().await;
            let end = match accepted {
                true => accepted_and_lost(contract),
                false => lost_on_the_way(contract),
            };
            assert_end(&world.site, end, &format!("{contract}, accepted: {accepted}"));
            history::check(&world).await;
        }
    }
}

pub(super) async fn a_reply_that_takes_too_long_is_unknown(place: &'static dyn Place) {
    for contract in [NONE, KEYED] {
        let slow = first(r#"fault = "slow", delay = "1d""#);
        let config = format!("{}timeout = \"2s\"", crm(contract, &slow, ""));
        let mut world = World::on(place, &config).await;
        world.approve("case-104").await;
        world.turn_to_the_end().await;
        assert_end(&world.site, accepted_and_lost(contract), contract);
        let first = world.store.history(&key("case-104")).await.unwrap().remove(0);
        assert_eq!(first.error_code.as_deref(), Some("timeout"));
        history::check(&world).await;
    }
}

/// The daemon as a process dies in its first attempt, and another one goes on.
pub(super) async fn every_crash_ends_as_its_contract_says(place: &'static dyn Place) {
    for contract in ALL {
        for (fault, end) in [
            ("crash_before", lost_on_the_way(contract)),
            ("crash_after", accepted_and_lost(contract)),
        ] {
            let site = Site::on(place, &crm(contract, &first(&format!("fault = {fault:?}")), ""));
            assert!(site.approve("case-104", "Call").status.success());
            let mut daemon = Daemon::spawn_only(site.program(&["run"]));
            assert_eq!(daemon.ended().signal(), Some(9), "{contract}: {fault}");
            let daemon = Daemon::start(&site);
            site.wait(&key("case-104"));
            daemon.stop();
            assert_end(&site, end, &format!("{contract}: {fault}"));
        }
    }
}

/// The tasks are counted at the CRM, not at us: a receiver that breaks its word is seen.
pub(super) async fn a_crm_that_lies_about_its_keys_shows_as_two_tasks(place: &'static dyn Place) {
    let lies = format!(
        "{}behaviour = {{ unique = false }}",
        crm(KEYED, &first(r#"fault = "lose_reply""#), "")
    );
    let mut world = World::on(place, &lies).await;
    world.approve("case-104").await;
    world.turn_to_the_end().await;
    assert_eq!(world.site.task_count(), 2);
}
