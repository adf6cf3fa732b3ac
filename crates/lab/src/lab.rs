//! A running lab.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::document;
use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::setup;
use crate::state::{self, HostInfo, LabInfo};
use crate::teardown::{self, Shared};
use crate::topology::{Builder, Plan, Role, Routing};

/// A cluster in network namespaces. It is taken down on drop, on panic, and on SIGINT and SIGTERM.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
    hosts: Vec<Host>,
    /// False for a persistent lab.
    owned: bool,
}

impl Lab {
    /// A builder; its default is one client, one switch and one node on one bridge.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The lab's id, unique on this machine; its namespaces are called `sb<id>-<host>`.
    pub fn id(&self) -> &str {
        &self.shared.info.id
    }

    /// Directory of its logs, configurations and documents. Removed with the lab.
    pub fn directory(&self) -> &Path {
        &self.shared.info.directory
    }

    /// Description of the lab, as `switchback lab list` shows it.
    pub fn info(&self) -> &LabInfo {
        &self.shared.info
    }

    /// The service's IPv4 address.
    pub fn vip4(&self) -> Ipv4Addr {
        self.shared.info.vip4
    }

    /// The service's IPv6 address.
    pub fn vip6(&self) -> Ipv6Addr {
        self.shared.info.vip6
    }

    /// The client of this index, from 0. Panics if it does not exist, like the next two methods.
    pub fn client(&self, index: usize) -> &Host {
        self.nth(Role::Client, index)
    }

    /// The switch of this index, from 0.
    pub fn switch(&self, index: usize) -> &Host {
        self.nth(Role::Switch, index)
    }

    /// The node of this index, from 0.
    pub fn node(&self, index: usize) -> &Host {
        self.nth(Role::Node, index)
    }

    /// The router; None in a flat lab.
    pub fn router(&self) -> Option<&Host> {
        self.with_role(Role::Router).next()
    }

    /// All clients.
    pub fn clients(&self) -> impl Iterator<Item = &Host> {
        self.with_role(Role::Client)
    }

    /// All switches.
    pub fn switches(&self) -> impl Iterator<Item = &Host> {
        self.with_role(Role::Switch)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Host> {
        self.with_role(Role::Node)
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Has new connections of all hosts use Reno, which every kernel has and allows in every namespace, instead of the
    /// machine's congestion control.
    pub fn use_reno(&self) -> Result<()> {
        self.hosts.iter().try_for_each(|host| host.sysctl(&[("ipv4/tcp_congestion_control", "reno")]))
    }

    /// The host of this name, such as `node0`.
    pub fn host(&self, name: &str) -> Result<&Host> {
        self.shared.info.host(name)?;
        self.hosts.iter().find(|host| host.name() == name).ok_or(Error::TornDown)
    }

    /// Sends the VIPs' packets to this switch: by the router's routes, or, in a flat lab, by removal of the VIPs'
    /// neighbour entries on all hosts. A VIP is never an address of a switch's kernel, which would answer with RST
    /// without the switch's program.
    pub fn move_vips(&self, switch: usize) -> Result<()> {
        let (vip4, vip6) = (self.vip4(), self.vip6());
        match self.router() {
            Some(router) => {
                router.namespace().ip(&setup::vip_routes(vip4, vip6, &self.switch(switch).links()[0]))
            }
            None => self.hosts.iter().try_for_each(|host| {
                host.namespace().ip(&format!("neigh flush to {vip4}/32\nneigh flush to {vip6}/128\n"))
            }),
        }
    }

    /// Sets an MTU on the path from the router to the clients that no host knows: longer packets are answered with ICMP
    /// "fragmentation needed" or "packet too big". Panics in a lab without a router.
    pub fn set_path_mtu(&self, bytes: u32) -> Result<()> {
        let router = self.router().expect("a path has an MTU of its own only behind a router");
        let (interface, ..) = router.interfaces()[0];
        let routes = self.clients().flat_map(|client| {
            [format!("{}/32", client.ipv4()), format!("{}/128", client.ipv6())]
                .map(|to| format!("route replace {to} dev {interface} mtu lock {bytes}\n"))
        });
        router.namespace().ip(&routes.collect::<String>())
    }

    /// Puts a file into the document trees of all nodes, as `/name`, for running and future servers.
    pub fn add_document(&self, name: &str, content: &[u8]) -> Result<()> {
        self.shared.while_up(|| document::add(self.directory(), name, content))
    }

    /// As [`add_document`](Self::add_document), with this number of zeros, which take no room on the disk.
    pub fn add_zeros(&self, name: &str, bytes: u64) -> Result<()> {
        self.shared.while_up(|| document::add_zeros(self.directory(), name, bytes))
    }

    /// Prints the end of each log of the processes that run, to standard error.
    pub fn print_logs(&self) {
        for process in self.shared.processes() {
            let (name, pid, log) = (process.name(), process.pid(), process.log_tail());
            eprintln!("--- {name} (pid {pid}), end of log:\n{log}");
        }
    }

    /// Takes the lab down now; an error if that fails.
    pub fn down(&self) -> Result<()> {
        self.shared.end()
    }

    /// Leaves the lab running when this process ends, until [`down`](crate::down) is called with its id.
    pub fn persist(mut self) -> Result<LabInfo> {
        let info = LabInfo { persistent: true, ..self.shared.info.clone() };
        info.save()?;
        self.shared.unregister();
        self.owned = false;
        Ok(info)
    }

    fn nth(&self, role: Role, index: usize) -> &Host {
        self.with_role(role).nth(index).unwrap_or_else(|| panic!("the lab has no {role:?} number {index}"))
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(move |host| host.role() == role)
    }
}

impl Builder {
    /// Makes the lab, after removing labs whose owners have ended.
    pub fn up(&self) -> Result<Lab> {
        let plan = self.plan()?;
        teardown::sweep()?;
        let _making = teardown::making();
        let info = claim(&plan)?;
        let shared = match Shared::register(info.clone()) {
            Ok(shared) => shared,
            Err(error) => {
                info.forget();
                return Err(error);
            }
        };
        // From here on a drop of the lab removes all that has been created.
        let mut lab = Lab { shared, hosts: Vec::new(), owned: true };
        document::create(lab.directory())?;
        let mut namespaces = setup::namespaces(&info.namespaces)?;
        let net = namespaces.remove(0);
        setup::connect(self, &plan, &net, &namespaces)?;
        lab.hosts = plan
            .hosts
            .into_iter()
            .zip(namespaces)
            .map(|(host, namespace)| Host::new(host, namespace, net.clone(), Arc::clone(&lab.shared)))
            .collect::<Result<_>>()?;
        if self.routing == Routing::Bird {
            lab.router().into_iter().chain(lab.switches()).try_for_each(|host| host.bird().map(drop))?;
        }
        Ok(lab)
    }
}

/// Finds a free id and writes the state file and the directory of a new lab.
fn claim(plan: &Plan) -> Result<LabInfo> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let owner_pid = std::process::id();
    let own = || format!("read /proc/{owner_pid}/stat");
    let owner_start_ticks = state::start_ticks(owner_pid)
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
        .doing(own)?;
    loop {
        let id = format!("{owner_pid}-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        let namespace = |host: &str| format!("sb{id}-{host}");
        let hosts: Vec<HostInfo> = plan
            .hosts
            .iter()
            .map(|host| HostInfo {
                name: host.name.clone(),
                namespace: namespace(&host.name),
                ipv4: host.links[0].ipv4,
                ipv6: host.links[0].ipv6,
            })
            .collect();
        let mut namespaces = vec![namespace("net")];
        namespaces.extend(hosts.iter().map(|host| host.namespace.clone()));
        let directory = std::env::temp_dir().join(format!("switchback-lab-{id}"));
        let info = LabInfo {
            id,
            persistent: false,
            owner_pid,
            owner_start_ticks,
            directory,
            vip4: plan.vip4,
            vip6: plan.vip6,
            hosts,
            namespaces,
        };
        // If the file exists, the id belongs to a persistent lab of an earlier process with our pid.
        if info.create()? {
            if let Err(error) =
                fs::create_dir(&info.directory).doing(|| format!("create {}", info.directory.display()))
            {
                info.forget();
                return Err(error);
            }
            return Ok(info);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        if std::thread::panicking() {
            self.print_logs();
        }
        if let Err(error) = self.shared.end() {
            eprintln!("lab {} is not gone: {error}", self.id());
        }
    }
}
