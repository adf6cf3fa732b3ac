//! The IP packets inside records and handoff packets: parsing, cutting, and construction.

use crate::Seq;
use crate::generated::{sb_flow, sb_op};

/// TCP flags (RFC 9293 section 3.1).
pub mod flags {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
}

/// The layout of an IPv4 or IPv6 packet with TCP. IP options and extension headers are not expected, since the programs
/// drop such packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpView {
    /// Offset of the TCP header: 20 or 40.
    pub tcp: usize,
    /// Offset of the data.
    pub data: usize,
    /// End of the packet.
    pub end: usize,
    /// Sequence number of the first byte of data.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// See [`flags`].
    pub flags: u8,
}

impl TcpView {
    /// The view of a packet; None unless it is whole TCP over IP.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (tcp, end) = match packet.first()? >> 4 {
            4 => (20, usize::from(be16(packet, 2)?)),
            6 => (40, 40 + usize::from(be16(packet, 4)?)),
            _ => return None,
        };
        let header = packet.get(tcp..)?;
        let data = tcp + usize::from(header.get(12)? >> 4) * 4;
        if header.len() < 20 || data < tcp + 20 || data > end || end > packet.len() {
            return None;
        }
        let flags = header[13];
        Some(TcpView { tcp, data, end, seq: Seq(be32(header, 4)), ack: Seq(be32(header, 8)), flags })
    }

    /// Bytes of data.
    pub fn len(&self) -> usize {
        self.end - self.data
    }

    /// Sequence number after the last byte of data.
    pub fn end_seq(&self) -> Seq {
        self.seq + self.len()
    }

    /// Whether the packet has no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// TSval and TSecr of a packet with the timestamps option.
pub fn timestamps(packet: &[u8], view: &TcpView) -> Option<(u32, u32)> {
    let at = timestamps_at(packet, view)?;
    Some((be32(packet, at + 2), be32(packet, at + 6)))
}

/// The offset of the timestamps option.
fn timestamps_at(packet: &[u8], view: &TcpView) -> Option<usize> {
    let mut options = packet.get(view.tcp + 20..view.data)?;
    loop {
        match *options {
            [0, ..] | [] => return None,
            [1, ref rest @ ..] => options = rest,
            [8, 10, ..] if options.len() >= 10 => return Some(view.data - options.len()),
            [_, len @ 2..=255, ..] => options = options.get(usize::from(len)..)?,
            _ => return None,
        }
    }
}

/// Raises the packet's acknowledgment to `ack` and its echoed timestamp to `echo`, where these are later than its own.
pub fn bring_up_to_date(packet: &mut [u8], view: &mut TcpView, ack: Seq, echo: Option<u32>) {
    if ack.after(view.ack) {
        view.ack = ack;
        packet[view.tcp + 8..view.tcp + 12].copy_from_slice(&ack.0.to_be_bytes());
    }
    if let (Some(echo), Some(at)) = (echo, timestamps_at(packet, view))
        && (echo.wrapping_sub(be32(packet, at + 6)) as i32) > 0
    {
        packet[at + 6..at + 10].copy_from_slice(&echo.to_be_bytes());
    }
    seal(&mut packet[..view.end], view.tcp);
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("the caller has checked the length"))
}

/// A copy of a TCP packet with only `range` of its data, and sequence number, lengths and checksums to match. FIN stays
/// with the part that ends the data; every part has PSH.
pub fn cut(packet: &[u8], view: &TcpView, range: std::ops::Range<usize>) -> Vec<u8> {
    let last = range.end == view.len();
    let mut out = Vec::with_capacity(view.data + range.len());
    out.extend_from_slice(&packet[..view.data]);
    out.extend_from_slice(&packet[view.data + range.start..view.data + range.end]);
    let seq = view.seq + range.start;
    out[view.tcp + 4..view.tcp + 8].copy_from_slice(&seq.0.to_be_bytes());
    out[view.tcp + 13] = (view.flags & if last { 0xff } else { !flags::FIN }) | flags::PSH;
    seal(&mut out, view.tcp);
    out
}

/// A TCP packet with the headers of `packet` and this data, with FIN if it `closes` the connection.
pub fn with_data(packet: &[u8], view: &TcpView, seq: Seq, data: &[u8], closes: bool) -> Vec<u8> {
    let mut out = [&packet[..view.data], data].concat();
    out[view.tcp + 4..view.tcp + 8].copy_from_slice(&seq.0.to_be_bytes());
    out[view.tcp + 13] = view.flags & !flags::FIN | flags::PSH | if closes { flags::FIN } else { 0 };
    seal(&mut out, view.tcp);
    out
}

/// Appends the data of `next`, which follows that of `packet`, with its FIN. Acknowledgment and options stay unchanged.
pub fn append(packet: &mut Vec<u8>, view: &mut TcpView, next: &[u8], next_view: &TcpView) {
    packet.truncate(view.end);
    packet.extend_from_slice(&next[next_view.data..next_view.end]);
    packet[view.tcp + 13] |= (next_view.flags & flags::FIN) | flags::PSH;
    seal(packet, view.tcp);
    view.end = packet.len();
    view.flags = packet[view.tcp + 13];
}

/// A TCP packet without data or options from the flow's client (`from_client`) or its VIP.
pub fn bare(flow: &sb_flow, from_client: bool, seq: Seq, ack: Seq, tcp_flags: u8) -> Vec<u8> {
    segment(flow, from_client, (seq, ack), tcp_flags, None, &[])
}

/// A TCP packet with data, and with (TSval, TSecr) where the connection has timestamps (RFC 7323 section 3.2).
pub fn segment(
    flow: &sb_flow,
    from_client: bool,
    numbers: (Seq, Seq),
    tcp_flags: u8,
    timestamps: Option<(u32, u32)>,
    data: &[u8],
) -> Vec<u8> {
    build(flow, from_client, numbers, tcp_flags, &timestamp_option(timestamps), data)
}

/// An acknowledgment from the flow's VIP with up to three SACK blocks (RFC 2018 section 3): pairs of sequence numbers,
/// of the first byte and the one after the last. The window is scaled, as in the header.
pub fn acknowledgment(
    flow: &sb_flow,
    numbers: (Seq, Seq),
    timestamps: Option<(u32, u32)>,
    window: u16,
    blocks: &[(Seq, Seq)],
) -> Vec<u8> {
    let mut options = timestamp_option(timestamps);
    let blocks = &blocks[..blocks.len().min(3)];
    if !blocks.is_empty() {
        options.extend_from_slice(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (from, to) in blocks {
            options.extend_from_slice(&from.0.to_be_bytes());
            options.extend_from_slice(&to.0.to_be_bytes());
        }
    }
    let mut packet = build(flow, false, numbers, flags::ACK, &options, &[]);
    let tcp = packet.len() - 20 - options.len();
    packet[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
    seal(&mut packet, tcp);
    packet
}

/// Sets the window field and updates the checksum.
pub fn set_window(packet: &mut [u8], window: u16) {
    let Some(view) = TcpView::parse(packet) else { return };
    packet[view.tcp + 14..view.tcp + 16].copy_from_slice(&window.to_be_bytes());
    seal(packet, view.tcp);
}

fn timestamp_option(timestamps: Option<(u32, u32)>) -> Vec<u8> {
    let Some((value, echo)) = timestamps else { return Vec::new() };
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// A packet with TCP options in whole words.
pub(crate) fn build(
    flow: &sb_flow,
    from_client: bool,
    (seq, ack): (Seq, Seq),
    tcp_flags: u8,
    options: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let (source, dest) = if from_client { (flow.client(), flow.vip()) } else { (flow.vip(), flow.client()) };
    let mut out = Vec::with_capacity(60 + options.len() + data.len());
    match (source.ip(), dest.ip()) {
        (std::net::IpAddr::V4(s), std::net::IpAddr::V4(d)) => {
            out.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0]);
            out.extend_from_slice(&s.octets());
            out.extend_from_slice(&d.octets());
        }
        _ => {
            out.extend_from_slice(&[0x60, 0, 0, 0, 0, 0, 6, 64]);
            out.extend_from_slice(&crate::address_bytes(source.ip()));
            out.extend_from_slice(&crate::address_bytes(dest.ip()));
        }
    }
    let tcp = out.len();
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&dest.port().to_be_bytes());
    out.extend_from_slice(&seq.0.to_be_bytes());
    out.extend_from_slice(&ack.0.to_be_bytes());
    let words = 5 + options.len() as u8 / 4;
    out.extend_from_slice(&[words << 4, tcp_flags, 0xff, 0xff, 0, 0, 0, 0]);
    out.extend_from_slice(options);
    out.extend_from_slice(data);
    seal(&mut out, tcp);
    out
}

/// Sets the IP length and both checksums.
pub(crate) fn seal(packet: &mut [u8], tcp: usize) {
    let len = packet.len();
    packet[tcp + 16..tcp + 18].fill(0);
    let addresses = if tcp == 20 {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[10..12].fill(0);
        let check = fold(sum(&packet[..20]));
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        12..20
    } else {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        8..40
    };
    let pseudo = sum(&packet[addresses]) + 6 + (len - tcp) as u64;
    let check = fold(pseudo + sum(&packet[tcp..]));
    packet[tcp + 16..tcp + 18].copy_from_slice(&check.to_be_bytes());
}

/// The unfolded Internet checksum (RFC 1071).
pub fn sum(bytes: &[u8]) -> u64 {
    let mut pairs = bytes.chunks_exact(2);
    let mut total: u64 = pairs.by_ref().map(|p| u64::from(u16::from_be_bytes([p[0], p[1]]))).sum();
    if let [odd] = pairs.remainder() {
        total += u64::from(*odd) << 8;
    }
    total
}

/// The Internet checksum (RFC 1071): the one's complement of the folded sum.
pub fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

impl sb_op {
    /// The operation with this number.
    pub fn from_number(number: u8) -> Option<sb_op> {
        sb_op::ALL.into_iter().find(|op| *op as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(v6: bool) -> sb_flow {
        let (client, vip) = if v6 { ("2001:db8::1", "2001:db8::100") } else { ("192.0.2.1", "192.0.2.100") };
        sb_flow {
            client: crate::address_bytes(client.parse().unwrap()),
            vip: crate::address_bytes(vip.parse().unwrap()),
            client_port: 40000u16.to_be(),
            vip_port: 80u16.to_be(),
        }
    }

    /// Asserts that the checksums are right: the packet sums up to zero, pseudo-header included.
    fn assert_sealed(packet: &[u8], view: &TcpView) {
        let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
        if view.tcp == 20 {
            assert_eq!(fold(sum(&packet[..20])), 0);
        }
        let pseudo = sum(&packet[addresses]) + 6 + (view.end - view.tcp) as u64;
        assert_eq!(fold(pseudo + sum(&packet[view.tcp..view.end])), 0);
    }

    #[test]
    fn a_bare_packet_reads_back() {
        for v6 in [false, true] {
            let packet = bare(&flow(v6), true, Seq(7), Seq(9), flags::RST | flags::ACK);
            let view = TcpView::parse(&packet).unwrap();
            assert_eq!((view.seq, view.ack, view.flags), (Seq(7), Seq(9), flags::RST | flags::ACK));
            assert!(view.is_empty());
            assert_sealed(&packet, &view);
        }
    }

    #[test]
    fn an_acknowledgment_reads_back() {
        for (times, len) in [(None, 20 + 12), (Some((3, 4)), 20 + 24)] {
            let packet = acknowledgment(&flow(false), (Seq(1), Seq(2)), times, 7, &[(Seq(10), Seq(20))]);
            let view = TcpView::parse(&packet).unwrap();
            assert_eq!((view.seq, view.ack, view.flags, view.is_empty()), (Seq(1), Seq(2), flags::ACK, true));
            assert_eq!((view.data - view.tcp, timestamps(&packet, &view)), (len, times));
            assert_eq!(packet[view.tcp + 14..view.tcp + 16], [0, 7]);
            assert_eq!(packet[view.data - 10..view.data], [5, 10, 0, 0, 0, 10, 0, 0, 0, 20]);
            assert_sealed(&packet, &view);
        }
    }

    #[test]
    fn timestamps_are_found_behind_other_options() {
        let packet = segment(&flow(true), false, (Seq(1), Seq(2)), flags::ACK, Some((3, 4)), b"odd");
        let view = TcpView::parse(&packet).unwrap();
        assert_eq!(timestamps(&packet, &view), Some((3, 4)));
        assert_eq!(&packet[view.data..view.end], b"odd");
        assert_sealed(&packet, &view);
        let bare = bare(&flow(true), false, Seq(1), Seq(2), flags::ACK);
        assert_eq!(timestamps(&bare, &TcpView::parse(&bare).unwrap()), None);
    }

    #[test]
    fn cutting_keeps_every_byte_once() {
        for v6 in [false, true] {
            let mut packet = bare(&flow(v6), true, Seq(u32::MAX - 2), Seq(9), flags::ACK | flags::FIN);
            packet.extend_from_slice(b"0123456789");
            let tcp = if v6 { 40 } else { 20 };
            seal(&mut packet, tcp);
            let view = TcpView::parse(&packet).unwrap();
            let (head, tail) = (cut(&packet, &view, 0..4), cut(&packet, &view, 4..10));
            let (h, t) = (TcpView::parse(&head).unwrap(), TcpView::parse(&tail).unwrap());
            assert_eq!(&head[h.data..h.end], b"0123");
            assert_eq!(&tail[t.data..t.end], b"456789");
            assert_eq!(t.seq, h.seq + 4u32);
            assert_eq!((h.flags & flags::FIN, t.flags & flags::FIN), (0, flags::FIN));
            assert_sealed(&head, &h);
            assert_sealed(&tail, &t);
        }
    }

    #[test]
    fn numbers_are_brought_up_to_date_but_never_back() {
        for v6 in [false, true] {
            let mut packet =
                segment(&flow(v6), true, (Seq(1), Seq(u32::MAX)), flags::ACK, Some((3, 4)), b"GET");
            let mut view = TcpView::parse(&packet).unwrap();
            bring_up_to_date(&mut packet, &mut view, Seq(10), Some(9));
            assert_eq!(TcpView::parse(&packet), Some(view));
            assert_eq!((view.ack, timestamps(&packet, &view)), (Seq(10), Some((3, 9))));
            assert_sealed(&packet, &view);
            bring_up_to_date(&mut packet, &mut view, Seq(8), Some(5));
            assert_eq!((view.ack, timestamps(&packet, &view)), (Seq(10), Some((3, 9))));
            assert_sealed(&packet, &view);
        }
    }

    /// The same bytes can occur inside an earlier option.
    #[test]
    fn the_echo_is_that_of_the_timestamps_and_of_no_other_option() {
        let times = timestamp_option(Some((3, 4)));
        let options = [&[254, 12][..], &times[2..], &times].concat();
        let mut packet = build(&flow(false), true, (Seq(1), Seq(2)), flags::ACK, &options, b"GET");
        let mut view = TcpView::parse(&packet).unwrap();
        bring_up_to_date(&mut packet, &mut view, Seq(2), Some(9));
        assert_eq!(timestamps(&packet, &view), Some((3, 9)));
        assert_eq!(packet[view.tcp + 20..view.tcp + 32], options[..12]);
        assert_sealed(&packet, &view);
    }

    #[test]
    fn truncated_packets_are_none() {
        let packet = bare(&flow(false), true, Seq(7), Seq(9), flags::ACK);
        for len in 0..packet.len() {
            assert_eq!(TcpView::parse(&packet[..len]), None, "{len} bytes");
        }
    }
}
