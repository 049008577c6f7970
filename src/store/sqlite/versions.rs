//! One subject under several versions of its type.

use crate::outbox::key::OperationKey;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

/// Looks for subjects that were recorded under another version of their type.
///
/// It remembers the versions that it has seen: one is for one transaction.
pub(super) struct Versions<'c> {
    db: &'c Connection,
    /// Versions in use, by namespace and type.
    in_use: HashMap<String, Vec<String>>,
}

impl<'c> Versions<'c> {
    pub(super) fn new(db: &'c Connection) -> Self {
        Self { db, in_use: HashMap::new() }
    }

    /// A key recorded before the row `id` for the same subject under another version.
    pub(super) fn other(
        &mut self,
        key: &OperationKey,
        id: i64,
    ) -> Result<Option<String>, rusqlite::Error> {
        let text = key.as_str();
        // namespace ':' type ":v", and then the version.
        let (prefix, rest) = text.split_at(key.namespace().len() + key.kind().len() + 3);
        if !self.in_use.contains_key(prefix) {
            self.in_use.insert(prefix.to_owned(), in_use(self.db, prefix)?);
        }
        let own = rest.split(':').next().unwrap_or_default();
        let versions = self.in_use.get(prefix).into_iter().flatten();
        for version in versions.filter(|version| **version != own) {
            let other = format!("{prefix}{version}:{}", key.subject());
            let mut earlier = self.db.prepare_cached(
                "SELECT 1 FROM handoff_outbox WHERE operation_key = ?1 AND id < ?2",
            )?;
            if earlier.exists(params![other, id])? {
                return Ok(Some(other));
            }
        }
        Ok(None)
    }
}

/// The versions of a type that have been recorded.
///
/// Keys are in order, so they are found by leaps from one to the next rather than
/// by looking for each of 999.
fn in_use(db: &Connection, prefix: &str) -> Result<Vec<String>, rusqlite::Error> {
    let mut leap = db.prepare_cached(
        "SELECT operation_key FROM handoff_outbox
          WHERE operation_key >= ?1 AND operation_key < ?2 ORDER BY operation_key LIMIT 1",
    )?;
    // 'w' is the letter after 'v': the first key behind every version.
    let end = format!("{}w", prefix.strip_suffix('v').unwrap_or(prefix));
    let mut versions = Vec::new();
    let mut from = prefix.to_owned();
    while let Some(found) =
        leap.query_row([&from, &end], |row| row.get::<_, String>(0)).optional()?
    {
        let Some(version) = found[prefix.len()..].split(':').next() else { break };
        // ';' is the character after ':': the first key behind this version.
        from = format!("{prefix}{version};");
        versions.push(version.to_owned());
    }
    Ok(versions)
}
