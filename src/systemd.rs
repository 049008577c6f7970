//! What the service manager is told. Without one, nothing happens here.

use crate::supervisor::Pulse;
use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::interval;

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

/// The stop has begun and may take so long.
pub fn stopping(within: Duration) {
    let micros = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    notify(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("stopping: waiting for calls under way"),
    ]);
}

/// Feeds the watchdog for as long as the supervisor's loop comes round.
///
/// Returns at once where no watchdog is asked for.
pub async fn watchdog(pulse: Pulse) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = interval((limit / 4).max(Duration::from_millis(10)));
    let mut hangs = false;
    loop {
        ticks.tick().await;
        let hung = std::mem::replace(&mut hangs, pulse.age() >= limit);
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

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(
            event = "notify_failed", error = %error,
            "the service manager was not told"
        );
    }
}
