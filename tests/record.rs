//! Recording by the library, in a transaction of the application's own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use handoff::clock::{Timestamp, wall};
use handoff::rusqlite::{Connection, Transaction, TransactionBehavior};
use handoff::{Operation, Payload, RecordError, Recorded, State, record};
use std::process::Command;

const KEY: &str = "harbor:create-followup:v1:case-104";
const PAYLOAD: &str = r#"{"case_id":"case-104","title":"Call the customer"}"#;

/// An application's database, with our tables and one of its own.
fn database() -> Connection {
    let mut db = Connection::open_in_memory().unwrap();
    handoff::schema::migrate(&mut db, wall()).unwrap();
    handoff::schema::allow_receivers(&db, &["crm", "other"]).unwrap();
    db.execute_batch("CREATE TABLE cases (id TEXT)").unwrap();
    db
}

fn begin(db: &mut Connection) -> Transaction<'_> {
    db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn operation(payload: &str) -> Operation {
    let payload = Payload::parse(payload).unwrap();
    Operation::new(KEY.parse().unwrap(), "crm", payload, "ann").unwrap()
}

/// Records it in a transaction of its own.
fn recorded(db: &mut Connection, operation: &Operation) -> Result<Recorded, RecordError> {
    let tx = begin(db);
    let recorded = record(&tx, operation);
    tx.commit().unwrap();
    recorded
}

/// Records text as an application in another language does.
fn plain_sql(db: &Connection, payload: &str) {
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, 'crm', ?2, 'ann')";
    assert_eq!(db.execute(sql, [KEY, payload]).unwrap(), 1);
}

/// The number of approvals, of operations, and of the application's own rows.
fn counts(db: &Connection) -> (i64, i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM handoff_approvals),
                      (SELECT count(*) FROM handoff_outbox), (SELECT count(*) FROM cases)";
    db.query_row(sql, [], |row| row.try_into()).unwrap()
}

#[test]
fn what_the_application_commits_is_there_and_what_it_rolls_back_is_not() {
    let mut db = database();
    let ends: [(fn(Transaction<'_>), _); 3] = [
        (|tx| tx.rollback().unwrap(), (0, 0, 0)),
        (|tx| drop(tx), (0, 0, 0)),
        (|tx| tx.commit().unwrap(), (1, 1, 1)),
    ];
    for (end, expected) in ends {
        let tx = begin(&mut db);
        tx.execute("INSERT INTO cases VALUES ('case-104')", []).unwrap();
        assert_eq!(record(&tx, &operation(PAYLOAD)).unwrap(), Recorded::New);
        end(tx);
        assert_eq!(counts(&db), expected);
    }
}

#[test]
fn a_savepoint_that_is_rolled_back_takes_both_rows_with_it() {
    let mut db = database();
    let tx = begin(&mut db);
    tx.execute_batch("INSERT INTO cases VALUES ('case-104'); SAVEPOINT here").unwrap();
    assert_eq!(record(&tx, &operation(PAYLOAD)).unwrap(), Recorded::New);
    tx.execute_batch("ROLLBACK TO here; RELEASE here").unwrap();
    tx.commit().unwrap();
    assert_eq!(counts(&db), (0, 0, 1));
}

#[test]
fn the_canonical_form_is_stored_with_everything_that_was_asked() {
    let mut db = database();
    let later = wall().plus(std::time::Duration::from_secs(3600));
    let asked = operation(r#" {"title":"Call","case_id":"case-104", "n":1.0} "#)
        .deliver_after(later)
        .traceparent("00-a-b-01");
    assert_eq!(recorded(&mut db, &asked).unwrap(), Recorded::New);
    let stored: (String, String, String, i64, String, i64) = db
        .query_row(
            "SELECT a.payload, approved_by, a.receiver, deliver_after, traceparent, due_at
               FROM handoff_approvals AS a JOIN handoff_outbox USING (operation_key)",
            [],
            |row| row.try_into(),
        )
        .unwrap();
    let millis = later.as_millis();
    let payload = r#"{"case_id":"case-104","n":1,"title":"Call"}"#.to_owned();
    let expected = (payload, "ann".into(), "crm".into(), millis, "00-a-b-01".into(), millis);
    assert_eq!(stored, expected);
}

#[test]
fn a_repeat_finds_the_operation_wherever_it_stands() {
    let mut db = database();
    recorded(&mut db, &operation(PAYLOAD)).unwrap();
    for state in State::ALL {
        db.execute("UPDATE handoff_outbox SET state = ?1", [state.as_str()]).unwrap();
        let repeat = recorded(&mut db, &operation(PAYLOAD)).unwrap();
        assert_eq!(repeat, Recorded::Existing { state: *state });
    }
    assert_eq!(counts(&db), (1, 1, 0));
}

#[test]
fn a_repeat_in_the_same_transaction_finds_it_too() {
    let mut db = database();
    let tx = begin(&mut db);
    assert_eq!(record(&tx, &operation(PAYLOAD)).unwrap(), Recorded::New);
    let repeat = record(&tx, &operation(PAYLOAD)).unwrap();
    assert_eq!(repeat, Recorded::Existing { state: State::Pending });
}

#[test]
fn other_content_or_another_receiver_is_a_conflict_that_names_both() {
    let mut db = database();
    recorded(&mut db, &operation(PAYLOAD)).unwrap();
    let elsewhere = Operation { receiver: "other".into(), ..operation(PAYLOAD) };
    for other in [operation(r#"{"case_id":"case-104"}"#), elsewhere] {
        let tx = begin(&mut db);
        tx.execute("INSERT INTO cases VALUES ('case-104')", []).unwrap();
        let error = record(&tx, &other).unwrap_err();
        assert!(error.is_conflict(), "{error}");
        let RecordError::Conflict(conflict) = error else { panic!("{error}") };
        assert_eq!((&*conflict.key, &*conflict.receiver), (KEY, "crm"));
        assert_eq!(conflict.state, State::Pending);
        assert_eq!(conflict.stored, Some(Payload::parse(PAYLOAD).unwrap().fingerprint()));
        assert_eq!(conflict.given, other.payload.fingerprint());
        assert!(!tx.is_autocommit(), "the transaction is still the application's to end");
        tx.rollback().unwrap();
    }
    assert_eq!(counts(&db), (1, 1, 0));
}

#[test]
fn content_recorded_by_plain_sql_is_known_in_every_spelling() {
    for text in [
        "{\"title\":\"Call the customer\",\"case_id\":\"case-104\"}",
        " { \"case_id\" : \"case-104\",\n\t\"title\" : \"Call the customer\" }\r\n",
        "{\"case_id\":\"case\\u002d104\",\"title\":\"\\u0043all the customer\"}",
    ] {
        let mut db = database();
        plain_sql(&db, text);
        let repeat = recorded(&mut db, &operation(PAYLOAD)).unwrap();
        assert_eq!(repeat, Recorded::Existing { state: State::Pending }, "{text}");
    }
    let mut db = database();
    plain_sql(&db, r#"{"n":1.0e2}"#);
    recorded(&mut db, &operation(r#"{"n":100}"#)).unwrap();
}

#[test]
fn what_the_library_recorded_is_known_to_plain_sql() {
    let mut db = database();
    recorded(&mut db, &operation(PAYLOAD)).unwrap();
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, 'crm', ?2, 'bob')";
    assert_eq!(db.execute(sql, [KEY, PAYLOAD]).unwrap(), 0);
}

#[test]
fn content_is_known_as_it_was_recorded_and_as_its_type_has_trimmed_it() {
    let mut db = database();
    plain_sql(&db, r#"{"case_id":"case-104","title":" Call the customer "}"#);
    let fingerprint = Payload::parse(PAYLOAD).unwrap().fingerprint();
    let prepared = "UPDATE handoff_outbox SET payload = ?1, fingerprint = ?2";
    db.execute(prepared, [PAYLOAD, fingerprint.as_str()]).unwrap();
    for same in [PAYLOAD, r#"{"case_id":"case-104","title":" Call the customer "}"#] {
        recorded(&mut db, &operation(same)).unwrap();
    }
    let other = operation(r#"{"case_id":"case-104","title":"Call the customer "}"#);
    assert!(recorded(&mut db, &other).unwrap_err().is_conflict());
}

#[test]
fn text_without_a_canonical_form_conflicts_with_all_that_has_one() {
    let mut db = database();
    plain_sql(&db, r#"{"a":null,"a":null}"#);
    let RecordError::Conflict(conflict) =
        recorded(&mut db, &operation(r#"{"a":null}"#)).unwrap_err()
    else {
        panic!("no conflict")
    };
    assert_eq!(conflict.stored, None);
}

#[test]
fn stored_text_that_is_no_utf_8_is_a_conflict_and_no_failure_of_the_database() {
    let mut db = database();
    db.execute_batch(&format!(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{KEY}', 'crm', CAST(x'7b2261223a22ff227d' AS TEXT), 'ann')"
    ))
    .unwrap();
    let refused = recorded(&mut db, &operation("{\"a\":\"\u{fffd}\"}")).unwrap_err();
    assert!(refused.is_conflict(), "{refused}");
}

#[test]
fn a_pruned_payload_is_compared_by_its_fingerprint_as_long_as_there_is_one() {
    let mut db = database();
    recorded(&mut db, &operation(PAYLOAD)).unwrap();
    let other = operation(r#"{"case_id":"case-104"}"#);
    let elsewhere = Operation { receiver: "other".into(), ..operation(PAYLOAD) };
    db.execute_batch(
        "UPDATE handoff_outbox SET state = 'withdrawn'; UPDATE handoff_approvals SET payload = NULL",
    )
    .unwrap();
    // Withdrawn before the daemon saw it: nothing is left to compare with.
    for unknown in [&operation(PAYLOAD), &other] {
        let settled = recorded(&mut db, unknown).unwrap_err();
        assert!(settled.to_string().starts_with("handoff: settled"), "{settled}");
    }
    assert!(recorded(&mut db, &elsewhere).unwrap_err().is_conflict());
    let fingerprint = Payload::parse(PAYLOAD).unwrap().fingerprint();
    db.execute("UPDATE handoff_outbox SET fingerprint = ?1", [fingerprint.as_str()]).unwrap();
    let repeat = recorded(&mut db, &operation(PAYLOAD)).unwrap();
    assert_eq!(repeat, Recorded::Existing { state: State::Withdrawn });
    assert!(recorded(&mut db, &other).unwrap_err().is_conflict());
}

#[test]
fn a_database_without_our_tables_is_told_what_to_run() {
    let mut db = Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE cases (id TEXT)").unwrap();
    let tx = begin(&mut db);
    tx.execute("INSERT INTO cases VALUES ('case-104')", []).unwrap();
    let error = record(&tx, &operation(PAYLOAD)).unwrap_err();
    assert!(matches!(error, RecordError::NoTables(_)), "{error}");
    assert!(error.to_string().contains("handoff migrate --url sqlite:FILE"), "{error}");
    assert!(!tx.is_autocommit());
}

#[test]
fn what_a_trigger_refuses_keeps_its_text_and_leaves_the_transaction_open() {
    let mut db = database();
    let tx = begin(&mut db);
    tx.execute("INSERT INTO cases VALUES ('case-104')", []).unwrap();
    for (wrong, why) in [
        (Operation { receiver: "nobody".into(), ..operation(PAYLOAD) }, "unknown receiver"),
        (operation(PAYLOAD).deliver_after(Timestamp::from_millis(1)), "invalid deliver_after"),
        (operation(PAYLOAD).traceparent("a b"), "invalid traceparent"),
    ] {
        let error = record(&tx, &wrong).unwrap_err();
        assert!(matches!(&error, RecordError::Refused(text) if text.contains(why)), "{error}");
        assert!(!tx.is_autocommit(), "{why}");
    }
    assert_eq!(record(&tx, &operation(PAYLOAD)).unwrap(), Recorded::New);
    tx.commit().unwrap();
    assert_eq!(counts(&db), (1, 1, 1));
}

#[test]
fn an_approval_that_a_trigger_passes_over_is_never_reported_as_recorded() {
    let mut db = database();
    db.execute_batch(
        "CREATE TRIGGER passed_over BEFORE INSERT ON handoff_approvals
         BEGIN SELECT RAISE(IGNORE); END",
    )
    .unwrap();
    let error = recorded(&mut db, &operation(PAYLOAD)).unwrap_err();
    assert!(error.to_string().contains("was not written"), "{error}");
    assert_eq!(counts(&db), (0, 0, 0));
}

#[test]
fn a_transaction_that_saw_the_database_before_another_wrote_records_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Connection::open(folder.path().join("app.db")).unwrap();
    let mut first = open();
    first.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE cases (id TEXT)").unwrap();
    handoff::schema::migrate(&mut first, wall()).unwrap();
    handoff::schema::allow_receivers(&first, &["crm"]).unwrap();
    let mut second = open();
    let late = second.transaction().unwrap();
    late.query_row("SELECT count(*) FROM cases", [], |_| Ok(())).unwrap();
    recorded(&mut first, &operation(PAYLOAD)).unwrap();
    let error = record(&late, &operation(r#"{"a":1}"#)).unwrap_err();
    assert!(matches!(error, RecordError::Database(_)), "{error}");
    late.rollback().unwrap();
    assert_eq!(counts(&first), (1, 1, 0));
}

#[test]
fn the_library_for_applications_brings_neither_a_runtime_nor_a_server() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--no-default-features", "--features", "record"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    assert!(text.contains("rusqlite v"), "{text}");
    for heavy in ["tokio", "hyper", "axum", "clap", "tracing", "config", "rand"] {
        let found = text.lines().any(|line| line.starts_with(&format!("{heavy} v")));
        assert!(!found, "{heavy} is in\n{text}");
    }
}
