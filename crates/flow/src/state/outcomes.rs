//! What several states end in: a flow is reset, answered, looked for, or taken up at the node that has it.

use switchback_wire::Reason;
use switchback_wire::Seq;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Reading, ToNode};
use switchback_wire::packet::TcpView;
use switchback_wire::report::Queue;

use super::patience::Patience;
use super::{Assembling, Delivering, Seeking, State};
use crate::NodeId;
use crate::answer::Reply;
use crate::change::Change;
use crate::connection::Connection;
use crate::entry::{Entry, Mode};
use crate::held::{Held, HeldPacket};
use crate::question::Question;
use crate::request::{InProgress, Request};
use crate::world::{Count, Silence, World};

/// The group of a request whose pool is not known.
const NO_GROUP: usize = usize::MAX;

/// A question that a node has not answered in time.
pub enum Unanswered {
    /// It is asked once more.
    Again,
    /// Another node can take the flow over.
    TakenOver,
    /// No other node can.
    ForEver,
}

impl dyn World + '_ {
    /// What becomes of a question that `node` has not answered. A node that sends reports may have carried it out and sent
    /// on the flow, so no other node may. `can_go_on`: the client has all that was sent on the flow. It shows that by a
    /// retransmission of what waits, at a time when the node was silent.
    pub(crate) fn unanswered(
        &mut self,
        node: NodeId,
        patience: &mut Patience,
        can_go_on: impl FnOnce(Silence<'_>) -> bool,
    ) -> Unanswered {
        let now = self.now();
        let early = patience.try_again(now, self.is_dead(node));
        let is_silent = |time| self.is_silent(node, time);
        if !early && is_silent(now) && can_go_on(&is_silent) {
            return Unanswered::TakenOver;
        }
        if !early && !patience.try_on(now) {
            return Unanswered::ForEver;
        }
        self.count(Count::Resent);
        Unanswered::Again
    }

    /// The entry of a flow that a node has.
    pub(crate) fn entry_of_node(&self, state: &FlowState, node: NodeId) -> Option<Entry> {
        Entry::of_node(node, state, self.limits().body)
    }

    /// The latest entry of the connection: the program may have forwarded packets since a record was written.
    pub(crate) fn current_entry(&self, connection: &Connection) -> Option<Entry> {
        self.entry().filter(|current| current.origin == connection.entry.origin)
    }

    /// Takes the mark of a later entry of the same node; true if it has moved. The node gets what is held before the mark:
    /// it has read on by another switch, which may not have been sent that data.
    pub(crate) fn catch_up(&mut self, entry: &Entry, connection: &mut Connection) -> bool {
        let Some(late) = connection.catch_up(entry) else { return false };
        self.forward_all(&connection.entry, &late);
        true
    }

    /// Takes the mark that the flow's node says, if it is further on; true if it has moved.
    pub(crate) fn catch_up_with_node(&mut self, said: &Entry, connection: &mut Connection) -> bool {
        let entry = connection.entry_at(said);
        self.catch_up(&entry, connection)
    }

    /// The node that was thought to have the flow does not. Unless this switch is alone, another one may have given the
    /// flow to another node, so all nodes are asked before anything else is done with what is held. None if it is alone.
    pub(crate) fn seek_owner(
        &mut self,
        request: Option<Box<InProgress>>,
        connection: &mut Connection,
    ) -> Option<State> {
        if self.rank().is_alone {
            return None;
        }
        if let Some(mut request) = request {
            request.withdraw(connection);
        }
        connection.entry.mode = Mode::Sought;
        Some(Seeking::ask(connection, self))
    }

    /// Whether the connection has ended, or its client begun another one, behind this thread's back: the program hears of
    /// it first. Then nothing of it is sent once more, nor elsewhere, because a node may have done all that was asked for.
    pub fn is_over(&self, connection: &Connection) -> bool {
        self.current_entry(connection).is_none()
    }

    /// Sends the flow's node a packet.
    pub(crate) fn send(&mut self, message: ToNode, entry: &Entry, packet: (&TcpView, &[u8])) {
        self.send_to((entry.node, None), message, &entry.flow_state(), packet);
    }

    /// Forwards a packet to the flow's node.
    pub(crate) fn forward(&mut self, entry: &Entry, packet: &HeldPacket, reading: Reading) {
        self.send(ToNode::Forward(reading), entry, (&packet.view, &packet.bytes));
    }

    /// Forwards packets of which nothing has been read.
    pub(crate) fn forward_all(&mut self, entry: &Entry, packets: &[HeldPacket]) {
        packets.iter().for_each(|packet| self.forward(entry, packet, Reading::None));
    }

    /// Sends the flow's node a question that needs no data.
    pub(crate) fn ask_owner(&mut self, question: ToNode, connection: &Connection, request: Option<&Held>) {
        let Some((view, bytes)) = connection.question(self.flow(), request) else { return };
        self.send(question, &connection.entry, (&view, &bytes));
    }

    /// Asks all nodes about a flow that none has got from here.
    pub(crate) fn ask_all(&mut self, connection: &Connection) {
        let Some((view, bytes)) = connection.question(self.flow(), None) else { return };
        let (origin, nodes) = (connection.entry.origin, self.nodes());
        let mut question =
            Question { seq: view.seq, origin, nodes, next: Generation::NONE, is_unsent: false };
        self.seek(&mut question, (&view, &bytes));
    }

    /// Acknowledges what is held of a request, or reports a gap. All up to `arrived` has arrived at the flow's node.
    pub(crate) fn speak(
        &mut self,
        connection: &mut Connection,
        request: Option<&Held>,
        is_stalled: bool,
        arrived: Seq,
    ) {
        let (now, flow, mark) = (self.now(), *self.flow(), connection.entry.mark.next);
        let complete = !arrived.before(mark);
        let arrived = if complete { mark } else { arrived };
        // The client of one of several switches has to need it.
        let may_acknowledge = self.rank().is_alone || connection.is_repeating();
        let stalled = complete && is_stalled && may_acknowledge;
        // A whole request is acknowledged by a lone switch only, and lost with it.
        let is_safe = stalled && (request.is_some() || self.has_kept(connection));
        let acknowledgment = if is_safe { connection.acknowledge(&flow, request, now) } else { None };
        if acknowledgment.is_some() {
            self.count(Count::Acknowledged);
            self.change(Change::Ahead { origin: connection.entry.origin });
        }
        if let Some(packet) = connection.report_gap(&flow, arrived, now).or(acknowledgment) {
            self.to_client(&packet);
        }
    }

    /// Has a node keep the beginning of a request; true if it has all that is here.
    fn has_kept(&mut self, connection: &mut Connection) -> bool {
        let node = if connection.has_node() { Some(connection.entry.node) } else { self.keeper() };
        let Some(node) = node else { return false };
        let state = connection.entry.flow_state();
        for packet in connection.to_be_kept(node, self.now()) {
            self.keep(node, &state, &packet);
        }
        connection.is_kept()
    }

    /// Writes the entry, unless the program has moved the mark further meanwhile.
    pub(crate) fn bring_up_map(&mut self, connection: &Connection) {
        if self.entry().is_some_and(|current| connection.entry.is_newer(&current)) {
            self.set_entry(&connection.entry);
        }
    }

    /// Nothing is held of the flow any more. If it has had no node, its entry goes too, and comes back with its client's
    /// first packet.
    pub fn abandon(&mut self, connection: &Connection) -> State {
        if !connection.has_node() {
            self.change(Change::Abandon { origin: connection.entry.origin });
        }
        State::Over
    }

    /// All that was held has gone where it belongs.
    pub(crate) fn finish(&mut self, connection: &Connection) -> State {
        match connection.fin {
            // The client has changed its mind.
            Some(end) if !connection.has_node() && end == connection.entry.mark.next => {
                self.say_goodbye(connection.entry.origin, connection.last_ack, end + 1u32);
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

    /// Resets a flow with which no node can go on.
    pub(crate) fn give_up(&mut self, connection: &Connection) -> State {
        self.reset(connection.entry.origin, connection.last_ack);
        State::Over
    }

    /// Forgets what is held of a connection that is over. Acknowledged data is lost with it, so the client is reset.
    pub fn end(&mut self, connection: &Connection) -> State {
        if connection.acknowledged.is_some() { self.give_up(connection) } else { State::Over }
    }

    /// The only node that could go on with the flow cannot.
    pub(crate) fn refused_for_ever(
        &mut self,
        request: &InProgress,
        (reason, queue): (Option<Reason>, Queue),
        connection: &Connection,
    ) -> State {
        self.refused(request.request.group, connection.entry.node, reason, queue);
        if self.is_over(connection) { self.end(connection) } else { self.give_up(connection) }
    }

    /// The mark has gone back: what is held is read from there on.
    pub(crate) fn read_again(&mut self, connection: &mut Connection) -> State {
        self.count(Count::Unread);
        self.set_entry(&connection.entry);
        Assembling::new(self.now()).advance(connection, self)
    }

    /// Answers a request that no node can take.
    pub(crate) fn answer_request(
        &mut self,
        reply: Reply,
        mut request: InProgress,
        connection: &mut Connection,
    ) -> State {
        let head = request.after().mark.is_behind_head();
        request.put_back(connection);
        self.answer(&reply, head, connection)
    }

    /// Whether this switch hears no node, though others may: then it is not the one to say what the service cannot do.
    fn is_cut_off(&self) -> bool {
        let (nodes, now) = (self.nodes(), self.now());
        !self.rank().is_alone && !nodes.is_empty() && nodes.iter().all(|node| self.is_silent(*node, now))
    }

    /// The switch answers what is held itself.
    pub(crate) fn answer(&mut self, reply: &Reply, head: bool, connection: &mut Connection) -> State {
        if self.is_cut_off() {
            return self.give_up_waiting(connection);
        }
        self.send_answer(connection, reply, head);
        State::Over
    }

    /// As [`recover_with_data`](Self::recover_with_data), where the client does not send again what is held.
    pub(crate) fn recover_with_acknowledged(
        &mut self,
        state: &FlowState,
        node: NodeId,
        view: &TcpView,
        connection: &mut Connection,
    ) -> State {
        let entry = self.entry_of_node(state, node);
        let Some(entry) = self.recover(state.origin, entry, view) else { return State::Over };
        let start = connection.entry.mark.next;
        if !start.before(entry.mark.next) {
            connection.entry = entry;
            return Assembling::new(self.now()).advance(connection, self);
        }
        connection.entry = Entry { mark: entry.mark.moved_to(start), ..entry };
        let request = Request::new(NO_GROUP, 0, entry);
        let request = Box::new(InProgress::begin(request, connection, self.now()));
        request.enter(connection);
        Delivering::ask(request, connection, self)
    }

    /// A node has the flow: takes it up again, and deals with what is held of it.
    pub(crate) fn recover_with_data(
        &mut self,
        state: &FlowState,
        node: NodeId,
        view: &TcpView,
        connection: &mut Connection,
    ) -> State {
        let entry = self.entry_of_node(state, node);
        let Some(entry) = self.recover(state.origin, entry, view) else { return State::Over };
        for packet in connection.held.take_all() {
            let beyond = entry.mark.next.before(packet.end());
            if beyond && !entry.is_tunnel() {
                self.receive(entry, &packet);
            } else {
                self.forward(&entry, &packet, Reading::None);
            }
        }
        State::Over
    }
}
