//! The switch: reads requests, chooses nodes, hands connections over, and forwards the clients' packets. Responses go
//! from the nodes to the clients directly.
//!
//! The XDP program (`bpf/`) forwards every packet that needs no parsing in user space. Packets that may begin a request
//! reach the [`dispatch`] code through one ring buffer per CPU; `driver` runs it in a single thread, the L7 thread.

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
mod ids;
mod key;
mod nexthop;
mod program;
mod reports;
mod sender;
mod sessions;
mod sizes;
mod switches;
mod watch;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use switchback_config::{Checked, Cluster, Diagnostic};
use switchback_runtime::control::{Answer, ControlServer, Request, Response};
use switchback_runtime::events;
use switchback_runtime::pins::PinDir;
use switchback_runtime::{
    Doing, Error, Facts, Follower, Result, Signals, check_switch, checks, interface, tell_ready,
};

use driver::Driver;
use program::Program;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "switch";

/// Options of `switchback switch`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the cluster's configuration.
    pub config: PathBuf,
    /// Interfaces towards clients and nodes.
    pub interfaces: Vec<String>,
    /// Zone of this machine; the policies prefer nodes in it.
    pub zone: Option<String>,
    /// The `[[switch]]` entry of this machine, if it has one.
    pub name: Option<String>,
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

const RINGS: u64 = 0;
const SIGNALS: u64 = 1;
const CONTROL: u64 = 2;
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
    let (cluster, _) = load(options, here.is_some())?;
    let Some(first) = options.interfaces.first() else {
        return Err(Error::new("the switch needs an interface").remedy("name it with --interface"));
    };
    for name in &options.interfaces {
        checks::refuse_fatal(&check_switch(&Facts::gather(name)))?;
    }
    let mut control = ControlServer::bind(ROLE, first)?;
    options.admin.prepare(&cluster)?();
    let mut program = Program::load(PinDir::open(ROLE, first)?, cluster.limits.flows)?;
    let result = start_and_serve(options, here, &cluster, &mut program, &mut signals, &mut control);
    let detached = program.detach();
    result.and(detached)
}

/// Reads the configuration and logs the warnings about it, which are also returned. Beside a node there are none: its
/// agent has them.
fn load(options: &Options, beside_node: bool) -> Result<(Cluster, Vec<Diagnostic>)> {
    let Checked { cluster, mut warnings } =
        switchback_tls::check(&options.config, &interface::all_addresses()?)
            .map_err(|error| Error::new(error.to_string()).with_exit_status(error.exit_status()))?;
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
    cluster: &Cluster,
    program: &mut Program,
    signals: &mut Signals,
    control: &mut ControlServer,
) -> Result<()> {
    let name = here.map(|(name, _)| name);
    let driver = Driver::new(cluster.clone(), options.zone.as_deref(), name, program)?;
    for name in &options.interfaces {
        program.attach(name)?;
    }
    let rings: Vec<_> = program.rings.iter().chain(here.map(|(_, ring)| ring)).collect();
    let program: &Program = program;
    let driver = Rc::new(RefCell::new(driver.start(program)?));
    let mut builder = RingBufferBuilder::new();
    for ring in rings {
        let driver = Rc::clone(&driver);
        let read = move |data: &[u8]| {
            driver.borrow_mut().on_record(data);
            0
        };
        builder.add(ring, read).doing(|| "read a ring")?;
    }
    let rings = builder.build().doing(|| "read the rings")?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).doing(|| "make an epoll instance")?;
    // SAFETY: the descriptor belongs to `rings`, which lives as long as `epoll`.
    let ring_fd = unsafe { BorrowedFd::borrow_raw(rings.epoll_fd()) };
    for (fd, what) in [(ring_fd, RINGS), (signals.as_fd(), SIGNALS), (control.as_fd(), CONTROL)] {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, what)).doing(|| "watch descriptors")?;
    }
    for attached in &program.attached {
        log::info!("switch ready on {} ({} XDP)", attached.name, attached.mode.name());
    }
    tell_ready();
    loop {
        let events = sleep(&epoll, &rings, program, &driver)?;
        if driver.borrow().leaves_in() == Some(Duration::ZERO) {
            return settle(&driver, &rings, program, &epoll);
        }
        if events.contains(&SIGNALS) {
            let wishes = signals.arrived();
            if wishes.end && driver.borrow().leaves_in().is_some() {
                // Told a second time.
                return settle(&driver, &rings, program, &epoll);
            }
            if wishes.end {
                driver.borrow_mut().leave();
            }
            if wishes.reopen {
                driver.borrow().reopen_log();
            }
            if wishes.reload {
                // The result is in the log.
                let _ = reload_from(options, here.is_some(), &mut driver.borrow_mut());
            }
        }
        if events.contains(&CONTROL) {
            control.accept_and_serve(|request| match request {
                Request::Status => Answer::status(ROLE, driver.borrow().status()),
                Request::Reload {} => {
                    Response::from(reload_from(options, here.is_some(), &mut driver.borrow_mut())).into()
                }
                Request::Drain { node, on } => {
                    Response::from(drain(&mut driver.borrow_mut(), &node, on)).into()
                }
            })?;
        }
    }
}

/// Handles all records in the rings, sleeps until the next event or deadline, and returns the other event sources.
fn sleep(
    epoll: &Epoll,
    rings: &RingBuffer<'_>,
    program: &Program,
    driver: &Rc<RefCell<Driver<'_>>>,
) -> Result<Vec<u64>> {
    let read = || rings.consume().doing(|| "read the rings");
    // A record may arrive before we sleep and be read here; the program then still considers this thread awake.
    loop {
        program.set_awake(false);
        read()?;
        driver.borrow_mut().on_time();
        if !program.is_awake() {
            break;
        }
    }
    // Rounded up: a shorter timeout would spin until the deadline.
    let ms = u16::try_from(driver.borrow().timeout().as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
    let mut events = [EpollEvent::empty(); 4];
    let count = match epoll.wait(&mut events, EpollTimeout::from(ms)) {
        Ok(count) => count,
        Err(nix::Error::EINTR) => 0,
        Err(error) => return Err(Error::cannot("wait for events", error)),
    };
    program.set_awake(true);
    read()?;
    driver.borrow_mut().on_time();
    Ok(events[..count].iter().map(EpollEvent::data).collect())
}

/// Serves the rings until the handoffs in progress have finished.
fn settle(
    driver: &Rc<RefCell<Driver<'_>>>,
    rings: &RingBuffer<'_>,
    program: &Program,
    epoll: &Epoll,
) -> Result<()> {
    while !driver.borrow_mut().settle(SETTLE) {
        sleep(epoll, rings, program, driver)?;
    }
    Ok(())
}

fn reload_from(options: &Options, beside_node: bool, driver: &mut Driver<'_>) -> Result<Vec<String>> {
    let reloaded = load(options, beside_node).and_then(|(cluster, warnings)| {
        let admin = options.admin.prepare(&cluster)?;
        let lines = driver.reload(cluster)?;
        admin();
        Ok((lines, warnings))
    });
    events::log_reload(reloaded)
}

fn drain(driver: &mut Driver<'_>, node: &str, on: bool) -> Result<Vec<String>> {
    let lines = driver.drain(node, on)?;
    lines.iter().for_each(|line| log::info!("by command: {line}"));
    Ok(lines)
}
