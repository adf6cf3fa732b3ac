//! The dispatcher as the world of one flow (trait `World` of crate `flow`).

use std::time::Duration;

use switchback_config::{Limits, Rank};
use switchback_flow::World;
use switchback_flow::answer::Reply;
use switchback_flow::change::Change;
use switchback_flow::connection::Connection;
use switchback_flow::destination::{Chosen, Next, Placement};
use switchback_flow::entry::Entry;
use switchback_flow::held::HeldPacket;
use switchback_flow::question::Question;
use switchback_flow::request::{InProgress, Request};
use switchback_flow::verdict::Verdict;
use switchback_flow::world::Count;
use switchback_wire::Reason;
use switchback_wire::flow_state::FlowState;
use switchback_wire::message::ToNode;
use switchback_wire::packet::TcpView;
use switchback_wire::report::Queue;
use switchback_wire::{Seq, sb_flow};

use super::{Dispatcher, Moment};
use crate::plan::NodeId;

/// The dispatcher, the time and a flow.
pub(super) struct FlowWorld<'a> {
    dispatcher: &'a mut Dispatcher,
    at: Moment<'a>,
    flow: &'a sb_flow,
}

impl Dispatcher {
    /// The world of a flow.
    pub(super) fn world<'a>(&'a mut self, at: Moment<'a>, flow: &'a sb_flow) -> FlowWorld<'a> {
        FlowWorld { dispatcher: self, at, flow }
    }
}

impl World for FlowWorld<'_> {
    fn now(&self) -> Duration {
        self.at.now
    }

    fn flow(&self) -> &sb_flow {
        self.flow
    }

    fn limits(&self) -> &Limits {
        &self.dispatcher.plan.limits
    }

    fn rank(&self) -> Rank {
        self.dispatcher.plan.rank
    }

    fn entry(&self) -> Option<Entry> {
        self.dispatcher.current(self.at, self.flow)
    }

    fn judge(&mut self, data: &[u8], entry: &Entry) -> Verdict {
        self.dispatcher.judge(self.at, self.flow, data, entry)
    }

    fn next_node(&mut self, request: &Request, entry: &Entry, choice: Option<NodeId>) -> Next {
        self.dispatcher.next_node(self.at, request, entry, choice)
    }

    fn place(&mut self, request: &mut InProgress, has_waited_longest: bool) -> Placement {
        self.dispatcher.place(self.at, request, has_waited_longest)
    }

    fn second(&self, request: &InProgress, first: NodeId) -> Option<NodeId> {
        self.dispatcher.second(self.at, request, first)
    }

    fn is_awaited(&self, request: &InProgress, node: NodeId) -> bool {
        self.dispatcher.is_awaited(request, node)
    }

    fn keep_name_whole(&self, request: &mut InProgress, data: &[u8]) {
        self.dispatcher.keep_name_whole(request, data);
    }

    fn queue_share(&self, group: usize) -> u8 {
        self.dispatcher.plan.share(group)
    }

    fn crowded(&self) -> usize {
        self.dispatcher.crowded()
    }

    fn is_silent(&self, node: NodeId, time: Duration) -> bool {
        self.dispatcher.plan.is_silent(node, time)
    }

    fn is_dead(&self, node: NodeId) -> bool {
        self.dispatcher.plan.is_dead(node, self.at.now)
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.dispatcher.plan.nodes_of(self.flow.vip())
    }

    fn keeper(&self) -> Option<NodeId> {
        self.dispatcher.plan.keeper(self.flow, self.at.now)
    }

    fn keep(&mut self, node: NodeId, state: &FlowState, packet: &HeldPacket) {
        self.dispatcher.have_kept(self.at, self.flow, node, state, packet);
    }

    fn restore(&mut self, node: NodeId) {
        self.dispatcher.ask_for_kept(self.flow, node, None);
    }

    fn send_to(
        &mut self,
        nodes: (NodeId, Option<NodeId>),
        message: ToNode,
        state: &FlowState,
        (view, packet): (&TcpView, &[u8]),
    ) {
        self.dispatcher.send_to(nodes, message, self.flow, state, view, packet);
    }

    fn seek(&mut self, question: &mut Question, (view, packet): (&TcpView, &[u8])) -> bool {
        self.dispatcher.ask(self.at, self.flow, packet, view, question)
    }

    fn to_client(&mut self, packet: &[u8]) {
        self.dispatcher.output.to_client(self.flow, packet);
    }

    fn change(&mut self, change: Change) {
        self.dispatcher.output.change(self.flow, change);
    }

    fn set_entry(&mut self, entry: &Entry) {
        self.dispatcher.set_entry(self.flow, entry);
    }

    fn lock_entry(&mut self, entry: &Entry) {
        self.change(Change::Lock(*entry));
        self.dispatcher.recent.insert(*self.flow, *entry);
    }

    fn move_mark(&mut self, entry: &Entry) {
        self.dispatcher.move_mark(self.flow, entry);
    }

    fn forget(&mut self, origin: Seq) {
        self.dispatcher.forget(self.flow, origin);
    }

    fn forget_in_doubt(&mut self, origin: Seq) {
        self.dispatcher.forget_in_doubt(self.flow, origin);
    }

    fn reset(&mut self, origin: Seq, seq: Seq) {
        self.dispatcher.reset(self.flow, origin, seq);
    }

    fn say_goodbye(&mut self, origin: Seq, seq: Seq, ack: Seq) {
        self.dispatcher.say_goodbye(self.flow, origin, seq, ack);
    }

    fn send_answer(&mut self, connection: &mut Connection, reply: &Reply, head: bool) {
        let reply = match self.dispatcher.plan.is_tls(self.flow.vip()) {
            true => &reply.clone().over_tls(),
            false => reply,
        };
        let asked = self.dispatcher.request_to_answer(self.at, self.flow, connection);
        let Some(answer) = connection.make_answer(reply, head, self.at.now) else {
            self.forget(connection.entry.origin);
            return;
        };
        self.dispatcher.stats.answered(reply.status());
        self.dispatcher.observe_answer(asked, reply.status(), &answer);
        self.dispatcher.send_answer(self.flow, &connection.entry, answer);
    }

    fn recover(&mut self, origin: Seq, entry: Option<Entry>, view: &TcpView) -> Option<Entry> {
        self.dispatcher.recover(self.flow, origin, entry, view)
    }

    fn receive(&mut self, entry: Entry, packet: &HeldPacket) {
        self.dispatcher.on_client(self.at, self.flow, entry, &packet.bytes, packet.view);
    }

    fn adoption_sent(&mut self, group: usize, node: NodeId) {
        if let Some(group) = self.dispatcher.plan.group_mut(group) {
            group.adoption_sent(node);
        }
    }

    fn request_sent(&mut self, request: &InProgress, connection: &Connection) {
        self.dispatcher.give(&request.request, connection.entry.node);
        self.dispatcher.observe_request(self.at, self.flow, request, connection, Chosen::Connection);
        self.dispatcher.mirror_held(self.at, self.flow, request);
    }

    fn adopted(&mut self, request: &InProgress, connection: &Connection, queue: Queue, chosen: Chosen) {
        let (node, group) = (connection.entry.node, request.request.group);
        self.dispatcher.stats.adopted(&request.request, node);
        self.dispatcher.observe_request(self.at, self.flow, request, connection, chosen);
        self.dispatcher.mirror_held(self.at, self.flow, request);
        if let Some(known) = self.dispatcher.plan.group_mut(group) {
            known.adopted(node, queue, self.at.now);
            self.dispatcher.admit(self.at, group, node);
        }
    }

    fn resumed(&mut self, after: &Entry) {
        self.dispatcher.note_resumed(self.flow, after);
    }

    fn refused(&mut self, group: usize, node: NodeId, reason: Option<Reason>, queue: Queue) {
        self.dispatcher.plan.refused(group, node, reason, queue, self.at.now);
    }

    fn count(&mut self, what: Count<'_>) {
        self.dispatcher.stats.count(what);
    }
}
