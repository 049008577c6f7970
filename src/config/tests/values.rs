//! Wrong values, key by key.

use super::*;

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
        ("receivers.crm.kind", "\"crm\"", "\"simulated\" or \"command\" or \"http\""),
        ("receivers.crm.timeout", "\"2h\"", "from 1ms to 1h"),
        ("receivers.crm.concurrency", "1.0", "from 1 to 1024"),
        ("receivers.crm.concurrency", "\"30\"", "from 1 to 1024"),
        ("receivers.crm.concurrency", "true", "from 1 to 1024"),
        ("receivers.crm.concurrency", "65537", "from 1 to 1024"),
        ("receivers.crm.path", "\"\"", "a text, not empty"),
        ("receivers.crm.behaviour", "\"lies\"", "must be a table"),
        ("receivers.crm.behaviour.unique", "1", "true or false"),
        ("receivers.crm.program", "[\"/bin/true\"]", "senseless for kind = \"simulated\""),
    ]);
}

#[test]
fn each_wrong_value_of_a_contract_is_refused() {
    refuses_each(&[
        ("receivers.crm.contract", "\"none\"", "must be a table; write [receivers.crm.contract]"),
        (
            "receivers.crm.contract.mode",
            "true",
            "\"none\" or \"look_up\" or \"idempotency_key\" or \"create_only\" or \"upsert\"",
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
        ("receivers.crm.contract.look_up", "true", "must be a table"),
        ("receivers.crm.contract.look_up.polls", "0", "from 1 to 100"),
        ("receivers.crm.contract.look_up.polls", "13", "not be more than retry.max_attempts"),
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
