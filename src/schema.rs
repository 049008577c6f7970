//! The tables: the SQL of each version, and how a file gets them.
//!
//! They may live in the application's own database: all their names begin with
//! `handoff_`, their version is kept in `handoff_schema`, and nothing else of
//! the file is touched, neither `user_version` nor anybody's tables.

use crate::clock::Timestamp;
use crate::outbox::key::is_name;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// The version that this program reads and writes.
pub const VERSION: u32 = 1;

/// The SQL that leads to each version, from 1. A landed file is never edited.
const STEPS: [&str; VERSION as usize] = [include_str!("store/sql/sqlite/0001_outbox.sql")];

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A later program has migrated it.
    #[error(
        "its handoff tables have version {found}, this program knows {VERSION}; \
         use the program that migrated it"
    )]
    Newer {
        /// The version found.
        found: u32,
    },
    /// A receiver's name breaks the grammar of names.
    #[error("receiver {0:?} must match [a-z][a-z0-9-]{{0,39}}")]
    Name(String),
    /// The database said no.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; `None` if there were no tables.
    pub from: Option<u32>,
    /// The version now.
    pub to: u32,
}

/// The version of the tables; `None` if there are none.
///
/// # Errors
///
/// Whatever the database says, for instance that the file is none.
pub fn version(db: &Connection) -> Result<Option<u32>, rusqlite::Error> {
    let exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'handoff_schema'";
    if db.query_row(exists, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    db.query_row("SELECT max(version) FROM handoff_schema", [], |row| row.get(0))
}

/// Brings the tables to the version of this program, in one transaction.
///
/// Does nothing if they are there. Two programs may call it at once.
///
/// # Errors
///
/// [`SchemaError::Newer`] if a later program has migrated the file; nothing is
/// changed then.
///
/// # Example
///
/// ```
/// let mut db = handoff::rusqlite::Connection::open_in_memory()?;
/// handoff::schema::migrate(&mut db, handoff::clock::wall())?;
/// handoff::schema::allow_receivers(&db, &["crm"])?;
/// # Ok::<(), handoff::schema::SchemaError>(())
/// ```
pub fn migrate(db: &mut Connection, now: Timestamp) -> Result<Migrated, SchemaError> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = version(&tx)?;
    if let Some(found) = from
        && found > VERSION
    {
        return Err(SchemaError::Newer { found });
    }
    for (step, number) in STEPS.iter().zip(1_u32..).skip(from.unwrap_or(0) as usize) {
        tx.execute_batch(step)?;
        tx.execute(
            "INSERT INTO handoff_schema (version, applied_at, program) VALUES (?1, ?2, ?3)",
            params![number, now.as_millis(), program()],
        )?;
    }
    tx.commit()?;
    Ok(Migrated { from, to: VERSION })
}

/// The SQL of [`migrate`], for people who apply it themselves.
pub fn script(now: Timestamp) -> String {
    let mut script = String::from("BEGIN IMMEDIATE;\n");
    for (step, number) in STEPS.iter().zip(1_u32..) {
        script.push_str(step);
        script.push_str(&format!(
            "\nINSERT INTO handoff_schema (version, applied_at, program)\n\
             VALUES ({number}, {}, '{}');\n",
            now.as_millis(),
            program()
        ));
    }
    script.push_str("COMMIT;\n");
    script
}

/// Makes receivers known to the recording triggers, beside those known already.
///
/// The daemon and `handoff migrate` do so from the configuration; this is for
/// an application that makes the tables itself.
///
/// # Errors
///
/// [`SchemaError::Name`] for what is no name.
pub fn allow_receivers(db: &Connection, names: &[&str]) -> Result<(), SchemaError> {
    for name in names {
        if !is_name(name) {
            return Err(SchemaError::Name((*name).to_owned()));
        }
        db.execute("INSERT OR IGNORE INTO handoff_receivers (name) VALUES (?1)", [name])?;
    }
    Ok(())
}

fn program() -> String {
    format!("handoff {}", env!("CARGO_PKG_VERSION"))
}
