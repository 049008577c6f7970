//! A program that is started for each attempt.
//!
//! # What the program is given
//!
//! Standard input holds one JSON object and a line feed, and ends there:
//!
//! ```json
//! {"protocol":1,"operation_key":"harbor:create-followup:v1:case-104",
//!  "type":"create-followup","receiver":"crm","payload":{"case_id":"case-104"}}
//! ```
//!
//! (on one line). It is the same, byte for byte, on every attempt. The payload
//! is the canonical text that was approved. The environment holds the declared
//! variables that are set, and nothing else. Standard input need not be read.
//!
//! # What it says
//!
//! Its exit status decides, and nothing else does.
//!
//! | exit status | outcome |
//! | --- | --- |
//! | 0 | applied, or what standard output says |
//! | 69, 75 | not taken, may pass later |
//! | 65, 76, 77 | rejected for good |
//! | any other, a signal | unknown |
//!
//! With status 0, standard output may hold one JSON object of at most 64 KiB,
//! `{"outcome"?, "remote_id"?, "message"?}`. The outcome is `applied` (if
//! absent), `already_exists`, `conflict`, `in_progress` or `rejected`; any
//! other is unknown. The id is a string or a whole number. Nothing at all is
//! `applied` without a receipt, and so is other output, unless it holds the
//! name `"outcome"`: then the program said something that we cannot read, and
//! the outcome is unknown.
//!
//! # What is left running
//!
//! Each attempt is a process group of its own. A call that is dropped, by its
//! timeout or our stop, kills the whole group at once. After an exit of the
//! program's own, the rest of its group is left alone, since a program may
//! leave a logger behind on purpose; its output is not read any more, so it
//! should have a place of its own for it. A process that leaves the group
//! (`setsid`) is out of reach in every case.

mod answer;
mod child;
pub(super) mod evidence;
#[cfg(test)]
mod tests;

use super::{AttemptId, Journal, NotKept, Receiver, launcher};
use crate::outbox::outcome::{NotBefore, NotTakenWhy, Outcome, Report};
use crate::store::Attempt;
use async_trait::async_trait;
use child::Started;
use evidence::Mask;
use serde_json::Value;
use std::ffi::OsString;
use std::time::Duration;

/// The file of this very program, whatever has become of the one on disk since.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Version of what a program is given and says.
const PROTOCOL: u32 = 1;
/// After a process group could not be stored, the least time until the next try.
const NOTE_PAUSE: Duration = Duration::from_secs(1);

/// How a program is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program's absolute path, and its arguments.
    pub program: Vec<String>,
    /// Names of the environment variables that it is given.
    pub environment: Vec<String>,
}

/// A receiver that is a program on this machine.
pub struct Command {
    name: String,
    program: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    mask: Mask,
    /// A program with its first arguments; tests put another in its place.
    launcher: Vec<OsString>,
}

impl Command {
    /// A receiver of this name. Reads the declared environment variables now,
    /// so that every attempt is given the same.
    pub fn new(settings: Settings, receiver_name: String) -> Self {
        let set = |name: String| Some((OsString::from(&name), std::env::var_os(&name)?));
        let environment: Vec<_> = settings.environment.into_iter().filter_map(set).collect();
        let mask = Mask::of(&environment);
        let launcher = vec![OsString::from(OWN_PROGRAM)];
        Self { name: receiver_name, program: settings.program, environment, mask, launcher }
    }

    /// Delivers one request; `id` is only for the journal.
    async fn hand_over(&self, id: &AttemptId, request: &[u8], journal: &dyn Journal) -> Report {
        let started = launcher::nonce().and_then(|nonce| {
            let started = Started::spawn(&self.launcher, &nonce, &self.program, &self.environment)?;
            Ok((nonce, started))
        });
        let (nonce, started) = match started {
            Ok(started) => started,
            Err(error) => return answer::spawn_failed(&error.to_string(), &self.mask),
        };
        if let Err(error) = note(id, &started, journal).await {
            started.call_off().await;
            return not_noted().evidence(&self.mask.show(&error.to_string()));
        }
        answer::report(&started.run(request).await, &nonce, &self.mask)
    }

    /// What the program reads. Nothing in it may vary between attempts.
    fn request(&self, key: &str, kind: &str, payload: &str) -> Vec<u8> {
        let [key, kind, receiver] =
            [key, kind, &self.name].map(|text| Value::from(text).to_string());
        format!(
            "{{\"protocol\":{PROTOCOL},\"operation_key\":{key},\"type\":{kind},\
             \"receiver\":{receiver},\"payload\":{payload}}}\n"
        )
        .into_bytes()
    }
}

/// The program was not let go. What stands in the way may do so for long, and
/// costs no try, so that without a pause it would be tried again and again.
fn not_noted() -> Report {
    let not_before = Some(NotBefore::After(NOTE_PAUSE));
    let outcome = Outcome::NotTaken { why: NotTakenWhy::Stale, not_before };
    Report { request_sent: Some(false), ..Report::new(outcome).code("not_noted") }
}

/// Has the process group stored, which must be so before the program may run.
async fn note(id: &AttemptId, started: &Started, journal: &dyn Journal) -> Result<(), NotKept> {
    let group =
        started.group().ok_or_else(|| NotKept("the process group cannot be told".to_owned()))?;
    journal.process_started(id, &group).await
}

#[async_trait]
impl Receiver for Command {
    async fn deliver(&self, attempt: &Attempt, journal: &dyn Journal) -> Report {
        let key = attempt.key();
        let request = self.request(key.as_str(), key.kind(), attempt.payload());
        self.hand_over(attempt.id(), &request, journal).await
    }
}
