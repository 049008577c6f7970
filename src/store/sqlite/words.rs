//! What an end says, in the words that are kept of it.

use super::conclude::End;
use crate::outbox::facts::AttemptKind;
use crate::outbox::look_up::Finding;
use crate::outbox::outcome::{Ending, NotBefore, Outcome};

/// The pause that the receiver asked for.
pub(super) fn asked(ending: &Ending) -> Option<NotBefore> {
    match ending {
        Ending::Outcome(
            Outcome::NotTaken { not_before, .. } | Outcome::InProgress { not_before },
        )
        | Ending::LookedUp(Finding::CannotTell { not_before }) => *not_before,
        Ending::Outcome(_) | Ending::LookedUp(_) | Ending::Interrupted { .. } | Ending::CutOff => {
            None
        }
    }
}

/// The id that an answer names.
pub(super) fn named_id(ending: &Ending) -> Option<&str> {
    match ending {
        Ending::Outcome(
            Outcome::Applied { remote_id, .. } | Outcome::AlreadyExists { remote_id },
        )
        | Ending::LookedUp(Finding::Found { remote_id, .. }) => remote_id.as_deref(),
        Ending::Outcome(_) | Ending::LookedUp(_) | Ending::Interrupted { .. } | Ending::CutOff => {
            None
        }
    }
}

/// The end in words, for `last_error`.
pub(super) fn error_text(end: &End<'_>, kind: AttemptKind) -> String {
    let mut text = match end.ending {
        Ending::Interrupted { .. } => "interrupted: the process ended during the call".to_owned(),
        Ending::CutOff => "cut_off: the daemon stopped before the answer came".to_owned(),
        Ending::Outcome(_) | Ending::LookedUp(_) => end.ending.kind().to_string(),
    };
    if kind == AttemptKind::LookUp {
        text.insert_str(0, "look-up: ");
    }
    if let Some(seen) = end.seen {
        if let Some(code) = &seen.error_code {
            text.push_str(&format!(": {code}"));
        }
        if let Some(evidence) = &seen.evidence {
            text.push_str(&format!(" ({evidence})"));
        }
    }
    text
}
