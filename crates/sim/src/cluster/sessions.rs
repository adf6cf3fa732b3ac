//! TLS: load reports of nodes, and hand-overs by a busy node.

use switchback_policy::{Availability, Busy, Work, is_lighter};

use super::{Cluster, Event, Flow, NONE, Stage};
use crate::events::{SECOND, after};
use crate::scenario::{HandOver, Sessions, Tls};
use crate::station::Job;

impl<'a> Cluster<'a> {
    pub(super) fn tls(&self) -> Option<&'a Tls> {
        self.scenario.tls.as_ref()
    }

    /// Whether nodes report their loads to each other.
    pub(super) fn tells(&self) -> bool {
        self.tls().is_some_and(|tls| tls.sessions == Sessions::Forwarding)
    }

    /// Whether a busy node hands over requests rather than connections.
    fn relays(&self) -> bool {
        self.tls().is_some_and(|tls| tls.hand_over == HandOver::Relay)
    }

    pub(super) fn session_of(&self, client: u32) -> Option<u32> {
        self.sessions.get(client as usize).copied().filter(|node| *node != NONE)
    }

    /// Starts a new connection at its node, with additional microseconds of work.
    pub(super) fn shake_hands(&mut self, job: Job, tls: &Tls, besides: f64) {
        let Flow { client, node, .. } = self.flows[job as usize];
        let before = self.session_of(client);
        let resumes = before.is_some_and(|with| with == node || tls.cluster_tickets);
        if before.is_some() {
            self.statistics.return_of_client(resumes);
        }
        self.sessions[client as usize] = node;
        let costs = self.costs();
        let handshake = if resumes { costs.tls_resumed_us } else { costs.tls_full_us };
        self.flows[job as usize].stage = Stage::Handshake;
        self.work_at(node, job, besides + handshake);
    }

    /// Serves a request that has been read, or with forwarding hands it over.
    pub(super) fn begin_service(&mut self, job: Job) {
        let Some(to) = self.lighter(self.flows[job as usize].node) else { return self.serve(job, 0.0) };
        self.statistics.count(|outcome| &mut outcome.handed_over);
        let taker = &mut self.nodes[to as usize];
        taker.told.connections += 1;
        taker.taken += 1;
        self.note(to, |load| load.in_flight += 1);
        let costs = self.costs();
        let cost = if self.relays() { costs.relay_us } else { costs.move_us };
        let flow = &mut self.flows[job as usize];
        flow.stage = Stage::Giving;
        flow.worker = to;
        let node = flow.node;
        self.work_at(node, job, cost);
    }

    fn connections(&self, node: u32) -> u64 {
        (self.loads[node as usize].flows + self.nodes[node as usize].taken).into()
    }

    /// The less loaded node with the fewest connections, chosen as by a real node.
    fn lighter(&self, node: u32) -> Option<u32> {
        let tls = self.tls().filter(|tls| tls.sessions == Sessions::Forwarding)?;
        let busy = Busy { connections: tls.busy_connections.into(), cpu: tls.busy_cpu * 10 };
        let own = Work { connections: self.connections(node), cpu: self.nodes[node as usize].told.cpu };
        if !busy.is(own) {
            return None;
        }
        let others = self.nodes.iter().enumerate().filter(|(index, other)| {
            *index != node as usize
                && self.loads[*index].availability == Availability::Up
                && is_lighter(busy, own, other.told)
        });
        others.min_by_key(|(_, other)| other.told.connections).map(|(index, _)| index as u32)
    }

    /// Moves the connection or the request to the other node.
    pub(super) fn hand_to_worker(&mut self, job: Job) {
        let costs = self.costs();
        let Flow { node, worker, .. } = self.flows[job as usize];
        if self.relays() {
            return self.serve(job, costs.relay_us);
        }
        self.note(node, |load| load.in_flight -= 1);
        self.nodes[worker as usize].taken -= 1;
        self.bind(job, worker);
        self.serve(job, costs.move_us);
    }

    /// Ends the work for another node.
    pub(super) fn leave_worker(&mut self, worker: u32) {
        let worker = &mut self.nodes[worker as usize];
        worker.taken -= 1;
        worker.told.connections = worker.told.connections.saturating_sub(1);
    }

    pub(super) fn tell(&mut self) {
        let every = self.tls().map_or(SECOND, |tls| tls.told_ms * 1e6);
        for index in 0..self.nodes.len() {
            let connections = self.connections(index as u32);
            let node = &mut self.nodes[index];
            let used = self.stations[node.cpu as usize].used(self.now);
            let share = (used - node.used_when_told) / (every * node.cores);
            node.told = Work { connections, cpu: (share * 1000.0) as u32 };
            node.used_when_told = used;
        }
        self.events.add(after(self.now, every), Event::Tell);
    }
}
