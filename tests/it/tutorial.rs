//! The twelve rules of the tutorial that the project started from, kept by the
//! real parts: recorded by Rust, by plain SQL and by the command line, delivered
//! by the supervisor or by the daemon as a process.

use crate::support::place::{connect, rows, text};
use crate::support::site::{TITLE, follow_up, payload};
use crate::support::{Daemon, Site, Value, World, crm, key};
use handoff::outbox::outcome::OutcomeKind;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

const KEYED: &str = r#"mode = "idempotency_key", window = "forever""#;

/// How an application records.
#[derive(Clone, Copy, Debug)]
enum Way {
    Rust,
    Sql,
    CommandLine,
}

const WAYS: [Way; 3] = [Way::Rust, Way::Sql, Way::CommandLine];

/// A site with its tables, and a table of the application's own in the same file.
fn site() -> Site {
    let site = Site::new(&crm(KEYED, "", ""));
    site.must(&["migrate"]);
    site.tamper("CREATE TABLE cases (id TEXT, stage TEXT)");
    site
}

/// The INSERT with which an application records in plain SQL.
fn insert(clause: &str, case: &str, title: &str) -> String {
    let (key, payload) = (key(case), payload(case, title));
    format!(
        "INSERT {clause} INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{key}', 'crm', '{payload}', 'ann');"
    )
}

/// Records a follow-up; the error says why that was refused.
fn record(site: &Site, way: Way, case: &str, title: &str) -> Result<(), String> {
    match way {
        Way::Rust => {
            let mut db = connect(&site.database());
            let tx = db.transaction().unwrap();
            handoff::record(&tx, &follow_up(case, title)).map_err(|error| error.to_string())?;
            tx.commit().map_err(|error| error.to_string())
        }
        Way::Sql => site.place().run(site.folder(), &insert("", case, title)),
        Way::CommandLine => {
            let output = site.approve(case, title);
            let error = || String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(error()) }
        }
    }
}

fn cases(site: &Site) -> Vec<Vec<Value>> {
    site.rows("SELECT * FROM cases")
}

#[test]
fn an_approval_that_is_rolled_back_leaves_nothing_behind() {
    let site = site();
    let before = (site.stored(), cases(&site));
    let mut db = connect(&site.database());
    let tx = db.transaction().unwrap();
    tx.execute("INSERT INTO cases VALUES ('case-104', 'approved')", []).unwrap();
    handoff::record(&tx, &follow_up("case-104", TITLE)).unwrap();
    assert_eq!(rows(&tx, "SELECT state FROM handoff_outbox"), [[text("pending")]]);
    tx.rollback().unwrap();
    assert_eq!((site.stored(), cases(&site)), before);

    let insert = insert("", "case-104", TITLE);
    let insert = format!("BEGIN IMMEDIATE; {insert} INSERT INTO cases VALUES ('case-104', 'x');");
    site.tamper(&format!("{insert} ROLLBACK;"));
    assert_eq!((site.stored(), cases(&site)), before);
}

#[test]
fn an_approval_without_its_outbox_row_cannot_be_committed() {
    let site = site();
    let before = site.stored();
    site.tamper(
        "CREATE TRIGGER broken BEFORE INSERT ON handoff_outbox BEGIN
           SELECT RAISE(ABORT, 'the trigger was made to fail'); END",
    );
    for way in WAYS {
        let error = record(&site, way, "case-104", TITLE).unwrap_err();
        assert!(error.contains("made to fail"), "{way:?}: {error}");
    }
    for clause in ["", "OR ABORT", "OR FAIL", "OR IGNORE", "OR REPLACE", "OR ROLLBACK"] {
        // A careless application: it goes on after the error and commits.
        let db = connect(&site.database());
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        db.execute_batch(&insert(clause, "case-104", TITLE)).unwrap_err();
        db.execute_batch("COMMIT").ok();
        assert_eq!(site.stored(), before, "{clause}");
    }
}

#[test]
fn an_application_killed_between_insert_and_commit_has_recorded_nothing() {
    let site = site();
    let before = (site.stored(), cases(&site));
    let mut application = Command::new("sqlite3")
        .arg(site.database())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let insert = insert("", "case-104", TITLE);
    let script = format!(
        "BEGIN IMMEDIATE;\nINSERT INTO cases VALUES ('case-104', 'approved');\n{insert}\n\
         SELECT 'inserted ' || count(*) FROM handoff_outbox;\n"
    );
    application.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
    let mut said = String::new();
    BufReader::new(application.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "inserted 1\n");
    application.kill().unwrap();
    application.wait().unwrap();
    assert_eq!((site.stored(), cases(&site)), before);
}

#[test]
fn the_same_approval_is_recorded_once_however_it_comes_again() {
    let site = site();
    for (first, case) in WAYS.into_iter().zip(["case-104", "case-105", "case-106"]) {
        record(&site, first, case, TITLE).unwrap();
        let before = site.stored();
        for again in WAYS {
            record(&site, again, case, TITLE).unwrap();
            assert_eq!(site.stored(), before, "{again:?} after {first:?}");
        }
    }
    let stored = site.stored();
    assert_eq!((stored.approvals.len(), stored.outbox.len()), (3, 3));
}

#[test]
fn other_content_under_the_same_key_is_refused_and_changes_nothing() {
    let site = site();
    for (first, case) in WAYS.into_iter().zip(["case-104", "case-105", "case-106"]) {
        record(&site, first, case, TITLE).unwrap();
        let before = site.stored();
        for other in WAYS {
            let error = record(&site, other, case, "Different approved instruction").unwrap_err();
            let says = error.contains("conflict") || error.contains("other content");
            assert!(says, "{other:?} after {first:?}: {error}");
            assert_eq!(site.stored(), before, "{other:?} after {first:?}");
        }
        let code = site.approve(case, "Different approved instruction").status.code();
        assert_eq!(code, Some(4));
    }
}

#[tokio::test]
async fn a_failure_before_acceptance_is_tried_again() {
    let offline = r#"{ on = "attempt", n = 1, fault = "unreachable" }"#;
    let mut world = World::new(&crm(KEYED, offline, "")).await;
    let key = world.approve("case-104").await;
    world.turn().await;
    assert_eq!(world.site.standing(), ("pending".into(), None, "none".into(), 1, None));
    assert_eq!(world.site.task_count(), 0);
    world.turn_to_the_end().await;
    let receipt = Some("1".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    assert_eq!(world.site.task_count(), 1);
    assert_eq!(world.row(&key).await.last_error, None);
}

#[tokio::test]
async fn a_lost_reply_makes_no_second_task_and_ends_with_the_first_ones_receipt() {
    let lost = r#"{ on = "attempt", n = 1, fault = "lose_reply" }"#;
    let mut world = World::new(&crm(KEYED, lost, "")).await;
    world.site.put_task("harbor:create-followup:v1:case-7", "{}");
    world.approve("case-104").await;
    world.turn().await;
    assert_eq!(world.site.standing(), ("pending".into(), None, "possible".into(), 1, None));
    let first = world.site.crm("SELECT CAST(max(task_id) AS TEXT) FROM tasks");
    assert_eq!(first, [[text("2")]]);
    // A fresh receiver on the same file.
    let mut world = world.restart().await;
    world.turn_to_the_end().await;
    let receipt = Some("2".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    assert_eq!(world.site.task_count(), 2);
}

#[test]
fn a_crash_after_the_reply_leaves_it_pending_and_ends_with_the_same_task() {
    let crash = r#"{ on = "attempt", n = 1, fault = "crash_after" }"#;
    let site = Site::new(&crm(KEYED, crash, ""));
    assert!(site.approve("case-104", TITLE).status.success());
    let mut daemon = Daemon::spawn_only(site.program(&["run"]));
    assert_eq!(daemon.ended().signal(), Some(9));
    assert_eq!(site.standing(), ("pending".into(), None, "possible".into(), 1, None));
    assert_eq!(site.task_count(), 1);
    let daemon = Daemon::start(&site);
    assert_eq!(site.wait(&key("case-104"))["state"], "sent");
    daemon.stop();
    let receipt = Some("1".to_owned());
    assert_eq!(site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    assert_eq!(site.task_count(), 1);
    let first = "SELECT outcome FROM handoff_attempts WHERE number = 1";
    assert_eq!(site.value(first), text(OutcomeKind::Interrupted.as_str()));
}

#[tokio::test]
async fn a_reply_that_was_not_saved_before_the_process_died_is_found_again() {
    let mut world = World::new(&crm(KEYED, "", "")).await;
    world.approve("case-104").await;
    let attempt = world.begin_one().await;
    let report = world.deliver(&attempt).await;
    // Everything between the call and the save is dropped.
    drop((attempt, report));
    assert_eq!(world.site.standing(), ("pending".into(), None, "possible".into(), 1, None));
    world = world.restart().await;
    assert_eq!(world.site.standing(), ("pending".into(), None, "possible".into(), 1, None));
    world.turn().await;
    let receipt = Some("1".to_owned());
    assert_eq!(world.site.standing(), ("sent".into(), None, "confirmed".into(), 2, receipt));
    assert_eq!(world.site.task_count(), 1);
}

#[tokio::test]
async fn other_content_at_the_receiver_blocks_and_the_next_pass_is_idle() {
    let mut world = World::new(&crm(KEYED, "", "")).await;
    let key = world.approve("case-104").await;
    world.site.put_task(&key, r#"{"title":"different preexisting receiver content"}"#);
    world.turn().await;
    let (state, reason, _, attempts, receipt) = world.site.standing();
    let reason = reason.as_deref();
    assert_eq!((&*state, reason, attempts, receipt), ("blocked", Some("conflict"), 1, None));
    let before = world.site.stored();
    world.pass_time(Duration::from_secs(86_400));
    assert!(world.turn().await.is_idle());
    assert_eq!(world.site.stored(), before);
    assert_eq!(world.site.task_count(), 1);
}

#[tokio::test]
async fn a_sent_operation_is_never_selected_again() {
    let mut world = World::new(&crm(KEYED, "", "")).await;
    world.approve("case-104").await;
    world.turn().await;
    let before = world.site.stored();
    for way in WAYS {
        record(&world.site, way, "case-104", TITLE).unwrap();
        world.pass_time(Duration::from_secs(86_400));
        assert!(world.turn().await.is_idle(), "{way:?}");
        assert_eq!(world.site.stored(), before, "{way:?}");
    }
    assert_eq!(world.site.standing().3, 1);
}

#[tokio::test]
async fn distinct_cases_with_equal_titles_are_distinct_acts() {
    let mut world = World::new(&crm(KEYED, "", "")).await;
    for case in ["case-104", "case-105"] {
        world.approve(case).await;
    }
    world.turn().await;
    let states = world.site.rows("SELECT state, remote_id FROM handoff_outbox ORDER BY remote_id");
    assert_eq!(states, [[text("sent"), text("1")], [text("sent"), text("2")]]);
    assert_eq!(world.site.task_count(), 2);
}

#[tokio::test]
async fn the_budget_ends_on_the_third_failure_and_a_healthy_receiver_is_not_called() {
    let offline = r#"{ on = "every", fault = "unreachable" }"#;
    let mut world = World::new(&crm(KEYED, offline, "max_attempts = 3")).await;
    world.approve("case-104").await;
    for attempt in 1..=2 {
        let due = world.turn().await.next_due.unwrap();
        assert_eq!(world.site.standing(), ("pending".into(), None, "none".into(), attempt, None));
        world.pass_time(due.since(world.now.wall));
    }
    world.turn().await;
    let blocked = ("blocked".into(), Some("budget_exhausted".into()), "none".into(), 3, None);
    assert_eq!(world.site.standing(), blocked);
    world.reconfigure(&crm(KEYED, "", "max_attempts = 3")).await;
    world.pass_time(Duration::from_secs(86_400));
    assert!(world.turn().await.is_idle());
    assert_eq!(world.site.standing(), blocked);
    assert_eq!(world.site.task_count(), 0);
}

#[test]
fn input_that_does_not_fit_stores_nothing() {
    let site = site();
    let before = site.stored();
    let long = format!(r#"{{"case_id":"case-104","title":"{}"}}"#, "x".repeat(161));
    for payload in [
        r#"{"case_id":"","title":"Call"}"#,
        r#"{"case_id":" ","title":"Call"}"#,
        r#"{"case_id":"case/104","title":"Call"}"#,
        r#"{"case_id":null,"title":"Call"}"#,
        r#"{"title":"Call"}"#,
        r#"{"case_id":"case-104","title":""}"#,
        r#"{"case_id":"case-104","title":" "}"#,
        r#"{"case_id":"case-104","title":null}"#,
        r#"{"case_id":"case-104"}"#,
        "null",
        "",
        &long,
    ] {
        std::fs::write(site.path("payload.json"), payload).unwrap();
        let output = site.run(&["approve", "create-followup", "--payload", "payload.json"]);
        assert_eq!(output.status.code(), Some(65), "{payload}");
        assert!(!output.stderr.is_empty(), "{payload}");
        assert_eq!(site.stored(), before, "{payload}");
    }
    for case in ["", "case/104", " "] {
        // Only the key's own type knows whether it allows such a subject.
        if key(case).parse::<handoff::OperationKey>().is_ok() {
            let error = record(&site, Way::Rust, case, "Call").unwrap_err();
            assert!(error.contains("handoff: invalid subject"), "{case:?}: {error}");
        }
        let error = record(&site, Way::Sql, case, "Call").unwrap_err();
        assert!(error.contains("handoff: invalid"), "{case:?}: {error}");
    }
    for payload in ["NULL", "''", "'null'", "' '"] {
        let error = site.place().run(
            site.folder(),
            &format!(
                "INSERT OR IGNORE INTO handoff_approvals
                   (operation_key, receiver, payload, approved_by)
                 VALUES ('{}', 'crm', {payload}, 'ann')",
                key("case-104")
            ),
        );
        assert!(error.unwrap_err().contains("handoff: invalid payload"), "{payload}");
    }
    assert_eq!(site.stored(), before);
}

#[tokio::test]
async fn input_that_only_the_type_refuses_is_blocked_before_any_attempt() {
    let mut world = World::new(&crm(KEYED, "", "")).await;
    let titles = [("case-1", ""), ("case-2", " "), ("case-3", &"x".repeat(161))];
    for (case, title) in titles {
        let way = if case == "case-2" { Way::Sql } else { Way::Rust };
        record(&world.site, way, case, title).unwrap();
    }
    let null = insert("", "case-4", "").replace(r#""title":"""#, r#""title":null"#);
    world.site.tamper(&null);
    world.turn().await;
    let blocked = world.site.rows("SELECT blocked_reason, effect, attempts FROM handoff_outbox");
    let invalid = [text("invalid"), text("none"), Value::Integer(0)].to_vec();
    assert_eq!(blocked, vec![invalid; 4]);
    assert_eq!((world.site.task_count(), world.site.stored().attempts.len()), (0, 0));
}

#[test]
fn three_crashes_after_acceptance_end_blocked_with_one_task_and_no_receipt() {
    let crash = r#"{ on = "every", fault = "crash_after" }"#;
    let site = Site::new(&crm(KEYED, crash, "max_attempts = 3"));
    assert!(site.approve("case-104", TITLE).status.success());
    for attempt in 1..=3 {
        let mut daemon = Daemon::spawn_only(site.program(&["run"]));
        assert_eq!(daemon.ended().signal(), Some(9), "{:#?}", daemon.log);
        assert_eq!(site.standing(), ("pending".into(), None, "possible".into(), attempt, None));
    }
    let daemon = Daemon::start(&site);
    assert_eq!(site.wait(&key("case-104"))["state"], "blocked");
    daemon.stop();
    let reason = Some("budget_exhausted".into());
    assert_eq!(site.standing(), ("blocked".into(), reason, "possible".into(), 3, None));
    assert_eq!((site.task_count(), site.crm("SELECT 1 FROM effects").len()), (1, 1));
}
