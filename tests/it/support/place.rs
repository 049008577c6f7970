//! Where a store keeps its rows: opened as often as a rule likes, looked at and
//! tampered with behind the store's back. One implementation for each store.

use async_trait::async_trait;
use handoff::rusqlite::Connection;
pub(crate) use handoff::rusqlite::types::Value;
use handoff::store::sqlite::{Access, Sqlite};
use handoff::store::{Settings, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One row as the database shows it.
pub(crate) type Row = Vec<Value>;

/// A kind of database that a store can be opened on.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// The URL of a database in this folder.
    fn url(&self, folder: &Path) -> String;

    /// A handle of its own, as another process would have.
    async fn open(&self, settings: &Settings, instance: &str) -> Arc<dyn Store>;

    /// The rows of a query.
    fn rows(&self, folder: &Path, sql: &str) -> Vec<Row>;

    /// Runs statements; the error is the database's own text.
    fn run(&self, folder: &Path, sql: &str) -> Result<(), String>;
}

/// A file of SQLite, in which the application has a table of its own.
pub(crate) struct SqliteFile;

/// Its name within the folder.
pub(crate) const DATABASE: &str = "app.db";

#[async_trait]
impl Place for SqliteFile {
    fn url(&self, folder: &Path) -> String {
        format!("sqlite:{}", folder.join(DATABASE).display())
    }

    async fn open(&self, settings: &Settings, instance: &str) -> Arc<dyn Store> {
        Arc::new(Sqlite::open(settings, Access::Create, instance).await.unwrap())
    }

    fn rows(&self, folder: &Path, sql: &str) -> Vec<Row> {
        rows(&connect(&folder.join(DATABASE)), sql)
    }

    fn run(&self, folder: &Path, sql: &str) -> Result<(), String> {
        connect(&folder.join(DATABASE)).execute_batch(sql).map_err(|error| error.to_string())
    }
}

/// A connection such as an application has.
pub(crate) fn connect(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db
}

/// The rows of a query.
pub(crate) fn rows(db: &Connection, sql: &str) -> Vec<Row> {
    let mut query = db.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = query.column_count();
    let row = |row: &handoff::rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    query.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// A text as the database shows it.
pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}
