//! Judges of this machine's servers, which say whether a node is an outlier of a pool (docs/decisions/0066).
//!
//! Where the agent ends TLS, it knows the pool of each request. Of other responses the programs tell the listener, which several
//! pools may share: each of them judges by all.

use std::collections::HashMap;
use std::sync::Arc;

use switchback_tls::{Judge, Outcome};
use switchback_wire::{endpoint, sb_judgment, sb_listener};

use crate::plan::{Plan, PoolListener};

/// Names of a node, a pool and a service.
type Server = [String; 3];

/// The judges, one for each node of this machine in a pool with outliers, and each service of that.
#[derive(Debug, Default)]
pub(crate) struct Judges(HashMap<Server, Arc<Judge>>);

impl Judges {
    /// Those of a configuration, which go on from what those of the one before know.
    pub(crate) fn of(plan: &Plan, before: &Judges) -> Judges {
        let mut judges = HashMap::new();
        for listener in &plan.listeners {
            let Some(outliers) = &plan.cluster.pools[listener.pool].outliers else { continue };
            let Some(server) = plan.server_named(listener) else { continue };
            let same = before.0.get(&server);
            let judge = match same.filter(|same| *same.terms() == outliers.terms) {
                Some(same) => Arc::clone(same),
                None => Arc::new(Judge::new(outliers.terms, same.map(|judge| &**judge))),
            };
            judges.insert(server, judge);
        }
        Judges(judges)
    }

    /// The judge of a node's server for a pool of a service.
    pub(crate) fn named(&self, node: &str, pool: &str, service: &str) -> Option<&Arc<Judge>> {
        self.0.get(&[node, pool, service].map(str::to_owned))
    }
}

impl Plan {
    fn server_named(&self, listener: &PoolListener) -> Option<Server> {
        let node = &self.cluster.nodes[listener.node].name;
        let (pool, service) = (&self.cluster.pools[listener.pool].name, self.service_at(listener.address)?);
        Some([node, pool, &service.name].map(String::clone))
    }

    /// The judge of a listener's server.
    pub(crate) fn judge_of(&self, listener: &PoolListener) -> Option<&Arc<Judge>> {
        self.judges.0.get(&self.server_named(listener)?)
    }

    /// Listeners whose responses the programs tell of.
    pub(crate) fn judged(&self) -> impl Iterator<Item = sb_listener> {
        let is_judged =
            |listener: &&PoolListener| !self.ends_tls(listener.address) && self.judge_of(listener).is_some();
        let key = |listener: &PoolListener| {
            let (vip, node) = (endpoint(listener.address), self.number_of(listener));
            sb_listener { vip, node, reserved: 0 }
        };
        self.listeners.iter().filter(is_judged).map(key)
    }

    /// Has the judges note a response that the programs have told of.
    pub(crate) fn note(&self, judgment: &sb_judgment) {
        let is_its = |listener: &&PoolListener| {
            self.number_of(listener) == judgment.listener.node
                && endpoint(listener.address) == judgment.listener.vip
        };
        for judge in self.listeners.iter().filter(is_its).filter_map(|listener| self.judge_of(listener)) {
            judge.note(Outcome::Status(judgment.status));
        }
    }
}
