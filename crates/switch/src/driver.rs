//! Runs the dispatcher: passes it records and the time, writes its output to maps and sockets.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::Wrapping;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use switchback_config::{Cluster, Node, Rank};
use switchback_runtime::marks;
use switchback_runtime::netlink::Socket;
use switchback_runtime::privileges;
use switchback_runtime::{Doing, Error, Result, events, interface, monotonic_ns, since_1970};
use switchback_status::switch::{
    DispatchStatus, InterfaceStatus, ListenerView, LoadStatus, NodeView, ServiceStatus, SwitchStatus,
};
use switchback_survey::Responder;
use switchback_wire::clock::NodeClock;
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
use crate::ids::NodeIds;
use crate::nexthop::{self, Macs, Route};
use crate::observe::{Clock, Names, Observer, ObserverMessage};
use crate::plan::{Conditions, LocalMachine, NodeId, Plan};
use crate::program::{Program, Ways};
use crate::reports::ReportWait;
use crate::sender::Sender;
use crate::switches::Switches;
use crate::watch::Watch;

/// Capacity of the map `nodes`.
const NODES: usize = 1024;
/// Interval of looking up routes, neighbours and keys.
const TICK: Duration = Duration::from_secs(1);
/// Interval of these lookups while a next hop is unresolved after the start.
const IMPATIENT_TICK: Duration = Duration::from_millis(20);
/// Number of machines whose routes are looked up before packets have their turn again.
const RESOLVED_AT_ONCE: usize = 64;
/// Interval of looking for dead nodes, and for idle flows while a node drains.
const SWEEP: Duration = Duration::from_millis(100);
/// Records after which output is sent although more records wait.
const FLUSH_AT: usize = 64;
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

/// The dispatcher with its sockets, maps and timers.
pub struct Driver<'a> {
    program: Option<&'a Program>,
    cluster: Cluster,
    ids: NodeIds,
    keys: Keys,
    cpus: u32,
    dispatcher: Dispatcher,
    sender: Sender,
    netlink: Socket,
    nudge_sockets: HashMap<bool, UdpSocket>,
    /// Answers `switchback test`; None before the start.
    responder: Option<Responder>,
    routes: HashMap<IpAddr, Route>,
    /// Machines whose routes are still to be looked up in this tick, and their nodes.
    unresolved: BTreeMap<IpAddr, Vec<(NodeId, NodeAddress)>>,
    /// How XDP sends, by the index of the interface.
    ways: HashMap<u32, Ways>,
    announcers: Vec<Announcer>,
    bank: usize,
    ahead: Ahead,
    reports: ReportWait,
    batch: usize,
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
}

impl<'a> Driver<'a> {
    /// Opens the sockets; nothing is attached yet. `zone` is this machine's zone, `here` the name of the local node.
    pub fn new(
        cluster: Cluster,
        zone: Option<&str>,
        here: Option<&str>,
        program: &Program,
    ) -> Result<Driver<'a>> {
        let known: HashMap<NodeId, sb_node> = program.nodes().into_iter().collect();
        let places = known.iter().map(|(id, node)| (*id, NodeAddress::from_wire(node.address)));
        let ids = new_ids(&NodeIds::restore(places), &cluster)?;
        let keys = Keys::new(&cluster.keys, since_1970());
        let place = LocalMachine { zone, node: here };
        let mut plan = Plan::new(&cluster, keys.sign(), ids.all().clone(), place, Duration::ZERO);
        let (started, booted) = (Instant::now(), Duration::from_nanos(monotonic_ns()));
        for node in known.values().filter(|node| node.clock != 0) {
            if let Some(node_at) = plan.node_at(NodeAddress::from_wire(node.address)) {
                plan.restore_clock(node_at, NodeClock::from_ahead(node.clock).since(booted));
            }
        }
        let mut nudge_sockets = HashMap::new();
        for v6 in [false, true] {
            if cluster.nodes.iter().any(|node| node.address.is_ipv6() == v6) {
                nudge_sockets.insert(v6, take_port(v6)?);
            }
        }
        Ok(Driver {
            program: None,
            ids,
            keys,
            cpus: program.rings.len() as u32,
            dispatcher: Dispatcher::new(plan, random()),
            sender: Sender::new(here.is_some()).doing(|| "open raw sockets")?,
            netlink: Socket::route().doing(|| "open a netlink socket")?,
            nudge_sockets,
            responder: None,
            routes: HashMap::new(),
            unresolved: BTreeMap::new(),
            ways: HashMap::new(),
            announcers: Vec::new(),
            bank: 0,
            ahead: Ahead::new(cluster.reports.interval),
            reports: ReportWait::default(),
            batch: 0,
            started,
            booted,
            ticked: Duration::ZERO,
            tick: TICK,
            leaving: None,
            ending: None,
            zone: zone.map(str::to_owned),
            here: here.map(str::to_owned),
            sweep: None,
            looked: Duration::ZERO,
            written_nodes: known,
            switches: Switches::default(),
            watch: Watch::default(),
            observer: None,
            cluster,
        })
    }

    /// Fills the maps, announces the VIPs, and drops the capabilities that only the start needs.
    pub fn start(mut self, program: &'a Program) -> Result<Driver<'a>> {
        self.program = Some(program);
        program.set_settings(&self.settings())?;
        // Nodes that have left the configuration still get their messages accepted.
        self.written_nodes.iter().try_for_each(|(id, node)| program.set_node(*id, node))?;
        self.resolve(program)?;
        for attached in &program.attached {
            let announcer = Announcer::new(attached.ifindex, attached.mac);
            self.announcers.push(announcer.doing(|| format!("open a packet socket on {}", attached.name))?);
        }
        privileges::keep_only(program.needs_to_detach())?;
        let sockets = self.nudge_sockets.values().map(UdpSocket::try_clone).collect::<std::io::Result<_>>();
        let sockets = sockets.doing(|| "share the sockets of handoff packets")?;
        self.responder = Some(Responder::start(sockets, &self.cluster.key_bytes())?);
        self.set_vips(program)?;
        self.set_observer(program)?;
        self.dispatcher.list_flows(self.now());
        self.say_hello();
        self.flush();
        Ok(self)
    }

    /// Starts or stops the observer as the configuration says.
    fn set_observer(&mut self, program: &Program) -> Result<()> {
        let log = self.cluster.access_log.clone();
        if log.is_none() && self.cluster.admin.is_none() {
            self.dispatcher.set_observes(false);
            program.stop_observing();
            self.observer = None;
            return Ok(());
        }
        let limits = self.dispatcher.plan().http_limits();
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
        self.observer = Some(Observer::start(clock, names, log, program.observe()?)?);
        self.dispatcher.set_observes(true);
        Ok(())
    }

    /// Opens the access log again after it was renamed.
    pub fn reopen_log(&self) {
        self.observer.iter().for_each(|observer| observer.send(ObserverMessage::Reopen));
    }

    fn settings(&self) -> sb_switch_settings {
        let Rank { number, is_alone } = self.cluster.rank;
        let keys = self.keys.settings();
        let nodes = self.cluster.nodes.len().max(1) as u32;
        let questions = PROBES.in_time(QUESTIONS_PERIOD) / self.cpus / nodes;
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

    fn program(&self) -> &'a Program {
        self.program.expect("start() comes before everything else")
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Handles one ring buffer record.
    pub fn on_record(&mut self, data: &[u8]) {
        let Some(record) = read_from::<sb_record>(data) else { return };
        let packet = &data[size_of::<sb_record>()..];
        let len = (record.len as usize).min(packet.len());
        let packet = &packet[..len];
        let is_handoff = record.kind == sb_record_kind::SB_RECORD_HANDOFF as u32;
        match is_handoff.then(|| sb_op::from_number(record.option.op)).flatten() {
            Some(sb_op::SB_OP_FACTS) => return self.on_facts(&record, packet),
            Some(sb_op::SB_OP_FLOWS) => self.on_flows(&record, packet),
            Some(sb_op::SB_OP_SWITCHES) => return self.on_switches(&record, packet),
            op => {
                if op == Some(sb_op::SB_OP_REPORT) {
                    self.reports.note();
                }
                let (program, now) = (self.program(), self.now());
                if self.ahead.is_over(now) {
                    self.begin_ahead(program, now);
                }
                let at = Moment { now, map: &|flow| program.flow(flow) };
                self.dispatcher.on_record(at, &record, packet);
            }
        }
        self.batch += 1;
        if self.batch >= FLUSH_AT {
            self.flush();
        }
    }

    /// Handles a FACTS packet from a node.
    fn on_facts(&mut self, record: &sb_record, packet: &[u8]) {
        if self.observer.is_none() {
            return;
        }
        if let Some((node, numbered, facts)) = self.records(record, packet) {
            self.dispatcher.on_facts(node, numbered, &facts);
        }
    }

    /// Handles a packet of a node's list of flows.
    fn on_flows(&mut self, record: &sb_record, packet: &[u8]) {
        let Some((node, numbered, flows)) = self.records(record, packet) else { return };
        let is_last = u32::from(record.option.flags) & SB_FLOWS_LAST != 0;
        let program = self.program();
        let at = Moment { now: self.now(), map: &|flow| program.flow(flow) };
        self.dispatcher.on_flows(at, node, (numbered, is_last), &flows);
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
        let node = self.dispatcher.seen().node_at(NodeAddress::from_wire(record.node))?;
        let (numbered, records) = records::read(&packet[view.data..view.end], &self.keys.accepted())?;
        Some((node, numbered, records))
    }

    /// Time until the next deadline.
    pub fn timeout(&self) -> Duration {
        if !self.unresolved.is_empty() {
            return Duration::ZERO;
        }
        let now = self.now();
        let tick = (self.ticked + self.tick).saturating_sub(now);
        let deadline = self.dispatcher.deadline().map_or(tick, |deadline| deadline.saturating_sub(now));
        let sweep = self.sweep.map_or(tick, |sweep| sweep.saturating_sub(now));
        let reports = self.reports.ends(now).map_or(tick, |ends| ends - now);
        tick.min(deadline).min(sweep).min(reports).min(self.leaves_in().unwrap_or(tick))
    }

    fn tick_length(&self) -> Duration {
        let here = self.here_at();
        let unresolved = self.cluster.nodes.iter().filter(|node| Some(node.address) != here).any(|node| {
            let route = self.routes.get(&node.address);
            route.is_none_or(|route| route.macs.is_none())
        });
        if unresolved && self.now() < TICK * 2 { IMPATIENT_TICK } else { TICK }
    }

    /// Does the work that is due.
    pub fn on_time(&mut self) {
        let now = self.now();
        let program = self.program();
        if now >= self.looked + SWEEP {
            self.looked = now;
            self.write_dead(program);
            let nodes = self.node_views();
            events::log_all(&self.watch.look(&nodes, now));
        }
        self.dispatcher.on_time(Moment { now, map: &|flow| program.flow(flow) });
        if self.dispatcher.plan().standing_changed {
            self.write_members(program);
            self.withdraw_ahead(program, now);
            self.take_back(program);
        }
        if let Some(until) = self.reports.begin(now, self.cluster.reports.interval) {
            program.set_reports_wait((self.booted + until).as_nanos() as u64);
        }
        self.begin_ahead(program, now);
        self.with_ahead(program, now, |ahead, policies, shared| ahead.fill(now, policies, shared));
        if self.sweep.is_some_and(|sweep| now >= sweep) {
            self.take_back(program);
        }
        self.flush();
        if !self.unresolved.is_empty() {
            if let Err(error) = self.resolve_some(program) {
                log::error!("{error}");
            }
            return;
        }
        if now < self.ticked + self.tick {
            return;
        }
        self.ticked = now;
        events::log_all(&self.watch.look_at_drops(|counter| program.counter(counter)));
        events::log_all(&self.watch.compare(&self.cluster_view()));
        let mut result = self.begin_resolving(program).and_then(|()| self.resolve_some(program));
        self.say_hello();
        self.flush();
        if self.keys.turn(since_1970()) {
            result = result.and(program.set_settings(&self.settings()));
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
        self.dispatcher.pending() == 0 || ending.elapsed() > patience
    }

    fn flush(&mut self) {
        self.batch = 0;
        self.dispatcher.acknowledge();
        let program = self.program();
        self.set_clocks(program);
        let output = &mut self.dispatcher.output;
        if output.is_empty() {
            return;
        }
        if let Err(error) = program.change_flows(&output.changes) {
            log::error!("{error}");
        }
        self.sender.send(output.packets());
        if let Err(error) = program.change_flows(&output.moves) {
            log::error!("{error}");
        }
        if let Some(observer) = self.observer.as_ref().filter(|_| !output.observed.is_empty()) {
            observer.send(ObserverMessage::Observations(std::mem::take(&mut output.observed)));
        }
        output.clear();
    }

    /// Writes the nodes on whose flows the program may forward requests itself.
    fn write_members(&mut self, program: &Program) {
        let now = self.now();
        let plan = self.dispatcher.plan();
        plan.standing_changed = false;
        let pools = self.cluster.pools.len();
        program.with_tables(|tables| tables.write_members(self.bank, pools, |pool| plan.keepers(pool, now)));
    }

    /// Begins a period of choices made ahead if the last one is over.
    fn begin_ahead(&mut self, program: &Program, now: Duration) {
        // Both clocks are CLOCK_MONOTONIC.
        let ends = (self.booted + now + self.cluster.reports.interval).as_nanos() as u64;
        self.with_ahead(program, now, |ahead, policies, shared| {
            ahead.begin_period(now, ends, policies, shared)
        });
    }

    /// Withdraws what the policies have chosen ahead.
    fn withdraw_ahead(&mut self, program: &Program, now: Duration) {
        self.with_ahead(program, now, Ahead::withdraw);
    }

    fn with_ahead<T>(
        &mut self,
        program: &Program,
        now: Duration,
        work: impl FnOnce(&mut Ahead, &mut dyn Choosers, &mut Shared<'_>) -> T,
    ) -> T {
        let at = Moment { now, map: &|flow| program.flow(flow) };
        let Driver { ahead, dispatcher, written_nodes, .. } = self;
        let mut policies = Policies { dispatcher, written_nodes, at };
        program.with_choices(|shared| work(ahead, &mut policies, shared))
    }

    /// Sets up what the policies choose ahead, in the bank that the VIPs are about to name.
    fn set_up_ahead(&mut self, program: &Program) -> HashMap<SocketAddr, VipPlaces> {
        let plan = self.dispatcher.plan();
        let groups = plan.groups_ahead().into_iter().map(|(group, pool, vip)| {
            let most = plan.group_state(group).map_or(0, Group::most_ahead) as u32;
            GroupAhead { group, pool, vip, share: plan.share(group), most }
        });
        let groups: Vec<GroupAhead> = groups.collect();
        let (bank, period, pools) = (self.bank, self.cluster.reports.interval, self.cluster.pools.len());
        self.with_ahead(program, self.now(), |ahead, policies, shared| {
            ahead.set_up((bank, period), (pools, &groups), policies, shared)
        })
    }

    /// Writes to the program which nodes have died or come back.
    fn write_dead(&mut self, program: &Program) {
        let changes = self.dispatcher.plan().new_dead(self.looked);
        if !changes.is_empty() {
            self.dispatcher.tell_deaths(self.looked);
        }
        for (id, dead) in changes {
            let Some(node) = self.written_nodes.get_mut(&id) else { continue };
            node.dead = dead.into();
            if let Err(error) = program.set_node(id, node) {
                log::error!("{error}");
            }
        }
    }

    /// A node's clock in the representation of the program.
    fn clock_of(&self, id: NodeId) -> u64 {
        let clock = self.dispatcher.seen().node(id).and_then(|node| node.clock);
        clock.map_or(0, |clock| clock.beside(self.booted).ahead())
    }

    /// Writes changed clocks to the program.
    fn set_clocks(&mut self, program: &Program) {
        for id in self.dispatcher.plan().new_clocks() {
            let clock = self.clock_of(id);
            let Some(node) = self.written_nodes.get_mut(&id) else { continue };
            node.clock = clock;
            if let Err(error) = program.set_node(id, node) {
                log::error!("{error}");
            }
        }
    }

    /// Releases idle flows of draining nodes.
    fn take_back(&mut self, program: &Program) {
        let plan = self.dispatcher.plan();
        let (any, draining) = (plan.is_any_draining(), plan.draining_with_flows());
        // The report that says "no flows" may be older than the node's latest flow.
        self.sweep = any.then(|| self.now() + SWEEP);
        if draining.is_empty() {
            return;
        }
        let at = Moment { now: self.now(), map: &|flow| program.flow(flow) };
        match program.unlocked_flows(&draining) {
            Ok(flows) => {
                flows.into_iter().for_each(|(flow, entry)| self.dispatcher.take_back(at, &flow, entry));
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
        if !self.dispatcher.order_drain(name, on) {
            let names: Vec<&str> = self.cluster.nodes.iter().map(|node| node.name.as_str()).collect();
            return Err(Error::new(format!("there is no node {name}"))
                .remedy(format!("there are {}", names.join(", "))));
        }
        let what = if on { "drains: its connections go to other nodes" } else { "drains no more" };
        Ok(vec![format!("node {name} {what}")])
    }

    /// Looks how XDP can send on each interface, and tells the program.
    fn look_at_interfaces(&mut self, program: &Program) -> Result<()> {
        for attached in &program.attached {
            // An interface that is gone sends nothing.
            let ways = attached.ways().unwrap_or_default();
            if self.ways.insert(attached.ifindex, ways) != Some(ways) {
                program.set_interface(attached.ifindex, attached.mac, ways)?;
            }
        }
        Ok(())
    }

    /// Looks up the routes to all nodes and updates program and dispatcher.
    fn resolve(&mut self, program: &Program) -> Result<()> {
        self.begin_resolving(program)?;
        while !self.unresolved.is_empty() {
            self.resolve_some(program)?;
        }
        Ok(())
    }

    fn begin_resolving(&mut self, program: &Program) -> Result<()> {
        self.look_at_interfaces(program)?;
        let here = self.here_at();
        let mut local = Vec::new();
        self.unresolved.clear();
        for (address, id) in self.ids.all() {
            if Some(address.machine) == here {
                local.push((*id, *address));
            } else {
                self.unresolved.entry(address.machine).or_default().push((*id, *address));
            }
        }
        local.into_iter().try_for_each(|(id, address)| self.set_here(program, id, address))
    }

    /// Looks up the routes to some of the machines that are left.
    fn resolve_some(&mut self, program: &Program) -> Result<()> {
        let mut macs = Macs::new();
        for _ in 0..RESOLVED_AT_ONCE {
            let Some((machine, nodes)) = self.unresolved.pop_first() else { break };
            let route = nexthop::route(&mut self.netlink, &mut macs, machine);
            let route = route.doing(|| format!("ask for the route to {machine}"))?;
            // Keeps the kernel's neighbour entry fresh, because packets forwarded by XDP do not use it.
            if let Some(socket) = self.nudge_sockets.get(&machine.is_ipv6()) {
                let _ = socket.send_to(&[], (machine, SB_GENEVE_PORT as u16));
            }
            match route {
                Some(route) => self.routes.insert(machine, route),
                None => self.routes.remove(&machine),
            };
            for (id, address) in nodes {
                self.set_route(program, (id, address), route)?;
            }
        }
        if self.unresolved.is_empty() {
            self.tick = self.tick_length();
        }
        Ok(())
    }

    /// Writes the entry of a node with this route.
    fn set_route(
        &mut self,
        program: &Program,
        (id, address): (NodeId, NodeAddress),
        route: Option<Route>,
    ) -> Result<()> {
        let mut node = sb_node { address: address.to_wire(), ..Default::default() };
        if let Some(route) = route {
            node.source = address_bytes(route.source);
            if let (Some((theirs, ours)), Some(ways)) = (route.macs, self.ways.get(&route.ifindex)) {
                (node.ifindex, node.ways) = (route.ifindex, ways.0);
                (node.next_hop, node.our_mac) = (theirs, ours);
            }
        }
        node.dead = self.written_nodes.get(&id).map_or(0, |known| known.dead);
        node.clock = self.clock_of(id);
        if self.written_nodes.get(&id) != Some(&node) {
            program.set_node(id, &node)?;
            self.written_nodes.insert(id, node);
        }
        if let Some(planned) = self.dispatcher.plan().node_mut(id) {
            planned.source = route.map(|route| route.source);
        }
        Ok(())
    }

    /// Address of the nodes of this machine.
    fn here_at(&self) -> Option<IpAddr> {
        let is_here = |name: &str| self.here.as_deref() == Some(name);
        self.cluster.nodes.iter().find(|node| is_here(&node.name)).map(|node| node.address)
    }

    /// The entry of a local node, which needs no route.
    fn set_here(&mut self, program: &Program, id: NodeId, address: NodeAddress) -> Result<()> {
        let source = address_bytes(address.machine);
        let ifindex = program.attached.first().map_or(0, |attached| attached.ifindex);
        let dead = self.written_nodes.get(&id).map_or(0, |known| known.dead);
        let clock = self.clock_of(id);
        let address = address.to_wire();
        let node = sb_node { address, source, ifindex, here: 1, dead, clock, ..Default::default() };
        program.set_node(id, &node)?;
        self.written_nodes.insert(id, node);
        if let Some(planned) = self.dispatcher.plan().node_mut(id) {
            planned.source = Some(address_from(source));
        }
        Ok(())
    }

    fn set_vips(&mut self, program: &Program) -> Result<()> {
        let mut mtu = LONGEST_PACKET;
        for attached in &program.attached {
            mtu = mtu.min(interface::mtu(&attached.name)?);
        }
        let v6 = self.cluster.nodes.iter().any(|node| node.address.is_ipv6());
        let overhead = if v6 { OVERHEAD_V6 } else { OVERHEAD_V4 } as u32;
        self.bank = 1 - self.bank;
        let now = self.now();
        let plan = self.dispatcher.plan();
        plan.standing_changed = false;
        let members = |pool| plan.keepers(pool, now);
        let express = program.with_tables(|tables| tables.write(self.bank, &self.cluster, members));
        let places = self.set_up_ahead(program);
        let mut vips = HashMap::new();
        for (service, vip) in std::iter::zip(&self.cluster.services, express) {
            for address in &service.listen {
                let headers = if address.is_ipv4() { 40 } else { 60 };
                let mss = mtu.saturating_sub(overhead + headers);
                let VipPlaces { places, listener } = places.get(address).copied().unwrap_or_default();
                let vip = sb_vip { mss, places, listener, ..vip };
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
        let program = self.program();
        self.keys.replace(&cluster.keys);
        self.responder.iter().for_each(|responder| responder.set_keys(&cluster.key_bytes()));
        let now = self.now();
        let place = LocalMachine { zone: self.zone.as_deref(), node: self.here.as_deref() };
        let plan = Plan::new(&cluster, self.keys.sign(), ids.all().clone(), place, now);
        self.withdraw_ahead(program, now);
        self.dispatcher.replace_plan(plan);
        self.ids = ids;
        let names =
            |cluster: &Cluster| cluster.switches.iter().map(|switch| switch.name.clone()).collect::<Vec<_>>();
        if names(&self.cluster) != names(&cluster) {
            self.switches.clear();
        }
        self.cluster = cluster;
        program.set_settings(&self.settings())?;
        self.resolve(program)?;
        self.set_vips(program)?;
        self.set_observer(program)?;
        self.say_hello();
        self.take_back(program);
        self.flush();
        Ok(if lines.is_empty() { vec!["nothing changed".to_string()] } else { lines })
    }

    /// Status for the control socket and the admin page. The returned closure counts flows and should run in another
    /// thread.
    pub fn status(&self) -> Result<impl FnOnce() -> Result<SwitchStatus> + Send + 'static> {
        let flows = self.program().flow_counter()?;
        let status = self.status_without_flows();
        Ok(move || Ok(SwitchStatus { flows: flows()?, ..status }))
    }

    /// What this switch knows of the cluster's machines, without counts.
    fn cluster_view(&self) -> SwitchStatus {
        let own = self.own();
        SwitchStatus {
            version: own.software.version().unwrap_or_default(),
            config: own.software.config_digits().unwrap_or_default(),
            nodes: self.node_views(),
            switches: self.switches.views(&self.cluster.switches, &own, self.now()),
            ..SwitchStatus::default()
        }
    }

    fn status_without_flows(&self) -> SwitchStatus {
        let program = self.program();
        let interfaces = program.attached.iter().map(|attached| InterfaceStatus {
            name: attached.name.clone(),
            mode: attached.mode.name().to_owned(),
            kernel_sends: self.ways.get(&attached.ifindex) == Some(&Ways::default()),
        });
        let requests = &self.dispatcher.stats.services;
        let services = self.cluster.services.iter().enumerate().map(|(index, service)| ServiceStatus {
            name: service.name.clone(),
            listen: service.listen.clone(),
            routes: self.cluster.routes_in_words(service),
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
            nodes: view.nodes.into_iter().map(|node| self.with_counts(node)).collect(),
            dispatch: self.dispatch_status(),
            counters: counters.map(|counter| (counter.name().into(), program.counter(*counter))).collect(),
            responses: self.observer.as_ref().map(Observer::totals),
            events: events::recent(),
            ..view
        }
    }

    /// The nodes in the configuration's order, without counts.
    fn node_views(&self) -> Vec<NodeView> {
        let conditions = self.dispatcher.seen().conditions(self.now());
        self.cluster.nodes.iter().map(|node| self.node_view(node, &conditions)).collect()
    }

    fn node_view(&self, node: &Node, conditions: &[Vec<Conditions>]) -> NodeView {
        let (now, plan) = (self.now(), self.dispatcher.seen());
        let id = self.ids.all()[&node.handoff_address()];
        let here = self.here_at() == Some(node.address);
        let route = self.routes.get(&node.address);
        let listeners = conditions.get(id.index()).into_iter().flatten();
        let listeners = listeners.map(|(pool, vip, condition, queue)| ListenerView {
            pool: self.cluster.pools[*pool].name.clone(),
            listen: Some(*vip),
            state: condition.name().to_owned(),
            queue: queue.len,
            queue_limit: queue.limit,
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

    /// Adds what the program and the dispatcher have counted.
    fn with_counts(&self, node: NodeView) -> NodeView {
        let Some(of) = self.cluster.nodes.iter().find(|of| of.name == node.name) else { return node };
        let id = self.ids.all()[&of.handoff_address()];
        let counts = self.dispatcher.stats.nodes.get(id.index()).cloned().unwrap_or_default();
        NodeView {
            requests: counts.requests + self.program().express_by_node(id),
            adopted: counts.adopted + self.program().placed_by_node(id),
            refused: counts.refused,
            released: counts.released,
            ..node
        }
    }

    /// Asks all nodes for reports, and tells them of this switch.
    fn say_hello(&mut self) {
        self.dispatcher.set_own(self.own());
        self.dispatcher.ask_for_reports();
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
            ..self.dispatcher.own()
        }
    }

    fn is_learning(&self) -> bool {
        !self.cluster.rank.is_alone && self.dispatcher.lists_flows() && self.now() < LEARNING
    }

    fn dispatch_status(&self) -> DispatchStatus {
        DispatchStatus {
            pending: self.dispatcher.pending() as u64,
            waiting: self.dispatcher.crowded() as u64,
            held_bytes: self.dispatcher.held() as u64,
            send_failed: self.sender.failed,
            counts: self.dispatcher.stats.counts.clone(),
        }
    }
}

/// The policies of a dispatcher, and the nodes that the program can give flows.
struct Policies<'a> {
    dispatcher: &'a mut Dispatcher,
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
    }

    fn has_waiting(&self, group: usize) -> bool {
        self.dispatcher.has_waiting(group)
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
    old.with(&addresses, NODES)
        .ok_or_else(|| Error::new(format!("there is no place for more than {NODES} nodes")))
}

/// Binds the port of handoff packets for one address family, so that no other program's traffic uses it.
fn take_port(v6: bool) -> Result<UdpSocket> {
    let (family, any) = if v6 {
        (AddressFamily::Inet6, IpAddr::from(Ipv6Addr::UNSPECIFIED))
    } else {
        (AddressFamily::Inet, IpAddr::from(Ipv4Addr::UNSPECIFIED))
    };
    let address = SockaddrStorage::from(SocketAddr::new(any, SB_GENEVE_PORT as u16));
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let bound = socket(family, SockType::Datagram, flags, None).and_then(|socket| {
        if v6 {
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
        }
        bind(socket.as_raw_fd(), &address)?;
        Ok(UdpSocket::from(socket))
    });
    bound.map_err(|error| {
        Error::cannot(format!("take UDP port {SB_GENEVE_PORT}, which handoff packets use"), error)
            .remedy(format!("`ss -ulnp sport = {SB_GENEVE_PORT}` shows who has it"))
    })
}

/// Random numbers for the policies: SipHash of a counter under the standard library's per-map keys, which come from the
/// kernel.
fn random() -> Box<dyn FnMut() -> u64 + Send> {
    use std::hash::BuildHasher;
    let state = std::hash::RandomState::new();
    let mut counter = 0u64;
    Box::new(move || {
        counter += 1;
        state.hash_one(counter)
    })
}
