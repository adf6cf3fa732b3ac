//! What a metric is: a name by the conventions of Prometheus, a text that explains it, and how to read its samples
//! from a status. One list of these makes the metrics, their reference in `docs/metrics.md`, and what the tests
//! compare the dashboard with.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use switchback_status::totals::{BOUNDS_US, Histogram};

/// Values of a metric's labels, in their order, and the value that goes with them.
pub type Add<'a> = dyn FnMut(&[&str], Value) + 'a;

/// Adds the samples that a status has.
type Samples<S> = dyn Fn(&S, &mut Add<'_>) + Send + Sync;

/// A metric of what `S` says.
pub struct Metric<S> {
    /// Without its unit, and without what the kind adds at the end.
    base: String,
    unit: Option<Unit>,
    kind: Kind,
    /// What it is, without a full stop.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    samples: Box<Samples<S>>,
}

/// What one does with a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, from 0 at the start.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Says something in its labels.
    Info,
    /// How many were how large.
    Histogram,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// A number of the metric's unit.
    Number(f64),
    /// Of a metric that says what it has to say in its labels.
    Labels,
    /// Times in microseconds, which become seconds.
    Times(Histogram),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Value::Count(count.into())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Value::Count(is.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl<S> Metric<S> {
    /// A metric with the samples that `samples` adds.
    pub fn new(
        kind: Kind,
        base: impl Into<String>,
        help: &'static str,
        labels: &'static [&'static str],
        samples: impl Fn(&S, &mut Add<'_>) + Send + Sync + 'static,
    ) -> Metric<S> {
        Metric { base: base.into(), unit: None, kind, help, labels, samples: Box::new(samples) }
    }

    /// A metric without labels, which has one value or none.
    pub fn single<V: Into<Value>>(
        kind: Kind,
        base: impl Into<String>,
        help: &'static str,
        value: impl Fn(&S) -> Option<V> + Send + Sync + 'static,
    ) -> Metric<S> {
        let samples = move |status: &S, add: &mut Add<'_>| {
            if let Some(value) = value(status) {
                add(&[], value.into());
            }
        };
        Metric::new(kind, base, help, &[], samples)
    }

    /// With this unit at the end of its name.
    pub fn unit(mut self, unit: Unit) -> Metric<S> {
        self.unit = Some(unit);
        self
    }

    /// The name of the family: what HELP and TYPE are said of.
    pub fn name(&self) -> String {
        match &self.unit {
            Some(unit) => format!("{}_{}", self.base, unit.as_str()),
            None => self.base.clone(),
        }
    }

    /// The name by which one asks for it; that of a histogram stands for several.
    pub fn sample_name(&self) -> String {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name() + end
    }

    /// All names that its samples have.
    pub fn sample_names(&self) -> Vec<String> {
        match self.kind {
            Kind::Histogram => {
                ["bucket", "sum", "count"].map(|end| format!("{}_{end}", self.name())).to_vec()
            }
            _ => vec![self.sample_name()],
        }
    }

    /// In a word.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes it with its samples.
    pub(crate) fn encode(&self, status: &S, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(&self.base, self.help, self.unit.as_ref(), kind)?;
        let mut result = Ok(());
        (self.samples)(status, &mut |values, value| {
            let labels: Vec<(&str, &str)> = self.labels.iter().copied().zip(values.iter().copied()).collect();
            result = result.and_then(|()| self.sample(&mut metric, &labels, value));
        });
        result
    }

    fn sample(&self, metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: Value) -> fmt::Result {
        if self.kind == Kind::Info {
            return metric.encode_info(&labels);
        }
        if labels.is_empty() {
            return self.value(metric, value);
        }
        self.value(&mut metric.encode_family(&labels)?, value)
    }

    fn value(&self, metric: &mut MetricEncoder<'_>, value: Value) -> fmt::Result {
        match (self.kind, value) {
            (Kind::Counter, Value::Count(count)) => metric.encode_counter::<NoLabelSet, _, u64>(&count, None),
            (Kind::Counter, Value::Number(number)) => {
                metric.encode_counter::<NoLabelSet, _, u64>(&number, None)
            }
            (_, Value::Count(count)) => metric.encode_gauge(&count),
            (_, Value::Number(number)) => metric.encode_gauge(&number),
            (_, Value::Labels) => metric.encode_gauge(&1u64),
            (_, Value::Times(histogram)) => {
                let bounds = BOUNDS_US.into_iter().map(|us| us as f64 / 1e6).chain([f64::INFINITY]);
                let counts = histogram.counts.iter().copied().chain(std::iter::repeat(0));
                let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
                let count = buckets.iter().map(|(_, count)| count).sum();
                metric.encode_histogram::<NoLabelSet>(histogram.sum_us as f64 / 1e6, count, &buckets, None)
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        })
    }
}
