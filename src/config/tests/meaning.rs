//! What keys mean together, and which are not known.

use super::*;

// -- known, later, unknown

#[test]
fn keys_of_later_versions_are_refused_by_name_and_their_values_never_repeated() {
    for key in [
        "sources",
        "drafters",
        "review",
        "alerts",
        "retention",
        "server.allowed_hosts",
        "server.tls",
        "worker.lease",
        "receivers.crm.extends",
        "receivers.crm.look_up",
        "receivers.crm.contract.scope",
        "receivers.crm.contract.conflict_detected",
        "receivers.crm.contract.caches_failures",
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
             at the top there are namespace, store, server, worker, log, receivers, operations, \
             reconcile",
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
fn look_ups_are_read_as_declared_where_the_receiver_can_be_asked() {
    for (text, expected) in [
        (
            "mode = \"look_up\"\nlook_up = { polls = 2 }",
            Contract::look_up(LookUp { polls: 2, interval: 30 * SECOND }),
        ),
        (
            "mode = \"upsert\"\nwindow = \"1h\"\nlook_up = { polls = 1, interval = \"5s\" }",
            Contract::upsert(
                Window::For(DAY / 24),
                Some(LookUp { polls: 1, interval: 5 * SECOND }),
            ),
        ),
        (
            "mode = \"create_only\"\nlook_up = { polls = 12 }",
            Contract {
                look_up: Some(LookUp { polls: 12, interval: 30 * SECOND }),
                ..Contract::create_only(Window::For(30 * DAY), Exists::Ask)
            },
        ),
    ] {
        let simulated = "[receivers.crm]\nkind = \"simulated\"\npath = \"x\"\n";
        let read = load_file(&format!("{simulated}[receivers.crm.contract]\n{text}\n"));
        assert_eq!(read.unwrap().settings.receivers[0].contract, expected, "{text}");
        let line = only(load_file(&with_contract(text)));
        assert!(
            line.contains("contract.look_up: ") || line.contains("contract.look_up ="),
            "{line}"
        );
        assert!(line.contains("cannot be asked for a key"), "{line}");
    }
    let line = only(load_file(
        "[receivers.crm]\nkind = \"simulated\"\npath = \"x\"\ncontract = { mode = \"look_up\" }\n",
    ));
    assert!(line.contains("look_up: missing; mode = \"look_up\" needs it"), "{line}");
}

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
        ("locked_out", ""),
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
             must be \"attempt\" or \"look_up\" or \"every\" or \"random\" or \"key\" \
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
