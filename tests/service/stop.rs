//! How the service stops.

use crate::machine::{Machine, RECEIVERS};
use std::collections::BTreeMap;

/// So long a stop waits for calls; the shipped default is 25 s.
fn grace(text: &str) -> String {
    format!("[worker]\nshutdown_grace = \"{text}\"\n{RECEIVERS}")
}

/// An inactive unit is forgotten, but not what was logged of it.
#[track_caller]
fn assert_stopped_by_itself(machine: &Machine) {
    assert_eq!(machine.show("ActiveState"), "inactive");
    let journal = machine.journal();
    let said = |text: &str| journal.iter().any(|line| line.contains(text));
    assert_eq!(machine.events("stopped").len(), 1, "{journal:#?}");
    assert!(said("handoff.service: Deactivated successfully."), "{journal:#?}");
    assert!(!said("timed out") && !said("Killing"), "{journal:#?}");
}

#[test]
fn a_stop_with_a_call_that_hangs_ends_within_the_limit_of_the_unit() {
    let Some(machine) = Machine::serving(&grace("2s")) else { return };
    let key = machine.record("hangs-1");
    machine.until_called("crm.db", &key);
    let stopped = machine.systemctl(&["stop", "handoff"]);
    assert!(stopped.ok, "{}", stopped.said);
    assert_stopped_by_itself(&machine);
    assert_eq!((machine.outcomes(&key), machine.state(&key)), ("cut_off".into(), "pending".into()));
    assert_eq!(machine.until_events("attempt_cut_off", 1)[0]["operation.key"], key);
    // Nothing holds it back at the next start.
    machine.configure(RECEIVERS.replace("20m", "1ms").as_str());
    machine.start();
    machine.until_state(&key, "sent");
    assert_eq!(machine.tasks("crm.db", &key), 1);
}

#[test]
fn a_stop_that_is_longer_than_the_limit_of_the_unit_asks_for_more_time() {
    let Some(machine) = Machine::boot(&grace("4s")) else { return };
    // The shipped one is 60 s.
    machine.drop_in("[Service]\nTimeoutStopSec=1s\n");
    machine.start();
    let key = machine.record("hangs-1");
    machine.until_called("crm.db", &key);
    let stopped = machine.systemctl(&["stop", "handoff"]);
    assert!(stopped.ok, "{}", stopped.said);
    assert_stopped_by_itself(&machine);
    assert_eq!(machine.outcomes(&key), "cut_off");
}

#[test]
fn an_orderly_stop_leaves_no_operation_worse_off_than_a_kill() {
    let ends = ["SIGTERM", "SIGKILL"].map(|signal| {
        let machine = Machine::boot(&grace("1s"))?;
        machine.drop_in("[Service]\nRestartSec=100ms\n");
        machine.start();
        let keys: Vec<String> = (0..10)
            .flat_map(|n| {
                let case = format!("hangs-{n}");
                [machine.record(&case), machine.record_reply(&case)]
            })
            .collect();
        for key in &keys {
            let crm = if key.contains("send-reply") { "mail.db" } else { "crm.db" };
            machine.until_called(crm, key);
        }
        let pid = machine.show("MainPID");
        machine.configure(&RECEIVERS.replace("20m", "1ms"));
        if signal == "SIGTERM" {
            assert!(machine.systemctl(&["restart", "handoff"]).ok);
        } else {
            machine.signal(signal);
        }
        machine.until_replaced(&pid);
        let states = keys.iter().map(|key| {
            // With the promise it is repeated, without it a person must look.
            let end = if key.contains("send-reply") { "blocked ambiguous" } else { "sent" };
            machine.until_state(key, end);
            (key.clone(), machine.state(key))
        });
        let states: BTreeMap<String, String> = states.collect();
        for key in &keys {
            let crm = if key.contains("send-reply") { "mail.db" } else { "crm.db" };
            assert_eq!(machine.tasks(crm, key), 1, "{key}");
        }
        Some(states)
    });
    let [stopped, killed] = ends;
    assert_eq!(stopped, killed);
}
