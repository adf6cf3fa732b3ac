//! Rate limits: how often clients may do something.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::Network;
use crate::limits::time;

/// Allowed values of `rate` and `burst`.
pub(crate) const EVENTS: RangeInclusive<u32> = 1..=10_000_000;
/// Allowed values of `period`.
pub(crate) const PERIOD: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);
/// Allowed values of `concurrent`.
pub(crate) const CONCURRENT: RangeInclusive<u32> = 1..=10_000_000;
/// `period` without one.
pub(crate) const DEFAULT_PERIOD: Duration = Duration::from_secs(1);
/// Allowed lengths of prefixes of sources.
pub(crate) const PREFIX_V4: RangeInclusive<u8> = 8..=32;
pub(crate) const PREFIX_V6: RangeInclusive<u8> = 16..=128;
/// Prefixes without others.
pub(crate) const DEFAULT_PREFIXES: (u8, u8) = (32, 64);

/// A rate, kept by a token bucket. Displays as `100 in 1s, burst 200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of events in a period; at least 1.
    pub events: u32,
    /// The period.
    pub period: Duration,
    /// Capacity of the bucket: most events at once; at least 1.
    pub burst: u32,
}

impl Rate {
    /// Time in which the bucket gains a token, in nanoseconds; at least 1.
    pub fn interval_ns(&self) -> u64 {
        ((self.period.as_nanos() / u128::from(self.events)) as u64).max(1)
    }

    /// How far ahead of its rate a source may be, in nanoseconds; less than 2^60.
    pub fn tolerance_ns(&self) -> u64 {
        u64::from(self.burst - 1).saturating_mul(self.interval_ns()).min((1 << 60) - 1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}, burst {}", self.events, time(self.period), self.burst)
    }
}

/// What becomes of a request over the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// It is answered 429 with `Retry-After`.
    #[default]
    Refuse,
    /// It waits until the rate allows it, at most [`Limits::wait_timeout`](crate::Limits::wait_timeout); if it would have
    /// to wait for longer, it is answered 429.
    Wait,
}

impl Over {
    pub(crate) const ALL: [Over; 2] = [Over::Refuse, Over::Wait];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Over::Refuse => "refuse",
            Over::Wait => "wait",
        }
    }
}

/// A limit of requests. Displays as its rate, and `, wait` if requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// The rate.
    pub rate: Rate,
    /// Over it.
    pub over: Over,
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = if self.over == Over::Wait { ", wait" } else { "" };
        write!(f, "{}{wait}", self.rate)
    }
}

/// A limit for each client, and one for all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<T> {
    /// For each client, as [`ServiceLimits::prefixes`] tell them apart.
    pub client: Option<T>,
    /// For all clients.
    pub all: Option<T>,
}

impl<T> Default for Limit<T> {
    fn default() -> Self {
        Limit { client: None, all: None }
    }
}

impl<T> Limit<T> {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.client.is_none() && self.all.is_none()
    }

    /// Its limits in words, such as `requests of each client: 100 in 1s, burst 200`.
    pub fn shown(&self, events: &str) -> impl Iterator<Item = String>
    where
        T: fmt::Display,
    {
        let client = self.client.as_ref().map(|limit| format!("{events} of each client: {limit}"));
        let all = self.all.as_ref().map(|limit| format!("{events} of all clients: {limit}"));
        client.into_iter().chain(all)
    }

    pub(crate) fn in_words(&self, of: impl Fn(&T) -> String) -> [String; 2] {
        [&self.client, &self.all].map(|limit| limit.as_ref().map_or("any".to_owned(), &of))
    }
}

/// Limits of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Lengths of the prefixes (IPv4, IPv6) whose addresses count as one client.
    pub prefixes: (u8, u8),
    /// New connections, counted when their first data comes. Those over the limit are not answered.
    pub connections: Limit<Rate>,
    /// Connections at a time. Those over the limit are not answered.
    pub concurrent: Limit<u32>,
    /// Requests.
    pub requests: Limit<RequestRate>,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        ServiceLimits {
            prefixes: DEFAULT_PREFIXES,
            connections: Limit::default(),
            concurrent: Limit::default(),
            requests: Limit::default(),
        }
    }
}

impl ServiceLimits {
    /// The network whose addresses count as one client with this one, by its first address.
    pub fn network(&self, client: IpAddr) -> IpAddr {
        let (len, unspecified) = match client {
            IpAddr::V4(_) => (self.prefixes.0, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            IpAddr::V6(_) => (self.prefixes.1, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        Network::around(client, len).map_or(unspecified, |network| network.address)
    }

    /// All limits in words.
    pub fn shown(&self) -> impl Iterator<Item = String> {
        let concurrent = self.concurrent.shown("connections at a time");
        self.connections.shown("connections").chain(concurrent).chain(self.requests.shown("requests"))
    }

    /// Each key with its value.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 8] {
        let [client_connections, all_connections] = self.connections.in_words(Rate::to_string);
        let [client_concurrent, all_concurrent] = self.concurrent.in_words(u32::to_string);
        let [client_requests, all_requests] = self.requests.in_words(RequestRate::to_string);
        [
            ("limit.client.connections", client_connections),
            ("limit.client.concurrent", client_concurrent),
            ("limit.client.requests", client_requests),
            ("limit.all.connections", all_connections),
            ("limit.all.concurrent", all_concurrent),
            ("limit.all.requests", all_requests),
            ("limit.ipv4_prefix", self.prefixes.0.to_string()),
            ("limit.ipv6_prefix", self.prefixes.1.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_those_of_the_prefixes() {
        let of = |prefixes, client: &str| {
            let limits = ServiceLimits { prefixes, ..ServiceLimits::default() };
            limits.network(client.parse().unwrap()).to_string()
        };
        assert_eq!(of((24, 64), "198.51.100.7"), "198.51.100.0");
        assert_eq!(of((24, 64), "2001:db8::1:2"), "2001:db8::");
        assert_eq!(of((32, 128), "2001:db8::1"), "2001:db8::1");
    }

    #[test]
    fn intervals_and_tolerances_are_those_of_the_rate() {
        let rate = Rate { events: 100, period: Duration::from_secs(1), burst: 1 };
        assert_eq!((rate.interval_ns(), rate.tolerance_ns()), (10_000_000, 0));
        let rate = Rate { events: 5, period: Duration::from_secs(60), burst: 10 };
        assert_eq!((rate.interval_ns(), rate.tolerance_ns()), (12_000_000_000, 108_000_000_000));
        let most = Rate { events: *EVENTS.end(), period: *PERIOD.start(), burst: *EVENTS.end() };
        assert_eq!(most.interval_ns(), 1);
        let slowest = Rate { events: 1, period: *PERIOD.end(), burst: *EVENTS.end() };
        assert_eq!(slowest.tolerance_ns(), (1 << 60) - 1);
    }
}
