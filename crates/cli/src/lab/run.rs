//! `lab run`: measurements on labs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use switchback_lab::Error;
use switchback_lab::experiment::{
    Options, accept_queue, mini_cluster, proxies, session_cost, split_acks, split_scaling,
};

use crate::failure::Failure;

/// The exit status after ^C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Make a lab, measure, remove it
#[derive(Subcommand)]
pub enum Run {
    Proxies(Proxies),
    AcceptQueue(AcceptQueue),
    SessionCost(SessionCost),
    SplitScaling(SplitScaling),
    SplitAcks(SplitAcks),
    MiniCluster(MiniCluster),
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Run::Proxies(command) => command.run(),
            Run::AcceptQueue(command) => command.run(),
            Run::SessionCost(command) => command.run(),
            Run::SplitScaling(command) => command.run(),
            Run::SplitAcks(command) => command.run(),
            Run::MiniCluster(command) => command.run(),
        }
    }
}

/// How long and how often the loads of an experiment run, by its own defaults. A macro, because clap keeps one default for
/// all instances of a generic type.
macro_rules! loads {
    ($name:ident, $experiment:ident) => {
        #[derive(Args)]
        struct $name {
            /// How long each load lasts
            #[arg(long, default_value_t = $experiment::DEFAULT_SECONDS)]
            #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
            seconds: u32,
            /// How often each load is repeated
            #[arg(long, value_name = "N", default_value_t = $experiment::DEFAULT_REPETITIONS)]
            #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
            repetitions: u32,
            /// Where the files go
            #[arg(long, value_name = "DIR", default_value = "bench-out")]
            output: PathBuf,
        }

        impl $name {
            fn options(&self) -> Result<Options, Failure> {
                Ok(Options { seconds: self.seconds, repetitions: self.repetitions, program: own_program()? })
            }
        }
    };
}

loads!(ProxyLoads, proxies);
loads!(SessionCostLoads, session_cost);
loads!(SplitScalingLoads, split_scaling);
loads!(SplitAcksLoads, split_acks);
loads!(MiniClusterLoads, mini_cluster);

/// Compare Switchback with HAProxy, nginx and the direct way to a node
///
/// Prints a Markdown table; the output directory gets proxies.md, with facts about the machine, and proxies.csv
/// with every single measurement. Takes 16 loads for each repetition. Needs root, haproxy, nginx and wrk.
#[derive(Args)]
pub struct Proxies {
    #[command(flatten)]
    loads: ProxyLoads,
}

impl Proxies {
    fn run(self) -> Result<(), Failure> {
        let results = proxies::run(&self.loads.options()?, &mut show_progress).map_err(failure)?;
        print!("{}", results.table());
        let files = [("proxies.csv", results.csv()), ("proxies.md", results.markdown())];
        files.iter().try_for_each(|(name, text)| write(&self.loads.output, name, text))
    }
}

/// Compare policies on two servers with short accept queues, as the paper on them did
///
/// One client opens connections at random times, which nftables and the policies random (with and without a look
/// at the queue), fill and accept-queue give to the servers in turn. Prints a Markdown table; the output directory gets accept-queue.md, with facts about the
/// machine, accept-queue.csv with every single measurement, and a plot of the average connection times as
/// accept-queue.svg and accept-queue.png. Needs root, apache2, nft and the DejaVu fonts.
#[derive(Args)]
pub struct AcceptQueue {
    /// Numbers of connections
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    #[arg(default_values_t = accept_queue::DEFAULT_CONNECTIONS)]
    #[arg(value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    connections: Vec<u32>,
    /// Within how many seconds the connections begin
    #[arg(long, default_value_t = accept_queue::DEFAULT_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often each load is repeated
    #[arg(long, value_name = "N", default_value_t = accept_queue::DEFAULT_REPETITIONS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Where the files go
    #[arg(long, alias = "out", value_name = "DIR", default_value = "bench-out")]
    output: PathBuf,
}

impl AcceptQueue {
    fn run(self) -> Result<(), Failure> {
        let options = accept_queue::Options {
            connections: self.connections,
            seconds: self.seconds,
            repetitions: self.repetitions,
            program: own_program()?,
        };
        let results = accept_queue::run(&options, &mut show_progress).map_err(failure)?;
        print!("{}", results.table());
        let texts = [("csv", results.csv()), ("md", results.markdown()), ("svg", results.plot_svg()?)];
        write_plotted(&self.output, "accept-queue", &texts, |path| results.plot_png(path))
    }
}

/// Measure what session persistence costs nodes and switch
///
/// The same requests and responses with each mode and without, in turn. Prints a Markdown table; the output directory gets
/// session-cost.md, with facts about the machine, and session-cost.csv with every single measurement. Needs root, nginx
/// and wrk.
#[derive(Args)]
pub struct SessionCost {
    #[command(flatten)]
    loads: SessionCostLoads,
}

impl SessionCost {
    fn run(self) -> Result<(), Failure> {
        let results = session_cost::run(&self.loads.options()?, &mut show_progress).map_err(failure)?;
        print!("{}", results.table());
        let files = [("session-cost.csv", results.csv()), ("session-cost.md", results.markdown())];
        files.iter().try_for_each(|(name, text)| write(&self.loads.output, name, text))
    }
}

/// Measure how many data servers one connection server can serve
///
/// Responses of 64 KiB from 1 to 8 data servers behind links of 100 Mbit/s. Prints a Markdown table and the paper's figures;
/// the output directory gets split-scaling.md, .csv, .svg and .png. Needs root, nginx, wrk and the DejaVu fonts.
#[derive(Args)]
pub struct SplitScaling {
    #[command(flatten)]
    loads: SplitScalingLoads,
}

impl SplitScaling {
    fn run(self) -> Result<(), Failure> {
        let results = split_scaling::run(&self.loads.options()?, &mut show_progress).map_err(failure)?;
        print!("{}\n{}\n", results.table(), results.beside_the_paper());
        let texts = [("csv", results.csv()), ("md", results.markdown()), ("svg", results.plot_svg()?)];
        write_plotted(&self.loads.output, "split-scaling", &texts, |path| results.plot_png(path))
    }
}

/// Measure what it brings to send acknowledgments past the connection server, and fewer of them
///
/// Downloads of 1 MiB without a shim on the client, with one, and with one that leaves acknowledgments out. Prints a
/// Markdown table and the paper's figure; the output directory gets split-acks.md, .csv, .svg and .png. Needs root, nginx,
/// wrk and the DejaVu fonts.
#[derive(Args)]
pub struct SplitAcks {
    #[command(flatten)]
    loads: SplitAcksLoads,
}

impl SplitAcks {
    fn run(self) -> Result<(), Failure> {
        let results = split_acks::run(&self.loads.options()?, &mut show_progress).map_err(failure)?;
        print!("{}\n{}\n", results.table(), results.beside_the_paper());
        let texts = [("csv", results.csv()), ("md", results.markdown()), ("svg", results.plot_svg()?)];
        write_plotted(&self.loads.output, "split-acks", &texts, |path| results.plot_png(path))
    }
}

/// Compare machines that are connection and data servers with as many servers that are not
///
/// The paper's configurations 1, 2 and 3 with full and partial delegation, files of 4 to 128 KiB. Prints a Markdown table
/// and the paper's figures; the output directory gets mini-cluster.md, .csv, .svg and .png. Needs root, nginx, wrk and the
/// DejaVu fonts.
#[derive(Args)]
pub struct MiniCluster {
    #[command(flatten)]
    loads: MiniClusterLoads,
}

impl MiniCluster {
    fn run(self) -> Result<(), Failure> {
        let results = mini_cluster::run(&self.loads.options()?, &mut show_progress).map_err(failure)?;
        print!("{}\n{}\n", results.table(), results.beside_the_paper());
        let texts = [("csv", results.csv()), ("md", results.markdown()), ("svg", results.plot_svg()?)];
        write_plotted(&self.loads.output, "mini-cluster", &texts, |path| results.plot_png(path))
    }
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::system(format!("find this program's own file: {error}")))
}

fn show_progress(line: &str) {
    eprintln!("{line}");
}

fn failure(error: Error) -> Failure {
    match error {
        // ^C; there is nothing to say.
        Error::TornDown => Failure::silent(INTERRUPTED),
        error => error.into(),
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::system(format!("write {}: {error}", path.display())))?;
    eprintln!("{} written", path.display());
    Ok(())
}

/// The texts by their endings, and the plot as a picture.
fn write_plotted(
    directory: &Path,
    stem: &str,
    texts: &[(&str, String)],
    picture: impl FnOnce(&Path) -> switchback_lab::Result<()>,
) -> Result<(), Failure> {
    texts.iter().try_for_each(|(ending, text)| write(directory, &format!("{stem}.{ending}"), text))?;
    let path = directory.join(format!("{stem}.png"));
    picture(&path)?;
    eprintln!("{} written", path.display());
    Ok(())
}
