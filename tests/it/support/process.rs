//! The daemon as a process, and waiting for what other processes do. The only
//! place in which a test may wait by the clock.

use super::site::Site;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Far longer than anything here takes; only a fault lasts so long.
const LONG: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(5);

/// A daemon under way. Dropped, it is killed.
pub(crate) struct Daemon {
    child: Child,
    lines: Receiver<String>,
    /// What it has logged, as far as it was read.
    pub(crate) log: Vec<Value>,
}

impl Daemon {
    /// Starts the daemon of a site and waits until it serves.
    pub(crate) fn start(site: &Site) -> Self {
        Self::spawn(site.program(&["run"]))
    }

    /// As [`Daemon::start`], with a command of one's own.
    pub(crate) fn spawn(command: Command) -> Self {
        let mut daemon = Self::spawn_only(command);
        daemon.event("started");
        daemon
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn_only(mut command: Command) -> Self {
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (said, lines) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines, log: Vec::new() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Waits until it logs this event.
    pub(crate) fn event(&mut self, event: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(LONG);
            let line = line.unwrap_or_else(|_| panic!("no {event} in {:#?}", self.log));
            if let Ok(record) = serde_json::from_str::<Value>(&line) {
                self.log.push(record.clone());
                if record["event"] == event {
                    return record;
                }
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        while let Ok(line) = self.lines.recv_timeout(LONG) {
            self.log.extend(serde_json::from_str(&line));
        }
        status.unwrap()
    }

    /// Tells it to stop and waits for an orderly end.
    pub(crate) fn stop(mut self) -> Vec<Value> {
        self.signal(Signal::SIGTERM);
        let status = self.ended();
        assert!(status.success(), "{status}: {:#?}", self.log);
        std::mem::take(&mut self.log)
    }

    /// Kills it as a power cut would, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.ended();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails if it has ended, which is as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until something is so, and fails if it never is.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut left = LONG;
    while !holds() {
        assert!(!left.is_zero(), "never: {what}");
        std::thread::park_timeout(GLANCE);
        left = left.saturating_sub(GLANCE);
    }
}

/// As [`until`], and lets what is under way in this process go on.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(GLANCE).await;
        }
    };
    assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "never: {what}");
}

/// Makes a FIFO.
pub(crate) fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Waits until another process has the FIFO open for reading, and lets it go on.
pub(crate) fn release(path: &Path) {
    let path = path.to_owned();
    within("a reader comes", move || std::fs::write(path, "go\n").unwrap());
}

/// Waits until another process has written to the FIFO and closed it.
pub(crate) fn told(path: &Path) -> String {
    let path = path.to_owned();
    within("a writer comes", move || std::fs::read_to_string(path).unwrap())
}

/// Does what may block, and fails if it does for too long.
fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = channel();
    thread::spawn(move || done.send(work()));
    wait.recv_timeout(LONG).unwrap_or_else(|_| panic!("never: {what}"))
}
