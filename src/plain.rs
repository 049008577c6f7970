//! Text from data, made safe to show: it can neither break a line nor steer a
//! terminal, nor hide or turn round what stands beside it.

use std::fmt::Write as _;

/// Longest text that is shown in one piece, in characters.
pub const SHOWN_CHARS: usize = 500;

/// One line of harmless text, cut to a length that can be looked at.
pub fn plain(text: &str) -> String {
    let mut cut = text.chars();
    let mut safe = escaped(cut.by_ref().take(SHOWN_CHARS));
    if cut.next().is_some() {
        safe.push('…');
    }
    safe
}

/// One line of harmless text, whole.
pub fn line(text: &str) -> String {
    escaped(text.chars())
}

/// Harmless text that keeps its lines.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The same JSON, in which every character that could do harm is written as an
/// escape. Outside of strings JSON holds none.
pub fn json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && is_harmful(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                write!(safe, "\\u{unit:04x}").ok();
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

fn escaped(text: impl Iterator<Item = char>) -> String {
    let mut safe = String::new();
    for character in text {
        if is_harmful(character) {
            safe.extend(character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Control characters, and what moves, hides or turns round its neighbours.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_data_cannot_move_the_cursor_or_break_a_line() {
        assert_eq!(
            plain("a\n\u{1b}[2J\r\u{202e}b\u{2028}\0"),
            "a\\u{a}\\u{1b}[2J\\u{d}\\u{202e}b\\u{2028}\\u{0}"
        );
        assert_eq!(plain("Müller"), "Müller");
        assert_eq!(plain(&"x".repeat(SHOWN_CHARS)).len(), SHOWN_CHARS);
        assert!(plain(&"x".repeat(100_000)).chars().count() <= SHOWN_CHARS + 1);
        assert_eq!(line(&"x".repeat(100_000)).len(), 100_000);
        assert_eq!(lines("a\nb\u{1b}\r\n"), "a\nb\\u{1b}\\u{d}\n");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "a": "\u{9b}31m\u{7f}\u{202e}\u{2028}\u{e0001}ü\n\\" });
        let safe = json(&value.to_string());
        assert!(!safe.contains(is_harmful), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
