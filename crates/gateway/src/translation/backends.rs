//! Pools and nodes: the ports of Services, and their endpoints.
//!
//! Each port of a pod that a Service leads to is a node with the pod's address as `server`, on the machine of the pod. Each
//! machine is a node, too, which is in no pool: its agent is started with that name, and finds the others by its address.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as Machine, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};
use kube::ResourceExt;
use switchback_config::{MAX_NAME, MAX_NODES};
use switchback_wire::{SB_GENEVE_PORT, SB_NODES_HERE};

use super::conditions::Said;
use super::document::{Node, Pool, Share, Switch};
use super::grants::{HTTP_ROUTE, SERVICE, permits};
use super::names::{Names, readable, with_hash};
use crate::objects::{Objects, Place};

/// Label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a machine with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Label of a machine that is a switch, with the value `true`.
const SWITCH: &str = "switchback.dev/switch";
/// The protocol of a port that is HTTP/2 without TLS (KEP-3726).
const H2C: &str = "kubernetes.io/h2c";
/// Policy of all pools.
const POLICY: &str = "round-robin";

/// A reference to a backend, of a rule or of a mirror.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    pub group: Option<&'a str>,
    pub kind: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    pub port: Option<i32>,
}

/// The backends that routes lead to.
#[derive(Debug)]
pub(super) struct Backends<'a> {
    objects: &'a Objects,
    services: HashMap<Place, &'a Service>,
    slices: HashMap<Place, Vec<&'a EndpointSlice>>,
    machines: BTreeMap<&'a str, Host>,
    pool_names: Names,
    node_names: Names,
    pools: BTreeMap<String, Members>,
    nodes: BTreeMap<String, Pod>,
    /// Nodes by the machine's address and the server's.
    by_server: HashMap<(IpAddr, SocketAddr), String>,
    /// Addresses of Gateways, which no server has.
    vips: &'a [IpNet],
    /// The pool whose requests are answered 500, if there are any.
    unserved: Option<String>,
    /// The pool of all machines, if it is needed.
    all_machines: Option<String>,
}

/// A machine.
#[derive(Clone, Debug)]
struct Host {
    name: String,
    address: IpAddr,
    zone: Option<String>,
    is_switch: bool,
}

/// A pool.
#[derive(Debug)]
struct Members {
    /// Its servers speak HTTP/2 without TLS.
    is_h2c: bool,
    /// The pool with its nodes for services with TLS, if that is another one: only there nodes speak the protocol of the pool
    /// to servers, in others they get what clients speak.
    over_tls: Option<String>,
    /// It has nodes.
    has_nodes: bool,
    /// A node of it stays.
    has_lasting: bool,
}

/// A node that is a port of a pod.
#[derive(Debug)]
struct Pod {
    host: Host,
    servers: BTreeSet<SocketAddr>,
    /// Finishes what it has begun.
    terminates: bool,
    pools: BTreeSet<String>,
}

/// Name of the node that a machine is.
pub fn machine_name(name: &str) -> String {
    match readable(name) {
        same if same == name && same.len() <= MAX_NAME => same,
        other => with_hash(&other, name),
    }
}

impl<'a> Backends<'a> {
    /// The backends of these resources, while Gateways have addresses of these ranges.
    pub fn new(objects: &'a Objects, vips: &'a [IpNet]) -> Backends<'a> {
        let services = objects.services.iter().map(|service| (Place::of(&**service), &**service)).collect();
        let mut slices: HashMap<Place, Vec<&EndpointSlice>> = HashMap::new();
        for slice in &objects.slices {
            let Some(service) = slice.labels().get(SERVICE_NAME) else { continue };
            let place = Place::new(slice.namespace().unwrap_or_default(), service);
            slices.entry(place).or_default().push(slice);
        }
        let hosts = objects.nodes.iter().filter_map(|machine| {
            let name = machine.metadata.name.as_deref()?;
            let zone = machine.labels().get(ZONE).map(|zone| readable(zone));
            let is_switch = machine.labels().get(SWITCH).is_some_and(|value| value == "true");
            Some((name, Host { name: machine_name(name), address: address(machine)?, zone, is_switch }))
        });
        let machines: BTreeMap<&str, Host> = hosts.collect();
        let mut node_names = Names::default();
        machines.values().for_each(|host| {
            node_names.name(&[&host.name]);
        });
        Backends {
            objects,
            services,
            slices,
            machines,
            pool_names: Names::of_pools(),
            node_names,
            pools: BTreeMap::new(),
            nodes: BTreeMap::new(),
            by_server: HashMap::new(),
            vips,
            unserved: None,
            all_machines: None,
        }
    }

    /// The pool of a reference in a route of this namespace, or why there is none.
    pub fn pool(&mut self, namespace: &str, reference: Reference<'_>) -> Result<String, Said> {
        let refused = |reason, what: String| Said::no("ResolvedRefs", reason, what);
        let Reference { group, kind, namespace: other, name, port } = reference;
        if !SERVICE.is(group, kind) {
            let (group, kind) = (group.unwrap_or(SERVICE.group), kind.unwrap_or(SERVICE.kind));
            return Err(refused(
                "InvalidKind",
                format!("backend {name} is a {kind} of group {group:?}, not a Service"),
            ));
        }
        let place = Place::new(other.unwrap_or(namespace), name);
        if !permits(&self.objects.grants, (HTTP_ROUTE, namespace), (SERVICE, &place)) {
            let what =
                format!("no ReferenceGrant in {} lets HTTPRoutes of {namespace} use it", place.namespace);
            return Err(refused("RefNotPermitted", format!("Service {place}: {what}")));
        }
        let not_found = |what: String| refused("BackendNotFound", what);
        let service =
            *self.services.get(&place).ok_or_else(|| not_found(format!("there is no Service {place}")))?;
        let Some(number) = port else {
            return Err(refused("UnsupportedValue", format!("the reference to Service {place} has no port")));
        };
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let port = ports.into_iter().find(|port| port.port == number);
        let port = port.ok_or_else(|| not_found(format!("Service {place} has no port {number}")))?;
        let pool = self.pool_names.name(&[&place.namespace, &place.name, &number.to_string()]);
        if !self.pools.contains_key(&pool) {
            let is_h2c = port.app_protocol.as_deref() == Some(H2C);
            let nodes = self.nodes_of(&place, port);
            let (has_nodes, mut has_lasting) = (!nodes.is_empty(), false);
            for node in nodes {
                let node = self.nodes.get_mut(&node).expect("it was added");
                node.pools.insert(pool.clone());
                has_lasting |= !node.terminates;
            }
            self.pools.insert(pool.clone(), Members { is_h2c, over_tls: None, has_nodes, has_lasting });
        }
        Ok(pool)
    }

    /// The pool of requests that lead to no backend, which are answered 500.
    pub fn unserved(&mut self) -> String {
        self.unserved.get_or_insert_with(|| self.pool_names.name(&["no-backend"])).clone()
    }

    /// Whether the pool of a reference has nodes.
    pub fn has_nodes(&self, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(|members| members.has_nodes)
    }

    /// The pool of all machines, whose agents end TLS where no pod could.
    pub fn machines(&mut self) -> String {
        self.all_machines.get_or_insert_with(|| self.pool_names.name(&["machines"])).clone()
    }

    /// The pool with the nodes of this one for a service with TLS.
    pub fn over_tls(&mut self, pool: &str) -> String {
        let Some(members) = self.pools.get_mut(pool).filter(|members| members.is_h2c) else {
            return pool.to_owned();
        };
        let names = &mut self.pool_names;
        members.over_tls.get_or_insert_with(|| names.name(&[pool, "h2c"])).clone()
    }

    /// Adds the nodes of a Service's port, and names them.
    fn nodes_of(&mut self, service: &Place, port: &ServicePort) -> BTreeSet<String> {
        let mut members = BTreeSet::new();
        let slices = self.slices.get(service).cloned().unwrap_or_default();
        for slice in slices {
            let name = port.name.as_deref().unwrap_or_default();
            let mut ports = slice.ports.iter().flatten();
            let is_it = |port: &&k8s_openapi::api::discovery::v1::EndpointPort| {
                port.name.as_deref().unwrap_or_default() == name
                    && port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
            };
            let Some(number) = ports.find(is_it).and_then(|port| u16::try_from(port.port?).ok()) else {
                continue;
            };
            for endpoint in &slice.endpoints {
                members.extend(self.node(&service.namespace, endpoint, number));
            }
        }
        members
    }

    /// Adds the node of an endpoint's port; None if it can serve no requests, or is on no machine that is known.
    fn node(&mut self, namespace: &str, endpoint: &Endpoint, port: u16) -> Option<String> {
        let none = EndpointConditions::default();
        let EndpointConditions { ready, serving, terminating } =
            endpoint.conditions.as_ref().unwrap_or(&none);
        let ready = ready.unwrap_or(true);
        let terminates = terminating.unwrap_or(false);
        let serves = ready || terminates && serving.unwrap_or(false);
        if !serves {
            return None;
        }
        let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
        if self.vips.iter().any(|range| range.contains(&address)) {
            return None;
        }
        let host = self.machine_of(endpoint, address)?.clone();
        let server = SocketAddr::new(address, port);
        let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.as_deref());
        let text = address.to_string();
        // Whatever slices say, a server is one node, and a node has one server for each IP version.
        let (names, nodes) = (&mut self.node_names, &self.nodes);
        let new = || {
            let number = port.to_string();
            let name = names.name(&[namespace, pod.unwrap_or(&text), &number]);
            let is_other = |pod: &Pod| {
                let mut versions = pod.servers.iter().map(SocketAddr::is_ipv4);
                pod.host.address != host.address || versions.any(|is_ipv4| is_ipv4 == server.is_ipv4())
            };
            match nodes.get(&name).is_some_and(is_other) {
                false => name,
                true => names.name(&[namespace, pod.unwrap_or_default(), &number, &text]),
            }
        };
        let name = self.by_server.entry((host.address, server)).or_insert_with(new).clone();
        let node = self.nodes.entry(name.clone());
        let node = node.or_insert_with(|| Pod {
            host,
            servers: BTreeSet::new(),
            terminates: true,
            pools: BTreeSet::new(),
        });
        node.terminates &= terminates;
        node.servers.insert(server);
        Some(name)
    }

    /// The machine of an endpoint: the one that it names, or the one that has its address in its range of pods.
    fn machine_of(&self, endpoint: &Endpoint, address: IpAddr) -> Option<&Host> {
        if let Some(name) = &endpoint.node_name {
            return self.machines.get(name.as_str());
        }
        let has_it = |machine: &&std::sync::Arc<Machine>| {
            let spec = machine.spec.as_ref();
            let ranges = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
            ranges.filter_map(|range| range.parse::<IpNet>().ok()).any(|range| range.contains(&address))
        };
        let machine = self.objects.nodes.iter().find(has_it)?;
        self.machines.get(machine.metadata.name.as_deref()?)
    }

    /// The machines with the label of switches.
    pub fn switches(&self) -> Vec<Switch> {
        let hosts = self.machines.values().filter(|host| host.is_switch);
        hosts.map(|host| Switch { name: host.name.clone() }).collect()
    }

    /// The tables, for VIPs of these IP versions: a node that has no server for one of them is left out, and so are those for
    /// which there is no room. Pools that no route uses are left out.
    pub fn tables(self, vips: &[IpAddr], used: &HashSet<&String>) -> (Vec<Node>, Vec<Pool>) {
        let Backends { machines, pools, nodes, unserved, all_machines, .. } = self;
        let serves = |pod: &Pod| {
            vips.iter().all(|vip| pod.servers.iter().any(|server| server.is_ipv4() == vip.is_ipv4()))
        };
        let mut room: HashMap<IpAddr, usize> = HashMap::new();
        let mut left = MAX_NODES.saturating_sub(machines.len());
        let mut has_room = |pod: &Pod| {
            let here = room.entry(pod.host.address).or_insert(SB_NODES_HERE as usize - 1);
            let has_room = *here > 0 && left > 0;
            if has_room {
                (*here, left) = (*here - 1, left - 1);
            }
            has_room
        };
        let both = |pool: &String| {
            let both = [Some(pool.clone()), pools[pool].over_tls.clone()];
            both.into_iter().flatten().filter(|pool| used.contains(pool))
        };
        let is_used = |pod: &Pod| pod.pools.iter().any(|pool| both(pool).next().is_some());
        let hosts = machines.into_values().map(|Host { name, address, zone, is_switch: _ }| {
            let is_served = vips.iter().all(|vip| vip.is_ipv4() == address.is_ipv4());
            let pool = all_machines.as_ref().filter(|_| is_served);
            // There agents listen for one another, so a machine is in the pool as long as its agent runs.
            let agent = SocketAddr::new(address, SB_GENEVE_PORT as u16);
            Node {
                name,
                address,
                server: pool.map(|_| agent).into_iter().collect(),
                pools: pool.cloned().into_iter().collect(),
                drain: false,
                zone,
            }
        });
        let pods = nodes.into_iter().filter(|(_, pod)| is_used(pod) && serves(pod) && has_room(pod)).map(
            |(name, pod)| Node {
                name,
                address: pod.host.address,
                server: pod.servers.into_iter().collect(),
                drain: pod.terminates && pod.pools.iter().all(|pool| pools[pool].has_lasting),
                pools: pod.pools.iter().flat_map(|pool| both(pool)).collect(),
                zone: pod.host.zone,
            },
        );
        let nodes: Vec<Node> = hosts.chain(pods).collect();
        let pool =
            |name: String, protocol, empty_status| Pool { name, policy: POLICY, protocol, empty_status };
        let unserved = unserved.map(|name| pool(name, None, Some(500)));
        let all_machines = all_machines.clone().map(|name| pool(name, None, None));
        let pools = pools.iter().flat_map(|(name, members)| {
            let over_tls = members.over_tls.clone().map(|name| pool(name, Some("h2c"), None));
            [Some(pool(name.clone(), None, None)), over_tls].into_iter().flatten()
        });
        let pools = pools.chain(unserved).chain(all_machines);
        (nodes, pools.filter(|pool| used.contains(&pool.name)).collect())
    }
}

/// Shares of a pool that is named more than once are added up.
pub(super) fn merged(shares: Vec<Share>) -> Vec<Share> {
    let mut merged: Vec<Share> = Vec::new();
    for share in shares {
        match merged.iter_mut().find(|other| other.pool == share.pool) {
            Some(other) => other.weight += share.weight,
            None => merged.push(share),
        }
    }
    merged
}

/// The address of a machine to which handoff packets go.
fn address(machine: &Machine) -> Option<IpAddr> {
    let addresses = machine.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).min_by_key(IpAddr::is_ipv6)
}
