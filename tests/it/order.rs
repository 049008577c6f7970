//! The order of things on disk and on the wire, as the kernel saw it.
//!
//! Needs `strace`. Without it a rule is skipped, and says so; with `CI` set it fails.

use crate::support::{Daemon, Site, Value, command, key};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::process::Command;

/// The calls that put something on disk or hand it on; enough of each to know it again.
const STRACE: [&str; 6] =
    ["-f", "-y", "-s", "6000", "-e", "trace=pwrite64,fdatasync,fsync,write,writev"];

/// Whether calls can be traced here. On a machine of CI they have to be.
fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    let can = traced.is_ok_and(|status| status.success());
    let needed = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(can || !needed, "strace is missing or may not trace: install it");
    can
}

/// The program under strace, with the trace in the file `trace`.
fn traced(site: &Site, arguments: &[&str]) -> Command {
    let program = site.program(arguments);
    let mut strace = Command::new("strace");
    strace.args(STRACE).arg("-o").arg(site.path("trace")).arg("--");
    strace.arg(program.get_program()).args(program.get_args()).current_dir(site.folder());
    strace.stdin(std::process::Stdio::null());
    strace
}

/// What had happened to the WAL when something was written elsewhere.
#[derive(Debug, Default, PartialEq)]
struct Wal {
    /// The text that was looked for was written to it.
    written: bool,
    /// A sync that began after that has ended.
    synced: bool,
    /// Something was written to it since its last sync.
    dirty: bool,
}

/// Reads a trace up to the first write of `handed`; the WAL must have got `stored` before.
fn wal_at(trace: &str, handed: &str, stored: &str) -> Wal {
    let mut wal = Wal::default();
    let mut syncing = BTreeSet::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let of_wal = call.contains("-wal>");
        if call.starts_with("write") && call.contains(handed) {
            return wal;
        } else if call.starts_with("pwrite64(") && of_wal {
            wal.dirty = true;
            wal.written |= call.contains(stored);
        } else if (call.starts_with("fdatasync(") || call.starts_with("fsync(")) && of_wal {
            syncing.insert(thread);
        }
        let ended = call.ends_with("= 0") && call.contains("sync");
        if ended && syncing.remove(thread) {
            wal.dirty = false;
            wal.synced |= wal.written;
        }
    }
    panic!("{handed} was never written:\n{trace}");
}

const DURABLE: Wal = Wal { written: true, synced: true, dirty: false };

#[test]
fn an_attempt_is_synced_before_the_first_byte_leaves() {
    if !can_trace() {
        return eprintln!("skipped: no strace here");
    }
    let site = Site::new(&command(r#"mode = "none""#, ""));
    site.write("deliver.sh", "cat > FOLDER/request\n");
    assert!(site.approve("case-104", "Call").status.success());
    let mut daemon = Daemon::spawn(traced(&site, &["run"]));
    assert_eq!(site.wait(&key("case-104"))["state"], "sent");
    let holder = site.read("app.db.daemon-lock");
    let pid = holder.trim_start_matches("process ").split(',').next().unwrap();
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGTERM).unwrap();
    assert!(daemon.ended().success());
    let Value::Text(instance) = site.value("SELECT instance FROM handoff_attempts") else {
        panic!()
    };
    let trace = site.read("trace");
    assert_eq!(wal_at(&trace, r#"!{\"protocol\":1"#, &instance), DURABLE);
    assert!(site.read("request").starts_with(r#"{"protocol":1"#));
}

#[test]
fn a_recording_is_synced_before_approve_says_so() {
    if !can_trace() {
        return eprintln!("skipped: no strace here");
    }
    let site = Site::new(&command(r#"mode = "none""#, ""));
    let approve = ["approve", "create-followup", "--field", "case_id=case-104"];
    let approve = [&approve[..], &["--field", "title=Call"]].concat();
    let output = traced(&site, &approve).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let key = key("case-104");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("recorded {key}")));
    assert_eq!(wal_at(&site.read("trace"), &format!("recorded {key}"), &key), DURABLE);
}

#[test]
fn a_write_before_the_sync_is_told_from_one_after_it() {
    let lines = [
        r#"10 pwrite64(4</x/app.db-wal>, "key", 3, 0) = 3"#,
        r#"10 fdatasync(4</x/app.db-wal> <unfinished ...>"#,
        r#"11 write(9<pipe:[1]>, "early", 5) = 5"#,
        r#"10 <... fdatasync resumed>) = 0"#,
        r#"11 write(9<pipe:[1]>, "late", 4) = 4"#,
    ]
    .join("\n");
    assert_eq!(wal_at(&lines, "early", "key"), Wal { synced: false, dirty: true, ..DURABLE });
    assert_eq!(wal_at(&lines, "late", "key"), DURABLE);
    assert_eq!(
        wal_at(&lines, "late", "other"),
        Wal { written: false, synced: false, dirty: false }
    );
}
