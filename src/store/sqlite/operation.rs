//! One operation's row, read and written.

use crate::clock::Timestamp;
use crate::outbox::facts::{Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint};
use crate::outbox::payload::Fingerprint;
use crate::outbox::policy::{Gate, Next, Step};
use crate::outbox::rules::{Ready, Recorded};
use crate::outbox::state::{BlockReason, Effect, SettledBy, State};
use crate::store::OperationRow;
use crate::store::rows::Loaded;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
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
        stored_version: shown.version,
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
    let Some(text) = text(row, column, damage)? else { return Ok(None) };
    let parsed = parse(&text);
    if parsed.is_none() {
        let text: String = text.chars().take(60).collect();
        *damage =
            Some(format!("its column {} holds {text:?}, which is no known word", column.name()));
    }
    Ok(parsed)
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

/// What is written beside the facts when they have changed.
pub(super) struct Change<'a> {
    /// What follows from them.
    pub(super) next: Next,
    /// What would be delivered, if it had to be looked at and can be.
    pub(super) ready: Option<&'a Ready>,
    /// What is known of the receiver.
    pub(super) effect: Effect,
    /// What went wrong last; `None` leaves what is there.
    pub(super) error: Option<String>,
    /// Whether it is a suspect from now on.
    pub(super) suspect: bool,
    /// The wall clock.
    pub(super) now: Timestamp,
}

/// Writes operations. Its statements are looked up once for a whole group.
pub(super) struct Update<'c> {
    /// For one whose payload has been prepared.
    again: CachedStatement<'c>,
    /// For one whose payload is stored with it.
    first: CachedStatement<'c>,
}

impl<'c> Update<'c> {
    pub(super) fn prepare(db: &'c Connection) -> Result<Self, rusqlite::Error> {
        let again = db.prepare_cached(&update_sql(""))?;
        let first = "fingerprint = ?34, payload = coalesce(?35, payload),";
        Ok(Self { again, first: db.prepare_cached(&update_sql(first))? })
    }

    /// Writes the facts and what follows from them, and updates the row in memory.
    ///
    /// Says whether the stored row was still the one in memory; else nothing is written.
    pub(super) fn write(
        &mut self,
        loaded: &mut Loaded,
        change: Change<'_>,
    ) -> Result<bool, rusqlite::Error> {
        settle(&mut loaded.row, &change);
        loaded.suspect = change.suspect;
        let written = match (&loaded.row.recorded.fingerprint, change.ready) {
            (None, Some(ready)) => {
                let payload = keep_prepared(&mut loaded.row, ready);
                bind(&mut self.first, loaded)?;
                self.first.raw_bind_parameter(34, ready.fingerprint.as_str())?;
                self.first.raw_bind_parameter(35, payload)?;
                self.first.raw_execute()?
            }
            (Some(_), _) | (None, None) => {
                bind(&mut self.again, loaded)?;
                self.again.raw_execute()?
            }
        };
        loaded.stored_version = loaded.row.version;
        Ok(written == 1)
    }
}

/// What is delivered from now on. Returns the payload where it differs from what was
/// recorded: only then it is stored once more.
fn keep_prepared<'a>(row: &mut OperationRow, ready: &'a Ready) -> Option<&'a str> {
    row.fingerprint = Some(ready.fingerprint.as_str().to_owned());
    row.recorded.fingerprint = Some(ready.fingerprint.clone());
    if row.recorded.payload.as_deref() == Some(ready.payload.as_str()) {
        return None;
    }
    row.recorded.payload = Some(ready.payload.clone());
    Some(&ready.payload)
}

/// Puts what follows into the public columns.
fn settle(row: &mut OperationRow, change: &Change<'_>) {
    let facts = &row.facts;
    row.effect = change.effect;
    row.attempts = facts.attempts;
    row.version = facts.version;
    if let Some(error) = &change.error {
        row.last_error = Some(error.clone());
    }
    row.blocked_reason = None;
    match change.next.step {
        Step::Sent => {
            row.state = State::Sent;
            row.last_error = None;
            row.sent_at.get_or_insert(change.now);
            match &facts.proof {
                Some(proof) => {
                    row.remote_id.clone_from(&proof.remote_id);
                    row.settled_by = Some(proof.by.to_string());
                }
                // An old "exists", which proves it under today's contract.
                None => row.settled_by = Some(SettledBy::Policy.to_string()),
            }
            row.due_at = None;
        }
        Step::Stay => {
            row.state = State::Withdrawn;
            row.due_at = None;
        }
        Step::Block(reason) => {
            row.state = State::Blocked;
            row.blocked_reason = Some(reason);
            row.due_at = None;
        }
        Step::Deliver => {
            row.state = State::Pending;
            row.due_at = Some(change.now);
        }
        // No receiver of this version can be asked: it waits for one that can.
        Step::Ask => {
            row.state = State::Pending;
            row.due_at = None;
        }
        Step::Wait { gate, until } => {
            row.state = State::Pending;
            row.due_at = match gate {
                // Its end makes it due; the time is not looked at before.
                Gate::InFlight => Some(change.now),
                Gate::NotConfigured | Gate::Settling | Gate::Scheduled | Gate::BackingOff => until,
            };
        }
    }
}

/// Payload and fingerprint are named only when they are stored: to name them runs the
/// trigger that guards them.
fn update_sql(prepared: &str) -> String {
    format!(
        "UPDATE handoff_outbox SET {prepared}
           state = ?2, blocked_reason = ?3, effect = ?4, attempts = ?5, due_at = ?6,
           first_attempt_at = ?7, remote_id = ?8, settled_by = ?9, last_error = ?10,
           version = ?11, sent_at = ?12, possible_since = ?13, possible_until = ?14,
           possible_request = ?15, possible_count = ?16, possible_marks = ?17, answer = ?18,
           absences = ?19, open_number = ?20, open_kind = ?21, spent = ?22, asks = ?23,
           failed_at = ?24, budget_start = ?25, solo_crashes = ?26, granted = ?27,
           ask_now = ?28, withdrawn = ?29, not_before = ?30, tries = ?31, suspect = ?32
         WHERE id = ?1 AND version = ?33"
    )
}

/// Binds what [`update_sql`] always names.
fn bind(update: &mut CachedStatement<'_>, loaded: &Loaded) -> Result<(), rusqlite::Error> {
    let row = &loaded.row;
    let facts = &row.facts;
    let possible = facts.possible.as_ref();
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    let values = params![
        loaded.id,
        row.state.as_str(),
        row.blocked_reason.map(BlockReason::as_str),
        row.effect.as_str(),
        facts.attempts,
        millis(row.due_at),
        millis(row.first_attempt_at),
        row.remote_id,
        row.settled_by,
        row.last_error,
        number(facts.version),
        millis(row.sent_at),
        possible.map(|possible| possible.since.as_millis()),
        possible.map(|possible| possible.until.as_millis()),
        possible.and_then(|possible| possible.request.as_ref().map(|request| &request.0)),
        possible.map_or(0, |possible| possible.count),
        possible.map_or(0, |possible| possible.marks),
        facts.answer.as_str(),
        facts.absences,
        facts.open.map(|open| open.number),
        facts.open.map(|open| open.kind.as_str()),
        facts.spent,
        facts.asks,
        millis(facts.failed_at),
        millis(facts.budget_start),
        facts.solo_crashes,
        facts.grant,
        facts.ask_now,
        facts.withdrawn,
        millis(facts.not_before),
        facts.tries,
        loaded.suspect,
        number(loaded.stored_version),
    ];
    for (place, value) in (1..).zip(values) {
        update.raw_bind_parameter(place, value)?;
    }
    Ok(())
}

fn number(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}
