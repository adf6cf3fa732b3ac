//! Table II: six nodes, the paper's greatest number, behind Switchback and behind proxies.

use std::fmt;
use std::path::PathBuf;

use switchback_lab::{Lab, Result};
use switchback_plot::{Bars, Panel, Plot};

use super::{
    CONNECTIONS_PER_NODE, Document, LINK_BITS_PER_S, Measured, PROGRAMS, WARM_UP_SECONDS, csv_titles, envoy,
    load, start,
};
use crate::report::{
    ABSENT, Report, cpu_time, header, latency, median, micros, ratio, repeated, row, shown, thousands,
    with_extremes,
};
use crate::statistics::Spread;
use crate::systems::System;
use crate::{Experiment, Options, Progress, in_turn};

const NODES: usize = 6;
const SYSTEMS: [System; 4] = [System::Haproxy, System::Nginx, System::Envoy, System::Switchback];
/// The paper's table, in requests/s.
const PAPER: [(&str, f64); 7] = [
    ("DWSR", 8_878.0),
    ("Cisco CSS 11154", 6_020.0),
    ("KTCPVS", 5_654.0),
    ("Nortel ACE Switch 180e", 5_402.0),
    ("F5 Big-IP HA-Controller", 5_151.0),
    ("Foundry ServerIron XL", 2_840.0),
    ("Radware WSD", 2_763.0),
];

/// The limit of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The links of the nodes; the switch's link is ten times as fast.
    NodeLinks,
    /// The machine's CPUs.
    Cpu,
}

impl Limit {
    const ALL: [Limit; 2] = [Limit::NodeLinks, Limit::Cpu];

    fn set(self, lab: &Lab) -> Result<()> {
        let [node, switch] = match self {
            Limit::NodeLinks => [Some(LINK_BITS_PER_S), Some(10 * LINK_BITS_PER_S)],
            Limit::Cpu => [None, None],
        };
        lab.nodes().try_for_each(|host| host.set_rate(node))?;
        lab.switches().try_for_each(|host| host.set_rate(switch))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Limit::NodeLinks => "links of the nodes",
            Limit::Cpu => "the machine's CPUs",
        })
    }
}

/// Switchback and proxies with six nodes.
#[derive(Clone, Debug, Default)]
pub struct DwsrTable2 {
    /// Envoy's executable, if it is not in the PATH.
    pub envoy: Option<PathBuf>,
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The limit of the load.
    pub limit: Limit,
    /// The measurement.
    pub measured: Measured,
}

/// All measurements.
pub type Results = crate::Results<Sample>;

impl Experiment for DwsrTable2 {
    type Sample = Sample;
    const NAME: &'static str = "dwsr-table2";
    const SECONDS: u32 = 4;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = PROGRAMS;

    fn nodes(&self) -> usize {
        NODES
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        Ok(vec![envoy::fact(self.envoy.as_deref())?])
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let envoy = envoy::find(self.envoy.as_deref())?;
        let mut systems = start(lab, &options.program, envoy, &[Document::PAPER], &[NODES])?;
        systems.retain(|running| SYSTEMS.contains(&running.system));
        progress.expect(systems.len() * Limit::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &limit in in_turn(&Limit::ALL, repetition) {
                limit.set(lab)?;
                for running in in_turn(&systems, repetition) {
                    if repetition == 1 && options.warms_up() {
                        load(lab, running, NODES, Document::PAPER, WARM_UP_SECONDS)?;
                    }
                    let measured = load(lab, running, NODES, Document::PAPER, options.seconds)?;
                    let sample = Sample { repetition, limit, measured };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, limit, measured } = sample;
    format!(
        "round {repetition}  limit: {limit:<18}  {:<10} {:>8.1} requests/s  {:>6} us CPU each  {} errors",
        measured.system,
        measured.load.requests_per_s,
        shown(measured.cpu_us_each(), |[.., total]| cpu_time(total)),
        measured.load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("Limit", false),
    ("System", false),
    ("Requests/s (min–max)", true),
    ("÷ HAProxy's", true),
    ("p50", true),
    ("p99 (min–max)", true),
    ("CPU of the switch, µs/request (min–max)", true),
    ("of it process", true),
    ("of it receive", true),
    ("Bytes on the switch's link, each request", true),
    ("Errors", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = csv_titles!("repetition,limit");

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, limit, measured } = sample;
        [vec![repetition.to_string(), format!("\"{limit}\"")], measured.csv_cells()].concat()
    }

    /// A line for each limit and system.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for limit in Limit::ALL {
            let rate = |system| self.spread(limit, system, |m| Some(m.load.requests_per_s));
            for system in SYSTEMS.into_iter().filter(|system| rate(*system).is_some()) {
                let cpu = |part: usize| self.spread(limit, system, |m| Some(m.cpu_us_each()?[part]));
                text += &row(&[
                    limit.to_string(),
                    system.to_string(),
                    with_extremes(rate(system), thousands),
                    shown(ratio(rate(system), rate(System::Haproxy)), |ratio| format!("{ratio:.2}")),
                    median(self.spread(limit, system, |m| Some(micros(m.load.p50))), latency),
                    with_extremes(self.spread(limit, system, |m| Some(micros(m.load.p99))), latency),
                    with_extremes(cpu(2), cpu_time),
                    median(cpu(0), cpu_time),
                    median(cpu(1), cpu_time),
                    median(self.spread(limit, system, Measured::link_bytes_each), thousands),
                    self.of(limit, system).map(|m| m.load.errors.total()).sum::<u64>().to_string(),
                ]);
            }
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let columns = [
            ("Paper", false),
            ("Requests/s", true),
            ("÷ KTCPVS", true),
            ("Here, no limit but CPUs", false),
            ("Requests/s", true),
            ("÷ HAProxy's", true),
        ];
        let rate = |system| self.spread(Limit::Cpu, system, |m| Some(m.load.requests_per_s));
        let ktcpvs = PAPER[2].1;
        let mut ours = [System::Switchback, System::Haproxy, System::Nginx, System::Envoy]
            .into_iter()
            .filter_map(|system| Some((system, rate(system)?)));
        let mut text = header(&columns);
        for (name, paper) in PAPER {
            let (system, its_rate) = ours.next().unzip();
            text += &row(&[
                name.to_owned(),
                thousands(paper),
                format!("{:.2}", paper / ktcpvs),
                system.map_or_else(|| ABSENT.to_owned(), |system| system.to_string()),
                median(its_rate, thousands),
                shown(ratio(its_rate, rate(System::Haproxy)), |ratio| format!("{ratio:.2}")),
            ]);
        }
        text + "\nThe paper's products were limited by their own processors, with links of 1000 Mbit/s where it says so, and \
                its servers by theirs. With the links of the nodes as the limit all systems here are the same, because two \
                cores carry the 600 Mbit/s for a proxy, too; what differs is what the switch does for it. With no limit \
                all share two cores with the client and the nodes, and who takes less of them leaves more to the others.\n"
    }

    fn how(&self) -> String {
        let (mbit, connections) = (LINK_BITS_PER_S / 1_000_000, CONNECTIONS_PER_NODE * NODES as u32);
        format!(
            "{} {NODES} nodes, responses of 6 KiB, {connections} connections, which are kept. Either each node's link has \
             {mbit} Mbit/s and that of switch and proxies {} Mbit/s, so that it is no limit, or no link has one. CPU is that \
             of the host between client and nodes; bytes are those that its link carries, both ways, for each \
             request. Errors are those of all repetitions together.{}",
            repeated(self),
            10 * mbit,
            envoy::remark(self)
        )
    }

    /// A plot of the loads without a limit of the links.
    fn plot(&self) -> Option<Plot> {
        let colors = [0, 4, 1, 3];
        let there = |system| self.of(Limit::Cpu, system).next().is_some();
        let systems: Vec<(System, usize)> =
            std::iter::zip(SYSTEMS, colors).filter(|(system, _)| there(*system)).collect();
        let panel = |title: &str, value: fn(&Measured) -> Option<f64>, show: fn(f64) -> String| Panel {
            title: title.to_owned(),
            bars: systems
                .iter()
                .map(|(system, _)| self.spread(Limit::Cpu, *system, value))
                .map(|spread| spread.map(|Spread { median, .. }| (median, show(median))))
                .collect(),
        };
        let panels = vec![
            panel("requests/s", |m| Some(m.load.requests_per_s), thousands),
            panel("99th percentile", |m| Some(micros(m.load.p99)), latency),
            panel("CPU, µs/request", |m| Some(m.cpu_us_each()?[2]), cpu_time),
            panel("link, bytes/request", Measured::link_bytes_each, thousands),
        ];
        let names = systems.into_iter().map(|(system, color)| (system.to_string(), color)).collect();
        let title = "Small requests on links without a limit".to_owned();
        Some(Plot::Bars(Bars { title, names, panels, one_scale: false }))
    }
}

impl Results {
    fn of(&self, limit: Limit, system: System) -> impl Iterator<Item = &Measured> {
        let wanted = move |sample: &&Sample| sample.limit == limit && sample.measured.system == system;
        self.samples.iter().filter(wanted).map(|sample| &sample.measured)
    }

    fn spread(
        &self,
        limit: Limit,
        system: System,
        value: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.of(limit, system).filter_map(value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::measured;
    use super::*;
    use crate::fixtures;

    fn results() -> Results {
        let sample = |limit, system| Sample { repetition: 1, limit, measured: measured(system, NODES) };
        let samples = Limit::ALL.into_iter().flat_map(|limit| SYSTEMS.map(|system| sample(limit, system)));
        fixtures::results(1, samples.collect())
    }

    #[test]
    fn the_table_has_what_the_switch_does_for_each_request() {
        let table = results().table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 8, "{table}");
        assert_eq!(
            rows[3],
            "| links of the nodes | Switchback | 3,000 (3,000–3,000) | 6.32 | 4.0 ms | 9.0 ms (9.0 ms–9.0 ms) | \
             5.0 (5.0–5.0) | 0.0 | 5.0 | 500.0 | 0 |"
        );
        assert!(
            rows[4].starts_with("| the machine's CPUs | HAProxy | 475.0 (475.0–475.0) | 1.00 |"),
            "{table}"
        );
    }

    #[test]
    fn the_paper_stands_beside_it() {
        let text = results().beside_the_paper();
        assert!(text.contains("| DWSR | 8,878 | 1.57 | Switchback | 3,000 | 6.32 |"), "{text}");
        assert!(text.contains("| Radware WSD | 2,763 | 0.49 | – | – | – |"), "{text}");
    }

    #[test]
    fn the_plot_leaves_out_what_was_not_measured() {
        let mut results = results();
        results.samples.retain(|sample| sample.measured.system != System::Envoy);
        let svg = results.plot().expect("it has one").svg().expect("nothing but text is written");
        for text in ["Switchback", "CPU, µs/request", "13,000", "500.0"] {
            assert!(svg.contains(&format!(">\n{text}\n<")), "no {text:?} in {svg}");
        }
        assert!(!svg.contains("Envoy"));
        assert_eq!(results.table().lines().count(), 2 + 6);
    }
}
