//! The formats between programs and machines: handoff packets between switch and nodes, and the BPF maps between a
//! program and its user-space half. The formats are defined once, in C headers; [`generated`] is made from them.
//!
//! `docs/wire-format.md` draws the packets and gives the receiver's rules.

pub mod client;
pub mod clock;
pub mod facts;
pub mod flow_state;
#[allow(missing_docs, non_camel_case_types, clippy::all)]
#[rustfmt::skip]
pub mod generated;
pub mod generation;
#[cfg(test)]
mod golden;
pub mod handoff;
pub mod keys;
pub mod members;
pub mod message;
mod names;
pub mod node_address;
pub mod packet;
pub mod payload;
mod plain;
pub mod records;
pub mod report;
pub mod seq;
pub mod session;
pub mod switches;

pub use generated::*;
pub use node_address::NodeAddress;
pub use plain::{Plain, bytes_of, read_from};
pub use seq::Seq;

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The directory of the headers that the BPF programs include, for build scripts.
pub const BPF_INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");

/// The 16-byte form of an address in maps and tags: IPv4 as `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2).
pub fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The inverse of [`address_bytes`].
pub fn address_from(bytes: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(bytes);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), |v4: Ipv4Addr| IpAddr::V4(v4))
}

/// The key of a VIP in the switch's map.
pub fn endpoint(address: SocketAddr) -> sb_endpoint {
    sb_endpoint { address: address_bytes(address.ip()), port: address.port().to_be(), reserved: 0 }
}

/// All bytes at once: the key of most tables is a flow.
impl Hash for sb_flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(bytes_of(self));
    }
}

impl sb_flow {
    /// The client's address and port.
    pub fn client(&self) -> SocketAddr {
        SocketAddr::new(address_from(self.client), u16::from_be(self.client_port))
    }

    /// The VIP and its port.
    pub fn vip(&self) -> SocketAddr {
        SocketAddr::new(address_from(self.vip), u16::from_be(self.vip_port))
    }
}
