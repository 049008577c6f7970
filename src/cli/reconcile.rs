//! `reconcile`: have keys looked up, one by one or all that are blocked.

use super::act::named;
use super::arguments::{Global, Reconcile};
use super::show::word;
use super::{Exit, Failure, Session, no_such_key, output};
use crate::outbox::state::{BlockReason, State};
use crate::outbox::verbs::{Deed, Refusal};
use crate::store::sqlite::Access;
use crate::store::{Act, Acted, Filter, OperationRow, Store};
use serde::Serialize;
use std::io::{BufRead, IsTerminal};

/// After so many operations a person is told how far it is.
const PROGRESS: usize = 100;

/// What came of one operation.
#[derive(Serialize)]
struct Line {
    operation_key: String,
    version: u64,
    /// `asked`, `would_ask`, `moved` or `refused`.
    result: &'static str,
    detail: Option<String>,
}

pub(super) async fn reconcile(global: &Global, command: &Reconcile) -> Result<Exit, Failure> {
    let who = named(command.actor.as_deref())?;
    let reason = word("--reason", command.reason.as_deref(), BlockReason::parse, BlockReason::ALL)?;
    if command.version.is_some() && command.keys.len() != 1 {
        return Err(Failure::new(Exit::Usage, "--version goes with one KEY"));
    }
    let session = Session::open(global, Access::Existing).await?;
    let chosen = chosen(&session, command, reason).await?;
    if command.keys.is_empty() && !command.dry_run && !chosen.is_empty() {
        go_on(global, command, chosen.len())?;
    }
    let mut lines = Vec::new();
    for (at, row) in chosen.iter().enumerate() {
        lines.push(ask(&session, command, row, &who).await?);
        if (at + 1) % PROGRESS == 0 {
            session.output.hint(&format!("{} of {}", at + 1, chosen.len()));
        }
    }
    let text = told(&lines);
    session.output.result(&lines, &text)?;
    if lines.iter().any(|line| line.result == "asked") {
        session.warn_without_daemon();
        session.output.hint("next: handoff wait KEY, or handoff list --state blocked");
    }
    Ok(match lines.iter().find(|line| matches!(line.result, "refused" | "moved")) {
        Some(line) if line.result == "moved" => Exit::Conflict,
        Some(_) => Exit::Failed,
        None => Exit::Done,
    })
}

/// The operations that are meant, as they are now.
async fn chosen(
    session: &Session,
    command: &Reconcile,
    reason: Option<BlockReason>,
) -> Result<Vec<OperationRow>, Failure> {
    if command.keys.is_empty() {
        if let Some(receiver) = &command.receiver {
            let known = session.rules.receivers.get(receiver);
            let rules = known.ok_or_else(|| no_such_receiver(session, receiver))?;
            if rules.terms.contract.look_up.is_none() {
                let message = format!("{receiver}: {}", Refusal::NoLookUp);
                return Err(Failure::new(Exit::Failed, message)
                    .hint("look yourself, then: handoff resolve KEY --as …"));
            }
        }
        let (state, receiver) = (Some(State::Blocked), command.receiver.clone());
        let filter = Filter { receiver, state, reason, ..Filter::default() };
        let mut rows = session.store.list(filter).await?;
        let can_ask =
            |row: &OperationRow| session.rules.terms(&row.receiver).contract.look_up.is_some();
        rows.retain(can_ask);
        return Ok(rows);
    }
    let mut rows = Vec::new();
    for key in &command.keys {
        rows.push(session.store.find(key).await?.ok_or_else(|| no_such_key(key))?);
    }
    Ok(rows)
}

fn no_such_receiver(session: &Session, name: &str) -> Failure {
    let known: Vec<&str> = session.rules.receivers.keys().map(String::as_str).collect();
    Failure::new(Exit::Usage, format!("there is no receiver {:?}", output::plain(name)))
        .hint(format!("configured are: {}", known.join(", ")))
}

/// Asks the person at the terminal whether to go on with so many operations.
fn go_on(global: &Global, command: &Reconcile, count: usize) -> Result<(), Failure> {
    if command.yes {
        return Ok(());
    }
    let question = format!("{count} blocked operations would be looked up");
    let input = std::io::stdin();
    if global.no_input || !input.is_terminal() {
        return Err(Failure::new(Exit::Usage, format!("{question}; nothing was done"))
            .hint("--dry-run lists them, --yes goes on"));
    }
    output::note(&format!("{question}. Go on? [y/N]"));
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Failed, "nothing was done"))
    }
}

/// Has one operation looked up, if it has not moved on since it was chosen.
async fn ask(
    session: &Session,
    command: &Reconcile,
    row: &OperationRow,
    who: &str,
) -> Result<Line, Failure> {
    let version = command.version.unwrap_or(row.version);
    let line = |result, detail| {
        let operation_key = row.operation_key.clone();
        Line { operation_key, version, result, detail }
    };
    let now = session.now().await?;
    if command.dry_run {
        let around = session.rules.judge(&row.recorded, now).around;
        let terms = session.rules.terms(&row.receiver);
        let (mut facts, deed) = (row.facts.clone(), Deed::Reconcile);
        return Ok(match deed.done_to(&mut facts, row.state, who, &around, terms, now) {
            Ok(_) => line("would_ask", None),
            Err(refusal) => line("refused", Some(refusal.to_string())),
        });
    }
    let act = Act {
        key: row.operation_key.clone(),
        deed: Deed::Reconcile,
        version,
        who: who.to_owned(),
        reason: None,
    };
    Ok(match session.store.act(&session.rules, act, now).await? {
        Acted::Done(..) => line("asked", None),
        Acted::NoSuchKey => line("refused", Some("there is no such operation".to_owned())),
        Acted::Moved(row) => {
            let detail = format!("it is {} now, version {}", row.state, row.version);
            line("moved", Some(detail))
        }
        Acted::Refused(_, refusal) => line("refused", Some(refusal.to_string())),
        Acted::NotConfigured(_) => line("refused", Some("it is not configured here".to_owned())),
    })
}

fn told(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "nothing that is blocked can be looked up".to_owned();
    }
    let line = |line: &Line| {
        let key = output::plain(&line.operation_key);
        let words = match line.result {
            "asked" => "will be looked up",
            "would_ask" => "would be looked up",
            "moved" => "has moved on",
            _ => "is refused",
        };
        match &line.detail {
            Some(detail) => format!("{key} {words}: {}", output::plain(detail)),
            None => format!("{key} {words}"),
        }
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}
