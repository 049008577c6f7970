//! The clocks of the simulated machine, which move only when they are moved.

use handoff::clock::{Now, Reading, SteadyMark, Timestamp};
use std::time::Duration;

/// Where the wall clock starts: far from the machine's, which stamps recordings.
const START: i64 = 4_102_444_800_000;

/// True time, the wall clock and the daemon's steady clock, in milliseconds.
#[derive(Debug)]
pub(crate) struct Times {
    /// Since the start, whatever any clock says: the receivers' time.
    pub(crate) truth: i64,
    wall: i64,
    reading: Reading,
    boot: u32,
    booted: i64,
}

impl Times {
    pub(crate) fn new() -> Self {
        let now = Now::at(Timestamp::from_millis(START));
        let reading = Reading { now, boot_time: Duration::ZERO };
        Self { truth: 0, wall: START, reading, boot: 1, booted: 0 }
    }

    /// What the daemon reads.
    pub(crate) fn now(&self) -> Now {
        self.reading.now
    }

    /// The wall clock, which shows the time also while no daemon runs.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.wall)
    }

    /// True time goes by.
    pub(crate) fn pass(&mut self, millis: i64) {
        self.truth += millis;
        self.wall += millis;
        self.read();
    }

    /// Somebody sets the wall clock.
    pub(crate) fn set_wall(&mut self, by: i64) {
        self.wall += by;
        self.read();
    }

    fn read(&mut self) {
        self.reading = self.reading.advance(self.wall(), self.since_boot());
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis((self.truth - self.booted).unsigned_abs())
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    /// What the daemon keeps of its clock.
    pub(crate) fn mark(&self) -> SteadyMark {
        self.reading.mark(&self.boot_id())
    }

    /// A new daemon goes on from what the last one kept.
    pub(crate) fn resume(&mut self, mark: Option<&SteadyMark>) {
        self.reading = Reading::resume(mark, self.wall(), self.since_boot(), &self.boot_id());
    }

    /// The machine starts anew.
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.booted = self.truth;
    }

    /// The daemon believes that less time has gone by than has.
    pub(crate) fn is_behind(&self) -> bool {
        self.now().steady.as_millis() - START < self.truth
    }

    /// A moment in the trace, without the years before the start.
    pub(crate) fn show(&self) -> String {
        let Now { wall, steady } = self.now();
        let (wall, steady) = (wall.as_millis() - START, steady.as_millis() - START);
        format!("{}/{wall}/{steady}", self.truth)
    }
}
