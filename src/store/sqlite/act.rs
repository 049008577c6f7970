//! A person's act on one operation, bound to the version that the person saw.

use super::audit::{self, Entry};
use super::operation;
use super::update::{Change, Update};
use crate::clock::Now;
use crate::outbox::policy::{Next, next};
use crate::outbox::rules::Rules;
use crate::outbox::state::Verb;
use crate::outbox::verbs;
use crate::store::{Act, Acted};
use rusqlite::Connection;

/// Does what a person asked, in the caller's transaction.
pub(super) fn act(
    db: &Connection,
    rules: &Rules,
    act: &Act,
    now: Now,
) -> Result<Acted, rusqlite::Error> {
    let Some(mut loaded) = operation::by_key(db, &act.key)? else { return Ok(Acted::NoSuchKey) };
    if loaded.row.version != act.version {
        return Ok(Acted::Moved(Box::new(loaded.row)));
    }
    let before = audit::snapshot(&loaded.row);
    let judged = rules.judge(&loaded.row.recorded, now);
    let terms = rules.terms(&loaded.row.receiver);
    if act.verb == Verb::Retry && !judged.around.configured {
        return Ok(Acted::NotConfigured(Box::new(loaded.row)));
    }
    let state = loaded.row.state;
    let facts = &mut loaded.row.facts;
    let done = match act.verb {
        Verb::Retry => verbs::retry(facts, state, &judged.around, terms, now),
        Verb::Withdraw => {
            verbs::withdraw(facts, state).map(|()| next(facts, &judged.around, terms, now))
        }
    };
    let follows: Next = match done {
        Ok(follows) => follows,
        Err(refusal) => return Ok(Acted::Refused(Box::new(loaded.row), refusal)),
    };
    let change = Change {
        next: follows,
        ready: judged.ready.as_ref(),
        effect: loaded.row.facts.effect(&terms.contract),
        error: None,
        suspect: loaded.suspect,
        now: now.wall,
    };
    Update::prepare(db)?.write(&mut loaded, change)?;
    audit::add(
        db,
        &Entry {
            at: now.wall,
            who: &act.who,
            verb: act.verb.as_str(),
            operation_key: Some(&act.key),
            reason: act.reason.as_deref(),
            before: &before,
            after: &audit::snapshot(&loaded.row),
        },
    )?;
    Ok(Acted::Done(Box::new(loaded.row), follows))
}
