//! Clients with long-lived connections, and a cluster that serves them.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use switchback_lab::Process;
use switchback_wire::sb_flow;

use crate::common::packets::flow;
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/adversary/victims");
const ECHO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/websocket_echo.py");
const PYTHON: &str = "/usr/bin/python3";
const ECHO_PORT: u16 = 9000;
/// Exchanges of each victim that show that it goes on.
const ENOUGH: u64 = 3;

const SERVER: &str = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;
    location /echo {
        proxy_pass http://127.0.0.1:9000;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade;
    }";

/// nginx on two nodes, each of them a pool; one service in the clear and one over TLS; a client's host for the victims
/// and one for the attacker; servers that log.
pub fn plan() -> Plan {
    Plan {
        clients_len: 2,
        server_extra: SERVER,
        server_logs: true,
        tls: Some(String::new()),
        ..Plan::default()
    }
}

/// What has become of a victim: see `victims/main.go`.
#[derive(Clone, Debug, Deserialize)]
pub struct Victim {
    pub name: String,
    client: String,
    vip: String,
    pub done: u64,
    pub longest_ms: u64,
    pub error: String,
}

impl Victim {
    pub fn client(&self) -> SocketAddr {
        self.client.parse().expect("the address of a connection")
    }

    pub fn vip(&self) -> IpAddr {
        self.vip.parse::<SocketAddr>().expect("the address of a connection").ip()
    }

    pub fn flow(&self) -> sb_flow {
        flow(self.client(), self.vip.parse().expect("the address of a connection"))
    }
}

/// A running cluster and its victims.
pub struct Scene {
    pub cluster: Cluster,
    pub victims: Victims,
    echo: Process,
}

impl Scene {
    pub fn start() -> Result<Scene> {
        Scene::start_with(plan())
    }

    /// All victims are in the middle of their work when this returns.
    pub fn start_with(plan: Plan) -> Result<Scene> {
        let mut cluster = Cluster::prepare(plan)?;
        let mut echo = Command::new(PYTHON);
        echo.args([ECHO, &ECHO_PORT.to_string()]);
        let node = cluster.lab.node(0);
        let echo = node.spawn("echo", echo)?;
        node.wait_for_listeners(&echo, &[([127, 0, 0, 1], ECHO_PORT).into()], PATIENCE)?;
        for node in 0..cluster.plan.servers.len() {
            cluster.start_node(node)?;
        }
        cluster.start_switch()?;
        let victims = Victims::start(&cluster)?;
        let mut scene = Scene { cluster, victims, echo };
        scene.go_on()?;
        Ok(scene)
    }

    /// What has become of the victims.
    pub fn look(&mut self) -> Result<Vec<Victim>> {
        self.victims.look()
    }

    /// Waits until every victim has gone on from here; an error names those that are lost.
    pub fn go_on(&mut self) -> Result<Vec<Victim>> {
        self.victims.go_on()
    }

    /// The victims have gone on after all that happened, and nothing is left when the cluster has ended.
    pub fn down(mut self) -> Result {
        for victim in self.go_on()? {
            println!("{}: {} done, the longest {} ms", victim.name, victim.done, victim.longest_ms);
        }
        drop(self.victims);
        self.echo.stop()?;
        self.cluster.down()
    }
}

/// The program that is all the victims.
pub struct Victims {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Victims {
    /// Waits until every victim has gone on from here; an error names those that are lost.
    pub fn go_on(&mut self) -> Result<Vec<Victim>> {
        let before = self.look()?;
        let enough = |now: &Vec<Victim>| {
            let is_lost = |victim: &Victim| !victim.error.is_empty();
            now.iter().zip(&before).all(|(now, before)| is_lost(now) || now.done >= before.done + ENOUGH)
        };
        // A lost one takes as long to notice it.
        let now = wait_until("victims", PATIENCE * 4, || self.look(), enough)?;
        let lost = now.iter().filter(|victim| !victim.error.is_empty());
        let lost: Vec<_> = lost.map(|victim| format!("{}: {}", victim.name, victim.error)).collect();
        if !lost.is_empty() {
            return Err(format!("{} of {} are lost: {lost:#?}", lost.len(), now.len()).into());
        }
        Ok(now)
    }

    fn start(cluster: &Cluster) -> Result<Victims> {
        let directory = cluster.lab.directory();
        let mut command = cluster.client().command(program()?);
        command.arg(cluster.lab.vip4().to_string());
        command.arg(directory.join("shop.pem")).arg(directory.join("documents"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Victims { child, to, from: BufReader::new(from) })
    }

    fn look(&mut self) -> Result<Vec<Victim>> {
        writeln!(self.to)?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the program with the victims.
fn program() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = target.join("victims");
    let mut build = Command::new("timeout");
    build.args(["300", "go", "build", "-o", text(&binary), "."]).current_dir(PROGRAM);
    build.env("GOCACHE", target.join("go-cache"));
    // Nothing of it comes from the network, and it needs no C compiler.
    build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    assert!(build.status()?.success());
    Ok(binary)
}
