//! Start, loop, reload and end of the agent.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{OpenObject, RingBufferBuilder};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde_json::json;
use switchback_runtime::control::{ControlServer, Request, Response};
use switchback_runtime::pins::PinDir;
use switchback_runtime::{Doing, Error, Facts, Result, checks, interface, netns_cookie};
use switchback_wire::{SB_GENEVE_PORT, address_bytes, read_from, sb_closed, sb_node_settings};

use crate::addresses::Loopback;
use crate::closed::Sender;
use crate::plan::{Plan, service_ports};
use crate::programs::{Programs, cannot_load};
use crate::{Options, ROLE};

/// How often the ring of ended flows is emptied. A switch that hears of an end late only keeps an entry
/// longer.
const TICK: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &Options) -> Result<()> {
    let plan = Plan::load(&options.config, &options.name)?;
    let facts = Facts::gather(&options.interface);
    let found = checks::check_node(&facts, &service_ports(&plan.cluster));
    checks::refuse_fatal(&found)?;
    for finding in found.iter().filter_map(|check| check.as_ref().err()) {
        eprintln!("warning: {finding}");
    }
    let signals = Signals::take()?;
    let mut control = ControlServer::bind(ROLE, &options.interface)?;
    let _port = hold_port(&plan.address)?;
    let sender = Sender::open()?;
    let index = interface::index(&options.interface)?;
    let mut loopback = Loopback::open()?;
    let pins = PinDir::open(ROLE, &options.interface)?;

    // Addresses of an earlier agent that are VIPs no more go before the programs stop guarding them.
    loopback.remove_ours(|vip| plan.vips.contains(&vip))?;
    let mut storage = MaybeUninit::<OpenObject>::uninit();
    let settings = settings(&plan, &options.interface)?;
    let mut programs = match Programs::load(&mut storage, &pins, &settings, &plan.vips) {
        Ok(programs) => programs,
        Err(error) => {
            // Those of an earlier agent go on; otherwise nothing stays.
            if !pins.link_path("ingress").exists() {
                pins.remove_all()?;
            }
            return Err(cannot_load(error));
        }
    };
    let started = programs
        .attach(&pins, &options.interface, index)
        .map_err(cannot_load)
        .and_then(|()| plan.vips.iter().try_for_each(|vip| loopback.add(*vip)));
    let mut agent = Agent { options, plan, programs, loopback };
    let ended = started.and_then(|()| agent.serve(&signals, &mut control, &sender));
    // The addresses go first: without the programs the kernel would answer ARP for them.
    let addresses = agent.loopback.remove_ours(|_| false);
    let programs = agent.programs.remove(pins);
    ended.and(addresses).and(programs)
}

struct Agent<'obj, 'run> {
    options: &'run Options,
    plan: Plan,
    programs: Programs<'obj>,
    loopback: Loopback,
}

impl Agent<'_, '_> {
    /// Runs until a signal ends it.
    fn serve(&mut self, signals: &Signals, control: &mut ControlServer, sender: &Sender) -> Result<()> {
        let reports = RefCell::new(Vec::<sb_closed>::new());
        let closed = self.programs.closed()?;
        let ring = {
            let mut builder = RingBufferBuilder::new();
            let collect = |record: &[u8]| {
                reports.borrow_mut().extend(read_from::<sb_closed>(record));
                0
            };
            builder.add(&closed, collect).doing(|| "read the map closed")?;
            builder.build().doing(|| "read the map closed")?
        };
        let Options { name, interface, .. } = self.options;
        let vips = match self.plan.vips.len() {
            1 => "1 VIP".to_owned(),
            count => format!("{count} VIPs"),
        };
        eprintln!("node {name} ready on {interface}: {vips}");
        loop {
            let mut waiting = [
                PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN),
                PollFd::new(control.as_fd(), PollFlags::POLLIN),
            ];
            let tick = PollTimeout::try_from(TICK).expect("50 ms fit");
            match poll(&mut waiting, tick) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::cannot("wait for signals and requests", errno)),
            }
            ring.consume().doing(|| "read the map closed")?;
            sender.send(&self.plan.sign, self.plan.address, &reports.take())?;
            control.accept_and_serve(|request| self.answer(request))?;
            match signals.next()? {
                Some(Signal::SIGHUP) => match self.reload() {
                    Ok(lines) => lines.iter().for_each(|line| eprintln!("{line}")),
                    Err(error) => eprintln!("not reloaded: {error}"),
                },
                Some(_) => return Ok(()),
                None => {}
            }
        }
    }

    fn answer(&mut self, request: Request) -> Response {
        let answer = match request {
            Request::Status => self.status().map(Response::Status),
            Request::Reload {} => self.reload().map(|lines| Response::Done { lines }),
        };
        answer.unwrap_or_else(|error| Response::Failed { message: error.to_string() })
    }

    fn status(&self) -> Result<serde_json::Value> {
        Ok(json!({
            "role": ROLE,
            "name": self.options.name,
            "interface": self.options.interface,
            "pid": std::process::id(),
            "address": self.plan.address,
            "vips": self.plan.vips,
            "flows": self.programs.flows()?,
            "counters": self.programs.counters()?,
        }))
    }

    /// Reads the configuration again and applies all of it or nothing. What changed, a line for each.
    fn reload(&mut self) -> Result<Vec<String>> {
        let new = Plan::load(&self.options.config, &self.options.name)?;
        if new.address != self.plan.address {
            return Err(Error::new(format!(
                "the address of node {} changed from {} to {}",
                self.options.name, self.plan.address, new.address
            ))
            .remedy("that needs a restart"));
        }
        let settings = settings(&new, &self.options.interface)?;
        if let Err(error) = self.apply(&new, &settings) {
            // What was added goes again; if that fails too, the first error is the one to tell.
            let _ = self.keep_only(&new, &self.plan.vips.clone());
            return Err(error);
        }
        let lines = self.plan.cluster.diff(&new.cluster);
        let old = std::mem::replace(&mut self.plan, new);
        self.keep_only(&old, &self.plan.vips.clone())?;
        Ok(lines)
    }

    /// Adds what is new. A VIP is guarded before it is an address.
    fn apply(&mut self, new: &Plan, settings: &sb_node_settings) -> Result<()> {
        new.vips.iter().try_for_each(|vip| self.programs.add_vip(*vip))?;
        new.vips.iter().try_for_each(|vip| self.loopback.add(*vip))?;
        self.programs.set_settings(settings)
    }

    /// Removes those of a plan's VIPs that are not in `kept`: first the address, then its guard.
    fn keep_only(&mut self, plan: &Plan, kept: &[IpAddr]) -> Result<()> {
        self.loopback.remove_ours(|vip| kept.contains(&vip))?;
        let gone = plan.vips.iter().filter(|vip| !kept.contains(vip));
        gone.into_iter().try_for_each(|vip| self.programs.remove_vip(*vip))
    }
}

/// What the programs need to know.
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
        netns_cookie: netns_cookie()?,
        arp_sender,
        reserved: 0,
    })
}

/// Keeps the handoff port from others and the kernel from refusing what arrives there. Nothing is read from
/// it: the programs take handoff packets before they reach a socket.
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

/// SIGTERM, SIGINT and SIGHUP as something to wait for.
struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    fn take() -> Result<Signals> {
        let ours: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        let doing = || "wait for signals";
        let before = ours.thread_swap_mask(SigmaskHow::SIG_BLOCK).doing(doing)?;
        let fd = SignalFd::with_flags(&ours, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).doing(doing)?;
        Ok(Signals { fd, before })
    }

    /// The next signal that has arrived.
    fn next(&self) -> Result<Option<Signal>> {
        let arrived = self.fd.read_signal().doing(|| "read a signal")?;
        Ok(arrived.and_then(|info| Signal::try_from(info.ssi_signo.cast_signed()).ok()))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Fails for an invalid set only, and this one came from the kernel.
        let _ = self.before.thread_set_mask();
    }
}
