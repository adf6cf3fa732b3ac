//! The entry of a flow: what a switch knows of it between two packets.

mod codec;

use std::num::Wrapping;

use switchback_http::{Body, Head, Limits, Reject, Version};
use switchback_wire::Seq;
use switchback_wire::flow_state::{FlowState, Handshake, Stream};
use switchback_wire::generation::Generation;

use crate::NodeId;
use crate::mark::{Mark, READ_MAX};

/// Who has a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No node has had it yet.
    #[default]
    Held,
    /// As `Held`, but another process may have given the first request to a node: the nodes are asked first.
    Sought,
    /// A node, which gets the client's stream.
    AtNode(Stream),
    /// A node, to which the program itself has given the first request, and which has not confirmed that.
    Adopting,
    /// Nobody: the node that had it is dead, and another one is to go on with its response.
    Resuming,
    /// The switch, which answers the client itself.
    Answered,
}

/// The entry of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node that has the flow, or had it last.
    pub node: NodeId,
    /// Sequence number of the client's first byte.
    pub origin: Seq,
    /// See [`Handshake`].
    pub handshake: Handshake,
    /// See [`Mode`].
    pub mode: Mode,
    /// See [`Mark`].
    pub mark: Mark,
    /// The adoption by the node; without a node, the last one that was chosen or granted.
    pub generation: Generation,
    /// The client has been told that data has arrived which its node does not have yet.
    pub ahead: bool,
    /// A SYN may have begun another connection of the 4-tuple.
    pub contested: bool,
}

impl Entry {
    /// A flow without a node, whose first request begins at `origin`.
    pub fn new(origin: Seq) -> Self {
        Entry { origin, mark: Mark::at(origin), ..Entry::default() }
    }

    /// A flow that `node` has described; None if it cannot say what comes at the mark. It does not know how much of a
    /// body's limit is left.
    pub fn of_node(node: NodeId, state: &FlowState, body_max: Option<u64>) -> Option<Self> {
        let (stream, framing) = state.at_mark?;
        let mark = Mark {
            framing: framing.with_allowed(body_max.unwrap_or(u64::MAX)),
            requests: Wrapping(state.requests),
            heads: state.heads,
            session: state.session,
            ..Mark::at(state.next)
        };
        let FlowState { origin, handshake, generation, .. } = *state;
        let mode = Mode::AtNode(stream);
        Some(Entry { node, origin, handshake, mode, mark, generation, ..Entry::default() })
    }

    /// The description of the flow in handoff packets.
    pub fn flow_state(&self) -> FlowState {
        let stream = if let Mode::AtNode(stream) = self.mode { stream } else { Stream::Requests };
        FlowState {
            origin: self.origin,
            handshake: self.handshake,
            next: self.mark.next,
            at_mark: Some((stream, self.mark.framing)),
            requests: self.mark.requests.0,
            heads: self.mark.heads,
            session: self.mark.session,
            generation: self.generation,
        }
    }

    /// No node has had the flow.
    pub fn is_held(&self) -> bool {
        matches!(self.mode, Mode::Held | Mode::Sought)
    }

    /// A node has the flow.
    pub fn has_node(&self) -> bool {
        matches!(self.mode, Mode::AtNode(_))
    }

    /// The program itself has given the first request to a node, which has not confirmed that.
    pub fn is_adopting(&self) -> bool {
        self.mode == Mode::Adopting
    }

    /// The entry before the adoption that the program has begun, as if the request had not been read.
    pub fn before_adoption(&self) -> Entry {
        Entry { mode: Mode::Sought, mark: Mark::at(self.mark.begins), ..*self }
    }

    /// The entry after the adoption that the program has begun.
    pub fn adopted(&self) -> Entry {
        Entry { mode: Mode::AtNode(Stream::Requests), ..*self }
    }

    /// The switch answers the client itself.
    pub fn is_answered(&self) -> bool {
        self.mode == Mode::Answered
    }

    /// The flow has a node, requests come, and no other protocol is asked for.
    pub fn has_requests(&self) -> bool {
        matches!(self.mode, Mode::AtNode(Stream::Requests | Stream::Resumed))
    }

    /// The flow's node goes on with another one's response, and takes no further request.
    pub fn is_resumed(&self) -> bool {
        self.mode == Mode::AtNode(Stream::Resumed)
    }

    /// The flow is about to be resumed.
    pub fn is_resuming(&self) -> bool {
        self.mode == Mode::Resuming
    }

    /// The flow stays with its node, whatever comes.
    pub fn is_tunnel(&self) -> bool {
        self.mode == Mode::AtNode(Stream::Tunnel)
    }

    /// The server decides whether the flow becomes a tunnel.
    pub fn is_upgrading(&self) -> bool {
        self.mode == Mode::AtNode(Stream::Upgrading)
    }

    /// Whether the entries are of one connection at one node.
    pub fn is_of_same(&self, other: &Entry) -> bool {
        (self.node, self.origin) == (other.node, other.origin)
    }

    /// Whether this entry of the connection is the later one: of a later adoption, or further in the stream.
    pub fn is_newer(&self, than: &Entry) -> bool {
        match self.generation == than.generation {
            true => self.mark.is_newer(&than.mark),
            false => self.generation.is_newer(than.generation),
        }
    }

    /// Moves the mark behind a request's head, and through its body as far as `data` goes, which begins at the mark; how
    /// much of it has been read. What the client says of the connection's end changes nothing: servers read that in many
    /// ways, and what follows is read here.
    pub fn enter(&mut self, head: &Head<'_>, data: &[u8], limits: &Limits) -> Result<usize, Reject> {
        if head.version == Version::Http2 {
            self.enter_tunnel(head.len);
            return Ok(head.len);
        }
        self.mode = Mode::AtNode(if head.tunnel { Stream::Upgrading } else { Stream::Requests });
        self.mark.enter(head.len, head.method == "HEAD");
        self.mark.framing = head.body.framing(limits);
        self.mark.settle();
        if head.body != Body::Chunked {
            return Ok(head.len);
        }
        let data = &data[..data.len().min(READ_MAX.max(head.len))];
        self.mark.follow(&data[head.len..])?;
        Ok(data.len().min((self.mark.next - self.mark.begins) as usize))
    }

    /// Moves the mark behind something that begins a stream of which no more is read.
    pub fn enter_tunnel(&mut self, len: usize) {
        self.mode = Mode::AtNode(Stream::Tunnel);
        self.mark.enter(len, false);
    }

    /// The entry with the mark that its node says, whatever has been read since.
    pub fn set_back_to(&self, said: &Entry) -> Entry {
        let mark = Mark { turn: self.mark.turn + Wrapping(1), ..said.mark };
        Entry { mode: said.mode, mark, ..*self }
    }

    /// The entry before its last request, as if that had not been read.
    pub fn before_request(&self) -> Entry {
        let mark = Mark {
            requests: self.mark.requests - Wrapping(1),
            heads: self.mark.heads >> 1,
            ..self.mark.moved_to(self.mark.begins)
        };
        Entry { mode: Mode::AtNode(Stream::Requests), mark, ..*self }
    }

    /// The same, without a node.
    pub fn without_node(&self) -> Entry {
        Entry { mode: Mode::Held, ..*self }
    }
}
