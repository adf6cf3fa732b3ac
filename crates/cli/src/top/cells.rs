//! Rows of the tables as texts, and the whole as one text without a terminal.

use std::cmp::Ordering;

use switchback_admin::View;
use switchback_admin::view::{ErrorRow, Latency, NodeRow, Quantiles, Rate, ServiceRow};

use crate::status::{duration, switches};
use crate::table::{Align, Table};

/// An unknown value.
pub const UNKNOWN: &str = "-";

/// A column of the table of nodes.
pub struct Column {
    pub title: &'static str,
    /// Width in characters, without the blanks between columns; the first column has the remaining width.
    pub width: u16,
    /// Rank: in a narrow terminal, the columns with the highest ranks are dropped first.
    pub rank: u8,
    pub cell: fn(&NodeRow) -> String,
    pub compare: fn(&NodeRow, &NodeRow) -> Ordering,
}

/// The columns, in the order of the display.
pub const COLUMNS: [Column; 11] = [
    column("NODE", 10, 0, |node| node.name.clone(), |a, b| a.name.cmp(&b.name)),
    column("STATE", 12, 0, |node| node.state.clone(), |a, b| a.state.cmp(&b.state)),
    column(
        "REQ/S",
        9,
        0,
        |node| rate(node.requests_per_s),
        |a, b| number(a.requests_per_s, b.requests_per_s),
    ),
    column(
        "RESP/S",
        9,
        3,
        |node| rate(node.responses.map(|responses| responses.per_s)),
        |a, b| {
            number(a.responses.map(|responses| responses.per_s), b.responses.map(|responses| responses.per_s))
        },
    ),
    column(
        "BACK",
        11,
        2,
        |node| traffic(node.responses),
        |a, b| {
            number(
                a.responses.map(|responses| responses.bytes_per_s),
                b.responses.map(|responses| responses.bytes_per_s),
            )
        },
    ),
    column(
        "FAIL/S",
        7,
        4,
        |node| rate(node.failures_per_s),
        |a, b| number(a.failures_per_s, b.failures_per_s),
    ),
    column("FLIGHT", 7, 5, |node| known(node.in_flight), |a, b| a.in_flight.cmp(&b.in_flight)),
    column("CONNS", 7, 6, |node| known(node.flows), |a, b| a.flows.cmp(&b.flows)),
    column(
        "QUEUE",
        10,
        1,
        |node| known(node.queue.map(|(len, limit)| format!("{len}/{limit}"))),
        |a, b| number(fullness(a), fullness(b)),
    ),
    column(
        "CPU",
        5,
        7,
        |node| known(node.cpu.map(|share| format!("{:.0}%", share * 100.0))),
        |a, b| number(a.cpu, b.cpu),
    ),
    column(
        "1ST BYTE",
        9,
        8,
        |node| time(node.first_byte_us.map(|us| us as f64)),
        |a, b| a.first_byte_us.cmp(&b.first_byte_us),
    ),
];

const fn column(
    title: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&NodeRow) -> String,
    compare: fn(&NodeRow, &NodeRow) -> Ordering,
) -> Column {
    Column { title, width, rank, cell, compare }
}

fn number(a: Option<f64>, b: Option<f64>) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn fullness(node: &NodeRow) -> Option<f64> {
    node.queue.map(|(len, limit)| f64::from(len) / f64::from(limit.max(1)))
}

/// Titles of the table of services.
pub const SERVICE: [&str; 4] = ["SERVICE", "VIPS", "REQ/S", "REQUESTS"];

pub fn service(row: &ServiceRow) -> [String; 4] {
    [row.name.clone(), row.listen.join(", "), rate(row.requests_per_s), row.requests.to_string()]
}

/// Titles of the table of latencies: the median and the 99th percentile.
pub const LATENCY: [&str; 8] =
    ["SERVICE", "POOL", "QUEUED P50", "P99", "1ST BYTE P50", "P99", "WHOLE P50", "P99"];

pub fn latency(row: &Latency) -> [String; 8] {
    let of = |quantiles: &Quantiles| [time(quantiles.p50_us), time(quantiles.p99_us)];
    let [[a, b], [c, d], [e, f]] = [of(&row.queued), of(&row.first_byte), of(&row.duration)];
    [row.service.clone(), row.pool.clone(), a, b, c, d, e, f]
}

/// Titles of the table of errors.
pub const ERROR: [&str; 3] = ["PER SECOND", "TOTAL", "ERROR"];

pub fn error(row: &ErrorRow) -> [String; 3] {
    [rate(row.per_s), row.total.to_string(), row.what.clone()]
}

/// Values of the whole switch, with their titles.
pub fn headline(view: &View) -> [(&'static str, String); 6] {
    [
        ("req/s", rate(view.requests_per_s)),
        ("resp/s", rate(view.responses.map(|responses| responses.per_s))),
        ("back", traffic(view.responses)),
        ("conns", view.flows.to_string()),
        ("waiting", view.waiting.to_string()),
        ("failed/s", rate(view.failures_per_s)),
    ]
}

/// A line for each draining node.
pub fn drains(view: &View) -> Vec<String> {
    let draining = view.nodes.iter().filter(|node| node.state == "draining");
    let line = |node: &NodeRow| match (node.flows, node.in_flight) {
        (Some(0), _) => format!("{} drains: idle, it can be stopped", node.name),
        (Some(flows), in_flight) => {
            format!("{} drains: {flows} connections left, {} in flight", node.name, known(in_flight))
        }
        (None, _) => format!("{} drains: waiting for its report", node.name),
    };
    draining.map(line).collect()
}

/// A line for each warning.
pub fn warnings(view: &View) -> Vec<String> {
    view.warnings.iter().map(|warning| format!("warning: {warning}")).collect()
}

/// The first line.
pub fn title(view: &View) -> String {
    let interfaces =
        view.interfaces.iter().map(|interface| format!("{} ({} XDP)", interface.name, interface.mode));
    let interfaces: Vec<String> = interfaces.collect();
    format!("switch, up {}, {}", duration(view.uptime_s), interfaces.join(", "))
}

/// All tables, one below the other.
pub fn plain(view: &View) -> String {
    let mut text = title(view) + "\n";
    let headline = headline(view).map(|(name, value)| format!("{value} {name}"));
    text += &format!("{}\n\n", headline.join(", "));
    text += &table(&SERVICE, 2, view.services.iter().map(|row| service(row).to_vec()));
    let titles = COLUMNS.map(|column| column.title);
    let nodes = view.nodes.iter().map(|row| COLUMNS.iter().map(|column| (column.cell)(row)).collect());
    text += &format!("\n{}", table(&titles, 2, nodes));
    if !view.switches.is_empty() {
        text += &format!("\n{}", switches(&view.switches, view.nodes.len()));
    }
    if let Some(latencies) = &view.latencies {
        text += &format!("\n{}", table(&LATENCY, 2, latencies.iter().map(|row| latency(row).to_vec())));
    }
    if !view.errors.is_empty() {
        let rows = view.errors.iter().map(error).map(|[per_s, total, what]| vec![what, per_s, total]);
        text += &format!("\n{}", table(&["ERROR", "PER SECOND", "TOTAL"], 1, rows));
    }
    for line in drains(view).into_iter().chain(warnings(view)) {
        text += &format!("\n{line}");
    }
    text.trim_end().to_owned() + "\n"
}

/// A table; the first `texts` columns are texts, the others numbers.
fn table(titles: &[&str], texts: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let align = |index| if index < texts { Align::Left } else { Align::Right };
    let columns: Vec<_> = titles.iter().enumerate().map(|(index, title)| (*title, align(index))).collect();
    let mut table = Table::new(&columns);
    rows.for_each(|row| table.row(row));
    table.render(0)
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| value.to_string())
}

/// A rate per second.
pub fn rate(per_s: Option<f64>) -> String {
    known(per_s.map(|per_s| match per_s {
        0.0 => "0".to_owned(),
        below if below < 10.0 => format!("{per_s:.1}"),
        _ => format!("{per_s:.0}"),
    }))
}

/// A rate in the units of networks.
pub fn traffic(responses: Option<Rate>) -> String {
    known(responses.map(|responses| {
        let bits = responses.bytes_per_s * 8.0;
        let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
        match units.into_iter().find(|(size, _)| bits >= *size) {
            Some((size, unit)) => format!("{} {unit}", precise(bits / size)),
            None => format!("{bits:.0} bit/s"),
        }
    }))
}

/// A time in microseconds.
pub fn time(us: Option<f64>) -> String {
    known(us.map(|us| match us {
        below if below < 1e3 => format!("{} us", precise(us)),
        below if below < 1e6 => format!("{} ms", precise(us / 1e3)),
        _ => format!("{} s", precise(us / 1e6)),
    }))
}

/// A number with three digits.
fn precise(number: f64) -> String {
    match number {
        below if below < 10.0 => format!("{number:.2}"),
        below if below < 100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}
