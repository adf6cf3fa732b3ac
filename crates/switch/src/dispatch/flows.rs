//! All pending flows, with their deadlines in order and their cost in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use switchback_config::Limits;
use switchback_wire::{SB_STEP_LATE, SB_WINDOW, sb_flow};

use super::common::Totals;
use super::pending::Pending;
use crate::plan::NodeId;
use switchback_flow::held::HeldPacket;
use switchback_flow::state::State;

/// The budget that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The budget of the flow, or its window.
    Flow,
    /// The budget of its source address.
    Source,
    /// The budget of the switch.
    Switch,
}

/// Packets beyond a gap after which a client takes what is missing for lost (RFC 6675 section 2, `DupThresh`), and one
/// more, because the last one may be short.
const REPORTED: usize = 4;

/// The holder of a budget: an IPv4 address, or an IPv6 /64 network, the usual allocation for one customer.
type Source = [u8; 16];

fn source(flow: &sb_flow) -> Source {
    let mut source = flow.client;
    if flow.client().is_ipv6() {
        source[8..].fill(0);
    }
    source
}

/// The index of a group that has been removed; no plan has so many groups.
const GONE: usize = usize::MAX;

/// The room that a flow waits for, and the time since when it has waited.
fn awaited_room(pending: &Pending) -> Option<(Room, Duration)> {
    match &pending.state {
        State::Crowded(state) => Some((state.room(), pending.connection.born)),
        _ => None,
    }
}

/// The group and the node of an adoption that has not been answered.
fn adoption(pending: &Pending) -> Option<(usize, NodeId)> {
    match &pending.state {
        State::Adopting(state) => Some((state.group(), pending.connection.entry.node)),
        _ => None,
    }
}

/// The time since when a flow has waited for its client.
fn waits_since(pending: &Pending) -> Option<Duration> {
    match &pending.state {
        State::Assembling(state) => state.waits_since(),
        _ => None,
    }
}

/// The pending flows. A flow is taken out to be handled, and put back.
#[derive(Debug, Default)]
pub struct PendingFlows {
    /// Sums over the flows of all threads.
    totals: Arc<Totals>,
    flows: HashMap<sb_flow, (Pending, Timer)>,
    timers: BTreeMap<Timer, sb_flow>,
    /// Flows that wait for their client, by start of the wait.
    waiting: BTreeMap<Timer, sb_flow>,
    last_timer: u64,
    cost_by_source: HashMap<Source, usize>,
    /// Flows that wait for a node with room, by room and start of the wait.
    crowded: BTreeMap<(Room, Timer), sb_flow>,
    /// Numbers of unanswered adoptions, by group and node.
    adopting: Vec<Vec<u32>>,
}

/// Room for requests of a group, at one node or at any.
pub type Room = (usize, Option<NodeId>);

/// A deadline, with a number that keeps equal deadlines apart.
type Timer = (Duration, u64);

impl PendingFlows {
    /// No flows; those to come are counted in these sums.
    pub fn counted_in(totals: &Arc<Totals>) -> Self {
        PendingFlows { totals: Arc::clone(totals), ..PendingFlows::default() }
    }

    /// The flow that has waited longest for this room.
    fn first_crowded(&self, room: Room) -> Option<&sb_flow> {
        let first = (room, (Duration::ZERO, 0));
        let (_, flow) = self.crowded.range(first..).next().filter(|((other, _), _)| *other == room)?;
        Some(flow)
    }

    /// Whether requests wait for this room.
    pub fn is_crowded(&self, room: Room) -> bool {
        self.first_crowded(room).is_some()
    }

    /// Takes out the flow that has waited longest for this room.
    pub fn take_crowded(&mut self, room: Room) -> Option<(sb_flow, Pending)> {
        let flow = *self.first_crowded(room)?;
        Some((flow, self.take(&flow)?))
    }

    /// Numbers of the group's unanswered adoptions, by node.
    pub fn adopting(&self, group: usize) -> &[u32] {
        self.adopting.get(group).map_or(&[], Vec::as_slice)
    }

    /// Gives the groups of requests their new indices, or none.
    pub fn move_groups(&mut self, place: impl Fn(usize) -> Option<usize>) {
        let flows: Vec<sb_flow> = self.flows.keys().copied().collect();
        for flow in flows {
            if let Some(mut pending) = self.take(&flow) {
                if let Some(request) = pending.state.request_mut() {
                    request.request.group = place(request.request.group).unwrap_or(GONE);
                    request.request.mirror = request.request.mirror.and_then(&place);
                }
                self.put(flow, pending);
            }
        }
    }

    /// Groups with requests that wait for room at any node.
    pub fn waiting_groups(&self) -> Vec<usize> {
        let any = self.crowded.keys().filter(|((_, node), _)| node.is_none());
        let mut groups: Vec<usize> = any.map(|((group, _), _)| *group).collect();
        groups.dedup();
        groups
    }

    /// The next deadline.
    pub fn deadline(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Adds a flow, in place of an earlier connection with the same addresses and ports.
    pub fn put(&mut self, flow: sb_flow, pending: Pending) {
        self.last_timer += 1;
        let timer = (pending.state.due(), self.last_timer);
        let cost = pending.cost();
        self.totals.add(cost, awaited_room(&pending).is_some());
        *self.cost_by_source.entry(source(&flow)).or_default() += cost;
        self.timers.insert(timer, flow);
        if let Some(since) = waits_since(&pending) {
            self.waiting.insert((since, timer.1), flow);
        }
        if let Some((room, since)) = awaited_room(&pending) {
            self.crowded.insert((room, (since, timer.1)), flow);
        }
        self.count_adopting(&pending, |count| *count += 1);
        if let Some((earlier, timer)) = self.flows.insert(flow, (pending, timer)) {
            self.unlink(&flow, &earlier, timer);
        }
    }

    /// A pending flow, which stays in place.
    pub fn get(&self, flow: &sb_flow) -> Option<&Pending> {
        self.flows.get(flow).map(|(pending, _)| pending)
    }

    /// Notes that a node offers once more to go on with the flow's response; that changes neither deadline nor cost.
    pub fn note_offer(&mut self, flow: &sb_flow, heir: NodeId, now: Duration) {
        if let Some((Pending { state: State::Resuming(resuming), .. }, _)) = self.flows.get_mut(flow) {
            resuming.note_offer(heir, now);
        }
    }

    /// Takes a flow out.
    pub fn take(&mut self, flow: &sb_flow) -> Option<Pending> {
        let (pending, timer) = self.flows.remove(flow)?;
        self.unlink(flow, &pending, timer);
        Some(pending)
    }

    /// Removes a flow from all orders and sums.
    fn unlink(&mut self, flow: &sb_flow, pending: &Pending, timer: Timer) {
        self.timers.remove(&timer);
        if let Some(since) = waits_since(pending) {
            self.waiting.remove(&(since, timer.1));
        }
        let awaited = awaited_room(pending);
        if let Some((room, since)) = awaited {
            self.crowded.remove(&(room, (since, timer.1)));
        }
        self.count_adopting(pending, |count| *count -= 1);
        let cost = pending.cost();
        self.totals.subtract(cost, awaited.is_some());
        let source = source(flow);
        if let Some(sum) = self.cost_by_source.get_mut(&source) {
            *sum -= cost;
            if *sum == 0 {
                self.cost_by_source.remove(&source);
            }
        }
    }

    /// Takes out a flow whose deadline has passed.
    pub fn take_due(&mut self, now: Duration) -> Option<(sb_flow, Pending)> {
        let ((due, _), flow) = self.timers.first_key_value()?;
        if *due > now {
            return None;
        }
        let flow = *flow;
        Some((flow, self.take(&flow)?))
    }

    /// Changes the count of unanswered adoptions, unless the pool is no longer configured.
    fn count_adopting(&mut self, pending: &Pending, change: impl Fn(&mut u32)) {
        let Some((group, node)) = adoption(pending).filter(|(group, _)| *group != GONE) else { return };
        let node = node.index();
        if self.adopting.len() <= group {
            self.adopting.resize(group + 1, Vec::new());
        }
        if self.adopting[group].len() <= node {
            self.adopting[group].resize(node + 1, 0);
        }
        change(&mut self.adopting[group][node]);
    }

    /// Whether a flow that has been taken out may hold a packet; otherwise the budget that forbids it. Of data so far
    /// beyond the mark that all data before it could not be held, only a few packets of a body are: their client hears
    /// of them, and sends what is missing without a time-out.
    pub fn room(
        &self,
        limits: &Limits,
        flow: &sb_flow,
        pending: &Pending,
        packet: &HeldPacket,
    ) -> Result<(), Full> {
        let more = packet.bytes.len();
        let cost = pending.cost() + more;
        let by_source = self.cost_by_source.get(&source(flow)).copied().unwrap_or(0);
        let mark = &pending.connection.entry.mark;
        let window = match mark.is_in_body() && pending.connection.held.len() < REPORTED {
            true => SB_STEP_LATE as usize,
            false => limits.held_per_flow.max(SB_WINDOW as usize),
        };
        let distance = packet.view.seq.offset_from(mark.next);
        if distance > window as i32 || pending.held_bytes() + more > limits.held_per_flow {
            Err(Full::Flow)
        } else if by_source + cost > limits.held_per_source {
            Err(Full::Source)
        } else if self.totals.cost() + cost > limits.held {
            Err(Full::Switch)
        } else {
            Ok(())
        }
    }

    /// Takes out the flow that has waited longest for its client. Waits for nodes do not count, since nodes answer
    /// soon.
    pub fn take_slowest(&mut self) -> Option<(sb_flow, Pending)> {
        let flow = *self.waiting.first_key_value()?.1;
        Some((flow, self.take(&flow)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_flow::connection::Connection;
    use switchback_flow::entry::Entry;
    use switchback_flow::held::HeldPacket;
    use switchback_flow::question::Question;
    use switchback_flow::state::{Assembling, Seeking};
    use switchback_wire::generation::Generation;
    use switchback_wire::packet::{flags, segment};
    use switchback_wire::{Seq, address_bytes};

    fn flow(client: &str, port: u16) -> sb_flow {
        let client = address_bytes(client.parse().unwrap());
        sb_flow { client, client_port: port.to_be(), ..Default::default() }
    }

    fn pending(flow: &sb_flow, due: u64, len: usize) -> Pending {
        let connection = Connection::new(Entry::new(Seq(0)), Duration::ZERO);
        let mut pending = Pending::new(connection, Duration::from_secs(due));
        let packet = segment(flow, true, (Seq(0), Seq(0)), flags::ACK, None, &vec![b'x'; len]);
        pending.hold(&HeldPacket::new(&packet).unwrap());
        pending
    }

    #[test]
    fn costs_are_summed_by_source_and_go_with_the_flow() {
        let mut flows = PendingFlows::default();
        let near = [flow("2001:db8::1", 1), flow("2001:db8::ffff", 2)];
        let other = flow("192.0.2.1", 1);
        for one in near.iter().chain([&other]) {
            flows.put(*one, pending(one, 1, 1000));
        }
        let one = pending(&other, 1, 1000);
        let cost = one.cost();
        assert_eq!(flows.totals.cost(), 2 * pending(&near[0], 1, 1000).cost() + cost);
        let tight = |flow, source, whole| Limits {
            held_per_flow: flow,
            held_per_source: source,
            held: whole,
            ..Limits::default()
        };
        let third = flow("2001:db8::2", 3);
        let more = |from: &sb_flow, seq| {
            HeldPacket::new(&segment(from, true, (seq, Seq(0)), flags::ACK, None, b"x"))
        };
        let one_more = more(&third, Seq(1000)).unwrap();
        let room = |limits, from: &sb_flow| flows.room(&limits, from, &pending(from, 1, 1000), &one_more);
        let far = more(&third, Seq(1 << 26)).unwrap();
        assert_eq!(flows.room(&Limits::default(), &third, &pending(&third, 1, 1000), &far), Err(Full::Flow));
        assert_eq!(room(tight(1000, 1 << 20, 1 << 20), &third), Err(Full::Flow));
        assert_eq!(room(tight(1 << 20, 2 * cost, 1 << 20), &third), Err(Full::Source));
        assert_eq!(room(tight(1 << 20, 2 * cost + 100, 1 << 20), &other), Ok(()));
        assert_eq!(room(tight(1 << 20, 1 << 20, 3 * cost), &third), Err(Full::Switch));
        for one in near.iter().chain([&other]) {
            flows.take(one).unwrap();
        }
        assert_eq!((flows.totals.cost(), flows.cost_by_source.len(), flows.deadline()), (0, 0, None));
    }

    #[test]
    fn of_data_far_beyond_a_gap_in_a_body_a_few_packets_are_held() {
        let flows = PendingFlows::default();
        let limits = Limits::default();
        let one = flow("192.0.2.1", 1);
        let far = Seq(0) + 10 * limits.held_per_flow;
        let mut upload = Pending::new(Connection::new(Entry::new(Seq(0)), Duration::ZERO), Duration::ZERO);
        let hold = |upload: &mut Pending| {
            let at = far + 2000 * upload.connection.held.len();
            let packet = segment(&one, true, (at, Seq(0)), flags::ACK, None, &[b'x'; 1400]);
            let packet = HeldPacket::new(&packet).unwrap();
            let room = flows.room(&limits, &one, upload, &packet);
            room.map(|()| upload.hold(&packet))
        };
        assert_eq!(hold(&mut upload), Err(Full::Flow), "no head is so long");
        let body = switchback_http::Body::Chunked.framing(&switchback_http::Limits::default());
        upload.connection.entry.mark.framing = body;
        let held = std::iter::repeat_with(|| hold(&mut upload)).take_while(Result::is_ok).count();
        assert_eq!(held, REPORTED);
        assert!(upload.connection.lacks_data());
    }

    #[test]
    fn a_new_connection_takes_the_place_of_an_earlier_one() {
        let mut flows = PendingFlows::default();
        let one = flow("192.0.2.1", 1);
        let waiting = |since| {
            let mut waiting = pending(&one, 0, 1000);
            let since = Duration::from_secs(since);
            waiting.state = State::Assembling(Assembling::waiting(Seq(0), since, since));
            waiting
        };
        let cost = waiting(0).cost();
        flows.put(one, waiting(1));
        flows.put(one, waiting(2));
        assert_eq!((flows.totals.flows(), flows.totals.cost(), flows.waiting.len()), (1, cost, 1));
        assert_eq!(flows.deadline(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_slowest_client_is_the_first_to_go() {
        let mut flows = PendingFlows::default();
        for (port, since) in [(1, 30), (2, 10), (3, 20)] {
            let one = flow("192.0.2.1", port);
            let mut waiting = pending(&one, 1, 10);
            let due = Duration::from_secs(99 - since);
            waiting.state = State::Assembling(Assembling::waiting(Seq(0), Duration::from_secs(since), due));
            flows.put(one, waiting);
        }
        let mut asks_nodes = pending(&flow("192.0.2.1", 4), 1, 10);
        asks_nodes.state = Seeking::unknown(
            Question {
                seq: Seq(0),
                origin: Seq(0),
                nodes: vec![NodeId(1)],
                next: Generation::NONE,
                is_unsent: false,
            },
            Duration::ZERO,
        );
        flows.put(flow("192.0.2.1", 4), asks_nodes);
        let order =
            std::iter::from_fn(|| flows.take_slowest()).map(|(flow, _)| u16::from_be(flow.client_port));
        assert_eq!(order.collect::<Vec<_>>(), [2, 3, 1]);
    }
}
