//! Anything into the dispatcher: records of every kind from clients that send what they like in any order, nodes that
//! answer what they like to anything, entries that say anything, and any time between. Whatever comes:
//!
//! - It neither panics nor goes on for ever, and what it holds stays within the limits.
//! - Packets to clients and nodes are whole, with right checksums and tags, and carry what the client sent there.
//! - A client is told that its data arrived only if a node said so, or the switch holds it or has answered it.
//! - When everyone falls silent, every flow comes to an end and nothing is held any more.

#[path = "../../../../wire/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use bolero::{TypeGenerator, check};
use fuzzing::{Edit, Input, Watchdog};
use switchback_config::ClusterKey;
use switchback_flow::entry::Entry;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{SB_FRAMING_HEAD, SB_FRAMING_LOST, SB_FRAMING_SKIP};
use switchback_rates::Table;
use switchback_wire::clock::NodeClock;
use switchback_wire::flow_state::Handshake;
use switchback_wire::handoff::Peers;
use switchback_wire::packet::{TcpView, bring_up_to_date, flags, fold, segment, sum};
use switchback_wire::*;

use super::model::{CONFIG, SERVER, apply, with_rate_limit};
use crate::dispatch::{Dispatcher, Moment};
use crate::ids::NodeIds;
use crate::plan::{LocalMachine, Plan};
use switchback_flow::held::Held;

/// So little that a few packets reach every limit.
const LIMITS: &str = r#"
[limits]
head = "1KiB"
body = "64KiB"
fields = 5
held_per_flow = "2KiB"
held_per_source = "8KiB"
held = "12KiB"
"#;
const HELD: usize = 12 << 10;
/// The sequence numbers of all clients begin here and wrap soon.
const ORIGIN: Seq = Seq(u32::MAX - 500);
const KEY: [u8; 32] = [7; 32];

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"Content-Length: 700\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"1FF\r\n",
    b"Connection: close\r\n",
    b"/img/",
    b"HEAD ",
];

/// The pools know sessions, so that a few heads name nodes.
const PERSISTENCE: [(&str, &str); 2] =
    [("web", "mode = \"rewrite\"\ncookie = \"PHPSESSID\""), ("img", "mode = \"insert\"\ncookie = \"lb\"")];

/// Cookies of sessions with the nodes n2 and n3.
fn cookies() -> [String; 2] {
    let key = keys::session_key(&KEY);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let pool = session::pool_codes(&key, &["web", "img"])[0];
    let node = session::node_codes(&key, "web", &["n1", "n2"])[1];
    let other = session::node_codes(&key, "img", &["n3"])[0];
    [
        format!("Cookie: {}D=1\r\n", text(&session::rewritten(pool, node))),
        format!("Cookie: lb={}\r\n", text(&session::inserted_value(&key, "img", other))),
    ]
}

fn texts() -> Vec<Vec<u8>> {
    let [rewritten, inserted] = &cookies();
    let head = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let upgrade = "Connection: Upgrade\r\nUpgrade: x\r\n";
    let texts = [
        head("GET /web/", ""),
        head("GET /img/", ""),
        head("GET /web/", rewritten),
        head("GET /img/", inserted),
        head("GET /web/", &format!("A: {}\r\n{rewritten}", "b".repeat(600))),
        head("HEAD /web/", ""),
        head("GET /old/", ""),
        head("GET /none", ""),
        head("POST /web/", "Content-Length: 30\r\n") + &"x".repeat(30),
        head("POST /img/", "Content-Length: 3000\r\n") + &"y".repeat(3000),
        head("PUT /web/", "Transfer-Encoding: chunked\r\n")
            + "5\r\nhello\r\n40\r\n"
            + &"z".repeat(64)
            + "\r\n0\r\n\r\n",
        head("GET /web/", upgrade) + "anything",
        head("GET /web/", &"A: b\r\n".repeat(9)),
        head("GET /img/", &format!("A: {}\r\n", "b".repeat(1500))),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
    ];
    texts.map(String::into_bytes).to_vec()
}

/// Where a packet's data begins in the client's stream.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    Next,
    Before(u16),
    Ahead(u8),
    Start,
}

/// An entry that says anything the map can say.
#[derive(Clone, Debug, TypeGenerator)]
struct AnyEntry {
    node: u8,
    origin: bool,
    place: Place,
    mode: u8,
    options: u8,
    mss: u16,
    requests: u16,
    heads: u32,
    state: u8,
    left: u64,
    allowed: u64,
}

/// What clients that mean well do not do, and the map does not say.
#[derive(Clone, Debug, TypeGenerator)]
struct Odd {
    text: Input,
    flags: u8,
    entry: Option<AnyEntry>,
    #[generator(bolero::produce::<Vec<Edit>>().with().len(0usize..3))]
    edits: Vec<Edit>,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    /// A record with a packet of a client.
    Client {
        flow: u8,
        kind: u8,
        place: Option<Place>,
        len: u16,
        /// What the stream goes on with where it has not been sent yet.
        text: u8,
        acked: u16,
        timestamps: Option<(u32, u32)>,
        /// Every fourth packet only, or no flow would get far.
        odd: (u8, Odd),
    },
    /// A node says something about one of the last packets that it got.
    Node {
        asked: u8,
        op: u8,
        reason: u8,
        flags: Option<u8>,
        next: Option<Place>,
        node: Option<u8>,
        acked: Option<u16>,
    },
    Wait(u16),
}

/// A client, whose data at a place is always the same.
struct Client {
    flow: sb_flow,
    stream: Vec<u8>,
    next: usize,
}

impl Client {
    fn new(client: &str, port: u16, vip: &str) -> Self {
        let address = |text: &str| address_bytes(text.parse().unwrap());
        let flow = sb_flow {
            client: address(client),
            vip: address(vip),
            client_port: port.to_be(),
            vip_port: 80u16.to_be(),
        };
        Client { flow, stream: Vec::new(), next: 0 }
    }

    fn offset(&self, place: Place) -> usize {
        match place {
            Place::Next => self.next,
            Place::Before(by) => self.next.saturating_sub(usize::from(by)),
            Place::Ahead(by) => self.next + usize::from(by),
            Place::Start => 0,
        }
    }

    fn seq(&self, place: Place) -> Seq {
        ORIGIN + self.offset(place)
    }
}

/// What the dispatcher has of a flow.
struct Has {
    with_node: bool,
    next: Seq,
    acknowledged: bool,
    answered: bool,
    /// From the first byte to the one after the last.
    held: Vec<(Seq, Seq)>,
}

struct Asked {
    node: NodeAddress,
    flow: usize,
    option: sb_option,
    packet: Vec<u8>,
}

struct Fuzz {
    now: Duration,
    dispatcher: Dispatcher,
    map: HashMap<sb_flow, Entry>,
    clients: Vec<Client>,
    asked: VecDeque<Asked>,
    /// No packet has wrong checksums, or other data than the stream.
    pure: bool,
    /// The program's token buckets.
    limiter: RefCell<Table>,
}

fn dispatcher() -> Dispatcher {
    let config = CONFIG.replace("[\"192.0.2.100:80\"]", "[\"192.0.2.100:80\", \"[2001:db8::100]:80\"]");
    let config = config.replacen("[[node]]", &format!("{LIMITS}[[node]]"), 1);
    let config = with_rate_limit(&config);
    let config = PERSISTENCE.iter().fold(config, |config, (pool, lines)| {
        let (before, after) = config.split_once(&format!("name = \"{pool}\"\n")).unwrap();
        let (own, after) = after.split_once("[[").unwrap();
        format!("{before}name = \"{pool}\"\n{own}[pool.persistence]\n{lines}\n[[{after}")
    });
    let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes(KEY)]);
    let cluster = switchback_config::parse(&config, Path::new("cluster.toml"), keys).unwrap();
    let addresses: Vec<NodeAddress> = cluster.nodes.iter().map(|node| node.handoff_address()).collect();
    let ids = NodeIds::default().with(&addresses, 8).unwrap();
    let mut plan = Plan::new(
        &cluster,
        keys::handoff_key(&KEY),
        ids.all().clone(),
        LocalMachine::default(),
        Duration::ZERO,
    );
    for node in plan.nodes.iter_mut().flatten() {
        node.source = Some("192.0.2.10".parse().unwrap());
        node.clock = Some(NodeClock::default());
    }
    let mut counter = 0;
    Dispatcher::new(
        plan,
        Box::new(move || {
            counter += 1;
            counter
        }),
    )
}

impl Fuzz {
    fn new(pure: bool) -> Self {
        let clients = vec![
            Client::new("198.51.100.1", 40000, "192.0.2.100"),
            Client::new("198.51.100.1", 40001, "192.0.2.100"),
            Client::new("2001:db8:1::1", 40000, "2001:db8::100"),
            Client::new("198.51.100.2", 40000, "192.0.2.99"),
        ];
        let now = Duration::from_secs(100);
        let (map, asked) = (HashMap::new(), VecDeque::new());
        Fuzz {
            now,
            dispatcher: dispatcher(),
            map,
            clients,
            asked,
            pure,
            limiter: RefCell::new(Table::new(100)),
        }
    }

    fn step(&mut self, step: &Step, texts: &[Vec<u8>]) {
        match step {
            Step::Wait(ms) => {
                self.now += Duration::from_millis(u64::from(*ms));
                self.on_time();
            }
            Step::Client { flow, kind, place, len, text, acked, timestamps, odd } => {
                let odd = Some(&odd.1).filter(|_| odd.0 % 4 == 0);
                let index = usize::from(*flow) % self.clients.len();
                let client = &mut self.clients[index];
                let from = client.offset(place.unwrap_or(Place::Next));
                let end = from + usize::from(*len) % 1400;
                while client.stream.len() < end {
                    let good = || texts[usize::from(*text) % texts.len()].clone();
                    let more = odd.map_or_else(good, |odd| odd.text.bytes(texts, PIECES));
                    let filled = client.stream.len() + 1;
                    client.stream.extend(more);
                    let short = client.stream.len() < filled;
                    client.stream.extend(short.then_some(b'x'));
                }
                client.next = client.next.max(end);
                let numbers = (ORIGIN + from, SERVER + u32::from(*acked));
                let data = &client.stream[from..end];
                let flags = odd.map_or(flags::ACK | flags::PSH, |odd| odd.flags & 0x1f);
                let mut packet = segment(&client.flow, true, numbers, flags, *timestamps, data);
                if let (Some(odd), false) = (odd, self.pure) {
                    odd.edits.iter().for_each(|edit| edit.apply(&mut packet, PIECES));
                }
                let entry = match odd.and_then(|odd| odd.entry.as_ref()) {
                    Some(entry) => self.entry(index, entry),
                    None => self.known_entry(index),
                };
                let kinds = [1, 1, 1, 1, 1, 3, 4, u32::from(*kind)];
                let kind = kinds[usize::from(*kind) % kinds.len()];
                let flow = self.clients[index].flow;
                self.record(index, &sb_record { kind, flow, entry, ..Default::default() }, &packet);
            }
            Step::Node { asked, op, reason, flags, next, node, acked } => {
                let count = self.asked.len().max(1);
                let Some(about) = self.asked.get(usize::from(*asked) % count) else { return };
                let ops = [16, 16, 17, 18, 18, 19, 20, 21, 22, 22, *op];
                let (index, mut option) = (about.flow, about.option);
                option.op = ops[usize::from(*op) % ops.len()];
                option.reason = reason % 10;
                option.flags = flags.unwrap_or(option.flags);
                let client = &self.clients[index];
                let next = next.map_or(option.flow_state().next, |place| client.seq(place).to_be());
                option = option.with(|flow: &mut sb_flow_state| flow.next = next);
                if option.op == sb_op::SB_OP_CONFIRMED as u8 {
                    option = option.with(|said: &mut sb_confirmed| said.arrived = next);
                }
                let mut packet = about.packet.clone();
                if let (Some(acked), Some(mut view)) = (acked, TcpView::parse(&packet)) {
                    // How much a node has sent: its word about a release says so.
                    bring_up_to_date(&mut packet, &mut view, SERVER + u32::from(*acked), None);
                }
                let node = node.map_or(about.node, |last| IpAddr::from([192, 0, 2, 20 + last % 5]).into());
                let kind = sb_record_kind::SB_RECORD_HANDOFF as u32;
                let (flow, node) = (client.flow, node.to_wire());
                self.record(index, &sb_record { kind, flow, option, node, ..Default::default() }, &packet);
            }
        }
    }

    /// What the program has for the flow, which it knows since its first packet.
    fn known_entry(&mut self, index: usize) -> sb_flow_entry {
        let handshake = Handshake { mss: 1460, options: (SB_SYN_SACK | SB_SYN_TSTAMP) as u8, wscale: 0 };
        let new = Entry { handshake, ..Entry::new(ORIGIN) };
        self.map.entry(self.clients[index].flow).or_insert(new).encode()
    }

    fn entry(&self, index: usize, entry: &AnyEntry) -> sb_flow_entry {
        let skip = SB_FRAMING_SKIP;
        let data = [0, 0, 0, 2, 3, 4 | skip, 9 | skip, u16::from(entry.state % 60)];
        let mut state = data[usize::from(entry.state) % data.len()];
        // The automaton for requests has no such states.
        if [SB_FRAMING_HEAD, SB_FRAMING_LOST].contains(&state) {
            state = 0;
        }
        sb_flow_entry {
            node: (entry.node % 10).into(),
            origin: if entry.origin { ORIGIN } else { ORIGIN + 1u32 }.0,
            next: self.clients[index].seq(entry.place).0,
            mss: entry.mss,
            options: entry.options,
            // One more than there are.
            mode: entry.mode % 7,
            requests: entry.requests,
            heads: entry.heads,
            framing: Framing::new(state, entry.left).with_allowed(entry.allowed),
            session: self
                .asked
                .front()
                .map_or_else(sb_session::default, |asked| asked.option.flow_state().session),
            ..Default::default()
        }
    }

    fn record(&mut self, index: usize, record: &sb_record, packet: &[u8]) {
        let before = self.all_held();
        let map = std::mem::take(&mut self.map);
        let at = Moment {
            now: self.now,
            map: &|flow| map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_record(at, record, packet);
        self.map = map;
        let confirmed = record.kind == sb_record_kind::SB_RECORD_HANDOFF as u32
            && record.option.op == sb_op::SB_OP_CONFIRMED as u8;
        self.check(&before, confirmed.then_some(index));
    }

    fn on_time(&mut self) {
        let before = self.all_held();
        let map = std::mem::take(&mut self.map);
        let at = Moment {
            now: self.now,
            map: &|flow| map.get(flow).copied(),
            take: &|wishes| self.limiter.borrow_mut().take(self.now.as_nanos() as u64, wishes),
        };
        self.dispatcher.on_time(at);
        self.map = map;
        assert!(self.dispatcher.deadline().is_none_or(|deadline| deadline > self.now));
        self.check(&before, None);
    }

    fn all_held(&mut self) -> Vec<Option<Has>> {
        let flows: Vec<_> = self.clients.iter().map(|client| client.flow).collect();
        flows.iter().map(|flow| self.held(flow)).collect()
    }

    fn held(&mut self, flow: &sb_flow) -> Option<Has> {
        if let Some(entry) = self.dispatcher.answered.entry(flow) {
            return Some(Has {
                held: Vec::new(),
                with_node: false,
                next: entry.mark.next,
                acknowledged: false,
                answered: true,
            });
        }
        let pending = self.dispatcher.pending.get(flow)?;
        let request = pending.state.request().map(|request| &request.packets);
        let packets = request.into_iter().chain([&pending.connection.held]).flat_map(Held::iter);
        Some(Has {
            held: packets.map(|packet| (packet.view.seq, packet.end())).collect(),
            with_node: pending.connection.has_node(),
            next: pending.connection.entry.mark.next,
            acknowledged: pending.connection.acknowledged.is_some(),
            answered: false,
        })
    }

    /// Looks at all that the dispatcher wants done, and does it. `confirmed` is the flow of which a node has just said
    /// that it has everything before the mark.
    fn check(&mut self, before: &[Option<Has>], confirmed: Option<usize>) {
        let (held, pending) = (self.dispatcher.held(), self.dispatcher.pending());
        assert_eq!(held == 0, pending == 0);
        assert!(held <= HELD + 2048 * pending, "{held} bytes are held of {pending} flows");
        let after = self.all_held();
        let mut output = std::mem::take(&mut self.dispatcher.output);
        for (packet, to) in output.packets() {
            let is_client =
                |client: &&Client| client.flow.client().ip() == to && packet_is_of(packet, client);
            match self.clients.iter().position(|client| is_client(&client)) {
                Some(index) => {
                    let view = whole(packet);
                    let said = (before[index].as_ref(), after[index].as_ref(), confirmed == Some(index));
                    let answered = said.0.iter().chain(&said.1).any(|has| has.answered);
                    if view.flags & flags::FIN != 0 && !answered {
                        // The client has closed a flow that has no node any more, and nothing is missing.
                        let sent = (view.ack - ORIGIN) as usize;
                        assert!(!self.pure || sent <= self.clients[index].next + 1, "byte {sent}");
                    } else if view.flags & (flags::ACK | flags::RST) == flags::ACK {
                        self.check_acknowledgment(index, view.ack, said);
                    }
                }
                None => self.check_handoff(packet, to),
            }
        }
        for changes in [&output.changes, &output.moves] {
            let (mut locked, mut waiting, mut over) = Default::default();
            apply(changes, &mut self.map, &mut locked, &mut waiting, &mut over);
        }
        output.clear();
        self.dispatcher.output = output;
    }

    /// All up to `ack` is a node's, or is held, or was sent by the client and is answered.
    fn check_acknowledgment(&self, index: usize, ack: Seq, said: (Option<&Has>, Option<&Has>, bool)) {
        let (before, after, confirmed) = said;
        let states = || before.into_iter().chain(after);
        if states().any(|has| has.answered) {
            let sent = (ack - ORIGIN) as usize;
            assert!(!self.pure || sent <= self.clients[index].next + 1, "nobody has sent byte {sent}");
            return;
        }
        let with_node = states().all(|has| has.with_node);
        let before_that = before.is_some_and(|has| has.acknowledged);
        assert!(confirmed || before_that || !with_node, "no node has said that it has what came before");
        let is_held = |from: Seq| {
            let mut at = from;
            let mut holds = after.into_iter().chain(before).flat_map(|has| &has.held);
            // What was acknowledged once may end inside what has come since.
            while ack.after(at) {
                let next = holds.find(|(start, end)| *start == at && end != start);
                let Some((_, end)) = next else { return false };
                at = *end;
            }
            true
        };
        // A node may say that it has not come to the mark yet: then no more than it has is acknowledged.
        let so_far = confirmed && states().any(|has| ack.before(has.next));
        assert!(so_far || states().any(|has| is_held(has.next)), "{ack:?} is acknowledged and not held");
    }

    fn check_handoff(&mut self, packet: &[u8], to: IpAddr) {
        assert_eq!(fold(sum(&packet[..20])), 0);
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        let shim: sb_shim = read_from(&packet[20..]).expect("a whole handoff packet");
        assert_eq!(usize::from(u16::from_be(shim.len)), packet.len() - 20);
        let inner = &packet[20 + size_of::<sb_shim>()..];
        let view = TcpView::parse(inner).expect("a packet of TCP inside");
        assert_eq!(view.end, inner.len());
        let epoch = NodeClock::default().epoch(self.now);
        let peers = Peers { node: to.into(), switch: "192.0.2.10".parse().unwrap(), epoch };
        let key = keys::handoff_key(&KEY);
        let of = |client: &Client| {
            handoff::tag(&key, &peers, &client.flow, &view, &shim.option) == shim.option.tag
        };
        let index = self.clients.iter().position(of).expect("a tag of one of the flows");
        if self.pure {
            whole(inner);
            let client = &self.clients[index];
            let from = (view.seq - ORIGIN) as usize;
            let data = &inner[view.data..view.end];
            assert!(data.is_empty() || client.stream[from..].starts_with(data), "other data at {from}");
        }
        if self.asked.len() == 16 {
            self.asked.pop_front();
        }
        let (flow, option) = (index, shim.option);
        self.asked.push_back(Asked { node: to.into(), flow, option, packet: inner.to_vec() });
    }

    /// Nobody says anything any more.
    fn fall_silent(&mut self) {
        for _ in 0..1000 {
            let Some(deadline) = self.dispatcher.deadline() else {
                assert_eq!((self.dispatcher.pending(), self.dispatcher.held()), (0, 0));
                return;
            };
            self.now = self.now.max(deadline);
            self.on_time();
        }
        panic!("{} flows never end", self.dispatcher.pending());
    }
}

/// Whether it goes to the client's port.
fn packet_is_of(packet: &[u8], client: &Client) -> bool {
    let tcp = if packet[0] >> 4 == 4 { 20 } else { 40 };
    packet[tcp + 2..tcp + 4] == client.flow.client().port().to_be_bytes()
}

/// What a packet is read as; it is whole, and its checksums are right.
fn whole(packet: &[u8]) -> TcpView {
    let view = TcpView::parse(packet).expect("a packet of TCP");
    assert_eq!(view.end, packet.len());
    let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
    assert!(view.tcp == 40 || fold(sum(&packet[..20])) == 0);
    let pseudo = sum(&packet[addresses]) + 6 + (view.end - view.tcp) as u64;
    assert_eq!(fold(pseudo + sum(&packet[view.tcp..])), 0);
    view
}

#[derive(Clone, Debug, TypeGenerator)]
struct Case {
    /// No packet of a client is changed, so all that goes to nodes can be compared.
    pure: bool,
    #[generator(bolero::produce::<Vec<Step>>().with().len(0usize..40))]
    steps: Vec<Step>,
}

#[test]
fn whatever_comes() {
    let (texts, watchdog) = (texts(), Watchdog::new());
    check!().with_test_time(fuzzing::time()).with_type::<Case>().for_each(|case| {
        watchdog.watch(|| {
            let mut fuzz = Fuzz::new(case.pure);
            case.steps.iter().for_each(|step| fuzz.step(step, &texts));
            fuzz.fall_silent();
        });
    });
}
