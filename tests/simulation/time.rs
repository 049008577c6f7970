//! The clocks of the simulated machine, which move only when they are moved.

use handoff::clock::{Now, Reading, SteadyMark, Timestamp};
use std::time::Duration;

/// Where the wall clock starts: far from the machine's, which stamps recordings.
const START: i64 = 4_102_444_800_000;

/// Smaller steps of a clock are not minded.
pub(crate) const STEP_MIN: i64 = 1_000;

/// True time, the wall clock and the daemon's steady clock, in milliseconds.
#[derive(Debug)]
pub(crate) struct Times {
    /// Since the start, whatever any clock says: the receivers' time.
    pub(crate) truth: i64,
    wall: i64,
    reading: Reading,
    /// When each boot began, in true time.
    boots: Vec<i64>,
    /// Steps of the wall clock that are too small to be minded, with their time.
    small: Vec<(i64, i64)>,
}

/// What stored times mean in true time, by the clocks' mark that is stored with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The wall clock when no time had passed.
    pub(crate) wall: i64,
    /// The steady clock then.
    pub(crate) steady: i64,
    pub(crate) boot: usize,
    /// When the mark was taken, in true time.
    pub(crate) taken: i64,
}

impl Times {
    pub(crate) fn new() -> Self {
        let now = Now::at(Timestamp::from_millis(START));
        let reading = Reading { now, boot_time: Duration::ZERO };
        Self { truth: 0, wall: START, reading, boots: vec![0], small: Vec::new() }
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
        if by.abs() < STEP_MIN {
            self.small.push((self.truth, by));
        }
        self.read();
    }

    /// By so much small steps can have moved what is stored since then. Earlier ones
    /// can still come out where the steady clock goes on from the wall clock.
    pub(crate) fn drift_since(&self, truth: i64) -> i64 {
        let (earlier, since): (Vec<_>, Vec<_>) = self.small.iter().partition(|(at, _)| *at < truth);
        let hidden = earlier.iter().map(|(_, by)| by.abs()).sum::<i64>().min(STEP_MIN - 1);
        hidden + since.iter().map(|(_, by)| by.abs()).sum::<i64>()
    }

    /// A step that was too small to be minded came after that time.
    pub(crate) fn was_nudged_since(&self, truth: i64) -> bool {
        self.small.last().is_some_and(|(at, _)| *at >= truth)
    }

    fn read(&mut self) {
        self.reading = self.reading.advance(self.wall(), self.since_boot());
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis((self.truth - self.boots[self.boot()]).unsigned_abs())
    }

    pub(crate) fn boot(&self) -> usize {
        self.boots.len() - 1
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot())
    }

    /// What a stored mark says: both clocks, the time since boot, and the boot.
    pub(crate) fn frame(&self, mark: &str) -> Frame {
        let mut parts = mark.split(' ');
        let mut number = || parts.next().unwrap().parse::<i64>().unwrap();
        let (wall, steady, since_boot) = (number(), number(), number());
        let boot = parts.next().unwrap().trim_start_matches("boot-").parse().unwrap();
        let taken = self.boots[boot] + since_boot;
        Frame { wall: wall - taken, steady: steady - taken, boot, taken }
    }

    /// By so much the wall clock was set since then.
    pub(crate) fn set_since(&self, frame: &Frame) -> i64 {
        self.wall - self.truth - frame.wall
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
        self.boots.push(self.truth);
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
