//! Several L7 threads.

use std::collections::BTreeSet;

use sb_op::*;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::Peers;
use switchback_wire::packet::{flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use crate::dispatch::{Change, Common};

const THREADS: usize = 3;

fn record_of(bench: &Bench, frame: &[u8]) -> Record {
    let mut outcome = bench.send(frame);
    assert_eq!(outcome.records.len(), 1, "{:?}", outcome.moved);
    outcome.records.remove(0)
}

/// A message from a node.
fn said(bench: &Bench, op: sb_op, flow: &sb_flow) -> Vec<u8> {
    let inner = segment(flow, true, (Seq(1), Seq(1)), flags::ACK, None, b"");
    let option = typed(&entry()).flow_state().option(op);
    let peers = Bench::peers(bench.node_address(V4));
    // The node's clock is not known yet when it is told.
    let epoch = if op == SB_OP_SYNCED { 0 } else { peers.epoch };
    bench.node_frame_at(Peers { epoch, ..peers }, &Bench::sign(), flow, option, &inner)
}

fn entry() -> sb_flow_entry {
    sb_flow_entry {
        node: V4.0,
        origin: 1000,
        next: 2000,
        mode: sb_mode::SB_MODE_REQUESTS as u8,
        generation: Generation::first(0).next_attempt().number(),
        ..Default::default()
    }
}

#[test]
fn a_flow_is_with_one_thread_and_nodes_with_the_first() {
    let bench = Bench::with_threads(THREADS);
    let common = Common::new(THREADS);
    let mut seen = BTreeSet::new();
    for port in 1..=60u16 {
        for flow in flows() {
            let flow = sb_flow { client_port: port.to_be(), ..flow };
            let thread = common.thread_of(&flow);
            let state = |thread| bench.program.l7(thread).unwrap();
            (0..THREADS).for_each(|thread| state(thread).set_awake(false));
            bench.put(&flow, &entry());
            let request = Tcp::data(&flow, 2000, 1, b"BREW /pot HTTP/1.1\r\n\r\n").frame();
            assert_eq!(record_of(&bench, &request).thread, thread);
            let awake: Vec<usize> = (0..THREADS).filter(|thread| state(*thread).is_awake()).collect();
            assert_eq!(awake, [thread], "no other thread is woken");
            assert_eq!(record_of(&bench, &said(&bench, SB_OP_RELEASED, &flow)).thread, thread);
            for op in [SB_OP_REPORT, SB_OP_SIZED, SB_OP_SYNCED, SB_OP_FACTS, SB_OP_FLOWS, SB_OP_SWITCHES] {
                assert_eq!(record_of(&bench, &said(&bench, op, &flow)).thread, 0, "{op:?}");
            }
            seen.insert(thread);
        }
    }
    assert_eq!(Vec::from_iter(seen), [0, 1, 2]);
}

#[test]
fn each_thread_changes_flows_by_its_own_batch() {
    let bench = Bench::with_threads(THREADS);
    let flow = |port: u16| sb_flow { client_port: port.to_be(), ..flows()[0] };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let access = bench.program.l7(thread).unwrap();
            scope.spawn(move || {
                let first = thread as u16 * 1000;
                for port in first..first + 1000 {
                    let change = Change::Create(typed(&entry()));
                    access.change_flows(&[(flow(port), change)]).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.entries(), THREADS * 1000);
}
