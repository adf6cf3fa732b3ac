//! The results as a table and as a CSV file.

use switchback_plot::Plot;

use super::{Dispatch, PAPER, PaperRow, Results, Sample};
use crate::report::{ABSENT, Report, header, ratio, row, shown, thousands, with_extremes};
use crate::statistics::Spread;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("Connections", true),
    ("Policy", false),
    ("Average time (min–max)", true),
    ("÷ random's", true),
    ("Paper", true),
    ("÷ random's", true),
    ("Median time (min–max)", true),
    ("p99", true),
    ("Failures", true),
    ("Stalls", true),
    ("ListenOverflows", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,connections,policy,answered,average_ms,p50_ms,p99_ms,max_ms,timeouts,\
        refused,reset,other_errors,stalls,listen_overflows";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, connections, dispatch, load, listen_overflows } = sample;
        let mut cells = vec![repetition.to_string(), connections.to_string(), format!("\"{dispatch}\"")];
        cells.push(load.times_ms.len().to_string());
        let times = [load.average_ms(), load.quantile_ms(0.5), load.quantile_ms(0.99), load.quantile_ms(1.0)];
        cells.extend(times.map(|ms| ms.map(|ms| format!("{ms:.3}")).unwrap_or_default()));
        let failures = load.failures;
        let failures = [failures.timeout, failures.refused, failures.reset, failures.other];
        cells.extend(failures.map(|count| count.to_string()));
        cells.extend([load.stalls(), *listen_overflows].map(|count| count.to_string()));
        cells
    }

    /// A line for each number of connections and dispatcher, with the paper's figures.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for connections in self.connections() {
            for dispatch in Dispatch::ALL {
                text += &row(&self.cells(connections, dispatch));
            }
        }
        text
    }

    fn how(&self) -> String {
        let Results { seconds, repetitions, .. } = self;
        format!(
            "{repetitions} repetitions, in which all connections begin within {seconds} s: medians and, in brackets, the \
             extremes. Failures, stalls (above 200 ms) and ListenOverflows are those of all repetitions together."
        )
    }

    fn plot(&self) -> Option<Plot> {
        Some(super::plot::plot(self))
    }
}

impl Results {
    /// The measured numbers of connections, in order.
    pub(super) fn connections(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.samples.iter().map(|sample| sample.connections).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The average connection time of the repetitions, in milliseconds.
    pub(super) fn average_ms(&self, connections: u32, dispatch: Dispatch) -> Option<Spread> {
        Spread::of(self.group(connections, dispatch).filter_map(|sample| sample.load.average_ms()))
    }

    fn group(&self, connections: u32, dispatch: Dispatch) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.connections == connections && sample.dispatch == dispatch)
    }

    fn cells(&self, connections: u32, dispatch: Dispatch) -> [String; COLUMNS.len()] {
        let average = self.average_ms(connections, dispatch);
        let random = self.average_ms(connections, Dispatch::Nftables);
        let quantile = |part| {
            Spread::of(self.group(connections, dispatch).filter_map(|sample| sample.load.quantile_ms(part)))
        };
        let sum =
            |count: fn(&Sample) -> u64| self.group(connections, dispatch).map(count).sum::<u64>().to_string();
        let [paper, paper_ratio] = paper(connections, dispatch);
        [
            thousands(connections.into()),
            dispatch.to_string(),
            with_extremes(average, milliseconds),
            shown(ratio(average, random), |ratio| format!("{ratio:.2}")),
            paper,
            paper_ratio,
            with_extremes(quantile(0.5), milliseconds),
            shown(quantile(0.99), |spread| milliseconds(spread.median)),
            sum(|sample| sample.load.failures.total()),
            sum(|sample| sample.load.stalls()),
            sum(|sample| sample.listen_overflows),
        ]
    }
}

/// The paper's figures: the average time, and its ratio to that of random distribution.
fn paper(connections: u32, dispatch: Dispatch) -> [String; 2] {
    let row = PAPER.iter().find(|row| row.connections == connections);
    let value = row.and_then(|PaperRow { random_ms, proposed_ms, .. }| match dispatch {
        Dispatch::Nftables => Some((*random_ms, 1.0)),
        Dispatch::Fill => Some((*proposed_ms, proposed_ms / random_ms)),
        Dispatch::BlindRandom | Dispatch::Random | Dispatch::AcceptQueue => None,
    });
    let shown = value.map(|(ms, ratio)| [milliseconds(ms), format!("{ratio:.2}")]);
    shown.unwrap_or_else(|| [ABSENT, ABSENT].map(str::to_owned))
}

fn milliseconds(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixtures;
    use crate::open_loop::{Connections, Failures};

    /// Three repetitions of the smallest and the greatest number of connections.
    pub(in super::super) fn results() -> Results {
        let mut samples = Vec::new();
        for repetition in 1..=3 {
            for connections in [8_000, 16_000] {
                for (index, dispatch) in Dispatch::ALL.into_iter().enumerate() {
                    let blind = u64::from(dispatch == Dispatch::Nftables);
                    let base = 50.0 - 10.0 * index as f64 + f64::from(repetition);
                    let load = Connections {
                        times_ms: vec![base - 1.0, base, base + 1.0, 250.0][..3 + blind as usize].to_vec(),
                        failures: Failures { timeout: blind * 2, ..Failures::default() },
                        ..Connections::default()
                    };
                    let listen_overflows = blind * 100;
                    samples.push(Sample { repetition, connections, dispatch, load, listen_overflows });
                }
            }
        }
        fixtures::results(3, samples)
    }

    #[test]
    fn the_table_has_medians_sums_and_the_papers_figures() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 12, "{table}");
        let expected = [
            "8,000 | random by nftables | 102 ms (101 ms–102 ms) | 1.00 | 24.1 ms | 1.00 | 52.0 ms (51.0 ms–53.0 ms) | 250 ms | 6 | 3 | 300 |",
            "8,000 | random, queue_limit off | 42.0 ms (41.0 ms–43.0 ms) | 0.41 | – | – | 42.0 ms (41.0 ms–43.0 ms) | 43.0 ms | 0 | 0 | 0 |",
            "8,000 | random | 32.0 ms (31.0 ms–33.0 ms) | 0.32 | – | – | 32.0 ms (31.0 ms–33.0 ms) | 33.0 ms | 0 | 0 | 0 |",
            "8,000 | fill | 22.0 ms (21.0 ms–23.0 ms) | 0.22 | 17.2 ms | 0.71 | 22.0 ms (21.0 ms–23.0 ms) | 23.0 ms | 0 | 0 | 0 |",
            "8,000 | accept-queue | 12.0 ms (11.0 ms–13.0 ms) | 0.12 | – | – | 12.0 ms (11.0 ms–13.0 ms) | 13.0 ms | 0 | 0 | 0 |",
        ];
        for (row, expected) in std::iter::zip(&rows[2..], expected) {
            assert_eq!(*row, format!("| {expected}"));
        }
        assert!(rows[7].starts_with("| 16,000 | random by nftables | "), "{table}");
    }

    #[test]
    fn the_file_has_every_measurement() {
        let csv = results().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 3 * 2 * 5);
        assert_eq!(lines[1], "1,8000,\"random by nftables\",4,100.750,51.000,250.000,250.000,2,0,0,0,1,100");
        assert_eq!(lines[0].split(',').count(), 14);
    }

    #[test]
    fn the_markdown_says_how_it_was_made() {
        let text = results().markdown();
        assert!(text.contains("3 repetitions, in which all connections begin within 2 s"), "{text}");
        assert!(text.contains("| Kernel | Linux 6.18 |"), "{text}");
    }
}
