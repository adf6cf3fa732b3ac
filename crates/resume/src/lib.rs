//! Responses that go on at another node when theirs dies (docs/decisions/0050).
//!
//! A client that has a part of a response may get the rest from another server only if both parts are of the same bytes.
//! [`Insurable`] says by which fields of the first response that can be proven, asks another server for the rest, and
//! accepts only an answer that proves it.

mod insurable;
mod response;

pub use insurable::{Insurable, Mismatch, Uninsured};
