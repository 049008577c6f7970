//! The same act stays the same act: whoever records it, whatever the language,
//! the time zone, and whatever lies between its attempts.

use crate::daemon::Daemon;
use crate::support::{Done, World, record, until};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const KEY: &str = "harbor:create-followup:v1:case-104";

#[test]
fn fifty_programs_that_record_the_same_act_at_once_get_one_operation_and_no_error() {
    let world = World::new().migrated();
    let start = |_| {
        let mut command = world.command(&["approve", "create-followup", "--json"]);
        command.args(["--field", "case_id=case-104", "--field", "title=Call"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    };
    let programs: Vec<_> = (0..50).map(start).collect();
    let said = programs.into_iter().map(|program| {
        let output = program.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    });
    let said: Vec<serde_json::Value> = said.collect();
    assert!(said.iter().all(|said| said["operation_key"] == KEY), "{said:?}");
    let of = |word: &str| said.iter().filter(|said| said["recorded"] == word).count();
    assert_eq!((of("new"), of("existing")), (1, 49), "{said:?}");
    let rows = "SELECT count(*) FROM handoff_outbox JOIN handoff_approvals USING (operation_key)";
    assert_eq!(world.value::<i64>(rows, []), 1);
}

/// A type whose payload may be any object with a subject, beside the built-in one.
const FREE: &str = r#"
[receivers.crm]
kind = "simulated"
path = "crm.db"
[operations.note]
receiver = "crm"
subject = "case_id"
schema = "any.json"
"#;

#[test]
fn no_language_and_no_time_zone_changes_a_fingerprint_or_a_time() {
    // Its names are sorted by UTF-16 code units, as RFC 8785 says: the SHA-256 of
    // {"-":1,"10":2,"2":3,"I":4,"Z":5,"_":6,"case_id":"x","i":7,"z":8,"é":9,"ı":10}.
    let payload = "{\"ı\":10,\"z\":8,\"é\":9,\"i\":7,\"I\":4,\"_\":6,\"Z\":5,\"2\":3,\"10\":2,\
                   \"-\":1,\"case_id\":\"x\"}";
    let published = "3110390b8bd51d91cd5dc85711472b409ef439060c122bee162529fc19140b72";
    let world = World::configured(FREE);
    world.write("any.json", r#"{"type":"object"}"#);
    world.write("payload.json", payload);
    world.run(&["migrate"]).ok();
    // The hour that the clocks of Berlin show twice: two different times.
    for (case, time) in [("first", "02:30:00+02:00"), ("again", "02:30:00+01:00")] {
        let (field, time) = (format!("case_id={case}"), format!("2125-10-28T{time}"));
        world.run(&["approve", "note", "--field", &field, "--deliver-after", &time]).ok();
    }
    let after = "SELECT deliver_after FROM handoff_approvals WHERE operation_key LIKE '%:' || ?1";
    let time = |case: &str| world.value::<i64>(after, [case]);
    assert_eq!(time("again") - time("first"), 3_600_000);
    let mut shown = Vec::new();
    for (language, zone) in
        [("C", "UTC"), ("tr_TR.UTF-8", "Europe/Berlin"), ("de_DE.UTF-8", "America/St_Johns")]
    {
        let command = |arguments: &[&str]| {
            let mut command = world.command(arguments);
            command.env("LANG", language).env("LC_ALL", language).env("TZ", zone);
            command
        };
        let run = |arguments: &[&str]| Done::of(&mut command(arguments)).ok().stdout;
        run(&["approve", "note", "--payload", "payload.json"]);
        let daemon = Daemon::start(&mut command(&["run"]));
        daemon.event("started");
        world.until_state("harbor:note:v1:x", "sent");
        daemon.stop();
        let show = run(&["show", "harbor:note:v1:x", "--json"]);
        assert!(show.contains(published), "{show}");
        let texts =
            ["x", "first", "again"].map(|case| run(&["show", &format!("harbor:note:v1:{case}")]));
        shown.push((texts, run(&["list"])));
    }
    assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "{shown:#?}");
}

#[test]
fn look_alikes_of_a_subject_are_refused_by_every_way_to_record() {
    let world = World::new().migrated();
    let db = world.open("app.db");
    let before = world.contents();
    for subject in [
        "caf\u{e9}",
        "cafe\u{301}",
        "case-104 ",
        "case\u{a0}104",
        "case\u{200b}104",
        "\u{ff43}ase",
        "\u{212a}ey",
        "case_104",
        "c\u{430}se",
    ] {
        let field = format!("case_id={subject}");
        let fields = ["--field", &field, "--field", "title=Call"];
        world.run(&[&["approve", "create-followup"], &fields[..]].concat()).exits(65);
        let payload = serde_json::json!({ "case_id": subject, "title": "Call" }).to_string();
        let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
                   VALUES ('harbor:create-followup:v1:' || ?1, 'crm', ?2, 'ann')";
        let refused = db.execute(sql, [subject, &payload]).expect_err("it is refused");
        assert!(refused.to_string().contains("handoff: invalid"), "{subject:?}: {refused}");
    }
    assert_eq!(world.contents(), before);
    // Case is part of a key: two acts, and each is found by its own bytes.
    for case in ["Case-1", "case-1"] {
        let key = record(&db, case);
        let list = world.run(&["list", "--json", "--prefix", &key]).ok().json();
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
        assert_eq!(list[0]["operation_key"], key);
    }
}

/// Writes down the request, and takes it at the fifth try.
const FIFTH: &str = r#"
cat > FOLDER/request.$$
sha256sum < FOLDER/request.$$ >> FOLDER/ledger
[ "$(wc -l < FOLDER/ledger)" -ge 5 ] || exit 1
echo '{"remote_id":"7"}'
"#;

#[test]
fn every_attempt_hands_over_the_same_bytes_whatever_lies_between() {
    let world = World::bare();
    let folder = world.path("").display().to_string();
    world.write("program", format!("#!/bin/sh\n{}", FIFTH.replace("FOLDER/", &folder)));
    let program = world.path("program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let config = |retry: &str| {
        format!(
            "[receivers.crm]\nkind = \"command\"\nprogram = [\"{}\"]\n\
             contract = {{ mode = \"idempotency_key\", window = \"forever\" }}\n\
             retry = {{ {retry} }}\n",
            program.display()
        )
    };
    // No try comes by itself: each is brought about by what lies between.
    world.configure(&config("initial = \"1h\""));
    world.run(&["migrate"]).ok();
    world.record("case-104");
    let tries = |number: i64| {
        let sql = "SELECT count(*) FROM handoff_attempts WHERE outcome IS NOT NULL";
        until("the next try", || (world.value::<i64>(sql, []) == number).then_some(()));
    };
    let mut daemon = world.serving();
    tries(1);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let daemon = world.serving();
    world.run(&["retry", KEY]).ok();
    tries(2);
    world.configure(&config("initial = \"2h\""));
    daemon.signal(Signal::SIGHUP);
    daemon.event("reloaded");
    world.run(&["retry", KEY]).ok();
    tries(3);
    daemon.stop();
    let daemon = world.serving();
    world.run(&["retry", KEY, "--as", "bob", "--reason", "once more"]).ok();
    tries(4);
    world.run(&["retry", KEY]).ok();
    world.until_state(KEY, "sent");
    daemon.stop();
    let ledger = std::fs::read_to_string(world.path("ledger")).expect("a ledger");
    let lines: Vec<&str> = ledger.lines().collect();
    assert_eq!(lines.len(), 5, "{ledger}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{ledger}");
}
