//! Conversations that begin at given times, whether or not earlier ones have ended.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use switchback_lab::{Doing, Host, Result};

use super::{Client, Conversations, Document, End, Event, Requests};

/// A planned conversation.
#[derive(Clone, Debug)]
pub(in super::super) struct Arrival {
    /// Time from the start of the load.
    pub(in super::super) at: Duration,
    /// Index of the client.
    pub(in super::super) client: usize,
    /// The requested documents, one after the other.
    pub(in super::super) documents: Vec<Document>,
}

/// The outcome of the conversations; times in milliseconds, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Times from the planned start of a conversation to the end of its handshake.
    pub handshakes_ms: Vec<f64>,
    /// Times from the planned start of a request to the first byte of its response. The first request of a conversation
    /// includes the handshake.
    pub first_bytes_ms: Vec<f64>,
    /// Times from the planned start of a request to the last byte of its response.
    pub responses_ms: Vec<f64>,
    /// Number of resumed handshakes.
    pub resumed: u64,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Time from the first arrival to the last response.
    pub lasted: Duration,
    /// Conversations that timed out.
    pub timeouts: u64,
    /// Conversations that ended otherwise before all requests were answered.
    pub broken: u64,
    /// Conversations with a wrong answer.
    pub wrong: u64,
}

impl Outcome {
    /// Number of failed conversations.
    pub fn errors(&self) -> u64 {
        self.timeouts + self.broken + self.wrong
    }

    fn hear(&mut self, event: Event) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        match event {
            Event::Shaken { took, resumed } => {
                self.handshakes_ms.push(ms(took));
                self.resumed += u64::from(resumed);
            }
            Event::Answered { took, first_byte, bytes } => {
                self.first_bytes_ms.push(ms(first_byte));
                self.responses_ms.push(ms(took));
                self.bytes += bytes as u64;
            }
            Event::Ended(End::Good) => {}
            Event::Ended(End::Timeout) => self.timeouts += 1,
            Event::Ended(End::Broken | End::Tls) => self.broken += 1,
            Event::Ended(End::Wrong) => self.wrong += 1,
        }
    }
}

/// Loads a server from this host until every conversation has ended, at most until `timeout` after the last planned
/// start.
pub(in super::super) fn run(
    host: &Host,
    server: SocketAddr,
    text: &[u8],
    clients: &[Client],
    arrivals: &[Arrival],
    timeout: Duration,
) -> Result<Outcome> {
    host.enter(|| load(server, text, clients, arrivals, timeout))?.doing(|| format!("load {server}"))
}

pub(super) fn load(
    server: SocketAddr,
    text: &[u8],
    clients: &[Client],
    arrivals: &[Arrival],
    timeout: Duration,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut conversations = Conversations::new(server, text, timeout)?;
    let start = Instant::now();
    let mut arrivals = arrivals.iter().peekable();
    while arrivals.peek().is_some() || conversations.active() > 0 {
        let next = arrivals.peek().map(|next| start + next.at);
        conversations.go_on(next, |_, event| {
            outcome.hear(event);
            outcome.lasted = start.elapsed();
        })?;
        while let Some(arrival) = arrivals.next_if(|next| start.elapsed() >= next.at) {
            let requests = Requests::Each(arrival.documents.clone());
            conversations.begin(&clients[arrival.client], requests, start + arrival.at)?;
        }
    }
    for times in [&mut outcome.handshakes_ms, &mut outcome.first_bytes_ms, &mut outcome.responses_ms] {
        times.sort_by(f64::total_cmp);
    }
    Ok(outcome)
}
