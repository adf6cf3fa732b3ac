//! What any daemon says of itself.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use switchback_client::status::ClientStatus;
use switchback_node::status::NodeStatus;
use switchback_runtime::control::{ControlClient, Request, Response};
use switchback_runtime::{Error, Result};
use switchback_switch::status::SwitchStatus;

/// The status of a daemon, by its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Status {
    /// A switch.
    Switch(Box<SwitchStatus>),
    /// A node agent.
    Node(NodeStatus),
    /// The shim of a client.
    Client(ClientStatus),
}

impl Status {
    /// Asks the daemon behind the socket.
    pub fn ask(socket: &Path, patience: Duration) -> Result<Status> {
        match ControlClient::call_within(patience, socket, &Request::Status)? {
            Response::Status(value) => Status::read(value),
            Response::Failed { message } => Err(Error::new(message)),
            Response::Done { .. } => Err(Error::new("the process answered something else than its status")),
        }
    }

    /// What a daemon has said. One of another version may say what this one does not know.
    pub fn read(value: Value) -> Result<Status> {
        serde_json::from_value(value).map_err(|error| {
            Error::cannot("read what the process says of itself", error)
                .remedy("it may be of another version: `switchback status --json` shows it as it is")
        })
    }
}
