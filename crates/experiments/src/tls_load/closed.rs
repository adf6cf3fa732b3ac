//! A fixed number of concurrent conversations: each one that ends is followed by another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use switchback_lab::{Doing, Host, Result};

use super::{Client, Conversations, End, Event, Requests};

/// Timeout of a conversation, longer than any request takes here.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Number of handshakes.
    pub handshakes: u64,
    /// Number of resumed handshakes.
    pub resumed: u64,
    /// Number of responses.
    pub responses: u64,
    /// Bytes of the responses' bodies.
    pub bytes: u64,
    /// Number of successful conversations.
    pub conversations: u64,
    /// Number of failed conversations.
    pub errors: u64,
    /// Duration of the load.
    pub lasted: Duration,
}

/// Loads a server from this host for this time, with one conversation at a time for each client.
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
