//! Waiting for another process or a late effect, for the tests of receivers:
//! the one place of theirs that may pause.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// After so long what was waited for will not come.
const LONG: Duration = Duration::from_secs(60);

/// Waits until something is so, and fails if it never is.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Gives what must not happen the time to happen.
pub(crate) async fn moment(time: Duration) {
    sleep(time).await;
}
