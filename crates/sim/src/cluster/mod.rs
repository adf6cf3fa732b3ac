//! A cluster under a virtual clock.
//!
//! A connection arrives at a switch, which works on its handshake and its request and chooses a node by the
//! [`Balancer`] of real switches. At the node it waits in the accept queue, is served, and its response leaves by the
//! node's link. Acknowledgments cost the switch time, but delay no request. A connection with more requests stays with
//! its node, or each of them is dispatched.
//!
//! With TLS the node does the handshake first, full or resumed. With forwarding a busy node then hands over the
//! connection, or the request, to a less loaded one, by the rule of real nodes and by the last reports of the others.

mod ahead;
mod changes;
mod dispatch;
mod finish;
mod sessions;
mod statistics;
mod workload;

use std::collections::VecDeque;
use std::time::Duration;

use switchback_policy::{Availability, Balancer, Load, Member, Queue, Work};

use crate::events::{Events, SECOND, Time, after};
use crate::measure::Outcome;
use crate::scenario::{Balance, Costs, Nodes, Scenario, ScenarioError};
use crate::station::{Job, Offered, Station};
use ahead::Ahead;
use statistics::Statistics;
use workload::Workload;

const MICRO: f64 = 1e3;
const KIB: f64 = 1024.0;
/// Data of a full segment in bytes.
const SEGMENT: f64 = 1448.0;
const ACKNOWLEDGED: f64 = 2.0;
/// Bytes on a link for each byte of data: a full segment has 66 bytes of headers (Ethernet, IPv4, TCP with
/// timestamps).
const WIRE: f64 = (SEGMENT + 66.0) / SEGMENT;
/// Bytes of an acknowledgment and of a request on a link.
const ACK_BYTES: f64 = 66.0;
const REQUEST_BYTES: f64 = 500.0;
/// Time from the end of a connection to the start of the next in a closed loop, in nanoseconds.
const AGAIN: f64 = 1e3;
/// Job of acknowledgments, which no request waits for.
const NOBODY: Job = Job::MAX;
/// The absence of a node.
const NONE: u32 = u32::MAX;
/// Weight of a new latency in the mean, as in the nodes' reports.
const LATENCY_WEIGHT: f64 = 0.125;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    /// A job may be done at a station.
    Done {
        station: u32,
        epoch: u32,
    },
    /// The client sends its next request, or a node is known to be dead.
    Resume(Job),
    /// Nodes report their loads to each other.
    Tell,
    /// Nodes report to the switch.
    Report,
    Change(u32),
    /// The warm-up ends.
    Measure,
}

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Switch,
    /// At the connection's node: the TLS handshake.
    Handshake,
    /// Wait until a node is known to be dead.
    Silence,
    /// At the first node: reading of a request that is handed over.
    Giving,
    /// At the server.
    Service,
    /// At the first node: passing on of another node's response.
    Passing,
    Link,
    /// Wait between two requests.
    Thinking,
}

#[derive(Clone, Debug)]
struct Flow {
    client: u32,
    /// Remaining requests, this one included.
    left: u32,
    /// When the client sent the request.
    asked: Time,
    bytes: f64,
    stage: Stage,
    switch: u32,
    /// Node of the connection, and node that serves the request.
    node: u32,
    worker: u32,
    /// Whether the node has had no request of the connection yet.
    is_new: bool,
}

struct Node {
    cpu: u32,
    link: u32,
    /// Speed of its link.
    nanos_per_byte: f64,
    speed: f64,
    cores: f64,
    is_dead: bool,
    /// Number of requests that it serves for others.
    taken: u32,
    /// Mean of the last latencies, in nanoseconds.
    latency: Option<f64>,
    /// Its last report, and the CPU time used until then.
    told: Work,
    used_when_told: f64,
}

impl Node {
    /// A node of this kind, whose station `cpu` comes before that of its link.
    fn new(kind: &Nodes, cpu: u32) -> Self {
        Node {
            cpu,
            link: cpu + 1,
            nanos_per_byte: 8e3 / kind.link_mbit,
            speed: kind.speed,
            cores: kind.cores.into(),
            is_dead: false,
            taken: 0,
            latency: None,
            told: Work::default(),
            used_when_told: 0.0,
        }
    }
}

/// The state of a run.
pub(crate) struct Cluster<'a> {
    scenario: &'a Scenario,
    now: Time,
    until: Time,
    events: Events<Event>,
    worked_off: u64,
    workload: Workload,
    stations: Vec<Station>,
    switches: u32,
    turn: u32,
    nodes: Vec<Node>,
    /// State of each node as the switch knows it, without choices made ahead: nodes report with every adoption.
    loads: Vec<Load>,
    balancer: Balancer,
    ahead: Ahead,
    flows: Vec<Flow>,
    free: Vec<Job>,
    held: VecDeque<Job>,
    /// Node of each client's session.
    sessions: Vec<u32>,
    statistics: Statistics,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64) -> Result<Self, ScenarioError> {
        let kinds = scenario.nodes.iter().flat_map(|kind| (0..kind.count).map(move |_| kind));
        let switches = scenario.switch.count;
        let cores = scenario.switch.cores;
        let mut stations: Vec<Station> =
            (0..switches).map(|_| Station::new(cores.into(), cores as usize, usize::MAX)).collect();
        let mut nodes = Vec::new();
        let (mut loads, mut members) = (Vec::new(), Vec::new());
        for kind in kinds {
            let slots = kind.workers.map_or(usize::MAX, |workers| workers as usize);
            nodes.push(Node::new(kind, stations.len() as u32));
            stations.push(Station::new(kind.cores.into(), slots, kind.accept_queue as usize));
            stations.push(Station::shared());
            loads.push(Load {
                availability: Availability::Up,
                up_since: Duration::ZERO,
                queue: Queue { len: 0, limit: kind.accept_queue },
                in_flight: 0,
                flows: 0,
                latency: None,
            });
            members.push(Member { name: format!("node{}", members.len()), weight: kind.weight, near: true });
        }
        let slow_start = Duration::from_secs_f64(scenario.pool.slow_start_s);
        let mut balancer = Balancer::new(scenario.pool.policy.0, members, slow_start);
        loads.iter().enumerate().for_each(|(index, load)| balancer.note(index, *load));
        let ahead = Ahead::new(&scenario.pool, nodes.len());
        let sessions =
            scenario.tls.iter().flat_map(|_| vec![NONE; scenario.clients.count as usize]).collect();
        Ok(Cluster {
            scenario,
            now: 0,
            until: after(0, (scenario.warm_up_s + scenario.seconds) * SECOND),
            events: Events::new(),
            worked_off: 0,
            workload: Workload::new(scenario, seed)?,
            statistics: Statistics::new(stations.len()),
            stations,
            switches,
            turn: 0,
            nodes,
            loads,
            balancer,
            ahead,
            flows: Vec::new(),
            free: Vec::new(),
            held: VecDeque::new(),
            sessions,
        })
    }

    pub(crate) fn run(mut self) -> Outcome {
        self.events.add(after(0, self.scenario.warm_up_s * SECOND), Event::Measure);
        for (index, change) in self.scenario.changes.iter().enumerate() {
            self.events.add(after(0, change.at_s * SECOND), Event::Change(index as u32));
        }
        if self.tells() {
            self.events.add(0, Event::Tell);
        }
        if self.ahead.is_used() {
            self.events.add(0, Event::Report);
        }
        match self.scenario.arrivals.at_a_time {
            Some(count) => (0..count).for_each(|number| self.events.add(number.into(), Event::Arrival)),
            None => self.next_arrival(),
        }
        while let Some((at, event)) = self.events.next() {
            if at > self.until {
                break;
            }
            self.now = at;
            self.worked_off += 1;
            match event {
                Event::Arrival => self.arrive(),
                Event::Done { station, epoch } => {
                    if let Some(job) = self.stations[station as usize].finish(at, epoch) {
                        self.announce(station);
                        if job != NOBODY {
                            self.go_on(job);
                        }
                        if !self.held.is_empty() {
                            self.dispatch_held();
                        }
                    }
                }
                Event::Resume(job) => self.resume(job),
                Event::Tell => self.tell(),
                Event::Report => self.report(),
                Event::Change(index) => self.change(self.scenario.changes[index as usize]),
                Event::Measure => self.statistics.begin(self.now, &mut self.stations),
            }
        }
        self.now = self.until;
        self.finish()
    }

    fn costs(&self) -> &'a Costs {
        &self.scenario.costs
    }

    /// Changes the state of a node as the switch knows it, and tells the balancer, with the choices made ahead.
    fn note(&mut self, node: u32, change: impl FnOnce(&mut Load)) {
        let load = &mut self.loads[node as usize];
        change(load);
        self.balancer.note(node as usize, load.with_ahead(self.ahead.count(node)));
    }

    /// Tells the balancer the length of the queue, if the station is a node's processors.
    fn note_queue(&mut self, station: u32) {
        if let Some(node) = station.checked_sub(self.switches).filter(|place| place % 2 == 0) {
            let waiting = self.stations[station as usize].waiting() as u32;
            self.note(node / 2, |load| load.queue.len = waiting);
        }
    }

    fn announce(&mut self, station: u32) {
        self.note_queue(station);
        if let Some((at, epoch)) = self.stations[station as usize].announce(self.now) {
            self.events.add(at, Event::Done { station, epoch });
        }
    }

    fn offer(&mut self, station: u32, job: Job, work: f64) -> Offered {
        let offered = self.stations[station as usize].offer(self.now, job, work);
        self.announce(station);
        offered
    }

    fn next_arrival(&mut self) {
        if let Some(interval) = self.workload.interval() {
            self.events.add(after(self.now, interval), Event::Arrival);
        }
    }

    fn arrive(&mut self) {
        self.next_arrival();
        let flow = Flow {
            client: self.workload.client(),
            left: self.workload.requests(self.scenario.clients.requests),
            asked: self.now,
            bytes: 0.0,
            stage: Stage::Switch,
            switch: self.turn,
            node: NONE,
            worker: NONE,
            is_new: true,
        };
        self.turn = (self.turn + 1) % self.switches;
        let job = match self.free.pop() {
            Some(job) => {
                self.flows[job as usize] = flow;
                job
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as Job - 1
            }
        };
        self.ask(job);
    }

    /// Handles a request's arrival at the switch.
    fn ask(&mut self, job: Job) {
        let bytes = self.workload.bytes();
        self.statistics.count_in_system(self.now, true);
        self.statistics.count(|outcome| &mut outcome.offered);
        let flow = &mut self.flows[job as usize];
        flow.asked = self.now;
        flow.bytes = bytes;
        flow.stage = Stage::Switch;
        let (switch, is_new) = (flow.switch, flow.is_new);
        let costs = self.costs();
        // A request that stays is passed on as any packet is; under TLS it cannot be read.
        let is_dispatched = is_new || self.scenario.pool.balance == Balance::Request && self.tls().is_none();
        let work = match (is_new, is_dispatched) {
            (true, _) => costs.switch_connection_us + costs.switch_request_us,
            (false, true) => costs.switch_request_us,
            (false, false) => costs.switch_packet_us,
        };
        self.statistics.switch_bytes += REQUEST_BYTES;
        let _ = self.offer(switch, job, work * MICRO);
    }

    /// Moves a job on when a stage is done.
    fn go_on(&mut self, job: Job) {
        match self.flows[job as usize].stage {
            Stage::Switch => self.leave_switch(job),
            Stage::Handshake => self.begin_service(job),
            Stage::Giving => self.hand_to_worker(job),
            Stage::Service => self.leave_service(job),
            Stage::Passing => self.begin_link(job, self.flows[job as usize].node),
            Stage::Link => self.answer(job),
            Stage::Silence | Stage::Thinking => unreachable!("nobody serves it"),
        }
    }

    fn leave_switch(&mut self, job: Job) {
        let flow = &self.flows[job as usize];
        let stays = !flow.is_new
            && (self.tls().is_some() || self.scenario.pool.balance == Balance::Connection)
            && self.loads[flow.node as usize].availability != Availability::Down;
        if stays {
            self.reach_node(job);
        } else {
            self.dispatch(job);
        }
    }

    /// Handles a request's arrival at the node that it was given to.
    fn reach_node(&mut self, job: Job) {
        let flow = &mut self.flows[job as usize];
        flow.worker = flow.node;
        let (node, is_new) = (flow.node, flow.is_new);
        self.note(node, |load| load.in_flight += 1);
        if self.nodes[node as usize].is_dead {
            return self.wait_for_silence(job);
        }
        let adoption = if is_new { self.costs().node_connection_us } else { 0.0 };
        let Some(tls) = self.tls() else { return self.serve(job, adoption) };
        match is_new {
            true => self.shake_hands(job, tls, adoption),
            false => self.begin_service(job),
        }
    }

    /// Offers a job to the processors of this node, for microseconds of a processor of speed 1.
    fn work_at(&mut self, node: u32, job: Job, micros: f64) {
        let node = &self.nodes[node as usize];
        let (cpu, work) = (node.cpu, micros * MICRO / node.speed);
        if self.offer(cpu, job, work) == Offered::Full {
            self.give_back(job);
        }
    }

    /// Starts the work of the request's node, with additional microseconds.
    fn serve(&mut self, job: Job, besides: f64) {
        let costs = self.costs();
        let service = self.workload.service_us();
        let flow = &mut self.flows[job as usize];
        flow.stage = Stage::Service;
        let encrypting = if self.scenario.tls.is_some() { costs.tls_kib_us } else { 0.0 };
        let of_length = flow.bytes / KIB * (costs.node_kib_us + encrypting);
        let worker = flow.worker;
        if self.nodes[worker as usize].is_dead {
            return self.wait_for_silence(job);
        }
        self.work_at(worker, job, besides + costs.node_request_us + service + of_length);
    }

    fn leave_service(&mut self, job: Job) {
        let flow = &mut self.flows[job as usize];
        if flow.worker == flow.node {
            let node = flow.node;
            return self.begin_link(job, node);
        }
        flow.stage = Stage::Passing;
        let (node, work) = (flow.node, flow.bytes / KIB * self.scenario.costs.relay_kib_us);
        self.work_at(node, job, work);
    }

    fn begin_link(&mut self, job: Job, node: u32) {
        let flow = &mut self.flows[job as usize];
        flow.stage = Stage::Link;
        let bytes = flow.bytes;
        let Node { link, nanos_per_byte, .. } = self.nodes[node as usize];
        let _ = self.offer(link, job, bytes * WIRE * nanos_per_byte);
    }

    /// Ends a request whose response has been sent.
    fn answer(&mut self, job: Job) {
        self.leave_nodes(job);
        self.statistics.count_in_system(self.now, false);
        let costs = self.costs();
        let flow = &mut self.flows[job as usize];
        // A new connection takes one more round trip, and the TLS handshake another.
        let round_trips = match (flow.is_new, self.scenario.tls.is_some()) {
            (false, _) => 1.0,
            (true, false) => 2.0,
            (true, true) => 3.0,
        };
        let latency = after(self.now - flow.asked, round_trips * self.scenario.clients.round_trip_us * MICRO);
        let (asked, bytes, switch, worker) = (flow.asked, flow.bytes, flow.switch, flow.worker);
        flow.left -= 1;
        flow.is_new = false;
        let is_last = flow.left == 0;
        self.statistics.answer(asked, latency, bytes);
        let node = &mut self.nodes[worker as usize];
        let before = node.latency.unwrap_or(latency as f64);
        let mean = before + LATENCY_WEIGHT * (latency as f64 - before);
        node.latency = Some(mean);
        self.note(worker, |load| load.latency = Some(Duration::from_nanos(mean as u64)));
        let acknowledgments = (bytes / SEGMENT / ACKNOWLEDGED).ceil();
        self.statistics.switch_bytes += acknowledgments * ACK_BYTES;
        if costs.switch_packet_us > 0.0 && acknowledgments > 0.0 {
            let _ = self.offer(switch, NOBODY, acknowledgments * costs.switch_packet_us * MICRO);
        }
        if is_last {
            return self.leave(job);
        }
        let think = self.workload.think_ms();
        self.flows[job as usize].stage = Stage::Thinking;
        self.events.add(after(self.now, think * 1e6), Event::Resume(job));
    }

    /// Ends the connection.
    fn leave(&mut self, job: Job) {
        let node = self.flows[job as usize].node;
        if node != NONE {
            self.note(node, |load| load.flows -= 1);
        }
        self.free.push(job);
        if self.scenario.arrivals.at_a_time.is_some() {
            // With a delay, since at this moment a refused connection would be refused again for ever.
            self.events.add(after(self.now, AGAIN), Event::Arrival);
        }
    }

    fn resume(&mut self, job: Job) {
        match self.flows[job as usize].stage {
            Stage::Silence => self.give_up_waiting(job),
            _ => self.ask(job),
        }
    }
}
