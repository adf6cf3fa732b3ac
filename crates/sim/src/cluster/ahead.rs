//! Choices made ahead, as the switch makes them for the first requests of connections.
//!
//! Each choice counts as load of its node until a request takes it, in order. At each report of the nodes, and when the
//! state of a node changes, those that no request has taken are given back.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Cluster, Event};
use crate::events::after;
use crate::random::bits;
use crate::scenario::Pool;

/// The choices that no request has taken.
pub(super) struct Ahead {
    /// Most of them; 0: no choice is made ahead.
    most: usize,
    nodes: VecDeque<u32>,
    /// Number of them for each node.
    counts: Vec<u32>,
}

impl Ahead {
    /// None for a policy that needs the request's key.
    pub(super) fn new(pool: &Pool, nodes: usize) -> Self {
        let most = if pool.policy.0.chooses_ahead() { pool.ahead as usize } else { 0 };
        Ahead { most, nodes: VecDeque::new(), counts: vec![0; nodes] }
    }

    pub(super) fn is_used(&self) -> bool {
        self.most > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of choices of a node.
    pub(super) fn count(&self, node: u32) -> u32 {
        self.counts[node as usize]
    }
}

impl Cluster<'_> {
    /// Takes the oldest choice.
    pub(super) fn take_ahead(&mut self) -> Option<u32> {
        let node = self.ahead.nodes.pop_front()?;
        self.ahead.counts[node as usize] -= 1;
        self.note(node, |_| ());
        Some(node)
    }

    /// Makes choices ahead, as many as allowed, if less than half of them are left. Requests that wait for room go first.
    pub(super) fn choose_ahead(&mut self) {
        if 2 * self.ahead.nodes.len() >= self.ahead.most || !self.held.is_empty() {
            return;
        }
        while self.ahead.nodes.len() < self.ahead.most {
            let now = Duration::from_nanos(self.now);
            let Cluster { balancer, workload, .. } = self;
            let Some(node) = balancer.pick_ahead(now, &mut || bits(&mut workload.random.choices)) else {
                return;
            };
            self.ahead.nodes.push_back(node as u32);
            self.ahead.counts[node] += 1;
            self.note(node as u32, |_| ());
        }
    }

    /// Gives back all choices.
    pub(super) fn give_back_ahead(&mut self) {
        // Before any of them is noted as gone.
        self.ahead.nodes.iter().rev().for_each(|&node| self.balancer.give_back(node as usize));
        while self.take_ahead().is_some() {}
    }

    /// Replaces the choices at a report.
    pub(super) fn report(&mut self) {
        self.give_back_ahead();
        self.choose_ahead();
        self.events.add(after(self.now, self.scenario.pool.report_ms * 1e6), Event::Report);
    }
}
