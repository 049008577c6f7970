//! Answers: of one status, in one framing, and those of a whole dialect.

use super::course::Pace;
use super::gzip;
use super::records::Effect;
use std::collections::BTreeMap;

/// An answer. `{id}`, `{key}` and `{content}` in its body and in the values of its
/// headers stand for the record's; a key is escaped for JSON in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    framing: Option<Framing>,
}

/// A body.
#[derive(Clone, Debug)]
enum Body {
    Bytes(Vec<u8>),
    Dripping(Vec<u8>, Pace),
    Endless(Vec<u8>),
    GzipOfZeros(u64),
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Eq for Body {}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By its length.
    Length,
    /// By a length that is not its own.
    Claims(u64),
    /// By chunks.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

impl Reply {
    /// An answer without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Bytes(Vec::new()), framing: None }
    }

    /// An answer with a JSON body, which is sent as it is written.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::status(status).header("content-type", "application/json").body(body)
    }

    /// With one header more.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Bytes(body.into());
        self
    }

    /// With this body, slowly.
    #[must_use]
    pub fn drips(mut self, body: impl Into<Vec<u8>>, pace: Pace) -> Self {
        self.body = Body::Dripping(body.into(), pace);
        self
    }

    /// With a body that is this, again and again, until the client leaves.
    #[must_use]
    pub fn endless(mut self, piece: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Endless(piece.into());
        self
    }

    /// With a body of so many zeros, packed by gzip.
    #[must_use]
    pub fn gzip_of_zeros(self, count: u64) -> Self {
        let mut packed = self.header("content-encoding", "gzip");
        packed.body = Body::GzipOfZeros(count);
        packed
    }

    /// With the end of the body told in this way. The default is its length, and
    /// chunks where that is not known.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = Some(framing);
        self
    }

    /// The same answer about this record.
    pub(super) fn filled(mut self, about: &About<'_>) -> Self {
        for (_, value) in &mut self.headers {
            *value = about.fill(value, str::to_owned).chars().filter(|c| !c.is_control()).collect();
        }
        if let Body::Bytes(bytes) | Body::Dripping(bytes, _) | Body::Endless(bytes) = &mut self.body
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            *bytes = about.fill(text, escaped).into_bytes();
        }
        self
    }

    /// What goes over the wire; `bodiless` is the answer to HEAD.
    pub(super) fn on_the_wire(self, bodiless: bool) -> Wire {
        let default = match &self.body {
            Body::Bytes(_) | Body::Dripping(..) => Framing::Length,
            Body::Endless(_) | Body::GzipOfZeros(_) => Framing::Chunked,
        };
        let framing = self.framing.unwrap_or(default);
        let may_have_one = !matches!(self.status, 100..200 | 204 | 304);
        let length = match &self.body {
            Body::Bytes(bytes) | Body::Dripping(bytes, _) => Some(bytes.len() as u64),
            Body::Endless(_) | Body::GzipOfZeros(_) => None,
        };
        let told = match framing {
            Framing::Length if may_have_one => length.map(|n| format!("content-length: {n}\r\n")),
            Framing::Claims(length) => Some(format!("content-length: {length}\r\n")),
            Framing::Chunked => Some("transfer-encoding: chunked\r\n".to_owned()),
            Framing::Length | Framing::UntilClose => None,
        };
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&told.unwrap_or_default());
        head.push_str("\r\n");
        let pace = if let Body::Dripping(_, pace) = &self.body { Some(*pace) } else { None };
        let body = if bodiless { Body::Bytes(Vec::new()) } else { self.body };
        let chunked = framing == Framing::Chunked && !bodiless;
        let closes = framing == Framing::UntilClose;
        Wire { pieces: Box::new(pieces(head, body, chunked)), pace, closes }
    }
}

/// An answer as bytes.
pub(super) struct Wire {
    /// The head, and then the body piece by piece.
    pub(super) pieces: Box<dyn Iterator<Item = Vec<u8>> + Send>,
    /// The time between two pieces.
    pub(super) pace: Option<Pace>,
    /// Whether the end of the connection is the end of the body.
    pub(super) closes: bool,
}

fn pieces(head: String, body: Body, chunked: bool) -> impl Iterator<Item = Vec<u8>> + Send {
    let body: Box<dyn Iterator<Item = Vec<u8>> + Send> = match body {
        Body::Bytes(bytes) if bytes.is_empty() => Box::new(std::iter::empty()),
        Body::Bytes(bytes) => Box::new(std::iter::once(bytes)),
        Body::Dripping(bytes, pace) => {
            let drops: Vec<Vec<u8>> = bytes.chunks(pace.bytes.max(1)).map(<[u8]>::to_vec).collect();
            Box::new(drops.into_iter())
        }
        Body::Endless(piece) if piece.is_empty() => Box::new(std::iter::empty()),
        Body::Endless(piece) => Box::new(std::iter::repeat(piece)),
        Body::GzipOfZeros(count) => Box::new(gzip::zeros(count)),
    };
    let framed = body.map(move |piece| {
        if !chunked {
            return piece;
        }
        [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat()
    });
    let last = chunked.then(|| b"0\r\n\r\n".to_vec());
    std::iter::once(head.into_bytes()).chain(framed).chain(last)
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        404 => "Not Found",
        409 => "Conflict",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}

/// The record that an answer is about.
#[derive(Debug, Default)]
pub(super) struct About<'a> {
    pub(super) id: Option<u64>,
    pub(super) key: &'a str,
    pub(super) content: &'a [u8],
}

impl About<'_> {
    /// One pass, so that nothing inside a value is taken for a placeholder.
    fn fill(&self, text: &str, quoted: impl Fn(&str) -> String) -> String {
        let id = self.id.map(|id| id.to_string()).unwrap_or_default();
        let content = String::from_utf8_lossy(self.content);
        let values =
            [("{id}", id), ("{key}", quoted(self.key)), ("{content}", content.into_owned())];
        let (mut filled, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            match values.iter().find(|(name, _)| from.starts_with(name)) {
                Some((name, value)) => {
                    filled.push_str(value);
                    rest = from.get(name.len()..).unwrap_or_default();
                }
                None => {
                    filled.push('{');
                    rest = from.get(1..).unwrap_or_default();
                }
            }
        }
        filled.push_str(rest);
        filled
    }
}

/// A text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inside.unwrap_or_default().to_owned()
}

/// What a CRM may have to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Saying {
    /// A record was made.
    Made,
    /// A record was overwritten.
    Updated,
    /// It had been done before: the first answer again.
    Replayed,
    /// The key is taken.
    Exists,
    /// The key was used with other content.
    Conflict,
    /// A look-up found this record.
    Found,
    /// A look-up found nothing, or the target is none of the CRM's.
    Absent,
    /// The CRM does not act now.
    Unavailable,
    /// The request cannot be read.
    Malformed,
}

impl Saying {
    pub(super) const fn of(effect: Effect) -> Self {
        match effect {
            Effect::Made(_) => Self::Made,
            Effect::Updated(_) => Self::Updated,
            Effect::Replayed(_) => Self::Replayed,
            Effect::Exists(_) => Self::Exists,
            Effect::Conflict(_) => Self::Conflict,
            Effect::Found(_) => Self::Found,
            Effect::Absent => Self::Absent,
        }
    }
}

/// How a CRM words what it has to say.
#[derive(Clone, Debug)]
pub struct Dialect(BTreeMap<Saying, Reply>);

impl Default for Dialect {
    fn default() -> Self {
        let record = r#"{"id":"{id}"}"#;
        let error = |name: &str| format!(r#"{{"error":"{name}"}}"#);
        Self(BTreeMap::from([
            (Saying::Made, Reply::json(201, record)),
            (Saying::Updated, Reply::json(200, record)),
            (Saying::Replayed, Reply::json(201, record).header("idempotent-replayed", "true")),
            (Saying::Exists, Reply::json(409, r#"{"error":"exists","id":"{id}"}"#)),
            (Saying::Conflict, Reply::json(422, error("conflict"))),
            (Saying::Found, Reply::json(200, r#"{"id":"{id}","key":"{key}"}"#)),
            (Saying::Absent, Reply::json(404, error("absent"))),
            (Saying::Unavailable, Reply::json(503, error("unavailable"))),
            (Saying::Malformed, Reply::json(400, error("malformed"))),
        ]))
    }
}

impl Dialect {
    /// The same, but for this.
    #[must_use]
    pub fn says(mut self, saying: Saying, reply: Reply) -> Self {
        self.0.insert(saying, reply);
        self
    }

    pub(super) fn reply(&self, saying: Saying) -> Reply {
        self.0.get(&saying).cloned().unwrap_or_else(|| Reply::status(500))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_one_pass() {
        let about = About { id: Some(7), key: "{content}\"", content: b"{\"a\":1}" };
        let reply = Reply::json(200, r#"{"id":{id},"k":"{key}","c":{content},"{x}":1}"#);
        let Body::Bytes(bytes) = reply.filled(&about).body else { panic!("bytes") };
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, r#"{"id":7,"k":"{content}\"","c":{"a":1},"{x}":1}"#);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["k"], "{content}\"");
    }

    #[test]
    fn a_header_cannot_be_broken_by_a_key() {
        let about = About { key: "a\r\nset-cookie: b", ..About::default() };
        let reply = Reply::status(204).header("location", "/{key}").filled(&about);
        assert_eq!(reply.headers, [("location".to_owned(), "/aset-cookie: b".to_owned())]);
    }
}
