//! One exchange: a connection of its own, one request, one answer.
//!
//! A connection is never used twice. So an address that has changed is seen at
//! the next attempt, no request lands on a connection that its peer has
//! already given up, and whether a byte has left is known for certain. No
//! redirect is followed, nothing is repeated, no proxy is used, no cookie kept,
//! and the receiver is asked not to compress its answer.

use super::address::{Address, Scheme};
use super::request::Rendered;
use super::secret::Credential;
use crate::text_enum::text_enum;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

/// The part of an answer's body that is read, in bytes.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// The longest head of an answer, in bytes, and the most lines in it.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
const AGENT: &str = concat!("handoff/", env!("CARGO_PKG_VERSION"));

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// There was no connection, so that no byte of the request left.
    NotConnected(Failure),
    /// The connection ended before an answer came.
    NoAnswer {
        /// Whether a byte of the request had left.
        sent: bool,
        failure: Failure,
    },
    /// An answer came.
    Answered(Answer),
}

text_enum! {
    /// Why there is no answer.
    pub enum FailureCode {
        /// What was made from the templates is no request.
        NoRequest = "no_request",
        /// The host's name is not known, or the name server does not answer.
        DnsFailed = "dns_failed",
        /// Nobody listens there.
        ConnectionRefused = "connection_refused",
        /// No way to the host, or the connection broke while it was made.
        ConnectFailed = "connect_failed",
        /// No connection within `connect_timeout`.
        ConnectTimeout = "connect_timeout",
        /// Its certificate is not to be trusted.
        TlsCertificate = "tls_certificate",
        /// TLS could not be agreed on.
        TlsFailed = "tls_failed",
        /// It closed the connection before a byte of the request left.
        ConnectionClosed = "connection_closed",
        /// It closed the connection before it answered.
        ReplyLost = "reply_lost",
        /// What it said is no HTTP, or its head is too long.
        UnreadableAnswer = "unreadable_answer",
    }
}

/// What went wrong.
#[derive(Debug)]
pub(super) struct Failure {
    /// A short stable word.
    pub(super) code: FailureCode,
    /// What was seen.
    pub(super) why: String,
}

/// What the receiver said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Why the body is not the whole of it, if it is not.
    pub(super) cut: Option<&'static str>,
}

/// Where requests go and how.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) address: Address,
    pub(super) connect_timeout: Duration,
    /// For `https`.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) credential: Option<Credential>,
}

impl Line {
    /// Sends one request and reads its answer. The caller imposes the time for it all.
    pub(super) async fn exchange(&self, rendered: &Rendered) -> Ended {
        let request = match self.request(rendered) {
            Ok(request) => request,
            Err(why) => return Ended::NotConnected(Failure { code: FailureCode::NoRequest, why }),
        };
        let connected = timeout(self.connect_timeout, self.connect()).await;
        let stream = match connected {
            Ok(Ok(stream)) => stream,
            Ok(Err(failure)) => return Ended::NotConnected(failure),
            Err(_) => {
                let why = "no connection within connect_timeout".to_owned();
                return Ended::NotConnected(Failure { code: FailureCode::ConnectTimeout, why });
            }
        };
        let sent = Arc::new(AtomicBool::new(false));
        let watched = Watched { stream, sent: sent.clone() };
        let no_answer = |error: &hyper::Error| {
            let sent = sent.load(Ordering::Relaxed);
            Ended::NoAnswer { sent, failure: failure(error, sent) }
        };
        match converse(watched, request).await {
            Ok(answer) => Ended::Answered(answer),
            Err(error) => no_answer(&error),
        }
    }

    fn request(&self, rendered: &Rendered) -> Result<Request<Full<Bytes>>, String> {
        let path = format!("{}{}", self.address.path, rendered.path);
        let mut request = Request::builder().method(rendered.method.clone()).uri(path);
        for (name, value) in headers(&self.address, rendered) {
            request = request.header(name, value);
        }
        if let Some(credential) = &self.credential {
            request = request.header(&credential.name, &credential.value);
        }
        let body = Full::new(Bytes::from(rendered.body.clone().unwrap_or_default()));
        request.body(body).map_err(|error| error.to_string())
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let tcp = self.tcp().await?;
        let Some(config) = self.tls.as_ref().filter(|_| self.address.scheme == Scheme::Https)
        else {
            return Ok(Box::new(tcp));
        };
        let name = self
            .address
            .server_name()
            .map_err(|why| Failure { code: FailureCode::TlsFailed, why })?;
        let connector = TlsConnector::from(config.clone());
        let stream = connector.connect(name, tcp).await.map_err(|error| tls_failure(&error))?;
        Ok(Box::new(stream))
    }

    /// Tries every address of the host, each with its share of the time.
    async fn tcp(&self) -> Result<TcpStream, Failure> {
        let deadline = Instant::now() + self.connect_timeout;
        let host = (self.address.host.as_str(), self.address.port);
        let addresses = tokio::net::lookup_host(host).await;
        let addresses: Vec<_> = match addresses {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                return Err(Failure { code: FailureCode::DnsFailed, why: error.to_string() });
            }
        };
        let mut last =
            Failure { code: FailureCode::DnsFailed, why: "the host has no address".to_owned() };
        for (index, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let others = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let share = Instant::now() + left / others;
            last = match timeout_at(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small requests leave at once; where that fails they only leave later.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Failure {
                    code: FailureCode::ConnectionRefused,
                    why: format!("{address}: {error}"),
                },
                Ok(Err(error)) => {
                    Failure { code: FailureCode::ConnectFailed, why: format!("{address}: {error}") }
                }
                Err(_) => Failure {
                    code: FailureCode::ConnectTimeout,
                    why: format!("{address}: no connection within connect_timeout"),
                },
            };
        }
        Err(last)
    }
}

/// Every header of a request but the credential's.
pub(super) fn headers(address: &Address, rendered: &Rendered) -> Vec<(HeaderName, HeaderValue)> {
    let host = HeaderValue::from_str(&address.authority);
    let fixed = [
        (HOST, host.unwrap_or(HeaderValue::from_static(""))),
        (USER_AGENT, HeaderValue::from_static(AGENT)),
        (ACCEPT, HeaderValue::from_static("application/json")),
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (CONNECTION, HeaderValue::from_static("close")),
    ];
    let chosen = |name: &HeaderName| rendered.headers.iter().any(|(own, _)| own == name);
    let fixed = fixed.into_iter().filter(|(name, _)| !chosen(name));
    fixed.chain(rendered.headers.iter().cloned()).collect()
}

/// Talks on a fresh connection until the answer is read.
async fn converse(stream: Watched, request: Request<Full<Bytes>>) -> hyper::Result<Answer> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        Ok(read(response).await)
    };
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    // Nothing is spawned: when the call is dropped, the connection goes with it.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // What it had read is still handed on, and its error too.
        _ = &mut connection => answer.await,
    }
}

/// Reads the body up to the limit.
async fn read(response: Response<Incoming>) -> Answer {
    let (head, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let mut cut = None;
    loop {
        match incoming.frame().await {
            None => break,
            Some(Err(_)) => {
                cut = Some("the connection ended within the answer");
                break;
            }
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                let room = BODY_BYTES_MAX.saturating_sub(body.len());
                body.extend_from_slice(data.get(..room).unwrap_or(data));
                if data.len() > room {
                    cut = Some("the answer is longer than what is read");
                    break;
                }
            }
        }
    }
    Answer { status: head.status.as_u16(), headers: head.headers, body, cut }
}

fn failure(error: &hyper::Error, sent: bool) -> Failure {
    let code = match error {
        _ if !sent => FailureCode::ConnectionClosed,
        error if error.is_parse() => FailureCode::UnreadableAnswer,
        _ => FailureCode::ReplyLost,
    };
    Failure { code, why: chain(error) }
}

/// An error and what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn tls_failure(error: &io::Error) -> Failure {
    let of_rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let code = match of_rustls {
        Some(rustls::Error::InvalidCertificate(_)) => FailureCode::TlsCertificate,
        _ => FailureCode::TlsFailed,
    };
    Failure { code, why: error.to_string() }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that remembers whether a byte was handed to it. Under TLS that is
/// before it is encrypted, so that no byte of the request can leave unseen.
struct Watched {
    stream: Box<dyn Stream>,
    sent: Arc<AtomicBool>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(length)) = &written
            && *length > 0
        {
            self.sent.store(true, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
