//! The flow's node is dead in the middle of a response, and another node can go on with it.
//!
//! It goes on behind what the client has, which only the client knows: what it said last may have been lost. So it is asked
//! by a packet that it has had already, which it answers with an acknowledgment (RFC 9293 section 3.10.7.4) and its window.
//! That packet is what the new node adopts the flow from.
//!
//! All switches are offered the response, and the client's answer reaches one of them. The others hear no more of it.

use std::num::Wrapping;
use std::time::Duration;

use switchback_wire::flow_state::Stream;
use switchback_wire::generation::Generation;
use switchback_wire::message::{FromNode, Reading, ToNode};
use switchback_wire::packet::{flags, segment, set_window, timestamps};
use switchback_wire::{Reason, SB_WINDOW, Seq, sb_session};

use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::NodeId;
use crate::connection::Connection;
use crate::entry::{Entry, Mode};
use crate::held::HeldPacket;
use crate::world::{Count, World};

/// The client is asked again after this time, which doubles.
const FIRST_QUESTION: Duration = Duration::from_millis(250);
/// The longest time between two questions to the client.
const LAST_QUESTION: Duration = Duration::from_secs(1);
/// Time after which a client that does not answer is given up.
const SILENT: Duration = Duration::from_secs(10);
/// Time after which an offer that is not repeated has been taken, or its node is gone.
const OFFERED: Duration = Duration::from_millis(200);

/// Waits for the client's acknowledgment, and then for ADOPTED.
#[derive(Debug)]
pub struct Resuming {
    /// The node that can go on.
    heir: NodeId,
    /// The flow's entry at the node that is gone.
    before: Entry,
    /// Up to here the client has the response.
    has: Seq,
    since: Duration,
    /// When the heir last offered to go on.
    offered: Duration,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The client is asked again at `due`.
    Client {
        due: Duration,
        interval: Duration,
        question: Question,
    },
    Heir(Box<Handover>),
}

/// What the client is asked by.
#[derive(Clone, Copy, Debug)]
enum Question {
    /// A keep-alive (RFC 9293 section 3.8.4). It has no timestamps: Linux drops an old TSval without an answer, unless there
    /// is data.
    Bare,
    /// The byte again, with any content: a client that has timestamps drops it for its TSval (RFC 7323 section 5.3), any other
    /// for its sequence number. Some clients answer nothing else, or answer keep-alives only now and then; but Linux may
    /// change its flow label, and with it its way, when data comes again (tcp_rcv_spurious_retrans()).
    Byte,
}

/// The flow on its way to the heir.
#[derive(Debug)]
struct Handover {
    /// What the heir is given.
    adoption: HeldPacket,
    patience: Patience,
    /// What the client has said since.
    latest: Option<HeldPacket>,
}

impl Resuming {
    /// Asks the client of the flow what it has. `before` is the flow's entry, which may be further than the response.
    pub fn begin(
        heir: NodeId,
        has: Seq,
        before: Entry,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        connection.entry.mode = Mode::Resuming;
        world.set_entry(&connection.entry);
        let now = world.now();
        let state = Resuming {
            heir,
            before,
            has,
            since: now,
            offered: now,
            step: Step::Client {
                due: now + FIRST_QUESTION,
                interval: FIRST_QUESTION,
                question: Question::Byte,
            },
        };
        state.ask_client(Question::Bare, connection, world);
        State::Resuming(state)
    }

    /// The heir offers to go on once more.
    pub fn note_offer(&mut self, heir: NodeId, now: Duration) {
        if heir == self.heir {
            self.offered = now;
        }
    }

    /// Whether another heir has to go on.
    pub fn is_without_heir(&self, is_dead: impl FnOnce(NodeId) -> bool) -> bool {
        is_dead(self.heir)
    }

    /// The flow's entry at the node that is gone.
    pub fn before(&self) -> &Entry {
        &self.before
    }

    /// When it has waited long enough.
    pub(super) fn due(&self) -> Duration {
        match &self.step {
            Step::Client { due, .. } => *due,
            Step::Heir(handover) => handover.patience.due,
        }
    }

    /// A node has been asked.
    pub(super) fn waits_for_node(&self) -> bool {
        matches!(self.step, Step::Heir(_))
    }

    /// Sends a packet from the last byte that the client has acknowledged.
    fn ask_client(&self, question: Question, connection: &Connection, world: &mut dyn World) {
        let (data, times): (&[u8], _) = match question {
            Question::Bare => (b"", None),
            Question::Byte => (b"?", connection.entry.handshake.has_timestamps().then_some((0, 0))),
        };
        let numbers = (self.has - 1u32, connection.entry.mark.next);
        let mut packet = segment(world.flow(), false, numbers, flags::ACK, times, data);
        let window = SB_WINDOW >> connection.entry.handshake.own_scale();
        set_window(&mut packet, window as u16);
        world.to_client(&packet);
    }

    fn ask_heir(adoption: &HeldPacket, connection: &Connection, world: &mut dyn World) {
        world.send(ToNode::Resume, &connection.entry, (&adoption.view, &adoption.bytes));
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        match event {
            Event::Heard(packet) => self.on_heard(packet, connection, world),
            Event::Deadline => self.on_deadline(connection, world),
            Event::Reply(FromNode::Adopted { .. }) if self.waits_for_node() => {
                self.on_adopted(connection, world)
            }
            Event::Reply(FromNode::Refused { reason, generation, .. })
                if self.waits_for_node() && generation == connection.entry.generation =>
            {
                self.on_refused(reason, connection, world)
            }
            _ => State::Resuming(self),
        }
    }

    fn on_adopted(self, connection: &mut Connection, world: &mut dyn World) -> State {
        world.count(Count::Resumed);
        world.resumed(&connection.entry);
        world.set_entry(&connection.entry);
        if let Step::Heir(handover) = &self.step
            && let Some(latest) = &handover.latest
        {
            world.forward(&connection.entry, latest, Reading::None);
        }
        Assembling::new(world.now()).advance(connection, world)
    }

    fn on_heard(mut self, packet: &HeldPacket, connection: &mut Connection, world: &mut dyn World) -> State {
        if let Step::Heir(handover) = &mut self.step {
            // It may open the window, which the client does not say again.
            if packet.view.is_empty() {
                handover.latest = Some(packet.clone());
            }
            return State::Resuming(self);
        }
        let next = connection.entry.mark.next;
        // Nothing else than its numbers shows that the packet is the client's.
        let ahead = packet.view.seq.offset_from(next);
        let is_of_response = !packet.view.ack.before(self.has) && (0..=SB_WINDOW as i32).contains(&ahead);
        if !is_of_response || packet.view.flags & flags::ACK == 0 {
            return State::Resuming(self);
        }
        let times = timestamps(&packet.bytes, &packet.view);
        let mut bytes = segment(world.flow(), true, (next, packet.view.ack), flags::ACK, times, &[]);
        set_window(&mut bytes, packet.window());
        let Some(adoption) = HeldPacket::new(&bytes) else { return State::Resuming(self) };
        connection.entry.generation = next_generation(connection, world);
        connection.entry.node = self.heir;
        connection.entry.mode = Mode::AtNode(match self.before.is_tunnel() {
            true => Stream::Tunnel,
            false => Stream::Resumed,
        });
        connection.entry.mark.requests = Wrapping(1);
        connection.entry.mark.begins = next;
        connection.entry.mark.session = sb_session::default();
        Self::ask_heir(&adoption, connection, world);
        let patience = Patience::new(world.now());
        self.step = Step::Heir(Box::new(Handover { adoption, patience, latest: None }));
        State::Resuming(self)
    }

    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let now = world.now();
        match &mut self.step {
            Step::Client { .. } if now.saturating_sub(self.since) >= SILENT => {
                world.count(Count::NotResumed);
                world.forget_in_doubt(connection.entry.origin);
                return State::Over;
            }
            Step::Client { .. } if now.saturating_sub(self.offered) >= OFFERED => {
                world.forget_in_doubt(connection.entry.origin);
                return State::Over;
            }
            Step::Client { due, interval, question } => {
                *interval = LAST_QUESTION.min(*interval * 2);
                *due = now + *interval;
                let asked = *question;
                *question = match asked {
                    Question::Bare => Question::Byte,
                    Question::Byte => Question::Bare,
                };
                self.ask_client(asked, connection, world);
            }
            Step::Heir(handover) => {
                let Handover { adoption, patience, .. } = &mut **handover;
                if !patience.try_again(now, world.is_dead(self.heir)) && !patience.try_on(now) {
                    return fail(connection, world);
                }
                world.count(Count::Resent);
                Self::ask_heir(adoption, connection, world);
            }
        }
        State::Resuming(self)
    }

    fn on_refused(self, reason: Option<Reason>, connection: &mut Connection, world: &mut dyn World) -> State {
        match reason {
            // The client has all of the response: its next request is one of an idle flow whose node is dead.
            Some(Reason::Served) => {
                connection.entry = self.before;
                world.set_entry(&connection.entry);
                Assembling::new(world.now()).advance(connection, world)
            }
            // The node does not know the response.
            Some(Reason::NoSocket) if world.rank().is_alone => fail(connection, world),
            // Another switch may have given the flow to another node, which is found when the client speaks.
            Some(Reason::NoSocket) => {
                world.count(Count::NotResumed);
                self.ask_client(Question::Bare, connection, world);
                world.forget_in_doubt(connection.entry.origin);
                State::Over
            }
            // Another switch has asked the node about the flow.
            Some(Reason::Outdated) => {
                connection.entry.generation = next_generation(connection, world);
                if let Step::Heir(handover) = &self.step {
                    Self::ask_heir(&handover.adoption, connection, world);
                }
                State::Resuming(self)
            }
            // There is no room at the moment.
            _ => State::Resuming(self),
        }
    }
}

/// Of the flow's next adoption.
fn next_generation(connection: &Connection, world: &dyn World) -> Generation {
    let number = world.rank().number;
    let next = match connection.entry.generation {
        Generation::NONE => Generation::first(number),
        last => last.successor(number),
    };
    next.next_attempt()
}

/// No node can go on.
fn fail(connection: &Connection, world: &mut dyn World) -> State {
    world.count(Count::NotResumed);
    world.give_up(connection)
}
