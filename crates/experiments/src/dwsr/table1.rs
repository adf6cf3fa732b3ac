//! Table I: requests/s with a growing number of nodes, while the switch's link stays as fast as one node's.

use std::collections::BTreeSet;
use std::path::PathBuf;

use switchback_lab::{Lab, Result};
use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::{
    CONNECTIONS_PER_NODE, Document, LINK_BITS_PER_S, Measured, PROGRAMS, WARM_UP_SECONDS, csv_titles, envoy,
    load, start,
};
use crate::report::{
    Report, header, latency, micros, ratio, reached, repeated, row, shown, thousands, with_extremes,
};
use crate::statistics::Spread;
use crate::systems::{Running, System};
use crate::{Experiment, Options, Progress, in_turn};

const DOCUMENTS: [Document; 2] = [Document::PAPER, Document::LONGER];
/// Systems that cannot exceed one link.
const PROXIES: [System; 3] = [System::Haproxy, System::Nginx, System::Envoy];
/// Least ratio to linear growth.
const TARGET: f64 = 0.97;
/// Numbers of nodes with a target. With responses of the paper's length it is the paper's number of servers: more
/// servers would be more requests than two cores can handle, whatever the links' rate.
const TARGET_NODES: [(Document, usize); 2] =
    [(Document::PAPER, PAPER[PAPER.len() - 1].nodes), (Document::LONGER, 12)];
/// Greatest ratio of a proxy to one link, with a tolerance for measurement.
const ONE_LINK: f64 = 1.01;

/// A row of the paper's table: requests/s and Mbit/s of each system.
struct PaperRow {
    nodes: usize,
    dwsr: (f64, f64),
    /// A proxy in the kernel, with a link of 100 Mbit/s.
    slow_ktcpvs: (f64, f64),
    /// A proxy in the kernel, with a link of 1000 Mbit/s.
    fast_ktcpvs: (f64, f64),
}

const PAPER: [PaperRow; 3] = [
    PaperRow {
        nodes: 2,
        dwsr: (3_328.0, 177.0),
        slow_ktcpvs: (1_865.0, 89.0),
        fast_ktcpvs: (3_210.0, 170.0),
    },
    PaperRow {
        nodes: 4,
        dwsr: (6_584.0, 350.0),
        slow_ktcpvs: (1_866.0, 89.0),
        fast_ktcpvs: (5_639.0, 298.0),
    },
    PaperRow {
        nodes: 6,
        dwsr: (8_878.0, 472.0),
        slow_ktcpvs: (1_866.0, 89.0),
        fast_ktcpvs: (5_654.0, 295.0),
    },
];

/// Switchback and proxies with 1 to 12 nodes.
#[derive(Clone, Debug)]
pub struct DwsrTable1 {
    /// Numbers of nodes, besides one.
    pub nodes: Vec<u32>,
    /// Envoy's executable, if it is not in the PATH.
    pub envoy: Option<PathBuf>,
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The requested document.
    pub document: Document,
    /// The measurement.
    pub measured: Measured,
}

/// All measurements.
pub type Results = crate::Results<Sample>;

impl DwsrTable1 {
    /// The default; the paper has 2, 4 and 6.
    pub const NODES: [u32; 5] = [2, 4, 6, 8, 12];

    /// The numbers of nodes, with one node for comparison.
    fn numbers_of_nodes(&self) -> Vec<usize> {
        in_order([1].into_iter().chain(self.nodes.iter().map(|nodes| *nodes as usize)))
    }
}

/// The numbers in order, without duplicates.
fn in_order(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    numbers.collect::<BTreeSet<_>>().into_iter().collect()
}

impl Experiment for DwsrTable1 {
    type Sample = Sample;
    const NAME: &'static str = "dwsr-table1";
    const SECONDS: u32 = 3;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = PROGRAMS;

    fn nodes(&self) -> usize {
        self.numbers_of_nodes().into_iter().max().expect("at least one")
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        Ok(vec![envoy::fact(self.envoy.as_deref())?])
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let envoy = envoy::find(self.envoy.as_deref())?;
        let numbers = self.numbers_of_nodes();
        let systems = start(lab, &options.program, envoy, &DOCUMENTS, &numbers)?;
        for host in lab.nodes().chain(lab.switches()) {
            host.set_rate(Some(LINK_BITS_PER_S))?;
        }
        let loads: Vec<(&Running, usize)> = systems
            .iter()
            .flat_map(|running| numbers.iter().map(move |nodes| (running, *nodes)))
            .filter(|(running, nodes)| is_measured(running.system, *nodes))
            .collect();
        progress.expect(loads.len() * DOCUMENTS.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for document in DOCUMENTS {
                for &(running, nodes) in in_turn(&loads, repetition) {
                    if repetition == 1 && options.warms_up() {
                        load(lab, running, nodes, document, WARM_UP_SECONDS)?;
                    }
                    let measured = load(lab, running, nodes, document, options.seconds)?;
                    let sample = Sample { repetition, document, measured };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

/// Whether the combination is measured: the direct path only with one node, proxies only with more.
fn is_measured(system: System, nodes: usize) -> bool {
    match system {
        System::Direct => nodes == 1,
        System::Switchback => true,
        _ => nodes > 1,
    }
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, document, measured } = sample;
    format!(
        "round {repetition}  {:>2} KiB  {:>2} nodes  {:<10} {:>8.1} requests/s {:>7.1} Mbit/s  {} errors",
        document.kib,
        measured.nodes,
        measured.system,
        measured.load.requests_per_s,
        measured.mbit_per_s(),
        measured.load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 10] = [
    ("Response", false),
    ("Nodes", true),
    ("Linear: nodes × one asked directly", true),
    ("Switchback: requests/s (min–max)", true),
    ("÷ linear", true),
    ("Mbit/s", true),
    ("p99", true),
    ("HAProxy: requests/s (min–max)", true),
    ("nginx: requests/s (min–max)", true),
    ("Envoy: requests/s (min–max)", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = csv_titles!("repetition,document_kib");

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, document, measured } = sample;
        [vec![repetition.to_string(), document.kib.to_string()], measured.csv_cells()].concat()
    }

    /// A line for each document and number of nodes.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for document in DOCUMENTS {
            for nodes in self.numbers_of_nodes() {
                let switchback =
                    |value: fn(&Measured) -> f64| self.spread(document, System::Switchback, nodes, value);
                let rate = |system| with_extremes(self.rate(document, system, nodes), thousands);
                let [haproxy, nginx, envoy] = PROXIES.map(rate);
                text += &row(&[
                    format!("{} KiB", document.kib),
                    nodes.to_string(),
                    shown(self.linear(document, nodes), thousands),
                    rate(System::Switchback),
                    shown(self.part_of_linear(document, nodes), |part| format!("{:.3}", part.median)),
                    shown(switchback(Measured::mbit_per_s), |rate| thousands(rate.median)),
                    shown(switchback(|measured| micros(measured.load.p99)), |p99| latency(p99.median)),
                    haproxy,
                    nginx,
                    envoy,
                ]);
            }
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let columns = [
            ("Servers", true),
            ("Paper: DWSR, requests/s (Mbit/s)", true),
            ("KTCPVS, 100 Mbit/s", true),
            ("KTCPVS, 1000 Mbit/s", true),
            ("Paper: DWSR ÷ that of 2", true),
            ("Switchback, 6 KiB ÷ that of 2", true),
            ("HAProxy ÷ that of 2", true),
        ];
        let mut text = header(&columns);
        for PaperRow { nodes, dwsr, slow_ktcpvs, fast_ktcpvs } in PAPER {
            let both = |(rate, mbit): (f64, f64)| format!("{} ({mbit:.0})", thousands(rate));
            let ours = |system| {
                let of_two = self.rate(Document::PAPER, system, PAPER[0].nodes);
                let times = ratio(self.rate(Document::PAPER, system, nodes), of_two);
                shown(times, |times| format!("{times:.2}"))
            };
            text += &row(&[
                nodes.to_string(),
                both(dwsr),
                both(slow_ktcpvs),
                both(fast_ktcpvs),
                format!("{:.2}", dwsr.0 / PAPER[0].dwsr.0),
                ours(System::Switchback),
                ours(System::Haproxy),
            ]);
        }
        text + "\nThe paper's servers were the limit of its DWSR (Pentium III, 1 GHz: 85 Mbit/s of responses each), and it says \
                that it had too few clients and servers to find another; 6 of them have 0.89 of 3 times what 2 have. Here the \
                links of the nodes are the limit. A proxy stays at its own link in both, whatever is behind it.\n"
    }

    fn how(&self) -> String {
        let (mbit, connections) = (LINK_BITS_PER_S / 1_000_000, CONNECTIONS_PER_NODE);
        let targets: String = self.targets().iter().map(|target| format!("- {target}\n")).collect();
        format!(
            "{} The links of nodes, switch and proxies have {mbit} Mbit/s each way, the client's has no limit. The client has \
             {connections} connections for each node, which are kept; round robin. Mbit/s are of heads and bodies. 6 KiB are \
             the paper's responses; for more than its six nodes two cores have less time than the links. With 16 KiB the same \
             Mbit/s need fewer requests, and twelve links are full before two cores are busy. All hosts use reno, which \
             needs no timers, and the nodes' nginx keeps files open, because the \
             nodes are not what is measured.{}\n\n{targets}",
            repeated(self),
            envoy::remark(self)
        )
    }

    /// A plot of Mbit/s over nodes, with the paper's, since requests/s of other lengths would not compare.
    fn plot(&self) -> Option<Plot> {
        let points = |document, system| {
            let point = |nodes: usize| {
                let rate = self.spread(document, system, nodes, Measured::mbit_per_s)?;
                Some((nodes as u32, rate.median))
            };
            self.numbers_of_nodes().into_iter().filter_map(point).collect::<Vec<_>>()
        };
        let one = self.spread(Document::PAPER, System::Direct, 1, Measured::mbit_per_s);
        let linear = |one: Spread| {
            let numbers = self.numbers_of_nodes().into_iter();
            numbers.map(|nodes| (nodes as u32, nodes as f64 * one.median)).collect()
        };
        let paper =
            |mbit: fn(&PaperRow) -> f64| PAPER.iter().map(|row| (row.nodes as u32, mbit(row))).collect();
        let curve = |name: &str, color: usize, dashed, points: Vec<(u32, f64)>| Curve {
            name: name.to_owned(),
            color: COLORS[color],
            dashed,
            points,
        };
        let curves = [
            curve("linear, 6 KiB", 7, true, one.map_or_else(Vec::new, linear)),
            curve("Switchback, 16 KiB", 5, false, points(Document::LONGER, System::Switchback)),
            curve("Switchback, 6 KiB", 3, false, points(Document::PAPER, System::Switchback)),
            curve("HAProxy, 6 KiB", 0, false, points(Document::PAPER, System::Haproxy)),
            curve("nginx, 6 KiB", 4, false, points(Document::PAPER, System::Nginx)),
            curve("Envoy, 6 KiB", 1, false, points(Document::PAPER, System::Envoy)),
            curve("paper: DWSR", 3, true, paper(|row| row.dwsr.1)),
            curve("paper: KTCPVS, 100 Mbit/s", 0, true, paper(|row| row.slow_ktcpvs.1)),
            curve("paper: KTCPVS, 1 Gbit/s", 2, true, paper(|row| row.fast_ktcpvs.1)),
        ];
        let curves = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
        Some(Plot::Lines(Lines {
            title: "Responses over nodes, each machine with a link of 100 Mbit/s".to_owned(),
            x_title: "nodes",
            y_title: "responses, Mbit/s",
            is_logarithmic: false,
            margin: 1,
            curves,
        }))
    }
}

impl Results {
    /// The measured numbers of nodes.
    fn numbers_of_nodes(&self) -> Vec<usize> {
        in_order(self.samples.iter().map(|sample| sample.measured.nodes))
    }

    fn spread(
        &self,
        document: Document,
        system: System,
        nodes: usize,
        value: impl Fn(&Measured) -> f64,
    ) -> Option<Spread> {
        let wanted = |sample: &&Sample| {
            let Measured { system: its_system, nodes: its_nodes, .. } = sample.measured;
            sample.document == document && its_system == system && its_nodes == nodes
        };
        Spread::of(self.samples.iter().filter(wanted).map(|sample| value(&sample.measured)))
    }

    fn rate(&self, document: Document, system: System, nodes: usize) -> Option<Spread> {
        self.spread(document, system, nodes, |measured| measured.load.requests_per_s)
    }

    /// Linear growth: the median of one node asked directly, times the number of nodes.
    fn linear(&self, document: Document, nodes: usize) -> Option<f64> {
        let one = self.rate(document, System::Direct, 1)?.median;
        (one > 0.0).then_some(nodes as f64 * one)
    }

    fn part_of_linear(&self, document: Document, nodes: usize) -> Option<Spread> {
        let linear = self.linear(document, nodes)?;
        let Spread { min, median, max } = self.rate(document, System::Switchback, nodes)?;
        Some(Spread { min: min / linear, median: median / linear, max: max / linear })
    }

    /// The targets, and whether they are reached.
    fn targets(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (document, most) in TARGET_NODES {
            let numbers = self.numbers_of_nodes().into_iter().filter(|nodes| *nodes <= most);
            let parts = numbers.filter_map(|nodes| Some((nodes, self.part_of_linear(document, nodes)?)));
            let worst = parts.min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
            if let Some((nodes, part)) = worst {
                lines.push(format!(
                    "Switchback, {} KiB, at least {TARGET} of linear up to {most} nodes: least {:.3} ({:.3}–{:.3}), with {nodes}; \
                     {}.",
                    document.kib,
                    part.median,
                    part.min,
                    part.max,
                    reached(part.median >= TARGET, part.min >= TARGET)
                ));
            }
        }
        for system in PROXIES {
            let parts = DOCUMENTS.into_iter().flat_map(|document| {
                self.numbers_of_nodes().into_iter().filter_map(move |nodes| {
                    let (most, link) = (self.rate(document, system, nodes)?, self.linear(document, 1)?);
                    Some((most.median / link, most.max / link))
                })
            });
            let most = parts.max_by(|one, other| one.0.total_cmp(&other.0));
            if let Some((median, max)) = most {
                let reached = reached(median <= ONE_LINK, max <= ONE_LINK);
                lines.push(format!(
                    "{system} stays at the switch's link: at most {median:.3} of one node asked directly; {reached}."
                ));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::measured;
    use super::*;
    use crate::fixtures;

    fn results() -> Results {
        let mut samples = Vec::new();
        for document in DOCUMENTS {
            for system in [System::Direct, System::Haproxy, System::Nginx, System::Envoy, System::Switchback]
            {
                let wanted = [1, 2, 4, 6, 8, 12].into_iter().filter(|nodes| is_measured(system, *nodes));
                samples.extend(wanted.map(|nodes| Sample {
                    repetition: 1,
                    document,
                    measured: measured(system, nodes),
                }));
            }
        }
        fixtures::results(1, samples)
    }

    #[test]
    fn each_line_compares_with_one_node_asked_directly() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 12, "{table}");
        assert_eq!(
            rows[0],
            "| 6 KiB | 1 | 500.0 | 500.0 (500.0–500.0) | 1.000 | 25.0 | 9.0 ms | – | – | – |"
        );
        assert_eq!(
            rows[11],
            "| 16 KiB | 12 | 6,000 | 6,000 (6,000–6,000) | 1.000 | 300.0 | 9.0 ms | 475.0 (475.0–475.0) | \
             475.0 (475.0–475.0) | 475.0 (475.0–475.0) |"
        );
    }

    #[test]
    fn the_targets_are_judged_by_the_worst() {
        let targets = results().targets();
        assert_eq!(targets.len(), 5, "{targets:?}");
        assert!(targets.iter().all(|target| target.ends_with("; reached.")), "{targets:?}");
        assert!(targets[2].contains("at most 0.950 of one node"), "{targets:?}");
        let slowed = |document, nodes| {
            let mut slow = results();
            for Sample { document: its, measured, .. } in &mut slow.samples {
                if *its == document && measured.system == System::Switchback && measured.nodes == nodes {
                    measured.load.requests_per_s *= 0.95;
                }
            }
            slow.targets()
        };
        let targets = slowed(Document::LONGER, 12);
        assert!(targets[1].contains("least 0.950 (0.950–0.950), with 12; **not reached**."), "{targets:?}");
        // More nodes than the paper's exceed the machine with responses of its length.
        assert!(slowed(Document::PAPER, 12)[0].ends_with("; reached."));
        assert!(slowed(Document::PAPER, 6)[0].ends_with("**not reached**."));
        let mut fast = results();
        for sample in &mut fast.samples {
            if sample.measured.system == System::Nginx {
                sample.measured.load.requests_per_s *= 1.1;
            }
        }
        assert!(fast.targets()[3].starts_with("nginx") && fast.targets()[3].ends_with("**not reached**."));
    }

    #[test]
    fn the_paper_stands_beside_it() {
        let text = results().markdown();
        assert!(
            text.contains("| 6 | 8,878 (472) | 1,866 (89) | 5,654 (295) | 2.67 | 3.00 | 1.00 |"),
            "{text}"
        );
        let svg = results().plot().expect("it has one").svg().expect("nothing but text is written");
        assert!(svg.contains("paper: KTCPVS, 100 Mbit/s") && svg.contains("Switchback, 16 KiB"));
    }

    #[test]
    fn without_envoy_its_column_is_empty() {
        let mut results = results();
        results.samples.retain(|sample| sample.measured.system != System::Envoy);
        assert!(results.table().lines().skip(2).all(|row| row.ends_with("| – |")));
        let svg = results.plot().expect("it has one").svg().expect("nothing but text is written");
        assert!(!svg.contains("Envoy"));
        assert_eq!(results.targets().len(), 4);
    }

    #[test]
    fn the_file_has_as_many_cells_as_titles() {
        let csv = results().csv();
        let cells = |line: &str| line.split(',').count();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + results().samples.len());
        assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{csv}");
    }
}
