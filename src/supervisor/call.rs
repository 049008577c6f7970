//! One call: an attempt, its receiver, and the end of waiting.

use crate::outbox::facts::AttemptKind;
use crate::outbox::look_up::{Finding, LookUpReport};
use crate::outbox::outcome::{NotBefore, NotTakenWhy, Outcome, Report};
use crate::process::ProcessGroup;
use crate::receiver::{Journal, NotKept, Receiver};
use crate::store::{Attempt, AttemptId, Store};
use async_trait::async_trait;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How long after it was decided an attempt may still begin. Past it, something
/// held the process or its commit up, and a window may have run out meanwhile.
const START_GRACE: Duration = Duration::from_secs(5);
/// Until the next try after one that was held up. It costs no try, so that
/// without a pause it would be tried again and again.
const LATE_PAUSE: Duration = Duration::from_secs(1);

/// A call that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) attempt: Attempt,
    /// What the adapter told; `None` if our own stop ended the wait.
    pub(super) told: Option<Told>,
    pub(super) took: Duration,
}

/// What an adapter told.
#[derive(Debug)]
pub(super) enum Told {
    Delivered(Report),
    LookedUp(LookUpReport),
}

/// The calls under way.
#[derive(Default)]
pub(super) struct Tasks {
    running: JoinSet<Ended>,
    ended: Vec<Ended>,
}

impl Tasks {
    pub(super) fn spawn(&mut self, call: impl Future<Output = Ended> + Send + 'static) {
        self.running.spawn(call);
    }

    /// Waits until one has ended; for ever if none runs.
    pub(super) async fn one(&mut self) {
        match self.running.join_next().await {
            Some(ended) => self.take(ended),
            None => std::future::pending().await,
        }
    }

    /// Whether no call runs, nor has ended without having been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ended.is_empty()
    }

    /// Whether every call has ended.
    pub(super) fn are_over(&mut self) -> bool {
        while let Some(ended) = self.running.try_join_next() {
            self.take(ended);
        }
        self.running.is_empty()
    }

    /// Everything that has ended by now.
    pub(super) fn ended(&mut self) -> Vec<Ended> {
        self.are_over();
        std::mem::take(&mut self.ended)
    }

    fn take(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(ended) => self.ended.push(ended),
            // The attempt went with it and stays open on disk, where the next
            // start takes it for a lost reply.
            Err(error) => tracing::error!(event = "call_lost", error = %error, "a call broke"),
        }
    }
}

/// Makes one call and waits for it no longer than its timeout, or our own stop.
///
/// The timeout runs from the moment for which the attempt was decided: a window
/// that was open for a call of that length then is open until its end.
pub(super) async fn call(
    attempt: Attempt,
    receiver: Arc<dyn Receiver>,
    journal: StoreJournal,
    timeout: Duration,
    decided: Instant,
    mut cut: watch::Receiver<bool>,
) -> Ended {
    let begun = Instant::now();
    if begun.duration_since(decided) > START_GRACE.min(timeout) {
        let told = Some(late_start(attempt.kind()));
        return Ended { attempt, told, took: Duration::ZERO };
    }
    let kind = attempt.kind();
    let made = async {
        match kind {
            AttemptKind::Deliver => Told::Delivered(receiver.deliver(&attempt, &journal).await),
            AttemptKind::LookUp => Told::LookedUp(receiver.look_up(&attempt, &journal).await),
        }
    };
    let told = tokio::select! {
        told = caught(made, kind) => Some(told),
        () = sleep_until(decided + timeout) => Some(no_answer(kind, "timeout")),
        _ = cut.wait_for(|cut| *cut) => None,
    };
    Ended { attempt, told, took: begun.elapsed() }
}

/// There is no answer, for this cause.
fn no_answer(kind: AttemptKind, error_code: &str) -> Told {
    match kind {
        AttemptKind::Deliver => Told::Delivered(Report::unknown(error_code)),
        AttemptKind::LookUp => Told::LookedUp(LookUpReport::cannot_tell(error_code)),
    }
}

/// The attempt was held up for too long and was not begun.
fn late_start(kind: AttemptKind) -> Told {
    let not_before = Some(NotBefore::After(LATE_PAUSE));
    if kind == AttemptKind::LookUp {
        let finding = Finding::CannotTell { not_before };
        return Told::LookedUp(LookUpReport::new(finding).code("late_start"));
    }
    let outcome = Outcome::NotTaken { why: NotTakenWhy::Stale, not_before };
    let report = Report::new(outcome).code("late_start");
    Told::Delivered(Report { request_sent: Some(false), ..report })
}

/// A panic of an adapter is an unknown outcome, not the end of the daemon.
async fn caught(made: impl Future<Output = Told>, kind: AttemptKind) -> Told {
    let mut made = pin!(made);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| made.as_mut().poll(context))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready(no_answer(kind, "adapter_panicked")),
    })
    .await
}

/// Writes down processes through the store.
pub(super) struct StoreJournal {
    store: Arc<dyn Store>,
}

impl StoreJournal {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl Journal for StoreJournal {
    async fn process_started(
        &self,
        attempt: &AttemptId,
        group: &ProcessGroup,
    ) -> Result<(), NotKept> {
        let noted = self.store.note_process(attempt, group).await;
        noted.map_err(|error| NotKept(error.to_string()))
    }
}
