//! The kernel reuses the element of a deleted entry for another flow at once, even while the program holds a pointer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use SwitchCounter::*;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::{Bench, UNKNOWN};
use super::frames::*;

const TIME: Duration = Duration::from_secs(2);

#[test]
fn no_flow_has_the_entry_of_another_one() {
    let bench = Bench::new();
    bench.allow(0);
    let [flow, _] = flows();
    let other = sb_flow { client_port: 1, ..flow };
    let known = |mode: sb_mode| sb_flow_entry { mode: mode as u8, node: UNKNOWN.0, ..Default::default() };
    let (held, elsewhere) = (known(sb_mode::SB_MODE_HELD), known(sb_mode::SB_MODE_TUNNEL));
    let flows = MapHandle::try_from(&bench.program.skel.maps.flows).unwrap();
    let is_over = AtomicBool::new(false);
    let mut rounds = 0;
    let _ = bench.moved();
    std::thread::scope(|scope| {
        let (is_over, rounds) = (&is_over, &mut rounds);
        scope.spawn(move || {
            let put = |flow, entry| flows.update(bytes_of(flow), bytes_of(entry), MapFlags::ANY).unwrap();
            let remove = |flow| flows.delete(bytes_of(flow)).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                put(&flow, &held);
                remove(&flow);
                put(&other, &elsewhere);
                remove(&other);
                *rounds += 1;
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < TIME {
            bench.run(&Tcp::new(&flow, 1, 2, flags::ACK).frame(), 10_000);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let moved = bench.moved();
    println!("{rounds} rounds: {moved:?}");
    assert!([DropHeld, DropCookie].iter().all(|counter| moved.iter().any(|(moved, _)| moved == counter)));
    assert_eq!(moved.len(), 2, "the other flow's node, or something else, in {moved:?}");
}
