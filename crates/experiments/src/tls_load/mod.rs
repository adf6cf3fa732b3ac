//! Clients of a service over TLS: conversations of handshake, requests and responses, many at once on one thread.
//!
//! wrk and httperf do not support session tickets. These clients do: each keeps its own, as a browser does, and
//! compares its responses byte by byte. [`open`] begins conversations at given times, [`closed`] has a fixed number of
//! them.
//!
//! Keys are exchanged by X25519 and records sealed by AES-128-GCM, whatever else a server supports, so that all servers
//! do the same work.

mod certificate;
pub(super) mod closed;
mod conversation;
pub(super) mod open;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rustls::pki_types::ServerName;

pub(super) use certificate::{BOTH, Certificate, Client, KeyKind, NAME, Version, service_table};
use conversation::{Conversation, End, Event, Step};
pub(super) use conversation::{Document, Requests};
use switchback_lab::{Host, Result};

const EVENTS_AT_ONCE: usize = 64;

/// Allows a host many successive connections, by freeing their ports after a second.
pub(super) fn prepare(client: &Host) -> Result<()> {
    client.sysctl(&[("ipv4/tcp_tw_reuse", "1"), ("ipv4/ip_local_port_range", "1024 65535")])
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
    use std::sync::Arc;
    use std::thread;

    use rustls::crypto::aws_lc_rs;
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
