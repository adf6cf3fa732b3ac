//! What an operator sees of requests, although no response passes the switch: the access log, and the sums behind the
//! metrics.
//!
//! The switch knows the request and why it went where it went; the node knows what became of it. The L7 thread tells its
//! part as [`Observation`]s, the XDP program tells of the requests that it forwards by itself in rings of their own, and
//! nodes tell theirs in FACTS packets. All of it meets in one thread ([`Observer`]), where [`join::Join`] puts the two
//! parts together: by the flow, the node, and the number that the request has among those which the node was given on the
//! flow. The thread that forwards packets never waits for this one: what it cannot take is left out and counted.

mod facts_received;
mod join;
mod line;
mod names;
mod observer;
pub mod totals;

use std::net::SocketAddr;
use std::time::Duration;

use switchback_log::Ended;
use switchback_wire::facts::{End, Fact};
use switchback_wire::sb_flow;

use crate::plan::NodeId;

pub use facts_received::{FactsOrder, FactsReceived};
pub use names::Names;
pub use observer::{Clock, Observer, ObserverMessage};
pub use totals::{BOUNDS_US, Histogram, ResponseTotals, Timings, Totals};

/// What happens to a request, as the L7 thread or the XDP program sees it. Times are since the start of the switch.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A node has got it; the last one that has got it counts.
    Forwarded(RequestForwarded),
    /// The switch answers it.
    Answered {
        /// The request.
        asked: RequestSeen,
        /// Of the answer.
        status: u16,
        /// Bytes of the answer, and how many of them come before the body.
        bytes: (usize, usize),
    },
    /// Its client was gone before a node had it.
    Abandoned(RequestSeen),
    /// The switch ends the connection, whatever its requests wait for.
    Reset {
        /// The connection.
        flow: sb_flow,
        /// Its first sequence number.
        origin: u32,
    },
    /// What a node says of a response.
    Fact {
        /// Which node.
        node: NodeId,
        /// What it says.
        fact: Fact,
    },
    /// Facts that a node has had no room for, since the last time.
    Lost(u32),
}

impl Observation {
    /// The head that it has, as far as it could be read.
    fn head(&self) -> &[u8] {
        match self {
            Observation::Forwarded(RequestForwarded { asked, .. })
            | Observation::Answered { asked, .. }
            | Observation::Abandoned(asked) => &asked.head,
            Observation::Reset { .. } | Observation::Fact { .. } | Observation::Lost(_) => &[],
        }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    /// Its connection.
    pub flow: sb_flow,
    /// The connection's first sequence number.
    pub origin: u32,
    /// The sequence number of its own first byte.
    pub begins: u32,
    /// Its head, as far as it could be read, and perhaps more.
    pub head: Box<[u8]>,
    /// When it came.
    pub at: Duration,
    /// How long it was here.
    pub queued: Duration,
}

/// A request that has been given to a node.
#[derive(Clone, Debug)]
pub struct RequestForwarded {
    /// The request.
    pub asked: RequestSeen,
    /// The node.
    pub node: NodeId,
    /// Its number among those that the node was given on the flow.
    pub number: u16,
    /// Why this node.
    pub chosen: Chosen,
    /// How often another node had it, or refused it, before.
    pub tries: u32,
}

/// Why a node has a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// It has the connection, and its pool.
    Connection,
    /// The pool's policy has chosen it.
    Policy,
    /// It has the session.
    Session,
    /// The node that the policy chose had no room, and has passed it on.
    Second,
}

impl Chosen {
    /// In the access log.
    fn word(self) -> &'static str {
        match self {
            Chosen::Connection => "connection",
            Chosen::Policy => "policy",
            Chosen::Session => "session",
            Chosen::Second => "second-candidate",
        }
    }
}

/// All that is known of a request whose response has ended.
#[derive(Clone, Debug)]
struct Finished {
    client: SocketAddr,
    vip: SocketAddr,
    /// None if the switch does not know of the request, because it was restarted since, or has forgotten.
    asked: Option<RequestSeen>,
    /// None if the switch has answered it, or nobody.
    node: Option<NodeId>,
    chosen: Option<Chosen>,
    tries: u32,
    /// When this became known.
    at: Duration,
    status: Option<u16>,
    end: Ended,
    bytes: u64,
    head_bytes: u32,
    first_byte: Option<Duration>,
    duration: Option<Duration>,
}

/// As nodes say it.
fn ended(end: End) -> Ended {
    match end {
        End::Complete => Ended::Complete,
        End::ByClient => Ended::ByClient,
        End::ByServer => Ended::ByServer,
        End::Unknown => Ended::Unknown,
    }
}
