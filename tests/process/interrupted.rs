//! Calls that the daemon does not see the end of: it is stopped, killed, told of
//! another configuration, or killed by what it runs.

use crate::daemon::Daemon;
use crate::support::{Crm, World, until};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;

/// A CRM that takes it at once and answers its first attempt long after any grace.
const NEVER: &str = r#"[{ on = "attempt", n = 1, fault = "slow", delay = "10m" }]"#;
const KEYED: &str = "mode = \"idempotency_key\"\nwindow = \"forever\"";

/// A daemon with five calls that the CRM has taken and not answered.
fn five_calls(contract: &str) -> (World, Daemon) {
    let crm = Crm { faults: NEVER, contract, timeout: "30m", ..Crm::default() };
    let world = World::with(&crm).migrated();
    let daemon = world.daemon_with(&["--set", "worker.shutdown_grace=10ms"]);
    daemon.event("started");
    let keys: Vec<String> = (0..5).map(|case| world.record(&format!("case-{case}"))).collect();
    until("the CRM to have them", || keys.iter().all(|key| world.tasks(key) == 1).then_some(()));
    (world, daemon)
}

/// How many operations stand how.
fn standing(world: &World) -> String {
    world.value(
        "SELECT group_concat(n || ' ' || state || ' ' || reason || ' ' || effect) FROM (
           SELECT count(*) AS n, state, coalesce(blocked_reason, '-') AS reason, effect
             FROM handoff_outbox GROUP BY 2, 3, 4 ORDER BY 2, 3, 4)",
        [],
    )
}

#[test]
fn an_orderly_stop_leaves_no_more_and_no_less_than_a_kill() {
    for (contract, end) in
        [("mode = \"none\"", "5 blocked ambiguous possible"), (KEYED, "5 sent - confirmed")]
    {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let (world, mut daemon) = five_calls(contract);
            daemon.signal(signal);
            daemon.ended();
            let next = world.serving();
            until("none to be pending", || (!standing(&world).contains("pending")).then_some(()));
            assert_eq!(standing(&world), end, "after {signal}");
            let tasks = "SELECT count(*) FROM tasks";
            let tasks = world.open("crm.db").query_row(tasks, [], |row| row.get::<_, i64>(0));
            assert_eq!(tasks, Ok(5), "one for each key after {signal}");
            next.stop();
        }
    }
}

#[test]
fn the_answer_of_a_receiver_that_was_taken_out_meanwhile_is_stored() {
    let faults = r#"[{ on = "every", fault = "slow", delay = "1500ms" }]"#;
    let world = World::with(&Crm { faults, contract: "mode = \"none\"", ..Crm::default() });
    let world = world.migrated();
    let daemon = world.serving();
    let key = world.record("case-104");
    world.until_attempts(&key, 1);
    world.configure(
        "[receivers.mail]\nkind = \"simulated\"\npath = \"mail.db\"\n\
         [operations.send-reply]\nreceiver = \"mail\"\nsubject = \"case_id\"\n\
         schema = \"builtin:create-followup\"\n",
    );
    daemon.signal(Signal::SIGHUP);
    daemon.event("reloaded");
    assert_eq!(world.state(&key), "pending", "the call is under way");
    world.until_state(&key, "sent");
    assert_eq!((world.tasks(&key), daemon.events("outcome_fenced").len()), (1, 0));
    daemon.stop();
}

#[test]
fn a_program_that_kills_the_daemon_is_found_out_and_the_others_are_delivered() {
    let world = World::bare();
    let script = "#!/bin/sh\nread -r request\ncase $request in *case-bad*) kill -9 $PPID; exit 1;; \
                  esac\nexit 0\n";
    world.write("program", script);
    let program = world.path("program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    world.configure(&format!(
        "[receivers.crm]\nkind = \"command\"\nprogram = [\"{}\"]\nconcurrency = 8\n\
         contract = {{ mode = \"idempotency_key\", window = \"forever\" }}\n\
         retry = {{ initial = \"10ms\", max_interval = \"10ms\" }}\n",
        program.display()
    ));
    world.run(&["migrate"]).ok();
    let bad = world.record("case-bad");
    for case in 0..50 {
        world.record(&format!("case-{case}"));
    }
    let sent = "SELECT count(*) FROM handoff_outbox WHERE state = 'sent'";
    let settled = || world.state(&bad) == "blocked" && world.value::<i64>(sent, []) == 50;
    // A service manager starts it again and again.
    let mut deaths = 0;
    let mut daemon = world.daemon();
    until("all to be settled", || {
        if daemon.is_gone() {
            deaths += 1;
            daemon = world.daemon();
        }
        settled().then_some(())
    });
    daemon.event("started");
    daemon.stop();
    let reason =
        "SELECT blocked_reason || ' ' || effect FROM handoff_outbox WHERE state = 'blocked'";
    assert_eq!(world.value::<String>(reason, []), "crashed possible");
    assert!((3..=5).contains(&deaths), "{deaths} deaths");
}
