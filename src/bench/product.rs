//! The program's own side of the bench: its library, its store, its supervisor.

use super::{BenchError, CONCURRENCY, connection, sample, settings};
use crate::clock::{Now, wall};
use crate::outbox::key::OperationKey;
use crate::outbox::operation::Operation;
use crate::outbox::outcome::Report;
use crate::outbox::payload::Payload;
use crate::outbox::rules::Rules;
use crate::receiver::{Journal, Receiver};
use crate::record::{RecordError, record as record_one};
use crate::store::sqlite::{Access, Sqlite};
use crate::store::{Attempt, Mirror, Store};
use crate::supervisor::{Parts, Supervisor};
use async_trait::async_trait;
use rusqlite::TransactionBehavior;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A receiver that does nothing and answers at once.
struct Nothing;

#[async_trait]
impl Receiver for Nothing {
    async fn deliver(&self, _: &Attempt, _: &dyn Journal) -> Report {
        Report::applied(Some("1".to_owned()))
    }
}

pub(super) async fn open(file: &Path, rules: &Rules) -> Result<Arc<Sqlite>, BenchError> {
    let store = Sqlite::open(&settings(file), Access::Create, "bench").await?;
    store.mirror(&Arc::new(rules.clone()), Mirror::Replace).await?;
    Ok(Arc::new(store))
}

/// Records operations by the library, 64 in a transaction; how long that took.
pub(super) async fn record(
    file: &Path,
    rules: &Rules,
    from: usize,
    count: usize,
) -> Result<Duration, BenchError> {
    let store = open(file, rules).await?;
    let mut db = connection(file)?;
    let start = Instant::now();
    let mut number = from;
    while number < from + count {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for number in number..(number + super::raw::GROUP).min(from + count) {
            record_one(&tx, &operation(number)).map_err(database)?;
        }
        tx.commit()?;
        number += super::raw::GROUP;
    }
    let took = start.elapsed();
    store.close().await?;
    Ok(took)
}

pub(super) fn operation(number: usize) -> Operation {
    let (key, payload) = sample(number);
    let key = OperationKey::parse(&key).expect("the key of a sample is one");
    let payload = Payload::parse(&payload).expect("the payload of a sample is one");
    Operation::new(key, "crm", payload, "bench").expect("the sample is an operation")
}

pub(super) fn database(error: RecordError) -> rusqlite::Error {
    match error {
        RecordError::Database(error) | RecordError::NoTables(error) => error,
        RecordError::Conflict(_) | RecordError::Refused(_) => rusqlite::Error::InvalidQuery,
    }
}

/// A supervisor with the receiver that does nothing.
pub(super) fn supervisor(store: &Arc<Sqlite>, rules: &Rules) -> Supervisor {
    supervisor_of(store, rules, Arc::new(Nothing))
}

/// A supervisor with this receiver.
pub(super) fn supervisor_of(
    store: &Arc<Sqlite>,
    rules: &Rules,
    receiver: Arc<dyn Receiver>,
) -> Supervisor {
    let timeout = Duration::from_secs(10);
    let parts = Parts::single(rules.clone(), "crm", receiver, CONCURRENCY, timeout);
    Supervisor::new(Arc::clone(store) as Arc<dyn Store>, parts)
}

/// Delivers everything that is pending; how long that took.
pub(super) async fn deliver(file: &Path, rules: &Rules) -> Result<Duration, BenchError> {
    let store = open(file, rules).await?;
    let mut supervisor = supervisor(&store, rules);
    let start = Instant::now();
    supervisor.turn(Now::at(wall())).await?;
    let took = start.elapsed();
    store.close().await?;
    Ok(took)
}
