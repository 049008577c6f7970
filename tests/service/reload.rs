//! What `systemctl reload` does and says.

use crate::machine::{Machine, RECEIVERS, pause, tell};
use nix::sys::signal::Signal;
use std::time::Duration;

/// With one receiver more.
fn with_another(name: &str) -> String {
    format!("{RECEIVERS}[receivers.{name}]\nkind = \"simulated\"\npath = \"other.db\"\n")
}

#[test]
fn a_reload_returns_once_the_new_configuration_is_in_force() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let pid = machine.show("MainPID");
    let known = "SELECT count(*) FROM handoff_receivers WHERE name = ?1";
    for n in 0..10 {
        let name = format!("crm-{n}");
        machine.configure(&with_another(&name));
        let reloaded = machine.systemctl(&["reload", "handoff"]);
        assert!(reloaded.ok, "{}", reloaded.said);
        assert_eq!(machine.value::<i64>(known, [&name]), 1, "{:#?}", machine.journal());
        assert_eq!(machine.show("ActiveState"), "active");
    }
    assert_eq!((machine.show("MainPID"), machine.restarts()), (pid, 0));
}

#[test]
fn a_reload_that_has_to_wait_is_waited_for() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    machine.configure(&with_another("later"));
    let db = machine.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| machine.systemctl(&["reload", "handoff"]));
        machine.until_shows("SubState", |state| state.starts_with("reload"));
        pause(Duration::from_secs(2));
        assert!(!reload.is_finished(), "the names of the receivers cannot be stored yet");
        db.execute_batch("COMMIT").expect("the lock goes");
        let reloaded = reload.join().expect("it ends");
        assert!(reloaded.ok, "{}", reloaded.said);
    });
    let known = "SELECT count(*) FROM handoff_receivers WHERE name = 'later'";
    assert_eq!(machine.value::<i64>(known, []), 1);
}

#[test]
fn a_reload_of_a_bad_configuration_fails_and_leaves_the_service_as_it_was() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let pid = machine.show("MainPID");
    for (n, bad) in ["this is no TOML", "[receivers.crm]\nkind = \"simulatd\"\n"].iter().enumerate()
    {
        machine.configure(bad);
        let refused = machine.systemctl(&["reload", "handoff"]);
        assert!(!refused.ok, "systemctl says nothing: {}", refused.said);
        machine.until_events("reload_refused", n + 1);
        machine.until_shows("StatusText", |status| status.contains("the new one was refused"));
        machine.until_shows("ActiveState", |state| state == "active");
        let key = machine.record(&format!("case-{n}"));
        machine.until_state(&key, "sent");
    }
    machine.configure(RECEIVERS);
    assert!(machine.systemctl(&["reload", "handoff"]).ok);
    machine.until_shows("StatusText", |status| !status.contains("refused"));
    assert_eq!((machine.show("MainPID"), machine.restarts()), (pid, 0));
}

#[test]
fn a_hundred_reloads_in_a_row_leave_one_healthy_process() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let pid = machine.show("MainPID");
    let daemon = machine.daemon();
    for n in 0..100 {
        let text = if n % 3 == 2 { "no TOML".to_owned() } else { with_another("other") };
        machine.configure(&text);
        tell(daemon, Signal::SIGHUP);
    }
    machine.configure(&with_another("last"));
    assert!(machine.systemctl(&["reload", "handoff"]).ok);
    let known = "SELECT count(*) FROM handoff_receivers WHERE name = 'last'";
    assert_eq!(machine.value::<i64>(known, []), 1);
    // A reload that never ends would stay in `reload`.
    machine.until_shows("SubState", |state| state == "running");
    let key = machine.record("case-104");
    machine.until_state(&key, "sent");
    assert_eq!((machine.show("MainPID"), machine.restarts()), (pid, 0));
}
