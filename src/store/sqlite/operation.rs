//! One operation's row, read and written.

use crate::clock::Timestamp;
use crate::outbox::facts::{Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint};
use crate::outbox::payload::Fingerprint;
use crate::outbox::policy::{Gate, Next, Step};
use crate::outbox::rules::{Judged, Recorded};
use crate::outbox::state::{BlockReason, Effect, SettledBy, State};
use crate::store::OperationRow;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Every column that an [`OperationRow`] is made of.
pub(super) const COLUMNS: &str = "
    o.id, o.operation_key, o.receiver, o.state, o.blocked_reason, o.effect, o.attempts, o.due_at,
    o.first_attempt_at, o.remote_id, o.settled_by, o.last_error, o.version, o.recorded_at,
    o.sent_at, coalesce(o.payload, a.payload) AS payload, o.fingerprint,
    o.possible_since, o.possible_until, o.possible_request, o.possible_count, o.possible_marks,
    o.answer, o.absences, o.open_number, o.open_kind, o.spent, o.asks, o.failed_at,
    o.budget_start, o.solo_crashes, o.granted, o.ask_now, o.withdrawn, o.not_before, o.tries,
    o.suspect, a.approved_by, a.deliver_after, a.traceparent";

/// The place of each name in [`COLUMNS`]: SQLite would compare name by name, for
/// forty columns of every row.
static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    let columns = COLUMNS.split(',').filter(|column| !column.contains('('));
    let name = |column: &'static str| column.trim().rsplit(['.', ' ']).next();
    columns.filter_map(name).zip(0..).collect()
});

/// The place of a column; that of none is beyond the last, which SQLite refuses.
fn at(column: &str) -> usize {
    PLACES.get(column).copied().unwrap_or(usize::MAX)
}

/// The tables that [`COLUMNS`] are read from.
pub(super) const TABLES: &str =
    "handoff_outbox AS o JOIN handoff_approvals AS a ON a.operation_key = o.operation_key";

/// An operation with what only the store needs.
pub(super) struct Loaded {
    pub(super) id: i64,
    pub(super) suspect: bool,
    pub(super) row: OperationRow,
}

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
        key: row.get(at("operation_key"))?,
        receiver: row.get(at("receiver"))?,
        payload: text(row, "payload", &mut damage)?,
        fingerprint: text(row, "fingerprint", &mut damage)?.map(Fingerprint::from_stored),
        recorded_at: time(row, "recorded_at")?.unwrap_or(Timestamp::from_millis(0)),
        deliver_after: time(row, "deliver_after")?,
        other_version: None,
        damage: None,
    };
    let state = word(row, "state", State::parse, &mut damage)?.unwrap_or(State::Blocked);
    let shown = OperationRow {
        operation_key: recorded.key.clone(),
        receiver: recorded.receiver.clone(),
        state,
        blocked_reason: word(row, "blocked_reason", BlockReason::parse, &mut damage)?,
        effect: word(row, "effect", Effect::parse, &mut damage)?.unwrap_or(Effect::Possible),
        attempts: facts.attempts,
        due_at: time(row, "due_at")?,
        first_attempt_at: time(row, "first_attempt_at")?,
        remote_id: text(row, "remote_id", &mut damage)?,
        settled_by: text(row, "settled_by", &mut damage)?,
        last_error: text(row, "last_error", &mut damage)?,
        version: facts.version,
        recorded_at: recorded.recorded_at,
        sent_at: time(row, "sent_at")?,
        approved_by: described(row, "approved_by")?.unwrap_or_default(),
        deliver_after: recorded.deliver_after,
        fingerprint: recorded.fingerprint.as_ref().map(|known| known.as_str().to_owned()),
        traceparent: described(row, "traceparent")?,
        payload: None,
        facts,
        recorded: Recorded { damage, ..recorded },
    };
    Ok(Loaded { id: row.get(at("id"))?, suspect: row.get(at("suspect"))?, row: shown })
}

fn read_facts(row: &Row<'_>, damage: &mut Option<String>) -> Result<Facts, rusqlite::Error> {
    let proof = word(row, "settled_by", SettledBy::parse, damage)?
        .map(|by| {
            Ok::<_, rusqlite::Error>(Proof { remote_id: text(row, "remote_id", damage)?, by })
        })
        .transpose()?;
    let open = match row.get::<_, Option<i64>>(at("open_number"))? {
        None => None,
        Some(number) => Some(Open {
            number: narrow(number),
            kind: word(row, "open_kind", AttemptKind::parse, damage)?
                .unwrap_or(AttemptKind::Deliver),
        }),
    };
    let possible = match time(row, "possible_since")? {
        None => None,
        Some(since) => Some(Possible {
            since,
            until: time(row, "possible_until")?.unwrap_or(since),
            request: text(row, "possible_request", damage)?.map(RequestFingerprint),
            count: count(row, "possible_count")?,
            marks: count(row, "possible_marks")?,
        }),
    };
    Ok(Facts {
        proof,
        possible,
        answer: word(row, "answer", Answer::parse, damage)?.unwrap_or(Answer::None),
        absences: count(row, "absences")?,
        open,
        spent: count(row, "spent")?,
        asks: count(row, "asks")?,
        failed_at: time(row, "failed_at")?,
        budget_start: time(row, "budget_start")?,
        solo_crashes: count(row, "solo_crashes")?,
        grant: row.get(at("granted"))?,
        ask_now: row.get(at("ask_now"))?,
        withdrawn: row.get(at("withdrawn"))?,
        not_before: time(row, "not_before")?,
        attempts: count(row, "attempts")?,
        tries: count(row, "tries")?,
        version: u64::try_from(row.get::<_, i64>(at("version"))?).unwrap_or_default(),
    })
}

/// Reads a word of a fixed list; another word is damage.
fn word<T>(
    row: &Row<'_>,
    column: &str,
    parse: impl Fn(&str) -> Option<T>,
    damage: &mut Option<String>,
) -> Result<Option<T>, rusqlite::Error> {
    let Some(text) = text(row, column, damage)? else { return Ok(None) };
    let parsed = parse(&text);
    if parsed.is_none() {
        let text: String = text.chars().take(60).collect();
        *damage = Some(format!("its column {column} holds {text:?}, which is no known word"));
    }
    Ok(parsed)
}

/// Reads a text. SQLite takes any bytes for one; what is no UTF-8 is damage.
fn text(
    row: &Row<'_>,
    column: &str,
    damage: &mut Option<String>,
) -> Result<Option<String>, rusqlite::Error> {
    let ValueRef::Text(bytes) = row.get_ref(at(column))? else {
        return row.get(at(column));
    };
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        *damage = Some(format!("its column {column} holds text that is no UTF-8"));
    }
    Ok(Some(text.into_owned()))
}

/// Reads a text that only people read: what is no UTF-8 in it is replaced, and
/// stops nothing.
fn described(row: &Row<'_>, column: &str) -> Result<Option<String>, rusqlite::Error> {
    text(row, column, &mut None)
}

fn time(row: &Row<'_>, column: &str) -> Result<Option<Timestamp>, rusqlite::Error> {
    Ok(row.get::<_, Option<i64>>(at(column))?.map(Timestamp::from_millis))
}

fn count(row: &Row<'_>, column: &str) -> Result<u32, rusqlite::Error> {
    Ok(narrow(row.get(at(column))?))
}

fn narrow(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// What is written beside the facts when they have changed.
pub(super) struct Change<'a> {
    /// What follows from them.
    pub(super) next: Next,
    /// How it is seen under the rules.
    pub(super) judged: &'a Judged,
    /// What is known of the receiver.
    pub(super) effect: Effect,
    /// What went wrong last; `None` leaves what is there.
    pub(super) error: Option<String>,
    /// Whether it is a suspect from now on.
    pub(super) suspect: bool,
    /// The wall clock.
    pub(super) now: Timestamp,
}

/// Writes the facts and what follows from them, and updates the row in memory.
pub(super) fn write(
    db: &Connection,
    loaded: &mut Loaded,
    change: Change<'_>,
) -> Result<(), rusqlite::Error> {
    settle(&mut loaded.row, &change);
    loaded.suspect = change.suspect;
    let row = &mut loaded.row;
    if let (None, Some(ready)) = (&row.recorded.fingerprint, &change.judged.ready) {
        row.fingerprint = Some(ready.fingerprint.as_str().to_owned());
        // Kept once more only where it differs from what was recorded.
        if row.recorded.payload.as_deref() != Some(ready.payload.as_str()) {
            db.prepare_cached("UPDATE handoff_outbox SET payload = ?2 WHERE id = ?1")?
                .execute(params![loaded.id, ready.payload])?;
            row.recorded.payload = Some(ready.payload.clone());
        }
        row.recorded.fingerprint = Some(ready.fingerprint.clone());
    }
    update(db, loaded)
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

/// A fingerprint that is stored is never written again, not even a damaged one.
fn update(db: &Connection, loaded: &Loaded) -> Result<(), rusqlite::Error> {
    let row = &loaded.row;
    let facts = &row.facts;
    let possible = facts.possible.as_ref();
    let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    db.prepare_cached(
        "UPDATE handoff_outbox SET
           state = ?2, blocked_reason = ?3, effect = ?4, attempts = ?5, due_at = ?6,
           first_attempt_at = ?7, remote_id = ?8, settled_by = ?9, last_error = ?10,
           version = ?11, sent_at = ?12, fingerprint = coalesce(fingerprint, ?13),
           possible_since = ?14,
           possible_until = ?15, possible_request = ?16, possible_count = ?17,
           possible_marks = ?18, answer = ?19, absences = ?20, open_number = ?21,
           open_kind = ?22, spent = ?23, asks = ?24, failed_at = ?25, budget_start = ?26,
           solo_crashes = ?27, granted = ?28, ask_now = ?29, withdrawn = ?30, not_before = ?31,
           tries = ?32, suspect = ?33
         WHERE id = ?1",
    )?
    .execute(params![
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
        i64::try_from(facts.version).unwrap_or(i64::MAX),
        millis(row.sent_at),
        row.fingerprint,
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
    ])?;
    Ok(())
}
