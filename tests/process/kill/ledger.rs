//! The ledger from four sides: what was recorded, what was attempted, what the
//! CRMs did, and what was settled. Each side is held against the others in SQL.

use super::RECEIVERS;
use crate::support::World;
use handoff::rusqlite::{Connection, params};

/// What may become of an operation: its receiver, where it stands, why, what is
/// known of the receiver, and how its last attempt ended.
const ENDS: &str = "
  CREATE TEMP TABLE ends (receiver, state, reason, effect, last);
  INSERT INTO ends VALUES
    ('keyed',  'sent',    NULL,        'confirmed', 'applied'),
    ('proved', 'sent',    NULL,        'confirmed', 'applied'),
    ('proved', 'sent',    NULL,        'confirmed', 'already_exists'),
    ('vague',  'sent',    NULL,        'confirmed', 'applied'),
    ('vague',  'blocked', 'ambiguous', 'possible',  'already_exists'),
    ('blind',  'sent',    NULL,        'confirmed', 'applied'),
    ('blind',  'blocked', 'ambiguous', 'possible',  'unknown'),
    ('blind',  'blocked', 'ambiguous', 'possible',  'interrupted'),
    ('blind',  'blocked', 'ambiguous', 'possible',  'cut_off'),
    ('keyed',  'blocked', 'rejected',  'none',      'rejected'),
    ('keyed',  'blocked', 'rejected',  'possible',  'rejected'),
    ('proved', 'blocked', 'rejected',  'none',      'rejected'),
    ('proved', 'blocked', 'rejected',  'possible',  'rejected'),
    ('vague',  'blocked', 'rejected',  'none',      'rejected'),
    ('vague',  'blocked', 'rejected',  'possible',  'rejected'),
    ('blind',  'blocked', 'rejected',  'none',      'rejected');";

/// The tables under the names of their sides.
const SIDES: &str = "
  CREATE TEMP VIEW outbox AS SELECT * FROM main.handoff_outbox;
  CREATE TEMP VIEW attempts AS
    SELECT t.*, o.receiver FROM main.handoff_attempts AS t JOIN outbox AS o USING (operation_key);
  CREATE TEMP VIEW approvals AS SELECT * FROM main.handoff_approvals;
  CREATE TEMP VIEW by_hand AS
    SELECT operation_key FROM approvals WHERE operation_key GLOB 'harbor:keyed:v1:cli-*';";

/// Rules, and what breaks each.
const RULES: &[(&str, &str)] = &[
    // -- recorded
    (
        "what the application was told is committed is recorded",
        "SELECT operation_key FROM said WHERE word = 'committed'
            AND operation_key NOT IN (SELECT operation_key FROM approvals)",
    ),
    (
        "nothing else is recorded than what somebody tried, and did not take back",
        "SELECT operation_key FROM approvals
          WHERE operation_key NOT IN (SELECT operation_key FROM by_hand)
            AND (operation_key NOT IN (SELECT operation_key FROM said WHERE word = 'tried')
                 OR operation_key IN (SELECT operation_key FROM said WHERE word = 'rolled_back'))",
    ),
    (
        "approval and the application's own row are there together or not at all",
        "SELECT operation_key FROM main.approved_here
          WHERE operation_key NOT IN (SELECT operation_key FROM approvals)
         UNION ALL
         SELECT operation_key FROM approvals
          WHERE operation_key NOT IN (SELECT operation_key FROM main.approved_here)
            AND operation_key NOT IN (SELECT operation_key FROM by_hand)",
    ),
    (
        "approval and outbox row are there together or not at all",
        "SELECT coalesce(a.operation_key, o.operation_key)
           FROM approvals AS a FULL JOIN outbox AS o USING (operation_key)
          WHERE a.receiver IS NOT o.receiver",
    ),
    // -- attempted
    (
        "attempts are counted from one without a gap",
        "SELECT operation_key FROM outbox AS o
          WHERE attempts <> (SELECT count(*) FROM attempts AS t
                              WHERE t.operation_key = o.operation_key)
             OR attempts <> (SELECT coalesce(max(number), 0) FROM attempts AS t
                              WHERE t.operation_key = o.operation_key)",
    ),
    (
        "every attempt has ended",
        "SELECT operation_key FROM attempts WHERE outcome IS NULL OR finished_at IS NULL
         UNION ALL SELECT operation_key FROM outbox WHERE open_number IS NOT NULL",
    ),
    (
        "without a contract nothing is tried again after what may have acted",
        "SELECT t.operation_key FROM attempts AS t JOIN attempts AS later USING (operation_key)
          WHERE t.receiver = 'blind' AND t.number < later.number
            AND t.outcome IN ('unknown', 'interrupted', 'cut_off')",
    ),
    (
        "nothing is tried again after proof or a definite no",
        "SELECT t.operation_key FROM attempts AS t JOIN attempts AS later USING (operation_key)
          WHERE t.number < later.number AND t.outcome IN ('applied', 'already_exists', 'rejected')",
    ),
    // -- done at the CRM
    (
        "no CRM does anything twice under one key",
        "SELECT operation_key FROM effects GROUP BY operation_key HAVING count(*) > 1
         UNION ALL SELECT operation_key FROM tasks GROUP BY operation_key HAVING count(*) > 1",
    ),
    (
        "every task is an effect, of an operation for this receiver",
        "SELECT coalesce(e.operation_key, t.operation_key)
           FROM effects AS e FULL JOIN tasks AS t USING (receiver, operation_key, task_id)
           LEFT JOIN outbox AS o USING (receiver, operation_key)
          WHERE e.effect_id IS NULL OR t.task_id IS NULL OR o.operation_key IS NULL",
    ),
    (
        "every effect follows a stored attempt of its number",
        "SELECT operation_key FROM effects AS e WHERE NOT EXISTS
           (SELECT 1 FROM attempts AS t WHERE t.operation_key = e.operation_key
               AND t.number = e.attempt AND t.started_at <= e.at)",
    ),
    (
        "no effect comes of an attempt that ended with a definite no",
        "SELECT operation_key FROM effects AS e JOIN attempts AS t USING (operation_key)
          WHERE t.number = e.attempt AND t.outcome IN ('not_taken', 'rejected')",
    ),
    (
        "what was delivered is what was recorded, trimmed",
        "SELECT t.operation_key FROM tasks AS t JOIN approvals AS a USING (operation_key)
          WHERE t.payload -> '$.case_id' IS NOT a.payload -> '$.case_id'
             OR t.payload ->> '$.title' IS NOT trim(a.payload ->> '$.title')",
    ),
    // -- settled
    (
        "every operation stands where its contract and its last attempt have brought it",
        "SELECT o.operation_key || ' is ' ||
                concat_ws(', ', state, blocked_reason, effect, o.remote_id, last_error, t.outcome)
           FROM outbox AS o LEFT JOIN attempts AS t
             ON t.operation_key = o.operation_key AND t.number = o.attempts
          WHERE NOT EXISTS (SELECT 1 FROM ends AS e
             WHERE e.receiver = o.receiver AND e.state = o.state AND e.effect = o.effect
               AND e.reason IS o.blocked_reason AND e.last = t.outcome)",
    ),
    (
        "what is sent has the task's id as its receipt, and no error",
        "SELECT operation_key FROM outbox AS o WHERE state = 'sent'
            AND (last_error IS NOT NULL OR remote_id IS NOT
                 (SELECT CAST(task_id AS TEXT) FROM tasks AS t
                   WHERE t.operation_key = o.operation_key))",
    ),
    (
        "what the CRM holds is never shown as nothing",
        "SELECT operation_key FROM outbox JOIN tasks USING (operation_key) WHERE effect = 'none'",
    ),
    (
        "where the CRM says that it exists, it does",
        "SELECT operation_key FROM attempts WHERE outcome = 'already_exists'
            AND operation_key NOT IN (SELECT operation_key FROM tasks)",
    ),
];

/// Every database of a world, read together.
pub(crate) struct Ledger {
    db: Connection,
}

/// What there was of one receiver.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) operations: i64,
    pub(crate) interrupted: i64,
    pub(crate) cut_off: i64,
    #[expect(dead_code, reason = "shown")]
    sent: i64,
    #[expect(dead_code, reason = "shown")]
    blocked: i64,
    #[expect(dead_code, reason = "shown")]
    attempts: i64,
}

impl Ledger {
    pub(crate) fn open(world: &World) -> Self {
        let db = world.open("app.db");
        db.execute_batch(SIDES).expect("the views of our side");
        db.execute_batch(ENDS).expect("what may become of an operation");
        let (mut tasks, mut effects) = (Vec::new(), Vec::new());
        for (name, _, _) in RECEIVERS {
            let path = world.path(&format!("{name}.db"));
            db.execute(&format!("ATTACH ?1 AS {name}"), [path.to_str()]).expect("the CRM opens");
            tasks.push(format!("SELECT '{name}' AS receiver, * FROM {name}.tasks"));
            effects.push(format!("SELECT '{name}' AS receiver, * FROM {name}.effects"));
        }
        let (tasks, effects) = (tasks.join(" UNION ALL "), effects.join(" UNION ALL "));
        let views = format!(
            "CREATE TEMP VIEW tasks AS {tasks}; CREATE TEMP VIEW effects AS {effects};
             CREATE TEMP TABLE said (word, operation_key)"
        );
        db.execute_batch(&views).expect("the views of the CRMs");
        let said = std::fs::read_to_string(world.path("writer.log")).expect("the writer's log");
        for line in said.lines() {
            let (word, key) = line.split_once(' ').expect("a word and a key");
            let insert = "INSERT INTO said VALUES (?1, ?2)";
            db.execute(insert, params![word, key]).expect("a temporary row");
        }
        Self { db }
    }

    /// Holds the sides against each other.
    #[track_caller]
    pub(crate) fn check(&self) {
        let broken: Vec<(&str, Vec<String>)> = RULES
            .iter()
            .map(|(rule, sql)| (*rule, self.texts(sql)))
            .filter(|(_, exceptions)| !exceptions.is_empty())
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
        for schema in ["main"].into_iter().chain(RECEIVERS.map(|(name, _, _)| name)) {
            let sound = self.texts(&format!("PRAGMA {schema}.integrity_check"));
            assert_eq!(sound, ["ok"], "{schema}");
        }
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        let mut read = self.db.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let rows = read.query_map([], |row| row.get(0)).and_then(Iterator::collect);
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn found(&self, receiver: &str) -> Found {
        let count = |sql: &str| {
            self.db.query_row(sql, [receiver], |row| row.get(0)).expect("rows can be counted")
        };
        let operations = "SELECT count(*) FROM outbox WHERE receiver = ?1";
        let attempts = "SELECT count(*) FROM attempts WHERE receiver = ?1";
        Found {
            operations: count(operations),
            interrupted: count(&format!("{attempts} AND outcome = 'interrupted'")),
            cut_off: count(&format!("{attempts} AND outcome = 'cut_off'")),
            sent: count(&format!("{operations} AND state = 'sent'")),
            blocked: count(&format!("{operations} AND state = 'blocked'")),
            attempts: count(attempts),
        }
    }
}
