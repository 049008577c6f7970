//! Blocked operations whose effect is not known are looked up again now and then,
//! where that is configured and their receiver can be asked.

use crate::clock::Now;
use crate::outbox::hold;
use crate::outbox::rules::Rules;
use crate::outbox::state::{BlockReason, Effect, State};
use crate::outbox::verbs::Deed;
use crate::store::{Act, Filter, OperationRow, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time between two looks at what is blocked.
const LOOK: Duration = Duration::from_secs(5);
/// Operations that one look has looked up, at most, so that it stays short.
const AT_ONCE: usize = 32;
/// In whose name it is done.
const WHO: &str = "policy:reconcile";

/// How often it is done by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconcile {
    /// Between two look-ups of one operation.
    pub every: Duration,
    /// How long after its first delivery an operation is still looked up so.
    pub within: Duration,
}

/// When which operation was asked for last.
#[derive(Default)]
pub(super) struct Rounds {
    looked: Option<Instant>,
    asked: BTreeMap<String, Instant>,
}

impl Rounds {
    /// Has those looked up whose time has come.
    ///
    /// # Errors
    ///
    /// What the store could not do is done by a later look.
    pub(super) async fn take(
        &mut self,
        store: &dyn Store,
        rules: &Arc<Rules>,
        settings: Option<Reconcile>,
        now: Now,
    ) -> Result<(), StoreError> {
        let Some(settings) = settings else { return Ok(()) };
        if self.looked.is_some_and(|looked| looked.elapsed() < settings.every.min(LOOK)) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let filter = Filter { state: Some(State::Blocked), ..Filter::default() };
        let mut blocked = store.list(filter).await?;
        blocked.retain(|row| fits(row, rules, settings, now));
        self.asked.retain(|key, _| blocked.iter().any(|row| row.operation_key == *key));
        let held = store.holds(now).await?;
        // Where a receiver is held, its turn comes when it no longer is.
        let free = |row: &OperationRow| hold::last(&held, &row.receiver, now.wall).is_none();
        let due = |row: &&OperationRow| {
            let last = self.asked.get(&row.operation_key);
            free(row) && last.is_none_or(|asked| asked.elapsed() >= settings.every)
        };
        let due: Vec<&OperationRow> = blocked.iter().filter(due).take(AT_ONCE).collect();
        for row in due {
            let key = row.operation_key.clone();
            let (deed, version, who) = (Deed::Reconcile, row.version, WHO.to_owned());
            let act = Act { key: key.clone(), deed, version, who, reason: None };
            // Refused or moved on: somebody else is at it.
            store.act(rules, act, now).await?;
            self.asked.insert(key, Instant::now());
        }
        Ok(())
    }
}

/// Whether a look-up may settle it. What differs at the receiver is a person's affair.
fn fits(row: &OperationRow, rules: &Rules, settings: Reconcile, now: Now) -> bool {
    let in_doubt = row.effect == Effect::Possible
        && !matches!(row.blocked_reason, Some(BlockReason::Conflict | BlockReason::Invalid));
    let can_ask = rules.terms(&row.receiver).contract.look_up.is_some();
    let young = row.first_attempt_at.is_some_and(|at| now.wall.since(at) < settings.within);
    in_doubt && can_ask && young
}
