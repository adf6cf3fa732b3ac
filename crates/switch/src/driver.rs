//! The first L7 thread: besides its flows, it has all that belongs to no flow.

mod next_hops;
mod opened;
mod status;

pub use opened::Opened;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::Wrapping;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use libbpf_rs::MapHandle;
use switchback_config::{Cluster, MAX_NODES, Node, Rank};
use switchback_runtime::marks;
use switchback_runtime::netlink::Socket;
use switchback_runtime::{Doing, Error, Result, events, interface, monotonic_ns, since_1970};
use switchback_survey::Responder;
use switchback_tls::endpoint::Mirrors;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::{OVERHEAD_V4, OVERHEAD_V6};
use switchback_wire::packet::TcpView;
use switchback_wire::records::{Numbered, Record};
use switchback_wire::switches::{Software, SwitchHeard, SwitchSelf, SwitchState};
use switchback_wire::*;

use crate::ahead::{Ahead, Choosers, GroupAhead, Shared, VipPlaces};
use crate::announce::Announcer;
use crate::cookies::{ALL_SLOTS, Keys};
use crate::dispatch::seeking::PROBES;
use crate::dispatch::{Dispatcher, Moment};
use crate::group::Group;
use crate::guards::Listed;
use crate::ids::NodeIds;
use crate::nexthop::Route;
use crate::observe::{Clock, Names, Observer, ObserverMessage, Reporter};
use crate::plan::NodeId;
use crate::program::{Program, Ways};
use crate::recount::Recounter;
use crate::reports::ReportWait;
use crate::switches::Switches;
use crate::threads::{Others, PlanParts, Work, Worker, read_record};
use crate::watch::Watch;

/// Interval of looking up routes, neighbours and keys.
const TICK: Duration = Duration::from_secs(1);
/// Interval of these lookups while a next hop is unresolved after the start.
const IMPATIENT_TICK: Duration = Duration::from_millis(20);
/// Interval of looking for dead nodes, and for idle flows while a node drains.
const SWEEP: Duration = Duration::from_millis(100);
/// Period of the program's budget for probes.
pub const QUESTIONS_PERIOD: Duration = Duration::from_millis(100);
/// Time after the start within which a switch beside others is not ready before it has the nodes' flows.
const LEARNING: Duration = Duration::from_secs(2);
/// Time for which a switch beside others serves after it was told to end: longer than health scripts take to see it.
const LEAVING: Duration = Duration::from_secs(2);
/// Largest budget of a CPU per period, in probes.
const QUESTIONS_MAX: u32 = 160;
/// Longest client packet that the switch requests, in bytes; a record can carry it.
const LONGEST_PACKET: u32 = 1500;

/// The first L7 thread.
pub struct Driver<'a> {
    program: &'a Program,
    cluster: Arc<Cluster>,
    ids: NodeIds,
    keys: Keys,
    worker: Worker<'a>,
    others: Others,
    netlink: Socket,
    nudge_sockets: HashMap<bool, UdpSocket>,
    /// Answers `switchback test`.
    responder: Responder,
    routes: HashMap<IpAddr, Route>,
    /// Machines whose routes are still to be looked up in this tick, and their nodes.
    unresolved: BTreeMap<IpAddr, Vec<(NodeId, NodeAddress)>>,
    /// How XDP sends, by the index of the interface.
    ways: HashMap<u32, Ways>,
    announcers: Vec<Announcer>,
    bank: usize,
    listed: Listed,
    ahead: Ahead,
    reports: ReportWait,
    started: Instant,
    /// CLOCK_MONOTONIC at `started`.
    booted: Duration,
    ticked: Duration,
    tick: Duration,
    /// When the switch began to leave its packets to other switches.
    leaving: Option<Instant>,
    ending: Option<Instant>,
    zone: Option<String>,
    /// Name of the local node.
    here: Option<String>,
    /// Time of the next search for flows of draining nodes.
    sweep: Option<Duration>,
    /// Time of the last check for dead nodes.
    looked: Duration,
    /// Node entries as written to the program, by id.
    written_nodes: HashMap<NodeId, sb_node>,
    /// What nodes tell of the cluster's switches.
    switches: Switches,
    watch: Watch,
    /// Access log and metrics; None if neither is configured.
    observer: Option<Observer>,
    recounter: Recounter,
    /// Where copies of requests go.
    mirrors: Arc<Mirrors>,
}

impl<'a> Driver<'a> {
    /// Fills the maps, announces the VIPs, and asks the nodes for reports.
    fn begin(&mut self) -> Result<()> {
        self.program.set_settings(&self.settings())?;
        // Nodes that have left the configuration still get their messages accepted.
        self.written_nodes.iter().try_for_each(|(id, node)| self.program.set_node(*id, node))?;
        self.resolve()?;
        self.set_vips()?;
        self.recounter.set(&self.cluster);
        self.set_observer()?;
        let now = self.now();
        self.worker.dispatcher.list_flows(now);
        self.say_hello();
        self.flush();
        Ok(())
    }

    /// Starts or stops the observer as the configuration says.
    fn set_observer(&mut self) -> Result<()> {
        let log = self.cluster.access_log.clone();
        if log.is_none() && self.cluster.admin.is_none() {
            self.program.stop_observing();
            self.set_reporter(None);
            self.observer = None;
            return Ok(());
        }
        let limits = self.worker.dispatcher.plan().http_limits();
        let names = Arc::new(Names::new(&self.cluster, self.ids.all(), limits));
        if let Some(observer) = &self.observer {
            observer.send(ObserverMessage::Names(names));
            observer.send(ObserverMessage::Log(log));
            return Ok(());
        }
        let clock = Clock {
            started: self.started,
            monotonic_ns: monotonic_ns().saturating_sub(self.started.elapsed().as_nanos() as u64),
            wall: Timestamp::now() - self.started.elapsed(),
        };
        let observer = Observer::start(clock, names, log, self.program.observe()?)?;
        self.set_reporter(observer.reporter());
        self.observer = Some(observer);
        Ok(())
    }

    fn set_reporter(&mut self, reporter: Option<&Reporter>) {
        self.worker.set_reporter(reporter.cloned());
        self.others.report_to(reporter);
    }

    /// Opens the access log again after it was renamed.
    pub fn reopen_log(&self) {
        self.observer.iter().for_each(|observer| observer.send(ObserverMessage::Reopen));
    }

    fn settings(&self) -> sb_switch_settings {
        let Rank { number, is_alone } = self.cluster.rank;
        let keys = self.keys.settings();
        let machines: HashSet<IpAddr> = self.cluster.nodes.iter().map(|node| node.address).collect();
        let machines = machines.len().max(1) as u32;
        let questions = PROBES.in_time(QUESTIONS_PERIOD) / self.program.cpus() / machines;
        sb_switch_settings {
            is_node: self.here.is_some().into(),
            questions: questions.clamp(1, QUESTIONS_MAX),
            period: QUESTIONS_PERIOD.as_nanos() as u64,
            switch_number: u32::from(number) % SB_COOKIE_SWITCHES,
            generation: Generation::first(number).next_attempt().number(),
            shared_slots: if is_alone { keys.shared_slots } else { ALL_SLOTS },
            ..keys
        }
    }

    fn now(&self) -> Duration {
        self.worker.now()
    }

    /// The rings of this thread.
    pub fn rings(&self) -> &'a [MapHandle] {
        self.worker.rings()
    }

    /// Readable when the other threads have left notes.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.others.bell()
    }

    /// Reads the notes of the other threads.
    pub fn read_notes(&mut self) -> Result<()> {
        if self.others.read()? {
            self.worker.dispatcher.want_lists();
        }
        Ok(())
    }

    /// Handles a FACTS packet from a node.
    fn on_facts(&mut self, record: &sb_record, packet: &[u8]) {
        if self.observer.is_none() {
            return;
        }
        if let Some((node, numbered, facts)) = self.records(record, packet) {
            self.worker.dispatcher.on_facts(node, numbered, &facts);
        }
    }

    /// Handles a packet of a node's list of flows.
    fn on_flows(&mut self, record: &sb_record, packet: &[u8]) {
        let Some((node, numbered, flows)) = self.records(record, packet) else { return };
        let is_last = u32::from(record.option.flags) & SB_FLOWS_LAST != 0;
        let now = self.now();
        if self.worker.dispatcher.is_next_of_list(now, node, numbered, is_last) {
            let own = self.others.take_listed(node, flows);
            self.worker.with_record(|dispatcher, at| {
                own.iter().for_each(|listed| dispatcher.on_listed(at, node, listed));
            });
        }
    }

    /// Handles what a node tells of the switches that it hears.
    fn on_switches(&mut self, record: &sb_record, packet: &[u8]) {
        if let Some((node, _, heard)) = self.records::<sb_switch_heard>(record, packet) {
            let heard: Vec<SwitchHeard> = heard.iter().map(SwitchHeard::from_wire).collect();
            self.switches.take(node, &heard, self.cluster.switches.len(), self.now());
        }
    }

    /// The records in a packet from a node.
    fn records<R: Record>(&self, record: &sb_record, packet: &[u8]) -> Option<(NodeId, Numbered, Vec<R>)> {
        let view = TcpView::parse(packet)?;
        let node = self.worker.dispatcher.seen().node_at(NodeAddress::from_wire(record.node))?;
        let (numbered, records) = records::read(&packet[view.data..view.end], &self.keys.accepted())?;
        Some((node, numbered, records))
    }

    fn tick_if_due(&mut self) {
        let now = self.now();
        if now < self.ticked + self.tick {
            return;
        }
        self.ticked = now;
        events::log_all(&self.watch.look_at_drops(|counter| self.program.counter(counter)));
        events::log_all(&self.watch.compare(&self.cluster_view()));
        let mut result = self.begin_resolving().and_then(|()| self.resolve_some());
        self.say_hello();
        self.flush();
        if self.keys.turn(since_1970()) {
            result = result.and(self.program.set_settings(&self.settings()));
        }
        if let Err(error) = result {
            log::error!("{error}");
        }
    }

    /// Leaves the packets to other switches: `ready` says no from now on.
    pub fn leave(&mut self) {
        self.leaving.get_or_insert_with(Instant::now);
    }

    /// Time until others have the packets; None if the switch stays.
    pub fn leaves_in(&self) -> Option<Duration> {
        let patience = if self.cluster.rank.is_alone { Duration::ZERO } else { LEAVING };
        self.leaving.map(|since| patience.saturating_sub(since.elapsed()))
    }

    /// Whether no handoff is in progress, or `patience` has passed since the first call.
    pub fn settle(&mut self, patience: Duration) -> bool {
        let ending = *self.ending.get_or_insert_with(Instant::now);
        self.worker.dispatcher.pending() == 0 || ending.elapsed() > patience
    }

    fn flush(&mut self) {
        self.worker.dispatcher.acknowledge();
        self.write_changed();
        let heard = self.worker.flush();
        self.others.hear(heard);
    }

    /// Writes the nodes on whose flows the program may forward requests itself.
    fn write_members(&mut self) {
        let now = self.now();
        let plan = self.worker.dispatcher.plan();
        plan.standing_changed = false;
        let pools = self.cluster.pools.len();
        let members = |pool| plan.keepers(pool, now);
        self.program.with_tables(|tables| tables.write_members(self.bank, pools, members));
    }

    /// Begins a period of choices made ahead if the last one is over.
    fn begin_ahead(&mut self) {
        let now = self.now();
        // Both clocks are CLOCK_MONOTONIC.
        let ends = (self.booted + now + self.cluster.reports.interval).as_nanos() as u64;
        self.with_ahead(|ahead, policies, shared| ahead.begin_period(now, ends, policies, shared));
    }

    fn with_ahead<T>(&mut self, work: impl FnOnce(&mut Ahead, &mut dyn Choosers, &mut Shared<'_>) -> T) -> T {
        let Driver { program, worker, others, ahead, written_nodes, .. } = self;
        worker.with(|dispatcher, at| {
            let mut policies = Policies { dispatcher, others, written_nodes, at };
            program.with_choices(|shared| work(ahead, &mut policies, shared))
        })
    }

    /// Sets up what the policies choose ahead, in the bank that the VIPs are about to name.
    fn set_up_ahead(&mut self) -> HashMap<SocketAddr, VipPlaces> {
        let plan = self.worker.dispatcher.plan();
        let groups = plan.groups_ahead().into_iter().map(|(group, pool, vip)| {
            let most = plan.group_state(group).map_or(0, Group::most_ahead) as u32;
            GroupAhead { group, pool, vip, share: plan.share(group), most }
        });
        let groups: Vec<GroupAhead> = groups.collect();
        let (bank, period, pools) = (self.bank, self.cluster.reports.interval, self.cluster.pools.len());
        self.with_ahead(|ahead, policies, shared| {
            ahead.set_up((bank, period), (pools, &groups), policies, shared)
        })
    }

    /// Writes to the program which nodes have died or come back.
    fn write_dead(&mut self) {
        let changes = self.worker.dispatcher.plan().new_dead(self.looked);
        if !changes.is_empty() {
            self.worker.dispatcher.tell_deaths(self.looked);
        }
        for (id, dead) in changes {
            let Some(node) = self.written_nodes.get_mut(&id) else { continue };
            node.dead = dead.into();
            if let Err(error) = self.program.set_node(id, node) {
                log::error!("{error}");
            }
        }
    }

    /// A node's clock in the representation of the program.
    fn clock_of(&self, id: NodeId) -> u64 {
        let clock = self.worker.dispatcher.seen().node(id).and_then(|node| node.clock);
        clock.map_or(0, |clock| clock.beside(self.booted).ahead())
    }

    /// Writes changed clocks to the program.
    fn write_changed(&mut self) {
        for id in self.worker.dispatcher.changed_nodes() {
            let clock = self.clock_of(id);
            let Some(node) = self.written_nodes.get_mut(&id).filter(|node| node.clock != clock) else {
                continue;
            };
            node.clock = clock;
            if let Err(error) = self.program.set_node(id, node) {
                log::error!("{error}");
            }
        }
    }

    /// Releases idle flows of draining nodes.
    fn take_back(&mut self) {
        let plan = self.worker.dispatcher.plan();
        let (any, draining) = (plan.is_any_draining(), plan.draining_with_flows());
        // The report that says "no flows" may be older than the node's latest flow.
        self.sweep = any.then(|| self.now() + SWEEP);
        if draining.is_empty() {
            return;
        }
        match self.program.unlocked_flows(&draining) {
            Ok(flows) => {
                let own = self.others.take_back(flows);
                self.worker.with(|dispatcher, at| {
                    own.into_iter().for_each(|(flow, entry)| dispatcher.take_back(at, &flow, entry));
                });
            }
            Err(error) => log::error!("{error}"),
        }
    }

    /// Drains a node or ends the drain, effective at the next [`Self::on_time`]; the result is the line for the
    /// operator.
    pub fn drain(&mut self, name: &str, on: bool) -> Result<Vec<String>> {
        let from_file = self.cluster.nodes.iter().any(|node| node.name == name && node.drain);
        if !on && from_file {
            return Err(Error::new(format!("the configuration drains node {name}"))
                .remedy("remove drain = true from it, and reload"));
        }
        if !self.worker.dispatcher.order_drain(name, on) {
            let names: Vec<&str> = self.cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(Error::new(format!("there is no node {name}"))
                .remedy(format!("there are {}", names.join(", "))));
        }
        let what = if on { "drains: its connections go to other nodes" } else { "drains no more" };
        Ok(vec![format!("node {name} {what}")])
    }

    fn set_vips(&mut self) -> Result<()> {
        let program = self.program;
        let mut mtu = LONGEST_PACKET;
        for attached in &program.attached {
            mtu = mtu.min(interface::mtu(&attached.name)?);
        }
        let v6 = self.cluster.nodes.iter().any(|node| node.address.is_ipv6());
        let overhead = if v6 { OVERHEAD_V6 } else { OVERHEAD_V4 } as u32;
        self.bank = 1 - self.bank;
        let now = self.now();
        let plan = self.worker.dispatcher.plan();
        plan.standing_changed = false;
        let members = |pool| plan.keepers(pool, now);
        let express = program.with_tables(|tables| tables.write(self.bank, &self.cluster, members));
        let guards = program.guards().write(self.bank, &self.cluster, &mut self.listed)?;
        let places = self.set_up_ahead();
        let mut vips = HashMap::new();
        let services = std::iter::zip(&self.cluster.services, std::iter::zip(express, guards));
        for (service, (vip, guard)) in services {
            for address in &service.listen {
                let headers = if address.is_ipv4() { 40 } else { 60 };
                let mss = mtu.saturating_sub(overhead + headers);
                let VipPlaces { places, listener } = places.get(address).copied().unwrap_or_default();
                let vip = sb_vip { mss, places, listener, guard, ..vip };
                vips.insert(bytes_of(&endpoint(*address)).to_vec(), vip);
            }
        }
        program.set_vips(&vips)?;
        for address in self.cluster.services.iter().flat_map(|service| &service.listen) {
            for announcer in &self.announcers {
                announcer.announce(address.ip()).doing(|| format!("announce {}", address.ip()))?;
            }
        }
        Ok(())
    }

    /// Applies a changed configuration completely or not at all; the lines say what changed.
    pub fn reload(&mut self, cluster: Cluster) -> Result<Vec<String>> {
        let ids = new_ids(&self.ids, &cluster)?;
        let lines = self.cluster.diff(&cluster);
        self.keys.replace(&cluster.keys);
        self.responder.set_keys(&cluster.key_bytes());
        self.mirrors.set_keys(&cluster.key_bytes());
        let now = self.now();
        self.with_ahead(Ahead::withdraw);
        let names =
            |cluster: &Cluster| cluster.switches.iter().map(|switch| switch.name.clone()).collect::<Vec<_>>();
        if names(&self.cluster) != names(&cluster) {
            self.switches.clear();
        }
        (self.cluster, self.ids) = (Arc::new(cluster), ids);
        let parts = self.parts();
        self.worker.dispatcher.replace_plan(parts.plan(0, now));
        self.others.replace(&parts);
        self.program.set_settings(&self.settings())?;
        self.resolve()?;
        self.set_vips()?;
        self.recounter.set(&self.cluster);
        self.set_observer()?;
        self.say_hello();
        self.take_back();
        self.flush();
        Ok(if lines.is_empty() { vec!["nothing changed".to_string()] } else { lines })
    }

    fn parts(&self) -> PlanParts {
        PlanParts {
            cluster: Arc::clone(&self.cluster),
            key: self.keys.sign(),
            ids: self.ids.all().clone(),
            zone: self.zone.clone(),
            here: self.here.clone(),
        }
    }

    /// Asks all nodes for reports, and tells them of this switch.
    fn say_hello(&mut self) {
        self.worker.dispatcher.set_own(self.own());
        self.worker.dispatcher.ask_for_reports();
    }

    /// What this switch says of itself now.
    fn own(&self) -> SwitchSelf {
        let is_withdrawn = || marks::is_withdrawn().unwrap_or(false);
        let state = match () {
            () if self.leaving.is_some() => SwitchState::Leaving,
            () if is_withdrawn() => SwitchState::Withdrawn,
            () if self.is_learning() => SwitchState::Learning,
            () => SwitchState::Serving,
        };
        SwitchSelf {
            number: (!self.cluster.switches.is_empty()).then_some(self.cluster.rank.number),
            software: Software::with(self.cluster.hash),
            state: Some(state),
            ..self.worker.dispatcher.own()
        }
    }

    fn is_learning(&self) -> bool {
        !self.cluster.rank.is_alone && self.worker.dispatcher.lists_flows() && self.now() < LEARNING
    }
}

impl<'a> Work<'a> for Driver<'a> {
    fn on_record(&mut self, data: &[u8]) {
        let Some((record, packet)) = read_record(data) else { return };
        let is_handoff = record.kind == sb_record_kind::SB_RECORD_HANDOFF as u32;
        match is_handoff.then(|| sb_op::from_number(record.option.op)).flatten() {
            Some(sb_op::SB_OP_FACTS) => return self.on_facts(&record, packet),
            Some(sb_op::SB_OP_FLOWS) => self.on_flows(&record, packet),
            Some(sb_op::SB_OP_SWITCHES) => return self.on_switches(&record, packet),
            Some(sb_op::SB_OP_SIZED | sb_op::SB_OP_SYNCED) => self.worker.on_record(&record, packet),
            Some(sb_op::SB_OP_REPORT) => {
                self.reports.note();
                self.worker.on_record(&record, packet);
            }
            // Of the local node's records, which come on one ring, other threads have some.
            _ if self.others.take_record(&record.flow, data) => return,
            _ => {
                if self.ahead.is_over(self.now()) {
                    self.begin_ahead();
                }
                self.worker.on_record(&record, packet);
            }
        }
        if self.worker.is_full() {
            self.flush();
        }
    }

    fn on_time(&mut self) {
        let now = self.now();
        if now >= self.looked + SWEEP {
            self.looked = now;
            self.write_dead();
            let nodes = self.node_views();
            events::log_all(&self.watch.look(&nodes, now));
        }
        self.worker.with(|dispatcher, at| dispatcher.on_time(at));
        if self.worker.dispatcher.plan().standing_changed {
            self.write_members();
            self.with_ahead(Ahead::withdraw);
            self.take_back();
        }
        if let Some(until) = self.reports.begin(now, self.cluster.reports.interval) {
            self.program.set_reports_wait((self.booted + until).as_nanos() as u64);
        }
        self.begin_ahead();
        self.with_ahead(|ahead, policies, shared| ahead.fill(now, policies, shared));
        if self.sweep.is_some_and(|sweep| now >= sweep) {
            self.take_back();
        }
        self.flush();
        if self.unresolved.is_empty() {
            self.tick_if_due();
        } else if let Err(error) = self.resolve_some() {
            log::error!("{error}");
        }
    }

    fn timeout(&self) -> Duration {
        if !self.unresolved.is_empty() {
            return Duration::ZERO;
        }
        let now = self.now();
        let tick = (self.ticked + self.tick).saturating_sub(now);
        let deadline =
            self.worker.dispatcher.deadline().map_or(tick, |deadline| deadline.saturating_sub(now));
        let sweep = self.sweep.map_or(tick, |sweep| sweep.saturating_sub(now));
        let reports = self.reports.ends(now).map_or(tick, |ends| ends - now);
        tick.min(deadline).min(sweep).min(reports).min(self.leaves_in().unwrap_or(tick))
    }

    fn worker(&self) -> &Worker<'a> {
        &self.worker
    }
}

/// The policies of a dispatcher, and the nodes that the program can give flows.
struct Policies<'a> {
    dispatcher: &'a mut Dispatcher,
    others: &'a Others,
    written_nodes: &'a HashMap<NodeId, sb_node>,
    at: Moment<'a>,
}

impl Choosers for Policies<'_> {
    fn choose_ahead(&mut self, group: usize, count: usize, now: Duration) -> Vec<NodeId> {
        let is_usable = |node: &sb_node| node.ifindex != 0 && node.clock != 0 && node.dead == 0;
        let usable = |id: NodeId| self.written_nodes.get(&id).is_some_and(is_usable);
        self.dispatcher.choose_ahead(now, group, count, usable)
    }

    fn choices_used(&mut self, group: usize, count: u32) {
        self.dispatcher.plan().group_mut(group).into_iter().for_each(|group| group.choices_used(count));
    }

    fn withdraw_choices(&mut self, group: usize) {
        self.dispatcher.plan().group_mut(group).into_iter().for_each(Group::withdraw_choices);
        self.dispatcher.admit_any(self.at, group);
        self.others.admit(group);
    }

    fn has_waiting(&self, group: usize) -> bool {
        self.dispatcher.has_waiting(group) || self.others.has_waiting(group)
    }

    fn adoptions(&self, group: usize) -> Wrapping<u32> {
        self.dispatcher.seen().group_state(group).map_or(Wrapping(0), Group::adoptions)
    }

    fn note_queues(&mut self, group: usize, noted: &dyn Fn(NodeId) -> u32, now: Duration) {
        self.dispatcher.plan().group_mut(group).into_iter().for_each(|group| group.note_queues(noted, now));
    }
}

fn new_ids(old: &NodeIds, cluster: &Cluster) -> Result<NodeIds> {
    let addresses: Vec<NodeAddress> = cluster.nodes.iter().map(Node::handoff_address).collect();
    old.with(&addresses, MAX_NODES)
        .ok_or_else(|| Error::new(format!("there is no place for more than {MAX_NODES} nodes")))
}
