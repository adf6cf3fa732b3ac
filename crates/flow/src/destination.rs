//! Where a request goes.

use switchback_config::Delegate;

use crate::NodeId;

/// Where the request of a flow with a node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To that node.
    Stays,
    /// It is adopted anew, by this node if the policy has been asked.
    Leaves(Option<NodeId>),
    /// Its session's node cannot serve, and no other node may.
    Nowhere,
}

/// Destination of a request whose flow has no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The node that has the session.
    Session(NodeId),
    /// The node that has the session, once its accept queue has room.
    Full(NodeId),
    /// The node chosen by hash or policy; None while no node can take the request.
    Any(Option<NodeId>),
    /// No node: the session's node cannot serve, and the pool is strict.
    Nowhere,
}

/// Whether the local node or another one should answer a request, on a machine that is a node and a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The local node.
    Here,
    /// Another node.
    Others,
}

impl Side {
    /// `bytes` is the expected length of the response; an unknown length counts as long.
    pub fn of(delegate: Delegate, bytes: Option<u32>, random: &mut dyn FnMut() -> u64) -> Option<Side> {
        let delegated = match delegate {
            Delegate::All => true,
            Delegate::None => false,
            Delegate::Share(percent) => random() % 100 < percent.into(),
            Delegate::Above(limit) => bytes.is_none_or(|bytes| u64::from(bytes) > limit),
        };
        Some(if delegated { Side::Others } else { Side::Here })
    }
}

/// The session of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The node that has the session; None if it has left the pool.
    pub node: Option<NodeId>,
    /// Hash that is equal for all requests of the session; it chooses the node while `node` cannot serve.
    pub key: u64,
}

/// Why a node was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The node has the connection.
    Connection,
    /// The pool's policy chose the node.
    Policy,
    /// The node has the session.
    Session,
    /// The node first chosen had no room and passed the request on.
    Second,
    /// Its own node is dead, and the node goes on with its response.
    Resumed,
}
