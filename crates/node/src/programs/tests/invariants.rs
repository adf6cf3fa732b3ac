//! Invariants of the programs for any packet and any flow entry.

use std::net::IpAddr;

use switchback_http::framing::generated::{
    SB_FRAMING_NAME, SB_FRAMING_OTHER, SB_FRAMING_SKIP, SB_FRAMING_STATES, sb_framing,
};
use switchback_wire::handoff::Peers;
use switchback_wire::packet::{TcpView, flags, fold, sum};
use switchback_wire::{
    NodeAddress, SB_HANDOVER_AHEAD, SB_HANDOVER_REQUEST, SB_MARK_TUNNEL, SB_MARK_UPGRADING, SB_NUMBER_MIN,
    SB_OPTION_CLASS, SB_OPTION_TYPE, SB_PROBE_KEPT, SB_SECOND_TYPE, SB_SECOND_USED, SB_TTL, SB_VERSION,
    SB_VERSION_GROWN, Seq, address_bytes, address_from, handoff, read_from, sb_changed, sb_cookies, sb_flow,
    sb_hook, sb_key, sb_op, sb_option, sb_owned, sb_ownership, sb_reason, sb_second, sb_shim,
};

use super::bench::*;
use super::frames::*;
use super::fuzz::Case;

const ETHERNET: usize = 14;
const SHIM: usize = size_of::<sb_shim>();
/// From bpf/intake.h.
const NOT_TAKEN_US: u32 = 2_000_000;
/// Bytes between the IP header of an ICMP message and the packet that it is about.
const ICMP: usize = 8;

/// A parsed handoff packet. Offsets are in the frame.
pub struct Handoff {
    pub option: sb_option,
    pub second: Option<sb_second>,
    pub flow: sb_flow,
    /// Offset of the shim.
    pub shim: usize,
    /// Offset of the inner packet; `end` is where it ends according to its header.
    pub inner: usize,
    pub end: usize,
    /// The inner TCP header, or the one in an ICMP message. Missing parts are empty.
    pub view: TcpView,
    pub icmp: bool,
    /// Addresses of the outer header.
    ends: (IpAddr, IpAddr),
    vni: u32,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Length of the IP header without options that the EtherType implies.
fn ip_header(frame: &[u8]) -> Option<usize> {
    match be16(frame, 12)? {
        0x0800 => Some(20),
        0x86dd => Some(40),
        _ => None,
    }
}

/// Source and destination.
fn addresses(packet: &[u8], header: usize) -> Option<([u8; 16], [u8; 16])> {
    let v4 = |at: usize| Some(address_bytes(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into()));
    let v6 = |at: usize| packet.get(at..at + 16)?.try_into().ok();
    if header == 20 { Some((v4(12)?, v4(16)?)) } else { Some((v6(8)?, v6(24)?)) }
}

/// What follows an IP header without options, of the version that its length says.
fn protocol(packet: &[u8], header: usize) -> Option<u8> {
    let first = *packet.first()?;
    let (plain, at) = if header == 40 { (first >> 4 == 6, 6) } else { (first == 0x45, 9) };
    packet.get(at).copied().filter(|_| plain)
}

/// Likewise of a packet that is whole.
fn whole_protocol(packet: &[u8], header: usize) -> Option<u8> {
    let is_fragment = header == 20 && be16(packet, 6)? & 0x3fff != 0;
    protocol(packet, header).filter(|_| !is_fragment)
}

fn is_of_version(packet: &[u8], header: usize) -> bool {
    packet.first().is_some_and(|first| first >> 4 == if header == 20 { 4 } else { 6 })
}

/// The flow of a TCP packet from or to the client.
pub fn flow_of(packet: &[u8], header: usize, from_client: bool) -> Option<sb_flow> {
    let (source, dest) = addresses(packet, header)?;
    let port = |at: usize| Some(be16(packet, header + at)?.to_be());
    let (source_port, dest_port) = (port(0)?, port(2)?);
    Some(if from_client {
        sb_flow { client: source, vip: dest, client_port: source_port, vip_port: dest_port }
    } else {
        sb_flow { client: dest, vip: source, client_port: dest_port, vip_port: source_port }
    })
}

fn read_second(bytes: &[u8]) -> Option<sb_second> {
    let second: sb_second = read_from(bytes)?;
    let known = [SB_SECOND_TYPE, SB_SECOND_USED].contains(&u32::from(second.type_));
    let ours = u32::from(u16::from_be(second.opt_class)) == SB_OPTION_CLASS && second.length == 6;
    (known && ours).then_some(second)
}

impl Handoff {
    /// Sequence number that the first byte of the packet's data has for the server.
    pub fn server_seq(&self) -> Seq {
        let heads = u32::from_be(self.option.flow_state().heads);
        let grows = self.op() == Some(sb_op::SB_OP_ADOPT) && self.option.version >= SB_VERSION_GROWN;
        let grown = if grows { i32::from(((heads >> 16) as u16).cast_signed()) } else { 0 };
        Seq(self.view.seq.0.wrapping_sub(grown.cast_unsigned()))
    }

    /// Parses the frame as an incoming handoff packet, with any tag.
    pub fn read(frame: &[u8]) -> Option<Handoff> {
        let (_, dest) = addresses(frame.get(ETHERNET..)?, ip_header(frame)?)?;
        if is_vip(&dest) { None } else { Self::parse(frame) }
    }

    /// Parses the frame as an incoming or outgoing handoff packet.
    pub fn parse(frame: &[u8]) -> Option<Handoff> {
        let outer = ip_header(frame)?;
        let shim = ETHERNET + outer;
        let option: sb_option = read_from(frame.get(shim + 16..shim + SHIM)?)?;
        let ours = whole_protocol(&frame[ETHERNET..], outer)? == 17
            && be16(frame, shim + 2)? == switchback_wire::SB_GENEVE_PORT as u16
            && u32::from(u16::from_be(option.opt_class)) == SB_OPTION_CLASS
            && u32::from(option.type_) == SB_OPTION_TYPE
            && usize::from(option.length) == size_of::<sb_option>() / 4 - 1;
        if !ours {
            return None;
        }
        const ONE: usize = size_of::<sb_option>();
        const BOTH: usize = ONE + size_of::<sb_second>();
        let (source, dest) = addresses(&frame[ETHERNET..], outer)?;
        let ends = (address_from(source), address_from(dest));
        let vni = be32(frame, shim + 12)? >> 8;
        let second = match usize::from(frame[shim + 8]) * 4 {
            ONE => None,
            BOTH => Some(read_second(&frame[shim + SHIM..])?),
            _ => return None,
        };
        let inner = shim + SHIM + second.map_or(0, |_| size_of::<sb_second>());
        let packet = &frame[inner..];
        let (header, version) = match be16(frame, shim + 10)? {
            0x0800 => (20, 4),
            0x86dd => (40, 6),
            _ => return None,
        };
        if packet.len() < header || packet[0] >> 4 != version {
            return None;
        }
        let len =
            usize::from(be16(packet, if header == 20 { 2 } else { 4 })?) + if header == 20 { 0 } else { 40 };
        let next = whole_protocol(packet, header)?;
        let end = inner + len;
        if end > frame.len() {
            return None;
        }
        if next == if header == 20 { 1 } else { 58 } {
            let about = packet.get(header + ICMP..)?;
            let plain = whole_protocol(about, header)? == 6;
            let seq = be32(about, header + 4)?;
            let view = TcpView { tcp: header, data: 0, end: 0, seq: Seq(seq), ack: Seq(0), flags: 0 };
            let flow = flow_of(about, header, false)?;
            return plain.then_some(Handoff {
                option,
                second,
                flow,
                shim,
                inner,
                end,
                view,
                icmp: true,
                ends,
                vni,
            });
        }
        let view = TcpView::parse(packet).filter(|_| next == 6)?;
        let flow = flow_of(packet, header, true)?;
        Some(Handoff { option, second, flow, shim, inner, end, view, icmp: false, ends, vni })
    }

    pub fn tag(&self, key: &sb_key, node: &str) -> [u8; 8] {
        let number = (self.vni >> 8) as u16;
        let number = if u32::from(number) < SB_NUMBER_MIN { 0 } else { number };
        let node = NodeAddress { machine: address(node), number };
        let is_said_by_node = self.option.op >= sb_op::SB_OP_ADOPTED as u8;
        let switch = if is_said_by_node { self.ends.1 } else { self.ends.0 };
        let epoch = if self.is_of_no_epoch() { 0 } else { EPOCH.wrapping_add_signed(self.later().into()) };
        handoff::tag(key, &Peers { node, switch, epoch }, &self.flow, &self.view, &self.option)
    }

    fn is_of_no_epoch(&self) -> bool {
        matches!(self.op(), Some(sb_op::SB_OP_SYNC | sb_op::SB_OP_SYNCED))
    }

    /// Epoch of the packet relative to the present one, according to the VNI.
    fn later(&self) -> i8 {
        (self.vni as u8).wrapping_sub(EPOCH as u8) as i8
    }

    pub fn is_signed(&self, key: &sb_key, node: &str) -> bool {
        (self.is_of_no_epoch() || self.later().unsigned_abs() <= 1) && self.tag(key, node) == self.option.tag
    }

    fn op(&self) -> Option<sb_op> {
        sb_op::from_number(self.option.op)
    }
}

fn is_vip(address: &[u8; 16]) -> bool {
    VIPS.iter().any(|vip| address_bytes(super::bench::address(vip)) == *address)
}

/// Whether an ARP packet's sender (14) or target (24) is a VIP.
fn arp_names_vip(frame: &[u8], at: usize) -> bool {
    let address = frame.get(ETHERNET + at..ETHERNET + at + 4).filter(|_| frame.len() >= ETHERNET + 28);
    be16(frame, 12) == Some(0x0806)
        && address.is_some_and(|v4| is_vip(&address_bytes(<[u8; 4]>::try_from(v4).expect("four").into())))
}

pub fn is_sealed(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6 || fold(sum(&packet[..20])) == 0
}

fn in_range(owned: &sb_owned) -> bool {
    owned.state <= sb_ownership::SB_OWN_RELEASED as u8
        && owned.framing.state() & !SB_FRAMING_SKIP < SB_FRAMING_STATES
}

fn is_released(owned: Option<&sb_owned>) -> bool {
    owned.is_some_and(|owned| owned.state == sb_ownership::SB_OWN_RELEASED as u8)
}

/// Whether the client ends a connection of which nothing is under way.
fn ends_released(handoff: &Handoff, before: Option<&sb_owned>) -> bool {
    let at_rest = |owned: &sb_owned| {
        owned.reason == sb_reason::SB_REASON_NONE as u8
            && owned.requests == owned.responses
            && owned.next == handoff.view.seq.0
    };
    let view = &handoff.view;
    handoff.op() == Some(sb_op::SB_OP_FORWARD)
        && view.flags & (flags::FIN | flags::RST) != 0
        && view.data == view.end
        && before.is_some_and(at_rest)
}

/// Invariants of ingress.
pub fn check_ingress(bench: &Bench, case: &Case, verdict: Verdict, out: &[u8]) {
    let Case { frame, flow, node, .. } = case;
    let after = bench.flow(flow);
    let valid = Handoff::read(frame).filter(|h| h.is_signed(&SIGN, node) || h.is_signed(&ACCEPT, node));
    assert!(after.is_none_or(|owned| in_range(&owned)), "the entry became {after:?}");
    let Some(handoff) = valid else {
        assert!(matches!(verdict, Verdict::Next | Verdict::Drop), "{verdict:?} without a valid tag");
        assert_eq!(after, case.before, "the entry is changed without a valid tag");
        if verdict == Verdict::Next {
            assert_eq!(out, frame, "what is none of our business is left alone");
            // The kernel drops what is of another version than its EtherType says.
            let header = ip_header(frame).filter(|header| is_of_version(&frame[ETHERNET..], *header));
            let dest = header.and_then(|header| addresses(&frame[ETHERNET..], header));
            assert!(!dest.is_some_and(|(_, dest)| is_vip(&dest)), "a packet to a VIP goes on");
            assert!(!arp_names_vip(frame, 24), "the kernel may answer ARP for a VIP");
            assert!(Handoff::read(frame).is_none(), "a handoff packet goes on");
        }
        return;
    };
    if handoff.option.version > SB_VERSION {
        assert_eq!((verdict, after), (Verdict::Drop, case.before), "a later version");
        return;
    }
    let op = handoff.op();
    let is_adoption = op == Some(sb_op::SB_OP_ADOPT);
    assert!(
        handoff.second.is_none() || is_adoption || verdict == Verdict::Drop,
        "{op:?} with a second candidate"
    );
    if is_released(case.before.as_ref()) && !is_released(after.as_ref()) {
        let is_end = after.is_none() && ends_released(&handoff, case.before.as_ref());
        assert!(op == Some(sb_op::SB_OP_ADOPT) || is_end, "a mute flow may speak again after {op:?}");
    }
    match verdict {
        Verdict::Next => panic!("a handoff packet goes on"),
        Verdict::Drop => {}
        Verdict::Pass => check_delivered(&handoff, case, out, after.as_ref()),
        Verdict::Redirect if Handoff::parse(out).and_then(|h| h.op()) == Some(sb_op::SB_OP_ADOPT) => {
            check_passed_on(&handoff, frame, out);
        }
        Verdict::Redirect => check_answer(&handoff, case, out, after.as_ref()),
    }
}

/// Whether cookie names on the flow may be changed.
fn may_change(owned: Option<&sb_owned>) -> bool {
    owned.is_some_and(|owned| owned.cookies.session.pool == REWRITTEN)
}

/// Checks that only data of a TCP packet has changed, and that the checksum is right.
fn check_changed(before: &[u8], after: &[u8]) {
    assert_eq!(before.len(), after.len(), "the length");
    let Some(view) = TcpView::parse(before).filter(|view| view.end == before.len()) else { return };
    let check = view.tcp + 16;
    assert_eq!(before[..check], after[..check], "headers");
    assert_eq!(before[check + 2..view.data], after[check + 2..view.data], "headers");
    assert!(is_tcp_sealed(after) || !is_tcp_sealed(before), "the checksum behind a changed name");
}

/// The kernel gets the inner packet unchanged, or a RST made by the node.
fn check_delivered(handoff: &Handoff, case: &Case, out: &[u8], after: Option<&sb_owned>) {
    use sb_op::*;
    let Case { frame, before, .. } = case;
    // The socket exists, and its first data follows.
    let wanted = |owned: &sb_owned| owned.hooked == sb_hook::SB_HOOK_WANTED as u8;
    let has_socket = |owned: &sb_owned| owned.state != sb_ownership::SB_OWN_ADOPTING as u8;
    let is_first = before.as_ref().is_some_and(wanted) && after.is_some_and(|o| !wanted(o) && has_socket(o));
    let inner = &frame[handoff.inner..];
    let op = handoff.op().expect("an unknown operation is obeyed");
    let packet = &out[ETHERNET..];
    assert_eq!(out[12..14], if handoff.view.tcp == 20 { [0x08, 0x00] } else { [0x86, 0xdd] }, "EtherType");
    assert_eq!(op == SB_OP_ICMP, handoff.icmp, "the operation and the inner packet");
    let is_reset =
        op == SB_OP_RELEASE || op == SB_OP_ADOPT && !is_first || is_given_up(handoff, case, packet);
    if is_reset {
        let view = TcpView::parse(packet).expect("a RST");
        assert_eq!((view.flags, view.end, packet.len()), (flags::RST, view.tcp + 20, view.end));
        assert_eq!(flow_of(packet, view.tcp, true), Some(handoff.flow), "the flow of the RST");
        let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
        let check = fold(sum(&packet[addresses]) + 6 + 20 + sum(&packet[view.tcp..]));
        assert!(check == 0 && is_sealed(packet), "the checksums of the RST");
        assert_eq!(op == SB_OP_RELEASE, is_released(after), "a released flow is mute, an adopted one is not");
        return;
    }
    assert!(
        matches!(op, SB_OP_ADOPT | SB_OP_FORWARD | SB_OP_CONFIRM | SB_OP_PROBE | SB_OP_ICMP),
        "{op:?} is delivered"
    );
    let is_forwarded = matches!(op, SB_OP_FORWARD | SB_OP_CONFIRM);
    let inner =
        &if is_forwarded { in_time(inner, handoff, packet) } else { renumbered(inner, handoff, packet) }[..];
    let outer = ip_header(frame).expect("the outer header");
    let class = if outer == 20 { frame[15] } else { frame[15] >> 4 };
    if class & 3 == 3 {
        // RFC 6040: congestion is copied to the inner header if that allows it.
        let mut same = inner.to_vec();
        same[..handoff.view.tcp].copy_from_slice(&packet[..handoff.view.tcp]);
        check_same(&same, packet, after);
        assert!(is_sealed(packet) || !is_sealed(inner), "the checksum behind ECN");
    } else {
        check_same(inner, packet, after);
    }
}

/// The packet with the number that its data has for the server. Its checksum is right if it was before.
fn renumbered(packet: &[u8], handoff: &Handoff, out: &[u8]) -> Vec<u8> {
    let (mut same, tcp) = (packet.to_vec(), handoff.view.tcp);
    let seq = handoff.server_seq();
    if seq != handoff.view.seq {
        same[tcp + 4..tcp + 8].copy_from_slice(&seq.0.to_be_bytes());
        assert!(!is_tcp_sealed(packet) || is_tcp_sealed(out), "the checksum of a packet with another number");
        same[tcp + 16..tcp + 18].copy_from_slice(&out[tcp + 16..tcp + 18]);
    }
    same
}

/// Whether the packet was replaced by a RST, because the socket has not taken data that was read.
fn is_given_up(handoff: &Handoff, case: &Case, packet: &[u8]) -> bool {
    let has_data = handoff.view.data < handoff.view.end && handoff.view.flags & flags::RST == 0;
    let is_forwarded = matches!(handoff.op(), Some(sb_op::SB_OP_FORWARD | sb_op::SB_OP_CONFIRM));
    let is_old = |owned: &sb_owned| now_us().wrapping_sub(owned.read_us) >= NOT_TAKEN_US;
    let is_reset = TcpView::parse(packet).is_some_and(|view| view.flags & flags::RST != 0);
    is_reset && has_data && is_forwarded && case.before.as_ref().is_some_and(is_old)
}

/// The packet with a TSecr of zero where the switch is ahead; and, if it has data and those in `out` are later, with
/// the ACK number and TSval of `out`. Its checksum is right if it was before.
fn in_time(packet: &[u8], handoff: &Handoff, out: &[u8]) -> Vec<u8> {
    let (mut same, view) = (packet.to_vec(), &handoff.view);
    let (ack, tsval, tsecr) = (view.tcp + 8, view.tcp + 24, view.tcp + 28);
    let stamped =
        packet.get(view.tcp + 20..view.tcp + 32).is_some_and(|bytes| bytes.starts_with(&[1, 1, 8, 10]));
    let ahead = u32::from(handoff.option.flags) & (SB_HANDOVER_REQUEST | SB_HANDOVER_AHEAD);
    if stamped && ahead == SB_HANDOVER_AHEAD {
        same[tsecr..tsecr + 4].fill(0);
    }
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    };
    let mut take = |at: usize, most: u32| {
        let by = word(out, at).zip(word(packet, at)).map_or(0, |(new, old)| new.wrapping_sub(old));
        if (1..most).contains(&by) {
            same[at..at + 4].copy_from_slice(&out[at..at + 4]);
        }
    };
    if view.data < view.end && view.flags & flags::RST == 0 {
        take(ack, (1 << 31) + 1);
        if stamped {
            take(tsval, 1 << 16);
        }
    }
    if same != packet {
        assert!(!is_tcp_sealed(packet) || is_tcp_sealed(out), "the checksum of a packet in time");
        same[view.tcp + 16..view.tcp + 18].copy_from_slice(&out[view.tcp + 16..view.tcp + 18]);
    }
    same
}

/// Checks that a packet is unchanged, except for cookie names.
fn check_same(before: &[u8], after: &[u8], owned: Option<&sb_owned>) {
    if may_change(owned) {
        check_changed(before, after);
    } else {
        assert_eq!(before, after, "what is none of ours is left alone");
    }
}

/// Checks that an adoption goes to its second candidate, once and unchanged.
fn check_passed_on(asked: &Handoff, frame: &[u8], out: &[u8]) {
    let second = asked.second.expect("nobody to pass it on to");
    assert_eq!((asked.op(), u32::from(second.type_)), (Some(sb_op::SB_OP_ADOPT), SB_SECOND_TYPE));
    let passed = Handoff::parse(out).expect("a handoff packet");
    assert_eq!(passed.second, Some(sb_second { type_: SB_SECOND_USED as u8, ..second }), "the second option");
    assert_eq!(passed.option, sb_option { tag: second.tag, ..asked.option }, "the option");
    let outer = ip_header(frame).expect("the outer header");
    let (source, _) = addresses(&frame[ETHERNET..], outer).expect("the outer addresses");
    assert_eq!(
        addresses(&out[ETHERNET..], outer),
        Some((source, second.node)),
        "from the switch to the node"
    );
    assert!(outer == 40 || is_sealed(&out[ETHERNET..]), "the outer header's checksum");
    assert_eq!(
        (out.len(), &out[passed.inner..]),
        (frame.len(), &frame[asked.inner..]),
        "the client's packet"
    );
}

/// Checks that an answer goes back to the sender, is signed, and has right lengths.
fn check_answer(asked: &Handoff, case: &Case, out: &[u8], after: Option<&sb_owned>) {
    use sb_op::*;
    let Case { frame, node, .. } = case;
    let answer = Handoff::parse(out).expect("an answer is a handoff packet");
    assert!(answer.is_signed(&SIGN, node), "the tag of the answer");
    let said = &answer.option;
    assert!(said.version == asked.option.version && said.version <= SB_VERSION, "the version");
    let may_keep = asked.op() == Some(SB_OP_PROBE);
    let flags = u32::from(said.flags);
    assert!(flags == 0 || may_keep && flags == SB_PROBE_KEPT, "flags");
    let has_generation =
        [SB_OP_OWNED, SB_OP_UNREAD, SB_OP_UNOWNED, SB_OP_RELEASED, SB_OP_REFUSED, SB_OP_RESTORED]
            .map(|op| op as u8);
    let generation = said.flow_state().generation;
    assert!(generation == 0 || has_generation.contains(&said.op), "a generation that means nothing");
    assert!(answer.second.is_none(), "an answer with a second candidate");
    assert_eq!(
        [&out[..6], &out[6..12], &out[12..14]],
        [&frame[6..12], &frame[..6], &frame[12..14]],
        "Ethernet"
    );
    let outer = ip_header(frame).expect("the outer header");
    let packet = &out[ETHERNET..];
    let (source, dest) = addresses(&frame[ETHERNET..], outer).expect("the outer addresses");
    let own = if outer == 20 { dest } else { address_bytes(address(node)) };
    assert_eq!(addresses(packet, outer), Some((own, source)), "back to the switch");
    let (len, hops) = if outer == 20 { (be16(packet, 2), packet[8]) } else { (be16(packet, 4), packet[7]) };
    let rest = packet.len() - if outer == 20 { 0 } else { 40 };
    assert_eq!((len.map(usize::from), u32::from(hops)), (Some(rest), SB_TTL), "the outer header");
    assert!(outer == 40 || packet[0] != 0x45 || is_sealed(packet), "the outer header's checksum");
    assert_eq!(be16(out, answer.shim + 4).map(usize::from), Some(out.len() - answer.shim), "UDP length");
    assert_eq!(be16(out, answer.shim + 6), Some(0), "UDP checksum");
    assert_eq!((answer.flow, answer.end, answer.icmp), (asked.flow, out.len(), false), "the inner packet");
    let inner = &out[answer.inner..];
    assert!(is_sealed(inner), "the inner header's checksum");
    let data = &frame[asked.inner..][asked.view.data..asked.view.end];
    let (question, said) = (asked.op().expect("an unknown operation is answered"), answer.op());
    let whole = said == Some(SB_OP_REFUSED)
        || said == Some(SB_OP_OWNED) && matches!(question, SB_OP_FORWARD | SB_OP_CONFIRM);
    // A kept packet may be any that came before.
    let is_kept = said == Some(SB_OP_RESTORED);
    assert!(is_kept || inner[answer.view.data..] == *(if whole { data } else { &[] }), "the client's data");
    let has_adoption = asked.option.flow_state().generation != 0;
    let fits = match question {
        SB_OP_ADOPT | SB_OP_FORWARD | SB_OP_CONFIRM | SB_OP_RELEASE if said == Some(SB_OP_OWNED) => {
            has_adoption
        }
        SB_OP_FORWARD | SB_OP_CONFIRM if said == Some(SB_OP_UNOWNED) => has_adoption,
        SB_OP_ADOPT => matches!(said, Some(SB_OP_ADOPTED | SB_OP_REFUSED)),
        SB_OP_FORWARD => said == Some(SB_OP_REFUSED) || said == Some(SB_OP_UNREAD) && !data.is_empty(),
        SB_OP_CONFIRM if data.is_empty() => said == Some(SB_OP_CONFIRMED),
        SB_OP_CONFIRM => matches!(said, Some(SB_OP_CONFIRMED | SB_OP_REFUSED | SB_OP_UNREAD)),
        SB_OP_RELEASE => matches!(said, Some(SB_OP_RELEASED | SB_OP_BUSY | SB_OP_UNREAD)),
        SB_OP_PROBE => matches!(said, Some(SB_OP_OWNED | SB_OP_UNOWNED)),
        SB_OP_KEEP => said == Some(SB_OP_KEPT) && !data.is_empty(),
        SB_OP_RESTORE => is_kept,
        SB_OP_SYNC => said == Some(SB_OP_SYNCED),
        _ => false,
    };
    assert!(fits, "{said:?} answers {question:?}");
    if matches!(said, Some(SB_OP_OWNED | SB_OP_UNREAD)) {
        check_mark(&answer.option, after.expect("a flow that is here"));
    }
    assert!(is_kept || answer.view.seq == asked.view.seq, "the position in the flow");
    let goes_on = matches!(said, Some(SB_OP_RELEASED | SB_OP_CONFIRMED));
    assert!(goes_on || is_kept || answer.view.ack == asked.view.ack, "the acknowledgment");
}

/// Checks that a switch can make its flow entry from the answer.
fn check_mark(option: &sb_option, owned: &sb_owned) {
    let said = option.flow_state();
    assert!(!is_released(Some(owned)), "the flow is here");
    assert_eq!(
        (said.options, said.wscale, said.session),
        (owned.options, owned.wscale, owned.cookies.session)
    );
    let numbers = [said.origin, said.next].map(u32::from_be);
    assert_eq!((numbers, u16::from_be(said.mss)), ([owned.origin, owned.next], owned.mss), "numbers");
    assert_eq!((u16::from_be(said.requests), said.left), (owned.requests, owned.mark_left), "the mark");
    let is_head = |number: u16| owned.heads[usize::from(number >> 6 & 3)] >> (number & 63) & 1;
    let heads = (0..32).map(|i| (is_head(owned.requests.wrapping_sub(i)) as u32) << i).sum::<u32>();
    assert_eq!(u32::from_be(said.heads), heads, "which requests were HEAD");
    let decided = SB_MARK_UPGRADING | SB_MARK_TUNNEL;
    let framing = |framing: u16| u16::from_be(framing) & !decided;
    assert_eq!(framing(said.framing), framing(owned.mark_framing), "what comes at the mark");
}

/// The flow, sequence number and data offset of an outgoing TCP packet.
pub fn leaving(frame: &[u8]) -> Option<(sb_flow, u32, usize)> {
    let header = ip_header(frame)?;
    let packet = &frame[ETHERNET..];
    let tcp = packet.get(header..).filter(|tcp| tcp.len() >= 20)?;
    let tcp_len = usize::from(tcp[12] >> 4) * 4;
    (protocol(packet, header)? == 6 && (20..=tcp.len()).contains(&tcp_len)).then_some(())?;
    let start = ETHERNET + header + tcp_len;
    Some((flow_of(packet, header, false)?, be32(tcp, 4)?, start))
}

/// Invariants of egress.
pub fn check_egress(bench: &Bench, case: &Case, verdict: Verdict, out: &[u8]) {
    let Case { frame, flow, before, .. } = case;
    let after = bench.flow(flow);
    assert!(after.is_none_or(|owned| in_range(&owned)), "the entry became {after:?}");
    if be16(frame, 12) == Some(0x0806) {
        assert!(verdict == Verdict::Drop || !arp_names_vip(out, 14), "a VIP is announced");
        let asks = be16(frame, ETHERNET + 6) == Some(1) && !arp_names_vip(frame, 24);
        assert!(verdict == Verdict::Drop || asks || !arp_names_vip(frame, 14), "more than a question");
        assert_eq!(out.len(), frame.len(), "ARP");
        return;
    }
    assert_eq!(out[..ETHERNET], frame[..ETHERNET], "Ethernet");
    check_same(&frame[ETHERNET..], &out[ETHERNET..], before.as_ref());
    let (Some((_, seq, start)), Some(before)) = (leaving(frame), before) else {
        let answers = flags::SYN | flags::ACK;
        let answers_syn = leaving(frame).is_some()
            && ip_header(frame).is_some_and(|header| frame[ETHERNET + header + 13] & answers == answers);
        if answers_syn && verdict == Verdict::Drop {
            assert_eq!(after, *before, "the SYN-ACK of a replayed handshake");
            return;
        }
        assert_eq!((verdict, after), (Verdict::Next, *before), "none of our business");
        return;
    };
    let tcp = ETHERNET + ip_header(frame).expect("a TCP packet");
    let is_reset = frame[tcp + 13] & flags::RST != 0;
    let is_reset = is_reset && before.state == sb_ownership::SB_OWN_ADOPTING as u8;
    if is_released(Some(before)) || is_reset {
        assert_eq!((verdict, after.as_ref()), (Verdict::Drop, Some(before)), "a mute flow speaks");
        return;
    }
    let after = after.expect("egress forgets nothing");
    if verdict == Verdict::Drop || verdict == Verdict::Redirect && frame.len() == start {
        check_kept_back(frame, before, &after);
        return;
    }
    let changes = may_change(Some(before));
    assert!(verdict == Verdict::Next || verdict == Verdict::Redirect && changes, "{verdict:?}");
    assert!(after.hooked == before.hooked || after.hooked == 0, "a server's packet asks for no cookie");
    assert_eq!(after.cookies.restored, before.cookies.restored, "requests");
    let tries = before.cookies.rewritten.tries;
    let rewritten = sb_changed { tries, ..after.cookies.rewritten };
    let rewritten = if changes { before.cookies.rewritten } else { rewritten };
    let after =
        sb_owned { hooked: before.hooked, cookies: sb_cookies { rewritten, ..after.cookies }, ..after };
    assert!(after.again <= before.again && after.keeps <= before.keeps, "a server promises nothing");
    let sb_owned { again, keeps, path, began, sent, turn_us, first_byte_us, head_bytes, ended, .. } = *before;
    let after =
        sb_owned { again, keeps, path, began, sent, turn_us, first_byte_us, head_bytes, ended, ..after };
    let rest =
        sb_owned { framing: before.framing, responses: before.responses, followed: before.followed, ..after };
    assert_eq!(rest, *before, "only how far responses are followed");
    let allowed = |owned: &sb_owned| sb_framing::from(owned.framing).allowed;
    assert!(allowed(&after) <= allowed(before), "data has been paid for");
    if after.followed != before.followed {
        let len = frame.len().saturating_sub(start) as u32;
        assert_eq!(after.followed, seq.wrapping_add(len), "followed to the end of the packet");
        assert!(after.followed.wrapping_sub(before.followed) as i32 > 0, "followed backwards");
    } else if after.framing.state() == SB_FRAMING_OTHER && changes {
        let sb_framing { state, matched, .. } = before.framing.into();
        let is_cut = state == SB_FRAMING_NAME && matched != 0;
        assert!(is_cut || after == *before, "what is given up is a cut name");
    } else if !after.framing.is_lost() {
        assert_eq!(after, *before, "nothing new, but followed");
    }
    let asked = before.requests.wrapping_sub(before.responses);
    let within = before.framing.is_between_messages() || before.framing.is_lost() || asked != 0;
    let more = after.responses.wrapping_sub(before.responses);
    assert!(!within || more <= asked, "more responses than requests");
}

/// Checks a packet that was kept back: without data, and of a flow whose server can be replaced.
fn check_kept_back(frame: &[u8], before: &sb_owned, after: &sb_owned) {
    let (_, seq, start) = leaving(frame).expect("a TCP packet");
    assert_eq!(frame.len(), start, "data is kept back");
    assert!(before.framing.is_between_messages(), "in the middle of a response");
    let waits = before.requests.wrapping_sub(before.responses);
    if after.state == sb_ownership::SB_OWN_OPEN as u8 {
        assert_eq!((before.again, waits, after), (1, 1, before), "only an acknowledgment is kept back");
        return;
    }
    assert_eq!(before.state, sb_ownership::SB_OWN_OPEN as u8);
    let replaced = waits == 0 && before.keeps == 1 && before.followed == seq;
    assert!(replaced || waits == 1 && before.again == 1, "nobody can replace the server");
    assert_eq!((after.reason, after.answered), (sb_reason::SB_REASON_NO_SOCKET as u8, seq));
}
