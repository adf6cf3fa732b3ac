//! More flows than the node's map holds.

use NodeCounter::*;
use sb_op::*;
use switchback_wire::packet::TcpView;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

const ROOM: u32 = 64;

/// A node that has lost the entry of a flow with one answered request to other flows.
fn forgotten(v6: bool) -> (Bench, KnownFlow) {
    let bench = Bench::with_flows(ROOM);
    let mut known = KnownFlow { flow: flow(v6, 54_000, PORT), seq: 1000, ack: 5000, socket: None };
    known.adopt(&bench);
    known.answer();
    for port in 0..2000 {
        if bench.flow(&known.flow).is_none() {
            return (bench, known);
        }
        // Other flows with traffic.
        let other = KnownFlow { flow: flow(false, port, PORT), socket: None, ..known };
        bench.put(&other.flow, &other.owned());
        bench.ingress(&to_us(&other.hand_over(other.option(SB_OP_PROBE), b"")), 0);
    }
    panic!("there is room for all");
}

fn answer(bench: &Bench, known: &KnownFlow, op: sb_op) -> Handoff {
    let origin = (known.seq - REQUEST.len() as u32).to_be();
    let option = known.option(op).with(|flow: &mut sb_flow_state| flow.origin = origin);
    let (verdict, out) = bench.ingress(&to_us(&known.hand_over(option, b"")), 0);
    assert_eq!(verdict, Verdict::Redirect);
    Handoff::parse(&out).expect("an answer")
}

/// As the configuration reference says of `node_flows`.
#[test]
fn a_flow_takes_1080_bytes() {
    let memory = |flows| {
        let mut bytes = 0;
        alone(|| bytes = Bench::with_flows(flows).memory());
        bytes as f64
    };
    let bytes = (memory(1 << 17) - memory(1 << 16)) / f64::from(1 << 16);
    assert!((bytes - 1080.0).abs() < 5.0, "{bytes} bytes");
}

/// Whether the response is complete is unknown, so no other node may continue: the switch ends the connection.
#[test]
fn a_flow_that_was_forgotten_goes_to_no_other_node() {
    for v6 in [false, true] {
        alone(|| {
            let (bench, known) = forgotten(v6);
            let origin = (known.seq - REQUEST.len() as u32).to_be();
            let option = known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| flow.origin = origin);
            let (verdict, out) = bench.ingress(&to_us(&known.hand_over(option, b"")), 0);
            assert_eq!(verdict, Verdict::Pass, "a RST for the socket that is here");
            let reset = TcpView::parse(&out[14..]).expect("a RST");
            assert_eq!((reset.seq, reset.flags & packet::flags::RST), (Seq(known.seq), packet::flags::RST));
            let released = answer(&bench, &known, SB_OP_RELEASE);
            let said = (released.option.op, released.option.reason);
            assert_eq!(said, (SB_OP_RELEASED as u8, sb_reason::SB_REASON_RESPONDING as u8));
            assert_eq!(released.view.ack, Seq(known.ack), "from where the connection can be ended");
            assert_eq!((bench.counter(Forgotten), bench.counter(Busy)), (1, 0));
        });
    }
}

/// The node still has the socket and continues.
#[test]
fn a_request_makes_a_flow_known_again() {
    alone(|| {
        let (bench, mut known) = forgotten(false);
        let origin = (known.seq - REQUEST.len() as u32).to_be();
        let next = (known.seq + REQUEST.len() as u32).to_be();
        let flags = SB_HANDOVER_REQUEST as u8;
        let option = sb_option {
            flags,
            ..known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
                flow.origin = origin;
                flow.next = next;
                flow.requests = 2u16.to_be();
            })
        };
        bench.send(&known.hand_over(option, REQUEST));
        known.seq += REQUEST.len() as u32;
        known.answer();
        let owned = bench.flow(&known.flow).expect("it is known again");
        let counts = (owned.requests, owned.origin, owned.framing.is_lost());
        assert_eq!(counts, (2, u32::from_be(origin), true));
        assert_eq!(owned.answered, known.ack - RESPONSE.len() as u32, "the response has begun behind it");
        assert_eq!(bench.counter(Remembered), 1);
        let entry = answer(&bench, &known, SB_OP_PROBE).option;
        assert_eq!(
            (entry.op, entry.flow_state().origin, entry.flow_state().next),
            (SB_OP_OWNED as u8, origin, next)
        );
    });
}
