//! `list`, `show` and `explain`: what is known, for people and programs.

use super::arguments::{Global, List};
use super::output::{self, plain, table};
use super::{Exit, Failure, Session, no_such_key};
use crate::clock::Timestamp;
use crate::outbox::hold::{self, Hold};
use crate::outbox::policy::{Gate, Next, Step, Surroundings, next};
use crate::outbox::state::{BlockReason, State, Verb};
use crate::outbox::verbs::{advice, open_verbs};
use crate::store::sqlite::Access;
use crate::store::{AttemptRow, Filter, OperationRow, Store};
use serde::Serialize;

pub(super) async fn list(global: &Global, command: &List) -> Result<Exit, Failure> {
    let filter = Filter {
        receiver: command.receiver.clone(),
        state: word("--state", command.state.as_deref(), State::parse, State::ALL)?,
        reason: word("--reason", command.reason.as_deref(), BlockReason::parse, BlockReason::ALL)?,
        prefix: command.prefix.clone(),
        limit: Some(command.limit),
    };
    let session = Session::open(global, Access::Existing).await?;
    let rows = session.store.list(filter).await?;
    let now = session.now().await?;
    let holds = session.store.holds(now).await?;
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, &holds, now.wall)).collect();
    let heading = ["KEY", "STATE", "EFFECT", "ATTEMPTS", "RECEIPT", "WHY"];
    let paint = |row: usize, column: usize, cell: String| {
        if column == 1 { output::state(rows[row].state, &cell) } else { cell }
    };
    let text = if rows.is_empty() {
        "no operations match".to_owned()
    } else {
        table(&heading, &cells, paint)
    };
    session.output.result(&rows, &text)?;
    if u32::try_from(rows.len()).is_ok_and(|count| count == command.limit) {
        session.output.hint("there may be more: raise --limit, or narrow the list");
    }
    Ok(Exit::Done)
}

/// Reads a word of a fixed list from the command line.
pub(super) fn word<T: Copy + std::fmt::Display>(
    option: &str,
    given: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
    all: &[T],
) -> Result<Option<T>, Failure> {
    let Some(text) = given else { return Ok(None) };
    if let Some(found) = parse(text) {
        return Ok(Some(found));
    }
    let known: Vec<String> = all.iter().map(ToString::to_string).collect();
    Err(Failure::new(Exit::Usage, format!("{option} {:?} is not known", plain(text)))
        .hint(format!("allowed are: {}", known.join(", "))))
}

fn cells(row: &OperationRow, holds: &[Hold], now: Timestamp) -> Vec<String> {
    vec![
        plain(&row.operation_key),
        row.state.to_string(),
        row.effect.to_string(),
        row.attempts.to_string(),
        row.remote_id.as_deref().map_or_else(|| "-".to_owned(), plain),
        why(row, hold::last(holds, &row.receiver, now), now),
    ]
}

/// What stands behind the state, in a few words.
fn why(row: &OperationRow, hold: Option<&Hold>, now: Timestamp) -> String {
    let error = row.last_error.as_deref().map(plain).unwrap_or_default();
    match (row.state, row.blocked_reason, row.due_at) {
        (State::Blocked, Some(reason), _) => match error.as_str() {
            "" => reason.to_string(),
            error => format!("{reason}: {error}"),
        },
        (State::Pending, _, _) if row.facts.open.is_some() => "in flight".to_owned(),
        (State::Pending, _, Some(due)) if due > now => match error.as_str() {
            "" => format!("scheduled for {due}"),
            error => format!("next try {due}: {error}"),
        },
        (State::Pending, _, Some(_)) => match hold {
            Some(hold) => format!("receiver held, {}", plain(&hold.to_string())),
            None => "due".to_owned(),
        },
        (State::Pending, _, None) => "waits for its type or receiver to be configured".to_owned(),
        (State::Sent | State::Withdrawn | State::Blocked, _, _) => error,
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    row: &'a OperationRow,
    history: &'a [AttemptRow],
}

pub(super) async fn show(global: &Global, key: &str) -> Result<Exit, Failure> {
    let session = Session::open(global, Access::Existing).await?;
    let row = session.store.find(key).await?.ok_or_else(|| no_such_key(key))?;
    let history = session.store.history(key).await?;
    let text = format!("{}\n\n{}", describe(&row), describe_history(&history));
    session.output.result(&Shown { row: &row, history: &history }, &text)?;
    session.output.hint(&format!("next: handoff explain {}", plain(key)));
    Ok(Exit::Done)
}

fn describe(row: &OperationRow) -> String {
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let text = |text: &Option<String>| text.as_deref().map(plain);
    let state = match row.blocked_reason {
        Some(reason) => format!("{} ({reason})", row.state),
        None => row.state.to_string(),
    };
    let payload = row.payload.as_ref().map(|payload| plain(&payload.to_string()));
    let lines: [(&str, Option<String>); 15] = [
        ("operation", Some(plain(&row.operation_key))),
        ("receiver", Some(plain(&row.receiver))),
        ("state", Some(output::state(row.state, &state))),
        ("effect", Some(row.effect.to_string())),
        ("receipt", text(&row.remote_id)),
        ("settled by", text(&row.settled_by)),
        ("last error", text(&row.last_error)),
        ("payload", Some(payload.unwrap_or_else(|| "no longer kept".to_owned()))),
        ("fingerprint", text(&row.fingerprint)),
        ("approved by", Some(plain(&row.approved_by))),
        ("recorded", time(Some(row.recorded_at))),
        ("not before", time(row.deliver_after)),
        ("next look", time(row.due_at).filter(|_| row.state == State::Pending)),
        ("sent", time(row.sent_at)),
        ("version", Some(row.version.to_string())),
    ];
    let line =
        |(name, value): &(&str, Option<String>)| Some(format!("{name:<12} {}", value.as_ref()?));
    lines.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn describe_history(history: &[AttemptRow]) -> String {
    if history.is_empty() {
        return "no attempts".to_owned();
    }
    let row = |attempt: &AttemptRow| {
        let outcome = attempt.outcome.map_or("under way", |outcome| outcome.as_str());
        let details = [
            attempt.error_code.clone(),
            attempt.http_status.map(|status| format!("status {status}")),
            attempt.request_sent.filter(|sent| !sent).map(|_| "no byte left".to_owned()),
            attempt.remote_id.as_ref().map(|id| format!("receipt {id}")),
            attempt.evidence.clone(),
        ];
        vec![
            attempt.number.to_string(),
            attempt.kind.to_string(),
            attempt.started_at.to_string(),
            attempt.duration_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms")),
            outcome.to_owned(),
            plain(&details.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        ]
    };
    let rows: Vec<Vec<String>> = history.iter().map(row).collect();
    let heading = ["ATTEMPT", "KIND", "STARTED", "TOOK", "OUTCOME", "DETAILS"];
    table(&heading, &rows, |_, _, cell| cell)
}

/// What to do about an operation whose receiver is held.
const HELD_ADVICE: &str = "it waits until the hold of its receiver ends; handoff resume ends it";

#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    operation: &'a OperationRow,
    /// The row of the policy that decides.
    row: &'static str,
    meaning: &'static str,
    decision: &'static str,
    next_at: Option<Timestamp>,
    gate: Option<Gate>,
    /// What holds its receiver.
    hold: Option<&'a Hold>,
    verbs: &'a [Verb],
    fault: Option<&'a str>,
    advice: &'static str,
}

pub(super) async fn explain(global: &Global, key: &str) -> Result<Exit, Failure> {
    let session = Session::open(global, Access::Existing).await?;
    let row = session.store.find(key).await?.ok_or_else(|| no_such_key(key))?;
    let now = session.now().await?;
    let judged = session.rules.judge(&row.recorded, now);
    let terms = session.rules.terms(&row.receiver);
    let holds = session.store.holds(now).await?;
    let hold = hold::last(&holds, &row.receiver, now.wall);
    let follows = hold::behind(next(&row.facts, &judged.around, terms, now), hold);
    let verbs = open_verbs(&row.facts, row.state, &judged.around, terms, now);
    let (gate, next_at) = match follows.step {
        Step::Wait { gate, until } => (Some(gate), until),
        Step::Deliver | Step::Ask => (None, row.due_at),
        Step::Sent | Step::Stay | Step::Block(_) => (None, None),
    };
    let explained = Explained {
        operation: &row,
        row: follows.row.as_str(),
        meaning: follows.row.meaning(),
        decision: follows.step.word(),
        next_at,
        gate,
        hold,
        verbs: &verbs,
        fault: judged.fault.as_deref(),
        advice: match hold {
            Some(_) if row.state == State::Pending => HELD_ADVICE,
            Some(_) | None => advice(row.state, row.blocked_reason, row.effect),
        },
    };
    let text = sentences(&row, &explained, &judged.around, follows);
    session.output.result(&explained, &text)?;
    if row.state == State::Pending {
        session.warn_without_daemon();
    }
    Ok(Exit::Done)
}

fn sentences(
    row: &OperationRow,
    explained: &Explained<'_>,
    around: &Surroundings,
    follows: Next,
) -> String {
    let state = match row.blocked_reason {
        Some(reason) => format!("{} ({reason})", row.state),
        None => row.state.to_string(),
    };
    let mut lines = vec![
        format!("{} is {}", plain(&row.operation_key), output::state(row.state, &state)),
        format!("effect     {}", effect_in_words(row)),
        format!("why        row {} of the policy: {}", explained.row, explained.meaning),
    ];
    if let Some(fault) = explained.fault {
        lines.push(format!("fault      {}", plain(fault)));
    }
    if let Some(error) = &row.last_error {
        lines.push(format!("last error {}", plain(error)));
    }
    let what_next = match (follows.step, explained.next_at) {
        (Step::Sent, _) => "nothing: it is settled".to_owned(),
        (Step::Stay, _) => "nothing: it stays withdrawn".to_owned(),
        (Step::Block(_), _) => "nothing until a person acts".to_owned(),
        (Step::Wait { gate, .. }, Some(time)) => format!("waits ({gate}) until {time}"),
        (Step::Wait { gate, .. }, None) => format!("waits ({gate})"),
        (Step::Ask, _) => "the daemon looks the key up at the receiver".to_owned(),
        (Step::Deliver, _) => "the daemon delivers it under the same key".to_owned(),
    };
    lines.push(format!("next       {what_next}"));
    if let Some(hold) = explained.hold {
        let (receiver, hold) = (plain(&hold.receiver), plain(&hold.to_string()));
        lines.push(format!("receiver   {receiver} is held: {hold}"));
    }
    if !around.configured {
        lines.push("config     its type or its receiver is not in this configuration".to_owned());
    }
    lines.push(format!("advice     {}", explained.advice));
    let verbs: Vec<String> = explained
        .verbs
        .iter()
        .map(|verb| format!("handoff {verb} {}", plain(&row.operation_key)))
        .collect();
    if !verbs.is_empty() {
        lines.push(format!("you may    {}", verbs.join("\n           ")));
    }
    lines.join("\n")
}

fn effect_in_words(row: &OperationRow) -> String {
    use crate::outbox::state::Effect;
    match (row.effect, &row.remote_id) {
        (Effect::None, _) => "none: nothing can have happened at the receiver".to_owned(),
        (Effect::Possible, _) => "possible: an attempt may have acted at the receiver".to_owned(),
        (Effect::Confirmed, Some(id)) => format!("confirmed: receipt {}", plain(id)),
        (Effect::Confirmed, None) => "confirmed, without a receipt".to_owned(),
    }
}
