//! The ratios to HAProxy of two runs, one beside the other.
//!
//! Machines differ, and so do days, so times and rates of two runs do not compare. The ratio of two systems that took turns on
//! one machine does, as far as the repetitions agree. Both runs are taken from the CSV files that the experiment writes.

use std::fs;
use std::path::Path;

use switchback_lab::{Doing, Error, Result};

use crate::report::{header, row, shown};
use crate::statistics::Spread;
use crate::systems::System;

/// The columns that are read, by their titles.
const WORKLOAD: &str = "workload";
const SYSTEM: &str = "system";
const REQUESTS_PER_S: &str = "requests_per_s";
const CPU_US_PER_REQUEST: &str = "cpu_us_per_request";

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 7] = [
    ("Workload", false),
    ("Requests/s ÷ HAProxy's: earlier (min–max)", true),
    ("now (min–max)", true),
    ("", false),
    ("CPU ÷ HAProxy's: earlier (min–max)", true),
    ("now (min–max)", true),
    ("", false),
];

/// Switchback's ratio to HAProxy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    /// The ratio of the medians, between the least and the greatest that the repetitions allow: Switchback's worst beside
    /// HAProxy's best, and the reverse.
    spread: Spread,
    /// Whether both have been measured more than once.
    is_repeated: bool,
}

impl Ratio {
    /// The ratio of the repetitions' values; None without values, or with HAProxy's zero.
    fn of(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
        let is_repeated = ours.len() > 1 && theirs.len() > 1;
        let (ours, theirs) = (Spread::of(ours.iter().copied())?, Spread::of(theirs.iter().copied())?);
        (theirs.min > 0.0).then(|| {
            let (min, max) = (ours.min / theirs.max, ours.max / theirs.min);
            Ratio { spread: Spread { min, median: ours.median / theirs.median, max }, is_repeated }
        })
    }
}

/// Whether a high ratio is good.
#[derive(Clone, Copy, Debug)]
enum Good {
    High,
    Low,
}

/// The mark of a ratio whose range does not overlap with the earlier one.
fn mark(earlier: Ratio, now: Ratio, good: Good) -> &'static str {
    let is_repeated = earlier.is_repeated && now.is_repeated;
    let (rises, falls) = (now.spread.min > earlier.spread.max, now.spread.max < earlier.spread.min);
    match (good, rises, falls) {
        _ if !is_repeated => "",
        (Good::High, true, _) | (Good::Low, _, true) => "better",
        (Good::High, _, true) | (Good::Low, true, _) => "worse",
        _ => "",
    }
}

/// Switchback's ratios to HAProxy with one workload.
#[derive(Clone, Debug, PartialEq)]
struct Workload {
    name: String,
    requests_per_s: Option<Ratio>,
    cpu_us_per_request: Option<Ratio>,
}

/// The ratios of a run.
#[derive(Clone, Debug)]
pub(super) struct Ratios {
    /// In the order of the file.
    workloads: Vec<Workload>,
}

impl Ratios {
    /// Reads the CSV file of a run.
    pub(super) fn read(path: &Path) -> Result<Ratios> {
        let text = fs::read_to_string(path).doing(|| format!("read {}", path.display()))?;
        Ratios::of(&text).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
    }

    /// Takes the ratios from the CSV file's text.
    pub(super) fn of(csv: &str) -> Result<Ratios, String> {
        let samples = samples(csv)?;
        let mut names: Vec<&str> = Vec::new();
        for Sample { workload, .. } in &samples {
            if !names.contains(&workload.as_str()) {
                names.push(workload);
            }
        }
        let ratio = |name: &str, value: fn(&Sample) -> Option<f64>| {
            let of = |system: System| {
                let system = system.to_string();
                let wanted =
                    samples.iter().filter(|sample| sample.workload == name && sample.system == system);
                wanted.filter_map(value).collect::<Vec<_>>()
            };
            Ratio::of(&of(System::Switchback), &of(System::Haproxy))
        };
        let workload = |name: &str| Workload {
            name: name.to_owned(),
            requests_per_s: ratio(name, |sample| Some(sample.requests_per_s)),
            cpu_us_per_request: ratio(name, |sample| sample.cpu_us_per_request),
        };
        Ok(Ratios { workloads: names.into_iter().map(workload).collect() })
    }

    /// A table of the workloads that both runs have, and a line for each other one.
    pub(super) fn beside(&self, now: &Ratios) -> String {
        let mut table = header(&COLUMNS);
        let mut left_out = String::new();
        for workload in &now.workloads {
            let reason = match self.find(&workload.name) {
                None => "not in the earlier run",
                Some(earlier) if earlier.requests_per_s.is_none() => {
                    "the earlier run lacks Switchback or HAProxy"
                }
                Some(_) if workload.requests_per_s.is_none() => "this run lacks Switchback or HAProxy",
                Some(earlier) => {
                    table += &row(&cells(earlier, workload));
                    continue;
                }
            };
            left_out += &format!("Left out: {}: {reason}.\n", workload.name);
        }
        for Workload { name, .. } in self.workloads.iter().filter(|earlier| now.find(&earlier.name).is_none())
        {
            left_out += &format!("Left out: {name}: not in this run.\n");
        }
        let how = "Ratios of the medians and, in brackets, of the extremes. One is better or worse if its range does not\n\
            overlap with the earlier one; a range takes two repetitions.\n";
        format!("{table}\n{how}{left_out}")
    }

    fn find(&self, name: &str) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }
}

fn cells(earlier: &Workload, now: &Workload) -> [String; COLUMNS.len()] {
    let of = |earlier: Option<Ratio>, now: Option<Ratio>, good| {
        let mark = earlier.zip(now).map_or("", |(earlier, now)| mark(earlier, now, good));
        [shown(earlier, text), shown(now, text), mark.to_owned()]
    };
    let [earlier_rate, rate, rate_mark] = of(earlier.requests_per_s, now.requests_per_s, Good::High);
    let [earlier_cpu, cpu, cpu_mark] = of(earlier.cpu_us_per_request, now.cpu_us_per_request, Good::Low);
    [now.name.clone(), earlier_rate, rate, rate_mark, earlier_cpu, cpu, cpu_mark]
}

fn text(ratio: Ratio) -> String {
    let Spread { min, median, max } = ratio.spread;
    let [min, median, max] = [min, median, max]
        .map(|ratio| if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") });
    format!("{median} ({min}–{max})")
}

/// What is read of a line.
struct Sample {
    workload: String,
    system: String,
    requests_per_s: f64,
    cpu_us_per_request: Option<f64>,
}

fn samples(csv: &str) -> Result<Vec<Sample>, String> {
    let mut lines = csv.lines();
    let titles = split(lines.next().unwrap_or_default());
    let column = |title: &str| {
        titles.iter().position(|cell| cell == title).ok_or_else(|| {
            format!("no column {title}; `switchback lab run proxies` writes a file with it, proxies.csv")
        })
    };
    let (workload, system) = (column(WORKLOAD)?, column(SYSTEM)?);
    let (requests_per_s, cpu_us_per_request) = (column(REQUESTS_PER_S)?, column(CPU_US_PER_REQUEST)?);
    let sample = |(number, line): (usize, &str)| {
        let mut cells = split(line);
        if cells.len() != titles.len() {
            return Err(format!("line {number} has {} cells, not {}", cells.len(), titles.len()));
        }
        let number_in = |column: usize| {
            let cell = &cells[column];
            let error = || format!("line {number}: {} is no number: {cell:?}", titles[column]);
            cell.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(error)
        };
        let rate = number_in(requests_per_s)?;
        let is_empty = cells[cpu_us_per_request].is_empty();
        let cpu = (!is_empty).then(|| number_in(cpu_us_per_request)).transpose()?;
        Ok(Sample {
            workload: std::mem::take(&mut cells[workload]),
            system: std::mem::take(&mut cells[system]),
            requests_per_s: rate,
            cpu_us_per_request: cpu,
        })
    };
    (2..).zip(lines).map(sample).collect()
}

/// The cells of a line. Those in double quotes may have commas; quotes within quotes are not written, and not read.
fn split(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            character => cells.last_mut().expect("there is a first one").push(character),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxies::WORKLOADS;

    const TITLES: &str = "repetition,workload,system,requests_per_s,timeouts,cpu_us_per_request";

    /// A file with two repetitions for each workload: its name, HAProxy's rates and CPU times, Switchback's.
    fn file(workloads: &[(&str, [[f64; 2]; 4])]) -> String {
        let mut text = format!("{TITLES}\n");
        for (name, [their_rates, their_cpu, our_rates, our_cpu]) in workloads {
            for index in 0..2 {
                let repetition = index + 1;
                for (system, rates, cpu) in [
                    ("HAProxy", their_rates, their_cpu),
                    ("HAProxy 3.0", our_rates, our_cpu),
                    ("Switchback", our_rates, our_cpu),
                ] {
                    let (rate, cpu) = (rates[index], cpu[index]);
                    text += &format!("{repetition},\"{name}\",{system},{rate},0,{cpu}\n");
                }
                text += &format!("{repetition},\"{name}\",direct,9000,0,\n");
            }
        }
        text
    }

    fn ratios(text: &str) -> Ratios {
        Ratios::of(text).expect("such a file")
    }

    #[test]
    fn what_all_repetitions_say_is_marked() {
        let earlier = [
            ("100 B, keep-alive", [[100.0, 100.0], [10.0, 10.0], [150.0, 160.0], [1.0, 1.2]]),
            ("1 MiB, keep-alive", [[100.0, 100.0], [10.0, 10.0], [150.0, 160.0], [1.0, 1.2]]),
            ("301, new connection", [[100.0, 110.0], [10.0, 11.0], [150.0, 160.0], [1.0, 1.2]]),
        ];
        // On a machine that is ten times as slow.
        let now = [
            ("100 B, keep-alive", [[10.0, 10.0], [100.0, 100.0], [18.0, 20.0], [7.0, 8.0]]),
            ("1 MiB, keep-alive", [[10.0, 10.0], [100.0, 100.0], [12.0, 14.0], [20.0, 22.0]]),
            ("301, new connection", [[10.0, 11.0], [100.0, 110.0], [15.5, 16.5], [9.0, 11.0]]),
        ];
        let table = ratios(&file(&earlier)).beside(&ratios(&file(&now)));
        let rows: Vec<&str> = table.lines().skip(2).take(4).collect();
        let expected = [
            "| 100 B, keep-alive | 1.55 (1.50–1.60) | 1.90 (1.80–2.00) | better | 0.11 (0.10–0.12) | 0.075 (0.070–0.080) | better |",
            "| 1 MiB, keep-alive | 1.55 (1.50–1.60) | 1.30 (1.20–1.40) | worse | 0.11 (0.10–0.12) | 0.21 (0.20–0.22) | worse |",
            "| 301, new connection | 1.48 (1.36–1.60) | 1.52 (1.41–1.65) |  | 0.10 (0.091–0.12) | 0.095 (0.082–0.11) |  |",
            "",
        ];
        assert_eq!(rows, expected, "{table}");
        assert!(!table.contains("Left out"), "{table}");
    }

    #[test]
    fn one_repetition_has_no_range_and_marks_nothing() {
        let workloads = [("100 B, keep-alive", [[100.0; 2], [10.0; 2], [150.0, 160.0], [1.0; 2]])];
        let earlier = file(&workloads);
        let once = earlier.lines().filter(|line| !line.starts_with('2')).collect::<Vec<_>>().join("\n");
        let faster = once.replace("150", "900");
        for (earlier, now) in [(&earlier, &faster), (&faster, &earlier)] {
            let table = ratios(earlier).beside(&ratios(now));
            let row = table.lines().nth(2).expect("a row");
            assert!(row.contains("9.00 (9.00–9.00)"), "{table}");
            assert!(!row.contains("better") && !row.contains("worse"), "{table}");
        }
    }

    #[test]
    fn workloads_of_one_run_are_left_out_and_said() {
        let rates = |name| (name, [[100.0; 2], [10.0; 2], [150.0; 2], [1.0; 2]]);
        let earlier = file(&["both", "without HAProxy", "gone", "idle"].map(rates));
        let without = |text: &str, workload: &str| {
            let kept = |line: &&str| !(line.contains(workload) && line.contains(",HAProxy,"));
            text.lines().filter(kept).collect::<Vec<_>>().join("\n")
        };
        let now = file(&["both", "without HAProxy", "new", "idle"].map(rates));
        let now = without(&now, "without HAProxy").replace("\"idle\",HAProxy,100", "\"idle\",HAProxy,0");
        let text = ratios(&earlier).beside(&ratios(&now));
        assert!(text.contains("| both |"), "{text}");
        assert_eq!(text.matches("1.50 (1.50–1.50)").count(), 2, "{text}");
        for said in [
            "Left out: without HAProxy: this run lacks Switchback or HAProxy.\n",
            "Left out: new: not in the earlier run.\n",
            "Left out: idle: this run lacks Switchback or HAProxy.\n",
            "Left out: gone: not in this run.\n",
        ] {
            assert!(text.contains(said), "{said}{text}");
        }
        let text = ratios(&without(&earlier, "both")).beside(&ratios(&earlier));
        assert!(text.contains("Left out: both: the earlier run lacks Switchback or HAProxy.\n"), "{text}");
    }

    #[test]
    fn a_load_without_cpu_times_has_its_rates() {
        let workloads = [("100 B, keep-alive", [[100.0; 2], [10.0; 2], [150.0; 2], [1.0; 2]])];
        let now = ratios(&file(&workloads).replace(",0,10\n", ",0,\n"));
        let text = ratios(&file(&workloads)).beside(&now);
        assert!(text.contains("| 1.50 (1.50–1.50) |  | 0.10 (0.10–0.10) | – |  |\n"), "{text}");
    }

    #[test]
    fn another_file_is_refused() {
        let error = |text: &str| Ratios::of(text).expect_err("not such a file");
        assert!(error("").starts_with("no column workload; `switchback lab run proxies` writes"));
        assert!(error("repetition,workload,system,requests\n").starts_with("no column requests_per_s; "));
        assert_eq!(error(&format!("{TITLES}\n1,a,HAProxy\n")), "line 2 has 3 cells, not 6");
        assert_eq!(
            error(&format!("{TITLES}\n1,\"a, b\",HAProxy,fast,0,1\n")),
            "line 2: requests_per_s is no number: \"fast\""
        );
        let error = Ratios::read(Path::new("/nonexistent/proxies.csv")).expect_err("no file").to_string();
        assert!(error.contains("read /nonexistent/proxies.csv"), "{error}");
        let error = Ratios::read(Path::new("/dev/null")).expect_err("an empty file").to_string();
        assert!(error.contains("/dev/null: no column workload"), "{error}");
    }

    #[test]
    fn the_committed_file_has_all_workloads() {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/proxies.csv");
        let committed = Ratios::read(&committed).expect("it has been written by this experiment");
        for workload in WORKLOADS {
            let ratios = committed.find(workload.name).expect("the workload");
            assert!(ratios.requests_per_s.is_some() && ratios.cpu_us_per_request.is_some(), "{ratios:?}");
        }
    }
}
