//! Networks of clients.

use std::fmt;
use std::net::IpAddr;

/// The most networks of clients that a cluster can have.
pub const MAX_NETWORKS: usize = 256;

/// A network: all addresses whose first bits are the same. Displays as in the file, `198.51.100.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first address: all bits behind the prefix are 0.
    pub address: IpAddr,
    /// Number of common bits; at most 32 (IPv4) or 128.
    pub prefix_len: u8,
}

impl Network {
    /// The network with this prefix that the address is in. None if the prefix is longer than the address.
    pub(crate) fn around(address: IpAddr, prefix_len: u8) -> Option<Network> {
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

    /// Whether the address is in it. An IPv4-mapped IPv6 address is in no network of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Network::around(address, self.prefix_len).is_some_and(|around| around == *self)
    }

    /// Whether it has all addresses of the other one.
    pub(crate) fn takes_all_of(&self, other: &Network) -> bool {
        self.prefix_len <= other.prefix_len && self.contains(other.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}
