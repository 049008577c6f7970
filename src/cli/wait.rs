//! `wait`: until an operation is settled.

use super::arguments::{Global, Wait};
use super::{Exit, Failure, Session, no_such_key, output};
use crate::outbox::state::State;
use crate::store::sqlite::Access;
use crate::store::{OperationRow, Store};
use crate::wake::Watcher;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How often it looks if no commit is noticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn wait(global: &Global, command: &Wait) -> Result<Exit, Failure> {
    let session = Session::open(global, Access::Existing).await?;
    let deadline = command.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let committed = Arc::new(Notify::new());
    // A hint; without it the look at every interval has to do.
    let _watcher = Watcher::start(session.store.path(), Arc::clone(&committed)).ok();
    let mut warned = false;
    loop {
        let found = session.store.find(&command.key).await?;
        let row = found.ok_or_else(|| no_such_key(&command.key))?;
        if let Some(exit) = settled(&row) {
            return end(&session, &row, exit);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            session.output.warn("the time is over; it is not settled yet");
            return end(&session, &row, Exit::Failed);
        }
        if !warned {
            session.warn_without_daemon();
            warned = true;
        }
        let look = Instant::now() + LOOK_INTERVAL;
        tokio::select! {
            () = committed.notified() => {}
            () = sleep_until(deadline.map_or(look, |deadline| deadline.min(look))) => {}
        }
    }
}

fn settled(row: &OperationRow) -> Option<Exit> {
    match row.state {
        State::Pending => None,
        State::Sent => Some(Exit::Done),
        State::Blocked | State::Withdrawn => Some(Exit::Attention),
    }
}

fn end(session: &Session, row: &OperationRow, exit: Exit) -> Result<Exit, Failure> {
    let key = output::plain(&row.operation_key);
    let text = match (row.state, &row.remote_id, row.blocked_reason) {
        (State::Sent, Some(id), _) => format!("{key} is sent, receipt {}", output::plain(id)),
        (State::Blocked, _, Some(reason)) => format!("{key} is blocked ({reason})"),
        (state, _, _) => format!("{key} is {state}"),
    };
    session.output.result(row, &text)?;
    if exit != Exit::Done {
        session.output.hint(&format!("next: handoff explain {key}"));
    }
    Ok(exit)
}
