//! What the daemon logs of receivers that are held.

use super::Logbook;
use super::repeats::{Repeat, Repeated};
use crate::outbox::hold::Hold;

impl Logbook {
    /// These holds are in force now: says which are new and which have ended.
    pub(super) fn holds(&mut self, now: &[Hold]) {
        let is_among = |hold: &Hold, others: &[Hold]| {
            let key = |hold: &Hold| (hold.receiver.clone(), hold.held_by);
            others.iter().any(|other| key(other) == key(hold))
        };
        if self.held == now {
            return;
        }
        let before = std::mem::replace(&mut self.held, now.to_vec());
        for hold in now.iter().filter(|hold| !is_among(hold, &before)) {
            if self.in_full(repeat(Repeated::Held, hold)) {
                tracing::warn!(
                    event = Repeated::Held.as_str(),
                    receiver.name = hold.receiver,
                    reason = hold.held_by.as_str(),
                    who = hold.who,
                    detail = hold.reason,
                    until = hold.until.map(|until| until.to_string()),
                    "nothing more is begun at this receiver"
                );
            }
        }
        for hold in before.iter().filter(|hold| !is_among(hold, now)) {
            if self.in_full(repeat(Repeated::Released, hold)) {
                tracing::info!(
                    event = Repeated::Released.as_str(),
                    receiver.name = hold.receiver,
                    reason = hold.held_by.as_str(),
                    "this hold of the receiver has ended"
                );
            }
        }
    }
}

fn repeat(event: Repeated, hold: &Hold) -> Repeat<'_> {
    let reason = Some(hold.held_by.as_str());
    Repeat { receiver: Some(&hold.receiver), reason, ..Repeat::of(event) }
}
