//! The way of a client's flow through a switch: from its first data to a node, and from one node to another.
//!
//! The crate is pure. Time, routes, nodes, the flow map and the network are a [`World`]; packets and answers of nodes come
//! in as [events](state::Event). It is the only place where a pending flow's state changes: a [`State`](state::State)
//! owns what only it needs, and handling an event consumes it and returns the next one. `docs/dispatch.md` has the table.

pub mod answer;
pub mod change;
pub mod connection;
pub mod destination;
pub mod entry;
pub mod held;
pub mod mark;
pub mod new_head;
mod node_id;
pub mod question;
pub mod request;
pub mod state;
pub mod verdict;
pub mod world;

pub use node_id::NodeId;
pub use world::World;
