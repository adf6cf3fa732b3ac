//! An agent in a node of a lab, and what a switch would send it.

#![allow(dead_code)] // each test file uses its part

pub mod flow;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde_json::Value;
use switchback_config::FileSource;
use switchback_lab::{Cluster, Host, Lab, Process};
use switchback_node::Options;
use switchback_runtime::control::{ControlClient, Request, Response, find_sockets};
use switchback_runtime::events;
use switchback_runtime::{boot_number, monotonic_ns};
use switchback_wire::clock::NodeClock;
use switchback_wire::flow_state::{FlowState, Handshake};
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::{TcpView, bare, cut, flags};
use switchback_wire::{
    SB_GENEVE_PORT, SB_HANDOVER_REQUEST, Seq, address_bytes, handoff, keys, read_from, sb_flow, sb_geneve,
    sb_handover, sb_key, sb_op, sb_option,
};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub const PATIENCE: Duration = Duration::from_secs(5);
/// The verifier takes two seconds of a CPU, and tests run side by side.
const START: Duration = Duration::from_secs(60);
const AGENT: &str = "SWITCHBACK_TEST_AGENT";

/// The body of a test called `agent_process`: in a process made by [`start`] it is the agent, in the others
/// nothing. There is no program of its own for the agent, so a test program starts itself again.
pub fn agent_process() {
    let Ok(arguments) = std::env::var(AGENT) else { return };
    let (config, name) = arguments.split_once('|').expect("config and name");
    let options = Options {
        config: Arc::new(FileSource(config.into())),
        name: Some(name.to_owned()),
        interface: "eth0".to_owned(),
        admin: Arc::new(()),
    };
    events::begin(log::LevelFilter::Info, events::Format::Text);
    let status = match switchback_node::run(options) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            error.exit_status().into()
        }
    };
    std::process::exit(status);
}

/// Starts an agent, whatever comes of it.
pub fn spawn(host: &Host, config: &Path) -> Result<Process> {
    let mut command = host.command(std::env::current_exe()?);
    command.args(["--exact", "agent_process", "--nocapture"]);
    command.env(AGENT, format!("{}|{}", config.display(), host.name()));
    Ok(host.spawn("agent", command)?)
}

/// Starts an agent and waits until it is ready.
pub fn start(host: &Host, config: &Path) -> Result<Process> {
    let process = spawn(host, config)?;
    process.wait_for_log("ready", START)?;
    Ok(process)
}

pub fn config(lab: &Lab) -> Result<PathBuf> {
    Ok(lab.write_config(&Cluster::with_policy("round-robin"))?)
}

/// Asks the agent of a host.
pub fn call(host: &Host, request: Request) -> Result<Response> {
    let sockets = host.enter(find_sockets)??;
    let instance = sockets.first().ok_or("no agent's socket")?;
    Ok(ControlClient::call(&instance.path, &request)?)
}

pub fn status(host: &Host) -> Result<Value> {
    match call(host, Request::Status)? {
        Response::Status(status) => Ok(status),
        other => Err(format!("{other:?}").into()),
    }
}

pub fn counter(host: &Host, name: &str) -> Result<u64> {
    Ok(status(host)?["counters"][name].as_u64().ok_or("no such counter")?)
}

/// Waits until the counter has this value; its value at last.
pub fn wait_for_counter(host: &Host, name: &str, wanted: u64) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let value = counter(host, name)?;
        if value >= wanted || Instant::now() > deadline {
            return Ok(value);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn netns_inode(host: &Host) -> Result<u64> {
    Ok(std::fs::metadata(Path::new("/run/netns").join(host.namespace_name()))?.ino())
}

/// Pins and sockets of the host's namespace.
pub fn leftovers(host: &Host) -> Result<Vec<PathBuf>> {
    let inode = netns_inode(host)?.to_string();
    let entries =
        |path: &str| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = entries("/sys/fs/bpf/switchback").chain(entries("/run/switchback"));
    Ok(ours.filter(|path| path.display().to_string().contains(&inode)).collect())
}

/// Any switch and any node of a lab, which all have the clock of this machine.
pub fn peers(switch: IpAddr, node: IpAddr) -> Peers {
    let clock = NodeClock::from_ahead(boot_number().expect("every Linux has such a number"));
    Peers { node: node.into(), switch, epoch: clock.epoch(Duration::from_nanos(monotonic_ns())) }
}

/// What a switch knows of a flow, and the handoff packets that it makes.
#[derive(Clone, Copy)]
pub struct Handoff {
    pub key: sb_key,
    pub flow: sb_flow,
    pub origin: u32,
    pub seq: u32,
    pub ack: u32,
    pub requests: u16,
    pub heads: u32,
    /// So much of a request's body is to come behind the packet that begins it.
    pub body: u32,
    /// `SB_HANDOVER_*` or `SB_RELEASE_*` of the next handoff packets.
    pub flags: u32,
    /// Percent of the accept queue that an adoption may use.
    pub share: u8,
}

impl Handoff {
    pub fn new(config: &Path, client: SocketAddr, vip: SocketAddr) -> Result<Handoff> {
        let cluster = switchback_config::load(config)?;
        let flow = sb_flow {
            client: address_bytes(client.ip()),
            vip: address_bytes(vip.ip()),
            client_port: client.port().to_be(),
            vip_port: vip.port().to_be(),
        };
        let key = keys::handoff_key(cluster.keys[0].as_bytes());
        // The sequence numbers wrap around within the first request.
        let origin = u32::MAX - 10;
        Ok(Handoff {
            key,
            flow,
            origin,
            seq: origin,
            ack: 0x1234_5678,
            requests: 0,
            heads: 0,
            body: 0,
            flags: 0,
            share: 100,
        })
    }

    /// The client's packet with this data.
    pub fn packet(&self, tcp_flags: u8, data: &[u8]) -> Vec<u8> {
        let mut packet = bare(&self.flow, true, Seq(self.seq), Seq(self.ack), tcp_flags);
        let start = packet.len();
        packet.extend_from_slice(data);
        let view = TcpView {
            tcp: start - 20,
            data: start,
            end: packet.len(),
            seq: Seq(self.seq),
            ack: Seq(self.ack),
            flags: tcp_flags,
        };
        if data.is_empty() { packet } else { cut(&packet, &view, 0..data.len()) }
    }

    /// The packet in the handoff packet that `switch` sends to `node`.
    pub fn encode(&self, op: sb_op, switch: IpAddr, node: IpAddr, inner: &[u8]) -> Vec<u8> {
        let view = TcpView::parse(inner).expect("made by `packet`");
        self.encode_at(op, switch, node, &view, inner)
    }

    /// Likewise with any option.
    pub fn encode_option(
        &self,
        option: sb_option,
        (switch, node): (IpAddr, IpAddr),
        inner: &[u8],
    ) -> Vec<u8> {
        let view = TcpView::parse(inner).expect("made by `packet`");
        let mut out = Vec::new();
        let way = Way::to_node(peers(switch, node));
        handoff::encode(&mut out, &self.key, &way, &self.flow, option, &view, inner);
        out
    }

    /// Likewise any packet about the flow, with this position in it.
    pub fn encode_at(
        &self,
        op: sb_op,
        switch: IpAddr,
        node: IpAddr,
        view: &TcpView,
        inner: &[u8],
    ) -> Vec<u8> {
        let state = FlowState {
            handshake: Handshake { mss: 1400, ..Default::default() },
            requests: self.requests,
            heads: self.heads,
            ..FlowState::at(Seq(self.origin), view.seq + view.len() as u32 + self.body)
        };
        let mut option = state.option(op);
        option.flags |= self.flags as u8;
        if op == sb_op::SB_OP_ADOPT {
            option = option.with(|said: &mut sb_handover| said.queue_share = self.share);
        }
        if op == sb_op::SB_OP_ADOPT || self.flags & SB_HANDOVER_REQUEST != 0 {
            option = option.with(|said: &mut sb_handover| said.boundary = (view.len() as u16).to_be());
        }
        let mut out = Vec::new();
        handoff::encode(
            &mut out,
            &self.key,
            &Way::to_node(peers(switch, node)),
            &self.flow,
            option,
            view,
            inner,
        );
        out
    }
}

/// Sends whole IPv4 packets from a host.
pub struct Raw(OwnedFd);

impl Raw {
    pub fn open(from: &Host) -> Result<Raw> {
        let open = || socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw);
        Ok(Raw(from.enter(open)??))
    }

    pub fn send(&self, to: IpAddr, packet: &[u8]) -> Result<()> {
        let to: SockaddrStorage = SocketAddr::new(to, 0).into();
        sendto(self.0.as_raw_fd(), packet, &to, MsgFlags::empty())?;
        Ok(())
    }
}

/// Sends a whole IPv4 packet from a host.
pub fn send_raw(from: &Host, to: IpAddr, packet: &[u8]) -> Result<()> {
    Raw::open(from)?.send(to, packet)
}

/// A switch's ear for the nodes' answers.
pub fn listen(switch: &Host) -> Result<UdpSocket> {
    let socket = switch.udp_bind((switch.ipv4(), SB_GENEVE_PORT as u16).into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// The next answer: its option and inner packet.
pub fn answer(socket: &UdpSocket) -> Result<(sb_option, Vec<u8>)> {
    let mut buffer = [0; 2048];
    let len = socket.recv(&mut buffer).map_err(|error| format!("no answer came: {error}"))?;
    let start = size_of::<sb_geneve>();
    let option = read_from::<sb_option>(&buffer[start..len]).ok_or("too short for an option")?;
    Ok((option, buffer[start + size_of::<sb_option>()..len].to_vec()))
}

/// A counter of the host's network stack: of `TcpExt` in /proc/net/netstat.
pub fn tcp_counter(host: &Host, name: &str) -> Result<u64> {
    let shown = host.run(["cat", "/proc/net/netstat"])?.success()?;
    let mut lines = shown.lines().filter_map(|line| line.strip_prefix("TcpExt: ")).map(str::split_whitespace);
    let (names, values) = (lines.next().ok_or("no names")?, lines.next().ok_or("no values")?);
    let value = names.zip(values).find(|(found, _)| *found == name).ok_or("no such counter")?.1;
    Ok(value.parse()?)
}

/// Sees every packet that comes to a host, from the network header on.
pub struct Sniffer(OwnedFd);

impl Sniffer {
    pub fn open(host: &Host) -> Result<Sniffer> {
        let open = || {
            socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
        };
        let fd = host.enter(open)??;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000))?;
        Ok(Sniffer(fd))
    }

    /// Packets until one fits or patience is at its end; the last one is the one that fits.
    pub fn until(&self, fits: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            seen.extend(self.next());
            if seen.last().is_some_and(|packet| fits(packet)) {
                return seen;
            }
        }
        panic!("the packet never came; {} others did", seen.len());
    }

    /// The next packet, if it comes soon. It may be several that were received as one.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        let len = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
        buffer.truncate(len);
        Some(buffer)
    }
}

/// The data of a TCP packet from an address.
pub fn data_from(packet: &[u8], vip: IpAddr) -> Option<&[u8]> {
    let view = TcpView::parse(packet)?;
    let source = match vip {
        IpAddr::V4(v4) => packet.get(12..16)? == v4.octets(),
        IpAddr::V6(v6) => packet.get(8..24)? == v6.octets(),
    };
    let is_tcp = packet[if vip.is_ipv4() { 9 } else { 6 }] == 6;
    (source && is_tcp && packet[0] >> 4 == if vip.is_ipv4() { 4 } else { 6 } && view.flags & flags::SYN == 0)
        .then(|| &packet[view.data..view.end])
}
