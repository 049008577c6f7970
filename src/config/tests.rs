//! Whole configurations: what they mean, and what is refused with which words.

mod defaults;
mod files;
mod http;
mod layers;
mod meaning;
mod values;

use super::keys::{Key, ROOT, Takes};
use super::problem::{Problems, join};
use super::*;
use crate::outbox::contract::{Contract, Exists, LookUp, Mode, Verified, Window};
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
        Kind::Command(_) | Kind::Http(_) => panic!("not simulated"),
    }
}

/// The defaults, with this plan of faults set by a flag.
fn faults(text: &str) -> Result<Loaded, ConfigError> {
    load_set(&[&format!("receivers.crm.faults={text}")])
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
