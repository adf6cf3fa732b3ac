//! What a packet costs with a million flows in the map.

use std::time::Duration;

use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use switchback_runtime::maps;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::forward::{ACK, MARK, entry};
use super::frames::*;

/// As the configuration reference says of `flows`.
#[test]
fn a_flow_takes_299_bytes() {
    let memory = |flows| {
        let bench = Bench::with_flows(flows);
        let maps = bench.program.skel.object().maps();
        maps.map(|map| maps::memory(&map).unwrap()).sum::<u64>()
    };
    let bytes = (memory(1 << 18) - memory(1 << 17)) as f64 / f64::from(1 << 17);
    assert!((bytes - 299.0).abs() < 5.0, "{bytes} bytes");
}

/// Packets of a measurement, each of another flow.
const PACKETS: u32 = 200_000;
const REPETITIONS: usize = 5;

/// The flow with this number, of 64,000 to an address.
pub fn numbered(number: u32) -> sb_flow {
    let [flow, _] = flows();
    let mut client = flow.client;
    client[12..].copy_from_slice(&(0xcb00_7100 + number / 64_000).to_be_bytes());
    sb_flow { client, client_port: (1024 + (number % 64_000) as u16).to_be(), ..flow }
}

/// Mean time of the program for an ACK of any of so many flows, which it forwards.
fn forward(bench: &Bench, flows: u32) -> Duration {
    let mut sum = Duration::ZERO;
    let mut out = vec![0; 4096];
    for packet in 0..PACKETS {
        // A step that has no divisor with the number of flows reaches all of them, far apart.
        let flow = numbered((u64::from(packet) * 611_953 % u64::from(flows)) as u32);
        let frame = Tcp::new(&flow, MARK, ACK, flags::ACK).frame();
        let input = ProgramInput { data_in: Some(&frame), data_out: Some(&mut out), ..Default::default() };
        let output = bench.program.skel.progs.switchback.test_run(input).unwrap();
        assert_eq!(output.return_value, 3, "it is sent on");
        sum += output.duration;
    }
    sum / PACKETS
}

#[test]
#[ignore = "a measurement, for a quiet machine and an optimized build"]
fn a_million_flows_against_a_thousand() {
    let bench = Bench::with_flows(1 << 21);
    let map = &bench.program.skel.maps.flows;
    let mut known = 0;
    let mut add = |flows: u32| {
        for number in known..flows {
            map.update(bytes_of(&numbered(number)), bytes_of(&entry(V4)), MapFlags::ANY).unwrap();
        }
        known = flows;
    };
    let mut medians = Vec::new();
    for flows in [1_000, 1_000_000] {
        add(flows);
        let mut times: Vec<Duration> = (0..REPETITIONS).map(|_| forward(&bench, flows)).collect();
        times.sort_unstable();
        println!("{flows} flows: {times:?}");
        medians.push(times[REPETITIONS / 2]);
    }
    println!("ratio {:.2}", medians[1].as_secs_f64() / medians[0].as_secs_f64());
}
