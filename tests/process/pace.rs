//! When things are tried: after an outage, after a suspension, by hand, and with
//! the oddest settings that are allowed.

use crate::support::{Crm, World, pause, record, until};
use nix::sys::signal::Signal;
use std::time::Duration;

const KEY: &str = "harbor:create-followup:v1:case-104";

#[test]
fn after_an_outage_no_more_calls_run_at_once_than_allowed_and_none_before_its_time() {
    let faults = r#"[
      { on = "time", from = "0s", to = "2s", fault = "unreachable" },
      { on = "every", fault = "slow", delay = "20ms" },
    ]"#;
    let crm = Crm { faults, retry: "initial = \"400ms\"\nmax_interval = \"1s\"", ..Crm::default() };
    let world = World::with(&crm).migrated();
    let mut db = world.open("app.db");
    let tx = db.transaction().expect("a transaction");
    for case in 0..600 {
        record(&tx, &format!("case-{case}"));
    }
    tx.commit().expect("they are recorded");
    let daemon = world.daemon_with(&["--set", "receivers.crm.concurrency=8"]);
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    until("all to be sent", || (world.value::<i64>(sent, []) == 600).then_some(()));
    daemon.stop();
    let failed = "SELECT count(*) FROM handoff_attempts WHERE outcome = 'not_taken'";
    assert!(world.value::<i64>(failed, []) > 600, "there was an outage");
    // What began and had not ended by then, at the beginning of each attempt.
    let at_once = "SELECT max(n) FROM (SELECT
          sum(step) OVER (ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS n FROM (
            SELECT started_at AS at, 1 AS step FROM handoff_attempts
            UNION ALL SELECT finished_at, -1 FROM handoff_attempts))";
    assert!(world.value::<i64>(at_once, []) <= 8, "{} at once", world.value::<i64>(at_once, []));
    // Jitter takes at most half of the first delay.
    let too_early = "SELECT count(*) FROM handoff_attempts AS a JOIN handoff_attempts AS b
          ON b.operation_key = a.operation_key AND b.number = a.number + 1
          WHERE b.started_at < a.finished_at + 200";
    assert_eq!(world.value::<i64>(too_early, []), 0, "tried again before its time");
}

#[test]
fn a_daemon_that_was_suspended_delivers_what_fell_due_meanwhile_and_each_once() {
    let world = World::with(&Crm { contract: "mode = \"none\"", ..Crm::default() }).migrated();
    let daemon = world.serving();
    let db = world.open("app.db");
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
         INSERT INTO handoff_approvals
                (operation_key, receiver, payload, approved_by, deliver_after)
         SELECT 'harbor:create-followup:v1:case-' || i, 'crm',
                json_object('case_id', 'case-' || i, 'title', 'Call'), 'ann',
                CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + 2500 + 50 * i
           FROM n",
    )
    .expect("they are recorded");
    daemon.signal(Signal::SIGSTOP);
    let overdue = "SELECT min(due_at) FROM handoff_outbox
                    HAVING max(due_at) < (julianday('now') - 2440587.5) * 86400000 - 500";
    until("all to be overdue", || db.query_row(overdue, [], |row| row.get::<_, i64>(0)).ok());
    let begun = "SELECT count(*) FROM handoff_attempts";
    assert_eq!(world.value::<i64>(begun, []), 0, "none began before its time");
    daemon.signal(Signal::SIGCONT);
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    until("all to be sent", || (world.value::<i64>(sent, []) == 20).then_some(()));
    daemon.stop();
    assert_eq!(world.value::<i64>(begun, []), 20, "each was tried once");
}

/// A call is cut short neither by the suspension nor by what is noticed after it.
#[test]
fn a_call_during_which_the_daemon_was_suspended_is_answered_all_the_same() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "500ms" }]"#;
    let world = World::with(&Crm { faults, contract: "mode = \"none\"", ..Crm::default() });
    let world = world.migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    until("the CRM to have it", || {
        world.path("crm.db").exists().then(|| world.tasks(&key) == 1)?.then_some(())
    });
    daemon.signal(Signal::SIGSTOP);
    pause(Duration::from_millis(1_500));
    daemon.signal(Signal::SIGCONT);
    world.until_state(&key, "sent");
    daemon.stop();
}

#[test]
fn each_retry_by_hand_is_one_attempt_more_and_nobody_says_that_it_is_delivered() {
    let faults = r#"[
      { on = "attempt", n = 5, fault = "slow", delay = "1ms" },
      { on = "every", fault = "unreachable" },
    ]"#;
    let retry = "initial = \"10ms\"\nmax_interval = \"10ms\"\nmax_attempts = 1";
    let world = World::with(&Crm { faults, retry, ..Crm::default() }).migrated();
    let daemon = world.serving();
    world.record("case-104");
    world.until_state(KEY, "blocked");
    let payload = "SELECT payload FROM handoff_approvals";
    let before: String = world.value(payload, []);
    for attempts in 2..=4 {
        let done = world.run(&["retry", KEY]).ok();
        assert!(!done.stdout.contains("sent"), "{done:?}");
        world.until_attempts(KEY, attempts);
        world.until_state(KEY, "blocked");
        assert_eq!(world.value::<String>(payload, []), before);
    }
    world.run(&["retry", KEY]).ok();
    world.until_state(KEY, "sent");
    let history = world.run(&["show", KEY, "--json"]).ok().json();
    assert_eq!(history["history"].as_array().map(Vec::len), Some(5), "{history}");
    assert_eq!(world.tasks(KEY), 1);
    daemon.stop();
}

#[test]
fn the_shortest_and_the_longest_settings_that_are_allowed_work() {
    let long = r#"
      timeout = "1h"
      concurrency = 1024
      contract = { mode = "idempotency_key", window = "3650d", settle_delay = "30d" }
      retry = { initial = "365d", multiplier = 1000.0, max_interval = "365d",
                max_attempts = 10000, max_elapsed = "3650d", retry_after_ceiling = "365d" }
      faults = [{ on = "attempt", n = 1, fault = "throttle", retry_after = "365d" }]"#;
    let short = r#"
      timeout = "1ms"
      concurrency = 1
      contract = { mode = "idempotency_key", window = "3ms", settle_delay = "1ms" }
      retry = { initial = "1ms", multiplier = 1.0, max_interval = "1ms",
                max_attempts = 1, max_elapsed = "1ms", retry_after_ceiling = "1ms" }
      faults = [{ on = "attempt", n = 1, fault = "throttle", retry_after = "365d" }]"#;
    for (settings, grace, busy) in [(long, "1h", "20s"), (short, "0s", "1ms")] {
        let receiver = "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\n";
        // An inline table ends on its line.
        let settings = settings.replace(",\n                ", ", ");
        let world = World::configured(&format!("{receiver}{settings}\n")).migrated();
        let daemon = world.daemon_with(&[
            "--set",
            &format!("worker.shutdown_grace={grace}"),
            "--set",
            &format!("store.busy_timeout={busy}"),
        ]);
        daemon.event("started");
        let key = world.record("case-104");
        world.until_attempts(&key, 1);
        let ended = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NOT NULL";
        until("an answer", || (world.value::<i64>(ended, []) >= 1).then_some(()));
        world.run(&["explain", &key]).ok();
        world.run(&["status"]).ok();
        for line in daemon.stop() {
            assert!(!line.contains("panicked"), "{line}");
        }
    }
}
