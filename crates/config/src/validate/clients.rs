//! `[[client]]`: networks of clients that may run the shim, and nodes that need them.

use crate::mistakes::Mistakes;
use crate::{MAX_NETWORKS, Network, raw, syntax};

impl Mistakes {
    pub(super) fn clients(&mut self, clients: &[raw::Client], nodes: &[raw::Node]) -> Vec<Network> {
        if let Some(client) = clients.get(MAX_NETWORKS) {
            let what = format!("{} networks of clients, allowed are at most {MAX_NETWORKS}", clients.len());
            self.at(&client.network, what);
        }
        let mut networks = Vec::new();
        for raw::Client { network: text } in clients {
            let Some(network) = self.take(text, syntax::network(text.get_ref())) else { continue };
            if networks.contains(&network) {
                self.at(text, format!("{network} is listed already, allowed is each network once"));
            }
            networks.push(network);
        }
        if clients.is_empty() {
            self.tunnels_to_nobody(nodes);
        }
        networks
    }

    fn tunnels_to_nobody(&mut self, nodes: &[raw::Node]) {
        for node in nodes {
            let tunnel = node.tunnel.as_ref().filter(|tunnel| *tunnel.get_ref());
            if let Some(tunnel) = tunnel {
                let what = format!(
                    "node {:?} has a tunnel but nobody can take it, at least one [[client]] is needed",
                    node.name.get_ref()
                );
                self.at(tunnel, what);
            }
        }
    }
}
