//! The framing automaton in C compared with the one in Rust, over random bodies in random packets.

use sb_mode::{SB_MODE_REQUESTS, SB_MODE_UPGRADING};
use switchback_wire::*;

use super::bench::*;
use super::bodies::{chunked, follow, settle};
use super::forward::{ACK, PLAIN, after_head};
use super::frames::*;
use super::fuzz::seed;

const BODIES: usize = 1500;

/// Expected verdict and entry for a packet with data.
fn expected(before: &sb_flow_entry, seq: u32, data: &[u8]) -> (Verdict, sb_flow_entry) {
    let mut entry = *before;
    let end = seq.wrapping_add(data.len() as u32);
    let distance = |to: u32, from: u32| to.wrapping_sub(from) as i32;
    if entry.framing.is_in_data() && entry.locked == 0 && distance(entry.next, end) < 1 << 28 {
        settle(&mut entry);
    }
    if distance(end, entry.next) <= 0 {
        return (Verdict::Tx, entry);
    }
    let read = distance(entry.next, seq);
    let forwarded = read >= 0 && entry.locked == 0 && {
        let new = &data[read as usize..];
        if !entry.framing.is_between_messages() {
            follow(&mut entry, new)
        } else if read == 0 && new == PLAIN.as_bytes() && entry.mode == SB_MODE_REQUESTS as u8 {
            entry = after_head(&entry, PLAIN);
            true
        } else {
            false
        }
    };
    if forwarded { (Verdict::Tx, entry) } else { (Verdict::Drop, sb_flow_entry { locked: 1, ..entry }) }
}

/// A chunked body with chunks of all sizes and spellings, perhaps with mistakes, perhaps followed by a request.
fn body(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..random.below(20) {
        let most = random.pick(&[4, 40, 400, 4000]);
        let len = 1 + random.below(most);
        let zeros = random.pick(&[0, 0, 0, 1, 12]);
        let size = format!("{}{len:x}\r\n", "0".repeat(zeros));
        body.extend_from_slice(if random.one_in(2) { size } else { size.to_uppercase() }.as_bytes());
        body.extend((0..len).map(|_| random.next() as u8));
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(&b"0000"[..1 + random.below(4)]);
    body.extend_from_slice(b"\r\n");
    for _ in 0..random.below(3) {
        body.extend_from_slice(
            random.pick(&["a: b\r\n", "Checksum:\r\n", "x-trailer: \"1\", 2\r\n"]).as_bytes(),
        );
    }
    body.extend_from_slice(b"\r\n");
    if random.one_in(3) {
        for _ in 0..=random.below(2) {
            let at = random.below(body.len());
            let byte = random.pick(b"\r\n;:0aG \0\xff");
            match random.below(3) {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => drop(body.remove(at)),
            }
        }
    }
    if random.one_in(2) {
        body.extend_from_slice(PLAIN.as_bytes());
    }
    body
}

/// The range of the stream in the next packet after `come` bytes: usually the next one, sometimes with a repeated part,
/// seldom after a gap.
fn next_packet(random: &mut Random, stream: &[u8], come: usize) -> std::ops::Range<usize> {
    let start = match random.below(64) {
        0 => (come + 1 + random.below(9)).min(stream.len() - 1),
        1..16 => come - random.below(come.min(200) + 1),
        _ => come,
    };
    let most = random.pick(&[2, 10, 100, 1400]);
    let len = 1 + random.below(most);
    start..(start + len).min(stream.len())
}

#[test]
fn the_program_follows_bodies_as_the_parser_does() {
    let bench = Bench::new();
    let seed = seed();
    let mut ends = [0, 0];
    for number in 0..BODIES {
        let random = &mut Random(seed.wrapping_add(number as u64));
        let flow = random.pick(&flows());
        let stream = body(random);
        let start = random.next() as u32;
        let allowed = if random.one_in(8) { random.next() % 10_000 } else { u64::MAX };
        let mode = random.pick(&[SB_MODE_REQUESTS, SB_MODE_REQUESTS, SB_MODE_UPGRADING]) as u8;
        let mut entry = sb_flow_entry { next: start, mode, ..chunked(allowed) };
        bench.put(&flow, &entry);
        let mut come = 0;
        while come < stream.len() && entry.locked == 0 {
            let part = next_packet(random, &stream, come);
            let (seq, data) = (start.wrapping_add(part.start as u32), &stream[part.clone()]);
            let (verdict, after) = expected(&entry, seq, data);
            let got = bench.run(&Tcp::data(&flow, seq, ACK, data).frame(), 1).0;
            let what = format!(
                "SWITCHBACK_FUZZ_SEED={seed}, body {number}: {entry:?} and {part:?} of {stream:02x?}"
            );
            assert_eq!((got, bench.l7().mapped(&flow)), (verdict, Some(after)), "{what}");
            (come, entry) = (come.max(part.end), after);
        }
        // Exactly the expected packets go to the L7 thread.
        assert_eq!(
            bench.records().len(),
            usize::from(entry.locked),
            "SWITCHBACK_FUZZ_SEED={seed}, body {number}"
        );
        ends[usize::from(entry.locked)] += 1;
    }
    assert!(ends.iter().all(|count| *count > BODIES / 10), "{ends:?} were followed, and were not");
}
