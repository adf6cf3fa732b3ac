//! Lists of the nodes' flows. A switch that starts, or that gets many flows of another one, asks each node once for all
//! flows that it has, rather than all nodes about each flow.
//!
//! A list is a hint. It is as old as its packets, and an entry that it leads to is no more certain than any other: a node
//! without the flow, or with a later adoption or mark, says so when a packet of the flow arrives there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use switchback_flow::change::Change;
use switchback_flow::entry::Entry;
use switchback_wire::flow_state::FlowState;
use switchback_wire::records::Numbered;
use switchback_wire::sb_listed;

use super::{Dispatcher, Moment};
use crate::plan::NodeId;

/// Nodes whose lists come at the same time: each may have 128 packets on the way.
const AT_ONCE: usize = 8;
/// Time without progress after which a node is asked no more. Nodes repeat packets after 200 ms.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many questions within [`PERIOD`], with one that found a flow, show that there are more flows to find.
const MANY: u32 = 32;
const PERIOD: Duration = Duration::from_secs(1);
/// Time without a list after one that has taken a moment, and that many times as long after one that has taken long: nodes
/// have other things to do.
const REST: Duration = Duration::from_millis(500);
const REST_FACTOR: u32 = 4;

/// Progress of the lists.
#[derive(Debug, Default)]
pub struct Lists {
    /// Random, of the lists that are wanted; 0: none has been.
    epoch: u32,
    begun: Duration,
    /// When the last node had sent all of its list.
    ended: Duration,
    waiting: VecDeque<NodeId>,
    asked: BTreeMap<NodeId, Progress>,
    /// Nodes that have sent packets since they were told which have arrived.
    unanswered: BTreeSet<NodeId>,
    /// Beginning of a period and the number of questions in it.
    questions: (Duration, u32),
    /// Flows are to be listed as soon as nodes have rested.
    wanted: bool,
}

/// Progress of one node's list.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Number of the last packet taken.
    number: u32,
    /// When that was.
    at: Duration,
}

impl Lists {
    fn begin(&mut self, epoch: u32, nodes: impl Iterator<Item = NodeId>, now: Duration) {
        *self = Lists { epoch, begun: now, ended: now, waiting: nodes.collect(), ..Lists::default() };
        self.ask_next(now);
    }

    /// Whether some nodes have not sent all of their lists.
    pub fn are_incomplete(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Epoch and number of the last packet taken of the node's list; zeroes if none is wanted.
    pub fn wanted(&self, node: NodeId) -> (u32, u32) {
        self.asked.get(&node).map_or((0, 0), |progress| (self.epoch, progress.number))
    }

    /// Nodes to be told, since the last call, what has arrived of their lists, or that none is wanted any more.
    pub fn unanswered(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.unanswered)
    }

    /// Counts a question about an unknown flow.
    pub fn note_asked(&mut self, now: Duration) {
        let (since, count) = self.questions;
        self.questions = if now < since + PERIOD { (since, count + 1) } else { (now, 1) };
    }

    /// Wants flows listed.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Whether flows are to be listed, which another dispatcher is told.
    pub fn take_wish(&mut self) -> bool {
        std::mem::take(&mut self.wanted)
    }

    /// Wants flows listed if the question that has found one is one of many.
    fn note_found(&mut self, now: Duration) {
        let (since, count) = self.questions;
        self.wanted |= count >= MANY && now < since + PERIOD;
    }

    /// Whether to list flows now.
    fn are_due(&self, now: Duration) -> bool {
        let rest = REST.max(REST_FACTOR * (self.ended - self.begun));
        self.wanted && !self.are_incomplete() && (self.epoch == 0 || now >= self.ended + rest)
    }

    /// Whether this packet is the next one of its node's list.
    fn take(&mut self, node: NodeId, numbered: Numbered, is_last: bool, now: Duration) -> bool {
        let Some(progress) = self.asked.get_mut(&node).filter(|_| numbered.epoch == self.epoch) else {
            return false;
        };
        self.unanswered.insert(node);
        if numbered.number != progress.number + 1 {
            return false;
        }
        *progress = Progress { number: numbered.number, at: now };
        if is_last {
            self.asked.remove(&node);
            self.ended = now;
            self.ask_next(now);
        }
        true
    }

    /// Gives up nodes that have sent nothing for long.
    fn give_up(&mut self, now: Duration) {
        let before = self.asked.len();
        self.asked.retain(|_, progress| now < progress.at + PATIENCE);
        if self.asked.len() < before {
            self.ended = now;
        }
        self.ask_next(now);
    }

    fn ask_next(&mut self, now: Duration) {
        while self.asked.len() < AT_ONCE
            && let Some(node) = self.waiting.pop_front()
        {
            self.asked.insert(node, Progress { number: 0, at: now });
            self.unanswered.insert(node);
        }
    }
}

impl Dispatcher {
    /// Asks all nodes for their flows.
    pub fn list_flows(&mut self, now: Duration) {
        let epoch = ((self.random)() as u32).max(1);
        let nodes = self.plan.ids().filter(|id| self.plan.node(*id).is_some());
        self.lists.begin(epoch, nodes, now);
    }

    /// Whether lists of flows are on their way.
    pub fn lists_flows(&self) -> bool {
        self.lists.are_incomplete()
    }

    /// Whether a packet is the next one of its node's list; its tag has been verified.
    pub fn is_next_of_list(
        &mut self,
        now: Duration,
        node: NodeId,
        numbered: Numbered,
        is_last: bool,
    ) -> bool {
        self.lists.take(node, numbered, is_last, now)
    }

    /// Handles a flow in a node's list.
    pub fn on_listed(&mut self, at: Moment<'_>, node: NodeId, listed: &sb_listed) {
        let flow = &listed.flow;
        let state = FlowState::from_wire(&listed.state);
        let is_busy = self.pending.get(flow).is_some() || self.answered.entry(flow).is_some();
        if is_busy || self.plan.service(flow.vip()).is_none() {
            return;
        }
        let Some(entry) = Entry::of_node(node, &state, self.plan.limits.body) else { return };
        match self.current(at, flow) {
            Some(known) if known.origin != entry.origin || !known.has_node() || !entry.is_newer(&known) => {}
            Some(_) => {
                self.set_entry(flow, &entry);
                self.note_listed();
            }
            None if self.recent.get(flow).is_some() => {}
            None => {
                self.output.change(flow, Change::Create(entry));
                self.note_listed();
            }
        }
    }

    fn note_listed(&mut self) {
        self.stats.listed += 1;
        self.common.totals.note_taken_over();
    }

    /// Notes that a question has found a flow: if there are many questions, all flows are listed, because the budget for
    /// questions may not suffice for all, or a flood use it up. Strangers' questions alone find nothing.
    pub(super) fn note_found(&mut self) {
        self.lists.note_found(self.now);
        self.list_if_due();
    }

    /// Lists flows if that is wanted and nodes have rested.
    pub(super) fn list_if_due(&mut self) {
        if self.is_first && self.lists.are_due(self.now) {
            self.list_flows(self.now);
        }
    }

    /// Gives up lists of which nothing comes.
    pub(super) fn give_up_lists(&mut self) {
        self.lists.give_up(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u32 = 9;

    fn numbered(number: u32) -> Numbered {
        Numbered { epoch: EPOCH, number, lost: 0 }
    }

    fn begun(nodes: u32) -> Lists {
        let mut lists = Lists::default();
        lists.begin(EPOCH, (0..nodes).map(NodeId), Duration::ZERO);
        lists
    }

    #[test]
    fn packets_count_once_in_order_and_in_their_epoch() {
        let mut lists = begun(1);
        let now = Duration::ZERO;
        assert!(!lists.take(NodeId(0), numbered(2), true, now), "the first is missing");
        assert!(!lists.take(NodeId(0), Numbered { epoch: 8, ..numbered(1) }, false, now));
        assert!(!lists.take(NodeId(1), numbered(1), false, now), "not asked");
        assert!(lists.take(NodeId(0), numbered(1), false, now));
        assert!(!lists.take(NodeId(0), numbered(1), false, now), "again");
        assert_eq!(lists.wanted(NodeId(0)), (EPOCH, 1));
        assert!(lists.take(NodeId(0), numbered(2), true, now));
        assert_eq!((lists.wanted(NodeId(0)), lists.are_incomplete()), ((0, 0), false));
    }

    #[test]
    fn some_nodes_are_asked_at_a_time_and_silent_ones_given_up() {
        let mut lists = begun(AT_ONCE as u32 + 2);
        let is_asked = |lists: &Lists, node| lists.wanted(NodeId(node)).0 == EPOCH;
        let ninth = AT_ONCE as u32;
        assert!(is_asked(&lists, ninth - 1) && !is_asked(&lists, ninth));
        assert!(lists.take(NodeId(0), numbered(1), true, PATIENCE / 2));
        assert!(is_asked(&lists, ninth) && !is_asked(&lists, ninth + 1));
        lists.give_up(PATIENCE);
        assert!(!is_asked(&lists, 1) && is_asked(&lists, ninth) && is_asked(&lists, ninth + 1));
        lists.give_up(PATIENCE * 3);
        assert!(!lists.are_incomplete());
    }

    #[test]
    fn a_flow_found_among_many_questions_makes_a_list_now_and_then() {
        for took in [0, 10, 1000, 3000].map(Duration::from_millis) {
            let mut lists = Lists::default();
            let mut listed: Vec<Duration> = Vec::new();
            for ms in (0..60_000).step_by(10) {
                let now = Duration::from_millis(ms);
                lists.note_asked(now);
                if ms % 100 == 0 {
                    lists.note_found(now);
                }
                if lists.are_due(now) {
                    listed.push(now);
                    lists.begin(EPOCH, std::iter::once(NodeId(0)), now);
                }
                if listed.last().is_some_and(|begun| now >= *begun + took) {
                    lists.take(NodeId(0), numbered(1), true, now);
                }
            }
            assert!(listed[0] < PERIOD, "{listed:?}");
            let pause = took + REST.max(REST_FACTOR * took);
            let is_paused = |pair: &[Duration]| (pause..pause + PERIOD).contains(&(pair[1] - pair[0]));
            assert!(listed.len() > 3 && listed.windows(2).all(is_paused), "{took:?}: {listed:?}");
        }
    }

    #[test]
    fn a_flow_found_now_and_then_makes_no_list() {
        let mut lists = Lists::default();
        for second in 0..1000 {
            let now = second * PERIOD;
            lists.note_asked(now);
            lists.note_found(now);
            assert!(!lists.are_due(now), "after {now:?}");
        }
        (0..MANY).for_each(|_| lists.note_asked(1000 * PERIOD));
        lists.note_found(1001 * PERIOD);
        assert!(!lists.are_due(1001 * PERIOD), "the questions were a period ago");
    }

    #[test]
    fn a_list_that_is_wanted_too_soon_comes_later() {
        let mut lists = begun(1);
        (0..MANY).for_each(|_| lists.note_asked(Duration::ZERO));
        lists.note_found(Duration::ZERO);
        assert!(!lists.are_due(Duration::ZERO), "one is on its way");
        let took = REST;
        assert!(lists.take(NodeId(0), numbered(1), true, took));
        let end = took + REST_FACTOR * took;
        assert!(!lists.are_due(end - PERIOD / 1000) && lists.are_due(end));
    }
}
