//! Deliveries to real programs.
//!
//! `/proc/self/exe` is the test runner here, so a shell stands in for the
//! launcher and does what ours does. The same tests hold with our own: set
//! `HANDOFF_TEST_LAUNCHER` to the path of the built program.

use super::*;
use crate::outbox::outcome::Outcome;
use crate::process::ProcessGroup;
use crate::receiver::waiting;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reads one byte, then becomes the program.
const LAUNCHER: &str = r#"
    nonce=$1; shift
    [ "$(dd bs=1 count=1 2>/dev/null | wc -c)" -eq 1 ] || exit 75
    [ -x "$1" ] || { echo "$nonce no such program"; exit 127; }
    exec "$@"
"#;

/// Far longer than anything here takes; only a fault lasts so long.
const LONG: Duration = Duration::from_secs(60);

/// Keeps the group that it was told of, after a check of the test's own.
#[derive(Default)]
struct Notes {
    group: Mutex<Option<ProcessGroup>>,
    fails: bool,
    absent: Option<std::path::PathBuf>,
}

impl Notes {
    fn group(&self) -> Option<ProcessGroup> {
        self.group.lock().unwrap().clone()
    }
}

#[async_trait]
impl Journal for Notes {
    async fn process_started(&self, _: &AttemptId, group: &ProcessGroup) -> Result<(), NotKept> {
        assert!(group.is_alive());
        *self.group.lock().unwrap() = Some(group.clone());
        if let Some(path) = &self.absent {
            waiting::moment(Duration::from_millis(100)).await;
            assert!(!path.exists(), "the program ran before it was noted");
        }
        if self.fails { Err(NotKept("disk full".into())) } else { Ok(()) }
    }
}

fn command(program: &[&str], environment: &[&str]) -> Command {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let settings = Settings { program: owned(program), environment: owned(environment) };
    let launcher = match std::env::var_os("HANDOFF_TEST_LAUNCHER") {
        Some(path) => vec![path],
        None => ["/bin/sh", "-c", LAUNCHER].map(OsString::from).to_vec(),
    };
    Command { launcher, ..Command::new(settings, "crm".to_owned()) }
}

fn shell(script: &str) -> Command {
    command(&["/bin/sh", "-c", script], &[])
}

async fn deliver_with(command: &Command, payload: &str, journal: &Notes) -> Report {
    let key = "harbor:create-followup:v1:case-104";
    let id = AttemptId { key: key.into(), number: 1 };
    let request = command.request(key, "create-followup", payload);
    let call = command.hand_over(&id, &request, journal);
    tokio::time::timeout(LONG, call).await.expect("the call hangs")
}

async fn deliver(command: &Command) -> Report {
    deliver_with(command, "{}", &Notes::default()).await
}

/// Waits until something is so, and fails if it never is.
async fn until<F: Future<Output = ()>>(what: &str, holds: impl FnMut() -> bool, rest: F) {
    tokio::select! {
        () = waiting::until(what, holds) => {}
        () = rest => panic!("the call ended before: {what}"),
    }
}

fn applied(id: Option<&str>) -> Outcome {
    Outcome::Applied { remote_id: id.map(str::to_owned), replayed: false }
}

#[tokio::test]
async fn the_program_reads_the_request_and_says_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request");
    let script = format!(r#"cat > '{}'; echo '{{"remote_id":15}}'"#, file.display());
    let payload = r#"{"case_id":"case-104","title":"a \"quoted\" é"}"#;
    let report = deliver_with(&shell(&script), payload, &Notes::default()).await;
    assert_eq!(report, Report::applied(Some("15".into())));
    let expected = format!(
        "{{\"protocol\":1,\"operation_key\":\"harbor:create-followup:v1:case-104\",\
         \"type\":\"create-followup\",\"receiver\":\"crm\",\"payload\":{payload}}}\n"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
    serde_json::from_str::<Value>(&expected).unwrap();
}

#[tokio::test]
async fn exits_and_signals_of_real_programs_are_told_apart() {
    let unavailable = Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before: None };
    for (script, outcome, code) in [
        ("exit 0", applied(None), None),
        ("exit 75", unavailable.clone(), Some("exit_status")),
        ("exit 69", unavailable, Some("exit_status")),
        ("exit 65", Outcome::Rejected, Some("exit_status")),
        ("exit 3", Outcome::Unknown, Some("exit_status")),
        ("/no/such/logger", Outcome::Unknown, Some("exit_status")),
        ("kill -TERM $$", Outcome::Unknown, Some("signal")),
        ("kill -KILL $$", Outcome::Unknown, Some("signal")),
    ] {
        let report = deliver(&shell(script)).await;
        assert_eq!(report.outcome, outcome, "{script}");
        assert_eq!(report.error_code.as_deref(), code, "{script}");
        assert_eq!(report.request_sent, Some(true), "{script}");
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_was_handed_nothing() {
    let mut without_launcher = shell("exit 0");
    without_launcher.launcher = vec!["/no/such/launcher".into()];
    for command in [command(&["/no/such/program"], &[]), without_launcher] {
        let report = deliver(&command).await;
        let why = NotTakenWhy::Unreachable;
        assert_eq!(report.outcome, Outcome::NotTaken { why, not_before: None });
        assert_eq!(report.error_code.as_deref(), Some("spawn_failed"));
        assert_eq!(report.request_sent, Some(false));
        assert!(report.evidence.unwrap().to_lowercase().contains("no such"));
    }
}

#[tokio::test]
async fn the_program_runs_only_after_its_group_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran");
    let command = shell(&format!("touch '{}'", file.display()));
    let notes = Notes { absent: Some(file.clone()), ..Notes::default() };
    let report = deliver_with(&command, "{}", &notes).await;
    assert_eq!(report.outcome, applied(None));
    assert!(file.exists());
    assert!(!notes.group().unwrap().is_alive());
}

#[tokio::test]
async fn a_program_whose_group_was_not_noted_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran");
    let command = shell(&format!("touch '{}'", file.display()));
    let notes = Notes { fails: true, ..Notes::default() };
    let report = deliver_with(&command, "{}", &notes).await;
    let why = NotTakenWhy::Stale;
    let not_before = Some(NotBefore::After(NOTE_PAUSE));
    assert_eq!(report.outcome, Outcome::NotTaken { why, not_before });
    assert_eq!(report.error_code.as_deref(), Some("not_noted"));
    assert_eq!(report.request_sent, Some(false));
    let group = notes.group().unwrap();
    assert!(!Path::new(&format!("/proc/{}", group.id)).exists(), "it was waited for");
    // What the shell that stands in for the launcher had started is dying too.
    assert!(group.end_and_wait(LONG));
    assert!(!file.exists());
}

#[tokio::test]
async fn the_environment_holds_the_declared_variables_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("environment");
    let script = format!("env > '{}'", file.display());
    let program = ["/bin/sh", "-c", script.as_str()];
    deliver(&command(&program, &["PATH", "HANDOFF_TEST_NOT_SET"])).await;
    let environment = std::fs::read_to_string(&file).unwrap();
    let names: Vec<&str> = environment
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        // What shells set by themselves.
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(names, ["PATH"]);
    assert!(environment.contains(&format!("PATH={}\n", std::env::var("PATH").unwrap())));
}

#[tokio::test]
async fn a_program_that_prints_its_environment_puts_no_value_into_the_evidence() {
    let program = ["/bin/sh", "-c", "echo token $PATH >&2; exit 3"];
    let report = deliver(&command(&program, &["PATH"])).await;
    assert_eq!(report.evidence.as_deref(), Some("exit status 3; stderr: token [PATH]"));
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_process_and_no_zombie() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grandchild");
    let command = shell(&format!("sleep 1000 & echo $! > '{}'; wait", file.display()));
    let notes = Arc::new(Notes::default());
    let call = async {
        deliver_with(&command, "{}", &notes).await;
    };
    let grandchild = || std::fs::read_to_string(&file).unwrap_or_default();
    until("the grandchild runs", || grandchild().ends_with('\n'), call).await;

    // The call was dropped just now.
    let group = notes.group().unwrap();
    until("the group is gone", || !group.is_alive(), std::future::pending()).await;
    let leader = format!("/proc/{}", group.id);
    until("the leader is reaped", || !Path::new(&leader).exists(), std::future::pending()).await;
    // An orphan is reaped by the system, if ever; dead it is.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", grandchild().trim()));
    assert!(stat.is_err() || stat.unwrap().contains(") Z "));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipes_does_not_hold_the_call() {
    let notes = Notes::default();
    let script = r#"sleep 1000 & echo '{"remote_id":"T-1"}'; exit 0"#;
    let report = deliver_with(&shell(script), "{}", &notes).await;
    assert_eq!(report, Report::applied(Some("T-1".into())));
    // It may stay after an exit of the program's own.
    let group = notes.group().unwrap();
    assert!(group.is_alive());
    assert!(group.kill());
}

#[tokio::test]
async fn a_grandchild_that_never_stops_writing_does_not_hold_the_call() {
    let notes = Notes::default();
    let report = deliver_with(&shell("yes & yes >&2 & exit 4"), "{}", &notes).await;
    assert_eq!(report.error_code.as_deref(), Some("exit_status"));
    // Its output goes nowhere now, which may have ended it already.
    notes.group().unwrap().kill();
}

#[tokio::test]
async fn output_without_end_is_drained_and_does_not_block_the_program() {
    let script = "head -c 10000000 /dev/zero; head -c 10000000 /dev/zero >&2; echo end >&2";
    let report = deliver(&shell(script)).await;
    assert_eq!((report.outcome, report.error_code), (applied(None), None));
    let evidence = report.evidence.unwrap();
    assert!(evidence.starts_with(r"unreadable answer: longer than 65536 bytes: \0\0"));

    let report = deliver(&shell(&format!("{script}; exit 1"))).await;
    assert!(report.evidence.unwrap().ends_with("end"));
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_is_no_failure() {
    let payload = format!(r#"{{"a":"{}"}}"#, "x".repeat(256 * 1024 - 8));
    for script in [
        "exit 0",
        "exec <&-; echo '{}'",
        // It fills its output while we fill its input.
        "head -c 1000000 /dev/zero >&2; exit 0",
        // A grandchild keeps the input open and full.
        "sleep 1000 <&0 & exit 0",
    ] {
        let notes = Notes::default();
        let report = deliver_with(&shell(script), &payload, &notes).await;
        assert_eq!(report.outcome, applied(None), "{script}");
        assert_eq!(report.error_code, None, "{script}");
        notes.group().unwrap().kill();
    }
}

#[tokio::test]
async fn a_long_request_arrives_whole() {
    let payload = format!(r#"{{"a":"{}"}}"#, "x".repeat(256 * 1024 - 8));
    let script = r#"echo "{\"remote_id\":$(wc -c)}""#;
    let report = deliver_with(&shell(script), &payload, &Notes::default()).await;
    let length =
        shell("").request("harbor:create-followup:v1:case-104", "create-followup", &payload).len();
    assert_eq!(report.outcome, applied(Some(&length.to_string())));
}

#[tokio::test]
async fn many_programs_run_beside_each_other() {
    let command = Arc::new(shell(r#"echo "{\"remote_id\":\"$$\"}""#));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let command = Arc::clone(&command);
        calls.spawn(async move { deliver(&command).await.outcome });
    }
    let outcomes = calls.join_all().await;
    let ids: std::collections::BTreeSet<_> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Applied { remote_id, .. } => remote_id.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids.len(), 40);
}
