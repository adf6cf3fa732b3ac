//! What happens to a node in the middle of its responses.

use std::fmt;
use std::path::Path;

use switchback_lab::{Host, Process, Result, Server, ServerOptions};

use super::super::systems;

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its link is cut.
    Cut,
    /// Its machine dies: the link is cut, and agent and server are killed.
    Killed,
    /// Its server is killed; its kernel ends the connections.
    Server,
}

impl Fault {
    /// All faults, in the order of the table.
    pub const ALL: [Fault; 3] = [Fault::Cut, Fault::Killed, Fault::Server];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::Cut => "link cut",
            Fault::Killed => "machine killed",
            Fault::Server => "server killed",
        })
    }
}

/// The node that suffers, with its processes.
pub(super) struct Victim<'a> {
    pub(super) host: &'a Host,
    pub(super) server: Server,
    pub(super) agent: Process,
    pub(super) options: ServerOptions,
    pub(super) program: &'a Path,
    pub(super) config: &'a Path,
}

impl Victim<'_> {
    pub(super) fn strike(&self, fault: Fault) -> Result<()> {
        if matches!(fault, Fault::Cut | Fault::Killed) {
            self.host.cut_link()?;
        }
        // After the link, since a machine that dies says nothing.
        if fault == Fault::Killed {
            self.agent.kill()?;
        }
        if matches!(fault, Fault::Killed | Fault::Server) {
            self.server.kill()?;
        }
        Ok(())
    }

    /// Undoes it.
    pub(super) fn restore(&mut self, fault: Fault) -> Result<()> {
        if matches!(fault, Fault::Cut | Fault::Killed) {
            self.host.mend_link()?;
        }
        if matches!(fault, Fault::Killed | Fault::Server) {
            self.server = self.host.nginx(&self.options)?;
        }
        if fault == Fault::Killed {
            self.agent = systems::start_agent(self.host, self.program, self.config)?;
        }
        Ok(())
    }
}
