//! Other nodes say with which of their responses this one could go on.

use std::pin::Pin;

use super::idle::Stream;

/// Hears what other nodes say of their responses.
pub trait Insurer: Send + Sync {
    /// Hears one of them, until its connection ends.
    fn hear(&self, channel: Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
