//! The units in `systemd/`: systemd understands every line of them, they are
//! hardened, and they give the daemon the time that its configuration promises.
//!
//! Needs `systemd-analyze` and `systemd-sysusers` (Debian: `systemd`), and no
//! running systemd. Without them a rule is skipped, and says so; with `CI` set
//! it fails.

#![cfg(feature = "daemon")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;

const UNITS: [&str; 3] = ["handoff.service", "handoff-check.service", "handoff-check.timer"];
const DROP_IN: &str = "dynamic-user.conf";

/// What a stop needs after the grace to store the last outcomes and to close the database.
const STOP_MARGIN: Duration = Duration::from_secs(15);

#[test]
fn systemd_finds_nothing_to_say_about_the_units() {
    if !present("systemd-analyze") {
        return eprintln!("skipped: no systemd-analyze here");
    }
    let installed = Installed::new();
    // A misspelt key is a warning, and the exit status stays 0: only silence is good.
    assert_eq!(installed.verify(), "");
    installed.add_drop_in();
    assert_eq!(installed.verify(), "", "with the drop-in {DROP_IN}");
}

#[test]
fn a_misspelt_key_in_a_unit_is_noticed() {
    if !present("systemd-analyze") {
        return eprintln!("skipped: no systemd-analyze here");
    }
    let installed = Installed::new();
    let unit = installed.path("handoff.service");
    let misspelt = read(&unit).replace("\nTimeoutStopSec=", "\nTimeoutStopSecs=");
    fs::write(unit, misspelt).expect("the copy of the unit is ours to write");
    assert!(installed.verify().contains("TimeoutStopSecs"), "{:?}", installed.verify());
}

#[test]
fn the_units_are_hardened() {
    if !present("systemd-analyze") {
        return eprintln!("skipped: no systemd-analyze here");
    }
    let installed = Installed::new();
    for _ in ["as they are", "with the drop-in"] {
        for unit in UNITS.iter().filter(|unit| unit.ends_with(".service")) {
            let exposure = run(Command::new("systemd-analyze")
                .args(["security", "--offline=true", "--no-pager", "--threshold=20"])
                .arg(installed.path(unit)));
            assert!(exposure.status.success(), "{unit} is above 2.0:\n{}", text(&exposure));
        }
        installed.add_drop_in();
    }
}

#[test]
fn the_user_of_the_units_is_made_by_the_shipped_sysusers_file() {
    if !present("systemd-sysusers") {
        return eprintln!("skipped: no systemd-sysusers here");
    }
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    fs::create_dir(root.path().join("etc")).expect("the folder is ours");
    let file = shipped().join("handoff.sysusers");
    let made = run(Command::new("systemd-sysusers").arg("--root").arg(root.path()).arg(file));
    assert!(made.status.success(), "{}", text(&made));
    for unit in UNITS.iter().filter(|unit| unit.ends_with(".service")) {
        let user = value(unit, "User");
        let users = read(&root.path().join("etc/passwd"));
        assert!(users.starts_with(&format!("{user}:")), "{unit} runs as {user}, made was {users}");
    }
}

#[test]
fn a_stop_lasts_longer_than_the_default_grace() {
    let defaults = read(&top().join("config/handoff.toml"));
    let defaults: toml::Table = defaults.parse().expect("the shipped configuration can be read");
    let grace = defaults["worker"]["shutdown_grace"].as_str().expect("a duration");
    let grace = duration(grace);
    let stop = duration(&value("handoff.service", "TimeoutStopSec"));
    assert!(
        stop >= grace + STOP_MARGIN,
        "systemd kills the daemon {stop:?} after it was asked to stop, but its grace is {grace:?} \
         and the last outcomes need up to {STOP_MARGIN:?} more: raise TimeoutStopSec"
    );
}

#[test]
fn usage_and_configuration_errors_end_the_daemon_and_all_others_restart_it() {
    assert_eq!(value("handoff.service", "Restart"), "on-failure");
    assert_eq!(value("handoff.service", "RestartPreventExitStatus"), "2 78");
    assert_eq!(value("handoff.service", "StartLimitIntervalSec"), "0");
}

#[test]
fn the_check_looks_with_the_rights_and_the_configuration_of_the_daemon() {
    for key in
        ["User", "Group", "UMask", "StateDirectory", "StateDirectoryMode", "WorkingDirectory"]
    {
        assert_eq!(value("handoff-check.service", key), value("handoff.service", key), "{key}");
    }
    let configuration = |unit| {
        let command = value(unit, "ExecStart");
        command.split_once("--config ").expect("a configuration file").1.to_owned()
    };
    assert_eq!(configuration("handoff-check.service"), configuration("handoff.service"));
}

/// The units in a folder of their own, with a program that exists in the place of ours.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn new() -> Self {
        let installed = Self { folder: tempfile::tempdir().expect("a folder can be made") };
        for unit in UNITS {
            let shipped = read(&shipped().join(unit));
            let runnable = shipped.replace("=/usr/bin/handoff ", "=/usr/bin/true ");
            fs::write(installed.path(unit), runnable).expect("the folder is ours");
        }
        installed
    }

    fn path(&self, unit: &str) -> PathBuf {
        self.folder.path().join(unit)
    }

    fn add_drop_in(&self) {
        let drop_ins = self.path("handoff.service.d");
        fs::create_dir_all(&drop_ins).expect("the folder is ours");
        fs::copy(shipped().join(DROP_IN), drop_ins.join(DROP_IN)).expect("the drop-in is shipped");
    }

    fn verify(&self) -> String {
        let units = UNITS.map(|unit| self.path(unit));
        text(&run(Command::new("systemd-analyze").args(["verify", "--no-pager"]).args(units)))
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shipped() -> PathBuf {
    top().join("systemd")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The only value of a key in a shipped unit.
fn value(unit: &str, key: &str) -> String {
    let text = read(&shipped().join(unit));
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned));
    match (values.next(), values.next()) {
        (Some(value), None) => value,
        other => panic!("{unit} should set {key} once, but it has {other:?}"),
    }
}

fn duration(text: &str) -> Duration {
    text.parse::<humantime::Duration>().unwrap_or_else(|error| panic!("{text}: {error}")).into()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Whether the program is there. On a machine of CI it has to be.
fn present(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    let needed = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(there || !needed, "{program} is missing: install systemd, or run tests/run as root");
    there
}
