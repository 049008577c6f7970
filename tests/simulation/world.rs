//! The simulated world: the product's real parts, one process at a time, and
//! everything round them. What happens is chosen by `moves`.

use crate::chance::Chance;
use crate::crm::Crm;
use crate::faulty::Faulty;
use crate::ground::{Call, Ground, Site};
use crate::lanes::{Lane, millis, rules};
use crate::laws::rows::Moved;
use crate::moves::Temper;
use crate::receiver::Adapter;
use crate::time::Times;
use handoff::clock::Timestamp;
use handoff::outbox::outcome::OutcomeKind;
use handoff::outbox::rules::Rules;
use handoff::rusqlite::Connection;
use handoff::store::sqlite::{Access, Sqlite};
use handoff::store::{Filter, Mirror, Settings, Store, StoreError};
use handoff::supervisor::{Parts, Progress, Supervisor};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// One process of the daemon.
pub(crate) struct Process {
    pub(crate) number: u32,
    pub(crate) supervisor: Supervisor,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rules: Arc<Rules>,
}

/// Everything.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) temper: Temper,
    pub(crate) site: Site,
    folder: TempDir,
    /// The process that serves.
    pub(crate) process: Option<Process>,
    /// One that was taken for dead and still listens to its calls.
    pub(crate) undead: Option<Process>,
    processes: u32,
    /// The machine was started anew, and no daemon since.
    pub(crate) rebooted: bool,
    pub(crate) moved: Moved,
    /// When the next operation falls due, as far as the last pass knew.
    pub(crate) next_due: Option<Timestamp>,
    /// The database as it was at the last look at the facts.
    looked_at: (i64, u64),
    /// Cases that have a number.
    pub(crate) cases: u64,
    /// Keeps the paused clock from running on by itself while a write is waited for.
    _standstill: std::sync::mpsc::Sender<()>,
}

/// Lets every task run until nothing moves.
pub(crate) async fn settle() {
    for _ in 0..12 {
        tokio::task::yield_now().await;
    }
}

/// A folder that costs no disk, where there is one.
fn folder() -> TempDir {
    let in_memory = tempfile::Builder::new().prefix("handoff-simulation-").tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

impl World {
    /// A world with a database and one process that serves it.
    pub(crate) async fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let temper = Temper::draw(&mut chance);
        let folder = folder();
        let mut db = Connection::open(folder.path().join("app.db")).unwrap();
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        db.busy_timeout(Duration::ZERO).unwrap();
        db.set_prepared_statement_cache_capacity(64);
        let times = Times::new();
        handoff::schema::migrate(&mut db, times.wall()).unwrap();
        let many = chance.between(1, 3) as usize;
        let lanes: Vec<Lane> = (0..many).map(|place| Lane::draw(place, &mut chance)).collect();
        let crms = lanes.iter().map(|lane| Crm::new(lane.truth)).collect();
        let ground = Ground {
            times,
            lanes,
            crms,
            db,
            calls: Vec::new(),
            plan: Default::default(),
            decided: 0,
            payloads: Default::default(),
            seen: Default::default(),
            frame: None,
            seen_at: 0,
            ends: Default::default(),
            dead: Default::default(),
            cut: Default::default(),
            cut_calls: Default::default(),
            told: Vec::new(),
            pauses: Default::default(),
            ahead: Default::default(),
            minded: 0,
            late: Default::default(),
            violations: Vec::new(),
            trace: Vec::new(),
            stats: Default::default(),
        };
        let (standstill, wait) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || wait.recv());
        let mut world = Self {
            seed,
            chance,
            temper,
            site: Site::new(ground),
            folder,
            process: None,
            undead: None,
            processes: 0,
            rebooted: false,
            moved: Moved::default(),
            next_due: None,
            looked_at: (0, 0),
            cases: 0,
            _standstill: standstill,
        };
        world.note(format!("{temper:?}"));
        let lanes = world.site.look().lanes.clone();
        for lane in lanes {
            world.note(format!("{lane:?}"));
        }
        world.start().await;
        world
    }

    pub(crate) fn note(&self, what: impl AsRef<str>) {
        self.site.look().note(what);
    }

    pub(crate) fn count(&self, what: &str) {
        self.site.look().count(what);
    }

    /// Waits for what a process does, unless it dies meanwhile.
    pub(crate) async fn unless_it_dies<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        unless(&self.site, what).await
    }

    /// Receivers as this process has them from this configuration.
    pub(crate) fn parts(&self, lanes: &[Lane], process: u32) -> Parts {
        let mut parts: Option<Parts> = None;
        let all = rules(lanes, self.seed);
        for lane in lanes.iter().filter(|lane| lane.configured) {
            let adapter = Arc::new(Adapter {
                site: self.site.clone(),
                lane: lane.place,
                account: lane.account.clone(),
                timeout: lane.timeout,
                process,
            });
            let (name, many, timeout) = (lane.name(), lane.concurrency, millis(lane.timeout));
            parts = Some(match parts {
                None => Parts::single(all.clone(), name, adapter, many, timeout),
                Some(parts) => parts.and(name, adapter, many, timeout),
            });
        }
        parts.unwrap_or_else(|| Parts::build(all, &[]).unwrap())
    }

    /// A new process: what the daemon does at its start, as often as the database
    /// says no, up to its first pass.
    pub(crate) async fn start(&mut self) {
        self.processes += 1;
        let number = self.processes;
        self.note(format!("process {number} starts"));
        let url = format!("sqlite:{}", self.folder.path().join("app.db").display());
        let settings = Settings { url, busy_timeout: Duration::ZERO, explicit: true };
        let instance = format!("process-{number}");
        let store = Sqlite::open(&settings, Access::Create, &instance).await.unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Faulty { store: Arc::new(store), site: self.site.clone(), process: number });
        let lanes = self.site.look().lanes.clone();
        let parts = self.parts(&lanes, number);
        let rules = Arc::clone(&parts.rules);
        loop {
            let done = self.unless_it_dies(recover(&self.site, &store, &rules)).await;
            match done {
                None => {
                    self.note("it dies at its start");
                    self.site.look().dead.insert(number);
                    return;
                }
                Some(Ok(interrupted)) => {
                    self.note(format!("  {interrupted} attempts were interrupted"));
                    break;
                }
                Some(Err(error)) => self.note(format!("  not yet: {error}")),
            }
            self.pass(100).await;
        }
        self.rebooted = false;
        let supervisor = Supervisor::new(Arc::clone(&store), parts);
        self.process = Some(Process { number, supervisor, store, rules });
    }

    /// One pass of the process that serves.
    pub(crate) async fn step(&mut self) -> Option<Result<Progress, StoreError>> {
        self.look_after().await?;
        let process = self.process.as_mut()?;
        let number = process.number;
        let stepped = step(&self.site, process).await;
        self.site.look().plan.clear();
        match &stepped {
            None => {
                self.note(format!("process {number} dies inside a write"));
                self.crash(false).await;
            }
            Some(Ok(progress)) => {
                self.next_due = progress.next_due;
                self.note(format!("  {progress:?}"));
                self.stored(number, true);
            }
            Some(Err(error)) => self.note(format!("  {error}")),
        }
        settle().await;
        stepped
    }

    /// As the daemon's loop does before a pass, now and then.
    async fn look_after(&mut self) -> Option<()> {
        let store = Arc::clone(&self.process.as_ref()?.store);
        if self.chance.one_in(8) && self.unless_it_dies(store.upkeep()).await.is_none() {
            self.crash(false).await;
            self.site.look().plan.clear();
            return None;
        }
        Some(())
    }

    /// The outcomes that a process knew before its pass are stored now.
    pub(crate) fn stored(&self, process: u32, serves: bool) {
        let mut ground = self.site.look();
        let all = std::mem::take(&mut ground.told);
        let (ours, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|told| told.process == process && told.before);
        ground.told = rest;
        for told in ours {
            let tries = crate::rows::attempts(&ground.db, &told.key);
            let stored = tries.iter().find(|one| one.number == told.number);
            let stored = stored.and_then(|one| one.outcome.clone());
            if !serves {
                ground.count("late answer");
                ground.late.insert(told.key.clone());
                if told.kind == OutcomeKind::Applied {
                    ground.count("late success");
                }
            }
            let of = |call: &&Call| call.key == told.key && call.number == told.number;
            let call = ground.calls.iter().find(of).unwrap();
            let (lane, begun, minded) = (call.lane, call.begun, ground.minded);
            if serves && begun < minded {
                ground.count("answered after a step");
            }
            if let Some((noted, pause)) = told.pause
                && serves
            {
                let ceiling = ground.lanes[lane].retry.retry_after_ceiling;
                let until = noted + pause.min(ceiling.as_millis() as i64);
                ground.pauses.insert(told.key.clone(), (noted, until));
            }
            if !serves && stored.as_deref() != Some(told.kind.as_str()) {
                ground.count("fenced");
            }
            // One taken for dead may be fenced, but no success is thrown away.
            let must = serves || told.kind == OutcomeKind::Applied;
            if must && stored.as_deref() != Some(told.kind.as_str()) {
                let (key, number) = (&told.key, told.number);
                let what = format!("{key}#{number} ended {}, stored is {stored:?}", told.kind);
                ground.violation(what);
            }
        }
    }

    /// The process is gone. One that is `undead` still hears what its calls answer.
    pub(crate) async fn crash(&mut self, undead: bool) {
        let Some(mut process) = self.process.take() else { return };
        self.count("crashed");
        if undead && self.undead.is_none() {
            process.supervisor.stop_claiming();
            self.undead = Some(process);
            return;
        }
        self.bury(process).await;
    }

    /// Nothing of the process is left.
    pub(crate) async fn bury(&mut self, process: Process) {
        let number = process.number;
        {
            let mut ground = self.site.look();
            ground.dead.insert(number);
            ground.told.retain(|told| told.process != number);
        }
        drop(process);
        settle().await;
    }

    /// True time goes by, with every timeout at its time.
    pub(crate) async fn pass(&mut self, by: i64) {
        let mut left = by;
        while left > 0 {
            let slice = {
                let mut ground = self.site.look();
                let now = ground.times.truth;
                let ends = ground.calls.iter().flat_map(|call| {
                    let heard = call.ear.is_some().then_some(call.deadline);
                    [heard, call.until.filter(|_| call.is_live())]
                });
                let next = ends.flatten().map(|end| end + 1 - now).filter(|end| *end > 0).min();
                let slice = next.unwrap_or(left).min(left);
                ground.times.pass(slice);
                slice
            };
            tokio::time::advance(millis(slice)).await;
            settle().await;
            self.site.look().bury();
            left -= slice;
        }
    }

    /// Every law, after every move.
    pub(crate) async fn check(&mut self) {
        let moved = std::mem::take(&mut self.moved);
        let version = {
            let ground = self.site.look();
            let of_others = crate::rows::number(&ground.db, "PRAGMA data_version");
            (of_others, ground.db.total_changes())
        };
        let has_changed = std::mem::replace(&mut self.looked_at, version) != version;
        let all = match &self.process {
            Some(process) if has_changed => process.store.list(Filter::default()).await.unwrap(),
            _ => Vec::new(),
        };
        let mut ground = self.site.look();
        let mut broken = Vec::new();
        crate::laws::call::nothing_is_locked(&ground, &mut broken);
        broken.into_iter().for_each(|what| ground.violation(what));
        if self.process.is_some() && ground.times.is_behind() {
            ground.violation("the steady clock is behind true time");
        }
        crate::laws::rows::check(&mut ground, &moved);
        if let Some(process) = &self.process {
            crate::laws::rows::check_facts(&mut ground, &all, &process.rules);
        }
        let broken = std::mem::take(&mut ground.violations);
        drop(ground);
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}

/// Waits for what a process does, unless it dies meanwhile.
async fn unless<T>(site: &Site, what: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = site.crash.notified() => None,
        done = what => Some(done),
    }
}

/// A process ends the wait for its calls. In which order they hear of it is chance
/// that no seed rules.
pub(crate) async fn cut_off(site: &Site, process: &Process) {
    site.look().cut.insert(process.number);
    process.supervisor.cut_off();
    settle().await;
    let mut ground = site.look();
    for name in std::mem::take(&mut ground.cut_calls) {
        ground.note(format!("  cut off {name}"));
    }
}

/// One pass of a process.
pub(crate) async fn step(
    site: &Site,
    process: &mut Process,
) -> Option<Result<Progress, StoreError>> {
    let number = process.number;
    let read = || {
        let mut ground = site.look();
        ground.decided = ground.times.truth;
        let ours = ground.told.iter_mut().filter(|told| told.process == number);
        ours.for_each(|told| told.ready = true);
        (ground.times.now(), ground.times.mark())
    };
    unless(site, process.supervisor.step_by(read)).await
}

/// Goes on with the clock, ends what was left open, makes the names known.
async fn recover(
    site: &Site,
    store: &Arc<dyn Store>,
    rules: &Arc<Rules>,
) -> Result<usize, StoreError> {
    let mark = store.steady_mark().await?;
    let (now, mark) = {
        let mut ground = site.look();
        ground.times.resume(mark.as_ref());
        for place in 0..ground.calls.len() {
            ground.give_up(place);
        }
        ground.bury();
        (ground.times.now(), ground.times.mark())
    };
    store.keep_mark(mark.clone());
    let recovered = store.recover(rules, Some(&mark), now).await?;
    store.mirror(rules, Mirror::Replace).await?;
    Ok(recovered.interrupted.len())
}
