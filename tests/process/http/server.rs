//! A server that answers at a socket as a test tells it, and keeps what it was sent.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A client that says nothing for so long will say nothing more.
const PATIENCE: Duration = Duration::from_secs(30);

/// What comes after a request has been read whole.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// These bytes, and the connection is closed.
    Say(String),
    /// The connection is closed.
    Close,
    /// Nothing, and the connection stays open.
    Hold,
    /// These bytes, and after them others without end.
    SayForEver(String),
}

/// A server on this machine; its thread ends with the process.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

/// An answer with a body in JSON.
pub(super) fn answer(status: &str, headers: &str, body: &str) -> Then {
    let length = body.len();
    Then::Say(format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    ))
}

impl Server {
    /// Does these things one after another, the last one again and again.
    pub(super) fn that(script: impl IntoIterator<Item = Then>) -> Self {
        let mut script: VecDeque<Then> = script.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                let then = match script.len() {
                    1 => script.front().cloned(),
                    _ => script.pop_front(),
                };
                let then = then.expect("a script");
                // A client that breaks off is the test's affair.
                held.extend(serve(stream, &then, &kept).ok().flatten());
            }
        });
        Self { address, seen }
    }

    /// The requests, as they came.
    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no thread broke").clone()
    }
}

fn serve(
    stream: TcpStream,
    then: &Then,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<Option<TcpStream>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(&stream);
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        request.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    request.push_str(&String::from_utf8_lossy(&body));
    seen.lock().expect("no thread broke").push(request);
    match then {
        Then::Say(bytes) => (&stream).write_all(bytes.as_bytes())?,
        Then::Close => {}
        Then::Hold => return Ok(Some(stream)),
        Then::SayForEver(bytes) => {
            (&stream).write_all(bytes.as_bytes())?;
            let more = [b'x'; 64 * 1024];
            while (&stream).write_all(&more).is_ok() {}
        }
    }
    stream.shutdown(Shutdown::Both)?;
    Ok(None)
}
