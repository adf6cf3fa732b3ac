//! Nodes that fail, drain and return.

use std::time::Duration;

use switchback_policy::Availability;

use super::{Cluster, Event, Flow, Stage};
use crate::events::after;
use crate::scenario::{Change, What};
use crate::station::Job;

impl Cluster<'_> {
    /// Makes a request wait at a dead node, which the switch does not yet know to be dead.
    pub(super) fn wait_for_silence(&mut self, job: Job) {
        self.flows[job as usize].stage = Stage::Silence;
        self.events.add(after(self.now, self.scenario.pool.silence_ms * 1e6), Event::Resume(job));
    }

    /// Ends the wait of a request whose node is now known to be dead.
    pub(super) fn give_up_waiting(&mut self, job: Job) {
        let Flow { node, worker, .. } = self.flows[job as usize];
        for node in [node, worker] {
            let is_known = self.loads[node as usize].availability == Availability::Down;
            if self.nodes[node as usize].is_dead && !is_known {
                self.give_back_ahead();
                self.note(node, |load| load.availability = Availability::Down);
            }
        }
        self.leave_nodes(job);
        self.dispatch(job);
    }

    pub(super) fn change(&mut self, change: Change) {
        let index = change.node as usize;
        match change.what {
            What::Drains => {
                self.give_back_ahead();
                self.note(change.node, |load| load.availability = Availability::Down);
            }
            What::Returns => {
                self.nodes[index].is_dead = false;
                self.give_back_ahead();
                let now = Duration::from_nanos(self.now);
                self.note(change.node, |load| {
                    load.availability = Availability::Up;
                    load.up_since = now;
                });
            }
            What::Fails => {
                self.nodes[index].is_dead = true;
                let (cpu, link) = (self.nodes[index].cpu, self.nodes[index].link);
                for job in self.stations[cpu as usize].clear(self.now) {
                    self.wait_for_silence(job);
                }
                for job in self.stations[link as usize].clear(self.now) {
                    self.leave_nodes(job);
                    self.statistics.count_in_system(self.now, false);
                    self.statistics.count(|outcome| &mut outcome.broken);
                    self.leave(job);
                }
            }
        }
    }
}
