//! The simulated CRM: a receiver with which every bad day can be rehearsed.
//!
//! What it does with a request is its own affair and is kept in a file of its
//! own; what of that reaches us is decided by the fault plan. This adapter knows
//! no more than an adapter of a real CRM would:
//!
//! | fault | what the CRM does | what is reported |
//! | --- | --- | --- |
//! | none | as its mode says | its answer |
//! | `unreachable` | nothing | not taken, `unreachable` |
//! | `lose_reply` | as its mode says | unknown, `reply_lost` |
//! | `late` | as its mode says, after the delay | unknown at once, `reply_lost` |
//! | `throttle` | nothing | not taken, `http_429` |
//! | `server_error` | as its mode says, or nothing, by chance | unknown, `http_500` |
//! | `reject` | nothing | rejected, `http_422` |
//! | `conflict` | nothing | conflict, `http_409` |
//! | `unauthorised` | nothing | unauthorised, `http_403` |
//! | `locked_out` | nothing | unauthorised as a whole, `http_401` |
//! | `slow` | as its mode says | its answer, after the delay |
//! | `malformed` | as its mode says | unknown, `unreadable_reply` |
//! | `crash_before` | nothing | this process is killed |
//! | `crash_after` | as its mode says | this process is killed |
//!
//! A look-up asks for the key in the table of tasks. A fault that meets it keeps the
//! answer back and changes nothing at the CRM: it cannot tell.
//!
//! If its own database fails before it has written anything, the request never
//! arrived, whatever the plan says: not taken, `crm_unavailable`. If that fails
//! later, nobody can tell: unknown, `crm_error`.

mod crm;
#[cfg(test)]
mod tests;

pub use crm::{OpenError, Task, task_count, tasks_of};

use super::fault::{self, Delivery, Fault, What};
use super::{Journal, Receiver};
use crate::jitter::Seed;
use crate::outbox::contract::{Contract, Mode};
use crate::outbox::look_up::{Content, Finding, LookUpReport};
use crate::outbox::outcome::{NotBefore, NotTakenWhy, Outcome, Report};
use crate::store::Attempt;
use async_trait::async_trait;
use crm::{Crm, Failure, Held, Replay, Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// What the simulated CRM needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its database file.
    pub path: PathBuf,
    /// Whether it knows a key again; as its mode says, if absent. A CRM of mode
    /// `none` or `look_up` does not look at keys, so that this changes nothing.
    pub unique: Option<bool>,
    /// What it really does; as its contract says, if absent.
    pub mode: Option<Mode>,
    /// What goes wrong. The first line that matches an attempt counts.
    pub faults: Vec<Fault>,
}

/// The simulated CRM, with its fault plan.
#[derive(Debug)]
pub struct Simulated {
    crm: Crm,
    faults: Vec<Fault>,
    seed: Seed,
    started: Instant,
}

impl Simulated {
    /// Opens the CRM's file, and makes it and its folder if they are missing.
    ///
    /// The fault plan's time begins here.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the folder cannot be made or the file is not a database
    /// that can hold tasks. One that is locked is only a CRM that is down.
    pub fn open(settings: &Settings, contract: &Contract, seed: Seed) -> Result<Self, OpenError> {
        let replay = Replay::of(settings.mode.unwrap_or(contract.mode), settings.unique);
        Ok(Self {
            crm: Crm::open(&settings.path, replay, crm::PATIENCE)?,
            faults: settings.faults.clone(),
            seed,
            started: Instant::now(),
        })
    }

    async fn call(&self, key: &str, payload: &str, number: u32, attempt: u32) -> Report {
        let request = Request { key: key.to_owned(), payload: payload.to_owned(), attempt };
        let delivery = Delivery { key, number, elapsed: self.started.elapsed() };
        let Some(what) = fault::met_by(&self.faults, delivery, self.seed) else {
            return self.answer(request).await;
        };
        match what {
            What::Unreachable => Report::not_taken(NotTakenWhy::Unreachable, "unreachable"),
            What::LoseReply => self.accept_then(request, reply_lost).await,
            What::Late(delay) => {
                self.accept_late(request, delay);
                reply_lost()
            }
            What::Throttle(retry_after) => throttled(retry_after),
            What::ServerError if delivery.accepted_despite_error(self.seed) => {
                self.accept_then(request, server_error).await
            }
            What::ServerError => server_error(),
            What::Reject => answered(Outcome::Rejected, 422),
            What::Conflict => answered(Outcome::Conflict, 409),
            What::Unauthorised => answered(Outcome::Unauthorised { whole_receiver: false }, 403),
            What::LockedOut => answered(Outcome::Unauthorised { whole_receiver: true }, 401),
            What::Slow(delay) => {
                let report = self.answer(request).await;
                tokio::time::sleep(delay).await;
                report
            }
            What::Malformed => self.accept_then(request, unreadable).await,
            What::CrashBefore => crash(),
            What::CrashAfter => self.accept_then(request, || crash()).await,
        }
    }

    async fn asked(&self, request: Request, number: u32) -> LookUpReport {
        let Some(what) = fault::met_by_look_up(&self.faults, number, self.started.elapsed()) else {
            return self.held(request).await;
        };
        match what {
            What::Slow(delay) => {
                let report = self.held(request).await;
                tokio::time::sleep(delay).await;
                report
            }
            What::Throttle(retry_after) => {
                let not_before = retry_after.map(NotBefore::After);
                refused(429, Finding::CannotTell { not_before })
            }
            What::ServerError => refused(500, Finding::CannotTell { not_before: None }),
            What::Unauthorised => refused(403, Finding::CannotTell { not_before: None }),
            What::LockedOut => refused(401, Finding::CannotTell { not_before: None }),
            What::Reject => refused(422, Finding::CannotTell { not_before: None }),
            What::Conflict => refused(409, Finding::CannotTell { not_before: None }),
            What::Unreachable => LookUpReport::cannot_tell("unreachable"),
            What::LoseReply | What::Late(_) => LookUpReport::cannot_tell("reply_lost"),
            What::Malformed => LookUpReport::cannot_tell("unreadable_reply"),
            What::CrashBefore | What::CrashAfter => crash(),
        }
    }

    /// What the CRM holds under the request's key.
    async fn held(&self, request: Request) -> LookUpReport {
        let found = |task: i64, content| {
            let remote_id = Some(task.to_string());
            LookUpReport::new(Finding::Found { remote_id, content })
        };
        match self.crm.look_up(request).await {
            Ok(Held::Nothing) => LookUpReport::new(Finding::Absent),
            Ok(Held::One(task, true)) => found(task, Content::Equal),
            Ok(Held::One(task, false)) => {
                found(task, Content::Differs).evidence("the CRM holds other content under this key")
            }
            Ok(Held::Several(count)) => LookUpReport::new(Finding::Many)
                .evidence(&format!("the CRM holds {count} tasks under this key")),
            Err(why) => LookUpReport::cannot_tell("crm_unavailable").evidence(&why),
        }
    }

    /// Hands the request over and reports the answer.
    async fn answer(&self, request: Request) -> Report {
        match self.crm.accept(request).await {
            Ok(reply) => reported(reply),
            Err(Failure::Unavailable(why)) => unavailable(&why),
            Err(Failure::InDoubt(why)) => Report::unknown("crm_error").evidence(&why),
        }
    }

    /// Hands the request over, and whatever the answer is, something else comes of it.
    async fn accept_then(&self, request: Request, instead: impl FnOnce() -> Report) -> Report {
        match self.crm.accept(request).await {
            Err(Failure::Unavailable(why)) => unavailable(&why),
            Ok(_) | Err(Failure::InDoubt(_)) => instead(),
        }
    }

    /// Leaves the request with the CRM, which takes it after the delay.
    ///
    /// That is the CRM's work and not the call's: it goes on when the call has
    /// been given up. Since this CRM lives in our process, the request is lost
    /// if the process ends before.
    fn accept_late(&self, request: Request, delay: Duration) {
        let crm = self.crm.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // Nobody waits for the answer any more.
            crm.accept(request).await.ok();
        });
    }
}

#[async_trait]
impl Receiver for Simulated {
    async fn deliver(&self, attempt: &Attempt, _journal: &dyn Journal) -> Report {
        let (key, number) = (attempt.key().as_str(), attempt.id().number);
        self.call(key, attempt.payload(), attempt.delivery(), number).await
    }

    async fn look_up(&self, attempt: &Attempt, _journal: &dyn Journal) -> LookUpReport {
        let (key, payload) = (attempt.key().as_str().to_owned(), attempt.payload().to_owned());
        let request = Request { key, payload, attempt: attempt.id().number };
        self.asked(request, attempt.look_up()).await
    }
}

fn reported(reply: Reply) -> Report {
    match reply {
        Reply::Done(task) => Report::applied(Some(task.to_string())),
        Reply::Replayed(task) => {
            Report::new(Outcome::Applied { remote_id: Some(task.to_string()), replayed: true })
        }
        Reply::Exists(task) => {
            Report::new(Outcome::AlreadyExists { remote_id: Some(task.to_string()) })
        }
        Reply::Conflict => {
            answered(Outcome::Conflict, 409).evidence("the CRM holds other content under this key")
        }
    }
}

/// A look-up that the CRM answers with an HTTP status alone.
fn refused(status: u16, finding: Finding) -> LookUpReport {
    let report = LookUpReport::new(finding).code(&format!("http_{status}"));
    LookUpReport { http_status: Some(status), ..report }
}

/// A definite answer with an HTTP status.
fn answered(outcome: Outcome, status: u16) -> Report {
    let report = Report::new(outcome).code(&format!("http_{status}"));
    Report { http_status: Some(status), ..report }
}

fn throttled(retry_after: Option<Duration>) -> Report {
    let not_before = retry_after.map(NotBefore::After);
    answered(Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before }, 429)
}

fn server_error() -> Report {
    answered(Outcome::Unknown, 500)
}

fn reply_lost() -> Report {
    Report::unknown("reply_lost").evidence("the connection ended before the reply came")
}

fn unreadable() -> Report {
    Report::unknown("unreadable_reply").evidence("the reply could not be read")
}

fn unavailable(why: &str) -> Report {
    Report::not_taken(NotTakenWhy::Unreachable, "crm_unavailable").evidence(why)
}

/// Ends this process as a power cut would: nothing is flushed, stored or told.
fn crash() -> ! {
    kill(Pid::this(), Signal::SIGKILL).ok();
    // Only where the kernel does not let us kill ourselves.
    std::process::abort()
}
