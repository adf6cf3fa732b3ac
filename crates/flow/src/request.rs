//! A request that the switch has read, and its way to a node.

use std::borrow::Cow;
use std::num::Wrapping;
use std::time::Duration;

use switchback_wire::Reason;
use switchback_wire::Seq;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Reading, Recovery};
use switchback_wire::packet::bring_up_to_date;

use crate::NodeId;
use crate::connection::Connection;
use crate::destination::{Session, Side};
use crate::entry::Entry;
use crate::held::{Held, HeldPacket};
use crate::new_head::NewHead;

/// A request that has come back so often may be what makes servers fail: its client sees the next failure.
pub const TRIES: u8 = 3;

/// What has been read of a request, and where it may go.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Bytes that have been read, from its first one on; of a tunnel's beginning, those of the beginning.
    pub read: u16,
    /// The nodes that it may go to: a pool at the flow's VIP.
    pub group: usize,
    /// This machine or the others, where it is one of the nodes.
    pub side: Option<Side>,
    /// The key of a policy that goes by the request.
    pub key: Option<u64>,
    /// The service's index.
    pub service: usize,
    /// The client wants the connection to end with it.
    pub last: bool,
    /// It is idempotent, without a body.
    pub repeatable: bool,
    /// Its route changes its head.
    pub rewrites: bool,
    /// The flow's entry when its present node gets the request.
    pub after: Entry,
    /// The session that it names.
    pub session: Option<Session>,
    /// The node that has the client's TLS session and can serve.
    pub wanted: Option<NodeId>,
    /// Cookies that look like a session's and are not.
    pub cookies_ignored: u16,
    /// Its turn, if a rate limit has it wait.
    pub not_before: Option<Duration>,
    /// The nodes one of which gets a copy of it: a pool at the flow's VIP.
    pub mirror: Option<usize>,
}

impl Request {
    /// A request of which nothing but its destination is known.
    pub fn new(group: usize, service: usize, after: Entry) -> Self {
        Request {
            read: 0,
            group,
            side: None,
            key: None,
            service,
            last: false,
            repeatable: false,
            rewrites: false,
            after,
            session: None,
            wanted: None,
            cookies_ignored: 0,
            not_before: None,
            mirror: None,
        }
    }

    /// This switch has read it. One that another switch has given to a node is of unknown length, and may have another head
    /// there: what is held of it is the client's word only.
    fn is_read(&self) -> bool {
        self.read > 0 || self.after.is_tunnel()
    }

    /// Data up to sequence number `end` is all its own.
    pub fn takes_all_to(&self, end: Seq) -> bool {
        self.after.is_tunnel() || !self.after.mark.next.before(end)
    }

    /// Recovery from the loss of the server. `again`: the client still has the whole request.
    pub fn recovery(&self, again: bool) -> Recovery {
        let is_last = self.last || !self.after.has_requests();
        Recovery { last: is_last, again: self.repeatable && again }
    }
}

/// A request on its way to a node, with its packets.
#[derive(Debug)]
pub struct InProgress {
    /// What has been read of it.
    pub request: Request,
    /// Its packets.
    pub packets: Held,
    /// The head that the server gets instead of the one in the packets.
    pub head: Option<NewHead>,
    /// The entry before it.
    pub start: Entry,
    /// The node that the policy has chosen already.
    pub choice: Option<NodeId>,
    /// Nodes that could not take it.
    pub tried: Vec<NodeId>,
    /// Why the latest of them could not.
    pub refusal: Option<Reason>,
    /// It has waited for a node with room.
    pub has_waited: bool,
}

impl InProgress {
    /// A request of a flow with the entry `start`.
    pub fn without_packets(request: Request, start: Entry) -> Self {
        InProgress {
            request,
            packets: Held::default(),
            head: None,
            start,
            choice: None,
            tried: Vec::new(),
            refusal: None,
            has_waited: false,
        }
    }

    /// The held data begins with this request.
    pub fn begin(request: Request, connection: &mut Connection, now: Duration) -> Self {
        connection.born = now;
        let packets = if request.after.is_tunnel() {
            connection.held.take_all()
        } else {
            connection.held.take_until(request.after.mark.next)
        };
        let packets = Held::of(packets);
        InProgress { packets, ..InProgress::without_packets(request, connection.entry) }
    }

    /// Its packets, and the mark behind it.
    pub fn held(&mut self) -> (&mut Held, Seq) {
        (&mut self.packets, self.request.after.mark.next)
    }

    /// The flow's entry behind it.
    pub fn after(&self) -> &Entry {
        &self.request.after
    }

    /// The mark moves behind it, at the node that the flow has.
    pub fn enter(&self, connection: &mut Connection) {
        connection.entry = self.request.after;
    }

    /// The mark moves behind it, at a new node, for which it is the first.
    pub fn enter_at(&mut self, node: NodeId, generation: Generation, connection: &mut Connection) {
        let mark = &mut self.request.after.mark;
        (mark.requests, mark.heads) = (Wrapping(1), mark.heads & 1);
        self.request.after.node = node;
        self.request.after.generation = generation;
        self.request.after.handshake = connection.entry.handshake;
        self.enter(connection);
    }

    /// It has no node again.
    pub fn leave(&self, connection: &mut Connection) {
        let generation = self.request.after.generation;
        connection.entry = Entry { generation, ..self.start.without_node() };
    }

    /// It has no node again, and its packets are held once more.
    pub fn withdraw(&mut self, connection: &mut Connection) {
        self.leave(connection);
        self.put_back(connection);
    }

    /// Its packets are held once more, from the mark on.
    pub fn put_back(&mut self, connection: &mut Connection) {
        for packet in self.packets.take_all() {
            connection.held.insert(&packet, connection.entry.mark.next);
        }
    }

    /// It begins there.
    pub fn begins_at(&self, seq: Seq) -> bool {
        seq == self.start.mark.next
    }

    /// Recovery from the loss of the server.
    pub fn recovery(&self, connection: &Connection) -> Recovery {
        let is_one = self.head.as_ref().is_none_or(|head| head.is_one_packet(&self.packets));
        let alone = is_one && self.packets.only().is_some() && connection.acknowledged.is_none();
        self.request.recovery(alone && self.request.after.mark.tries < TRIES)
    }

    /// How much of a packet of it has been read.
    pub fn reading(&self, packet: &HeldPacket, recovery: Recovery) -> Reading {
        match packet.view.seq {
            seq if self.head.is_none() && self.request.is_read() && self.begins_at(seq) => {
                Reading::Request { head: self.request.read, recovery }
            }
            seq if seq.before(self.read_end()) => Reading::More { skip: 0 },
            _ => Reading::None,
        }
    }

    fn read_end(&self) -> Seq {
        self.start.mark.next + usize::from(self.request.read)
    }

    /// The node has to confirm that it has the request up to here: the client does not
    /// retransmit what the switch has acknowledged, and a retransmitted part of what was read cannot be read by itself.
    pub fn deliver_until(&self, connection: &Connection) -> Option<Seq> {
        let read = self.read_end();
        let several = match &self.head {
            None => self.packets.first().is_some_and(|packet| packet.end().before(read)),
            Some(_) => self.for_node().get(1).is_some_and(|packet| packet.view.seq.before(read)),
        };
        let after = &self.request.after;
        let own_end = |end: Seq| if after.is_tunnel() { end } else { end.earlier(after.mark.next) };
        match connection.acknowledged.map(own_end) {
            Some(acknowledged) if !acknowledged.before(read) => Some(acknowledged),
            acknowledged => (several || acknowledged.is_some()).then_some(read),
        }
    }

    /// Its packets as the node gets them.
    pub fn for_node(&self) -> Cow<'_, [HeldPacket]> {
        match &self.head {
            None => self.packets.as_slice().into(),
            Some(head) => head.packets(&self.packets, self.start.mark.next).into(),
        }
    }

    /// What of it may be nowhere but here. The first packet of a new head has come with the adoption.
    pub fn undelivered(&self, connection: &Connection) -> Vec<HeldPacket> {
        let Some(end) = self.deliver_until(connection) else { return Vec::new() };
        match &self.head {
            None => self.packets.until(end),
            Some(_) => {
                let behind = self.for_node();
                behind.iter().skip(1).filter_map(|packet| packet.part(packet.view.seq, end)).collect()
            }
        }
    }

    /// The last owner of the flow has sent up to `ack`, and its clock stood at `echo`.
    pub fn bring_up_to_date(&mut self, ack: Seq, echo: Option<u32>) {
        for packet in self.packets.iter_mut() {
            bring_up_to_date(&mut packet.bytes, &mut packet.view, ack, echo);
        }
    }
}
