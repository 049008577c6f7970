//! What depends on who reads: a terminal, a pipe, or nobody any more.

use crate::support::{Done, World, present};
use std::process::Stdio;

/// A world with a blocked operation, whose state has a colour.
fn blocked() -> World {
    let world = World::new().migrated();
    let payload = r#"{"case_id":"case-104"}"#;
    let sql = "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
               VALUES ('harbor:create-followup:v1:case-104', 'crm', ?1, 'ann')";
    world.open("app.db").execute(sql, [payload]).expect("it is recorded");
    let daemon = world.serving();
    world.until_state("harbor:create-followup:v1:case-104", "blocked");
    daemon.stop();
    world
}

/// Runs a command on a terminal of its own.
fn on_a_terminal(world: &World, arguments: &str, variables: &[(&str, &str)]) -> Done {
    let mut script = std::process::Command::new("script");
    let command = format!("{} --config handoff.toml {arguments}", env!("CARGO_BIN_EXE_handoff"));
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.current_dir(world.path("")).env_clear().env("TERM", "xterm").envs(variables.to_vec());
    script.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("SHELL", "/bin/sh");
    Done::of(script.stdin(Stdio::null()))
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    if !present("script") {
        return eprintln!("skipped: no script here");
    }
    let world = blocked();
    for command in ["list", "show harbor:create-followup:v1:case-104"] {
        let coloured = on_a_terminal(&world, command, &[]).ok();
        assert!(coloured.stdout.contains("\u{1b}[31mblocked"), "{coloured:?}");
        for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let plain = on_a_terminal(&world, command, &[(name, value)]).ok();
            assert!(!plain.stdout.contains('\u{1b}'), "{name}: {plain:?}");
        }
        let arguments: Vec<&str> = command.split(' ').collect();
        let piped = world.run(&arguments).ok();
        assert!(!piped.stdout.contains('\u{1b}'), "{piped:?}");
        assert!(
            !on_a_terminal(&world, &format!("{command} --json"), &[]).stdout.contains('\u{1b}')
        );
    }
}

#[test]
fn logs_are_text_on_a_terminal_and_json_elsewhere() {
    if !present("script") {
        return eprintln!("skipped: no script here");
    }
    let world = World::new();
    let auto = "--set log.format=auto --set store.url=sqlite:none/app.db";
    // It waits for its database and is stopped by the end of its time.
    let run = format!("run {auto}");
    let program = env!("CARGO_BIN_EXE_handoff");
    let timed = |variables: &[(&str, &str)]| {
        let command = format!("timeout 3 {program} --config handoff.toml {run}");
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--command", &command, "/dev/null"]).current_dir(world.path(""));
        script.env("TERM", "xterm").env("SHELL", "/bin/sh").envs(variables.to_vec());
        Done::of(script.stdin(Stdio::null())).stdout
    };
    let coloured = timed(&[]);
    assert!(coloured.contains("store_unavailable") && !coloured.contains("{\""), "{coloured}");
    assert!(coloured.contains('\u{1b}'), "{coloured}");
    let plain = timed(&[("NO_COLOR", "1")]);
    assert!(plain.contains("store_unavailable") && !plain.contains('\u{1b}'), "{plain}");

    let arguments: Vec<&str> = auto.split(' ').collect();
    let daemon = world.daemon_with(&arguments);
    daemon.event("store_unavailable");
    daemon.stop();
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new().migrated();
    let db = world.open("app.db");
    for case in 0..200 {
        crate::support::record(&db, &format!("case-{case}"));
    }
    for arguments in [&["list", "--limit", "201"][..], &["completions", "bash"], &["--help"]] {
        let mut command = world.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        drop(child.stdout.take());
        let done = Done::from(child.wait_with_output().expect("the program ends"));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_under_standard_output_is_an_error() {
    let world = World::new().migrated();
    for arguments in [&["list"][..], &["status", "--json"], &["migrate", "--print"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = world.command(arguments);
        let done = Done::of(command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()));
        done.exits(1).says("No space left");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let world = World::bare();
    let top = world.run(&["--help"]).ok().stdout;
    let listed: Vec<&str> = top
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    for wanted in ["run", "approve", "list", "show", "explain", "status", "wait", "retry"] {
        assert!(listed.contains(&wanted), "{wanted}: {listed:?}");
    }
    for name in listed {
        let help = world.run(&[name, "--help"]).ok();
        assert!(help.stdout.contains(&format!("  handoff {name}")), "no example: {}", help.stdout);
        assert_eq!(help.stderr, "");
    }
    assert!(top.contains("78 bad configuration"), "{top}");
    assert_eq!(world.run(&["--version"]).ok().stdout, "handoff 0.1.0\n");
}

#[test]
fn completions_are_scripts_that_their_shells_can_read() {
    let world = World::bare();
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = world.run(&["completions", shell]).ok();
        assert!(script.stdout.contains("handoff"), "{script:?}");
        assert_eq!(script.stderr, "");
        world.write(shell, &script.stdout);
        // Only bash is on every machine.
        if shell != "bash" && !std::path::Path::new(&format!("/usr/bin/{shell}")).exists() {
            continue;
        }
        let mut read = std::process::Command::new(shell);
        let done = Done::of(read.arg(check).arg(world.path(shell)).stdin(Stdio::null()));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{shell}");
    }
}
