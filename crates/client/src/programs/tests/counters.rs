//! Every counter counts its event, once.

use ClientCounter::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;

fn count(bench: &Bench, counter: ClientCounter, port: u16) {
    let v6 = usize::from(port % 2);
    let known = ClientFlow::introduced(bench, v6, port);
    let own = key(known.flow.client, 0);
    let tunneled = |of: &ClientFlow, key: &sb_key| {
        of.message(sb_op::SB_OP_TUNNELED, NODE[v6], key, &of.response(0, flags::ACK, b"x"))
    };
    let asked =
        |asks: u8| sb_direct_flow { asks, asked_ns: 1, last_ns: 1, ..bench.flow(&known.flow).unwrap() };
    let packet = match counter {
        Introduced => known.introduction(NODE[v6]),
        IntroducedLate => ClientFlow { next: 1000, ..known }.introduction(NODE[v6]),
        Avoided => {
            bench.put(&known.flow, &asked(2));
            bench.egress(&known.acknowledges(1));
            known.introduction(NODE[v6])
        }
        Direct | Asked => return drop(bench.egress(&known.acknowledges(1))),
        Heard => known.answer(sb_op::SB_OP_HEARD, NODE[v6]),
        Gone => known.answer(sb_op::SB_OP_GONE, NODE[v6]),
        Again => return drop(bench.egress(&known.out(0, 0, flags::ACK, b"x"))),
        Shown => {
            bench.put(&known.flow, &sb_direct_flow { watched: 1, ..asked(0) });
            return drop(bench.egress(&known.acknowledges(1)));
        }
        Beyond => return drop(bench.egress(&known.out(100, 0, flags::ACK, b"x"))),
        Fallback => {
            bench.put(&known.flow, &asked(2));
            return drop(bench.egress(&known.acknowledges(1)));
        }
        Tunneled => tunneled(&known, &own),
        Thinned => {
            bench.configure("thin_acks = 2");
            bench.ingress(&known.response(0, flags::ACK, b"xx"));
            drop(bench.egress(&known.acknowledges(1)));
            return bench.configure("");
        }
        DropVersion => {
            let option =
                sb_option { version: SB_VERSION + 1, ..client::option(sb_op::SB_OP_TUNNELED, false, None) };
            known.message_with(option, NODE[v6], &own, &known.response(0, flags::ACK, b"x"))
        }
        DropTag => tunneled(&known, &sb_key { k0: 1, k1: 2 }),
        DropMalformed => known.introduction(NODE[1 - v6]),
        DropForeign => {
            let flow = sb_flow { vip_port: 81u16.to_be(), ..known.flow };
            tunneled(&ClientFlow { flow, outside: flow, ..known }, &own)
        }
        DropRoom => {
            assert_eq!(bench.egress_uncut(&known.acknowledges(1)), Verdict::Drop);
            return;
        }
    };
    bench.ingress(&packet);
}

#[test]
fn every_counter_counts_once() {
    for (port, counter) in (40_000..).zip(ClientCounter::ALL) {
        alone(|bench| {
            let introduced = u64::from(counter == Introduced);
            count(bench, counter, port);
            assert_eq!(bench.counter(counter), 1 + introduced, "{counter:?}");
        });
    }
}
