//! A metric: a name by the conventions of Prometheus, a help text, and a function that reads its samples from
//! a status. The metrics, their reference in `docs/metrics.md` and the test of the dashboard iterate one list
//! of them.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use switchback_status::totals::{BOUNDS_US, Histogram};

/// Takes a sample: values of the labels, in their order, and the value.
pub type Add<'a> = dyn FnMut(&[&str], Value) + 'a;

/// Adds the samples of a status.
type Samples<S> = dyn Fn(&S, &mut Add<'_>) + Send + Sync;

/// A metric with samples from the status `S`.
pub struct Metric<S> {
    /// Name without unit and the suffix of the kind.
    base: String,
    unit: Option<Unit>,
    kind: Kind,
    /// Help text, without a full stop.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    samples: Box<Samples<S>>,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, from 0 at the start.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Always 1; the labels have the information.
    Info,
    /// Counts by size.
    Histogram,
}

/// The value of a sample.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// A number of the metric's unit.
    Number(f64),
    /// The value of [`Kind::Info`].
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

    /// Adds a unit to the end of the name.
    pub fn unit(mut self, unit: Unit) -> Metric<S> {
        self.unit = Some(unit);
        self
    }

    /// Name of the family, as in HELP and TYPE.
    pub fn name(&self) -> String {
        match &self.unit {
            Some(unit) => format!("{}_{}", self.base, unit.as_str()),
            None => self.base.clone(),
        }
    }

    /// Name of its samples in queries; a histogram has several.
    pub fn sample_name(&self) -> String {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name() + end
    }

    /// Names of all its samples.
    pub fn sample_names(&self) -> Vec<String> {
        match self.kind {
            Kind::Histogram => {
                ["bucket", "sum", "count"].map(|end| format!("{}_{end}", self.name())).to_vec()
            }
            _ => vec![self.sample_name()],
        }
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes the metric with its samples.
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
