//! What the dispatcher counts.

use std::ops::{Deref, DerefMut};

use switchback_status::switch::DispatchCounts;

use super::answer::Reply;
use super::flows::Full;
use super::request::Request;
use crate::plan::NodeId;

/// Counts of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Requests it was given.
    pub requests: u64,
    /// Flows it adopted.
    pub adopted: u64,
    /// Adoptions it refused.
    pub refused: u64,
    /// Flows it released.
    pub released: u64,
}

/// Counts since the start: those of the status as they are there, and those that it has by node and by service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// By node.
    pub nodes: Vec<NodeStats>,
    /// Requests by service.
    pub services: Vec<u64>,
    /// All others.
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
    fn node(&mut self, node: NodeId) -> &mut NodeStats {
        let index = node as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, NodeStats::default());
        }
        &mut self.nodes[index]
    }

    pub(super) fn request(&mut self, request: &Request, node: NodeId) {
        let service = request.service;
        if self.services.len() <= service {
            self.services.resize(service + 1, 0);
        }
        self.services[service] += 1;
        self.node(node).requests += 1;
        match request.session {
            None => {}
            Some(session) if session.node == Some(node) => self.sessions_kept += 1,
            Some(_) => self.sessions_moved += 1,
        }
    }

    pub(super) fn adopted(&mut self, request: &Request, node: NodeId) {
        self.request(request, node);
        self.node(node).adopted += 1;
    }

    pub(super) fn refused(&mut self, node: NodeId) {
        self.node(node).refused += 1;
    }

    pub(super) fn released(&mut self, node: NodeId) {
        self.node(node).released += 1;
    }

    pub(super) fn refused_request(&mut self, reply: &Reply) {
        let name = match reply {
            Reply::Refused(reject) => reject.name(),
            Reply::Alert(reject) => reject.name(),
            Reply::PlainHttp => "tls-plain-http",
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
