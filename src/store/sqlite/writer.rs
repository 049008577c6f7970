//! The one writer: takes jobs as they come and commits them in groups.
//!
//! Jobs that are ready together share one transaction, outcomes first and claims
//! last, so that a synced commit is paid once for many. After any error in a
//! group its jobs are done again, each in a transaction of its own: a job never
//! counts as done because another one's commit went through.

use super::connection::{self, is_busy};
use super::neighbours::{Neighbours, Wait};
use crate::clock::SteadyMark;
use crate::store::StoreError;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Jobs that share one transaction at most, so that its length stays bounded.
const GROUP: usize = 256;
/// The order within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// What became of a call: must not be lost.
    Outcome,
    /// Somebody waits for the answer.
    Request,
    /// New work comes last.
    Claim,
}

type Work = Box<dyn FnMut(&Transaction<'_>) -> Result<(), rusqlite::Error> + Send>;

/// One piece of work. It may be run more than once, and must then come to the
/// same end: it reads what is there before it writes.
pub(super) struct Job {
    class: Class,
    work: Work,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// What a job has produced, once it is committed.
pub(super) struct Pending<T> {
    slot: Arc<Mutex<Option<T>>>,
    done: oneshot::Receiver<Result<(), StoreError>>,
}

impl Job {
    /// A job, and where its product will be.
    pub(super) fn new<T: Send + 'static>(
        class: Class,
        mut work: impl FnMut(&Transaction<'_>) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> (Self, Pending<T>) {
        let (done, wait) = oneshot::channel();
        let slot = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&slot);
        let work: Work = Box::new(move |tx| {
            let product = work(tx)?;
            *lock(&filled) = Some(product);
            Ok(())
        });
        (Self { class, work, done }, Pending { slot, done: wait })
    }
}

impl<T> Pending<T> {
    /// Waits for the commit.
    pub(super) async fn committed(self) -> Result<T, StoreError> {
        self.done.await.map_err(|_| StoreError::Closed)??;
        lock(&self.slot).take().ok_or(StoreError::Closed)
    }
}

/// A handle to the writer.
#[derive(Clone)]
pub(super) struct Writer {
    db: tokio_rusqlite::Connection,
    desk: Arc<Desk>,
}

/// What the handles and the connection's thread share.
struct Desk {
    place: Place,
    waiting: Mutex<Vec<Job>>,
    mark: Mutex<Option<SteadyMark>>,
    neighbours: Mutex<Neighbours>,
}

impl Writer {
    /// Starts the writer on an open connection.
    pub(super) fn start(db: tokio_rusqlite::Connection, place: Place) -> Self {
        let (waiting, mark, neighbours) = Default::default();
        Self { db, desk: Arc::new(Desk { place, waiting, mark, neighbours }) }
    }

    /// Hands in jobs that belong into the same group, and waits until it is committed.
    pub(super) async fn submit(&self, jobs: Vec<Job>) -> Result<(), StoreError> {
        lock(&self.desk.waiting).extend(jobs);
        let desk = Arc::clone(&self.desk);
        let work_off = move |db: &mut Connection| {
            desk.work_off(db);
            Ok::<_, rusqlite::Error>(())
        };
        self.db.call(work_off).await.map_err(|_| StoreError::Closed)
    }

    /// Runs one job.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        class: Class,
        work: impl FnMut(&Transaction<'_>) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (job, pending) = Job::new(class, work);
        self.submit(vec![job]).await?;
        pending.committed().await
    }

    /// Moves the whole WAL into the database, as far as no reader is in the way.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        let run =
            |db: &mut Connection| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.db.call(run).await.map_err(|error| match error {
            tokio_rusqlite::Error::Error(error) => connection::sort(error),
            _ => StoreError::Closed,
        })
    }

    /// Waits until the next group may lock the file, and as long as it pays to wait
    /// for what is about to end.
    pub(super) async fn ready(&self) {
        if lock(&self.desk.neighbours).left(Wait::ForMore).is_zero() {
            return;
        }
        let desk = Arc::clone(&self.desk);
        let waited = self.db.call(move |db| {
            Neighbours::yield_to(&desk.neighbours, db, Wait::ForMore);
            Ok::<_, rusqlite::Error>(())
        });
        // A thread that is gone keeps nobody waiting.
        waited.await.ok();
    }

    /// Moves what nobody reads of the WAL into the database, and empties it if
    /// that was all. Waits for nobody, and keeps nobody waiting for long.
    pub(super) async fn shrink_log(&self) -> Result<(), StoreError> {
        let patience = self.desk.place.busy_timeout;
        let run = move |db: &mut Connection| {
            let moved = |row: &rusqlite::Row<'_>| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            };
            let (busy, pages, done) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], moved)?;
            if busy != 0 || pages != done {
                return Ok(());
            }
            // This one holds the write lock, but has next to nothing left to do.
            db.busy_timeout(Duration::ZERO)?;
            let emptied = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            db.busy_timeout(patience)?;
            emptied.or_else(|error| if is_busy(&error) { Ok(()) } else { Err(error) })
        };
        self.db.call(run).await.map_err(|error| match error {
            tokio_rusqlite::Error::Error(error) => connection::sort(error),
            _ => StoreError::Closed,
        })
    }

    /// Keeps the clocks' mark; it goes with the next group. `None` keeps none.
    pub(super) fn keep_mark(&self, mark: Option<SteadyMark>) {
        *lock(&self.desk.mark) = mark;
    }
}

impl Desk {
    /// Commits all that waits. What comes while the file is left unlocked before a
    /// group goes with it.
    fn work_off(&self, db: &mut Connection) {
        while !lock(&self.waiting).is_empty() {
            Neighbours::yield_to(&self.neighbours, db, Wait::ForOthers);
            let mut group = {
                let mut waiting = lock(&self.waiting);
                let count = waiting.len().min(GROUP);
                waiting.drain(..count).collect::<Vec<_>>()
            };
            group.sort_by_key(|job| job.class);
            let mark = lock(&self.mark).take();
            let locked = commit_group(db, &self.place, group, mark);
            lock(&self.neighbours).unlocked(locked);
        }
    }
}

/// What a panic elsewhere may have left is as good as any other.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the connection leads, to open it again after an I/O error.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) busy_timeout: Duration,
}

/// Commits a group; after an error, each of its jobs alone. Returns how long it
/// has held the file locked.
fn commit_group(
    db: &mut Connection,
    place: &Place,
    mut jobs: Vec<Job>,
    mark: Option<SteadyMark>,
) -> Duration {
    let mut locked = Duration::ZERO;
    let mut all: Vec<&mut Work> = jobs.iter_mut().map(|job| &mut job.work).collect();
    let together = transact(db, &mut all, mark.as_ref(), &mut locked);
    match together {
        Ok(()) => {
            for job in jobs {
                drop(job.done.send(Ok(())));
            }
        }
        // Nobody got the lock: a second wait for each job would help nobody.
        Err(Failure::Statement(error)) if is_busy(&error) => {
            let message = error.to_string();
            for job in jobs {
                drop(job.done.send(Err(StoreError::Busy(busy_again(&message)))));
            }
        }
        Err(failure) => {
            reopen_if_needed(db, place, &failure);
            let unknown = failure.is_unknown();
            for mut job in jobs {
                if unknown && job.class == Class::Claim {
                    // It may be there. Done again it would begin other attempts
                    // and forget these: the caller has to disown them first.
                    drop(job.done.send(Err(failure.again())));
                    continue;
                }
                let alone = transact(db, &mut [&mut job.work], None, &mut locked);
                let alone = alone.map_err(|second| {
                    reopen_if_needed(db, place, &second);
                    // Whatever the second try says, the first may be there.
                    if unknown { failure.again() } else { second.into_error(&place.path) }
                });
                drop(job.done.send(alone));
            }
        }
    }
    locked
}

/// Where a transaction failed.
enum Failure {
    /// Before its commit: nothing of it is there.
    Statement(rusqlite::Error),
    /// At its commit: it may be there.
    Commit(rusqlite::Error),
}

impl Failure {
    fn error(&self) -> &rusqlite::Error {
        let (Self::Statement(error) | Self::Commit(error)) = self;
        error
    }

    /// What was to be committed may be there all the same.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Commit(error) if is_io(error))
    }

    fn into_error(self, path: &Path) -> StoreError {
        match self {
            Self::Commit(error) if is_io(&error) => StoreError::CommitUnknown(error),
            Self::Statement(error) | Self::Commit(error) => connection::at(path, error),
        }
    }

    /// An unknown commit, told to another caller.
    fn again(&self) -> StoreError {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        let message = Some(self.error().to_string());
        StoreError::CommitUnknown(rusqlite::Error::SqliteFailure(code, message))
    }
}

/// Runs works in one immediate transaction.
///
/// Some errors make SQLite roll back by itself and go on in autocommit mode, so
/// the first error ends the group whatever it was. The time from having the lock to
/// the end of the commit is added to `locked`.
fn transact(
    db: &mut Connection,
    works: &mut [&mut Work],
    mark: Option<&SteadyMark>,
    locked: &mut Duration,
) -> Result<(), Failure> {
    let tx =
        db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Failure::Statement)?;
    let start = Instant::now();
    let done = work_in(tx, works, mark);
    *locked += start.elapsed();
    done
}

fn work_in(
    tx: Transaction<'_>,
    works: &mut [&mut Work],
    mark: Option<&SteadyMark>,
) -> Result<(), Failure> {
    for work in works {
        work(&tx).map_err(Failure::Statement)?;
        if tx.is_autocommit() {
            return Err(Failure::Statement(rusqlite::Error::InvalidQuery));
        }
    }
    if let Some(mark) = mark {
        super::meta::keep_mark(&tx, mark).map_err(Failure::Statement)?;
    }
    tx.commit().map_err(Failure::Commit)
}

/// After an I/O error the connection's view cannot be trusted, and one that was
/// opened for reading alone never tries to write again: open a new one, which
/// reads what is really there.
fn reopen_if_needed(db: &mut Connection, place: &Place, failure: &Failure) {
    let code = failure.error().sqlite_error_code();
    if !matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly)) {
        return;
    }
    // Where that fails the old one stays, and the next error leads here again.
    if let Ok(fresh) = connection::reopen_writer(&place.path, place.busy_timeout) {
        *db = fresh;
    }
}

fn is_io(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure))
}

/// The same error for each of several callers.
fn busy_again(message: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some(message.to_owned()))
}
