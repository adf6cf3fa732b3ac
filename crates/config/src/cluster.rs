//! A whole cluster.

use std::collections::BTreeSet;

use crate::{
    AccessLog, Acme, Admin, ClusterKey, Dns, Limits, Network, Node, Persistence, Pool, Rank, Reports,
    Service, Switch, raw, resemblance,
};

/// A valid `cluster.toml`. Every index in it is in range and every name in it is unique among its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// One key, or two while the key rotates. The first one signs, every one is accepted.
    pub keys: Vec<ClusterKey>,
    /// The nodes' reports to the switches.
    pub reports: Reports,
    /// Limits of clients.
    pub limits: Limits,
    /// The switch's access log; None without one.
    pub access_log: Option<AccessLog>,
    /// The daemons' admin address; None without one.
    pub admin: Option<Admin>,
    /// The CA of the certificates that are not in files; None without one.
    pub acme: Option<Acme>,
    /// Who resolves names of nodes.
    pub dns: Dns,
    /// The nodes, no two with the same [`Node::handoff_address`].
    pub nodes: Vec<Node>,
    /// The pools, in the file's order.
    pub pools: Vec<Pool>,
    /// The services, at least one; no listen address occurs twice.
    pub services: Vec<Service>,
    /// At most [`MAX_SWITCHES`](crate::MAX_SWITCHES), in the file's order. If it is empty, the file does not say which machines
    /// are switches; otherwise each service is served by at least one of these.
    pub switches: Vec<Switch>,
    /// Place of the switch whose configuration this is, see [`Cluster::served_by`].
    pub rank: Rank,
    /// Clients that may run the shim: nodes introduce themselves to these. At most [`MAX_NETWORKS`](crate::MAX_NETWORKS), none twice.
    pub clients: Vec<Network>,
    /// First four bytes of the SHA-256 of the file and the addresses of its names, by which machines tell each other which configuration they have.
    pub hash: u32,
    /// Version of the [`Document`](crate::Document).
    pub version: Option<u64>,
}

impl Cluster {
    /// The bytes of the keys.
    pub fn key_bytes(&self) -> Vec<[u8; 32]> {
        self.keys.iter().map(|key| *key.as_bytes()).collect()
    }

    /// The pools whose sessions go by cookies, in the order of the file. Nodes and switches make the pools' codes for
    /// these, which are to be the same.
    pub fn cookie_pools(&self) -> impl Iterator<Item = &Pool> {
        let is_by_cookie = |persistence: &Persistence| persistence.mode.is_by_cookie();
        self.pools.iter().filter(move |pool| pool.persistence.as_ref().is_some_and(is_by_cookie))
    }

    /// The cluster as one switch has it: with the services that it serves, if the file says so of switches; all of them
    /// without a name where the file names no switch. Other switches have none left of the services that this one does not
    /// serve. The error says what names there are.
    pub fn served_by(mut self, name: Option<&str>) -> std::result::Result<Cluster, String> {
        let found = self.switches.iter().find(|switch| Some(switch.name.as_str()) == name);
        let Some(switch) = found else {
            if name.is_none() && self.switches.is_empty() {
                return Ok(self);
            }
            let names: Vec<&str> = self.switches.iter().map(|switch| switch.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(match name {
                Some(name) => format!("the configuration has no switch {name}, it has {names}"),
                None => format!("the configuration names its switches, this one has to be one of {names}"),
            });
        };
        let is_other = |other: &&Switch| other.name != switch.name;
        let shares = |other: &Switch| other.services.iter().any(|service| switch.services.contains(service));
        self.rank = Rank {
            number: self.switches.iter().take_while(is_other).count() as u8,
            is_alone: !self.switches.iter().filter(is_other).any(shares),
        };
        let served = switch.services.clone();
        let mut index = 0;
        self.services.retain(|_| {
            index += 1;
            served.contains(&(index - 1))
        });
        for switch in &mut self.switches {
            let places = switch.services.iter().map(|service| served.binary_search(service));
            switch.services = places.flatten().collect();
        }
        Ok(self)
    }

    /// The names in [`Pool::nodes_from`].
    pub fn names(&self) -> BTreeSet<&str> {
        self.pools.iter().filter_map(|pool| Some(pool.nodes_from.as_ref()?.host.as_str())).collect()
    }

    /// One line that says what the cluster consists of: `3 nodes, 2 pools, 1 service, 4 routes`, and
    /// `, 2 switches` and `, 1 name` behind it if there are any.
    pub fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let switches = match self.switches.len() {
            0 => String::new(),
            1 => ", 1 switch".to_owned(),
            n => format!(", {n} switches"),
        };
        let names = match self.names().len() {
            0 => String::new(),
            n => format!(", {}", count(n, "name")),
        };
        let routes = self.services.iter().map(|service| service.routes.len()).sum();
        [
            count(self.nodes.len(), "node"),
            count(self.pools.len(), "pool"),
            count(self.services.len(), "service"),
            count(routes, "route"),
        ]
        .join(", ")
            + &switches
            + &names
    }

    /// Indices of the nodes of the [service's pools](Service::pools), some of them more than once.
    pub fn nodes_of(&self, service: &Service) -> impl Iterator<Item = usize> {
        service.pools().flat_map(|pool| self.pools[pool].nodes.iter().copied())
    }

    /// The [`resemblance`] of `text` to a `cluster.toml`.
    pub fn resemblance(text: &str) -> usize {
        resemblance::<raw::File>(text)
    }
}
