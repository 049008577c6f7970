//! Recording: what an application calls inside its own transaction.

use crate::outbox::operation::Operation;
use crate::outbox::payload::{Fingerprint, Payload};
use crate::outbox::state::State;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

/// As the trigger says it.
const SETTLED: &str = "handoff: settled (the payload is no longer kept and cannot be compared)";
/// A trigger of the application's can pass over a row without an error.
const NOT_WRITTEN: &str = "handoff: the approval was not written; a trigger of the application's \
                           own on handoff_approvals stands in the way";

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is new, and pending.
    New,
    /// The same operation was recorded before. Nothing has changed.
    Existing {
        /// Where it stands now.
        state: State,
    },
}

/// What stands under a key already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The key.
    pub key: String,
    /// Where the stored operation stands.
    pub state: State,
    /// The stored operation's receiver.
    pub receiver: String,
    /// Its fingerprint; `None` if the payload is no longer kept or unreadable.
    pub stored: Option<Fingerprint>,
    /// The fingerprint of what was to be recorded.
    pub given: Fingerprint,
}

/// Why nothing was recorded. The caller's transaction is still open, unless
/// SQLite itself has ended it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Other content or another receiver stands under this key.
    #[error(
        "{} is recorded with other content or another receiver (state {}, receiver {}); \
         nothing was changed. A different act needs a key of its own", .0.key, .0.state, .0.receiver
    )]
    Conflict(Box<Conflict>),
    /// A trigger refused the row.
    #[error("{0}")]
    Refused(String),
    /// The tables are not in this database.
    #[error("the database has no handoff tables; run \"handoff migrate --url sqlite:FILE\" on it")]
    NoTables(#[source] rusqlite::Error),
    /// Anything else that the database said.
    #[error("the database failed: {0}")]
    Database(#[source] rusqlite::Error),
}

impl RecordError {
    /// Whether other content stands under the key.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

impl From<rusqlite::Error> for RecordError {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(_, Some(message)) => {
                if message.starts_with("handoff: ") {
                    Self::Refused(message.clone())
                } else if is_missing_table(message) {
                    Self::NoTables(error)
                } else {
                    Self::Database(error)
                }
            }
            rusqlite::Error::SqlInputError { msg, .. } if is_missing_table(msg) => {
                Self::NoTables(error)
            }
            _ => Self::Database(error),
        }
    }
}

/// A trigger names the table with its schema.
fn is_missing_table(message: &str) -> bool {
    let name = message.strip_prefix("no such table: ");
    name.is_some_and(|name| name.trim_start_matches("main.").starts_with("handoff_"))
}

/// Records an approved operation inside the caller's transaction.
///
/// It becomes visible to the daemon when, and only when, the caller commits. If
/// the caller rolls back, nothing will be delivered. Recording is idempotent by
/// key: an application that crashed after its commit, or that runs the same
/// request twice, may call this again.
///
/// # Guarantees
///
/// * Approval and outbox row exist together or not at all.
/// * The payload is frozen: every later attempt delivers these bytes.
/// * Nothing is sent from here, and nothing waits for the daemon.
///
/// Whether the payload fits its type is checked by the daemon before the first
/// attempt; an operation that does not is blocked as `invalid`.
///
/// # Errors
///
/// [`RecordError::Conflict`] if other content or another receiver stands under
/// the key; [`RecordError::Refused`] for what a trigger refuses, such as an
/// unknown receiver; the database's own errors. The stored operation stays as
/// it is.
///
/// Begin the transaction with `BEGIN IMMEDIATE`: one that reads first may find
/// the database busy without having waited.
///
/// # Example
///
/// ```
/// use handoff::rusqlite::{Connection, TransactionBehavior};
/// use handoff::{Operation, Payload, Recorded, record};
///
/// let mut db = Connection::open_in_memory()?;
/// # handoff::schema::migrate(&mut db, handoff::clock::wall())?;
/// # handoff::schema::allow_receivers(&db, &["crm"])?;
/// db.execute_batch("CREATE TABLE cases (id TEXT, follow_up TEXT)")?;
///
/// let key = "harbor:create-followup:v1:case-104".parse()?;
/// let payload = Payload::parse(r#"{"case_id":"case-104","title":"Call the customer"}"#)?;
/// let follow_up = Operation::new(key, "crm", payload, "ann")?;
///
/// let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// tx.execute("INSERT INTO cases VALUES ('case-104', 'approved')", [])?;
/// assert_eq!(record(&tx, &follow_up)?, Recorded::New);
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Example: other content under the same key
///
/// ```
/// # use handoff::rusqlite::Connection;
/// # use handoff::{Operation, Payload, Recorded, record};
/// # let mut db = Connection::open_in_memory()?;
/// # handoff::schema::migrate(&mut db, handoff::clock::wall())?;
/// # handoff::schema::allow_receivers(&db, &["crm"])?;
/// # let key: handoff::OperationKey = "harbor:create-followup:v1:case-104".parse()?;
/// let first = Operation::new(key.clone(), "crm", Payload::parse(r#"{"a":1}"#)?, "ann")?;
/// let other = Operation::new(key, "crm", Payload::parse(r#"{"a":2}"#)?, "ann")?;
/// let tx = db.transaction()?;
/// record(&tx, &first)?;
/// assert!(record(&tx, &other).is_err_and(|error| error.is_conflict()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn record(tx: &Transaction<'_>, operation: &Operation) -> Result<Recorded, RecordError> {
    let canonical = |text: &str| Some(Payload::parse(text).ok()?.fingerprint());
    record_if_same(tx, operation, &canonical)
}

/// As [`record`], with the caller's own way to find the fingerprint of a
/// payload that was recorded as plain text.
pub(crate) fn record_if_same(
    db: &Connection,
    operation: &Operation,
    fingerprint_of: &dyn Fn(&str) -> Option<Fingerprint>,
) -> Result<Recorded, RecordError> {
    if let Some(stored) = stored(db, operation.key.as_str())? {
        return compare(operation, stored, fingerprint_of);
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO handoff_approvals
           (operation_key, receiver, payload, approved_by, deliver_after, traceparent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let written = insert.execute(params![
        operation.key.as_str(),
        operation.receiver,
        operation.payload.as_str(),
        operation.approved_by,
        operation.deliver_after.map(crate::clock::Timestamp::as_millis),
        operation.traceparent,
    ])?;
    if written == 1 {
        return Ok(Recorded::New);
    }
    Err(RecordError::Refused(NOT_WRITTEN.to_owned()))
}

struct Stored {
    receiver: String,
    recorded: Kept,
    fingerprint: Option<String>,
    state: State,
}

/// What is left of the payload as it was recorded.
enum Kept {
    Text(String),
    Pruned,
    /// Plain SQL can store text that is no UTF-8.
    Unreadable,
}

fn stored(db: &Connection, key: &str) -> Result<Option<Stored>, rusqlite::Error> {
    db.prepare_cached(
        "SELECT a.receiver, a.payload, o.fingerprint, o.state
           FROM handoff_approvals AS a JOIN handoff_outbox AS o USING (operation_key)
          WHERE a.operation_key = ?1",
    )?
    .query_row([key], |row| {
        let state: String = row.get(3)?;
        Ok(Stored {
            receiver: row.get(0)?,
            recorded: match row.get_ref(1)? {
                ValueRef::Null => Kept::Pruned,
                payload => match payload.as_str() {
                    Ok(text) => Kept::Text(text.to_owned()),
                    Err(_) => Kept::Unreadable,
                },
            },
            fingerprint: row.get(2)?,
            state: State::parse(&state).unwrap_or(State::Blocked),
        })
    })
    .optional()
}

fn compare(
    operation: &Operation,
    stored: Stored,
    fingerprint_of: &dyn Fn(&str) -> Option<Fingerprint>,
) -> Result<Recorded, RecordError> {
    let given = operation.payload.fingerprint();
    let prepared = stored.fingerprint.map(Fingerprint::from_stored);
    let text = match &stored.recorded {
        Kept::Text(text) => Some(text.as_str()),
        Kept::Pruned | Kept::Unreadable => None,
    };
    let recorded = text.and_then(fingerprint_of);
    // The type may have trimmed what was recorded, and text that has no
    // canonical form can still be the very same text.
    let same_content = prepared.as_ref() == Some(&given)
        || recorded.as_ref() == Some(&given)
        || text == Some(operation.payload.as_str());
    let known = prepared.or(recorded);
    if stored.receiver == operation.receiver {
        if same_content {
            return Ok(Recorded::Existing { state: stored.state });
        }
        if known.is_none() && matches!(stored.recorded, Kept::Pruned) {
            return Err(RecordError::Refused(SETTLED.to_owned()));
        }
    }
    Err(RecordError::Conflict(Box::new(Conflict {
        key: operation.key.as_str().to_owned(),
        state: stored.state,
        receiver: stored.receiver,
        stored: known,
        given,
    })))
}

/// The examples of the page on recording, so that they are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/recording.md")]
struct RecordingPage;
