//! What the CRM has done: its records, and what it does when a key comes again.

use std::time::Duration;

/// What the CRM promises about keys. Contents are compared byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Nothing: each request makes a record.
    None,
    /// The same key and content get the first answer again, other content a conflict.
    IdempotencyKey {
        /// How long it remembers a key, counted from its first use; `None` is for ever.
        window: Option<Duration>,
    },
    /// A key that is taken is refused, whatever the content.
    CreateOnly,
    /// The record of a key is overwritten.
    Upsert,
}

/// A record of the CRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its id, from 1.
    pub id: u64,
    /// The key that it was made under.
    pub key: Option<String>,
    /// The body of the request that wrote it last.
    pub content: Vec<u8>,
    /// How often it was written.
    pub writes: u64,
}

/// What a request came to at the CRM, and the record that this is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// A record was made.
    Made(u64),
    /// A record was overwritten.
    Updated(u64),
    /// Nothing: it had been done before.
    Replayed(u64),
    /// Nothing: the key is taken.
    Exists(u64),
    /// Nothing: the key was used with other content.
    Conflict(u64),
    /// A look-up found it.
    Found(u64),
    /// A look-up found nothing.
    Absent,
}

impl Effect {
    /// The id of the record that this is about.
    #[must_use]
    pub const fn record(self) -> Option<u64> {
        match self {
            Self::Made(id)
            | Self::Updated(id)
            | Self::Replayed(id)
            | Self::Exists(id)
            | Self::Conflict(id)
            | Self::Found(id) => Some(id),
            Self::Absent => None,
        }
    }
}

/// The CRM's store.
#[derive(Debug, Default)]
pub(super) struct Records {
    records: Vec<Record>,
    /// Keys with the time of their first use, the record, and the content.
    remembered: Vec<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    key: String,
    since: Duration,
    id: u64,
    content: Vec<u8>,
}

impl Records {
    pub(super) fn all(&self) -> &[Record] {
        &self.records
    }

    /// Takes a write, at that time since the start.
    pub(super) fn write(
        &mut self,
        contract: Contract,
        key: Option<&str>,
        content: &[u8],
        now: Duration,
    ) -> Effect {
        let Some(key) = key else { return self.make(None, content) };
        match contract {
            Contract::None => self.make(Some(key), content),
            Contract::IdempotencyKey { window } => {
                self.remembered.retain(|one| {
                    window.is_none_or(|window| now.saturating_sub(one.since) < window)
                });
                if let Some(one) = self.remembered.iter().find(|one| one.key == key) {
                    let same = one.content == content;
                    return if same { Effect::Replayed(one.id) } else { Effect::Conflict(one.id) };
                }
                let effect = self.make(Some(key), content);
                self.remembered.extend(self.records.last().map(|record| Remembered {
                    key: key.to_owned(),
                    since: now,
                    id: record.id,
                    content: content.to_vec(),
                }));
                effect
            }
            Contract::CreateOnly => match self.first_of(key) {
                Some(record) => Effect::Exists(record.id),
                None => self.make(Some(key), content),
            },
            Contract::Upsert => match self.first_of(key) {
                Some(record) => {
                    content.clone_into(&mut record.content);
                    record.writes += 1;
                    Effect::Updated(record.id)
                }
                None => self.make(Some(key), content),
            },
        }
    }

    pub(super) fn look_up(&mut self, key: &str) -> Effect {
        self.first_of(key).map_or(Effect::Absent, |record| Effect::Found(record.id))
    }

    /// The windows of all keys are over.
    pub(super) fn forget_keys(&mut self) {
        self.remembered.clear();
    }

    fn first_of(&mut self, key: &str) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.key.as_deref() == Some(key))
    }

    fn make(&mut self, key: Option<&str>, content: &[u8]) -> Effect {
        let id = self.records.len() as u64 + 1;
        let key = key.map(str::to_owned);
        self.records.push(Record { id, key, content: content.to_vec(), writes: 1 });
        Effect::Made(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Option<&str> = Some("k");

    fn twice(contract: Contract, second: &[u8]) -> (Effect, usize) {
        let mut records = Records::default();
        assert_eq!(records.write(contract, KEY, b"a", Duration::ZERO), Effect::Made(1));
        let effect = records.write(contract, KEY, second, Duration::from_secs(1));
        (effect, records.all().len())
    }

    #[test]
    fn each_contract_has_its_own_answer_to_a_key_that_comes_again() {
        let key = Contract::IdempotencyKey { window: None };
        assert_eq!(twice(Contract::None, b"a"), (Effect::Made(2), 2));
        assert_eq!(twice(key, b"a"), (Effect::Replayed(1), 1));
        assert_eq!(twice(key, b"b"), (Effect::Conflict(1), 1));
        assert_eq!(twice(Contract::CreateOnly, b"b"), (Effect::Exists(1), 1));
        assert_eq!(twice(Contract::Upsert, b"b"), (Effect::Updated(1), 1));
    }

    #[test]
    fn a_key_is_remembered_until_its_window_ends() {
        let within = |seconds| {
            let window = Some(Duration::from_secs(seconds));
            twice(Contract::IdempotencyKey { window }, b"a").0
        };
        assert_eq!((within(2), within(1)), (Effect::Replayed(1), Effect::Made(2)));
    }

    #[test]
    fn a_write_without_a_key_is_never_taken_for_another() {
        let mut records = Records::default();
        for id in 1..=2 {
            let effect = records.write(Contract::CreateOnly, None, b"a", Duration::ZERO);
            assert_eq!(effect, Effect::Made(id));
        }
    }
}
