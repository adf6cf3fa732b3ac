//! Results of a series, as Markdown, CSV and curves.

use std::fmt::Write as _;

use crate::{Estimate, Outcome, Scenario, ScenarioError, estimate, simulate};

/// Callback for the start of a scenario and each finished replication.
pub type Progress<'a> = &'a (dyn Fn(&str, Step) + Sync);

/// Progress of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Number of replications of the series.
    Begins(u32),
    /// A replication is done.
    Done,
}

/// One scenario of a series.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of its curve.
    pub series: String,
    /// Its value on the axis.
    pub x: u32,
    /// Outcome of each replication.
    pub outcomes: Vec<Outcome>,
}

impl Point {
    /// Simulates the scenario.
    pub(super) fn run(
        series: &str,
        x: u32,
        scenario: &Scenario,
        progress: Progress<'_>,
    ) -> Result<Point, ScenarioError> {
        let what = format!("{series}, {x}");
        progress(&what, Step::Begins(scenario.replications));
        let outcomes = simulate(scenario, || progress(&what, Step::Done))?;
        Ok(Point { series: series.to_owned(), x, outcomes })
    }

    /// The mean of one value over the replications.
    pub fn estimate(&self, number: impl Fn(&Outcome) -> f64) -> Estimate {
        estimate(&self.outcomes, number)
    }

    /// Whether any replication was saturated.
    pub fn is_saturated(&self) -> bool {
        self.outcomes.iter().any(Outcome::is_saturated)
    }
}

/// Results of a series.
#[derive(Clone, Debug)]
pub struct Report {
    /// Title of the axis.
    pub axis: &'static str,
    /// Results of each scenario.
    pub points: Vec<Point>,
    /// Tables and text, as Markdown.
    pub markdown: String,
    /// Plots.
    pub curves: Vec<Curves>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Suffix of the file's name; may be empty.
    pub name: &'static str,
    /// Title of the plot.
    pub title: String,
    /// Title of the vertical axis, with its unit.
    pub y_title: &'static str,
    /// Whether the vertical axis is logarithmic.
    pub is_logarithmic: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve of a plot.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name of its series.
    pub name: String,
    /// Values by their positions on the axis.
    pub points: Vec<(u32, f64)>,
}

impl Report {
    /// All values of all points as CSV: means, and half the widths of their intervals.
    pub fn csv(&self) -> String {
        let names = Outcome::default().numbers().map(|(name, _)| format!("{name},{name}_half")).join(",");
        let mut text = format!(
            "series,{},replications,{names}\n",
            self.axis.split(',').next().unwrap_or_default().replace(' ', "_")
        );
        for point in &self.points {
            let _ = write!(text, "\"{}\",{},{}", point.series, point.x, point.outcomes.len());
            for index in 0..Outcome::default().numbers().len() {
                let Estimate { mean, half } = point.estimate(|outcome| outcome.numbers()[index].1);
                let _ = write!(
                    text,
                    ",{mean},{}",
                    if half.is_finite() { half.to_string() } else { String::new() }
                );
            }
            text.push('\n');
        }
        text
    }
}

/// The points of one series as a curve.
pub(super) fn curve(points: &[Point], series: &str, number: impl Fn(&Point) -> Option<f64>) -> Curve {
    let of_series = points.iter().filter(|point| point.series == series);
    let points = of_series.filter_map(|point| Some((point.x, number(point)?))).collect();
    Curve { name: series.to_owned(), points }
}

/// Distinct items, in the order of their first occurrence.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// A Markdown table with a line for each position and a column for each series.
pub(super) fn table(title: &str, points: &[Point], cell: impl Fn(&Point) -> String) -> String {
    let names = distinct(points.iter().map(|point| &*point.series));
    let mut text =
        format!("| {title} | {} |\n| ---: |{}\n", names.join(" | "), " ---: |".repeat(names.len()));
    for x in distinct(points.iter().map(|point| point.x)) {
        let cells = names.iter().map(|name| {
            let point = points.iter().find(|point| point.x == x && point.series == *name);
            point.map_or_else(|| "–".to_owned(), &cell)
        });
        let _ = writeln!(text, "| {x} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// A time with its interval, in milliseconds; "saturated" if the cluster was.
pub(super) fn milliseconds(point: &Point, number: impl Fn(&Outcome) -> f64) -> String {
    if point.is_saturated() {
        return "saturated".to_owned();
    }
    let Estimate { mean, half } = point.estimate(number);
    with_half(mean * 1e3, half * 1e3)
}

/// A number with as many digits as its interval allows.
fn with_half(mean: f64, half: f64) -> String {
    if !half.is_finite() {
        return digits(mean);
    }
    format!("{} ± {}", digits(mean), digits(half))
}

/// A number with three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.001 => format!("{value:.1e}"),
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
