//! The page on recording: its examples run as they stand, and it knows every refusal.

use crate::support::{World, python3};
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../docs/recording.md");
const SQL: &str = include_str!("../../src/store/sql/sqlite/0001_outbox.sql");

/// The fenced blocks of the page, in order: language and text.
fn blocks() -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in PAGE.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block of the page does not end");
    blocks
}

/// Runs an example in the folder of the application's database; what it prints.
fn run(folder: &Path, language: &str, text: &str) -> String {
    let mut command = match language {
        "python" => python3(),
        "sh" => Command::new("sh"),
        other => panic!("the page shows {other}, which nothing runs"),
    };
    if language == "sh" {
        command.arg("-e");
    }
    let output = command.args(["-c", text]).current_dir(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language} example: {error}\n{text}");
    assert_eq!(error, "", "{language} example complains\n{text}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_of_the_page_runs_and_prints_what_the_page_says() {
    // What `handoff migrate` does for the examples, with the receiver `crm` configured.
    let world = World::new();
    let mut ran = 0;
    let mut printed = None;
    for (language, text) in blocks() {
        match language.as_str() {
            // The output of the block before; `rust` runs as a test of the crate's
            // documentation, and `console` shows the command line.
            "text" => assert_eq!(printed.take().as_deref(), Some(&*text)),
            "rust" | "console" => {}
            "sql" => {
                let sql = text.replace(":key", "'harbor:create-followup:v1:case-sql'");
                let sql = sql.replace(":receiver", "'crm'").replace(":payload", "'{}'");
                world.daemon(&sql.replace(":approved_by", "'ann'"));
                ran += 1;
            }
            _ => {
                printed = Some(run(world.folder(), &language, &text));
                ran += 1;
            }
        }
    }
    assert!(ran >= 5, "{ran} examples ran");
    let (approvals, rows) = world.counts();
    assert_eq!(approvals, rows);
    assert!(rows >= 3, "{rows} operations were recorded");
}

#[test]
fn the_page_explains_every_text_with_which_a_recording_is_refused() {
    let of_recording = SQL.split("CREATE TRIGGER ").filter(|trigger| {
        trigger.starts_with("handoff_approvals_") || trigger.starts_with("handoff_outbox_made")
    });
    let mut explained = 0;
    for trigger in of_recording {
        for rest in trigger.split("'handoff: ").skip(1) {
            // Up to the remark in brackets: what a program may look for.
            let text = rest.split(['\'', '(']).next().unwrap().trim();
            assert!(PAGE.contains(&format!("`handoff: {text}`")), "{text} is not explained");
            explained += 1;
        }
    }
    assert!(explained > 10);
}
