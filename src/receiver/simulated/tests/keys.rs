//! What the CRM does with a key, with its file, and when its database fails.

use super::*;
use crate::outbox::contract::Window;
use tokio::task::JoinSet;

const KEYED: [Mode; 3] = [Mode::IdempotencyKey, Mode::CreateOnly, Mode::Upsert];

fn exists(task: &str) -> Outcome {
    Outcome::AlreadyExists { remote_id: Some(task.into()) }
}

#[tokio::test]
async fn an_idempotency_key_returns_the_first_task_and_refuses_other_content() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
    assert_eq!(outcome(&crm, CALL).await, replayed("1"));
    assert_eq!(place.counts(), (1, 1));
    let refused = crm.call(KEY, VISIT, 2, 2).await;
    assert_eq!(seen(&refused), (Outcome::Conflict, "http_409", Some(409)));
    assert_eq!(place.counts(), (1, 1));
    assert_eq!(tasks_of(&place.path(), KEY).unwrap()[0].payload, CALL);
}

#[tokio::test]
async fn create_only_answers_exists_whatever_the_content() {
    let place = Place::new();
    let crm = place.opened(Mode::CreateOnly, None, vec![]);
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
    assert_eq!(outcome(&crm, CALL).await, exists("1"));
    assert_eq!(outcome(&crm, VISIT).await, exists("1"));
    assert_eq!(place.counts(), (1, 1));
}

#[tokio::test]
async fn an_upsert_overwrites_the_same_task_and_logs_only_what_it_changed() {
    let place = Place::new();
    let crm = place.opened(Mode::Upsert, None, vec![]);
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
    assert_eq!(place.counts(), (1, 1));
    assert_eq!(outcome(&crm, VISIT).await, applied("1"));
    assert_eq!(place.counts(), (1, 2));
    let tasks = tasks_of(&place.path(), KEY).unwrap();
    assert_eq!(tasks, [Task { id: 1, payload: VISIT.into() }]);
}

#[tokio::test]
async fn a_crm_that_does_not_look_at_keys_makes_a_task_for_each_call() {
    for mode in [Mode::None, Mode::LookUp] {
        for unique in [None, Some(false), Some(true)] {
            let place = Place::new();
            let crm = place.opened(mode, unique, vec![]);
            assert_eq!(outcome(&crm, CALL).await, applied("1"), "{mode} {unique:?}");
            assert_eq!(outcome(&crm, CALL).await, applied("2"), "{mode} {unique:?}");
            assert_eq!(place.counts(), (2, 2), "{mode} {unique:?}");
        }
    }
}

#[tokio::test]
async fn a_crm_that_lies_about_unique_keys_makes_a_task_for_each_call() {
    for mode in KEYED {
        let place = Place::new();
        let crm = place.opened(mode, Some(false), vec![]);
        assert_eq!(outcome(&crm, CALL).await, applied("1"), "{mode}");
        assert_eq!(outcome(&crm, CALL).await, applied("2"), "{mode}");
        assert_eq!(outcome(&crm, VISIT).await, applied("3"), "{mode}");
        assert_eq!(place.counts(), (3, 3), "{mode}");
    }
}

#[tokio::test]
async fn unique_keys_are_what_a_keyed_mode_means_already() {
    for mode in KEYED {
        let place = Place::new();
        let crm = place.opened(mode, Some(true), vec![]);
        outcome(&crm, CALL).await;
        outcome(&crm, CALL).await;
        assert_eq!(place.counts(), (1, 1), "{mode}");
    }
}

#[tokio::test]
async fn without_a_mode_of_its_own_a_crm_keeps_its_contract() {
    let place = Place::new();
    let settings = Settings { mode: None, ..place.settings(Mode::None, None, vec![]) };
    let contract = Contract::idempotency_key(Window::Forever);
    let crm = Simulated::open(&settings, &contract, Seed(1)).unwrap();
    outcome(&crm, CALL).await;
    assert_eq!(outcome(&crm, CALL).await, replayed("1"));
}

#[tokio::test]
async fn other_keys_are_other_tasks() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    for (subject, task) in [("case-1", "1"), ("case-10", "2"), ("Case-1", "3")] {
        let key = format!("harbor:create-followup:v1:{subject}");
        assert_eq!(crm.call(&key, CALL, 1, 1).await.outcome, applied(task), "{subject}");
    }
}

#[tokio::test]
async fn the_log_of_effects_names_key_task_and_attempt() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    crm.call(KEY, CALL, 2, 7).await;
    let row = place.sql().query_row(
        "SELECT operation_key, task_id, attempt, at > 0, created_at > 0
         FROM effects JOIN tasks USING (operation_key, task_id)",
        (),
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
    );
    assert_eq!(row, Ok((KEY.to_owned(), 1_u32, 7_u32, true, true)));
}

// What is in the file.

#[tokio::test]
async fn a_crm_that_is_opened_again_still_knows_its_keys() {
    let place = Place::new();
    outcome(&place.opened(Mode::IdempotencyKey, None, vec![]), CALL).await;
    let again = place.opened(Mode::IdempotencyKey, None, vec![]);
    assert_eq!(outcome(&again, CALL).await, replayed("1"));
    assert_eq!(outcome(&again, VISIT).await, Outcome::Conflict);
    assert_eq!(place.counts(), (1, 1));
}

#[tokio::test]
async fn calls_at_once_over_several_connections_make_one_task() {
    for mode in KEYED {
        let place = Place::new();
        let mut calls = JoinSet::new();
        for number in 0..24 {
            let crm = place.opened(mode, None, vec![]);
            calls.spawn(async move { crm.call(KEY, CALL, 1, number).await.outcome });
        }
        let outcomes = calls.join_all().await;
        assert!(outcomes.iter().all(|outcome| {
            matches!(outcome, Outcome::Applied { .. } | Outcome::AlreadyExists { .. })
        }));
        assert_eq!(place.counts(), (1, 1), "{mode}: {outcomes:?}");
    }
}

#[tokio::test]
async fn a_table_that_another_program_made_is_used_as_it_is() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    let table = "CREATE TABLE tasks (task_id INTEGER PRIMARY KEY,
        operation_key TEXT NOT NULL UNIQUE, payload TEXT NOT NULL)";
    place.sql().execute_batch(table).unwrap();
    let insert = "INSERT INTO tasks (operation_key, payload) VALUES (?1, ?2)";
    place.sql().execute(insert, ("another:key:v1:1", r#"{"title":"other content"}"#)).unwrap();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    assert_eq!(crm.call("another:key:v1:1", CALL, 1, 1).await.outcome, Outcome::Conflict);
    assert_eq!(outcome(&crm, CALL).await, applied("2"));
    assert_eq!(outcome(&crm, CALL).await, replayed("2"));
    assert_eq!(place.counts(), (2, 1));
}

#[tokio::test]
async fn content_that_another_program_put_there_later_is_a_conflict_unless_it_is_the_same() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    let insert = "INSERT INTO tasks (operation_key, payload) VALUES (?1, ?2)";
    place.sql().execute(insert, (KEY, CALL)).unwrap();
    place.sql().execute(insert, ("bytes", CALL.as_bytes())).unwrap();
    assert_eq!(outcome(&crm, CALL).await, replayed("1"));
    assert_eq!(outcome(&crm, VISIT).await, Outcome::Conflict);
    assert_eq!(crm.call("bytes", CALL, 1, 1).await.outcome, Outcome::Conflict);
    assert_eq!(place.counts(), (2, 0));
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_at_the_start_and_left_alone() {
    let place = Place::new();
    std::fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    std::fs::write(place.path(), "not a database, but somebody's text").unwrap();
    let settings = place.settings(Mode::None, None, vec![]);
    let error = Simulated::open(&settings, &Contract::none(), Seed(1)).unwrap_err();
    assert!(matches!(error, OpenError::Database { .. }), "{error}");
    assert!(error.to_string().contains("simulated.db"), "{error}");
    let text = std::fs::read_to_string(place.path()).unwrap();
    assert_eq!(text, "not a database, but somebody's text");
}

#[test]
fn a_missing_file_is_not_the_same_as_no_task() {
    let place = Place::new();
    assert!(task_count(&place.path()).is_err());
    assert!(tasks_of(&place.path(), KEY).is_err());
    place.opened(Mode::None, None, vec![]);
    assert_eq!(task_count(&place.path()), Ok(0));
    assert_eq!(tasks_of(&place.path(), KEY), Ok(vec![]));
}

// Failures of the CRM's own database.

#[tokio::test]
async fn a_failure_before_the_write_is_definite_even_where_the_plan_loses_the_reply() {
    let place = Place::new();
    for faults in [vec![], vec![Fault { on: On::Every, what: What::LoseReply }]] {
        let crm = place.opened(Mode::IdempotencyKey, None, faults);
        place.sql().execute_batch("ALTER TABLE tasks RENAME TO away").unwrap();
        let report = first(&crm).await;
        let not_taken = Outcome::NotTaken { why: NotTakenWhy::Unreachable, not_before: None };
        assert_eq!(seen(&report), (not_taken, "crm_unavailable", None));
        assert_eq!(report.request_sent, Some(false));
        assert!(report.evidence.unwrap().contains("tasks"));
        place.sql().execute_batch("ALTER TABLE away RENAME TO tasks").unwrap();
        assert_eq!(place.counts(), (0, 0));
    }
}

#[tokio::test]
async fn a_failure_at_the_write_is_unknown_and_leaves_no_half_of_it() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    let full = "CREATE TRIGGER full BEFORE INSERT ON effects
        BEGIN SELECT raise(ABORT, 'no room for effects'); END";
    place.sql().execute_batch(full).unwrap();
    let report = first(&crm).await;
    assert_eq!(seen(&report), (Outcome::Unknown, "crm_error", None));
    assert_eq!(report.evidence.as_deref(), Some("no room for effects"));
    assert_eq!(place.counts(), (0, 0));
    place.sql().execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(outcome(&crm, CALL).await, applied("1"));
}

#[tokio::test]
async fn a_locked_file_is_a_crm_that_is_down_and_comes_back() {
    let place = Place::new();
    place.opened(Mode::None, None, vec![]);
    let other = place.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let crm = Crm::open(&place.path(), Replay::ReturnsFirst, SHORT).unwrap();
    let request = Request { key: KEY.into(), payload: CALL.into(), attempt: 1 };
    let refused = crm.accept(request.clone()).await;
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(crm.accept(request).await, Ok(Reply::Done(1)));
}

#[tokio::test]
async fn a_call_that_was_given_up_before_the_write_has_no_effect() {
    let place = Place::new();
    let crm = place.opened(Mode::IdempotencyKey, None, vec![]);
    let other = place.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (at_the_lock, behind_it) = (first(&crm), crm.call("behind", CALL, 1, 1));
    let both = async { tokio::join!(at_the_lock, behind_it) };
    assert!(tokio::time::timeout(SHORT, both).await.is_err());
    other.execute_batch("ROLLBACK").unwrap();
    // Requests are served in their order, so that the two are over when this one is.
    assert_eq!(crm.call("later", CALL, 1, 1).await.outcome, applied("1"));
    assert_eq!(place.counts(), (1, 1));
}
