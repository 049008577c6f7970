//! A CRM at a socket that does what a script says.
//!
//! It speaks HTTP/1.1 on a port of this machine, keeps records under a contract
//! of its own, logs each request byte by byte, and has whatever bad day a script
//! orders: it hears half, acts late or not at all, answers nonsense, parts in the
//! middle. It knows nothing of the daemon, and so it can be believed about what
//! arrived and what was done.
//!
//! ```
//! use handoff::scripted::{Contract, Course, End, KeyAt, Script, Server, When};
//! use std::io::{Read, Write};
//!
//! // The first request with a key is acted upon, and its answer is lost.
//! let key = KeyAt::Header("idempotency-key".to_owned());
//! let script = Script::new(key, Contract::IdempotencyKey { window: None })
//!     .rule(When::OfItsKey(1), Course::loses_the_answer(End::Close));
//! let server = Server::start(script)?;
//!
//! let send = || {
//!     let mut stream = std::net::TcpStream::connect(server.address())?;
//!     stream.write_all(
//!         b"POST /tasks HTTP/1.1\r\nidempotency-key: a\r\ncontent-length: 2\r\n\
//!           connection: close\r\n\r\n{}",
//!     )?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     std::io::Result::Ok(answer)
//! };
//! assert_eq!(send()?, "");
//! assert!(send()?.starts_with("HTTP/1.1 201"));
//! assert_eq!((server.received("a"), server.records().len()), (2, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A rule is looked up as soon as it can be told whether it fits, and the first
//! one that fits counts. One that orders something for an early stage, such as a
//! reset before anything is read, must therefore be decided by what is known by
//! then, and so must the rules before it; [`Server::start`] refuses a script that
//! cannot be followed.

mod conversation;
mod course;
mod gzip;
mod records;
mod reply;
mod request;
mod script;
mod state;
mod tls;
mod wire;

pub use course::{Answer, Course, End, Gate, Hears, Pace, Pause};
pub use records::{Contract, Effect, Record};
pub use reply::{Dialect, Framing, Reply, Saying};
pub use request::{KeyAt, Request};
pub use script::{Script, Stage, TooLate, When};
pub use tls::{Tls, TlsError};

use conversation::Conversation;
use state::Shared;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc as answers};
use std::thread::JoinHandle;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A running server, on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// The server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The script cannot be followed.
    #[error("the script cannot be followed: {0}")]
    Script(#[from] TooLate),
    /// The system has refused.
    #[error("the scripted server cannot be started: {0}")]
    System(#[from] io::Error),
}

/// What the owner wants of the thread, and where it is told that it was done.
#[derive(Debug)]
enum Order {
    GoDown(answers::Sender<io::Result<()>>),
    ComeBack(answers::Sender<io::Result<()>>),
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1. When this returns, it listens.
    ///
    /// # Errors
    ///
    /// If the script cannot be followed, or there is no port or thread to be had.
    pub fn start(script: Script) -> Result<Self, StartError> {
        Self::start_with(script, None)
    }

    /// As [`start`](Self::start), with TLS on each connection.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_tls(script: Script, tls: Tls) -> Result<Self, StartError> {
        Self::start_with(script, Some(tls))
    }

    fn start_with(script: Script, tls: Option<Tls>) -> Result<Self, StartError> {
        if let Some(too_late) = script.first_too_late() {
            return Err(too_late.into());
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let socket = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(script, tls));
        drop(inside);
        let (orders, taken) = mpsc::unbounded_channel();
        let house = House { address, shared: Arc::clone(&shared), talks: JoinSet::new() };
        let thread = std::thread::Builder::new()
            .name(format!("scripted {}", address.port()))
            .spawn(move || serve(&runtime, house, Door::Open(listener), taken))?;
        Ok(Self { address, shared, orders: Some(orders), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far, in the order of their first bytes.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests()
    }

    /// How many requests with this key it has received with their whole body.
    #[must_use]
    pub fn received(&self, key: &str) -> usize {
        let with_key = |request: &&Request| request.whole && request.key.as_deref() == Some(key);
        self.requests().iter().filter(with_key).count()
    }

    /// All records of the CRM, the oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.shared.records()
    }

    /// The records that were made under this key.
    #[must_use]
    pub fn records_of(&self, key: &str) -> Vec<Record> {
        let mut records = self.records();
        records.retain(|record| record.key.as_deref() == Some(key));
        records
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections()
    }

    /// How many handshakes were not brought to an end, most often since the client did
    /// not like the certificate.
    #[must_use]
    pub fn hands_refused(&self) -> u64 {
        self.shared.hands_refused()
    }

    /// How many connections have failed by a fault of the server itself.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.shared.panics()
    }

    /// Waits until the requests are so, and returns them; `None` if that does not
    /// come within a time that is long enough for a very busy machine. Of the server,
    /// the condition may ask for its counts alone: the requests are held meanwhile.
    pub fn wait_until(&self, holds: impl Fn(&[Request]) -> bool) -> Option<Vec<Request>> {
        self.shared.wait_until(holds)
    }

    /// As [`wait_until`](Self::wait_until), and leaves the caller's runtime to others. Time
    /// that is paused in that runtime stands still meanwhile.
    pub async fn until(
        &self,
        holds: impl Fn(&[Request]) -> bool + Send + 'static,
    ) -> Option<Vec<Request>> {
        let shared = Arc::clone(&self.shared);
        let waited = tokio::task::spawn_blocking(move || shared.wait_until(holds));
        waited.await.ok().flatten()
    }

    /// The windows of all keys are over: the CRM knows none of them any more.
    pub fn forget_keys(&self) {
        self.shared.forget_keys();
    }

    /// Ends all connections, and refuses new ones until [`come_back`](Self::come_back).
    /// No other program gets the port meanwhile.
    ///
    /// # Errors
    ///
    /// If the port cannot be kept.
    pub fn go_down(&self) -> io::Result<()> {
        self.order(Order::GoDown)
    }

    /// Listens again, at the same address.
    ///
    /// # Errors
    ///
    /// If the system does not let it listen.
    pub fn come_back(&self) -> io::Result<()> {
        self.order(Order::ComeBack)
    }

    fn order(
        &self,
        order: impl FnOnce(answers::Sender<io::Result<()>>) -> Order,
    ) -> io::Result<()> {
        let (done, answer) = answers::channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(order(done)).is_ok());
        let ended = || io::Error::other("the server's thread has ended");
        if sent { answer.recv().unwrap_or_else(|_| Err(ended())) } else { Err(ended()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // What it died of has been said on its thread.
            thread.join().ok();
        }
    }
}

/// Whether clients are let in.
enum Door {
    Open(TcpListener),
    /// The port is kept, and nobody listens.
    Shut(TcpSocket),
    /// The port was lost.
    Gone,
}

/// What the server's thread holds.
struct House {
    address: SocketAddr,
    shared: Arc<Shared>,
    talks: JoinSet<()>,
}

fn serve(
    runtime: &Runtime,
    mut house: House,
    mut door: Door,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    runtime.block_on(async {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    None => return,
                    Some(order) => door = house.obey(order, door).await,
                },
                accepted = door.accept() => if let Ok((stream, _)) = accepted {
                    let conversation = Conversation::new(stream, Arc::clone(&house.shared));
                    house.talks.spawn(conversation.run());
                },
                Some(ended) = house.talks.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        house.shared.panicked();
                    }
                }
            }
        }
    });
}

impl House {
    async fn obey(&mut self, order: Order, door: Door) -> Door {
        let (result, done) = match (order, door) {
            (Order::GoDown(done), Door::Open(listener)) => {
                drop(listener);
                let kept = bound(self.address);
                self.talks.shutdown().await;
                (kept.map(Door::Shut), done)
            }
            (Order::ComeBack(done), Door::Shut(socket)) => {
                (socket.listen(BACKLOG).map(Door::Open), done)
            }
            (Order::ComeBack(done), Door::Gone) => {
                let again = bound(self.address).and_then(|socket| socket.listen(BACKLOG));
                (again.map(Door::Open), done)
            }
            (Order::GoDown(done) | Order::ComeBack(done), door) => (Ok(door), done),
        };
        let (door, told) = match result {
            Ok(door) => (door, Ok(())),
            Err(error) => (Door::Gone, Err(error)),
        };
        // An owner who does not wait for it does not need it.
        done.send(told).ok();
        door
    }
}

impl Door {
    async fn accept(&self) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
        match self {
            Self::Open(listener) => listener.accept().await,
            Self::Shut(_) | Self::Gone => std::future::pending().await,
        }
    }
}

/// A socket at this address, to which nobody can connect yet.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
