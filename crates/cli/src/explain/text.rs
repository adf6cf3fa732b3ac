//! Explanations as text.

use switchback_config::{Balance, Cluster};
use switchback_http::Body;
use switchback_switch::explain::{
    Connection, Explanation, Flow, Forwarded, Names, Outcome, SessionRead, Slow, Then,
};

use super::explained::{Begins, Explained};
use super::tls;
use super::words::{AT_FIRST, Lines, in_pool, limits, policy, printable_start};

/// All explanations, in order.
pub fn render(cluster: &Cluster, explained: &[Explained]) -> String {
    let mut parts = Vec::new();
    for (index, explained) in explained.iter().enumerate() {
        let connection = &explained.connection;
        let known = explained.begins != Begins::Given;
        if known {
            parts.push(title(index + 1, explained));
        }
        let of = if known { format!(" of connection {}", index + 1) } else { String::new() };
        parts.extend(tls::render(cluster, connection, &of));
        for (number, request) in connection.requests.iter().enumerate() {
            let line = printable_start(&request.line);
            let mut lines = Lines(format!("request {}{of}: {line}\n", number + 1));
            self::request(&mut lines, cluster, connection, request);
            parts.push(lines.0);
        }
        if let Some(offset) = explained.missing {
            parts.push(format!("from byte {offset} on, something that the client sent was not captured\n"));
        }
    }
    parts.join("\n")
}

fn title(number: usize, explained: &Explained) -> String {
    let flow = explained.connection.flow();
    let begins = match explained.begins {
        Begins::Given | Begins::Syn => "",
        Begins::Handoff => ", from a request on that a node was given",
        Begins::Middle => {
            ", whose beginning was not captured: what comes first is taken for the start of a request"
        }
    };
    let Connection { requests, hello, .. } = &explained.connection;
    let none = if requests.is_empty() && hello.is_none() { ", without a request" } else { "" };
    format!("connection {number}: {} to {}{begins}{none}\n", flow.client(), flow.vip())
}

fn request(lines: &mut Lines, cluster: &Cluster, connection: &Connection, request: &Explanation) {
    let service = &cluster.services[request.service];
    lines.add("service", format!("{} ({})", service.name, connection.flow().vip()));
    lines.add_routes(&request.read_as, &request.routes, service);
    lines.add_limits(service, connection.flow().client().ip(), limits(service, &request.routes));
    if let Some(session) = &request.session {
        self::session(lines, cluster, session, &request.outcome);
    }
    lines.add_rewritten(request.rewritten.as_ref());
    lines.add_mirror(cluster, service, &request.routes);
    match &request.outcome {
        Outcome::Forwarded(forwarded) => self::forwarded(lines, cluster, forwarded, request.session.as_ref()),
        Outcome::Answered { status, location: Some(location) } => {
            lines.add("redirect", format!("the switch answers {status} and ends the connection"));
            lines.add("Location", location);
        }
        Outcome::Answered { status: 404, .. } if request.routes.iter().all(Option::is_some) => {
            lines.add("answer", "no route takes it: the switch answers 404 and ends the connection");
        }
        Outcome::Answered { status, .. } => {
            lines.add("answer", format!("the switch answers {status} and ends the connection"));
        }
        Outcome::Refused(refusal) => lines.add_refusal(refusal, "the client gets"),
        Outcome::Incomplete { received, closed: true } => {
            let what = format!("{received} bytes, then the client closes: the switch answers 400");
            lines.add("head", what);
        }
        Outcome::Incomplete { received, closed: false } => {
            let timeout = cluster.limits.head_timeout.as_secs_f64();
            let what = format!(
                "{received} bytes, not all: the switch waits {timeout} s for the rest, then answers 408"
            );
            lines.add("head", what);
        }
    }
}

/// The pool's way of persistence, the request's session, and the resulting choice.
fn session(lines: &mut Lines, cluster: &Cluster, session: &SessionRead, outcome: &Outcome) {
    let pool = &cluster.pools[session.pool];
    let Some(persistence) = &pool.persistence else { return };
    let by_cookie = persistence.mode.is_by_cookie();
    let node = match outcome {
        Outcome::Forwarded(forwarded) => Some(forwarded.node),
        _ => None,
    };
    let leads = match (node, session.names) {
        (Some(node), Names::Node(wanted)) if node == wanted => ", which gets it".to_owned(),
        (Some(node), Names::Node(_)) => {
            format!(", which cannot serve: until it can, the session is with {}", cluster.nodes[node].name)
        }
        (Some(node), Names::Gone) => format!(": the session is with {} now", cluster.nodes[node].name),
        (None, Names::Node(_) | Names::Gone) if persistence.strict => {
            ", and it may go nowhere else".to_owned()
        }
        (None, Names::Node(_)) => ", which cannot serve, and no other can".to_owned(),
        (None, Names::Gone) => ", and no other can serve".to_owned(),
        (_, Names::Nothing) => String::new(),
    };
    let says = match session.names {
        _ if by_cookie && !session.readable => {
            "what its cookies say cannot be told without the cluster's key".to_owned()
        }
        Names::Nothing if by_cookie => "no cookie names a node".to_owned(),
        Names::Nothing => "it has none".to_owned(),
        Names::Node(node) if by_cookie => format!("a cookie names {}{leads}", cluster.nodes[node].name),
        Names::Node(node) => format!("it belongs to {}{leads}", cluster.nodes[node].name),
        Names::Gone => format!("a cookie names a node that has left the pool{leads}"),
    };
    lines.add("session", format!("{persistence}: {says}"));
    if session.ignored > 0 && session.readable {
        let cookies = if session.ignored == 1 { "cookie is" } else { "cookies are" };
        lines.add("", format!("{} {cookies} ignored: forged or damaged", session.ignored));
    }
}

fn forwarded(lines: &mut Lines, cluster: &Cluster, forwarded: &Forwarded, session: Option<&SessionRead>) {
    let pool = &cluster.pools[forwarded.pool];
    let node = &cluster.nodes[forwarded.node].name;
    lines.add("pool", in_pool(cluster, pool));
    let has_session = session.is_some_and(|session| session.names != Names::Nothing);
    let state = if has_session { "because of its session" } else { AT_FIRST };
    let chosen = match forwarded.flow {
        Flow::Anew => format!(
            "{node}, which has the connection, and adopts it anew for another pool or with the changed head"
        ),
        Flow::New => format!("{node}, {state}"),
        Flow::Stays => format!("{node}, because it has the connection"),
        Flow::Moves(from) => {
            let from = &cluster.nodes[from].name;
            format!("{node}, to which the connection moves from {from}, {state}")
        }
    };
    if !has_session {
        lines.add("policy", policy(pool));
    }
    lines.add("node", chosen);
    decided(lines, cluster, forwarded);
    let end = |what: &str| match forwarded.end {
        Some(end) => format!("{what}; the next request begins at byte {end}"),
        None if forwarded.refusal.is_some() => what.to_owned(),
        None => format!("{what}; not all of it is here"),
    };
    let body = match forwarded.body {
        Body::None => "none".to_owned(),
        Body::Length(length) => end(&format!("{length} bytes, by Content-Length")),
        Body::Chunked => end("in chunks, which are followed to the last one"),
    };
    lines.add("body", body);
    if let Some(refusal) = &forwarded.refusal {
        lines.add_refusal(refusal, "the node gives the request up, the client gets");
        return;
    }
    let then = match forwarded.then {
        Then::Routed => "the next request is routed again",
        Then::Upgrade => "the connection stays with the node if the server changes to another protocol",
        Then::Http2 => "the connection stays with the node: it is HTTP/2, of which no more is read",
        Then::Closes => {
            "the client wants the connection to end with the response; what it sends is routed nevertheless"
        }
    };
    lines.add("then", then);
}

/// The place of the decision, XDP or the L7 thread, with the reason.
fn decided(lines: &mut Lines, cluster: &Cluster, forwarded: &Forwarded) {
    let (by_l7, one_packet) = ("by the L7 thread", "if its head is one packet, no more and no less");
    let what = match (&forwarded.express, forwarded.flow, forwarded.alone) {
        (Err(Slow::NoAutomaton), ..) => format!("{by_l7}: the routes need more room than XDP has"),
        (Err(Slow::TooLong), ..) => format!("{by_l7}: the head is longer than what XDP reads"),
        (Err(Slow::Route), ..) => {
            let which =
                "the route has conditions or limits that XDP does not know, or changes or copies requests";
            format!("{by_l7}: {which}")
        }
        (Err(Slow::Unknown(place)), ..) => {
            lines.add("decided", format!("{by_l7}: XDP does not read what is at byte {}", place.offset));
            lines.add_place(place);
            return;
        }
        (Err(Slow::Session), ..) => {
            format!("{by_l7}: XDP does not read what says which node has the session")
        }
        (Ok(()), Flow::Anew, _) => format!("{by_l7}: the node adopts the connection anew"),
        (Ok(()), Flow::New, alone)
            if alone != Some(false) && cluster.pools[forwarded.pool].chooses_ahead() =>
        {
            format!("in XDP while the pool is busy, {one_packet}; else {by_l7}")
        }
        (Ok(()), Flow::New, _) => {
            format!(
                "{by_l7}, as a connection's first request; in XDP later on, if a node of the pool has it then"
            )
        }
        (Ok(()), Flow::Moves(from), _) => {
            let (pool, name) = (&cluster.pools[forwarded.pool], &cluster.nodes[from].name);
            let why = match pool.balance {
                _ if !pool.nodes.contains(&from) => "is not in the pool",
                _ if pool.persistence.is_some() => "is not the one that has the session, or is drained",
                Balance::Request => "is not the one that the policy chooses for this request",
                Balance::Connection => "is drained",
            };
            format!("{by_l7}: {name}, which has the connection, {why}")
        }
        (Ok(()), Flow::Stays, _) if cluster.pools[forwarded.pool].balance == Balance::Request => {
            format!("{by_l7}: the pool's policy is asked for each request")
        }
        (Ok(()), Flow::Stays, Some(true)) => "in XDP".to_owned(),
        (Ok(()), Flow::Stays, Some(false)) => format!("{by_l7}; in XDP {one_packet}"),
        (Ok(()), Flow::Stays, None) => format!("in XDP, {one_packet}"),
    };
    lines.add("decided", what);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use switchback_config::ClusterKey;
    use switchback_switch::explain::Explainer;
    use switchback_wire::{Seq, address_bytes, keys, sb_flow, session};

    use super::super::json;
    use super::*;

    fn config(persistence: &str) -> String {
        format!(
            "[cluster]\nkey_file = \"key\"\n\
             [[node]]\nname = \"n1\"\naddress = \"192.0.2.21\"\n\
             [[node]]\nname = \"n2\"\naddress = \"192.0.2.22\"\ndrain = true\n\
             [[pool]]\nname = \"web\"\nnodes = [\"n1\", \"n2\"]\npolicy = \"random\"\n\
             [pool.persistence]\n{persistence}\n\
             [[service]]\nname = \"s\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"web\"\n"
        )
    }

    /// The explanation as text, and the request of the JSON.
    fn explain(persistence: &str, key: bool, field: &str) -> (String, serde_json::Value) {
        let keys = |_: &Path| Ok(if key { vec![ClusterKey::from_bytes([7; 32])] } else { Vec::new() });
        let cluster =
            switchback_config::parse(&config(persistence), Path::new("cluster.toml"), keys).unwrap();
        let mut explainer = Explainer::new(cluster);
        let flow = sb_flow {
            client: address_bytes("198.51.100.1".parse().unwrap()),
            vip: address_bytes("192.0.2.100".parse().unwrap()),
            client_port: 40000u16.to_be(),
            vip_port: 80u16.to_be(),
        };
        let mut connection = Connection::new(flow, Seq(0));
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        connection.data(&mut explainer, head.as_bytes());
        let explained = [Explained { connection, begins: Begins::Given, missing: None }];
        let value = json::render(explainer.cluster(), &explained);
        (render(explainer.cluster(), &explained), value["connections"][0]["requests"][0].clone())
    }

    #[test]
    fn a_session_is_told_with_where_it_leads() {
        let key = keys::session_key(&[7; 32]);
        let codes = session::node_codes(&key, "web", &["n1", "n2"]);
        let name = |node: usize| {
            let name = session::rewritten(session::pool_codes(&key, &["web"])[0], codes[node]);
            format!("Cookie: {}D=1", String::from_utf8(name.to_vec()).unwrap())
        };
        let rewrite = "mode = \"rewrite\"\ncookie = \"PHPSESSID\"";
        let strict = format!("{rewrite}\nsticky = \"strict\"");
        let prefer = "session   rewrite PHPSESSID, sticky prefer: ";
        for (persistence, has_key, field, line) in [
            (rewrite, true, String::new(), format!("{prefer}no cookie names a node")),
            (rewrite, true, name(0), format!("{prefer}a cookie names n1, which gets it")),
            (
                rewrite,
                true,
                name(1),
                format!(
                    "{prefer}a cookie names n2, which cannot serve: until it can, the session is with n1"
                ),
            ),
            (
                &strict,
                true,
                name(1),
                "session   rewrite PHPSESSID, sticky strict: a cookie names n2, and it may go nowhere else"
                    .to_owned(),
            ),
            (
                rewrite,
                false,
                name(0),
                format!("{prefer}what its cookies say cannot be told without the cluster's key"),
            ),
            (
                rewrite,
                true,
                format!("{}; {}", name(0), name(1)[8..].replace("D=", "X=")),
                "1 cookie is ignored: forged or damaged".to_owned(),
            ),
            (
                "mode = \"hash\"\nhash = \"header x-user\"",
                true,
                String::new(),
                "session   hash header x-user, sticky prefer: it has none".to_owned(),
            ),
        ] {
            let field = if field.is_empty() { field } else { field + "\r\n" };
            let (text, _) = explain(persistence, has_key, &field);
            assert!(text.lines().any(|shown| shown.trim_start() == line), "{line:?} is not in\n{text}");
        }
        let (_, value) = explain(rewrite, true, &format!("{}\r\n", name(1)));
        let expected = serde_json::json!({
            "persistence": "rewrite PHPSESSID", "strict": false, "key_known": true, "names": "node", "node": "n2",
            "cookies_ignored": 0,
        });
        assert_eq!(value["session"], expected);
        assert_eq!(value["forwarded"]["automaton"]["why_not"]["reason"], "session");
    }
}
