//! The bytes of one connection: heads and bodies of requests, as they come in.

use super::course::{Pace, Pause};
use super::request::header;
use super::tls::{Stream, Tls};
use std::io;
use tokio::net::TcpStream;

/// The longest head that is read.
const HEAD_MAX: usize = 256 * 1024;
/// The most headers that are read.
const HEADERS_MAX: usize = 1024;
/// The longest line between chunks.
const LINE_MAX: usize = 8 * 1024;
/// How many bytes are read at a time.
const PIECE: usize = 64 * 1024;

/// One connection, and what has come over it and was not used yet.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    buffer: Vec<u8>,
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// As it was sent.
    pub(super) bytes: Vec<u8>,
    pub(super) framing: Framing,
    /// Whether the client keeps the connection open.
    pub(super) stays: bool,
    /// Whether it waits to be told to send the body.
    pub(super) waits: bool,
}

/// How the end of a request's body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

/// A request cannot be read on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It is no HTTP.
    Malformed,
    /// The client has closed, or reset.
    Gone,
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Self {
        // An answer goes out when it is written; where that cannot be set, it is late.
        stream.set_nodelay(true).ok();
        Self { stream: Stream::Plain(stream), buffer: Vec::new() }
    }

    /// Goes on under TLS.
    pub(super) async fn shake_hands(&mut self, tls: &Tls) -> Result<(), Broken> {
        self.stream.shake_hands(tls).await?;
        Ok(())
    }

    /// Waits for the first byte of a request without reading it; under TLS the first
    /// piece has to be read.
    pub(super) async fn arrival(&mut self) -> Result<(), Broken> {
        if !self.buffer.is_empty() {
            return Ok(());
        }
        match &self.stream {
            Stream::Plain(stream) if stream.peek(&mut [0]).await? == 0 => Err(Broken::Gone),
            Stream::Plain(_) => Ok(()),
            Stream::Tls(_) | Stream::Gone => self.more(PIECE).await,
        }
    }

    /// Waits for the end of a pause. What comes meanwhile is kept, where it has to be
    /// read in order to see the end.
    pub(super) async fn pause(&mut self, pause: &Pause) {
        match pause {
            Pause::None => {}
            Pause::For(duration) => tokio::time::sleep(*duration).await,
            Pause::Until(gate) => gate.passed().await,
            Pause::ClientLeaves => while self.more(PIECE).await.is_ok() {},
        }
    }

    /// Reads the head of a request.
    pub(super) async fn head(&mut self) -> Result<Head, Broken> {
        loop {
            if let Some(head) = parse(&self.buffer)? {
                self.buffer.drain(..head.bytes.len());
                return Ok(head);
            }
            if self.buffer.len() >= HEAD_MAX {
                return Err(Broken::Malformed);
            }
            self.more(PIECE).await?;
        }
    }

    /// Reads some more, at most so much. The end of the stream is an error.
    async fn more(&mut self, most: usize) -> Result<(), Broken> {
        let mut piece = vec![0; most.clamp(1, PIECE)];
        let length = self.stream.read(&mut piece).await?;
        if length == 0 {
            return Err(Broken::Gone);
        }
        self.buffer.extend(piece.iter().take(length));
        Ok(())
    }

    /// Takes what has come, at most so much; waits if that is nothing.
    async fn take(&mut self, most: usize) -> Result<Vec<u8>, Broken> {
        if self.buffer.is_empty() {
            self.more(most).await?;
        }
        let length = self.buffer.len().min(most);
        Ok(self.buffer.drain(..length).collect())
    }

    async fn line(&mut self) -> Result<String, Broken> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8(line).map_err(|_| Broken::Malformed)?;
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() > LINE_MAX {
                return Err(Broken::Malformed);
            }
            self.more(PIECE).await?;
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.stream.write(bytes).await?;
        Ok(())
    }

    /// Says that no more comes, and waits until the client says so too: what it still
    /// sends is not met by a reset.
    pub(super) async fn close(mut self) {
        if self.stream.shutdown().await.is_ok() {
            self.buffer.clear();
            let mut piece = vec![0; PIECE];
            while self.stream.read(&mut piece).await.is_ok_and(|length| length > 0) {}
        }
    }

    pub(super) fn reset(self) {
        // Where this cannot be set, the stream is closed, which is all that is left.
        self.stream.forget().ok();
    }
}

/// Reads the body of one request.
#[derive(Debug)]
pub(super) struct BodyReader {
    framing: Framing,
    /// What is left of the body, or of the current chunk.
    left: u64,
    chunks: u64,
    ended: bool,
}

impl BodyReader {
    pub(super) fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { framing, left, chunks: 0, ended: framing == Framing::Length(0) }
    }

    /// Whether the whole body was read.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// The next piece, at most so long; an empty one if the body ended here.
    pub(super) async fn next(&mut self, link: &mut Link, most: usize) -> Result<Vec<u8>, Broken> {
        if self.ended {
            return Ok(Vec::new());
        }
        if self.framing == Framing::Chunked && self.left == 0 {
            if self.chunks > 0 && !link.line().await?.is_empty() {
                return Err(Broken::Malformed);
            }
            let line = link.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let digits = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
            let size = digits.then(|| u64::from_str_radix(size, 16).ok()).flatten();
            self.left = size.ok_or(Broken::Malformed)?;
            self.chunks += 1;
            if self.left == 0 {
                while !link.line().await?.is_empty() {}
                self.ended = true;
                return Ok(Vec::new());
            }
        }
        let most = most.max(1).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let piece = link.take(most).await?;
        self.left -= piece.len() as u64;
        self.ended = self.left == 0 && self.framing != Framing::Chunked;
        Ok(piece)
    }

    /// How much is read at a time.
    pub(super) fn most(pace: Option<Pace>) -> usize {
        pace.map_or(PIECE, |pace| pace.bytes.max(1))
    }
}

/// The head at the beginning of these bytes; `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Broken> {
    let mut headers = vec![httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Broken::Malformed),
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(Broken::Malformed);
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let is_old = request.version == Some(0);
    let one = |header: &httparse::Header<'_>| (header.name.to_owned(), header.value.to_vec());
    let headers: Vec<_> = request.headers.iter().map(one).collect();
    let says = |name: &str, word: &str| {
        let words = header(&headers, name).unwrap_or_default().split(',');
        words.map(str::trim).any(|other| other.eq_ignore_ascii_case(word))
    };
    let framing = if says("transfer-encoding", "chunked") {
        Framing::Chunked
    } else {
        let length = header(&headers, "content-length").map(str::parse);
        Framing::Length(length.transpose().map_err(|_| Broken::Malformed)?.unwrap_or(0))
    };
    let stays = !says("connection", "close") && (!is_old || says("connection", "keep-alive"));
    let waits = says("expect", "100-continue");
    let bytes = bytes.get(..length).unwrap_or_default().to_vec();
    Ok(Some(Head { method, target, headers, bytes, framing, stays, waits }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_that_is_not_complete_is_waited_for() {
        let whole = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..39 {
            assert_eq!(parse(&whole[..end]), Ok(None), "{end}");
        }
        let head = parse(whole).unwrap().unwrap();
        assert_eq!((head.framing, head.stays, head.bytes.len()), (Framing::Length(3), true, 39));
    }

    #[test]
    fn a_length_that_is_none_is_malformed() {
        let head = |length: &str| {
            parse(format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n").as_bytes())
        };
        for length in ["-1", "x", "18446744073709551616", ""] {
            assert_eq!(head(length), Err(Broken::Malformed), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reading_of_a_head_panic(bytes: Vec<u8>, after: Vec<u8>) {
            parse(&bytes).ok();
            parse(&[b"POST / HTTP/1.1\r\n", bytes.as_slice(), b"\r\n\r\n", &after].concat()).ok();
        }
    }
}
