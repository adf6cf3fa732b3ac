//! Which node has a request's session, where a pool wants its sessions to stay: what the request's cookies say.
//!
//! A cookie that says something wrong is as good as none. It may be forged, or of a configuration of long ago, or another
//! program's; an error would help nobody. So it is counted, and the request is any other request of the pool.
//!
//! Tables are made for each key of the cluster: while keys are replaced, clients have cookies of both.

use std::time::Duration;

use switchback_config::{Cluster, HashKey, PersistenceMode, PolicyKind};
use switchback_http::Head;
use switchback_policy::{Ask, Balancer, Load, Member, Queue, Standing};
use switchback_wire::session::{self, Code, INSERTED_LEN, KEYWORD};
use switchback_wire::{keys, sb_flow, sb_key, sb_session};

use crate::key::{cookie_pairs, hash_of, part_of};
use crate::plan::NodeId;

/// A session that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Who has it; None if that node has left the pool.
    pub node: Option<NodeId>,
    /// The same for all of its requests. It tells who has it while that node cannot serve.
    pub key: u64,
}

/// What a request says of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSession {
    /// The session that it belongs to, if it names one.
    pub session: Option<Session>,
    /// What its node has to know.
    pub told: sb_session,
    /// Cookies that look like the pool's own and are not.
    pub ignored: u16,
}

/// The codes of a pool under one key.
struct Codes {
    key: sb_key,
    pool: Code,
    /// How every rewritten name begins.
    begin: [u8; 5],
    /// In order, to be searched: a node's code, and what an inserted cookie that names it has for a value.
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
    /// With what follows the codes in a rewritten name, and `=`.
    Rewrite(Box<[u8]>),
    /// With the names of cookie and pool.
    Insert(Box<[u8]>, String),
    Hash(HashKey),
}

/// How the sessions of a pool are found.
pub struct Sessions {
    mode: Mode,
    strict: bool,
    /// By key, the one in use first; empty where nodes have no part in it.
    codes: Vec<Codes>,
    /// By the pool's order.
    nodes: Vec<NodeId>,
    /// Chooses by a session's key. It knows neither zones nor slow start: all switches are to choose the same node, now
    /// and later.
    balancer: Balancer,
}

/// A node of which nothing is known.
const IDLE: Load = Load {
    standing: Standing::Up,
    up_since: Duration::ZERO,
    queue: Queue { len: 0, limit: 0 },
    in_flight: 0,
    flows: 0,
    latency: None,
};

impl Sessions {
    /// None if requests of the pool have no sessions that the switch knows of.
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

    /// Whether requests of a session are answered 503 rather than go elsewhere.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Whether requests of a session wait for its node to have room. A hash names a node, but nobody has promised that
    /// the node knows anything of the session.
    pub fn waits_for_room(&self) -> bool {
        self.strict || !self.codes.is_empty()
    }

    /// Whether all requests of a connection have the same session, whatever they say.
    pub fn is_by_client(&self) -> bool {
        matches!(self.mode, Mode::Hash(HashKey::Client))
    }

    /// What nodes are told with a request that has no session.
    fn nothing_said(&self) -> sb_session {
        self.codes.first().map_or_else(sb_session::default, |codes| sb_session::new(codes.pool, None))
    }

    /// Whether a flow that was adopted for these sessions is one of this pool.
    pub fn is_told(&self, told: &sb_session) -> bool {
        match &self.codes[..] {
            [] => told.pool == Code::default(),
            codes => codes.iter().any(|codes| codes.pool == told.pool),
        }
    }

    /// What the request says. Of the nodes that it names the last one counts that `is_usable`: browsers send what they
    /// have got first first (RFC 6265 section 5.4).
    pub fn read(
        &mut self,
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        is_usable: impl Fn(NodeId) -> bool,
    ) -> RequestSession {
        let mut said = RequestSession { told: self.nothing_said(), ..RequestSession::default() };
        match &self.mode {
            Mode::Rewrite(rest) => self.read_names(rest, secret, head, is_usable, &mut said),
            Mode::Insert(name, pool) => self.read_values((name, pool), secret, flow, head, &mut said),
            Mode::Hash(by) => {
                let key = part_of(by, flow, head).map(|part| hash_of(secret, &[part]));
                said.session = key.map(|key| Session { node: self.choose(key, |_| IDLE), key });
            }
        }
        said
    }

    fn read_names(
        &self,
        rest: &[u8],
        secret: &sb_key,
        head: &Head<'_>,
        is_usable: impl Fn(NodeId) -> bool,
        said: &mut RequestSession,
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
                (None, _) => said.ignored = said.ignored.saturating_add(1),
                (Some((_, node, _)), Some((before, _))) if is_usable(before) && !is_usable(node) => {}
                (Some((code, node, value)), _) => {
                    found = Some((node, value));
                    said.told = sb_session::new(codes.pool, Some(code));
                }
            }
        }
        said.session =
            found.map(|(node, value)| Session { node: Some(node), key: hash_of(secret, &[value]) });
    }

    fn read_values(
        &self,
        (name, pool): (&[u8], &str),
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        said: &mut RequestSession,
    ) {
        for pair in cookie_pairs(head) {
            let value = pair.strip_prefix(name).and_then(|value| value.strip_prefix(b"="));
            let Some(value) = value else { continue };
            let Some((number, node)) = self.read_value(value.trim_ascii_end(), pool) else {
                said.ignored = said.ignored.saturating_add(1);
                continue;
            };
            if node.is_none() && said.session.is_some() {
                continue;
            }
            // All sessions of a node have the same value; with the client's address they do not all go to one other
            // node.
            let key = hash_of(secret, &[value, &flow.client]);
            said.session = Some(Session { node, key });
            // One that is made with the key that goes is to be renewed, as if there were none.
            let is_current = number == 0;
            let code = value.first_chunk::<3>().filter(|_| is_current);
            said.told = sb_session::new(self.codes[0].pool, code.copied());
            if node.is_some() {
                return;
            }
        }
    }

    /// Under which key a value has been made by a node of ours, and which one, if it is still in the pool.
    fn read_value(&self, value: &[u8], pool: &str) -> Option<(usize, Option<NodeId>)> {
        let value: &[u8; INSERTED_LEN] = value.try_into().ok()?;
        let code = [value[0], value[1], value[2]];
        self.codes.iter().enumerate().find_map(|(number, codes)| match codes.node(&code) {
            Some((expected, node)) => (expected == value).then_some((number, Some(node))),
            None => (session::inserted_value(&codes.key, pool, code) == *value).then_some((number, None)),
        })
    }

    /// The node that a session's key belongs to.
    pub fn choose(&mut self, key: u64, load: impl Fn(usize) -> Load) -> Option<NodeId> {
        let ask = Ask { key: Some(key), now: Duration::ZERO };
        self.balancer.pick(&ask, load, &[], &mut || 0).map(|index| self.nodes[index])
    }

    /// The name, and `=`, that the node will give back in a request that says so.
    pub fn restored(&self, told: &sb_session) -> Option<Vec<u8>> {
        match &self.mode {
            Mode::Rewrite(rest) if told.node != Code::default() => {
                Some([&session::rewritten(told.pool, told.node), &rest[..]].concat())
            }
            _ => None,
        }
    }
}

/// The codes of the pool and its nodes under each key; none if its sessions have no cookies.
fn codes(cluster: &Cluster, pool: usize, nodes: &[NodeId]) -> Vec<Codes> {
    let settings = &cluster.pools[pool];
    let pools: Vec<&str> = cluster.cookie_pools().map(|pool| pool.name.as_str()).collect();
    let Some(place) = pools.iter().position(|name| *name == settings.name) else { return Vec::new() };
    let names: Vec<&str> = settings.nodes.iter().map(|&node| cluster.nodes[node].name.as_str()).collect();
    let keys = cluster.keys.iter().map(|key| keys::session_key(key.as_bytes()));
    // Without its key the configuration can be explained, but no cookie be read.
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
