//! Operation types: what a payload of a type must look like.

use super::key::{OperationKey, is_plain_subject};
use super::payload::{Payload, PayloadError};
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// Name of the schema that comes with the program.
pub const BUILTIN_CREATE_FOLLOWUP: &str = "builtin:create-followup";

/// A type of operation, as configured.
#[derive(Clone)]
pub struct OperationType {
    /// Its name, the second part of a key.
    pub name: String,
    /// The version of its meaning, the third part of a key.
    pub version: u16,
    /// The receiver that its operations go to.
    pub receiver: String,
    /// The field of the payload that equals the key's subject.
    pub subject: String,
    /// Which subjects are allowed; by default letters, digits and hyphens.
    pub subject_pattern: Option<regex::Regex>,
    /// What the payload must look like.
    pub schema: Schema,
    /// Fields whose text loses blanks at both ends.
    pub trim: Vec<String>,
    /// Age from which an approval no longer counts.
    pub approval_max_age: Option<Duration>,
    /// Several versions of one subject are different acts.
    pub independent_versions: bool,
}

/// A compiled JSON Schema.
#[derive(Clone)]
pub struct Schema {
    validator: jsonschema::Validator,
}

/// Why a text is no schema.
#[derive(Debug, thiserror::Error)]
#[error("it is no valid JSON Schema: {0}")]
pub struct SchemaError(String);

/// Why a payload does not fit its type.
#[derive(Debug, thiserror::Error)]
pub enum TypeError {
    /// It is no payload at all.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// It violates the schema.
    #[error("{}", Schema::describe(.0))]
    Schema(Vec<Violation>),
    /// The subject field is absent or no text.
    #[error("the field {field} must hold the subject, a text")]
    NoSubject {
        /// The configured subject field.
        field: String,
    },
    /// The subject is not of the allowed form.
    #[error("the subject {subject:?} in the field {field} must match {allowed}")]
    Subject {
        /// The configured subject field.
        field: String,
        /// The value found, shortened.
        subject: String,
        /// The pattern.
        allowed: String,
    },
    /// The key names another subject than the payload.
    #[error("the key names the subject {key_subject:?}, the payload {payload_subject:?}")]
    OtherSubject {
        /// In the key.
        key_subject: String,
        /// In the payload, shortened.
        payload_subject: String,
    },
}

/// One place where a payload breaks its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a JSON pointer; empty for the whole.
    pub at: String,
    /// What is wrong, without the value itself.
    pub problem: String,
}

impl Schema {
    /// Compiles a schema. Nothing is fetched from anywhere.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if it is no schema, or refers to another document.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let validator =
            jsonschema::validator_for(schema).map_err(|error| SchemaError(error.to_string()))?;
        Ok(Self { validator })
    }

    /// The built-in schema: `case_id` and `title`, and nothing else.
    ///
    /// # Errors
    ///
    /// None in practice; the schema is a constant that a test compiles.
    pub fn create_followup() -> Result<Self, SchemaError> {
        Self::compile(&json!({
            "type": "object",
            "properties": {
                "case_id": { "type": "string", "pattern": "^[A-Za-z0-9-]{1,80}$" },
                "title": { "type": "string", "minLength": 1, "maxLength": 160 }
            },
            "required": ["case_id", "title"],
            "additionalProperties": false
        }))
    }

    fn violations(&self, value: &Value) -> Vec<Violation> {
        self.validator
            .iter_errors(value)
            .take(10)
            .map(|error| Violation {
                at: error.instance_path().to_string(),
                problem: error.masked_with("the value").to_string(),
            })
            .collect()
    }

    fn describe(violations: &[Violation]) -> String {
        let line = |violation: &Violation| match violation.at.as_str() {
            "" => format!("the payload: {}", violation.problem),
            at => format!("{at}: {}", violation.problem),
        };
        violations.iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

impl OperationType {
    /// Trims, validates and brings into canonical form.
    ///
    /// # Errors
    ///
    /// [`TypeError`] says what does not fit, without repeating the content.
    pub fn prepare(&self, mut object: Map<String, Value>) -> Result<Payload, TypeError> {
        for field in &self.trim {
            if let Some(Value::String(text)) = object.get_mut(field) {
                *text = text.trim().to_owned();
            }
        }
        let value = Value::Object(object);
        let violations = self.schema.violations(&value);
        if !violations.is_empty() {
            return Err(TypeError::Schema(violations));
        }
        let Value::Object(object) = value else { return Err(TypeError::Schema(Vec::new())) };
        let payload = Payload::from_object(object)?;
        self.subject_of(&payload)?;
        Ok(payload)
    }

    /// The subject that a payload names.
    ///
    /// # Errors
    ///
    /// [`TypeError`] if it is absent or not of the allowed form.
    pub fn subject_of<'a>(&self, payload: &'a Payload) -> Result<&'a str, TypeError> {
        let Some(Value::String(subject)) = payload.object().get(&self.subject) else {
            return Err(TypeError::NoSubject { field: self.subject.clone() });
        };
        let allowed = match &self.subject_pattern {
            Some(pattern) if pattern.is_match(subject) => return Ok(subject),
            Some(pattern) => pattern.as_str().to_owned(),
            None if is_plain_subject(subject) => return Ok(subject),
            None => "[A-Za-z0-9-]{1,80}".to_owned(),
        };
        let subject = subject.chars().take(100).collect();
        Err(TypeError::Subject { field: self.subject.clone(), subject, allowed })
    }

    /// Checks that the key and the payload name the same subject.
    ///
    /// # Errors
    ///
    /// [`TypeError::OtherSubject`], or as [`OperationType::subject_of`].
    pub fn check_subject(&self, key: &OperationKey, payload: &Payload) -> Result<(), TypeError> {
        let subject = self.subject_of(payload)?;
        if subject == key.subject() {
            return Ok(());
        }
        Err(TypeError::OtherSubject {
            key_subject: key.subject().to_owned(),
            payload_subject: subject.chars().take(100).collect(),
        })
    }
}

impl fmt::Debug for OperationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationType({} v{} to {})", self.name, self.version, self.receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_followup() -> OperationType {
        OperationType {
            name: "create-followup".into(),
            version: 1,
            receiver: "crm".into(),
            subject: "case_id".into(),
            subject_pattern: None,
            schema: Schema::create_followup().unwrap(),
            trim: vec!["title".into()],
            approval_max_age: None,
            independent_versions: false,
        }
    }

    fn prepare(value: Value) -> Result<String, String> {
        let Value::Object(object) = value else { panic!("no object") };
        create_followup()
            .prepare(object)
            .map(|payload| payload.as_str().to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_title_is_trimmed_before_it_is_measured() {
        let title = format!("  {}  ", "é".repeat(160));
        let prepared = prepare(json!({ "title": title, "case_id": "case-104" })).unwrap();
        assert_eq!(prepared, format!(r#"{{"case_id":"case-104","title":"{}"}}"#, "é".repeat(160)));
    }

    #[test]
    fn what_does_not_fit_the_type_is_refused_with_its_place() {
        for (value, place) in [
            (json!({ "case_id": "case/104", "title": "x" }), "/case_id"),
            (json!({ "case_id": "", "title": "x" }), "/case_id"),
            (json!({ "case_id": null, "title": "x" }), "/case_id"),
            (json!({ "case_id": "c", "title": " " }), "/title"),
            (json!({ "case_id": "c", "title": null }), "/title"),
            (json!({ "case_id": "c", "title": "x".repeat(161) }), "/title"),
            (json!({ "case_id": "c" }), "title"),
            (json!({ "case_id": "c", "title": "x", "approved": true }), "approved"),
        ] {
            let error = prepare(value.clone()).unwrap_err();
            assert!(error.contains(place), "{value}: {error}");
        }
    }
}
