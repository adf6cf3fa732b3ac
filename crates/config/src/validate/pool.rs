//! `[[pool]]`: its nodes, how one of them is chosen, and which keys go together.

use std::collections::HashMap;
use std::time::Duration;

use switchback_wire::report::pool_id;

use crate::mistakes::{Mistakes, Names};
use crate::pool::{ABOVE, DEFAULT_QUEUE_LIMIT, EMPTY_STATUSES, QUEUE_LIMIT, QUEUE_LIMIT_OFF, SLOW_START};
use crate::raw::Spanned;
use crate::{
    Balance, Check, Delegate, HashKey, Health, PolicyKind, Pool, Resume, ServerProtocol, raw, syntax,
};

impl Mistakes {
    /// Reports name pools by an id in place of the name, so two pools must not share one.
    pub(super) fn pool_ids(&mut self, pools: &[raw::Pool]) {
        let mut taken: HashMap<u32, &str> = HashMap::new();
        for pool in pools {
            let name = pool.name.get_ref().as_str();
            let other = *taken.entry(pool_id(name)).or_insert(name);
            if other != name {
                let what = format!(
                    "pool name {name:?} has the same id in reports as {other:?}, allowed is each id once"
                );
                self.at(&pool.name, what);
            }
        }
    }

    pub(super) fn pool(
        &mut self,
        pool: &raw::Pool,
        nodes: &[raw::Node],
        node_names: &Names<'_>,
        switch_names: &Names<'_>,
    ) -> Option<Pool> {
        let listed = self.listed_nodes(pool, node_names);
        let all_resolve = pool.nodes.as_ref().is_some_and(|all| listed.len() == all.get_ref().len());
        let nodes = self.with_joined(listed, pool, nodes);
        let nodes_from = pool.nodes_from.as_ref();
        let nodes_from = nodes_from.and_then(|name| self.take(name, syntax::nodes_from(name.get_ref())));
        let policy = self.one_of("policy", &pool.policy, PolicyKind::ALL, PolicyKind::name);
        let balance = pool.balance.as_ref();
        let balance =
            balance.and_then(|balance| self.one_of("balance", balance, Balance::ALL, Balance::name));
        let resume = pool.resume.as_ref();
        let resume = resume.and_then(|resume| self.one_of("resume", resume, Resume::ALL, Resume::name));
        let hash = pool.hash.as_ref().and_then(|hash| self.take(hash, syntax::hash_key(hash.get_ref())));
        let slow_start = self.time("slow_start", &pool.slow_start, SLOW_START, Duration::ZERO);
        let limit = pool.queue_limit.as_ref();
        let queue_limit = limit.and_then(|limit| self.take(limit, syntax::queue_limit(limit.get_ref())));
        let delegate = pool.delegate.as_ref().and_then(|place| {
            // A node that is not there, or not yet, may be the switch that is missed.
            if all_resolve && pool.nodes_from.is_none() {
                self.is_a_switch(place, pool, switch_names);
            }
            self.delegate(place, pool)
        });
        let protocol = self.protocol(pool, resume);
        let empty_status = pool.empty_status.as_ref();
        let empty_status =
            empty_status.and_then(|status| self.take(status, syntax::empty_status(*status.get_ref())));
        let health = pool.health.as_ref().map(|health| self.health(health));
        self.grpc_check(pool, protocol, health.as_ref());
        let outliers = pool.outliers.as_ref().map(|outliers| self.outliers(outliers, pool));
        let persistence = pool.persistence.as_ref();
        let persistence = persistence.and_then(|file| self.persistence(file, pool.name.get_ref()));

        if let (Some(place), Some(persistence)) = (&pool.delegate, &persistence)
            && persistence.mode.is_by_cookie()
        {
            self.delegate_with_cookies(place, pool);
        }
        let policy = policy?;
        self.keys_of_other_policies(pool, policy, queue_limit);
        let hash = hash.unwrap_or(HashKey::Client);
        Some(Pool {
            name: pool.name.get_ref().clone(),
            nodes,
            nodes_from,
            policy,
            balance: balance.unwrap_or(default_balance(&hash)),
            hash,
            slow_start,
            queue_limit: queue_limit.unwrap_or(DEFAULT_QUEUE_LIMIT),
            second_candidate: pool.second_candidate,
            delegate,
            health,
            outliers,
            resume: resume.unwrap_or(Resume::Off),
            protocol,
            persistence,
            empty_status: empty_status.unwrap_or(EMPTY_STATUSES[0]),
        })
    }

    /// The nodes that the pool names.
    fn listed_nodes(&mut self, pool: &raw::Pool, node_names: &Names<'_>) -> Vec<usize> {
        let Some(names) = &pool.nodes else { return Vec::new() };
        if names.get_ref().is_empty() {
            let what = format!(
                "pool {:?} is empty, at least one node is needed; leave the line out if nodes name the pool",
                pool.name.get_ref()
            );
            self.at(names, what);
        }
        let mut nodes = Vec::new();
        for name in names.get_ref() {
            let Some(node) = self.resolve("node", name, node_names) else { continue };
            if nodes.contains(&node) {
                let what =
                    format!("node {:?} is in the pool already, allowed is each node once", name.get_ref());
                self.at(name, what);
            }
            nodes.push(node);
        }
        nodes
    }

    /// Adds the nodes that name the pool.
    fn with_joined(&mut self, mut nodes: Vec<usize>, pool: &raw::Pool, all: &[raw::Node]) -> Vec<usize> {
        for (index, node) in all.iter().enumerate() {
            for name in node.pools.iter().filter(|name| name.get_ref() == pool.name.get_ref()) {
                if nodes.contains(&index) {
                    let what = format!(
                        "node {:?} is in pool {:?} already, allowed is each node once",
                        node.name.get_ref(),
                        name.get_ref()
                    );
                    self.at(name, what);
                } else {
                    nodes.push(index);
                }
            }
        }
        nodes
    }

    /// Nodes name pools that there are.
    pub(super) fn pools_of_nodes(&mut self, nodes: &[raw::Node], pool_names: &Names<'_>) {
        for name in nodes.iter().flat_map(|node| &node.pools) {
            self.resolve("pool", name, pool_names);
        }
    }

    fn protocol(&mut self, pool: &raw::Pool, resume: Option<Resume>) -> ServerProtocol {
        let text = pool.protocol.as_ref();
        let protocol =
            text.and_then(|text| self.one_of("protocol", text, ServerProtocol::ALL, ServerProtocol::name));
        let protocol = protocol.unwrap_or_default();
        if let (Some(place), Some(resume @ (Resume::Range | Resume::Repeat))) = (&pool.resume, resume)
            && protocol == ServerProtocol::H2c
        {
            let what = format!(
                "resume \"{resume}\" with protocol \"{protocol}\", allowed is \"{}\", or protocol \"{}\"",
                Resume::Off,
                ServerProtocol::Http11
            );
            self.at(place, what);
        }
        protocol
    }

    fn grpc_check(&mut self, pool: &raw::Pool, protocol: ServerProtocol, health: Option<&Health>) {
        let place = pool.health.as_ref().and_then(|health| health.grpc.as_ref());
        let is_grpc = health.is_some_and(|health| matches!(health.check, Check::Grpc { .. }));
        if let (Some(place), true, ServerProtocol::Http11) = (place, is_grpc, protocol) {
            let h2c = ServerProtocol::H2c;
            self.at(
                place,
                format!("grpc with protocol \"{protocol}\", allowed is it only with protocol \"{h2c}\""),
            );
        }
    }

    fn delegate_with_cookies(&mut self, place: &Spanned<raw::Delegate>, pool: &raw::Pool) {
        let what = format!(
            "delegate in pool {:?}, whose sessions stay with their nodes by cookies, allowed is one of the two",
            pool.name.get_ref()
        );
        self.at(place, what);
    }

    fn keys_of_other_policies(&mut self, pool: &raw::Pool, policy: PolicyKind, queue_limit: Option<u8>) {
        if let Some(place) = &pool.hash
            && policy != PolicyKind::Hash
        {
            let what = format!(
                "hash with policy {:?}, allowed is it only with policy {:?}",
                policy.name(),
                PolicyKind::Hash.name()
            );
            self.at(place, what);
        }
        if let (Some(place), Some(0)) = (&pool.queue_limit, queue_limit)
            && matches!(policy, PolicyKind::Fill | PolicyKind::AcceptQueue)
        {
            let (policy, low, high) = (policy.name(), QUEUE_LIMIT.start(), QUEUE_LIMIT.end());
            let what = format!(
                "queue_limit {QUEUE_LIMIT_OFF:?} with policy {policy:?}, which looks at the queue, \
                 allowed are \"{low}%\" to \"{high}%\""
            );
            self.at(place, what);
        }
    }

    fn is_a_switch(&mut self, place: &Spanned<raw::Delegate>, pool: &raw::Pool, switch_names: &Names<'_>) {
        let Some(nodes) = pool.nodes.as_ref().map(Spanned::get_ref) else { return };
        if !nodes.is_empty() && !nodes.iter().any(|node| switch_names.contains_key(node.get_ref().as_str())) {
            let what = format!(
                "delegate in pool {:?}, but no node of the pool is a switch, allowed is it only if a \
                 [[switch]] has the name of one",
                pool.name.get_ref()
            );
            self.at(place, what);
        }
    }

    fn delegate(&mut self, place: &Spanned<raw::Delegate>, pool: &raw::Pool) -> Option<Delegate> {
        let delegate = match place.get_ref() {
            raw::Delegate::Text(text) => self.take(place, syntax::delegate(text)),
            raw::Delegate::Table(raw::Above { above }) => {
                self.take(above, syntax::size("above", above.get_ref(), ABOVE)).map(Delegate::Above)
            }
        }?;
        if let (Delegate::All | Delegate::Share(_), true) = (delegate, pool.has_one_node()) {
            let what = format!(
                "delegate \"{delegate}\" in pool {:?}, which has no other node, at least two nodes are \
                 needed",
                pool.name.get_ref()
            );
            self.at(place, what);
        }
        Some(delegate)
    }
}

/// All requests of a connection have the same client, but not the same path, field or cookie.
fn default_balance(hash: &HashKey) -> Balance {
    match hash {
        HashKey::Client => Balance::Connection,
        HashKey::Path | HashKey::Header(_) | HashKey::Cookie(_) => Balance::Request,
    }
}
