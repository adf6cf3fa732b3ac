//! Names in `cluster.toml` that stand for nodes: [`Resolved`] is a source whose documents have their addresses, [`resolve`] is
//! for commands.
//!
//! A thread asks name servers (`ask`) for each name again when the answer is no longer valid. When, and which addresses
//! count meanwhile, is decided without a clock or a network of its own (`names`): a name server that fails, or knows
//! nothing, takes no node away. The last addresses are on the disk (`kept`), for a start while no name server answers.

mod ask;
mod kept;
mod names;
mod resolved;

pub use resolved::{Resolved, resolve};
