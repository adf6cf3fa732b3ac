//! Insurance of responses (docs/decisions/0050): heirs of this node's responses, and this node as an heir of others'.
//!
//! The programs report a response that has become long, with its heads. If these prove what another server could go on with,
//! two other nodes of the pool are told of it ([`heirs`]), and told when it is over. This node keeps what others tell it
//! ([`Estate`]), and offers switches to go on when they call the node of a response dead. A flow that it gets so is accepted
//! by the agent ([`resumed`]).

mod fingerprints;
mod heirs;
mod policies;
mod resumed;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::socket::{Backlog, listen};
use switchback_config::Resume;
use switchback_http::framing::Framing;
use switchback_http::{Progress, parse_head};
use switchback_resume::{
    Answer, Ask, Ballot, Estate, Failure, Flow, Message, Offer, Owner, Record, Reply, Uninsured,
};
use switchback_routes::{Request, Routes};
use switchback_runtime::{Doing, Result};
use switchback_status::node::ResumeStatus;
use switchback_tls::endpoint::{
    Addresses, Batch, Endpoint, InsuredResponse, Insurer, Numbers, Peer, Policy, Stream, hear,
};
use switchback_wire::flow_state::{self, FlowState, Handshake};
use switchback_wire::generation::Generation;
use switchback_wire::message::FromNode;
use switchback_wire::packet::{flags, segment};
use switchback_wire::report::pool_id;
use switchback_wire::{
    SB_INSURED_UNKNOWN, Seq, address_bytes, bytes_of, read_from, sb_flow, sb_heirs, sb_insurable,
    sb_insurable_end, sb_insured, sb_owned, sb_ownership, sb_reason,
};
use tokio::io::BufReader;

use crate::plan::Plan;
use crate::programs::Programs;
use crate::signer::Signer;
#[cfg(test)]
pub(crate) use fingerprints::check_of;
use heirs::{HEIRS, Heirs, Own, Taken};
use policies::Policies;

/// Memory of other nodes' records, and of this node's own, in bytes each.
const BUDGET: usize = 64 << 20;
/// Time for which a node counts as dead after a switch has said so. Switches repeat it each second.
pub(crate) const DEATH_HOLDS: Duration = Duration::from_millis(2500);

/// The insurance of this node.
#[derive(Clone)]
pub(crate) struct Insurance(Arc<Inner>);

struct Inner {
    name: String,
    estate: Mutex<Estate>,
    own: Mutex<Own>,
    heirs: Mutex<Heirs>,
    taken: Mutex<Taken>,
    policies: Policies,
    /// Connections that an earlier process of this node has left to heirs, which it may not have told.
    left: Mutex<Vec<(Flow, u32)>>,
    /// Nodes that a switch has called dead lately, by the hash of their name.
    dead: Mutex<HashSet<u32>>,
    pools: RwLock<Arc<Pools>>,
    insured: MapHandle,
    have_heirs: MapHandle,
    owned: MapHandle,
    fingerprints: MapHandle,
    heard: MapHandle,
    /// When all heirs were last told of fingerprints.
    told_at: Mutex<Instant>,
    counts: Mutex<Counts>,
    address: IpAddr,
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
    /// By the pool's index.
    insuring: Vec<Insuring>,
}

/// Who goes on with a pool's responses, and how.
struct Insuring {
    how: Resume,
    /// The other nodes.
    peers: Vec<Peer>,
}

impl Pools {
    fn of(plan: &Plan) -> Self {
        let cluster = &plan.cluster;
        let services = cluster.services.iter().flat_map(|service| {
            let routes = Arc::new(Routes::new(service.routes.clone()));
            service.listen.iter().map(move |vip| (*vip, Arc::clone(&routes)))
        });
        let insuring = cluster.pools.iter().map(|pool| match plan.has_own(pool) {
            true => Insuring { how: pool.resume, peers: crate::endpoint::other_nodes(plan, pool) },
            false => Insuring { how: Resume::Off, peers: Vec::new() },
        });
        Pools { services: services.collect(), insuring: insuring.collect() }
    }

    /// All nodes that could go on with a response.
    fn peers(&self) -> impl Iterator<Item = &Peer> {
        let insuring = self.insuring.iter().filter(|pool| pool.how != Resume::Off);
        insuring.flat_map(|pool| &pool.peers)
    }

    /// Who could go on with the response to this request; None if the pool's responses are not resumed.
    fn insuring(&self, flow: &Flow, request: &[u8]) -> Option<&Insuring> {
        let limits = switchback_http::Limits { head_len: usize::MAX, fields: usize::MAX, body_len: u64::MAX };
        let Ok(Progress::Complete(head)) = parse_head(request, &limits) else { return None };
        let routes = self.services.get(&flow.vip)?;
        let index = routes.place(&Request { head: &head, client: flow.client.ip() }).ok().flatten()?;
        let mut pools = routes.action(index).pools().filter_map(|pool| self.insuring.get(pool));
        pools.find(|pool| pool.how != Resume::Off)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sockets at which the kernel gives flows to the agent.
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
        let v6 = at(Ipv6Addr::LOCALHOST.into(), port).ok();
        Ok(Listeners { v4, v6 })
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
            policies: Policies::default(),
            left: Mutex::new(left_behind(&programs.owned()?)),
            dead: Mutex::default(),
            pools: RwLock::new(Arc::new(Pools::of(plan))),
            insured: programs.insured()?,
            have_heirs: programs.have_heirs()?,
            owned: programs.owned()?,
            fingerprints: programs.fingerprints()?,
            heard: programs.heard()?,
            told_at: Mutex::new(Instant::now()),
            address: plan.address,
            counts: Mutex::default(),
            port: listeners.port(),
        })))
    }

    /// Begins to accept flows that are resumed here.
    pub(crate) fn accept(&self, endpoint: &Endpoint, listeners: Listeners) {
        let Listeners { v4, v6 } = listeners;
        for listener in [Some(v4), v6].into_iter().flatten() {
            endpoint.spawn(resumed::accept(listener, self.clone(), endpoint.resumer()));
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
            pools.peers().map(|peer| (peer.address, peer.name.clone())).collect();
        *self.0.pools.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pools);
        for (flow, origin) in std::mem::take(&mut *lock(&self.0.left)) {
            let message = Message::Bequeathed(flow, origin);
            peers.values().for_each(|peer| lock(&self.0.taken).note(peer, message.clone()));
        }
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
                self.is_uninsurable(why);
            }
        }
        self.keep_heirs(&pools);
        self.tell_fingerprints();
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
        let Some(insuring) = pools.insuring(&record.flow, &record.request) else { return Ok(()) };
        let proof = match insuring.how {
            Resume::Repeat => {
                let proof = self.proof(&record.flow, record.origin).or(record.proof);
                Some(proof.ok_or("fingerprint")?)
            }
            _ => None,
        };
        let mut record = Record { owner: self.0.name.clone(), heirs: Vec::new(), proof, ..record };
        record.resumable().map_err(Uninsured::name)?;
        let key = wire(&record.flow);
        // An heir may answer at once.
        let mut own = lock(&self.0.own);
        let has_heirs = self.tell_heirs(&mut record, &insuring.peers);
        if !own.keep(record) {
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
            let may_be = |peer: &&Peer| may_be_heir(peer, &dead, &record.past);
            heirs.choose(record.flow, HEIRS, before.clone(), peers.iter().filter(may_be))
        };
        let key = wire(&record.flow);
        // Without an entry the client hears of the server's end.
        let _ = match record.heirs.is_empty() {
            true => self.0.have_heirs.delete(bytes_of(&key)),
            false => {
                self.0.have_heirs.update(bytes_of(&key), bytes_of(&self.told(record, peers)), MapFlags::ANY)
            }
        };
        // What is sent from now on is told by the program, to heirs that know of the response.
        if let (Some(proof), Some(now)) = (&mut record.proof, self.proof(&record.flow, record.origin)) {
            *proof = now;
        }
        if record.heirs != before {
            heirs.say(&record.heirs, &Message::Insure(record.clone()));
        }
        !record.heirs.is_empty()
    }

    /// The heirs of a response, for the program, which tells them fingerprints. It cannot tell those that it has no address
    /// of the same kind for.
    fn told(&self, record: &Record, peers: &[Peer]) -> sb_heirs {
        let mut heirs = sb_heirs { origin: record.origin, ..Default::default() };
        if record.proof.is_none() {
            return heirs;
        }
        let of_heirs = peers.iter().filter(|peer| record.heirs.contains(&peer.name));
        let addresses = of_heirs.map(|peer| peer.address.ip());
        let reached = addresses.filter(|address| address.is_ipv4() == self.0.address.is_ipv4());
        for (slot, address) in heirs.addresses.iter_mut().zip(reached) {
            *slot = address_bytes(address);
            heirs.count += 1;
        }
        heirs
    }

    /// Finds other heirs for all responses when a node has come or gone.
    fn keep_heirs(&self, pools: &Pools) {
        let dead = lock(&self.0.dead).clone();
        if !lock(&self.0.heirs).have_changed(&dead) {
            return;
        }
        self.0.policies.keep_heirs();
        let records = lock(&self.0.own).all();
        for mut record in records {
            let before = record.heirs.clone();
            let Some(insuring) = pools.insuring(&record.flow, &record.request) else { continue };
            self.tell_heirs(&mut record, &insuring.peers);
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
            if offer.over_tls {
                // Sequence numbers wrap.
                self.tell_program(offer.record, true);
            }
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

    /// Keeps what another node says of its responses; the answer, if it waits for one.
    fn hear(&self, message: Message) -> Option<Reply> {
        match message {
            Message::Insure(record) => {
                self.tell_program(&record, false);
                self.await_fingerprints(&record);
                let Record { flow, origin, proof, .. } = record;
                let gone = lock(&self.0.estate).keep(record);
                gone.iter().for_each(|flow| self.forget(flow));
                return proof.map(|_| Reply::Answer(flow, origin, Box::new(Answer::Insured)));
            }
            Message::Fingerprint(flow, origin, last) => lock(&self.0.estate).note(&flow, origin, last),
            Message::Over(flow, origin) => {
                if lock(&self.0.estate).over(&flow, origin) {
                    self.forget(&flow);
                }
            }
            Message::Bequeathed(flow, origin) => lock(&self.0.estate).inherit(&flow, origin),
            Message::Taken(flow, origin, generation) => self.fall_silent(&flow, origin, generation),
            Message::Lives => return Some(Reply::Lives),
            Message::Ask(flow, origin, Ask::Begin { begins, record, secret }) => {
                if self.has(&flow, origin) {
                    // Who has the response is no heir of it.
                    let refused = Answer::Refused(begins.set, Ballot::default());
                    return Some(Reply::Answer(flow, origin, Box::new(refused)));
                }
                let mut estate = lock(&self.0.estate);
                let (answer, gone) = estate.begin(begins, (*record).clone(), *secret);
                if matches!(answer, Answer::Known { .. }) {
                    self.tell_program(&record, true);
                }
                gone.iter().for_each(|flow| self.forget(flow));
                return Some(Reply::Answer(flow, origin, Box::new(answer)));
            }
            Message::Ask(flow, origin, ask) => {
                let answer = lock(&self.0.estate).answer(&flow, origin, ask);
                if matches!(answer, Answer::Left(_)) {
                    self.forget(&flow);
                }
                return Some(Reply::Answer(flow, origin, Box::new(answer)));
            }
        }
        None
    }

    /// Has the program accept a flow to go on with its response. A program that cannot be told refuses the flow.
    fn tell_program(&self, record: &Record, over_tls: bool) {
        let Ok(resumable) = record.resumable() else { return };
        // Where a response over TLS ends, only the agent knows.
        let (head_bytes, bytes) = match over_tls {
            true => (0, None),
            false => (resumable.head_len() as u32, resumable.whole_len()),
        };
        let insured = sb_insured {
            origin: record.origin,
            generation: record.generation,
            next: record.next,
            seq: record.seq,
            head_bytes,
            sent: record.sent,
            bytes: bytes.unwrap_or(SB_INSURED_UNKNOWN),
            status: resumable.status(),
            keeps: record.keeps.into(),
            fingerprinted: (record.proof.is_some() && !over_tls).into(),
            over_tls: over_tls.into(),
            ..Default::default()
        };
        let _ = self.0.insured.update(bytes_of(&wire(&record.flow)), bytes_of(&insured), MapFlags::ANY);
    }

    /// The response that the agent sends on the flow has so many bytes, head and all.
    fn learn_end(&self, flow: &Flow, origin: u32, bytes: u64) -> std::result::Result<(), Failure> {
        let key = wire(flow);
        let insured = sb_insured { origin, bytes, ..Default::default() };
        let done = self.0.insured.update(bytes_of(&key), bytes_of(&insured), MapFlags::ANY);
        done.map_err(|error| Failure::Here(io::Error::other(error)))?;
        let Some(owned) = self.owned_from(flow, origin) else { return Ok(()) };
        if owned.sent == bytes {
            // Nothing follows by which the program could learn that.
            let idle = sb_owned { framing: Default::default(), responses: owned.requests, ..owned };
            let done = self.0.owned.update(bytes_of(&key), bytes_of(&idle), MapFlags::EXIST);
            done.map_err(|error| Failure::Here(io::Error::other(error)))?;
        }
        Ok(())
    }

    /// Whether the connection with this origin is this node's.
    fn has(&self, flow: &Flow, origin: u32) -> bool {
        let is_open = |owned: sb_owned| owned.state != sb_ownership::SB_OWN_RELEASED as u8;
        self.owned_from(flow, origin).is_some_and(is_open)
    }

    /// Another node has gone on with a response of this one, which was taken for dead: its server is not heard any more.
    fn fall_silent(&self, flow: &Flow, origin: u32, generation: u32) {
        let Some(owned) = self.owned_from(flow, origin) else { return };
        if owned.state == sb_ownership::SB_OWN_OPEN as u8 {
            let before = Generation::from_number(owned.generation);
            if !Generation::from_number(generation).is_newer(before) {
                return;
            }
            self.mute(flow, sb_owned { generation, ..owned });
        }
        self.0.policies.lose(&(*flow, origin));
    }

    /// Has the program keep the flow's socket from the client, for the sake of another node; false if the flow has ended.
    fn mute(&self, flow: &Flow, owned: sb_owned) -> bool {
        let state = sb_ownership::SB_OWN_RELEASED as u8;
        let reason = sb_reason::SB_REASON_BEQUEATHED as u8;
        let silent = sb_owned { state, reason, ..owned };
        self.0.owned.update(bytes_of(&wire(flow)), bytes_of(&silent), MapFlags::EXIST).is_ok()
    }

    /// Leaves the responses over TLS to their heirs, because this agent ends. The number of those with which none has gone on
    /// yet.
    pub(crate) fn leave(&self) -> usize {
        self.0.policies.leave(|(flow, origin)| {
            let is_open = |owned: &sb_owned| owned.state == sb_ownership::SB_OWN_OPEN as u8;
            self.owned_from(flow, *origin).filter(is_open).is_some_and(|owned| self.mute(flow, owned))
        });
        self.0.policies.left()
    }

    /// This node goes on with another one's response. That node is not to be heard any more when it comes back, nor an heir that
    /// has gone on with the response and died before it had heirs of its own.
    fn take_from_others(&self, record: &Record, generation: u32) {
        let message = Message::Taken(record.flow, record.origin, generation);
        for node in record.heirs.iter().chain([&record.owner]).filter(|node| **node != self.0.name) {
            lock(&self.0.heirs).say(std::slice::from_ref(node), &message);
            // The connection to it may break before it has heard.
            lock(&self.0.taken).note(node, message.clone());
        }
    }

    /// Forgets a response, unless this node is an heir of it.
    fn forget_unless_heir(&self, flow: &Flow) {
        let estate = lock(&self.0.estate);
        if !estate.has(flow) {
            self.forget(flow);
        }
    }

    fn forget(&self, flow: &Flow) {
        // It may have been removed already.
        let _ = self.0.insured.delete(bytes_of(&wire(flow)));
        let _ = self.0.heard.delete(bytes_of(&wire(flow)));
    }

    fn owned(&self, flow: &Flow) -> Option<sb_owned> {
        let value = self.0.owned.lookup(bytes_of(&wire(flow)), MapFlags::ANY).ok().flatten()?;
        read_from(&value)
    }

    /// The program's entry of the flow, if it is of the connection with this origin.
    fn owned_from(&self, flow: &Flow, origin: u32) -> Option<sb_owned> {
        self.owned(flow).filter(|owned| owned.origin == origin)
    }

    /// For the status page.
    pub(crate) fn status(&self) -> ResumeStatus {
        let (estate, own, counts) = (lock(&self.0.estate), lock(&self.0.own), lock(&self.0.counts));
        let by_name = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).into(), *count)).collect()
        };
        ResumeStatus {
            insured: counts.insured,
            under_way: (own.insured() + self.0.policies.len()) as u64,
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
    fn hear(&self, channel: Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut channel = BufReader::with_capacity(Batch::SIZE, channel);
            let mut replies = Batch::default();
            // The other side ends the connection, or its machine does.
            while let Ok(message) = hear::<Message>(&mut channel).await {
                let reply = self.hear(message);
                if reply.is_some_and(|reply| replies.add(&reply).is_err()) {
                    return;
                }
                let has_more = !channel.buffer().is_empty() && !replies.is_full();
                if !has_more && replies.send(&mut channel).await.is_err() {
                    return;
                }
            }
        })
    }

    fn numbers(&self, (client, vip): Addresses) -> Option<Numbers> {
        let owned = self.owned(&Flow { client, vip })?;
        Some(Numbers { client: owned.asked, server: owned.followed })
    }

    fn insure(&self, response: InsuredResponse, owner: Owner) -> Option<Arc<dyn Policy>> {
        let insured = self.insure_over_tls(response, owner);
        insured.map_err(|why| self.is_uninsurable(why)).ok()
    }

    fn is_uninsurable(&self, why: &'static str) {
        *lock(&self.0.counts).uninsured.entry(why).or_default() += 1;
    }

    fn has_gone_on(&self, result: &std::result::Result<(), Failure>) {
        let mut counts = lock(&self.0.counts);
        match result {
            Ok(()) => counts.resumed += 1,
            Err(failure) => *counts.failed.entry(failure.name()).or_default() += 1,
        }
    }
}

/// One that could not go on before cannot now, as far as is known.
fn may_be_heir(peer: &Peer, dead: &HashSet<u32>, past: &[String]) -> bool {
    !dead.contains(&pool_id(&peer.name)) && !past.contains(&peer.name)
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
        proof: None,
        owner: String::new(),
        heirs: Vec::new(),
        past: Vec::new(),
    }
}

/// Connections of this node that nobody has gone on with since their servers went. Agents are servers, too, and one that was
/// killed has told nobody.
fn left_behind(owned: &MapHandle) -> Vec<(Flow, u32)> {
    let left = owned.keys().filter_map(|key| {
        let flow: sb_flow = read_from(&key)?;
        let owned: sb_owned = read_from(&owned.lookup(&key, MapFlags::ANY).ok().flatten()?)?;
        let is_left = owned.state == sb_ownership::SB_OWN_RELEASED as u8
            && owned.reason == sb_reason::SB_REASON_BEQUEATHED as u8;
        is_left.then(|| (flow_of(&flow), owned.origin))
    });
    left.collect()
}

/// RESUME for a switch.
fn offer_to(switch: IpAddr, offer: &Offer<'_>, signer: &Signer) -> Option<Vec<u8>> {
    let Offer { record, gone, over_tls } = *offer;
    let reads = if over_tls { flow_state::Stream::Tunnel } else { flow_state::Stream::Requests };
    let handshake = Handshake { mss: record.mss, options: record.options, wscale: record.wscale };
    let state = FlowState {
        handshake,
        requests: record.requests,
        generation: Generation::from_number(record.generation),
        at_mark: Some((reads, Framing::default())),
        ..FlowState::at(Seq(record.origin), Seq(record.next))
    };
    let has = Seq(record.seq);
    let message = FromNode::Resume { of: pool_id(&record.owner), gone, state, has };
    let flow = wire(&record.flow);
    let header = segment(&flow, true, (state.next, has), flags::ACK, None, &[]);
    signer.packet(switch, &flow, message.option(), &header)
}
