//! The wake-up: another program's commit is seen within milliseconds.
//!
//! The WAL is watched by inotify. Its write is seen before the commit is
//! visible, so the database's `data_version` is looked at again, with growing
//! pauses, until it has moved. All this is a hint: the poll is the guarantee.

use crate::store::sqlite::folder_of;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The first pause before `data_version` is looked at again; each one is longer by a
/// quarter, so that a commit is seen late by a quarter of its own time at most.
const FIRST_PAUSE: Duration = Duration::from_micros(250);
/// After so long a write of the WAL that changed nothing visible is left alone.
const PATIENCE: Duration = Duration::from_millis(50);
/// How soon the watcher notices that it is to end, in milliseconds.
const CHECK_MS: u16 = 1_000;

/// Watches a database until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    ended: Arc<AtomicBool>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Why a database cannot be watched; the poll does without.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel gives no watch.
    #[error("inotify: {0}")]
    Inotify(#[from] Errno),
    /// The database cannot be read.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    /// No thread can be started.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
}

impl Watcher {
    /// Starts to watch; every commit to the database notifies `wake`.
    ///
    /// # Errors
    ///
    /// [`WatchError`] if it cannot be watched.
    pub fn start(database: &Path, wake: Arc<Notify>) -> Result<Self, WatchError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let real = database.canonicalize()?;
        inotify.add_watch(folder_of(&real), AddWatchFlags::IN_MODIFY)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&real, flags)?;
        db.pragma_update(None, "query_only", true)?;
        let ended = Arc::new(AtomicBool::new(false));
        let watch = Watch { inotify, wal: wal_name(&real), db, wake, ended: Arc::clone(&ended) };
        std::thread::Builder::new().name("wake".into()).spawn(move || watch.run())?;
        Ok(Self { ended })
    }
}

struct Watch {
    inotify: Inotify,
    wal: OsString,
    db: Connection,
    wake: Arc<Notify>,
    ended: Arc<AtomicBool>,
}

impl Watch {
    fn run(self) {
        let mut seen = self.data_version();
        while !self.ended.load(Ordering::Relaxed) {
            if !self.wal_written() {
                continue;
            }
            let mut pause = FIRST_PAUSE;
            let mut waited = Duration::ZERO;
            loop {
                let version = self.data_version();
                if version != seen {
                    seen = version;
                    self.wake.notify_one();
                    break;
                }
                if waited >= PATIENCE {
                    break;
                }
                // Nobody unparks this thread; an early wake would only look early.
                std::thread::park_timeout(pause);
                waited += pause;
                pause += pause / 4;
            }
        }
    }

    /// Waits for a write to the WAL; false if there was none for a while.
    fn wal_written(&self) -> bool {
        let mut ready = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(CHECK_MS)) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        match self.inotify.read_events() {
            Ok(events) => events.iter().any(|event| {
                // An overflow names no file: something was written.
                event.name.as_ref().is_none_or(|name| *name == self.wal)
            }),
            Err(_) => false,
        }
    }

    fn data_version(&self) -> i64 {
        self.db.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap_or_default()
    }
}

fn wal_name(database: &Path) -> OsString {
    let mut name = PathBuf::from(database).file_name().unwrap_or_default().to_owned();
    name.push("-wal");
    name
}
