//! Rust text as far as tidy needs to understand it: what is code, what is test
//! code, and which paths the code names.

use super::Finding;

/// The text with comments, strings and character literals blanked out; every
/// line stays where it was.
pub(crate) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = at + length_of_no_code(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        }
    }
    code
}

/// How many characters from here on are a comment or a literal; 0 if this is code.
fn length_of_no_code(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n'),
        ['/', '*', ..] => end_of_block_comment(rest),
        ['"', ..] => end_of_quoted(rest, '"'),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => end_of_quoted(rest, '\''),
        ['r', '"' | '#', ..] if !ends_in_a_name(&chars[..at]) => match end_of_raw_string(rest) {
            Some(end) => Some(end),
            None => return 0,
        },
        _ => return 0,
    };
    length.unwrap_or(rest.len())
}

fn end_of_block_comment(rest: &[char]) -> Option<usize> {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn end_of_quoted(rest: &[char], quote: char) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 1,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// `None` too for `r#type`, which is a name.
fn end_of_raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
    let body = 2 + hashes;
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let closes = |&at: &usize| rest[at] == '"' && rest[at + 1..].starts_with(&vec!['#'; hashes]);
    Some((body..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes))
}

/// `r` begins a raw string unless it ends a name; `b` and `c` may stand before it.
fn ends_in_a_name(before: &[char]) -> bool {
    match before {
        [.., first, 'b' | 'c'] => is_name_char(*first),
        ['b' | 'c'] | [] => false,
        [.., last] => is_name_char(*last),
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Splits code into what ships and what is compiled for tests only. Both have
/// every line of the whole; what belongs to the other is blank.
pub(crate) fn split_tests(code: &str) -> (String, String) {
    let mut shipped = String::new();
    let mut tests = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        let end = start + end_of_item(&rest[start..]);
        shipped.push_str(&rest[..start]);
        tests.push_str(&blank(&rest[..start]));
        shipped.push_str(&blank(&rest[start..end]));
        tests.push_str(&rest[start..end]);
        rest = &rest[end..];
    }
    shipped.push_str(rest);
    tests.push_str(&blank(rest));
    (shipped, tests)
}

fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { ' ' }).collect()
}

/// Where the item at the start of this code ends: at its `;`, or at the bracket
/// that closes its body.
fn end_of_item(item: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in item.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match c {
            ';' if depth == 0 => return at + 1,
            '}' if depth == 0 && !item[at + 1..].starts_with(';') => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// A path that code names, such as `crate::store::Attempt`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) line: usize,
    /// The names after the root; `*` and `self` as they stand.
    pub(crate) names: Vec<String>,
}

impl Named {
    pub(crate) fn finding(&self, problem: String) -> Finding {
        Finding { line: self.line, problem }
    }
}

/// Every path that begins with this root. Groups in braces are taken apart.
pub(crate) fn paths(code: &str, root: &str) -> Vec<Named> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let begins = at == 0 || tokens[at - 1].text != "::" || continues_no_name(&tokens, at - 1);
        if tokens[at].text == root && begins {
            let mut next = at + 1;
            walk_path(&tokens, &mut next, tokens[at].line, &[], &mut found);
        }
    }
    found
}

/// `::std::fs` begins at its `::`, unlike the `std` of `other::std::fs`.
fn continues_no_name(tokens: &[Token], colons: usize) -> bool {
    colons == 0 || !tokens[colons - 1].text.starts_with(|c| is_name_char(c) || c == '>')
}

struct Token {
    line: usize,
    text: String,
}

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_name_char(first) {
                rest.find(|c| !is_name_char(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token { line: number + 1, text: rest[..length].to_owned() });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Follows `::name`, `::*` and `::{…}` from `next` on, and leaves it behind them.
fn walk_path(
    tokens: &[Token],
    next: &mut usize,
    mut line: usize,
    prefix: &[String],
    found: &mut Vec<Named>,
) {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut names = prefix.to_vec();
    while text(*next) == "::" {
        let after = text(*next + 1);
        if after == "{" {
            *next += 2;
            while !matches!(text(*next), "}" | "") {
                let branch = [names.clone(), vec![text(*next).to_owned()]].concat();
                let line = tokens[*next].line;
                *next += 1;
                walk_path(tokens, next, line, &branch, found);
                while !matches!(text(*next), "," | "}" | "") {
                    *next += 1;
                }
                if text(*next) == "," {
                    *next += 1;
                }
            }
            *next += 1;
            return;
        }
        if after != "*" && !after.starts_with(is_name_char) {
            break;
        }
        names.push(after.to_owned());
        line = tokens[*next + 1].line;
        *next += 2;
    }
    found.push(Named { line, names });
}

/// The lines on which this word stands by itself.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    tokens(code).iter().filter(|token| token.text == word).map(|token| token.line).collect()
}

/// The lines on which this piece of code begins, whatever blanks are in it.
pub(crate) fn lines_with(code: &str, piece: &str) -> Vec<usize> {
    let (tokens, piece) = (tokens(code), tokens(piece));
    let fits =
        |at: &[Token]| at.iter().zip(&piece).all(|(token, wanted)| token.text == wanted.text);
    tokens.windows(piece.len()).filter(|at| fits(at)).map(|at| at[0].line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str, root: &str) -> Vec<(usize, String)> {
        paths(code, root).into_iter().map(|path| (path.line, path.names.join("::"))).collect()
    }

    #[test]
    fn comments_and_literals_are_no_code_and_lines_stay() {
        for (text, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c\n */ d */ e", "a          \n         e"),
            (r#"a "b \" c" d"#, "a          d"),
            ("a r#\"b \" c\"# d", "a            d"),
            ("br\"x\\\" y", "b      y"),
            ("r#type x", "r#type x"),
            ("for\"x\"", "for   "),
            ("'a' 'b", "    'b"),
            (r"'\'' x", "     x"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_compiled_for_tests_only_is_kept_apart() {
        let (shipped, tests) = split_tests("X\n#[cfg(test)]\nmod t {\n  { Y }\n}\nZ\n");
        assert_eq!(shipped.split_whitespace().collect::<Vec<_>>(), ["X", "Z"]);
        assert!(tests.contains('Y') && !tests.contains('Z'));
        assert_eq!(shipped.lines().count(), tests.lines().count());
        let (shipped, _) = split_tests("#[cfg(test)]\nuse x::{y};\nc");
        assert_eq!(shipped.trim(), "c");
    }

    #[test]
    fn a_group_is_taken_apart() {
        let code = "use crate::{a, b::{C, d::E}, f::*};\nlet x = crate::g::h::<T>();";
        let expected = ["a", "b::C", "b::d::E", "f::*"].map(|path| (1, path.to_owned()));
        assert_eq!(named(code, "crate")[..4], expected);
        assert_eq!(named(code, "crate")[4..], [(2, "g::h".to_owned())]);
    }

    #[test]
    fn only_the_beginning_of_a_path_is_its_root() {
        assert_eq!(named("other::std::fs; ::std::net; std::env", "std").len(), 2);
        assert_eq!(named("pub(in crate::store) fn f()", "crate"), [(1, "store".to_owned())]);
        assert_eq!(named("super::super::x", "super"), [(1, "super::x".to_owned())]);
    }

    #[test]
    fn a_piece_of_code_is_found_whatever_its_blanks() {
        assert_eq!(lines_with("x\n# [ allow (dead_code)]", "#[allow("), [2]);
        assert_eq!(lines_with_word("sleepy\nsleep(1); f_sleep", "sleep"), [2]);
    }
}
