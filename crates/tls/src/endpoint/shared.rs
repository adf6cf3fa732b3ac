//! What all connections of an endpoint have in common.

use std::sync::Arc;

use arc_swap::ArcSwap;
use switchback_config::Mirror;

use super::budgets::Budgets;
use super::flow::Addresses;
use super::insurer::Insurer;
use super::load::Loads;
use super::local::LocalNode;
use super::log::Book;
use super::mirror::{Copy, MirrorServer, Mirrored, Mirrors};
use super::peers::Peers;
use super::pools::Mirroring;
use super::rates::Rates;
use super::services::{Service, Services};
use super::transit::{Expected, Handoff, Leaving};
use crate::{Issued, TicketKeys};

/// What all services and connections have in common.
pub(crate) struct Shared {
    /// Replaced as a whole at a reload.
    pub(super) services: ArcSwap<Services>,
    pub(super) peers: Arc<Peers>,
    pub(super) handoff: Arc<dyn Handoff>,
    pub(super) insurer: Arc<dyn Insurer>,
    pub(super) budgets: Arc<Budgets>,
    pub(super) rates: Rates,
    pub(super) ticket_keys: Arc<TicketKeys>,
    pub(super) issued: Arc<Issued>,
    pub(super) expected: Expected,
    pub(super) leaving: Leaving,
    pub(super) loads: Arc<Loads>,
    pub(super) log: Arc<Book>,
    /// Copies of requests for other machines.
    pub(super) mirrors: Mirrors,
    /// Copies of requests for servers of this one.
    pub(super) mirrored: Mirrored,
}

impl Shared {
    /// The service of this name, as it is configured now.
    pub(super) fn service(&self, name: &str) -> Option<Arc<Service>> {
        self.services.load().named(name).cloned()
    }

    /// The service as it is configured now; as it is known if it is configured no more.
    pub(super) fn current(&self, known: &Arc<Service>) -> Arc<Service> {
        self.service(&known.name).unwrap_or_else(|| Arc::clone(known))
    }

    /// The node of this machine under whose number a connection has come.
    pub(super) fn node_of(&self, service: &Service, flow: Addresses) -> Arc<LocalNode> {
        Arc::clone(service.node_of(|| self.handoff.number(flow)))
    }

    /// Sends the copy of a request to a server of the pool that mirrors it.
    pub(super) fn mirror(&self, service: &Service, mirror: Mirror, greeting: Vec<u8>, request: Vec<u8>) {
        let Some((pool, node, other)) = service.mirroring(mirror).and_then(Mirroring::next) else { return };
        let server = MirrorServer { service: service.name.to_string(), pool, node };
        let copy = Copy { server, greeting, request };
        match other {
            Some(agent) => self.mirrors.send(agent, copy),
            None => self.mirrored.take(copy),
        }
    }

    /// Ids of the pools of which the nodes of this machine are outliers.
    pub(super) fn failing(&self) -> Vec<u32> {
        self.services.load().iter().flat_map(|service| service.failing()).collect()
    }
}
