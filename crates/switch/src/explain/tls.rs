//! Explanations for TLS clients: of the ClientHello, which the switch reads, and of a request after it, which only the
//! node can read.

use std::net::IpAddr;

use switchback_config::{Action, Cluster, Protocol, Route, Scheme, Service};
use switchback_hello::{ClientHello, Progress as HelloProgress, Reject};
use switchback_http::{Head, Progress, parse_head, path};
use switchback_routes::{
    ACME_TLS, Condition, Routes, failed_hello, failed_over, location, rewritten, takes_all, why_not,
};
use switchback_wire::{Seq, sb_flow};

use super::explainer::{AT_FIRST, Explainer, node_index, read_as};
use super::explanation::{Names, Refusal, first_line};
use crate::key::{secret_of, share_of};
use switchback_flow::answer::Reply;
use switchback_flow::entry::Entry;
use switchback_flow::request::Request;
use switchback_flow::verdict::Verdict;

/// Type of encrypted records (RFC 8446 section 5.1).
pub(super) const APPLICATION_DATA: u8 = 23;

/// Explanation of a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Index in `Cluster::services`.
    pub service: usize,
    /// The ClientHello, as far as it can be read.
    pub said: ClientHello,
    /// The node that has the client's session, if the service routes by TLS session.
    pub session: Option<Names>,
    /// All routes of the service, if the ClientHello can be read.
    pub routes: Vec<HelloRoute>,
    /// What the switch does with the connection.
    pub outcome: Greeting,
}

/// How a route applies to a client that has not sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloRoute {
    /// The route takes none of the client's requests, for this reason.
    No(String),
    /// The route takes some of them depending on their content, or redirects them; the node decides.
    Some,
    /// The route takes all requests that no earlier route takes.
    All,
}

/// What the switch does with a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// Hands the connection over to a node.
    To {
        /// Index in `Service::routes`.
        route: usize,
        /// Index in `Cluster::pools`.
        pool: usize,
        /// Index in `Cluster::nodes`.
        node: usize,
        /// The protocol above TLS.
        spoken: Spoken,
    },
    /// Answers with an alert.
    Alert(Reject),
    /// Answers plain HTTP with 400.
    PlainHttp,
    /// Waits for the rest.
    Incomplete {
        /// Bytes received.
        received: usize,
        /// The client has closed, so no more data follows.
        closed: bool,
    },
    /// Reads nothing, because the connection was seen from its middle and is encrypted.
    Encrypted,
}

/// The protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// What the node negotiates.
    Agreed(Protocol),
    /// None in common, which the node answers with an alert.
    Nothing,
    /// Nothing: a CA gets its proof in the handshake (RFC 8737).
    Proof,
    /// What the server negotiates, to which TLS passes through.
    ByServer,
}

/// Explanation of a request over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverTls {
    /// First line, as in HTTP/1.1.
    pub line: Vec<u8>,
    /// Negotiated protocol.
    pub spoken: Protocol,
    /// How servers read the path, if not as written.
    pub read_as: Vec<String>,
    /// For each route up to the first match, why it does not match, or None.
    pub routes: Vec<Option<String>>,
    /// The head as the route changes it for the server; None if it does not.
    pub rewritten: Option<Vec<u8>>,
    /// What the node does with the request.
    pub outcome: Decrypted,
}

/// What the node does with a request over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decrypted {
    /// Its own server answers. Index in `Cluster::pools`.
    Here(usize),
    /// Another node of the pool answers.
    Elsewhere {
        /// Index in `Cluster::pools`.
        pool: usize,
        /// Indices in `Cluster::nodes`, in the order in which they are asked.
        nodes: Vec<usize>,
    },
    /// The node answers.
    Answered {
        /// The status code.
        status: u16,
        /// Target of a redirect.
        location: Option<String>,
    },
    /// The node refuses the request.
    Refused(Refusal),
}

impl Hello {
    /// A client's first data at a VIP, and what the switch does with it.
    pub(super) fn new(explainer: &Explainer, flow: &sb_flow, data: &[u8], outcome: Greeting) -> Hello {
        let service = explainer.service_at(flow.vip());
        let said = match switchback_hello::read(data, explainer.cluster.limits.head) {
            Ok(HelloProgress::Complete(said)) => Some(said),
            _ => None,
        };
        let config = &explainer.cluster.services[service];
        let routes = said.iter().flat_map(|said| hello_routes(config, said, flow.client().ip())).collect();
        Hello { service, said: said.unwrap_or_default(), session: None, routes, outcome }
    }

    /// Reads a client's first data; None if the switch waits for more.
    pub(super) fn read(
        explainer: &mut Explainer,
        flow: &sb_flow,
        entry: &Entry,
        data: &[u8],
    ) -> Option<Hello> {
        let (request, outcome) = match explainer.dispatcher.judge(AT_FIRST, flow, data, entry) {
            Verdict::Incomplete(_) => return None,
            Verdict::Answer { reply: Reply::Alert(reject), .. } => (None, Greeting::Alert(reject)),
            Verdict::Answer { .. } => (None, Greeting::PlainHttp),
            Verdict::To { request, .. } => (Some(request), Greeting::Alert(Reject::Unavailable)),
        };
        let mut hello = Hello::new(explainer, flow, data, outcome);
        if let Some(request) = request {
            let picked = explainer.pick(&request, entry);
            hello.session = explainer.tls_session(&request, &hello.said);
            if let Some((node, _)) = picked {
                let pool = explainer.dispatcher.plan().pool_of(request.group);
                hello.outcome = explainer.welcome(&hello, flow.client().ip(), (pool, node_index(node)));
            }
        }
        Some(hello)
    }
}

impl OverTls {
    /// Reads a request on a connection to a VIP after its ClientHello; None if no node reads it.
    pub(super) fn read(
        explainer: &mut Explainer,
        flow: &sb_flow,
        hello: &Hello,
        text: &[u8],
    ) -> Option<OverTls> {
        let Greeting::To { node, spoken: Spoken::Agreed(spoken), .. } = hello.outcome else { return None };
        let limits = explainer.limits();
        let cluster = &explainer.cluster;
        let routes = &cluster.services[hello.service].routes;
        let mut changed = None;
        let (read_as, routes, outcome) = match parse_head(text, &limits) {
            Ok(Progress::Complete(head)) => {
                let request = switchback_routes::Request { head: &head, client: flow.client().ip() };
                let tried = tried(routes, &request, spoken);
                let routes = Routes::new(routes.clone());
                let outcome = routes.find_over(&request, spoken).and_then(|route| {
                    if let Some(route) = route.filter(|route| !route.rewrite.is_empty()) {
                        changed = Some(rewritten(text, &head, &route.rewrite)?.into_owned());
                    }
                    Ok(Decrypted::by(route.map(|route| &route.action), cluster, &head, (flow, node)))
                });
                let refused = |reject| Decrypted::Refused(Refusal::of_path(reject, text, &head, 0));
                (read_as(&head), tried, outcome.unwrap_or_else(refused))
            }
            Ok(Progress::Partial) => {
                (Vec::new(), Vec::new(), Decrypted::Answered { status: 408, location: None })
            }
            Err(reject) => {
                let refusal = Refusal::of_head(reject, text, &limits, 0);
                (Vec::new(), Vec::new(), Decrypted::Refused(refusal))
            }
        };
        let line = first_line(text).to_vec();
        Some(OverTls { line, spoken, read_as, routes, rewritten: changed, outcome })
    }
}

impl Decrypted {
    /// Outcome of a request that a node got at a VIP, by the action of its route.
    fn by(
        action: Option<&Action>,
        cluster: &Cluster,
        head: &Head<'_>,
        (flow, node): (&sb_flow, usize),
    ) -> Decrypted {
        let has_node = |pool: &usize| cluster.pools[*pool].nodes.contains(&node);
        match action {
            None => Decrypted::Answered { status: 404, location: None },
            Some(Action::Respond(status)) => Decrypted::Answered { status: *status, location: None },
            Some(Action::Redirect(redirect)) => {
                let location = location(redirect, Scheme::Https, head, flow.vip());
                Decrypted::Answered { status: redirect.status, location: Some(location) }
            }
            Some(action @ (Action::Pool(_) | Action::Split(_))) => match action.pools().find(has_node) {
                Some(pool) => Decrypted::Here(pool),
                None => {
                    let pool = match action {
                        Action::Split(split) => share_of(split, &secret_of(cluster), flow, None, Seq(0)),
                        _ => action.pools().next().expect("it has a pool"),
                    };
                    Decrypted::Elsewhere { pool, nodes: cluster.pools[pool].nodes.clone() }
                }
            },
        }
    }
}

impl Explainer {
    /// The result for a client that is handed to this node.
    fn welcome(&self, hello: &Hello, client: IpAddr, (pool, node): (usize, usize)) -> Greeting {
        let service = &self.cluster.services[hello.service];
        let said = &hello.said;
        let routes = Routes::new(service.routes.clone());
        let found = routes.find_hello(said.server_name.as_deref(), &said.protocols, client);
        let route = found.expect("a client that a node gets has a route");
        Greeting::To { route, pool, node, spoken: spoken(service, said) }
    }

    fn tls_session(&self, request: &Request, said: &ClientHello) -> Option<Names> {
        let named = self.dispatcher.seen().named_by_tickets(request.group, said)?;
        let node = request.wanted.or(named.iter().flatten().next().copied());
        Some(match node {
            Some(node) => Names::Node(node_index(node)),
            None if named.is_empty() => Names::Nothing,
            None => Names::Gone,
        })
    }
}

/// The first protocol of the service that the client also offers (RFC 7301 section 3.2); HTTP/1.1 if it offers none.
fn spoken(service: &Service, said: &ClientHello) -> Spoken {
    let Some(tls) = service.tls.terminated() else { return Spoken::ByServer };
    if said.protocols.is_empty() {
        return Spoken::Agreed(Protocol::Http11);
    }
    if said.protocols == [ACME_TLS] && tls.issued().next().is_some() {
        return Spoken::Proof;
    }
    let offers = |ours: &&Protocol| said.protocols.iter().any(|theirs| theirs == ours.name().as_bytes());
    tls.protocols.iter().find(offers).map_or(Spoken::Nothing, |protocol| Spoken::Agreed(*protocol))
}

fn hello_routes(service: &Service, said: &ClientHello, client: IpAddr) -> Vec<HelloRoute> {
    let host = said.server_name.as_deref();
    let of = |route: &Route| match failed_hello(route, host, &said.protocols, client) {
        Some(Condition::Protocol) => {
            let asked: Vec<&str> = route.alpn.iter().map(|protocol| protocol.name()).collect();
            HelloRoute::No(format!("it offers no {}", asked.join(" or ")))
        }
        Some(Condition::Client) => {
            let clients = route.conditions.clients.as_ref().map(ToString::to_string).unwrap_or_default();
            HelloRoute::No(format!("client is {client}, not in {clients}"))
        }
        Some(Condition::Except(index)) => HelloRoute::No(format!("not takes it: {}", route.except[index])),
        Some(_) => {
            let asked: Vec<_> = route.conditions.hosts.iter().map(ToString::to_string).collect();
            let asked = asked.join(" or ");
            HelloRoute::No(match host {
                Some(host) => format!("it wants {host}, not {asked}"),
                None => format!("it wants no name, and {asked} is asked for"),
            })
        }
        None if takes_all(route, host, client) && route.action.pools().next().is_some() => HelloRoute::All,
        None => HelloRoute::Some,
    };
    service.routes.iter().map(of).collect()
}

/// For each route up to the first match, why it does not match, or None.
fn tried(
    routes: &[Route],
    request: &switchback_routes::Request<'_>,
    spoken: Protocol,
) -> Vec<Option<String>> {
    let path = path::normal(request.head.path());
    let failed = |route| failed_over(route, request, &path, spoken);
    let taker = routes.iter().position(|route| failed(route).is_none());
    let tried = &routes[..taker.map_or(routes.len(), |index| index + 1)];
    let why_not = |route: &Route, condition| match condition {
        Condition::Protocol => format!("it comes over {}", spoken.name()),
        _ => why_not(route, request, condition),
    };
    tried.iter().map(|route| failed(route).map(|condition| why_not(route, condition))).collect()
}
