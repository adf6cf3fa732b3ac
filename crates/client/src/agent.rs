//! Start, event loop, reload and shutdown of the client shim.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;

use libbpf_rs::OpenObject;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use switchback_config::Client;
use switchback_runtime::control::{ControlServer, Request, Response};
use switchback_runtime::events::{self, Reloaded};
use switchback_runtime::pins::PinDir;
use switchback_runtime::privileges::{self, CapabilitySet};
use switchback_runtime::{Error, Facts, Result, Signals, checks, interface, tell_ready};
use switchback_status::client::{ClientStatus, DirectNode};

use crate::programs::{Programs, cannot_load};
use crate::sockets;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "client";

/// Options of `switchback client`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of `client.toml`.
    pub config: PathBuf,
    /// Interface towards switch and nodes.
    pub interface: String,
}

/// Runs the shim until SIGTERM or SIGINT. Prints `ready` to stderr once nodes can introduce themselves.
pub fn run(options: Options) -> Result<()> {
    let client = load(&options)?;
    let facts = Facts::gather(&options.interface);
    checks::refuse_fatal(&checks::check_client(&facts))?;
    let mut signals = Signals::take()?;
    let mut control = ControlServer::bind(ROLE, &options.interface)?;
    let index = interface::index(&options.interface)?;
    let pins = PinDir::open(ROLE, &options.interface)?;
    let was_there = pins.link_path("ingress").exists();
    let mut storage = MaybeUninit::<OpenObject>::uninit();
    let started = Programs::load(&mut storage, &pins).and_then(|mut programs| {
        programs.configure(&client)?;
        programs.attach(&pins, &options.interface, index)?;
        Ok(programs)
    });
    let programs = match started {
        Ok(programs) => programs,
        Err(error) => {
            // Programs of an earlier shim keep running; otherwise nothing is left behind.
            if !was_there {
                pins.remove_all()?;
            }
            return Err(cannot_load(error));
        }
    };
    let mut agent = Agent { options, client, programs };
    // Needed to close the tunneled connections at the end.
    let kept = privileges::keep_only(CapabilitySet::NET_ADMIN);
    let ended = kept.and_then(|()| agent.serve(&mut signals, &mut control));
    ended.and(agent.end(pins))
}

fn load(options: &Options) -> Result<Client> {
    Ok(Client::load(&options.config)?)
}

struct Agent<'obj> {
    options: Options,
    client: Client,
    programs: Programs<'obj>,
}

impl Agent<'_> {
    /// Runs until a signal ends the shim.
    fn serve(&mut self, signals: &mut Signals, control: &mut ControlServer) -> Result<()> {
        let services = match self.client.services.len() {
            1 => "1 service".to_owned(),
            count => format!("{count} services"),
        };
        log::info!("client ready on {}: {services}", self.options.interface);
        tell_ready();
        loop {
            let mut waiting = [signals.as_fd(), control.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut waiting, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(Error::cannot("wait for signals and requests", errno)),
            }
            control.accept_and_serve(|request| self.answer(request))?;
            let wishes = signals.arrived();
            if wishes.end {
                return Ok(());
            }
            if wishes.reload {
                // The result is in the log.
                let _ = self.reload();
            }
        }
    }

    /// Detaches the programs, and closes the connections whose servers send through the tunnel, which would hang
    /// otherwise.
    fn end(&mut self, pins: PinDir) -> Result<()> {
        let detached = self.programs.detach(pins);
        let ended = sockets::destroy(&self.programs.tunneled())?;
        if ended > 0 {
            log::info!("connections that needed the tunnel have been closed: {ended}");
        }
        detached
    }

    fn answer(&mut self, request: Request) -> Response {
        let answer = match request {
            Request::Status => self.status().map(|status| Response::status(ROLE, &status)),
            Request::Reload {} => self.reload().map(|lines| Response::Done { lines }),
            Request::Drain { .. } => Err(Error::new("this is a client, which has nothing to drain")),
        };
        answer.unwrap_or_else(|error| Response::failed(&error))
    }

    /// Reads the configuration again, applies it, and logs that; the result has one line per change.
    fn reload(&mut self) -> Result<Vec<String>> {
        events::log_reload(self.try_reload())
    }

    fn try_reload(&mut self) -> Result<Reloaded<String>> {
        let new = load(&self.options)?;
        if let Err(error) = self.programs.configure(&new) {
            // The first error is the one to report.
            let _ = self.programs.configure(&self.client);
            return Err(error);
        }
        let changes = self.client.diff(&new);
        self.client = new;
        Ok(Reloaded { changes, ..Reloaded::default() })
    }

    fn status(&self) -> Result<ClientStatus> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
        let now_ns = now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned();
        let nodes = self.programs.nodes()?;
        let nodes = nodes.iter().map(|(address, node)| DirectNode {
            address: Some(*address),
            introductions: node.introductions,
            packets: node.packets,
            fallbacks: node.fallbacks,
            avoided: node.avoid_ns > now_ns,
        });
        let counters = self.programs.counters()?.into_iter();
        Ok(ClientStatus {
            interface: self.options.interface.clone(),
            pid: std::process::id(),
            services: self.client.services.clone(),
            flows: self.programs.direct_flows()? as u64,
            nodes: nodes.collect(),
            counters: counters.map(|(name, count)| (name.into(), count)).collect(),
        })
    }
}
