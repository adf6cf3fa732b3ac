//! Start, event loop, reload and shutdown of the node agent.

mod ending;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use libbpf_rs::{MapHandle, OpenObject};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use switchback_config::{Cluster, Diagnostic, Document, Source};
use switchback_runtime::control::{Answer, ControlServer, Request, Response};
use switchback_runtime::events::{self, Reloaded};
use switchback_runtime::pins::PinDir;
use switchback_runtime::privileges::{self, CapabilitySet};
use switchback_runtime::{
    Doing, Error, Facts, Follower, Result, Signals, checks, first_document, interface, monotonic_ns,
    netns_cookie, tell_ready,
};
use switchback_status::node::NodeStatus;
use switchback_survey::Responder;
use switchback_wire::switches::Software;
use switchback_wire::{NodeCounter, SB_GENEVE_PORT, address_bytes, sb_flow, sb_node_settings};

use crate::addresses::Loopback;
use crate::drains::{Drain, Drains};
use crate::endpoint::TlsEndpoint;
use crate::facts::{Asker, FactsAck, Outboxes};
use crate::flow_map::Walk;
use crate::guards::Guards;
use crate::health::Checks;
use crate::insurance::{DEATH_HOLDS, Insurance};
use crate::judges::Judges;
use crate::lists::{Lists, Wanted};
use crate::orders::Orders;
use crate::plan::{OwnNode, Plan, server_ports};
use crate::programs::{Listening, Programs, by_switch, cannot_load};
use crate::records::Records;
use crate::released;
use crate::reports::{Reporter, listening};
use crate::sender::Sender;
use crate::stalled::{Probing, window_probe};
use crate::switches::Relay;
use crate::watch::Watch;

use ending::{End, Ending};

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "node";

/// Capabilities for addresses and programs; for TLS services on ports below 1024; for moving connections between
/// sockets (`TCP_REPAIR`); and for handoff packets.
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_BIND_SERVICE).union(CapabilitySet::NET_RAW);

/// Interval of emptying the ring of ended flows. If a switch hears of an end late, it only keeps an entry longer.
const TICK: Duration = Duration::from_millis(50);
/// Interval of emptying the rings while more facts wait than can be in flight, or a list of flows is being sent.
const BUSY_TICK: Duration = Duration::from_millis(5);

/// Options of `switchback node`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `cluster.toml` comes from.
    pub config: Arc<dyn Source>,
    /// Name in the configuration of a node of this machine; None: the first one with an address of the interface.
    pub name: Option<String>,
    /// Interface for handoff packets and responses.
    pub interface: String,
    /// The server of `[admin]`.
    pub admin: Arc<dyn Follower<Cluster>>,
}

/// Runs the agent until SIGTERM or SIGINT, which hand the node's connections over first. Logs `ready` once flows can be
/// handed over.
pub fn run(options: Options) -> Result<()> {
    start_and_serve(options, None)
}

/// Runs the agent on a machine that is also a switch.
pub fn run_beside_switch(options: Options, switch: impl SwitchHere) -> Result<()> {
    start_and_serve(options, Some(&switch))
}

/// The switch on the same machine.
pub trait SwitchHere {
    /// Called when flows can be handed over. The ring contains the programs' messages to that switch: each record is an
    /// `sb_record` with a packet, as in the switch's own rings.
    fn begin(&self, ring: MapHandle);
    /// Called before the agent ends; returns when the switch hands over no more flows.
    fn end(&self);
}

/// `switch` is the switch in the same process.
fn start_and_serve(options: Options, switch: Option<&dyn SwitchHere>) -> Result<()> {
    let (document, (mut plan, _)) =
        first_document(&*options.config, |document| Plan::read(document, &options))?;
    plan.beside_switch = switch.is_some();
    let facts = Facts::gather(&options.interface);
    plan.adopting = plan.adopting.on(&facts);
    if plan.plain_tcp && !facts.changes_protocols {
        return Err(Error::new(format!(
            "node {} has plain_tcp = true, but this kernel has no update_socket_protocol",
            plan.name()
        ))
        .remedy(
            "run Linux 6.6 or later, or leave plain_tcp out: connections to MPTCP listeners are replayed",
        ));
    }
    let replays = plan.adopting.may_replay();
    let found = checks::check_node(&facts, &server_ports(&plan.cluster), &plan.own_ports(), replays);
    checks::refuse_fatal(&found)?;
    for finding in found.iter().filter_map(|check| check.as_ref().err()) {
        log::warn!("{finding}");
    }
    let mut signals = Signals::take()?;
    let mut control = ControlServer::bind(ROLE, &options.interface)?;
    options.admin.prepare(&plan.cluster)?();
    // A switch on the same machine has bound the port.
    let port = if plan.beside_switch { None } else { Some(hold_port(&plan.address)?) };
    let sender = Sender::open()?;
    let index = interface::index(&options.interface)?;
    let mut loopback = Loopback::open()?;
    let pins = PinDir::open(ROLE, &options.interface)?;

    // Old VIPs of an earlier agent are removed before the programs stop guarding them.
    loopback.remove_ours(|vip| plan.vips.contains(&vip))?;
    let mut storage = MaybeUninit::<OpenObject>::uninit();
    let drains = Drains::begin(&plan)?;
    let settings = settings(&plan, &options.interface)?;
    let mut guards = Guards::new(index)?;
    let mut programs = match Programs::load(&mut storage, &pins, &settings, &plan) {
        Ok(programs) => programs,
        Err(error) => {
            // Programs of an earlier agent keep running; otherwise nothing is left behind.
            if !pins.link_path("ingress").exists() {
                pins.remove_all()?;
            }
            return Err(cannot_load(error));
        }
    };
    let started = released::take()
        .and_then(|flows| programs.add_released(&flows))
        .and_then(|()| programs.set_clients(&plan.clients))
        .and_then(|()| programs.set_nodes(&plan, |node| drains.has(node.number)))
        .and_then(|()| {
            let place = (&options.interface[..], index);
            programs.attach(&pins, place, plan.beside_switch).map_err(cannot_load)
        })
        .and_then(|()| programs.keep_plain_tcp(&pins, plan.plain_tcp))
        .and_then(|()| guards.keep(&programs, &pins))
        .and_then(|()| plan.vips.iter().try_for_each(|vip| loopback.add(*vip)))
        .and_then(|()| privileges::keep_only(KEPT));
    let mut tls = TlsEndpoint::default();
    let started = started
        .and_then(|()| tls.set(&plan, &programs))
        .and_then(|()| programs.set_settings(&with_port(&settings, &tls)));
    let reporting = started.and_then(|()| {
        let mut checks = Checks::new()?;
        checks.set(plan.checks())?;
        let responder = Responder::start(port.into_iter().collect(), &plan.cluster.key_bytes())?;
        Ok((checks, Reporter::new(plan.cluster.reports.interval)?, responder))
    });
    let (ended, mut loopback, programs, guards, any_drains) = match reporting {
        Ok((checks, reporter, responder)) => {
            let watch = Watch::default();
            let mut agent = Agent {
                options,
                plan,
                programs,
                guards,
                loopback,
                checks,
                reporter,
                sender,
                drains,
                tls,
                watch,
                responder,
                ending: Ending::Not,
            };
            agent.tell_tls();
            agent.options.config.accept(&document);
            agent.options.config.follow(&document, signals.follower());
            let ended = agent.serve(&mut signals, &mut control, &pins, switch);
            (ended, agent.loopback, agent.programs, agent.guards, agent.drains.has_any())
        }
        Err(error) => (Err(error), loopback, programs, guards, drains.has_any()),
    };
    if let Some(switch) = switch {
        switch.end();
    }
    if matches!(ended, Ok(End::Leaves)) {
        return Ok(());
    }
    // The addresses go first, because without the programs the kernel would answer ARP for them.
    let addresses = loopback.remove_ours(|_| false);
    guards.end();
    let saved = match any_drains {
        true => programs.flow_map().and_then(|flows| released::save(&flows.released()?)),
        false => Ok(()),
    };
    let programs = programs.remove(pins);
    ended.map(drop).and(addresses).and(saved).and(programs)
}

struct Agent<'obj> {
    options: Options,
    plan: Plan,
    programs: Programs<'obj>,
    guards: Guards,
    loopback: Loopback,
    checks: Checks,
    reporter: Reporter,
    sender: Sender,
    drains: Drains,
    tls: TlsEndpoint,
    watch: Watch,
    responder: Responder,
    ending: Ending,
}

/// State of what the agent and the switches exchange, beside records.
struct Exchange {
    lists: Lists,
    orders: Orders,
    relay: Relay,
    probing: Probing,
}

impl Agent<'_> {
    /// Runs until a signal ends the agent, and its connections are gone or left to the programs.
    fn serve(
        &mut self,
        signals: &mut Signals,
        control: &mut ControlServer,
        pins: &PinDir,
        switch: Option<&dyn SwitchHere>,
    ) -> Result<End> {
        let records = Records::new(epoch());
        let rings = records.rings(&self.programs)?;
        let probing = Probing::new(Instant::now(), self.programs.counter(NodeCounter::TakenOver)?);
        let mut exchange =
            Exchange { lists: Lists::default(), orders: Orders::default(), relay: Relay::default(), probing };
        let (name, interface) = (self.plan.name(), &self.options.interface);
        let vips = match self.plan.vips.len() {
            1 => "1 VIP".to_owned(),
            count => format!("{count} VIPs"),
        };
        let others: Vec<&str> =
            self.plan.nodes.iter().map(|node| node.name.as_str()).filter(|other| *other != name).collect();
        let others = if others.is_empty() { String::new() } else { format!(" with {}", others.join(", ")) };
        log::info!("node {name}{others} ready on {interface}: {vips}");
        match switch {
            // The switch reports readiness for both.
            Some(switch) => switch.begin(self.programs.to_switch()?),
            None => tell_ready(),
        }
        loop {
            let waiting_for = [
                signals.as_fd(),
                control.as_fd(),
                self.reporter.as_fd(),
                self.checks.as_fd(),
                self.guards.as_fd(),
            ];
            let mut waiting = waiting_for.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let is_busy = records.outboxes.borrow().is_behind() || exchange.lists.are_in_progress();
            let tick = if is_busy { BUSY_TICK } else { TICK };
            match poll(&mut waiting, PollTimeout::try_from(tick).expect("some milliseconds fit")) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::cannot("wait for signals and requests", errno)),
            }
            if self.guards.are_due()? {
                self.guards.keep(&self.programs, pins)?;
                self.programs.set_servers(&self.plan)?;
            }
            rings.consume().doing(|| "read the rings of the programs")?;
            records.judgments().iter().for_each(|judgment| self.plan.note(judgment));
            self.exchange(&mut exchange, &records)?;
            if self.reporter.is_due()? {
                self.reporter.measure(&self.programs)?;
                self.tls.set_cpu(self.reporter.cpu_share());
                self.report()?;
                self.reporter.watch(&mut self.watch, &self.plan, &self.checks, &self.drains);
                let plan = &self.plan;
                let look = || switchback_tls::revocation_warnings(&plan.cluster, &[plan.address]);
                events::log_all(&self.watch.revocations(Instant::now(), look));
                if self.watch.is_due(Instant::now()) {
                    events::log_all(&self.watch.certificates(SystemTime::now(), self.tls.certificates()));
                    events::log_all(&self.watch.drops(|counter| self.programs.counter(counter))?);
                }
                if let Some(end) = self.can_end()? {
                    return Ok(end);
                }
            }
            if self.checks.have_changed() {
                self.tell_tls();
                self.report()?;
            }
            control.accept_and_serve(|request| self.answer(request))?;
            let wishes = signals.arrived();
            if wishes.end
                && let Some(end) = self.told_to_end()?
            {
                return Ok(end);
            }
            if wishes.reopen {
                self.tls.reopen_log();
            }
            if let Some(document) = wishes.document(&*self.options.config) {
                // The result is in the log.
                let _ = self.apply_document(document);
            }
        }
    }

    /// Sends the switches what is due for them, and carries out what they order.
    fn exchange(&mut self, exchange: &mut Exchange, records: &Records) -> Result<()> {
        let Exchange { lists, orders, relay, probing } = exchange;
        let listening = listening(&self.programs)?;
        let heard = by_switch(&listening);
        let heard = heard.iter().map(|(switch, said)| (*switch, Duration::from_nanos(said.heard_ns)));
        let heard: Vec<(IpAddr, Duration)> = heard.collect();
        let switches: Vec<IpAddr> = heard.iter().map(|(switch, _)| *switch).collect();
        self.insure(records, &switches)?;
        self.sender.send(&records.packets(&self.plan.signer(), &heard))?;
        self.send_facts(&mut records.outboxes.borrow_mut(), &listening)?;
        self.send_lists(lists, &listening)?;
        self.probe_windows(probing, &switches)?;
        let now = (Instant::now(), monotonic_ns());
        self.sender.send(&relay.packets(now, &self.plan.signer(), &listening))?;
        self.carry_out(orders, &listening);
        Ok(())
    }

    /// Tells other nodes of long responses, and offers to go on with those of dead nodes.
    fn insure(&self, records: &Records, switches: &[IpAddr]) -> Result<()> {
        let (reports, ends) = records.insurable();
        let Some(insurance) = self.tls.insurance() else { return Ok(()) };
        insurance.take(reports, ends);
        let dead = self.programs.deaths(monotonic_ns().saturating_sub(DEATH_HOLDS.as_nanos() as u64))?;
        self.sender.send(&insurance.offers(&dead, &self.plan.signer(), switches))
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => Answer::status(ROLE, self.status()),
            Request::Reload {} => Response::from(self.reload()).into(),
            Request::Drain { node, on } => Response::from(self.drain(&node, on)).into(),
        }
    }

    /// Sends facts to the switches.
    fn send_facts(&self, outboxes: &mut Outboxes, listening: &[Listening]) -> Result<()> {
        if outboxes.is_empty() {
            return Ok(());
        }
        let ack = |Listening { asker, said }: &Listening| {
            (*asker, FactsAck { facts: said.facts != 0, epoch: said.epoch, number: said.number })
        };
        let acks: HashMap<Asker, FactsAck> = listening.iter().map(ack).collect();
        let lost = self.programs.counter(NodeCounter::FactLost)? as u32;
        let packets =
            outboxes.packets(Instant::now(), &self.plan.signer(), lost, |asker| acks.get(&asker).copied());
        self.sender.send(&packets)
    }

    /// Asks the clients of stalled flows for an acknowledgment if that is due.
    fn probe_windows(&self, probing: &mut Probing, switches: &[IpAddr]) -> Result<()> {
        let taken_over = self.programs.counter(NodeCounter::TakenOver)?;
        let begun = Instant::now();
        if probing.is_due(begun, switches.iter().copied(), taken_over) {
            let probes: Vec<_> = self.programs.stalled()?.iter().map(window_probe).collect();
            self.sender.send(&probes)?;
            probing.rest(begun, Instant::now());
        }
        Ok(())
    }

    /// Sends lists of flows to the switches that want them.
    fn send_lists(&self, lists: &mut Lists, listening: &[Listening]) -> Result<()> {
        let now = Instant::now();
        let wanted = listening.iter().filter(|listening| listening.said.list != 0);
        let wanted = wanted.map(|Listening { asker, said }| Wanted {
            asker: *asker,
            epoch: said.list,
            number: said.listed,
        });
        let walk = || {
            let flows = self.programs.flow_map()?;
            Walk::begin(move || flows.flows())
        };
        lists.update(now, &wanted.collect::<Vec<_>>(), walk)?;
        let describe = |node: u16, flows: &[sb_flow]| self.programs.describe(node, flows);
        let packets = lists.packets(now, &self.plan.signer(), describe)?;
        self.sender.send(&packets)
    }

    /// Drains nodes or ends that, as switches order.
    fn carry_out(&mut self, orders: &mut Orders, listening: &[Listening]) {
        for Listening { asker: (switch, number), said } in listening {
            if said.order == 0 || !orders.is_new(said.order) {
                continue;
            }
            let Some(node) = self.plan.nodes.iter().find(|node| node.number == *number).cloned() else {
                continue;
            };
            let on = said.drain != 0;
            match self.set_drain(&node, Drain { on, by_command: on }) {
                Ok(lines) => {
                    lines.iter().for_each(|line| log::info!("by command at switch {switch}: {line}"))
                }
                Err(error) => log::error!("the order of switch {switch} is not carried out: {error}"),
            }
        }
    }

    /// Sends the reports on the listeners.
    fn report(&mut self) -> Result<()> {
        let from = (&self.sender, &self.plan.signer());
        self.reporter.send(&self.plan, &self.checks, &self.drains, from)
    }

    /// The status; the returned closure counts the flows, in a thread of its own.
    fn status(&self) -> Result<impl FnOnce() -> Result<NodeStatus> + Send + 'static> {
        let counters = self.programs.counters()?.into_iter();
        let (log_lines, log_lost) = self.tls.log_counts();
        let software = Software::with(self.plan.cluster.hash);
        let mut status = NodeStatus {
            name: self.plan.name().to_owned(),
            version: software.version().unwrap_or_default(),
            config: software.config_digits().unwrap_or_default(),
            config_version: self.plan.cluster.version,
            interface: self.options.interface.clone(),
            pid: std::process::id(),
            address: Some(self.plan.address),
            vips: self.plan.vips.clone(),
            replays: self.plan.adopting.may_replay(),
            health: self.checks.status(&self.plan.cluster),
            tls: self.tls.status(),
            certificates: self.tls.certificate_status(),
            orders: self.tls.orders(),
            resume: self.tls.insurance().filter(|_| self.plan.resume_after() > 0).map(Insurance::status),
            log_lines,
            log_lost,
            copies: self.tls.copies(),
            counters: counters.map(|(name, count)| (name.into(), count)).collect(),
            events: events::recent(),
            ..NodeStatus::default()
        };
        self.reporter.status(&self.plan, &self.checks, &self.drains, &mut status);
        let numbers: Vec<u16> = self.plan.nodes.iter().map(|node| node.number).collect();
        let flows = self.programs.flow_map()?;
        Ok(move || {
            let found = flows.count()?;
            status.flows = found.values().map(|counts| counts.owned as u64).sum();
            for (member, number) in std::iter::zip(&mut status.nodes, numbers) {
                member.flows = found.get(&number).map_or(0, |counts| counts.owned as u32);
            }
            Ok(status)
        })
    }

    /// Drains a node by command or ends the drain; the result has one line per change.
    fn drain(&mut self, node: &str, on: bool) -> Result<Vec<String>> {
        let Some(own) = self.plan.nodes.iter().find(|own| own.name == node).cloned() else {
            let names: Vec<&str> = self.plan.nodes.iter().map(|own| own.name.as_str()).collect();
            return Err(Error::new(format!("this is node {}, not {node}", names.join(" and "))));
        };
        let lines = self.set_drain(&own, Drain { on, by_command: on })?;
        lines.iter().for_each(|line| log::info!("by command: {line}"));
        if !on && own.drain && !lines.is_empty() {
            let again = "the configuration says drain = true, which the next reload goes by".to_owned();
            return Ok([lines, vec![again]].concat());
        }
        Ok(lines)
    }

    fn set_drain(&mut self, node: &OwnNode, drain: Drain) -> Result<Vec<String>> {
        let before = self.drains.of(node.number);
        let drains = self.drains.with(node.number, drain);
        drains.mark(&self.plan)?;
        self.programs.set_nodes(&self.plan, |node| drains.has(node.number))?;
        self.drains = drains;
        self.tell_tls();
        if before.on == drain.on {
            return Ok(Vec::new());
        }
        self.report()?;
        let name = &node.name;
        Ok(vec![if drain.on {
            format!("node {name} drains: it adopts no more flows and keeps those it has")
        } else {
            format!("node {name} drains no more")
        }])
    }

    /// Tells the TLS endpoint which nodes drain, and whose servers are down.
    fn tell_tls(&self) {
        self.tls.set_standing(&self.plan, &self.checks, &self.drains);
    }

    /// Reads the configuration again, and applies it.
    fn reload(&mut self) -> Result<Vec<String>> {
        self.apply_document(self.options.config.newest())
    }

    /// Applies a document completely or not at all, and logs that; the result has one line per change.
    fn apply_document(
        &mut self,
        document: std::result::Result<Document, switchback_config::Error>,
    ) -> Result<Vec<String>> {
        events::log_reload(document.map_err(Error::from).and_then(|document| self.try_document(document)))
    }

    fn try_document(&mut self, document: Document) -> Result<Reloaded<Diagnostic>> {
        let (mut new, warnings) = Plan::read(&document, &self.options)?;
        new.beside_switch = self.plan.beside_switch;
        new.adopting = new.adopting.on(&Facts::gather(&self.options.interface));
        new.judges = Judges::of(&new, &self.plan.judges);
        if new.address != self.plan.address {
            return Err(Error::new(format!(
                "the address of node {} changed from {} to {}",
                new.name(),
                self.plan.address,
                new.address
            ))
            .remedy("that needs a restart"));
        }
        if new.plain_tcp != self.plan.plain_tcp {
            return Err(Error::new(format!(
                "plain_tcp of node {} changed from {} to {}",
                new.name(),
                self.plan.plain_tcp,
                new.plain_tcp
            ))
            .remedy("that needs a restart"));
        }
        let admin = Arc::clone(&self.options.admin);
        let serve_admin = admin.prepare(&new.cluster)?;
        let drains = self.drains.reloaded(&new);
        let settings = settings(&new, &self.options.interface)?;
        if let Err(error) = self.apply(&new, &settings, &drains) {
            // Undo; the first error is the one to report.
            let _ = self.keep_only(&new, &self.plan.vips.clone());
            let _ = self.programs.set_sessions(&self.plan.sessions);
            let _ = self.programs.set_servers(&self.plan);
            let _ = self.programs.set_judged(&self.plan);
            let _ = self.programs.set_nodes(&self.plan, |node| self.drains.has(node.number));
            let _ = self.programs.set_clients(&self.plan.clients);
            let _ = self.tls.set(&self.plan, &self.programs);
            return Err(error);
        }
        let changes = self.plan.cluster.diff(&new.cluster);
        serve_admin();
        let old = std::mem::replace(&mut self.plan, new);
        self.drains = drains;
        self.keep_only(&old, &self.plan.vips.clone())?;
        self.responder.set_keys(&self.plan.cluster.key_bytes());
        self.checks.set(self.plan.checks())?;
        self.tell_tls();
        self.reporter.set_interval(self.plan.cluster.reports.interval)?;
        self.report()?;
        self.options.config.accept(&document);
        Ok(Reloaded { version: document.version, changes, warnings })
    }

    /// Adds the new parts of a plan. A VIP is guarded before its address is added.
    fn apply(&mut self, new: &Plan, settings: &sb_node_settings, drains: &Drains) -> Result<()> {
        new.vips.iter().try_for_each(|vip| self.programs.add_vip(*vip, new.kind_of(*vip)))?;
        new.vips.iter().try_for_each(|vip| self.loopback.add(*vip))?;
        self.programs.set_sessions(&new.sessions)?;
        self.programs.set_servers(new)?;
        self.programs.set_judged(new)?;
        self.programs.set_nodes(new, |node| drains.has(node.number))?;
        self.programs.set_clients(&new.clients)?;
        self.tls.set(new, &self.programs)?;
        self.set_settings(settings)
    }

    /// Writes settings, with the port of the agent's own listeners.
    fn set_settings(&self, settings: &sb_node_settings) -> Result<()> {
        self.programs.set_settings(&with_port(settings, &self.tls))
    }

    /// Removes the VIPs of a plan that are not in `kept`: first the address, then the guard.
    fn keep_only(&mut self, plan: &Plan, kept: &[IpAddr]) -> Result<()> {
        self.loopback.remove_ours(|vip| kept.contains(&vip))?;
        let gone = plan.vips.iter().filter(|vip| !kept.contains(vip));
        gone.into_iter().try_for_each(|vip| self.programs.remove_vip(*vip))
    }
}

/// The settings with the port at which the agent takes flows that are resumed.
fn with_port(settings: &sb_node_settings, tls: &TlsEndpoint) -> sb_node_settings {
    let port = tls.insurance().map_or(0, Insurance::port);
    sb_node_settings { resume_port: port.to_be(), ..*settings }
}

/// Settings of the programs.
fn settings(plan: &Plan, name: &str) -> Result<sb_node_settings> {
    let own: Vec<IpAddr> = interface::addresses(name)?;
    let is_own = |address: &&IpAddr| address.is_ipv4() && !plan.vips.contains(address);
    let arp_sender =
        match own.iter().filter(is_own).find(|own| **own == plan.address).or(own.iter().find(is_own)) {
            Some(IpAddr::V4(v4)) => u32::from_ne_bytes(v4.octets()),
            _ => 0,
        };
    Ok(sb_node_settings {
        address: address_bytes(plan.address),
        sign: plan.sign,
        accept: plan.accept,
        clock: plan.clock.ahead(),
        netns_cookie: netns_cookie()?,
        arp_sender,
        is_switch: plan.beside_switch.into(),
        ifindex: interface::index(name)?,
        hidden: plan.hidden.into(),
        resume_after: plan.resume_after(),
        repeats: plan.repeats().into(),
        adoption: plan.adopting.setting() as u8,
        ..Default::default()
    })
}

/// A random epoch, which distinguishes this agent's facts from those of earlier and later agents.
fn epoch() -> u32 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(std::process::id()) as u32
}

/// Binds the handoff port, so that nobody else uses it and the kernel rejects nothing that arrives there. The programs
/// take handoff packets before they reach the socket, which gets questions of `switchback test`.
fn hold_port(address: &IpAddr) -> Result<UdpSocket> {
    let port = SB_GENEVE_PORT as u16;
    UdpSocket::bind(SocketAddr::new(*address, port)).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::new(format!("UDP port {port} on {address} is taken; Switchback's handoff packets use it"))
                .remedy(format!("find the other program with: ss -lunp sport = :{port}"))
        }
        std::io::ErrorKind::AddrNotAvailable => Error::new(format!(
            "{address} is not an address of this machine, but the node's in the configuration"
        ))
        .remedy("correct the node's address, or name the node that this machine is with --name"),
        _ => Error::cannot(format!("bind UDP port {port} on {address}"), error),
    })
}
