//! Faults, each with its classification and its effect; what the CRM does by itself is in `keys`.

mod keys;

use super::*;
use crate::receiver::fault::On;
use crate::receiver::waiting;
use rusqlite::Connection;
use tempfile::TempDir;

const KEY: &str = "harbor:create-followup:v1:case-104";
const CALL: &str = r#"{"case_id":"case-104","title":"Call about the approved repair plan"}"#;
const VISIT: &str = r#"{"case_id":"case-104","title":"Visit instead"}"#;
const SHORT: Duration = Duration::from_millis(30);

/// A folder with a CRM's file in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("crm").join("simulated.db")
    }

    fn settings(&self, mode: Mode, unique: Option<bool>, faults: Vec<Fault>) -> Settings {
        Settings { path: self.path(), unique, mode: Some(mode), faults }
    }

    fn opened(&self, mode: Mode, unique: Option<bool>, faults: Vec<Fault>) -> Simulated {
        let settings = self.settings(mode, unique, faults);
        Simulated::open(&settings, &Contract::none(), Seed(1)).unwrap()
    }

    /// A CRM that knows keys again, with one fault that every delivery meets.
    fn with(&self, what: What) -> Simulated {
        self.opened(Mode::IdempotencyKey, None, vec![Fault { on: On::Every, what }])
    }

    fn sql(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// How many tasks there are, and how many effects.
    fn counts(&self) -> (u64, u64) {
        let effects = self.sql().query_row("SELECT count(*) FROM effects", (), |row| row.get(0));
        (task_count(&self.path()).unwrap(), effects.map(i64::cast_unsigned).unwrap())
    }
}

fn applied(task: &str) -> Outcome {
    Outcome::Applied { remote_id: Some(task.into()), replayed: false }
}

fn replayed(task: &str) -> Outcome {
    Outcome::Applied { remote_id: Some(task.into()), replayed: true }
}

async fn first(crm: &Simulated) -> Report {
    crm.call(KEY, CALL, 1, 1).await
}

async fn outcome(crm: &Simulated, payload: &str) -> Outcome {
    crm.call(KEY, payload, 1, 1).await.outcome
}

fn code(report: &Report) -> &str {
    report.error_code.as_deref().unwrap_or_default()
}

/// What a report says first: the outcome, its code and the HTTP status.
fn seen(report: &Report) -> (Outcome, &str, Option<u16>) {
    (report.outcome.clone(), code(report), report.http_status)
}

async fn until(holds: impl FnMut() -> bool) {
    waiting::until("the late effect", holds).await;
}

#[tokio::test]
async fn faults_before_acceptance_have_no_effect() {
    let not_taken = |why, after| Outcome::NotTaken { why, not_before: after };
    let throttled = |after| not_taken(NotTakenWhy::Throttled, after);
    let unreachable = not_taken(NotTakenWhy::Unreachable, None);
    let minute = Duration::from_secs(60);
    let cases = [
        (What::Unreachable, unreachable, "unreachable", None),
        (What::Throttle(None), throttled(None), "http_429", Some(429)),
        (
            What::Throttle(Some(minute)),
            throttled(Some(NotBefore::After(minute))),
            "http_429",
            Some(429),
        ),
        (What::Reject, Outcome::Rejected, "http_422", Some(422)),
        (What::Conflict, Outcome::Conflict, "http_409", Some(409)),
        (
            What::Unauthorised,
            Outcome::Unauthorised { whole_receiver: false },
            "http_403",
            Some(403),
        ),
        (What::LockedOut, Outcome::Unauthorised { whole_receiver: true }, "http_401", Some(401)),
    ];
    for (what, outcome, code, status) in cases {
        let place = Place::new();
        let report = first(&place.with(what)).await;
        assert_eq!(seen(&report), (outcome, code, status), "{what:?}");
        assert_eq!(report.request_sent, Some(what != What::Unreachable), "{what:?}");
        assert_eq!(place.counts(), (0, 0), "{what:?}");
    }
}

#[tokio::test]
async fn a_reply_that_is_lost_or_unreadable_leaves_the_task_and_is_unknown() {
    for (what, code) in [(What::LoseReply, "reply_lost"), (What::Malformed, "unreadable_reply")] {
        let place = Place::new();
        let report = first(&place.with(what)).await;
        assert_eq!(seen(&report), (Outcome::Unknown, code, None), "{what:?}");
        assert_eq!(report.request_sent, Some(true), "{what:?}");
        assert_eq!(place.counts(), (1, 1), "{what:?}");
        // The same key again learns of the task.
        let again = place.opened(Mode::IdempotencyKey, None, vec![]);
        assert_eq!(outcome(&again, CALL).await, replayed("1"), "{what:?}");
        assert_eq!(place.counts(), (1, 1), "{what:?}");
    }
}

#[tokio::test]
async fn a_lost_reply_hides_a_refusal_too() {
    let place = Place::new();
    outcome(&place.opened(Mode::IdempotencyKey, None, vec![]), VISIT).await;
    let report = first(&place.with(What::LoseReply)).await;
    assert_eq!(seen(&report), (Outcome::Unknown, "reply_lost", None));
    assert_eq!(place.counts(), (1, 1));
}

#[tokio::test]
async fn a_late_acceptance_comes_after_the_call_is_over() {
    let place = Place::new();
    let crm = place.with(What::Late(SHORT));
    // The lock keeps the acceptance away until it has been seen that none came at once.
    let other = place.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(seen(&first(&crm).await), (Outcome::Unknown, "reply_lost", None));
    drop(crm);
    assert_eq!(place.counts(), (0, 0));
    other.execute_batch("ROLLBACK").unwrap();
    until(|| place.counts() == (1, 1)).await;
}

#[tokio::test]
async fn a_slow_reply_comes_after_the_task_and_giving_up_leaves_the_task() {
    let place = Place::new();
    let crm = place.with(What::Slow(SHORT));
    let began = Instant::now();
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
    assert!(began.elapsed() >= SHORT);

    let slow = place.with(What::Slow(Duration::from_secs(600)));
    let accepted = async { until(|| place.counts() == (2, 2)).await };
    tokio::select! {
        report = slow.call("another", CALL, 1, 1) => panic!("too soon: {report:?}"),
        () = accepted => {}
    }
    assert_eq!(tasks_of(&place.path(), "another").unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_error_is_unknown_and_accepted_by_the_chance_of_key_and_number() {
    let place = Place::new();
    let crm = place.with(What::ServerError);
    let mut accepted = 0;
    for case in 0..40 {
        let key = format!("case-{case}");
        let report = crm.call(&key, CALL, 1, 1).await;
        assert_eq!(seen(&report), (Outcome::Unknown, "http_500", Some(500)));
        let delivery = Delivery { key: &key, number: 1, elapsed: Duration::ZERO };
        let expected = u64::from(delivery.accepted_despite_error(Seed(1)));
        assert_eq!(tasks_of(&place.path(), &key).unwrap().len() as u64, expected, "{key}");
        accepted += expected;
    }
    assert_eq!(place.counts(), (accepted, accepted));
    assert!((8..=32).contains(&accepted), "{accepted} of 40");
}

#[tokio::test]
async fn the_plan_is_asked_by_the_number_of_the_delivery_and_not_of_the_attempt() {
    let place = Place::new();
    let on_second = vec![Fault { on: On::Attempt(2), what: What::Reject }];
    let crm = place.opened(Mode::IdempotencyKey, None, on_second);
    assert_eq!(crm.call(KEY, CALL, 1, 2).await.outcome, applied("1"));
    assert_eq!(crm.call(KEY, CALL, 2, 3).await.outcome, Outcome::Rejected);
    assert_eq!(crm.call(KEY, CALL, 3, 4).await.outcome, replayed("1"));
}

#[tokio::test]
async fn the_plan_counts_time_from_the_opening() {
    let place = Place::new();
    let on = On::Time { from: Duration::ZERO, to: SHORT };
    let fault = Fault { on, what: What::Unreachable };
    let crm = place.opened(Mode::IdempotencyKey, None, vec![fault]);
    waiting::moment(SHORT).await;
    assert_eq!(outcome(&crm, CALL).await, applied("1"));

    let on = On::Time { from: Duration::ZERO, to: Duration::from_secs(600) };
    let fault = Fault { on, what: What::Unreachable };
    let down = place.opened(Mode::IdempotencyKey, None, vec![fault]);
    assert_eq!(code(&first(&down).await), "unreachable");
}
