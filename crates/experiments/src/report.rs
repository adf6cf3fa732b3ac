//! The presentation of results: a table, a CSV file with every measurement, a plot.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use switchback_lab::{Doing, Result};
use switchback_plot::Plot;

use super::statistics::Spread;
use super::{Results, plot_error};
pub(super) use switchback_plot::thousands;

/// The cell of a missing measurement.
pub(super) const ABSENT: &str = "–";

/// The parts of a report that depend on the experiment.
pub trait Report {
    /// One load, measured.
    type Sample;
    /// The first line of the CSV file.
    const CSV_TITLES: &'static str;

    /// The cells of one measurement in the CSV file, empty where not measured.
    fn csv_cells(sample: &Self::Sample) -> Vec<String>;

    /// The measurements as a Markdown table.
    fn table(&self) -> String;

    /// The paper's figures beside ours, with the reasons for differences; empty without a paper.
    fn beside_the_paper(&self) -> String {
        String::new()
    }

    /// The method and the targets, as Markdown.
    fn how(&self) -> String;

    /// What the measurements show and must not: the command fails with it.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Input of other commands, in TOML.
    fn toml(&self) -> Option<String> {
        None
    }

    /// The plot.
    fn plot(&self) -> Option<Plot> {
        None
    }
}

impl<Sample> Results<Sample>
where
    Results<Sample>: Report<Sample = Sample>,
{
    /// Every single measurement, as CSV with a line of titles.
    pub fn csv(&self) -> String {
        let lines = self.samples.iter().map(|sample| Self::csv_cells(sample).join(",") + "\n");
        format!("{}\n{}", Self::CSV_TITLES, lines.collect::<String>())
    }

    /// The text for the terminal: the table, and the comparison with the paper.
    pub fn summary(&self) -> String {
        paragraphs(&[self.table(), self.beside_the_paper()])
    }

    /// The report without the plot, as Markdown: table, comparison with the paper, method, machine.
    pub fn markdown(&self) -> String {
        paragraphs(&[self.table(), self.beside_the_paper(), self.how(), self.machine.table()])
    }

    /// Writes the files, called `name` with an extension for each kind, and returns their paths.
    pub fn write(&self, directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
        let mut texts = vec![("csv", self.csv()), ("md", self.markdown())];
        texts.extend(self.toml().map(|text| ("toml", text)));
        let plot = self.plot();
        if let Some(plot) = &plot {
            texts.push(("svg", plot.svg().map_err(plot_error)?));
        }
        fs::create_dir_all(directory).doing(|| format!("create {}", directory.display()))?;
        let path = |ending: &str| directory.join(format!("{name}.{ending}"));
        let mut written = Vec::new();
        for (ending, text) in texts {
            let path = path(ending);
            fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
            written.push(path);
        }
        if let Some(plot) = plot {
            plot.png(&path("png")).map_err(plot_error)?;
            written.push(path("png"));
        }
        Ok(written)
    }
}

/// The non-empty texts, separated by empty lines.
fn paragraphs(texts: &[String]) -> String {
    let texts = texts.iter().map(|text| text.trim_end()).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// The first lines of a Markdown table: a title for each column, with true for numbers.
pub(super) fn header<const N: usize>(columns: &[(&str, bool); N]) -> String {
    let titles = row(&columns.map(|(title, _)| title.to_owned()));
    titles + &row(&columns.map(|(_, number)| if number { "---:" } else { "---" }.to_owned()))
}

pub(super) fn row<const N: usize>(cells: &[String; N]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

pub(super) fn shown<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), show)
}

pub(super) fn with_extremes(spread: Option<Spread>, show: fn(f64) -> String) -> String {
    shown(spread, |Spread { min, median, max }| format!("{} ({}–{})", show(median), show(min), show(max)))
}

pub(super) fn median(spread: Option<Spread>, show: fn(f64) -> String) -> String {
    shown(spread, |spread| show(spread.median))
}

/// The ratio of the medians.
pub(super) fn ratio(ours: Option<Spread>, theirs: Option<Spread>) -> Option<f64> {
    let (ours, theirs) = (ours?.median, theirs?.median);
    (theirs > 0.0).then(|| ours / theirs)
}

/// A duration in microseconds.
pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Text of a latency in microseconds.
pub(super) fn latency(micros: f64) -> String {
    if micros < 1000.0 { format!("{micros:.0} µs") } else { format!("{:.1} ms", micros / 1000.0) }
}

/// Text of a CPU time in microseconds, without the unit.
pub(super) fn cpu_time(micros: f64) -> String {
    match micros {
        ..100.0 => format!("{micros:.1}"),
        100.0..1000.0 => format!("{micros:.0}"),
        _ => thousands(micros),
    }
}

/// The verdict on a target. It is in doubt if the worst repetition misses it beside the other's best.
pub(super) fn reached(by_medians: bool, by_extremes: bool) -> &'static str {
    match (by_medians, by_extremes) {
        (true, true) => "reached",
        (true, false) => "reached by the medians, not by the extremes",
        (false, _) => "**not reached**",
    }
}

/// A sentence on repetitions and durations.
pub(super) fn repeated<Sample>(results: &Results<Sample>) -> String {
    let Results { seconds, repetitions, .. } = results;
    format!("{repetitions} repetitions of {seconds} s each: medians and, in brackets, the extremes.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_are_good() {
        assert_eq!([399.4, 1050.0].map(latency), ["399 µs", "1.1 ms"]);
        assert_eq!([4.26, 93.0, 412.4, 2065.0].map(cpu_time), ["4.3", "93.0", "412", "2,065"]);
    }

    #[test]
    fn paragraphs_that_say_nothing_leave_no_gap() {
        let texts = ["| a |\n", "", "how\n\n", "with"].map(str::to_owned);
        assert_eq!(paragraphs(&texts), "| a |\n\nhow\n\nwith\n");
    }
}
