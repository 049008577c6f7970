//! `retry` and `withdraw`: a person's acts on one operation.

use super::arguments::{Act as Arguments, Global, Withdraw};
use super::{Exit, Failure, Session, actor, no_such_key, output};
use crate::outbox::operation::APPROVER_BYTES_MAX;
use crate::outbox::policy::Step;
use crate::outbox::state::Verb;
use crate::store::sqlite::Access;
use crate::store::{Act, Acted, Store};

/// Longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 2_000;

pub(super) async fn retry(global: &Global, command: &Arguments) -> Result<Exit, Failure> {
    let reason = command.reason.as_deref();
    act(global, Verb::Retry, &command.key, command.version, command.actor.as_deref(), reason).await
}

pub(super) async fn withdraw(global: &Global, command: &Withdraw) -> Result<Exit, Failure> {
    let (actor, reason) = (command.actor.as_deref(), Some(command.reason.as_str()));
    act(global, Verb::Withdraw, &command.key, command.version, actor, reason).await
}

async fn act(
    global: &Global,
    verb: Verb,
    key: &str,
    version: Option<u64>,
    given_actor: Option<&str>,
    reason: Option<&str>,
) -> Result<Exit, Failure> {
    let who = person(given_actor, reason)?;
    let session = Session::open(global, Access::Existing).await?;
    let seen = session.store.find(key).await?.ok_or_else(|| no_such_key(key))?;
    let act = Act {
        key: key.to_owned(),
        verb,
        version: version.unwrap_or(seen.version),
        who,
        reason: reason.map(str::to_owned),
    };
    let now = session.now().await?;
    let acted = session.store.act(&session.rules, act, now).await?;
    report(&session, verb, key, acted)
}

/// Who acts, if that and the reason can be kept.
pub(super) fn person(given: Option<&str>, reason: Option<&str>) -> Result<String, Failure> {
    let who = actor(given);
    if who.trim().is_empty() || who.len() > APPROVER_BYTES_MAX || who.contains(char::is_control) {
        return Err(Failure::new(Exit::Refused, "--as must name who acts, in 1 to 200 bytes"));
    }
    if reason.is_some_and(|reason| reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX) {
        let message = format!("--reason must say why, in 1 to {REASON_BYTES_MAX} bytes");
        return Err(Failure::new(Exit::Refused, message));
    }
    Ok(who)
}

fn report(session: &Session, verb: Verb, key: &str, acted: Acted) -> Result<Exit, Failure> {
    let key = output::plain(key);
    match acted {
        Acted::Done(row, follows) => {
            let text = match (verb, follows.step) {
                (Verb::Withdraw, _) => {
                    format!("{key} is withdrawn; effect at the receiver: {}", row.effect)
                }
                (Verb::Retry, Step::Wait { gate, until: Some(time) }) => {
                    format!("{key} will be delivered once more; it waits ({gate}) until {time}")
                }
                (Verb::Retry, _) => format!("{key} is due now"),
            };
            session.output.result(&row, &text)?;
            if verb == Verb::Retry {
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
        .hint(format!("handoff explain {key}"))),
        Acted::NotConfigured(_) => Err(Failure::new(
            Exit::Failed,
            format!("{verb} is refused for {key}: its type or receiver is not configured here"),
        )
        .hint("use the daemon's configuration: --config FILE")),
    }
}
