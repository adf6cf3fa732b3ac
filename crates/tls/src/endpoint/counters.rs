//! What the services count.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that other threads can read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of a service since the start of the endpoint.
#[derive(Debug, Default)]
pub struct Counters {
    /// Open connections.
    pub connections: Counter,
    /// Handshakes that needed a certificate.
    pub handshakes: Counter,
    /// Handshakes that went on with an earlier session.
    pub resumed: Counter,
    /// Handshakes that failed, or were not done in time.
    pub failed: Counter,
    /// Requests.
    pub requests: Counter,
    /// Responses of the server.
    pub responses: Counter,
    /// Requests that were answered here, with an error.
    pub refused: Counter,
    /// Connections that were closed at once, because there were too many.
    pub connections_refused: Counter,
    /// Connections that were closed at once, because there were too many handshakes.
    pub handshakes_refused: Counter,
    /// Streams of HTTP/2 that were refused, because there were too many.
    pub streams_refused: Counter,
    /// Connections that were given to other nodes, in the middle.
    pub given: Counter,
    /// Connections that other nodes have given.
    pub taken: Counter,
    /// Requests that were forwarded to other nodes.
    pub forwarded: Counter,
    /// Requests given to another node, which makes and encrypts the response.
    pub requests_given: Counter,
    /// Requests of other nodes' clients that were given to this one.
    pub requests_taken: Counter,
    /// Connections whose records the kernel has begun to encrypt.
    pub kernel: Counter,
    /// Responses of which the kernel has moved data.
    pub spliced: Counter,
}

/// Counts a connection until it is dropped.
pub(super) struct Counted<'a>(&'a Counter);

impl<'a> Counted<'a> {
    pub(super) fn new(counter: &'a Counter) -> Self {
        counter.add(1);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.less();
    }
}
