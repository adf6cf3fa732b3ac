//! The beginnings of requests that nodes keep, so that what a switch has acknowledged is not lost with it
//! (docs/decisions/0041).

use switchback_flow::connection::Connection;
use switchback_flow::held::HeldPacket;
use switchback_flow::state::Event;
use switchback_wire::flow_state::FlowState;
use switchback_wire::message::ToNode;
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{Seq, sb_flow};

use super::budget::Rate;
use super::pending::Pending;
use super::{Dispatcher, Moment};
use crate::plan::NodeId;

/// KEEPs that a switch sends. One that is not sent is lost, as any packet may be: nothing is acknowledged then.
pub(super) const KEEPS: Rate = Rate { per_second: 10_000 };

impl Dispatcher {
    /// Has the node keep the packet, which belongs to this state of the flow.
    pub(super) fn have_kept(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        node: NodeId,
        state: &FlowState,
        packet: &HeldPacket,
    ) {
        if self.keeps.take(1, true, at.now) {
            let keep = ToNode::Keep { end: packet.end() };
            self.send(keep, node, flow, state, &packet.view, &packet.bytes);
        }
    }

    /// A node keeps part of what is held of the flow.
    pub(super) fn on_kept(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        node: NodeId,
        state: &FlowState,
        part: (Seq, Seq),
    ) {
        let is_its = |pending: &Pending| pending.connection.entry.origin == state.origin;
        if !self.pending.get(flow).is_some_and(is_its) {
            return;
        }
        let Some(Pending { mut connection, state: waiting }) = self.pending.take(flow) else { return };
        if connection.note_kept(node, state.next, part) {
            waiting.help(&mut connection, &mut self.world(at, flow));
        }
        self.keep(flow, connection, waiting);
    }

    /// Asks a node that keeps data of a known flow for it.
    pub(super) fn ask_if_kept(&mut self, at: Moment<'_>, flow: &sb_flow, (node, keeps): (NodeId, bool)) {
        let is_unknown = self.pending.get(flow).is_some_and(|pending| pending.state.is_unknown());
        if keeps && !is_unknown && self.current(at, flow).is_some() {
            self.ask_for_kept(flow, node, None);
        }
    }

    /// Asks the node for the packet of this connection that begins there; for the first one if none is given.
    pub(super) fn ask_for_kept(&mut self, flow: &sb_flow, node: NodeId, from: Option<(Seq, Seq)>) {
        let (origin, seq) = from.unwrap_or((Seq(0), Seq(0)));
        let question = bare(flow, true, seq, Seq(0), flags::ACK);
        let Some(view) = TcpView::parse(&question) else { return };
        self.send(ToNode::Restore, node, flow, &FlowState::at(origin, Seq(0)), &view, &question);
    }

    /// A node gives back a packet that it has kept, of data that ends at `end`. It is one of the client's, which the client
    /// does not send again.
    pub(super) fn on_restored(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        node: NodeId,
        (state, end): (&FlowState, Seq),
        packet: &[u8],
    ) {
        let Some(packet) = HeldPacket::new(packet) else { return };
        match self.pending.get(flow) {
            Some(pending) if pending.state.is_unknown() => {
                let Some(pending) = self.pending.take(flow) else { return };
                self.step(at, flow, pending, Event::Restored { node, state, packet: &packet });
            }
            _ => self.restore(at, flow, state.origin, &packet),
        }
        if packet.end().before(end) {
            self.ask_for_kept(flow, node, Some((state.origin, packet.end())));
        }
    }

    fn restore(&mut self, at: Moment<'_>, flow: &sb_flow, origin: Seq, packet: &HeldPacket) {
        let current = self.current(at, flow).filter(|entry| entry.origin == origin);
        let Some(entry) = current.filter(|_| self.answered.entry(flow).is_none()) else { return };
        let mut pending = match self.pending.take(flow) {
            Some(pending) => pending,
            // Nodes were asked, and one has answered the request already; or its client has to come first.
            None if !entry.has_node() => return,
            None => Pending::new(Connection::new(entry, at.now), at.now),
        };
        self.forward_old_data(flow, &pending.connection, pending.in_delivery(), packet);
        if pending.connection.entry.origin == origin && self.has_room(at, flow, &mut pending, packet) {
            pending.restore(packet);
            self.on_data(at, flow, pending, &packet.view);
        } else {
            let Pending { connection, state } = pending;
            self.keep(flow, connection, state);
        }
    }
}
