//! One TLS connection without its socket: bytes of the client go in, bytes for it come out.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};
use rustls::{HandshakeKind, KeyLog, ProtocolVersion, ServerConfig};
use switchback_hello::{ClientHello, Progress};
use switchback_routes::ACME_TLS;
use zeroize::{Zeroize, Zeroizing};

use crate::keys::Half;
use crate::record_layer::{DATA_MAX, Version};
use crate::records::{Opened, Records};
use crate::{ClientCertificate, Error};

/// Bytes of opened data above which no record is opened until some is taken.
const UNREAD_MAX: usize = 64 << 10;
/// Most bytes that a client may send before its handshake is over.
const HANDSHAKE_MAX: usize = 64 << 10;
/// Alert `handshake_failure` (RFC 5246 section 7.2.2).
const HANDSHAKE_FAILURE: u8 = 40;

/// A connection.
pub struct Session {
    pub(crate) state: State,
    /// Bytes of the client, not opened yet.
    pub(crate) incoming: Vec<u8>,
    /// Bytes for the client.
    pub(crate) outgoing: Vec<u8>,
    /// Opened data of the client; the first `read` bytes have been taken.
    pub(crate) data: Vec<u8>,
    pub(crate) read: usize,
    pub(crate) facts: Facts,
}

pub(crate) enum State {
    Handshake(Box<Handshake>),
    Open(Box<Records>),
    Failed,
}

/// Results of the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The ALPN protocol, if client and server have agreed on one (RFC 7301).
    pub protocol: Option<Vec<u8>>,
    /// The server name that the client sent (SNI).
    pub server_name: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The client's certificate, in a resumed session the one with which that began; None if the client has not shown any.
    pub client: Option<Arc<ClientCertificate>>,
}

pub(crate) struct Handshake {
    connection: UnbufferedServerConnection,
    secrets: Arc<Captured>,
    /// For a CA that wants proof of a domain.
    proofs: Option<Arc<ServerConfig>>,
    /// The ClientHello; None if it is malformed, which rustls reports.
    hello: Option<ClientHello>,
    received: usize,
}

/// Takes the traffic secrets of TLS 1.3 out of a handshake: rustls extracts only the current keys.
#[derive(Default)]
struct Captured(Mutex<[Zeroizing<Vec<u8>>; 2]>);

/// Without keys.
impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Captured")
    }
}

const CAPTURED: [&str; 2] = ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"];

impl KeyLog for Captured {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if let Some(index) = CAPTURED.iter().position(|captured| *captured == label) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Zeroizing::new(secret.to_vec());
        }
    }

    fn will_log(&self, label: &str) -> bool {
        CAPTURED.contains(&label)
    }
}

/// Without keys and data.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Handshake(_) => "handshake",
            State::Open(_) => "open",
            State::Failed => "failed",
        };
        f.debug_struct("Session").field("state", &state).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Session {
    /// A connection of which nothing has been read. The configuration has to allow that secrets are given out
    /// (`enable_secret_extraction`).
    pub fn new(config: &ServerConfig) -> Result<Self, Error> {
        let secrets = Arc::<Captured>::default();
        let connection = connection(config, &secrets)?;
        let handshake = Handshake { connection, secrets, proofs: None, hello: None, received: 0 };
        Ok(Session {
            state: State::Handshake(Box::new(handshake)),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            data: Vec::new(),
            read: 0,
            facts: Facts::default(),
        })
    }

    /// Has a CA that wants proof of a domain (RFC 8737) shake hands by this configuration.
    pub(crate) fn proving(mut self, proofs: Option<Arc<ServerConfig>>) -> Self {
        if let State::Handshake(handshake) = &mut self.state {
            handshake.proofs = proofs;
        }
        self
    }

    /// Takes bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.incoming.extend_from_slice(bytes);
        self.advance()
    }

    /// Opens records, as far as there is room for their data. Answers are in [`outgoing`](Self::outgoing),
    /// also after an error.
    pub fn advance(&mut self) -> Result<(), Error> {
        if let State::Handshake(handshake) = &mut self.state {
            let advanced = handshake.advance(&mut self.incoming, &mut self.outgoing, &mut self.data);
            if let Some(hello) = handshake.hello.take() {
                self.facts.server_name = hello.server_name;
            }
            match advanced {
                Ok(false) => return Ok(()),
                Ok(true) => self.finish_handshake()?,
                Err(error) => {
                    self.state = State::Failed;
                    return Err(error);
                }
            }
        }
        let State::Open(records) = &mut self.state else { return Ok(()) };
        let mut taken = 0;
        let result = loop {
            if self.data.len() - self.read >= UNREAD_MAX {
                break Ok(());
            }
            match records.open(&mut self.incoming[taken..], &mut self.outgoing) {
                Ok(None) => break Ok(()),
                Ok(Some((len, opened))) => {
                    if let Opened::Data(place) = opened {
                        self.data.extend_from_slice(&self.incoming[taken..][place]);
                    }
                    taken += len;
                }
                Err(error) => break Err(error),
            }
        };
        self.incoming.drain(..taken);
        if let Err(error) = &result {
            records.alert(error, &mut self.outgoing);
            self.state = State::Failed;
        }
        result
    }

    fn finish_handshake(&mut self) -> Result<(), Error> {
        let State::Handshake(handshake) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(Error::Internal);
        };
        let Handshake { connection, secrets, .. } = *handshake;
        let client = connection.peer_certificates().and_then(<[_]>::first);
        // The verifier could read it.
        let client =
            client.map(|der| ClientCertificate::new(der)).transpose().map_err(|_| Error::Internal)?;
        self.facts = Facts {
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: self.facts.server_name.take(),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            client: client.map(Arc::new),
        };
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            _ => return Err(Error::Internal),
        };
        let (extracted, _) = connection.dangerous_into_kernel_connection().map_err(Error::Handshake)?;
        let captured = secrets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Half::of_handshake(&extracted.rx, &captured[0])?;
        let write = Half::of_handshake(&extracted.tx, &captured[1])?;
        self.state = State::Open(Box::new(Records::new(version, read, write)));
        Ok(())
    }

    /// Takes the end of the client's stream: an error unless it has sent close_notify.
    pub fn receive_end(&mut self) -> Result<(), Error> {
        match &self.state {
            State::Open(records) if records.is_read_closed() => Ok(()),
            _ => Err(Error::Truncated),
        }
    }

    /// Whether the handshake is still to be done.
    pub fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Handshake(_))
    }

    /// Results of the handshake; before its end only the server name.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Version of TLS, after the handshake.
    pub fn version(&self) -> Option<Version> {
        if let State::Open(records) = &self.state { Some(records.version()) } else { None }
    }

    /// Data of the client that has not been taken.
    pub fn data(&self) -> &[u8] {
        &self.data[self.read..]
    }

    /// Takes bytes of [`data`](Self::data).
    pub fn take(&mut self, len: usize) {
        self.read = (self.read + len).min(self.data.len());
        if self.read == self.data.len() {
            self.data.zeroize();
            self.data.clear();
            self.read = 0;
        } else if self.read > UNREAD_MAX {
            self.data.drain(..self.read);
            self.read = 0;
        }
    }

    /// Whether the client has sent close_notify.
    pub fn is_read_closed(&self) -> bool {
        matches!(&self.state, State::Open(records) if records.is_read_closed())
    }

    /// Whether close_notify has been sent, so that nothing more can be sent.
    pub fn is_write_closed(&self) -> bool {
        !matches!(&self.state, State::Open(records) if !records.is_write_closed())
    }

    /// Whether there is room for more bytes of the client.
    pub fn wants_more(&self) -> bool {
        self.data.len() - self.read < UNREAD_MAX
    }

    /// Bytes for the client; the caller takes those that it sends.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    /// Encrypts data for the client.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        let (records, out) = self.records()?;
        records.sealer()?.data(data, out)
    }

    /// Sends close_notify.
    pub fn close(&mut self) -> Result<(), Error> {
        let (records, out) = self.records()?;
        records.close(out)
    }

    /// Goes on with new keys; with `both`, asks the client for the same. Only in TLS 1.3.
    pub fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        let (records, out) = self.records()?;
        records.sealer()?.update_keys(both, out)
    }

    /// Lets the kernel encrypt from now on, if it takes the keys that `set` gives it: then
    /// [`outgoing`](Self::outgoing) has plain records. False if that is not possible now.
    pub fn seal_by_kernel(&mut self, set: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        let State::Open(records) = &mut self.state else { return Ok(false) };
        if records.write_closed || !self.outgoing.is_empty() {
            return Ok(false);
        }
        match &mut records.write {
            Some(sealer) if !sealer.by_kernel => {
                set(&sealer.half.crypto_info(sealer.version))?;
                sealer.by_kernel = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether the kernel may encrypt data of which no record is made here: not if the keys have encrypted as much as they may,
    /// because the next record made here brings new ones.
    pub fn may_splice(&self) -> bool {
        let State::Open(records) = &self.state else { return false };
        let sealer = records.write.as_ref().filter(|sealer| sealer.by_kernel);
        sealer.is_some_and(|sealer| sealer.half.sequence < sealer.half.cipher.records_max())
    }

    /// Counts such data.
    pub fn has_spliced(&mut self, len: usize) {
        if let State::Open(records) = &mut self.state
            && let Some(sealer) = &mut records.write
        {
            sealer.half.sequence += 1 + (len / DATA_MAX) as u64;
        }
    }

    /// Number of the next record, and the bytes that it has besides its plaintext; None while another node or the kernel
    /// encrypts.
    pub fn next_record(&self) -> Option<(u64, usize)> {
        let State::Open(records) = &self.state else { return None };
        let sealer = records.write.as_ref().filter(|sealer| !sealer.by_kernel)?;
        Some((sealer.half.sequence, sealer.overhead()))
    }

    /// The last record was not encrypted here, and this is the number of the next.
    pub fn seal_here(&mut self, sequence: u64) {
        if let State::Open(records) = &mut self.state
            && let Some(sealer) = &mut records.write
        {
            (sealer.by_kernel, sealer.half.sequence) = (false, sequence);
        }
    }

    fn records(&mut self) -> Result<(&mut Records, &mut Vec<u8>), Error> {
        match &mut self.state {
            State::Open(records) => Ok((records, &mut self.outgoing)),
            _ => Err(Error::Internal),
        }
    }
}

/// Erases data of the client.
impl Drop for Session {
    fn drop(&mut self) {
        self.data.zeroize();
        self.outgoing.zeroize();
    }
}

/// A connection whose traffic secrets are captured.
fn connection(config: &ServerConfig, secrets: &Arc<Captured>) -> Result<UnbufferedServerConnection, Error> {
    let mut config = config.clone();
    config.key_log = Arc::clone(secrets) as _;
    UnbufferedServerConnection::new(Arc::new(config)).map_err(Error::Handshake)
}

impl Handshake {
    /// True when it is over. Data that came with its last message is put behind `data`.
    fn advance(
        &mut self,
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
        data: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if self.received == 0 {
            // It is read as the switch has read it.
            match switchback_hello::read(incoming, HANDSHAKE_MAX) {
                Ok(Progress::Partial(_)) if incoming.len() <= HANDSHAKE_MAX => return Ok(false),
                Ok(Progress::Complete(hello)) => {
                    if let Some(proofs) = self.proofs.take_if(|_| hello.protocols == [ACME_TLS]) {
                        self.connection = connection(&proofs, &self.secrets)?;
                    }
                    self.hello = Some(hello);
                }
                _ => {}
            }
        }
        loop {
            let UnbufferedStatus { mut discard, state } = self.connection.process_tls_records(incoming);
            let mut step = Step::Again;
            let result = match state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(outgoing, |buffer| message.encode(buffer))
                }
                Ok(ConnectionState::TransmitTlsData(transmitted)) => {
                    transmitted.done();
                    Ok(())
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                    match traffic.next_record() {
                        None => break Ok(()),
                        Some(Ok(record)) => {
                            discard += record.discard;
                            data.extend_from_slice(record.payload);
                        }
                        Some(Err(error)) => break Err(Error::Handshake(error)),
                    }
                },
                Ok(ConnectionState::BlockedHandshake) => {
                    step = Step::Wait;
                    Ok(())
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    step = Step::Over;
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Err(Error::Truncated),
                Ok(_) => Err(Error::Internal),
                Err(error) => Err(Error::Handshake(error)),
            };
            self.received += discard;
            incoming.drain(..discard);
            if let Err(error) = result {
                self.drain_alerts(outgoing);
                if let Error::Handshake(rustls::Error::NoCertificatesPresented) = error
                    && self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_2)
                    && let Some(alert) = outgoing.last_mut()
                {
                    // rustls sends certificate_required, which TLS 1.2 does not have. Nothing is encrypted yet.
                    *alert = HANDSHAKE_FAILURE;
                }
                return Err(error);
            }
            match step {
                Step::Again => {}
                Step::Wait if self.received + incoming.len() > HANDSHAKE_MAX => return Err(Error::Overflow),
                Step::Wait => return Ok(false),
                Step::Over => return Ok(true),
            }
        }
    }

    /// Takes the alert of rustls after an error.
    fn drain_alerts(&mut self, outgoing: &mut Vec<u8>) {
        loop {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    if encode(outgoing, |buffer| message.encode(buffer)).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(transmitted)) => transmitted.done(),
                _ => return,
            }
        }
    }
}

enum Step {
    Again,
    Wait,
    Over,
}

/// Appends a message to `out`; `write` returns the room that it needs if there is too little.
fn encode(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let start = out.len();
    let mut room = 0;
    loop {
        out.resize(start + room, 0);
        match write(&mut out[start..]) {
            Ok(len) => {
                out.truncate(start + len);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
                room = required_size;
            }
            Err(EncodeError::AlreadyEncoded) => return Err(Error::Internal),
        }
    }
}
