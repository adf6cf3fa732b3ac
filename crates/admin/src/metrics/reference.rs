//! `docs/metrics.md`, made from the metrics themselves.

use super::Metrics;
use crate::metric::Metric;

const HEAD: &str = "\
# Metrics

All that `/metrics` shows, in the text format of OpenMetrics; [operations](operations.md#metrics) says how to get at it.
This page is made from the code: `cargo run -p switchback-admin --example metrics-reference > docs/metrics.md`.

Counters count from 0 at the start of the process, except those of the BPF programs, which go on as long as these are
attached. Histograms have buckets from 0.1 ms to 30 s. `service`, `pool` and `node` are names of the configuration,
`listen` is a VIP with its port.
";

/// The whole page.
pub fn reference() -> String {
    let Metrics { switch, node, process } = Metrics::new();
    [
        HEAD.to_owned(),
        section("Of a switch", &switch),
        section("Of a node agent", &node),
        section("Of the process, whatever its role", &process),
    ]
    .join("\n")
}

fn section<S>(title: &str, metrics: &[Metric<S>]) -> String {
    let row = |metric: &Metric<S>| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!(
            "| `{}` | {} | {} | {} |\n",
            metric.sample_name(),
            metric.kind(),
            labels.join(" "),
            metric.help
        )
    };
    let rows: String = metrics.iter().map(row).collect();
    format!("## {title}\n\n| metric | kind | labels | what |\n|---|---|---|---|\n{rows}")
}
