//! Receivers are protected as a whole, with time that moves only when it is told to.

use crate::support::{World, crm};
use handoff::outbox::outcome::{NotTakenWhy, Report};
use handoff::outbox::state::State;
use handoff::store::HoldAct;
use std::time::Duration;

const KEYED: &str = r#"mode = "idempotency_key", window = "forever""#;
const HOUR: Duration = Duration::from_secs(3_600);

fn unreachable() -> Report {
    Report::not_taken(NotTakenWhy::Unreachable, "unreachable")
}

fn by_ann() -> HoldAct {
    HoldAct { receivers: vec!["crm".to_owned()], who: "ann".to_owned(), reason: None }
}

#[tokio::test]
async fn a_weekend_of_pause_spends_neither_tries_nor_time_of_the_budget() {
    let retry = r#"schedule = ["1h"], max_elapsed = "4h""#;
    let mut world = World::new(&crm(KEYED, "", retry)).await;
    let key = world.approve("case-104").await;
    world.attempt(unreachable()).await;
    world.pass_time(HOUR);
    world.store.pause(by_ann(), world.now).await.unwrap();
    world.pass_time(HOUR * 60);
    assert!(world.turn().await.is_idle());
    world.store.resume(by_ann(), world.now).await.unwrap();
    // Two hours of its budget are spent, not sixty-one.
    world.attempt(unreachable()).await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.attempts), (State::Pending, 2));
    world.pass_time(HOUR * 4);
    world.attempt(unreachable()).await;
    assert_eq!(world.row(&key).await.state, State::Blocked, "the budget ends all the same");
}

/// A CRM that is called by one at a time, with a breaker, and a short pause between tries.
fn with_breaker(contract: &str, faults: &str) -> String {
    let retry = r#"schedule = ["1s"], max_attempts = 4"#;
    let breaker = "failures = 3, open = \"10s\", max_open = \"40s\"";
    let config = crm(contract, faults, retry).replace("failures = 0", breaker);
    config.replace("[receivers.crm]\n", "[receivers.crm]\nconcurrency = 1\n")
}

const DOWN: &str = r#"{ on = "every", fault = "unreachable" }"#;

fn count(world: &World, sql: &str) -> String {
    format!("{:?}", world.site.rows(sql))
}

/// So many attempts have begun, and so many tries are spent.
#[track_caller]
fn assert_spent(world: &World, attempts: u32, spent: u32) {
    let sum = count(world, "SELECT sum(attempts) || ' ' || sum(spent) FROM handoff_outbox");
    assert!(sum.contains(&format!("\"{attempts} {spent}\"")), "{attempts} {spent}: {sum}");
}

#[tokio::test]
async fn a_dead_receiver_is_asked_once_in_each_open_time_at_nobodys_cost() {
    let mut world = World::new(&with_breaker(KEYED, DOWN)).await;
    let mut keys = Vec::new();
    for number in 0..20 {
        keys.push(world.approve(&format!("case-{number}")).await);
    }
    world.turn().await;
    assert_spent(&world, 3, 3);
    // Another process knows of it, too.
    let mut world = world.restart().await;
    for (probes, open) in (1..).zip([10, 20, 40, 40]) {
        let open = Duration::from_secs(open);
        world.pass_time(open - Duration::from_millis(1));
        assert!(world.turn().await.is_idle(), "not a moment sooner");
        world.pass_time(Duration::from_millis(1));
        world.turn().await;
        assert_spent(&world, 3 + probes, 3);
    }
    world.reconfigure(&with_breaker(KEYED, "")).await;
    world.pass_time(Duration::from_secs(39));
    assert!(world.turn().await.is_idle(), "a reload of the configuration changes nothing");
    world.pass_time(Duration::from_secs(1));
    world.turn().await;
    for key in keys {
        assert_eq!(world.row(&key).await.state, State::Sent);
    }
    assert_eq!(world.store.holds(world.now).await.unwrap(), []);
}

#[tokio::test]
async fn a_probe_that_dies_with_its_process_is_followed_by_another_one() {
    let mut world = World::new(&with_breaker(KEYED, DOWN)).await;
    for number in 0..5 {
        world.approve(&format!("case-{number}")).await;
    }
    world.turn().await;
    world.pass_time(Duration::from_secs(10));
    let _lost = world.begin_one().await;
    let (mut world, recovered) = world.crash().await;
    assert_eq!(recovered.interrupted.len(), 1);
    world.pass_time(Duration::from_millis(1));
    assert_eq!(world.begin().await.begun.len(), 1);
    world.pass_time(Duration::from_secs(10 + 4));
    assert!(world.begin().await.begun.is_empty(), "one probe at a time");
}

#[tokio::test]
async fn without_a_promise_each_lost_reply_costs_one_operation_and_the_others_wait() {
    let lost = r#"{ on = "every", fault = "lose_reply" }"#;
    let mut world = World::new(&with_breaker(r#"mode = "none""#, lost)).await;
    for number in 0..9 {
        world.approve(&format!("case-{number}")).await;
    }
    world.turn().await;
    let summary = world.store.summary(world.now).await.unwrap();
    assert_eq!((summary.receivers[0].blocked, summary.receivers[0].pending), (3, 6));
    world.pass_time(Duration::from_secs(10));
    world.turn().await;
    let summary = world.store.summary(world.now).await.unwrap();
    assert_eq!((summary.receivers[0].blocked, summary.receivers[0].pending), (4, 5));
}

#[tokio::test]
async fn a_pause_that_the_receiver_asks_for_holds_all_of_it_and_costs_nobody_a_try() {
    let throttle = r#"{ on = "every", fault = "throttle", retry_after = "30s" }"#;
    let retry = r#"schedule = ["1s"], max_attempts = 2, retry_after_ceiling = "20s""#;
    let one = |faults| {
        let config = crm(KEYED, faults, retry);
        config.replace("[receivers.crm]\n", "[receivers.crm]\nconcurrency = 1\n")
    };
    let mut world = World::new(&one(throttle)).await;
    for number in 0..5 {
        world.approve(&format!("case-{number}")).await;
    }
    for round in 1..=4 {
        world.turn().await;
        assert_spent(&world, round, 0);
        world.pass_time(Duration::from_millis(19_999));
        assert!(world.turn().await.is_idle(), "nobody calls before the ceiling of its time");
        world.pass_time(Duration::from_millis(1));
    }
    world.reconfigure(&one("")).await;
    world.turn_to_the_end().await;
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    assert!(count(&world, sent).contains("5"));
}

#[tokio::test]
async fn a_refused_credential_suspends_the_receiver_and_burns_no_row() {
    let locked = r#"{ on = "every", fault = "locked_out" }"#;
    let retry = r#"schedule = ["1s"], max_attempts = 2, max_elapsed = "1h""#;
    let one = |faults| {
        let config = crm(KEYED, faults, retry);
        config.replace("[receivers.crm]\n", "[receivers.crm]\nconcurrency = 1\n")
    };
    let mut world = World::new(&one(locked)).await;
    for number in 0..5 {
        world.approve(&format!("case-{number}")).await;
    }
    world.turn().await;
    assert_spent(&world, 1, 0);
    world.pass_time(HOUR * 60);
    assert!(world.turn().await.is_idle(), "nobody calls it by itself");
    assert_eq!(world.store.holds(world.now).await.unwrap()[0].held_by.as_str(), "suspension");
    world.store.resume(by_ann(), world.now).await.unwrap();
    world.turn().await;
    assert_spent(&world, 2, 0);
    world.reconfigure(&one("")).await;
    world.turn_to_the_end().await;
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    assert!(count(&world, sent).contains("5"));
}

#[tokio::test]
async fn no_more_begins_than_the_rate_allows_also_after_a_restart_and_an_outage() {
    let limit = "failures = 0 }\nrate_limit = { count = 10, period = \"10s\", burst = 3";
    let config = crm(KEYED, "", "").replace("failures = 0", limit);
    let mut world = World::new(&config).await;
    for number in 0..30 {
        world.approve(&format!("case-{number}")).await;
    }
    let second = Duration::from_secs(1);
    let progress = world.turn().await;
    assert_eq!((progress.begun, progress.next_due), (3, Some(world.now.wall.plus(second))));
    let mut world = world.restart().await;
    assert!(world.turn().await.is_idle(), "a restart makes no room");
    for _ in 0..4 {
        world.pass_time(second - Duration::from_millis(1));
        assert!(world.turn().await.is_idle());
        world.pass_time(Duration::from_millis(1));
        assert_eq!(world.turn().await.begun, 1);
    }
    world.pass_time(HOUR);
    assert_eq!(world.turn().await.begun, 3, "a burst, whatever has piled up");
    // What has nothing to do pays nothing.
    world.turn_to_the_end().await;
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    assert!(count(&world, sent).contains("30"));
}

const LOOK_UP: &str =
    r#"mode = "look_up", settle_delay = "5s", look_up = { polls = 1, interval = "1s" }"#;

#[tokio::test]
async fn a_held_receiver_is_not_looked_up_until_it_is_released() {
    let lost = r#"{ on = "attempt", n = 1, fault = "lose_reply" }"#;
    let mut world = World::new(&crm(LOOK_UP, lost, "")).await;
    let key = world.approve("case-104").await;
    world.turn().await;
    world.store.pause(by_ann(), world.now).await.unwrap();
    world.pass_time(HOUR);
    assert!(world.turn().await.is_idle());
    assert_eq!(world.row(&key).await.state, State::Pending);
    world.store.resume(by_ann(), world.now).await.unwrap();
    world.turn().await;
    let row = world.row(&key).await;
    assert_eq!((row.state, row.settled_by.as_deref()), (State::Sent, Some("look_up")));
}

#[tokio::test]
async fn look_ups_that_fail_open_no_breaker() {
    let down = r#"{ on = "attempt", n = 1, fault = "lose_reply" },
                  { on = "look_up", fault = "unreachable" }"#;
    let mut world = World::new(&with_breaker(LOOK_UP, down)).await;
    let key = world.approve("case-104").await;
    world.turn().await;
    for asked in 1..=4 {
        world.pass_time(Duration::from_secs(60));
        world.turn().await;
        let history = world.store.history(&key).await.unwrap();
        assert_eq!(history.len(), 1 + asked, "it was looked up");
        assert_eq!(world.store.holds(world.now).await.unwrap(), []);
    }
}
