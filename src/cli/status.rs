//! `status`: counts and ages, and whether a person must look.

use super::arguments::Global;
use super::output::{plain, table};
use super::{Exit, Failure, Session};
use crate::clock::Timestamp;
use crate::outbox::hold::Hold;
use crate::store::sqlite::{Access, DaemonLock};
use crate::store::{ReceiverCounts, Store};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct Status<'a> {
    store: String,
    /// A daemon serves the database.
    daemon: bool,
    /// A person must look.
    attention: bool,
    receivers: &'a [ReceiverCounts],
    /// Receivers at which nothing begins for now.
    holds: &'a [Hold],
}

pub(super) async fn status(global: &Global, check: bool) -> Result<Exit, Failure> {
    let session = Session::open(global, Access::Existing).await?;
    let now = session.now().await?;
    let summary = session.store.summary(now).await?;
    let blocked: i64 = summary.receivers.iter().map(|counts| counts.blocked).sum();
    let status = Status {
        store: session.store.path().display().to_string(),
        daemon: DaemonLock::is_held(session.store.path()),
        attention: blocked > 0 || summary.holds.iter().any(|hold| hold.holds(now.wall)),
        receivers: &summary.receivers,
        holds: &summary.holds,
    };
    let mut text = format!(
        "database  {}\ndaemon    {}\n\n",
        plain(&status.store),
        if status.daemon { "running" } else { "not running: nothing is delivered" }
    );
    text.push_str(&if summary.receivers.is_empty() {
        "no operations are recorded".to_owned()
    } else {
        counts(&summary.receivers, now.wall)
    });
    for hold in &summary.holds {
        let (receiver, hold) = (plain(&hold.receiver), plain(&hold.to_string()));
        text.push_str(&format!("\n{receiver} is held: {hold}"));
    }
    session.output.result(&status, &text)?;
    if blocked > 0 {
        session.output.hint("next: handoff list --state blocked");
    }
    if !summary.holds.is_empty() {
        session.output.hint("to end a hold: handoff resume RECEIVER");
    }
    Ok(if check && status.attention { Exit::Attention } else { Exit::Done })
}

fn counts(receivers: &[ReceiverCounts], now: Timestamp) -> String {
    let row = |counts: &ReceiverCounts| {
        let reasons: Vec<String> = counts
            .blocked_by_reason
            .iter()
            .map(|(reason, number)| format!("{number} {reason}"))
            .collect();
        vec![
            plain(&counts.receiver),
            counts.pending.to_string(),
            counts.in_flight.to_string(),
            counts.sent.to_string(),
            counts.blocked.to_string(),
            counts.withdrawn.to_string(),
            age(counts.oldest_pending_at, now),
            age(counts.oldest_blocked_at, now),
            reasons.join(", "),
        ]
    };
    let rows: Vec<Vec<String>> = receivers.iter().map(row).collect();
    let heading = [
        "RECEIVER",
        "PENDING",
        "IN FLIGHT",
        "SENT",
        "BLOCKED",
        "WITHDRAWN",
        "OLDEST PENDING",
        "OLDEST BLOCKED",
        "WHY BLOCKED",
    ];
    table(&heading, &rows, |_, _, cell| cell)
}

/// How long ago something was, in whole seconds.
fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    since.map_or_else(
        || "-".to_owned(),
        |since| {
            let seconds = Duration::from_secs(now.since(since).as_secs());
            humantime::format_duration(seconds).to_string()
        },
    )
}
