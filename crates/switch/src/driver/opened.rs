//! The start of the first thread.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use switchback_config::Cluster;
use switchback_runtime::netlink::Socket;
use switchback_runtime::{Doing, Error, Result, monotonic_ns, privileges, since_1970};
use switchback_survey::Responder;
use switchback_tls::endpoint::Mirrors;
use switchback_wire::clock::NodeClock;
use switchback_wire::{NodeAddress, SB_GENEVE_PORT, sb_node};

use super::{Driver, TICK, new_ids};
use crate::ahead::Ahead;
use crate::announce::Announcer;
use crate::cookies::Keys;
use crate::dispatch::Dispatcher;
use crate::guards::Listed;
use crate::ids::NodeIds;
use crate::plan::NodeId;
use crate::program::Program;
use crate::random;
use crate::recount::Recounter;
use crate::reports::ReportWait;
use crate::sender::Sender;
use crate::switches::Switches;
use crate::threads::{PlanParts, Start, Worker};
use crate::watch::Watch;

/// A switch with its sockets open, before it is attached.
pub struct Opened {
    parts: PlanParts,
    keys: Keys,
    ids: NodeIds,
    /// Node entries of the previous process.
    known: HashMap<NodeId, sb_node>,
    sender: Sender,
    threads: Start,
    netlink: Socket,
    nudge_sockets: HashMap<bool, UdpSocket>,
}

impl Opened {
    /// Opens the sockets. `zone` is this machine's zone, `here` the name of the local node.
    pub fn new(
        cluster: Cluster,
        zone: Option<&str>,
        here: Option<&str>,
        program: &Program,
    ) -> Result<Opened> {
        let known: HashMap<NodeId, sb_node> = program.nodes().into_iter().collect();
        let places = known.iter().map(|(id, node)| (*id, NodeAddress::from_wire(node.address)));
        let ids = new_ids(&NodeIds::restore(places), &cluster)?;
        let keys = Keys::new(&cluster.keys, since_1970());
        let mut nudge_sockets = HashMap::new();
        for v6 in [false, true] {
            if cluster.nodes.iter().any(|node| node.address.is_ipv6() == v6) {
                nudge_sockets.insert(v6, take_port(v6)?);
            }
        }
        Ok(Opened {
            parts: PlanParts {
                cluster: Arc::new(cluster),
                key: keys.sign(),
                ids: ids.all().clone(),
                zone: zone.map(str::to_owned),
                here: here.map(str::to_owned),
            },
            keys,
            ids,
            known,
            sender: Sender::new(here.is_some()).doing(|| "open raw sockets")?,
            threads: Start::prepare(program.threads(), here.is_some())?,
            netlink: Socket::route().doing(|| "open a netlink socket")?,
            nudge_sockets,
        })
    }

    /// Drops the capabilities that only the start needs, starts the other threads, fills the maps and announces the VIPs.
    pub fn start<'scope, 'a: 'scope>(
        self,
        scope: &'scope Scope<'scope, 'a>,
        program: &'a Program,
    ) -> Result<Driver<'a>> {
        let mut announcers = Vec::new();
        for attached in &program.attached {
            let announcer = Announcer::new(attached.ifindex, attached.mac);
            announcers.push(announcer.doing(|| format!("open a packet socket on {}", attached.name))?);
        }
        privileges::keep_only(program.needs_to_detach())?;
        let Opened { parts, keys, ids, known, sender, threads, netlink, nudge_sockets } = self;
        let sockets = nudge_sockets.values().map(UdpSocket::try_clone).collect::<std::io::Result<_>>();
        let sockets = sockets.doing(|| "share the sockets of handoff packets")?;
        let responder = Responder::start(sockets, &parts.cluster.key_bytes())?;
        let (started, booted) = (Instant::now(), Duration::from_nanos(monotonic_ns()));
        let mut plan = parts.plan(0, Duration::ZERO);
        for node in known.values().filter(|node| node.clock != 0) {
            if let Some(node_at) = plan.node_at(NodeAddress::from_wire(node.address)) {
                plan.restore_clock(node_at, NodeClock::from_ahead(node.clock).since(booted));
            }
        }
        let dispatcher = Dispatcher::one_of(threads.common(), 0, plan, random());
        let mirrors = Mirrors::new(&parts.cluster.key_bytes());
        let mirrors = mirrors.ok_or_else(|| Error::new("the cluster key makes no key for agents"))?;
        let mirrors = Arc::new(mirrors);
        let mut driver = Driver {
            program,
            worker: Worker::new(dispatcher, program.l7(0)?, (sender, Arc::clone(&mirrors)), started),
            others: threads.start(scope, program, &parts, &mirrors, started)?,
            mirrors,
            ids,
            keys,
            netlink,
            nudge_sockets,
            responder,
            routes: HashMap::new(),
            unresolved: BTreeMap::new(),
            ways: HashMap::new(),
            announcers,
            bank: 0,
            listed: Listed::default(),
            ahead: Ahead::new(parts.cluster.reports.interval),
            reports: ReportWait::default(),
            started,
            booted,
            ticked: Duration::ZERO,
            tick: TICK,
            leaving: None,
            ending: None,
            zone: parts.zone,
            here: parts.here,
            sweep: None,
            looked: Duration::ZERO,
            written_nodes: known,
            switches: Switches::default(),
            watch: Watch::default(),
            observer: None,
            recounter: Recounter::start(program.counted()?)?,
            cluster: parts.cluster,
        };
        driver.begin()?;
        Ok(driver)
    }
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
