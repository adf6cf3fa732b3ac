//! Limits of connections and requests.

use crate::mistakes::Mistakes;
use crate::rate::{self, DEFAULT_PERIOD, EVENTS, PERIOD};
use crate::{Limit, Over, Rate, RequestRate, ServiceLimits, TlsMode, raw};

impl Mistakes {
    /// `[service.limit]`
    pub(super) fn service_limits(
        &mut self,
        file: Option<&raw::ServiceLimits>,
        tls: &TlsMode,
    ) -> ServiceLimits {
        let Some(raw::ServiceLimits { ipv4_prefix, ipv6_prefix, client, all }) = file else {
            return ServiceLimits::default();
        };
        let (v4, v6) = rate::DEFAULT_PREFIXES;
        let prefixes = (
            self.number_or("ipv4_prefix", ipv4_prefix, rate::PREFIX_V4, v4),
            self.number_or("ipv6_prefix", ipv6_prefix, rate::PREFIX_V6, v6),
        );
        let tables = [client, all].map(Option::as_ref);
        if *tls == TlsMode::Passthrough {
            for requests in tables.into_iter().flatten().filter_map(|table| table.requests.as_ref()) {
                let what = "requests in a service with passthrough, where nobody reads requests, allowed is connections";
                self.at(&requests.rate, what);
            }
        }
        let [client_connections, all_connections] =
            tables.map(|table| self.rate(table?.connections.as_ref()?));
        let [client_concurrent, all_concurrent] =
            tables.map(|table| self.number("concurrent", table?.concurrent.as_ref()?, rate::CONCURRENT));
        let [client_requests, all_requests] =
            tables.map(|table| self.request_rate(table?.requests.as_ref()?));
        ServiceLimits {
            prefixes,
            connections: Limit { client: client_connections, all: all_connections },
            concurrent: Limit { client: client_concurrent, all: all_concurrent },
            requests: Limit { client: client_requests, all: all_requests },
        }
    }

    /// `limit` of a route.
    pub(super) fn route_limit(&mut self, file: Option<&raw::RouteLimits>) -> Limit<RequestRate> {
        let Some(raw::RouteLimits { client, all }) = file else { return Limit::default() };
        Limit {
            client: client.as_ref().and_then(|client| self.request_rate(client)),
            all: all.as_ref().and_then(|all| self.request_rate(all)),
        }
    }

    /// A limit of connections.
    fn rate(&mut self, file: &raw::Rate) -> Option<Rate> {
        if let Some(over) = &file.over {
            self.at(over, "connections over a limit are not answered, leave over out");
        }
        self.bucket(file)
    }

    fn request_rate(&mut self, file: &raw::Rate) -> Option<RequestRate> {
        let over = file.over.as_ref().map(|over| self.one_of("over", over, Over::ALL, Over::name));
        let rate = self.bucket(file)?;
        Some(RequestRate { rate, over: over.flatten().unwrap_or_default() })
    }

    fn bucket(&mut self, file: &raw::Rate) -> Option<Rate> {
        let events = self.number("rate", &file.rate, EVENTS)?;
        let period = self.time("period", &file.period, PERIOD, DEFAULT_PERIOD);
        let burst = self.number_or("burst", &file.burst, EVENTS, events);
        Some(Rate { events, period, burst })
    }
}
