//! The world around a dispatcher, in memory.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use switchback_config::{ClusterKey, Rank};
use switchback_flow::entry::{Entry, Mode};
use switchback_http::{Body, Progress, parse_head};
use switchback_rates::Table;
use switchback_wire::Reason;
use switchback_wire::clock::NodeClock;
use switchback_wire::flow_state::Handshake;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::Peers;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::records::Numbered;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::*;

use crate::dispatch::{Change, Dispatcher, Moment};
use crate::ids::NodeIds;
use crate::observe::Observation;
use crate::plan::{Choice, LocalMachine, Plan};

pub const CONFIG: &str = r#"
[cluster]
key_file = "key"
[[node]]
name = "n1"
address = "192.0.2.21"
[[node]]
name = "n2"
address = "192.0.2.22"
[[node]]
name = "n3"
address = "192.0.2.23"
[[pool]]
name = "web"
nodes = ["n1", "n2"]
policy = "round-robin"
[[pool]]
name = "img"
nodes = ["n3"]
policy = "round-robin"
[[service]]
name = "shop"
listen = ["192.0.2.100:80"]
[[service.route]]
path = "/img/"
pool = "img"
[[service.route]]
path = "/old/"
redirect = { scheme = "https", status = 308 }
[[service.route]]
path = "/web/"
pool = "web"
[[service.route]]
method = "PRI"
h2c = true
pool = "web"
"#;

/// The client's first sequence number; the numbers wrap soon after.
pub const ORIGIN: Seq = Seq(u32::MAX - 20);
/// The first sequence number of the server side, after the SYN-ACK.
pub const SERVER: Seq = Seq(7000);

/// The configuration with a limit for which nearly every request waits.
pub fn with_rate_limit(config: &str) -> String {
    let limit = "limit.client.requests = { rate = 200, burst = 1, over = \"wait\" }";
    config.replacen("[[service.route]]", &format!("{limit}\n[[service.route]]"), 1)
}

pub fn node(last: u8) -> NodeAddress {
    IpAddr::from([192, 0, 2, 20 + last]).into()
}

pub fn flow() -> sb_flow {
    sb_flow {
        client: address_bytes("198.51.100.1".parse().unwrap()),
        vip: address_bytes("192.0.2.100".parse().unwrap()),
        client_port: 40000u16.to_be(),
        vip_port: 80u16.to_be(),
    }
}

/// A handoff packet on its way to a node.
#[derive(Clone, Debug)]
pub struct ToNode {
    pub node: NodeAddress,
    pub second: Option<NodeAddress>,
    pub op: sb_op,
    pub option: sb_option,
    pub packet: Vec<u8>,
}

impl ToNode {
    pub fn view(&self) -> TcpView {
        TcpView::parse(&self.packet).unwrap()
    }

    pub fn data(&self) -> &[u8] {
        let view = self.view();
        &self.packet[view.data..view.end]
    }

    /// By how many bytes the head in the packet is longer than the client's.
    pub fn grown(&self) -> i32 {
        match message::ToNode::read(&self.option) {
            Some(message::ToNode::Adopt { grown, .. }) => grown.into(),
            _ => 0,
        }
    }
}

/// A dispatcher and the flow map.
pub struct World {
    pub now: Duration,
    pub dispatcher: Dispatcher,
    pub map: HashMap<sb_flow, Entry>,
    /// Flows of which the program does not move the mark.
    pub locked: HashSet<sb_flow>,
    /// Flows that have had no node.
    pub waiting: HashSet<sb_flow>,
    /// The program forwards plain requests itself, as its automaton allows it to.
    pub express: bool,
    /// The program gives plain first requests to nodes itself.
    pub places: bool,
    /// It has done so.
    pub placed: bool,
    /// The client's first data has been seen.
    pub begun: bool,
    /// Entries are lost, and connections with them.
    pub loses: bool,
    /// The cookie in the client's first packet is still good.
    pub cookie: bool,
    /// It is another process's.
    pub foreign: bool,
    /// Connections whose entries were removed, by their origin: whether nodes know that they are over.
    pub over: HashMap<sb_flow, (Seq, bool)>,
    /// Records stay in the ring until the next packet that comes while this is false.
    pub lagging: bool,
    ring: Vec<(Entry, Vec<u8>)>,
    reports: u16,
    /// The newest version that nodes know.
    pub newest: u8,
    pub to_client: Vec<Vec<u8>>,
    pub observed: Vec<Observation>,
    /// The program's token buckets.
    limiter: RefCell<Table>,
}

/// The option of a node's answer: the question's state of the flow, up to whose mark all data has arrived.
pub fn answered(asked: &sb_option, op: sb_op, reason: sb_reason) -> sb_option {
    let flow = asked.flow_state();
    let arrived = if op == sb_op::SB_OP_CONFIRMED { flow.next } else { 0 };
    let generation = if op == sb_op::SB_OP_RELEASED {
        asked.said::<sb_question>().next_generation
    } else {
        flow.generation
    };
    let option = sb_option { op: op as u8, flags: 0, reason: reason as u8, ..*asked };
    option.saying(&sb_confirmed { flow: sb_flow_state { generation, ..flow }, arrived })
}

/// The option of a node's answer that describes the flow as the node has it. The handshake is the question's.
pub fn described(asked: &sb_option, op: sb_op, state: sb_flow_state) -> sb_option {
    answered(asked, op, sb_reason::SB_REASON_NONE).with(|flow: &mut sb_flow_state| {
        let handshake = (flow.mss, flow.options, flow.wscale);
        *flow = state;
        (flow.mss, flow.options, flow.wscale) = handshake;
    })
}

impl World {
    pub fn new() -> Self {
        World::of(CONFIG)
    }

    /// With another configuration, which has no more than eight nodes.
    pub fn of(config: &str) -> Self {
        World::with_keys(config, &[7])
    }

    /// One of several switches, with this number. The first one has answered the client's SYN.
    pub fn of_several(config: &str, number: u8) -> Self {
        let mut world = World::of(config);
        world.dispatcher.plan().rank = Rank { number, is_alone: false };
        world.foreign = number != 0;
        world
    }

    /// Likewise, of a machine that is something besides a switch.
    pub fn at(config: &str, place: LocalMachine<'_>) -> Self {
        World::new_with(plan(config, &[7], place, Duration::ZERO))
    }

    /// Likewise, with keys of these bytes.
    pub fn with_keys(config: &str, cluster_keys: &[u8]) -> Self {
        World::new_with(plan(config, cluster_keys, LocalMachine::default(), Duration::ZERO))
    }

    fn new_with(plan: Plan) -> Self {
        let mut counter = 0;
        let random = move || {
            counter += 1;
            counter
        };
        World {
            now: Duration::from_secs(100),
            dispatcher: Dispatcher::new(plan, Box::new(random)),
            map: HashMap::new(),
            locked: HashSet::new(),
            waiting: HashSet::new(),
            express: false,
            places: false,
            placed: false,
            begun: false,
            loses: false,
            cookie: true,
            foreign: false,
            over: HashMap::new(),
            lagging: false,
            ring: Vec::new(),
            reports: 0,
            newest: SB_VERSION,
            to_client: Vec::new(),
            observed: Vec::new(),
            limiter: RefCell::new(Table::new(1000)),
        }
    }

    /// The L7 thread begins anew. In an order the flow map goes with it.
    pub fn restart(&mut self, config: &str, in_order: bool) {
        let rank = self.dispatcher.plan().rank;
        let new = World::new_with(plan(config, &[7], LocalMachine::default(), self.now));
        self.dispatcher = new.dispatcher;
        self.dispatcher.plan().rank = rank;
        self.ring.clear();
        self.over.clear();
        self.foreign = true;
        self.map.retain(|flow, _| !in_order && !self.waiting.contains(flow));
        self.waiting.clear();
    }

    /// Another configuration is loaded, or other keys.
    pub fn reload(&mut self, config: &str, cluster_keys: &[u8]) {
        self.dispatcher.replace_plan(plan(config, cluster_keys, LocalMachine::default(), self.now));
    }

    /// Does what the dispatcher wants done; the handoff packets it sends.
    pub fn flush(&mut self) -> Vec<ToNode> {
        let output = &mut self.dispatcher.output;
        for changes in [&output.changes, &output.moves] {
            apply(changes, &mut self.map, &mut self.locked, &mut self.waiting, &mut self.over);
        }
        let mut sent = Vec::new();
        for (packet, to) in output.packets() {
            if to == flow().client().ip() {
                self.to_client.push(packet.to_vec());
                continue;
            }
            let shim: sb_shim = read_from(&packet[20..]).unwrap();
            let op = sb_op::from_number(shim.option.op).unwrap();
            let mut inner = 20 + size_of::<sb_shim>();
            let has_second = usize::from(shim.geneve.ver_opt_len) * 4 > size_of::<sb_option>();
            let second = has_second.then(|| read_from::<sb_second>(&packet[inner..]).unwrap());
            inner += if has_second { size_of::<sb_second>() } else { 0 };
            let second = second.map(|second| address_from(second.node).into());
            let number = (u32::from_be(shim.geneve.vni) >> 16) as u16;
            let node = NodeAddress { machine: to, number: if has_second { 0 } else { number } };
            sent.push(ToNode { node, second, op, option: shim.option, packet: packet[inner..].to_vec() });
        }
        self.observed.append(&mut output.observed);
        output.clear();
        sent
    }

    /// What the XDP program does with a client packet of a known connection: a forward, or a record for the
    /// dispatcher.
    pub fn client_packet(&mut self, packet: &[u8]) -> Vec<ToNode> {
        let view = TcpView::parse(packet).unwrap();
        let end = view.seq + view.len();
        let held = Entry {
            handshake: Handshake { mss: 1460, options: SB_SYN_SACK as u8, wscale: 0x77 },
            mode: if self.foreign || self.is_over(true) { Mode::Sought } else { Mode::Held },
            ..Entry::new(ORIGIN)
        };
        let is_over = self.is_over(false);
        let first = self.cookie && !is_over && view.seq == ORIGIN && !view.is_empty();
        let known = self.map.get(&flow()).copied();
        let is_first_data = first && known.is_none() && !std::mem::replace(&mut self.begun, true);
        if is_first_data && let Some(placed) = self.place_first(&held, &view, packet) {
            return vec![placed];
        }
        let entry = match known {
            Some(entry) => entry,
            None if first => {
                self.locked.remove(&flow());
                self.waiting.insert(flow());
                self.map.insert(flow(), held);
                held
            }
            None => return self.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), packet),
        };
        let control = view.flags & (flags::FIN | flags::RST) != 0;
        let beyond = |entry: &Entry| end.after(entry.mark.next);
        let reads = entry.has_requests() || entry.is_upgrading();
        let mut extra = (0, 0);
        let to_l7 = if entry.is_held() {
            !view.is_empty() || control
        } else if entry.is_adopting() {
            !view.is_empty()
        } else if reads && !view.is_empty() && self.dispatcher.seen().is_dead(entry.node, self.now) {
            true
        } else if reads && entry.mark.is_passing() && entry.mark.next.offset_from(end) < SB_STEP_NEAR as i32 {
            self.ring.push((entry, packet.to_vec()));
            return if self.lagging { Vec::new() } else { self.drain() };
        } else if reads && !view.is_empty() && beyond(&entry) {
            match self.goes_on(&entry, &view, packet) {
                Some((moved, flags)) => {
                    self.map.insert(flow(), moved);
                    extra = flags;
                    false
                }
                None => true,
            }
        } else {
            entry.is_answered() || entry.is_resuming()
        };
        if to_l7 {
            if reads || entry.is_adopting() {
                self.locked.insert(flow());
            }
            self.ring.push((entry, packet.to_vec()));
            return if self.lagging { Vec::new() } else { self.drain() };
        }
        if entry.is_held() {
            return Vec::new();
        }
        let entry = self.map[&flow()];
        let node = self.dispatcher.plan().node(entry.node).unwrap().address;
        let mut option = entry.flow_state().option(sb_op::SB_OP_FORWARD);
        option.flags |= extra.0;
        let option = option.with(|said: &mut sb_handover| said.boundary = extra.1.to_be());
        vec![ToNode { node, second: None, op: sb_op::SB_OP_FORWARD, option, packet: packet.to_vec() }]
    }

    fn is_over(&self, in_doubt: bool) -> bool {
        self.over.get(&flow()) == Some(&(ORIGIN, in_doubt))
    }

    /// If the program goes on with the packet by itself: the entry after it, and the flags and the length that say what has been
    /// read.
    fn goes_on(&mut self, entry: &Entry, view: &TcpView, packet: &[u8]) -> Option<(Entry, (u8, u16))> {
        let offset = entry.mark.next - view.seq;
        if self.locked.contains(&flow()) || offset as usize > view.len() {
            return None;
        }
        let mut moved = *entry;
        if entry.mark.is_in_body() {
            moved.mark.follow(&packet[view.data + offset as usize..view.end]).ok()?;
            let all = !view.end_seq().after(moved.mark.next);
            return all.then_some((moved, (SB_HANDOVER_READ as u8, offset as u16)));
        }
        if !self.express || offset != 0 || !entry.has_requests() || entry.is_resumed() {
            return None;
        }
        let told = entry.mark.session != sb_session::default();
        let (pool, after, head) = self.read_plain(entry, view, packet)?;
        let keeps = self.dispatcher.plan().keepers(pool, self.now).contains(&entry.node);
        (keeps && !told).then_some((after, (SB_HANDOVER_REQUEST as u8, head)))
    }

    /// What the automaton makes of a packet: the pool, the entry behind the request, and its length.
    fn read_plain(&mut self, entry: &Entry, view: &TcpView, packet: &[u8]) -> Option<(usize, Entry, u16)> {
        let data = &packet[view.data..view.end];
        let plan = self.dispatcher.plan();
        let limits = plan.http_limits();
        let Ok(Progress::Complete(head)) = parse_head(data, &limits) else { return None };
        let service = plan.service(flow().vip())?;
        let route = plan.route(service, &head, flow().client().ip()).ok()??;
        let Choice::Pool(pool) = plan.choice(service, route) else { return None };
        if !matches!(plan.new_head((service, route), &head, data), Ok(None)) {
            return None;
        }
        if head.len != view.len() || head.body != Body::None || head.tunnel {
            return None;
        }
        let mut after = *entry;
        after.enter(&head, data, &limits).ok()?;
        Some((pool, after, head.len as u16))
    }

    /// If the program gives a first request to a node itself: the packet to the node.
    fn place_first(&mut self, held: &Entry, view: &TcpView, packet: &[u8]) -> Option<ToNode> {
        if !self.places || held.mode != Mode::Held {
            return None;
        }
        let (pool, after, head) = self.read_plain(held, view, packet)?;
        let groups = self.dispatcher.plan().groups_ahead();
        let (group, ..) = groups.into_iter().find(|(_, of, vip)| (*of, *vip) == (pool, flow().vip()))?;
        let id = *self.dispatcher.choose_ahead(self.now, group, 1, |_| true).first()?;
        let plan = self.dispatcher.plan();
        plan.group_mut(group)?.choices_used(1);
        let generation = Generation::first(plan.rank.number).next_attempt();
        let node = plan.node(id)?.address;
        let entry = Entry { node: id, mode: Mode::Adopting, generation, ..after };
        self.map.insert(flow(), entry);
        self.locked.remove(&flow());
        self.placed = true;
        let option = entry.flow_state().option(sb_op::SB_OP_ADOPT);
        let option = option.with(|said: &mut sb_handover| said.boundary = head.to_be());
        Some(ToNode { node, second: None, op: sb_op::SB_OP_ADOPT, option, packet: packet.to_vec() })
    }

    /// Whether the program itself takes note of the answer.
    fn confirms(&mut self, node: NodeAddress, option: &sb_option) -> bool {
        let id = self.dispatcher.plan().node_at(node);
        let said = option.flow_state();
        let is_locked = self.locked.contains(&flow());
        let Some(entry) = self.map.get_mut(&flow()) else { return false };
        let is_its = Some(entry.node) == id && entry.origin.to_be() == said.origin;
        let confirms = option.op == sb_op::SB_OP_ADOPTED as u8 && entry.is_adopting() && is_its && !is_locked;
        if confirms {
            *entry = entry.adopted();
        }
        confirms
    }

    /// The flow's node says that the connection is over.
    pub fn closed(&mut self) {
        if let Some(entry) = self.map.remove(&flow()) {
            self.waiting.remove(&flow());
            self.over.insert(flow(), (entry.origin, false));
        }
    }

    /// Somebody sends a SYN with the addresses and ports of the client, and not its number.
    pub fn forged_syn(&mut self) {
        self.map.entry(flow()).and_modify(|entry| entry.contested = true);
    }

    /// The L7 thread reads the ring.
    pub fn drain(&mut self) -> Vec<ToNode> {
        let records = std::mem::take(&mut self.ring);
        let request = sb_record_kind::SB_RECORD_REQUEST;
        records.into_iter().flat_map(|(entry, packet)| self.record(request, entry, &packet)).collect()
    }

    /// A record that the program writes.
    pub fn record(&mut self, kind: sb_record_kind, entry: Entry, packet: &[u8]) -> Vec<ToNode> {
        let entry = entry.encode();
        let record = sb_record { kind: kind as u32, flow: flow(), entry, ..Default::default() };
        let at = Moment {
            now: self.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_record(at, &record, packet);
        self.flush()
    }

    /// The flow is taken from its node, which drains, if it is idle.
    pub fn take_back(&mut self) -> Vec<ToNode> {
        let entry = self
            .map
            .get(&flow())
            .filter(|entry| (entry.has_node() || entry.is_adopting()) && !self.locked.contains(&flow()));
        if let Some(entry) = entry.copied() {
            let at = Moment {
                now: self.now,
                map: &|flow| self.map.get(flow).copied(),
                take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
            };
            self.dispatcher.take_back(at, &flow(), entry);
        }
        self.flush()
    }

    /// The list of a node's flows, which is this one.
    pub fn list(&mut self, node: NodeAddress, listed: sb_listed) -> Vec<ToNode> {
        self.dispatcher.list_flows(self.now);
        self.dispatcher.acknowledge();
        let hello = self.flush();
        let asked = hello.iter().find(|asked| asked.node == node).expect("all nodes are asked");
        let epoch = u32::from_be(asked.option.said::<sb_hello>().listed.epoch);
        let id = self.dispatcher.plan().node_at(node).unwrap();
        let at = Moment {
            now: self.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        let first = Numbered { epoch, number: 1, lost: 0 };
        assert!(self.dispatcher.is_next_of_list(at.now, id, first, true));
        self.dispatcher.on_listed(at, id, &listed);
        self.flush()
    }

    /// The beginning of another client's head.
    pub fn record_of_another_client(&mut self, bytes: &[u8]) {
        self.record_of_client(40001, bytes);
    }

    /// Likewise, of a client with this port.
    pub fn record_of_client(&mut self, port: u16, bytes: &[u8]) {
        let mut other = flow();
        other.client_port = port.to_be();
        let entry = Entry::new(Seq(5));
        self.map.insert(other, entry);
        self.waiting.insert(other);
        let kind = sb_record_kind::SB_RECORD_REQUEST as u32;
        let record = sb_record { kind, flow: other, entry: entry.encode(), ..Default::default() };
        let packet = segment(&other, true, (Seq(5), Seq(6)), flags::ACK, None, bytes);
        let at = Moment {
            now: self.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_record(at, &record, &packet);
        self.flush();
    }

    /// What a node says about the handoff packet.
    pub fn answer(&mut self, asked: &ToNode, op: sb_op, reason: sb_reason) -> Vec<ToNode> {
        self.answer_all(std::slice::from_ref(asked), op, reason)
    }

    /// What nodes say about the handoff packets, read in one batch.
    pub fn answer_all(&mut self, asked: &[ToNode], op: sb_op, reason: sb_reason) -> Vec<ToNode> {
        for asked in asked {
            self.read_handoff(asked.node, answered(&asked.option, op, reason), &asked.packet);
        }
        self.flush()
    }

    /// What a node says about the handoff packet, which the program may note by itself.
    pub fn answer_through_program(&mut self, asked: &ToNode, op: sb_op) -> Vec<ToNode> {
        self.handoff(asked.node, answered(&asked.option, op, sb_reason::SB_REASON_NONE), &asked.packet)
    }

    /// The node keeps the packet, and says so.
    pub fn kept(&mut self, asked: &ToNode) -> Vec<ToNode> {
        assert_eq!(asked.op, sb_op::SB_OP_KEEP);
        let kept = answered(&asked.option, sb_op::SB_OP_KEPT, sb_reason::SB_REASON_NONE);
        let end = asked.view().end_seq().to_be();
        self.handoff(asked.node, kept.with(|said: &mut sb_kept| said.end = end), &asked.packet)
    }

    /// What a node with a full accept queue says about the adoption.
    pub fn refuse(&mut self, adopt: &ToNode, queue: (u16, u16)) -> Vec<ToNode> {
        let refused = answered(&adopt.option, sb_op::SB_OP_REFUSED, sb_reason::SB_REASON_QUEUE_FULL);
        let option = refused.with(|outcome: &mut sb_outcome| outcome.queue = queue.into());
        self.handoff(adopt.node, option, &adopt.packet)
    }

    /// A node's report about the pool at the VIP: why it is to have no requests, and its accept queue.
    pub fn report(
        &mut self,
        node: NodeAddress,
        pool: &str,
        reason: sb_reason,
        queue: (u16, u16),
    ) -> Vec<ToNode> {
        self.read_report(node, pool, reason, queue);
        self.flush()
    }

    /// The same without its effects.
    pub fn read_report(&mut self, node: NodeAddress, pool: &str, reason: sb_reason, queue: (u16, u16)) {
        self.reports = self.reports.wrapping_add(1);
        let report = Report {
            listener: flow().vip(),
            pool: pool_id(pool),
            number: self.reports,
            reason: Reason::from_number(reason as u8),
            queue,
            in_flight: 0,
            flows: 1,
            first_byte: None,
            cpu: 0,
            newest: self.newest,
            software: Default::default(),
        };
        let mut packet = Vec::new();
        let peers = Peers { node, switch: "192.0.2.10".parse().unwrap(), epoch: 0 };
        report.encode(&mut packet, &sb_key::default(), peers);
        let shim: sb_shim = read_from(&packet[20..]).unwrap();
        self.read_handoff(node, shim.option, &packet[handoff::OVERHEAD_V4..]);
    }

    /// Any handoff packet of a node.
    pub fn handoff(&mut self, node: NodeAddress, option: sb_option, packet: &[u8]) -> Vec<ToNode> {
        if self.confirms(node, &option) {
            return Vec::new();
        }
        self.read_handoff(node, option, packet);
        self.flush()
    }

    fn read_handoff(&mut self, node: NodeAddress, option: sb_option, packet: &[u8]) {
        let record = sb_record {
            kind: sb_record_kind::SB_RECORD_HANDOFF as u32,
            flow: flow(),
            option,
            node: node.to_wire(),
            ..Default::default()
        };
        let at = Moment {
            now: self.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_record(at, &record, packet);
    }

    /// Lets time pass up to the dispatcher's next deadline.
    pub fn pass(&mut self) -> Vec<ToNode> {
        self.now = self.dispatcher.deadline().expect("something is pending").max(self.now);
        let at = Moment {
            now: self.now,
            map: &|flow| self.map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_time(at);
        self.flush()
    }
}

/// Of a dispatcher that begins or reads its configuration now.
fn plan(config: &str, cluster_keys: &[u8], place: LocalMachine<'_>, now: Duration) -> Plan {
    let made: Vec<ClusterKey> = cluster_keys.iter().map(|byte| ClusterKey::from_bytes([*byte; 32])).collect();
    let sign = keys::handoff_key(made[0].as_bytes());
    let cluster = switchback_config::parse(config, Path::new("cluster.toml"), |_: &Path| Ok(made)).unwrap();
    let addresses: Vec<NodeAddress> = cluster.nodes.iter().map(|node| node.handoff_address()).collect();
    let ids = NodeIds::default().with(&addresses, 8).unwrap();
    let mut plan = Plan::new(&cluster, sign, ids.all().clone(), place, now);
    for node in plan.nodes.iter_mut().flatten() {
        node.source = Some("192.0.2.10".parse().unwrap());
        node.clock = Some(NodeClock::default());
    }
    plan
}

/// What the program does to the flow map for the dispatcher.
pub fn apply(
    changes: &[(sb_flow, Change)],
    map: &mut HashMap<sb_flow, Entry>,
    locked: &mut HashSet<sb_flow>,
    waiting: &mut HashSet<sb_flow>,
    over: &mut HashMap<sb_flow, (Seq, bool)>,
) {
    for (flow, change) in changes {
        let origin = map.get(flow).map(|entry| entry.origin);
        match *change {
            Change::Replace(entry) | Change::Lock(entry) if origin == Some(entry.origin) => {
                let contested = entry.contested | map[flow].contested;
                map.insert(*flow, Entry { contested, ..entry });
                locked.remove(flow);
                if matches!(change, Change::Lock(_)) {
                    locked.insert(*flow);
                }
                if entry.has_node() {
                    waiting.remove(flow);
                }
            }
            Change::Create(entry) => {
                let is_sought = |known: &Entry| known.mode == Mode::Sought;
                if map.get(flow).is_none_or(|known| is_sought(known) && known.origin == entry.origin) {
                    map.insert(*flow, entry);
                    locked.remove(flow);
                    waiting.remove(flow);
                }
            }
            Change::Remove { origin: of } | Change::Forget { origin: of } if origin == Some(of) => {
                map.remove(flow);
                waiting.remove(flow);
                over.insert(*flow, (of, matches!(change, Change::Forget { .. })));
            }
            Change::Abandon { origin: of } if origin == Some(of) && waiting.remove(flow) => {
                map.remove(flow);
            }
            Change::Ahead { origin: of } if origin == Some(of) => {
                map.entry(*flow).and_modify(|entry| entry.ahead = true);
            }
            _ => {}
        }
    }
}

/// A client packet: data at an offset from the origin, acknowledging so many response bytes.
pub fn data(offset: u32, acked: u32, bytes: &[u8]) -> Vec<u8> {
    let numbers = (ORIGIN + offset, SERVER + acked);
    segment(&flow(), true, numbers, flags::ACK | flags::PSH, Some((11, 22)), bytes)
}

/// A request head.
pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}
