//! Random pipelining, splitting, loss, duplication and reordering: every byte of every request must reach a node of
//! its pool, in order, at no time may two nodes own the flow, and no request begins twice. Whatever a client sends in
//! its place, no server gets a request that the switch has not read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use switchback_wire::generation::Generation;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::model::*;
use crate::dispatch::pending::Pending;
use sb_op::*;
use sb_reason::*;

/// Nodes compare the generations of adoptions.
const COMPARES: bool = true;

/// The rounds of which one is the last with faults, where there are several switches. After that the client's packets take
/// one route, and arrive or are sent again.
const CALM: std::ops::Range<u64> = 0..60;
/// Rounds in which all arrives then. A round takes 50 ms.
const PATIENCE: u64 = 150;

/// SplitMix64.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A machine's kernel: what it has received of the flow, and what waits behind a gap. It may have several nodes, of which
/// one has the flow.
#[derive(Default)]
struct Machine {
    owns: bool,
    /// Of the node that owns the flow, or has owned it last.
    number: u16,
    /// The connection has come to its end here.
    over: bool,
    released_at: i32,
    /// Likewise: the mark, and what comes there.
    next: Seq,
    framing: u16,
    left: u32,
    /// What comes before this has been read.
    read: i32,
    read_at: Duration,
    /// Up to here without a gap data has come.
    passed: i32,
    /// The latest count of requests that a packet said, and which were HEAD.
    requests: u16,
    heads: u32,
    /// What the latest request's packet said of sessions.
    session: sb_session,
    /// The newest adoption that it has accepted, released the flow for, or promised to accept none before.
    newest: Generation,
    origin_of_ownership: i32,
    /// By so many bytes the head that it was given there is longer than the client's.
    grown: i32,
    received: Vec<u8>,
    ahead: HashMap<i32, Vec<u8>>,
    kept: Option<Kept>,
}

/// What becomes of a packet's data at a node that has the flow.
#[derive(PartialEq)]
enum Intake {
    Taken,
    Unread,
    /// The kernel has long dropped what was read of it, so the connection ends.
    NotTaken,
}

/// As `NOT_TAKEN_US`.
const NOT_TAKEN: Duration = Duration::from_secs(2);

/// What a node keeps of the client's data for switches.
struct Kept {
    state: sb_flow_state,
    end: Seq,
    packets: HashMap<Seq, Vec<u8>>,
}

struct Net {
    worlds: Vec<World>,
    random: Random,
    machines: HashMap<IpAddr, Machine>,
    /// The nodes `n1`, `n2` and `n3`.
    nodes: [NodeAddress; 3],
    /// The client's whole stream, and how much of it has been acknowledged.
    stream: Vec<u8>,
    /// The same with each request for the other pool, if the client sends some of that instead, and has nodes' kernels drop
    /// some of what it sends.
    other: Option<Vec<u8>>,
    acked: u32,
    /// Where the server speaks another protocol from: behind a request that asks for one.
    switches_at: Option<u32>,
    /// The switch has given the connection up.
    over: bool,
    /// Until then nothing that nodes answer arrives, though their reports do.
    deaf_until: Duration,
    /// Nodes' descriptions of the flow for lists, which arrive later.
    listed: Vec<(NodeAddress, sb_listed)>,
    /// What routes make of requests.
    changes: Changes,
    /// A switch has died of which a node may have only a part of a request: the connection may come to an end.
    may_end: bool,
    /// The switch that gets all of the client's packets. None: any.
    route: Option<usize>,
    seed: u64,
}

impl Net {
    /// Less than 0 in a new head that is longer than the first request's.
    fn offset(seq: Seq) -> i32 {
        seq.offset_from(ORIGIN)
    }

    fn note_acknowledged(&mut self, end: i32) {
        self.acked = self.acked.max(end.max(0) as u32);
    }

    /// What the switches say to the client can only be acknowledgments; one may be lost. Where entries are lost, a RST.
    fn hear(&mut self) {
        let loses = self.may_end || self.worlds.iter().any(|world| world.loses);
        let heard = self.worlds.iter_mut().flat_map(|world| std::mem::take(&mut world.to_client));
        for packet in heard.collect::<Vec<_>>() {
            let view = TcpView::parse(&packet).unwrap();
            let ends = loses && view.flags == flags::RST;
            if ends || self.other.is_some() && view.flags != flags::ACK {
                self.over = true;
                continue;
            }
            let said = String::from_utf8_lossy(&packet[view.data..view.end]).into_owned();
            assert_eq!((view.flags, &said[..]), (flags::ACK, ""), "seed {}", self.seed);
            if !self.random.chance(5) {
                self.note_acknowledged(Net::offset(view.ack));
            }
        }
    }

    /// A handoff packet arrives at its node, perhaps; what the node says arrives at the switch, perhaps.
    fn deliver(&mut self, switch: usize, sent: Vec<ToNode>) {
        let mut queue = sent;
        while !queue.is_empty() {
            let index =
                if self.random.chance(10) { self.random.below(queue.len() as u64) as usize } else { 0 };
            let packet = queue.remove(index);
            if self.random.chance(5) {
                continue;
            }
            if self.random.chance(3) {
                queue.push(packet.clone());
            }
            if matches!(packet.op, SB_OP_KEEP | SB_OP_RESTORE) {
                let said = self.machines.get_mut(&packet.node.machine).unwrap().keep_or_restore(&packet);
                if let Some((option, inner)) = said.filter(|_| !self.random.chance(5)) {
                    queue.extend(self.worlds[switch].handoff(packet.node, option, &inner));
                }
                continue;
            }
            let Some((op, reason)) = self.at_node(&packet) else { continue };
            let keeps = packet.op == SB_OP_PROBE && self.machines[&packet.node.machine].kept.is_some();
            let flags = if keeps { SB_PROBE_KEPT as u8 } else { 0 };
            if self.worlds[switch].now < self.deaf_until {
                continue;
            }
            if matches!(op, SB_OP_OWNED | SB_OP_UNREAD) {
                let node = self.machines.get_mut(&packet.node.machine).unwrap();
                let mut framing = node.framing;
                let undecided = node.framing == SB_MARK_UPGRADING;
                if undecided && node.end() >= Net::offset(node.next) && self.random.chance(60) {
                    let agrees = self.switches_at == Some(Net::offset(node.next) as u32);
                    let rest = node.framing & !SB_MARK_UPGRADING;
                    let said = if agrees { SB_MARK_TUNNEL } else { rest };
                    node.framing = said;
                    framing = said;
                }
                let state = sb_flow_state { framing: framing.to_be(), ..node.state() };
                let option = described(&packet.option, op, state);
                let option = sb_option { flags, ..option };
                // The node that has the flow answers, whichever was asked.
                let owner = NodeAddress { number: node.number, ..packet.node };
                queue.extend(self.worlds[switch].handoff(owner, option, &packet.packet));
                continue;
            }
            if self.random.chance(5) {
                continue;
            }
            if op == SB_OP_CONFIRMED {
                let arrived = (ORIGIN + self.machines[&packet.node.machine].end() as u32).to_be();
                let option = answered(&packet.option, op, SB_REASON_NONE)
                    .with(|said: &mut sb_confirmed| said.arrived = arrived);
                queue.extend(self.worlds[switch].handoff(packet.node, option, &packet.packet));
                continue;
            }
            let node = &self.machines[&packet.node.machine];
            let option = answered(&packet.option, op, reason).with(|flow: &mut sb_flow_state| match op {
                SB_OP_UNOWNED => {
                    flow.next = (ORIGIN + node.released_at as u32).to_be();
                    if reason != SB_REASON_NO_SOCKET {
                        flow.generation = node.newest.to_be();
                    }
                    if reason == SB_REASON_RELEASED {
                        (flow.origin, flow.requests) = (ORIGIN.to_be(), node.requests.to_be());
                        (flow.heads, flow.session) = (node.heads.to_be(), node.session);
                    }
                }
                SB_OP_RELEASED if flow.generation == node.newest.to_be() => {}
                SB_OP_RELEASED if node.released_at > 0 => {
                    let next = (ORIGIN + node.released_at as u32).to_be();
                    (flow.next, flow.framing, flow.left, flow.generation) = (next, 0, 0, 0);
                }
                SB_OP_REFUSED if packet.op == SB_OP_ADOPT => {}
                _ => flow.generation = 0,
            });
            let option = sb_option { flags, ..option };
            queue.extend(self.worlds[switch].handoff(packet.node, option, &packet.packet));
        }
    }

    /// A node that owns the flow describes it, and a switch gets what a node described at some time.
    fn list(&mut self) {
        let owner = self.machines.iter().find(|(_, node)| node.owns);
        let listed = owner.map(|(&machine, node)| {
            let listed = sb_listed { flow: flow(), state: node.state() };
            (NodeAddress { machine, number: node.number }, listed)
        });
        self.listed.extend(listed);
        if self.listed.is_empty() {
            return;
        }
        let (node, listed) = self.listed[self.random.below(self.listed.len() as u64) as usize];
        let switch = self.random.below(self.worlds.len() as u64) as usize;
        let sent = self.worlds[switch].list(node, listed);
        self.deliver(switch, sent);
    }

    /// The flow's node drains, as one of the switches sees it, or several.
    fn take_back(&mut self) {
        for switch in 0..self.worlds.len() {
            if self.random.chance(60) {
                let sent = self.worlds[switch].take_back();
                self.deliver(switch, sent);
            }
        }
    }

    /// All nodes live, and say so.
    fn report(&mut self) {
        for switch in 0..self.worlds.len() {
            for (node, pool) in std::iter::zip(self.nodes, ["web", "web", "img"]) {
                let sent = self.worlds[switch].report(node, pool, SB_REASON_NONE, (0, 511));
                self.deliver(switch, sent);
            }
        }
    }

    fn at_node(&mut self, packet: &ToNode) -> Option<(sb_op, sb_reason)> {
        let offset = Net::offset(packet.view().seq);
        let end = offset + packet.data().len() as i32;
        let owners = self.machines.values().filter(|node| node.owns).count();
        let begun = self.machines.values().map(Machine::end).max().unwrap();
        let (seed, acked, now) = (self.seed, self.acked, self.worlds[0].now);
        let node = self.machines.get_mut(&packet.node.machine).unwrap();
        let next = Seq::from_be(packet.option.flow_state().next);
        let count = u16::from_be(packet.option.flow_state().requests);
        // What is late is from before the node gave the flow up and adopted it again.
        let is_late = offset < node.origin_of_ownership
            || packet.data().is_empty() && offset == node.origin_of_ownership;
        let generation = Generation::from_be(packet.option.flow_state().generation);
        let begins = packet.op != SB_OP_ADOPT && packet.option.flags & SB_HANDOVER_REQUEST as u8 != 0;
        let line = packet.data().split(|byte| *byte == b'\r').next().unwrap_or_default();
        let is_changed = begins && self.changes.concern(&String::from_utf8_lossy(line));
        assert!(!is_changed, "seed {seed}: a request that a route changes comes without an adoption");
        let is_outdated = packet.op != SB_OP_PROBE && node.owns && node.newest.is_newer(generation);
        match packet.op {
            _ if is_outdated && COMPARES => Some((SB_OP_OWNED, SB_REASON_NONE)),
            SB_OP_PROBE if node.owns => Some((SB_OP_OWNED, SB_REASON_NONE)),
            SB_OP_PROBE => {
                let is_known = packet.option.flow_state().origin == ORIGIN.to_be();
                let next = Generation::from_be(packet.option.said::<sb_question>().next_generation);
                if next.is_newer(node.newest) {
                    node.newest = next;
                }
                let was_served = is_known && (node.over && offset < node.end() || offset < node.released_at);
                let reason = match was_served {
                    true => SB_REASON_SERVED,
                    false if node.released_at > 0 && !node.over => SB_REASON_RELEASED,
                    false => SB_REASON_NONE,
                };
                Some((SB_OP_UNOWNED, reason))
            }
            SB_OP_ADOPT if node.over && offset < node.end() => Some((SB_OP_ADOPTED, SB_REASON_NONE)),
            SB_OP_ADOPT if !node.owns && node.is_barred(generation) && COMPARES => {
                Some((SB_OP_REFUSED, SB_REASON_OUTDATED))
            }
            // A late copy from before the release.
            SB_OP_ADOPT if !node.owns && offset < node.released_at => None,
            SB_OP_ADOPT => {
                if node.owns {
                    assert_eq!(
                        node.number, packet.node.number,
                        "seed {seed}: another node of its machine has it"
                    );
                } else {
                    assert_eq!(owners, 0, "seed {seed}: a second owner");
                    assert!(offset >= begun, "seed {seed}: what was begun before {begun} begins at {offset}");
                    let (newest, kept) = (generation, node.kept.take());
                    let number = packet.node.number;
                    *node = Machine {
                        owns: true,
                        number,
                        newest,
                        origin_of_ownership: offset,
                        grown: packet.grown(),
                        kept,
                        ..Machine::default()
                    };
                    node.set_mark(packet, now);
                    node.passed = end - node.grown;
                }
                node.take(offset - packet.grown(), packet.data());
                let arrived = node.end();
                self.note_acknowledged(arrived);
                Some((SB_OP_ADOPTED, SB_REASON_NONE))
            }
            SB_OP_CONFIRM if node.owns && (packet.data().is_empty() || node.end() >= end) => {
                Some((SB_OP_CONFIRMED, SB_REASON_NONE))
            }
            SB_OP_CONFIRM if packet.data().is_empty() => None,
            SB_OP_FORWARD | SB_OP_CONFIRM if node.owns => {
                let spoiled = self.other.is_some() && self.random.chance(10);
                let intake = node.take_in(packet, spoiled, now);
                // A node knows one pool for each adoption.
                let (told, known) = (packet.option.flow_state().session.pool, node.session.pool);
                assert!(
                    intake == Intake::Unread || is_late || count != node.requests || told == known,
                    "seed {seed}: {told:?}"
                );
                let arrived = node.end();
                self.note_acknowledged(arrived);
                if intake == Intake::NotTaken {
                    let may_be = self.worlds[0].loses || self.other.is_some() || self.may_end;
                    assert!(may_be, "seed {seed}: not taken");
                    self.over = true;
                }
                (intake == Intake::Unread).then_some((SB_OP_UNREAD, SB_REASON_NONE))
            }
            SB_OP_FORWARD | SB_OP_CONFIRM if packet.option.flags & SB_HANDOVER_REQUEST as u8 != 0 => {
                Some((SB_OP_REFUSED, SB_REASON_NO_SOCKET))
            }
            SB_OP_FORWARD | SB_OP_CONFIRM
                if COMPARES && node.released_at > 0 && node.newest.is_newer(generation) =>
            {
                Some((SB_OP_UNOWNED, SB_REASON_NONE))
            }
            SB_OP_FORWARD | SB_OP_CONFIRM if !packet.data().is_empty() && generation.is_some() => {
                Some((SB_OP_UNOWNED, SB_REASON_NO_SOCKET))
            }
            SB_OP_FORWARD | SB_OP_CONFIRM => None,
            SB_OP_RELEASE if !node.owns => Some((SB_OP_RELEASED, SB_REASON_NONE)),
            SB_OP_RELEASE if node.end() > offset || Net::offset(next) < Net::offset(node.next) => {
                Some((SB_OP_BUSY, SB_REASON_DUPLICATE))
            }
            SB_OP_RELEASE if next != node.next => Some((SB_OP_UNREAD, SB_REASON_NONE)),
            SB_OP_RELEASE if node.end() < offset || self.random.chance(30) => {
                Some((SB_OP_BUSY, SB_REASON_NONE))
            }
            SB_OP_RELEASE => {
                assert!(acked as i32 >= node.end(), "seed {seed}");
                // A count too high would have it wait for a response for ever, one too low would cut one off.
                let methods = methods_in(&node.received);
                let heads = methods.iter().rev().take(32).enumerate();
                let heads = heads.map(|(index, head)| u32::from(*head) << index).sum::<u32>();
                assert_eq!((usize::from(node.requests), node.heads), (methods.len(), heads), "seed {seed}");
                (node.owns, node.released_at) = (false, offset);
                node.newest = Generation::from_be(packet.option.said::<sb_question>().next_generation);
                self.check(packet.node.machine);
                Some((SB_OP_RELEASED, SB_REASON_NONE))
            }
            _ => None,
        }
    }

    /// The client sends so many bytes from there.
    fn send(&mut self, at: u32, size: u32) {
        let other = self.other.as_ref().filter(|_| self.random.chance(30));
        let bytes = other.unwrap_or(&self.stream)[at as usize..(at + size) as usize].to_vec();
        let any = self.random.below(self.worlds.len() as u64) as usize;
        let switch = self.route.unwrap_or(any);
        let sent = self.worlds[switch].client_packet(&data(at, 0, &bytes));
        self.deliver(switch, sent);
    }

    fn drain(&mut self) {
        for switch in 0..self.worlds.len() {
            let sent = self.worlds[switch].drain();
            self.deliver(switch, sent);
        }
    }

    fn pause(&mut self) {
        let is_late = self.random.chance(10);
        if !is_late {
            self.drain();
        }
        let pause = if self.random.chance(10) { 250 } else { self.random.below(60) };
        let now = self.worlds[0].now + Duration::from_millis(pause);
        self.worlds.iter_mut().for_each(|world| world.now = now);
        self.drain();
        self.report();
        if self.route.is_none() && self.random.chance(2) {
            self.deaf_until = now + Duration::from_millis(self.random.below(2000));
        }
        for switch in 0..self.worlds.len() {
            while self.worlds[switch].dispatcher.deadline().is_some_and(|deadline| deadline <= now) {
                let sent = self.worlds[switch].pass();
                self.deliver(switch, sent);
            }
        }
    }

    fn pending(&self) -> usize {
        self.worlds.iter().map(|world| world.dispatcher.pending()).sum()
    }

    /// The connection ends, and copies of its first packet come late, perhaps after a restart. They begin nothing that
    /// has begun.
    fn end(&mut self, lost: bool, config: &str) {
        for node in self.machines.values_mut().filter(|node| node.owns) {
            (node.owns, node.over, node.kept) = (false, true, None);
        }
        for world in &mut self.worlds {
            world.lagging = false;
            world.closed();
            let restarts = self.random.chance(50);
            if restarts {
                world.restart(config, self.random.chance(50));
            }
            world.cookie = restarts || !lost;
        }
        for _ in 0..3 + self.random.below(20) {
            self.send(0, 1400.min(self.stream.len() as u32));
            self.pause();
        }
    }

    /// What a node got is the right part of the stream, and only requests of its pool.
    fn check(&self, machine: IpAddr) {
        let node = &self.machines[&machine];
        let address = NodeAddress { machine, number: node.number };
        let from = node.origin_of_ownership as usize;
        let expected = self.changes.made_of(&self.stream[from..]);
        let seed = self.seed;
        let is_as_expected = self.other.is_some() || expected.starts_with(&node.received);
        assert!(is_as_expected, "seed {seed}: wrong bytes at {address}");
        let wrong = if address == self.nodes[2] { " /web/" } else { " /img/" };
        let begins = node.origin_of_ownership - node.grown;
        let read = self.switches_at.map_or(node.received.len(), |at| (at as i32 - begins).max(0) as usize);
        let text = String::from_utf8_lossy(&node.received[..read.min(node.received.len())]);
        assert!(!text.contains(wrong), "seed {seed}: {address} got {wrong}");
        for head in text.split_inclusive("\r\n\r\n").filter(|head| head.ends_with("\r\n\r\n")) {
            assert!(self.changes.have_made(head), "seed {seed}: {address} got {head}");
        }
        for last in (1..=3).filter(|last| self.nodes[usize::from(*last) - 1] != address) {
            let pool = if last == 3 { "img" } else { "web" };
            let cookie = format!("; {}; ", cookie_of(pool, last));
            assert!(!text.contains(&cookie), "seed {seed}: {address} got a session of n{last}");
        }
    }
}

fn with_other_pools(stream: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(stream).into_owned();
    text.replace(" /web/", " /---/").replace(" /img/", " /web/").replace(" /---/", " /img/").into_bytes()
}

/// Which of the requests are HEAD. The bodies of the test have no line that begins so.
fn methods_in(received: &[u8]) -> Vec<bool> {
    let text = String::from_utf8_lossy(received);
    let lines = text.split("\r\n").filter(|line| line.ends_with(" HTTP/1.1"));
    lines.map(|line| line.contains("HEAD /")).collect()
}

/// The configuration with the node of the pool `img` on the machine of `n1`.
fn with_shared_machine(config: &str) -> String {
    config.replace("\"192.0.2.23\"", "\"192.0.2.21\"\nserver = \"127.0.0.1:8080\"")
}

/// The usual pools with sessions, and one of all nodes without.
fn with_sessions() -> String {
    let rewrite = "[pool.persistence]\nmode = \"rewrite\"\ncookie = \"PHPSESSID\"\n";
    let insert = "[pool.persistence]\nmode = \"insert\"\ncookie = \"lb\"\n";
    let all = "[[pool]]\nname = \"all\"\nnodes = [\"n1\", \"n2\", \"n3\"]\npolicy = \"round-robin\"\n";
    let route = "[[service.route]]\npath = \"/all/\"\npool = \"all\"\n";
    let parts: Vec<&str> = CONFIG.split_inclusive("policy = \"round-robin\"\n").collect();
    let [web, img, rest] = parts[..] else { panic!("two pools") };
    format!("{web}{rewrite}{img}{insert}{all}{rest}{route}")
}

/// Of a session with the node, as nodes set it.
fn cookie_of(pool: &str, last: u8) -> String {
    let key = keys::session_key(&[7; 32]);
    let code = session::pool_codes(&key, &["web", "img"])[usize::from(pool == "img")];
    let names: &[&str] = if pool == "img" { &["n3"] } else { &["n1", "n2"] };
    let place = names.iter().position(|name| *name == format!("n{last}")).unwrap();
    let node = session::node_codes(&key, pool, names)[place];
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match pool {
        "web" => format!("{}D=v", text(&session::rewritten(code, node))),
        _ => format!("lb={}", text(&session::inserted_value(&key, pool, node))),
    }
}

impl Machine {
    /// It accepts newer adoptions only.
    fn is_barred(&self, generation: Generation) -> bool {
        !generation.is_newer(self.newest)
    }

    fn end(&self) -> i32 {
        self.origin_of_ownership - self.grown + self.received.len() as i32
    }

    /// What it says of the flow, without the handshake.
    fn state(&self) -> sb_flow_state {
        sb_flow_state {
            origin: ORIGIN.to_be(),
            next: self.next.to_be(),
            left: self.left.to_be(),
            heads: self.heads.to_be(),
            requests: self.requests.to_be(),
            framing: self.framing.to_be(),
            session: self.session,
            generation: self.newest.to_be(),
            ..Default::default()
        }
    }

    /// `bpf/kept.h` of the node.
    fn keep_or_restore(&mut self, asked: &ToNode) -> Option<(sb_option, Vec<u8>)> {
        let (state, seq) = (asked.option.flow_state(), asked.view().seq);
        if asked.op == SB_OP_KEEP {
            let end = asked.view().end_seq();
            let known = self.kept.take().filter(|kept| kept.state.next == state.next);
            let mut kept = known.unwrap_or(Kept { state, end, packets: HashMap::new() });
            (kept.state, kept.end) = (state, kept.end.later(end));
            let known = kept.packets.entry(seq).or_default();
            if known.len() < asked.packet.len() {
                *known = asked.packet.clone();
            }
            self.kept = Some(kept);
            let option = answered(&asked.option, SB_OP_KEPT, SB_REASON_NONE);
            return Some((
                option.with(|said: &mut sb_kept| (said.flow.generation, said.end) = (0, end.to_be())),
                asked.packet.clone(),
            ));
        }
        let kept = self.kept.as_ref()?;
        let from = if state.origin == 0 { Seq::from_be(kept.state.next) } else { seq };
        let packet = kept.packets.get(&from)?.clone();
        let option = answered(&asked.option, SB_OP_RESTORED, SB_REASON_NONE);
        let said = sb_kept { flow: kept.state, end: kept.end.to_be() };
        Some((option.saying(&said), packet))
    }

    /// The mark that the packet says, and what has been read before it.
    fn set_mark(&mut self, packet: &ToNode, now: Duration) {
        self.read_at = now;
        let option = &packet.option;
        let sb_handover { flow: said, boundary, .. } = option.said();
        let (view, boundary) = (packet.view(), u16::from_be(boundary));
        let begins = packet.op == SB_OP_ADOPT || option.flags & SB_HANDOVER_REQUEST as u8 != 0;
        let read = if begins { view.seq + u32::from(boundary) } else { view.end_seq() };
        self.read = Net::offset(read);
        (self.next, self.framing) = (Seq::from_be(said.next), u16::from_be(said.framing));
        self.left = u32::from_be(said.left);
        self.requests = u16::from_be(said.requests);
        self.heads =
            if packet.grown() == 0 { u32::from_be(said.heads) } else { u32::from_be(said.heads) & 0xffff };
        self.session = said.session;
    }

    /// What the server gets of a packet is what the switch has read (docs/decisions/0026): `bpf/intake.h` of the node. The
    /// kernel drops what is `spoiled`.
    fn take_in(&mut self, packet: &ToNode, spoiled: bool, now: Duration) -> Intake {
        let (option, view) = (&packet.option, packet.view());
        let (seq, end) = (Net::offset(view.seq), Net::offset(view.end_seq()));
        let flags = u32::from(option.flags) & (SB_HANDOVER_REQUEST | SB_HANDOVER_READ);
        if self.end() >= end || self.framing & SB_MARK_TUNNEL != 0 {
            self.take(seq, packet.data());
            return Intake::Taken;
        }
        let from = match flags {
            0 => end,
            SB_HANDOVER_READ => seq + i32::from(u16::from_be(option.said::<sb_handover>().boundary)),
            _ => seq,
        };
        let first = seq.max(self.end());
        self.passed = self.passed.max(self.end());
        let mark = Net::offset(self.next);
        let said = option.flow_state();
        let said = (Seq::from_be(said.next), u16::from_be(said.framing), u32::from_be(said.left));
        let known = said == (self.next, self.framing, self.left);
        let read = seq + i32::from(u16::from_be(option.said::<sb_handover>().boundary));
        let is_read_otherwise = flags == SB_HANDOVER_REQUEST && known && read != self.read;
        let from = if first < self.read && is_read_otherwise { end } else { from };
        if first < from && first < self.read {
            return if now < self.read_at + NOT_TAKEN { Intake::Taken } else { Intake::NotTaken };
        }
        if first < from && mark < from
            || flags != 0 && self.passed < seq
            || flags != 0 && !known && from != mark
        {
            return Intake::Unread;
        }
        if flags != 0 && !known {
            self.set_mark(packet, now);
        }
        if seq <= self.passed {
            self.passed = self.passed.max(end);
        }
        if !spoiled {
            self.take(seq, packet.data());
        }
        Intake::Taken
    }

    /// As TCP does: in order at once, out of order later, old data not at all.
    fn take(&mut self, offset: i32, data: &[u8]) {
        let known = self.ahead.entry(offset).or_default();
        if known.len() < data.len() {
            known.extend_from_slice(&data[known.len()..]);
        }
        loop {
            let end = self.end();
            let next = self.ahead.iter().find(|(at, data)| **at <= end && **at + data.len() as i32 > end);
            let Some((&at, _)) = next else { break };
            let data = self.ahead.remove(&at).unwrap();
            self.received.extend_from_slice(&data[(end - at) as usize..]);
        }
    }
}

/// What routes make of requests to `web` and `img`.
#[derive(Clone, Copy, PartialEq)]
enum Changes {
    None,
    /// They add a field with so many bytes.
    Add(usize),
    /// They remove [`OLD`].
    Remove,
}

const OLD: &str = "X-Old: 1\r\n";

impl Changes {
    fn some(random: &mut Random) -> Changes {
        match random.below(10) {
            0 => Changes::Add(1),
            1 => Changes::Add(3000),
            2 => Changes::Remove,
            _ => Changes::None,
        }
    }

    /// What is added to a head.
    fn added(self) -> String {
        match self {
            Changes::Add(len) => format!("X-New: {}\r\n", "n".repeat(len)),
            _ => String::new(),
        }
    }

    fn written_into(self, config: &str) -> String {
        let lines = match self {
            Changes::None => return config.to_owned(),
            Changes::Add(len) => {
                format!("request_header.set = {{ name = \"X-New\", value = \"{}\" }}\n", "n".repeat(len))
            }
            Changes::Remove => "request_header.remove = \"X-Old\"\n".to_owned(),
        };
        let change = |text: String, path: &str| text.replacen(path, &format!("{path}{lines}"), 1);
        change(change(config.to_owned(), "path = \"/img/\"\n"), "path = \"/web/\"\n")
    }

    fn concern(self, head: &str) -> bool {
        self != Changes::None && (head.contains(" /web/") || head.contains(" /img/"))
    }

    /// What a server gets of a stream that begins with a request, which comes with an adoption.
    fn made_of(self, stream: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(stream);
        let len = text.find("\r\n\r\n").map_or(0, |at| at + 2);
        match self.concern(&text[..len]) {
            true => {
                let head = text[..len].replace(OLD, "") + &self.added();
                [head.as_bytes(), &stream[len..]].concat()
            }
            false => stream.to_vec(),
        }
    }

    /// Whether a server may get what ends with this head.
    fn have_made(self, head: &str) -> bool {
        let is_changed = head.contains(&self.added()) && !head.contains(OLD);
        is_changed || !self.concern(head)
    }
}

/// Asks for another protocol, to which the server may agree; what follows looks like a request in any case.
fn upgrade(pool: &str, cookie: &str, body: bool) -> String {
    let body = if body { "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n" } else { "\r\n" };
    format!("GET /{pool}/u HTTP/1.1\r\nHost: a\r\n{cookie}Connection: upgrade\r\nUpgrade: x\r\n{body}")
}

/// What goes wrong besides packets.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    /// The flow's entry is lost now and then, as by a SYN of the client's own, and the L7 thread begins anew.
    Losses,
    /// The client sends other copies of what it has sent.
    Lies,
    /// There are so many switches, any of which gets each packet, and which forget everything now and then.
    Switches(u8),
}

/// What has become of a stream.
struct Arrival {
    /// All of it has arrived, or may be lost.
    whole: bool,
    /// A program has given its first request to a node.
    placed: bool,
}

fn run(seed: u64, trouble: Trouble) -> Arrival {
    let loses = trouble == Trouble::Losses;
    let mut random = Random(seed);
    let mut stream = Vec::new();
    let mut switches_at = None;
    let changes = Changes::some(&mut random);
    let sessions = trouble != Trouble::Lies && random.chance(50);
    let mut named = 0;
    let mut ends = Vec::new();
    for i in 0..2 + random.below(6) {
        ends.push(stream.len() as u32);
        let pool = ["web", "img", "all"][random.below(if sessions { 3 } else { 2 }) as usize];
        let mut cookie = if changes == Changes::Remove { OLD.to_owned() } else { String::new() };
        if sessions && pool != "all" && random.chance(60) {
            let last = if pool == "img" { 3 } else { random.below(2) as u8 + 1 };
            cookie += &format!("Cookie: a=b; {}; c=d\r\n", cookie_of(pool, last));
            named += 1;
        }
        match random.below(7) {
            5 => {
                let close = ["close", "keep-alive, close", "keep-alivex"][random.below(3) as usize];
                let head =
                    format!("GET /{pool}/{i} HTTP/1.1\r\nHost: a\r\n{cookie}Connection: {close}\r\n\r\n");
                stream.extend_from_slice(head.as_bytes());
            }
            6 => {
                stream.extend_from_slice(upgrade(pool, &cookie, random.chance(30)).as_bytes());
                if random.chance(30) {
                    switches_at = Some(stream.len() as u32);
                    stream.extend_from_slice(b"GET /img/x HTTP/1.1\r\n\r\nGET /web/x HTTP/1.1\r\n\r\n\x00");
                    break;
                }
            }
            0 => {
                let body = vec![b'x'; random.below(3000) as usize];
                let head = format!(
                    "POST /{pool}/{i} HTTP/1.1\r\nHost: a\r\n{cookie}Content-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.extend_from_slice(head.as_bytes());
                stream.extend_from_slice(&body);
            }
            1 => {
                let head = format!(
                    "POST /{pool}/{i} HTTP/1.1\r\nHost: a\r\n{cookie}Transfer-Encoding: chunked\r\n\r\n"
                );
                stream.extend_from_slice(head.as_bytes());
                for _ in 0..random.below(5) {
                    let limit = if random.chance(50) { 20 } else { 4000 };
                    let size = random.below(limit) as usize + 1;
                    stream.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                    stream.extend(std::iter::repeat_n(b'y', size));
                    stream.extend_from_slice(b"\r\n");
                }
                let trailer = if random.chance(30) { "Digest: z\r\n" } else { "" };
                stream.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
            }
            kind => {
                let method = if kind == 2 { "HEAD" } else { "GET" };
                let head = format!("{method} /{pool}/{i} HTTP/1.1\r\nHost: a\r\n{cookie}\r\n");
                stream.extend_from_slice(head.as_bytes());
            }
        }
    }
    let config = if sessions { with_sessions() } else { CONFIG.to_owned() };
    let config = if seed.is_multiple_of(5) { with_rate_limit(&config) } else { config };
    let shares = random.chance(50);
    let config = if shares { with_shared_machine(&config) } else { config };
    let config = changes.written_into(&config);
    let number = node_address::numbers(&["n3"])[0];
    let third = if shares { NodeAddress { number, ..node(1) } } else { node(3) };
    let nodes = [node(1), node(2), third];
    let worlds = match trouble {
        Trouble::Switches(count) => (0..count).map(|number| World::of_several(&config, number)).collect(),
        _ => vec![World::of(&config)],
    };
    let machines = nodes.iter().map(|node| (node.machine, Machine::default())).collect();
    let mut net = Net {
        worlds,
        random,
        machines,
        nodes,
        other: (trouble == Trouble::Lies).then(|| with_other_pools(&stream)),
        stream,
        acked: 0,
        switches_at,
        over: false,
        deaf_until: Duration::ZERO,
        listed: Vec::new(),
        changes,
        may_end: false,
        route: None,
        seed,
    };
    net.worlds.iter_mut().for_each(|world| world.loses = loses);
    let len = net.stream.len() as u32;
    ends.push(len);
    let pipelines = net.random.chance(50);
    // Each packet has one request, or part of one.
    let cuts = net.random.chance(70);
    // Entries are lost, and the switch has not been started again since: it takes a first packet for a new connection's.
    let mut lost = false;
    let calm = CALM.start + net.random.below(CALM.end - CALM.start);
    let dies_in_delivery = net.random.chance(30);
    for round in 0u64.. {
        assert!(round < 5000 || net.other.is_some(), "seed {seed}: stuck at {} of {len}", net.acked);
        if round == calm && net.worlds.len() > 1 {
            // The client goes on at once, so nothing else hides what this leaves behind.
            net.take_back();
            net.route = Some(net.random.below(net.worlds.len() as u64) as usize);
        }
        let is_calm = net.route.is_some();
        let is_late = is_calm && round >= calm + PATIENCE && net.acked < len;
        net.over |= is_late && net.may_end;
        assert!(!is_late || net.over, "seed {seed}: stuck at {} of {len}", net.acked);
        if net.over || net.other.is_some() && round == 100 || net.acked == len && net.pending() == 0 {
            break;
        }
        if loses && net.random.chance(10) {
            net.worlds[0].map.clear();
            net.worlds[0].waiting.clear();
            lost = true;
        }
        if loses && net.random.chance(5) && net.pending() == 0 {
            let in_order = net.random.chance(50);
            net.worlds[0].restart(&config, in_order);
            lost = false;
        }
        if let Trouble::Switches(count) = trouble
            && !is_calm
        {
            let switch = net.random.below(count.into()) as usize;
            let (mortality, may_end) = mortality(&net.worlds[switch], dies_in_delivery);
            if net.random.chance(mortality) {
                net.may_end |= may_end;
                net.worlds[switch].restart(&config, net.random.chance(50));
            }
        }
        if net.worlds.len() > 1 && !is_calm && net.random.chance(10) {
            net.list();
        }
        if net.worlds.len() > 1 && !is_calm && net.random.chance(10) {
            net.take_back();
        }
        let cookie = !lost || net.machines.values().all(|node| node.received.is_empty());
        net.worlds.iter_mut().for_each(|world| world.cookie = cookie);
        // A flight of segments from the first unacknowledged byte on, cut anywhere, some lost.
        let mut segments = Vec::new();
        let mut at = net.acked;
        let end = ends.iter().copied().find(|end| !pipelines && *end > at).unwrap_or(len);
        for _ in 0..net.random.below(8) + 1 {
            let any = net.random.below(if round % 3 == 0 { 40 } else { 1400 }) as u32 + 1;
            let next = ends.iter().copied().find(|end| *end > at).unwrap_or(len);
            let size = if cuts { any } else { (next - at).min(1400) }.min(end - at);
            if size == 0 {
                break;
            }
            segments.push((at, size));
            at += size;
        }
        if !is_calm && net.random.chance(10) {
            segments.push((0, 1400.min(len)));
        }
        if net.random.chance(20) && segments.len() > 1 {
            let last = segments.len() - 1;
            segments.swap(0, last);
        }
        for (at, size) in segments {
            if net.random.chance(5) {
                continue;
            }
            net.hear();
            for world in &mut net.worlds {
                world.express = net.random.chance(50);
                world.places = net.random.chance(80);
                world.lagging = net.random.chance(30);
                if !is_calm && net.random.chance(5) {
                    world.forged_syn();
                }
            }
            net.send(at, size);
        }
        net.pause();
    }
    for machine in net.machines.keys() {
        net.check(*machine);
    }
    net.hear();
    let whole = net.may_end || !net.over && net.acked == len;
    let arrival = Arrival { whole, placed: net.worlds.iter().any(|world| world.placed) };
    if net.other.is_some() {
        return arrival;
    }
    if loses {
        net.end(lost, &config);
        return arrival;
    }
    if net.worlds.len() > 1 {
        net.end(lost, &config);
        return arrival;
    }
    let stats = &net.worlds[0].dispatcher.stats;
    let counts = (stats.sessions_moved, stats.sessions_refused, stats.cookies_ignored);
    assert_eq!(counts, (0, 0, 0), "seed {seed}");
    let kept = stats.sessions_kept;
    assert!(kept >= named, "seed {seed}: {kept} of {named}");
    net.end(lost, &config);
    arrival
}

/// How often the switch dies, in percent, and whether the connection may come to an end with it. It dies most often when it
/// has acknowledged something, or a node has not answered whether it takes a request. While it sends a request in several
/// packets, of which the node may have the first only, it dies where `dies_in_delivery`.
fn mortality(world: &World, dies_in_delivery: bool) -> (u64, bool) {
    let Some(Pending { connection, state }) = world.dispatcher.pending.get(&flow()) else {
        return (5, false);
    };
    let asked = state.request().filter(|_| state.waits_for_node());
    match asked.map_or(0, |request| request.for_node().len()) {
        0 if connection.acknowledged.is_none() => (5, false),
        0 | 1 => (50, false),
        _ if dies_in_delivery => (50, true),
        _ => (0, false),
    }
}

/// Seeds of a test: so many for `make test`, thirty times as many for `make test-long`.
pub(super) fn seeds(count: u64) -> std::ops::Range<u64> {
    let is_long = std::env::var_os("SWITCHBACK_LONG").is_some_and(|value| value == "1");
    0..if is_long { 30 * count } else { count }
}

/// How many of the seeds have all bytes at their end.
fn whole(seeds: std::ops::Range<u64>, trouble: Trouble) -> u64 {
    let count = seeds.end - seeds.start;
    let arrivals: Vec<Arrival> = seeds.map(|seed| run(seed, trouble)).collect();
    let placed = arrivals.iter().filter(|arrival| arrival.placed).count() as u64;
    assert!(placed > count / 40, "{placed} of {count} first requests were given to nodes by programs");
    arrivals.iter().filter(|arrival| arrival.whole).count() as u64
}

#[test]
fn every_byte_reaches_its_pool_in_order() {
    let seeds = seeds(1000);
    assert_eq!(whole(seeds.clone(), Trouble::None), seeds.end);
}

#[test]
fn no_byte_reaches_a_pool_that_it_was_not_routed_to_whatever_is_lost() {
    let seeds = seeds(1000);
    let whole = whole(seeds.clone(), Trouble::Losses);
    assert!(whole > seeds.end * 3 / 4, "{whole} of {}", seeds.end);
}

#[test]
fn whichever_switch_gets_a_packet_one_node_has_the_flow() {
    for switches in 2..=4 {
        let seeds = seeds(400);
        let whole = whole(seeds.clone(), Trouble::Switches(switches));
        assert_eq!(whole, seeds.end, "{switches} switches");
    }
}

#[test]
fn no_copy_takes_the_place_of_what_was_read() {
    let seeds = seeds(1000);
    let whole = whole(seeds.clone(), Trouble::Lies);
    assert!(whole > seeds.end / 10, "{whole} of {}", seeds.end);
}
