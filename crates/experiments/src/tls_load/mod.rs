//! Clients of a service over TLS: conversations of handshake, requests and responses, many at once on one thread.
//!
//! wrk and httperf do not support session tickets. These clients do: each keeps its own, as a browser does, and
//! compares its responses byte by byte. [`open`] begins conversations at given times, [`closed`] has a fixed number of
//! them.
//!
//! Keys are exchanged by X25519 and records sealed by AES-128-GCM, whatever else a server supports, so that all servers
//! do the same work.

pub(super) mod closed;
mod conversation;
pub(super) mod open;

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore};

pub(super) use conversation::Requests;
use conversation::{Conversation, Step};
use switchback_lab::{Doing, Error, Host, Lab, Result};

/// The name in the certificate.
const NAME: &str = "shop.example.com";
/// TLS 1.3 tickets that a client keeps for a server; it uses each once (RFC 8446 appendix C.4).
const TICKETS: usize = 8;
const EVENTS_AT_ONCE: usize = 64;

/// The key of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// ECDSA over P-256.
    Ecdsa,
    /// RSA with 2,048 bits.
    Rsa,
}

/// The clients' TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Tls12,
    Tls13,
}

/// A certificate of the lab's own.
pub(super) struct Certificate {
    chain: String,
    key: String,
    trusted: Arc<RootCertStore>,
}

/// The names of its files, which are beside the lab's configuration; the last one has both, as HAProxy needs it.
pub(super) const CHAIN: &str = "shop.pem";
pub(super) const KEY: &str = "shop.key";
pub(super) const BOTH: &str = "shop-both.pem";

/// `[service.tls]` of a configuration, with additional lines: nodes end TLS with the certificate before `server`.
pub(super) fn service_table(server: impl fmt::Display, lines: &str) -> String {
    format!(
        "[service.tls]\nserver = \"{server}\"\n{lines}\n\n\
         [[service.tls.certificate]]\nchain = \"{CHAIN}\"\nkey = \"{KEY}\"\n\n"
    )
}

impl Certificate {
    /// Creates a certificate and writes its files.
    pub(super) fn create(lab: &Lab, kind: KeyKind) -> Result<Certificate> {
        let certificate = Certificate::make(kind).map_err(|error| invalid("make a certificate", &error))?;
        let Certificate { chain, key, .. } = &certificate;
        for (name, text) in [(CHAIN, chain), (KEY, key), (BOTH, &format!("{chain}{key}"))] {
            let path = lab.directory().join(name);
            fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        }
        Ok(certificate)
    }

    fn make(kind: KeyKind) -> std::result::Result<Certificate, Box<dyn std::error::Error>> {
        let algorithm = match kind {
            KeyKind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
        };
        let key = KeyPair::generate_for(algorithm)?;
        let certificate = CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.der().clone())?;
        Ok(Certificate { chain: certificate.pem(), key: key.serialize_pem(), trusted: Arc::new(trusted) })
    }

    /// A client that trusts the certificate. One that `returns` keeps its sessions.
    pub(super) fn client(&self, version: Version, returns: bool) -> Result<Client> {
        let mut provider = aws_lc_rs::default_provider();
        // TLS 1.2 also needs the curve of the certificate's key (RFC 8422 section 5.1.1).
        provider.kx_groups = vec![aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1];
        provider.cipher_suites.retain(|suite| {
            let aes_128 = [
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ];
            aes_128.contains(&suite.suite())
        });
        self.client_with(provider, version, returns).map_err(|error| invalid("make a client", &error))
    }

    fn client_with(
        &self,
        provider: CryptoProvider,
        version: Version,
        returns: bool,
    ) -> std::result::Result<Client, rustls::Error> {
        let version = match version {
            Version::Tls12 => &rustls::version::TLS12,
            Version::Tls13 => &rustls::version::TLS13,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])?
            .with_root_certificates(Arc::clone(&self.trusted))
            .with_no_client_auth();
        config.resumption =
            if returns { Resumption::store(Arc::new(Sessions::default())) } else { Resumption::disabled() };
        Ok(Client { config: Arc::new(config) })
    }
}

fn invalid(what: &str, error: &dyn fmt::Display) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

/// Allows a host many successive connections, by freeing their ports after a second.
pub(super) fn prepare(client: &Host) -> Result<()> {
    client.sysctl(&[("ipv4/tcp_tw_reuse", "1"), ("ipv4/ip_local_port_range", "1024 65535")])
}

/// A client with its sessions.
#[derive(Clone, Debug)]
pub(super) struct Client {
    config: Arc<ClientConfig>,
}

/// The sessions of a client with its only server.
#[derive(Debug, Default)]
struct Sessions(Mutex<(Option<Tls12ClientSessionValue>, VecDeque<Tls13ClientSessionValue>)>);

impl Sessions {
    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, (Option<Tls12ClientSessionValue>, VecDeque<Tls13ClientSessionValue>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().0 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().0.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().0 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let tickets = &mut self.lock().1;
        if tickets.len() >= TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().1.pop_back()
    }
}

/// A requested document: `/name`, which has the first bytes of a text common to all documents.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) path: String,
    pub(super) len: usize,
}

/// An event of a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    /// The handshake is complete; `took` counts from the planned start of the conversation.
    Shaken { took: Duration, resumed: bool },
    /// A response is complete and correct. The first request counts from the planned start of the conversation.
    Answered { took: Duration, first_byte: Duration, bytes: usize },
    /// The conversation has ended.
    Ended(End),
}

/// The end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All requests were answered.
    Good,
    /// Timed out.
    Timeout,
    /// Refused, or reset.
    Broken,
    /// The server's TLS is not supported by the client, or the server sent an alert.
    Tls,
    /// Another status than 200, or another body.
    Wrong,
}

/// All conversations with a server.
struct Conversations<'a> {
    server: SocketAddr,
    name: ServerName<'static>,
    /// The text whose first bytes are the documents.
    text: &'a [u8],
    timeout: Duration,
    epoll: Epoll,
    /// By number; None for ended ones.
    all: Vec<Option<Conversation>>,
    /// The deadline of each conversation, in order of their start.
    deadlines: VecDeque<(Instant, usize)>,
    active: usize,
}

impl<'a> Conversations<'a> {
    fn new(server: SocketAddr, text: &'a [u8], timeout: Duration) -> io::Result<Self> {
        Ok(Conversations {
            server,
            name: ServerName::try_from(NAME).map_err(io::Error::other)?,
            text,
            timeout,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            all: Vec::new(),
            deadlines: VecDeque::new(),
            active: 0,
        })
    }

    /// Number of open conversations.
    fn active(&self) -> usize {
        self.active
    }

    /// Begins a conversation that was due at `due`; returns its number, which counts from zero.
    fn begin(&mut self, client: &Client, requests: Requests, due: Instant) -> io::Result<usize> {
        let number = self.all.len();
        let conversation = Conversation::begin(self.server, self.name.clone(), client, requests, due)?;
        let interest = EpollEvent::new(EpollFlags::EPOLLOUT, number as u64);
        self.epoll.add(conversation.stream(), interest)?;
        self.all.push(Some(conversation));
        self.deadlines.push_back((due + self.timeout, number));
        self.active += 1;
        Ok(number)
    }

    /// Continues all conversations that can, after waiting for events until `until` or the next timeout; passes events,
    /// with the conversation's number, to `hear`.
    fn go_on(&mut self, until: Option<Instant>, mut hear: impl FnMut(usize, Event)) -> io::Result<()> {
        while self.deadlines.front().is_some_and(|(_, number)| self.all[*number].is_none()) {
            self.deadlines.pop_front();
        }
        let deadline = self.deadlines.front().map(|(deadline, _)| *deadline);
        let until = deadline.into_iter().chain(until).min();
        let wait = until.map(|until| until.saturating_duration_since(Instant::now()).into());
        // Not epoll_wait, whose timeout is in milliseconds.
        let mut readable = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut readable, wait, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO)?;
        for event in &events[..count] {
            self.step(event.data() as usize, &mut hear)?;
        }
        while let Some((deadline, number)) = self.deadlines.front().copied() {
            if deadline > Instant::now() {
                break;
            }
            self.deadlines.pop_front();
            if self.all[number].take().is_some() {
                self.active -= 1;
                hear(number, Event::Ended(End::Timeout));
            }
        }
        Ok(())
    }

    fn step(&mut self, number: usize, hear: &mut impl FnMut(usize, Event)) -> io::Result<()> {
        let Some(conversation) = &mut self.all[number] else { return Ok(()) };
        match conversation.step(self.text, |event| hear(number, event)) {
            Step::Waits(flags) => {
                self.epoll.modify(conversation.stream(), &mut EpollEvent::new(flags, number as u64))?
            }
            Step::AsBefore => {}
            Step::Over(end) => {
                self.all[number] = None;
                self.active -= 1;
                hear(number, Event::Ended(end));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::open::{Arrival, Outcome};
    use super::*;

    const TEXT: &[u8] = b"what all documents begin with";

    fn server_config(certificate: &Certificate) -> Arc<ServerConfig> {
        let chain = CertificateDer::from_pem_slice(certificate.chain.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).expect("a key");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let mut config = config.with_no_client_auth().with_single_cert(vec![chain], key).expect("they fit");
        config.ticketer = aws_lc_rs::Ticketer::new().expect("random keys");
        Arc::new(config)
    }

    /// Answers each request of a connection with the next of `answers`; an empty one is silence until the client
    /// closes.
    fn serve(socket: TcpStream, config: &Arc<ServerConfig>, answers: &[&str]) {
        let session = ServerConnection::new(Arc::clone(config)).expect("a session");
        let mut stream = StreamOwned::new(session, socket);
        for answer in answers {
            let mut request = [0; 1024];
            let mut len = 0;
            while !request[..len].ends_with(b"\r\n\r\n") {
                len += match stream.read(&mut request[len..]) {
                    Ok(0) | Err(_) => return,
                    Ok(more) => more,
                };
            }
            stream.write_all(answer.as_bytes()).expect("it listens");
            if answer.is_empty() {
                let _ = stream.read(&mut [0]);
            }
        }
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }

    /// The outcome of successive conversations with these answers, each with two requests for the same number of bytes.
    fn outcome(version: Version, all: &'static [&'static [&'static str]]) -> Outcome {
        let certificate = Certificate::make(KeyKind::Ecdsa).expect("a certificate");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let config = server_config(&certificate);
        let server = thread::spawn(move || {
            for answers in all {
                serve(listener.accept().expect("somebody connects").0, &config, answers);
            }
        });
        let client = certificate.client(version, true).expect("a client");
        let document = Document { path: "/d".to_owned(), len: 4 };
        let arrival = |number: usize| Arrival {
            at: Duration::from_millis(50) * number as u32,
            client: 0,
            documents: vec![document.clone(); 2],
        };
        let arrivals: Vec<Arrival> = (0..all.len()).map(arrival).collect();
        let timeout = Duration::from_secs(1);
        let outcome = open::load(address, TEXT, &[client], &arrivals, timeout).expect("sockets can be made");
        server.join().expect("the server does not panic");
        outcome
    }

    const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat";

    #[test]
    fn a_client_that_comes_again_has_its_session() {
        for version in [Version::Tls12, Version::Tls13] {
            let found = outcome(version, &[&[GOOD, GOOD], &[GOOD, GOOD], &[GOOD, GOOD]]);
            assert_eq!((found.errors(), found.resumed, found.bytes), (0, 2, 24), "{version:?} {found:?}");
            assert_eq!((found.handshakes_ms.len(), found.responses_ms.len()), (3, 6), "{version:?}");
        }
    }

    #[test]
    fn what_is_not_the_right_answer_is_counted_as_what_it_is() {
        let found = outcome(
            Version::Tls13,
            &[
                &[GOOD, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhen"],
                &["HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nwhat"],
                &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhat "],
                &[GOOD],
                &[GOOD, ""],
            ],
        );
        assert_eq!((found.wrong, found.broken, found.timeouts), (3, 1, 1), "{found:?}");
        assert_eq!(found.responses_ms.len(), 3, "{found:?}");
    }
}
