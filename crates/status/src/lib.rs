//! The status of each daemon, as it answers over the control socket: the source of `switchback status` and `top`, of the
//! metrics and of the page.
//!
//! A key that is missing, because the daemon is of another version, has the default of its type.

pub mod client;
pub mod node;
pub mod switch;
pub mod totals;
mod warnings;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchback_runtime::control::{ControlClient, Request, Response};
use switchback_runtime::{Error, Result};

use crate::client::ClientStatus;
use crate::node::NodeStatus;
use crate::switch::SwitchStatus;

/// The status of a daemon, by its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Status {
    /// A switch.
    Switch(Box<SwitchStatus>),
    /// A node agent.
    Node(Box<NodeStatus>),
    /// A client shim.
    Client(ClientStatus),
}

/// Copies of requests for pools that mirror them, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyStatus {
    /// Sent to another machine's agent.
    pub sent: u64,
    /// Dropped for want of room, or with the connection to the agent.
    pub dropped: u64,
    /// Answered by a server of this machine; the answer is thrown away.
    pub answered: u64,
    /// Given to a server of this machine and not answered.
    pub failed: u64,
}

impl Status {
    /// Asks the daemon behind the socket, which has `patience` to answer.
    pub fn ask(socket: &Path, patience: Duration) -> Result<Status> {
        match ControlClient::call_within(patience, socket, &Request::Status)? {
            Response::Status(value) => Status::read(value),
            Response::Failed { message } => Err(Error::new(message)),
            Response::Done { .. } => Err(Error::new("the process answered something else than its status")),
        }
    }

    /// The status in a daemon's answer; an error if its version has another form of it.
    pub fn read(value: Value) -> Result<Status> {
        serde_json::from_value(value).map_err(|error| {
            Error::cannot("read what the process says of itself", error)
                .remedy("it may be of another version: `switchback status --json` shows it as it is")
        })
    }
}
