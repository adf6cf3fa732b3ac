//! Machines that are both connection and data servers, without a dispatcher, beside the same number of unsplit servers:
//! the paper's three configurations, with full and with partial delegation, for files of several sizes.
//!
//! Each machine has a link of its own, slow enough for two cores to fill all of them. Each request has a connection of
//! its own. Unsplit servers get an equal number of clients each, which address them directly.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use switchback_lab::{Lab, Process, Result, ServerOptions};
use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::report::{Report, header, micros, repeated, row, shown, thousands, with_extremes};
use super::statistics::Spread;
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress};

/// Sizes of the files, in KiB.
const SIZES: [usize; 6] = [4, 8, 16, 32, 64, 128];
/// Rate of each machine's link.
const LINK_BITS_PER_S: u64 = 100_000_000;
/// Connections for each machine.
const CONNECTIONS: u32 = 6;
const WARM_UP_SECONDS: u32 = 1;
const READY: Duration = Duration::from_secs(30);

/// The division of work between the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// Number of machines, of which the first are connection servers.
    pub machines: usize,
    /// Number of connection servers.
    pub switches: usize,
    /// Delegation by a connection server, as in the configuration.
    pub delegate: &'static str,
    /// The paper's throughput, relative to that of as many unsplit servers.
    pub paper: Option<f64>,
}

const fn layout(machines: usize, switches: usize, delegate: &'static str, paper: Option<f64>) -> Layout {
    Layout { machines, switches, delegate, paper }
}

impl Layout {
    /// The paper's layouts in its order, after as many unsplit servers.
    pub const ALL: [Layout; 11] = [
        layout(2, 0, "", None),
        layout(2, 1, "all", Some(0.75)),
        layout(2, 1, "50%", Some(1.25)),
        layout(3, 0, "", None),
        layout(3, 1, "all", Some(0.83)),
        layout(3, 1, "67%", Some(1.15)),
        layout(3, 2, "all", Some(1.22)),
        layout(3, 2, "67%", None),
        layout(4, 0, "", None),
        layout(4, 1, "all", Some(0.925)),
        layout(4, 1, "75%", Some(1.10)),
    ];

    /// The layout of as many unsplit servers.
    fn reference(self) -> Layout {
        layout(self.machines, 0, "", None)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { machines, switches, delegate, .. } = self;
        if *switches == 0 {
            return f.pad(&format!("{machines} servers"));
        }
        let what = if *delegate == "all" { "full".to_owned() } else { format!("{delegate} delegated") };
        f.pad(&format!("{switches} CS, {} DS, {what}", machines - switches))
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The layout.
    pub layout: Layout,
    /// Size of the file, in KiB.
    pub size: usize,
    /// The measurement of each client.
    pub loads: Vec<LoadResult>,
}

impl Sample {
    fn requests_per_s(&self) -> f64 {
        self.loads.iter().map(|load| load.requests_per_s).sum()
    }

    /// The mean of the clients' medians.
    fn p50_us(&self) -> f64 {
        self.loads.iter().map(|load| micros(load.p50)).sum::<f64>() / self.loads.len().max(1) as f64
    }

    fn errors(&self) -> u64 {
        self.loads.iter().map(|load| load.errors.total()).sum()
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Machines that are connection and data servers.
#[derive(Clone, Copy, Debug)]
pub struct MiniCluster;

impl Experiment for MiniCluster {
    type Sample = Sample;
    const NAME: &'static str = "mini-cluster";
    const SECONDS: u32 = 1;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];

    fn nodes(&self) -> usize {
        4
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        for size in SIZES {
            lab.add_document(&document(size), &vec![b'#'; size << 10])?;
        }
        for node in lab.nodes() {
            node.nginx(&ServerOptions::default())?;
            node.set_xdp_port(true)?;
            node.set_rate(Some(LINK_BITS_PER_S))?;
        }
        progress.expect(Layout::ALL.len() * SIZES.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for layout in Layout::ALL {
                let running = start(lab, &options.program, layout)?;
                if options.warms_up() {
                    loads(lab, layout, SIZES[0], WARM_UP_SECONDS)?;
                }
                for size in SIZES {
                    let loads = loads(lab, layout, size, options.seconds)?;
                    let sample = Sample { repetition, layout, size, loads };
                    progress.loaded(&format!(
                        "round {repetition}  {layout:<25} {size:>3} KiB {:>8.1} requests/s  {} errors",
                        sample.requests_per_s(),
                        sample.errors()
                    ));
                    samples.push(sample);
                }
                running.iter().try_for_each(|process| process.stop().map(drop))?;
            }
        }
        Ok(samples)
    }
}

fn document(size: usize) -> String {
    format!("{size}k")
}

/// Starts `switchback run` on each machine if the layout is split.
fn start(lab: &Lab, program: &Path, layout: Layout) -> Result<Vec<Process>> {
    if layout.switches == 0 {
        return Ok(Vec::new());
    }
    let config = lab.write_config_text(&config(lab, layout))?;
    let start = |index: usize| {
        let host = lab.node(index);
        let mut command = Command::new(program);
        command.args(["run", "--name", host.name(), "--config"]).arg(&config);
        host.spawn("switchback-run", command)
    };
    let running = (0..layout.machines).map(start).collect::<Result<Vec<_>>>()?;
    for (index, process) in running.iter().enumerate() {
        process.wait_for_log(if index < layout.switches { "switch ready" } else { "ready" }, READY)?;
    }
    Ok(running)
}

/// The VIP of a connection server: the lab's own, or one after it.
fn vip(lab: &Lab, switch: usize) -> SocketAddr {
    let number = u32::from(lab.vip4()) + switch as u32;
    (std::net::Ipv4Addr::from(number), 80).into()
}

fn config(lab: &Lab, layout: Layout) -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n".to_owned();
    let machines: Vec<_> = lab.nodes().take(layout.machines).collect();
    for machine in &machines {
        text += &format!("[[node]]\nname = \"{}\"\naddress = \"{}\"\n\n", machine.name(), machine.ipv4());
    }
    let names: Vec<String> = machines.iter().map(|machine| format!("\"{}\"", machine.name())).collect();
    let (names, delegate) = (names.join(", "), layout.delegate);
    text += &format!(
        "[[pool]]\nname = \"web\"\nnodes = [{names}]\npolicy = \"least-connections\"\ndelegate = \"{delegate}\"\n\n"
    );
    for switch in 0..layout.switches {
        let listen = vip(lab, switch);
        text += &format!(
            "[[service]]\nname = \"s{switch}\"\nlisten = [\"{listen}\"]\nroute = [{{ pool = \"web\" }}]\n\n\
             [[switch]]\nname = \"node{switch}\"\nservices = [\"s{switch}\"]\n\n"
        );
    }
    text
}

/// Runs loads in parallel, one for each address known to the clients.
fn loads(lab: &Lab, layout: Layout, size: usize, seconds: u32) -> Result<Vec<LoadResult>> {
    let addresses: Vec<SocketAddr> = match layout.switches {
        0 => lab.nodes().take(layout.machines).map(|node| (node.ipv4(), 80).into()).collect(),
        switches => (0..switches).map(|switch| vip(lab, switch)).collect(),
    };
    let connections = CONNECTIONS * layout.machines as u32 / addresses.len() as u32;
    thread::scope(|scope| {
        let load = |address: &SocketAddr| {
            let url = format!("http://{address}/{}", document(size));
            scope.spawn(move || {
                Load { url: &url, connections, close: true, fields: &[], seconds }.run(lab.client(0))
            })
        };
        let running: Vec<_> = addresses.iter().map(load).collect();
        running.into_iter().map(|load| load.join().expect("no load panics")).collect()
    })
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 6] = [
    ("Machines", false),
    ("File, KiB", true),
    ("Requests/s (min–max)", true),
    ("÷ as many servers", true),
    ("p50, ms", true),
    ("Errors", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,layout,size_kib,requests_per_s,p50_us,errors";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, layout, size, .. } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{layout}\""), size.to_string()];
        cells.extend([format!("{:.2}", sample.requests_per_s()), format!("{:.0}", sample.p50_us())]);
        cells.push(sample.errors().to_string());
        cells
    }

    /// A line for each layout and size.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for layout in Layout::ALL {
            for size in SIZES {
                let samples = || self.of(layout, size);
                let errors: u64 = samples().map(Sample::errors).sum();
                text += &row(&[
                    layout.to_string(),
                    size.to_string(),
                    with_extremes(Spread::of(samples().map(Sample::requests_per_s)), thousands),
                    shown(self.part(layout, size), |part| format!("{part:.2}")),
                    shown(Spread::of(samples().map(Sample::p50_us)), |p50| {
                        format!("{:.1}", p50.median / 1e3)
                    }),
                    errors.to_string(),
                ]);
            }
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let columns = [("Machines", false), ("Paper: ÷ as many servers", true), ("Ours, by size", true)];
        let mut text = header(&columns);
        for layout in Layout::ALL.into_iter().filter(|layout| layout.switches > 0) {
            let ours = SIZES.into_iter().filter_map(|size| self.part(layout, size));
            let ours: Vec<String> = ours.map(|part| format!("{part:.2}")).collect();
            text += &row(&[
                layout.to_string(),
                shown(layout.paper, |part| format!("{part:.3}")),
                ours.join(", "),
            ]);
        }
        text + "\nIn the paper the CPUs of the servers are the limit, and splitting takes connection work from some of them. \
                Here the links are, as at object stores: a connection server that delegates everything adds nothing to what \
                the others can send, so full delegation has at most the share of the data servers among the machines \
                (1/2, 2/3, 3/4; 1/1 with two connection servers only because each is the other's data server), and partial \
                delegation at most that of all machines.\n"
    }

    fn how(&self) -> String {
        format!(
            "{} Errors are those of all repetitions together. A connection for each request; each machine's link has {} Mbit/s.",
            repeated(self),
            LINK_BITS_PER_S / 1_000_000
        )
    }

    /// A plot of each layout's relative throughput over the size of the files.
    fn plot(&self) -> Option<Plot> {
        let split = Layout::ALL.into_iter().filter(|layout| layout.switches > 0);
        let curves = split.enumerate().map(|(index, layout)| Curve {
            name: layout.to_string(),
            color: COLORS[index % COLORS.len()],
            dashed: false,
            points: SIZES
                .into_iter()
                .filter_map(|size| Some((size as u32, self.part(layout, size)?)))
                .collect(),
        });
        Some(Plot::Lines(Lines {
            title: "Requests split between connection servers (CS) and data servers (DS)".to_owned(),
            x_title: "file, KiB",
            y_title: "requests/s, part of as many servers'",
            is_logarithmic: false,
            margin: 4,
            curves: curves.collect(),
        }))
    }
}

impl Results {
    /// The median throughput relative to that of as many unsplit servers.
    fn part(&self, layout: Layout, size: usize) -> Option<f64> {
        let median = |layout| Spread::of(self.of(layout, size).map(Sample::requests_per_s)).map(|s| s.median);
        let whole = median(layout.reference()).filter(|rate| *rate > 0.0)?;
        Some(median(layout)? / whole)
    }

    fn of(&self, layout: Layout, size: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.layout == layout && sample.size == size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn results() -> Results {
        let sample = |layout: Layout, size: usize| {
            let clients = if layout.switches == 0 { layout.machines } else { layout.switches };
            let each = 600.0 / size as f64 * if layout.delegate == "all" { 0.5 } else { 1.0 };
            Sample { repetition: 1, layout, size, loads: vec![fixtures::load(1000, each); clients] }
        };
        let samples = Layout::ALL.into_iter().flat_map(|layout| SIZES.map(|size| sample(layout, size)));
        fixtures::results(1, samples.collect())
    }

    #[test]
    fn layouts_stand_beside_as_many_servers() {
        let results = results();
        assert_eq!(results.part(Layout::ALL[1], 4), Some(0.25));
        assert_eq!(results.part(Layout::ALL[0], 4), Some(1.0));
        let table = results.table();
        assert_eq!(table.lines().count(), 2 + Layout::ALL.len() * SIZES.len());
        assert!(table.contains("| 1 CS, 1 DS, full | 4 | 75.0 (75.0–75.0) | 0.25 | 4.0 | 0 |"), "{table}");
        let beside = results.beside_the_paper();
        assert!(
            beside.contains("| 1 CS, 1 DS, full | 0.750 | 0.25, 0.25, 0.25, 0.25, 0.25, 0.25 |"),
            "{beside}"
        );
        assert_eq!(results.csv().lines().count(), 1 + Layout::ALL.len() * SIZES.len());
    }

    #[test]
    fn the_plot_names_the_layouts() {
        let svg = results().plot().expect("it has one").svg().expect("nothing but text is written");
        assert!(svg.contains("2 CS, 1 DS, full") && svg.contains("file, KiB"));
    }
}
