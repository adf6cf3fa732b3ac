//! The outcome of responses, sent by a node's agent to the switch that forwarded the requests, in packets of
//! [records](crate::records).

use std::time::Duration;

use crate::{Seq, sb_end, sb_fact, sb_flow};

/// A node's record of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The client's connection.
    pub flow: sb_flow,
    /// The sequence number of the connection's first byte.
    pub origin: Seq,
    /// The request's number among those that the node was given on the flow, as in `sb_flow_state.requests`.
    pub request: u16,
    /// The status code; None if the node has not seen a whole response head.
    pub status: Option<u16>,
    /// How the response ended.
    pub end: End,
    /// Bytes that the server sent, heads included.
    pub bytes: u64,
    /// Bytes before the body, interim responses included.
    pub head_bytes: u32,
    /// Time from the request's turn at the node to the first byte; None if there was none.
    pub first_byte: Option<Duration>,
    /// Time from the request's turn at the node to the last byte that it has seen.
    pub duration: Duration,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server sent all of it.
    Complete,
    /// The client closed or lost the connection.
    ByClient,
    /// The server closed the connection before the response was complete.
    ByServer,
    /// The end is unknown.
    Unknown,
}

impl Fact {
    /// The fact in its wire format.
    pub fn to_wire(&self) -> sb_fact {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let end = match self.end {
            End::Complete => sb_end::SB_END_COMPLETE,
            End::ByClient => sb_end::SB_END_CLIENT,
            End::ByServer => sb_end::SB_END_SERVER,
            End::Unknown => sb_end::SB_END_UNKNOWN,
        };
        let first_byte =
            self.first_byte.map_or(u32::MAX, |time| u32::try_from(micros(time)).unwrap_or(u32::MAX - 1));
        sb_fact {
            client: self.flow.client,
            vip: self.flow.vip,
            client_port: self.flow.client_port,
            vip_port: self.flow.vip_port,
            origin: self.origin.to_be(),
            request: self.request.to_be(),
            status: self.status.unwrap_or(0).to_be(),
            end: end as u8,
            reserved: [0; 3],
            head_bytes: self.head_bytes.to_be(),
            first_byte_us: first_byte.to_be(),
            duration_us: micros(self.duration).to_be(),
            bytes: self.bytes.to_be(),
        }
    }

    /// The fact in a wire record. An end that this version does not know becomes [`End::Unknown`].
    pub fn from_wire(fact: &sb_fact) -> Fact {
        let end = [
            (sb_end::SB_END_COMPLETE, End::Complete),
            (sb_end::SB_END_CLIENT, End::ByClient),
            (sb_end::SB_END_SERVER, End::ByServer),
        ];
        let end = end.into_iter().find(|(number, _)| *number as u8 == fact.end);
        let first_byte = u32::from_be(fact.first_byte_us);
        Fact {
            flow: sb_flow {
                client: fact.client,
                vip: fact.vip,
                client_port: fact.client_port,
                vip_port: fact.vip_port,
            },
            origin: Seq::from_be(fact.origin),
            request: u16::from_be(fact.request),
            status: Some(u16::from_be(fact.status)).filter(|status| *status != 0),
            end: end.map_or(End::Unknown, |(_, end)| end),
            bytes: u64::from_be(fact.bytes),
            head_bytes: u32::from_be(fact.head_bytes),
            first_byte: (first_byte != u32::MAX).then(|| Duration::from_micros(first_byte.into())),
            duration: Duration::from_micros(u64::from_be(fact.duration_us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_bytes;

    fn fact() -> Fact {
        Fact {
            flow: sb_flow {
                client: address_bytes("2001:db8::5".parse().unwrap()),
                vip: address_bytes("2001:db8::100".parse().unwrap()),
                client_port: 40_000u16.to_be(),
                vip_port: 80u16.to_be(),
            },
            origin: Seq(u32::MAX),
            request: 65_535,
            status: Some(206),
            end: End::ByClient,
            bytes: 1 << 40,
            head_bytes: 300,
            first_byte: Some(Duration::from_micros(4_400)),
            duration: Duration::from_secs(86_400),
        }
    }

    #[test]
    fn a_fact_reads_back() {
        assert_eq!(Fact::from_wire(&fact().to_wire()), fact());
    }

    #[test]
    fn what_is_not_known_stays_so() {
        let fact = Fact { status: None, first_byte: None, end: End::Unknown, ..fact() };
        assert_eq!(Fact::from_wire(&fact.to_wire()), fact);
        let later = sb_fact { end: 200, ..fact.to_wire() };
        assert_eq!(Fact::from_wire(&later).end, End::Unknown);
    }
}
