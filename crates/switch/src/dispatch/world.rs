//! What a state of a flow can do: effects on that flow, and questions to the dispatcher.

use std::time::Duration;

use switchback_wire::message::{Owned, Queue, Reading, Reason, ToNode};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode};

use super::answer::Reply;
use super::connection::Connection;
use super::held::{Held, HeldPacket, before};
use super::request::{InProgress, Request};
use super::state::{Assembling, State};
use super::{Change, Dispatcher, Moment, Verdict, mark};
use crate::observe::{Chosen, Observation};
use crate::plan::NodeId;

/// Whether the node was silent at a time.
pub type Silence<'a> = &'a dyn Fn(Duration) -> bool;

/// A question that a node has not answered in time.
pub enum Unanswered {
    /// It is asked once more.
    Again,
    /// Another node can take the flow over.
    TakenOver,
    /// No other node can.
    ForEver,
}

/// The dispatcher, as one flow sees it.
pub struct World<'a> {
    /// Plan, statistics, and the output.
    pub dispatcher: &'a mut Dispatcher,
    /// The time, and the flow map.
    pub at: Moment<'a>,
    /// The flow.
    pub flow: &'a sb_flow,
}

impl World<'_> {
    /// Reads the data at the mark of `entry`.
    pub fn judge(&mut self, data: &[u8], entry: &sb_flow_entry) -> Verdict {
        self.dispatcher.judge(self.at.now, self.flow, data, entry)
    }

    /// See [`Dispatcher::keep_name_whole`].
    pub fn keep_name_whole(&self, request: &mut InProgress, data: &[u8]) {
        self.dispatcher.keep_name_whole(request, data);
    }

    /// The entry of a flow that a node has; None if the node cannot say what comes at the mark.
    pub fn entry_of_node(&self, owned: &Owned, node: NodeId, origin: u32) -> Option<sb_flow_entry> {
        self.dispatcher.entry_of_node(owned, (node, origin))
    }

    /// The latest entry of the connection: the program may have forwarded packets since a record was written.
    pub fn current_entry(&self, connection: &Connection) -> Option<sb_flow_entry> {
        let current = self.dispatcher.mapped(self.at, self.flow);
        let current = current.filter(|current| current.origin == connection.entry.origin);
        current.map(|current| self.dispatcher.entry_of(self.flow, current))
    }

    /// See [`Dispatcher::is_over`].
    pub fn is_over(&self, connection: &Connection) -> bool {
        self.dispatcher.is_over(self.at, self.flow, connection)
    }

    /// What becomes of a question that `node` has not answered. A node that is heard of lives: it may have done what it was
    /// asked for, and spoken on the flow, so nobody else may. `can_go_on`: nobody has spoken on the flow what the client
    /// has not heard, and the client says so itself, by sending again what waits, when the node was silent already.
    pub fn unanswered(
        &mut self,
        node: NodeId,
        patience: &mut super::state::Patience,
        can_go_on: impl FnOnce(Silence<'_>) -> bool,
    ) -> Unanswered {
        let now = self.at.now;
        let plan = &self.dispatcher.plan;
        let is_silent = |time| plan.is_silent(node, time);
        let early = patience.try_again(now, plan.is_dead(node, now));
        if !early && is_silent(now) && can_go_on(&is_silent) {
            return Unanswered::TakenOver;
        }
        if !early && !patience.try_on(now) {
            return Unanswered::ForEver;
        }
        self.dispatcher.stats.resent += 1;
        Unanswered::Again
    }

    /// Sends the flow's node a packet.
    pub fn send(&mut self, message: ToNode, entry: &sb_flow_entry, packet: (&TcpView, &[u8])) {
        self.send_to((entry.node, None), message, entry, packet);
    }

    /// Sends a packet that the first node may pass on to a second candidate.
    pub fn send_to(
        &mut self,
        nodes: (NodeId, Option<NodeId>),
        message: ToNode,
        entry: &sb_flow_entry,
        (view, packet): (&TcpView, &[u8]),
    ) {
        self.dispatcher.send_to(nodes, message, self.flow, entry, view, packet);
    }

    /// Forwards a packet to the flow's node.
    pub fn forward(&mut self, entry: &sb_flow_entry, packet: &HeldPacket, reading: Reading) {
        self.send(ToNode::Forward(reading), entry, (&packet.view, &packet.bytes));
    }

    /// Forwards packets of which nothing has been read.
    pub fn forward_all(&mut self, entry: &sb_flow_entry, packets: &[HeldPacket]) {
        packets.iter().for_each(|packet| self.forward(entry, packet, Reading::None));
    }

    /// Sends the flow's node a question that needs no data.
    pub fn ask_owner(&mut self, question: ToNode, connection: &Connection, request: Option<&Held>) {
        let Some((view, bytes)) = connection.question(self.flow, request) else { return };
        self.send(question, &connection.entry, (&view, &bytes));
    }

    /// Asks the flow's node how far it has come.
    pub fn ask_progress_of_owner(&mut self, connection: &Connection, request: Option<&Held>) {
        self.ask_owner(ToNode::Confirm(Reading::None), connection, request);
    }

    /// Acknowledges what is held of a request, or reports a gap. All up to `arrived` has arrived at the flow's node.
    pub fn speak(
        &mut self,
        connection: &mut Connection,
        request: Option<&Held>,
        is_stalled: bool,
        arrived: u32,
    ) {
        let (now, mark) = (self.at.now, connection.entry.next);
        let complete = !before(arrived, mark);
        let arrived = if complete { mark } else { arrived };
        let stalled = complete && is_stalled;
        let acknowledgment = if stalled { connection.acknowledge(self.flow, request, now) } else { None };
        if acknowledgment.is_some() {
            self.dispatcher.stats.acknowledged += 1;
            self.dispatcher.output.change(self.flow, Change::Ahead { origin: connection.entry.origin });
        }
        if let Some(packet) = connection.report_gap(self.flow, arrived, now).or(acknowledgment) {
            self.dispatcher.output.to_client(self.flow, &packet);
        }
    }

    /// See [`Dispatcher::set_entry`].
    pub fn set_entry(&mut self, entry: &sb_flow_entry) {
        self.dispatcher.set_entry(self.flow, entry);
    }

    /// See [`Dispatcher::move_mark`].
    pub fn move_mark(&mut self, entry: &sb_flow_entry) {
        self.dispatcher.move_mark(self.flow, entry);
    }

    /// See [`Dispatcher::write_entry`].
    pub fn write_entry(&mut self, entry: sb_flow_entry) {
        self.dispatcher.write_entry(self.flow, entry);
    }

    /// Writes the entry, unless the program has moved the mark further meanwhile.
    pub fn bring_up_map(&mut self, connection: &Connection) {
        let current = self.dispatcher.mapped(self.at, self.flow);
        let current = current.map(|recorded| self.dispatcher.entry_of(self.flow, recorded));
        if current.is_some_and(|current| mark::is_newer(&connection.entry, &current)) {
            self.set_entry(&connection.entry);
        }
    }

    /// See [`Dispatcher::forget`].
    pub fn forget(&mut self, origin: u32) {
        self.dispatcher.forget(self.flow, origin);
    }

    /// Ends a connection on which nothing can be said any more.
    pub fn reset(&mut self, origin: u32, seq: u32) {
        self.dispatcher.reset(self.flow, origin, seq);
    }

    /// Nothing is held of the flow any more. If it has had no node, its entry goes too, and comes back with its client's
    /// first packet.
    pub fn abandon(&mut self, connection: &Connection) -> State {
        self.dispatcher.abandon(self.flow, connection);
        State::Over
    }

    /// All that was held has gone where it belongs.
    pub fn finish(&mut self, connection: &Connection) -> State {
        match connection.fin {
            // The client has changed its mind.
            Some(end) if !connection.has_node() && end == connection.entry.next => {
                let (origin, ack) = (connection.entry.origin, end.wrapping_add(1));
                self.dispatcher.say_goodbye(self.flow, origin, connection.last_ack, ack);
                State::Over
            }
            _ => self.abandon(connection),
        }
    }

    /// Forgets what is held, which the client sends again if it is still there.
    pub fn give_up_waiting(&mut self, connection: &Connection) -> State {
        self.set_entry(&connection.entry);
        self.abandon(connection)
    }

    /// Nobody can go on with the flow.
    pub fn give_up(&mut self, connection: &Connection) -> State {
        self.reset(connection.entry.origin, connection.last_ack);
        State::Over
    }

    /// Forgets what is held of a connection that is over. Data that has been acknowledged nobody sends again.
    pub fn end(&mut self, connection: &Connection) -> State {
        self.dispatcher.end(self.flow, connection);
        State::Over
    }

    /// The only node that could go on with the flow cannot.
    pub fn refused_for_ever(
        &mut self,
        request: &InProgress,
        (reason, queue): (Option<Reason>, Queue),
        connection: &Connection,
    ) -> State {
        let (group, node) = (request.request.group, connection.entry.node);
        self.dispatcher.plan.refused(group, node, reason, queue, self.at.now);
        if self.is_over(connection) { self.end(connection) } else { self.give_up(connection) }
    }

    /// The mark has gone back: what is held is read from there on.
    pub fn read_again(&mut self, connection: &mut Connection) -> State {
        self.dispatcher.stats.unread += 1;
        self.set_entry(&connection.entry);
        Assembling::new(self.at.now).advance(connection, self)
    }

    /// Answers a request that no node can take.
    pub fn answer_request(
        &mut self,
        reply: Reply,
        request: Box<InProgress>,
        connection: &mut Connection,
    ) -> State {
        let head = request.after().heads & 1 == 1;
        request.put_back(connection);
        self.answer(&reply, head, connection)
    }

    /// The switch answers what is held itself. `head`: the request is HEAD.
    pub fn answer(&mut self, reply: &Reply, head: bool, connection: &mut Connection) -> State {
        let reply = match self.dispatcher.plan.is_tls(self.flow.vip()) {
            true => &reply.clone().over_tls(),
            false => reply,
        };
        let asked = self.dispatcher.request_to_answer(self.at, self.flow, connection);
        let Some(answer) = connection.make_answer(reply, head, self.at.now) else {
            self.forget(connection.entry.origin);
            return State::Over;
        };
        self.dispatcher.stats.answered(reply.status());
        self.dispatcher.observe_answer(asked, reply.status(), &answer);
        self.dispatcher.send_answer(self.flow, &connection.entry, answer);
        State::Over
    }

    /// Tells the observer that a node was given the request.
    pub fn observe_request(&mut self, request: &InProgress, connection: &Connection, chosen: Chosen) {
        self.dispatcher.observe_request(self.at, self.flow, request, connection, chosen);
    }

    /// A node has the flow: takes it up again, and deals with what is held of it.
    pub fn recover_with_data(
        &mut self,
        owned: &Owned,
        (node, origin): (NodeId, u32),
        view: &TcpView,
        connection: &mut Connection,
    ) -> State {
        let entry = self.entry_of_node(owned, node, origin);
        let Some(entry) = self.dispatcher.recover(self.flow, origin, entry, view) else { return State::Over };
        for packet in connection.held.take_all() {
            let beyond = before(entry.next, packet.end());
            if beyond && entry.mode != sb_mode::SB_MODE_TUNNEL as u8 {
                self.dispatcher.on_client(self.at, self.flow, entry, &packet.bytes, packet.view);
            } else {
                self.forward(&entry, &packet, Reading::None);
            }
        }
        State::Over
    }
}

impl Dispatcher {
    /// What one flow can do.
    pub(super) fn world<'a>(&'a mut self, at: Moment<'a>, flow: &'a sb_flow) -> World<'a> {
        World { dispatcher: self, at, flow }
    }

    /// Whether the connection has ended, or its client begun another one, behind this thread's back: the program hears of
    /// it first. Then nothing of it is sent once more, nor elsewhere, because a node may have done all that was asked for.
    pub(super) fn is_over(&self, at: Moment<'_>, flow: &sb_flow, connection: &Connection) -> bool {
        self.mapped(at, flow).is_none_or(|entry| entry.origin != connection.entry.origin)
    }

    /// Forgets what is held of a connection that is over. Data that has been acknowledged nobody sends again.
    pub(super) fn end(&mut self, flow: &sb_flow, connection: &Connection) {
        if connection.acknowledged.is_some() {
            self.reset(flow, connection.entry.origin, connection.last_ack);
        }
    }

    /// Nothing is held of the flow any more. If it has had no node, its entry goes too, and comes back with its client's
    /// first packet.
    pub(super) fn abandon(&mut self, flow: &sb_flow, connection: &Connection) {
        if !connection.has_node() {
            self.output.change(flow, Change::Abandon { origin: connection.entry.origin });
        }
    }

    /// The client closes a connection that has no node and no request: `seq` and `ack` are what comes next of either side.
    /// If the answer is lost, the client's FIN comes again and meets no flow.
    pub(super) fn say_goodbye(&mut self, flow: &sb_flow, origin: u32, seq: u32, ack: u32) {
        self.output.to_client(flow, &bare(flow, false, seq, ack, flags::FIN | flags::ACK));
        self.forget(flow, origin);
    }

    /// Ends a connection on which nothing can be said any more.
    pub(super) fn reset(&mut self, flow: &sb_flow, origin: u32, seq: u32) {
        self.observe(|| Observation::Reset { flow: *flow, origin });
        self.output.to_client(flow, &bare(flow, false, seq, 0, flags::RST));
        self.forget(flow, origin);
    }

    /// A request goes to a node that has its flow.
    pub(super) fn give(&mut self, request: &Request, node: NodeId) {
        self.stats.request(request, node);
        if let Some(group) = self.plan.group_mut(request.group) {
            group.given(node);
        }
    }
}
