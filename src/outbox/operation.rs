//! An operation as an application records it.

use super::key::{OperationKey, is_name};
use super::payload::Payload;
use crate::clock::Timestamp;

/// Longest name of an approver, in bytes.
pub const APPROVER_BYTES_MAX: usize = 200;

/// One approved business act: key, receiver, frozen payload, and who approved it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its identity, the same on every attempt.
    pub key: OperationKey,
    /// Name of the receiver that it is delivered to.
    pub receiver: String,
    /// What is delivered.
    pub payload: Payload,
    /// Who approved exactly this payload.
    pub approved_by: String,
    /// Not delivered before this time.
    pub deliver_after: Option<Timestamp>,
    /// W3C trace context of the application, kept with the approval.
    pub traceparent: Option<String>,
}

/// What is wrong with an operation, apart from its key and its payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The receiver's name breaks the grammar of names.
    #[error("receiver {0:?} must match [a-z][a-z0-9-]{{0,39}}")]
    Receiver(String),
    /// Nobody approved it, or the name is too long or has control characters.
    #[error(
        "approved_by must name who approved it, in 1 to {APPROVER_BYTES_MAX} bytes \
         without control characters"
    )]
    Approver,
}

impl Operation {
    /// An approved operation that may be delivered at once.
    ///
    /// # Errors
    ///
    /// [`OperationError`] if `receiver` is no name or `approved_by` is blank.
    ///
    /// # Example
    ///
    /// ```
    /// use handoff::{Operation, OperationKey, Payload};
    /// let key = OperationKey::parse("harbor:create-followup:v1:case-104")?;
    /// let payload = Payload::parse(r#"{"case_id":"case-104","title":"Call the customer"}"#)?;
    /// let follow_up = Operation::new(key, "crm", payload, "ann")?;
    /// assert_eq!(follow_up.key.subject(), "case-104");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        key: OperationKey,
        receiver: &str,
        payload: Payload,
        approved_by: &str,
    ) -> Result<Self, OperationError> {
        if !is_name(receiver) {
            return Err(OperationError::Receiver(receiver.chars().take(100).collect()));
        }
        let too_long = approved_by.len() > APPROVER_BYTES_MAX;
        if approved_by.trim().is_empty() || too_long || approved_by.contains(char::is_control) {
            return Err(OperationError::Approver);
        }
        Ok(Self {
            key,
            receiver: receiver.to_owned(),
            payload,
            approved_by: approved_by.to_owned(),
            deliver_after: None,
            traceparent: None,
        })
    }

    /// The same operation, not to be delivered before `time`.
    #[must_use]
    pub fn deliver_after(self, time: Timestamp) -> Self {
        Self { deliver_after: Some(time), ..self }
    }

    /// The same operation with the application's trace context.
    #[must_use]
    pub fn traceparent(self, traceparent: &str) -> Self {
        Self { traceparent: Some(traceparent.to_owned()), ..self }
    }
}
