//! Ways to the servers of this machine for one client, where connections to servers begin with who the client is.

use std::sync::{Arc, Mutex, PoisonError};

use super::super::forwarding::{Forwarder, forwarder};
use super::super::local::{Destination, Group, LocalServer, Member};
use super::super::multiplexed::Multiplexed;
use super::super::pools::Here;

/// Connections that no other client may use.
#[derive(Default)]
pub(super) struct Greeted(Mutex<Vec<Way>>);

struct Way {
    server: Arc<LocalServer>,
    /// Id of the pool.
    pool: u32,
    group: Arc<Group>,
    forwarder: Forwarder,
    multiplexed: Arc<Multiplexed>,
}

impl Greeted {
    /// The forwarder to a server in a pool.
    pub(super) fn forwarder(&self, here: &Here, member: &Member, greeting: &[u8]) -> Forwarder {
        self.way(here, member, greeting, |way| way.forwarder.clone())
    }

    /// The connections in HTTP/2 to a server in a pool.
    pub(super) fn multiplexed(&self, here: &Here, member: &Member, greeting: &[u8]) -> Arc<Multiplexed> {
        self.way(here, member, greeting, |way| Arc::clone(&way.multiplexed))
    }

    fn way<T>(&self, here: &Here, member: &Member, greeting: &[u8], of: impl FnOnce(&Way) -> T) -> T {
        let mut ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |way: &&Way| Arc::ptr_eq(&way.server, &member.server) && Arc::ptr_eq(&way.group, &here.group);
        if let Some(way) = ways.iter().find(is_it) {
            return of(way);
        }
        // What was configured before needs them no more.
        let is_other = |way: &Way| way.server.node.name != member.server.node.name || way.pool != here.pool;
        ways.retain(is_other);
        let way = Way {
            server: Arc::clone(&member.server),
            pool: here.pool,
            group: Arc::clone(&here.group),
            forwarder: forwarder(Destination::member(&here.group, member, greeting.to_vec())),
            multiplexed: Arc::new(member.server.multiplexed.greeting(greeting)),
        };
        let found = of(&way);
        ways.push(way);
        found
    }
}
