//! What a person does to settle an operation whose effect is not known: has it
//! looked up, or vouches for what the receiver holds.

use super::facts::{Facts, Proof};
use super::policy::{Surroundings, Terms};
use super::state::{Effect, SettledBy, State};
use super::verbs::Refusal;
use crate::clock::{Now, Timestamp};

/// What a person vouches for, having looked at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The receiver holds it, under this id.
    Sent {
        /// The receiver's id for it.
        remote_id: String,
    },
    /// The receiver does not hold it.
    NotSent {
        /// When the person looked, by the wall clock.
        looked_at: Timestamp,
        /// It counts although the receiver could still act then.
        force: bool,
    },
}

/// `reconcile`: look the key up now, whatever else is waited for.
///
/// # Errors
///
/// [`Refusal`] where an attempt is under way, the operation is sent, the receiver
/// cannot be asked, or there is nothing left to compare with.
pub fn reconcile(
    facts: &mut Facts,
    state: State,
    around: &Surroundings,
    terms: &Terms,
) -> Result<(), Refusal> {
    if facts.open.is_some() {
        return Err(Refusal::InFlight);
    }
    if state == State::Sent {
        return Err(Refusal::State { state });
    }
    if terms.contract.look_up.is_none() {
        return Err(Refusal::NoLookUp);
    }
    if !around.configured || !around.valid {
        return Err(Refusal::Unfit);
    }
    facts.ask_now = true;
    facts.asks = 0;
    facts.version += 1;
    Ok(())
}

/// `resolve`: what a person has found at the receiver takes the place of an answer.
///
/// # Errors
///
/// [`Refusal`] where an attempt is under way, where the state leaves nothing to
/// vouch for, or where the person looked while the receiver could still act.
pub fn resolve(
    facts: &mut Facts,
    state: State,
    word: &Word,
    who: &str,
    terms: &Terms,
    now: Now,
) -> Result<(), Refusal> {
    if facts.open.is_some() {
        return Err(Refusal::InFlight);
    }
    match word {
        Word::Sent { remote_id } => {
            let possible = facts.effect(&terms.contract) == Effect::Possible;
            match state {
                State::Blocked => {}
                State::Withdrawn if possible => {}
                State::Pending | State::Sent | State::Withdrawn => {
                    return Err(Refusal::State { state });
                }
            }
            facts.ask_now = false;
            facts.proven(Some(remote_id.clone()), SettledBy::Person(who.to_owned()));
        }
        Word::NotSent { looked_at, force } => {
            let vouched = matches!(&facts.proof, Some(Proof { by: SettledBy::Person(_), .. }));
            if state != State::Blocked && !vouched {
                return Err(Refusal::State { state });
            }
            looked_late_enough(facts, terms, *looked_at, *force, now)?;
            start_anew(facts);
        }
    }
    facts.version += 1;
    Ok(())
}

fn looked_late_enough(
    facts: &Facts,
    terms: &Terms,
    looked_at: Timestamp,
    force: bool,
    now: Now,
) -> Result<(), Refusal> {
    if looked_at > now.wall {
        return Err(Refusal::NotYetLooked { looked_at });
    }
    let Some(possible) = &facts.possible else { return Ok(()) };
    let settled = possible.until.plus(terms.contract.settle_delay);
    let ago = now.wall.since(looked_at);
    // When the person looked, by the clock that nobody sets.
    if now.steady.minus(ago) < settled && !force {
        let until = now.wall.minus(now.steady.since(settled)).plus(settled.since(now.steady));
        return Err(Refusal::TooEarly { until });
    }
    Ok(())
}

/// Nothing has happened at the receiver: as if it had just been recorded, or taken back.
fn start_anew(facts: &mut Facts) {
    let (attempts, version, withdrawn) = (facts.attempts, facts.version, facts.withdrawn);
    *facts = Facts { attempts, version, withdrawn, ..Facts::recorded() };
}
