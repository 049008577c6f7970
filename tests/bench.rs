//! The bench: every case is told as one JSON object, and nothing is left behind.

use serde_json::Value;
use std::process::Command;

/// Runs the bench in a folder of its own, and reads what it tells.
fn told(arguments: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_handoff"))
        .args(["bench", "--json", "--rounds", "1", "--operations", "128"])
        .args(arguments)
        .arg("--folder")
        .arg(folder.path())
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn the_bench_tells_each_case_as_one_object_and_leaves_nothing_behind() {
    let cases = told(&["--finished", "128", "--beside", "300ms"]);
    let names: Vec<&str> = cases.iter().filter_map(|case| case["case"].as_str()).collect();
    assert_eq!(
        names,
        [
            "record",
            "deliver",
            "deliver_with_statistics",
            "deliver_among_finished",
            "deliver_beside_another_process"
        ]
    );
    for case in &cases {
        assert!(case["per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{case}");
        assert!(case["fdatasync_ms_median"].as_f64().is_some_and(|ms| ms > 0.0), "{case}");
    }
    for case in &cases[1..4] {
        for raw in ["raw_two_transactions_per_second", "raw_group_commit_per_second"] {
            assert!(case[raw].as_f64().is_some_and(|rate| rate > 0.0), "{case}");
        }
    }
    assert_eq!(cases[3]["finished"], 128);
    assert_eq!(cases[4]["beside_failed"], 0, "no commit of the other process failed");
}

/// It watches an idle daemon for a minute, and so it runs with the long tests only.
#[test]
fn the_bench_tells_what_a_running_daemon_costs() {
    if std::env::var_os("HANDOFF_TEST_LONG").is_none() {
        return;
    }
    let figures = told(&["--beside", "0ms", "--pending", "1000"]).split_off(3);
    let names: Vec<&str> = figures.iter().filter_map(|figure| figure["case"].as_str()).collect();
    assert_eq!(names, ["wake_up", "idle_processor", "resident_memory", "recovery_after_kill"]);
    for figure in &figures {
        assert!(figure["value"].as_f64().is_some_and(|value| value > 0.0), "{figure}");
        assert!(figure["unit"].is_string(), "{figure}");
    }
    assert!(figures[0]["samples"].as_u64().is_some_and(|samples| samples > 50), "{figures:?}");
}
