//! The `handoff` program.

use handoff::receiver::launcher;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The launcher is this same program, started by a command receiver.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == launcher::LAUNCH) {
        return launcher::run(arguments);
    }
    handoff::cli::main()
}
