//! A first request begins only once: a late copy from a finished connection begins nothing, and a request that another
//! process may have handed over is first looked for at the nodes.

use SwitchCounter::*;
use sb_mode::*;
use sb_record_kind::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::Row;
use super::bench::{Bench, V4, Verdict, stay_on_this_cpu, typed};
use super::frames::*;
use super::handshake::{ISN, REQUEST, held, last};
use crate::dispatch::Change;

/// Possible requests of another process, beyond the probe budget.
pub fn ask_too_much(bench: &Bench) {
    for flow in &flows() {
        let offer = Offer::USUAL;
        let request = last(flow, &offer, bench.cookie(&offer.syn(flow, ISN)), flags::ACK, REQUEST).frame();
        bench.restart();
        bench.allow(0);
        // Each network has a budget of one.
        bench.run(&request, 1);
        Row::new("beyond the allowance", flow, request, Verdict::Drop, [DropUnasked]).run(bench);
        bench.end_period();
    }
}

/// The first request of a connection whose handshake another process may have completed.
#[test]
fn a_request_of_a_possible_other_process_is_sought() {
    stay_on_this_cpu();
    for stamp in [None, Some(1)] {
        let bench = Bench::new();
        let offer = Offer { stamp, ..Offer::USUAL };
        let request = |flow: &sb_flow| {
            let cookie = bench.cookie(&offer.syn(flow, ISN));
            last(flow, &offer, cookie, flags::ACK, REQUEST).frame()
        };
        let run = |what: &str, flow: &sb_flow, frame: Vec<u8>, mode: sb_mode| {
            let entry = sb_flow_entry { mode: mode as u8, ..held(flow, &offer, ISN) };
            Row::new(what, flow, frame, Verdict::Drop, [Request])
                .leaves(Some(entry))
                .records(SB_RECORD_REQUEST)
                .run(&bench);
        };
        for flow in &flows() {
            let before = request(flow);
            run("its own", flow, before.clone(), SB_MODE_HELD);
            bench.restart();
            let young = if stamp.is_some() { SB_MODE_HELD } else { SB_MODE_SOUGHT };
            run("the last one's", flow, before.clone(), SB_MODE_SOUGHT);
            run("its own, in its first epoch", flow, request(flow), young);
            let first = request(flow);
            bench.turn();
            run("the last one's, in the next epoch", flow, before, SB_MODE_SOUGHT);
            run("its own, of its first epoch", flow, first, young);
            run("its own, in the next epoch", flow, request(flow), SB_MODE_HELD);
            bench.turn();
            run("its own, in the epoch after that", flow, request(flow), SB_MODE_HELD);
        }
    }
}

/// Clients without timestamps must not wait for a used-up probe budget.
#[test]
fn beyond_the_budget_only_own_requests_begin() {
    stay_on_this_cpu();
    let bench = Bench::new();
    ask_too_much(&bench);
    bench.allow(0);
    let [flow, _] = flows();
    let offer = Offer { stamp: None, ..Offer::USUAL };
    let request = last(&flow, &offer, bench.cookie(&offer.syn(&flow, ISN)), flags::ACK, REQUEST).frame();
    bench.run(&request, 1);
    Row::new("perhaps its own", &flow, request, Verdict::Drop, [Request])
        .leaves(Some(held(&flow, &offer, ISN)))
        .records(SB_RECORD_REQUEST)
        .run(&bench);
}

/// However an entry ended, a late copy of the connection's first packet begins nothing.
#[test]
fn a_finished_connection_does_not_begin_again() {
    let bench = Bench::new();
    for flow in &flows() {
        for stamp in [None, Some(1)] {
            let offer = Offer { stamp, ..Offer::USUAL };
            let first = |isn: u32| {
                let (cookie, echo) = bench.cookie(&offer.syn(flow, isn));
                let tcp = Tcp::data(flow, isn.wrapping_add(1), cookie.wrapping_add(1), REQUEST);
                if stamp.is_some() { tcp.stamped(10, echo) } else { tcp }.frame()
            };
            let entry = held(flow, &offer, ISN);
            let change = |change| bench.l7().change_flows(&[(*flow, change)]).unwrap();
            let closed = sb_flow_entry { node: V4.0, mode: SB_MODE_REQUESTS as u8, ..entry };
            let inner = Tcp::new(flow, ISN, 1, flags::ACK).packet();
            let option = typed(&closed).flow_state().option(sb_op::SB_OP_CLOSED);
            let ends: [(&str, &dyn Fn()); 4] = [
                ("its node said so", &|| {
                    bench.put(flow, &closed);
                    bench.send(&bench.node_frame(V4, &Bench::sign(), flow, option, &inner));
                }),
                ("the L7 thread has ended it", &|| {
                    bench.put(flow, &closed);
                    change(Change::Remove { origin: Seq(entry.origin) });
                }),
                ("the L7 thread has ended it before it had a node", &|| {
                    bench.put(flow, &entry);
                    change(Change::Remove { origin: Seq(entry.origin) });
                }),
                ("another connection has taken its place, and is lost", &|| {
                    bench.put(flow, &sb_flow_entry { contested: 1, ..closed });
                    let outcome = bench.send(&first(ISN + 7));
                    assert_eq!(outcome.moved, [(Request, 1), (Succeeded, 1)]);
                    bench.lose(flow);
                }),
            ];
            for (what, end) in ends {
                bench.forget(flow);
                end();
                let outcome = bench.send(&first(ISN));
                assert_eq!(outcome.moved, [(DropCookie, 1)], "{what}");
                let kinds: Vec<u32> = outcome.records.iter().map(|record| record.head.kind).collect();
                assert_eq!(kinds, [SB_RECORD_UNKNOWN as u32], "{what}: its node may have it nevertheless");
                assert_eq!(bench.l7().mapped(flow), None, "{what}");
                // The client's next connection begins.
                assert_eq!(bench.send(&first(ISN + 99)).moved, [(Request, 1)], "{what}");
                // No packet of the previous connection replaces it.
                let next = sb_flow_entry { contested: 1, ..bench.l7().mapped(flow).unwrap() };
                bench.put(flow, &next);
                bench.send(&first(ISN));
                assert_eq!(bench.l7().mapped(flow), Some(next), "{what}");
            }
            bench.forget(flow);
            bench.put(flow, &entry);
            change(Change::Abandon { origin: Seq(entry.origin) });
            assert_eq!(bench.send(&first(ISN)).moved, [(Request, 1)], "it has not begun yet");
        }
    }
}

/// Nodes were probed, and one of them has the flow.
#[test]
fn a_sought_request_goes_to_its_owner() {
    let bench = Bench::new();
    let [flow, _] = flows();
    let sought = sb_flow_entry { mode: SB_MODE_SOUGHT as u8, ..held(&flow, &Offer::USUAL, ISN) };
    let owned = sb_flow_entry { node: V4.0, mode: SB_MODE_REQUESTS as u8, next: ISN + 100, ..sought };
    let create = |entry| bench.l7().change_flows(&[(flow, Change::Create(typed(&entry)))]).unwrap();
    bench.put(&flow, &sought);
    create(sb_flow_entry { origin: ISN + 2, ..owned });
    assert_eq!(bench.l7().mapped(&flow), Some(sought), "another connection");
    create(owned);
    let known = sb_flow_entry { contested: 1, ..owned };
    assert_eq!((bench.l7().mapped(&flow), bench.waiting()), (Some(known), 0));
    bench.forget(&flow);
    let begun = sb_flow_entry { mode: SB_MODE_HELD as u8, ..sought };
    bench.put(&flow, &begun);
    create(owned);
    assert_eq!(bench.l7().mapped(&flow), Some(begun), "it is dispatched here");
}
