//! The insurance of the response that a connection is being sent (docs/decisions/0052).
//!
//! The records of a long response are noted from its beginning on. Once so much of it has been sent that it is insured, other
//! nodes are told of each record, which waits for that. So does everything that is no record of the body: it goes out when
//! the insurance has ended.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use switchback_config::Resume;
use switchback_resume::{
    Difference, Failure, Key, Owner, Place, Proof, Records, Resumable, Running, Sealed, Uninsured,
};
use tokio::time::{Sleep, sleep};
use zeroize::Zeroize;

use super::client::UNSENT_MAX;
use super::flow::Addresses;
use super::head::{ResponseBody, ResponseHead};
use super::insurer::{InsuredResponse, Insurer, Numbers, Policy, Snapshot};
use super::kernel;
use super::peers::Peer;
use crate::keys::TAG;
use crate::record_layer::DATA_MAX;
use crate::{Error, Session};

/// Bytes of a response between two attempts to insure it.
const AGAIN: u64 = 4 << 20;
/// Times that the client may say something in the middle of a response before that is not insured any more.
const RENEWALS: u32 = 16;
/// Records between two looks at what the client has.
const LOOK: u64 = 8;
/// Most records that the client may lack.
const RECORDS: usize = 8 << 10;
/// Bytes of an insured response that may wait for other nodes before its server is read no more. What they are told costs the
/// less, the more records it is about.
const WAITING: usize = 1 << 20;
/// Age of a response before which no other node is told of it. It costs messages to begin and to end an insurance, which are
/// not worth it for a short time.
const LASTING: Duration = Duration::from_millis(100);

/// A request whose response may be insured.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) how: Resume,
    /// Name of the service.
    pub(super) service: Arc<str>,
    /// The other nodes of the pool, and names of those that have had the response before.
    pub(super) peers: Vec<Peer>,
    pub(super) past: Vec<String>,
    /// The head, as the server gets it.
    pub(super) text: Vec<u8>,
    /// Whether the client lets the connection stay open.
    pub(super) keeps: bool,
}

/// A response with which another server can go on.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) asked: Asked,
    /// The head.
    pub(super) head: Vec<u8>,
    pub(super) resumable: Resumable,
    /// Whether the connection stays open behind it.
    pub(super) keeps: bool,
}

impl Response {
    fn read(asked: Asked, head: &[u8], keeps: bool) -> Result<Self, Uninsured> {
        let proof = (asked.how == Resume::Repeat).then(|| {
            let key = Key { k0: random(), k1: random() };
            Proof { key, last: Running::new(key).fingerprint() }
        });
        let resumable = Resumable::read(&asked.text, head, proof)?;
        let keeps = keeps && asked.keeps;
        Ok(Response { asked, head: head.to_vec(), resumable, keeps })
    }

    /// The response that another node has insured.
    pub(super) fn of(insured: &InsuredResponse) -> Result<Self, Uninsured> {
        let InsuredResponse { service, peers, past, request, response: head, proof, keeps, .. } = insured;
        let resumable = Resumable::read(request, head, *proof)?;
        let how = if proof.is_some() { Resume::Repeat } else { Resume::Range };
        let (peers, past, text) = (peers.clone(), past.clone(), request.clone());
        let asked = Asked { how, service: service.as_str().into(), peers, past, text, keeps: *keeps };
        Ok(Response { asked, head: head.clone(), resumable, keeps: *keeps })
    }

    /// The fingerprint of nothing, if the body is known by fingerprints.
    pub(super) fn running(&self) -> Option<Running> {
        self.resumable.proof().map(|proof| Running::new(proof.key))
    }

    fn insured(&self, flow: Addresses, state: Snapshot) -> InsuredResponse {
        let Response { asked, head, resumable, keeps } = self.clone();
        let proof = resumable.proof();
        let Asked { service, peers, past, text: request, .. } = asked;
        let service = service.to_string();
        InsuredResponse { flow, service, peers, past, request, response: head, proof, keeps, state }
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the machine has random numbers");
    u64::from_ne_bytes(bytes)
}

/// A connection of a service some of whose responses are insured.
pub(super) struct Insured {
    connection: Connection,
    cover: Cover,
}

struct Connection {
    insurer: Arc<dyn Insurer>,
    /// Bytes of a response behind which it is insured.
    after: u64,
    flow: Addresses,
    numbers: Numbers,
    /// Bytes that TCP had been given when the connection was accepted.
    before: u64,
    /// Bytes of the client that have been read.
    received: u64,
}

impl Connection {
    /// None while another node or the kernel encrypts.
    fn snapshot(&self, session: &Session) -> Option<Snapshot> {
        let moved = session.copy()?.to_bytes();
        Some(Snapshot { next: self.numbers.client.wrapping_add(self.received as u32), moved })
    }
}

enum Cover {
    /// No response is under way, or none that could be insured.
    None,
    Asked(Box<Asked>),
    Response(Box<Covered>),
}

/// A response under way.
struct Covered {
    response: Response,
    /// Bytes of its head that have not been sent yet.
    head_left: usize,
    /// Until it has [`LASTING`].
    lasts: Pin<Box<Sleep>>,
    /// The fingerprint of the body so far, if it is known by fingerprints.
    running: Option<Running>,
    /// Bytes of the body so far.
    sent: u64,
    /// Number of the first record that the client may lack, and the positions at which it and those that follow end.
    first: u64,
    ends: VecDeque<u64>,
    /// Number behind the last record when TCP was last asked which ones the client has.
    looked: u64,
    insurance: Insurance,
}

enum Insurance {
    /// Other nodes are told when the body has so many bytes.
    Before {
        at: u64,
        /// The records that the client may lack.
        records: Records,
        /// The client has the body up to one of them.
        has_some: bool,
    },
    Under {
        policy: Arc<dyn Policy>,
        /// Records that other nodes have not been told of.
        untold: Vec<Sealed>,
        /// Number before which records may go out.
        released: u64,
        renewals: u32,
    },
    /// Nothing goes out until it has ended.
    Ending(Arc<dyn Policy>),
}

impl Drop for Covered {
    fn drop(&mut self) {
        if let Insurance::Under { policy, .. } = &self.insurance {
            policy.end();
        }
    }
}

impl Insured {
    /// Of a connection that has just been accepted. None if it is not known where it begins.
    pub(super) fn new(
        insurer: Arc<dyn Insurer>,
        after: u64,
        flow: Addresses,
        socket: BorrowedFd<'_>,
    ) -> Option<Self> {
        let numbers = insurer.numbers(flow)?;
        let before = kernel::written(socket).ok()?;
        let connection = Connection { insurer, after, flow, numbers, before, received: 0 };
        Some(Insured { connection, cover: Cover::None })
    }

    /// Sequence number of the first byte that is sent.
    pub(super) fn start(&self) -> u32 {
        self.connection.numbers.server
    }

    /// A request is about to be made.
    pub(super) fn asks(&mut self, asked: Asked) {
        if asked.how != Resume::Off {
            self.cover = Cover::Asked(Box::new(asked));
        }
    }

    /// The response begins with this head, which is not sent yet.
    pub(super) fn answers(&mut self, head: &ResponseHead, text: &[u8]) {
        let Cover::Asked(asked) = std::mem::replace(&mut self.cover, Cover::None) else { return };
        let after = self.connection.after;
        match Response::read(*asked, text, head.keep_alive) {
            Ok(response) if is_long(&response.resumable, after) => {
                let insurance = Insurance::Before { at: after, records: Records::default(), has_some: false };
                self.cover = Cover::Response(Box::new(Covered {
                    head_left: text.len(),
                    lasts: Box::pin(sleep(LASTING)),
                    running: response.running(),
                    response,
                    sent: 0,
                    first: 0,
                    ends: VecDeque::new(),
                    looked: 0,
                    insurance,
                }));
            }
            Ok(_) => {}
            Err(why) => {
                if matches!(head.body, ResponseBody::Length(len) if len >= after) {
                    self.connection.insurer.is_uninsurable(why.name());
                }
            }
        }
    }

    /// Goes on with another node's response. `has` is the fingerprint of what the client has.
    pub(super) fn takes(
        &mut self,
        response: Response,
        place: &Place,
        has: Option<Running>,
        owner: Owner,
        session: &Session,
    ) {
        let insurance =
            Insurance::Before { at: place.sent + AGAIN, records: Records::default(), has_some: false };
        let mut covered = Covered {
            response,
            head_left: 0,
            lasts: Box::pin(sleep(Duration::ZERO)),
            running: has,
            sent: place.sent,
            first: place.number,
            ends: VecDeque::new(),
            looked: place.number,
            insurance,
        };
        covered.insure(&self.connection, session, owner);
        self.cover = Cover::Response(Box::new(covered));
    }

    /// Encrypts data for the client. `position` is that of the first byte of [`Session::outgoing`].
    pub(super) fn send(&mut self, session: &mut Session, position: u64, data: &[u8]) -> Result<(), Error> {
        match &mut self.cover {
            Cover::Response(covered) => covered.send(session, &self.connection, position, data),
            _ => session.send(data),
        }
    }

    /// Encrypts a record once more. The client has `has` bytes of it. If it is another one, nothing of it goes out.
    pub(super) fn send_again(
        &mut self,
        session: &mut Session,
        position: u64,
        (data, has): (&[u8], usize),
        expected: &Sealed,
    ) -> Result<(), Failure> {
        let start = session.outgoing().len();
        let sent = session.send(data);
        let outgoing = session.outgoing();
        let is_same = sent.is_ok() && outgoing.ends_with(&expected.tag) && outgoing.len() >= start + has;
        let Cover::Response(covered) = &mut self.cover else { return Err(Failure::Unproven) };
        if !is_same {
            outgoing[start..].zeroize();
            outgoing.truncate(start);
            return Err(Failure::Difference(Difference::Content));
        }
        outgoing.drain(start..start + has);
        covered.ends.push_back(position + outgoing.len() as u64);
        covered.sent += data.len() as u64;
        covered.running.iter_mut().for_each(|running| running.add(data));
        Ok(())
    }

    /// Whether so much waits that the server is to be read no more. `written` is the position of the first byte that waits.
    pub(super) fn is_full(&self, written: u64, unsent: usize) -> bool {
        let may_go = match &self.cover {
            Cover::Response(covered) => covered.may_go().saturating_sub(written),
            Cover::None | Cover::Asked(_) => u64::MAX,
        };
        may_go.min(unsent as u64) >= UNSENT_MAX as u64 || unsent >= WAITING
    }

    fn policy(&self) -> Option<&Arc<dyn Policy>> {
        let Cover::Response(covered) = &self.cover else { return None };
        match &covered.insurance {
            Insurance::Under { policy, .. } | Insurance::Ending(policy) => Some(policy),
            Insurance::Before { .. } => None,
        }
    }

    /// The response under way, the bytes of its body so far, and their fingerprint.
    pub(super) fn response(&self) -> Option<(&Response, u64, Option<Running>)> {
        let Cover::Response(covered) = &self.cover else { return None };
        (covered.head_left == 0).then_some((&covered.response, covered.sent, covered.running))
    }

    /// Bytes have come from the client. `is_answered`: the session has something to say to that.
    pub(super) fn hears(&mut self, len: usize, session: &Session, is_answered: bool) {
        self.connection.received += len as u64;
        let Cover::Response(covered) = &mut self.cover else { return };
        let Insurance::Under { policy, renewals, .. } = &mut covered.insurance else { return };
        *renewals += 1;
        let may_renew = !is_answered && *renewals <= RENEWALS;
        match may_renew.then(|| self.connection.snapshot(session)).flatten() {
            Some(state) => policy.renew(state),
            None => covered.end(),
        }
    }

    /// The position before which everything may go out now. The task is woken when there is more. An error if the response
    /// is another node's.
    pub(super) fn released(
        &mut self,
        cx: &mut Context<'_>,
        session: &Session,
        socket: BorrowedFd<'_>,
    ) -> io::Result<u64> {
        let Cover::Response(covered) = &mut self.cover else { return Ok(u64::MAX) };
        if covered.is_to_look() {
            // Without an answer, other nodes keep more than they need.
            let acknowledged = kernel::acknowledged(socket).unwrap_or(0);
            covered.forget(acknowledged.saturating_sub(self.connection.before));
        }
        if let Insurance::Before { at, records, has_some: true } = &mut covered.insurance
            && covered.sent >= *at
            && covered.lasts.as_mut().poll(cx).is_ready()
        {
            let owner = Owner::first(std::mem::take(records));
            covered.insure(&self.connection, session, owner);
        }
        let released = covered.released(cx)?;
        if released.is_none() {
            self.cover = Cover::None;
        }
        Ok(released.unwrap_or(u64::MAX))
    }

    /// Ends the insurance. Nothing goes out until that is known.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Cover::Response(covered) = &mut self.cover {
            covered.end();
            if let Insurance::Ending(policy) = &covered.insurance {
                ready!(policy.poll_ended(cx));
            }
        }
        self.cover = Cover::None;
        Poll::Ready(())
    }

    /// Whether the client has all of an insured response.
    pub(super) fn is_over(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(self.policy().is_none() || kernel::unacknowledged(socket)? == 0)
    }

    /// Counts a response that has gone on, or has failed to.
    pub(super) fn has_gone_on(&self, result: &Result<(), Failure>) {
        self.connection.insurer.has_gone_on(result);
    }
}

/// Whether the body is so long that it is insured, or may be.
fn is_long(resumable: &Resumable, after: u64) -> bool {
    match resumable {
        Resumable::Rest(insurable) => insurable.body_len() >= after,
        Resumable::Again(repeatable, _) => repeatable.body_len().is_none_or(|len| len >= after),
    }
}

impl Covered {
    fn send(
        &mut self,
        session: &mut Session,
        connection: &Connection,
        position: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        let (head, body) = data.split_at(self.head_left.min(data.len()));
        session.send(head)?;
        self.head_left -= head.len();
        for piece in body.chunks(DATA_MAX) {
            let start = session.outgoing().len();
            let next = session.next_record();
            session.send(piece)?;
            let outgoing = session.outgoing();
            let before = self.fingerprint();
            self.running.iter_mut().for_each(|running| running.add(piece));
            let sealed = match (next, outgoing.last_chunk::<TAG>()) {
                (Some((_, overhead)), Some(tag)) if outgoing.len() - start == piece.len() + overhead => {
                    Sealed { len: piece.len() as u16, tag: *tag, after: self.fingerprint() }
                }
                // There are new keys before it.
                _ => {
                    self.sent += piece.len() as u64;
                    self.end();
                    continue;
                }
            };
            let (number, overhead) = next.unwrap_or_default();
            let anew = Records {
                first: number,
                seq: connection.numbers.server.wrapping_add((position + start as u64) as u32),
                sent: self.sent,
                before,
                overhead: overhead as u16,
                sealed: Vec::new(),
            };
            self.follows(number, anew);
            self.ends.push_back(position + outgoing.len() as u64);
            self.sent += piece.len() as u64;
            match &mut self.insurance {
                Insurance::Before { records, .. } => records.sealed.push(sealed),
                Insurance::Under { untold, .. } => untold.push(sealed),
                Insurance::Ending(_) => {}
            }
            if self.ends.len() > RECORDS {
                self.end();
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        self.running.map_or(0, |running| running.fingerprint().value)
    }

    /// The next record has this number. Behind others that are none of the body, what is known begins with it.
    fn follows(&mut self, number: u64, anew: Records) {
        let is_next = number == self.end_number();
        match &mut self.insurance {
            Insurance::Before { records, has_some, .. } if !is_next || records.overhead == 0 => {
                (*records, *has_some) = (anew, false);
                (self.first, self.looked) = (number, number);
                self.ends.clear();
            }
            Insurance::Under { .. } if !is_next => self.end(),
            _ => {}
        }
    }

    /// Whether TCP is to be asked again what the client has: after some records, and whenever the insurance waits for that.
    fn is_to_look(&self) -> bool {
        let waits = match self.insurance {
            Insurance::Before { at, has_some, .. } => !has_some && self.sent >= at,
            Insurance::Under { .. } | Insurance::Ending(_) => false,
        };
        waits || self.end_number() >= self.looked + LOOK
    }

    fn end_number(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// The client has all before a position.
    fn forget(&mut self, acknowledged: u64) {
        self.looked = self.end_number();
        let past = self.ends.iter().take_while(|end| **end <= acknowledged).count();
        self.ends.drain(..past);
        self.first += past as u64;
        if let Insurance::Before { records, has_some, .. } = &mut self.insurance {
            records.forget_before(self.first);
            *has_some |= past > 0;
        }
    }

    fn insure(&mut self, connection: &Connection, session: &Session, owner: Owner) {
        let records = owner.records().clone();
        let policy = connection.snapshot(session).and_then(|state| {
            connection.insurer.insure(self.response.insured(connection.flow, state), owner)
        });
        self.insurance = match policy {
            Some(policy) => {
                Insurance::Under { policy, untold: Vec::new(), released: self.first, renewals: 0 }
            }
            None => Insurance::Before { at: self.sent + AGAIN, records, has_some: true },
        };
    }

    /// The position before which everything may go out; None if nobody else has to know of it any more.
    fn released(&mut self, cx: &mut Context<'_>) -> io::Result<Option<u64>> {
        match &mut self.insurance {
            Insurance::Before { .. } => {}
            Insurance::Under { policy, untold, released, .. } => {
                if !untold.is_empty() {
                    policy.add(untold, self.first);
                    untold.clear();
                }
                while let Poll::Ready(more) = policy.poll_released(cx, *released) {
                    *released = more?;
                }
            }
            Insurance::Ending(policy) if policy.poll_ended(cx).is_ready() => return Ok(None),
            Insurance::Ending(_) => {}
        }
        Ok(Some(self.may_go()))
    }

    /// The position before which everything may go out, as far as other nodes have answered.
    fn may_go(&self) -> u64 {
        match &self.insurance {
            Insurance::Before { .. } => u64::MAX,
            Insurance::Under { released, .. } => {
                let records = released.saturating_sub(self.first).min(self.ends.len() as u64);
                records.checked_sub(1).map_or(0, |last| self.ends[last as usize])
            }
            Insurance::Ending(_) => 0,
        }
    }

    fn end(&mut self) {
        self.insurance = match &self.insurance {
            Insurance::Under { policy, .. } => {
                policy.end();
                Insurance::Ending(Arc::clone(policy))
            }
            Insurance::Ending(policy) => Insurance::Ending(Arc::clone(policy)),
            Insurance::Before { .. } => {
                Insurance::Before { at: u64::MAX, records: Records::default(), has_some: false }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::Waker;

    use tokio::runtime::{self, Runtime};

    use super::*;
    use crate::endpoint::Stream;
    use crate::keys::{Cipher, Half};
    use crate::record_layer::Version;
    use crate::records::Records as Open;
    use crate::session::{Facts, State};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: \"a\"\r\n\r\n";
    const START: u32 = u32::MAX - 100;
    const AFTER: u64 = 64 << 10;

    fn session() -> Session {
        let half = || Half::new(Cipher::Aes128Gcm, &[1; 16], &[2; 12], &[3; 32], 0).unwrap();
        Session {
            state: State::Open(Box::new(Open::new(Version::Tls13, half(), half()))),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            data: Vec::new(),
            read: 0,
            facts: Facts::default(),
        }
    }

    /// Other nodes, as this one has them.
    #[derive(Default)]
    struct Others(Mutex<Told>);

    #[derive(Default)]
    struct Told {
        records: Records,
        next: u32,
        released: u64,
        ending: bool,
        ended: bool,
        uninsurable: Vec<&'static str>,
    }

    impl Insurer for Arc<Others> {
        fn hear(&self, _: Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(async {})
        }

        fn numbers(&self, _: Addresses) -> Option<Numbers> {
            Some(Numbers { client: 7, server: START })
        }

        fn insure(&self, response: InsuredResponse, owner: Owner) -> Option<Arc<dyn Policy>> {
            let mut told = self.0.lock().unwrap();
            told.records = owner.records().clone();
            told.released = owner.records().end();
            told.next = response.state.next;
            Some(Arc::clone(self) as Arc<dyn Policy>)
        }

        fn is_uninsurable(&self, why: &'static str) {
            self.0.lock().unwrap().uninsurable.push(why);
        }

        fn has_gone_on(&self, _: &Result<(), Failure>) {}
    }

    impl Policy for Others {
        fn add(&self, sealed: &[Sealed], has: u64) {
            let mut told = self.0.lock().unwrap();
            told.records.sealed.extend_from_slice(sealed);
            told.records.forget_before(has);
        }

        fn poll_released(&self, _: &mut Context<'_>, beyond: u64) -> Poll<io::Result<u64>> {
            let released = self.0.lock().unwrap().released;
            if released > beyond { Poll::Ready(Ok(released)) } else { Poll::Pending }
        }

        fn renew(&self, state: Snapshot) {
            self.0.lock().unwrap().next = state.next;
        }

        fn end(&self) {
            self.0.lock().unwrap().ending = true;
        }

        fn poll_ended(&self, _: &mut Context<'_>) -> Poll<()> {
            if self.0.lock().unwrap().ended { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    fn asked(how: Resume) -> Asked {
        let service = "a".into();
        Asked { how, service, peers: Vec::new(), past: Vec::new(), text: REQUEST.to_vec(), keeps: true }
    }

    fn head() -> ResponseHead {
        ResponseHead { len: HEAD.len(), status: 200, body: ResponseBody::Length(1_000_000), keep_alive: true }
    }

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    /// A connection that is being sent a response, and what the other nodes are told of it.
    struct Sending {
        runtime: Runtime,
        insured: Insured,
        session: Session,
        others: Arc<Others>,
        server: TcpStream,
        client: TcpStream,
        flushed: u64,
    }

    impl Sending {
        fn new(how: Resume) -> Self {
            let (server, client) = connected();
            let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let others = Arc::<Others>::default();
            let flow = (client.local_addr().unwrap(), server.local_addr().unwrap());
            let insurer = Arc::new(Arc::clone(&others));
            let entered = runtime.enter();
            let mut insured = Insured::new(insurer, AFTER, flow, server.as_fd()).unwrap();
            insured.asks(asked(how));
            insured.answers(&head(), HEAD);
            drop(entered);
            let session = session();
            let mut sending = Sending { runtime, insured, session, others, server, client, flushed: 0 };
            sending.send(HEAD);
            sending
        }

        fn send(&mut self, data: &[u8]) {
            self.insured.send(&mut self.session, self.flushed, data).unwrap();
        }

        /// Waits until the response is so old that it is insured.
        fn last(&mut self) {
            let Cover::Response(covered) = &mut self.insured.cover else { panic!("no response") };
            self.runtime.block_on(covered.lasts.as_mut());
        }

        /// How many bytes of what waits may go out.
        fn may_go(&mut self) -> usize {
            let mut cx = Context::from_waker(Waker::noop());
            let _entered = self.runtime.enter();
            let released = self.insured.released(&mut cx, &self.session, self.server.as_fd()).unwrap();
            let waiting = self.session.outgoing().len();
            waiting.min(usize::try_from(released.saturating_sub(self.flushed)).unwrap_or(usize::MAX))
        }

        /// The client gets, and acknowledges, what may go out.
        fn flush(&mut self) {
            let len = self.may_go();
            let out: Vec<u8> = self.session.outgoing().drain(..len).collect();
            self.server.write_all(&out).unwrap();
            self.client.read_exact(&mut vec![0; len]).unwrap();
            self.flushed += len as u64;
            while kernel::unacknowledged(self.server.as_fd()).unwrap() > 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn records_wait_until_others_know_them() {
        for how in [Resume::Range, Resume::Repeat] {
            let mut sending = Sending::new(how);
            sending.send(&[1; 1000]);
            sending.flush();
            sending.send(&vec![2; AFTER as usize]);
            let waiting = sending.session.outgoing().len();
            assert_eq!(sending.may_go(), waiting);
            assert_eq!(sending.others.0.lock().unwrap().records.end(), 0, "it may be over in a moment");
            sending.last();
            // The client has the first record, so there is something to begin with.
            assert_eq!(sending.may_go(), waiting, "nobody had to know of it");
            let told = |sending: &Sending| sending.others.0.lock().unwrap().records.clone();
            let Records { first, seq, sent, overhead, sealed, before } = told(&sending);
            assert_eq!((first, sent, overhead), (2, 1000, 22));
            let head_and_first = (HEAD.len() + 1000 + 2 * 22) as u32;
            assert_eq!(seq, START.wrapping_add(head_and_first), "it wraps");
            assert_eq!(sealed.len(), 4);
            assert!(session().outgoing().is_empty() && sealed[0].tag != sealed[1].tag);
            assert_eq!(before != 0 && sealed[3].after != 0, how == Resume::Repeat);
            assert_eq!(sending.others.0.lock().unwrap().next, 7);
            sending.flush();
            sending.send(&[3; LOOK as usize * DATA_MAX]);
            assert_eq!(sending.may_go(), 0);
            let records = told(&sending);
            assert_eq!((records.first, records.end()), (6, 6 + LOOK), "what the client has is forgotten");
            sending.others.0.lock().unwrap().released = 7;
            assert_eq!(sending.may_go(), DATA_MAX + 22);
            // The client says something that has no answer, and something that has one.
            sending.insured.hears(5, &sending.session, false);
            assert_eq!(sending.others.0.lock().unwrap().next, 12);
            assert_eq!(sending.may_go(), DATA_MAX + 22);
            sending.insured.hears(5, &sending.session, true);
            assert!(sending.others.0.lock().unwrap().ending);
            assert_eq!(sending.may_go(), 0, "not before nobody can go on with it");
            sending.others.0.lock().unwrap().ended = true;
            assert_eq!(sending.may_go(), LOOK as usize * (DATA_MAX + 22));
        }
    }

    #[test]
    fn more_may_wait_for_other_nodes_than_for_the_client() {
        let mut sending = Sending::new(Resume::Range);
        sending.send(&[1; 1000]);
        sending.flush();
        sending.send(&[1; AFTER as usize]);
        sending.last();
        sending.flush();
        let is_full = |sending: &mut Sending| {
            sending.may_go();
            sending.insured.is_full(sending.flushed, sending.session.outgoing().len())
        };
        sending.send(&[2; 2 * UNSENT_MAX]);
        assert!(!is_full(&mut sending), "it waits for other nodes");
        sending.others.0.lock().unwrap().released = u64::MAX;
        assert!(is_full(&mut sending), "it waits for the client");
        sending.flush();
        sending.others.0.lock().unwrap().released = 0;
        sending.send(&[3; WAITING]);
        assert!(is_full(&mut sending));
    }

    #[test]
    fn a_response_ends_its_insurance() {
        let mut sending = Sending::new(Resume::Range);
        sending.send(&[1; 1000]);
        sending.flush();
        sending.send(&vec![2; AFTER as usize]);
        sending.last();
        sending.flush();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sending.insured.poll_end(&mut cx).is_pending());
        sending.others.0.lock().unwrap().ended = true;
        assert!(sending.insured.poll_end(&mut cx).is_ready());
        assert!(sending.insured.response().is_none());
    }

    #[test]
    fn a_long_response_that_cannot_be_insured_is_counted() {
        let (server, client) = connected();
        let others = Arc::<Others>::default();
        let flow = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let mut insured = Insured::new(Arc::new(Arc::clone(&others)), AFTER, flow, server.as_fd()).unwrap();
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        for (len, counted) in [(1000, 0), (1_000_000, 1)] {
            insured.asks(asked(Resume::Range));
            insured.answers(&ResponseHead { body: ResponseBody::Length(len), ..head() }, text);
            assert_eq!(others.0.lock().unwrap().uninsurable.len(), counted);
        }
        assert_eq!(others.0.lock().unwrap().uninsurable, ["validator"]);
    }

    #[test]
    fn nothing_of_another_record_goes_out() {
        let body = [7; 5000];
        let mut first = session();
        first.send(&body).unwrap();
        let record = first.outgoing().clone();
        let expected = Sealed { len: 5000, tag: *record.last_chunk().unwrap(), after: 0 };
        for (changed, has) in [(None, 0), (None, 100), (Some((0, 1)), 0), (Some((4999, 128)), 100)] {
            let mut sending = Sending::new(Resume::Range);
            let mut second = session();
            let response = Response::read(asked(Resume::Range), HEAD, true).unwrap();
            let place = Place { number: 0, seq: START, sent: 0, before: 0 };
            let _entered = sending.runtime.enter();
            sending.insured.takes(response, &place, None, Owner::default(), &second);
            let mut again = body;
            changed.iter().for_each(|(at, bit)| again[*at] ^= bit);
            let sent = sending.insured.send_again(&mut second, 0, (&again, has), &expected);
            match changed {
                None => {
                    sent.unwrap();
                    assert!(second.outgoing()[..] == record[has..]);
                }
                Some(_) => {
                    assert!(matches!(sent, Err(Failure::Difference(Difference::Content))), "{sent:?}");
                    assert!(second.outgoing().is_empty());
                }
            }
        }
    }
}
