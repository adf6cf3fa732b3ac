//! Heads that servers get instead of their clients'.
//!
//! The new head may be longer or shorter. Its bytes have numbers at the node that end where those of the client's head end,
//! so all that follows has the same number on both sides, and nothing has to be translated (docs/decisions/0065). Its first
//! packet has the number of the client's first byte all the same, because that is what switch and node know the request by;
//! the node corrects it when it gives the packet to its kernel.

use switchback_wire::Seq;
use switchback_wire::packet::with_data;

use crate::held::{Held, HeldPacket};

/// Data of a packet that fits any link.
const PIECE: usize = 1024;

/// The head that the server gets instead of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHead {
    text: Vec<u8>,
    grown: i16,
}

impl NewHead {
    /// The head `text` instead of one of `len` bytes. None if a handoff packet cannot tell the difference.
    pub fn new(text: Vec<u8>, len: usize) -> Option<NewHead> {
        let grown = i16::try_from(text.len() as i64 - len as i64).ok()?;
        Some(NewHead { text, grown })
    }

    /// The head as the server gets it.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// By how many bytes it is longer than the client's.
    pub fn grown(&self) -> i16 {
        self.grown
    }

    /// Length of the client's head.
    fn len(&self) -> usize {
        self.text.len().saturating_add_signed(-isize::from(self.grown))
    }

    /// It goes into one packet, in the place of these of the client.
    pub fn is_one_packet(&self, packets: &Held) -> bool {
        self.text.len() <= longest(packets)
    }

    /// The packets of a request that begins at `begins`, with this head.
    pub fn packets(&self, packets: &Held, begins: Seq) -> Vec<HeldPacket> {
        let Some(first) = packets.first() else { return Vec::new() };
        let end = begins + self.len();
        let closes = packets.iter().any(|packet| packet.end() == end && packet.is_last());
        let mut made = Vec::new();
        let mut rest = &self.text[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(cut_at(rest, longest(packets)));
            let seq = if made.is_empty() { begins } else { end - rest.len() as u32 };
            let bytes = with_data(&first.bytes, &first.view, seq, piece, closes && behind.is_empty());
            made.extend(HeldPacket::new(&bytes));
            rest = behind;
        }
        made.extend(
            packets.iter().filter_map(|packet| packet.part(end.later(packet.view.seq), packet.end())),
        );
        made
    }
}

/// The most data of one packet: as much as the client's have had.
fn longest(packets: &Held) -> usize {
    packets.iter().map(|packet| packet.view.len()).fold(PIECE, usize::max)
}

/// Length of the next piece of a head. It ends between words, so that the names of cookies stay whole, if it can.
fn cut_at(text: &[u8], longest: usize) -> usize {
    if text.len() <= longest {
        return text.len();
    }
    let ends_word = |byte: &u8| matches!(byte, b'\n' | b' ' | b';');
    text[..longest].iter().rposition(ends_word).map_or(longest, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use switchback_wire::packet::{flags, segment};
    use switchback_wire::{address_bytes, sb_flow};

    use super::*;

    fn packet(seq: Seq, data: &[u8], fin: bool) -> HeldPacket {
        let flow = sb_flow {
            client: address_bytes("192.0.2.1".parse().unwrap()),
            vip: address_bytes("192.0.2.100".parse().unwrap()),
            client_port: 40000u16.to_be(),
            vip_port: 80u16.to_be(),
        };
        let fin = if fin { flags::FIN } else { 0 };
        let bytes = segment(&flow, true, (seq, Seq(9)), flags::ACK | fin, Some((3, 4)), data);
        HeldPacket::new(&bytes).unwrap()
    }

    proptest! {
        /// What the node numbers from `begins - grown` on is the new head, and behind it the client's data at its own numbers.
        #[test]
        fn the_new_head_ends_where_the_clients_ends(
            begins in any::<u32>().prop_map(Seq),
            head in "[a-z ]{1,60}",
            text in prop_oneof!["[a-z; ]{1,90}", "[a-z; ]{2000,5000}"],
            body in "[a-z]{0,40}",
            cuts in prop::collection::vec(1usize..100, 0..4),
            closes in any::<bool>(),
        ) {
            let data = format!("{head}{body}");
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < data.len()).collect();
            cuts.extend([0, data.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let parts = cuts.windows(2).map(|cut| {
                let is_last = closes && cut[1] == data.len();
                packet(begins + cut[0], &data.as_bytes()[cut[0]..cut[1]], is_last)
            });
            let held = Held::of(parts.collect());
            let new = NewHead::new(text.clone().into_bytes(), head.len()).unwrap();
            let sent = new.packets(&held, begins);
            prop_assert_eq!(sent[0].view.seq, begins);
            let grown = u32::from_ne_bytes(i32::from(new.grown()).to_ne_bytes());
            let mut at = begins - grown;
            let mut got = Vec::new();
            for (index, packet) in sent.iter().enumerate() {
                let seq = if index == 0 { packet.view.seq - grown } else { packet.view.seq };
                prop_assert_eq!(seq, at);
                got.extend_from_slice(packet.data());
                at += packet.data().len();
                prop_assert_eq!(packet.is_last(), closes && index + 1 == sent.len());
                prop_assert!(packet.data().len() <= PIECE);
            }
            prop_assert_eq!(String::from_utf8(got).unwrap(), format!("{text}{body}"));
            prop_assert_eq!(at, begins + data.len());
            prop_assert_eq!(new.is_one_packet(&held), text.len() <= PIECE);
        }
    }
}
