//! A machine with systemd and the shipped unit, driven by `systemctl`.

use handoff::rusqlite::types::FromSql;
use handoff::rusqlite::{Connection, Params, params};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// After so many looks what is waited for does not come. A bound, not a promise.
const LOOKS: u32 = 3_000;
/// Where systemd lies, which need not be running.
const SYSTEMD: &str = "/usr/lib/systemd/systemd";
const UNIT: &str = "handoff.service";
/// The targets that the shipped unit is ordered by, and the journal.
const OF_SYSTEMD: [&str; 6] = [
    "network-online.target",
    "shutdown.target",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
    "systemd-journald.socket",
    "time-sync.target",
];

/// A receiver that keeps a promise for each key, and one without a promise.
pub(crate) const RECEIVERS: &str = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
timeout = "30m"
contract = { mode = "idempotency_key", window = "forever" }
retry = { initial = "100ms" }
faults = [
  { on = "key", match = "*:slow-*", fault = "slow", delay = "3s" },
  { on = "key", match = "*:slower-*", fault = "slow", delay = "9s" },
  { on = "key", match = "*:hangs-*", fault = "slow", delay = "20m" },
]
[receivers.mail]
kind = "simulated"
path = "mail.db"
timeout = "30m"
faults = [{ on = "every", fault = "slow", delay = "20m" }]
[operations.create-followup]
receiver = "crm"
subject = "case_id"
schema = "builtin:create-followup"
[operations.send-reply]
receiver = "mail"
subject = "case_id"
schema = "builtin:create-followup"
"#;

/// Looks until there is something to see. The one place where a test waits.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        if let Some(seen) = look() {
            return seen;
        }
        pause(LOOK);
    }
    panic!("waited in vain for {what}");
}

/// Lets a stretch of time pass, where the rule is about its length.
pub(crate) fn pause(time: Duration) {
    // Nobody unparks a test's thread; an early wake only looks early.
    std::thread::park_timeout(time);
}

/// A machine that ends with the test.
pub(crate) struct Machine {
    folder: TempDir,
    holder: Child,
}

/// How a command in the machine ended, and what it said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) ok: bool,
    pub(crate) said: String,
}

impl Machine {
    /// Boots one, with the shipped unit installed and not started.
    ///
    /// `None` where that cannot be.
    #[track_caller]
    pub(crate) fn boot(settings: &str) -> Option<Self> {
        if let Err(lacking) = possible() {
            assert!(std::env::var_os("CI").is_none(), "{lacking}");
            drop(writeln!(std::io::stderr(), "skipped: {lacking}"));
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder for the test");
        for name in ["units", "configuration", "lib"] {
            std::fs::create_dir(folder.path().join(name)).expect("the folder is ours");
        }
        install_units(&folder.path().join("units"));
        let holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh"])
            .arg(top().join("tests/service/machine.sh"))
            .arg("hold")
            .arg(folder.path())
            .arg(env!("CARGO_BIN_EXE_handoff"))
            .arg(top())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("boot.log")).expect("the folder is ours"))
            .spawn()
            .expect("unshare starts");
        let mut machine = Self { folder, holder };
        machine.configure(settings);
        until("the machine to run", || {
            let ended = machine.holder.try_wait().expect("it is our child");
            let log = || std::fs::read_to_string(machine.path("boot.log")).unwrap_or_default();
            assert!(ended.is_none(), "the machine did not start: {}", log());
            (machine.init().is_some() && machine.systemctl(&["is-system-running"]).ok).then_some(())
        });
        Some(machine)
    }

    /// Boots one and starts the service.
    #[track_caller]
    pub(crate) fn serving(settings: &str) -> Option<Self> {
        let machine = Self::boot(settings)?;
        machine.start();
        Some(machine)
    }

    /// Writes the configuration: this, and a database in the state folder.
    pub(crate) fn configure(&self, settings: &str) {
        let store = "[store]\nurl = \"sqlite:app.db\"\nbusy_timeout = \"20s\"\n";
        let store = if settings.contains("[store]") { "" } else { store };
        self.write("configuration/handoff.toml", &format!("{store}{settings}"));
    }

    /// A drop-in for the shipped unit. In force at the next start.
    #[track_caller]
    pub(crate) fn drop_in(&self, text: &str) {
        // A time that it shortens is one that the shipped unit sets.
        let times = text.lines().filter_map(|line| Some(line.split_once("Sec=")?.0));
        for time in times {
            assert!(shipped(UNIT).contains(&format!("\n{time}Sec=")), "{UNIT} has no {time}Sec");
        }
        self.write("units/handoff.service.d/test.conf", text);
        assert!(self.systemctl(&["daemon-reload"]).ok);
    }

    /// A path in the folder that the machine shares with the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is ours");
        std::fs::write(path, text).expect("the file is ours");
    }

    /// The first process of the machine, as it is seen from outside.
    fn init(&self) -> Option<u32> {
        std::fs::read_to_string(self.path("init.pid")).ok()?.trim().parse().ok()
    }

    /// Runs a command in the machine to its end.
    #[track_caller]
    pub(crate) fn run(&self, command: &[&str]) -> Done {
        let init = self.init().expect("the machine runs").to_string();
        let output = Command::new("nsenter")
            .args(["--target", &init, "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--"])
            .args(command)
            .env_clear()
            .env("PATH", "/usr/bin")
            .output()
            .expect("nsenter starts");
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        Done { ok: output.status.success(), said: said.concat() }
    }

    /// Runs a command of an operator in the state folder, as the daemon's user.
    #[track_caller]
    pub(crate) fn as_the_daemon(&self, command: &[&str]) -> Done {
        let user = ["setpriv", "--reuid=handoff", "--regid=handoff", "--clear-groups"];
        let folder = ["env", "--chdir=/var/lib/handoff"];
        self.run(&[&user[..], &folder, command].concat())
    }

    #[track_caller]
    pub(crate) fn systemctl(&self, arguments: &[&str]) -> Done {
        self.run(&[&["systemctl", "--no-pager"], arguments].concat())
    }

    /// Makes a folder of the daemon's user.
    #[track_caller]
    pub(crate) fn appears(&self, folder: &str) {
        // One step, or the daemon would see a folder that is not its own.
        let make = format!("mkdir /tmp/new && chown handoff: /tmp/new && mv /tmp/new {folder}");
        let made = self.run(&["sh", "-c", &make]);
        assert!(made.ok, "{}", made.said);
    }

    /// Starts the service, which must then be active.
    #[track_caller]
    pub(crate) fn start(&self) {
        let started = self.systemctl(&["start", UNIT]);
        assert!(started.ok, "{}\n{:#?}", started.said, self.journal());
    }

    /// Sends a signal to the daemon alone.
    #[track_caller]
    pub(crate) fn signal(&self, signal: &str) {
        let sent = self.systemctl(&["kill", "--kill-whom=main", "--signal", signal, UNIT]);
        assert!(sent.ok, "{}", sent.said);
    }

    /// What systemd says of the service.
    #[track_caller]
    pub(crate) fn show(&self, property: &str) -> String {
        let shown = self.systemctl(&["show", UNIT, "--value", "--property", property]);
        assert!(shown.ok, "{}", shown.said);
        shown.said.trim().to_owned()
    }

    /// Waits until systemd says this of the service.
    #[track_caller]
    pub(crate) fn until_shows(&self, property: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        for _ in 0..LOOKS {
            last = self.show(property);
            if wanted(&last) {
                return last;
            }
            pause(LOOK);
        }
        panic!("{property} stays {last}: {:#?}", self.journal());
    }

    /// Waits until the daemon runs as another process than that one, and serves.
    #[track_caller]
    pub(crate) fn until_replaced(&self, pid: &str) -> String {
        let next = self.until_shows("MainPID", |next| next != pid && next != "0");
        self.until_active();
        next
    }

    #[track_caller]
    pub(crate) fn restarts(&self) -> u32 {
        self.show("NRestarts").parse().expect("a number")
    }

    /// The daemon's process, as it is seen from outside.
    #[track_caller]
    pub(crate) fn daemon(&self) -> Pid {
        let inside = self.show("MainPID");
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let ours = space(&self.init().expect("the machine runs").to_string());
        let mut processes = std::fs::read_dir("/proc").expect("/proc is there").flatten();
        let found = processes.find_map(|process| {
            let pid = process.file_name().into_string().ok()?;
            let status = std::fs::read_to_string(process.path().join("status")).ok()?;
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            let is_it = numbers.split_whitespace().last() == Some(&*inside) && space(&pid) == ours;
            is_it.then(|| pid.parse().ok())?
        });
        Pid::from_raw(found.unwrap_or_else(|| panic!("no process {inside} in the machine")))
    }

    /// Everything that the service and systemd have logged.
    #[track_caller]
    pub(crate) fn journal(&self) -> Vec<String> {
        let all = ["journalctl", "--no-pager", "--output=cat", "--unit", UNIT];
        self.run(&all).said.lines().map(str::to_owned).collect()
    }

    /// The daemon's log records of this event.
    #[track_caller]
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        let lines = self.journal().into_iter();
        let records = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        records.filter(|record| record["event"] == event).collect()
    }

    /// Waits for so many log records of this event.
    #[track_caller]
    pub(crate) fn until_events(&self, event: &str, number: usize) -> Vec<Value> {
        until(&format!("{number} times {event}"), || {
            let found = self.events(event);
            (found.len() >= number).then_some(found)
        })
    }

    /// A database of the state folder, opened as another program would.
    pub(crate) fn open(&self, name: &str) -> Connection {
        let db = Connection::open(self.path("lib/handoff").join(name)).expect("it opens");
        db.busy_timeout(Duration::from_secs(60)).expect("a busy timeout");
        db
    }

    /// Records a follow-up for the CRM, as an application would.
    #[track_caller]
    pub(crate) fn record(&self, case: &str) -> String {
        record(&self.open("app.db"), "create-followup", "crm", case)
    }

    /// Waits until the service is active.
    #[track_caller]
    pub(crate) fn until_active(&self) {
        self.until_shows("ActiveState", |state| state == "active");
    }

    /// Waits until the service was started again so often.
    #[track_caller]
    pub(crate) fn until_restarts(&self, number: u32) {
        self.until_shows("NRestarts", |now| now.parse::<u32>().is_ok_and(|now| now >= number));
    }

    /// Records a reply for the receiver without a promise.
    #[track_caller]
    pub(crate) fn record_reply(&self, case: &str) -> String {
        record(&self.open("app.db"), "send-reply", "mail", case)
    }

    #[track_caller]
    pub(crate) fn value<T: FromSql>(&self, sql: &str, with: impl Params) -> T {
        let value = self.open("app.db").query_row(sql, with, |row| row.get(0));
        value.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    #[track_caller]
    pub(crate) fn tasks(&self, crm: &str, key: &str) -> i64 {
        let sql = "SELECT count(*) FROM tasks WHERE operation_key = ?1";
        self.open(crm).query_row(sql, [key], |row| row.get(0)).expect("the CRM has tasks")
    }

    /// State, reason and outcomes of an operation: `sent`, `blocked ambiguous`, …
    #[track_caller]
    pub(crate) fn state(&self, key: &str) -> String {
        let sql = "SELECT concat_ws(' ', state, blocked_reason)
                     FROM handoff_outbox WHERE operation_key = ?1";
        self.value(sql, [key])
    }

    #[track_caller]
    pub(crate) fn until_state(&self, key: &str, state: &str) {
        until(&format!("{key} to be {state}"), || (self.state(key) == state).then_some(()));
    }

    /// The outcomes of an operation's attempts, in order; `-` for an open one.
    #[track_caller]
    pub(crate) fn outcomes(&self, key: &str) -> String {
        let sql = "SELECT coalesce(group_concat(coalesce(outcome, '-'), ' '), '') FROM
                   (SELECT outcome FROM handoff_attempts WHERE operation_key = ?1 ORDER BY number)";
        self.value(sql, [key])
    }

    /// Waits until the call of an operation has reached its receiver.
    #[track_caller]
    pub(crate) fn until_called(&self, crm: &str, key: &str) {
        until(&format!("{key} to be delivered"), || (self.tasks(crm, key) == 1).then_some(()));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The holder takes the end of its input as the end of the test.
        drop(self.holder.stdin.take());
        drop(self.holder.wait());
    }
}

fn record(db: &Connection, kind: &str, receiver: &str, case: &str) -> String {
    let key = format!("harbor:{kind}:v1:{case}");
    let payload = format!(r#"{{"case_id":"{case}","title":"Call about {case}"}}"#);
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, ?2, ?3, 'ann')";
    db.execute(sql, params![key, receiver, payload]).expect("it is recorded");
    key
}

/// A line that the shipped unit holds as advice, with this name for the application.
#[track_caller]
pub(crate) fn advised(key: &str, application: &str) -> String {
    let unit = shipped(UNIT);
    let advice =
        unit.lines().find_map(|line| line.strip_prefix('#').filter(|l| l.starts_with(key)));
    let advice = advice.unwrap_or_else(|| panic!("{UNIT} advises no {key}"));
    advice.replace("APPLICATION", application)
}

/// A file of the shipped ones.
#[track_caller]
pub(crate) fn shipped(name: &str) -> String {
    std::fs::read_to_string(top().join("systemd").join(name)).expect("it is shipped")
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shipped units as they are, and what they are ordered by.
fn install_units(folder: &Path) {
    for unit in [UNIT, "handoff-check.service", "handoff-check.timer"] {
        std::fs::copy(top().join("systemd").join(unit), folder.join(unit)).expect("it is shipped");
    }
    for unit in OF_SYSTEMD {
        let target = Path::new("/usr/lib/systemd/system").join(unit);
        std::os::unix::fs::symlink(target, folder.join(unit)).expect("the folder is ours");
    }
    for target in ["basic", "multi-user", "sysinit", "timers"] {
        let wants = if target == "multi-user" { "systemd-journald.service" } else { "" };
        let text =
            format!("[Unit]\nDescription={target}, as far as a test needs it\nWants={wants}\n");
        std::fs::write(folder.join(format!("{target}.target")), text).expect("the folder is ours");
    }
}

/// Whether a machine can be had; if not, what is lacking.
fn possible() -> Result<(), String> {
    if !Path::new(SYSTEMD).is_file() {
        return Err(format!("no {SYSTEMD} here: install systemd"));
    }
    let spaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "true"];
    let made = Command::new("unshare").args(spaces).output();
    match made {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("a machine of its own needs root: {why}"))
        }
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// Sends a signal to a process outside.
#[track_caller]
pub(crate) fn tell(process: Pid, signal: Signal) {
    kill(process, signal).expect("the process can be told");
}
