//! What the switch would do with requests, and why, for those who ask `switchback explain`.
//!
//! Nothing is decided here. A connection has its flow entry and its held packets as in the L7 thread, and is
//! judged by the code that serves requests: `Dispatcher::judge`, `mark`, the pool's policy, the
//! automaton. What is added are the reasons, for which that code has no use. They are found by asking it
//! again: a refused head, for example, is wrong at the end of its shortest beginning that is refused.

mod explanation;
mod tls;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use switchback_config::{Cluster, HeaderMatch, Route};
use switchback_http::{Head, Limits, Progress, Reject, Version, parse_head, path};
use switchback_wire::keys::handoff_key;
use switchback_wire::packet::{flags, segment};
use switchback_wire::{SB_EXPRESS_HEAD_MAX, sb_flow, sb_flow_entry, sb_key, sb_mode};

use crate::automaton::{Automaton, Walked};
use crate::dispatch::answer::Reply;
pub use crate::dispatch::held::HeldPacket;
use crate::dispatch::held::{Held, before};
use crate::dispatch::request::{InProgress, Request};
use crate::dispatch::{Dispatcher, Moment, Next, Verdict, is_held, mark};
use crate::express::automata;
use crate::group::Place as Goes;
use crate::plan::{NodeId, Plan, Whereabouts};
use explanation::first_line;
pub use explanation::{
    Explanation, Flow, Forwarded, Names, Outcome, Place, Refusal, SessionRead, Slow, Then,
};
use switchback_routes::{Condition, failed};
pub use tls::{Decrypted, Greeting, Hello, HelloRoute, OverTls};

/// More than this behind a gap is not kept: the gap will not be filled.
const GAP_MAX: usize = 4 << 20;
/// Data without packets is read in pieces of this length, an MSS as the switch has it.
const PIECE: usize = 1392;

/// A switch that has just read its configuration.
pub struct Explainer {
    cluster: Cluster,
    dispatcher: Dispatcher,
    automata: Vec<Option<Automaton>>,
}

/// A switch that has just started, and knows no flows but the one that is explained.
const AT_FIRST: Moment<'static> = Moment { now: Duration::ZERO, map: &|_| None };

impl Explainer {
    /// Policies have nothing remembered yet. Without a key in the configuration, no cookie can be read, and what depends
    /// on a hash of the request is not what it is in the cluster.
    pub fn new(cluster: Cluster) -> Self {
        let ids: HashMap<IpAddr, NodeId> =
            cluster.nodes.iter().enumerate().map(|(index, node)| (node.address, index as NodeId)).collect();
        let key = cluster.keys.first().map_or_else(sb_key::default, |key| handoff_key(key.as_bytes()));
        let plan = Plan::new(&cluster, key, ids, Whereabouts::default(), Duration::ZERO);
        let automata = automata(&cluster);
        let dispatcher = Dispatcher::new(plan, Box::new(always_the_same()));
        Explainer { cluster, dispatcher, automata }
    }

    /// What the indices in explanations are about.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn limits(&mut self) -> Limits {
        self.dispatcher.plan().http_limits()
    }

    /// The node for a request on a flow with this entry; None if the configuration lets no node of the pool have it.
    fn pick(&mut self, request: &Request, entry: &sb_flow_entry) -> Option<(NodeId, Flow)> {
        let has_node = !is_held(entry);
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
            Goes::Session(node) | Goes::Full(node) | Goes::Any(Some(node)) => node,
            Goes::Any(None) | Goes::Nowhere => return None,
        };
        let flow = match has_node {
            true if node == entry.node => Flow::Anew,
            true => Flow::Moves(entry.node as usize),
            false => Flow::New,
        };
        Some((node, flow))
    }

    /// What the request says of its session, if the pool has sessions that stay with their nodes.
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

    /// What the automaton makes of a head at `offset`.
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

    /// Why routes take a request or not, up to the first that does.
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

/// How servers read the path of a request, if that is not as it is written.
fn read_as(head: &Head<'_>) -> Vec<String> {
    let readings = path::readings(head.path());
    let is_as_written = readings.len() == 1 && readings[0] == head.path();
    if is_as_written { Vec::new() } else { readings.into_iter().map(Into::into).collect() }
}

/// So that the same question has the same answer.
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

/// What a client sends on a connection, as far as it has been seen.
pub struct Connection {
    flow: sb_flow,
    entry: sb_flow_entry,
    /// Where the mark is in the client's data.
    offset: u64,
    held: Held,
    /// First sequence numbers of the packets that reach beyond the mark, and those after their data; empty
    /// where the data comes without packets.
    packets: Vec<(u32, u32)>,
    /// Sequence number after all data that has been seen.
    seen: u32,
    fin: Option<u32>,
    /// Nothing that follows is read.
    over: bool,
    /// It may have begun before what has been seen.
    is_middle: bool,
    /// What becomes of its requests, in order.
    pub requests: Vec<Explanation>,
    /// What becomes of its ClientHello, where TLS is spoken.
    pub hello: Option<Hello>,
    /// And of a request behind that.
    pub over_tls: Option<OverTls>,
}

impl Connection {
    /// Begins at sequence number `seq`, with a request.
    pub fn new(flow: sb_flow, seq: u32) -> Self {
        Connection {
            flow,
            entry: sb_flow_entry { origin: seq, next: seq, ..Default::default() },
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

    /// Likewise, if it may have begun before.
    pub fn in_the_middle(flow: sb_flow, seq: u32) -> Self {
        Connection { is_middle: true, ..Connection::new(flow, seq) }
    }

    /// Its client and its VIP.
    pub fn flow(&self) -> &sb_flow {
        &self.flow
    }

    /// Sequence number of its first byte.
    pub fn origin(&self) -> u32 {
        self.entry.origin
    }

    /// A packet of the client, in any order and as often as it comes.
    pub fn packet(&mut self, explainer: &mut Explainer, packet: &HeldPacket) {
        let end = packet.end();
        if before(self.entry.next, end) {
            self.packets.push((packet.view.seq, end));
        }
        self.read(explainer, packet);
    }

    /// More of the client's data, in order.
    pub fn data(&mut self, explainer: &mut Explainer, data: &[u8]) {
        for piece in data.chunks(PIECE) {
            let packet = segment(&self.flow, true, (self.seen, 0), flags::ACK, None, piece);
            let packet = HeldPacket::new(&packet).expect("a segment is whole");
            self.read(explainer, &packet);
        }
    }

    /// What is at `seq` begins a request, whether or not all that comes before has been seen: a handoff says
    /// so.
    pub fn begins_request(&mut self, seq: u32) {
        if !self.over && before(self.seen, seq) {
            self.offset += u64::from(seq.wrapping_sub(self.entry.next));
            self.entry = sb_flow_entry { next: seq, framing: Default::default(), ..self.entry };
            self.held = Held::default();
            self.seen = seq;
        }
    }

    /// No more will come. The result is where something is missing in what the client has sent, if anything
    /// is.
    pub fn finish(&mut self, explainer: &Explainer) -> Option<u64> {
        let data = self.held.stream(self.entry.next);
        let end = self.entry.next.wrapping_add(data.len() as u32);
        if !self.over && !data.is_empty() && !mark::in_body(&self.entry) {
            let (received, closed) = (data.len(), self.fin == Some(end));
            if self.is_tls(explainer) {
                self.greeted(explainer, None, Greeting::Incomplete { received, closed });
            } else {
                let outcome = Outcome::Incomplete { received, closed };
                self.explain(explainer, &data, Vec::new(), (None, outcome));
            }
        }
        (!self.held.is_empty() && before(end, self.seen)).then_some(self.offset + data.len() as u64)
    }

    fn read(&mut self, explainer: &mut Explainer, packet: &HeldPacket) {
        if self.over {
            return;
        }
        if before(self.seen, packet.end()) {
            self.seen = packet.end();
        }
        if packet.view.flags & flags::FIN != 0 {
            self.fin = Some(packet.end());
        }
        self.held.insert(packet, self.entry.next);
        while !self.over && self.advance(explainer) {
            self.held.take_until(self.entry.next);
            self.packets.retain(|&(_, end)| before(self.entry.next, end));
        }
        if self.over {
            self.held = Held::default();
        }
        self.over |= self.held.bytes() > GAP_MAX;
    }

    /// Moves the mark as the L7 thread would; false if it needs more data.
    fn advance(&mut self, explainer: &mut Explainer) -> bool {
        let data = self.held.stream(self.entry.next);
        let start = self.entry;
        if data.is_empty() {
            return false;
        }
        if self.is_tls(explainer) {
            self.greet(explainer, &data);
            return false;
        }
        if mark::in_body(&start) {
            if let Err(reject) = mark::follow(&mut self.entry, &data) {
                let refusal = Refusal::of_body(reject, start.framing, &data, self.offset);
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
        self.offset += u64::from(self.entry.next.wrapping_sub(start.next));
        if !self.over && !mark::in_body(&self.entry) {
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
        let head_end = self.entry.next.wrapping_add(head.len as u32);
        let alone = self.packets.contains(&(self.entry.next, head_end));
        let then = match head.version {
            Version::Http2 => Then::Http2,
            _ if after.mode == sb_mode::SB_MODE_UPGRADING as u8 => Then::Upgrade,
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
        self.entry = sb_flow_entry { node, ..after };
        // Whether the next bytes are a request the server decides.
        self.over = after.mode != sb_mode::SB_MODE_REQUESTS as u8;
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
