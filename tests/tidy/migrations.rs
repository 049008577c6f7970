//! Migrations that have landed: databases out there were made by these very bytes.

use sha2::{Digest, Sha256};

/// Every migration under `src`, with the SHA-256 of its bytes. A line is added
/// with the file, and changed only until the first release that contains it.
pub(crate) const LANDED: &[(&str, &str)] = &[(
    "src/store/sql/sqlite/0001_outbox.sql",
    "a6cf65a1d07e84c75250c978b7725e90e12e80c514e73bf88bf984d5e6b1a4e4",
)];

pub(crate) fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Compares the files, given with their hashes, with the list, both ways.
pub(crate) fn check(files: &[(String, String)], landed: &[(&str, &str)]) -> Vec<String> {
    let unlisted_or_changed = files.iter().filter_map(|(file, hash)| {
        match landed.iter().find(|(name, _)| name == file) {
            Some((_, known)) if known == hash => None,
            Some(_) => Some(format!(
                "{file}:1: this migration has been changed, but there are databases that it has \
                 made: write a new one (or, before its release, set its hash to {hash} in \
                 tests/tidy/migrations.rs)"
            )),
            None => Some(format!(
                "{file}:1: this migration is not held yet: add (\"{file}\", \"{hash}\") to \
                 tests/tidy/migrations.rs"
            )),
        }
    });
    let lost = landed.iter().filter(|(name, _)| files.iter().all(|(file, _)| file != name));
    let lost = lost.map(|(name, _)| {
        format!("{name}:1: this migration is gone, but new databases need it: bring it back")
    });
    unlisted_or_changed.chain(lost).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_that_is_new_changed_or_gone_is_found() {
        let file = |bytes: &[u8]| ("a.sql".to_owned(), hash(bytes));
        let known = hash(b"CREATE");
        let landed = [("a.sql", known.as_str())];
        assert!(check(&[file(b"CREATE")], &landed).is_empty());
        assert!(check(&[file(b"CREATE ")], &landed)[0].contains("has been changed"));
        assert!(check(&[file(b"CREATE")], &[])[0].contains(&known));
        assert!(check(&[], &landed)[0].contains("is gone"));
    }
}
