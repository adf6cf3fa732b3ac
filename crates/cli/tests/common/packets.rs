//! Packets that no kernel would send: forged handshakes, and handoff packets of our own making.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use switchback_lab::Host;
use switchback_runtime::{boot_number, monotonic_ns};
use switchback_wire::clock::NodeClock;
use switchback_wire::flow_state::{FlowState, Handshake};
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::{Seq, address_bytes, handoff, keys, sb_flow, sb_key, sb_op};

use super::Result;
use super::cluster::Cluster;

/// A socket for whole IPv4 or IPv6 packets.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn open(host: &Host) -> Result<Raw> {
        Raw::of(host, AddressFamily::Inet)
    }

    pub fn open_v6(host: &Host) -> Result<Raw> {
        Raw::of(host, AddressFamily::Inet6)
    }

    fn of(host: &Host, family: AddressFamily) -> Result<Raw> {
        let open = || socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        Ok(Raw(host.enter(open)??))
    }

    /// Waits while too much of what was sent is still on the host.
    pub fn send(&self, to: IpAddr, packet: &[u8]) -> Result {
        let to: SockaddrStorage = SocketAddr::new(to, 0).into();
        sendto(self.0.as_raw_fd(), packet, &to, MsgFlags::empty())?;
        Ok(())
    }
}

/// The flow of a client's connection to a VIP.
pub fn flow(client: SocketAddr, vip: SocketAddr) -> sb_flow {
    sb_flow {
        client: address_bytes(client.ip()),
        vip: address_bytes(vip.ip()),
        client_port: client.port().to_be(),
        vip_port: vip.port().to_be(),
    }
}

/// Random numbers that repeat from run to run (xorshift64*).
pub struct Random(pub u64);

/// The seed of this run: that of an earlier one if SWITCHBACK_SEED says so.
pub fn seed() -> super::Result<u64> {
    match std::env::var("SWITCHBACK_SEED") {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos() as u64),
    }
}

impl Random {
    /// Seeds that lie side by side give numbers that have nothing in common.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`, which is small.
    pub fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.next()) % limit
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// The key under the tags of a cluster's handoff packets.
pub fn handoff_key(cluster: &Cluster) -> Result<sb_key> {
    let config = switchback_config::load(&cluster.config).map_err(|error| error.to_string())?;
    Ok(keys::handoff_key(config.keys[0].as_bytes()))
}

/// A request of a client, in the handoff packet that `from` sends to `to` now; `node` is the one of both that is
/// the node. All nodes of a lab have the clock of this machine.
pub fn handoff_packet(
    key: &sb_key,
    op: sb_op,
    (from, to, node): (IpAddr, IpAddr, IpAddr),
    flow: &sb_flow,
    data: &[u8],
) -> Vec<u8> {
    let inner = segment(flow, true, (Seq(1000), Seq(2000)), flags::ACK | flags::PSH, None, data);
    let view = TcpView::parse(&inner).expect("`segment` makes whole packets");
    let next = view.seq + view.len();
    let handshake = Handshake { mss: 1400, ..Default::default() };
    let option = FlowState { handshake, ..FlowState::at(view.seq, next) }.option(op);
    let clock = NodeClock::from_ahead(boot_number().expect("every Linux has such a number"));
    let epoch = clock.epoch(Duration::from_nanos(monotonic_ns()));
    let peers = Peers { node: node.into(), switch: if from == node { to } else { from }, epoch };
    let way = Way { source: from, dest: to, peers };
    let mut out = Vec::new();
    handoff::encode(&mut out, key, &way, flow, option, &view, &inner);
    out
}

/// An XDP program that passes everything, as another user of the interface would attach it.
pub fn attach_foreign_xdp(host: &Host, interface: &str) -> Result {
    let (source, object) = (host.directory().join("pass.bpf.c"), host.directory().join("pass.bpf.o"));
    fs::write(
        &source,
        "__attribute__((section(\"xdp\"), used)) int pass(void *ctx) { return 2; }\n\
         char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n",
    )?;
    let (source, object) = (super::text(&source).to_owned(), super::text(&object).to_owned());
    host.run(["clang", "-O2", "-g", "-target", "bpf", "-c", &source, "-o", &object])?.success()?;
    let words = ["ip", "link", "set", "dev", interface, "xdpdrv", "obj", &object, "sec", "xdp"];
    host.run(words)?.success()?;
    Ok(())
}
