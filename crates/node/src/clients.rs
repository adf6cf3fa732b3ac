//! Configuration of the programs for clients with a shim.

use switchback_config::{Cluster, Network};
use switchback_wire::{address_bytes, keys, sb_network, sb_node_clients};

/// Bits before an IPv4 address in its 16-byte form.
const MAPPED_BITS: u32 = 96;

/// The clients to which a node introduces itself, and the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) master: sb_node_clients,
    pub(crate) networks: Vec<sb_network>,
}

impl Clients {
    /// For the node with this index in the cluster.
    pub(crate) fn of(cluster: &Cluster, node: usize) -> Clients {
        let mut keys = cluster.keys.iter().map(|key| keys::client_master_key(key.as_bytes()));
        let master = sb_node_clients {
            sign: keys.next().unwrap_or_default(),
            accept: keys.next().unwrap_or_default(),
            tunnel: cluster.nodes[node].tunnel.into(),
            reserved: 0,
        };
        Clients { master, networks: cluster.clients.iter().map(network).collect() }
    }
}

fn network(network: &Network) -> sb_network {
    let before = if network.address.is_ipv4() { MAPPED_BITS } else { 0 };
    sb_network { prefix_len: before + u32::from(network.prefix_len), address: address_bytes(network.address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_network_is_one_of_mapped_addresses() {
        let of = |address: &str, prefix_len| {
            let network = network(&Network { address: address.parse().unwrap(), prefix_len });
            (network.prefix_len, network.address)
        };
        assert_eq!(of("10.0.0.0", 8), (104, address_bytes("10.0.0.0".parse().unwrap())));
        assert_eq!(of("2001:db8::", 32), (32, address_bytes("2001:db8::".parse().unwrap())));
        assert_eq!(of("::", 0), (0, [0; 16]));
    }
}
