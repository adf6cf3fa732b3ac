//! Three switches behind a router that spreads the flows over them (ECMP), with BIRD on all: BGP with BFD.

use std::path::{Path, PathBuf};
use std::time::Duration;

use switchback_lab::{Error, Host, Lab, Process, Result};

use super::super::tls_load;
use super::faults::{Event, FLAP, Fault, Machines, cut_off, wait, wait_until};

/// The server of TLS connections' requests is the nodes' nginx.
const SERVER: &str = "127.0.0.1:80";
const READY: Duration = Duration::from_secs(30);
/// From the withdrawal of a switch to its end, as docs/scale-out.md has it.
const BEFORE_RESTART: Duration = Duration::from_secs(1);

pub(super) struct Switches<'a> {
    lab: &'a Lab,
    program: &'a Path,
    config: PathBuf,
    switches: Vec<Switch<'a>>,
    agents: Vec<Process>,
}

struct Switch<'a> {
    host: &'a Host,
    switch: Process,
    bird: Process,
    announce: Process,
}

impl<'a> Switches<'a> {
    /// Starts agents and switches, and waits until the router uses all.
    pub(super) fn start(lab: &'a Lab, program: &'a Path) -> Result<Switches<'a>> {
        let config = lab.write_config_text(&config())?;
        let mut agents = Vec::new();
        for node in lab.nodes() {
            let agent = daemon(node, program, "node", &config);
            agents.push(node.spawn("switchback-node", agent)?);
        }
        agents.iter().try_for_each(|agent| agent.wait_for_log("ready", READY).map(drop))?;
        let mut switches = Vec::new();
        for host in lab.switches() {
            host.set_xdp_port(true)?;
            let missing = || Error::NotFound(format!("{} has no BIRD", host.name()));
            let bird = host.process("bird").ok_or_else(missing)?;
            let switch = start_switch(host, program, &config)?;
            switches.push(Switch { host, switch, bird, announce: host.announce_when_ready(program)? });
        }
        let switches = Switches { lab, program, config, switches, agents };
        switches.are_routed(None)?;
        Ok(switches)
    }

    pub(super) fn stop(self) -> Result<()> {
        for Switch { switch, announce, .. } in &self.switches {
            announce.stop()?;
            switch.stop()?;
        }
        self.agents.iter().try_for_each(|agent| agent.stop().map(drop))?;
        self.routes_lead_to(&[])
    }

    /// Waits until the router's route has all switches as next hops, or all but one.
    fn are_routed(&self, without: Option<usize>) -> Result<()> {
        let wanted: Vec<usize> = (0..self.switches.len()).filter(|index| Some(*index) != without).collect();
        self.routes_lead_to(&wanted)
    }

    fn routes_lead_to(&self, wanted: &[usize]) -> Result<()> {
        let is_true = || Ok(self.lab.routed_switches(self.lab.vip4().into())? == wanted);
        wait_until(self.lab, &format!("routes to the switches {wanted:?}"), is_true)
    }

    fn command(&self, machine: usize, word: &str) -> Result<()> {
        let words = [self.program.as_os_str(), word.as_ref(), "--self".as_ref()];
        self.switches[machine].host.run(words)?.success().map(drop)
    }
}

impl Machines for Switches<'_> {
    fn count(&self) -> usize {
        self.switches.len()
    }

    fn target(&self, index: usize) -> Result<usize> {
        Ok(index % self.switches.len())
    }

    fn strike(
        &mut self,
        fault: Fault,
        machine: usize,
        away: Duration,
        note: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let (lab, host) = (self.lab, self.switches[machine].host);
        match fault {
            Fault::Kill => {
                note(Event::Killed);
                let Switch { switch, bird, announce, .. } = &self.switches[machine];
                [announce, bird, switch].into_iter().try_for_each(|process| process.kill().map(drop))?;
                wait(lab, away)?;
                note(Event::AddedBack);
                let bird = host.bird()?;
                let announce = host.announce_when_ready(self.program)?;
                let switch = start_switch(host, self.program, &self.config)?;
                self.switches[machine] = Switch { host, switch, bird, announce };
            }
            Fault::CutOff => cut_off(lab, host, away, note)?,
            Fault::Restart => {
                note(Event::Restarted);
                self.command(machine, "drain")?;
                self.are_routed(Some(machine))?;
                wait(lab, BEFORE_RESTART)?;
                self.switches[machine].switch.stop()?;
                self.switches[machine].switch = start_switch(host, self.program, &self.config)?;
                self.command(machine, "undrain")?;
            }
            Fault::Flap => {
                note(Event::Withdrawn);
                self.command(machine, "drain")?;
                self.are_routed(Some(machine))?;
                wait(lab, FLAP)?;
                note(Event::BackAtOnce);
                self.command(machine, "undrain")?;
            }
        }
        self.are_routed(None)
    }
}

fn daemon(host: &Host, program: &Path, role: &str, config: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.args([role, "--name", host.name(), "--interface", "eth0", "--config"]).arg(config);
    command
}

fn start_switch(host: &Host, program: &Path, config: &Path) -> Result<Process> {
    let switch = host.spawn("switchback-switch", daemon(host, program, "switch", config))?;
    switch.wait_for_log("ready", READY)?;
    Ok(switch)
}

fn config() -> String {
    let table = tls_load::service_table(SERVER, "");
    format!(
        "[cluster]\nkey_file = \"{{key_file}}\"\n\n{{nodes}}\n\
         [[pool]]\nname = \"web\"\nnodes = [{{node_names}}]\npolicy = \"round-robin\"\n\n\
         [[service]]\nname = \"plain\"\nlisten = [\"{{vip4}}:80\"]\nroute = [{{ pool = \"web\" }}]\n\n\
         [[service]]\nname = \"tls\"\nlisten = [\"{{vip4}}:443\"]\nroute = [{{ pool = \"web\" }}]\n\n{table}{{switches}}"
    )
}
