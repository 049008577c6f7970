//! What the simulated world shares with the receivers and the store inside it.

use crate::crm::{Crm, Reply, Request};
use crate::faulty::Fault;
use crate::lanes::Lane;
use crate::rows::Seen;
use crate::time::{Frame, Times};
use handoff::clock::Now;
use handoff::outbox::outcome::{NotBefore, OutcomeKind, Report};
use handoff::rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// A handle to the ground that everybody stands on.
#[derive(Clone)]
pub(crate) struct Site {
    ground: Arc<Mutex<Ground>>,
    /// Told when the process dies inside a write.
    pub(crate) crash: Arc<Notify>,
}

impl Site {
    pub(crate) fn new(ground: Ground) -> Self {
        Self { ground: Arc::new(Mutex::new(ground)), crash: Arc::default() }
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, Ground> {
        self.ground.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that is not the product.
pub(crate) struct Ground {
    pub(crate) times: Times,
    /// The configuration in force.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) crms: Vec<Crm>,
    pub(crate) calls: Vec<Call>,
    /// A connection such as an application or an auditor has; it never waits.
    pub(crate) db: Connection,
    /// What the next writes meet.
    pub(crate) plan: VecDeque<Fault>,
    /// When the step that is under way was begun, in true time.
    pub(crate) decided: i64,
    /// The payload that each operation must be delivered with.
    pub(crate) payloads: BTreeMap<String, String>,
    /// Every row, as it was after the last move.
    pub(crate) seen: BTreeMap<String, Seen>,
    /// What its times meant.
    pub(crate) frame: Option<Frame>,
    /// When that was, in true time.
    pub(crate) seen_at: i64,
    /// How each attempt had ended then.
    pub(crate) ends: BTreeMap<(String, u32), Option<String>>,
    /// Processes that have died.
    pub(crate) dead: BTreeSet<u32>,
    /// Processes that have ended the wait for their calls.
    pub(crate) cut: BTreeSet<u32>,
    /// Calls that were just cut off.
    pub(crate) cut_calls: BTreeSet<String>,
    /// Outcomes that a process has heard of and that no pass has stored yet.
    pub(crate) told: Vec<Told>,
    /// Since when, and until when, receivers want no other try, as far as that is
    /// stored, in true time.
    pub(crate) pauses: BTreeMap<String, (i64, i64)>,
    /// Operations that a person has put forward by a clock that was ahead.
    pub(crate) ahead: BTreeSet<String>,
    /// When steps of the clock were last minded, in true time.
    pub(crate) minded: i64,
    /// Operations of which a process taken for dead has told something.
    pub(crate) late: BTreeSet<String>,
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    pub(crate) stats: BTreeMap<String, u64>,
}

/// An outcome that a process knows.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) process: u32,
    pub(crate) key: String,
    pub(crate) number: u32,
    pub(crate) kind: OutcomeKind,
    /// It was known when the clock was read for the step that is under way.
    pub(crate) ready: bool,
    /// It was known before the pass that is under way.
    pub(crate) before: bool,
    /// The receiver asked for no try before this time: as it said it; and, once the
    /// process has taken note, since when in true time, and for how long.
    pub(crate) asked: Option<NotBefore>,
    pub(crate) pause: Option<(i64, i64)>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    UnderWay,
    /// The receiver has found nothing under its key and works on it.
    AtWork,
    Done,
    /// It will never act.
    Dead,
}

/// What a waiting call is told.
pub(crate) enum Word {
    Report(Report),
    Panic,
}

/// One call, and its request on the way.
pub(crate) struct Call {
    pub(crate) key: String,
    pub(crate) number: u32,
    pub(crate) lane: usize,
    pub(crate) account: String,
    pub(crate) payload: String,
    pub(crate) process: u32,
    pub(crate) suspect: bool,
    /// When it was decided on, in true time.
    pub(crate) begun: i64,
    /// When it was given up, or its answer was heard, in true time.
    pub(crate) over: Option<i64>,
    /// When its process gives it up, in true time.
    pub(crate) deadline: i64,
    pub(crate) stage: Stage,
    /// A gateway has sent the request twice.
    pub(crate) doubled: bool,
    /// The second one is still under way.
    pub(crate) twin: bool,
    /// When the receiver first saw it.
    pub(crate) arrived: i64,
    pub(crate) reply: Option<Reply>,
    /// There as long as somebody listens.
    pub(crate) ear: Option<oneshot::Sender<Word>>,
    /// After this time the receiver no longer acts on it.
    pub(crate) until: Option<i64>,
}

impl Call {
    pub(crate) fn name(&self) -> String {
        format!("{}#{}", self.key, self.number)
    }

    /// The receiver may still act on it.
    pub(crate) fn is_live(&self) -> bool {
        self.twin || matches!(self.stage, Stage::UnderWay | Stage::AtWork)
    }

    fn request(&self) -> Request<'_> {
        Request {
            account: &self.account,
            key: &self.key,
            payload: &self.payload,
            number: self.number,
        }
    }
}

impl Ground {
    pub(crate) fn note(&mut self, what: impl AsRef<str>) {
        let line = format!("{:>24}  {}", self.times.show(), what.as_ref());
        self.trace.push(line);
    }

    pub(crate) fn count(&mut self, what: &str) {
        *self.stats.entry(what.to_owned()).or_default() += 1;
    }

    /// A rule is broken. Said by whoever sees it, heard at the end of the move.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// A process has taken note of all that it was told.
    pub(crate) fn noted(&mut self, process: u32, now: Now) {
        let truth = self.decided;
        let is_new = |told: &&mut Told| told.process == process && told.ready && !told.before;
        for told in self.told.iter_mut().filter(is_new) {
            told.before = true;
            let pause = |asked: NotBefore| asked.at(now.wall).since(now.wall).as_millis();
            told.pause = told.asked.map(|asked| (truth, pause(asked) as i64));
        }
    }

    /// By so much the wall clock was set forward since what is stored was last in
    /// step with it, where no daemon can know: in another boot.
    pub(crate) fn set_forward_unseen(&self) -> i64 {
        let frame = crate::rows::frame(&self.db, &self.times);
        let other = frame.filter(|frame| frame.boot != self.times.boot());
        other.map_or(0, |frame| self.times.set_since(&frame).max(0))
    }

    /// Times that lie further off than any pause are brought forward: at each start,
    /// and when the clock was set. By `early` the clock was set forward unseen.
    pub(crate) fn clamp(&mut self, early: i64) {
        for (key, (_, pause)) in &mut self.pauses {
            *pause -= early;
            let lane = self.seen.get(key).map(|row| &row.receiver);
            let lane = self.lanes.iter().find(|one| Some(one.name()) == lane.map(String::as_str));
            if let Some(lane) = lane {
                *pause = (*pause).min(self.times.truth + lane.longest());
            }
        }
        self.ahead.clear();
        self.minded = self.times.truth;
    }

    /// What an operation must be delivered with.
    pub(crate) fn expected(&self, key: &str) -> Option<&String> {
        self.payloads.get(key)
    }

    /// The request reaches the receiver.
    pub(crate) fn arrive(&mut self, place: usize) {
        let (call, now) = (&mut self.calls[place], self.times.truth);
        let crm = &mut self.crms[call.lane];
        call.arrived = now;
        let reply = match crm.remembers(call.request(), now) {
            Some(reply) => reply,
            None if crm.truth.atomic => crm.create(call.request(), now),
            None => {
                call.stage = Stage::AtWork;
                return;
            }
        };
        call.stage = Stage::Done;
        call.reply = Some(reply);
    }

    /// A receiver that looks first and acts later acts, whatever came in between.
    pub(crate) fn finish(&mut self, place: usize) {
        let call = &mut self.calls[place];
        let reply = self.crms[call.lane].create(call.request(), call.arrived);
        call.stage = Stage::Done;
        call.reply = Some(reply);
    }

    /// The second copy of a request arrives; nobody hears its answer.
    pub(crate) fn arrive_twin(&mut self, place: usize) {
        let (call, now) = (&mut self.calls[place], self.times.truth);
        let crm = &mut self.crms[call.lane];
        call.twin = false;
        if crm.remembers(call.request(), now).is_none() {
            crm.create(call.request(), now);
        }
    }

    /// Requests that the receiver must not act on any more are dead.
    pub(crate) fn bury(&mut self) {
        let now = self.times.truth;
        for call in &mut self.calls {
            if call.is_live() && call.until.is_some_and(|until| now >= until) {
                call.twin = false;
                if call.stage != Stage::Done {
                    call.stage = Stage::Dead;
                }
            }
        }
    }

    /// From now on the receiver may act on this request only as late as it says.
    pub(crate) fn give_up(&mut self, place: usize) {
        let now = self.times.truth;
        let call = &mut self.calls[place];
        let lateness = self.lanes[call.lane].lateness();
        let latest = now + lateness;
        call.until = Some(call.until.map_or(latest, |until| until.min(latest)));
        call.over.get_or_insert(now);
    }

    /// Nobody waits for it any more: its process is dead, or was answered and a second
    /// copy is under way. It may act late, until a next start gives it up; but a receiver
    /// that forgets keys would then see it beyond every promise, so there it keeps to
    /// the timeout.
    pub(crate) fn keep_to_the_timeout(&mut self, place: usize) {
        let lane = &self.lanes[self.calls[place].lane];
        if lane.truth.window.is_some() {
            let latest = self.calls[place].deadline + lane.lateness();
            let call = &mut self.calls[place];
            call.until = Some(call.until.map_or(latest, |until| until.min(latest)));
        }
    }

    /// Records of ours under this key.
    pub(crate) fn effects(&self, key: &str) -> Vec<&crate::crm::Effect> {
        self.crms.iter().flat_map(|crm| &crm.effects).filter(|effect| effect.key == key).collect()
    }

    /// Whether a request for this key may still act.
    pub(crate) fn may_still_act(&self, key: &str) -> bool {
        self.calls.iter().any(|call| call.key == key && call.is_live())
    }
}
