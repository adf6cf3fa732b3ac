//! The machines of the cluster: hosts of the lab that have pods, and the addresses of these.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, process};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use switchback_lab::{Guest, GuestNetwork, Host, Process};

use crate::error::{Doing, Error, Result};
use crate::kubernetes::FIELD_MANAGER;
use crate::status::now;

/// The addresses of Services, where nobody answers.
pub(crate) const SERVICES: &str = "203.0.113.0/24,2001:db8:5::/112";
/// Networks that a lab has for its hosts only if it has a router: 198.51.100.0/24 for pods, 203.0.113.0/24 for Services.
const RESERVED: [[u8; 3]; 2] = [[198, 51, 100], [203, 0, 113]];
/// The prefix of a machine's pods, and how many machines there can be.
const PREFIX4: u8 = 27;
const PREFIX6: u8 = 64;
const MACHINES: usize = 8;
/// How many pods a machine can have. The first address is the machine's, the last one is for broadcasts.
const PODS: usize = 29;

/// A host with pods.
pub(crate) struct Machine {
    pub(crate) host: Host,
    index: u8,
    addresses: Mutex<Addresses>,
}

#[derive(Default)]
struct Addresses {
    taken: [bool; PODS],
    /// Where the search for the next address begins: that of a pod that has just gone is used last.
    next: usize,
}

/// The place where a pod runs.
pub(crate) struct Sandbox {
    machine: Arc<Machine>,
    /// Its address's number; None if it is in the machine's own network.
    number: Option<usize>,
    guest: Option<Guest>,
    /// Of its volumes.
    pub(crate) directory: PathBuf,
}

impl Machine {
    /// Gives the host a network for pods.
    pub(crate) fn new(index: usize, host: &Host) -> Result<Machine> {
        let own = host.ipv4().octets();
        if RESERVED.iter().any(|network| own.starts_with(network)) {
            let taken =
                format!("{} has an address of the pods or Services: the lab is to be flat", host.name());
            return Err(Error::Invalid(taken));
        }
        let small = u8::try_from(index).ok().filter(|_| index < MACHINES);
        let index = small.ok_or_else(|| Error::Invalid(format!("there can be {MACHINES} machines")))?;
        let machine = Machine { host: host.clone(), index, addresses: Mutex::default() };
        host.make_guest_network(machine.network())?;
        Ok(machine)
    }

    pub(crate) fn name(&self) -> &str {
        self.host.name()
    }

    fn network(&self) -> GuestNetwork {
        GuestNetwork { ipv4: (self.ipv4(1), PREFIX4), ipv6: (self.ipv6(1), PREFIX6) }
    }

    fn ipv4(&self, number: u8) -> Ipv4Addr {
        let [a, b, c] = RESERVED[0];
        Ipv4Addr::new(a, b, c, (self.index << (32 - PREFIX4)) + number)
    }

    fn ipv6(&self, number: u8) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 4, self.index.into(), 0, 0, 0, number.into())
    }

    /// The networks of its pods.
    fn pod_networks(&self) -> [String; 2] {
        [format!("{}/{PREFIX4}", self.ipv4(0)), format!("{}/{PREFIX6}", self.ipv6(0))]
    }

    /// Gives another host routes to its pods.
    pub(crate) fn route_from(&self, other: &Host) -> Result<()> {
        let [pods4, pods6] = self.pod_networks();
        let hops = [self.host.ipv4().to_string(), self.host.ipv6().to_string()];
        for (pods, hop) in [pods4, pods6].iter().zip(&hops) {
            other.run(["ip", "route", "replace", pods, "via", hop])?.success()?;
        }
        Ok(())
    }

    /// Makes it a Node of the cluster that is ready for ever: there is no controller that doubts it.
    pub(crate) async fn register(&self, client: &Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        let pod_networks = self.pod_networks();
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name(),
                "labels": { "kubernetes.io/hostname": self.name(), "kubernetes.io/os": "linux" },
            },
            "spec": { "podCIDR": pod_networks[0], "podCIDRs": pod_networks },
        });
        let node = serde_json::from_value(node).expect("a Node has these fields");
        let doing = || format!("register {}", self.name());
        nodes.create(&PostParams::default(), &node).await.doing(doing)?;
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Lab", "message": "",
                "lastHeartbeatTime": now(), "lastTransitionTime": now(),
            })
        };
        let pods = PODS.to_string();
        let status = json!({ "status": {
            "addresses": [
                { "type": "InternalIP", "address": self.host.ipv4() },
                { "type": "InternalIP", "address": self.host.ipv6() },
                { "type": "Hostname", "address": self.name() },
            ],
            "capacity": { "pods": pods },
            "allocatable": { "pods": pods },
            "conditions": [condition("Ready", "True"), condition("NetworkUnavailable", "False")],
        }});
        let parameters = PatchParams::apply(FIELD_MANAGER);
        nodes.patch_status(self.name(), &parameters, &Patch::Merge(&status)).await.doing(doing)?;
        Ok(())
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next address of a pod that is free.
    fn take_address(&self) -> Option<usize> {
        let mut addresses = self.addresses();
        let from = addresses.next;
        let number =
            (from..from + PODS).map(|number| number % PODS).find(|number| !addresses.taken[*number])?;
        addresses.taken[number] = true;
        addresses.next = (number + 1) % PODS;
        Some(number)
    }
}

impl Sandbox {
    /// Makes the place of a pod, whose volumes will be in a directory of this name.
    pub(crate) fn new(machine: &Arc<Machine>, in_host: bool, directory: &str) -> Result<Sandbox> {
        let directory = machine.host.directory().join(format!("pod-{directory}"));
        fs::create_dir(&directory).doing(|| format!("create {}", directory.display()))?;
        let mut sandbox = Sandbox { machine: Arc::clone(machine), number: None, guest: None, directory };
        if in_host {
            return Ok(sandbox);
        }
        let none_left = || Error::Invalid(format!("{} has addresses for {PODS} pods", machine.name()));
        let number = machine.take_address().ok_or_else(none_left)?;
        sandbox.number = Some(number);
        let last = u8::try_from(number + 2).expect("there are fewer pods than addresses");
        let (ipv4, ipv6) = (machine.ipv4(last), machine.ipv6(last));
        sandbox.guest = Some(machine.host.guest(&format!("pod{number}"), machine.network(), ipv4, ipv6)?);
        Ok(sandbox)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The pod's addresses.
    pub(crate) fn addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        let host = &self.machine.host;
        self.guest.as_ref().map_or((host.ipv4(), host.ipv6()), |guest| (guest.ipv4(), guest.ipv6()))
    }

    pub(crate) fn spawn(&self, name: &str, command: process::Command) -> switchback_lab::Result<Process> {
        match &self.guest {
            Some(guest) => guest.spawn(name, command),
            None => self.machine.host.spawn(name, command),
        }
    }
}

/// The address is free only when the guest has gone.
impl Drop for Sandbox {
    fn drop(&mut self) {
        self.guest.take();
        if let Some(number) = self.number {
            self.machine.addresses().taken[number] = false;
        }
    }
}
