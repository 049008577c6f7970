//! What becomes of requests, and what of that is heard.

use crate::chance::Chance;
use crate::crm::{Mode, Reply};
use crate::ground::{Ground, Stage, Told, Word};
use handoff::clock::Timestamp;
use handoff::outbox::outcome::{Ending, NotBefore, NotTakenWhy, Outcome, OutcomeKind, Report};
use std::time::Duration;

/// What can happen to one request.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive,
    Finish,
    Double,
    TwinArrives,
    Hear,
    /// The reply is lost, or the request is, or it is on its way for longer.
    Lose,
    Die,
    Panic,
    Refuse(No),
}

/// A definite no to a request that has not been looked at.
#[derive(Clone, Copy, Debug)]
enum No {
    Unreachable,
    Unavailable,
    Throttled,
    Rejected,
    Unauthorised,
    Conflict,
    Unexpected,
    InProgress,
}

/// The calls that somebody listens to, and the requests that may still act.
fn open(ground: &Ground) -> Vec<usize> {
    let open = |place: &usize| {
        let call = &ground.calls[*place];
        call.ear.is_some() || call.is_live()
    };
    (0..ground.calls.len()).filter(open).collect()
}

/// Whether anything can happen to a request.
pub(crate) fn are_awaited(ground: &Ground) -> bool {
    !open(ground).is_empty()
}

/// Something happens to one of the requests, if there are any.
pub(crate) fn happen(ground: &mut Ground, chance: &mut Chance) {
    let places = open(ground);
    if places.is_empty() {
        return;
    }
    let place = chance.pick(&places);
    let event = draw(ground, place, chance);
    if let Some(event) = event {
        let name = ground.calls[place].name();
        ground.note(format!("{name}: {event:?}"));
        make(ground, place, event, chance);
    }
}

/// What a healthy receiver and a healthy network do with every request.
pub(crate) fn heal(ground: &mut Ground) -> bool {
    let mut any = false;
    for place in 0..ground.calls.len() {
        let call = &ground.calls[place];
        let stage = call.stage;
        if call.ear.is_none() && !call.is_live() {
            continue;
        }
        any = true;
        if call.twin {
            ground.arrive_twin(place);
        }
        if stage == Stage::UnderWay {
            ground.arrive(place);
        }
        if ground.calls[place].stage == Stage::AtWork {
            ground.finish(place);
        }
        if ground.calls[place].ear.is_some() {
            hear(ground, place);
        }
    }
    any
}

fn draw(ground: &Ground, place: usize, chance: &mut Chance) -> Option<Event> {
    let call = &ground.calls[place];
    let truth = ground.lanes[call.lane].truth;
    let heard = call.ear.is_some();
    let mut events: Vec<(u64, Event)> = Vec::new();
    match call.stage {
        Stage::UnderWay => {
            events.push((12, Event::Arrive));
            events.push((1, Event::Die));
            if truth.atomic && truth.mode != Mode::Blind && !call.doubled {
                events.push((1, Event::Double));
            }
            if heard && !call.doubled {
                let all = [
                    No::Unreachable,
                    No::Unavailable,
                    No::Throttled,
                    No::Rejected,
                    No::Unauthorised,
                    No::Conflict,
                    No::Unexpected,
                ];
                events.push((5, Event::Refuse(chance.pick(&all))));
                if truth.mode != Mode::Blind {
                    events.push((1, Event::Refuse(No::InProgress)));
                }
            }
        }
        Stage::AtWork => events.push((6, Event::Finish)),
        Stage::Done if heard => events.extend([(10, Event::Hear), (1, Event::Panic)]),
        Stage::Done | Stage::Dead => {}
    }
    if call.twin {
        events.push((4, Event::TwinArrives));
    }
    if heard {
        events.push((3, Event::Lose));
    }
    (!events.is_empty()).then(|| chance.weighed(&events))
}

fn make(ground: &mut Ground, place: usize, event: Event, chance: &mut Chance) {
    match event {
        Event::Arrive => ground.arrive(place),
        Event::Finish => ground.finish(place),
        Event::TwinArrives => ground.arrive_twin(place),
        Event::Double => {
            let call = &mut ground.calls[place];
            (call.doubled, call.twin) = (true, true);
        }
        Event::Die => {
            let call = &mut ground.calls[place];
            (call.stage, call.twin) = (Stage::Dead, false);
        }
        Event::Hear => hear(ground, place),
        Event::Lose => {
            let code = chance.pick(&["reply_lost", "http_500", "unreadable_reply"]);
            ground.give_up(place);
            speak(ground, place, Word::Report(Report::unknown(code)), OutcomeKind::Unknown);
        }
        Event::Panic => {
            ground.give_up(place);
            speak(ground, place, Word::Panic, OutcomeKind::Unknown);
        }
        Event::Refuse(no) => {
            ground.calls[place].stage = Stage::Dead;
            let wall = ground.times.wall();
            report(ground, place, refusal(no, wall, chance));
        }
    }
}

fn refusal(no: No, wall: Timestamp, chance: &mut Chance) -> Report {
    let pause = Duration::from_millis(chance.between(0, 5_000_000));
    let not_before = chance.pick(&[
        None,
        Some(NotBefore::After(pause)),
        Some(NotBefore::At(wall.plus(pause))),
        Some(NotBefore::At(wall.minus(pause))),
    ]);
    Report::new(match no {
        No::Unreachable => return Report::not_taken(NotTakenWhy::Unreachable, "unreachable"),
        No::Unavailable => Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before },
        No::Throttled => Outcome::NotTaken { why: NotTakenWhy::Throttled, not_before },
        No::Rejected => Outcome::Rejected,
        No::Unauthorised => Outcome::Unauthorised { whole_receiver: false },
        No::Conflict => Outcome::Conflict,
        No::Unexpected => Outcome::Unexpected,
        No::InProgress => Outcome::InProgress { not_before },
    })
}

/// What the receiver has answered is heard; of a dead request, that it is lost.
fn hear(ground: &mut Ground, place: usize) {
    let call = &ground.calls[place];
    let Some(reply) = call.reply.clone() else {
        ground.give_up(place);
        let lost = Report::unknown("reply_lost");
        return speak(ground, place, Word::Report(lost), OutcomeKind::Unknown);
    };
    let outcome = match reply {
        Reply::Created(id) => Outcome::Applied { remote_id: Some(id.to_string()), replayed: false },
        Reply::Replayed(id) => Outcome::Applied { remote_id: Some(id.to_string()), replayed: true },
        Reply::Exists(id) => Outcome::AlreadyExists { remote_id: Some(id.to_string()) },
        Reply::Conflict => Outcome::Conflict,
    };
    report(ground, place, Report::new(outcome));
}

fn report(ground: &mut Ground, place: usize, report: Report) {
    let kind = Ending::Outcome(report.outcome.clone()).kind();
    speak(ground, place, Word::Report(report), kind);
}

/// The waiting call is told.
fn speak(ground: &mut Ground, place: usize, word: Word, kind: OutcomeKind) {
    let call = &mut ground.calls[place];
    let Some(ear) = call.ear.take() else { return };
    // A request whose twin was refused may not act: that is not promised.
    call.twin &= kind.may_have_acted() || kind == OutcomeKind::Applied;
    let (process, key, number) = (call.process, call.key.clone(), call.number);
    call.over.get_or_insert(ground.times.truth);
    let asked = asked(&word);
    assert!(ear.send(word).is_ok(), "somebody listens to {key}#{number}");
    ground.count(kind.as_str());
    ground.told.push(Told {
        process,
        key,
        number,
        kind,
        ready: false,
        before: false,
        asked,
        pause: None,
    });
}

/// The pause that an answer asks for.
fn asked(word: &Word) -> Option<NotBefore> {
    let Word::Report(report) = word else { return None };
    match report.outcome {
        Outcome::NotTaken { not_before, .. } | Outcome::InProgress { not_before } => not_before,
        _ => None,
    }
}
