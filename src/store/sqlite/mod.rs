//! SQLite: the embedded store.
//!
//! One writer commits in groups; reads go through a connection of their own.
//! Each file here holds one subject, each function one transaction's part of it
//! as a plain closure, in which nothing can be waited for.

mod act;
mod audit;
mod breakers;
mod claim;
mod conclude;
mod connection;
mod holds;
mod lock;
mod meta;
mod mirror;
mod neighbours;
mod operation;
mod place;
mod rates;
mod read;
mod recover;
mod steps;
mod update;
mod versions;
mod words;
mod writer;

pub use connection::Access;
pub use lock::DaemonLock;
pub use place::{folder_of, path_of};

use super::{
    Act, Acted, Attempt, AttemptId, AttemptRow, Event, Filter, HoldAct, Mirror, OperationRow, Pass,
    Passed, Recovered, Settings, Store, StoreError, Summary, Upkeep,
};
use crate::clock::{Now, SteadyMark, Steps};
use crate::outbox::hold::Hold;
use crate::outbox::key::OperationKey;
use crate::outbox::operation::Operation;
use crate::outbox::payload::Payload;
use crate::outbox::rules::Rules;
use crate::process::ProcessGroup;
use crate::record::{RecordError, Recorded, record_if_same};
use async_trait::async_trait;
use conclude::Saving;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use writer::{Class, Job, Place, Writer};

/// An open database.
pub struct Sqlite {
    path: PathBuf,
    file: place::FileId,
    instance: Arc<str>,
    writer: Writer,
    reader: tokio_rusqlite::Connection,
}

impl Sqlite {
    /// Opens the database, and makes what may be made.
    ///
    /// `instance` names this process in the attempts that it makes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] for what may pass or can be mended outside,
    /// [`StoreError::Unusable`] for a file that this program must not touch.
    pub async fn open(
        settings: &Settings,
        access: Access,
        instance: &str,
    ) -> Result<Self, StoreError> {
        let settings = settings.clone();
        let busy_timeout = settings.busy_timeout;
        let opened = tokio::task::spawn_blocking(move || {
            let path = connection::prepare(&settings, access)?;
            let writer = connection::open_writer(&path, settings.busy_timeout, access)?;
            let reader = connection::open_reader(&path, settings.busy_timeout)?;
            let file = place::FileId::of(&path).map_err(|error| connection::lost(&path, &error))?;
            Ok::<_, StoreError>((path, file, writer, reader))
        });
        let (path, file, writer, reader) = opened.await.map_err(|_| StoreError::Closed)??;
        let place = Place { path: path.clone(), busy_timeout };
        Ok(Self {
            path,
            file,
            instance: Arc::from(instance),
            writer: Writer::start(tokio_rusqlite::Connection::from(writer), place),
            reader: tokio_rusqlite::Connection::from(reader),
        })
    }

    /// The database's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self.reader.call(move |db| read(db)).await;
        done.map_err(|error| match error {
            tokio_rusqlite::Error::Error(error) => connection::at(&self.path, error),
            _ => StoreError::Closed,
        })
    }

    fn save_job(&self, rules: &Arc<Rules>, pass: &Pass) -> (Job, writer::Pending<Vec<Event>>) {
        let (rules, concluded) = (Arc::clone(rules), Arc::clone(&pass.concluded));
        // Done again after an error, it reads what is really there.
        let mut remembered = true;
        Job::new(Class::Outcome, move |tx| {
            let remembered = std::mem::take(&mut remembered);
            let mut saving = Saving::prepare(tx, &rules)?;
            let mut events = Vec::new();
            for one in concluded.iter() {
                events.extend(if remembered {
                    saving.save_remembered(one)?
                } else {
                    saving.save(&one.as_ref().into())?
                });
            }
            Ok(events)
        })
    }

    fn claim_job(
        &self,
        rules: &Arc<Rules>,
        pass: &Pass,
        now: Now,
    ) -> (Job, writer::Pending<claim::Claimed>) {
        let (rules, slots) = (Arc::clone(rules), pass.slots.clone());
        let instance = Arc::clone(&self.instance);
        Job::new(Class::Claim, move |tx| claim::claim(tx, &rules, &slots, &instance, now))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn pass(&self, rules: &Arc<Rules>, pass: Pass, now: Now) -> Result<Passed, StoreError> {
        let mut passed = Passed::default();
        if pass.concluded.is_empty() {
            // Look before taking the write lock: most wake-ups find nothing.
            let (rules, slots) = (Arc::clone(rules), pass.slots.clone());
            let seen = self.read(move |db| claim::look(db, &rules, &slots, now)).await?;
            if !seen.due {
                (passed.next_due, passed.held) = (seen.next_due, seen.held);
                return Ok(passed);
            }
        }
        let (save, saved) = self.save_job(rules, &pass);
        let (claim, claimed) = self.claim_job(rules, &pass, now);
        self.writer.submit(vec![save, claim]).await?;
        passed.events = saved.committed().await?;
        // The outcomes are safe. A claim that failed is tried again by the next
        // pass; what it may have begun is disowned first.
        let claimed = claimed.committed().await.map_err(|error| StoreError::ClaimFailed {
            saved: std::mem::take(&mut passed.events),
            source: Box::new(error),
        })?;
        passed.begun = claimed.begun.into_iter().map(Attempt::committed).collect();
        passed.events.extend(claimed.events);
        passed.next_due = claimed.next_due;
        passed.more = claimed.more;
        passed.held = claimed.held;
        Ok(passed)
    }

    async fn ready(&self) {
        self.writer.ready().await;
    }

    async fn recover(
        &self,
        rules: &Arc<Rules>,
        mark: Option<&SteadyMark>,
        now: Now,
    ) -> Result<Recovered, StoreError> {
        let (rules, mark) = (Arc::clone(rules), mark.cloned());
        self.writer
            .run(Class::Outcome, move |tx| recover::recover(tx, &rules, mark.as_ref(), now))
            .await
    }

    async fn disown(
        &self,
        rules: &Arc<Rules>,
        holding: Vec<AttemptId>,
        now: Now,
    ) -> Result<Vec<Event>, StoreError> {
        let (rules, instance) = (Arc::clone(rules), Arc::clone(&self.instance));
        let holding: BTreeSet<AttemptId> = holding.into_iter().collect();
        self.writer
            .run(Class::Outcome, move |tx| recover::disown(tx, &rules, &instance, &holding, now))
            .await
    }

    async fn mind_steps(
        &self,
        rules: &Arc<Rules>,
        mark: &SteadyMark,
        now: Now,
    ) -> Result<Steps, StoreError> {
        // A mark on its own must not overtake what has to change with it.
        self.writer.keep_mark(None);
        let (rules, mark) = (Arc::clone(rules), mark.clone());
        self.writer.run(Class::Request, move |tx| steps::mind(tx, &rules, &mark, now)).await
    }

    async fn note_process(
        &self,
        attempt: &AttemptId,
        group: &ProcessGroup,
    ) -> Result<(), StoreError> {
        let (attempt, group) = (attempt.clone(), group.clone());
        let instance = Arc::clone(&self.instance);
        let noted = self
            .writer
            .run(Class::Outcome, move |tx| recover::note_process(tx, &attempt, &instance, &group))
            .await?;
        // An attempt that is not open any more must not begin its work.
        if noted == 1 { Ok(()) } else { Err(StoreError::NotOpen) }
    }

    async fn left_processes(&self) -> Result<Vec<(AttemptId, ProcessGroup)>, StoreError> {
        self.read(recover::left_processes).await
    }

    async fn record(
        &self,
        rules: &Arc<Rules>,
        operation: Operation,
    ) -> Result<Result<Recorded, RecordError>, StoreError> {
        let rules = Arc::clone(rules);
        self.writer
            .run(Class::Request, move |tx| {
                let kind = rules.type_of(&operation.key);
                let fingerprint_of = |text: &str| {
                    let payload = Payload::parse(text).ok()?;
                    // As its type would have it, or as it is where it does not fit.
                    let prepared =
                        kind.and_then(|kind| kind.prepare(payload.object().clone()).ok());
                    Some(prepared.as_ref().unwrap_or(&payload).fingerprint())
                };
                match record_if_same(tx, &operation, &fingerprint_of) {
                    Err(RecordError::Database(error) | RecordError::NoTables(error)) => Err(error),
                    recorded => Ok(recorded),
                }
            })
            .await
    }

    async fn other_version(&self, key: &OperationKey) -> Result<Option<String>, StoreError> {
        let key = key.clone();
        self.read(move |db| versions::Versions::new(db).other(&key, i64::MAX)).await
    }

    async fn act(&self, rules: &Arc<Rules>, act: Act, now: Now) -> Result<Acted, StoreError> {
        let rules = Arc::clone(rules);
        self.writer.run(Class::Request, move |tx| act::act(tx, &rules, &act, now)).await
    }

    async fn pause(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.writer.run(Class::Request, move |tx| holds::pause(tx, &act, now)).await
    }

    async fn resume(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.writer.run(Class::Request, move |tx| holds::resume(tx, &act, now)).await
    }

    async fn holds(&self, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.read(move |db| holds::in_force(db, now)).await
    }

    async fn mirror(&self, rules: &Arc<Rules>, how: Mirror) -> Result<(), StoreError> {
        let rules = Arc::clone(rules);
        self.writer.run(Class::Request, move |tx| mirror::mirror(tx, &rules, how)).await
    }

    async fn find(&self, key: &str) -> Result<Option<OperationRow>, StoreError> {
        let key = key.to_owned();
        self.read(move |db| read::find(db, &key)).await
    }

    async fn history(&self, key: &str) -> Result<Vec<AttemptRow>, StoreError> {
        let key = key.to_owned();
        self.read(move |db| read::history(db, &key)).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<OperationRow>, StoreError> {
        self.read(move |db| read::list(db, &filter)).await
    }

    async fn summary(&self, now: Now) -> Result<Summary, StoreError> {
        self.read(move |db| read::summary(db, now)).await
    }

    async fn steady_mark(&self) -> Result<Option<SteadyMark>, StoreError> {
        self.read(meta::read_mark).await
    }

    fn keep_mark(&self, mark: SteadyMark) {
        self.writer.keep_mark(Some(mark));
    }

    async fn upkeep(&self) -> Result<Upkeep, StoreError> {
        if self.file.is_gone_from(&self.path) {
            return Err(connection::replaced(&self.path));
        }
        let size = || std::fs::metadata(connection::wal_of(&self.path)).map_or(0, |log| log.len());
        if size() <= connection::LOG_BYTES {
            return Ok(Upkeep::Fine);
        }
        self.writer.shrink_log().await?;
        let bytes = size();
        let large = bytes > connection::LOG_BYTES;
        Ok(if large { Upkeep::LargeLog { bytes } } else { Upkeep::Fine })
    }

    async fn close(&self) -> Result<(), StoreError> {
        // The last mark of the steady clock goes with an empty group.
        self.writer.run(Class::Request, |_| Ok(())).await?;
        self.writer.checkpoint().await
    }
}
