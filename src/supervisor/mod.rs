//! The supervisor: one pass at a time, and the calls between them.
//!
//! [`Supervisor::step`] makes at most one pass over the store: it saves what has
//! ended and begins what is due. Tests turn it by hand. [`run`](Supervisor::run)
//! is a thin loop round it that waits for an answer, a wake-up or the time of
//! the next operation. Nothing is open in the store while a call is under way.

mod call;
mod drain;
mod held;
mod logbook;
mod parts;
mod reconcile;
mod repeats;
mod upkeep;
mod wait;

use crate::clock::{Clock, Now, SteadyMark};
use crate::store::{AttemptId, Concluded, Mirror, Pass, Slots, Store, StoreError};
use call::{Ended, Tasks, Told};
use parts::Lane;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

pub use logbook::Logbook;
pub use parts::Parts;
pub use reconcile::Reconcile;
pub use repeats::{Repeated, lines_a_minute};
pub use wait::{Control, Pulse};

/// How the supervisor works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often it looks for due operations when nothing wakes it.
    pub poll_interval: Duration,
    /// How long a stop waits for calls that are under way.
    pub shutdown_grace: Duration,
    /// Whether and how often what is blocked is looked up again by itself.
    pub reconcile: Option<Reconcile>,
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Attempts that ended and are saved.
    pub concluded: usize,
    /// Attempts that began.
    pub begun: usize,
    /// Operations that the claim settled without a call.
    pub settled: usize,
    /// When the next operation falls due, as far as there is room for it.
    pub next_due: Option<crate::clock::Timestamp>,
    /// More is due than one pass takes.
    pub more: bool,
}

impl Progress {
    /// Nothing was due and nothing had ended. Says nothing about blocked operations.
    pub fn is_idle(&self) -> bool {
        self.concluded == 0 && self.begun == 0 && self.settled == 0
    }
}

/// Counts since the start, for the status line. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    sent: Arc<AtomicU64>,
    blocked: Arc<AtomicU64>,
    attempts: Arc<AtomicU64>,
    in_flight: Arc<AtomicU64>,
}

impl Counts {
    /// One line for people.
    pub fn line(&self) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "{} in flight; since the start: {} attempts, {} sent, {} blocked",
            read(&self.in_flight),
            read(&self.attempts),
            read(&self.sent),
            read(&self.blocked)
        )
    }
}

/// Delivers what is due, and saves what came of it.
pub struct Supervisor {
    store: Arc<dyn Store>,
    parts: Parts,
    tasks: Tasks,
    /// Attempts whose call is under way, with their receiver and whether they are suspects.
    in_flight: BTreeMap<AttemptId, Held>,
    /// Attempts that have ended and are not saved yet.
    unsaved: Vec<Arc<Concluded>>,
    /// A claim may have been committed without our knowing of it.
    unsure: bool,
    /// New attempts may begin.
    claiming: bool,
    counts: Counts,
    /// Where the clocks stood when what is stored was last in step with them.
    mark: Option<SteadyMark>,
    /// The same of what is not saved yet.
    seen: Option<SteadyMark>,
    logbook: Logbook,
    /// Turns true when calls must be waited for no longer.
    cut: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Held {
    receiver: String,
    suspect: bool,
}

impl Supervisor {
    /// A supervisor that has nothing under way.
    pub fn new(store: Arc<dyn Store>, parts: Parts) -> Self {
        Self::reporting(store, parts, Logbook::default())
    }

    /// The same, with what has been logged before.
    pub fn reporting(store: Arc<dyn Store>, parts: Parts, mut logbook: Logbook) -> Self {
        logbook.know(parts.names());
        Self {
            store,
            parts,
            tasks: Tasks::default(),
            in_flight: BTreeMap::new(),
            unsaved: Vec::new(),
            unsure: false,
            claiming: true,
            counts: Counts::default(),
            mark: None,
            seen: None,
            logbook,
            cut: watch::Sender::new(false),
        }
    }

    /// One pass: saves what has ended, begins what is due.
    ///
    /// # Errors
    ///
    /// What the store could not do is done by a later step: an outcome is kept
    /// until it is stored, and no call is made again because a write failed.
    pub async fn step(&mut self, now: Now) -> Result<Progress, StoreError> {
        // `now` decides whether a window is still open, so a call's time runs from here.
        let decided = Instant::now();
        self.collect(now);
        if self.unsure {
            self.disown(now).await?;
        }
        let pass = Pass { concluded: Arc::new(self.unsaved.clone()), slots: self.free_slots() };
        let passed = match self.store.pass(&self.parts.rules, pass, now).await {
            Ok(passed) => passed,
            Err(StoreError::ClaimFailed { saved, source }) => {
                self.unsure = true;
                self.saved(&saved);
                return Err(*source);
            }
            Err(error) => {
                self.unsure = true;
                return Err(error);
            }
        };
        let mut progress = Progress {
            concluded: self.unsaved.len(),
            begun: passed.begun.len(),
            settled: passed.events.len(),
            next_due: passed.next_due,
            more: passed.more,
        };
        progress.settled -= self.saved(&passed.events).min(progress.settled);
        self.logbook.holds(&passed.held);
        for attempt in passed.begun {
            self.begin(attempt, decided);
        }
        Ok(progress)
    }

    /// One pass at the present time.
    async fn step_at(&mut self, clock: &Clock) -> Result<Progress, StoreError> {
        self.step_by(|| (clock.now(), clock.mark())).await
    }

    /// One pass at the time that is read. A clock that was set is minded first.
    ///
    /// # Errors
    ///
    /// As [`Supervisor::step`]; before clocks that were set are minded no pass is made.
    pub async fn step_by(
        &mut self,
        read: impl Fn() -> (Now, SteadyMark),
    ) -> Result<Progress, StoreError> {
        loop {
            let (now, mark) = self.look(&read);
            if self.mark.as_ref().is_some_and(|kept| mark.steps_since(kept).are_none()) {
                self.mark = Some(mark.clone());
                self.store.keep_mark(mark);
                return self.step(now).await;
            }
            let steps = self.store.mind_steps(&self.parts.rules, &mark, now).await?;
            self.logbook.clock_fault(steps);
            self.mark = Some(mark);
            // Read anew: that may have taken long.
        }
    }

    /// Reads the clocks. Ends that are not stored yet move with them if they were set.
    fn look(&mut self, read: impl Fn() -> (Now, SteadyMark)) -> (Now, SteadyMark) {
        let (now, mark) = read();
        let steps = self.seen.as_ref().map(|seen| mark.steps_since(seen)).unwrap_or_default();
        if !steps.are_none() {
            self.unsaved.iter_mut().for_each(|one| Arc::make_mut(one).move_by(steps));
        }
        self.seen = Some(mark.clone());
        (now, mark)
    }

    /// Steps until nothing is under way any more and nothing is due at `now`.
    ///
    /// # Errors
    ///
    /// The first error of a step.
    pub async fn turn(&mut self, now: Now) -> Result<Progress, StoreError> {
        let mut total = Progress::default();
        loop {
            let progress = self.step(now).await?;
            total.concluded += progress.concluded;
            total.begun += progress.begun;
            total.settled += progress.settled;
            total.next_due = progress.next_due;
            if !self.in_flight.is_empty() {
                self.answered().await;
            } else if progress.is_idle() {
                return Ok(total);
            }
        }
    }

    /// From now on no attempt begins. What is under way goes on, and is saved.
    pub fn stop_claiming(&mut self) {
        self.claiming = false;
    }

    /// Counts since the start. They go on counting.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Takes the place of the configuration in force; calls under way go on.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the names could not be mirrored; nothing has changed then.
    pub async fn replace_parts(&mut self, parts: Parts) -> Result<(), StoreError> {
        self.store.mirror(&parts.rules, Mirror::Replace).await?;
        self.logbook.know(parts.names());
        self.parts = parts;
        Ok(())
    }

    /// Waits until a call has ended, and for others that are about to. Waits for ever
    /// if none is under way.
    async fn answered(&mut self) {
        self.tasks.one().await;
        // Those that were begun a moment ago may be through as well.
        yield_now().await;
        if !self.tasks.are_over() {
            self.store.ready().await;
        }
    }

    /// Concludes what has ended.
    fn collect(&mut self, now: Now) {
        for Ended { attempt, told, took } in self.tasks.ended() {
            self.in_flight.remove(attempt.id());
            self.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
            let concluded = match told {
                Some(Told::Delivered(report)) => attempt.conclude(report, now, took),
                Some(Told::LookedUp(report)) => attempt.conclude_look_up(report, now, took),
                None => attempt.cut_off(now, took),
            };
            self.unsaved.push(Arc::new(concluded));
        }
    }

    /// Forgets what is stored now, and logs what changed.
    ///
    /// Returns how many of the events belong to attempts.
    fn saved(&mut self, events: &[crate::store::Event]) -> usize {
        let saved = std::mem::take(&mut self.unsaved);
        self.logbook.events(events, &saved, &self.counts)
    }

    fn begin(&mut self, attempt: crate::store::Attempt, decided: Instant) {
        let Some(lane) = self.parts.lanes.get(attempt.receiver()) else { return };
        let held = Held { receiver: attempt.receiver().to_owned(), suspect: attempt.is_suspect() };
        self.in_flight.insert(attempt.id().clone(), held);
        self.counts.attempts.fetch_add(1, Ordering::Relaxed);
        self.counts.in_flight.fetch_add(1, Ordering::Relaxed);
        let journal = call::StoreJournal::new(Arc::clone(&self.store));
        let receiver = Arc::clone(&lane.receiver);
        let (timeout, cut) = (lane.timeout, self.cut.subscribe());
        self.tasks.spawn(call::call(attempt, receiver, journal, timeout, decided, cut));
    }

    /// Room at each receiver.
    fn free_slots(&self) -> BTreeMap<String, Slots> {
        if !self.claiming {
            return BTreeMap::new();
        }
        let slots = |(name, lane): (&String, &Lane)| {
            let held: Vec<_> =
                self.in_flight.values().filter(|held| held.receiver == *name).collect();
            let free = lane.concurrency.saturating_sub(held.len());
            let suspect = !held.iter().any(|held| held.suspect);
            (free > 0).then(|| (name.clone(), Slots { free, suspect }))
        };
        self.parts.lanes.iter().filter_map(slots).collect()
    }

    /// Ends what was committed without our knowing: its call never began.
    async fn disown(&mut self, now: Now) -> Result<(), StoreError> {
        let unsaved = self.unsaved.iter().map(|concluded| concluded.id().clone());
        let holding = self.in_flight.keys().cloned().chain(unsaved).collect();
        let events = self.store.disown(&self.parts.rules, holding, now).await?;
        self.logbook.events(&events, &[], &self.counts);
        self.unsure = false;
        Ok(())
    }
}
