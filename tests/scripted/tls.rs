//! TLS as a client of another make sees it: good, bad, and cut.

use super::client::{Client, post};
use super::{script, start};
use handoff::scripted::{Answer, Course, End, Gate, Hears, Pause, Server, Tls, TlsError, When};
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const KEY: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// Whether openssl is installed. Its absence fails a run in CI.
fn present() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "openssl is missing");
    found
}

/// An authority, and what it has signed, in a folder of its own.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a folder"));
        let names = ["-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem"];
        this.openssl([&["req", "-x509", "-days", "30"], KEY, &names].concat());
        this
    }

    fn openssl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) {
        let output = Command::new("openssl").args(arguments).current_dir(&self.0).output();
        let output = output.expect("openssl runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// A certificate for this name that is valid for so many days.
    fn signs(&self, name: &str, days: &str) -> Tls {
        let (subject, alternative) = (format!("/CN={name}"), format!("subjectAltName=DNS:{name}"));
        let names = ["-subj", &subject, "-addext", &alternative];
        self.openssl([&["req", "-keyout", "key", "-out", "request"], KEY, &names].concat());
        let sign = "x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out own \
                    -copy_extensions copy -days";
        self.openssl(sign.split(' ').filter(|word| !word.is_empty()).chain([days]));
        self.brought("own", "key").expect("it fits")
    }

    fn brought(&self, certificate: &str, key: &str) -> Result<Tls, TlsError> {
        let read = |name: &str| std::fs::read(self.0.path().join(Path::new(name))).expect("a file");
        Tls::from_pem(&read(certificate), &read(key))
    }

    /// Sends a request to `crm.test`, if the certificate is the right one.
    fn client(&self, server: &Server, version: &str) -> Output {
        let arguments = "s_client -quiet -verify_return_error -CAfile ca.pem \
                         -verify_hostname crm.test -servername crm.test -connect";
        let mut client = Command::new("openssl")
            .args(arguments.split(' ').filter(|word| !word.is_empty()))
            .args([&server.address().to_string(), version])
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs");
        let mut stdin = client.stdin.take().expect("a pipe");
        let request = post("a", "{}").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        // A client that has left already takes no request.
        stdin.write_all(request.as_bytes()).ok();
        let output = client.wait_with_output().expect("it ends");
        drop(stdin);
        output
    }

    /// What the client says against a certificate, by which nothing was sent.
    fn refusal(&self, tls: Tls) -> String {
        let server = Server::start_tls(script(), tls).expect("it starts");
        let output = self.client(&server, "-tls1_3");
        assert!(!output.status.success(), "{output:?}");
        server.wait_until(|_| server.hands_refused() == 1).expect("it is counted");
        assert!(server.requests().is_empty() && server.records().is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

#[test]
fn a_request_under_a_good_certificate_is_served() {
    if !present() {
        return;
    }
    let authority = Authority::new();
    let tls = authority.signs("crm.test", "30");
    for (version, id) in [("-tls1_2", 1), ("-tls1_3", 2)] {
        let server = Server::start_tls(script(), tls.clone()).expect("it starts");
        let output = authority.client(&server, version);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("HTTP/1.1 201") && text.ends_with("{\"id\":\"1\"}"), "{output:?}");
        assert_eq!((server.received("a"), server.hands_refused()), (1, 0), "{id}");
    }
}

#[test]
fn a_certificate_can_be_expired_of_another_name_or_of_no_authority() {
    if !present() {
        return;
    }
    let authority = Authority::new();
    let refusal = |name, days| authority.refusal(authority.signs(name, days));
    assert!(refusal("crm.test", "-1").contains("certificate has expired"));
    assert!(refusal("other.test", "30").contains("hostname mismatch"));
    let stranger = Authority::new();
    let unknown = authority.refusal(stranger.signs("crm.test", "30"));
    assert!(unknown.contains("unable to get local issuer certificate"), "{unknown}");
    let of_itself = authority.refusal(stranger.brought("ca.pem", "ca.key").expect("it fits"));
    assert!(of_itself.contains("self-signed certificate"), "{of_itself}");
}

#[test]
fn a_certificate_that_is_none_is_refused() {
    if !present() {
        return;
    }
    let authority = Authority::new();
    authority.signs("crm.test", "30");
    let brought = |certificate, key| authority.brought(certificate, key);
    assert!(matches!(brought("request", "key"), Err(TlsError::Unusable(_))));
    assert!(matches!(brought("own", "own"), Err(TlsError::Pem(_))));
    assert!(matches!(brought("own", "ca.key"), Err(TlsError::Unusable(_))));
}

/// What a client gets that says hello, when the connection meets this.
fn hello(course: Course) -> (Vec<u8>, bool) {
    let server = start(script().rule(When::Connection(1), course.hears(Hears::Hello)));
    let got = Client::to(&server).send([22, 3, 1, 0, 1, 1]).rest();
    assert!(server.requests().is_empty());
    got
}

#[test]
fn a_handshake_can_be_cut_refused_or_answered_by_nonsense() {
    let gone = |end| hello(Course::gone_after(Hears::Hello, end));
    assert_eq!(gone(End::Reset), (Vec::new(), true));
    assert_eq!(gone(End::Close), (Vec::new(), false));
    // A fatal alert: the handshake has failed.
    let alert = vec![21, 3, 3, 0, 2, 2, 40];
    let says = |bytes: &[u8]| hello(Course::default().answer(Answer::Raw(bytes.to_vec())));
    assert_eq!(says(&alert), (alert, false));
    assert_eq!(says(b"HTTP/1.1 400\r\n\r\n"), (b"HTTP/1.1 400\r\n\r\n".to_vec(), false));
}

#[test]
fn a_handshake_can_stall() {
    let gate = Gate::new();
    let stalls = Course::gone_after(Hears::Hello, End::Close);
    let stalls = stalls.before_reading(Pause::Until(gate.clone()));
    let server = start(script().rule(When::Connection(1), stalls));
    let mut first = Client::to(&server);
    first.send([22]);
    assert_eq!(Client::to(&server).post("a", "{}").answer().status, 201);
    assert!(first.has_nothing());
    gate.open();
    assert_eq!(first.rest(), (Vec::new(), false));
}
