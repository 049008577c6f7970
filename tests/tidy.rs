//! The rules of the house that no compiler holds: who may name whom, how long a
//! file may be, which words have no place here, what lies where.
//!
//! Each rule is a pure function of a text, tried on a snippet beside it, and
//! applied to the whole tree here.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/migrations.rs"]
mod migrations;
#[path = "tidy/promises.rs"]
mod promises;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use tree::File;

/// A file of source is read in one go; its tests do not count.
const LINES_MAX: usize = 399;
const COLUMNS_MAX: usize = 100;

/// Where a test may wait for another process to move.
const MAY_SLEEP: &[&str] =
    &["src/receiver/waiting.rs", "tests/it/support/process.rs", "tests/process/support.rs"];

/// Something that breaks a rule: where, what, and what to do.
#[derive(Debug)]
struct Finding {
    line: usize,
    problem: String,
}

impl Finding {
    fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }

    fn at(&self, path: &str) -> String {
        format!("{path}:{}: {}", self.line, self.problem)
    }
}

#[test]
fn a_module_names_only_what_lies_below_it() {
    let sources = sources("src/");
    let modules: BTreeSet<&str> =
        sources.iter().filter_map(|source| source.module().first().copied()).collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    report(&sources, |source| layers::check(&source.module(), &source.shipped, &modules));
}

#[test]
fn a_file_of_source_can_be_read_in_one_go() {
    report(&sources("src/"), |source| too_long(&source.text, &source.tests));
}

#[test]
fn a_line_fits_on_the_screen() {
    report(&sources(""), |source| too_wide(&source.text));
}

#[test]
fn a_module_is_named_after_what_it_holds() {
    report(&sources(""), |source| {
        let name = source.module().last().and_then(|name| words::empty_name(name));
        let of_file = name.map(|problem| Finding::new(1, problem));
        of_file.into_iter().chain(words::empty_module_names(&source.code)).collect()
    });
}

#[test]
fn nothing_unfinished_or_switched_off_is_left() {
    report(&sources(""), |source| words::leftovers(&source.code));
    report(&sources(""), |source| words::silent_expectations(&source.code));
}

#[test]
fn every_log_event_is_in_the_documented_list_and_only_those() {
    let used: BTreeSet<String> =
        sources("src/").iter().flat_map(|source| words::events(&source.text)).collect();
    let listed = words::listed(&tree::read("docs/operating.md"), "| event |");
    assert!(used.len() > 10, "the events are found: {used:?}");
    assert_eq!(used, listed, "docs/operating.md lists the events of the log, each once");
}

#[test]
fn every_log_field_is_in_the_documented_list_and_only_those() {
    let mut used: BTreeSet<String> =
        sources("src/").iter().flat_map(|source| words::fields(&source.text)).collect();
    assert!(used.len() > 20, "the fields are found: {used:?}");
    used.extend(["timestamp", "level", "message"].map(str::to_owned));
    let listed = words::listed(&tree::read("docs/operating.md"), "| field |");
    assert_eq!(used, listed, "docs/operating.md lists the fields of the log, each once");
}

#[test]
fn no_test_sleeps() {
    report(&sources(""), |source| {
        let may = MAY_SLEEP.contains(&source.path.as_str());
        if may { Vec::new() } else { words::sleeps(&source.tests) }
    });
}

#[test]
fn no_text_promises_what_nobody_can_hold() {
    report_in_texts(words::claims);
}

#[test]
fn no_file_names_the_machine_that_it_was_written_on() {
    report_in_texts(words::foreign_paths);
}

#[test]
fn the_top_level_holds_what_a_newcomer_needs() {
    refuse(tree::check_top_level(&tree::top_level()));
}

#[test]
fn a_migration_that_has_landed_is_never_changed() {
    let files = tree::files().into_iter();
    let sql = files.filter(|file| file.path.starts_with("src/") && file.path.ends_with(".sql"));
    let hashed: Vec<_> = sql.map(|file| (file.path, migrations::hash(&file.bytes))).collect();
    refuse(migrations::check(&hashed, migrations::LANDED));
}

#[test]
fn each_promise_of_the_readme_names_a_test_that_exists() {
    let sources = sources("");
    let exists = |test: &str| {
        let function = format!("fn {test}");
        sources.iter().any(|source| !source::lines_with(&source.code, &function).is_empty())
    };
    let files = tree::files();
    let readme = files.iter().find(|file| file.path == "README.md");
    let findings = promises::check(readme.and_then(File::text).unwrap_or_default(), exists);
    refuse(findings.into_iter().map(|finding| finding.at("README.md")).collect());
}

/// A file of Rust, and what of it ships.
struct Source {
    path: String,
    text: String,
    code: String,
    shipped: String,
    tests: String,
}

impl Source {
    fn new(file: &File) -> Self {
        let path = file.path.clone();
        let text = file.text().unwrap_or_else(|| panic!("{path} is no text")).to_owned();
        let code = source::code(&text);
        let (shipped, tests) = if is_test_code(&path) {
            (String::new(), code.clone())
        } else {
            source::split_tests(&code)
        };
        Self { path, text, code, shipped, tests }
    }

    fn module(&self) -> Vec<&str> {
        module(&self.path)
    }
}

/// The Rust files below a folder; all of them below `""`.
fn sources(below: &str) -> Vec<Source> {
    let is_rust = |path: &str| Path::new(path).extension().is_some_and(|kind| kind == "rs");
    let files = tree::files().into_iter();
    let files = files.filter(|file| file.path.starts_with(below) && is_rust(&file.path));
    files.map(|file| Source::new(&file)).collect()
}

/// Integration tests, and unit tests in a file of their own: `tests.rs` or `tests/`.
fn is_test_code(path: &str) -> bool {
    path.split('/').any(|name| name == "tests" || name == "tests.rs")
}

/// The path of a source file in its crate: `src/store/sqlite/mod.rs` is
/// `["store", "sqlite"]`, the root of a crate has none.
fn module(path: &str) -> Vec<&str> {
    let path = path.trim_start_matches("src/").trim_start_matches("tests/");
    let names = path.trim_end_matches(".rs").split('/');
    let names: Vec<&str> = names.filter(|name| *name != "mod").collect();
    if matches!(names[..], ["lib" | "main"]) { Vec::new() } else { names }
}

fn too_long(text: &str, tests: &str) -> Vec<Finding> {
    let of_tests = tests.lines().filter(|line| !line.trim().is_empty()).count();
    let lines = text.lines().count().saturating_sub(of_tests);
    let problem = format!(
        "{lines} lines without tests, at most {LINES_MAX} are readable in one go: find the part \
         that has a name of its own and move it there"
    );
    (lines > LINES_MAX).then(|| Finding::new(1, problem)).into_iter().collect()
}

/// A row of a table in the docs cannot be broken, and is left out.
fn too_wide(text: &str) -> Vec<Finding> {
    let is_row = |line: &str| ["//! |", "/// |"].iter().any(|row| line.trim().starts_with(row));
    let width = |line: &str| if is_row(line) { 0 } else { line.chars().count() };
    let widths = text.lines().map(width).enumerate();
    let wide = widths.filter(|(_, width)| *width > COLUMNS_MAX);
    wide.map(|(number, width)| {
        Finding::new(number + 1, format!("{width} columns, at most {COLUMNS_MAX} fit: break it"))
    })
    .collect()
}

#[track_caller]
fn report(sources: &[Source], check: impl Fn(&Source) -> Vec<Finding>) {
    let in_file = |source: &Source| {
        let findings = check(source).into_iter();
        findings.map(|finding| finding.at(&source.path)).collect::<Vec<_>>()
    };
    refuse(sources.iter().flat_map(in_file).collect());
}

#[track_caller]
fn report_in_texts(check: impl Fn(&str) -> Vec<Finding>) {
    let in_file = |file: &File| {
        let findings = file.text().map(&check).unwrap_or_default().into_iter();
        findings.map(|finding| finding.at(&file.path)).collect::<Vec<_>>()
    };
    refuse(tree::files().iter().flat_map(in_file).collect());
}

#[track_caller]
fn refuse(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn a_long_file_and_a_wide_line_are_found() {
    let lines = "x\n".repeat(LINES_MAX);
    let of_test = "#[cfg(test)]\nmod tests {\n}\n";
    let too_long = |text: &str| too_long(text, &source::split_tests(text).1);
    assert!(too_long(&format!("{lines}{of_test}")).is_empty());
    assert_eq!(too_long(&format!("{lines}x\n{of_test}")).len(), 1);
    assert_eq!(too_wide(&format!("\n{}\n{}", "é".repeat(100), "x".repeat(101)))[0].line, 3);
    assert!(too_wide(&format!("//! | {} |", "x".repeat(101))).is_empty());
}

#[test]
fn the_path_of_a_file_is_the_path_of_its_module() {
    assert_eq!(module("src/store/sqlite/mod.rs"), ["store", "sqlite"]);
    assert_eq!(module("src/clock.rs"), ["clock"]);
    assert!(module("src/lib.rs").is_empty() && module("src/main.rs").is_empty());
    assert!(is_test_code("src/a/tests/b.rs") && is_test_code("tests/it/main.rs"));
    assert!(!is_test_code("src/a/contests.rs"));
}
