//! Several nodes of one machine: which of them an adoption is for, and who answers (docs/decisions/0054).

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use NodeCounter::*;
use sb_op::*;
use sb_ownership::*;
use sb_reason::*;
use switchback_wire::generation::Generation;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

/// Numbers of two nodes besides the one whose server listens at the VIPs.
const NUMBERS: [u16; 2] = [0x1234, 0x1235];
/// Offset of the VNI behind Ethernet, IPv4, UDP and four bytes of Geneve.
const VNI: usize = 14 + 20 + 8 + 4;
const FIRST: Generation = Generation::first(0);

struct Machine {
    bench: Bench,
    servers: [TcpListener; 2],
}

impl Machine {
    fn new(v6: bool) -> Machine {
        let bench = Bench::new();
        let ip = if v6 { "::1" } else { "127.0.0.1" };
        let servers = NUMBERS.map(|number| {
            let server = TcpListener::bind((ip, 0)).unwrap();
            bench.add_node(number, false);
            bench.count_load(number);
            bench.serve_node_at(number, &known(v6).flow, server.local_addr().unwrap(), 0);
            server
        });
        Machine { bench, servers }
    }

    /// The connection that one of the nodes gets by this adoption; its server reads the request.
    fn adopted_by(&self, node: usize, known: &KnownFlow, generation: Generation) -> TcpStream {
        let adopted = self.bench.counter(Adopted);
        let packet = known.hand_over_to(NUMBERS[node], of(known, SB_OP_ADOPT, generation), REQUEST);
        self.bench.send(&packet);
        let (mut socket, client) = self.servers[node].accept().unwrap();
        assert_eq!((client, socket.local_addr().unwrap()), (known.flow.client(), known.flow.vip()));
        let mut request = [0; REQUEST.len()];
        socket.read_exact(&mut request).unwrap();
        assert_eq!(request, *REQUEST);
        wait_until("the switch is told", || self.bench.counter(Adopted) > adopted);
        assert_eq!(self.bench.flow(&known.flow).expect("an entry").node, NUMBERS[node]);
        socket
    }

    /// What is answered to a packet for the node with a number: number, operation and reason.
    fn answer(&self, number: u16, known: &KnownFlow, option: sb_option, data: &[u8]) -> (u16, sb_op, u8) {
        let (verdict, out) = self.bench.ingress(&to_us(&known.hand_over_to(number, option, data)), 0);
        assert_eq!(verdict, Verdict::Redirect, "an answer");
        let said = Handoff::parse(&out).expect("a handoff packet");
        assert_eq!(said.option.tag, said.tag(&SIGN, NODE[0]), "by the node that it names");
        let number = u16::from_be_bytes([out[VNI], out[VNI + 1]]);
        (number, sb_op::from_number(said.option.op).expect("an operation"), said.option.reason)
    }
}

fn known(v6: bool) -> KnownFlow {
    KnownFlow { flow: flow(v6, 54_000, PORT), seq: 1000, ack: 5000, socket: None }
}

fn of(known: &KnownFlow, op: sb_op, generation: Generation) -> sb_option {
    known.option(op).with(|flow: &mut sb_flow_state| flow.generation = generation.to_be())
}

#[test]
fn the_number_says_which_server_gets_the_connection() {
    alone(|| {
        for v6 in [false, true] {
            let machine = Machine::new(v6);
            for (node, port) in [(0, 54_001), (1, 54_002), (0, 54_003)] {
                let known = KnownFlow { flow: flow(v6, port, PORT), ..known(v6) };
                let before = NUMBERS.map(|number| machine.bench.load_of(number).flows);
                machine.adopted_by(node, &known, FIRST);
                let more = |node: usize| machine.bench.load_of(NUMBERS[node]).flows - before[node];
                assert_eq!((more(node), more(1 - node)), (1, 0), "each node has its own load");
                assert_eq!(machine.bench.describe_of(NUMBERS[node], &[known.flow]).len(), 1);
                assert_eq!(machine.bench.describe_of(NUMBERS[1 - node], &[known.flow]).len(), 0);
            }
        }
    });
}

#[test]
fn nodes_that_are_not_there_or_drain_get_nothing() {
    alone(|| {
        let machine = Machine::new(false);
        let adopt = || of(&known(false), SB_OP_ADOPT, FIRST);
        let refused = |number, reason: sb_reason| {
            let said = machine.answer(number, &known(false), adopt(), REQUEST);
            assert_eq!(said, (number, SB_OP_REFUSED, reason as u8));
        };
        refused(0x1236, SB_REASON_NO_LISTENER);
        assert_eq!(machine.bench.counter(RefusedNoNode), 1);
        machine.bench.add_node(NUMBERS[0], true);
        refused(NUMBERS[0], SB_REASON_DRAINING);
        machine.adopted_by(1, &KnownFlow { flow: flow(false, 54_010, PORT), ..known(false) }, FIRST);
        // A number below the least one is the end of a second candidate's epoch.
        let mut frame = to_us(&known(false).hand_over(of(&known(false), SB_OP_PROBE, Generation::NONE), b""));
        frame[VNI + 1] = 0xff;
        let (verdict, out) = machine.bench.ingress(&frame, 0);
        assert_eq!((verdict, &out[VNI..VNI + 2]), (Verdict::Redirect, &[0, 0][..]));
    });
}

#[test]
fn the_owner_answers_whichever_node_is_asked() {
    alone(|| {
        let machine = Machine::new(false);
        let mut known = known(false);
        let latest = FIRST.successor(1);
        let _socket = machine.adopted_by(0, &known, latest);
        let origin = known.seq;
        known.seq += REQUEST.len() as u32;
        let about = |op, generation| {
            of(&known, op, generation).with(|flow: &mut sb_flow_state| flow.origin = origin.to_be())
        };
        for number in [0, NUMBERS[0], NUMBERS[1]] {
            let probed = machine.answer(number, &known, about(SB_OP_PROBE, Generation::NONE), b"");
            assert_eq!(probed, (NUMBERS[0], SB_OP_OWNED, 0));
            let late = machine.answer(number, &known, about(SB_OP_RELEASE, FIRST), b"");
            assert_eq!(late, (NUMBERS[0], SB_OP_OWNED, 0));
        }
        let late = machine.answer(NUMBERS[1], &known, about(SB_OP_ADOPT, FIRST), REQUEST);
        assert_eq!(late, (NUMBERS[0], SB_OP_OWNED, 0), "an earlier adoption by another node");
        // Who does not have the flow speaks for itself.
        let other = KnownFlow { flow: flow(false, 54_020, PORT), seq: origin, ack: 5000, socket: None };
        for number in [0, NUMBERS[0], NUMBERS[1]] {
            let probed = machine.answer(number, &other, of(&other, SB_OP_PROBE, Generation::NONE), b"");
            assert_eq!(probed, (number, SB_OP_UNOWNED, 0));
        }
    });
}

#[test]
fn the_newest_adoption_takes_the_flow_from_another_node() {
    alone(|| {
        for v6 in [false, true] {
            let machine = Machine::new(v6);
            let mut before = machine.adopted_by(0, &known(v6), FIRST);
            // Not a copy of the first one, although it has the same mark.
            let now = machine.adopted_by(1, &known(v6), FIRST.next_attempt());
            assert_eq!(machine.bench.counter(Cured), 1);
            let ended = before.read(&mut [0; 1]).expect_err("its socket is gone");
            assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
            let [lost, won] = NUMBERS.map(|number| machine.bench.load_of(number));
            assert_eq!((lost.flows, lost.ended, won.flows, won.ended), (1, 1, 1, 0));
            drop(now);
        }
    });
}

#[test]
fn only_the_server_of_the_flows_node_speaks() {
    alone(|| {
        let machine = Machine::new(false);
        let known = known(false);
        let (old, new) = (away_server(&known.flow), "198.51.100.81:8080".parse().unwrap());
        machine.bench.serve_away(&known.flow, old, LOOPBACK);
        let mut owned = known.owned();
        (owned.state, owned.away.ifindex) = (SB_OWN_OPEN as u8, LOOPBACK);
        owned.masquerade.stage = sb_replay::SB_REPLAY_DONE as u8;
        let mut said = |server| {
            owned.away.server = endpoint(server);
            machine.bench.put(&known.flow, &owned);
            let theirs = of_server(&known.flow, old);
            let packet = segment(&theirs, false, (Seq(5000), Seq(1000)), flags::ACK, None, b"late");
            assert!(TcpView::parse(&packet).is_some());
            let dropped = machine.bench.counter(DropAway);
            let (verdict, _) = machine.bench.guard(&ethernet([0; 6], [0; 6], &packet));
            (verdict, machine.bench.counter(DropAway) - dropped)
        };
        assert_eq!(said(old), (Verdict::Redirect, 0));
        assert_eq!(said(new), (Verdict::Drop, 1), "the flow is another server's by now");
    });
}
