//! After which exits the service is started again.

use crate::machine::{Machine, RECEIVERS};

#[track_caller]
fn assert_given_up(machine: &Machine, status: &str) {
    assert!(!machine.systemctl(&["start", "handoff"]).ok);
    let shown = ["ActiveState", "Result", "ExecMainStatus", "NRestarts"];
    let shown = shown.map(|property| machine.show(property));
    assert_eq!(shown, ["failed", "exit-code", status, "0"], "{:#?}", machine.journal());
}

#[test]
fn a_bad_configuration_ends_the_service_until_it_is_mended() {
    let Some(machine) = Machine::boot("nonsense = true\n") else { return };
    assert_given_up(&machine, "78");
    assert!(machine.journal().join("\n").contains("nonsense"), "{:#?}", machine.journal());
    machine.configure(RECEIVERS);
    machine.start();
}

#[test]
fn a_wrong_option_ends_the_service_until_it_is_mended() {
    let Some(machine) = Machine::boot(RECEIVERS) else { return };
    machine.drop_in("[Service]\nExecStart=\nExecStart=/usr/bin/handoff run --no-such-option\n");
    assert_given_up(&machine, "2");
    machine.drop_in("");
    machine.start();
}

#[test]
fn a_database_that_another_daemon_serves_is_tried_again_until_that_one_ends() {
    let Some(machine) = Machine::boot(RECEIVERS) else { return };
    let other = "[Service]\nType=notify\nUser=handoff\nWorkingDirectory=/var/lib/handoff\n\
                 ExecStart=/usr/bin/handoff run --config /etc/handoff/handoff.toml\n";
    machine.write("units/other.service", other);
    // The shipped one is 5 s.
    machine.drop_in("[Service]\nRestartSec=100ms\n");
    machine.start();
    assert!(machine.systemctl(&["stop", "handoff"]).ok);
    assert!(machine.systemctl(&["start", "other"]).ok);
    assert!(!machine.systemctl(&["start", "handoff"]).ok);
    machine.until_restarts(8);
    machine.until_shows("ExecMainStatus", |status| status == "75");
    assert!(machine.systemctl(&["stop", "other"]).ok);
    machine.until_active();
    let key = machine.record("case-104");
    machine.until_state(&key, "sent");
}
