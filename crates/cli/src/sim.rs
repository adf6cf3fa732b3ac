//! `sim`: clusters under a virtual clock.

mod report;

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use switchback_sim::experiments::{self, Mix, Models, Needs, Policies, Report, Split, Step};
use switchback_sim::scenario::{Costs, Scenario};
use switchback_sim::{Outcome, ScenarioError, simulate};

use crate::failure::Failure;

/// Simulate clusters of any size, with the dispatch code of the switch
#[derive(Subcommand)]
pub enum Sim {
    Run(Run),
    Tls(Tls),
    Split(SplitServers),
    Policies(AllPolicies),
    Plan(Plan),
}

impl Sim {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Sim::Run(command) => command.run(),
            Sim::Tls(command) => command.run(),
            Sim::Split(command) => command.run(),
            Sim::Policies(command) => command.run(),
            Sim::Plan(command) => command.run(),
        }
    }
}

/// Simulate what a file describes
///
/// Prints what was measured, with intervals of 95 % over the replications. The same file gives the same numbers, on
/// every machine.
#[derive(Args)]
pub struct Run {
    /// The scenario, in TOML
    scenario: PathBuf,
    /// Print JSON: for each number its mean and half of its interval
    #[arg(long)]
    json: bool,
    /// Write the numbers of every replication as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Run {
    fn run(self) -> Result<(), Failure> {
        let scenario = Scenario::load(&self.scenario)?;
        let bar = Shown::new("sim run");
        bar.expect(scenario.replications);
        let begin = Instant::now();
        let outcomes = simulate(&scenario, || bar.step())?;
        drop(bar);
        let events = outcomes.iter().map(|outcome| outcome.events).sum::<u64>() as f64 / 1e6;
        let seconds = begin.elapsed().as_secs_f64();
        eprintln!("{events:.1} million events in {seconds:.1} s: {:.1} million/s", events / seconds);
        if self.json {
            println!("{}", report::json(&outcomes));
        } else {
            print!("{}", report::text(&outcomes));
        }
        if let Some(path) = &self.csv {
            let names = Outcome::default().numbers().map(|(name, _)| name).join(",");
            let line = |outcome: &Outcome| outcome.numbers().map(|(_, value)| value.to_string()).join(",");
            let lines: Vec<String> = outcomes.iter().map(line).collect();
            write(path, &format!("{names}\n{}\n", lines.join("\n")))?;
        }
        Ok(())
    }
}

/// What every series of scenarios can be told.
#[derive(Args)]
struct Series {
    /// Of the first replication; each other one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each scenario is run
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    replications: u32,
    /// What packets, requests and handshakes cost: [costs] of a file in TOML, as `lab run calibrate` writes it
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "bench-out")]
    output: PathBuf,
}

impl Series {
    /// The costs of the file, or else the given ones.
    fn costs_or(&self, otherwise: Costs) -> Result<Costs, Failure> {
        match &self.costs {
            Some(path) => Ok(Scenario::load(path)?.costs),
            None => Ok(otherwise),
        }
    }

    fn show(
        &self,
        name: &'static str,
        run: impl FnOnce(experiments::Progress<'_>) -> Result<Report, ScenarioError>,
    ) -> Result<(), Failure> {
        let report = with_progress(name, run)?;
        print!("{}", report.markdown);
        fs::create_dir_all(&self.output)
            .map_err(|error| Failure::system(format!("create {}: {error}", self.output.display())))?;
        let path = |name: &str, ending: &str| self.output.join(format!("{name}.{ending}"));
        write(&path(name, "csv"), &report.csv())?;
        write(&path(name, "md"), &report.markdown)?;
        plot(&report, |picture, ending| {
            path(&if picture.is_empty() { name.to_owned() } else { format!("{name}-{picture}") }, ending)
        })
    }
}

/// Writes the plots of a report as SVG and PNG, to `path(name, extension)`.
#[cfg(feature = "experiments")]
fn plot(report: &Report, path: impl Fn(&str, &str) -> PathBuf) -> Result<(), Failure> {
    use switchback_plot::{COLORS, Curve, Lines, Plot, PlotError};

    for picture in &report.curves {
        let curves = picture.curves.iter().zip(COLORS).map(|(curve, color)| Curve {
            name: curve.name.clone(),
            color,
            dashed: false,
            points: curve.points.clone(),
        });
        let plot = Plot::Lines(Lines {
            title: picture.title.clone(),
            x_title: report.axis,
            y_title: picture.y_title,
            is_logarithmic: picture.is_logarithmic,
            margin: 1,
            curves: curves.collect(),
        });
        let failed = |error: PlotError| Failure::system(error.to_string());
        write(&path(picture.name, "svg"), &plot.svg().map_err(failed)?)?;
        let png = path(picture.name, "png");
        plot.png(&png).map_err(failed)?;
        eprintln!("{} written", png.display());
    }
    Ok(())
}

/// Reports that the plots are missing.
#[cfg(not(feature = "experiments"))]
fn plot(_: &Report, _: impl Fn(&str, &str) -> PathBuf) -> Result<(), Failure> {
    eprintln!("no plots: this program was built without the cargo feature `experiments`");
    Ok(())
}

/// Figures 2 and 3 of "SSL with backend forwarding": 16 nodes, arrivals that come closer, all models
///
/// Prints Markdown tables; the output directory gets sim-tls.md and .csv, and plots of latency and throughput.
#[derive(Args)]
pub struct Tls {
    /// Requests of each replication
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: u32,
    /// What the application computes for a page, on average, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1000.0)]
    page_us: f64,
    /// How many clients there are
    #[arg(long, value_name = "N", default_value_t = 1000)]
    clients: u32,
    /// The exponent of Zipf's law, by which some clients come oftener; 0: all alike
    #[arg(long, default_value_t = 0.5)]
    skew: f64,
    #[command(flatten)]
    series: Series,
}

impl Tls {
    fn run(self) -> Result<(), Failure> {
        let Tls { requests, page_us, clients, skew, series } = self;
        let Series { seed, replications, .. } = series;
        let costs = series.costs_or(Models::default().costs)?;
        let models = Models { seed, replications, requests, costs, page_us, clients: (clients, skew) };
        series.show("sim-tls", |progress| experiments::tls(&models, progress))
    }
}

/// How many data servers a connection server can serve, and where the knee is
///
/// Prints Markdown tables; the output directory gets sim-split.md, .csv, .svg and .png.
#[derive(Args)]
pub struct SplitServers {
    /// Length of each response in bytes
    #[arg(long, default_value_t = 65_536.0)]
    bytes: f64,
    /// The link of every machine, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 1000.0)]
    link_mbit: f64,
    /// At most so many data servers
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    most: u32,
    #[command(flatten)]
    series: Series,
}

impl SplitServers {
    fn run(self) -> Result<(), Failure> {
        let SplitServers { bytes, link_mbit, most, series } = self;
        let Series { seed, replications, .. } = series;
        let costs = series.costs_or(Costs::default())?;
        let split = Split { seed, replications, costs, bytes, link_mbit, most, ..Split::default() };
        series.show("sim-split", |progress| experiments::split(&split, progress))
    }
}

/// Every policy over load
///
/// Prints Markdown tables; the output directory gets sim-policies.md, .csv, .svg and .png.
#[derive(Args)]
pub struct AllPolicies {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    nodes: u32,
    /// What they are like
    #[arg(long, default_value = "alike")]
    mix: Kinds,
    /// Choices that the switch makes ahead of their requests; hash makes none
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=128))]
    ahead: u32,
    /// Requests of each replication; 2,000 for each node at the least
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: u32,
    #[command(flatten)]
    series: Series,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kinds {
    /// All have the same speed
    Alike,
    /// Half of them have half the speed, which the switch has not been told
    HalfSlow,
}

impl AllPolicies {
    fn run(self) -> Result<(), Failure> {
        let AllPolicies { nodes, mix, ahead, requests, series } = self;
        let mix = match mix {
            Kinds::Alike => Mix::Alike,
            Kinds::HalfSlow => Mix::HalfSlow,
        };
        let policies =
            Policies { seed: series.seed, replications: series.replications, requests, nodes, mix, ahead };
        series.show("sim-policies", |progress| experiments::policies(&policies, progress))
    }
}

/// How many nodes and switches a load takes, and what saturates first
///
/// The file describes the load, one kind of node and the switch; their numbers are what is looked for.
#[derive(Args)]
pub struct Plan {
    /// The scenario, in TOML
    scenario: PathBuf,
    /// 99 of 100 requests are to be answered within this
    #[arg(long, value_name = "MS")]
    p99_ms: f64,
    /// How much of a processor or a link may be in use, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 70)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    most: u32,
    /// Look no further than this
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes_max: u32,
}

impl Plan {
    fn run(self) -> Result<(), Failure> {
        let Plan { scenario, p99_ms, most, nodes_max } = self;
        let scenario = Scenario::load(&scenario)?;
        let needs = Needs { scenario, p99_ms, most: f64::from(most) / 100.0, nodes_max };
        match with_progress("sim plan", |progress| experiments::plan(&needs, progress))? {
            Some(plan) => {
                print!("{}", plan.markdown());
                Ok(())
            }
            None => Err(Failure::invalid(format!(
                "even {nodes_max} nodes do not answer 99 of 100 requests within {p99_ms} ms with {most} % in use; a request \
                 alone may take longer, or one switch cannot be spared"
            ))),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::system(format!("write {}: {error}", path.display())))?;
    eprintln!("{} written", path.display());
    Ok(())
}

fn with_progress<T>(
    name: &'static str,
    run: impl FnOnce(experiments::Progress<'_>) -> Result<T, ScenarioError>,
) -> Result<T, Failure> {
    let shown = Shown::new(name);
    let result = run(&|what, step| match step {
        Step::Begins(replications) => shown.begin(what, replications),
        Step::Done => shown.step(),
    });
    drop(shown);
    Ok(result?)
}

/// Progress on a terminal.
struct Shown(Option<ProgressBar>);

impl Shown {
    fn new(name: &'static str) -> Shown {
        let style = ProgressStyle::with_template("{prefix} {bar:40} {pos} of {len} replications: {msg}");
        let style = style.expect("the template is well-formed");
        let bar = || ProgressBar::new(0).with_style(style).with_prefix(name);
        Shown(stderr().is_terminal().then(bar))
    }

    fn begin(&self, what: &str, replications: u32) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
        self.expect(replications);
    }

    fn expect(&self, replications: u32) {
        if let Some(bar) = &self.0 {
            bar.inc_length(replications.into());
        }
    }

    fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
