//! Forged packets that claim to complete a handshake.

use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::{Bench, Verdict, stay_on_this_cpu};
use super::frames::*;
use super::handshake::{ISN, REQUEST};

const FORGERIES: usize = 200_000;
const SEED: u64 = 0x5b;

/// Deterministic except for the clock, which no forged packet contains.
#[test]
fn no_random_packet_passes_for_the_end_of_a_handshake() {
    let bench = Bench::new();
    let mut random = Random(SEED);
    let [v4, v6] = flows();
    for number in 0..FORGERIES {
        let mut flow = if number % 8 == 0 { v6 } else { v4 };
        let client = random.next().to_be_bytes();
        flow.client[12..].copy_from_slice(&client[..4]);
        flow.client_port = random.next() as u16;
        let numbers = random.next();
        let mut tcp = Tcp::data(&flow, numbers as u32, (numbers >> 32) as u32, b"GET");
        if number % 2 == 0 {
            tcp = tcp.stamped(1, random.next() as u32);
        }
        let (verdict, _) = bench.run(&tcp.frame(), 1);
        assert_eq!(verdict, Verdict::Drop, "number {number}, seed {SEED:#x}");
    }
    assert_eq!(bench.program.counter(SwitchCounter::DropCookie), FORGERIES as u64);
    assert_eq!(bench.entries(), 0);
    let unknown = sb_record_kind::SB_RECORD_UNKNOWN as u32;
    assert!(bench.records().iter().all(|record| record.head.kind == unknown));
}

/// Every bit that the cookie covers matters, including the clock's bits in the TSval.
#[test]
fn no_changed_bit_of_a_handshake_is_accepted() {
    let bench = Bench::new();
    for flow in &flows() {
        for stamp in [None, Some(9)] {
            let offer = Offer { stamp, ..Offer::USUAL };
            let (cookie, echo) = bench.cookie(&offer.syn(flow, ISN));
            let good = |flow: &sb_flow, isn: u32, cookie: u32, echo: u32| {
                let tcp = Tcp::data(flow, isn.wrapping_add(1), cookie.wrapping_add(1), REQUEST);
                let stamped = stamp.is_some();
                (if stamped { tcp.stamped(10, echo) } else { tcp }).frame()
            };
            let mut changed = Vec::new();
            for bit in 0..32 {
                changed.push(good(flow, ISN ^ 1 << bit, cookie, echo));
                changed.push(good(flow, ISN, cookie ^ 1 << bit, echo));
                if stamp.is_some() {
                    changed.push(good(flow, ISN, cookie, echo ^ 1 << bit));
                }
            }
            for bit in 0..16 {
                changed.push(good(
                    &sb_flow { client_port: flow.client_port ^ 1 << bit, ..*flow },
                    ISN,
                    cookie,
                    echo,
                ));
            }
            let first = if flow.client().is_ipv4() { 12 * 8 } else { 0 };
            for bit in first..128 {
                let mut other = *flow;
                other.client[bit / 8] ^= 1 << (bit % 8);
                changed.push(good(&other, ISN, cookie, echo));
            }
            let before = bench.program.counter(SwitchCounter::DropCookie);
            for (number, frame) in changed.iter().enumerate() {
                assert_eq!(bench.run(frame, 1).0, Verdict::Drop, "change {number}, {stamp:?}");
            }
            let dropped = bench.program.counter(SwitchCounter::DropCookie) - before;
            assert_eq!((dropped, bench.entries()), (changed.len() as u64, 0));
            bench.run(&good(flow, ISN, cookie, echo), 1);
            assert_eq!(bench.entries(), 1, "unchanged, it is accepted");
            bench.forget(flow);
        }
    }
}

const QUESTIONS: u32 = 160;
/// Periods whose questions may be asked at once (`ALLOWANCE_SAVED`).
const SAVED: u32 = 10;

/// Number of packets, of `times` from unknown flows of a network, that reach the L7 thread.
fn count_records(bench: &Bench, network: u8, times: u32) -> u32 {
    let [mut flow, _] = flows();
    flow.client[14] = network;
    let _ = (bench.records(), bench.moved());
    let (verdict, _) = bench.run(&Tcp::new(&flow, 1, 2, flags::ACK).frame(), times);
    assert_eq!(verdict, Verdict::Drop);
    assert_eq!(bench.moved(), [(SwitchCounter::DropCookie, u64::from(times))]);
    bench.records().len() as u32
}

#[test]
fn few_packets_of_unknown_flows_reach_the_l7_thread() {
    stay_on_this_cpu();
    let bench = Bench::new();
    bench.allow(QUESTIONS);
    let mut left = QUESTIONS;
    for _ in 0..8 {
        assert_eq!(count_records(&bench, 0, 20_000), left / 2, "half is for those that come new");
        assert_eq!(count_records(&bench, 0, 20_000), 0);
        left = left - left / 2 + QUESTIONS;
        bench.end_period();
    }
    assert!(left / 2 <= QUESTIONS, "what a flood gets in the long run");
}

#[test]
fn questions_that_are_not_asked_are_saved_for_a_second() {
    stay_on_this_cpu();
    let bench = Bench::new();
    bench.allow(QUESTIONS);
    count_records(&bench, 0, 20_000);
    for _ in 0..100 {
        bench.end_period();
    }
    assert_eq!(count_records(&bench, 0, 20_000), SAVED * QUESTIONS / 2);
    assert_eq!(count_records(&bench, 1, 20_000), SAVED * QUESTIONS / 2);
    assert_eq!(count_records(&bench, 2, 20_000), 0);
}

#[test]
fn networks_that_flood_leave_the_others_their_share() {
    const FLOODING: std::ops::Range<u8> = 9..29;
    stay_on_this_cpu();
    let bench = Bench::new();
    bench.allow(QUESTIONS);
    let flood =
        |bench: &Bench| FLOODING.map(|network| count_records(bench, network, 1000)).collect::<Vec<_>>();
    assert_eq!(flood(&bench).iter().sum::<u32>(), QUESTIONS, "never more than is allowed");
    let mut left = 0;
    for number in 0..10 {
        bench.end_period();
        left += QUESTIONS;
        let known = FLOODING.len() as u32 + u32::from(number > 0);
        let share = left / 2 / known;
        assert_eq!(flood(&bench), vec![share; FLOODING.len()]);
        assert_eq!(count_records(&bench, 200, share), share, "a polite one is heard whenever it comes");
        left -= share * (FLOODING.len() as u32 + 1);
    }
    bench.end_period();
    bench.end_period();
    left += 2 * QUESTIONS;
    assert_eq!(count_records(&bench, 200, 1000), left / 2, "the flood is over");
}
