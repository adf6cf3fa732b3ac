//! Packets of later versions, and of this one with more in it than the program knows.

use NodeCounter::*;
use sb_op::*;
use switchback_wire::handoff::Peers;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

const SWITCH_TO_NODE: [sb_op; 8] = [
    SB_OP_ADOPT,
    SB_OP_FORWARD,
    SB_OP_RELEASE,
    SB_OP_PROBE,
    SB_OP_ICMP,
    SB_OP_CONFIRM,
    SB_OP_HELLO,
    SB_OP_SYNC,
];

/// A packet without data. The node's epoch is unknown before SYNC.
fn without_data(known: &KnownFlow, option: sb_option) -> Vec<u8> {
    let epoch = if option.op == SB_OP_SYNC as u8 { 0 } else { EPOCH };
    known.hand_over_with_peers(Peers { epoch, ..peers(SWITCHES[0], NODE[0]) }, option)
}

#[test]
fn a_later_version_is_dropped_if_its_tag_is_right() {
    alone(|| {
        let bench = Bench::new();
        let known = KnownFlow { flow: flow(false, 50_000, PORT), seq: 1000, ack: 5000, socket: None };
        let mut counted = 0;
        for op in SWITCH_TO_NODE {
            for version in [SB_VERSION + 1, u8::MAX] {
                let option = sb_option { version, ..known.option(op) };
                let mut packet = without_data(&known, option);
                assert_eq!(bench.ingress(&to_us(&packet), 0).0, Verdict::Drop, "{op:?}");
                counted += 1;
                assert_eq!((bench.counter(DropVersion), bench.counter(DropTag)), (counted, counted - 1));
                // The last byte of the tag.
                packet[handoff::OVERHEAD_V4 - 1] ^= 1;
                assert_eq!(bench.ingress(&to_us(&packet), 0).0, Verdict::Drop, "{op:?}");
                assert_eq!((bench.counter(DropVersion), bench.counter(DropTag)), (counted, counted));
            }
        }
        assert_eq!((bench.flow(&known.flow), bench.switches()), (None, vec![]));
    });
}

/// The option with all flags that this version does not know.
fn with_more(option: sb_option, known_flags: u32) -> sb_option {
    sb_option { flags: option.flags | !known_flags as u8, ..option }
}

#[test]
fn what_a_later_switch_adds_within_a_version_is_ignored() {
    alone(|| {
        let bench = Bench::new();
        let mut known = KnownFlow { flow: flow(false, 50_000, PORT), seq: 1000, ack: 5000, socket: None };
        let of_handovers = SB_HANDOVER_REQUEST
            | SB_HANDOVER_READ
            | SB_HANDOVER_LAST
            | SB_HANDOVER_AGAIN
            | SB_HANDOVER_AHEAD
            | SB_HANDOVER_RESUME;
        let adopt = with_more(known.option(SB_OP_ADOPT), of_handovers)
            .with(|said: &mut sb_handover| said.reserved = 0xff);
        known.socket = Some(bench.adopt(&known.hand_over(adopt, REQUEST), &known.flow));
        let mark = known.option(SB_OP_ADOPT).flow_state();
        let probe = known.option(SB_OP_PROBE).saying(&mark);
        let (verdict, out) = bench.ingress(&to_us(&known.hand_over(with_more(probe, 0), b"")), 0);
        let answer = Handoff::parse(&out).expect("an answer").option;
        assert_eq!((verdict, answer.op, answer.flags), (Verdict::Redirect, SB_OP_OWNED as u8, 0));
        assert_eq!(answer.flow_state(), mark);

        let hello = known.option(SB_OP_HELLO).saying(&sb_hello { newest: 7, ..Default::default() });
        let hello = with_more(hello, SB_HELLO_FACTS).with(|said: &mut sb_hello| said.reserved = [0xff; 3]);
        assert_eq!(bench.ingress(&to_us(&known.hand_over(hello, b"")), 0).0, Verdict::Drop);
        assert_eq!(bench.counter(Hello), 1);
        let told: Vec<_> = bench.listening().iter().map(|switch| (switch.facts, switch.newest)).collect();
        assert_eq!(told, [(0, 7)]);

        let sync = known.option(SB_OP_SYNC).saying(&sb_sync { nonce: [9; 8], clock: [!0; 2] });
        let (verdict, out) = bench.ingress(&to_us(&without_data(&known, with_more(sync, 0))), 0);
        let answer = Handoff::parse(&out).expect("an answer").option;
        assert_eq!((verdict, answer.op, answer.flags), (Verdict::Redirect, SB_OP_SYNCED as u8, 0));
        assert_eq!(answer.said::<sb_sync>().nonce, [9; 8]);
    });
}
