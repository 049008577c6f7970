//! What the server does with one request: how much it reads, whether it acts,
//! what it answers, how it parts.

use super::reply::Reply;
use std::time::Duration;
use tokio::sync::watch;

/// What happens to one request, from its first byte on.
///
/// By default it is read, acted upon, answered in the CRM's dialect, and the
/// connection stays open.
#[derive(Clone, Debug)]
pub struct Course {
    pub(super) before_reading: Pause,
    pub(super) hears: Hears,
    pub(super) pace: Option<Pace>,
    pub(super) invites: bool,
    pub(super) before_acting: Pause,
    pub(super) acts: bool,
    pub(super) before_answering: Pause,
    pub(super) answer: Answer,
    pub(super) cut: Option<usize>,
    pub(super) end: End,
}

/// How much of a request is read before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Nothing, and no request is waited for: right after the connection is made.
    NoConnection,
    /// Nothing, but the first byte of the connection has come: a request's, or a handshake's.
    Hello,
    /// Nothing, but its first byte has come.
    Nothing,
    /// The head.
    Head,
    /// The head, and as many bytes of the body as it is sent.
    Body(usize),
    /// All of it.
    Everything,
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What the CRM says of what it did, in its dialect.
    OfTheCrm,
    /// This, whatever the CRM did.
    Reply(Reply),
    /// These bytes as they are.
    Raw(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// How the server parts from a connection when the answer is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It waits for the next request, unless the client wished to close.
    StayOpen,
    /// A clean end of the stream, of which the answer has not warned.
    Close,
    /// A reset: what the client has not read yet is lost too.
    Reset,
}

/// Bytes that are read or written at a time, and the time between two of them.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many bytes go at a time; at least one.
    pub bytes: usize,
    /// How long it waits after each.
    pub every: Duration,
}

/// What is waited for.
#[derive(Clone, Debug)]
pub enum Pause {
    /// Nothing.
    None,
    /// For as long.
    For(Duration),
    /// Until a test opens the gate.
    Until(Gate),
    /// Until the client has closed its side, or reset the connection.
    ClientLeaves,
}

/// Holds back whoever waits at it, until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    /// A gate that is shut.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Lets through all who wait, and all who come.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// How many wait at it now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.receiver_count()
    }

    pub(super) async fn passed(&self) {
        // It fails only when the sender is gone, and that is held here.
        self.0.subscribe().wait_for(|open| *open).await.map(drop).ok();
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Course {
    fn default() -> Self {
        Self {
            before_reading: Pause::None,
            hears: Hears::Everything,
            pace: None,
            invites: true,
            before_acting: Pause::None,
            acts: true,
            before_answering: Pause::None,
            answer: Answer::OfTheCrm,
            cut: None,
            end: End::StayOpen,
        }
    }
}

/// Courses that have a name.
impl Course {
    /// It acts, and the answer is this.
    #[must_use]
    pub fn acts_and_says(reply: Reply) -> Self {
        Self::default().answer(Answer::Reply(reply))
    }

    /// It does not act, and the answer is this.
    #[must_use]
    pub fn refuses(reply: Reply) -> Self {
        Self::acts_and_says(reply).acts(false)
    }

    /// It acts, and the answer is lost.
    #[must_use]
    pub fn loses_the_answer(end: End) -> Self {
        Self::default().answer(Answer::Nothing).end(end)
    }

    /// It hears so much, does nothing, and parts without a word.
    #[must_use]
    pub fn gone_after(hears: Hears, end: End) -> Self {
        Self::loses_the_answer(end).hears(hears).acts(false)
    }

    /// It hears all, acts only when the client has gone, and so tells nobody.
    #[must_use]
    pub fn acts_late() -> Self {
        Self::loses_the_answer(End::Close).before_acting(Pause::ClientLeaves)
    }
}

/// Courses that are put together.
impl Course {
    /// Waits when the first byte has come and none has been read.
    #[must_use]
    pub fn before_reading(mut self, pause: Pause) -> Self {
        self.before_reading = pause;
        self
    }

    /// How much is read before it is answered. Only a whole request is acted upon.
    #[must_use]
    pub fn hears(mut self, hears: Hears) -> Self {
        self.hears = hears;
        self
    }

    /// Reads the body slowly.
    #[must_use]
    pub fn reads_slowly(mut self, pace: Pace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// Says no `100 Continue` to a client that waits for it.
    #[must_use]
    pub fn without_continue(mut self) -> Self {
        self.invites = false;
        self
    }

    /// Waits when the request has been received and nothing was done.
    #[must_use]
    pub fn before_acting(mut self, pause: Pause) -> Self {
        self.before_acting = pause;
        self
    }

    /// Whether the CRM acts.
    #[must_use]
    pub fn acts(mut self, acts: bool) -> Self {
        self.acts = acts;
        self
    }

    /// Waits when the CRM has acted and nothing was said.
    #[must_use]
    pub fn before_answering(mut self, pause: Pause) -> Self {
        self.before_answering = pause;
        self
    }

    /// What is answered.
    #[must_use]
    pub fn answer(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }

    /// Sends only so many bytes of the answer, its head included.
    #[must_use]
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// How it parts. A cut answer is followed by [`End::Close`] if this says stay.
    #[must_use]
    pub fn end(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}
