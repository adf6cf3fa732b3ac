//! Messages from nodes.

use std::num::Wrapping;

use switchback_wire::Reason;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::FromNode;
use switchback_wire::packet::TcpView;
use switchback_wire::report::Report;
use switchback_wire::{NodeAddress, Seq, sb_flow, sb_record};

use super::pending::Pending;
use super::resuming::Offer;
use super::{Dispatcher, Heard, Moment, unlimited};
use crate::plan::NodeId;
use switchback_flow::connection::Connection;
use switchback_flow::entry::{Entry, Mode};
use switchback_flow::held::{Held, HeldPacket};
use switchback_flow::mark::Mark;
use switchback_flow::request::{InProgress, Request};
use switchback_flow::state::{Adopting, Event, State};
use switchback_flow::verdict::{Judged, Verdict};

impl Dispatcher {
    /// Handles a handoff packet from a node.
    pub(super) fn on_handoff(&mut self, at: Moment<'_>, record: &sb_record, packet: &[u8], view: TcpView) {
        let flow = &record.flow;
        let origin = || FlowState::read(&record.option).origin;
        let Some(node) = self.plan.node_at(NodeAddress::from_wire(record.node)) else { return };
        let Some(message) = FromNode::read(flow, &record.option, &view, packet) else { return };
        match message {
            FromNode::Report(report) => {
                self.stats.reports += 1;
                self.on_report(at, node, &report);
                self.pass_on(Heard::Report(node, report));
            }
            FromNode::Synced { nonce, clock } => self.on_synced(at.now, node, nonce, clock),
            FromNode::Sized { path, bytes } => {
                self.sizes.learn(path, bytes);
                self.pass_on(Heard::Sized { path, bytes });
            }
            FromNode::Owned { state, keeps } => {
                self.on_owned(at, flow, node, &state, packet, view);
                self.ask_if_kept(at, flow, (node, keeps));
            }
            FromNode::Unread(state) => self.on_unread(at, flow, node, &state),
            FromNode::Unowned { served, next, newest, released, keeps } => {
                let (seq, origin) = (view.seq, origin());
                let released = released.as_ref();
                let unowned = Event::Unowned { node, origin, seq, served, next, newest, released, keeps };
                self.on_unowned(at, flow, unowned, packet, &view);
                self.ask_if_kept(at, flow, (node, keeps));
            }
            FromNode::Lacks { adoption } => {
                self.on_lacked(at, flow, (node, origin(), adoption), packet, &view);
            }
            FromNode::Kept { state, end } => self.on_kept(at, flow, node, &state, (view.seq, end)),
            FromNode::Restored { state, end } => self.on_restored(at, flow, node, (&state, end), packet),
            FromNode::Move { target, state } => self.on_move(at, flow, node, (target, &state), packet),
            FromNode::Resume { of, gone, state, has } => {
                self.on_resume(at, flow, node, &Offer { of, gone, state: &state, has }, &view);
            }
            // The program handles the ones that arrive from the network.
            FromNode::Closed(state) => self.forget(flow, state.origin),
            _ => self.on_reply(at, flow, (node, origin()), message, packet, view),
        }
    }

    /// Handles a node's report about one of its listeners.
    pub(super) fn on_report(&mut self, at: Moment<'_>, node: NodeId, report: &Report) {
        for group in self.plan.report(node, report, at.now) {
            self.admit(at, group, node);
        }
    }

    /// Handles the answer to a question about a flow.
    fn on_reply(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, Seq),
        reply: FromNode,
        packet: &[u8],
        view: TcpView,
    ) {
        let is_its = |pending: &Pending| pending.connection.entry.origin == origin;
        let is_pending = self.pending.get(flow).is_some_and(is_its);
        let Some(mut pending) = is_pending.then(|| self.pending.take(flow)).flatten() else {
            self.on_late_reply(at, flow, (node, origin), reply, packet, view);
            return;
        };
        let asked = pending.state.question_seq(&pending.connection);
        if let State::Adopting(state) = &mut pending.state
            && state.may_be_passed_on_to(node)
            && matches!(reply, FromNode::Adopted { .. } | FromNode::Refused { .. })
            && view.seq == asked
        {
            state.pass_on(node, &mut pending.connection, &mut self.world(at, flow));
        }
        // Of a request in several packets the first one is refused.
        let is_refused = matches!(reply, FromNode::Refused { .. });
        let begins = match &pending.state {
            State::Delivering(state) => is_refused && state.begins_at(view.seq),
            _ => false,
        };
        if pending.connection.entry.node == node && (view.seq == asked || begins) {
            if let FromNode::Confirmed { sent, clock, .. } = reply {
                pending.connection.note_position(sent, clock, at.now);
            }
            self.step(at, flow, pending, Event::Reply(reply));
        } else {
            // A late answer to an earlier question does not apply to this one.
            let Pending { connection, state } = pending;
            self.keep(flow, connection, state);
        }
    }

    /// Handles an answer about a flow that is not pending.
    fn on_late_reply(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, Seq),
        reply: FromNode,
        packet: &[u8],
        view: TcpView,
    ) {
        let known = self.current(at, flow).filter(|_| self.answered.entry(flow).is_none());
        let Some(entry) = known else { return };
        if (entry.node, entry.origin) != (node, origin) {
            return;
        }
        match reply {
            // The local node's answers do not come through the program.
            FromNode::Adopted { queue } if entry.is_adopting() => {
                if let Some(service) = self.plan.service(flow.vip()) {
                    self.stats.adopted_for_program(service, node);
                }
                let group = self.plan.group_of(flow.vip(), node).and_then(|group| self.plan.group_mut(group));
                group.into_iter().for_each(|group| group.adopted(node, queue, at.now));
                self.set_entry(flow, &entry.adopted());
            }
            FromNode::Refused { generation, .. }
                if entry.is_adopting() && (generation, view.seq) == (entry.generation, entry.mark.begins) =>
            {
                self.on_refused_by_chosen(at, flow, &entry, reply, packet);
            }
            // The client sends the request again if the node has not got it.
            _ if entry.is_adopting() => {}
            FromNode::Refused { reason: Some(Reason::NoSocket), requests, generation, .. } => {
                self.on_no_socket(at, flow, entry, (requests, generation), packet, view);
            }
            FromNode::Confirmed { arrived, .. } => self.on_progress(flow, entry, arrived, view),
            _ => {}
        }
    }

    /// Handles the refusal of a first request by the node that the program has given it to.
    fn on_refused_by_chosen(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        entry: &Entry,
        refused: FromNode,
        packet: &[u8],
    ) {
        let Some(held) = HeldPacket::new(packet) else { return };
        let before = Entry { mode: Mode::Held, ..entry.before_adoption() };
        let data = &packet[held.view.data..held.view.end];
        // The program has taken its tokens.
        let request = match self.judge(Moment { take: &unlimited, ..at }, flow, data, &before) {
            Verdict::To { request, head: None } if request.takes_all_to(held.end()) => request,
            // The configuration is another one by now.
            verdict => {
                let judged = Judged { verdict, next: None };
                return self.begin(at, flow, Connection::new(before, at.now), &held, Some(judged));
            }
        };
        let connection = Connection::new(before, at.now);
        let Some(mut connection) = self.hold_first(at, flow, connection, &held) else { return };
        let request = Box::new(InProgress::begin(request, &mut connection, at.now));
        let state = Adopting::begun_by_program(entry, request, &mut connection, at.now);
        self.step(at, flow, Pending { connection, state }, Event::Reply(refused));
    }

    /// Handles a release for another node. Only that node can continue the flow: the connection is encrypted, and only
    /// that node has the keys.
    fn on_move(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        node: NodeId,
        (target, state): (u32, &FlowState),
        packet: &[u8],
    ) {
        let Some(held) = HeldPacket::new(packet) else { return };
        let (seq, ack) = (held.view.seq, held.view.ack);
        let entry = match self.pending.get(flow) {
            // The node's ADOPTED was lost, or overtaken by the MOVE.
            Some(Pending { connection, state: State::Adopting(state) }) if state.is_chosen_by_owner() => {
                let is_later = seq != connection.entry.mark.next || connection.last_ack.before(ack);
                is_later.then_some(connection.entry)
            }
            Some(_) => None,
            None => match self.current(at, flow) {
                Some(entry) => Some(entry),
                None if self.knows(flow) => None,
                None => {
                    // The switch that gave the flow to this node is gone.
                    let entry = Entry::of_node(node, state, self.plan.limits.body);
                    self.recover(flow, state.origin, entry, &held.view)
                }
            },
        };
        // The node repeats its message until it hears of the adoption. By then a later adoption may have returned the
        // flow.
        let is_current = |entry: &Entry| {
            entry.node == node
                && entry.origin == state.origin
                && entry.mark.next == state.next
                && self.answered.entry(flow).is_none()
        };
        let Some(entry) = entry.filter(is_current) else { return };
        self.pending.take(flow);
        let target = self.plan.node_by_name_hash(target);
        let group = target.and_then(|target| self.plan.group_of(flow.vip(), target));
        let service = self.plan.service(flow.vip());
        let (Some(target), Some(group), Some(service)) = (target, group, service) else {
            self.reset(flow, entry.origin, ack);
            return;
        };
        let generation = entry.generation.following();
        let entry = Entry { mark: Mark { next: seq, ..entry.mark }, generation, ..entry };
        let mut after = entry;
        after.enter_tunnel(0);
        let mut connection = Connection::new(entry, at.now);
        let request = Request { last: true, ..Request::new(group, service, after) };
        let mut request = Box::new(InProgress::begin(request, &mut connection, at.now));
        request.packets = Held::of(vec![held]);
        connection.last_ack = ack;
        self.stats.moved += 1;
        let state = Adopting::follow_owner(target, request, &mut connection, &mut self.world(at, flow));
        self.keep(flow, connection, state);
    }

    /// Handles refused data: the node lacks data before it, so the switch reads again from the node's mark on.
    fn on_unread(&mut self, at: Moment<'_>, flow: &sb_flow, node: NodeId, state: &FlowState) {
        let Some(said) = Entry::of_node(node, state, self.plan.limits.body) else { return };
        if let Some(pending) = self.pending.take(flow) {
            self.step(at, flow, pending, Event::Unread(&said));
            return;
        }
        let current = self.current(at, flow).filter(|_| self.answered.entry(flow).is_none());
        let Some(entry) = current else { return };
        if !entry.is_held() && entry.is_of_same(&said) && said.mark.next != entry.mark.next {
            self.stats.unread += 1;
            self.set_entry(flow, &entry.set_back_to(&said));
        }
    }

    /// Moves the mark on, since the node has enough of a long body.
    fn on_progress(&mut self, flow: &sb_flow, mut entry: Entry, arrived: Seq, view: TcpView) {
        if entry.mark.is_passing() && view.seq == entry.mark.due() && !arrived.before(view.seq) {
            entry.mark.settle();
            self.set_entry(flow, &entry);
        }
    }

    /// Handles a request that was forwarded to a node without a socket for its flow, because the server or the node was
    /// restarted. From here on any node can have the flow.
    fn on_no_socket(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        latest: Entry,
        (requests, granted): (u16, Generation),
        packet: &[u8],
        view: TcpView,
    ) {
        // Only the flow's latest request counts: a late copy of an earlier one finds no socket at a former node.
        if latest.mark.requests.0 != requests {
            return;
        }
        let mark = Mark {
            requests: Wrapping(0),
            tries: latest.mark.tries.saturating_add(1),
            ..latest.mark.moved_to(view.seq)
        };
        let rank = self.plan.rank;
        let generation = match granted {
            Generation::NONE => latest.generation.successor(rank.number),
            granted => granted,
        };
        let mut entry = Entry { mark, generation, ..latest.without_node() };
        if view.is_empty() {
            // The client's FIN, if no data before it is missing.
            if view.seq == latest.mark.next {
                self.on_end(flow, &entry, packet, &view);
            }
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        if !granted.is_some() && !rank.is_alone {
            // Another switch may have given the flow to another node.
            entry.mode = Mode::Sought;
            entry.generation = latest.generation;
        }
        self.begin(at, flow, Connection::new(entry, at.now), &held, None);
    }
}
