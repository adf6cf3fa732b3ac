//! What a flow's state can ask for, and what it can do.

use std::time::Duration;

use switchback_config::{Limits, Rank};
use switchback_wire::Reason;
use switchback_wire::flow_state::FlowState;
use switchback_wire::message::ToNode;
use switchback_wire::packet::TcpView;
use switchback_wire::report::Queue;
use switchback_wire::{Seq, sb_flow};

use crate::NodeId;
use crate::answer::Reply;
use crate::change::Change;
use crate::connection::Connection;
use crate::destination::{Chosen, Next, Placement};
use crate::entry::Entry;
use crate::held::HeldPacket;
use crate::question::Question;
use crate::request::{InProgress, Request};
use crate::verdict::Verdict;

/// Whether the node was silent at a time.
pub type Silence<'a> = &'a dyn Fn(Duration) -> bool;

/// An event for the statistics.
#[derive(Clone, Copy, Debug)]
pub enum Count<'a> {
    /// A question to a node was sent again.
    Resent,
    /// The switch has acknowledged data of a client.
    Acknowledged,
    /// A node has refused data that it was not given to read.
    Unread,
    /// A node has not released a flow, because of a response.
    Busy,
    /// An idle flow has been taken from a node that drains.
    TakenBack,
    /// A request waits for a node with room.
    Waited,
    /// Too many requests wait already.
    TurnedAway,
    /// The session's node cannot serve.
    SessionRefused,
    /// A node has passed a request on to its second candidate.
    PassedOn,
    /// So many cookies look like a session's and are not.
    CookiesIgnored(u16),
    /// A request is refused because of what it is.
    RequestRefused(&'a Reply),
    /// A node goes on with the response of one that is dead.
    Resumed,
    /// No node goes on with a response of one that is dead, though one has offered to.
    NotResumed,
    /// The node has refused an adoption.
    Refused(NodeId),
    /// The node has released a flow.
    Released(NodeId),
}

/// Everything around one flow.
pub trait World {
    /// The time, since a fixed start.
    fn now(&self) -> Duration;
    /// The flow.
    fn flow(&self) -> &sb_flow;
    /// Limits of the configuration.
    fn limits(&self) -> &Limits;
    /// The place of this switch among those of its cluster.
    fn rank(&self) -> Rank;
    /// The flow's entry in the map, with all that has been decided since it was written there.
    fn entry(&self) -> Option<Entry>;

    /// Reads the data at the mark of `entry`.
    fn judge(&mut self, data: &[u8], entry: &Entry) -> Verdict;
    /// Where the request of a flow with a node goes; `choice` is the node that has been chosen already.
    fn next_node(&mut self, request: &Request, entry: &Entry, choice: Option<NodeId>) -> Next;
    /// Where a request goes whose flow has no node. It overtakes none that waits for the same room, unless it
    /// `has_waited_longest` itself.
    fn place(&mut self, request: &mut InProgress, has_waited_longest: bool) -> Placement;
    /// The node to which `first` may pass the request on.
    fn second(&self, request: &InProgress, first: NodeId) -> Option<NodeId>;
    /// The request waits for this node while it has no room, because the node has its session.
    fn is_awaited(&self, request: &InProgress, node: NodeId) -> bool;
    /// Joins packets so that a node finds each name that it is to give back in one packet. `data` is what the request
    /// begins.
    fn keep_name_whole(&self, request: &mut InProgress, data: &[u8]);
    /// Share of the accept queue up to which nodes of the group adopt, in percent.
    fn queue_share(&self, group: usize) -> u8;
    /// Requests that wait for room.
    fn crowded(&self) -> usize;
    /// The node had sent no report for too long at that time.
    fn is_silent(&self, node: NodeId, time: Duration) -> bool;
    /// The node counts as dead.
    fn is_dead(&self, node: NodeId) -> bool;
    /// All nodes that serve the flow's VIP.
    fn nodes(&self) -> Vec<NodeId>;
    /// The node that keeps data of a flow without a node; None if none can.
    fn keeper(&self) -> Option<NodeId>;
    /// Has the node keep the packet, if the budget allows it.
    fn keep(&mut self, node: NodeId, state: &FlowState, packet: &HeldPacket);
    /// Asks the node for what it keeps of the flow.
    fn restore(&mut self, node: NodeId);

    /// Sends a packet to the first node, which may pass it on to the second.
    fn send_to(
        &mut self,
        nodes: (NodeId, Option<NodeId>),
        message: ToNode,
        state: &FlowState,
        packet: (&TcpView, &[u8]),
    );
    /// Sends PROBEs to the nodes of the question that are not dead, as far as their clocks are known; false if the budget is
    /// used up.
    fn seek(&mut self, question: &mut Question, packet: (&TcpView, &[u8])) -> bool;
    /// Sends the client a packet.
    fn to_client(&mut self, packet: &[u8]);
    /// Changes the flow map before the packets are sent.
    fn change(&mut self, change: Change);
    /// Writes the entry, and lets the program move the mark.
    fn set_entry(&mut self, entry: &Entry);
    /// Writes the entry, and lets the program leave the mark where it is.
    fn lock_entry(&mut self, entry: &Entry);
    /// As [`set_entry`](World::set_entry), behind the packets that bring the mark there, so that what follows them meets them at the node.
    fn move_mark(&mut self, entry: &Entry);
    /// Removes the entry of a connection that is over.
    fn forget(&mut self, origin: Seq);
    /// Removes the entry of a connection that may go on: the nodes are asked when its client sends something.
    fn forget_in_doubt(&mut self, origin: Seq);
    /// Ends a connection on which nothing can be said any more.
    fn reset(&mut self, origin: Seq, seq: Seq);
    /// Answers the client's FIN: `seq` and `ack` are what comes next of either side.
    fn say_goodbye(&mut self, origin: Seq, seq: Seq, ack: Seq);
    /// Answers what is held of the client's; the flow consists of the answer from here on. `head`: the request is HEAD.
    fn send_answer(&mut self, connection: &mut Connection, reply: &Reply, head: bool);
    /// Takes up a flow that a node has. None if the node cannot say enough: the connection ends.
    fn recover(&mut self, origin: Seq, entry: Option<Entry>, view: &TcpView) -> Option<Entry>;
    /// Deals with a packet of the recovered flow as if it came now.
    fn receive(&mut self, entry: Entry, packet: &HeldPacket);

    /// The node gets the request with an adoption.
    fn adoption_sent(&mut self, group: usize, node: NodeId);
    /// The node, which has the flow, gets the request.
    fn request_sent(&mut self, request: &InProgress, connection: &Connection);
    /// The node has adopted the flow.
    fn adopted(&mut self, request: &InProgress, connection: &Connection, queue: Queue, chosen: Chosen);
    /// The response under way goes on at another node.
    fn resumed(&mut self, after: &Entry);
    /// The node has not adopted the flow; no reason if it has not answered.
    fn refused(&mut self, group: usize, node: NodeId, reason: Option<Reason>, queue: Queue);
    /// For the statistics.
    fn count(&mut self, what: Count<'_>);
}
