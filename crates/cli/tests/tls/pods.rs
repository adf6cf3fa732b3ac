//! Machines that end TLS for several nodes each, with servers in namespaces behind a bridge, as those of containers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use switchback_lab::{Host, Server, ServerOptions};

use crate::common::http::add_long_document;
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use crate::{Connection, NAME, curl, tls_status, url};

/// Nodes of both machines, their containers, and the ports of their servers: HTTP/1.1 at 8080, HTTP/2 at 8081.
const NODES: [[(&str, usize, u16); 4]; 2] = [
    [("node0", 0, 8080), ("pod0", 1, 8080), ("two0", 0, 8081), ("twin0", 1, 8081)],
    [("node1", 2, 8080), ("pod1", 3, 8080), ("two1", 2, 8081), ("twin1", 3, 8081)],
];
const WEB: [&str; 4] = ["node0", "pod0", "node1", "pod1"];
/// Requests of a client on one connection: 20 for each pool.
const PATHS: &str = "/{small,img/small,two/small}?[1-20]";

fn ip(host: &Host, line: &str) -> Result {
    host.run(std::iter::once("ip").chain(line.split(' ')))?.success()?;
    Ok(())
}

/// A host that only its machine reaches.
fn container(cluster: &Cluster, number: usize) -> &Host {
    cluster.lab.client(number + 1)
}

/// The address of a container.
fn address(number: usize) -> String {
    format!("10.1.{}.{}", number / 2, 2 + number % 2)
}

/// The configuration, with all nodes but these.
fn config(cluster: &Cluster, without: &[&str]) -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n".to_owned();
    for (machine, nodes) in NODES.iter().enumerate() {
        for (name, number, port) in nodes.iter().filter(|(name, ..)| !without.contains(name)) {
            let (machine, inside) = (cluster.lab.node(machine).ipv4(), address(*number));
            text += &format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{machine}\"\nserver = \"{inside}:{port}\"\n\n"
            );
        }
    }
    let pools: [(&str, &[&str], &str); 3] = [
        ("web", &WEB, ""),
        ("img", &["pod0", "pod1"], ""),
        ("two", &["two0", "twin0", "two1", "twin1"], "protocol = \"h2c\"\n"),
    ];
    for (name, nodes, protocol) in pools {
        let nodes: Vec<_> = nodes.iter().filter(|node| !without.contains(node)).collect();
        text += &format!(
            "[[pool]]\nname = \"{name}\"\nnodes = {nodes:?}\npolicy = \"round-robin\"\n{protocol}\
             [pool.health]\ninterval = \"200ms\"\ntimeout = \"200ms\"\n\n"
        );
    }
    text + "[[service]]\nname = \"secure\"\nlisten = [\"{vip4}:443\", \"[{vip6}]:443\"]\n\n[service.tls]\n\n\
            [[service.tls.certificate]]\nchain = \"shop.pem\"\nkey = \"shop.key\"\n\n\
            [[service.route]]\npath = \"/img/\"\npool = \"img\"\n\n\
            [[service.route]]\npath = \"/two/\"\npool = \"two\"\n\n[[service.route]]\npool = \"web\"\n"
}

fn serve(cluster: &Cluster, number: usize) -> Result<Server> {
    let (listen, extra) = (vec![([0, 0, 0, 0], 8080).into()], "listen 8081 http2;".to_owned());
    Ok(container(cluster, number).nginx(&ServerOptions { listen, extra, ..ServerOptions::default() })?)
}

/// The cluster, and the servers of its four containers.
fn start() -> Result<(Cluster, Vec<Option<Server>>)> {
    let plan = Plan { clients_len: 5, tls: Some(String::new()), ..Plan::default() };
    let mut cluster = Cluster::prepare(plan)?;
    cluster.lab.add_document("two/small", &[b'2'; 200])?;
    for machine in 0..2 {
        let host = cluster.lab.node(machine);
        ip(host, "link add bridge0 type bridge")?;
        ip(host, &format!("addr add 10.1.{machine}.1/24 dev bridge0"))?;
        ip(host, "link set bridge0 up")?;
        for number in [2 * machine, 2 * machine + 1] {
            let (inside, port) = (container(&cluster, number), format!("port{number}"));
            ip(inside, "link set eth0 down")?;
            ip(host, &format!("link add {port} type veth peer name eth1 netns {}", inside.namespace_name()))?;
            ip(host, &format!("link set {port} master bridge0"))?;
            ip(host, &format!("link set {port} up"))?;
            ip(inside, &format!("addr add {}/24 dev eth1", address(number)))?;
            ip(inside, "link set eth1 up")?;
        }
    }
    cluster.lab.write_config_text(&config(&cluster, &[]))?;
    let servers = (0..4).map(|number| serve(&cluster, number).map(Some)).collect::<Result<_>>()?;
    cluster.start_daemons()?;
    cluster.wait_for_listeners("ready")?;
    wait_for(&cluster, |_, state| state == "up")?;
    Ok((cluster, servers))
}

/// Until the switch has heard this of all nodes: name, and state of each listener.
fn wait_for(cluster: &Cluster, is_so: impl Fn(&str, &str) -> bool) -> Result {
    let is_so = |status: &Value| {
        let nodes = status["nodes"].as_array().into_iter().flatten();
        nodes.into_iter().all(|node| {
            let listeners = node["listeners"].as_array().into_iter().flatten();
            let states: Vec<&str> = listeners.filter_map(|listener| listener["state"].as_str()).collect();
            !states.is_empty() && states.iter().all(|state| is_so(node["name"].as_str().unwrap_or(""), state))
        })
    };
    wait_until("the nodes are so", PATIENCE, || cluster.switch_status(), is_so)?;
    Ok(())
}

/// The number of the container that has this name.
fn number(host: &str) -> Result<usize> {
    let number = host.strip_prefix("client").and_then(|number| number.parse::<usize>().ok());
    Ok(number.ok_or_else(|| format!("{host} is no container"))? - 1)
}

/// Who has answered the requests of one client, paths and containers; and its connections.
fn ask_all(cluster: &Cluster, http: &str) -> Result<(Vec<(String, usize)>, usize)> {
    let format = "%{url_effective} %{http_version} %{num_connects} %header{x-node}\n";
    let all = format!("https://{NAME}{PATHS}");
    let said = curl(cluster, &[http, "--fail", "-w", format, "-o", "/dev/null", &all])?;
    let (mut answers, mut connections) = (Vec::new(), 0);
    for line in said.lines() {
        let [url, version, connects, by] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(said.into());
        };
        assert_eq!(version, if http == "--http2" { "2" } else { "1.1" });
        connections += connects.parse::<usize>()?;
        let path = url.trim_start_matches(&format!("https://{NAME}"));
        answers.push((path.split('?').next().unwrap_or(path).to_owned(), number(by)?));
    }
    assert_eq!(answers.len(), 60, "{said}");
    Ok((answers, connections))
}

/// Who has answered the requests of one connection.
fn ask(cluster: &Cluster, http: &str) -> Result<Vec<(String, usize)>> {
    let (answers, connections) = ask_all(cluster, http)?;
    assert_eq!(connections, 1, "{http}");
    Ok(answers)
}

/// How many of these answers each container has given for a path.
fn shares(answers: &[(String, usize)], path: &str) -> BTreeMap<usize, usize> {
    let mut shares = BTreeMap::new();
    for (_, by) in answers.iter().filter(|(of, _)| of == path) {
        *shares.entry(*by).or_default() += 1;
    }
    shares
}

fn reload(cluster: &Cluster, text: &str) -> Result {
    cluster.lab.write_config_text(text)?;
    for host in [cluster.lab.node(0), cluster.lab.node(1), cluster.lab.switch(0)] {
        cluster.run(host, &["reload"])?.success()?;
    }
    Ok(())
}

/// The container that answers a connection's next request.
fn next(connection: &mut Connection) -> Result<usize> {
    let answer = connection.ask("get /small")?;
    match answer.split(' ').collect::<Vec<_>>()[..] {
        ["200", by, ..] => number(by),
        _ => Err(answer.into()),
    }
}

#[test]
fn a_machine_ends_tls_for_several_nodes() -> Result {
    let (cluster, mut servers) = start()?;

    // Each connection is at the node that the policy has chosen. Requests for pools with this node go to its server, others are
    // shared out among their nodes on the machine.
    for http in ["--http1.1", "--http2"] {
        let mut begun = BTreeSet::new();
        for _ in 0..4 {
            let answers = ask(&cluster, http)?;
            let web = shares(&answers, "/small");
            let (own, count) = web.first_key_value().ok_or("no answer")?;
            assert_eq!((web.len(), *count), (1, 20), "{http}: {web:?}");
            begun.insert(*own);
            let machine = own / 2;
            assert_eq!(shares(&answers, "/img/small"), BTreeMap::from([(2 * machine + 1, 20)]), "{http}");
            let both = BTreeMap::from([(2 * machine, 10), (2 * machine + 1, 10)]);
            assert_eq!(shares(&answers, "/two/small"), both, "{http}");
        }
        assert_eq!(begun.len(), 4, "{http}");
    }
    for machine in 0..2 {
        let status = tls_status(&cluster, machine)?;
        assert_eq!((&status["given"], &status["forwarded"]), (&0.into(), &0.into()), "{status}");
    }

    // A server is lost: not one request of the connections at its node.
    let mut connections = (0..4).map(|_| Connection::open(&cluster)).collect::<Result<Vec<_>>>()?;
    let all =
        |connections: &mut Vec<Connection>| connections.iter_mut().map(next).collect::<Result<Vec<_>>>();
    let before = all(&mut connections)?;
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 4, "{before:?}");
    servers[1].take().ok_or("its server")?.kill()?;
    let after = all(&mut connections)?;
    let expected: Vec<usize> = before.iter().map(|by| if *by == 1 { 0 } else { *by }).collect();
    assert_eq!(after, expected);
    wait_for(&cluster, |node, state| (state == "up") != ["pod0", "twin0"].contains(&node))?;
    for http in ["--http1.1", "--http2"] {
        let answers: Vec<_> = (0..3).map(|_| ask(&cluster, http)).collect::<Result<Vec<_>>>()?.concat();
        assert!(answers.iter().all(|(_, by)| *by != 1), "{http}");
        // The machine has no other server of this pool.
        assert_eq!(shares(&answers, "/img/small"), BTreeMap::from([(3, 60)]), "{http}");
    }
    servers[1] = Some(serve(&cluster, 1)?);
    wait_for(&cluster, |_, state| state == "up")?;
    cluster.down()
}

/// Under load, and with a download from each server under way: no request fails, and none is given to a node that has left.
#[test]
fn nodes_of_a_machine_that_ends_tls_come_and_go() -> Result {
    let (cluster, _servers) = start()?;
    let large = add_long_document(&cluster.lab, "/long", 4)?.body;
    let mut kept = (0..4).map(|_| Connection::open(&cluster)).collect::<Result<Vec<_>>>()?;
    let mut begun = kept.iter_mut().map(next).collect::<Result<Vec<_>>>()?;
    begun.sort_unstable();
    assert_eq!(begun, [0, 1, 2, 3]);
    let is_over = AtomicBool::new(false);
    let load = |http: &str| -> Result {
        while !is_over.load(Ordering::Relaxed) {
            // A node that leaves tells clients in HTTP/2 to take another connection.
            let (_, connections) = ask_all(&cluster, http)?;
            assert!(connections == 1 || http == "--http2", "{connections}");
        }
        Ok(())
    };
    let download = |number: usize| -> Result {
        let file = cluster.lab.directory().join(format!("got{number}"));
        let said = curl(
            &cluster,
            &["--limit-rate", "2M", "-w", "%{response_code}", "-o", text(&file), &url("/long")],
        )?;
        assert!(said == "200" && std::fs::read(&file)? == *large);
        Ok(())
    };
    thread::scope(|scope| -> Result {
        let loads = ["--http1.1", "--http2"].map(|http| scope.spawn(move || load(http)));
        let downloads = [0, 1, 2, 3].map(|number| scope.spawn(move || download(number)));
        let mut steps = || -> Result {
            // One is drained by command.
            cluster.run(cluster.lab.node(0), &["drain", "--no-wait", "node0"])?.success()?;
            for connection in &mut kept {
                assert_ne!(next(connection)?, 0);
            }
            cluster.run(cluster.lab.node(0), &["undrain", "node0"])?.success()?;
            // One leaves the file, and comes back.
            for without in [&["pod1", "two1"][..], &[]] {
                reload(&cluster, &config(&cluster, without))?;
                for connection in &mut kept {
                    let by = next(connection)?;
                    assert!(by != 3 || without.is_empty(), "{by}");
                }
            }
            wait_for(&cluster, |_, state| state == "up")
        };
        let stepped = steps();
        is_over.store(true, Ordering::Relaxed);
        for thread in loads.into_iter().chain(downloads) {
            thread.join().expect("no panic")?;
        }
        stepped
    })?;
    cluster.down()
}
