//! Answers that are not what they should be.

use super::always;
use super::client::Client;
use handoff::scripted::{Answer, Course, End, Framing, Pace, Reply, Server};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

fn says(reply: Reply) -> Server {
    always(Course::acts_and_says(reply).end(End::Close))
}

fn told(server: &Server) -> String {
    Client::to(server).post("a", "{}").text()
}

#[test]
fn an_answer_has_the_status_the_headers_and_the_body_of_the_script() {
    let reply = Reply::json(429, "{\"wait\":\"{key}\"}").header("Retry-After", "7");
    assert_eq!(
        told(&says(reply)),
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nRetry-After: 7\r\n\
         content-length: 12\r\n\r\n{\"wait\":\"a\"}"
    );
    assert_eq!(told(&says(Reply::status(204))), "HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn an_answer_can_be_bytes_of_any_kind() {
    let bytes = b"HTTP/1.1 20\xff\0half".to_vec();
    let server = always(Course::default().answer(Answer::Raw(bytes.clone())).end(End::Reset));
    let mut client = Client::to(&server);
    assert_eq!(client.post("a", "{}").bytes(bytes.len()), bytes);
    assert_eq!(client.rest(), (Vec::new(), true));
    assert_eq!(server.records().len(), 1);
}

#[test]
fn an_answer_can_be_cut_in_its_head_and_in_its_body() {
    let whole = told(&says(Reply::json(201, "{\"id\":\"{id}\"}")));
    assert!(whole.ends_with("content-length: 10\r\n\r\n{\"id\":\"1\"}"));
    for length in [0, 20, whole.len() - 10, whole.len() - 1] {
        let course = Course::acts_and_says(Reply::json(201, "{\"id\":\"{id}\"}"));
        let server = always(course.cut_after(length));
        assert_eq!(told(&server), whole[..length], "{length}");
        assert_eq!(server.requests()[0].answered, length as u64);
        assert_eq!(server.records().len(), 1);
    }
}

#[test]
fn the_end_of_a_body_can_be_told_in_each_way_and_wrongly() {
    let told = |framing| told(&says(Reply::status(200).body("abc").framing(framing)));
    let head = "HTTP/1.1 200 OK\r\n";
    assert_eq!(told(Framing::Length), format!("{head}content-length: 3\r\n\r\nabc"));
    assert_eq!(told(Framing::Claims(9)), format!("{head}content-length: 9\r\n\r\nabc"));
    assert_eq!(told(Framing::Claims(1)), format!("{head}content-length: 1\r\n\r\nabc"));
    assert_eq!(told(Framing::UntilClose), format!("{head}\r\nabc"));
    let chunks = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(told(Framing::Chunked), format!("{head}{chunks}"));
}

#[test]
fn an_answer_can_drip() {
    let pace = Pace { bytes: 2, every: Duration::from_millis(5) };
    let start = tokio::time::Instant::now();
    let server = says(Reply::status(200).drips("abcdef", pace));
    assert!(told(&server).ends_with("\r\n\r\nabcdef"));
    assert!(start.elapsed() >= 3 * pace.every, "one after the head, and two between three drops");
}

#[test]
fn an_answer_can_have_no_end_until_the_client_leaves() {
    let server = says(Reply::status(200).endless("zero"));
    let mut client = Client::to(&server);
    let bytes = client.post("a", "{}").bytes(1_000_000);
    assert!(bytes.ends_with(b"zero") || bytes.windows(9).any(|some| some == b"4\r\nzero\r\n"));
    assert!(!server.requests()[0].finished);
    drop(client);
    let requests = server.wait_until(|all| all[0].finished).expect("it ends");
    assert!(requests[0].answered >= 1_000_000);
}

#[test]
fn a_small_gzip_becomes_as_many_zeros_as_it_says() {
    for count in [0, 1, 2, 258, 259, 260, 1_000_000] {
        let reply = Reply::status(200).gzip_of_zeros(count).framing(Framing::UntilClose);
        let server = says(reply);
        let mut client = Client::to(&server);
        assert!(client.post("a", "{}").answer().head.contains("content-encoding: gzip"));
        let packed = client.rest().0;
        assert!(packed.len() < 300 + usize::try_from(count).expect("small") / 150);
        assert!(unpacked(packed) == vec![0; usize::try_from(count).expect("small")], "{count}");
    }
}

/// Unpacks by a program of another make, which checks the checksum too.
fn unpacked(packed: Vec<u8>) -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    let mut gzip =
        gzip.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
    let mut stdin = gzip.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(&packed));
    let output = gzip.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads all");
    assert!(output.status.success());
    output.stdout
}

#[test]
fn an_answer_to_head_has_no_body() {
    let server = always(Course::default());
    let mut client = Client::to(&server);
    client.send("HEAD / HTTP/1.1\r\nconnection: close\r\n\r\n");
    let text = client.text();
    assert!(text.contains("content-length: 18\r\n") && text.ends_with("\r\n\r\n"), "{text}");
}
