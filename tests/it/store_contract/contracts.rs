//! What each answer leads to, by the receiver's contract.

use super::{KEYED, NONE};
use crate::support::{Place, World, crm, history};
use handoff::outbox::outcome::{NotTakenWhy, Outcome, Report};
use handoff::outbox::state::State;

const EXISTS_ASKS: &str = r#"mode = "create_only""#;
const EXISTS_PROVES: &str = r#"mode = "create_only", exists = "proof""#;
const UPSERT: &str = r#"mode = "upsert", window = "forever""#;
const ALL: [&str; 5] = [NONE, KEYED, EXISTS_ASKS, EXISTS_PROVES, UPSERT];

/// State, reason, effect and what it costs.
type Expected = (&'static str, Option<&'static str>, &'static str, u32);

fn not_taken(why: NotTakenWhy) -> Outcome {
    Outcome::NotTaken { why, not_before: None }
}

async fn shown(world: &World) -> (String, Option<String>, String, u32) {
    let (state, reason, effect, ..) = world.site.standing();
    let spent = world.row(&crate::support::key("case-104")).await.facts.spent;
    (state, reason, effect, spent)
}

fn owned((state, reason, effect, spent): Expected) -> (String, Option<String>, String, u32) {
    (state.to_owned(), reason.map(str::to_owned), effect.to_owned(), spent)
}

async fn check(place: &'static dyn Place, contract: &str, reports: &[Report], expected: Expected) {
    let mut world = World::on(place, &crm(contract, "", "")).await;
    let key = world.approve("case-104").await;
    for report in reports {
        let due = world.row(&key).await.due_at.unwrap();
        world.pass_time(due.since(world.now.wall));
        world.attempt(report.clone()).await;
    }
    assert_eq!(shown(&world).await, owned(expected), "{contract}: {reports:?}");
    history::check(&world).await;
    // What is blocked or sent is left alone.
    if expected.0 != "pending" {
        let before = world.site.stored();
        world.pass_time(std::time::Duration::from_secs(86_400 * 365));
        assert!(world.turn().await.is_idle(), "{contract}: {reports:?}");
        assert_eq!(world.site.stored(), before, "{contract}: {reports:?}");
    }
}

pub(super) async fn every_answer_ends_as_the_table_says(place: &'static dyn Place) {
    let exists = || Outcome::AlreadyExists { remote_id: Some("7".into()) };
    for contract in ALL {
        let repeat = contract != NONE;
        let in_doubt = |spent| match repeat {
            true => ("pending", None, "possible", spent),
            false => ("blocked", Some("ambiguous"), "possible", spent),
        };
        let by_exists = match contract {
            EXISTS_PROVES => ("sent", None, "confirmed", 0),
            _ => ("blocked", Some("ambiguous"), "possible", 0),
        };
        let applied = Outcome::Applied { remote_id: None, replayed: false };
        for (outcome, expected) in [
            (applied, ("sent", None, "confirmed", 0)),
            (exists(), by_exists),
            (not_taken(NotTakenWhy::Unreachable), ("pending", None, "none", 1)),
            (not_taken(NotTakenWhy::Unavailable), ("pending", None, "none", 1)),
            (not_taken(NotTakenWhy::Throttled), ("pending", None, "none", 0)),
            (not_taken(NotTakenWhy::Stale), ("pending", None, "none", 0)),
            (Outcome::InProgress { not_before: None }, in_doubt(0)),
            (Outcome::Unknown, in_doubt(1)),
            (Outcome::Rejected, ("blocked", Some("rejected"), "none", 0)),
            (Outcome::Conflict, ("blocked", Some("conflict"), "none", 0)),
            (
                Outcome::Unauthorised { whole_receiver: false },
                ("blocked", Some("unauthorised"), "none", 0),
            ),
            (Outcome::Unexpected, ("blocked", Some("unexpected"), "none", 0)),
        ] {
            check(place, contract, &[Report::new(outcome)], expected).await;
        }
    }
}

pub(super) async fn a_definite_no_after_a_doubt_keeps_the_doubt(place: &'static dyn Place) {
    for (outcome, reason) in [
        (Outcome::Rejected, "rejected"),
        (Outcome::Conflict, "conflict"),
        (Outcome::Unauthorised { whole_receiver: false }, "unauthorised"),
        (Outcome::Unexpected, "unexpected"),
    ] {
        let reports = [Report::unknown("timeout"), Report::new(outcome)];
        check(place, KEYED, &reports, ("blocked", Some(reason), "possible", 1)).await;
    }
}

pub(super) async fn a_refused_connection_after_a_doubt_keeps_the_doubt(place: &'static dyn Place) {
    let refused = || Report::new(not_taken(NotTakenWhy::Unreachable));
    let reports = [Report::unknown("timeout"), refused()];
    check(place, KEYED, &reports, ("pending", None, "possible", 2)).await;
    let reports = [refused(), Report::unknown("timeout")];
    check(place, NONE, &reports, ("blocked", Some("ambiguous"), "possible", 2)).await;
    let reports = [Report::unknown("timeout"), refused(), Report::applied(Some("7".into()))];
    check(place, KEYED, &reports, ("sent", None, "confirmed", 2)).await;
}

pub(super) async fn what_the_receiver_is_still_at_work_on_is_asked_again(
    place: &'static dyn Place,
) {
    let in_progress = || Report::new(Outcome::InProgress { not_before: None });
    let reports = [in_progress(), in_progress(), Report::applied(Some("7".into()))];
    check(place, KEYED, &reports, ("sent", None, "confirmed", 0)).await;
}

pub(super) async fn exists_proves_only_where_the_contract_says_so(place: &'static dyn Place) {
    let exists = Report::new(Outcome::AlreadyExists { remote_id: Some("7".into()) });
    let reports = [Report::unknown("timeout"), exists];
    check(place, EXISTS_ASKS, &reports, ("blocked", Some("ambiguous"), "possible", 1)).await;
    check(place, EXISTS_PROVES, &reports, ("sent", None, "confirmed", 1)).await;
    let mut world = World::on(place, &crm(EXISTS_PROVES, "", "")).await;
    let key = world.approve("case-104").await;
    let [_, exists] = reports;
    world.attempt(exists).await;
    let row = world.row(&key).await;
    assert_eq!(row.settled_by.as_deref(), Some("policy"));
    assert_eq!(row.remote_id.as_deref(), Some("7"));
    assert!(world.turn().await.is_idle());
}

/// An unknown outcome at one address, and then the receiver is moved.
async fn moved(place: &'static dyn Place, contract: &str) -> World {
    let mut world = World::on(place, &crm(contract, "", "")).await;
    world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world.reconfigure(&crm(contract, "", "").replace("crm.db", "moved.db")).await;
    world.turn_to_the_end().await;
    history::check(&world).await;
    world
}

pub(super) async fn another_address_is_another_account(place: &'static dyn Place) {
    let world = moved(place, KEYED).await;
    let blocked = ("blocked", Some("window_closed"), "possible", 1);
    assert_eq!(shown(&world).await, owned(blocked));
    assert_eq!(world.site.task_count(), 0);
}

pub(super) async fn the_same_account_under_another_address_is_the_same_request(
    place: &'static dyn Place,
) {
    let world = moved(place, &format!("{KEYED}, same_account = true")).await;
    let state = world.row(&crate::support::key("case-104")).await.state;
    assert_eq!(state, State::Sent);
}
