//! Switches whose addresses BIRD announces to the lab's router.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use switchback_lab::{Host, Lab, Process};

use super::{PATIENCE, PROGRAM, Result, start_daemon, status, wait_until};

/// The processes of a switch.
pub struct Switch<'a> {
    pub host: &'a Host,
    config: PathBuf,
    pub switch: Process,
    bird: Process,
    announce: Process,
}

impl<'a> Switch<'a> {
    pub fn start(host: &'a Host, config: &Path) -> Result<Switch<'a>> {
        Ok(Switch {
            host,
            config: config.to_owned(),
            switch: start_daemon(host, "switch", config)?,
            bird: host.process("bird").ok_or("BIRD does not run")?,
            announce: host.announce_when_ready(Path::new(PROGRAM))?,
        })
    }

    /// As if the machine had died, but for its XDP program.
    pub fn kill(&mut self) -> Result {
        [&self.announce, &self.bird, &self.switch].into_iter().try_for_each(|process| {
            process.kill()?;
            Ok(())
        })
    }

    pub fn start_again(&mut self) -> Result {
        self.bird = self.host.bird()?;
        self.announce = self.host.announce_when_ready(Path::new(PROGRAM))?;
        self.switch = start_daemon(self.host, "switch", &self.config)?;
        Ok(())
    }

    /// Requests that it has given to nodes since its start.
    pub fn requests(&self) -> Result<u64> {
        let status = status(self.host)?;
        let nodes = status["nodes"].as_array().ok_or("no nodes")?;
        Ok(nodes.iter().filter_map(|node| node["requests"].as_u64()).sum())
    }
}

/// Waits until the router's routes to both VIPs lead to these switches; how long that took.
pub fn routes_lead_to(lab: &Lab, switches: &[usize]) -> Result<Duration> {
    let start = Instant::now();
    let vips: [IpAddr; 2] = [lab.vip4().into(), lab.vip6().into()];
    let routes = || Ok([lab.routed_switches(vips[0])?, lab.routed_switches(vips[1])?]);
    wait_until("the routes", PATIENCE, routes, |routes| routes.iter().all(|there| there == switches))?;
    Ok(start.elapsed())
}
