//! Explanations of TLS connections, as text and JSON.

use serde_json::{Value, json};
use switchback_config::{Action, Cluster, HandOver, Model, Protocol, Tls};
use switchback_switch::explain::{Connection, Decrypted, Greeting, Hello, HelloRoute, Names, OverTls};

use super::json::refusal as refusal_json;
use super::text::{AT_FIRST, Lines, conditions, in_pool, policy, printable_start, refusal};

/// The ClientHello of a connection, and the request after it, as far as present.
pub fn render(cluster: &Cluster, connection: &Connection, of: &str) -> Vec<String> {
    let Some(hello) = &connection.hello else { return Vec::new() };
    let mut parts = vec![render_hello(cluster, connection, hello, of)];
    parts.extend(
        connection.over_tls.iter().map(|request| render_request(cluster, connection, hello, request)),
    );
    parts
}

fn offered(hello: &Hello) -> Vec<String> {
    hello.said.protocols.iter().map(|protocol| protocol.escape_ascii().to_string()).collect()
}

fn render_hello(cluster: &Cluster, connection: &Connection, hello: &Hello, of: &str) -> String {
    let service = &cluster.services[hello.service];
    let name = hello.said.server_name.as_deref().unwrap_or("no name");
    let offered = offered(hello);
    let offers = if offered.is_empty() { String::new() } else { format!(", offers {}", offered.join(", ")) };
    let said = if hello.said.len > 0 { format!(": {name}{offers}") } else { String::new() };
    let mut lines = Lines(format!("ClientHello{of}{said}\n"));
    lines.add("service", format!("{} ({})", service.name, connection.flow().vip()));
    for (index, (what, route)) in std::iter::zip(&hello.routes, &service.routes).enumerate() {
        let taken = matches!(&hello.outcome, Greeting::To { route, .. } if *route == index);
        let asked = conditions(route);
        let what = match what {
            HelloRoute::No(why_not) => format!("no: {why_not}"),
            HelloRoute::All => format!("yes: it takes {asked}"),
            HelloRoute::Some if taken => {
                format!("yes: it may take some of its requests ({asked}), and no route takes all")
            }
            HelloRoute::Some if matches!(route.action, Action::Redirect(_)) => {
                format!("not yet: the node redirects some of its requests ({asked})")
            }
            HelloRoute::Some => format!("not yet: it takes some of its requests ({asked})"),
        };
        lines.add(&format!("route {}", index + 1), what);
        if taken {
            break;
        }
    }
    match &hello.outcome {
        Greeting::To { pool, node, spoken, .. } => {
            let (pool, node) = (&cluster.pools[*pool], &cluster.nodes[*node].name);
            lines.add("pool", in_pool(cluster, pool));
            let chosen_by = match hello.session {
                Some(Names::Node(named)) if cluster.nodes[named].name == *node => "which has its session",
                _ => {
                    lines.add("policy", policy(pool));
                    AT_FIRST
                }
            };
            lines.add("session", session(cluster, hello));
            lines.add("node", format!("{node}, {chosen_by}"));
            let speaks = match spoken {
                Some(protocol) if offered.is_empty() => {
                    format!("{}, because it offers nothing", protocol.name())
                }
                Some(protocol) => format!("{}, which the service likes best of that", protocol.name()),
                None => {
                    "nothing in common: the node answers with the alert no_application_protocol".to_owned()
                }
            };
            lines.add("speaks", speaks);
        }
        Greeting::Alert(reject) => {
            let alert = reject.description();
            lines.add(
                "refused",
                format!("{reject}: the switch answers with the alert {alert} and ends the connection"),
            );
        }
        Greeting::PlainHttp => {
            lines.add("refused", "it is HTTP without TLS: the switch answers 400 and ends the connection");
        }
        Greeting::Incomplete { received, closed } => {
            let then =
                if *closed { "then the client closes" } else { "not all: the switch waits for the rest" };
            lines.add("hello", format!("{received} bytes, {then}"));
        }
        Greeting::Encrypted => {
            lines.add(
                "hello",
                "was not captured: the connection has been encrypted since, and cannot be read",
            );
        }
    }
    lines.0
}

fn session(cluster: &Cluster, hello: &Hello) -> String {
    let tickets = hello.said.tickets.len();
    match hello.session {
        None => "the service does not go by sessions".to_owned(),
        Some(_) if tickets == 0 => "it offers none".to_owned(),
        Some(_) if cluster.keys.is_empty() => {
            "what its tickets say cannot be told without the cluster's key".to_owned()
        }
        Some(Names::Nothing) => "none of its tickets is of this cluster".to_owned(),
        Some(Names::Node(node)) => format!("a ticket names {}", cluster.nodes[node].name),
        Some(Names::Gone) => "a ticket names a node that has left the cluster".to_owned(),
    }
}

fn render_request(cluster: &Cluster, connection: &Connection, hello: &Hello, request: &OverTls) -> String {
    let service = &cluster.services[hello.service];
    let (line, spoken) = (printable_start(&request.line), request.spoken.name());
    let mut lines = Lines(format!("request over {spoken}, which the node reads: {line}\n"));
    if !request.read_as.is_empty() {
        lines.add("path", format!("read as {}", request.read_as.join(" or ")));
    }
    for (index, (why_not, route)) in std::iter::zip(&request.routes, &service.routes).enumerate() {
        let what = match why_not {
            Some(why_not) => format!("no: {why_not}"),
            None => format!("yes: it takes {}", conditions(route)),
        };
        lines.add(&format!("route {}", index + 1), what);
    }
    let node = node_of(cluster, connection);
    match &request.outcome {
        Decrypted::Here(pool) => {
            lines.add("pool", in_pool(cluster, &cluster.pools[*pool]));
            lines.add("answered", format!("by the server of {node}: the connection stays"));
            let others = cluster.pools[*pool].nodes.len() > 1;
            let may_be_busy = |tls: &&Tls| tls.model == Model::Forwarding && others;
            if let Some(tls) = service.tls.as_ref().filter(may_be_busy) {
                let what = match (request.spoken, tls.hand_over) {
                    (Protocol::Http11, HandOver::Direct) => "the connection moves there",
                    (Protocol::Http11, HandOver::Relay) => "the response is made there",
                    (Protocol::Http2, _) => "the request is forwarded there",
                };
                lines.add("busy", format!("if {node} is busy and another node of the pool is not: {what}"));
            }
        }
        Decrypted::Elsewhere { pool, nodes } => {
            lines.add("pool", in_pool(cluster, &cluster.pools[*pool]));
            let names: Vec<&str> = nodes.iter().map(|index| cluster.nodes[*index].name.as_str()).collect();
            let to = names.join(", or ");
            let what = match request.spoken {
                Protocol::Http11 => format!("{node} is not in the pool: the connection moves to {to}"),
                Protocol::Http2 => format!("{node} is not in the pool: the request is forwarded to {to}"),
            };
            lines.add("answered", what);
        }
        Decrypted::Answered { status, location: Some(location) } => {
            lines.add("redirect", format!("the node answers {status}"));
            lines.add("Location", location);
        }
        Decrypted::Answered { status: 404, .. } => {
            lines.add("answer", "no route takes it: the node answers 404")
        }
        Decrypted::Answered { status, .. } => lines.add("answer", format!("the node answers {status}")),
        Decrypted::Refused(why) => refusal(&mut lines, why, "the client gets"),
    }
    lines.0
}

fn node_of<'a>(cluster: &'a Cluster, connection: &Connection) -> &'a str {
    match connection.hello.as_ref().map(|hello| &hello.outcome) {
        Some(Greeting::To { node, .. }) => &cluster.nodes[*node].name,
        _ => "no node",
    }
}

/// The JSON form of [`render`]'s ClientHello.
pub fn hello_json(cluster: &Cluster, hello: &Hello) -> Value {
    let service = &cluster.services[hello.service];
    let routes = std::iter::zip(&hello.routes, &service.routes).enumerate().map(|(index, (what, route))| {
        let (takes, why_not) = match what {
            HelloRoute::No(why_not) => ("none", Some(why_not)),
            HelloRoute::Some => ("some", None),
            HelloRoute::All => ("all", None),
        };
        json!({ "number": index + 1, "conditions": conditions(route), "takes": takes, "why_not": why_not })
    });
    let session = hello.session.map(|names| match names {
        Names::Nothing => json!({ "names": "nothing", "node": null }),
        Names::Gone => json!({ "names": "gone", "node": null }),
        Names::Node(node) => json!({ "names": "node", "node": cluster.nodes[node].name }),
    });
    let (outcome, details) = match &hello.outcome {
        Greeting::To { route, pool, node, spoken } => {
            let details = json!({
                "route": route + 1,
                "pool": cluster.pools[*pool].name,
                "policy": cluster.pools[*pool].policy.name(),
                "node": cluster.nodes[*node].name,
                "spoken": spoken.map(Protocol::name),
            });
            ("given", details)
        }
        Greeting::Alert(reject) => {
            ("refused", json!({ "reason": reject.name(), "alert": reject.description() }))
        }
        Greeting::PlainHttp => ("answered", json!({ "status": 400 })),
        Greeting::Incomplete { received, closed } => {
            ("incomplete", json!({ "received": received, "closed": closed }))
        }
        Greeting::Encrypted => ("encrypted", json!({})),
    };
    json!({
        "service": service.name,
        "server_name": hello.said.server_name,
        "protocols": offered(hello),
        "tickets": hello.said.tickets.len(),
        "session": session,
        "routes": routes.collect::<Vec<_>>(),
        "outcome": outcome,
        outcome: details,
    })
}

/// The JSON form of [`render`]'s request.
pub fn over_tls_json(cluster: &Cluster, connection: &Connection, request: &OverTls) -> Value {
    let (outcome, details) = match &request.outcome {
        Decrypted::Here(pool) => {
            let node = node_of(cluster, connection);
            ("stays", json!({ "pool": cluster.pools[*pool].name, "node": node }))
        }
        Decrypted::Elsewhere { pool, nodes } => {
            let names: Vec<&String> = nodes.iter().map(|index| &cluster.nodes[*index].name).collect();
            let outcome = match request.spoken {
                Protocol::Http11 => "moves",
                Protocol::Http2 => "forwarded",
            };
            (outcome, json!({ "pool": cluster.pools[*pool].name, "nodes": names }))
        }
        Decrypted::Answered { status, location } => {
            ("answered", json!({ "status": status, "location": location }))
        }
        Decrypted::Refused(why) => ("refused", refusal_json(why)),
    };
    let routes = request.routes.iter().enumerate();
    let routes = routes.map(
        |(index, why_not)| json!({ "number": index + 1, "takes": why_not.is_none(), "why_not": why_not }),
    );
    json!({
        "line": request.line.escape_ascii().to_string(),
        "spoken": request.spoken.name(),
        "read_as": request.read_as,
        "routes": routes.collect::<Vec<_>>(),
        "outcome": outcome,
        outcome: details,
    })
}
