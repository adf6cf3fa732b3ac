//! The BPF programs and their maps: loading, pinning, attaching, taking over from an agent that was killed.
//!
//! The map `owned` has the node's flows, and a new agent continues with the old one's if both agree on its layout. Maps
//! that follow from the configuration are created anew and filled before the first program that uses them is attached.
//! An attached program is replaced in place, so no packet passes without one.

mod clients;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, OpenObject, ProgramInput, ProgramMut, num_possible_cpus,
};
use switchback_http::framing;
use switchback_runtime::pins::PinDir;
use switchback_runtime::programs::{Attachment, Place, attach_or_replace, pin, pin_link, replace_pin, reuse};
use switchback_runtime::{Doing, Error, Result, hides_unread, interface, maps};
use switchback_wire::{
    NodeCounter, address_bytes, bytes_of, endpoint, read_from, sb_flow, sb_flow_state, sb_judged, sb_listed,
    sb_listener, sb_listening_switch, sb_load, sb_node_here, sb_node_settings, sb_persistence, sb_pool_here,
    sb_server, sb_stalled,
};

use crate::facts::{Asker, asker_of};
use crate::flow_map::FlowMap;
use crate::plan::{OwnNode, Plan, PoolListener};
use crate::released::Released;
use crate::skeleton::{self, NodeSkel, NodeSkelBuilder, OpenNodeSkel};
use crate::stalled;

const LOOPBACK: &str = "lo";

/// The loaded programs. Dropping them leaves the pinned ones at work.
pub(crate) struct Programs<'obj> {
    skeleton: NodeSkel<'obj>,
    memory: RefCell<&'obj mut skeleton::types::bss>,
    attached: Vec<Attachment>,
}

impl<'obj> Programs<'obj> {
    /// Loads the programs, reusing the maps of an earlier agent where the layouts match, and fills the maps.
    pub(crate) fn load(
        storage: &'obj mut MaybeUninit<OpenObject>,
        pins: &PinDir,
        settings: &sb_node_settings,
        plan: &Plan,
    ) -> Result<Programs<'obj>> {
        let mut open = open(storage)?;
        let [owned, counters, closed, masquerades, away] =
            ["owned", "counters", "closed", "masquerades", "away"].map(|name| pins.path(name));
        // The flow map of a killed agent keeps its size.
        let flows = MapHandle::from_pinned_path(&owned)
            .map_or(plan.cluster.limits.node_flows, |map| map.max_entries());
        set_flows(&mut open, flows)?;
        // A kernel that cannot be tried is taken for one without the mistake.
        constants(&mut open).hides_unread = hides_unread().unwrap_or(false);
        open.progs.switchback_plain_tcp.set_autoload(plan.plain_tcp);
        reuse(&mut open.maps.owned, &owned)?;
        reuse(&mut open.maps.counters, &counters)?;
        reuse(&mut open.maps.closed, &closed)?;
        reuse(&mut open.maps.masquerades, &masquerades)?;
        reuse(&mut open.maps.away, &away)?;
        let mut skeleton = open.load().doing(|| "load the node's BPF programs")?;
        let memory = skeleton.maps.bss_data.take().expect("the programs have an array in their .bss");
        let mut programs = Programs { skeleton, memory: RefCell::new(memory), attached: Vec::new() };
        programs.set_settings(settings)?;
        for vip in &plan.vips {
            programs.add_vip(*vip, plan.kind_of(*vip))?;
        }
        programs.set_sessions(&plan.sessions)?;
        programs.set_servers(plan)?;
        programs.set_judged(plan)?;
        programs.attach_insert()?;
        let maps = &mut programs.skeleton.maps;
        pin(&mut maps.owned, &owned)?;
        pin(&mut maps.counters, &counters)?;
        pin(&mut maps.closed, &closed)?;
        pin(&mut maps.masquerades, &masquerades)?;
        pin(&mut maps.away, &away)?;
        replace_pin(&mut maps.settings, &pins.path("settings"))?;
        replace_pin(&mut maps.vip_addresses, &pins.path("vip_addresses"))?;
        Ok(programs)
    }

    /// Attaches all programs, replacing those of an earlier agent. The one on the loopback interface is for a machine
    /// that is also a switch.
    pub(crate) fn attach(
        &mut self,
        pins: &PinDir,
        (interface, index): (&str, u32),
        beside_switch: bool,
    ) -> Result<()> {
        let programs = &self.skeleton.progs;
        // Egress first: it drops the packets of released flows, and without ingress there are no adoptions.
        let mut places = vec![
            (&programs.switchback_egress, "egress", interface, index),
            (&programs.switchback_ingress, "ingress", interface, index),
        ];
        if beside_switch {
            let loopback = interface::index(LOOPBACK)?;
            places.push((&programs.switchback_loopback, "loopback", LOOPBACK, loopback));
        }
        for (program, name, interface, index) in places {
            let attached = attach_or_replace(program, &pins.link_path(name), index, Place::Last);
            let doing = || format!("attach the program switchback_{name} to {interface}");
            self.attached.push(attached.doing(doing)?);
        }
        // A tracepoint link's program cannot be replaced. For a moment both programs see the same events, which is
        // harmless: the first one removes the flow's entry.
        let link = programs.switchback_socket_state.attach();
        let link = link.and_then(|link| pin_link(link, &pins.link_path("socket_state")));
        let link = link.doing(|| "attach the program switchback_socket_state to inet_sock_set_state")?;
        self.attached.push(Attachment::Link(link));
        Ok(())
    }

    /// Makes new sockets for MPTCP sockets for TCP, or leaves them alone again, if an earlier agent has made them so.
    /// [`Self::load`] has been told the same.
    pub(crate) fn keep_plain_tcp(&mut self, pins: &PinDir, wanted: bool) -> Result<()> {
        let path = pins.link_path("plain_tcp");
        if !wanted {
            // Mostly there is none.
            let _ = std::fs::remove_file(path);
            return Ok(());
        }
        let link = self.skeleton.progs.switchback_plain_tcp.attach().and_then(|link| pin_link(link, &path));
        let link = link.doing(|| "attach the program switchback_plain_tcp to update_socket_protocol");
        self.attached.push(Attachment::Link(link?));
        Ok(())
    }

    /// Attaches a guard, which drops packets to VIPs on another interface. None if the interface has gone meanwhile.
    pub(crate) fn guard(&self, pins: &PinDir, index: u32) -> Result<Option<Attachment>> {
        let program = &self.skeleton.progs.switchback_guard;
        match attach_or_replace(program, &Self::guard_path(pins, index), index, Place::Last) {
            Err(_) if interface::name(index).is_none() => Ok(None),
            guard => {
                guard.map(Some).doing(|| format!("attach the program switchback_guard to interface {index}"))
            }
        }
    }

    /// Removes the pin of a guard.
    pub(crate) fn unguard(pins: &PinDir, index: u32) {
        // There may be none.
        let _ = std::fs::remove_file(Self::guard_path(pins, index));
    }

    fn guard_path(pins: &PinDir, index: u32) -> PathBuf {
        pins.link_path(&format!("guard-{index}"))
    }

    /// Detaches everything and removes the pins.
    pub(crate) fn remove(self, pins: PinDir) -> Result<()> {
        for attached in &self.attached {
            // At once, where the kernel can; the tracepoint goes with its last descriptor.
            let _ = attached.detach();
        }
        let removed = pins.remove_all();
        drop(self);
        removed
    }

    /// Replaces the settings.
    pub(crate) fn set_settings(&self, settings: &sb_node_settings) -> Result<()> {
        let map = &self.skeleton.maps.settings;
        map.update(&0u32.to_ne_bytes(), bytes_of(settings), MapFlags::ANY).doing(|| "write the map settings")
    }

    /// Adds a VIP: ARP for it is left to the switch, and its packets must come through a switch. `kind` is one of
    /// `SB_VIP_*`.
    pub(crate) fn add_vip(&self, vip: IpAddr, kind: u32) -> Result<()> {
        let map = &self.skeleton.maps.vip_addresses;
        let doing = || format!("add {vip} to the map vip_addresses");
        map.update(&address_bytes(vip), &kind.to_ne_bytes(), MapFlags::ANY).doing(doing)
    }

    /// Removes a VIP.
    pub(crate) fn remove_vip(&self, vip: IpAddr) -> Result<()> {
        let map = &self.skeleton.maps.vip_addresses;
        map.delete(&address_bytes(vip)).doing(|| format!("remove {vip} from the map vip_addresses"))
    }

    /// Replaces the nodes of this machine.
    pub(crate) fn set_nodes(&self, plan: &Plan, is_draining: impl Fn(&OwnNode) -> bool) -> Result<()> {
        let key = |node: &OwnNode| u32::from(node.number).to_ne_bytes().to_vec();
        let load = &self.skeleton.maps.load;
        let cpus = num_possible_cpus().doing(|| "count the CPUs")?;
        let nothing = vec![bytes_of(&sb_load::default()).to_vec(); cpus];
        for node in &plan.nodes {
            let added = load.update_percpu(&key(node), &nothing, MapFlags::NO_EXIST);
            if added.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
                return added.doing(|| "write the map load");
            }
        }
        let here = |node: &OwnNode| sb_node_here { draining: is_draining(node).into() };
        let wanted = plan.nodes.iter().map(|node| (key(node), bytes_of(&here(node)).to_vec())).collect();
        maps::replace(&self.skeleton.maps.nodes_here, &wanted).doing(|| "write the map nodes_here")
    }

    /// Replaces the listeners that are not at their VIP, and finds the interfaces behind which they are.
    pub(crate) fn set_servers(&self, plan: &Plan) -> Result<()> {
        let elsewhere = plan.listeners.iter().filter(|listener| listener.at != listener.address);
        let entry = |listener: &PoolListener| {
            let ifindex = match plan.is_away(listener) {
                true => interface::towards(listener.at.ip())?.unwrap_or(0),
                false => 0,
            };
            let server = sb_server { at: endpoint(listener.at), ifindex };
            let (vip, node) = (endpoint(listener.address), plan.number_of(listener));
            let key = sb_listener { vip, node, reserved: 0 };
            Ok((bytes_of(&key).to_vec(), bytes_of(&server).to_vec()))
        };
        let wanted = elsewhere.map(entry).collect::<Result<_>>()?;
        maps::replace(&self.skeleton.maps.servers, &wanted).doing(|| "write the map servers")
    }

    /// Replaces the listeners whose responses are judged.
    pub(crate) fn set_judged(&self, plan: &Plan) -> Result<()> {
        let map = &self.skeleton.maps.judged_listeners;
        let wanted: HashSet<Vec<u8>> = plan.judged().map(|listener| bytes_of(&listener).to_vec()).collect();
        for key in map.keys().filter(|key| !wanted.contains(key)) {
            map.delete(&key).doing(|| "write the map judged_listeners")?;
        }
        for key in wanted {
            let added = map.update(&key, bytes_of(&sb_judged::default()), MapFlags::NO_EXIST);
            if added.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists) {
                return added.doing(|| "write the map judged_listeners");
            }
        }
        Ok(())
    }

    /// The ring of judgments.
    pub(crate) fn judgments(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.judgments).doing(|| "open the map judgments")
    }

    /// Attaches the program that inserts cookies to the map of sockets, for as long as the map exists.
    fn attach_insert(&self) -> Result<()> {
        let map = self.skeleton.maps.sockets.as_fd().as_raw_fd();
        let attached = self.skeleton.progs.switchback_insert.attach_sockmap(map);
        attached.map(drop).doing(|| "attach the program switchback_insert to the map sockets")
    }

    /// Replaces the cookie settings of the pools.
    pub(crate) fn set_sessions(&self, sessions: &HashMap<sb_pool_here, sb_persistence>) -> Result<()> {
        let wanted = sessions.iter();
        let wanted = wanted.map(|(key, entry)| (bytes_of(key).to_vec(), bytes_of(entry).to_vec())).collect();
        maps::replace(&self.skeleton.maps.persistence, &wanted).doing(|| "write the map persistence")
    }

    /// The map of flows that this node has or has had.
    pub(crate) fn owned(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.owned).doing(|| "open the map owned")
    }

    /// The ring of ended flows.
    pub(crate) fn closed(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.closed).doing(|| "open the map closed")
    }

    /// The ring of responses with which other nodes could go on.
    pub(crate) fn insurable(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.insurable).doing(|| "open the map insurable")
    }

    /// The map of responses of other nodes with which this one can go on.
    pub(crate) fn insured(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.insured).doing(|| "open the map insured")
    }

    /// The map of this node's responses with which another one can go on.
    pub(crate) fn have_heirs(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.have_heirs).doing(|| "open the map have_heirs")
    }

    /// The map of fingerprints that other nodes tell.
    pub(crate) fn heard(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.heard).doing(|| "open the map heard")
    }

    /// The map of fingerprints of responses under way.
    pub(crate) fn fingerprints(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.fingerprints).doing(|| "open the map fingerprints")
    }

    /// The nodes that a switch has called dead after `since`, by the hash of their name.
    pub(crate) fn deaths(&self, since: u64) -> Result<HashSet<u32>> {
        let mut dead = HashSet::new();
        let collect = |node: &[u8], at: &[u8]| {
            let number = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
            let at = <[u8; 8]>::try_from(at).map_or(0, u64::from_ne_bytes);
            dead.extend(number(node).filter(|_| at >= since));
        };
        maps::for_each(&self.skeleton.maps.deaths, collect).doing(|| "read the map deaths")?;
        Ok(dead)
    }

    /// The ring of response lengths that a switch has asked for.
    pub(crate) fn sized(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.sized).doing(|| "open the map sized")
    }

    /// The ring for the switch on this machine.
    pub(crate) fn to_switch(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.to_switch).doing(|| "open the map to_switch")
    }

    /// The programs' sums for reports, by the node's number.
    pub(crate) fn load_sums(&self) -> Result<HashMap<u16, sb_load>> {
        read_loads(&self.skeleton.maps.load)
    }

    /// The flows that nodes of this machine have or have had, for walks over all of them.
    pub(crate) fn flow_map(&self) -> Result<FlowMap> {
        FlowMap::new(&self.skeleton.maps.owned, &self.skeleton.maps.load)
    }

    /// Adds flows that an agent before this one has released, unless the map has newer entries.
    pub(crate) fn add_released(&self, released: &[Released]) -> Result<()> {
        let map = &self.skeleton.maps.owned;
        for (flow, owned) in released {
            let key = bytes_of(flow);
            if map.lookup(key, MapFlags::ANY).doing(|| "read the map owned")?.is_none() {
                map.update(key, bytes_of(owned), MapFlags::ANY).doing(|| "write the map owned")?;
            }
        }
        Ok(())
    }

    /// The state of those of the flows that the node with a number has.
    pub(crate) fn describe(&self, node: u16, flows: &[sb_flow]) -> Result<Vec<sb_listed>> {
        describe(&self.skeleton.progs.describe_flows, &mut self.memory.borrow_mut(), node, flows)
    }

    /// The flows whose server waits for an acknowledgment.
    pub(crate) fn stalled(&self) -> Result<Vec<sb_stalled>> {
        stalled::read(&self.skeleton.progs.switchback_stalled)
    }

    /// The ring of facts.
    pub(crate) fn facts(&self) -> Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.facts).doing(|| "open the map facts")
    }

    /// Switches that want reports, with their last message about each node.
    pub(crate) fn switches(&self) -> Result<Vec<Listening>> {
        let map = &self.skeleton.maps.switches;
        let read = |key: Vec<u8>| {
            // The entry may have been removed since.
            let value = map.lookup(&key, MapFlags::ANY).doing(|| "read the map switches")?;
            let said = value.and_then(|value| read_from::<sb_listening_switch>(&value));
            let asker = read_from(&key).map(asker_of);
            Ok(asker.zip(said).map(|(asker, said)| Listening { asker, said }))
        };
        map.keys().filter_map(|key| read(key).transpose()).collect()
    }

    /// All counters by name, summed over the CPUs.
    pub(crate) fn counters(&self) -> Result<BTreeMap<&'static str, u64>> {
        let read = |counter: NodeCounter| Ok((counter.name(), self.counter(counter)?));
        NodeCounter::ALL.into_iter().map(read).collect()
    }

    /// A counter, summed over the CPUs.
    pub(crate) fn counter(&self, counter: NodeCounter) -> Result<u64> {
        let map = &self.skeleton.maps.counters;
        let per_cpu = map.lookup_percpu(&(counter as u32).to_ne_bytes(), MapFlags::ANY);
        let values = per_cpu.doing(|| "read the map counters")?.unwrap_or_default();
        Ok(values.iter().filter_map(|value| value.as_slice().try_into().ok()).map(u64::from_ne_bytes).sum())
    }
}

/// A switch that wants reports of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    pub(crate) asker: Asker,
    /// What it has said last.
    pub(crate) said: sb_listening_switch,
}

/// The switches, each once with what it has said last about any node.
pub(crate) fn by_switch(listening: &[Listening]) -> Vec<(IpAddr, sb_listening_switch)> {
    let mut switches = BTreeMap::<IpAddr, sb_listening_switch>::new();
    for Listening { asker: (switch, _), said } in listening {
        let last = switches.entry(*switch).or_insert(*said);
        if last.heard_ns < said.heard_ns {
            *last = *said;
        }
    }
    switches.into_iter().collect()
}

/// Runs `describe_flows` (bpf/list.h) on the flows; the result has those that the node has.
fn describe(
    program: &ProgramMut<'_>,
    memory: &mut skeleton::types::bss,
    node: u16,
    flows: &[sb_flow],
) -> Result<Vec<sb_listed>> {
    let mut listed = Vec::with_capacity(flows.len());
    for batch in flows.chunks(memory.described.len()) {
        for (place, flow) in std::iter::zip(&mut memory.described, batch) {
            // SAFETY: both types are generated from the same C structure.
            unsafe { (&raw mut place.flow).cast::<sb_flow>().write(*flow) };
        }
        memory.described_len = batch.len() as u32;
        program.test_run(ProgramInput::default()).doing(|| "run the program describe_flows")?;
        let owned =
            memory.described[..batch.len()].iter().filter(|place| place.is_owned != 0 && place.node == node);
        listed.extend(owned.map(|place| {
            // SAFETY: both pairs of types are generated from the same C structures.
            let (flow, state) = unsafe {
                let state = (&raw const place.state).cast::<sb_flow_state>().read();
                ((&raw const place.flow).cast::<sb_flow>().read(), state)
            };
            sb_listed { flow, state }
        }));
    }
    Ok(listed)
}

/// The sums of each node over all CPUs.
pub(crate) fn read_loads(map: &impl MapCore) -> Result<HashMap<u16, sb_load>> {
    let read = |key: Vec<u8>| {
        let number = u32::from_ne_bytes(key[..4].try_into().expect("a key has 4 bytes"));
        Ok((number as u16, read_load(map, &key)?))
    };
    map.keys().map(read).collect()
}

fn read_load(map: &impl MapCore, key: &[u8]) -> Result<sb_load> {
    let per_cpu = map.lookup_percpu(key, MapFlags::ANY).doing(|| "read the map load")?;
    let mut sums = sb_load::default();
    for cpu in per_cpu.iter().flatten().filter_map(|value| read_from::<sb_load>(value)) {
        sums.requests += cpu.requests;
        sums.responses += cpu.responses;
        sums.abandoned += cpu.abandoned;
        sums.flows += cpu.flows;
        sums.ended += cpu.ended;
        sums.first_bytes += cpu.first_bytes;
        sums.waited_us += cpu.waited_us;
    }
    Ok(sums)
}

/// The programs with the framing automata, before loading.
fn open(storage: &mut MaybeUninit<OpenObject>) -> Result<OpenNodeSkel<'_>> {
    libbpf_rs::set_print(None);
    let mut open = NodeSkelBuilder::default().open(storage).doing(|| "open the node's BPF programs")?;
    // Not every kernel has what it is for.
    open.progs.switchback_plain_tcp.set_autoload(false);
    let constants = constants(&mut open);
    let tables = [framing::responses(), framing::requests()].map(framing::Table::cells);
    for (place, cells) in constants.framing_cells.chunks_exact_mut(tables[0].len()).zip(tables) {
        place.copy_from_slice(cells);
    }
    Ok(open)
}

fn constants<'a>(open: &'a mut OpenNodeSkel<'_>) -> &'a mut skeleton::types::rodata {
    open.maps.rodata_data.as_mut().expect("the program has an automaton in its .rodata")
}

/// Sets the sizes of the maps for so many flows.
fn set_flows(open: &mut OpenNodeSkel<'_>, flows: u32) -> Result<()> {
    let maps = &mut open.maps;
    [
        &mut maps.owned,
        &mut maps.away,
        &mut maps.over,
        &mut maps.claims,
        &mut maps.have_heirs,
        &mut maps.fingerprints,
        &mut maps.heard,
        &mut maps.insured,
    ]
    .into_iter()
    .try_for_each(|map| map.set_max_entries(flows))
    .doing(|| format!("set the number of flows to {flows}"))
}

/// Adds to a load error how to find out what the machine lacks.
pub(crate) fn cannot_load(error: Error) -> Error {
    error.remedy("`switchback doctor` tells what this machine lacks")
}

#[cfg(test)]
mod tests;
