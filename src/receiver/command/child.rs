//! The process of one attempt: how it is started, fed, listened to and ended.

use super::launcher;
use crate::process::{ProcessGroup, kill_group};
use nix::errno::Errno;
use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::runtime::Handle;

/// How much of an answer is kept, from its beginning, in bytes.
pub(super) const STDOUT_BYTES_MAX: usize = 64 * 1024;
/// How much of what a program complained about is kept, from its end, in bytes.
pub(super) const STDERR_BYTES_MAX: usize = 8 * 1024;
/// Read at once, in bytes.
const CHUNK_BYTES: usize = 8 * 1024;
/// Reads of what is left in a pipe after the exit: all that the largest pipe
/// of an ordinary user holds (1 MiB), and no more, or a process that goes on
/// writing would keep us reading.
const LEFT_READS_MAX: usize = 1024 * 1024 / CHUNK_BYTES;

/// A launcher that waits for its byte, with the three pipes to it.
///
/// Dropped before its end is known, it is killed with its whole group.
pub(super) struct Started {
    leash: Leash,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// What became of a process.
#[derive(Debug)]
pub(super) struct Ended {
    /// How it exited; an error if the system would not tell.
    pub(super) status: io::Result<ExitStatus>,
    /// Whether a byte was handed over. If not, the launcher never went.
    pub(super) handed_over: bool,
    /// The beginning of its standard output.
    pub(super) stdout: Kept,
    /// The end of its standard error.
    pub(super) stderr: Kept,
}

impl Started {
    /// Starts the launcher in a process group of its own, with no environment
    /// but the one given.
    ///
    /// # Errors
    ///
    /// Where it cannot be started; there is then no process.
    pub(super) fn spawn(
        launcher: &[OsString],
        nonce: &str,
        program: &[String],
        environment: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let (path, arguments) =
            launcher.split_first().ok_or_else(|| io::Error::other("there is no launcher"))?;
        let mut leash = Leash(Some(
            tokio::process::Command::new(path)
                .args(arguments)
                .args([launcher::LAUNCH, nonce])
                .args(program)
                .env_clear()
                .envs(environment.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true)
                .spawn()?,
        ));
        let pipes = leash.0.as_mut().and_then(|child| {
            Some((child.stdin.take()?, child.stdout.take()?, child.stderr.take()?))
        });
        let (stdin, stdout, stderr) = pipes.ok_or_else(|| io::Error::other("a pipe is missing"))?;
        Ok(Self { leash, stdin, stdout, stderr })
    }

    /// The group that it leads, in which the command will run.
    ///
    /// `None` where the system does not tell.
    pub(super) fn group(&self) -> Option<ProcessGroup> {
        ProcessGroup::led_by(self.leash.0.as_ref()?.id()?)
    }

    /// Ends it before it was told to go, and waits until it is gone.
    pub(super) async fn call_off(mut self) {
        self.leash.kill();
        // It is killed either way; an error here has nobody to help.
        self.leash.wait().await.ok();
    }

    /// Lets it go, hands the request over, and listens until it exits.
    ///
    /// Its exit ends the call, whoever else still holds the pipes: what lies
    /// in them by then is read, what comes later is not.
    pub(super) async fn run(self, request: &[u8]) -> Ended {
        let Self { mut leash, stdin, stdout: mut answers, stderr: mut complaints } = self;
        let mut stdout = Kept::first(STDOUT_BYTES_MAX);
        let mut stderr = Kept::last(STDERR_BYTES_MAX);
        let mut written = 0;
        let input = [&[launcher::GO], request].concat();
        let status = {
            // All three at once: a program may fill one pipe while we wait at another.
            let pump = async {
                tokio::join!(
                    feed(stdin, &input, &mut written),
                    keep(&mut answers, &mut stdout),
                    keep(&mut complaints, &mut stderr),
                );
                pending::<Infallible>().await
            };
            tokio::select! {
                biased;
                status = leash.wait() => status,
                never = pump => match never {},
            }
        };
        keep_what_is_left(&answers, &mut stdout);
        keep_what_is_left(&complaints, &mut stderr);
        Ended { status, handed_over: written > 0, stdout, stderr }
    }
}

/// Holds a child so that it cannot outlive the call.
struct Leash(Option<Child>);

impl Leash {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Some(child) => child.wait().await,
            None => Err(Errno::ECHILD.into()),
        }
    }

    /// Kills the whole group, unless the child's end is known already: what it
    /// left behind then is meant to stay, and its id may be another's.
    fn kill(&self) {
        if let Some(leader) = self.0.as_ref().and_then(Child::id) {
            // Fails if all are dead, or run as another user; there is no more to be done.
            kill_group(leader).ok();
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.kill();
        let Some(mut child) = self.0.take() else { return };
        if child.id().is_none() {
            return;
        }
        // tokio would pick the dead child up as well, but only when something
        // else wakes it. Without a runtime that is still so.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { child.wait().await });
        }
    }
}

/// Writes the input and closes the pipe. A program that does not want it has
/// closed its end, which is its right; `written` says how far we came.
async fn feed(mut stdin: ChildStdin, input: &[u8], written: &mut usize) {
    while *written < input.len() {
        match stdin.write(&input[*written..]).await {
            Ok(0) | Err(_) => return,
            Ok(count) => *written += count,
        }
    }
}

/// Reads until the other end is closed, also what is not kept.
async fn keep(pipe: &mut (impl AsyncRead + Unpin), kept: &mut Kept) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        kept.push(&chunk[..count]);
    }
}

/// Reads what a pipe holds at this moment, without waiting for more.
///
/// It asks the pipe itself, which is non-blocking: the runtime may not have
/// heard yet that there is something to read.
fn keep_what_is_left(pipe: impl AsFd, kept: &mut Kept) {
    let mut chunk = vec![0; CHUNK_BYTES];
    for _ in 0..LEFT_READS_MAX {
        match nix::unistd::read(&pipe, &mut chunk) {
            Ok(count @ 1..) => kept.push(&chunk[..count]),
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// The first or the last bytes of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    end: End,
    cut: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Kept {
    /// Keeps the first bytes, at most `limit` of them.
    pub(super) const fn first(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, end: End::First, cut: false }
    }

    /// Keeps the last bytes, at most `limit` of them.
    pub(super) const fn last(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, end: End::Last, cut: false }
    }

    /// Adds what came next.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let room = self.limit.saturating_sub(self.bytes.len());
        self.cut |= chunk.len() > room;
        match self.end {
            End::First => self.bytes.extend(chunk.iter().take(room)),
            End::Last => {
                self.bytes.extend(chunk);
                let over = self.bytes.len().saturating_sub(self.limit);
                self.bytes.drain(..over);
            }
        }
    }

    /// What was kept.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there was more.
    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_and_the_last_bytes_are_kept_however_they_come(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            limit in 0_usize..20,
        ) {
            let all = chunks.concat();
            let (mut first, mut last) = (Kept::first(limit), Kept::last(limit));
            for chunk in &chunks {
                first.push(chunk);
                last.push(chunk);
            }
            let length = all.len().min(limit);
            prop_assert_eq!(first.bytes(), &all[..length]);
            prop_assert_eq!(last.bytes(), &all[all.len() - length..]);
            let longer = all.len() > limit;
            prop_assert_eq!((first.is_cut(), last.is_cut()), (longer, longer));
        }
    }
}
