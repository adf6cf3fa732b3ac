//! The results as a table and as a CSV file.

use std::collections::BTreeSet;

use super::{Measured, Rate, Results, Sample, greatest_per_s, milliseconds};
use crate::open_loop::Connections;
use crate::report::{Report, header, median, reached, repeated, row, thousands, with_extremes};
use crate::statistics::Spread;
use crate::systems::System;

/// Greatest ratio of Switchback's p99 to that of the direct way.
const TARGET: f64 = 1.5;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 10] = [
    ("Rate", false),
    ("System", false),
    ("Greatest connections/s (min–max)", true),
    ("Begun/s", true),
    ("p50 (min–max)", true),
    ("p99 (min–max)", true),
    ("÷ direct's, round by round (min–max)", true),
    ("p99.9 (min–max)", true),
    ("Begun late, p99", true),
    ("Failures", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,load,system,connections,connections_per_s,errors,\
        p50_us,p99_us,p999_us,late_p50_us,late_p99_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, system, measured } = sample;
        let micros = |ms: Option<f64>| ms.map(|ms| format!("{:.0}", ms * 1e3)).unwrap_or_default();
        let (load, connections, per_s, errors, times) = match measured {
            Measured::Greatest(load) => {
                let [p50, p99] = [load.p50, load.p99].map(|time| time.as_micros().to_string());
                let times = [p50, p99, String::new(), String::new(), String::new()];
                ("greatest".to_owned(), load.requests, load.requests_per_s, load.errors.total(), times)
            }
            Measured::Latency { rate, per_s, found } => {
                let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| micros(found.quantile_ms(part)));
                let [late_p50, late_p99] = [0.5, 0.99].map(|part| micros(found.delay_ms(part)));
                let times = [p50, p99, p999, late_p50, late_p99];
                let begun = found.delays_ms.len() as u64;
                (rate.to_string(), begun, *per_s, found.failures.total(), times)
            }
        };
        let mut cells = vec![repetition.to_string(), load, system.to_string(), connections.to_string()];
        cells.extend([format!("{per_s:.2}"), errors.to_string()]);
        cells.extend(times);
        cells
    }

    /// A line for each rate and system.
    fn table(&self) -> String {
        let systems: BTreeSet<System> = self.samples.iter().map(|sample| sample.system).collect();
        let mut text = header(&COLUMNS);
        for rate in Rate::ALL {
            for &system in &systems {
                text += &row(&self.cells(rate, system));
            }
        }
        text
    }

    /// The method, and whether the target is reached.
    fn how(&self) -> String {
        let what = "Times are from a connection's first packet to its end. Connections begin by a Poisson process, whose seed \
            is the number of the repetition; late if the client waits for a CPU, which the times do not include. Failures are \
            those of all repetitions together. The greatest rate of the direct way is that of one node.";
        let lines: String = self.findings().iter().map(|line| format!("- {line}\n")).collect();
        format!("{}\n{what}\n\n{lines}", repeated(self))
    }
}

impl Results {
    /// Whether the target is reached, and how late the client was.
    fn findings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(ratios) = self.ratios(Rate::Common, System::Switchback) {
            let reached = reached(ratios.median <= TARGET, ratios.max <= TARGET);
            let target =
                format!("p99 at {} greatest rate, at most {TARGET} times the direct way's", Rate::Common);
            lines.push(format!("{target}: {:.2}, {reached}.", ratios.median));
        }
        if let Some(delays) = Spread::of(self.latencies().filter_map(|(.., found)| found.delay_ms(0.99))) {
            let [median, most] = [delays.median, delays.max].map(milliseconds);
            lines.push(format!(
                "Of each load, 99 % began at most {median} late (median of all loads; most: {most})."
            ));
        }
        lines
    }

    /// The measurements at given rates.
    fn latencies(&self) -> impl Iterator<Item = (Rate, System, f64, &Connections)> {
        self.samples.iter().filter_map(|sample| match &sample.measured {
            Measured::Greatest(_) => None,
            Measured::Latency { rate, per_s, found } => Some((*rate, sample.system, *per_s, found)),
        })
    }

    fn group(&self, rate: Rate, system: System) -> impl Iterator<Item = (f64, &Connections)> {
        let wanted = self.latencies().filter(move |(of, by, ..)| (*of, *by) == (rate, system));
        wanted.map(|(_, _, per_s, found)| (per_s, found))
    }

    fn spread(
        &self,
        rate: Rate,
        system: System,
        value: impl Fn(&Connections) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.group(rate, system).filter_map(|(_, found)| value(found)))
    }

    /// The ratio of each round, a system's p99 to the direct way's.
    fn ratios(&self, rate: Rate, system: System) -> Option<Spread> {
        let p99 = |system| self.group(rate, system).map(|(_, found)| found.quantile_ms(0.99));
        Spread::of_ratios(p99(system), p99(System::Direct))
    }

    fn cells(&self, rate: Rate, system: System) -> [String; COLUMNS.len()] {
        let quantile = |system, part| self.spread(rate, system, |found| found.quantile_ms(part));
        let begun = Spread::of(self.group(rate, system).map(|(per_s, _)| per_s));
        let failures: u64 = self.group(rate, system).map(|(_, found)| found.failures.total()).sum();
        [
            rate.to_string(),
            system.to_string(),
            with_extremes(greatest_per_s(&self.samples, system), thousands),
            median(begun, thousands),
            with_extremes(quantile(system, 0.5), milliseconds),
            with_extremes(quantile(system, 0.99), milliseconds),
            with_extremes(self.ratios(rate, system), |ratio| format!("{ratio:.2}")),
            with_extremes(quantile(system, 0.999), milliseconds),
            median(self.spread(rate, system, |found| found.delay_ms(0.99)), milliseconds),
            failures.to_string(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::open_loop::Failures;

    /// The direct way and Switchback in two repetitions.
    fn results() -> Results {
        let mut samples = Vec::new();
        for repetition in 1..=2 {
            for (system, base, per_s) in [(System::Direct, 0.4, 9_000.0), (System::Switchback, 0.5, 8_000.0)]
            {
                let load = fixtures::load(16_000, per_s + f64::from(repetition));
                samples.push(Sample { repetition, system, measured: Measured::Greatest(load) });
                for rate in Rate::ALL {
                    let found = Connections {
                        times_ms: (0..100).map(|number| base * f64::from(repetition + number / 98)).collect(),
                        delays_ms: vec![0.06; 101],
                        failures: Failures { reset: 1, ..Failures::default() },
                    };
                    let per_s = if rate == Rate::Common { 4_000.75 } else { per_s / 2.0 };
                    let measured = Measured::Latency { rate, per_s, found };
                    samples.push(Sample { repetition, system, measured });
                }
            }
        }
        fixtures::results(2, samples)
    }

    #[test]
    fn the_table_has_medians_and_the_ratio_to_the_direct_way() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 6, "{table}");
        let expected = [
            "half of Switchback's | direct | 9,002 (9,001–9,002) | 4,001 | 600 µs (400 µs–800 µs) | 1.0 ms (800 µs–1.2 ms) | 1.00 (1.00–1.00) | 1.0 ms (800 µs–1.2 ms) | 60 µs | 2 |",
            "half of Switchback's | Switchback | 8,002 (8,001–8,002) | 4,001 | 750 µs (500 µs–1.0 ms) | 1.2 ms (1.0 ms–1.5 ms) | 1.25 (1.25–1.25) | 1.2 ms (1.0 ms–1.5 ms) | 60 µs | 2 |",
            "half of its own | direct | 9,002 (9,001–9,002) | 4,500 | 600 µs (400 µs–800 µs) | 1.0 ms (800 µs–1.2 ms) | 1.00 (1.00–1.00) | 1.0 ms (800 µs–1.2 ms) | 60 µs | 2 |",
        ];
        for (row, expected) in std::iter::zip(&rows[2..], expected) {
            assert_eq!(*row, format!("| {expected}"));
        }
    }

    #[test]
    fn the_rates_are_halves_of_medians() {
        let samples = results().samples;
        let rate = |rate: Rate, system| rate.per_s(&samples, system).map_err(|error| error.to_string());
        assert_eq!(rate(Rate::Common, System::Direct), Ok(4_000.75));
        assert_eq!(rate(Rate::Own, System::Direct), Ok(4_500.75));
        assert_eq!(rate(Rate::Own, System::Nginx), Err("nginx has answered nothing".to_owned()));
    }

    #[test]
    fn the_markdown_says_whether_the_target_is_reached() {
        let text = results().markdown();
        let target = "- p99 at half of Switchback's greatest rate, at most 1.5 times the direct way's: 1.25, \
                      reached.\n";
        assert!(text.contains(target), "{text}");
        assert!(text.contains("99 % began at most 60 µs late (median of all loads; most: 60 µs)."), "{text}");
        let mut slow = results();
        slow.samples.retain(|sample| sample.system != System::Switchback);
        assert!(!slow.markdown().contains("reached"), "nothing measured, nothing claimed");
    }

    #[test]
    fn the_file_has_every_measurement() {
        let csv = results().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 2 * 3);
        assert_eq!(lines[1], "1,greatest,direct,16000,9001.00,0,4000,9000,,,");
        assert_eq!(lines[5], "1,half of Switchback's,Switchback,101,4000.75,1,500,1000,1000,60,60");
        assert!(lines.iter().all(|line| line.split(',').count() == lines[0].split(',').count()));
    }
}
