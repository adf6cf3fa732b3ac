//! Keeps a [`Server`] as `[admin]` says.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use switchback_config::{Admin, Cluster};
use switchback_runtime::{Follower, Result};

use crate::Server;
use crate::asker::Answers;

/// The server of a process: none, one, or another after a reload.
pub struct Keeper {
    with_page: bool,
    ask: Arc<dyn Fn() -> Answers + Send + Sync>,
    running: Mutex<Option<(Admin, Server)>>,
}

impl Keeper {
    /// No server yet; see [`Server::start`].
    pub fn new(with_page: bool, ask: impl Fn() -> Answers + Send + Sync + 'static) -> Keeper {
        Keeper { with_page, ask: Arc::new(ask), running: Mutex::default() }
    }
}

/// The new server starts before the old one ends, so that an address that it cannot have changes nothing. Meanwhile the
/// other daemon of the process, which reads the same file, waits.
impl Follower<Cluster> for Keeper {
    fn prepare<'a>(&'a self, cluster: &Cluster) -> Result<Box<dyn FnOnce() + 'a>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let before = running.as_ref();
        if before.map(|(admin, _)| admin) == cluster.admin.as_ref() {
            return Ok(Box::new(|| {}));
        }
        let start = |admin: &Admin| -> Result<(Admin, Server)> {
            let ask = Arc::clone(&self.ask);
            let server =
                Server::replace(before.map(|(_, server)| server), admin, self.with_page, move || ask())?;
            Ok((admin.clone(), server))
        };
        let next = cluster.admin.as_ref().map(start).transpose()?;
        Ok(Box::new(move || {
            if let Some((_, server)) = &next {
                log::info!("metrics at http://{}/metrics", server.address());
            }
            *running = next;
        }))
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("running", &self.running).finish_non_exhaustive()
    }
}
