//! `[[node]]`: addresses, servers and weights.

use std::net::SocketAddr;

use crate::mistakes::Mistakes;
use crate::node::DEFAULT_WEIGHT;
use crate::raw::{Spanned, Texts};
use crate::{Adoption, Node, WEIGHTS, raw, syntax};

impl Mistakes {
    pub(super) fn nodes(&mut self, nodes: &[raw::Node]) -> Vec<Node> {
        let mut valid = Vec::new();
        for node in nodes {
            let weight = self.number_or("weight", &node.weight, WEIGHTS, DEFAULT_WEIGHT);
            let zone = node
                .zone
                .as_ref()
                .filter(|zone| self.take(zone, syntax::name("zone", zone.get_ref())).is_some());
            let servers = node.server.as_ref().map(|servers| self.node_servers(servers)).unwrap_or_default();
            let adoption = node.adoption.as_ref();
            let adoption = adoption
                .and_then(|adoption| self.one_of("adoption", adoption, Adoption::ALL, Adoption::name));
            let address = self.take(&node.address, syntax::node_address(node.address.get_ref()));
            if let Some(address) = address {
                valid.push(Node {
                    name: node.name.get_ref().clone(),
                    address,
                    number: 0,
                    weight,
                    zone: zone.map(|zone| zone.get_ref().clone()),
                    drain: node.drain,
                    hidden: node.hidden,
                    tunnel: node.tunnel.as_ref().is_some_and(|tunnel| *tunnel.get_ref()),
                    servers,
                    adoption: adoption.unwrap_or(Adoption::Auto),
                    plain_tcp: node.plain_tcp,
                });
            }
        }
        if valid.len() == nodes.len() {
            self.machines(nodes, &mut valid);
        }
        valid
    }

    fn node_servers(&mut self, texts: &Spanned<Texts>) -> Vec<SocketAddr> {
        let servers =
            self.each(texts, "no server, leave the line out if it is at the VIPs", syntax::node_server);
        let of_v4 = servers.iter().filter(|server| server.is_ipv4()).count();
        if of_v4 > 1 || servers.len() - of_v4 > 1 {
            self.at(
                texts,
                "several servers of one IP version, allowed is one of each, such as [\"127.0.0.1:8080\", \"[::1]:8080\"]",
            );
        }
        servers
    }
}
