//! A folder with a configuration, the outbox's database and the CRM's, and the
//! program that works there.

use super::place::{DATABASE, Place, Row, SqliteFile, Value, connect, rows};
use handoff::config::{self, Request, Settings};
use handoff::{Operation, OperationKey, Payload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The title of every follow-up for which the title does not matter.
pub(crate) const TITLE: &str = "Call about the approved repair plan";

/// A folder of its own, gone with the value.
pub(crate) struct Site {
    folder: TempDir,
    place: &'static dyn Place,
}

/// Everything that is stored, at us and at the CRM, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) approvals: Vec<Row>,
    pub(crate) outbox: Vec<Row>,
    pub(crate) attempts: Vec<Row>,
    pub(crate) audit: Vec<Row>,
    pub(crate) tasks: Vec<Row>,
    pub(crate) effects: Vec<Row>,
}

/// The key of the follow-up for a case.
pub(crate) fn key(case: &str) -> String {
    format!("harbor:create-followup:v1:{case}")
}

/// The payload of the follow-up for a case.
pub(crate) fn payload(case: &str, title: &str) -> String {
    serde_json::json!({ "case_id": case, "title": title }).to_string()
}

/// The configuration of a simulated CRM. `contract` and `retry` are the insides
/// of their tables, `faults` the lines of the plan.
pub(crate) fn crm(contract: &str, faults: &str, retry: &str) -> String {
    format!(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"FOLDER/crm.db\"\n\
         faults = [{faults}]\ncircuit_breaker = {{ failures = 0 }}\n\
         contract = {{ {contract} }}\nretry = {{ {retry} }}\n"
    )
}

/// The configuration of a receiver `crm` that is the shell script `deliver.sh` in
/// the folder. `more` holds further keys, a line each.
pub(crate) fn command(contract: &str, more: &str) -> String {
    format!(
        "[receivers.crm]\nkind = \"command\"\nprogram = [\"/bin/sh\", \"FOLDER/deliver.sh\"]\n\
         circuit_breaker = {{ failures = 0 }}\n\
         contract = {{ {contract} }}\n{more}\n"
    )
}

impl Site {
    /// A folder with this configuration, in which `FOLDER` stands for its path.
    pub(crate) fn new(config: &str) -> Self {
        Self::on(&SqliteFile, config)
    }

    /// As [`Site::new`], on another kind of database.
    pub(crate) fn on(place: &'static dyn Place, config: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), place };
        site.configure(config);
        site
    }

    /// Puts another configuration in place of the one there.
    pub(crate) fn configure(&self, config: &str) {
        let url = self.place.url(self.folder());
        let config = config.replace("FOLDER", &self.folder().display().to_string());
        let text = format!("[store]\nurl = \"{url}\"\n{config}");
        fs::write(self.path("handoff.toml"), text).unwrap();
    }

    /// Writes a file in the folder; `FOLDER` stands for the folder's path.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let text = text.replace("FOLDER", &self.folder().display().to_string());
        fs::write(self.path(name), text).unwrap();
    }

    /// Reads a file in the folder.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of a name in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path(DATABASE)
    }

    pub(crate) fn place(&self) -> &'static dyn Place {
        self.place
    }

    /// The settings that the configuration gives.
    pub(crate) fn settings(&self) -> Settings {
        let file = Some(self.path("handoff.toml"));
        let loaded = config::load(&Request { file, ..Request::default() });
        loaded.unwrap_or_else(|error| panic!("{error}")).settings
    }

    /// The program with this configuration and these arguments, and an empty environment.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoff"));
        command.args(arguments).arg("--config").arg(self.path("handoff.toml"));
        command.env_clear().current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.program(arguments).output().unwrap()
    }

    /// Runs the program, which must succeed; returns what it printed.
    pub(crate) fn must(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Records a follow-up by the command line.
    pub(crate) fn approve(&self, case: &str, title: &str) -> Output {
        let (case, title) = (format!("case_id={case}"), format!("title={title}"));
        self.run(&["approve", "create-followup", "--field", &case, "--field", &title])
    }

    /// Waits for an operation by the command line; returns its row.
    pub(crate) fn wait(&self, key: &str) -> serde_json::Value {
        let output = self.run(&["wait", key, "--timeout", "120s", "--json"]);
        let code = output.status.code();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(code, Some(0 | 3)), "{key}: {code:?} {errors}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The rows of a query to the outbox's database.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Row> {
        self.place.rows(self.folder(), sql)
    }

    /// The single value that a query to the outbox's database gives.
    pub(crate) fn value(&self, sql: &str) -> Value {
        match self.rows(sql).as_slice() {
            [row] if row.len() == 1 => row[0].clone(),
            rows => panic!("{sql}: {rows:?}"),
        }
    }

    /// Tampers with the outbox's database.
    pub(crate) fn tamper(&self, sql: &str) {
        self.place.run(self.folder(), sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Rows of the CRM.
    pub(crate) fn crm(&self, sql: &str) -> Vec<Row> {
        let path = self.path("crm.db");
        if path.exists() { rows(&connect(&path), sql) } else { Vec::new() }
    }

    /// How many tasks the CRM holds.
    pub(crate) fn task_count(&self) -> usize {
        self.crm("SELECT task_id FROM tasks").len()
    }

    /// Puts a task into the CRM that we did not send.
    pub(crate) fn put_task(&self, key: &str, payload: &str) {
        let db = connect(&self.path("crm.db"));
        let insert = "INSERT INTO tasks (operation_key, payload) VALUES (?1, ?2)";
        db.execute(insert, [key, payload]).unwrap();
    }

    /// Changes the CRM behind our back.
    pub(crate) fn change_crm(&self, sql: &str) {
        connect(&self.path("crm.db")).execute_batch(sql).unwrap();
    }

    /// Everything that is stored.
    pub(crate) fn stored(&self) -> Stored {
        Stored {
            approvals: self.rows("SELECT * FROM handoff_approvals ORDER BY operation_key"),
            outbox: self.rows("SELECT * FROM handoff_outbox ORDER BY id"),
            attempts: self.rows("SELECT * FROM handoff_attempts ORDER BY operation_key, number"),
            audit: self.rows("SELECT * FROM handoff_audit ORDER BY id"),
            tasks: self.crm("SELECT * FROM tasks ORDER BY task_id"),
            effects: self.crm("SELECT * FROM effects ORDER BY effect_id"),
        }
    }

    /// Public columns of the only operation: state, reason, effect, attempts, receipt.
    pub(crate) fn standing(&self) -> (String, Option<String>, String, i64, Option<String>) {
        let sql = "SELECT state, blocked_reason, effect, attempts, remote_id FROM handoff_outbox";
        let rows = self.rows(sql);
        let [row] = rows.as_slice() else { panic!("not one operation: {rows:?}") };
        let word = |at: usize| match &row[at] {
            Value::Text(text) => Some(text.clone()),
            Value::Null => None,
            other => panic!("{other:?}"),
        };
        let Value::Integer(attempts) = row[3] else { panic!("{row:?}") };
        (word(0).unwrap(), word(1), word(2).unwrap(), attempts, word(4))
    }
}

/// A follow-up to be recorded.
pub(crate) fn follow_up(case: &str, title: &str) -> Operation {
    let key: OperationKey = key(case).parse().unwrap();
    Operation::new(key, "crm", Payload::parse(&payload(case, title)).unwrap(), "ann").unwrap()
}
