//! Signals, turned into values on a channel.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGUSR1.
    Summary,
}

/// Starts to listen. The channel is never closed while the process lives.
///
/// # Errors
///
/// If a handler cannot be installed or no thread can be started.
pub fn listen() -> Result<mpsc::UnboundedReceiver<Asked>, std::io::Error> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let (asked, wait) = mpsc::unbounded_channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let what = match signal {
                SIGHUP => Asked::Reload,
                SIGUSR1 => Asked::Summary,
                _ => Asked::Stop,
            };
            if asked.send(what).is_err() {
                return;
            }
        }
    })?;
    Ok(wait)
}
