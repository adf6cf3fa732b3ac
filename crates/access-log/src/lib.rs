//! The access log: one line for each request.
//!
//! A switch writes lines of plain requests, whose responses it does not see; a node writes lines of requests
//! over TLS, which it decrypts. Both have a thread for it, and write the same format.

pub mod escape;
mod file;
mod json;
mod line;
mod pace;

pub use file::Log;
pub use line::{Ended, Line, Tls};
pub use pace::Pace;
