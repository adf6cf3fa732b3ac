//! The time of one decision with 100 nodes and 1,000 routes: `cargo bench -p switchback-switch`.
//!
//! `route` is from a head to the nodes that may have the request, `node` the policy's choice among 100 of them with what
//! is known of each, and `request` everything that a first request costs the L7 thread: head, route, node, flow entry
//! and the ADOPT packet with its tag.

use std::collections::HashMap;
use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use switchback_config::{Cluster, ClusterKey, Node, PolicyKind};
use switchback_flow::entry::Entry;
use switchback_http::{Limits, Progress, parse_head};
use switchback_policy::Ask;
use switchback_switch::dispatch::{Dispatcher, Moment};
use switchback_switch::plan::{LocalMachine, NodeId, Plan};
use switchback_wire::packet::{flags, segment};
use switchback_wire::{
    NodeAddress, Seq, address_bytes, keys, sb_flow, sb_flow_entry, sb_key, sb_record, sb_record_kind, session,
};

const NODES: usize = 100;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
/// Time between two choices.
const EVERY: Duration = Duration::from_micros(10);
const ROUTES: usize = 1000;
/// One of the last routes.
const REQUEST: &[u8] = b"GET /service/998/items/7 HTTP/1.1\r\nHost: shop98.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";

/// What a shop's page with a few trackers has.
const COOKIES: &str = "_ga=GA1.2.1839475023.1700000000; _gid=GA1.2.204857692.1700000000; _fbp=fb.1.1700000000000.1093847562; \
consent=eyJ2IjoxLCJhIjpbMSwyLDNdfQ; lang=en-GB; theme=dark; cart=7f3a9c1e5b2d4860; csrftoken=kq3vX9mZt2LrPw8YbN5cHs7J";
const REWRITE: &str = "[pool.persistence]\nmode = \"rewrite\"\ncookie = \"PHPSESSID\"\n";
const KEY: [u8; 32] = [7; 32];

/// A request with cookies, the last one of which is a session's with the node in the middle.
fn with_session() -> Vec<u8> {
    let key = keys::session_key(&KEY);
    let names: Vec<String> = (0..NODES).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let node = session::node_codes(&key, "web", &names)[NODES / 2];
    let name = session::rewritten(session::pool_codes(&key, &["web"])[0], node);
    let name = std::str::from_utf8(&name).expect("codes are ASCII");
    with_cookies(&format!("{COOKIES}; {name}D=9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d"))
}

fn with_cookies(cookies: &str) -> Vec<u8> {
    let head = &REQUEST[..REQUEST.len() - 2];
    [head, b"Cookie: ", cookies.as_bytes(), b"\r\n\r\n"].concat()
}

fn cluster(nodes: usize, policy: PolicyKind, persistence: &str) -> Cluster {
    routed(nodes, policy, persistence, |route| {
        format!("host = \"shop{}.example.com\"\npath = \"/service/{route}/\"\n", route % 100)
    })
}

/// A cluster whose routes have these conditions.
fn routed(
    nodes: usize,
    policy: PolicyKind,
    persistence: &str,
    conditions: impl Fn(usize) -> String,
) -> Cluster {
    let mut text = "[cluster]\nkey_file = \"key\"\n".to_owned();
    let mut add = |part: String| text.write_str(&part).expect("writing to a string does not fail");
    let mut names = Vec::new();
    for node in 0..nodes {
        add(format!("[[node]]\nname = \"n{node}\"\naddress = \"2001:db8::{:x}\"\n", node + 1));
        names.push(format!("\"n{node}\""));
    }
    add(format!(
        "[[pool]]\nname = \"web\"\nnodes = [{}]\npolicy = \"{policy}\"\n{persistence}",
        names.join(", ")
    ));
    add("[[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n".to_owned());
    for route in 0..ROUTES {
        add(format!("[[service.route]]\n{}pool = \"web\"\n", conditions(route)));
    }
    let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes(KEY)]);
    switchback_config::parse(&text, Path::new("cluster.toml"), keys).expect("the configuration is valid")
}

fn plan(cluster: &Cluster) -> Plan {
    let addresses = cluster.nodes.iter().map(Node::handoff_address);
    let ids: HashMap<NodeAddress, NodeId> = addresses.zip((0..).map(NodeId)).collect();
    let mut plan = Plan::new(cluster, sb_key::default(), ids, LocalMachine::default(), Duration::ZERO);
    for node in plan.nodes.iter_mut().flatten() {
        node.source = Some("2001:db8::ffff".parse().expect("an address"));
    }
    plan
}

fn random() -> impl FnMut() -> u64 + Send {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let vip = "192.0.2.100:80".parse().expect("an address");
    let round_robin = cluster(NODES, PolicyKind::RoundRobin, "");

    let limits = Limits::default();
    let Ok(Progress::Complete(head)) = parse_head(REQUEST, &limits) else { unreachable!("it is a head") };
    let routes = plan(&round_robin);
    let service = routes.service(vip).expect("the VIP is the service's");
    criterion
        .bench_function("route", |bencher| bencher.iter(|| routes.route(service, black_box(&head), CLIENT)));
    let by_regex = plan(&routed(NODES, PolicyKind::RoundRobin, "", |route| {
        format!("path_regex = \"/service/([a-z]+/)*{route}(/.*)?\"\n")
    }));
    criterion.bench_function("route by regular expression", |bencher| {
        bencher.iter(|| by_regex.route(service, black_box(&head), CLIENT));
    });

    for nodes in [NODES, 10 * NODES] {
        let mut group = criterion.benchmark_group(format!("one of {nodes} nodes"));
        for policy in PolicyKind::ALL {
            let mut plan = plan(&cluster(nodes, policy, ""));
            let (at, mut random, mut key) = (plan.group(0, vip).expect("the route is there"), random(), 0);
            group.bench_function(policy.name(), |bencher| {
                bencher.iter(|| {
                    key += 1;
                    let ask = Ask { key: Some(key.into()), now: EVERY * key };
                    let node = plan.pick((at, None), black_box(&ask), (&[], false), &[], &mut random);
                    let group = plan.group_mut(at).zip(node);
                    group.into_iter().for_each(|(group, node)| group.adoption_sent(node));
                    node
                });
            });
        }
        group.finish();
    }

    let sessions = cluster(NODES, PolicyKind::RoundRobin, REWRITE);
    for (name, cluster, request) in [
        ("request", &round_robin, REQUEST.to_vec()),
        ("request with cookies", &round_robin, with_cookies(COOKIES)),
        ("request with cookies of no session", &sessions, with_cookies(COOKIES)),
        ("request of a session", &sessions, with_session()),
    ] {
        bench_requests(&mut criterion, name, cluster, &request, vip);
    }
    criterion.final_summary();
}

/// First requests of many clients.
fn bench_requests(criterion: &mut Criterion, name: &str, cluster: &Cluster, request: &[u8], vip: SocketAddr) {
    let mut dispatcher = Dispatcher::new(plan(cluster), Box::new(random()));
    let mut client = 0u32;
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            client = client.wrapping_add(1);
            let flow = sb_flow {
                client: address_bytes(IpAddr::from(client.to_be_bytes())),
                vip: address_bytes(vip.ip()),
                client_port: 40_000u16.to_be(),
                vip_port: 80u16.to_be(),
            };
            let packet = segment(&flow, true, (Seq(5), Seq(6)), flags::ACK, None, request);
            let entry = sb_flow_entry { origin: 5, next: 5, mss: 1460, ..Default::default() };
            let mapped = Entry::decode(&entry);
            let kind = sb_record_kind::SB_RECORD_REQUEST as u32;
            let record = sb_record { kind, flow, entry, ..Default::default() };
            let at = Moment {
                now: Duration::from_micros(client.into()),
                map: &|_| mapped,
                take: &switchback_switch::dispatch::unlimited,
            };
            dispatcher.on_record(at, &record, &packet);
            dispatcher.output.clear();
            // Nobody answers here; what has been given up makes room.
            if client.is_multiple_of(1000) {
                dispatcher = Dispatcher::new(plan(cluster), Box::new(random()));
            }
        });
    });
}
