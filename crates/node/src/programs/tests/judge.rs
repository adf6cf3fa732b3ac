//! Statuses of responses that the agent is told of.

use switchback_http::framing::generated::sb_framing;
use switchback_wire::packet::flags;
use switchback_wire::{sb_flow, sb_owned, sb_ownership};

use super::bench::*;
use super::frames::*;

/// Sends these responses of a server on a new flow, and returns the statuses that the agent is told of.
fn told(bench: &Bench, flow: &sb_flow, responses: &[&str]) -> Vec<u16> {
    let owned = sb_owned {
        state: sb_ownership::SB_OWN_OPEN as u8,
        followed: 5000,
        requests: 100,
        framing: sb_framing { allowed: u64::MAX, ..Default::default() }.into(),
        ..Default::default()
    };
    bench.put(flow, &owned);
    bench.egress(&response(flow, (5000, 1000), flags::ACK, false, responses.concat().as_bytes()));
    let judgments = bench.judgments();
    assert!(judgments.iter().all(|one| one.listener.vip.port == flow.vip_port && one.listener.node == 0));
    judgments.iter().map(|one| one.status).collect()
}

#[test]
fn failures_and_the_first_success_behind_them_are_told() {
    alone(|| {
        let bench = Bench::new();
        let [of_ipv4, of_ipv6] = [flow(false, 50_000, PORT), flow(true, 50_000, PORT)];
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let early = "HTTP/1.1 103 Early Hints\r\n\r\n";
        let failed = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
        let refused = "HTTP/1.1 599 None\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        let long = "HTTP/1.1 502 Bad Gateway\r\n\r\n";
        assert_eq!(told(&bench, &of_ipv4, &[ok, failed]), [0; 0], "nobody judges");
        bench.judge(of_ipv4.vip());
        assert_eq!(told(&bench, &of_ipv4, &[ok, early, ok, missing]), [0; 0], "no failure");
        assert_eq!(
            told(&bench, &of_ipv4, &[failed, refused, early, ok, ok, failed, missing, ok]),
            [500, 599, 200, 500, 404]
        );
        assert_eq!(told(&bench, &of_ipv4, &[ok, early, long]), [502], "its head tells");
        assert_eq!(told(&bench, &of_ipv4, &[ok]), [200], "on another connection");
        assert_eq!(told(&bench, &of_ipv6, &[failed]), [0; 0], "another VIP");
    });
}
