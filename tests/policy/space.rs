//! Every combination of facts, surroundings and terms that the policy can meet.
//!
//! Values lie at the edges: one millisecond inside and outside of each limit.
//! The wall clock and the steady clock are an hour apart, so that reading the
//! wrong one shows.

use handoff::clock::{Now, Timestamp};
use handoff::outbox::contract::{Contract, Exists, LookUp, Repeat, Window};
use handoff::outbox::facts::{
    Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint,
};
use handoff::outbox::policy::{Next, Surroundings, Terms, next};
use handoff::outbox::retry::{Delays, Retry};
use handoff::outbox::state::SettledBy;
use std::time::Duration;

/// The wall clock's reading in every combination.
pub(crate) const WALL: i64 = 1_800_000_000_000;
/// The steady clock's: the wall clock has been set back by an hour.
pub(crate) const STEADY: i64 = WALL + 3_600_000;
/// The longest call, in milliseconds.
pub(crate) const TIMEOUT: i64 = 10_000;
/// A receiver's memory where it is limited, in milliseconds.
pub(crate) const WINDOW: i64 = 60_000;
/// Tries of the budget.
pub(crate) const TRIES: u32 = 3;
/// Time of the budget, in milliseconds.
pub(crate) const ELAPSED: i64 = 600_000;
/// Look-ups in a row that must find nothing.
pub(crate) const POLLS: u32 = 2;
/// Looking up, as declared.
pub(crate) const LOOK_UP: LookUp = LookUp { polls: POLLS, interval: Duration::from_secs(5) };

/// One combination.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) facts: Facts,
    pub(crate) around: Surroundings,
    pub(crate) terms: Terms,
    pub(crate) now: Now,
}

impl Case {
    /// The policy's word on it.
    pub(crate) fn next(&self) -> Next {
        next(&self.facts, &self.around, &self.terms, self.now)
    }

    /// The contract's settle delay in milliseconds.
    pub(crate) fn settle(&self) -> i64 {
        i64::try_from(self.terms.contract.settle_delay.as_millis()).expect("a short delay")
    }
}

/// The request that a delivery made now would carry.
pub(crate) fn this_request() -> RequestFingerprint {
    RequestFingerprint("this".to_owned())
}

/// Another one: other account, other body.
pub(crate) fn other_request() -> RequestFingerprint {
    RequestFingerprint("other".to_owned())
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn base() -> Case {
    Case {
        facts: Facts::recorded(),
        around: Surroundings {
            configured: true,
            valid: true,
            approval_expired: false,
            deliver_after: None,
            request: this_request(),
        },
        terms: terms(Contract::none()),
        now: Now { wall: at(WALL), steady: at(STEADY) },
    }
}

/// A contract with the budget that all combinations share.
pub(crate) fn terms(contract: Contract) -> Terms {
    Terms {
        contract,
        retry: Retry {
            delays: Delays::Schedule(vec![Duration::from_secs(1)]),
            max_attempts: TRIES,
            max_elapsed: millis(ELAPSED),
            retry_after_ceiling: Duration::from_secs(3_600),
        },
        timeout: millis(TIMEOUT),
    }
}

pub(crate) fn millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).expect("a positive time"))
}

/// Every preset, with and without what can be declared beside it.
pub(crate) fn contracts() -> Vec<Contract> {
    let window = Window::For(millis(WINDOW));
    let settles = |contract| Contract { settle_delay: Duration::from_secs(5), ..contract };
    let looked_up = |contract| Contract { look_up: Some(LOOK_UP), ..contract };
    let slow = Contract { atomic: false, ..settles(Contract::idempotency_key(window)) };
    vec![
        Contract::none(),
        Contract::look_up(LOOK_UP),
        settles(Contract::look_up(LOOK_UP)),
        Contract::idempotency_key(Window::Forever),
        Contract::idempotency_key(window),
        looked_up(Contract::idempotency_key(window)),
        slow.clone(),
        looked_up(slow),
        Contract::create_only(window, Exists::Ask),
        looked_up(settles(Contract::create_only(Window::Forever, Exists::Ask))),
        Contract::create_only(window, Exists::Proof),
        Contract::upsert(window, None),
        Contract::upsert(window, Some(LOOK_UP)),
        settles(Contract::upsert(Window::Forever, Some(LOOK_UP))),
    ]
}

/// One value of an axis, set into a combination.
type Setting = Box<dyn Fn(&mut Case)>;

/// Axes, all of whose values are combined.
pub(crate) struct Space {
    axes: Vec<Vec<Setting>>,
}

impl Space {
    /// What is read after rows 1 to 4: all values of all facts that decide there.
    pub(crate) fn whole() -> Self {
        let space = Self::of(contracts()).possible().answer(Answer::ALL);
        let counts = space.absences(&[0, 1, POLLS]).asks(&[0, TRIES]).solo_crashes(&[0, 1, 2, 3]);
        counts.budget(5).grant().expired().times()
    }

    /// The same, with only the two values on either side of each limit.
    pub(crate) fn lively() -> Self {
        let space = Self::of(contracts()).possible().answer(Answer::ALL);
        let counts = space.absences(&[1, POLLS]).asks(&[0, TRIES]).solo_crashes(&[2, 3]);
        counts.budget(3).grant().expired().times()
    }

    /// Each thing that rows 1 to 4 read, alone, over what the later rows read.
    pub(crate) fn edges() -> Self {
        let space = Self::of(contracts()).possible().answer(Answer::ALL).shields();
        space.absences(&[1, POLLS]).solo_crashes(&[2, 3]).budget(2).grant()
    }

    /// What rows 1 to 4 read, in every combination with answers, doubt and grants.
    pub(crate) fn shielded() -> Self {
        Self::of(contracts()).possible().answer(Answer::ALL).all_shields().grant()
    }

    fn of(contracts: Vec<Contract>) -> Self {
        let contracts = contracts.into_iter().map(|contract| {
            Box::new(move |case: &mut Case| case.terms = terms(contract.clone())) as Setting
        });
        Self { axes: vec![contracts.collect()] }
    }

    fn axis<T: 'static>(mut self, values: Vec<T>, set: fn(&mut Case, &T)) -> Self {
        let settings = values
            .into_iter()
            .map(|value| Box::new(move |case: &mut Case| set(case, &value)) as Setting);
        self.axes.push(settings.collect());
        self
    }

    /// None, one or several deliveries, with this request, another or mixed
    /// ones, restore marks alone and among them; each in and outside the
    /// window, before and after the receiver has settled.
    fn possible(self) -> Self {
        let kinds = [
            (1, 0, Some(this_request())),
            (1, 0, Some(other_request())),
            (2, 0, Some(this_request())),
            (2, 0, None),
            (1, 1, Some(this_request())),
            (1, 1, None),
            (2, 1, Some(this_request())),
            (2, 1, None),
        ];
        let mut values = vec![None];
        for (count, marks, request) in kinds {
            for (inside, settled) in [(true, true), (true, false), (false, true), (false, false)] {
                values.push(Some((count, marks, request.clone(), inside, settled)));
            }
        }
        self.axis(values, |case, value| {
            let window_edge = STEADY + TIMEOUT + case.settle() - WINDOW;
            let settle_edge = STEADY - case.settle();
            case.facts.possible =
                value.clone().map(|(count, marks, request, inside, settled)| Possible {
                    since: at(window_edge + i64::from(inside)),
                    until: at(settle_edge + i64::from(!settled)),
                    request,
                    count,
                    marks,
                });
        })
    }

    fn answer(self, values: &[Answer]) -> Self {
        self.axis(values.to_vec(), |case, value| case.facts.answer = *value)
    }

    fn absences(self, values: &[u32]) -> Self {
        self.axis(values.to_vec(), |case, value| case.facts.absences = *value)
    }

    fn asks(self, values: &[u32]) -> Self {
        self.axis(values.to_vec(), |case, value| case.facts.asks = *value)
    }

    fn solo_crashes(self, values: &[u32]) -> Self {
        self.axis(values.to_vec(), |case, value| case.facts.solo_crashes = *value)
    }

    fn grant(self) -> Self {
        self.axis(vec![false, true], |case, value| case.facts.grant = *value)
    }

    fn expired(self) -> Self {
        self.axis(vec![false, true], |case, value| case.around.approval_expired = *value)
    }

    /// The budget: tries left, none left, time at its end; beyond, just below.
    fn budget(self, how_many: usize) -> Self {
        let start = STEADY - 2 * ELAPSED;
        let values = [
            (TRIES - 1, None),
            (TRIES, None),
            (TRIES - 1, Some(start + ELAPSED)),
            (TRIES + 1, Some(start + ELAPSED - 1)),
            (TRIES - 1, Some(start + ELAPSED - 1)),
        ];
        self.axis(values[..how_many].to_vec(), |case, (spent, failed)| {
            case.facts.spent = *spent;
            case.facts.budget_start = failed.map(|_| at(STEADY - 2 * ELAPSED));
            case.facts.failed_at = failed.map(at);
        })
    }

    /// `not_before` and `deliver_after`: not set; one to come and the other just
    /// past; both to come, not at once.
    fn times(self) -> Self {
        let (now, to_come, then) = (Some(at(WALL)), Some(at(WALL + 1)), Some(at(WALL + 2)));
        let pairs = vec![(None, None), (to_come, now), (now, to_come), (to_come, then)];
        self.axis(pairs, |case, (not_before, deliver_after)| {
            case.facts.not_before = *not_before;
            case.around.deliver_after = *deliver_after;
        })
    }

    /// Each of the things that rows 1 to 4 read, alone, and none of them.
    fn shields(self) -> Self {
        let mut values = vec![Shield::default()];
        values.extend(proofs().into_iter().flatten().map(|by| Shield::default().proof(by)));
        values.push(Shield { ask_now: true, ..Shield::default() });
        values.push(Shield { withdrawn: true, ..Shield::default() });
        values.push(Shield { ask_now: true, withdrawn: true, ..Shield::default() });
        values.push(Shield { open: Some(AttemptKind::Deliver), ..Shield::default() });
        values.push(Shield { unconfigured: true, ..Shield::default() });
        values.push(Shield { invalid: true, ..Shield::default() });
        self.axis(values, |case, value| value.set(case))
    }

    /// All of them in every combination.
    fn all_shields(self) -> Self {
        let mut values = Vec::new();
        for proof in proofs() {
            for open in [None, Some(AttemptKind::Deliver), Some(AttemptKind::LookUp)] {
                for bits in 0..16_u8 {
                    values.push(Shield {
                        proof: proof.clone(),
                        open,
                        ask_now: bits & 1 != 0,
                        withdrawn: bits & 2 != 0,
                        unconfigured: bits & 4 != 0,
                        invalid: bits & 8 != 0,
                    });
                }
            }
        }
        self.axis(values, |case, value| value.set(case))
    }

    /// Calls `check` with every combination, and says how many there were.
    pub(crate) fn each(&self, mut check: impl FnMut(&Case)) -> u64 {
        let mut count = 0;
        walk(&self.axes, &mut base(), &mut |case| {
            count += 1;
            check(case);
        });
        count
    }
}

fn walk(axes: &[Vec<Setting>], case: &mut Case, check: &mut dyn FnMut(&Case)) {
    let Some((axis, inner)) = axes.split_first() else { return check(case) };
    for set in axis {
        set(case);
        walk(inner, case, check);
    }
}

fn proofs() -> [Option<SettledBy>; 5] {
    let person = SettledBy::Person("ann".to_owned());
    [None, Some(SettledBy::Reply), Some(SettledBy::LookUp), Some(person), Some(SettledBy::Policy)]
}

/// What rows 1 to 4 read.
#[derive(Clone, Default)]
struct Shield {
    proof: Option<SettledBy>,
    open: Option<AttemptKind>,
    ask_now: bool,
    withdrawn: bool,
    unconfigured: bool,
    invalid: bool,
}

impl Shield {
    fn proof(self, by: SettledBy) -> Self {
        Self { proof: Some(by), ..self }
    }

    fn set(&self, case: &mut Case) {
        let proof = self.proof.clone().map(|by| Proof { remote_id: None, by });
        case.facts.proof = proof;
        case.facts.open = self.open.map(|kind| Open { number: 1, kind });
        case.facts.ask_now = self.ask_now;
        case.facts.withdrawn = self.withdrawn;
        case.around.configured = !self.unconfigured;
        case.around.valid = !self.invalid;
    }
}

/// Whether the contract allows any repeat at all.
pub(crate) fn may_repeat(contract: &Contract) -> bool {
    match contract.repeat {
        Repeat::Never => false,
        Repeat::Within(_) => true,
    }
}

/// A combination with the contract of that number and nothing else to it.
pub(crate) fn case(contract: usize) -> Case {
    Case { terms: terms(contracts().swap_remove(contract)), ..base() }
}
