//! Limits of what clients take of an agent: connections, handshakes under way, and streams of HTTP/2 that are
//! being answered.
//!
//! Each is counted for a source (an IPv4 address, or an IPv6 /64), for a service, and for the whole agent.
//! What a connection or a stream may keep in memory is bounded where it is kept, so these numbers bound the
//! memory of the agent. A client behind a source that takes more than its part is still served: a connection
//! may always have a few streams, whatever the others of its source have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use switchback_config::{Caps, TlsLimits};

/// Streams that a connection may have, although those of its source or its service are used up.
const STREAMS_AT_LEAST: usize = 4;
/// What clients of one source may send that no server has read, in bytes, shared among its connections.
const RECEIVED: usize = 16 << 20;
/// Least and most of that for one connection; the least is the initial window of HTTP/2 (RFC 9113 section
/// 6.9.2).
const RECEIVED_BY_ONE: [usize; 2] = [65_535, 1 << 20];

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Connections.
    Connection,
    /// Handshakes under way.
    Handshake,
    /// Streams that are being answered.
    Stream,
}

impl Kind {
    fn caps(self, limits: &TlsLimits) -> Caps {
        match self {
            Kind::Connection => limits.connections,
            Kind::Handshake => limits.handshakes,
            Kind::Stream => limits.streams,
        }
    }
}

/// Number in use of each kind.
type Uses = [usize; 3];

#[derive(Debug, Default)]
struct Table {
    all: Uses,
    services: HashMap<Arc<str>, Uses>,
    sources: HashMap<IpAddr, Uses>,
    /// Number of permits that have ended.
    ended: u64,
}

/// Resources in use.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<Table>);

/// Permission for one connection, handshake or stream, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    budgets: Arc<Budgets>,
    kind: Kind,
    service: Arc<str>,
    source: IpAddr,
}

impl Budgets {
    /// A permit for one more, if it is within these limits, or its owner has fewer than it may always have.
    pub(super) fn take(
        self: &Arc<Self>,
        kind: Kind,
        service: &Arc<str>,
        client: IpAddr,
        limits: &TlsLimits,
        may_always: Always,
    ) -> Option<Permit> {
        let source = source_of(client);
        let (caps, kind_index) = (kind.caps(limits), kind as usize);
        let mut table = self.lock();
        let is_full = table.all[kind_index] >= caps.all;
        let is_crowded = table.of_service(service)[kind_index] >= caps.service
            || table.of_source(&source)[kind_index] >= caps.source;
        let has_room = match may_always {
            Always::Never => !is_full && !is_crowded,
            Always::InCrowd => !is_full,
            Always::Yes => true,
        };
        if !has_room {
            return None;
        }
        let table = &mut *table;
        table.all[kind_index] += 1;
        table.services.entry(Arc::clone(service)).or_default()[kind_index] += 1;
        table.sources.entry(source).or_default()[kind_index] += 1;
        Some(Permit { budgets: Arc::clone(self), kind, service: Arc::clone(service), source })
    }

    /// Receive window of a connection of this client, in bytes.
    pub(super) fn receive_window(&self, client: IpAddr) -> u32 {
        let connections = self.lock().of_source(&source_of(client))[Kind::Connection as usize];
        let [least, most] = RECEIVED_BY_ONE;
        (RECEIVED / connections.max(1)).clamp(least, most) as u32
    }

    /// Number of permits that have ended since the start.
    pub(super) fn ended(&self) -> u64 {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a limit may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Always {
    Never,
    /// Whatever the source and the service have.
    InCrowd,
    Yes,
}

impl Table {
    fn of_service(&self, service: &str) -> Uses {
        self.services.get(service).copied().unwrap_or_default()
    }

    fn of_source(&self, source: &IpAddr) -> Uses {
        self.sources.get(source).copied().unwrap_or_default()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut table = self.budgets.lock();
        let kind = self.kind as usize;
        table.all[kind] -= 1;
        table.ended += 1;
        if let Entry::Occupied(entry) = table.services.entry(Arc::clone(&self.service)) {
            give_back(entry, kind);
        }
        if let Entry::Occupied(entry) = table.sources.entry(self.source) {
            give_back(entry, kind);
        }
    }
}

/// Counts one less; entries with nothing in use are removed.
fn give_back<K>(mut entry: std::collections::hash_map::OccupiedEntry<'_, K, Uses>, kind: usize) {
    entry.get_mut()[kind] -= 1;
    if *entry.get() == Uses::default() {
        entry.remove();
    }
}

/// Source that an address belongs to.
fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    budgets: Arc<Budgets>,
    service: Arc<str>,
    client: IpAddr,
    limits: TlsLimits,
    open: AtomicUsize,
}

/// Permission for one stream of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    streams: Arc<Streams>,
    _permit: Permit,
}

impl Streams {
    pub(super) fn new(
        budgets: &Arc<Budgets>,
        service: &Arc<str>,
        client: IpAddr,
        limits: TlsLimits,
    ) -> Arc<Self> {
        let (budgets, service) = (Arc::clone(budgets), Arc::clone(service));
        Arc::new(Streams { budgets, service, client, limits, open: AtomicUsize::new(0) })
    }

    /// A permit for one more stream, if the limits allow it.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Stream> {
        let may_always = match self.open.load(Ordering::Relaxed) {
            0 => Always::Yes,
            open if open < STREAMS_AT_LEAST => Always::InCrowd,
            _ => Always::Never,
        };
        let permit = self.budgets.take(Kind::Stream, &self.service, self.client, &self.limits, may_always)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Stream { streams: Arc::clone(self), _permit: permit })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TlsLimits = TlsLimits {
        connections: Caps { source: 2, service: 3, all: 4 },
        handshakes: Caps { source: 1, service: 1, all: 1 },
        streams: Caps { source: 6, service: 8, all: 9 },
        streams_per_connection: 128,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_source_service_and_agent_has_a_limit() {
        let budgets = Arc::new(Budgets::default());
        let (shop, other): (Arc<str>, Arc<str>) = ("shop".into(), "other".into());
        let take = |service, client| {
            budgets.take(Kind::Connection, service, address(client), &LIMITS, Always::Never)
        };
        let first = take(&shop, "2001:db8::1").unwrap();
        let _second = take(&shop, "2001:db8::2:0:0:1").unwrap();
        assert!(take(&other, "2001:db8::3").is_none(), "two of one /64");
        let third = take(&shop, "2001:db8:0:1::1").unwrap();
        assert!(take(&shop, "192.0.2.1").is_none(), "three of the service");
        let _fourth = take(&other, "::ffff:192.0.2.1").unwrap();
        assert!(take(&other, "192.0.2.2").is_none(), "four in all");
        drop(third);
        assert!(take(&other, "192.0.2.1").is_some(), "the same address in another form");
        drop(first);
        assert!(take(&shop, "2001:db8::4").is_some());
        let handshake =
            |client| budgets.take(Kind::Handshake, &shop, address(client), &LIMITS, Always::Never);
        assert!(handshake("192.0.2.1").is_some_and(|_first| handshake("192.0.2.2").is_none()));
    }

    #[test]
    fn nobody_is_remembered_who_has_nothing() {
        let budgets = Arc::new(Budgets::default());
        drop(budgets.take(Kind::Stream, &"shop".into(), address("192.0.2.1"), &LIMITS, Always::Never));
        let table = budgets.lock();
        assert!(table.services.is_empty() && table.sources.is_empty() && table.all == [0; 3]);
    }

    #[test]
    fn a_connection_has_a_few_streams_beside_one_that_has_many() {
        let budgets = Arc::new(Budgets::default());
        let streams = |client| Streams::new(&budgets, &"shop".into(), address(client), LIMITS);
        let greedy = streams("192.0.2.1");
        let mut taken: Vec<Stream> = std::iter::from_fn(|| greedy.begin()).collect();
        assert_eq!(taken.len(), LIMITS.streams.source);
        let polite = streams("192.0.2.1");
        let few: Vec<Stream> = std::iter::from_fn(|| polite.begin()).take(10).collect();
        assert_eq!(few.len(), LIMITS.streams.all - LIMITS.streams.source);
        // When the agent is full as well, one.
        let late = streams("192.0.2.2");
        let one: Vec<Stream> = std::iter::from_fn(|| late.begin()).take(10).collect();
        assert_eq!(one.len(), 1);
        taken.truncate(3);
        drop((few, one));
        assert!(greedy.begin().is_some());
    }

    #[test]
    fn the_more_connections_the_less_each_may_send_ahead() {
        let budgets = Arc::new(Budgets::default());
        let client = address("192.0.2.1");
        assert_eq!(budgets.receive_window(client), 1 << 20);
        let limits = TlsLimits { connections: Caps { source: 1000, service: 1000, all: 1000 }, ..LIMITS };
        let take = || budgets.take(Kind::Connection, &"shop".into(), client, &limits, Always::Never);
        let all: Vec<Permit> = (0..1000).filter_map(|_| take()).collect();
        assert_eq!((all.len(), budgets.receive_window(client)), (1000, 65_535));
        assert_eq!(budgets.receive_window(address("192.0.2.2")), 1 << 20);
    }
}
