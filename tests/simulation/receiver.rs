//! The adapter that the supervisor calls: it hands the request over and waits
//! until the simulation speaks.

use crate::ground::{Call, Site, Stage, Told, Word};
use crate::laws;
use async_trait::async_trait;
use handoff::outbox::outcome::{OutcomeKind, Report};
use handoff::receiver::{Journal, Receiver};
use handoff::store::Attempt;
use tokio::sync::oneshot;

/// One receiver, as one process has configured it.
pub(crate) struct Adapter {
    pub(crate) site: Site,
    pub(crate) lane: usize,
    pub(crate) account: String,
    pub(crate) timeout: i64,
    pub(crate) process: u32,
}

#[async_trait]
impl Receiver for Adapter {
    async fn deliver(&self, attempt: &Attempt, _: &dyn Journal) -> Report {
        let (wait, place) = self.hand_over(attempt);
        let _given_up = GivenUp { site: self.site.clone(), place };
        match wait.await {
            Ok(Word::Report(report)) => report,
            Ok(Word::Panic) => std::panic::resume_unwind(Box::new("the adapter panics")),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Adapter {
    /// The first byte leaves.
    fn hand_over(&self, attempt: &Attempt) -> (oneshot::Receiver<Word>, usize) {
        let (ear, wait) = oneshot::channel();
        let mut ground = self.site.look();
        let call = Call {
            key: attempt.key().as_str().to_owned(),
            number: attempt.id().number,
            lane: self.lane,
            account: self.account.clone(),
            payload: attempt.payload().to_owned(),
            process: self.process,
            suspect: attempt.is_suspect(),
            begun: ground.decided,
            over: None,
            deadline: ground.decided + self.timeout,
            stage: Stage::UnderWay,
            doubled: false,
            twin: false,
            arrived: 0,
            reply: None,
            ear: Some(ear),
            until: None,
        };
        ground.note(format!("  called {} at {}", call.name(), call.account));
        ground.count("called");
        laws::call::check(&mut ground, &call, self.timeout);
        ground.calls.push(call);
        (wait, ground.calls.len() - 1)
    }
}

/// Notices that the call is not waited for any more.
struct GivenUp {
    site: Site,
    place: usize,
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        let mut ground = self.site.look();
        let now = ground.times.truth;
        let call = &mut ground.calls[self.place];
        // If it was spoken to, its end is known.
        if call.ear.take().is_none() {
            return;
        }
        let (name, process, deadline) = (call.name(), call.process, call.deadline);
        if ground.dead.contains(&process) {
            return ground.keep_to_the_timeout(self.place);
        }
        let kind = if ground.cut.contains(&process) {
            OutcomeKind::CutOff
        } else {
            if now < deadline {
                ground.violation(format!("{name} was given up before its timeout"));
            }
            OutcomeKind::Unknown
        };
        ground.give_up(self.place);
        if kind == OutcomeKind::CutOff {
            ground.cut_calls.insert(name);
        } else {
            ground.note(format!("  given up {name}: {kind}"));
        }
        ground.count(if kind == OutcomeKind::CutOff { "cut off" } else { "timed out" });
        let call = &ground.calls[self.place];
        let told = Told {
            process,
            key: call.key.clone(),
            number: call.number,
            kind,
            ready: false,
            before: false,
            asked: None,
            pause: None,
        };
        ground.told.push(told);
    }
}
