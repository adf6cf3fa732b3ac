//! The ratios of two runs, one beside the other.
//!
//! Machines differ, and so do days, so times and rates of two runs do not compare. The ratio of two systems that took turns on
//! one machine does, as far as the repetitions agree. Both runs are taken from the CSV files that the experiment writes.

use std::fs;
use std::path::Path;

use switchback_lab::{Doing, Error, Result};

use crate::report::{header, row, shown};
use crate::statistics::Spread;

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 5] = [
    ("Workload", false),
    ("Ratio", false),
    ("Earlier (min–max)", true),
    ("Now (min–max)", true),
    ("", false),
];

/// What runs of an experiment are compared by.
#[derive(Debug)]
pub(super) struct Basis {
    /// The experiment's name.
    pub(super) experiment: &'static str,
    /// Title of the column with the workload.
    pub(super) workload: &'static str,
    /// Title of the column with the system.
    pub(super) system: &'static str,
    /// The two systems in that column, the first to be divided by the second.
    pub(super) systems: [&'static str; 2],
    pub(super) repetitions: Repetitions,
    pub(super) measures: &'static [Measure],
}

/// A measured value.
#[derive(Debug)]
pub(super) struct Measure {
    /// Title of its column.
    pub(super) column: &'static str,
    /// Name of its ratio.
    pub(super) ratio: &'static str,
    pub(super) good: Good,
}

/// Whether a high ratio is good.
#[derive(Clone, Copy, Debug)]
pub(super) enum Good {
    High,
    Low,
}

/// What the repetitions make of a ratio.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repetitions {
    /// The ratio of the medians, between the least and the greatest that the repetitions allow: the first system's worst
    /// beside the second's best, and the reverse.
    Together,
    /// The median of each round's ratio, between the extremes. For differences that are smaller than those of two rounds.
    RoundByRound,
}

impl Basis {
    /// Fails if there is an earlier file that runs cannot be compared with.
    pub(super) fn check(&self, earlier: Option<&Path>) -> Result<()> {
        earlier.map_or(Ok(()), |path| self.read(path).map(drop))
    }

    /// The ratios of a run, given as its CSV file's text, beside those of an earlier file, as Markdown; empty without one.
    pub(super) fn compare(&self, earlier: Option<&Path>, csv: &str) -> Result<String> {
        let Some(path) = earlier else {
            return Ok(String::new());
        };
        let (earlier, now) = (self.read(path)?, self.ratios(csv).map_err(Error::Invalid)?);
        Ok(format!("Compared with {}:\n\n{}", path.display(), self.beside(&earlier, &now)))
    }

    fn read(&self, path: &Path) -> Result<Vec<Workload>> {
        let text = fs::read_to_string(path).doing(|| format!("read {}", path.display()))?;
        self.ratios(&text).map_err(|error| Error::Invalid(format!("{}: {error}", path.display())))
    }

    /// The ratios of each workload, in the order of the file.
    fn ratios(&self, csv: &str) -> Result<Vec<Workload>, String> {
        let samples = self.samples(csv)?;
        let mut names: Vec<&str> = Vec::new();
        for Sample { workload, .. } in &samples {
            if !names.contains(&workload.as_str()) {
                names.push(workload);
            }
        }
        let ratio = |name: &str, measure: usize| {
            let [ours, theirs] = self.systems.map(|system| {
                let wanted =
                    samples.iter().filter(|sample| sample.workload == name && sample.system == system);
                wanted.map(|sample| sample.values[measure]).collect::<Vec<_>>()
            });
            Ratio::of(&ours, &theirs, self.repetitions)
        };
        let workload = |name: &str| Workload {
            name: name.to_owned(),
            ratios: (0..self.measures.len()).map(|measure| ratio(name, measure)).collect(),
        };
        Ok(names.into_iter().map(workload).collect())
    }

    /// A line for each workload and measure that one of the runs has.
    fn beside(&self, earlier: &[Workload], now: &[Workload]) -> String {
        let mut table = header(&COLUMNS);
        let gone = earlier.iter().filter(|workload| find(now, &workload.name).is_none());
        for name in now.iter().chain(gone).map(|workload| &workload.name) {
            for (index, measure) in self.measures.iter().enumerate() {
                let [earlier, now] = [earlier, now].map(|run| find(run, name)?.ratios[index]);
                let mark = earlier.zip(now).map_or("", |(earlier, now)| mark(earlier, now, measure.good));
                let [earlier, now] = [earlier, now].map(|ratio| shown(ratio, text));
                table += &row(&[name.clone(), measure.ratio.to_owned(), earlier, now, mark.to_owned()]);
            }
        }
        let how = match self.repetitions {
            Repetitions::Together => "Ratios of the medians and, in brackets, of the extremes.",
            Repetitions::RoundByRound => "Medians of the rounds' ratios and, in brackets, the extremes.",
        };
        format!(
            "{table}\n{how} One is better or worse if its\n\
             range does not overlap with the earlier one; a range takes two repetitions. A run without the workload, or without\n\
             one of the systems, has –.\n"
        )
    }

    fn samples(&self, csv: &str) -> Result<Vec<Sample>, String> {
        let mut lines = csv.lines();
        let titles = split(lines.next().unwrap_or_default());
        let column = |title: &str| {
            titles.iter().position(|cell| cell == title).ok_or_else(|| {
                let name = self.experiment;
                format!("no column {title}; `switchback lab run {name}` writes a file with it, {name}.csv")
            })
        };
        let (workload, system) = (column(self.workload)?, column(self.system)?);
        let measures = self.measures.iter().map(|measure| column(measure.column));
        let measures = measures.collect::<Result<Vec<_>, _>>()?;
        let sample = |(number, line): (usize, &str)| {
            let mut cells = split(line);
            if cells.len() != titles.len() {
                return Err(format!("line {number} has {} cells, not {}", cells.len(), titles.len()));
            }
            let value = |&column: &usize| {
                let cell = &cells[column];
                let error = || format!("line {number}: {} is no number: {cell:?}", titles[column]);
                let value = || cell.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(error);
                (!cell.is_empty()).then(value).transpose()
            };
            let values = measures.iter().map(value).collect::<Result<_, _>>()?;
            Ok(Sample {
                workload: std::mem::take(&mut cells[workload]),
                system: std::mem::take(&mut cells[system]),
                values,
            })
        };
        (2..).zip(lines).map(sample).collect()
    }
}

/// The ratio of two systems.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    spread: Spread,
    /// Whether both have been measured more than once.
    is_repeated: bool,
}

impl Ratio {
    /// The ratio of the repetitions' values, in their order; None without values, or with a zero to divide by.
    fn of(ours: &[Option<f64>], theirs: &[Option<f64>], repetitions: Repetitions) -> Option<Ratio> {
        let is_repeated = [ours, theirs].iter().all(|values| values.iter().flatten().count() > 1);
        let [our, their] = [ours, theirs].map(|values| Spread::of(values.iter().copied().flatten()));
        let (our, their) = (our?, their.filter(|their| their.min > 0.0)?);
        let spread = match repetitions {
            Repetitions::Together => {
                let (min, max) = (our.min / their.max, our.max / their.min);
                Spread { min, median: our.median / their.median, max }
            }
            Repetitions::RoundByRound => Spread::of_ratios(ours.iter().copied(), theirs.iter().copied())?,
        };
        Some(Ratio { spread, is_repeated })
    }
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

/// The ratios with one workload.
#[derive(Clone, Debug, PartialEq)]
struct Workload {
    name: String,
    /// One for each measure.
    ratios: Vec<Option<Ratio>>,
}

fn find<'a>(run: &'a [Workload], name: &str) -> Option<&'a Workload> {
    run.iter().find(|workload| workload.name == name)
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
    /// One for each measure; None of an empty cell.
    values: Vec<Option<f64>>,
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
    use crate::{log_cost, proxies, tls_proxies};

    const BASIS: Basis = proxies::BASIS;
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

    fn beside(basis: &Basis, earlier: &str, now: &str) -> String {
        let [earlier, now] = [earlier, now].map(|text| basis.ratios(text).expect("such a file"));
        basis.beside(&earlier, &now)
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
        let table = beside(&BASIS, &file(&earlier), &file(&now));
        let rows: Vec<&str> = table.lines().skip(2).take(7).collect();
        let expected = [
            "| 100 B, keep-alive | requests/s ÷ HAProxy's | 1.55 (1.50–1.60) | 1.90 (1.80–2.00) | better |",
            "| 100 B, keep-alive | CPU ÷ HAProxy's | 0.11 (0.10–0.12) | 0.075 (0.070–0.080) | better |",
            "| 1 MiB, keep-alive | requests/s ÷ HAProxy's | 1.55 (1.50–1.60) | 1.30 (1.20–1.40) | worse |",
            "| 1 MiB, keep-alive | CPU ÷ HAProxy's | 0.11 (0.10–0.12) | 0.21 (0.20–0.22) | worse |",
            "| 301, new connection | requests/s ÷ HAProxy's | 1.48 (1.36–1.60) | 1.52 (1.41–1.65) |  |",
            "| 301, new connection | CPU ÷ HAProxy's | 0.10 (0.091–0.12) | 0.095 (0.082–0.11) |  |",
            "",
        ];
        assert_eq!(rows, expected, "{table}");
    }

    #[test]
    fn rounds_are_compared_each_with_itself() {
        // The second round is slower as a whole, and begins with the other one.
        let text = "load,observed,requests_per_s,switch_us_per_request\n\
            \"1 MiB, keep-alive\",false,100,4\n\"1 MiB, keep-alive\",true,90,5\n\
            \"1 MiB, keep-alive\",true,49,8\n\"1 MiB, keep-alive\",false,50,8\n";
        let table = beside(&log_cost::BASIS, text, text);
        let row = "| 1 MiB, keep-alive | requests/s with log ÷ without | 0.94 (0.90–0.98) | 0.94 (0.90–0.98) |  |\n";
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn one_repetition_has_no_range_and_marks_nothing() {
        let workloads = [("100 B, keep-alive", [[100.0; 2], [10.0; 2], [150.0, 160.0], [1.0; 2]])];
        let earlier = file(&workloads);
        let once = earlier.lines().filter(|line| !line.starts_with('2')).collect::<Vec<_>>().join("\n");
        let faster = once.replace("150", "900");
        for (earlier, now) in [(&earlier, &faster), (&faster, &earlier)] {
            let table = beside(&BASIS, earlier, now);
            let row = table.lines().nth(2).expect("a row");
            assert!(row.contains("9.00 (9.00–9.00)"), "{table}");
            assert!(!row.contains("better") && !row.contains("worse"), "{table}");
        }
    }

    #[test]
    fn a_ratio_of_one_run_has_a_line_with_a_gap() {
        let rates = |name| (name, [[100.0; 2], [10.0; 2], [150.0; 2], [1.0; 2]]);
        let earlier = file(&["both", "without HAProxy", "gone", "idle"].map(rates));
        let now = file(&["both", "without HAProxy", "new", "idle"].map(rates));
        let is_kept = |line: &&str| !(line.contains("without HAProxy") && line.contains(",HAProxy,"));
        let now = now.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
        let now = now.replace("\"idle\",HAProxy,100", "\"idle\",HAProxy,0");
        let now = now.replace("\"idle\",Switchback,150,0,1", "\"idle\",Switchback,150,0,");
        let text = beside(&BASIS, &earlier, &now);
        let ratio = "1.50 (1.50–1.50)";
        for (workload, earlier, now) in [
            ("both", ratio, ratio),
            ("without HAProxy", ratio, "–"),
            ("new", "–", ratio),
            ("gone", ratio, "–"),
        ] {
            let row = format!("| {workload} | requests/s ÷ HAProxy's | {earlier} | {now} |  |\n");
            assert!(text.contains(&row), "{row}{text}");
        }
        for measure in ["requests/s ÷ HAProxy's | 1.50 (1.50–1.50)", "CPU ÷ HAProxy's | 0.10 (0.10–0.10)"]
        {
            assert!(text.contains(&format!("| idle | {measure} | – |  |\n")), "{text}");
        }
    }

    #[test]
    fn another_file_is_refused() {
        let error = |text: &str| BASIS.ratios(text).expect_err("not such a file");
        assert!(error("").starts_with("no column workload; `switchback lab run proxies` writes"));
        assert!(error("repetition,workload,system,requests\n").starts_with("no column requests_per_s; "));
        assert_eq!(error(&format!("{TITLES}\n1,a,HAProxy\n")), "line 2 has 3 cells, not 6");
        assert_eq!(
            error(&format!("{TITLES}\n1,\"a, b\",HAProxy,fast,0,1\n")),
            "line 2: requests_per_s is no number: \"fast\""
        );
        let error = |path| BASIS.check(Some(Path::new(path))).expect_err("no such file").to_string();
        let (missing, empty) = (error("/nonexistent/proxies.csv"), error("/dev/null"));
        assert!(missing.contains("read /nonexistent/proxies.csv"), "{missing}");
        assert!(empty.contains("/dev/null: no column workload"), "{empty}");
    }

    #[test]
    fn the_committed_files_have_all_workloads() {
        let committed = |basis: &Basis, workloads: &[&str]| {
            let file = format!("../../docs/benchmarks/{}.csv", basis.experiment);
            let run = basis.read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
            let run = run.expect("it has been written by this experiment");
            for name in workloads {
                let workload = find(&run, name).expect("the workload");
                assert!(workload.ratios.iter().all(Option::is_some), "{workload:?}");
            }
        };
        committed(&proxies::BASIS, &proxies::WORKLOADS.map(|workload| workload.name));
        committed(&log_cost::BASIS, &log_cost::Work::ALL.map(log_cost::Work::name));
        committed(&tls_proxies::BASIS, &tls_proxies::WORKLOADS.map(|workload| workload.name));
    }
}
