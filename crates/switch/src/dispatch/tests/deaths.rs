//! Downloads whose nodes die and come back at random: a client gets the bytes of its responses in order, each of them from
//! where it is, and in the end all of them, if a node is left that can go on.

use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::FromNode;
use switchback_wire::packet::{TcpView, bare, flags, segment};
use switchback_wire::report::pool_id;
use switchback_wire::*;

use super::model::*;
use super::random::{Random, seeds};
use sb_op::*;
use sb_reason::*;

const NODES: usize = 3;
const REQUESTS: u32 = 3;
/// Interval of an heir's offers, and the time for which it makes them.
const AGAIN: Duration = Duration::from_millis(100);
const OFFERED: Duration = Duration::from_secs(15);
/// Rounds with deaths and losses. A round takes 30 ms or so, a death is noticed after a second.
const TROUBLED: u64 = 800;
/// Rounds in which all arrives then.
const PATIENCE: u64 = 1500;

/// What a node knows of the flow that it has.
#[derive(Clone)]
struct Owned {
    state: sb_flow_state,
    /// The request whose response it sends, from where to where.
    request: usize,
    from: u32,
    end: u32,
    /// Others can go on.
    insured: bool,
    /// Another node has gone on.
    mute: bool,
    resumed: bool,
}

/// What a node can go on with.
#[derive(Clone)]
struct Record {
    of: usize,
    state: sb_flow_state,
    request: usize,
    has: u32,
    end: u32,
    heirs: Vec<usize>,
    /// The client has all of the response.
    is_served: bool,
    /// When it was offered first, and last.
    offered: Option<(Duration, Duration)>,
}

#[derive(Default)]
struct Machine {
    is_dead: bool,
    flow: Option<Owned>,
    /// The latest adoption that it has accepted, or promised to accept none before.
    newest: Generation,
    record: Option<Record>,
    /// The flow as it was released here.
    released: Option<sb_flow_state>,
    /// It is to be told that another node has gone on, by this adoption.
    taken: Option<Generation>,
}

struct Net {
    worlds: Vec<World>,
    random: Random,
    machines: Vec<Machine>,
    /// Where requests begin in what the client sends, and responses in what it gets; with the ends of all.
    asks: Vec<u32>,
    answers: Vec<u32>,
    stream: Vec<u8>,
    /// What the client has sent, what of it has been acknowledged, and what it has got.
    sent: u32,
    acked: u32,
    has: u32,
    /// The connection was reset.
    over: bool,
    resumed: u64,
    troubled: bool,
    seed: u64,
}

fn number(address: NodeAddress) -> usize {
    (0..NODES).find(|index| self::address(*index) == address).unwrap()
}

fn address(index: usize) -> NodeAddress {
    node(index as u8 + 1)
}

fn name(index: usize) -> String {
    format!("n{}", index + 1)
}

impl Net {
    fn new(seed: u64, switches: u8) -> Self {
        let mut random = Random(seed);
        let config = CONFIG
            .replace("nodes = [\"n1\", \"n2\"]", "nodes = [\"n1\", \"n2\", \"n3\"]\nresume = \"range\"");
        let (mut stream, mut asks, mut answers) = (Vec::new(), vec![0], vec![0]);
        for request in 0..REQUESTS {
            stream.extend(get(&format!("/web/{request}")));
            asks.push(stream.len() as u32);
            answers.push(answers[request as usize] + 1 + random.below(6000) as u32);
        }
        let worlds = match switches {
            1 => vec![World::of(&config)],
            _ => (0..switches).map(|number| World::of_several(&config, number)).collect(),
        };
        let machines = (0..NODES).map(|_| Machine::default()).collect();
        Net {
            worlds,
            random,
            machines,
            asks,
            answers,
            stream,
            sent: 0,
            acked: 0,
            has: 0,
            over: false,
            resumed: 0,
            troubled: true,
            seed,
        }
    }

    fn loses(&mut self) -> bool {
        self.troubled && self.random.chance(5)
    }

    fn now(&self) -> Duration {
        self.worlds[0].now
    }

    /// The switch that a packet of the client's comes to: at first always the same.
    fn route(&mut self) -> usize {
        let may_be_other = self.worlds.len() > 1 && self.troubled && self.has > 0;
        usize::from(may_be_other && self.random.chance(5))
    }

    fn send(&mut self, packet: &[u8]) {
        let switch = self.route();
        if !self.loses() {
            let sent = self.worlds[switch].client_packet(packet);
            self.deliver(switch, sent);
        }
    }

    /// The client acknowledges what it has.
    fn acknowledge(&mut self) {
        let numbers = (ORIGIN + self.sent, SERVER + self.has);
        let packet = segment(&flow(), true, numbers, flags::ACK, Some((11, 22)), &[]);
        self.send(&packet);
    }

    /// The client answers what switches send it.
    fn hear(&mut self) {
        let heard = self.worlds.iter_mut().flat_map(|world| std::mem::take(&mut world.to_client));
        for packet in heard.collect::<Vec<_>>() {
            let view = TcpView::parse(&packet).unwrap();
            if view.flags & flags::RST != 0 {
                assert!(!self.is_owned(), "seed {}: reset at {}", self.seed, self.has);
                self.over = true;
            } else if !self.loses() {
                self.acknowledge();
            }
        }
    }

    fn deliver(&mut self, switch: usize, sent: Vec<ToNode>) {
        let mut queue = sent;
        while !queue.is_empty() {
            let first = if self.random.chance(10) { self.random.below(queue.len() as u64) } else { 0 };
            let packet = queue.remove(first as usize);
            let index = number(packet.node);
            if self.machines[index].is_dead || self.loses() {
                continue;
            }
            if self.random.chance(3) {
                queue.push(packet.clone());
            }
            let Some(option) = self.at_node(index, &packet) else { continue };
            if !self.loses() {
                queue.extend(self.worlds[switch].handoff(packet.node, option, &packet.packet));
            }
        }
    }

    /// What a node answers.
    fn at_node(&mut self, index: usize, packet: &ToNode) -> Option<sb_option> {
        let said = packet.option.flow_state();
        let generation = Generation::from_be(said.generation);
        let newest = self.machines[index].newest;
        let state = self.machines[index].flow.as_ref().map(|flow| flow.state);
        let say = |op, reason| Some(answered(&packet.option, op, reason));
        let owned = |op, state| Some(described(&packet.option, op, state));
        let unowned = |generation: Generation, reason| {
            let option = answered(&packet.option, SB_OP_UNOWNED, reason);
            Some(option.with(|flow: &mut sb_flow_state| flow.generation = generation.to_be()))
        };
        let is_mute = self.machines[index].flow.as_ref().is_some_and(|flow| flow.mute);
        let is_outdated = newest.is_newer(generation);
        match packet.op {
            SB_OP_ADOPT if packet.option.flags & SB_HANDOVER_RESUME as u8 != 0 => self.resume(index, packet),
            SB_OP_RELEASE | SB_OP_FORWARD if is_mute && is_outdated => unowned(newest, SB_REASON_NONE),
            SB_OP_RELEASE if is_mute => say(SB_OP_BUSY, SB_REASON_BEQUEATHED),
            SB_OP_FORWARD | SB_OP_CONFIRM if is_mute => None,
            SB_OP_PROBE => match state {
                Some(state) if !is_mute => owned(SB_OP_OWNED, state),
                _ => {
                    let next = Generation::from_be(packet.option.said::<sb_question>().next_generation);
                    let newest = if next.is_newer(newest) { next } else { newest };
                    self.machines[index].newest = newest;
                    let Some(released) = self.machines[index].released else {
                        return unowned(newest, SB_REASON_NONE);
                    };
                    let is_past = packet.view().seq.before(Seq::from_be(released.next));
                    let was_served = said.origin == ORIGIN.to_be() && is_past;
                    let reason = if was_served { SB_REASON_SERVED } else { SB_REASON_RELEASED };
                    let option = described(&packet.option, SB_OP_UNOWNED, released);
                    let option = sb_option { reason: reason as u8, ..option };
                    Some(option.with(|flow: &mut sb_flow_state| flow.generation = newest.to_be()))
                }
            },
            _ if is_outdated && state.is_some() && !is_mute => owned(SB_OP_OWNED, state?),
            SB_OP_ADOPT
                if !is_mute
                    && state.is_some_and(|state| packet.view().seq.before(Seq::from_be(state.next))) =>
            {
                say(SB_OP_ADOPTED, SB_REASON_NONE)
            }
            SB_OP_ADOPT if !generation.is_newer(newest) => say(SB_OP_REFUSED, SB_REASON_OUTDATED),
            SB_OP_ADOPT => {
                self.adopt(index, packet);
                say(SB_OP_ADOPTED, SB_REASON_NONE)
            }
            SB_OP_CONFIRM if state.is_some() && !is_mute => say(SB_OP_CONFIRMED, SB_REASON_NONE),
            SB_OP_FORWARD if state.is_some() && !is_mute => {
                let next = Seq::from_be(state?.next);
                let begins =
                    packet.option.flags & SB_HANDOVER_REQUEST as u8 != 0 && packet.view().seq == next;
                if begins {
                    self.adopt(index, packet);
                    return None;
                }
                packet.view().end_seq().after(next).then(|| owned(SB_OP_UNREAD, state?))?
            }
            SB_OP_FORWARD if packet.option.flags & SB_HANDOVER_REQUEST as u8 != 0 => {
                say(SB_OP_REFUSED, SB_REASON_NO_SOCKET)
            }
            SB_OP_FORWARD if is_outdated => unowned(newest, SB_REASON_NONE),
            SB_OP_RELEASE if state.is_some() => {
                let (flow, next) = (self.machines[index].flow.as_ref()?, Seq::from_be(said.next));
                if packet.view().seq.before(Seq::from_be(flow.state.next)) {
                    return say(SB_OP_BUSY, SB_REASON_DUPLICATE);
                }
                if next != Seq::from_be(flow.state.next) {
                    return None;
                }
                if self.has < flow.end {
                    return say(SB_OP_BUSY, SB_REASON_NONE);
                }
                let next = Generation::from_be(packet.option.said::<sb_question>().next_generation);
                self.machines[index].released = self.machines[index].flow.take().map(|flow| flow.state);
                self.machines[index].newest = next;
                say(SB_OP_RELEASED, SB_REASON_NONE)
            }
            SB_OP_RELEASE => say(SB_OP_RELEASED, SB_REASON_NONE),
            _ => None,
        }
    }

    /// The node's server gets a request.
    fn adopt(&mut self, index: usize, packet: &ToNode) {
        let seed = self.seed;
        let offset = packet.view().seq - ORIGIN;
        let request = self.asks.iter().position(|at| *at == offset).expect("a request begins there");
        assert_eq!(packet.data(), &self.stream[offset as usize..self.asks[request + 1] as usize]);
        let from = self.answers[request];
        if packet.op == SB_OP_ADOPT {
            assert_eq!(packet.view().ack - SERVER, from, "seed {seed}: its response would begin elsewhere");
        }
        let machine = &mut self.machines[index];
        machine.newest = Generation::from_be(packet.option.flow_state().generation);
        (machine.record, machine.released) = (None, None);
        machine.flow = Some(Owned {
            state: packet.option.flow_state(),
            request,
            from,
            end: self.answers[request + 1],
            insured: false,
            mute: false,
            resumed: false,
        });
        self.acked = self.acked.max(self.asks[request + 1]);
    }

    /// The node's agent gets a flow to go on with.
    fn resume(&mut self, index: usize, packet: &ToNode) -> Option<sb_option> {
        let (seed, has) = (self.seed, self.has);
        let say = |op, reason| Some(answered(&packet.option, op, reason));
        let said = packet.option.flow_state();
        let generation = Generation::from_be(said.generation);
        let machine = &mut self.machines[index];
        let next = packet.view().seq;
        if let Some(flow) = &machine.flow
            && !flow.mute
            && machine.newest.is_newer(generation)
        {
            return Some(described(&packet.option, SB_OP_OWNED, flow.state));
        }
        let is_this = |flow: &&mut Owned| flow.resumed && !flow.mute && Seq::from_be(flow.state.next) == next;
        if let Some(flow) = machine.flow.as_mut().filter(is_this) {
            machine.newest = generation;
            flow.state.generation = said.generation;
            return say(SB_OP_ADOPTED, SB_REASON_NONE);
        }
        let ack = packet.view().ack - SERVER;
        let Some(record) = machine.record.clone().filter(|record| Seq::from_be(record.state.next) == next)
        else {
            return say(SB_OP_REFUSED, SB_REASON_NO_SOCKET);
        };
        assert!(ack <= has, "seed {seed}: a gap between {has} and {ack}");
        let begin = self.answers[record.request];
        assert!(ack >= begin, "seed {seed}: the response begins at {begin}, not at {ack}");
        if ack >= record.end {
            machine.record = Some(Record { is_served: true, ..record });
            return say(SB_OP_REFUSED, SB_REASON_SERVED);
        }
        let before = Generation::from_be(record.state.generation);
        if !generation.is_newer(machine.newest) || !generation.is_newer(before) {
            return say(SB_OP_REFUSED, SB_REASON_OUTDATED);
        }
        machine.newest = generation;
        (machine.record, machine.released) = (None, None);
        machine.flow = Some(Owned {
            state: sb_flow_state { generation: said.generation, ..record.state },
            request: record.request,
            from: ack,
            end: record.end,
            insured: false,
            mute: false,
            resumed: true,
        });
        for node in record.heirs.iter().chain([&record.of]).filter(|node| **node != index) {
            self.machines[*node].taken = Some(generation);
        }
        self.resumed += 1;
        say(SB_OP_ADOPTED, SB_REASON_NONE)
    }

    /// Machines die and come back, and say that they live.
    fn live(&mut self) {
        for index in 0..NODES {
            let dying = self.troubled && !self.machines[index].is_dead && self.random.chance(1);
            let coming = self.machines[index].is_dead && (!self.troubled || self.random.chance(1));
            if dying || coming {
                self.machines[index].is_dead = dying;
            }
            let machine = &mut self.machines[index];
            if machine.is_dead {
                continue;
            }
            if let Some(generation) = machine.taken.take()
                && let Some(flow) = &mut machine.flow
                && generation.is_newer(Generation::from_be(flow.state.generation))
            {
                flow.mute = true;
                machine.newest = generation;
            }
            for switch in 0..self.worlds.len() {
                let sent = self.worlds[switch].report(address(index), "web", SB_REASON_NONE, (0, 511));
                self.deliver(switch, sent);
            }
        }
    }

    /// Nodes that have the flow send some of the response, and tell others.
    fn respond(&mut self) {
        for index in 0..NODES {
            let living = (0..NODES).filter(|other| *other != index && !self.machines[*other].is_dead);
            let heirs: Vec<usize> = living.collect();
            let more = self.random.below(40) as u32;
            let is_lost = self.loses();
            let Machine { is_dead: false, flow: Some(flow), .. } = &mut self.machines[index] else {
                continue;
            };
            if flow.mute {
                continue;
            }
            if (flow.from..flow.end).contains(&self.has) && !is_lost {
                self.has = flow.end.min(self.has + more);
                if self.random.chance(20) {
                    flow.from = self.has;
                }
            }
            let is_under_way = (flow.from..flow.end).contains(&self.has);
            if is_under_way && !flow.insured && !heirs.is_empty() && self.random.chance(30) {
                flow.insured = true;
                let flow = flow.clone();
                for heir in &heirs {
                    self.machines[*heir].record = Some(Record {
                        of: index,
                        state: flow.state,
                        request: flow.request,
                        has: self.has,
                        end: flow.end,
                        heirs: heirs.clone(),
                        is_served: false,
                        offered: None,
                    });
                }
            } else if self.has >= flow.end && flow.insured {
                flow.insured = false;
                for heir in heirs {
                    let record = &mut self.machines[heir].record;
                    if record.as_ref().is_some_and(|record| record.of == index) {
                        *record = None;
                    }
                }
            }
        }
    }

    /// Nodes offer to go on with responses of others that switches have called dead.
    fn offer(&mut self) {
        let now = self.now();
        for index in 0..NODES {
            let dead: Vec<bool> = (0..NODES).map(|node| self.is_called_dead(node)).collect();
            let Machine { is_dead: false, record: Some(record), .. } = &mut self.machines[index] else {
                continue;
            };
            let mut before = record.heirs.iter().take_while(|heir| **heir != index);
            if record.is_served || !dead[record.of] || !before.all(|heir| dead[*heir]) {
                record.offered = None;
                continue;
            }
            let first = match record.offered {
                None => now,
                Some((first, last)) if now - last >= AGAIN && now - first <= OFFERED => first,
                _ => continue,
            };
            record.offered = Some((first, now));
            let Record { of, state, has, .. } = record.clone();
            let option = sb_option::default().saying(&state);
            let state = FlowState::read(&option);
            let message = FromNode::Resume { of: pool_id(&name(of)), gone: false, state, has: SERVER + has };
            let packet = bare(&flow(), true, state.next, SERVER + has, flags::ACK);
            for switch in 0..self.worlds.len() {
                if !self.loses() {
                    let sent = self.worlds[switch].handoff(address(index), message.option(), &packet);
                    self.deliver(switch, sent);
                }
            }
        }
    }

    /// Whether a switch says so.
    fn is_called_dead(&mut self, index: usize) -> bool {
        self.worlds.iter_mut().any(|world| {
            let now = world.now;
            let plan = world.dispatcher.plan();
            plan.node_at(address(index)).is_some_and(|node| plan.is_dead(node, now))
        })
    }

    /// The client asks for the next file when it has the one before, and asks again while nobody has acknowledged that.
    fn ask(&mut self) {
        let next = self.answers.iter().position(|at| *at == self.has);
        let wanted = match next.filter(|request| *request < REQUESTS as usize) {
            Some(request) => self.asks[request + 1],
            None => self.sent,
        };
        if self.acked < wanted && self.random.chance(30) {
            self.sent = wanted;
            let bytes = self.stream[self.acked as usize..self.sent as usize].to_vec();
            let packet = data(self.acked, self.has, &bytes);
            self.send(&packet);
        } else if self.has > 0 && self.random.chance(70) {
            self.acknowledge();
        }
    }

    fn pass(&mut self) {
        let now = self.now() + Duration::from_millis(self.random.below(60));
        for switch in 0..self.worlds.len() {
            self.worlds[switch].now = now;
            while self.worlds[switch].dispatcher.deadline().is_some_and(|deadline| deadline <= now) {
                let sent = self.worlds[switch].pass();
                self.deliver(switch, sent);
            }
        }
    }

    /// Whether a living node has the flow.
    fn is_owned(&self) -> bool {
        self.machines.iter().filter(|machine| !machine.is_dead).any(|machine| {
            let flow = machine.flow.as_ref().filter(|flow| !flow.mute);
            flow.is_some_and(|flow| (flow.from..=flow.end).contains(&self.has))
        })
    }
}

/// Whether the client has got all, and how many times another node has gone on. Where there are several switches, one that
/// knows nothing of a flow does not wait long for its dead node.
fn run(seed: u64, switches: u8) -> (bool, u64) {
    let mut net = Net::new(seed, switches);
    let all = net.answers[REQUESTS as usize];
    for round in 0..TROUBLED + PATIENCE {
        net.troubled = round < TROUBLED;
        if net.over || net.has == all {
            break;
        }
        net.live();
        net.ask();
        net.respond();
        net.hear();
        net.offer();
        net.hear();
        net.pass();
    }
    assert!(net.over || net.has == all, "seed {seed}: stuck at {} of {all}", net.has);
    (net.has == all, net.resumed)
}

#[test]
fn every_byte_comes_whichever_nodes_die() {
    for switches in 1..=2 {
        let seeds = seeds(100);
        let (mut lost, mut resumed) = (0, 0);
        for seed in seeds.clone() {
            let (is_whole, times) = run(seed, switches);
            lost += u64::from(!is_whole);
            resumed += times;
        }
        let most = if switches == 1 { 0 } else { seeds.end / 20 };
        assert!(lost <= most && resumed > seeds.end, "{switches} switches: {lost} lost, {resumed} resumed");
    }
}
