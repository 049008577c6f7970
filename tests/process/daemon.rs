//! The daemon as a process: started, told by signals, and read by its log.

use crate::documented;
use crate::support::{Running, until, until_or};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A daemon that is killed when the test is done with it.
pub(crate) struct Daemon {
    child: Running,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines() {
                let line = line.expect("the log is UTF-8");
                lock(&kept).push(line);
            }
        });
        Self { child: Running(child), lines, reader: Some(reader) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.0.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the daemon can be told");
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.child.0.try_wait().expect("it is our child").is_some()
    }

    /// What was logged so far, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// The records of this event so far.
    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        let records = self.lines().into_iter().filter_map(|line| serde_json::from_str(&line).ok());
        records.filter(|record: &Value| record["event"] == event).collect()
    }

    /// Waits for the first record of this event.
    #[track_caller]
    pub(crate) fn event(&self, event: &str) -> Value {
        self.nth_event(event, 1)
    }

    /// Waits for the n-th record of this event.
    #[track_caller]
    pub(crate) fn nth_event(&self, event: &str, n: usize) -> Value {
        until_or(
            || self.events(event).into_iter().nth(n - 1),
            || format!("{event} number {n} in {:#?}", self.lines()),
        )
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let status =
            until("the daemon to end", || self.child.0.try_wait().expect("it is our child"));
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log is read to its end");
            let lines = self.lines();
            let problems = lines.iter().filter_map(|line| documented::problem(line));
            assert_eq!(problems.collect::<Vec<_>>(), [""; 0], "the log is as documented");
        }
        status
    }

    /// Waits for the end, which must have this exit code.
    #[track_caller]
    pub(crate) fn exits(&mut self, code: i32) -> Vec<String> {
        let status = self.ended();
        assert_eq!(status.code(), Some(code), "{:#?}", self.lines());
        self.lines()
    }

    /// Stops it as a service manager would.
    #[track_caller]
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.signal(Signal::SIGTERM);
        self.exits(0)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
