//! The state of a flow as handoff packets describe it, from switch to node and back.

use switchback_http::framing::Framing;

use crate::Seq;
use crate::generated::*;
use crate::generation::Generation;
use crate::handoff;

/// What a client's handshake has settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The client's MSS, in bytes.
    pub mss: u16,
    /// TCP options that both sides have, `SB_SYN_*`, and the round trip above them.
    pub options: u8,
    /// Window scales (RFC 7323 section 2): the client's in the high nibble, ours in the low nibble.
    pub wscale: u8,
}

impl Handshake {
    /// Whether acknowledgments may be selective (RFC 2018).
    pub fn has_sack(&self) -> bool {
        u32::from(self.options) & SB_SYN_SACK != 0
    }

    /// Whether packets have timestamps (RFC 7323 section 3).
    pub fn has_timestamps(&self) -> bool {
        u32::from(self.options) & SB_SYN_TSTAMP != 0
    }

    /// Takes over the round trip that `later` has.
    pub fn take_round_trip(&mut self, later: Handshake) {
        let both = SB_SYN_ALL as u8;
        self.options = self.options & both | later.options & !both;
    }

    /// Shift count of the windows that the client announces.
    pub fn client_scale(&self) -> u8 {
        self.wscale >> 4
    }

    /// Shift count of the windows that are announced to the client.
    pub fn own_scale(&self) -> u8 {
        self.wscale & 15
    }
}

/// The bits of `sb_flow_state.framing` beside the state.
const MARKS: u16 = SB_MARK_TUNNEL | SB_MARK_UPGRADING | SB_MARK_RESUMED;

/// What a flow's client sends, as the switch reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// Requests.
    #[default]
    Requests,
    /// Requests up to the mark; the server decides whether another protocol follows.
    Upgrading,
    /// A protocol that is not read.
    Tunnel,
    /// Requests, of which the flow's node takes none: it goes on with the response of another one.
    Resumed,
}

impl Stream {
    /// The bits of `sb_flow_state.framing` beside the state.
    fn bits(self) -> u16 {
        match self {
            Stream::Requests => 0,
            Stream::Upgrading => SB_MARK_UPGRADING,
            Stream::Tunnel => SB_MARK_TUNNEL,
            Stream::Resumed => SB_MARK_RESUMED,
        }
    }

    fn from_bits(bits: u16) -> Option<Stream> {
        let all = [Stream::Requests, Stream::Upgrading, Stream::Tunnel, Stream::Resumed];
        all.into_iter().find(|stream| stream.bits() == bits)
    }
}

/// All that a handoff packet says of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Sequence number of the client's first byte.
    pub origin: Seq,
    /// See [`Handshake`].
    pub handshake: Handshake,
    /// The mark: sequence number at which the next request, or more of a body, begins.
    pub next: Seq,
    /// What comes at the mark; None if the option cannot say it, 4 GiB or more before the end of a body.
    pub at_mark: Option<(Stream, Framing)>,
    /// Requests given to the node, modulo 2^16.
    pub requests: u16,
    /// The HEAD requests among the last 32, the latest in the lowest bit.
    pub heads: u32,
    /// The session of the last request.
    pub session: sb_session,
    /// The flow's adoption.
    pub generation: Generation,
}

impl FlowState {
    /// A flow with its mark between requests, of which nothing else is known.
    pub fn at(origin: Seq, next: Seq) -> Self {
        FlowState {
            origin,
            handshake: Handshake::default(),
            next,
            at_mark: Some(Default::default()),
            requests: 0,
            heads: 0,
            session: sb_session::default(),
            generation: Generation::NONE,
        }
    }

    /// An option of the operation that describes the flow, without a tag.
    pub fn option(&self, op: sb_op) -> sb_option {
        handoff::blank(op).saying(&self.to_wire())
    }

    /// The description of the flow.
    pub fn to_wire(self) -> sb_flow_state {
        let (framing, left) = self.at_mark.map_or((0, u32::MAX), |(stream, framing)| {
            (framing.state() | stream.bits(), u32::try_from(framing.left()).unwrap_or(u32::MAX))
        });
        sb_flow_state {
            origin: self.origin.to_be(),
            next: self.next.to_be(),
            left: left.to_be(),
            heads: self.heads.to_be(),
            requests: self.requests.to_be(),
            framing: framing.to_be(),
            mss: self.handshake.mss.to_be(),
            options: self.handshake.options,
            wscale: self.handshake.wscale,
            session: self.session,
            generation: self.generation.to_be(),
        }
    }

    /// The state of a flow with a node, in a message about it whose tag has been verified.
    pub fn read(option: &sb_option) -> Self {
        FlowState::from_wire(&option.said())
    }

    /// The state in this description of a flow.
    pub fn from_wire(said: &sb_flow_state) -> Self {
        let (framing, left) = (u16::from_be(said.framing), u32::from_be(said.left));
        let stream = Stream::from_bits(framing & MARKS);
        let framing = Framing::new(framing & !MARKS, left.into());
        FlowState {
            origin: Seq::from_be(said.origin),
            handshake: Handshake { mss: u16::from_be(said.mss), options: said.options, wscale: said.wscale },
            next: Seq::from_be(said.next),
            at_mark: stream.filter(|_| left != u32::MAX).map(|stream| (stream, framing)),
            requests: u16::from_be(said.requests),
            heads: u32::from_be(said.heads),
            session: said.session,
            generation: Generation::from_be(said.generation),
        }
    }
}

impl sb_owned {
    /// The flow with its mark between requests, of which agents tell nothing else.
    pub fn flow_state(&self) -> FlowState {
        let handshake = Handshake { mss: self.mss, options: self.options, wscale: self.wscale };
        let generation = Generation::from_number(self.generation);
        FlowState { handshake, generation, ..FlowState::at(Seq(self.origin), Seq(self.next)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_http::framing::generated::{SB_FRAMING_BODY, SB_FRAMING_SKIP};

    #[test]
    fn a_description_reads_back_but_not_beyond_4_gib() {
        for stream in [Stream::Requests, Stream::Upgrading, Stream::Tunnel] {
            let at_mark = |left| Some((stream, Framing::new(SB_FRAMING_BODY | SB_FRAMING_SKIP, left)));
            let state = FlowState {
                handshake: Handshake { mss: 1460, options: SB_SYN_ALL as u8, wscale: 0x97 },
                at_mark: at_mark(u64::from(u32::MAX) - 1),
                requests: 3,
                heads: 5,
                session: sb_session::new(*b"abc", Some(*b"xyz")),
                generation: Generation::first(5),
                ..FlowState::at(Seq(1), Seq(7))
            };
            let read = |state: FlowState| FlowState::read(&state.option(sb_op::SB_OP_OWNED));
            assert_eq!(read(state), state);
            let unknown = FlowState { at_mark: None, ..state };
            for left in [u32::MAX.into(), 1 << 32] {
                assert_eq!(read(FlowState { at_mark: at_mark(left), ..state }), unknown);
            }
            assert_eq!(read(unknown), unknown);
        }
    }

    #[test]
    fn a_mark_is_not_both_before_a_tunnel_and_before_an_answer() {
        let option = FlowState::at(Seq(1), Seq(7)).option(sb_op::SB_OP_OWNED);
        let both = (SB_MARK_TUNNEL | SB_MARK_UPGRADING).to_be();
        let option = option.with(|flow: &mut sb_flow_state| flow.framing = both);
        assert_eq!(FlowState::read(&option).at_mark, None);
    }
}
