//! Finds the node that has a request's session, in pools whose sessions stay with their nodes, from the request's
//! cookies.
//!
//! An invalid cookie is ignored and counted, and the request is treated like one without a session. The cookie may be
//! forged, or belong to an old configuration or to another program; an error would help in none of these cases.
//!
//! There is a table for each cluster key, because clients have cookies of both keys while keys are replaced.

use std::time::Duration;

use switchback_config::{Cluster, HashKey, PersistenceMode, PolicyKind};
use switchback_http::Head;
use switchback_policy::{Ask, Balancer, Load, Member};
use switchback_wire::session::{self, Code, INSERTED_LEN, KEYWORD};
use switchback_wire::{keys, sb_flow, sb_key, sb_session};

use crate::key::{cookie_pairs, hash_of, part_of};
use switchback_flow::NodeId;
use switchback_flow::destination::Session;

/// Result of reading a request's cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSession {
    /// The session that the request names.
    pub session: Option<Session>,
    /// Session information for the node.
    pub for_node: sb_session,
    /// Number of cookies that look like the pool's own and are invalid.
    pub ignored: u16,
}

/// Codes of a pool under one key.
struct Codes {
    key: sb_key,
    pool: Code,
    /// Common prefix of all rewritten names.
    begin: [u8; 5],
    /// Node codes with the values of inserted cookies, sorted by code.
    nodes: Vec<(Code, [u8; INSERTED_LEN], NodeId)>,
}

impl Codes {
    fn node(&self, code: &[u8]) -> Option<(&[u8; INSERTED_LEN], NodeId)> {
        let at = self.nodes.binary_search_by(|(other, ..)| other[..].cmp(code)).ok()?;
        let (_, value, node) = &self.nodes[at];
        Some((value, *node))
    }
}

enum Mode {
    /// The rest of a rewritten name after the codes, with `=`.
    Rewrite(Box<[u8]>),
    /// Names of cookie and pool.
    Insert(Box<[u8]>, String),
    Hash(HashKey),
}

/// Session lookup of a pool.
pub struct Sessions {
    mode: Mode,
    strict: bool,
    /// Codes by key, the current key first; empty if nodes take no part in the sessions.
    codes: Vec<Codes>,
    /// Nodes in the pool's order.
    nodes: Vec<NodeId>,
    /// Chooses a node by the session's key, without zones and slow start, so that all switches agree at any time.
    balancer: Balancer,
}

impl Sessions {
    /// None if the pool has no sessions that the switch knows.
    pub fn new(cluster: &Cluster, pool: usize, id: impl Fn(usize) -> NodeId) -> Option<Self> {
        let settings = &cluster.pools[pool];
        let persistence = settings.persistence.as_ref()?;
        let mode = match &persistence.mode {
            PersistenceMode::Rewrite { cookie } => {
                let kept = &cookie.as_bytes()[switchback_wire::SB_CODE_LEN as usize..];
                Mode::Rewrite([kept, b"="].concat().into())
            }
            PersistenceMode::Insert(cookie) => {
                Mode::Insert(cookie.name.as_bytes().into(), settings.name.clone())
            }
            PersistenceMode::Hash(by) => Mode::Hash(by.clone()),
        };
        let nodes: Vec<NodeId> = settings.nodes.iter().map(|&index| id(index)).collect();
        let members = settings.nodes.iter().map(|&index| {
            let node = &cluster.nodes[index];
            Member { name: node.name.clone(), weight: node.weight, near: false }
        });
        Some(Sessions {
            codes: codes(cluster, pool, &nodes),
            mode,
            strict: persistence.strict,
            nodes,
            balancer: Balancer::new(PolicyKind::Hash, members.collect(), Duration::ZERO),
        })
    }

    /// Whether a request is answered 503 if its session's node cannot serve.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Whether a request waits until its session's node has room. Not so for a hash, where the node need not have any
    /// state of the session.
    pub fn waits_for_room(&self) -> bool {
        self.strict || self.is_by_cookie()
    }

    /// Whether nodes write the session into a cookie.
    pub fn is_by_cookie(&self) -> bool {
        !self.codes.is_empty()
    }

    /// Whether all requests of a connection have the same session.
    pub fn is_by_client(&self) -> bool {
        matches!(self.mode, Mode::Hash(HashKey::Client))
    }

    /// Session information for a request without a session.
    fn without_session(&self) -> sb_session {
        self.codes.first().map_or_else(sb_session::default, |codes| sb_session::new(codes.pool, None))
    }

    /// Whether a flow that was adopted with this session information belongs to this pool.
    pub fn matches_session(&self, adopted: &sb_session) -> bool {
        match &self.codes[..] {
            [] => adopted.pool == Code::default(),
            codes => codes.iter().any(|codes| codes.pool == adopted.pool),
        }
    }

    /// Reads a request's session. If several cookies name nodes, the last one that `is_usable` counts: browsers send
    /// older cookies first (RFC 6265 section 5.4).
    pub fn read(
        &mut self,
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        is_usable: impl Fn(NodeId) -> bool,
    ) -> RequestSession {
        let mut result = RequestSession { for_node: self.without_session(), ..RequestSession::default() };
        match &self.mode {
            Mode::Rewrite(rest) => self.read_names(rest, secret, head, is_usable, &mut result),
            Mode::Insert(name, pool) => self.read_values((name, pool), secret, flow, head, &mut result),
            Mode::Hash(by) => {
                let key = part_of(by, flow, head).map(|part| hash_of(secret, &[part]));
                result.session = key.map(|key| Session { node: self.choose(key, |_| Load::IDLE), key });
            }
        }
        result
    }

    fn read_names(
        &self,
        rest: &[u8],
        secret: &sb_key,
        head: &Head<'_>,
        is_usable: impl Fn(NodeId) -> bool,
        result: &mut RequestSession,
    ) {
        let mut found: Option<(NodeId, &[u8])> = None;
        for pair in cookie_pairs(head) {
            let begins = |codes: &&Codes| pair.starts_with(&codes.begin);
            let Some(codes) = self.codes.iter().find(begins) else { continue };
            let known = pair[codes.begin.len()..].split_first_chunk::<3>().and_then(|(code, after)| {
                let (_, node) = codes.node(code)?;
                Some((*code, node, after.strip_prefix(rest)?))
            });
            match (known, found) {
                (None, _) => result.ignored = result.ignored.saturating_add(1),
                (Some((_, node, _)), Some((before, _))) if is_usable(before) && !is_usable(node) => {}
                (Some((code, node, value)), _) => {
                    found = Some((node, value));
                    result.for_node = sb_session::new(codes.pool, Some(code));
                }
            }
        }
        result.session =
            found.map(|(node, value)| Session { node: Some(node), key: hash_of(secret, &[value]) });
    }

    fn read_values(
        &self,
        (name, pool): (&[u8], &str),
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        result: &mut RequestSession,
    ) {
        for pair in cookie_pairs(head) {
            let value = pair.strip_prefix(name).and_then(|value| value.strip_prefix(b"="));
            let Some(value) = value else { continue };
            let Some((number, node)) = self.read_value(value.trim_ascii_end(), pool) else {
                result.ignored = result.ignored.saturating_add(1);
                continue;
            };
            if node.is_none() && result.session.is_some() {
                continue;
            }
            // All sessions of a node have the same value; the client's address spreads them over the other nodes.
            let key = hash_of(secret, &[value, &flow.client]);
            result.session = Some(Session { node, key });
            // A cookie under the old key is renewed, as if there were none.
            let is_current = number == 0;
            let code = value.first_chunk::<3>().filter(|_| is_current);
            result.for_node = sb_session::new(self.codes[0].pool, code.copied());
            if node.is_some() {
                return;
            }
        }
    }

    /// Index of the key under which one of our nodes made the value, and the node, if it is still in the pool.
    fn read_value(&self, value: &[u8], pool: &str) -> Option<(usize, Option<NodeId>)> {
        let value: &[u8; INSERTED_LEN] = value.try_into().ok()?;
        let code = [value[0], value[1], value[2]];
        self.codes.iter().enumerate().find_map(|(number, codes)| match codes.node(&code) {
            Some((expected, node)) => (expected == value).then_some((number, Some(node))),
            None => (session::inserted_value(&codes.key, pool, code) == *value).then_some((number, None)),
        })
    }

    /// The node for a session's key.
    pub fn choose(&mut self, key: u64, load: impl Fn(usize) -> Load) -> Option<NodeId> {
        let ask = Ask { key: Some(key), now: Duration::ZERO };
        self.balancer.pick(&ask, load, &[], &mut || 0).map(|index| self.nodes[index])
    }

    /// The cookie name, with `=`, that the node restores in the request.
    pub fn restored_name(&self, adopted: &sb_session) -> Option<Vec<u8>> {
        match &self.mode {
            Mode::Rewrite(rest) if adopted.node != Code::default() => {
                Some([&session::rewritten(adopted.pool, adopted.node), &rest[..]].concat())
            }
            _ => None,
        }
    }
}

/// Codes of the pool and its nodes under each key; empty if the pool has no session cookies.
fn codes(cluster: &Cluster, pool: usize, nodes: &[NodeId]) -> Vec<Codes> {
    let settings = &cluster.pools[pool];
    let pools: Vec<&str> = cluster.cookie_pools().map(|pool| pool.name.as_str()).collect();
    let Some(place) = pools.iter().position(|name| *name == settings.name) else { return Vec::new() };
    let names: Vec<&str> = settings.nodes.iter().map(|&node| cluster.nodes[node].name.as_str()).collect();
    let keys = cluster.keys.iter().map(|key| keys::session_key(key.as_bytes()));
    // `switchback explain` works without a key; cookies are then unreadable.
    let keys = keys.chain(cluster.keys.is_empty().then(sb_key::default));
    let under = |key: sb_key| {
        let pool = session::pool_codes(&key, &pools)[place];
        let codes = session::node_codes(&key, &settings.name, &names);
        let mut nodes: Vec<_> = std::iter::zip(codes, nodes)
            .map(|(code, node)| (code, session::inserted_value(&key, &settings.name, code), *node))
            .collect();
        nodes.sort_unstable();
        let mut begin = [0; 5];
        begin[..2].copy_from_slice(KEYWORD);
        begin[2..].copy_from_slice(&pool);
        Codes { key, pool, begin, nodes }
    };
    keys.map(under).collect()
}

#[cfg(test)]
mod tests;
