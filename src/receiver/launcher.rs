//! The launcher: what a command receiver's child is before it becomes the command.
//!
//! A command that runs must be known to the store, or a daemon that starts
//! after a crash could not end it. So the child is first this program itself.
//! It waits for one byte on its standard input, which is written once its
//! process group is stored; only then does it become the command. Where the
//! daemon dies before that, the byte never comes, and nothing has happened.

use nix::errno::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// The first argument that makes this program a launcher. Hidden, and no
/// interface: it takes a nonce, a program and its arguments after it.
pub const LAUNCH: &str = "__launch";

/// The byte that lets the launcher go. Any other would do as well.
pub(super) const GO: u8 = b'!';

/// Exit status of a launcher whose program could not be started. Programs use
/// it too, so it says nothing without the nonce.
pub(super) const NOT_STARTED: u8 = 127;
/// Exit status of a launcher that was never told to go: nothing was done (`EX_TEMPFAIL`).
const NOT_TOLD: u8 = 75;
/// Exit status of a launcher that was called by hand (`EX_USAGE`).
const MISUSED: u8 = 64;

/// Random bytes in a nonce: more than a program could ever guess.
const NONCE_BYTES: usize = 16;

/// Waits for the byte, then becomes the program. Returns only if it does not.
///
/// Takes the arguments that follow [`LAUNCH`]: the nonce, the program, and the
/// program's own arguments. It is to be called before anything else in `main`,
/// since it closes every file that this process has inherited.
///
/// If the program cannot be started, one line with the nonce and the reason
/// goes to standard output.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(nonce), Some(program)) = (args.next(), args.next()) else {
        return ExitCode::from(MISUSED);
    };
    close_inherited();
    if !told_to_go(io::stdin()) {
        return ExitCode::from(NOT_TOLD);
    }
    let error = std::process::Command::new(program).args(args).exec();
    // Without this line the status alone is reported, which is "unknown": a
    // failure to write it can only make the answer more careful.
    io::stdout().write_all(failure_line(&nonce.to_string_lossy(), &error).as_bytes()).ok();
    ExitCode::from(NOT_STARTED)
}

/// Reads exactly one byte, past the buffer of `std`'s own standard input: what
/// follows it is the command's.
fn told_to_go(stdin: impl AsFd) -> bool {
    let mut byte = [0];
    loop {
        match nix::unistd::read(&stdin, &mut byte) {
            Err(Errno::EINTR) => {}
            other => return other == Ok(1),
        }
    }
}

/// Closes what the daemon was itself handed without `O_CLOEXEC`, such as a
/// socket of a service manager. The files that it opened are closed already.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // The folder that was just read is among them, and gone by now.
        nix::unistd::close(number).ok();
    }
}

/// What the launcher says when the program could not be started.
fn failure_line(nonce: &str, error: &io::Error) -> String {
    format!("{nonce} {error}\n")
}

/// Why the program could not be started, if this output is the launcher's own.
///
/// A program cannot forge it: the nonce was an argument of the launcher, and
/// is gone from the process once the program has taken its place.
pub(super) fn failure_in(output: &[u8], nonce: &str) -> Option<String> {
    let rest = output.strip_prefix(nonce.as_bytes())?.strip_prefix(b" ")?.strip_suffix(b"\n")?;
    (!rest.contains(&b'\n')).then(|| String::from_utf8_lossy(rest).into_owned())
}

/// A new nonce, in hex.
///
/// It comes straight from the system, not from the seed of the jitter, which
/// is logged and could be told to a program.
///
/// # Errors
///
/// Where the system's random bytes cannot be read, such as with too many open files.
pub(super) fn nonce() -> io::Result<String> {
    let mut bytes = [0; NONCE_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_byte_is_read_and_the_rest_stays_for_the_command() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"!{\"protocol\":1}\n").unwrap();
        drop(writer);
        assert!(told_to_go(&reader));
        let mut rest = String::new();
        (&reader).read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "{\"protocol\":1}\n");
    }

    #[test]
    fn a_daemon_that_died_before_the_byte_is_no_word_to_go() {
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert!(!told_to_go(&reader));
    }

    #[test]
    fn only_a_single_line_with_the_nonce_is_the_launchers_own() {
        let nonce = nonce().unwrap();
        assert_eq!(nonce.len(), 2 * NONCE_BYTES);
        let line = failure_line(&nonce, &io::Error::from_raw_os_error(2));
        let why = failure_in(line.as_bytes(), &nonce).unwrap();
        assert!(why.contains("os error 2"), "{why}");
        for forged in [
            "",
            "no such file\n",
            &format!(" {line}"),
            &format!("{line}more\n"),
            line.trim_end(),
            &line.replace(&nonce, &"0".repeat(32)),
        ] {
            assert_eq!(failure_in(forged.as_bytes(), &nonce), None, "{forged:?}");
        }
    }

    #[test]
    fn no_two_nonces_are_equal() {
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }

    #[test]
    fn called_by_hand_without_a_program_it_does_nothing() {
        let misused = format!("{:?}", ExitCode::from(MISUSED));
        assert_eq!(format!("{:?}", run(std::iter::empty())), misused);
        assert_eq!(format!("{:?}", run(std::iter::once("nonce".into()))), misused);
    }
}
