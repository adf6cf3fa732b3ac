//! Explanations compared with the code they explain and with each other.

use std::path::Path;

use proptest::prelude::*;
use switchback_config::{Action, ClusterKey};
use switchback_http::{Progress, parse_head};
use switchback_wire::packet::{flags, segment};
use switchback_wire::{Seq, address_bytes, keys, sb_flow, session};

use super::connection::GAP_MAX;
use super::*;
use crate::automaton::Walked;
use crate::plan::Choice;

const CLUSTER: &str = r#"
[cluster]
key_file = "key"
[[node]]
name = "n1"
address = "192.0.2.21"
[[node]]
name = "n2"
address = "192.0.2.22"
[[pool]]
name = "a"
nodes = ["n1"]
policy = "round-robin"
[[pool]]
name = "b"
nodes = ["n2", "n1"]
policy = "round-robin"
[[service]]
name = "s"
listen = ["192.0.2.100:80"]
[[service.route]]
host = "old.example.com"
redirect = { host = "www.example.com" }
[[service.route]]
host = "*.example.com"
path = "/img/"
pool = "a"
[[service.route]]
method = ["POST", "PUT"]
path = "/img/"
pool = "b"
[[service.route]]
header = { name = "x-beta", value = "1" }
pool = "a"
[[service.route]]
host = "www.example.com"
pool = "b"
"#;

fn explainer() -> Explainer {
    Explainer::new(switchback_config::parse(CLUSTER, Path::new("cluster.toml"), |_| Ok(Vec::new())).unwrap())
}

fn flow() -> sb_flow {
    sb_flow {
        client: address_bytes("192.0.2.1".parse().unwrap()),
        vip: address_bytes("192.0.2.100".parse().unwrap()),
        client_port: 40000u16.to_be(),
        vip_port: 80u16.to_be(),
    }
}

fn request() -> impl Strategy<Value = String> {
    (
        prop::sample::select(&["GET", "HEAD", "POST", "PUT", "get"][..]),
        prop::sample::select(&["/", "/img/", "/img/x?y", "/img", "http://www.example.com/img/", "*"][..]),
        prop::sample::select(&["1.1", "1.0"][..]),
        prop::option::of(prop::sample::select(
            &["www.example.com", "old.example.com:80", "x.example.com", "a"][..],
        )),
        prop::option::of(prop::sample::select(
            &["x-beta: 1", "x-beta: 2", "Connection: close", "Expect: x"][..],
        )),
        prop::sample::select(
            &[
                "\r\n",
                "Content-Length: 3\r\n\r\nabc",
                "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
            ][..],
        ),
    )
        .prop_map(|(method, target, version, host, field, end)| {
            let host = host.map_or(String::new(), |host| format!("Host: {host}\r\n"));
            let field = field.map_or(String::new(), |field| format!("{field}\r\n"));
            format!("{method} {target} HTTP/{version}\r\n{host}{field}{end}")
        })
}

fn explain(explainer: &mut Explainer, text: &str) -> Vec<Explanation> {
    let mut connection = Connection::new(flow(), Seq(7));
    connection.data(explainer, text.as_bytes());
    assert_eq!(connection.finish(explainer), None);
    connection.requests
}

/// Removes what depends on packet boundaries: which heads are alone, and how much of a refused line has come.
fn without_packets(mut explanations: Vec<Explanation>) -> Vec<Explanation> {
    for Explanation { line, outcome, .. } in &mut explanations {
        match outcome {
            Outcome::Forwarded(forwarded) => forwarded.alone = None,
            Outcome::Refused(refusal) => {
                line.clear();
                refusal.place.line.clear();
            }
            Outcome::Answered { .. } | Outcome::Incomplete { .. } => {}
        }
    }
    explanations
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_explanation_is_what_the_plan_chooses(text in request()) {
        let mut explainer = explainer();
        let explained = explain(&mut explainer, &text);
        prop_assert_eq!(explained.len(), 1);
        let Explanation { routes, outcome, .. } = &explained[0];
        let limits = explainer.limits();
        let head = match parse_head(text.as_bytes(), &limits) {
            Ok(Progress::Complete(head)) => head,
            Ok(Progress::Partial) => panic!("{text:?} is whole"),
            Err(reject) => {
                let Outcome::Refused(refusal) = outcome else { panic!("{outcome:?}") };
                prop_assert_eq!(refusal.reject, reject);
                let at = refusal.place.offset as usize;
                prop_assert!(parse_head(&text.as_bytes()[..at], &limits).is_ok());
                prop_assert!(parse_head(&text.as_bytes()[..=at], &limits).is_err());
                return Ok(());
            }
        };
        let taker = routes.iter().position(Option::is_none);
        let action = taker.map(|index| explainer.cluster.services[0].routes[index].action.clone());
        let plan = explainer.dispatcher.plan();
        let route = plan.route(0, &head, flow().client().ip()).unwrap();
        match route.map(|route| plan.choice(0, route)) {
            None => {
                prop_assert_eq!((routes.len(), action), (5, None));
                prop_assert_eq!(outcome, &Outcome::Answered { status: 404, location: None });
            }
            Some(Choice::Redirect(redirect)) => {
                prop_assert_eq!(action, Some(Action::Redirect(redirect.clone())));
                let redirects = matches!(outcome, Outcome::Answered { status: 301, location: Some(_) });
                prop_assert!(redirects, "{:?}", outcome);
            }
            Some(Choice::Split(_) | Choice::Respond(_)) => unreachable!("no route has one"),
            Some(Choice::Pool(pool)) => {
                prop_assert_eq!(action, Some(Action::Pool(pool)));
                let Outcome::Forwarded(forwarded) = outcome else { panic!("{outcome:?}") };
                prop_assert_eq!(forwarded.pool, pool);
                prop_assert_eq!(forwarded.end, Some(text.len() as u64));
                prop_assert!(explainer.cluster.pools[pool].nodes.contains(&forwarded.node));
                if forwarded.express.is_ok() {
                    let walked = explainer.automata[0].as_ref().unwrap().walk(text.as_bytes());
                    prop_assert_eq!(walked, Walked::Pool { pool: pool as u16, last: !head.keep_alive });
                }
            }
        }
    }

    #[test]
    fn packets_in_any_order_are_explained_like_the_stream(
        requests in prop::collection::vec(request(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        start in any::<u32>(),
    ) {
        let text = requests.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let packets = cuts.windows(2).map(|cut| {
            let seq = start.wrapping_add(cut[0] as u32);
            let data = &text.as_bytes()[cut[0]..cut[1]];
            HeldPacket::new(&segment(&flow(), true, (Seq(seq), Seq(0)), flags::ACK, None, data)).unwrap()
        });
        let packets: Vec<HeldPacket> = packets.collect();
        let mut other = explainer();
        let mut connection = Connection::new(flow(), Seq(start));
        // Some packets in any order, then all in order.
        for packet in order.iter().map(|index| index.get(&packets)).chain(&packets) {
            connection.packet(&mut other, packet);
        }
        prop_assert_eq!(connection.finish(&other), None);
        let expected = explain(&mut explainer(), &text);
        prop_assert_eq!(without_packets(connection.requests), without_packets(expected));
    }
}

#[test]
fn a_gap_is_named_and_a_handoff_goes_on_behind_it() {
    let (one, two) = ("GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let packet = |seq, data: &str| {
        HeldPacket::new(&segment(&flow(), true, (seq, Seq(0)), flags::ACK, None, data.as_bytes())).unwrap()
    };
    let mut explainer = explainer();
    for handoff in [false, true] {
        let mut connection = Connection::new(flow(), Seq(0));
        connection.packet(&mut explainer, &packet(Seq(0), one));
        if handoff {
            connection.begins_request(Seq(1000));
        }
        connection.packet(&mut explainer, &packet(Seq(1000), two));
        let missing = connection.finish(&explainer);
        let offsets: Vec<u64> = connection.requests.iter().map(|request| request.offset).collect();
        if handoff {
            assert_eq!((missing, offsets), (None, vec![0, 1000]));
        } else {
            assert_eq!((missing, offsets), (Some(one.len() as u64), vec![0]));
        }
    }
}

#[test]
fn a_gap_that_grows_too_long_ends_the_reading() {
    let text = "PUT / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let packet = |seq: usize, data: &[u8]| {
        HeldPacket::new(&segment(&flow(), true, (Seq(seq as u32), Seq(0)), flags::ACK, None, data)).unwrap()
    };
    let (mut explainer, mut connection) = (explainer(), Connection::new(flow(), Seq(0)));
    connection.packet(&mut explainer, &packet(0, text.as_bytes()));
    let piece = [b'x'; 60_000];
    for index in 0..=GAP_MAX / piece.len() {
        connection.packet(&mut explainer, &packet(text.len() + 3 + index * piece.len(), &piece));
    }
    connection.packet(&mut explainer, &packet(text.len(), b"f\r\n"));
    assert_eq!(connection.finish(&explainer), Some(text.len() as u64));
}

#[test]
fn a_session_is_explained_by_its_cookie() {
    let persistence = "policy = \"round-robin\"\n[pool.persistence]\nmode = \"insert\"\ncookie = \"lb\"\n";
    let (before, after) = CLUSTER.split_at(CLUSTER.find("name = \"b\"").unwrap());
    let text = format!("{before}{}", after.replacen("policy = \"round-robin\"\n", persistence, 1));
    let key = keys::session_key(&[7; 32]);
    let codes = session::node_codes(&key, "b", &["n2", "n1"]);
    let value = |code| String::from_utf8(session::inserted_value(&key, "b", code).to_vec()).unwrap();
    let [second, first] = [codes[0], codes[1]].map(|code| format!("Cookie: lb={}\r\n", value(code)));
    let left = format!("Cookie: lb={}\r\n", value(session::node_codes(&key, "b", &["n9"])[0]));
    let ask = |field: &str| format!("GET / HTTP/1.1\r\nHost: www.example.com\r\n{field}\r\n");
    let of_a = "GET / HTTP/1.1\r\nHost: x\r\nX-Beta: 1\r\n\r\n";
    let requests = [
        ask(&first),
        of_a.to_owned(),
        ask(&second),
        ask("Cookie: lb=x\r\n"),
        ask(""),
        ask(&first),
        ask(&left),
    ];
    let expected = [
        (Some((Names::Node(0), 0)), Some((0, Flow::New))),
        (None, Some((0, Flow::Anew))),
        (Some((Names::Node(1), 0)), Some((1, Flow::Moves(0)))),
        (Some((Names::Nothing, 1)), Some((1, Flow::Stays))),
        (Some((Names::Nothing, 0)), Some((1, Flow::Stays))),
        (Some((Names::Node(0), 0)), Some((0, Flow::Moves(1)))),
    ];
    for (strict, drained) in [(false, false), (false, true), (true, true)] {
        let mut text = text.clone();
        if strict {
            text = text.replace("cookie = \"lb\"", "cookie = \"lb\"\nsticky = \"strict\"");
        }
        if drained {
            text = text.replacen("name = \"n1\"", "name = \"n1\"\ndrain = true", 1);
        }
        let made = |_: &Path| Ok(vec![ClusterKey::from_bytes([7; 32])]);
        let cluster = switchback_config::parse(&text, Path::new("cluster.toml"), made).unwrap();
        let mut explainer = Explainer::new(cluster);
        let all = if drained { requests[0].clone() } else { requests.concat() };
        let explained = explain(&mut explainer, &all);
        let found = explained.iter().map(|one| {
            let session = one.session.map(|session| (session.names, session.ignored));
            let forwarded = match &one.outcome {
                Outcome::Forwarded(forwarded) => {
                    assert_eq!(forwarded.express == Err(Slow::Session), session.is_some());
                    Some((forwarded.node, forwarded.flow))
                }
                Outcome::Answered { status: 503, .. } => None,
                other => panic!("{other:?}"),
            };
            (session, forwarded)
        });
        let found: Vec<_> = found.collect();
        match (strict, drained) {
            (false, false) => {
                assert_eq!(found[..6], expected);
                assert_eq!(found[6].0, Some((Names::Gone, 0)));
            }
            (false, true) => assert_eq!(found, [(Some((Names::Node(0), 0)), Some((1, Flow::New)))]),
            _ => assert_eq!(found, [(Some((Names::Node(0), 0)), None)]),
        }
        assert!(explained.iter().all(|one| one.session.is_none_or(|session| session.readable)));
    }
}

/// A ClientHello of TLS 1.2 that resumes a session.
fn hello(ticket: &[u8]) -> Vec<u8> {
    let vector = |len: usize, data: &[u8]| [&(data.len() as u64).to_be_bytes()[8 - len..], data].concat();
    let extension = [&[0, 35][..], &vector(2, ticket)].concat();
    let body = [&[3, 3][..], &[9; 32], &[0], &vector(2, &[0xc0, 0x2f]), &[1, 0], &vector(2, &extension)];
    let message = [&[1][..], &vector(3, &body.concat())].concat();
    [&[22, 3, 1][..], &vector(2, &message)].concat()
}

#[test]
fn a_ticket_leads_to_the_node_that_it_names() {
    let tls = "listen = [\"192.0.2.100:80\"]\n[service.tls]\nserver = \"127.0.0.1:80\"\n\
               [[service.tls.certificate]]\nchain = \"a\"\nkey = \"b\"\n[[service.route]]\npool = \"b\"\n";
    let begins = CLUSTER.split("listen = ").next().unwrap();
    let key = || ClusterKey::from_bytes([7; 32]);
    let tickets = switchback_hello::Tickets::new(&[keys::ticket_name_key(&[7; 32])], ["n1", "n2", "n3"]);
    for (model, named, session, node) in [
        ("session", Some("n1"), Some(Names::Node(0)), 0),
        ("session", Some("n2"), Some(Names::Node(1)), 1),
        ("session", Some("n3"), Some(Names::Gone), 1),
        ("session", None, Some(Names::Nothing), 1),
        ("round-robin", Some("n1"), None, 1),
    ] {
        let text = format!("{begins}{}", tls.replace("server =", &format!("sessions = {model:?}\nserver =")));
        let cluster =
            switchback_config::parse(&text, Path::new("cluster.toml"), |_| Ok(vec![key()])).unwrap();
        let mut explainer = Explainer::new(cluster);
        let mut connection = Connection::new(flow(), Seq(0));
        let ticket = named.map_or(b"foreign".to_vec(), |name| tickets.name(name, b"sealed").unwrap());
        connection.data(&mut explainer, &hello(&ticket));
        let explained = connection.hello.unwrap();
        assert_eq!(explained.session, session, "{model} {named:?}");
        let spoken = Spoken::Agreed(switchback_config::Protocol::Http11);
        let expected = Greeting::To { route: 0, pool: 1, node, spoken };
        assert_eq!(explained.outcome, expected, "{model} {named:?}");
    }
}
