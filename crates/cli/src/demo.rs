//! `lab demo`: a cluster on this machine, with one connection whose requests go to all of its nodes, and a load. It
//! compares the bytes through the switch with those past it.

mod report;
mod scene;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;

use crate::failure::Failure;
use report::Load;
use scene::Scene;

/// The tools of the demonstration, and their Debian packages.
const TOOLS: [(&str, &str); 6] = [
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("curl", "curl"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
];

/// The exit status after SIGINT, as shells report it.
const INTERRUPTED: u8 = 130;

/// Show one client, one switch and three nodes at work
///
/// Makes a lab, starts nginx on the nodes, sends requests and measures. Removes everything at its end. Needs
/// root.
#[derive(Args)]
pub struct Demo {
    /// How long the load of small requests lasts, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20))]
    load: u32,
}

impl Demo {
    pub fn run(self) -> Result<(), Failure> {
        check_machine()?;
        let scene = Scene::set_up()?;
        if let Err(failure) = self.show(&scene) {
            // ^C takes the lab down, so later failures are not reported.
            if scene.is_gone() {
                return Err(Failure::silent(INTERRUPTED));
            }
            eprint!("{}", scene.logs());
            return Err(failure);
        }
        Ok(scene.end()?)
    }

    fn show(&self, scene: &Scene) -> Result<(), Failure> {
        println!("{}", scene.describe());
        println!("\nOne curl process, one request after the other:\n");
        print!("{}", report::connection(&scene.one_connection()?));

        println!(
            "\nLoad: {} s of small requests on 16 connections, then 50 documents of 1 MiB.\n",
            self.load
        );
        let small = scene.measure("/small", || scene.small_requests(self.load))?;
        let large = scene.measure("1 MiB", || scene.large_requests().map(|()| report::Latency::default()))?;
        let loads: [Load; 2] = [small, large];
        print!("{}", report::loads(&loads));
        println!("\n{}", report::what_to_notice(&loads));
        Ok(())
    }
}

/// Reports missing tools and rights before the lab is made.
fn check_machine() -> Result<(), Failure> {
    // The owner of a process's directory in /proc is its effective user.
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() != 0) {
        return Err(Failure::system("the demonstration makes network namespaces and needs root; use sudo"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |tool: &str| std::env::split_paths(&path).any(|directory| exists(&directory.join(tool)));
    let missing: Vec<(&str, &str)> = TOOLS.into_iter().filter(|(tool, _)| !installed(tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (tools, packages): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
    Err(Failure::system(format!(
        "the demonstration needs {}; apt-get install {}",
        tools.join(", "),
        packages.join(" ")
    )))
}

fn exists(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file())
}
