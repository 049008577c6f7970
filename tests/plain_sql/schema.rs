//! The tables live in the application's own file, and its SQLite must take them.

use crate::support::{CLAUSES, Row, World, contents};
use handoff::clock::wall;
use handoff::rusqlite::Connection;
use handoff::schema::{Migrated, SchemaError, VERSION, migrate, script};
use serde_json::json;

const SQL: &str = include_str!("../../src/store/sql/sqlite/0001_outbox.sql");

/// The schema without its comments.
fn statements() -> String {
    let code = |line: &'static str| line.split("--").next().unwrap_or_default();
    SQL.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// An application's file with a bit of everything.
const APPLICATION: &str = "
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA user_version = 7;
    PRAGMA application_id = 305419896;
    CREATE TABLE cases (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE);
    CREATE TABLE notes (text);
    CREATE INDEX notes_by_text ON notes (text);
    CREATE VIEW named AS SELECT name FROM cases;
    CREATE TRIGGER noted AFTER INSERT ON cases BEGIN INSERT INTO notes VALUES (NEW.name); END;
    INSERT INTO cases (name) VALUES ('ann'), ('bob');
";

/// Everything in the file that is not ours.
fn application(db: &Connection) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT type || name || coalesce(sql, '') FROM sqlite_master
          WHERE name NOT LIKE 'handoff%' AND name NOT LIKE 'sqlite_autoindex_handoff%' ORDER BY 1",
        "SELECT 'case ' || id || name FROM cases",
        "SELECT 'note ' || text FROM notes",
        "SELECT 'sequence ' || name || seq FROM sqlite_sequence WHERE name = 'cases'",
        "SELECT 'user_version ' || user_version FROM pragma_user_version",
        "SELECT 'application_id ' || application_id FROM pragma_application_id",
        "SELECT 'auto_vacuum ' || auto_vacuum FROM pragma_auto_vacuum",
        "SELECT 'journal_mode ' || journal_mode FROM pragma_journal_mode",
    ] {
        let mut read = db.prepare(sql).unwrap();
        let rows = read.query_map([], |row| row.get(0)).unwrap();
        all.extend(rows.collect::<Result<Vec<String>, _>>().unwrap());
    }
    all
}

fn objects(db: &Connection) -> Vec<(String, Option<String>)> {
    let mut read = db.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").unwrap();
    let rows = read.query_map([], |row| row.try_into()).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn the_tables_are_made_beside_those_of_an_application_without_touching_any() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = Connection::open(folder.path().join("app.db")).unwrap();
    db.execute_batch(APPLICATION).unwrap();
    let before = application(&db);
    let made = migrate(&mut db, wall()).unwrap();
    assert_eq!(made, Migrated { from: None, to: VERSION });
    assert_eq!(application(&db), before);
    for (name, _) in objects(&db).into_iter().filter(|(name, _)| name.contains("handoff")) {
        let ours = name.starts_with("handoff_") || name.starts_with("sqlite_autoindex_handoff_");
        assert!(ours, "{name}");
    }
}

#[test]
fn migrating_again_changes_nothing() {
    let world = World::new();
    let mut db = world.open();
    let before = objects(&db);
    assert_eq!(migrate(&mut db, wall()).unwrap(), Migrated { from: Some(VERSION), to: VERSION });
    assert_eq!(objects(&db), before);
}

#[test]
fn programs_that_migrate_at_once_make_the_tables_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let made: Vec<Migrated> = std::thread::scope(|scope| {
        let migrate_one = || migrate(&mut Connection::open(&path).unwrap(), wall()).unwrap();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(migrate_one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(made.iter().filter(|made| made.from.is_none()).count(), 1);
}

#[test]
fn tables_of_a_later_program_are_refused_and_left_alone() {
    let world = World::new();
    let mut db = world.open();
    db.execute_batch("INSERT INTO handoff_schema VALUES (2, 0, 'handoff 9')").unwrap();
    let refused = migrate(&mut db, wall()).unwrap_err();
    assert!(matches!(refused, SchemaError::Newer { found: 2 }), "{refused}");
}

#[test]
fn the_script_for_people_makes_the_same_tables() {
    let mut by_library = Connection::open_in_memory().unwrap();
    migrate(&mut by_library, wall()).unwrap();
    let by_script = Connection::open_in_memory().unwrap();
    by_script.execute_batch(&script(wall())).unwrap();
    assert_eq!(objects(&by_script), objects(&by_library));
    // Applied by mistake to a file that has them: an error, and nothing changes.
    by_script.execute_batch(&script(wall())).unwrap_err();
    by_script.execute_batch("ROLLBACK").unwrap();
    assert_eq!(handoff::schema::version(&by_script).unwrap(), Some(VERSION));
}

#[test]
fn an_application_can_alter_its_own_tables_beside_ours() {
    let world = World::new();
    let mut python = world.python();
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    let before = world.contents();
    // SQLite reads every trigger of the file again for each of these.
    for sql in [
        "ALTER TABLE cases ADD COLUMN note TEXT",
        "ALTER TABLE cases RENAME COLUMN note TO remark",
        "ALTER TABLE cases DROP COLUMN remark",
        "ALTER TABLE cases RENAME TO matters",
        "ALTER TABLE matters RENAME TO cases",
        "CREATE INDEX cases_by_follow_up ON cases (follow_up)",
        "DROP TABLE cases",
    ] {
        python.must(sql);
    }
    assert_eq!(python.must("PRAGMA integrity_check").rows, json!([["ok"]]));
    assert_eq!(world.contents(), before);
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(0));
    assert_eq!(python.record(CLAUSES[0], &Row::good().key("harbor:x:v1:new")), Ok(1));
}

#[test]
fn a_copy_made_by_vacuum_into_keeps_every_rule() {
    let world = World::new();
    let mut python = world.python();
    assert_eq!(python.record(CLAUSES[0], &Row::good()), Ok(1));
    let copy = world.folder().join("copy.db");
    python.must(&format!("VACUUM INTO '{}'", copy.display()));
    let mut python = crate::support::Python::start(&copy);
    assert_eq!(python.record(CLAUSES[2], &Row::good()), Ok(0));
    python.refused("DELETE FROM handoff_outbox", "never deleted");
    let db = Connection::open(&copy).unwrap();
    assert_eq!(contents(&db), world.contents());
}

#[test]
fn the_schema_needs_nothing_newer_than_sqlite_3_37() {
    let code = statements().to_lowercase();
    for newer in [
        // 3.38
        "->",
        "unixepoch",
        "format(",
        "'auto'", // 3.39
        "distinct from",
        "right join",
        "full join", // 3.40 to 3.43
        "unhex",
        "subsec",
        "timediff",
        "octet_length",
        "json_error_position", // 3.44 and later
        "concat(",
        "concat_ws",
        "string_agg",
        "json5",
        "jsonb",
        "percentile",
        "unistr",
        "if(",
        "iif(",
        "median",
    ] {
        assert!(!code.contains(newer), "{newer}");
    }
}

#[test]
fn every_refusal_is_a_constant_text_of_ours_that_aborts_its_statement() {
    let code = statements();
    let raises: Vec<&str> = code.split("RAISE(").skip(1).collect();
    assert!(raises.len() > 20);
    let ignoring = raises.iter().filter(|rest| rest.starts_with("IGNORE)")).count();
    assert_eq!(ignoring, 1, "only a repeat is passed over");
    for rest in raises.iter().filter(|rest| !rest.starts_with("IGNORE)")) {
        let Some(text) = rest.strip_prefix("ABORT, 'handoff: ") else { panic!("{rest:.40}") };
        // SQLite before 3.47 takes a literal and nothing else.
        assert_eq!(text.split('\'').nth(1).unwrap().chars().next(), Some(')'), "{text:.60}");
    }
}

#[test]
fn no_constraint_stands_where_a_conflict_clause_could_drop_a_row() {
    let code = statements().to_uppercase();
    for word in ["CHECK (", "CHECK(", "REFERENCES", " OR IGNORE", " OR REPLACE", "ON CONFLICT"] {
        assert!(!code.contains(word), "{word}");
    }
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(SQL).unwrap();
    let not_null: Vec<String> = db
        .prepare("SELECT name FROM pragma_table_info('handoff_approvals') WHERE \"notnull\"")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(not_null, ["operation_key"]);
}
