//! What is wrong is refused with a text of ours, and nothing of it is stored.

use crate::support::{CLAUSES, KEY, Row, World, blob};
use serde_json::{Value, json};

/// Tries every row under every clause; each is refused for the reason given.
fn all_refused(rows: &[Row], why: &str) {
    let world = World::new();
    let mut python = world.python();
    for clause in CLAUSES {
        for row in rows {
            let refused = python.record(clause, row).unwrap_err();
            assert!(refused.starts_with(&format!("handoff: {why}")), "{clause:?}: {refused}");
        }
    }
    assert_eq!(world.counts(), (0, 0));
}

/// Values that are no text at all.
fn not_text() -> Vec<Value> {
    vec![Value::Null, json!(42), json!(4.2), blob(b"harbor:create-followup:v1:case-104"), blob(b"")]
}

#[test]
fn a_key_outside_the_grammar_is_refused_under_every_conflict_clause() {
    let long_name = "n".repeat(41);
    let mut keys = not_text();
    keys.extend(
        [
            "",
            "harbor",
            ":::",
            "harbor:create-followup:v1",
            "harbor:create-followup:v1:",
            "harbor:create-followup:v1:case-104:r2",
            "harbor:create-followup::v1:case-104",
            "harbor:create-followup:v1::case-104",
            ":harbor:create-followup:v1:case-104",
            "Harbor:create-followup:v1:case-104",
            "1harbor:create-followup:v1:case-104",
            "-harbor:create-followup:v1:case-104",
            "harbor::v1:case-104",
            "harbor:Create:v1:case-104",
            "harbor:create_followup:v1:case-104",
            "harbor:create followup:v1:case-104",
            "harbor:create-followup:v0:case-104",
            "harbor:create-followup:v01:case-104",
            "harbor:create-followup:v1000:case-104",
            "harbor:create-followup:v:case-104",
            "harbor:create-followup:1:case-104",
            "harbor:create-followup:V1:case-104",
            "harbor:create-followup:v1x:case-104",
            "harbor:create-followup:v+1:case-104",
            "harbor:create-followup:v1:case 104",
            "harbor:create-followup:v1:case-104 ",
            " harbor:create-followup:v1:case-104",
            "harbor:create-followup:v1:case-104\n",
            "harbor:create-followup:v1:case\t104",
            "harbor:create-followup:v1:case-104\u{0}",
            "harbor:create-followup:v1:case-104\u{0}:x",
            "harbor\u{0}:create-followup:v1:case-104",
            "\u{0}",
            "harbor:create-followup:v1:case-\u{e9}",
            "h\u{e4}rbor:create-followup:v1:case-104",
            "harbor:create-followup:v1:\u{ff43}ase",
            "harbor:create-followup:v1:case\u{200b}104",
            "harbor:create-followup:v1:case\u{7f}104",
            "h\u{e4}",
        ]
        .map(Value::from),
    );
    keys.push(format!("{long_name}:create-followup:v1:case-104").into());
    keys.push(format!("harbor:{long_name}:v1:case-104").into());
    keys.push(format!("harbor:create-followup:v1:{}", "x".repeat(200)).into());
    let rows: Vec<_> = keys.into_iter().map(|key| Row::good().key(key)).collect();
    all_refused(&rows, "invalid operation_key");
}

#[test]
fn a_subject_that_is_not_plain_is_refused_where_its_type_sets_no_pattern() {
    let subjects = ["case/104", "case_104", "a.b", "*", "'", "[", "~"].map(str::to_owned);
    let long = ["x".repeat(81), "x".repeat(113)];
    let keys = subjects.into_iter().chain(long);
    let rows: Vec<_> = keys
        .map(|subject| Row::good().key(format!("harbor:create-followup:v1:{subject}")))
        // Too long by one also where the names before it are as short as can be.
        .chain([Row::good().key(format!("h:c:v1:{}", "x".repeat(81)))])
        .chain([Row::good().key(format!("{0}:{0}:v999:{1}", "n".repeat(40), "x".repeat(81)))])
        .collect();
    all_refused(&rows, "invalid subject in operation_key");
}

#[test]
fn a_receiver_that_is_not_configured_is_refused() {
    let mut receivers = not_text();
    receivers.extend(["", "CRM", "crm ", "crm\u{0}", "nobody", "*", "cr\u{1e3f}"].map(Value::from));
    let rows: Vec<_> = receivers.into_iter().map(|to| Row::good().receiver(to)).collect();
    all_refused(&rows, "unknown receiver");
}

#[test]
fn an_approval_by_nobody_or_by_an_unreadable_name_is_refused() {
    let mut names = not_text();
    names.extend(
        ["", " ", "   ", "\t", "ann\n", "\u{0}", "ann\u{0}", "a\u{1}b", "a\u{1f}b", "a\u{7f}b"]
            .map(Value::from),
    );
    names
        .extend(["a\u{80}b", "a\u{9f}b", "\u{a0}", "\u{2003}\u{3000} ", "\u{85}"].map(Value::from));
    names.push("x".repeat(201).into());
    names.push("\u{e9}".repeat(101).into());
    let rows: Vec<_> = names.into_iter().map(|name| Row::good().approved_by(name)).collect();
    all_refused(&rows, "invalid approved_by");
}

#[test]
fn a_payload_that_is_no_json_object_as_text_is_refused() {
    let mut payloads = vec![Value::Null, json!(42), json!(4.2), blob(b"{}"), blob(b"")];
    payloads.extend(
        [
            "",
            " ",
            "null",
            "true",
            "42",
            "\"{}\"",
            "[]",
            "[{}]",
            "{",
            "}",
            "{}}",
            "{} {}",
            "{},",
            "{\"a\":1",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":NaN}",
            "{\"a\":Infinity}",
            "{\"a\":+1}",
            "{\"a\":.5}",
            "{\"a\":0x10}",
            "{\"a\":tru}",
            "{\"a\":\"\n\"}",
            "{/* */}",
            "// \n{}",
            "\u{feff}{}",
            "\u{a0}{}",
            "{}\u{0}",
            "{\"a\":\"\u{0}\"}",
            "{\"\u{e9}\":1}\u{0}",
            "\u{0}{}",
        ]
        .map(Value::from),
    );
    payloads.push(format!("{{\"a\":\"{}\"}}", "x".repeat(262_144 - 7)).into());
    payloads.push(format!("{{}}{}", " ".repeat(262_144)).into());
    // Two bytes to a letter: fewer letters than the limit, but more bytes.
    payloads.push(format!("{{\"a\":\"{}\"}}", "\u{e9}".repeat(131_069)).into());
    let rows: Vec<_> = payloads.into_iter().map(|text| Row::good().payload(text)).collect();
    all_refused(&rows, "invalid payload");
}

#[test]
fn a_time_that_is_no_whole_number_of_milliseconds_is_refused() {
    let in_seconds = 1_796_108_400;
    let rows: Vec<_> = [
        json!("1796108400000"),
        json!("tomorrow"),
        json!(""),
        json!(1_796_108_400_000.0),
        json!(1_796_108_400_000.5),
        json!(-1),
        json!(0),
        json!(in_seconds),
        json!(99_999_999_999_i64),
        json!(253_402_300_800_000_i64),
        json!(i64::MAX),
        json!(i64::MIN),
        blob(b"1796108400000"),
    ]
    .into_iter()
    .map(|time| Row::good().deliver_after(time))
    .collect();
    all_refused(&rows, "invalid deliver_after");
}

#[test]
fn a_trace_context_that_is_no_short_visible_text_is_refused() {
    let rows: Vec<_> = [
        json!(42),
        json!(4.2),
        blob(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\u{0}"),
        json!("a b"),
        json!("a\n"),
        json!("\u{e9}"),
        json!("x".repeat(201)),
    ]
    .into_iter()
    .map(|context| Row::good().traceparent(context))
    .collect();
    all_refused(&rows, "invalid traceparent");
}

#[test]
fn columns_of_a_later_version_are_refused_rather_than_ignored() {
    let rows = [
        Row::good().ordering_key("case-104"),
        Row::good().ordering_key(""),
        Row::good().depends_on(KEY),
        Row::good().depends_on(blob(b"")),
    ];
    all_refused(&rows, "ordering_key and depends_on are not in this version");
}

#[test]
fn a_row_without_values_is_refused() {
    let world = World::new();
    let mut python = world.python();
    for (verb, tail) in CLAUSES {
        // SQLite's grammar knows no ON CONFLICT after DEFAULT VALUES.
        if tail.is_empty() {
            python.refused(&format!("{verb} INTO handoff_approvals DEFAULT VALUES"), "invalid");
        }
        python.refused(
            &format!("{verb} INTO handoff_approvals (payload) SELECT '{{}}' WHERE true {tail}"),
            "invalid operation_key",
        );
    }
    assert_eq!(world.counts(), (0, 0));
}

#[test]
fn one_wrong_row_keeps_the_good_ones_of_its_statement_out() {
    let world = World::new();
    let mut python = world.python();
    for clause in CLAUSES {
        let wrong = Row::good().key("harbor:create-followup:v1:case-105").payload("[]");
        let refused = python.record_two(clause, &Row::good().and(wrong)).unwrap_err();
        assert!(refused.starts_with("handoff: invalid payload"), "{clause:?}: {refused}");
        assert_eq!(world.counts(), (0, 0), "{clause:?}");
    }
}

#[test]
fn a_refusal_leaves_the_transaction_open_and_what_was_written_before_in_it() {
    let world = World::new();
    let mut python = world.python();
    for clause in CLAUSES {
        python.must("BEGIN IMMEDIATE");
        python.must("INSERT INTO cases VALUES ('case-104', 'approved')");
        python.record(clause, &Row::good().payload("[]")).unwrap_err();
        assert!(python.in_transaction, "{clause:?}");
        assert_eq!(python.must("DELETE FROM cases").changed, 1, "{clause:?}");
        python.must("COMMIT");
    }
}
