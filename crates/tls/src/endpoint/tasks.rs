//! Tasks by the address that each is for.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use tokio::task::JoinHandle;

/// A task for each of some addresses.
#[derive(Default)]
pub(super) struct Tasks(HashMap<SocketAddr, JoinHandle<()>>);

impl Tasks {
    /// Whether there is a task for this address.
    pub(super) fn has(&self, address: &SocketAddr) -> bool {
        self.0.contains_key(address)
    }

    /// Adds the task for an address that has none.
    pub(super) fn add(&mut self, address: SocketAddr, task: JoinHandle<()>) {
        self.0.insert(address, task);
    }

    /// Aborts the tasks for all addresses but these.
    pub(super) fn keep(&mut self, addresses: &HashSet<SocketAddr>) {
        for (_, task) in self.0.extract_if(|address, _| !addresses.contains(address)) {
            task.abort();
        }
    }
}
