//! Fuzzing: without a valid tag no flow goes to a node, and no received packet is sent on.

use std::time::{Duration, Instant, SystemTime};

use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;

const SECONDS: u64 = 2;
/// A key that is not this client's.
const FOREIGN: sb_key = sb_key { k0: 1, k1: 2 };

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Changes bytes, truncates and extends a packet; too short ones are not run.
fn mutate(random: &mut Random, packet: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(packet.len());
        let any = random.next() as u8;
        packet[at] = [any, packet[at] ^ 1 << random.below(8), 0, 0xff][random.below(4)];
    }
    match random.below(8) {
        0 => packet.truncate(60 + random.below(packet.len())),
        1 => packet.extend((0..random.below(200)).map(|byte| byte as u8)),
        _ => {}
    }
    packet.resize(packet.len().max(60), 0);
}

fn forged(random: &mut Random, known: &ClientFlow) -> Vec<u8> {
    let node = if random.below(8) == 0 { NODE[1 - known.v6] } else { NODE[known.v6] };
    let ops = [sb_op::SB_OP_TUNNELED, sb_op::SB_OP_HEARD, sb_op::SB_OP_GONE];
    let inner = match random.below(3) {
        0 => known.introduction_under(&FOREIGN, node),
        1 => known.response(random.below(9) as u32, random.next() as u8, b"HTTP/1.1 200 OK"),
        _ => known.acknowledges(9),
    };
    match random.below(3) {
        0 => known.introduction_under(&FOREIGN, node),
        1 => known.message(ops[random.below(3)], NODE[known.v6], &FOREIGN, &inner),
        _ => inner,
    }
}

#[test]
fn forged_packets_change_no_destination() {
    alone(|bench| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        let seed = setting("SWITCHBACK_FUZZ_SEED").unwrap_or(now.as_nanos() as u64);
        let random = &mut Random(seed);
        let known = [0, 1].map(|v6| ClientFlow::introduced(bench, v6, 40_000));
        let others = [0, 1].map(|v6| ClientFlow::new(v6, 40_001));
        let before = known.map(|known| bench.flow(&known.flow));
        let time = Duration::from_secs(setting("SWITCHBACK_FUZZ_SECONDS").unwrap_or(SECONDS));
        let (start, mut number) = (Instant::now(), 0);
        while start.elapsed() < time {
            let of = [known, others][random.below(2)][random.below(2)];
            let mut packet = forged(random, &of);
            mutate(random, &mut packet);
            let (verdict, _) = bench.ingress(&packet);
            assert_ne!(verdict, Verdict::Redirect, "seed {seed}, packet {number}: {packet:02x?}");
            number += 1;
        }
        println!("{number} packets, seed {seed}");
        assert_eq!(known.map(|known| bench.flow(&known.flow)), before, "seed {seed}");
        for other in others {
            assert_eq!(bench.flow(&other.flow), None, "seed {seed}");
            assert_eq!(bench.egress(&other.out(0, 0, flags::ACK, b"GET")).0, Verdict::Next);
        }
        assert_eq!((bench.tunneled(), bench.direct_flows()), (vec![], 2), "seed {seed}");
        assert!(bench.counter(ClientCounter::DropTag) > 100 && bench.counter(ClientCounter::Introduced) == 2);
    });
}
