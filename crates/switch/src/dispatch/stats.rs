//! Statistics of the dispatcher.

use std::ops::{Deref, DerefMut};

use switchback_status::switch::DispatchCounts;

use super::flows::Full;
use crate::plan::NodeId;
use switchback_flow::answer::Reply;
use switchback_flow::request::Request;
use switchback_flow::world::Count;

/// Counts of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Requests given to the node.
    pub requests: u64,
    /// Flows that the node adopted.
    pub adopted: u64,
    /// Adoptions that the node refused.
    pub refused: u64,
    /// Flows that the node released.
    pub released: u64,
}

/// Counts since the start: those of the status page, and those by node and by service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counts by node.
    pub nodes: Vec<NodeStats>,
    /// Requests by service.
    pub services: Vec<u64>,
    /// All other counts.
    pub counts: DispatchCounts,
}

impl Deref for Stats {
    type Target = DispatchCounts;

    fn deref(&self) -> &DispatchCounts {
        &self.counts
    }
}

impl DerefMut for Stats {
    fn deref_mut(&mut self) -> &mut DispatchCounts {
        &mut self.counts
    }
}

impl Stats {
    /// Adds those of another thread.
    pub fn add(&mut self, other: &Stats) {
        for (index, more) in other.nodes.iter().enumerate() {
            let node = self.node(NodeId::from_index(index));
            node.requests += more.requests;
            node.adopted += more.adopted;
            node.refused += more.refused;
            node.released += more.released;
        }
        self.services.resize(self.services.len().max(other.services.len()), 0);
        std::iter::zip(&mut self.services, &other.services).for_each(|(sum, more)| *sum += more);
        self.counts.add(&other.counts);
    }

    fn node(&mut self, node: NodeId) -> &mut NodeStats {
        let index = node.index();
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, NodeStats::default());
        }
        &mut self.nodes[index]
    }

    pub(super) fn request(&mut self, request: &Request, node: NodeId) {
        self.given(request.service, node);
        match request.session {
            None => {}
            Some(session) if session.node == Some(node) => self.sessions_kept += 1,
            Some(_) => self.sessions_moved += 1,
        }
    }

    fn given(&mut self, service: usize, node: NodeId) {
        if self.services.len() <= service {
            self.services.resize(service + 1, 0);
        }
        self.services[service] += 1;
        self.node(node).requests += 1;
    }

    /// Counts an adoption that the program has begun.
    pub(super) fn adopted_for_program(&mut self, service: usize, node: NodeId) {
        self.given(service, node);
        self.node(node).adopted += 1;
    }

    pub(super) fn adopted(&mut self, request: &Request, node: NodeId) {
        self.request(request, node);
        self.node(node).adopted += 1;
    }

    pub(super) fn count(&mut self, what: Count<'_>) {
        match what {
            Count::Resent => self.resent += 1,
            Count::Acknowledged => self.acknowledged += 1,
            Count::Unread => self.unread += 1,
            Count::Busy => self.busy += 1,
            Count::TakenBack => self.taken_back += 1,
            Count::Waited => self.waited += 1,
            Count::TurnedAway => self.turned_away += 1,
            Count::SessionRefused => self.sessions_refused += 1,
            Count::PassedOn => self.passed_on += 1,
            Count::CookiesIgnored(number) => self.cookies_ignored += u64::from(number),
            Count::RequestRefused(reply) => self.refused_request(reply),
            Count::Resumed => self.resumed += 1,
            Count::NotResumed => self.not_resumed += 1,
            Count::Refused(node) => self.node(node).refused += 1,
            Count::Released(node) => self.node(node).released += 1,
        }
    }

    fn refused_request(&mut self, reply: &Reply) {
        let name = match reply {
            Reply::Refused(reject) => reject.name(),
            Reply::Alert(reject) => reject.name(),
            Reply::PlainHttp => "tls-plain-http",
            Reply::TooMany { .. } => "rate-limit",
            Reply::Status(_) | Reply::Redirect { .. } => return,
        };
        *self.counts.refused_requests.entry(name.into()).or_default() += 1;
    }

    pub(super) fn dropped(&mut self, full: Full) {
        match full {
            Full::Flow => self.dropped_flow_full += 1,
            Full::Source => self.dropped_source_full += 1,
            Full::Switch => self.dropped_switch_full += 1,
        }
    }

    pub(super) fn answered(&mut self, status: u16) {
        *self.counts.answered.entry(status).or_default() += 1;
    }
}
