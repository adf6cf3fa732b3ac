//! The papers' experiments and a few questions of our own, each a series of scenarios.

mod plan;
mod policies;
mod split;
mod tls;

pub use plan::{Needs, Plan, plan};
pub use policies::{Mix, Policies, policies};
pub use split::{Split, split};
pub use tls::{Models, tls};

use std::fmt::Write as _;

use crate::{Estimate, Outcome, Scenario, ScenarioError, estimate, simulate};

/// Called with what is being run, when it begins and whenever a replication is done.
pub type Progress<'a> = &'a (dyn Fn(&str, Step) + Sync);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has so many replications.
    Begins(u32),
    /// One more is done.
    Done,
}

/// One scenario of a series.
#[derive(Clone, Debug)]
pub struct Point {
    /// Which curve it belongs to.
    pub series: String,
    /// Its place on the axis.
    pub x: u32,
    /// One for each replication.
    pub outcomes: Vec<Outcome>,
}

impl Point {
    fn run(
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

    /// The mean of one number.
    pub fn estimate(&self, number: impl Fn(&Outcome) -> f64) -> Estimate {
        estimate(&self.outcomes, number)
    }

    /// Whether more came than could be answered.
    pub fn is_saturated(&self) -> bool {
        self.outcomes.iter().any(Outcome::is_saturated)
    }
}

/// What a series has shown.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the axis is, and what more there is to say of it behind a comma.
    pub axis: &'static str,
    /// Every scenario.
    pub points: Vec<Point>,
    /// The tables and what they say, as Markdown.
    pub markdown: String,
    /// What may be drawn: its name, and a number of each point.
    pub curves: Vec<Curves>,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Behind the report's name in that of the file; may be empty.
    pub name: &'static str,
    /// What is up, with its unit.
    pub title: &'static str,
    /// Whether that spans several powers of ten.
    pub is_logarithmic: bool,
    /// All of them.
    pub curves: Vec<Curve>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Of its series.
    pub name: String,
    /// By their places on the axis.
    pub points: Vec<(u32, f64)>,
}

impl Report {
    /// Every number of every point: means and half the widths of their intervals.
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
fn curve(points: &[Point], series: &str, number: impl Fn(&Point) -> Option<f64>) -> Curve {
    let of_series = points.iter().filter(|point| point.series == series);
    let points = of_series.filter_map(|point| Some((point.x, number(point)?))).collect();
    Curve { name: series.to_owned(), points }
}

/// Each once, in the order in which they come first.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// A Markdown table with a line for each place and a column for each series.
fn table(title: &str, points: &[Point], cell: impl Fn(&Point) -> String) -> String {
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

/// A time with its interval, in milliseconds; "saturated" if it says only how long the run was.
fn milliseconds(point: &Point, number: impl Fn(&Outcome) -> f64) -> String {
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

/// Three digits that say something.
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
