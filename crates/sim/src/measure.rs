//! Results of a run.

use hdrhistogram::Histogram;

use crate::events::{SECOND, Time};

/// Latencies in nanoseconds, in constant memory.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    sum: f64,
    count: u64,
}

/// Significant digits of a quantile.
const DIGITS: u8 = 3;
/// Longest latency, an hour; longer ones are counted as an hour.
const LONGEST: u64 = 3600 * SECOND as u64;

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are in order");
        Latencies { histogram, sum: 0.0, count: 0 }
    }

    pub(crate) fn add(&mut self, latency: Time) {
        self.histogram.saturating_record(latency.max(1));
        self.sum += latency as f64;
        self.count += 1;
    }

    fn quantile(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / SECOND
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 / SECOND }
    }
}

/// Results of one run, from the end of the warm-up on. Times are in seconds, shares between 0 and 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Arrived connections and requests.
    pub offered: u64,
    /// Requests with complete responses.
    pub answered: u64,
    /// Requests that no node had room for.
    pub refused: u64,
    /// Requests whose node died.
    pub broken: u64,
    /// Answered requests per second.
    pub per_second: f64,
    /// Throughput of responses, in bit/s.
    pub bits_per_second: f64,
    /// Mean latency from the client's request (a connection's first: from its SYN) to the last byte.
    pub latency_mean: f64,
    /// Median of the latency.
    pub latency_p50: f64,
    /// 0.9 quantile of the latency.
    pub latency_p90: f64,
    /// 0.99 quantile of the latency.
    pub latency_p99: f64,
    /// Time average of the number of requests in the system.
    pub in_system: f64,
    /// Use of the processors of all switches, the busiest first.
    pub switch_cpu: f64,
    /// Use of the switches' links, towards the nodes.
    pub switch_link: f64,
    /// Mean use of the processors of all nodes.
    pub node_cpu: f64,
    /// Use of the processors of the busiest node.
    pub node_cpu_max: f64,
    /// Mean use of the links of all nodes.
    pub node_link: f64,
    /// Standard deviation of the nodes' CPU shares, over their mean.
    pub spread: f64,
    /// Share of TLS handshakes that resumed a session, among clients that had one.
    pub reuse: f64,
    /// Connections or requests that were handed over.
    pub handed_over: u64,
    /// Events, the warm-up included.
    pub events: u64,
}

impl Outcome {
    pub(crate) fn set_latency(&mut self, latencies: &Latencies) {
        self.latency_mean = latencies.mean();
        self.latency_p50 = latencies.quantile(0.5);
        self.latency_p90 = latencies.quantile(0.9);
        self.latency_p99 = latencies.quantile(0.99);
    }

    /// Every value with its name, in the order of the CSV files.
    pub fn numbers(&self) -> [(&'static str, f64); 21] {
        [
            ("offered", self.offered as f64),
            ("answered", self.answered as f64),
            ("refused", self.refused as f64),
            ("broken", self.broken as f64),
            ("per_second", self.per_second),
            ("bits_per_second", self.bits_per_second),
            ("latency_mean_s", self.latency_mean),
            ("latency_p50_s", self.latency_p50),
            ("latency_p90_s", self.latency_p90),
            ("latency_p99_s", self.latency_p99),
            ("in_system", self.in_system),
            ("switch_cpu", self.switch_cpu),
            ("switch_link", self.switch_link),
            ("node_cpu", self.node_cpu),
            ("node_cpu_max", self.node_cpu_max),
            ("node_link", self.node_link),
            ("spread", self.spread),
            ("reuse", self.reuse),
            ("handed_over", self.handed_over as f64),
            ("events", self.events as f64),
            ("saturated", f64::from(u8::from(self.is_saturated()))),
        ]
    }

    /// Whether more requests arrived than could be answered: latencies then depend on the length of the run.
    pub fn is_saturated(&self) -> bool {
        (self.answered as f64) < 0.97 * self.offered as f64
    }
}

/// A mean of replications with its confidence interval (Student's distribution).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Mean of the replications.
    pub mean: f64,
    /// Half the width of the interval; infinite with one replication.
    pub half: f64,
}

impl Estimate {
    /// Estimate of independent values, with a confidence of 95 %.
    pub fn of(values: &[f64]) -> Estimate {
        Estimate::with(values, 0.95)
    }

    /// Estimate with another confidence.
    pub fn with(values: &[f64], confidence: f64) -> Estimate {
        use statrs::distribution::{ContinuousCDF, StudentsT};
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Estimate { mean, half: f64::INFINITY };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("there are two values");
        Estimate { mean, half: student.inverse_cdf(0.5 + confidence / 2.0) * (variance / count).sqrt() }
    }

    /// Whether the interval contains this value.
    pub fn holds(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // t(0.975, 4) = 2.776; the standard deviation of 1 to 5 is 1.5811.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(estimate.mean, 3.0);
        assert!((estimate.half - 2.776_445 * 1.581_139 / 5f64.sqrt()).abs() < 1e-4, "{estimate:?}");
        assert!(estimate.holds(4.9) && !estimate.holds(5.0));
        assert_eq!(Estimate::of(&[2.0]), Estimate { mean: 2.0, half: f64::INFINITY });
    }

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|micros: u64| latencies.add(micros * 1000));
        let mut outcome = Outcome::default();
        outcome.set_latency(&latencies);
        for (found, expected) in [
            (outcome.latency_mean, 0.050_000_5),
            (outcome.latency_p50, 0.05),
            (outcome.latency_p90, 0.09),
            (outcome.latency_p99, 0.099),
        ] {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
        }
    }
}
