//! The layers: flags over environment over file over defaults.
//!
//! `config` lays them over one another; each value keeps its origin.

use super::file;
use super::keys::{Key, ROOT, Takes, find, sift};
use super::problem::Problems;
use super::show;
use crate::outbox::key::is_name;
use ::config::{ConfigError, Map, Source, Value, ValueKind};

/// What the names of our environment variables begin with.
const PREFIX: &str = "HANDOFF_";
/// Such names are left to tests.
const TEST_PREFIX: &str = "HANDOFF_TEST_";
/// The origin of what `--set` says.
pub(super) const FLAG: &str = "--set";
/// The origin of what the environment says, before the variable's name.
pub(super) const ENVIRONMENT: &str = "environment ";
/// What a receiver of a file does not take from the built-in one.
const RECEIVERS_OWN: [&str; 5] = ["kind", "path", "behaviour", "faults", "contract"];

/// The values of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer(pub(super) Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}

/// Lays the layers over one another; later ones win.
pub(super) fn merge(layers: Vec<Layer>) -> Result<Map<String, Value>, ConfigError> {
    // Top-level keys were sifted before, so that none can be taken for a path.
    let builder = layers.into_iter().fold(::config::Config::builder(), |b, l| b.add_source(l));
    builder.build()?.collect()
}

/// What holds where nobody says otherwise.
///
/// Built-in receivers and types exist only where the file defines none. Every
/// other receiver takes the general part of the built-in one's values.
pub(super) fn defaults(mut builtin: Map<String, Value>, file: &Layer, above: &[Layer]) -> Layer {
    let common = common(&builtin);
    for named in ["receivers", "operations"] {
        if !names(file, named).is_empty() {
            builtin.insert(named.to_owned(), Value::from(Map::<String, Value>::new()));
        }
    }
    if let Some(ValueKind::Table(receivers)) = builtin.get_mut("receivers").map(|v| &mut v.kind) {
        for layer in std::iter::once(file).chain(above) {
            for name in names(layer, "receivers") {
                receivers.entry(name).or_insert_with(|| Value::from(common.clone()));
            }
        }
    }
    Layer(builtin)
}

/// The built-in receiver's values that are good for any receiver.
fn common(builtin: &Map<String, Value>) -> Map<String, Value> {
    let Some(ValueKind::Table(receivers)) = builtin.get("receivers").map(|v| &v.kind) else {
        return Map::new();
    };
    let mut common = Map::new();
    for receiver in receivers.values() {
        if let ValueKind::Table(values) = &receiver.kind {
            common = values.clone();
        }
    }
    common.retain(|key, _| !RECEIVERS_OWN.contains(&key.as_str()));
    common
}

/// The names that a layer defines in a table of names.
fn names(layer: &Layer, table: &str) -> Vec<String> {
    match layer.0.get(table).map(|value| &value.kind) {
        Some(ValueKind::Table(inside)) => inside.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// Reads what `--set KEY=VALUE` says, one layer for each.
pub(super) fn flags(set: &[String], problems: &mut Problems) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (index, flag) in set.iter().enumerate() {
        let Some((path, text)) = flag.split_once('=') else {
            let problem = format!("number {} is not KEY=VALUE", index + 1);
            let remedy = "write for example --set worker.poll_interval=2s";
            problems.add(Some(FLAG), "", None, problem, remedy);
            continue;
        };
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        layers.push(layer(&path, text, FLAG, problems));
    }
    layers
}

/// Reads what the environment says, one layer for each of our variables.
pub(super) fn environment(variables: &[(String, String)], problems: &mut Problems) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        if variable.starts_with(TEST_PREFIX) {
            continue;
        }
        let origin = format!("{ENVIRONMENT}{}", show::short(&show::line(variable)));
        match path_of(rest) {
            Some(path) => layers.push(layer(&path, text, &origin, problems)),
            None => {
                let problem =
                    format!("no key has this name; names that begin with {PREFIX} are ours");
                let remedy = "unset it, or write the key's path in capitals with __ between \
                              levels, such as HANDOFF_WORKER__POLL_INTERVAL";
                problems.add(Some(&origin), "", None, problem, remedy);
            }
        }
    }
    layers
}

fn layer(path: &[String], text: &str, origin: &str, problems: &mut Problems) -> Layer {
    let mut values = place(path, text, ROOT, &origin.to_owned());
    sift(&mut values, ROOT, "", Some(origin), problems);
    Layer(values)
}

/// The path that a variable stands for; `None` if it cannot be one.
fn path_of(rest: &str) -> Option<Vec<String>> {
    let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    if rest.is_empty() || !rest.bytes().all(allowed) {
        return None;
    }
    let lower = rest.to_ascii_lowercase();
    let mut levels = lower.splitn(2, "__");
    let (first, inside) = (levels.next()?, levels.next());
    // No key at the top has an underscore: this is STORE_URL for STORE__URL.
    if first.contains('_') {
        return None;
    }
    let Some(Takes::Named(keys)) = find(ROOT, first).map(|key| key.takes) else {
        return Some(lower.split("__").map(str::to_owned).collect());
    };
    let mut path = vec![first.to_owned()];
    path.extend(inside.map(|inside| named(inside, keys)).unwrap_or_default());
    Some(path)
}

/// Splits `crm__contract__mode` into name and key: `_` in a name means `-`, and
/// the longest key that there is wins, since a name may hold `--`.
fn named(inside: &str, keys: &'static [Key]) -> Vec<String> {
    let mut known = paths(keys);
    known.sort_by_key(|path| std::cmp::Reverse(path.join("__").len()));
    for path in known {
        let name = inside.strip_suffix(&format!("__{}", path.join("__")));
        let Some(name) = name.map(|name| name.replace('_', "-")) else { continue };
        if is_name(&name) {
            return std::iter::once(name)
                .chain(path.iter().map(|&level| level.to_owned()))
                .collect();
        }
    }
    let mut levels = inside.split("__").map(str::to_owned);
    let name = levels.next().map(|name| name.replace('_', "-"));
    name.into_iter().chain(levels).collect()
}

/// Every path in a table, those of tables included.
fn paths(keys: &'static [Key]) -> Vec<Vec<&'static str>> {
    let mut all = Vec::new();
    for key in keys {
        all.push(vec![key.name]);
        if let Takes::Table(inside) = key.takes {
            let below = paths(inside);
            all.extend(below.into_iter().map(|path| [&[key.name], path.as_slice()].concat()));
        }
    }
    all
}

/// A tree that holds one text, read as the key at its path expects.
fn place(path: &[String], text: &str, keys: &'static [Key], origin: &String) -> Map<String, Value> {
    let Some((first, rest)) = path.split_first() else { return Map::new() };
    let value = match (find(keys, first).map(|key| key.takes), rest) {
        // Reported when the tree is sifted.
        (None | Some(Takes::Later), _) => Value::new(Some(origin), text),
        (Some(takes), []) => read(text, takes, origin),
        (Some(Takes::Table(keys)), rest) => {
            Value::new(Some(origin), place(rest, text, keys, origin))
        }
        (Some(Takes::Named(keys)), [name, rest @ ..]) => {
            let inside = match rest {
                [] => read(text, Takes::Table(keys), origin),
                rest => Value::new(Some(origin), place(rest, text, keys, origin)),
            };
            Value::new(Some(origin), Map::from([(name.clone(), inside)]))
        }
        // A path below a plain value: refused when that value is read.
        (Some(_), rest) => {
            let inside = Map::from([(rest.join("."), Value::new(Some(origin), text))]);
            Value::new(Some(origin), inside)
        }
    };
    Map::from([(first.clone(), value)])
}

/// A text as a value of the expected type; as a text if it is none, so that
/// reading it says what is allowed.
fn read(text: &str, takes: Takes, origin: &String) -> Value {
    let as_text = || Value::new(Some(origin), text);
    let kind = match takes {
        Takes::Text | Takes::Later => return as_text(),
        Takes::Boolean => text.parse::<bool>().ok().map(ValueKind::Boolean),
        Takes::Integer => is_decimal(text).then(|| text.parse().ok().map(ValueKind::I64)).flatten(),
        Takes::Number => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
            (is_decimal(whole) && digits).then(|| text.parse().ok().map(ValueKind::Float)).flatten()
        }
        Takes::List | Takes::Tables(_) | Takes::Table(_) | Takes::Named(_) => {
            return file::inline(text, origin).unwrap_or_else(as_text);
        }
    };
    kind.map_or_else(as_text, |kind| Value::new(Some(origin), kind))
}

/// Whether a text is a whole number as people write it: no blanks, no exponent, no leading zero.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}
