//! The system for comparison: HAProxy on two machines, of which keepalived gives one the VIP (VRRP), with the times of
//! packaging/keepalived.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use switchback_lab::{Doing, Error, Host, Lab, Process, Result};

use super::super::tls_load::BOTH;
use super::super::waiting::{wait, wait_until};
use super::faults::{Event, FLAP, Fault, Machines, cut_off};
use super::keepalived;

/// Number of the machines.
const MACHINES: usize = 2;
/// Processes of HAProxy on a machine. They listen on the same ports, and the kernel spreads the connections over them:
/// the limit of open files may allow one no more than some ten thousand connections, each of which may need two.
const PROCESSES: usize = 3;
const MAXCONN: usize = 9000;
const READY: Duration = Duration::from_secs(30);
const PORTS: [u16; 2] = [80, 443];

pub(super) struct Balancers<'a> {
    lab: &'a Lab,
    machines: Vec<Machine<'a>>,
}

struct Machine<'a> {
    host: &'a Host,
    haproxy: Vec<Process>,
    keepalived: Process,
}

impl<'a> Balancers<'a> {
    /// Starts both machines, and waits until one has the VIP.
    pub(super) fn start(lab: &'a Lab) -> Result<Balancers<'a>> {
        let mut machines = Vec::new();
        for host in lab.switches().take(MACHINES) {
            // It would disable the machine's offloads.
            host.set_xdp_port(false)?;
            // Both listen at the VIP, and one has it.
            host.sysctl(&[("ipv4/ip_nonlocal_bind", "1"), ("ipv6/ip_nonlocal_bind", "1")])?;
            write_files(lab, host)?;
            let haproxy = start_haproxy(lab, host)?;
            machines.push(Machine { host, haproxy, keepalived: keepalived::start(host)? });
        }
        let balancers = Balancers { lab, machines };
        balancers.have_one_master()?;
        Ok(balancers)
    }

    pub(super) fn stop(self) -> Result<()> {
        for Machine { haproxy, keepalived, .. } in &self.machines {
            keepalived.stop()?;
            haproxy.iter().try_for_each(|process| process.stop().map(drop))?;
        }
        Ok(())
    }

    /// The machines with the VIP.
    fn masters(&self) -> Result<Vec<usize>> {
        keepalived::holders(self.machines.iter().map(|machine| machine.host), self.lab.vip4())
    }

    fn have_one_master(&self) -> Result<()> {
        wait_until(self.lab, "one machine with the VIP", || Ok(self.masters()?.len() == 1))
    }
}

impl Machines for Balancers<'_> {
    fn within(&self, _fault: Fault) -> Range<usize> {
        0..self.machines.len()
    }

    /// The one with the VIP: a fault of the other one harms nobody.
    fn target(&self, _fault: Fault, _place: usize) -> Result<usize> {
        self.masters()?.first().copied().ok_or_else(|| Error::NotFound("nobody has the VIP".to_owned()))
    }

    fn strike(
        &mut self,
        fault: Fault,
        machine: usize,
        away: Duration,
        note: &mut dyn FnMut(Event),
    ) -> Result<()> {
        let lab = self.lab;
        let Machine { host, haproxy, keepalived } = &mut self.machines[machine];
        match fault {
            Fault::Kill => {
                note(Event::Killed);
                keepalived::kill(host, keepalived, (lab.vip4(), lab.vip6()))?;
                haproxy.iter().try_for_each(|process| process.kill().map(drop))?;
                wait(lab, away)?;
                note(Event::AddedBack);
                *haproxy = start_haproxy(lab, host)?;
                *keepalived = keepalived::start(host)?;
            }
            Fault::CutOff => cut_off(lab, host, away, note)?,
            Fault::Restart => {
                note(Event::Restarted);
                keepalived.stop()?;
                haproxy.iter().try_for_each(|process| process.stop().map(drop))?;
                *haproxy = start_haproxy(lab, host)?;
                *keepalived = keepalived::start(host)?;
            }
            Fault::Flap => {
                note(Event::Withdrawn);
                keepalived.stop()?;
                wait(lab, FLAP)?;
                note(Event::BackAtOnce);
                *keepalived = keepalived::start(host)?;
            }
            Fault::Drain | Fault::RestartAgent => {
                return Err(Error::Invalid("the nodes of HAProxy have no agents".to_owned()));
            }
        }
        self.have_one_master()
    }
}

/// HAProxy's configuration, keepalived's, and its check: HAProxy runs.
fn write_files(lab: &Lab, host: &Host) -> Result<()> {
    let directory = host.directory();
    let path = |name: &str| directory.join(name).display().to_string();
    let files = [
        ("haproxy.conf", haproxy(lab, &lab.directory().join(BOTH)), 0o644),
        ("keepalived.conf", keepalived(lab, &path("check")), 0o644),
        ("check", format!("#!/bin/sh\nexec kill -0 $(cat {})\n", path("haproxy.pids")), 0o755),
    ];
    for (name, text, mode) in files {
        let path = directory.join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .doing(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn haproxy(lab: &Lab, certificate: &Path) -> String {
    let (vip4, vip6, certificate) = (lab.vip4(), lab.vip6(), certificate.display());
    let [plain, tls] = PORTS;
    let servers = lab.nodes().map(|node| format!("    server {} {}:80\n", node.name(), node.ipv4()));
    format!(
        "global
    nbthread 1
    maxconn {MAXCONN}
defaults
    mode http
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
    timeout tunnel 1h
listen web
    bind {vip4}:{plain},[{vip6}]:{plain}
    bind {vip4}:{tls},[{vip6}]:{tls} ssl crt {certificate} alpn h2,http/1.1
    balance roundrobin
{}",
        servers.collect::<String>()
    )
}

fn keepalived(lab: &Lab, check: &str) -> String {
    format!(
        "global_defs {{
    vrrp_version 3
    script_user root
    vrrp_higher_prio_send_advert true
}}
vrrp_script haproxy {{
    script \"{check}\"
    interval 1
    timeout 2
    fall 1
    rise 2
}}
vrrp_instance haproxy {{
    state BACKUP
    nopreempt
    interface eth0
    virtual_router_id 51
    priority 100
    advert_int 0.1
    virtual_ipaddress {{
        {}/24
    }}
    virtual_ipaddress_excluded {{
        {}/64
    }}
    track_script {{
        haproxy
    }}
}}
",
        lab.vip4(),
        lab.vip6()
    )
}

fn start_haproxy(lab: &Lab, host: &Host) -> Result<Vec<Process>> {
    let start = |number: usize| {
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(host.directory().join("haproxy.conf"));
        host.spawn(&format!("haproxy-{number}"), command)
    };
    let processes = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    let listen: [SocketAddr; 4] = [
        (lab.vip4(), PORTS[0]).into(),
        (lab.vip4(), PORTS[1]).into(),
        (lab.vip6(), PORTS[0]).into(),
        (lab.vip6(), PORTS[1]).into(),
    ];
    processes.iter().try_for_each(|process| host.wait_for_listeners(process, &listen, READY))?;
    let pids: Vec<String> = processes.iter().map(|process| process.pid().to_string()).collect();
    let path = host.directory().join("haproxy.pids");
    fs::write(&path, pids.join(" ")).doing(|| format!("write {}", path.display()))?;
    Ok(processes)
}
