//! Metrics of a node agent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use prometheus_client::registry::Unit;
use switchback_status::node::{
    HealthStatus, ListenerStatus, MemberStatus, NodeStatus, OrderStatus, ResumeStatus, TlsStatus,
};
use switchback_wire::NodeCounter;

use crate::metric::{Add, Kind, Metric, Value};

/// A counter of a service with TLS: name, help, value.
type Count = (&'static str, &'static str, fn(&TlsStatus) -> u64);

/// Counters of a service with TLS.
const TLS_COUNTS: [Count; 16] = [
    ("handshakes", "Handshakes that needed a certificate", |tls| tls.handshakes),
    ("resumed", "Handshakes that went on with an earlier session", |tls| tls.resumed),
    ("failed", "Handshakes that failed, or were not done in time", |tls| tls.failed),
    ("requests", "Requests over TLS", |tls| tls.requests),
    ("responses", "Responses of servers to these", |tls| tls.responses),
    ("refused", "Requests over TLS that the node answered with an error", |tls| tls.refused),
    ("connections_refused", "Connections that were closed at once, because there were too many", |tls| {
        tls.connections_refused
    }),
    (
        "handshakes_refused",
        "Connections that were closed at once, because there were too many handshakes",
        |tls| tls.handshakes_refused,
    ),
    ("streams_refused", "Streams of HTTP/2 that were refused, because there were too many", |tls| {
        tls.streams_refused
    }),
    ("given", "Connections given to other nodes, in the middle", |tls| tls.given),
    ("taken", "Connections that other nodes have given", |tls| tls.taken),
    ("forwarded", "Requests over TLS that were forwarded to other nodes", |tls| tls.forwarded),
    ("requests_given", "Requests given to another node, which makes and encrypts the response", |tls| {
        tls.requests_given
    }),
    ("requests_taken", "Requests of other nodes' clients that were given to this one", |tls| {
        tls.requests_taken
    }),
    ("kernel", "Connections whose records the kernel has begun to encrypt", |tls| tls.kernel),
    ("spliced", "Responses of which the kernel has moved data, from the server to what it encrypts", |tls| {
        tls.spliced
    }),
];

/// All metrics of a node agent.
pub(super) fn metrics() -> Vec<Metric<NodeStatus>> {
    let mut all = vec![
        Metric::new(Kind::Info, "switchback_node", "A node of this machine", &["node", "interface"], info),
        single("configuration_version", "Version in etcd of the configuration in force", |status| {
            status.config_version
        }),
        of_member("flows", "Connections that the node has, or is taking over", |node| {
            Some(node.flows.into())
        }),
        of_member("in_flight_requests", "Requests that the node has and has not answered whole", |node| {
            Some(node.in_flight.into())
        }),
        of_member("is_draining", "1 if the node takes over nothing because it is to become idle", |node| {
            Some(node.draining.into())
        }),
        single("cpu", "Share of the machine's CPU time in use", |status| Some(status.cpu))
            .unit(Unit::Other("ratio".to_owned())),
        of_member(
            "first_byte",
            "Mean time to first byte of the last report; absent if there was no response",
            |node| node.first_byte_us.map(|us| (us as f64 / 1e6).into()),
        )
        .unit(Unit::Seconds),
        single("reported_switches", "Switches that get this node's reports", |status| {
            Some(status.switches.len() as u64)
        }),
        of_listener("listener_ready", "1 if the pool may have requests at this VIP", |listener| {
            Some(listener.is_ready().into())
        }),
        of_listener("accept_queue_length", "Connections that the server has not accepted yet", |listener| {
            listener.queue_len.map(Value::from)
        }),
        of_listener("accept_queue_limit", "How many of them there may be", |listener| {
            listener.queue_limit.map(Value::from)
        }),
        Metric::new(
            Kind::Gauge,
            "switchback_node_health_check_up",
            "1 if the last health checks have found the server well",
            &["node", "pool", "listen"],
            health,
        ),
    ];
    all.push(of_service(Kind::Gauge, "connections", "Connections of clients", |tls| tls.connections));
    all.extend(TLS_COUNTS.map(|(name, help, count)| of_service(Kind::Counter, name, help, count)));
    all.push(
        Metric::new(
            Kind::Gauge,
            "switchback_node_tls_certificate_not_after",
            "When the certificate ends, since 1970",
            &["service", "certificate"],
            |status: &NodeStatus, add: &mut Add<'_>| {
                let certificates = status.certificates.iter();
                certificates.for_each(|one| add(&[&one.service, &one.name], one.not_after.into()));
            },
        )
        .unit(Unit::Seconds),
    );
    all.push(of_order("issued", "Certificates that the CA has issued", |order| order.issued));
    all.push(of_order("failed", "Orders of certificates at the CA that have failed", |order| order.failed));
    all.extend(of_resumed());
    all.push(counted("access_log_lines", "Lines of the node's access log", |status| status.log_lines));
    all.push(counted(
        "access_log_lost_lines",
        "Lines of the node's access log that were not written because there were too many",
        |status| status.log_lost,
    ));
    all.extend([
        counted("copies_sent", "Copies of requests over TLS sent to other nodes", |status| {
            status.copies.sent
        }),
        counted("copies_dropped", "Copies of requests dropped for want of room", |status| {
            status.copies.dropped
        }),
        counted("copies_answered", "Copies of requests that a server here has answered", |status| {
            status.copies.answered
        }),
        counted("copies_failed", "Copies of requests that a server here has not answered", |status| {
            status.copies.failed
        }),
    ]);
    all.extend(NodeCounter::ALL.into_iter().map(|counter| {
        let name = format!("switchback_node_{}", counter.name());
        Metric::single(Kind::Counter, name, counter.help(), move |status: &NodeStatus| {
            status.counters.get(counter.name()).copied()
        })
    }));
    all
}

/// Metrics of resumed responses, for nodes with a pool that has them.
fn of_resumed() -> Vec<Metric<NodeStatus>> {
    type Read = fn(&ResumeStatus) -> u64;
    let one = |kind, name, help, read: Read| {
        let name = format!("switchback_node_resume_{name}");
        Metric::single(kind, name, help, move |status: &NodeStatus| status.resume.as_ref().map(read))
    };
    type Reasons = fn(&ResumeStatus) -> &BTreeMap<Cow<'static, str>, u64>;
    let by_reason = |name, help, read: Reasons| {
        let samples = move |status: &NodeStatus, add: &mut Add<'_>| {
            for (reason, count) in status.resume.iter().flat_map(read) {
                add(&[reason], (*count).into());
            }
        };
        Metric::new(Kind::Counter, format!("switchback_node_resume_{name}"), help, &["reason"], samples)
    };
    vec![
        one(Kind::Counter, "insured", "Long responses of which other nodes were told", |resume| {
            resume.insured
        }),
        one(Kind::Gauge, "under_way", "Those of them that are under way", |resume| resume.under_way),
        by_reason("uninsured", "Long responses with which no other node could go on", |resume| {
            &resume.uninsured
        }),
        one(Kind::Gauge, "kept", "Responses of other nodes with which this one could go on", |resume| {
            resume.kept
        }),
        one(Kind::Gauge, "kept_memory", "Memory of these", |resume| resume.kept_bytes).unit(Unit::Bytes),
        one(Kind::Counter, "evicted", "Responses of other nodes that gave way to later ones", |resume| {
            resume.evicted
        }),
        one(Kind::Counter, "finished", "Responses of dead nodes that went on here to their end", |resume| {
            resume.resumed
        }),
        by_reason(
            "failed",
            "Responses of dead nodes that did not go on, and whose connections were reset",
            |resume| &resume.failed,
        ),
    ]
}

fn single<V: Into<Value>>(
    name: &str,
    help: &'static str,
    value: impl Fn(&NodeStatus) -> Option<V> + Send + Sync + 'static,
) -> Metric<NodeStatus> {
    Metric::single(Kind::Gauge, format!("switchback_node_{name}"), help, value)
}

fn of_member(
    name: &str,
    help: &'static str,
    value: fn(&MemberStatus) -> Option<Value>,
) -> Metric<NodeStatus> {
    let samples = move |status: &NodeStatus, add: &mut Add<'_>| {
        for node in &status.nodes {
            value(node).into_iter().for_each(|value| add(&[&node.name], value));
        }
    };
    Metric::new(Kind::Gauge, format!("switchback_node_{name}"), help, &["node"], samples)
}

fn counted(name: &str, help: &'static str, count: fn(&NodeStatus) -> u64) -> Metric<NodeStatus> {
    let read = move |status: &NodeStatus| Some(count(status));
    Metric::single(Kind::Counter, format!("switchback_node_{name}"), help, read)
}

fn of_listener(
    name: &str,
    help: &'static str,
    value: fn(&ListenerStatus) -> Option<Value>,
) -> Metric<NodeStatus> {
    let samples = move |status: &NodeStatus, add: &mut Add<'_>| {
        for listener in &status.listeners {
            if let (Some(address), Some(value)) = (listener.address, value(listener)) {
                add(&[&listener.node, &listener.pool, &address.to_string()], value);
            }
        }
    };
    Metric::new(Kind::Gauge, format!("switchback_node_{name}"), help, &["node", "pool", "listen"], samples)
}

fn of_service(
    kind: Kind,
    name: &str,
    help: &'static str,
    value: fn(&TlsStatus) -> u64,
) -> Metric<NodeStatus> {
    let samples = move |status: &NodeStatus, add: &mut Add<'_>| {
        status.tls.iter().for_each(|tls| add(&[&tls.service], value(tls).into()));
    };
    Metric::new(kind, format!("switchback_node_tls_{name}"), help, &["service"], samples)
}

fn of_order(name: &str, help: &'static str, count: fn(&OrderStatus) -> u64) -> Metric<NodeStatus> {
    let samples = move |status: &NodeStatus, add: &mut Add<'_>| {
        status.orders.iter().for_each(|order| add(&[&order.certificate], count(order).into()));
    };
    Metric::new(Kind::Counter, format!("switchback_node_acme_{name}"), help, &["certificate"], samples)
}

fn info(status: &NodeStatus, add: &mut Add<'_>) {
    status.nodes.iter().for_each(|node| add(&[&node.name, &status.interface], Value::Labels));
}

fn health(status: &NodeStatus, add: &mut Add<'_>) {
    let known = |check: &&HealthStatus| check.state == "up" || check.state == "down";
    for check in status.health.iter().filter(known) {
        if let Some(address) = check.address {
            add(&[&check.node, &check.pool, &address.to_string()], (check.state == "up").into());
        }
    }
}
