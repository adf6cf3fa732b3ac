use std::net::IpAddr;
use std::path::Path;

use switchback_config::ClusterKey;
use switchback_http::{Limits, Progress, parse_head};
use switchback_wire::address_bytes;

use super::*;
use switchback_policy::Availability;

const NODES: [&str; 3] = ["n0", "n1", "n2"];

fn sessions(persistence: &str, cluster_keys: &[u8]) -> Sessions {
    let mut text = "[cluster]\nkey_file = \"key\"\n".to_owned();
    for (index, name) in NODES.iter().enumerate() {
        text += &format!("[[node]]\nname = \"{name}\"\naddress = \"192.0.2.{}\"\n", index + 1);
    }
    text += &format!(
        "[[pool]]\nname = \"other\"\nnodes = [\"n0\"]\npolicy = \"random\"\n\
         [pool.persistence]\nmode = \"rewrite\"\ncookie = \"JSESSIONID\"\n\
         [[pool]]\nname = \"web\"\nnodes = [\"n0\", \"n1\", \"n2\"]\npolicy = \"random\"\n\
         [pool.persistence]\n{persistence}\n\
         [[service]]\nname = \"s\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\npool = \"web\"\n"
    );
    let made = cluster_keys.iter().map(|byte| ClusterKey::from_bytes([*byte; 32])).collect();
    let cluster = switchback_config::parse(&text, Path::new("cluster.toml"), |_: &Path| Ok(made)).unwrap();
    Sessions::new(&cluster, 1, NodeId::from_index).unwrap()
}

const REWRITE: &str = "mode = \"rewrite\"\ncookie = \"PHPSESSID\"";
const INSERT: &str = "mode = \"insert\"\ncookie = \"lb\"";

fn key(byte: u8) -> sb_key {
    keys::session_key(&[byte; 32])
}

/// Code of a pool among both pools with cookie sessions.
fn pool(byte: u8) -> Code {
    session::pool_codes(&key(byte), &["other", "web"])[1]
}

fn node(byte: u8, index: usize) -> Code {
    session::node_codes(&key(byte), "web", &NODES)[index]
}

/// Name of a rewritten session cookie.
fn name(byte: u8, index: usize) -> String {
    let codes = session::rewritten(pool(byte), node(byte, index));
    format!("{}D", String::from_utf8(codes.to_vec()).unwrap())
}

fn value(byte: u8, index: usize) -> String {
    String::from_utf8(session::inserted_value(&key(byte), "web", node(byte, index)).to_vec()).unwrap()
}

fn read_from(sessions: &mut Sessions, client: &str, fields: &[&str], down: &[usize]) -> RequestSession {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let text = format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
        panic!("{text} is a head")
    };
    let client = address_bytes(client.parse::<IpAddr>().unwrap());
    let flow = sb_flow { client, ..Default::default() };
    sessions.read(&sb_key::default(), &flow, &head, |node| !down.contains(&node.index()))
}

fn read(sessions: &mut Sessions, fields: &[&str], down: &[usize]) -> RequestSession {
    read_from(sessions, "198.51.100.1", fields, down)
}

/// Index in `NODES` of the session's node.
fn owner(said: &RequestSession) -> Option<usize> {
    said.session.and_then(|session| session.node).map(NodeId::index)
}

#[test]
fn a_rewritten_name_tells_the_node_wherever_it_stands() {
    let mut sessions = sessions(REWRITE, &[7]);
    for (index, of) in (0..3).map(|index| (index, name(7, index))) {
        for field in [
            format!("Cookie: {of}=abc"),
            format!("cookie: a=b; {of}=abc"),
            format!("COOKIE:x;{of}=abc ; c=d"),
            format!("Cookie: a=b\r\nX: y\r\nCookie:\t{of}=abc"),
            format!("Cookie: {of}="),
        ] {
            let said = read(&mut sessions, &[&field], &[]);
            assert_eq!((owner(&said), said.ignored), (Some(index), 0), "{field}");
            assert_eq!(said.for_node, sb_session::new(pool(7), Some(node(7, index))), "{field}");
        }
    }
}

#[test]
fn foreign_names_are_ignored() {
    let nothing = RequestSession { for_node: sb_session::new(pool(7), None), ..RequestSession::default() };
    let mut sessions = sessions(REWRITE, &[7]);
    let of = name(7, 0);
    let other = session::pool_codes(&key(7), &["other", "web"])[0];
    let others = String::from_utf8(session::rewritten(other, *b"abc").to_vec()).unwrap();
    for field in [
        "Cookie: PHPSESSID=abc".to_owned(),
        format!("Cookie: x{of}=abc; b={of}=abc; SB=1; SB"),
        format!("Cookie: {}=abc", of.to_lowercase()),
        format!("Cookie: {others}SIONID=1"),
        format!("X-Cookie: {of}=abc"),
    ] {
        assert_eq!(read(&mut sessions, &[&field], &[]), nothing, "{field}");
    }
    // These look like the pool's cookies.
    let begin = &of[..5];
    for (field, ignored) in [
        (format!("Cookie: {begin}"), 1),
        (format!("Cookie: {begin}===D=abc"), 1),
        (format!("Cookie: {of}; {of}2=1; {}=2", &of[..8]), 3),
        (format!("Cookie: {of} =1"), 1),
        (format!("Cookie: {}d=1", &of[..8]), 1),
    ] {
        assert_eq!(read(&mut sessions, &[&field], &[]), RequestSession { ignored, ..nothing }, "{field}");
    }
}

#[test]
fn the_last_name_with_a_usable_node_counts() {
    let mut sessions = sessions(REWRITE, &[7, 8]);
    let cookies = [(7, 0), (8, 1), (7, 2)];
    let text: Vec<String> =
        cookies.iter().map(|&(key, index)| format!("{}=v{index}", name(key, index))).collect();
    let field = format!("Cookie: {}; {}", text[0], text[1]);
    let fields = [&field[..], &format!("Cookie: {}", text[2])];
    for (down, expected) in [
        (&[][..], 2),
        (&[2][..], 1),
        (&[0, 2][..], 1),
        (&[1, 2][..], 0),
        (&[0, 1][..], 2),
        (&[0, 1, 2][..], 2),
    ] {
        let said = read(&mut sessions, &fields, down);
        assert_eq!(owner(&said), Some(expected), "{down:?}");
        let (key, index) = cookies[expected];
        assert_eq!(said.for_node, sb_session::new(pool(key), Some(node(key, index))), "{down:?}");
        let alone = read(&mut sessions, &[&format!("Cookie: {}", text[index])], &[]);
        assert_eq!(said.session, alone.session, "its own value is the key");
    }
}

#[test]
fn names_under_both_keys_are_of_one_pool() {
    let mut sessions = sessions(REWRITE, &[8, 7]);
    let said = read(&mut sessions, &[], &[]);
    assert_eq!((said.session, said.for_node), (None, sb_session::new(pool(8), None)));
    for byte in [7, 8] {
        let said = read(&mut sessions, &[&format!("Cookie: {}=1", name(byte, 1))], &[]);
        assert_eq!(
            (owner(&said), said.for_node),
            (Some(1), sb_session::new(pool(byte), Some(node(byte, 1))))
        );
        assert!(sessions.matches_session(&said.for_node));
    }
    let said = read(&mut sessions, &[&format!("Cookie: {}=1", name(9, 1))], &[]);
    assert_eq!(said.session, None);
    assert!(
        !sessions.matches_session(&sb_session::new(pool(9), None))
            && !sessions.matches_session(&sb_session::default())
    );
}

#[test]
fn an_inserted_cookie_counts_if_its_value_is_ours() {
    let mut sessions = sessions(INSERT, &[7]);
    let current = |index| sb_session::new(pool(7), Some(node(7, index)));
    let (right, other) = (value(7, 1), value(7, 2));
    for (fields, expected, ignored) in [
        (format!("Cookie: lb={right}"), Some(1), 0),
        (format!("Cookie: a=b; lb={right} ;c=d"), Some(1), 0),
        (format!("Cookie: lb={right}; lb={other}"), Some(1), 0),
        (format!("Cookie: lb=x; lb={other}; lb={right}"), Some(2), 1),
        (format!("Cookie: LB={right}; xlb={right}; lb2={right}; lb"), None, 0),
        (format!("Cookie: lb={right}x; lb=\"{right}\"; lb="), None, 3),
        (format!("Cookie: lb={}{}", &other[..3], &right[3..]), None, 1),
        (format!("Cookie: lb={}A", &right[..13]), None, 1),
    ] {
        let said = read(&mut sessions, &[&fields], &[]);
        let told = expected.map_or(sb_session::new(pool(7), None), current);
        assert_eq!((owner(&said), said.ignored, said.for_node), (expected, ignored, told), "{fields}");
    }
}

#[test]
fn an_inserted_cookie_under_the_old_key_counts_and_is_renewed() {
    let mut sessions = sessions(INSERT, &[8, 7]);
    let said = read(&mut sessions, &[&format!("Cookie: lb={}", value(7, 1))], &[]);
    assert_eq!((owner(&said), said.for_node), (Some(1), sb_session::new(pool(8), None)));
    let said = read(&mut sessions, &[&format!("Cookie: lb={}", value(8, 1))], &[]);
    assert_eq!((owner(&said), said.for_node), (Some(1), sb_session::new(pool(8), Some(node(8, 1)))));
}

#[test]
fn a_node_that_has_left_differs_from_a_forged_one() {
    let mut sessions = sessions(INSERT, &[7]);
    let left = session::node_codes(&key(7), "web", &["n9"])[0];
    let value = String::from_utf8(session::inserted_value(&key(7), "web", left).to_vec()).unwrap();
    let field = format!("Cookie: lb={value}");
    let said = read(&mut sessions, &[&field], &[]);
    assert!(said.session.is_some_and(|session| session.node.is_none()) && said.ignored == 0, "{said:?}");
    // A node that is still in the pool takes precedence.
    let said = read(&mut sessions, &[&format!("{field}; lb={}", self::value(7, 2))], &[]);
    assert_eq!(owner(&said), Some(2));
    let of_other_pool = session::inserted_value(&key(7), "other", left);
    let field = format!("Cookie: lb={}", String::from_utf8(of_other_pool.to_vec()).unwrap());
    let said = read(&mut sessions, &[&field], &[]);
    assert_eq!((said.session, said.ignored), (None, 1));
}

#[test]
fn sessions_of_one_node_do_not_all_go_to_one_other_node() {
    let names = name(7, 0);
    let mut at = [[0u32; 3]; 2];
    for number in 0..300 {
        let client = format!("198.51.{}.{}", number / 100, number % 100);
        for (mode, (persistence, field)) in
            [(REWRITE, format!("Cookie: {names}=v{number}")), (INSERT, format!("Cookie: lb={}", value(7, 0)))]
                .into_iter()
                .enumerate()
        {
            let mut sessions = sessions(persistence, &[7]);
            let key = read_from(&mut sessions, &client, &[&field], &[]).session.unwrap().key;
            let load = |index| {
                if index == 0 { Load { availability: Availability::Down, ..Load::IDLE } } else { Load::IDLE }
            };
            at[mode][sessions.choose(key, load).unwrap().index()] += 1;
        }
    }
    for [down, first, second] in at {
        assert!(down == 0 && first > 110 && second > 110, "{at:?}");
    }
}

#[test]
fn a_hash_has_a_node_for_each_key_and_none_without() {
    let mut sessions = sessions("mode = \"hash\"\nhash = \"header x-user\"", &[7]);
    let said = read(&mut sessions, &["X-User: a"], &[]);
    assert_eq!(
        (said.for_node, sessions.matches_session(&sb_session::default())),
        (sb_session::default(), true)
    );
    assert_eq!(said, read(&mut sessions, &["Cookie: a=b", "x-user:  a "], &[0, 1, 2]));
    assert_eq!(read(&mut sessions, &["X-Name: a"], &[]), RequestSession::default());
    let owners = (0..50).map(|user| owner(&read(&mut sessions, &[&format!("X-User: {user}")], &[])));
    let mut owners: Vec<_> = owners.collect();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners, [Some(0), Some(1), Some(2)]);
}
