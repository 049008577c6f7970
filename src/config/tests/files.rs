//! Whole files: their faults, the advice on them, and any text at all.

use super::*;

// -- files

#[test]
fn a_file_that_cannot_be_read_is_its_own_problem() {
    let folder = tempfile::tempdir().unwrap();
    let load = |name: &str| {
        only(load(&Request { file: Some(folder.path().join(name)), ..Request::default() }))
    };
    let line = load("none.toml");
    assert!(line.contains("none.toml: there is no such file; create it"), "{line}");
    assert!(load("").contains("it cannot be read: "), "a folder");
    std::fs::write(folder.path().join("latin.toml"), b"namespace = \"\xe9\"\n").unwrap();
    assert!(load("latin.toml").contains("latin.toml: it is no UTF-8 from byte 13 on"));
    std::fs::write(folder.path().join("big.toml"), " ".repeat(2 * 1024 * 1024)).unwrap();
    assert!(load("big.toml").contains("big.toml: it has more than 1048576 bytes"));
}

#[test]
fn a_fault_of_syntax_is_told_with_line_and_column_and_not_repeated() {
    let line = only(load_file("namespace = \"x\"\n[store]\nurl = \"é\" hunter2\n"));
    assert!(line.starts_with("test.toml:3:11: this is no TOML: "), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
    let line = only(load_file("a = 1\na = 2\n"));
    assert!(line.starts_with("test.toml:2:1: this is no TOML: duplicate key"), "{line}");
    // What does not depend on the file is told all the same.
    let lines = refused(load_all(Some("="), &[("HANDOFF_X", "1")], &["y=1"]));
    assert_eq!(lines.len(), 3, "{lines:#?}");
}

#[test]
fn numbers_beyond_all_bounds_are_refused_and_never_rounded() {
    for value in ["9223372036854775808", "0xffffffffffffffff", "1e999", "inf", "nan", "2026-01-01"]
    {
        for key in [
            "receivers.crm.concurrency",
            "receivers.crm.retry.multiplier",
            "namespace",
            "operations.create-followup.subject",
        ] {
            let line = only(load_set_in_file(key, value));
            assert!(line.contains(&format!(": {key}: ")), "{line}");
        }
    }
}

/// A file that holds one key more than the defaults of the same kind.
fn load_set_in_file(key: &str, value: &str) -> Result<Loaded, ConfigError> {
    let (table, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut text = String::new();
    for line in DEFAULT_FILE.lines() {
        let inside = line.strip_prefix('[').map(|rest| rest.trim_end_matches(']'));
        if table.is_empty() && text.is_empty() {
            text.push_str(&format!("{last} = {value}\n"));
        }
        if !line.starts_with(&format!("{last} = ")) {
            text.push_str(line);
            text.push('\n');
        }
        if inside == Some(table) {
            text.push_str(&format!("{last} = {value}\n"));
        }
    }
    load_file(&text)
}

#[test]
fn all_problems_are_told_at_once() {
    let file = "namespace = \"X\"\nsurprise = 1\n[worker]\nlease = \"1m\"\npoll_interval = 5\n\
                [receivers.crm]\nkind = \"ftp\"\nconcurrency = 0\n\
                [receivers.crm.retry]\nmultiplier = 0\n[operations.a]\nreceiver = \"b\"\n";
    let error = load_all(Some(file), &[("HANDOFF_NOPE", "1")], &["log.level=loud"]).unwrap_err();
    let mut paths: Vec<&str> = error.problems.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "log.level",
        "namespace",
        "nope",
        "operations.a.receiver",
        "operations.a.schema",
        "operations.a.subject",
        "receivers.crm.concurrency",
        "receivers.crm.kind",
        "receivers.crm.retry.multiplier",
        "surprise",
        "worker.lease",
        "worker.poll_interval",
    ];
    assert_eq!(paths, expected, "{error}");
    assert!(error.to_string().starts_with("the configuration cannot be used; 12 problems:\n  "));
    let line = |path: &str| error.problems.iter().find(|p| p.path == path).and_then(|p| p.line);
    assert_eq!(line("worker.poll_interval"), Some(5));
    assert_eq!(line("receivers.crm.concurrency"), Some(8));
    assert_eq!(line("operations.a.schema"), Some(11), "the table that lacks it");
    assert_eq!(line("log.level"), None);
}

#[test]
fn what_a_file_says_cannot_forge_a_line_of_output() {
    let lines =
        refused(load_file("\"a\\nforged: all is well\\u001b[2J\" = 1\nnamespace = \"x\\ny\"\n"));
    assert!(lines.iter().all(|line| !line.contains(['\n', '\u{1b}'])), "{lines:?}");
    let long = format!("namespace = \"{}\"\n", "x".repeat(100_000));
    assert!(only(load_file(&long)).len() < 400);
}

// -- advice

#[test]
fn advice_is_given_where_something_allowed_is_doubtful() {
    let advice = |contract: &str| load_file(&with_contract(contract)).unwrap().advice;
    assert!(advice("mode = \"none\"").is_empty());
    assert!(advice("mode = \"idempotency_key\"\nwindow = \"7d\"\nverified = \"docs\"").is_empty());
    let said = advice("mode = \"idempotency_key\"\nwindow = \"1h\"\nverified = \"probe\"");
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains(
            "receivers.out.retry.max_elapsed = 1d is longer than the contract's window of 1h"
        ),
        "{said:?}"
    );
    let said = advice("mode = \"idempotency_key\"\nwindow = \"forever\"");
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains("receivers.out.contract.mode = idempotency_key is not verified"),
        "{said:?}"
    );
    let said = load_set(&["receivers.crm.retry.max_elapsed=1s"]).unwrap().advice;
    assert!(
        said.iter()
            .any(|line| line.contains("max_elapsed = 1s is shorter than the first delay of 5s")),
        "{said:?}"
    );
}

#[test]
fn rules_hold_every_type_and_receiver() {
    let rules = load(&Request::default()).unwrap().settings.rules(Seed(7));
    assert_eq!(rules.seed, Seed(7));
    assert!(rules.types.contains_key(&("create-followup".to_owned(), 1)));
    let crm = &rules.receivers["crm"];
    assert_eq!(crm.identity, "simulated:handoff-data/simulated-crm.db");
    assert_eq!(crm.terms.timeout, 10 * SECOND);
    assert_eq!(crm.terms.contract, Contract::idempotency_key(Window::Forever));
}

// -- anything at all

/// Lines that come near a configuration.
fn lines() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "namespace",
        "[store]",
        "[receivers.crm]",
        "[receivers.crm.contract]",
        "[receivers.crm.retry]",
        "[[receivers.crm.faults]]",
        "[operations.a]",
        "url",
        "kind",
        "path",
        "mode",
        "window",
        "faults",
        "schedule",
        "program",
        "receiver",
        "\"a.b[9]\"",
        "on",
        "fault",
        "timeout",
        "receivers",
        "initial",
    ]);
    let values = prop_oneof![
        Just(String::new()),
        Just(" = \"simulated\"".to_owned()),
        Just(" = \"command\"".to_owned()),
        Just(" = [\"/bin/true\"]".to_owned()),
        Just(" = [{ on = \"every\", fault = \"late\" }]".to_owned()),
        Just(" = \"upsert\"".to_owned()),
        Just(" = 07:32:00".to_owned()),
        "[0-9]{1,25}[smhd]?".prop_map(|text| format!(" = \"{text}\"")),
        "[-+0-9.e_xinfa]{1,10}".prop_map(|text| format!(" = {text}")),
        "\\PC{0,10}".prop_map(|text| format!(" = \"{text}\"")),
    ];
    prop::collection::vec((keys, values), 0..12)
        .prop_map(|lines| lines.into_iter().map(|(key, value)| format!("{key}{value}\n")).collect())
}

proptest! {
    #[test]
    fn no_file_panics_and_every_problem_fits_on_one_line(
        text in prop_oneof![any::<String>(), lines(), "[\\[\\]{}=\"'.,#a-c\n ]{0,60}"]
    ) {
        if let Err(error) = load_file(&text) {
            prop_assert!(!error.problems.is_empty());
            for problem in error.problems {
                prop_assert!(!problem.to_string().contains(['\n', '\r', '\u{1b}']), "{problem}");
            }
        }
    }

    #[test]
    fn no_variable_and_no_flag_panics(
        name in "[A-Z_]{0,20}|(RECEIVERS|OPERATIONS|STORE)(__[A-Z_]{0,12}){0,4}",
        key in "[a-z.\\[\\]-]{0,30}|\\PC{0,10}",
        value in any::<String>(),
    ) {
        let name = format!("HANDOFF_{name}");
        drop(load_all(None, &[(&name, &value)], &[&format!("{key}={value}")]));
    }
}

#[test]
fn deep_nesting_is_refused_and_does_not_exhaust_the_stack() {
    let deep = 100_000;
    for text in [
        format!("a = {}", "[".repeat(deep)),
        format!("a = {}", "{a=".repeat(deep)),
        format!("{} = 1", vec!["a"; deep].join(".")),
        format!("[{}]", vec!["a"; deep].join(".")),
    ] {
        assert!(!refused(load_file(&text)).is_empty());
    }
    assert!(!refused(faults(&"[".repeat(deep))).is_empty());
    assert!(!refused(faults(&"{a=".repeat(deep))).is_empty());
    assert!(!refused(faults(&format!("{{{} = 1}}", vec!["a"; deep].join(".")))).is_empty());
}
