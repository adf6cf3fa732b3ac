//! Requests whose pool wants its sessions to stay with their nodes.

mod away;

use std::time::Duration;

use switchback_flow::entry::Entry;
use switchback_wire::packet::TcpView;
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A configuration with a pool for each way to know a session, of the same nodes, and one that knows none.
fn config(more: &str) -> String {
    let mut text = "[cluster]\nkey_file = \"key\"\n".to_owned();
    for (index, name) in NODES.iter().enumerate() {
        text += &format!("[[node]]\nname = \"{name}\"\naddress = \"{}\"\n", node(index as u8 + 1));
    }
    for (pool, persistence) in [
        ("web", "[pool.persistence]\nmode = \"rewrite\"\ncookie = \"PHPSESSID\""),
        ("shop", "[pool.persistence]\nmode = \"insert\"\ncookie = \"lb\""),
        ("user", "[pool.persistence]\nmode = \"hash\"\nhash = \"header x-user\""),
        ("plain", ""),
    ] {
        let more = if persistence.is_empty() { "" } else { more };
        text += &format!(
            "[[pool]]\nname = \"{pool}\"\nnodes = [\"n1\", \"n2\", \"n3\"]\npolicy = \"round-robin\"\n\
             {persistence}\n{more}\n"
        );
    }
    text += "[[service]]\nname = \"s\"\nlisten = [\"192.0.2.100:80\"]\n";
    for pool in ["web", "shop", "user", "plain"] {
        text += &format!("[[service.route]]\npath = \"/{pool}/\"\npool = \"{pool}\"\n");
    }
    text
}

const STRICT: &str = "sticky = \"strict\"";

fn key(byte: u8) -> sb_key {
    keys::session_key(&[byte; 32])
}

fn codes(byte: u8, pool: &str, last: u8) -> sb_session {
    let pools = ["web", "shop"];
    let place = pools.iter().position(|name| *name == pool).unwrap();
    let node = session::node_codes(&key(byte), pool, &NODES)[usize::from(last) - 1];
    sb_session::new(session::pool_codes(&key(byte), &pools)[place], Some(node))
}

/// As nodes set them: the cookie of a session with the node `n<last>`.
fn cookie(byte: u8, pool: &str, last: u8) -> String {
    let codes = codes(byte, pool, last);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match pool {
        "web" => format!("{}D=abc", text(&session::rewritten(codes.pool, codes.node))),
        _ => format!("lb={}", text(&session::inserted_value(&key(byte), pool, codes.node))),
    }
}

fn request(pool: &str, fields: &str) -> Vec<u8> {
    format!("GET /{pool}/a HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn with(pool: &str, cookie: &str) -> Vec<u8> {
    request(pool, &format!("Cookie: a=b; {cookie}; c=d\r\n"))
}

/// A connection's requests one after the other, all of them answered.
struct Client {
    world: World,
    sent: u32,
}

/// What the switch did with a request: the operations, and the last one's node and session.
type Done = (Vec<sb_op>, NodeAddress, sb_session);

impl Client {
    fn new(config: &str, keys: &[u8]) -> Self {
        Client { world: World::with_keys(config, keys), sent: 0 }
    }

    fn begin(&mut self, request: &[u8]) -> Vec<ToNode> {
        let sent = self.world.client_packet(&data(self.sent, 100, request));
        self.sent += request.len() as u32;
        sent
    }

    fn ask(&mut self, request: &[u8]) -> Done {
        let mut sent = self.begin(request);
        let mut ops = Vec::new();
        loop {
            let [one] = &sent[..] else { panic!("one packet, not {sent:?}") };
            let one = one.clone();
            ops.push(one.op);
            sent = match one.op {
                SB_OP_RELEASE => self.world.answer(&one, SB_OP_RELEASED, SB_REASON_NONE),
                SB_OP_ADOPT => self.world.answer(&one, SB_OP_ADOPTED, SB_REASON_NONE),
                _ => Vec::new(),
            };
            if one.op != SB_OP_RELEASE {
                assert!(sent.is_empty(), "{sent:?}");
                assert_eq!(one.data(), request);
                return (ops, one.node, one.option.flow_state().session);
            }
        }
    }

    /// Kept, moved, refused, ignored.
    fn counts(&self) -> [u64; 4] {
        let stats = &self.world.dispatcher.stats;
        [stats.sessions_kept, stats.sessions_moved, stats.sessions_refused, stats.cookies_ignored]
    }

    fn status(&self) -> Option<String> {
        let packet = self.world.to_client.last()?;
        let view = TcpView::parse(packet)?;
        let text = String::from_utf8_lossy(&packet[view.data..view.end]).into_owned();
        text.strip_prefix("HTTP/1.1 ").map(|rest| rest[..3].to_owned())
    }

    fn drain(&mut self, last: u8, on: bool) {
        assert!(self.world.dispatcher.order_drain(NODES[usize::from(last) - 1], on));
        self.world.flush();
    }
}

fn new() -> Client {
    Client::new(&config(""), &[7])
}

#[test]
fn a_session_finds_its_node_on_any_connection() {
    for pool in ["web", "shop"] {
        for last in [3, 1, 2] {
            let mut client = new();
            let done = client.ask(&with(pool, &cookie(7, pool, last)));
            assert_eq!(done, (vec![SB_OP_ADOPT], node(last), codes(7, pool, last)));
            let done = client.ask(&with(pool, &cookie(7, pool, last)));
            assert_eq!(done, (vec![SB_OP_FORWARD], node(last), codes(7, pool, last)));
            assert_eq!(client.world.map[&flow()].mark.session, codes(7, pool, last));
            // Another session on the same connection.
            let other = last % 3 + 1;
            let done = client.ask(&with(pool, &cookie(7, pool, other)));
            assert_eq!(done, (vec![SB_OP_RELEASE, SB_OP_ADOPT], node(other), codes(7, pool, other)));
            assert_eq!(client.counts(), [3, 0, 0, 0]);
        }
    }
}

#[test]
fn a_request_without_a_session_goes_by_the_policy_and_its_flow_stays() {
    for pool in ["web", "shop"] {
        let mut client = new();
        let none = sb_session { node: [0; 3], ..codes(7, pool, 1) };
        let (ops, first, told) = client.ask(&request(pool, ""));
        assert_eq!((ops, told), (vec![SB_OP_ADOPT], none));
        assert_eq!(client.ask(&request(pool, "")), (vec![SB_OP_FORWARD], first, none));
        assert_eq!(client.counts(), [0; 4]);
        // The node that is told of a session is told of its end.
        let last = (1..=3).find(|last| node(*last) == first).unwrap();
        assert_eq!(client.ask(&with(pool, &cookie(7, pool, last))).2, codes(7, pool, last));
        assert_eq!(client.ask(&request(pool, "")), (vec![SB_OP_FORWARD], first, none));
    }
}

#[test]
fn a_node_knows_one_pool_for_each_adoption() {
    let mut client = new();
    let anew = vec![SB_OP_RELEASE, SB_OP_ADOPT];
    let (_, first, _) = client.ask(&request("web", ""));
    for (pool, told) in [
        ("plain", [0; 3]),
        ("shop", codes(7, "shop", 1).pool),
        ("web", codes(7, "web", 1).pool),
        ("user", [0; 3]),
    ] {
        let (ops, at, session) = client.ask(&request(pool, ""));
        assert_eq!((ops, at, session.pool), (anew.clone(), first, told), "{pool}");
        let (ops, at, session) = client.ask(&request(pool, ""));
        assert_eq!((ops, at, session.pool), (vec![SB_OP_FORWARD], first, told), "{pool}");
    }
    // Neither pool has to do with cookies.
    assert_eq!(client.ask(&request("plain", "")).0, [SB_OP_FORWARD]);
    // With a session, too.
    let last = (1..=3).find(|last| node(*last) == first).unwrap();
    let (ops, at, _) = client.ask(&with("web", &cookie(7, "web", last)));
    assert_eq!((ops, at), (anew, first));
}

#[test]
fn new_keys_move_no_flow() {
    for (pool, last) in [("web", 2), ("shop", 2)] {
        let mut client = new();
        client.ask(&with(pool, &cookie(7, pool, last)));
        client.world.reload(&config(""), &[8, 7]);
        let stays = vec![SB_OP_FORWARD];
        let nothing = sb_session { node: [0; 3], ..codes(8, pool, last) };
        let old = if pool == "web" { codes(7, pool, last) } else { nothing };
        assert_eq!(client.ask(&with(pool, &cookie(7, pool, last))), (stays.clone(), node(last), old));
        assert_eq!(client.ask(&request(pool, "")), (stays.clone(), node(last), nothing));
        let new = codes(8, pool, last);
        assert_eq!(client.ask(&with(pool, &cookie(8, pool, last))), (stays.clone(), node(last), new));
        assert_eq!(client.ask(&with(pool, &cookie(7, pool, last))), (stays, node(last), old));
        // Without the old key, its cookies say nothing, and the node is told so anew.
        client.world.reload(&config(""), &[8]);
        let done = client.ask(&with(pool, &cookie(7, pool, 1)));
        let expected = if pool == "web" { vec![SB_OP_RELEASE, SB_OP_ADOPT] } else { vec![SB_OP_FORWARD] };
        assert_eq!(done, (expected, node(last), nothing));
        assert_eq!(client.counts(), [4, 0, 0, u64::from(pool == "shop")]);
    }
}

#[test]
fn forged_cookies_are_ignored_and_counted_once() {
    for (pool, forged) in
        [("web", cookie(7, "web", 1).replace("D=", "X=")), ("shop", "lb=AAAAAAAAAAAAAA".to_owned())]
    {
        let mut client = new();
        let (ops, first, told) = client.ask(&with(pool, &forged));
        assert_eq!((ops, told.node, client.counts()), (vec![SB_OP_ADOPT], [0; 3], [0, 0, 0, 1]));
        // At once, and after the request has been read twice because it comes with another.
        assert_eq!(client.ask(&with(pool, &forged)).1, first);
        assert_eq!(client.counts(), [0, 0, 0, 2]);
        client.begin(&[with(pool, &forged), with(pool, &forged)].concat());
        assert_eq!(client.counts(), [0, 0, 0, 4]);
        let last = (1..=3).find(|last| node(*last) != first).unwrap();
        let (_, at, _) = client.ask(&with(pool, &format!("{forged}; {}", cookie(7, pool, last))));
        assert_eq!((at, client.counts()), (node(last), [1, 0, 0, 5]));
    }
}

#[test]
fn of_several_cookies_the_newest_counts_whose_node_is_there() {
    let both = with("web", &format!("{}; {}", cookie(7, "web", 1), cookie(7, "web", 2)));
    let mut client = new();
    assert_eq!(client.ask(&both).1, node(2));
    client.drain(2, true);
    let (_, at, told) = client.ask(&both);
    assert_eq!((at, told, client.counts()), (node(1), codes(7, "web", 1), [2, 0, 0, 0]));
}

#[test]
fn a_key_has_its_node_and_without_one_the_policy_decides() {
    for strict in [false, true] {
        let mut client = Client::new(&config(if strict { STRICT } else { "" }), &[7]);
        let user = |user: u32| request("user", &format!("X-User: {user}\r\n"));
        let owners: Vec<NodeAddress> = (0..12).map(|number| client.ask(&user(number)).1).collect();
        let again: Vec<NodeAddress> = (0..12).map(|number| client.ask(&user(number)).1).collect();
        assert_eq!((&owners, client.counts()), (&again, [24, 0, 0, 0]));
        assert!(NODES.iter().enumerate().all(|(index, _)| owners.contains(&node(index as u8 + 1))));
        assert_eq!(client.ask(&request("user", "")).0, [SB_OP_FORWARD], "its flow stays");
        client.drain(1, true);
        let mut refused = 0;
        for (number, owner) in (0..12).zip(&owners) {
            if strict && *owner == node(1) {
                let mut fresh = Client::new(&config(STRICT), &[7]);
                fresh.drain(1, true);
                assert!(fresh.begin(&user(number)).is_empty());
                assert_eq!(fresh.status().as_deref(), Some("503"));
                refused += 1;
                continue;
            }
            let (_, at, _) = client.ask(&user(number));
            assert_eq!(at == *owner, *owner != node(1), "others stay");
            assert_ne!(at, node(1));
        }
        assert!(!strict || refused > 0);
    }
}

#[test]
fn the_program_may_not_answer_for_cookies() {
    let mut client = new();
    let plan = client.world.dispatcher.plan();
    assert_eq!([0, 1, 2, 3].map(|pool| plan.keepers(pool, Duration::ZERO).len()), [0, 0, 0, 3]);
    let by_client = config("").replace("hash = \"header x-user\"", "hash = \"client\"");
    let mut client = Client::new(&by_client, &[7]);
    assert!(
        client.world.dispatcher.plan().keepers(2, Duration::ZERO).is_empty(),
        "other pools have the nodes, too"
    );
    let (pools, service) = by_client.split_once("[[service]]").unwrap();
    let one_route = service.split("[[service.route]]").find(|route| route.contains("/user/")).unwrap();
    let listen = service.split_once("[[service.route]]").unwrap().0;
    let alone = format!("{pools}[[service]]{listen}[[service.route]]{one_route}");
    let mut client = Client::new(&alone, &[7]);
    assert_eq!(client.world.dispatcher.plan().keepers(2, Duration::ZERO).len(), 3);
}

#[test]
fn a_session_has_no_second_candidate() {
    let config = config("").replace("policy =", "second_candidate = true\npolicy =");
    for (cookie, second) in [(String::new(), true), (cookie(7, "web", 1), false)] {
        let mut client = Client::new(&config, &[7]);
        for last in 1..=3 {
            client.world.report(node(last), "web", SB_REASON_NONE, (0, 511));
        }
        let sent = client.begin(&with("web", &cookie));
        assert_eq!((sent[0].op, sent[0].second.is_some()), (SB_OP_ADOPT, second));
    }
}

#[test]
fn what_a_node_was_told_outlives_the_switch() {
    let mut client = new();
    client.ask(&with("web", &cookie(7, "web", 2)));
    let entry = client.world.map[&flow()];
    let mut restarted = new();
    restarted.sent = client.sent;
    let packet = data(restarted.sent, 100, &request("web", ""));
    let unknown = sb_record_kind::SB_RECORD_UNKNOWN;
    let asked = restarted.world.record(unknown, Entry::default(), &packet);
    assert_eq!(asked.len(), 3);
    let sent = restarted.world.handoff(node(2), entry.flow_state().option(SB_OP_OWNED), &asked[0].packet);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, node(2)));
}

/// A name that a node is to give back must not lie in two packets.
#[test]
fn a_name_in_two_packets_is_sent_in_one() {
    let name = cookie(7, "web", 1).replace("abc", "");
    let whole = with("web", &cookie(7, "web", 1));
    let at = whole.windows(name.len()).position(|text| text == name.as_bytes()).unwrap();
    for settled in [false, true] {
        for cut in 1..whole.len() - 2 {
            let mut client = new();
            if settled {
                client.ask(&request("web", ""));
            }
            assert!(client.begin(&whole[..cut]).is_empty());
            // Not joined with what comes before: it is too long together.
            let fill = vec![b'x'; 1100];
            let rest = [&whole[cut..whole.len() - 2], b"X: ", &fill, b"\r\n\r\n"].concat();
            let mut sent = client.begin(&rest);
            if sent[0].op == SB_OP_RELEASE {
                sent = client.world.answer(&sent[0].clone(), SB_OP_RELEASED, SB_REASON_NONE);
            }
            sent.retain(|sent| sent.op != SB_OP_CONFIRM);
            let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.data().to_vec()).collect();
            assert_eq!(bytes, [&whole[..cut], &rest].concat());
            let has_name =
                |sent: &ToNode| sent.data().windows(name.len()).any(|text| text == name.as_bytes());
            assert_eq!(sent.iter().filter(|sent| has_name(sent)).count(), 1, "cut at {cut}");
            assert!(sent.iter().all(|sent| sent.option.flow_state().session == codes(7, "web", 1)));
            let straddles = at < cut && cut < at + name.len();
            assert_eq!(sent.len(), if straddles { 3 } else { 2 }, "cut at {cut}");
        }
    }
}
