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
    let (verdict, out) = bench.ingress(&to_us(&known.hand_over_packet(option, &view(inner), inner)), 0);
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
            let (verdict, out) = bench.ingress(&to_us(&message), 0);
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
        let (verdict, out) = bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0);
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
