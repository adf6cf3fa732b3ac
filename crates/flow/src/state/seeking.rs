//! Nodes are asked whether they have the flow.

use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::{SB_WINDOW, Seq};

use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::NodeId;
use crate::answer::Reply;
use crate::change::Change;
use crate::connection::Connection;
use crate::entry::{Entry, Mode};
use crate::held::HeldPacket;
use crate::question::Question;
use crate::world::{Count, World};

/// How long data of a flow that the switch does not know waits for the nodes' answers. Many such flows come at once when
/// another switch dies, and this one and the nodes are busy; a client without an answer retransmits later.
const ANSWER_WAIT: Duration = Duration::from_millis(150);

/// Time after which nodes are asked about it again that could not be asked at first: their clocks come soon after the start.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// By so much a switch waits longer than the one with the number before it: a round of questions.
const TURN: Duration = Duration::from_millis(2);

/// Waits for OWNED from one node, or UNOWNED from all.
#[derive(Debug)]
pub struct Seeking {
    question: Question,
    kind: Kind,
    /// The latest entry of nodes that have released the flow.
    released: Option<Entry>,
}

#[derive(Debug)]
enum Kind {
    /// A request, which begins if no node has its flow.
    First(Patience),
    /// Part of a request whose time is over, which is refused if no node has its flow.
    Late(Patience),
    /// Data of a flow that the switch does not know; it comes again if no node answers in time.
    Unknown {
        /// When that time is over.
        over: Duration,
        /// When to ask again those that could not be asked.
        again: Option<Duration>,
        /// A node that keeps data of the client.
        keeper: Option<NodeId>,
    },
}

impl Kind {
    /// How long nodes are asked; None if for a fixed time.
    fn patience(&mut self) -> Option<&mut Patience> {
        match self {
            Kind::First(patience) | Kind::Late(patience) => Some(patience),
            Kind::Unknown { .. } => None,
        }
    }
}

impl Seeking {
    /// Data of an unknown flow waits for the answer to this question.
    pub fn unknown(question: Question, now: Duration) -> State {
        let again = question.is_unsent.then_some(now + ASK_AGAIN);
        let kind = Kind::Unknown { over: now + ANSWER_WAIT, again, keeper: None };
        State::Seeking(Seeking { question, kind, released: None })
    }

    /// Asks about a request that another process may have given to a node.
    pub fn ask(connection: &mut Connection, world: &mut dyn World) -> State {
        Seeking::begin(Kind::First, connection, world)
    }

    /// Asks about part of a request. The rest may have come to another switch.
    pub fn ask_late(connection: &mut Connection, world: &mut dyn World) -> State {
        Seeking::begin(Kind::Late, connection, world)
    }

    fn begin(kind: fn(Patience) -> Kind, connection: &mut Connection, world: &mut dyn World) -> State {
        let rank = world.rank();
        let last = connection.entry.generation;
        // A node that this switch itself has asked to adopt the flow must not do so later.
        let next = match rank.is_alone && !last.is_some() {
            true => Generation::NONE,
            false => last.successor(rank.number),
        };
        Seeking::ask_for(next, kind(Patience::new(world.now())), connection, world)
    }

    fn ask_for(next: Generation, kind: Kind, connection: &mut Connection, world: &mut dyn World) -> State {
        let Some((view, bytes)) = connection.question(world.flow(), None) else { return State::Over };
        let nodes = world.nodes();
        let mut question =
            Question { seq: view.seq, origin: connection.entry.origin, nodes, next, is_unsent: false };
        if !world.seek(&mut question, (&view, &bytes)) {
            return world.abandon(connection);
        }
        Seeking { question, kind, released: None }.begin_unowned(connection, world)
    }

    pub(super) fn due(&self) -> Duration {
        match self.kind {
            Kind::First(patience) | Kind::Late(patience) => patience.due,
            Kind::Unknown { over, again, .. } => again.map_or(over, |again| again.min(over)),
        }
    }

    pub(super) fn on(
        mut self,
        event: Event<'_>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        self.note_keeper(&event);
        match event {
            Event::Deadline => self.on_deadline(connection, world),
            Event::Unowned { node, origin, seq, served, next: answered, newest, released, .. }
                if self.question.is_answered_by(seq, origin) =>
            {
                let next = self.question.next;
                if next.is_some() && newest.is_some() && next.is_newer(newest) {
                    // It answers an earlier question, and has promised less.
                    return State::Seeking(self);
                }
                if next.is_some() && newest.is_newer(next) {
                    self.on_outbid(newest, connection, world)
                } else if served && !self.is_unknown() {
                    on_served(answered, connection, world)
                } else {
                    self.note_released(node, released, world);
                    self.rule_out(node, connection, world)
                }
            }
            Event::Unowned { node, seq, released: Some(state), .. }
                if self.is_unknown() && self.question.seq == seq =>
            {
                self.note_released(node, Some(state), world);
                self.rule_out(node, connection, world)
            }
            // An older connection, which its client has given up.
            Event::Owned { node, state, .. }
                if !self.is_unknown() && connection.entry.origin != state.origin =>
            {
                self.rule_out(node, connection, world)
            }
            Event::Owned { node, state, view } => {
                let recovered = world.recover_with_data(state, node, view, connection);
                self.restore(world);
                recovered
            }
            Event::Restored { node, state, packet }
                if self.is_unknown() && self.question.nodes.is_empty() =>
            {
                match world.entry_of_node(state, node) {
                    Some(entry) => go_on_with(entry, Some(packet), connection, world),
                    None => State::Over,
                }
            }
            _ => State::Seeking(self),
        }
    }

    /// Nodes have not answered in time. A first request's are asked as often as about anything else that waits for them.
    /// After that those of which nothing is heard are taken for dead; the others may have it.
    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let now = world.now();
        let patience = match &mut self.kind {
            Kind::First(patience) | Kind::Late(patience) => patience,
            Kind::Unknown { over, .. } if now >= *over => return State::Over,
            &mut Kind::Unknown { over, keeper, .. } => {
                self.ask_again(connection, world);
                let again = self.question.is_unsent.then_some(now + ASK_AGAIN);
                return State::Seeking(Seeking { kind: Kind::Unknown { over, again, keeper }, ..self });
            }
        };
        if !patience.try_again(now, false) {
            self.question.nodes.retain(|node| !world.is_silent(*node, now));
            if !self.question.nodes.is_empty() && !patience.try_on(now) {
                return world.give_up(connection);
            }
        }
        self.ask_again(connection, world);
        self.begin_unowned(connection, world)
    }

    /// Asks the nodes that have not answered.
    fn ask_again(&mut self, connection: &Connection, world: &mut dyn World) {
        if !self.question.nodes.is_empty()
            && let Some((view, bytes)) = connection.question(world.flow(), None)
        {
            world.count(Count::Resent);
            world.seek(&mut self.question, (&view, &bytes));
        }
    }

    /// A node has heard of a newer adoption than the one that it was to promise: another switch has asked, too, or has
    /// given the flow to a node.
    fn on_outbid(mut self, newest: Generation, connection: &mut Connection, world: &mut dyn World) -> State {
        let (now, number) = (world.now(), world.rank().number);
        let next = newest.successor(number);
        let Some(patience) = self.kind.patience() else { return State::Seeking(self) };
        if !patience.was_resent() {
            patience.try_again(now, false);
            return Seeking::ask_for(next, self.kind, connection, world);
        }
        // Switches that go on asking at the same time would outbid each other for ever.
        *patience = Patience::new(now + TURN * number.into());
        (self.question.nodes, self.question.next) = (world.nodes(), next);
        State::Seeking(self)
    }

    /// The node does not have the flow.
    fn rule_out(mut self, node: NodeId, connection: &mut Connection, world: &mut dyn World) -> State {
        self.question.nodes.retain(|asked| *asked != node);
        self.begin_unowned(connection, world)
    }

    /// Begins a first request that no node has.
    fn begin_unowned(self, connection: &mut Connection, world: &mut dyn World) -> State {
        if !self.question.nodes.is_empty() {
            return State::Seeking(self);
        }
        match self.kind {
            Kind::First(_) => {
                let goes_back = go_back(self.released, connection);
                connection.entry.mode = Mode::Held;
                connection.entry.generation = connection.entry.generation.later(self.question.next);
                if goes_back {
                    return world.read_again(connection);
                }
                Assembling::new(world.now()).advance(connection, world)
            }
            Kind::Late(_) => world.answer(&Reply::Status(408), false, connection),
            Kind::Unknown { keeper, .. } => match self.released {
                Some(entry) => {
                    let state = go_on_with(entry, None, connection, world);
                    self.restore(world);
                    state
                }
                None if keeper.is_some() => {
                    self.restore(world);
                    State::Seeking(self)
                }
                None => State::Over,
            },
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.kind, Kind::Unknown { .. })
    }

    /// A node says that it keeps data of the client.
    fn note_keeper(&mut self, event: &Event<'_>) {
        if let Event::Unowned { node, keeps: true, .. } = event
            && let Kind::Unknown { keeper, .. } = &mut self.kind
        {
            *keeper = Some(*node);
        }
    }

    /// Asks for what is kept of the client's.
    fn restore(&self, world: &mut dyn World) {
        if let Kind::Unknown { keeper: Some(node), .. } = self.kind {
            world.restore(node);
        }
    }

    /// A node has released the flow in this state. It may be that of an older connection of the 4-tuple: the client sends
    /// within a window from where its connection goes on.
    fn note_released(&mut self, node: NodeId, state: Option<&FlowState>, world: &dyn World) {
        let seq = self.question.seq;
        let distance = |entry: &Entry| seq.offset_from(entry.mark.next).unsigned_abs();
        let is_better = |entry: &Entry| match self.released {
            Some(known) if known.origin == entry.origin => entry.is_newer(&known),
            Some(known) => distance(entry) < distance(&known),
            None => true,
        };
        let entry = state.and_then(|state| world.entry_of_node(state, node));
        if let Some(entry) = entry.filter(|entry| distance(entry) <= SB_WINDOW && is_better(entry)) {
            self.released = Some(entry);
        }
    }
}

/// Goes back to where the node that was thought to have the flow has released it: it has read nothing of what was sent to
/// it since, of which the last request is not the first. True if it was further.
fn go_back(released: Option<Entry>, connection: &mut Connection) -> bool {
    let known = &connection.entry;
    let is_before = |said: &Entry| {
        (said.node, said.origin) == (known.node, known.origin) && said.mark.next.before(known.mark.next)
    };
    let said = released.filter(is_before);
    said.iter().for_each(|said| connection.go_back(said));
    said.is_some()
}

/// A node has answered what comes at the mark, which does not begin once more. Where this switch is alone, the connection is
/// over. Else another one has ordered that, and nodes are asked about what is held behind it.
fn on_served(next: Seq, connection: &mut Connection, world: &mut dyn World) -> State {
    let origin = connection.entry.origin;
    if world.rank().is_alone {
        world.forget(origin);
        return State::Over;
    }
    if connection.entry.mark.next.before(next) {
        connection.skip_answered(next);
        if !connection.held.is_empty() {
            return Seeking::ask(connection, world);
        }
    }
    world.change(Change::Abandon { origin });
    State::Over
}

/// Takes up a flow that no node owns: the switch that had it released, or that had its first packet kept, may have gone.
/// All nodes are asked again, with the flow's origin.
fn go_on_with(
    entry: Entry,
    restored: Option<&HeldPacket>,
    connection: &mut Connection,
    world: &mut dyn World,
) -> State {
    let Some((view, _)) = connection.question(world.flow(), None) else { return State::Over };
    let entry = Entry { mode: Mode::Sought, ..entry };
    let Some(entry) = world.recover(entry.origin, Some(entry), &view) else { return State::Over };
    connection.entry = entry;
    connection.held.take_until(entry.mark.next);
    if let Some(packet) = restored {
        connection.restore(packet, None);
    }
    match connection.held.is_empty() {
        true => State::Over,
        false => Seeking::ask(connection, world),
    }
}
