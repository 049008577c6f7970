//! Recording from the `sqlite3` program, with bound parameters.

use crate::support::{CLAUSES, KEY, PAYLOAD, Row, World, contents};
use handoff::rusqlite::Connection;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the program printed; an error if it did not end well.
fn shell(file: &Path, input: &str) -> Result<String, String> {
    let mut child = Command::new("sqlite3")
        .args(["-batch", "-bail"])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("these tests need the sqlite3 program");
    // It stops reading at the first error.
    if let Err(error) = child.stdin.take().unwrap().write_all(input.as_bytes()) {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The lines that bind the parameters: quoted for SQL, then for the program.
fn parameters(key: &str, receiver: &str, payload: &str, approved_by: &str) -> String {
    let set = |(name, value): (&str, &str)| {
        let sql = format!("'{}'", value.replace('\'', "''"));
        format!(".parameter set {name} \"{}\"\n", sql.replace('\\', "\\\\").replace('"', "\\\""))
    };
    let all = [
        ("@key", key),
        ("@receiver", receiver),
        ("@payload", payload),
        ("@approved_by", approved_by),
    ];
    all.into_iter().map(set).collect()
}

const INSERT: &str = "INTO handoff_approvals (operation_key, receiver, payload, approved_by)
                      VALUES (@key, @receiver, @payload, @approved_by)";

#[test]
fn the_shell_records_with_bound_parameters_under_every_conflict_clause() {
    for (verb, tail) in CLAUSES {
        let world = World::new();
        let bound = parameters(KEY, "crm", PAYLOAD, "ann");
        let sql = format!("{bound}{verb} {INSERT} {tail};\nSELECT changes();\n");
        assert_eq!(shell(&world.path(), &sql), Ok("1\n".to_owned()), "{verb} {tail}");
        assert_eq!(world.counts(), (1, 1), "{verb} {tail}");
        let before = world.contents();
        assert_eq!(shell(&world.path(), &sql), Ok("0\n".to_owned()), "{verb} {tail}");
        let other = parameters(KEY, "crm", "{}", "ann");
        let refused = shell(&world.path(), &format!("{other}{verb} {INSERT} {tail};")).unwrap_err();
        assert!(refused.contains("handoff: conflict"), "{verb} {tail}: {refused}");
        let wrong = parameters(KEY, "crm", "[]", "ann");
        let refused = shell(&world.path(), &format!("{wrong}{verb} {INSERT} {tail};")).unwrap_err();
        assert!(refused.contains("handoff: invalid payload"), "{verb} {tail}: {refused}");
        assert_eq!(world.contents(), before, "{verb} {tail}");
    }
}

#[test]
fn what_the_shell_binds_arrives_letter_by_letter() {
    let world = World::new();
    let payload = r#"{"title":"Call O'Hara: 50% \"off\", c:\\temp; -- \u00e9 é ✓"}"#;
    let bound = parameters(KEY, "crm", payload, "O'Hara; DROP TABLE handoff_outbox");
    shell(&world.path(), &format!("{bound}INSERT {INSERT};")).unwrap();
    let stored: (String, String) = world
        .open()
        .query_row("SELECT payload, approved_by FROM handoff_approvals", [], |row| row.try_into())
        .unwrap();
    assert_eq!(stored, (payload.to_owned(), "O'Hara; DROP TABLE handoff_outbox".to_owned()));
}

#[test]
fn what_the_shell_reads_from_a_file_is_a_blob_until_it_is_cast() {
    let world = World::new();
    let file = world.folder().join("follow-up.json");
    std::fs::write(&file, PAYLOAD).unwrap();
    let bound = parameters(KEY, "crm", "{}", "ann");
    let read = format!("readfile('{}')", file.display());
    let blob = format!("{bound}.parameter set @payload \"{read}\"\nINSERT {INSERT};");
    let refused = shell(&world.path(), &blob).unwrap_err();
    assert!(refused.contains("handoff: invalid payload"), "{refused}");
    let text = format!("{bound}.parameter set @payload \"CAST({read} AS TEXT)\"\nINSERT {INSERT};");
    shell(&world.path(), &text).unwrap();
    let row = Row::good().payload(PAYLOAD);
    assert_eq!(world.python().record(CLAUSES[0], &row), Ok(0), "it is the same text");
}

#[test]
fn a_number_that_the_shell_makes_of_a_bare_name_is_refused() {
    let world = World::new();
    let bound = parameters(KEY, "crm", PAYLOAD, "ann");
    let bare = format!("{bound}.parameter set @approved_by 1042\nINSERT {INSERT};");
    let refused = shell(&world.path(), &bare).unwrap_err();
    assert!(refused.contains("handoff: invalid approved_by"), "{refused}");
}

#[test]
fn a_script_of_the_shell_that_fails_half_way_leaves_neither() {
    let world = World::new();
    let bound = parameters(KEY, "crm", PAYLOAD, "ann");
    let half =
        format!("{bound}BEGIN IMMEDIATE;\nINSERT {INSERT};\nINSERT INTO nowhere VALUES (1);");
    let failed = shell(&world.path(), &half).unwrap_err();
    assert!(failed.contains("no such table: nowhere"), "{failed}");
    assert_eq!(world.counts(), (0, 0));
}

#[test]
fn an_approval_written_with_triggers_switched_off_is_never_taken_for_a_recorded_one() {
    let world = World::new();
    let bound = parameters(KEY, "crm", PAYLOAD, "ann");
    let off = format!("{bound}.dbconfig enable_trigger off\nINSERT {INSERT};");
    shell(&world.path(), &off).unwrap();
    assert_eq!(world.counts(), (1, 0));
    for (verb, tail) in CLAUSES {
        let again = format!("{bound}{verb} {INSERT} {tail};");
        let refused = shell(&world.path(), &again).unwrap_err();
        assert!(refused.contains("handoff: damaged"), "{verb} {tail}: {refused}");
    }
}

#[test]
fn the_shell_makes_the_tables_from_the_script_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    shell(&file, &handoff::schema::script(handoff::clock::wall())).unwrap();
    let db = Connection::open(&file).unwrap();
    assert_eq!(handoff::schema::version(&db).unwrap(), Some(handoff::schema::VERSION));
    handoff::schema::allow_receivers(&db, &["crm"]).unwrap();
    let bound = parameters(KEY, "crm", PAYLOAD, "ann");
    shell(&file, &format!("{bound}INSERT {INSERT};")).unwrap();
}

#[test]
fn a_dump_by_the_shell_restores_rows_and_rules() {
    let world = World::new();
    let mut python = world.python();
    for key in ["harbor:x:v1:b", "harbor:x:v1:a"] {
        assert_eq!(python.record(CLAUSES[0], &Row::good().key(key)), Ok(1));
    }
    let dump = shell(&world.path(), ".dump").unwrap();
    let restored = world.folder().join("restored.db");
    shell(&restored, &dump).unwrap();
    assert_eq!(contents(&Connection::open(&restored).unwrap()), world.contents());
    let mut python = crate::support::Python::start(&restored);
    assert_eq!(python.record(CLAUSES[3], &Row::good().key("harbor:x:v1:a")), Ok(0));
    python.refused("DELETE FROM handoff_approvals", "never deleted");
}
