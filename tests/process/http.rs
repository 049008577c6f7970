//! The receiver that speaks HTTP, against a server at a real socket.

mod server;
mod tls;

use crate::support::{World, until};
use nix::sys::signal::Signal;
use server::{Server, Then, answer};
use std::net::{SocketAddr, TcpListener};

const KEYED: &str = "mode = \"idempotency_key\"\nwindow = \"forever\"";
const SECRET: &str = "canary-7f3a9e-secret";

/// A receiver at this address.
fn configuration(url: &str, contract: &str, more: &str) -> String {
    format!(
        "[receivers.crm]\nkind = \"http\"\nbase_url = \"{url}/api\"\ntimeout = \"20s\"\n\
         auth = {{ bearer = {{ file = \"token\" }} }}\nreceipt = {{ pointer = \"/id\" }}\n{more}\n\
         [receivers.crm.request]\npath = \"/tasks/{{{{ subject }}}}\"\n\
         idempotency_header = \"Idempotency-Key\"\nbody_kind = \"json\"\n\
         body = '{{\"title\": \"{{{{ payload.title }}}}\", \"for\": [\"{{{{ key }}}}\"]}}'\n\
         [receivers.crm.contract]\n{contract}\n\
         [receivers.crm.retry]\nschedule = [\"20ms\", \"1h\"]\n"
    )
}

/// A folder whose receiver is at this address.
fn world(address: SocketAddr, contract: &str, more: &str) -> World {
    let url = format!("http://{address}");
    let world = World::configured(&configuration(&url, contract, more));
    world.write("token", format!("{SECRET}\n"));
    world.migrated()
}

/// Waits until so many attempts of an operation have ended.
#[track_caller]
fn until_ended(world: &World, key: &str, number: i64) {
    until(&format!("{number} attempts that have ended"), || {
        let sql = "SELECT count(finished_at) FROM handoff_attempts WHERE operation_key = ?1";
        (world.value::<i64>(sql, [key]) >= number).then_some(())
    });
}

/// A column of an operation's attempt.
fn attempt<T: handoff::rusqlite::types::FromSql>(
    world: &World,
    key: &str,
    number: i64,
    column: &str,
) -> T {
    let sql =
        format!("SELECT {column} FROM handoff_attempts WHERE operation_key = ?1 AND number = ?2");
    world.value(&sql, (key, number))
}

/// Waits until an operation is blocked; gives the reason.
#[track_caller]
fn why_blocked(world: &World, key: &str) -> String {
    world.until_state(key, "blocked");
    world.value("SELECT blocked_reason FROM handoff_outbox WHERE operation_key = ?1", [key])
}

#[test]
fn what_the_receiver_creates_is_sent_with_its_receipt_and_status() {
    let server = Server::that([answer("201 Created", "", r#"{"id": 4711}"#)]);
    let world = world(server.address, KEYED, "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    let remote: String =
        world.value("SELECT remote_id FROM handoff_outbox WHERE operation_key = ?1", [&key]);
    assert_eq!(remote, "4711");
    assert_eq!(attempt::<i64>(&world, &key, 1, "http_status"), 201);
    assert!(attempt::<bool>(&world, &key, 1, "request_sent"));
    let [request] = &server.seen()[..] else { panic!("one request") };
    assert!(request.starts_with("POST /api/tasks/case-104 HTTP/1.1\r\n"), "{request}");
    let lower = request.to_ascii_lowercase();
    assert!(lower.contains(&format!("\r\nauthorization: bearer {SECRET}\r\n")), "{request}");
    assert!(lower.contains(&format!("\r\nidempotency-key: {key}\r\n")), "{request}");
    let body = format!(r#"{{"for":["{key}"],"title":"Call about case-104"}}"#);
    assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
}

#[test]
fn a_lost_reply_is_repeated_with_the_same_bytes_where_the_receiver_knows_the_key() {
    let server = Server::that([Then::Close, answer("201 Created", "", r#"{"id": "T-1"}"#)]);
    let world = world(server.address, KEYED, "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "sent");
    assert_eq!(attempt::<String>(&world, &key, 1, "outcome"), "unknown");
    assert_eq!(attempt::<String>(&world, &key, 1, "error_code"), "reply_lost");
    assert!(attempt::<bool>(&world, &key, 1, "request_sent"));
    let [first, second] = &server.seen()[..] else { panic!("two requests") };
    assert_eq!(first, second);
}

#[test]
fn a_lost_reply_is_left_to_a_person_where_the_receiver_promises_nothing() {
    let server = Server::that([Then::Close]);
    let world = world(server.address, "mode = \"none\"", "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    assert_eq!(why_blocked(&world, &key), "ambiguous");
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_refused_connection_is_tried_again_and_leaves_no_doubt() {
    let address = {
        let gone = TcpListener::bind("127.0.0.1:0").expect("a socket");
        gone.local_addr().expect("an address")
    };
    let world = world(address, "mode = \"none\"", "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    until_ended(&world, &key, 2);
    assert_eq!(attempt::<String>(&world, &key, 1, "outcome"), "not_taken");
    assert_eq!(attempt::<String>(&world, &key, 1, "error_code"), "connection_refused");
    assert!(!attempt::<bool>(&world, &key, 1, "request_sent"));
    let effect: String =
        world.value("SELECT effect FROM handoff_outbox WHERE operation_key = ?1", [&key]);
    assert_eq!(effect, "none");
}

#[test]
fn the_receivers_wish_to_be_left_alone_is_kept() {
    let server = Server::that([answer("429 Too Many Requests", "Retry-After: 3000\r\n", "{}")]);
    let world = world(server.address, "mode = \"none\"", "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    until("the outcome of the first attempt", || {
        let sql = "SELECT count(*) FROM handoff_attempts WHERE outcome = 'not_taken'";
        (world.value::<i64>(sql, []) == 1).then_some(())
    });
    let sql = "SELECT due_at - finished_at
               FROM handoff_outbox JOIN handoff_attempts USING (operation_key)
               WHERE operation_key = ?1";
    let wait: i64 = world.value(sql, [&key]);
    assert!(wait > 2_990_000, "waits {wait} ms");
    assert_eq!(attempt::<i64>(&world, &key, 1, "http_status"), 429);
}

#[test]
fn an_operation_that_the_credential_may_not_make_blocks_with_that_reason() {
    let body = format!(r#"{{"error": "the token {SECRET} is revoked"}}"#);
    let server = Server::that([answer("403 Forbidden", "", &body)]);
    let world = world(server.address, KEYED, "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    assert_eq!(why_blocked(&world, &key), "unauthorised");
    let evidence: String = attempt(&world, &key, 1, "evidence");
    assert!(evidence.contains("the token [secret] is revoked"), "{evidence}");
}

#[test]
fn no_redirect_is_followed() {
    let elsewhere = Server::that([answer("200 OK", "", r#"{"id": 1}"#)]);
    let location = format!("Location: http://user:pass@{}/new?token=x\r\n", elsewhere.address);
    let server = Server::that([answer("308 Permanent Redirect", &location, "")]);
    let world = world(server.address, KEYED, "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "blocked");
    assert_eq!(elsewhere.seen(), Vec::<String>::new());
    let evidence: String = attempt(&world, &key, 1, "evidence");
    let shown = format!("it points to http://{}/new", elsewhere.address);
    assert!(evidence.contains(&shown) && !evidence.contains("pass"), "{evidence}");
}

#[test]
fn an_answer_without_end_is_cut_and_proves_nothing() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"id\": 1, \"x\": \"";
    let server = Server::that([Then::SayForEver(head.to_owned())]);
    let world = world(server.address, "mode = \"none\"", "");
    let _daemon = world.serving();
    let key = world.record("case-104");
    world.until_state(&key, "blocked");
    assert_eq!(attempt::<String>(&world, &key, 1, "outcome"), "unknown");
    assert_eq!(attempt::<String>(&world, &key, 1, "error_code"), "answer_cut");
}

#[test]
fn a_template_that_was_changed_after_a_lost_reply_makes_no_second_request() {
    let server = Server::that([Then::Hold]);
    let world = world(server.address, KEYED, "");
    let mut daemon = world.serving();
    let key = world.record("case-104");
    until("the request", || (server.seen().len() == 1).then_some(()));
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let file = std::fs::read_to_string(world.path("handoff.toml")).expect("a configuration");
    world.write("handoff.toml", file.replace("\"title\":", "\"subject\":"));
    let _daemon = world.serving();
    assert_eq!(why_blocked(&world, &key), "window_closed");
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_request_that_a_kill_interrupted_is_repeated_byte_for_byte() {
    let server = Server::that([Then::Hold, answer("200 OK", "", r#"{"id": 1}"#)]);
    let world = world(server.address, KEYED, "");
    let mut daemon = world.serving();
    let key = world.record("case-104");
    until("the request", || (server.seen().len() == 1).then_some(()));
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let _daemon = world.serving();
    world.until_state(&key, "sent");
    let [first, second] = &server.seen()[..] else { panic!("two requests") };
    assert_eq!(first, second);
}

#[test]
fn the_secret_appears_nowhere() {
    let echo = format!("X-Echo: {SECRET}\r\n");
    let body = format!(r#"{{"id": "{SECRET}", "error": "Bearer {SECRET} is not known"}}"#);
    let server = Server::that([
        answer("200 OK", &echo, &body),
        answer("422 Unprocessable Content", &echo, &body),
        Then::Say(format!("HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n")),
        answer("308 Permanent Redirect", &format!("Location: /{SECRET}/\r\n"), ""),
    ]);
    let world = world(server.address, "mode = \"none\"", "");
    let daemon = world.daemon_with(&["--set", "log.level=trace"]);
    daemon.event("started");
    for number in 1..=4 {
        world.record(&format!("case-{number}"));
        until("the outcome", || {
            let sql = "SELECT count(finished_at) FROM handoff_attempts";
            (world.value::<i64>(sql, []) == number).then_some(())
        });
    }
    let outcomes = "SELECT group_concat(outcome || ' ' || evidence, char(10))
                    FROM (SELECT * FROM handoff_attempts ORDER BY operation_key)";
    let evidence: String = world.value(outcomes, []);
    assert!(evidence.contains("rejected status 422; body:"), "{evidence}");
    assert_eq!(evidence.matches("[secret]").count(), 3, "{evidence}");
    let lines = daemon.stop().join("\n");
    assert!(!lines.contains(SECRET), "{lines}");
    for file in std::fs::read_dir(world.path("")).expect("the folder") {
        let file = file.expect("a file").path();
        let bytes = std::fs::read(&file).expect("a file of the test");
        let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert_eq!(found, file.ends_with("token"), "{}", file.display());
    }
    for arguments in
        [&["check", "--origin"][..], &["list"], &["show", "harbor:create-followup:v1:case-2"]]
    {
        let done = world.run(arguments);
        assert!(!done.stdout.contains(SECRET) && !done.stderr.contains(SECRET), "{done:?}");
    }
}

#[test]
fn a_secret_that_cannot_be_read_stops_the_start_and_says_where_it_should_be() {
    let server = Server::that([Then::Close]);
    let world = world(server.address, KEYED, "");
    std::fs::remove_file(world.path("token")).expect("a file of the test");
    let mut daemon = world.daemon();
    let lines = daemon.exits(78).join("\n");
    assert!(lines.contains("the secret in the file token cannot be read"), "{lines}");
}

#[test]
fn a_request_can_be_looked_at_without_being_sent_and_without_its_secret() {
    let server = Server::that([answer("201 Created", "", r#"{"id": 1}"#)]);
    let world = world(server.address, KEYED, "");
    let key = world.record("case-104");
    std::fs::remove_file(world.path("token")).expect("a file of the test");
    let shown = world.run(&["--json", "receiver", "render", &key]).ok().json();
    assert_eq!(server.seen(), Vec::<String>::new());
    world.write("token", SECRET);
    let _daemon = world.serving();
    world.until_state(&key, "sent");
    let [request] = &server.seen()[..] else { panic!("one request") };
    let (head, body) = request.split_once("\r\n\r\n").expect("a head and a body");
    assert_eq!(shown["body"], body);
    assert_eq!(shown["url"], format!("http://{}/api/tasks/case-104", server.address));
    let headers = shown["headers"].as_array().expect("headers");
    assert!(headers.len() >= 8, "{headers:?}");
    for header in headers {
        let [name, value] = [0, 1].map(|at| header[at].as_str().expect("a text"));
        let sent = value.replace("[secret]", SECRET);
        assert!(head.contains(&format!("\r\n{name}: {sent}")), "{name} in {head}");
    }
    let text = world.run(&["receiver", "render", &key]).ok().stdout;
    assert!(text.starts_with("POST http://") && text.contains("\n\n{\"for\":["), "{text}");
}
