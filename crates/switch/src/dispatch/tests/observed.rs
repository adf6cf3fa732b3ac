//! What the dispatcher tells of requests.

use std::time::Duration;

use switchback_wire::facts::{End, Fact};
use switchback_wire::message::ToAgent;
use switchback_wire::packet::{flags, segment};
use switchback_wire::records::Numbered;
use switchback_wire::*;

use super::model::*;
use crate::observe::{Observation, RequestForwarded};
use sb_op::*;
use sb_reason::*;

fn observed() -> World {
    let mut world = World::new();
    world.dispatcher.set_observes(true);
    world
}

/// In a few words: what happened to which text, and to which node or with which status.
fn said(world: &mut World) -> Vec<String> {
    let words = |observation| match observation {
        Observation::Forwarded(RequestForwarded { asked, node, number, chosen, tries }) => {
            let text = String::from_utf8_lossy(&asked.head).into_owned();
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            let queued = asked.queued.as_millis();
            assert_eq!(asked.origin, ORIGIN);
            format!("{path} as {number} to {node} by {chosen:?} after {tries} and {queued} ms")
        }
        Observation::Answered { asked, status, bytes } => {
            assert!(bytes.0 > bytes.1 && bytes.1 > 50, "{bytes:?}");
            format!("{:?} answered {status}", String::from_utf8_lossy(&asked.head[..4]))
        }
        Observation::Abandoned(asked) => format!("{} bytes abandoned", asked.head.len()),
        Observation::Reset { origin, .. } => format!("{} reset", origin == ORIGIN),
        Observation::Resumed { node, number, .. } => format!("resumed as {number} by {node}"),
        Observation::Fact { node, fact } => format!("fact {} of {node}", fact.request),
        Observation::Lost(lost) => format!("{lost} lost"),
    };
    std::mem::take(&mut world.observed).into_iter().map(words).collect()
}

#[test]
fn each_request_is_told_with_where_it_went_and_why() {
    let mut world = observed();
    let mut sent = 0;
    let mut ask = |world: &mut World, path: &str| {
        let out = world.client_packet(&data(sent, 0, &get(path)));
        sent += get(path).len() as u32;
        out
    };
    let adopt = ask(&mut world, "/web/a");
    assert!(said(&mut world).is_empty(), "no node has it yet");
    world.answer(&adopt[0], SB_OP_REFUSED, SB_REASON_QUEUE_FULL);
    let mut adopt = adopt;
    if said(&mut world).is_empty() {
        adopt = world.pass();
    }
    world.now += Duration::from_millis(5);
    let id = world.map[&flow()].node;
    world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    let first = said(&mut world);
    assert!(first[0].starts_with(&format!("/web/a as 1 to {id} by Policy after 1 and ")), "{first:?}");
    ask(&mut world, "/web/b");
    assert_eq!(said(&mut world), [format!("/web/b as 2 to {id} by Connection after 0 and 0 ms")]);
    let release = ask(&mut world, "/img/c");
    world.now += Duration::from_millis(7);
    let adopt = world.answer(&release[0], SB_OP_RELEASED, SB_REASON_NONE);
    world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    let img = world.map[&flow()].node;
    assert_eq!(said(&mut world), [format!("/img/c as 1 to {img} by Policy after 0 and 7 ms")]);
    // What no route takes.
    let release = ask(&mut world, "/none");
    world.answer(&release[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!(said(&mut world), ["\"GET \" answered 404"]);
}

#[test]
fn requests_that_come_to_nothing_are_told() {
    // The client goes while its request waits for a node.
    let mut world = observed();
    let request = get("/web/a");
    for down in [node(1), node(2)] {
        world.report(down, "web", SB_REASON_UNHEALTHY, (0, 10));
    }
    assert!(world.client_packet(&data(0, 0, &request)).is_empty());
    let end = (ORIGIN + request.len(), SERVER);
    world.client_packet(&segment(&flow(), true, end, flags::RST, None, &[]));
    assert_eq!(said(&mut world), [format!("{} bytes abandoned", request.len())]);
    // What is no request.
    let mut world = observed();
    world.client_packet(&data(0, 0, b"BAD\r\n\r\n"));
    assert_eq!(said(&mut world), ["\"BAD\\r\" answered 400"]);
    // The node was in the middle of a response.
    let mut world = observed();
    let adopt = world.client_packet(&data(0, 0, &request));
    world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    let release = world.client_packet(&data(request.len() as u32, 0, &get("/img/a")));
    said(&mut world);
    world.answer(&release[0], SB_OP_RELEASED, SB_REASON_RESPONDING);
    assert_eq!(said(&mut world), ["true reset"]);
}

#[test]
fn nothing_is_told_where_nobody_listens() {
    let mut world = World::new();
    let adopt = world.client_packet(&data(0, 0, &get("/web/a")));
    world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    world.client_packet(&data(get("/web/a").len() as u32, 0, b"BAD\r\n\r\n"));
    assert!(said(&mut world).is_empty());
    world.dispatcher.ask_for_reports();
    assert!(world.flush().iter().all(|hello| u32::from(hello.option.flags) & SB_HELLO_FACTS == 0));
}

#[test]
fn facts_are_acknowledged_by_hello() {
    let mut world = observed();
    let id = world.dispatcher.plan().node_at(node(1)).unwrap();
    let fact = Fact {
        flow: flow(),
        origin: ORIGIN,
        request: 3,
        status: Some(200),
        end: End::Complete,
        bytes: 1,
        head_bytes: 1,
        first_byte: None,
        duration: Duration::ZERO,
    };
    let mut hear = |number, lost| {
        world.dispatcher.on_facts(id, Numbered { epoch: 9, number, lost }, &[fact.to_wire()]);
        // Once more, at once.
        world.dispatcher.on_facts(id, Numbered { epoch: 9, number, lost }, &[fact.to_wire()]);
        world.dispatcher.acknowledge();
        let hello = world.flush();
        let [hello] = &hello[..] else { panic!("{} packets", hello.len()) };
        assert_eq!((hello.op, hello.node), (SB_OP_HELLO, node(1)));
        assert_ne!(u32::from(hello.option.flags) & SB_HELLO_FACTS, 0);
        let Some(ToAgent::Hello { heard: acknowledged, .. }) = ToAgent::read(&hello.option) else { panic!() };
        (acknowledged, said(&mut world))
    };
    let told = format!("fact 3 of {id}");
    assert_eq!(hear(2, 0), ((0, 0), vec![]), "the first is missing");
    assert_eq!(hear(1, 0), ((9, 1), vec![told.clone()]));
    assert_eq!(hear(1, 0), ((9, 1), vec![]), "once more");
    assert_eq!(hear(2, 4), ((9, 2), vec![told, "4 lost".to_owned()]));
    world.dispatcher.ask_for_reports();
    let hello = world.flush();
    let acknowledged = |of| {
        hello
            .iter()
            .find(|sent| (sent.op, sent.node) == (SB_OP_HELLO, of))
            .map(|sent| u32::from_be(sent.option.said::<sb_hello>().taken.number))
    };
    assert_eq!((acknowledged(node(1)), acknowledged(node(2))), (Some(2), Some(0)), "each node its own");
}
