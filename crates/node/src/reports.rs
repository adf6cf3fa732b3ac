//! REPORT packets about the nodes' listeners, to all switches that have asked for them recently.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use switchback_runtime::events;
use switchback_runtime::listeners::{self, Listener};
use switchback_runtime::netlink::Socket;
use switchback_runtime::{Doing, Result, monotonic_ns};
use switchback_status::node::{FAILING, ListenerStatus, MemberStatus, NodeStatus, READY};
use switchback_wire::Reason;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::switches::Software;
use switchback_wire::{NodeCounter, SB_VERSION, sb_load};

use crate::acknowledged::Acknowledgments;
use crate::drains::Drains;
use crate::facts::Asker;
use crate::flow_map::{Comparison, Walk};
use crate::health::{Checks, Health};
use crate::listeners::{Queue, queue_at};
use crate::load::Load;
use crate::machine::Cpu;
use crate::plan::{OwnNode, Plan, PoolListener};
use crate::programs::{Listening, Programs, by_switch};
use crate::sender::Sender;
use crate::signer::Signer;
use crate::watch::Watch;

/// Time without HELLO after which a switch gets no more reports; a switch sends one each second.
const HEARD_FOR: Duration = Duration::from_secs(3);
/// The state of a listener whose first health check has not ended.
const NOT_CHECKED: &str = "not checked yet";
/// Interval of comparing the programs' sums with the flow map.
const WALK: Duration = Duration::from_secs(10);

/// Readiness of a listener for a pool. If several states apply, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Draining,
    NoListener,
    /// Counts as no listener, because the kernel gives it no flow.
    Mptcp,
    Unhealthy,
    /// Outlier of the pool.
    Failing,
    /// Counts as suspect.
    Unacknowledged,
}

impl State {
    fn reason(self) -> Option<Reason> {
        match self {
            State::Ready => None,
            State::Draining => Some(Reason::Draining),
            State::NoListener | State::Mptcp => Some(Reason::NoListener),
            State::Unhealthy => Some(Reason::Unhealthy),
            State::Failing => Some(Reason::Failing),
            State::Unacknowledged => Some(Reason::Unacknowledged),
        }
    }

    fn words(self) -> &'static str {
        match self {
            State::Ready => READY,
            State::Draining => "draining",
            State::NoListener => "nobody listens",
            State::Mptcp => "listens with MPTCP",
            State::Unhealthy => "unhealthy",
            State::Failing => FAILING,
            State::Unacknowledged => "nobody acknowledges responses",
        }
    }
}

/// Switches with a recent message about a node.
pub(crate) fn listening(programs: &Programs<'_>) -> Result<Vec<Listening>> {
    let oldest = monotonic_ns().saturating_sub(HEARD_FOR.as_nanos() as u64);
    let mut switches = programs.switches()?;
    switches.retain(|switch| switch.said.heard_ns >= oldest);
    Ok(switches)
}

/// Measures and sends reports on a timer.
pub(crate) struct Reporter {
    timer: TimerFd,
    diag: Socket,
    /// None if the kernel cannot list them, because it lacks the module inet_diag.
    listeners: Option<Vec<Listener>>,
    /// Addresses, and the newest versions of the format that they know.
    switches: Vec<(IpAddr, u32)>,
    /// Who gets reports of which node.
    askers: Vec<Asker>,
    /// By the node's number.
    loads: HashMap<u16, Load>,
    acknowledgments: Acknowledgments,
    /// The last comparison of the sums with the flow map has begun then.
    compared: Option<Instant>,
    comparison: Option<Walk<Comparison>>,
    cpu: Cpu,
    cpu_share: u16,
    number: u16,
}

impl Reporter {
    pub(crate) fn new(interval: Duration) -> Result<Reporter> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let reporter = Reporter {
            timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).doing(|| "make a timer for reports")?,
            diag: Socket::sock_diag().doing(|| "ask the kernel for listeners")?,
            listeners: None,
            switches: Vec::new(),
            askers: Vec::new(),
            loads: HashMap::new(),
            acknowledgments: Acknowledgments::default(),
            compared: None,
            comparison: None,
            cpu: Cpu::default(),
            cpu_share: 0,
            number: 0,
        };
        reporter.set_interval(interval)?;
        Ok(reporter)
    }

    pub(crate) fn set_interval(&self, interval: Duration) -> Result<()> {
        let every = Expiration::Interval(TimeSpec::from_duration(interval));
        self.timer.set(every, TimerSetTimeFlags::empty()).doing(|| "set the timer for reports")
    }

    /// Whether a period has ended since the last call; several count as one.
    pub(crate) fn is_due(&self) -> Result<bool> {
        match self.timer.wait() {
            Ok(()) => Ok(true),
            Err(nix::errno::Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(switchback_runtime::Error::cannot("read the timer for reports", errno)),
        }
    }

    /// Measures everything for the reports, at the end of a period.
    pub(crate) fn measure(&mut self, programs: &Programs<'_>) -> Result<()> {
        let now = Instant::now();
        self.listeners = listeners::list(&mut self.diag).ok();
        self.compare(programs, now)?;
        let sums = programs.load_sums()?;
        let begun = sums.values().fold(0, |begun: u64, sums| begun.wrapping_add(sums.first_bytes));
        self.acknowledgments.look(now, begun, programs.counter(NodeCounter::Acknowledged)?);
        for (number, sums) in sums {
            self.loads.entry(number).or_default().end_period(sums);
        }
        self.cpu_share = self.cpu.share(now);
        let listening = listening(programs)?;
        self.askers = listening.iter().map(|listening| listening.asker).collect();
        self.switches =
            by_switch(&listening).into_iter().map(|(address, heard)| (address, heard.newest)).collect();
        Ok(())
    }

    /// Share of the machine's CPU time in use in the last period, in thousandths.
    pub(crate) fn cpu_share(&self) -> u16 {
        self.cpu_share
    }

    /// Compares the sums with the flow map from time to time. The first reports wait for that.
    fn compare(&mut self, programs: &Programs<'_>, now: Instant) -> Result<()> {
        if let Some(over) = self.comparison.take_if(|comparison| comparison.is_over()) {
            self.correct(&over.result()?);
        }
        if self.compared.is_some_and(|compared| now.duration_since(compared) < WALK)
            || self.comparison.is_some()
        {
            return Ok(());
        }
        let flows = programs.flow_map()?;
        match self.compared.replace(now) {
            None => self.correct(&flows.compare()?),
            Some(_) => self.comparison = Some(Walk::begin(move || flows.compare())?),
        }
        Ok(())
    }

    fn correct(&mut self, compared: &Comparison) {
        let Comparison { before, found, after } = compared;
        let numbers: HashSet<u16> = before.keys().chain(found.keys()).chain(after.keys()).copied().collect();
        for number in numbers {
            let sums = |of: &HashMap<u16, sb_load>| of.get(&number).copied().unwrap_or_default();
            let found = found.get(&number).copied().unwrap_or_default();
            self.loads.entry(number).or_default().correct(&sums(before), found, &sums(after));
        }
    }

    /// Sends reports with the last measurements.
    pub(crate) fn send(
        &mut self,
        plan: &Plan,
        checks: &Checks,
        drains: &Drains,
        (sender, signer): (&Sender, &Signer),
    ) -> Result<()> {
        if self.askers.is_empty() {
            return Ok(());
        }
        self.number = self.number.wrapping_add(1);
        let about = |listener: &PoolListener| {
            let report = self.report(plan, listener, checks.of(listener), drains)?;
            Some((plan.number_of(listener), report))
        };
        let mut reports: Vec<(u16, Report)> = plan.listeners.iter().filter_map(about).collect();
        reports.extend(self.gone(plan).map(|number| (number, self.report_gone(plan, number))));
        let mut packets = Vec::with_capacity(reports.len() * self.switches.len());
        for &(switch, node) in &self.askers {
            for (_, report) in reports.iter().filter(|(number, _)| *number == node) {
                let mut packet = Vec::new();
                report.encode(&mut packet, &signer.key, signer.of(node).peers(switch));
                // Empty if the switch has another IP version than the node.
                packets.extend((!packet.is_empty()).then_some((switch, packet)));
            }
        }
        sender.send(&packets)
    }

    /// Numbers of nodes that have left the configuration and still have flows.
    fn gone(&self, plan: &Plan) -> impl Iterator<Item = u16> {
        let is_known = |number: &u16| plan.nodes.iter().any(|node| node.number == *number);
        let with_flows = self.loads.iter().filter(|(_, load)| load.flows() > 0);
        with_flows.map(|(number, _)| *number).filter(move |number| !is_known(number))
    }

    /// A report that tells of no listener. Without one the switches would take the node for dead, and give its flows to others
    /// although it still has them.
    fn report_gone(&self, plan: &Plan, number: u16) -> Report {
        let nowhere = SocketAddr::new(plan.vips[0], 0);
        self.report_of(plan, number, (nowhere, 0), State::Draining, (0, 0))
    }

    /// A report of the node with this number, about a listener for a pool.
    fn report_of(
        &self,
        plan: &Plan,
        node: u16,
        (listener, pool): (SocketAddr, u32),
        state: State,
        queue: (u16, u16),
    ) -> Report {
        let load = self.load_of(node);
        Report {
            listener,
            pool,
            number: self.number,
            reason: state.reason(),
            queue,
            in_flight: load.in_flight(),
            flows: load.flows(),
            first_byte: load.first_byte(),
            cpu: self.cpu_share,
            newest: SB_VERSION,
            software: Software::with(plan.cluster.hash),
        }
    }

    /// The load of the node with this number, as last measured.
    fn load_of(&self, number: u16) -> Load {
        self.loads.get(&number).copied().unwrap_or_default()
    }

    /// The report about a listener for a pool; None while its state is unknown.
    fn report(
        &self,
        plan: &Plan,
        listener: &PoolListener,
        health: Option<Health>,
        drains: &Drains,
    ) -> Option<Report> {
        let queue = self.queue(plan, listener);
        let state = self.state(plan, listener, queue, health, drains)?;
        if matches!(state, State::NoListener | State::Unhealthy) {
            plan.judge_of(listener).into_iter().for_each(|judge| judge.forget());
        }
        let saturated = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let queue = match queue {
            Some(queue) => (saturated(queue.len), saturated(queue.limit)),
            None if plan.is_away(listener) => (0, u16::MAX),
            None => (0, 0),
        };
        let about = (listener.address, pool_id(&plan.cluster.pools[listener.pool].name));
        Some(self.report_of(plan, plan.number_of(listener), about, state, queue))
    }

    fn queue(&self, plan: &Plan, listener: &PoolListener) -> Option<Queue> {
        if plan.is_away(listener) {
            return None;
        }
        queue_at(self.listeners.as_deref()?, listener.at)
    }

    /// None while a health check has no result.
    fn state(
        &self,
        plan: &Plan,
        listener: &PoolListener,
        queue: Option<Queue>,
        health: Option<Health>,
        drains: &Drains,
    ) -> Option<State> {
        Some(match queue {
            _ if drains.has(plan.number_of(listener)) => State::Draining,
            None if self.listeners.is_some() && !plan.is_away(listener) => State::NoListener,
            Some(queue) if plan.adopting.excludes(queue) => State::Mptcp,
            _ => match health {
                Some(Health::Unknown) => return None,
                Some(Health::Down) => State::Unhealthy,
                _ if plan.judge_of(listener).is_some_and(|judge| judge.is_ejected()) => State::Failing,
                Some(Health::Up) | None if self.acknowledgments.are_missing() => State::Unacknowledged,
                Some(Health::Up) | None => State::Ready,
            },
        })
    }

    /// Adds the measurements to the agent's status, without numbers of flows.
    pub(crate) fn status(&self, plan: &Plan, checks: &Checks, drains: &Drains, status: &mut NodeStatus) {
        status.cpu = f64::from(self.cpu_share) / 1000.0;
        (status.switches, status.switch_versions) = self.switches.iter().copied().unzip();
        status.listeners = self.listeners(plan, checks, drains);
        let member = |node: &OwnNode| {
            let load = self.load_of(node.number);
            MemberStatus {
                name: node.name.clone(),
                draining: drains.has(node.number),
                flows: 0,
                in_flight: load.in_flight(),
                first_byte_us: load.first_byte().map(|time| time.as_micros() as u64),
            }
        };
        status.nodes = plan.nodes.iter().map(member).collect();
        status.draining = status.nodes.iter().all(|node| node.draining);
        status.in_flight = status.nodes.iter().map(|node| node.in_flight).sum();
        let times: Vec<u64> = status.nodes.iter().filter_map(|node| node.first_byte_us).collect();
        status.first_byte_us = times.iter().sum::<u64>().checked_div(times.len() as u64);
    }

    /// The listeners as last measured.
    fn listeners(&self, plan: &Plan, checks: &Checks, drains: &Drains) -> Vec<ListenerStatus> {
        let status = |listener: &PoolListener| {
            let queue = self.queue(plan, listener);
            let state = self.state(plan, listener, queue, checks.of(listener), drains);
            ListenerStatus {
                node: plan.cluster.nodes[listener.node].name.clone(),
                pool: plan.cluster.pools[listener.pool].name.clone(),
                address: Some(listener.address),
                state: state.map_or(NOT_CHECKED, State::words).into(),
                queue_len: queue.map(|queue| queue.len),
                queue_limit: queue.map(|queue| queue.limit),
                adoption: match queue {
                    Some(queue) => plan.adopting.words(queue),
                    None if plan.is_away(listener) => "replay (the server is behind an interface)".into(),
                    None => Default::default(),
                },
            }
        };
        plan.listeners.iter().map(status).collect()
    }

    /// Logs what has changed at servers and switches.
    pub(crate) fn watch(&self, watch: &mut Watch, plan: &Plan, checks: &Checks, drains: &Drains) {
        let mut events = watch.switches(self.switches.iter().map(|(address, _)| *address));
        // A node that drains, or whose servers have not been checked, says nothing of them.
        let of_listeners = plan.listeners.iter().map(|listener| {
            let drains = drains.has(plan.number_of(listener));
            let failing = || plan.judge_of(listener).and_then(|judge| judge.reason());
            (drains, checks.last_error(listener).or_else(failing))
        });
        let listeners = std::iter::zip(self.listeners(plan, checks, drains), of_listeners);
        let said = listeners.filter(|(listener, (drains, _))| !drains && listener.state != NOT_CHECKED);
        events.extend(watch.servers(said.map(|(listener, (_, error))| (listener, error))));
        for node in &plan.nodes {
            let flows = self.load_of(node.number).flows();
            events.extend(watch.drain(&node.name, drains.has(node.number), flows));
        }
        events::log_all(&events);
    }
}

/// Readable when [`Reporter::is_due`] is true.
impl AsFd for Reporter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
