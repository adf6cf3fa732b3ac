//! Servers in a network namespace behind a bridge of the node, on another port than the VIP's, as those of containers:
//! nothing of Switchback is in there, not even the VIP.

mod common;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::{Host, Server, ServerOptions};

const PORT: u16 = 8080;
const TIMEOUT: Duration = Duration::from_secs(60);

fn ip(host: &Host, line: &str) -> Result {
    host.run(std::iter::once("ip").chain(line.split(' ')))?.success()?;
    Ok(())
}

/// The second client's host is the container: its link to the network is down, and it has another one to the first node.
fn container(cluster: &Cluster) -> &Host {
    cluster.lab.client(1)
}

/// A cluster whose first node gives its connections to a server in a container.
fn start(pools: Vec<(&'static str, Vec<usize>)>) -> Result<(Cluster, Server)> {
    let listen = vec![(0, vec!["127.0.0.1:81".parse()?])];
    let server = format!("server = [\"10.1.2.3:{PORT}\", \"[fd00:5b::3]:{PORT}\"]");
    let plan = Plan { clients_len: 2, listen, node_lines: vec![(0, server)], pools, ..Plan::default() };
    let mut cluster = Cluster::prepare(plan)?;
    let (node, inside) = (cluster.lab.node(0), container(&cluster));
    ip(inside, "link set eth0 down")?;
    ip(node, "link add bridge0 type bridge")?;
    ip(node, &format!("link add port0 type veth peer name eth1 netns {}", inside.namespace_name()))?;
    ip(node, "link set port0 master bridge0")?;
    for (host, interface, last) in [(node, "bridge0", 1), (inside, "eth1", 3)] {
        ip(host, &format!("addr add 10.1.2.{last}/24 dev {interface}"))?;
        ip(host, &format!("addr add fd00:5b::{last}/64 dev {interface} nodad"))?;
        ip(host, &format!("link set {interface} up"))?;
    }
    ip(node, "link set port0 up")?;
    ip(inside, "route replace default via 10.1.2.1")?;
    ip(inside, "-6 route replace default via fd00:5b::1")?;
    let server = serve(inside)?;
    cluster.start_daemons()?;
    cluster.wait_for_listeners("ready")?;
    Ok((cluster, server))
}

fn serve(inside: &Host) -> Result<Server> {
    let listen = vec![([0, 0, 0, 0], PORT).into(), ([0u16; 8], PORT).into()];
    let extra =
        "add_header X-Client $remote_addr always;\nadd_header X-Server $server_addr:$server_port always;";
    Ok(inside.nginx(&ServerOptions { listen, extra: extra.to_owned(), ..ServerOptions::default() })?)
}

/// Each of them on one connection: small and large responses, uploads of several packets; the server sees the client, and an
/// address of its own.
fn ask(cluster: &Cluster, vip: IpAddr) -> Result {
    let large = &Documents::of(&cluster.lab)?.large.body;
    let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
    let client = stream.local_addr()?.ip().to_string();
    let own = if vip.is_ipv4() { format!("10.1.2.3:{PORT}") } else { format!("fd00:5b::3:{PORT}") };
    let mut responses = Responses::new(&stream, PATIENCE)?;
    for _ in 0..3 {
        write!(stream, "GET /1m HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response = responses.next(false)?.ok_or("the connection has ended")?;
        assert_eq!((response.status, response.field("x-client")), (200, Some(&client[..])));
        assert_eq!(response.field("x-server"), Some(&own[..]));
        assert!(response.body == **large);
        responses.upload(100_000)?;
    }
    Ok(())
}

#[test]
fn a_server_in_a_container_sees_its_clients() -> Result {
    let (cluster, server) = start(vec![("web", vec![0])])?;
    for vip in [IpAddr::from(cluster.lab.vip4()), cluster.lab.vip6().into()] {
        ask(&cluster, vip)?;
    }
    let status = cluster.node_status(0)?;
    assert_eq!(status["listeners"][0]["adoption"], "replay (the server is behind an interface)");
    wait_until(
        "its connections have ended",
        PATIENCE,
        || cluster.node_status(0),
        |status| status["flows"] == 0,
    )?;
    server.stop()?;
    cluster.wait_for_listeners("unhealthy")?;
    let _server = serve(container(&cluster))?;
    cluster.wait_for_listeners("ready")?;
    ask(&cluster, cluster.lab.vip4().into())?;
    cluster.down()
}

/// Connections go back and forth between a container and a server on another node, over a path with loss.
#[test]
fn connections_move_in_and_out() -> Result {
    let (cluster, _server) = start(vec![("web", vec![0]), ("img", vec![1])])?;
    let documents = Documents::of(&cluster.lab)?;
    cluster.client().set_loss(10, 10)?;
    thread::scope(|scope| {
        let load = |v6: bool| -> Result {
            let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
            let responses = fetch(cluster.client(), &alternating(&documents, 200, url), &[], TIMEOUT)?;
            assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
            Ok(())
        };
        let loads = [false, true].map(|v6| scope.spawn(move || load(v6)));
        loads.into_iter().try_for_each(|load| load.join().expect("all on one connection"))
    })?;
    cluster.client().set_loss(0, 0)?;
    assert!(cluster.node_counter(0, "replayed")? >= 200);
    assert!(cluster.node_counter(0, "released")? >= 190);
    cluster.down()
}

/// A client's idle connection goes on at another node when the container's server has gone.
#[test]
fn a_connection_outlives_the_container() -> Result {
    let (cluster, server) = start(vec![("web", vec![0, 1])])?;
    let mut streams = Vec::new();
    for _ in 0..4 {
        let stream =
            cluster.client().tcp_connect(SocketAddr::new(cluster.lab.vip4().into(), 80), PATIENCE)?;
        let responses = Responses::new(&stream, PATIENCE)?;
        streams.push((stream, responses));
    }
    let ask_all = |streams: &mut Vec<(_, Responses)>| -> Result {
        for (stream, responses) in streams {
            let stream: &mut std::net::TcpStream = stream;
            write!(stream, "GET /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
            assert_eq!(responses.next(false)?.ok_or("the connection has ended")?.status, 200);
        }
        Ok(())
    };
    ask_all(&mut streams)?;
    assert_eq!(cluster.node_counter(0, "adopted")?, 2);
    server.stop()?;
    cluster.wait_for_listeners("unhealthy")?;
    ask_all(&mut streams)?;
    cluster.down()
}
