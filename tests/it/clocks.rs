//! A clock that is set while the supervisor is at work.

use crate::support::{World, crm};
use async_trait::async_trait;
use handoff::clock::{Now, SteadyMark};
use handoff::outbox::outcome::{NotBefore, NotTakenWhy, Outcome, Report};
use handoff::receiver::{Journal, Receiver};
use handoff::store::Attempt;
use handoff::supervisor::{Parts, Supervisor};
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// Says always the same.
struct Says(Outcome);

#[async_trait]
impl Receiver for Says {
    async fn deliver(&self, _: &Attempt, _: &dyn Journal) -> Report {
        Report::new(self.0.clone())
    }
}

/// What is read of the clocks while no time passes.
fn read(now: Now) -> (Now, SteadyMark) {
    let Now { wall, steady } = now;
    (now, SteadyMark { wall, steady, boot_time: HOUR, boot_id: "a".into() })
}

/// Delivers once; the database takes the answer only after both clocks were set.
async fn answered_before_a_step(world: &World, outcome: Outcome, after: Now) {
    let parts = Parts::single((*world.rules).clone(), "crm", Arc::new(Says(outcome)), 1, HOUR);
    let mut supervisor = Supervisor::new(Arc::clone(&world.store), parts);
    supervisor.step_by(|| read(world.now)).await.unwrap();
    world.site.tamper(
        "CREATE TRIGGER in_the_way BEFORE UPDATE OF outcome ON handoff_attempts BEGIN
           SELECT RAISE(ABORT, 'in the way'); END",
    );
    while supervisor.step_by(|| read(world.now)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    world.site.tamper("DROP TRIGGER in_the_way");
    supervisor.step_by(|| read(after)).await.unwrap();
}

#[tokio::test]
async fn an_end_that_is_not_stored_yet_moves_with_clocks_that_are_set() {
    let contract = r#"mode = "idempotency_key", window = "forever""#;
    let world = World::new(&crm(contract, "", r#"schedule = ["10s"]"#)).await;
    let key = world.approve("case-104").await;
    let (wall, steady) = (world.now.wall.minus(HOUR), world.now.steady.plus(HOUR));
    answered_before_a_step(&world, Outcome::Unknown, Now { wall, steady }).await;
    let facts = world.row(&key).await.facts;
    assert_eq!(facts.possible.map(|possible| possible.until), Some(steady));
    let pause = facts.not_before.unwrap().since(wall);
    assert!((Duration::from_secs(5)..=Duration::from_secs(10)).contains(&pause), "{pause:?}");
}

#[tokio::test]
async fn a_moment_that_an_answer_names_is_meant_by_the_clock_of_the_answer() {
    let contract = r#"mode = "idempotency_key", window = "forever""#;
    let retry = r#"schedule = ["10s"], retry_after_ceiling = "24h""#;
    let world = World::new(&crm(contract, "", retry)).await;
    let key = world.approve("case-104").await;
    let not_before = Some(NotBefore::At(world.now.wall.plus(HOUR)));
    let busy = Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before };
    let wall = world.now.wall.plus(HOUR * 2);
    answered_before_a_step(&world, busy, Now { wall, steady: wall }).await;
    assert_eq!(world.row(&key).await.facts.not_before, Some(wall.plus(HOUR)));
}
