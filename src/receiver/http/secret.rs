//! Secrets: named by reference, read at the start, never shown.

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::fmt;
use std::path::PathBuf;

/// Shorter ones could not be hidden without blotting out every text.
const SECRET_BYTES_MIN: usize = 4;
/// Longest secret that is read, in bytes.
const SECRET_BYTES_MAX: usize = 16 * 1024;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// In a file, without the line feed at its end.
    File(PathBuf),
    /// In an environment variable.
    Environment(String),
}

/// Who we are to the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`
    Bearer(Reference),
    /// `Authorization: Basic …`
    Basic {
        /// The user's name, no secret.
        user: String,
        /// The password.
        password: Reference,
    },
    /// A header of the receiver's own.
    Header {
        /// Its name.
        name: HeaderName,
        /// Its value.
        value: Reference,
    },
}

/// A secret could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the secret in {place} {why}")]
pub struct SecretError {
    place: String,
    why: String,
}

/// The header that proves who we are, and what must never be shown.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    /// The secret in each form that it is sent in.
    pub(super) hidden: Vec<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}: [hidden])", self.name)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
        }
    }
}

impl Reference {
    fn read(&self) -> Result<String, SecretError> {
        let failed = |why: String| SecretError { place: self.to_string(), why };
        let text = match self {
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|error| failed(format!("cannot be read: {error}")))?,
            Self::Environment(name) => {
                std::env::var(name).map_err(|_| failed("is not set, or is no text".to_owned()))?
            }
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&text.len()) {
            let range = format!("{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes");
            return Err(failed(format!("must have {range}")));
        }
        Ok(text.to_owned())
    }

    fn header(&self, text: &str) -> Result<HeaderValue, SecretError> {
        let why = "holds what no header can: control characters, or letters beyond ASCII";
        let mut value = HeaderValue::from_str(text)
            .map_err(|_| SecretError { place: self.to_string(), why: why.to_owned() })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Auth {
    /// What makes it the same account as far as we can tell; no secret.
    pub fn identity(&self) -> String {
        match self {
            Self::Bearer(from) => format!("bearer {from}"),
            Self::Basic { user, password } => format!("basic {user} {password}"),
            Self::Header { name, value } => format!("{name} {value}"),
        }
    }

    /// The header, with a word in place of the secret.
    pub(super) fn shown(&self) -> (HeaderName, &'static str) {
        match self {
            Self::Bearer(_) => (AUTHORIZATION, "Bearer [secret]"),
            Self::Basic { .. } => (AUTHORIZATION, "Basic [secret]"),
            Self::Header { name, .. } => (name.clone(), "[secret]"),
        }
    }

    /// Reads the secret.
    pub(super) fn read(&self) -> Result<Credential, SecretError> {
        match self {
            Self::Bearer(from) => {
                let secret = from.read()?;
                let value = from.header(&format!("Bearer {secret}"))?;
                Ok(Credential { name: AUTHORIZATION, value, hidden: vec![secret] })
            }
            Self::Basic { user, password } => {
                use base64::Engine as _;
                let secret = password.read()?;
                let both = format!("{user}:{secret}");
                let encoded = base64::engine::general_purpose::STANDARD.encode(both);
                let value = password.header(&format!("Basic {encoded}"))?;
                Ok(Credential { name: AUTHORIZATION, value, hidden: vec![encoded, secret] })
            }
            Self::Header { name, value } => {
                let secret = value.read()?;
                let header = value.header(&secret)?;
                Ok(Credential { name: name.clone(), value: header, hidden: vec![secret] })
            }
        }
    }
}
