//! The program with its own maps and without an interface. `BPF_PROG_TEST_RUN` injects packets with the index of the
//! loopback interface.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};
use libbpf_sys::XDP_PACKET_HEADROOM;
use switchback_config::{Cluster, ClusterKey};
use switchback_runtime::monotonic_ns;
use switchback_wire::clock::NodeClock;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::{OVERHEAD_V6, Peers, Way, encode};
use switchback_wire::keys::{COOKIE_EPOCH, handoff_key};
use switchback_wire::packet::TcpView;
use switchback_wire::*;

use super::frames::*;
use crate::cookies::Keys;
use crate::driver::QUESTIONS_PERIOD;
use crate::guards::Listed;
use crate::plan::NodeId;
use crate::program::l7::L7Access;
use crate::program::skeleton::types::xdp_md;
use crate::program::{Program, Ways};
use switchback_flow::entry::Entry;

/// Ingress interface.
pub const LOOPBACK: u32 = 1;
const ELSEWHERE: u32 = 4000;
const MTU: u32 = 1500;
const FIRST_EPOCH: u32 = 10;
/// Epoch of all nodes' clocks during a test.
pub const NODE_EPOCH: u64 = 0x2_3456_789a_bcde;
/// How long the clocks stay in that epoch: less than half of its length.
const CLOCK_HOLDS: Duration = Duration::from_secs(1);

const CONFIG: &str = r#"
[cluster]
key_file = "key"
[[node]]
name = "v4"
address = "192.0.2.21"
[[node]]
name = "v6"
address = "2001:db8::21"
[[node]]
name = "unresolved"
address = "192.0.2.23"
[[node]]
name = "on-another-interface"
address = "192.0.2.24"
[[node]]
name = "ends-in-zeros"
address = "2001:db8::1:0:0"
[[node]]
name = "dead"
address = "192.0.2.26"
[[node]]
name = "here-v4"
address = "192.0.2.27"
[[node]]
name = "here-v6"
address = "2001:db8::27"
[[node]]
name = "numbered-v4"
address = "192.0.2.21"
server = "127.0.0.1:8080"
[[node]]
name = "numbered-v6"
address = "2001:db8::21"
server = "127.0.0.1:8080"
[[pool]]
name = "web"
nodes = ["v4", "v6", "on-another-interface", "ends-in-zeros"]
policy = "round-robin"
[[pool]]
name = "img"
nodes = ["unresolved"]
policy = "round-robin"
[[service]]
name = "shop"
listen = ["192.0.2.100:80", "[2001:db8::100]:80"]
[[service.route]]
path = "/img/"
pool = "img"
[[service.route]]
pool = "web"
"#;

/// Index of the pool `web`.
const WEB: usize = 0;

/// Ids of the nodes: their indices in the configuration.
pub const V4: NodeId = NodeId(0);
pub const V6: NodeId = NodeId(1);
pub const UNRESOLVED: NodeId = NodeId(2);
pub const ON_ANOTHER_INTERFACE: NodeId = NodeId(3);
pub const ENDS_IN_ZEROS: NodeId = NodeId(4);
pub const DEAD: NodeId = NodeId(5);
/// Ids of the local node.
pub const HERE: [NodeId; 2] = [NodeId(6), NodeId(7)];
/// Ids of a second node on the machines of [`V4`] and [`V6`].
pub const NUMBERED: [NodeId; 2] = [NodeId(8), NodeId(9)];
/// Id of no node.
pub const UNKNOWN: NodeId = NodeId(10);

/// The second key is accepted, but does not sign.
pub const CLUSTER_KEYS: [u8; 2] = [7, 8];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Drop,
    Pass,
    Tx,
    Redirect,
}

impl Verdict {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Tx,
            4 => Verdict::Redirect,
            _ => return None,
        })
    }
}

/// A record for the L7 thread.
#[derive(Clone)]
pub struct Record {
    /// The L7 thread whose ring it was in.
    pub thread: usize,
    pub head: sb_record,
    pub packet: Vec<u8>,
}

/// Effects of one packet.
pub struct Outcome {
    pub verdict: Verdict,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    pub records: Vec<Record>,
    /// Counters that changed, with the differences.
    pub moved: Vec<(SwitchCounter, u64)>,
}

/// Settings with these keys and an unlimited probe budget.
fn all_allowed(keys: &Keys) -> sb_switch_settings {
    let period = QUESTIONS_PERIOD.as_nanos() as u64;
    let generation = Generation::first(0).next_attempt().number();
    sb_switch_settings { questions: 1 << 24, period, generation, ..keys.settings() }
}

/// Pins the thread to its CPU, because budgets are per CPU.
pub fn stay_on_this_cpu() {
    let this = nix::sched::sched_getcpu().unwrap();
    let mut only = nix::sched::CpuSet::new();
    only.set(this).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &only).unwrap();
}

pub struct Bench {
    pub program: Program,
    pub cluster: Cluster,
    keys: RefCell<Keys>,
    epoch: Cell<u32>,
    restarts: Cell<u32>,
    rings: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Record>>>,
    counters: RefCell<[u64; SwitchCounter::ALL.len()]>,
    clocks_set: Cell<Instant>,
    listed: RefCell<Listed>,
}

/// The cluster with these lines in the service.
pub fn cluster(lines: &str) -> Cluster {
    let config = CONFIG.replacen("[[service.route]]", &format!("{lines}\n[[service.route]]"), 1);
    let keys = CLUSTER_KEYS.map(|byte| ClusterKey::from_bytes([byte; 32]));
    switchback_config::parse(&config, Path::new("cluster.toml"), |_| Ok(keys.to_vec())).unwrap()
}

/// The entry that the L7 thread sees in the map.
pub fn typed(entry: &sb_flow_entry) -> Entry {
    Entry::decode(entry).expect("a known mode")
}

/// Runs the program with this descriptor on a frame, in any thread.
pub fn run_apart(program: i32, frame: &[u8]) {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the descriptor is open, and the frame lives until the end of the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
    assert_eq!(result, 0);
}

impl Bench {
    /// The program with nodes, VIPs, routes and keys.
    pub fn new() -> Self {
        Bench::with_flows(1 << 18)
    }

    /// Likewise, with room for so many flows.
    pub fn with_flows(flows: u32) -> Self {
        Bench::with(flows, 1)
    }

    /// Likewise, with so many L7 threads.
    pub fn with_threads(threads: usize) -> Self {
        Bench::with(1 << 18, threads)
    }

    fn with(flows: u32, threads: usize) -> Self {
        let program = Program::load_with(None, flows, threads).unwrap();
        let cluster_keys = CLUSTER_KEYS.map(|byte| ClusterKey::from_bytes([byte; 32]));
        let mut keys =
            Keys::new(&cluster_keys, COOKIE_EPOCH * (FIRST_EPOCH - 2) + Duration::from_millis(500));
        // All cookies are of this process.
        assert!(keys.turn(COOKIE_EPOCH * (FIRST_EPOCH - 1)) && keys.turn(COOKIE_EPOCH * FIRST_EPOCH));
        program.set_settings(&all_allowed(&keys)).unwrap();
        program.set_interface(LOOPBACK, OURS, Ways::ALL).unwrap();
        let records = Rc::new(RefCell::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let of_threads = program.rings.iter().enumerate();
        for (thread, ring) in
            of_threads.flat_map(|(thread, rings)| rings.iter().map(move |ring| (thread, ring)))
        {
            let records = records.clone();
            let keep = move |bytes: &[u8]| {
                let head: sb_record = read_from(bytes).expect("a record's head");
                let packet = bytes[size_of::<sb_record>()..][..head.len as usize].to_vec();
                records.borrow_mut().push(Record { thread, head, packet });
                0
            };
            builder.add(ring, keep).unwrap();
        }
        let rings = builder.build().unwrap();
        let bench = Bench {
            program,
            cluster: cluster(""),
            keys: RefCell::new(keys),
            epoch: Cell::new(FIRST_EPOCH),
            restarts: Cell::default(),
            rings,
            records,
            counters: RefCell::new([0; SwitchCounter::ALL.len()]),
            clocks_set: Cell::new(Instant::now()),
            listed: RefCell::default(),
        };
        bench.set_nodes();
        bench.configure(0);
        bench
    }

    /// Writes the nodes with their clocks in the middle of the epoch.
    fn set_nodes(&self) {
        self.clocks_set.set(Instant::now());
        for (id, node) in (0..).map(NodeId).zip(&self.cluster.nodes) {
            self.program.set_node(id, &Self::node(id, node.handoff_address())).unwrap();
        }
    }

    /// Writes the routes to a bank and points the VIPs to it.
    pub fn configure(&self, bank: usize) {
        self.configure_guarded(bank, "");
    }

    /// As [`Self::configure`], with these lines in the service.
    pub fn configure_guarded(&self, bank: usize, lines: &str) {
        let guarded = cluster(lines);
        let guards = self.program.guards().write(bank, &guarded, &mut self.listed.borrow_mut()).unwrap();
        let members =
            |pool: usize| self.cluster.pools[pool].nodes.iter().copied().map(NodeId::from_index).collect();
        let services = self.program.with_tables(|tables| tables.write(bank, &self.cluster, members));
        self.program.with_choices(|shared| {
            shared.places.fill(SB_NO_CHOICES as u16);
            shared.places[WEB] = 0;
        });
        let mut vips = HashMap::new();
        for (listener, vip) in (0..).zip(&self.cluster.services[0].listen) {
            let mss = Self::our_mss(vip.is_ipv6()).into();
            let vip_entry = sb_vip { mss, listener, guard: guards[0], ..services[0] };
            vips.insert(bytes_of(&endpoint(*vip)).to_vec(), vip_entry);
        }
        self.program.set_vips(&vips).unwrap();
    }

    /// Makes the choices of the pool `web` at both VIPs, and withdraws earlier ones.
    pub fn choose_ahead(&self, nodes: &[NodeId], share: u8) {
        self.program.with_choices(|shared| {
            let queue = &mut shared.queues[0];
            let made = (queue.counts >> 32) as u32;
            for (number, node) in std::iter::zip(made.., nodes) {
                queue.nodes[(number % SB_CHOICES) as usize] = node.0 as u16;
            }
            queue.counts = u64::from(made + nodes.len() as u32) << 32 | u64::from(made);
            (queue.until, queue.share) = (u64::MAX, share.into());
        });
    }

    /// The program as the first L7 thread uses it.
    pub fn l7(&self) -> L7Access<'_> {
        self.program.l7(0).unwrap()
    }

    /// Descriptor of the program.
    pub fn program_fd(&self) -> i32 {
        self.program.skel.progs.switchback.as_fd().as_raw_fd()
    }

    /// Number of choices that have not been taken.
    pub fn choices_left(&self) -> u32 {
        let counts = self.program.with_choices(|shared| shared.queues[0].counts);
        ((counts >> 32) as u32).wrapping_sub(counts as u32)
    }

    /// Whether there is a service at this VIP and port.
    pub fn serves(&self, vip: SocketAddr) -> bool {
        self.cluster.services[0].listen.contains(&vip)
    }

    /// MSS in SYN-ACKs.
    pub fn our_mss(v6: bool) -> u16 {
        (MTU - OVERHEAD_V6 as u32 - if v6 { 60 } else { 40 }) as u16
    }

    fn node(id: NodeId, node: NodeAddress) -> sb_node {
        sb_node {
            address: node.to_wire(),
            source: address_bytes(Self::source(node.machine)),
            ifindex: match id {
                UNRESOLVED => 0,
                ON_ANOTHER_INTERFACE => ELSEWHERE,
                _ => LOOPBACK,
            },
            next_hop: Self::next_hop(id),
            our_mac: OURS,
            dead: u16::from(id == DEAD),
            here: u16::from(HERE.contains(&id)),
            ways: Ways::ALL.0,
            clock: NodeClock::told(
                (NODE_EPOCH << SB_EPOCH_SHIFT) + (1 << (SB_EPOCH_SHIFT - 1)),
                Duration::from_nanos(monotonic_ns()),
            )
            .ahead(),
            reserved: [0; 3],
        }
    }

    /// Sets whether this machine is also a node.
    pub fn be_node(&self, is_node: bool) {
        let settings = sb_switch_settings { is_node: is_node.into(), ..all_allowed(&self.keys.borrow()) };
        self.program.set_settings(&settings).unwrap();
    }

    /// Our source address towards a node.
    fn source(node: IpAddr) -> IpAddr {
        address(if node.is_ipv4() { "192.0.2.10" } else { "2001:db8::10" })
    }

    /// Addresses of this switch and a node, with the epoch of the tests.
    pub fn peers(node: NodeAddress) -> Peers {
        Peers { node, switch: Self::source(node.machine), epoch: NODE_EPOCH }
    }

    fn next_hop(id: NodeId) -> [u8; 6] {
        [2, 0, 0, 0, 1, id.0 as u8]
    }

    pub fn node_address(&self, id: NodeId) -> NodeAddress {
        self.cluster.nodes[id.index()].handoff_address()
    }

    /// The key that signs handoff packets.
    pub fn sign() -> sb_key {
        handoff_key(&[CLUSTER_KEYS[0]; 32])
    }

    /// The frame in which the program must forward a client's packet, encoded by user space. With REQUEST, the whole
    /// packet is a head.
    pub fn forwarded(&self, entry: &sb_flow_entry, flow: &sb_flow, packet: &[u8], flags: u32) -> Vec<u8> {
        let view = TcpView::parse(packet).expect("a TCP packet");
        let head = if flags & SB_HANDOVER_REQUEST == 0 { 0 } else { view.len() as u16 };
        self.forwarded_with(entry, flow, packet, flags, head)
    }

    /// The frame of a packet over which the mark has moved from `before` on.
    pub fn forwarded_read(
        &self,
        before: &sb_flow_entry,
        after: &sb_flow_entry,
        flow: &sb_flow,
        packet: &[u8],
        flags: u32,
    ) -> Vec<u8> {
        let view = TcpView::parse(packet).expect("a TCP packet");
        let old = before.next.wrapping_sub(view.seq.0) as u16;
        self.forwarded_with(after, flow, packet, flags | SB_HANDOVER_READ, old)
    }

    fn forwarded_with(
        &self,
        entry: &sb_flow_entry,
        flow: &sb_flow,
        packet: &[u8],
        flags: u32,
        head: u16,
    ) -> Vec<u8> {
        let mut option = typed(entry).flow_state().option(sb_op::SB_OP_FORWARD);
        option.flags |= flags as u8;
        let option = option.with(|said: &mut sb_handover| said.boundary = head.to_be());
        let view = TcpView::parse(packet).expect("a TCP packet");
        self.handed(NodeId(entry.node), flow, option, &view, packet)
    }

    /// The frame of any packet about a flow, with the position in the flow given by `view`. The outer header has the
    /// inner one's traffic class (RFC 6040 section 4.1), which user space leaves out.
    pub fn handed(
        &self,
        id: NodeId,
        flow: &sb_flow,
        option: sb_option,
        view: &TcpView,
        packet: &[u8],
    ) -> Vec<u8> {
        let node = self.node_address(id);
        let mut out = Vec::new();
        encode(&mut out, &Self::sign(), &Way::to_node(Self::peers(node)), flow, option, view, packet);
        let class = (u16::from_be_bytes([packet[0], packet[1]]) >> 4) as u8;
        let class = if packet[0] >> 4 == 4 { packet[1] } else { class };
        if node.machine.is_ipv4() {
            out[1] = class;
            seal_ipv4(&mut out);
        } else {
            out[0] |= class >> 4;
            out[1] |= class << 4;
        }
        // Frames for the local node keep their addresses.
        if HERE.contains(&id) { to_us(&out) } else { ethernet(Self::next_hop(id), OURS, &out) }
    }

    /// A frame from a node: `option` about the flow of the inner packet, signed with `key`.
    pub fn node_frame(
        &self,
        node: NodeId,
        key: &sb_key,
        flow: &sb_flow,
        option: sb_option,
        inner: &[u8],
    ) -> Vec<u8> {
        self.node_frame_at(Self::peers(self.node_address(node)), key, flow, option, inner)
    }

    /// A frame with `option` for any pair of addresses and any epoch.
    pub fn node_frame_at(
        &self,
        peers: Peers,
        key: &sb_key,
        flow: &sb_flow,
        option: sb_option,
        inner: &[u8],
    ) -> Vec<u8> {
        let view = TcpView::parse(inner).expect("a TCP packet");
        let mut out = Vec::new();
        encode(&mut out, key, &Way::to_switch(peers), flow, option, &view, inner);
        to_us(&out)
    }

    /// The program's settings.
    pub fn settings(&self) -> sb_switch_settings {
        all_allowed(&self.keys.borrow())
    }

    /// Advances to the next epoch of cookie keys.
    pub fn turn(&self) {
        self.epoch.set(self.epoch.get() + 1);
        let mut keys = self.keys.borrow_mut();
        assert!(keys.turn(COOKIE_EPOCH * self.epoch.get()));
        self.program.set_settings(&all_allowed(&keys)).unwrap();
    }

    /// Takes over as another process with the same keys.
    pub fn restart(&self) {
        let cluster_keys = CLUSTER_KEYS.map(|byte| ClusterKey::from_bytes([byte; 32]));
        self.restarts.set(self.restarts.get() + 1);
        let now = COOKIE_EPOCH * self.epoch.get() + Duration::from_secs(1) * self.restarts.get();
        self.keys.replace(Keys::new(&cluster_keys, now));
        self.program.set_settings(&self.settings()).unwrap();
    }

    /// Sets a flow's entry, in the map of flows without a node if it has none.
    pub fn put(&self, flow: &sb_flow, entry: &sb_flow_entry) {
        let maps = &self.program.skel.maps;
        let nowhere = !typed(entry).has_node() && !typed(entry).is_adopting();
        let map = if nowhere { &maps.waiting } else { &maps.flows };
        map.update(bytes_of(flow), bytes_of(entry), MapFlags::ANY).unwrap();
    }

    /// Sets the entry of a flow that has had a node, whether it has one now or not.
    pub fn put_established(&self, flow: &sb_flow, entry: &sb_flow_entry) {
        self.program.skel.maps.flows.update(bytes_of(flow), bytes_of(entry), MapFlags::ANY).unwrap();
    }

    /// Removes a flow's entry.
    pub fn lose(&self, flow: &sb_flow) {
        // The entry may be in either map.
        let _ = self.program.skel.maps.flows.delete(bytes_of(flow));
        let _ = self.program.skel.maps.waiting.delete(bytes_of(flow));
    }

    /// Removes a flow's entry and the memory of its earlier connections.
    pub fn forget(&self, flow: &sb_flow) {
        self.lose(flow);
        let _ = self.program.skel.maps.over.delete(bytes_of(flow));
    }

    /// Changes what the program remembers of a handshake: the SYN-ACK's number, and microseconds until now.
    fn change_handshake(&self, isn: u32, change: impl FnOnce(&mut [u32; 4])) {
        let map = &self.program.skel.maps.handshakes;
        let key = (isn % map.max_entries()).to_ne_bytes();
        let bytes = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        let (words, _) = bytes.as_chunks();
        let mut words = std::array::from_fn(|at| u32::from_ne_bytes(words[at]));
        change(&mut words);
        map.update(&key, words.map(u32::to_ne_bytes).as_flattened(), MapFlags::ANY).unwrap();
    }

    /// Forgets when a SYN-ACK was sent.
    pub fn forget_handshake(&self, isn: u32) {
        self.change_handshake(isn, |handshake| *handshake = [0; 4]);
    }

    /// Sends a SYN-ACK earlier than it was sent.
    pub fn age_handshake(&self, isn: u32, by: Duration) {
        self.change_handshake(isn, |[_, sent_us, ..]| *sent_us = sent_us.wrapping_sub(by.as_micros() as u32));
    }

    /// Number of entries of flows that have not had a node.
    pub fn waiting(&self) -> usize {
        self.program.skel.maps.waiting.keys().count()
    }

    /// Number of flow entries.
    pub fn entries(&self) -> usize {
        self.program.skel.maps.flows.keys().count() + self.waiting()
    }

    /// Sets each CPU's probe budget for a period that does not end by itself.
    pub fn allow(&self, questions: u32) {
        let settings = sb_switch_settings { questions, period: u64::MAX, ..self.settings() };
        self.program.set_settings(&settings).unwrap();
        self.end_period();
    }

    /// Ends the period of the probe budget.
    pub fn end_period(&self) {
        let maps = &self.program.skel.maps;
        for (map, keys) in [(&maps.allowances, 1), (&maps.network_allowances, 1024u32)] {
            for key in (0..keys).map(u32::to_ne_bytes) {
                let mut values = map.lookup_percpu(&key, MapFlags::ANY).unwrap().unwrap();
                for value in &mut values {
                    let period: &mut [u8; 8] = value.first_chunk_mut().unwrap();
                    *period = u64::from_ne_bytes(*period).wrapping_sub(1).to_ne_bytes();
                }
                map.update_percpu(&key, &values, MapFlags::ANY).unwrap();
            }
        }
    }

    /// Runs the program `times` times on a frame; the result is that of the last run.
    pub fn run(&self, frame: &[u8], times: u32) -> (Verdict, Vec<u8>) {
        let (verdict, out, _) = self.run_in(None, frame, times);
        (verdict, out)
    }

    /// Runs the program once on a frame, and returns the kernel's measurement of its time, too.
    pub fn timed(&self, frame: &[u8]) -> (Verdict, Vec<u8>, Duration) {
        self.run_in(None, frame, 1)
    }

    fn run_in(&self, context: Option<&mut [u8]>, frame: &[u8], times: u32) -> (Verdict, Vec<u8>, Duration) {
        if self.clocks_set.get().elapsed() > CLOCK_HOLDS {
            self.set_nodes();
        }
        let mut out = vec![0; 4096];
        let input = ProgramInput {
            context_in: context,
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: times,
            ..Default::default()
        };
        let output = self.program.skel.progs.switchback.test_run(input).expect("the program runs");
        let len = output.data.map_or(0, |data| data.len());
        let (verdict, time) = (Verdict::from_number(output.return_value), output.duration);
        out.truncate(len);
        (verdict.unwrap_or_else(|| panic!("no verdict for {frame:02x?}")), out, time)
    }

    /// Sends one packet in front of which the driver leaves this many bytes. The result is without what it leaves.
    pub fn send_with_headroom(&self, headroom: u32, frame: &[u8]) -> Outcome {
        // The test run leaves XDP_PACKET_HEADROOM, of which metadata takes the rest.
        let taken = XDP_PACKET_HEADROOM - headroom;
        let data = [&vec![0; taken as usize], frame].concat();
        let mut context = [0; size_of::<xdp_md>()];
        context[..4].copy_from_slice(&taken.to_ne_bytes());
        context[4..8].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        let mut outcome = self.send_in(Some(&mut context), &data);
        outcome.frame.drain(..taken as usize);
        outcome
    }

    /// Records since the last call.
    pub fn records(&self) -> Vec<Record> {
        self.rings.consume().unwrap();
        self.records.take()
    }

    /// Counters that changed since the last call.
    pub fn moved(&self) -> Vec<(SwitchCounter, u64)> {
        let mut counters = self.counters.borrow_mut();
        let mut moved = Vec::new();
        for (before, counter) in std::iter::zip(counters.iter_mut(), SwitchCounter::ALL) {
            let now = self.program.counter(counter);
            if now != *before {
                moved.push((counter, now - *before));
            }
            *before = now;
        }
        moved
    }

    /// Sends one packet and returns its effects.
    pub fn send(&self, frame: &[u8]) -> Outcome {
        self.send_in(None, frame)
    }

    fn send_in(&self, context: Option<&mut [u8]>, frame: &[u8]) -> Outcome {
        let _ = (self.records(), self.moved());
        let (verdict, frame, _) = self.run_in(context, frame, 1);
        Outcome { verdict, frame, records: self.records(), moved: self.moved() }
    }

    /// Sends a SYN; the result is the cookie and the TSval of the answer, 0 if it has none.
    pub fn cookie(&self, syn: &Tcp) -> (u32, u32) {
        let (verdict, frame) = self.run(&syn.frame(), 1);
        assert_eq!(verdict, Verdict::Tx);
        let packet = &frame[14..];
        let view = TcpView::parse(packet).expect("a SYN-ACK");
        (view.seq.0, packet::timestamps(packet, &view).map_or(0, |(value, _)| value))
    }
}
