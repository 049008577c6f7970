//! Whole configurations: what they mean, and what is refused with which words.

use super::keys::{Key, ROOT, Takes};
use super::problem::{Problems, join};
use super::*;
use crate::outbox::contract::{Contract, Exists, Mode, Verified, Window};
use crate::outbox::operation_type::OperationType;
use crate::outbox::retry::Delays;
use crate::receiver::fault::{On, What};
use crate::receiver::{Kind, simulated};
use crate::telemetry::{Format, Level};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Loads a file's text, with variables and flags.
fn load_all(
    file: Option<&str>,
    environment: &[(&str, &str)],
    set: &[&str],
) -> Result<Loaded, ConfigError> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let request = Request {
        file: None,
        set: set.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: environment.iter().map(owned).collect(),
    };
    let mut problems = Problems::default();
    let file = match file {
        Some(text) => file::parse(text, Some("test.toml"), &mut problems),
        None => Some(::config::Map::new()),
    };
    assemble(file.map(Layer), Path::new(""), &request, problems)
}

fn load_file(text: &str) -> Result<Loaded, ConfigError> {
    load_all(Some(text), &[], &[])
}

fn load_set(set: &[&str]) -> Result<Loaded, ConfigError> {
    load_all(None, &[], set)
}

/// The problems, each as a line.
fn refused(loaded: Result<Loaded, ConfigError>) -> Vec<String> {
    let problems = loaded.map(|loaded| loaded.values).unwrap_err().problems;
    problems.iter().map(ToString::to_string).collect()
}

/// The one problem.
fn only(loaded: Result<Loaded, ConfigError>) -> String {
    let lines = refused(loaded);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines.concat()
}

/// The values in effect, with their origins, by path.
fn values(loaded: &Loaded) -> BTreeMap<&str, (&str, &str)> {
    let mut by_path = BTreeMap::new();
    for shown in &loaded.values {
        by_path.insert(shown.path.as_str(), (shown.value.as_str(), shown.origin.as_str()));
    }
    by_path
}

/// A command receiver with this contract and the type that goes to it.
fn with_contract(contract: &str) -> String {
    format!(
        "[receivers.out]\nkind = \"command\"\nprogram = [\"/bin/true\"]\n\
         [receivers.out.contract]\n{contract}\n\
         [operations.note]\nreceiver = \"out\"\nsubject = \"id\"\n\
          schema = \"builtin:create-followup\"\n"
    )
}

fn contract_of(contract: &str) -> Result<Contract, ConfigError> {
    load_file(&with_contract(contract)).map(|loaded| loaded.settings.receivers[0].contract.clone())
}

fn crm(loaded: &Loaded) -> &crate::receiver::Settings {
    loaded.settings.receivers.iter().find(|receiver| receiver.name == "crm").unwrap()
}

fn simulated_crm(loaded: &Loaded) -> &simulated::Settings {
    match &crm(loaded).kind {
        Kind::Simulated(settings) => settings,
        Kind::Command(_) => panic!("not simulated"),
    }
}

// -- defaults

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let loaded = load(&Request::default()).unwrap();
    let settings = &loaded.settings;
    assert_eq!(settings.namespace, "harbor");
    assert_eq!(settings.store.url, "sqlite:handoff-data/handoff.db");
    assert_eq!(settings.store.busy_timeout, 5 * SECOND);
    assert!(!settings.store.explicit);
    assert_eq!(settings.worker.poll_interval, SECOND);
    assert_eq!(settings.worker.shutdown_grace, 25 * SECOND);
    assert_eq!((settings.log.format, settings.log.level), (Format::Auto, Level::Info));
    let crm = crm(&loaded);
    assert_eq!((crm.timeout, crm.concurrency), (10 * SECOND, 64));
    assert_eq!(crm.contract, Contract::idempotency_key(Window::Forever));
    let delays =
        Delays::Exponential { initial: 5 * SECOND, multiplier: 3.0, max_interval: DAY / 6 };
    assert_eq!(crm.retry.delays, delays);
    assert_eq!((crm.retry.max_attempts, crm.retry.max_elapsed), (12, DAY));
    assert_eq!(crm.retry.retry_after_ceiling, DAY);
    assert_eq!(simulated_crm(&loaded).path, Path::new("handoff-data/simulated-crm.db"));
    let [kind] = settings.operations.as_slice() else { panic!("one type") };
    assert_eq!(
        (kind.name.as_str(), kind.version, kind.receiver.as_str()),
        ("create-followup", 1, "crm")
    );
    assert_eq!((kind.subject.as_str(), &kind.trim), ("case_id", &vec!["title".to_owned()]));
    assert!(!kind.independent_versions && kind.approval_max_age.is_none());
    assert!(loaded.values.iter().all(|shown| shown.origin == "default"));
    assert_eq!(loaded.advice.len(), 1, "{:?}", loaded.advice);
    assert!(loaded.advice[0].contains("receivers.crm is simulated"));
}

#[test]
fn the_default_file_parses_to_exactly_the_defaults() {
    let defaults = load(&Request::default()).unwrap();
    let mut written = load_file(DEFAULT_FILE).unwrap();
    assert!(written.settings.store.explicit, "someone who names the place chose it");
    written.settings.store.explicit = false;
    assert_eq!(format!("{:?}", defaults.settings), format!("{:?}", written.settings));
    let plain = |loaded: &Loaded| -> Vec<(String, String)> {
        loaded.values.iter().map(|shown| (shown.path.clone(), shown.value.clone())).collect()
    };
    assert_eq!(plain(&defaults), plain(&written), "in the same order");
}

#[test]
fn the_default_file_holds_every_known_key_and_no_other() {
    // Optional keys stand there as `# key = value`; taking off the mark must give TOML.
    let keys = |line: &str| {
        line.strip_prefix("# ")
            .and_then(|rest| {
                rest.split_once(" = ")
                    .map(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            })
            .unwrap_or(false)
    };
    let text: Vec<&str> =
        DEFAULT_FILE.lines().map(|line| if keys(line) { &line[2..] } else { line }).collect();
    let mut problems = Problems::default();
    let tree = file::parse(&text.join("\n"), None, &mut problems).unwrap();
    assert!(problems.is_empty(), "{}", problems.into_error());
    let mut missing = Vec::new();
    compare(ROOT, &tree, "", &mut missing);
    assert!(missing.is_empty(), "not in the default file: {missing:?}");
}

fn compare(
    keys: &'static [Key],
    tree: &::config::Map<String, ::config::Value>,
    path: &str,
    missing: &mut Vec<String>,
) {
    for key in keys.iter().filter(|key| !matches!(key.takes, Takes::Later)) {
        let at = join(path, key.name);
        match (key.takes, tree.get(key.name).map(|value| &value.kind)) {
            (_, None) => missing.push(at),
            (Takes::Table(keys), Some(::config::ValueKind::Table(inside))) => {
                compare(keys, inside, &at, missing);
            }
            (Takes::Named(keys), Some(::config::ValueKind::Table(named))) => {
                assert_eq!(named.len(), 1, "{at}");
                for value in named.values() {
                    let ::config::ValueKind::Table(inside) = &value.kind else { panic!("{at}") };
                    compare(keys, inside, &at, missing);
                }
            }
            (Takes::Tables(keys), Some(_)) => {
                // These are told in a comment.
                let named = |key: &&Key| {
                    DEFAULT_FILE.contains(&format!("{} = ", key.name))
                        || DEFAULT_FILE.contains(&format!("`{}`", key.name))
                };
                missing
                    .extend(keys.iter().filter(|key| !named(key)).map(|key| join(&at, key.name)));
            }
            (_, Some(_)) => {}
        }
    }
}

#[test]
fn every_leaf_in_effect_is_shown_once_and_always_in_the_same_order() {
    let first = load_file(&with_contract("mode = \"upsert\"\nwindow = \"1h\"")).unwrap();
    let paths: Vec<&str> = first.values.iter().map(|shown| shown.path.as_str()).collect();
    let expected = [
        "namespace",
        "store.url",
        "store.busy_timeout",
        "server.listen",
        "worker.poll_interval",
        "worker.shutdown_grace",
        "log.format",
        "log.level",
        "receivers.out.kind",
        "receivers.out.program",
        "receivers.out.environment",
        "receivers.out.timeout",
        "receivers.out.concurrency",
        "receivers.out.contract.mode",
        "receivers.out.contract.window",
        "receivers.out.contract.atomic",
        "receivers.out.contract.settle_delay",
        "receivers.out.contract.same_account",
        "receivers.out.contract.verified",
        "receivers.out.retry.initial",
        "receivers.out.retry.multiplier",
        "receivers.out.retry.max_interval",
        "receivers.out.retry.max_attempts",
        "receivers.out.retry.max_elapsed",
        "receivers.out.retry.retry_after_ceiling",
        "operations.note.version",
        "operations.note.receiver",
        "operations.note.subject",
        "operations.note.schema",
        "operations.note.trim",
        "operations.note.versions",
    ];
    assert_eq!(paths.iter().copied().collect::<BTreeSet<_>>(), expected.into_iter().collect());
    assert_eq!(paths.len(), expected.len());
    for _ in 0..5 {
        let again = load_file(&with_contract("mode = \"upsert\"\nwindow = \"1h\"")).unwrap();
        assert_eq!(again.values, first.values);
    }
}

// -- layers

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "namespace = \"file\"\n[log]\nlevel = \"warn\"\n[worker]\npoll_interval = \"2s\"\n";
    let environment = [("HANDOFF_LOG__LEVEL", "error"), ("HANDOFF_NAMESPACE", "env")];
    let flags = ["namespace=flag", "namespace=last"];
    let loaded = load_all(Some(file), &environment, &flags).unwrap();
    let shown = values(&loaded);
    assert_eq!(shown["namespace"], ("\"last\"", "--set"));
    assert_eq!(shown["log.level"], ("\"error\"", "environment HANDOFF_LOG__LEVEL"));
    assert_eq!(shown["worker.poll_interval"], ("\"2s\"", "test.toml"));
    assert_eq!(shown["worker.shutdown_grace"], ("\"25s\"", "default"));
    assert_eq!(loaded.settings.namespace, "last");
    assert_eq!(loaded.settings.log.level, Level::Error);
}

#[test]
fn built_in_receivers_and_types_exist_only_where_the_file_defines_none() {
    let loaded = load_file("[receivers]\n[operations]\n").unwrap();
    assert_eq!(loaded.settings.receivers.len(), 1);
    let loaded = load_file(&with_contract("mode = \"none\"")).unwrap();
    assert_eq!(loaded.settings.receivers.len(), 1);
    assert_eq!(loaded.settings.receivers[0].name, "out");
    assert_eq!(loaded.settings.operations[0].name, "note");
    // A receiver named like the built-in one takes nothing of its own from it.
    let lines = refused(load_file("[receivers.crm]\nkind = \"simulated\"\n"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("test.toml:1: receivers.crm.path: missing;"), "{}", lines[0]);
    let loaded = load_file("[receivers.crm]\nkind = \"simulated\"\npath = \"x.db\"\n").unwrap();
    assert_eq!(crm(&loaded).contract, Contract::none());
    assert_eq!(values(&loaded)["receivers.crm.contract.mode"], ("\"none\"", "default"));
    assert_eq!(values(&loaded)["receivers.crm.timeout"], ("\"10s\"", "default"));
}

#[test]
fn a_built_in_type_whose_receiver_is_gone_says_what_to_do() {
    let line = only(load_file("[receivers.out]\nkind = \"command\"\nprogram = [\"/bin/true\"]\n"));
    assert_eq!(
        line,
        "default: operations.create-followup.receiver = \"crm\": there is no such receiver; this \
         type is built in: define types of your own in the file, or set this key"
    );
    let file = "[receivers.out]\nkind = \"command\"\nprogram = [\"/bin/true\"]\n";
    let variable = [("HANDOFF_OPERATIONS__CREATE_FOLLOWUP__RECEIVER", "out")];
    assert!(load_all(Some(file), &variable, &[]).is_ok());
}

#[test]
fn the_environment_and_flags_override_the_built_in_receiver_too() {
    let loaded = load_set(&["receivers.crm.contract.mode=none", "receivers.crm.concurrency=2"]);
    let loaded = loaded.unwrap();
    assert_eq!(crm(&loaded).contract, Contract::none(), "the default window is simply gone");
    assert_eq!(crm(&loaded).concurrency, 2);
    let flags = ["receivers.crm.kind=command", "receivers.crm.program=[\"/bin/x\", \"a=b\"]"];
    let loaded = load_set(&flags).unwrap();
    let Kind::Command(command) = &crm(&loaded).kind else { panic!("no command") };
    assert_eq!(command.program, ["/bin/x", "a=b"]);
    let loaded = load_set(&["receivers.crm.retry.schedule=[\"1s\", \"25d\"]"]).unwrap();
    assert_eq!(crm(&loaded).retry.delays, Delays::Schedule(vec![SECOND, 25 * DAY]));
    assert!(!values(&loaded).contains_key("receivers.crm.retry.initial"));
}

#[test]
fn an_explicit_place_of_the_store_is_known_as_such() {
    for explicit in [
        load_set(&["store.url=sqlite:app.db"]),
        load_all(None, &[("HANDOFF_STORE__URL", "sqlite:app.db")], &[]),
        load_file("[store]\nurl = \"sqlite:app.db\""),
    ] {
        let settings = explicit.unwrap().settings.store;
        assert_eq!((settings.url.as_str(), settings.explicit), ("sqlite:app.db", true));
    }
}

#[test]
fn keys_are_case_sensitive_and_names_are_never_paths() {
    let line = only(load_file("Namespace = \"x\"\n"));
    assert!(
        line.starts_with("test.toml:1: Namespace: unknown key; did you mean namespace?"),
        "{line}"
    );
    for key in ["\"log.level\"", "\"receivers[99999999999]\"", "\"\""] {
        let line = only(load_file(&format!("{key} = 1\n")));
        assert!(line.contains("unknown key"), "{line}");
    }
    let loaded =
        load_file("[receivers.crm]\nkind=\"simulated\"\npath=\"Some/Where.DB\"\n").unwrap();
    assert_eq!(simulated_crm(&loaded).path, Path::new("Some/Where.DB"));
}

// -- T116: environment overrides and types

#[test]
fn booleans_from_the_environment_are_true_or_false_and_nothing_else() {
    let name = "HANDOFF_RECEIVERS__CRM__CONTRACT__SAME_ACCOUNT";
    let loaded = load_all(None, &[(name, "true")], &[]).unwrap();
    assert!(crm(&loaded).contract.same_account);
    for text in ["FALSE", "False", "0", "1", "no", "yes", "on", "", " true", "\"true\""] {
        let line = only(load_all(None, &[(name, text)], &[]));
        let start = format!("environment {name}: receivers.crm.contract.same_account = ");
        assert!(line.starts_with(&start), "{line}");
        assert!(line.contains("must be true or false"), "{line}");
    }
}

#[test]
fn whole_numbers_from_the_environment_are_plain_digits() {
    let name = "HANDOFF_RECEIVERS__CRM__CONCURRENCY";
    assert_eq!(crm(&load_all(None, &[(name, "5")], &[]).unwrap()).concurrency, 5);
    for text in [
        "abc",
        "1e3",
        " 5 ",
        "5s",
        "",
        "5.0",
        "+5",
        "05",
        "0x5",
        "1_0",
        "-5",
        "0",
        "1025",
        "99999999999999999999",
        "٥",
    ] {
        let line = only(load_all(None, &[(name, text)], &[]));
        assert!(line.contains("receivers.crm.concurrency = "), "{line}");
        assert!(line.contains("must be a whole number from 1 to 1024"), "{text}: {line}");
    }
}

#[test]
fn texts_from_the_environment_and_flags_are_taken_exactly() {
    for text in ["0123", "1e5", "true", "[a]", "{}", "a # b", "\"quoted\"", "'x'", "a=b", " blank "]
    {
        let loaded = load_all(None, &[("HANDOFF_RECEIVERS__CRM__PATH", text)], &[]).unwrap();
        assert_eq!(simulated_crm(&loaded).path, Path::new(text));
        let loaded = load_set(&[&format!("receivers.crm.path={text}")]).unwrap();
        assert_eq!(simulated_crm(&loaded).path, Path::new(text));
    }
}

#[test]
fn numbers_lists_and_tables_from_texts_follow_their_key() {
    let number = |text| {
        let name = "HANDOFF_RECEIVERS__CRM__RETRY__MULTIPLIER";
        load_all(None, &[(name, text)], &[]).map(|loaded| crm(&loaded).retry.delays.clone())
    };
    for (text, expected) in [("2", 2.0), ("1.5", 1.5)] {
        let Delays::Exponential { multiplier, .. } = number(text).unwrap() else { panic!("list") };
        assert!((multiplier - expected).abs() < 1e-9);
    }
    for text in ["0.9", "-2", "1e3", "nan", "inf", ".5", "2.", "1001", "x"] {
        let line = only(number(text).map(|_| load(&Request::default()).unwrap()));
        assert!(line.contains("must be a number from 1 to 1000"), "{text}: {line}");
    }
    let trim = "HANDOFF_OPERATIONS__CREATE_FOLLOWUP__TRIM";
    let loaded = load_all(None, &[(trim, "[\"title\", 'case_id']")], &[]).unwrap();
    assert_eq!(loaded.settings.operations[0].trim, ["title", "case_id"]);
    for text in ["title", "title,case_id", "", "[\"title\"", "5", "[]\nx = 1", "[] x"] {
        let line = only(load_all(None, &[(trim, text)], &[]));
        assert!(line.contains("trim = ") && line.contains("must be a list"), "{text}: {line}");
    }
    let behaviour = "HANDOFF_RECEIVERS__CRM__BEHAVIOUR";
    let loaded =
        load_all(None, &[(behaviour, "{ unique = false, mode = \"none\" }")], &[]).unwrap();
    assert_eq!(simulated_crm(&loaded).unique, Some(false));
    assert_eq!(simulated_crm(&loaded).mode, Some(Mode::None));
    let line = only(load_all(None, &[(behaviour, "{ uniq = false }")], &[]));
    assert!(line.contains("behaviour.uniq: unknown key; did you mean unique?"), "{line}");
}

#[test]
fn unknown_variables_are_refused_and_their_values_never_repeated() {
    for name in [
        "HANDOFF_X",
        "HANDOFF_TOKEN",
        "HANDOFF_",
        "HANDOFF_namespace",
        "HANDOFF_STORE_URL",
        "HANDOFF___X",
        "HANDOFF_RECEIVERS",
        "HANDOFF_TESTS",
    ] {
        let lines = refused(load_all(None, &[(name, "hunter2")], &[]));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(&format!("environment {name}: ")), "{}", lines[0]);
        assert!(name == "HANDOFF_RECEIVERS" || !lines[0].contains("hunter2"), "{}", lines[0]);
    }
    let line = only(load_all(None, &[("HANDOFF_WORKER__POLL_INTERVALL", "1s")], &[]));
    assert!(
        line.contains("worker.poll_intervall: unknown key; did you mean poll_interval?"),
        "{line}"
    );
    let others =
        [("HANDOFF_TEST_FAULT", "x"), ("PATH", "/bin"), ("handoff_x", "1"), ("XHANDOFF_Y", "2")];
    assert!(load_all(None, &others, &[]).is_ok());
}

#[test]
fn names_with_hyphens_are_reached_through_the_environment() {
    let file = |name: &str| {
        format!(
            "[receivers.{name}]\nkind = \"simulated\"\npath = \"x\"\n\
             [operations.a]\nreceiver = \"{name}\"\nsubject = \"s\"\n\
             schema = \"builtin:create-followup\"\n"
        )
    };
    for (name, variable) in [
        ("crm-east", "HANDOFF_RECEIVERS__CRM_EAST__CONTRACT__MODE"),
        ("a--b", "HANDOFF_RECEIVERS__A__B__CONTRACT__MODE"),
        ("a-", "HANDOFF_RECEIVERS__A___CONTRACT__MODE"),
        ("contract", "HANDOFF_RECEIVERS__CONTRACT__CONTRACT__MODE"),
    ] {
        let loaded = load_all(Some(&file(name)), &[(variable, "create_only")], &[]).unwrap();
        let contract = &loaded.settings.receivers[0].contract;
        assert_eq!(contract.mode, Mode::CreateOnly, "{name}");
    }
    // A name that nothing defines lacks all that a receiver needs.
    let line = only(load_all(None, &[("HANDOFF_RECEIVERS__CMR__TIMEOUT", "1s")], &[]));
    assert!(
        line.starts_with(
            "environment HANDOFF_RECEIVERS__CMR__TIMEOUT: receivers.cmr.kind: missing;"
        ),
        "{line}"
    );
    let line = only(load_all(None, &[("HANDOFF_RECEIVERS__CRM__TIMOUT", "1s")], &[]));
    assert!(line.contains("receivers.crm.timout: unknown key; did you mean timeout?"), "{line}");
    let line = only(load_all(None, &[("HANDOFF_RECEIVERS__CRM__RATE_LIMIT__COUNT", "1")], &[]));
    assert!(line.contains("receivers.crm.rate_limit: not in this version"), "{line}");
}

#[test]
fn a_flag_without_a_value_or_with_a_wrong_path_is_refused() {
    let line = only(load_set(&["namespace=x", "hunter2"]));
    assert!(line.starts_with("--set: number 2 is not KEY=VALUE; write for example"), "{line}");
    for flag in ["=x", ".=x", "store.=x", "store..url=x", "nope.a.b.c=x", " namespace=x"] {
        let line = only(load_set(&[flag]));
        assert!(line.starts_with("--set: ") && line.contains("unknown key"), "{line}");
    }
    let line = only(load_set(&["namespace.x.y=1"]));
    assert!(
        line.contains("namespace = { \"x.y\" = \"1\" }: must be a text that matches"),
        "{line}"
    );
    let line = only(load_set(&[&format!("{}=1", "store.".repeat(100_000))]));
    assert!(line.contains("unknown key"), "{line}");
}

// -- T117: durations

#[test]
fn durations_need_a_unit_and_lie_in_their_range() {
    for (value, expected) in [
        ("\"30s\"", 30 * SECOND),
        ("\"30m\"", 1_800 * SECOND),
        ("\"1m30s\"", 90 * SECOND),
        ("\"1.5s\"", 3 * SECOND / 2),
        ("\"5 minutes\"", 300 * SECOND),
    ] {
        let loaded = load_file(&format!("[worker]\nshutdown_grace = {value}\n")).unwrap();
        assert_eq!(loaded.settings.worker.shutdown_grace, expected, "{value}");
    }
    for value in [
        "30",
        "\"30\"",
        "\"30M\"",
        "\"-5s\"",
        "\"0\"",
        "\"25d\"",
        "0",
        "1.5",
        "true",
        "\"\"",
        "[\"1s\"]",
        "2026-01-01",
        "\"1000000000000s\"",
        "\"584942417355y\"",
        "\"18446744073709551615s 1000000000ns\"",
    ] {
        let line = only(load_file(&format!("[worker]\nshutdown_grace = {value}\n")));
        assert!(line.starts_with("test.toml:2: worker.shutdown_grace"), "{line}");
        let range = "must be a duration from 0s to 1h, with its unit";
        assert!(line.contains(range) || line.contains("no key takes a date"), "{line}");
    }
    let long = with_contract("mode = \"upsert\"\nwindow = \"25d\"\n");
    let loaded = load_file(&long).unwrap();
    assert_eq!(
        loaded.settings.receivers[0].contract,
        Contract::upsert(Window::For(25 * DAY), None)
    );
    let age = load_set(&["operations.create-followup.approval_max_age=60d"]).unwrap();
    assert_eq!(age.settings.operations[0].approval_max_age, Some(60 * DAY));
}

// -- types and ranges, key by key

#[test]
fn each_wrong_value_is_refused_with_its_path_and_what_is_allowed() {
    for (table, key, value, allowed) in [
        ("", "namespace", "5", "[a-z][a-z0-9-]{0,39}"),
        ("", "namespace", "\"Harbor\"", "[a-z][a-z0-9-]{0,39}"),
        ("", "namespace", "\"\"", "[a-z][a-z0-9-]{0,39}"),
        ("", "namespace", "{ a = 1 }", "[a-z][a-z0-9-]{0,39}"),
        ("", "store", "\"sqlite:x\"", "must be a table"),
        ("", "receivers", "[]", "must be a table"),
        ("", "operations", "1", "must be a table"),
        ("store", "busy_timeout", "true", "from 1ms to 20s"),
        ("worker", "poll_interval", "1.7", "from 10ms to 1h"),
        ("worker", "poll_interval", "\"9ms\"", "from 10ms to 1h"),
        ("worker", "poll_interval", "\"61m\"", "from 10ms to 1h"),
        ("log", "format", "\"JSON\"", "\"auto\" or \"text\" or \"json\""),
        ("log", "level", "3", "\"error\" or \"warn\" or \"info\" or \"debug\" or \"trace\""),
        ("server", "listen", "[\"127.0.0.1:8787\"]", "not in this version"),
        ("server", "listen", "\"\"", "not in this version"),
    ] {
        let text = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let line = only(load_file(&format!("{text}{key} = {value}\n")));
        let path = join(table, key);
        let start = format!("test.toml:{}: {path} = ", if table.is_empty() { 1 } else { 2 });
        assert!(line.starts_with(&start) && line.contains(allowed), "{line}");
    }
}

#[test]
fn each_wrong_value_of_a_receiver_is_refused() {
    refuses_each(&[
        (
            "receivers.crm.kind",
            "\"http\"",
            "not in this version; choose \"simulated\" or \"command\"",
        ),
        ("receivers.crm.kind", "\"crm\"", "\"simulated\" or \"command\""),
        ("receivers.crm.timeout", "\"2h\"", "from 1ms to 1h"),
        ("receivers.crm.concurrency", "1.0", "from 1 to 1024"),
        ("receivers.crm.concurrency", "\"30\"", "from 1 to 1024"),
        ("receivers.crm.concurrency", "true", "from 1 to 1024"),
        ("receivers.crm.concurrency", "65537", "from 1 to 1024"),
        ("receivers.crm.path", "\"\"", "a text, not empty"),
        ("receivers.crm.behaviour", "\"lies\"", "must be a table"),
        ("receivers.crm.behaviour.unique", "1", "true or false"),
        ("receivers.crm.behaviour.mode", "\"look_up\"", "not in this version"),
        ("receivers.crm.program", "[\"/bin/true\"]", "senseless for kind = \"simulated\""),
    ]);
}

#[test]
fn each_wrong_value_of_a_contract_is_refused() {
    refuses_each(&[
        ("receivers.crm.contract", "\"none\"", "must be a table; write [receivers.crm.contract]"),
        ("receivers.crm.contract.mode", "\"look_up\"", "not in this version"),
        (
            "receivers.crm.contract.mode",
            "true",
            "\"none\" or \"idempotency_key\" or \"create_only\" or \"upsert\"",
        ),
        ("receivers.crm.contract.window", "\"always\"", "\"forever\""),
        (
            "receivers.crm.contract.window",
            "\"10s\"",
            "must be longer than timeout and settle_delay, 10s",
        ),
        ("receivers.crm.contract.settle_delay", "\"31d\"", "from 0s to 30d"),
        ("receivers.crm.contract.atomic", "\"no\"", "true or false"),
        ("receivers.crm.contract.atomic", "false", "requires a settle_delay"),
        ("receivers.crm.contract.exists", "\"proof\"", "senseless without mode = \"create_only\""),
        ("receivers.crm.contract.verified", "true", "\"probe\" or \"docs\" or \"no\""),
    ]);
}

#[test]
fn each_wrong_value_of_a_retry_is_refused() {
    refuses_each(&[
        ("receivers.crm.retry.initial", "\"0s\"", "from 1ms to 365d"),
        ("receivers.crm.retry.initial", "\"5h\"", "must not be longer than max_interval"),
        ("receivers.crm.retry.max_interval", "\"366d\"", "from 1ms to 365d"),
        ("receivers.crm.retry.multiplier", "0.5", "from 1 to 1000"),
        ("receivers.crm.retry.multiplier", "\"3\"", "from 1 to 1000"),
        ("receivers.crm.retry.schedule", "[]", "1 to 1000 durations"),
        ("receivers.crm.retry.max_attempts", "0", "from 1 to 10000"),
        ("receivers.crm.retry.max_attempts", "1e1", "from 1 to 10000"),
        ("receivers.crm.retry.max_elapsed", "\"3651d\"", "from 1ms to 3650d"),
        ("receivers.crm.retry.retry_after_ceiling", "86400", "from 1ms to 365d"),
    ]);
}

#[test]
fn each_wrong_value_of_a_type_is_refused() {
    refuses_each(&[
        ("operations.create-followup.version", "0", "from 1 to 999"),
        ("operations.create-followup.version", "\"1\"", "from 1 to 999"),
        (
            "operations.create-followup.receiver",
            "\"cmr\"",
            "there is no such receiver; write the name of a receiver; there are crm",
        ),
        ("operations.create-followup.receiver", "\"CRM\"", "[a-z]"),
        ("operations.create-followup.subject", "[\"a\"]", "a text, not empty"),
        ("operations.create-followup.schema", "\"builtin:nope\"", "builtin:create-followup"),
        (
            "operations.create-followup.schema",
            "\"no/such.json\"",
            "no/such.json: there is no such file",
        ),
        ("operations.create-followup.trim", "\"title\"", "must be a list"),
        (
            "operations.create-followup.subject_pattern",
            "\"a(\"",
            "must be a regular expression (unclosed group)",
        ),
        ("operations.create-followup.subject_pattern", "\"a)|(b\"", "must be a regular expression"),
        ("operations.create-followup.subject_pattern", "\"a b\"", "visible ASCII"),
        ("operations.create-followup.approval_max_age", "7", "from 1ms to 36500d"),
        ("operations.create-followup.versions", "true", "\"dependent\" or \"independent\""),
    ]);
}

/// Each value stands beside all defaults, so that nothing else is wrong.
fn refuses_each(cases: &[(&str, &str, &str)]) {
    for (key, value, allowed) in cases {
        let line = only(load_file(&replaced(key, value)));
        assert!(line.contains(&format!(": {key} = ")) && line.contains(allowed), "{value}: {line}");
    }
}

#[test]
fn an_item_of_a_list_is_told_by_its_place() {
    let line = only(load_file(&replaced("operations.create-followup.trim", "[\"a\", 5]")));
    assert!(line.contains("create-followup.trim[1] = 5: must be a text"), "{line}");
    let line = only(load_file(&replaced("receivers.crm.retry.schedule", "[\"1s\", 5]")));
    assert!(line.contains("crm.retry.schedule[1] = 5: must be a duration"), "{line}");
}

/// The default file with one value replaced or added.
fn replaced(key: &str, value: &str) -> String {
    let mut tree: toml::Table = toml::from_str(DEFAULT_FILE).unwrap();
    let value: toml::Table = toml::from_str(&format!("value = {value}")).unwrap();
    let levels: Vec<&str> = key.split('.').collect();
    let (last, tables) = levels.split_last().unwrap();
    let mut table = &mut tree;
    for level in tables {
        let inside = table.entry(*level).or_insert_with(|| toml::Table::new().into());
        table = inside.as_table_mut().unwrap();
    }
    if *last == "schedule" {
        for key in ["initial", "multiplier", "max_interval"] {
            table.remove(key);
        }
    }
    table.insert((*last).to_owned(), value["value"].clone());
    toml::to_string(&tree).unwrap()
}

#[test]
fn a_store_url_is_a_file_and_its_password_is_never_repeated() {
    for (url, allowed, hidden) in [
        ("postgres://user:hunter2@host/db", "PostgreSQL is not in this version", true),
        ("postgresql://user:hunter2@host/db", "PostgreSQL is not in this version", true),
        ("mysql://user:hunter2@host/db", "\"sqlite:PATH\"", true),
        ("handoff.db", "\"sqlite:PATH\"", false),
        ("sqlite:", "the file is missing", false),
        ("sqlite:folder/", "the file is missing", false),
        ("sqlite://data.db", "one slash", false),
        ("sqlite::memory:", "plain file", false),
        ("sqlite:file:x?mode=memory", "plain file", false),
        ("sqlite:x.db?mode=rwc", "parameters", false),
    ] {
        let line = only(load_set(&[&format!("store.url={url}")]));
        assert!(line.contains("store.url") && line.contains(allowed), "{line}");
        assert_eq!(line.contains(url), !hidden, "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    assert!(load_set(&["store.url=sqlite:/var/lib/handoff/handoff.db"]).is_ok());
}

// -- known, later, unknown

#[test]
fn keys_of_later_versions_are_refused_by_name_and_their_values_never_repeated() {
    for key in [
        "sources",
        "drafters",
        "review",
        "alerts",
        "retention",
        "reconcile",
        "server.allowed_hosts",
        "server.tls",
        "worker.lease",
        "receivers.crm.rate_limit",
        "receivers.crm.circuit_breaker",
        "receivers.crm.extends",
        "receivers.crm.base_url",
        "receivers.crm.auth",
        "receivers.crm.request",
        "receivers.crm.look_up",
        "receivers.crm.rules",
        "receivers.crm.contract.scope",
        "receivers.crm.contract.conflict_detected",
        "receivers.crm.contract.caches_failures",
        "receivers.crm.contract.look_up",
        "receivers.crm.contract.polls",
        "receivers.crm.contract.interval",
        "operations.create-followup.ordering",
        "operations.create-followup.marks",
        "operations.create-followup.callback",
    ] {
        for value in ["{ token = \"hunter2\" }", "\"hunter2\"", "{}"] {
            let line = only(load_file(&replaced(key, value)));
            assert!(line.ends_with(&format!(": {key}: not in this version; remove it")), "{line}");
        }
        let line = only(load_set(&[&format!("{key}=hunter2")]));
        assert_eq!(line, format!("--set: {key}: not in this version; remove it"));
    }
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_and_all_known_ones() {
    for (key, words) in [
        ("nmaespace", "unknown key; did you mean namespace?"),
        (
            "nonsense",
            "unknown key; remove it; \
             at the top there are namespace, store, server, worker, log, receivers, operations",
        ),
        (
            "worker.pol_interval",
            "did you mean poll_interval? in worker there are poll_interval, shutdown_grace",
        ),
        ("worker.leese", "unknown key; remove it"),
        ("server.lisen", "unknown key; did you mean listen?"),
        ("receivers.crm.time_out", "did you mean timeout?"),
        ("receivers.crm.contract.windows", "did you mean window?"),
        ("receivers.crm.retry.max-attempts", "did you mean max_attempts?"),
        ("operations.create-followup.reciever", "did you mean receiver?"),
    ] {
        let line = only(load_file(&replaced(key, "\"hunter2\"")));
        assert!(line.contains(&format!(": {key}: ")) && line.contains(words), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    let lines = refused(load_file(
        "[receivers.crm]\nkind=\"simulated\"\npath=\"x\"\n\
         faults=[\n{ on = \"every\", fault = \"late\", dealy = \"1s\" }]\n",
    ));
    let start = "test.toml:5: receivers.crm.faults[0].dealy: unknown key; did you mean delay?";
    assert!(lines[0].starts_with(start), "{lines:?}");
}

#[test]
fn names_of_receivers_and_types_follow_the_grammar() {
    for name in ["CRM", "1crm", "\"a b\"", "\"\"", "a_b", "\"a.b\"", "\"x\\ny\""] {
        for table in ["receivers", "operations"] {
            let lines = refused(load_file(&format!("[{table}.{name}]\n")));
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with("test.toml:1: "), "{lines:?}");
            assert!(lines[0].contains("the name must match [a-z][a-z0-9-]{0,39}"), "{lines:?}");
            assert!(!lines[0].contains('\n'));
        }
    }
}

// -- contracts

#[test]
fn contracts_are_read_as_declared() {
    let with = |contract: Contract| Contract { verified: Verified::No, ..contract };
    for (text, expected) in [
        ("mode = \"none\"", Contract::none()),
        (
            "mode = \"idempotency_key\"\nwindow = \"forever\"",
            Contract::idempotency_key(Window::Forever),
        ),
        ("mode = \"create_only\"", Contract::create_only(Window::For(30 * DAY), Exists::Ask)),
        (
            "mode = \"create_only\"\nwindow = \"1d\"\nexists = \"proof\"",
            Contract::create_only(Window::For(DAY), Exists::Proof),
        ),
        ("mode = \"upsert\"\nwindow = \"1h\"", Contract::upsert(Window::For(DAY / 24), None)),
        (
            "mode = \"none\"\natomic = false\nsettle_delay = \"1m\"\n\
             same_account = true\nverified = \"docs\"",
            Contract {
                atomic: false,
                settle_delay: 60 * SECOND,
                same_account: true,
                verified: Verified::Docs,
                ..Contract::none()
            },
        ),
    ] {
        let read = contract_of(text).unwrap();
        if read.verified == Verified::No {
            assert_eq!(read, with(expected), "{text}");
        } else {
            assert_eq!(read, expected, "{text}");
        }
    }
}

#[test]
fn senseless_contracts_are_refused() {
    for (text, path, words) in [
        ("", "contract.mode", "missing; write for example mode = \"none\""),
        ("window = \"1d\"", "contract.mode", "missing"),
        ("mode = \"idempotency_key\"", "contract.window", "missing; write how long"),
        ("mode = \"upsert\"", "contract.window", "missing"),
        ("mode = \"none\"\nwindow = \"1d\"", "contract.window", "senseless without a promise"),
        (
            "mode = \"upsert\"\nwindow = \"1m\"\nsettle_delay = \"50s\"",
            "contract.window",
            "timeout and settle_delay, 1m;",
        ),
        (
            "mode = \"create_only\"\nsettle_delay = \"30d\"",
            "contract.window",
            "must be longer than timeout and settle_delay, 30d10s",
        ),
        ("mode = \"upsert\"\nwindow = \"1d\"\nexists = \"ask\"", "contract.exists", "create_only"),
        ("mode = \"none\"\natomic = false", "contract.atomic", "settle_delay"),
    ] {
        let lines = refused(load_file(&with_contract(text)));
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        assert!(lines[0].starts_with("test.toml:"), "{lines:?}");
        assert!(lines[0].contains(&format!("receivers.out.{path}")), "{lines:?}");
        assert!(lines[0].contains(words), "{text}: {lines:?}");
    }
    let lines = refused(load_file(&with_contract(
        "mode = \"exactly\"\nwindow = 5\nexists = 6\natomic = 7",
    )));
    assert_eq!(lines.len(), 4, "whatever can be judged is: {lines:#?}");
}

// -- receivers

#[test]
fn a_command_needs_a_program_with_an_absolute_path() {
    let load = |keys: &str| {
        load_file(&with_contract("mode = \"none\"").replace("program = [\"/bin/true\"]", keys))
    };
    for (keys, words) in [
        ("", "receivers.out.program: missing"),
        ("program = []", "begins with an absolute path"),
        ("program = [\"deliver\"]", "begins with an absolute path"),
        ("program = [\"\"]", "begins with an absolute path"),
        ("program = \"/bin/true\"", "must be a list"),
        ("program = [\"/bin/true\", 5]", "program[1] = 5: must be a text"),
        ("program = [\"/bin/true\"]\nenvironment = [\"1X\"]", "environment[0]: must be the name"),
        ("program = [\"/bin/true\"]\nfaults = []", "senseless for kind = \"command\""),
        ("program = [\"/bin/true\"]\npath = \"x\"", "senseless for kind = \"command\""),
    ] {
        let line = only(load(keys));
        assert!(line.contains(words), "{keys}: {line}");
    }
    let line = only(load("program = [\"/bin/true\"]\nenvironment = [\"TOKEN=hunter2\"]"));
    assert!(!line.contains("hunter2"), "{line}");
    let loaded =
        load("program = [\"/bin/true\", \"\"]\nenvironment = [\"HOME\", \"_x1\"]").unwrap();
    let Kind::Command(command) = &loaded.settings.receivers[0].kind else { panic!("no command") };
    assert_eq!(command.program, ["/bin/true", ""]);
    assert_eq!(command.environment, ["HOME", "_x1"]);
}

fn faults(text: &str) -> Result<Loaded, ConfigError> {
    load_set(&[&format!("receivers.crm.faults={text}")])
}

#[test]
fn a_fault_plan_is_read_in_order() {
    let loaded = faults(
        "[{ on = \"attempt\", n = 2, fault = \"lose_reply\" }, \
         { on = \"every\", fault = \"throttle\" }, \
         { on = \"random\", rate = 0.25, fault = \"throttle\", retry_after = \"1m\" }, \
         { on = \"random\", rate = 1, fault = \"malformed\" }, \
         { on = \"key\", match = \"*:case-104\", fault = \"late\", delay = \"2s\" }, \
         { on = \"time\", from = \"0s\", to = \"60s\", fault = \"unreachable\" }]",
    )
    .unwrap();
    let plan = &simulated_crm(&loaded).faults;
    assert!(matches!(plan[0].on, On::Attempt(2)));
    let what: Vec<What> = plan.iter().map(|fault| fault.what).collect();
    let expected = [
        What::LoseReply,
        What::Throttle(None),
        What::Throttle(Some(60 * SECOND)),
        What::Malformed,
        What::Late(2 * SECOND),
        What::Unreachable,
    ];
    assert_eq!(what, expected);
    assert!(matches!(plan[2].on, On::Random(rate) if (rate - 0.25).abs() < 1e-9));
    assert!(matches!(&plan[4].on, On::Key(pattern) if pattern.matches("a:b:v1:case-104")));
    assert!(matches!(plan[5].on, On::Time { from: Duration::ZERO, to } if to == 60 * SECOND));
    assert_eq!(values(&loaded)["receivers.crm.faults"].1, "--set");
}

#[test]
fn every_fault_has_a_name_and_takes_only_its_own_keys() {
    for (fault, extra) in [
        ("unreachable", ""),
        ("lose_reply", ""),
        ("late", ", delay = \"1s\""),
        ("throttle", ", retry_after = \"1s\""),
        ("server_error", ""),
        ("reject", ""),
        ("conflict", ""),
        ("unauthorised", ""),
        ("slow", ", delay = \"1s\""),
        ("malformed", ""),
        ("crash_before", ""),
        ("crash_after", ""),
    ] {
        let line = |extra: &str| format!("[{{ on = \"every\", fault = \"{fault}\"{extra} }}]");
        let loaded = faults(&line(extra)).unwrap();
        let name = format!("{:?}", simulated_crm(&loaded).faults[0].what).to_lowercase();
        assert!(name.starts_with(&fault.replace('_', "")), "{fault}: {name}");
        let wrong =
            if extra.contains("delay") { ", retry_after = \"1s\"" } else { ", delay = \"1s\"" };
        let refused = only(faults(&line(&format!("{extra}{wrong}"))));
        assert!(refused.contains(&format!("senseless with fault = \"{fault}\"")), "{refused}");
    }
}

#[test]
fn a_fault_that_lacks_a_key_or_has_a_senseless_one_is_refused() {
    for (fault, words) in [
        ("5", "receivers.crm.faults = [5]: must be a list of tables"),
        ("{}", "faults[0].on: missing"),
        (
            "{ on = \"sometimes\", fault = \"reject\" }",
            "faults[0].on = \"sometimes\": \
             must be \"attempt\" or \"every\" or \"random\" or \"key\" \
             or \"time\"",
        ),
        ("{ on = \"every\" }", "faults[0].fault: missing"),
        ("{ on = \"every\", fault = \"lose-reply\" }", "must be \"unreachable\" or \"lose_reply\""),
        (
            "{ on = \"every\", fault = \"reject\", n = 1 }",
            "faults[0].n = 1: senseless with on = \"every\"",
        ),
        (
            "{ on = \"attempt\", fault = \"reject\" }",
            "faults[0].n: missing; on = \"attempt\" needs n",
        ),
        ("{ on = \"attempt\", n = 0, fault = \"reject\" }", "from 1 to 10000"),
        ("{ on = \"random\", fault = \"reject\" }", "faults[0].rate: missing"),
        ("{ on = \"random\", rate = 1.5, fault = \"reject\" }", "from 0 to 1"),
        ("{ on = \"key\", fault = \"reject\" }", "faults[0].match: missing"),
        ("{ on = \"key\", match = \"[\", fault = \"reject\" }", "must be a pattern of keys"),
        (
            "{ on = \"time\", from = \"1s\", fault = \"reject\" }",
            "faults[0].to: missing; on = \"time\" needs from and to",
        ),
        (
            "{ on = \"time\", from = \"9s\", to = \"1s\", fault = \"reject\" }",
            "must be later than from",
        ),
        (
            "{ on = \"every\", fault = \"late\" }",
            "faults[0].delay: missing; fault = \"late\" needs a delay",
        ),
        ("{ on = \"every\", fault = \"slow\", delay = 5 }", "from 0s to 1d"),
    ] {
        let lines = refused(faults(&format!("[{fault}]")));
        assert!(lines[0].starts_with("--set: ") && lines[0].contains(words), "{fault}: {lines:?}");
    }
}

#[test]
fn a_schedule_stands_instead_of_growing_delays() {
    let lines = refused(load_set(&[
        "receivers.crm.retry.schedule=[\"1s\"]",
        "receivers.crm.retry.initial=1s",
        "receivers.crm.retry.multiplier=2",
    ]));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("senseless beside schedule")), "{lines:?}");
    let line = only(load_set(&["receivers.crm.retry.max_interval=1s"]));
    let start = "--set: receivers.crm.retry.max_interval = \"1s\": initial must not be longer";
    assert!(line.starts_with(start), "blamed is what someone set, no default: {line}");
}

// -- operation types

fn typed(keys: &str) -> Result<OperationType, ConfigError> {
    let file = format!(
        "[operations.note]\nreceiver = \"crm\"\nsubject = \"id\"\n\
         schema = \"builtin:create-followup\"\n{keys}\n"
    );
    load_file(&file).map(|loaded| loaded.settings.operations[0].clone())
}

#[test]
fn a_subject_pattern_matches_whole_subjects() {
    let pattern = |text: &str| {
        typed(&format!("subject_pattern = '{text}'")).unwrap().subject_pattern.unwrap()
    };
    assert!(pattern("a|ab").is_match("ab"));
    assert!(!pattern("a|b").is_match("ab"));
    assert!(!pattern("(?m)a").is_match("b\na"));
    assert!(!pattern("a").is_match("a\n"));
    assert!(
        pattern("(?:A|B)-[0-9]+").is_match("A-7"),
        "a colon in the syntax is no colon in a subject"
    );
}

#[test]
fn a_type_of_a_file_has_its_own_defaults() {
    let kind = typed("").unwrap();
    assert_eq!((kind.version, kind.trim.len(), kind.independent_versions), (1, 0, false));
    let kind =
        typed("version = 999\nversions = \"independent\"\napproval_max_age = \"7d\"").unwrap();
    assert_eq!((kind.version, kind.independent_versions), (999, true));
    assert_eq!(kind.approval_max_age, Some(7 * DAY));
    let lines = refused(load_file("[operations.note]\n"));
    let missing: Vec<bool> = ["receiver", "subject", "schema"]
        .iter()
        .zip(&lines)
        .map(|(key, line)| {
            line.starts_with(&format!("test.toml:1: operations.note.{key}: missing;"))
        })
        .collect();
    assert_eq!(missing, [true; 3], "{lines:#?}");
}

#[test]
fn a_schema_is_read_from_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handoff.toml");
    let schema = |text: &str| std::fs::write(folder.path().join("note.json"), text).unwrap();
    std::fs::write(
        &path,
        "[operations.note]\nreceiver = \"crm\"\nsubject = \"id\"\nschema = \"note.json\"\n",
    )
    .unwrap();
    let request = Request { file: Some(path), ..Request::default() };
    for (text, words) in [
        ("{", "note.json: it is no JSON: "),
        ("{ \"type\": 5 }", "note.json: it is no valid JSON Schema: "),
        ("{ \"$ref\": \"https://example.com/x.json\" }", "note.json: it is no valid JSON Schema: "),
    ] {
        schema(text);
        let line = only(load(&request));
        assert!(
            line.contains("operations.note.schema = \"note.json\": ") && line.contains(words),
            "{line}"
        );
    }
    schema("{ \"type\": \"object\" }");
    assert_eq!(load(&request).unwrap().settings.operations[0].name, "note");
}

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
                [receivers.crm]\nkind = \"http\"\nconcurrency = 0\n\
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
