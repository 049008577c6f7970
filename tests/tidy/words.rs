//! Words that have no place in a program or a text of ours.

use super::Finding;
use super::source::{lines_with, lines_with_word};

/// Code that is unfinished, left over or switched off. Each is written in two pieces,
/// so that no place of this list is one of those it looks for.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("to", "do!"), "finish it, or leave it out and say so in the docs"),
    (concat!("unimple", "mented!"), "finish it, or make the type refuse the case"),
    (concat!("d", "bg!"), "take it out, or log an event"),
    (concat!("#[", "ignore"), "mend the test or delete it; a long one reads HANDOFF_TEST_LONG"),
    (concat!("#[", "should_panic"), "assert on the error: here a panic of any kind would pass"),
    (
        concat!("#[", "allow("),
        "write #[expect(…, reason = \"…\")], which tells when it is needed no longer",
    ),
    (
        concat!("#![", "allow("),
        "write #![expect(…, reason = \"…\")], which tells when it is needed no longer",
    ),
    (concat!("thread", "::sleep"), "wait for an event, or on a timer that can be ended"),
];

/// Module names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] =
    &["common", "helper", "helpers", "impl", "manager", "service", "types", "util", "utils"];

/// Together, the two words promise what nobody can hold.
const FIRST: &str = "exactly";
const SECOND: &str = "once";

/// Folders of the machine that this was written on.
const FOREIGN_FOLDERS: &[&str] = &[concat!("/wo", "rk"), concat!("/fa", "rm")];

pub(crate) fn leftovers(code: &str) -> Vec<Finding> {
    let places = |piece| lines_with(code, piece).into_iter();
    let findings = LEFTOVERS.iter().flat_map(|(piece, instead)| {
        places(piece).map(move |line| Finding::new(line, format!("`{piece}` is left: {instead}")))
    });
    findings.collect()
}

pub(crate) fn silent_expectations(code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = code.lines().collect();
    let says_why = |&line: &usize| {
        let rest = lines[line - 1..].join("\n");
        rest[..rest.find(']').unwrap_or(rest.len())].contains("reason")
    };
    let expectations = [lines_with(code, "#[expect("), lines_with(code, "#![expect(")].concat();
    let silent = expectations.into_iter().filter(|line| !says_why(line));
    let problem = "a lint is switched off, and nobody knows why: add `reason = \"…\"`";
    silent.map(|line| Finding::new(line, problem)).collect()
}

pub(crate) fn sleeps(tests: &str) -> Vec<Finding> {
    let lines = [lines_with_word(tests, "sleep"), lines_with_word(tests, "sleep_until")].concat();
    let problem = "a test sleeps, which is slow on a good day and wrong on a bad one: turn the \
                   step by hand, or wait for the event; waiting for another process belongs into \
                   tests/it/support/process.rs";
    lines.into_iter().map(|line| Finding::new(line, problem)).collect()
}

/// The stable names of log records: what stands in quotes after `event =`, or is
/// a value of the enum of those that repeat.
pub(crate) fn events(text: &str) -> Vec<String> {
    let repeated = text.split_once("pub enum Repeated {").map_or("", |(_, rest)| rest);
    let repeated = repeated.split_once('}').map_or("", |(body, _)| body);
    let after = text.split("event = \"").skip(1).chain(repeated.split(" = \"").skip(1));
    after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// The names of the fields of log records: what is handed to the macros of
/// `tracing` by name, or as a variable of that name.
pub(crate) fn fields(text: &str) -> Vec<String> {
    let levels = ["error!(", "warn!(", "info!(", "debug!(", "$level!("];
    let calls = text.split("tracing::").skip(1);
    let calls = calls.filter_map(|call| levels.iter().find_map(|level| call.strip_prefix(level)));
    let parts = calls.flat_map(parts_of_a_call);
    let name = |part: String| {
        let name = part.split('=').next().unwrap_or_default().trim().trim_start_matches(['%', '?']);
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '.'));
        is_name.then(|| name.to_owned())
    };
    parts.filter_map(name).collect()
}

/// What stands between the commas of a call, up to the bracket that ends it.
fn parts_of_a_call(call: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quoted) = (0, false);
    for c in call.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => break,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// The names in the first column of the table under this heading; several may
/// stand in one row.
pub(crate) fn listed(text: &str, heading: &str) -> std::collections::BTreeSet<String> {
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.filter(|name| *name != "*").map(str::to_owned).collect()
}

/// Modules that are written inside a file; files are modules by their own name.
pub(crate) fn empty_module_names(code: &str) -> Vec<Finding> {
    let findings = EMPTY_NAMES.iter().flat_map(|name| {
        let lines = lines_with(code, &format!("mod {name}")).into_iter();
        lines.filter_map(|line| Some(Finding::new(line, empty_name(name)?)))
    });
    findings.collect()
}

/// What is wrong with a module of this name, if anything is.
pub(crate) fn empty_name(name: &str) -> Option<String> {
    EMPTY_NAMES
        .contains(&name)
        .then(|| format!("a module called `{name}` may hold anything: name it after what it holds"))
}

/// Looks in running text, whatever stands between the two words: a blank, a
/// hyphen, or the end of a line and the marker of a comment.
pub(crate) fn claims(text: &str) -> Vec<Finding> {
    let words = text.lines().enumerate().flat_map(|(number, line)| {
        let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(move |word| (number + 1, word.to_lowercase()))
    });
    let words: Vec<(usize, String)> = words.collect();
    let claims = words.windows(2).filter(|pair| pair[0].1 == FIRST && pair[1].1 == SECOND);
    let problem = format!(
        "`{FIRST} {SECOND}` is promised: say what holds, such as a single effect at a receiver \
         that keeps its contract"
    );
    claims.map(|pair| Finding::new(pair[0].0, problem.clone())).collect()
}

pub(crate) fn foreign_paths(text: &str) -> Vec<Finding> {
    let ends_there =
        |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c));
    let names = |line: &str, folder: &str| {
        line.match_indices(folder).any(|(at, _)| ends_there(&line[at + folder.len()..]))
    };
    let findings = text.lines().enumerate().flat_map(|(number, line)| {
        let folders = FOREIGN_FOLDERS.iter().filter(move |folder| names(line, folder));
        folders.map(move |folder| {
            let problem = format!(
                "`{folder}` is a folder of somebody's machine: make the path relative, or take it \
                 from the environment"
            );
            Finding::new(number + 1, problem)
        })
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn what_is_left_over_is_found() {
        for (piece, _) in LEFTOVERS {
            assert_eq!(lines(&leftovers(&format!("fn f() {{\n    {piece} x\n}}"))), [2], "{piece}");
        }
        assert!(leftovers("fn todo() {} #[expect(dead_code)] tokio::time::sleep(x)").is_empty());
    }

    #[test]
    fn an_expectation_without_a_reason_is_found() {
        assert_eq!(lines(&silent_expectations("#[expect(dead_code)]\nfn f(reason: u8) {}")), [1]);
        assert_eq!(lines(&silent_expectations("x\n#![expect(\n    dead_code,\n)]")), [2]);
        assert!(silent_expectations("#[expect(\n    dead_code,\n    reason = \"\"\n)]").is_empty());
    }

    #[test]
    fn a_sleeping_test_is_found() {
        assert_eq!(lines(&sleeps("\ntokio::time::sleep(second).await;\nsleepless()")), [2]);
    }

    #[test]
    fn a_module_whose_name_says_nothing_is_found() {
        assert_eq!(lines(&empty_module_names("pub mod key;\npub mod util {}")), [2]);
        assert!(empty_name("helpers").is_some() && empty_name("key").is_none());
    }

    #[test]
    fn a_promise_that_nobody_can_hold_is_found() {
        for between in [" ", "-", "_", "\n/// ", "  \n"] {
            let text = format!("\nDelivers Exactly{between}{SECOND}.");
            assert_eq!(lines(&claims(&text)), [2], "{text}");
        }
        assert!(claims("exactly one, once").is_empty());
    }

    #[test]
    fn a_path_of_somebodys_machine_is_found() {
        for folder in FOREIGN_FOLDERS {
            assert_eq!(lines(&foreign_paths(&format!("a\nsee {folder}/main"))), [2]);
            assert_eq!(lines(&foreign_paths(&format!("({folder})"))), [1]);
            assert!(foreign_paths(&format!("POST {folder}ers, {folder}-a")).is_empty());
        }
    }

    #[test]
    fn events_are_found_in_code_and_in_the_list() {
        let code = "info!(event = \"started\", x); pub enum Repeated { A = \"ended\", } B = \"b\"";
        assert_eq!(events(code), ["started", "ended"]);
        let text = "| event | level |\n| --- | --- |\n| `started` `*` | `a` |\n\n| `other` | x |";
        assert_eq!(listed(text, "| event |").into_iter().collect::<Vec<_>>(), ["started"]);
        let text = "| field |\n| - |\n| `a`, `b.c` | `d` |";
        assert_eq!(listed(text, "| field |").into_iter().collect::<Vec<_>>(), ["a", "b.c"]);
    }

    #[test]
    fn the_fields_of_a_record_are_found() {
        let code = "tracing::warn!(\n a.b = %x(y, z = 1), c,\n d = match e { f => \"g, h\" },\n \
                    \"text, i = {j}\"\n); tracing::$level!(k = \")\", l); tracing::enabled!(m)";
        assert_eq!(fields(code), ["a.b", "c", "d", "k", "l"]);
    }
}
