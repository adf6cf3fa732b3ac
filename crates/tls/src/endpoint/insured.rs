//! The insurance of the response that a connection is being sent (docs/decisions/0052).
//!
//! The records of a long response are noted from its beginning on. Once so much of it has been sent that it is insured, other
//! nodes are told of each record, which waits for that. So does everything that is no record of the body: it goes out when
//! the insurance has ended.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use switchback_config::Resume;
use switchback_resume::{
    Difference, Failure, Insurable, Key, Owner, Place, Proof, Records, Repeatable, Resumable, Running,
    Sealed, Uninsured,
};
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
/// Most records that the client may lack.
const RECORDS: usize = 8 << 10;
/// Bytes of an insured response that may wait before its server is read no more.
const WAITING: usize = 4 * UNSENT_MAX;

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
        let resumable = match asked.how {
            Resume::Repeat => {
                let key = Key { k0: random(), k1: random() };
                let last = Running::new(key).fingerprint();
                Resumable::Again(Repeatable::read(&asked.text, head)?, Proof { key, last })
            }
            Resume::Range | Resume::Off => Resumable::Rest(Insurable::read(&asked.text, head)?),
        };
        let keeps = keeps && asked.keeps;
        Ok(Response { asked, head: head.to_vec(), resumable, keeps })
    }

    /// The response that another node has insured.
    pub(super) fn of(insured: &InsuredResponse) -> Result<Self, Uninsured> {
        let InsuredResponse { service, peers, past, request, response: head, proof, keeps, .. } = insured;
        let (how, resumable) = match *proof {
            None => (Resume::Range, Resumable::Rest(Insurable::read(request, head)?)),
            Some(proof) => (Resume::Repeat, Resumable::Again(Repeatable::read(request, head)?, proof)),
        };
        let (peers, past, text) = (peers.clone(), past.clone(), request.clone());
        let asked = Asked { how, service: service.as_str().into(), peers, past, text, keeps: *keeps };
        Ok(Response { asked, head: head.clone(), resumable, keeps: *keeps })
    }

    /// The fingerprint of nothing, if the body is known by fingerprints.
    pub(super) fn running(&self) -> Option<Running> {
        match &self.resumable {
            Resumable::Rest(_) => None,
            Resumable::Again(_, proof) => Some(Running::new(proof.key)),
        }
    }

    fn insured(&self, flow: Addresses, state: Snapshot) -> InsuredResponse {
        let Response { asked, head, resumable, keeps } = self.clone();
        let proof = match resumable {
            Resumable::Rest(_) => None,
            Resumable::Again(_, proof) => Some(proof),
        };
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
    /// The fingerprint of the body so far, if it is known by fingerprints.
    running: Option<Running>,
    /// Bytes of the body so far.
    sent: u64,
    /// Number of the first record that the client may lack, and the positions at which it and those that follow end.
    first: u64,
    ends: VecDeque<u64>,
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
                    running: response.running(),
                    response,
                    sent: 0,
                    first: 0,
                    ends: VecDeque::new(),
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
            running: has,
            sent: place.sent,
            first: place.number,
            ends: VecDeque::new(),
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

    /// Whether so much waits that the server is to be read no more.
    pub(super) fn is_full(&self, unsent: usize) -> bool {
        unsent >= if self.policy().is_some() { WAITING } else { UNSENT_MAX }
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
        match self.connection.snapshot(session).filter(|_| may_renew) {
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
        // Without an answer, other nodes keep more than they need.
        let acknowledged = kernel::acknowledged(socket).unwrap_or(0).saturating_sub(self.connection.before);
        covered.forget(acknowledged);
        if let Insurance::Before { at, records, has_some: true } = &mut covered.insurance
            && covered.sent >= *at
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
        let is_next = number == self.first + self.ends.len() as u64;
        match &mut self.insurance {
            Insurance::Before { records, has_some, .. } if !is_next || records.overhead == 0 => {
                (*records, *has_some) = (anew, false);
                self.first = number;
                self.ends.clear();
            }
            Insurance::Under { .. } if !is_next => self.end(),
            _ => {}
        }
    }

    /// The client has all before a position.
    fn forget(&mut self, acknowledged: u64) {
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
        Ok(match &mut self.insurance {
            Insurance::Before { .. } => Some(u64::MAX),
            Insurance::Under { policy, untold, released, .. } => {
                if !untold.is_empty() {
                    policy.add(untold, self.first);
                    untold.clear();
                }
                while let Poll::Ready(more) = policy.poll_released(cx, *released) {
                    *released = more?;
                }
                let may_go = released.saturating_sub(self.first).min(self.ends.len() as u64);
                Some(may_go.checked_sub(1).map_or(0, |last| self.ends[last as usize]))
            }
            Insurance::Ending(policy) => policy.poll_ended(cx).is_pending().then_some(0),
        })
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
