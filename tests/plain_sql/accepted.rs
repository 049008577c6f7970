//! What is in order is recorded, up to the limits, and the library sees it alike.

use crate::support::{CLAUSES, KEY, PAYLOAD, Row, World};
use handoff::outbox::key::is_plain_subject;
use handoff::rusqlite::Connection;
use handoff::{Operation, OperationKey, Payload};
use proptest::prelude::*;

#[test]
fn one_insert_writes_approval_and_outbox_row_under_every_conflict_clause() {
    for clause in CLAUSES {
        let world = World::new();
        assert_eq!(world.python().record(clause, &Row::good()), Ok(1), "{clause:?}");
        let found: (String, String, String, String, String, String, i64) = world
            .open()
            .query_row(
                "SELECT a.operation_key, a.receiver, a.payload, a.approved_by, o.receiver, o.state,
                        o.attempts
                   FROM handoff_approvals AS a JOIN handoff_outbox AS o USING (operation_key)",
                [],
                |row| row.try_into(),
            )
            .unwrap();
        let expected = (KEY, "crm", PAYLOAD, "ann", "crm", "pending", 0);
        let (key, receiver, payload, approver, to, state, attempts) = &found;
        let found = (&**key, &**receiver, &**payload, &**approver, &**to, &**state, *attempts);
        assert_eq!(found, expected, "{clause:?}");
    }
}

#[test]
fn values_at_the_limits_are_recorded() {
    let name = "n".repeat(40);
    let largest = format!("{{\"a\":\"{}\"}}", "x".repeat(262_144 - 8));
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let good = Row::good;
    let rows = [
        good().key("a:b:v1:c"),
        good().key(format!("{name}:{name}:v999:{}", "x".repeat(80))),
        good().key(format!("h:c:v1:{}", "x".repeat(80))),
        good().key("harbor:create-followup:v10:CASE-104"),
        good().key("harbor:v1:v1:v1"),
        good().key("h2-:c--:v99:-"),
        good().key("a:p:v1:1").payload("{}"),
        good().key("a:p:v1:2").payload(" \t\r\n{\"a\": null, \"b\": [1, {}]}\n"),
        good().key("a:p:v1:3").payload(largest),
        good().key("a:p:v1:4").payload("{\"\u{e9}\":\"\u{1f600}\u{0301}\"}"),
        good().key("a:b:v1:1").approved_by("x".repeat(200)),
        good().key("a:b:v1:2").approved_by("\u{e9}".repeat(100)),
        good().key("a:b:v1:3").approved_by("\u{738b}\u{5c0f}\u{660e}"),
        good().key("a:b:v1:4").approved_by("O'Hara, Ann <ann@example.org>"),
        good().key("a:t:v1:1").traceparent(context),
        good().key("a:t:v1:2").traceparent("x".repeat(200)),
        good().key("a:d:v1:1").deliver_after(100_000_000_000_i64),
        good().key("a:d:v1:2").deliver_after(253_402_300_799_999_i64),
    ];
    let world = World::new();
    let mut python = world.python();
    for row in &rows {
        assert_eq!(python.record(CLAUSES[0], row), Ok(1));
    }
    let count = i64::try_from(rows.len()).unwrap();
    assert_eq!(world.counts(), (count, count));
}

#[test]
fn a_type_with_a_pattern_of_its_own_admits_other_visible_characters() {
    let world = World::new();
    world.daemon("INSERT INTO handoff_types VALUES ('invoice', 2, 0), ('plain', 2, 1)");
    let mut python = world.python();
    let longest = format!("harbor:invoice:v2:{}", "/".repeat(182));
    for key in ["harbor:invoice:v2:2026/11_a*[x]", "harbor:invoice:v2:~!", &longest] {
        assert_eq!(python.record(CLAUSES[0], &Row::good().key(key)), Ok(1), "{key}");
    }
    for key in ["harbor:invoice:v1:2026/11", "harbor:plain:v2:2026/11", "invoice:v2:v2:a/b"] {
        let refused = python.record(CLAUSES[0], &Row::good().key(key)).unwrap_err();
        assert!(refused.contains("invalid subject"), "{key}: {refused}");
    }
    for key in ["harbor:invoice:v2:a b", "harbor:invoice:v2:a:b", "harbor:invoice:v2:\u{e9}"] {
        let refused = python.record(CLAUSES[0], &Row::good().key(key)).unwrap_err();
        assert!(refused.contains("invalid operation_key"), "{key}: {refused}");
    }
}

#[test]
fn what_only_the_daemon_can_judge_is_recorded_as_it_is() {
    let world = World::new();
    let mut python = world.python();
    for (number, payload) in [
        r#"{"a":null,"a":null}"#,
        r#"{"n":9007199254740993}"#,
        r#"{"s":"\u0000"}"#,
        r#"{"s":"\ud800"}"#,
    ]
    .into_iter()
    .enumerate()
    {
        assert!(Payload::parse(payload).is_err(), "{payload}: the daemon refuses it");
        let row = Row::good().key(format!("harbor:x:v1:{number}")).payload(payload);
        assert_eq!(python.record(CLAUSES[0], &row), Ok(1), "{payload}");
    }
}

fn memory() -> Connection {
    let mut db = Connection::open_in_memory().unwrap();
    handoff::schema::migrate(&mut db, handoff::clock::wall()).unwrap();
    handoff::schema::allow_receivers(&db, &["crm"]).unwrap();
    db
}

/// Whether the trigger takes a row with these values.
fn trigger_takes(key: &str, payload: &str, approved_by: &str) -> bool {
    thread_local! { static DB: Connection = memory(); }
    DB.with(|db| {
        db.execute_batch("BEGIN").unwrap();
        let recorded = db
            .prepare_cached(
                "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
                 VALUES (?1, 'crm', ?2, ?3)",
            )
            .unwrap()
            .execute([key, payload, approved_by]);
        db.execute_batch("ROLLBACK").unwrap();
        match recorded {
            Ok(changed) => changed == 1,
            Err(error) => {
                assert!(error.to_string().contains("handoff: invalid"), "{error}");
                false
            }
        }
    })
}

/// Texts that are nearly keys.
fn near_key() -> impl Strategy<Value = String> {
    let name = "[a-z][a-z0-9-]{0,5}|[a-zA-Z0-9_-]{0,3}|[a-z]{38,42}";
    let version = "v[1-9][0-9]{0,2}|v[0-9]{0,4}|[a-z0-9]{0,2}";
    let subject = "[A-Za-z0-9-]{1,8}|[ -~]{0,4}|[a-z]{78,82}|.{0,3}|[a-z]:[a-z]|\u{0}";
    (name, name, version, subject)
        .prop_map(|(space, kind, version, subject)| format!("{space}:{kind}:{version}:{subject}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn trigger_and_library_agree_on_every_key(key in near_key()) {
        let library = OperationKey::parse(&key).is_ok_and(|key| is_plain_subject(key.subject()));
        prop_assert_eq!(trigger_takes(&key, "{}", "ann"), library);
    }

    #[test]
    fn trigger_and_library_agree_on_every_approver(
        name in r"[\x00-\x20\x7f-\xa0\u{2000}-\u{200f}\u{3000}]{0,3}[a-z\u{e9}]{0,2}[\x00-\x20\x7f-\xa1]{0,1}|.{0,80}",
    ) {
        let key: OperationKey = KEY.parse().unwrap();
        let payload = Payload::parse("{}").unwrap();
        let library = Operation::new(key, "crm", payload, &name).is_ok();
        prop_assert_eq!(trigger_takes(KEY, "{}", &name), library);
    }

    #[test]
    fn whatever_payload_the_library_takes_the_trigger_takes(
        payload in r#"[ \n\t]{0,2}\{("[a-z\u{e9}]{0,2}":(null|true|[0-9]{1,3}|"\PC{0,4}"|\[\]|\{\}))?\}[ \n]{0,2}|[\[\]\{\}":,a0 ]{0,8}"#,
    ) {
        if Payload::parse(&payload).is_ok() {
            prop_assert!(trigger_takes(KEY, &payload, "ann"));
        }
    }
}
