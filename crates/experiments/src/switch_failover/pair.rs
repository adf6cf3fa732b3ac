//! Two switches, of which keepalived gives one the packets: VRRP moves addresses to which the router's routes to the VIPs
//! lead (packaging/keepalived/routed.conf).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use switchback_lab::{Doing, Error, Host, Lab, Process, Result};

use super::super::waiting::{wait, wait_until};
use super::faults::{Event, FLAP, Fault, Machines, cut_off};
use super::keepalived::{self, State};
use super::switches::{config, start_agents, start_switch, tell_switch};

const SWITCHES: usize = 2;
const CONF: &str = include_str!("../../../../packaging/keepalived/routed.conf");
/// The addresses that it moves.
const NEXT_HOPS: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(192, 0, 2, 5), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5));

pub(super) struct Pair<'a> {
    lab: &'a Lab,
    program: &'a Path,
    config: PathBuf,
    switches: Vec<Switch<'a>>,
    agents: Vec<Process>,
}

struct Switch<'a> {
    host: &'a Host,
    switch: Process,
    keepalived: Process,
}

impl<'a> Pair<'a> {
    /// Starts agents and switches, and waits until one switch has the address.
    pub(super) fn start(lab: &'a Lab, program: &'a Path) -> Result<Pair<'a>> {
        let config = lab.write_config_text(&config())?;
        let agents = start_agents(lab, program, &config)?;
        let mut switches = Vec::new();
        for host in lab.switches().take(SWITCHES) {
            host.set_xdp_port(true)?;
            let switch = start_switch(host, program, &config)?;
            write_conf(host, program)?;
            switches.push(Switch { host, switch, keepalived: keepalived::start(host)? });
        }
        let pair = Pair { lab, program, config, switches, agents };
        pair.route("replace")?;
        pair.has_backup()?;
        Ok(pair)
    }

    pub(super) fn stop(self) -> Result<()> {
        self.route("del")?;
        for Switch { switch, keepalived, .. } in &self.switches {
            keepalived.stop()?;
            switch.stop()?;
        }
        self.agents.iter().try_for_each(|agent| agent.stop().map(drop))
    }

    fn route(&self, verb: &str) -> Result<()> {
        let router = self.lab.router().ok_or_else(|| Error::NotFound("no router".to_owned()))?;
        let (vip4, vip6): (IpAddr, IpAddr) = (self.lab.vip4().into(), self.lab.vip6().into());
        for (vip, hop) in [(vip4, IpAddr::from(NEXT_HOPS.0)), (vip6, NEXT_HOPS.1.into())] {
            router.run(["ip", "route", verb, &vip.to_string(), "via", &hop.to_string()])?.success()?;
        }
        Ok(())
    }

    fn masters(&self) -> Result<Vec<usize>> {
        keepalived::holders(self.switches.iter().map(|switch| switch.host), NEXT_HOPS.0)
    }

    /// Waits until one switch is master and the other could be.
    fn has_backup(&self) -> Result<()> {
        wait_until(self.lab, "a master and a backup", || {
            let states = self.switches.iter().map(|switch| keepalived::state(&switch.keepalived));
            let mut states: Vec<Option<State>> = states.collect();
            states.sort_unstable();
            Ok(states == [Some(State::Master), Some(State::Backup)] && self.masters()?.len() == 1)
        })
    }

    /// Withdraws a switch, and waits until it does not have the addresses.
    fn withdraw(&self, machine: usize) -> Result<()> {
        self.command(machine, "drain")?;
        wait_until(self.lab, "another master", || Ok(!self.masters()?.contains(&machine)))
    }

    fn command(&self, machine: usize, word: &str) -> Result<()> {
        tell_switch(self.switches[machine].host, self.program, word)
    }
}

impl Machines for Pair<'_> {
    fn within(&self, _fault: Fault) -> Range<usize> {
        0..self.switches.len()
    }

    /// The master.
    fn target(&self, _fault: Fault, _place: usize) -> Result<usize> {
        self.masters()?.first().copied().ok_or_else(|| Error::NotFound("no switch is master".to_owned()))
    }

    fn strike(
        &mut self,
        fault: Fault,
        machine: usize,
        away: std::time::Duration,
        note: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let (lab, host) = (self.lab, self.switches[machine].host);
        match fault {
            Fault::Kill => {
                note(Event::Killed);
                let Switch { switch, keepalived, .. } = &self.switches[machine];
                keepalived::kill(host, keepalived, NEXT_HOPS)?;
                switch.kill()?;
                wait(lab, away)?;
                note(Event::AddedBack);
                let switch = start_switch(host, self.program, &self.config)?;
                self.switches[machine] = Switch { host, switch, keepalived: keepalived::start(host)? };
            }
            Fault::CutOff => cut_off(lab, host, away, note)?,
            Fault::Restart => {
                note(Event::Restarted);
                self.withdraw(machine)?;
                self.switches[machine].switch.stop()?;
                self.switches[machine].switch = start_switch(host, self.program, &self.config)?;
                self.command(machine, "undrain")?;
            }
            Fault::Flap => {
                note(Event::Withdrawn);
                self.withdraw(machine)?;
                wait(lab, FLAP)?;
                note(Event::BackAtOnce);
                self.command(machine, "undrain")?;
            }
            Fault::Drain | Fault::RestartAgent => {
                return Err(Error::Invalid("a pair of switches has faults of switches only".to_owned()));
            }
        }
        self.has_backup()
    }
}

/// The file of packaging/keepalived. Where the lab and its programs are, others than root may write.
fn write_conf(host: &Host, program: &Path) -> Result<()> {
    let text = CONF.replace("    enable_script_security\n", "");
    let text = text.replace("/usr/bin/switchback", &program.display().to_string());
    let path = host.directory().join("keepalived.conf");
    fs::write(&path, text).doing(|| format!("write {}", path.display()))
}
