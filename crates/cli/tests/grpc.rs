//! Servers that speak HTTP/2: of gRPC in Go and in Python, with gRPC's own tests of both, and nginx with pages.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::document::block;
use common::log_file::LogFile;
use common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use serde_json::Value;
use switchback_lab::{Output, Process, ServerKind, Signal};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Time that an agent takes to leave its connections to other nodes, at most.
const LEAVES: Duration = Duration::from_secs(20);
const PYTHON: &str = "/usr/bin/python3";
const INTEROP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc/interop.py");
/// `make test` builds it.
const GO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/grpc");

/// Hosts of the servers in Go, and of the one in Python.
const HOSTS: [&str; 2] = ["go.example.com", "python.example.com"];
/// Ports of the services.
const CALLS: u16 = 443;
const PAGES: u16 = 8443;
const PROXIED: u16 = 9443;
const PLAIN: u16 = 50051;

/// Go on the first two nodes, Python on the third; nginx on all.
const CONFIG: &str = r#"
[cluster]
key_file = "{key_file}"

[access_log]
path = "{log}"

[[node]]
name = "node0"
address = "{node0}"

[[node]]
name = "node1"
address = "{node1}"

[[node]]
name = "node2"
address = "{node2}"

[[pool]]
name = "go"
nodes = ["node0", "node1"]
policy = "round-robin"
protocol = "h2c"
health = { grpc = "", interval = "100ms", timeout = "100ms", rise = 1, fall = 1 }

[[pool]]
name = "python"
nodes = ["node2"]
policy = "round-robin"
protocol = "h2c"

[[pool]]
name = "pages"
nodes = ["node0", "node1"]
policy = "fill"
protocol = "h2c"
health = { path = "/small", interval = "100ms", timeout = "100ms", rise = 1, fall = 1 }

[[pool]]
name = "unchecked"
nodes = ["node0", "node1"]
policy = "fill"
protocol = "h2c"

[[pool]]
name = "plain"
nodes = ["node0", "node1"]
policy = "round-robin"

[[service]]
name = "calls"
listen = ["{vip4}:443", "[{vip6}]:443"]

[service.tls]
server = "127.0.0.1:50051"

[[service.tls.certificate]]
chain = "grpc.pem"
key = "grpc.key"

[[service.route]]
host = "python.example.com"
pool = "python"

[[service.route]]
host = "go.example.com"
header = { name = "x-pool", value = "python" }
pool = "python"

[[service.route]]
host = "go.example.com"
pool = "go"

[[service]]
name = "pages"
listen = ["{vip4}:8443"]

[service.tls]
server = "127.0.0.1:8081"
sessions = "forwarding"
hand_over = "relay"
busy_connections = 1
busy_cpu = "100%"

[[service.tls.certificate]]
chain = "grpc.pem"
key = "grpc.key"

[[service.route]]
pool = "pages"

[[service]]
name = "proxied"
listen = ["{vip4}:9443"]

[service.tls]
server = "127.0.0.1:8082"
client_address = "proxy"

[[service.tls.certificate]]
chain = "grpc.pem"
key = "grpc.key"

[[service.route]]
pool = "unchecked"

[[service]]
name = "plain"
listen = ["{vip4}:50051"]

[[service.route]]
h2c = true
pool = "plain"
"#;

fn start(log: &LogFile) -> Result<(Cluster, [Process; 3])> {
    let mut cluster = Cluster::prepare(Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("all", vec![0, 1, 2])],
        // Without it agents would be silent about what becomes of connections.
        tls: Some(String::new()),
        server_extra: "listen 127.0.0.1:8081 http2; listen 127.0.0.1:8082 http2 proxy_protocol;
            add_header X-Client \"$proxy_protocol_addr $http_x_forwarded_for\" always;
            dav_methods PUT; create_full_put_path on; client_max_body_size 0; client_body_buffer_size 8k;",
        ..Plan::default()
    })?;
    let made = rcgen::generate_simple_self_signed(HOSTS.map(str::to_owned))?;
    fs::write(file(&cluster, "grpc.pem"), made.cert.pem())?;
    fs::write(file(&cluster, "grpc.key"), made.signing_key.serialize_pem())?;
    let mut config = CONFIG.replace("{log}", &log.text());
    for node in 0..3 {
        config = config.replace(&format!("{{node{node}}}"), &cluster.lab.node(node).ipv4().to_string());
    }
    cluster.config = cluster.lab.write_config_text(&config)?;
    let servers = [start_go(&cluster, 0)?, start_go(&cluster, 1)?, start_python(&cluster)?];
    cluster.start_daemons()?;
    for node in 0..2 {
        wait_for_health(&cluster, node, "go", "up")?;
    }
    Ok((cluster, servers))
}

/// Of its own, at all addresses: also at the VIP without TLS.
fn start_go(cluster: &Cluster, node: usize) -> Result<Process> {
    let program = go()?;
    let mut command = Command::new(program);
    command.args(["server", "0.0.0.0:50051"]);
    start_server(cluster, node, command)
}

fn start_python(cluster: &Cluster) -> Result<Process> {
    let mut command = python();
    command.args(["server", "127.0.0.1:50051"]);
    start_server(cluster, 2, command)
}

fn start_server(cluster: &Cluster, node: usize, command: Command) -> Result<Process> {
    let host = cluster.lab.node(node);
    let server = host.spawn("grpc-server", command)?;
    host.wait_for_listeners(&server, &[SocketAddr::from(([127, 0, 0, 1], 50051))], PATIENCE)?;
    Ok(server)
}

fn go() -> Result<PathBuf> {
    Ok(Path::new(GO).canonicalize().map_err(|error| format!("{GO}: {error}: make target/tools/grpc"))?)
}

/// The program in Python, with packages where `make deps` puts them.
fn python() -> Command {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python");
    let mut command = Command::new(PYTHON);
    command.arg(INTEROP).env("PYTHONPATH", packages);
    command
}

fn file(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.lab.directory().join(name)
}

/// The state of a pool's server on a node, in the words of its health checks.
fn health(cluster: &Cluster, node: usize, pool: &str) -> Result<Value> {
    let status = cluster.node_status(node)?;
    let checks = status["health"].as_array().ok_or("no health checks")?;
    let check = checks.iter().find(|check| check["pool"] == pool).ok_or("the pool is not checked")?;
    Ok(check.clone())
}

fn wait_for_health(cluster: &Cluster, node: usize, pool: &str, state: &str) -> Result<Value> {
    wait_until("health", PATIENCE, || health(cluster, node, pool), |check| check["state"] == state)
}

/// Waits until the switch gives a node calls again.
fn wait_for_switch(cluster: &Cluster, node: usize) -> Result {
    let state = || Ok(cluster.switch_status()?["nodes"][node]["listeners"][0]["state"].clone());
    wait_until("the switch's view", PATIENCE, state, |state| state == "up")?;
    Ok(())
}

/// Requests of the service `calls` that a node has forwarded.
fn forwarded(cluster: &Cluster, node: usize) -> Result<u64> {
    let status = cluster.node_status(node)?;
    let services = status["tls"].as_array().ok_or("no services with TLS")?;
    let service = services.iter().find(|service| service["service"] == "calls");
    Ok(service.and_then(|service| service["forwarded"].as_u64()).ok_or("no such service")?)
}

/// A client of gRPC.
#[derive(Clone, Copy)]
struct Calls {
    program: &'static str,
    /// The name that it asks for; none without TLS.
    host: Option<&'static str>,
    /// Pool that its header fields name.
    pool: Option<&'static str>,
}

impl Calls {
    fn command(self, cluster: &Cluster, more: &[&str]) -> Result<Vec<String>> {
        let mut words: Vec<String> = match self.program {
            "go" => vec![text(&go()?).to_owned(), "client".to_owned()],
            _ => {
                let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python");
                let path = format!("PYTHONPATH={}", packages.display());
                ["env", &path, PYTHON, INTEROP, "client"].map(str::to_owned).into()
            }
        };
        let mut add = |key: &str, value: &str| words.extend([key.to_owned(), value.to_owned()]);
        if let Some(host) = self.host {
            add("--ca", text(&file(cluster, "grpc.pem")));
            add("--name", host);
        }
        self.pool.iter().for_each(|pool| add("--pool", pool));
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let port = if self.host.is_some() { CALLS } else { PLAIN };
        words.push(format!("{}:{port}", cluster.lab.vip4()));
        Ok(words)
    }

    /// Makes each test once.
    fn all(self, cluster: &Cluster) -> Result {
        let words = self.command(cluster, &[])?;
        let output = cluster.client().run_within(TIMEOUT, &words)?;
        output.success().map_err(|error| format!("{words:?}: {error}"))?;
        Ok(())
    }

    /// What comes of one call.
    fn status(self, cluster: &Cluster) -> Result<String> {
        let words = self.command(cluster, &["--status"])?;
        Ok(cluster.client().run_within(TIMEOUT, &words)?.success()?.trim_end().to_owned())
    }
}

/// A client that makes all tests again and again.
struct Loop {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Loop {
    /// It has made all tests at least once.
    fn start(cluster: &Cluster, calls: Calls) -> Result<Loop> {
        let words = calls.command(cluster, &["--loop"])?;
        let mut command = cluster.client().command(&words[0]);
        let mut child = command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut from = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        from.read_line(&mut line)?;
        assert_eq!(line, "begun\n", "{words:?}");
        Ok(Loop { child, from })
    }

    /// Ends it, and says how often it has made all tests; an error if one has failed.
    fn end(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        assert!(self.child.wait()?.success(), "a test has failed");
        Ok(line.trim_end().parse()?)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn curl(cluster: &Cluster, options: &[&str]) -> Result<Output> {
    let (authority, host) = (file(cluster, "grpc.pem"), HOSTS[0]);
    let resolve = format!("{host}:*:{}", cluster.lab.vip4());
    let words = ["curl", "-sS", "--fail", "--cacert", text(&authority)];
    let ports = [CALLS, PAGES, PROXIED].map(|port| resolve.replace('*', &port.to_string()));
    let ports = ports.iter().flat_map(|resolve| ["--resolve", resolve]);
    let words = words.into_iter().chain(ports).chain(options.iter().copied());
    Ok(cluster.client().run_within(TIMEOUT, words)?)
}

fn url(port: u16, path: &str) -> String {
    format!("https://{}:{port}{path}", HOSTS[0])
}

#[test]
fn calls_of_grpc() -> Result {
    let log = LogFile::new("grpc");
    let (mut cluster, [mut go0, go1, python]) = start(&log)?;
    // At the node that has the connection, and at another one; and without TLS.
    for program in ["go", "python"] {
        for host in HOSTS {
            Calls { program, host: Some(host), pool: None }.all(&cluster)?;
        }
        Calls { program, host: Some(HOSTS[0]), pool: Some("python") }.all(&cluster)?;
        Calls { program, host: None, pool: None }.all(&cluster)?;
    }
    let forwarded = forwarded(&cluster, 0)? + forwarded(&cluster, 1)?;
    assert!(forwarded > 20, "{forwarded} calls were forwarded");

    // While nodes drain, and while their agents are replaced.
    let calls = |program, pool| Calls { program, host: Some(HOSTS[0]), pool };
    let loops = [calls("go", None), calls("go", Some("python")), calls("python", None)];
    let loops = loops.map(|calls| Loop::start(&cluster, calls));
    let loops = loops.into_iter().collect::<Result<Vec<_>>>()?;
    let name = |node: usize| format!("node{node}");
    for node in [0, 1] {
        let host = cluster.lab.node(node);
        cluster.run(host, &["drain", &name(node), "--timeout", "30s"])?.success()?;
        cluster.run(host, &["undrain", &name(node)])?.success()?;
        wait_for_switch(&cluster, node)?;
    }
    for node in [0, 1] {
        let agent = cluster.agent(node);
        agent.signal(Signal::SIGTERM)?;
        let status = agent.wait_timeout(LEAVES)?.ok_or("the agent does not end")?;
        assert!(status.success(), "the agent ends with {status}");
        cluster.start_node(node)?;
        wait_for_switch(&cluster, node)?;
    }
    for calls in loops {
        assert!(calls.end()? > 1);
    }

    // A server of gRPC that ends says so to its clients (GOAWAY), and another one is asked what it does not take.
    let calls = Loop::start(&cluster, Calls { program: "go", host: Some(HOSTS[0]), pool: None })?;
    go0.stop()?;
    let check = wait_for_health(&cluster, 0, "go", "down")?;
    assert_eq!(check["check"], "gRPC \"\"");
    go0 = start_go(&cluster, 0)?;
    wait_for_health(&cluster, 0, "go", "up")?;
    assert!(calls.end()? > 0);

    // What the endpoint answers itself. No health check finds out that the server is gone.
    python.kill()?;
    let calls = |pool| Calls { program: "python", host: Some(HOSTS[0]), pool };
    assert_eq!(calls(Some("python")).status(&cluster)?, "UNAVAILABLE 502 Bad Gateway");
    let python = start_python(&cluster)?;
    assert_eq!(calls(Some("python")).status(&cluster)?, "OK");
    let call = ["-X", "POST", "-H", "Content-Type: application/grpc", "-H", "Host: other.example.com"];
    let told =
        curl(&cluster, &[&call[..], &["-D", "-", "--http2", &url(CALLS, "/a")]].concat())?.success()?;
    let told = told.to_lowercase();
    assert!(told.starts_with("http/2 200") && told.contains("grpc-status: 12\r\n"), "{told}");

    // The log has the calls of both kinds of connections, and the nodes whose servers have answered.
    for node in ["node0", "node1", "node2"] {
        let is_it = |line: &Value| {
            line["node"] == node
                && line["target"] == "/grpc.testing.TestService/EmptyCall"
                && line["version"] == "HTTP/2.0"
                && (line["status"] == 200 && line["end"] == "complete")
        };
        wait_until(node, PATIENCE, || Ok(log.lines()?.iter().any(is_it)), |found| *found)?;
    }
    [go0, go1, python].iter().try_for_each(|server| server.stop().map(drop))?;
    cluster.down()
}

/// Also for clients that speak HTTP/1.1, by the server of another node, and with the PROXY protocol.
#[test]
fn pages_of_servers_in_http2() -> Result {
    let log = LogFile::new("grpc-pages");
    let (cluster, servers) = start(&log)?;
    for node in 0..2 {
        let check = wait_for_health(&cluster, node, "pages", "up")?;
        assert_eq!(check["check"], "GET /small, status 200-399");
    }
    let client = cluster.client().ipv4().to_string();
    let large = fs::read(file(&cluster, "documents/1m"))?;
    let (got, sent, put) = (file(&cluster, "got"), block(7).repeat(3), file(&cluster, "put"));
    fs::write(&put, &sent)?;
    for version in ["--http1.1", "--http2"] {
        for (port, told) in [(PAGES, format!(" {client}")), (PROXIED, format!("{client} "))] {
            let what = format!("{version} {port}");
            let page = url(port, "/small");
            let options =
                [version, "-D", "-", "-o", "/dev/null", "-H", "X-Forwarded-For: 1.2.3.4", &page, &page];
            let heads = curl(&cluster, &options)?.success()?;
            // What the server of a PROXY connection is told by others is its own matter.
            let told = if port == PROXIED { format!("{told}1.2.3.4") } else { told };
            let count =
                heads.lines().filter(|line| line.to_lowercase() == format!("x-client: {told}")).count();
            assert_eq!(count, 2, "{what}: {heads}");
            curl(&cluster, &[version, "-o", text(&got), &url(port, "/1m")])?.success()?;
            assert!(fs::read(&got)? == large, "{what}: the document is not what it should be");
            let head = curl(&cluster, &[version, "-I", &url(port, "/1m")])?.success()?.to_lowercase();
            assert!(head.contains("content-length: 1048576"), "{what}: {head}");
            for chunked in [false, true] {
                let path = format!("/put-{port}{version}-{chunked}");
                let page = url(port, &path);
                let length = if chunked { "Transfer-Encoding: chunked" } else { "X-Known: length" };
                curl(&cluster, &[version, "-H", length, "-T", text(&put), &page])?.success()?;
                let roots = [0, 1].map(|node| file(&cluster, &format!("roots/node{node}{path}")));
                let arrived = roots.iter().find_map(|path| fs::read(path).ok());
                assert!(arrived.is_some_and(|arrived| arrived == sent), "{what}: {path}");
            }
            let status = ["-o", "/dev/null", "-w", "%{http_code}"];
            let missing = url(port, "/missing");
            let said = curl(&cluster, &[&[version][..], &status, &[&missing]].concat())?;
            assert!(said.stdout.contains("404"), "{what}: {said:?}");
        }
    }
    servers.iter().try_for_each(|server| server.stop().map(drop))?;
    cluster.down()
}
