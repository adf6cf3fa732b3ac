//! Dispatch of requests, and of requests that wait for room at a node.

use std::time::Duration;

use switchback_policy::{Ask, Availability};

use super::{Cluster, NONE};
use crate::random::bits;
use crate::scenario::Sessions;
use crate::station::Job;

impl Cluster<'_> {
    /// Gives a request to a node; it is held if no node has room, and refused if it cannot be held.
    pub(super) fn dispatch(&mut self, job: Job) {
        if !self.try_dispatch(job) {
            if self.held.len() < self.scenario.switch.held as usize {
                self.held.push_back(job);
            } else {
                self.refuse(job);
            }
        }
    }

    pub(super) fn dispatch_held(&mut self) {
        while let Some(job) = self.held.front().copied() {
            if !self.try_dispatch(job) {
                return;
            }
            self.held.pop_front();
        }
    }

    fn refuse(&mut self, job: Job) {
        self.statistics.count_in_system(self.now, false);
        self.statistics.count(|outcome| &mut outcome.refused);
        self.leave(job);
    }

    fn try_dispatch(&mut self, job: Job) -> bool {
        let mut tried = Vec::new();
        loop {
            let Some(node) = self.choose(job, &tried) else { return false };
            let has_room = self.stations[self.nodes[node].cpu as usize].has_room();
            if has_room {
                self.bind(job, node as u32);
                self.reach_node(job);
                self.choose_ahead();
                return true;
            }
            tried.push(node);
        }
    }

    fn choose(&mut self, job: Job, tried: &[usize]) -> Option<usize> {
        let flow = &self.flows[job as usize];
        let by_session = self.tls().is_some_and(|tls| tls.sessions != Sessions::RoundRobin);
        if by_session
            && let Some(node) = self.session_of(flow.client)
            && self.loads[node as usize].availability == Availability::Up
            && !tried.contains(&(node as usize))
        {
            return Some(node as usize);
        }
        let ask = Ask { key: Some(flow.client.into()), now: Duration::from_nanos(self.now) };
        let is_first = flow.is_new && flow.node == NONE && tried.is_empty();
        if is_first && let Some(node) = self.take_ahead() {
            return Some(node as usize);
        }
        let mut choice = self.pick(&ask, tried);
        if choice.is_none() && !self.ahead.is_empty() {
            // They may have all the room that there is.
            self.give_back_ahead();
            choice = self.pick(&ask, tried);
        }
        choice
    }

    fn pick(&mut self, ask: &Ask, tried: &[usize]) -> Option<usize> {
        let Cluster { balancer, workload, .. } = self;
        balancer.pick_noted(ask, tried, &mut || bits(&mut workload.random.choices))
    }

    /// Binds the connection to this node.
    pub(super) fn bind(&mut self, job: Job, node: u32) {
        let flow = &mut self.flows[job as usize];
        let before = std::mem::replace(&mut flow.node, node);
        flow.worker = node;
        if before != NONE {
            self.note(before, |load| load.flows -= 1);
        }
        self.note(node, |load| load.flows += 1);
    }

    /// Tries another node when one has no room.
    pub(super) fn give_back(&mut self, job: Job) {
        self.leave_nodes(job);
        self.dispatch(job);
    }

    pub(super) fn leave_nodes(&mut self, job: Job) {
        let flow = &self.flows[job as usize];
        let (node, worker) = (flow.node, flow.worker);
        self.note(worker, |load| load.in_flight -= 1);
        if node != worker {
            self.note(node, |load| load.in_flight -= 1);
            self.leave_worker(worker);
        }
    }
}
