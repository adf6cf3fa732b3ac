//! The commands of `switchback lab`: labs that outlive the command that made them.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::error::{Doing, Error, Result};
use crate::netns::NetNs;
use crate::server::{ServerKind, ServerOptions};
use crate::state::{LabInfo, list};
use crate::teardown;
use crate::topology::Builder;

/// Options of `lab up`.
#[derive(Clone, Debug, Default)]
pub struct UpOptions {
    /// The hosts and how they are connected.
    pub lab: Builder,
    /// The server that is started on every node, if any.
    pub server: Option<ServerKind>,
}

/// Makes a lab that runs until [`down`].
pub fn up(options: &UpOptions) -> Result<LabInfo> {
    let lab = options.lab.up()?;
    if let Some(kind) = options.server {
        for node in lab.nodes() {
            node.server(kind, &ServerOptions::default())?;
        }
    }
    lab.persist()
}

/// Replaces this process by a command in the network of a host. Returns only if that fails. `lab` may be
/// omitted when there is only one.
pub fn exec<S: AsRef<OsStr>>(lab: Option<&str>, host: &str, words: &[S]) -> Result<Infallible> {
    let info = find(lab)?;
    let namespace = NetNs::open(&info.host(host)?.namespace)?;
    let [program, arguments @ ..] = words else {
        return Err(Error::Invalid("a command needs a program".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    namespace.attach(&mut command);
    Err(command.exec()).doing(|| format!("execute {}", program.as_ref().to_string_lossy()))
}

/// Removes a lab with its processes. `lab` may be omitted when there is only one.
pub fn down(lab: Option<&str>) -> Result<LabInfo> {
    let info = find(lab)?;
    teardown::remove(&info)?;
    Ok(info)
}

/// The lab with this id, or the only one. Labs of other running programs are found by id alone.
fn find(id: Option<&str>) -> Result<LabInfo> {
    let labs = list()?;
    let mut fitting = labs.iter().filter(|lab| id.map_or(lab.persistent, |id| lab.id == id));
    match (fitting.next(), fitting.next()) {
        (Some(lab), None) => Ok(lab.clone()),
        (None, _) => {
            Err(Error::NotFound(id.map_or("no lab is up".to_owned(), |id| format!("no lab has the id {id}"))))
        }
        (Some(_), Some(_)) => {
            let ids: Vec<&str> =
                labs.iter().filter(|lab| lab.persistent).map(|lab| lab.id.as_str()).collect();
            Err(Error::NotFound(format!("which lab? There are {}", ids.join(", "))))
        }
    }
}
