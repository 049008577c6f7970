//! The facts of an operation, folded anew from its attempts and the audit.
//! Written from `policy.md` alone, so that it can disagree with the product.

use handoff::clock::Timestamp;
use handoff::outbox::facts::{
    Answer, AttemptKind, Facts, Open, Possible, Proof, RequestFingerprint,
};
use handoff::outbox::state::SettledBy;
use handoff::rusqlite::types::Value;

/// One row as the database shows it.
type Row = Vec<Value>;

/// What gives the rows of a query.
pub(crate) type Query<'a> = &'a dyn Fn(&str) -> Vec<Row>;

const ATTEMPTS: &str = "SELECT number, started_steady, finished_steady, outcome, request, spent,
    alone, begun_fact, ended_fact, remote_id, kind, error_code FROM handoff_attempts
    WHERE operation_key = ";

struct Attempt {
    number: u32,
    started: Timestamp,
    finished: Option<Timestamp>,
    outcome: Option<String>,
    request: String,
    spent: u32,
    alone: bool,
    begun_fact: i64,
    ended_fact: Option<i64>,
    remote_id: Option<String>,
    looks_up: bool,
    error_code: Option<String>,
}

enum Event<'a> {
    Begun,
    Asked,
    Ended(&'a Attempt),
    Retried,
    Withdrawn,
    Reconciled,
    SaidSent(String, Option<String>),
    SaidNotSent,
}

/// The facts of the operation with this key. `exists_proves` is what its
/// receiver's contract has always said.
pub(crate) fn recomputed(query: Query<'_>, key: &str, exists_proves: bool) -> Facts {
    let sql = format!("{ATTEMPTS} '{key}' ORDER BY number");
    let all: Vec<Attempt> = query(&sql).iter().map(attempt).collect();
    let open = all.iter().find(|one| one.outcome.is_none());
    let open = open.map(|one| Open {
        number: one.number,
        kind: if one.looks_up { AttemptKind::LookUp } else { AttemptKind::Deliver },
    });
    let (look_ups, attempts): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.looks_up);
    let mut events: Vec<(i64, Event<'_>)> = audit(query, key);
    for attempt in attempts.iter().chain(&look_ups) {
        let begun = if attempt.looks_up { Event::Asked } else { Event::Begun };
        events.push((attempt.begun_fact, begun));
        events.extend(attempt.ended_fact.map(|fact| (fact, Event::Ended(attempt))));
    }
    events.sort_by_key(|(fact, _)| *fact);
    let count = u32::try_from(attempts.len()).unwrap();
    // What a person has said not to have acted counts no more.
    let said =
        |(fact, event): &(i64, Event<'_>)| matches!(event, Event::SaidNotSent).then_some(*fact);
    let resolved = events.iter().filter_map(said).max().unwrap_or(0);
    let counted: Vec<&Attempt> = attempts.iter().filter(|one| one.begun_fact > resolved).collect();
    let mut facts = Facts {
        possible: possible(counted.iter().copied()),
        open,
        spent: counted.iter().map(|one| one.spent).sum(),
        budget_start: counted.first().map(|one| one.started),
        solo_crashes: counted.iter().map(|one| u32::from(one.alone)).sum(),
        attempts: count,
        tries: u32::try_from(counted.len()).unwrap(),
        version: u64::try_from(events.last().map_or(1, |(fact, _)| *fact)).unwrap(),
        ..Facts::recorded()
    };
    for (fact, event) in &events {
        let earlier = attempts.iter().filter(|one| one.begun_fact < *fact);
        follow(&mut facts, event, possible(earlier).is_some());
    }
    if facts.proof.is_none() && exists_proves {
        let exists = attempts.iter().find(|one| one.outcome.as_deref() == Some("already_exists"));
        facts.proof =
            exists.map(|one| Proof { remote_id: one.remote_id.clone(), by: SettledBy::Policy });
    }
    // What is settled has not failed.
    facts.failed_at = match facts.proof {
        Some(_) => None,
        None => counted.iter().filter_map(|one| one.outcome.as_ref().and(one.finished)).max(),
    };
    facts
}

fn follow(facts: &mut Facts, event: &Event<'_>, in_doubt: bool) {
    match event {
        Event::Begun => {
            facts.answer = Answer::None;
            facts.grant = false;
            (facts.absences, facts.asks) = (0, 0);
        }
        Event::Asked => {
            facts.asks += 1;
            facts.ask_now = false;
        }
        Event::Retried => {
            facts.grant = true;
            let no = [Answer::Rejected, Answer::Refused, Answer::Unexpected];
            if no.contains(&facts.answer) && !in_doubt {
                facts.answer = Answer::None;
            }
        }
        Event::Withdrawn => facts.withdrawn = true,
        Event::Reconciled => {
            facts.ask_now = true;
            facts.asks = 0;
        }
        Event::SaidSent(who, remote_id) => {
            let by = SettledBy::Person(who.clone());
            facts.proof = Some(Proof { remote_id: remote_id.clone(), by });
            facts.ask_now = false;
        }
        Event::SaidNotSent => {
            facts.proof = None;
            facts.answer = Answer::None;
            (facts.absences, facts.asks) = (0, 0);
            (facts.grant, facts.ask_now) = (false, false);
        }
        Event::Ended(attempt) => ended(facts, attempt),
    }
}

fn ended(facts: &mut Facts, attempt: &Attempt) {
    facts.answer = match attempt.outcome.as_deref().unwrap() {
        "applied" => {
            let proof = Proof { remote_id: attempt.remote_id.clone(), by: SettledBy::Reply };
            let weaker = |earlier: &Proof| {
                earlier.remote_id.is_none() || matches!(earlier.by, SettledBy::Person(_))
            };
            if facts.proof.as_ref().is_none_or(weaker) {
                facts.proof = Some(proof);
            }
            return;
        }
        "already_exists" => Answer::Exists,
        "rejected" => Answer::Rejected,
        "unauthorised" => Answer::Refused,
        "unexpected" => Answer::Unexpected,
        "conflict" => Answer::Conflict,
        "found" => {
            if facts.proof.is_none() {
                let remote_id = attempt.remote_id.clone();
                facts.proof = Some(Proof { remote_id, by: SettledBy::LookUp });
            }
            return;
        }
        "differs" => Answer::Differs,
        "many" => Answer::Many,
        "absent" if attempt.error_code.is_none() => {
            facts.absences += 1;
            return;
        }
        // What may have acted begins the count of absences anew.
        "unknown" | "interrupted" | "cut_off" if !attempt.looks_up => {
            facts.absences = 0;
            return;
        }
        _ => facts.answer,
    };
}

/// The deliveries that may have acted.
fn possible<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Option<Possible> {
    let doubtful = ["already_exists", "in_progress", "unknown", "interrupted", "cut_off"];
    let may_have_acted =
        |one: &&Attempt| one.outcome.as_deref().is_none_or(|word| doubtful.contains(&word));
    let doubtful: Vec<&Attempt> = attempts.filter(may_have_acted).collect();
    let first = doubtful.first()?;
    let same = doubtful.iter().all(|one| one.request == first.request);
    Some(Possible {
        since: doubtful.iter().map(|one| one.started).min()?,
        until: doubtful.iter().map(|one| one.finished.unwrap_or(one.started)).max()?,
        request: same.then(|| RequestFingerprint(first.request.clone())),
        count: u32::try_from(doubtful.len()).unwrap(),
        marks: 0,
    })
}

fn audit(query: Query<'_>, key: &str) -> Vec<(i64, Event<'static>)> {
    let sql = format!("SELECT verb, after, who FROM handoff_audit WHERE operation_key = '{key}'");
    let event = |row: &Row| {
        let (Value::Text(verb), Value::Text(after)) = (&row[0], &row[1]) else { panic!("{row:?}") };
        let after: serde_json::Value = serde_json::from_str(after).unwrap();
        let event = match verb.as_str() {
            "retry" => Event::Retried,
            "withdraw" => Event::Withdrawn,
            "reconcile" => Event::Reconciled,
            "resolve" if after["word"]["as"] == "not-sent" => Event::SaidNotSent,
            "resolve" => {
                let Value::Text(who) = &row[2] else { panic!("{row:?}") };
                let remote_id = after["word"]["remote_id"].as_str().map(str::to_owned);
                Event::SaidSent(who.clone(), remote_id)
            }
            other => panic!("{other}"),
        };
        (after["version"].as_i64().unwrap(), event)
    };
    query(&sql).iter().map(event).collect()
}

fn attempt(row: &Row) -> Attempt {
    let number = |at: usize| match row[at] {
        Value::Integer(number) => Some(number),
        _ => None,
    };
    let text = |at: usize| match &row[at] {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let small = |at: usize| u32::try_from(number(at).unwrap()).unwrap();
    Attempt {
        number: small(0),
        started: Timestamp::from_millis(number(1).unwrap()),
        finished: number(2).map(Timestamp::from_millis),
        outcome: text(3),
        request: text(4).unwrap(),
        spent: small(5),
        alone: number(6) == Some(1),
        begun_fact: number(7).unwrap(),
        ended_fact: number(8),
        remote_id: text(9),
        looks_up: text(10).as_deref() == Some("look_up"),
        error_code: text(11),
    }
}
