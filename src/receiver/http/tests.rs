//! What answers mean, and what requests look like, without a socket.

use super::classify::{Verdict, classify};
use super::exchange::{Answer, Ended, Failure};
use super::*;
use crate::outbox::outcome::{NotBefore, NotTakenWhy};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

const DOCUMENTED: &str = include_str!("../../../docs/http.md");

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Ended {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    Ended::Answered(Answer { status, headers: map, body: body.into(), cut: None })
}

fn word(report: &Report) -> &'static str {
    match &report.outcome {
        Outcome::Applied { replayed: false, .. } => "applied",
        Outcome::Applied { replayed: true, .. } => "replayed",
        Outcome::AlreadyExists { .. } => "already_exists",
        Outcome::NotTaken { why: NotTakenWhy::Throttled, .. } => "throttled",
        Outcome::NotTaken { .. } => "unavailable",
        Outcome::InProgress { .. } => "in_progress",
        Outcome::Rejected => "rejected",
        Outcome::Conflict => "conflict",
        Outcome::Unauthorised { whole_receiver: true } => "unauthorised, the receiver as a whole",
        Outcome::Unauthorised { whole_receiver: false } => "unauthorised",
        Outcome::Unknown => "unknown",
        Outcome::Unexpected => "unexpected",
    }
}

/// The cells of the documented table with this first column.
fn documented(head: &str) -> Vec<Vec<&'static str>> {
    let after = DOCUMENTED.split(&format!("\n| {head} | outcome |")).nth(1).unwrap();
    let rows = after.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| -> Vec<&'static str> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
    };
    rows.map(cells).collect()
}

fn told(ended: &Ended, reading: &Reading) -> Verdict {
    classify(ended, reading)
}

fn plain(ended: &Ended) -> Report {
    told(ended, &Reading::default()).report
}

#[test]
fn every_status_means_what_the_published_table_says() {
    let rows: Vec<(Statuses, &str)> = documented("status")
        .into_iter()
        .map(|cells| (Statuses::parse(cells[0]).unwrap(), cells[1]))
        .collect();
    for status in 100..=999 {
        let report = plain(&answer(status, &[], ""));
        let row = rows.iter().find(|(statuses, _)| statuses.contains(status)).unwrap();
        assert_eq!(word(&report), row.1, "{status}");
        assert_eq!((report.http_status, report.request_sent), (Some(status), Some(true)));
        let code = (row.1 != "applied").then(|| format!("http_{status}"));
        assert_eq!(report.error_code, code);
    }
}

#[test]
fn every_end_without_an_answer_means_what_the_published_table_says() {
    let rows = documented("error code");
    assert_eq!(rows.len(), FailureCode::ALL.len());
    for code in FailureCode::ALL {
        let row = rows.iter().find(|row| row[0] == code.as_str()).unwrap();
        let failure = || Failure { code: *code, why: "why".to_owned() };
        let sent = row[1] == "unknown";
        let mut ends = vec![Ended::NoAnswer { sent, failure: failure() }];
        if !sent {
            ends.push(Ended::NotConnected(failure()));
        }
        for ended in ends {
            let report = plain(&ended);
            assert_eq!((word(&report), report.request_sent), (row[1], Some(sent)), "{code}");
            assert_eq!(report.error_code.as_deref(), Some(code.as_str()));
        }
    }
}

fn by_pointer() -> Reading {
    let part = Part::Pointer("/id".to_owned());
    Reading { receipt: Some(Receipt { part, pattern: None }), rules: Vec::new() }
}

#[test]
fn a_success_is_only_believed_with_the_receipt_that_was_named() {
    for (body, expected, id) in [
        (r#"{"id":"T-1"}"#, "applied", Some("T-1")),
        (r#"{"id":18446744073709551615}"#, "applied", Some("18446744073709551615")),
        ("", "applied", None),
        (r#"{"id":1.5}"#, "unknown", None),
        (r#"{"id":null}"#, "unknown", None),
        (r#"{"id":""}"#, "unknown", None),
        (r#"{"id":"a\u0000b"}"#, "unknown", None),
        (r#"{"success":false}"#, "unknown", None),
        ("null", "unknown", None),
        ("<html>Log in</html>", "unknown", None),
        (r#"{"id":"T-1""#, "unknown", None),
    ] {
        let report = told(&answer(200, &[], body), &by_pointer()).report;
        assert_eq!(word(&report), expected, "{body}");
        if let Outcome::Applied { remote_id, .. } = &report.outcome {
            assert_eq!(remote_id.as_deref(), id, "{body}");
        }
    }
    let html = answer(200, &[("content-type", "text/HTML; charset=utf-8")], "<p>Log in");
    assert_eq!(plain(&html).error_code.as_deref(), Some("unexpected_answer"));
}

#[test]
fn a_cut_success_is_unknown_unless_its_head_holds_the_receipt() {
    let cut = |reading: &Reading| {
        let Ended::Answered(whole) = answer(201, &[("location", "/tasks/15")], r#"{"id":"15"}"#)
        else {
            panic!("an answer")
        };
        told(&Ended::Answered(Answer { cut: Some("cut"), ..whole }), reading).report
    };
    assert_eq!(cut(&by_pointer()).error_code.as_deref(), Some("answer_cut"));
    let receipt = Receipt {
        part: Part::Header(hyper::header::LOCATION),
        pattern: Some(regex::Regex::new("/([0-9]+)$").unwrap()),
    };
    let report = cut(&Reading { receipt: Some(receipt), rules: Vec::new() });
    assert_eq!(report, Report { http_status: Some(201), ..Report::applied(Some("15".into())) });
}

fn rule(status: &str, part: Part, equals: Option<&str>, outcome: RuleOutcome) -> Rule {
    let (status, equals) = (Statuses::parse(status), equals.map(str::to_owned));
    Rule { name: None, status, part, equals, matches: None, outcome }
}

#[test]
fn the_first_rule_that_matches_decides_and_is_named() {
    let pointer = |pointer: &str| Part::Pointer(pointer.to_owned());
    let mut named = rule("409", pointer("/code"), Some("dup"), RuleOutcome::AlreadyExists);
    named.name = Some("duplicate".to_owned());
    let rules = vec![
        named,
        rule("2xx", pointer("/errors"), None, RuleOutcome::Rejected),
        rule("200", pointer("/ok"), Some("false"), RuleOutcome::Unavailable),
        rule("409", Part::Body, None, RuleOutcome::InProgress),
    ];
    let reading = Reading { rules, ..by_pointer() };
    for (status, body, expected, code) in [
        (409, r#"{"code":"dup","id":7}"#, "already_exists", Some("duplicate")),
        (409, r#"{"code":"other"}"#, "in_progress", Some("rule_4")),
        (200, r#"{"errors":[{}],"id":1}"#, "rejected", Some("rule_2")),
        (200, r#"{"errors":null,"id":1}"#, "applied", None),
        (200, r#"{"ok":false,"id":1}"#, "unavailable", Some("rule_3")),
        (200, r#"{"ok":true,"id":1}"#, "applied", None),
        (400, r#"{"ok":false}"#, "rejected", Some("http_400")),
    ] {
        let verdict = told(&answer(status, &[("retry-after", "9")], body), &reading);
        assert_eq!(word(&verdict.report), expected, "{body}");
        assert_eq!(verdict.report.error_code.as_deref(), code, "{body}");
        if let Some(number) = code.and_then(|code| code.strip_prefix("rule_")) {
            assert!(verdict.seen.contains(&format!("rule {number};")), "{}", verdict.seen);
        }
    }
}

#[test]
fn a_wish_to_be_left_alone_is_read_in_every_form_and_the_longest_counts() {
    let seconds = |seconds| Some(NotBefore::After(Duration::from_secs(seconds)));
    let date = ("date", "Sun, 06 Nov 1994 08:49:30 GMT");
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(Headers<'_>, Option<NotBefore>)] = &[
        (&[], None),
        (&[("retry-after", "7")], seconds(7)),
        (&[("retry-after", "7"), ("retry-after", "9")], seconds(9)),
        (&[date, ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], seconds(7)),
        (&[date, ("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT")], seconds(7)),
        (&[date, ("retry-after", "Sun Nov  6 08:49:37 1994")], seconds(7)),
        (&[date, ("retry-after", "Sun, 06 Nov 1994 08:49:29 GMT")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "3"), ("x-ratelimit-reset", "99")], seconds(3)),
        (&[("ratelimit", "\"default\";r=0;t=30")], seconds(30)),
        (&[("ratelimit", "limit=100, remaining=0, reset=5")], seconds(5)),
        (&[("ratelimit-reset", "12")], seconds(12)),
        (&[("x-ratelimit-reset-after", "4"), ("x-ratelimit-reset", "3")], seconds(4)),
        (
            &[("date", "Sun, 09 Sep 2001 01:46:40 GMT"), ("x-ratelimit-reset", "1000000060")],
            seconds(60),
        ),
        (&[("ratelimit", "nonsense;t=-4")], None),
    ];
    for (headers, expected) in cases {
        let report = plain(&answer(429, headers, ""));
        let Outcome::NotTaken { not_before, .. } = report.outcome else { panic!("not taken") };
        assert_eq!(not_before, *expected, "{headers:?}");
    }
    let report = plain(&answer(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], ""));
    let Outcome::NotTaken { not_before, .. } = report.outcome else { panic!("not taken") };
    let moment = "1994-11-06T08:49:37Z".parse().unwrap();
    assert_eq!(not_before, Some(NotBefore::At(moment)));
}

fn template(path: &str, headers: &[(&str, &str)], body: Body) -> RequestTemplate {
    let header = |(name, text): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), Template::parse(text, Place::Header).unwrap())
    };
    RequestTemplate {
        method: hyper::Method::POST,
        path: Template::parse(path, Place::Url).unwrap(),
        headers: headers.iter().map(header).collect(),
        body,
        idempotency_header: Some(HeaderName::from_static("idempotency-key")),
        key_encoding: KeyEncoding::Raw,
        key_max_length: 255,
    }
}

fn key() -> OperationKey {
    OperationKey::parse("harbor:create-followup:v1:case-104").unwrap()
}

fn json(source: &str) -> Body {
    Body::Json(JsonTemplate::parse(source).unwrap())
}

#[test]
fn a_value_keeps_its_type_in_json_and_cannot_change_the_shape() {
    let body = json(
        r#"{"n":"{{ payload.n }}","list":"{{payload.list}}","no":"{{ payload.no }}","x":null,
            "text":"{{ payload.evil }} and {{ payload.n }}","fixed":1}"#,
    );
    let payload = r#"{"evil":"\",\"admin\":true,\"","list":[1,{"a":2}],"n":7,"no":null}"#;
    let rendered = template("/tasks", &[], body).render(&key(), payload).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&rendered.body.unwrap()).unwrap();
    let expected = serde_json::json!({
        "n": 7, "list": [1, { "a": 2 }], "no": null, "x": null,
        "text": "\",\"admin\":true,\" and 7", "fixed": 1,
    });
    assert_eq!(read, expected);
}

#[test]
fn what_is_missing_or_does_not_fit_its_place_makes_no_request() {
    let payload = r#"{"dots":"..","empty":"","lines":"a\r\nX: b","list":[],"nothing":null}"#;
    for (path, header, body) in [
        ("/t/{{ payload.absent }}", "x", "{}"),
        ("/t/{{ payload.empty }}", "x", "{}"),
        ("/t/{{ payload.dots }}/x", "x", "{}"),
        ("/t/{{ payload.list }}", "x", "{}"),
        ("/t/{{ payload.nothing }}", "x", "{}"),
        ("/t", "{{ payload.lines }}", "{}"),
        ("/t", "{{ payload.absent }}", "{}"),
        ("/t", "x", r#"{"a":"{{ payload.absent }}"}"#),
        ("/t", "x", r#"{"a":"{{ payload.absent.deeper }} x"}"#),
        ("/t", "x", r#"{"a":"b {{ payload.list }}"}"#),
    ] {
        let template = template(path, &[("x-note", header)], json(body));
        let error = template.render(&key(), payload).unwrap_err();
        assert!(matches!(error, RenderError::Template { .. }), "{path} {header} {body}: {error}");
    }
    for source in ["{{ playload.x }}", "{{ payload", "{% for x in y %}"] {
        assert!(Template::parse(source, Place::Text).is_err(), "{source}");
        let body = serde_json::json!([source]).to_string();
        assert!(JsonTemplate::parse(&body).is_err(), "{source}");
    }
}

#[test]
fn a_key_is_written_as_declared_and_never_cut() {
    let key = key();
    for (encoding, expected) in [
        (KeyEncoding::Raw, "harbor:create-followup:v1:case-104"),
        (KeyEncoding::Quoted, "\"harbor:create-followup:v1:case-104\""),
    ] {
        assert_eq!(encoding.encode(key.as_str()), expected);
    }
    let (digest, uuid) = (KeyEncoding::Sha256.encode("k"), KeyEncoding::Uuid.encode("k"));
    assert_eq!((digest.len(), uuid.len()), (64, 36));
    assert!(uuid.starts_with(&digest[..8]) && &uuid[14..15] == "8", "{uuid}");
    let short = RequestTemplate { key_max_length: 33, ..template("/t", &[], Body::None) };
    let error = short.render(&key, "{}").unwrap_err();
    assert!(matches!(error, RenderError::KeyTooLong { length: 34, max: 33, .. }), "{error}");
    let enough = RequestTemplate { key_max_length: 34, ..short };
    assert!(enough.render(&key, "{}").is_ok());
}

proptest! {
    #[test]
    fn a_value_stays_one_segment_of_a_path_and_one_field_of_a_form(text in ".{1,40}") {
        prop_assume!(text != "." && text != "..");
        let payload = serde_json::json!({ "x": text }).to_string();
        let field = Template::parse("{{ payload.x }}", Place::Form).unwrap();
        let body = Body::Form(vec![("a".to_owned(), field)]);
        let rendered = template("/t/{{ payload.x }}/end", &[], body).render(&key(), &payload);
        let rendered = rendered.unwrap();
        let segments: Vec<&str> = rendered.path.split('/').collect();
        prop_assert_eq!(segments.len(), 4);
        let decoded = decoded(segments[2]);
        prop_assert_eq!(&decoded, &text);
        let body = String::from_utf8(rendered.body.unwrap()).unwrap();
        prop_assert_eq!(body, format!("a={}", segments[2]));
    }

    #[test]
    fn whatever_stands_in_a_payload_the_json_reads_back(text in any::<String>()) {
        let payload = serde_json::json!({ "x": text }).to_string();
        let body = json(r#"{"a":"{{ payload.x }}","b":"<{{ payload.x }}>"}"#);
        let rendered = template("/t", &[], body).render(&key(), &payload).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&rendered.body.unwrap()).unwrap();
        prop_assert_eq!(read, serde_json::json!({ "a": text, "b": format!("<{text}>") }));
    }

    #[test]
    fn a_header_takes_a_text_as_it_is_or_not_at_all(text in any::<String>()) {
        let payload = serde_json::json!({ "x": text }).to_string();
        let template = template("/t", &[("x-note", "a{{ payload.x }}b")], Body::None);
        match template.render(&key(), &payload) {
            Ok(rendered) => {
                let expected = format!("a{text}b");
                prop_assert_eq!(rendered.headers[0].1.as_bytes(), expected.as_bytes());
                prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            }
            Err(_) => prop_assert!(text.bytes().any(|byte| !(b' '..=b'~').contains(&byte))),
        }
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = std::str::from_utf8(&after[..2]).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}
