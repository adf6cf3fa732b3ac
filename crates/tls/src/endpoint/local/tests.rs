use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use switchback_policy::Terms;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const TERMS: Terms = Terms { failures: 1, time: Duration::from_secs(60), max_time: Duration::from_secs(60) };

/// A node with this number, with a judge.
fn member(number: u16, address: SocketAddr) -> Member {
    let node = Arc::new(LocalNode::new(&format!("n{number}"), number));
    let server = Arc::new(LocalServer::new(node, ServerAddress::Tcp(address), 100));
    Member { server, judge: Some(Arc::new(Judge::new(TERMS, None))), is_ill: Arc::default() }
}

/// Three nodes, of which so many may be ejected.
fn group(most_ejected: usize) -> Group {
    let nowhere = (Ipv4Addr::LOCALHOST, 1).into();
    let members = (1..=3).map(|number| member(number, nowhere)).collect();
    Group::new(members, ServerProtocol::Http11, Some(most_ejected), None)
}

fn names(group: &Group, node: &str) -> Vec<String> {
    group.in_order(node).into_iter().map(|member| member.name().to_string()).collect()
}

#[test]
fn a_connections_own_node_comes_first_and_others_share_what_is_not_for_it() {
    let group = group(0);
    let mut seconds = BTreeMap::<String, usize>::new();
    for _ in 0..30 {
        let order = names(&group, "n2");
        assert_eq!(order[0], "n2");
        *seconds.entry(order[1].clone()).or_default() += 1;
    }
    assert_eq!(seconds.keys().collect::<Vec<_>>(), ["n1", "n3"], "its own may be unreachable");
    let mut firsts = BTreeMap::<String, usize>::new();
    for _ in 0..30 {
        // Requests of a node that is in the pool come in between.
        names(&group, "n2");
        *firsts.entry(names(&group, "n9")[0].clone()).or_default() += 1;
    }
    assert_eq!(firsts.into_values().collect::<Vec<_>>(), [10; 3]);
}

#[test]
fn nodes_that_leave_or_fail_or_are_ill_come_last() {
    let group = group(1);
    let [first, second, third] = &group.members[..] else { panic!("three nodes") };
    first.server.node.set_leaving(true);
    assert_eq!(names(&group, "n1")[2], "n1");
    second.note(Outcome::NoResponse);
    assert_eq!(names(&group, "n2"), ["n3", "n2", "n1"]);
    assert!(group.is_ready() && !group.is_ejected());
    third.is_ill.store(true, Ordering::Relaxed);
    assert_eq!(names(&group, "n3"), ["n2", "n1", "n3"]);
    assert!(!group.is_ready() && group.is_ejected());
    second.is_ill.store(true, Ordering::Relaxed);
    assert_eq!(names(&group, "n2"), ["n1", "n2", "n3"]);
    assert!(!group.is_ready() && !group.is_ejected());
}

#[test]
fn more_outliers_than_a_pool_can_do_without_go_on() {
    let group = group(1);
    group.members[0].note(Outcome::NoResponse);
    assert_eq!(names(&group, "n1")[2], "n1");
    group.members[1].note(Outcome::NoResponse);
    assert_eq!(names(&group, "n1")[0], "n1");
    assert!(group.is_ready());
}

#[test]
fn ill_servers_are_asked_when_other_machines_have_been() {
    let elsewhere = || {
        let address = ServerAddress::Tcp((Ipv4Addr::LOCALHOST, 2).into());
        (address.clone(), Arc::new(Servers::new(address)))
    };
    let group = Group { elsewhere: Some(elsewhere()), ..group(0) };
    group.members[0].is_ill.store(true, Ordering::Relaxed);
    let node = LocalNode::new("n2", 2);
    let order: Vec<_> = group.upstreams(&node).iter().map(|one| one.member.map(Member::name)).collect();
    let [second, third, none, first] = order[..] else { panic!("four") };
    assert_eq!((second.map(|name| &**name), third.map(|name| &**name)), (Some("n2"), Some("n3")));
    assert_eq!((none, first.map(|name| &**name)), (None, Some("n1")));
}

/// What comes on such a connection, behind its greeting.
async fn answer(mut stream: Box<dyn Stream>) -> io::Result<String> {
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

#[tokio::test]
async fn a_connection_goes_to_another_server_if_its_own_cannot_be_reached() -> io::Result<()> {
    let listeners = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
    let mut members = Vec::new();
    for (number, listener) in (1..).zip(&listeners) {
        members.push(member(number, listener.local_addr()?));
    }
    let group = Arc::new(Group::new(members, ServerProtocol::Http11, None, None));
    let [first, second] = listeners;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = second.accept().await {
            let mut greeting = [0; 4];
            let _ = socket.read_exact(&mut greeting).await;
            let _ = socket.write_all(b"second").await;
        }
    });
    let destination = Destination::member(&group, &group.members[0], b"hey ".to_vec());
    let (_stream, is_meant) = destination.connect().await?;
    assert!(is_meant);
    drop(first);
    let (stream, is_meant) = destination.connect().await?;
    assert_eq!((is_meant, stream.node().map(|name| &**name)), (false, Some("n2")));
    assert_eq!(answer(stream).await?, "second");
    Ok(())
}

#[tokio::test]
async fn who_waits_hears_once_that_a_node_leaves() {
    let node = Arc::new(LocalNode::new("n1", 1));
    let waiting = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.leaves().await }
    });
    node.set_leaving(false);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    node.set_leaving(true);
    waiting.await.expect("it ends");
    assert!(node.is_leaving());
    node.leaves().await;
}
