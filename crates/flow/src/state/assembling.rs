//! A request is being put together from its packets.

use std::time::Duration;

use switchback_wire::Seq;
use switchback_wire::generation::Generation;
use switchback_wire::message::{FromNode, Reading, ToNode};

use super::{Adopting, Asking, Delivering, Event, Refusal, Releasing, Seeking, State, Then, Throttled};
use crate::answer::Reply;
use crate::connection::{Connection, STALLED};
use crate::destination::Next;
use crate::entry::Entry;
use crate::held::HeldPacket;
use crate::request::InProgress;
use crate::verdict::{Judged, Missing, Verdict};
use crate::world::{Count, World};

/// When the node is first asked whether the mark is right, and after how long at least once more: the intervals double
/// while the client is silent. Beside other switches, which may have moved the mark, it is asked about a gap at once.
const FIRST_DOUBT: Duration = Duration::from_millis(50);
const NEXT_DOUBT: Duration = Duration::from_secs(1);

/// Waits for the rest of a head, or for what is missing before the data that is held.
#[derive(Debug)]
pub struct Assembling {
    /// When to look again.
    pub due: Duration,
    /// What has to come before the data at the mark is read again.
    missing: Option<Missing>,
    /// The mark at which something is missing, and since when.
    since: Option<(Seq, Duration)>,
    /// When the node was last asked whether the mark is right.
    asked: Duration,
}

/// What follows from the data at the mark.
pub(super) enum Step {
    /// The mark has moved: there may be more to read.
    Again,
    /// Something is missing.
    Wait,
    /// The flow waits for something else.
    Leave(State),
}

impl Assembling {
    /// Nothing of the data at the mark has been read.
    pub fn new(now: Duration) -> Self {
        Assembling { due: now, missing: None, since: None, asked: Duration::ZERO }
    }

    /// Something is missing at this mark since then.
    pub fn waiting(mark: Seq, since: Duration, due: Duration) -> Self {
        Assembling { due, since: Some((mark, since)), ..Assembling::new(since) }
    }

    /// Since when something of the client's has been missing.
    pub fn waits_since(&self) -> Option<Duration> {
        self.since.map(|(_, since)| since)
    }

    /// Takes the mark of a later entry, up to which the program has forwarded packets.
    pub fn catch_up(&mut self, entry: &Entry, connection: &mut Connection, world: &mut dyn World) {
        if world.catch_up(entry, connection) {
            self.missing = None;
        }
    }

    pub(super) fn on(
        mut self,
        event: Event<'_>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        match event {
            Event::Data => {
                if connection.lacks_data() && (connection.has_node() || !world.rank().is_alone) {
                    // It may be true by now that another switch has got what is missing, or the answer was lost.
                    self.due = self.due.min(world.now().max(self.asked + FIRST_DOUBT));
                }
                self.advance(connection, world)
            }
            Event::Deadline => self.on_deadline(connection, world),
            Event::Reply(FromNode::Confirmed { arrived, .. }) => {
                self.on_confirmed(arrived, connection, world)
            }
            Event::Unread(said) if !connection.entry.is_of_same(said) => State::Assembling(self),
            Event::Unread(said) if said.mark.next.before(connection.entry.mark.next) => {
                connection.go_back(said);
                world.read_again(connection)
            }
            Event::Unread(said) => self.catch_up_with_node(said, connection, world),
            Event::Owned { node, state, .. }
                if (node, state.origin) == (connection.entry.node, connection.entry.origin) =>
            {
                match world.entry_of_node(state, node) {
                    Some(entry) => self.catch_up_with_node(&entry, connection, world),
                    None => State::Assembling(self),
                }
            }
            Event::Unowned { node, origin, next, .. }
                if (node, origin) == (connection.entry.node, connection.entry.origin)
                    && connection.entry.mark.next.before(next) =>
            {
                // The node had released the flow when the mark went back: a new owner can go on from there.
                let mark = connection.entry.mark.moved_to(next);
                let entry = Entry { mark, ..connection.entry };
                self.catch_up(&entry, connection, world);
                world.set_entry(&connection.entry);
                self.advance(connection, world)
            }
            // Another switch has got what is missing here.
            Event::Unowned { origin, served: true, .. }
                if !connection.has_node() && origin == connection.entry.origin =>
            {
                Seeking::ask(connection, world)
            }
            _ => State::Assembling(self),
        }
    }

    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let (now, timeout) = (world.now(), world.limits().head_timeout);
        if self.since.is_some_and(|(_, since)| now < since + timeout) {
            // A mark that has moved on behind this thread's back looks like data that does not arrive.
            self.asked = now;
            if connection.has_node() {
                world.ask_owner(ToNode::Probe { next: Generation::NONE }, connection, None);
            } else if may_be_elsewhere(connection, world) {
                world.ask_all(connection);
            }
            self.due = self.next_look(connection, world, timeout);
            let state = State::Assembling(self);
            state.help(connection, world);
            state
        } else if connection.entry.mark.is_in_body() || !connection.has_beginning() {
            world.give_up_waiting(connection)
        } else if !connection.has_node() && !world.rank().is_alone {
            Seeking::ask_late(connection, world)
        } else {
            refuse(Refusal::of(Reply::Status(408)), connection, world)
        }
    }

    fn next_look(&self, connection: &Connection, world: &dyn World, timeout: Duration) -> Duration {
        let now = world.now();
        let since = self.waits_since().unwrap_or(now);
        let doubt = match connection.has_node() || may_be_elsewhere(connection, world) {
            true => now + NEXT_DOUBT.max(now.saturating_sub(since)),
            false => now + timeout,
        };
        let stalled = if now < since + STALLED { since + STALLED } else { since + timeout };
        doubt.min(stalled).min(since + timeout)
    }

    /// The node has the flow's data up to `arrived`.
    fn on_confirmed(self, arrived: Seq, connection: &mut Connection, world: &mut dyn World) -> State {
        if !connection.entry.mark.is_passing() {
            let state = State::Assembling(self);
            state.speak(connection, world, arrived);
            return state;
        }
        if arrived.before(connection.entry.mark.due()) {
            return State::Assembling(self);
        }
        connection.entry.mark.settle();
        let packets = connection.held.take_until(connection.entry.mark.next);
        world.set_entry(&connection.entry);
        world.forward_all(&connection.entry, &packets);
        self.advance(connection, world)
    }

    fn catch_up_with_node(
        mut self,
        entry: &Entry,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        if world.catch_up_with_node(entry, connection) || connection.take_decision(entry) {
            self.missing = None;
        }
        world.bring_up_map(connection);
        self.advance(connection, world)
    }

    /// Goes as far as the held data allows.
    pub fn advance(self, connection: &mut Connection, world: &mut dyn World) -> State {
        self.advance_from(None, connection, world)
    }

    /// Goes as far as the held data allows. `judged` is what has been read at the mark already.
    pub fn advance_from(
        mut self,
        mut judged: Option<Judged>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        loop {
            match self.read(judged.take(), connection, world) {
                Step::Again => {}
                Step::Wait => return State::Assembling(self),
                Step::Leave(state) => return state,
            }
        }
    }

    /// Goes on with the data at the mark.
    fn read(&mut self, judged: Option<Judged>, connection: &mut Connection, world: &mut dyn World) -> Step {
        if connection.held.is_empty() {
            return Step::Leave(world.finish(connection));
        }
        if connection.entry.is_tunnel() {
            world.move_mark(&connection.entry);
            let packets = connection.held.take_all();
            world.forward_all(&connection.entry, &packets);
            return Step::Again;
        }
        let data = connection.held.stream(connection.entry.mark.next);
        if connection.entry.mark.is_in_body() {
            return match data.is_empty() || connection.entry.mark.is_passing() {
                true => self.wait(connection, world),
                false => forward_body(connection, world),
            };
        }
        if connection.entry.is_upgrading() && !data.is_empty() {
            return Step::Leave(Asking::ask(connection, world));
        }
        let judged = judged.unwrap_or_else(|| self.judge(&data, connection, world));
        self.follow(judged, &data, connection, world)
    }

    /// Does what the data at the mark, a request or its beginning, asks for.
    fn follow(
        &mut self,
        Judged { verdict, next }: Judged,
        data: &[u8],
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> Step {
        match verdict {
            Verdict::Incomplete(_) if connection.ends_behind(data) && !connection.has_beginning() => {
                pass_empty_line(data.len(), connection, world);
                Step::Again
            }
            Verdict::Incomplete(_) if connection.ends_behind(data) => {
                Step::Leave(refuse(Refusal::of(Reply::Status(400)), connection, world))
            }
            Verdict::Incomplete(missing) => {
                self.missing = (!data.is_empty()).then_some(missing);
                self.wait(connection, world)
            }
            Verdict::Answer { reply, head } => {
                world.count(Count::RequestRefused(&reply));
                Step::Leave(refuse(Refusal { reply, head, abort: false }, connection, world))
            }
            Verdict::To { request, head } => {
                let mut request = Box::new(InProgress::begin(request, connection, world.now()));
                request.head = head;
                world.count(Count::CookiesIgnored(request.request.cookies_ignored));
                world.keep_name_whole(&mut request, data);
                *self = Assembling::new(world.now());
                match request.request.not_before.filter(|due| *due > world.now()) {
                    Some(due) => Step::Leave(Throttled::wait(request, due, connection, world)),
                    None => pass_on(request, next, connection, world),
                }
            }
        }
    }

    fn judge(&self, data: &[u8], connection: &Connection, world: &mut dyn World) -> Judged {
        let is_known = |missing: &Missing| !missing.has_come(data) && !connection.ends_behind(data);
        let verdict = match self.missing.filter(is_known) {
            Some(missing) => Verdict::Incomplete(missing),
            None => world.judge(data, &connection.entry),
        };
        Judged { verdict, next: None }
    }

    /// Waits for what is missing at the mark, unless the program has moved the mark meanwhile.
    fn wait(&mut self, connection: &mut Connection, world: &mut dyn World) -> Step {
        if connection.has_node() {
            let mark = connection.entry.mark.next;
            if let Some(current) = world.current_entry(connection) {
                self.catch_up(&current, connection, world);
            }
            if connection.entry.mark.next != mark {
                return Step::Again;
            }
        }
        if self.since.is_none_or(|(mark, _)| mark != connection.entry.mark.next) {
            let (now, timeout) = (world.now(), world.limits().head_timeout);
            let missing = self.missing;
            let patience = match connection.has_node() {
                true if missing.is_none() && !world.rank().is_alone => Duration::ZERO,
                true => FIRST_DOUBT,
                false if may_be_elsewhere(connection, world) => FIRST_DOUBT,
                false => STALLED,
            };
            let due = now + timeout.min(patience);
            *self = Assembling { missing, ..Assembling::waiting(connection.entry.mark.next, now, due) };
            if connection.has_node() {
                // The program must not go on with a later copy of what is missing while what follows is held here.
                world.lock_entry(&connection.entry);
            }
        }
        Step::Wait
    }
}

/// Whether a node may have got from another switch what is missing of a flow without a node.
fn may_be_elsewhere(connection: &Connection, world: &dyn World) -> bool {
    !connection.has_node() && connection.lacks_data() && !world.rank().is_alone
}

/// A whole request goes to its node. `next` is where it goes, if that has been decided.
pub(super) fn pass_on(
    mut request: Box<InProgress>,
    next: Option<Next>,
    connection: &mut Connection,
    world: &mut dyn World,
) -> Step {
    if !connection.has_node() {
        request.choice = request.request.wanted;
        return Step::Leave(Adopting::choose(request, false, connection, world));
    }
    let next = next.unwrap_or_else(|| {
        let wanted = request.request.wanted;
        world.next_node(&request.request, &connection.entry, wanted)
    });
    match next {
        Next::Stays => {}
        Next::Leaves(choice) => {
            request.choice = choice;
            return Step::Leave(Releasing::ask(Then::Adopt(request), connection, world));
        }
        Next::Nowhere => {
            world.count(Count::SessionRefused);
            let head = request.after().mark.is_behind_head();
            request.put_back(connection);
            let refusal = Refusal { reply: Reply::Status(503), head, abort: false };
            return Step::Leave(refuse(refusal, connection, world));
        }
    }
    forward_request(&request, connection, world);
    if request.deliver_until(connection).is_some() {
        return Step::Leave(Delivering::ask(request, connection, world));
    }
    connection.finish_request(world.now());
    Step::Again
}

/// The request goes to the node that the flow has.
fn forward_request(request: &InProgress, connection: &mut Connection, world: &mut dyn World) {
    request.enter(connection);
    world.request_sent(request, connection);
    match request.deliver_until(connection) {
        None => world.move_mark(&connection.entry),
        // Until the node has it, the program leaves all that the client sends from there on to this thread.
        Some(_) => world.lock_entry(&request.start),
    }
    let recovery = request.recovery(connection);
    for packet in request.packets.iter() {
        world.forward(&connection.entry, packet, request.reading(packet, recovery));
    }
}

/// Forwards a packet with more of a body, and what need not be read behind it.
fn forward_body(connection: &mut Connection, world: &mut dyn World) -> Step {
    let data = connection.held.first().map_or(&[][..], HeldPacket::data);
    if let Err(reject) = connection.entry.mark.follow(data) {
        let reply = Reply::Refused(reject);
        world.count(Count::RequestRefused(&reply));
        return Step::Leave(refuse(Refusal { reply, head: false, abort: true }, connection, world));
    }
    let packets = connection.held.take_until(connection.entry.mark.next);
    world.move_mark(&connection.entry);
    if let Some((read, rest)) = packets.split_first() {
        world.forward(&connection.entry, read, Reading::More { skip: 0 });
        world.forward_all(&connection.entry, rest);
    }
    Step::Again
}

/// All that comes behind the last request is an empty line, or part of one. It belongs to that request (RFC 9112 section
/// 2.2). What is held beyond it lies behind the client's FIN and is dropped.
fn pass_empty_line(len: usize, connection: &mut Connection, world: &mut dyn World) {
    connection.entry.mark.next += len;
    let line = connection.held.take_until(connection.entry.mark.next);
    connection.held.take_all();
    if connection.has_node() {
        world.move_mark(&connection.entry);
        for packet in &line {
            world.forward(&connection.entry, packet, Reading::More { skip: 0 });
        }
    }
}

/// The switch answers itself, once no node has the flow.
fn refuse(refusal: Refusal, connection: &mut Connection, world: &mut dyn World) -> State {
    if connection.has_node() {
        Releasing::ask(Then::Answer(refusal), connection, world)
    } else {
        world.answer(&refusal.reply, refusal.head, connection)
    }
}
