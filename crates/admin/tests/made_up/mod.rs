//! A switch that there is not, with a load that changes as it would.

use std::time::Duration;

use switchback_runtime::events::Event;
use switchback_status::CopyStatus;
use switchback_status::switch::{
    DispatchCounts, DispatchStatus, InterfaceStatus, ListenerView, LoadStatus, NodeView, ServiceStatus,
    SwitchStatus, SwitchView,
};
use switchback_status::totals::{BOUNDS_US, Histogram, ResponseTotals, Timings, Totals};
use switchback_wire::SwitchCounter;

/// After running for so long, with so many nodes. Of four or more the second drains, of six or more the fourth has no
/// server. With four or more, it is one of four switches, of which the second has another configuration and the third is
/// silent. `known`: the nodes tell of their responses.
pub fn switch(nodes: usize, known: bool, up: Duration) -> SwitchStatus {
    let seconds = up.as_secs_f64();
    // The integral of a rate that swells and sinks.
    let grown = |per_s: f64, phase: f64| {
        (per_s * (seconds + 3.0 * ((seconds / 7.0 + phase).sin() - phase.sin()))).max(0.0) as u64
    };
    let nodes: Vec<NodeView> = (0..nodes).map(|index| node(index, nodes, up, &grown)).collect();
    let requests: u64 = nodes.iter().map(|node| node.requests).sum();
    let responses = known.then(|| totals(&nodes, requests, &grown));
    let service = |name: &str, listen: &[&str], requests| ServiceStatus {
        routes: vec!["/img/ -> img".to_owned(), "all -> web".to_owned()],
        limits: vec![
            "clients denied: blocked".to_owned(),
            "requests of each client: 50 in 1s, burst 200".to_owned(),
        ],
        name: name.to_owned(),
        listen: listen.iter().filter_map(|vip| vip.parse().ok()).collect(),
        requests,
    };
    SwitchStatus {
        interfaces: vec![InterfaceStatus {
            name: "eth0".to_owned(),
            mode: "native".to_owned(),
            kernel_sends: false,
        }],
        version: "0.1.0".to_owned(),
        config: "9f8e7d6c".to_owned(),
        config_version: None,
        uptime_s: 3725 + up.as_secs(),
        learning: false,
        leaving: false,
        flows: 1234 + grown(0.2, 0.0) % 100,
        services: vec![
            service("shop", &["192.0.2.100:80", "[2001:db8::100]:80"], requests * 3 / 4),
            service("api", &["192.0.2.101:80"], requests / 4),
        ],
        copies: CopyStatus { sent: grown(1.0, 0.0), ..CopyStatus::default() },
        dispatch: DispatchStatus {
            waiting: grown(0.5, 0.0) % 4,
            counts: DispatchCounts {
                answered: [(302, grown(2.0, 0.0)), (404, 41), (503, 7)].into(),
                refused_requests: [("bad method".into(), 3)].into(),
                ..DispatchCounts::default()
            },
            ..DispatchStatus::default()
        },
        counters: [(SwitchCounter::DropTag.name().into(), 2)].into(),
        responses,
        events: events(),
        switches: if nodes.len() >= 4 { switches(nodes.len() as u32, up) } else { Vec::new() },
        nodes,
    }
}

fn events() -> Vec<Event> {
    let event = |(time, level, message): (&str, &str, &str)| Event {
        time: format!("2026-11-25T{time}Z"),
        level: level.to_owned(),
        message: message.to_owned(),
    };
    [
        ("22:08:01.004", "info", "switch ready on eth0 (native XDP)"),
        ("22:08:01.104", "info", "nodes heard for the first time: web1, web2, web3"),
        ("23:01:44.712", "warn", "pool web at node web2: no listener"),
        ("23:02:10.350", "error", "pool img has no node in service: web2 no listener"),
    ]
    .map(event)
    .into()
}

fn switches(nodes: u32, up: Duration) -> Vec<SwitchView> {
    let switch = |name: &str, state: &'static str| SwitchView {
        name: name.to_owned(),
        state: state.into(),
        version: Some("0.1.0".to_owned()),
        config: Some("9f8e7d6c".to_owned()),
        taken_over: Some(0),
        heard_by: nodes,
        addresses: 1,
        ..SwitchView::default()
    };
    let unknown = SwitchView { name: "edge4".to_owned(), state: "unknown".into(), ..SwitchView::default() };
    vec![
        SwitchView { here: true, taken_over: Some(1234), ..switch("edge1", "serving") },
        SwitchView { config: Some("1a2b3c4d".to_owned()), ..switch("edge2", "withdrawn") },
        SwitchView {
            silent_s: Some(61 + up.as_secs()),
            heard_by: 0,
            addresses: 0,
            ..switch("edge3", "silent")
        },
        unknown,
    ]
}

fn node(index: usize, all: usize, up: Duration, grown: &impl Fn(f64, f64) -> u64) -> NodeView {
    let (draining, ill) = (all >= 4 && index == 1, all >= 6 && index == 3);
    let per_s = if draining || ill { 0.0 } else { 150.0 + 40.0 * (index % 5) as f64 };
    let left = 180u64.saturating_sub(up.as_secs() * 6) as u32;
    let listener = |pool: &str, vip: &str| ListenerView {
        pool: pool.to_owned(),
        listen: vip.parse().ok(),
        state: (if ill { "no listener" } else { "up" }).to_owned(),
        queue: if ill { 0 } else { (index as u32 * 37 + grown(3.0, index as f64) as u32) % 520 },
        queue_limit: if ill { 0 } else { 511 },
        ..ListenerView::default()
    };
    NodeView {
        name: format!("web{}", index + 1),
        address: format!("192.0.2.{}", 21 + index).parse().ok(),
        resolved: true,
        requests: 1000 + grown(per_s, index as f64),
        draining,
        load: Some(LoadStatus {
            flows: if draining { left } else { 200 + index as u32 * 7 },
            in_flight: if draining { left / 20 } else { 3 + index as u32 % 4 },
            first_byte_us: (!draining && !ill).then_some(420 + 130 * (index as u64 % 6)),
            cpu_permille: 120 + (index as u16 * 83 + up.as_secs() as u16 * 3) % 700,
        }),
        listeners: vec![listener("web", "192.0.2.100:80"), listener("api", "192.0.2.101:80")],
        ..NodeView::default()
    }
}

fn totals(nodes: &[NodeView], requests: u64, grown: &impl Fn(f64, f64) -> u64) -> Totals {
    let of = |node: &NodeView| ResponseTotals {
        service: "shop".to_owned(),
        pool: "web".to_owned(),
        node: node.name.clone(),
        statuses: [0, 0, node.requests, 0, 0, if node.name == "web3" { grown(0.7, 0.0) } else { 0 }],
        bytes: node.requests * 96_000,
        aborted_by_client: node.requests / 5000,
        aborted_by_server: 0,
    };
    // Around the bound with this index.
    let histogram = |centre: f64| {
        let share = |index: usize| (-((index as f64 - centre) / 1.6).powi(2)).exp();
        let all: f64 = (0..=BOUNDS_US.len()).map(share).sum();
        let counts = (0..=BOUNDS_US.len()).map(|index| (requests as f64 * share(index) / all) as u64);
        Histogram { counts: counts.collect(), sum_us: requests * 700 }
    };
    let timings = |service: &str, pool: &str, slower: f64| Timings {
        service: service.to_owned(),
        pool: pool.to_owned(),
        queued: histogram(0.4),
        first_byte: histogram(2.5 + slower),
        duration: histogram(4.0 + slower),
    };
    Totals {
        responses: nodes.iter().map(of).collect(),
        timings: vec![timings("shop", "web", 0.0), timings("api", "api", 3.0)],
        log_lines: requests,
        ..Totals::default()
    }
}
