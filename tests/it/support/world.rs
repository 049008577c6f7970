//! The real parts in one process, turned by hand.

use super::place::{Place, SqliteFile};
use super::site::{Site, follow_up};
use async_trait::async_trait;
use handoff::Recorded;
use handoff::clock::{Now, Timestamp, wall};
use handoff::jitter::Seed;
use handoff::outbox::facts::AttemptKind;
use handoff::outbox::look_up::{Finding, LookUpReport};
use handoff::outbox::outcome::Report;
use handoff::outbox::rules::Rules;
use handoff::outbox::verbs::Deed;
use handoff::process::ProcessGroup;
use handoff::receiver::{Journal, NotKept, Registry};
use handoff::store::{
    Act, Acted, Attempt, AttemptId, Concluded, Event, Mirror, OperationRow, Pass, Passed,
    Recovered, Slots, Store,
};
use handoff::supervisor::{Parts, Progress, Supervisor};
use std::sync::Arc;
use std::time::Duration;

/// How long a call is said to have taken.
pub(crate) const TOOK: Duration = Duration::from_millis(7);
/// So far ahead of the machine's clock, which stamps recordings, the world starts.
const AHEAD: Duration = Duration::from_secs(3_600);

/// A site with an open store and a supervisor, and a clock that moves only when told.
pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) rules: Arc<Rules>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) now: Now,
    supervisor: Supervisor,
    registry: Registry,
    processes: u32,
    seed: Seed,
}

impl World {
    /// A world on SQLite with this configuration.
    pub(crate) async fn new(config: &str) -> Self {
        Self::on(&SqliteFile, config).await
    }

    /// As [`World::new`], on another kind of database.
    pub(crate) async fn on(place: &'static dyn Place, config: &str) -> Self {
        Self::with_seed(place, config, Seed(7)).await
    }

    /// As [`World::on`], with chance from this seed.
    pub(crate) async fn with_seed(place: &'static dyn Place, config: &str, seed: Seed) -> Self {
        let site = Site::on(place, config);
        let now = Now::at(wall().plus(AHEAD));
        Self::start(site, now, seed, 1).await.0
    }

    /// What a daemon does at its start, up to its first pass.
    async fn start(site: Site, now: Now, seed: Seed, processes: u32) -> (Self, Recovered) {
        let settings = site.settings();
        let instance = format!("process-{processes}");
        let store = site.place().open(&settings.store, &instance).await;
        let parts = Parts::build(settings.rules(seed), &settings.receivers).unwrap();
        let registry = Registry::build(&settings.receivers, seed).unwrap();
        let rules = Arc::clone(&parts.rules);
        let recovered = store.recover(&rules, None, now).await.unwrap();
        store.mirror(&rules, Mirror::Replace).await.unwrap();
        let supervisor = Supervisor::new(Arc::clone(&store), parts);
        (Self { site, rules, store, now, supervisor, registry, processes, seed }, recovered)
    }

    /// The process is gone, whatever it was at; another one starts.
    pub(crate) async fn restart(self) -> Self {
        self.crash().await.0
    }

    /// As [`World::restart`]; returns what the new process found.
    pub(crate) async fn crash(self) -> (Self, Recovered) {
        let Self { site, now, processes, seed, supervisor, store, .. } = self;
        drop((supervisor, store));
        Self::start(site, now, seed, processes + 1).await
    }

    /// The configuration is changed, and the daemon told to read it again.
    pub(crate) async fn reconfigure(&mut self, config: &str) {
        self.site.configure(config);
        let settings = self.site.settings();
        let parts = Parts::build(settings.rules(self.seed), &settings.receivers).unwrap();
        self.rules = Arc::clone(&parts.rules);
        self.registry = Registry::build(&settings.receivers, self.seed).unwrap();
        self.supervisor.replace_parts(parts).await.unwrap();
    }

    /// Another process on the same database.
    pub(crate) async fn neighbour(&self, instance: &str) -> Arc<dyn Store> {
        self.site.place().open(&self.site.settings().store, instance).await
    }

    /// Records a follow-up; returns its key.
    pub(crate) async fn approve(&self, case: &str) -> String {
        let operation = follow_up(case, super::site::TITLE);
        let key = operation.key.as_str().to_owned();
        let recorded = self.store.record(&self.rules, operation).await.unwrap().unwrap();
        assert_eq!(recorded, Recorded::New);
        key
    }

    /// Records a follow-up that is not to be delivered before that time.
    pub(crate) async fn approve_for(&self, case: &str, time: Timestamp) -> String {
        let operation = follow_up(case, super::site::TITLE).deliver_after(time);
        let key = operation.key.as_str().to_owned();
        self.store.record(&self.rules, operation).await.unwrap().unwrap();
        key
    }

    /// Time passes.
    pub(crate) fn pass_time(&mut self, by: Duration) {
        self.now = self.now.plus(by);
    }

    /// One pass of the supervisor.
    pub(crate) async fn step(&mut self) -> Progress {
        self.supervisor.step(self.now).await.unwrap()
    }

    /// One pass that the database refuses.
    pub(crate) async fn step_in_vain(&mut self) {
        self.supervisor.step(self.now).await.unwrap_err();
    }

    /// Passes until nothing is due at this moment.
    pub(crate) async fn turn(&mut self) -> Progress {
        self.supervisor.turn(self.now).await.unwrap()
    }

    /// Passes, and lets time go on to the next due time, until nothing waits for one.
    pub(crate) async fn turn_to_the_end(&mut self) {
        for _ in 0..200 {
            let Some(due) = self.turn().await.next_due else { return };
            self.pass_time(due.since(self.now.wall));
        }
        panic!("it does not come to an end: {:?}", self.site.stored().outbox);
    }

    /// One operation.
    pub(crate) async fn row(&self, key: &str) -> OperationRow {
        self.store.find(key).await.unwrap().unwrap()
    }

    /// Room for everything.
    pub(crate) fn room(&self) -> Pass {
        let slots = Slots { free: 100, suspect: true };
        let slots = self.rules.receivers.keys().map(|name| (name.clone(), slots)).collect();
        Pass { slots, ..Pass::default() }
    }

    /// Begins what is due, by hand.
    pub(crate) async fn begin(&self) -> Passed {
        self.store.pass(&self.rules, self.room(), self.now).await.unwrap()
    }

    /// Begins the one attempt that is due, by hand.
    pub(crate) async fn begin_one(&self) -> Attempt {
        let mut begun = self.begin().await.begun;
        assert_eq!(begun.len(), 1, "one attempt is due");
        begun.remove(0)
    }

    /// Calls the attempt's receiver.
    pub(crate) async fn deliver(&self, attempt: &Attempt) -> Report {
        self.registry.get(attempt.receiver()).unwrap().deliver(attempt, &NoJournal).await
    }

    /// Ends an attempt with this report; not saved yet.
    pub(crate) fn conclude(&self, attempt: Attempt, report: Report) -> Arc<Concluded> {
        Arc::new(attempt.conclude(report, self.now, TOOK))
    }

    /// Saves what has ended, and begins nothing.
    pub(crate) async fn save(&self, concluded: &[Arc<Concluded>]) -> Vec<Event> {
        let pass = Pass { concluded: Arc::new(concluded.to_vec()), ..Pass::default() };
        self.store.pass(&self.rules, pass, self.now).await.unwrap().events
    }

    /// Does what a person asks who has just looked.
    pub(crate) async fn act(&self, key: &str, deed: Deed) -> Acted {
        let version = self.row(key).await.version;
        let (who, reason) = ("ann".to_owned(), Some("because".to_owned()));
        let act = Act { key: key.to_owned(), deed, version, who, reason };
        self.store.act(&self.rules, act, self.now).await.unwrap()
    }

    /// Asks the look-up's receiver.
    pub(crate) async fn ask(&self, attempt: &Attempt) -> LookUpReport {
        self.registry.get(attempt.receiver()).unwrap().look_up(attempt, &NoJournal).await
    }

    /// Ends a look-up with this report; not saved yet.
    pub(crate) fn found(&self, attempt: Attempt, report: LookUpReport) -> Arc<Concluded> {
        Arc::new(attempt.conclude_look_up(report, self.now, TOOK))
    }

    /// Begins the one look-up that is due and ends it with this finding.
    pub(crate) async fn look_up(&self, finding: Finding) -> Vec<Event> {
        let attempt = self.begin_one().await;
        assert_eq!(attempt.kind(), AttemptKind::LookUp);
        self.save(&[self.found(attempt, LookUpReport::new(finding))]).await
    }

    /// Begins the one attempt that is due and ends it with this report.
    pub(crate) async fn attempt(&self, report: Report) -> Vec<Event> {
        let attempt = self.begin_one().await;
        assert_eq!(attempt.kind(), AttemptKind::Deliver);
        self.save(&[self.conclude(attempt, report)]).await
    }
}

/// No receiver in one process starts another.
struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn process_started(&self, _: &AttemptId, _: &ProcessGroup) -> Result<(), NotKept> {
        Err(NotKept("no process is expected here".to_owned()))
    }
}
