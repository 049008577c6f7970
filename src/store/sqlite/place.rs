//! Where a database lies, and whether it may lie there.

use crate::store::StoreError;
use nix::sys::statfs::{FsType, statfs};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File systems on which SQLite's shared memory and locks do not hold
/// (statfs(2), and SQLite's "How to corrupt", section 2).
const REMOTE: [(i64, &str); 10] = [
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x517B, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414F, "AFS"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
];

/// The path of a `sqlite:` URL; `None` for any other URL.
pub fn path_of(url: &str) -> Option<PathBuf> {
    url.strip_prefix("sqlite:").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The folder that a database file lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Which file stood under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that stands there now.
    pub(super) fn of(path: &Path) -> Result<Self, std::io::Error> {
        let found = std::fs::metadata(path)?;
        Ok(Self { device: found.dev(), inode: found.ino() })
    }

    /// Whether another file stands there, or none.
    pub(super) fn is_gone_from(self, path: &Path) -> bool {
        match Self::of(path) {
            Ok(now) => now != self,
            // What cannot be looked at may still be there.
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// Refuses a network file system, whatever link leads there.
pub(super) fn refuse_remote(path: &Path) -> Result<(), StoreError> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Ok(found) = statfs(folder_of(&real)) else { return Ok(()) };
    match remote_name(found.filesystem_type()) {
        None => Ok(()),
        Some(name) => Err(StoreError::Unusable {
            place: path.display().to_string(),
            problem: format!(
                "it lies on {name}, where SQLite's locks do not hold; put it on a local disk"
            ),
        }),
    }
}

fn remote_name(kind: FsType) -> Option<&'static str> {
    // The kernel's magic numbers have 32 bits; the type of the field varies.
    let magic = kind.0 & 0xFFFF_FFFF;
    REMOTE.iter().find(|(remote, _)| *remote == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        assert_eq!(remote_name(FsType(0x6969)), Some("NFS"));
        assert_eq!(remote_name(FsType(0xFF53_4D42)), Some("CIFS"));
        assert_eq!(remote_name(FsType(0xEF53)), None, "ext4");
        assert_eq!(remote_name(FsType(0x0102_1994)), None, "tmpfs");
    }

    #[test]
    fn only_sqlite_urls_have_a_path() {
        assert_eq!(path_of("sqlite:data/h.db"), Some(PathBuf::from("data/h.db")));
        assert_eq!(path_of("sqlite:"), None);
        assert_eq!(path_of("postgres://db/h"), None);
    }
}
