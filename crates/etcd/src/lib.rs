//! `cluster.toml` in etcd: [`Followed`] is the source of a daemon, [`Store`] is for the commands that write.
//! Nodes that are not in the document can join it (`joined`) for as long as they live (`lease`).
//!
//! etcd has the whole document as one value, in the key `PREFIX/cluster.toml`. A daemon reads it from one member and has that
//! member tell it of changes (`follower`); where the member fails, has no leader, or has compacted what it was to tell, it
//! reads the document again, from the next member. The last document that has come into force is on the disk, for a
//! start while no member answers.

mod address;
mod contents;
mod error;
mod follower;
mod joined;
mod lease;
mod member;
mod store;

pub use address::Address;
pub use error::Error;
pub use follower::Followed;
pub use joined::{Composed, Registration};
pub use store::{Record, Store, Stored};
