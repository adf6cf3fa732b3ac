//! Packets of any kind through what reads and makes them: nothing reaches outside a packet, what comes out is
//! whole and has right checksums, and no byte of data is lost or made up.

mod fuzzing;

use std::net::IpAddr;

use bolero::{TypeGenerator, check};
use fuzzing::Edit;
use switchback_wire::flow_state::FlowState;
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::message::{FromNode, ToAgent, ToNode};
use switchback_wire::packet::*;
use switchback_wire::*;

/// A packet of TCP, and what is changed in it. Most packets that are changed are none any more, so lengths are
/// made right again if `repaired`.
#[derive(Clone, Debug, TypeGenerator)]
struct Packet {
    v6: bool,
    numbers: (u32, u32),
    flags: u8,
    timestamps: Option<(u32, u32)>,
    #[generator(bolero::produce::<Vec<u8>>().with().len(0usize..80))]
    data: Vec<u8>,
    #[generator(bolero::produce::<Vec<Edit>>().with().len(0usize..8))]
    edits: Vec<Edit>,
    repaired: bool,
}

/// Options, and where the data begins.
const PIECES: &[&[u8]] = &[
    &[1],
    &[0],
    &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
    &[5, 10, 0, 0, 0, 1, 0, 0, 0, 2],
    &[254, 14, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0],
    &[2, 4, 5, 180],
    &[0xf0],
    &[8, 10],
];

fn flow(v6: bool) -> sb_flow {
    let (client, vip) = if v6 { ("2001:db8::1", "2001:db8::100") } else { ("192.0.2.1", "192.0.2.100") };
    sb_flow {
        client: address_bytes(client.parse().unwrap()),
        vip: address_bytes(vip.parse().unwrap()),
        client_port: 40000u16.to_be(),
        vip_port: 80u16.to_be(),
    }
}

fn numbers((seq, ack): (u32, u32)) -> (Seq, Seq) {
    (Seq(seq), Seq(ack))
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let flow = flow(self.v6);
        let mut bytes = segment(&flow, true, numbers(self.numbers), self.flags, self.timestamps, &self.data);
        let tcp = if self.v6 { 40 } else { 20 };
        if self.repaired {
            let mut behind = bytes.split_off(tcp + 20);
            self.edits.iter().for_each(|edit| edit.apply(&mut behind, PIECES));
            bytes.extend(behind);
            let options = u8::try_from((bytes.len() - tcp) / 4).unwrap_or(15);
            bytes[tcp + 12] = (self.flags & 15).clamp(5, options.min(15)) << 4;
            let (at, len) = if self.v6 { (4, bytes.len() - 40) } else { (2, bytes.len()) };
            bytes[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
        } else {
            self.edits.iter().for_each(|edit| edit.apply(&mut bytes, PIECES));
        }
        bytes
    }
}

/// What `packet` is read as; it is whole, and its checksums are right.
fn whole(packet: &[u8]) -> TcpView {
    let view = TcpView::parse(packet).expect("a packet of TCP");
    assert_eq!(view.end, packet.len());
    let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
    assert!(view.tcp == 40 || fold(sum(&packet[..20])) == 0);
    let pseudo = sum(&packet[addresses]) + 6 + (view.end - view.tcp) as u64;
    assert_eq!(fold(pseudo + sum(&packet[view.tcp..])), 0);
    view
}

fn data<'a>(packet: &'a [u8], view: &TcpView) -> &'a [u8] {
    &packet[view.data..view.end]
}

#[derive(Clone, Debug, TypeGenerator)]
struct PacketCase {
    packet: Packet,
    next: Packet,
    cuts: (u16, u16),
    ack: u32,
    echo: Option<u32>,
}

#[test]
fn packets() {
    check!().with_test_time(fuzzing::time()).with_type::<PacketCase>().for_each(|case| {
        let packet = case.packet.bytes();
        let Some(view) = TcpView::parse(&packet) else { return };
        assert!([20, 40].contains(&view.tcp) && view.tcp + 20 <= view.data);
        assert!(view.data <= view.end && view.end <= packet.len());
        check_cut(&packet, &view, case.cuts);
        check_append(&packet, &view, &case.next.bytes());
        check_dates(&packet, &view, case.ack, case.echo);
    });
}

/// The parts make up the packet again.
fn check_cut(packet: &[u8], view: &TcpView, cuts: (u16, u16)) {
    let place = |cut: u16| usize::from(cut) % (view.len() + 1);
    let (from, to) = (place(cuts.0).min(place(cuts.1)), place(cuts.0).max(place(cuts.1)));
    let mut all = Vec::new();
    for range in [0..from, from..to, to..view.len()] {
        let last = range.end == view.len();
        let part = cut(packet, view, range.clone());
        let read = whole(&part);
        assert_eq!(read.seq, view.seq + range.start);
        assert_eq!((read.ack, read.tcp, read.data), (view.ack, view.tcp, view.data));
        let fin = if last { view.flags & flags::FIN } else { 0 };
        assert_eq!(read.flags, view.flags & !flags::FIN | fin | flags::PSH);
        all.extend_from_slice(data(&part, &read));
    }
    assert_eq!(all, data(packet, view));
}

fn check_append(packet: &[u8], view: &TcpView, next: &[u8]) {
    let Some(next_view) = TcpView::parse(next) else { return };
    let (mut joined, mut joined_view) = (packet.to_vec(), *view);
    append(&mut joined, &mut joined_view, next, &next_view);
    assert_eq!(whole(&joined), joined_view);
    assert_eq!(data(&joined, &joined_view), [data(packet, view), data(next, &next_view)].concat());
    assert_eq!((joined_view.seq, joined_view.ack), (view.seq, view.ack));
    assert_eq!(timestamps(&joined, &joined_view), timestamps(packet, view));
}

/// Numbers only grow, and nothing else changes.
fn check_dates(packet: &[u8], view: &TcpView, ack: u32, echo: Option<u32>) {
    let later = |new: u32, old: u32| if (new.wrapping_sub(old) as i32) > 0 { new } else { old };
    let (mut bytes, mut after) = (packet.to_vec(), *view);
    bring_up_to_date(&mut bytes, &mut after, Seq(ack), echo);
    assert_eq!(whole(&bytes[..view.end]), TcpView { ack: view.ack.later(Seq(ack)), ..*view });
    let before = timestamps(packet, view);
    let expected = before.map(|(value, old)| (value, echo.map_or(old, |echo| later(echo, old))));
    assert_eq!(timestamps(&bytes, &after), expected);
    assert_eq!(data(&bytes, &after), data(packet, view));
    let changed = |range: std::ops::Range<usize>| bytes[range.clone()] != packet[range];
    assert!(!changed(view.tcp..view.tcp + 8) && !changed(view.tcp + 12..view.tcp + 16));
    assert!(before.is_some() || !changed(view.tcp + 20..view.data));
}

#[derive(Clone, Debug, TypeGenerator)]
struct AckCase {
    v6: bool,
    numbers: (u32, u32),
    timestamps: Option<(u32, u32)>,
    #[generator(bolero::produce::<Vec<(u32, u32)>>().with().len(0usize..6))]
    blocks: Vec<(u32, u32)>,
}

#[test]
fn acknowledgments() {
    check!().with_test_time(fuzzing::time()).with_type::<AckCase>().for_each(|case| {
        let sacked: Vec<_> = case.blocks.iter().copied().map(numbers).collect();
        let said = numbers(case.numbers);
        let packet = acknowledgment(&flow(case.v6), said, case.timestamps, 7, &sacked);
        let view = whole(&packet);
        assert_eq!(((view.seq, view.ack), view.flags, view.len()), (said, flags::ACK, 0));
        assert_eq!(timestamps(&packet, &view), case.timestamps);
        let blocks = &case.blocks[..case.blocks.len().min(3)];
        let words: Vec<u32> = blocks.iter().flat_map(|(from, to)| [*from, *to]).collect();
        let written: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert!(packet.ends_with(&written));
        let before = view.data - written.len();
        assert!(blocks.is_empty() || packet[before - 2..before] == [5, 2 + written.len() as u8]);
    });
}

#[derive(Clone, Debug, TypeGenerator)]
struct OptionCase {
    op: u8,
    flags: u8,
    reason: u8,
    payload: [u8; SB_PAYLOAD_LEN as usize],
}

/// What an option of whatever bytes says is the same when it is said again, without its reserved bytes and unknown
/// flags.
#[test]
fn messages() {
    check!().with_test_time(fuzzing::time()).with_type::<OptionCase>().for_each(|case| {
        let mut option = handoff::blank(sb_op::SB_OP_HELLO);
        (option.op, option.flags, option.reason) = (case.op % 36, case.flags, case.reason);
        let mut bytes = bytes_of(&option).to_vec();
        bytes[8..8 + case.payload.len()].copy_from_slice(&case.payload);
        let option: sb_option = read_from(&bytes).unwrap();
        let inner = bare(&flow(false), true, Seq(1), Seq(2), flags::ACK);
        let from_node = |option: &sb_option| FromNode::read(&flow(false), option, &whole(&inner), &inner);
        let again = match (ToNode::read(&option), ToAgent::read(&option), from_node(&option)) {
            (Some(said), None, None) => {
                let again = said.option(&FlowState::read(&option));
                assert_eq!(
                    (ToNode::read(&again), FlowState::read(&again)),
                    (Some(said), FlowState::read(&option))
                );
                again
            }
            (None, Some(said), None) => {
                assert_eq!(ToAgent::read(&said.option()), Some(said));
                said.option()
            }
            (None, None, Some(said)) => {
                assert_eq!(from_node(&said.option()), Some(said));
                said.option()
            }
            (None, None, None) => return,
            several => panic!("{several:?}"),
        };
        let has_grown = matches!(ToNode::read(&option), Some(ToNode::Adopt { grown, .. }) if grown != 0);
        let version = if has_grown { SB_VERSION_GROWN } else { SB_VERSION_USUAL };
        assert_eq!((again.op, again.version), (option.op, version));
    });
}

#[derive(Clone, Debug, TypeGenerator)]
struct HandoffCase {
    inner: Packet,
    outer_v6: bool,
    key: (u64, u64),
    number: u16,
    epoch: u64,
    option: [u8; size_of::<sb_option>()],
    before: Vec<u8>,
}

#[test]
fn handoffs() {
    check!().with_test_time(fuzzing::time()).with_type::<HandoffCase>().for_each(|case| {
        let inner = case.inner.bytes();
        let Some(view) = TcpView::parse(&inner) else { return };
        let address = |last: u16| match case.outer_v6 {
            true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]),
            false => IpAddr::from([192, 0, 2, last as u8]),
        };
        let (switch, node, flow) = (address(10), address(21), flow(case.inner.v6));
        let key = sb_key { k0: case.key.0, k1: case.key.1 };
        let option: sb_option = read_from(&case.option).unwrap();
        let mut out = case.before.clone();
        let node = NodeAddress { machine: node, number: case.number };
        let peers = Peers { node, switch, epoch: case.epoch };
        handoff::encode(&mut out, &key, &Way::to_node(peers), &flow, option, &view, &inner);

        let packet = out.strip_prefix(&case.before[..]).expect("what was there stays");
        let (ip, said) = if case.outer_v6 { (40, 40) } else { (20, 0) };
        let at = if case.outer_v6 { 4 } else { 2 };
        let len = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]])) + said;
        assert_eq!(len, packet.len());
        assert!(case.outer_v6 || fold(sum(&packet[..20])) == 0);
        let shim: sb_shim = read_from(&packet[ip..]).unwrap();
        assert_eq!(usize::from(u16::from_be(shim.len)), packet.len() - ip);
        assert_eq!(&packet[ip + size_of::<sb_shim>()..], &inner[..view.end]);
        assert_eq!(u32::from_be(shim.geneve.vni) >> 16, case.number.into());
        let tag = handoff::tag(&key, &peers, &flow, &view, &option);
        assert_eq!(shim.option, sb_option { tag, ..option });
    });
}
