//! The XDP program and its maps: loading, attaching, taking over from a previous process, detaching.
//!
//! Link, flow map, node map and counters are pinned. If a switch is killed, the program keeps forwarding running
//! requests and answering SYNs; new requests wait for the next process, which takes over without a gap. A switch that
//! ends in order leaves nothing behind; the next one finds the owners of running flows with PROBE packets.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, OpenObject};
use switchback_flow::entry::Entry;
use switchback_http::framing;
use switchback_runtime::netlink::Socket;
use switchback_runtime::pins::PinDir;
use switchback_runtime::privileges::CapabilitySet;
use switchback_runtime::programs::{Attachment, Place, attach_or_replace};
use switchback_runtime::{Doing, Error, Result, interface, maps};
use switchback_wire::*;

use crate::ahead::Shared;
use crate::express::Tables;
use crate::guards::Guards;
use crate::nexthop;
use crate::plan::NodeId;
use crate::recount::Counted;

pub mod l7;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/switch.skel.rs"));
}
use skeleton::{OpenSwitchSkel, SwitchSkel, SwitchSkelBuilder};

/// Size of a CPU's ring for the first L7 thread, which gets bursts of facts, in bytes; a power of two.
const RING_LEN: usize = 4 << 20;
/// Least size of a ring for another thread: all of them share as much memory as the first one's.
const OTHERS_LEN: usize = 128 << 10;
/// Size of a CPU's observer ring, in bytes; a power of two.
const OBSERVED_LEN: usize = 4 << 20;
/// Least size of the maps that follow from the number of flows.
const FEWEST: u32 = 1 << 12;
const PINNED_MAPS: [&str; 3] = ["flows", "nodes", "counters"];

/// XDP attachment mode of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's generic code, for drivers without XDP.
    Generic,
}

impl Mode {
    /// Name of the mode, close to that of `ip link`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// Ways in which XDP can send on an interface (`SB_SENDS_*`). Without one the kernel sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways(pub u16);

impl Ways {
    /// All ways.
    pub const ALL: Ways = Ways((SB_SENDS_TX | SB_SENDS_REDIRECT) as u16);
}

/// An interface that the program is attached to.
#[derive(Debug)]
pub struct Attached {
    /// Interface name from the options.
    pub name: String,
    /// Interface index.
    pub ifindex: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Attachment mode.
    pub mode: Mode,
    /// Whether it is a veth, which delivers what `XDP_TX` sends only if its other end has a program.
    is_veth: bool,
}

impl Attached {
    /// The ways in which XDP can send on the interface now.
    pub fn ways(&self) -> Result<Ways> {
        if self.mode == Mode::Generic {
            return Ok(Ways::ALL);
        }
        let sends_redirected = interface::xdp(self.ifindex)?.sends_redirected;
        let way = |works: bool, way: u32| if works { way as u16 } else { 0 };
        Ok(Ways(way(!self.is_veth, SB_SENDS_TX) | way(sends_redirected, SB_SENDS_REDIRECT)))
    }
}

/// The loaded program.
pub struct Program {
    skel: SwitchSkel<'static>,
    pins: Option<PinDir>,
    /// Ring buffers by L7 thread and CPU.
    rings: Vec<Vec<MapHandle>>,
    /// Observer ring buffers by CPU.
    observed: Vec<MapHandle>,
    attachments: Vec<Attachment>,
    /// Shared with the program, which reads and changes it at any time.
    memory: *mut skeleton::types::bss,
    /// Interfaces with the program attached.
    pub attached: Vec<Attached>,
}

impl Program {
    /// Loads the program for so many flows and L7 threads, reusing the maps of the previous process where the layouts match.
    pub fn load(pins: PinDir, flows: u32, threads: usize) -> Result<Self> {
        Self::load_with(Some(pins), flows, threads)
    }

    /// Without pins, nothing outlives the process.
    fn load_with(pins: Option<PinDir>, flows: u32, threads: usize) -> Result<Self> {
        // The skeleton borrows the object for the lifetime of the process.
        let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = SwitchSkelBuilder::default().open(object).doing(|| "open the XDP program")?;
        let cpus = libbpf_rs::num_possible_cpus().doing(|| "count the CPUs")?;
        open.maps.rings.set_max_entries((cpus * threads) as u32).doing(|| "set the number of rings")?;
        constants(&mut open).l7_threads = threads as u32;
        set_flows(&mut open, flows)?;
        constants(&mut open).framing_cells.copy_from_slice(framing::requests().cells());
        if let Some(pins) = &pins {
            pin_maps(&mut open, pins)?;
        }
        open.maps.observed_rings.set_max_entries(cpus as u32).doing(|| "set the number of rings")?;
        let mut skel = open
            .load()
            .doing(|| "load the XDP program `switchback`")
            .map_err(|error| error.remedy("`switchback doctor` tells what this machine lacks"))?;
        let others_len = (RING_LEN / threads).next_power_of_two().max(OTHERS_LEN);
        let len = |number| if number % threads == 0 { RING_LEN } else { others_len };
        let rings = by_thread(new_rings(&skel.maps.rings, cpus * threads, len)?, threads);
        // Made now, because the process has no capabilities later, when a reload may add an access log.
        let observed = new_rings(&skel.maps.observed_rings, cpus, |_| OBSERVED_LEN)?;
        let memory = skel.maps.bss_data.take().expect("the program has tables in its .bss");
        Ok(Program { skel, memory, pins, rings, observed, attachments: Vec::new(), attached: Vec::new() })
    }

    /// Attaches the program to an interface, or takes over the previous process's attachment.
    pub fn attach(&mut self, name: &str) -> Result<()> {
        let ifindex = interface::index(name)?;
        let mac = Socket::route().and_then(|mut netlink| nexthop::mac_of(&mut netlink, ifindex));
        let mac = mac.doing(|| format!("read the hardware address of {name}"))?;
        let mac = mac.ok_or_else(|| Error::new(format!("{name} is no Ethernet interface")))?;
        let pins = self.pins.as_ref().expect("pins are removed by detach() only, which is the end");
        let sender_pin = pins.link_path(&format!("transmit-{name}"));
        let sender = &self.skel.progs.switchback_transmit;
        let sender = attach_or_replace(sender, &sender_pin, ifindex, Place::First)
            .doing(|| format!("attach the program `switchback_transmit` to {name}"))?;
        self.attachments.push(sender);
        let pin = pins.link_path(&format!("xdp-{name}"));
        let program = &self.skel.progs.switchback;
        let previous = if pin.exists() { Link::open(&pin).ok() } else { None };
        let link = match previous {
            Some(mut link) if is_attached_to(&link, ifindex) => {
                link.update_prog(program).doing(|| format!("replace the XDP program on {name}"))?;
                link
            }
            _ => {
                let _ = std::fs::remove_file(&pin);
                let mut link =
                    program.attach_xdp(ifindex as i32).map_err(|error| attach_error(name, &error))?;
                link.pin(&pin).doing(|| format!("pin the XDP link of {name} at {}", pin.display()))?;
                link
            }
        };
        self.attachments.push(Attachment::Link(link));
        let mode = if interface::xdp(ifindex)?.is_generic { Mode::Generic } else { Mode::Native };
        let is_veth = interface::driver(name)? == "veth";
        self.attached.push(Attached { name: name.to_string(), ifindex, mac, mode, is_veth });
        if mode == Mode::Generic && interface::gro(name)? {
            return Err(Error::new(format!(
                "{name} has no native XDP, and in generic mode packets arrive merged (GRO), longer than can be handed over"
            ))
            .remedy(format!("run `ethtool -K {} gro off` and start again", interface::merging(name)?)));
        }
        Ok(())
    }

    /// Number of CPUs that the program may run on.
    pub fn cpus(&self) -> u32 {
        self.observed.len() as u32
    }

    /// Number of L7 threads.
    pub fn threads(&self) -> usize {
        self.rings.len()
    }

    /// The capabilities that [`Self::detach`] needs: none, where all programs are attached by links.
    pub fn needs_to_detach(&self) -> CapabilitySet {
        let is_filter = |attachment: &Attachment| matches!(attachment, Attachment::Filter(_));
        match self.attachments.iter().any(is_filter) {
            true => CapabilitySet::NET_ADMIN,
            false => CapabilitySet::empty(),
        }
    }

    /// Detaches from all interfaces and removes the pins; the maps live until the process ends.
    pub fn detach(&mut self) -> Result<()> {
        for attachment in self.attachments.drain(..).rev() {
            // Explicitly, because the kernel defers it if the pin held the last reference.
            let _ = attachment.detach();
        }
        self.pins.take().map_or(Ok(()), PinDir::remove_all)
    }

    /// A closure that counts the flows, in any thread: with many flows this takes tens of milliseconds.
    pub fn flow_counter(&self) -> Result<impl FnOnce() -> Result<u64> + Send + 'static> {
        let maps = [&self.skel.maps.flows, &self.skel.maps.waiting].map(MapHandle::try_from);
        let [flows, waiting] = maps.map(|map| map.doing(|| "use the flow map"));
        let maps = [flows?, waiting?];
        let count = |map: &MapHandle| -> Result<u64> {
            let mut count = 0;
            maps::for_each(map, |_, _| count += 1).doing(|| "read the flow map")?;
            Ok(count)
        };
        Ok(move || maps.iter().map(count).sum())
    }

    /// The maps by which limits of connections at a time are kept.
    pub fn counted(&self) -> Result<Counted> {
        let maps = &self.skel.maps;
        let handles = [&maps.flows, &maps.waiting, &maps.connections].map(MapHandle::try_from);
        let [flows, waiting, connections] = handles.map(|map| map.doing(|| "use the maps of connections"));
        Ok(Counted { flows: [flows?, waiting?], connections: connections? })
    }

    /// The flows of these nodes that are not locked by an L7 thread, with their entries.
    pub fn unlocked_flows(&self, nodes: &[NodeId]) -> Result<Vec<(sb_flow, Entry)>> {
        let unlocked = |flow: &[u8], entry: &[u8]| {
            let entry = read_from::<sb_flow_entry>(entry).filter(|entry| entry.locked == 0)?;
            Some((read_from(flow)?, Entry::decode(&entry).filter(|entry| nodes.contains(&entry.node))?))
        };
        let mut flows = Vec::new();
        maps::for_each(&self.skel.maps.flows, |flow, entry| flows.extend(unlocked(flow, entry)))
            .doing(|| "read the flow map")?;
        Ok(flows)
    }

    /// All entries of the node map.
    pub fn nodes(&self) -> Vec<(NodeId, sb_node)> {
        let map = &self.skel.maps.nodes;
        let entries = map.keys().filter_map(|key| {
            let id = NodeId(u32::from_ne_bytes(key.as_slice().try_into().ok()?));
            let node: sb_node = read_from(&map.lookup(&key, MapFlags::ANY).ok()??)?;
            (node.address.machine != [0; 16]).then_some((id, node))
        });
        entries.collect()
    }

    /// Sets a node entry. If the index belonged to another node, messages from that node are refused from now on.
    pub fn set_node(&self, id: NodeId, node: &sb_node) -> Result<()> {
        let (nodes, ids) = (&self.skel.maps.nodes, &self.skel.maps.node_ids);
        let key = id.0.to_ne_bytes();
        let before = nodes.lookup(&key, MapFlags::ANY).ok().flatten().and_then(|node| read_from(&node));
        if let Some(sb_node { address, .. }) =
            before.filter(|before: &sb_node| before.address != node.address)
        {
            // Usually there was no entry.
            let _ = ids.delete(bytes_of(&address));
        }
        let set = nodes.update(&key, bytes_of(node), MapFlags::ANY);
        let set = set.and_then(|()| ids.update(bytes_of(&node.address), &key, MapFlags::ANY));
        set.doing(|| format!("set node {id}"))
    }

    /// Sets keys and other settings.
    pub fn set_settings(&self, settings: &sb_switch_settings) -> Result<()> {
        let map = &self.skel.maps.settings;
        map.update(&0u32.to_ne_bytes(), bytes_of(settings), MapFlags::ANY).doing(|| "set the program's keys")
    }

    /// Sets the hardware address of an interface, and the ways in which XDP can send on it.
    pub fn set_interface(&self, ifindex: u32, mac: [u8; 6], ways: Ways) -> Result<()> {
        let [a, b, c, d, e, f] = mac;
        let [low, high] = ways.0.to_ne_bytes();
        let map = &self.skel.maps.interfaces;
        map.update(&ifindex.to_ne_bytes(), &[a, b, c, d, e, f, low, high], MapFlags::ANY)
            .doing(|| "set the program's interfaces")
    }

    /// Replaces the VIPs: adds new ones first, removes old ones last.
    pub fn set_vips(&self, vips: &HashMap<Vec<u8>, sb_vip>) -> Result<()> {
        let ports: HashMap<Vec<u8>, Vec<u8>> =
            vips.iter().map(|(key, vip)| (key.clone(), bytes_of(vip).to_vec())).collect();
        let addresses = vips.keys().map(|key| (key[..16].to_vec(), 1u32.to_ne_bytes().to_vec())).collect();
        maps::replace(&self.skel.maps.vips, &ports).doing(|| "set the VIPs")?;
        maps::replace(&self.skel.maps.vip_addresses, &addresses).doing(|| "set the VIPs' addresses")
    }

    /// Gives the first L7 thread access to the automaton's tables.
    pub fn with_tables<T>(&self, work: impl FnOnce(&mut Tables<'_>) -> T) -> T {
        let memory = self.memory;
        // SAFETY: the memory is valid as long as this object lives, and the first L7 thread alone changes these tables.
        unsafe {
            work(&mut Tables {
                transitions: &mut (*memory).transitions,
                classes: &mut (*memory).classes,
                verdicts: &mut (*memory).verdicts,
                members: &mut (*memory).members,
            })
        }
    }

    /// Gives the first L7 thread access to the queues of choices made ahead.
    pub fn with_choices<T>(&self, work: impl FnOnce(&mut Shared<'_>) -> T) -> T {
        let memory = self.memory;
        // SAFETY: the memory is valid as long as this object lives, and the first L7 thread alone uses these fields. Both types
        // of queues are generated from the same C structure.
        unsafe {
            let queues = &raw mut (*memory).choices;
            work(&mut Shared {
                queues: &mut *queues.cast::<[sb_choices; SB_CHOICE_QUEUES as usize]>(),
                places: &mut (*memory).choice_places,
                listeners: &(*memory).listener_queues,
            })
        }
    }

    /// The guards, which the first L7 thread writes.
    pub fn guards(&self) -> Guards<'_> {
        let maps = &self.skel.maps;
        Guards { guards: &maps.guards, tries: [&maps.clients_1, &maps.clients_2], marks: &maps.marks }
    }

    /// Until this time by CLOCK_MONOTONIC, in nanoseconds, reports wake no L7 thread.
    pub fn set_reports_wait(&self, until: u64) {
        // SAFETY: the memory is valid as long as this object lives, and the program reads the word at any time.
        unsafe { std::ptr::write_volatile(&raw mut (*self.memory).reports_wait, until) };
    }

    /// Starts recording the requests that the program forwards itself; the returned rings wake up nobody.
    pub fn observe(&self) -> Result<Vec<MapHandle>> {
        let clone = |ring| MapHandle::try_from(ring).doing(|| "open a ring once more");
        let rings = self.observed.iter().map(clone).collect::<Result<_>>()?;
        self.set_observe(SB_OBSERVE_REQUESTS);
        Ok(rings)
    }

    /// Stops recording forwarded requests.
    pub fn stop_observing(&self) {
        self.set_observe(SB_OBSERVE_NOTHING);
    }

    fn set_observe(&self, what: u32) {
        // SAFETY: the memory is valid as long as this object lives, and the program reads the word at any time.
        unsafe { std::ptr::write_volatile(&raw mut (*self.memory).observe, what) };
    }

    /// A counter, summed over the CPUs.
    pub fn counter(&self, counter: SwitchCounter) -> u64 {
        sum(&self.skel.maps.counters, counter as u32)
    }

    /// Requests that the program itself forwarded to a node.
    pub fn express_by_node(&self, node: NodeId) -> u64 {
        sum(&self.skel.maps.express_by_node, node.0)
    }

    /// Adoptions of flows that the program itself has given to a node.
    pub fn placed_by_node(&self, node: NodeId) -> u64 {
        sum(&self.skel.maps.placed_by_node, node.0)
    }

    /// Requests that the program itself forwarded for a service.
    pub fn express_by_service(&self, service: u32) -> u64 {
        sum(&self.skel.maps.express_by_service, service)
    }
}

/// Value of a per-CPU array of numbers, summed over the CPUs.
fn sum(map: &impl MapCore, key: u32) -> u64 {
    let values = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
    values.iter().filter_map(|value| Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?))).sum()
}

fn constants<'a>(open: &'a mut OpenSwitchSkel<'_>) -> &'a mut skeleton::types::rodata {
    open.maps.rodata_data.as_mut().expect("the program has an automaton in its .rodata")
}

/// Sets the sizes of the maps for so many flows with a node.
fn set_flows(open: &mut OpenSwitchSkel<'_>, flows: u32) -> Result<()> {
    // Fewer are without a node at a time, or have ended not long ago, and fewer clients have them.
    let others = (flows / 4).max(FEWEST);
    let handshakes = (flows / 8).max(FEWEST).next_power_of_two();
    let maps = &mut open.maps;
    [
        (&mut maps.flows, flows),
        (&mut maps.waiting, others),
        (&mut maps.over, others),
        (&mut maps.buckets, others),
        (&mut maps.connections, others),
        (&mut maps.handshakes, handshakes),
    ]
    .into_iter()
    .try_for_each(|(map, size)| map.set_max_entries(size))
    .doing(|| format!("set the number of flows to {flows}"))?;
    constants(open).handshakes_mask = handshakes - 1;
    Ok(())
}

/// Gives maps their pins, so that loading takes those of the previous process. Pinned maps of another layout belong to another
/// version of the program, or to other settings, and are removed first.
fn pin_maps(open: &mut OpenSwitchSkel<'_>, pins: &PinDir) -> Result<()> {
    let mut forgets_flows = false;
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if PINNED_MAPS.contains(&name.as_str()) {
            let path = pins.path(&name);
            if is_outdated(&path, &map) {
                remove_pin(&path)?;
                forgets_flows |= name == "nodes";
            }
            map.set_pin_path(&path).doing(|| format!("set {} as pin of map {name}", path.display()))?;
        }
    }
    // Flows have the indices of their nodes in the other map. They are found again by asking the nodes.
    let flows = pins.path("flows");
    if forgets_flows && flows.exists() { remove_pin(&flows) } else { Ok(()) }
}

fn is_outdated(path: &Path, map: &libbpf_rs::OpenMapMut<'_>) -> bool {
    MapHandle::from_pinned_path(path).is_ok_and(|pinned| {
        pinned.map_type() != map.map_type()
            || pinned.key_size() != map.key_size()
            || pinned.value_size() != map.value_size()
            || pinned.max_entries() != map.max_entries()
    })
}

fn remove_pin(path: &Path) -> Result<()> {
    std::fs::remove_file(path).doing(|| format!("remove the outdated {}", path.display()))
}

/// Makes ring buffers of `len` bytes, a power of two, by their number, and stores them in `map`.
fn new_rings(map: &impl MapCore, count: usize, len: impl Fn(usize) -> usize) -> Result<Vec<MapHandle>> {
    (0..count).map(|number| new_ring(map, number as u32, len(number) as u32)).collect()
}

/// Makes a ring buffer and stores it in `map` under its number.
fn new_ring(map: &impl MapCore, number: u32, len: u32) -> Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    let ring = MapHandle::create(MapType::RingBuf, Some("ring"), 0, 0, len, &options)
        .doing(|| format!("make ring {number}"))?;
    let fd = ring.as_fd().as_raw_fd() as u32;
    map.update(&number.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
        .doing(|| format!("set ring {number}"))?;
    Ok(ring)
}

/// The rings of each thread; in `rings`, those of a CPU follow each other.
fn by_thread(rings: Vec<MapHandle>, threads: usize) -> Vec<Vec<MapHandle>> {
    let mut of = Vec::from_iter(std::iter::repeat_with(Vec::new).take(threads));
    rings.into_iter().enumerate().for_each(|(number, ring)| of[number % threads].push(ring));
    of
}

fn is_attached_to(link: &Link, ifindex: u32) -> bool {
    match link.info().map(|info| info.info) {
        Ok(libbpf_rs::query::LinkTypeInfo::Xdp(xdp)) => xdp.ifindex == ifindex,
        _ => false,
    }
}

fn attach_error(name: &str, error: &libbpf_rs::Error) -> Error {
    let doing = format!("attach XDP to {name}");
    // libbpf-rs does not map EBUSY; errno is still that of the last system call.
    match nix::Error::last() {
        nix::Error::EBUSY | nix::Error::EEXIST => {
            Error::cannot(doing, "another XDP program is there")
                .remedy(format!("see `ip link show {name}`; `ip link set {name} xdp off` removes one that is not needed"))
        }
        _ => Error::cannot(doing, format_args!("{error:#}"))
            .remedy(format!("see `dmesg`; drivers limit the MTU and the offloads that XDP goes with, try `ethtool -K {name} lro off` and an MTU of 1500")),
    }
}

#[cfg(test)]
mod tests;
