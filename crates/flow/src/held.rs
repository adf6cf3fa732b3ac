//! Packets that wait in the switch, unacknowledged, as a stretch of the client's byte stream.

use switchback_wire::Seq;
use switchback_wire::packet::{TcpView, append, cut, flags};

/// Packets of less data than this are joined: a client that sends byte by byte would cost fifty times its data.
const JOINED: usize = 1024;

/// One packet of the client, from its IP header on.
#[derive(Clone, Debug)]
pub struct HeldPacket {
    /// The packet's bytes.
    pub bytes: Vec<u8>,
    /// Where its parts are.
    pub view: TcpView,
}

impl HeldPacket {
    /// None when the bytes are not whole TCP over IP.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Some(HeldPacket { bytes: bytes.to_vec(), view: TcpView::parse(bytes)? })
    }

    /// The client's data.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.view.data..self.view.end]
    }

    /// The window field, which is scaled.
    pub fn window(&self) -> u16 {
        let at = self.view.tcp + 14;
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The client sends nothing behind it.
    pub fn is_last(&self) -> bool {
        self.view.flags & flags::FIN != 0
    }

    /// Sequence number after the data.
    pub fn end(&self) -> Seq {
        self.view.end_seq()
    }

    /// Takes the other packet's data in, if it follows this one's and both are small; true if so.
    fn join(&mut self, other: &HeldPacket) -> bool {
        let joins = self.end() == other.view.seq
            && self.view.len() + other.view.len() <= JOINED
            && self.view.flags & flags::FIN == 0;
        if joins {
            append(&mut self.bytes, &mut self.view, &other.bytes, &other.view);
        }
        joins
    }

    /// The packet without the data before sequence number `from` and from `to` on; None if nothing is left.
    pub fn part(&self, from: Seq, to: Seq) -> Option<HeldPacket> {
        let len = self.view.len() as i32;
        let start = from.offset_from(self.view.seq).clamp(0, len);
        let end = to.offset_from(self.view.seq).clamp(0, len);
        if start >= end {
            return None;
        }
        if start == 0 && end == len {
            return Some(self.clone());
        }
        HeldPacket::new(&cut(&self.bytes, &self.view, start as usize..end as usize))
    }
}

/// Held packets in the order of their data, without overlap. Gaps are possible where packets were lost.
#[derive(Debug, Default)]
pub struct Held {
    packets: Vec<HeldPacket>,
    bytes: usize,
}

impl Held {
    /// Packets that are in order and do not overlap.
    pub fn of(packets: Vec<HeldPacket>) -> Self {
        let bytes = packets.iter().map(|packet| packet.bytes.len()).sum();
        Held { packets, bytes }
    }

    /// Memory that the packets take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// The first packet.
    pub fn first(&self) -> Option<&HeldPacket> {
        self.packets.first()
    }

    /// All packets, in order.
    pub fn as_slice(&self) -> &[HeldPacket] {
        &self.packets
    }

    /// The packet, if there is one and no other.
    pub fn only(&self) -> Option<&HeldPacket> {
        if let [packet] = &self.packets[..] { Some(packet) } else { None }
    }

    /// All packets, in order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldPacket> {
        self.packets.iter()
    }

    /// Forgets the last packet if it lies beyond sequence number `from`; false if it does not.
    pub fn forget_last(&mut self, from: Seq) -> bool {
        let Some(last) = self.packets.pop_if(|last| from.before(last.view.seq)) else { return false };
        self.bytes -= last.bytes.len();
        true
    }

    /// Adds what the packet has at or after sequence number `from` and is not held yet.
    pub fn insert(&mut self, packet: &HeldPacket, from: Seq) {
        self.insert_part(packet, from, packet.end());
    }

    /// Adds what the packet has from sequence number `from` to `end` and is not held yet.
    pub fn insert_part(&mut self, packet: &HeldPacket, from: Seq, end: Seq) {
        let end = end.earlier(packet.end());
        let mut at = from;
        let mut index = 0;
        loop {
            let next = self.packets.get(index).map(|held| (held.view.seq, held.end()));
            let limit = next.map_or(end, |(seq, _)| end.earlier(seq));
            if let Some(part) = packet.part(at, limit) {
                let before = index.checked_sub(1).map(|before| &mut self.packets[before]);
                if before.is_some_and(|before| before.join(&part)) {
                    self.bytes += part.view.len();
                } else {
                    self.bytes += part.bytes.len();
                    self.packets.insert(index, part);
                    index += 1;
                }
            }
            let Some((_, held_end)) = next else { return };
            if !held_end.before(end) {
                return;
            }
            at = at.later(held_end);
            index += 1;
        }
    }

    /// Puts the data from sequence number `start` to `end`, which is all here, into one packet. Where it lies in several,
    /// what it was cut from becomes shorter and it is a packet of its own, so that no packet becomes longer than the
    /// network takes.
    pub fn unite(&mut self, start: Seq, end: Seq) {
        let reaches_in = |packet: &HeldPacket| start.before(packet.end()) && packet.view.seq.before(end);
        let Some(first) = self.packets.iter().position(reaches_in) else { return };
        let len = self.packets[first..].iter().take_while(|packet| reaches_in(packet)).count();
        if len == 1 {
            return;
        }
        let parts = &self.packets[first..first + len];
        let mut united = parts.iter().filter_map(|packet| packet.part(start, end));
        let Some(mut whole) = united.next() else { return };
        united.for_each(|part| append(&mut whole.bytes, &mut whole.view, &part.bytes, &part.view));
        let ahead = parts[0].part(parts[0].view.seq, start);
        let behind = parts[len - 1].part(end, parts[len - 1].end());
        let pieces: Vec<HeldPacket> = ahead.into_iter().chain([whole]).chain(behind).collect();
        self.packets.splice(first..first + len, pieces);
        self.bytes = self.packets.iter().map(|packet| packet.bytes.len()).sum();
    }

    /// All packets, in order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut HeldPacket> {
        self.packets.iter_mut()
    }

    /// Takes all packets out, in order.
    pub fn take_all(&mut self) -> Vec<HeldPacket> {
        self.bytes = 0;
        std::mem::take(&mut self.packets)
    }

    /// Where the contiguous data from sequence number `from` on ends.
    pub fn stream_end(&self, from: Seq) -> Seq {
        let mut end = from;
        for packet in &self.packets {
            if packet.view.seq != end {
                break;
            }
            end = packet.end();
        }
        end
    }

    /// The contiguous data from sequence number `from` on.
    pub fn stream(&self, from: Seq) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = from;
        for packet in &self.packets {
            if packet.view.seq != at {
                break;
            }
            out.extend_from_slice(packet.data());
            at = packet.end();
        }
        out
    }

    /// Stretches of data beyond the first gap after sequence number `from`, the last one first: what RFC 2018 section 4
    /// would have a receiver report.
    pub fn beyond_gap(&self, from: Seq) -> Vec<(Seq, Seq)> {
        let mut stretches: Vec<(Seq, Seq)> = Vec::new();
        for packet in &self.packets {
            match stretches.last_mut() {
                Some((_, end)) if *end == packet.view.seq => *end = packet.end(),
                _ => stretches.push((packet.view.seq, packet.end())),
            }
        }
        stretches.retain(|(start, _)| from.before(*start));
        stretches.reverse();
        stretches
    }

    /// Copies of the packets, or parts of packets, with data before sequence number `to`.
    pub fn until(&self, to: Seq) -> Vec<HeldPacket> {
        self.packets.iter().filter_map(|packet| packet.part(packet.view.seq, to)).collect()
    }

    /// Takes out the packets, or parts of packets, with data before sequence number `to`.
    pub fn take_until(&mut self, to: Seq) -> Vec<HeldPacket> {
        let mut taken = Vec::new();
        let mut kept = Vec::new();
        for packet in self.packets.drain(..) {
            let (start, end) = (packet.view.seq, packet.end());
            taken.extend(packet.part(start, to));
            kept.extend(packet.part(start.later(to), end));
        }
        self.bytes = kept.iter().map(|packet| packet.bytes.len()).sum();
        self.packets = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use switchback_wire::packet::{bare, flags};
    use switchback_wire::{address_bytes, sb_flow};

    fn packet(seq: Seq, data: &[u8]) -> HeldPacket {
        let flow = sb_flow {
            client: address_bytes("192.0.2.1".parse().unwrap()),
            vip: address_bytes("192.0.2.100".parse().unwrap()),
            client_port: 40000u16.to_be(),
            vip_port: 80u16.to_be(),
        };
        let mut bytes = bare(&flow, true, seq, Seq(1), flags::ACK);
        bytes.extend_from_slice(data);
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        HeldPacket::new(&bytes).unwrap()
    }

    #[test]
    fn packets_in_any_order_make_one_stream() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let start = Seq(u32::MAX - 5);
        let parts = [(0, 6), (4, 12), (10, 20), (18, 27), (3, 25)];
        for rotation in 0..parts.len() {
            let mut held = Held::default();
            for i in 0..parts.len() {
                let (from, to) = parts[(i + rotation) % parts.len()];
                held.insert(&packet(start + from, &text[from..to]), start);
            }
            assert_eq!(held.stream(start), text, "rotation {rotation}");
        }
    }

    #[test]
    fn single_bytes_are_joined() {
        let mut held = Held::default();
        for i in 0..3000u32 {
            held.insert(&packet(Seq(10 + i), &[i as u8]), Seq(10));
        }
        assert_eq!(held.stream(Seq(10)), (0..3000u32).map(|i| i as u8).collect::<Vec<_>>());
        assert_eq!((held.take_all().len(), held.bytes()), (3, 0));
    }

    #[test]
    fn a_gap_ends_the_stream() {
        let mut held = Held::default();
        held.insert(&packet(Seq(10), b"ab"), Seq(10));
        held.insert(&packet(Seq(14), b"ef"), Seq(10));
        assert_eq!(held.stream(Seq(10)), b"ab");
        assert_eq!(held.stream_end(Seq(10)), Seq(12));
        assert_eq!(held.beyond_gap(Seq(10)), [(Seq(14), Seq(16))]);
        assert_eq!(held.beyond_gap(Seq(11)), [(Seq(14), Seq(16))], "acknowledged in part");
        held.insert(&packet(Seq(12), b"cd"), Seq(10));
        assert_eq!(held.stream(Seq(10)), b"abcdef");
        assert!(held.beyond_gap(Seq(10)).is_empty());
    }

    #[test]
    fn taking_splits_a_packet_at_the_mark() {
        let mut held = Held::default();
        held.insert(&packet(Seq(10), b"abcdef"), Seq(10));
        let taken = held.take_until(Seq(14));
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].view.seq, taken[0].data()), (Seq(10), &b"abcd"[..]));
        assert_eq!(held.stream(Seq(14)), b"ef");
        assert_eq!(held.bytes(), 42);
    }

    #[test]
    fn only_a_part_of_a_packet_is_wanted() {
        let mut held = Held::default();
        held.insert_part(&packet(Seq(10), b"abcdef"), Seq(11), Seq(14));
        assert_eq!(held.stream(Seq(11)), b"bcd");
        held.insert_part(&packet(Seq(20), b"ghi"), Seq(11), Seq(14));
        assert_eq!(held.iter().count(), 1);
        assert_eq!(held.until(Seq(13))[0].data(), b"bc");
    }

    #[test]
    fn data_before_the_mark_is_not_held() {
        let mut held = Held::default();
        held.insert(&packet(Seq(10), b"abcdef"), Seq(13));
        assert_eq!(held.stream(Seq(13)), b"def");
    }

    proptest! {
        #[test]
        fn what_is_united_lies_in_one_packet(
            cuts in prop::collection::vec(0usize..100, 0..12),
            names in prop::collection::vec((0usize..100, 1usize..33), 1..3),
            closes in any::<bool>(),
            seq in any::<u32>().prop_map(Seq),
        ) {
            let text: Vec<u8> = (0..100).collect();
            let mut cuts = [&cuts[..], &[0, 100]].concat();
            cuts.sort_unstable();
            cuts.dedup();
            let at = |offset: usize| seq + offset;
            let packets = cuts.windows(2).map(|cut| packet(at(cut[0]), &text[cut[0]..cut[1]]));
            let mut packets: Vec<HeldPacket> = packets.collect();
            if closes {
                let last = packets.len() - 1;
                let mut bytes = packets[last].bytes.clone();
                bytes[packets[last].view.tcp + 13] |= flags::FIN;
                packets[last] = HeldPacket::new(&bytes).unwrap();
            }
            let longest = packets.iter().map(|packet| packet.data().len()).max().unwrap();
            let mut held = Held::of(packets);
            // Names do not overlap: the second begins behind the first.
            let mut from = 0;
            let mut places = Vec::new();
            for (gap, len) in names {
                let (start, end) = ((from + gap).min(100), (from + gap + len).min(100));
                from = end;
                held.unite(at(start), at(end));
                places.push((start, end));
            }
            for (start, end) in places {
                let whole = |packet: &&HeldPacket| {
                    !at(start).before(packet.view.seq) && !packet.end().before(at(end))
                };
                prop_assert!(start == end || held.iter().filter(whole).count() == 1);
            }
            prop_assert_eq!(held.stream(seq), text);
            prop_assert!(held.iter().all(|packet| packet.data().len() <= longest.max(32)));
            let ends = held.iter().map(|packet| packet.view.flags & flags::FIN != 0);
            let ends: Vec<bool> = ends.collect();
            prop_assert!(ends[..ends.len() - 1].iter().all(|fin| !fin));
            prop_assert_eq!(ends.last(), Some(&closes));
            let bytes: usize = held.iter().map(|packet| packet.bytes.len()).sum();
            prop_assert_eq!(held.bytes(), bytes);
        }
    }
}
