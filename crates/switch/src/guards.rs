//! Writes what the program needs to know of a service's clients: which it lets in, and how often.
//!
//! There are two banks of guards and two tries. A new configuration goes to the bank that is not in use, and its lists to
//! the trie that is not in use; the VIP entries, replaced afterwards, name the guards, and these the trie. Lists that have
//! not changed stay where they are.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};
use switchback_config::{Admitted, Cluster, Limit, Network, Rate, Service};
use switchback_runtime::{Doing, Error, Result};
use switchback_wire::report::pool_id;
use switchback_wire::{SB_GUARDS, SB_LISTED, address_bytes, bytes_of, sb_client_network, sb_guard, sb_rate};

const BANK: usize = SB_GUARDS as usize / 2;
/// Networks per system call.
const BATCH: usize = 4096;
/// Bits of an IPv4-mapped address before the IPv4 address.
const MAPPED: u32 = 96;
/// Bits of `sb_client_network::service`.
const SERVICE: u32 = u32::BITS;

/// The program's guards and tries.
pub struct Guards<'a> {
    /// Both banks.
    pub guards: &'a dyn MapCore,
    /// The tries of clients.
    pub tries: [&'a dyn MapCore; 2],
}

/// The lists of clients that a trie has.
#[derive(Debug, Default)]
pub struct Listed {
    /// Index of the trie.
    at: usize,
    /// By service.
    lists: Vec<Admitted>,
    /// All keys in each trie.
    keys: [Vec<sb_client_network>; 2],
}

impl Guards<'_> {
    /// Writes the guards of a configuration to a bank. The result has for each service what its VIP entries say.
    pub fn write(&self, bank: usize, cluster: &Cluster, listed: &mut Listed) -> Result<Vec<u16>> {
        let lists: Vec<_> = cluster.services.iter().map(|service| service.admitted.clone()).collect();
        if lists != listed.lists {
            self.write_lists(listed, lists)?;
        }
        let base = bank * BANK;
        let mut places = Vec::new();
        for (index, service) in cluster.services.iter().enumerate() {
            let list = if service.admitted.networks.is_empty() { 0 } else { listed.at as u16 + 1 };
            let guard = sb_guard { list, listed: index as u16, ..guard(service) };
            let limits = (guard.rates, guard.concurrent);
            let is_open = list == 0 && limits == ([[sb_rate::default(); 2]; 2], [0; 2]);
            let key = ((base + index) as u32).to_ne_bytes();
            self.guards
                .update(&key, bytes_of(&guard), MapFlags::ANY)
                .doing(|| "set the limits of a service")?;
            places.push(if is_open { 0 } else { (base + index + 1) as u16 });
        }
        Ok(places)
    }

    /// Fills the trie that is not in use, and empties it first.
    fn write_lists(&self, listed: &mut Listed, lists: Vec<Admitted>) -> Result<()> {
        let at = 1 - listed.at;
        let trie = self.tries[at];
        let mut entries = Vec::new();
        for (index, list) in lists.iter().enumerate() {
            entries.extend(
                list.networks.iter().map(|(network, admits)| (key(index, network), u32::from(*admits))),
            );
        }
        if entries.len() > SB_LISTED as usize {
            return Err(Error::new(format!(
                "{} networks in the lists of all services, at most {SB_LISTED} are possible",
                entries.len()
            )));
        }
        for keys in listed.keys[at].chunks(BATCH) {
            let bytes: Vec<u8> = keys.iter().flat_map(bytes_of).copied().collect();
            trie.delete_batch(&bytes, keys.len() as u32, MapFlags::ANY, MapFlags::ANY)
                .doing(|| "empty a list of clients")?;
        }
        for entries in entries.chunks(BATCH) {
            let keys: Vec<u8> = entries.iter().flat_map(|(key, _)| bytes_of(key)).copied().collect();
            let values: Vec<u8> = entries.iter().flat_map(|(_, admits)| admits.to_ne_bytes()).collect();
            trie.update_batch(&keys, &values, entries.len() as u32, MapFlags::ANY, MapFlags::ANY)
                .doing(|| "fill a list of clients")?;
        }
        listed.keys[at] = entries.into_iter().map(|(key, _)| key).collect();
        (listed.at, listed.lists) = (at, lists);
        Ok(())
    }
}

/// The guard of a service, without its list.
fn guard(service: &Service) -> sb_guard {
    let limits = &service.limits;
    let rates = |Limit { client, all }: Limit<Rate>| {
        [client, all].map(|rate| rate.map_or_else(sb_rate::default, rate_of))
    };
    let requests = Limit {
        client: limits.requests.client.map(|limit| limit.rate),
        all: limits.requests.all.map(|limit| limit.rate),
    };
    sb_guard {
        rates: [rates(limits.connections), rates(requests)],
        service: pool_id(&service.name),
        prefix_v4: MAPPED as u16 + u16::from(limits.prefixes.0),
        prefix_v6: limits.prefixes.1.into(),
        concurrent: [limits.concurrent.client, limits.concurrent.all].map(Option::unwrap_or_default),
        ..sb_guard::default()
    }
}

fn rate_of(rate: Rate) -> sb_rate {
    sb_rate { interval: rate.interval_ns(), tolerance: rate.tolerance_ns() }
}

fn key(service: usize, network: &Network) -> sb_client_network {
    let before = match network.address {
        IpAddr::V4(_) => MAPPED,
        IpAddr::V6(_) => 0,
    };
    sb_client_network {
        prefix_len: SERVICE + before + u32::from(network.prefix_len),
        service: service as u32,
        address: address_bytes(network.address),
    }
}
