//! Flags, environment and file: which wins, and how their texts are read.

use super::*;

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
    let line = only(load_all(None, &[("HANDOFF_RECEIVERS__CRM__EXTENDS__NAME", "1")], &[]));
    assert!(line.contains("receivers.crm.extends: not in this version"), "{line}");
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
