//! The log as it is documented: names of events and of fields, and how many lines
//! there may be. Every record of every daemon of these tests is held against it.

use crate::daemon::Daemon;
use crate::support::{World, until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

/// What the operator was told.
pub(crate) const OPERATING: &str = include_str!("../../docs/operating.md");

static EVENTS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| first_column("| event |"));
static FIELDS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| first_column("| field |"));

/// The names in backquotes in the first column of a table.
fn first_column(heading: &str) -> BTreeSet<&'static str> {
    let rows = OPERATING.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// What is wrong with a line of a log in JSON. Whatever is no record is let pass:
/// logs of text, and what is said before the log begins.
pub(crate) fn problem(line: &str) -> Option<String> {
    if !line.starts_with('{') {
        return None;
    }
    let record: Value = match serde_json::from_str(line) {
        Ok(record) => record,
        Err(error) => return Some(format!("no JSON: {error}: {line}")),
    };
    let event = record["event"].as_str().unwrap_or_default();
    if !EVENTS.contains(event) {
        return Some(format!("docs/operating.md does not list the event {event:?}: {line}"));
    }
    let strange = record.as_object()?.keys().find(|field| !FIELDS.contains(field.as_str()))?;
    Some(format!("docs/operating.md does not list the field {strange:?}: {line}"))
}

/// A CRM and a program, to which much can happen.
const EVENTFUL: &str = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
timeout = "30m"
faults = [
  { on = "key", match = "*:throttled", fault = "throttle", retry_after = "10d" },
  { on = "key", match = "*:rejected", fault = "reject" },
  { on = "key", match = "*:slow-*", fault = "slow", delay = "2500ms" },
  { on = "key", match = "*:never", fault = "slow", delay = "10m" },
]
contract = { mode = "idempotency_key", window = "forever" }
retry = { initial = "20ms", max_interval = "100ms", retry_after_ceiling = "1s" }
[receivers.mail]
kind = "command"
program = ["PROGRAM"]
timeout = "30m"
contract = { mode = "idempotency_key", window = "forever" }
[operations.create-followup]
receiver = "crm"
subject = "case_id"
schema = "builtin:create-followup"
[operations.send-reply]
receiver = "mail"
subject = "case_id"
schema = "builtin:create-followup"
"#;

fn eventful() -> World {
    let world = World::bare();
    world.write("program", "#!/bin/sh\nexec sleep 600\n");
    let program = world.path("program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    world.configure(&EVENTFUL.replace("PROGRAM", &program.display().to_string()));
    world.migrated()
}

fn record(world: &World, key: &str, receiver: &str, title: &str) {
    let case = key.rsplit(':').next().expect("a subject");
    let payload = serde_json::json!({ "case_id": case, "title": title }).to_string();
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, ?2, ?3, 'ann')";
    world.open("app.db").execute(sql, [key, receiver, &payload]).expect("it is recorded");
}

/// Much that can happen while a daemon starts and works.
fn work(world: &World) -> Daemon {
    let lock = world.open("app.db");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let mut command = world.command(&["run", "--set", "log.level=debug"]);
    command.args(["--set", "store.busy_timeout=50ms"]).env("NOTIFY_SOCKET", world.path("nobody"));
    let daemon = Daemon::start(&mut command);
    daemon.event("store_unavailable");
    lock.execute_batch("COMMIT").expect("it is released");
    daemon.event("started");
    let key = |case: &str| format!("harbor:create-followup:v1:{case}");
    for case in ["good", "throttled", "rejected", "slow-fenced", "slow-mismatch", "slow-withdrawn"]
    {
        record(world, &key(case), "crm", "Call");
    }
    record(world, &key("invalid"), "crm", "");
    record(world, "harbor:create-followup:v2:waits", "crm", "Call");
    for case in ["slow-fenced", "slow-mismatch", "slow-withdrawn"] {
        world.until_attempts(&key(case), 1);
    }
    // A fact that another process adds makes another version.
    let fact = "UPDATE handoff_outbox SET version = version + 1,";
    let proof = format!("{fact} settled_by = 'reply', remote_id = 'x'");
    let withdrawn = format!("{fact} withdrawn = 1");
    for (sql, case) in [
        ("UPDATE handoff_attempts SET instance = 'x'", "slow-fenced"),
        (&proof, "slow-mismatch"),
        (&withdrawn, "slow-withdrawn"),
    ] {
        let sql = format!("{sql} WHERE operation_key = ?1");
        lock.execute(&sql, [key(case)]).expect("it is written");
    }
    for event in ["outcome_fenced", "receipt_mismatch", "effect_after_withdrawal"] {
        daemon.event(event);
    }
    daemon.event("retry_after_capped");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    daemon.event("store_trouble");
    lock.execute_batch("COMMIT").expect("it is released");
    daemon.event("store_recovered");
    let good = std::fs::read(world.path("handoff.toml")).expect("a configuration");
    world.write("handoff.toml", "nonsense");
    daemon.signal(Signal::SIGHUP);
    daemon.event("reload_refused");
    world.write("handoff.toml", good);
    daemon.signal(Signal::SIGHUP);
    daemon.event("reloaded");
    daemon
}

#[test]
fn whatever_happens_each_record_has_a_documented_name_and_documented_fields() {
    let world = eventful();
    let mut daemon = work(&world);
    record(&world, "harbor:create-followup:v1:never", "crm", "Call");
    record(&world, "harbor:send-reply:v1:case-104", "mail", "Re");
    let processes = "SELECT count(*) FROM handoff_attempts
                      WHERE process IS NOT NULL AND outcome IS NULL";
    until("the program to run", || (world.value::<i64>(processes, []) == 1).then_some(()));
    world.until_attempts("harbor:create-followup:v1:never", 1);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let mut lines = daemon.lines();

    let mut daemon = world.serving();
    daemon.event("recovered");
    for n in 0..20 {
        record(&world, &format!("harbor:create-followup:v1:invalid-{n}"), "crm", "");
    }
    let blocked = "SELECT count(*) FROM handoff_outbox WHERE blocked_reason = 'invalid'";
    until("all to be blocked", || (world.value::<i64>(blocked, []) == 21).then_some(()));
    world.until_attempts("harbor:create-followup:v1:never", 2);
    daemon.signal(Signal::SIGUSR1);
    daemon.event("summary");
    daemon.signal(Signal::SIGTERM);
    daemon.event("draining");
    daemon.signal(Signal::SIGTERM);
    lines.extend(daemon.exits(0));

    let name = |line: &String| {
        assert_eq!(problem(line), None);
        let record: Value = serde_json::from_str(line).expect("nothing but records");
        record["event"].as_str().expect("a name").to_owned()
    };
    let seen: BTreeSet<String> = lines.iter().map(name).collect();
    for event in [
        "attempt_cut_off",
        "attempt_ended",
        "command_ended",
        "draining",
        "effect_after_withdrawal",
        "notify_failed",
        "operation_blocked",
        "operation_sent",
        "operation_waits",
        "outcome_fenced",
        "receipt_mismatch",
        "recovered",
        "reload_refused",
        "reloaded",
        "repeats_summarised",
        "retry_after_capped",
        "started",
        "stop_now",
        "stopped",
        "store_recovered",
        "store_trouble",
        "store_unavailable",
        "summary",
    ] {
        assert!(seen.contains(event), "{event} did not happen: {seen:?}");
    }
}

#[test]
fn a_record_that_is_not_as_documented_is_noticed() {
    let good = r#"{"timestamp":"t","level":"INFO","event":"started","store":"x"}"#;
    assert_eq!(problem(good), None);
    for bad in [
        good.replace("started", "begun"),
        good.replace("store", "path"),
        good.replace("\"event\"", "\"events\""),
        good.replace('}', ""),
    ] {
        assert!(problem(&bad).is_some(), "{bad}");
    }
}
