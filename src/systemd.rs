//! What the service manager is told. Without one, nothing happens here.

use crate::supervisor::Pulse;
use sd_notify::NotifyState;
use std::future::Future;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, interval, interval_at};

/// While the start is at work it asks so often for so much more time.
const AT_WORK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// The daemon serves.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// One line about what goes on.
pub fn status(line: &str) {
    notify(&[NotifyState::Status(line)]);
}

/// A reload begins; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Does a piece of work of the start, and asks for more time for as long as it lasts:
/// tables that are brought up to date, attempts of a daemon that died. To wait for
/// a database that is not there is no work.
pub async fn at_work<T>(work: impl Future<Output = T>) -> T {
    let (often, more) = AT_WORK;
    let mut work = pin!(work);
    let mut ticks = interval_at(Instant::now() + often, often);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => notify(&[extend(more)]),
        }
    }
}

/// The stop has begun and may take so long.
pub fn stopping(within: Duration) {
    notify(&[
        NotifyState::Stopping,
        extend(within),
        NotifyState::Status("stopping: waiting for calls under way"),
    ]);
}

/// Feeds the watchdog for as long as the supervisor's loop comes round.
///
/// `patience` is the longest that a healthy loop may be away, for a database that
/// another program holds; a watchdog that is shorter does not make it a hung one.
/// Returns at once where no watchdog is asked for.
pub async fn watchdog(pulse: Pulse, patience: Duration) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = interval((limit / 4).max(Duration::from_millis(10)));
    let mut hangs = false;
    loop {
        ticks.tick().await;
        let hung = std::mem::replace(&mut hangs, pulse.age() >= limit.max(patience));
        if !hangs {
            notify(&[NotifyState::Watchdog]);
        } else if !hung {
            tracing::error!(
                event = "loop_hung",
                age_ms = u64::try_from(pulse.age().as_millis()).ok(),
                "the supervisor's loop does not come round; the watchdog is not fed"
            );
        }
    }
}

fn extend(by: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = send(state) {
        tracing::debug!(
            event = "notify_failed", error = %error,
            "the service manager was not told"
        );
    }
}

/// `sd_notify` knows sockets with a path only; `@` is for one without.
fn send(state: &[NotifyState<'_>]) -> Result<(), std::io::Error> {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&socket)?,
    };
    let message: String = state.iter().map(|one| format!("{one}\n")).collect();
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}
