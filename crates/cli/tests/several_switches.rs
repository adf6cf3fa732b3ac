//! Three switches for the same VIPs behind a router, which spreads the flows over them: BIRD by BGP with BFD, from the files
//! in `packaging/bird`. Switches go and come back under load, and no client notices.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::announced::{Switch, routes_lead_to};
use common::document::block;
use common::http::{Document, Documents, alternating, download_until, fetch};
use common::steady::{Served, Steady};
use common::{PATIENCE, Result, alone, start_daemon, stop, traces, wait_until};
use nix::sys::signal::Signal;
use switchback_lab::{Lab, Routing, ServerOptions, Topology};

const SWITCHES: usize = 3;
const NODES: usize = 3;
/// Requests that the switches have to pass on before the next one goes.
const BETWEEN: u64 = 2000;
/// Longer than BFD takes, with time for a machine that is busy, and much shorter than BGP's hold time of 240 s.
const OUT_WITHIN: Duration = Duration::from_secs(3);
const KEPT: Steady = Steady { clients: 90, pause: Duration::from_millis(40), close: false };
const FRESH: Steady = Steady { clients: 12, pause: Duration::from_millis(40), close: true };
/// For each family.
const DOWNLOADS: usize = 4;
const DOWNLOAD_WITHIN: Duration = Duration::from_secs(60);
/// For each family: clients that send a request in pieces, with a pause between them in which the switch acknowledges.
const TYPISTS: usize = 8;
const TYPED: [&[u8]; 3] = [b"GET /small HT", b"TP/1.1\r\nHost: ", b"a\r\n\r\n"];
const BETWEEN_PIECES: Duration = Duration::from_millis(400);
/// Connections whose requests go to two pools in turn, and so from node to node.
const ALTERNATING: usize = 16;

/// Waits until these switches have each passed on requests, and together many.
fn all_are_used(switches: &[&Switch<'_>]) -> Result {
    let requests = || switches.iter().map(|switch| switch.requests()).collect::<Result<Vec<_>>>();
    let before = requests()?;
    wait_until("requests", PATIENCE, requests, |now| {
        let new: Vec<u64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
        new.iter().sum::<u64>() > BETWEEN && new.iter().all(|new| *new > 0)
    })?;
    Ok(())
}

fn assert_unharmed(what: &str, served: &Served) {
    println!("{what}: {} requests, the slowest {:?}", served.requests, served.slowest);
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "{what}: idle connections were closed");
}

/// Sends requests in pieces on one connection until `over`; how many were answered.
fn type_slowly(vip: SocketAddr, answer: &[u8], over: &AtomicBool) -> Result<usize> {
    let mut stream = TcpStream::connect_timeout(&vip, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        for piece in TYPED {
            stream.write_all(piece)?;
            thread::sleep(BETWEEN_PIECES);
        }
        let mut response = Vec::new();
        while !response.ends_with(answer) {
            let mut part = [0; 4096];
            let len = stream.read(&mut part)?;
            if len == 0 || !b"HTTP/1.1 200 OK".starts_with(&response[..response.len().min(15)]) {
                return Err(format!("after {count} requests: {}", String::from_utf8_lossy(&response)).into());
            }
            response.extend_from_slice(&part[..len]);
        }
        count += 1;
    }
    Ok(count)
}

/// Cuts off, kills, ends and restarts switches, and waits after each change until all that are left are used.
fn change_switches(lab: &Lab, config: &Path, [first, second, third]: &mut [Switch<'_>; SWITCHES]) -> Result {
    let out = |how: &str, left: &[usize]| -> Result {
        let took = routes_lead_to(lab, left)?;
        println!("{how}: out of the routes after {took:?}");
        assert!(took < OUT_WITHIN, "{how}: {took:?}");
        Ok(())
    };
    all_are_used(&[first, second, third])?;
    first.host.cut_link()?;
    out("cut off", &[1, 2])?;
    all_are_used(&[second, third])?;
    first.host.mend_link()?;
    println!("no longer cut off: in after {:?}", routes_lead_to(lab, &[0, 1, 2])?);
    all_are_used(&[first, second, third])?;

    second.kill()?;
    out("killed", &[0, 2])?;
    all_are_used(&[first, third])?;
    second.start_again()?;
    println!("started again: in after {:?}", routes_lead_to(lab, &[0, 1, 2])?);
    all_are_used(&[first, second, third])?;

    // BIRD goes on, and `switchback ready` tells.
    third.switch.kill()?;
    out("its process killed", &[0, 1])?;
    all_are_used(&[first, second])?;
    third.switch = start_daemon(third.host, "switch", config)?;
    println!("its process started again: in after {:?}", routes_lead_to(lab, &[0, 1, 2])?);
    all_are_used(&[first, second, third])?;

    // It serves until the router has heard that it ends.
    third.switch.signal(Signal::SIGTERM)?;
    out("told to end", &[0, 1])?;
    let ended = third.switch.wait_timeout(Duration::ZERO)?;
    assert_eq!(ended, None, "it has ended before its routes");
    let ended = third.switch.wait_timeout(PATIENCE)?.ok_or("it does not end")?;
    assert!(ended.success(), "{ended}");
    all_are_used(&[first, second])?;
    third.switch = start_daemon(third.host, "switch", config)?;
    println!("started again: in after {:?}", routes_lead_to(lab, &[0, 1, 2])?);
    all_are_used(&[first, second, third])
}

/// Asks for documents of two pools in turn on one connection, one after the other, until it is over.
fn alternate(lab: &Lab, documents: &Documents, index: usize, over: &AtomicBool) -> Result<usize> {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let base = match index % 2 {
            0 => format!("http://{}", lab.vip4()),
            _ => format!("http://[{}]", lab.vip6()),
        };
        let gets = alternating(documents, 100, |path| format!("{base}{path}"));
        let responses = fetch(lab.client(0), &gets, &["--limit-rate", "20M"], Duration::from_secs(60))?;
        let connects: u64 = responses.iter().map(|response| response.connects).sum();
        let slowest = responses.iter().map(|response| response.time).max().unwrap_or_default();
        assert_eq!(connects, 1, "connections were lost; the slowest request took {slowest:?}");
        count += responses.len();
    }
    Ok(count)
}

#[test]
fn switches_go_and_come_back_and_no_client_notices() -> Result {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).routing(Routing::Bird);
    let lab = lab.switches(SWITCHES).nodes(NODES).up()?;
    let long = Document { path: "/long", body: Arc::new(block(5).repeat(12)) };
    lab.add_document("long", &long.body)?;
    lab.add_document("img/small", &[b'#'; 200])?;
    lab.add_document("img/1m", &block(1))?;
    let plan = common::Plan {
        servers: vec![switchback_lab::ServerKind::Nginx; NODES],
        pools: vec![("web", vec![0]), ("img", vec![1, 2])],
        ..Default::default()
    };
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    let servers = ServerOptions { extra: "keepalive_requests 1000000;".to_owned(), ..Default::default() };
    let mut agents = Vec::new();
    for node in lab.nodes() {
        node.nginx(&servers)?;
        agents.push(start_daemon(node, "node", &config)?);
    }
    let switches = lab.switches().map(|host| Switch::start(host, &config));
    let mut switches: [Switch<'_>; SWITCHES] =
        switches.collect::<Result<Vec<_>>>()?.try_into().map_err(|_| "three switches")?;
    println!("all announced after {:?}", routes_lead_to(&lab, &[0, 1, 2])?);

    let over = AtomicBool::new(false);
    let documents = Documents::of(&lab)?;
    let urls = [format!("http://{}/long", lab.vip4()), format!("http://[{}]/long", lab.vip6())];
    let small = Document::of(&lab, "/small")?;
    let (client, small) = (lab.client(0), (small.path, &small.body[..]));
    let vips = [SocketAddr::new(lab.vip4().into(), 80), SocketAddr::new(lab.vip6().into(), 80)];
    let (worked, downloads, alternated, typed) = thread::scope(|scope| {
        let urls = urls.iter().flat_map(|url| [url; DOWNLOADS]);
        let (lab, long, documents, over) = (&lab, &long, &documents, &over);
        let downloads: Vec<_> = urls
            .map(|url| scope.spawn(move || download_until(client, url, long, DOWNLOAD_WITHIN, over)))
            .collect();
        let alternates: Vec<_> = (0..ALTERNATING)
            .map(|index| scope.spawn(move || alternate(lab, documents, index, over)))
            .collect();
        let typists: Vec<_> = vips
            .into_iter()
            .flat_map(|vip| [vip; TYPISTS])
            .map(|vip| {
                let answer = small.1;
                scope.spawn(move || client.enter(|| type_slowly(vip, answer, over))?)
            })
            .collect();
        let worked = KEPT.run_beside(client, vips[0], small, || {
            KEPT.run_beside(client, vips[1], small, || {
                FRESH.run_beside(client, vips[0], small, || change_switches(lab, &config, &mut switches))
            })
        });
        over.store(true, Ordering::Relaxed);
        let downloads = downloads.into_iter().map(|download| download.join().expect("it does not panic"));
        let alternated = alternates.into_iter().map(|one| one.join().expect("it does not panic"));
        let typed = typists.into_iter().map(|typist| typist.join().expect("it does not panic"));
        (worked, downloads.collect::<Vec<_>>(), alternated.collect::<Vec<_>>(), typed.collect::<Vec<_>>())
    });
    let ((((), fresh), kept6), kept4) = worked?;
    assert_unharmed("kept connections, IPv4", &kept4);
    assert_unharmed("kept connections, IPv6", &kept6);
    assert_unharmed("new connections", &fresh);
    let downloads = downloads.into_iter().sum::<Result<usize>>()?;
    println!("{downloads} downloads, every byte right");
    let typed = typed.into_iter().sum::<Result<usize>>()?;
    println!("{typed} requests in pieces, each client on one connection");
    let alternated = alternated.into_iter().sum::<Result<usize>>()?;
    println!("{alternated} requests to two pools in turn, each client on one connection");

    switches.iter().try_for_each(|switch| stop(&switch.switch))?;
    routes_lead_to(&lab, &[])?;
    agents.iter().try_for_each(stop)?;
    for host in lab.switches().chain(lab.nodes()) {
        let traces = traces::of(host)?;
        assert!(traces.is_empty(), "left on {}: {traces:#?}", host.name());
    }
    lab.down()?;
    Ok(())
}
