//! Records of the requests that the program forwards itself.

use std::cell::RefCell;

use libbpf_rs::{MapHandle, RingBufferBuilder};
use switchback_runtime::monotonic_ns;
use switchback_wire::SwitchCounter::{Express, Forwarded, Unobserved};
use switchback_wire::{read_from, sb_express_request};

use super::bench::{Bench, V4, Verdict};
use super::forward::{ACK, MARK, PLAIN, entry};
use super::frames::{Tcp, flows};

/// Records in these rings, with the heads.
fn told(rings: &[MapHandle]) -> Vec<(sb_express_request, Vec<u8>)> {
    let told = RefCell::new(Vec::new());
    let mut builder = RingBufferBuilder::new();
    for ring in rings {
        let keep = |bytes: &[u8]| {
            let request: sb_express_request = read_from(bytes).expect("a whole record");
            told.borrow_mut().push((request, bytes[size_of::<sb_express_request>()..].to_vec()));
            0
        };
        builder.add(ring, keep).unwrap();
    }
    builder.build().unwrap().consume().unwrap();
    told.into_inner()
}

#[test]
fn requests_are_recorded_while_observed() {
    let bench = Bench::new();
    let send = |flow| {
        bench.put(flow, &entry(V4));
        let outcome = bench.send(&Tcp::data(flow, MARK, ACK, PLAIN.as_bytes()).frame());
        assert_eq!(outcome.moved, [(Express, 1), (Forwarded, 1)]);
    };
    for flow in &flows() {
        send(flow);
        let before = monotonic_ns();
        let rings = bench.program.observe().unwrap();
        send(flow);
        bench.program.stop_observing();
        send(flow);
        let told = told(&rings);
        let [(request, head)] = &told[..] else { panic!("{} requests", told.len()) };
        assert_eq!(head, PLAIN.as_bytes());
        assert!((before..monotonic_ns()).contains(&request.at_ns));
        let expected = sb_express_request {
            flow: *flow,
            origin: entry(V4).origin,
            begins: MARK,
            node: V4.0,
            number: entry(V4).requests + 1,
            len: PLAIN.len() as u16,
            first: 0,
            at_ns: request.at_ns,
        };
        assert_eq!(*request, expected);
    }
}

/// Fills the observer rings; requests without a record are forwarded all the same.
pub fn fill_the_ring(bench: &Bench) {
    let _rings = bench.program.observe().unwrap();
    let flow = flows()[0];
    let frame = Tcp::data(&flow, MARK, ACK, PLAIN.as_bytes()).frame();
    while bench.program.counter(Unobserved) == 0 {
        bench.put(&flow, &entry(V4));
        let (verdict, _) = bench.run(&frame, 1);
        assert!(matches!(verdict, Verdict::Tx | Verdict::Redirect), "{verdict:?}");
    }
    bench.program.stop_observing();
    bench.forget(&flow);
}
