//! The scripted CRM, as a stranger at its socket sees it, and what it says of that.

#[path = "scripted/client.rs"]
mod client;
#[path = "scripted/contracts.rs"]
mod contracts;
#[path = "scripted/replies.rs"]
mod replies;
#[path = "scripted/resets.rs"]
mod resets;
#[path = "scripted/tls.rs"]
mod tls;

use client::{Client, post};
use handoff::scripted::{
    Contract, Course, End, Gate, Hears, KeyAt, Pace, Pause, Reply, Request, Script, Server, Stage,
    StartError, When,
};
use proptest::prelude::*;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

/// A CRM with keys in a header, which it remembers for ever.
pub(crate) fn script() -> Script {
    let key = KeyAt::Header("idempotency-key".to_owned());
    Script::new(key, Contract::IdempotencyKey { window: None })
}

pub(crate) fn start(script: Script) -> Server {
    Server::start(script).expect("it starts")
}

/// A server at which every request meets this.
pub(crate) fn always(course: Course) -> Server {
    start(script().rule(When::Always, course))
}

#[test]
fn each_request_is_logged_as_it_came() {
    let server = start(script());
    let mut client = Client::to(&server);
    assert_eq!(client.post("a", "{ \"x\": 1}").answer().status, 201);
    assert_eq!(client.get("/other?x").answer().status, 404);
    Client::to(&server).post("a", "{ \"x\": 1}").answer();
    let requests = server.requests();
    let places = requests.iter().map(|one| (one.number, one.connection, one.turn, one.reused()));
    assert_eq!(places.collect::<Vec<_>>(), [(1, 1, 1, false), (2, 1, 2, true), (3, 2, 1, false)]);
    assert!(requests.is_sorted_by_key(|one| one.at));
    let first = &requests[0];
    assert_eq!((first.method.as_str(), first.target.as_str()), ("POST", "/tasks"));
    assert_eq!(first.headers[0], ("Idempotency-Key".to_owned(), b"a".to_vec()));
    assert_eq!(first.header("CONTENT-LENGTH"), Some("9"));
    assert_eq!([first.head.as_slice(), &first.body].concat(), post("a", "{ \"x\": 1}").as_bytes());
    assert_eq!((first.whole, first.key.as_deref()), (true, Some("a")));
    assert_eq!((requests[1].key.as_deref(), server.connections()), (None, 2));
    assert_eq!((server.received("a"), server.records().len()), (2, 1));
}

#[test]
fn a_request_counts_as_received_only_when_it_is_whole() {
    let server = start(script());
    let whole = post("a", "0123456789");
    let (part, _) = whole.split_at(whole.len() - 3);
    assert_eq!(Client::to(&server).send(part).no_more().text(), "");
    let requests = server.wait_until(|all| all[0].finished).expect("it ends");
    assert_eq!((requests[0].whole, requests[0].body.as_slice()), (false, &b"0123456"[..]));
    assert_eq!((server.received("a"), server.records().len()), (0, 0));
    assert_eq!(Client::to(&server).post("a", "0123456789").answer().status, 201);
    assert_eq!(server.received("a"), 1);
}

#[test]
fn a_body_in_chunks_is_put_together() {
    let server = start(script());
    let head = "POST / HTTP/1.1\r\nidempotency-key: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\n";
    let mut client = Client::to(&server);
    assert_eq!(client.send(head).send(chunks).answer().status, 201);
    assert_eq!(client.send(format!("{head}2\r\nabX\r\n")).answer().status, 400);
    assert_eq!(server.requests()[0].body, b"abc0123456789");
    assert_eq!(server.received("a"), 1);
}

#[test]
fn requests_in_one_piece_are_answered_one_by_one() {
    let server = start(script());
    let mut client = Client::to(&server);
    client.send([post("a", "1"), post("b", "22")].concat());
    assert_eq!([client.answer().status, client.answer().status], [201, 201]);
    assert_eq!(server.records().iter().map(|one| one.content.len()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_first_rule_that_fits_counts() {
    let says = |status| Course::refuses(Reply::status(status));
    let an_hour = Duration::from_secs(3600);
    let server = start(
        script()
            .rule(When::Key("a".to_owned()).and(When::OfItsKey(2)), says(502))
            .rule(When::Key("a".to_owned()), says(501))
            .rule(When::Target("/gone".to_owned()), says(410))
            .rule(When::Method("DELETE"), says(405))
            .rule(When::Arrival(6), says(506))
            .rule(When::Between { from: an_hour, to: 2 * an_hour }, says(507))
            .rule(When::Connection(1).and(When::Reused), says(508))
            .rule(When::Between { from: Duration::ZERO, to: an_hour }, says(509)),
    );
    let mut client = Client::to(&server);
    let mut posted = |key| client.post(key, "{}").answer().status;
    assert_eq!([posted("a"), posted("a"), posted("a")], [501, 502, 501]);
    assert_eq!(client.get("/gone/1").answer().status, 410);
    assert_eq!(client.send("DELETE / HTTP/1.1\r\n\r\n").answer().status, 405);
    assert_eq!(client.post("b", "{}").answer().status, 506);
    assert_eq!(client.post("b", "{}").answer().status, 508);
    assert_eq!(Client::to(&server).post("b", "{}").answer().status, 509);
    assert!(server.records().is_empty());
}

#[test]
fn a_script_that_cannot_be_followed_is_refused() {
    let unread = || Course::gone_after(Hears::Nothing, End::Reset);
    let refused = |script: Script| match Server::start(script) {
        Err(StartError::Script(late)) => (late.rule, late.decided, late.needed),
        other => panic!("{other:?}"),
    };
    let by_key = || When::Key("a".to_owned());
    assert_eq!(refused(script().rule(by_key(), unread())), (1, Stage::Head, Stage::Arrived));
    let behind = script().rule(by_key(), Course::default()).rule(When::Reused, unread());
    assert_eq!(refused(behind), (2, Stage::Head, Stage::Arrived));
    let in_the_body = Script::new(KeyAt::Pointer("/key".to_owned()), Contract::None);
    let slow = Course::default().reads_slowly(Pace { bytes: 1, every: Duration::ZERO });
    assert_eq!(refused(in_the_body.rule(by_key(), slow)), (1, Stage::Body, Stage::Head));
    let accepted = Course::gone_after(Hears::NoConnection, End::Close);
    let late = script().rule(When::Arrival(1), accepted);
    assert_eq!(refused(late), (1, Stage::Arrived, Stage::Accepted));
}

#[test]
fn a_gate_holds_a_request_before_it_is_acted_upon_and_before_it_is_answered() {
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let [reading, acting, answering] = gates.clone().map(Pause::Until);
    let course =
        Course::default().before_reading(reading).before_acting(acting).before_answering(answering);
    let server = always(course);
    let mut client = Client::to(&server);
    client.post("a", "{}");
    let requests = server.wait_until(|all| !all.is_empty()).expect("it arrives");
    assert_eq!((requests[0].method.as_str(), requests[0].whole), ("", false));
    gates[0].open();
    let requests = server.wait_until(|all| all[0].whole).expect("it is read");
    assert_eq!((requests[0].effect, server.records().len()), (None, 0));
    gates[1].open();
    let requests = server.wait_until(|all| all[0].effect.is_some()).expect("it is acted upon");
    assert_eq!((requests[0].answered, server.records().len()), (0, 1));
    gates[2].open();
    assert_eq!(client.answer().status, 201);
}

#[test]
fn a_late_act_comes_when_the_client_has_gone() {
    let server = always(Course::acts_late());
    let mut client = Client::to(&server);
    client.post("a", "{}");
    let requests = server.wait_until(|all| all.iter().any(|one| one.whole)).expect("it is read");
    assert_eq!((requests[0].effect, server.records().len()), (None, 0));
    drop(client);
    server.wait_until(|all| all[0].effect.is_some()).expect("it is acted upon");
    assert_eq!(server.records_of("a").len(), 1);
}

#[test]
fn a_pause_and_a_slow_reading_take_their_time() {
    let (pause, every) = (Duration::from_millis(40), Duration::from_millis(2));
    let slowly = Pace { bytes: 100, every };
    let server = always(Course::default().reads_slowly(slowly).before_answering(Pause::For(pause)));
    let start = tokio::time::Instant::now();
    assert_eq!(Client::to(&server).post("a", &"x".repeat(1000)).answer().status, 201);
    assert!(start.elapsed() >= pause + 10 * every, "{:?}", start.elapsed());
    assert_eq!(server.requests()[0].body.len(), 1000);
}

#[test]
fn an_outage_ends_connections_and_refuses_new_ones_until_it_is_over() {
    let server = start(script());
    let mut client = Client::to(&server);
    client.post("a", "{}").answer();
    for _ in 0..20 {
        server.go_down().expect("the port is kept");
        server.go_down().expect("it is down");
        let refused = TcpStream::connect(server.address()).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
        assert!(client.rest().0.is_empty());
        server.come_back().expect("it listens again");
        server.come_back().expect("it listens");
        client = Client::to(&server);
        assert!(client.post("a", "{}").answer().head.contains("idempotent-replayed"));
    }
    assert_eq!(server.records().len(), 1, "the CRM has kept what it did");
}

#[test]
fn a_server_that_is_dropped_leaves_neither_thread_nor_connection() {
    let server = always(Course::default().before_acting(Pause::Until(Gate::new())));
    let name = format!("scripted {}\n", server.address().port());
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|other| *other == name).count()
    };
    let mut client = Client::to(&server);
    client.post("a", "{}");
    server.wait_until(|all| !all.is_empty()).expect("it arrives");
    assert_eq!(threads(), 1);
    drop(server);
    assert_eq!(threads(), 0);
    assert!(client.rest().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_goes_on_while_the_time_of_a_test_stands_still() {
    let pause = Pause::For(Duration::from_millis(5));
    let server = always(Course::default().before_reading(pause));
    let start = tokio::time::Instant::now();
    let mut client = Client::to(&server);
    client.post("a", "{}");
    let finished = |all: &[Request]| all.iter().any(|one| one.finished);
    let requests = server.until(finished).await.expect("it ends");
    assert_eq!((requests.len(), client.answer().status), (1, 201));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[test]
fn what_is_no_http_is_refused_and_logged() {
    let server = start(script());
    let mut client = Client::to(&server);
    assert_eq!(client.send("\0\x01 nonsense\r\n\r\n").answer().status, 400);
    assert_eq!(client.rest(), (Vec::new(), false));
    let requests = server.wait_until(|all| all[0].finished).expect("it ends");
    assert_eq!((requests[0].method.as_str(), requests[0].whole), ("", false));
}

/// Bytes that nearly make sense.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let pieces = [
        "POST /tasks HTTP/1.1\r\n",
        "GET /tasks?key=%a HTTP/1.1\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 9\r\n",
        "expect: 100-continue\r\n",
        "\r\n",
        "3\r\nabc\r\n",
        "fffffffffffffffff\r\n",
        "ffffffffffffffff\r\n",
        "-1\r\n",
        "0\r\n\r\n",
    ];
    let piece = prop::sample::select(pieces.to_vec()).prop_map(|piece| piece.as_bytes().to_vec());
    let any = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec(prop_oneof![4 => piece, 1 => any], 0..12).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_the_server_panic(noise in noise(), bytes: Vec<u8>) {
        let server = start(script().look_up(KeyAt::Query("key".to_owned())));
        let chunked = b"POST /tasks HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        for bytes in [&noise, &[chunked, noise.as_slice()].concat(), &bytes] {
            Client::to(&server).send(bytes).no_more().rest();
        }
        prop_assert_eq!(Client::to(&server).post("a", "{}").answer().status, 201);
        prop_assert_eq!(server.panics(), 0);
    }
}
