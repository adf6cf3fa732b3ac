//! Fuzzing: packets of every kind in the rows, changed at random, for flows with random entries. The program must keep
//! the invariants in [`super::invariants`].
//!
//! `SWITCHBACK_FUZZ_SECONDS` sets the duration, `SWITCHBACK_FUZZ_SEED` repeats a run.

use std::time::{Duration, Instant, SystemTime};

use sb_mode::*;
use switchback_http::framing::generated::{SB_FRAMING_SKIP, sb_framing};
use switchback_wire::packet::TcpView;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::hex;
use super::invariants::*;
use crate::plan::NodeId;

const SECONDS: u64 = 5;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// The seed from the environment, or a new one for each run.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    setting("SWITCHBACK_FUZZ_SEED").unwrap_or(now.as_nanos() as u64)
}

/// A packet and the entry of its flow. Prints itself when a check fails.
pub struct Case {
    seed: u64,
    number: u64,
    pub frame: Vec<u8>,
    pub flow: sb_flow,
    pub before: Option<sb_flow_entry>,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { seed, number, frame, flow, before } = self;
            eprintln!("SWITCHBACK_FUZZ_SEED={seed}, number {number}: {}", hex(frame));
            eprintln!("{} to {}: {before:?}", flow.client(), flow.vip());
        }
    }
}

/// A random entry, often with its mark near the packet.
fn random_entry(random: &mut Random, view: Option<&TcpView>) -> sb_flow_entry {
    let (seq, len) = view.map_or((0, 0), |view| (view.seq.0, view.len() as u32));
    let extreme = |random: &mut Random| {
        let any = random.next();
        random.pick(&[0, 1, 5, len.into(), 1 << 28, 1 << 29, (1 << 29) + 1, 1 << 59, 1 << 63, u64::MAX, any])
    };
    let near = random.pick(&[0, 0, 0, 1, len, len.wrapping_sub(1), len / 2, len + 1, u32::MAX]);
    let far = extreme(random) as u32;
    let next = seq.wrapping_add(if random.one_in(4) { far } else { near });
    let known = random.below(50) as u16;
    let any = random.next() as u16;
    let skip = SB_FRAMING_SKIP;
    let framing = sb_framing {
        left: extreme(random),
        allowed: extreme(random),
        state: random.pick(&[0, 0, 2, 3, 4 | skip, known, known | skip, any]),
        status: random.next() as u16,
        flags: random.next() as u8,
        ..Default::default()
    };
    let modes = [
        SB_MODE_HELD,
        SB_MODE_SOUGHT,
        SB_MODE_REQUESTS,
        SB_MODE_REQUESTS,
        SB_MODE_REQUESTS,
        SB_MODE_TUNNEL,
        SB_MODE_UPGRADING,
        SB_MODE_ANSWERED,
    ];
    let nodes = [
        V4,
        V6,
        UNRESOLVED,
        ON_ANOTHER_INTERFACE,
        ENDS_IN_ZEROS,
        HERE[0],
        HERE[1],
        DEAD,
        UNKNOWN,
        NodeId(1023),
        NodeId(1024),
        NodeId(u32::MAX),
    ];
    sb_flow_entry {
        node: random.pick(&nodes).0,
        origin: random.pick(&[seq, seq.wrapping_add(1), far]),
        next,
        mss: random.next() as u16,
        options: random.next() as u8,
        wscale: random.next() as u8,
        mode: random.pick(&modes) as u8,
        locked: u8::from(random.one_in(8)),
        contested: u8::from(random.one_in(4)),
        requests: random.pick(&[0, 1, u16::MAX, any]),
        heads: random.next() as u32,
        generation: random.next() as u32,
        reserved: 0,
        framing: framing.into(),
        session: if random.one_in(4) {
            sb_session::new(*b"abc", Some(*b"xyz"))
        } else {
            sb_session::default()
        },
        begins: next.wrapping_sub(random.pick(&[0, 1, 40, 1 << 20])),
        tries: random.below(5) as u8,
        ahead: u8::from(random.one_in(8)),
        turn: 0,
    }
}

/// Changes, truncates and extends a frame, and often repairs lengths and checksums to get past the first checks.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let len = if random.one_in(2) { frame.len().min(80) } else { frame.len() };
        let at = random.below(len);
        let any = random.next() as u8;
        let bit = 1 << random.below(8);
        frame[at] = random.pick(&[any, frame[at] ^ bit, frame[at] ^ bit, 0, 0xff]);
    }
    match random.below(12) {
        0 => frame.truncate(14 + random.below(frame.len() - 13)),
        1 => {
            let most = random.pick(&[4, 60, 1000]);
            let more = random.below(most);
            frame.extend((0..more).map(|_| random.next() as u8));
        }
        _ => {}
    }
    if random.one_in(2) {
        repair(frame);
    }
}

/// Repairs lengths and checksums of IP, TCP and ICMP where there is room for them.
fn repair(frame: &mut [u8]) {
    let packet = &mut frame[14..];
    let len = packet.len();
    let start = l3_len(packet);
    if len < start {
        return;
    }
    let (at, said) = if start == 20 { (2, len) } else { (4, len - 40) };
    packet[at..at + 2].copy_from_slice(&(said as u16).to_be_bytes());
    if start == 20 {
        seal_ipv4(packet);
    }
    let check = match protocol(packet) {
        6 => start + 16,
        1 | 58 => start + 2,
        _ => return,
    };
    if len >= check + 2 {
        packet[check..check + 2].fill(0);
        let sum = transport_checksum(packet).to_be_bytes();
        packet[check..check + 2].copy_from_slice(&sum);
    }
}

/// Random bytes after a prefix that some part of the program parses.
fn noise(random: &mut Random) -> Vec<u8> {
    let most = random.pick(&[60, 150, 1500]);
    let len = 14 + random.below(most);
    let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    let kind = random.pick(&[[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06], [frame[12], frame[13]]]);
    frame[12..14].copy_from_slice(&kind);
    frame
}

/// The packet of a row, with its flow and entry.
struct Example {
    frame: Vec<u8>,
    flow: sb_flow,
    before: Option<sb_flow_entry>,
}

fn examples(bench: &Bench) -> Vec<Vec<Example>> {
    let rows = super::all_rows(bench).into_iter();
    rows.map(|rows| {
        let short = rows.into_iter().filter(|row| row.frame.len() < 2500);
        short.map(|row| Example { frame: row.frame, flow: row.flow, before: row.before }).collect()
    })
    .collect()
}

fn next_case(random: &mut Random, examples: &[Vec<Example>], seed: u64, number: u64) -> Case {
    let group = &examples[random.below(examples.len())];
    let example = &group[random.below(group.len())];
    let mut frame = if random.one_in(32) { noise(random) } else { example.frame.clone() };
    mutate(random, &mut frame);
    let view = client_packet(&frame);
    let packet = &frame[14..];
    let flow = match &view {
        Some(view) => flow_of(packet, view.tcp),
        None => flow_inside(packet).unwrap_or(example.flow),
    };
    let before = match random.below(4) {
        0 => None,
        1 => example.before,
        _ => Some(random_entry(random, view.as_ref())),
    };
    Case { seed, number, frame, flow, before }
}

#[test]
fn whatever_comes_some_things_never_happen() {
    let bench = Bench::new();
    let examples = examples(&bench);
    let seed = seed();
    let mut random = Random(seed);
    let time = Duration::from_secs(setting("SWITCHBACK_FUZZ_SECONDS").unwrap_or(SECONDS));
    let start = Instant::now();
    let mut verdicts = [0; 4];
    let mut number = 0;
    while start.elapsed() < time {
        let case = next_case(&mut random, &examples, seed, number);
        bench.forget(&case.flow);
        if let Some(entry) = &case.before {
            bench.put(&case.flow, entry);
        }
        let (verdict, out) = bench.run(&case.frame, 1);
        check(&bench, &case, verdict, &out);
        verdicts[verdict as usize] += 1;
        number += 1;
    }
    println!(
        "{number} packets in {:?}: {verdicts:?} were dropped, passed, sent, redirected",
        start.elapsed()
    );
    let moved = bench.moved();
    println!("{moved:?}");
    assert!(moved.len() > 20, "most of the program is never reached");
}
