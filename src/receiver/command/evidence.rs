//! What may be shown of a program's words: no secret of its environment, no
//! control characters, and not too much.

use super::child::Kept;
use std::ffi::OsString;

/// Shorter values of the environment hide nothing, and would blot out every text.
const HIDDEN_BYTES_MIN: usize = 4;

/// Hides the values of the declared environment variables.
///
/// Only as they stand there: a program that encodes a value before it prints
/// it gives it away.
#[derive(Clone)]
pub(in crate::receiver) struct Mask {
    /// What is shown instead, and the value; longest first.
    values: Vec<(String, String)>,
    longest: usize,
}

impl Mask {
    /// Hides the values of these variables.
    pub(super) fn of(environment: &[(OsString, OsString)]) -> Self {
        let hidden = |(name, value): &(OsString, OsString)| {
            (format!("[{}]", name.to_string_lossy()), value.to_string_lossy().trim().to_owned())
        };
        let mut values: Vec<_> = environment.iter().map(hidden).collect();
        values.retain(|(_, value)| value.len() >= HIDDEN_BYTES_MIN);
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        let longest = values.first().map_or(0, |(_, value)| value.len());
        Self { values, longest }
    }

    /// Hides secrets that have no name.
    pub(in crate::receiver) fn of_secrets<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let secret = |secret: &str| (OsString::from("secret"), OsString::from(secret));
        Self::of(&secrets.map(secret).collect::<Vec<_>>())
    }

    /// Whether there is something to hide in a text.
    pub(in crate::receiver) fn hides(&self, text: &str) -> bool {
        self.values.iter().any(|(_, value)| text.contains(value))
    }

    /// A text without secrets and control characters.
    pub(in crate::receiver) fn show(&self, text: &str) -> String {
        escape(&self.hide(text))
    }

    /// The beginning of what was kept, without secrets and control characters.
    pub(super) fn show_start(&self, kept: &Kept) -> String {
        let text = self.hide(&String::from_utf8_lossy(kept.bytes()));
        let length = text.chars().count().saturating_sub(self.lost(kept));
        escape(text.chars().take(length).collect::<String>().trim())
    }

    /// The last `chars` characters of what was kept, without secrets and control characters.
    pub(super) fn show_end(&self, kept: &Kept, chars: usize) -> String {
        let text = self.hide(&String::from_utf8_lossy(kept.bytes()));
        let text: String = text.chars().skip(self.lost(kept)).collect();
        let shown = escape(text.trim());
        let surplus = shown.chars().count().saturating_sub(chars);
        if surplus == 0 {
            return shown;
        }
        format!("…{}", shown.chars().skip(surplus + 1).collect::<String>())
    }

    /// How many characters at a cut must not be shown: it may have gone through
    /// a value, whose rest would not be found.
    fn lost(&self, kept: &Kept) -> usize {
        if kept.is_cut() { self.longest } else { 0 }
    }

    fn hide(&self, text: &str) -> String {
        let hide = |text: String, (name, value): &(String, String)| text.replace(value, name);
        self.values.iter().fold(text.to_owned(), hide)
    }
}

/// Escapes what does not print, and the backslash, so that nothing moves a
/// cursor, turns the direction of a text or passes for a line of its own.
fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.values.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mask() -> Mask {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        Mask::of(&[
            variable("TOKEN", "s3cret-s3cret"),
            variable("LANG", "C"),
            variable("PEM", "-----\nAbCd\n-----\n"),
        ])
    }

    #[test]
    fn secrets_of_the_environment_are_replaced_by_their_names() {
        assert_eq!(mask().show("C: Bearer s3cret-s3cret"), "C: Bearer [TOKEN]");
        assert_eq!(mask().show("key -----\nAbCd\n-----"), "key [PEM]");
    }

    #[test]
    fn the_rest_of_a_secret_at_the_cut_is_not_shown() {
        let mut kept = Kept::last(33);
        kept.push(b"token s3cret-s3cret and more until it ended");
        assert!(kept.bytes().starts_with(b"et-s3cret"));
        assert!(!mask().show_end(&kept, 100).contains("s3cret"), "{}", mask().show_end(&kept, 100));
        assert!(mask().show_end(&kept, 100).ends_with("ended"));
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_cut_is_not_shown() {
        let mut kept = Kept::first(35);
        kept.push(b"a long text before token s3cret-s3cret");
        assert!(kept.bytes().ends_with(b"s3cret-s3c"));
        assert!(mask().show_start(&kept).starts_with("a long text"));
        assert!(!mask().show_start(&kept).contains("s3c"));
    }

    #[test]
    fn nothing_can_play_with_the_terminal() {
        assert_eq!(escape("a\u{1b}[2J\r\nb\u{202e}\0\\n"), r"a\u{1b}[2J\r\nb\u{202e}\0\\n");
        assert_eq!(escape("it's \"Zoë\""), "it's \"Zoë\"");
    }

    #[test]
    fn only_the_end_of_a_long_text_is_shown() {
        let mut kept = Kept::last(100);
        kept.push(b"one two three\n");
        assert_eq!(mask().show_end(&kept, 6), "…three");
        assert_eq!(mask().show_end(&kept, 13), "one two three");
        assert_eq!(mask().show_end(&kept, 0), "…");
    }

    proptest! {
        #[test]
        fn whatever_is_printed_is_shown_within_the_limit_and_without_controls(
            bytes in prop::collection::vec(any::<u8>(), 0..200), chars in 1_usize..50,
        ) {
            let mut kept = Kept::last(150);
            kept.push(&bytes);
            let shown = mask().show_end(&kept, chars);
            prop_assert!(shown.chars().count() <= chars);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
