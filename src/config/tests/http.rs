//! Receivers of kind `http`.

use super::*;
use crate::receiver::http::{Auth, Body, Part, Place, Reference};

const LEAST: &str = "base_url = \"https://crm.example.com/api/\"\nrequest = { path = \"/tasks\" }";

/// A receiver of kind `http` with these keys.
fn http(keys: &str) -> Result<Loaded, ConfigError> {
    load_file(
        &with_contract("mode = \"none\"")
            .replace("\"command\"\nprogram = [\"/bin/true\"]", &format!("\"http\"\n{keys}")),
    )
}

#[track_caller]
fn settings(loaded: &Loaded) -> &crate::receiver::http::Settings {
    match &loaded.settings.receivers[0].kind {
        Kind::Http(settings) => settings,
        _ => panic!("no http"),
    }
}

#[test]
fn an_http_receiver_needs_only_a_base_url_and_a_path() {
    let loaded = http(LEAST).unwrap();
    let settings = settings(&loaded);
    assert_eq!(settings.address.to_string(), "https://crm.example.com:443/api");
    assert_eq!(settings.connect_timeout, 5 * SECOND);
    assert!(matches!(settings.request.body, Body::Payload) && settings.auth.is_none());
    assert_eq!((settings.request.method.as_str(), settings.request.key_max_length), ("POST", 255));
    let loaded = http(&format!("{LEAST}\ntimeout = \"1s\"")).unwrap();
    assert_eq!(self::settings(&loaded).connect_timeout, SECOND / 2);
}

#[test]
fn every_key_of_an_http_receiver_is_read() {
    let loaded = http(
        "base_url = \"http://[::1]:8080\"\nca_file = \"ca.pem\"\nconnect_timeout = \"2s\"\n\
         receipt = { header = \"Location\", pattern = \"([0-9]+)$\" }\n\
         rules = [{ status = \"409, 5xx\", pointer = \"/e\", equals = \"\", name = \"twice\", \
         outcome = \"replayed\" }, { header = \"X\", matches = \"^a\", outcome = \"throttled\" }]\n\
         auth = { basic = { user = \"u\", env = \"PASSWORD\" } }\n\
         [receivers.out.request]\nmethod = \"PUT\"\npath = \"/t/{{ subject }}?k={{ key }}\"\n\
         headers = [\"Prefer: minimal\"]\nbody_kind = \"form\"\nbody = \"a = {{ type }}\\nb=\"\n\
         idempotency_header = \"Idempotency-Key\"\nkey_encoding = \"quoted\"\nkey_max_length = 80",
    )
    .unwrap();
    let settings = settings(&loaded);
    assert_eq!(settings.address.to_string(), "http://[::1]:8080");
    let password = Reference::Environment("PASSWORD".to_owned());
    assert_eq!(settings.auth, Some(Auth::Basic { user: "u".to_owned(), password }));
    assert!(matches!(settings.reading.receipt.as_ref().unwrap().part, Part::Header(_)));
    let names: Vec<_> = settings.reading.rules.iter().map(|rule| rule.name.as_deref()).collect();
    assert_eq!(names, [Some("twice"), None]);
    assert_eq!(settings.request.headers[0].0, "prefer");
    let Body::Form(fields) = &settings.request.body else { panic!("no form") };
    assert_eq!(fields.len(), 2);
}

#[test]
fn what_an_http_receiver_cannot_be_is_refused() {
    for (keys, words) in [
        ("request = { path = \"/t\" }", "base_url: missing"),
        ("base_url = \"https://x\"", "request: missing"),
        ("base_url = \"ftp://x\"\nrequest = { path = \"/t\" }", "must begin with https://"),
        ("base_url = \"https://x?a=b\"\nrequest = { path = \"/t\" }", "no query"),
        ("base_url = \"https://\"\nrequest = { path = \"/t\" }", "it is no URL"),
        ("base_url = \"https://x:0\"\nrequest = { path = \"/t\" }", "from 1 to 65535"),
        ("base_url = \"https://x\"\nrequest = { path = \"t\" }", "begin with a slash"),
        ("base_url = \"https://x\"\nrequest = { path = \"/{{ z }}\" }", "there is no z"),
        ("base_url = \"https://x\"\nrequest = { path = \"/t\", body = \"x\" }", "senseless with"),
        (
            "base_url = \"https://x\"\nrequest = { path = \"/t\", body_kind = \"json\" }",
            "needs a body",
        ),
        (
            "base_url = \"https://x\"\n\
             request = { path = \"/t\", body_kind = \"json\", body = \"{\" }",
            "it is no JSON",
        ),
        (
            "base_url = \"https://x\"\nrequest = { path = \"/t\", headers = [\"Host: y\"] }",
            "not free to choose",
        ),
        (
            "base_url = \"https://x\"\nrequest = { path = \"/t\", headers = [\"A: y\", \"a: z\"] }",
            "stands there twice",
        ),
        (&format!("{LEAST}\nconnect_timeout = \"10s\""), "shorter than the timeout of 10s"),
        (&format!("{LEAST}\nauth = {{}}"), "one of bearer, basic and header"),
        (&format!("{LEAST}\nauth = {{ bearer = {{}} }}"), "where the secret is"),
        (&format!("{LEAST}\nreceipt = {{}}"), "says nowhere where the id is"),
        (&format!("{LEAST}\nrules = [{{ outcome = \"applied\" }}]"), "matches every answer"),
        (&format!("{LEAST}\nrules = [{{ status = \"6\", outcome = \"applied\" }}]"), "statuses"),
        (&format!("{LEAST}\nrules = [{{ status = \"409\" }}]"), "outcome: missing"),
        (&format!("{LEAST}\nprogram = [\"/bin/true\"]"), "senseless for kind = \"http\""),
    ] {
        let line = only(http(keys));
        assert!(line.contains(words), "{keys}: {line}");
    }
    assert!(crate::receiver::http::Template::parse("{{ key }}", Place::Url).is_ok());
}

#[test]
fn a_secret_that_stands_in_the_configuration_is_refused_and_not_repeated() {
    for keys in [
        "auth = \"hunter2\"",
        "auth = { bearer = \"hunter2\" }",
        "auth = { bearer = { token = \"hunter2\" } }",
        "auth = { bearer = { file = \"a\", env = \"hunter2\" } }",
        "auth = { bearer = { env = \"hunter2 hunter2\" } }",
        "auth = { basic = { user = \"u:hunter2\", env = \"X\" } }",
    ] {
        let error = http(&format!("{LEAST}\n{keys}")).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{keys}: {error}");
    }
    let keys = LEAST.replace("crm.example", "u:hunter2@crm.example");
    let error = http(&keys).unwrap_err().to_string();
    assert!(!error.contains("hunter2") && error.contains("no user and no password"), "{error}");
}

#[test]
fn what_is_dangerous_about_an_http_receiver_is_said() {
    let advice = |keys: &str| http(keys).unwrap().advice.join("\n");
    assert!(advice(LEAST).contains("receivers.out has neither receipt nor rules"));
    let keys = format!("{LEAST}\nreceipt = {{ pointer = \"/id\" }}");
    assert_eq!(advice(&keys), "");
    let plain = keys.replace("https://crm.example.com", "http://crm.example.com");
    assert!(advice(&plain).contains("without TLS"));
    assert_eq!(advice(&plain.replace("crm.example.com", "127.0.0.1:80")), "");
}
