//! Random pipelining, splitting, loss, duplication and reordering: every byte of every request must reach a node of
//! its pool, in order, and at no time may two nodes own the flow.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A node's kernel: what it has received of the flow, and what waits behind a gap.
#[derive(Default)]
struct Node {
    owns: bool,
    released_at: u32,
    next: u32,
    /// Likewise: the mark is inside a body.
    body: bool,
    /// The latest count of requests that a packet said, and which were HEAD.
    requests: u16,
    heads: u32,
    origin_of_ownership: u32,
    received: Vec<u8>,
    ahead: HashMap<u32, Vec<u8>>,
}

struct Net {
    world: World,
    random: Random,
    nodes: HashMap<IpAddr, Node>,
    /// The client's whole stream, and how much of it has been acknowledged.
    stream: Vec<u8>,
    acked: u32,
    seed: u64,
}

impl Net {
    fn offset(seq: u32) -> u32 {
        seq.wrapping_sub(ORIGIN)
    }

    /// What the switch says to the client can only be acknowledgments; one may be lost.
    fn hear(&mut self) {
        for packet in std::mem::take(&mut self.world.to_client) {
            let view = TcpView::parse(&packet).unwrap();
            assert_eq!((view.flags, view.is_empty()), (flags::ACK, true), "seed {}", self.seed);
            if !self.random.chance(5) {
                self.acked = self.acked.max(Net::offset(view.ack));
            }
        }
    }

    /// A handoff packet arrives at its node, perhaps; what the node says arrives at the switch, perhaps.
    fn deliver(&mut self, sent: Vec<ToNode>) {
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
            let Some((op, reason)) = self.at_node(&packet) else { continue };
            if op == SB_OP_OWNED {
                let mut option = packet.option;
                let node = &self.nodes[&packet.node];
                option.op = SB_OP_OWNED as u8;
                option.flags = if node.body { SB_FLAG_BODY as u8 } else { 0 };
                option.origin = ORIGIN.to_be();
                option.next = node.next.to_be();
                (option.requests, option.detail) = (node.requests.to_be(), node.heads.to_be());
                queue.extend(self.world.handoff(packet.node, option, &packet.packet));
                continue;
            }
            if self.random.chance(5) {
                continue;
            }
            if op == SB_OP_CONFIRMED {
                let mut option = packet.option;
                option.op = SB_OP_CONFIRMED as u8;
                option.next = ORIGIN.wrapping_add(self.nodes[&packet.node].end()).to_be();
                queue.extend(self.world.handoff(packet.node, option, &packet.packet));
                continue;
            }
            queue.extend(self.world.answer(&packet, op, reason));
        }
    }

    fn at_node(&mut self, packet: &ToNode) -> Option<(sb_op, sb_reason)> {
        let offset = Net::offset(packet.view().seq);
        let owners = self.nodes.values().filter(|node| node.owns).count();
        let seed = self.seed;
        let acked = self.acked;
        let node = self.nodes.get_mut(&packet.node).unwrap();
        let next = u32::from_be(packet.option.next);
        let forwarded = matches!(packet.op, SB_OP_FORWARD | SB_OP_CONFIRM);
        let body = u32::from(packet.option.flags) & SB_FLAG_BODY != 0;
        if node.owns && forwarded && Net::offset(next) > Net::offset(node.next) {
            (node.next, node.body) = (next, body);
        }
        let count = u16::from_be(packet.option.requests);
        if node.owns && (forwarded || packet.op == SB_OP_RELEASE) && count > node.requests {
            (node.requests, node.heads) = (count, u32::from_be(packet.option.detail));
        }
        match packet.op {
            SB_OP_PROBE => node.owns.then_some((SB_OP_OWNED, SB_REASON_NONE)),
            // A late copy from before the release.
            SB_OP_ADOPT if !node.owns && offset < node.released_at => None,
            SB_OP_ADOPT => {
                if !node.owns {
                    assert_eq!(owners, 0, "seed {seed}: a second owner");
                    let heads = u32::from_be(packet.option.detail);
                    *node = Node {
                        owns: true,
                        origin_of_ownership: offset,
                        next,
                        body,
                        requests: count,
                        heads,
                        ..Node::default()
                    };
                }
                node.take(offset, packet.data());
                self.acked = self.acked.max(self.nodes[&packet.node].end());
                Some((SB_OP_ADOPTED, SB_REASON_NONE))
            }
            SB_OP_CONFIRM
                if node.owns
                    && (packet.data().is_empty() || node.end() >= offset + packet.data().len() as u32) =>
            {
                Some((SB_OP_CONFIRMED, SB_REASON_NONE))
            }
            SB_OP_CONFIRM if packet.data().is_empty() => None,
            SB_OP_FORWARD | SB_OP_CONFIRM if node.owns => {
                node.take(offset, packet.data());
                let end = node.end();
                self.acked = self.acked.max(end);
                None
            }
            SB_OP_FORWARD | SB_OP_CONFIRM if packet.option.flags & SB_FLAG_REQUEST as u8 != 0 => {
                Some((SB_OP_REFUSED, SB_REASON_NO_SOCKET))
            }
            SB_OP_FORWARD | SB_OP_CONFIRM => None,
            SB_OP_RELEASE if !node.owns => Some((SB_OP_RELEASED, SB_REASON_NONE)),
            SB_OP_RELEASE if node.end() > offset => Some((SB_OP_BUSY, SB_REASON_DUPLICATE)),
            SB_OP_RELEASE if node.end() < offset || self.random.chance(30) => {
                Some((SB_OP_BUSY, SB_REASON_NONE))
            }
            SB_OP_RELEASE => {
                assert!(acked >= node.end(), "seed {seed}");
                // A count too high would have it wait for a response for ever, one too low would cut one off.
                let methods = methods_in(&node.received);
                let heads = methods.iter().rev().take(32).enumerate();
                let heads = heads.map(|(index, head)| u32::from(*head) << index).sum::<u32>();
                assert_eq!((usize::from(node.requests), node.heads), (methods.len(), heads), "seed {seed}");
                (node.owns, node.released_at) = (false, offset);
                self.check(packet.node);
                Some((SB_OP_RELEASED, SB_REASON_NONE))
            }
            _ => None,
        }
    }

    /// What a node got is the right part of the stream, and only requests of its pool.
    fn check(&self, address: IpAddr) {
        let node = &self.nodes[&address];
        let from = node.origin_of_ownership as usize;
        let expected = &self.stream[from..from + node.received.len()];
        let seed = self.seed;
        assert!(node.received == expected, "seed {seed}: wrong bytes at {address}");
        let wrong = if address == node_of_img() { " /web/" } else { " /img/" };
        let text = String::from_utf8_lossy(&node.received);
        assert!(!text.contains(wrong), "seed {seed}: {address} got {wrong}");
    }
}

/// Which of the requests are HEAD. The bodies of the test have no line that begins so.
fn methods_in(received: &[u8]) -> Vec<bool> {
    let text = String::from_utf8_lossy(received);
    let lines = text.split("\r\n").filter(|line| line.ends_with(" HTTP/1.1"));
    lines.map(|line| line.contains("HEAD /")).collect()
}

fn node_of_img() -> IpAddr {
    node(3)
}

impl Node {
    fn end(&self) -> u32 {
        self.origin_of_ownership + self.received.len() as u32
    }

    /// As TCP does: in order at once, out of order later, old data not at all.
    fn take(&mut self, offset: u32, data: &[u8]) {
        self.ahead.entry(offset).or_insert_with(|| data.to_vec());
        loop {
            let end = self.end();
            let next = self.ahead.iter().find(|(at, data)| **at <= end && **at + data.len() as u32 > end);
            let Some((&at, _)) = next else { break };
            let data = self.ahead.remove(&at).unwrap();
            self.received.extend_from_slice(&data[(end - at) as usize..]);
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let mut stream = Vec::new();
    for i in 0..2 + random.below(6) {
        let pool = ["web", "img"][random.below(2) as usize];
        match random.below(5) {
            0 => {
                let body = vec![b'x'; random.below(3000) as usize];
                let head =
                    format!("POST /{pool}/{i} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.extend_from_slice(head.as_bytes());
                stream.extend_from_slice(&body);
            }
            1 => {
                let head =
                    format!("POST /{pool}/{i} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
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
            2 => stream.extend_from_slice(format!("HEAD /{pool}/{i} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()),
            _ => stream.extend_from_slice(&get(&format!("/{pool}/{i}"))),
        }
    }
    let nodes = (1..=3).map(|last| (node(last), Node::default())).collect();
    let mut net = Net { world: World::new(), random, nodes, stream, acked: 0, seed };
    let len = net.stream.len() as u32;
    for round in 0.. {
        assert!(round < 5000, "seed {seed}: stuck at {} of {len}", net.acked);
        if net.acked == len && net.world.dispatcher.pending() == 0 {
            break;
        }
        // A flight of segments from the first unacknowledged byte on, cut anywhere, some lost.
        let mut segments = Vec::new();
        let mut at = net.acked;
        for _ in 0..net.random.below(8) + 1 {
            let size = (net.random.below(if round % 3 == 0 { 40 } else { 1400 }) as u32 + 1).min(len - at);
            if size == 0 {
                break;
            }
            segments.push((at, size));
            at += size;
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
            net.world.express = net.random.chance(50);
            net.world.lagging = net.random.chance(30);
            let bytes = net.stream[at as usize..(at + size) as usize].to_vec();
            let sent = net.world.client_packet(&data(at, 0, &bytes));
            net.deliver(sent);
        }
        let sent = net.world.drain();
        net.deliver(sent);
        let pause = if net.random.chance(10) { 250 } else { net.random.below(60) };
        net.world.now += Duration::from_millis(pause);
        while net.world.dispatcher.deadline().is_some_and(|deadline| deadline <= net.world.now) {
            let sent = net.world.pass();
            net.deliver(sent);
        }
    }
    for last in 1..=3 {
        net.check(node(last));
    }
    net.hear();
}

#[test]
fn every_byte_reaches_its_pool_in_order() {
    for seed in 0..3000 {
        run(seed);
    }
}
