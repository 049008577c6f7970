//! Disks of their own, and a disk that fails on demand.

use crate::support::{Crm, World, present};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program of the system, which must succeed.
#[track_caller]
pub(super) fn system(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
}

/// Nothing, and why, for a tester who reads the output.
#[expect(clippy::print_stderr, reason = "it is the output of a test")]
pub(super) fn skipped<T>(why: &str) -> Option<T> {
    eprintln!("skipped: {why}");
    None
}

/// A file system that is unmounted when the test is done with it.
pub(super) struct Mount {
    pub(super) at: PathBuf,
}

impl Mount {
    /// Mounts; `None` if this user may not, which fails a run in CI.
    pub(super) fn new(at: &Path, arguments: &[&str]) -> Option<Self> {
        if !present("mount") {
            return skipped("no mount");
        }
        if !at.exists() {
            std::fs::create_dir(at).expect("a folder");
        }
        let done = Command::new("mount").args(arguments).arg(at).output().expect("mount runs");
        if done.status.success() {
            return Some(Self { at: at.to_owned() });
        }
        assert!(std::env::var_os("CI").is_none(), "mount {arguments:?}: {done:?}");
        skipped("this user may not mount")
    }

    pub(super) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        system("mount", &["-o", &options, &self.at.display().to_string()]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: after a failed test something may still be open.
        drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
    }
}

/// A world whose `app.db` lies on a small disk; the CRM lies elsewhere.
pub(super) struct Small {
    // Unmounted before the folder goes.
    pub(super) mount: Mount,
    pub(super) world: World,
}

impl Small {
    /// A disk of this size with our tables; `None` if this user may not mount.
    pub(super) fn new(size: &str, crm: &Crm<'_>) -> Option<Self> {
        Self::around(size, World::with(crm))
    }

    pub(super) fn around(size: &str, world: World) -> Option<Self> {
        let options = format!("size={size}");
        let mount = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mount = Mount::new(&world.path("disk"), &mount)?;
        symlink(world.path("disk/app.db"), world.path("app.db")).expect("a link");
        Some(Self { mount, world: world.migrated() })
    }

    /// Fills the disk but for this many bytes.
    pub(super) fn fill(&self, room: u64) {
        let mut ballast = File::create(self.mount.at.join("ballast")).expect("a file");
        let block = [0_u8; 4096];
        let mut written = 0;
        loop {
            match ballast.write(&block) {
                Ok(bytes) => written += bytes as u64,
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
        ballast.set_len(written.saturating_sub(room)).expect("it gets shorter");
    }

    /// Makes room again.
    pub(super) fn free(&self) {
        std::fs::remove_file(self.mount.at.join("ballast")).expect("the ballast is there");
    }
}

/// What makes the disk fail for a program that it is loaded into; see `fault.c`.
pub(super) struct Fault {
    library: PathBuf,
    rules: PathBuf,
}

impl Fault {
    /// Compiled for this world; `None` if there is no compiler.
    pub(super) fn new(world: &World) -> Option<Self> {
        if !present("cc") {
            return skipped("no C compiler");
        }
        world.write("fault.c", include_str!("fault.c"));
        let path = |name: &str| world.path(name).display().to_string();
        let (library, source) = (path("fault.so"), path("fault.c"));
        system("cc", &["-shared", "-fPIC", "-O1", "-o", &library, &source, "-ldl"]);
        Some(Self { library: world.path("fault.so"), rules: world.path("fault") })
    }

    /// The same command on a disk that may fail.
    pub(super) fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", &self.library).env("HANDOFF_TEST_FAULT", &self.rules)
    }

    /// From now on the disk fails by these rules.
    pub(super) fn rules(&self, rules: &str) {
        let new = self.rules.with_extension("new");
        std::fs::write(&new, format!("{rules}\n")).expect("a file");
        std::fs::rename(new, &self.rules).expect("it is in force");
    }

    /// From now on the disk is well.
    pub(super) fn mend(&self) {
        std::fs::remove_file(&self.rules).expect("it was in force");
    }

    /// How many calls have failed so far.
    pub(super) fn met(&self) -> u64 {
        std::fs::metadata(self.rules.with_extension("met")).map_or(0, |met| met.len())
    }
}
