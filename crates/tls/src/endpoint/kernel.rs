//! Encryption of data for clients by the kernel, where it can (kTLS, Documentation/networking/tls.rst).
//!
//! A connection begins without: short ones do not get back what the change costs. Once it has sent a lot, the
//! socket gets the keys, and from there on data go to it as they are, and other records beside them
//! (`TLS_SET_RECORD_TYPE`). When the connection is to move, the number of the next record is read back.
//! Reading stays in our hands: what a kernel has half opened cannot be taken out.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{MsgFlags, sendmsg, setsockopt, sockopt};
use switchback_resume::Pipe;
use zeroize::Zeroizing;

use crate::Cipher;
use crate::keys::{Half, TAG, TLS_1_3_VERSION, TLS_CIPHER_CHACHA20_POLY1305};
use crate::record_layer::{HEADER, Version, content};
use crate::sealer::KEYS;

/// linux/tls.h; libc has no names for some of these.
const SOL_TLS: libc::c_int = 282;
const TLS_TX: libc::c_int = 1;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
/// Where `tcpi_bytes_acked` is in `struct tcp_info` (linux/tcp.h).
const BYTES_ACKED: usize = 120;
/// Period at which unacknowledged data is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// Records written at once.
const BATCH: usize = 8;

/// kTLS support of this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelTls {
    /// No kTLS.
    None,
    /// TLS 1.2 only: without key updates, which TLS 1.3 may ask for at any time; before Linux 6.14.
    Tls12,
    /// TLS 1.2 and 1.3.
    All,
}

impl KernelTls {
    /// Probes the kernel with a connection to itself.
    pub fn of_this_machine() -> KernelTls {
        match can_change_keys() {
            Err(_) => KernelTls::None,
            Ok(false) => KernelTls::Tls12,
            Ok(true) => KernelTls::All,
        }
    }

    /// Whether it can encrypt such a connection.
    pub(super) fn can(self, version: Version) -> bool {
        match self {
            KernelTls::None => false,
            KernelTls::Tls12 => version == Version::Tls12,
            KernelTls::All => true,
        }
    }
}

fn can_change_keys() -> io::Result<bool> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = TcpStream::connect(listener.local_addr()?)?;
    let _other = listener.accept()?;
    let keys = |key| Half::new(Cipher::Aes128Gcm, &[key; 16], &[0; 12], &[], 0);
    let info = |key| keys(key).map(|half| half.crypto_info(Version::Tls13)).map_err(io::Error::other);
    attach(socket.as_fd())?;
    set_keys(socket.as_fd(), &info(1)?)?;
    Ok(set_keys(socket.as_fd(), &info(2)?).is_ok())
}

/// Prepares a socket for keys. Until it has some, nothing changes.
pub(super) fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(setsockopt(&socket, sockopt::TcpUlp::default(), b"tls")?)
}

/// Sets the keys with which the kernel encrypts from now on.
pub(super) fn set_keys(socket: BorrowedFd<'_>, info: &[u8]) -> io::Result<()> {
    // SAFETY: `info` is read during the call only, as many bytes as it has.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_TLS,
            TLS_TX,
            info.as_ptr().cast(),
            info.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Counts of what a socket was given to encrypt, to know when all of it has become packets: `SIOCOUTQ` does
/// not count records that wait for room.
#[derive(Debug)]
pub(super) struct Sealing {
    /// Bytes of TCP before it began.
    before: u64,
    /// Bytes of content since then.
    content: u64,
    /// Records with earlier keys, and the number of the first with these.
    earlier: u64,
    first: u64,
    /// Bytes of a record besides its content, and the length of its `struct tls12_crypto_info_*`.
    overhead: u64,
    info_len: usize,
    /// Bytes left of the data record that is being written.
    left: usize,
}

impl Sealing {
    /// Counts of a socket that has just got these first keys.
    pub(super) fn new(socket: BorrowedFd<'_>, info: &[u8]) -> io::Result<Sealing> {
        let [version_low, version_high, cipher_low, cipher_high, ..] = *info else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let version = u16::from_ne_bytes([version_low, version_high]);
        let cipher = u16::from_ne_bytes([cipher_low, cipher_high]);
        let more = match (version, cipher) {
            // The content type (RFC 8446 section 5.2).
            (TLS_1_3_VERSION, _) => 1,
            (_, TLS_CIPHER_CHACHA20_POLY1305) => 0,
            // A part of the nonce (RFC 5288 section 3).
            _ => 8,
        };
        Ok(Sealing {
            before: written(socket)?,
            content: 0,
            earlier: 0,
            first: number_at(info)?,
            overhead: (HEADER + TAG) as u64 + more,
            info_len: info.len(),
            left: 0,
        })
    }

    /// Writes some of `records`, which are plain and begin where the last call has ended, and says how many
    /// bytes of them that were. [`io::ErrorKind::WouldBlock`] if there is no room for any.
    pub(super) fn write(&mut self, socket: BorrowedFd<'_>, records: &mut [u8]) -> io::Result<usize> {
        if self.left > 0 || records[0] == content::DATA {
            return self.write_data(socket, records);
        }
        let kind = records[0];
        let len = len_of(records);
        let content = &mut records[HEADER..HEADER + len];
        if kind == KEYS {
            self.earlier += self.number(socket)? - self.first;
            set_keys(socket, content)?;
            self.first = number_at(content)?;
            content.fill(0);
        } else {
            send_record(socket, kind, content)?;
            self.content += len as u64;
        }
        Ok(HEADER + len)
    }

    /// Writes some of the data in a pipe. All records before it have been written.
    pub(super) fn splice(&mut self, socket: BorrowedFd<'_>, pipe: &mut Pipe) -> io::Result<usize> {
        let given = pipe.give(socket)?;
        self.content += given as u64;
        Ok(given)
    }

    fn write_data(&mut self, socket: BorrowedFd<'_>, records: &[u8]) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); BATCH];
        let mut at = self.left;
        slices[0] = IoSlice::new(&records[..at]);
        for slice in &mut slices[usize::from(at > 0)..] {
            match records.get(at) {
                Some(&content::DATA) => {
                    let start = at + HEADER;
                    at = start + len_of(&records[at..]);
                    *slice = IoSlice::new(&records[start..at]);
                }
                _ => break,
            }
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let taken = sendmsg::<()>(socket.as_raw_fd(), &slices, &[], flags, None)?;
        self.content += taken as u64;
        Ok(self.skip(records, taken))
    }

    /// How many bytes of `records` end with the byte of content that so many are before.
    fn skip(&mut self, records: &[u8], mut taken: usize) -> usize {
        let mut at = 0;
        loop {
            let part = taken.min(self.left);
            (at, taken, self.left) = (at + part, taken - part, self.left - part);
            if taken == 0 {
                return at;
            }
            self.left = len_of(&records[at..]);
            at += HEADER;
        }
    }

    /// The number of the next record.
    pub(super) fn number(&self, socket: BorrowedFd<'_>) -> io::Result<u64> {
        let mut info = Zeroizing::new(vec![0; self.info_len]);
        get(socket, SOL_TLS, TLS_TX, &mut info)?;
        number_at(&info)
    }

    /// Whether TCP has got all bytes.
    pub(super) fn is_through(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let records = self.earlier + self.number(socket)? - self.first;
        Ok(written(socket)? == self.before + self.content + records * self.overhead)
    }
}

/// The length of the record's content.
fn len_of(record: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([record[3], record[4]]))
}

/// The number of the next record, which is last.
fn number_at(info: &[u8]) -> io::Result<u64> {
    info.last_chunk()
        .map(|number| u64::from_be_bytes(*number))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends one record that is no data.
fn send_record(socket: BorrowedFd<'_>, kind: u8, content: &[u8]) -> io::Result<()> {
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        kind: u8,
        padding: [u8; size_of::<usize>() - 1],
    }
    // SAFETY: a header of zeros is one.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_level = SOL_TLS;
    header.cmsg_type = TLS_SET_RECORD_TYPE;
    header.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
    let mut control = Control { header, kind, padding: [0; size_of::<usize>() - 1] };
    let mut part = libc::iovec { iov_base: content.as_ptr().cast_mut().cast(), iov_len: content.len() };
    // SAFETY: a message of zeros is one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: all that the message names is there during the call, and is only read.
    let sent = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    match sent {
        0.. if sent as usize == content.len() => Ok(()),
        0.. => Err(io::ErrorKind::WriteZero.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that TCP has been given since the connection began.
pub(super) fn written(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut before = acknowledged(socket)?;
    loop {
        let queued = unacknowledged(socket)?;
        // An acknowledgment between the two would be in neither.
        let now = acknowledged(socket)?;
        if now == before {
            return Ok(now + u64::from(queued));
        }
        before = now;
    }
}

/// Bytes that the client has acknowledged.
pub(super) fn acknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0; BYTES_ACKED + 8];
    get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(info.last_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}

/// Bytes that TCP has been given, and that the client has not acknowledged.
pub(super) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut queued: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (which is TIOCOUTQ) writes one int.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if done == 0 { Ok(queued.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
}

/// The first bytes of an option.
fn get(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &mut [u8]) -> io::Result<()> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: no more is written than the slice has room for, as `len` says.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, Stream};

    use super::*;
    use crate::Session;

    const LONG: usize = 4 << 20;

    fn document() -> Vec<u8> {
        (0..LONG).map(|at| (at * 7 % 251) as u8).collect()
    }

    /// Both ends of TLS, and what the server's certificate is checked with.
    fn configs(version: &'static rustls::SupportedProtocolVersion) -> (ServerConfig, ClientConfig) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let certificate = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut server = ServerConfig::builder_with_protocol_versions(&[version])
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        server.enable_secret_extraction = true;
        let client = ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots);
        (server, client.with_no_client_auth())
    }

    /// Sends all that the session has, by the kernel if it encrypts.
    fn flush(socket: &mut TcpStream, session: &mut Session, sealing: Option<&mut Sealing>) {
        let Some(sealing) = sealing else {
            socket.write_all(session.outgoing()).unwrap();
            session.outgoing().clear();
            return;
        };
        let mut at = 0;
        while at < session.outgoing().len() {
            match sealing.write(socket.as_fd(), &mut session.outgoing()[at..]) {
                Ok(len) => at += len,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        session.outgoing().clear();
    }

    /// Hears from the client until it has said so much.
    fn hear(socket: &mut TcpStream, session: &mut Session, sealing: &mut Option<Sealing>, len: usize) {
        let mut buffer = [0; 4096];
        while session.data().len() < len {
            let read = socket.read(&mut buffer).unwrap();
            assert!(read > 0, "the client has gone");
            session.receive(&buffer[..read]).unwrap();
            flush(socket, session, sealing.as_mut());
        }
        session.take(len);
    }

    fn wait_until_through(socket: &TcpStream, sealing: &Sealing) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !sealing.is_through(socket.as_fd()).unwrap() {
            assert!(Instant::now() < deadline, "{sealing:?}, {:?}", written(socket.as_fd()));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends the document by records made here, or through a pipe.
    fn send_document(socket: &mut TcpStream, session: &mut Session, sealing: &mut Sealing, spliced: bool) {
        if !spliced {
            for piece in document().chunks(50_000) {
                session.send(piece).unwrap();
                flush(socket, session, Some(sealing));
            }
            return;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        let server = thread::spawn(move || server.write_all(&document()).unwrap());
        let mut pipe = Pipe::new().unwrap();
        loop {
            let again = |error: io::Error| {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                thread::sleep(Duration::from_millis(1));
            };
            match pipe.holds() {
                0 => match pipe.take(from.as_fd(), usize::MAX >> 1) {
                    Ok(0) => break,
                    taken => drop(taken.map_err(again)),
                },
                _ => match sealing.splice(socket.as_fd(), &mut pipe) {
                    Ok(len) => session.has_spliced(len),
                    Err(error) => again(error),
                },
            }
        }
        server.join().unwrap();
    }

    fn gets_all(version: &'static rustls::SupportedProtocolVersion, with_new_keys: bool) {
        let (server, client) = configs(version);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            let mut client =
                ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
            let mut stream = Stream::new(&mut client, &mut other);
            for _ in 0..3 {
                stream.write_all(b"?").unwrap();
                let mut heard = vec![0; LONG];
                stream.read_exact(&mut heard).unwrap();
                assert!(heard == document());
                if with_new_keys {
                    stream.conn.refresh_traffic_keys().unwrap();
                }
            }
            stream.write_all(b"!").unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the end");
        });
        let mut session = Session::new(&server).unwrap();
        let mut sealing = None;
        for round in 0..3 {
            hear(&mut socket, &mut session, &mut sealing, 1);
            if sealing.is_none() {
                let set = |info: &[u8]| {
                    attach(socket.as_fd())?;
                    set_keys(socket.as_fd(), info)?;
                    sealing = Some(Sealing::new(socket.as_fd(), info)?);
                    Ok(())
                };
                assert!(session.seal_by_kernel(set).unwrap());
            }
            send_document(&mut socket, &mut session, sealing.as_mut().unwrap(), round != 1);
            wait_until_through(&socket, sealing.as_ref().unwrap());
        }
        hear(&mut socket, &mut session, &mut sealing, 1);
        session.close().unwrap();
        flush(&mut socket, &mut session, sealing.as_mut());
        wait_until_through(&socket, sealing.as_ref().unwrap());
        drop(socket);
        reader.join().unwrap();
    }

    #[test]
    #[ignore = "needs a kernel with kTLS: modprobe tls"]
    fn a_client_gets_all_that_the_kernel_has_encrypted() {
        assert_ne!(KernelTls::of_this_machine(), KernelTls::None, "this kernel has no kTLS");
        gets_all(&rustls::version::TLS12, false);
        if KernelTls::of_this_machine() == KernelTls::All {
            gets_all(&rustls::version::TLS13, false);
            gets_all(&rustls::version::TLS13, true);
        }
    }
}
