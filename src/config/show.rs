//! Values as TOML text on one line, safe to print wherever they came from.

use ::config::{Value, ValueKind};

/// Longest text that a problem repeats, in characters.
const SHORT_CHARS: usize = 100;

/// A value as TOML: the same value always gives the same text.
pub(super) fn toml(value: &Value) -> String {
    match &value.kind {
        ValueKind::Nil => String::new(),
        ValueKind::Boolean(yes) => yes.to_string(),
        ValueKind::I64(number) => number.to_string(),
        ValueKind::I128(number) => number.to_string(),
        ValueKind::U64(number) => number.to_string(),
        ValueKind::U128(number) => number.to_string(),
        // The debug form always shows that it is no whole number.
        ValueKind::Float(number) => format!("{number:?}"),
        ValueKind::String(content) => text(content),
        ValueKind::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Table(entries) => {
            let mut parts: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{} = {}", name(key), toml(value)))
                .collect();
            parts.sort();
            if parts.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", parts.join(", ")) }
        }
    }
}

/// A text in quotes, with everything escaped that could disturb a line or a terminal.
pub(super) fn text(content: &str) -> String {
    let mut quoted = String::with_capacity(content.len() + 2);
    quoted.push('"');
    for c in content.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c => push_visible(&mut quoted, c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text without quotes, such as a file's name, on one line.
pub(super) fn line(content: &str) -> String {
    let mut visible = String::with_capacity(content.len());
    content.chars().for_each(|c| push_visible(&mut visible, c));
    visible
}

/// A key as it is written in TOML: bare where that is allowed, else in quotes.
pub(super) fn name(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) { short(key) } else { short(&text(key)) }
}

/// The start of a text that may be long.
pub(super) fn short(content: &str) -> String {
    let mut chars = content.chars();
    let start: String = chars.by_ref().take(SHORT_CHARS).collect();
    if chars.next().is_none() { start } else { format!("{start}…") }
}

fn push_visible(to: &mut String, c: char) {
    // Line separators and marks that change the direction of writing are not control characters.
    let disturbs =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || disturbs {
        to.push_str(&format!("\\u{:04X}", u32::from(c)));
    } else {
        to.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_forge_a_line_or_colour_a_terminal_is_escaped() {
        assert_eq!(text("a\n\"b\"\u{1b}[2J\u{2028}"), r#""a\n\"b\"\u001B[2J\u2028""#);
        assert_eq!(line("a\r\nb"), r"a\u000D\u000Ab");
        assert_eq!(name("a b"), r#""a b""#);
        assert_eq!(name("poll_interval"), "poll_interval");
    }

    #[test]
    fn a_shown_value_is_toml_that_reads_back() {
        let items = vec![Value::from("x\u{7f}"), Value::from(1_i64), Value::from(3.0)];
        let table: ::config::Map<String, Value> =
            [("b".to_owned(), Value::from(items)), ("a".to_owned(), Value::from(true))].into();
        let shown = toml(&Value::from(table));
        assert_eq!(shown, r#"{ a = true, b = ["x\u007F", 1, 3.0] }"#);
        assert!(toml::de::DeValue::parse(&shown).is_ok());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(short(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
        assert_eq!(short(&"é".repeat(100)), "é".repeat(100));
    }
}
