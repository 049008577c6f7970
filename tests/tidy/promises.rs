//! The README's promises: each names the tests that hold it.

use super::Finding;

/// Checks every row of every table below a heading that speaks of promises: its
/// last cell names tests in backquotes, and each of them exists.
pub(crate) fn check(readme: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rows = rows(readme);
    if rows.is_empty() {
        findings.push(Finding::new(
            1,
            "no promise is made: under a heading with the word \"promise\", write a table whose \
             last column names the tests that hold each one",
        ));
    }
    for (line, row) in rows {
        let tests = tests(row);
        if tests.is_empty() {
            findings.push(Finding::new(
                line,
                "nothing holds this promise: name a test in the last column, as `the_test`",
            ));
        }
        for test in tests.into_iter().filter(|test| !exists(test)) {
            findings.push(Finding::new(
                line,
                format!("there is no test `{test}`: write it, or promise less"),
            ));
        }
    }
    findings
}

/// The rows of the tables of promises, without their heads.
fn rows(readme: &str) -> Vec<(usize, &str)> {
    let mut of_promises = false;
    let mut below_the_head = false;
    let mut rows = Vec::new();
    for (number, line) in readme.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('#') {
            of_promises = line.to_lowercase().contains("promise");
        }
        if !line.starts_with('|') {
            below_the_head = false;
        } else if line.chars().all(|c| "|-: ".contains(c)) {
            below_the_head = true;
        } else if of_promises && below_the_head {
            rows.push((number + 1, line));
        }
    }
    rows
}

/// The names of functions in the last cell; a path before the name is dropped.
fn tests(row: &str) -> Vec<&str> {
    let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
    let quoted = last.split('`').skip(1).step_by(2);
    let names = quoted.map(|name| name.rsplit("::").next().unwrap_or(name));
    let is_function = |name: &&str| {
        name.contains('_') && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
    };
    names.filter(is_function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "\
# handoff
| word | meaning |
| --- | --- |
| `not_a_test` | outside |
## What it promises
| promise | held by |
|---|:---|
| A key is `frozen_for_ever`. | `keys_stay`, `outbox::key::they_do` |
";

    fn problems(readme: &str) -> Vec<String> {
        let findings = check(readme, |test| ["keys_stay", "they_do"].contains(&test));
        findings.into_iter().map(|f| format!("{}: {}", f.line, f.problem)).collect()
    }

    #[test]
    fn a_promise_is_held_by_tests_that_exist() {
        assert_eq!(problems(README), Vec::<String>::new());
        let renamed = problems(&README.replace("they_do", "they_did"));
        assert!(renamed[0].starts_with("8: there is no test `they_did`"), "{renamed:?}");
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        let bare = problems(&format!("{README}| Trust us. | |\n"));
        assert!(bare.len() == 1 && bare[0].starts_with("9: nothing holds"), "{bare:?}");
        assert!(problems("# handoff\n")[0].starts_with("1: no promise"));
    }
}
