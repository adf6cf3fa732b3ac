//! Flows that the agent has got to go on with another node's response.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Duration;

use log::{debug, info};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use switchback_resume::{Failure, Flow, Insurable, Record, Rest, send_rest};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Insurance, lock};

/// Interval of looking whether the client has acknowledged everything.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes after which heirs are told anew where the response is: sequence numbers wrap.
const TOLD_AGAIN: u64 = 256 << 20;
const RETRY: Duration = Duration::from_millis(100);

/// Accepts flows, without end.
pub(super) async fn accept(listener: TcpListener, insurance: Insurance) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((socket, client)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let Ok(vip) = socket.local_addr() else { continue };
        let insurance = insurance.clone();
        tokio::spawn(async move { go_on(socket, Flow { client, vip }, &insurance).await });
    }
}

async fn go_on(mut socket: TcpStream, flow: Flow, insurance: &Insurance) {
    let record = lock(&insurance.0.estate).take(&flow);
    insurance.forget(&flow);
    let Some(record) = record else {
        // A stranger of this machine, or the record has given way in this moment.
        reset(&socket);
        return;
    };
    let origin = record.origin;
    let client = flow.client;
    match send(&mut socket, &record, insurance).await {
        Ok(()) => {
            lock(&insurance.0.counts).resumed += 1;
            debug!("the response of {} to {client} has gone on here", record.owner);
            until_acknowledged(&socket).await;
            insurance.over(flow, origin);
        }
        Err(failure) => {
            *lock(&insurance.0.counts).failed.entry(failure.name()).or_default() += 1;
            info!("the response of {} to {client} does not go on here: {failure}", record.owner);
            if matches!(failure, Failure::Client(_)) {
                insurance.over(flow, origin);
            }
            // If another heir is left, the programs keep that from the client.
            reset(&socket);
        }
    }
}

/// Sends what the client lacks. Meanwhile this node's heirs can go on with it.
async fn send(socket: &mut TcpStream, record: &Record, insurance: &Insurance) -> Result<(), Failure> {
    let gone = || Failure::Client(io::ErrorKind::NotConnected.into());
    socket.set_nodelay(true).map_err(Failure::Client)?;
    let owned = insurance.owned(&record.flow).ok_or_else(gone)?;
    let insurable = Insurable::read(&record.request, &record.response).map_err(|_| gone())?;
    let offset = owned.sent.checked_sub(insurable.head_len() as u64).ok_or_else(gone)?;
    let here = Record {
        generation: owned.generation,
        requests: owned.requests,
        seq: owned.began,
        sent: owned.sent,
        past: [&record.past[..], std::slice::from_ref(&record.owner)].concat(),
        ..record.clone()
    };
    insurance.take_from(&record.owner, record.flow, record.origin, owned.generation);
    tell_heirs(&here, insurance);
    let rest = Rest { insurable: &insurable, request: &record.request, offset };
    let mut told = 0;
    send_rest(socket, record.flow.vip, rest, |socket, sent| {
        if sent - told >= TOLD_AGAIN {
            told = sent;
            let has = sent.saturating_sub(unacknowledged(socket).unwrap_or(0));
            let seq = owned.began.wrapping_add(has as u32);
            tell_heirs(&Record { seq, sent: owned.sent + has, ..here.clone() }, insurance);
        }
    })
    .await
}

fn tell_heirs(record: &Record, insurance: &Insurance) {
    if let Err(why) = insurance.insure(record.clone(), &insurance.pools()) {
        *lock(&insurance.0.counts).uninsured.entry(why).or_default() += 1;
    }
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
