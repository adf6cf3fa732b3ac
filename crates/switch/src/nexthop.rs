//! Next hops of handoff packets: routes and neighbours of the kernel, over netlink.
//!
//! The alternative in XDP, `bpf_fib_lookup()`, needs IP forwarding enabled on the interface and costs time for every
//! packet; see `docs/decisions/0001`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc;
use switchback_runtime::netlink::{Attributes, Request, Socket};

const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
const IFLA_ADDRESS: u16 = 1;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_VIA: u16 = 18;
/// Size of `struct rtmsg` and of `struct ndmsg`.
const FIXED_LEN: usize = 12;
const LINK_FIXED_LEN: usize = 16;
/// NUD_REACHABLE, STALE, DELAY, PROBE, NOARP, PERMANENT: states with a usable hardware address.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// Route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Source address.
    pub source: IpAddr,
    /// Outgoing interface.
    pub ifindex: u32,
    /// Hardware addresses of next hop and interface; None while the next hop is not resolved or has none.
    pub macs: Option<([u8; 6], [u8; 6])>,
}

/// Hardware addresses of interfaces, by index; None for one that is not an Ethernet address.
pub type Macs = HashMap<u32, Option<[u8; 6]>>;

/// The kernel's route to an address; None if there is none. `known` has the interfaces' hardware addresses that were asked
/// for so far.
pub fn route(socket: &mut Socket, known: &mut Macs, to: IpAddr) -> io::Result<Option<Route>> {
    let (family, dst) = encode(to);
    let mut message = [0; FIXED_LEN];
    message[0] = family;
    message[1] = dst.len() as u8 * 8;
    let answers = match socket.ask(Request::new(RTM_GETROUTE, &message).attribute(RTA_DST, &dst)) {
        Ok(answers) => answers,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let Some(answer) = answers.first() else { return Ok(None) };
    let attributes = Attributes::after(answer, FIXED_LEN);
    let oif = attributes.find(RTA_OIF).and_then(|oif| oif.as_u32());
    let source = attributes.find(RTA_PREFSRC).and_then(|source| decode(source.value));
    let (Some(ifindex), Some(source)) = (oif, source) else { return Ok(None) };
    let gateway = attributes.find(RTA_GATEWAY).and_then(|gateway| decode(gateway.value));
    // struct rtvia: a family, then the address.
    let via = attributes.find(RTA_VIA).and_then(|via| decode(via.value.get(2..)?));
    let Some(theirs) = neighbour(socket, ifindex, gateway.or(via).unwrap_or(to))? else {
        return Ok(Some(Route { source, ifindex, macs: None }));
    };
    let ours = match known.entry(ifindex) {
        Entry::Occupied(ours) => *ours.get(),
        Entry::Vacant(place) => *place.insert(mac_of(socket, ifindex)?),
    };
    Ok(Some(Route { source, ifindex, macs: ours.map(|ours| (theirs, ours)) }))
}

/// Hardware address of an interface, if it is an Ethernet address.
pub fn mac_of(socket: &mut Socket, ifindex: u32) -> io::Result<Option<[u8; 6]>> {
    let mut message = [0; LINK_FIXED_LEN];
    message[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let answers = socket.ask(Request::new(RTM_GETLINK, &message))?;
    Ok(answers.iter().find_map(|answer| {
        let mac: [u8; 6] =
            Attributes::after(answer, LINK_FIXED_LEN).find(IFLA_ADDRESS)?.value.try_into().ok()?;
        (mac != [0; 6]).then_some(mac)
    }))
}

fn neighbour(socket: &mut Socket, ifindex: u32, address: IpAddr) -> io::Result<Option<[u8; 6]>> {
    let (family, dst) = encode(address);
    let mut message = [0; FIXED_LEN];
    message[0] = family;
    message[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    let answers = match socket.ask(Request::new(RTM_GETNEIGH, &message).attribute(NDA_DST, &dst)) {
        Ok(answers) => answers,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(answers.iter().find_map(|answer| {
        let state = u16::from_ne_bytes(answer.get(8..10)?.try_into().ok()?);
        let mac = Attributes::after(answer, FIXED_LEN).find(NDA_LLADDR)?.value;
        if state & NUD_VALID == 0 { None } else { mac.try_into().ok() }
    }))
}

fn encode(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

fn decode(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|v4| IpAddr::V4(Ipv4Addr::from(v4)));
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))).ok()
}
