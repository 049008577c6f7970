//! Deaths of the daemon while a command runs, caused from outside and by the
//! command itself: with no fault of our own making in the product.

use crate::support::place::text;
use crate::support::{Daemon, Site, command, fifo, key, told};
use std::os::unix::process::ExitStatusExt;

const NONE: &str = r#"mode = "none""#;
const KEYED: &str = r#"mode = "idempotency_key", window = "forever""#;

fn site(contract: &str, script: &str) -> Site {
    let site = Site::new(&command(contract, "timeout = \"1h\""));
    site.write("deliver.sh", script);
    assert!(site.approve("case-104", "Call").status.success());
    site
}

/// The lines of the receiver's ledger, one for each effect.
fn effects(site: &Site) -> usize {
    std::fs::read_to_string(site.path("ledger")).unwrap_or_default().lines().count()
}

/// Waits where it can be seen; the next run looks whether the first still runs.
const WAITS_ONCE: &str = r#"
if [ -e FOLDER/first ]; then
    status=/proc/$(cat FOLDER/first)/status
    if [ ! -e "$status" ] || grep -q 'State:.Z' "$status"; then echo gone; else echo runs; fi \
        > FOLDER/seen
    echo '{"remote_id":"7"}'
    exit 0
fi
echo $$ > FOLDER/first
echo started > FOLDER/started
read line < FOLDER/never
echo late >> FOLDER/ledger
"#;

#[test]
fn a_command_that_outlived_its_daemon_is_ended_before_the_next_attempt() {
    for (contract, state, attempts) in [(KEYED, "sent", 2), (NONE, "blocked", 1)] {
        let site = site(contract, WAITS_ONCE);
        fifo(&site.path("started"));
        fifo(&site.path("never"));
        let daemon = Daemon::start(&site);
        assert_eq!(told(&site.path("started")), "started\n");
        daemon.kill();
        let daemon = Daemon::start(&site);
        assert_eq!(site.wait(&key("case-104"))["state"], state, "{contract}");
        let log = daemon.stop();
        let events: Vec<_> = log.iter().filter_map(|record| record["event"].as_str()).collect();
        let place = |event: &str| events.iter().position(|one| *one == event);
        assert!(place("command_ended").unwrap() < place("recovered").unwrap(), "{events:?}");
        assert!(log.iter().any(|one| one["event"] == "command_ended" && one["ended"] == true));
        let first = "SELECT outcome FROM handoff_attempts WHERE number = 1";
        assert_eq!(site.value(first), text("interrupted"));
        assert_eq!((site.standing().3, effects(&site)), (attempts, 0), "{contract}");
        if state == "sent" {
            assert_eq!(site.read("seen"), "gone\n");
        }
    }
}

/// A receiver that knows its keys: one line in its ledger for each.
const EFFECT: &str = "grep -q case-104 FOLDER/ledger 2>/dev/null || echo case-104 >> FOLDER/ledger";
/// The daemon dies, the first time.
const KILL: &str = "[ -e FOLDER/killed ] || { touch FOLDER/killed; kill -9 $PPID; exit 1; }";

#[test]
fn a_program_that_kills_its_daemon_leaves_the_doubt_that_there_is() {
    for (contract, after, end) in [
        (NONE, false, ("blocked", Some("ambiguous"), "possible", 1, 0)),
        (NONE, true, ("blocked", Some("ambiguous"), "possible", 1, 1)),
        (KEYED, false, ("sent", None, "confirmed", 2, 1)),
        (KEYED, true, ("sent", None, "confirmed", 2, 1)),
    ] {
        let steps = if after { [EFFECT, KILL] } else { [KILL, EFFECT] };
        let site = site(contract, &steps.join("\n"));
        let mut daemon = Daemon::spawn_only(site.program(&["run"]));
        assert_eq!(daemon.ended().signal(), Some(9), "{contract}");
        let daemon = Daemon::start(&site);
        site.wait(&key("case-104"));
        daemon.stop();
        let (state, reason, effect, attempts, _) = site.standing();
        let shown = (&*state, reason.as_deref(), &*effect, attempts, effects(&site));
        assert_eq!(shown, end, "{contract}, after its effect: {after}");
    }
}

#[test]
fn a_daemon_that_dies_again_and_again_leaves_one_effect_and_asks() {
    let script = format!("{EFFECT}\nkill -9 $PPID");
    let site = site(KEYED, &script);
    for _ in 0..3 {
        let mut daemon = Daemon::spawn_only(site.program(&["run"]));
        assert_eq!(daemon.ended().signal(), Some(9));
    }
    let daemon = Daemon::start(&site);
    site.wait(&key("case-104"));
    daemon.stop();
    let crashed = ("blocked".into(), Some("crashed".into()), "possible".into(), 3, None);
    assert_eq!((site.standing(), effects(&site)), (crashed, 1));
}
