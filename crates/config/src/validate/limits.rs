//! `[limits]`: every value by itself, and those that bound each other.

use std::ops::RangeInclusive;

use crate::limits::{
    self, BODY, CAP, Caps, FIELDS, FLOWS, HEAD, HEAD_TIMEOUT, HELD, Limits, RESUME_AFTER, STREAMS, TlsLimits,
    WAIT_TIMEOUT, WAITING,
};
use crate::mistakes::{Mistakes, Text};
use crate::{raw, syntax};

impl Mistakes {
    pub(super) fn limits(&mut self, file: &raw::Limits) -> Limits {
        let default = Limits::default();
        let mistakes_before = self.count();
        let limits = Limits {
            head: self.memory("head", &file.head, HEAD, default.head),
            fields: self.number_or("fields", &file.fields, FIELDS, default.fields),
            body: self.size("body", &file.body, BODY).or(default.body),
            head_timeout: self.time("head_timeout", &file.head_timeout, HEAD_TIMEOUT, default.head_timeout),
            wait_timeout: self.time("wait_timeout", &file.wait_timeout, WAIT_TIMEOUT, default.wait_timeout),
            waiting: self.number_or("waiting", &file.waiting, WAITING, default.waiting),
            held_per_flow: self.memory("held_per_flow", &file.held_per_flow, HELD, default.held_per_flow),
            held_per_source: self.memory(
                "held_per_source",
                &file.held_per_source,
                HELD,
                default.held_per_source,
            ),
            held: self.memory("held", &file.held, HELD, default.held),
            flows: self.number_or("flows", &file.flows, FLOWS, default.flows),
            node_flows: self.number_or("node_flows", &file.node_flows, FLOWS, default.node_flows),
            resume_after: self
                .size("resume_after", &file.resume_after, RESUME_AFTER)
                .unwrap_or(default.resume_after),
            tls: self.tls_limits(file, default.tls),
        };
        // A default in the place of a wrong value would be compared with what the user never meant it for.
        if self.count() == mistakes_before {
            self.order(&limits, file);
        }
        limits
    }

    fn tls_limits(&mut self, file: &raw::Limits, default: TlsLimits) -> TlsLimits {
        let mut cap = |key, value, default| self.number_or(key, value, CAP, default);
        TlsLimits {
            connections: Caps {
                source: cap(
                    "tls_connections_per_source",
                    &file.tls_connections_per_source,
                    default.connections.source,
                ),
                service: cap(
                    "tls_connections_per_service",
                    &file.tls_connections_per_service,
                    default.connections.service,
                ),
                all: cap("tls_connections", &file.tls_connections, default.connections.all),
            },
            handshakes: Caps {
                source: cap(
                    "tls_handshakes_per_source",
                    &file.tls_handshakes_per_source,
                    default.handshakes.source,
                ),
                service: cap(
                    "tls_handshakes_per_service",
                    &file.tls_handshakes_per_service,
                    default.handshakes.service,
                ),
                all: cap("tls_handshakes", &file.tls_handshakes, default.handshakes.all),
            },
            streams: Caps {
                source: cap("tls_streams_per_source", &file.tls_streams_per_source, default.streams.source),
                service: cap(
                    "tls_streams_per_service",
                    &file.tls_streams_per_service,
                    default.streams.service,
                ),
                all: cap("tls_streams", &file.tls_streams, default.streams.all),
            },
            streams_per_connection: self.number_or(
                "tls_streams_per_connection",
                &file.tls_streams_per_connection,
                STREAMS,
                default.streams_per_connection,
            ),
        }
    }

    /// Reports each limit that is below the one it has to leave room for, at the place of the larger one if
    /// it is in the file. Defaults are in order, so one of the two is.
    fn order(&mut self, limits: &Limits, file: &raw::Limits) {
        let rising = [
            ("head", limits.head, &file.head),
            ("held_per_flow", limits.held_per_flow, &file.held_per_flow),
            ("held_per_source", limits.held_per_source, &file.held_per_source),
            ("held", limits.held, &file.held),
        ];
        let shown = |(key, bytes, text): (&str, usize, &Text)| {
            let default = if text.is_none() { " (the default)" } else { "" };
            format!("{key} {}{default}", limits::size(bytes as u64))
        };
        for (&low, &high) in rising.iter().zip(&rising[1..]) {
            if low.1 > high.1
                && let Some(place) = high.2.as_ref().or(low.2.as_ref())
            {
                let (low, high) = (shown(low), shown(high));
                let allowed = "head <= held_per_flow <= held_per_source <= held";
                self.at(place, format!("{high} is less than {low}, allowed is {allowed}"));
            }
        }
    }

    fn size(&mut self, key: &str, text: &Text, allowed: RangeInclusive<u64>) -> Option<u64> {
        let text = text.as_ref()?;
        self.take(text, syntax::size(key, text.get_ref(), allowed))
    }

    /// A size of something that is kept in memory.
    fn memory(&mut self, key: &str, text: &Text, allowed: RangeInclusive<u64>, default: usize) -> usize {
        let bytes = self.size(key, text, allowed);
        bytes.map_or(default, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}
