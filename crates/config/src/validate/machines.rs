//! What nodes that share an address have in common, and where they differ.

use std::collections::BTreeMap;
use std::net::IpAddr;

use switchback_wire::{SB_NODES_HERE, node_address};

use crate::mistakes::Mistakes;
use crate::raw::Spanned;
use crate::{Node, Pool, Resume, Service, raw};

impl Mistakes {
    /// Checks that nodes with one address agree on what the machine is, and numbers them. `file` and `nodes` have the
    /// same nodes.
    pub(super) fn machines(&mut self, file: &[raw::Node], nodes: &mut [Node]) {
        for members in machines(nodes).into_values() {
            let (first, others) = members.split_first().expect("a machine has a node");
            for other in others {
                self.agree(&file[*other], &nodes[*first], &nodes[*other]);
            }
            if let Some(member) = members.get(SB_NODES_HERE as usize) {
                let address = nodes[*member].address;
                let what =
                    format!("{} nodes of {address}, allowed are at most {SB_NODES_HERE}", members.len());
                self.at(&file[*member].address, what);
            }
            let mut numbered = members;
            numbered.retain(|member| !nodes[*member].servers.is_empty());
            let names: Vec<&str> = numbered.iter().map(|member| nodes[*member].name.as_str()).collect();
            let numbers = node_address::numbers(&names);
            for (member, number) in std::iter::zip(numbered, numbers) {
                nodes[member].number = number;
            }
        }
    }

    /// Checks a node beside the first one of its machine.
    fn agree(&mut self, file: &raw::Node, first: &Node, node: &Node) {
        let (name, other, address) = (&node.name, &first.name, node.address);
        let said = |key: &str, here: &dyn std::fmt::Display, there: &dyn std::fmt::Display| {
            format!(
                "{key} {here} of node {name:?}, but {there} of node {other:?} with the same address {address}, allowed is \
                 the same for both"
            )
        };
        if node.hidden != first.hidden {
            self.at(&file.name, said("hidden", &node.hidden, &first.hidden));
        }
        if node.plain_tcp != first.plain_tcp {
            self.at(&file.name, said("plain_tcp", &node.plain_tcp, &first.plain_tcp));
        }
        if node.tunnel != first.tunnel {
            self.at_one(&file.tunnel, &file.name, said("tunnel", &node.tunnel, &first.tunnel));
        }
        if node.adoption != first.adoption {
            let [here, there] = [node, first].map(|node| format!("{:?}", node.adoption.name()));
            self.at_one(&file.adoption, &file.name, said("adoption", &here, &there));
        }
    }

    /// Adds a mistake at a value, or if the file does not have it, at the name of its table.
    fn at_one<T>(&mut self, value: &Option<Spanned<T>>, name: &Spanned<String>, what: String) {
        match value {
            Some(value) => self.at(value, what),
            None => self.at(name, what),
        }
    }

    /// Checks that responses of nodes that share an address are not to be resumed: a machine makes them under one name. `file`
    /// has the same pools, and `nodes` are those of the file.
    pub(super) fn resumed_on_machines(&mut self, file: &[raw::Pool], nodes: &[Node], pools: &[Option<Pool>]) {
        let machines = machines(nodes);
        for (text, pool) in std::iter::zip(file, pools) {
            let (Some(text), Some(pool)) = (&text.resume, pool) else { continue };
            let shared = pool.nodes.iter().find(|node| machines[&nodes[**node].address].len() > 1);
            if let (true, Some(node)) = (pool.resume != Resume::Off, shared) {
                let what = format!(
                    "resume {:?} in pool {:?}, whose node {:?} shares its address with another one, allowed is \"off\"",
                    pool.resume.name(),
                    pool.name,
                    nodes[*node].name
                );
                self.at(text, what);
            }
        }
    }

    /// Checks that each listener is one node's only. `file` and `nodes` have the same nodes.
    pub(super) fn servers_of_machines(
        &mut self,
        file: &[raw::Node],
        nodes: &[Node],
        pools: &[Option<Pool>],
        services: &[Service],
    ) {
        for members in machines(nodes).values() {
            let mut at_vips = members.iter().filter(|member| nodes[**member].servers.is_empty());
            if let (Some(first), Some(second)) = (at_vips.next(), at_vips.next()) {
                let what = format!(
                    "nodes {:?} and {:?} with the same address {} both have their servers at the VIPs, allowed is one of \
                     them: give the other one a server",
                    nodes[*first].name, nodes[*second].name, nodes[*second].address
                );
                self.at(&file[*second].address, what);
            }
        }
        for service in services {
            let mut by_machine = BTreeMap::<IpAddr, Vec<usize>>::new();
            for user in users(service, pools) {
                by_machine.entry(nodes[user].address).or_default().push(user);
            }
            for users in by_machine.values() {
                self.own_servers(file, nodes, service, users);
            }
        }
    }

    /// Checks that these nodes of one machine have servers of their own for the service.
    fn own_servers(&mut self, file: &[raw::Node], nodes: &[Node], service: &Service, users: &[usize]) {
        for (at, second) in users.iter().enumerate() {
            let names = |first: usize| (&nodes[first].name, &nodes[*second].name);
            let place = &file[*second];
            let tls = service.tls.terminated();
            if tls.is_some_and(|tls| tls.server.is_some()) {
                let Some(first) = users[..at].first() else { continue };
                let (first, second) = names(*first);
                let what = format!(
                    "nodes {first:?} and {second:?} with the same address are in pools of service {:?}, whose TLS ends at \
                     their machine with the one server of [service.tls], allowed is one of them, or leave that server out and \
                     give each node its own",
                    service.name
                );
                self.at(&place.address, what);
                continue;
            }
            if let Some(tls) = tls {
                // One without a server is another mistake.
                let Some(server) = tls.server_of(&nodes[*second]) else { continue };
                let same = |first: &&usize| tls.server_of(&nodes[**first]).as_ref() == Some(&server);
                let Some(first) = users[..at].iter().find(same) else { continue };
                let (first, second) = names(*first);
                let what = format!(
                    "nodes {first:?} and {second:?} with the same address have the same server {server} for service {:?}, \
                     allowed is a different one for each",
                    service.name
                );
                self.at_one(&place.server, &place.name, what);
                continue;
            }
            for vip in &service.listen {
                let server = nodes[*second].server_of(*vip);
                // Two nodes without servers have been reported.
                let has_any =
                    |first: usize| !nodes[first].servers.is_empty() || !nodes[*second].servers.is_empty();
                let same = |first: &&usize| nodes[**first].server_of(*vip) == server && has_any(**first);
                let Some(first) = users[..at].iter().find(same) else { continue };
                let (first, second) = names(*first);
                let what = format!(
                    "nodes {first:?} and {second:?} with the same address have the same server {server} for {vip}, allowed \
                     is a different one for each"
                );
                self.at_one(&place.server, &place.name, what);
            }
        }
    }
}

/// Indices of the nodes of each machine, in the file's order.
fn machines(nodes: &[Node]) -> BTreeMap<IpAddr, Vec<usize>> {
    let mut machines = BTreeMap::<IpAddr, Vec<usize>>::new();
    for (index, node) in nodes.iter().enumerate() {
        machines.entry(node.address).or_default().push(index);
    }
    machines
}

/// Indices of the nodes in the service's pools, each once, in the file's order.
pub(super) fn users(service: &Service, pools: &[Option<Pool>]) -> Vec<usize> {
    let used = service.pools().filter_map(|pool| pools.get(pool)?.as_ref());
    let mut users: Vec<usize> = used.flat_map(|pool| pool.nodes.iter().copied()).collect();
    users.sort_unstable();
    users.dedup();
    users
}
