//! The search for the node of an unknown flow: packets without an entry and without a valid cookie, and first requests
//! whose cookie may be another process's. Such a request is a new flow when no node has the flow.
//!
//! Forged packets can make a switch ask, so a question carries no data, goes to the nodes of its VIP only, once for
//! each flow at a time, and the rate is limited. The program divides the rate among the networks of the clients
//! (`bpf/allowance.h`).

use std::collections::HashSet;
use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Reading, ToNode};
use switchback_wire::packet::{TcpView, bare, flags, segment, timestamps};
use switchback_wire::{Seq, sb_flow};

use super::budget::Rate;
use super::path_mtu::is_bare;
use super::pending::Pending;
use super::{Change, Dispatcher, Moment};
use crate::plan::NodeId;
use switchback_flow::World;
use switchback_flow::connection::Connection;
use switchback_flow::entry::Entry;
use switchback_flow::held::HeldPacket;
use switchback_flow::question::Question;
use switchback_flow::state::{Event, Seeking, State};

/// PROBEs that a switch sends.
pub const PROBES: Rate = Rate { per_second: 100_000 };
/// Time after which nodes are asked again about a flow, if its client retransmits.
const ROUND: Duration = Duration::from_millis(100);
/// Time after which an unknown flow is reset if all nodes say once more that they do not own it.
const UNOWNED: Duration = Duration::from_millis(500);
/// The same beside other switches, one of which may be about to give it to a node.
const UNOWNED_BESIDE_OTHERS: Duration = Duration::from_secs(3);
/// Time for which a question about a flow is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(4);

/// Questions about an unknown flow.
#[derive(Clone, Debug)]
pub struct Probed {
    /// Time of the first question.
    first: Duration,
    /// Time of the last question.
    last: Duration,
    /// Nodes that have not answered the last question.
    unanswered: Vec<NodeId>,
}

impl Dispatcher {
    /// Handles a packet of an unknown flow without a valid cookie: after a restart, or a change of the VIP's switch.
    /// The flow's node knows it.
    pub(super) fn on_unknown(&mut self, at: Moment<'_>, flow: &sb_flow, packet: &[u8], view: TcpView) {
        let is_recent = self.recent.get(flow).is_some();
        if let Some(mut pending) = self.pending.take(flow) {
            let seeks = matches!(pending.state, State::Seeking(_));
            let is_known = is_recent || self.mapped(at, flow).is_some();
            if !seeks && !is_known {
                // The entry was evicted, or the connection has ended.
                (&mut self.world(at, flow) as &mut dyn World).end(&pending.connection);
                return;
            }
            let held = HeldPacket::new(packet).filter(|held| seeks && !held.view.is_empty());
            if let Some(held) = held
                && self.pending.room(&self.plan.limits, flow, &pending, &held).is_ok()
            {
                pending.hold(&held);
            }
            let Pending { connection, state } = pending;
            self.keep(flow, connection, state);
            return;
        }
        if is_recent {
            // The node may lack the dispatcher's later decisions.
            return;
        }
        match self.is_unowned(flow) {
            true => self.reset_unowned(flow, &view),
            false => self.seek_unknown(at, flow, packet, view),
        }
    }

    /// Whether no node has the flow. Silence says nothing: questions and answers may be lost.
    fn is_unowned(&self, flow: &sb_flow) -> bool {
        let time = if self.plan.rank.is_alone { UNOWNED } else { UNOWNED_BESIDE_OTHERS };
        let probed = self.probed.get(flow);
        probed.is_some_and(|probed| probed.unanswered.is_empty() && probed.last >= probed.first + time)
    }

    fn reset_unowned(&mut self, flow: &sb_flow, view: &TcpView) {
        self.stats.reset_unowned += 1;
        self.output.to_client(flow, &bare(flow, false, view.ack, Seq(0), flags::RST));
    }

    /// Asks the nodes about the packet's connection, as about one of which nothing is known.
    pub(super) fn seek_unknown(&mut self, at: Moment<'_>, flow: &sb_flow, packet: &[u8], view: TcpView) {
        let Some(question) = self.ask_about_unknown(at, flow, packet, &view) else { return };
        if view.is_empty() {
            // The packet comes back with the answer.
            return;
        }
        let mut pending = Pending::new(Connection::new(Entry::new(view.seq), at.now), at.now);
        let Some(held) = HeldPacket::new(packet) else { return };
        if self.pending.room(&self.plan.limits, flow, &pending, &held).is_ok() && !question.nodes.is_empty() {
            pending.hold(&held);
            self.keep(flow, pending.connection, Seeking::unknown(question, at.now));
        }
    }

    /// Asks which node owns a flow of which nothing is known, unless that was asked a moment ago.
    pub(super) fn ask_about_unknown(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        packet: &[u8],
        view: &TcpView,
    ) -> Option<Question> {
        let first = match self.probed.get(flow) {
            Some(probed) if at.now.saturating_sub(probed.last) < ROUND => return None,
            probed => probed.map_or(at.now, |probed| probed.first),
        };
        let nodes = self.plan.nodes_of(flow.vip());
        let mut question =
            Question { seq: view.seq, origin: Seq(0), nodes, next: Generation::NONE, is_unsent: false };
        if !self.ask(at, flow, packet, view, &mut question) {
            return None;
        }
        let unanswered = question.nodes.clone();
        self.probed.insert(*flow, Probed { first, last: at.now, unanswered });
        Some(question)
    }

    /// Asks the nodes where the flow's mark is, if data lies so far beyond it that it is not held: another switch may have
    /// moved the mark, or seen another connection begin.
    pub(super) fn ask_about_gap(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        entry: &Entry,
        packet: &HeldPacket,
    ) {
        let is_gap = entry.has_node() && entry.mark.next.before(packet.view.seq);
        if is_gap && !self.plan.rank.is_alone {
            self.seek_unknown(at, flow, &packet.bytes, packet.view);
        }
    }

    /// Asks the live nodes which one owns the flow, one of each machine, which answers for all of them; false if the budget is used
    /// up.
    pub(super) fn ask(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        packet: &[u8],
        view: &TcpView,
        question: &mut Question,
    ) -> bool {
        question.nodes.retain(|node| !self.plan.is_dead(*node, at.now));
        question.nodes.sort_by_key(|node| !self.plan.has_clock(*node));
        let mut machines = HashSet::new();
        let machine = |node: &NodeId| self.plan.node(*node).map(|node| node.address.machine);
        question.nodes.retain(|node| machine(node).is_some_and(|machine| machines.insert(machine)));
        question.is_unsent = question.nodes.iter().any(|node| !self.plan.has_clock(*node));
        if !self.probes.take(question.nodes.len(), !view.is_empty(), at.now) {
            self.stats.unasked += 1;
            return false;
        }
        self.stats.probed += 1;
        self.lists.note_asked(at.now);
        let times = timestamps(packet, view);
        let bytes = match view.is_empty() {
            true => packet.to_vec(),
            false => segment(flow, true, (view.seq, view.ack), flags::ACK, times, &[]),
        };
        let Some(view) = TcpView::parse(&bytes) else { return false };
        let about = FlowState::at(question.origin, Seq(0));
        for node in &question.nodes {
            self.send(ToNode::Probe { next: question.next }, *node, flow, &about, &view, &bytes);
        }
        true
    }

    /// Handles a node's answer that it does not own the flow: to a question, or to a packet of the flow that was
    /// forwarded by an entry of an earlier adoption.
    pub(super) fn on_unowned(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        unowned: Event<'_>,
        packet: &[u8],
        view: &TcpView,
    ) {
        if let Event::Unowned { node, newest, .. } = unowned
            && let Some(mut probed) = self.probed.remove(flow)
        {
            probed.unanswered.retain(|asked| *asked != node);
            if newest.is_some() {
                // Another switch is about to give the flow to a node.
                probed.first = at.now;
            }
            self.probed.insert(*flow, probed);
        }
        match self.believed(at, flow) {
            Some(entry) if self.is_refuted(flow, &entry, &unowned) => {
                self.begin_anew(at, flow, entry.origin, packet, view);
            }
            _ => {
                if let Some(pending) = self.pending.take(flow) {
                    self.step(at, flow, pending, unowned);
                }
            }
        }
        // The client's next packet may be long in coming.
        let is_unknown = self.pending.get(flow).is_none() && self.mapped(at, flow).is_none();
        if is_unknown && self.is_unowned(flow) {
            self.reset_unowned(flow, view);
        }
    }

    /// Handles a node's answer that it has not carried out the adoption that the flow's entry says: the process that asked it
    /// to may have died before the answer.
    pub(super) fn on_lacked(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        said: (NodeId, Seq, Generation),
        packet: &[u8],
        view: &TcpView,
    ) {
        let is_said = |entry: &Entry| (entry.node, entry.origin, entry.generation) == said;
        if let Some(entry) = self.believed(at, flow).filter(is_said) {
            self.begin_anew(at, flow, entry.origin, packet, view);
        }
    }

    /// The entry of a flow that a node is believed to have, and is not being asked to take.
    fn believed(&self, at: Moment<'_>, flow: &sb_flow) -> Option<Entry> {
        let entry = match self.pending.get(flow) {
            Some(Pending { state: State::Adopting(_) | State::Delivering(_), .. }) => None,
            Some(pending) => Some(pending.connection.entry),
            None => self.current(at, flow),
        };
        entry.filter(Entry::has_node)
    }

    /// Whether the node of the entry says that it does not have the flow, and knows better: another switch has given it to
    /// another node since, or the adoption has never been.
    fn is_refuted(&self, flow: &sb_flow, entry: &Entry, unowned: &Event<'_>) -> bool {
        let Event::Unowned { node, origin, newest, .. } = *unowned else { return false };
        let is_asked = matches!(self.pending.get(flow), Some(Pending { state: State::Asking(_), .. }));
        let is_its = (entry.node, entry.origin) == (node, origin);
        is_its && !self.plan.rank.is_alone && (is_asked || newest.is_newer(entry.generation))
    }

    /// Forgets what is known of a flow. Its client sends again what is held, or a node keeps it; if no node has the flow, it
    /// goes on from where one has released it.
    fn begin_anew(&mut self, at: Moment<'_>, flow: &sb_flow, origin: Seq, packet: &[u8], view: &TcpView) {
        self.pending.take(flow);
        self.forget_in_doubt(flow, origin);
        self.ask_about_unknown(at, flow, packet, view);
    }

    /// Handles a node's answer that it owns the flow.
    pub(super) fn on_owned(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        node: NodeId,
        state: &FlowState,
        packet: &[u8],
        view: TcpView,
    ) {
        self.pass_on_message(flow, node, state);
        if self.pending.get(flow).is_none_or(|pending| pending.state.is_unknown()) {
            self.forget_predecessor(at, flow, state, &view);
        }
        if let Some(pending) = self.pending.take(flow) {
            self.step(at, flow, pending, Event::Owned { node, state, view: &view });
            return;
        }
        let entry = Entry::of_node(node, state, self.plan.limits.body);
        let is_further =
            |known: &Entry| entry.is_some_and(|said| said.is_of_same(known) && said.is_newer(known));
        let known = self.current(at, flow).filter(|known| known.origin == state.origin);
        let is_news = match known {
            Some(known) => {
                let is_newer = state.generation.is_newer(known.generation) || is_further(&known);
                (known.has_node() || known.generation.is_some()) && is_newer
            }
            None => !self.knows(flow),
        };
        if !is_news {
            let was_asked = self.probed.remove(flow).is_some() && !is_bare(&view);
            // A list has been faster than the answer, with which the client's packet comes back.
            if let Some(known) = known.filter(|known| was_asked && known.has_node() && known.node == node) {
                self.forward(flow, &known, &view, packet, Reading::None);
            }
            return;
        }
        let Some(entry) = self.recover(flow, state.origin, entry, &view) else { return };
        if is_bare(&view) {
            return;
        }
        if entry.mark.next.before(view.end_seq()) && !entry.is_tunnel() {
            self.on_client(at, flow, entry, packet, view);
        } else {
            self.forward(flow, &entry, &view, packet, Reading::None);
        }
    }

    /// Forgets a connection that has ended unheard if a node has another one of the 4-tuple: that to which the packet belongs
    /// about which nodes were asked.
    fn forget_predecessor(&mut self, at: Moment<'_>, flow: &sb_flow, state: &FlowState, question: &TcpView) {
        let is_other = |known: &Entry| {
            known.origin != state.origin
                && (known.has_node() || known.is_held() && known.generation.is_some())
        };
        let distance = |mark: Seq| question.seq.offset_from(mark).unsigned_abs();
        if let Some(known) = self.current(at, flow).filter(is_other)
            && distance(state.next) < distance(known.mark.next)
        {
            self.forget_in_doubt(flow, known.origin);
        }
    }

    /// Whether this process has made an entry for the flow, now or recently.
    pub(super) fn knows(&self, flow: &sb_flow) -> bool {
        self.recent.get(flow).is_some() || self.answered.entry(flow).is_some()
    }

    /// Resumes the flow. Without an entry its node knows too little, and the flow ends.
    pub(super) fn recover(
        &mut self,
        flow: &sb_flow,
        origin: Seq,
        entry: Option<Entry>,
        view: &TcpView,
    ) -> Option<Entry> {
        self.probed.remove(flow);
        let Some(entry) = entry else {
            self.reset(flow, origin, view.ack);
            return None;
        };
        self.stats.recovered += 1;
        self.common.totals.note_taken_over();
        self.note_found();
        self.output.change(flow, Change::Create(entry));
        self.output.change(flow, Change::Replace(entry));
        self.recent.insert(*flow, entry);
        Some(entry)
    }
}
