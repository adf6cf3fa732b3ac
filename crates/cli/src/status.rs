//! What `status` shows of a running process: tables made of its JSON. A key that is missing shows as `-`, so
//! that a process of another version can be asked too.

use serde_json::Value;
use switchback_wire::{ClientCounter, NodeCounter, SwitchCounter};

use crate::table::{Align, Table};

/// The whole answer of one process.
pub fn render(status: &Value) -> String {
    match status["role"].as_str() {
        Some("node") => node(status),
        Some("client") => client(status),
        _ => switch(status),
    }
}

fn switch(status: &Value) -> String {
    let mut text =
        format!("switch, up {}, {} flows\n", duration(&status["uptime_s"]), show(&status["flows"]));
    for interface in items(&status["interfaces"]) {
        text += &format!("interface {}, XDP {}\n", show(&interface["name"]), show(&interface["mode"]));
    }

    let mut services =
        Table::new(&[("SERVICE", Align::Left), ("VIPS", Align::Left), ("REQUESTS", Align::Right)]);
    for service in items(&status["services"]) {
        services.row([show(&service["name"]), show(&service["listen"]), show(&service["requests"])]);
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
    let requests = |node: &Value| node["requests"].as_u64().unwrap_or(0);
    let all: u64 = items(&status["nodes"]).iter().map(requests).sum();
    for node in items(&status["nodes"]) {
        let next_hop = match node["resolved"].as_bool() {
            _ if node["here"] == true => "this machine",
            Some(true) => "resolved",
            Some(false) => "not resolved",
            None => "-",
        };
        let number = |key: &str| show(&node[key]);
        nodes.row([
            show(&node["name"]),
            show(&node["address"]),
            next_hop.to_owned(),
            state(node),
            show(&node["load"]["flows"]),
            show(&node["load"]["in_flight"]),
            longest_queue(node),
            number("requests"),
            share(requests(node), all),
            number("adopted"),
            number("refused"),
            number("released"),
        ]);
    }
    text += &format!("\n{}", nodes.render(0));

    text += &counters("dispatch counters", &status["dispatch"], |_| "");
    text + &counters("counters", &status["counters"], |name| {
        SwitchCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", SwitchCounter::help)
    })
}

/// In percent of all.
fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / all as f64) }
}

/// What the switch thinks of a node, in a word; of several listeners the first that is not well counts.
fn state(node: &Value) -> String {
    let listeners = items(&node["listeners"]);
    let ill = listeners.iter().find(|listener| listener["state"] != "up");
    match ill.or(listeners.first()) {
        _ if node["draining"] == true => "draining".to_owned(),
        _ if node["silent"] == true => "silent".to_owned(),
        Some(listener) => show(&listener["state"]),
        None => "-".to_owned(),
    }
}

/// The fullest of a node's accept queues, as `length/limit`.
fn longest_queue(node: &Value) -> String {
    let listeners = items(&node["listeners"]).iter();
    let queues = listeners
        .filter_map(|listener| Some((listener["queue"].as_u64()?, listener["queue_limit"].as_u64()?)));
    let known = queues.filter(|(_, limit)| *limit != 0);
    // By share: the products are the shares with a common denominator.
    let fullest =
        known.max_by(|(len, limit), (other, other_limit)| (len * other_limit).cmp(&(other * limit)));
    fullest.map_or("-".to_owned(), |(len, limit)| format!("{len}/{limit}"))
}

fn client(status: &Value) -> String {
    let mut text = format!(
        "client, {} flows direct\ninterface {}\nservices {}\n",
        show(&status["flows"]),
        show(&status["interface"]),
        show(&status["services"]),
    );
    let mut nodes = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("INTRODUCTIONS", Align::Right),
        ("PACKETS", Align::Right),
        ("FALLBACKS", Align::Right),
    ]);
    for node in items(&status["nodes"]) {
        let state = match node["avoided"].as_bool() {
            Some(true) => "avoided",
            Some(false) => "direct",
            None => "-",
        };
        let number = |key: &str| show(&node[key]);
        nodes.row([
            number("address"),
            state.to_owned(),
            number("introductions"),
            number("packets"),
            number("fallbacks"),
        ]);
    }
    text += &format!("\n{}", nodes.render(0));
    text + &counters("counters", &status["counters"], |name| {
        ClientCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", ClientCounter::help)
    })
}

fn node(status: &Value) -> String {
    let draining = if status["draining"].as_bool() == Some(true) { ", draining" } else { "" };
    let mut text = format!(
        "node {} ({}), {} flows{draining}\ninterface {}\nVIPs {}\nreports to {}\n",
        show(&status["name"]),
        show(&status["address"]),
        show(&status["flows"]),
        show(&status["interface"]),
        show(&status["vips"]),
        show(&status["switches"]),
    );
    let first_byte = match status["first_byte_us"].as_u64() {
        Some(us) => format!("{}.{:03} ms", us / 1000, us % 1000),
        None => "-".to_owned(),
    };
    let cpu = status["cpu"].as_f64().map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    text += &format!(
        "requests in flight {}, first byte after {first_byte}, CPU {cpu}\n",
        show(&status["in_flight"])
    );

    let mut listeners = Table::new(&[
        ("POOL", Align::Left),
        ("LISTENER", Align::Left),
        ("STATE", Align::Left),
        ("QUEUE", Align::Right),
        ("LIMIT", Align::Right),
    ]);
    for listener in items(&status["listeners"]) {
        let cells = ["pool", "address", "state", "queue_len", "queue_limit"];
        listeners.row(cells.map(|key| show(&listener[key])));
    }
    text += &format!("\n{}", listeners.render(0));

    if !items(&status["health"]).is_empty() {
        let mut checks = Table::new(&[
            ("POOL", Align::Left),
            ("LISTENER", Align::Left),
            ("CHECK", Align::Left),
            ("STATE", Align::Left),
            ("FOR", Align::Left),
            ("LAST ERROR", Align::Left),
        ]);
        for check in items(&status["health"]) {
            let cell = |key: &str| show(&check[key]);
            let since = duration(&check["since_s"]);
            checks.row([
                cell("pool"),
                cell("address"),
                cell("check"),
                cell("state"),
                since,
                cell("last_error"),
            ]);
        }
        text += &format!("\n{}", checks.render(0));
    }
    text += &counters("counters", &status["counters"], |name| {
        NodeCounter::ALL.into_iter().find(|counter| counter.name() == name).map_or("", NodeCounter::help)
    });
    text
}

/// Those that are not zero, in the process's order, under a title. Counts by kind, as of answers by status,
/// come as an object of their own.
fn counters(title: &str, counters: &Value, help: impl Fn(&str) -> &'static str) -> String {
    let mut table = Table::new(&[("", Align::Right), ("", Align::Left), ("", Align::Left)]);
    let mut any = false;
    let mut add = |name: String, count: &Value| {
        if count.as_u64() != Some(0) {
            let help = help(&name).to_owned();
            table.row([show(count), name, help]);
            any = true;
        }
    };
    for (name, count) in counters.as_object().into_iter().flatten() {
        match count {
            Value::Object(kinds) => {
                kinds.iter().for_each(|(kind, count)| add(format!("{name} {kind}"), count))
            }
            count => add(name.clone(), count),
        }
    }
    if any { format!("\n{title} that are not zero\n{}", table.render(2)) } else { String::new() }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A value as a cell: texts without quotes, lists with commas, `-` for what is missing.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "-".to_owned(),
        Value::Array(list) => list.iter().map(show).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A number of seconds.
fn duration(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_f64() else { return "-".to_owned() };
    // Whole seconds, whichever way the process counts them.
    let seconds = seconds as u64;
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_switch_shows_its_nodes_and_the_counters_that_moved() {
        let text = render(&json!({
            "role": "switch",
            "interfaces": [{"name": "eth0", "mode": "native"}],
            "uptime_s": 3725,
            "flows": 2,
            "services": [{"name": "shop", "listen": ["192.0.2.100:80", "[2001:db8::100]:80"], "requests": 9}],
            "nodes": [{"name": "n1", "address": "192.0.2.21", "resolved": true, "requests": 9, "adopted": 3,
                       "refused": 0, "released": 1, "draining": false, "silent": false,
                       "load": {"flows": 4, "in_flight": 2},
                       "listeners": [{"state": "up", "queue": 1, "queue_limit": 512},
                                     {"state": "unhealthy", "queue": 1, "queue_limit": 17}]}],
            "dispatch": {"resent": 4, "busy": 0, "answered": {"404": 2}, "sessions_kept": 6,
                         "cookies_ignored": 0},
            "counters": {"syn_answered": 3, "drop_tag": 0},
        }));
        for line in [
            "switch, up 1 h 2 min, 2 flows",
            "interface eth0, XDP native",
            "shop     192.0.2.100:80, [2001:db8::100]:80         9",
            "n1    192.0.2.21  resolved  unhealthy      4          2   1/17         9  100.0%        3        0         1",
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
    fn a_node_shows_itself() {
        let text = render(&json!({
            "role": "node", "name": "n1", "address": "192.0.2.21", "interface": "eth0",
            "vips": ["192.0.2.100"], "flows": 1, "draining": true, "in_flight": 3, "cpu": 0.254,
            "first_byte_us": 4050, "switches": ["192.0.2.10"],
            "listeners": [{"pool": "web", "address": "192.0.2.100:80", "state": "unhealthy", "queue_len": 2,
                           "queue_limit": 511}],
            "health": [{"pool": "web", "address": "192.0.2.100:80", "check": "GET /", "state": "down",
                        "since_s": 61, "last_error": "the answer has status 503"}],
            "counters": {"adopted": 7},
        }));
        assert_eq!(
            text,
            "node n1 (192.0.2.21), 1 flows, draining\ninterface eth0\nVIPs 192.0.2.100\nreports to 192.0.2.10\n\
             requests in flight 3, first byte after 4.050 ms, CPU 25%\n\n\
             POOL  LISTENER        STATE      QUEUE  LIMIT\n\
             web   192.0.2.100:80  unhealthy      2    511\n\n\
             POOL  LISTENER        CHECK  STATE  FOR    LAST ERROR\n\
             web   192.0.2.100:80  GET /  down   1 min  the answer has status 503\n\n\
             counters that are not zero\n  7  adopted  flows adopted\n"
        );
    }

    #[test]
    fn a_client_shows_its_nodes() {
        let text = render(&json!({
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
    fn what_is_missing_or_of_another_type_is_shown_nevertheless() {
        assert!(render(&json!({})).starts_with("switch, up -, - flows\n"));
        assert!(render(&json!({"nodes": [{}], "counters": 7, "services": "x"})).contains("-"));
    }
}
