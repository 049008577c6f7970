//! How the server parts from a client in the middle of things.

use super::client::{Client, post};
use super::{always, script, start};
use handoff::scripted::{Answer, Course, End, Gate, Hears, Pause, Reply, When};

/// What a client gets that sends one request; what of it was read, and whether it was acted upon.
fn meets(course: Course) -> ((Vec<u8>, bool), (bool, bool)) {
    let server = always(course);
    let got = Client::to(&server).post("a", "0123456789").rest();
    let requests = server.wait_until(|all| all[0].finished).expect("it ends");
    (got, (requests[0].whole, requests[0].effect.is_some()))
}

fn nothing(reset: bool) -> (Vec<u8>, bool) {
    (Vec::new(), reset)
}

#[test]
fn a_request_can_be_cut_off_before_it_is_read() {
    let cut = |end| meets(Course::gone_after(Hears::Nothing, end));
    assert_eq!(cut(End::Reset), (nothing(true), (false, false)));
    assert_eq!(cut(End::Close), (nothing(false), (false, false)));
}

#[test]
fn a_request_can_be_cut_off_after_its_head() {
    let cut = |end| meets(Course::gone_after(Hears::Head, end));
    assert_eq!(cut(End::Reset), (nothing(true), (false, false)));
    assert_eq!(cut(End::Close), (nothing(false), (false, false)));
}

#[test]
fn a_request_can_be_cut_off_after_some_bytes_of_its_body() {
    for (end, reset) in [(End::Reset, true), (End::Close, false)] {
        let server = always(Course::gone_after(Hears::Body(4), end));
        let got = Client::to(&server).post("a", "0123456789").rest();
        assert_eq!(got, nothing(reset));
        let requests = server.wait_until(|all| all[0].finished).expect("it ends");
        assert_eq!((requests[0].body.as_slice(), requests[0].whole), (&b"0123"[..], false));
        assert_eq!((server.received("a"), server.records().len()), (0, 0));
    }
}

#[test]
fn a_connection_can_end_after_all_was_heard_and_nothing_done() {
    let cut = |end| meets(Course::gone_after(Hears::Everything, end));
    assert_eq!(cut(End::Reset), (nothing(true), (true, false)));
    assert_eq!(cut(End::Close), (nothing(false), (true, false)));
}

#[test]
fn a_connection_can_end_between_the_act_and_the_answer() {
    let cut = |end| meets(Course::loses_the_answer(end));
    assert_eq!(cut(End::Reset), (nothing(true), (true, true)));
    assert_eq!(cut(End::Close), (nothing(false), (true, true)));
}

#[test]
fn a_connection_can_end_before_a_request_comes() {
    for (end, reset) in [(End::Reset, true), (End::Close, false)] {
        let parting = Course::gone_after(Hears::NoConnection, end);
        let server = start(script().rule(When::Connection(1), parting));
        assert_eq!(Client::to(&server).rest(), nothing(reset));
        assert_eq!(Client::to(&server).post("a", "{}").answer().status, 201);
        assert_eq!((server.connections(), server.requests().len()), (2, 1));
    }
}

#[test]
fn what_a_connection_without_a_request_is_told_is_no_answer_to_a_request() {
    let parting = Course::gone_after(Hears::NoConnection, End::Close);
    let course = parting.answer(Answer::Raw(b"220 mail".to_vec()));
    let server = start(script().rule(When::Connection(2), course));
    Client::to(&server).post("a", "{}").answer();
    let answered = server.wait_until(|all| all[0].finished).expect("it ends")[0].answered;
    assert_eq!(Client::to(&server).text(), "220 mail");
    assert_eq!(server.requests()[0].answered, answered);
}

#[test]
fn a_request_that_an_outage_has_cut_off_is_finished_and_not_acted_upon() {
    let server = always(Course::default().before_acting(Pause::Until(Gate::new())));
    let mut client = Client::to(&server);
    client.post("a", "{}");
    server.wait_until(|all| all.iter().any(|one| one.whole)).expect("it is read");
    server.go_down().expect("the port is kept");
    let requests = server.requests();
    assert!(requests[0].finished && requests[0].effect.is_none());
    assert!(client.rest().0.is_empty());
}

#[test]
fn a_kept_connection_can_end_just_when_the_next_request_comes() {
    for (end, reset) in [(End::Reset, true), (End::Close, false)] {
        let race = Course::gone_after(Hears::Nothing, end);
        let server = start(script().rule(When::Reused, race));
        let mut client = Client::to(&server);
        assert_eq!(client.post("a", "{}").answer().status, 201);
        assert_eq!(client.post("b", "{}").rest(), nothing(reset));
        assert_eq!((server.received("a"), server.received("b")), (1, 0));
        assert_eq!(Client::to(&server).post("b", "{}").answer().status, 201);
    }
}

#[test]
fn a_kept_connection_can_end_unannounced_after_an_answer() {
    let server = always(Course::default().end(End::Close));
    let mut client = Client::to(&server);
    assert!(!client.post("a", "{}").answer().head.contains("close"));
    assert_eq!(client.rest(), nothing(false));
}

#[test]
fn a_client_that_wants_to_close_is_let_go() {
    let server = start(script());
    let old = "GET / HTTP/1.0\r\n\r\n";
    for request in ["GET / HTTP/1.1\r\nConnection: close\r\n\r\n", old] {
        let mut client = Client::to(&server);
        assert_eq!(client.send(request).answer().status, 404);
        assert_eq!(client.rest(), nothing(false));
    }
}

#[test]
fn an_answer_can_come_before_the_body_does() {
    let too_large = Course::refuses(Reply::status(413)).hears(Hears::Head);
    let whole = post("a", "0123456789");
    let (part, rest) = whole.split_at(whole.len() - 5);
    let server = always(too_large.clone().end(End::Close));
    let mut client = Client::to(&server);
    assert_eq!(client.send(part).answer().status, 413);
    assert_eq!(client.send(rest).no_more().rest(), nothing(false));
    let server = always(too_large);
    let mut client = Client::to(&server);
    assert_eq!(client.send(part).answer().status, 413);
    assert_eq!(client.send(rest).send(part).answer().status, 413, "the next request is found");
    assert_eq!((server.requests().len(), server.records().len()), (2, 0));
}

#[test]
fn a_client_that_waits_for_continue_is_asked_for_its_body_or_not() {
    let head = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let server = start(script());
    let mut client = Client::to(&server);
    assert_eq!(client.send(head).answer().status, 100);
    assert_eq!(client.send("{}").answer().status, 201);
    let server = always(Course::default().without_continue());
    assert_eq!(Client::to(&server).send(head).send("{}").answer().status, 201);
    let server = always(Course::refuses(Reply::status(417)).hears(Hears::Head));
    let mut client = Client::to(&server);
    assert_eq!(client.send(head).answer().status, 417);
    assert_eq!(client.rest(), nothing(false));
}
