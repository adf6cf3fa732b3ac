//! The end of an agent whose node has connections, which would break with its programs.
//!
//! The agent drains its node if others can go on with the connections, and ends in order when none is left. What is
//! left after a while it leaves to programs and servers, which work without an agent until the next one takes them
//! over, as after SIGKILL. Connections over TLS need this process: those with an insured response are left to its heirs, and
//! those that no other node has taken then are closed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use switchback_runtime::Result;

use super::Agent;
use crate::drains::Drain;
use crate::flow_map::Walk;
use crate::insurance::Insurance;
use crate::reports::listening;

/// Time for switches to take connections, and for responses to end.
const HAND_OVER: Duration = Duration::from_secs(10);
/// Time to be told to end once more, where nobody can take the connections.
const SECOND_THOUGHT: Duration = Duration::from_secs(2);
/// Time for other nodes to go on with responses over TLS.
const TAKE_OVER: Duration = Duration::from_secs(3);

/// Numbers of connections, by VIP.
type ByVip = HashMap<SocketAddr, usize>;

/// Whether the agent has been told to end.
#[derive(Debug)]
pub(super) enum Ending {
    Not,
    /// It drains the node until then, and counts the connections again and again.
    Drains(Instant, Option<Walk<ByVip>>),
    /// It leaves responses over TLS to other nodes until then.
    Leaves(Instant),
}

/// What becomes of programs and VIPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// They are removed.
    InOrder,
    /// They stay for the connections that the node has.
    Leaves,
}

/// Connections of the node.
#[derive(Clone, Copy, Debug, Default)]
struct Connections {
    /// Whose sockets are those of servers.
    servers: usize,
    /// Which the TLS endpoint of this process ends.
    tls: usize,
}

impl Connections {
    fn are_none(self) -> bool {
        self.servers == 0 && self.tls == 0
    }
}

impl Agent<'_> {
    /// Called for each signal to end: the first drains the node, the second ends at once.
    pub(super) fn told_to_end(&mut self) -> Result<Option<End>> {
        let connections = self.connections()?;
        if !matches!(self.ending, Ending::Not) || connections.are_none() {
            return Ok(Some(End::InOrder));
        }
        let count = connections.servers + connections.tls;
        let name = self.plan.name().to_owned();
        let hands_over = self.plan.has_others() && !listening(&self.programs)?.is_empty();
        let patience = if hands_over { HAND_OVER } else { SECOND_THOUGHT };
        if hands_over {
            log::info!(
                "told to end: node {name} drains for at most {patience:?} until its connections are gone, {count} now; \
                 told again, it breaks them"
            );
            for node in self.plan.nodes.clone() {
                self.set_drain(&node, Drain { on: true, ..self.drains.of(node.number) })?;
            }
        } else {
            log::info!(
                "told to end: node {name} has connections that nobody else can take, {count} now; told again within \
                 {patience:?}, it breaks them"
            );
        }
        self.ending = Ending::Drains(Instant::now() + patience, Some(self.count()?));
        Ok(None)
    }

    /// Whether the agent that was told to end can do so now.
    pub(super) fn can_end(&mut self) -> Result<Option<End>> {
        let now = Instant::now();
        if let Ending::Drains(until, count) = &mut self.ending {
            let (until, over) = (*until, count.take_if(|count| count.is_over()));
            if let Some(over) = over {
                if self.connections_in(&over.result()?).are_none() {
                    return Ok(Some(End::InOrder));
                }
                self.ending = Ending::Drains(until, Some(self.count()?));
            }
            if now >= until {
                self.ending = Ending::Leaves(now + TAKE_OVER);
            }
        }
        let Ending::Leaves(until) = self.ending else { return Ok(None) };
        let left = self.tls.insurance().map_or(0, Insurance::leave);
        if left > 0 && now < until {
            return Ok(None);
        }
        if left > 0 {
            log::warn!("responses over TLS that no other node has gone on with: {left}");
        }
        let connections = self.connections()?;
        if connections.are_none() {
            return Ok(Some(End::InOrder));
        }
        if connections.tls > 0 {
            log::warn!("connections over TLS that no other node has taken are closed: {}", connections.tls);
        }
        if connections.servers == 0 {
            return Ok(Some(End::InOrder));
        }
        log::warn!(
            "programs and VIPs stay for connections that the node still has: {}; the next agent takes them over, \
             and breaks them if it is told to end twice",
            connections.servers
        );
        Ok(Some(End::Leaves))
    }

    fn count(&self) -> Result<Walk<ByVip>> {
        let flows = self.programs.flow_map()?;
        Walk::begin(move || flows.count_by_vip())
    }

    fn connections(&self) -> Result<Connections> {
        Ok(self.connections_in(&self.programs.flow_map()?.count_by_vip()?))
    }

    fn connections_in(&self, counts: &ByVip) -> Connections {
        let mut connections = Connections::default();
        for (vip, count) in counts {
            let kind = if self.plan.ends_tls(*vip) { &mut connections.tls } else { &mut connections.servers };
            *kind += count;
        }
        connections
    }
}
