//! What the CRM does when a key comes again, and where it finds the key.

use super::client::{Answer, Client};
use super::{script, start};
use handoff::scripted::{Contract, Dialect, Effect, KeyAt, Reply, Saying, Script, Server};
use std::time::Duration;

fn crm(contract: Contract) -> Server {
    start(Script::new(KeyAt::Header("idempotency-key".to_owned()), contract))
}

fn post(server: &Server, key: &str, body: &str) -> (u16, String) {
    let Answer { status, body, .. } = Client::to(server).post(key, body).answer();
    (status, body)
}

fn id(status: u16, id: u64) -> (u16, String) {
    (status, format!("{{\"id\":\"{id}\"}}"))
}

#[test]
fn a_crm_without_a_contract_makes_a_record_each_time() {
    let server = crm(Contract::None);
    assert_eq!([post(&server, "a", "1"), post(&server, "a", "1")], [id(201, 1), id(201, 2)]);
    assert_eq!(server.records_of("a").len(), 2);
}

#[test]
fn a_crm_with_idempotency_keys_gives_the_first_answer_again_or_a_conflict() {
    let server = crm(Contract::IdempotencyKey { window: None });
    assert_eq!([post(&server, "a", "1"), post(&server, "a", "1")], [id(201, 1), id(201, 1)]);
    assert_eq!(post(&server, "a", "2").0, 422);
    assert_eq!(post(&server, "b", "2"), id(201, 2));
    let records = server.records_of("a");
    assert_eq!((records.len(), records[0].content.as_slice()), (1, &b"1"[..]));
    let effects = server.requests().into_iter().filter_map(|one| one.effect);
    let expected = [Effect::Made(1), Effect::Replayed(1), Effect::Conflict(1), Effect::Made(2)];
    assert_eq!(effects.collect::<Vec<_>>(), expected);
}

#[test]
fn a_key_whose_window_is_over_makes_another_record() {
    let server = crm(Contract::IdempotencyKey { window: Some(Duration::from_secs(3600)) });
    assert_eq!([post(&server, "a", "1"), post(&server, "a", "1")], [id(201, 1), id(201, 1)]);
    server.forget_keys();
    assert_eq!(post(&server, "a", "1"), id(201, 2));
    let server = crm(Contract::IdempotencyKey { window: Some(Duration::ZERO) });
    assert_eq!([post(&server, "a", "1"), post(&server, "a", "1")], [id(201, 1), id(201, 2)]);
}

#[test]
fn a_crm_that_only_creates_says_that_a_key_is_taken() {
    let server = crm(Contract::CreateOnly);
    assert_eq!(post(&server, "a", "1"), id(201, 1));
    assert_eq!(post(&server, "a", "2"), (409, r#"{"error":"exists","id":"1"}"#.to_owned()));
    assert_eq!(server.records_of("a")[0].content, b"1");
}

#[test]
fn a_crm_that_upserts_overwrites() {
    let server = crm(Contract::Upsert);
    assert_eq!([post(&server, "a", "1"), post(&server, "a", "2")], [id(201, 1), id(200, 1)]);
    let record = &server.records_of("a")[0];
    assert_eq!((record.content.as_slice(), record.writes), (&b"2"[..], 2));
}

#[test]
fn a_look_up_finds_what_was_made_and_nothing_else() {
    for (at, target) in [
        (KeyAt::Query("external_id".to_owned()), "/tasks?external_id=x%3Aa"),
        (KeyAt::Segment(2), "/tasks/x:a"),
    ] {
        let server = start(script().look_up(at));
        let look_up = || Client::to(&server).get(target).answer();
        assert_eq!(look_up().status, 404);
        post(&server, "x:a", "{}");
        assert_eq!(look_up().body, r#"{"id":"1","key":"x:a"}"#);
        assert_eq!(server.requests()[2].effect, Some(Effect::Found(1)));
        assert_eq!(server.records().len(), 1);
    }
}

#[test]
fn a_key_in_the_body_or_in_the_path_is_found() {
    let server = start(Script::new(KeyAt::Pointer("/a/key".to_owned()), Contract::CreateOnly));
    for status in [201, 409] {
        let got = Client::to(&server).post("unused", r#"{"a":{"key":"k"}}"#).answer().status;
        assert_eq!(got, status);
    }
    assert_eq!((server.received("k"), server.received("unused")), (2, 0));
    let server = start(Script::new(KeyAt::Segment(2), Contract::Upsert));
    for status in [201, 200] {
        let put = "PUT /tasks/k HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(Client::to(&server).send(put).answer().status, status);
    }
    assert_eq!(server.received("k"), 2);
}

#[test]
fn a_crm_speaks_the_dialect_that_it_is_given() {
    let dialect = Dialect::default()
        .says(Saying::Made, Reply::status(204).header("OData-EntityId", "/tasks({id})"))
        .says(Saying::Conflict, Reply::json(409, r#"{"type":"key_reused","key":"{key}"}"#));
    let server = start(script().dialect(dialect));
    assert!(Client::to(&server).post("a", "1").answer().head.contains("OData-EntityId: /tasks(1)"));
    assert_eq!(post(&server, "a", "2"), (409, r#"{"type":"key_reused","key":"a"}"#.to_owned()));
}
