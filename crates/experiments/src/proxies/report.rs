//! The results as a table and as a CSV file.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Results, Sample, WORKLOADS, Workload};
use crate::report::{
    Report, cpu_time, header, latency, median, micros, ratio, reached, repeated, row, shown, thousands,
    with_extremes,
};
use crate::statistics::Spread;
use crate::systems::System;

/// Greatest ratio of Switchback's CPU time per request to HAProxy's: for small responses and for large ones, on kept
/// connections.
const CPU_TARGETS: [(Workload, &str, f64); 2] =
    [(WORKLOADS[0], "1/4", 1.0 / 4.0), (WORKLOADS[2], "1/20", 1.0 / 20.0)];

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 12] = [
    ("Workload", false),
    ("System", false),
    ("Requests/s (min–max)", true),
    ("÷ HAProxy's", true),
    ("MB/s", true),
    ("p50", true),
    ("p99 (min–max)", true),
    ("Errors", true),
    ("CPU µs/request (min–max)", true),
    ("÷ HAProxy's", true),
    ("of it process", true),
    ("of it receive", true),
];

/// The repetitions of one load on one system.
struct Group<'a> {
    workload: Workload,
    system: System,
    samples: Vec<&'a Sample>,
}

impl Group<'_> {
    fn spread(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| value(sample)))
    }

    fn requests_per_s(&self) -> Option<Spread> {
        self.spread(|sample| Some(sample.load.requests_per_s))
    }

    fn latency_us(&self, which: impl Fn(&Sample) -> Duration) -> Option<Spread> {
        self.spread(|sample| (sample.load.requests > 0).then(|| micros(which(sample))))
    }

    /// CPU time of the program, of receive work, and their sum.
    fn cpu_us(&self) -> [Option<Spread>; 3] {
        [0, 1, 2].map(|part| self.spread(|sample| Some(sample.cpu_us_per_request()?[part])))
    }

    fn errors(&self) -> u64 {
        self.samples.iter().map(|sample| sample.load.errors.total()).sum()
    }
}

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,workload,system,requests,requests_per_s,bytes_per_s,p50_us,p99_us,\
        connect_errors,read_errors,write_errors,timeouts,status_errors,\
        process_us_per_request,receive_us_per_request,cpu_us_per_request";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, workload, system, load, .. } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", workload.name), system.to_string()];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(format!("{:.0}", load.bytes_per_s));
        cells.extend([load.p50, load.p99].map(|latency| format!("{:.0}", micros(latency))));
        let errors = load.errors;
        let errors = [errors.connect, errors.read, errors.write, errors.timeout, errors.status];
        cells.extend(errors.map(|count| count.to_string()));
        let cpu = sample.cpu_us_per_request().map(|cpu| cpu.map(|time| format!("{time:.3}")));
        cells.extend(cpu.unwrap_or_default());
        cells
    }

    /// A line for each workload and system.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        let systems: BTreeSet<System> = self.samples.iter().map(|sample| sample.system).collect();
        for workload in WORKLOADS {
            let reference = self.group(workload, System::Haproxy);
            for &system in &systems {
                let group = self.group(workload, system);
                if !group.samples.is_empty() {
                    text += &row(&cells(&group, &reference));
                }
            }
        }
        text
    }

    /// The method, and whether the targets are reached.
    fn how(&self) -> String {
        let targets: String = self.targets().iter().map(|target| format!("- {target}\n")).collect();
        format!("{}\nErrors are those of all repetitions together.\n\n{targets}", repeated(self))
    }
}

impl Results {
    /// The targets, and whether they are reached.
    fn targets(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (workload, part, at_most) in CPU_TARGETS {
            let cpu = |system| self.group(workload, system).cpu_us()[2];
            if let (Some(ours), Some(theirs)) = (cpu(System::Switchback), cpu(System::Haproxy)) {
                let Workload { name, .. } = workload;
                let ratio = ours.median / theirs.median;
                let reached = reached(ratio <= at_most, ours.max <= at_most * theirs.min);
                let target = format!("CPU for each request, {name}, at most {part} of HAProxy's");
                lines.push(format!("{target}: {ratio:.3}, {reached}."));
            }
        }
        for workload in WORKLOADS {
            let rate = |system| self.group(workload, system).requests_per_s();
            if let (Some(ours), Some(theirs)) = (rate(System::Switchback), rate(System::Haproxy)) {
                let Workload { name, .. } = workload;
                let ratio = ours.median / theirs.median;
                let reached = reached(ratio > 1.0, ours.min > theirs.max);
                lines.push(format!("Requests/s, {name}, above HAProxy's: {ratio:.2} times, {reached}."));
            }
        }
        lines
    }

    fn group(&self, workload: Workload, system: System) -> Group<'_> {
        let wanted = |sample: &&Sample| sample.workload == workload && sample.system == system;
        Group { workload, system, samples: self.samples.iter().filter(wanted).collect() }
    }
}

fn cells(group: &Group<'_>, reference: &Group<'_>) -> [String; COLUMNS.len()] {
    let rate = group.requests_per_s();
    let [process, receive, cpu] = group.cpu_us();
    let ratio_of = |ours, theirs| shown(ratio(ours, theirs), |ratio| format!("{ratio:.2}"));
    [
        group.workload.name.to_owned(),
        group.system.to_string(),
        with_extremes(rate, thousands),
        ratio_of(rate, reference.requests_per_s()),
        median(group.spread(|sample| Some(sample.load.bytes_per_s / 1e6)), |rate| format!("{rate:.1}")),
        median(group.latency_us(|sample| sample.load.p50), latency),
        with_extremes(group.latency_us(|sample| sample.load.p99), latency),
        group.errors().to_string(),
        with_extremes(cpu, cpu_time),
        ratio_of(cpu, reference.cpu_us()[2]),
        median(process, cpu_time),
        median(receive, cpu_time),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuTimes;
    use crate::fixtures;
    use crate::wrk::{Errors, LoadResult};

    /// HAProxy and Switchback three times each with small responses; a node once.
    fn results() -> Results {
        let sample = |repetition: u32, system, requests: u64, process_us: u64, receive_us: u64| Sample {
            repetition,
            workload: WORKLOADS[0],
            system,
            load: LoadResult {
                bytes_per_s: 2_500_000.0,
                p50: Duration::from_micros(399),
                p99: Duration::from_micros(1500 + u64::from(repetition) * 100),
                errors: Errors { timeout: u64::from(repetition == 2), ..Errors::default() },
                ..fixtures::load(requests, requests as f64 / 2.0)
            },
            cpu: (system != System::Direct).then(|| CpuTimes {
                process: Duration::from_micros(process_us * requests),
                receive: Duration::from_micros(receive_us * requests),
            }),
        };
        let samples = vec![
            sample(1, System::Direct, 40_000, 0, 0),
            sample(1, System::Haproxy, 20_000, 10, 6),
            sample(1, System::Switchback, 30_000, 1, 1),
            sample(2, System::Haproxy, 24_000, 12, 6),
            sample(2, System::Switchback, 31_000, 1, 2),
            sample(3, System::Haproxy, 22_000, 14, 6),
            sample(3, System::Switchback, 36_000, 2, 2),
        ];
        fixtures::results(3, samples)
    }

    #[test]
    fn the_table_has_medians_extremes_and_ratios() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 5, "{table}");
        assert!(rows.iter().all(|row| row.matches('|').count() == COLUMNS.len() + 1), "{table}");
        let of = "| 100 B, keep-alive |";
        let expected = [
            "direct | 20,000 (20,000–20,000) | 1.82 | 2.5 | 399 µs | 1.6 ms (1.6 ms–1.6 ms) | 0 | – | – | – | – |",
            "HAProxy | 11,000 (10,000–12,000) | 1.00 | 2.5 | 399 µs | 1.7 ms (1.6 ms–1.8 ms) | 1 | 18.0 (16.0–20.0) | 1.00 | 12.0 | 6.0 |",
            "Switchback | 15,500 (15,000–18,000) | 1.41 | 2.5 | 399 µs | 1.7 ms (1.6 ms–1.8 ms) | 1 | 3.0 (2.0–4.0) | 0.17 | 1.0 | 2.0 |",
        ];
        for (row, expected) in std::iter::zip(&rows[2..], expected) {
            assert_eq!(*row, format!("{of} {expected}"));
        }
    }

    #[test]
    fn the_markdown_says_what_is_reached_and_with_what() {
        let text = results().markdown();
        assert!(text.contains("3 repetitions of 2 s each"), "{text}");
        assert!(text.contains(
            "- CPU for each request, 100 B, keep-alive, at most 1/4 of HAProxy's: 0.167, reached."
        ));
        assert!(
            text.contains("- Requests/s, 100 B, keep-alive, above HAProxy's: 1.41 times, reached."),
            "{text}"
        );
        assert!(text.contains("| Kernel | Linux 6.18 |"), "{text}");
        let mut shaky = results();
        shaky.samples[1].load.requests_per_s = 15_001.0;
        assert!(shaky.markdown().contains("reached by the medians, not by the extremes."));
        let mut slow = results();
        slow.samples.retain(|sample| sample.system != System::Switchback);
        assert!(!slow.markdown().contains("reached"), "nothing measured, nothing claimed");
    }

    #[test]
    fn the_file_has_every_measurement() {
        let csv = results().csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 8);
        assert_eq!(lines[1], "1,\"100 B, keep-alive\",direct,40000,20000.00,2500000,399,1600,0,0,0,0,0,,,");
        assert_eq!(
            lines[4],
            "2,\"100 B, keep-alive\",HAProxy,24000,12000.00,2500000,399,1700,0,0,0,1,0,12.000,6.000,18.000"
        );
        // The name of the workload has a comma, in quotes.
        assert!(lines[1..].iter().all(|line| line.split(',').count() == lines[0].split(',').count() + 1));
    }
}
