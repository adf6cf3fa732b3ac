//! All metrics, and the text that Prometheus reads.
//!
//! Labels are names of the configuration, classes of statuses and reasons, of which there are few. Addresses
//! and paths of clients are no labels.

mod node;
mod process;
mod reference;
mod switch;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use switchback_status::Status;

pub use reference::reference;

use crate::asker::Answers;
use crate::metric::Metric;

/// `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of all roles.
pub(crate) struct Metrics {
    switch: Vec<Metric<switchback_status::switch::SwitchStatus>>,
    node: Vec<Metric<switchback_status::node::NodeStatus>>,
    process: Vec<Metric<process::Process>>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics { switch: switch::metrics(), node: node::metrics(), process: process::metrics() }
    }

    /// The text of the metrics with these answers.
    pub(crate) fn text(self: &Arc<Metrics>, answers: Arc<Answers>) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape { metrics: Arc::clone(self), answers }));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

/// Names of all samples, each with the names of its labels. Buckets have `le` besides.
pub fn samples() -> Vec<(String, &'static [&'static str])> {
    fn of<S>(metrics: &[Metric<S>]) -> impl Iterator<Item = (String, &'static [&'static str])> {
        metrics.iter().flat_map(|metric| metric.sample_names().into_iter().map(|name| (name, metric.labels)))
    }
    let Metrics { switch, node, process } = Metrics::new();
    of(&switch).chain(of(&node)).chain(of(&process)).collect()
}

/// One scrape of Prometheus.
struct Scrape {
    metrics: Arc<Metrics>,
    answers: Arc<Answers>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for status in self.answers.iter().flatten() {
            match status {
                Status::Switch(status) => each(&self.metrics.switch, status, &mut encoder)?,
                Status::Node(status) => each(&self.metrics.node, status, &mut encoder)?,
                Status::Client(_) => {}
            }
        }
        each(&self.metrics.process, &process::Process::read(), &mut encoder)
    }
}

fn each<S>(metrics: &[Metric<S>], status: &S, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    metrics.iter().try_for_each(|metric| metric.encode(status, encoder))
}

#[cfg(test)]
mod tests;
