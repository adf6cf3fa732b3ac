//! A fixed number of conversations at a time: each that ends is followed by another one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use switchback_lab::{Doing, Host, Result};

use super::{Client, Conversations, End, Event, Requests};

/// Nothing that is asked for here takes so long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What was done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Handshakes.
    pub handshakes: u64,
    /// Those of them that went on with an earlier session.
    pub resumed: u64,
    /// Responses.
    pub responses: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Conversations that ended well.
    pub conversations: u64,
    /// Conversations that did not.
    pub errors: u64,
    /// How long it was done for.
    pub lasted: Duration,
}

/// Loads a server from this host for so long, with one conversation for each of the clients at a time.
pub(in super::super) fn run(
    host: &Host,
    server: SocketAddr,
    text: &[u8],
    clients: &[Client],
    mut requests: impl FnMut() -> Requests + Send,
    limit: Duration,
) -> Result<Done> {
    let load = move || {
        let mut done = Done::default();
        let mut conversations = Conversations::new(server, text, TIMEOUT)?;
        let start = Instant::now();
        // The client of each conversation, by number.
        let mut whose: Vec<usize> = Vec::new();
        let mut idle: Vec<usize> = (0..clients.len()).collect();
        loop {
            while let Some(client) = idle.pop() {
                conversations.begin(&clients[client], requests(), Instant::now())?;
                whose.push(client);
            }
            if start.elapsed() >= limit {
                done.lasted = start.elapsed();
                return Ok::<_, std::io::Error>(done);
            }
            conversations.go_on(Some(start + limit), |number, event| match event {
                Event::Shaken { resumed, .. } => {
                    done.handshakes += 1;
                    done.resumed += u64::from(resumed);
                }
                Event::Answered { bytes, .. } => {
                    done.responses += 1;
                    done.bytes += bytes as u64;
                }
                Event::Ended(end) => {
                    let counter = if end == End::Good { &mut done.conversations } else { &mut done.errors };
                    *counter += 1;
                    idle.push(whose[number]);
                }
            })?;
        }
    };
    host.enter(load)?.doing(|| format!("load {server}"))
}
