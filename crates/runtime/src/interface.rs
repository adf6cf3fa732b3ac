//! Facts about a network interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Doing, Error, Result};
use crate::netlink::{Attributes, Request, Socket};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// RTM_GETLINK's attribute with the index of the interface below (include/uapi/linux/if_link.h).
const IFLA_LINK: u16 = 5;

/// Drivers whose interfaces are a layer over another one, which does the receive offload.
const LAYERED: [&str; 3] = ["macvlan", "ipvlan", "802.1Q VLAN Support"];

nix::ioctl_readwrite_bad!(
    /// SIOCGIFMTU of netdevice(7).
    get_mtu,
    libc::SIOCGIFMTU,
    libc::ifreq
);
nix::ioctl_readwrite_bad!(
    /// SIOCETHTOOL: linux/ethtool.h.
    ethtool,
    libc::SIOCETHTOOL,
    libc::ifreq
);

/// `struct ethtool_value` (include/uapi/linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`: the command, then texts of fixed length, of which the first is the driver's
/// name.
#[repr(C)]
struct EthtoolDriver {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    /// Most of each kind.
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// The names of all interfaces.
pub fn names() -> Result<Vec<String>> {
    let all = nix::net::if_::if_nameindex().doing(|| "list the network interfaces")?;
    Ok(all.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect())
}

/// The interface's index; an error that lists the interfaces if there is none of this name.
pub fn index(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).map_err(|_| missing(name, &names().unwrap_or_default()))
}

/// The name of the interface with this index, if there is one.
pub fn name(index: u32) -> Option<String> {
    let name = nix::net::if_::if_indextoname(index).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// The error for an interface that does not exist.
pub(crate) fn missing(name: &str, existing: &[String]) -> Error {
    Error::new(format!("there is no network interface {name}")).remedy(missing_remedy(existing))
}

/// What to do about an interface that does not exist.
pub(crate) fn missing_remedy(existing: &[String]) -> String {
    format!("name one of {} with --interface", existing.join(", "))
}

/// The interface that has this address.
pub fn with_address(address: IpAddr) -> Result<String> {
    for name in names()? {
        if addresses(&name)?.contains(&address) {
            return Ok(name);
        }
    }
    Err(Error::new(format!("no interface of this machine has the address {address}"))
        .remedy("correct the node's address in the configuration, or the name of this machine"))
}

/// The interface by which this machine would send to the address; None if it is its own, or has no route.
pub fn towards(address: IpAddr) -> Result<Option<u32>> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket chooses a source address, and sends nothing.
    let socket = UdpSocket::bind((any, 0)).doing(|| "open a UDP socket")?;
    if socket.connect((address, 1)).is_err() {
        return Ok(None);
    }
    let source = socket.local_addr().doing(|| "read the address of a UDP socket")?.ip();
    if source == address {
        return Ok(None);
    }
    index(&with_address(source)?).map(Some)
}

/// Bytes of the longest IP packet that the interface sends.
pub fn mtu(name: &str) -> Result<u32> {
    let mut request = ifreq(name)?;
    with_socket(|socket| {
        // SAFETY: `request` is a whole ifreq with the name filled in, and outlives the call.
        unsafe { get_mtu(socket, &mut request) }
    })
    .doing(|| format!("read the MTU of {name}"))?;
    // SAFETY: SIOCGIFMTU has filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(mtu.cast_unsigned())
}

/// How XDP works on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// Whether a program is attached in generic mode.
    pub is_generic: bool,
    /// Whether packets that are redirected to the interface leave it. On a veth that depends on its other end.
    pub sends_redirected: bool,
}

/// Asks the kernel how XDP works on the interface.
pub fn xdp(ifindex: u32) -> Result<Xdp> {
    const XDP_ATTACHED_SKB: u8 = 2;
    // include/uapi/linux/netdev.h.
    const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options' size is set, and they live until the call returns.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut options) };
    if result != 0 {
        let error = std::io::Error::from_raw_os_error(-result);
        return Err(error).doing(|| format!("ask how XDP works on interface {ifindex}"));
    }
    Ok(Xdp {
        is_generic: options.attach_mode == XDP_ATTACHED_SKB,
        sends_redirected: options.feature_flags & NETDEV_XDP_ACT_NDO_XMIT != 0,
    })
}

/// The name of the interface's driver, as `ethtool -i` shows it.
pub fn driver(name: &str) -> Result<String> {
    let mut info = EthtoolDriver { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ask_ethtool(name, &mut info).doing(|| format!("read the driver of {name}"))?;
    let end = info.driver.iter().position(|&byte| byte == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
}

/// The interface whose receive offload merges what arrives on this one: itself, or the one that it lies over.
pub fn merging(name: &str) -> Result<String> {
    let below = if LAYERED.contains(&driver(name)?.as_str()) { interface_below(name)? } else { None };
    Ok(below.unwrap_or_else(|| name.to_owned()))
}

/// Whether arriving packets may be merged into larger ones (GRO) before a program in generic XDP mode sees
/// them. Interfaces that lie over another one, as macvlan does, get what that one has merged: then its state
/// is told.
pub fn gro(name: &str) -> Result<bool> {
    let name = &merging(name)?;
    let mut value = EthtoolValue { command: ETHTOOL_GGRO, data: 0 };
    ask_ethtool(name, &mut value).doing(|| format!("read whether {name} merges packets (GRO)"))?;
    Ok(value.data != 0)
}

/// Number of queues in which packets arrive; 1 if the driver does not tell.
pub fn receive_queues(name: &str) -> Result<usize> {
    let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
    match try_ethtool(ifreq(name)?, &mut channels) {
        Ok(()) => Ok((channels.receive + channels.combined).max(1) as usize),
        Err(nix::Error::EOPNOTSUPP) => Ok(1),
        Err(errno) => {
            Err(Error::cannot(format!("read the number of receive queues of {name}"), errno.desc()))
        }
    }
}

/// The name of the interface below, if it is in this namespace.
fn interface_below(name: &str) -> Result<Option<String>> {
    const RTM_GETLINK: u16 = 18;
    // struct ifinfomsg: family, padding, type, index, flags, change.
    let mut message = [0; 16];
    message[4..8].copy_from_slice(&index(name)?.to_ne_bytes());
    let answers = Socket::route().and_then(|mut socket| socket.ask(Request::new(RTM_GETLINK, &message)));
    let answers = answers.doing(|| format!("ask what is below {name}"))?;
    let link = answers.iter().find_map(|answer| Attributes::after(answer, 16).find(IFLA_LINK)?.as_u32());
    let below = link.and_then(|index| nix::net::if_::if_indextoname(index).ok());
    Ok(below.map(|name| name.to_string_lossy().into_owned()))
}

/// The interface's addresses of both families, in the kernel's order: the primary IPv4 address is the first.
pub fn addresses(name: &str) -> Result<Vec<IpAddr>> {
    let all = getifaddrs().doing(|| format!("list the addresses of {name}"))?;
    Ok(all.filter(|entry| entry.interface_name == name).filter_map(|entry| address_of(&entry)).collect())
}

/// The addresses of all interfaces.
pub fn all_addresses() -> Result<Vec<IpAddr>> {
    let all = getifaddrs().doing(|| "list the addresses of this machine")?;
    Ok(all.filter_map(|entry| address_of(&entry)).collect())
}

fn address_of(entry: &InterfaceAddress) -> Option<IpAddr> {
    let address = entry.address?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn ask_ethtool<T>(name: &str, question: &mut T) -> Result<()> {
    try_ethtool(ifreq(name)?, question).map_err(|errno| Error::new(errno.desc()))
}

fn try_ethtool<T>(mut request: libc::ifreq, question: &mut T) -> nix::Result<()> {
    request.ifr_ifru.ifru_data = std::ptr::from_mut(question).cast();
    with_socket(|socket| {
        // SAFETY: `ifru_data` points to the structure that the command in its first word asks for, which
        // outlives the call.
        unsafe { ethtool(socket, &mut request) }
    })
}

fn with_socket(ioctl: impl FnOnce(i32) -> nix::Result<i32>) -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    ioctl(socket.as_raw_fd()).map(drop)
}

fn ifreq(name: &str) -> Result<libc::ifreq> {
    // SAFETY: an ifreq of zeroes is valid: an empty name and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(missing(name, &names()?));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}
