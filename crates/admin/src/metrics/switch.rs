//! Metrics of a switch.

use prometheus_client::registry::Unit;
use switchback_status::CopyStatus;
use switchback_status::switch::{
    DispatchCounts, DispatchStatus, ListenerView, LoadStatus, NodeView, SwitchStatus, SwitchView,
};
use switchback_status::totals::{Histogram, ResponseTotals, Timings, Totals};
use switchback_wire::SwitchCounter;
use switchback_wire::switches::SwitchState;

use crate::metric::{Add, Kind, Metric, Value};

/// All metrics of a switch.
pub(super) fn metrics() -> Vec<Metric<SwitchStatus>> {
    let mut all = own();
    all.extend(of_nodes());
    all.extend(of_switches());
    all.extend(of_dispatch());
    all.extend(of_responses());
    all.push(copies(
        "copies_sent",
        "Copies of requests sent to nodes of the pools that mirror them",
        |copies| copies.sent,
    ));
    all.push(copies("copies_dropped", "Copies of requests dropped on the way to nodes", |copies| {
        copies.dropped
    }));
    all.extend(SwitchCounter::ALL.into_iter().map(|counter| {
        let name = format!("switchback_switch_{}", counter.name());
        Metric::single(Kind::Counter, name, counter.help(), move |status: &SwitchStatus| {
            status.counters.get(counter.name()).copied()
        })
    }));
    all
}

fn copies(name: &str, help: &'static str, count: fn(&CopyStatus) -> u64) -> Metric<SwitchStatus> {
    let read = move |status: &SwitchStatus| Some(count(&status.copies));
    Metric::single(Kind::Counter, format!("switchback_switch_{name}"), help, read)
}

fn own() -> Vec<Metric<SwitchStatus>> {
    let interfaces = |status: &SwitchStatus, add: &mut Add<'_>| {
        for interface in &status.interfaces {
            add(&[&interface.name, &interface.mode], Value::Labels);
        }
    };
    let requests = |status: &SwitchStatus, add: &mut Add<'_>| {
        for service in &status.services {
            add(&[&service.name], service.requests.into());
        }
    };
    vec![
        Metric::new(
            Kind::Info,
            "switchback_switch_interface",
            "An interface with the XDP program",
            &["interface", "mode"],
            interfaces,
        ),
        Metric::single(Kind::Gauge, "switchback_switch_uptime", "Time since the switch began", |status| {
            Some((status as &SwitchStatus).uptime_s)
        })
        .unit(Unit::Seconds),
        Metric::single(Kind::Gauge, "switchback_switch_flows", "Entries of the flow map", |status| {
            Some((status as &SwitchStatus).flows)
        }),
        Metric::new(
            Kind::Counter,
            "switchback_requests",
            "Requests that were given to a node, by service",
            &["service"],
            requests,
        ),
    ]
}

fn of_nodes() -> Vec<Metric<SwitchStatus>> {
    let gauge = |name, help, value: fn(&NodeView) -> Option<Value>| of_node(Kind::Gauge, name, help, value);
    vec![
        of_node(Kind::Counter, "requests", "Requests that the node was given", |node| {
            Some(node.requests.into())
        }),
        of_node(Kind::Counter, "adoptions", "Connections that the node took over", |node| {
            Some(node.adopted.into())
        }),
        of_node(Kind::Counter, "refusals", "Connections that the node would not take over", |node| {
            Some(node.refused.into())
        }),
        of_node(Kind::Counter, "releases", "Connections that the node gave up", |node| {
            Some(node.released.into())
        }),
        gauge("up", "1 if the node may have requests for some pool", |node| Some(node.is_up().into())),
        gauge("suspect", "1 if nothing has been heard of the node for too long", |node| {
            Some(node.silent.into())
        }),
        gauge("draining", "1 if the node is to become idle", |node| Some(node.draining.into())),
        gauge("next_hop_resolved", "1 if XDP can send to the node without the L7 thread", |node| {
            Some(node.resolved.into())
        }),
        of_load("flows", "Connections that the node has, as it reports", |load| Some(load.flows.into())),
        of_load(
            "in_flight_requests",
            "Requests that the node has and has not answered whole, as it reports",
            |load| Some(load.in_flight.into()),
        ),
        of_load("first_byte", "Mean time to first byte of the node's last report", |load| {
            load.first_byte_us.map(|us| (us as f64 / 1e6).into())
        })
        .unit(Unit::Seconds),
        of_load("cpu", "Share of the node's CPU time in use, as it reports", |load| {
            Some((f64::from(load.cpu_permille) / 1000.0).into())
        })
        .unit(Unit::Other("ratio".to_owned())),
        of_listener(
            Kind::Gauge,
            "listener_up",
            "1 if the pool may have requests on the node at this VIP",
            |node, listener| Some(node.may_serve(listener).into()),
        ),
        of_listener(
            Kind::Gauge,
            "accept_queue_length",
            "Connections that the node's server has not accepted yet",
            |_, listener| Some(listener.queue.into()),
        ),
        of_listener(
            Kind::Gauge,
            "accept_queue_limit",
            "How many of them the pool may cause",
            |_, listener| (listener.queue_limit != 0).then(|| listener.queue_limit.into()),
        ),
        of_listener(
            Kind::Gauge,
            "ejected",
            "1 if the node is ejected as an outlier of the pool",
            |_, listener| Some(listener.is_ejected().into()),
        ),
        of_listener(
            Kind::Counter,
            "ejections",
            "How often the node has been ejected as an outlier of the pool",
            |_, listener| Some(listener.ejections.into()),
        ),
    ]
}

fn of_switches() -> Vec<Metric<SwitchStatus>> {
    let software = |status: &SwitchStatus, add: &mut Add<'_>| {
        for switch in &status.switches {
            if let (Some(version), Some(config)) = (&switch.version, &switch.config) {
                add(&[&switch.name, version, config], Value::Labels);
            }
        }
    };
    let node_software = |status: &SwitchStatus, add: &mut Add<'_>| {
        for node in &status.nodes {
            if let (Some(version), Some(config)) = (&node.version, &node.config) {
                add(&[&node.name, version, config], Value::Labels);
            }
        }
    };
    let named = |status: &SwitchStatus, count: fn(&SwitchStatus) -> usize| {
        (!status.switches.is_empty()).then(|| count(status) as u64)
    };
    vec![
        Metric::new(
            Kind::Info,
            "switchback_switch_software",
            "Program of a switch of the cluster, and the beginning of its configuration's SHA-256",
            &["switch", "version", "config"],
            software,
        ),
        Metric::new(
            Kind::Info,
            "switchback_switch_node_software",
            "Program of a node, and the beginning of its configuration's SHA-256",
            &["node", "version", "config"],
            node_software,
        ),
        of_switch(Kind::Gauge, "up", "1 if the switch has been heard in the last three seconds", |switch| {
            Some(switch.is_heard().into())
        }),
        of_switch(
            Kind::Gauge,
            "serving",
            "1 if it is heard and neither starting nor ending nor withdrawn",
            |switch| Some((switch.state == SwitchState::Serving.name()).into()),
        ),
        of_switch(Kind::Gauge, "heard_by_nodes", "Nodes that hear the switch", |switch| {
            Some(switch.heard_by.into())
        }),
        of_switch(
            Kind::Counter,
            "taken_over_flows",
            "Connections of other switches that the switch has found",
            |switch| switch.taken_over.map(Value::from),
        ),
        Metric::single(
            Kind::Gauge,
            "switchback_switch_configuration_version",
            "Version in etcd of the configuration in force",
            |status: &SwitchStatus| status.config_version,
        ),
        Metric::single(
            Kind::Gauge,
            "switchback_switch_other_configurations",
            "Switches and nodes that have another configuration than this switch",
            move |status| named(status, SwitchStatus::other_configs),
        ),
        Metric::single(
            Kind::Gauge,
            "switchback_switch_other_versions",
            "Switches and nodes that run another version than this switch",
            move |status| named(status, SwitchStatus::other_versions),
        ),
    ]
}

fn of_switch(
    kind: Kind,
    name: &str,
    help: &'static str,
    value: fn(&SwitchView) -> Option<Value>,
) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for switch in &status.switches {
            if let Some(value) = value(switch) {
                add(&[&switch.name], value);
            }
        }
    };
    Metric::new(kind, format!("switchback_switch_{name}"), help, &["switch"], samples)
}

fn of_node(
    kind: Kind,
    name: &str,
    help: &'static str,
    value: fn(&NodeView) -> Option<Value>,
) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for node in &status.nodes {
            if let Some(value) = value(node) {
                add(&[&node.name], value);
            }
        }
    };
    Metric::new(kind, format!("switchback_switch_node_{name}"), help, &["node"], samples)
}

fn of_load(name: &str, help: &'static str, value: fn(&LoadStatus) -> Option<Value>) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for node in &status.nodes {
            if let Some(value) = node.load.as_ref().and_then(value) {
                add(&[&node.name], value);
            }
        }
    };
    Metric::new(Kind::Gauge, format!("switchback_switch_node_{name}"), help, &["node"], samples)
}

fn of_listener(
    kind: Kind,
    name: &str,
    help: &'static str,
    value: fn(&NodeView, &ListenerView) -> Option<Value>,
) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for (node, listener) in
            status.nodes.iter().flat_map(|node| node.listeners.iter().map(move |at| (node, at)))
        {
            if let (Some(vip), Some(value)) = (listener.listen, value(node, listener)) {
                add(&[&node.name, &listener.pool, &vip.to_string()], value);
            }
        }
    };
    Metric::new(kind, format!("switchback_switch_node_{name}"), help, &["node", "pool", "listen"], samples)
}

/// A counter of the dispatcher: name, help, value.
type Count = (&'static str, &'static str, fn(&DispatchCounts) -> u64);

/// Counters of the dispatcher without labels.
const DISPATCH_COUNTS: [Count; 27] = [
    ("resent", "Handoff packets sent again", |counts| counts.resent),
    ("acknowledged", "Acknowledgments for requests that waited longer than clients do", |counts| {
        counts.acknowledged
    }),
    ("busy", "Releases that had to wait for a response to end", |counts| counts.busy),
    ("probed", "Packets of unknown connections that the nodes were asked about", |counts| counts.probed),
    ("unasked", "Those that they were not asked about, because they were asked too much", |counts| {
        counts.unasked
    }),
    ("recovered", "Unknown connections that a node owned", |counts| counts.recovered),
    ("listed", "Connections taken from the nodes' lists", |counts| counts.listed),
    ("unread", "Packets refused by nodes that had not been given what was read before them", |counts| {
        counts.unread
    }),
    ("reset_unowned", "Unknown connections reset because no node owned them", |counts| counts.reset_unowned),
    ("dropped_flow_full", "Packets dropped because held_per_flow was used up", |counts| {
        counts.dropped_flow_full
    }),
    ("dropped_source_full", "Packets dropped because held_per_source was used up", |counts| {
        counts.dropped_source_full
    }),
    ("dropped_switch_full", "Packets dropped because held was used up", |counts| counts.dropped_switch_full),
    ("evicted", "Connections that gave way to others because held was used up", |counts| counts.evicted),
    ("answers_forgotten", "Answers forgotten before their clients had seen them", |counts| {
        counts.answers_forgotten
    }),
    ("waited", "Requests that had to wait for a node with room", |counts| counts.waited),
    ("turned_away", "Requests answered 503 because too many waited", |counts| counts.turned_away),
    ("moved", "Connections that a node has given to another one, in the middle", |counts| counts.moved),
    ("resumed", "Responses of dead nodes that other nodes go on with", |counts| counts.resumed),
    ("not_resumed", "Responses of dead nodes that were to go on, and did not", |counts| counts.not_resumed),
    ("passed_on", "Adoptions that a node passed on to their second candidate", |counts| counts.passed_on),
    ("reports", "Reports of nodes", |counts| counts.reports),
    ("taken_back", "Idle connections taken from nodes that drain", |counts| counts.taken_back),
    ("sessions_kept", "Requests that went to the node of their session", |counts| counts.sessions_kept),
    ("sessions_moved", "Requests that went elsewhere because that node was away", |counts| {
        counts.sessions_moved
    }),
    ("sessions_refused", "Requests answered 503 because that node was away", |counts| {
        counts.sessions_refused
    }),
    ("cookies_ignored", "Cookies that look like a pool's own and are not", |counts| counts.cookies_ignored),
    ("copies_unplaced", "Requests not mirrored because no node of the mirror serves", |counts| {
        counts.copies_unplaced
    }),
];

fn of_dispatch() -> Vec<Metric<SwitchStatus>> {
    let answered = |status: &SwitchStatus, add: &mut Add<'_>| {
        for (code, count) in &status.dispatch.counts.answered {
            add(&[&code.to_string()], (*count).into());
        }
    };
    let refused = |status: &SwitchStatus, add: &mut Add<'_>| {
        for (reason, count) in &status.dispatch.counts.refused_requests {
            add(&[reason], (*count).into());
        }
    };
    let mut all = vec![
        dispatch(Kind::Gauge, "pending_flows", "Connections that wait for something now", |dispatch| {
            dispatch.pending
        }),
        dispatch(
            Kind::Gauge,
            "waiting_requests",
            "Requests that wait for a node with room now",
            |dispatch| dispatch.waiting,
        ),
        dispatch(Kind::Gauge, "held", "Memory of all connections that wait for something", |dispatch| {
            dispatch.held_bytes
        })
        .unit(Unit::Bytes),
        dispatch(Kind::Counter, "send_failed", "Packets that the kernel did not take", |dispatch| {
            dispatch.send_failed
        }),
        Metric::new(
            Kind::Counter,
            "switchback_dispatch_answered",
            "Requests that the switch answered itself, by status",
            &["code"],
            answered,
        ),
        Metric::new(
            Kind::Counter,
            "switchback_dispatch_refused_requests",
            "Requests refused because of what they are, by reason",
            &["reason"],
            refused,
        ),
    ];
    all.extend(DISPATCH_COUNTS.map(|(name, help, count)| {
        dispatch(Kind::Counter, name, help, move |dispatch| count(&dispatch.counts))
    }));
    all
}

fn dispatch(
    kind: Kind,
    name: &str,
    help: &'static str,
    value: impl Fn(&DispatchStatus) -> u64 + Send + Sync + 'static,
) -> Metric<SwitchStatus> {
    let read = move |status: &SwitchStatus| Some(value(&status.dispatch));
    Metric::single(kind, format!("switchback_dispatch_{name}"), help, read)
}

fn of_responses() -> Vec<Metric<SwitchStatus>> {
    let codes = |total: &ResponseTotals, add: &mut Add<'_>| {
        for (class, count) in total.statuses.iter().enumerate() {
            let code = if class == 0 { "none".to_owned() } else { format!("{class}xx") };
            add(&[&total.service, &total.pool, &total.node, &code], (*count).into());
        }
    };
    let bytes = |total: &ResponseTotals, add: &mut Add<'_>| {
        add(&[&total.service, &total.pool, &total.node], total.bytes.into());
    };
    let aborted = |total: &ResponseTotals, add: &mut Add<'_>| {
        for (by, count) in [("client", total.aborted_by_client), ("server", total.aborted_by_server)] {
            add(&[&total.service, &total.pool, &total.node, by], count.into());
        }
    };
    vec![
        responded(
            "responses",
            "Responses, by class of status; those without a node are the switch's own",
            &["service", "pool", "node", "code"],
            codes,
        ),
        responded("response", "Bytes of responses, with their heads", &["service", "pool", "node"], bytes)
            .unit(Unit::Bytes),
        responded(
            "aborted_responses",
            "Responses that ended before they were complete, by who ended them",
            &["service", "pool", "node", "by"],
            aborted,
        ),
        timed("request_queued", "From a request's first byte at the switch to its handoff", |timings| {
            &timings.queued
        }),
        timed(
            "response_first_byte",
            "From a request's arrival at the node to the first byte of its response",
            |timings| &timings.first_byte,
        ),
        timed(
            "response_duration",
            "From a request's arrival at the node to the end of its response",
            |timings| &timings.duration,
        ),
        total("access_log_lines", "Lines of the access log", |totals| totals.log_lines),
        total("access_log_lost_lines", "Lines that were not written because there were too many", |totals| {
            totals.log_lost
        }),
        total(
            "unknown_responses",
            "Responses that nothing is known of, because the word of them was lost",
            |totals| totals.facts_lost,
        ),
        total(
            "forgotten_requests",
            "Requests whose responses were not awaited any longer, because too many had none",
            |totals| totals.requests_forgotten,
        ),
    ]
}

fn responded(
    name: &str,
    help: &'static str,
    labels: &'static [&'static str],
    each: fn(&ResponseTotals, &mut Add<'_>),
) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for total in status.responses.iter().flat_map(|totals| &totals.responses) {
            each(total, add);
        }
    };
    Metric::new(Kind::Counter, format!("switchback_{name}"), help, labels, samples)
}

fn timed(name: &str, help: &'static str, histogram: fn(&Timings) -> &Histogram) -> Metric<SwitchStatus> {
    let samples = move |status: &SwitchStatus, add: &mut Add<'_>| {
        for timings in status.responses.iter().flat_map(|totals| &totals.timings) {
            add(&[&timings.service, &timings.pool], Value::Times(histogram(timings).clone()));
        }
    };
    let name = format!("switchback_{name}");
    Metric::new(Kind::Histogram, name, help, &["service", "pool"], samples).unit(Unit::Seconds)
}

fn total(name: &str, help: &'static str, count: fn(&Totals) -> u64) -> Metric<SwitchStatus> {
    let read = move |status: &SwitchStatus| status.responses.as_ref().map(count);
    Metric::single(Kind::Counter, format!("switchback_{name}"), help, read)
}
