//! When the service counts as started.

use crate::machine::{Machine, RECEIVERS, advised, pause, until};
use std::time::Duration;

/// One that starts only once the service has.
const FOLLOWER: &str = "[Unit]\nRequires=handoff.service\nAfter=handoff.service\n\
                        [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/true\n";

#[test]
fn what_is_ordered_after_the_service_starts_only_once_it_serves() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    assert!(machine.systemctl(&["stop", "handoff"]).ok);
    machine.configure(&format!(
        "[store]\nurl = \"sqlite:app.db\"\nbusy_timeout = \"100ms\"\n{RECEIVERS}"
    ));
    machine.write("units/follower.service", FOLLOWER);
    let db = machine.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    assert!(machine.systemctl(&["start", "--no-block", "follower"]).ok);
    let waits = |status: &str| status.starts_with("waiting for the database");
    machine.until_shows("StatusText", waits);
    assert_eq!(machine.show("ActiveState"), "activating");
    assert!(!machine.systemctl(&["is-active", "follower"]).ok, "it starts too early");
    db.execute_batch("COMMIT").expect("the lock goes");
    let follows = || machine.systemctl(&["is-active", "follower"]).ok.then_some(());
    until("what follows to start", follows);
    assert_eq!(machine.show("ActiveState"), "active");
    let key = machine.record("case-104");
    machine.until_state(&key, "sent");
    assert_eq!(machine.restarts(), 0);
}

#[test]
fn a_start_that_is_at_work_for_longer_than_it_may_is_given_more_time() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    assert!(machine.systemctl(&["stop", "handoff"]).ok);
    // The shipped one is 90 s. What an earlier daemon left is settled at the start,
    // and takes as long as another program holds the database.
    machine.drop_in("[Service]\nTimeoutStartSec=4s\n");
    let db = machine.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    assert!(machine.systemctl(&["start", "--no-block", "handoff"]).ok);
    pause(Duration::from_secs(7));
    assert_eq!(machine.show("ActiveState"), "activating", "{:#?}", machine.journal());
    db.execute_batch("COMMIT").expect("the lock goes");
    machine.until_active();
    assert_eq!(machine.restarts(), 0);
}

#[test]
fn a_database_that_is_missing_for_longer_than_a_start_may_take_is_waited_for() {
    let Some(machine) = Machine::boot("") else { return };
    machine.configure(&format!("[store]\nurl = \"sqlite:later/app.db\"\n{RECEIVERS}"));
    // The shipped ones are 90 s and 5 s.
    machine.drop_in("[Service]\nTimeoutStartSec=1s\nRestartSec=100ms\n");
    assert!(!machine.systemctl(&["start", "handoff"]).ok, "a start is given up after a while");
    machine.until_restarts(2);
    machine.until_shows("StatusText", |status| status.starts_with("waiting for the database"));
    machine.appears("/var/lib/handoff/later");
    machine.until_active();
    assert!(machine.path("lib/handoff/later/app.db").exists());
}

#[test]
fn a_folder_of_the_application_that_is_missing_for_a_while_does_not_use_up_the_starts() {
    let Some(machine) = Machine::boot("") else { return };
    machine.configure(&format!("[store]\nurl = \"sqlite:/var/lib/harbor/app.db\"\n{RECEIVERS}"));
    // What the shipped unit advises, and a pause after which the limit of systemd's
    // own, five starts in ten seconds, would be reached.
    let folder = advised("ReadWritePaths=", "harbor");
    machine.drop_in(&format!("[Service]\n{folder}\nRestartSec=100ms\n"));
    assert!(!machine.systemctl(&["start", "handoff"]).ok);
    machine.until_restarts(8);
    machine.appears("/var/lib/harbor");
    machine.until_active();
    assert!(machine.path("lib/harbor/app.db").exists());
}
