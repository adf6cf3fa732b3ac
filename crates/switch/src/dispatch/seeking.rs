//! The search for the node of a flow that the switch does not know: packets without an entry and without a valid cookie, and
//! first requests whose cookie may be another process's. Those begin when no node has the flow.
//!
//! Anybody can make a switch ask, so a question goes without data, to the nodes of its VIP only, once for each flow at a
//! time, and there are so many in a second and no more. The program shares them out between the networks that clients come from
//! (`bpf/allowance.h`).

use std::time::Duration;

use switchback_wire::message::{Owned, Reading, ToNode};
use switchback_wire::packet::{TcpView, bare, flags, segment, timestamps};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode};

use super::held::{HeldPacket, before};
use super::pending::{Pending, Phase};
use super::replies::entry_of_node;
use super::{Change, Dispatcher, Moment};
use crate::plan::NodeId;

/// PROBEs that a switch sends in a second.
const PROBES_PER_SECOND: u32 = 100_000;
/// Those of so long a time may be sent at once.
const BURST: Duration = Duration::from_millis(100);
/// How long nodes have to answer: some of the longest round trips in one network, and less than a client takes to send again.
const PATIENCE: Duration = Duration::from_millis(40);
/// When nodes are asked again about a flow, if its client sends again.
const ROUND: Duration = Duration::from_millis(100);
/// After this time without an owner, an unknown flow is reset.
const UNOWNED: Duration = Duration::from_millis(500);
/// How long it is remembered that a flow was asked for.
pub const REMEMBERED: Duration = Duration::from_secs(1);

/// How many PROBEs may be sent in so long a time.
pub const fn probes_in(time: Duration) -> u32 {
    (time.as_micros() as u64 * PROBES_PER_SECOND as u64 / 1_000_000) as u32
}

/// When nodes were asked about an unknown flow.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    first: Duration,
    last: Duration,
}

/// A question that has not been answered.
#[derive(Clone, Debug)]
pub struct Question {
    /// Sequence number of the PROBEs.
    seq: u32,
    /// That of the connection's first byte; 0 if it is not known.
    origin: u32,
    /// Nodes that may have the flow.
    nodes: Vec<NodeId>,
}

/// How many PROBEs may be sent now.
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

    /// Takes so many, or none.
    fn take(&mut self, count: usize, now: Duration) -> bool {
        let more = probes_in(now.saturating_sub(self.at).min(BURST));
        if more > 0 {
            self.left = (self.left + more).min(Budget::MOST);
            self.at = now;
        }
        let enough = count <= self.left as usize;
        self.left -= if enough { count as u32 } else { 0 };
        enough
    }
}

impl Dispatcher {
    /// A packet of a flow that we do not know, with no valid cookie: after a restart, or because another switch had
    /// the VIP. Its node knows it.
    pub(super) fn on_unknown(&mut self, at: Moment<'_>, flow: &sb_flow, packet: &[u8], view: TcpView) {
        let is_recent = self.recent.get(flow).is_some();
        if let Some(mut pending) = self.pending.take(flow) {
            let is_sought = matches!(pending.phase, Phase::Seeking(_));
            let is_known = is_recent || self.mapped(at, flow).is_some();
            if !is_sought && !is_known {
                // Its entry was pushed out, or the connection has ended.
                self.end_pending(flow, &mut pending);
                return;
            }
            let held = HeldPacket::new(packet).filter(|held| is_sought && !held.view.is_empty());
            if let Some(held) = held
                && self.pending.room(&self.plan.limits, flow, &pending, &held).is_ok()
            {
                pending.hold(&held);
            }
            self.keep(*flow, pending);
            return;
        }
        if is_recent {
            // Its node may know less than was decided here.
            return;
        }
        let probed = self.probed.get(flow).copied();
        match probed {
            Some(probed) if at.now.saturating_sub(probed.first) >= UNOWNED => {
                self.stats.reset_unowned += 1;
                self.output.to_client(flow, &bare(flow, false, view.ack, 0, flags::RST));
                return;
            }
            Some(probed) if at.now.saturating_sub(probed.last) < ROUND => return,
            _ => {}
        }
        let mut question = Question { seq: view.seq, origin: 0, nodes: self.plan.nodes_of(flow.vip()) };
        if !self.ask(at, flow, packet, &view, &mut question) {
            return;
        }
        let first = probed.map_or(at.now, |probed| probed.first);
        self.probed.insert(*flow, Probed { first, last: at.now });
        if view.is_empty() {
            // It comes back with the answer.
            return;
        }
        let entry = sb_flow_entry { origin: view.seq, next: view.seq, ..sb_flow_entry::default() };
        let mut pending = Pending::new(entry, at.now);
        let Some(held) = HeldPacket::new(packet) else { return };
        if self.pending.room(&self.plan.limits, flow, &pending, &held).is_ok() {
            pending.hold(&held);
            if !question.nodes.is_empty() {
                pending.phase = Phase::Seeking(question);
                pending.due = at.now + PATIENCE;
                self.keep(*flow, pending);
            }
        }
    }

    /// Asks the nodes that live who owns the flow; false if too much has been asked already.
    fn ask(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        packet: &[u8],
        view: &TcpView,
        question: &mut Question,
    ) -> bool {
        question.nodes.retain(|node| !self.plan.is_dead(*node, at.now));
        if !self.budget.take(question.nodes.len(), at.now) {
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
        let about = sb_flow_entry { origin: question.origin, ..sb_flow_entry::default() };
        for node in &question.nodes {
            self.send(ToNode::Probe, *node, flow, &about, &view, &bytes);
        }
        true
    }

    /// Asks the nodes about a first request that another process may have given to one of them.
    pub(super) fn seek(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        let Some((view, bytes)) = pending.question(flow) else { return };
        let nodes = self.plan.nodes_of(flow.vip());
        let mut question = Question { seq: view.seq, origin: pending.entry.origin, nodes };
        if self.ask(at, flow, &bytes, &view, &mut question) {
            pending.wait(at.now, Phase::Seeking(question));
            self.begin_unowned(at, flow, pending);
        } else {
            self.abandon(flow, pending);
            pending.phase = Phase::Done;
        }
    }

    /// Nodes have not answered in time. A first request's are asked as often as about anything else that waits for them. After
    /// that those of which nothing is heard are taken for dead; the others may have it.
    pub(super) fn seek_again(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        let Phase::Seeking(mut question) = std::mem::replace(&mut pending.phase, Phase::Done) else { return };
        if !pending.is_sought() {
            return;
        }
        if !pending.try_again(at.now, false) {
            question.nodes.retain(|node| !self.plan.is_silent(*node, at.now));
            if !question.nodes.is_empty() && !pending.try_on(at.now) {
                self.give_up(flow, pending);
                return;
            }
        }
        if let Some((view, bytes)) = pending.question(flow).filter(|_| !question.nodes.is_empty()) {
            self.stats.resent += 1;
            self.ask(at, flow, &bytes, &view, &mut question);
        }
        pending.phase = Phase::Seeking(question);
        self.begin_unowned(at, flow, pending);
    }

    /// The node does not have the flow.
    fn rule_out(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, node: NodeId) {
        if let Phase::Seeking(question) = &mut pending.phase {
            question.nodes.retain(|asked| *asked != node);
        }
        self.begin_unowned(at, flow, pending);
    }

    /// Goes on with a flow that no node has, which is none unless it is at its beginning.
    fn begin_unowned(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        let Phase::Seeking(question) = &pending.phase else { return };
        if !question.nodes.is_empty() {
            return;
        }
        if pending.is_sought() {
            pending.entry.mode = sb_mode::SB_MODE_HELD as u8;
            pending.phase = Phase::Assembling;
            self.advance(at, flow, pending);
        } else {
            pending.phase = Phase::Done;
        }
    }

    /// A node does not have the flow. Where it has had it, and answered what is held, that is not to begin once more.
    pub(super) fn on_unowned(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, u32),
        (served, next): (bool, u32),
        view: &TcpView,
    ) {
        let Some(mut pending) = self.pending.take(flow) else { return };
        if let Phase::Seeking(question) = &pending.phase
            && (question.seq, question.origin) == (view.seq, origin)
        {
            if pending.is_sought() && served {
                self.forget(flow, pending.entry.origin);
                pending.phase = Phase::Done;
            } else {
                self.rule_out(at, flow, &mut pending, node);
            }
        } else if pending.phase == Phase::Assembling
            && (pending.entry.node, pending.entry.origin) == (node, origin)
            && before(pending.entry.next, next)
        {
            // It was released when the mark had gone back already: a new owner can go on from there.
            let released = sb_flow_entry { next, begins: next, framing: Default::default(), ..pending.entry };
            pending.catch_up(&released);
            self.set_entry(flow, &pending.entry);
            self.advance(at, flow, &mut pending);
        }
        self.keep(*flow, pending);
    }

    /// A node has the flow.
    pub(super) fn on_owned(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, u32),
        owned: &Owned,
        packet: &[u8],
        view: TcpView,
    ) {
        let entry = entry_of_node(owned, (node, origin), self.plan.http_limits().body_len);
        let Some(mut pending) = self.pending.take(flow) else {
            if !self.knows(flow)
                && let Some(entry) = self.recover(flow, origin, entry, &view)
            {
                self.forward(flow, &entry, &view, packet, Reading::None);
            }
            return;
        };
        if pending.is_sought() && pending.entry.origin != origin {
            // An older connection, which its client has given up.
            self.rule_out(at, flow, &mut pending, node);
            self.keep(*flow, pending);
            return;
        }
        if matches!(pending.phase, Phase::Seeking(_)) {
            let Some(entry) = self.recover(flow, origin, entry, &view) else { return };
            for packet in pending.held.take_all() {
                let beyond = before(entry.next, packet.end());
                if beyond && entry.mode != sb_mode::SB_MODE_TUNNEL as u8 {
                    self.on_client(at, flow, entry, &packet.bytes, packet.view);
                } else {
                    self.forward(flow, &entry, &packet.view, &packet.bytes, Reading::None);
                }
            }
            return;
        }
        let entry = entry.filter(|_| pending.entry.node == node && pending.entry.origin == origin);
        match (entry, &pending.phase) {
            (Some(entry), Phase::Assembling) => {
                self.catch_up_with_node(at, flow, &mut pending, &entry);
            }
            (Some(entry), Phase::Asking) => self.on_mark(at, flow, &mut pending, &entry),
            _ => {}
        }
        self.keep(*flow, pending);
    }

    /// The node says where the mark is, while something is missing there.
    pub(super) fn catch_up_with_node(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        entry: &sb_flow_entry,
    ) {
        pending.catch_up(&sb_flow_entry { turn: pending.entry.turn, ..*entry });
        self.bring_up_map(at, flow, pending);
        self.advance(at, flow, pending);
    }

    /// Whether the flow has, or had a moment ago, an entry of this process's making.
    pub(super) fn knows(&self, flow: &sb_flow) -> bool {
        self.recent.get(flow).is_some() || self.answered.entry(flow).is_some()
    }

    /// Takes up the flow again. Without an entry its node knows too little, and it ends.
    pub(super) fn recover(
        &mut self,
        flow: &sb_flow,
        origin: u32,
        entry: Option<sb_flow_entry>,
        view: &TcpView,
    ) -> Option<sb_flow_entry> {
        self.probed.remove(flow);
        let Some(entry) = entry else {
            self.reset(flow, origin, view.ack);
            return None;
        };
        self.stats.recovered += 1;
        self.output.change(flow, Change::Create(entry));
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
                sent += if budget.take(1024, Duration::from_millis(ms)) { 1024 } else { 0 };
            }
        }
        let most = 10 * PROBES_PER_SECOND + Budget::MOST;
        assert!((most - 2 * 1024..=most).contains(&sent), "{sent} of {most}");
    }
}
