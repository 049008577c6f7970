//! The payload: a JSON object in canonical form, and the fingerprint that freezes it.

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt;

/// Largest payload, in bytes, as given and in canonical form.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting; serde_json's own limit.
const DEPTH_MAX: usize = 128;

/// A JSON object in the canonical form of RFC 8785. Never changes.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    object: Map<String, Value>,
    canonical: String,
}

/// SHA-256 of a payload's canonical bytes, in lower-case hex.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

/// Why a text is no payload.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// Not JSON, or JSON that cannot be kept faithfully.
    #[error("the payload cannot be read: {0}")]
    Syntax(#[source] serde_json::Error),
    /// Half of a surrogate pair, which stands for no character.
    #[error(
        "the payload has an unpaired surrogate (\\uD800 to \\uDFFF) at line {line} column {column}"
    )]
    Surrogate {
        /// Its line, from 1.
        line: usize,
        /// Its column, from 1.
        column: usize,
    },
    /// JSON, but no object.
    #[error("the payload must be a JSON object, not {found}")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// A number that a double cannot hold.
    #[error(
        "the number {number} would change its value when read as a double; \
         write it as a string"
    )]
    LossyNumber {
        /// As written, shortened.
        number: String,
    },
    /// Too many bytes.
    #[error("the payload has {bytes} bytes, at most {PAYLOAD_BYTES_MAX} are allowed")]
    TooLarge {
        /// Length found.
        bytes: usize,
    },
}

impl Payload {
    /// Reads a JSON object and brings it into canonical form.
    ///
    /// Nothing is normalised silently: Unicode stays as it is, byte for byte.
    ///
    /// # Errors
    ///
    /// [`PayloadError`] for anything but an object, duplicate names, numbers
    /// whose value a double would change, unpaired surrogates, NUL, and more
    /// than [`PAYLOAD_BYTES_MAX`] bytes.
    pub fn parse(text: &str) -> Result<Self, PayloadError> {
        Self::from_object(read_object(text)?)
    }

    /// Brings an object that is already in memory into canonical form.
    ///
    /// # Errors
    ///
    /// [`PayloadError::TooLarge`], or [`PayloadError::Syntax`] for what has no
    /// canonical form.
    pub fn from_object(object: Map<String, Value>) -> Result<Self, PayloadError> {
        let canonical =
            serde_json_canonicalizer::to_string(&object).map_err(PayloadError::Syntax)?;
        if canonical.len() > PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLarge { bytes: canonical.len() });
        }
        Ok(Self { object, canonical })
    }

    /// The canonical text: what is delivered and what the fingerprint covers.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// The canonical text alone.
    pub fn into_canonical(self) -> String {
        self.canonical
    }

    /// The object itself.
    pub fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.canonical)
    }
}

/// Reads a JSON object strictly, and leaves its form as it is.
pub(super) fn read_object(text: &str) -> Result<Map<String, Value>, PayloadError> {
    if text.len() > PAYLOAD_BYTES_MAX {
        return Err(PayloadError::TooLarge { bytes: text.len() });
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(unreadable)?;
    if let Some(number) = lossy_number(text) {
        return Err(PayloadError::LossyNumber { number });
    }
    match value {
        Value::Object(object) => Ok(object),
        other => Err(PayloadError::NotAnObject { found: kind_of(&other) }),
    }
}

/// serde_json has but a text for an unpaired surrogate.
fn unreadable(error: serde_json::Error) -> PayloadError {
    let text = error.to_string();
    let halves = ["lone leading surrogate", "unexpected end of hex escape"];
    if halves.iter().any(|half| text.starts_with(half)) {
        return PayloadError::Surrogate { line: error.line(), column: error.column() };
    }
    PayloadError::Syntax(error)
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.fingerprint())
    }
}

impl Fingerprint {
    /// The fingerprint of a text.
    pub fn of(text: &str) -> Self {
        let mut digits = vec![0; 64];
        hex::encode_to_slice(Sha256::digest(text.as_bytes()), &mut digits)
            .expect("32 bytes are 64 digits");
        Self(String::from_utf8(digits).expect("digits are ASCII"))
    }

    /// Takes a stored fingerprint as it is; one that is damaged equals no other.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Reads a value and refuses what `serde_json` would take without a word.
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX}")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        no_nul(text)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            no_nul(&name)?;
            let value = entries.next_value_seed(self.deeper()?)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the name {name:?} occurs twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

fn no_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') {
        return Err(E::custom("a string contains NUL (\\u0000)"));
    }
    Ok(())
}

/// The first number of a valid JSON text that a double would change.
fn lossy_number(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let rest = &bytes[at..];
                let length = rest
                    .iter()
                    .position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
                    .unwrap_or(rest.len());
                let number = &text[at..at + length];
                if !survives_a_double(number) {
                    return Some(number.chars().take(60).collect());
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// The position after the string that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Whether a JSON number means the same after a double has held it, in its shortest form.
fn survives_a_double(number: &str) -> bool {
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => decimal(number) == decimal(&format!("{value:e}")),
        _ => false,
    }
}

/// Sign, significant digits and exponent: equal for texts of the same value.
fn decimal(number: &str) -> (bool, String, i64) {
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return (false, String::new(), 0);
    }
    let cut = i64::try_from(digits.len() - significant.len()).unwrap_or(i64::MAX);
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    // An exponent beyond i64 cannot belong to a finite, non-zero double.
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MIN).saturating_sub(places) + cut;
    (negative, significant.trim_start_matches('0').to_owned(), exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> Result<String, String> {
        Payload::parse(text).map(|p| p.as_str().to_owned()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_order_of_names_and_the_spelling_of_numbers_do_not_matter() {
        let expected = Ok(r#"{"a":1,"b":[0.1,1000,"é"]}"#.to_owned());
        assert_eq!(canonical(r#" {"b":[0.10, 1e3,"\u00e9"], "a":1.0} "#), expected);
    }

    #[test]
    fn the_fingerprint_is_sha_256_of_the_canonical_bytes() {
        let payload = Payload::parse("{}").unwrap();
        let known = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(payload.fingerprint().as_str(), known);
    }

    #[test]
    fn what_cannot_be_kept_faithfully_is_refused() {
        for (text, why) in [
            (r#"{"a":1,"a":1}"#, "occurs twice"),
            (r#"{"n":9007199254740993}"#, "would change its value"),
            (r#"{"n":0.10000000000000000001}"#, "would change its value"),
            (r#"{"n":123456789012345678901234567890}"#, "would change its value"),
            (r#"{"n":1e400}"#, "out of range"),
            (r#"{"n":1e-400}"#, "would change its value"),
            (r#"{"s":"\ud800"}"#, "unpaired surrogate"),
            (r#"{"s":"\udc00\ud800"}"#, "unpaired surrogate"),
            (r#"{"s":"\ud83d\u0041"}"#, "unpaired surrogate"),
            (r#"{"s":"\u12"}"#, "cannot be read"),
            (r#"{"s":"\u0000"}"#, "NUL"),
            (r#"{"\u0000":1}"#, "NUL"),
            ("[]", "not an array"),
            ("null", "not null"),
            ("", "cannot be read"),
            ("{} {}", "cannot be read"),
            ("\u{feff}{}", "cannot be read"),
            ("{\"a\":NaN}", "cannot be read"),
        ] {
            let error = canonical(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(PAYLOAD_BYTES_MAX));
        assert!(canonical(&large).unwrap_err().contains("at most 262144"));
        let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        assert!(canonical(&deep).is_err());
    }

    #[test]
    fn numbers_that_a_double_holds_pass() {
        for number in ["0.1", "-0", "0", "9007199254740992", "1e21", "5e-324", "1E+2", "100"] {
            assert!(canonical(&format!(r#"{{"n":{number}}}"#)).is_ok(), "{number}");
        }
    }

    #[test]
    fn normal_forms_of_one_letter_are_different_content() {
        let composed = Payload::parse("{\"t\":\"\u{e9}\"}").unwrap();
        let decomposed = Payload::parse("{\"t\":\"e\u{301}\"}").unwrap();
        assert_ne!(composed.fingerprint(), decomposed.fingerprint());
    }

    proptest! {
        #[test]
        fn a_canonical_form_is_its_own_canonical_form(
            text in r#"\{("[a-zé]{1,4}":-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,3})?)?\}"#
        ) {
            let once = canonical(&text).unwrap();
            prop_assert_eq!(canonical(&once).unwrap(), once);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in any::<String>()) {
            drop(canonical(&text));
        }

        #[test]
        fn every_double_survives_its_own_text(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            prop_assert!(survives_a_double(&value.to_string()));
            let exponential = format!("{value:e}");
            prop_assert!(survives_a_double(&exponential));
        }
    }
}
