//! REPORT packets about this node's listeners, to all switches that have asked for them recently.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use switchback_runtime::events;
use switchback_runtime::listeners::{self, Listener};
use switchback_runtime::netlink::Socket;
use switchback_runtime::{Doing, Result, monotonic_ns};
use switchback_status::node::{ListenerStatus, NodeStatus, READY};
use switchback_wire::Reason;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::switches::Software;
use switchback_wire::{NodeCounter, SB_VERSION, sb_listening_switch};

use crate::acknowledged::Acknowledgments;
use crate::health::{Checks, Health};
use crate::listeners::{Queue, queue_at};
use crate::load::Load;
use crate::machine::Cpu;
use crate::plan::{Plan, PoolListener};
use crate::programs::Programs;
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
            State::Unacknowledged => "nobody acknowledges responses",
        }
    }
}

/// Switches with a recent message.
pub(crate) fn listening(programs: &Programs<'_>) -> Result<Vec<(IpAddr, sb_listening_switch)>> {
    let oldest = monotonic_ns().saturating_sub(HEARD_FOR.as_nanos() as u64);
    let mut switches = programs.switches()?;
    switches.retain(|(_, switch)| switch.heard_ns >= oldest);
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
    load: Load,
    acknowledgments: Acknowledgments,
    walked: Option<Instant>,
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
            load: Load::default(),
            acknowledgments: Acknowledgments::default(),
            walked: None,
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
        if self.walked.is_none_or(|walked| now.duration_since(walked) >= WALK) {
            self.walk(programs)?;
        }
        let sums = programs.load_sums()?;
        self.acknowledgments.look(now, sums.first_bytes, programs.counter(NodeCounter::Acknowledged)?);
        self.load.end_period(sums);
        self.cpu_share = self.cpu.share(now);
        self.switches =
            listening(programs)?.into_iter().map(|(address, heard)| (address, heard.newest)).collect();
        self.switches.sort_unstable();
        Ok(())
    }

    /// Share of the machine's CPU time in use in the last period, in thousandths.
    pub(crate) fn cpu_share(&self) -> u16 {
        self.cpu_share
    }

    /// Compares the sums with the flow map and returns the number of flows.
    fn walk(&mut self, programs: &Programs<'_>) -> Result<usize> {
        let before = programs.load_sums()?;
        let walked = programs.walk()?;
        self.load.correct(&before, walked, &programs.load_sums()?);
        self.walked = Some(Instant::now());
        Ok(walked.owned)
    }

    /// Sends reports with the last measurements.
    pub(crate) fn send(
        &mut self,
        plan: &Plan,
        checks: &Checks,
        draining: bool,
        (sender, signer): (&Sender, &Signer),
    ) -> Result<()> {
        if self.switches.is_empty() {
            return Ok(());
        }
        self.number = self.number.wrapping_add(1);
        let reports: Vec<Report> = plan
            .listeners
            .iter()
            .filter_map(|listener| self.report(plan, listener, checks.of(listener), draining))
            .collect();
        let mut packets = Vec::with_capacity(reports.len() * self.switches.len());
        for &(switch, _) in &self.switches {
            for report in &reports {
                let mut packet = Vec::new();
                report.encode(&mut packet, &signer.key, signer.peers(switch));
                // Empty if the switch has another IP version than the node.
                packets.extend((!packet.is_empty()).then_some((switch, packet)));
            }
        }
        sender.send(&packets)
    }

    /// The report about a listener for a pool; None while its state is unknown.
    fn report(
        &self,
        plan: &Plan,
        listener: &PoolListener,
        health: Option<Health>,
        draining: bool,
    ) -> Option<Report> {
        let queue = self.queue(plan, listener);
        let state = self.state(plan, listener, queue, health, draining)?;
        let saturated = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        Some(Report {
            listener: listener.address,
            pool: pool_id(&plan.cluster.pools[listener.pool].name),
            number: self.number,
            reason: state.reason(),
            queue: match queue {
                Some(queue) => (saturated(queue.len), saturated(queue.limit)),
                None if plan.is_away(listener) => (0, u16::MAX),
                None => (0, 0),
            },
            in_flight: self.load.in_flight(),
            flows: self.load.flows(),
            first_byte: self.load.first_byte(),
            cpu: self.cpu_share,
            newest: SB_VERSION,
            software: Software::with(plan.cluster.hash),
        })
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
        draining: bool,
    ) -> Option<State> {
        Some(match queue {
            _ if draining => State::Draining,
            None if self.listeners.is_some() && !plan.is_away(listener) => State::NoListener,
            Some(queue) if plan.adopting.excludes(queue) => State::Mptcp,
            _ => match health {
                Some(Health::Unknown) => return None,
                Some(Health::Down) => State::Unhealthy,
                Some(Health::Up) | None if self.acknowledgments.are_missing() => State::Unacknowledged,
                Some(Health::Up) | None => State::Ready,
            },
        })
    }

    /// Adds the measurements to the agent's status, in which `draining` is already set.
    pub(crate) fn status(
        &mut self,
        plan: &Plan,
        checks: &Checks,
        programs: &Programs<'_>,
        status: &mut NodeStatus,
    ) -> Result<()> {
        status.flows = self.walk(programs)? as u64;
        status.in_flight = self.load.in_flight();
        status.cpu = f64::from(self.cpu_share) / 1000.0;
        status.first_byte_us = self.load.first_byte().map(|time| time.as_micros() as u64);
        (status.switches, status.switch_versions) = self.switches.iter().copied().unzip();
        status.listeners = self.listeners(plan, checks, status.draining);
        Ok(())
    }

    /// The listeners as last measured.
    fn listeners(&self, plan: &Plan, checks: &Checks, draining: bool) -> Vec<ListenerStatus> {
        let status = |listener: &PoolListener| {
            let queue = self.queue(plan, listener);
            let state = self.state(plan, listener, queue, checks.of(listener), draining);
            ListenerStatus {
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
    pub(crate) fn watch(&self, watch: &mut Watch, plan: &Plan, checks: &Checks, draining: bool) {
        let mut events = watch.switches(self.switches.iter().map(|(address, _)| *address));
        // A node that drains, or whose servers have not been checked, says nothing of them.
        if !draining {
            let errors = plan.listeners.iter().map(|listener| checks.last_error(listener));
            let listeners = std::iter::zip(self.listeners(plan, checks, draining), errors);
            events.extend(watch.servers(listeners.filter(|(listener, _)| listener.state != NOT_CHECKED)));
        }
        events.extend(watch.drain(draining, self.load.flows()));
        events::log_all(&events);
    }
}

/// Readable when [`Reporter::is_due`] is true.
impl AsFd for Reporter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
