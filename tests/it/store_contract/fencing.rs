//! The end of an attempt: saved by the one that made it, and never twice.

use super::{KEYED, NONE, keyed};
use crate::support::place::text;
use crate::support::world::TOOK;
use crate::support::{Place, World, crm, history};
use handoff::outbox::outcome::{NotTakenWhy, Outcome, Report};
use handoff::outbox::state::State;
use handoff::outbox::verbs::Deed;
use handoff::store::{Acted, Attempt, Concluded, Event};
use std::sync::Arc;
use std::time::Duration;

/// Every way in which a call can end.
fn reports() -> Vec<Report> {
    let unreachable = Report::not_taken(NotTakenWhy::Unreachable, "unreachable");
    let outcomes = [
        Outcome::AlreadyExists { remote_id: Some("7".into()) },
        Outcome::InProgress { not_before: None },
        Outcome::Rejected,
        Outcome::Conflict,
        Outcome::Unauthorised { whole_receiver: false },
        Outcome::Unknown,
        Outcome::Unexpected,
    ];
    let mut all = vec![Report::applied(Some("7".into())), unreachable];
    all.extend(outcomes.map(Report::new));
    all
}

pub(super) async fn saving_the_same_end_again_changes_nothing(place: &'static dyn Place) {
    for report in reports() {
        let mut world = World::on(place, &keyed()).await;
        world.approve("case-104").await;
        let attempt = world.begin_one().await;
        let concluded = world.conclude(attempt, report.clone());
        // Twice in one transaction, again, later, and after a restart.
        let twice = [Arc::clone(&concluded), Arc::clone(&concluded)];
        assert_eq!(world.save(&twice).await.len(), 1, "{report:?}");
        let before = world.site.stored();
        assert!(world.save(&[Arc::clone(&concluded)]).await.is_empty(), "{report:?}");
        world.pass_time(Duration::from_secs(60));
        assert!(world.save(&[Arc::clone(&concluded)]).await.is_empty(), "{report:?}");
        world = world.restart().await;
        assert!(world.save(&[Arc::clone(&concluded)]).await.is_empty(), "{report:?}");
        assert_eq!(world.site.stored(), before, "{report:?}");
        history::check(&world).await;
    }
}

/// A world whose first process has died with this attempt in flight; the
/// process is not quite dead, and still holds the attempt.
async fn half_dead(place: &'static dyn Place, contract: &str) -> (World, Attempt) {
    let world = World::on(place, &crm(contract, "", "")).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    let mut world = world.restart().await;
    world.pass_time(Duration::from_secs(1));
    (world, attempt)
}

fn is_fenced(events: &[Event]) -> bool {
    matches!(events, [Event::Fenced { .. }])
}

pub(super) async fn the_end_of_a_lost_claim_changes_nothing(place: &'static dyn Place) {
    let (world, lost) = half_dead(place, KEYED).await;
    world.attempt(Report::new(Outcome::Rejected)).await;
    // It does not know more than was known without it.
    let unknown = world.conclude(lost, Report::unknown("timeout"));
    world.save(&[Arc::clone(&unknown)]).await;
    history::check(&world).await;
    let row = world.row(&crate::support::key("case-104")).await;
    assert_eq!((row.state, row.effect.as_str()), (State::Blocked, "possible"));
    assert_eq!(row.blocked_reason.map(|reason| reason.as_str()), Some("rejected"));
    assert_eq!(row.facts.spent, 1, "spent once, however often its end is told");
}

pub(super) async fn an_end_that_another_process_claims_is_fenced(place: &'static dyn Place) {
    let world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    world.site.tamper("UPDATE handoff_attempts SET instance = 'another'");
    let before = world.site.stored();
    let applied = world.conclude(attempt, Report::applied(Some("7".into())));
    assert!(is_fenced(&world.save(&[applied]).await));
    assert_eq!(world.site.stored(), before);
}

pub(super) async fn a_late_success_makes_it_sent_whatever_it_is(place: &'static dyn Place) {
    for (contract, between) in [(NONE, "blocked"), (KEYED, "pending")] {
        let (world, late) = half_dead(place, contract).await;
        assert_eq!(world.site.standing().0, between);
        world.save(&[world.conclude(late, Report::applied(Some("7".into())))]).await;
        let receipt = Some("7".to_owned());
        assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 1, receipt));
        assert_eq!(world.row(&crate::support::key("case-104")).await.last_error, None);
        history::check(&world).await;
    }
    // While the next attempt is under way; that one's end changes nothing any more.
    let (world, late) = half_dead(place, KEYED).await;
    let next = world.begin_one().await;
    world.save(&[world.conclude(late, Report::applied(Some("7".into())))]).await;
    let receipt = Some("7".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    world.save(&[world.conclude(next, Report::unknown("timeout"))]).await;
    let receipt = Some("7".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    assert_eq!(world.row(&crate::support::key("case-104")).await.last_error, None);
    history::check(&world).await;
}

pub(super) async fn a_late_success_after_a_withdrawal_is_sent_and_said(place: &'static dyn Place) {
    let (world, late) = half_dead(place, NONE).await;
    let key = crate::support::key("case-104");
    let acted = world.act(&key, Deed::Withdraw).await;
    assert!(matches!(acted, Acted::Done(..)), "{acted:?}");
    assert_eq!(world.site.standing().0, "withdrawn");
    let events = world.save(&[world.conclude(late, Report::applied(Some("7".into())))]).await;
    let [Event::Ended { after_withdrawal, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert!(after_withdrawal);
    assert_eq!(world.site.standing().0, "sent");
    history::check(&world).await;
}

pub(super) async fn a_second_different_receipt_is_said_and_the_first_is_kept(
    place: &'static dyn Place,
) {
    for (second, differs) in [("8", true), ("7", false)] {
        let (world, late) = half_dead(place, KEYED).await;
        world.attempt(Report::applied(Some("7".into()))).await;
        let events =
            world.save(&[world.conclude(late, Report::applied(Some(second.into())))]).await;
        let [Event::Ended { receipt_mismatch, .. }] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(*receipt_mismatch, differs);
        assert_eq!(world.site.standing().4.as_deref(), Some("7"));
        let receipts = "SELECT remote_id FROM handoff_attempts ORDER BY number";
        assert_eq!(world.site.rows(receipts), [[text(second)], [text("7")]], "both are on record");
        history::check(&world).await;
    }
}

pub(super) async fn a_late_refused_connection_takes_the_doubt_away(place: &'static dyn Place) {
    let (world, late) = half_dead(place, NONE).await;
    let blocked = ("blocked".into(), Some("ambiguous".into()), "possible".into(), 1, None);
    assert_eq!(world.site.standing(), blocked);
    let refused = Report::not_taken(NotTakenWhy::Unreachable, "refused");
    world.save(&[world.conclude(late, refused)]).await;
    assert_eq!(world.site.standing(), ("pending".into(), None, "none".into(), 1, None));
    history::check(&world).await;
}

pub(super) async fn an_attempt_that_our_stop_cut_off_is_in_doubt_and_spends_nothing(
    place: &'static dyn Place,
) {
    let cut = |world: &World, attempt: Attempt| -> Arc<Concluded> {
        Arc::new(attempt.cut_off(world.now, TOOK))
    };
    for (contract, state, reason) in
        [(NONE, "blocked", Some("ambiguous")), (KEYED, "pending", None)]
    {
        let world = World::on(place, &crm(contract, "", "")).await;
        world.approve("case-104").await;
        let attempt = world.begin_one().await;
        world.save(&[cut(&world, attempt)]).await;
        let reason = reason.map(str::to_owned);
        assert_eq!(world.site.standing(), (state.into(), reason, "possible".into(), 1, None));
        let row = world.row(&crate::support::key("case-104")).await;
        assert_eq!((row.facts.spent, row.facts.solo_crashes), (0, 0));
        history::check(&world).await;
    }
}

/// A world that believes of an attempt which is under way that it never began.
async fn disowned(place: &'static dyn Place) -> (World, Attempt) {
    let world = World::on(place, &keyed()).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    assert_eq!(world.store.disown(&world.rules, Vec::new(), world.now).await.unwrap().len(), 1);
    (world, attempt)
}

pub(super) async fn an_attempt_that_has_ended_for_good_takes_no_other_end(
    place: &'static dyn Place,
) {
    for report in reports() {
        let (world, attempt) = disowned(place).await;
        let before = world.site.stored();
        let is_success = matches!(report.outcome, Outcome::Applied { .. });
        let same = matches!(report.outcome, Outcome::NotTaken { .. });
        let events = world.save(&[world.conclude(attempt, report.clone())]).await;
        match (is_success, same) {
            (true, _) => continue,
            (_, true) => assert!(events.is_empty(), "{report:?}"),
            (false, false) => assert!(is_fenced(&events), "{report:?}: {events:?}"),
        }
        assert_eq!(world.site.stored(), before, "{report:?}");
    }
}

pub(super) async fn a_success_is_never_thrown_away(place: &'static dyn Place) {
    let (world, attempt) = disowned(place).await;
    let next = world.begin_one().await;
    world.save(&[world.conclude(next, Report::new(Outcome::Rejected))]).await;
    assert_eq!(world.site.standing().0, "blocked");
    world.save(&[world.conclude(attempt, Report::applied(Some("7".into())))]).await;
    let receipt = Some("7".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    history::check(&world).await;
}
