//! Guests of a host: network namespaces behind a bridge of it, as those of containers. They come and go while the lab is
//! up, and reach the other hosts through theirs.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::netns::{self, NetNs};
use crate::process::{Process, within};
use crate::setup;
use crate::teardown;

/// The bridge in the host's namespace.
const BRIDGE: &str = "guests";
/// Settings of a host that forwards its guests' packets.
const FORWARDING: &[(&str, &str)] = &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// The state of a bridge's port that forwards (`BR_STATE_FORWARDING`).
const FORWARDING_STATE: &str = "3";
const PORT_TIMEOUT: Duration = within(Duration::from_secs(10));
/// Interval at which the state is read, since a bridge announces it to nobody here.
const PORT_POLL: Duration = Duration::from_millis(1);

/// The network between a host and its guests.
#[derive(Clone, Copy, Debug)]
pub struct GuestNetwork {
    /// The host's address in it, which is the guests' gateway, and the length of its prefix.
    pub ipv4: (Ipv4Addr, u8),
    /// The same of IPv6.
    pub ipv6: (Ipv6Addr, u8),
}

/// A guest. It ends with this value, and its processes with it.
#[derive(Debug)]
pub struct Guest {
    name: String,
    host: Host,
    namespace: NetNs,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

impl Host {
    /// Makes the network of the host's guests. Other hosts have no route to it.
    pub fn make_guest_network(&self, network: GuestNetwork) -> Result<()> {
        let GuestNetwork { ipv4: (ipv4, length4), ipv6: (ipv6, length6) } = network;
        self.namespace().sysctl(FORWARDING)?;
        self.namespace().ip(&format!(
            "link add {BRIDGE} address {} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             addr add {ipv4}/{length4} dev {BRIDGE}\n\
             addr add {ipv6}/{length6} dev {BRIDGE} nodad\n\
             link set dev {BRIDGE} up\n",
            hardware_address(ipv4)
        ))
    }

    /// Makes a guest with these addresses of the guests' network. Its name, of at most 15 bytes, is that of an interface
    /// of the host, too.
    pub fn guest(&self, name: &str, network: GuestNetwork, ipv4: Ipv4Addr, ipv6: Ipv6Addr) -> Result<Guest> {
        let full_name = self.shared().info.guest_namespace(self.name(), name);
        let namespace = self.shared().while_up(|| {
            let mut made = setup::namespaces(&[full_name])?;
            Ok(made.remove(0))
        })?;
        let guest = Guest { name: name.to_owned(), host: self.clone(), namespace, ipv4, ipv6 };
        guest.connect(network)?;
        Ok(guest)
    }
}

impl Guest {
    /// Its name on its host.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its IPv4 address.
    pub fn ipv4(&self) -> Ipv4Addr {
        self.ipv4
    }

    /// Its IPv6 address.
    pub fn ipv6(&self) -> Ipv6Addr {
        self.ipv6
    }

    /// Starts a command in the guest's network. Its output goes to `<guest>-<name>.log` in the host's directory.
    pub fn spawn(&self, name: &str, mut command: Command) -> Result<Process> {
        self.namespace.attach(&mut command);
        let name = format!("{}-{name}", self.name);
        let log = self.host.directory().join(format!("{name}.log"));
        let full_name = format!("{}/{name}", self.host.name());
        self.host.shared().track(|| Process::start(&full_name, &mut command, log))
    }

    fn connect(&self, network: GuestNetwork) -> Result<()> {
        let GuestNetwork { ipv4: (gateway4, length4), ipv6: (gateway6, length6) } = network;
        let Guest { name, namespace, ipv4, ipv6, .. } = self;
        namespace.sysctl(setup::SYSCTLS)?;
        self.host.namespace().ip(&format!(
            "link add {name} type veth peer name eth0 address {} netns {}\n\
             link set dev {name} master {BRIDGE} up\n",
            hardware_address(*ipv4),
            namespace.name()
        ))?;
        namespace.ip(&format!(
            "link set dev lo up\n\
             link set dev eth0 up\n\
             addr add {ipv4}/{length4} dev eth0\n\
             addr add {ipv6}/{length6} dev eth0 nodad\n\
             route add default via {gateway4}\n\
             route add default via {gateway6}\n"
        ))?;
        self.wait_for_port()
    }

    /// Waits until the bridge forwards: the kernel tells it of a cable's other end some time later.
    fn wait_for_port(&self) -> Result<()> {
        let path = format!("/sys/class/net/{}/brport/state", self.name);
        let begun = Instant::now();
        self.host.namespace().enter_with_sysfs(|| {
            while fs::read_to_string(&path).doing(|| format!("read {path}"))?.trim() != FORWARDING_STATE {
                if begun.elapsed() > PORT_TIMEOUT {
                    let waiting_for = format!("bridge that forwards to {}", self.name);
                    return Err(Error::Timeout { waiting_for, after: PORT_TIMEOUT, log: String::new() });
                }
                thread::sleep(PORT_POLL);
            }
            Ok(())
        })?
    }

    fn end(&self) -> Result<()> {
        let name = self.namespace.name();
        teardown::end_processes(&[name.to_owned()])?;
        // The kernel frees the namespace some time after the end of its last process: without this its addresses would
        // still be answered for.
        match self.host.namespace().ip(&format!("link del {}\n", self.name)) {
            Err(Error::Command { output, .. }) if output.contains("Cannot find device") => {}
            result => result?,
        }
        netns::remove(name)
    }
}

/// The hardware address of a host's bridge or of a guest. The same address always has the same one, so that nobody knows an
/// old one of it. Left alone, a bridge would change its own with each guest.
fn hardware_address(ipv4: Ipv4Addr) -> String {
    let [a, b, c, d] = ipv4.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("guest {} of {} is not gone: {error}", self.name, self.host.name());
        }
    }
}
