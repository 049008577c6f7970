//! Which module of `src` may name which.
//!
//! A row here is part of the design: a change that adds an arrow is a commit of
//! its own that says why. Code that is compiled for tests only is free.

use super::Finding;
use super::source::{lines_with_word, paths};

/// What the code of one module may name.
enum May {
    /// Of our modules, these alone.
    NameOnly(&'static [&'static str]),
    /// Any of our modules but these.
    NotName(&'static [&'static str]),
}

/// A module without a row may name any but the top ones.
const TOP: May = May::NotName(&["cli", "daemon", "demo"]);

const LAYERS: &[(&str, May)] = &[
    ("clock", May::NameOnly(&[])),
    ("jitter", May::NameOnly(&[])),
    ("text_enum", May::NameOnly(&[])),
    ("scripted", May::NameOnly(&[])),
    ("process", May::NameOnly(&["clock"])),
    ("outbox", May::NameOnly(&["clock", "jitter", "text_enum"])),
    ("schema", May::NameOnly(&["clock", "outbox"])),
    ("record", May::NameOnly(&["clock", "outbox", "schema"])),
    ("store", May::NotName(&["receiver", "supervisor", "cli", "daemon", "demo"])),
    ("receiver", May::NotName(&["supervisor", "cli", "daemon", "demo"])),
    ("daemon", May::NotName(&["cli", "demo"])),
    ("demo", May::NotName(&["cli"])),
    ("cli", May::NotName(&[])),
];

/// The configuration is read by these; everything else is given its `Settings`.
const MAY_NAME_CONFIG: &[&str] = &["config", "cli", "daemon"];

/// Errors of which only the text matters; elsewhere a caller acts on them.
const MAY_NAME_ANYHOW: &[&str] = &["cli", "daemon", "demo"];

/// What a receiver may know of the store.
const OF_THE_STORE_FOR_RECEIVERS: &[&str] = &["Attempt", "AttemptId"];

/// The domain is pure: no runtime, no database, no I/O, no clock.
const NOT_PURE: &[(&str, &str)] = &[
    ("tokio", "*"),
    ("rusqlite", "*"),
    ("tokio_rusqlite", "*"),
    ("nix", "*"),
    ("tracing", "*"),
    ("std", "env"),
    ("std", "fs"),
    ("std", "io"),
    ("std", "net"),
    ("std", "os"),
    ("std", "process"),
    ("std", "thread"),
];

/// Checks the shipped code of one file. `module` is its path in the crate, such
/// as `["store", "sqlite"]`; `modules` are the modules at the crate's root.
pub(crate) fn check(module: &[&str], shipped: &str, modules: &[&str]) -> Vec<Finding> {
    let Some(&own) = module.first() else { return Vec::new() };
    let mut findings = check_own_modules(own, module.len(), shipped, modules);
    if !MAY_NAME_ANYHOW.contains(&own) {
        findings.extend(lines_with_word(shipped, "anyhow").into_iter().map(|line| Finding {
            line,
            problem: format!(
                "`{own}` names `anyhow`, which only {} may: return an error type of its own, so \
                 that callers can tell its cases apart",
                MAY_NAME_ANYHOW.join(", ")
            ),
        }));
    }
    if own == "outbox" {
        findings.extend(check_purity(shipped));
    }
    findings
}

fn check_own_modules(own: &str, depth: usize, shipped: &str, modules: &[&str]) -> Vec<Finding> {
    let layer = LAYERS.iter().find(|(name, _)| *name == own).map_or(&TOP, |(_, may)| may);
    let mut findings = Vec::new();
    for path in paths_from_the_root(shipped, depth) {
        let Some(named) = path.names.first().map(String::as_str) else { continue };
        if !modules.contains(&named) {
            if path.is_absolute {
                findings.push(path.finding(format!(
                    "`crate::{named}` is no module; it hides which layer is meant: name the \
                     module that the item comes from"
                )));
            }
            continue;
        }
        if named == own {
            continue;
        }
        let allowed = match layer {
            May::NameOnly(these) => these.contains(&named),
            May::NotName(these) => !these.contains(&named),
        };
        if !allowed {
            findings.push(path.finding(format!(
                "`{own}` names `crate::{named}`, which lies above it or beside it: hand in what it \
                 needs as a value, or change the table in tests/tidy/layers.rs and say why"
            )));
        } else if named == "config" && !MAY_NAME_CONFIG.contains(&own) {
            findings.push(path.finding(format!(
                "`{own}` names `crate::config`: give the module a `Settings` of its own and let \
                 `config` fill it"
            )));
        } else if own == "receiver" && named == "store" && !is_an_attempt(&path.names) {
            findings.push(path.finding(format!(
                "`receiver` names `crate::{}`: of the store it may know {} alone, so that no call \
                 can touch the database",
                path.names.join("::"),
                OF_THE_STORE_FOR_RECEIVERS.join(" and ")
            )));
        }
    }
    findings
}

fn is_an_attempt(names: &[String]) -> bool {
    names.get(1).is_some_and(|name| OF_THE_STORE_FOR_RECEIVERS.contains(&name.as_str()))
}

fn check_purity(shipped: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (root, name) in NOT_PURE {
        let named = paths(shipped, root).into_iter();
        for path in
            named.filter(|path| *name == "*" || path.names.first().is_some_and(|n| n == name))
        {
            let full = [vec![(*root).to_owned()], path.names.clone()].concat().join("::");
            findings.push(path.finding(format!(
                "`outbox` names `{full}`, but the domain is pure: let the caller do it and hand in \
                 what came of it"
            )));
        }
    }
    findings
}

/// A path of ours from the crate's root.
struct FromTheRoot {
    line: usize,
    names: Vec<String>,
    /// Written as `crate::…`, and not as a chain of `super`.
    is_absolute: bool,
}

impl FromTheRoot {
    fn finding(&self, problem: String) -> Finding {
        Finding { line: self.line, problem }
    }
}

fn paths_from_the_root(shipped: &str, depth: usize) -> Vec<FromTheRoot> {
    let absolute = paths(shipped, "crate").into_iter().map(|path| FromTheRoot {
        line: path.line,
        names: path.names,
        is_absolute: true,
    });
    // A chain of `super` leaves the module only if it is as long as the module is deep.
    let relative = paths(shipped, "super").into_iter().filter_map(|path| {
        let supers = path.names.iter().take_while(|name| *name == "super").count();
        let names = path.names[supers..].to_vec();
        (supers + 1 >= depth).then_some(FromTheRoot { line: path.line, names, is_absolute: false })
    });
    absolute.chain(relative).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULES: &[&str] = &["clock", "config", "outbox", "receiver", "store", "daemon"];

    fn problems(module: &[&str], code: &str) -> Vec<String> {
        let findings = check(module, code, MODULES);
        findings.into_iter().map(|f| format!("{}: {}", f.line, f.problem)).collect()
    }

    #[track_caller]
    fn refused(module: &[&str], code: &str, expected: &str) {
        let problems = problems(module, code);
        assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
    }

    #[track_caller]
    fn accepted(module: &[&str], code: &str) {
        assert_eq!(problems(module, code), Vec::<String>::new());
    }

    #[test]
    fn the_store_cannot_name_a_receiver() {
        let sqlite = &["store", "sqlite"];
        refused(sqlite, "\nuse crate::receiver::Receiver;", "2: `store` names `crate::receiver`");
        refused(sqlite, "use crate::{clock, receiver::X};", "1: `store` names `crate::receiver`");
        refused(sqlite, "super::super::receiver::f()", "1: `store` names `crate::receiver`");
        accepted(sqlite, "use crate::outbox::key; use super::rows; use crate::store::Attempt;");
    }

    #[test]
    fn a_receiver_knows_attempts_and_nothing_else_of_the_store() {
        accepted(&["receiver", "http"], "use crate::store::{Attempt, AttemptId};");
        refused(
            &["receiver"],
            "use crate::store::{Attempt, Store};",
            "1: `receiver` names `crate::store::Store`",
        );
        refused(&["receiver"], "use crate::store;", "1: `receiver` names `crate::store`:");
        refused(&["receiver"], "use crate::store::*;", "1: `receiver` names `crate::store::*`");
    }

    #[test]
    fn the_domain_is_pure() {
        accepted(&["outbox", "key"], "use std::fmt; use crate::clock::Now; use super::state::X;");
        refused(&["outbox"], "use crate::store::Store;", "1: `outbox` names `crate::store`");
        refused(&["outbox"], "use std::{fmt, fs};", "1: `outbox` names `std::fs`");
        refused(&["outbox"], "tokio::spawn(f)", "1: `outbox` names `tokio::spawn`");
        refused(&["outbox"], "fn f(tx: &rusqlite::Transaction)", "1: `outbox` names `rusqlite");
    }

    #[test]
    fn components_are_given_settings_and_never_read_the_configuration() {
        refused(&["metrics"], "use crate::config::Config;", "1: `metrics` names `crate::config`");
        refused(&["metrics"], "use crate::daemon::run;", "1: `metrics` names `crate::daemon`");
        accepted(&["cli", "run"], "use crate::config::Config; use crate::daemon;");
    }

    #[test]
    fn only_the_top_forgets_what_kind_of_error_it_has() {
        refused(&["store"], "fn f() -> anyhow::Result<()>", "1: `store` names `anyhow`");
        accepted(&["cli", "list"], "use anyhow::Context;");
    }

    #[test]
    fn a_name_re_exported_at_the_root_cannot_hide_its_layer() {
        refused(&["store"], "use crate::Receiver;", "1: `crate::Receiver` is no module");
        accepted(&["clock"], "mod system { use super::{Now, wall}; }");
    }
}
