//! What all connections of an endpoint have in common.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::budgets::Budgets;
use super::insurer::Insurer;
use super::load::Loads;
use super::log::Book;
use super::peers::Peers;
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
}

impl Shared {
    /// The service of this name, as it is configured now.
    pub(super) fn service(&self, name: &str) -> Option<Arc<Service>> {
        self.services.load().named(name).cloned()
    }

    /// Ids of the pools of which this node is an outlier.
    pub(super) fn failing(&self) -> Vec<u32> {
        self.services.load().iter().flat_map(|service| service.failing()).collect()
    }
}
