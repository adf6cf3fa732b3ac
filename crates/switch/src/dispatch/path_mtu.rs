//! Path MTU messages of routers about flows that another switch has.
//!
//! A router chooses the switch by the addresses of its own message, so it can be any. The nodes are asked for the flow,
//! within the budget for questions, and the owner gets the message.

use switchback_flow::question::Question;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::ToNode;
use switchback_wire::packet::{TcpView, bare};
use switchback_wire::{Seq, sb_flow};

use super::{Dispatcher, Moment};
use crate::plan::NodeId;

/// A message that waits for the flow's node.
#[derive(Debug)]
pub(super) struct PathMtu {
    /// From its IP header on.
    message: Vec<u8>,
    /// Its position in the flow: that of the packet which it is about.
    view: TcpView,
}

impl PathMtu {
    /// None if the message does not quote the beginning of a TCP header.
    fn new(message: &[u8]) -> Option<Self> {
        const ICMP: usize = 8;
        let ip_len = |packet: &[u8]| match packet.first()? >> 4 {
            4 => Some(usize::from(packet[0] & 15) * 4),
            _ => Some(40),
        };
        let header = ip_len(message)?;
        let quoted = message.get(header + ICMP..)?;
        let tcp = quoted.get(ip_len(quoted)?..)?;
        let seq = Seq(u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?));
        let view = TcpView { tcp: header, data: header, end: message.len(), seq, ack: Seq(0), flags: 0 };
        Some(PathMtu { message: message.to_vec(), view })
    }
}

/// A question that no packet of the client's has caused: no kernel takes a packet without flags.
fn question(flow: &sb_flow) -> Vec<u8> {
    bare(flow, true, Seq(0), Seq(0), 0)
}

/// Whether nothing of the client's has come back with the answer.
pub(super) fn is_bare(question: &TcpView) -> bool {
    question.flags == 0
}

impl Dispatcher {
    /// Handles a message about a flow without an entry.
    pub(super) fn on_path_mtu(&mut self, at: Moment<'_>, flow: &sb_flow, message: &[u8]) {
        if self.knows(flow) || self.pending.get(flow).is_some() || self.messages.get(flow).is_some() {
            return;
        }
        let bytes = question(flow);
        let Some((view, message)) = TcpView::parse(&bytes).zip(PathMtu::new(message)) else { return };
        let (origin, next) = (Seq(0), Generation::NONE);
        let mut question =
            Question { seq: view.seq, origin, nodes: self.plan.nodes_of(flow.vip()), next, is_unsent: false };
        if self.ask(at, flow, &bytes, &view, &mut question) {
            self.messages.insert(*flow, message);
        }
    }

    /// The node has the flow: it gets the message that waits, if there is one.
    pub(super) fn pass_on_message(&mut self, flow: &sb_flow, node: NodeId, state: &FlowState) {
        if let Some(PathMtu { message, view }) = self.messages.remove(flow) {
            self.send(ToNode::Icmp, node, flow, state, &view, &message);
        }
    }
}
