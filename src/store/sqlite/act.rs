//! A person's act on one operation, bound to the version that the person saw.

use super::audit::{self, Entry};
use super::update::{Change, Update};
use super::{meta, operation};
use crate::clock::Now;
use crate::outbox::policy::Next;
use crate::outbox::rules::Rules;
use crate::outbox::settle::Word;
use crate::outbox::verbs::Deed;
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
    if act.deed == Deed::Retry && !judged.around.configured {
        return Ok(Acted::NotConfigured(Box::new(loaded.row)));
    }
    let (state, facts) = (loaded.row.state, &mut loaded.row.facts);
    let done = act.deed.done_to(facts, state, &act.who, &judged.around, terms, now);
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
    if matches!(act.deed, Deed::Resolve(Word::NotSent { .. })) {
        meta::keep_resolution(db, &act.key, loaded.row.version)?;
    }
    audit::add(
        db,
        &Entry {
            at: now.wall,
            who: &act.who,
            verb: act.deed.verb().as_str(),
            operation_key: Some(&act.key),
            reason: act.reason.as_deref(),
            before: &before,
            after: &audit::after(&loaded.row, &act.deed),
        },
    )?;
    Ok(Acted::Done(Box::new(loaded.row), follows))
}
