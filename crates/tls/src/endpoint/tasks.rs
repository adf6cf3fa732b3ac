//! Tasks by the address that each is for.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use tokio::runtime::Runtime;
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

    /// Has a task for each of these addresses: new ones begin, and those for others are aborted.
    pub(super) fn replace<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        addresses: HashSet<SocketAddr>,
        runtime: &Runtime,
        task: impl Fn(SocketAddr) -> F,
    ) {
        self.keep(&addresses);
        for address in addresses {
            self.0.entry(address).or_insert_with(|| runtime.spawn(task(address)));
        }
    }

    /// Aborts the tasks for all addresses but these.
    pub(super) fn keep(&mut self, addresses: &HashSet<SocketAddr>) {
        for (_, task) in self.0.extract_if(|address, _| !addresses.contains(address)) {
            task.abort();
        }
    }
}
