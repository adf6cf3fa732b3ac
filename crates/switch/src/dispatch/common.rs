//! What the dispatchers of a switch have in common: each L7 thread has one, for the flows of a hash.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use switchback_wire::handoff::flow_hash;
use switchback_wire::report::Report;
use switchback_wire::sb_flow;

use super::{Dispatcher, Moment};
use crate::plan::{NodeId, PlanNode};

/// What all dispatchers of a switch know and count together.
#[derive(Clone, Debug)]
pub struct Common {
    /// Number of dispatchers.
    pub threads: usize,
    pub(super) totals: Arc<Totals>,
    /// Numbers the paths that nodes are asked about.
    pub(super) paths: RandomState,
}

/// Sums over all threads: of their pending flows, and of the flows found at nodes.
#[derive(Debug, Default)]
pub struct Totals {
    flows: AtomicUsize,
    /// Requests that wait for a node with room.
    crowded: AtomicUsize,
    /// Memory in bytes.
    cost: AtomicUsize,
    /// Flows found at nodes.
    taken_over: AtomicUsize,
}

impl Common {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Common { threads, totals: Arc::default(), paths: RandomState::new() }
    }

    /// The thread that has the flow, as `thread_of()` in `bpf/l7.h` computes it.
    pub fn thread_of(&self, flow: &sb_flow) -> usize {
        ((u64::from(flow_hash(flow)) * self.threads as u64) >> 32) as usize
    }
}

impl Totals {
    /// Adds a pending flow.
    pub fn add(&self, cost: usize, is_crowded: bool) {
        self.flows.fetch_add(1, Ordering::Relaxed);
        self.crowded.fetch_add(is_crowded.into(), Ordering::Relaxed);
        self.cost.fetch_add(cost, Ordering::Relaxed);
    }

    /// Takes a pending flow away.
    pub fn subtract(&self, cost: usize, is_crowded: bool) {
        self.flows.fetch_sub(1, Ordering::Relaxed);
        self.crowded.fetch_sub(is_crowded.into(), Ordering::Relaxed);
        self.cost.fetch_sub(cost, Ordering::Relaxed);
    }

    /// Counts a flow found at a node.
    pub fn note_taken_over(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of pending flows.
    pub fn flows(&self) -> usize {
        self.flows.load(Ordering::Relaxed)
    }

    /// Requests that wait for a node with room.
    pub fn crowded(&self) -> usize {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Memory of the pending flows, in bytes.
    pub fn cost(&self) -> usize {
        self.cost.load(Ordering::Relaxed)
    }

    /// Flows found at nodes.
    pub fn taken_over(&self) -> usize {
        self.taken_over.load(Ordering::Relaxed)
    }
}

/// What the first dispatcher hears of the nodes, and the others must know.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A node has reported.
    Report(NodeId, Report),
    /// The length of the response for a path.
    Sized {
        /// Number of the path.
        path: u16,
        /// Length in bytes modulo 2^32.
        bytes: u32,
    },
    /// Route, clock or order of a node have changed.
    Node(NodeId, PlanNode),
}

impl Dispatcher {
    /// Handles what the first dispatcher has heard.
    pub fn hear(&mut self, at: Moment<'_>, heard: &Heard) {
        self.now = at.now;
        match heard {
            Heard::Report(node, report) => self.on_report(at, *node, report),
            Heard::Sized { path, bytes } => self.sizes.learn(*path, *bytes),
            Heard::Node(id, node) => self.plan.copy_node(*id, node),
        }
    }

    /// Notes for the other dispatchers what has been heard.
    pub(super) fn pass_on(&mut self, heard: Heard) {
        if self.common.threads > 1 {
            self.output.heard.push(heard);
        }
    }

    /// Notes for the other dispatchers what has changed about nodes; the result is these nodes.
    pub fn changed_nodes(&mut self) -> Vec<NodeId> {
        let changed = self.plan.changed();
        for id in &changed {
            if let Some(node) = self.plan.node(*id).cloned() {
                self.pass_on(Heard::Node(*id, node));
            }
        }
        changed
    }

    /// Groups with requests that wait for room at any node.
    pub fn waiting_groups(&self) -> Vec<usize> {
        self.pending.waiting_groups()
    }

    /// Whether flows found one by one have shown, since the last call, that there are more to find.
    pub fn wants_lists(&mut self) -> bool {
        self.lists.take_wish()
    }

    /// Has flows listed as soon as nodes have rested.
    pub fn want_lists(&mut self) {
        self.lists.want();
        self.list_if_due();
    }
}
