//! `pause` and `resume`: a person holds receivers, and lets them go.

use super::act::person;
use super::arguments::{Global, Hold as Arguments};
use super::output::plain;
use super::{Exit, Failure, Session};
use crate::outbox::hold::Hold;
use crate::store::sqlite::Access;
use crate::store::{HoldAct, Store};
use std::collections::BTreeSet;

pub(super) async fn pause(global: &Global, command: &Arguments) -> Result<Exit, Failure> {
    let who = person(command.actor.as_deref(), command.reason.as_deref())?;
    let session = Session::open(global, Access::Existing).await?;
    let known: BTreeSet<String> = session.rules.receivers.keys().cloned().collect();
    let act = act(command, who, &known)?;
    let now = session.now().await?;
    let held = session.store.pause(act, now).await?;
    session.output.result(&held, &lines(&held, "is held"))?;
    session.output.hint("calls under way end as they may; go on with: handoff resume");
    Ok(Exit::Done)
}

pub(super) async fn resume(global: &Global, command: &Arguments) -> Result<Exit, Failure> {
    let who = person(command.actor.as_deref(), command.reason.as_deref())?;
    let session = Session::open(global, Access::Existing).await?;
    let now = session.now().await?;
    let mut known: BTreeSet<String> = session.rules.receivers.keys().cloned().collect();
    // One that is configured no longer can be let go as well.
    known.extend(session.store.holds(now).await?.into_iter().map(|hold| hold.receiver));
    let act = act(command, who, &known)?;
    let ended = session.store.resume(act, now).await?;
    let text = match ended.as_slice() {
        [] => "nothing was held".to_owned(),
        ended => lines(ended, "is released; it was held"),
    };
    session.output.result(&ended, &text)?;
    session.warn_without_daemon();
    Ok(Exit::Done)
}

fn act(command: &Arguments, who: String, known: &BTreeSet<String>) -> Result<HoldAct, Failure> {
    let receivers = match &command.receiver {
        None => known.iter().cloned().collect(),
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => {
            let message = format!("there is no receiver {} in this configuration", plain(name));
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(Failure::new(Exit::Failed, message)
                .hint(format!("there are: {}", known.join(", "))));
        }
    };
    Ok(HoldAct { receivers, who, reason: command.reason.clone() })
}

fn lines(holds: &[Hold], what: &str) -> String {
    let line =
        |hold: &Hold| format!("{} {what}: {}", plain(&hold.receiver), plain(&hold.to_string()));
    holds.iter().map(line).collect::<Vec<_>>().join("\n")
}
