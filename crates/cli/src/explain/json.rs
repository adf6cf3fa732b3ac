//! Explanations as JSON, with the order and numbering of `text`.

use serde_json::{Value, json};
use switchback_config::{Cluster, Protocol, Service};
use switchback_http::Body;
use switchback_switch::explain::{
    Connection, Decrypted, Explanation, Flow, Forwarded, Greeting, Hello, HelloRoute, Names, Outcome,
    OverTls, Place, Refusal, SessionRead, Slow, Spoken, Then,
};

use super::explained::{Begins, Explained};
use super::words::{caret, limits, node_of, offered, taker};

/// All explanations as one object.
pub fn render(cluster: &Cluster, explained: &[Explained]) -> Value {
    let connections = explained.iter().enumerate().map(|(index, explained)| {
        let connection = &explained.connection;
        let begins = match explained.begins {
            Begins::Given => "given",
            Begins::Syn => "syn",
            Begins::Handoff => "handoff",
            Begins::Middle => "middle",
        };
        let client = (explained.begins != Begins::Given).then(|| connection.flow().client().to_string());
        let requests = connection.requests.iter().enumerate();
        json!({
            "number": index + 1,
            "client": client,
            "vip": connection.flow().vip().to_string(),
            "begins": begins,
            "missing": explained.missing,
            "hello": connection.hello.as_ref().map(|hello| self::hello(cluster, hello)),
            "over_tls": connection.over_tls.as_ref().map(|request| over_tls(cluster, connection, request)),
            "requests": requests.map(|(index, one)| request(cluster, connection, index + 1, one)).collect::<Vec<_>>(),
        })
    });
    json!({ "connections": connections.collect::<Vec<_>>() })
}

fn hello(cluster: &Cluster, hello: &Hello) -> Value {
    let service = &cluster.services[hello.service];
    let demanded = service.tls.terminated().and_then(|tls| tls.client_certificates.as_ref());
    let routes = std::iter::zip(&hello.routes, &service.routes).enumerate().map(|(index, (what, route))| {
        let (takes, why_not) = match what {
            HelloRoute::No(why_not) => ("none", Some(why_not)),
            HelloRoute::Some => ("some", None),
            HelloRoute::All => ("all", None),
        };
        json!({ "number": index + 1, "conditions": route.in_words(), "takes": takes, "why_not": why_not })
    });
    let session = hello.session.map(|names| match names {
        Names::Nothing => json!({ "names": "nothing", "node": null }),
        Names::Gone => json!({ "names": "gone", "node": null }),
        Names::Node(node) => json!({ "names": "node", "node": cluster.nodes[node].name }),
    });
    let (outcome, details) = match &hello.outcome {
        Greeting::To { route, pool, node, spoken } => {
            let (tls_ends_at, spoken) = match spoken {
                Spoken::Agreed(protocol) => ("node", Some(protocol.name())),
                Spoken::Nothing => ("node", None),
                Spoken::Proof => ("node", Some("acme-tls/1")),
                Spoken::ByServer => ("server", None),
            };
            let details = json!({
                "route": route + 1,
                "pool": cluster.pools[*pool].name,
                "policy": cluster.pools[*pool].policy.name(),
                "node": cluster.nodes[*node].name,
                "tls_ends_at": tls_ends_at,
                "spoken": spoken,
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
        "client_certificates": demanded.map(|demanded| demanded.mode.name()),
        "routes": routes.collect::<Vec<_>>(),
        "outcome": outcome,
        outcome: details,
    })
}

fn over_tls(cluster: &Cluster, connection: &Connection, request: &OverTls) -> Value {
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
        Decrypted::Refused(why) => ("refused", refusal(why)),
    };
    let service = connection.hello.as_ref().map(|hello| &cluster.services[hello.service]);
    let routes = request.routes.iter().enumerate();
    let routes = routes.map(
        |(index, why_not)| json!({ "number": index + 1, "takes": why_not.is_none(), "why_not": why_not }),
    );
    json!({
        "line": request.line.escape_ascii().to_string(),
        "spoken": request.spoken.name(),
        "read_as": request.read_as,
        "routes": routes.collect::<Vec<_>>(),
        "rewritten": request.rewritten.as_ref().map(|text| text.escape_ascii().to_string()),
        "mirror": service.map(|service| mirror(cluster, service, &request.routes)),
        "outcome": outcome,
        outcome: details,
    })
}

/// The share of such requests of which another pool gets copies, and its name.
fn mirror(cluster: &Cluster, service: &Service, routes: &[Option<String>]) -> Value {
    let mirror = taker(service, routes).and_then(|route| route.mirror);
    mirror.map_or(
        Value::Null,
        |mirror| json!({ "pool": cluster.pools[mirror.pool].name, "share": mirror.to_string() }),
    )
}

fn request(cluster: &Cluster, connection: &Connection, number: usize, request: &Explanation) -> Value {
    let service = &cluster.services[request.service];
    let routes = std::iter::zip(&request.routes, &service.routes).enumerate();
    let routes = routes.map(|(index, (why_not, route))| {
        json!({
            "number": index + 1,
            "conditions": route.in_words(),
            "takes": why_not.is_none(),
            "why_not": why_not,
        })
    });
    let (outcome, details) = match &request.outcome {
        Outcome::Forwarded(forwarded) => ("forwarded", self::forwarded(cluster, forwarded)),
        Outcome::Answered { status, location } => {
            ("answered", json!({ "status": status, "location": location }))
        }
        Outcome::Refused(refusal) => ("refused", self::refusal(refusal)),
        Outcome::Incomplete { received, closed } => {
            ("incomplete", json!({ "received": received, "closed": closed }))
        }
    };
    json!({
        "number": number,
        "offset": request.offset,
        "line": request.line.escape_ascii().to_string(),
        "service": service.name,
        "client_admitted": service.admitted.admits(connection.flow().client().ip()),
        "limits": limits(service, &request.routes),
        "mirror": mirror(cluster, service, &request.routes),
        "read_as": request.read_as,
        "routes": routes.collect::<Vec<_>>(),
        "session": request.session.as_ref().map(|read| session(cluster, read)),
        "rewritten": request.rewritten.as_ref().map(|text| text.escape_ascii().to_string()),
        "outcome": outcome,
        outcome: details,
    })
}

/// The session of a request. Cookies cannot be decoded without the cluster's key.
fn session(cluster: &Cluster, session: &SessionRead) -> Value {
    let persistence = cluster.pools[session.pool].persistence.as_ref();
    let (names, node) = match session.names {
        Names::Nothing => ("nothing", None),
        Names::Node(node) => ("node", Some(&cluster.nodes[node].name)),
        Names::Gone => ("gone", None),
    };
    json!({
        "persistence": persistence.map(|persistence| persistence.mode.to_string()),
        "strict": persistence.is_some_and(|persistence| persistence.strict),
        "key_known": session.readable,
        "names": names,
        "node": node,
        "cookies_ignored": session.ignored,
    })
}

fn forwarded(cluster: &Cluster, forwarded: &Forwarded) -> Value {
    let pool = &cluster.pools[forwarded.pool];
    let name = |index: usize| &cluster.nodes[index].name;
    let nodes = pool.nodes.iter().map(|&index| &cluster.nodes[index]);
    let body = match forwarded.body {
        Body::None => json!({ "framing": "none" }),
        Body::Length(length) => json!({ "framing": "length", "length": length }),
        Body::Chunked => json!({ "framing": "chunked" }),
    };
    let why_not = match &forwarded.express {
        Ok(()) => Value::Null,
        Err(Slow::NoAutomaton) => json!({ "reason": "no_automaton" }),
        Err(Slow::TooLong) => json!({ "reason": "too_long" }),
        Err(Slow::Route) => json!({ "reason": "route" }),
        Err(Slow::Session) => json!({ "reason": "session" }),
        Err(Slow::Unknown(place)) => json!({ "reason": "unknown", "place": self::place(place) }),
    };
    let (flow, from) = match forwarded.flow {
        Flow::New => ("new", None),
        Flow::Stays => ("stays", None),
        Flow::Anew => ("anew", None),
        Flow::Moves(from) => ("moves", Some(name(from))),
    };
    let then = match forwarded.then {
        Then::Routed => "routed",
        Then::Upgrade => "upgrade",
        Then::Http2 => "http2",
        Then::Closes => "closes",
    };
    json!({
        "pool": pool.name,
        "nodes": nodes.map(|node| json!({ "name": node.name, "weight": node.weight })).collect::<Vec<_>>(),
        "policy": pool.policy.name(),
        "node": name(forwarded.node),
        "flow": flow,
        "from": from,
        "automaton": { "takes": forwarded.express.is_ok(), "why_not": why_not },
        "alone_in_packet": forwarded.alone,
        "body": body,
        "end": forwarded.end,
        "refused": forwarded.refusal.as_ref().map(refusal),
        "then": then,
    })
}

fn refusal(refusal: &Refusal) -> Value {
    json!({
        "reason": refusal.reject.name(),
        "status": refusal.reject.status(),
        "place": place(&refusal.place),
    })
}

fn place(place: &Place) -> Value {
    let (line, column) = caret(place);
    json!({ "offset": place.offset, "line": line, "column": column })
}
