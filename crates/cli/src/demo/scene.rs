//! The lab of the demonstration, and its loads.

use std::fs;
use std::process::Command;
use std::time::Duration;

use switchback_lab::{
    Cluster, Error, Host, Lab, ONE_MIB, Pool, Process, Result, Route, ServerOptions, TrafficCounter,
};

use super::report::{self, Latency, Load, Request};

const NODES: usize = 3;
/// Timeout of a daemon's start.
const READY: Duration = Duration::from_secs(30);
/// Time that a load may take beyond its duration.
const SLACK: Duration = Duration::from_secs(30);
/// Lines of each log that are shown after a failure.
const LOG_LINES: usize = 20;
/// Path of nginx's stub_status.
const STATUS_PATH: &str = "/requests";

/// One client, one switch, three nodes: node0 and node1 serve `/`, node2 serves `/img/`.
pub struct Scene {
    lab: Lab,
    daemons: Vec<Process>,
    /// For each node, the bytes it sent from the VIP.
    direct: Vec<TrafficCounter>,
}

impl Scene {
    pub fn set_up() -> Result<Scene> {
        let lab = Lab::builder().nodes(NODES).up()?;
        let one_mib = fs::read(one_mib(&lab))
            .map_err(|source| Error::Io { doing: "read the document of 1 MiB".to_owned(), source })?;
        lab.add_document("img/logo", &[b'#'; 2048])?;
        lab.add_document("img/1m", &one_mib)?;
        let options = ServerOptions {
            extra: format!("location = {STATUS_PATH} {{ stub_status; }}"),
            ..ServerOptions::default()
        };
        lab.nodes().try_for_each(|node| node.nginx(&options).map(drop))?;
        let direct = lab.nodes().map(|node| node.count(&format!("ip saddr {}", lab.vip4())));
        let direct = direct.collect::<Result<Vec<_>>>()?;
        let mut scene = Scene { lab, daemons: Vec::new(), direct };
        scene.start_daemons()?;
        Ok(scene)
    }

    fn start_daemons(&mut self) -> Result<()> {
        let pool = |name: &str, nodes: &[usize]| Pool {
            name: name.to_owned(),
            nodes: nodes.to_vec(),
            policy: "round-robin".to_owned(),
            ..Pool::default()
        };
        let img = Route { path: Some("/img/".to_owned()), pool: "img".to_owned(), ..Route::default() };
        let cluster = Cluster {
            pools: vec![pool("web", &[0, 1]), pool("img", &[2])],
            routes: vec![img],
            ..Cluster::default()
        };
        let config = self.lab.write_config(&cluster)?;
        let program = std::env::current_exe()
            .map_err(|source| Error::Io { doing: "find this program's own file".to_owned(), source })?;
        for node in self.lab.nodes() {
            let mut command = Command::new(&program);
            command.args(["node", "--name", node.name(), "--interface", "eth0", "--config"]).arg(&config);
            self.daemons.push(node.spawn("switchback-node", command)?);
        }
        let mut command = Command::new(&program);
        command.args(["switch", "--interface", "eth0", "--config"]).arg(&config);
        self.daemons.push(self.lab.switch(0).spawn("switchback-switch", command)?);
        self.daemons.iter().try_for_each(|daemon| daemon.wait_for_log("ready", READY).map(drop))
    }

    /// A description of the lab.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "A cluster in network namespaces: the switch holds the VIP {}, three nodes run nginx.\n\
             Requests under /img/ go to node2, all others to node0 and node1 in turn.\n",
            self.lab.vip4()
        );
        for host in self.lab.hosts() {
            text += &format!("\n  {:<8}  {}", host.name(), host.ipv4());
        }
        text
    }

    /// Sends requests for both pools in turn, on one connection.
    pub fn one_connection(&self) -> Result<Vec<Request>> {
        let paths = ["/small", "/img/logo", "/small", "/img/logo", "/1m", "/img/logo", "/small", "/img/1m"];
        let mut words = vec!["curl", "--silent", "--show-error", "--max-time", "20"];
        words.extend(["--write-out", report::WRITE_OUT]);
        let urls: Vec<String> = paths.iter().map(|path| self.url(path)).collect();
        for url in &urls {
            words.extend(["--output", "/dev/null", url]);
        }
        report::parse_requests(&self.client().run(words)?.success()?)
    }

    /// Sends small requests on 16 connections.
    pub fn small_requests(&self, seconds: u32) -> Result<Latency> {
        let duration = format!("-d{seconds}s");
        let url = self.url("/small");
        let timeout = SLACK + Duration::from_secs(seconds.into());
        let words = ["wrk", "-t1", "-c16", &duration, "--latency", &url];
        report::parse_wrk(&self.client().run_within(timeout, words)?.success()?)
    }

    /// Fetches 25 documents of 1 MiB from each pool, on at most four connections.
    pub fn large_requests(&self) -> Result<()> {
        let (web, img) = (self.url("/1m?[1-25]"), self.url("/img/1m?[1-25]"));
        let words = ["curl", "--silent", "--show-error", "--fail", "--parallel", "--parallel-max", "4"];
        let urls = ["--output", "/dev/null", &web, "--output", "/dev/null", &img];
        self.client().run_within(SLACK, [&words[..], &urls[..]].concat())?.success().map(drop)
    }

    /// Runs a load, and counts requests and bytes.
    pub fn measure(&self, name: &str, load: impl FnOnce() -> Result<Latency>) -> Result<Load> {
        let (requests, direct, switched) =
            (self.requests_of_nodes()?, self.bytes_direct()?, self.bytes_of_switch()?);
        let latency = load()?;
        let (direct, switched) = (self.bytes_direct()? - direct, self.bytes_of_switch()? - switched);
        let nodes = std::iter::zip(self.requests_of_nodes()?, requests)
            // Without the query of the counter itself.
            .map(|(after, before)| (after - before).saturating_sub(1))
            .collect();
        Ok(Load { name: name.to_owned(), nodes, direct, switched, latency })
    }

    /// The last lines of the daemons' logs.
    pub fn logs(&self) -> String {
        let tail = |daemon: &Process| {
            let log = daemon.log();
            let lines: Vec<&str> = log.lines().collect();
            let lines = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            format!("--- {}\n{lines}\n", daemon.name())
        };
        self.daemons.iter().map(tail).collect()
    }

    /// Whether a signal has taken the lab down; waits until it is removed.
    pub fn is_gone(&self) -> bool {
        matches!(self.client().run(["true"]), Err(Error::TornDown))
    }

    /// Takes the lab down.
    pub fn end(self) -> Result<()> {
        self.lab.down()
    }

    fn client(&self) -> &Host {
        self.lab.client(0)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.lab.vip4())
    }

    /// Requests by node, from nginx. The query is sent on the node itself, and adds no traffic to the links.
    fn requests_of_nodes(&self) -> Result<Vec<u64>> {
        let url = format!("http://127.0.0.1{STATUS_PATH}");
        let ask = |node: &Host| report::parse_stub_status(&node.run(["curl", "-sS", &url])?.success()?);
        self.lab.nodes().map(ask).collect()
    }

    /// Bytes that the nodes sent from the VIP to the client.
    fn bytes_direct(&self) -> Result<u64> {
        self.direct.iter().map(|counter| Ok(counter.from_host()?.bytes)).sum()
    }

    /// Bytes into and out of the switch.
    fn bytes_of_switch(&self) -> Result<u64> {
        let counters = self.lab.switch(0).interface_counters("eth0")?;
        Ok(counters.rx.bytes + counters.tx.bytes)
    }
}

fn one_mib(lab: &Lab) -> std::path::PathBuf {
    debug_assert_eq!(ONE_MIB, 1 << 20);
    lab.directory().join("documents/1m")
}
