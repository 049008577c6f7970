//! A client that knows sockets and bytes alone.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// One connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    /// What has come and was not used yet.
    buffer: Vec<u8>,
}

/// An answer whose body has the length that it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn to(server: &handoff::scripted::Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes; a connection that was reset shows when it is read.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).ok();
        self
    }

    pub(crate) fn post(&mut self, key: &str, body: &str) -> &mut Self {
        self.send(post(key, body))
    }

    pub(crate) fn get(&mut self, target: &str) -> &mut Self {
        self.send(format!("GET {target} HTTP/1.1\r\n\r\n"))
    }

    pub(crate) fn no_more(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).expect("it is open");
        self
    }

    /// The next answer, a `100 Continue` too.
    pub(crate) fn answer(&mut self) -> Answer {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.more();
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).expect("text");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        while self.buffer.len() < length {
            self.more();
        }
        let body = String::from_utf8(self.buffer.drain(..length).collect()).expect("text");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        Answer { status, head, body }
    }

    fn more(&mut self) {
        let mut piece = [0; 4096];
        let length = self.stream.read(&mut piece).expect("the answer goes on");
        assert!(length > 0, "the answer ends early: {:?}", String::from_utf8_lossy(&self.buffer));
        self.buffer.extend(&piece[..length]);
    }

    /// All that comes until the end, and whether the end was a reset.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.buffer);
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => (bytes, false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => (bytes, true),
            Err(error) => panic!("it neither ends nor is reset: {error}"),
        }
    }

    /// Whether neither a byte nor an end has come.
    pub(crate) fn has_nothing(&mut self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket");
        let come = self.stream.peek(&mut [0]).map_err(|error| error.kind());
        self.stream.set_nonblocking(false).expect("a socket");
        come == Err(ErrorKind::WouldBlock)
    }

    /// All that comes until the end, as text.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8(self.rest().0).expect("text")
    }

    /// So many bytes of an answer that has no end.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            self.more();
        }
        self.buffer.drain(..count).collect()
    }
}

/// A request with a key.
pub(crate) fn post(key: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /tasks HTTP/1.1\r\nIdempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
