//! A small world: one operation, its daemon, its receiver, and a person.
//!
//! The receiver keeps its contract to the letter and otherwise does its worst:
//! it acts, acts late or not at all, loses replies, says no, is asked twice by
//! a gateway, and forgets as soon as it may. The daemon may end at any point.
//! Time is in whole seconds.

use crate::history::Delivery;
use crate::space::{at, other_request, this_request};
use handoff::clock::{Now, Timestamp};
use handoff::outbox::contract::Contract;
use handoff::outbox::facts::{Facts, RequestFingerprint};
use handoff::outbox::outcome::{Ending, NotTakenWhy, Outcome};
use handoff::outbox::policy::{Next, Step, Surroundings, Terms, next};
use handoff::outbox::retry::{Delays, Retry};
use handoff::outbox::state::State;
use std::time::Duration;

mod make;

/// The longest call.
pub(crate) const TIMEOUT: u8 = 2;
/// A receiver's memory of keys, where it is limited.
pub(crate) const WINDOW: u8 = 6;
/// How long a receiver that declares so may still act.
pub(crate) const SETTLE: u8 = 1;

/// What the world may hold.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) terms: Terms,
    /// The receiver's memory, if it has one; `u8::MAX` for one without end.
    pub(crate) memory: Option<u8>,
    /// Deliveries.
    pub(crate) calls: usize,
    /// Seconds.
    pub(crate) time: u8,
    /// Moves.
    pub(crate) depth: usize,
    /// What troubles it, beside lost and late replies and crashes.
    pub(crate) trouble: Trouble,
}

/// What the world is troubled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The daemon: leases end under a slow call, and stops cut calls off.
    Daemon,
    /// The surroundings: a gateway repeats a request, the configuration moves
    /// to another account, the wall clock is set back, a person acts.
    Surroundings,
}

/// The terms of the model.
pub(crate) fn terms(contract: Contract) -> Terms {
    let retry = Retry {
        delays: Delays::Schedule(vec![Duration::from_secs(1)]),
        max_attempts: 2,
        max_elapsed: Duration::from_secs(6),
        retry_after_ceiling: Duration::from_secs(60),
    };
    Terms { contract, retry, timeout: Duration::from_secs(u64::from(TIMEOUT)) }
}

/// How a call was answered, while the answer is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Applied,
    Exists,
    Running,
    No(No),
}

/// A definite no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum No {
    NotTaken,
    Rejected,
    Conflict,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    /// To which account: the configuration can move to another one.
    account: usize,
    started: u8,
    /// When and how it ended for the daemon; a provisional end can be replaced.
    ended: Option<(u8, End)>,
    /// Somebody still listens for the answer.
    heard: bool,
    /// Requests that have not reached the receiver.
    under_way: u8,
    /// Requests that it has begun to work on, having found nothing under the key.
    at_work: u8,
    /// It acted, or answered from memory.
    done: bool,
    reply: Option<Reply>,
}

/// How a call ended for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Reply(Reply),
    Unknown,
    Interrupted(bool),
    CutOff,
}

/// Everything.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) facts: Facts,
    pub(crate) calls: Vec<Call>,
    /// Records that the receiver has made, over all accounts.
    pub(crate) effects: u8,
    /// When each account first saw the key.
    seen: [Option<u8>; 2],
    now: u8,
    /// The wall clock was set back so far.
    back: u8,
    /// The account that the configuration names.
    account: usize,
    /// No daemon runs.
    down: bool,
    /// A gateway has repeated a request.
    doubled: bool,
    retried: bool,
    /// A success has been stored.
    pub(crate) success: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Deliver,
    Arrive(usize, bool),
    Finish(usize, bool),
    Double(usize),
    Refuse(usize, No),
    SayRunning(usize),
    Hear(usize),
    TimeOut(usize),
    Crash,
    Recover(bool),
    LeaseEnds(usize),
    CutOff(usize),
    Retry,
    Withdraw,
    Reconfigure,
    SetBack,
    /// So many seconds pass.
    Pass(u8),
}

fn time(seconds: u8) -> Timestamp {
    at(i64::from(seconds) * 1_000 + 1_000_000)
}

fn request(account: usize) -> RequestFingerprint {
    if account == 0 { this_request() } else { other_request() }
}

impl Call {
    /// The receiver can still act on it.
    fn is_live(&self, now: u8, bounds: &Bounds) -> bool {
        let settle = u8::try_from(bounds.terms.contract.settle_delay.as_secs()).expect("short");
        // Where nothing is ever repeated, nothing rests on its being prompt.
        let late = if bounds.memory.is_none() { settle + 3 } else { settle };
        let given_up = self.started + TIMEOUT;
        let given_up = self.ended.map_or(given_up, |(at, _)| at.min(given_up));
        self.under_way + self.at_work > 0 && now < given_up + late
    }

    fn is_provisional(&self) -> bool {
        matches!(self.ended, Some((_, End::Interrupted(_) | End::CutOff)))
    }

    fn ending(end: End) -> Ending {
        let not_taken = Outcome::NotTaken { why: NotTakenWhy::Unreachable, not_before: None };
        Ending::Outcome(match end {
            End::Interrupted(alone) => return Ending::Interrupted { alone },
            End::CutOff => return Ending::CutOff,
            End::Unknown => Outcome::Unknown,
            End::Reply(Reply::Applied) => Outcome::Applied { remote_id: None, replayed: false },
            End::Reply(Reply::Exists) => Outcome::AlreadyExists { remote_id: None },
            End::Reply(Reply::Running) => Outcome::InProgress { not_before: None },
            End::Reply(Reply::No(No::NotTaken)) => not_taken,
            End::Reply(Reply::No(No::Rejected)) => Outcome::Rejected,
            End::Reply(Reply::No(No::Conflict)) => Outcome::Conflict,
        })
    }

    /// Its row in the database.
    fn row(&self, index: usize) -> Delivery {
        Delivery {
            number: u32::try_from(index + 1).expect("few"),
            request: request(self.account),
            started: time(self.started),
            ended: self.ended.map(|(at, end)| (time(at), Self::ending(end))),
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            facts: Facts::recorded(),
            calls: Vec::new(),
            effects: 0,
            seen: [None; 2],
            now: 0,
            back: 0,
            account: 0,
            down: false,
            doubled: false,
            retried: false,
            success: false,
        }
    }

    fn clocks(&self) -> Now {
        let wall = time(self.now).minus(Duration::from_secs(u64::from(self.back)));
        Now { wall, steady: time(self.now) }
    }

    fn around(&self) -> Surroundings {
        Surroundings {
            configured: true,
            valid: true,
            approval_expired: false,
            deliver_after: None,
            request: request(self.account),
        }
    }

    /// The policy's word.
    pub(crate) fn next(&self, bounds: &Bounds) -> Next {
        next(&self.facts, &self.around(), &bounds.terms, self.clocks())
    }

    fn state(&self, bounds: &Bounds) -> State {
        match self.next(bounds).step {
            Step::Sent => State::Sent,
            Step::Stay => State::Withdrawn,
            Step::Block(_) => State::Blocked,
            Step::Wait { .. } | Step::Ask | Step::Deliver => State::Pending,
        }
    }

    /// A request that may still make a record.
    pub(crate) fn may_still_act(&self, bounds: &Bounds) -> bool {
        self.calls.iter().any(|call| call.is_live(self.now, bounds))
    }

    /// The rows of its deliveries.
    pub(crate) fn rows(&self) -> Vec<Delivery> {
        self.calls.iter().enumerate().map(|(index, call)| call.row(index)).collect()
    }

    fn remembers(&self, account: usize, bounds: &Bounds) -> bool {
        let Some(memory) = bounds.memory else { return false };
        self.seen[account].is_some_and(|seen| self.now < seen.saturating_add(memory))
    }

    /// What can happen now.
    pub(crate) fn moves(&self, bounds: &Bounds) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            self.moves_of_call(index, call, bounds, &mut moves);
        }
        if self.down {
            moves.extend([Move::Recover(true), Move::Recover(false)]);
        } else {
            if self.calls.len() < bounds.calls && self.next(bounds).step == Step::Deliver {
                moves.push(Move::Deliver);
            }
            if self.calls.iter().any(|call| call.heard) {
                moves.push(Move::Crash);
            }
        }
        if bounds.trouble == Trouble::Surroundings && !self.calls.is_empty() {
            self.moves_of_others(&mut moves);
        }
        let passes = [1, 3].into_iter().filter(|by| self.now + by <= bounds.time);
        moves.extend(passes.map(Move::Pass));
        moves
    }

    fn moves_of_others(&self, moves: &mut Vec<Move>) {
        let idle = !self.down && self.facts.open.is_none();
        if idle && !self.retried {
            moves.push(Move::Retry);
        }
        if idle && !self.facts.withdrawn {
            moves.push(Move::Withdraw);
        }
        if self.account == 0 {
            moves.push(Move::Reconfigure);
        }
        if self.back == 0 {
            moves.push(Move::SetBack);
        }
    }

    fn moves_of_call(&self, index: usize, call: &Call, bounds: &Bounds, moves: &mut Vec<Move>) {
        let live = call.is_live(self.now, bounds);
        let untouched = !call.done && call.at_work == 0 && call.reply.is_none();
        if live && call.under_way > 0 {
            moves.extend([Move::Arrive(index, true), Move::Arrive(index, false)]);
            // A gateway may repeat what is safe to repeat.
            let safe = bounds.memory.is_some() && bounds.terms.contract.atomic;
            if !self.doubled && safe && bounds.trouble == Trouble::Surroundings {
                moves.push(Move::Double(index));
            }
        }
        if live && call.at_work > 0 {
            moves.extend([Move::Finish(index, true), Move::Finish(index, false)]);
        }
        if call.heard && untouched && call.under_way > 0 {
            let all = [No::NotTaken, No::Rejected, No::Conflict];
            moves.extend(all.map(|no| Move::Refuse(index, no)));
            if bounds.memory.is_some() {
                moves.push(Move::SayRunning(index));
            }
        }
        let over = self.now >= call.started + TIMEOUT;
        let may_be_saved = call.ended.is_none() || call.is_provisional();
        if call.heard && may_be_saved {
            if call.reply.is_some() {
                moves.push(Move::Hear(index));
            }
            let cut_off = matches!(call.ended, Some((_, End::CutOff)));
            if over && !cut_off {
                moves.push(Move::TimeOut(index));
            }
            if call.ended.is_none() && bounds.trouble == Trouble::Daemon {
                moves.push(Move::CutOff(index));
                if over {
                    moves.push(Move::LeaseEnds(index));
                }
            }
        }
    }

    /// What makes two worlds the same, for what can still happen in them.
    pub(crate) fn essence(&self) -> Vec<u8> {
        let facts = &self.facts;
        let seconds = |time: Option<Timestamp>| {
            time.map_or(u8::MAX, |time| {
                u8::try_from(time.as_millis() / 1_000 - 990).expect("a time of the model")
            })
        };
        let small = |count: u32| u8::try_from(count).expect("a small count");
        let mut text = vec![
            facts.answer as u8,
            u8::from(facts.proof.is_some()),
            small(facts.spent),
            seconds(facts.failed_at),
            small(facts.solo_crashes),
            u8::from(facts.grant),
            u8::from(facts.withdrawn),
            seconds(facts.not_before),
            self.effects,
            self.seen[0].unwrap_or(u8::MAX),
            self.seen[1].unwrap_or(u8::MAX),
            self.now,
            self.back,
            u8::from(self.account == 0),
            u8::from(self.down),
            u8::from(self.doubled),
            u8::from(self.retried),
            u8::from(self.success),
        ];
        for call in &self.calls {
            let (at, end) = call.ended.map_or((u8::MAX, u8::MAX), |(at, end)| (at, end.code()));
            let reply = call.reply.map_or(u8::MAX, |reply| End::Reply(reply).code());
            let (heard, done) = (u8::from(call.heard), u8::from(call.done));
            let account = u8::from(call.account == 0);
            text.extend([account, call.started, at, end, heard, done, reply]);
            text.extend([call.under_way, call.at_work]);
        }
        text
    }
}

impl End {
    fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Interrupted(alone) => 1 + u8::from(alone),
            Self::CutOff => 3,
            Self::Reply(Reply::Applied) => 4,
            Self::Reply(Reply::Exists) => 5,
            Self::Reply(Reply::Running) => 6,
            Self::Reply(Reply::No(no)) => 7 + no as u8,
        }
    }
}
