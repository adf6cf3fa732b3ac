//! Maps for clients with a shim.

use libbpf_rs::{MapCore, MapFlags};
use switchback_runtime::{Doing, Result};
use switchback_wire::bytes_of;

use super::Programs;
use crate::clients::Clients;
use crate::skeleton::NodeMaps;

impl Programs<'_> {
    /// Writes the clients to which the node introduces itself to the maps.
    pub(crate) fn set_clients(&self, clients: &Clients) -> Result<()> {
        set(&self.skeleton.maps, clients)
    }
}

pub(super) fn set(maps: &NodeMaps<'_>, clients: &Clients) -> Result<()> {
    let (master, networks) = (&maps.client_master, &maps.clients);
    master
        .update(&0u32.to_ne_bytes(), bytes_of(&clients.master), MapFlags::ANY)
        .doing(|| "write the map client_master")?;
    for network in &clients.networks {
        let added = networks.update(bytes_of(network), &1u32.to_ne_bytes(), MapFlags::ANY);
        added.doing(|| "write the map clients")?;
    }
    let is_gone = |key: &Vec<u8>| !clients.networks.iter().any(|network| bytes_of(network) == key);
    let gone: Vec<Vec<u8>> = networks.keys().filter(is_gone).collect();
    gone.iter().try_for_each(|key| networks.delete(key).doing(|| "write the map clients"))
}
