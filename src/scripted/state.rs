//! What a server has seen and done; its connections write it, its owner reads it.

use super::records::{Effect, Record, Records};
use super::reply::{About, Reply, Saying};
use super::request::Request;
use super::script::{Key, Script, Seen, Stage};
use super::tls::Tls;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a test waits for what must come, on a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server and its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) script: Script,
    /// How it shakes hands, if it does.
    pub(super) tls: Option<Tls>,
    start: Instant,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts that can be read while the state is held, and change with it only.
    connections: AtomicU64,
    hands_refused: AtomicU64,
    panics: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    records: Records,
    /// How many requests have come with a key.
    of_keys: HashMap<String, u64>,
}

impl Shared {
    /// Time is counted from now, on the clock of the runtime that is entered.
    pub(super) fn new(script: Script, tls: Option<Tls>) -> Self {
        Self {
            script,
            tls,
            start: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            hands_refused: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.state().records.all().to_vec()
    }

    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::SeqCst)
    }

    pub(super) fn hands_refused(&self) -> u64 {
        self.hands_refused.load(Ordering::SeqCst)
    }

    pub(super) fn hand_refused(&self) {
        self.change(|_| self.hands_refused.fetch_add(1, Ordering::SeqCst));
    }

    pub(super) fn forget_keys(&self) {
        self.change(|state| state.records.forget_keys());
    }

    /// Waits until the requests are so; `None` if that does not come.
    pub(super) fn wait_until(&self, holds: impl Fn(&[Request]) -> bool) -> Option<Vec<Request>> {
        let waiting = |state: &mut State| !holds(&state.requests);
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, waiting);
        let (state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        (!time.timed_out()).then(|| state.requests.clone())
    }

    pub(super) fn connected(&self) -> u64 {
        self.change(|_| self.connections.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(super) fn panicked(&self) {
        self.change(|_| self.panics.fetch_add(1, Ordering::SeqCst));
    }

    /// A request begins. The result is its number.
    pub(super) fn arrived(&self, connection: u64, turn: u64) -> u64 {
        let at = self.start.elapsed();
        self.change(|state| {
            let number = state.requests.len() as u64 + 1;
            state.requests.push(Request { number, at, connection, turn, ..Request::default() });
            number
        })
    }

    pub(super) fn update(&self, number: u64, change: impl FnOnce(&mut Request)) {
        self.change(|state| state.request(number).map(change));
    }

    /// Looks for the key, and counts the request to it when it is found.
    pub(super) fn find_key(&self, number: u64) {
        self.change(|state| {
            let Some(request) = state.request(number) else { return };
            if request.key.is_some() {
                return;
            }
            let look_up = self.script.look_up.as_ref().filter(|_| is_read(&request.method));
            request.key = look_up.unwrap_or(&self.script.key).find(request);
            if let Some(key) = request.key.clone() {
                *state.of_keys.entry(key).or_default() += 1;
            }
        });
    }

    /// What is known of a connection before it carries a request.
    pub(super) fn seen_connection<'a>(&self, connection: u64) -> Seen<'a> {
        Seen {
            stage: Stage::Accepted,
            elapsed: self.start.elapsed(),
            connection,
            turn: 1,
            arrival: 0,
            method: "",
            target: "",
            key: Key::NotYet,
        }
    }

    /// Lets the script look at a request that has come so far.
    pub(super) fn pick(&self, number: u64, stage: Stage) -> Option<super::Course> {
        let mut state = self.state();
        let request = state.request(number)?.clone();
        let count = request.key.as_ref().and_then(|key| state.of_keys.get(key).copied());
        drop(state);
        let in_the_head = self.script.key.is_in_the_head() && stage >= Stage::Head;
        let key = match &request.key {
            Some(key) => Key::Is { key, number: count.unwrap_or(0) },
            None if in_the_head || stage == Stage::Body => Key::None,
            None => Key::NotYet,
        };
        self.script.pick(&Seen {
            stage,
            elapsed: request.at,
            connection: request.connection,
            turn: request.turn,
            arrival: number,
            method: &request.method,
            target: &request.target,
            key,
        })
    }

    /// The CRM does what a whole request asks for.
    pub(super) fn act(&self, number: u64) -> Option<Effect> {
        let now = self.start.elapsed();
        self.change(|state| {
            let State { requests, records, .. } = state;
            let request = requests.get_mut(index(number))?;
            let key = request.key.as_deref();
            request.effect = match (request.method.as_str(), key) {
                ("POST" | "PUT" | "PATCH", _) => {
                    Some(records.write(self.script.contract, key, &request.body, now))
                }
                (method, Some(key)) if is_read(method) && self.script.look_up.is_some() => {
                    Some(records.look_up(key))
                }
                _ => Some(Effect::Absent),
            };
            request.effect
        })
    }

    pub(super) fn effect(&self, number: u64) -> Option<Effect> {
        self.state().request(number)?.effect
    }

    /// The answer about what was done with a request, in place of the placeholders.
    pub(super) fn filled(&self, number: u64, reply: Reply) -> Reply {
        let mut state = self.state();
        let State { requests, records, .. } = &mut *state;
        let request = requests.get(index(number));
        let id = request.and_then(|request| request.effect).and_then(Effect::record);
        let record = records.all().iter().find(|record| Some(record.id) == id);
        let of_request = request.and_then(|request| request.key.as_deref()).unwrap_or_default();
        let body = request.map_or(&[][..], |request| request.body.as_slice());
        reply.filled(&About {
            id,
            key: record.and_then(|record| record.key.as_deref()).unwrap_or(of_request),
            content: record.map_or(body, |record| &record.content),
        })
    }

    /// The CRM's own word on a request.
    pub(super) fn word(&self, number: u64, saying: Saying) -> Reply {
        self.filled(number, self.script.dialect.reply(saying))
    }
}

impl State {
    fn request(&mut self, number: u64) -> Option<&mut Request> {
        self.requests.get_mut(index(number))
    }
}

/// Requests are numbered from 1; under any other number there is none.
fn index(number: u64) -> usize {
    number.checked_sub(1).and_then(|index| usize::try_from(index).ok()).unwrap_or(usize::MAX)
}

fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}
