//! The L7 decisions of the switch, without I/O: records from the XDP program and the time go in, changes of the flow
//! map and packets come out.
//!
//! Nearly all requests need no state: a whole head in one packet, for a pool that the flow's node belongs to, is
//! forwarded and forgotten. A flow is *pending* only while its request is incomplete, or until its node confirms a
//! release or an adoption. Crate `flow` has the states of a pending flow. Its packets are held, unacknowledged, and
//! sent again until the node answers; packets whose retransmission by the client is near are acknowledged, and may be
//! lost with this process (docs/decisions/0007).

mod answered;
mod budget;
mod choice;
mod common;
mod events;
mod flows;
mod kept;
mod listing;
mod mirroring;
mod observed;
mod output;
mod path_mtu;
pub(crate) mod pending;
mod recent;
mod replies;
mod resuming;
pub(crate) mod seeking;
mod stats;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::time::Duration;

pub use common::{Common, Heard};
use switchback_config::Delegate;
use switchback_flow::answer::Reply;
pub use switchback_flow::change::Change;
use switchback_flow::connection::Connection;
use switchback_flow::destination::{Chosen, Next, Side};
use switchback_flow::entry::{Entry, Mode};
use switchback_flow::held::HeldPacket;
use switchback_flow::request::Request;
use switchback_flow::state::{Assembling, Releasing, Seeking, Then};
use switchback_flow::verdict::{Judged, Missing, Verdict};
use switchback_flow::{World, mark};
use switchback_http::{Head, Progress, Reject, Version, parse_head};
use switchback_rates::{Taken, Wish, retry_after};
use switchback_wire::clock::NodeClock;
use switchback_wire::flow_state::{FlowState, Stream};
use switchback_wire::handoff::Peers;
use switchback_wire::message::{Order, Reading, ToAgent, ToNode};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::switches::SwitchSelf;
use switchback_wire::{SB_VERSION, SB_WINDOW, Seq, sb_flow, sb_record, sb_record_kind};

use crate::observe::{FactsReceived, Observation};
use crate::plan::{Choice, NodeId, Plan, PlanNode};
use crate::sizes::Sizes;
use answered::AnsweredFlows;
use budget::Budget;
use flows::PendingFlows;
use listing::Lists;
use observed::Arrival;
pub use output::Output;
use path_mtu::PathMtu;
use pending::Pending;
use recent::Recent;
pub use stats::{NodeStats, Stats};

/// Time for which a flow's entry is remembered beside the map: longer than a record can wait in a ring.
const RECENT: Duration = Duration::from_millis(100);

/// The time of an event, and access to the flow map at that time.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// Time since a fixed start.
    pub now: Duration,
    /// Reads the flow map, for the rare case in which the record lacks the entry.
    pub map: &'a dyn Fn(&sb_flow) -> Option<Entry>,
    /// Takes tokens of the program's buckets.
    pub take: &'a dyn Fn(&[Wish]) -> Taken,
}

/// [`Moment::take`] without limits.
pub fn unlimited(_: &[Wish]) -> Taken {
    Taken::Now
}

/// Whether the server may agree to upgrade to another version of HTTP, whose requests the switch could not read.
fn asks_for_http(head: &Head<'_>) -> bool {
    let names = |value: &[u8]| {
        let value = value.to_ascii_lowercase();
        value.windows(2).any(|text| text == b"h2") || value.windows(4).any(|text| text == b"http")
    };
    head.tunnel && head.headers().any(|(name, value)| name.eq_ignore_ascii_case("upgrade") && names(value))
}

/// The connection of a record, compared with the flow's.
enum RecordOf {
    /// The flow's connection, with its entry as far as the record or the map tells.
    Current(Entry),
    /// A connection that is over.
    Over,
    /// A connection with a node, whose entry was lost and replaced when a late copy of its first request arrived. If
    /// the connection is still open, its node knows the true entry.
    Lost,
}

/// Where a packet lies, seen from the flow's entry.
enum Place {
    /// Where the entry says that the client is.
    Here,
    /// Data not far ahead: another switch has given the flow to a node, perhaps.
    Ahead,
    /// Another switch has given the flow to a node, or has seen it end and another connection begin.
    Elsewhere,
}

/// The L7 state of a thread of the switch.
pub struct Dispatcher {
    plan: Plan,
    common: Common,
    /// Whether it is the one that talks with the nodes' agents.
    is_first: bool,
    pending: PendingFlows,
    answered: AnsweredFlows,
    recent: Recent<Entry>,
    probed: Recent<seeking::Probed>,
    messages: Recent<PathMtu>,
    probes: Budget,
    keeps: Budget,
    sizes: Sizes,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// Whether requests have an observer.
    observes: bool,
    heard: FactsReceived,
    lists: Lists,
    /// What the switch says of itself, but for its counts.
    own: SwitchSelf,
    /// Changes and packets for the driver, which clears them.
    pub output: Output,
    /// The time of the latest event.
    now: Duration,
    /// Counts since the start.
    pub stats: Stats,
}

impl Dispatcher {
    /// The only dispatcher of a switch. `random` gives 64 independent uniform bits at each call.
    pub fn new(plan: Plan, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        Dispatcher::one_of(&Common::new(1), 0, plan, random)
    }

    /// The dispatcher of the thread with this number. It gets an equal part of the budgets for what is sent to nodes.
    pub fn one_of(
        common: &Common,
        thread: usize,
        plan: Plan,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        Dispatcher {
            plan,
            common: common.clone(),
            is_first: thread == 0,
            pending: PendingFlows::counted_in(&common.totals),
            answered: AnsweredFlows::default(),
            recent: Recent::new(RECENT),
            probed: Recent::new(seeking::REMEMBERED),
            messages: Recent::new(RECENT),
            probes: Budget::new(seeking::PROBES.shared(common.threads)),
            keeps: Budget::new(kept::KEEPS.shared(common.threads)),
            sizes: Sizes::new(&common.paths),
            random,
            observes: false,
            heard: FactsReceived::default(),
            lists: Lists::default(),
            own: SwitchSelf::default(),
            output: Output::default(),
            now: Duration::ZERO,
            stats: Stats::default(),
        }
    }

    /// Nodes, pools and routes.
    pub fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Replaces the plan. The state of nodes and flows is kept; a request that waits for a removed pool is answered 503
    /// at its deadline.
    pub fn replace_plan(&mut self, plan: Plan) {
        let old = std::mem::replace(&mut self.plan, plan);
        let places = self.plan.inherit(old);
        self.pending.move_groups(|group| places.get(&group).copied());
    }

    /// Nodes, pools and routes, read only.
    pub fn seen(&self) -> &Plan {
        &self.plan
    }

    /// Requests that wait for a node with room, of all threads.
    pub fn crowded(&self) -> usize {
        self.common.totals.crowded()
    }

    /// Flows with a waiting request, of all threads.
    pub fn pending(&self) -> usize {
        self.common.totals.flows()
    }

    /// Memory of the pending flows of all threads, in bytes.
    pub fn held(&self) -> usize {
        self.common.totals.cost()
    }

    /// The time at which [`Self::on_time`] has to be called.
    pub fn deadline(&self) -> Option<Duration> {
        [self.pending.deadline(), self.answered.deadline()].into_iter().flatten().min()
    }

    /// Handles a record of the XDP program.
    pub fn on_record(&mut self, at: Moment<'_>, record: &sb_record, packet: &[u8]) {
        self.now = at.now;
        self.recent.turn(at.now);
        self.probed.turn(at.now);
        self.messages.turn(at.now);
        if record.kind == sb_record_kind::SB_RECORD_ICMP as u32 {
            return self.on_path_mtu(at, &record.flow, packet);
        }
        let Some(view) = TcpView::parse(packet) else { return };
        let is = |kind: sb_record_kind| record.kind == kind as u32;
        if is(sb_record_kind::SB_RECORD_HANDOFF) {
            self.on_handoff(at, record, packet, view);
            return;
        }
        let entry = Entry::decode(&record.entry).filter(|_| !is(sb_record_kind::SB_RECORD_UNKNOWN));
        match entry {
            Some(entry) if is(sb_record_kind::SB_RECORD_REQUEST) => {
                self.on_client(at, &record.flow, entry, packet, view);
            }
            Some(entry) if is(sb_record_kind::SB_RECORD_FORWARD) => {
                let entry = self.entry_of(&record.flow, entry);
                self.forward(&record.flow, &entry, &view, packet, Reading::None);
            }
            Some(_) => {}
            None => self.on_unknown(at, &record.flow, packet, view),
        }
    }

    /// Sets what nodes are told of this switch, but for its counts.
    pub fn set_own(&mut self, own: SwitchSelf) {
        self.own = own;
    }

    /// What the switch says of itself.
    pub fn own(&self) -> SwitchSelf {
        let taken_over = self.common.totals.taken_over();
        SwitchSelf { taken_over: u32::try_from(taken_over).unwrap_or(u32::MAX), ..self.own }
    }

    /// Asks every node for reports, for facts about responses if observed, for its flows if they are to be listed, and
    /// for its clock.
    pub fn ask_for_reports(&mut self) {
        self.give_up_lists();
        self.tell_deaths(self.now);
        for id in self.plan.ids() {
            self.plan.forget_challenge(id);
            self.ask_for_clock(id);
            if self.plan.node(id).is_some_and(|node| node.clock.is_some()) {
                self.say_hello(id);
            }
        }
    }

    /// Acknowledges facts and lists of flows to the nodes that sent some: once for all packets of a batch, because an
    /// acknowledgment costs as much as one of these packets.
    pub fn acknowledge(&mut self) {
        let mut nodes = self.heard.unanswered();
        nodes.append(&mut self.lists.unanswered());
        nodes.into_iter().for_each(|node| self.say_hello(node));
    }

    /// Orders a node to drain, or to end that; false if there is no such node.
    pub fn order_drain(&mut self, name: &str, drain: bool) -> bool {
        let number = ((self.random)() as u32).max(1);
        let node = self.plan.order(name, Order { number, drain });
        node.inspect(|node| self.say_hello(*node)).is_some()
    }

    /// Asks the node for its clock, with a nonce that keeps recorded answers from being accepted.
    fn ask_for_clock(&mut self, id: NodeId) {
        let Some(nonce) = self.plan.challenge(id, &mut *self.random) else { return };
        self.tell_agent(id, 0, ToAgent::Sync { nonce });
    }

    /// Handles the node's answer with its clock.
    fn on_synced(&mut self, now: Duration, node: NodeId, nonce: u64, clock: u64) {
        if self.plan.set_clock(node, nonce, NodeClock::told(clock, now)) {
            self.say_hello(node);
        }
    }

    /// Asks the node for reports, and acknowledges received facts.
    fn say_hello(&mut self, id: NodeId) {
        let epoch = self.plan.node(id).and_then(|node| node.clock).map(|clock| clock.epoch(self.now));
        let Some(epoch) = epoch else { return self.ask_for_clock(id) };
        let heard = self.heard.last(id);
        let listed = self.lists.wanted(id);
        let order = self.plan.tell_order(id);
        let (facts, newest, own) = (self.observes, SB_VERSION, self.own());
        let hello = ToAgent::Hello { facts, heard, newest, listed, order, own };
        self.tell_agent(id, epoch, hello);
    }

    /// Sends the node's agent a packet that belongs to no flow, as the first dispatcher only.
    fn tell_agent(&mut self, id: NodeId, epoch: u64, message: ToAgent) {
        if !self.is_first {
            return;
        }
        let flow = sb_flow::default();
        let inner = bare(&flow, true, Seq(0), Seq(0), flags::RST);
        let Some((view, peers)) = TcpView::parse(&inner).zip(self.plan.peers(id, epoch)) else { return };
        self.output.handoff(&self.plan.key, (peers, None), &flow, message.option(), (&view, &inner));
    }

    /// Releases an idle flow from its node, which is draining. The flow has no node then until its next request.
    pub fn take_back(&mut self, at: Moment<'_>, flow: &sb_flow, entry: Entry) {
        let entry = self.entry_of(flow, entry);
        let idle = entry.has_requests() && !entry.mark.is_in_body();
        if !(idle || entry.is_adopting()) || self.pending.get(flow).is_some() {
            return;
        }
        // Without a confirmation, which may be lost, the nodes are asked first.
        let entry = if idle { entry } else { entry.before_adoption() };
        let mut connection = Connection::new(entry, at.now);
        let world = &mut self.world(at, flow);
        let state = match idle {
            true => Releasing::ask(Then::Nothing, &mut connection, world),
            false => Seeking::ask(&mut connection, world),
        };
        self.keep(flow, connection, state);
    }

    /// Handles all flows whose deadline has passed.
    pub fn on_time(&mut self, at: Moment<'_>) {
        self.now = at.now;
        self.on_deadlines(at);
        self.send_answers_again(at.now);
        self.list_if_due();
    }

    /// The flow's entry in the map, unless pending output removes it.
    fn mapped(&self, at: Moment<'_>, flow: &sb_flow) -> Option<Entry> {
        (at.map)(flow).filter(|entry| !self.output.removes(flow, entry.origin))
    }

    /// The flow's entry in the map, with all that has been decided since it was written there.
    fn current(&self, at: Moment<'_>, flow: &sb_flow) -> Option<Entry> {
        self.mapped(at, flow).map(|recorded| self.entry_of(flow, recorded))
    }

    /// Compares a record's connection with the flow's. Rings are read one after the other, so a record of an earlier
    /// connection with the same ports may arrive late, or one without a node when another copy of its packet has given the
    /// flow to one. If that was so long ago that nothing is remembered, the map tells.
    fn record_of(&self, at: Moment<'_>, flow: &sb_flow, recorded: &Entry) -> RecordOf {
        let pending = self.pending.get(flow).map(|pending| pending.connection.entry);
        let pending = pending.or_else(|| self.answered.entry(flow));
        let Some(known) = pending.or_else(|| self.recent.get(flow).copied()) else {
            let now = match recorded.is_held() {
                true => self.mapped(at, flow).filter(|current| current.origin == recorded.origin),
                false => Some(*recorded),
            };
            return now.map_or(RecordOf::Over, RecordOf::Current);
        };
        if known.origin == recorded.origin && (!recorded.is_held() || known.is_held()) {
            return RecordOf::Current(*recorded);
        }
        match self.mapped(at, flow) {
            Some(current) if current.origin != recorded.origin => RecordOf::Over,
            Some(current) if known.origin == recorded.origin && pending.is_none() && current.is_held() => {
                RecordOf::Lost
            }
            Some(_) => RecordOf::Current(*recorded),
            None => RecordOf::Over,
        }
    }

    /// The flow's latest entry. The record's may be older than the dispatcher's last decision, or newer, because the
    /// program has forwarded packets since.
    fn entry_of(&self, flow: &sb_flow, recorded: Entry) -> Entry {
        match self.recent.get(flow) {
            Some(recent) if recent.origin == recorded.origin && !recorded.is_newer(recent) => *recent,
            _ => recorded,
        }
    }

    /// Writes the entry, and lets the program move the mark.
    fn set_entry(&mut self, flow: &sb_flow, entry: &Entry) {
        self.output.change(flow, Change::Replace(*entry));
        self.recent.insert(*flow, *entry);
    }

    /// Writes the entry after the packets up to the mark, so that the packets after them arrive later at the node.
    fn move_mark(&mut self, flow: &sb_flow, entry: &Entry) {
        self.output.change_behind(flow, Change::Replace(*entry));
        self.recent.insert(*flow, *entry);
    }

    fn forget(&mut self, flow: &sb_flow, origin: Seq) {
        self.output.change(flow, Change::Remove { origin });
        self.recent.remove(flow);
    }

    /// Forgets an entry that a node contradicts: the connection may go on.
    fn forget_in_doubt(&mut self, flow: &sb_flow, origin: Seq) {
        self.output.change(flow, Change::Forget { origin });
        self.recent.remove(flow);
    }

    /// Resets a connection that cannot continue.
    fn reset(&mut self, flow: &sb_flow, origin: Seq, seq: Seq) {
        self.observe(|| Observation::Reset { flow: *flow, origin });
        self.output.to_client(flow, &bare(flow, false, seq, Seq(0), flags::RST));
        self.forget(flow, origin);
    }

    /// Answers the client's FIN on a connection without a node or a request: `seq` and `ack` are the next sequence
    /// numbers of the two sides. If the answer is lost, the FIN is retransmitted and meets no flow.
    fn say_goodbye(&mut self, flow: &sb_flow, origin: Seq, seq: Seq, ack: Seq) {
        self.output.to_client(flow, &bare(flow, false, seq, ack, flags::FIN | flags::ACK));
        self.forget(flow, origin);
    }

    /// Counts a request given to the node that has its flow.
    fn give(&mut self, request: &Request, node: NodeId) {
        self.stats.request(request, node);
        if let Some(group) = self.plan.group_mut(request.group) {
            group.request_sent(node);
        }
    }

    /// Forwards a packet to the flow's node.
    fn forward(&mut self, flow: &sb_flow, entry: &Entry, view: &TcpView, packet: &[u8], reading: Reading) {
        self.send(ToNode::Forward(reading), entry.node, flow, &entry.flow_state(), view, packet);
    }

    /// Sends a node a packet of the flow. The packet is lost, as on any network, without a route to the node, or while
    /// the node's clock is unknown; senders that wait for an answer send again.
    fn send(
        &mut self,
        message: ToNode,
        node: NodeId,
        flow: &sb_flow,
        state: &FlowState,
        view: &TcpView,
        packet: &[u8],
    ) {
        self.send_to((node, None), message, flow, state, view, packet);
    }

    /// Sends a packet that the first node may pass on to a second candidate.
    fn send_to(
        &mut self,
        (node, second): (NodeId, Option<NodeId>),
        message: ToNode,
        flow: &sb_flow,
        state: &FlowState,
        view: &TcpView,
        packet: &[u8],
    ) {
        let epoch = |node: &PlanNode| node.clock.map(|clock| clock.epoch(self.now));
        let Some(present) = self.plan.node(node).and_then(epoch) else { return self.ask_for_clock(node) };
        let Some(peers) = self.plan.peers(node, present) else { return };
        let second = second
            .and_then(|id| self.plan.node(id))
            .and_then(|node| Some(Peers { node: node.address, epoch: epoch(node)?, ..peers }));
        let option = message.option(state);
        self.output.handoff(&self.plan.key, (peers, second.as_ref()), flow, option, (view, packet));
    }

    /// Handles data beyond the mark, or any packet of a flow without a node.
    fn on_client(&mut self, at: Moment<'_>, flow: &sb_flow, recorded: Entry, packet: &[u8], view: TcpView) {
        let recorded = match self.record_of(at, flow, &recorded) {
            RecordOf::Current(recorded) => recorded,
            RecordOf::Over => return,
            RecordOf::Lost => {
                let answered = self.recent.get(flow).is_some_and(Entry::is_answered);
                self.forget(flow, recorded.origin);
                if answered {
                    return;
                }
                self.on_unknown(at, flow, packet, view);
                return;
            }
        };
        if self.on_answered(at, flow, &recorded, packet, &view) {
            return;
        }
        let mut entry = self.entry_of(flow, recorded);
        let pending =
            self.pending.take(flow).filter(|pending| pending.connection.entry.origin == entry.origin);
        if pending.is_none() && entry.is_resuming() {
            // The process that was about to have the response resumed is gone, or has given up.
            self.forget_in_doubt(flow, entry.origin);
            self.ask_about_unknown(at, flow, packet, &view);
            return;
        }
        if let Some(pending) = pending {
            if pending.connection.has_node() && recorded.is_held() {
                // A late copy of the first packet has created an entry again.
                self.output.change(flow, Change::Abandon { origin: entry.origin });
            }
            self.on_pending(at, flow, pending, &entry, packet, view);
            return;
        }
        if entry.is_adopting() {
            entry = match self.current(at, flow).filter(|current| current.origin == entry.origin) {
                Some(current) if !current.is_adopting() => current,
                _ => entry.before_adoption(),
            };
        }
        match self.place_of(&entry, &view) {
            Place::Here if view.is_empty() => return self.on_end(flow, &entry, packet, &view),
            Place::Here => {}
            Place::Ahead => entry.mode = Mode::Sought,
            Place::Elsewhere => return self.seek_unknown(at, flow, packet, view),
        }
        if self.is_sent_again(at, &entry, &view) {
            let Some(held) = HeldPacket::new(packet) else { return };
            let mut connection = Connection::new(entry.before_request(), at.now);
            connection.given = Some(connection.entry.mark.next);
            self.begin(at, flow, connection, &held, None);
            return;
        }
        let judged = match self.judge_whole(at, flow, &entry, packet, view) {
            Some(Judged { verdict: Verdict::To { request, .. }, next: Some(Next::Stays) }) => {
                self.forward_at_once(at, flow, &request, packet, view);
                return;
            }
            judged => judged,
        };
        let Some(held) = HeldPacket::new(packet) else { return };
        let connection = Connection::new(entry, at.now);
        self.forward_old_data(flow, &connection, None, &held);
        if entry.mark.is_passing() {
            self.ask_for_progress(flow, &entry, &view);
        }
        if entry.mark.next.before(held.end()) {
            self.begin(at, flow, connection, &held, judged);
        } else {
            (&mut self.world(at, flow) as &mut dyn World).abandon(&connection);
        }
    }

    /// Makes a flow pending with its first packet; `judged` is the result of reading it.
    pub(super) fn begin(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: Connection,
        packet: &HeldPacket,
        judged: Option<Judged>,
    ) {
        let Some(mut connection) = self.hold_first(at, flow, connection, packet) else { return };
        let mut world = self.world(at, flow);
        let state = if connection.is_sought() {
            Seeking::ask(&mut connection, &mut world)
        } else {
            let assembling = Assembling::new(at.now);
            let state = assembling.advance_from(judged, &mut connection, &mut world);
            state.help(&mut connection, &mut world);
            state
        };
        self.keep(flow, connection, state);
    }

    /// The connection with its first packet; None if there is no room.
    pub(super) fn hold_first(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: Connection,
        packet: &HeldPacket,
    ) -> Option<Connection> {
        let mut pending = Pending::new(connection, at.now);
        if !self.has_room(at, flow, &mut pending, packet) {
            (&mut self.world(at, flow) as &mut dyn World).abandon(&pending.connection);
            self.ask_about_gap(at, flow, &pending.connection.entry, packet);
            return None;
        }
        pending.hold(packet);
        Some(pending.connection)
    }

    /// Whether the client retransmits the start of the last request and the node seems dead: it did not receive or
    /// confirm it. A node that is alive after all says at its release whether it has the request.
    fn is_sent_again(&self, at: Moment<'_>, entry: &Entry, view: &TcpView) -> bool {
        (entry.has_requests() || entry.is_upgrading())
            && view.seq == entry.mark.begins
            && entry.mark.begins.before(entry.mark.next)
            && self.plan.is_dead(entry.node, at.now)
    }

    /// Where the packet lies. Only of a flow that was taken from a node can another switch know more without a node that
    /// says so.
    fn place_of(&self, entry: &Entry, view: &TcpView) -> Place {
        let was_taken = entry.is_held() && entry.generation.is_some();
        let (start, end) =
            (view.seq.offset_from(entry.mark.next), view.end_seq().offset_from(entry.mark.next));
        let window = SB_WINDOW as i32;
        match view.is_empty() {
            _ if !was_taken || self.plan.rank.is_alone => Place::Here,
            true if start == 0 => Place::Here,
            false if start <= 0 && (1..=window).contains(&end) => Place::Here,
            false if (1..=window).contains(&start) => Place::Ahead,
            _ => Place::Elsewhere,
        }
    }

    /// Handles a FIN, RST or ACK of a flow whose record has no node. If the flow has a node by now, the packet is the
    /// node's; otherwise there is no request, since the flow would be pending.
    fn on_end(&mut self, flow: &sb_flow, entry: &Entry, packet: &[u8], view: &TcpView) {
        if entry.has_node() {
            self.forward(flow, entry, view, packet, Reading::None);
            return;
        }
        if view.flags & (flags::RST | flags::FIN) == 0 {
            // It acknowledges what the flow's last node has sent.
            return;
        }
        if view.seq == entry.mark.next && entry.generation.is_some() && !self.plan.rank.is_alone {
            // The other switches hear of the end from the node that had the flow last.
            self.forward(flow, entry, view, packet, Reading::None);
        }
        if view.flags & flags::RST == 0 && view.seq == entry.mark.next {
            self.say_goodbye(flow, entry.origin, view.ack, view.seq + 1u32);
        } else if view.flags & flags::RST == 0 {
            self.reset(flow, entry.origin, view.ack);
        } else if view.seq == entry.mark.next {
            self.forget(flow, entry.origin);
        }
    }

    /// Reads a packet that begins at the mark of a flow with a node; None if no request can begin there.
    fn judge_whole(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        entry: &Entry,
        packet: &[u8],
        view: TcpView,
    ) -> Option<Judged> {
        if !entry.has_requests() || view.seq != entry.mark.next || entry.mark.is_in_body() {
            return None;
        }
        let verdict = self.judge(at, flow, &packet[view.data..view.end], entry);
        let next = match &verdict {
            Verdict::To { request, .. }
                if request.takes_all_to(view.end_seq()) && request.not_before.is_none() =>
            {
                Some(self.next_node(at, request, entry, None))
            }
            _ => None,
        };
        Some(Judged { verdict, next })
    }

    /// Forwards the common case: one packet with one whole head, for the node of the flow.
    fn forward_at_once(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        request: &Request,
        packet: &[u8],
        view: TcpView,
    ) {
        let after = request.after;
        self.stats.cookies_ignored += u64::from(request.cookies_ignored);
        self.give(request, after.node);
        let head = &packet[view.data..view.end];
        let arrival = Arrival { at: at.now, queued: Duration::ZERO };
        self.observe_given(flow, &after, arrival, Chosen::Connection, 0, || head.into());
        if let Some(group) = request.mirror {
            self.mirror(at, flow, (group, request.service), head, None);
        }
        self.move_mark(flow, &after);
        let reading = Reading::Request { head: request.read, recovery: request.recovery(true) };
        self.forward(flow, &after, &view, packet, reading);
    }

    /// Forwards data before the mark, which the client retransmits, to the node. The switch itself sends the node the
    /// data `in_delivery`.
    fn forward_old_data(
        &mut self,
        flow: &sb_flow,
        connection: &Connection,
        in_delivery: Option<(Seq, Seq)>,
        packet: &HeldPacket,
    ) {
        let entry = &connection.entry;
        if !connection.has_node() {
            return;
        }
        let (start, end) = in_delivery.unwrap_or((entry.mark.next, entry.mark.next));
        let parts = [packet.part(packet.view.seq, start), packet.part(end, entry.mark.next)];
        for part in parts.iter().flatten() {
            self.forward(flow, entry, &part.view, &part.bytes, Reading::None);
        }
    }

    /// Asks the node whether the mark can move on.
    fn ask_for_progress(&mut self, flow: &sb_flow, entry: &Entry, view: &TcpView) {
        let question = bare(flow, true, entry.mark.due(), view.ack, flags::ACK);
        let Some(view) = TcpView::parse(&question) else { return };
        self.send(ToNode::Confirm(Reading::None), entry.node, flow, &entry.flow_state(), &view, &question);
    }

    /// The decision on the request at the start of `data`, at the mark of `entry`. A whole request takes the tokens of its
    /// limits, so it is judged once.
    pub(crate) fn judge(&mut self, at: Moment<'_>, flow: &sb_flow, data: &[u8], entry: &Entry) -> Verdict {
        let client = flow.client().ip();
        let service = self.plan.service(flow.vip());
        if let Some(service) = service.filter(|service| self.plan.services[*service].tls) {
            return self.judge_hello(at.now, flow, data, entry, service);
        }
        let limits = self.plan.http_limits();
        let refuse = |reject: Reject, head| Verdict::Answer { reply: Reply::Refused(reject), head };
        let head = match parse_head(data, &limits) {
            // The method also comes first in a refused request, or after an empty line.
            Err(reject) => {
                let line = data.strip_prefix(b"\r\n").unwrap_or(data);
                return refuse(reject, line.starts_with(b"HEAD "));
            }
            Ok(Progress::Partial) => {
                return Verdict::Incomplete(Missing { len: limits.head_len, line: Some(data.len()) });
            }
            Ok(Progress::Complete(head)) => head,
        };
        let is_head = head.method == "HEAD";
        let answer = |reply| Verdict::Answer { reply, head: is_head };
        let Some(service) = service else { return answer(Reply::Status(404)) };
        if !self.plan.services[service].admitted.admits(client) {
            return answer(Reply::Status(403));
        }
        let route = match self.plan.route(service, &head, client) {
            Err(reject) => return refuse(reject, is_head),
            Ok(route) => route,
        };
        let wishes = self.plan.services[service].limits.wishes(client, route);
        let not_before = match (at.take)(&wishes) {
            Taken::Now => None,
            Taken::After(wait) => Some(at.now + wait),
            Taken::Over(wait) => return answer(Reply::TooMany { retry_after: retry_after(wait) }),
        };
        let Some(route) = route else { return answer(Reply::Status(404)) };
        if head.version == Version::Http2 && !self.plan.speaks_h2c(service, &head, client) {
            return Verdict::Answer { reply: Reply::Status(505), head: false };
        }
        let pool = match self.plan.choice(service, route) {
            Choice::Redirect(redirect) => return answer(Reply::redirect(redirect, &head, flow.vip())),
            Choice::Respond(status) => return answer(Reply::Status(status)),
            Choice::Pool(pool) => pool,
            Choice::Split(split) => {
                let split = Arc::clone(split);
                self.plan.pool_of_split(&split, flow, &head, entry.mark.next, at.now)
            }
        };
        let new = match self.plan.new_head((service, route), &head, data) {
            Err(reject) => return refuse(reject, is_head),
            Ok(new) => new,
        };
        // Behind a new head nothing is read yet, so that it needs no more packets than its own.
        let data = if new.is_some() { &data[..head.len] } else { data };
        match self.judge_for((service, pool), at.now, flow, (&head, data), entry) {
            Verdict::To { request, .. } => {
                let rewrites = new.is_some();
                let mirror = self.plan.mirroring((service, route), flow, entry.mark.next);
                Verdict::To { request: Request { not_before, rewrites, mirror, ..request }, head: new }
            }
            verdict => verdict,
        }
    }

    /// The decision on a request to a pool: its head, and the data that begins with it.
    fn judge_for(
        &mut self,
        (service, pool): (usize, usize),
        now: Duration,
        flow: &sb_flow,
        (head, data): (&Head<'_>, &[u8]),
        entry: &Entry,
    ) -> Verdict {
        let is_head = head.method == "HEAD";
        let mut after = *entry;
        let Some(group) = self.plan.group(pool, flow.vip()) else {
            return Verdict::Answer { reply: Reply::Status(404), head: is_head };
        };
        if let Some(status) = self.plan.answer_if_empty(group) {
            return Verdict::Answer { reply: Reply::Status(status), head: is_head };
        }
        let key = self.plan.key(group, flow, head);
        let said = self.plan.read_session(group, flow, head, now);
        after.mark.session = said.for_node;
        let side = self.side(group, pool, head, &mut after);
        let repeatable = head.is_repeatable();
        let entered = after.enter(head, data, &self.plan.http_limits());
        if asks_for_http(head) && !self.plan.speaks_h2c(service, head, flow.client().ip()) {
            after.mode = Mode::AtNode(Stream::Requests);
        }
        match entered {
            Ok(read) => {
                let request = Request {
                    read: mark::saturated(read),
                    side,
                    key,
                    last: !head.keep_alive,
                    repeatable,
                    session: said.session,
                    cookies_ignored: said.ignored,
                    ..Request::new(group, service, after)
                };
                Verdict::To { request, head: None }
            }
            Err(reject) => Verdict::Answer { reply: Reply::Refused(reject), head: is_head },
        }
    }

    /// The decision on the start of a connection over TLS, whose ClientHello is the request: all further data goes to
    /// its node.
    fn judge_hello(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        data: &[u8],
        entry: &Entry,
        service: usize,
    ) -> Verdict {
        let answer = |reply| Verdict::Answer { reply, head: false };
        let hello = match switchback_hello::read(data, self.plan.limits.head) {
            Ok(switchback_hello::Progress::Partial(len)) => {
                return Verdict::Incomplete(Missing { len, line: None });
            }
            Ok(switchback_hello::Progress::Complete(hello)) => hello,
            Err(switchback_hello::Reject::NotTls) if data[0].is_ascii_uppercase() => {
                return answer(Reply::PlainHttp);
            }
            Err(reject) => return answer(Reply::Alert(reject)),
        };
        if !self.plan.services[service].admitted.admits(flow.client().ip()) {
            return answer(Reply::Alert(switchback_hello::Reject::Denied));
        }
        let unrecognized = answer(Reply::Alert(switchback_hello::Reject::Unrecognized));
        let pool = self.plan.choose_hello(service, &hello, flow, entry.mark.next);
        let Some(group) = pool.and_then(|pool| self.plan.group(pool, flow.vip())) else {
            return unrecognized;
        };
        let mut after = *entry;
        after.enter_tunnel(hello.len);
        let request = Request {
            key: self.plan.client_key(group, flow),
            last: true,
            wanted: self.plan.node_of_tls_session(group, &hello, now),
            ..Request::new(group, service, after)
        };
        Verdict::To { request, head: None }
    }

    /// The side that answers the request, on a machine that is also a node, as far as the pool decides it. If it
    /// depends on the length of the response, the node is asked for the length.
    fn side(&mut self, group: usize, pool: usize, head: &Head<'_>, after: &mut Entry) -> Option<Side> {
        let delegate = self.plan.delegates(group)?;
        let mut bytes = None;
        if let Delegate::Above(_) = delegate {
            let size = self.sizes.of(pool, head);
            after.mark.session.path = size.ask.to_be();
            bytes = size.bytes;
        }
        Side::of(delegate, bytes, &mut self.random)
    }
}
