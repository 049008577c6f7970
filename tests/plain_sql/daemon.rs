//! What the trigger cannot see is the daemon's to find, and stops that operation alone.

use crate::support::{CLAUSES, KEY, Python, Row, World};
use handoff::clock::{Now, wall};
use handoff::jitter::Seed;
use handoff::outbox::contract::Contract;
use handoff::outbox::operation_type::{OperationType, Schema};
use handoff::outbox::policy::Terms;
use handoff::outbox::retry::{Delays, Retry};
use handoff::outbox::rules::{Protection, ReceiverRules, Rules};
use handoff::outbox::state::{BlockReason, Effect, State};
use handoff::store::sqlite::{Access, Sqlite};
use handoff::store::{Pass, Settings, Slots, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn rules() -> Arc<Rules> {
    let kind = OperationType {
        name: "create-followup".to_owned(),
        version: 1,
        receiver: "crm".to_owned(),
        subject: "case_id".to_owned(),
        subject_pattern: None,
        schema: Schema::create_followup().unwrap(),
        trim: vec!["title".to_owned()],
        approval_max_age: None,
        independent_versions: false,
    };
    let second = Duration::from_secs(1);
    let retry = Retry {
        delays: Delays::Schedule(vec![second]),
        max_attempts: 3,
        max_elapsed: 60 * second,
        retry_after_ceiling: second,
    };
    let terms = Terms { contract: Contract::none(), retry, timeout: second };
    let receiver = ReceiverRules {
        terms,
        identity: "crm".to_owned(),
        request_form: String::new(),
        protection: Protection::default(),
    };
    Arc::new(Rules {
        types: BTreeMap::from([((kind.name.clone(), 1), kind)]),
        receivers: BTreeMap::from([("crm".to_owned(), receiver)]),
        seed: Seed::draw(),
    })
}

/// One pass of the daemon over what is due.
async fn claim(world: &World) -> (Sqlite, Vec<String>) {
    let settings = Settings {
        url: format!("sqlite:{}", world.path().display()),
        busy_timeout: Duration::from_secs(5),
        explicit: true,
    };
    let store = Sqlite::open(&settings, Access::Existing, "test").await.unwrap();
    let rules = rules();
    store.mirror(&rules, handoff::store::Mirror::Replace).await.unwrap();
    let slots = BTreeMap::from([("crm".to_owned(), Slots { free: 9, suspect: false })]);
    let pass = Pass { slots, ..Pass::default() };
    let passed = store.pass(&rules, pass, Now::at(wall().plus(Duration::from_secs(1)))).await;
    let begun = passed.unwrap().begun;
    (store, begun.iter().map(|attempt| attempt.key().as_str().to_owned()).collect())
}

/// Records bytes that are no UTF-8, as a program with another encoding binds them.
fn record_bytes(python: &mut Python, key: &str, payload: &[u8], approved_by: &[u8]) {
    python.must(&format!(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{key}', 'crm', CAST(x'{}' AS TEXT), CAST(x'{}' AS TEXT))",
        hex::encode(payload),
        hex::encode(approved_by),
    ));
}

#[tokio::test]
async fn text_that_is_no_utf_8_blocks_its_own_operation_and_no_other() {
    let world = World::new();
    let mut python = world.python();
    let latin_1 = b"{\"case_id\":\"case-1\",\"title\":\"Call Andr\xe9\"}";
    record_bytes(&mut python, "harbor:create-followup:v1:case-1", latin_1, b"ann");
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    let (store, begun) = claim(&world).await;
    assert_eq!(begun, [KEY]);
    let row = store.find("harbor:create-followup:v1:case-1").await.unwrap().unwrap();
    assert_eq!((row.state, row.blocked_reason), (State::Blocked, Some(BlockReason::Invalid)));
    assert_eq!(row.effect, Effect::None);
    assert!(row.last_error.as_deref().is_some_and(|error| error.contains("UTF-8")), "{row:?}");
}

#[tokio::test]
async fn an_approvers_name_that_is_no_utf_8_does_not_stop_the_delivery() {
    let world = World::new();
    let mut python = world.python();
    let payload = crate::support::PAYLOAD.as_bytes();
    record_bytes(&mut python, KEY, payload, b"Andr\xe9");
    let (store, begun) = claim(&world).await;
    assert_eq!(begun, [KEY]);
    let row = store.find(KEY).await.unwrap().unwrap();
    assert_eq!(row.approved_by, "Andr\u{fffd}");
}

#[tokio::test]
async fn what_the_daemon_refuses_is_blocked_as_invalid_and_nothing_was_done() {
    let world = World::new();
    let mut python = world.python();
    let wrong = [
        r#"{"case_id":"case-104","title":null,"title":null}"#,
        r#"{"case_id":"case-104","title":"\u0000"}"#,
        r#"{"case_id":"case-104","title":"\ud800"}"#,
        r#"{"case_id":"case-105","title":"Call the customer"}"#,
        r#"{"case_id":"case-104"}"#,
        r#"{"case_id":"case-104","title":"Call the customer","n":9007199254740993}"#,
    ];
    for (number, payload) in wrong.iter().enumerate() {
        let row = Row::good()
            .key(format!("harbor:create-followup:v1:case-10{number}x"))
            .payload(payload.replace("case-104", &format!("case-10{number}x")));
        assert_eq!(python.record(CLAUSES[0], &row), Ok(1));
    }
    let (store, begun) = claim(&world).await;
    assert!(begun.is_empty());
    for number in 0..wrong.len() {
        let key = format!("harbor:create-followup:v1:case-10{number}x");
        let row = store.find(&key).await.unwrap().unwrap();
        assert_eq!(row.blocked_reason, Some(BlockReason::Invalid), "{number}");
        assert_eq!((row.effect, row.attempts), (Effect::None, 0), "{number}");
    }
    // The text stays as it was recorded, so that a repeat is still known.
    let first = Row::good()
        .key("harbor:create-followup:v1:case-100x")
        .payload(wrong[0].replace("case-104", "case-100x"));
    assert_eq!(python.record(CLAUSES[0], &first), Ok(0));
}
