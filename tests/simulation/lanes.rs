//! Receivers as they really are, and as the configuration declares them. What
//! is declared is never more than what the receiver really keeps.

use crate::chance::Chance;
use crate::crm::{Mode, Truth};
use handoff::jitter::Seed;
use handoff::outbox::contract::{Contract, Exists, Window};
use handoff::outbox::operation_type::{OperationType, Schema};
use handoff::outbox::policy::Terms;
use handoff::outbox::retry::{Delays, Retry};
use handoff::outbox::rules::{Protection, ReceiverRules, Rules};
use std::sync::OnceLock;
use std::time::Duration;

/// The names of receivers; each has a type of operation of its own.
pub(crate) const NAMES: [&str; 3] = ["crm-a", "crm-b", "crm-c"];
const TYPES: [&str; 3] = ["to-a", "to-b", "to-c"];

/// So much longer than declared a receiver may act where that does no harm.
const HARMLESS: i64 = 10_000;

/// One receiver.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) place: usize,
    pub(crate) truth: Truth,
    pub(crate) contract: Contract,
    pub(crate) retry: Retry,
    /// Milliseconds.
    pub(crate) timeout: i64,
    pub(crate) concurrency: usize,
    /// Where the requests really go.
    pub(crate) account: String,
    /// The address in the configuration.
    pub(crate) identity: String,
    pub(crate) same_account: bool,
    pub(crate) configured: bool,
    /// Approvals are too old at once.
    pub(crate) expires: bool,
}

pub(crate) fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

fn truth(chance: &mut Chance) -> Truth {
    let mode = chance.weighed(&[
        (2, Mode::Blind),
        (4, Mode::Replays),
        (2, Mode::Exists),
        (1, Mode::Overwrites),
    ]);
    let window = match mode {
        Mode::Blind => None,
        _ => chance.pick(&[None, Some(60_000), Some(150_000), Some(3_600_000)]),
    };
    let atomic = mode == Mode::Blind || !chance.one_in(3);
    let settle = if atomic { 0 } else { chance.between(1, 12) as i64 * 1_000 };
    Truth { mode, window, atomic, settle, proof: mode == Mode::Exists && chance.one_in(2) }
}

impl Lane {
    pub(crate) fn draw(place: usize, chance: &mut Chance) -> Self {
        let truth = truth(chance);
        let account = format!("{}/one", NAMES[place]);
        let mut lane = Self {
            place,
            truth,
            contract: Contract::none(),
            retry: Retry::UNDECLARED,
            timeout: 0,
            concurrency: 1,
            identity: account.clone(),
            account,
            same_account: chance.one_in(3),
            configured: true,
            expires: false,
        };
        lane.contract = lane.declared(chance);
        lane.set_limits(chance);
        lane
    }

    pub(crate) fn name(&self) -> &'static str {
        NAMES[self.place]
    }

    pub(crate) fn kind(&self) -> &'static str {
        TYPES[self.place]
    }

    /// A contract that the receiver really keeps.
    fn declared(&self, chance: &mut Chance) -> Contract {
        let truth = self.truth;
        let shorter = chance.pick(&[0, 0, 0, 20_000]);
        let window = match truth.window {
            None if chance.one_in(4) => Window::For(Duration::from_secs(120)),
            None => Window::Forever,
            Some(window) => Window::For(millis(window - shorter)),
        };
        let exists = if truth.proof { Exists::Proof } else { Exists::Ask };
        let contract = match truth.mode {
            Mode::Blind => Contract::none(),
            Mode::Replays => Contract::idempotency_key(window),
            Mode::Exists => Contract::create_only(window, exists),
            Mode::Overwrites => Contract::upsert(window, None),
        };
        // Small steps of the clock are not minded.
        let longer = chance.pick(&[2_000, 2_000, 4_000]);
        Contract {
            atomic: truth.atomic,
            settle_delay: if truth.atomic { Duration::ZERO } else { millis(truth.settle + longer) },
            same_account: self.same_account,
            ..contract
        }
    }

    fn set_limits(&mut self, chance: &mut Chance) {
        self.timeout = chance.between(2, 12) as i64 * 1_000;
        self.concurrency = chance.between(1, 3) as usize;
        let first = chance.between(1, 8_000);
        let delays = if chance.one_in(3) {
            Delays::Schedule(vec![Duration::from_millis(first), Duration::from_secs(30)])
        } else {
            Delays::Exponential {
                initial: Duration::from_millis(first),
                multiplier: chance.pick(&[1.0, 2.0, 3.0]),
                max_interval: Duration::from_secs(90),
            }
        };
        self.retry = Retry {
            delays,
            max_attempts: chance.between(1, 6) as u32,
            max_elapsed: Duration::from_secs(chance.pick(&[120, 3_600, 86_400])),
            retry_after_ceiling: Duration::from_secs(chance.pick(&[60, 3_600])),
        };
    }

    /// The configuration of this receiver is changed.
    pub(crate) fn change(&mut self, chance: &mut Chance) {
        match chance.below(6) {
            0 => self.set_limits(chance),
            1 => self.contract = self.declared(chance),
            // A late answer is judged by the contract in force: one that proves stays.
            2 if !self.truth.proof => {
                self.contract = Contract { same_account: self.same_account, ..Contract::none() };
            }
            3 => {
                let end = chance.pick(&["one", "two"]);
                self.identity = format!("{}/{end}", self.name());
                if !self.same_account {
                    self.account = self.identity.clone();
                }
            }
            4 if !self.truth.proof => self.configured = !self.configured,
            _ => self.expires = !self.expires,
        }
    }

    /// Nothing stands in the way of an end.
    pub(crate) fn mend(&mut self) {
        self.configured = true;
        self.expires = false;
    }

    /// How long the receiver may act on a request that was given up, in
    /// milliseconds. One that knows its keys in one step may be later than it
    /// says, and so may one to which nothing is ever repeated.
    pub(crate) fn lateness(&self) -> i64 {
        let harmless = self.truth.atomic || self.truth.mode == Mode::Blind;
        self.truth.settle + if harmless { HARMLESS } else { 0 }
    }

    /// The longest pause, in milliseconds.
    pub(crate) fn longest(&self) -> i64 {
        i64::try_from(self.retry.longest().as_millis()).unwrap()
    }

    fn kind_rules(&self) -> OperationType {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        let compile = || Schema::create_followup().expect("the built-in schema is one");
        OperationType {
            name: self.kind().to_owned(),
            version: 1,
            receiver: self.name().to_owned(),
            subject: "case_id".to_owned(),
            subject_pattern: None,
            schema: SCHEMA.get_or_init(compile).clone(),
            trim: vec!["title".to_owned()],
            approval_max_age: self.expires.then_some(Duration::from_millis(1)),
            independent_versions: false,
        }
    }
}

/// The rules that these receivers make.
pub(crate) fn rules(lanes: &[Lane], seed: u64) -> Rules {
    let mut rules =
        Rules { types: Default::default(), receivers: Default::default(), seed: Seed(seed) };
    for lane in lanes.iter().filter(|lane| lane.configured) {
        rules.types.insert((lane.kind().to_owned(), 1), lane.kind_rules());
        let terms = Terms {
            contract: lane.contract.clone(),
            retry: lane.retry.clone(),
            timeout: millis(lane.timeout),
        };
        let identity = lane.identity.clone();
        let (request_form, protection) = (String::new(), Protection::default());
        let receiver = ReceiverRules { terms, identity, request_form, protection };
        rules.receivers.insert(lane.name().to_owned(), receiver);
    }
    rules
}
