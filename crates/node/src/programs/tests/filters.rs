//! Programs as filters of the `clsact` qdisc, as kernels without tcx have them.

use switchback_runtime::programs::Place;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

/// Responses that egress counts while the server of a new flow writes one.
fn responses_of(bench: &Bench, port: u16) -> u64 {
    let mut known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
    let before = bench.counter(NodeCounter::Responses);
    known.adopt(bench);
    known.answer();
    bench.counter(NodeCounter::Responses) - before
}

#[test]
fn a_filter_takes_the_place_of_an_earlier_one() {
    alone(|| {
        let bench = Bench::new();
        let attach = || bench.attach_egress_filter(LOOPBACK, Place::Last);
        assert_eq!(responses_of(&bench, 40_000), 0, "without the program");
        let earlier = attach();
        assert_eq!(responses_of(&bench, 40_001), 1);
        let filter = attach();
        assert_eq!(responses_of(&bench, 40_002), 1, "in its place");
        drop(earlier);
        assert_eq!(responses_of(&bench, 40_003), 1, "it stays when nobody holds it");
        filter.detach().expect("it is attached");
        assert_eq!(responses_of(&bench, 40_004), 0, "detached");
    });
}

#[test]
fn filters_of_other_priorities_stay() {
    alone(|| {
        let bench = Bench::new();
        let [first, last] =
            [Place::First, Place::Last].map(|place| bench.attach_egress_filter(LOOPBACK, place));
        first.detach().expect("it is attached");
        assert_eq!(responses_of(&bench, 40_000), 1, "by the last one");
        last.detach().expect("it is attached");
        assert_eq!(responses_of(&bench, 40_001), 0);
    });
}
