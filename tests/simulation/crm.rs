//! A CRM that really does what it promises, and no more: it knows a key for as
//! long as its window, and then creates a second record.

use std::collections::BTreeMap;

/// What a receiver really does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It does not look at keys.
    Blind,
    /// A replay of the key gets the first answer.
    Replays,
    /// A replay of the key is told that it exists.
    Exists,
    /// A replay writes over the record.
    Overwrites,
}

/// What a receiver really does, and for how long. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) mode: Mode,
    /// How long it knows a key; `None` for ever.
    pub(crate) window: Option<i64>,
    /// Looking a key up and creating the record is one step.
    pub(crate) atomic: bool,
    /// How long it may still act on a request that was given up.
    pub(crate) settle: i64,
    /// Its ids are made from our keys.
    pub(crate) proof: bool,
}

/// What the CRM says about a request that it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Created(u64),
    Replayed(u64),
    Exists(u64),
    Conflict,
}

/// A key that the CRM knows.
#[derive(Clone, Debug)]
struct Known {
    since: i64,
    payload: String,
    id: u64,
}

/// A record that a request of ours has made.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "two of the fields are there to be shown")]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) account: String,
    pub(crate) number: u32,
    pub(crate) id: u64,
}

/// One receiver's side of the world.
#[derive(Debug)]
pub(crate) struct Crm {
    pub(crate) truth: Truth,
    known: BTreeMap<(String, String), Known>,
    pub(crate) effects: Vec<Effect>,
    last_id: u64,
}

/// One request, as the CRM sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) account: &'a str,
    pub(crate) key: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) number: u32,
}

impl Crm {
    pub(crate) fn new(truth: Truth) -> Self {
        Self { truth, known: BTreeMap::new(), effects: Vec::new(), last_id: 0 }
    }

    /// Puts a record of somebody else's under a key.
    pub(crate) fn put(&mut self, account: &str, key: &str, now: i64) {
        self.last_id += 1;
        let payload = "of somebody else".to_owned();
        let known = Known { since: now, payload, id: self.last_id };
        self.known.insert((account.to_owned(), key.to_owned()), known);
    }

    /// The answer from memory, if it knows the key.
    pub(crate) fn remembers(&mut self, request: Request<'_>, now: i64) -> Option<Reply> {
        let place = (request.account.to_owned(), request.key.to_owned());
        let known = self.known.get(&place)?;
        if self.truth.window.is_some_and(|window| now >= known.since + window) {
            // It forgets as soon as it may.
            self.known.remove(&place);
            return None;
        }
        let other = known.payload != request.payload;
        match self.truth.mode {
            Mode::Blind => None,
            Mode::Replays if other => Some(Reply::Conflict),
            Mode::Replays => Some(Reply::Replayed(known.id)),
            Mode::Exists => Some(Reply::Exists(known.id)),
            Mode::Overwrites => Some(Reply::Created(known.id)),
        }
    }

    /// Makes a record, whatever is there.
    pub(crate) fn create(&mut self, request: Request<'_>, seen: i64) -> Reply {
        self.last_id += 1;
        let (account, key) = (request.account.to_owned(), request.key.to_owned());
        let (number, id) = (request.number, self.last_id);
        self.effects.push(Effect { key: key.clone(), account: account.clone(), number, id });
        let payload = request.payload.to_owned();
        self.known.entry((account, key)).or_insert(Known { since: seen, payload, id });
        Reply::Created(id)
    }
}
