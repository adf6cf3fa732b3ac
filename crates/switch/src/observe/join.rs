//! Puts together what the switch knows of a request and what its node says of the response. The two come by different
//! ways, and in either order.
//!
//! On one flow a node numbers the requests that it is given from its adoption on, so numbers come again when the flow comes
//! back to it. What is said of equal numbers is said in order, by the switch as by the node; the first is matched with the
//! first.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use switchback_wire::facts::Fact;
use switchback_wire::sb_flow;

use super::{Asked, Ended, Finished, Given, Observation};
use crate::plan::NodeId;

/// Requests without a response that are remembered; then the oldest are given up.
const OPEN_MAX: usize = 1 << 18;
/// What is said of a request that the switch does not tell of within this time is all that will be known of it.
const EARLY: Duration = Duration::from_secs(5);
/// Longer than any response.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Requests that wait for their responses, and the other way round.
#[derive(Debug, Default)]
pub(super) struct Join {
    flows: HashMap<sb_flow, Connection>,
    /// Requests in all of them.
    open: usize,
    /// Requests of connections that have some, in the order in which they came, and perhaps some that are done.
    order: VecDeque<(Duration, sb_flow, u32)>,
    /// Likewise of what has been said early.
    early: VecDeque<(Duration, sb_flow, u32)>,
}

#[derive(Debug)]
struct Connection {
    origin: u32,
    given: VecDeque<Given>,
    early: VecDeque<(NodeId, Fact)>,
}

impl Join {
    /// Takes in what has been observed at this time; what is finished with it goes to `out`.
    pub(super) fn take(&mut self, now: Duration, observation: Observation, out: &mut Vec<Finished>) {
        match observation {
            Observation::Given(given) => self.given(now, given, out),
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
                if self.flows.get(&flow).is_some_and(|connection| connection.origin == origin) {
                    self.end(now, &flow, Ended::BySwitch, out);
                }
            }
            Observation::Lost(_) => {}
        }
    }

    /// Gives up what has waited too long.
    pub(super) fn sweep(&mut self, now: Duration, out: &mut Vec<Finished>) {
        while let Some(&(since, flow, origin)) = self.early.front()
            && now.saturating_sub(since) > EARLY
        {
            self.early.pop_front();
            let Some(connection) = self.flows.get_mut(&flow).filter(|one| one.origin == origin) else {
                continue;
            };
            if let Some((node, fact)) = connection.early.pop_front() {
                out.push(of_fact(now, node, &fact, None));
            }
            self.drop_if_empty(&flow);
        }
        if self.order.len() > 2 * OPEN_MAX {
            let flows = &self.flows;
            self.order.retain(|one| waiting(flows, one).is_some());
        }
        while let Some(one) = self.order.front().copied() {
            let (since, flow, _) = one;
            let place = waiting(&self.flows, &one);
            let is_late = self.open > OPEN_MAX || now.saturating_sub(since) > LONGEST;
            if place.is_some() && !is_late {
                break;
            }
            self.order.pop_front();
            let connection = self.flows.get_mut(&flow);
            if let Some(given) = place.and_then(|place| connection?.given.remove(place)) {
                self.open -= 1;
                out.push(open_end(now, given, Ended::Unknown));
                self.drop_if_empty(&flow);
            }
        }
    }

    /// Gives up everything.
    pub(super) fn end_all(&mut self, now: Duration, out: &mut Vec<Finished>) {
        let flows: Vec<sb_flow> = self.flows.keys().copied().collect();
        flows.iter().for_each(|flow| self.end(now, flow, Ended::Unknown, out));
    }

    fn given(&mut self, now: Duration, given: Given, out: &mut Vec<Finished>) {
        let Asked { flow, origin, begins, at, .. } = given.asked;
        let connection = self.connection(now, flow, origin, out);
        let same = connection.given.iter_mut().find(|before| before.asked.begins == begins);
        match same {
            Some(before) => {
                let tries = before.tries + 1 + given.tries;
                *before = Given { tries, ..given };
            }
            None => {
                connection.given.push_back(given);
                self.open += 1;
                self.order.push_back((at, flow, origin));
            }
        }
        self.match_early(now, flow, out);
    }

    /// The first fact that has waited for what is known by now.
    fn match_early(&mut self, now: Duration, flow: sb_flow, out: &mut Vec<Finished>) {
        let Some(connection) = self.flows.get_mut(&flow) else { return };
        let fits = |given: &Given, (node, fact): &(NodeId, Fact)| {
            (given.node, given.number) == (*node, fact.request)
        };
        let found = connection.early.iter().enumerate().find_map(|(index, said)| {
            let place = connection.given.iter().position(|given| fits(given, said))?;
            Some((index, place))
        });
        let Some((index, place)) = found else { return };
        let said = connection.early.remove(index);
        let given = connection.given.remove(place);
        if let (Some((node, fact)), Some(given)) = (said, given) {
            self.open -= 1;
            out.push(of_fact(now, node, &fact, Some(given)));
        }
        self.drop_if_empty(&flow);
    }

    fn fact(&mut self, now: Duration, node: NodeId, fact: Fact, out: &mut Vec<Finished>) {
        let (flow, origin) = (fact.flow, fact.origin);
        let connection = match self.flows.get_mut(&flow) {
            // Of a connection whose ports have another one by now, whose requests were given up with that.
            Some(connection) if connection.origin != origin && !connection.given.is_empty() => {
                out.push(of_fact(now, node, &fact, None));
                return;
            }
            _ => self.connection(now, flow, origin, out),
        };
        let place =
            connection.given.iter().position(|given| (given.node, given.number) == (node, fact.request));
        match place.and_then(|place| connection.given.remove(place)) {
            Some(given) => {
                self.open -= 1;
                out.push(of_fact(now, node, &fact, Some(given)));
                self.drop_if_empty(&flow);
            }
            None => {
                connection.early.push_back((node, fact));
                self.early.push_back((now, flow, origin));
            }
        }
    }

    /// The connection that the ports have now. What an earlier one has left is given up.
    fn connection(
        &mut self,
        now: Duration,
        flow: sb_flow,
        origin: u32,
        out: &mut Vec<Finished>,
    ) -> &mut Connection {
        if self.flows.get(&flow).is_some_and(|connection| connection.origin != origin) {
            self.end(now, &flow, Ended::Unknown, out);
        }
        let new = || Connection { origin, given: VecDeque::new(), early: VecDeque::new() };
        self.flows.entry(flow).or_insert_with(new)
    }

    /// The request has no node any more.
    fn forget(&mut self, asked: &Asked) {
        let Some(connection) = self.flows.get_mut(&asked.flow).filter(|one| one.origin == asked.origin)
        else {
            return;
        };
        let place = connection.given.iter().position(|given| given.asked.begins == asked.begins);
        if place.and_then(|place| connection.given.remove(place)).is_some() {
            self.open -= 1;
        }
        self.drop_if_empty(&asked.flow);
    }

    fn end(&mut self, now: Duration, flow: &sb_flow, how: Ended, out: &mut Vec<Finished>) {
        let Some(connection) = self.flows.remove(flow) else { return };
        self.open -= connection.given.len();
        out.extend(connection.given.into_iter().map(|given| open_end(now, given, how)));
        out.extend(connection.early.iter().map(|(node, fact)| of_fact(now, *node, fact, None)));
    }

    fn drop_if_empty(&mut self, flow: &sb_flow) {
        if self.flows.get(flow).is_some_and(|one| one.given.is_empty() && one.early.is_empty()) {
            self.flows.remove(flow);
        }
    }
}

/// Where among those of its connection the request is that came then, if it still waits.
fn waiting(
    flows: &HashMap<sb_flow, Connection>,
    (at, flow, origin): &(Duration, sb_flow, u32),
) -> Option<usize> {
    let connection = flows.get(flow).filter(|connection| connection.origin == *origin)?;
    connection.given.iter().position(|given| given.asked.at == *at)
}

/// What is known of a request that no node has said anything of.
fn unanswered(now: Duration, flow: sb_flow, asked: Option<Asked>) -> Finished {
    Finished {
        client: flow.client(),
        vip: flow.vip(),
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

fn open_end(now: Duration, given: Given, end: Ended) -> Finished {
    let Given { asked, node, chosen, tries, .. } = given;
    let (node, chosen) = (Some(node), Some(chosen));
    Finished { node, chosen, tries, end, ..unanswered(now, asked.flow, Some(asked)) }
}

fn of_fact(now: Duration, node: NodeId, fact: &Fact, given: Option<Given>) -> Finished {
    let known = match given {
        Some(given) => open_end(now, given, Ended::Unknown),
        None => unanswered(now, fact.flow, None),
    };
    Finished {
        node: Some(node),
        status: fact.status,
        end: fact.end.into(),
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
    use crate::observe::Chosen;

    fn flow(port: u16) -> sb_flow {
        let address = |last| address_bytes(Ipv4Addr::new(192, 0, 2, last).into());
        sb_flow { client: address(1), vip: address(100), client_port: port.to_be(), vip_port: 80u16.to_be() }
    }

    fn asked(port: u16, origin: u32, begins: u32) -> Asked {
        Asked {
            flow: flow(port),
            origin,
            begins,
            head: Box::default(),
            at: Duration::from_millis(begins.into()),
            queued: Duration::ZERO,
        }
    }

    fn given(port: u16, begins: u32, node: NodeId, number: u16) -> Observation {
        Observation::Given(Given {
            asked: asked(port, 1, begins),
            node,
            number,
            chosen: Chosen::Policy,
            tries: 0,
        })
    }

    /// Of a response with so many bytes.
    fn said(port: u16, node: NodeId, request: u16, bytes: u64) -> Observation {
        let fact = Fact {
            flow: flow(port),
            origin: 1,
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
        /// What has come of it: where each request began, its node, its response's bytes, its end, tries.
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

        fn rows(&mut self) -> Vec<Row> {
            let row = |one: Finished| {
                (one.asked.map(|asked| asked.begins), one.node, one.bytes, one.end, one.tries)
            };
            self.out.drain(..).map(row).collect()
        }
    }

    type Row = (Option<u32>, Option<NodeId>, u64, Ended, u32);

    fn whole(begins: u32, node: NodeId, bytes: u64) -> Row {
        (Some(begins), Some(node), bytes, Ended::Complete, 0)
    }

    #[test]
    fn the_two_parts_meet_in_either_order() {
        let mut bench = Bench::default();
        assert_eq!(bench.take([given(1, 1, 5, 1), said(1, 5, 1, 70)]), [whole(1, 5, 70)]);
        assert_eq!(bench.take([said(1, 5, 2, 71), given(1, 9, 5, 2)]), [whole(9, 5, 71)]);
        let rows = bench.take([given(1, 10, 5, 3), given(1, 11, 5, 4), said(1, 5, 3, 1), said(1, 5, 4, 2)]);
        assert_eq!(rows, [whole(10, 5, 1), whole(11, 5, 2)]);
        assert!(bench.join.flows.is_empty() && bench.join.open == 0);
    }

    #[test]
    fn a_flow_that_comes_back_to_a_node_is_numbered_anew() {
        let mut bench = Bench::default();
        let rows = bench.take([
            given(1, 1, 5, 1),
            given(1, 2, 6, 1),
            given(1, 3, 5, 1),
            said(1, 5, 1, 70),
            said(1, 5, 1, 72),
            said(1, 6, 1, 71),
        ]);
        assert_eq!(rows, [whole(1, 5, 70), whole(3, 5, 72), whole(2, 6, 71)]);
    }

    #[test]
    fn a_request_that_is_given_again_counts_once() {
        let mut bench = Bench::default();
        let rows = bench.take([given(1, 1, 5, 9), given(1, 1, 6, 1), said(1, 6, 1, 70)]);
        assert_eq!(rows, [(Some(1), Some(6), 70, Ended::Complete, 1)]);
        let answer = Observation::Answered { asked: asked(1, 1, 2), status: 503, bytes: (80, 60) };
        let rows = bench.take([given(1, 2, 5, 1), answer]);
        assert_eq!(rows, [(Some(2), None, 80, Ended::Complete, 0)]);
        assert!(bench.join.flows.is_empty());
    }

    #[test]
    fn what_is_left_of_a_connection_is_not_forgotten() {
        let mut bench = Bench::default();
        let reset = |origin| Observation::Reset { flow: flow(1), origin };
        assert!(bench.take([given(1, 1, 5, 1), reset(2)]).is_empty(), "another connection");
        assert_eq!(bench.take([reset(1)]), [(Some(1), Some(5), 0, Ended::BySwitch, 0)]);
        let next = Given { asked: asked(1, 77, 2), node: 5, number: 1, chosen: Chosen::Connection, tries: 0 };
        let rows = bench.take([given(1, 1, 5, 1), Observation::Given(next)]);
        assert_eq!(rows, [(Some(1), Some(5), 0, Ended::Unknown, 0)], "the ports have another connection");
        assert_eq!(bench.take([said(1, 5, 1, 70)]), [(None, Some(5), 70, Ended::Complete, 0)], "too late");
        let abandoned = Observation::Abandoned(asked(2, 1, 3));
        assert_eq!(bench.take([abandoned]), [(Some(3), None, 0, Ended::ByClient, 0)]);
        bench.join.end_all(Duration::ZERO, &mut bench.out);
        assert_eq!(bench.rows(), [(Some(2), Some(5), 0, Ended::Unknown, 0)]);
    }

    #[test]
    fn a_response_of_whose_request_nothing_is_known_is_told_at_last() {
        let mut bench = Bench::default();
        assert!(bench.take([said(1, 5, 1, 70)]).is_empty());
        assert!(bench.sweep(EARLY).is_empty());
        assert_eq!(bench.sweep(EARLY * 2), [(None, Some(5), 70, Ended::Complete, 0)]);
        assert!(bench.join.flows.is_empty());
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let mut bench = Bench::default();
        let more = 10;
        for request in 0..(OPEN_MAX + more) as u32 {
            let port = (request % 60_000) as u16;
            bench.take([given(port, request + 2, 5, (request / 60_000) as u16 + 1)]);
        }
        let given_up: Vec<_> = bench.sweep(Duration::ZERO).into_iter().map(|row| row.0.unwrap()).collect();
        assert_eq!(given_up, (2..2 + more as u32).collect::<Vec<_>>(), "the oldest");
        assert_eq!(bench.join.open, OPEN_MAX);
        assert_eq!(bench.sweep(LONGEST * 2).len(), OPEN_MAX);
        assert!(bench.join.flows.is_empty() && bench.join.order.is_empty());
    }
}
