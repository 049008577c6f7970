//! One daemon for each database, held by a lock that dies with the process.
//!
//! The lock lies on a file beside the database: opening and closing the
//! database file itself would drop SQLite's own locks.

use crate::store::StoreError;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Held for as long as the daemon serves the database.
#[derive(Debug)]
pub struct DaemonLock {
    // Closing the file ends the lock.
    _file: File,
}

impl DaemonLock {
    /// Takes the lock of a database, or says who holds it.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] if another daemon holds it.
    pub fn take(database: &Path, instance: &str) -> Result<Self, StoreError> {
        let path = lock_path(database);
        let unavailable = |error: &dyn std::fmt::Display| StoreError::Unavailable {
            place: database.display().to_string(),
            problem: format!("cannot lock {}: {error}", path.display()),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| unavailable(&error))?;
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                let mut holder = String::new();
                drop(file.read_to_string(&mut holder));
                return Err(StoreError::InUse {
                    place: database.display().to_string(),
                    holder: holder.trim().chars().take(200).collect(),
                });
            }
            Err(error) => return Err(unavailable(&error)),
        }
        let text = format!("process {}, instance {instance}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|error| unavailable(&error))?;
        Ok(Self { _file: file })
    }

    /// Whether a daemon holds the lock of a database, without taking it.
    pub fn is_held(database: &Path) -> bool {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(lock_path(database)) else {
            return false;
        };
        let mut asked = whole_file(libc::F_WRLCK);
        let answer = fcntl(&file, FcntlArg::F_OFD_GETLK(&mut asked));
        answer.is_ok() && i32::from(asked.l_type) != libc::F_UNLCK
    }
}

/// The lock's file, beside the database whatever link led to it.
fn lock_path(database: &Path) -> PathBuf {
    let real = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut name = real.into_os_string();
    name.push(".daemon-lock");
    PathBuf::from(name)
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        // The constants are small; the field is narrower than they are.
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_holds_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("h.db");
        File::create(&database).unwrap();
        assert!(!DaemonLock::is_held(&database));
        let first = DaemonLock::take(&database, "one").unwrap();
        assert!(DaemonLock::is_held(&database));
        let second = DaemonLock::take(&database, "two").unwrap_err().to_string();
        assert!(second.contains("instance one"), "{second}");
        drop(first);
        assert!(!DaemonLock::is_held(&database));
        DaemonLock::take(&database, "two").unwrap();
    }

    #[test]
    fn a_link_to_the_database_leads_to_the_same_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("h.db");
        File::create(&database).unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        let _held = DaemonLock::take(&database, "one").unwrap();
        assert!(DaemonLock::take(&link, "two").is_err());
    }
}
