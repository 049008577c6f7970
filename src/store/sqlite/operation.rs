//! One operation's row, read.

use crate::clock::Timestamp;
use crate::outbox::facts::{Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint};
use crate::outbox::payload::Fingerprint;
use crate::outbox::rules::Recorded;
use crate::outbox::state::{BlockReason, Effect, SettledBy, State};
use crate::store::OperationRow;
use crate::store::rows::{Loaded, Stored};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use std::borrow::Cow;

/// Names the columns that an [`OperationRow`] is made of, in the order in which
/// they are read: found by place, since SQLite would compare name by name.
macro_rules! columns {
    ($first:ident = $first_sql:literal, $($column:ident = $sql:literal,)*) => {
        #[derive(Clone, Copy, Debug)]
        enum Column { $first, $($column),* }

        /// Every column that an [`OperationRow`] is made of.
        pub(super) const COLUMNS: &str = concat!($first_sql $(, ", ", $sql)*);

        impl Column {
            /// Its name in the table.
            fn name(self) -> &'static str {
                let sql = match self {
                    Self::$first => $first_sql,
                    $(Self::$column => $sql,)*
                };
                sql.rsplit('.').next().unwrap_or(sql).trim_end_matches(')')
            }
        }
    };
}

columns! {
    Id = "o.id",
    OperationKey = "o.operation_key",
    Receiver = "o.receiver",
    State = "o.state",
    BlockedReason = "o.blocked_reason",
    Effect = "o.effect",
    Attempts = "o.attempts",
    DueAt = "o.due_at",
    FirstAttemptAt = "o.first_attempt_at",
    RemoteId = "o.remote_id",
    SettledBy = "o.settled_by",
    LastError = "o.last_error",
    Version = "o.version",
    RecordedAt = "o.recorded_at",
    SentAt = "o.sent_at",
    Payload = "coalesce(o.payload, a.payload)",
    Fingerprint = "o.fingerprint",
    PossibleSince = "o.possible_since",
    PossibleUntil = "o.possible_until",
    PossibleRequest = "o.possible_request",
    PossibleCount = "o.possible_count",
    PossibleMarks = "o.possible_marks",
    Answer = "o.answer",
    Absences = "o.absences",
    OpenNumber = "o.open_number",
    OpenKind = "o.open_kind",
    Spent = "o.spent",
    Asks = "o.asks",
    FailedAt = "o.failed_at",
    BudgetStart = "o.budget_start",
    SoloCrashes = "o.solo_crashes",
    Granted = "o.granted",
    AskNow = "o.ask_now",
    Withdrawn = "o.withdrawn",
    NotBefore = "o.not_before",
    Tries = "o.tries",
    Suspect = "o.suspect",
    ApprovedBy = "a.approved_by",
    DeliverAfter = "a.deliver_after",
    Traceparent = "a.traceparent",
}

/// The tables that [`COLUMNS`] are read from.
pub(super) const TABLES: &str =
    "handoff_outbox AS o JOIN handoff_approvals AS a ON a.operation_key = o.operation_key";

/// Reads one operation by its key.
pub(super) fn by_key(db: &Connection, key: &str) -> Result<Option<Loaded>, rusqlite::Error> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM {TABLES} WHERE o.operation_key = ?1"))?
        .query_row([key], read)
        .optional()
}

/// Makes an operation of a row. A value that cannot be read is damage: it makes
/// the operation invalid and does not stop anything else.
pub(super) fn read(row: &Row<'_>) -> Result<Loaded, rusqlite::Error> {
    let mut damage = None;
    let facts = read_facts(row, &mut damage)?;
    let recorded = Recorded {
        key: row.get(Column::OperationKey as usize)?,
        receiver: row.get(Column::Receiver as usize)?,
        payload: text(row, Column::Payload, &mut damage)?,
        fingerprint: text(row, Column::Fingerprint, &mut damage)?.map(Fingerprint::from_stored),
        recorded_at: time(row, Column::RecordedAt)?.unwrap_or(Timestamp::from_millis(0)),
        deliver_after: time(row, Column::DeliverAfter)?,
        other_version: None,
        damage: None,
    };
    let state = word(row, Column::State, State::parse, &mut damage)?.unwrap_or(State::Blocked);
    let shown = OperationRow {
        operation_key: recorded.key.clone(),
        receiver: recorded.receiver.clone(),
        state,
        blocked_reason: word(row, Column::BlockedReason, BlockReason::parse, &mut damage)?,
        effect: word(row, Column::Effect, Effect::parse, &mut damage)?.unwrap_or(Effect::Possible),
        attempts: facts.attempts,
        due_at: time(row, Column::DueAt)?,
        first_attempt_at: time(row, Column::FirstAttemptAt)?,
        remote_id: text(row, Column::RemoteId, &mut damage)?,
        settled_by: text(row, Column::SettledBy, &mut damage)?,
        last_error: text(row, Column::LastError, &mut damage)?,
        version: facts.version,
        recorded_at: recorded.recorded_at,
        sent_at: time(row, Column::SentAt)?,
        approved_by: described(row, Column::ApprovedBy)?.unwrap_or_default(),
        deliver_after: recorded.deliver_after,
        fingerprint: recorded.fingerprint.as_ref().map(|known| known.as_str().to_owned()),
        traceparent: described(row, Column::Traceparent)?,
        payload: None,
        facts,
        recorded: Recorded { damage, ..recorded },
    };
    Ok(Loaded {
        id: row.get(Column::Id as usize)?,
        suspect: row.get(Column::Suspect as usize)?,
        stored: Stored::of(&shown.facts),
        row: shown,
    })
}

fn read_facts(row: &Row<'_>, damage: &mut Option<String>) -> Result<Facts, rusqlite::Error> {
    let proof = word(row, Column::SettledBy, SettledBy::parse, damage)?
        .map(|by| {
            Ok::<_, rusqlite::Error>(Proof { remote_id: text(row, Column::RemoteId, damage)?, by })
        })
        .transpose()?;
    let open = match row.get::<_, Option<i64>>(Column::OpenNumber as usize)? {
        None => None,
        Some(number) => Some(Open {
            number: narrow(number),
            kind: word(row, Column::OpenKind, AttemptKind::parse, damage)?
                .unwrap_or(AttemptKind::Deliver),
        }),
    };
    let possible = match time(row, Column::PossibleSince)? {
        None => None,
        Some(since) => Some(Possible {
            since,
            until: time(row, Column::PossibleUntil)?.unwrap_or(since),
            request: text(row, Column::PossibleRequest, damage)?.map(RequestFingerprint),
            count: count(row, Column::PossibleCount)?,
            marks: count(row, Column::PossibleMarks)?,
        }),
    };
    Ok(Facts {
        proof,
        possible,
        answer: word(row, Column::Answer, Answer::parse, damage)?.unwrap_or(Answer::None),
        absences: count(row, Column::Absences)?,
        open,
        spent: count(row, Column::Spent)?,
        asks: count(row, Column::Asks)?,
        failed_at: time(row, Column::FailedAt)?,
        budget_start: time(row, Column::BudgetStart)?,
        solo_crashes: count(row, Column::SoloCrashes)?,
        grant: row.get(Column::Granted as usize)?,
        ask_now: row.get(Column::AskNow as usize)?,
        withdrawn: row.get(Column::Withdrawn as usize)?,
        not_before: time(row, Column::NotBefore)?,
        attempts: count(row, Column::Attempts)?,
        tries: count(row, Column::Tries)?,
        version: u64::try_from(row.get::<_, i64>(Column::Version as usize)?).unwrap_or_default(),
    })
}

/// Reads a word of a fixed list; another word is damage.
fn word<T>(
    row: &Row<'_>,
    column: Column,
    parse: impl Fn(&str) -> Option<T>,
    damage: &mut Option<String>,
) -> Result<Option<T>, rusqlite::Error> {
    if let ValueRef::Text(bytes) = row.get_ref(column as usize)?
        && let Ok(text) = std::str::from_utf8(bytes)
        && let Some(known) = parse(text)
    {
        return Ok(Some(known));
    }
    let Some(text) = text(row, column, damage)? else { return Ok(None) };
    let text: String = text.chars().take(60).collect();
    let column = column.name();
    *damage = Some(format!("its column {column} holds {text:?}, which is no known word"));
    Ok(None)
}

/// Reads a text. SQLite takes any bytes for one; what is no UTF-8 is damage.
fn text(
    row: &Row<'_>,
    column: Column,
    damage: &mut Option<String>,
) -> Result<Option<String>, rusqlite::Error> {
    let ValueRef::Text(bytes) = row.get_ref(column as usize)? else {
        return row.get(column as usize);
    };
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        *damage = Some(format!("its column {} holds text that is no UTF-8", column.name()));
    }
    Ok(Some(text.into_owned()))
}

/// Reads a text that only people read: what is no UTF-8 in it is replaced, and
/// stops nothing.
fn described(row: &Row<'_>, column: Column) -> Result<Option<String>, rusqlite::Error> {
    text(row, column, &mut None)
}

fn time(row: &Row<'_>, column: Column) -> Result<Option<Timestamp>, rusqlite::Error> {
    Ok(row.get::<_, Option<i64>>(column as usize)?.map(Timestamp::from_millis))
}

fn count(row: &Row<'_>, column: Column) -> Result<u32, rusqlite::Error> {
    Ok(narrow(row.get(column as usize)?))
}

fn narrow(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
