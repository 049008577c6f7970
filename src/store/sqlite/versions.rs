//! One subject under several versions of its type.

use crate::outbox::key::OperationKey;
use rusqlite::{Connection, OptionalExtension, params};

/// A key recorded before the row `id` for the same subject under another version.
///
/// Keys are in order, so the versions in use are found by leaps from one to the
/// next rather than by looking for each of 999.
pub(super) fn other_version(
    db: &Connection,
    key: &OperationKey,
    id: i64,
) -> Result<Option<String>, rusqlite::Error> {
    let prefix = format!("{}:{}:v", key.namespace(), key.kind());
    let end = format!("{}:{}:w", key.namespace(), key.kind());
    let mut leap = db.prepare_cached(
        "SELECT operation_key FROM handoff_outbox
          WHERE operation_key >= ?1 AND operation_key < ?2 ORDER BY operation_key LIMIT 1",
    )?;
    let mut earlier =
        db.prepare_cached("SELECT 1 FROM handoff_outbox WHERE operation_key = ?1 AND id < ?2")?;
    let own = key.version().to_string();
    let mut from = prefix.clone();
    while let Some(found) =
        leap.query_row([&from, &end], |row| row.get::<_, String>(0)).optional()?
    {
        let Some(version) = found[prefix.len()..].split(':').next() else { break };
        if version != own {
            let other = format!("{prefix}{version}:{}", key.subject());
            if earlier.exists(params![other, id])? {
                return Ok(Some(other));
            }
        }
        // ';' is the character after ':': the first key behind this version.
        from = format!("{prefix}{version};");
    }
    Ok(None)
}
