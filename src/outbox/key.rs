//! The operation key: one business act, the same on every attempt.

use std::fmt;
use std::str::FromStr;

/// Longest key, in bytes: what receivers with the tightest published limit (255) still take
/// with room for a revision.
pub const KEY_BYTES_MAX: usize = 200;
/// Longest namespace or type name, in characters.
pub const NAME_CHARS_MAX: usize = 40;
/// Longest subject of a type that sets no pattern of its own, in characters.
pub const SUBJECT_CHARS_MAX: usize = 80;

/// `namespace:type:vN:subject`, such as `harbor:create-followup:v1:case-104`.
///
/// The subject comes from identity that the application controls, never from
/// prose or chance. Keys are compared byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

/// Why a text is no operation key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not four parts.
    #[error(
        "operation key {key:?} must have four parts, namespace:type:vN:subject \
         (for example harbor:create-followup:v1:case-104)"
    )]
    Parts {
        /// The text as given, shortened.
        key: String,
    },
    /// One part breaks the grammar.
    #[error("{part} {value:?} must match {allowed}")]
    Part {
        /// Which part.
        part: &'static str,
        /// The part as given, shortened.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The whole is too long.
    #[error("operation key has {bytes} bytes, at most {KEY_BYTES_MAX} are allowed")]
    TooLong {
        /// Length as given.
        bytes: usize,
    },
}

impl OperationKey {
    /// Reads a key and checks its grammar.
    ///
    /// The subject may be any visible ASCII without `:`; its type narrows it,
    /// by default to letters, digits and hyphens ([`is_plain_subject`]).
    ///
    /// # Errors
    ///
    /// [`KeyError`] names the part that is wrong and what is allowed there.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        let parts: Vec<&str> = text.split(':').collect();
        let &[namespace, kind, version, subject] = parts.as_slice() else {
            return Err(KeyError::Parts { key: shorten(text) });
        };
        check_name("namespace", namespace)?;
        check_name("type", kind)?;
        if parse_version(version).is_none() {
            let allowed = "v1 to v999";
            return Err(KeyError::Part { part: "version", value: shorten(version), allowed });
        }
        if subject.is_empty() || !subject.bytes().all(|byte| byte.is_ascii_graphic()) {
            let allowed = "one or more visible ASCII characters without ':'";
            return Err(KeyError::Part { part: "subject", value: shorten(subject), allowed });
        }
        Ok(Self(text.to_owned()))
    }

    /// Puts a key together from its parts.
    ///
    /// # Errors
    ///
    /// As [`OperationKey::parse`].
    pub fn new(namespace: &str, kind: &str, version: u16, subject: &str) -> Result<Self, KeyError> {
        Self::parse(&format!("{namespace}:{kind}:v{version}:{subject}"))
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The business that the operation belongs to.
    pub fn namespace(&self) -> &str {
        self.part(0)
    }

    /// The name of the operation's type.
    pub fn kind(&self) -> &str {
        self.part(1)
    }

    /// The version of the type's meaning, 1 to 999.
    pub fn version(&self) -> u16 {
        parse_version(self.part(2)).unwrap_or_default()
    }

    /// What the operation is about, such as a case id.
    pub fn subject(&self) -> &str {
        self.part(3)
    }

    fn part(&self, index: usize) -> &str {
        self.0.split(':').nth(index).unwrap_or_default()
    }
}

/// Whether the text is a name as namespaces, types and receivers have: `[a-z][a-z0-9-]{0,39}`.
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether the text is a subject of a type without a pattern of its own: `[A-Za-z0-9-]{1,80}`.
pub fn is_plain_subject(text: &str) -> bool {
    (1..=SUBJECT_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn check_name(part: &'static str, text: &str) -> Result<(), KeyError> {
    if is_name(text) {
        return Ok(());
    }
    Err(KeyError::Part { part, value: shorten(text), allowed: "[a-z][a-z0-9-]{0,39}" })
}

fn parse_version(text: &str) -> Option<u16> {
    let digits = text.strip_prefix('v')?;
    if digits.len() > 3 || digits.starts_with('0') || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// The start of a text that may be long or hostile, for an error message.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for OperationKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::parse(text)
    }
}

impl serde::Serialize for OperationKey {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_gives_back_its_parts() {
        let key = OperationKey::parse("harbor:create-followup:v12:case-104").unwrap();
        assert_eq!(key.namespace(), "harbor");
        assert_eq!(key.kind(), "create-followup");
        assert_eq!(key.version(), 12);
        assert_eq!(key.subject(), "case-104");
    }

    #[test]
    fn a_text_outside_the_grammar_is_no_key() {
        let long = format!("harbor:create-followup:v1:{}", "x".repeat(200));
        for text in [
            "",
            "harbor",
            "harbor:create-followup:v1",
            "harbor:create-followup:v1:case:r2",
            "Harbor:create-followup:v1:c",
            "1harbor:create-followup:v1:c",
            "harbor::v1:c",
            "harbor:create_followup:v1:c",
            "harbor:create-followup:v0:c",
            "harbor:create-followup:v01:c",
            "harbor:create-followup:v1000:c",
            "harbor:create-followup:1:c",
            "harbor:create-followup:v+1:c",
            "harbor:create-followup:v1:",
            "harbor:create-followup:v1:a b",
            "harbor:create-followup:v1:a\n",
            "harbor:create-followup:v1:é",
            "harbor:create-followup:v1:a\u{200b}",
            long.as_str(),
        ] {
            assert!(OperationKey::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn look_alikes_of_a_plain_subject_are_refused() {
        for text in ["case/104", "case-104 ", "ｃase", "\u{212a}", "case\u{a0}1", "", "a:b"] {
            assert!(!is_plain_subject(text), "{text:?}");
        }
        assert!(is_plain_subject("case-104"));
        assert!(!is_plain_subject(&"x".repeat(81)));
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_a_clear_error(text in any::<String>()) {
            match OperationKey::parse(&text) {
                Ok(key) => prop_assert_eq!(key.as_str(), text),
                Err(error) => prop_assert!(error.to_string().len() < 1_000),
            }
        }
    }
}
