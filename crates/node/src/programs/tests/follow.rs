//! The framing automaton in C compared with the one in Rust, over random responses in random packets through egress.

use std::io::Write;

use switchback_http::framing::generated::{SB_FRAMING_HEAD, SB_FRAMING_LOST, sb_framing};
use switchback_http::framing::{Followed, responses};
use switchback_wire::facts::{End, Fact};
use switchback_wire::packet::flags;
use switchback_wire::{
    NodeCounter, SB_HEADS, Seq, address_bytes, sb_ended, sb_flow, sb_owned, sb_ownership, sb_session,
};

use super::bench::*;
use super::frames::*;
use super::wire::{Client, Wire};

const STREAMS: usize = 1500;

fn is_head(flow: &sb_owned, number: u16) -> bool {
    flow.heads[usize::from(number) % SB_HEADS as usize / 64] >> (number % 64) & 1 == 1
}

fn lose_track(flow: &mut sb_owned) {
    let sb_framing { allowed, status, .. } = flow.framing.into();
    flow.framing = sb_framing { state: SB_FRAMING_LOST, allowed, status, ..Default::default() }.into();
}

/// A whole response: number of the request, status, bytes, bytes of the head.
type ResponseFact = (u16, u16, usize, usize);

/// The expected fact about a response, from its text.
fn expected_fact(number: u16, text: &[u8]) -> ResponseFact {
    let mut head = 0;
    loop {
        let status =
            text[head + 9..head + 12].iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
        let ends = |at: &usize| text[..*at].ends_with(b"\n\n") || text[..*at].ends_with(b"\n\r\n");
        head = (head + 14..=text.len()).find(ends).expect("a whole response has a head");
        if status >= 200 {
            return (number, status, text.len(), head);
        }
    }
}

/// Model of `bpf/follow.h` for a packet with data; `text` is the sent part of the current response.
fn follow(flow: &mut sb_owned, seq: u32, data: &[u8], text: &mut Vec<u8>) -> Vec<ResponseFact> {
    let mut facts = Vec::new();
    follow_into(flow, seq, data, text, &mut facts);
    facts
}

/// Notes a response that has ended; the result is the one before, of which the client has acknowledged nothing here.
fn replace_ended(ended: &mut sb_ended, fact: ResponseFact, end: u32) -> Option<ResponseFact> {
    let (number, status, bytes, head_bytes) = fact;
    let new = sb_ended {
        bytes: bytes as u64,
        end,
        head_bytes: head_bytes as u32,
        number,
        status,
        ..Default::default()
    };
    let before = std::mem::replace(ended, new);
    (before.status != 0).then_some((
        before.number,
        before.status,
        before.bytes as usize,
        before.head_bytes as usize,
    ))
}

fn follow_into(
    flow: &mut sb_owned,
    seq: u32,
    data: &[u8],
    text: &mut Vec<u8>,
    facts: &mut Vec<ResponseFact>,
) {
    let seen = flow.followed.wrapping_sub(seq) as i32;
    if seen >= data.len() as i32 {
        return;
    }
    if flow.framing.is_lost() {
        flow.followed = seq.wrapping_add(data.len() as u32);
        return;
    }
    if seen < 0 {
        return lose_track(flow);
    }
    flow.followed = seq.wrapping_add(data.len() as u32);
    let mut rest = &data[seen as usize..];
    while !rest.is_empty() {
        if flow.framing.is_between_messages() {
            if !(1..=SB_HEADS as u16).contains(&flow.requests.wrapping_sub(flow.responses)) {
                return lose_track(flow);
            }
            flow.framing = sb_framing { state: SB_FRAMING_HEAD, ..flow.framing.into() }.into();
        }
        let number = flow.responses.wrapping_add(1);
        let head = is_head(flow, number);
        match responses().follow(&mut flow.framing, rest, head) {
            Followed::More => return text.extend_from_slice(rest),
            Followed::Ends(len) => {
                flow.responses = number;
                text.extend_from_slice(&rest[..len]);
                rest = &rest[len..];
                let end = flow.followed.wrapping_sub(rest.len() as u32);
                facts.extend(replace_ended(&mut flow.ended, expected_fact(number, text), end));
                text.clear();
            }
            Followed::Rejected(..) | Followed::Lost => return lose_track(flow),
        }
    }
}

fn chunked(random: &mut Random, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let size = 1 + random.below(data.len() + 1);
    for chunk in data.chunks(size) {
        let zeros = "0".repeat(random.pick(&[0, 0, 0, 1, 9]));
        let extension = random.pick(&["", "", ";a", " ; a=\"b\"", "\t;x"]);
        out.extend_from_slice(format!("{zeros}{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(
        random.pick(&["0\r\n\r\n", "00;a=b\r\n\r\n", "0\r\nDigest: x\r\na:\r\n\r\n"]).as_bytes(),
    );
    out
}

/// A response, usually a valid one.
fn one_response(random: &mut Random, to_head: bool) -> Vec<u8> {
    let most = random.pick(&[1, 30, 300, 3000]);
    let data: Vec<u8> = (0..random.below(most)).map(|_| random.pick(b"\r\n0a5;H\0\xff")).collect();
    let status = random.pick(&[200, 200, 200, 204, 206, 304, 404, 500]);
    let interim = random.pick(&[
        "",
        "",
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103\r\nContent-Length: 3\r\n\r\n",
    ]);
    let noise = random.pick(&["", "Server: x\r\n", "Content-Type:\r\nETag: \"\x01\"\r\n", "c: \r\nt:d\r\n"]);
    let framing = match random.below(16) {
        0 => "",
        1 => "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        2..8 => "transfer-encoding:\tCHUNKED \r\n",
        _ => "Content-Length: ",
    };
    let minor = random.pick(&[1, 1, 0]);
    let mut out = format!("{interim}HTTP/1.{minor} {status} OK\r\n{noise}{framing}").into_bytes();
    if framing == "Content-Length: " {
        out.extend_from_slice(format!("{}\r\n", data.len()).as_bytes());
    }
    out.extend_from_slice(format!("{noise}\r\n").as_bytes());
    if !to_head && status != 204 && status != 304 {
        let body = if framing.starts_with("transfer") { chunked(random, &data) } else { data };
        out.extend(body);
    }
    out
}

/// The server's stream: a response to each request, perhaps one more, perhaps with an error.
fn stream(random: &mut Random, flow: &sb_owned) -> Vec<u8> {
    let requests = flow.requests.wrapping_sub(flow.responses) + u16::from(random.one_in(8));
    let mut out = Vec::new();
    for i in 1..=requests {
        let head = is_head(flow, flow.responses.wrapping_add(i));
        out.extend(one_response(random, head));
    }
    if random.one_in(4) && !out.is_empty() {
        let (at, byte) = (random.below(out.len()), random.pick(b"\r\n;:0aG \0\xff"));
        match random.below(3) {
            0 => out[at] = byte,
            1 => out.insert(at, byte),
            _ => drop(out.remove(at)),
        }
    }
    out
}

/// Clears what the model does not predict.
fn without_times(owned: sb_owned) -> sb_owned {
    let ended = sb_ended { duration_us: 0, first_byte_us: 0, ..owned.ended };
    sb_owned { began: 0, sent: 0, turn_us: 0, first_byte_us: 0, head_bytes: 0, ended, ..owned }
}

/// The range of the stream in the next packet after `sent` bytes: usually the next one, sometimes with a
/// retransmission, seldom after a gap.
fn next_packet(random: &mut Random, stream: &[u8], sent: usize) -> std::ops::Range<usize> {
    let start = match random.below(256) {
        0 => (sent + 1 + random.below(9)).min(stream.len() - 1),
        1..64 => sent - random.below(sent.min(200) + 1),
        _ => sent,
    };
    let most = random.pick(&[1, 2, 10, 100, 1400]);
    let len = 1 + random.below(most);
    start..(start + len).min(stream.len())
}

#[test]
fn the_program_follows_responses_as_the_table_does() {
    alone(|| {
        let bench = Bench::new();
        bench.want_facts(true);
        let seed = seed();
        let (mut whole, mut lost, mut packets) = (0, 0, 0);
        for number in 0..STREAMS {
            let random = &mut Random(seed.wrapping_add(number as u64));
            let key: sb_flow = flow(random.one_in(2), 40_000, PORT);
            let responses = random.next() as u16;
            let start = random.next() as u32;
            let mut expected = sb_owned {
                followed: start,
                responses,
                requests: responses.wrapping_add(random.below(8) as u16),
                heads: std::array::from_fn(|_| random.next() & random.next() & random.next()),
                state: sb_ownership::SB_OWN_OPEN as u8,
                framing: idle(),
                switch_address: address_bytes(address(SWITCHES[0])),
                ..Default::default()
            };
            bench.put(&key, &expected);
            let stream = stream(random, &expected);
            let (mut sent, mut text) = (0, Vec::new());
            while sent < stream.len() {
                let part = next_packet(random, &stream, sent);
                let (seq, data) = (start.wrapping_add(part.start as u32), &stream[part.clone()]);
                let what = format!(
                    "SWITCHBACK_FUZZ_SEED={seed}, stream {number}: {expected:?} and {part:?} of {:?}",
                    String::from_utf8_lossy(&stream)
                );
                let facts = follow(&mut expected, seq, data, &mut text);
                let frame = response(&key, (seq, 1), flags::ACK, random.one_in(2), data);
                assert_eq!(bench.egress(&frame), (Verdict::Next, frame), "{what}");
                let followed = bench.flow(&key).map(without_times);
                assert_eq!(followed, Some(expected), "{what}");
                let told = bench.facts().into_iter().map(|seen| {
                    let fact = Fact::from_wire(&seen.fact);
                    assert_eq!((seen.by.switch_address, fact.flow), (expected.switch_address, key), "{what}");
                    assert_eq!((fact.origin, fact.end), (Seq(expected.origin), End::Complete), "{what}");
                    (fact.request, fact.status.unwrap_or(0), fact.bytes as usize, fact.head_bytes as usize)
                });
                assert_eq!(told.collect::<Vec<_>>(), facts, "{what}");
                sent = sent.max(part.end);
                packets += 1;
            }
            whole += usize::from(expected.responses == expected.requests);
            lost += usize::from(expected.framing.is_lost());
        }
        println!(
            "{packets} packets; {whole} of {STREAMS} streams were followed to their end, {lost} were lost"
        );
        assert!(whole > STREAMS / 4 && lost > STREAMS / 10, "{whole} were whole, {lost} lost");
    });
}

/// A flow whose server has sent half of a response, which the client has; and the node's entry before that.
fn half_answered(wire: &Wire) -> (Client<'_>, sb_owned) {
    let mut client = Client::new(wire, flow(false, 50_000, PORT), 1000);
    client.adopt(sb_session::default(), REQUEST);
    client.server().set_nodelay(true).expect("a socket can be");
    let before = wire.bench.flow(&client.known.flow).expect("an adopted flow");
    client.server().write_all(&RESPONSE[..10]).expect("there is room");
    assert_eq!((client.look(|| false), client.has()), (1, 10));
    (client, before)
}

#[test]
fn data_ahead_of_the_program_is_retransmitted() {
    alone(|| {
        let wire = Wire::new();
        let (mut client, before) = half_answered(&wire);
        let flow = client.known.flow;
        let after = wire.bench.flow(&flow).expect("it stays");
        // The program has not seen the first half yet.
        wire.bench.put(&flow, &before);
        client.server().write_all(&RESPONSE[10..]).expect("there is room");
        assert_eq!((client.look(|| false), wire.bench.counter(NodeCounter::DropOvertaking)), (0, 1));
        wire.bench.put(&flow, &after);
        client.acknowledge();
        client.wait_for(RESPONSE.len());
        assert_eq!(client.stream(), RESPONSE);
        assert_eq!(wire.bench.flow(&flow).expect("it stays").responses, 1);
        assert_eq!(wire.bench.counter(NodeCounter::LostTrack), 0);
    });
}

#[test]
fn unseen_data_loses_track() {
    alone(|| {
        let wire = Wire::new();
        let (mut client, before) = half_answered(&wire);
        client.acknowledge();
        wire.bench.put(&client.known.flow, &before);
        client.server().write_all(&RESPONSE[10..]).expect("there is room");
        client.wait_for(RESPONSE.len());
        let counters = [NodeCounter::LostTrack, NodeCounter::DropOvertaking];
        assert_eq!(counters.map(|counter| wire.bench.counter(counter)), [1, 0]);
    });
}

/// A flow whose client has a response that it has not acknowledged; its switch wants facts.
fn answered(wire: &Wire) -> Client<'_> {
    wire.bench.want_facts(true);
    let mut client = Client::new(wire, flow(false, 50_001, PORT), 1000);
    client.adopt(sb_session::default(), REQUEST);
    client.server().write_all(RESPONSE).expect("there is room");
    assert_eq!((client.look(|| false), client.has()), (1, RESPONSE.len()));
    client
}

#[test]
fn a_response_is_told_of_when_its_client_has_it() {
    alone(|| {
        let wire = Wire::new();
        let client = answered(&wire);
        assert_eq!(wire.bench.facts().len(), 0, "it may be lost on its way");
        let before = wire.bench.counter(NodeCounter::Acknowledged);
        client.acknowledge();
        let told: Vec<Fact> = wire.bench.facts().iter().map(|seen| Fact::from_wire(&seen.fact)).collect();
        let said = told.iter().map(|fact| (fact.request, fact.status, fact.bytes, fact.end));
        assert_eq!(said.collect::<Vec<_>>(), [(1, Some(200), RESPONSE.len() as u64, End::Complete)]);
        assert_eq!(wire.bench.counter(NodeCounter::Acknowledged), before + 1);
        client.acknowledge();
        assert_eq!(wire.bench.facts().len(), 0, "it is told of once");
        assert_eq!(wire.bench.counter(NodeCounter::Acknowledged), before + 1, "nothing more");
    });
}

#[test]
fn a_reset_without_an_acknowledgment_acknowledges_nothing() {
    alone(|| {
        let wire = Wire::new();
        let client = answered(&wire);
        client.send_bare(flags::RST);
        wait_until("the flow has ended", || wire.bench.flow(&client.known.flow).is_none());
        assert_eq!(wire.bench.facts().len(), 0);
        let statuses: Vec<u16> = wire.bench.closed().iter().map(|closed| closed.owned.ended.status).collect();
        assert_eq!(statuses, [200], "the agent tells of it");
        assert_eq!(wire.bench.counter(NodeCounter::Acknowledged), 0);
    });
}
