//! A client that knows nodes: after the switch has read the request, the client's packets go to the node, and the switch
//! is out of it. Whatever fails, the connection goes on.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::process::Command;
use std::time::Duration;

use common::http::{Document, Documents, add_long_document, alternating, fetch, start_fetch};
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, counter, nft, status, wait_until};
use switchback_lab::{Host, Impairment, Process, Signal, Topology};

/// How long a long download may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// All clients of a lab, whatever its topology.
const CLIENTS: [&str; 4] = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/64", "2001:db8:1::/64"];
/// So fast is a client where something is to happen in the middle of a download: of 32 MiB, for a second and a half.
const SLOW: u64 = 200_000_000;

fn plan() -> Plan {
    Plan { clients: CLIENTS.to_vec(), ..Plan::default() }
}

/// A client with a shim.
struct Shim<'a> {
    host: &'a Host,
    process: Process,
}

impl<'a> Shim<'a> {
    /// Keys for these addresses, a client.toml with these lines more, and the shim, running.
    fn start(cluster: &'a Cluster, addresses: &[IpAddr], lines: &str) -> Result<Shim<'a>> {
        let (host, lab) = (cluster.client(), &cluster.lab);
        let (key, config) = (host.directory().join("client.key"), host.directory().join("client.toml"));
        let mut words = vec![PROGRAM.to_owned(), "keygen".to_owned(), "--client".to_owned()];
        words.extend(addresses.iter().map(ToString::to_string));
        words.extend(["--config".to_owned(), cluster.config.display().to_string()]);
        words.push(key.display().to_string());
        host.run(words)?.success()?;
        let services = format!("services = [\"{}:80\", \"[{}]:80\"]", lab.vip4(), lab.vip6());
        fs::write(&config, format!("key_file = \"client.key\"\n{services}\n{lines}\n"))?;
        Shim::spawn(host)
    }

    /// For the client's own addresses.
    fn plain(cluster: &'a Cluster) -> Result<Shim<'a>> {
        let host = cluster.client();
        Shim::start(cluster, &[host.ipv4().into(), host.ipv6().into()], "")
    }

    /// With the files that are there.
    fn spawn(host: &'a Host) -> Result<Shim<'a>> {
        let config = host.directory().join("client.toml");
        let mut command = Command::new(PROGRAM);
        command.args(["client", "--interface", "eth0", "--config"]).arg(config);
        let process = host.spawn("shim", command)?;
        process.wait_for_log("client ready", PATIENCE)?;
        Ok(Shim { host, process })
    }

    fn counter(&self, name: &str) -> Result<u64> {
        counter(&status(self.host)?, name)
    }

    fn wait_for(&self, name: &str, at_least: u64) -> Result<u64> {
        wait_until(&format!("the shim's {name}"), PATIENCE, || self.counter(name), |now| *now >= at_least)
    }

    /// SIGTERM, and status 0.
    fn stop(self) -> Result {
        common::stop(&self.process)?;
        let traces = common::traces::of(self.host)?;
        assert!(traces.is_empty(), "left on {}: {traces:#?}", self.host.name());
        Ok(())
    }
}

/// What the switch's program has counted, as a function of the counter's name.
fn switch_counters(cluster: &Cluster) -> Result<impl Fn(&str) -> u64 + use<>> {
    let status = cluster.switch_status()?;
    Ok(move |name: &str| counter(&status, name).expect("a counter of the switch"))
}

/// The switch sees the handshake and the request and nothing more, of a download and of its end.
fn leaves_the_switch(plan: Plan, url: impl Fn(&Cluster, &str) -> String) -> Result {
    let cluster = Cluster::start_with(plan)?;
    let shim = Shim::plain(&cluster)?;
    let document = add_long_document(&cluster.lab, "/100m", 100)?;
    let before = switch_counters(&cluster)?;
    fetch(cluster.client(), &[(url(&cluster, document.path), document.clone())], &[], TIMEOUT)?;
    let closed = || Ok(switch_counters(&cluster)?("closed"));
    wait_until("the connection's end", PATIENCE, closed, |closed| *closed == before("closed") + 1)?;
    let after = switch_counters(&cluster)?;
    let more = |name: &str| after(name) - before(name);
    let direct = shim.counter("direct")?;
    println!(
        "switch: {} SYN, {} ACK, {} request, {} forwarded; direct: {direct}, of which {} asked",
        more("syn_answered"),
        more("handshake_ack"),
        more("request"),
        more("forwarded"),
        shim.counter("asked")?
    );
    assert_eq!((more("syn_answered"), more("handshake_ack"), more("request")), (1, 1, 1));
    assert_eq!(more("forwarded"), 0, "packets of the download, or of its end");
    assert!(direct > 100, "{direct}");
    assert_eq!(cluster.node_counter(0, "direct")?, direct, "all have arrived");
    assert_eq!(shim.counter("fallback")? + shim.counter("gone")?, 0);
    shim.stop()?;
    cluster.down()
}

#[test]
fn a_download_leaves_the_switch_with_handshake_and_request() -> Result {
    leaves_the_switch(plan(), |cluster, path| cluster.url4(path))
}

#[test]
fn a_download_over_ipv6_leaves_the_switch_likewise() -> Result {
    leaves_the_switch(Plan { ipv6_nodes: vec![0, 1], ..plan() }, |cluster, path| cluster.url6(path))
}

/// To it an introduction is an acknowledgment of nothing new.
#[test]
fn a_client_without_a_shim_notices_nothing() -> Result {
    let cluster = Cluster::start_with(plan())?;
    let documents = Documents::of(&cluster.lab)?;
    let gets = alternating(&documents, 200, |path| cluster.url4(path));
    let [_, again] = cluster.sent_again(|| {
        let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
        Ok(())
    })?;
    assert!(again < 10, "{again} of 200 requests were sent again");
    let introduced = cluster.node_counter(0, "introduced")? + cluster.node_counter(1, "introduced")?;
    assert!(introduced > 180, "{introduced}");
    cluster.down()
}

/// The connection changes its node at each request.
#[test]
fn each_request_of_a_connection_goes_to_the_switch() -> Result {
    const REQUESTS: usize = 200;
    let cluster = Cluster::start_with(plan())?;
    let shim = Shim::plain(&cluster)?;
    let documents = Documents::of(&cluster.lab)?;
    let gets = alternating(&documents, REQUESTS, |path| cluster.url4(path));
    let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    assert_eq!(responses.len(), REQUESTS);
    let introduced = shim.counter("introduced")?;
    println!("{introduced} introductions, {} direct packets", shim.counter("direct")?);
    assert!(introduced > REQUESTS as u64 * 9 / 10, "{introduced}");
    assert_eq!(shim.counter("beyond")?, introduced - 1, "one for each later request");
    assert_reload(&cluster)?;
    shim.stop()?;
    cluster.down()
}

/// The node has given the idle connection back, and the client's end meets nobody there.
#[test]
fn an_idle_connection_that_was_taken_from_its_node_ends_at_the_switch() -> Result {
    let cluster = Cluster::start_with(Plan { pools: vec![("web", vec![0, 1])], ..plan() })?;
    let shim = Shim::plain(&cluster)?;
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let mut connection = cluster.client().tcp_connect(vip, PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"HEAD /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let node = usize::from(!String::from_utf8_lossy(&head).contains("node0"));
    let flows = || Ok(cluster.switch_status()?["nodes"][node]["load"]["flows"].clone());
    wait_until("the node's report", PATIENCE, flows, |flows| *flows == 1)?;
    cluster.run(cluster.lab.switch(0), &["drain", &format!("node{node}")])?.success()?;
    connection.shutdown(Shutdown::Write)?;
    assert_eq!(connection.read(&mut [0])?, 0, "the end, and no error");
    assert_eq!((shim.counter("gone")?, shim.counter("fallback")?), (1, 0));
    shim.stop()?;
    cluster.down()
}

/// Packets lost, twice, and late, while the connection changes its node at each request.
#[test]
fn a_bad_path_costs_no_byte() -> Result {
    for tunnel in [false, true] {
        let lines = |node| (node, format!("tunnel = {tunnel}"));
        let cluster = Cluster::start_with(Plan { node_lines: vec![lines(0), lines(1)], ..plan() })?;
        let shim = Shim::plain(&cluster)?;
        let documents = Documents::of(&cluster.lab)?;
        let cable = cluster.client().impair(Impairment {
            loss_permille: 10,
            duplicate_permille: 20,
            reorder_permille: 20,
            hold: Duration::from_millis(20),
            seed: 3,
        })?;
        let gets = alternating(&documents, 100, |path| cluster.url4(path));
        let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
        assert!(cable.to_host().lost.min(cable.from_host().duplicated) > 10, "{:?}", cable.to_host());
        cable.heal()?;
        let (direct, introduced) = (shim.counter("direct")?, shim.counter("introduced")?);
        println!(
            "{direct} direct packets, {introduced} introductions, {} fallbacks",
            shim.counter("fallback")?
        );
        assert!(direct > 200 && introduced > 50, "{direct}, {introduced}");
        shim.stop()?;
        cluster.down()?;
    }
    Ok(())
}

/// All or nothing.
fn assert_reload(cluster: &Cluster) -> Result {
    let host = cluster.client();
    let config = host.directory().join("client.toml");
    let text = fs::read_to_string(&config)?;
    fs::write(&config, format!("{text}thin_acks = 4\n"))?;
    assert_eq!(cluster.run(host, &["reload"])?.success()?, "thin_acks (none) -> 4\n");
    fs::write(&config, format!("{text}thin_acks = 1\n"))?;
    let refused = cluster.run(host, &["reload"])?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("client.toml:4:13: thin_acks 1, allowed are 2 to 64"),
        "{}",
        refused.stderr
    );
    Ok(())
}

/// The kernel gives the program packets that it has yet to cut into segments, and whose checksums are yet to be filled in.
#[test]
fn an_upload_goes_to_the_node() -> Result {
    const BYTES: usize = 32 << 20;
    let server_extra = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let cluster = Cluster::start_with(Plan { server_extra, ..plan() })?;
    let shim = Shim::plain(&cluster)?;
    let client = cluster.client();
    client.run(["ethtool", "-K", "eth0", "tx", "on", "gso", "on", "tso", "on"])?.success()?;
    let body: Vec<u8> = (0..BYTES as u32 / 4).flat_map(u32::to_be_bytes).collect();
    let file = client.directory().join("body");
    fs::write(&file, &body)?;
    let before = switch_counters(&cluster)?;
    let url = cluster.url4("/uploaded");
    client
        .run(["curl", "-sS", "--fail", "-m", "20", "-H", "Expect:", "-T", &file.display().to_string(), &url])?
        .success()?;
    let forwarded = switch_counters(&cluster)?("forwarded") - before("forwarded");
    let (direct, at_node) = (shim.counter("direct")?, cluster.node_counter(0, "direct")?);
    println!("{forwarded} packets forwarded, {direct} sent directly as {at_node} segments");
    let uploaded = Document { path: "/uploaded", body: std::sync::Arc::new(body) };
    fetch(client, &[(url, uploaded)], &[], TIMEOUT)?;
    assert!(at_node > BYTES as u64 / 1500, "{at_node}");
    assert!(at_node > 2 * direct, "nothing had to be cut");
    assert!(forwarded < at_node / 10, "{forwarded}");
    shim.stop()?;
    cluster.down()
}

/// A download at whose half `happens` something.
fn in_the_middle(
    cluster: &Cluster,
    document: &Document,
    shim: &Shim<'_>,
    happens: impl FnOnce() -> Result,
) -> Result {
    cluster.client().set_rate(Some(SLOW))?;
    let before = shim.counter("direct")?;
    let gets = vec![(cluster.url4(document.path), document.clone())];
    let download = start_fetch(cluster.client(), gets, &[], TIMEOUT)?;
    let download = std::thread::spawn(download);
    shim.wait_for("direct", before + 50)?;
    assert!(!download.is_finished(), "it was to be in the middle");
    happens()?;
    download.join().expect("the comparison does not panic")?;
    cluster.client().set_rate(None)?;
    Ok(())
}

#[test]
fn a_shim_that_is_killed_leaves_its_programs_to_the_next() -> Result {
    let cluster = Cluster::start_with(plan())?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let before = switch_counters(&cluster)?;
    let shim = Shim::plain(&cluster)?;
    let mut next = None;
    in_the_middle(&cluster, &document, &shim, || {
        let direct = shim.counter("direct")?;
        shim.process.kill()?;
        let arriving = || cluster.node_counter(0, "direct");
        let now = arriving()?;
        wait_until("packets without a shim", PATIENCE, arriving, |count| *count > now + 50)?;
        let shim = Shim::spawn(cluster.client())?;
        assert!(shim.counter("direct")? > direct + 50, "its counters go on");
        next = Some(shim);
        Ok(())
    })?;
    assert_eq!(switch_counters(&cluster)?("forwarded"), before("forwarded"));
    next.expect("it has been started").stop()?;
    cluster.down()
}

#[test]
fn a_shim_that_ends_leaves_its_flows_to_the_switch() -> Result {
    let cluster = Cluster::start_with(plan())?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let before = switch_counters(&cluster)?;
    let shim = Shim::plain(&cluster)?;
    in_the_middle(&cluster, &document, &shim, || {
        shim.process.signal(Signal::SIGTERM)?;
        let ended = shim.process.wait_timeout(PATIENCE)?;
        assert!(ended.is_some_and(|status| status.success()), "{}", shim.process.log());
        Ok(())
    })?;
    assert!(switch_counters(&cluster)?("forwarded") > before("forwarded") + 50);
    cluster.down()
}

#[test]
fn the_switch_may_be_restarted() -> Result {
    let mut cluster = Cluster::start_with(plan())?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let restarted = {
        let shim = Shim::plain(&cluster)?;
        let switch = cluster.switch().clone();
        let mut restarted = None;
        in_the_middle(&cluster, &document, &shim, || {
            switch.stop()?;
            let process = cluster.spawn_switch()?;
            process.wait_for_log("ready", PATIENCE)?;
            restarted = Some(process);
            Ok(())
        })?;
        assert_eq!(switch_counters(&cluster)?("forwarded"), 0);
        shim.stop()?;
        restarted.expect("it has been started")
    };
    cluster.replace_switch(restarted);
    cluster.down()
}

/// Where nothing but what comes from a switch gets to the node's port.
#[test]
fn a_node_that_is_not_reached_directly_is_reached_by_the_switch() -> Result {
    let cluster = Cluster::start_with(Plan { topology: Topology::Routed, ..plan() })?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let shim = Shim::plain(&cluster)?;
    let router = cluster.lab.router().expect("there is one");
    let cut = "table inet cut {\nchain on-the-way {\ntype filter hook forward priority 0;\n\
               iifname eth0 udp dport 6081 drop\n}\n}\n";
    in_the_middle(&cluster, &document, &shim, || nft(router, cut))?;
    assert_eq!(shim.counter("fallback")?, 1);
    // For a while it is not tried again.
    let documents = Documents::of(&cluster.lab)?;
    fetch(cluster.client(), &[(cluster.url4("/small"), documents.small)], &[], TIMEOUT)?;
    assert_eq!((shim.counter("fallback")?, shim.counter("avoided")?), (1, 1));
    assert_eq!(status(shim.host)?["nodes"][0]["avoided"], true);
    shim.stop()?;
    cluster.down()
}

/// Packets with foreign sources do not get out of the nodes' network.
#[test]
fn a_tunnel_goes_where_a_service_address_does_not() -> Result {
    let tunnel = |node| (node, "tunnel = true".to_owned());
    let node_lines = vec![tunnel(0), tunnel(1)];
    let cluster = Cluster::start_with(Plan { topology: Topology::Routed, node_lines, ..plan() })?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let router = cluster.lab.router().expect("there is one");
    nft(
        router,
        "table ip sources {\nchain on-the-way {\ntype filter hook forward priority 0;\n\
         iifname eth2 ip saddr != 203.0.113.0/24 counter drop\n}\n}\n",
    )?;
    let shim = Shim::plain(&cluster)?;
    let documents = Documents::of(&cluster.lab)?;
    let gets = alternating(&documents, 40, |path| cluster.url4(path));
    let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    fetch(cluster.client(), &[(cluster.url4(document.path), document.clone())], &[], TIMEOUT)?;
    assert!(shim.counter("tunneled")? > 100);
    assert_eq!(shim.counter("fallback")?, 0);

    // Without the shim nothing comes any more, so the program is told.
    let error = in_the_middle(&cluster, &document, &shim, || {
        shim.process.signal(Signal::SIGTERM)?;
        let ended = shim.process.wait_timeout(PATIENCE)?;
        assert!(ended.is_some_and(|status| status.success()), "{}", shim.process.log());
        Ok(())
    });
    let error = error.expect_err("the download cannot go on").to_string();
    assert!(error.contains("Software caused connection abort"), "{error}");
    assert!(
        shim.process.log().contains("connections that needed the tunnel have been closed: "),
        "{}",
        shim.process.log()
    );
    cluster.down()
}

#[test]
fn a_tunnel_goes_by_ipv6_too() -> Result {
    let tunnel = |node| (node, "tunnel = true".to_owned());
    let (node_lines, ipv6_nodes) = (vec![tunnel(0), tunnel(1)], vec![0, 1]);
    let topology = Topology::Routed;
    let cluster = Cluster::start_with(Plan { topology, node_lines, ipv6_nodes, ..plan() })?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    nft(
        cluster.lab.router().expect("there is one"),
        "table ip6 sources {\nchain on-the-way {\ntype filter hook forward priority 0;\n\
         iifname eth2 ip6 saddr != 2001:db8:2::/64 counter drop\n}\n}\n",
    )?;
    let shim = Shim::plain(&cluster)?;
    fetch(cluster.client(), &[(cluster.url6(document.path), document)], &[], TIMEOUT)?;
    assert!(shim.counter("tunneled")? > 100);
    shim.stop()?;
    cluster.down()
}

#[test]
fn a_client_behind_a_nat_is_known_by_the_address_that_the_cluster_sees() -> Result {
    let cluster = Cluster::start_with(Plan { topology: Topology::Routed, ..plan() })?;
    let document = add_long_document(&cluster.lab, "/32m", 32)?;
    let router = cluster.lab.router().expect("there is one");
    nft(
        router,
        "table ip nat {\nchain out {\ntype nat hook postrouting priority 100;\n\
         ip saddr 198.51.100.0/24 oifname != \"eth0\" meta l4proto { tcp, udp } snat to 192.0.2.1:20000-30000\n}\n}\n",
    )?;
    // So that checksums are yet to be filled in when addresses are changed.
    cluster.client().run(["ethtool", "-K", "eth0", "tx", "on"])?.success()?;
    let seen: IpAddr = "192.0.2.1".parse()?;
    let shim = Shim::start(&cluster, &[seen], "")?;
    let before = switch_counters(&cluster)?;
    fetch(cluster.client(), &[(cluster.url4(document.path), document)], &[], TIMEOUT)?;
    let forwarded = switch_counters(&cluster)?("forwarded") - before("forwarded");
    let (direct, shown) = (shim.counter("direct")?, shim.counter("shown")?);
    println!("{forwarded} forwarded, of which {shown} for the NAT, {direct} direct");
    assert_eq!(shim.counter("fallback")?, 0);
    assert!(forwarded <= shown && shown > 0, "{forwarded} forwarded, {shown} shown");
    assert!(direct > 50 && shim.counter("heard")? > 0, "{direct} direct");
    shim.stop()?;
    cluster.down()
}

/// How long it takes over this cable, how many packets the client sends directly, and how many it leaves out.
fn download(
    cluster: &Cluster,
    document: &Document,
    impairment: Impairment,
    lines: &str,
) -> Result<(Duration, u64, u64)> {
    let host = cluster.client();
    let _ = fs::remove_file(host.directory().join("client.key"));
    let shim = Shim::start(cluster, &[host.ipv4().into()], lines)?;
    let gets = [(cluster.url4(document.path), document.clone())];
    let cable = host.impair(impairment)?;
    let time = fetch(host, &gets, &[], TIMEOUT)?[0].time;
    cable.heal()?;
    let counts = (shim.counter("direct")?, shim.counter("thinned")?);
    shim.stop()?;
    Ok((time, counts.0, counts.1))
}

#[test]
fn fewer_acknowledgments_do_as_well() -> Result {
    let cluster = Cluster::start_with(plan())?;
    // The interface takes packets in as they are, many at a time, as network cards do; and the way is not a short one.
    cluster.client().run(["ip", "link", "set", "eth0", "gro_max_size", "1"])?.success()?;
    cluster.client().run(["ethtool", "-K", "eth0", "rx-udp-gro-forwarding", "on"])?.success()?;
    for (loss_permille, path, mebibytes) in [(0, "/32m", 32), (10, "/8m", 8)] {
        let document = add_long_document(&cluster.lab, path, mebibytes)?;
        // None of a download's first packets is lost with this seed, so the introduction arrives.
        let hold = Duration::from_millis(3);
        let impairment =
            Impairment { loss_permille, reorder_permille: 1000, hold, seed: 1, ..Default::default() };
        let (usual, all, none) = download(&cluster, &document, impairment, "")?;
        let (thin, sent, left_out) = download(&cluster, &document, impairment, "thin_acks = 4")?;
        println!(
            "{loss_permille} of 1000 lost: {all} packets in {usual:?}, with thin_acks {sent} ({left_out} left out) \
             in {thin:?}"
        );
        assert_eq!(none, 0);
        assert!(all > 100 && left_out > if loss_permille == 0 { sent / 4 } else { 20 }, "{sent} of {all}");
    }
    cluster.down()
}
