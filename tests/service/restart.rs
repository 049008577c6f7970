//! What happens when the daemon dies.

use crate::machine::{Machine, RECEIVERS, pause, until};
use std::time::Duration;

#[test]
fn after_a_kill_the_service_starts_again_and_what_was_in_flight_follows_the_contract() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let promised = machine.record("hangs-1");
    let unpromised = machine.record_reply("case-1");
    machine.until_called("crm.db", &promised);
    machine.until_called("mail.db", &unpromised);
    machine.configure(&RECEIVERS.replace("20m", "1ms"));
    let pid = machine.show("MainPID");
    machine.signal("SIGKILL");
    machine.until_replaced(&pid);
    assert_eq!(machine.restarts(), 1);
    machine.until_state(&promised, "sent");
    machine.until_state(&unpromised, "blocked ambiguous");
    assert_eq!(machine.outcomes(&unpromised), "interrupted");
    for (crm, key) in [("crm.db", &promised), ("mail.db", &unpromised)] {
        assert_eq!(machine.tasks(crm, key), 1, "{key}");
    }
}

#[test]
fn a_service_that_dies_again_and_again_is_started_each_time() {
    let Some(machine) = Machine::boot(RECEIVERS) else { return };
    // With the shipped 5 s the limit of systemd's own, five starts in ten seconds,
    // could not be reached.
    machine.drop_in("[Service]\nRestartSec=100ms\n");
    machine.start();
    for _ in 0..8 {
        let pid = machine.show("MainPID");
        machine.signal("SIGKILL");
        machine.until_replaced(&pid);
    }
    assert_eq!(machine.restarts(), 8);
    let key = machine.record("case-104");
    machine.until_state(&key, "sent");
}

/// A command that kills the daemon over one operation.
const KILLER: &str = r#"read -r request
case $request in
*:poison*) kill -KILL "$PPID"; sleep 600 ;;
esac
"#;
const COMMAND: &str = r#"
[receivers.crm]
kind = "command"
program = ["/usr/bin/sh", "/etc/handoff/deliver.sh"]
concurrency = 4
contract = { mode = "idempotency_key", window = "forever" }
"#;

#[test]
fn an_operation_that_kills_the_daemon_is_blocked_and_the_others_are_delivered() {
    let Some(machine) = Machine::boot(COMMAND) else { return };
    machine.write("configuration/deliver.sh", KILLER);
    machine.drop_in("[Service]\nRestartSec=100ms\n");
    machine.start();
    assert!(machine.systemctl(&["stop", "handoff"]).ok);
    let poison = machine.record("poison");
    for n in 0..50 {
        machine.record(&format!("case-{n}"));
    }
    // It may die before systemd is told that it serves.
    assert!(machine.systemctl(&["start", "--no-block", "handoff"]).ok);
    machine.until_state(&poison, "blocked crashed");
    let open = "SELECT count(*) FROM handoff_outbox WHERE state <> 'sent'";
    until("the others", || (machine.value::<i64>(open, []) == 1).then_some(()));
    // The first process, one in which the killer was alone, and the next one.
    // Whatever has been in flight with the killer is never so again.
    let again = "SELECT count(*) FROM (SELECT 1 FROM handoff_attempts
                  WHERE operation_key <> ?1 AND outcome = 'interrupted'
                  GROUP BY operation_key HAVING count(*) > 1)";
    assert_eq!(machine.value::<i64>(again, [&poison]), 0);
    assert_eq!(machine.outcomes(&poison), "interrupted ".repeat(4).trim());
    machine.until_active();
    assert_eq!(machine.restarts(), 4);
}

#[test]
fn what_fell_due_while_the_machine_was_suspended_is_delivered_at_once_and_once() {
    let late = r#"faults = [{ on = "attempt", n = 1, fault = "unreachable" }]"#;
    let settings = format!(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\n{late}\n\
         contract = {{ mode = \"idempotency_key\", window = \"forever\" }}\n\
         retry = {{ initial = \"4s\" }}\ncircuit_breaker = {{ failures = 0 }}\n"
    );
    let Some(machine) = Machine::serving(&settings) else { return };
    let keys: Vec<String> = (0..20).map(|n| machine.record(&format!("case-{n}"))).collect();
    let first = "SELECT count(*) FROM handoff_attempts WHERE outcome = 'not_taken'";
    until("the first attempts", || (machine.value::<i64>(first, []) == 20).then_some(()));
    machine.signal("SIGSTOP");
    let due =
        "SELECT count(*) FROM handoff_outbox WHERE due_at > unixepoch('now', 'subsec') * 1000";
    until("all to be due", || (machine.value::<i64>(due, []) == 0).then_some(()));
    pause(Duration::from_secs(1));
    machine.signal("SIGCONT");
    for key in &keys {
        machine.until_state(key, "sent");
        assert_eq!(machine.outcomes(key), "not_taken applied");
        assert_eq!(machine.tasks("crm.db", key), 1);
    }
    assert_eq!(machine.restarts(), 0);
}
