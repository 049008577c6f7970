//! What grows beside the database is looked at now and then.

use crate::store::{Store, StoreError, Upkeep};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// When the next look is due, and what the log was told.
#[derive(Default)]
pub(super) struct Care {
    looked: Option<Instant>,
    /// The size that was told of; `None` if all was well.
    told: Option<u64>,
}

impl Care {
    /// Looks, if it is time. Says what is large once, again whenever it has
    /// doubled, and when it is over.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] if there is nothing left to look after.
    pub(super) async fn take(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        if self.looked.is_some_and(|looked| looked.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        match store.upkeep().await {
            Ok(Upkeep::Fine) => {
                if self.told.take().is_some() {
                    tracing::info!(event = "wal_shrunk", "the write-ahead log is small again");
                }
            }
            Ok(Upkeep::LargeLog { bytes }) => self.large(bytes),
            Err(error @ StoreError::Unusable { .. }) => return Err(error),
            Err(error) => self.failed(&error),
        }
        Ok(())
    }

    fn large(&mut self, bytes: u64) {
        if self.told.is_some_and(|told| bytes < told.saturating_mul(2)) {
            return;
        }
        self.told = Some(bytes);
        tracing::warn!(
            event = "wal_large",
            wal_bytes = bytes,
            "the write-ahead log cannot be moved into the database: look for a program that \
             keeps a transaction open"
        );
    }

    fn failed(&mut self, error: &StoreError) {
        if self.told.is_none() {
            self.told = Some(u64::MAX);
            tracing::warn!(
                event = "wal_large", error = %error,
                "the write-ahead log cannot be moved into the database"
            );
        }
    }
}
