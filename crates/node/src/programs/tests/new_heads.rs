//! Adoptions with another head than the client has sent: its end has the client's number, its beginning another one.

use std::io::Write;

use NodeCounter::*;
use sb_op::*;
use switchback_wire::generation::Generation;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

/// The client's first sequence number.
const FIRST: u32 = 1000;
const LEN: u32 = REQUEST.len() as u32;
const SHORTER: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const LONGER: &[u8] = b"GET /a/longer/place HTTP/1.1\r\nHost: another.example\r\n\r\n";

fn known(v6: bool, port: u16) -> KnownFlow {
    KnownFlow { flow: flow(v6, port, PORT), seq: FIRST, ack: 5000, socket: None }
}

/// The option of a request that begins at `begins`, whose head is longer by `grown` in the packet.
fn option(known: &KnownFlow, op: sb_op, (begins, requests): (u32, u16), grown: i16) -> sb_option {
    let said = known.option(op).with(|said: &mut sb_handover| {
        said.flow.origin = FIRST.to_be();
        said.flow.next = (begins + LEN).to_be();
        said.flow.requests = requests.to_be();
        said.flow.heads = (u32::from(grown.cast_unsigned()) << 16).to_be();
        said.boundary = (LEN as u16).to_be();
    });
    let version = if grown == 0 { SB_VERSION_USUAL } else { SB_VERSION_GROWN };
    sb_option { version, ..said }
}

fn adopt(bench: &Bench, known: &mut KnownFlow, head: &[u8]) {
    let grown = head.len() as i16 - LEN as i16;
    let adopt = known.hand_over(option(known, SB_OP_ADOPT, (known.seq, 1), grown), head);
    known.socket = Some(bench.adopt(&adopt, &known.flow));
    known.seq += LEN;
    known.reads(head);
}

fn comes(bench: &Bench, counter: NodeCounter, packet: &[u8]) {
    let before = bench.counter(counter);
    bench.send(packet);
    wait_until("the packet comes", || bench.counter(counter) > before);
}

/// What follows a head has the same number for client and server, whatever the head's length; and what the client sends of
/// its own head again is old.
fn check(bench: &Bench) {
    let mut port = 50_000;
    for (v6, head) in [(false, SHORTER), (false, LONGER), (true, SHORTER), (true, LONGER)] {
        port += 1;
        let mut known = known(v6, port);
        adopt(bench, &mut known, head);
        let owned = bench.flow(&known.flow).expect("an adopted flow");
        assert_eq!((owned.asked, owned.next, owned.read), (FIRST, FIRST + LEN, FIRST + LEN));

        let again = KnownFlow { seq: FIRST, socket: None, ..known };
        let option = |requests| option(&again, SB_OP_FORWARD, (FIRST, requests), 0);
        comes(bench, Forwarded, &again.hand_over(option(1), REQUEST));
        known.reads(b"");

        // The next request comes as it is.
        let next = sb_option {
            flags: SB_HANDOVER_REQUEST as u8,
            ..self::option(&known, SB_OP_FORWARD, (known.seq, 2), 0)
        };
        comes(bench, Forwarded, &known.hand_over(next, REQUEST));
        known.reads(REQUEST);
        assert_eq!(bench.flow(&known.flow).map(|owned| (owned.asked, owned.grown)), Some((FIRST + LEN, 0)));
    }
}

#[test]
fn a_server_gets_another_head_from_the_kernel() {
    alone(|| check(&Bench::new()));
}

#[test]
fn a_server_gets_another_head_by_replay() {
    alone(|| {
        ip("-6 route add local 2001:db8:1::/64 dev lo");
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.replay();
        check(&bench);
    });
}

/// A longer head begins before what the flow was released at.
#[test]
fn the_node_that_has_released_a_flow_takes_it_with_a_longer_head() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        let mut known = known(false, 50_000);
        adopt(&bench, &mut known, LONGER);
        known.socket.as_mut().expect("an adopted flow").write_all(RESPONSE).expect("there is room");
        known.ack += RESPONSE.len() as u32;
        let sent = known.ack;
        wait_until("the response has left", || {
            bench.flow(&known.flow).is_some_and(|owned| owned.followed == sent && owned.responses == 1)
        });
        let release = known.option(SB_OP_RELEASE).with(|said: &mut sb_question| {
            said.flow.origin = FIRST.to_be();
            said.flow.next = known.seq.to_be();
            said.next_generation = Generation::first(0).to_be();
        });
        comes(&bench, Released, &known.hand_over(release, b""));
        adopt(&bench, &mut known, LONGER);
    });
}

/// The switch has died before the rest of a head has come, and another one brings what its client has sent: nothing of that
/// takes the place of the rest.
#[test]
fn nothing_of_the_clients_takes_the_place_of_the_rest_of_a_new_head() {
    const AHEAD: usize = 20;
    alone(|| {
        let bench = Bench::new();
        // The first packet ends before the client's head begins, within it, or where that ends.
        for (number, rest) in [LEN as usize + 8, LEN as usize - 8, 1].into_iter().enumerate() {
            let head = [&LONGER[..LONGER.len() - 4], b"\r\nCookie: a=b; c=d; e=f\r\n\r\n"].concat();
            let grown = head.len() as i16 - LEN as i16;
            let (begins, ends) = head.split_at(head.len() - rest);
            let mut known = known(false, 50_000 + number as u16);
            let adopt = known.hand_over(option(&known, SB_OP_ADOPT, (FIRST, 1), grown), begins);
            known.socket = Some(bench.adopt(&adopt, &known.flow));
            known.reads(begins);

            let client = KnownFlow { seq: FIRST, socket: None, ..known };
            let said = option(&client, SB_OP_FORWARD, (FIRST, 1), 0);
            let unread = said.with(|said: &mut sb_handover| said.boundary = 0);
            let flags = SB_HANDOVER_REQUEST as u8;
            for option in [unread, sb_option { flags, ..unread }] {
                for data in [REQUEST, &REQUEST[..AHEAD]] {
                    let (verdict, _) = bench.ingress(&to_us(&client.hand_over(option, data)), 0);
                    let is_old = known_end(&known, begins, grown) >= FIRST + data.len() as u32;
                    assert_eq!(verdict == Verdict::Pass, is_old, "{rest} {:?}", option.flags);
                    bench.send(&client.hand_over(option, data));
                }
            }
            known.reads(b"");

            let behind = KnownFlow { seq: FIRST + LEN - rest as u32, socket: None, ..known };
            let flags = SB_HANDOVER_READ as u8;
            comes(&bench, Forwarded, &behind.hand_over(sb_option { flags, ..unread }, ends));
            known.reads(ends);
        }
    });
}

/// Where the server's data ends that begins with these bytes of a new head.
fn known_end(known: &KnownFlow, begins: &[u8], grown: i16) -> u32 {
    known.seq + begins.len() as u32 - grown as u32
}

/// The answer has the number by which the switch has asked.
#[test]
fn a_copy_is_answered_with_the_clients_number() {
    alone(|| {
        let bench = Bench::new();
        let mut known = known(false, 50_000);
        adopt(&bench, &mut known, LONGER);
        let copy = KnownFlow { seq: FIRST, socket: None, ..known };
        let grown = LONGER.len() as i16 - LEN as i16;
        let copy = copy.hand_over(option(&copy, SB_OP_ADOPT, (FIRST, 1), grown), LONGER);
        let (verdict, out) = bench.ingress(&to_us(&copy), 0);
        let answer = Handoff::parse(&out).expect("an answer");
        assert_eq!((verdict, answer.option.op), (Verdict::Redirect, SB_OP_ADOPTED as u8));
        assert_eq!(answer.view.seq, Seq(FIRST));
    });
}
