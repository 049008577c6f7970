//! What happens, move by move, as the seed will have it; and the quiet end, at
//! which everything that troubled the world is mended.

use crate::answers;
use crate::chance::Chance;
use crate::faulty::{Fault, Why};
use crate::time::STEP_MIN;
use crate::world::{World, cut_off, settle, step};
use handoff::outbox::state::Verb;
use handoff::outbox::verbs::Deed;
use handoff::store::{Act, Acted};

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Record,
    Step,
    /// Something happens to a request.
    Answer,
    /// Milliseconds.
    Pass(i64),
    SetWall(i64),
    /// A pass while another program holds the write lock.
    StepLocked,
    /// A pass while the database refuses one kind of statement.
    StepRefused,
    Crash,
    /// Taken for dead, but it listens on.
    GetLost,
    Stop,
    Verb,
    Reload,
    /// The process that was taken for dead makes a pass, and may end.
    StepUndead,
    Start,
    Reboot,
}

/// How much of each trouble there is in one run, so that some runs are full of
/// one kind, and others get far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    crashes: u64,
    /// It dies again and again with a call under way.
    haunted: bool,
    /// Of 24 writes.
    faults: u64,
    clocks: u64,
    people: u64,
    reloads: u64,
    /// Hours may go by.
    patient: bool,
}

impl Temper {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        Self {
            crashes: chance.pick(&[0, 1, 1, 4]),
            haunted: chance.one_in(5),
            faults: chance.pick(&[0, 2, 4, 9]),
            clocks: chance.pick(&[0, 1, 1, 4]),
            people: chance.pick(&[0, 2, 6]),
            reloads: chance.pick(&[0, 1, 4]),
            patient: chance.one_in(2),
        }
    }
}

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;

impl World {
    /// One move, and then every law.
    pub(crate) async fn make_a_move(&mut self) {
        let what = self.draw();
        self.note(format!("{what:?}"));
        match what {
            Move::Record => self.record().await,
            Move::Step => {
                self.draw_faults();
                self.step().await;
            }
            Move::Answer => {
                answers::happen(&mut self.site.look(), &mut self.chance);
                settle().await;
            }
            Move::Pass(by) => self.pass(by).await,
            Move::SetWall(by) => {
                self.site.look().times.set_wall(by);
                self.count(if by < 0 { "set back" } else { "set forward" });
            }
            Move::StepLocked => self.step_locked().await,
            Move::StepRefused => self.step_refused().await,
            Move::Crash => self.crash(false).await,
            Move::GetLost => self.crash(true).await,
            Move::Stop => self.stop().await,
            Move::Verb => self.verb().await,
            Move::Reload => self.reload().await,
            Move::StepUndead => self.step_undead().await,
            Move::Start => {
                self.draw_faults();
                self.start().await;
                self.site.look().plan.clear();
            }
            Move::Reboot => self.reboot().await,
        }
        self.check().await;
    }

    fn draw(&mut self) -> Move {
        let by = match self.chance.below(12) {
            0 => self.chance.between(1, 30) as i64,
            1..=7 => self.chance.between(100, 4_000) as i64,
            8 | 9 => self.chance.between(5_000, 90_000) as i64,
            _ if self.next_due.is_some() && self.chance.one_in(3) => self.until_due(),
            10 if self.temper.patient => self.chance.between(1, 7_000) as i64 * SECOND,
            _ => self.chance.between(1_000, 20_000) as i64,
        };
        let step = self.draw_step();
        let serves = self.process.is_some();
        let awaited = answers::are_awaited(&self.site.look());
        let answers = if awaited { 40 } else { 0 };
        let is_told = !self.site.look().told.is_empty();
        let often = if is_told { 6 } else { 1 + u64::from(awaited) };
        let crashes = if awaited && self.temper.haunted { 20 } else { self.temper.crashes };
        let mut moves = vec![
            (6, Move::Record),
            (answers, Move::Answer),
            (14, Move::Pass(by)),
            (often * self.temper.clocks, Move::SetWall(step)),
        ];
        if serves {
            moves.extend([
                (34, Move::Step),
                (1, Move::StepLocked),
                (1, Move::StepRefused),
                (crashes, Move::Crash),
                (1, Move::Stop),
                (self.temper.people, Move::Verb),
                (self.temper.reloads, Move::Reload),
            ]);
            if self.undead.is_none() {
                let more = if awaited { 3 } else { 1 };
                moves.push((more * self.temper.crashes, Move::GetLost));
            }
        } else {
            moves.push((30, Move::Start));
            // Of a clock that is set back while the machine is off nothing is promised.
            if !self.is_set_back() {
                moves.push((self.temper.clocks, Move::Reboot));
            }
        }
        if self.undead.is_some() {
            moves.push((6, Move::StepUndead));
        }
        self.chance.weighed(&moves)
    }

    /// A step of the wall clock. What is too small to be minded does not come in rows.
    fn draw_step(&mut self) -> i64 {
        let step = self.chance.pick(&[-3 * HOUR, -90 * SECOND, -400, 400, 90 * SECOND, 3 * HOUR]);
        let times = &self.site.look().times;
        let again = times.was_nudged_since(times.truth - 20 * SECOND);
        let step = if again && step.abs() < STEP_MIN { 90 * SECOND * step.signum() } else { step };
        // Nothing is promised of a clock that is set back before the first daemon
        // of a boot has looked at it.
        if self.rebooted { step.abs() } else { step }
    }

    /// The wall clock was set back since the last daemon kept it.
    fn is_set_back(&self) -> bool {
        let ground = self.site.look();
        let frame = crate::rows::frame(&ground.db, &ground.times);
        frame.is_some_and(|frame| ground.times.set_since(&frame) < 0)
    }

    /// How long until the next operation falls due.
    fn until_due(&self) -> i64 {
        let now = self.site.look().times.wall();
        let due = self.next_due.map_or(0, |due| due.since(now).as_millis() as i64);
        due.clamp(1, if self.temper.patient { 2 * HOUR } else { 60 * SECOND })
    }

    /// What the next writes will meet: mostly nothing.
    pub(crate) fn draw_faults(&mut self) {
        let (none, one) = (24 - self.temper.faults, self.temper.faults);
        let many = self.chance.weighed(&[(none, 0), (one, 1), (one / 4, 2)]);
        for _ in 0..many {
            let why = self.chance.pick(&[Why::Busy, Why::Full, Why::Unavailable, Why::Failed]);
            let slow = self.chance.pick(&[300, 4_000, 6_500]);
            let step = self.draw_step();
            let (saved, claimed) = (self.chance.one_in(2), self.chance.one_in(2));
            let fault = self.chance.weighed(&[
                (2, Fault::Refused(why)),
                (2, Fault::ClaimRefused(why)),
                (2, Fault::ClaimUnknown),
                (2, Fault::SaveRefused(why)),
                (3, Fault::Unknown { saved, claimed }),
                (self.temper.crashes.min(2), Fault::CrashBefore),
                (self.temper.crashes.min(2), Fault::CrashAfter),
                (3, Fault::Slow(slow)),
                (self.temper.clocks.min(2), Fault::Set(step)),
            ]);
            self.site.look().plan.push_back(fault);
        }
    }

    async fn step_locked(&mut self) {
        self.site.look().db.execute_batch("BEGIN IMMEDIATE").unwrap();
        self.step().await;
        // Nothing can have begun, so that no call has met the lock.
        self.site.look().db.execute_batch("ROLLBACK").unwrap();
        self.count("locked");
    }

    async fn step_refused(&mut self) {
        let on = self.chance.pick(&[
            "BEFORE INSERT ON handoff_attempts",
            "BEFORE UPDATE OF outcome ON handoff_attempts",
            "BEFORE UPDATE ON handoff_outbox",
        ]);
        let how = self.chance.pick(&["ABORT", "FAIL", "ROLLBACK"]);
        self.note(format!("  {on}: {how}"));
        let trigger =
            format!("CREATE TRIGGER in_the_way {on} BEGIN SELECT RAISE({how}, 'in the way'); END");
        self.site.look().db.execute_batch(&trigger).unwrap();
        self.step().await;
        self.site.look().db.execute_batch("DROP TRIGGER in_the_way").unwrap();
        self.count("refused by a trigger");
    }

    /// A stop in order: nothing new, some answers, then the rest is cut off.
    async fn stop(&mut self) {
        self.count("stopped");
        let Some(process) = &mut self.process else { return };
        process.supervisor.stop_claiming();
        for _ in 0..self.chance.below(4) {
            answers::happen(&mut self.site.look(), &mut self.chance);
            settle().await;
            self.draw_faults();
            self.step().await;
            if self.process.is_none() {
                return;
            }
        }
        let Some(process) = &mut self.process else { return };
        cut_off(&self.site, process).await;
        for _ in 0..3 {
            self.draw_faults();
            match self.step().await {
                None => return,
                Some(Ok(_)) => break,
                Some(Err(_)) => {}
            }
        }
        let Some(process) = self.process.take() else { return };
        process.store.close().await.ok();
        self.bury(process).await;
    }

    /// A person asks for something, having looked just now or some time ago.
    async fn verb(&mut self) {
        let Some(process) = &self.process else { return };
        let keys: Vec<String> = self.site.look().payloads.keys().cloned().collect();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.chance.place(keys.len())].clone();
        let deeds = [Deed::Retry, Deed::Retry, Deed::Withdraw];
        let deed = deeds[self.chance.place(deeds.len())].clone();
        let verb = deed.verb();
        let version = process.store.find(&key).await.unwrap().unwrap().version;
        let stale = self.chance.one_in(8);
        let version = if stale { version - 1 } else { version };
        self.note(format!("  {verb} {key} at version {version}"));
        let (who, reason) = ("ann".to_owned(), None);
        let act = Act { key: key.clone(), deed, version, who, reason };
        self.draw_faults();
        let Some(process) = &self.process else { return };
        let now = self.site.look().times.now();
        let done = self.unless_it_dies(process.store.act(&process.rules, act, now)).await;
        self.site.look().plan.clear();
        {
            // A retry waits for nothing.
            let mut ground = self.site.look();
            ground.pauses.remove(&key);
            let frame = crate::rows::frame(&ground.db, &ground.times);
            if frame.is_some_and(|frame| ground.times.set_since(&frame) > 0) {
                ground.ahead.insert(key.clone());
            }
        }
        let moved = match verb {
            Verb::Withdraw => &mut self.moved.withdrawn,
            Verb::Retry | Verb::Reconcile | Verb::Resolve => &mut self.moved.retried,
        };
        let word = match &done {
            Some(Ok(Acted::Done(..))) => {
                moved.insert(key);
                "done"
            }
            // It may have been done.
            None | Some(Err(_)) => {
                moved.insert(key);
                "in doubt"
            }
            Some(Ok(_)) => "refused",
        };
        self.count(&format!("{verb} {word}"));
        self.note(format!("  {word}"));
        if stale && word == "done" {
            self.site.look().violation("a verb was done at a version that has passed");
        }
        if done.is_none() {
            self.crash(false).await;
        }
    }

    /// The daemon is told to read its changed configuration.
    async fn reload(&mut self) {
        let mut lanes = self.site.look().lanes.clone();
        let place = self.chance.place(lanes.len());
        lanes[place].change(&mut self.chance);
        self.note(format!("  {:?}", lanes[place]));
        self.draw_faults();
        self.take_over(lanes).await;
        self.site.look().plan.clear();
    }

    async fn take_over(&mut self, lanes: Vec<crate::lanes::Lane>) {
        let Some(mut process) = self.process.take() else { return };
        let parts = self.parts(&lanes, process.number);
        let rules = std::sync::Arc::clone(&parts.rules);
        let done = self.unless_it_dies(process.supervisor.replace_parts(parts)).await;
        self.note(format!("  {done:?}"));
        if let Some(Ok(())) = done {
            process.rules = rules;
            self.site.look().lanes = lanes;
            self.count("reloaded");
        }
        self.process = Some(process);
        if done.is_none() {
            self.crash(false).await;
        }
    }

    async fn step_undead(&mut self) {
        let Some(mut process) = self.undead.take() else { return };
        if self.chance.one_in(4) {
            cut_off(&self.site, &process).await;
            self.count("cut off late");
        }
        let stepped = step(&self.site, &mut process).await;
        self.note(format!("  process {}: {stepped:?}", process.number));
        self.moved.late = true;
        if let Some(Ok(_)) = stepped {
            self.stored(process.number, false);
        }
        let listens = self
            .site
            .look()
            .calls
            .iter()
            .any(|call| call.process == process.number && call.ear.is_some());
        if listens && !self.chance.one_in(6) {
            self.undead = Some(process);
        } else {
            self.bury(process).await;
        }
    }

    /// No process outlives it.
    async fn reboot(&mut self) {
        if let Some(process) = self.undead.take() {
            self.bury(process).await;
        }
        self.site.look().times.reboot();
        self.rebooted = true;
        self.count("rebooted");
    }

    /// Mends everything and lets time go on until nothing is left to do.
    pub(crate) async fn end(&mut self) {
        self.note("everything is mended");
        let mut lanes = self.site.look().lanes.clone();
        lanes.iter_mut().for_each(crate::lanes::Lane::mend);
        if self.process.is_none() {
            self.start().await;
        }
        self.take_over(lanes).await;
        let mut quiet = 0;
        for _ in 0..2_000 {
            let progress = self.step().await.unwrap().unwrap();
            let called = answers::heal(&mut self.site.look());
            settle().await;
            self.bury_undead().await;
            self.check().await;
            let now = self.site.look().times.now().wall;
            match progress.next_due {
                _ if called || !progress.is_idle() => quiet = 0,
                Some(due) => self.pass(due.since(now).as_millis() as i64).await,
                None => quiet += 1,
            }
            if quiet == 2 {
                return self.at_rest();
            }
        }
        panic!("it does not come to rest");
    }

    async fn bury_undead(&mut self) {
        if self.undead.is_some() {
            self.step_undead().await;
        }
    }

    /// Nothing waits, nothing is open, nothing that was known is missing.
    fn at_rest(&mut self) {
        let mut ground = self.site.look();
        assert!(ground.told.is_empty(), "never stored: {:?}", ground.told);
        let seen = ground.seen.clone();
        for (key, row) in &seen {
            ground.count(&format!("at rest: {}", row.state));
            if let Some(reason) = &row.reason {
                ground.count(&format!("blocked: {reason}"));
            }
            assert!(row.state != "pending", "{key} still waits: {row:?}");
        }
        let sound = crate::rows::rows(&ground.db, "PRAGMA integrity_check");
        let ok = handoff::rusqlite::types::Value::Text("ok".to_owned());
        assert_eq!(sound, [[ok]], "the file is sound");
    }
}
