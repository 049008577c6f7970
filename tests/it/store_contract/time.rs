//! What may happen when: due times, retries, windows, ages and budgets.

use super::damage::kind;
use super::{KEYED, keyed};
use crate::support::{Place, World, crm, history};
use handoff::clock::{Now, SteadyMark, Timestamp};
use handoff::outbox::outcome::{NotBefore, NotTakenWhy, Outcome, Report};
use handoff::outbox::state::{BlockReason, State};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

fn unreachable() -> Report {
    Report::not_taken(NotTakenWhy::Unreachable, "unreachable")
}

fn throttled(not_before: Option<NotBefore>) -> Report {
    Report::new(Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before })
}

/// Moves the clock to this moment.
fn go_to(world: &mut World, time: Timestamp) {
    world.now = world.now.plus(time.since(world.now.wall));
}

pub(super) async fn nothing_is_delivered_before_its_time(place: &'static dyn Place) {
    let mut world = World::on(place, &keyed()).await;
    let time = world.now.wall.plus(HOUR);
    let key = world.approve_for("case-104", time).await;
    let progress = world.turn().await;
    assert!(progress.is_idle());
    assert_eq!(progress.next_due, Some(time));
    go_to(&mut world, time.minus(MS));
    assert!(world.turn().await.is_idle());
    go_to(&mut world, time);
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
}

pub(super) async fn nothing_is_tried_again_before_its_time(place: &'static dyn Place) {
    let mut world = World::on(place, &crm(KEYED, "", r#"schedule = ["10s", "1m"]"#)).await;
    let key = world.approve("case-104").await;
    for full in [10, 60, 60] {
        let full = Duration::from_secs(full);
        world.attempt(unreachable()).await;
        let due = world.row(&key).await.due_at.unwrap();
        let delay = due.since(world.now.wall);
        assert!(full / 2 <= delay && delay <= full, "{delay:?} of {full:?}");
        go_to(&mut world, due.minus(MS));
        assert!(world.begin().await.begun.is_empty());
        go_to(&mut world, due);
    }
    world.attempt(Report::applied(None)).await;
    history::check(&world).await;
}

pub(super) async fn a_retry_impossibly_far_ahead_is_brought_forward(place: &'static dyn Place) {
    let retry = r#"schedule = ["10s"], retry_after_ceiling = "1m""#;
    let world = World::on(place, &crm(KEYED, "", retry)).await;
    let key = world.approve("case-104").await;
    world.attempt(unreachable()).await;
    let far = world.now.wall.plus(DAY * 3_650).as_millis();
    let set = format!("UPDATE handoff_outbox SET due_at = {far}, not_before = {far}");
    world.site.tamper(&set);
    let (world, recovered) = world.crash().await;
    assert_eq!(recovered.brought_forward, 1);
    let longest = Some(world.now.wall.plus(Duration::from_secs(60)));
    assert_eq!(world.row(&key).await.due_at, longest);
    // Also for a suspect.
    world.site.tamper(&format!("{set}, suspect = 1"));
    let (world, recovered) = world.crash().await;
    assert_eq!(recovered.brought_forward, 1);
    assert_eq!(world.row(&key).await.due_at, longest);
    let (mut world, recovered) = world.crash().await;
    assert_eq!(recovered.brought_forward, 0);
    world.turn_to_the_end().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
}

pub(super) async fn a_delivery_asked_for_far_ahead_is_not_brought_forward(
    place: &'static dyn Place,
) {
    let world = World::on(place, &keyed()).await;
    let time = world.now.wall.plus(DAY * 3_650);
    let key = world.approve_for("case-104", time).await;
    let (mut world, recovered) = world.crash().await;
    assert_eq!(recovered.brought_forward, 0);
    assert!(world.turn().await.is_idle());
    assert_eq!(world.row(&key).await.due_at, Some(time));
}

/// Where the clocks stand, so long after boot.
fn mark(now: Now, boot_time: Duration) -> SteadyMark {
    SteadyMark { wall: now.wall, steady: now.steady, boot_time, boot_id: "a".into() }
}

/// Sets the wall clock while no time passes, and has the store mind it.
async fn set_wall(world: &mut World, wall: Timestamp) {
    let known = mark(world.now, HOUR);
    world.store.mind_steps(&world.rules, &known, world.now).await.unwrap();
    let steady = world.now.steady.plus(wall.since(world.now.wall));
    world.now = Now { wall, steady };
    // Whose answer was lost is asked again.
    for _ in 0..2 {
        let known = mark(world.now, HOUR);
        world.store.mind_steps(&world.rules, &known, world.now).await.unwrap();
    }
}

pub(super) async fn a_pause_lasts_as_long_whatever_the_clock_is_set_to(place: &'static dyn Place) {
    let start = World::on(place, &keyed()).await.now.wall;
    for wall in [start.plus(HOUR), start.minus(HOUR), start.plus(DAY * 365), start.minus(DAY * 365)]
    {
        let retry = r#"schedule = ["10s"], retry_after_ceiling = "24h""#;
        let mut world = World::on(place, &crm(KEYED, "", retry)).await;
        let tried = world.approve("case-1").await;
        world.attempt(unreachable()).await;
        let pause = world.row(&tried).await.due_at.unwrap().since(world.now.wall);
        let fresh = world.approve("case-2").await;
        let time = start.plus(HOUR * 2);
        let scheduled = world.approve_for("case-3", time).await;
        set_wall(&mut world, wall).await;
        assert_eq!(world.row(&tried).await.due_at, Some(wall.plus(pause)), "{wall}");
        assert!(world.row(&fresh).await.due_at <= Some(wall), "{wall}");
        assert_eq!(world.row(&scheduled).await.due_at, Some(time), "{wall}");
        world.pass_time(pause - MS);
        let begun = world.begin().await.begun;
        let keys: Vec<_> = begun.iter().map(|attempt| attempt.key().as_str()).collect();
        let past = (time <= world.now.wall).then_some(scheduled.as_str());
        assert_eq!(keys.len(), 1 + usize::from(past.is_some()), "{wall}: {keys:?}");
        assert!(!keys.contains(&tried.as_str()), "{wall}: {keys:?}");
    }
}

pub(super) async fn a_clock_set_forward_spends_no_budget_and_ends_no_settling(
    place: &'static dyn Place,
) {
    let contract = format!(r#"{KEYED}, atomic = false, settle_delay = "1m""#);
    let retry = r#"schedule = ["1ms"], max_elapsed = "2h""#;
    let mut world = World::on(place, &crm(&contract, "", retry)).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    let wall = world.now.wall.plus(DAY);
    set_wall(&mut world, wall).await;
    world.pass_time(Duration::from_secs(60) - MS);
    assert!(world.begin().await.begun.is_empty(), "the receiver may still act");
    world.pass_time(MS);
    for attempt in world.begin().await.begun {
        world.save(&[world.conclude(attempt, Report::unknown("timeout"))]).await;
    }
    let row = world.row(&key).await;
    assert_eq!((row.attempts, row.state), (2, State::Pending));
}

pub(super) async fn a_pause_moves_with_the_clock_also_while_its_operation_is_blocked(
    place: &'static dyn Place,
) {
    let retry = r#"schedule = ["10s"], max_attempts = 1"#;
    let mut world = World::on(place, &crm(KEYED, "", retry)).await;
    let key = world.approve("case-104").await;
    world.attempt(unreachable()).await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.due_at), (State::Blocked, None));
    let pause = row.facts.not_before.unwrap().since(world.now.wall);
    let wall = world.now.wall.minus(HOUR);
    set_wall(&mut world, wall).await;
    let row = world.row(&key).await;
    assert_eq!((row.facts.not_before, row.due_at), (Some(wall.plus(pause)), None));
}

pub(super) async fn nothing_hangs_on_a_clock_that_was_ahead_while_its_receiver_was_gone(
    place: &'static dyn Place,
) {
    let contract = format!(r#"{KEYED}, atomic = false, settle_delay = "1m""#);
    let config = crm(&contract, "", r#"schedule = ["1ms"]"#);
    let world = World::on(place, &config).await;
    let key = world.approve("case-104").await;
    drop(world.begin_one().await);
    let mut world = world.restart().await;
    world.turn().await;
    let due = world.row(&key).await.due_at;
    assert!(due > Some(world.now.wall), "it settles: {due:?}");
    let elsewhere = config.replace("receivers.crm", "receivers.mail");
    world.reconfigure(&format!("{elsewhere}{}", kind("other", 1, "mail", ""))).await;
    let wall = world.now.wall.minus(HOUR);
    set_wall(&mut world, wall).await;
    world.reconfigure(&config).await;
    world.turn_to_the_end().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    assert!(world.now.wall <= wall.plus(HOUR / 2), "{wall}");
}

pub(super) async fn an_answer_after_a_step_is_added_to_what_the_step_has_moved(
    place: &'static dyn Place,
) {
    let retry = r#"schedule = ["1ms"], max_elapsed = "2h""#;
    let mut world = World::on(place, &crm(KEYED, "", retry)).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world.pass_time(MS);
    let attempt = world.begin_one().await;
    let before = world.row(&key).await.facts.budget_start.unwrap();
    let wall = world.now.wall.plus(DAY);
    set_wall(&mut world, wall).await;
    world.save(&[world.conclude(attempt, Report::unknown("timeout"))]).await;
    let row = world.row(&key).await;
    assert_eq!(row.facts.budget_start, Some(before.plus(DAY)));
    assert_eq!((row.attempts, row.state), (2, State::Pending));
}

pub(super) async fn a_pause_asked_for_while_the_receiver_was_gone_holds_when_it_is_back(
    place: &'static dyn Place,
) {
    let config = crm(KEYED, "", r#"schedule = ["1ms"]"#);
    let mut world = World::on(place, &config).await;
    let key = world.approve("case-104").await;
    let attempt = world.begin_one().await;
    let elsewhere = config.replace("receivers.crm", "receivers.mail");
    world.reconfigure(&format!("{elsewhere}{}", kind("other", 1, "mail", ""))).await;
    let pause = Duration::from_secs(600);
    let report = throttled(Some(NotBefore::After(pause)));
    world.save(&[world.conclude(attempt, report)]).await;
    let wanted = world.now.wall.plus(pause);
    world.reconfigure(&config).await;
    world.turn().await;
    let row = world.row(&key).await;
    assert_eq!((row.attempts, row.state), (1, State::Pending), "nothing began before its time");
    assert!(row.facts.not_before >= Some(wanted), "{:?}", row.facts.not_before);
}

pub(super) async fn a_retry_after_is_kept_as_far_as_the_ceiling(place: &'static dyn Place) {
    let retry = r#"schedule = ["2s"], retry_after_ceiling = "1h""#;
    let short = Duration::from_secs(2);
    let after = |secs| NotBefore::After(Duration::from_secs(secs));
    let now = World::on(place, &keyed()).await.now.wall;
    for (not_before, least, most) in [
        (after(0), short / 2, short),
        (after(60), HOUR / 60, HOUR / 60),
        (after(86_400), HOUR, HOUR),
        // A moment is meant by the clock of the answer.
        (NotBefore::At(now.plus(HOUR / 2)), HOUR / 2 - HOUR / 60, HOUR / 2),
        (NotBefore::At(now.minus(DAY)), short / 2, short),
    ] {
        let mut world = World::on(place, &crm(KEYED, "", retry)).await;
        let key = world.approve("case-104").await;
        world.attempt(throttled(Some(not_before))).await;
        let row = world.row(&key).await;
        let due = row.due_at.unwrap();
        let delay = due.since(world.now.wall);
        assert!(least <= delay && delay <= most, "{not_before:?}: {delay:?}");
        assert_eq!((row.facts.spent, row.effect.as_str()), (0, "none"));
        go_to(&mut world, due.minus(MS));
        assert!(world.begin().await.begun.is_empty(), "{not_before:?}");
        go_to(&mut world, due);
        assert_eq!(world.begin().await.begun.len(), 1, "{not_before:?}");
    }
}

/// The built-in type, with approvals that hold for a week.
fn for_a_week(contract: &str) -> String {
    format!(
        "{}[operations.create-followup]\nreceiver = \"crm\"\nsubject = \"case_id\"\n\
         schema = \"builtin:create-followup\"\napproval_max_age = \"7d\"\n",
        crm(contract, "", "max_elapsed = \"30d\"")
    )
}

pub(super) async fn an_approval_that_is_too_old_expires(place: &'static dyn Place) {
    let mut world = World::on(place, &for_a_week(KEYED)).await;
    let fresh = world.approve("case-1").await;
    let tried = world.approve("case-2").await;
    for attempt in world.begin().await.begun {
        let report = if attempt.key().as_str() == tried {
            unreachable()
        } else {
            Report::applied(Some("7".into()))
        };
        world.save(&[world.conclude(attempt, report)]).await;
    }
    let old = world.approve("case-3").await;
    world.pass_time(DAY * 7);
    world.turn().await;
    for key in [&tried, &old] {
        let row = world.row(key).await;
        let shown = (row.state, row.blocked_reason, row.effect.as_str());
        assert_eq!(shown, (State::Blocked, Some(BlockReason::Expired), "none"));
    }
    assert_eq!(world.row(&fresh).await.state, State::Sent);
    assert_eq!(world.site.task_count(), 0);
    history::check(&world).await;
}

pub(super) async fn an_approval_in_doubt_does_not_expire(place: &'static dyn Place) {
    let mut world = World::on(place, &for_a_week(KEYED)).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world.pass_time(DAY * 8);
    world.turn().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
    history::check(&world).await;
}

/// A receiver that remembers a key for an hour, with a timeout of 10 s.
const ONE_HOUR: &str = r#"mode = "idempotency_key", window = "1h""#;

pub(super) async fn a_repeat_is_made_only_while_the_receiver_remembers_the_key(
    place: &'static dyn Place,
) {
    let last = HOUR - Duration::from_secs(10) - MS;
    for (later, state, reason) in [
        (last, State::Sent, None),
        (last + MS, State::Blocked, Some(BlockReason::WindowClosed)),
        (DAY, State::Blocked, Some(BlockReason::WindowClosed)),
    ] {
        let mut world = World::on(place, &crm(ONE_HOUR, "", "")).await;
        let key = world.approve("case-104").await;
        world.attempt(Report::unknown("timeout")).await;
        world.pass_time(later);
        world.turn_to_the_end().await;
        let row = world.row(&key).await;
        assert_eq!((row.state, row.blocked_reason), (state, reason), "{later:?}");
        assert_eq!(world.site.task_count(), usize::from(reason.is_none()), "{later:?}");
        let effect = if reason.is_none() { "confirmed" } else { "possible" };
        assert_eq!(row.effect.as_str(), effect);
        history::check(&world).await;
    }
    // Where nothing can have happened there is no window.
    let mut world = World::on(place, &crm(ONE_HOUR, "", "")).await;
    let key = world.approve("case-104").await;
    world.attempt(unreachable()).await;
    world.pass_time(HOUR * 3);
    world.turn_to_the_end().await;
    assert_eq!(world.row(&key).await.state, State::Sent);
}

pub(super) async fn a_clock_set_back_does_not_open_a_window_again(place: &'static dyn Place) {
    let mut world = World::on(place, &crm(ONE_HOUR, "", "")).await;
    let key = world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    let due = world.row(&key).await.due_at.unwrap();
    // An hour has passed, and the wall clock was set back by nearly as much.
    world.now = Now { wall: due, steady: world.now.steady.plus(HOUR) };
    let mut world = world.restart().await;
    world.turn().await;
    assert_eq!(world.row(&key).await.blocked_reason, Some(BlockReason::WindowClosed));
    assert_eq!(world.site.task_count(), 0);
}

pub(super) async fn the_budget_ends_by_time_as_well(place: &'static dyn Place) {
    let retry = r#"schedule = ["1m"], max_attempts = 1000, max_elapsed = "1h""#;
    for report in [unreachable(), throttled(None)] {
        let mut world = World::on(place, &crm(KEYED, "", retry)).await;
        let key = world.approve("case-104").await;
        let start = world.now.wall;
        while world.row(&key).await.state == State::Pending {
            let due = world.row(&key).await.due_at.unwrap();
            go_to(&mut world, due);
            world.attempt(report.clone()).await;
        }
        let row = world.row(&key).await;
        let shown = (row.state, row.blocked_reason, row.effect.as_str());
        assert_eq!(shown, (State::Blocked, Some(BlockReason::BudgetExhausted), "none"));
        let lasted = world.now.wall.since(start);
        assert!(HOUR <= lasted && lasted < HOUR + Duration::from_secs(60), "{lasted:?}");
        history::check(&world).await;
    }
}

pub(super) async fn a_repeat_waits_until_the_receiver_has_settled(place: &'static dyn Place) {
    let contract = format!(r#"{KEYED}, atomic = false, settle_delay = "1m""#);
    let mut world = World::on(place, &crm(&contract, "", r#"schedule = ["1ms"]"#)).await;
    world.approve("case-104").await;
    world.attempt(Report::unknown("timeout")).await;
    world.pass_time(Duration::from_secs(60) - MS);
    assert!(world.begin().await.begun.is_empty());
    world.pass_time(MS);
    assert_eq!(world.begin().await.begun.len(), 1);
    history::check(&world).await;
}
