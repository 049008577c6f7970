//! `retry`, `withdraw` and `resolve`: a person's acts on one operation.

use super::arguments::{Act as Arguments, Global, Resolve, Withdraw};
use super::{Exit, Failure, Session, actor, no_such_key, output};
use crate::clock::{Timestamp, wall};
use crate::config;
use crate::outbox::operation::APPROVER_BYTES_MAX;
use crate::outbox::policy::Step;
use crate::outbox::settle::Word;
use crate::outbox::state::State;
use crate::outbox::verbs::{Deed, Refusal};
use crate::store::sqlite::Access;
use crate::store::{Act, Acted, Store};

/// Longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 2_000;
/// Longest receipt that a person may name, in bytes.
const REMOTE_ID_BYTES_MAX: usize = 500;

pub(super) async fn retry(global: &Global, command: &Arguments) -> Result<Exit, Failure> {
    let reason = command.reason.as_deref();
    act(global, Deed::Retry, &command.key, command.version, command.actor.as_deref(), reason).await
}

pub(super) async fn withdraw(global: &Global, command: &Withdraw) -> Result<Exit, Failure> {
    let (actor, reason) = (command.actor.as_deref(), Some(command.reason.as_str()));
    act(global, Deed::Withdraw, &command.key, command.version, actor, reason).await
}

pub(super) async fn resolve(global: &Global, command: &Resolve) -> Result<Exit, Failure> {
    let word = match (&command.remote_id, &command.looked_at) {
        (Some(id), _) if command.found == "sent" => {
            let unfit = id.trim().is_empty() || id.contains(char::is_control);
            if unfit || id.len() > REMOTE_ID_BYTES_MAX {
                let message = format!(
                    "--remote-id must be the receiver's id, in 1 to {REMOTE_ID_BYTES_MAX} bytes"
                );
                return Err(Failure::new(Exit::Refused, message));
            }
            Word::Sent { remote_id: id.clone() }
        }
        (_, Some(text)) if command.found == "not-sent" => {
            Word::NotSent { looked_at: looked_at(text)?, force: command.force }
        }
        (_, _) => {
            let message = "--as sent goes with --remote-id, --as not-sent with --looked-at";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    let evidence = match &command.reason {
        Some(reason) => format!("{} (forced: {reason})", command.evidence),
        None => command.evidence.clone(),
    };
    let (actor, evidence) = (command.actor.as_deref(), Some(evidence.as_str()));
    act(global, Deed::Resolve(word), &command.key, command.version, actor, evidence).await
}

/// When a person looked: a time, or how long ago.
fn looked_at(text: &str) -> Result<Timestamp, Failure> {
    if let Ok(ago) = config::parse_duration(text) {
        return Ok(wall().minus(ago));
    }
    text.parse().map_err(|_| {
        let message = format!("--looked-at {:?} is no time", output::plain(text));
        Failure::new(Exit::Refused, message)
            .hint("write a time such as 2027-01-31T09:00:00Z, or how long ago, such as 5m")
    })
}

/// Who acts, if that may stand in the audit.
pub(super) fn named(given: Option<&str>) -> Result<String, Failure> {
    let who = actor(given);
    if who.trim().is_empty() || who.len() > APPROVER_BYTES_MAX || who.contains(char::is_control) {
        return Err(Failure::new(Exit::Refused, "--as must name who acts, in 1 to 200 bytes"));
    }
    Ok(who)
}

async fn act(
    global: &Global,
    deed: Deed,
    key: &str,
    version: Option<u64>,
    given_actor: Option<&str>,
    reason: Option<&str>,
) -> Result<Exit, Failure> {
    let option = if matches!(deed, Deed::Resolve(_)) { "--evidence" } else { "--reason" };
    let who = named(given_actor)?;
    fits(option, reason)?;
    let session = Session::open(global, Access::Existing).await?;
    let seen = session.store.find(key).await?.ok_or_else(|| no_such_key(key))?;
    let act = Act {
        key: key.to_owned(),
        deed: deed.clone(),
        version: version.unwrap_or(seen.version),
        who,
        reason: reason.map(str::to_owned),
    };
    let now = session.now().await?;
    let acted = session.store.act(&session.rules, act, now).await?;
    report(&session, &deed, key, acted)
}

/// Who acts, if that and the reason can be kept.
pub(super) fn person(given: Option<&str>, reason: Option<&str>) -> Result<String, Failure> {
    let who = named(given)?;
    fits("--reason", reason)?;
    Ok(who)
}

/// Whether what an option gives as the reason can be kept.
fn fits(option: &str, reason: Option<&str>) -> Result<(), Failure> {
    if reason.is_some_and(|reason| reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX) {
        let message = format!("{option} must say why, in 1 to {REASON_BYTES_MAX} bytes");
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(())
}

fn report(session: &Session, deed: &Deed, key: &str, acted: Acted) -> Result<Exit, Failure> {
    let (key, verb) = (output::plain(key), deed.verb());
    match acted {
        Acted::Done(row, follows) => {
            let text = match (deed, follows.step) {
                (Deed::Withdraw, _) => {
                    format!("{key} is withdrawn; effect at the receiver: {}", row.effect)
                }
                (Deed::Retry, Step::Wait { gate, until: Some(time) }) => {
                    format!("{key} will be delivered once more; it waits ({gate}) until {time}")
                }
                (Deed::Retry, _) => format!("{key} is due now"),
                (Deed::Reconcile, _) => format!("{key} will be looked up"),
                (Deed::Resolve(Word::Sent { remote_id }), _) => {
                    format!("{key} is sent: receipt {}, on your word", output::plain(remote_id))
                }
                (Deed::Resolve(Word::NotSent { .. }), _) => {
                    format!("{key} is {}; nothing counts as delivered before", row.state)
                }
            };
            session.output.result(&row, &text)?;
            if row.state == State::Pending {
                session.warn_without_daemon();
            }
            Ok(Exit::Done)
        }
        Acted::NoSuchKey => Err(no_such_key(&key)),
        Acted::Moved(row) => Err(Failure::new(
            Exit::Conflict,
            format!("{key} has moved on: it is {} now, version {}", row.state, row.version),
        )
        .hint(format!("look again: handoff explain {key}"))),
        Acted::Refused(row, refusal) => Err(Failure::new(
            Exit::Failed,
            format!("{verb} is refused for {key} ({}): {refusal}", row.state),
        )
        .hint(match refusal {
            Refusal::NoLookUp => format!("look yourself, then: handoff resolve {key} --as …"),
            Refusal::TooEarly { .. } => "or --force with a --reason".to_owned(),
            _ => format!("handoff explain {key}"),
        })),
        Acted::NotConfigured(_) => Err(Failure::new(
            Exit::Failed,
            format!("{verb} is refused for {key}: its type or receiver is not configured here"),
        )
        .hint("use the daemon's configuration: --config FILE")),
    }
}
