//! The requests on a client's connection, each explained where it ends.

use switchback_http::{Progress, Reject, Version, parse_head};
use switchback_wire::packet::{flags, segment};
use switchback_wire::{Seq, sb_flow};

use super::explainer::{AT_FIRST, Explainer, node_index, read_as};
use super::explanation::{Explanation, Forwarded, Outcome, Refusal, SessionRead, Slow, Then, first_line};
use super::tls::{APPLICATION_DATA, Greeting, Hello, OverTls};
use switchback_flow::answer::Reply;
use switchback_flow::entry::Entry;
use switchback_flow::held::{Held, HeldPacket};
use switchback_flow::new_head::NewHead;
use switchback_flow::request::Request;
use switchback_flow::verdict::Verdict;

/// Data kept behind a gap, in bytes; with more, the gap is taken to be final.
pub(super) const GAP_MAX: usize = 4 << 20;
/// Length of the pieces in which data without packets is read, in bytes: an MSS of the switch.
const PIECE: usize = 1392;

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

    /// Explains a request after the ClientHello, given in the clear. Without a negotiated connection there is no
    /// result.
    pub fn request_over_tls(&mut self, explainer: &mut Explainer, text: &[u8]) {
        let hello = self.hello.as_ref();
        self.over_tls = hello.and_then(|hello| OverTls::read(explainer, &self.flow, hello, text));
    }

    /// Ends the client's data. The result is the offset of the first gap, if there is one.
    pub fn finish(&mut self, explainer: &Explainer) -> Option<u64> {
        let data = self.held.stream(self.entry.mark.next);
        let end = self.entry.mark.next + data.len();
        if !self.over && !data.is_empty() && !self.entry.mark.is_in_body() {
            let (received, closed) = (data.len(), self.fin == Some(end));
            if self.is_tls(explainer) {
                self.greeted(Hello::new(
                    explainer,
                    &self.flow,
                    &data,
                    Greeting::Incomplete { received, closed },
                ));
            } else {
                let outcome = Outcome::Incomplete { received, closed };
                self.explain(explainer, &data, Vec::new(), (None, outcome), None);
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
            if self.is_middle && data[0] == APPLICATION_DATA {
                self.greeted(Hello::new(explainer, &self.flow, &data, Greeting::Encrypted));
            } else if let Some(hello) = Hello::read(explainer, &self.flow, &self.entry, &data) {
                self.greeted(hello);
            }
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
            match explainer.dispatcher.judge(AT_FIRST, &self.flow, &data, &start) {
                Verdict::Incomplete(_) => return false,
                Verdict::Answer { reply, .. } => {
                    self.answered(explainer, &data, reply);
                    return false;
                }
                Verdict::To { request, head } => self.forwarded(explainer, &data, &request, head.as_ref()),
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

    /// Records the ClientHello. What follows is encrypted and cannot be explained.
    fn greeted(&mut self, hello: Hello) {
        self.over = true;
        self.hello = Some(hello);
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
        let routes = head.as_ref().map_or_else(Vec::new, |head| {
            explainer.routes(explainer.service_at(self.flow.vip()), head, self.flow.client().ip())
        });
        let outcome = match (reply, head) {
            (Reply::Refused(reject), None) => {
                Outcome::Refused(Refusal::of_head(reject, data, &limits, self.offset))
            }
            (Reply::Refused(reject @ (Reject::AmbiguousPath | Reject::HeadTooLong)), Some(head)) => {
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
        self.explain(explainer, data, routes, (None, outcome), None);
    }

    fn forwarded(
        &mut self,
        explainer: &mut Explainer,
        data: &[u8],
        request: &Request,
        new_head: Option<&NewHead>,
    ) {
        let after = request.after;
        let Ok(Progress::Complete(head)) = parse_head(data, &explainer.limits()) else {
            unreachable!("what is not a head is not forwarded");
        };
        let service = explainer.service_at(self.flow.vip());
        let session = explainer.session(request);
        let Some((node, flow)) = explainer.pick(request, &self.entry) else {
            self.over = true;
            let routes = explainer.routes(service, &head, self.flow.client().ip());
            let outcome = Outcome::Answered { status: 503, location: None };
            self.explain(explainer, data, routes, (session, outcome), None);
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
            node: node_index(node),
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
        let routes = explainer.routes(service, &head, self.flow.client().ip());
        let rewritten = new_head.map(|head| head.text().to_vec());
        self.explain(explainer, data, routes, (session, outcome), rewritten);
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
        rewritten: Option<Vec<u8>>,
    ) {
        self.requests.push(Explanation {
            offset: self.offset,
            line: first_line(data).to_vec(),
            service: explainer.service_at(self.flow.vip()),
            read_as: match parse_head(data, &explainer.dispatcher.seen().http_limits()) {
                Ok(Progress::Complete(head)) => read_as(&head),
                _ => Vec::new(),
            },
            routes,
            session,
            rewritten,
            outcome,
        });
    }

    fn is_tls(&self, explainer: &Explainer) -> bool {
        explainer.dispatcher.seen().is_tls(self.flow.vip())
    }
}
