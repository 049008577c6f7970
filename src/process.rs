//! Processes of ours: how they are known after we died, and how they are ended.

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fmt;
use std::fs;
use std::time::Duration;

/// The first pause between two looks at a group that has been killed.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A process group that a command receiver started, so named that a reused
/// process id is not taken for it.
///
/// While its leader lives, or waits to be reaped, the start time tells. The
/// kernel gives a leader's id to no other process as long as the group has a
/// member, but once the whole group is gone the id may become another group's,
/// and that one's leader may be gone as well. Then only the session tells them
/// apart, which no process of a group can leave without leaving the group: it
/// is the one of the daemon that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The group's id, which is its leader's process id.
    pub id: i32,
    /// When the leader started, in clock ticks since boot.
    pub started: u64,
    /// The session that the group belongs to.
    pub session: i32,
    /// The boot in which it did.
    pub boot_id: String,
}

impl ProcessGroup {
    /// The group that a process of this id leads.
    ///
    /// `None` if there is no such process any more.
    pub fn led_by(pid: u32) -> Option<Self> {
        let id = i32::try_from(pid).ok()?;
        let Stat { started, session, .. } = stat(id)?;
        Some(Self { id, started, session, boot_id: crate::clock::boot_id() })
    }

    /// Reads the text form `id:started:session:boot_id` back; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        let id = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        let session = parts.next()?.parse().ok()?;
        Some(Self { id, started, session, boot_id: parts.next()?.to_owned() })
    }

    /// Kills every process of the group, if it is still the one that we started.
    ///
    /// Returns whether there was anything to kill, dead processes that nobody
    /// has waited for included. None escapes by a fork at this moment: the
    /// kernel refuses one while a signal is due.
    pub fn kill(&self) -> bool {
        self.is_ours() && matches!(killpg(Pid::from_raw(self.id), Signal::SIGKILL), Ok(()))
    }

    /// Kills the group and waits until no process of it runs. Blocks the thread.
    ///
    /// Returns whether that is so within `longest`. If not, it may still act:
    /// a process of it hangs inside the kernel, or runs as a user whom we may
    /// not kill.
    pub fn end_and_wait(&self, longest: Duration) -> bool {
        self.kill();
        let (mut left, mut delay) = (longest, FIRST_PAUSE);
        while self.is_alive() {
            if left.is_zero() {
                return false;
            }
            pause(delay.min(left));
            left = left.saturating_sub(delay);
            delay = (delay * 2).min(LONGEST_PAUSE);
        }
        true
    }

    /// Whether a process of the group still runs.
    pub fn is_alive(&self) -> bool {
        self.is_ours() && members(self.id).any(|member| member.runs())
    }

    /// Whether the group of this id is the one that we started.
    fn is_ours(&self) -> bool {
        // Ids 0 and 1 mean our own group and everybody to kill(2). Without a
        // boot id any start time may be another boot's.
        if self.id <= 1 || self.boot_id.is_empty() || self.boot_id != crate::clock::boot_id() {
            return false;
        }
        match stat(self.id) {
            Some(leader) => leader.started == self.started,
            None => members(self.id)
                .all(|member| member.session == self.session && member.started >= self.started),
        }
    }
}

/// Waits for that long. Nothing tells of the end of a process that is not our
/// child, short of calls for which there is no safe interface.
fn pause(time: Duration) {
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
    // An interrupted pause is only a shorter one.
    poll(&mut [], timeout).ok();
}

impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.id, self.started, self.session, self.boot_id)
    }
}

/// Kills a group of which we know for certain that it is ours: its leader is
/// our child and has not been waited for.
///
/// # Errors
///
/// `ESRCH` if no process has this id; `EPERM` if we may kill none of the group.
pub fn kill_group(leader: u32) -> Result<(), Errno> {
    let id = i32::try_from(leader).map_err(|_| Errno::ESRCH)?;
    killpg(Pid::from_raw(id), Signal::SIGKILL)
}

#[derive(Debug)]
struct Stat {
    state: char,
    group: i32,
    session: i32,
    started: u64,
}

impl Stat {
    /// Whether it can still act: it has not died, reaped or not.
    fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What the kernel says of a process in `/proc/PID/stat` (proc(5): fields 3, 5, 6 and 22).
fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in field 2 may hold blanks and brackets; the last bracket ends it.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// The processes of a group.
fn members(group: i32) -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?))
        .filter(move |stat| stat.group == group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// Starts a shell that leads a group, and waits until it has said something.
    fn shell(script: &str) -> (std::process::Child, ProcessGroup) {
        let mut leader = Command::new("/bin/sh")
            .args(["-c", script])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let group = ProcessGroup::led_by(leader.id()).unwrap();
        leader.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        (leader, group)
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 42 43 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 98765 1 2";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.group, stat.session, stat.started), ('S', 42, 43, 98_765));
    }

    #[test]
    fn the_text_form_is_read_back_and_nothing_else() {
        let own = ProcessGroup::led_by(std::process::id()).unwrap();
        assert_eq!(ProcessGroup::parse(&own.to_string()), Some(own));
        for text in ["", "1", "1:2", "1:2:3", "a:2:3:boot", "1:-2:3:boot", "99999999999:2:3:boot"] {
            assert_eq!(ProcessGroup::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_group_of_another_boot_or_with_another_start_is_never_ours() {
        let own = ProcessGroup::led_by(std::process::id()).unwrap();
        assert!(own.is_ours());
        let reused = ProcessGroup { started: own.started + 1, ..own.clone() };
        assert!(!reused.is_ours());
        let other_boot = ProcessGroup { boot_id: "another".into(), ..own.clone() };
        assert!(!other_boot.is_ours());
        let no_boot = ProcessGroup { boot_id: String::new(), ..own.clone() };
        assert!(!no_boot.is_ours());
        for everybody in [-1, 0, 1] {
            assert!(!ProcessGroup { id: everybody, ..own.clone() }.is_ours());
        }
    }

    #[test]
    fn a_group_is_ended_with_its_members_while_its_dead_leader_is_not_reaped() {
        let (mut leader, group) = shell("sleep 1000 & echo; wait");
        assert!(group.is_alive());
        assert!(group.end_and_wait(Duration::from_secs(20)));
        assert!(!group.is_alive());
        leader.wait().unwrap();
        assert!(group.end_and_wait(Duration::ZERO));
    }

    #[test]
    fn a_group_is_ended_when_its_leader_is_gone() {
        let (mut leader, group) = shell("sleep 1000 & echo");
        leader.wait().unwrap();
        assert!(group.is_alive());
        assert!(group.end_and_wait(Duration::from_secs(20)));
    }

    #[test]
    fn a_group_that_took_over_the_id_and_lost_its_leader_is_not_ours() {
        let (mut leader, group) = shell("sleep 1000 & echo");
        leader.wait().unwrap();
        let later = ProcessGroup { started: group.started + 1_000_000, ..group.clone() };
        let elsewhere = ProcessGroup { session: group.session + 1, ..group.clone() };
        for other in [later, elsewhere] {
            assert!(!other.is_alive());
            assert!(!other.kill());
        }
        assert!(group.is_alive());
        assert!(group.end_and_wait(Duration::from_secs(20)));
    }
}
