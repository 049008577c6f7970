//! The CRM itself: a SQLite file, and what it does when a key comes again.
//!
//! Checking a key and acting on it is one immediate transaction, so that of two
//! requests at once, also of two processes, the second sees what the first did.
//! A commit is synced before it is acknowledged.

use crate::clock;
use crate::outbox::contract::Mode;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};

/// How long a request waits for another process that is writing to the file.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The index is not unique, since a CRM must be able to lie about its keys.
const SCHEMA: &str = "
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS tasks (
        task_id INTEGER PRIMARY KEY,
        operation_key TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_at INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS tasks_by_operation_key ON tasks (operation_key);
    CREATE TABLE IF NOT EXISTS effects (
        effect_id INTEGER PRIMARY KEY,
        operation_key TEXT NOT NULL,
        task_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        at INTEGER NOT NULL
    );
    COMMIT;";

/// What the CRM does when a key comes that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// It does not look at keys: another task.
    MakesAnother,
    /// The same task, or a conflict if the content differs.
    ReturnsFirst,
    /// "Exists", whatever the content.
    IsRefused,
    /// The task's content is replaced.
    Overwrites,
}

impl Replay {
    /// What a CRM of this mode does; without unique keys it knows none again.
    pub(super) const fn of(mode: Mode, unique: Option<bool>) -> Self {
        match (unique, mode) {
            (Some(false), _) | (_, Mode::None | Mode::LookUp) => Self::MakesAnother,
            (_, Mode::IdempotencyKey) => Self::ReturnsFirst,
            (_, Mode::CreateOnly) => Self::IsRefused,
            (_, Mode::Upsert) => Self::Overwrites,
        }
    }
}

/// One request to the CRM.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The operation's key.
    pub(super) key: String,
    /// What the task shall hold.
    pub(super) payload: String,
    /// Which attempt it is; only the log of effects keeps it.
    pub(super) attempt: u32,
}

/// What the CRM answers. The number is the task's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It made a task, or overwrote it.
    Done(i64),
    /// It had done so earlier, and did nothing now.
    Replayed(i64),
    /// It has a task under this key, and did nothing now.
    Exists(i64),
    /// It has other content under this key, and did nothing now.
    Conflict,
}

/// What the CRM holds under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// No task.
    Nothing,
    /// One, and whether its content is the same, byte by byte.
    One(i64, bool),
    /// Several.
    Several(i64),
}

/// The CRM's own database failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Before anything was written.
    Unavailable(String),
    /// At the write or after it.
    InDoubt(String),
}

impl Failure {
    fn unavailable(error: rusqlite::Error) -> Self {
        Self::Unavailable(error.to_string())
    }

    fn in_doubt(error: rusqlite::Error) -> Self {
        Self::InDoubt(error.to_string())
    }
}

/// The CRM cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder cannot be made.
    #[error("the folder of {path} cannot be made: {source}")]
    Folder {
        /// The CRM's file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Its file cannot be opened, or is not a CRM's.
    #[error("{path} cannot be opened as the simulated CRM's database: {source}")]
    Database {
        /// The CRM's file.
        path: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
}

/// The CRM: one connection, used by one request after another.
#[derive(Clone, Debug)]
pub(super) struct Crm {
    file: File,
    replay: Replay,
    /// Absent where it could not be opened yet, or failed. A request that is
    /// given up while it waits here is gone, since it waits in its own future.
    connection: Arc<Mutex<Option<Connection>>>,
}

#[derive(Clone, Debug)]
struct File {
    path: Arc<Path>,
    patience: Duration,
}

impl Crm {
    /// Opens the file, and makes it and its folder if they are missing.
    ///
    /// A file that another process keeps locked is no reason not to start: that
    /// is a receiver that is down for now, and requests will say so.
    pub(super) fn open(path: &Path, replay: Replay, patience: Duration) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { path: path.to_owned(), source };
        // An absolute path is never one of SQLite's special names, such as `:memory:`.
        let absolute = std::path::absolute(path).map_err(folder)?;
        std::fs::create_dir_all(absolute.parent().unwrap_or(&absolute)).map_err(folder)?;
        let file = File { path: absolute.into(), patience };
        let connection = match file.connect() {
            Ok(connection) => Some(connection),
            Err(error) if is_busy(&error) => None,
            Err(source) => return Err(OpenError::Database { path: path.to_owned(), source }),
        };
        Ok(Self { file, replay, connection: Arc::new(Mutex::new(connection)) })
    }

    /// Says what it holds under a request's key; changes nothing.
    pub(super) async fn look_up(&self, request: Request) -> Result<Held, String> {
        let mut connection = Arc::clone(&self.connection).lock_owned().await;
        let file = self.file.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let held = file.held(&mut connection, &request);
            if held.is_err() {
                // What stood in the way may be the connection: the next one gets a new one.
                *connection = None;
            }
            held.map_err(|error| error.to_string())
        });
        looked.await.unwrap_or_else(|_| Err("the CRM stopped in the middle of it".to_owned()))
    }

    /// Takes a request, and answers when what it did is on disk.
    ///
    /// A caller who has gone before the write takes the request with it, so that
    /// the CRM does not act on a call that was given up long ago, unless a fault
    /// orders just that.
    pub(super) async fn accept(&self, request: Request) -> Result<Reply, Failure> {
        let mut connection = Arc::clone(&self.connection).lock_owned().await;
        let (file, replay) = (self.file.clone(), self.replay);
        let (answer, answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let result = file.serve(&mut connection, replay, &request, || answer.is_closed());
            if matches!(result, Err(Failure::Unavailable(_))) {
                // What stood in the way may be the connection: the next one gets a new one.
                *connection = None;
            }
            drop(connection);
            // There is nobody to tell of a caller who has gone.
            answer.send(result).ok();
        });
        let lost = |_| Err(Failure::InDoubt("the CRM stopped in the middle of it".to_owned()));
        answered.await.unwrap_or_else(lost)
    }
}

impl File {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.patience)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())) {
            // SQLite does not wait here if another connection is at the same switch. Either
            // that one makes it, or the file stays as it is, which is slower and as safe.
            Err(error) if is_busy(&error) => {}
            switched => switched?,
        }
        connection.execute_batch(SCHEMA)?;
        Ok(connection)
    }

    fn serve(
        &self,
        connection: &mut Option<Connection>,
        replay: Replay,
        request: &Request,
        given_up: impl Fn() -> bool,
    ) -> Result<Reply, Failure> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.connect().map_err(Failure::unavailable)?),
        };
        let tx = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(Failure::unavailable)?;
        let first = first_under(&tx, request).map_err(Failure::unavailable)?;
        let step = match (replay, first) {
            (Replay::MakesAnother, _) | (_, None) => Step::Create,
            (Replay::ReturnsFirst, Some((task, true))) => Step::Answer(Reply::Replayed(task)),
            (Replay::ReturnsFirst, Some((_, false))) => Step::Answer(Reply::Conflict),
            (Replay::IsRefused, Some((task, _))) => Step::Answer(Reply::Exists(task)),
            (Replay::Overwrites, Some((task, true))) => Step::Answer(Reply::Done(task)),
            (Replay::Overwrites, Some((task, false))) => Step::Overwrite(task),
        };
        if given_up() {
            return Err(Failure::Unavailable("the caller has gone".to_owned()));
        }
        let reply = step.take(&tx, request).map_err(Failure::in_doubt)?;
        tx.commit().map_err(Failure::in_doubt)?;
        Ok(reply)
    }
}

impl File {
    fn held(
        &self,
        connection: &mut Option<Connection>,
        request: &Request,
    ) -> rusqlite::Result<Held> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.connect()?),
        };
        // Compared in SQL, so that content of any type that others have put there does no harm.
        let found: (i64, Option<i64>, Option<bool>) = connection
            .prepare_cached(
                "SELECT count(*), min(task_id), min(payload IS ?2) FROM tasks
                  WHERE operation_key = ?1",
            )?
            .query_row((&request.key, &request.payload), |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        Ok(match found {
            (1, Some(task), Some(same)) => Held::One(task, same),
            (0, _, _) => Held::Nothing,
            (count, _, _) => Held::Several(count),
        })
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// What a request comes to.
enum Step {
    Create,
    Overwrite(i64),
    /// Nothing changes.
    Answer(Reply),
}

impl Step {
    fn take(self, tx: &Transaction<'_>, request: &Request) -> rusqlite::Result<Reply> {
        let task = match self {
            Self::Answer(reply) => return Ok(reply),
            Self::Create => create(tx, request)?,
            Self::Overwrite(task) => {
                tx.prepare_cached("UPDATE tasks SET payload = ?2 WHERE task_id = ?1")?
                    .execute((task, &request.payload))?;
                task
            }
        };
        tx.prepare_cached(
            "INSERT INTO effects (operation_key, task_id, attempt, at) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute((&request.key, task, request.attempt, clock::wall().as_millis()))?;
        Ok(Reply::Done(task))
    }
}

/// The first task under the request's key, and whether its content is the same, byte by byte.
fn first_under(tx: &Transaction<'_>, request: &Request) -> rusqlite::Result<Option<(i64, bool)>> {
    // Compared in SQL, so that content of any type that others have put there does no harm.
    tx.prepare_cached(
        "SELECT task_id, payload IS ?2 FROM tasks
         WHERE operation_key = ?1 ORDER BY task_id LIMIT 1",
    )?
    .query_row((&request.key, &request.payload), |row| Ok((row.get(0)?, row.get(1)?)))
    .optional()
}

fn create(tx: &Transaction<'_>, request: &Request) -> rusqlite::Result<i64> {
    // Another program may have made the table, with no more than the first three columns.
    if tx.column_exists(None, "tasks", "created_at")? {
        tx.prepare_cached(
            "INSERT INTO tasks (operation_key, payload, created_at) VALUES (?1, ?2, ?3)",
        )?
        .execute((&request.key, &request.payload, clock::wall().as_millis()))?;
    } else {
        tx.prepare_cached("INSERT INTO tasks (operation_key, payload) VALUES (?1, ?2)")?
            .execute((&request.key, &request.payload))?;
    }
    Ok(tx.last_insert_rowid())
}

/// A task, as the CRM keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number, which is the receipt.
    pub id: i64,
    /// What it holds.
    pub payload: String,
}

/// How many tasks the CRM in this file holds.
///
/// # Errors
///
/// If the file is missing, or is not a CRM's: that is not the same as no task.
pub fn task_count(path: &Path) -> Result<u64, rusqlite::Error> {
    let count = |row: &rusqlite::Row<'_>| row.get(0).map(i64::cast_unsigned);
    read(path)?.query_row("SELECT count(*) FROM tasks", (), count)
}

/// The tasks under a key in the CRM in this file, the oldest first.
///
/// # Errors
///
/// As [`task_count`].
pub fn tasks_of(path: &Path, key: &str) -> Result<Vec<Task>, rusqlite::Error> {
    let connection = read(path)?;
    let mut tasks = connection
        .prepare("SELECT task_id, payload FROM tasks WHERE operation_key = ?1 ORDER BY task_id")?;
    let task = |row: &rusqlite::Row<'_>| Ok(Task { id: row.get(0)?, payload: row.get(1)? });
    tasks.query_map([key], task)?.collect()
}

fn read(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::types::Value;

    #[test]
    fn a_commit_is_synced_before_it_is_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let file = File { path: folder.path().join("crm.db").into(), patience: PATIENCE };
        let connection = file.connect().unwrap();
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get(0));
        assert_eq!(pragma("synchronous"), Ok(Value::Integer(2)));
        assert_eq!(pragma("journal_mode"), Ok(Value::Text("wal".to_owned())));
    }

    #[test]
    fn a_new_file_can_be_opened_by_many_at_once() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let file = File { path: folder.path().join("crm.db").into(), patience: PATIENCE };
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| file.connect().unwrap());
                }
            });
        }
    }
}
