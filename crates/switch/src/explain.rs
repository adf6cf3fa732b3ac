//! What the switch would do with requests, and why, for `switchback explain`.
//!
//! Nothing is decided here. A connection has a flow entry and held packets as in the L7 thread, and the code that
//! serves requests judges it: `Dispatcher::judge`, `mark`, the pool's policy, the automaton. This module adds the
//! reasons, which that code does not need, by calling it repeatedly: a refused head, for example, is wrong at the end
//! of its shortest refused prefix.

mod explanation;
mod tls;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use switchback_config::{Cluster, HeaderMatch, Route};
use switchback_http::{Head, Limits, Progress, Reject, Version, parse_head, path};
use switchback_wire::keys::handoff_key;
use switchback_wire::packet::{flags, segment};
use switchback_wire::{SB_EXPRESS_HEAD_MAX, Seq, sb_flow, sb_key};

use crate::automaton::{Automaton, Walked};
use crate::dispatch::{Dispatcher, Moment};
use crate::express::automata;
use crate::plan::{LocalMachine, NodeId, Plan};
use explanation::first_line;
pub use explanation::{
    Explanation, Flow, Forwarded, Names, Outcome, Place, Refusal, SessionRead, Slow, Then,
};
use switchback_flow::answer::Reply;
use switchback_flow::entry::Entry;
use switchback_flow::held::Held;
pub use switchback_flow::held::HeldPacket;
use switchback_flow::request::{InProgress, Request};
use switchback_flow::verdict::{Next, Placement, Verdict};
use switchback_routes::{Condition, failed};
pub use tls::{Decrypted, Greeting, Hello, HelloRoute, OverTls};

/// Data kept behind a gap, in bytes; with more, the gap is taken to be final.
const GAP_MAX: usize = 4 << 20;
/// Length of the pieces in which data without packets is read, in bytes: an MSS of the switch.
const PIECE: usize = 1392;

/// A switch that has just read its configuration.
pub struct Explainer {
    cluster: Cluster,
    dispatcher: Dispatcher,
    automata: Vec<Option<Automaton>>,
}

/// Start of a switch that knows no flow but the one explained.
const AT_FIRST: Moment<'static> = Moment { now: Duration::ZERO, map: &|_| None };

impl Explainer {
    /// Policies start without state. Without a cluster key no cookie can be read, and hashes differ from the cluster's.
    pub fn new(cluster: Cluster) -> Self {
        let ids: HashMap<IpAddr, NodeId> =
            cluster.nodes.iter().enumerate().map(|(index, node)| (node.address, index as NodeId)).collect();
        let key = cluster.keys.first().map_or_else(sb_key::default, |key| handoff_key(key.as_bytes()));
        let plan = Plan::new(&cluster, key, ids, LocalMachine::default(), Duration::ZERO);
        let automata = automata(&cluster);
        let dispatcher = Dispatcher::new(plan, Box::new(always_the_same()));
        Explainer { cluster, dispatcher, automata }
    }

    /// The cluster to which indices in explanations refer.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn limits(&mut self) -> Limits {
        self.dispatcher.plan().http_limits()
    }

    /// The node for a request on a flow with this entry; None if no node of the pool may have it.
    fn pick(&mut self, request: &Request, entry: &Entry) -> Option<(NodeId, Flow)> {
        let has_node = !entry.is_held();
        let mut waiting = InProgress::without_packets(*request, *entry);
        waiting.choice = request.wanted;
        if has_node {
            match self.dispatcher.next_node(AT_FIRST, request, entry, None) {
                Next::Stays => return Some((entry.node, Flow::Stays)),
                Next::Leaves(choice) => waiting.choice = choice,
                Next::Nowhere => return None,
            }
        }
        let node = match self.dispatcher.place(AT_FIRST, &mut waiting, false) {
            Placement::Session(node) | Placement::Full(node) | Placement::Any(Some(node)) => node,
            Placement::Any(None) | Placement::Nowhere => return None,
        };
        let flow = match has_node {
            true if node == entry.node => Flow::Anew,
            true => Flow::Moves(entry.node as usize),
            false => Flow::New,
        };
        Some((node, flow))
    }

    /// The request's session, if the pool has sessions that stay with their nodes.
    fn session(&mut self, request: &Request) -> Option<SessionRead> {
        let plan = self.dispatcher.plan();
        let by_client = plan.sessions(request.group)?.is_by_client();
        Some(SessionRead {
            pool: plan.pool_of(request.group),
            names: match request.session {
                None => Names::Nothing,
                Some(session) => session.node.map_or(Names::Gone, |node| Names::Node(node as usize)),
            },
            ignored: request.cookies_ignored,
            by_client,
            readable: !self.cluster.keys.is_empty(),
        })
    }

    /// Result of the automaton for a head at `offset`.
    fn express(&self, service: usize, head: &[u8], offset: u64) -> Result<(), Slow> {
        let automaton = self.automata[service].as_ref().ok_or(Slow::NoAutomaton)?;
        if head.len() > SB_EXPRESS_HEAD_MAX as usize {
            return Err(Slow::TooLong);
        }
        match automaton.walk(head) {
            Walked::Pool(_) => Ok(()),
            Walked::Route => Err(Slow::Route),
            Walked::Stopped(at) => Err(Slow::Unknown(Place::new(head, at, offset))),
        }
    }

    /// For each route up to the first match, why it does not match the request, or None.
    fn routes(&self, service: usize, head: &Head<'_>) -> Vec<Option<String>> {
        let routes = &self.cluster.services[service].routes;
        let path = path::normal(head.path());
        let taker = routes.iter().position(|route| failed(route, head, &path).is_none());
        let tried = &routes[..taker.map_or(routes.len(), |index| index + 1)];
        tried
            .iter()
            .map(|route| failed(route, head, &path).map(|condition| why_not(route, head, condition)))
            .collect()
    }
}

/// How servers read the request's path, if not as written.
fn read_as(head: &Head<'_>) -> Vec<String> {
    let readings = path::readings(head.path());
    let is_as_written = readings.len() == 1 && readings[0] == head.path();
    if is_as_written { Vec::new() } else { readings.into_iter().map(Into::into).collect() }
}

/// Random numbers that are the same in each run.
fn always_the_same() -> impl FnMut() -> u64 + Send {
    // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    let mut state = 0u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn why_not(route: &Route, head: &Head<'_>, condition: Condition) -> String {
    match (condition, &route.host, &route.path, &route.header) {
        (Condition::Host, Some(wanted), ..) => match head.host {
            Some(host) => format!("host is {host}, not {wanted}"),
            None => format!("it names no host, and {wanted} is asked for"),
        },
        (Condition::Path, _, Some(prefix), _) => {
            format!("path is {}, which does not begin with {prefix}", path::normal(head.path()))
        }
        (Condition::Header, .., Some(HeaderMatch { name, value })) => match (head.header(name), value) {
            (Some(found), Some(wanted)) => format!("{name} is {}, not {wanted}", found.escape_ascii()),
            _ => format!("it has no header field {name}"),
        },
        _ => format!("method is {}, not {}", head.method, route.methods.join(" or ")),
    }
}

/// A client's data on a connection, as far as it has been seen.
pub struct Connection {
    flow: sb_flow,
    entry: Entry,
    /// Position of the mark in the client's data.
    offset: u64,
    held: Held,
    /// Start and end sequence numbers of the packets that reach beyond the mark; empty if the data came without
    /// packets.
    packets: Vec<(Seq, Seq)>,
    /// Sequence number after all data seen.
    seen: Seq,
    fin: Option<Seq>,
    /// Nothing that follows is read.
    over: bool,
    /// The connection may have begun earlier.
    is_middle: bool,
    /// Explanations of the requests, in order.
    pub requests: Vec<Explanation>,
    /// Explanation of the ClientHello, for a TLS service.
    pub hello: Option<Hello>,
    /// Explanation of a request over TLS.
    pub over_tls: Option<OverTls>,
}

impl Connection {
    /// A connection whose first request begins at sequence number `seq`.
    pub fn new(flow: sb_flow, seq: Seq) -> Self {
        Connection {
            flow,
            entry: Entry::new(seq),
            offset: 0,
            held: Held::default(),
            packets: Vec::new(),
            seen: seq,
            fin: None,
            over: false,
            is_middle: false,
            requests: Vec::new(),
            hello: None,
            over_tls: None,
        }
    }

    /// A connection seen from `seq` on, which may have begun earlier.
    pub fn in_the_middle(flow: sb_flow, seq: Seq) -> Self {
        Connection { is_middle: true, ..Connection::new(flow, seq) }
    }

    /// Flow of the connection.
    pub fn flow(&self) -> &sb_flow {
        &self.flow
    }

    /// Sequence number of the first byte.
    pub fn origin(&self) -> Seq {
        self.entry.origin
    }

    /// Processes a client's packet; packets may repeat and come in any order.
    pub fn packet(&mut self, explainer: &mut Explainer, packet: &HeldPacket) {
        let end = packet.end();
        if self.entry.mark.next.before(end) {
            self.packets.push((packet.view.seq, end));
        }
        self.read(explainer, packet);
    }

    /// Processes the client's next data.
    pub fn data(&mut self, explainer: &mut Explainer, data: &[u8]) {
        for piece in data.chunks(PIECE) {
            let packet = segment(&self.flow, true, (self.seen, Seq(0)), flags::ACK, None, piece);
            let packet = HeldPacket::new(&packet).expect("a segment is whole");
            self.read(explainer, &packet);
        }
    }

    /// Starts a request at `seq`, as a handoff packet says, even if earlier data is missing.
    pub fn begins_request(&mut self, seq: Seq) {
        if !self.over && self.seen.before(seq) {
            self.offset += u64::from(seq - self.entry.mark.next);
            self.entry.mark = self.entry.mark.moved_to(seq);
            self.held = Held::default();
            self.seen = seq;
        }
    }

    /// Ends the client's data. The result is the offset of the first gap, if there is one.
    pub fn finish(&mut self, explainer: &Explainer) -> Option<u64> {
        let data = self.held.stream(self.entry.mark.next);
        let end = self.entry.mark.next + data.len();
        if !self.over && !data.is_empty() && !self.entry.mark.is_in_body() {
            let (received, closed) = (data.len(), self.fin == Some(end));
            if self.is_tls(explainer) {
                self.greeted(explainer, None, Greeting::Incomplete { received, closed });
            } else {
                let outcome = Outcome::Incomplete { received, closed };
                self.explain(explainer, &data, Vec::new(), (None, outcome));
            }
        }
        (!self.held.is_empty() && end.before(self.seen)).then_some(self.offset + data.len() as u64)
    }

    fn read(&mut self, explainer: &mut Explainer, packet: &HeldPacket) {
        if self.over {
            return;
        }
        self.seen = self.seen.later(packet.end());
        if packet.view.flags & flags::FIN != 0 {
            self.fin = Some(packet.end());
        }
        self.held.insert(packet, self.entry.mark.next);
        while !self.over && self.advance(explainer) {
            self.held.take_until(self.entry.mark.next);
            self.packets.retain(|&(_, end)| self.entry.mark.next.before(end));
        }
        if self.over {
            self.held = Held::default();
        }
        self.over |= self.held.bytes() > GAP_MAX;
    }

    /// Moves the mark as the L7 thread would; false if more data is needed.
    fn advance(&mut self, explainer: &mut Explainer) -> bool {
        let data = self.held.stream(self.entry.mark.next);
        let start = self.entry;
        if data.is_empty() {
            return false;
        }
        if self.is_tls(explainer) {
            self.greet(explainer, &data);
            return false;
        }
        if start.mark.is_in_body() {
            if let Err(reject) = self.entry.mark.follow(&data) {
                let refusal = Refusal::of_body(reject, start.mark.framing, &data, self.offset);
                if let Some(forwarded) = self.last() {
                    forwarded.refusal = Some(refusal);
                }
                self.over = true;
                return false;
            }
        } else {
            match explainer.dispatcher.judge(AT_FIRST.now, &self.flow, &data, &start) {
                Verdict::Incomplete(_) => return false,
                Verdict::Answer { reply, .. } => {
                    self.answered(explainer, &data, reply);
                    return false;
                }
                Verdict::To(request) => self.forwarded(explainer, &data, &request),
            }
        }
        self.offset += u64::from(self.entry.mark.next - start.mark.next);
        if !self.over && !self.entry.mark.is_in_body() {
            let end = self.offset;
            if let Some(forwarded) = self.last() {
                forwarded.end = Some(end);
            }
        }
        true
    }

    fn last(&mut self) -> Option<&mut Forwarded> {
        match &mut self.requests.last_mut()?.outcome {
            Outcome::Forwarded(forwarded) => Some(forwarded),
            _ => None,
        }
    }

    fn answered(&mut self, explainer: &mut Explainer, data: &[u8], reply: Reply) {
        self.over = true;
        let limits = explainer.limits();
        let head = match parse_head(data, &limits) {
            Ok(Progress::Complete(head)) => Some(head),
            _ => None,
        };
        let routes =
            head.as_ref().map_or_else(Vec::new, |head| explainer.routes(self.service(explainer), head));
        let outcome = match (reply, head) {
            (Reply::Refused(reject), None) => {
                Outcome::Refused(Refusal::of_head(reject, data, &limits, self.offset))
            }
            (Reply::Refused(reject @ Reject::AmbiguousPath), Some(head)) => {
                Outcome::Refused(Refusal::of_path(reject, data, &head, self.offset))
            }
            (Reply::Refused(reject), Some(head)) => {
                let (body, framing) = (&data[head.len..], head.body.framing(&limits));
                Outcome::Refused(Refusal::of_body(reject, framing, body, self.offset + head.len as u64))
            }
            (Reply::Redirect { status, location }, _) => {
                Outcome::Answered { status, location: Some(location) }
            }
            (reply, _) => Outcome::Answered { status: reply.status(), location: None },
        };
        self.explain(explainer, data, routes, (None, outcome));
    }

    fn forwarded(&mut self, explainer: &mut Explainer, data: &[u8], request: &Request) {
        let after = request.after;
        let Ok(Progress::Complete(head)) = parse_head(data, &explainer.limits()) else {
            unreachable!("what is not a head is not forwarded");
        };
        let service = self.service(explainer);
        let session = explainer.session(request);
        let Some((node, flow)) = explainer.pick(request, &self.entry) else {
            self.over = true;
            let routes = explainer.routes(service, &head);
            let outcome = Outcome::Answered { status: 503, location: None };
            self.explain(explainer, data, routes, (session, outcome));
            return;
        };
        let pool = explainer.dispatcher.plan().pool_of(request.group);
        let head_end = self.entry.mark.next + head.len;
        let alone = self.packets.contains(&(self.entry.mark.next, head_end));
        let then = match head.version {
            Version::Http2 => Then::Http2,
            _ if after.is_upgrading() => Then::Upgrade,
            _ if head.keep_alive => Then::Routed,
            _ => Then::Closes,
        };
        let outcome = Outcome::Forwarded(Forwarded {
            pool,
            node: node as usize,
            flow,
            express: match &session {
                Some(session) if !session.by_client => Err(Slow::Session),
                _ => explainer.express(service, &data[..head.len], self.offset),
            },
            alone: (!self.packets.is_empty()).then_some(alone),
            body: head.body,
            end: None,
            refusal: None,
            then,
        });
        let routes = explainer.routes(service, &head);
        self.explain(explainer, data, routes, (session, outcome));
        self.entry = Entry { node, ..after };
        // After an upgrade the server decides whether requests follow.
        self.over = !after.has_requests();
    }

    fn explain(
        &mut self,
        explainer: &Explainer,
        data: &[u8],
        routes: Vec<Option<String>>,
        (session, outcome): (Option<SessionRead>, Outcome),
    ) {
        self.requests.push(Explanation {
            offset: self.offset,
            line: first_line(data).to_vec(),
            service: self.service(explainer),
            read_as: match parse_head(data, &explainer.dispatcher.seen().http_limits()) {
                Ok(Progress::Complete(head)) => read_as(&head),
                _ => Vec::new(),
            },
            routes,
            session,
            outcome,
        });
    }

    fn is_tls(&self, explainer: &Explainer) -> bool {
        explainer.dispatcher.seen().is_tls(self.flow.vip())
    }

    fn service(&self, explainer: &Explainer) -> usize {
        let vip = self.flow.vip();
        let services = &explainer.cluster.services;
        services.iter().position(|service| service.listen.contains(&vip)).expect("a connection is to a VIP")
    }
}

#[cfg(test)]
mod tests;
