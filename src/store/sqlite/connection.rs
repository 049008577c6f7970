//! Opening a database: what is checked first, and how every connection is set.

use super::place::{folder_of, path_of, refuse_remote};
use crate::schema;
use crate::store::{Settings, StoreError};
use backon::{BlockingRetryable, ExponentialBuilder};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What may be made if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file, its tables, and the folder of the default place.
    Create,
    /// Nothing: what is missing is an error.
    Existing,
}

/// A WAL beyond this size is large: SQLite cuts it back to it once a checkpoint
/// was complete, and the upkeep looks after one that stays so.
pub(super) const LOG_BYTES: u64 = 64 * 1024 * 1024;

/// The path of the configured database, after it has been checked and, where
/// that is allowed, made.
pub(super) fn prepare(settings: &Settings, access: Access) -> Result<PathBuf, StoreError> {
    let Some(path) = path_of(&settings.url) else {
        return Err(unusable(
            Path::new(&settings.url),
            "only sqlite:PATH is known to this version",
        ));
    };
    let folder = folder_of(&path);
    if !folder.is_dir() {
        if settings.explicit || access == Access::Existing {
            let problem = format!(
                "there is no folder {}; make it, or set store.url to another place",
                folder.display()
            );
            return Err(unavailable(&path, &problem));
        }
        std::fs::create_dir_all(folder).map_err(|error| {
            unavailable(&path, &format!("cannot make the folder {}: {error}", folder.display()))
        })?;
    }
    refuse_remote(&path)?;
    refuse_remains(&path)?;
    if !path.exists() {
        if access == Access::Existing {
            return Err(unavailable(&path, "there is no such file; \"handoff migrate\" makes it"));
        }
        make_file(&path)?;
    }
    Ok(path)
}

/// Refuses what is no file, and a log without its database: SQLite would throw
/// the log away, and with it what was committed to it.
fn refuse_remains(path: &Path) -> Result<(), StoreError> {
    let found = std::fs::metadata(path).ok();
    if found.as_ref().is_some_and(std::fs::Metadata::is_dir) {
        return Err(unusable(path, "it is a folder"));
    }
    let wal = wal_of(path);
    let has_log = std::fs::metadata(&wal).is_ok_and(|log| log.len() > 0);
    if has_log && found.is_none_or(|file| file.len() == 0) {
        let log = wal.display();
        let problem = format!(
            "it is missing or empty, and its log {log} is not; restore a backup, or move the log \
             away if nothing in it matters"
        );
        return Err(unusable(path, &problem));
    }
    Ok(())
}

/// The write-ahead log, beside the database whatever link led to it.
pub(super) fn wal_of(path: &Path) -> PathBuf {
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push("-wal");
    PathBuf::from(name)
}

/// Makes the empty file, so that its group may write as far as the umask allows:
/// SQLite would leave the group out, and gives its other files the mode of this one.
fn make_file(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o660).open(path) {
        Ok(_) => Ok(()),
        // Somebody else made it meanwhile.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(unavailable(path, &format!("cannot make the file: {error}"))),
    }
}

/// Opens for writing and brings the tables up to date where that is allowed.
pub(super) fn open_writer(
    path: &Path,
    busy_timeout: Duration,
    access: Access,
) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if access == Access::Create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let mut db = Connection::open_with_flags(path, flags).map_err(|e| at(path, e))?;
    if access == Access::Create {
        refuse_read_only(&db, path)?;
    }
    set_up(&db, path, busy_timeout)?;
    match access {
        Access::Create => {
            schema::migrate(&mut db, crate::clock::wall()).map_err(|e| from_schema(path, e))?;
        }
        Access::Existing => check_version(&db, path)?,
    }
    Ok(db)
}

/// Opens the database of a writer anew.
pub(super) fn reopen_writer(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let db = open_writer(path, busy_timeout, Access::Existing)?;
    refuse_read_only(&db, path)?;
    Ok(db)
}

/// SQLite falls back to reading without a word, and never tries again.
fn refuse_read_only(db: &Connection, path: &Path) -> Result<(), StoreError> {
    if db.is_readonly("main").map_err(|error| at(path, error))? {
        return Err(unavailable(path, "it can be read, and not be written"));
    }
    Ok(())
}

/// Opens for reading alone.
pub(super) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(|error| at(path, error))?;
    set_up(&db, path, busy_timeout)?;
    db.pragma_update(None, "query_only", true).map_err(|error| at(path, error))?;
    Ok(db)
}

/// Settings of every connection.
fn set_up(db: &Connection, path: &Path, busy_timeout: Duration) -> Result<(), StoreError> {
    let set = || -> Result<(), rusqlite::Error> {
        db.busy_timeout(busy_timeout)?;
        switch_to_wal(db, busy_timeout)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        db.pragma_update(None, "trusted_schema", false)?;
        db.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(())).or_else(|error| {
            // A build without mmap answers nothing.
            if error == rusqlite::Error::QueryReturnedNoRows { Ok(()) } else { Err(error) }
        })?;
        let limit = i64::try_from(LOG_BYTES).unwrap_or(i64::MAX);
        db.pragma_update_and_check(None, "journal_size_limit", limit, |_| Ok(()))?;
        // The plan of a statement never depends on what is bound to it: else SQLite
        // prepares it anew for other values.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(())
    };
    set().map_err(|error| at(path, error))?;
    match journal_mode(db).map_err(|error| at(path, error))?.as_str() {
        "wal" => Ok(()),
        mode => Err(unusable(path, &format!("it cannot be switched to WAL (it stays in {mode})"))),
    }
}

/// Switches a new file to WAL. Several connections that do so at once are told
/// "busy" without having waited, so the waiting is ours.
fn switch_to_wal(db: &Connection, patience: Duration) -> Result<(), rusqlite::Error> {
    let switch = || {
        if journal_mode(db)? == "wal" {
            return Ok(());
        }
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
    };
    let pauses = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(1))
        .with_max_delay(Duration::from_millis(50))
        .with_total_delay(Some(patience))
        .without_max_times();
    switch.retry(pauses).when(is_busy).call()
}

fn journal_mode(db: &Connection) -> Result<String, rusqlite::Error> {
    db.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

/// Whether another connection was in the way.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn check_version(db: &Connection, path: &Path) -> Result<(), StoreError> {
    match schema::version(db).map_err(|error| at(path, error))? {
        Some(version) if version == schema::VERSION => Ok(()),
        Some(found) if found > schema::VERSION => {
            Err(from_schema(path, schema::SchemaError::Newer { found }))
        }
        Some(_) => Err(unusable(path, "its handoff tables are old; run \"handoff migrate\"")),
        None => Err(unusable(path, "it has no handoff tables; run \"handoff migrate\"")),
    }
}

fn from_schema(path: &Path, error: schema::SchemaError) -> StoreError {
    match error {
        schema::SchemaError::Database(error) => at(path, error),
        newer @ (schema::SchemaError::Newer { .. } | schema::SchemaError::Name(_)) => {
            unusable(path, &newer.to_string())
        }
    }
}

/// An error of the database at this place, sorted by what can be done about it.
pub(super) fn at(path: &Path, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => unusable(path, "it is not an SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => unusable(
            path,
            &format!("it is damaged ({error}); stop, keep a copy, and restore a backup"),
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            unavailable(path, &format!("{error}; check that its folder exists and may be written"))
        }
        Some(ErrorCode::SystemIoFailure) => unavailable(
            path,
            &format!("{error}; look at its disk (full, failing, read-only?) and the system's log"),
        ),
        _ => sort(error),
    }
}

/// An error of an open database.
pub(super) fn sort(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        _ if is_busy(&error) => StoreError::Busy(error),
        Some(ErrorCode::DiskFull) => StoreError::Full(error),
        _ => StoreError::Database(error),
    }
}

/// The file cannot be looked at.
pub(super) fn lost(path: &Path, error: &std::io::Error) -> StoreError {
    unavailable(path, &error.to_string())
}

/// Another file stands in its place: what is written now, nobody would read.
pub(super) fn replaced(path: &Path) -> StoreError {
    unusable(path, "its file was removed or replaced while it was open; look at what is there now")
}

fn unavailable(path: &Path, problem: &str) -> StoreError {
    StoreError::Unavailable { place: path.display().to_string(), problem: problem.to_owned() }
}

fn unusable(path: &Path, problem: &str) -> StoreError {
    StoreError::Unusable { place: path.display().to_string(), problem: problem.to_owned() }
}
