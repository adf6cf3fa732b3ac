//! Statistics from the end of the warm-up on.

use super::Cluster;
use crate::events::SECOND;
use crate::measure::Outcome;

impl Cluster<'_> {
    pub(super) fn begin_to_measure(&mut self) {
        self.measured_since = Some(self.now);
        self.in_system.1 = self.now;
        self.in_system.2 = 0.0;
        self.switch_bytes = 0.0;
        for (station, used) in self.stations.iter_mut().zip(&mut self.used_before) {
            *used = station.used(self.now);
        }
    }

    pub(super) fn count_in_system(&mut self, more: bool) {
        let (count, since, sum) = &mut self.in_system;
        *sum += *count as f64 * (self.now - *since) as f64;
        *since = self.now;
        *count = if more { *count + 1 } else { *count - 1 };
    }

    pub(super) fn is_measured(&self) -> bool {
        self.measured_since.is_some()
    }

    pub(super) fn finish(mut self) -> Outcome {
        let since = self.measured_since.unwrap_or(0);
        let nanos = (self.now - since) as f64;
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.per_second = outcome.answered as f64 / nanos * SECOND;
        outcome.bits_per_second = self.bits / nanos * SECOND;
        outcome.set_latency(&self.latencies);
        let (count, at, sum) = self.in_system;
        outcome.in_system = (sum + count as f64 * (self.now - at) as f64) / nanos;
        let now = self.now;
        let before = std::mem::take(&mut self.used_before);
        let mut share = |station: u32, cores: f64| {
            let station = station as usize;
            (self.stations[station].used(now) - before[station]) / nanos / cores
        };
        let switches = (0..self.switches).map(|switch| share(switch, self.scenario.switch.cores.into()));
        outcome.switch_cpu = switches.fold(0.0, f64::max);
        let cpus: Vec<f64> = self.nodes.iter().map(|node| share(node.cpu, node.cores)).collect();
        let links: Vec<f64> = self.nodes.iter().map(|node| share(node.link, 1.0)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        outcome.node_cpu = mean(&cpus);
        outcome.node_cpu_max = cpus.iter().copied().fold(0.0, f64::max);
        outcome.node_link = mean(&links);
        let deviation =
            mean(&cpus.iter().map(|cpu| (cpu - outcome.node_cpu).powi(2)).collect::<Vec<_>>()).sqrt();
        outcome.spread = if outcome.node_cpu > 0.0 { deviation / outcome.node_cpu } else { 0.0 };
        let link = self.scenario.switch.link_mbit * 1e6 / 8.0 * nanos / SECOND * f64::from(self.switches);
        outcome.switch_link = self.switch_bytes / link;
        outcome.reuse = if self.returning > 0 { self.resumed as f64 / self.returning as f64 } else { 0.0 };
        outcome.events = self.worked_off;
        outcome
    }
}
