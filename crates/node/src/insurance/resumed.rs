//! Flows that the agent has got to go on with another node's response.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Duration;

use log::{debug, info};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use switchback_resume::{
    Answer, Ask, Failure, Flow, Held, Message, Owner, Progress, Proof, Record, Repetition, Rest, Resumable,
    Running, Secret, TakeOver, repeat, send_rest,
};
use switchback_tls::endpoint::{InsuredResponse, Insurer, Resumer, Snapshot};
use switchback_wire::sb_owned;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Insurance, lock};

/// Interval of looking whether the client has acknowledged everything.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes after which heirs are told anew where the response is: sequence numbers wrap.
const TOLD_AGAIN: u64 = 256 << 20;
const RETRY: Duration = Duration::from_millis(100);
/// Time for which the fingerprint of what a client has is waited for.
const PROVEN: Duration = Duration::from_secs(1);
/// Time in which heirs that live have heard of a response.
const HEARD: Duration = Duration::from_millis(200);
/// Interval at which other heirs are asked for their promises, and the time that they may take.
const ASKED_AGAIN: Duration = Duration::from_millis(200);
const PROMISED: Duration = Duration::from_secs(10);

/// Accepts flows, without end.
pub(super) async fn accept(listener: TcpListener, insurance: Insurance, resumer: Resumer) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((socket, client)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let Ok(vip) = socket.local_addr() else { continue };
        let (insurance, resumer) = (insurance.clone(), resumer.clone());
        tokio::spawn(async move { go_on_with(socket, Flow { client, vip }, &insurance, &resumer).await });
    }
}

async fn go_on_with(socket: TcpStream, flow: Flow, insurance: &Insurance, resumer: &Resumer) {
    // What the client has may be under a fingerprint that waits behind others.
    let deadline = Instant::now() + PROVEN;
    while insurance.lacks_fingerprint(&flow) && Instant::now() < deadline {
        sleep(LOOK).await;
    }
    let taken = lock(&insurance.0.estate).take(&flow);
    match taken {
        Some((record, None)) => go_on(socket, record, insurance).await,
        Some((record, Some(held))) => go_on_over_tls(socket, (record, held), insurance, resumer).await,
        None => {
            // A stranger of this machine, or the record has given way in this moment.
            insurance.forget_unless_heir(&flow);
            reset(&socket);
        }
    }
}

async fn go_on_over_tls(
    socket: TcpStream,
    (record, held): (Record, Held),
    insurance: &Insurance,
    resumer: &Resumer,
) {
    let (flow, from) = (record.flow, record.owner.clone());
    if let Some(owned) = insurance.owned(&flow) {
        insurance.take_from_others(&record, owned.generation);
    }
    reset(&socket);
    let id = (flow, record.origin);
    let taken = timeout(PROMISED, take_over(record, held, insurance)).await;
    insurance.0.policies.stop_awaiting(&id);
    let resumed = match taken {
        Ok(Some((record, secret, owner))) => {
            resumer.go_on(socket, inherited(record, secret, insurance), owner).await
        }
        _ => Err(Failure::Unproven),
    };
    insurance.forget_unless_heir(&flow);
    match resumed {
        Ok(resumed) => {
            insurance.has_gone_on(&Ok(()));
            debug!("the response of {from} to {} has gone on here", flow.client);
            resumed.serve().await;
        }
        Err(failure) => {
            info!("the response of {from} to {} does not go on here: {failure}", flow.client);
            insurance.has_gone_on(&Err(failure));
        }
    }
}

/// Has the other heirs promise to hear of no earlier owner. None if another node takes over.
async fn take_over(
    mut record: Record,
    mut held: Held,
    insurance: &Insurance,
) -> Option<(Record, Secret, Owner)> {
    let me = insurance.0.name.as_str();
    let mut answers = insurance.0.policies.await_answers((record.flow, record.origin));
    loop {
        let taking = TakeOver::begin(held.replica, &record.heirs, me, nonce(&record))?;
        match collect(taking, &record, &mut answers, insurance).await? {
            Ok(owner) => return Some((record, held.secret, owner)),
            // Some heirs have been told of other ones.
            Err(newer) => (record, held) = newer,
        }
    }
}

/// Random.
fn nonce(record: &Record) -> u64 {
    RandomState::new().hash_one(record.flow)
}

/// Asks other heirs until there are enough promises, or one knows of a later set.
async fn collect(
    mut taking: TakeOver,
    record: &Record,
    answers: &mut UnboundedReceiver<(String, Answer)>,
    insurance: &Insurance,
) -> Option<Result<Owner, (Record, Held)>> {
    let me = &insurance.0.name;
    loop {
        if let Some(owner) = taking.finish() {
            return Some(Ok(owner));
        }
        let (set, by) = taking.id();
        let ask = Ask::Promise { set, before: taking.before().to_vec(), by };
        let ask = Message::Ask(record.flow, record.origin, ask);
        let others = record.heirs.iter().filter(|heir| *heir != me && !taking.has(heir));
        lock(&insurance.0.heirs).say(&others.cloned().collect::<Vec<_>>(), &ask);
        let deadline = Instant::now() + ASKED_AGAIN;
        while let Ok(answer) = timeout_at(deadline, answers.recv()).await {
            match answer? {
                (heir, Answer::Promised(of, to, promise)) if (of, to) == (set, by) => {
                    taking.hear(&heir, promise);
                    break;
                }
                (_, Answer::Newer { of, record, secret, replica })
                    if of == set && record.heirs.contains(me) =>
                {
                    return Some(Err((*record, Held { secret: *secret, replica })));
                }
                (_, Answer::Refused(of, promised))
                    if of == set && taking.hear_refused(promised, nonce(record)) =>
                {
                    break;
                }
                _ => {}
            }
        }
    }
}

fn inherited(record: Record, secret: Secret, insurance: &Insurance) -> InsuredResponse {
    let Record { flow, next, keeps, request, response, proof, owner, mut past, .. } = record;
    let pools = insurance.pools();
    let peers = pools.insuring(&flow, &request).map(|insuring| insuring.peers.clone());
    past.push(owner);
    InsuredResponse {
        flow: (flow.client, flow.vip),
        service: secret.service,
        peers: peers.unwrap_or_default(),
        past,
        request,
        response,
        proof,
        keeps,
        state: Snapshot { next, moved: secret.state },
    }
}

async fn go_on(mut socket: TcpStream, record: Record, insurance: &Insurance) {
    let flow = record.flow;
    let origin = record.origin;
    let client = flow.client;
    let sent = send(&mut socket, &record, insurance).await;
    insurance.has_gone_on(&sent);
    match sent {
        Ok(()) => {
            debug!("the response of {} to {client} has gone on here", record.owner);
            until_acknowledged(&socket).await;
            insurance.over(flow, origin);
        }
        Err(failure) => {
            info!("the response of {} to {client} does not go on here: {failure}", record.owner);
            if matches!(failure, Failure::Client(_)) {
                insurance.over(flow, origin);
            }
            // If another heir is left, the programs keep that from the client.
            reset(&socket);
        }
    }
    insurance.forget_unless_heir(&flow);
}

/// Sends what the client lacks. Meanwhile this node's heirs can go on with it.
async fn send(socket: &mut TcpStream, record: &Record, insurance: &Insurance) -> Result<(), Failure> {
    let gone = || Failure::Client(io::ErrorKind::NotConnected.into());
    socket.set_nodelay(true).map_err(Failure::Client)?;
    let owned = insurance.owned(&record.flow).ok_or_else(gone)?;
    let resumable = record.resumable().map_err(|_| gone())?;
    let head_len = resumable.head_len() as u64;
    let offset = owned.sent.checked_sub(head_len).ok_or_else(gone)?;
    let here = Record {
        generation: owned.generation,
        requests: owned.requests,
        seq: owned.began,
        sent: owned.sent,
        past: [&record.past[..], std::slice::from_ref(&record.owner)].concat(),
        ..record.clone()
    };
    insurance.take_from_others(record, owned.generation);
    let mut sending = Sending { here, head_len, owned, insurance, told: 0 };
    let (vip, request) = (record.flow.vip, &record.request[..]);
    match &resumable {
        Resumable::Rest(insurable) => {
            // One of them goes on if this node cannot.
            tell_heirs(&sending.here, insurance);
            let rest = Rest { insurable, request, offset };
            send_rest(socket, vip, rest, |socket, sent| sending.sent(socket, sent)).await
        }
        Resumable::Again(repeatable, Proof { key, last }) => {
            tell_heirs_and_wait(&sending.here, insurance).await;
            let repetition = Repetition { repeatable, request, offset, key: *key, last: *last };
            repeat(socket, vip, repetition, &mut sending).await
        }
    }
}

/// A response that goes on here.
struct Sending<'a> {
    here: Record,
    /// Length of the response's head, in bytes.
    head_len: u64,
    /// The flow when it came.
    owned: sb_owned,
    insurance: &'a Insurance,
    /// Bytes that had been sent when heirs were told last.
    told: u64,
}

impl Progress for Sending<'_> {
    fn begins(&mut self, has: &Running) -> Result<(), Failure> {
        let Record { flow, origin, proof, .. } = &self.here;
        let key = proof.ok_or(Failure::Unproven)?.key;
        self.insurance.go_on_with_fingerprint(flow, *origin, key, has, self.owned.began)
    }

    fn sent(&mut self, socket: &TcpStream, sent: u64) {
        if sent - self.told >= TOLD_AGAIN {
            self.told = sent;
            let has = sent.saturating_sub(unacknowledged(socket).unwrap_or(0));
            let seq = self.owned.began.wrapping_add(has as u32);
            let here = Record { seq, sent: self.owned.sent + has, ..self.here.clone() };
            tell_heirs(&here, self.insurance);
        }
    }

    fn ends(&mut self, bytes: u64) -> Result<(), Failure> {
        self.insurance.learn_end(&self.here.flow, self.here.origin, self.head_len + bytes)
    }
}

fn tell_heirs(record: &Record, insurance: &Insurance) {
    if let Err(why) = insurance.insure(record.clone(), &insurance.pools()) {
        insurance.is_uninsurable(why);
    }
}

/// Waits until heirs know of a response that is made once more. Those that do not could prove nothing of what is sent.
async fn tell_heirs_and_wait(record: &Record, insurance: &Insurance) {
    let id = (record.flow, record.origin);
    let mut answers = insurance.0.policies.await_answers(id);
    tell_heirs(record, insurance);
    let mut unheard = lock(&insurance.0.own).heirs(&record.flow).to_vec();
    let deadline = Instant::now() + HEARD;
    while !unheard.is_empty()
        && let Ok(Some((heir, _))) = timeout_at(deadline, answers.recv()).await
    {
        unheard.retain(|name| *name != heir);
    }
    insurance.0.policies.stop_awaiting(&id);
}

/// Waits until the client has acknowledged everything, or is gone. Behind that the socket can be closed: the programs keep
/// its FIN from a client that may go on, whose next request is any node's.
async fn until_acknowledged(socket: &TcpStream) {
    while socket.take_error().is_ok_and(|error| error.is_none())
        && unacknowledged(socket).is_ok_and(|bytes| bytes > 0)
    {
        sleep(LOOK).await;
    }
}

/// Bytes that the client has not acknowledged (SIOCOUTQ, tcp(7)).
fn unacknowledged(socket: &TcpStream) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(bytes as u64) } else { Err(io::Error::last_os_error()) }
}

/// Has the connection end with a RST.
fn reset(socket: &TcpStream) {
    // Without it the client gets a FIN, and sees that the response is short.
    let _ = setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
}
