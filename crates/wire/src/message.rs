//! Handoff packets as types: messages from switch to node and from node to switch. [`handoff`] puts
//! them into packets; `bpf/handoff.h` gives each field's place, in the structures of `union sb_payload`.

use crate::Seq;
use crate::flow_state::FlowState;
use crate::generated::*;
use crate::generation::Generation;
use crate::handoff;
use crate::packet::{TcpView, timestamps};
use crate::report::{Queue, Report};
use crate::switches::SwitchSelf;

/// Ways to recover the request if the server goes away before it answers (`SB_HANDOVER_LAST`, `SB_HANDOVER_AGAIN`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// No other node could continue the connection after this request.
    pub last: bool,
    /// Another node can answer the request: it is one packet, idempotent, and the client still has it.
    pub again: bool,
}

impl Recovery {
    fn flags(self) -> u32 {
        (if self.last { SB_HANDOVER_LAST } else { 0 }) | (if self.again { SB_HANDOVER_AGAIN } else { 0 })
    }

    fn read(flags: u32) -> Self {
        Recovery { last: flags & SB_HANDOVER_LAST != 0, again: flags & SB_HANDOVER_AGAIN != 0 }
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
            Reading::Request { recovery, .. } => SB_HANDOVER_REQUEST | recovery.flags(),
            Reading::More { .. } => SB_HANDOVER_READ,
        }
    }

    fn boundary(self) -> u16 {
        match self {
            Reading::None => 0,
            Reading::Request { head, .. } => head,
            Reading::More { skip } => skip,
        }
    }

    fn read(flags: u32, boundary: u16) -> Self {
        if flags & SB_HANDOVER_REQUEST != 0 {
            Reading::Request { head: boundary, recovery: Recovery::read(flags) }
        } else if flags & SB_HANDOVER_READ != 0 {
            Reading::More { skip: boundary }
        } else {
            Reading::None
        }
    }
}

/// A message from a switch to a node about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToNode {
    /// Adopt the flow: the packet begins a request.
    Adopt {
        /// Bytes of the request that the switch has read, from its first byte on, as the client has sent it.
        head: u16,
        /// By how many bytes the head in the packet is longer than the client's.
        grown: i16,
        /// See [`Recovery`].
        recovery: Recovery,
        /// Share of the listener's accept queue up to which to adopt, in percent; 0: no limit.
        queue_share: u8,
    },
    /// Adopt the flow, of which the packet has no data: the node goes on with a response.
    Resume,
    /// One more packet of a flow that the node owns.
    Forward(Reading),
    /// Confirm up to where the flow's data has arrived. Missing data is taken as with [`ToNode::Forward`].
    Confirm(Reading),
    /// Release the flow.
    Release {
        /// Release even if the request is incomplete.
        abort: bool,
        /// The adoption that is to follow.
        next: Generation,
    },
    /// Tell whether the node owns the flow.
    Probe {
        /// The adoption before which the node is to accept no other one; none if it need not promise anything.
        next: Generation,
    },
    /// Take a router's message about a packet of the flow's server.
    Icmp,
    /// Keep the packet's data.
    Keep {
        /// The sequence number at which it ends.
        end: Seq,
    },
    /// Give back what the node keeps, from the packet's sequence number on.
    Restore,
}

impl ToNode {
    /// Its operation.
    pub fn op(&self) -> sb_op {
        match self {
            ToNode::Adopt { .. } | ToNode::Resume => sb_op::SB_OP_ADOPT,
            ToNode::Forward(_) => sb_op::SB_OP_FORWARD,
            ToNode::Confirm(_) => sb_op::SB_OP_CONFIRM,
            ToNode::Release { .. } => sb_op::SB_OP_RELEASE,
            ToNode::Probe { .. } => sb_op::SB_OP_PROBE,
            ToNode::Icmp => sb_op::SB_OP_ICMP,
            ToNode::Keep { .. } => sb_op::SB_OP_KEEP,
            ToNode::Restore => sb_op::SB_OP_RESTORE,
        }
    }

    /// The option of its packet, without a tag.
    pub fn option(&self, flow: &FlowState) -> sb_option {
        let (op, state) = (handoff::blank(self.op()), flow.to_wire());
        let handover = |boundary: u16, queue_share| {
            op.saying(&sb_handover { flow: state, boundary: boundary.to_be(), queue_share, reserved: 0 })
        };
        let question =
            |next: Generation| op.saying(&sb_question { flow: state, next_generation: next.to_be() });
        let (flags, option) = match *self {
            ToNode::Adopt { head, grown: 0, recovery, queue_share } => {
                (recovery.flags(), handover(head, queue_share))
            }
            ToNode::Adopt { head, grown, recovery, queue_share } => {
                let heads = flow.heads & 0xffff | u32::from(grown.cast_unsigned()) << 16;
                let flow = sb_flow_state { heads: heads.to_be(), ..state };
                let said = sb_handover { flow, boundary: head.to_be(), queue_share, reserved: 0 };
                (recovery.flags(), sb_option { version: SB_VERSION_GROWN, ..op.saying(&said) })
            }
            ToNode::Resume => (SB_HANDOVER_RESUME, handover(0, 0)),
            ToNode::Forward(reading) | ToNode::Confirm(reading) => {
                (reading.flags(), handover(reading.boundary(), 0))
            }
            ToNode::Release { abort, next } => (if abort { SB_RELEASE_ABORT } else { 0 }, question(next)),
            ToNode::Probe { next } => (0, question(next)),
            ToNode::Keep { end } => (0, op.saying(&sb_kept { flow: state, end: end.to_be() })),
            ToNode::Icmp | ToNode::Restore => (0, op.saying(&state)),
        };
        sb_option { flags: flags as u8, ..option }
    }

    /// The message with this option, without the state of its flow, whose tag has been verified. None for another
    /// operation.
    pub fn read(option: &sb_option) -> Option<ToNode> {
        let (flags, said) = (u32::from(option.flags), option.said::<sb_handover>());
        let boundary = u16::from_be(said.boundary);
        let next = || Generation::from_be(option.said::<sb_question>().next_generation);
        Some(match sb_op::from_number(option.op)? {
            sb_op::SB_OP_ADOPT if flags & SB_HANDOVER_RESUME != 0 => ToNode::Resume,
            sb_op::SB_OP_ADOPT => ToNode::Adopt {
                head: boundary,
                grown: match option.version >= SB_VERSION_GROWN {
                    true => ((u32::from_be(said.flow.heads) >> 16) as u16).cast_signed(),
                    false => 0,
                },
                recovery: Recovery::read(flags),
                queue_share: said.queue_share,
            },
            sb_op::SB_OP_FORWARD => ToNode::Forward(Reading::read(flags, boundary)),
            sb_op::SB_OP_CONFIRM => ToNode::Confirm(Reading::read(flags, boundary)),
            sb_op::SB_OP_RELEASE => ToNode::Release { abort: flags & SB_RELEASE_ABORT != 0, next: next() },
            sb_op::SB_OP_PROBE => ToNode::Probe { next: next() },
            sb_op::SB_OP_KEEP => ToNode::Keep { end: Seq::from_be(option.said::<sb_kept>().end) },
            sb_op::SB_OP_ICMP => ToNode::Icmp,
            sb_op::SB_OP_RESTORE => ToNode::Restore,
            _ => return None,
        })
    }
}

/// An order to a node, which carries it out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// A random number other than 0.
    pub number: u32,
    /// Whether the node is to drain, or to end that.
    pub drain: bool,
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
        /// The newest version of the format that the switch knows.
        newest: u8,
        /// The switch's epoch of the list of flows that it wants, and the number up to which it has arrived; zeroes if it
        /// wants none.
        listed: (u32, u32),
        /// See [`Order`].
        order: Option<Order>,
        /// What the switch says of itself.
        own: SwitchSelf,
    },
    /// Tell the time.
    Sync {
        /// A number that the answer repeats.
        nonce: u64,
    },
    /// Another node is dead.
    Dead {
        /// The [`pool_id`](crate::report::pool_id) of its name.
        node: u32,
    },
}

impl ToAgent {
    /// Its operation.
    pub fn op(&self) -> sb_op {
        match self {
            ToAgent::Hello { .. } => sb_op::SB_OP_HELLO,
            ToAgent::Sync { .. } => sb_op::SB_OP_SYNC,
            ToAgent::Dead { .. } => sb_op::SB_OP_DEAD,
        }
    }

    /// The option of its packet, without a tag.
    pub fn option(&self) -> sb_option {
        let blank = handoff::blank(self.op());
        match *self {
            ToAgent::Hello { facts, heard, newest, listed, order, own } => {
                let numbered = |(epoch, number): (u32, u32)| sb_numbered {
                    epoch: epoch.to_be(),
                    number: number.to_be(),
                };
                let (taken, listed) = (numbered(heard), numbered(listed));
                let drains = order.is_some_and(|order| order.drain);
                let flags = if facts { SB_HELLO_FACTS } else { 0 } | if drains { SB_HELLO_DRAIN } else { 0 };
                let order = order.map_or(0, |order| order.number).to_be();
                let own = own.to_wire();
                let hello = sb_hello { taken, newest, reserved: [0; 3], listed, order, own };
                sb_option { flags: flags as u8, ..blank.saying(&hello) }
            }
            ToAgent::Dead { node } => blank.saying(&sb_death { node: node.to_be() }),
            ToAgent::Sync { nonce } => blank.saying(&sb_sync { nonce: nonce.to_be_bytes(), clock: [0; 2] }),
        }
    }

    /// The message with this option, whose tag has been verified. None for another operation.
    pub fn read(option: &sb_option) -> Option<ToAgent> {
        Some(match sb_op::from_number(option.op)? {
            sb_op::SB_OP_HELLO => {
                let sb_hello { taken, newest, listed, order, own, .. } = option.said();
                let numbers = |at: sb_numbered| (u32::from_be(at.epoch), u32::from_be(at.number));
                let has = |flag: u32| u32::from(option.flags) & flag != 0;
                let (facts, drain) = (has(SB_HELLO_FACTS), has(SB_HELLO_DRAIN));
                let order = Some(u32::from_be(order)).filter(|number| *number != 0);
                let order = order.map(|number| Order { number, drain });
                let (heard, listed, own) = (numbers(taken), numbers(listed), SwitchSelf::from_wire(&own));
                ToAgent::Hello { facts, heard, newest, listed, order, own }
            }
            sb_op::SB_OP_DEAD => ToAgent::Dead { node: u32::from_be(option.said::<sb_death>().node) },
            sb_op::SB_OP_SYNC => ToAgent::Sync { nonce: u64::from_be_bytes(option.said::<sb_sync>().nonce) },
            _ => return None,
        })
    }
}

impl Reason {
    /// The reason with this number in packets; None for `SB_REASON_NONE`, and for unknown numbers.
    pub fn from_number(number: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.number() == number)
    }

    /// The reason's number in packets.
    pub fn number(self) -> u8 {
        self as u8
    }
}

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
        /// The refused adoption; with [`Reason::NoSocket`] the one that is to follow, none if the node was not the flow's
        /// owner.
        generation: Generation,
    },
    /// The node has released the flow.
    Released {
        /// [`Reason::Responding`], or another one that changes nothing.
        reason: Option<Reason>,
        /// The state in which it has released the flow; a node of an earlier version repeats that of the question. The
        /// generation is that of the adoption that is to follow, none if the node was not the flow's owner.
        state: FlowState,
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
    Owned {
        /// The state of the flow.
        state: FlowState,
        /// Whether the node keeps data of its client.
        keeps: bool,
    },
    /// The node refused data, which has to be read again from the mark on.
    Unread(FlowState),
    /// The node does not own the flow.
    Unowned {
        /// It owned the flow, and has answered the request.
        served: bool,
        /// The start of the next request if the node has released the flow; otherwise its origin.
        next: Seq,
        /// The newest adoption that the node has heard of.
        newest: Generation,
        /// The state of the flow, if the node has released it and another one can go on with it.
        released: Option<FlowState>,
        /// Whether the node keeps data of its client.
        keeps: bool,
    },
    /// The node has not carried out the adoption of a packet with data.
    Lacks {
        /// That adoption.
        adoption: Generation,
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
    /// The node can go on with the response under way on another one's flow.
    Resume {
        /// The [`pool_id`](crate::report::pool_id) of that node's name.
        of: u32,
        /// That node lives, but not its server.
        gone: bool,
        /// The state of the flow at that node.
        state: FlowState,
        /// A sequence number of the response up to which the client has it.
        has: Seq,
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
    /// The node keeps the data up to this sequence number.
    Kept {
        /// The flow and its mark.
        state: FlowState,
        /// The end of the data.
        end: Seq,
    },
    /// What the node keeps.
    Restored {
        /// The state of the flow, without a node if none had it.
        state: FlowState,
        /// The end of all that the node keeps.
        end: Seq,
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
        let keeps = u32::from(option.flags) & SB_PROBE_KEPT != 0;
        let end = || Seq::from_be(option.said::<sb_kept>().end);
        Some(match sb_op::from_number(option.op)? {
            sb_op::SB_OP_ADOPTED => FromNode::Adopted { queue: option.said::<sb_outcome>().queue.into() },
            sb_op::SB_OP_REFUSED => {
                let sb_outcome { flow, queue } = option.said();
                FromNode::Refused {
                    reason,
                    queue: queue.into(),
                    requests: u16::from_be(flow.requests),
                    generation: Generation::from_be(flow.generation),
                }
            }
            sb_op::SB_OP_RELEASED => {
                FromNode::Released { reason, state: FlowState::read(option), sent: view.ack, clock: clock() }
            }
            sb_op::SB_OP_BUSY => FromNode::Busy(reason),
            sb_op::SB_OP_CLOSED => FromNode::Closed(FlowState::read(option)),
            sb_op::SB_OP_OWNED => FromNode::Owned { state: FlowState::read(option), keeps },
            sb_op::SB_OP_UNREAD => FromNode::Unread(FlowState::read(option)),
            sb_op::SB_OP_UNOWNED => {
                let state = FlowState::read(option);
                if reason == Some(Reason::NoSocket) {
                    return Some(FromNode::Lacks { adoption: state.generation });
                }
                FromNode::Unowned {
                    served: reason == Some(Reason::Served),
                    next: state.next,
                    newest: state.generation,
                    released: (reason == Some(Reason::Released)).then_some(state),
                    keeps,
                }
            }
            sb_op::SB_OP_CONFIRMED => {
                let arrived = Seq::from_be(option.said::<sb_confirmed>().arrived);
                FromNode::Confirmed { arrived, sent: view.ack, clock: clock() }
            }
            sb_op::SB_OP_MOVE => FromNode::Move {
                target: u32::from_be(option.said::<sb_move>().target),
                state: FlowState::read(option),
            },
            sb_op::SB_OP_RESUME => FromNode::Resume {
                of: u32::from_be(option.said::<sb_move>().target),
                gone: u32::from(option.flags) & SB_RESUME_GONE != 0,
                state: FlowState::read(option),
                has: view.ack,
            },
            sb_op::SB_OP_KEPT => FromNode::Kept { state: FlowState::read(option), end: end() },
            sb_op::SB_OP_RESTORED => FromNode::Restored { state: FlowState::read(option), end: end() },
            sb_op::SB_OP_REPORT => FromNode::Report(Report::read(flow, option)),
            sb_op::SB_OP_SIZED => {
                let sb_size { bytes, path, .. } = option.said();
                FromNode::Sized { path: u16::from_be(path), bytes: u32::from_be(bytes) }
            }
            sb_op::SB_OP_SYNCED => {
                let sb_sync { nonce, clock: [high, low] } = option.said();
                let clock = u64::from(u32::from_be(high)) << 32 | u64::from(u32::from_be(low));
                FromNode::Synced { nonce: u64::from_be_bytes(nonce), clock }
            }
            _ => return None,
        })
    }

    /// Its operation.
    pub fn op(&self) -> sb_op {
        match self {
            FromNode::Adopted { .. } => sb_op::SB_OP_ADOPTED,
            FromNode::Refused { .. } => sb_op::SB_OP_REFUSED,
            FromNode::Released { .. } => sb_op::SB_OP_RELEASED,
            FromNode::Busy(_) => sb_op::SB_OP_BUSY,
            FromNode::Closed(_) => sb_op::SB_OP_CLOSED,
            FromNode::Owned { .. } => sb_op::SB_OP_OWNED,
            FromNode::Unread(_) => sb_op::SB_OP_UNREAD,
            FromNode::Unowned { .. } | FromNode::Lacks { .. } => sb_op::SB_OP_UNOWNED,
            FromNode::Confirmed { .. } => sb_op::SB_OP_CONFIRMED,
            FromNode::Move { .. } => sb_op::SB_OP_MOVE,
            FromNode::Resume { .. } => sb_op::SB_OP_RESUME,
            FromNode::Kept { .. } => sb_op::SB_OP_KEPT,
            FromNode::Restored { .. } => sb_op::SB_OP_RESTORED,
            FromNode::Report(_) => sb_op::SB_OP_REPORT,
            FromNode::Sized { .. } => sb_op::SB_OP_SIZED,
            FromNode::Synced { .. } => sb_op::SB_OP_SYNCED,
        }
    }

    /// The option of its packet, without a tag. Answers repeat the state of their flow, which the option lacks if the
    /// message does; sequence numbers and clocks are in the inner packet.
    pub fn option(&self) -> sb_option {
        let blank = handoff::blank(self.op());
        let kept = |keeps: bool| if keeps { SB_PROBE_KEPT as u8 } else { 0 };
        let with_reason = |reason: Option<Reason>, option: sb_option| sb_option {
            reason: reason.map_or(0, Reason::number),
            ..option
        };
        match *self {
            FromNode::Adopted { queue } => {
                blank.saying(&sb_outcome { queue: queue.into(), ..Default::default() })
            }
            FromNode::Refused { reason, queue, requests, generation } => {
                let (requests, generation) = (requests.to_be(), generation.to_be());
                let flow = sb_flow_state { requests, generation, ..Default::default() };
                with_reason(reason, blank.saying(&sb_outcome { flow, queue: queue.into() }))
            }
            FromNode::Released { reason, state, .. } => with_reason(reason, state.option(self.op())),
            FromNode::Busy(reason) => with_reason(reason, blank),
            FromNode::Closed(state) | FromNode::Unread(state) => state.option(self.op()),
            FromNode::Owned { state, keeps } => sb_option { flags: kept(keeps), ..state.option(self.op()) },
            FromNode::Unowned { released: Some(state), keeps, .. } => {
                let option = sb_option { flags: kept(keeps), ..state.option(self.op()) };
                with_reason(Some(Reason::Released), option)
            }
            FromNode::Unowned { served, next, newest, released: None, keeps } => {
                let (next, generation) = (next.to_be(), newest.to_be());
                let state = sb_flow_state { next, generation, ..Default::default() };
                let option = sb_option { flags: kept(keeps), ..blank.saying(&state) };
                with_reason(served.then_some(Reason::Served), option)
            }
            FromNode::Lacks { adoption } => {
                let state = sb_flow_state { generation: adoption.to_be(), ..Default::default() };
                with_reason(Some(Reason::NoSocket), blank.saying(&state))
            }
            FromNode::Kept { state, end } | FromNode::Restored { state, end } => {
                blank.saying(&sb_kept { flow: state.to_wire(), end: end.to_be() })
            }
            FromNode::Confirmed { arrived, .. } => {
                blank.saying(&sb_confirmed { arrived: arrived.to_be(), ..Default::default() })
            }
            FromNode::Move { target, state } => {
                blank.saying(&sb_move { flow: state.to_wire(), target: target.to_be() })
            }
            FromNode::Resume { of, gone, state, .. } => sb_option {
                flags: if gone { SB_RESUME_GONE as u8 } else { 0 },
                ..blank.saying(&sb_move { flow: state.to_wire(), target: of.to_be() })
            },
            FromNode::Report(report) => report.option(),
            FromNode::Sized { path, bytes } => {
                blank.saying(&sb_size { bytes: bytes.to_be(), path: path.to_be(), reserved: [0; 2] })
            }
            FromNode::Synced { nonce, clock } => {
                let clock = [(clock >> 32) as u32, clock as u32].map(u32::to_be);
                blank.saying(&sb_sync { nonce: nonce.to_be_bytes(), clock })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_state::Handshake;
    use crate::packet::{bare, flags};
    use crate::switches::{Software, SwitchState};

    #[test]
    fn a_message_sets_its_own_fields_only() {
        let handshake = Handshake { options: SB_SYN_ALL as u8, ..Default::default() };
        let state = FlowState { handshake, requests: 3, ..FlowState::at(Seq(1), Seq(7)) };
        let recovery = Recovery { last: true, again: true };
        let request = Reading::Request { head: 90, recovery };
        let both = SB_HANDOVER_LAST | SB_HANDOVER_AGAIN;
        let rows = [
            (ToNode::Adopt { head: 90, grown: 0, recovery, queue_share: 80 }, both, 90, 80),
            (ToNode::Forward(request), SB_HANDOVER_REQUEST | both, 90, 0),
            (ToNode::Forward(Reading::None), 0, 0, 0),
            (ToNode::Confirm(Reading::More { skip: 4 }), SB_HANDOVER_READ, 4, 0),
        ];
        for (message, flags, boundary, queue_share) in rows {
            let option = message.option(&state);
            let handover = sb_handover {
                flow: state.to_wire(),
                boundary: u16::to_be(boundary),
                queue_share,
                reserved: 0,
            };
            let expected = handoff::blank(message.op()).saying(&handover);
            assert_eq!(option, sb_option { flags: flags as u8, ..expected }, "{message:?}");
            assert_eq!(ToNode::read(&option), Some(message));
            assert_eq!(FlowState::read(&option), state);
        }
    }

    #[test]
    fn only_an_adoption_with_a_longer_or_shorter_head_is_of_a_later_version() {
        let state = FlowState { heads: 1, ..FlowState::at(Seq(1), Seq(7)) };
        for grown in [i16::MIN, -1, 0, 1, i16::MAX] {
            let adopt = ToNode::Adopt { head: 90, grown, recovery: Recovery::default(), queue_share: 80 };
            let option = adopt.option(&state);
            assert_eq!(ToNode::read(&option), Some(adopt));
            assert_eq!(option.version, if grown == 0 { SB_VERSION_USUAL } else { SB_VERSION_GROWN });
            assert_eq!(FlowState::read(&option).heads & 0xffff, 1);
        }
    }

    #[test]
    fn what_is_to_be_kept_has_an_end() {
        let state = FlowState::at(Seq(1), Seq(7));
        for message in [ToNode::Keep { end: Seq(90) }, ToNode::Restore, ToNode::Icmp] {
            let option = message.option(&state);
            assert_eq!((ToNode::read(&option), FlowState::read(&option)), (Some(message), state));
        }
        let option = ToNode::Keep { end: Seq(90) }.option(&state);
        assert_eq!(option.said::<sb_kept>().end, 90u32.to_be());
    }

    #[test]
    fn questions_announce_an_adoption() {
        let next = Generation::first(3).successor(4);
        for message in [ToNode::Release { abort: true, next }, ToNode::Probe { next }] {
            let state = FlowState { generation: Generation::first(3), ..FlowState::at(Seq(1), Seq(7)) };
            let option = message.option(&state);
            let question = sb_question { flow: state.to_wire(), next_generation: next.to_be() };
            assert_eq!(option.said::<sb_question>(), question);
            assert_eq!((ToNode::read(&option), FlowState::read(&option)), (Some(message), state));
        }
    }

    #[test]
    fn messages_to_agents_read_back() {
        let software = Software { program: [1, 2, 3], config: 9 };
        let state = Some(SwitchState::Withdrawn);
        let own = SwitchSelf { number: Some(63), software, taken_over: 5, state };
        for drain in [false, true] {
            let order = Some(Order { number: 8, drain });
            let hello =
                ToAgent::Hello { facts: !drain, heard: (1, 2), newest: 7, listed: (3, 4), order, own };
            assert_eq!(ToAgent::read(&hello.option()), Some(hello));
        }
    }

    #[test]
    fn messages_of_nodes_read_back() {
        let flow = sb_flow::default();
        let inner = bare(&flow, true, Seq(1), Seq(2), flags::ACK);
        let view = TcpView::parse(&inner).unwrap();
        let state = FlowState { requests: 3, heads: 5, ..FlowState::at(Seq(1), Seq(7)) };
        let (reason, queue, next) = (Some(Reason::QueueFull), (65_535, 511), Generation::first(2));
        let messages = [
            FromNode::Adopted { queue },
            FromNode::Refused { reason, queue, requests: 3, generation: next },
            FromNode::Released {
                reason: Some(Reason::Responding),
                state: FlowState { generation: next, ..state },
                sent: Seq(2),
                clock: None,
            },
            FromNode::Busy(None),
            FromNode::Closed(state),
            FromNode::Owned { state, keeps: true },
            FromNode::Unread(state),
            FromNode::Unowned { served: true, next: Seq(7), newest: next, released: None, keeps: false },
            FromNode::Lacks { adoption: next },
            FromNode::Unowned {
                served: false,
                next: state.next,
                newest: state.generation,
                released: Some(state),
                keeps: true,
            },
            FromNode::Kept { state, end: Seq(9) },
            FromNode::Restored { state, end: Seq(90) },
            FromNode::Confirmed { arrived: Seq(9), sent: Seq(2), clock: None },
            FromNode::Move { target: 9, state },
            FromNode::Sized { path: 3, bytes: 70_000 },
            FromNode::Synced { nonce: 1 << 40, clock: u64::MAX - 1 },
        ];
        for message in messages {
            assert_eq!(FromNode::read(&flow, &message.option(), &view, &inner), Some(message));
        }
    }
}
