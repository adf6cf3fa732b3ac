//! Access log and request metrics, although no response passes the switch.
//!
//! The switch knows the request and the reason for its destination; the node knows the response. The L7 thread sends
//! [`Observation`]s, the XDP program writes the requests that it forwards itself to ring buffers of their own, and
//! nodes send FACTS packets. One thread ([`Observer`]) collects them, where `join::Join` matches the two halves by
//! flow, node and the request's number on the flow. The L7 thread never waits for the observer: observations beyond the
//! observer's budget are dropped and counted.

mod facts_received;
mod join;
mod line;
mod names;
mod observer;
mod totals;

use std::time::Duration;

use switchback_access_log::Ended;
use switchback_flow::destination::Chosen;
use switchback_wire::facts::{End, Fact};
use switchback_wire::{Seq, sb_flow};

use crate::plan::NodeId;

pub use facts_received::{FactsOrder, FactsReceived};
pub use names::Names;
pub use observer::{Clock, Observer, ObserverMessage, Reporter};

/// An event of a request, seen by the L7 thread or the XDP program. Times count from the start of the switch.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The request was forwarded to a node; a later one replaces an earlier one.
    Forwarded(RequestForwarded),
    /// The switch answered the request.
    Answered {
        /// The request.
        asked: RequestSeen,
        /// Status code of the answer.
        status: u16,
        /// Bytes of the answer, and how many of them precede the body.
        bytes: (usize, usize),
    },
    /// The client was gone before a node had the request.
    Abandoned(RequestSeen),
    /// The switch reset the connection with its open requests.
    Reset {
        /// The connection.
        flow: sb_flow,
        /// Sequence number of the connection's first byte.
        origin: Seq,
    },
    /// The response to the connection's last request goes on at this node.
    Resumed {
        /// The connection.
        flow: sb_flow,
        /// Sequence number of the connection's first byte.
        origin: Seq,
        /// The node.
        node: NodeId,
        /// Number of the request at that node.
        number: u16,
    },
    /// A node reported a response.
    Fact {
        /// The node.
        node: NodeId,
        /// The report.
        fact: Fact,
    },
    /// Number of facts that a node dropped since its last report.
    Lost(u32),
}

impl Observation {
    /// The request's head, or as much of it as was read.
    fn head(&self) -> &[u8] {
        match self {
            Observation::Forwarded(RequestForwarded { asked, .. })
            | Observation::Answered { asked, .. }
            | Observation::Abandoned(asked) => &asked.head,
            Observation::Reset { .. }
            | Observation::Resumed { .. }
            | Observation::Fact { .. }
            | Observation::Lost(_) => &[],
        }
    }
}

/// A request as it reached the switch.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    /// Flow of the connection.
    pub flow: sb_flow,
    /// Sequence number of the connection's first byte.
    pub origin: Seq,
    /// Sequence number of the request's first byte.
    pub begins: Seq,
    /// The request's head, or as much of it as was read; more may follow.
    pub head: Box<[u8]>,
    /// Time of arrival.
    pub at: Duration,
    /// Time in the switch.
    pub queued: Duration,
}

/// A request that was forwarded to a node.
#[derive(Clone, Debug)]
pub struct RequestForwarded {
    /// The request.
    pub asked: RequestSeen,
    /// The node.
    pub node: NodeId,
    /// Number of the request on the flow since its adoption by the node.
    pub number: u16,
    /// Why the node was chosen.
    pub chosen: Chosen,
    /// How many nodes had or refused the request before.
    pub tries: u32,
}

/// Word for the reason in the access log.
fn word(chosen: Chosen) -> &'static str {
    match chosen {
        Chosen::Connection => "connection",
        Chosen::Policy => "policy",
        Chosen::Session => "session",
        Chosen::Second => "second-candidate",
        Chosen::Resumed => "resumed",
    }
}

/// A request whose response has ended.
#[derive(Clone, Debug)]
struct Finished {
    flow: sb_flow,
    /// None if the switch does not know the request, for example after a restart.
    asked: Option<RequestSeen>,
    /// None if the switch answered the request, or nobody did.
    node: Option<NodeId>,
    chosen: Option<Chosen>,
    tries: u32,
    /// When the switch learned of the end.
    at: Duration,
    status: Option<u16>,
    end: Ended,
    bytes: u64,
    head_bytes: u32,
    first_byte: Option<Duration>,
    duration: Option<Duration>,
}

/// The end of a response as nodes report it, as the access log has it.
fn ended(end: End) -> Ended {
    match end {
        End::Complete => Ended::Complete,
        End::ByClient => Ended::ByClient,
        End::ByServer => Ended::ByServer,
        End::Unknown => Ended::Unknown,
    }
}
