//! A disk that turns read-only, as one does after an error.

use super::place::{Fault, Mount, Small, skipped, system};
use super::{NO_PROMISE, SLOW, each_has_one_effect, each_once, until_all_sent};
use crate::daemon::Daemon;
use crate::support::{Crm, World, present};
use nix::sys::signal::Signal;
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn a_daemon_that_starts_on_a_read_only_disk_waits_until_it_can_write() {
    let Some(small) = Small::new("3m", &Crm::default()) else { return };
    let world = &small.world;
    let key = world.record("case-104");
    small.mount.remount("ro");
    let daemon = world.daemon();
    daemon.nth_event("store_unavailable", 2);
    let approve = ["approve", "create-followup", "--field", "case_id=case-2", "--field", "title=t"];
    world.run(&approve).exits(69).says("app.db");
    small.mount.remount("rw");
    daemon.event("started");
    until_all_sent(world);
    each_once(world, &[key]);
    daemon.stop();
}

/// Every way to write to it says EROFS, then works again.
#[test]
fn a_disk_that_is_read_only_for_a_while_is_written_again_afterwards() {
    let crm = Crm { contract: NO_PROMISE, faults: SLOW, ..Crm::default() };
    let world = World::with(&crm).migrated();
    let Some(fault) = Fault::new(&world) else { return };
    let daemon = Daemon::start(fault.on(&mut world.command(&["run"])));
    daemon.event("started");
    let in_flight = world.record("case-1");
    world.until_attempts(&in_flight, 1);
    fault.rules("all app.db 30 0 1000000");
    let waiting = world.record("case-2");
    let trouble = daemon.nth_event("store_trouble", 3);
    assert!(
        trouble["error"].as_str().is_some_and(|error| error.contains("I/O error")),
        "{trouble}"
    );
    assert_eq!(world.state(&waiting), "pending");
    fault.mend();
    until_all_sent(&world);
    daemon.event("store_recovered");
    each_once(&world, &[in_flight, waiting]);
    daemon.stop();
}

/// An ext4 file system in a file, read-only once it has met an error.
fn fragile(world: &World) -> Option<Mount> {
    if !present("mkfs.ext4") || !Path::new("/dev/loop-control").exists() {
        return skipped("no mkfs.ext4 or no loop devices");
    }
    let image = world.path("disk.img").display().to_string();
    world.write("disk.img", vec![0_u8; 16 << 20]);
    system("mkfs.ext4", &["-q", "-F", &image]);
    Mount::new(&world.path("disk"), &["-o", "loop,errors=remount-ro", &image])
}

/// Makes the kernel find an error on the file system mounted there.
fn break_it(mount: &Mount) {
    let at = mount.at.display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("a list");
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(at.as_str()));
    let device = line.and_then(|line| line.split(' ').next()).expect("it is mounted");
    let device = device.trim_start_matches("/dev/");
    let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
    std::fs::write(trigger, "a test").expect("the kernel can be told");
}

#[test]
fn a_stop_on_a_disk_that_broke_logs_the_receipt_and_the_next_start_repeats_by_key() {
    let world = World::with(&Crm { faults: SLOW, ..Crm::default() });
    let Some(mount) = fragile(&world) else { return };
    symlink(world.path("disk/app.db"), world.path("app.db")).expect("a link");
    let world = world.migrated();
    let mut daemon = world.serving();
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    break_it(&mount);
    let trouble = daemon.event("store_trouble");
    assert!(
        trouble["error"].as_str().is_some_and(|error| error.contains("I/O error")),
        "{trouble}"
    );
    daemon.signal(Signal::SIGTERM);
    daemon.exits(0);
    let lost = &daemon.events("outcome_not_stored")[0];
    assert_eq!((&lost["operation.key"], &lost["receipt"]), (&key.clone().into(), &"1".into()));
    system("umount", &[&mount.at.display().to_string()]);
    let image = world.path("disk.img").display().to_string();
    // 1: it had errors, and they are mended.
    let checked = std::process::Command::new("e2fsck").args(["-fy", &image]).output();
    let checked = checked.expect("e2fsck runs").status.code();
    assert!(matches!(checked, Some(0 | 1)), "{checked:?}");
    system("mount", &["-o", "loop", &image, &mount.at.display().to_string()]);
    let daemon = world.serving();
    until_all_sent(&world);
    each_has_one_effect(&world, &[key]);
    daemon.stop();
}
