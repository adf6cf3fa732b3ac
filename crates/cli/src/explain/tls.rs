//! Explanations of TLS connections, as text.

use switchback_config::{ClientAuth, Cluster, HandOver, Model, Pool, Protocol, Service, Tls};
use switchback_switch::explain::{
    Connection, Decrypted, Greeting, Hello, HelloRoute, Names, OverTls, Spoken,
};

use super::words::{AT_FIRST, Lines, in_pool, limits, node_of, offered, policy, printable_start};

/// The ClientHello of a connection, and the request after it, as far as present.
pub fn render(cluster: &Cluster, connection: &Connection, of: &str) -> Vec<String> {
    let Some(hello) = &connection.hello else { return Vec::new() };
    let mut parts = vec![render_hello(cluster, connection, hello, of)];
    parts.extend(
        connection.over_tls.iter().map(|request| render_request(cluster, connection, hello, request)),
    );
    parts
}

fn render_hello(cluster: &Cluster, connection: &Connection, hello: &Hello, of: &str) -> String {
    let service = &cluster.services[hello.service];
    let name = hello.said.server_name.as_deref().unwrap_or("no name");
    let offered = offered(hello);
    let offers = if offered.is_empty() { String::new() } else { format!(", offers {}", offered.join(", ")) };
    let said = if hello.said.len > 0 { format!(": {name}{offers}") } else { String::new() };
    let mut lines = Lines(format!("ClientHello{of}{said}\n"));
    lines.add("service", format!("{} ({})", service.name, connection.flow().vip()));
    hello_routes(&mut lines, service, hello);
    let limits = service.limits.connections.shown("connections");
    lines.add_limits(service, connection.flow().client().ip(), limits);
    match &hello.outcome {
        Greeting::To { pool, node, spoken, .. } => {
            given(&mut lines, cluster, hello, (&cluster.pools[*pool], *node), *spoken);
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

fn hello_routes(lines: &mut Lines, service: &Service, hello: &Hello) {
    for (index, (what, route)) in std::iter::zip(&hello.routes, &service.routes).enumerate() {
        let taken = matches!(&hello.outcome, Greeting::To { route, .. } if *route == index);
        let asked = route.in_words();
        let what = match what {
            HelloRoute::No(why_not) => format!("no: {why_not}"),
            HelloRoute::All => format!("yes: it takes {asked}"),
            HelloRoute::Some if taken => {
                format!("yes: it may take some of its requests ({asked}), and no route takes all")
            }
            HelloRoute::Some if route.action.pools().next().is_none() => {
                format!("not yet: the node answers some of its requests ({asked})")
            }
            HelloRoute::Some => format!("not yet: it takes some of its requests ({asked})"),
        };
        lines.add(&format!("route {}", index + 1), what);
        if taken {
            break;
        }
    }
}

/// The node that a client is given to, and why.
fn given(lines: &mut Lines, cluster: &Cluster, hello: &Hello, (pool, node): (&Pool, usize), spoken: Spoken) {
    lines.add("pool", in_pool(cluster, pool));
    let chosen_by = match hello.session {
        Some(Names::Node(named)) if named == node => "which has its session",
        _ => {
            lines.add("policy", policy(pool));
            AT_FIRST
        }
    };
    lines.add("session", session(cluster, hello));
    lines.add("node", format!("{}, {chosen_by}", cluster.nodes[node].name));
    let speaks = match spoken {
        Spoken::Agreed(protocol) if hello.said.protocols.is_empty() => {
            format!("{}, because it offers nothing", protocol.name())
        }
        Spoken::Agreed(protocol) => format!("{}, which the service likes best of that", protocol.name()),
        Spoken::Nothing => {
            "nothing in common: the node answers with the alert no_application_protocol".to_owned()
        }
        Spoken::Proof => "acme-tls/1: a CA gets its proof, if it wants one now, and nothing else".to_owned(),
        Spoken::ByServer => "what the server chooses: TLS passes through to it".to_owned(),
    };
    lines.add("speaks", speaks);
    let demanded =
        cluster.services[hello.service].tls.terminated().and_then(|tls| tls.client_certificates.as_ref());
    if let Some(demanded) = demanded {
        let without = match demanded.mode {
            ClientAuth::Required => "without one the handshake fails",
            ClientAuth::Optional => "it may have none",
        };
        lines.add("client", format!("is asked for its certificate: {without}"));
    }
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
    lines.add_routes(&request.read_as, &request.routes, service);
    for limit in limits(service, &request.routes) {
        lines.add("limit", format!("{limit}, which {} counts", node_of(cluster, connection)));
    }
    let node = node_of(cluster, connection);
    lines.add_rewritten(request.rewritten.as_ref());
    lines.add_mirror(cluster, service, &request.routes);
    match &request.outcome {
        Decrypted::Here(pool) => {
            lines.add("pool", in_pool(cluster, &cluster.pools[*pool]));
            lines.add("answered", format!("by the server of {node}: the connection stays"));
            let others = cluster.pools[*pool].nodes.len() > 1;
            let may_be_busy = |tls: &&Tls| tls.model == Model::Forwarding && others;
            if let Some(tls) = service.tls.terminated().filter(may_be_busy) {
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
        Decrypted::Answered { status: 404, .. } if request.routes.iter().all(Option::is_some) => {
            lines.add("answer", "no route takes it: the node answers 404")
        }
        Decrypted::Answered { status, .. } => lines.add("answer", format!("the node answers {status}")),
        Decrypted::Refused(why) => lines.add_refusal(why, "the client gets"),
    }
    lines.0
}
