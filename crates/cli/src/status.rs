//! Tables of `status`, made from a process's answer. `-` stands for an unknown value.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use switchback_runtime::events::Event;
use switchback_status::Status;
use switchback_status::client::ClientStatus;
use switchback_status::node::{CertificateStatus, MemberStatus, NodeStatus, OrderStatus, ResumeStatus};
use switchback_status::switch::{DispatchStatus, NodeView, PoolView, SwitchStatus, SwitchView, pools};
use switchback_wire::{ClientCounter, NodeCounter, SwitchCounter};

use crate::table::{Align, Table};

/// Events that are shown.
const LAST: usize = 8;

/// The whole answer of a process.
pub fn render(status: &Status) -> String {
    match status {
        Status::Node(status) => node(status),
        Status::Client(status) => client(status),
        Status::Switch(status) => switch(status),
    }
}

fn switch(status: &SwitchStatus) -> String {
    let mut text = format!("switch, up {}, {} flows\n", duration(status.uptime_s), status.flows);
    text += &configured(&status.config, status.config_version);
    for interface in &status.interfaces {
        let sends = if interface.kernel_sends { ", packets sent by the kernel" } else { "" };
        text += &format!("interface {}, XDP {}{sends}\n", interface.name, interface.mode);
    }

    let mut services =
        Table::new(&[("SERVICE", Align::Left), ("VIPS", Align::Left), ("REQUESTS", Align::Right)]);
    for service in &status.services {
        services.row([service.name.clone(), list(&service.listen), service.requests.to_string()]);
    }
    text += &format!("\n{}", services.render(0));

    let mut nodes = Table::new(&[
        ("NODE", Align::Left),
        ("ADDRESS", Align::Left),
        ("NEXT HOP", Align::Left),
        ("STATE", Align::Left),
        ("FLOWS", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("QUEUE", Align::Right),
        ("REQUESTS", Align::Right),
        ("SHARE", Align::Right),
        ("ADOPTED", Align::Right),
        ("REFUSED", Align::Right),
        ("RELEASED", Align::Right),
    ]);
    let all: u64 = status.nodes.iter().map(|node| node.requests).sum();
    status.nodes.iter().for_each(|node| nodes.row(of_node(node, all)));
    text += &format!("\n{}", nodes.render(0));

    let pools = pools(&status.nodes);
    if !pools.is_empty() {
        text += &format!("\n{}", table_of(&pools));
    }
    if !status.switches.is_empty() {
        text += &format!("\n{}", switches(&status.switches, status.nodes.len()));
    }
    let warnings = status.warnings();
    if !warnings.is_empty() {
        text += "\n";
    }
    warnings.iter().for_each(|warning| text += &format!("warning: {warning}\n"));

    text += &counters("dispatch counters", dispatched(&status.dispatch), |_| "");
    text += &counters("counters", counted(&status.counters), |name| {
        SwitchCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", SwitchCounter::help)
    });
    text + &last(&status.events)
}

/// The configuration of a process whose source counts versions.
fn configured(config: &str, version: Option<u64>) -> String {
    version.map_or(String::new(), |version| format!("configuration version {version} ({config})\n"))
}

/// The row of a node, out of `all` requests of all nodes.
fn of_node(node: &NodeView, all: u64) -> [String; 12] {
    let next_hop = match (node.here, node.resolved) {
        (true, _) => "this machine",
        (false, true) => "resolved",
        (false, false) => "not resolved",
    };
    [
        node.name.clone(),
        known(node.address),
        next_hop.to_owned(),
        node.state().to_owned(),
        known(node.load.map(|load| load.flows)),
        known(node.load.map(|load| load.in_flight)),
        known(node.fullest_queue().map(|(len, limit)| format!("{len}/{limit}"))),
        node.requests.to_string(),
        if all == 0 {
            known::<u64>(None)
        } else {
            format!("{:.1}%", node.requests as f64 * 100.0 / all as f64)
        },
        node.adopted.to_string(),
        node.refused.to_string(),
        node.released.to_string(),
    ]
}

/// The pools, and their nodes that get no requests.
fn table_of(pools: &[PoolView<'_>]) -> String {
    let mut table =
        Table::new(&[("POOL", Align::Left), ("IN SERVICE", Align::Left), ("NOT IN SERVICE", Align::Left)]);
    for pool in pools {
        let others = pool.others().map(|(node, state)| format!("{} ({state})", node.name));
        let serving = format!("{} of {}", pool.serving().count(), pool.nodes.len());
        table.row([pool.name.to_owned(), serving, list(&others.collect::<Vec<_>>())]);
    }
    table.render(0)
}

/// The last events of a process.
fn last(events: &[Event]) -> String {
    let last = &events[events.len().saturating_sub(LAST)..];
    let line = |event: &Event| format!("  {} {:5} {}\n", event.time, event.level, event.message);
    let lines: String = last.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nlast events\n{lines}") }
}

/// Titles of the table of switches.
pub const SWITCH: [&str; 6] = ["SWITCH", "STATE", "VERSION", "CONFIG", "HEARD BY", "TAKEN OVER"];
/// Number of texts among its columns, which come first.
pub const SWITCH_TEXTS: usize = 5;

/// The table of the cluster's switches, which has so many nodes.
pub fn switches(switches: &[SwitchView], nodes: usize) -> String {
    let align = |index| if index < SWITCH_TEXTS { Align::Left } else { Align::Right };
    let columns: Vec<_> = SWITCH.iter().enumerate().map(|(index, title)| (*title, align(index))).collect();
    let mut table = Table::new(&columns);
    switches.iter().for_each(|switch| table.row(of_switch(switch, nodes)));
    table.render(0)
}

/// The row of a switch.
pub fn of_switch(switch: &SwitchView, nodes: usize) -> [String; 6] {
    let state = match (switch.here, switch.silent_s) {
        (true, _) => format!("{}, this machine", switch.state),
        (false, Some(seconds)) => format!("{} for {}", switch.state, duration(seconds)),
        (false, None) => switch.state.clone().into_owned(),
    };
    [
        switch.name.clone(),
        state,
        known(switch.version.clone()),
        known(switch.config.clone()),
        format!("{} of {nodes} nodes", switch.heard_by),
        known(switch.taken_over),
    ]
}

fn client(status: &ClientStatus) -> String {
    let mut text = format!(
        "client, {} flows direct\ninterface {}\nservices {}\n",
        status.flows,
        status.interface,
        list(&status.services),
    );
    let mut nodes = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("INTRODUCTIONS", Align::Right),
        ("PACKETS", Align::Right),
        ("FALLBACKS", Align::Right),
    ]);
    for node in &status.nodes {
        nodes.row([
            known(node.address),
            (if node.avoided { "avoided" } else { "direct" }).to_owned(),
            node.introductions.to_string(),
            node.packets.to_string(),
            node.fallbacks.to_string(),
        ]);
    }
    text += &format!("\n{}", nodes.render(0));
    text + &counters("counters", counted(&status.counters), |name| {
        ClientCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", ClientCounter::help)
    })
}

fn node(status: &NodeStatus) -> String {
    let mut text = format!(
        "node {} ({}), {} flows{}\ninterface {}\nVIPs {}\nreports to {}\n",
        status.name,
        known(status.address),
        status.flows,
        if status.draining { ", draining" } else { "" },
        status.interface,
        list(&status.vips),
        list(&status.switches),
    );
    text += &configured(&status.config, status.config_version);
    text += &format!(
        "requests in flight {}, first byte after {}, CPU {:.0}%\n",
        status.in_flight,
        known(status.first_byte_us.map(milliseconds)),
        status.cpu * 100.0,
    );
    if let Some(resume) = &status.resume {
        text += &resumed(resume);
    }

    if status.nodes.len() > 1 {
        text += &format!("\n{}", members(&status.nodes));
    }
    let mut listeners = Table::new(&[
        ("NODE", Align::Left),
        ("POOL", Align::Left),
        ("LISTENER", Align::Left),
        ("STATE", Align::Left),
        ("QUEUE", Align::Right),
        ("LIMIT", Align::Right),
        ("ADOPTION", Align::Left),
    ]);
    for listener in &status.listeners {
        let adoption = (!listener.adoption.is_empty()).then_some(&listener.adoption);
        listeners.row([
            listener.node.clone(),
            listener.pool.clone(),
            known(listener.address),
            listener.state.clone().into_owned(),
            known(listener.queue_len),
            known(listener.queue_limit),
            known(adoption),
        ]);
    }
    text += &format!("\n{}", listeners.render(0));

    if !status.certificates.is_empty() {
        text += &format!("\n{}", certificates(&status.certificates, SystemTime::now()));
    }
    if !status.orders.is_empty() {
        text += &format!("\n{}", orders(&status.orders));
    }
    if !status.health.is_empty() {
        let mut checks = Table::new(&[
            ("NODE", Align::Left),
            ("POOL", Align::Left),
            ("LISTENER", Align::Left),
            ("CHECK", Align::Left),
            ("STATE", Align::Left),
            ("FOR", Align::Left),
            ("LAST ERROR", Align::Left),
        ]);
        for check in &status.health {
            checks.row([
                check.node.clone(),
                check.pool.clone(),
                known(check.address),
                check.check.clone(),
                check.state.clone(),
                duration(check.since_s),
                known(check.last_error.clone()),
            ]);
        }
        text += &format!("\n{}", checks.render(0));
    }
    text += &counters("counters", counted(&status.counters), |name| {
        NodeCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", NodeCounter::help)
    });
    text + &last(&status.events)
}

/// The table of certificates. Days are whole ones.
fn certificates(certificates: &[CertificateStatus], now: SystemTime) -> String {
    let mut table = Table::new(&[
        ("SERVICE", Align::Left),
        ("CERTIFICATE", Align::Left),
        ("ENDS", Align::Left),
        ("LEFT", Align::Left),
    ]);
    for one in certificates {
        let end = UNIX_EPOCH + Duration::from_secs(one.not_after);
        let left = end.duration_since(now).map(|left| duration(left.as_secs()));
        table.row([
            one.service.clone(),
            one.name.clone(),
            known(moment(one.not_after)),
            left.unwrap_or_else(|_| "ended".to_owned()),
        ]);
    }
    table.render(0)
}

/// The table of certificates that the node orders.
fn orders(orders: &[OrderStatus]) -> String {
    let mut table = Table::new(&[
        ("ORDERED", Align::Left),
        ("ISSUED", Align::Right),
        ("FAILED", Align::Right),
        ("NEXT", Align::Left),
        ("LAST ERROR", Align::Left),
    ]);
    for order in orders {
        table.row([
            order.certificate.clone(),
            order.issued.to_string(),
            order.failed.to_string(),
            known(order.next.and_then(moment)),
            known(order.error.clone()),
        ]);
    }
    table.render(0)
}

/// A time in seconds since 1970, to the minute.
fn moment(seconds: u64) -> Option<String> {
    let time = Timestamp::from_second(seconds.try_into().ok()?).ok()?;
    Some(time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// The table of the nodes of a machine.
fn members(nodes: &[MemberStatus]) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("FLOWS", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("FIRST BYTE", Align::Right),
    ]);
    for node in nodes {
        table.row([
            node.name.clone(),
            (if node.draining { "draining" } else { "in service" }).to_owned(),
            node.flows.to_string(),
            node.in_flight.to_string(),
            known(node.first_byte_us.map(milliseconds)),
        ]);
    }
    table.render(0)
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// Names and values of the dispatcher's counts. Counts by kind, such as answers by status, have several rows.
fn dispatched(dispatch: &DispatchStatus) -> Vec<(String, u64)> {
    let fields = serde_json::to_value(dispatch).unwrap_or_default();
    let mut all = Vec::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        for (kind, count) in value.as_object().into_iter().flatten() {
            all.push((format!("{name} {kind}"), count.as_u64().unwrap_or(0)));
        }
        all.extend(value.as_u64().map(|count| (name.clone(), count)));
    }
    all
}

/// Responses that can be resumed, in two lines: this node's, and other nodes'.
fn resumed(resume: &ResumeStatus) -> String {
    let by_reason = |counts: &BTreeMap<std::borrow::Cow<'static, str>, u64>| {
        let parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        if parts.is_empty() { "0".to_owned() } else { parts.join(", ") }
    };
    format!(
        "long responses insured {}, under way {}, not insured: {}\n\
         of other nodes kept {}, resumed {}, not resumed: {}\n",
        resume.insured,
        resume.under_way,
        by_reason(&resume.uninsured),
        resume.kept,
        resume.resumed,
        by_reason(&resume.failed),
    )
}

fn counted(counters: &BTreeMap<std::borrow::Cow<'static, str>, u64>) -> Vec<(String, u64)> {
    counters.iter().map(|(name, count)| (name.clone().into_owned(), *count)).collect()
}

/// The counters that are not zero, under a title.
fn counters(title: &str, counters: Vec<(String, u64)>, help: impl Fn(&str) -> &'static str) -> String {
    let mut table = Table::new(&[("", Align::Right), ("", Align::Left), ("", Align::Left)]);
    let moved: Vec<_> = counters.into_iter().filter(|(_, count)| *count != 0).collect();
    if moved.is_empty() {
        return String::new();
    }
    for (name, count) in moved {
        let help = help(&name).to_owned();
        table.row([count.to_string(), name, help]);
    }
    format!("\n{title} that are not zero\n{}", table.render(2))
}

fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    if items.is_empty() { known::<u64>(None) } else { items.join(", ") }
}

/// A duration in seconds, as text.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(said: Value) -> String {
        render(&Status::read(said).unwrap())
    }

    #[test]
    fn a_switch_shows_its_nodes_and_the_counters_that_moved() {
        let text = shown(json!({
            "role": "switch",
            "interfaces": [{"name": "eth0", "mode": "native"}],
            "uptime_s": 3725,
            "flows": 2,
            "services": [{"name": "shop", "listen": ["192.0.2.100:80", "[2001:db8::100]:80"], "requests": 9}],
            "nodes": [{"name": "n1", "address": "192.0.2.21", "resolved": true, "requests": 9, "adopted": 3,
                       "refused": 0, "released": 1, "draining": false, "silent": false,
                       "load": {"flows": 4, "in_flight": 2},
                       "listeners": [{"pool": "web", "state": "up", "queue": 1, "queue_limit": 512},
                                     {"pool": "img", "state": "unhealthy", "queue": 1, "queue_limit": 17}]}],
            "events": [{"time": "2026-11-25T23:10:00.123Z", "level": "warn", "message": "pool img at node n1: unhealthy"}],
            "dispatch": {"resent": 4, "busy": 0, "answered": {"404": 2}, "sessions_kept": 6,
                         "cookies_ignored": 0},
            "counters": {"syn_answered": 3, "drop_tag": 0},
        }));
        for line in [
            "switch, up 1 h 2 min, 2 flows",
            "interface eth0, XDP native",
            "shop     192.0.2.100:80, [2001:db8::100]:80         9",
            "n1    192.0.2.21  resolved  up in part      4          2   1/17         9  100.0%        3        0         1",
            "img   0 of 1      n1 (unhealthy)",
            "web   1 of 1      -",
            "  2026-11-25T23:10:00.123Z warn  pool img at node n1: unhealthy",
            "  4  resent",
            "  2  answered 404",
            "  6  sessions_kept",
            "  3  syn_answered  SYNs answered with a cookie",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("drop_tag") && !text.contains("busy"), "{text}");
    }

    #[test]
    fn a_switch_shows_the_others_and_what_differs() {
        let mut said = json!({
            "role": "switch", "version": "1.2.0", "config": "9f8e7d6c",
            "nodes": [{"name": "n1"}, {"name": "n2"}],
            "switches": [
                {"name": "s1", "here": true, "state": "serving", "version": "1.2.0", "config": "9f8e7d6c",
                 "taken_over": 12, "heard_by": 2, "addresses": 1},
                {"name": "s2", "state": "withdrawn", "version": "1.2.0", "config": "1a2b3c4d",
                 "taken_over": 3456, "heard_by": 1, "addresses": 1},
                {"name": "s3", "state": "silent", "silent_s": 61, "version": "1.1.0", "config": "9f8e7d6c",
                 "taken_over": 0},
                {"name": "s4", "state": "unknown"},
            ],
        });
        let text = shown(said.clone());
        let table = "
SWITCH  STATE                  VERSION  CONFIG    HEARD BY      TAKEN OVER
s1      serving, this machine  1.2.0    9f8e7d6c  2 of 2 nodes          12
s2      withdrawn              1.2.0    1a2b3c4d  1 of 2 nodes        3456
s3      silent for 1 min       1.1.0    9f8e7d6c  0 of 2 nodes           0
s4      unknown                -        -         0 of 2 nodes           -

warning: switch s2 has another configuration (1a2b3c4d, here 9f8e7d6c): copy the file and reload
";
        assert!(text.contains(table), "{text}");
        said["switches"] = json!([]);
        let text = shown(said);
        assert!(!text.contains("SWITCH") && !text.contains("warning"), "{text}");
    }

    #[test]
    fn a_node_shows_itself() {
        let text = shown(json!({
            "role": "node", "name": "n1", "address": "192.0.2.21", "interface": "eth0",
            "vips": ["192.0.2.100"], "flows": 1, "draining": true, "in_flight": 3, "cpu": 0.254,
            "first_byte_us": 4050, "switches": ["192.0.2.10"],
            "nodes": [{"name": "n1"}],
            "listeners": [{"node": "n1", "pool": "web", "address": "192.0.2.100:80", "state": "unhealthy", "queue_len": 2,
                           "queue_limit": 511, "adoption": "kernel"}],
            "health": [{"node": "n1", "pool": "web", "address": "192.0.2.100:80", "check": "GET /", "state": "down",
                        "since_s": 61, "last_error": "the answer has status 503"}],
            "resume": {"insured": 9, "under_way": 2, "uninsured": {"length": 4, "no_heir": 1}, "kept": 3, "resumed": 5},
            "counters": {"adopted": 7},
        }));
        assert_eq!(
            text,
            "node n1 (192.0.2.21), 1 flows, draining\ninterface eth0\nVIPs 192.0.2.100\nreports to 192.0.2.10\n\
             requests in flight 3, first byte after 4.050 ms, CPU 25%\n\
             long responses insured 9, under way 2, not insured: length 4, no_heir 1\n\
             of other nodes kept 3, resumed 5, not resumed: 0\n\n\
             NODE  POOL  LISTENER        STATE      QUEUE  LIMIT  ADOPTION\n\
             n1    web   192.0.2.100:80  unhealthy      2    511  kernel\n\n\
             NODE  POOL  LISTENER        CHECK  STATE  FOR    LAST ERROR\n\
             n1    web   192.0.2.100:80  GET /  down   1 min  the answer has status 503\n\n\
             counters that are not zero\n  7  adopted  flows adopted\n"
        );
    }

    #[test]
    fn certificates_and_the_time_that_they_have_left() {
        let one = |service: &str, not_after| CertificateStatus {
            service: service.to_owned(),
            name: "shop.example.com".to_owned(),
            not_after,
            ..CertificateStatus::default()
        };
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let all = [one("shop", 1_800_000_000 + 30 * 86_400 + 3600), one("old", 1_799_999_999)];
        assert_eq!(
            certificates(&all, now),
            "SERVICE  CERTIFICATE       ENDS                  LEFT\n\
             shop     shop.example.com  2027-02-14 09:00 UTC  30 d 1 h\n\
             old      shop.example.com  2027-01-15 07:59 UTC  ended\n"
        );
    }

    #[test]
    fn orders_at_the_ca() {
        let text = shown(json!({
            "role": "node", "name": "n1",
            "orders": [{"certificate": "shop.example.com", "issued": 2, "next": 1_800_000_000},
                       {"certificate": "www.example.com", "failed": 3, "error": "the CA is away", "next": 1_800_000_060}],
        }));
        let table = "ORDERED           ISSUED  FAILED  NEXT                  LAST ERROR\n\
                     shop.example.com       2       0  2027-01-15 08:00 UTC  -\n\
                     www.example.com        0       3  2027-01-15 08:01 UTC  the CA is away\n";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn a_machine_shows_its_nodes() {
        let text = shown(json!({
            "role": "node", "name": "n1", "flows": 3, "in_flight": 1,
            "nodes": [{"name": "n1", "draining": true, "flows": 2},
                      {"name": "n2", "flows": 1, "in_flight": 1, "first_byte_us": 2040}],
        }));
        let table = "NODE  STATE       FLOWS  IN FLIGHT  FIRST BYTE\n\
                     n1    draining        2          0           -\n\
                     n2    in service      1          1    2.040 ms\n";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn a_client_shows_its_nodes() {
        let text = shown(json!({
            "role": "client", "interface": "eth0", "services": ["192.0.2.100:80"], "flows": 2,
            "nodes": [{"address": "192.0.2.21", "introductions": 3, "packets": 40, "fallbacks": 1,
                       "avoided": true}],
            "counters": {"direct": 40, "gone": 0},
        }));
        assert_eq!(
            text,
            "client, 2 flows direct\ninterface eth0\nservices 192.0.2.100:80\n\n\
             NODE        STATE    INTRODUCTIONS  PACKETS  FALLBACKS\n\
             192.0.2.21  avoided              3       40          1\n\n\
             counters that are not zero\n  40  direct  packets sent to a node directly\n"
        );
    }

    #[test]
    fn what_is_missing_is_nothing_and_what_is_of_another_type_is_told() {
        assert!(shown(json!({"role": "switch"})).starts_with("switch, up 0 s, 0 flows\n"));
        assert!(shown(json!({"role": "switch", "nodes": [{}], "new": 7})).contains("-"));
        let error = Status::read(json!({"role": "node", "flows": "many"})).unwrap_err().to_string();
        assert!(error.contains("flows") || error.contains("many"), "{error}");
        assert!(error.contains("status --json"), "{error}");
    }
}
