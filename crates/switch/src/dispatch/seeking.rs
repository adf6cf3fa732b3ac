//! The search for the node of an unknown flow: packets without an entry and without a valid cookie, and first requests
//! whose cookie may be another process's. Such a request is a new flow when no node has the flow.
//!
//! Forged packets can make a switch ask, so a question carries no data, goes to the nodes of its VIP only, once for
//! each flow at a time, and the rate is limited. The program divides the rate among the networks of the clients
//! (`bpf/allowance.h`).

use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Reading, ToNode};
use switchback_wire::packet::{TcpView, bare, flags, segment, timestamps};
use switchback_wire::{Seq, sb_flow};

use super::pending::Pending;
use super::{Change, Dispatcher, Moment};
use crate::plan::NodeId;
use switchback_flow::World;
use switchback_flow::connection::Connection;
use switchback_flow::entry::Entry;
use switchback_flow::held::HeldPacket;
use switchback_flow::question::Question;
use switchback_flow::state::{Event, Seeking, State};

/// PROBEs that a switch sends in a second.
const PROBES_PER_SECOND: u32 = 100_000;
/// Time whose PROBEs may be sent at once.
const BURST: Duration = Duration::from_millis(100);
/// Time after which nodes are asked again about a flow, if its client retransmits.
const ROUND: Duration = Duration::from_millis(100);
/// Time after which an unknown flow without an owner is reset.
const UNOWNED: Duration = Duration::from_millis(500);
/// The same beside other switches, one of which may be about to give it to a node: then all nodes have to say once more
/// that they do not own it.
const UNOWNED_BESIDE_OTHERS: Duration = Duration::from_secs(3);
/// Time for which a question about a flow is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(4);

/// PROBEs that may be sent in this time.
pub const fn probes_in(time: Duration) -> u32 {
    (time.as_micros() as u64 * PROBES_PER_SECOND as u64 / 1_000_000) as u32
}

/// Questions about an unknown flow.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// Time of the first question.
    first: Duration,
    /// Time of the last question.
    last: Duration,
    /// Nodes that have not answered the last question.
    unanswered: usize,
}

/// PROBEs that may be sent now.
#[derive(Debug)]
pub struct Budget {
    left: u32,
    at: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { left: Budget::MOST, at: Duration::ZERO }
    }
}

impl Budget {
    const MOST: u32 = probes_in(BURST);

    /// Takes all `count` PROBEs from the budget, or none. What has no data may not take the last half.
    fn take(&mut self, count: usize, has_data: bool, now: Duration) -> bool {
        let more = probes_in(now.saturating_sub(self.at).min(BURST));
        if more > 0 {
            self.left = (self.left + more).min(Budget::MOST);
            self.at = now;
        }
        let kept = if has_data { 0 } else { Budget::MOST / 2 };
        let enough = count <= self.left.saturating_sub(kept) as usize;
        self.left -= if enough { count as u32 } else { 0 };
        enough
    }
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
        let probed = self.probed.get(flow).copied();
        let is_unowned = |probed: &Probed| match self.plan.rank.is_alone {
            true => at.now.saturating_sub(probed.first) >= UNOWNED,
            false => probed.unanswered == 0 && probed.last >= probed.first + UNOWNED_BESIDE_OTHERS,
        };
        match probed {
            Some(probed) if is_unowned(&probed) => {
                self.stats.reset_unowned += 1;
                self.output.to_client(flow, &bare(flow, false, view.ack, Seq(0), flags::RST));
                return;
            }
            _ => {}
        }
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
        let probed = self.probed.get(flow).copied();
        if probed.is_some_and(|probed| at.now.saturating_sub(probed.last) < ROUND) {
            return None;
        }
        let nodes = self.plan.nodes_of(flow.vip());
        let mut question = Question { seq: view.seq, origin: Seq(0), nodes, next: Generation::NONE };
        if !self.ask(at, flow, packet, view, &mut question) {
            return None;
        }
        let unanswered = question.nodes.len();
        let first = probed.map_or(at.now, |probed| probed.first);
        self.probed.insert(*flow, Probed { first, last: at.now, unanswered });
        Some(question)
    }

    /// Asks the flow's node where its mark is, if data lies so far beyond it that it is not held: another switch may have
    /// moved the mark. The client's next copy finds the right one.
    pub(super) fn ask_about_gap(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        entry: &Entry,
        packet: &HeldPacket,
    ) {
        let is_gap = entry.has_node() && entry.mark.next.before(packet.view.seq);
        if is_gap && !self.plan.rank.is_alone {
            let (seq, origin, nodes) = (packet.view.seq, entry.origin, vec![entry.node]);
            let mut question = Question { seq, origin, nodes, next: Generation::NONE };
            self.ask(at, flow, &packet.bytes, &packet.view, &mut question);
        }
    }

    /// Asks the live nodes which one owns the flow; false if the budget is used up.
    pub(super) fn ask(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        packet: &[u8],
        view: &TcpView,
        question: &mut Question,
    ) -> bool {
        question.nodes.retain(|node| !self.plan.is_dead(*node, at.now));
        if !self.budget.take(question.nodes.len(), !view.is_empty(), at.now) {
            self.stats.unasked += 1;
            return false;
        }
        self.stats.probed += 1;
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
        if let Some(mut probed) = self.probed.get(flow).copied() {
            probed.unanswered = probed.unanswered.saturating_sub(1);
            if matches!(unowned, Event::Unowned { newest, .. } if newest.is_some()) {
                // Another switch is about to give the flow to a node.
                probed.first = at.now;
            }
            self.probed.insert(*flow, probed);
        }
        if let Some(pending) = self.pending.take(flow) {
            self.step(at, flow, pending, unowned);
        } else if let Some(outdated) = self.outdated_by(at, flow, &unowned) {
            // What comes next is of an unknown flow: if no node owns it, it goes on from where it was released.
            self.forget(flow, outdated.origin);
            self.ask_about_unknown(at, flow, packet, view);
        }
    }

    /// The flow's entry, if its node has released the flow since it adopted it.
    fn outdated_by(&self, at: Moment<'_>, flow: &sb_flow, unowned: &Event<'_>) -> Option<Entry> {
        let Event::Unowned { node, origin, newest, .. } = *unowned else { return None };
        let known = self.current(at, flow)?;
        let is_its = known.has_node() && (known.node, known.origin) == (node, origin);
        (is_its && !self.plan.rank.is_alone && newest.is_newer(known.generation)).then_some(known)
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
        if let Some(pending) = self.pending.take(flow) {
            self.step(at, flow, pending, Event::Owned { node, state, view: &view });
            return;
        }
        let entry = Entry::of_node(node, state, self.plan.limits.body);
        let is_further =
            |known: &Entry| entry.is_some_and(|said| said.is_of_same(known) && said.is_newer(known));
        let is_news = match self.current(at, flow).filter(|known| known.origin == state.origin) {
            Some(known) => {
                let is_newer = state.generation.is_newer(known.generation) || is_further(&known);
                (known.has_node() || known.generation.is_some()) && is_newer
            }
            None => !self.knows(flow),
        };
        if !is_news {
            return;
        }
        let Some(entry) = self.recover(flow, state.origin, entry, &view) else { return };
        if entry.mark.next.before(view.end_seq()) && !entry.is_tunnel() {
            self.on_client(at, flow, entry, packet, view);
        } else {
            self.forward(flow, &entry, &view, packet, Reading::None);
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
        self.note_found();
        self.output.change(flow, Change::Create(entry));
        self.output.change(flow, Change::Replace(entry));
        self.recent.insert(*flow, entry);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_asked_than_the_budget_allows() {
        let mut budget = Budget::default();
        let mut sent = 0;
        for ms in 0..10_000 {
            for _ in 0..100 {
                sent += if budget.take(1024, true, Duration::from_millis(ms)) { 1024 } else { 0 };
            }
        }
        assert!(!budget.take(1, false, Duration::from_secs(10)), "data goes before acknowledgments");
        let most = 10 * PROBES_PER_SECOND + Budget::MOST;
        assert!((most - 2 * 1024..=most).contains(&sent), "{sent} of {most}");
    }
}
