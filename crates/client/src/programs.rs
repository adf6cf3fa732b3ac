//! The BPF programs and their maps: loading, pinning, attaching, taking over from a shim that was killed.
//!
//! The maps of flows and nodes are pinned, so a new shim continues with them. The maps that follow from the
//! configuration are created anew and filled before the programs that use them are attached.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::IpAddr;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use switchback_config::Client;
use switchback_runtime::pins::PinDir;
use switchback_runtime::programs::{Attachment, Place, attach_or_replace, pin, reuse};
use switchback_runtime::{Doing, Error, Result};
use switchback_wire::{
    ClientCounter, address_bytes, address_from, bytes_of, endpoint, read_from, sb_client_keys,
    sb_client_settings, sb_direct_flow, sb_direct_node, sb_direct_state, sb_flow,
};

use crate::skeleton::{ClientSkel, ClientSkelBuilder, OpenClientSkel};

/// The loaded programs. Dropping them leaves the pinned ones at work.
pub(crate) struct Programs<'obj> {
    skeleton: ClientSkel<'obj>,
    attached: Vec<Attachment>,
}

impl<'obj> Programs<'obj> {
    /// Loads the programs, reusing the maps of an earlier shim where the layouts match.
    pub(crate) fn load(storage: &'obj mut MaybeUninit<OpenObject>, pins: &PinDir) -> Result<Programs<'obj>> {
        let mut open = open(storage)?;
        let maps = &mut open.maps;
        for (map, name) in [
            (&mut maps.flows, "flows"),
            (&mut maps.tunneled, "tunneled"),
            (&mut maps.nodes, "nodes"),
            (&mut maps.counters, "counters"),
        ] {
            reuse(map, &pins.path(name))?;
        }
        let mut skeleton = open.load().doing(|| "load the client's BPF programs")?;
        let maps = &mut skeleton.maps;
        for (map, name) in [
            (&mut maps.flows, "flows"),
            (&mut maps.tunneled, "tunneled"),
            (&mut maps.nodes, "nodes"),
            (&mut maps.counters, "counters"),
        ] {
            pin(map, &pins.path(name))?;
        }
        Ok(Programs { skeleton, attached: Vec::new() })
    }

    /// Attaches both programs, replacing those of an earlier shim.
    pub(crate) fn attach(&mut self, pins: &PinDir, interface: &str, index: u32) -> Result<()> {
        let programs = &self.skeleton.progs;
        // Ingress first, because otherwise the answers of nodes would be missed.
        for (program, name) in
            [(&programs.switchback_client_ingress, "ingress"), (&programs.switchback_client_egress, "egress")]
        {
            let attached = attach_or_replace(program, &pins.link_path(name), index, Place::Last);
            let doing = || format!("attach the program switchback_client_{name} to {interface}");
            self.attached.push(attached.doing(doing)?);
        }
        Ok(())
    }

    /// Detaches the programs and removes the pins. The maps stay readable.
    pub(crate) fn detach(&mut self, pins: PinDir) -> Result<()> {
        for attached in self.attached.drain(..) {
            // Explicitly: a link would go with its pin, but not a filter.
            let _ = attached.detach();
        }
        pins.remove_all()
    }

    /// Writes the configuration to the maps.
    pub(crate) fn configure(&self, client: &Client) -> Result<()> {
        let maps = &self.skeleton.maps;
        let keys = client.keys.iter().map(|(address, keys)| {
            let mut keys = keys.iter().map(|key| key.to_wire());
            let (sign, accept) = (keys.next().unwrap_or_default(), keys.next().unwrap_or_default());
            let value = bytes_of(&sb_client_keys { sign, accept }).to_vec();
            (address_bytes(*address).to_vec(), value)
        });
        fill(&maps.keys, "keys", keys.collect())?;
        let services = client.services.iter();
        let services = services.map(|vip| (bytes_of(&endpoint(*vip)).to_vec(), 1u32.to_ne_bytes().to_vec()));
        fill(&maps.services, "services", services.collect())?;
        let settings =
            sb_client_settings { thin_acks: client.thin_acks.unwrap_or(0), firewall: client.firewall.into() };
        let doing = || "write the map settings";
        maps.settings.update(&0u32.to_ne_bytes(), bytes_of(&settings), MapFlags::ANY).doing(doing)
    }

    /// Flows whose servers send through a tunnel, including closed connections.
    pub(crate) fn tunneled(&self) -> Vec<sb_flow> {
        self.skeleton.maps.tunneled.keys().filter_map(|key| read_from(&key)).collect()
    }

    /// Number of flows that go to a node directly.
    pub(crate) fn direct_flows(&self) -> Result<usize> {
        let map = &self.skeleton.maps.flows;
        let is_direct = |key: Vec<u8>| {
            // The entry may have been removed since.
            let value = map.lookup(&key, MapFlags::ANY).doing(|| "read the map flows")?;
            let flow = value.and_then(|value| read_from::<sb_direct_flow>(&value));
            Ok(flow.is_some_and(|flow| flow.state == sb_direct_state::SB_DIRECT_ON as u8))
        };
        let direct: Vec<bool> = map.keys().map(is_direct).collect::<Result<_>>()?;
        Ok(direct.into_iter().filter(|is_direct| *is_direct).count())
    }

    /// Entries of the map `nodes`.
    pub(crate) fn nodes(&self) -> Result<BTreeMap<IpAddr, sb_direct_node>> {
        let map = &self.skeleton.maps.nodes;
        let read = |key: Vec<u8>| {
            let value = map.lookup(&key, MapFlags::ANY).doing(|| "read the map nodes")?;
            let address = <[u8; 16]>::try_from(key).ok().map(address_from);
            Ok(address.zip(value.and_then(|value| read_from::<sb_direct_node>(&value))))
        };
        map.keys().filter_map(|key| read(key).transpose()).collect()
    }

    /// All counters by name, summed over the CPUs.
    pub(crate) fn counters(&self) -> Result<BTreeMap<&'static str, u64>> {
        let read = |counter: ClientCounter| Ok((counter.name(), self.counter(counter)?));
        ClientCounter::ALL.into_iter().map(read).collect()
    }

    fn counter(&self, counter: ClientCounter) -> Result<u64> {
        let key = (counter as u32).to_ne_bytes();
        let per_cpu = self.skeleton.maps.counters.lookup_percpu(&key, MapFlags::ANY);
        let values = per_cpu.doing(|| "read the map counters")?.unwrap_or_default();
        let numbers = values.iter().filter_map(|value| value.as_slice().try_into().ok());
        Ok(numbers.map(u64::from_ne_bytes).sum())
    }
}

/// Replaces the entries of a map.
fn fill(map: &impl MapCore, name: &str, entries: BTreeMap<Vec<u8>, Vec<u8>>) -> Result<()> {
    let doing = || format!("write the map {name}");
    let gone: Vec<Vec<u8>> = map.keys().filter(|key| !entries.contains_key(key)).collect();
    gone.iter().try_for_each(|key| map.delete(key).doing(doing))?;
    entries.iter().try_for_each(|(key, value)| map.update(key, value, MapFlags::ANY).doing(doing))
}

/// The programs before loading.
fn open(storage: &mut MaybeUninit<OpenObject>) -> Result<OpenClientSkel<'_>> {
    libbpf_rs::set_print(None);
    ClientSkelBuilder::default().open(storage).doing(|| "open the client's BPF programs")
}

/// Adds to a load error what the machine needs.
pub(crate) fn cannot_load(error: Error) -> Error {
    error.remedy("Linux 6.6 or later, CAP_BPF and CAP_NET_ADMIN are needed; `switchback doctor` tells more")
}

#[cfg(test)]
mod tests;
