//! A database made by the library, and an application in Python that writes to it.

use handoff::rusqlite::Connection;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The key of most tests.
pub(crate) const KEY: &str = "harbor:create-followup:v1:case-104";
/// The payload of most tests.
pub(crate) const PAYLOAD: &str = r#"{"case_id":"case-104","title":"Call the customer"}"#;

/// Every way to say what is to happen if a row is there already: the verb, and
/// what follows the values.
pub(crate) const CLAUSES: [(&str, &str); 12] = [
    ("INSERT", ""),
    ("INSERT OR ABORT", ""),
    ("INSERT OR IGNORE", ""),
    ("INSERT OR REPLACE", ""),
    ("INSERT OR FAIL", ""),
    ("INSERT OR ROLLBACK", ""),
    ("REPLACE", ""),
    ("INSERT", "ON CONFLICT DO NOTHING"),
    ("INSERT", "ON CONFLICT (operation_key) DO NOTHING"),
    ("INSERT", "ON CONFLICT DO UPDATE SET receiver = 'other', payload = '{}'"),
    (
        "INSERT",
        "ON CONFLICT (operation_key) DO UPDATE SET payload = excluded.payload, \
         approved_by = excluded.approved_by",
    ),
    ("INSERT OR IGNORE", "ON CONFLICT (operation_key) DO UPDATE SET payload = NULL"),
];

const COLUMNS: &str = "(operation_key, receiver, payload, approved_by, deliver_after, traceparent, ordering_key, \
      depends_on)";

/// The one statement that records, under a conflict clause.
pub(crate) fn insert(clause: (&str, &str)) -> String {
    let (verb, tail) = clause;
    format!("{verb} INTO handoff_approvals {COLUMNS} VALUES (?, ?, ?, ?, ?, ?, ?, ?) {tail}")
}

/// The same for two rows.
pub(crate) fn insert_two(clause: (&str, &str)) -> String {
    let (verb, tail) = clause;
    let row = "(?, ?, ?, ?, ?, ?, ?, ?)";
    format!("{verb} INTO handoff_approvals {COLUMNS} VALUES {row}, {row} {tail}")
}

/// What is bound to [`insert`].
#[derive(Clone)]
pub(crate) struct Row(Vec<Value>);

impl Row {
    /// A row that is in order.
    pub(crate) fn good() -> Self {
        let none = Value::Null;
        let text = |text: &str| Value::from(text);
        let (key, payload) = (text(KEY), text(PAYLOAD));
        Self(vec![
            key,
            text("crm"),
            payload,
            text("ann"),
            none.clone(),
            none.clone(),
            none.clone(),
            none,
        ])
    }

    fn with(mut self, column: usize, value: impl Into<Value>) -> Self {
        self.0[column] = value.into();
        self
    }

    pub(crate) fn key(self, value: impl Into<Value>) -> Self {
        self.with(0, value)
    }

    pub(crate) fn receiver(self, value: impl Into<Value>) -> Self {
        self.with(1, value)
    }

    pub(crate) fn payload(self, value: impl Into<Value>) -> Self {
        self.with(2, value)
    }

    pub(crate) fn approved_by(self, value: impl Into<Value>) -> Self {
        self.with(3, value)
    }

    pub(crate) fn deliver_after(self, value: impl Into<Value>) -> Self {
        self.with(4, value)
    }

    pub(crate) fn traceparent(self, value: impl Into<Value>) -> Self {
        self.with(5, value)
    }

    pub(crate) fn ordering_key(self, value: impl Into<Value>) -> Self {
        self.with(6, value)
    }

    pub(crate) fn depends_on(self, value: impl Into<Value>) -> Self {
        self.with(7, value)
    }

    /// Two rows for [`insert_two`].
    pub(crate) fn and(self, other: Self) -> Self {
        Self([self.0, other.0].concat())
    }
}

/// A blob, as the Python client is told of it.
pub(crate) fn blob(bytes: &[u8]) -> Value {
    json!({ "blob": hex::encode(bytes) })
}

/// A database with our tables and those of an application.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// In WAL, as a daemon leaves it.
    pub(crate) fn new() -> Self {
        Self::prepared("PRAGMA journal_mode = WAL;")
    }

    /// After a script of the test's own on the empty file.
    pub(crate) fn prepared(first: &str) -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        let mut db = world.open();
        db.execute_batch(first).unwrap();
        handoff::schema::migrate(&mut db, handoff::clock::wall()).unwrap();
        handoff::schema::allow_receivers(&db, &["crm", "other"]).unwrap();
        db.execute_batch("CREATE TABLE cases (id TEXT PRIMARY KEY, follow_up TEXT)").unwrap();
        world
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    /// A connection of the test's own.
    pub(crate) fn open(&self) -> Connection {
        let db = Connection::open(self.path()).unwrap();
        db.execute_batch("PRAGMA synchronous = OFF").unwrap();
        db
    }

    /// An application in Python.
    pub(crate) fn python(&self) -> Python {
        Python::start(&self.path())
    }

    /// The number of approvals and of operations.
    pub(crate) fn counts(&self) -> (i64, i64) {
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            self.open().query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        (count("handoff_approvals"), count("handoff_outbox"))
    }

    /// All that our tables hold, to see that nothing has changed.
    pub(crate) fn contents(&self) -> Vec<String> {
        contents(&self.open())
    }

    /// Changes something as the daemon would.
    pub(crate) fn daemon(&self, sql: &str) {
        self.open().execute_batch(sql).unwrap();
    }
}

/// All that our tables hold.
pub(crate) fn contents(db: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["approvals", "outbox", "attempts", "audit"] {
        let mut read = db.prepare(&format!("SELECT * FROM handoff_{table} ORDER BY 1, 2")).unwrap();
        let columns = read.column_count();
        let mut rows = read.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<_> = (0..columns).map(|column| row.get_ref(column).unwrap()).collect();
            all.push(format!("{table} {values:?}"));
        }
    }
    all
}

/// The system's own Python, with the system's SQLite, or else the first one found.
pub(crate) fn python3() -> Command {
    let system = Path::new("/usr/bin/python3");
    Command::new(if system.exists() { system } else { Path::new("python3") })
}

/// What a statement gave back.
#[derive(Debug, PartialEq)]
pub(crate) struct Done {
    /// The rows of a query, or of RETURNING.
    pub(crate) rows: Value,
    /// What `changes()` says after an INSERT, UPDATE or DELETE.
    pub(crate) changed: i64,
}

/// A Python process with one connection.
pub(crate) struct Python {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The version of its SQLite.
    pub(crate) version: String,
    /// Whether a transaction was open after the last statement.
    pub(crate) in_transaction: bool,
}

impl Python {
    /// Starts it and waits until it has opened the file.
    pub(crate) fn start(path: &Path) -> Self {
        // Without the folders of packages: it needs the standard library alone.
        let mut child = python3()
            .args(["-I", "-S", "-c", include_str!("client.py")])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need python3 with its sqlite3 module");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut python =
            Self { child, input, output, version: String::new(), in_transaction: false };
        let ready = python.line();
        ready["ready"].as_str().unwrap().clone_into(&mut python.version);
        python
    }

    /// Asks for a statement without waiting for the answer.
    pub(crate) fn ask(&mut self, sql: &str, params: &[Value]) {
        writeln!(self.input, "{}", json!({ "sql": sql, "params": params })).unwrap();
        self.input.flush().unwrap();
    }

    /// Waits for the answer; an error is the text that the application sees.
    pub(crate) fn answer(&mut self) -> Result<Done, String> {
        let answer = self.line();
        self.in_transaction = answer["in_transaction"].as_bool().unwrap();
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(Done {
                rows: answer["rows"].clone(),
                changed: answer["changed"].as_i64().unwrap(),
            }),
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Runs a statement with values.
    pub(crate) fn run(&mut self, sql: &str, params: &[Value]) -> Result<Done, String> {
        self.ask(sql, params);
        self.answer()
    }

    /// Runs a statement that must succeed.
    pub(crate) fn must(&mut self, sql: &str) -> Done {
        self.run(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a statement that must be refused by a trigger of ours.
    pub(crate) fn refused(&mut self, sql: &str, why: &str) {
        match self.run(sql, &[]) {
            Err(error) if error.starts_with("handoff: ") && error.contains(why) => {}
            other => panic!("{sql}: {other:?}, not refused as {why}"),
        }
    }

    /// Records a row under a conflict clause; gives back how many rows changed.
    pub(crate) fn record(&mut self, clause: (&str, &str), row: &Row) -> Result<i64, String> {
        self.run(&insert(clause), &row.0).map(|done| done.changed)
    }

    /// Records two rows in one statement.
    pub(crate) fn record_two(&mut self, clause: (&str, &str), two: &Row) -> Result<i64, String> {
        self.run(&insert_two(clause), &two.0).map(|done| done.changed)
    }

    /// Asks for a recording without waiting for the answer.
    pub(crate) fn ask_to_record(&mut self, row: &Row) {
        self.ask(&insert(CLAUSES[0]), &row.0);
    }

    /// Ends it as a power cut would: SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // Already gone, or ended here; a test has nothing more to do with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
