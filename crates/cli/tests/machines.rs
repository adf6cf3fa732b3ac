//! Several nodes of one machine, with one address and one agent: servers on two ports of it, and in two namespaces behind
//! a bridge, as those of containers.

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use common::http::{Document, Documents, alternating, fetch};
use common::responses::Connection;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use serde_json::Value;
use switchback_lab::{Host, Server, ServerOptions};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Nodes of the first machine, with their servers.
const MEMBERS: [(&str, &str); 4] = [
    ("node0", "server = [\"127.0.0.1:8080\", \"[::1]:8080\"]"),
    ("port1", "server = [\"127.0.0.1:8081\", \"[::1]:8081\"]"),
    ("pod2", "server = [\"10.1.2.2:8080\", \"[fd00:5b::2]:8080\"]"),
    ("pod3", "server = [\"10.1.2.3:8080\", \"[fd00:5b::3]:8080\"]"),
];

fn ip(host: &Host, line: &str) -> Result {
    host.run(std::iter::once("ip").chain(line.split(' ')))?.success()?;
    Ok(())
}

/// A cluster with these nodes on the first machine, and one on the second one.
struct Machines {
    cluster: Cluster,
    /// The servers of [`MEMBERS`].
    servers: Vec<Option<Server>>,
}

/// The configuration: `/img/` is for the pool `img` with these nodes, all else for the pool `web` with those.
fn config(cluster: &Cluster, [web, img]: [&[&str]; 2], lines: &[(&str, &str)]) -> String {
    let (first, second) = (cluster.lab.node(0).ipv4(), cluster.lab.node(1).ipv4());
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n".to_owned();
    for (name, server) in MEMBERS {
        let more: String = lines.iter().filter(|(of, _)| *of == name).map(|(_, line)| *line).collect();
        text += &format!("[[node]]\nname = \"{name}\"\naddress = \"{first}\"\n{server}\n{more}\n\n");
    }
    text += &format!("[[node]]\nname = \"node1\"\naddress = \"{second}\"\n\n");
    for (name, nodes) in [("web", web), ("img", img)] {
        let health = "[pool.health]\npath = \"/small\"\ninterval = \"200ms\"\ntimeout = \"200ms\"\n";
        text +=
            &format!("[[pool]]\nname = \"{name}\"\nnodes = {nodes:?}\npolicy = \"round-robin\"\n{health}\n");
    }
    text + "[[service]]\nname = \"shop\"\nlisten = [\"{vip4}:80\", \"[{vip6}]:80\"]\n\n\
            [[service.route]]\npath = \"/img/\"\npool = \"img\"\n\n[[service.route]]\npool = \"web\"\n"
}

impl Machines {
    fn start(pools: [&[&str]; 2]) -> Result<Machines> {
        let listen = vec![(0, vec!["127.0.0.1:8080".parse()?, "[::1]:8080".parse()?])];
        let mut cluster = Cluster::prepare(Plan { clients_len: 3, listen, ..Plan::default() })?;
        let machine = cluster.lab.node(0);
        ip(machine, "link add bridge0 type bridge")?;
        ip(machine, "addr add 10.1.2.1/24 dev bridge0")?;
        ip(machine, "addr add fd00:5b::1/64 dev bridge0 nodad")?;
        ip(machine, "link set bridge0 up")?;
        for last in [2, 3] {
            let inside = cluster.lab.client(last - 1);
            let port = format!("port{last}");
            ip(inside, "link set eth0 down")?;
            ip(
                machine,
                &format!("link add {port} type veth peer name eth1 netns {}", inside.namespace_name()),
            )?;
            ip(machine, &format!("link set {port} master bridge0"))?;
            ip(inside, &format!("addr add 10.1.2.{last}/24 dev eth1"))?;
            ip(inside, &format!("addr add fd00:5b::{last}/64 dev eth1 nodad"))?;
            ip(inside, "link set eth1 up")?;
            ip(machine, &format!("link set {port} up"))?;
            ip(inside, "route replace default via 10.1.2.1")?;
            ip(inside, "-6 route replace default via fd00:5b::1")?;
        }
        let text = config(&cluster, pools, &[]);
        cluster.lab.write_config_text(&text)?;
        let servers = (1..MEMBERS.len()).map(|member| serve(&cluster, member).map(Some));
        let servers = std::iter::once(Ok(None)).chain(servers).collect::<Result<_>>()?;
        cluster.start_daemons()?;
        cluster.wait_for_listeners("ready")?;
        Ok(Machines { cluster, servers })
    }

    /// The view of a node at the switch.
    fn view(&self, node: &str) -> Result<Value> {
        let status = self.cluster.switch_status()?;
        let views = status["nodes"].as_array().ok_or("no nodes")?;
        Ok(views.iter().find(|view| view["name"] == node).ok_or("no such node")?.clone())
    }

    /// The states of a node's listeners, as the switch has heard.
    fn states(&self, node: &str) -> Result<BTreeSet<String>> {
        let view = self.view(node)?;
        let listeners = view["listeners"].as_array().ok_or("no listeners")?;
        Ok(listeners.iter().map(|listener| listener["state"].as_str().unwrap_or("").to_owned()).collect())
    }

    fn wait_for(&self, node: &str, state: &str) -> Result {
        let what = format!("{node} is {state}");
        wait_until(&what, PATIENCE, || self.states(node), |states| states.iter().eq([state]))?;
        Ok(())
    }
}

/// Starts the server of one of [`MEMBERS`].
fn serve(cluster: &Cluster, member: usize) -> Result<Server> {
    let (name, host, port) = match member {
        1 => ("port1", cluster.lab.node(0), 8081),
        member => (MEMBERS[member].0, cluster.lab.client(member - 1), 8080),
    };
    let listen = match member {
        1 => vec!["127.0.0.1:8081".parse()?, "[::1]:8081".parse()?],
        _ => vec![([0, 0, 0, 0], port).into(), ([0u16; 8], port).into()],
    };
    let extra = format!("add_header X-Member {name} always;");
    Ok(host.nginx(&ServerOptions { listen, extra, ..ServerOptions::default() })?)
}

/// A keep-alive connection.
fn open(cluster: &Cluster, vip: SocketAddr) -> Result<Connection> {
    Connection::on(cluster.client().tcp_connect(vip, PATIENCE)?, PATIENCE)
}

impl Connection {
    /// Which server has answered; its response is compared with the document.
    fn get(&mut self, document: &Document) -> Result<String> {
        write!(self.stream, "GET {} HTTP/1.1\r\nHost: a\r\n\r\n", document.path)?;
        let response = self.responses.next(false)?.ok_or("the connection has ended")?;
        assert_eq!(response.status, 200);
        assert!(response.body == **document.body, "other bytes");
        let by = response.field("x-member").or(response.field("x-node"));
        Ok(by.ok_or("no server says who it is")?.to_owned())
    }
}

fn vips(cluster: &Cluster) -> [SocketAddr; 2] {
    [(cluster.lab.vip4(), 80).into(), (cluster.lab.vip6(), 80).into()]
}

/// Requests of one connection go back and forth between two nodes of a machine, whichever kind of server they have, and a
/// server of another machine.
#[test]
fn connections_move_between_nodes_of_one_machine() -> Result {
    let pairs: [[&[&str]; 2]; 4] =
        [[&["node0"], &["port1"]], [&["port1"], &["pod2"]], [&["pod2"], &["pod3"]], [&["pod3"], &["node1"]]];
    let machines = Machines::start(pairs[0])?;
    let cluster = &machines.cluster;
    let documents = Documents::of(&cluster.lab)?;
    for pools @ [web, img] in pairs {
        cluster.lab.write_config_text(&config(cluster, pools, &[]))?;
        for process in [cluster.switch(), cluster.agent(0), cluster.agent(1)] {
            process.signal(switchback_lab::Signal::SIGHUP)?;
        }
        cluster.wait_for_listeners("ready")?;
        for vip in vips(cluster) {
            let mut connection = open(cluster, vip)?;
            for turn in 0..6 {
                let (web_document, img_document) = match turn % 2 {
                    0 => (&documents.small, &documents.img_small),
                    _ => (&documents.large, &documents.img_large),
                };
                assert_eq!(connection.get(web_document)?, web[0]);
                assert_eq!(connection.get(img_document)?, img[0]);
            }
        }
    }
    assert_eq!(cluster.node_counter(0, "refused_no_node")?, 0);
    let moved = cluster.switch_status()?["dispatch"]["counts"].clone();
    assert!(cluster.node_counter(0, "released")? >= 70, "{moved}");
    machines.cluster.down()
}

/// A switch that begins anew, under load over a path with loss, gives requests of connections to the nodes that have these.
#[test]
fn a_switch_that_begins_anew_finds_the_node_of_each_connection() -> Result {
    let mut machines = Machines::start([&["node0", "pod2"], &["port1", "pod3", "node1"]])?;
    let cluster = &machines.cluster;
    let documents = Documents::of(&cluster.lab)?;
    let mut connections = Vec::new();
    for turn in 0..20 {
        let mut connection = open(cluster, vips(cluster)[turn % 2])?;
        let document = if turn % 4 < 2 { &documents.small } else { &documents.img_small };
        let by = connection.get(document)?;
        connections.push((connection, document.clone(), by));
    }
    let known: BTreeSet<&str> = connections.iter().map(|(.., by)| by.as_str()).collect();
    assert_eq!(known.into_iter().collect::<Vec<_>>(), ["node0", "node1", "pod2", "pod3", "port1"]);
    cluster.client().set_loss(10, 10)?;
    let begun = thread::scope(|scope| -> Result<_> {
        let load = |v6: bool| -> Result {
            let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
            let responses = fetch(cluster.client(), &alternating(&documents, 300, url), &[], TIMEOUT)?;
            assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
            Ok(())
        };
        let loads = [false, true].map(|v6| scope.spawn(move || load(v6)));
        thread::sleep(Duration::from_millis(500));
        cluster.switch().kill()?;
        let begun = cluster.spawn_switch()?;
        loads.into_iter().try_for_each(|load| load.join().expect("all on one connection"))?;
        Ok(begun)
    })?;
    cluster.client().set_loss(0, 0)?;
    machines.cluster.replace_switch(begun);
    // A request of the same pool goes to the same node, although nobody but the node knows that.
    machines.cluster.stop_switch()?;
    machines.cluster.start_switch()?;
    machines.cluster.wait_for_listeners("ready")?;
    for (connection, document, by) in &mut connections {
        assert_eq!(connection.get(document)?, *by);
    }
    machines.cluster.down()
}

/// The nodes of a machine are ill, drained and counted one by one.
#[test]
fn each_node_of_a_machine_stands_for_itself() -> Result {
    let all: &[&str] = &["node0", "port1", "pod2", "pod3", "node1"];
    let mut machines = Machines::start([all, all])?;
    let small = Document::of(&machines.cluster.lab, "/small")?;
    let mut connections = Vec::new();
    for turn in 0..20 {
        let cluster = &machines.cluster;
        let mut connection = open(cluster, vips(cluster)[turn % 2])?;
        let by = connection.get(&small)?;
        connections.push((connection, by));
    }
    for (name, _) in MEMBERS {
        assert_eq!(connections.iter().filter(|(_, by)| by == name).count(), 4, "{name}");
        assert_eq!(machines.view(name)?["adopted"], 4, "{name}");
        let own = |status: &Value| -> Option<Value> {
            let own = status["nodes"].as_array()?.iter().find(|own| own["name"] == name)?;
            Some(own["flows"].clone())
        };
        let status = machines.cluster.node_status(0)?;
        assert_eq!(own(&status), Some(4.into()), "{name}: {status}");
    }

    // One of them loses its server: its connections go on at others.
    for member in [1, 3] {
        machines.servers[member].take().ok_or("its server")?.stop()?;
        let name = MEMBERS[member].0;
        wait_until("it is ill", PATIENCE, || machines.states(name), |states| !states.contains("up"))?;
        for (other, _) in MEMBERS.iter().filter(|(other, _)| *other != name) {
            assert_eq!(machines.states(other)?.into_iter().collect::<Vec<_>>(), ["up"], "{other}");
        }
        for (connection, by) in &mut connections {
            let before = std::mem::replace(by, connection.get(&small)?);
            assert!(*by != name && (before == name || *by == before), "{before}, then {by}");
        }
        machines.servers[member] = Some(serve(&machines.cluster, member)?);
        machines.wait_for(name, "up")?;
    }

    // One of them drains.
    let drained =
        machines.cluster.run(machines.cluster.lab.switch(0), &["drain", "pod2", "--timeout", "20s"])?;
    drained.success()?;
    assert_eq!(machines.view("pod2")?["draining"], true);
    for (other, _) in MEMBERS.iter().filter(|(other, _)| *other != "pod2") {
        assert_eq!(machines.states(other)?.into_iter().collect::<Vec<_>>(), ["up"], "{other}");
    }
    for (connection, by) in &mut connections {
        *by = connection.get(&small)?;
        assert_ne!(by, "pod2");
    }
    // So do commands at its own agent, which is one for all.
    let undrained = machines.cluster.run(machines.cluster.lab.node(0), &["undrain", "pod2"])?;
    undrained.success()?;
    let undrained = machines.cluster.run(machines.cluster.lab.switch(0), &["undrain", "pod2"])?;
    undrained.success()?;
    machines.wait_for("pod2", "up")?;
    machines.cluster.down()
}

/// A node that leaves the configuration keeps its connections until their next requests, which go to others.
#[test]
fn a_node_that_leaves_the_file_gives_its_connections_to_others() -> Result {
    let machines = Machines::start([&["pod2", "pod3"], &["port1"]])?;
    let cluster = &machines.cluster;
    let small = Document::of(&cluster.lab, "/small")?;
    let mut connections = Vec::new();
    for _ in 0..4 {
        let mut connection = open(cluster, vips(cluster)[0])?;
        let by = connection.get(&small)?;
        connections.push((connection, by));
    }
    let text = config(cluster, [&["pod3"], &["port1"]], &[]);
    let start = text.find("[[node]]\nname = \"pod2\"").ok_or("the node")?;
    let end = start + text[start..].find("\n\n").ok_or("its end")?;
    cluster.lab.write_config_text(&(text[..start].to_owned() + &text[end..]))?;
    // The agent first: the switch still knows the node.
    cluster.agent(0).signal(switchback_lab::Signal::SIGHUP)?;
    thread::sleep(Duration::from_secs(3));
    cluster.switch().signal(switchback_lab::Signal::SIGHUP)?;
    for (connection, _) in &mut connections {
        let by = connection.get(&small)?;
        assert!(by == "pod2" || by == "pod3", "{by}");
    }
    wait_until(
        "its idle connections have left",
        PATIENCE,
        || cluster.node_status(0),
        |status| status["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3),
    )?;
    for (connection, _) in &mut connections {
        assert_eq!(connection.get(&small)?, "pod3");
    }
    machines.cluster.down()
}
