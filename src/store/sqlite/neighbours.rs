//! Other programs at the same file: it is left unlocked between two groups, so that
//! they can write too.

use super::writer::lock;
use rusqlite::Connection;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// The file is left unlocked so long between two groups at least: SQLite's
/// waiting writers do not queue, they look again, and would starve.
const GAP: Duration = Duration::from_micros(200);
/// While other programs commit it is left unlocked so long at least, and as long as
/// it was locked: of the looks of one that waits, every second succeeds.
const GAP_SHARED: Duration = Duration::from_millis(1);
/// What is about to end is waited for during this part of the time that a commit
/// took: to go with the next group pays the more, the longer a commit takes.
const PATIENCE_PART: u32 = 4;
/// For so long another program's commit counts as recent.
const RECENT: Duration = Duration::from_secs(1);

/// What is known of the file's lock: ours, and other programs'.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    data_version: i64,
    /// When another program's commit was last seen.
    seen: Option<Instant>,
    /// When the last group was through, and how long it had held the file locked.
    last: Option<(Instant, Duration)>,
}

/// What the time between two groups is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Other programs may lock the file.
    ForOthers,
    /// Besides, more may end.
    ForMore,
}

impl Neighbours {
    /// Leaves the file unlocked for a while after the last group.
    pub(super) fn yield_to(shared: &Mutex<Self>, db: &Connection, wait: Wait) {
        let read = db.prepare_cached("PRAGMA data_version");
        let version = read.and_then(|mut read| read.query_row([], |row| row.get(0)));
        let left = {
            let mut neighbours = lock(shared);
            if let Ok(version) = version {
                neighbours.note(version);
            }
            neighbours.left(wait)
        };
        // Wakes early only if the thread is unparked, which nobody does.
        std::thread::park_timeout(left);
    }

    /// A group is through, and had held the file locked for so long.
    pub(super) fn unlocked(&mut self, locked: Duration) {
        self.last = Some((Instant::now(), locked));
    }

    /// The version moves when another program has committed.
    fn note(&mut self, version: i64) {
        if self.data_version != 0 && version != self.data_version {
            self.seen = Some(Instant::now());
        }
        self.data_version = version;
    }

    /// What is left of the time for which the file is left unlocked.
    pub(super) fn left(&self, wait: Wait) -> Duration {
        let Some((unlocked, locked)) = self.last else { return Duration::ZERO };
        let shared = self.seen.is_some_and(|seen| seen.elapsed() < RECENT);
        let gap = if shared { locked.max(GAP_SHARED) } else { GAP };
        let more = if wait == Wait::ForMore { locked / PATIENCE_PART } else { Duration::ZERO };
        gap.max(more).saturating_sub(unlocked.elapsed())
    }
}
