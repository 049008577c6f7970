//! A database that the user may read and not write.

use crate::daemon::Daemon;
use crate::support::{Done, World};
use nix::unistd::{Gid, Uid};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Root may write everywhere, so it becomes somebody else.
const NOBODY: u32 = 65_534;

fn as_somebody(command: &mut Command) -> &mut Command {
    if Uid::effective().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn mode(path: &Path, mode: u32) {
    if Uid::effective().is_root() {
        chown(path, Some(NOBODY), Some(Gid::from_raw(NOBODY).as_raw())).expect("root may");
    }
    set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// A folder of somebody's with a database that nobody may write.
fn read_only() -> World {
    let world = World::new().migrated();
    world.record("case-104");
    for name in ["app.db", "handoff.toml"] {
        mode(&world.path(name), 0o444);
    }
    mode(&world.path(""), 0o755);
    world
}

#[test]
fn commands_that_write_say_that_they_cannot_and_the_others_show_what_is_there() {
    let world = read_only();
    let key = "harbor:create-followup:v1:case-104";
    let does = |command: &[&str]| Done::of(as_somebody(&mut world.command(command)));
    for command in [&["list"][..], &["show", key], &["explain", key], &["status"]] {
        assert!(does(command).ok().stdout.to_lowercase().contains("pending"));
    }
    let withdraw = ["withdraw", key, "--reason", "none"];
    let field = ["approve", "create-followup", "--field", "case_id=c", "--field", "title=t"];
    for command in [&["retry", key][..], &withdraw, &field, &["migrate"]] {
        does(command).exits(69).says("app.db");
    }
}

#[test]
fn run_waits_until_the_database_can_be_written() {
    let world = read_only();
    let daemon = Daemon::start(as_somebody(&mut world.command(&["run"])));
    daemon.event("store_unavailable");
    assert!(daemon.events("started").is_empty());
    mode(&world.path("app.db"), 0o644);
    daemon.event("started");
    world.until_state("harbor:create-followup:v1:case-104", "sent");
    daemon.stop();
}
