//! One connection, from its beginning to its end.

use super::course::{Answer, Course, End, Hears, Pause};
use super::reply::{Reply, Saying, Wire};
use super::script::Stage;
use super::state::Shared;
use super::wire::{BodyReader, Broken, Head, Link};
use std::sync::Arc;
use tokio::net::TcpStream;

/// The most bytes of a body that are kept.
const BODY_MAX: usize = 64 * 1024 * 1024;

/// A connection with what the server knows of it.
#[derive(Debug)]
pub(super) struct Conversation {
    link: Link,
    shared: Arc<Shared>,
    connection: u64,
    turn: u64,
}

/// One request on its way through a conversation. It is finished when this is dropped,
/// also by an outage.
struct Exchange {
    shared: Arc<Shared>,
    number: u64,
    course: Option<Course>,
    head: Option<Head>,
    body: Option<BodyReader>,
}

impl Conversation {
    pub(super) fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        let connection = shared.connected();
        Self { link: Link::new(stream), shared, connection, turn: 0 }
    }

    /// Serves requests until one of both sides parts.
    pub(super) async fn run(mut self) {
        let first = self.shared.script.pick(&self.shared.seen_connection(self.connection));
        let at_once = [Hears::NoConnection, Hears::Hello];
        if let Some(course) = first.filter(|course| at_once.contains(&course.hears)) {
            if course.hears == Hears::Hello && self.link.arrival().await.is_err() {
                return;
            }
            self.link.pause(&course.before_reading).await;
            let mut exchange = Exchange::new(0, &self.shared);
            let end = self.answer(&mut exchange, &course).await.unwrap_or(course.end);
            return self.part(if end == End::StayOpen { End::Close } else { end }).await;
        }
        if let Some(tls) = &self.shared.tls
            && self.link.shake_hands(tls).await.is_err()
        {
            return self.shared.hand_refused();
        }
        loop {
            if self.link.arrival().await.is_err() {
                return;
            }
            self.turn += 1;
            let number = self.shared.arrived(self.connection, self.turn);
            let mut exchange = Exchange::new(number, &self.shared);
            let end = self.serve(&mut exchange).await;
            let end = match end {
                Err(Broken::Malformed) => self.refuse(number).await,
                other => other,
            };
            drop(exchange);
            match end {
                Ok(End::StayOpen) => {}
                Ok(end) => return self.part(end).await,
                Err(_) => return,
            }
        }
    }

    async fn part(self, end: End) {
        match end {
            End::Reset => self.link.reset(),
            End::Close | End::StayOpen => self.link.close().await,
        }
    }

    async fn serve(&mut self, exchange: &mut Exchange) -> Result<End, Broken> {
        let course = self.hear(exchange).await?;
        let number = exchange.number;
        self.link.pause(&course.before_acting).await;
        if course.acts && exchange.is_whole() {
            self.shared.act(number);
        }
        self.link.pause(&course.before_answering).await;
        let end = self.answer(exchange, &course).await?;
        // Whether a body follows that was waited with, and never asked for, nobody knows.
        let knows_the_end = |head: &Head| !head.waits || exchange.is_whole();
        let stays = exchange.head.as_ref().is_some_and(|head| head.stays && knows_the_end(head));
        if end == End::StayOpen && !stays {
            return Ok(End::Close);
        }
        if end == End::StayOpen {
            // What is left of the request stands before the next one.
            self.read_body(exchange, usize::MAX, None).await?;
        }
        Ok(end)
    }

    /// Reads a request as far as its course says, and finds that course on the way.
    async fn hear(&mut self, exchange: &mut Exchange) -> Result<Course, Broken> {
        let number = exchange.number;
        exchange.pick(Stage::Arrived);
        if let Some(course) = &exchange.course {
            self.link.pause(&course.before_reading).await;
            if matches!(course.hears, Hears::NoConnection | Hears::Hello | Hears::Nothing) {
                return Ok(course.clone());
            }
        }
        let head = self.link.head().await?;
        exchange.body = Some(BodyReader::new(head.framing));
        self.shared.update(number, |request| {
            head.method.clone_into(&mut request.method);
            head.target.clone_into(&mut request.target);
            head.headers.clone_into(&mut request.headers);
            head.bytes.clone_into(&mut request.head);
        });
        let waits = head.waits;
        exchange.head = Some(head);
        if self.shared.script.key.is_in_the_head() || self.shared.script.look_up.is_some() {
            self.shared.find_key(number);
        }
        exchange.pick(Stage::Head);
        let known = exchange.course.clone().unwrap_or_default();
        let most = match known.hears {
            Hears::Body(most) => most,
            Hears::Everything => usize::MAX,
            Hears::NoConnection | Hears::Hello | Hears::Nothing | Hears::Head => 0,
        };
        if waits && known.invites && most > 0 {
            self.link.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        self.read_body(exchange, most, known.pace).await?;
        if exchange.is_whole() {
            self.shared.find_key(number);
            exchange.pick(Stage::Body);
        }
        Ok(exchange.course.clone().unwrap_or_default())
    }

    /// Reads the body until it has ended, or so much of it has come.
    async fn read_body(
        &mut self,
        exchange: &mut Exchange,
        most: usize,
        pace: Option<super::Pace>,
    ) -> Result<(), Broken> {
        let Some(body) = &mut exchange.body else { return Ok(()) };
        let mut heard = 0;
        while !body.ended() && heard < most {
            let piece = BodyReader::most(pace).min(most - heard);
            let piece = body.next(&mut self.link, piece).await?;
            heard += piece.len();
            if heard > BODY_MAX {
                return Err(Broken::Malformed);
            }
            self.shared.update(exchange.number, |request| request.body.extend(piece));
            if let Some(pace) = pace {
                self.link.pause(&Pause::For(pace.every)).await;
            }
        }
        let whole = body.ended();
        self.shared.update(exchange.number, |request| request.whole = whole);
        Ok(())
    }

    /// Sends the answer of a course. The result is how to part then.
    async fn answer(&mut self, exchange: &mut Exchange, course: &Course) -> Result<End, Broken> {
        let number = exchange.number;
        let method = exchange.head.as_ref().map(|head| head.method.as_str());
        let wire = match &course.answer {
            Answer::Nothing => return Ok(course.end),
            Answer::Raw(bytes) => {
                let pieces = Box::new(std::iter::once(bytes.clone()));
                Wire { pieces, pace: None, closes: false }
            }
            Answer::Reply(reply) => {
                self.shared.filled(number, reply.clone()).on_the_wire(method == Some("HEAD"))
            }
            Answer::OfTheCrm => self.own_word(number).on_the_wire(method == Some("HEAD")),
        };
        let end = if wire.closes && course.end == End::StayOpen { End::Close } else { course.end };
        let cut = self.send(number, wire, course.cut).await?;
        Ok(if cut && end == End::StayOpen { End::Close } else { end })
    }

    /// What the CRM itself says of a request.
    fn own_word(&self, number: u64) -> Reply {
        let effect = self.shared.effect(number);
        self.shared.word(number, effect.map_or(Saying::Unavailable, Saying::of))
    }

    /// Writes an answer, or its beginning. The result is whether it was cut.
    async fn send(&mut self, number: u64, wire: Wire, cut: Option<usize>) -> Result<bool, Broken> {
        let mut left = cut.unwrap_or(usize::MAX);
        for (index, mut piece) in wire.pieces.enumerate() {
            if let Some(pace) = wire.pace.filter(|_| index > 0) {
                self.link.pause(&Pause::For(pace.every)).await;
            }
            let is_cut = piece.len() > left;
            piece.truncate(left);
            self.link.write(&piece).await?;
            left -= piece.len();
            self.shared.update(number, |request| request.answered += piece.len() as u64);
            if is_cut || (cut.is_some() && left == 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn refuse(&mut self, number: u64) -> Result<End, Broken> {
        let reply = self.shared.word(number, Saying::Malformed);
        self.send(number, reply.on_the_wire(false), None).await?;
        Ok(End::Close)
    }
}

impl Exchange {
    /// The number 0 is that of a connection which carries none.
    fn new(number: u64, shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), number, course: None, head: None, body: None }
    }

    fn pick(&mut self, stage: Stage) {
        if self.course.is_none() {
            self.course = self.shared.pick(self.number, stage);
        }
    }

    fn is_whole(&self) -> bool {
        self.body.as_ref().is_some_and(BodyReader::ended)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.shared.update(self.number, |request| request.finished = true);
    }
}
