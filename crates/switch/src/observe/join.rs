//! Joins what the switch knows of a request with the node's fact about its response. The two arrive separately and in
//! either order.
//!
//! A node numbers the requests of a flow from its adoption on, so numbers repeat when a flow returns to the node.
//! Switch and node both report requests with equal numbers in order; the first is matched with the first.

use std::collections::VecDeque;
use std::time::Duration;

use foldhash::HashMap;
use switchback_access_log::Ended;
use switchback_flow::destination::Chosen;
use switchback_wire::facts::Fact;
use switchback_wire::{Seq, sb_flow};

use super::{Finished, Observation, RequestForwarded, RequestSeen, ended};
use crate::plan::NodeId;

/// Limits of the requests without a response: their number, and the bytes of their heads. Beyond them the oldest are
/// given up, a share of all at once, because nothing but a look at all of them tells which these are.
const OPEN_MAX: usize = 1 << 18;
const HEADS_MAX: usize = 64 << 20;
const GIVEN_UP_SHARE: usize = 16;
/// How long a fact waits for its request, and a request on a closed connection for its fact.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than any response takes.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Requests that wait for facts, and facts that wait for requests.
#[derive(Debug, Default)]
pub(super) struct Join {
    /// Connections by flow, oldest first. An empty one is removed if it was not used between two sweeps.
    flows: HashMap<sb_flow, Vec<Connection>>,
    /// Number of requests in `flows`, and the bytes of their heads.
    open: usize,
    heads: usize,
    /// Number of requests that were given up to keep the limits.
    pub(super) given_up: u64,
    /// Connections with an entry that expires after [`PATIENCE`], once per entry.
    waiting: VecDeque<(Duration, Id)>,
}

/// A connection: its flow, and the sequence number of its first byte.
type Id = (sb_flow, Seq);

#[derive(Debug)]
struct Connection {
    origin: Seq,
    /// Requests in the order of their sequence numbers.
    given: VecDeque<RequestForwarded>,
    early: VecDeque<(NodeId, Fact)>,
    /// Used since the last sweep.
    used: bool,
    /// How the connection ended; facts may still arrive.
    over: Option<Ended>,
}

impl Join {
    /// Processes an observation and appends finished requests to `out`.
    pub(super) fn take(&mut self, now: Duration, observation: Observation, out: &mut Vec<Finished>) {
        match observation {
            Observation::Forwarded(given) => self.forwarded(now, given, out),
            Observation::Fact { node, fact } => self.fact(now, node, fact, out),
            Observation::Answered { asked, status, bytes } => {
                self.forget(&asked);
                let (bytes, head_bytes) = bytes;
                out.push(Finished {
                    status: Some(status),
                    end: Ended::Complete,
                    bytes: bytes as u64,
                    head_bytes: head_bytes as u32,
                    ..unanswered(now, asked.flow, Some(asked))
                });
            }
            Observation::Abandoned(asked) => {
                self.forget(&asked);
                out.push(Finished { end: Ended::ByClient, ..unanswered(now, asked.flow, Some(asked)) });
            }
            Observation::Reset { flow, origin } => {
                if let Some(connection) = find(&mut self.flows, &(flow, origin)) {
                    connection.over = Some(Ended::BySwitch);
                    self.waiting.push_back((now, (flow, origin)));
                }
            }
            Observation::Resumed { flow, origin, node, number } => {
                let connection = find(&mut self.flows, &(flow, origin));
                if let Some(last) = connection.and_then(|connection| connection.given.back_mut()) {
                    (last.node, last.number, last.chosen) = (node, number, Chosen::Resumed);
                    last.tries += 1;
                }
            }
            Observation::Lost(_) => {}
        }
    }

    /// Gives up entries that have expired.
    pub(super) fn sweep(&mut self, now: Duration, out: &mut Vec<Finished>) {
        while let Some(&(since, id)) = self.waiting.front()
            && now.saturating_sub(since) > PATIENCE
        {
            self.waiting.pop_front();
            let Some(connection) = find(&mut self.flows, &id) else { continue };
            if let Some(how) = connection.over {
                self.end(now, &id, how, out);
            } else if let Some((node, fact)) = connection.early.pop_front() {
                out.push(of_fact(now, node, &fact, None));
            }
        }
        if let Some(oldest) = now.checked_sub(LONGEST) {
            self.give_up(now, oldest, out);
        }
        self.flows.retain(|_, all| {
            all.retain_mut(|one| {
                let is_used = std::mem::take(&mut one.used) && one.over.is_none();
                is_used || !one.given.is_empty() || !one.early.is_empty()
            });
            !all.is_empty()
        });
    }

    /// Gives up the oldest requests while a limit is exceeded.
    fn make_room(&mut self, now: Duration, out: &mut Vec<Finished>) {
        while self.open > OPEN_MAX || self.heads > HEADS_MAX {
            let requests = self.flows.values().flatten().flat_map(|connection| &connection.given);
            let mut times: Vec<Duration> = requests.map(|given| given.asked.at).collect();
            let place = times.len() / GIVEN_UP_SHARE;
            let (_, last, _) = times.select_nth_unstable(place);
            self.given_up += self.give_up(now, *last, out);
        }
    }

    /// Gives up the requests that arrived until then, and returns their number.
    fn give_up(&mut self, now: Duration, until: Duration, out: &mut Vec<Finished>) -> u64 {
        let before = self.open;
        for connection in self.flows.values_mut().flatten() {
            while let Some(index) = connection.given.iter().position(|given| given.asked.at <= until)
                && let Some(given) = connection.given.remove(index)
            {
                self.open -= 1;
                self.heads -= given.asked.head.len();
                out.push(open_end(now, given, Ended::Unknown));
            }
        }
        (before - self.open) as u64
    }

    /// Subtracts a removed request from the limits.
    fn closed(&mut self, given: &RequestForwarded) {
        self.open -= 1;
        self.heads -= given.asked.head.len();
    }

    /// Gives up all requests and facts.
    pub(super) fn end_all(&mut self, now: Duration, out: &mut Vec<Finished>) {
        let ids = |(flow, all): (&sb_flow, &Vec<Connection>)| {
            all.iter().map(|one| ((*flow, one.origin), one.over)).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.flows.iter().flat_map(ids).collect();
        all.iter().for_each(|(id, over)| self.end(now, id, over.unwrap_or(Ended::Unknown), out));
    }

    /// Processes a request that was forwarded to a node.
    pub(super) fn forwarded(&mut self, now: Duration, given: RequestForwarded, out: &mut Vec<Finished>) {
        let RequestSeen { flow, origin, begins, .. } = given.asked;
        let more = given.asked.head.len();
        let connection = self.connection(now, (flow, origin));
        // Nearly always after the present ones.
        let earlier = |other: &RequestForwarded| other.asked.begins.before(begins);
        let place = connection.given.iter().rposition(earlier).map_or(0, |last| last + 1);
        let same = connection.given.get_mut(place).filter(|other| other.asked.begins == begins);
        let is_new = same.is_none();
        let mut less = 0;
        match same {
            Some(other) => {
                less = other.asked.head.len();
                let tries = other.tries + 1 + given.tries;
                *other = RequestForwarded { tries, ..given };
            }
            None => connection.given.insert(place, given),
        }
        let said = connection.take_early();
        self.open += usize::from(is_new);
        self.heads = self.heads + more - less;
        if let Some((node, fact, given)) = said {
            self.closed(&given);
            out.push(of_fact(now, node, &fact, Some(given)));
        }
        self.make_room(now, out);
    }

    fn fact(&mut self, now: Duration, node: NodeId, fact: Fact, out: &mut Vec<Finished>) {
        let id = (fact.flow, fact.origin);
        let connection = self.connection(now, id);
        match connection.take(node, &fact) {
            Some(given) => {
                self.closed(&given);
                out.push(of_fact(now, node, &fact, Some(given)));
            }
            None => {
                connection.early.push_back((node, fact));
                self.waiting.push_back((now, id));
            }
        }
    }

    /// The connection's entry. Earlier connections of the same flow are over.
    fn connection(&mut self, now: Duration, id: Id) -> &mut Connection {
        let (flow, origin) = id;
        let all = self.flows.entry(flow).or_default();
        let place = all.iter().position(|one| one.origin == origin).unwrap_or_else(|| {
            for before in all.iter_mut().filter(|before| before.over.is_none()) {
                before.over = Some(Ended::Unknown);
                self.waiting.push_back((now, (flow, before.origin)));
            }
            all.push(Connection::new(origin));
            all.len() - 1
        });
        all[place].used = true;
        &mut all[place]
    }

    /// Removes a request that no node has any more.
    fn forget(&mut self, asked: &RequestSeen) {
        let id = (asked.flow, asked.origin);
        let Some(connection) = find(&mut self.flows, &id) else { return };
        if let Some(given) = connection.remove(asked.begins) {
            self.closed(&given);
        }
    }

    fn end(&mut self, now: Duration, id: &Id, how: Ended, out: &mut Vec<Finished>) {
        let Some(connection) = find(&mut self.flows, id) else { return };
        self.open -= connection.given.len();
        self.heads -= connection.given.iter().map(|given| given.asked.head.len()).sum::<usize>();
        out.extend(connection.given.drain(..).map(|given| open_end(now, given, how)));
        out.extend(connection.early.drain(..).map(|(node, fact)| of_fact(now, node, &fact, None)));
    }
}

impl Connection {
    fn new(origin: Seq) -> Self {
        Connection { origin, given: VecDeque::new(), early: VecDeque::new(), used: false, over: None }
    }

    /// Index of the request whose first byte has this sequence number.
    fn at(&self, begins: Seq) -> Option<usize> {
        self.given.iter().position(|given| given.asked.begins == begins)
    }

    fn remove(&mut self, begins: Seq) -> Option<RequestForwarded> {
        self.given.remove(self.at(begins)?)
    }

    /// Removes the request that the fact is about.
    fn take(&mut self, node: NodeId, fact: &Fact) -> Option<RequestForwarded> {
        self.given.remove(self.place(node, fact)?)
    }

    /// Removes the first waiting fact whose request is known by now, and the request.
    fn take_early(&mut self) -> Option<(NodeId, Fact, RequestForwarded)> {
        let place = self.early.iter().position(|(node, fact)| self.place(*node, fact).is_some())?;
        let (node, fact) = self.early.remove(place)?;
        let given = self.take(node, &fact)?;
        Some((node, fact, given))
    }

    fn place(&self, node: NodeId, fact: &Fact) -> Option<usize> {
        self.given.iter().position(|given| (given.node, given.number) == (node, fact.request))
    }
}

fn find<'a>(
    flows: &'a mut HashMap<sb_flow, Vec<Connection>>,
    (flow, origin): &Id,
) -> Option<&'a mut Connection> {
    flows.get_mut(flow)?.iter_mut().find(|one| one.origin == *origin)
}

/// A finished request without a fact.
fn unanswered(now: Duration, flow: sb_flow, asked: Option<RequestSeen>) -> Finished {
    Finished {
        flow,
        asked,
        node: None,
        chosen: None,
        tries: 0,
        at: now,
        status: None,
        end: Ended::Unknown,
        bytes: 0,
        head_bytes: 0,
        first_byte: None,
        duration: None,
    }
}

fn open_end(now: Duration, given: RequestForwarded, end: Ended) -> Finished {
    let RequestForwarded { asked, node, chosen, tries, .. } = given;
    let (node, chosen) = (Some(node), Some(chosen));
    Finished { node, chosen, tries, end, ..unanswered(now, asked.flow, Some(asked)) }
}

fn of_fact(now: Duration, node: NodeId, fact: &Fact, given: Option<RequestForwarded>) -> Finished {
    let known = match given {
        Some(given) => open_end(now, given, Ended::Unknown),
        None => unanswered(now, fact.flow, None),
    };
    Finished {
        node: Some(node),
        status: fact.status,
        end: ended(fact.end),
        bytes: fact.bytes,
        head_bytes: fact.head_bytes,
        first_byte: fact.first_byte,
        duration: Some(fact.duration),
        ..known
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use switchback_wire::address_bytes;
    use switchback_wire::facts::End;

    use super::*;

    const NODE: NodeId = NodeId(5);
    const OTHER: NodeId = NodeId(6);

    fn flow(port: u16) -> sb_flow {
        let address = |last| address_bytes(Ipv4Addr::new(192, 0, 2, last).into());
        sb_flow { client: address(1), vip: address(100), client_port: port.to_be(), vip_port: 80u16.to_be() }
    }

    fn asked(port: u16, origin: u32, begins: u32) -> RequestSeen {
        RequestSeen {
            flow: flow(port),
            origin: Seq(origin),
            begins: Seq(begins),
            head: Box::default(),
            at: Duration::from_millis(begins.into()),
            queued: Duration::ZERO,
        }
    }

    fn given(port: u16, begins: u32, node: NodeId, number: u16) -> Observation {
        Observation::Forwarded(RequestForwarded {
            asked: asked(port, 1, begins),
            node,
            number,
            chosen: Chosen::Policy,
            tries: 0,
        })
    }

    /// Fact of a response with `bytes` bytes.
    fn said(port: u16, node: NodeId, request: u16, bytes: u64) -> Observation {
        let fact = Fact {
            flow: flow(port),
            origin: Seq(1),
            request,
            status: Some(200),
            end: End::Complete,
            bytes,
            head_bytes: 1,
            first_byte: None,
            duration: Duration::ZERO,
        };
        Observation::Fact { node, fact }
    }

    #[derive(Default)]
    struct Bench {
        join: Join,
        out: Vec<Finished>,
    }

    impl Bench {
        /// The finished requests: first byte, node, bytes of the response, end, tries.
        fn take(&mut self, observations: impl IntoIterator<Item = Observation>) -> Vec<Row> {
            for observation in observations {
                self.join.take(Duration::ZERO, observation, &mut self.out);
            }
            self.rows()
        }

        fn sweep(&mut self, now: Duration) -> Vec<Row> {
            self.join.sweep(now, &mut self.out);
            self.rows()
        }

        /// Whether nothing is left after two sweeps.
        fn is_empty(&mut self) -> bool {
            let nothing = self.sweep(Duration::ZERO).is_empty() && self.sweep(Duration::ZERO).is_empty();
            nothing && self.join.flows.is_empty() && (self.join.open, self.join.heads) == (0, 0)
        }

        fn rows(&mut self) -> Vec<Row> {
            let row = |one: Finished| {
                (one.asked.map(|asked| asked.begins.0), one.node, one.bytes, one.end, one.tries)
            };
            self.out.drain(..).map(row).collect()
        }
    }

    type Row = (Option<u32>, Option<NodeId>, u64, Ended, u32);

    fn whole(begins: u32, node: NodeId, bytes: u64) -> Row {
        (Some(begins), Some(node), bytes, Ended::Complete, 0)
    }

    /// The last of a connection's requests, whose response goes on at another node.
    #[test]
    fn a_resumed_response_is_of_the_node_that_has_sent_its_end() {
        let mut bench = Bench::default();
        let resumed = Observation::Resumed { flow: flow(1), origin: Seq(1), node: OTHER, number: 1 };
        let unknown = Observation::Resumed { flow: flow(2), origin: Seq(1), node: OTHER, number: 1 };
        assert!(bench.take([given(1, 1, NODE, 5), resumed, unknown, said(1, NODE, 5, 70)]).is_empty());
        let row = (Some(1), Some(OTHER), 90, Ended::Complete, 1);
        assert_eq!(bench.take([said(1, OTHER, 1, 90)]), [row]);
    }

    #[test]
    fn request_and_fact_match_in_either_order() {
        let mut bench = Bench::default();
        assert_eq!(bench.take([given(1, 1, NODE, 1), said(1, NODE, 1, 70)]), [whole(1, NODE, 70)]);
        assert_eq!(bench.take([said(1, NODE, 2, 71), given(1, 9, NODE, 2)]), [whole(9, NODE, 71)]);
        let rows = bench.take([
            given(1, 10, NODE, 3),
            given(1, 11, NODE, 4),
            said(1, NODE, 3, 1),
            said(1, NODE, 4, 2),
        ]);
        assert_eq!(rows, [whole(10, NODE, 1), whole(11, NODE, 2)]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_flow_that_comes_back_to_a_node_is_numbered_anew() {
        let mut bench = Bench::default();
        let rows = bench.take([
            given(1, 1, NODE, 1),
            given(1, 2, OTHER, 1),
            given(1, 3, NODE, 1),
            said(1, NODE, 1, 70),
            said(1, NODE, 1, 72),
            said(1, OTHER, 1, 71),
        ]);
        assert_eq!(rows, [whole(1, NODE, 70), whole(3, NODE, 72), whole(2, OTHER, 71)]);
    }

    #[test]
    fn requests_are_sorted_by_sequence_number() {
        let mut bench = Bench::default();
        let rows = bench.take([
            given(1, 50, NODE, 2),
            given(1, 20, NODE, 2),
            given(1, 30, OTHER, 1),
            said(1, NODE, 2, 70),
            said(1, NODE, 2, 72),
            said(1, OTHER, 1, 71),
        ]);
        assert_eq!(rows, [whole(20, NODE, 70), whole(50, NODE, 72), whole(30, OTHER, 71)]);
    }

    #[test]
    fn a_request_that_is_given_again_counts_once() {
        let mut bench = Bench::default();
        let rows = bench.take([given(1, 1, NODE, 9), given(1, 1, OTHER, 1), said(1, OTHER, 1, 70)]);
        assert_eq!(rows, [(Some(1), Some(OTHER), 70, Ended::Complete, 1)]);
        let answer = Observation::Answered { asked: asked(1, 1, 2), status: 503, bytes: (80, 60) };
        let rows = bench.take([given(1, 2, NODE, 1), answer]);
        assert_eq!(rows, [(Some(2), None, 80, Ended::Complete, 0)]);
        assert!(bench.is_empty());
    }

    #[test]
    fn open_requests_of_a_closed_connection_are_reported() {
        let mut bench = Bench::default();
        let reset = |origin| Observation::Reset { flow: flow(1), origin };
        let next = || {
            let asked = asked(1, 77, 2);
            Observation::Forwarded(RequestForwarded {
                asked,
                node: NODE,
                number: 1,
                chosen: Chosen::Connection,
                tries: 0,
            })
        };
        // Facts may still arrive afterwards.
        assert!(
            bench.take([given(1, 1, NODE, 1), given(1, 9, NODE, 2), reset(Seq(2)), reset(Seq(1))]).is_empty()
        );
        assert_eq!(bench.take([said(1, NODE, 1, 70)]), [whole(1, NODE, 70)]);
        assert_eq!(bench.sweep(PATIENCE * 2), [(Some(9), Some(NODE), 0, Ended::BySwitch, 0)]);
        // A new connection of the same flow.
        assert!(bench.take([given(1, 1, NODE, 1), given(1, 9, NODE, 2), next()]).is_empty());
        assert_eq!(bench.take([said(1, NODE, 1, 70)]), [whole(1, NODE, 70)]);
        assert_eq!(bench.sweep(PATIENCE * 2), [(Some(9), Some(NODE), 0, Ended::Unknown, 0)]);
        let abandoned = Observation::Abandoned(asked(2, 1, 3));
        assert_eq!(bench.take([abandoned]), [(Some(3), None, 0, Ended::ByClient, 0)]);
        bench.join.end_all(Duration::ZERO, &mut bench.out);
        assert_eq!(bench.rows(), [(Some(2), Some(NODE), 0, Ended::Unknown, 0)]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_fact_without_a_request_is_reported_after_a_while() {
        let mut bench = Bench::default();
        assert!(bench.take([said(1, NODE, 1, 70)]).is_empty());
        assert!(bench.sweep(PATIENCE).is_empty());
        assert_eq!(bench.sweep(PATIENCE * 2), [(None, Some(NODE), 70, Ended::Complete, 0)]);
        assert!(bench.is_empty());
    }

    #[test]
    fn open_requests_have_a_limit() {
        let mut bench = Bench::default();
        let more = 10;
        let mut given_up = Vec::new();
        for request in 0..(OPEN_MAX + more) as u32 {
            let port = (request % 60_000) as u16;
            let rows = bench.take([given(port, request + 2, NODE, (request / 60_000) as u16 + 1)]);
            given_up.extend(rows.into_iter().map(|row| row.0.unwrap()));
        }
        let gone = given_up.len();
        assert!((more..=2 * OPEN_MAX / GIVEN_UP_SHARE).contains(&gone), "{gone}");
        given_up.sort_unstable();
        assert_eq!(given_up, (2..2 + gone as u32).collect::<Vec<_>>(), "the oldest");
        let left = OPEN_MAX + more - gone;
        assert_eq!((bench.join.open, bench.join.given_up), (left, gone as u64));
        assert_eq!(bench.sweep(LONGEST * 2).len(), left);
        assert!(bench.is_empty());
    }

    #[test]
    fn heads_have_a_budget() {
        let mut bench = Bench::default();
        let long = |port: u16, head: usize| {
            let asked = RequestSeen { head: vec![b'x'; head].into(), ..asked(port, 1, port.into()) };
            Observation::Forwarded(RequestForwarded {
                asked,
                node: NODE,
                number: 1,
                chosen: Chosen::Policy,
                tries: 0,
            })
        };
        let fit = HEADS_MAX / (16 << 10);
        for port in 1..=fit as u16 {
            assert!(bench.take([long(port, 16 << 10)]).is_empty());
        }
        // A repeated request counts once.
        assert!(bench.take([long(7, 16 << 10)]).is_empty());
        assert_eq!(bench.join.heads, HEADS_MAX);
        // The second one has its response, so it is not there to be given up.
        assert_eq!(bench.take([said(2, NODE, 1, 70)]), [whole(2, NODE, 70)]);
        assert!(bench.take([long(60_000, 16 << 10)]).is_empty());
        let rows = bench.take([long(60_001, 20 << 10)]);
        let mut gone: Vec<u32> = rows.into_iter().filter_map(|row| row.0).collect();
        gone.sort_unstable();
        assert!(
            !gone.is_empty() && gone.iter().copied().eq([1].into_iter().chain(3..).take(gone.len())),
            "{gone:?}"
        );
        assert_eq!(bench.join.given_up, gone.len() as u64);
        let last = gone[gone.len() - 1];
        assert!(bench.take([said(last as u16, NODE, 1, 70)]).is_empty());
        assert_eq!(bench.take([said(last as u16 + 1, NODE, 1, 70)]), [whole(last + 1, NODE, 70)]);
        assert!(bench.join.heads <= HEADS_MAX);
    }
}
