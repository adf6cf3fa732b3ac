//! The programs with their own maps in a new network namespace. `BPF_PROG_TEST_RUN` injects packets with the index of
//! the loopback interface. Clones made by the ingress program are really queued there, so the program is attached to
//! that interface as well, and a server listens at the VIPs.
//!
//! In a test run, `bpf_sk_assign_tcp_reqsk()` refuses the packet, because the kernel does not mark it as ingress. So a
//! flow with a socket begins with an ADOPT that is really sent, by [`Bench::adopt`].

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{Link, MapCore, MapFlags, ProgramInput, ProgramMut, RingBufferBuilder, num_possible_cpus};
use libbpf_sys::BPF_F_TEST_SKB_CHECKSUM_COMPLETE;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use switchback_resume::Key;
use switchback_runtime::maps;
use switchback_runtime::programs::{Attachment, Place, attach_filter, attach_tcx};
use switchback_runtime::{monotonic_ns, netns_cookie};
use switchback_wire::clock::NodeClock;
use switchback_wire::session::{Code, rewritten};
use switchback_wire::{
    NodeCounter, SB_ADOPTING_SLOTS, SB_EPOCH_SHIFT, SB_NAME_MAX, SB_SET_COOKIE_MAX, address_bytes, bytes_of,
    endpoint, read_from, sb_adopting, sb_adoption, sb_asking, sb_closed, sb_fingerprint, sb_flow,
    sb_heard_fingerprint, sb_heirs, sb_insurable, sb_insurable_end, sb_insured, sb_judged, sb_judgment,
    sb_key, sb_listed, sb_listener, sb_listening_switch, sb_load, sb_network, sb_node_clients, sb_node_here,
    sb_node_settings, sb_owned, sb_persistence, sb_pool_here, sb_record, sb_seen, sb_server, sb_session_mode,
    sb_sized, sb_stalled,
};

use super::frames::{INSERTED, OWN, REWRITTEN, SWITCHES};

use crate::clients::Clients;
use crate::moving::get;
use crate::programs::{describe, open, set_flows};
use crate::skeleton::NodeSkel;
use crate::skeleton::types::__sk_buff;

/// Addresses of the node; the first one is covered by the tags.
pub const NODE: [&str; 2] = ["192.0.2.21", "2001:db8::21"];
/// Addresses of other nodes.
pub const SECOND: [&str; 2] = ["192.0.2.22", "2001:db8::22"];
pub const VIPS: [&str; 2] = ["192.0.2.100", "2001:db8::100"];
pub const PORT: u16 = 80;
pub const SIGN: sb_key = sb_key { k0: 1, k1: 2 };
/// The server's own cookie in the pool that rewrites names.
pub const NAME: &[u8] = b"LONGNAMESID";
/// The inserted header line.
pub const LINE: &[u8] = b"Set-Cookie: SB-web=ownTTTTTTTTTTT; Path=/\r\n";
/// A key that is accepted, but does not sign.
pub const ACCEPT: sb_key = sb_key { k0: 3, k1: 4 };
pub const LOOPBACK: u32 = 1;
/// Epoch of the node's clock during a test.
pub const EPOCH: u64 = 0x2_3456_789a_bcde;
/// How long the clock stays in that epoch: less than half of its length.
const CLOCK_HOLDS: Duration = Duration::from_secs(1);
/// Master keys of the clients' keys.
pub const MASTER: [sb_key; 2] = [sb_key { k0: 5, k1: 6 }, sb_key { k0: 7, k1: 8 }];

pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of these tests")
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// The seed from the environment, or a new one for each run.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    setting("SWITCHBACK_FUZZ_SEED").unwrap_or(now.as_nanos() as u64)
}

pub fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().expect("ip can be started");
    assert!(status.success(), "ip {line}");
}

/// A program that is attached until this is dropped. Closing the link would not do: a process that another test is about
/// to start may have its descriptor for a moment.
pub struct Attached(Link);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.detach().expect("tcx can be detached at any time");
    }
}

/// Runs `work` on a thread in a new network namespace.
pub fn alone(work: impl FnOnce() + Send) {
    let enter = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("the right to make a network namespace");
        for line in [
            "link set lo up",
            "route add default dev lo",
            "-6 route add default dev lo",
            "addr add 192.0.2.21/32 dev lo",
            "addr add 192.0.2.100/32 dev lo",
            "addr add 2001:db8::21/128 dev lo nodad",
            "addr add 2001:db8::100/128 dev lo nodad",
        ] {
            ip(line);
        }
        work();
    };
    let ended = std::thread::scope(|scope| scope.spawn(enter).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// The field at this offset of the socket's `struct tcp_info`.
pub fn tcp_info(socket: &TcpStream, at: usize) -> u32 {
    let info: [u8; 128] = get(socket.as_fd(), libc::TCP_INFO).expect("TCP_INFO");
    u32::from_ne_bytes(*info[at..].first_chunk().expect("a field"))
}

/// The time as the programs measure it.
pub fn now_us() -> u32 {
    (monotonic_ns() / 1000) as u32
}

/// Waits for an effect; clones are processed a moment later.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while !is_so() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        std::thread::yield_now();
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next program, of which there is none: the packet goes on.
    Next,
    Pass,
    Drop,
    Redirect,
}

impl Verdict {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            u32::MAX => Verdict::Next,
            0 => Verdict::Pass,
            2 => Verdict::Drop,
            7 => Verdict::Redirect,
            _ => return None,
        })
    }
}

pub struct Bench {
    skel: NodeSkel<'static>,
    memory: RefCell<&'static mut crate::skeleton::types::bss>,
    listeners: [TcpListener; 2],
    raw: OwnedFd,
    _links: [Link; 2],
    clock_set: Cell<Instant>,
}

impl Bench {
    /// Must be called in [`alone`].
    pub fn new() -> Self {
        Bench::with_flows(1 << 10)
    }

    /// With a map of `flows` flows.
    pub fn with_flows(flows: u32) -> Self {
        // The programs live as long as the test.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = open(storage).unwrap();
        set_flows(&mut open, flows).unwrap();
        let mut skel = open.load().unwrap();
        let memory = RefCell::new(skel.maps.bss_data.take().unwrap());
        for vip in VIPS {
            let key = address_bytes(address(vip));
            skel.maps.vip_addresses.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        let listen = |vip| {
            let listener = TcpListener::bind(SocketAddr::new(address(vip), PORT)).unwrap();
            setsockopt(&listener, sockopt::ReceiveTimeout, &TimeVal::new(1, 0)).unwrap();
            listener
        };
        let protocol = (AddressFamily::Inet, SockType::Raw, SockProtocol::Raw);
        let raw = socket(protocol.0, protocol.1, SockFlag::SOCK_CLOEXEC, protocol.2).unwrap();
        let links = [
            attach_tcx(&skel.progs.switchback_ingress, LOOPBACK, Place::Last).unwrap(),
            skel.progs.switchback_socket_state.attach().unwrap(),
        ];
        let sockets = skel.maps.sockets.as_fd().as_raw_fd();
        skel.progs.switchback_insert.attach_sockmap(sockets).unwrap();
        let clock_set = Cell::new(Instant::now());
        let bench = Bench { listeners: VIPS.map(listen), raw, _links: links, clock_set, skel, memory };
        bench.be(NODE[0]);
        bench.count_load(0);
        bench.keep_sessions();
        bench
    }

    /// Removes all pools with sessions.
    pub fn forget_sessions(&self) {
        let map = &self.skel.maps.persistence;
        map.keys().collect::<Vec<_>>().iter().for_each(|key| map.delete(key).unwrap());
    }

    /// Sets up the pools with sessions.
    pub fn keep_sessions(&self) {
        let mut entry = sb_persistence {
            mode: sb_session_mode::SB_SESSION_REWRITE as u8,
            name_len: NAME.len() as u8,
            line_len: LINE.len() as u16,
            code: rewritten(REWRITTEN, OWN),
            name: [0; SB_NAME_MAX as usize],
            line: [0; SB_SET_COOKIE_MAX as usize],
        };
        entry.name[..NAME.len()].copy_from_slice(NAME);
        entry.line[..LINE.len()].copy_from_slice(LINE);
        let put = |pool: Code, entry: &sb_persistence| {
            let code = [pool[0], pool[1], pool[2], 0];
            let key = sb_pool_here { code, ..Default::default() };
            self.skel.maps.persistence.update(bytes_of(&key), bytes_of(entry), MapFlags::ANY).unwrap();
        };
        put(REWRITTEN, &entry);
        entry.mode = sb_session_mode::SB_SESSION_INSERT as u8;
        put(INSERTED, &sb_persistence { code: rewritten(INSERTED, OWN), ..entry });
    }

    /// Sets whether the flows' clients, or only others, are in the networks of clients with a shim.
    pub fn know_clients(&self, these: bool, tunnel: bool) {
        let network = |prefix_len, text| sb_network { prefix_len, address: address_bytes(address(text)) };
        let networks = if these {
            vec![network(120, "198.51.100.0"), network(64, "2001:db8:1::")]
        } else {
            vec![network(120, "198.51.101.0")]
        };
        let master =
            sb_node_clients { sign: MASTER[0], accept: MASTER[1], tunnel: tunnel.into(), reserved: 0 };
        crate::programs::clients::set(&self.skel.maps, &Clients { master, networks }).unwrap();
    }

    /// Sets the node's address.
    pub fn be(&self, node: &str) {
        self.set(node, false);
    }

    /// Sets the node's address and whether it drains.
    pub fn set(&self, node: &str, draining: bool) {
        self.add_node(0, draining);
        self.write_settings(&self.settings(node));
    }

    /// Sets whether the node with this number, which may be a new one, drains.
    pub fn add_node(&self, number: u16, draining: bool) {
        let node = sb_node_here { draining: draining.into() };
        let key = u32::from(number).to_ne_bytes();
        self.skel.maps.nodes_here.update(&key, bytes_of(&node), MapFlags::ANY).unwrap();
    }

    /// Has the load of the node with this number counted.
    pub fn count_load(&self, number: u16) {
        let nothing = vec![bytes_of(&sb_load::default()).to_vec(); num_possible_cpus().unwrap()];
        let key = u32::from(number).to_ne_bytes();
        self.skel.maps.load.update_percpu(&key, &nothing, MapFlags::ANY).unwrap();
    }

    /// Sets the node's address on a machine that is also a switch.
    pub fn be_beside_switch(&self, node: &str) {
        self.write_settings(&sb_node_settings { is_switch: 1, ..self.settings(node) });
    }

    fn settings(&self, node: &str) -> sb_node_settings {
        sb_node_settings {
            address: address_bytes(address(node)),
            sign: SIGN,
            accept: ACCEPT,
            clock: 0,
            netns_cookie: netns_cookie().unwrap(),
            arp_sender: u32::from_ne_bytes([192, 0, 2, 21]),
            is_switch: 0,
            ifindex: LOOPBACK,
            hidden: 0,
            ..Default::default()
        }
    }

    /// Responses are insurable from so many bytes on, and the agent listens for resumed flows at this port.
    pub fn resume(&self, after: u64, port: u16) {
        let settings = self.settings(NODE[0]);
        self.write_settings(&sb_node_settings { resume_after: after, resume_port: port.to_be(), ..settings });
    }

    /// Long responses get fingerprints, too.
    pub fn repeat(&self, after: u64) {
        let settings = sb_node_settings { resume_after: after, repeats: 1, ..self.settings(NODE[0]) };
        self.write_settings(&settings);
    }

    /// Listeners get flows by a replayed handshake.
    pub fn replay(&self) {
        let adoption = sb_adoption::SB_ADOPTION_REPLAY as u8;
        self.write_settings(&sb_node_settings { adoption, ..self.settings(NODE[0]) });
    }

    /// Sets the node's address, whether it drains, and how listeners get flows.
    pub fn adopt_as(&self, node: &str, draining: bool, adoption: u8) {
        self.add_node(0, draining);
        self.write_settings(&sb_node_settings { adoption, ..self.settings(node) });
    }

    /// What the program has of a response.
    pub fn fingerprint(&self, flow: &sb_flow) -> Option<sb_fingerprint> {
        read_from(&self.skel.maps.fingerprints.lookup(bytes_of(flow), MapFlags::ANY).unwrap()?)
    }

    /// The program goes on from there.
    pub fn put_fingerprint(&self, flow: &sb_flow, of: &sb_fingerprint) {
        self.skel.maps.fingerprints.update(bytes_of(flow), bytes_of(of), MapFlags::ANY).unwrap();
    }

    /// Has the flow's VIP served at another address.
    pub fn serve_at(&self, flow: &sb_flow, server: SocketAddr) {
        self.serve_node_at(0, flow, server, 0);
    }

    /// Has the flow's VIP served at another address for the node with this number, behind an interface if that is not 0.
    pub fn serve_node_at(&self, node: u16, flow: &sb_flow, server: SocketAddr, ifindex: u32) {
        let listener = sb_listener { vip: endpoint(flow.vip()), node, reserved: 0 };
        let server = sb_server { at: endpoint(server), ifindex };
        self.skel.maps.servers.update(bytes_of(&listener), bytes_of(&server), MapFlags::ANY).unwrap();
    }

    /// Has the flow's VIP served by a server behind an interface, which has this connection.
    pub fn serve_away(&self, flow: &sb_flow, server: SocketAddr, ifindex: u32) {
        self.serve_node_at(0, flow, server, ifindex);
        let vip = endpoint(flow.vip());
        let theirs = super::frames::of_server(flow, server);
        self.skel.maps.away.update(bytes_of(&theirs), bytes_of(&vip), MapFlags::ANY).unwrap();
    }

    /// Runs the program of another interface on a frame.
    pub fn guard(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        run(&self.skel.progs.switchback_guard, frame, 0)
    }

    /// Has the program hear fingerprints of another node's response.
    pub fn await_fingerprints(&self, flow: &sb_flow, origin: u32, key: Key) {
        let key = sb_key { k0: key.k0, k1: key.k1 };
        let begun = sb_heard_fingerprint { origin, key, ..Default::default() };
        self.skel.maps.heard.update(bytes_of(flow), bytes_of(&begun), MapFlags::ANY).unwrap();
    }

    /// The last one.
    pub fn heard(&self, flow: &sb_flow) -> sb_heard_fingerprint {
        let heard = self.skel.maps.heard.lookup(bytes_of(flow), MapFlags::LOCK).unwrap();
        read_from(&heard.expect("an entry")).unwrap()
    }

    /// These nodes get fingerprints.
    pub fn tell(&self, flow: &sb_flow, origin: u32, addresses: &[IpAddr]) {
        let mut heirs = sb_heirs { origin, count: addresses.len() as u8, ..Default::default() };
        for (slot, address) in heirs.addresses.iter_mut().zip(addresses) {
            *slot = address_bytes(*address);
        }
        self.put_heirs(flow, &heirs);
    }

    fn put_heirs(&self, flow: &sb_flow, heirs: &sb_heirs) {
        self.skel.maps.have_heirs.update(bytes_of(flow), bytes_of(heirs), MapFlags::ANY).unwrap();
    }

    /// Reports of insurable responses, and of their ends.
    pub fn insurable(&self) -> (Vec<sb_insurable>, Vec<sb_insurable_end>) {
        let records = Self::read_ring(&self.skel.maps.insurable);
        let ends = records.iter().filter(|record| record.len() == size_of::<sb_insurable_end>());
        (
            records.iter().filter_map(|record| read_from(record)).collect(),
            ends.filter_map(|record| read_from(record)).collect(),
        )
    }

    /// Another node can go on with the response on this connection.
    pub fn give_heirs(&self, flow: &sb_flow, origin: u32) {
        self.put_heirs(flow, &sb_heirs { origin, ..Default::default() });
    }

    /// Another node can go on with the response over TLS.
    pub fn give_heirs_over_tls(&self, flow: &sb_flow, origin: u32) {
        self.put_heirs(flow, &sb_heirs { origin, over_tls: 1, ..Default::default() });
    }

    /// Another node's response with which this one can go on.
    pub fn insure(&self, flow: &sb_flow, response: &sb_insured) {
        self.skel.maps.insured.update(bytes_of(flow), bytes_of(response), MapFlags::ANY).unwrap();
    }

    /// Kernel memory of all maps, in bytes.
    pub fn memory(&self) -> u64 {
        self.skel.object().maps().map(|map| maps::memory(&map).unwrap()).sum()
    }

    /// What is known of it.
    pub fn insured(&self, flow: &sb_flow) -> Option<sb_insured> {
        read_from(&self.skel.maps.insured.lookup(bytes_of(flow), MapFlags::ANY).unwrap()?)
    }

    /// Sets whether the node is hidden.
    pub fn hide(&self, hidden: bool) {
        self.write_settings(&sb_node_settings { hidden: hidden.into(), ..self.settings(NODE[0]) });
    }

    /// Writes settings with the node's clock `later` after the middle of the epoch.
    pub fn write_settings_at(&self, later: i64, settings: &sb_node_settings) {
        let middle = (EPOCH << SB_EPOCH_SHIFT) + (1 << (SB_EPOCH_SHIFT - 1));
        let time = middle.wrapping_add_signed(later << SB_EPOCH_SHIFT);
        let clock = NodeClock::told(time, Duration::from_nanos(monotonic_ns())).ahead();
        let settings = &sb_node_settings { clock, ..*settings };
        self.clock_set.set(Instant::now());
        self.skel.maps.settings.update(&0u32.to_ne_bytes(), bytes_of(settings), MapFlags::ANY).unwrap();
    }

    fn write_settings(&self, settings: &sb_node_settings) {
        self.write_settings_at(0, settings);
    }

    /// Sets the clock this number of epochs after the packets of the tests, until something else is set.
    pub fn be_later(&self, epochs: i64) {
        self.write_settings_at(epochs, &self.settings(NODE[0]));
    }

    /// Renews the clock if necessary, before packets come in.
    fn keep_time(&self) {
        if self.clock_set.get().elapsed() > CLOCK_HOLDS {
            let settings = self.skel.maps.settings.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap();
            self.write_settings(&settings.and_then(|bytes| read_from(&bytes)).expect("its size"));
        }
    }

    /// Takes the records of a ring.
    fn read_ring(map: &impl MapCore) -> Vec<Vec<u8>> {
        let read = std::cell::RefCell::new(Vec::new());
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, |record: &[u8]| {
                read.borrow_mut().push(record.to_vec());
                0
            })
            .unwrap();
        builder.build().unwrap().consume().unwrap();
        read.into_inner()
    }

    /// Messages to the switch on this machine: records with their packets.
    pub fn messages_here(&self) -> Vec<(sb_record, Vec<u8>)> {
        let read = |record: Vec<u8>| {
            let head: sb_record = read_from(&record).expect("a whole record");
            let start = size_of::<sb_record>();
            (head, record[start..start + head.len as usize].to_vec())
        };
        Self::read_ring(&self.skel.maps.to_switch).into_iter().map(read).collect()
    }

    /// Reported response lengths.
    pub fn sized(&self) -> Vec<sb_sized> {
        let read = |record: Vec<u8>| read_from(&record).expect("a whole record");
        Self::read_ring(&self.skel.maps.sized).into_iter().map(read).collect()
    }

    /// Sets whether the first of [`SWITCHES`] wants facts.
    pub fn want_facts(&self, wanted: bool) {
        let switch_address = address_bytes(address(SWITCHES[0]));
        let asking = sb_asking { switch_address, ..Default::default() };
        let switch = sb_listening_switch { facts: wanted.into(), ..Default::default() };
        self.skel.maps.switches.update(bytes_of(&asking), bytes_of(&switch), MapFlags::ANY).unwrap();
    }

    /// Has the responses of node 0 at this VIP judged.
    pub fn judge(&self, vip: SocketAddr) {
        let listener = sb_listener { vip: endpoint(vip), ..Default::default() };
        let map = &self.skel.maps.judged_listeners;
        map.update(bytes_of(&listener), bytes_of(&sb_judged::default()), MapFlags::ANY).unwrap();
    }

    /// Reported judgments.
    pub fn judgments(&self) -> Vec<sb_judgment> {
        let read = |record: Vec<u8>| read_from(&record).expect("a whole record");
        Self::read_ring(&self.skel.maps.judgments).into_iter().map(read).collect()
    }

    /// Reported facts.
    pub fn facts(&self) -> Vec<sb_seen> {
        let read = |record: Vec<u8>| read_from(&record).expect("a whole record");
        Self::read_ring(&self.skel.maps.facts).into_iter().map(read).collect()
    }

    /// Flows that have ended.
    pub fn closed(&self) -> Vec<sb_closed> {
        let read = |record: Vec<u8>| read_from(&record).expect("a whole record");
        Self::read_ring(&self.skel.maps.closed).into_iter().map(read).collect()
    }

    /// Runs the loopback program on a packet.
    pub fn loopback(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        run(&self.skel.progs.switchback_loopback, frame, 0)
    }

    /// Sets the kind of a VIP: `SB_VIP_*`.
    pub fn set_vip(&self, vip: &str, kind: u32) {
        let key = address_bytes(address(vip));
        self.skel.maps.vip_addresses.update(&key, &kind.to_ne_bytes(), MapFlags::ANY).unwrap();
    }

    /// Attaches the egress program to an interface, for packets that servers really send.
    pub fn attach_egress(&self, interface: u32) -> Attached {
        Attached(attach_tcx(&self.skel.progs.switchback_egress, interface, Place::Last).unwrap())
    }

    /// The same as a filter, as on kernels without tcx.
    pub fn attach_egress_filter(&self, interface: u32, place: Place) -> Attachment {
        attach_filter(&self.skel.progs.switchback_egress, interface, place).unwrap()
    }

    pub fn flow(&self, flow: &sb_flow) -> Option<sb_owned> {
        let value = self.skel.maps.owned.lookup(bytes_of(flow), MapFlags::ANY).unwrap();
        value.and_then(|value| read_from(&value))
    }

    pub fn put(&self, flow: &sb_flow, owned: &sb_owned) {
        self.skel.maps.owned.update(bytes_of(flow), bytes_of(owned), MapFlags::ANY).unwrap();
    }

    /// The flows whose server waits for an acknowledgment.
    pub fn stalled(&self) -> Vec<sb_stalled> {
        crate::stalled::read(&self.skel.progs.switchback_stalled).unwrap()
    }

    /// The programs' sums for reports of the node with this number.
    pub fn load_of(&self, number: u16) -> sb_load {
        crate::programs::read_loads(&self.skel.maps.load).unwrap()[&number]
    }

    /// Those of the only node.
    pub fn load(&self) -> sb_load {
        self.load_of(0)
    }

    /// Switches that want reports.
    pub fn switches(&self) -> Vec<IpAddr> {
        let askers = self.skel.maps.switches.keys().map(|key| read_from::<sb_asking>(&key).unwrap());
        askers.map(|asker| switchback_wire::address_from(asker.switch_address)).collect()
    }

    /// The node's descriptions of those of the flows that it has.
    pub fn describe(&self, flows: &[sb_flow]) -> Vec<sb_listed> {
        self.describe_of(0, flows)
    }

    /// The same of the node with this number.
    pub fn describe_of(&self, node: u16, flows: &[sb_flow]) -> Vec<sb_listed> {
        describe(&self.skel.progs.describe_flows, &mut self.memory.borrow_mut(), node, flows).unwrap()
    }

    /// Entries of the map of switches.
    pub fn listening(&self) -> Vec<sb_listening_switch> {
        let map = &self.skel.maps.switches;
        let values =
            map.keys().map(|key| map.lookup(&key, MapFlags::ANY).unwrap().expect("a key of the map"));
        values.map(|value| read_from(&value).expect("its size")).collect()
    }

    /// Number of reserved places in accept queues.
    pub fn reserved(&self) -> i64 {
        let slots = (0..SB_ADOPTING_SLOTS).map(|slot| {
            let value = self.skel.maps.adopting.lookup(&slot.to_ne_bytes(), MapFlags::ANY).unwrap();
            read_from::<sb_adopting>(&value.expect("a slot of an array")).expect("its size").count
        });
        slots.sum()
    }

    /// Reserves places at every listener, as of `since` ago.
    pub fn reserve(&self, count: i64, since: Duration) {
        let places = sb_adopting { last_ns: monotonic_ns() - since.as_nanos() as u64, count };
        for slot in 0..SB_ADOPTING_SLOTS {
            self.skel.maps.adopting.update(&slot.to_ne_bytes(), bytes_of(&places), MapFlags::ANY).unwrap();
        }
    }

    /// Number of sockets in the map of the program that inserts cookies.
    pub fn hooked(&self) -> usize {
        self.skel.maps.sockets.keys().count()
    }

    pub fn forget(&self, flow: &sb_flow) {
        // The entry may be missing.
        let _ = self.skel.maps.owned.delete(bytes_of(flow));
    }

    /// Sends a handoff packet to the node, as a switch does.
    pub fn send(&self, packet: &[u8]) {
        self.keep_time();
        let to: SockaddrStorage = SocketAddr::new(address(NODE[0]), 0).into();
        sendto(self.raw.as_raw_fd(), packet, &to, MsgFlags::empty()).unwrap();
    }

    /// The listener for the flow.
    pub fn listener(&self, flow: &sb_flow) -> &TcpListener {
        &self.listeners[usize::from(flow.vip().is_ipv6())]
    }

    /// Sends an ADOPT and accepts the connection.
    pub fn adopt(&self, packet: &[u8], flow: &sb_flow) -> TcpStream {
        self.send(packet);
        let listener = self.listener(flow);
        // Clones may have made connections before.
        loop {
            let (stream, client) = listener.accept().unwrap();
            if client == flow.client() {
                return stream;
            }
        }
    }

    pub fn ingress(&self, frame: &[u8], mark: u32) -> (Verdict, Vec<u8>) {
        self.keep_time();
        run(&self.skel.progs.switchback_ingress, frame, mark)
    }

    /// Likewise from an interface that has summed the whole packet (CHECKSUM_COMPLETE). The sum of the result has to be
    /// right, too: a kernel that gets another one reads the packet again, and blames the hardware.
    pub fn ingress_summed(&self, frame: &[u8], mark: u32) -> (Verdict, Vec<u8>) {
        self.keep_time();
        run_with(&self.skel.progs.switchback_ingress, frame, mark, BPF_F_TEST_SKB_CHECKSUM_COMPLETE)
    }

    pub fn egress_marked(&self, frame: &[u8], mark: u32) -> (Verdict, Vec<u8>) {
        run(&self.skel.progs.switchback_egress, frame, mark)
    }

    pub fn egress(&self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        run(&self.skel.progs.switchback_egress, frame, 0)
    }

    pub fn counter(&self, counter: NodeCounter) -> u64 {
        let key = (counter as u32).to_ne_bytes();
        let values = self.skel.maps.counters.lookup_percpu(&key, MapFlags::ANY).unwrap().unwrap_or_default();
        values.into_iter().map(|value| u64::from_ne_bytes(value.try_into().expect("8 bytes"))).sum()
    }
}

/// Runs a program once on a frame; the result is the verdict and the frame afterwards.
fn run(program: &ProgramMut<'_>, frame: &[u8], mark: u32) -> (Verdict, Vec<u8>) {
    run_with(program, frame, mark, 0)
}

fn run_with(program: &ProgramMut<'_>, frame: &[u8], mark: u32, flags: u32) -> (Verdict, Vec<u8>) {
    let mut context = [0; size_of::<__sk_buff>()];
    context[8..12].copy_from_slice(&mark.to_ne_bytes());
    let mut out = vec![0; 4096];
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(frame),
        data_out: Some(&mut out),
        flags,
        ..Default::default()
    };
    let output = program.test_run(input).expect("the program runs");
    let len = output.data.map_or(0, |data| data.len());
    let number = output.return_value;
    out.truncate(len);
    (Verdict::from_number(number).unwrap_or_else(|| panic!("verdict {number} for {frame:02x?}")), out)
}
