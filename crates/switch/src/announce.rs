//! Announcing VIPs, and joining the multicast groups of their neighbour solicitations.
//!
//! The XDP program answers ARP and neighbour solicitations for the VIPs. User space does the rest: neighbours whose
//! caches have another machine's address are told (gratuitous ARP, RFC 5227; unsolicited neighbour advertisement, RFC
//! 4861 section 7.2.6), and the network card must accept the multicast frames of solicitations.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use switchback_wire::packet::{fold, sum};

/// A packet socket on one interface; it holds the multicast memberships.
pub struct Announcer {
    socket: OwnedFd,
    ifindex: i32,
    mac: [u8; 6],
}

impl Announcer {
    /// Needs CAP_NET_RAW.
    pub fn new(ifindex: u32, mac: [u8; 6]) -> io::Result<Self> {
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        Ok(Announcer { socket, ifindex: ifindex as i32, mac })
    }

    /// Joins the VIP's solicited-node group and announces the VIP to the neighbours.
    pub fn announce(&self, vip: IpAddr) -> io::Result<()> {
        match vip {
            IpAddr::V4(v4) => self.send(&arp(self.mac, v4.octets())),
            IpAddr::V6(v6) => {
                self.join(v6)?;
                self.send(&advertisement(self.mac, v6))
            }
        }
    }

    /// Joins the solicited-node multicast group of an address, RFC 4291 section 2.7.1 and RFC 2464 section 7.
    fn join(&self, vip: Ipv6Addr) -> io::Result<()> {
        let [.., a, b, c] = vip.octets();
        let mut request = libc::packet_mreq {
            mr_ifindex: self.ifindex,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: [0x33, 0x33, 0xff, a, b, c, 0, 0],
        };
        // SAFETY: the option takes a packet_mreq, which lives until the call returns.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                std::ptr::from_mut(&mut request).cast(),
                size_of_val(&request) as u32,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: sockaddr_ll is plain data for which zeroes mean unspecified.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = self.ifindex;
        // SAFETY: frame and address live until the call returns, and the lengths are theirs.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                std::ptr::from_ref(&to).cast(),
                size_of_val(&to) as u32,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A broadcast ARP announcement: a request for the address by its own holder.
fn arp(mac: [u8; 6], vip: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&vip);
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&vip);
    frame
}

/// A neighbour advertisement to all nodes, with the override flag.
fn advertisement(mac: [u8; 6], vip: Ipv6Addr) -> Vec<u8> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut frame = vec![0x33, 0x33, 0, 0, 0, 1];
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255]);
    frame.extend_from_slice(&vip.octets());
    frame.extend_from_slice(&all_nodes.octets());
    let icmp = frame.len();
    frame.extend_from_slice(&[136, 0, 0, 0, 0x20, 0, 0, 0]);
    frame.extend_from_slice(&vip.octets());
    frame.extend_from_slice(&[2, 1]);
    frame.extend_from_slice(&mac);
    let check = fold(sum(&frame[icmp - 32..]) + 58 + 32);
    frame[icmp + 2..icmp + 4].copy_from_slice(&check.to_be_bytes());
    frame
}
