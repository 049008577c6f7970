//! What the watchdog ends, and what it leaves alone.

use crate::machine::{Machine, RECEIVERS, pause, until};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::time::Duration;

/// The shipped ones are 30 s and 5 s.
const SHORT: &str = "[Service]\nWatchdogSec=2s\nRestartSec=100ms\n";

/// A service with a short watchdog, in which a lock is waited for so long.
fn watched(busy_timeout: &str) -> Option<Machine> {
    let store = format!("[store]\nurl = \"sqlite:app.db\"\nbusy_timeout = \"{busy_timeout}\"");
    let machine = Machine::boot(&format!("{store}\n{RECEIVERS}"))?;
    machine.drop_in(SHORT);
    machine.start();
    Some(machine)
}

/// One thread of the daemon, stopped while the others go on.
struct Held(Pid);

impl Held {
    fn stop(thread: Pid) -> Self {
        ptrace::seize(thread, ptrace::Options::empty()).expect("the thread is held");
        let held = Self(thread);
        ptrace::interrupt(thread).expect("the thread is stopped");
        held
    }

    /// systemd learns of the end of a thread that is held only after its holder.
    #[track_caller]
    fn until_ended_by(&self, signal: Signal) {
        until("the end of the process", || {
            let status = waitpid(self.0, Some(WaitPidFlag::WNOHANG)).expect("the thread is held");
            matches!(status, WaitStatus::Signaled(_, by, _) if by == signal).then_some(())
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Fails where the thread has ended, which is as well.
        ptrace::detach(self.0, None).ok();
    }
}

#[test]
fn a_loop_that_hangs_is_ended_by_the_watchdog_though_every_other_thread_lives() {
    let Some(machine) = watched("100ms") else { return };
    let pid = machine.show("MainPID");
    let key = machine.record("hangs-1");
    machine.until_called("crm.db", &key);
    // The thread on which the loop runs is the first one; the others go on.
    let thread = Held::stop(machine.daemon());
    thread.until_ended_by(Signal::SIGABRT);
    let next = machine.until_replaced(&pid);
    let journal = machine.journal().join("\n");
    assert!(journal.contains("loop_hung"), "{journal}");
    assert!(journal.contains("Watchdog timeout"), "{journal}");
    assert_eq!(machine.restarts(), 1, "{journal}");
    // The CRM answers a repeat with the same task, by its contract.
    let other = machine.record("case-104");
    machine.until_state(&other, "sent");
    assert!(machine.outcomes(&key).starts_with("interrupted"), "{}", machine.outcomes(&key));
    assert_eq!(machine.tasks("crm.db", &key), 1);
    assert_eq!(machine.show("MainPID"), next);
}

#[test]
fn a_process_that_is_not_run_is_ended_by_the_watchdog_and_started_again() {
    let Some(machine) = watched("5s") else { return };
    let pid = machine.show("MainPID");
    machine.signal("SIGSTOP");
    machine.until_replaced(&pid);
    let key = machine.record("case-104");
    machine.until_state(&key, "sent");
    let journal = machine.journal().join("\n");
    assert!(journal.contains("Watchdog timeout"), "{journal}");
}

#[test]
fn long_but_healthy_work_is_left_alone_by_the_watchdog() {
    let Some(machine) = watched("20s") else { return };
    let pid = machine.show("MainPID");
    // The answer to the first call comes while another program holds the database.
    let keys = ["slow-1", "slower-1"].map(|case| machine.record(case));
    for key in &keys {
        machine.until_called("crm.db", key);
    }
    let db = machine.open("app.db");
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    pause(Duration::from_secs(8));
    db.execute_batch("COMMIT").expect("the lock goes");
    for key in &keys {
        machine.until_state(key, "sent");
    }
    assert_eq!((machine.show("MainPID"), machine.restarts()), (pid, 0));
}
