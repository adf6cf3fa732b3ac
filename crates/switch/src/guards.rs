//! Writes what the program needs to know of a service's clients: which it lets in, and how often.
//!
//! There are two banks of guards and two tries. A new configuration goes to the bank that is not in use, and its lists to
//! the trie that is not in use; the VIP entries, replaced afterwards, name the guards, and these the trie. Lists that have
//! not changed stay where they are.
//!
//! In front of each trie is a bitmap of the blocks of addresses ("cells") that it has to be asked about, because a deep trie
//! costs a packet more than all else that the program does.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};
use switchback_config::{Admitted, Cluster, Limit, Network, Rate, Service};
use switchback_runtime::{Doing, Error, Result};
use switchback_wire::report::pool_id;
use switchback_wire::{
    SB_CELL_FACTOR, SB_CELL_IS_V4, SB_CELL_LISTED, SB_CELL_V4, SB_CELL_V6, SB_GUARDS, SB_LISTED,
    SB_MARKS_BITS, SB_OTHERS_ADMITTED, SB_OTHERS_REFUSED, SB_OTHERS_UNKNOWN, address_bytes, bytes_of,
    sb_client_network, sb_guard, sb_rate,
};

const BANK: usize = SB_GUARDS as usize / 2;
/// Networks per system call.
const BATCH: usize = 4096;
/// Bits of an IPv4-mapped address before the IPv4 address.
const MAPPED: u32 = 96;
/// Bits of `sb_client_network::service`.
const SERVICE: u32 = u32::BITS;
/// Words of a bitmap of marks.
const MARKS: usize = 1 << (SB_MARKS_BITS - u64::BITS.ilog2());
/// Most cells that a list marks for a family: a bitmap with more would send too many clients to the trie.
const CELLS: u64 = 1 << (SB_MARKS_BITS - 2);

/// The program's guards and tries.
pub struct Guards<'a> {
    /// Both banks.
    pub guards: &'a dyn MapCore,
    /// The tries of clients.
    pub tries: [&'a dyn MapCore; 2],
    /// The bitmaps of both tries.
    pub marks: &'a dyn MapCore,
}

/// The lists of clients that a trie has.
#[derive(Debug, Default)]
pub struct Listed {
    /// Index of the trie.
    at: usize,
    /// By service.
    lists: Vec<Admitted>,
    /// By service, for IPv4 and IPv6: `SB_OTHERS_*`.
    others: Vec<[u16; 2]>,
    /// All keys in each trie.
    keys: [Vec<sb_client_network>; 2],
    /// Whether a cell of each trie is marked.
    marked: [bool; 2],
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
            let [others_v4, others_v6] = listed.others[index];
            let guard = sb_guard { list, listed: index as u16, others_v4, others_v6, ..guard(service) };
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
        let mut marks = Marks(Vec::new());
        listed.others = lists.iter().enumerate().map(|(index, list)| marks.add(index, list)).collect();
        self.write_marks(at, &marks, &mut listed.marked[at])?;
        (listed.at, listed.lists) = (at, lists);
        Ok(())
    }

    fn write_marks(&self, at: usize, marks: &Marks, is_marked: &mut bool) -> Result<()> {
        let was_marked = std::mem::replace(is_marked, !marks.0.is_empty());
        let none = vec![0; MARKS];
        let words = if marks.0.is_empty() { &none } else { &marks.0 };
        if !was_marked && !*is_marked {
            return Ok(());
        }
        let keys: Vec<u8> =
            (at * MARKS..(at + 1) * MARKS).flat_map(|word| (word as u32).to_ne_bytes()).collect();
        let values: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.marks
            .update_batch(&keys, &values, MARKS as u32, MapFlags::ANY, MapFlags::ANY)
            .doing(|| "mark the networks of a list of clients")
    }
}

/// The bitmap of a trie; empty without a mark.
struct Marks(Vec<u64>);

impl Marks {
    /// Marks the cells of a list, for IPv4 and IPv6; the result is what holds for clients in others.
    fn add(&mut self, service: usize, list: &Admitted) -> [u16; 2] {
        [true, false].map(|v4| self.add_family(service, list, v4))
    }

    fn add_family(&mut self, service: usize, list: &Admitted, v4: bool) -> u16 {
        let networks = || list.networks.iter().filter(|(network, _)| network.address.is_ipv4() == v4);
        let all = networks().find(|(network, _)| network.prefix_len == 0);
        let admits_others = all.is_none_or(|(_, admits)| *admits);
        let different = || networks().filter(|(_, admits)| **admits != admits_others);
        if different().map(|(network, _)| cells(network)).fold(0, u64::saturating_add) > CELLS {
            return SB_OTHERS_UNKNOWN as u16;
        }
        for (network, _) in different() {
            self.0.resize(MARKS, 0);
            let first = first_cell(network) | (service as u64) << SB_CELL_LISTED;
            for cell in first..first + cells(network) {
                let bit = cell.wrapping_mul(SB_CELL_FACTOR) >> (u64::BITS - SB_MARKS_BITS);
                self.0[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        (if admits_others { SB_OTHERS_ADMITTED } else { SB_OTHERS_REFUSED }) as u16
    }
}

/// Number of cells in which the network has clients.
fn cells(network: &Network) -> u64 {
    let bits = if network.address.is_ipv4() { SB_CELL_V4 } else { SB_CELL_V6 };
    1 << bits.saturating_sub(network.prefix_len.into())
}

/// The first of these.
fn first_cell(network: &Network) -> u64 {
    match network.address {
        IpAddr::V4(address) => SB_CELL_IS_V4 | u64::from(address.to_bits() >> (32 - SB_CELL_V4)),
        IpAddr::V6(address) => (address.to_bits() >> (128 - SB_CELL_V6)) as u64,
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
        masks: [u32::from(limits.prefixes.1), MAPPED + u32::from(limits.prefixes.0)]
            .map(|bits| (!u128::MAX.checked_shr(bits).unwrap_or(0)).to_be_bytes()),
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
