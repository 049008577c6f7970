//! Processes of ours: how they are known after we died, and how they are ended.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fmt;
use std::fs;

/// A process group that a command receiver started, so named that a reused
/// process id is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// The group's id, which is its leader's process id.
    pub id: i32,
    /// When the leader started, in clock ticks since boot.
    pub started: u64,
    /// The boot in which it did.
    pub boot_id: String,
}

impl ProcessGroup {
    /// The group that a process of this id leads.
    ///
    /// `None` if there is no such process any more.
    pub fn led_by(pid: u32) -> Option<Self> {
        let id = i32::try_from(pid).ok()?;
        let started = stat(id)?.started;
        Some(Self { id, started, boot_id: crate::clock::boot_id() })
    }

    /// Reads the text form `id:started:boot_id` back.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let id = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        Some(Self { id, started, boot_id: parts.next()?.to_owned() })
    }

    /// Kills every process of the group, if it is still the one that we started.
    ///
    /// Returns whether there was anything to kill.
    pub fn kill(&self) -> bool {
        self.is_ours() && matches!(killpg(Pid::from_raw(self.id), Signal::SIGKILL), Ok(()))
    }

    /// Whether a process of the group still runs.
    pub fn is_alive(&self) -> bool {
        self.is_ours() && members(self.id).any(|member| member.state != 'Z')
    }

    /// Whether the group of this id is the one that we started: same boot, and
    /// the leader is ours, or is gone and left members that started after it.
    fn is_ours(&self) -> bool {
        if self.id <= 1 || self.boot_id != crate::clock::boot_id() {
            return false;
        }
        match stat(self.id) {
            Some(leader) => leader.started == self.started,
            None => members(self.id).all(|member| member.started >= self.started),
        }
    }
}

impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.id, self.started, self.boot_id)
    }
}

/// Kills a group of which we know for certain that it is ours: its leader is
/// our child and has not been waited for.
pub fn kill_group(leader: u32) -> Result<(), Errno> {
    let id = i32::try_from(leader).map_err(|_| Errno::ESRCH)?;
    killpg(Pid::from_raw(id), Signal::SIGKILL)
}

#[derive(Debug)]
struct Stat {
    state: char,
    group: i32,
    started: u64,
}

/// What the kernel says of a process in `/proc/PID/stat` (proc(5): fields 3, 5 and 22).
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

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "7 (a) b (c) S 1 42 42 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 98765 1 2";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.group, stat.started), ('S', 42, 98_765));
    }

    #[test]
    fn a_group_of_another_boot_or_with_another_start_is_never_ours() {
        let own = ProcessGroup::led_by(std::process::id()).unwrap();
        assert_eq!(ProcessGroup::parse(&own.to_string()), Some(own.clone()));
        let reused = ProcessGroup { started: own.started + 1, ..own.clone() };
        assert!(!reused.is_ours());
        let other_boot = ProcessGroup { boot_id: "another".into(), ..own };
        assert!(!other_boot.is_ours());
    }
}
