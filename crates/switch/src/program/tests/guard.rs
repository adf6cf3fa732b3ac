//! Clients that a service does not let in, and those that come too often.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use SwitchCounter::*;
use switchback_config::Network;
use switchback_rates::{Bucket, OF_REQUESTS, Taken, Wish};
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::forward::{ACK, MARK, PLAIN, entry};
use super::frames::*;
use super::handshake::{ISN, REQUEST, last};
use crate::dispatch::Change;

/// An entry of a flow with a node, and the packet of its next request.
pub fn requests(flow: &sb_flow) -> (sb_flow_entry, Tcp) {
    (entry(V4), Tcp::data(flow, MARK, ACK, PLAIN.as_bytes()))
}

/// The flow of another client, whose address has another last byte.
fn of_client(flow: &sb_flow, last: u8) -> sb_flow {
    let mut flow = *flow;
    flow.client[15] = last;
    flow
}

/// Counters that move by a SYN.
pub fn connect(bench: &Bench, flow: &sb_flow) -> Vec<(SwitchCounter, u64)> {
    bench.moved();
    bench.send(&Offer::USUAL.syn(flow, ISN).frame()).moved
}

/// Counters that move by the first data of a connection with this cookie.
fn ask(bench: &Bench, flow: &sb_flow, cookie: (u32, u32)) -> Vec<(SwitchCounter, u64)> {
    bench.forget(flow);
    bench.moved();
    bench.send(&last(flow, &Offer::USUAL, cookie, flags::ACK, REQUEST).frame()).moved
}

fn cookie(bench: &Bench, flow: &sb_flow) -> (u32, u32) {
    bench.cookie(&Offer::USUAL.syn(flow, ISN))
}

#[test]
fn the_longest_network_decides_who_is_let_in() {
    let bench = Bench::new();
    let lists = "clients = { allow = [\"198.51.100.0/24\", \"2001:db8:1::/48\", \"203.0.113.8\"], \
                 deny = [\"198.51.100.128/25\", \"2001:db8:1:2::/64\"] }";
    let rows = [
        ("198.51.100.7", true),
        ("198.51.100.200", false),
        ("203.0.113.8", true),
        ("203.0.113.9", false),
        ("2001:db8:1::7", true),
        ("2001:db8:1:2::7", false),
        ("2001:db8:2::7", false),
        ("::198.51.100.7", false),
    ];
    for (client, is_admitted) in rows {
        let address: IpAddr = client.parse().unwrap();
        let template = flows().into_iter().find(|flow| flow.client().is_ipv4() == address.is_ipv4()).unwrap();
        let flow = sb_flow { client: address_bytes(address), ..template };
        bench.configure(0);
        let cookie = cookie(&bench, &flow);
        bench.configure_guarded(1, lists);
        let moved = if is_admitted { [(SynAnswered, 1)] } else { [(DropClient, 1)] };
        assert_eq!(connect(&bench, &flow), moved, "SYN of {client}");
        let moved = if is_admitted { [(Request, 1)] } else { [(DropClient, 1)] };
        assert_eq!(ask(&bench, &flow, cookie), moved, "first data of {client}");
    }
}

/// The first and the last address of a network, and those before and after it.
fn at_the_edges_of(network: &Network) -> [IpAddr; 4] {
    match network.address {
        IpAddr::V4(address) => {
            let (first, bits) = (address.to_bits(), 32 - u32::from(network.prefix_len));
            let last = first | u32::MAX.checked_shr(32 - bits).unwrap_or(0);
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
                .map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(address) => {
            let (first, bits) = (address.to_bits(), 128 - u32::from(network.prefix_len));
            let last = first | u128::MAX.checked_shr(128 - bits).unwrap_or(0);
            [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
                .map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    }
}

/// Of networks longer than a cell, shorter ones, one inside the other, and of so many cells that none is marked.
#[test]
fn the_program_lets_in_whom_the_configuration_says() {
    let bench = Bench::new();
    let lists = [
        r#"deny = ["198.51.100.64/26", "203.0.112.0/20", "10.0.0.0/9", "2001:db8:5::/48", "2001:db8:4000::/34"]"#,
        r#"allow = ["198.51.0.0/16", "203.0.113.9", "2001:db8::/33", "2001:db8:9000::/36"], deny = ["198.51.100.0/25", "2001:db8:7::/64"]"#,
        r#"deny = ["203.0.113.0/24", "128.0.0.0/2"]"#,
        r#"allow = ["64.0.0.0/2", "2001:db8::/32", "4000::/3"], deny = ["100.64.0.0/10", "2001:db8:0:1::/64"]"#,
    ];
    for (bank, list) in [1, 0].into_iter().cycle().zip(lists) {
        bench.configure_guarded(bank, &format!("clients = {{ {list} }}"));
        let admitted = cluster(&format!("clients = {{ {list} }}")).services[0].admitted.clone();
        let networks = admitted.networks.iter().map(|(network, _)| network);
        let mut answers = [0, 0];
        for client in networks.flat_map(at_the_edges_of) {
            let template = flows().into_iter().find(|flow| flow.client().is_ipv4() == client.is_ipv4());
            let flow = sb_flow { client: address_bytes(client), ..template.unwrap() };
            let is_admitted = admitted.admits(client);
            let moved = if is_admitted { SynAnswered } else { DropClient };
            assert_eq!(connect(&bench, &flow), [(moved, 1)], "{client} with {list}");
            answers[usize::from(is_admitted)] += 1;
        }
        assert!(answers.iter().all(|count| *count > 3), "{answers:?} with {list}");
    }
}

#[test]
fn a_request_of_a_client_that_is_let_in_no_more_is_read_by_the_l7_thread() {
    let bench = Bench::new();
    for flow in flows() {
        let (entry, packet) = requests(&flow);
        bench.configure(0);
        bench.put(&flow, &entry);
        assert_eq!(bench.send(&packet.frame()).moved, [(Express, 1), (Forwarded, 1)]);
        bench.configure_guarded(1, "clients = { allow = [\"192.0.2.199\"] }");
        bench.put(&flow, &entry);
        assert_eq!(bench.send(&packet.frame()).moved, [(Request, 1)]);
    }
}

#[test]
fn connections_count_with_their_first_data() {
    let bench = Bench::new();
    for (bank, flow) in flows().into_iter().enumerate() {
        let limit =
            "limit = { ipv6_prefix = 128, client.connections = { rate = 1, period = \"1h\", burst = 2 } }";
        bench.configure_guarded(bank % 2, limit);
        let (polite, greedy) = (of_client(&flow, 90), of_client(&flow, 91));
        let cookies = [polite, greedy].map(|flow| cookie(&bench, &flow));
        for _ in 0..5 {
            assert_eq!(connect(&bench, &greedy), [(SynAnswered, 1)], "SYNs cost nothing");
        }
        for _ in 0..2 {
            assert_eq!(ask(&bench, &greedy, cookies[1]), [(Request, 1)]);
        }
        assert_eq!(ask(&bench, &greedy, cookies[1]), [(DropRate, 1)]);
        assert_eq!(connect(&bench, &greedy), [(DropRate, 1)]);
        assert_eq!(connect(&bench, &polite), [(SynAnswered, 1)]);
        assert_eq!(ask(&bench, &polite, cookies[0]), [(Request, 1)]);
        // What belongs to a connection that has begun is no matter of the limit.
        let more = last(&polite, &Offer::USUAL, cookies[0], flags::ACK, REQUEST);
        assert_eq!(bench.send(&more.frame()).moved, [(Request, 1)]);
    }
}

#[test]
fn connections_at_a_time_are_those_that_have_not_ended() {
    let bench = Bench::new();
    for (bank, flow) in flows().into_iter().enumerate() {
        let limit = "limit = { ipv6_prefix = 128, client.concurrent = 2, all.concurrent = 3 }";
        bench.configure_guarded(bank % 2, limit);
        let of_port = |flow: &sb_flow, port: u16| sb_flow { client_port: port.to_be(), ..*flow };
        let [first, second, third] = [1, 2, 3].map(|port| of_port(&of_client(&flow, 95), 40_000 + port));
        let [other, last] = [1, 2].map(|port| of_port(&of_client(&flow, 96), 50_000 + port));
        let cookies = [&first, &second, &third, &other, &last].map(|flow| cookie(&bench, flow));
        for _ in 0..5 {
            assert_eq!(connect(&bench, &third), [(SynAnswered, 1)], "SYNs cost nothing");
        }
        assert_eq!(ask(&bench, &first, cookies[0]), [(Request, 1)]);
        assert_eq!(ask(&bench, &second, cookies[1]), [(Request, 1)]);
        assert_eq!(ask(&bench, &third, cookies[2]), [(DropConcurrent, 1)]);
        assert_eq!(connect(&bench, &third), [(DropConcurrent, 1)]);
        assert_eq!(ask(&bench, &other, cookies[3]), [(Request, 1)]);
        assert_eq!(ask(&bench, &last, cookies[4]), [(DropConcurrent, 1)], "of all clients");
        // Twice, because the end of a connection is heard of twice.
        for _ in 0..2 {
            let origin = bench.l7().mapped(&first).map_or(Seq(0), |entry| Seq(entry.origin));
            bench.l7().change_flows(&[(first, Change::Remove { origin })]).unwrap();
        }
        assert_eq!(ask(&bench, &third, cookies[2]), [(Request, 1)]);
        assert_eq!(ask(&bench, &last, cookies[4]), [(DropConcurrent, 1)]);
        for flow in [second, third, other] {
            let origin = Seq(bench.l7().mapped(&flow).unwrap().origin);
            bench.l7().change_flows(&[(flow, Change::Remove { origin })]).unwrap();
        }
        // A connection that only a node knows.
        let found = sb_flow_entry { origin: 1, ..entry(V4) };
        bench.l7().change_flows(&[(first, Change::Create(typed(&found)))]).unwrap();
        assert_eq!(ask(&bench, &second, cookies[1]), [(Request, 1)]);
        assert_eq!(ask(&bench, &third, cookies[2]), [(DropConcurrent, 1)]);
        for flow in [first, second] {
            let origin = Seq(bench.l7().mapped(&flow).unwrap().origin);
            bench.l7().change_flows(&[(flow, Change::Remove { origin })]).unwrap();
        }
    }
}

/// Packets of a client that is not let in, and of one that comes too often.
pub fn refuse(bench: &Bench) {
    let flow = flows()[0];
    let cookie = cookie(bench, &flow);
    bench.configure_guarded(1, "limit.client.connections = { rate = 1, period = \"1h\" }");
    ask(bench, &flow, cookie);
    assert_eq!(connect(bench, &flow), [(DropRate, 1)]);
    bench.configure_guarded(0, "limit.client.concurrent = 1");
    ask(bench, &flow, cookie);
    assert_eq!(connect(bench, &flow), [(DropConcurrent, 1)]);
    bench.configure_guarded(1, "clients = { allow = [\"192.0.2.199\"] }");
    assert_eq!(connect(bench, &flow), [(DropClient, 1)]);
    bench.configure(0);
}

#[test]
fn clients_of_one_network_share_a_bucket() {
    let bench = Bench::new();
    let limit =
        "limit = { ipv4_prefix = 24, ipv6_prefix = 120, client.connections = { rate = 1, period = \"1h\" } }";
    bench.configure_guarded(1, limit);
    for flow in flows() {
        let [first, second] = [of_client(&flow, 1), of_client(&flow, 2)];
        let mut other = of_client(&flow, 1);
        other.client[14] ^= 0x40;
        let cookies = [first, second, other].map(|flow| cookie(&bench, &flow));
        assert_eq!(ask(&bench, &first, cookies[0]), [(Request, 1)]);
        assert_eq!(ask(&bench, &second, cookies[1]), [(DropRate, 1)]);
        assert_eq!(ask(&bench, &other, cookies[2]), [(Request, 1)]);
    }
}

#[test]
fn all_clients_together_have_a_rate_too() {
    let bench = Bench::new();
    bench.configure_guarded(1, "limit.all.connections = { rate = 3, period = \"1h\" }");
    let clients: Vec<_> = flows().iter().flat_map(|flow| [1, 2].map(|last| of_client(flow, last))).collect();
    let cookies: Vec<_> = clients.iter().map(|flow| cookie(&bench, flow)).collect();
    let moved: Vec<_> =
        std::iter::zip(&clients, cookies).map(|(flow, cookie)| ask(&bench, flow, cookie)).collect();
    for (number, moved) in moved.into_iter().enumerate() {
        let counter = if number < 3 { Request } else { DropRate };
        assert_eq!(moved, [(counter, 1)], "connection {number}");
    }
}

#[test]
fn requests_beyond_the_rate_go_to_the_l7_thread() {
    let bench = Bench::new();
    for (bank, flow) in flows().into_iter().enumerate() {
        let flow = of_client(&flow, 100 + bank as u8);
        bench.configure_guarded(bank % 2, "limit.client.requests = { rate = 3, period = \"1h\" }");
        bench.choose_ahead(&[V4, V4], 90);
        let first = last(&flow, &Offer::USUAL, cookie(&bench, &flow), flags::ACK, PLAIN.as_bytes());
        bench.forget(&flow);
        assert_eq!(bench.send(&first.frame()).moved, [(Placed, 1), (Forwarded, 1)]);
        let (entry, packet) = requests(&flow);
        for _ in 0..2 {
            bench.put(&flow, &entry);
            assert_eq!(bench.send(&packet.frame()).moved, [(Express, 1), (Forwarded, 1)]);
        }
        for _ in 0..3 {
            bench.put(&flow, &entry);
            assert_eq!(bench.send(&packet.frame()).moved, [(Request, 1)]);
        }
        let choices = bench.choices_left();
        bench.forget(&flow);
        let cookie = cookie(&bench, &flow);
        let first = last(&flow, &Offer::USUAL, cookie, flags::ACK, PLAIN.as_bytes());
        assert_eq!(bench.send(&first.frame()).moved, [(Request, 1)]);
        assert_eq!(bench.choices_left(), choices, "no choice is spent on it");
    }
}

/// A wish of a client, whose bucket gains a token in an hour.
fn wish(client: &sb_flow, burst: u64, patience: Duration) -> Wish {
    const HOUR: Duration = Duration::from_secs(3600);
    let interval_ns = HOUR.as_nanos() as u64;
    Wish {
        bucket: Bucket { client: Some(client.client().ip()), service: 7, of: OF_REQUESTS },
        interval_ns,
        tolerance_ns: (burst - 1) * interval_ns,
        patience_ns: patience.as_nanos() as u64,
    }
}

#[test]
fn threads_take_tokens_of_the_same_buckets() {
    let bench = Bench::with_threads(2);
    let access = [0, 1].map(|thread| bench.program.l7(thread).unwrap());
    let [one, other] = [1, 2].map(|last| of_client(&flows()[0], last));
    for access in &access {
        assert_eq!(access.take_tokens(&[wish(&one, 2, Duration::ZERO)]), Taken::Now);
    }
    let over = |taken: Taken, hours: u64| {
        let (least, most) = (Duration::from_secs(3600 * hours - 60), Duration::from_secs(3600 * hours));
        assert!(matches!(taken, Taken::Over(wait) if (least..=most).contains(&wait)), "{taken:?}");
    };
    over(access[0].take_tokens(&[wish(&one, 2, Duration::ZERO)]), 1);
    // None of two tokens is taken if one is missing.
    over(access[1].take_tokens(&[wish(&other, 1, Duration::ZERO), wish(&one, 2, Duration::ZERO)]), 1);
    assert_eq!(access[1].take_tokens(&[wish(&other, 1, Duration::ZERO)]), Taken::Now);
    let patient = wish(&one, 2, Duration::from_secs(2 * 3600));
    for hours in [1, 2] {
        let taken = access[0].take_tokens(&[patient]);
        let about = Duration::from_secs(3600 * hours);
        assert!(
            matches!(taken, Taken::After(wait) if wait <= about && wait + Duration::from_secs(60) > about),
            "{taken:?}"
        );
    }
    over(access[0].take_tokens(&[patient]), 3);
}

#[test]
fn lists_of_a_hundred_thousand_networks_are_replaced_at_once() {
    let bench = Bench::new();
    let flow = flows()[0];
    let networks = |first: u32| {
        let all: Vec<_> = (0..100_000u32)
            .map(|n| format!("\"{}/28\"", Ipv4Addr::from_bits((first << 24) + (n << 4))))
            .collect();
        format!("clients = {{ deny = [{}, \"{}\"] }}", all.join(", "), flow.client().ip())
    };
    for bank in [1, 0, 1] {
        bench.configure_guarded(bank, &networks(10 + bank as u32));
        assert_eq!(connect(&bench, &flow), [(DropClient, 1)]);
        assert_eq!(connect(&bench, &of_client(&flow, 99)), [(SynAnswered, 1)]);
    }
    bench.configure_guarded(0, "");
    assert_eq!(connect(&bench, &flow), [(SynAnswered, 1)]);
}
