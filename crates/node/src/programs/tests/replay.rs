//! Sockets made by a replayed handshake, and the translation of their numbers.

use std::io::Read;
use std::mem::offset_of;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use NodeCounter::*;
use nix::libc;
use nix::sys::socket::{Backlog, SockaddrIn, bind, listen};
use sb_op::*;
use switchback_wire::packet::{TcpView, flags, fold, segment, sum, timestamps};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::{flow_of, is_sealed};

const END: u32 = REQUEST.len() as u32;
/// Of the server, which is 7 steps from the client's scale.
const THEIRS: u8 = 3;
const OURS: u8 = 10;

/// Runs `work` where listeners get flows by a replayed handshake, and their packets pass egress.
fn replaying(work: impl FnOnce(&Bench) + Send) {
    alone(|| {
        // A route by the loopback interface to other addresses than local ones refuses (ip6_route_info_create()).
        ip("-6 route add local 2001:db8:1::/64 dev lo");
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.replay();
        work(&bench);
    });
}

fn known(v6: bool, port: u16) -> KnownFlow {
    KnownFlow { flow: flow(v6, port, PORT), seq: 1000, ack: 5000, socket: None }
}

/// The packet with these options instead of its own none.
fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let tcp = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let mut packet = [&packet[..tcp + 20], options, &packet[tcp + 20..]].concat();
    packet[tcp + 12] = (5 + options.len() as u8 / 4) << 4;
    repair(&mut packet);
    packet[tcp + 16..tcp + 18].fill(0);
    let addresses = if tcp == 20 { 12..20 } else { 8..40 };
    let check = fold(sum(&packet[addresses]) + 6 + (packet.len() - tcp) as u64 + sum(&packet[tcp..]));
    packet[tcp + 16..tcp + 18].copy_from_slice(&check.to_be_bytes());
    assert!(is_tcp_sealed(&packet));
    packet
}

fn view(packet: &[u8]) -> TcpView {
    TcpView::parse(packet).expect("a TCP packet")
}

/// An ADOPT of a client that uses timestamps.
fn stamped(known: &KnownFlow, (tsval, tsecr): (u32, u32)) -> Vec<u8> {
    let option = known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| {
        flow.options = (SB_SYN_TSTAMP | SB_SYN_SACK | SB_SYN_WSCALE) as u8;
        flow.wscale = 8 << 4 | OURS;
    });
    let numbers = (Seq(known.seq), Seq(known.ack));
    let inner = segment(&known.flow, true, numbers, flags::ACK, Some((tsval, tsecr)), REQUEST);
    known.hand_over_packet(option, &view(&inner), &inner)
}

/// As the switch forwards a packet of the client, and what the kernel gets.
fn forwarded(bench: &Bench, known: &KnownFlow, inner: &[u8]) -> Vec<u8> {
    let option = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
        flow.origin = 1000u32.to_be();
        flow.next = (1000 + END).to_be();
    });
    let forward = to_us(&known.hand_over_packet(option, &view(inner), inner));
    let (verdict, out) = bench.ingress_summed(&forward, 0);
    assert_eq!(verdict, Verdict::Pass);
    out[14..].to_vec()
}

#[test]
fn a_listener_gets_the_request_as_if_the_client_had_come_itself() {
    replaying(|bench| {
        for v6 in [false, true] {
            let mut known = known(v6, 40_000);
            known.adopt(bench);
            wait_until("the switch is told", || bench.counter(Replayed) == 1 + u64::from(v6));
            assert_eq!(bench.counter(Adopted), bench.counter(Replayed));
            let socket = known.socket.as_ref().expect("an adopted flow");
            assert_eq!(socket.local_addr().expect("an address"), known.flow.vip());
            assert_eq!(
                tcp_info(socket, offset_of!(libc::tcp_info, tcpi_rtt)),
                0,
                "the handshake took another way than the client's packets"
            );
            known.answer();
            let sent = known.ack;
            wait_until("the response has left", || {
                bench.flow(&known.flow).is_some_and(|owned| owned.followed == sent && owned.responses == 1)
            });
        }
        assert_eq!(bench.reserved(), 0);
    });
}

/// The server's clock goes on where the client has seen it last, and its window has another scale.
#[test]
fn the_client_keeps_its_clock() {
    replaying(|bench| {
        let mut known = known(false, 40_000);
        known.socket = Some(bench.adopt(&stamped(&known, (66, 70_000)), &known.flow));
        let owned = bench.flow(&known.flow).expect("an adopted flow");
        assert_eq!(owned.masquerade.ours, OURS);
        known.seq += END;
        let inner =
            segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::ACK, Some((67, 70_000)), b"");
        let (_, echo) = timestamps(&forwarded(bench, &known, &inner), &view(&inner)).expect("timestamps");
        assert_eq!(echo, 70_000u32.wrapping_sub(owned.masquerade.tsval));
        let release = known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| {
            flow.origin = 1000u32.to_be();
            flow.requests = 1u16.to_be();
        });
        known.socket.as_mut().expect("a socket").read_exact(&mut [0; END as usize]).expect("the request");
        bench.put(&known.flow, &sb_owned { responses: 1, ..bench.flow(&known.flow).expect("a flow") });
        bench.ingress(&to_us(&known.hand_over(release, b"")), 0);
        let released = bench.flow(&known.flow).expect("a released flow");
        assert_eq!((released.state, released.answered), (sb_ownership::SB_OWN_RELEASED as u8, known.ack));
        assert!((70_000..72_000).contains(&released.tsval), "the clock says {}", released.tsval);
    });
}

#[test]
fn a_servers_packets_get_the_numbers_that_the_client_knows() {
    alone(|| {
        let bench = Bench::new();
        let masquerade = sb_masquerade {
            seq: 0xffff_f000,
            tsval: 0x8000_0001,
            stage: sb_replay::SB_REPLAY_DONE as u8,
            theirs: THEIRS,
            ours: OURS,
            reserved: 0,
        };
        for v6 in [false, true] {
            let known = known(v6, 40_000);
            let owned = sb_owned { masquerade, ..known.owned() };
            let own = known.ack.wrapping_sub(masquerade.seq);
            let bare = segment(&known.flow, false, (Seq(own), Seq(known.seq)), flags::ACK, None, b"");
            let aligned = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
            let mut odd = [8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 0];
            for options in [&[][..], &aligned, &odd] {
                bench.put(&known.flow, &owned);
                let frame = ethernet(ROUTER, super::frames::OURS, &with_options(&bare, options));
                let (verdict, out) = bench.egress(&frame);
                assert_eq!(verdict, Verdict::Next);
                let packet = &out[14..];
                let seen = view(packet);
                assert_eq!((seen.seq, seen.ack), (Seq(known.ack), Seq(known.seq)));
                assert!(is_tcp_sealed(packet));
                let window = u16::from_be_bytes([packet[seen.tcp + 14], packet[seen.tcp + 15]]);
                assert_eq!(window, 0xffff >> (OURS - THEIRS));
                let stamps = (!options.is_empty()).then_some((0x8000_0008, 9));
                assert_eq!(timestamps(packet, &seen), stamps);
            }
            // What it says of the client's data needs no translation.
            odd[2..6].copy_from_slice(&0x8000_0008u32.to_be_bytes());
            let (_, out) = bench.egress(&ethernet(ROUTER, super::frames::OURS, &with_options(&bare, &odd)));
            assert_eq!(out[out.len() - 12..], odd[12..]);
        }
    });
}

#[test]
fn a_clients_packets_get_the_numbers_that_the_server_knows() {
    replaying(|bench| {
        for v6 in [false, true] {
            let mut known = known(v6, 40_000);
            known.socket = Some(bench.adopt(&stamped(&known, (66, 70_000)), &known.flow));
            known.seq += END;
            let owned = bench.flow(&known.flow).expect("an adopted flow");
            let theirs = |number: u32| number.wrapping_sub(owned.masquerade.seq);
            let edges = [known.ack + 10, known.ack + 20];
            let mut sack = vec![1, 1, 8, 10, 0, 0, 0, 70, 0, 0, 0, 0, 1, 1, 5, 10];
            sack.extend(edges.iter().flat_map(|edge| edge.to_be_bytes()));
            let bare = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::ACK, None, b"");
            for options in [&[][..], &sack[..12], &sack] {
                let packet = forwarded(bench, &known, &with_options(&bare, options));
                let seen = view(&packet);
                assert_eq!((seen.seq, seen.ack), (Seq(known.seq), Seq(theirs(known.ack))));
                assert!(is_tcp_sealed(&packet));
                if !options.is_empty() {
                    assert_eq!(timestamps(&packet, &seen), Some((70, 0)), "no echo");
                }
                if options.len() > 12 {
                    let found = edges.map(|edge| theirs(edge).to_be_bytes()).concat();
                    assert_eq!(packet[packet.len() - 8..], found);
                }
            }
            // A router says which of the server's packets was too big.
            let error = too_long(&known.flow, known.ack, 8);
            let seen = TcpView { seq: Seq(known.ack), ack: Seq(0), ..view(&bare) };
            let seen = TcpView { data: seen.tcp, end: error.len(), ..seen };
            let message = known.hand_over_packet(known.option(SB_OP_ICMP), &seen, &error);
            let (verdict, out) = bench.ingress_summed(&to_us(&message), 0);
            assert_eq!(verdict, Verdict::Pass);
            assert_eq!(out[out.len() - 4..], theirs(known.ack).to_be_bytes());
        }
    });
}

/// Entries give way to others; the socket still knows.
#[test]
fn a_socket_whose_flow_was_forgotten_keeps_its_numbers() {
    replaying(|bench| {
        let mut known = known(false, 40_000);
        known.adopt(bench);
        known.answer();
        wait_until("the switch is told", || bench.counter(Adopted) == 1);
        let masquerade = bench.flow(&known.flow).expect("an adopted flow").masquerade;
        bench.forget(&known.flow);
        let mut option = known.option(SB_OP_FORWARD);
        option.flags |= SB_HANDOVER_REQUEST as u8;
        let (verdict, out) = bench.ingress_summed(&to_us(&known.hand_over(option, REQUEST)), 0);
        assert_eq!((verdict, bench.counter(Remembered)), (Verdict::Pass, 1));
        assert_eq!(view(&out[14..]).ack, Seq(known.ack.wrapping_sub(masquerade.seq)));
        let owned = bench.flow(&known.flow).expect("a flow that is known again");
        assert_eq!((owned.masquerade, owned.answered), (masquerade, known.ack));
    });
}

/// Its client may drop what has no timestamps. The server forgets the handshake.
#[test]
fn a_server_without_timestamps_gets_no_client_that_uses_them() {
    replaying(|bench| {
        std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0").expect("a sysctl of this namespace");
        let known = known(false, 40_000);
        for refused in 1..=2 {
            bench.send(&stamped(&known, (66, 70_000)));
            wait_until("it is refused", || bench.counter(RefusedFailed) == refused);
        }
        assert_eq!((bench.flow(&known.flow), bench.reserved()), (None, 0));
        bench.send(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
        wait_until("a client without timestamps is adopted", || bench.counter(Replayed) == 1);
    });
}

fn multipath(port: u16) -> OwnedFd {
    // SAFETY: socket takes three integers.
    let fd =
        unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP) };
    assert!(fd >= 0, "the kernel has MPTCP");
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    bind(fd.as_raw_fd(), &SockaddrIn::new(0, 0, 0, 0, port)).expect("a free port");
    listen(&fd, Backlog::new(8).expect("a backlog")).expect("it listens");
    fd
}

#[test]
fn what_the_kernel_does_not_give_to_a_listener_is_replayed() {
    replaying(|bench| {
        bench.be(NODE[0]);
        let listener = TcpListener::from(multipath(81));
        let mptcp = KnownFlow { flow: flow(false, 40_000, 81), ..known(false, 40_000) };
        bench.send(&mptcp.hand_over(mptcp.option(SB_OP_ADOPT), REQUEST));
        let (mut socket, client) = listener.accept().expect("a connection");
        assert_eq!(client, mptcp.flow.client());
        socket.read_exact(&mut [0; END as usize]).expect("the request");
        wait_until("the switch is told", || bench.counter(Adopted) == 1);
        assert_eq!(bench.counter(Replayed), 1);
        known(false, 40_001).adopt(bench);
        wait_until("the switch is told", || bench.counter(Adopted) == 2);
        assert_eq!(bench.counter(Replayed), 1, "the kernel makes a socket for a plain listener");
    });
}

/// The server does not listen at the VIP, and sees the addresses of the client and of the VIP.
#[test]
fn a_listener_elsewhere_gets_the_handshake() {
    replaying(|bench| {
        for (v6, ip) in [(false, "127.0.0.1"), (true, "::1")] {
            let server = TcpListener::bind((ip, 0)).expect("a free port");
            let elsewhere: SocketAddr = server.local_addr().expect("an address");
            let known = known(v6, 40_000);
            bench.serve_at(&known.flow, elsewhere);
            bench.send(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
            let (mut socket, client) = server.accept().expect("a connection");
            assert_eq!(
                (client, socket.local_addr().expect("an address")),
                (known.flow.client(), known.flow.vip())
            );
            socket.read_exact(&mut [0; END as usize]).expect("the request");
        }
        wait_until("the switch is told", || bench.counter(Replayed) == 2);
    });
}

/// A server behind an interface.
fn away(bench: &Bench, known: &KnownFlow) -> SocketAddr {
    let server = away_server(&known.flow);
    bench.serve_away(&known.flow, server, LOOPBACK);
    server
}

/// The server's answer to the SYN, which has these options.
fn syn_ack(known: &KnownFlow, server: SocketAddr, seq: u32, options: &[u8]) -> Vec<u8> {
    let (flow, acks) = (of_server(&known.flow, server), flags::SYN | flags::ACK);
    let bare = segment(&flow, false, (Seq(seq), Seq(known.seq)), acks, None, b"");
    inside(&with_options(&bare, options))
}

/// What has been redirected goes to the server, from the client.
fn to_server(
    (verdict, out): (Verdict, Vec<u8>),
    known: &KnownFlow,
    server: SocketAddr,
) -> (TcpView, Vec<u8>) {
    assert_eq!(verdict, Verdict::Redirect);
    let packet = out[14..].to_vec();
    let seen = view(&packet);
    let flow = of_server(&known.flow, server);
    assert_eq!(flow_of(&packet, seen.tcp, true), Some(flow));
    assert!(is_tcp_sealed(&packet) && is_sealed(&packet));
    (seen, packet)
}

/// The clones that wait for the server give up, and the next copy of the ADOPT goes on.
#[test]
fn a_server_behind_an_interface_gets_the_handshake() {
    alone(|| {
        let bench = Bench::new();
        for (v6, adopted) in [(false, 1), (true, 2)] {
            let known = known(v6, 40_000);
            let server = away(&bench, &known);
            let adopt = to_us(&stamped(&known, (66, 70_000)));
            let stage = || bench.flow(&known.flow).expect("an entry").masquerade.stage;
            // A copy sends the SYN again if nothing has come back.
            for _ in 0..2 {
                let (seen, packet) = to_server(bench.ingress(&adopt, 0), &known, server);
                assert_eq!((seen.seq, seen.flags, seen.is_empty()), (Seq(known.seq - 1), flags::SYN, true));
                let options = [2, 4, 5, 120, 4, 2, 8, 10, 0, 0, 0, 66, 0, 0, 0, 0, 1, 3, 3, 8];
                assert_eq!(packet[seen.tcp + 20..], options);
                assert_eq!(stage(), sb_replay::SB_REPLAY_SYN as u8);
            }
            let options = [8, 10, 0, 0, 0, 9, 0, 0, 0, 66, 3, 3, THEIRS, 1];
            let options = [&[4, 2][..], &options].concat();
            let (verdict, _) = bench.guard(&syn_ack(&known, server, 7_000, &options));
            assert_eq!((verdict, stage()), (Verdict::Drop, sb_replay::SB_REPLAY_ANSWERED as u8));
            let (seen, packet) = to_server(bench.ingress(&adopt, 0), &known, server);
            assert_eq!((seen.seq, seen.ack), (Seq(known.seq), Seq(7_001)));
            assert_eq!(timestamps(&packet, &seen), Some((66, 0)), "the echo is of another clock");
            assert!(packet.ends_with(REQUEST));
            wait_until("the switch is told", || bench.counter(Adopted) == adopted);
            let owned = bench.flow(&known.flow).expect("an open flow");
            assert_eq!(owned.state, sb_ownership::SB_OWN_OPEN as u8);
            let masquerade = sb_masquerade {
                seq: known.ack.wrapping_sub(7_001),
                tsval: 70_000 - 9,
                stage: sb_replay::SB_REPLAY_DONE as u8,
                theirs: THEIRS,
                ours: OURS,
                reserved: 0,
            };
            assert_eq!(owned.masquerade, masquerade);
        }
        assert_eq!(bench.reserved(), 0);
    });
}

#[test]
fn a_server_behind_an_interface_may_refuse() {
    alone(|| {
        let bench = Bench::new();
        // Nobody listens, or there is a connection of the same ports.
        for (refused, tcp_flags, rcv_nxt) in [(1, flags::RST | flags::ACK, 1000), (2, flags::ACK, 77)] {
            let known = known(false, 40_000);
            let server = away(&bench, &known);
            let adopt = to_us(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
            to_server(bench.ingress(&adopt, 0), &known, server);
            let theirs = of_server(&known.flow, server);
            let said = segment(&theirs, false, (Seq(0), Seq(rcv_nxt)), tcp_flags, None, b"");
            assert_eq!(bench.guard(&inside(&said)).0, Verdict::Drop);
            let (seen, _) = to_server(bench.ingress(&adopt, 0), &known, server);
            assert_eq!((seen.flags, seen.seq), (flags::RST, Seq(rcv_nxt)), "the server forgets it");
            wait_until("the adoption is refused", || bench.counter(RefusedFailed) == refused);
            assert_eq!(bench.flow(&known.flow), None);
        }
    });
}

/// Its packets leave from the VIP, and the flow is known by them alone.
#[test]
fn a_flow_of_a_server_behind_an_interface() {
    alone(|| {
        let bench = Bench::new();
        for v6 in [false, true] {
            let mut known = known(v6, 40_000);
            let server = away(&bench, &known);
            let theirs = of_server(&known.flow, server);
            let (entry, first) = (endpoint(server), known.seq);
            let (seq, ack) = (known.seq, known.ack);
            let away = sb_away {
                server: entry,
                ifindex: LOOPBACK,
                rcv_nxt: seq,
                snd_nxt: ack,
                snd_una: ack,
                ..Default::default()
            };
            let stage = sb_replay::SB_REPLAY_DONE as u8;
            let masquerade = sb_masquerade { seq: 100, tsval: 200, stage, ..Default::default() };
            bench.put(
                &known.flow,
                &sb_owned { away, masquerade, requests: 1, responses: 0, framing: idle(), ..known.owned() },
            );

            let numbers = (Seq(known.ack - 100), Seq(known.seq));
            let said = segment(&theirs, false, numbers, flags::ACK, Some((7, 9)), RESPONSE);
            let (verdict, out) = bench.guard(&inside(&said));
            assert_eq!(verdict, Verdict::Redirect);
            let packet = &out[14..];
            assert_eq!(flow_of(packet, view(packet).tcp, false), Some(known.flow));
            assert!(is_tcp_sealed(packet) && is_sealed(packet));
            let (verdict, out) = bench.egress(&out);
            assert_eq!((verdict, view(&out[14..]).seq), (Verdict::Next, Seq(known.ack)));
            known.ack += RESPONSE.len() as u32;
            let seen = bench.flow(&known.flow).expect("an open flow");
            assert_eq!((seen.responses, seen.away.snd_nxt, seen.away.snd_una), (1, known.ack, ack));

            let ours = segment(
                &known.flow,
                true,
                (Seq(known.seq), Seq(known.ack)),
                flags::ACK,
                Some((67, 207)),
                b"",
            );
            let option =
                known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| flow.origin = first.to_be());
            let forward = known.hand_over_packet(option, &view(&ours), &ours);
            let (seen, packet) = to_server(bench.ingress_summed(&to_us(&forward), 0), &known, server);
            assert_eq!((seen.ack, timestamps(&packet, &seen)), (Seq(known.ack - 100), Some((67, 7))));
            assert_eq!(bench.flow(&known.flow).expect("an open flow").away.snd_una, known.ack);

            // Two clones of one CPU's clock: it goes on from the last TSval.
            let release =
                known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| flow.origin = first.to_be());
            let (seen, _) =
                to_server(bench.ingress(&to_us(&known.hand_over(release, b"")), 0), &known, server);
            assert_eq!((seen.flags, seen.seq), (flags::RST, Seq(known.seq)));
            let released = bench.flow(&known.flow).expect("a released flow");
            assert_eq!((released.state, released.answered), (sb_ownership::SB_OWN_RELEASED as u8, known.ack));
            assert!((207..1_000).contains(&released.tsval), "{}", released.tsval);
        }
    });
}

/// Both FINs and their acknowledgments have passed, or a RST.
#[test]
fn a_connection_to_a_server_behind_an_interface_ends() {
    alone(|| {
        let bench = Bench::new();
        for (port, tcp_flags) in [(40_000, flags::FIN | flags::ACK), (40_001, flags::RST)] {
            let mut known = known(false, port);
            let server = away(&bench, &known);
            let (seq, ack) = (known.seq, known.ack);
            let away = sb_away {
                server: endpoint(server),
                ifindex: LOOPBACK,
                rcv_nxt: seq,
                snd_nxt: ack,
                snd_una: ack,
                ..Default::default()
            };
            bench.put(&known.flow, &sb_owned { away, framing: idle(), ..known.owned() });
            let say = |known: &KnownFlow, tcp_flags| {
                let inner =
                    segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), tcp_flags, None, b"");
                let option =
                    known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| flow.origin = seq.to_be());
                bench.ingress(&to_us(&known.hand_over_packet(option, &view(&inner), &inner)), 0);
            };
            say(&known, tcp_flags);
            if tcp_flags & flags::FIN != 0 {
                assert!(bench.flow(&known.flow).is_some());
                known.seq += 1;
                let closes = flags::FIN | flags::ACK;
                bench.egress(&response(&known.flow, (known.ack, known.seq), closes, false, b""));
                assert!(bench.flow(&known.flow).is_some(), "the client has not heard");
                known.ack += 1;
                say(&known, flags::ACK);
            }
            assert_eq!(bench.flow(&known.flow), None);
            assert_eq!(bench.closed().iter().filter(|closed| closed.flow == known.flow).count(), 1);
        }
    });
}
