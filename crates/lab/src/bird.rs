//! BIRD on the router and the switches: routes to the VIPs by BGP with BFD, from the files of `packaging/bird` as they
//! are. The addresses in these files are those of a lab, which has the same in every run.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Doing, Result};
use crate::host::Host;
use crate::lab::Lab;
use crate::link::parse;
use crate::process::Process;
use crate::topology::Role;

const SWITCH_CONFIG: &str = include_str!("../../../packaging/bird/switch.conf");
const ROUTER_CONFIG: &str = include_str!("../../../packaging/bird/router.conf");
const ANNOUNCE: &str = include_str!("../../../packaging/bird/switchback-announce");
/// Time that BIRD may take to start.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// BIRD's control socket, in its host's directory.
const SOCKET: &str = "bird.ctl";

impl Host {
    /// Starts BIRD on the router or on a switch, and waits until it works. It runs from the start in a lab with
    /// [`Routing::Bird`](crate::Routing::Bird).
    pub fn bird(&self) -> Result<Process> {
        let text = if self.role() == Role::Router { ROUTER_CONFIG } else { SWITCH_CONFIG };
        let [config, socket] = ["bird.conf", SOCKET].map(|name| self.directory().join(name));
        fs::write(&config, format!("log stderr all;\n{text}"))
            .doing(|| format!("write {}", config.display()))?;
        let mut command = self.command("bird");
        command.arg("-f").arg("-c").arg(&config).arg("-s").arg(&socket);
        let process = self.spawn("bird", command)?;
        process.wait_for_log("Started", START_PATIENCE)?;
        Ok(process)
    }

    /// What `birdc` prints for these words, such as `show protocols`.
    pub fn birdc(&self, words: &[&str]) -> Result<String> {
        let socket = self.directory().join(SOCKET).display().to_string();
        self.run([&["birdc", "-s", &socket], words].concat())?.success()
    }

    /// Has this switch's BIRD announce the VIPs while `switchback ready` says so; `program` is `switchback`.
    pub fn announce_when_ready(&self, program: &Path) -> Result<Process> {
        let [script, programs] = ["switchback-announce", "bin"].map(|name| self.directory().join(name));
        let prepare = || {
            fs::write(&script, ANNOUNCE)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
            // There is one already if the script has run before.
            fs::create_dir_all(&programs)?;
            let link = programs.join("switchback");
            if link.symlink_metadata().is_ok() { Ok(()) } else { symlink(program, link) }
        };
        prepare().doing(|| format!("prepare {}", script.display()))?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = self.command(&script);
        command.arg("-s").arg(self.directory().join(SOCKET));
        command.env("PATH", format!("{}:{path}", programs.display()));
        self.spawn("announce", command)
    }
}

impl Lab {
    /// The switches that are next hops of the router's route to this VIP, by index. Panics in a lab without a router.
    pub fn routed_switches(&self, vip: IpAddr) -> Result<Vec<usize>> {
        let router = self.router().expect("a router has the routes");
        let family = if vip.is_ipv4() { "-4" } else { "-6" };
        let words = ["ip", "-j", family, "route", "show", "exact", &vip.to_string()];
        let routes: Vec<Route> = parse(&router.namespace().tool(&words, "")?)?;
        let gateways: Vec<IpAddr> = routes.iter().flat_map(Route::gateways).collect();
        let is_next_hop = |switch: &Host| {
            gateways.iter().any(|gateway| [switch.ipv4().into(), switch.ipv6().into()].contains(gateway))
        };
        let switches = self.switches().enumerate().filter(|(_, switch)| is_next_hop(switch));
        Ok(switches.map(|(index, _)| index).collect())
    }
}

/// A route as `ip -j route` shows it: with a gateway, or with several next hops.
#[derive(Deserialize)]
struct Route {
    gateway: Option<IpAddr>,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

#[derive(Deserialize)]
struct NextHop {
    gateway: Option<IpAddr>,
}

impl Route {
    fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.gateway.into_iter().chain(self.nexthops.iter().filter_map(|hop| hop.gateway))
    }
}
