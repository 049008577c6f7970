//! `approve`: what is recorded, what is refused, and that nothing else changes.

use crate::support::{Crm, World};
use handoff::Payload;

const KEY: &str = "harbor:create-followup:v1:case-104";
const FOLLOW_UP: [&str; 2] = ["approve", "create-followup"];

fn fields<'a>(fields: &[&'a str]) -> Vec<&'a str> {
    let pairs = fields.iter().flat_map(|field| ["--field", field]);
    FOLLOW_UP.into_iter().chain(pairs).collect()
}

fn with_payload(file: &str) -> Vec<&str> {
    FOLLOW_UP.into_iter().chain(["--payload", file]).collect()
}

fn payload(case: &str, title: &str) -> String {
    serde_json::json!({ "case_id": case, "title": title }).to_string()
}

#[test]
fn fields_that_make_no_payload_are_refused_and_change_nothing() {
    let world = World::new().migrated();
    world.record("case-1");
    let before = world.contents();
    let long = format!("title={}", "x".repeat(161));
    for (given, said) in [
        (&["case_id"][..], "there is no '='"),
        (&["=case-104"], "the name is empty"),
        (&["case_id=a", "title=b", "case_id=a"], "the name occurs twice"),
        (&["case_id=case-104"], "title"),
        (&["title=Call"], "case_id"),
        (&["case_id=case-104", "title=Call", "priority=1"], "priority"),
        (&["case_id=case-104", "title="], "title"),
        (&["case_id=case-104", "title= \t "], "title"),
        (&["case_id=case-104", &long], "title"),
        (&["case_id=case/104", "title=Call"], "case_id"),
        (&["case_id=", "title=Call"], "case_id"),
        (&["case_id=case:104", "title=Call"], "case_id"),
    ] {
        let done = world.run(&fields(given)).exits(65).says(said);
        assert_eq!(done.stdout, "");
    }
    world.run(&["approve", "send-letter", "--field", "a=b"]).exits(65).says("create-followup");
    assert_eq!(world.contents(), before);
}

#[test]
fn a_payload_that_cannot_be_kept_faithfully_is_refused_and_changes_nothing() {
    let world = World::new().migrated();
    let before = world.contents();
    let object = |title: &str| format!(r#"{{"case_id":"case-104","title":{title}}}"#);
    let large = payload("case-104", &"x".repeat(256 * 1024));
    let deep = object(&format!("{}{}", "[".repeat(200), "]".repeat(200)));
    let cases: &[(&[u8], &str)] = &[
        (b"", "payload"),
        (b"null", "null"),
        (b"[]", "object"),
        (b"\"case-104\"", "object"),
        (b"{\"case_id\":\"case-104\",\"title\":\"Call\"", "payload"),
        (b"{\"case_id\":\"case-104\",\"title\":\"Call\"} {}", "payload"),
        (b"{\"case_id\":\"case-104\",\"title\":\"\xff\"}", "UTF-8"),
        (b"\xef\xbb\xbf{\"case_id\":\"case-104\",\"title\":\"Call\"}", "payload"),
        (br#"{"case_id":"case-104","title":"a","title":"b"}"#, "title"),
        (br#"{"case_id":"case-104","title":"a","\u0074itle":"b"}"#, "title"),
        (br#"{"case_id":"case-104","title":9007199254740993}"#, "9007199254740993"),
        (br#"{"case_id":"case-104","title":1e999}"#, "payload"),
        (br#"{"case_id":"case-104","title":"\ud800"}"#, "surrogate"),
        (br#"{"case_id":"case-104","title":"\udc00\ud800"}"#, "surrogate"),
        (br#"{"case_id":"case-104","title":"\ud83d\u0041"}"#, "surrogate"),
        (br#"{"case_id":"case-104","title":"\u0000"}"#, "NUL"),
        (b"{\"case_id\":\"case-104\",\"title\":\"a\0\"}", "payload"),
        (br#"{"case_id":null,"title":"Call"}"#, "case_id"),
        (br#"{"case_id":"case-104","title":null}"#, "title"),
        (large.as_bytes(), "262144"),
        (deep.as_bytes(), "payload"),
    ];
    for (bytes, said) in cases {
        world.write("payload.json", bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        for done in
            [world.run(&with_payload("payload.json")), world.run_with(&with_payload("-"), bytes)]
        {
            assert_eq!((done.code, done.stdout.as_str()), (Some(65), ""), "{shown}: {done:?}");
            assert!(done.stderr.contains(said), "{shown}: {done:?}");
        }
    }
    world.run(&with_payload("missing.json")).exits(65).says("missing.json");
    world.run(&with_payload(".")).exits(65);
    assert_eq!(world.contents(), before);
}

#[test]
fn an_approver_without_a_name_that_can_be_kept_is_refused() {
    let world = World::new().migrated();
    let before = world.contents();
    for name in ["", " ", "\t\n", "ann\nroot", "ann\u{1b}[0m", "ann\u{85}", &"x".repeat(201)] {
        let arguments = [&fields(&["case_id=case-104", "title=Call"])[..], &["--as", name]];
        world.run(&arguments.concat()).exits(65).says("approved");
    }
    assert_eq!(world.contents(), before);
}

#[test]
fn a_time_of_delivery_is_a_time_or_a_duration_and_nothing_else() {
    let world = World::new().migrated();
    let before = world.contents();
    let at = |case: &str, time: &str| {
        let case = format!("case_id={case}");
        let arguments = fields(&[&case, "title=Call"]);
        world.run(&[&arguments[..], &["--deliver-after", time]].concat())
    };
    for time in [
        "",
        "soon",
        "tomorrow",
        "2027-01-31",
        "2027-01-31T09:00:00",
        "2027-02-30T09:00:00Z",
        "12",
        "1969-12-31T23:59:59Z",
        "9999999999h",
    ] {
        at("case-104", time).exits(65).says("--deliver-after");
    }
    assert_eq!(world.contents(), before);
    at("a", "2027-01-31T09:00:00Z").ok();
    at("b", "2027-01-31T10:00:00+01:00").ok();
    at("c", "2h").ok();
    let times = "SELECT group_concat(deliver_after) FROM handoff_approvals
                  WHERE operation_key < 'harbor:create-followup:v1:c'";
    assert_eq!(world.value::<String>(times, []), "1801386000000,1801386000000");
    let daemon = world.serving();
    let prompt = world.record("prompt");
    world.until_state(&prompt, "sent");
    daemon.stop();
    assert_eq!(world.state("harbor:create-followup:v1:c"), "pending", "its time has not come");
}

#[test]
fn the_same_approval_again_is_the_same_operation_and_other_content_a_conflict() {
    let world = World::new().migrated();
    let arguments = fields(&["case_id=case-104", "title=Call"]);
    let first = world.run(&[&arguments[..], &["--as", "ann"]].concat()).ok();
    assert_eq!(first.stdout, format!("recorded {KEY}\n"));
    let before = world.contents();
    let again = world.run(&[&arguments[..], &["--as", "bob"]].concat()).ok();
    assert!(again.stdout.contains("was recorded before (state pending)"), "{again:?}");
    // Trimmed, and with its names in another order, it is the same content.
    let trimmed = br#"{ "title": "  Call ", "case_id": "case-104" }"#;
    world.run_with(&with_payload("-"), trimmed).ok();
    let stored = Payload::parse(&payload("case-104", "Call")).expect("a payload").fingerprint();
    let given = Payload::parse(&payload("case-104", "Visit")).expect("a payload").fingerprint();
    for state in ["pending", "sent"] {
        let other = world.run(&fields(&["case_id=case-104", "title=Visit"])).exits(4);
        let other = other.says(KEY).says(state).says(stored.as_str()).says(given.as_str());
        assert_eq!(other.stdout, "");
        if state == "pending" {
            assert_eq!(world.contents(), before);
            let daemon = world.serving();
            world.until_state(KEY, "sent");
            daemon.stop();
        }
    }
    let task: String = world
        .open("crm.db")
        .query_row("SELECT payload FROM tasks", [], |row| row.get(0))
        .expect("one task");
    assert_eq!(task, payload("case-104", "Call"));
}

#[test]
fn plain_sql_and_the_command_line_mean_the_same_operation() {
    let world = World::new().migrated();
    let key = world.record("case-104");
    let before = world.contents();
    world.run(&fields(&["case_id=case-104", "title=Call about case-104"])).ok();
    world.run(&fields(&["case_id=case-104", "title=Call"])).exits(4);
    assert_eq!(world.contents(), before);
    assert_eq!(world.state(&key), "pending");
}

#[test]
fn another_version_is_no_way_round_an_operation_that_exists() {
    let crm = "[receivers.crm]\nkind = \"simulated\"\npath = \"crm.db\"\n";
    let types = |version: u8, more: &str| {
        format!(
            "{crm}[operations.create-followup]\nversion = {version}\nreceiver = \"crm\"\n\
             subject = \"case_id\"\nschema = \"builtin:create-followup\"\n{more}"
        )
    };
    let world = World::configured(&types(1, "")).migrated();
    world.run(&fields(&["case_id=case-104", "title=Call"])).ok();
    world.configure(&types(2, ""));
    world.run(&fields(&["case_id=case-104", "title=Visit"])).exits(65).says(KEY);
    world.configure(&types(2, "versions = \"independent\"\n"));
    world.run(&fields(&["case_id=case-104", "title=Visit"])).ok();
}

#[test]
fn an_input_that_is_refused_makes_no_database() {
    let world = World::bare();
    world.run(&fields(&["case_id=case-104"])).exits(65);
    assert!(!world.path("handoff-data").exists());
    // Nor are the names of another configuration mirrored.
    let world = World::new().migrated();
    let names = "SELECT group_concat(name) FROM handoff_receivers";
    world.configure(
        "[receivers.mail]\nkind = \"simulated\"\npath = \"mail.db\"\n\
                     [operations.create-followup]\nreceiver = \"mail\"\nsubject = \"case_id\"\n\
                     schema = \"builtin:create-followup\"\n",
    );
    world.run(&fields(&["case_id=case-104"])).exits(65);
    assert_eq!(world.value::<String>(names, []), "crm");
}

#[test]
fn an_operation_recorded_by_the_command_line_is_delivered_as_it_was_approved() {
    let world = World::with(&Crm::default()).migrated();
    let daemon = world.serving();
    let title = "Zurückrufen 💥 \"wegen\" \\ 104";
    let field = format!("title={title}");
    world.run(&fields(&["case_id=case-104", &field])).ok();
    world.until_state(KEY, "sent");
    let show = world.run(&["show", KEY, "--json"]).ok().json();
    assert_eq!(show["payload"]["title"], title);
    let known = Payload::parse(&payload("case-104", title)).expect("a payload");
    assert_eq!(show["fingerprint"], known.fingerprint().as_str());
    let by = show["approved_by"].as_str().expect("a name");
    assert!(by.starts_with("os:") && by.len() > 3, "{by}");
    daemon.stop();
}
