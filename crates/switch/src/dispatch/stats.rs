//! What the dispatcher counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::answer::Reply;
use super::flows::Full;
use super::pending::Request;
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

/// Counters of the dispatcher since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DispatchCounts {
    /// Requests that the switch answered itself, by status.
    #[serde(deserialize_with = "by_status")]
    pub answered: BTreeMap<u16, u64>,
    /// ADOPT, RELEASE and CONFIRM packets sent again.
    pub resent: u64,
    /// Acknowledgments of the switch for requests whose clients did not get on.
    pub acknowledged: u64,
    /// Releases that had to wait for a response to end.
    pub busy: u64,
    /// Flows that the nodes were asked about.
    pub probed: u64,
    /// Flows that the nodes were not asked about, because of the limit on questions.
    pub unasked: u64,
    /// Unknown flows that a node owned.
    pub recovered: u64,
    /// Packets that a node refused, because it had not been given what was read before them.
    pub unread: u64,
    /// Unknown flows that no node owned.
    pub reset_unowned: u64,
    /// Requests refused because of what they are, by reason.
    pub refused_requests: BTreeMap<Cow<'static, str>, u64>,
    /// Packets dropped because their flow holds too much already.
    pub dropped_flow_full: u64,
    /// Packets dropped because their source address holds too much already.
    pub dropped_source_full: u64,
    /// Packets dropped because the switch holds too much already.
    pub dropped_switch_full: u64,
    /// Flows whose held packets were forgotten, so that others could be held.
    pub evicted: u64,
    /// Answers of the switch that were forgotten before their clients had seen them, because there were too many.
    pub answers_forgotten: u64,
    /// Requests that had to wait for a node with room.
    pub waited: u64,
    /// Requests answered 503 at once, because too many waited already.
    pub turned_away: u64,
    /// Requests that a node passed on to its second candidate.
    pub passed_on: u64,
    /// Connections that a node has given to another one, in the middle.
    pub moved: u64,
    /// Reports of nodes.
    pub reports: u64,
    /// Idle flows taken from nodes that are draining.
    pub taken_back: u64,
    /// Requests that went to the node that has their session.
    pub sessions_kept: u64,
    /// Requests that went elsewhere, because the node that has their session could not serve.
    pub sessions_moved: u64,
    /// Requests answered 503, because the node that has their session could not serve.
    pub sessions_refused: u64,
    /// Cookies that look as if they named a session's node and do not.
    pub cookies_ignored: u64,
}

/// Reads a map whose keys are statuses; the keys of a JSON object are strings.
fn by_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(deserializer)?.into_iter();
    counts.map(|(status, count)| Ok((status.parse().map_err(D::Error::custom)?, count))).collect()
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
