//! A request as the server has seen it, and where its key stands.

use super::records::Effect;
use std::time::Duration;

/// What the server knows of one request. It grows while the request comes in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its number, from 1, in the order of first bytes.
    pub number: u64,
    /// When its first byte came, counted from the start of the server.
    pub at: Duration,
    /// The number of its connection, from 1.
    pub connection: u64,
    /// The how manyth request on its connection it is, from 1.
    pub turn: u64,
    /// Its method; empty until the head has been read.
    pub method: String,
    /// Its target, as it was sent.
    pub target: String,
    /// Its headers, in their order, with their names as they were sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its head as it was sent, byte by byte.
    pub head: Vec<u8>,
    /// Its body as far as it was read, without the framing of chunks.
    pub body: Vec<u8>,
    /// Whether the whole body was received.
    pub whole: bool,
    /// The key that was found in it.
    pub key: Option<String>,
    /// What the CRM did; nothing yet, or nothing at all, if absent.
    pub effect: Option<Effect>,
    /// How many bytes of the answer were written.
    pub answered: u64,
    /// Whether the server has done with it.
    pub finished: bool,
}

impl Request {
    /// Whether its connection had carried another request before.
    #[must_use]
    pub fn reused(&self) -> bool {
        self.turn > 1
    }

    /// The first header of this name, whatever its case, as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

pub(super) fn header<'a>(headers: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a str> {
    let (_, value) = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(value).ok()
}

/// Where the operation's key stands in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAt {
    /// In the header of this name.
    Header(String),
    /// In the JSON of the body, at this pointer (RFC 6901).
    Pointer(String),
    /// In the path, in the segment of this number, from 1.
    Segment(usize),
    /// In the parameter of this name of the query.
    Query(String),
}

impl KeyAt {
    pub(super) fn is_in_the_head(&self) -> bool {
        !matches!(self, Self::Pointer(_))
    }

    pub(super) fn find(&self, request: &Request) -> Option<String> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match self {
            Self::Header(name) => request.header(name).map(str::to_owned),
            Self::Pointer(pointer) => {
                let body: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
                Some(body.pointer(pointer)?.as_str()?.to_owned())
            }
            Self::Segment(number) => {
                let segment = path.split('/').nth(*number)?;
                (!segment.is_empty()).then(|| decoded(segment))
            }
            Self::Query(name) => {
                let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                let mut pairs = pairs.map(|(name, value)| (decoded(name), value));
                let (_, value) = pairs.find(|(other, _)| other == name)?;
                Some(decoded(&value.replace('+', " ")))
            }
        }
    }
}

/// Text without percent-encoding; what is none stays as it is.
fn decoded(text: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (bytes, mut at, mut plain) = (text.as_bytes(), 0, Vec::new());
    while let Some(&byte) = bytes.get(at) {
        let pair = (byte == b'%').then(|| digit(bytes.get(at + 1)).zip(digit(bytes.get(at + 2))));
        if let Some((high, low)) = pair.flatten() {
            plain.push(u8::try_from(high * 16 + low).unwrap_or(byte));
            at += 3;
        } else {
            plain.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_where_it_is_said_to_stand() {
        let request = Request {
            target: "/v1/tasks/a%3Ab?external_id=x+y%zz".to_owned(),
            headers: vec![("Idempotency-Key".to_owned(), b"k".to_vec())],
            body: br#"{"a":{"key":"p"},"number":1}"#.to_vec(),
            ..Request::default()
        };
        let found = |at: KeyAt| at.find(&request);
        assert_eq!(found(KeyAt::Header("idempotency-key".to_owned())).as_deref(), Some("k"));
        assert_eq!(found(KeyAt::Pointer("/a/key".to_owned())).as_deref(), Some("p"));
        assert_eq!(found(KeyAt::Pointer("/number".to_owned())), None);
        assert_eq!(found(KeyAt::Segment(3)).as_deref(), Some("a:b"));
        assert_eq!(found(KeyAt::Segment(4)), None);
        assert_eq!(found(KeyAt::Query("external_id".to_owned())).as_deref(), Some("x y%zz"));
        assert_eq!(found(KeyAt::Query("other".to_owned())), None);
    }
}
