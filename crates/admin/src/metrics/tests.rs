//! What the text says of made-up answers, read by a strict reader.

#[path = "../../../cli/tests/common/openmetrics.rs"]
mod openmetrics;

use std::collections::BTreeSet;

use switchback_status::CopyStatus;
use switchback_status::node::{
    CertificateStatus, HealthStatus, ListenerStatus, MemberStatus, NodeStatus, OrderStatus, ResumeStatus,
    TlsStatus,
};
use switchback_status::switch::{
    DispatchCounts, DispatchStatus, InterfaceStatus, ListenerView, LoadStatus, NodeView, ServiceStatus,
    SwitchStatus, SwitchView,
};
use switchback_status::totals::{BOUNDS_US, Histogram, ResponseTotals, Timings, Totals};
use switchback_wire::{NodeCounter, SwitchCounter};

use super::*;

/// A switch with something of everything.
fn switch() -> SwitchStatus {
    let counts = (0..=BOUNDS_US.len() as u64).collect();
    let histogram = Histogram { counts, sum_us: 2_500_000 };
    let timings = Timings {
        service: "shop".to_owned(),
        pool: "web".to_owned(),
        queued: histogram.clone(),
        first_byte: histogram.clone(),
        duration: histogram,
    };
    let responses = |node: &str| ResponseTotals {
        service: "shop".to_owned(),
        pool: "web".to_owned(),
        node: node.to_owned(),
        statuses: [1, 2, 3, 4, 5, 6],
        bytes: 777,
        aborted_by_client: 8,
        aborted_by_server: 9,
    };
    let listener = ListenerView {
        pool: "web".to_owned(),
        listen: Some(([192, 0, 2, 100], 80).into()),
        state: "up".to_owned(),
        queue: 3,
        queue_limit: 511,
        ejections: 2,
        mirrors: false,
    };
    SwitchStatus {
        interfaces: vec![InterfaceStatus {
            name: "eth0".to_owned(),
            mode: "native".to_owned(),
            ..InterfaceStatus::default()
        }],
        version: "1.2.0".to_owned(),
        config: "9f8e7d6c".to_owned(),
        config_version: Some(17),
        uptime_s: 61,
        learning: false,
        leaving: false,
        flows: 5,
        services: vec![ServiceStatus { name: "shop".to_owned(), requests: 42, ..ServiceStatus::default() }],
        nodes: vec![NodeView {
            name: "n1".to_owned(),
            requests: 40,
            load: Some(LoadStatus { first_byte_us: Some(1500), cpu_permille: 250, ..LoadStatus::default() }),
            listeners: vec![listener],
            version: Some("1.2.0".to_owned()),
            config: Some("9f8e7d6c".to_owned()),
            ..NodeView::default()
        }],
        switches: vec![SwitchView {
            name: "s2".to_owned(),
            state: "serving".into(),
            version: Some("1.3.0".to_owned()),
            config: Some("1a2b3c4d".to_owned()),
            taken_over: Some(13),
            heard_by: 1,
            ..SwitchView::default()
        }],
        dispatch: DispatchStatus {
            counts: DispatchCounts {
                answered: [(404, 2)].into(),
                refused_requests: [("bad method".into(), 3)].into(),
                ..DispatchCounts::default()
            },
            held_bytes: 1024,
            ..DispatchStatus::default()
        },
        copies: CopyStatus { sent: 21, dropped: 22, ..CopyStatus::default() },
        counters: SwitchCounter::ALL.iter().map(|counter| (counter.name().into(), 11)).collect(),
        events: Vec::new(),
        responses: Some(Totals {
            responses: vec![responses("n1"), responses("")],
            timings: vec![timings],
            log_lines: 100,
            log_lost: 1,
            facts_lost: 2,
            requests_forgotten: 3,
        }),
    }
}

fn member(name: &str) -> MemberStatus {
    let first_byte_us = (name == "n1").then_some(700);
    MemberStatus { name: name.to_owned(), flows: 7, first_byte_us, ..MemberStatus::default() }
}

fn node() -> NodeStatus {
    let address = Some(([192, 0, 2, 100], 80).into());
    let listener = ListenerStatus {
        pool: "web".to_owned(),
        address,
        state: "ready".into(),
        queue_len: Some(1),
        queue_limit: Some(511),
        ..ListenerStatus::default()
    };
    let check =
        HealthStatus { pool: "web".to_owned(), address, state: "down".to_owned(), ..HealthStatus::default() };
    NodeStatus {
        name: "n1".to_owned(),
        config_version: Some(17),
        interface: "eth0".to_owned(),
        cpu: 0.5,
        nodes: ["n1", "n2"].map(member).into(),
        listeners: vec![listener],
        health: vec![check],
        tls: vec![TlsStatus { service: "shop".to_owned(), ..TlsStatus::default() }],
        certificates: vec![CertificateStatus {
            service: "shop".to_owned(),
            name: "shop.example.com".to_owned(),
            not_before: 1_790_000_000,
            not_after: 1_800_000_000,
        }],
        orders: vec![OrderStatus {
            certificate: "shop.example.com".to_owned(),
            issued: 3,
            failed: 4,
            ..OrderStatus::default()
        }],
        resume: Some(ResumeStatus {
            uninsured: [("length".into(), 2)].into(),
            failed: [("mismatch".into(), 1)].into(),
            ..ResumeStatus::default()
        }),
        log_lines: 90,
        log_lost: 2,
        copies: CopyStatus { answered: 23, failed: 24, ..CopyStatus::default() },
        counters: NodeCounter::ALL.iter().map(|counter| (counter.name().into(), 12)).collect(),
        ..NodeStatus::default()
    }
}

fn scraped(answers: Answers) -> openmetrics::Metrics {
    let text = Arc::new(Metrics::new()).text(Arc::new(answers)).unwrap();
    openmetrics::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn a_machine_that_is_both_has_every_metric_once() {
    let metrics = scraped(vec![Ok(Status::Switch(Box::new(switch()))), Ok(Status::Node(Box::new(node())))]);
    let found: BTreeSet<&str> = metrics
        .families
        .values()
        .flat_map(|family| family.samples.iter().map(|sample| &sample.name[..]))
        .collect();
    let all: Vec<String> = samples().into_iter().map(|(name, _)| name).collect();
    let missing: Vec<_> = all.iter().filter(|name| !found.contains(&name[..])).collect();
    // How many descriptors there can be need not be bounded.
    assert!(missing.iter().all(|name| *name == "process_max_fds"), "{missing:?}");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert!(metrics.families.values().all(|family| !family.help.ends_with('.')));
}

#[test]
fn what_the_metrics_say() {
    let metrics = scraped(vec![Ok(Status::Switch(Box::new(switch()))), Ok(Status::Node(Box::new(node())))]);
    let of = |node| [("service", "shop"), ("pool", "web"), ("node", node)];
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);
    let rows: [Row<'_>; 34] = [
        ("switchback_switch_syn_answered_total", &[], 11.0),
        ("switchback_node_adopted_total", &[], 12.0),
        ("switchback_node_acme_issued_total", &[("certificate", "shop.example.com")], 3.0),
        ("switchback_node_acme_failed_total", &[("certificate", "shop.example.com")], 4.0),
        (
            "switchback_node_tls_certificate_not_after_seconds",
            &[("service", "shop"), ("certificate", "shop.example.com")],
            1_800_000_000.0,
        ),
        ("switchback_requests_total", &[("service", "shop")], 42.0),
        ("switchback_switch_node_requests_total", &[("node", "n1")], 40.0),
        ("switchback_switch_node_first_byte_seconds", &[("node", "n1")], 0.0015),
        ("switchback_switch_node_cpu_ratio", &[("node", "n1")], 0.25),
        (
            "switchback_switch_node_accept_queue_limit",
            &[("pool", "web"), ("listen", "192.0.2.100:80")],
            511.0,
        ),
        ("switchback_switch_node_ejections_total", &[("pool", "web"), ("listen", "192.0.2.100:80")], 2.0),
        (
            "switchback_switch_software_info",
            &[("switch", "s2"), ("version", "1.3.0"), ("config", "1a2b3c4d")],
            1.0,
        ),
        ("switchback_switch_up", &[("switch", "s2")], 1.0),
        ("switchback_switch_heard_by_nodes", &[("switch", "s2")], 1.0),
        ("switchback_switch_taken_over_flows_total", &[("switch", "s2")], 13.0),
        ("switchback_switch_configuration_version", &[], 17.0),
        ("switchback_switch_other_configurations", &[], 1.0),
        ("switchback_switch_other_versions", &[], 1.0),
        ("switchback_dispatch_answered_total", &[("code", "404")], 2.0),
        ("switchback_dispatch_refused_requests_total", &[("reason", "bad method")], 3.0),
        ("switchback_dispatch_held_bytes", &[], 1024.0),
        ("switchback_response_bytes_total", &of("n1"), 777.0),
        ("switchback_response_first_byte_seconds_sum", &[], 2.5),
        ("switchback_response_first_byte_seconds_count", &[], 105.0),
        ("switchback_node_health_check_up", &[("pool", "web")], 0.0),
        ("switchback_node_flows", &[], 14.0),
        ("switchback_node_flows", &[("node", "n2")], 7.0),
        ("switchback_node_first_byte_seconds", &[], 0.0007),
        ("switchback_node_access_log_lines_total", &[], 90.0),
        ("switchback_node_access_log_lost_lines_total", &[], 2.0),
        ("switchback_switch_copies_sent_total", &[], 21.0),
        ("switchback_switch_copies_dropped_total", &[], 22.0),
        ("switchback_node_copies_answered_total", &[], 23.0),
        ("switchback_node_copies_failed_total", &[], 24.0),
    ];
    for (name, labels, value) in rows {
        assert_eq!(metrics.sum(name, labels), Some(value), "{name}");
    }
    for (node, code, count) in [("n1", "2xx", 3.0), ("", "none", 1.0), ("", "5xx", 6.0)] {
        let labels = [&of(node)[..], &[("code", code)]].concat();
        assert_eq!(metrics.sum("switchback_responses_total", &labels), Some(count));
    }
    // The bound in seconds, and everything below it.
    let bucket = [("pool", "web"), ("le", "0.00025")];
    assert_eq!(metrics.sum("switchback_request_queued_seconds_bucket", &bucket), Some(1.0));
}

/// Every number that the dispatcher gives has a metric of its name.
#[test]
fn no_count_of_the_dispatcher_is_forgotten() {
    let metrics = scraped(vec![Ok(Status::Switch(Box::new(switch())))]);
    let fields = serde_json::to_value(DispatchStatus::default()).unwrap();
    for name in fields.as_object().unwrap().keys() {
        let families = metrics.families.keys();
        let metric = format!("switchback_dispatch_{name}");
        let same = families.filter(|family| **family == metric || family.starts_with(&format!("{metric}_")));
        assert_eq!(same.count(), 1, "{name}");
    }
}

#[test]
fn without_facts_about_responses_there_are_no_such_metrics() {
    let status = SwitchStatus { responses: None, ..switch() };
    let metrics = scraped(vec![Ok(Status::Switch(Box::new(status)))]);
    assert_eq!(metrics.sum("switchback_responses_total", &[]), None);
    assert_eq!(metrics.sum("switchback_access_log_lines_total", &[]), None);
}

/// A strict reader that takes everything would make the other tests worthless.
#[test]
fn the_reader_is_strict() {
    let good =
        "# HELP a_seconds A\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds{x=\"1\"} 2\n# EOF\n";
    assert!(openmetrics::parse(good).is_ok());
    for (old, new) in [
        ("# EOF\n", ""),
        ("# HELP a_seconds A\n", ""),
        ("# TYPE a_seconds gauge\n", ""),
        ("# UNIT a_seconds seconds\n", ""),
        ("gauge", "counter"),
        ("a_seconds{", "b_seconds{"),
        ("} 2", "} two"),
        ("} 2", "}  2"),
        ("x=\"1\"", "x=\"1\",x=\"1\""),
        ("x=\"1\"", "x=\"1"),
        ("} 2\n", "} 2\na_seconds{x=\"1\"} 3\n"),
        ("# HELP a_seconds A\n", "# HELP a_seconds A \n"),
    ] {
        assert!(openmetrics::parse(&good.replacen(old, new, 1)).is_err(), "{old:?} -> {new:?}");
    }
    let histogram = "# HELP h H\n# TYPE h histogram\nh_sum 1.0\nh_count 2\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 2\n# EOF\n";
    assert!(openmetrics::parse(histogram).is_ok());
    for (old, new) in
        [("h_count 2", "h_count 3"), ("\"1.0\"} 1", "\"1.0\"} 3"), ("h_bucket{le=\"+Inf\"} 2\n", "")]
    {
        assert!(openmetrics::parse(&histogram.replacen(old, new, 1)).is_err(), "{old:?} -> {new:?}");
    }
    assert!(openmetrics::parse("# HELP a_ms A\n# TYPE a_ms gauge\n# EOF\n").is_err());
}

#[test]
fn the_reference_is_up_to_date() {
    let committed = include_str!("../../../../docs/metrics.md");
    assert!(
        committed == reference(),
        "docs/metrics.md differs: cargo run -p switchback-admin --example metrics-reference > docs/metrics.md"
    );
}
