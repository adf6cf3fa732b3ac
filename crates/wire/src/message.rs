//! Handoff packets as types: messages from switch to node and from node to switch. [`handoff`] puts
//! them into packets; `bpf/handoff.h` gives each field's place in the option, at `struct sb_option`.

use crate::Seq;
use crate::flow_state::FlowState;
use crate::generated::*;
use crate::handoff;
use crate::packet::{TcpView, timestamps};
use crate::report::{Report, queue_of};

/// Ways to recover the request if the server goes away before it answers (`SB_FLAG_LAST`, `SB_FLAG_AGAIN`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// No other node could continue the connection after this request.
    pub last: bool,
    /// Another node can answer the request: it is one packet, idempotent, and the client still has it.
    pub again: bool,
}

impl Recovery {
    fn flags(self) -> u32 {
        (if self.last { SB_FLAG_LAST } else { 0 }) | (if self.again { SB_FLAG_AGAIN } else { 0 })
    }
}

/// The result of the switch's parsing of a packet's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Nothing parsed: more of a body, or a copy.
    None,
    /// A request begins with the packet.
    Request {
        /// Bytes of the request that the switch has read.
        head: u16,
        /// See [`Recovery`].
        recovery: Recovery,
    },
    /// More of a request that began in an earlier packet.
    More {
        /// Bytes of the packet before it.
        skip: u16,
    },
}

impl Reading {
    fn flags(self) -> u32 {
        match self {
            Reading::None => 0,
            Reading::Request { recovery, .. } => SB_FLAG_REQUEST | recovery.flags(),
            Reading::More { .. } => SB_FLAG_READ,
        }
    }

    fn head(self) -> u16 {
        match self {
            Reading::None => 0,
            Reading::Request { head, .. } => head,
            Reading::More { skip } => skip,
        }
    }
}

/// A message from a switch to a node about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToNode {
    /// Adopt the flow: the packet begins a request.
    Adopt {
        /// Bytes of the request that the switch has read, from the packet's first byte on.
        head: u16,
        /// See [`Recovery`].
        recovery: Recovery,
        /// Share of the listener's accept queue up to which to adopt, in percent; 0: no limit.
        queue_share: u8,
    },
    /// One more packet of a flow that the node owns.
    Forward(Reading),
    /// Confirm up to where the flow's data has arrived. Missing data is taken as with [`ToNode::Forward`].
    Confirm(Reading),
    /// Release the flow.
    Release {
        /// Release even if the request is incomplete.
        abort: bool,
    },
    /// Tell whether the node owns the flow.
    Probe,
}

impl ToNode {
    /// Its operation.
    pub fn op(&self) -> sb_op {
        match self {
            ToNode::Adopt { .. } => sb_op::SB_OP_ADOPT,
            ToNode::Forward(_) => sb_op::SB_OP_FORWARD,
            ToNode::Confirm(_) => sb_op::SB_OP_CONFIRM,
            ToNode::Release { .. } => sb_op::SB_OP_RELEASE,
            ToNode::Probe => sb_op::SB_OP_PROBE,
        }
    }

    /// The option of its packet, without a tag.
    pub fn option(&self, flow: &FlowState) -> sb_option {
        let (flags, head, reason) = match *self {
            ToNode::Adopt { head, recovery, queue_share } => (recovery.flags(), head, queue_share),
            ToNode::Forward(reading) | ToNode::Confirm(reading) => (reading.flags(), reading.head(), 0),
            ToNode::Release { abort } => (if abort { SB_FLAG_ABORT } else { 0 }, 0, 0),
            ToNode::Probe => (0, 0, 0),
        };
        let plain = flow.option(self.op());
        sb_option { flags: plain.flags | flags as u8, head: head.to_be(), reason, ..plain }
    }
}

/// A message from a switch to a node's agent, about no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToAgent {
    /// Send reports to this switch.
    Hello {
        /// Also send facts about responses.
        facts: bool,
        /// The agent's epoch of the facts received, and the number up to which all have arrived.
        heard: (u32, u32),
    },
    /// Tell the time.
    Sync {
        /// A number that the answer repeats.
        nonce: u64,
    },
}

impl ToAgent {
    /// Its operation.
    pub fn op(&self) -> sb_op {
        match self {
            ToAgent::Hello { .. } => sb_op::SB_OP_HELLO,
            ToAgent::Sync { .. } => sb_op::SB_OP_SYNC,
        }
    }

    /// The option of its packet, without a tag.
    pub fn option(&self) -> sb_option {
        let (flags, (origin, next)) = match *self {
            ToAgent::Hello { facts, heard } => (if facts { SB_FLAG_FACTS as u8 } else { 0 }, heard),
            ToAgent::Sync { nonce } => (0, ((nonce >> 32) as u32, nonce as u32)),
        };
        sb_option { flags, origin: origin.to_be(), next: next.to_be(), ..handoff::blank(self.op()) }
    }
}

/// Why a node did not do what it was asked for, or did it in a special way (`enum sb_reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The accept queue is full.
    QueueFull,
    /// The port has no listener.
    NoListener,
    /// The node drains.
    Draining,
    /// The flow has no socket here.
    NoSocket,
    /// The kernel refused the adoption.
    Failed,
    /// The server closes the connection.
    Closing,
    /// The node already has this request.
    Duplicate,
    /// A response is in progress.
    Responding,
    /// The health check fails.
    Unhealthy,
    /// The node has answered the request on this connection.
    Served,
}

impl Reason {
    const ALL: [(sb_reason, Reason); 10] = [
        (sb_reason::SB_REASON_QUEUE_FULL, Reason::QueueFull),
        (sb_reason::SB_REASON_NO_LISTENER, Reason::NoListener),
        (sb_reason::SB_REASON_DRAINING, Reason::Draining),
        (sb_reason::SB_REASON_NO_SOCKET, Reason::NoSocket),
        (sb_reason::SB_REASON_FAILED, Reason::Failed),
        (sb_reason::SB_REASON_CLOSING, Reason::Closing),
        (sb_reason::SB_REASON_DUPLICATE, Reason::Duplicate),
        (sb_reason::SB_REASON_RESPONDING, Reason::Responding),
        (sb_reason::SB_REASON_UNHEALTHY, Reason::Unhealthy),
        (sb_reason::SB_REASON_SERVED, Reason::Served),
    ];

    /// The reason with this number; None for `SB_REASON_NONE`, and for unknown numbers.
    pub fn from_number(number: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|(known, _)| *known as u8 == number).map(|(_, reason)| reason)
    }

    /// The reason's number in packets.
    pub fn number(self) -> u8 {
        let entry = Reason::ALL.into_iter().find(|(_, reason)| *reason == self);
        entry.map_or(sb_reason::SB_REASON_NONE as u8, |(number, _)| number as u8)
    }
}

/// Length and limit of an accept queue, in connections, each saturated at 65,535.
pub type Queue = (u16, u16);

/// A message from a node to a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FromNode {
    /// The node has adopted the flow.
    Adopted {
        /// The accept queue after the adoption.
        queue: Queue,
    },
    /// The node refuses the packet and returns it.
    Refused {
        /// The reason for the refusal.
        reason: Option<Reason>,
        /// The accept queue, with [`Reason::QueueFull`].
        queue: Queue,
        /// Requests that the switch had given the node, from the refused packet.
        requests: u16,
    },
    /// The node has released the flow.
    Released {
        /// [`Reason::Responding`], or another one that changes nothing.
        reason: Option<Reason>,
        /// The sequence number that the node would send next.
        sent: Seq,
        /// The node's TSval.
        clock: Option<u32>,
    },
    /// The node keeps the flow.
    Busy(Option<Reason>),
    /// The flow's socket is gone.
    Closed(FlowState),
    /// The node owns the flow.
    Owned(FlowState),
    /// The node refused data, which has to be read again from the mark on.
    Unread(FlowState),
    /// The node does not own the flow.
    Unowned {
        /// It owned the flow, and has answered the request.
        served: bool,
        /// The start of the next request if the node has released the flow; otherwise its origin.
        next: Seq,
    },
    /// All data before this sequence number has arrived.
    Confirmed {
        /// The client's sequence number.
        arrived: Seq,
        /// The sequence number that the node would send next.
        sent: Seq,
        /// The node's TSval.
        clock: Option<u32>,
    },
    /// The node has released the flow for another node, given by the [`pool_id`](crate::report::pool_id) of its name.
    Move {
        /// The hash of the new node's name.
        target: u32,
        /// The state of the flow for the new node.
        state: FlowState,
    },
    /// The state of a listener.
    Report(Report),
    /// The length of a response.
    Sized {
        /// The switch's number for the request's path.
        path: u16,
        /// Length in bytes, modulo 2^32.
        bytes: u32,
    },
    /// The node's time.
    Synced {
        /// The nonce of the question.
        nonce: u64,
        /// The clock in steps of `SB_CLOCK_SHIFT`.
        clock: u64,
    },
}

impl FromNode {
    /// The message in a packet with this option and inner packet, whose tag has been verified. None for an operation
    /// that no node sends to a dispatcher.
    pub fn read(flow: &sb_flow, option: &sb_option, view: &TcpView, packet: &[u8]) -> Option<FromNode> {
        let reason = Reason::from_number(option.reason);
        let clock = || timestamps(packet, view).map(|(_, echo)| echo);
        Some(match sb_op::from_number(option.op)? {
            sb_op::SB_OP_ADOPTED => FromNode::Adopted { queue: queue_of(option) },
            sb_op::SB_OP_REFUSED => {
                let full = reason == Some(Reason::QueueFull);
                let queue = if full { queue_of(option) } else { (0, 0) };
                FromNode::Refused { reason, queue, requests: u16::from_be(option.requests) }
            }
            sb_op::SB_OP_RELEASED => FromNode::Released { reason, sent: view.ack, clock: clock() },
            sb_op::SB_OP_BUSY => FromNode::Busy(reason),
            sb_op::SB_OP_CLOSED => FromNode::Closed(FlowState::read(option)),
            sb_op::SB_OP_OWNED => FromNode::Owned(FlowState::read(option)),
            sb_op::SB_OP_UNREAD => FromNode::Unread(FlowState::read(option)),
            sb_op::SB_OP_UNOWNED => {
                FromNode::Unowned { served: reason == Some(Reason::Served), next: Seq::from_be(option.next) }
            }
            sb_op::SB_OP_CONFIRMED => {
                FromNode::Confirmed { arrived: Seq::from_be(option.next), sent: view.ack, clock: clock() }
            }
            sb_op::SB_OP_MOVE => {
                FromNode::Move { target: u32::from_be(option.detail), state: FlowState::read(option) }
            }
            sb_op::SB_OP_REPORT => FromNode::Report(Report::read(flow, option, view)),
            sb_op::SB_OP_SIZED => FromNode::Sized {
                path: u16::from_be(option.session.path),
                bytes: u32::from_be(option.detail),
            },
            sb_op::SB_OP_SYNCED => FromNode::Synced {
                nonce: u64::from(u32::from_be(option.origin)) << 32 | u64::from(u32::from_be(option.next)),
                clock: u64::from(u32::from_be(option.detail)) << 32 | u64::from(u32::from_be(option.left)),
            },
            _ => return None,
        })
    }

    /// The option of its packet, without a tag; None for the messages of a node's programs.
    pub fn option(&self) -> Option<sb_option> {
        match self {
            FromNode::Closed(state) => Some(state.option(sb_op::SB_OP_CLOSED)),
            FromNode::Move { target, state } => {
                Some(sb_option { detail: target.to_be(), ..state.option(sb_op::SB_OP_MOVE) })
            }
            FromNode::Sized { path, bytes } => Some(sb_option {
                detail: bytes.to_be(),
                session: sb_session { path: path.to_be(), ..Default::default() },
                ..handoff::blank(sb_op::SB_OP_SIZED)
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_state::Handshake;
    use crate::packet::{bare, flags};

    #[test]
    fn reasons_read_back() {
        for (_, reason) in Reason::ALL {
            assert_eq!(Reason::from_number(reason.number()), Some(reason));
        }
        assert_eq!(Reason::from_number(sb_reason::SB_REASON_NONE as u8), None);
    }

    #[test]
    fn a_message_sets_its_own_fields_only() {
        let handshake = Handshake { options: SB_SYN_ALL as u8, ..Default::default() };
        let state = FlowState { handshake, requests: 3, ..FlowState::at(Seq(1), Seq(7)) };
        let recovery = Recovery { last: true, again: true };
        let request = Reading::Request { head: 90, recovery };
        let rows = [
            (ToNode::Adopt { head: 90, recovery, queue_share: 80 }, SB_FLAG_LAST | SB_FLAG_AGAIN, 90, 80),
            (ToNode::Forward(request), SB_FLAG_REQUEST | SB_FLAG_LAST | SB_FLAG_AGAIN, 90, 0),
            (ToNode::Forward(Reading::None), 0, 0, 0),
            (ToNode::Confirm(Reading::More { skip: 4 }), SB_FLAG_READ, 4, 0),
            (ToNode::Release { abort: true }, SB_FLAG_ABORT, 0, 0),
            (ToNode::Probe, 0, 0, 0),
        ];
        for (message, flags, head, reason) in rows {
            let option = message.option(&state);
            let set = sb_option { flags: 0, head: 0, reason: 0, ..option };
            assert_eq!(u32::from(option.flags), SB_SYN_ALL | flags, "{message:?}");
            assert_eq!((u16::from_be(option.head), option.reason), (head, reason), "{message:?}");
            assert_eq!(set, sb_option { flags: 0, ..state.option(message.op()) }, "{message:?}");
        }
    }

    #[test]
    fn messages_of_an_agent_read_back() {
        let flow = sb_flow::default();
        let inner = bare(&flow, true, Seq(1), Seq(2), flags::ACK);
        let view = TcpView::parse(&inner).unwrap();
        let read = |option: &sb_option| FromNode::read(&flow, option, &view, &inner);
        let state = FlowState { requests: 3, ..FlowState::at(Seq(1), Seq(7)) };
        // A MOVE has the target in place of `heads`.
        let moved = FromNode::Move { target: 9, state: FlowState { heads: 9, ..state } };
        for message in [FromNode::Closed(state), moved, FromNode::Sized { path: 3, bytes: 70_000 }] {
            assert_eq!(message.option().and_then(|option| read(&option)), Some(message));
        }
        assert_eq!(FromNode::Owned(state).option(), None);
    }
}
