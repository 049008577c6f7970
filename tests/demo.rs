//! The demo: its story, its files, and that it never overwrites an earlier one.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn demo(folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handoff"))
        .arg("demo")
        .current_dir(folder)
        .output()
        .expect("the program runs")
}

#[test]
fn the_demo_tells_the_lost_reply_and_the_killed_daemon_with_one_task_each() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path());
    assert!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let second = "harbor:create-followup:v1:case-105";
    let step = |step: &str, result: &str, attempts: u32, remote_id: Value| {
        json!({
            "step": step, "result": result, "crm_task_count": 1, "attempts": attempts,
            "remote_id": remote_id
        })
    };
    let about_second = |mut told: Value| {
        told["operation_key"] = json!(second);
        told
    };
    let expected = json!({
        "fictional_business": "Harbor Service",
        "operation_key": "harbor:create-followup:v1:case-104",
        "network_calls": 0,
        "steps": [
            step("reply_lost", "pending", 1, Value::Null),
            step("retry_same_action", "sent", 2, json!("1")),
            step("run_again", "idle", 2, json!("1")),
            about_second(step("killed_after_acceptance", "pending", 1, Value::Null)),
            about_second(step("restarted", "sent", 2, json!("2"))),
        ]
    });
    assert_eq!(printed, expected);
    let kept = std::fs::read(folder.path().join("demo-result.json")).unwrap();
    assert_eq!(kept, output.stdout, "the file keeps what was printed");
    for name in ["app.sqlite", "fake-crm.sqlite"] {
        assert!(folder.path().join("demo-data").join(name).is_file(), "{name}");
    }
}

#[test]
fn an_earlier_demo_is_never_overwritten() {
    for (name, is_folder) in [("demo-data", true), ("demo-result.json", false)] {
        let folder = tempfile::tempdir().unwrap();
        let earlier = folder.path().join(name);
        if is_folder {
            std::fs::create_dir(&earlier).unwrap();
        } else {
            std::fs::write(&earlier, "earlier").unwrap();
        }
        let output = demo(folder.path());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(name));
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1, "nothing else was made");
    }
}
