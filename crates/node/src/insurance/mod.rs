//! Insurance of responses (docs/decisions/0050): heirs of this node's responses, and this node as an heir of others'.
//!
//! The programs report a response that has become long, with its heads. If these prove what another server could go on with,
//! two other nodes of the pool are told of it ([`heirs`]), and told when it is over. This node keeps what others tell it
//! ([`Estate`]), and offers switches to go on when they call the node of a response dead. A flow that it gets so is accepted
//! by the agent ([`resumed`]).

mod heirs;
mod resumed;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::socket::{Backlog, listen};
use switchback_config::{Action, Resume};
use switchback_http::{Progress, parse_head};
use switchback_resume::{Estate, Flow, Insurable, Message, Offer, Record, Uninsured};
use switchback_routes::Routes;
use switchback_runtime::{Doing, Result};
use switchback_status::node::ResumeStatus;
use switchback_tls::endpoint::{Endpoint, Insurer, Peer, Stream, hear};
use switchback_wire::flow_state::{FlowState, Handshake};
use switchback_wire::generation::Generation;
use switchback_wire::message::FromNode;
use switchback_wire::packet::{flags, segment};
use switchback_wire::report::pool_id;
use switchback_wire::{
    Seq, address_bytes, bytes_of, read_from, sb_flow, sb_insurable, sb_insurable_end, sb_insured, sb_owned,
    sb_ownership, sb_reason,
};

use crate::plan::Plan;
use crate::programs::Programs;
use crate::signer::Signer;
use heirs::{Heirs, Own, Taken};

/// Memory of other nodes' records, and of this node's own, in bytes each.
const BUDGET: usize = 64 << 20;
/// Time for which a node counts as dead after a switch has said so. Switches repeat it each second.
pub(crate) const DEATH_HOLDS: std::time::Duration = std::time::Duration::from_millis(2500);

/// The insurance of this node.
#[derive(Clone)]
pub(crate) struct Insurance(Arc<Inner>);

struct Inner {
    name: String,
    estate: Mutex<Estate>,
    own: Mutex<Own>,
    heirs: Mutex<Heirs>,
    taken: Mutex<Taken>,
    /// Nodes that a switch has called dead lately, by the hash of their name.
    dead: Mutex<HashSet<u32>>,
    pools: RwLock<Arc<Pools>>,
    insured: MapHandle,
    have_heirs: MapHandle,
    owned: MapHandle,
    counts: Mutex<Counts>,
    port: u16,
}

/// What is counted besides.
#[derive(Debug, Default)]
struct Counts {
    insured: u64,
    uninsured: BTreeMap<&'static str, u64>,
    resumed: u64,
    failed: BTreeMap<&'static str, u64>,
}

/// The pools of the node's services.
#[derive(Default)]
struct Pools {
    services: HashMap<SocketAddr, Arc<Routes>>,
    /// By the pool's index: the other nodes, if its responses are resumed.
    peers: Vec<Option<Vec<Peer>>>,
}

impl Pools {
    fn of(plan: &Plan) -> Self {
        let cluster = &plan.cluster;
        let services = cluster.services.iter().filter(|service| service.tls.is_none()).flat_map(|service| {
            let routes = Arc::new(Routes::new(service.routes.clone()));
            service.listen.iter().map(move |vip| (*vip, Arc::clone(&routes)))
        });
        let peers = cluster.pools.iter().map(|pool| {
            let resumes = pool.resume != Resume::Off && pool.nodes.contains(&plan.index);
            resumes.then(|| crate::endpoint::other_nodes(plan, pool))
        });
        Pools { services: services.collect(), peers: peers.collect() }
    }

    /// The nodes that could go on with the response to this request; None if no pool has that.
    fn peers_of(&self, vip: SocketAddr, request: &[u8]) -> Option<&[Peer]> {
        let limits = switchback_http::Limits { head_len: usize::MAX, fields: usize::MAX, body_len: u64::MAX };
        let Ok(Progress::Complete(head)) = parse_head(request, &limits) else { return None };
        let routes = self.services.get(&vip)?;
        let index = routes.place(&head).ok().flatten()?;
        let Action::Pool(pool) = routes.action(index) else { return None };
        self.peers.get(*pool)?.as_deref()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listeners at which the kernel gives flows to the agent.
pub(crate) struct Listeners {
    v4: TcpListener,
    v6: Option<TcpListener>,
}

impl Listeners {
    pub(crate) fn open() -> Result<Self> {
        let at = |ip: IpAddr, port| {
            let listener = TcpListener::bind(SocketAddr::new(ip, port))?;
            // All flows of a dead node may come at once; the kernel's own limit is `net.core.somaxconn`.
            listen(&listener, Backlog::MAXALLOWABLE)?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>(listener)
        };
        let v4 = at(Ipv4Addr::LOCALHOST.into(), 0).doing(|| "listen for flows that are resumed")?;
        let port = v4.local_addr().doing(|| "listen for flows that are resumed")?.port();
        // The kernel may have been booted without IPv6.
        Ok(Listeners { v4, v6: at(Ipv6Addr::LOCALHOST.into(), port).ok() })
    }

    fn port(&self) -> u16 {
        self.v4.local_addr().map_or(0, |address| address.port())
    }
}

impl Insurance {
    pub(crate) fn new(plan: &Plan, programs: &Programs<'_>, listeners: &Listeners) -> Result<Self> {
        let name = plan.cluster.nodes[plan.index].name.clone();
        Ok(Insurance(Arc::new(Inner {
            estate: Mutex::new(Estate::new(&name, BUDGET)),
            name,
            own: Mutex::new(Own::new(BUDGET)),
            heirs: Mutex::default(),
            taken: Mutex::default(),
            dead: Mutex::default(),
            pools: RwLock::new(Arc::new(Pools::of(plan))),
            insured: programs.insured()?,
            have_heirs: programs.have_heirs()?,
            owned: programs.owned()?,
            counts: Mutex::default(),
            port: listeners.port(),
        })))
    }

    /// Begins to accept flows that are resumed here.
    pub(crate) fn accept(&self, endpoint: &Endpoint, listeners: Listeners) {
        let Listeners { v4, v6 } = listeners;
        for listener in [Some(v4), v6].into_iter().flatten() {
            endpoint.spawn(resumed::accept(listener, self.clone()));
        }
    }

    /// Port of the listeners.
    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    /// Applies a plan: connects to the nodes that it brings, and forgets those that have gone.
    pub(crate) fn set(&self, plan: &Plan, endpoint: &Endpoint) {
        let pools = Pools::of(plan);
        let peers: HashMap<SocketAddr, String> =
            pools.peers.iter().flatten().flatten().map(|peer| (peer.address, peer.name.clone())).collect();
        *self.0.pools.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pools);
        lock(&self.0.heirs).keep(peers, |node, lines| {
            endpoint.spawn(heirs::tell(node, Arc::clone(endpoint.peers()), lines, self.clone()))
        });
    }

    fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.0.pools.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what the programs report of this node's responses.
    pub(crate) fn take(&self, reports: Vec<sb_insurable>, ends: Vec<sb_insurable_end>) {
        let is_whole = |end: &&sb_insurable_end| end.bequeathed == 0;
        let over: HashSet<(sb_flow, u32)> =
            ends.iter().filter(is_whole).map(|end| (end.flow, end.origin)).collect();
        let pools = self.pools();
        for report in reports.iter().filter(|report| !over.contains(&(report.flow, report.owned.origin))) {
            if let Err(why) = self.insure(record_of(report), &pools) {
                *lock(&self.0.counts).uninsured.entry(why).or_default() += 1;
            }
        }
        self.keep_heirs(&pools);
        for end in ends {
            let flow = flow_of(&end.flow);
            match end.bequeathed {
                0 => self.over(flow, end.origin),
                _ => self.bequeath(flow, end.origin),
            }
        }
    }

    /// Tells heirs of a response.
    fn insure(&self, record: Record, pools: &Pools) -> std::result::Result<(), &'static str> {
        let Some(peers) = pools.peers_of(record.flow.vip, &record.request) else { return Ok(()) };
        Insurable::read(&record.request, &record.response).map_err(Uninsured::name)?;
        let mut record = Record { owner: self.0.name.clone(), heirs: Vec::new(), ..record };
        let has_heirs = self.tell_heirs(&mut record, peers);
        let key = wire(&record.flow);
        if !lock(&self.0.own).keep(record) {
            // The next attempt may find room, so its heirs may keep what they were told.
            let _ = self.0.have_heirs.delete(bytes_of(&key));
            return Err("memory");
        }
        if !has_heirs {
            return Err("no_heir");
        }
        lock(&self.0.counts).insured += 1;
        Ok(())
    }

    /// Chooses heirs in the place of those that have gone, and tells all of them; false if there is none.
    fn tell_heirs(&self, record: &mut Record, peers: &[Peer]) -> bool {
        let heirs = lock(&self.0.heirs);
        let before = std::mem::take(&mut record.heirs);
        record.heirs = {
            let dead = lock(&self.0.dead);
            // One that could not go on before cannot now, as far as is known.
            let may_be =
                |peer: &&Peer| !dead.contains(&pool_id(&peer.name)) && !record.past.contains(&peer.name);
            heirs.choose(record.flow, before.clone(), peers.iter().filter(may_be))
        };
        let key = wire(&record.flow);
        // Without an entry the client hears of the server's end.
        let _ = match record.heirs.is_empty() {
            true => self.0.have_heirs.delete(bytes_of(&key)),
            false => self.0.have_heirs.update(bytes_of(&key), &record.origin.to_ne_bytes(), MapFlags::ANY),
        };
        if record.heirs != before {
            heirs.say(&record.heirs, &Message::Insure(record.clone()));
        }
        !record.heirs.is_empty()
    }

    /// Finds other heirs for all responses when a node has come or gone.
    fn keep_heirs(&self, pools: &Pools) {
        let dead = lock(&self.0.dead).clone();
        if !lock(&self.0.heirs).have_changed(&dead) {
            return;
        }
        let records = lock(&self.0.own).all();
        for mut record in records {
            let before = record.heirs.clone();
            let Some(peers) = pools.peers_of(record.flow.vip, &record.request) else { continue };
            self.tell_heirs(&mut record, peers);
            if record.heirs != before {
                lock(&self.0.own).set_heirs(record);
            }
        }
    }

    /// Tells heirs that a response is over, if they were told of it.
    pub(crate) fn over(&self, flow: Flow, origin: u32) {
        let Some(heirs) = self.disinherit(&flow, origin) else { return };
        lock(&self.0.heirs).say(&heirs, &Message::Over(flow, origin));
    }

    /// Forgets a response of this node; its heirs.
    fn disinherit(&self, flow: &Flow, origin: u32) -> Option<Vec<String>> {
        let heirs = lock(&self.0.own).over(flow, origin)?;
        // There is no entry if it had no heir.
        let _ = self.0.have_heirs.delete(bytes_of(&wire(flow)));
        Some(heirs)
    }

    /// The server of a response has gone: the first heir that lives is to go on.
    fn bequeath(&self, flow: Flow, origin: u32) {
        let Some(heirs) = self.disinherit(&flow, origin) else { return };
        lock(&self.0.heirs).say(&heirs, &Message::Bequeathed(flow, origin));
    }

    /// Offers to go on with responses of nodes that are dead, for these switches.
    pub(crate) fn offers(
        &self,
        dead: &HashSet<u32>,
        signer: &Signer,
        switches: &[IpAddr],
    ) -> Vec<(IpAddr, Vec<u8>)> {
        lock(&self.0.dead).clone_from(dead);
        let now = Instant::now();
        let mut estate = lock(&self.0.estate);
        estate.forget_served(now).iter().for_each(|flow| self.forget(flow));
        let (served, open): (Vec<_>, Vec<_>) = estate
            .offers(now, |name| dead.contains(&pool_id(name)))
            .into_iter()
            .partition(|offer| self.is_served(offer.record));
        let served: Vec<Record> = served.into_iter().map(|offer| offer.record.clone()).collect();
        let mut packets = Vec::new();
        for offer in open {
            for switch in switches.iter().filter(|switch| signer.can_reach(**switch)) {
                packets.extend(offer_to(*switch, &offer, signer).map(|packet| (*switch, packet)));
            }
        }
        for Record { flow, origin, heirs, .. } in served {
            estate.served(&flow, origin, now);
            lock(&self.0.heirs).say(&heirs, &Message::Over(flow, origin));
        }
        packets
    }

    /// Whether the program has found that the client has all of the response.
    fn is_served(&self, record: &Record) -> bool {
        let value = self.0.insured.lookup(bytes_of(&wire(&record.flow)), MapFlags::ANY).ok().flatten();
        let insured: Option<sb_insured> = value.as_deref().and_then(read_from);
        insured.is_some_and(|known| known.origin == record.origin && known.served != 0)
    }

    /// Keeps what another node says of its responses.
    fn hear(&self, message: Message) {
        match message {
            Message::Insure(record) => {
                let Ok(insurable) = Insurable::read(&record.request, &record.response) else { return };
                let insured = sb_insured {
                    origin: record.origin,
                    next: record.next,
                    seq: record.seq,
                    head_bytes: insurable.head_len() as u32,
                    sent: record.sent,
                    bytes: insurable.head_len() as u64 + insurable.body_len(),
                    status: insurable.status(),
                    keeps: record.keeps.into(),
                    ..Default::default()
                };
                let key = wire(&record.flow);
                // A program that cannot be told refuses the flow.
                let _ = self.0.insured.update(bytes_of(&key), bytes_of(&insured), MapFlags::ANY);
                let gone = lock(&self.0.estate).keep(record);
                gone.iter().for_each(|flow| self.forget(flow));
            }
            Message::Over(flow, origin) => {
                if lock(&self.0.estate).over(&flow, origin) {
                    self.forget(&flow);
                }
            }
            Message::Bequeathed(flow, origin) => lock(&self.0.estate).inherit(&flow, origin),
            Message::Taken(flow, origin, generation) => self.fall_silent(&flow, origin, generation),
        }
    }

    /// Another node has gone on with a response of this one, which was taken for dead: its server is not heard any more.
    fn fall_silent(&self, flow: &Flow, origin: u32, generation: u32) {
        let Some(owned) = self.owned(flow).filter(|owned| owned.origin == origin) else { return };
        let taken = Generation::from_number(generation);
        let is_open = owned.state == sb_ownership::SB_OWN_OPEN as u8;
        if is_open && taken.is_newer(Generation::from_number(owned.generation)) {
            let state = sb_ownership::SB_OWN_RELEASED as u8;
            let reason = sb_reason::SB_REASON_BEQUEATHED as u8;
            let silent = sb_owned { state, reason, generation, ..owned };
            // The flow may have ended meanwhile.
            let _ = self.0.owned.update(bytes_of(&wire(flow)), bytes_of(&silent), MapFlags::EXIST);
        }
    }

    /// This node goes on with a response of the node `from`, which is not to be heard any more when it comes back.
    fn take_from(&self, from: &str, flow: Flow, origin: u32, generation: u32) {
        let message = Message::Taken(flow, origin, generation);
        lock(&self.0.heirs).say(&[from.to_owned()], &message);
        // The connection to it may break before it has heard.
        lock(&self.0.taken).note(from, message);
    }

    fn forget(&self, flow: &Flow) {
        // It may have been removed already.
        let _ = self.0.insured.delete(bytes_of(&wire(flow)));
    }

    fn owned(&self, flow: &Flow) -> Option<sb_owned> {
        let value = self.0.owned.lookup(bytes_of(&wire(flow)), MapFlags::ANY).ok().flatten()?;
        read_from(&value)
    }

    /// For the status page.
    pub(crate) fn status(&self) -> ResumeStatus {
        let (estate, own, counts) = (lock(&self.0.estate), lock(&self.0.own), lock(&self.0.counts));
        let by_name = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).into(), *count)).collect()
        };
        ResumeStatus {
            insured: counts.insured,
            under_way: own.insured() as u64,
            uninsured: by_name(&counts.uninsured),
            kept: estate.len() as u64,
            kept_bytes: estate.cost() as u64,
            evicted: estate.evicted(),
            resumed: counts.resumed,
            failed: by_name(&counts.failed),
        }
    }
}

impl Insurer for Insurance {
    fn hear(&self, mut channel: Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            // The other side ends the connection, or its machine does.
            while let Ok(message) = hear::<Message>(&mut channel).await {
                self.hear(message);
            }
        })
    }
}

fn wire(flow: &Flow) -> sb_flow {
    sb_flow {
        client: address_bytes(flow.client.ip()),
        vip: address_bytes(flow.vip.ip()),
        client_port: flow.client.port().to_be(),
        vip_port: flow.vip.port().to_be(),
    }
}

fn flow_of(flow: &sb_flow) -> Flow {
    Flow { client: flow.client(), vip: flow.vip() }
}

fn record_of(report: &sb_insurable) -> Record {
    let (owned, heads) = (&report.owned, &report.heads);
    Record {
        flow: flow_of(&report.flow),
        origin: owned.origin,
        next: owned.next,
        generation: owned.generation,
        requests: owned.requests,
        mss: owned.mss,
        options: owned.options,
        wscale: owned.wscale,
        keeps: owned.keeps != 0,
        seq: report.seq,
        sent: report.sent,
        request: heads.request[..heads.request_len.into()].to_vec(),
        response: heads.response[..heads.response_len.into()].to_vec(),
        owner: String::new(),
        heirs: Vec::new(),
        past: Vec::new(),
    }
}

/// RESUME for a switch.
fn offer_to(switch: IpAddr, offer: &Offer<'_>, signer: &Signer) -> Option<Vec<u8>> {
    let Offer { record, gone } = *offer;
    let handshake = Handshake { mss: record.mss, options: record.options, wscale: record.wscale };
    let state = FlowState {
        handshake,
        requests: record.requests,
        generation: Generation::from_number(record.generation),
        ..FlowState::at(Seq(record.origin), Seq(record.next))
    };
    let has = Seq(record.seq);
    let message = FromNode::Resume { of: pool_id(&record.owner), gone, state, has };
    let flow = wire(&record.flow);
    let header = segment(&flow, true, (state.next, has), flags::ACK, None, &[]);
    signer.packet(switch, &flow, message.option(), &header)
}
