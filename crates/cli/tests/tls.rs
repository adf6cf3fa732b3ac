//! Services over TLS: clients of all kinds, on nodes that end TLS themselves.

#[path = "tls/acme.rs"]
mod acme;
#[path = "tls/authority.rs"]
mod authority;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "tls/client_certificates.rs"]
mod client_certificates;
#[path = "tls/clients.rs"]
mod clients;
mod common;
#[path = "tls/conformance.rs"]
mod conformance;
#[path = "tls/errors.rs"]
mod errors;
#[path = "tls/floods.rs"]
mod floods;
#[path = "tls/h2spec.rs"]
mod h2spec;
#[path = "tls/keys.rs"]
mod keys;
#[path = "tls/lines.rs"]
mod lines;
#[path = "tls/memory.rs"]
mod memory;
#[path = "tls/mirror.rs"]
mod mirror;
#[path = "tls/moves.rs"]
mod moves;
#[path = "tls/outliers.rs"]
mod outliers;
#[path = "tls/pods.rs"]
mod pods;
#[path = "tls/relay.rs"]
mod relay;
#[path = "tls/rewrite.rs"]
mod rewrite;
#[path = "tls/scan.rs"]
mod scan;
#[path = "tls/sessions.rs"]
mod sessions;
#[path = "tls/spoof.rs"]
mod spoof;
#[path = "tls/streams.rs"]
mod streams;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use common::{Cluster, PATIENCE, Plan, Result, start_echo, text, wait_until};
use serde_json::Value;
use switchback_lab::{Output, ServerKind};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
const PYTHON: &str = "/usr/bin/python3";
const TIMEOUT: Duration = Duration::from_secs(60);

/// The name in the certificate.
const NAME: &str = common::TLS_NAME;

/// A service over TLS, of which all nodes have all documents.
fn plan(nodes: usize, lines: &str) -> Plan {
    Plan {
        servers: vec![ServerKind::Nginx; nodes],
        pools: vec![("web", (0..nodes).collect())],
        tls: Some(lines.to_owned()),
        ..Plan::default()
    }
}

fn start(nodes: usize, lines: &str) -> Result<Cluster> {
    Cluster::start_with(plan(nodes, lines))
}

/// A cluster whose daemons do not run yet, with servers that answer with what they get: see `echo.py`.
fn prepare_echo(plan: Plan) -> Result<Cluster> {
    let nodes = plan.servers.len();
    let cluster = Cluster::prepare(plan)?;
    change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
    for index in 0..nodes {
        let log = cluster.lab.directory().join(format!("requests-{index}"));
        start_echo(cluster.lab.node(index), &log)?;
    }
    Ok(cluster)
}

/// Puts `new` for `old` in the configuration, as often as it is there.
fn change_config(cluster: &Cluster, old: &str, new: &str) -> Result {
    let config = fs::read_to_string(&cluster.config)?;
    assert!(config.contains(old), "{old:?} is not in {config}");
    Ok(fs::write(&cluster.config, config.replace(old, new))?)
}

/// curl with the certificate's authority; what it writes out.
fn curl(cluster: &Cluster, options: &[&str]) -> Result<String> {
    Ok(run_curl(cluster, options)?.success()?)
}

/// Likewise, whatever comes of it.
fn run_curl(cluster: &Cluster, options: &[&str]) -> Result<Output> {
    let to_service = to_service(cluster, &cluster.lab.vip4().to_string());
    let to_service: Vec<&str> = to_service.iter().map(String::as_str).collect();
    let words = ["curl", "-sS", "--max-time", "60"];
    Ok(cluster.client().run_within(TIMEOUT, [&words, &to_service[..], options].concat())?)
}

/// Options for curl.
fn to_service(cluster: &Cluster, vip: &str) -> [String; 4] {
    let resolve = format!("{NAME}:443:{vip}");
    ["--cacert".to_owned(), authority(cluster), "--resolve".to_owned(), resolve]
}

/// The file of who has made the certificate.
fn authority(cluster: &Cluster) -> String {
    text(&cluster.lab.directory().join("shop.pem")).to_owned()
}

/// What `openssl s_client` says, whatever comes of it; stdout and stderr one after the other.
fn openssl(cluster: &Cluster, options: &[&str]) -> Result<String> {
    let (vip, authority) = (format!("{}:443", cluster.lab.vip4()), authority(cluster));
    let words = ["openssl", "s_client", "-connect", &vip, "-CAfile", &authority];
    let output = cluster.client().run_within(TIMEOUT, [&words, options].concat())?;
    Ok(output.stdout + &output.stderr)
}

/// The path of a program for a client.
fn program(name: &str) -> String {
    format!("{PROGRAMS}/{name}")
}

/// A client's connection, which does one thing after the other: see `connection.py`.
struct Connection {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Connection {
    fn open(cluster: &Cluster) -> Result<Connection> {
        let mut command = cluster.client().command(PYTHON);
        command.args([program("connection.py"), cluster.lab.vip4().to_string(), authority(cluster)]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Connection { child, to, from: BufReader::new(from) })
    }

    fn ask(&mut self, what: &str) -> Result<String> {
        writeln!(self.to, "{what}")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// The status that comes for a request.
    fn status(&mut self, what: &str) -> Result<String> {
        Ok(self.ask(what)?.split(' ').next().unwrap_or_default().to_owned())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes that the client has got, of everything.
fn received(cluster: &Cluster) -> Result<u64> {
    Ok(cluster.client().interface_counters("eth0")?.rx.bytes)
}

fn url(path: &str) -> String {
    format!("https://{NAME}{path}")
}

/// What the first node says of the service.
fn tls_status(cluster: &Cluster, node: usize) -> Result<Value> {
    Ok(cluster.node_status(node)?["tls"][0].clone())
}

#[test]
fn pages_over_both_versions_of_tls_and_http() -> Result {
    let cluster = start(2, "")?;
    let large = fs::read(cluster.lab.directory().join("documents/1m"))?;
    let out = cluster.lab.directory().join("got");
    for tls in ["1.2", "1.3"] {
        for http in ["--http1.1", "--http2"] {
            let version = "%{http_version} %{response_code} %{ssl_verify_result}";
            let small = url("/small");
            let said = curl(&cluster, &["--tls-max", tls, http, "-o", "/dev/null", "-w", version, &small])?;
            let expected = if http == "--http2" { "2 200 0" } else { "1.1 200 0" };
            assert_eq!(said, expected, "{tls} {http}");
            curl(&cluster, &["--tls-max", tls, http, "-o", text(&out), &url("/1m")])?;
            assert!(fs::read(&out)? == large, "{tls} {http}");
        }
    }
    let status = tls_status(&cluster, 0)?;
    assert!(status["handshakes"].as_u64() >= Some(1), "{status}");
    assert_eq!((&status["failed"], &status["refused"]), (&0.into(), &0.into()), "{status}");
    cluster.down()
}

/// Requests for two pools, in turn, on one connection: who has answered each, and how many connections it took.
fn in_turn(cluster: &Cluster, http: &str, rounds: usize) -> Result<Vec<String>> {
    let urls: Vec<String> = (0..rounds).flat_map(|_| [url("/small"), url("/img/1m")]).collect();
    let mut words = vec![http, "-w", "%{http_version} %header{x-node} %{num_connects} %{size_download}\\n"];
    for url in &urls {
        words.extend(["-o", "/dev/null", url]);
    }
    Ok(curl(cluster, &words)?.lines().map(str::to_owned).collect())
}

#[test]
fn connections_go_where_their_requests_belong() -> Result {
    let cluster = Cluster::start_with(Plan { tls: Some(String::new()), ..Plan::default() })?;
    let small = fs::metadata(cluster.lab.directory().join("documents/small"))?.len();
    let expected = |http: &str| -> Vec<String> {
        let pair = |round| {
            let connects = if round == 0 { 1 } else { 0 };
            [format!("{http} node0 {connects} {small}"), format!("{http} node1 0 {}", 1 << 20)]
        };
        (0..10).flat_map(pair).collect()
    };
    assert_eq!(in_turn(&cluster, "--http1.1", 10)?, expected("1.1"));
    // From the first node to the second and back, but for the last time.
    let counts = || -> Result<Vec<u64>> {
        let both = [tls_status(&cluster, 0)?, tls_status(&cluster, 1)?];
        let count = |(node, key): (usize, &str)| both[node][key].as_u64().unwrap_or_default();
        Ok([(0, "given"), (1, "taken"), (1, "given"), (0, "taken"), (0, "forwarded")].map(count).to_vec())
    };
    wait_until("moves", PATIENCE, counts, |counts| *counts == [10, 10, 9, 9, 0])?;
    // Streams stay where they are, and their requests go to the node.
    assert_eq!(in_turn(&cluster, "--http2", 10)?, expected("2"));
    let first = tls_status(&cluster, 0)?;
    assert_eq!((&first["given"], &first["forwarded"]), (&10.into(), &10.into()), "{first}");
    let said = |node: usize, words: &str| cluster.agent(node).log().matches(words).count();
    assert_eq!(
        [said(0, " goes on at node1\n"), said(1, " goes on here\n"), said(0, " is forwarded\n")],
        [10; 3]
    );
    cluster.down()
}

#[test]
fn a_busy_node_gives_connections_away() -> Result {
    let lines = "sessions = \"forwarding\"\nbusy_connections = 3\nbusy_cpu = \"100%\"";
    let plan = Plan {
        // All connections begin at the first node.
        policy: "fill",
        pools: vec![("web", vec![0, 1])],
        tls: Some(lines.to_owned()),
        ..Plan::default()
    };
    let cluster = Cluster::start_with(plan)?;
    let authority = cluster.lab.directory().join("shop.pem");
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/keep.py");
    let vip = cluster.lab.vip4().to_string();
    let words = ["/usr/bin/python3", clients, &vip, NAME, text(&authority), "8", "4"];
    let output = cluster.client().run(words)?.success()?;
    let answered: Value = serde_json::from_str(&output)?;
    // Each of eight connections has had four right answers, and no more than three have stayed.
    let (first, second) = (answered["node0"].as_u64(), answered["node1"].as_u64());
    assert_eq!(first.unwrap_or(0) + second.unwrap_or(0), 8 * 4, "{answered}");
    let given = tls_status(&cluster, 0)?["given"].as_u64();
    assert!((3..=5).contains(&given.unwrap_or(0)) && second >= given, "{answered}, {given:?} given");
    cluster.down()
}

#[test]
fn a_node_that_drains_gives_connections_away() -> Result {
    let cluster = start(2, "")?;
    let mut connections = [Connection::open(&cluster)?, Connection::open(&cluster)?];
    let mut nodes = || -> Result<Vec<String>> {
        let answers = connections.iter_mut().map(|connection| connection.ask("get /small"));
        answers.map(|answer| Ok(answer?.split(' ').nth(1).unwrap_or_default().to_owned())).collect()
    };
    let before = nodes()?;
    assert!(before.contains(&"node0".to_owned()) && before.contains(&"node1".to_owned()), "{before:?}");
    cluster.run(cluster.lab.node(0), &["drain", "--no-wait", "node0"])?.success()?;
    assert_eq!(nodes()?, ["node1", "node1"]);
    // And back, as soon as that one drains instead.
    cluster.run(cluster.lab.node(0), &["undrain", "node0"])?.success()?;
    cluster.run(cluster.lab.node(1), &["drain", "--no-wait", "node1"])?.success()?;
    assert_eq!(nodes()?, ["node0", "node0"]);
    cluster.down()
}
