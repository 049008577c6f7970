//! The request that an operation becomes: the same bytes on every attempt. Pure.

use super::template::{JsonTemplate, Template, TemplateError, Values, percent_encoded};
use crate::outbox::key::OperationKey;
use crate::text_enum::text_enum;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

text_enum! {
    /// How the operation key is written.
    pub enum KeyEncoding {
        /// As it is.
        Raw = "raw",
        /// In quotes, as the draft of the header's standard asks.
        Quoted = "quoted",
        /// SHA-256 of it, 64 digits.
        Sha256 = "sha256",
        /// The first half of that, in the form of a UUID (version 8).
        Uuid = "uuid",
    }
}

/// What is sent, with the values of an operation still to be put in.
#[derive(Clone, Debug)]
pub struct RequestTemplate {
    /// The method.
    pub method: Method,
    /// The path and the query, after the base URL.
    pub path: Template,
    /// Further headers.
    pub headers: Vec<(HeaderName, Template)>,
    /// The body.
    pub body: Body,
    /// The header that carries the operation key, if one does.
    pub idempotency_header: Option<HeaderName>,
    /// How the key is written there, and as `encoded_key`.
    pub key_encoding: KeyEncoding,
    /// The longest key that the receiver takes, in characters.
    pub key_max_length: usize,
}

/// The body of a request.
#[derive(Clone, Debug)]
pub enum Body {
    /// None at all.
    None,
    /// The approved payload as it is.
    Payload,
    /// JSON made from it.
    Json(JsonTemplate),
    /// Fields of a form, in their order.
    Form(Vec<(String, Template)>),
    /// Plain text.
    Text(Template),
}

/// A request without what differs between attempts: no host, no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub path: String,
    /// The headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
}

/// Why there is no request for an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A value is missing or does not fit.
    #[error("{part}: {error}")]
    Template {
        /// Of which part.
        part: String,
        /// Why.
        error: TemplateError,
    },
    /// The key does not fit, and a shorter one would not be the key.
    #[error("the key has {length} characters as {encoding}, the receiver takes {max}")]
    KeyTooLong {
        /// How it is written.
        encoding: KeyEncoding,
        /// Its length.
        length: usize,
        /// The longest that is taken.
        max: usize,
    },
    /// The path would not be one.
    #[error("the path must begin with a slash, and stand on one line in ASCII")]
    Path,
}

impl KeyEncoding {
    /// The key in this form.
    pub fn encode(self, key: &str) -> String {
        let digits = || hex::encode(Sha256::digest(key.as_bytes()));
        match self {
            Self::Raw => key.to_owned(),
            Self::Quoted => format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")),
            Self::Sha256 => digits(),
            Self::Uuid => {
                let d = digits();
                format!("{}-{}-8{}-a{}-{}", &d[..8], &d[8..12], &d[13..16], &d[17..20], &d[20..32])
            }
        }
    }
}

impl RequestTemplate {
    /// A text that differs wherever the request may: part of its fingerprint.
    pub fn form(&self) -> String {
        let mut parts = vec![self.method.to_string(), self.path.to_string()];
        parts.extend(self.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        parts.push(match &self.body {
            Body::None => "none".to_owned(),
            Body::Payload => "payload".to_owned(),
            Body::Json(json) => format!("json {}", json.source()),
            Body::Form(fields) => {
                let field = |(name, value): &(String, Template)| format!("{name:?}={value}");
                format!("form {}", fields.iter().map(field).collect::<Vec<_>>().join("\u{1f}"))
            }
            Body::Text(text) => format!("text {text}"),
        });
        let header = self.idempotency_header.as_ref().map_or("", HeaderName::as_str);
        parts.push(format!("{header} {}", self.key_encoding));
        parts.join("\u{1e}")
    }

    /// The request for an operation.
    ///
    /// # Errors
    ///
    /// [`RenderError`] says what does not fit; nothing was sent then.
    pub fn render(&self, key: &OperationKey, payload: &str) -> Result<Rendered, RenderError> {
        let encoded = self.key_encoding.encode(key.as_str());
        if encoded.len() > self.key_max_length {
            return Err(RenderError::KeyTooLong {
                encoding: self.key_encoding,
                length: encoded.len(),
                max: self.key_max_length,
            });
        }
        let values = Values::of(key, &encoded, payload).map_err(|error| of("payload", error))?;
        let path = self.path.render(&values).map_err(|error| of("path", error))?;
        if !path.starts_with('/') || path.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
            return Err(RenderError::Path);
        }
        let (body, content_type) = self.body.render(&values, payload)?;
        let mut headers = Vec::new();
        for (name, template) in &self.headers {
            let part = || format!("header {name}");
            let text = template.render(&values).map_err(|error| of(&part(), error))?;
            headers.push((name.clone(), value_of(&text, &part())?));
        }
        let own_type = self.headers.iter().any(|(name, _)| *name == CONTENT_TYPE);
        if let (Some(kind), false) = (content_type, own_type) {
            headers.push((CONTENT_TYPE, HeaderValue::from_static(kind)));
        }
        if let Some(name) = &self.idempotency_header {
            headers.push((name.clone(), value_of(&encoded, "the key")?));
        }
        Ok(Rendered { method: self.method.clone(), path, headers, body })
    }
}

impl Body {
    fn render(
        &self,
        values: &Values,
        payload: &str,
    ) -> Result<(Option<Vec<u8>>, Option<&'static str>), RenderError> {
        let wrong = |error| of("body", error);
        Ok(match self {
            Self::None => (None, None),
            Self::Payload => (Some(payload.into()), Some("application/json")),
            Self::Json(json) => {
                let text = json.render(values).map_err(wrong)?.to_string();
                (Some(text.into_bytes()), Some("application/json"))
            }
            Self::Form(fields) => {
                let field = |(name, value): &(String, Template)| {
                    Ok(format!("{}={}", percent_encoded(name), value.render(values)?))
                };
                let fields = fields.iter().map(field).collect::<Result<Vec<_>, _>>();
                let text = fields.map_err(wrong)?.join("&");
                (Some(text.into_bytes()), Some("application/x-www-form-urlencoded"))
            }
            Self::Text(text) => {
                let text = text.render(values).map_err(wrong)?;
                (Some(text.into_bytes()), Some("text/plain; charset=utf-8"))
            }
        })
    }
}

fn of(part: &str, error: TemplateError) -> RenderError {
    RenderError::Template { part: part.to_owned(), error }
}

/// A header's value, which ends where its line ends.
fn value_of(text: &str, part: &str) -> Result<HeaderValue, RenderError> {
    HeaderValue::from_str(text).map_err(|_| of(part, TemplateError::unfit()))
}
