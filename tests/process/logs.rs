//! How much is logged, and under which names: an outage, a database that says no
//! and a mass of bad rows do not flood the log, and nothing is lost by that.

use crate::daemon::Daemon;
use crate::documented::OPERATING;
use crate::support::{Crm, World, pause, present, until};
use handoff::clock::Timestamp;
use handoff::supervisor::lines_a_minute;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// The number that the operator was told, for one receiver.
fn documented_limit() -> usize {
    let mut bold = OPERATING.split("**");
    let number = bold.find_map(|text| text.strip_suffix(" lines a minute"));
    number.expect("a number in bold").parse().expect("a number")
}

/// When each line was written, in order.
fn times(lines: &[String]) -> Vec<i64> {
    let time = |line: &String| {
        let record: Value = serde_json::from_str(line).expect("a record");
        let time: Timestamp = record["timestamp"].as_str().expect("a time").parse().expect("one");
        time.as_millis()
    };
    let mut times: Vec<i64> = lines.iter().map(time).collect();
    times.sort_unstable();
    times
}

/// How many records of one kind may be written in full in the time of this log.
fn in_full_at_most(lines: &[String]) -> usize {
    let times = times(lines);
    let lasted = times.last().zip(times.first()).map_or(0, |(last, first)| last - first);
    10 * (1 + usize::try_from(lasted / 59_000).expect("a length of time"))
}

/// The most lines of any minute, by their own time. A second is left out for what
/// lies between the decision to write a line and its time.
fn busiest_minute(lines: &[String]) -> usize {
    let times = times(lines);
    let minute =
        |from: i64| times.iter().filter(|time| (from..from + 59_000).contains(time)).count();
    times.iter().map(|from| minute(*from)).max().unwrap_or_default()
}

/// How many records of an event were written in full, and how many were counted.
fn said_of(daemon: &[String], event: &str) -> (usize, u64) {
    let records = daemon.iter().map(|line| serde_json::from_str(line).expect("a record"));
    let records: Vec<Value> = records.collect();
    let counted = records.iter().filter(|record| record["repeated"] == event);
    let in_full = records.iter().filter(|record| record["event"] == event).count();
    (in_full, counted.map(|record| record["count"].as_u64().expect("a count")).sum())
}

/// Records so many follow-ups in one transaction.
fn record_many(world: &World, many: u32, payload: &str) {
    let sql = format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         SELECT 'harbor:create-followup:v1:case-' || i, 'crm', {payload}, 'ann' FROM n"
    );
    world.open("app.db").execute(&sql, [many]).expect("they are recorded");
}

const GOOD: &str = "json_object('case_id', 'case-' || i, 'title', 'Call')";

fn ended_attempts(world: &World) -> u64 {
    let sql = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NOT NULL";
    u64::try_from(world.value::<i64>(sql, [])).expect("a count")
}

#[test]
fn the_documented_number_of_lines_a_minute_is_the_one_in_force() {
    assert_eq!(documented_limit(), lines_a_minute(1));
    let more = format!("and {} more for each further one", lines_a_minute(2) - lines_a_minute(1));
    assert!(OPERATING.contains(&more), "{more}");
}

#[test]
fn an_outage_with_many_operations_does_not_flood_the_log_and_no_attempt_is_lost_to_it() {
    let faults = r#"[{ on = "every", fault = "unreachable" }]"#;
    let retry = "initial = \"200ms\"\nmax_interval = \"2s\"\nmax_attempts = 10000";
    let world = World::with(&Crm { faults, retry, ..Crm::default() }).migrated();
    record_many(&world, 50_000, GOOD);
    let daemon = world.serving();
    let long = std::env::var_os("HANDOFF_TEST_LONG").is_some();
    if long {
        // Two whole minutes, in which counted ones are summed up twice.
        pause(Duration::from_secs(135));
        assert!(daemon.events("repeats_summarised").len() >= 2, "{:#?}", daemon.lines());
    } else {
        until("many attempts", || (ended_attempts(&world) > 5_000).then_some(()));
    }
    let lines = daemon.stop();
    let (limit, ended) = (documented_limit(), ended_attempts(&world));
    assert!(busiest_minute(&lines) <= limit, "{} lines a minute", busiest_minute(&lines));
    assert!(ended > 20 * limit as u64, "it was an outage: {ended} attempts");
    let (in_full, counted) = said_of(&lines, "attempt_ended");
    assert_eq!(in_full as u64 + counted, ended, "each attempt is written or counted");
    assert!(in_full <= in_full_at_most(&lines), "{in_full} in full");
    let summary = lines.iter().find(|line| line.contains("repeats_summarised"));
    let summary: Value = serde_json::from_str(summary.expect("one")).expect("a record");
    assert_eq!(summary["receiver.name"], "crm");
    assert_eq!(summary["outcomes"], format!("not_taken {}", summary["count"]), "{summary}");
    assert_eq!(summary["reasons"], format!("backing_off {}", summary["count"]), "{summary}");
    // What was only counted is read from the database.
    let key = summary["operation.key"].as_str().expect("the first that was counted");
    let show = world.run(&["show", key, "--json"]).ok().json();
    assert_eq!(show["history"][0]["outcome"], "not_taken", "{show}");
    let unknown = "SELECT count(*) FROM handoff_attempts
                    WHERE outcome IS NULL OR error_code IS NULL OR finished_at IS NULL";
    assert_eq!(world.value::<i64>(unknown, []), 0);
}

#[test]
fn a_mass_of_bad_rows_is_counted_by_reason_and_each_can_be_listed() {
    let world = World::new().migrated();
    record_many(&world, 3_000, "json_object('case_id', 'case-' || i)");
    let daemon = world.serving();
    let blocked = "SELECT count(*) FROM handoff_outbox WHERE state = 'blocked'";
    until("all to be blocked", || (world.value::<i64>(blocked, []) == 3_000).then_some(()));
    daemon.signal(Signal::SIGUSR1);
    let summary = daemon.event("repeats_summarised");
    assert_eq!(summary["level"], "WARN");
    assert_eq!(summary["repeated"], "operation_blocked");
    assert_eq!(summary["reasons"], format!("invalid {}", summary["count"]), "{summary}");
    let lines = daemon.stop();
    let (in_full, counted) = said_of(&lines, "operation_blocked");
    assert_eq!(in_full as u64 + counted, 3_000, "each is written or counted");
    assert!(in_full <= in_full_at_most(&lines), "{in_full} in full");
    let listed =
        world.run(&["list", "--state", "blocked", "--json", "--limit", "5000"]).ok().json();
    assert_eq!(listed.as_array().map(Vec::len), Some(3_000));
}

#[test]
fn a_database_that_says_no_again_and_again_does_not_flood_the_log() {
    let faults = r#"[{ on = "every", fault = "unreachable" }]"#;
    let retry = "initial = \"5ms\"\nmax_interval = \"5ms\"\nmax_attempts = 10000";
    let world = World::with(&Crm { faults, retry, ..Crm::default() }).migrated();
    record_many(&world, 50, GOOD);
    let daemon = world.daemon_with(&["--set", "store.busy_timeout=1ms"]);
    daemon.event("started");
    let other = world.open("app.db");
    // Attempts are summarised beside it.
    let summarised = || {
        let all = daemon.events("repeats_summarised").into_iter();
        all.rev().find(|record| record["repeated"] == "store_trouble")
    };
    let last = until("more trouble than is written", || {
        other.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
        pause(Duration::from_millis(40));
        other.execute_batch("COMMIT").expect("it is released");
        if daemon.events("store_trouble").len() >= 10 {
            daemon.signal(Signal::SIGUSR1);
        }
        summarised()
    });
    let lines = daemon.stop();
    let (in_full, counted) = said_of(&lines, "store_trouble");
    assert!(in_full >= 10 && counted > 0, "{in_full} in full, {counted} counted");
    assert!(last["error"].as_str().is_some_and(|text| text.contains("busy")), "{last}");
}

#[test]
fn commits_that_cannot_be_watched_are_said_once_and_found_by_the_poll() {
    if !present("strace") {
        return eprintln!("skipped: no strace here");
    }
    let world = World::new().migrated();
    let program = world.command(&["run"]);
    let mut strace = Command::new("strace");
    let inject = "inject=inotify_init1:error=EMFILE";
    // The daemon itself is our child, and the tracer a stranger that ends with it.
    strace.args(["-D", "-f", "-o", "/dev/null", "-e", "trace=inotify_init1", "-e", inject]);
    strace.arg(program.get_program()).args(program.get_args());
    strace.current_dir(world.path(""));
    let daemon = Daemon::start(&mut strace);
    daemon.event("started");
    for case in ["case-1", "case-2"] {
        let key = world.record(case);
        world.until_state(&key, "sent");
    }
    let said = daemon.events("no_wake_up");
    daemon.stop();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0]["error"].as_str().is_some_and(|text| text.contains("inotify")), "{said:?}");
}

#[test]
fn at_level_debug_every_attempt_is_written_in_full() {
    let world = World::new().migrated();
    record_many(&world, 40, GOOD);
    let daemon = world.daemon_with(&["--set", "log.level=debug"]);
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    until("all to be sent", || (world.value::<i64>(sent, []) == 40).then_some(()));
    assert_eq!(said_of(&daemon.stop(), "operation_sent"), (40, 0));
}
