//! A connection with its socket: a thin driver around [`Session`].

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};
use switchback_resume::{Failure, Owner, Pipe, Place, Running, Sealed};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use super::client::{Client, StreamError, UNSENT_MAX};
use super::counters::Counters;
use super::flow::Addresses;
use super::head::ResponseHead;
use super::insured::{Insured, Response};
use super::kernel::{self, KernelTls, LOOK, Sealing};
use super::local::LocalNode;
use super::services::Service;
use super::unacknowledged::Socket;
use crate::{Error, Moved, Session};

/// Bytes read from a socket at once.
const READ: usize = 32 << 10;
/// Bytes that a connection has sent before the kernel gets its keys.
const SEALED_FROM: usize = 256 << 10;
/// Time for which a client may leave the last bytes of a connection unread.
const UNREAD: Duration = Duration::from_secs(300);
/// Time in which a client has to end its side of a connection after the endpoint has ended its own.
const LINGER: Duration = Duration::from_secs(5);

/// The longest time between two looks whether the client has all of an insured response.
const LOOK_MAX: Duration = Duration::from_millis(20);
/// Time that other nodes may take to hear that an insurance ends.
const SETTLED: Duration = Duration::from_secs(10);

/// A client's connection.
pub struct TlsStream {
    /// Present if its responses may be insured, which ends before the socket does.
    insured: Option<Insured>,
    pub(super) socket: Socket,
    pub(super) session: Session,
    /// Addresses of the client and the VIP.
    pub(super) client: SocketAddr,
    pub(super) vip: SocketAddr,
    /// Bytes of `session.outgoing()` that have been written.
    written: usize,
    /// Bytes that have been written before the first one of `session.outgoing()`.
    flushed: u64,
    ended: bool,
    /// Present until the kernel encrypts, if it may.
    unsealed: Option<Unsealed>,
    /// Present if the kernel encrypts.
    sealing: Option<Sealing>,
    /// Timer of the next look at what the kernel has encrypted.
    look: Option<Pin<Box<Sleep>>>,
}

/// Bytes sent to a client before the kernel begins to encrypt.
#[derive(Debug)]
struct Unsealed {
    kernel: KernelTls,
    counters: Arc<Counters>,
    sent: usize,
}

impl TlsStream {
    /// A connection whose handshake is still to be done.
    pub(super) fn new(
        socket: TcpStream,
        flow: Addresses,
        service: &Service,
        node: &LocalNode,
    ) -> Result<Self, StreamError> {
        let handshakes = service.handshakes(node);
        let session = Session::new(&*handshakes.config().map_err(Error::Handshake)?)?;
        Ok(TlsStream::with(socket, flow, session.proving(handshakes.proofs()), service))
    }

    /// A connection that another node has given away.
    pub(super) fn with(
        socket: TcpStream,
        (client, vip): Addresses,
        session: Session,
        service: &Service,
    ) -> Self {
        let counters = Arc::clone(&service.counters);
        let unsealed = Some(Unsealed { kernel: service.kernel, counters, sent: 0 });
        let insured = service.insurer.as_ref().and_then(|(insurer, after)| {
            Insured::new(Arc::clone(insurer), *after, (client, vip), socket.as_fd())
        });
        let socket = Socket::new(socket);
        SessionLess { insured, socket, client, vip, unsealed, sealing: None }.with(session)
    }

    /// Goes on with another node's response; see [`Insured::takes`].
    pub(super) fn takes(&mut self, response: Response, place: &Place, has: Option<Running>, owner: Owner) {
        self.session.seal_here(place.number);
        if let Some(insured) = &mut self.insured {
            insured.takes(response, place, has, owner, &self.session);
        }
    }

    /// Encrypts a record of another node once more; see [`Insured::send_again`].
    pub(super) fn send_again(&mut self, record: (&[u8], usize), expected: &Sealed) -> Result<(), Failure> {
        let insured = self.insured.as_mut().ok_or(Failure::Unproven)?;
        insured.send_again(&mut self.session, self.flushed, record, expected)
    }

    /// Waits until the client has all of an insured response, or asks for more, and ends the insurance.
    pub(super) async fn settle(&mut self) -> Result<(), StreamError> {
        let TlsStream { insured: Some(insured), socket, .. } = self else { return Ok(()) };
        let mut pause = LOOK;
        while !insured.is_over(socket.as_fd())? {
            tokio::select! {
                readable = socket.readable() => {
                    readable?;
                    break;
                }
                () = sleep(pause) => pause = LOOK_MAX.min(pause * 2),
            }
            if let Some(error) = socket.take_error()? {
                return Err(error.into());
            }
        }
        let ended = timeout(SETTLED, std::future::poll_fn(|cx| insured.poll_end(cx))).await;
        Ok(ended.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?)
    }

    /// The insurance of its responses.
    pub(super) fn insured(&mut self) -> Option<&mut Insured> {
        self.insured.as_mut()
    }

    /// Gives the connection up, for another node. TCP has got all bytes ([`is_through`](Self::is_through)).
    pub(super) fn give_up(mut self) -> Result<(SessionLess, Moved), StreamError> {
        if let Some(sealing) = &self.sealing {
            self.session.seal_here(sealing.number(self.socket.as_fd())?);
        }
        let TlsStream { insured, socket, session, client, vip, unsealed, sealing, .. } = self;
        Ok((SessionLess { insured, socket, client, vip, unsealed, sealing }, session.give_up()?))
    }

    /// Whether TCP has got all bytes that were written.
    pub(super) fn is_through(&self) -> io::Result<bool> {
        self.sealing.as_ref().map_or(Ok(true), |sealing| sealing.is_through(self.socket.as_fd()))
    }

    /// Waits until TCP has got all bytes. Otherwise a record that waits for room in the kernel would be lost
    /// at the end of the stream.
    fn poll_through(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_through()? {
            let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            ready!(look.as_mut().poll(cx));
            self.look = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Looks after the lines about responses that the client has not acknowledged.
    fn poll_lines(&mut self, cx: &mut Context<'_>) {
        let TlsStream { socket, session, written, sealing, .. } = self;
        let (is_written, sealing) = (session.outgoing().len() == *written, sealing.as_ref());
        socket.poll_lines(cx, |socket| match sealing {
            Some(sealing) if is_written => sealing.is_through(socket),
            _ => Ok(is_written),
        });
    }

    /// Lets the kernel encrypt from now on, if it can.
    fn seal_by_kernel(&mut self) {
        let Some(unsealed) = self.unsealed.take() else { return };
        if !self.session.version().is_some_and(|version| unsealed.kernel.can(version)) {
            return;
        }
        let socket = self.socket.as_fd();
        let mut sealing = None;
        let set = |info: &[u8]| {
            kernel::attach(socket)?;
            kernel::set_keys(socket, info)?;
            sealing = Some(Sealing::new(socket, info)?);
            Ok(())
        };
        // Without it, all goes on as before.
        if self.session.seal_by_kernel(set).is_ok_and(|sealed| sealed) {
            self.sealing = sealing;
            unsealed.counters.kernel.add(1);
        }
    }

    /// Does the handshake. If it fails, the client is told. The last bytes, such as a session ticket, are left for what is
    /// sent next, if that comes soon.
    pub(super) async fn shake_hands(&mut self) -> Result<(), StreamError> {
        while self.session.is_handshaking() {
            match std::future::poll_fn(|cx| self.poll_fill(cx)).await {
                Ok(true) => {}
                Ok(false) => return Err(Error::Truncated.into()),
                Err(error) => {
                    let _ = self.flush_all().await;
                    return Err(error);
                }
            }
            if self.session.is_handshaking() || !self.sends_soon() {
                self.flush_all().await?;
            }
        }
        Ok(())
    }

    /// Whether something is sent soon after the handshake: a request has come with its end, or HTTP/2 begins with SETTINGS.
    fn sends_soon(&self) -> bool {
        let is_http2 = self.session.facts().protocol.as_deref() == Some(b"h2");
        self.insured.is_none() && (is_http2 || !self.session.data().is_empty())
    }

    /// Waits for data of the client; false if there will be none.
    pub(super) async fn wait_for_data(&mut self) -> Result<bool, StreamError> {
        let before = self.session.data().len();
        loop {
            if self.session.data().len() > before {
                return Ok(true);
            }
            let filled = std::future::poll_fn(|cx| self.poll_fill(cx)).await?;
            // The answer to a renewal of keys.
            self.flush_all().await?;
            if !filled {
                return Ok(false);
            }
        }
    }

    /// Writes all that the session has for the client.
    pub(super) async fn flush_all(&mut self) -> Result<(), StreamError> {
        std::future::poll_fn(|cx| self.poll_write_out(cx)).await.map_err(StreamError::Io)
    }

    /// Sends close_notify, and closes when the client has closed, too. Data that it still sends is discarded:
    /// a socket that is closed before all has been read sends a reset, which may take the answer from the
    /// client (RFC 9112 section 9.6).
    pub(super) async fn end(mut self) -> Result<(), StreamError> {
        let shutdown = AsyncWriteExt::shutdown(&mut self);
        timeout(UNREAD, shutdown).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let _ = timeout(LINGER, std::future::poll_fn(|cx| self.poll_discard(cx))).await;
        Ok(())
    }

    /// Discards what the client sends, until it ends.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_lines(cx);
        let mut storage = [MaybeUninit::uninit(); READ];
        loop {
            let mut buffer = ReadBuf::uninit(&mut storage);
            ready!(Pin::new(&mut *self.socket).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads what the socket has, without waiting.
    pub(super) fn read_what_is_there(&mut self) -> Result<(), StreamError> {
        let mut buffer = [0; READ];
        loop {
            match nix::sys::socket::recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(nix::errno::Errno::EAGAIN) => return Ok(()),
                Ok(len) => {
                    self.session.receive(&buffer[..len])?;
                    self.insured.iter_mut().for_each(|insured| insured.hears(len, &self.session, false));
                }
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}

/// A connection without its session, which has not begun, or has been given up.
pub(super) struct SessionLess {
    insured: Option<Insured>,
    socket: Socket,
    client: SocketAddr,
    vip: SocketAddr,
    unsealed: Option<Unsealed>,
    sealing: Option<Sealing>,
}

impl SessionLess {
    /// Takes the session back, because the connection goes on here.
    pub(super) fn take_back(self, moved: Moved) -> Result<TlsStream, StreamError> {
        let mut session = Session::take_over(moved).map_err(|_| Error::Internal)?;
        if self.sealing.is_some() {
            session.seal_by_kernel(|_| Ok(()))?;
        }
        Ok(self.with(session))
    }

    fn with(self, session: Session) -> TlsStream {
        let SessionLess { insured, socket, client, vip, unsealed, sealing } = self;
        TlsStream {
            insured,
            socket,
            session,
            client,
            vip,
            written: 0,
            flushed: 0,
            ended: false,
            unsealed,
            sealing,
            look: None,
        }
    }
}

/// Without keys and data.
impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("client", &self.client)
            .field("vip", &self.vip)
            .finish_non_exhaustive()
    }
}

impl Client for TlsStream {
    fn data(&self) -> &[u8] {
        self.session.data()
    }

    fn consume(&mut self, len: usize) -> Result<(), StreamError> {
        self.session.take(len);
        // There may be records that there was no room for.
        Ok(self.session.advance()?)
    }

    fn wants_more(&self) -> bool {
        self.session.wants_more()
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StreamError>> {
        if self.session.is_read_closed() || self.ended {
            return Poll::Ready(Ok(false));
        }
        self.poll_lines(cx);
        let mut storage = [MaybeUninit::uninit(); READ];
        let mut buffer = ReadBuf::uninit(&mut storage);
        ready!(Pin::new(&mut *self.socket).poll_read(cx, &mut buffer))?;
        self.ended = buffer.filled().is_empty();
        let unsaid = self.session.outgoing().len();
        let received = match self.ended {
            true => self.session.receive_end(),
            false => self.session.receive(buffer.filled()),
        };
        let is_answered = self.session.outgoing().len() > unsaid;
        if let Some(insured) = &mut self.insured {
            insured.hears(buffer.filled().len(), &self.session, is_answered);
        }
        if let Err(error) = received {
            // The alert that says why (RFC 8446 section 6.2), as far as there is room for it.
            let _ = self.poll_write_out(cx);
            return Poll::Ready(Err(error.into()));
        }
        Poll::Ready(Ok(!self.ended))
    }

    fn send(&mut self, data: &[u8]) -> Result<(), StreamError> {
        let sent = match &mut self.insured {
            Some(insured) => insured.send(&mut self.session, self.flushed, data),
            None => self.session.send(data),
        };
        Ok(sent?)
    }

    fn begins(&mut self, head: &ResponseHead, text: &[u8]) {
        if let Some(insured) = &mut self.insured {
            insured.answers(head, text);
        }
    }

    fn is_full(&mut self) -> bool {
        let unsent = self.unsent();
        let written = self.flushed + self.written as u64;
        self.insured.as_ref().map_or(unsent >= UNSENT_MAX, |insured| insured.is_full(written, unsent))
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(cx, MsgFlags::empty())
    }

    /// They are left to [`poll_shutdown`](AsyncWrite::poll_shutdown), unless other nodes hear of them first.
    fn poll_last(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.insured.is_some() { self.poll_write_out(cx) } else { Poll::Ready(Ok(())) }
    }

    fn unsent(&mut self) -> usize {
        self.session.outgoing().len() - self.written
    }

    fn can_splice(&self) -> bool {
        self.sealing.is_some() && self.session.may_splice()
    }

    fn poll_splice(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<()>> {
        let TlsStream { socket, session, sealing: Some(sealing), .. } = self else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || sealing.splice(socket.as_fd(), pipe)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(len) => {
                    session.has_spliced(len);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl TlsStream {
    /// Writes all bytes, with these flags if the kernel does not encrypt them.
    fn poll_write_with(&mut self, cx: &mut Context<'_>, flags: MsgFlags) -> Poll<io::Result<()>> {
        let TlsStream { insured, socket, session, written, flushed, sealing, unsealed, .. } = self;
        let released = match insured {
            Some(insured) => insured.released(cx, session, socket.as_fd())?.saturating_sub(*flushed),
            None => u64::MAX,
        };
        let outgoing = session.outgoing();
        let end = outgoing.len().min(usize::try_from(released).unwrap_or(usize::MAX));
        while *written < end {
            ready!(socket.poll_write_ready(cx))?;
            let rest = &mut outgoing[*written..end];
            let result = socket.try_io(Interest::WRITABLE, || match sealing {
                None => Ok(send(socket.as_raw_fd(), rest, flags | MsgFlags::MSG_NOSIGNAL)?),
                Some(sealing) => sealing.write(socket.as_fd(), rest),
            });
            match result {
                Ok(len) => *written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if end < outgoing.len() {
            // Some may always be waiting for other nodes. It is moved once for as many bytes that have gone.
            if *written >= outgoing.len() / 2 {
                *flushed += *written as u64;
                outgoing.drain(..*written);
                *written = 0;
            }
            return Poll::Pending;
        }
        outgoing.clear();
        *flushed += *written as u64;
        let sent = unsealed.as_mut().map(|unsealed| {
            unsealed.sent += *written;
            unsealed.sent
        });
        *written = 0;
        if sent.is_some_and(|sent| sent >= SEALED_FROM) {
            self.seal_by_kernel();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let len = self.session.data().len().min(buffer.remaining());
            if len > 0 {
                buffer.put_slice(&self.session.data()[..len]);
                self.consume(len)?;
                return Poll::Ready(Ok(()));
            }
            let filled = ready!(self.poll_fill(cx))?;
            // What it wants to say meanwhile goes out as far as it can; the rest with what is written next.
            let _ = self.poll_write_out(cx)?;
            if !filled {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.unsent() >= UNSENT_MAX {
            ready!(self.poll_write_out(cx))?;
        }
        let len = data.len().min(UNSENT_MAX);
        self.session.send(&data[..len]).map_err(StreamError::Tls)?;
        let _ = self.poll_write_out(cx)?;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_out(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_lines(cx);
        if !self.session.is_write_closed() {
            // What other nodes hear of, or the kernel encrypts, has its place in the stream only when it is written.
            if self.insured.is_some() || self.sealing.is_some() {
                ready!(self.poll_write_out(cx))?;
            }
            let unsent = self.unsent();
            self.socket.look(unsent);
            self.session.close().map_err(StreamError::Tls)?;
        }
        // The end of the stream goes with the last bytes, in one packet.
        ready!(self.poll_write_with(cx, MsgFlags::from_bits_retain(MSG_MORE)))?;
        ready!(self.poll_through(cx))?;
        Pin::new(&mut *self.socket).poll_shutdown(cx)
    }
}
