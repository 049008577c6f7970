//! What a program's exit and answer lead to, under a contract and without one.

use crate::support::place::text;
use crate::support::site::payload;
use crate::support::{Daemon, Site, Value, command, key, until};

/// Reads the request, and goes on as the file of its case says.
const BY_CASE: &str = r#"
read -r request
of() { printf %s "$request" | sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }
receiver=$(of receiver)
. "FOLDER/$(of case_id).sh"
"#;

/// State, reason, effect, attempts and receipt.
type End = (&'static str, Option<&'static str>, &'static str, i64, Option<&'static str>);

const SENT: End = ("sent", None, "confirmed", 1, None);
const SENT_WITH_RECEIPT: End = ("sent", None, "confirmed", 1, Some("7"));
const REJECTED: End = ("blocked", Some("rejected"), "none", 1, None);
const CONFLICT: End = ("blocked", Some("conflict"), "none", 1, None);
const NOT_TAKEN: End = ("blocked", Some("budget_exhausted"), "none", 2, None);
const AMBIGUOUS: End = ("blocked", Some("ambiguous"), "possible", 1, None);
const REPEATED: End = ("blocked", Some("budget_exhausted"), "possible", 2, None);
const SENT_BY_REPEAT: End = ("sent", None, "confirmed", 2, Some("7"));

/// A case, what its program does, its end without a contract and with one, and
/// the outcome of the first attempt.
type Case = (&'static str, &'static str, End, End, &'static str);

const CASES: &[Case] = &[
    ("exit-0", "exit 0", SENT, SENT, "applied"),
    ("exit-65", "exit 65", REJECTED, REJECTED, "rejected"),
    ("exit-76", "exit 76", REJECTED, REJECTED, "rejected"),
    ("exit-77", "exit 77", REJECTED, REJECTED, "rejected"),
    ("exit-69", "exit 69", NOT_TAKEN, NOT_TAKEN, "not_taken"),
    ("exit-75", "exit 75", NOT_TAKEN, NOT_TAKEN, "not_taken"),
    ("exit-1", "exit 1", AMBIGUOUS, REPEATED, "unknown"),
    ("exit-70", "exit 70", AMBIGUOUS, REPEATED, "unknown"),
    ("exit-127", "exit 127", AMBIGUOUS, REPEATED, "unknown"),
    ("signal", "kill -9 $$", AMBIGUOUS, REPEATED, "unknown"),
    ("says-id", r#"echo '{"remote_id":"7"}'"#, SENT_WITH_RECEIPT, SENT_WITH_RECEIPT, "applied"),
    (
        "says-applied",
        r#"echo '{"outcome":"applied","remote_id":7}'"#,
        SENT_WITH_RECEIPT,
        SENT_WITH_RECEIPT,
        "applied",
    ),
    (
        "says-exists",
        r#"echo '{"outcome":"already_exists","remote_id":"7"}'"#,
        AMBIGUOUS,
        AMBIGUOUS,
        "already_exists",
    ),
    ("says-conflict", r#"echo '{"outcome":"conflict"}'"#, CONFLICT, CONFLICT, "conflict"),
    ("says-rejected", r#"echo '{"outcome":"rejected"}'"#, REJECTED, REJECTED, "rejected"),
    (
        "says-in-progress",
        r#"if [ -e "FOLDER/$receiver.busy" ]; then echo '{"remote_id":"7"}'; exit 0; fi
           touch "FOLDER/$receiver.busy"; echo '{"outcome":"in_progress"}'"#,
        AMBIGUOUS,
        SENT_BY_REPEAT,
        "in_progress",
    ),
    ("says-maybe", r#"echo '{"outcome":"maybe"}'"#, AMBIGUOUS, REPEATED, "unknown"),
    ("says-nonsense", "echo done", SENT, SENT, "applied"),
    ("says-and-fails", r#"echo '{"remote_id":"7"}'; exit 70"#, AMBIGUOUS, REPEATED, "unknown"),
    ("floods", "head -c 10000000 /dev/zero | tr '\\0' x", SENT, SENT, "applied"),
    (
        "complains",
        "head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 70",
        AMBIGUOUS,
        REPEATED,
        "unknown",
    ),
];

/// Two receivers of the same script, one without a promise and one that keeps keys.
fn both() -> String {
    let retry = "retry = { schedule = [\"1ms\"], max_attempts = 2 }\nconcurrency = 2";
    let keyed = command(r#"mode = "idempotency_key", window = "forever""#, retry);
    let keyed = keyed.replace("receivers.crm", "receivers.keyed");
    let kind = |name: &str, receiver: &str| {
        format!(
            "[operations.{name}]\nreceiver = \"{receiver}\"\nsubject = \"case_id\"\n\
             schema = \"builtin:create-followup\"\n"
        )
    };
    let types = [kind("create-followup", "crm"), kind("keyed-followup", "keyed")];
    [command(r#"mode = "none""#, retry), keyed, types.concat()].concat()
}

fn keyed(case: &str) -> String {
    key(case).replace("create-followup", "keyed-followup")
}

fn insert(key: &str, receiver: &str, case: &str) -> String {
    format!(
        "INSERT INTO handoff_approvals (operation_key, receiver, payload, approved_by)
         VALUES ('{key}', '{receiver}', '{}', 'ann');",
        payload(case, "Call")
    )
}

fn assert_end(site: &Site, key: &str, end: End, outcome: &str) {
    let row = site.rows(&format!(
        "SELECT state, blocked_reason, effect, attempts, remote_id FROM handoff_outbox
          WHERE operation_key = '{key}'"
    ));
    let (state, reason, effect, attempts, receipt) = end;
    let word = |word: Option<&str>| word.map_or(Value::Null, text);
    let attempts = Value::Integer(attempts);
    let expected = [text(state), word(reason), text(effect), attempts, word(receipt)];
    assert_eq!(row, [expected], "{key}");
    let first = format!(
        "SELECT outcome, coalesce(length(evidence), 0) <= 500 FROM handoff_attempts
          WHERE operation_key = '{key}' AND number = 1"
    );
    assert_eq!(site.rows(&first), [[text(outcome), Value::Integer(1)]], "{key}");
}

fn all_settled(site: &Site) -> bool {
    let pending = "SELECT count(*) FROM handoff_outbox WHERE state = 'pending'";
    site.value(pending) == Value::Integer(0)
}

#[test]
fn every_exit_and_answer_of_a_program_ends_as_its_contract_says() {
    let site = Site::new(&both());
    site.write("deliver.sh", BY_CASE);
    site.must(&["migrate"]);
    for (case, script, ..) in CASES {
        site.write(&format!("{case}.sh"), script);
        site.tamper(&insert(&key(case), "crm", case));
        site.tamper(&insert(&keyed(case), "keyed", case));
    }
    let daemon = Daemon::start(&site);
    until("all are settled", || all_settled(&site));
    daemon.stop();
    for (case, _, without, with, outcome) in CASES {
        assert_end(&site, &key(case), *without, outcome);
        assert_end(&site, &keyed(case), *with, outcome);
    }
}

#[test]
fn a_program_that_cannot_be_started_is_not_taken() {
    let site = Site::new(&both().replace("\"/bin/sh\", ", ""));
    site.must(&["migrate"]);
    site.tamper(&insert(&key("case-104"), "crm", "case-104"));
    site.tamper(&insert(&keyed("case-104"), "keyed", "case-104"));
    let daemon = Daemon::start(&site);
    until("all are settled", || all_settled(&site));
    daemon.stop();
    assert_end(&site, &key("case-104"), NOT_TAKEN, "not_taken");
    assert_end(&site, &keyed("case-104"), NOT_TAKEN, "not_taken");
    let codes = site.rows("SELECT DISTINCT error_code FROM handoff_attempts");
    assert_eq!(codes, [[text("spawn_failed")]]);
}
