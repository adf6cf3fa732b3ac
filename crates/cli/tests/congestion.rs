//! The kernels of nodes know as much about the way to a client as if it had connected to them: their congestion control
//! begins as it would without a switch.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::{Impairment, ServiceTime, SlowServerOptions};

fn connect(cluster: &Cluster) -> Result<TcpStream> {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let stream = cluster.client().tcp_connect(vip, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The sockets of a node's server, as `ss` shows them.
fn sockets(cluster: &Cluster, node: usize) -> Result<String> {
    let node = cluster.lab.node(node);
    Ok(node.run(["ss", "-tinH", "state", "established", "sport", "=", ":80"])?.success()?)
}

/// A node withholds acknowledgments of a request that waits. Its kernel must not take that for congestion, which would
/// end slow start before the response.
#[test]
fn withheld_acknowledgments_leave_the_congestion_window_alone() -> Result {
    let service = ServiceTime::Fixed(Duration::from_secs(4));
    let slow_servers = Some(SlowServerOptions::new(1, 16, service));
    let cluster = Cluster::start_with(Plan { slow_servers, ..Plan::default() })?;
    let mut stream = connect(&cluster)?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let withheld = || cluster.node_counter(0, "withheld");
    wait_until("a second one, of the copy", PATIENCE, withheld, |&count| count > 1)?;
    let sockets = sockets(&cluster, 0)?;
    assert!(sockets.contains("cwnd:10 ") && !sockets.contains(" ssthresh"), "{sockets}");
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    cluster.down()
}

/// BBR sizes its window by the shortest round trip of the last ten seconds, so a node must not take any for shorter than
/// it was: neither of a new connection, nor of one that comes from another node.
#[test]
fn round_trips_are_no_shorter_than_they_are() -> Result {
    let cluster = Cluster::start()?;
    let hold = Duration::from_millis(20);
    let cable = cluster.client().impair(Impairment { reorder_permille: 1000, hold, ..Default::default() })?;
    let mut stream = connect(&cluster)?;
    let mut responses = Responses::new(&stream, PATIENCE)?;
    for (node, path) in [(0, "/small"), (1, "/img/small")] {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response = responses.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 200, "{}", response.head);
        // A replayed handshake tells nothing of it, but the first acknowledgment does.
        let sockets = wait_until(
            "the kernel has a round trip",
            PATIENCE,
            || sockets(&cluster, node),
            |sockets| sockets.contains("minrtt:"),
        )?;
        let shortest = sockets.split_whitespace().find_map(|word| word.strip_prefix("minrtt:"));
        let shortest: f64 = shortest.ok_or("it has just been there")?.parse()?;
        assert!(shortest >= 40.0, "{sockets}");
    }
    cable.heal()?;
    cluster.down()
}
