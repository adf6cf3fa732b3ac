//! The limits of a service's requests.

use std::net::IpAddr;
use std::time::Duration;

use switchback_config::{Limit, Over, RequestRate, Service, ServiceLimits};

/// [`Bucket::of`] for all requests of a service.
pub const OF_REQUESTS: u32 = 1;
/// Lower numbers are for kinds of events.
const FIRST_ROUTE: u32 = 2;

/// What a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The network whose addresses count as one client; None counts all clients.
    pub client: Option<IpAddr>,
    /// Hash of the service's name.
    pub service: u32,
    /// [`OF_REQUESTS`], or the hash of a route.
    pub of: u32,
}

/// A token that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Of this bucket.
    pub bucket: Bucket,
    /// Time in which the bucket gains a token, in nanoseconds.
    pub interval_ns: u64,
    /// `interval_ns` for each token but one of a full bucket.
    pub tolerance_ns: u64,
    /// How long the request would wait for the token, in nanoseconds.
    pub patience_ns: u64,
}

/// The limits of requests of a service and its routes.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    service: u32,
    limits: ServiceLimits,
    /// By the index of the route: its hash and its limits.
    routes: Vec<(u32, Limit<RequestRate>)>,
    patience: Duration,
}

impl RequestLimits {
    /// The limits of `service`. Requests wait for at most `patience`. Buckets are told apart by `hash`, so that they outlive
    /// a change of anything else in the configuration.
    pub fn new(service: &Service, patience: Duration, hash: impl Fn(&str) -> u32) -> Self {
        let routes = service.routes.iter();
        let routes = routes.map(|route| (hash(&route.in_words()).max(FIRST_ROUTE), route.limit));
        RequestLimits {
            service: hash(&service.name),
            limits: service.limits,
            routes: routes.collect(),
            patience,
        }
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.limits.requests.is_none() && self.routes.iter().all(|(_, limit)| limit.is_none())
    }

    /// The tokens that a request of this client needs, which the route with this index takes.
    pub fn wishes(&self, client: IpAddr, route: Option<usize>) -> Vec<Wish> {
        let route = route.and_then(|route| self.routes.get(route));
        let of_route = route.map(|(hash, limit)| (*hash, limit));
        let limits = [Some((OF_REQUESTS, &self.limits.requests)), of_route];
        let mut wishes = Vec::new();
        for (of, limit) in limits.into_iter().flatten() {
            let network = || Some(self.limits.network(client));
            wishes.extend(limit.client.as_ref().map(|rate| self.wish(network(), of, rate)));
            wishes.extend(limit.all.as_ref().map(|rate| self.wish(None, of, rate)));
        }
        wishes
    }

    fn wish(&self, client: Option<IpAddr>, of: u32, RequestRate { rate, over }: &RequestRate) -> Wish {
        let patience = match over {
            Over::Refuse => Duration::ZERO,
            Over::Wait => self.patience,
        };
        Wish {
            bucket: Bucket { client, service: self.service, of },
            interval_ns: rate.interval_ns(),
            tolerance_ns: rate.tolerance_ns(),
            patience_ns: patience.as_nanos() as u64,
        }
    }
}
