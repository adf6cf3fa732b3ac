//! The VIPs as addresses of `lo`, so that the server's sockets can answer from them.
//!
//! They have a protocol number of ours (IFA_PROTO, Linux 5.18), which distinguishes addresses left by a killed agent
//! from those that somebody else has added, which are never removed. The kernel must not choose a VIP as source of the
//! node's own connections: so IPv4 addresses have host scope, and IPv6 addresses are deprecated.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use switchback_runtime::netlink::{Attributes, Request, Socket};
use switchback_runtime::{Doing, Result, interface};

/// From linux/rtnetlink.h and linux/if_addr.h.
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
const IFA_F_NODAD: u32 = 0x02;
const RT_SCOPE_HOST: u8 = 254;
const RT_SCOPE_UNIVERSE: u8 = 0;
const IFADDRMSG_LEN: usize = 8;
const FOREVER: u32 = u32::MAX;
/// Protocol number of our addresses, not used by others (see /etc/iproute2/rt_addrprotos).
const OUR_PROTOCOL: u8 = 0x5b;

/// The addresses on `lo`.
pub(crate) struct Loopback {
    socket: Socket,
    index: u32,
}

impl Loopback {
    pub(crate) fn open() -> Result<Loopback> {
        let socket = Socket::route().doing(|| "ask the kernel for addresses")?;
        Ok(Loopback { socket, index: interface::index("lo")? })
    }

    /// Addresses that an agent has added.
    pub(crate) fn ours(&mut self) -> Result<Vec<IpAddr>> {
        let mut ours = Vec::new();
        for answer in self.dump()? {
            let protocol = Attributes::after(&answer, IFADDRMSG_LEN).find(IFA_PROTO);
            let is_ours = protocol.is_some_and(|protocol| protocol.value == [OUR_PROTOCOL]);
            let on_lo = answer.get(4..IFADDRMSG_LEN) == Some(&self.index.to_ne_bytes());
            ours.extend(address(&answer).filter(|_| is_ours && on_lo));
        }
        Ok(ours)
    }

    /// Adds a VIP unless the machine has the address already.
    pub(crate) fn add(&mut self, vip: IpAddr) -> Result<()> {
        if self.dump()?.iter().any(|answer| address(answer) == Some(vip)) {
            return Ok(());
        }
        let cache = [0, FOREVER, 0, 0].map(u32::to_ne_bytes).concat();
        let request = self.request(RTM_NEWADDR, vip).create().attribute(IFA_PROTO, &[OUR_PROTOCOL]);
        let request = match vip {
            IpAddr::V4(_) => request,
            // A preferred lifetime of 0 makes it deprecated (RFC 4862 section 5.5.4).
            IpAddr::V6(_) => {
                request.attribute(IFA_FLAGS, &IFA_F_NODAD.to_ne_bytes()).attribute(IFA_CACHEINFO, &cache)
            }
        };
        self.socket.ask(request).map(drop).doing(|| format!("add the VIP {vip} to lo"))
    }

    /// Removes addresses that an agent has added, except those for which `keep` is true.
    pub(crate) fn remove_ours(&mut self, keep: impl Fn(IpAddr) -> bool) -> Result<()> {
        for vip in self.ours()?.into_iter().filter(|vip| !keep(*vip)) {
            match self.socket.ask(self.request(RTM_DELADDR, vip)) {
                Err(error) if error.raw_os_error() == Some(nix::libc::EADDRNOTAVAIL) => Ok(()),
                result => result.map(drop),
            }
            .doing(|| format!("remove the VIP {vip} from lo"))?;
        }
        Ok(())
    }

    /// Addresses of all interfaces.
    fn dump(&mut self) -> Result<Vec<Vec<u8>>> {
        let answers: io::Result<Vec<Vec<u8>>> =
            self.socket.ask(Request::new(RTM_GETADDR, &[0; IFADDRMSG_LEN]).dump());
        answers.doing(|| "list the machine's addresses")
    }

    fn request(&self, kind: u16, vip: IpAddr) -> Request {
        let (family, prefix_len, scope) = match vip {
            IpAddr::V4(_) => (nix::libc::AF_INET, 32, RT_SCOPE_HOST),
            IpAddr::V6(_) => (nix::libc::AF_INET6, 128, RT_SCOPE_UNIVERSE),
        };
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let mut fixed = vec![family as u8, prefix_len, 0, scope];
        fixed.extend_from_slice(&self.index.to_ne_bytes());
        let bytes = match vip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        Request::new(kind, &fixed).attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes)
    }
}

/// The address in an answer: IFA_ADDRESS for IPv6, IFA_LOCAL for IPv4.
fn address(answer: &[u8]) -> Option<IpAddr> {
    let attributes = Attributes::after(answer, IFADDRMSG_LEN);
    let value = attributes.find(IFA_LOCAL).or_else(|| attributes.find(IFA_ADDRESS))?.value;
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into()),
        _ => <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()),
    }
}
