//! A node agent is told to end while its node has connections: they go on, at another node or without an agent.

mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::http::{Document, Documents, Response, add_long_document, start_fetch};
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, traces, wait_until};
use switchback_lab::{ServerKind, Signal};

/// So slow that the download lasts 4 s.
const CLIENT_RATE: u64 = 200_000_000;
const MEBIBYTES: usize = 100;

/// nginx on so many nodes, all of one pool.
fn start(nodes: usize) -> Result<Cluster> {
    Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; nodes],
        pools: vec![("web", (0..nodes).collect())],
        ..Plan::default()
    })
}

/// Connections that are kept after a response.
struct KeptAlive {
    connections: Vec<(TcpStream, Responses)>,
    document: Document,
}

impl KeptAlive {
    fn open(cluster: &Cluster, count: usize) -> Result<KeptAlive> {
        let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
        let connect = |_| -> Result<_> {
            let stream = cluster.client().tcp_connect(vip, PATIENCE)?;
            let responses = Responses::new(&stream, PATIENCE)?;
            Ok((stream, responses))
        };
        let connections = (0..count).map(connect).collect::<Result<_>>()?;
        let mut kept = KeptAlive { connections, document: Documents::of(&cluster.lab)?.small };
        kept.ask_on_all()?;
        Ok(kept)
    }

    /// The nodes that answer.
    fn ask_on_all(&mut self) -> Result<Vec<String>> {
        let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", self.document.path);
        let mut nodes = Vec::new();
        for (stream, responses) in &mut self.connections {
            stream.write_all(request.as_bytes())?;
            let response = responses.next(false)?.ok_or("the connection has ended")?;
            assert_eq!((response.status, &response.body), (200, &*self.document.body));
            nodes.push(response.field("x-node").unwrap_or_default().to_owned());
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }
}

type Download = JoinHandle<Result<Vec<Response>>>;

/// A download from node 0, which is under way.
fn download(cluster: &Cluster) -> Result<Download> {
    let long = add_long_document(&cluster.lab, "/long", MEBIBYTES)?;
    let received = || Ok(cluster.client().interface_counters("eth0")?.rx.bytes);
    loop {
        let start = received()?;
        let download = thread::spawn(start_fetch(
            cluster.client(),
            vec![(cluster.url4("/long"), long.clone())],
            &[],
            PATIENCE,
        )?);
        wait_until("a download", PATIENCE, received, |bytes| *bytes > start + (10 << 20))?;
        if cluster.node_status(0)?["in_flight"] == 1 {
            return Ok(download);
        }
        // It is the other node's.
        assert_whole(download)?;
    }
}

fn assert_whole(download: Download) -> Result {
    let responses = download.join().expect("the download does not panic")?;
    assert_eq!(responses.iter().map(|response| response.connects).collect::<Vec<_>>(), [1]);
    Ok(())
}

#[test]
fn connections_go_to_the_other_node() -> Result {
    let mut cluster = start(2)?;
    cluster.client().set_rate(Some(CLIENT_RATE))?;
    let mut kept = KeptAlive::open(&cluster, 20)?;
    assert_eq!(kept.ask_on_all()?, ["node0", "node1"]);
    let download = download(&cluster)?;
    let agent = cluster.agent(0).clone();
    agent.signal(Signal::SIGTERM)?;
    agent.wait_for_log("told to end: node node0 drains for at most 10s", PATIENCE)?;
    let flows = || Ok(cluster.node_status(0)?["flows"].take());
    wait_until("only the download to be left", PATIENCE, flows, |flows| *flows == 1)?;
    assert!(!download.is_finished(), "the download was over too early");
    assert_eq!(kept.ask_on_all()?, ["node1"]);
    let ended = agent.wait_timeout(PATIENCE)?.ok_or("the agent does not end")?;
    assert!(ended.success(), "{}", agent.log());
    let left = traces::of(cluster.lab.node(0))?;
    assert!(left.is_empty(), "{left:#?}\n{}", agent.log());
    assert_whole(download)?;
    assert_eq!(kept.ask_on_all()?, ["node1"]);
    // That it has drained itself is not remembered.
    cluster.start_node(0)?;
    assert_eq!(cluster.node_status(0)?["draining"], false);
    cluster.down()
}

/// They need no agent, and the next one takes them over.
#[test]
fn connections_that_nobody_can_take_stay() -> Result {
    let mut cluster = start(1)?;
    cluster.client().set_rate(Some(CLIENT_RATE))?;
    let mut kept = KeptAlive::open(&cluster, 5)?;
    let download = download(&cluster)?;
    let agent = cluster.agent(0).clone();
    agent.signal(Signal::SIGTERM)?;
    let ended = agent.wait_timeout(PATIENCE)?.ok_or("the agent does not end")?;
    assert!(ended.success(), "{}", agent.log());
    assert!(
        agent.log().contains("programs and VIPs stay for connections that the node still has: 6"),
        "{}",
        agent.log()
    );
    assert!(!download.is_finished(), "the download was over too early");
    assert_eq!(kept.ask_on_all()?, ["node0"]);
    cluster.start_node(0)?;
    assert_eq!(cluster.node_status(0)?["flows"], 6);
    assert_eq!(kept.ask_on_all()?, ["node0"]);
    assert_whole(download)?;
    drop(kept);
    cluster.down()
}

/// What a person says twice is meant.
#[test]
fn a_second_signal_ends_at_once() -> Result {
    let cluster = start(1)?;
    let _kept = KeptAlive::open(&cluster, 1)?;
    let agent = cluster.agent(0).clone();
    agent.signal(Signal::SIGTERM)?;
    agent.wait_for_log("told again within 2s", PATIENCE)?;
    let start = Instant::now();
    agent.signal(Signal::SIGINT)?;
    let ended = agent.wait_timeout(PATIENCE)?.ok_or("the agent does not end")?;
    assert!(
        ended.success() && start.elapsed() < Duration::from_secs(1),
        "{:?}: {}",
        start.elapsed(),
        agent.log()
    );
    let left = traces::of(cluster.lab.node(0))?;
    assert!(left.is_empty(), "{left:#?}");
    cluster.down()
}
