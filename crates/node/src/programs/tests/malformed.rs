//! Packets that lie about themselves, are parts of others, or have headers that no program looks behind.

use NodeCounter::*;
use sb_op::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

/// What is done to the outer and the inner packet of a frame.
type Change = fn(&mut [u8], &mut [u8]);

/// What comes in with a right tag, which covers no IP header.
#[test]
fn headers_of_handoff_packets() {
    // Description, IPv4 (4) or IPv6 (6) inside and outside, change, verdict, counter.
    let rows: &[(&str, u8, Change, Verdict, Option<NodeCounter>)] = &[
        ("as it is", 4, |_, _| {}, Verdict::Pass, Some(Forwarded)),
        ("the first fragment", 4, |_, inner| inner[6] = 0x20, Verdict::Drop, Some(DropMalformed)),
        ("a later fragment", 4, |_, inner| inner[7] = 1, Verdict::Drop, Some(DropMalformed)),
        ("IP options", 4, |_, inner| inner[0] = 0x46, Verdict::Drop, Some(DropMalformed)),
        ("another version", 4, |_, inner| inner[0] = 0x65, Verdict::Drop, Some(DropMalformed)),
        ("a TCP header too short", 4, |_, inner| inner[32] = 0x40, Verdict::Drop, Some(DropMalformed)),
        ("a TCP header too long", 4, |_, inner| inner[32] = 0xf0, Verdict::Drop, Some(DropMalformed)),
        ("a packet too long", 4, |_, inner| inner[3] += 1, Verdict::Drop, Some(DropMalformed)),
        ("a packet too long, outside", 4, |outer, _| outer[3] += 7, Verdict::Drop, Some(DropMalformed)),
        ("the first fragment, outside", 4, |outer, _| outer[6] |= 0x20, Verdict::Next, None),
        ("a later fragment, outside", 4, |outer, _| outer[7] = 1, Verdict::Next, None),
        ("IP options, outside", 4, |outer, _| outer[0] = 0x46, Verdict::Next, None),
        ("another version, outside", 4, |outer, _| outer[0] = 0x65, Verdict::Next, None),
        ("as it is", 6, |_, _| {}, Verdict::Pass, Some(Forwarded)),
        ("a fragment header", 6, |_, inner| inner[6] = 44, Verdict::Drop, Some(DropMalformed)),
        ("hop-by-hop options", 6, |_, inner| inner[6] = 0, Verdict::Drop, Some(DropMalformed)),
        ("another version", 6, |_, inner| inner[0] = 0x45, Verdict::Drop, Some(DropMalformed)),
        ("a TCP header too short", 6, |_, inner| inner[52] = 0x40, Verdict::Drop, Some(DropMalformed)),
        ("a TCP header too long", 6, |_, inner| inner[52] = 0xf0, Verdict::Drop, Some(DropMalformed)),
        ("a packet too long", 6, |_, inner| inner[5] += 1, Verdict::Drop, Some(DropMalformed)),
    ];
    alone(|| {
        let bench = Bench::new();
        let mut known = [4u16, 6].map(|version| {
            let flow = flow(version == 6, 50_000 + version, PORT);
            KnownFlow { flow, seq: 1000, ack: 5000, socket: None }
        });
        for known in &mut known {
            known.adopt(&bench);
        }
        let padded = [&[][..], &[0xa5; 6]];
        let rows = rows.iter().flat_map(|row| padded.map(|padding| (row, padding)));
        for ((what, version, change, verdict, counter), padding) in rows {
            let known = &known[usize::from(*version == 6)];
            let mut packet = known.hand_over(known.option(SB_OP_FORWARD), b"");
            let (outer, inner) = packet.split_at_mut(20 + size_of::<sb_shim>());
            change(outer, inner);
            let before = NodeCounter::ALL.map(|counter| bench.counter(counter));
            let frame = ethernet(OURS, ROUTER, &packet);
            let frame = [&frame[..12], &[8, 0], &frame[14..], padding].concat();
            assert_eq!(bench.ingress(&frame, 0).0, *verdict, "IPv{version}: {what}");
            let after = NodeCounter::ALL.map(|counter| bench.counter(counter));
            let moved = NodeCounter::ALL.into_iter().zip(after.iter().zip(before));
            let moved: Vec<_> =
                moved.filter(|(_, (after, before))| *after != before).map(|row| row.0).collect();
            assert_eq!(moved, Vec::from_iter(*counter), "IPv{version}: {what}");
        }
    });
}

/// A packet: description, IPv6, the change of a sound one, and the verdict.
type Egress = (&'static str, bool, fn(&mut [u8]), Verdict);

/// What a server sends on a flow that has been released.
#[test]
fn headers_of_packets_that_leave() {
    let rows: &[Egress] = &[
        ("as it is", false, |_| {}, Verdict::Drop),
        ("the first fragment", false, |packet| packet[6] = 0x20, Verdict::Drop),
        ("no length (BIG TCP)", false, |packet| packet[2..4].fill(0), Verdict::Drop),
        ("IP options", false, |packet| packet[0] = 0x46, Verdict::Next),
        ("another version", false, |packet| packet[0] = 0x65, Verdict::Next),
        ("a TCP header too short", false, |packet| packet[32] = 0x40, Verdict::Next),
        ("a TCP header too long", false, |packet| packet[32] = 0xf0, Verdict::Next),
        ("as it is", true, |_| {}, Verdict::Drop),
        ("no length (BIG TCP)", true, |packet| packet[4..6].fill(0), Verdict::Drop),
        ("a fragment header", true, |packet| packet[6] = 44, Verdict::Next),
    ];
    alone(|| {
        let bench = Bench::new();
        for (what, v6, change, verdict) in rows {
            let known = KnownFlow { flow: flow(*v6, 50_000, PORT), seq: 1000, ack: 5000, socket: None };
            let state = sb_ownership::SB_OWN_RELEASED as u8;
            bench.put(&known.flow, &sb_owned { state, ..known.owned() });
            let mut frame = response(&known.flow, (known.ack, known.seq), flags::ACK, false, b"late");
            change(&mut frame[14..]);
            let muted = bench.counter(Muted);
            assert_eq!(bench.egress(&frame).0, *verdict, "{what}");
            assert_eq!(bench.counter(Muted), muted + u64::from(*verdict == Verdict::Drop), "{what}");
        }
    });
}
