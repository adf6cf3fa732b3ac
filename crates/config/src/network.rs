//! Networks of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The most networks of clients that a cluster can have.
pub const MAX_NETWORKS: usize = 256;

/// A network: all addresses whose first bits are the same. Displays as in the file, `198.51.100.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    /// The first address: all bits behind the prefix are 0.
    pub address: IpAddr,
    /// Number of common bits; at most 32 (IPv4) or 128.
    pub prefix_len: u8,
}

impl Network {
    /// All addresses of IPv4.
    pub(crate) const ALL_V4: Network = Network { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix_len: 0 };
    /// All addresses of IPv6.
    pub(crate) const ALL_V6: Network = Network { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix_len: 0 };

    /// The network with this prefix that the address is in. None if the prefix is longer than the address.
    pub fn around(address: IpAddr, prefix_len: u8) -> Option<Network> {
        let address = match address {
            IpAddr::V4(v4) => {
                let behind = 32u32.checked_sub(prefix_len.into())?;
                let mask = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::from((u32::from(v4) & mask).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let behind = 128u32.checked_sub(prefix_len.into())?;
                let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::from((u128::from(v6) & mask).to_be_bytes())
            }
        };
        Some(Network { address, prefix_len })
    }

    /// The network of one address.
    pub(crate) fn of(address: IpAddr) -> Network {
        Network { address, prefix_len: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Values of networks, of which an address has that of the longest prefix. A look-up takes a step for each length of a
/// prefix that occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks<T> {
    values: BTreeMap<Network, T>,
    lens_v4: BTreeSet<u8>,
    lens_v6: BTreeSet<u8>,
}

impl<T> Default for Networks<T> {
    fn default() -> Self {
        Networks { values: BTreeMap::new(), lens_v4: BTreeSet::new(), lens_v6: BTreeSet::new() }
    }
}

/// Of a network that occurs twice the last value counts.
impl<T> FromIterator<(Network, T)> for Networks<T> {
    fn from_iter<I: IntoIterator<Item = (Network, T)>>(values: I) -> Self {
        let mut networks = Networks::default();
        values.into_iter().for_each(|(network, value)| networks.insert(network, value));
        networks
    }
}

impl<T> Networks<T> {
    fn insert(&mut self, network: Network, value: T) {
        let lens = if network.address.is_ipv4() { &mut self.lens_v4 } else { &mut self.lens_v6 };
        lens.insert(network.prefix_len);
        self.values.insert(network, value);
    }

    /// The value of an address.
    pub fn at(&self, address: IpAddr) -> Option<&T> {
        self.around(Network::of(address))
    }

    /// The value of the smallest network that has all addresses of this one.
    fn around(&self, network: Network) -> Option<&T> {
        let lens = if network.address.is_ipv4() { &self.lens_v4 } else { &self.lens_v6 };
        let longest_first = lens.range(..=network.prefix_len).rev();
        longest_first
            .filter_map(|len| Network::around(network.address, *len))
            .find_map(|around| self.values.get(&around))
    }

    /// All networks with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&Network, &T)> {
        self.values.iter()
    }

    /// Number of networks.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// The clients of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMatch {
    /// As in the file: networks, addresses and names of lists.
    pub(crate) texts: Vec<String>,
    /// Shared, because lists are long, and each thread has its own routes.
    pub(crate) networks: Arc<Networks<()>>,
}

impl ClientMatch {
    /// Whether the address is one of theirs. An IPv4-mapped IPv6 address is in no network of IPv4.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.networks.at(address).is_some()
    }

    /// Whether each network of the other is within one of these.
    pub(crate) fn takes_all_of(&self, other: &ClientMatch) -> bool {
        other.networks.iter().all(|(network, ())| self.networks.around(*network).is_some())
    }
}

impl fmt::Display for ClientMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.texts.join(" or "))
    }
}

/// Which clients a service lets in: the longest network that has the client's address decides. By default all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Whether the clients of a network are let in. Either there is none, or both families have a network of all addresses.
    pub networks: Arc<Networks<bool>>,
    /// As in the file.
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
}

impl Admitted {
    /// Each key with its value. Lists in files are told by their number of networks.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 3] {
        let words = |texts: &[String]| if texts.is_empty() { "(none)".to_owned() } else { texts.join(", ") };
        [
            ("clients.allow", words(&self.allow)),
            ("clients.deny", words(&self.deny)),
            ("clients, networks", self.networks.len().to_string()),
        ]
    }

    /// Its lists in words, such as `clients denied: abusers, 192.0.2.7`.
    pub fn shown(&self) -> impl Iterator<Item = String> {
        let lists = [("allowed", &self.allow), ("denied", &self.deny)].into_iter();
        let named = lists.filter(|(_, list)| !list.is_empty());
        named.map(|(what, list)| format!("clients {what}: {}", list.join(", ")))
    }

    /// Whether a client with this address is let in.
    pub fn admits(&self, address: IpAddr) -> bool {
        self.networks.at(address).is_none_or(|admits| *admits)
    }
}
