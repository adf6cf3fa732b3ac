//! Responses that go on at another node when theirs dies (docs/decisions/0050).
//!
//! A client that has a part of a response may get the rest from another server only if both parts are of the same bytes.
//! [`Insurable`] says by which fields of the first response that can be proven, asks another server for the rest, and
//! accepts only an answer that proves it. The node with the response tells its heirs what they need for that ([`Record`]);
//! each keeps that ([`Estate`]) until the response is over. The heir that gets the flow sends the rest ([`send_rest`]).

mod estate;
mod fingerprint;
mod insurable;
mod pipe;
mod quorum;
mod record;
mod repeat;
mod repeatable;
mod response;
mod rest;
mod source;

pub use estate::{Estate, Held, Offer};
pub use fingerprint::{Fingerprint, Key, Running};
pub use insurable::{Insurable, Mismatch, Uninsured};
pub use pipe::Pipe;
pub use quorum::{
    Ballot, Beginning, Owner, Place, Promise, Records, Refused, Replica, Retiring, Sealed, SetId, TakeOver,
};
pub use record::{Answer, Ask, Flow, Message, Proof, Record, Reply, Resumable, Secret};
pub use repeat::{Progress, Repetition, repeat};
pub use repeatable::{Difference, Repeatable};
pub use rest::{Failure, Rest, send_rest};
pub use source::Source;
