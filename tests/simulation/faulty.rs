//! The real store, with writes that fail, are lost, take long, or are the last
//! thing that the process does.

use crate::ground::Site;
use async_trait::async_trait;
use handoff::clock::{Now, SteadyMark, Steps};
use handoff::outbox::hold::Hold;
use handoff::outbox::rules::Rules;
use handoff::outbox::verbs::Deed;
use handoff::process::ProcessGroup;
use handoff::rusqlite::{self, ffi};
use handoff::store::{
    Act, Acted, AttemptId, AttemptRow, Event, Filter, HoldAct, Mirror, OperationRow, Pass, Passed,
    Recovered, Store, StoreError, Summary, Upkeep,
};
use handoff::{Operation, OperationKey, RecordError, Recorded};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The write that moves what is stored with a clock that was set.
const MINDING: &str = "the minding";

/// What a write meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused; nothing was written.
    Refused(Why),
    /// Outcomes are written, the claim is refused.
    ClaimRefused(Why),
    /// Outcomes are written; the claim is, and nobody hears of it.
    ClaimUnknown,
    /// Outcomes are refused, and the claim, on its own, is written.
    SaveRefused(Why),
    /// Nobody hears whether it was written: it was, in these parts.
    Unknown { saved: bool, claimed: bool },
    /// The process dies before it is written.
    CrashBefore,
    /// The process dies after it is written, and before it hears so.
    CrashAfter,
    /// It takes so many milliseconds.
    Slow(i64),
    /// It takes a second, and somebody sets the wall clock meanwhile.
    Set(i64),
}

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Busy,
    Full,
    Unavailable,
    Failed,
}

/// The store of one process.
pub(crate) struct Faulty {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) site: Site,
    pub(crate) process: u32,
}

fn sqlite(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("as the simulation likes".into()))
}

fn refused(why: Why) -> StoreError {
    match why {
        Why::Busy => StoreError::Busy(sqlite(ffi::SQLITE_BUSY)),
        Why::Full => StoreError::Full(sqlite(ffi::SQLITE_FULL)),
        Why::Failed => StoreError::Database(sqlite(ffi::SQLITE_ERROR)),
        Why::Unavailable => StoreError::Unavailable {
            place: "app.db".to_owned(),
            problem: "as the simulation likes".to_owned(),
        },
    }
}

fn unknown() -> StoreError {
    StoreError::CommitUnknown(sqlite(ffi::SQLITE_IOERR))
}

impl Faulty {
    fn fault(&self, what: &str) -> Option<Fault> {
        let mut ground = self.site.look();
        let fault = ground.plan.pop_front()?;
        ground.note(format!("  {what} meets {fault:?}"));
        ground.count(match fault {
            Fault::Refused(_) => "refused",
            Fault::ClaimRefused(_) => "claim refused",
            Fault::ClaimUnknown => "claim unknown",
            Fault::SaveRefused(_) => "save refused",
            Fault::Unknown { .. } => "commit unknown",
            Fault::CrashBefore => "crash before a commit",
            Fault::CrashAfter => "crash after a commit",
            Fault::Slow(_) => "slow commit",
            Fault::Set(_) => "set meanwhile",
        });
        if what == MINDING && matches!(fault, Fault::CrashBefore | Fault::CrashAfter) {
            ground.count("crash in a minding");
        }
        Some(fault)
    }

    /// The process ends here.
    async fn die<T>(&self) -> T {
        self.site.crash.notify_one();
        std::future::pending().await
    }

    async fn set(&self, by: i64) {
        self.site.look().times.set_wall(by);
        self.take(1_000).await;
    }

    async fn take(&self, millis: i64) {
        self.site.look().times.pass(millis);
        tokio::time::advance(Duration::from_millis(millis.unsigned_abs())).await;
        crate::world::settle().await;
        self.site.look().bury();
    }

    /// Any write but a pass.
    async fn write<T>(
        &self,
        what: &str,
        real: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match self.fault(what) {
            None => real.await,
            Some(Fault::Refused(why) | Fault::ClaimRefused(why) | Fault::SaveRefused(why)) => {
                Err(refused(why))
            }
            Some(Fault::ClaimUnknown) => real.await.and(Err(unknown())),
            Some(Fault::Unknown { saved: true, .. }) => real.await.and(Err(unknown())),
            Some(Fault::Unknown { saved: false, .. }) => Err(unknown()),
            Some(Fault::CrashBefore) => self.die().await,
            Some(Fault::CrashAfter) => {
                real.await.ok();
                self.die().await
            }
            Some(Fault::Slow(millis)) => {
                let done = real.await;
                self.take(millis).await;
                done
            }
            Some(Fault::Set(by)) => {
                let done = real.await;
                self.set(by).await;
                done
            }
        }
    }

    /// The first error of a group is told before the rest of it has been tried
    /// again; the order of the simulation must not hang on when that is done.
    async fn wait_for_the_writer(&self, rules: &Arc<Rules>, now: Now) {
        let act = Act {
            key: "none".to_owned(),
            deed: Deed::Retry,
            version: 0,
            who: "nobody".to_owned(),
            reason: None,
        };
        self.store.act(rules, act, now).await.ok();
    }

    async fn save_only(
        &self,
        rules: &Arc<Rules>,
        pass: &Pass,
        now: Now,
    ) -> Result<Vec<Event>, StoreError> {
        let pass = Pass { concluded: Arc::clone(&pass.concluded), slots: BTreeMap::new() };
        Ok(self.store.pass(rules, pass, now).await?.events)
    }
}

fn claim_failed(saved: Vec<Event>, source: StoreError) -> StoreError {
    StoreError::ClaimFailed { saved, source: Box::new(source) }
}

#[async_trait]
impl Store for Faulty {
    async fn pass(&self, rules: &Arc<Rules>, pass: Pass, now: Now) -> Result<Passed, StoreError> {
        self.site.look().noted(self.process, now);
        let Some(fault) = self.fault("the pass") else {
            let passed = self.store.pass(rules, pass, now).await;
            if passed.is_err() {
                self.wait_for_the_writer(rules, now).await;
            }
            return passed;
        };
        let claim = Pass { slots: pass.slots.clone(), ..Pass::default() };
        match fault {
            Fault::Refused(why) => Err(refused(why)),
            Fault::ClaimRefused(why) => {
                Err(claim_failed(self.save_only(rules, &pass, now).await?, refused(why)))
            }
            Fault::ClaimUnknown => {
                let saved = self.save_only(rules, &pass, now).await?;
                self.store.pass(rules, claim, now).await?;
                Err(claim_failed(saved, unknown()))
            }
            Fault::SaveRefused(why) => {
                self.store.pass(rules, claim, now).await?;
                Err(refused(why))
            }
            Fault::Unknown { saved, claimed } => {
                if saved {
                    self.save_only(rules, &pass, now).await?;
                }
                if claimed {
                    self.store.pass(rules, claim, now).await?;
                }
                Err(unknown())
            }
            Fault::CrashBefore => self.die().await,
            Fault::CrashAfter => {
                self.store.pass(rules, pass, now).await?;
                self.die().await
            }
            Fault::Slow(millis) => {
                let passed = self.store.pass(rules, pass, now).await;
                self.take(millis).await;
                passed
            }
            Fault::Set(by) => {
                let passed = self.store.pass(rules, pass, now).await;
                self.set(by).await;
                passed
            }
        }
    }

    async fn ready(&self) {
        self.store.ready().await;
    }

    async fn recover(
        &self,
        rules: &Arc<Rules>,
        mark: Option<&SteadyMark>,
        now: Now,
    ) -> Result<Recovered, StoreError> {
        let recover = async {
            crate::laws::rows::check_ends(&mut self.site.look());
            let early = self.site.look().set_forward_unseen();
            let recovered = self.store.recover(rules, mark, now).await?;
            self.site.look().clamp(early);
            Ok(recovered)
        };
        self.write("the recovery", recover).await
    }

    async fn disown(
        &self,
        rules: &Arc<Rules>,
        holding: Vec<AttemptId>,
        now: Now,
    ) -> Result<Vec<Event>, StoreError> {
        self.site.look().noted(self.process, now);
        self.site.look().count("disowned");
        self.write("the disowning", self.store.disown(rules, holding, now)).await
    }

    async fn mind_steps(
        &self,
        rules: &Arc<Rules>,
        mark: &SteadyMark,
        now: Now,
    ) -> Result<Steps, StoreError> {
        let mind = async {
            crate::laws::rows::check_ends(&mut self.site.look());
            let steps = self.store.mind_steps(rules, mark, now).await?;
            let mut ground = self.site.look();
            if steps.wall != 0 {
                ground.clamp(0);
                ground.count("minded");
                if ground.calls.iter().any(|call| call.ear.is_some()) {
                    ground.count("minded with calls under way");
                }
            }
            Ok(steps)
        };
        self.write(MINDING, mind).await
    }

    async fn note_process(&self, id: &AttemptId, group: &ProcessGroup) -> Result<(), StoreError> {
        self.store.note_process(id, group).await
    }

    async fn left_processes(&self) -> Result<Vec<(AttemptId, ProcessGroup)>, StoreError> {
        self.store.left_processes().await
    }

    async fn record(
        &self,
        rules: &Arc<Rules>,
        operation: Operation,
    ) -> Result<Result<Recorded, RecordError>, StoreError> {
        self.write("the recording", self.store.record(rules, operation)).await
    }

    async fn other_version(&self, key: &OperationKey) -> Result<Option<String>, StoreError> {
        self.store.other_version(key).await
    }

    async fn act(&self, rules: &Arc<Rules>, act: Act, now: Now) -> Result<Acted, StoreError> {
        self.write("the verb", self.store.act(rules, act, now)).await
    }

    async fn pause(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.write("the pause", self.store.pause(act, now)).await
    }

    async fn resume(&self, act: HoldAct, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.write("the end of holds", self.store.resume(act, now)).await
    }

    async fn holds(&self, now: Now) -> Result<Vec<Hold>, StoreError> {
        self.store.holds(now).await
    }

    async fn mirror(&self, rules: &Arc<Rules>, how: Mirror) -> Result<(), StoreError> {
        self.write("the mirror", self.store.mirror(rules, how)).await
    }

    async fn find(&self, key: &str) -> Result<Option<OperationRow>, StoreError> {
        self.store.find(key).await
    }

    async fn history(&self, key: &str) -> Result<Vec<AttemptRow>, StoreError> {
        self.store.history(key).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<OperationRow>, StoreError> {
        self.store.list(filter).await
    }

    async fn summary(&self, now: Now) -> Result<Summary, StoreError> {
        self.store.summary(now).await
    }

    async fn steady_mark(&self) -> Result<Option<SteadyMark>, StoreError> {
        self.store.steady_mark().await
    }

    fn keep_mark(&self, mark: SteadyMark) {
        self.store.keep_mark(mark);
    }

    async fn upkeep(&self) -> Result<Upkeep, StoreError> {
        self.write("the upkeep", self.store.upkeep()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
