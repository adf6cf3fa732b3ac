//! What `cluster.toml` asks of this node.

use std::net::IpAddr;
use std::path::Path;

use switchback_config::Cluster;
use switchback_runtime::Error;
use switchback_wire::{keys, sb_key};

/// A configuration, as one node sees it.
pub(crate) struct Plan {
    pub(crate) cluster: Cluster,
    pub(crate) address: IpAddr,
    /// Sorted, none twice.
    pub(crate) vips: Vec<IpAddr>,
    /// Signs handoff packets.
    pub(crate) sign: sb_key,
    /// Also accepted; zeroes for none.
    pub(crate) accept: sb_key,
}

impl Plan {
    /// Reads the file and finds the node in it.
    pub(crate) fn load(config: &Path, name: &str) -> Result<Plan, Error> {
        let cluster = switchback_config::load(config)
            .map_err(|error| Error::new(error.to_string()).with_exit_status(error.exit_status()))?;
        Plan::new(cluster, name)
    }

    fn new(cluster: Cluster, name: &str) -> Result<Plan, Error> {
        let Some(node) = cluster.nodes.iter().find(|node| node.name == name) else {
            let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(Error::new(format!("the configuration has no node {name}"))
                .remedy(format!("it has {}", names.join(", ")))
                .with_exit_status(1));
        };
        let address = node.address;
        let listen = cluster.services.iter().flat_map(|service| &service.listen);
        let mut vips: Vec<IpAddr> = listen.map(|vip| vip.ip()).collect();
        vips.sort_unstable();
        vips.dedup();
        let mut handoff_keys = cluster.keys.iter().map(|key| keys::handoff_key(key.as_bytes()));
        let (sign, accept) =
            (handoff_keys.next().unwrap_or_default(), handoff_keys.next().unwrap_or_default());
        Ok(Plan { address, vips, sign, accept, cluster })
    }
}

/// The ports of all services: where the node's servers must listen. In order, none twice.
pub fn service_ports(cluster: &Cluster) -> Vec<u16> {
    let listen = cluster.services.iter().flat_map(|service| &service.listen);
    let mut ports: Vec<u16> = listen.map(|vip| vip.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}
