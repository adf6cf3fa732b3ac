//! What the daemons tell over HTTP: metrics, health and readiness, and the page.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::browser::Browser;
use common::http::{Documents, fetch};
use common::openmetrics::{self, Metrics};
use common::steady::Steady;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::Host;
use switchback_wire::{NodeCounter, SwitchCounter};

const ADDRESS: &str = "http://127.0.0.1:9180";

fn start() -> Result<Cluster> {
    Cluster::start_with(Plan { admin: true, ..Plan::default() })
}

/// Status and body.
fn ask(host: &Host, path: &str) -> Result<(u16, String)> {
    let url = format!("{ADDRESS}{path}");
    let said =
        host.run(["curl", "-sS", "--max-time", "5", "--write-out", "%{response_code}", &url])?.success()?;
    let (body, status) = said.split_at(said.len() - 3);
    Ok((status.parse()?, body.to_owned()))
}

fn scrape(host: &Host) -> Result<Metrics> {
    let (status, text) = ask(host, "/metrics")?;
    assert_eq!(status, 200, "{text}");
    Ok(openmetrics::parse(&text)?)
}

#[test]
fn metrics_are_what_happens() -> Result {
    const REQUESTS: usize = 20;
    let cluster = start()?;
    let (switch, documents) = (cluster.lab.switch(0), Documents::of(&cluster.lab)?);
    let before = scrape(switch)?;
    let img = (cluster.url4("/img/small"), documents.img_small.clone());
    let mut gets = vec![(cluster.url4("/small"), documents.small.clone()); REQUESTS];
    gets.push(img);
    fetch(cluster.client(), &gets, &[], PATIENCE)?;
    let missing =
        cluster.client().run(["curl", "-s", "--max-time", "5", "--request", "BAD?", &cluster.url4("/")]);
    missing?.success()?;
    let after = scrape(switch)?;
    let grown = |name: &str, labels: &[(&str, &str)]| {
        after.sum(name, labels).unwrap_or(f64::NAN) - before.sum(name, labels).unwrap_or(0.0)
    };
    assert_eq!(grown("switchback_requests_total", &[("service", "shop")]), REQUESTS as f64 + 1.0);
    assert_eq!(grown("switchback_switch_node_requests_total", &[("node", "node0")]), REQUESTS as f64);
    assert_eq!(grown("switchback_switch_node_requests_total", &[("node", "node1")]), 1.0);
    assert_eq!(grown("switchback_switch_node_adoptions_total", &[]), 2.0);
    assert_eq!(grown("switchback_dispatch_answered_total", &[("code", "400")]), 1.0);
    assert_eq!(grown("switchback_dispatch_refused_requests_total", &[]), 1.0);
    assert!(grown("switchback_switch_syn_answered_total", &[]) >= 2.0);
    assert!(grown("switchback_dispatch_reports_total", &[]) > 0.0);
    for (name, value) in [("up", 1.0), ("suspect", 0.0), ("draining", 0.0), ("next_hop_resolved", 1.0)] {
        let name = format!("switchback_switch_node_{name}");
        assert_eq!(
            after.samples(&name, &[]).map(|sample| sample.value).collect::<Vec<_>>(),
            [value; 2],
            "{name}"
        );
    }
    let queue = [("node", "node0"), ("pool", "web")];
    assert!(after.sum("switchback_switch_node_accept_queue_limit", &queue) > Some(0.0));
    for counter in SwitchCounter::ALL {
        let name = format!("switchback_switch_{}_total", counter.name());
        assert!(after.sum(&name, &[]).is_some(), "{name}");
    }
    // HELLOs come meanwhile.
    let before = cluster.node_status(0)?;
    let node = scrape(cluster.lab.node(0))?;
    let after = cluster.node_status(0)?;
    for counter in NodeCounter::ALL {
        let name = format!("switchback_node_{}_total", counter.name());
        let [low, high] = [&before, &after].map(|status| common::counter(status, counter.name()));
        let (low, high) = (low? as f64, high? as f64);
        assert!(
            node.sum(&name, &[]).is_some_and(|count| (low..=high).contains(&count)),
            "{name}: {low} to {high}"
        );
    }
    assert_eq!(node.sum("switchback_node_responses_total", &[]), Some(REQUESTS as f64));
    assert_eq!(node.sum("switchback_node_listener_ready", &[("pool", "web")]), Some(2.0), "at both VIPs");

    // Nodes tell of their responses a little later.
    let responses = || -> Result<Option<f64>> {
        Ok(scrape(switch)?.sum("switchback_responses_total", &[("service", "shop"), ("code", "2xx")]))
    };
    wait_until("responses", PATIENCE, responses, |count| *count == Some(REQUESTS as f64 + 1.0))?;
    let told = scrape(switch)?;
    let count =
        |name: &str, labels: &[(&str, &str)]| told.sum(&format!("switchback_{name}"), labels).unwrap_or(0.0);
    let web = [("pool", "web"), ("node", "node0")];
    let length = documents.small.body.len() * REQUESTS;
    assert!(count("response_bytes_total", &web) > length as f64, "bodies and heads");
    for name in ["request_queued", "response_first_byte", "response_duration"] {
        let name = format!("{name}_seconds");
        assert_eq!(count(&format!("{name}_count"), &[("pool", "web")]), REQUESTS as f64, "{name}");
        assert!(count(&format!("{name}_sum"), &[("pool", "web")]) > 0.0, "{name}");
    }

    let top = cluster.run(switch, &["top", "--once"])?.success()?;
    let requests = format!("{}", REQUESTS + 1);
    assert!(top.lines().any(|line| line.starts_with("shop") && line.ends_with(&requests)), "{top}");
    assert!(["node0  up", "node1  up"].iter().all(|row| top.contains(row)), "{top}");
    let none = cluster.run(cluster.lab.node(0), &["top"])?;
    assert_eq!(none.status.code(), Some(2));
    assert!(none.stderr.contains("switchback status"), "{}", none.stderr);
    cluster.down()
}

#[test]
fn ready_is_who_can_serve() -> Result {
    let mut cluster = start()?;
    let becomes = |host: &Host, path: &str, wanted: u16| {
        wait_until(path, PATIENCE, || ask(host, path), |(status, _)| *status == wanted).map(|(_, said)| said)
    };
    for host in [cluster.lab.switch(0), cluster.lab.node(0), cluster.lab.node(1)] {
        assert_eq!(becomes(host, "/readyz", 200)?, "ok\n");
        assert_eq!(ask(host, "/healthz")?, (200, "ok\n".to_owned()));
    }
    cluster.stop_server(1)?;
    let said = becomes(cluster.lab.node(1), "/readyz", 503)?;
    assert!(said.contains("node node1: pool img at 192.0.2.100:80: nobody listens"), "{said}");
    let said = becomes(cluster.lab.switch(0), "/readyz", 503)?;
    assert_eq!(said, "switch: pool img has no node that is up: node1 no listener\n");
    cluster.start_server(1)?;
    becomes(cluster.lab.switch(0), "/readyz", 200)?;
    cluster.run(cluster.lab.switch(0), &["drain", "node0"])?.success()?;
    assert_eq!(
        becomes(cluster.lab.switch(0), "/readyz", 503)?,
        "switch: pool web has no node that is up: node0 draining\n"
    );
    cluster.run(cluster.lab.switch(0), &["undrain", "node0"])?.success()?;
    becomes(cluster.lab.switch(0), "/readyz", 200)?;
    cluster.kill_node(0)?;
    assert_eq!(
        becomes(cluster.lab.switch(0), "/readyz", 503)?,
        "switch: pool web has no node that is up: node0 silent\n"
    );
    cluster.start_node(0)?;
    becomes(cluster.lab.switch(0), "/readyz", 200)?;
    cluster.down()
}

/// Whether there are metrics at this address.
fn tells(host: &Host, address: &str) -> Result<bool> {
    let url = format!("http://{address}/healthz");
    Ok(host.run(["curl", "-sS", "--fail", "--max-time", "2", &url])?.status.success())
}

/// On, to an address that has the old one, to one that nobody can have, and off, at switch and node.
#[test]
fn a_reload_turns_it_on_moves_it_and_turns_it_off() -> Result {
    let cluster = Cluster::start()?;
    let off = cluster.plan.config(&cluster.lab);
    let on = |lines: &str| format!("{off}\n[admin]\n{lines}\n");
    let hosts = [cluster.lab.switch(0), cluster.lab.node(0)];
    let reload = |text: &str| -> Result<Vec<switchback_lab::Output>> {
        cluster.lab.write_config_text(text)?;
        hosts.iter().map(|host| cluster.run(host, &["reload"])).collect()
    };
    for host in hosts {
        assert!(!tells(host, "127.0.0.1:9180")?);
    }
    for said in reload(&on(""))? {
        assert!(said.success()?.contains("admin: listen (nowhere) -> 127.0.0.1:9180"));
    }
    for host in hosts {
        assert!(
            tells(host, "127.0.0.1:9180")? && !tells(cluster.client(), &format!("{}:9180", host.ipv4()))?
        );
    }
    for said in reload(&on("listen = \"0.0.0.0:9180\""))? {
        assert!(said.success()?.contains("admin: listen 127.0.0.1:9180 -> 0.0.0.0:9180"));
    }
    for host in hosts {
        assert!(tells(cluster.client(), &format!("{}:9180", host.ipv4()))?);
    }
    // The weight is a change that would be right.
    let refused = on("listen = \"192.0.2.77:9180\"").replacen("[[node]]\n", "[[node]]\nweight = 7\n", 1);
    for said in reload(&refused)? {
        assert_eq!(said.status.code(), Some(1));
        assert!(said.stderr.contains("cannot listen on 192.0.2.77:9180, as [admin] says"), "{}", said.stderr);
    }
    for host in hosts {
        assert!(tells(cluster.client(), &format!("{}:9180", host.ipv4()))?);
    }
    for said in reload(&off)? {
        assert_eq!(said.success()?.lines().count(), 1, "the weight was applied");
    }
    for host in hosts {
        assert!(!tells(host, "127.0.0.1:9180")?);
    }
    cluster.down()
}

/// The page of a real switch in a real browser: it shows the load while it is there, and what becomes of a node and of the
/// switch itself.
#[test]
fn the_page_follows_the_cluster() -> Result {
    let mut cluster =
        Cluster::start_with(Plan { admin: true, pools: vec![("web", vec![0, 1])], ..Plan::default() })?;
    let profile = cluster.lab.directory().join("chromium");
    let mut browser = Browser::start(cluster.lab.switch(0).command("sh"), &profile)?;
    browser.open(ADDRESS)?;
    browser.wait_for("document.querySelector('#connection').dataset.state === 'live'")?;
    let load = Steady { clients: 50, pause: Duration::from_millis(100), close: false };
    let (vip, body) = (SocketAddr::new(cluster.lab.vip4().into(), 80), Documents::of(&cluster.lab)?.small);
    let work = || {
        for number in 1..=2 {
            let cell =
                format!("document.querySelector('#nodes tbody tr:nth-child({number}) td:nth-child(2)')");
            browser.wait_for(&format!("parseFloat({cell}.textContent) > 10"))?;
        }
        // There and back: from the clients to both nodes, and past the switch from both to the clients.
        for way in ["there", "back"] {
            let moving = format!("document.querySelectorAll('.pulse.{way}[visibility=visible]').length");
            browser.wait_for(&format!("{moving} === 3"))?;
        }
        browser.wait_for("document.querySelector('#latency').innerText.includes('p99')")?;
        cluster.run(cluster.lab.switch(0), &["drain", "--no-wait", "node1"])?.success()?;
        browser.wait_for("document.querySelector('#drains').innerText.includes('node1')")?;
        browser.wait_for("document.querySelector('#news').textContent === 'node1 is draining'")?;
        cluster.run(cluster.lab.switch(0), &["undrain", "node1"])?.success()?;
        browser.wait_for("document.querySelector('#drains').hidden")?;
        Ok(())
    };
    // Connections that come before a node's first report stay at the other one.
    let states = || {
        let status = cluster.switch_status()?;
        Ok([0, 1].map(|node| status["nodes"][node]["listeners"][0]["state"].clone()))
    };
    wait_until("both nodes", PATIENCE, states, |states| states.iter().all(|state| state == "up"))?;
    let ((), served) = load.run_beside(cluster.client(), vip, (body.path, &body.body), work)?;
    served.assert_all_answered();
    cluster.kill_switch()?;
    browser.wait_for("document.querySelector('#connection').dataset.state === 'lost'")?;
    cluster.start_switch()?;
    browser.wait_for("document.querySelector('#connection').dataset.state === 'live'")?;
    // That the switch was away is all that it may have complained about.
    browser.complaints.retain(|complaint| !complaint.contains("ERR_"));
    browser.close()?;
    cluster.down()
}
