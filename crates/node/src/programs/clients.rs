//! Maps for clients with a shim.

use libbpf_rs::{MapCore, MapFlags};
use switchback_runtime::{Doing, Result, maps};
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

pub(super) fn set(of: &NodeMaps<'_>, clients: &Clients) -> Result<()> {
    let (master, networks) = (&of.client_master, &of.clients);
    master
        .update(&0u32.to_ne_bytes(), bytes_of(&clients.master), MapFlags::ANY)
        .doing(|| "write the map client_master")?;
    let value = 1u32.to_ne_bytes().to_vec();
    let wanted = clients.networks.iter().map(|network| (bytes_of(network).to_vec(), value.clone())).collect();
    maps::replace(networks, &wanted).doing(|| "write the map clients")
}
