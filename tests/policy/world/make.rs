//! What each move does to the world.

use super::{Bounds, Call, End, Move, Reply, World, request, time};
use crate::history::fold;
use handoff::outbox::contract::{Exists, Mode};
use handoff::outbox::facts::Ended;
use handoff::outbox::verbs::{retry, withdraw};
use std::time::Duration;

impl World {
    /// Lets it happen.
    pub(crate) fn make(&mut self, what: Move, bounds: &Bounds) {
        match what {
            Move::Deliver => self.deliver(),
            Move::Arrive(index, heard) => self.arrive(index, heard, bounds),
            Move::Finish(index, heard) => {
                self.calls[index].at_work -= 1;
                self.act(index, heard);
            }
            Move::Double(index) => {
                self.calls[index].under_way += 1;
                self.doubled = true;
            }
            Move::Refuse(index, no) => {
                self.calls[index].under_way = 0;
                self.calls[index].reply = Some(Reply::No(no));
            }
            Move::SayRunning(index) => {
                self.calls[index].under_way -= 1;
                self.calls[index].reply = Some(Reply::Running);
            }
            Move::Hear(index) => {
                let reply = self.calls[index].reply.take().expect("there is one");
                self.calls[index].heard = false;
                self.end(index, End::Reply(reply), bounds);
            }
            Move::TimeOut(index) => {
                self.calls[index].reply = None;
                self.calls[index].heard = false;
                self.end(index, End::Unknown, bounds);
            }
            Move::LeaseEnds(index) => self.end(index, End::Interrupted(false), bounds),
            Move::CutOff(index) => {
                // Our stop closes the connection; only an answer at hand is still heard.
                self.calls[index].heard = self.calls[index].reply.is_some();
                self.end(index, End::CutOff, bounds);
            }
            Move::Crash => {
                self.down = true;
                self.calls.iter_mut().for_each(|call| (call.heard, call.reply) = (false, None));
            }
            Move::Recover(alone) => self.recover(alone, bounds),
            Move::Retry => self.retry(bounds),
            Move::Withdraw => {
                let state = self.state(bounds);
                drop(withdraw(&mut self.facts, state));
            }
            Move::Reconfigure => self.account = 1,
            Move::SetBack => self.back = 3,
            Move::Pass(seconds) => self.now += seconds,
        }
    }

    fn deliver(&mut self) {
        let number = u32::try_from(self.calls.len() + 1).expect("few");
        self.facts.delivery_begins(number, self.clocks(), request(self.account));
        self.calls.push(Call {
            account: self.account,
            started: self.now,
            ended: None,
            heard: true,
            under_way: 1,
            at_work: 0,
            done: false,
            reply: None,
        });
    }

    /// A request reaches the receiver, which looks the key up and goes to work.
    fn arrive(&mut self, index: usize, heard: bool, bounds: &Bounds) {
        let remembers = self.remembers(self.calls[index].account, bounds);
        let call = &mut self.calls[index];
        call.under_way -= 1;
        if remembers {
            let reply = match bounds.terms.contract.mode {
                Mode::CreateOnly => Reply::Exists,
                Mode::None | Mode::LookUp | Mode::IdempotencyKey | Mode::Upsert => Reply::Applied,
            };
            call.done = true;
            call.answer(reply, heard);
        } else if bounds.terms.contract.atomic {
            self.act(index, heard);
        } else {
            call.at_work += 1;
        }
    }

    /// The receiver makes a record.
    fn act(&mut self, index: usize, heard: bool) {
        self.effects += 1;
        let call = &mut self.calls[index];
        self.seen[call.account] = Some(self.now);
        call.done = true;
        call.answer(Reply::Applied, heard);
    }

    /// Saves an end as a store does: it reads the other deliveries from their rows.
    fn end(&mut self, index: usize, end: End, bounds: &Bounds) {
        let rows = self.rows();
        let this = &rows[index];
        let earlier = this.ended.as_ref().map(|(_, ending)| ending.kind());
        let others = self.facts.has_others(earlier).then(|| {
            fold(rows.iter().filter(|row| row.number != this.number)).expect("there are others")
        });
        let ending = Call::ending(end);
        let waits = matches!(end, End::Unknown | End::Reply(Reply::No(_) | Reply::Running));
        let ended = Ended {
            number: this.number,
            started: this.started,
            ended: time(self.now),
            request: this.request.clone(),
            ending: &ending,
            had_spent: this.spends(),
            not_before: waits.then(|| self.clocks().wall.plus(Duration::from_secs(1))),
        };
        self.facts.delivery_ends(&ended, others, &bounds.terms.contract);
        self.calls[index].ended = Some((self.now, end));
        let proves = bounds.terms.contract.exists == Exists::Proof;
        self.success |= match end {
            End::Reply(Reply::Applied) => true,
            End::Reply(Reply::Exists) => proves,
            End::Reply(Reply::Running | Reply::No(_))
            | End::Unknown
            | End::Interrupted(_)
            | End::CutOff => false,
        };
    }

    fn recover(&mut self, alone: bool, bounds: &Bounds) {
        self.down = false;
        if let Some(index) = self.calls.iter().position(|call| call.ended.is_none()) {
            self.end(index, End::Interrupted(alone), bounds);
        }
    }

    fn retry(&mut self, bounds: &Bounds) {
        let (state, around, now) = (self.state(bounds), self.around(), self.clocks());
        self.retried = retry(&mut self.facts, state, &around, &bounds.terms, now).is_ok();
    }
}

impl Call {
    /// An answer sets out, if anybody still listens and none came before.
    fn answer(&mut self, reply: Reply, heard: bool) {
        if heard && self.heard && self.reply.is_none() {
            self.reply = Some(reply);
        }
    }
}
