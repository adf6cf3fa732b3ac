//! Conversations that begin at given times, whatever became of earlier ones.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use switchback_lab::{Doing, Host, Result};

use super::{Client, Conversations, Document, End, Event, Requests};

/// A conversation that is to begin.
#[derive(Clone, Debug)]
pub(in super::super) struct Arrival {
    /// From the start of the load.
    pub(in super::super) at: Duration,
    /// Which of the clients.
    pub(in super::super) client: usize,
    /// What it asks for, one after the other.
    pub(in super::super) documents: Vec<Document>,
}

/// What became of the conversations; times in milliseconds, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From when a conversation was to begin to the end of its handshake.
    pub handshakes_ms: Vec<f64>,
    /// From when a request was to be made to the first byte of its response. The first of a conversation has the
    /// handshake in it.
    pub first_bytes_ms: Vec<f64>,
    /// Likewise, to the last byte.
    pub responses_ms: Vec<f64>,
    /// Of the handshakes those that went on with an earlier session.
    pub resumed: u64,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// From the first arrival to the last response.
    pub lasted: Duration,
    /// Conversations that were not over in time.
    pub timeouts: u64,
    /// Conversations that ended otherwise before all was answered.
    pub broken: u64,
    /// Conversations with another answer than the right one.
    pub wrong: u64,
}

impl Outcome {
    /// Conversations that did not end well.
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

/// Loads a server from this host until every conversation is over, for at most `timeout` after the last one was to begin.
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
