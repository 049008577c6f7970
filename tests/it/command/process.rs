//! The process of a command: known before it may act, given what is declared,
//! and ended with its call.

use crate::support::place::text;
use crate::support::{Daemon, Site, Value, command, fifo, key, release, told, until};
use nix::sys::signal::Signal;

const NONE: &str = r#"mode = "none""#;
const KEYED: &str = r#"mode = "idempotency_key", window = "forever""#;

/// A site with one follow-up and a program that does this.
fn site(config: &str, script: &str) -> Site {
    let site = Site::new(config);
    site.write("deliver.sh", script);
    assert!(site.approve("case-104", "Call").status.success());
    site
}

/// Whether no process of this id runs any more, reaped or not.
fn is_gone(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim()));
    status.is_err() || status.is_ok_and(|status| status.contains("State:\tZ"))
}

#[test]
fn the_process_group_is_stored_before_the_program_runs() {
    let look = "sqlite3 FOLDER/app.db 'SELECT process FROM handoff_attempts' > FOLDER/noted
                echo $$ > FOLDER/pid";
    let site = site(&command(NONE, ""), look);
    let daemon = Daemon::start(&site);
    assert_eq!(site.wait(&key("case-104"))["state"], "sent");
    daemon.stop();
    let (noted, pid) = (site.read("noted"), site.read("pid"));
    assert!(noted.starts_with(&format!("{}:", pid.trim())), "{noted} of {pid}");
}

#[test]
fn a_program_is_given_the_declared_variables_and_nothing_else() {
    let declared = r#"environment = ["HANDOFF_TEST_GREETING", "HANDOFF_TEST_UNSET"]"#;
    let config = command(NONE, declared);
    let copy = r#"["/bin/cp", "/proc/self/environ", "FOLDER/environ"]"#;
    let config = config.replace(r#"["/bin/sh", "FOLDER/deliver.sh"]"#, copy);
    let site = site(&config, "");
    let mut program = site.program(&["run"]);
    program.env("HANDOFF_TEST_GREETING", "good day").env("HANDOFF_TEST_SECRET", "s3cret");
    program.env("PATH", "/usr/bin:/bin").env("HOME", "/");
    let daemon = Daemon::spawn(program);
    assert_eq!(site.wait(&key("case-104"))["state"], "sent");
    daemon.stop();
    assert_eq!(site.read("environ"), "HANDOFF_TEST_GREETING=good day\0");
}

#[test]
fn a_program_that_takes_too_long_is_ended_and_in_doubt() {
    let retry = "timeout = \"300ms\"\nretry = { schedule = [\"1ms\"], max_attempts = 2 }";
    let wait = "echo $$ >> FOLDER/pids\nread line < FOLDER/never\necho late > FOLDER/late";
    for (contract, reason, attempts) in [(NONE, "ambiguous", 1), (KEYED, "budget_exhausted", 2)] {
        let site = site(&command(contract, retry), wait);
        site.write("pids", "");
        fifo(&site.path("never"));
        let daemon = Daemon::start(&site);
        assert_eq!(site.wait(&key("case-104"))["state"], "blocked");
        let blocked = ("blocked".into(), Some(reason.into()), "possible".into(), attempts, None);
        assert_eq!(site.standing(), blocked);
        let ends = site.rows("SELECT DISTINCT outcome, error_code FROM handoff_attempts");
        assert_eq!(ends, [[text("unknown"), text("timeout")]]);
        until("the programs are gone", || site.read("pids").lines().all(is_gone));
        daemon.stop();
        assert!(!site.path("late").exists());
    }
}

#[test]
fn a_program_whose_process_cannot_be_stored_does_not_run() {
    let retry = "retry = { schedule = [\"1ms\"] }";
    let site = site(&command(NONE, retry), "cat > FOLDER/request");
    site.tamper(
        "CREATE TRIGGER full BEFORE UPDATE OF process ON handoff_attempts
         WHEN NEW.process IS NOT NULL BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );
    let daemon = Daemon::start(&site);
    let refused = "SELECT count(*) > 0 FROM handoff_attempts WHERE error_code = 'not_noted'";
    until("it is refused", || site.value(refused) == Value::Integer(1));
    assert!(!site.path("request").exists());
    let (state, _, _, _, receipt) = site.standing();
    assert_eq!((&*state, receipt), ("pending", None));
    let pause = "SELECT min(due_at - finished_at) >= 1000 FROM handoff_outbox
                   JOIN handoff_attempts USING (operation_key) WHERE open_number IS NULL";
    assert_ne!(site.value(pause), Value::Integer(0), "it is not tried again and again");
    site.tamper("DROP TRIGGER full");
    assert_eq!(site.wait(&key("case-104"))["state"], "sent");
    daemon.stop();
    assert!(site.path("request").exists());
    let spent = "SELECT sum(spent) FROM handoff_attempts";
    assert_eq!(site.value(spent), Value::Integer(0), "what was not run spends nothing");
}

#[test]
fn a_grandchild_that_keeps_the_output_open_does_not_delay_the_answer() {
    let leave_one = "(read line < FOLDER/hold; echo end > FOLDER/end) &\necho '{\"remote_id\":7}'";
    let site = site(&command(NONE, "timeout = \"1h\""), leave_one);
    fifo(&site.path("hold"));
    fifo(&site.path("end"));
    let daemon = Daemon::start(&site);
    let row = site.wait(&key("case-104"));
    assert_eq!((row["state"].as_str(), row["remote_id"].as_str()), (Some("sent"), Some("7")));
    daemon.stop();
    // It is left alone, and has been there all the time.
    release(&site.path("hold"));
    assert_eq!(told(&site.path("end")), "end\n");
}

#[test]
fn a_stop_that_waits_no_longer_ends_the_program_and_leaves_it_in_doubt() {
    let wait = "echo $$ > FOLDER/pid\necho started > FOLDER/started\nread line < FOLDER/never";
    let site = site(&command(NONE, "timeout = \"1h\""), wait);
    fifo(&site.path("started"));
    fifo(&site.path("never"));
    let mut daemon = Daemon::start(&site);
    told(&site.path("started"));
    daemon.signal(Signal::SIGTERM);
    daemon.event("draining");
    daemon.signal(Signal::SIGTERM);
    daemon.event("attempt_cut_off");
    assert!(daemon.ended().success());
    let pid = site.read("pid");
    until("the program is gone", || is_gone(&pid));
    let ambiguous = ("blocked".into(), Some("ambiguous".into()), "possible".into(), 1, None);
    assert_eq!(site.standing(), ambiguous);
    let end = site.rows("SELECT outcome, spent FROM handoff_attempts");
    assert_eq!(end, [[text("cut_off"), Value::Integer(0)]]);
}
