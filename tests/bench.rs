//! The bench: every case is told as one JSON object, and nothing is left behind.

use serde_json::Value;
use std::process::Command;

#[test]
fn the_bench_tells_each_case_as_one_object_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_handoff"))
        .args(["bench", "--json", "--rounds", "1", "--operations", "128", "--finished", "128"])
        .args(["--beside", "300ms", "--folder"])
        .arg(folder.path())
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let cases: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
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
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}
