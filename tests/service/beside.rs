//! What is installed beside the service, and the drop-ins that the unit advises.

use crate::machine::{Machine, RECEIVERS, advised, shipped, until};

#[test]
fn the_check_fails_while_the_daemon_is_down_and_while_a_person_is_needed() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let check = || machine.systemctl(&["start", "handoff-check"]).ok;
    let status = || {
        let shown = ["show", "handoff-check", "--value", "--property", "ExecMainStatus"];
        machine.systemctl(&shown).said.trim().to_owned()
    };
    assert!(check(), "all is well");
    let key = machine.record_reply("case-104");
    machine.until_called("mail.db", &key);
    let pid = machine.show("MainPID");
    machine.signal("SIGKILL");
    machine.until_replaced(&pid);
    machine.until_state(&key, "blocked ambiguous");
    assert!(!check());
    assert_eq!(status(), "3");
    let settled =
        ["handoff", "--config", "/etc/handoff/handoff.toml", "withdraw", "--reason", "seen", &key];
    let settled = machine.as_the_daemon(&settled);
    assert!(settled.ok, "{}", settled.said);
    assert!(check(), "all is well again");
    assert!(machine.systemctl(&["stop", "handoff"]).ok);
    assert!(!check(), "nobody delivers");
}

#[test]
fn the_timer_of_the_check_can_be_started() {
    let Some(machine) = Machine::serving(RECEIVERS) else { return };
    let started = machine.systemctl(&["start", "handoff-check.timer"]);
    assert!(started.ok, "{}", started.said);
}

#[test]
fn with_the_drop_in_for_a_dynamic_user_the_service_serves() {
    let Some(machine) = Machine::boot(RECEIVERS) else { return };
    machine.drop_in(&shipped("dynamic-user.conf"));
    machine.start();
    let folder = machine.path("lib/private/handoff");
    assert!(folder.join("app.db").exists(), "{}", folder.display());
    assert!(machine.systemctl(&["restart", "handoff"]).ok);
    machine.until_active();
}

#[test]
fn a_database_below_a_mount_that_is_missing_for_a_while_is_not_made_anew() {
    let Some(machine) = Machine::boot("") else { return };
    machine.configure(&format!("[store]\nurl = \"sqlite:/var/lib/harbor/app.db\"\n{RECEIVERS}"));
    machine.appears("/var/lib/harbor");
    let advice = ["ReadWritePaths=", "ExecStartPre="].map(|key| advised(key, "harbor"));
    // The shipped one is 5 s.
    machine.drop_in(&format!("[Service]\n{}\nRestartSec=100ms\n", advice.join("\n")));
    assert!(!machine.systemctl(&["start", "handoff"]).ok);
    machine.until_restarts(3);
    let mount = "mount -t tmpfs -o mode=777 tmpfs /var/lib/harbor && \
                 touch /var/lib/harbor/app.db && chown handoff: /var/lib/harbor/app.db";
    let mounted = machine.run(&["sh", "-c", mount]);
    assert!(mounted.ok, "{}", mounted.said);
    machine.until_active();
    assert!(machine.run(&["test", "-s", "/var/lib/harbor/app.db"]).ok, "made on the mount");
    // Seen from outside, where there is no mount.
    assert!(!machine.path("lib/harbor/app.db").exists(), "made below the mount");
}

/// A command that takes its token from the unit's credentials.
const TOKEN: &str = r#"test "$(cat "$CREDENTIALS_DIRECTORY/crm-token")" = secret || exit 77"#;
const COMMAND: &str = r#"
[receivers.crm]
kind = "command"
program = ["/usr/bin/sh", "/etc/handoff/deliver.sh"]
environment = ["CREDENTIALS_DIRECTORY"]
"#;

#[test]
fn a_credential_of_the_unit_reaches_the_command_that_asks_for_it() {
    let Some(machine) = Machine::boot(COMMAND) else { return };
    machine.write("configuration/deliver.sh", TOKEN);
    machine.write("configuration/credentials/crm-token", "secret");
    let private = ["chmod", "-R", "go-rwx", "/etc/handoff/credentials"];
    assert!(machine.run(&private).ok);
    machine.drop_in(&format!("[Service]\n{}\n", advised("LoadCredential=", "harbor")));
    machine.start();
    let key = machine.record("case-104");
    until("the outcome", || (!["", "-"].contains(&&*machine.outcomes(&key))).then_some(()));
    assert_eq!(machine.state(&key), "sent", "{:#?}", machine.journal());
}
