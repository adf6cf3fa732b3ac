//! `lab run`: measurements on labs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use switchback_lab::Error;
use switchback_lab::experiment::proxies::{self, Options};

use crate::failure::Failure;

/// The exit status after ^C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Make a lab, measure, remove it
#[derive(Subcommand)]
pub enum Run {
    Proxies(Proxies),
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Run::Proxies(command) => command.run(),
        }
    }
}

/// Compare Switchback with HAProxy, nginx and the direct way to a node
///
/// Prints a Markdown table; the output directory gets proxies.md, with facts about the machine, and proxies.csv
/// with every single measurement. Takes 16 loads for each repetition. Needs root, haproxy, nginx and wrk.
#[derive(Args)]
pub struct Proxies {
    /// How long each load lasts
    #[arg(long, default_value_t = proxies::DEFAULT_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often each load is repeated
    #[arg(long, value_name = "N", default_value_t = proxies::DEFAULT_REPETITIONS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "bench-out")]
    output: PathBuf,
}

impl Proxies {
    fn run(self) -> Result<(), Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::system(format!("find this program's own file: {error}")))?;
        let options = Options { seconds: self.seconds, repetitions: self.repetitions, program };
        let results =
            proxies::run(&options, &mut |line| eprintln!("{line}")).map_err(|error| match error {
                // ^C; there is nothing to say.
                Error::TornDown => Failure::silent(INTERRUPTED),
                error => error.into(),
            })?;
        print!("{}", results.table());
        let files = [("proxies.csv", results.csv()), ("proxies.md", results.markdown())];
        files.iter().try_for_each(|(name, text)| write(&self.output, name, text))
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
