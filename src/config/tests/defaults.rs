//! What holds where nobody says otherwise.

use super::*;

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
    let breaker = crm.protection.breaker.map(|it| (it.failures, it.open, it.max_open));
    assert_eq!(breaker, Some((5, 10 * SECOND, 300 * SECOND)));
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
    // Optional keys stand there as `# key = value`, optional tables as `# [name]`; taking
    // off the mark must give TOML.
    let keys = |line: &str| {
        let table = line.starts_with("# [") && line.ends_with(']');
        table
            || line
                .strip_prefix("# ")
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
        "receivers.out.circuit_breaker.failures",
        "receivers.out.circuit_breaker.open",
        "receivers.out.circuit_breaker.max_open",
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
