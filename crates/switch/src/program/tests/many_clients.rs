//! Limits of a million clients, and what limits and lists cost a packet.

use std::net::Ipv4Addr;
use std::time::Duration;

use SwitchCounter::*;
use libbpf_rs::{MapCore, MapFlags};
use switchback_rates::{Bucket, Taken, Wish};
use switchback_runtime::maps;
use switchback_wire::report::pool_id;
use switchback_wire::*;

use super::bench::*;
use super::forward::entry;
use super::frames::*;
use super::guard::{connect, requests};
use super::handshake::ISN;
use crate::dispatch::Change;

/// An hour, in nanoseconds.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Memory of the maps of buckets and of connections, in bytes.
fn memory(bench: &Bench) -> [u64; 2] {
    let maps = &bench.program.skel.maps;
    [&maps.buckets, &maps.connections].map(|map| maps::memory(map).unwrap())
}

/// The buckets of L7 threads, and connections that nodes tell of, are those of the program, and are quicker to make.
#[test]
fn a_million_clients_take_no_memory_and_nobody_elses_limit() {
    const MILLION: u32 = 1_000_000;
    let bench = Bench::new();
    bench.configure_guarded(
        1,
        "limit = { client.connections = { rate = 1, period = \"1h\" }, client.concurrent = 1 }",
    );
    let before = memory(&bench);
    let [template, _] = flows();
    let of = |number: u32| {
        let mut flow = template;
        flow.client[12..].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        flow
    };
    let [often, full, late] = [1, 2, 3].map(|number| of(2 * MILLION + number));
    let service = pool_id("shop");
    let wish = |flow: &sb_flow, of| {
        let bucket = Bucket { client: Some(flow.client().ip()), service, of };
        Wish { bucket, interval_ns: HOUR_NS, tolerance_ns: 0, patience_ns: 0 }
    };
    let begin = |flow: &sb_flow| (*flow, Change::Create(typed(&sb_flow_entry { origin: 1, ..entry(V4) })));
    // Each is at a limit: of its connections in an hour, or of those at a time.
    let l7 = bench.l7();
    assert_eq!([&often, &late].map(|flow| l7.take_tokens(&[wish(flow, SB_OF_CONNECTIONS)])), [Taken::Now; 2]);
    l7.change_flows(&[begin(&full), begin(&late)]).unwrap();
    for numbers in (0..MILLION).collect::<Vec<_>>().chunks(1000) {
        let clients: Vec<sb_flow> = numbers.iter().copied().map(of).collect();
        for four in clients.chunks(SB_WISHES as usize) {
            let wishes: Vec<_> = four.iter().map(|flow| wish(flow, SB_OF_CONNECTIONS)).collect();
            assert_eq!(l7.take_tokens(&wishes), Taken::Now);
        }
        l7.change_flows(&clients.iter().map(begin).collect::<Vec<_>>()).unwrap();
        assert_eq!(connect(&bench, &often), [(DropRate, 1)]);
        assert_eq!(connect(&bench, &full), [(DropConcurrent, 1)]);
    }
    assert_eq!(memory(&bench), before);
    let maps = &bench.program.skel.maps;
    for map in [&maps.buckets, &maps.connections] {
        let (entries, most) = (map.keys().count(), map.max_entries() as usize);
        assert!((most / 2..=most).contains(&entries), "{entries} of {most}");
    }
    // As the decision record says.
    assert_eq!(connect(&bench, &late), [(SynAnswered, 1)]);
}

/// Clients of a measurement, in turn.
const CLIENTS: u32 = 20_000;
/// Packets of each kind before it is another row's turn.
const CHUNK: u32 = 500;
/// Rounds of a measurement, after one to warm up.
const ROUNDS: u32 = 5;

/// Address of a network of 24 bits; those of less than 2^24 numbers differ, and are far apart.
fn scattered(number: u32) -> u32 {
    (number.wrapping_mul(0x009e_3779) & 0x00ff_ffff) << 8
}

/// Makes this guard that of the service; None: it has none.
fn guard_with(bench: &Bench, guard: Option<&sb_guard>) {
    let maps = &bench.program.skel.maps;
    let place = SB_GUARDS - 1;
    if let Some(guard) = guard {
        maps.guards.update(&place.to_ne_bytes(), bytes_of(guard), MapFlags::ANY).unwrap();
    }
    let key = endpoint(bench.cluster.services[0].listen[0]);
    let vip: sb_vip = read_from(&maps.vips.lookup(bytes_of(&key), MapFlags::ANY).unwrap().unwrap()).unwrap();
    let vip = sb_vip { guard: guard.map_or(0, |_| place as u16 + 1), ..vip };
    maps.vips.update(bytes_of(&key), bytes_of(&vip), MapFlags::ANY).unwrap();
}

/// The program's times for a SYN and for a plain request of each of these clients.
fn time(bench: &Bench, clients: impl Iterator<Item = u32>, times: &mut [Vec<Duration>; 2]) {
    let [template, _] = flows();
    for number in clients {
        let mut flow = template;
        flow.client[12..].copy_from_slice(&(scattered(number) | 7).to_be_bytes());
        let (entry, packet) = requests(&flow);
        bench.put(&flow, &entry);
        let frames = [Offer::USUAL.syn(&flow, ISN).frame(), packet.frame()];
        for (frame, times) in std::iter::zip(frames, &mut *times) {
            let (verdict, _, time) = bench.timed(&frame);
            assert_eq!(verdict, Verdict::Tx);
            times.push(time);
        }
        bench.lose(&flow);
    }
}

#[test]
#[ignore = "a measurement, for a quiet machine"]
fn what_lists_and_rates_cost() {
    let bench = Bench::new();
    stay_on_this_cpu();
    // None of the clients is in the list.
    let networks: Vec<_> = (CLIENTS..CLIENTS + 100_000)
        .map(|number| format!("\"{}/24\"", Ipv4Addr::from_bits(scattered(number))))
        .collect();
    let rate = "{ rate = 10000000, burst = 10000000 }";
    bench.configure_guarded(
        1,
        &format!(
            "clients = {{ deny = [{}] }}\n\
             limit.client = {{ connections = {rate}, requests = {rate} }}\n\
             limit.all = {{ connections = {rate}, requests = {rate} }}",
            networks.join(", ")
        ),
    );
    let place = SB_GUARDS / 2;
    let both = bench.program.skel.maps.guards.lookup(&place.to_ne_bytes(), MapFlags::ANY);
    let both: sb_guard = read_from(&both.unwrap().unwrap()).unwrap();
    let (list, rates) = (sb_guard { rates: Default::default(), ..both }, sb_guard { list: 0, ..both });
    let rows = [("neither", None), ("a list", Some(&list)), ("rates", Some(&rates)), ("both", Some(&both))];
    for (whose, clients) in [("one client", 1), ("20,000 clients", CLIENTS)] {
        let mut times = vec![[Vec::new(), Vec::new()]; rows.len()];
        for begin in (0..(1 + ROUNDS) * CLIENTS).step_by(CHUNK as usize) {
            // No row finds in the cache what another one has just left there.
            for (number, ((_, guard), times)) in (0..).zip(std::iter::zip(&rows, &mut times)) {
                let begin = begin + number * CLIENTS / rows.len() as u32;
                guard_with(&bench, *guard);
                time(&bench, (begin..begin + CHUNK).map(|number| number % clients), times);
            }
        }
        for ((what, _), times) in std::iter::zip(&rows, &mut times) {
            let [syn, request] = times.each_mut().map(|times| {
                let counted = &mut times[CLIENTS as usize..];
                *counted.select_nth_unstable(counted.len() / 2).1
            });
            println!("{whose}, {what}: SYN {syn:?}, request {request:?}");
        }
    }
}
