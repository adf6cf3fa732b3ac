//! The switch: reads requests, chooses nodes, hands connections over, and forwards the clients' packets. Responses go
//! from the nodes to the clients directly.
//!
//! The XDP program (`bpf/`) forwards every packet that needs no parsing in user space. Packets that may begin a request
//! reach the [`dispatch`] code through ring buffers; L7 threads (`threads`) run it, each for the flows of a hash.

pub mod dispatch;
pub mod explain;
pub mod observe;
pub mod plan;

mod ahead;
mod announce;
mod automaton;
mod cookies;
mod driver;
mod express;
mod group;
mod guards;
mod ids;
mod key;
mod nexthop;
mod program;
mod recount;
mod reports;
mod sender;
mod sessions;
mod sizes;
mod switches;
mod threads;
mod watch;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::MapHandle;
use switchback_config::{Checked, Cluster, Diagnostic, Document, Source};
use switchback_runtime::control::{Answer, ControlServer, Request, Response};
use switchback_runtime::events::{self, Reloaded};
use switchback_runtime::pins::PinDir;
use switchback_runtime::{
    Doing, Error, Facts, Follower, Result, Signals, check_switch, checks, first_document, interface,
    tell_ready,
};

use switchback_wire::SB_L7_THREADS;

use driver::{Driver, Opened};
use program::Program;
use threads::Loop;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "switch";

/// Options of `switchback switch`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the cluster's configuration comes from.
    pub config: Arc<dyn Source>,
    /// Interfaces towards clients and nodes.
    pub interfaces: Vec<String>,
    /// Zone of this machine; the policies prefer nodes in it.
    pub zone: Option<String>,
    /// The `[[switch]]` entry of this machine, if it has one.
    pub name: Option<String>,
    /// Number of L7 threads; None: one for each receive queue of the interface that has most.
    pub threads: Option<usize>,
    /// The server of `[admin]`.
    pub admin: Arc<dyn Follower<Cluster>>,
}

/// The node that runs in the same process.
pub struct Here {
    /// Node name in the configuration.
    pub name: String,
    /// Ring buffer of the node's programs; its records have the same layout as those of the switch's rings.
    pub ring: MapHandle,
    /// Signals, taken over before switch and node started, so that none is missed.
    pub signals: Signals,
}

const SIGNALS: u64 = 1;
const CONTROL: u64 = 2;
const THREADS: u64 = 3;
/// Time that handoffs in progress get to finish at shutdown.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs the switch until SIGTERM or SIGINT.
pub fn run(options: Options) -> Result<()> {
    let signals = Signals::take()?;
    start(&options, signals, None)
}

/// Runs the switch on a machine whose node agent already runs, until SIGTERM or SIGINT.
pub fn run_beside_node(options: Options, here: Here) -> Result<()> {
    let Here { name, ring, signals } = here;
    start(&options, signals, Some((&name, &ring)))
}

/// `here` is the name of the local node and its ring buffer.
fn start(options: &Options, mut signals: Signals, here: Option<(&str, &MapHandle)>) -> Result<()> {
    let read = |document: &Document| read(options, document, here.is_some());
    let (document, (cluster, _)) = first_document(&*options.config, read)?;
    let Some(first) = options.interfaces.first() else {
        return Err(Error::new("the switch needs an interface").remedy("name it with --interface"));
    };
    for name in &options.interfaces {
        checks::refuse_fatal(&check_switch(&Facts::gather(name)))?;
    }
    let mut control = ControlServer::bind(ROLE, first)?;
    options.admin.prepare(&cluster)?();
    let threads = threads(options)?;
    let mut program = Program::load(PinDir::open(ROLE, first)?, cluster.limits.flows, threads)?;
    let configured = (&document, &cluster);
    let result = start_and_serve(options, here, configured, &mut program, &mut signals, &mut control);
    let detached = program.detach();
    result.and(detached)
}

/// Number of L7 threads.
fn threads(options: &Options) -> Result<usize> {
    let most = SB_L7_THREADS as usize;
    if let Some(threads) = options.threads {
        return match threads {
            0 => Err(Error::new("the switch needs an L7 thread").remedy("leave out --threads")),
            _ if threads > most => Err(Error::new(format!("there can be no more than {most} L7 threads"))),
            _ => Ok(threads),
        };
    }
    let queues = options.interfaces.iter().map(|name| interface::receive_queues(name));
    let queues = queues.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(1);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(queues.min(cpus).clamp(1, most))
}

/// Reads a configuration and logs the warnings about it, which are also returned. Beside a node there are none: its
/// agent has them.
fn read(options: &Options, document: &Document, beside_node: bool) -> Result<(Cluster, Vec<Diagnostic>)> {
    let Checked { cluster, mut warnings } = switchback_tls::check(document, &interface::all_addresses()?)?;
    let served = cluster.served_by(options.name.as_deref());
    let served = served.map_err(|what| Error::new(what).remedy("name it with --name").with_exit_status(1))?;
    if beside_node {
        warnings.clear();
    }
    events::log_warnings(&warnings);
    Ok((served, warnings))
}

fn start_and_serve(
    options: &Options,
    here: Option<(&str, &MapHandle)>,
    (document, cluster): (&Document, &Cluster),
    program: &mut Program,
    signals: &mut Signals,
    control: &mut ControlServer,
) -> Result<()> {
    let name = here.map(|(name, _)| name);
    let opened = Opened::new(cluster.clone(), options.zone.as_deref(), name, program)?;
    for name in &options.interfaces {
        program.attach(name)?;
    }
    let program: &Program = program;
    std::thread::scope(|scope| {
        let driver = RefCell::new(opened.start(scope, program)?);
        for attached in &program.attached {
            log::info!("switch ready on {} ({} XDP)", attached.name, attached.mode.name());
        }
        tell_ready();
        options.config.accept(document);
        options.config.follow(document, signals.follower());
        serve(options, here.map(|(_, ring)| ring), &driver, signals, control)
    })
}

fn serve<'a>(
    options: &Options,
    here: Option<&MapHandle>,
    driver: &RefCell<Driver<'a>>,
    signals: &mut Signals,
    control: &mut ControlServer,
) -> Result<()> {
    let rings = driver.borrow().rings();
    let bell = driver.borrow().bell().try_clone_to_owned().doing(|| "watch the L7 threads")?;
    let sources = [(signals.as_fd(), SIGNALS), (control.as_fd(), CONTROL), (bell.as_fd(), THREADS)];
    let events = Loop::new(driver, rings.iter().chain(here), &sources)?;
    loop {
        let arrived = events.turn()?;
        if driver.borrow().leaves_in() == Some(Duration::ZERO) {
            return settle(driver, &events);
        }
        if arrived.contains(&THREADS) {
            driver.borrow_mut().read_notes()?;
        }
        if arrived.contains(&SIGNALS) {
            let wishes = signals.arrived();
            if wishes.end && driver.borrow().leaves_in().is_some() {
                // Told a second time.
                return settle(driver, &events);
            }
            if wishes.end {
                driver.borrow_mut().leave();
            }
            if wishes.reopen {
                driver.borrow().reopen_log();
            }
            if let Some(document) = wishes.document(&*options.config) {
                // The result is in the log.
                let _ = reload(options, document, here.is_some(), &mut driver.borrow_mut());
            }
        }
        if arrived.contains(&CONTROL) {
            control.accept_and_serve(|request| match request {
                Request::Status => Answer::status(ROLE, driver.borrow().status()),
                Request::Reload {} => {
                    let newest = options.config.newest();
                    Response::from(reload(options, newest, here.is_some(), &mut driver.borrow_mut())).into()
                }
                Request::Drain { node, on } => {
                    Response::from(drain(&mut driver.borrow_mut(), &node, on)).into()
                }
            })?;
        }
    }
}

/// Serves until the handoffs in progress have finished.
fn settle<'a>(driver: &RefCell<Driver<'a>>, events: &Loop<'_, Driver<'a>>) -> Result<()> {
    while !driver.borrow_mut().settle(SETTLE) {
        events.turn()?;
    }
    Ok(())
}

/// Applies a document completely or not at all, and logs that; the result has one line per change.
fn reload(
    options: &Options,
    document: std::result::Result<Document, switchback_config::Error>,
    beside_node: bool,
    driver: &mut Driver<'_>,
) -> Result<Vec<String>> {
    let reloaded = document.map_err(Error::from).and_then(|document| {
        let (cluster, warnings) = read(options, &document, beside_node)?;
        let admin = options.admin.prepare(&cluster)?;
        let changes = driver.reload(cluster)?;
        admin();
        options.config.accept(&document);
        Ok(Reloaded { version: document.version, changes, warnings })
    });
    events::log_reload(reloaded)
}

fn drain(driver: &mut Driver<'_>, node: &str, on: bool) -> Result<Vec<String>> {
    let lines = driver.drain(node, on)?;
    lines.iter().for_each(|line| log::info!("by command: {line}"));
    Ok(lines)
}

/// Random numbers for the policies: SipHash of a counter under the standard library's per-map keys, which come from the
/// kernel.
pub(crate) fn random() -> Box<dyn FnMut() -> u64 + Send> {
    use std::hash::BuildHasher;
    let state = std::hash::RandomState::new();
    let mut counter = 0u64;
    Box::new(move || {
        counter += 1;
        state.hash_one(counter)
    })
}
