//! The end of a run.

use super::Cluster;
use crate::events::SECOND;
use crate::measure::Outcome;

impl Cluster<'_> {
    pub(super) fn finish(self) -> Outcome {
        let Cluster { scenario, now, mut stations, switches, nodes, statistics, worked_off, .. } = self;
        let nanos = statistics.nanos(now);
        let mut share =
            |station: u32, cores: f64| statistics.used(&mut stations, station, now) / nanos / cores;
        let of_switches = (0..switches).map(|switch| share(switch, scenario.switch.cores.into()));
        let switch_cpu = of_switches.fold(0.0, f64::max);
        let cpus: Vec<f64> = nodes.iter().map(|node| share(node.cpu, node.cores)).collect();
        let links: Vec<f64> = nodes.iter().map(|node| share(node.link, 1.0)).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let node_cpu = mean(&cpus);
        let deviation = mean(&cpus.iter().map(|cpu| (cpu - node_cpu).powi(2)).collect::<Vec<_>>()).sqrt();
        let link = scenario.switch.link_mbit * 1e6 / 8.0 * nanos / SECOND * f64::from(switches);
        Outcome {
            switch_cpu,
            switch_link: statistics.switch_bytes / link,
            node_cpu,
            node_cpu_max: cpus.iter().copied().fold(0.0, f64::max),
            node_link: mean(&links),
            spread: if node_cpu > 0.0 { deviation / node_cpu } else { 0.0 },
            events: worked_off,
            ..statistics.outcome(now)
        }
    }
}
