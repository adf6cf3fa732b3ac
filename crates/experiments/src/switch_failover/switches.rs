//! Three switches behind a router that spreads the flows over them (ECMP), with BIRD on all: BGP with BFD.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use switchback_lab::{Error, Host, Lab, Process, Result};

use super::super::tls_load;
use super::super::waiting::{wait, wait_until};
use super::faults::{Event, FLAP, Fault, Machines, cut_off};

/// The server of TLS connections' requests is the nodes' nginx.
const SERVER: &str = "127.0.0.1:80";
const READY: Duration = Duration::from_secs(30);
/// From the withdrawal of a switch to its end, as docs/scale-out.md has it.
const BEFORE_RESTART: Duration = Duration::from_secs(1);
/// The time in which a node that drains has to become free.
const DRAINED: Duration = Duration::from_secs(120);

pub(super) struct Switches<'a> {
    lab: &'a Lab,
    program: &'a Path,
    config: PathBuf,
    switches: Vec<Switch<'a>>,
    agents: Vec<Process>,
    /// So many switches, and agents, are not ended before the end.
    spared: usize,
}

struct Switch<'a> {
    host: &'a Host,
    switch: Process,
    bird: Process,
    announce: Process,
}

impl<'a> Switches<'a> {
    /// Starts agents and switches, and waits until the router uses all. The first `spared` switches and agents are not
    /// killed and not restarted.
    pub(super) fn start(lab: &'a Lab, program: &'a Path, spared: usize) -> Result<Switches<'a>> {
        let config = lab.write_config_text(&config())?;
        let agents = start_agents(lab, program, &config)?;
        let mut switches = Vec::new();
        for host in lab.switches() {
            host.set_xdp_port(true)?;
            let missing = || Error::NotFound(format!("{} has no BIRD", host.name()));
            let bird = host.process("bird").ok_or_else(missing)?;
            let switch = start_switch(host, program, &config)?;
            switches.push(Switch { host, switch, bird, announce: host.announce_when_ready(program)? });
        }
        let switches = Switches { lab, program, config, switches, agents, spared };
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

    /// The switches with their processes.
    pub(super) fn switches(&self) -> impl Iterator<Item = (&Host, &Process)> {
        self.switches.iter().map(|switch| (switch.host, &switch.switch))
    }

    /// The nodes with their agents.
    pub(super) fn agents(&self) -> impl Iterator<Item = (&Host, &Process)> {
        self.lab.nodes().zip(&self.agents)
    }

    /// Waits until the router's routes have all switches as next hops, or all but one.
    fn are_routed(&self, without: Option<usize>) -> Result<()> {
        let wanted: Vec<usize> = (0..self.switches.len()).filter(|index| Some(*index) != without).collect();
        self.routes_lead_to(&wanted)
    }

    fn routes_lead_to(&self, wanted: &[usize]) -> Result<()> {
        let vips = [self.lab.vip4().into(), self.lab.vip6().into()];
        let leads = |vip| Ok(self.lab.routed_switches(vip)? == wanted);
        let is_true = || Ok(leads(vips[0])? && leads(vips[1])?);
        wait_until(self.lab, &format!("routes to the switches {wanted:?}"), is_true)
    }

    fn command(&self, machine: usize, word: &str) -> Result<()> {
        tell_switch(self.switches[machine].host, self.program, word)
    }

    /// Tells a switch to drain a node, or to undrain it.
    fn tell(&self, switch: usize, words: &[&str], node: usize) -> Result<()> {
        let program = self.program.as_os_str();
        let words = words.iter().copied().chain([self.lab.node(node).name()]);
        let words = std::iter::once(program).chain(words.map(OsStr::new));
        self.switches[switch].host.run_within(DRAINED, words)?.success().map(drop)
    }
}

impl Machines for Switches<'_> {
    fn within(&self, fault: Fault) -> Range<usize> {
        match fault {
            Fault::Kill | Fault::Restart => self.spared..self.switches.len(),
            Fault::CutOff | Fault::Flap => 0..self.switches.len(),
            Fault::Drain => 0..self.agents.len(),
            Fault::RestartAgent => self.spared..self.agents.len(),
        }
    }

    fn target(&self, fault: Fault, place: usize) -> Result<usize> {
        let within = self.within(fault);
        Ok(within.start + place % within.len())
    }

    fn strike(
        &mut self,
        fault: Fault,
        machine: usize,
        away: Duration,
        note: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let (lab, host) = (self.lab, self.lab.switch(machine));
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
            // Any switch can tell any node.
            Fault::Drain => {
                note(Event::Drained);
                self.tell(machine, &["drain", "--no-wait"], machine)?;
                wait(lab, away)?;
                note(Event::Undrained);
                self.tell(machine, &["undrain"], machine)?;
            }
            Fault::RestartAgent => {
                note(Event::Drained);
                self.tell(machine, &["drain"], machine)?;
                note(Event::AgentRestarted);
                self.agents[machine].stop()?;
                let node = lab.node(machine);
                self.agents[machine] = spawn_agent(node, self.program, &self.config)?;
                self.agents[machine].wait_for_log("ready", READY)?;
                note(Event::Undrained);
                self.tell(machine, &["undrain"], machine)?;
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

pub(super) fn start_agents(lab: &Lab, program: &Path, config: &Path) -> Result<Vec<Process>> {
    let agents = lab.nodes().map(|node| spawn_agent(node, program, config)).collect::<Result<Vec<_>>>()?;
    agents.iter().try_for_each(|agent| agent.wait_for_log("ready", READY).map(drop))?;
    Ok(agents)
}

fn spawn_agent(node: &Host, program: &Path, config: &Path) -> Result<Process> {
    node.spawn("switchback-node", daemon(node, program, "node", config))
}

pub(super) fn start_switch(host: &Host, program: &Path, config: &Path) -> Result<Process> {
    let switch = host.spawn("switchback-switch", daemon(host, program, "switch", config))?;
    switch.wait_for_log("ready", READY)?;
    Ok(switch)
}

/// Withdraws the switch of a host (`drain`), or ends that (`undrain`).
pub(super) fn tell_switch(host: &Host, program: &Path, word: &str) -> Result<()> {
    let words = [program.as_os_str(), word.as_ref(), "--self".as_ref()];
    host.run(words)?.success().map(drop)
}

pub(super) fn config() -> String {
    let table = tls_load::service_table(SERVER, "");
    format!(
        "[cluster]\nkey_file = \"{{key_file}}\"\n\n{{nodes}}\n\
         [[pool]]\nname = \"web\"\nnodes = [{{node_names}}]\npolicy = \"round-robin\"\n\n\
         [[service]]\nname = \"plain\"\nlisten = [\"{{vip4}}:80\", \"[{{vip6}}]:80\"]\nroute = [{{ pool = \"web\" }}]\n\n\
         [[service]]\nname = \"tls\"\nlisten = [\"{{vip4}}:443\", \"[{{vip6}}]:443\"]\nroute = [{{ pool = \"web\" }}]\n\n{table}{{switches}}"
    )
}
