//! A node dies in the middle of responses, and other nodes go on with them on the same connections.

mod common;
#[path = "resume/over_tls.rs"]
mod over_tls;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::announced::{Switch, routes_lead_to};
use common::http::{Document, Response, add_long_document, start_fetch};
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, alone, load, start_daemon, status, stop, wait_until};
use switchback_lab::{Host, Lab, Routing, ServerKind, ServerOptions, Signal, Topology};

/// All packets.
const ALL: u32 = 1000;
const LITTLE: u32 = 10;

/// Number of downloads at the same time, and MiB of each.
fn scale() -> (usize, usize) {
    load((12, 16), (100, 96))
}

fn start(nodes: usize) -> Result<Cluster> {
    start_servers(ServerKind::Nginx, nodes)
}

fn start_servers(server: ServerKind, nodes: usize) -> Result<Cluster> {
    Cluster::start_with(plan(server, nodes))
}

fn plan(server: ServerKind, nodes: usize) -> Plan {
    plan_of("range", server, nodes)
}

fn plan_of(resume: &str, server: ServerKind, nodes: usize) -> Plan {
    Plan {
        servers: vec![server; nodes],
        pools: vec![("web", (0..nodes).collect())],
        pool_lines: format!("resume = \"{resume}\"\n"),
        limits: "resume_after = \"64KiB\"",
        ..Plan::default()
    }
}

/// What a node says of its resumed responses.
fn of_resume(lab: &Lab, node: usize, key: &str) -> Result<u64> {
    let status = status(lab.node(node))?;
    status["resume"][key].as_u64().ok_or_else(|| format!("no {key} in {status}").into())
}

/// Waits until so many responses of all nodes are under way that others could go on with.
fn wait_until_insured(lab: &Lab, count: usize) -> Result {
    let under_way = || (0..lab.nodes().count()).map(|node| of_resume(lab, node, "under_way")).sum();
    wait_until("all responses are insured", PATIENCE, under_way, |sum: &u64| *sum == count as u64)?;
    Ok(())
}

/// `tcp_rmem` of the client, whose kernel takes more than `resume_after` of a response that nobody reads, and never all of it.
const RECEIVE_WINDOW: &str = "4096 262144 4194304";

fn set_receive_window(lab: &Lab) -> Result {
    Ok(lab.client(0).sysctl(&[("ipv4/tcp_rmem", RECEIVE_WINDOW)])?)
}

/// A curl that runs, until it is over.
type Fetching = Box<dyn FnOnce() -> Result<Vec<Response>> + Send>;

/// Downloads of `count` clients by both IP versions, with a small request behind each on the same connection.
struct Downloads<'a> {
    lab: &'a Lab,
    big: Document,
    count: usize,
    scheme: &'static str,
    /// At which each client reads, as curl writes it.
    rate: &'static str,
    /// For curl.
    options: Vec<String>,
    /// Of the request behind each.
    then: Option<&'static str>,
}

impl<'a> Downloads<'a> {
    fn of(lab: &'a Lab, (count, mebibytes): (usize, usize)) -> Result<Self> {
        set_receive_window(lab)?;
        let big = add_long_document(lab, "/big", mebibytes)?;
        let (scheme, rate, then) = ("http", "4M", Some("/small"));
        Ok(Downloads { lab, big, count, scheme, rate, options: Vec::new(), then })
    }

    /// When `work` begins, all of them have been insured, and stand still until then: nobody reads what curl writes. Every third
    /// stands still until `work` is over. Every byte is right; how many clients needed another connection for the small request.
    fn beside(&self, work: impl FnOnce() -> Result) -> Result<u64> {
        let Downloads { lab, big, count, scheme, rate, options, then } = self;
        let then = then.map(|path| Document::of(lab, path)).transpose()?;
        let mut waiting = Vec::new();
        for index in 0..*count {
            let vip = if index % 2 == 0 { lab.vip4().to_string() } else { format!("[{}]", lab.vip6()) };
            let url = |path: &str| format!("{scheme}://{vip}{path}");
            let then = then.iter().map(|small| (url(small.path), small.clone()));
            let gets = std::iter::once((url("/big"), big.clone())).chain(then).collect();
            let options = options.iter().map(String::as_str).chain(["--limit-rate", rate]);
            let options: Vec<&str> = options.collect();
            waiting.push(start_fetch(lab.client(0), gets, &options, PATIENCE * 4)?);
        }
        wait_until_insured(lab, *count)?;
        std::thread::scope(|scope| {
            let read = |wait: Fetching| scope.spawn(move || wait().map_err(|error| error.to_string()));
            let (still, moving): (Vec<_>, Vec<_>) =
                waiting.into_iter().enumerate().partition(|(index, _)| index % 3 == 2);
            let mut running: Vec<_> = moving.into_iter().map(|(_, wait)| read(Box::new(wait))).collect();
            work()?;
            running.extend(still.into_iter().map(|(_, wait)| read(Box::new(wait))));
            let mut anew = 0;
            for download in running {
                let responses = download.join().expect("no panic")?;
                let connects: Vec<u64> = responses.iter().map(|response| response.connects).collect();
                anew += connects[1..].iter().sum::<u64>();
            }
            Ok(anew)
        })
    }

    /// Waits until the responses that the node had under way have gone on elsewhere.
    fn wait_for(&self, resumed: u64) -> Result<Duration> {
        let start = Instant::now();
        let count = || self.lab.switches().map(|switch| dispatched(switch, "resumed")).sum();
        let waited =
            wait_until("all responses have gone on", PATIENCE, count, |count: &u64| *count >= resumed);
        waited.inspect_err(|_| {
            println!("{resumed} responses were under way");
            for host in self.lab.switches().chain(self.lab.nodes()) {
                let of = |key: &str| status(host).map(|status| status[key].to_string());
                println!("{}: {:?}, {:?}", host.name(), of("dispatch"), of("resume"));
            }
        })?;
        Ok(start.elapsed())
    }

    fn dispatched(&self, key: &str) -> Result<u64> {
        dispatched(self.lab.switch(0), key)
    }
}

/// What a switch counts.
fn dispatched(switch: &Host, key: &str) -> Result<u64> {
    let status = status(switch)?;
    status["dispatch"][key].as_u64().ok_or_else(|| format!("no {key} in {status}").into())
}

#[test]
fn downloads_go_on_when_their_node_dies() -> Result {
    let cluster = start(3)?;
    let downloads = Downloads::of(&cluster.lab, scale())?;
    let anew = downloads.beside(|| {
        let had = of_resume(&cluster.lab, 0, "under_way")?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        println!("{had} responses have gone on after {:?}", downloads.wait_for(had)?);
        // It comes back in the middle of its responses, and falls silent.
        cluster.lab.node(0).set_loss(0, 0)?;
        let flows = || Ok(cluster.node_status(0)?["flows"].as_u64().unwrap_or(u64::MAX));
        wait_until("it has no flows any more", PATIENCE, flows, |flows| *flows == 0)?;
        Ok(())
    })?;
    assert_eq!((anew, downloads.dispatched("not_resumed")?), (0, 0));
    cluster.down()
}

/// The end of a response that its kernel has whole may come with the end of the connection.
#[test]
fn downloads_go_on_when_their_server_dies() -> Result {
    let cluster = start(3)?;
    let downloads = Downloads::of(&cluster.lab, scale())?;
    downloads.beside(|| {
        let had = of_resume(&cluster.lab, 0, "under_way")?;
        cluster.kill_server(0)?;
        // What its kernel has been given may be the rest.
        println!("{had} responses had a server");
        Ok(())
    })?;
    let left = cluster.node_counter(0, "bequeathed")?;
    println!("{left} of them have gone on elsewhere");
    assert!(left > 0);
    assert_eq!((downloads.dispatched("resumed")?, downloads.dispatched("not_resumed")?), (left, 0));
    cluster.down()
}

#[test]
fn a_second_death_ends_no_download() -> Result {
    let cluster = start(4)?;
    outlive_two_deaths(&cluster, &Downloads::of(&cluster.lab, scale())?)?;
    cluster.down()
}

fn outlive_two_deaths(cluster: &Cluster, downloads: &Downloads<'_>) -> Result {
    let anew = downloads.beside(|| {
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        std::thread::sleep(Duration::from_secs(1));
        cluster.lab.node(1).set_loss(ALL, ALL)?;
        Ok(())
    })?;
    assert_eq!((anew, downloads.dispatched("not_resumed")?), (0, 0));
    for node in [0, 1] {
        cluster.lab.node(node).set_loss(0, 0)?;
    }
    Ok(())
}

/// The machines of a node and of a switch die together. The other switch has not seen the connections.
#[test]
fn downloads_go_on_when_their_switch_dies_too() -> Result {
    goes_on_with_two_switches(&plan(ServerKind::Nginx, 3), |lab| Downloads::of(lab, scale()), true)
}

/// The switch that a connection does not come by has not seen it, and can tell that only by its client's silence.
#[test]
fn downloads_go_on_with_two_switches() -> Result {
    goes_on_with_two_switches(&plan(ServerKind::Nginx, 3), |lab| Downloads::of(lab, scale()), false)
}

fn goes_on_with_two_switches(
    plan: &Plan,
    downloads: for<'a> fn(&'a Lab) -> Result<Downloads<'a>>,
    one_dies: bool,
) -> Result {
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).routing(Routing::Bird).switches(2).nodes(3).up()?;
    plan.write_certificate(&lab)?;
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    let mut agents = Vec::new();
    for node in lab.nodes() {
        node.nginx(&ServerOptions::default())?;
        agents.push(start_daemon(node, "node", &config)?);
    }
    let switches = lab.switches().map(|host| Switch::start(host, &config));
    let switches = switches.collect::<Result<Vec<_>>>()?;
    routes_lead_to(&lab, &[0, 1])?;
    let downloads = downloads(&lab)?;
    let anew = downloads.beside(|| {
        let had = of_resume(&lab, 0, "under_way")?;
        lab.node(0).cut_link()?;
        if one_dies {
            switches[0].host.cut_link()?;
        }
        println!("{had} responses have gone on after {:?}", downloads.wait_for(had)?);
        Ok(())
    })?;
    assert_eq!(anew, 0);
    for switch in &switches[usize::from(one_dies)..] {
        assert_eq!(dispatched(switch.host, "not_resumed")?, 0);
    }
    if one_dies {
        switches[0].host.mend_link()?;
    }
    lab.node(0).mend_link()?;
    switches.iter().try_for_each(|switch| stop(&switch.switch))?;
    agents.iter().try_for_each(stop)?;
    Ok(lab.down()?)
}

/// Loses one of a hundred packets on all cables of the nodes, handoff packets among them.
#[test]
fn downloads_go_on_over_bad_paths() -> Result {
    let cluster = start(3)?;
    for node in cluster.lab.nodes() {
        node.set_loss(LITTLE, LITTLE)?;
    }
    outlive(&cluster, &Downloads::of(&cluster.lab, scale())?)?;
    (0..3).try_for_each(|node| cluster.lab.node(node).set_loss(0, 0))?;
    cluster.down()
}

/// The lab's Apache has 25 threads on each of three nodes.
const MOST_AT_ANY_SERVER: usize = 60;

fn goes_on_at(server: ServerKind) -> Result {
    let (count, mebibytes) = scale();
    goes_on(start_servers(server, 3)?, (count.min(MOST_AT_ANY_SERVER), mebibytes))
}

fn goes_on(cluster: Cluster, scale: (usize, usize)) -> Result {
    outlive(&cluster, &Downloads::of(&cluster.lab, scale)?)?;
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

/// The first node dies.
fn outlive(cluster: &Cluster, downloads: &Downloads<'_>) -> Result {
    outlive_first(downloads, || Ok(cluster.lab.node(0).set_loss(ALL, ALL)?))
}

/// `die` is the end of the first node.
fn outlive_first(downloads: &Downloads<'_>, die: impl FnOnce() -> Result) -> Result {
    let anew = downloads.beside(|| {
        let had = of_resume(downloads.lab, 0, "under_way")?;
        die()?;
        println!("{had} responses have gone on after {:?}", downloads.wait_for(had)?);
        Ok(())
    })?;
    assert_eq!((anew, downloads.dispatched("not_resumed")?), (0, 0));
    Ok(())
}

#[test]
fn apache_goes_on() -> Result {
    goes_on_at(ServerKind::Apache)
}

/// A file server in Go.
#[test]
fn caddy_goes_on() -> Result {
    goes_on_at(ServerKind::Caddy)
}

/// Clients that have asked for an insured response, and read nothing.
fn ask_for(cluster: &Cluster, path: &str, count: usize) -> Result<Vec<TcpStream>> {
    set_receive_window(&cluster.lab)?;
    let mut clients = Vec::new();
    for index in 0..count {
        let vip = if index % 2 == 0 { cluster.lab.vip4().into() } else { cluster.lab.vip6().into() };
        let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
        clients.push(stream);
    }
    wait_until_insured(&cluster.lab, count)?;
    Ok(clients)
}

/// A node dies when its clients have all of their responses, and before it has told its heirs of that. They offer to go on, and
/// are told that there is nothing to go on with, once.
#[test]
fn a_response_that_its_client_has_whole_does_not_go_on() -> Result {
    let cluster = start(2)?;
    let big = add_long_document(&cluster.lab, "/big", 6)?;
    let mut clients = ask_for(&cluster, "/big", 4)?;
    let had = of_resume(&cluster.lab, 0, "under_way")?;
    cluster.agent(0).signal(Signal::SIGSTOP)?;
    let mut readers = Vec::new();
    for stream in &clients {
        let mut responses = Responses::new(stream, PATIENCE)?;
        assert!(responses.next(false)?.ok_or("no response")?.body == *big.body);
        readers.push(responses);
    }
    cluster.lab.node(0).set_loss(ALL, ALL)?;
    for stream in &mut clients {
        stream.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
    }
    let small = Document::of(&cluster.lab, "/small")?;
    for responses in &mut readers {
        assert!(responses.next(false)?.ok_or("no second response")?.body == *small.body);
    }
    let refused = cluster.node_counter(1, "refused_not_insured")?;
    println!("{had} responses were of the dead node, and {refused} adoptions were refused");
    // One more offer of each may have been under way.
    assert!((1..=2 * had).contains(&refused), "{refused} of {had}");
    assert_eq!(dispatched(cluster.lab.switch(0), "not_resumed")?, 0);
    cluster.agent(0).signal(Signal::SIGCONT)?;
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

/// Requests that a client sends while its response goes on elsewhere are answered behind it.
#[test]
fn a_request_behind_a_resumed_response_is_answered() -> Result {
    let cluster = start(2)?;
    let big = add_long_document(&cluster.lab, "/big", 16)?;
    let mut clients = ask_for(&cluster, "/big", 4)?;
    let had = of_resume(&cluster.lab, 0, "under_way")?;
    cluster.lab.node(0).set_loss(ALL, ALL)?;
    let resumed = || dispatched(cluster.lab.switch(0), "resumed");
    wait_until("the responses have gone on", PATIENCE, resumed, |count| *count == had)?;
    for stream in &mut clients {
        stream.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
    }
    for stream in &clients {
        let mut responses = Responses::new(stream, PATIENCE)?;
        for document in [&big, &Document::of(&cluster.lab, "/small")?] {
            let response = responses.next(false)?.ok_or_else(|| format!("no {}", document.path))?;
            assert!(response.body == *document.body, "{}: {} bytes", document.path, response.body.len());
        }
    }
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

/// Other bytes of the same length.
fn change(cluster: &Cluster, node: usize) -> Result {
    // nginx makes entity tags from the length and the second of the last change.
    let later = std::time::SystemTime::now() + Duration::from_secs(2);
    replace(cluster, node, &vec![b'!'; 16 << 20], later)
}

fn replace(cluster: &Cluster, node: usize, bytes: &[u8], modified: std::time::SystemTime) -> Result {
    let path = cluster.lab.directory().join(format!("roots/node{node}/big"));
    let changed = path.with_extension("new");
    std::fs::write(&changed, bytes)?;
    std::fs::File::options().write(true).open(&changed)?.set_modified(modified)?;
    Ok(std::fs::rename(&changed, &path)?)
}

#[test]
fn no_byte_of_another_file_is_sent() -> Result {
    is_reset_for_another_file(start(2)?)
}

fn is_reset_for_another_file(cluster: Cluster) -> Result {
    let downloads = Downloads::of(&cluster.lab, (8, 16))?;
    let fetched = downloads.beside(|| {
        change(&cluster, 1)?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        Ok(())
    });
    let error = fetched.expect_err("it cannot go on").to_string();
    assert!(error.contains("body ends after"), "{error}");
    let failed = cluster.node_status(1)?["resume"]["failed"].clone();
    assert!(failed["mismatch"].as_u64().is_some_and(|count| count >= 1), "{failed}");
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

/// Another file on one node, and no server on another.
#[test]
fn a_node_that_cannot_go_on_leaves_it_to_the_next_one() -> Result {
    let cluster = start(4)?;
    let downloads = Downloads::of(&cluster.lab, scale())?;
    downloads.beside(|| {
        change(&cluster, 1)?;
        cluster.kill_server(2)?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        Ok(())
    })?;
    let failed = [1, 2].map(|node| Ok(cluster.node_status(node)?["resume"]["failed"].clone()));
    println!("{failed:?}");
    let [changed, without] = failed.map(|failed: Result<serde_json::Value>| failed.expect("a status"));
    assert!(changed["mismatch"].as_u64().is_some() || without["server"].as_u64().is_some());
    cluster.lab.node(0).set_loss(0, 0)?;
    cluster.down()
}

/// Servers that send the same files in chunks, without a length or a validator.
fn start_text(plan: Plan) -> Result<Cluster> {
    let mut cluster = Cluster::prepare(plan)?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/resume/text.py");
    for node in 0..cluster.plan.servers.len() {
        cluster.kill_server(node)?;
        let host = cluster.lab.node(node);
        let mut command = std::process::Command::new("/usr/bin/python3");
        command.arg(script).arg(cluster.lab.directory().join("roots").join(host.name())).arg(host.name());
        host.spawn("text", command)?.wait_for_log("ready", PATIENCE)?;
        cluster.start_node(node)?;
    }
    cluster.start_switch()?;
    Ok(cluster)
}

#[test]
fn files_are_sent_once_more() -> Result {
    goes_on(Cluster::start_with(plan_of("repeat", ServerKind::Nginx, 3))?, scale())
}

#[test]
fn text_that_is_made_goes_on() -> Result {
    goes_on(start_text(plan_of("repeat", ServerKind::Nginx, 3))?, scale())
}

#[test]
fn a_second_death_ends_no_repetition() -> Result {
    let cluster = start_text(plan_of("repeat", ServerKind::Nginx, 4))?;
    outlive_two_deaths(&cluster, &Downloads::of(&cluster.lab, scale())?)?;
    cluster.down()
}

#[test]
fn no_byte_of_another_text_is_sent() -> Result {
    is_reset_for_another_file(start_text(plan_of("repeat", ServerKind::Nginx, 2))?)
}
