//! A folder with a database, the program run in it, and waiting for what it does.

use crate::daemon::Daemon;
use handoff::rusqlite::{self, Connection, Params, params};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// After so many looks what is waited for does not come. A bound, not a promise.
const LOOKS: u32 = 3_000;

/// Looks until there is something to see. The one place where a test waits.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(look, || what.to_owned())
}

/// The same, with more to say when it does not come.
#[track_caller]
pub(crate) fn until_or<T>(mut look: impl FnMut() -> Option<T>, what: impl Fn() -> String) -> T {
    for _ in 0..LOOKS {
        if let Some(seen) = look() {
            return seen;
        }
        pause(LOOK);
    }
    panic!("waited in vain for {}", what());
}

/// Lets a stretch of time pass that is random or means nothing.
pub(crate) fn pause(time: Duration) {
    // Nobody unparks a test's thread; an early wake only looks early.
    std::thread::park_timeout(time);
}

/// The part of a configuration that describes the receiver `crm`.
pub(crate) struct Crm<'a> {
    pub(crate) faults: &'a str,
    pub(crate) contract: &'a str,
    pub(crate) retry: &'a str,
    pub(crate) timeout: &'a str,
}

impl Default for Crm<'_> {
    fn default() -> Self {
        Self {
            faults: "[]",
            contract: "mode = \"idempotency_key\"\nwindow = \"forever\"",
            retry: "initial = \"20ms\"\nmax_interval = \"100ms\"",
            timeout: "30s",
        }
    }
}

impl Crm<'_> {
    fn toml(&self) -> String {
        let Self { faults, contract, retry, timeout } = self;
        format!(
            "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\ntimeout = \"{timeout}\"\n\
             faults = {faults}\ncircuit_breaker = {{ failures = 0 }}\n\
             [receivers.crm.contract]\n{contract}\n\
             [receivers.crm.retry]\n{retry}\n"
        )
    }
}

/// A folder with a configuration; what runs in it goes with it.
pub(crate) struct World {
    folder: TempDir,
}

impl World {
    /// With a CRM that behaves.
    pub(crate) fn new() -> Self {
        Self::with(&Crm::default())
    }

    /// With this CRM, in a file that is delivered from `app.db`.
    pub(crate) fn with(crm: &Crm<'_>) -> Self {
        Self::configured(&crm.toml())
    }

    /// With these receivers and operations.
    pub(crate) fn configured(receivers: &str) -> Self {
        let world = Self::bare();
        world.configure(receivers);
        world
    }

    /// An empty folder: the defaults hold.
    pub(crate) fn bare() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder for the test") }
    }

    /// Writes another configuration.
    pub(crate) fn configure(&self, receivers: &str) {
        let text = format!(
            "[store]\nurl = \"sqlite:app.db\"\nbusy_timeout = \"20s\"\n\
             [worker]\npoll_interval = \"100ms\"\n[log]\nformat = \"json\"\n{receivers}"
        );
        self.write("handoff.toml", &text);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).expect("a file of the test");
    }

    /// The program in this folder, with nothing of the tester's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
        command.current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if self.path("handoff.toml").exists() {
            command.args(["--config", "handoff.toml"]);
        }
        command.args(arguments);
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.run_with(arguments, b"")
    }

    /// Runs a command that reads this to its end.
    #[track_caller]
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A program that has seen enough closes the pipe.
        drop(stdin.write_all(input));
        drop(stdin);
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            let mut pipe = pipe.expect("a pipe");
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).expect("a pipe");
                bytes
            })
        };
        let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
        let mut running = Running(child);
        let status = until(&format!("the end of {arguments:?}"), || {
            running.0.try_wait().expect("it is our child")
        });
        let [stdout, stderr] = [stdout, stderr].map(|read| read.join().expect("it was read"));
        Done::from(Output { status, stdout, stderr })
    }

    /// Starts the daemon.
    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_with(&[])
    }

    /// Starts the daemon with more arguments.
    pub(crate) fn daemon_with(&self, arguments: &[&str]) -> Daemon {
        Daemon::start(self.command(&["run"]).args(arguments))
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) fn serving(&self) -> Daemon {
        let daemon = self.daemon();
        daemon.event("started");
        daemon
    }

    /// Opens a database of this folder as an application would.
    pub(crate) fn open(&self, name: &str) -> Connection {
        let db = Connection::open(self.path(name)).expect("the database opens");
        db.busy_timeout(Duration::from_secs(60)).expect("a busy timeout");
        db
    }

    /// Makes the tables.
    pub(crate) fn migrated(self) -> Self {
        self.run(&["migrate"]).ok();
        self
    }

    /// Records a follow-up as an application would, by plain SQL.
    pub(crate) fn record(&self, case: &str) -> String {
        record(&self.open("app.db"), case)
    }

    /// The value of a query on `app.db`.
    pub(crate) fn value<T: rusqlite::types::FromSql>(&self, sql: &str, with: impl Params) -> T {
        let value = self.open("app.db").query_row(sql, with, |row| row.get(0));
        value.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The number of tasks under a key at the CRM.
    pub(crate) fn tasks(&self, key: &str) -> i64 {
        let sql = "SELECT count(*) FROM tasks WHERE operation_key = ?1";
        self.open("crm.db").query_row(sql, [key], |row| row.get(0)).expect("the CRM has tasks")
    }

    /// Every row of every table, to compare before and after.
    pub(crate) fn contents(&self) -> Vec<String> {
        let db = self.open("app.db");
        let rows = |sql: &str| -> Vec<String> {
            let mut read = db.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            let columns = read.column_count();
            let row = |row: &rusqlite::Row<'_>| {
                let cells = (0..columns).map(|n| row.get::<_, rusqlite::types::Value>(n));
                Ok(format!("{:?}", cells.collect::<Result<Vec<_>, _>>()?))
            };
            let rows = read.query_map([], row).and_then(Iterator::collect);
            rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
        };
        let tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let mut tables = db.prepare(tables).expect("a schema");
        let names = tables.query_map([], |row| row.get::<_, String>(0)).expect("tables");
        let names = names.map(|name| name.expect("a name"));
        // Where the clock stood is kept with every commit, whatever it was for.
        let names = names.filter(|name| name != "handoff_meta");
        names.flat_map(|name| rows(&format!("SELECT '{name}', * FROM \"{name}\""))).collect()
    }

    /// Where an operation stands.
    pub(crate) fn state(&self, key: &str) -> String {
        self.value("SELECT state FROM handoff_outbox WHERE operation_key = ?1", [key])
    }

    /// Waits until an operation stands there.
    #[track_caller]
    pub(crate) fn until_state(&self, key: &str, state: &str) {
        until(&format!("{key} to be {state}"), || (self.state(key) == state).then_some(()));
    }

    /// Waits until so many attempts of an operation have begun.
    #[track_caller]
    pub(crate) fn until_attempts(&self, key: &str, number: i64) {
        let sql = "SELECT count(*) FROM handoff_attempts WHERE operation_key = ?1";
        let begun = || (self.value::<i64>(sql, [key]) >= number).then_some(());
        until(&format!("attempt {number} of {key}"), begun);
    }
}

/// Records a follow-up by plain SQL, and returns its key.
pub(crate) fn record(db: &Connection, case: &str) -> String {
    let key = format!("harbor:create-followup:v1:{case}");
    let payload = format!(r#"{{"case_id":"{case}","title":"Call about {case}"}}"#);
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES (?1, 'crm', ?2, 'ann')";
    db.execute(sql, params![key, payload]).expect("it is recorded");
    key
}

/// A child that does not outlive the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Done {
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::from(command.output().expect("the program starts"))
    }

    /// It must have done what was asked.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    /// It must have ended so.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It must have said this to the person.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "no {text:?} in {self:#?}");
        self
    }

    /// The result, which must be JSON and nothing else.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Whether a program is installed. Its absence fails a run in CI.
pub(crate) fn present(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(OsStr::new(program)).is_file())
    });
    assert!(found || std::env::var_os("CI").is_none(), "{program} is missing");
    found
}
