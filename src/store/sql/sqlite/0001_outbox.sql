-- The outbox of handoff, version 1, for SQLite 3.37 and later.
--
-- An application records an approved operation with one INSERT into
-- handoff_approvals, in its own transaction; triggers write the outbox row.
-- Every check of that INSERT is a RAISE in a BEFORE trigger: a constraint would
-- drop the approval without a word under INSERT OR IGNORE.
--
-- Times are milliseconds since 1970 UTC. A landed file is never edited.

CREATE TABLE handoff_schema (
  version    INTEGER PRIMARY KEY,
  applied_at INTEGER NOT NULL,
  program    TEXT NOT NULL
) STRICT;

-- Small things that outlive a process, such as where the steady clock stood.
CREATE TABLE handoff_meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Names from the configuration, mirrored so that the triggers can check them.
CREATE TABLE handoff_receivers (
  name TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE handoff_types (
  name          TEXT NOT NULL,
  version       INTEGER NOT NULL,
  plain_subject INTEGER NOT NULL,        -- 0: the type has a subject pattern of its own
  PRIMARY KEY (name, version)
) STRICT, WITHOUT ROWID;

-- Receivers that are left alone for a time, whatever is due for them.
CREATE TABLE handoff_holds (
  receiver     TEXT NOT NULL,
  held_by      TEXT NOT NULL,            -- pause, suspension, retry_after
  since        INTEGER NOT NULL,
  since_steady INTEGER NOT NULL,
  until        INTEGER,                  -- NULL: until somebody ends it
  who          TEXT,
  reason       TEXT,
  PRIMARY KEY (receiver, held_by)
) STRICT, WITHOUT ROWID;

-- Receivers whose calls have failed lately, and until when they are left alone.
CREATE TABLE handoff_breakers (
  receiver       TEXT NOT NULL PRIMARY KEY,
  failures       INTEGER NOT NULL,       -- in a row
  changed_steady INTEGER NOT NULL,       -- what began earlier does not count
  opened_at      INTEGER,                -- NULL: closed
  open_until     INTEGER,
  open_ms        INTEGER
) STRICT, WITHOUT ROWID;

-- Until when the calls that have begun are paid for, where their rate is limited.
CREATE TABLE handoff_rates (
  receiver   TEXT NOT NULL PRIMARY KEY,
  paid_until INTEGER NOT NULL            -- nanoseconds of the steady clock
) STRICT, WITHOUT ROWID;

-- Who approved which exact payload, for which receiver. All but deliver_after
-- is text, but the columns take anything, or a value of another type would be
-- refused by SQLite before our trigger can say why, or silently converted.
CREATE TABLE handoff_approvals (
  operation_key ANY NOT NULL PRIMARY KEY,
  receiver      ANY,
  payload       ANY,                     -- as it was recorded; NULL once pruned
  approved_by   ANY,
  ordering_key  ANY,
  depends_on    ANY,
  deliver_after ANY,
  traceparent   ANY
) STRICT, WITHOUT ROWID;

-- Where each operation stands. One row for each approval, made by a trigger.
CREATE TABLE handoff_outbox (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,   -- order of recording
  operation_key    TEXT NOT NULL UNIQUE,
  receiver         TEXT NOT NULL,
  ordering_key     TEXT,
  depends_on       TEXT,
  state            TEXT NOT NULL DEFAULT 'pending',     -- pending, sent, blocked, withdrawn
  blocked_reason   TEXT,
  effect           TEXT NOT NULL DEFAULT 'none',        -- none, possible, confirmed
  attempts         INTEGER NOT NULL DEFAULT 0,          -- deliveries begun
  due_at           INTEGER,                             -- NULL: waits for no time
  first_attempt_at INTEGER,
  remote_id        TEXT,
  settled_by       TEXT,                                -- reply, look_up, policy, person:NAME
  last_error       TEXT,
  version          INTEGER NOT NULL DEFAULT 1,          -- the number of facts
  recorded_at      INTEGER NOT NULL,
  sent_at          INTEGER,
  -- prepared by the daemon before the first attempt
  payload          TEXT,                                -- canonical form, where it differs
  fingerprint      TEXT,                                -- SHA-256 of the canonical form
  -- facts that the policy reads; they follow from handoff_attempts and handoff_audit
  possible_since   INTEGER,                             -- steady clock
  possible_until   INTEGER,                             -- steady clock
  possible_request TEXT,
  possible_count   INTEGER NOT NULL DEFAULT 0,
  possible_marks   INTEGER NOT NULL DEFAULT 0,
  answer           TEXT NOT NULL DEFAULT 'none',
  absences         INTEGER NOT NULL DEFAULT 0,
  open_number      INTEGER,                             -- attempt under way
  open_kind        TEXT,
  spent            INTEGER NOT NULL DEFAULT 0,
  asks             INTEGER NOT NULL DEFAULT 0,
  failed_at        INTEGER,                             -- steady clock
  budget_start     INTEGER,                             -- steady clock
  solo_crashes     INTEGER NOT NULL DEFAULT 0,
  granted          INTEGER NOT NULL DEFAULT 0,
  ask_now          INTEGER NOT NULL DEFAULT 0,
  withdrawn        INTEGER NOT NULL DEFAULT 0,
  not_before       INTEGER,                             -- wall clock
  tries            INTEGER NOT NULL DEFAULT 0,          -- deliveries since the budget began
  suspect          INTEGER NOT NULL DEFAULT 0           -- was in flight at a crash
) STRICT;

-- Nothing is indexed that keeps its value after `sent`.
CREATE INDEX handoff_outbox_due ON handoff_outbox (receiver, suspect, due_at, id)
  WHERE state = 'pending' AND open_number IS NULL;
CREATE INDEX handoff_outbox_open ON handoff_outbox (id)
  WHERE open_number IS NOT NULL;
CREATE INDEX handoff_outbox_blocked ON handoff_outbox (receiver, blocked_reason, id)
  WHERE state = 'blocked';

-- One row for each try, committed before its first byte is sent.
CREATE TABLE handoff_attempts (
  operation_key   TEXT NOT NULL,
  number          INTEGER NOT NULL,
  kind            TEXT NOT NULL,          -- deliver, look_up
  started_at      INTEGER NOT NULL,
  finished_at     INTEGER,                -- NULL: under way
  instance        TEXT NOT NULL,          -- the process that made it
  outcome         TEXT,
  error_code      TEXT,
  http_status     INTEGER,
  request_sent    INTEGER,                -- 0, 1, or NULL where it cannot be known
  duration_ms     INTEGER,
  evidence        TEXT,
  remote_id       TEXT,
  request         TEXT NOT NULL,          -- fingerprint of the request
  started_steady  INTEGER NOT NULL,
  finished_steady INTEGER,
  spent           INTEGER NOT NULL DEFAULT 0,
  alone           INTEGER NOT NULL DEFAULT 0,  -- the only suspect in flight at a crash
  begun_fact      INTEGER NOT NULL,       -- version of the operation that its start made
  ended_fact      INTEGER,                -- and its end
  process         TEXT,                   -- group of a command: id, start, boot
  PRIMARY KEY (operation_key, number)
) STRICT, WITHOUT ROWID;

-- What people did, each row chained to the one before by its hash.
CREATE TABLE handoff_audit (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  at            INTEGER NOT NULL,
  who           TEXT NOT NULL,
  verb          TEXT NOT NULL,
  operation_key TEXT,
  reason        TEXT,
  before        TEXT NOT NULL,            -- JSON
  after         TEXT NOT NULL,            -- JSON
  previous_hash TEXT NOT NULL,
  hash          TEXT NOT NULL
) STRICT;

-- What follows from the row alone is checked first. Then a repeat is told from
-- a conflict, whatever the configuration says by now. Only a new operation is
-- held against the configuration.
CREATE TRIGGER handoff_approvals_check BEFORE INSERT ON handoff_approvals BEGIN
  -- Four parts, three of them names; GLOB's * cannot cross a colon if there are but three.
  SELECT RAISE(ABORT, 'handoff: invalid operation_key (text, namespace:type:vN:subject, at most 200 bytes)')
    WHERE typeof(NEW.operation_key) <> 'text'
       OR instr(NEW.operation_key, char(0))
       OR length(NEW.operation_key) > 200
       OR NOT (NEW.operation_key GLOB '[a-z]*:[a-z]*:v[1-9]:?*'
               OR NEW.operation_key GLOB '[a-z]*:[a-z]*:v[1-9][0-9]:?*'
               OR NEW.operation_key GLOB '[a-z]*:[a-z]*:v[1-9][0-9][0-9]:?*')
       OR length(replace(NEW.operation_key, ':', '')) <> length(NEW.operation_key) - 3
       OR (NEW.operation_key GLOB '*[^a-z0-9:-]*'
           AND (NEW.operation_key GLOB '*[^a-z0-9:-]*:*' OR NEW.operation_key GLOB '*[^!-~]*'))
       OR instr(NEW.operation_key, ':') > 41
       OR instr(substr(NEW.operation_key, instr(NEW.operation_key, ':') + 1), ':') > 41;
  -- The costly looks are taken only at names that are not plain ASCII.
  SELECT RAISE(ABORT, 'handoff: invalid approved_by (who approved it: text, 1 to 200 bytes, no control characters)')
    WHERE typeof(NEW.approved_by) <> 'text'
       OR instr(NEW.approved_by, char(0))
       OR length(CAST(NEW.approved_by AS BLOB)) > 200
       OR (NEW.approved_by GLOB '*[^ -~]*'
           AND NEW.approved_by GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*')
       OR (NEW.approved_by NOT GLOB '*[!-~]*'
           AND trim(NEW.approved_by, char(32, 160, 5760, 8192, 8193, 8194, 8195, 8196, 8197, 8198,
                                          8199, 8200, 8201, 8202, 8232, 8233, 8239, 8287, 12288)) = '');
  -- In valid JSON the first character tells an object.
  SELECT RAISE(ABORT, 'handoff: invalid payload (a JSON object as text, at most 262144 bytes)')
    WHERE typeof(NEW.payload) <> 'text'
       OR length(CAST(NEW.payload AS BLOB)) > 262144
       OR (length(CAST(NEW.payload AS BLOB)) <> length(NEW.payload) AND instr(NEW.payload, char(0)))
       OR NOT (NEW.payload GLOB '{*' OR ltrim(NEW.payload, char(9, 10, 13, 32)) GLOB '{*')
       OR NOT json_valid(NEW.payload);
  SELECT RAISE(ABORT, 'handoff: ordering_key and depends_on are not in this version')
    WHERE NEW.ordering_key IS NOT NULL OR NEW.depends_on IS NOT NULL;
  -- The lower bound refuses seconds, which would be long past as milliseconds.
  SELECT RAISE(ABORT, 'handoff: invalid deliver_after (milliseconds since 1970 as an integer, not seconds)')
    WHERE NEW.deliver_after IS NOT NULL
      AND (typeof(NEW.deliver_after) <> 'integer'
           OR NEW.deliver_after NOT BETWEEN 100000000000 AND 253402300799999);
  SELECT RAISE(ABORT, 'handoff: invalid traceparent (a W3C trace context as text, at most 200 visible characters)')
    WHERE NEW.traceparent IS NOT NULL
      AND (typeof(NEW.traceparent) <> 'text'
           OR instr(NEW.traceparent, char(0))
           OR length(NEW.traceparent) > 200
           OR NEW.traceparent GLOB '*[^!-~]*');
  SELECT CASE
      WHEN NOT EXISTS (SELECT 1 FROM handoff_outbox WHERE operation_key = NEW.operation_key)
      THEN RAISE(ABORT, 'handoff: damaged (the approval is there, its row in handoff_outbox is not)')
      WHEN payload IS NULL
      THEN RAISE(ABORT, 'handoff: settled (the payload is no longer kept and cannot be compared)')
      WHEN receiver IS NEW.receiver
           AND (payload IS NEW.payload
                OR CASE WHEN json_valid(payload) THEN json(payload) END IS json(NEW.payload))
      THEN RAISE(IGNORE)
      ELSE RAISE(ABORT, 'handoff: conflict (same operation_key, other content or receiver)')
    END
    FROM handoff_approvals WHERE operation_key = NEW.operation_key;
  SELECT RAISE(ABORT, 'handoff: unknown receiver (not in the configuration last mirrored by handoff)')
    WHERE typeof(NEW.receiver) <> 'text'
       OR NOT EXISTS (SELECT 1 FROM handoff_receivers WHERE name = NEW.receiver);
  -- Only a key of more than 87 characters can have a subject of more than 80.
  SELECT RAISE(ABORT, 'handoff: invalid subject in operation_key (1 to 80 letters, digits, hyphens)')
    WHERE (NEW.operation_key GLOB '*[^A-Za-z0-9:-]*'
           OR (length(NEW.operation_key) > 87
               AND instr(substr(NEW.operation_key, -81), ':') = 0))
      AND NOT EXISTS (SELECT 1 FROM handoff_types
                       WHERE plain_subject = 0
                         AND substr(NEW.operation_key, instr(NEW.operation_key, ':') + 1)
                             GLOB name || ':v' || version || ':*');
END;

-- The last line answers for a trigger of somebody else's that skips the row.
CREATE TRIGGER handoff_approvals_record AFTER INSERT ON handoff_approvals BEGIN
  INSERT INTO handoff_outbox (operation_key, receiver, ordering_key, depends_on, recorded_at, due_at)
  VALUES (NEW.operation_key, NEW.receiver, NEW.ordering_key, NEW.depends_on,
          CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER),
          max(coalesce(NEW.deliver_after, 0),
              CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)));
  SELECT RAISE(ABORT, 'handoff: the outbox row was not written')
    WHERE changes() <> 1;
END;

CREATE TRIGGER handoff_approvals_frozen BEFORE UPDATE ON handoff_approvals BEGIN
  SELECT RAISE(ABORT, 'handoff: an approval is never changed')
    WHERE NEW.operation_key IS NOT OLD.operation_key OR NEW.receiver IS NOT OLD.receiver
       OR NEW.approved_by IS NOT OLD.approved_by OR NEW.ordering_key IS NOT OLD.ordering_key
       OR NEW.depends_on IS NOT OLD.depends_on OR NEW.deliver_after IS NOT OLD.deliver_after
       OR NEW.traceparent IS NOT OLD.traceparent
       OR (NEW.payload IS NOT OLD.payload
           AND NOT (NEW.payload IS NULL
                    AND EXISTS (SELECT 1 FROM handoff_outbox
                                 WHERE operation_key = OLD.operation_key
                                   AND state IN ('sent', 'withdrawn'))));
END;

CREATE TRIGGER handoff_approvals_kept BEFORE DELETE ON handoff_approvals BEGIN
  SELECT RAISE(ABORT, 'handoff: an approval is never deleted');
END;

CREATE TRIGGER handoff_outbox_made BEFORE INSERT ON handoff_outbox BEGIN
  SELECT RAISE(ABORT, 'handoff: record operations in handoff_approvals')
    WHERE EXISTS (SELECT 1 FROM handoff_outbox WHERE operation_key = NEW.operation_key)
       OR NOT EXISTS (SELECT 1 FROM handoff_approvals WHERE operation_key = NEW.operation_key);
END;

-- An UPDATE that names the row's number as rowid does not name the column id.
CREATE TRIGGER handoff_outbox_frozen
BEFORE UPDATE OF id, rowid, oid, _rowid_, operation_key, receiver, recorded_at ON handoff_outbox
WHEN NEW.id IS NOT OLD.id OR NEW.operation_key IS NOT OLD.operation_key
     OR NEW.receiver IS NOT OLD.receiver OR NEW.recorded_at IS NOT OLD.recorded_at
BEGIN
  SELECT RAISE(ABORT, 'handoff: key, receiver and time of recording are never changed');
END;

-- What the daemon has prepared stays; the payload may be pruned at the end.
CREATE TRIGGER handoff_outbox_prepared AFTER UPDATE OF payload, fingerprint ON handoff_outbox
WHEN (OLD.fingerprint IS NOT NULL AND NEW.fingerprint IS NOT OLD.fingerprint)
     OR (NEW.payload IS NOT OLD.payload
         AND NOT (OLD.payload IS NULL AND OLD.fingerprint IS NULL)
         AND NOT (NEW.payload IS NULL AND OLD.state IN ('sent', 'withdrawn')))
BEGIN
  SELECT RAISE(ABORT, 'handoff: the payload is never changed');
END;

CREATE TRIGGER handoff_outbox_kept BEFORE DELETE ON handoff_outbox BEGIN
  SELECT RAISE(ABORT, 'handoff: an operation is never deleted');
END;

-- REPLACE removes rows without firing a trigger for DELETE.
CREATE TRIGGER handoff_attempts_made BEFORE INSERT ON handoff_attempts BEGIN
  SELECT RAISE(ABORT, 'handoff: an attempt is never replaced')
    WHERE EXISTS (SELECT 1 FROM handoff_attempts
                   WHERE operation_key = NEW.operation_key AND number = NEW.number);
END;

CREATE TRIGGER handoff_attempts_frozen BEFORE UPDATE OF operation_key, number ON handoff_attempts
WHEN NEW.operation_key IS NOT OLD.operation_key OR NEW.number IS NOT OLD.number
BEGIN
  SELECT RAISE(ABORT, 'handoff: key and number of an attempt are never changed');
END;

CREATE TRIGGER handoff_attempts_kept BEFORE DELETE ON handoff_attempts BEGIN
  SELECT RAISE(ABORT, 'handoff: the attempts of an unsettled operation are kept')
    WHERE EXISTS (SELECT 1 FROM handoff_outbox
                   WHERE operation_key = OLD.operation_key
                     AND state NOT IN ('sent', 'withdrawn'));
END;

CREATE TRIGGER handoff_audit_made BEFORE INSERT ON handoff_audit BEGIN
  SELECT RAISE(ABORT, 'handoff: the audit is never changed')
    WHERE EXISTS (SELECT 1 FROM handoff_audit WHERE id = NEW.id);
END;

CREATE TRIGGER handoff_audit_last AFTER INSERT ON handoff_audit
WHEN NEW.id < 1 OR NEW.id <> (SELECT max(id) FROM handoff_audit)
BEGIN
  SELECT RAISE(ABORT, 'handoff: a row of the audit comes after all others');
END;

CREATE TRIGGER handoff_audit_unchanged BEFORE UPDATE ON handoff_audit BEGIN
  SELECT RAISE(ABORT, 'handoff: the audit is never changed');
END;

CREATE TRIGGER handoff_audit_kept BEFORE DELETE ON handoff_audit BEGIN
  SELECT RAISE(ABORT, 'handoff: the audit is never deleted');
END;
