//! Nodes that replay the client's handshake with their servers, and translate sequence numbers and timestamps: `adoption`
//! of a node.

mod common;

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, build_go, load, wait_until};
use pcap_parser::data::{PacketData, get_packetdata};
use pcap_parser::{Linktype, PcapBlockOwned, create_reader};
use serde_json::Value;
use switchback_lab::{Process, Signal};
use switchback_wire::packet::{TcpView, timestamps};

const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/replay");

fn adoption(node: usize, way: &str) -> (usize, String) {
    (node, format!("adoption = \"{way}\""))
}

/// A client's packets as tcpdump writes them, from here on.
fn capture(cluster: &Cluster, file: &Path) -> Result<Process> {
    let mut command = Command::new("tcpdump");
    command.args(["-i", "eth0", "--immediate-mode", "-s", "128", "-U", "-w"]).arg(file);
    command.args(["tcp", "src", "port", "80"]);
    let process = cluster.client().spawn("tcpdump", command)?;
    process.wait_for_log("listening on", PATIENCE)?;
    Ok(process)
}

/// The TSvals of the captured packets, in their order.
fn clock(file: &Path) -> Result<Vec<u32>> {
    let mut reader = create_reader(1 << 16, fs::File::open(file)?).map_err(|error| error.to_string())?;
    let mut clock = Vec::new();
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                if let PcapBlockOwned::Legacy(packet) = &block
                    && let Some(PacketData::L2(frame)) =
                        get_packetdata(packet.data, Linktype::ETHERNET, packet.caplen as usize)
                {
                    // The captured part need not be all: the header is read as that of a packet without data.
                    let mut header = frame[14..].to_vec();
                    let len = header.len();
                    match header[0] >> 4 {
                        4 => header[2..4].copy_from_slice(&(len as u16).to_be_bytes()),
                        _ => header[4..6].copy_from_slice(&(len as u16 - 40).to_be_bytes()),
                    }
                    let view = TcpView::parse(&header).ok_or("no TCP packet")?;
                    clock.extend(timestamps(&header, &view).map(|(tsval, _)| tsval));
                }
                reader.consume(offset);
            }
            Err(pcap_parser::PcapError::Eof) => return Ok(clock),
            Err(pcap_parser::PcapError::Incomplete(_)) => {
                reader.refill().map_err(|error| error.to_string())?
            }
            Err(error) => return Err(error.to_string().into()),
        }
    }
}

/// One connection, whose requests go to a node to which the kernel gives it and to one that replays, in turn; every fourth
/// response is a mebibyte, and the client loses packets.
fn alternate(v6: bool, stamped: bool) -> Result {
    let requests = load(400, 4_000);
    let node_lines = vec![adoption(0, "kernel"), adoption(1, "replay")];
    let cluster = Cluster::start_with(Plan { node_lines, ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    cluster
        .client()
        .run(["sysctl", "-w", &format!("net.ipv4.tcp_timestamps={}", u8::from(stamped))])?
        .success()?;
    let file = cluster.client().directory().join("packets.pcap");
    let capturing = capture(&cluster, &file)?;
    cluster.client().set_loss(10, 10)?;
    let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
    let responses =
        fetch(cluster.client(), &alternating(&documents, requests, url), &[], Duration::from_secs(300))?;
    cluster.client().set_loss(0, 0)?;
    capturing.signal(Signal::SIGINT)?;
    capturing.wait_timeout(PATIENCE)?;
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    for (index, response) in responses.iter().enumerate() {
        assert_eq!(response.node, format!("node{}", index % 2), "request {index}");
    }
    let replayed = [0, 1].map(|node| cluster.node_counter(node, "replayed"));
    let adopted = cluster.node_counter(1, "adopted")?;
    assert_eq!(replayed.into_iter().collect::<Result<Vec<_>>>()?, [0, adopted]);
    let clock = clock(&file)?;
    assert_eq!(!clock.is_empty(), stamped);
    assert!(!stamped || clock.len() > requests, "{} packets", clock.len());
    let back = clock.windows(2).find(|pair| (pair[1].wrapping_sub(pair[0]) as i32) < 0);
    assert_eq!(back, None, "the clock goes back");
    cluster.down()
}

#[test]
fn a_connection_alternates_between_both_ways_over_ipv4() -> Result {
    alternate(false, true)
}

#[test]
fn a_connection_alternates_between_both_ways_over_ipv6() -> Result {
    alternate(true, true)
}

#[test]
fn a_connection_without_timestamps_alternates_over_ipv4() -> Result {
    alternate(false, false)
}

#[test]
fn a_connection_without_timestamps_alternates_over_ipv6() -> Result {
    alternate(true, false)
}

/// The server at port 80 of the first node is this one. Requests of several packets get to it, and long responses from it;
/// it sees its client.
fn serve(command: Command, way: &str, shown: &str) -> Result {
    let listen = vec![(0, vec!["127.0.0.1:81".parse()?])];
    let pools = vec![("web", vec![0])];
    let node_lines = vec![adoption(0, way)];
    let cluster = Cluster::start_with(Plan { listen, pools, node_lines, ..Plan::default() })?;
    let server = cluster.lab.node(0).spawn("server", command)?;
    wait_until(
        "the server listens",
        PATIENCE,
        || cluster.listeners("adoption"),
        |ways| ways.contains(&shown.to_owned()),
    )?;
    wait_until(
        "the node may have requests",
        PATIENCE,
        || cluster.node_status(0),
        |status| status["listeners"][0]["state"] == "ready",
    )?;
    for vip in [IpAddr::from(cluster.lab.vip4()), cluster.lab.vip6().into()] {
        let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
        let client = stream.local_addr()?.ip();
        let mut responses = Responses::new(&stream, PATIENCE)?;
        for len in [0, 10, 100_000, 3] {
            let body = vec![b'x'; len];
            write!(stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")?;
            stream.write_all(&body)?;
            let response = responses.next(false)?.ok_or("the connection has ended")?;
            let seen = response.field("x-client").and_then(|text| text.parse::<IpAddr>().ok());
            assert_eq!((response.status, seen), (200, Some(client)));
            assert!(response.body == body, "{len} bytes");
            write!(stream, "GET /1m HTTP/1.1\r\nHost: a\r\n\r\n")?;
            let large = responses.next(false)?.ok_or("the connection has ended")?;
            assert!(large.body == b"0123456789abcdef".repeat(1 << 16));
        }
    }
    assert!(cluster.node_counter(0, "replayed")? >= 2);
    assert_eq!(cluster.node_counter(0, "refused_failed")?, 0);
    assert!(server.stop().is_ok());
    cluster.down()
}

fn with(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).arg("80").current_dir(SERVERS);
    command
}

/// Go listens with MPTCP, to which the kernel gives no connections.
#[test]
fn go_with_its_defaults() -> Result {
    let binary = build_go("replay-server", &format!("{SERVERS}/server.go"))?;
    let binary = binary.to_str().ok_or("a path")?;
    // The packet's Go may be older than 1.24, where this is the default.
    let mut command = with(binary, &[]);
    command.env("GODEBUG", "multipathtcp=2");
    serve(command, "auto", "replay (the server listens with MPTCP)")
}

#[test]
fn node_js() -> Result {
    serve(with("node", &["server.mjs"]), "replay", "replay")
}

#[test]
fn python() -> Result {
    serve(with("python3", &["server.py"]), "replay", "replay")
}

#[test]
fn java() -> Result {
    serve(with("java", &["Server.java"]), "replay", "replay")
}

/// A server that comes again in another way gets its connections in that way, without a word to the agent.
#[test]
fn a_listener_decides_when_it_changes() -> Result {
    let binary = build_go("replay-server", &format!("{SERVERS}/server.go"))?;
    let listen = vec![(0, vec!["127.0.0.1:81".parse()?])];
    let cluster = Cluster::start_with(Plan { listen, pools: vec![("web", vec![0])], ..Plan::default() })?;
    for (multipath, shown) in
        [("0", "kernel"), ("2", "replay (the server listens with MPTCP)"), ("0", "kernel")]
    {
        let mut command = with(binary.to_str().ok_or("a path")?, &[]);
        command.env("GODEBUG", format!("multipathtcp={multipath}"));
        let server = cluster.lab.node(0).spawn("server", command)?;
        wait_until(
            "the server listens",
            PATIENCE,
            || cluster.listeners("adoption"),
            |ways| ways.contains(&shown.to_owned()),
        )?;
        let before = cluster.node_counter(0, "replayed")?;
        let mut stream =
            cluster.client().tcp_connect(SocketAddr::new(cluster.lab.vip4().into(), 80), PATIENCE)?;
        write!(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response = Responses::new(&stream, PATIENCE)?.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 200);
        assert_eq!(cluster.node_counter(0, "replayed")? - before, u64::from(multipath == "2"));
        assert!(server.stop().is_ok());
        wait_until(
            "the server has ended",
            PATIENCE,
            || cluster.listeners("adoption"),
            |ways| !ways.contains(&shown.to_owned()),
        )?;
    }
    cluster.down()
}

/// With `plain_tcp` a server that asks for MPTCP gets a plain listener, in the node's own network namespace only.
#[test]
#[ignore = "takes a kernel with BPF trampolines: make test-kernels"]
fn new_sockets_for_mptcp_can_be_made_plain() -> Result {
    let binary = build_go("replay-server", &format!("{SERVERS}/server.go"))?;
    let listen = [0, 1].map(|node| (node, vec!["127.0.0.1:81".parse().expect("an address")])).to_vec();
    let node_lines = vec![(0, "plain_tcp = true".to_owned())];
    let cluster = Cluster::start_with(Plan { listen, node_lines, ..Plan::default() })?;
    let mut servers = Vec::new();
    for node in 0..2 {
        let mut command = with(binary.to_str().ok_or("a path")?, &[]);
        command.env("GODEBUG", "multipathtcp=2");
        servers.push(cluster.lab.node(node).spawn("server", command)?);
    }
    for (node, way) in ["kernel", "replay (the server listens with MPTCP)"].into_iter().enumerate() {
        let listener = || Ok(cluster.node_status(node)?["listeners"][0].clone());
        let is_ready = |listener: &Value| listener["state"] == "ready" && listener["adoption"] == way;
        wait_until(way, PATIENCE, listener, is_ready)?;
    }
    for path in ["/", "/img/"] {
        let mut stream =
            cluster.client().tcp_connect(SocketAddr::new(cluster.lab.vip4().into(), 80), PATIENCE)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response = Responses::new(&stream, PATIENCE)?.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 200, "{path}");
    }
    assert_eq!([cluster.node_counter(0, "replayed")?, cluster.node_counter(1, "replayed")?], [0, 1]);
    drop(servers);
    cluster.down()
}
