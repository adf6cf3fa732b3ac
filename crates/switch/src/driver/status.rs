//! The status of the switch.

use switchback_config::Node;
use switchback_runtime::{Result, events};
use switchback_status::CopyStatus;
use switchback_status::switch::{
    DispatchStatus, InterfaceStatus, ListenerView, LoadStatus, NodeView, ServiceStatus, SwitchStatus,
};
use switchback_wire::SwitchCounter;

use super::Driver;
use crate::dispatch::Stats;
use crate::observe::Observer;
use crate::plan::Place;
use crate::program::Ways;
use crate::threads::Counts;

impl Driver<'_> {
    /// Status for the control socket and the admin page. The returned closure counts flows and should run in another
    /// thread.
    pub fn status(&self) -> Result<impl FnOnce() -> Result<SwitchStatus> + Send + 'static> {
        let flows = self.program.flow_counter()?;
        let status = self.status_without_flows();
        Ok(move || Ok(SwitchStatus { flows: flows()?, ..status }))
    }

    /// What this switch knows of the cluster's machines, without counts.
    pub(super) fn cluster_view(&self) -> SwitchStatus {
        let own = self.own();
        SwitchStatus {
            version: own.software.version().unwrap_or_default(),
            config: own.software.config_digits().unwrap_or_default(),
            config_version: self.cluster.version,
            nodes: self.node_views(),
            switches: self.switches.views(&self.cluster.switches, &own, self.now()),
            ..SwitchStatus::default()
        }
    }

    fn status_without_flows(&self) -> SwitchStatus {
        let program = self.program;
        let interfaces = program.attached.iter().map(|attached| InterfaceStatus {
            name: attached.name.clone(),
            mode: attached.mode.name().to_owned(),
            kernel_sends: self.ways.get(&attached.ifindex) == Some(&Ways::default()),
        });
        let counts = self.counts();
        let requests = &counts.stats.services;
        let services = self.cluster.services.iter().enumerate().map(|(index, service)| ServiceStatus {
            name: service.name.clone(),
            listen: service.listen.clone(),
            routes: self.cluster.routes_in_words(service),
            limits: service.admitted.shown().chain(service.limits.shown()).collect(),
            requests: requests.get(index).copied().unwrap_or(0) + program.express_by_service(index as u32),
        });
        let counters = SwitchCounter::ALL.iter();
        let view = self.cluster_view();
        SwitchStatus {
            interfaces: interfaces.collect(),
            uptime_s: self.now().as_secs(),
            learning: self.is_learning(),
            leaving: self.leaving.is_some(),
            flows: 0,
            services: services.collect(),
            nodes: view.nodes.into_iter().map(|node| self.with_counts(node, &counts.stats)).collect(),
            dispatch: self.dispatch_status(&counts),
            copies: CopyStatus {
                sent: self.mirrors.counts().sent.get(),
                dropped: self.mirrors.counts().dropped.get(),
                ..CopyStatus::default()
            },
            counters: counters.map(|counter| (counter.name().into(), program.counter(*counter))).collect(),
            responses: self.observer.as_ref().map(Observer::totals),
            events: events::recent(),
            ..view
        }
    }

    /// The nodes in the configuration's order, without counts.
    pub(super) fn node_views(&self) -> Vec<NodeView> {
        let places = self.worker.dispatcher.seen().places(self.now());
        self.cluster.nodes.iter().map(|node| self.node_view(node, &places)).collect()
    }

    fn node_view(&self, node: &Node, places: &[Vec<Place>]) -> NodeView {
        let (now, plan) = (self.now(), self.worker.dispatcher.seen());
        let id = self.ids.all()[&node.handoff_address()];
        let here = self.here_at() == Some(node.address);
        let route = self.routes.get(&node.address);
        let listeners = places.get(id.index()).into_iter().flatten();
        let listeners = listeners.map(|(pool, vip, view)| ListenerView {
            pool: self.cluster.pools[*pool].name.clone(),
            listen: Some(*vip),
            state: view.condition.name().to_owned(),
            queue: view.queue.len,
            queue_limit: view.queue.limit,
            ejections: view.ejections,
            mirrors: !self
                .cluster
                .services
                .iter()
                .any(|service| service.listen.contains(vip) && service.is_answered_by(*pool)),
        });
        let report = plan.node(id).and_then(|node| node.report).map(|(_, report)| report);
        NodeView {
            name: node.name.clone(),
            address: Some(node.address),
            here,
            resolved: here || route.is_some_and(|route| route.macs.is_some()),
            draining: plan.is_draining(id),
            silent: plan.is_silent(id, now),
            dead: plan.is_dead(id, now),
            newest_version: report.map(|report| report.newest),
            version: report.and_then(|report| report.software.version()),
            config: report.and_then(|report| report.software.config_digits()),
            load: report.map(|report| LoadStatus {
                flows: report.flows,
                in_flight: report.in_flight,
                first_byte_us: report.first_byte.map(|time| time.as_micros() as u64),
                cpu_permille: report.cpu,
            }),
            listeners: listeners.collect(),
            ..NodeView::default()
        }
    }

    /// The statistics of all threads.
    fn counts(&self) -> Counts {
        let own = self.worker.counts();
        self.others.counts().iter().fold(own, |mut sum, other| {
            sum.stats.add(&other.stats);
            Counts { send_failed: sum.send_failed + other.send_failed, ..sum }
        })
    }

    /// Adds what the program and the dispatcher have counted.
    fn with_counts(&self, node: NodeView, stats: &Stats) -> NodeView {
        let Some(of) = self.cluster.nodes.iter().find(|of| of.name == node.name) else { return node };
        let id = self.ids.all()[&of.handoff_address()];
        let counts = stats.nodes.get(id.index()).cloned().unwrap_or_default();
        NodeView {
            requests: counts.requests + self.program.express_by_node(id),
            adopted: counts.adopted + self.program.placed_by_node(id),
            refused: counts.refused,
            released: counts.released,
            ..node
        }
    }

    fn dispatch_status(&self, counts: &Counts) -> DispatchStatus {
        DispatchStatus {
            pending: self.worker.dispatcher.pending() as u64,
            waiting: self.worker.dispatcher.crowded() as u64,
            held_bytes: self.worker.dispatcher.held() as u64,
            send_failed: counts.send_failed,
            counts: counts.stats.counts.clone(),
        }
    }
}
