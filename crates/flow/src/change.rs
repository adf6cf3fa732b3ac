//! Changes of the flow map.

use switchback_wire::Seq;

use crate::entry::Entry;

/// A change of the flow map. Between a record and the change that follows from it the program may have removed the
/// entry, because the node reported the connection's end or the client began another one. So nothing is changed but an entry
/// of the same connection, which has the same origin.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A new value of the entry.
    Replace(Entry),
    /// A new value of the entry, of which the program is not to move the mark.
    Lock(Entry),
    /// An entry for a flow that has none.
    Create(Entry),
    /// No entry any more.
    Remove {
        /// The origin of the connection that is over.
        origin: Seq,
    },
    /// No entry any more. Nodes know whether the connection goes on, and are asked before its first packet begins it.
    Forget {
        /// The origin of the connection.
        origin: Seq,
    },
    /// No entry any more, unless a node has had the flow: its client would have lost its connection.
    Abandon {
        /// The origin of the connection.
        origin: Seq,
    },
    /// The client has been told that data has arrived which its node does not have yet.
    Ahead {
        /// The origin of the connection.
        origin: Seq,
    },
}
