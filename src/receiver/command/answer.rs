//! What a program's exit and output mean. Pure.

use super::child::{Ended, Kept, STDOUT_BYTES_MAX};
use super::evidence::Mask;
use super::launcher;
use crate::outbox::outcome::{EVIDENCE_CHARS_MAX, NotTakenWhy, Outcome, Report};
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde_json::{Number, Value};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

// Exit statuses with a meaning, named as in sysexits.h. A program chooses
// them, so they are its word.
const EX_DATAERR: i32 = 65;
const EX_UNAVAILABLE: i32 = 69;
const EX_TEMPFAIL: i32 = 75;
const EX_PROTOCOL: i32 = 76;
const EX_NOPERM: i32 = 77;

/// Longest id that is taken for a receipt, in characters.
const REMOTE_ID_CHARS_MAX: usize = 500;

/// What a program may say on standard output when it exits with 0.
///
/// Unknown names are passed over. A name that occurs twice is an error.
#[derive(Debug, Deserialize)]
struct Answer {
    outcome: Option<Value>,
    remote_id: Option<Value>,
    message: Option<Value>,
}

/// The program could not be started: nothing was handed over.
pub(super) fn spawn_failed(why: &str, mask: &Mask) -> Report {
    Report::not_taken(NotTakenWhy::Unreachable, "spawn_failed").evidence(&mask.show(why))
}

/// What a process that has ended says of the delivery.
pub(super) fn report(ended: &Ended, nonce: &str, mask: &Mask) -> Report {
    let status = match &ended.status {
        Ok(status) => *status,
        Err(error) => {
            return Report::unknown("wait_failed").evidence(&mask.show(&error.to_string()));
        }
    };
    if !ended.handed_over {
        // The pipe took no byte, so the launcher cannot have read one.
        let why = format!("the launcher ended before it was told to go: {}", name_of(status));
        return spawn_failed(&why, mask);
    }
    let complaint = || complaint(&name_of(status), &ended.stderr, mask);
    let by_status = |outcome| Report::new(outcome).code("exit_status").evidence(&complaint());
    match status.code() {
        Some(0) => answered(&ended.stdout, &ended.stderr, mask),
        Some(EX_UNAVAILABLE | EX_TEMPFAIL) => {
            by_status(Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before: None })
        }
        Some(EX_DATAERR | EX_PROTOCOL | EX_NOPERM) => by_status(Outcome::Rejected),
        Some(code) => match launcher::failure_in(ended.stdout.bytes(), nonce) {
            Some(why) if code == i32::from(launcher::NOT_STARTED) => spawn_failed(&why, mask),
            _ => by_status(Outcome::Unknown),
        },
        None => Report::unknown("signal").evidence(&complaint()),
    }
}

/// What a program that exited with 0 says.
fn answered(stdout: &Kept, stderr: &Kept, mask: &Mask) -> Report {
    let answer = match read(stdout) {
        Ok(answer) => answer,
        Err(why) => {
            let start = mask.show_start(stdout);
            return unreadable(stdout).evidence(&format!("unreadable answer: {why}: {start}"));
        }
    };
    let (remote_id, flaw) = match answer.remote_id.map(remote_id).transpose() {
        Ok(id) => (id.flatten(), None),
        Err(flaw) => (None, Some(format!("unreadable answer: remote_id {flaw}"))),
    };
    let outcome = match answer.outcome.as_ref().map(|word| word.as_str().ok_or(word)) {
        None | Some(Ok("applied")) => Outcome::Applied { remote_id, replayed: false },
        Some(Ok("already_exists")) => Outcome::AlreadyExists { remote_id },
        Some(Ok("conflict")) => Outcome::Conflict,
        Some(Ok("in_progress")) => Outcome::InProgress { not_before: None },
        Some(Ok("rejected")) => Outcome::Rejected,
        Some(Ok(_) | Err(_)) => {
            let word = answer.outcome.unwrap_or_default().to_string();
            let evidence = complaint(&format!("outcome {}", mask.show(&word)), stderr, mask);
            return Report::unknown("unknown_outcome").evidence(&evidence);
        }
    };
    let message = answer.message.as_ref().and_then(Value::as_str).map(|text| mask.show(text));
    let said: Vec<String> = flaw.into_iter().chain(message).collect();
    let report = Report::new(outcome).evidence(&said.join("; "));
    match report.outcome {
        Outcome::Applied { .. } => report,
        _ if said.is_empty() => {
            report.code("answer").evidence(&complaint("exit status 0", stderr, mask))
        }
        _ => report.code("answer"),
    }
}

/// Reads an answer; nothing at all is an answer without content.
fn read(stdout: &Kept) -> Result<Answer, String> {
    if stdout.is_cut() {
        return Err(format!("longer than {STDOUT_BYTES_MAX} bytes"));
    }
    let bytes = stdout.bytes();
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii();
    match bytes.first() {
        None => Ok(Answer { outcome: None, remote_id: None, message: None }),
        // An array would be taken for the fields in their order.
        Some(b'{') => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        Some(_) => Err("no JSON object".to_owned()),
    }
}

/// Exit status 0 with output that is no answer. The status is the program's
/// word, so it has done its work, unless the output is about an outcome: then
/// it says something else that cannot be read, and nobody may guess what. The
/// word counts in any quotes, as Python prints a dictionary, and in UTF-16.
fn unreadable(stdout: &Kept) -> Report {
    let name = b"outcome";
    let bytes: Vec<u8> = stdout.bytes().iter().copied().filter(|byte| *byte != 0).collect();
    if bytes.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name)) {
        return Report::unknown("unreadable_answer");
    }
    Report::applied(None)
}

/// The receipt in an answer, if it holds one that can be kept as it is.
fn remote_id(value: Value) -> Result<Option<String>, &'static str> {
    let id = match value {
        Value::String(id) => id,
        Value::Number(number) => {
            exact(&number).ok_or("is a number that may have changed; print it as a string")?
        }
        _ => return Err("is neither a string nor a number"),
    };
    if id.chars().count() > REMOTE_ID_CHARS_MAX {
        return Err("is too long");
    }
    if id.chars().any(char::is_control) {
        return Err("holds control characters");
    }
    Ok((!id.trim().is_empty()).then_some(id))
}

/// A number as it was written; `None` where reading it may have changed it.
fn exact(number: &Number) -> Option<String> {
    (number.is_i64() || number.is_u64()).then(|| number.to_string())
}

/// How a process ended, in words.
fn name_of(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(Ok(signal))) => format!("killed by {signal}"),
        (None, _) => status.to_string(),
    }
}

/// What happened, and the end of what the program complained about.
fn complaint(what: &str, stderr: &Kept, mask: &Mask) -> String {
    const JOINT: &str = "; stderr: ";
    let room = EVIDENCE_CHARS_MAX.saturating_sub(what.chars().count() + JOINT.len());
    let end = mask.show_end(stderr, room);
    if end.is_empty() { what.to_owned() } else { format!("{what}{JOINT}{end}") }
}

#[cfg(test)]
mod tests {
    use super::super::child::STDERR_BYTES_MAX;
    use super::*;
    use proptest::prelude::*;

    const NONCE: &str = "0123456789abcdef";

    fn mask() -> Mask {
        Mask::of(&[("TOKEN".into(), "s3cret-s3cret".into())])
    }

    /// What follows from a raw wait status: an exit code times 256, or a signal.
    fn told(raw: i32, stdout: &[u8], stderr: &[u8]) -> Report {
        let mut kept = (Kept::first(STDOUT_BYTES_MAX), Kept::last(STDERR_BYTES_MAX));
        kept.0.push(stdout);
        kept.1.push(stderr);
        let status = Ok(ExitStatus::from_raw(raw));
        let ended = Ended { status, handed_over: true, stdout: kept.0, stderr: kept.1 };
        report(&ended, NONCE, &mask())
    }

    fn said(stdout: &str) -> Report {
        told(0, stdout.as_bytes(), b"")
    }

    fn applied(id: Option<&str>) -> Outcome {
        Outcome::Applied { remote_id: id.map(str::to_owned), replayed: false }
    }

    #[test]
    fn every_exit_status_has_its_outcome() {
        for code in 1..=255 {
            let report = told(code << 8, b"{\"outcome\":\"applied\"}", b"oh dear\n");
            let expected = match code {
                69 | 75 => Outcome::NotTaken { why: NotTakenWhy::Unavailable, not_before: None },
                65 | 76 | 77 => Outcome::Rejected,
                _ => Outcome::Unknown,
            };
            assert_eq!(report.outcome, expected, "{code}");
            assert_eq!(report.error_code.as_deref(), Some("exit_status"));
            assert_eq!(report.request_sent, Some(true));
            let evidence = format!("exit status {code}; stderr: oh dear");
            assert_eq!(report.evidence, Some(evidence));
        }
    }

    #[test]
    fn a_signal_leaves_the_outcome_unknown() {
        for (signal, name) in [(9, "killed by SIGKILL"), (11, "killed by SIGSEGV"), (40, "40")] {
            let report = told(signal, b"{}", b"");
            assert_eq!(report.outcome, Outcome::Unknown);
            assert_eq!(report.error_code.as_deref(), Some("signal"));
            assert!(report.evidence.unwrap().contains(name), "{name}");
        }
    }

    #[test]
    fn an_exit_that_the_system_does_not_tell_leaves_the_outcome_unknown() {
        let (stdout, stderr) = (Kept::first(1), Kept::last(1));
        let status = Err(std::io::Error::from_raw_os_error(10));
        let report = report(&Ended { status, handed_over: true, stdout, stderr }, NONCE, &mask());
        assert_eq!(report.outcome, Outcome::Unknown);
        assert_eq!(report.error_code.as_deref(), Some("wait_failed"));
    }

    #[test]
    fn a_launcher_that_took_no_byte_did_nothing() {
        let (stdout, stderr) = (Kept::first(1), Kept::last(1));
        let status = Ok(ExitStatus::from_raw(9));
        let report = report(&Ended { status, handed_over: false, stdout, stderr }, NONCE, &mask());
        assert_eq!(report.error_code.as_deref(), Some("spawn_failed"));
        assert_eq!(report.request_sent, Some(false));
        assert!(!crate::outbox::outcome::Ending::Outcome(report.outcome).may_have_acted());
    }

    #[test]
    fn only_the_nonce_tells_a_failed_spawn_from_a_program_that_exits_with_127() {
        let own = format!("{NONCE} No such file or directory (os error 2)\n");
        let report = told(127 << 8, own.as_bytes(), b"");
        let why = NotTakenWhy::Unreachable;
        assert_eq!(report.outcome, Outcome::NotTaken { why, not_before: None });
        assert_eq!(report.error_code.as_deref(), Some("spawn_failed"));
        assert_eq!(report.request_sent, Some(false));
        assert_eq!(report.evidence.as_deref(), Some("No such file or directory (os error 2)"));

        assert_eq!(told(126 << 8, own.as_bytes(), b"").outcome, Outcome::Unknown);
        let forged = own.replace('1', "2");
        assert_eq!(told(127 << 8, forged.as_bytes(), b"").outcome, Outcome::Unknown);
    }

    #[test]
    fn a_program_that_succeeds_may_say_how() {
        for (stdout, outcome) in [
            ("", applied(None)),
            (" \n", applied(None)),
            ("{}", applied(None)),
            ("\u{feff}{\"remote_id\":\"T-7\"}\n", applied(Some("T-7"))),
            (r#"{"outcome":"applied","remote_id":" é/7 "}"#, applied(Some(" é/7 "))),
            (r#"{"remote_id":15}"#, applied(Some("15"))),
            (r#"{"remote_id":18446744073709551615}"#, applied(Some("18446744073709551615"))),
            (r#"{"remote_id":-1,"more":[{"deep":null}]}"#, applied(Some("-1"))),
            (r#"{"remote_id":null,"outcome":null,"message":null}"#, applied(None)),
            (r#"{"remote_id":""}"#, applied(None)),
            (r#"{"outcome":"conflict"}"#, Outcome::Conflict),
            (r#"{"outcome":"in_progress"}"#, Outcome::InProgress { not_before: None }),
            (r#"{"outcome":"rejected","message":"no"}"#, Outcome::Rejected),
            (
                r#"{"outcome":"already_exists","remote_id":"7"}"#,
                Outcome::AlreadyExists { remote_id: Some("7".into()) },
            ),
        ] {
            let report = said(stdout);
            assert_eq!(report.outcome, outcome, "{stdout}");
            let is_applied = matches!(outcome, Outcome::Applied { .. });
            assert_eq!(report.error_code.is_none(), is_applied, "{stdout}");
        }
        let report = said(r#"{"outcome":"rejected","message":"no \u001b such s3cret-s3cret"}"#);
        assert_eq!(report.evidence.as_deref(), Some(r"no \u{1b} such [TOKEN]"));
        assert_eq!(report.error_code.as_deref(), Some("answer"));
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_applied_without_a_receipt() {
        for stdout in [
            "created!",
            "[1]",
            r#"["conflict","7","no"]"#,
            "null",
            "7",
            "\"applied\"",
            "{",
            r#"{"remote_id":"7"} {"remote_id":"8"}"#,
            r#"{"remote_id":"7","remote_id":"8"}"#,
            r#"{"remote_id":"\ud800"}"#,
            r#"{"remote_id":["7"]}"#,
            r#"{"remote_id":true}"#,
            r#"{"remote_id":1.5}"#,
            r#"{"remote_id":123456789012345678901234567890}"#,
            r#"{"remote_id":"a\u0000b"}"#,
        ] {
            let report = said(stdout);
            assert_eq!((report.outcome, report.error_code), (applied(None), None), "{stdout}");
            assert!(report.evidence.unwrap().starts_with("unreadable answer: "), "{stdout}");
        }
        let latin = told(0, b"{\"message\":\"Zo\xeb\"}", b"");
        assert_eq!((latin.outcome, latin.error_code), (applied(None), None));
        let long = said(&format!(r#"{{"message":"{}"}}"#, "x".repeat(STDOUT_BYTES_MAX)));
        assert_eq!((long.outcome, long.error_code), (applied(None), None));
        assert!(long.evidence.unwrap().starts_with("unreadable answer: longer than 65536 bytes"));
        let id = said(&format!(r#"{{"remote_id":"{}"}}"#, "7".repeat(REMOTE_ID_CHARS_MAX + 1)));
        assert_eq!(id.outcome, applied(None));
    }

    #[test]
    fn an_unreadable_word_about_the_outcome_is_never_taken_for_a_success() {
        let mut latin = b"{\"outcome\":\"rejected\",\"message\":\"Zo\xeb\"}".to_vec();
        assert_eq!(told(0, &latin, b"").error_code.as_deref(), Some("unreadable_answer"));
        latin.extend(vec![b' '; STDOUT_BYTES_MAX]);
        let utf_16 = |to_bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            "\u{feff}{\"outcome\":\"rejected\"}".encode_utf16().flat_map(to_bytes).collect()
        };
        let (little, big) = (utf_16(u16::to_le_bytes), utf_16(u16::to_be_bytes));
        for stdout in [
            little.as_slice(),
            big.as_slice(),
            b"{'outcome': 'rejected'}",
            b"{outcome: \"rejected\"}",
            b"{\"Outcome\":\"rejected\",}",
            b"\xef\xbb\xbf{\"outcome\":\"rejected\"",
            b"{\"outcome\":\"rejected\",\"message\":\"\xc0\xaf\"}",
            b"{\"outcome\":\"rejected\",\"message\":\"\\ud800\"}",
            latin.as_slice(),
            b"{\"outcome\":\"applied\",\"outcome\":\"rejected\"}",
            b"a line\n{\"outcome\":\"rejected\"}",
            b"{\"outcome\":\"rejec",
        ] {
            let report = told(0, stdout, b"");
            assert_eq!(report.outcome, Outcome::Unknown);
            assert_eq!(report.error_code.as_deref(), Some("unreadable_answer"));
        }
    }

    #[test]
    fn an_unknown_word_for_the_outcome_is_unknown() {
        for word in ["\"done\"", "\"Applied\"", "\"\"", "true", "0", "[]", "{}"] {
            let report = said(&format!(r#"{{"outcome":{word},"remote_id":"7"}}"#));
            assert_eq!(report.outcome, Outcome::Unknown, "{word}");
            assert_eq!(report.error_code.as_deref(), Some("unknown_outcome"));
            assert_eq!(report.evidence, Some(format!("outcome {word}")));
        }
    }

    #[test]
    fn evidence_shows_the_end_of_what_the_program_complained_about_without_secrets() {
        let noise = "first words ".repeat(2000);
        let stderr = format!("{noise}with s3cret-s3cret\nlast words\n");
        let evidence = told(1 << 8, b"", stderr.as_bytes()).evidence.unwrap();
        assert!(evidence.starts_with("exit status 1; stderr: …"), "{evidence}");
        assert!(evidence.ends_with(r"with [TOKEN]\nlast words"), "{evidence}");
        assert_eq!(evidence.chars().count(), EVIDENCE_CHARS_MAX);
    }

    /// Output that is nearly an answer.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let value =
            r#"null|-?[0-9]{1,30}(\.5)?|"(applied|conflict|done|\\u[dD][89a-f]00|.{0,4})"|\[\]"#;
        let field = format!(r#""(outcome|remote_id|message|x)":({value}),?"#);
        let near = format!("\u{feff}?[ \n]?\\{{({field}){{0,4}}\\}}?.?");
        let near = prop::string::string_regex(&near).unwrap().prop_map(String::into_bytes).boxed();
        let broken = (near.clone(), any::<u8>(), any::<prop::sample::Index>()).prop_map(
            |(mut text, byte, at)| {
                let at = at.index(text.len() + 1);
                text.insert(at, byte);
                text
            },
        );
        prop_oneof![prop::collection::vec(any::<u8>(), 0..300), near, broken]
    }

    proptest! {
        #[test]
        fn no_output_makes_the_reader_panic_or_lie(
            stdout in hostile(),
            stderr in prop::collection::vec(any::<u8>(), 0..900),
            raw in prop_oneof![Just(0), 0..=0xffff],
        ) {
            let report = told(raw, &stdout, &stderr);
            let evidence = report.evidence.clone().unwrap_or_default();
            prop_assert!(evidence.chars().count() <= EVIDENCE_CHARS_MAX);
            prop_assert!(!evidence.chars().any(char::is_control));
            if let Outcome::Applied { remote_id, .. } = &report.outcome {
                prop_assert_eq!(raw, 0);
                // A receipt is in the output as it is, or spelt with escapes.
                let text = String::from_utf8_lossy(&stdout).into_owned();
                if let Some(id) = remote_id {
                    prop_assert!(text.contains(id.as_str()) || text.contains('\\'));
                }
                for word in ["conflict", "done"] {
                    let said = format!("\"outcome\":\"{word}\"");
                    prop_assert!(!text.contains(&said), "{}", text);
                }
            }
        }
    }
}
