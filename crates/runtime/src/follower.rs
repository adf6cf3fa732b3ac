//! A part of a daemon's process that follows the configuration beside the daemon itself.

use std::fmt::Debug;

use crate::Result;

/// Told of each configuration `C` that the daemon reads. Several daemons of one process may share a follower, and then
/// tell it of the same one.
pub trait Follower<C>: Debug + Send + Sync {
    /// Prepares the change to a configuration. It takes effect when the result is called; without a call nothing changes,
    /// nor after an error.
    fn prepare<'a>(&'a self, config: &C) -> Result<Box<dyn FnOnce() + 'a>>;
}

/// Nothing follows.
impl<C> Follower<C> for () {
    fn prepare<'a>(&'a self, _: &C) -> Result<Box<dyn FnOnce() + 'a>> {
        Ok(Box::new(|| {}))
    }
}
