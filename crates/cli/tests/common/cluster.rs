//! A whole cluster for tests: a lab with servers, a node agent beside each of them, and a switch, all run by
//! the `switchback` binary as a person would run it.
//!
//! A test that gets as far as [`Cluster::down`] has also shown that both kinds of processes end with status 0
//! and leave nothing behind.

use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use switchback_lab::{
    Host, Lab, Process, Role, Server, ServerKind, ServerOptions, SessionServerKind, SessionServerOptions,
    SlowServerOptions, Topology,
};

use super::document::block;
use super::responses::Responses;
use super::{PATIENCE, PROGRAM, Result, alone, counter, status, stop, traces, wait_until};

/// The name in the certificate of services with TLS.
pub const TLS_NAME: &str = "shop.example.com";

/// What cluster to make.
#[derive(Clone)]
pub struct Plan {
    pub topology: Topology,
    /// Hosts of clients.
    pub clients_len: usize,
    /// One node for each.
    pub servers: Vec<ServerKind>,
    /// Slow servers instead, on all nodes.
    pub slow_servers: Option<SlowServerOptions>,
    /// Applications with sessions instead, on the first nodes.
    pub session_servers: Vec<SessionServerKind>,
    /// The name of their cookie, and that of the application under `/img/`.
    pub session_cookies: (Option<&'static str>, Option<&'static str>),
    /// More lines of every pool.
    pub pool_lines: String,
    /// Names of the pools and indices of their nodes; `/img/` is for the pool `img`, all else for the first.
    pub pools: Vec<(&'static str, Vec<usize>)>,
    /// How every pool chooses a node.
    pub policy: &'static str,
    /// Of every pool, if it matters.
    pub queue_limit: Option<&'static str>,
    /// More lines for single nodes of the configuration.
    pub node_lines: Vec<(usize, String)>,
    /// Which nodes are given by their IPv6 address.
    pub ipv6_nodes: Vec<usize>,
    pub generic_xdp: bool,
    /// Lines for every server.
    pub server_extra: &'static str,
    /// Lines for the servers of single nodes.
    pub node_extra: Vec<(usize, &'static str)>,
    /// Where the servers of single nodes listen, instead of port 80 of all addresses.
    pub listen: Vec<(usize, Vec<SocketAddr>)>,
    /// Whether servers keep an access log.
    pub server_logs: bool,
    /// Lines of the configuration's section `[limits]`.
    pub limits: &'static str,
    /// Lines of its section `[access_log]`, if it has one.
    pub access_log: Option<String>,
    /// `[[networks]]`.
    pub networks: &'static str,
    /// Lines of both services.
    pub service_lines: &'static str,
    /// Routes before the others.
    pub routes: &'static str,
    /// Networks of clients that nodes introduce themselves to.
    pub clients: Vec<&'static str>,
    /// Whether all daemons tell over HTTP how they are doing.
    pub admin: bool,
    /// Lines of `[service.tls]` for a service at port 443 with the same routes, besides certificate and server.
    pub tls: Option<String>,
    /// Routes of that service before the others.
    pub tls_routes: &'static str,
}

impl Default for Plan {
    /// nginx on two nodes, each of them a pool.
    fn default() -> Self {
        Plan {
            topology: Topology::Flat,
            clients_len: 1,
            servers: vec![ServerKind::Nginx; 2],
            slow_servers: None,
            session_servers: Vec::new(),
            session_cookies: (None, None),
            pool_lines: String::new(),
            pools: vec![("web", vec![0]), ("img", vec![1])],
            policy: "round-robin",
            queue_limit: None,
            node_lines: Vec::new(),
            ipv6_nodes: Vec::new(),
            generic_xdp: false,
            server_extra: "",
            node_extra: Vec::new(),
            listen: Vec::new(),
            server_logs: false,
            limits: "",
            access_log: None,
            networks: "",
            service_lines: "",
            routes: "",
            clients: Vec::new(),
            admin: false,
            tls: None,
            tls_routes: "",
        }
    }
}

impl Plan {
    /// The cluster.toml; for a reload with changes too.
    pub fn config(&self, lab: &Lab) -> String {
        let mut text = format!(
            "[cluster]\nkey_file = \"{{key_file}}\"\n\n[limits]\n{}\n\n{}\n\n",
            self.limits, self.networks
        );
        text += if self.admin { "[admin]\n\n" } else { "" };
        let log = self.access_log.as_ref().map(|lines| format!("[access_log]\n{lines}\n\n"));
        text.push_str(&log.unwrap_or_default());
        let mut add = |part: String| text.write_str(&part).expect("writing to a string does not fail");
        let used = |index: &usize| self.pools.iter().any(|(_, nodes)| nodes.contains(index));
        // `make test` runs suites a second time with another way of adoption.
        let adoption = std::env::var("SWITCHBACK_ADOPTION").ok();
        for index in (0..self.servers.len()).filter(used) {
            let (name, address) = (lab.node(index).name(), self.address(lab, index));
            let lines = self.node_lines.iter().filter(|(node, _)| *node == index);
            let mut lines: String = lines.map(|(_, lines)| format!("{lines}\n")).collect();
            if let Some(adoption) = &adoption
                && !lines.contains("adoption")
            {
                lines += &format!("adoption = \"{adoption}\"\n");
            }
            add(format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\n{lines}\n"));
        }
        for (name, nodes) in &self.pools {
            let nodes: Vec<String> = nodes.iter().map(|index| format!("\"node{index}\"")).collect();
            let nodes = nodes.join(", ");
            add(format!("[[pool]]\nname = \"{name}\"\nnodes = [{nodes}]\npolicy = \"{}\"\n", self.policy));
            let limit = self.queue_limit.map(|limit| format!("queue_limit = \"{limit}\"\n"));
            add(format!("{}{}\n", limit.unwrap_or_default(), self.pool_lines));
        }
        let img = self.pools.iter().any(|(name, _)| *name == "img");
        let img = if img { "[[service.route]]\npath = \"/img/\"\npool = \"img\"\n\n" } else { "" };
        let routes = format!("{}\n{img}[[service.route]]\npool = \"{}\"\n", self.routes, self.pools[0].0);
        add(format!(
            "[[service]]\nname = \"shop\"\nlisten = [\"{{vip4}}:80\", \"[{{vip6}}]:80\"]\n{}\n\n{routes}\n",
            self.service_lines
        ));
        if let Some(lines) = &self.tls {
            let routes = format!("{}\n{routes}", self.tls_routes);
            add(format!(
                "[[service]]\nname = \"secure\"\nlisten = [\"{{vip4}}:443\", \"[{{vip6}}]:443\"]\n{}\n\n\
                 [service.tls]\nserver = \"127.0.0.1:80\"\n{lines}\n\n\
                 [[service.tls.certificate]]\nchain = \"shop.pem\"\nkey = \"shop.key\"\n\n{routes}\n",
                self.service_lines
            ));
        }
        for network in &self.clients {
            add(format!("\n[[client]]\nnetwork = \"{network}\"\n"));
        }
        text
    }

    /// The certificate of the service with TLS, if there is one, which is its own authority: `shop.pem`, `shop.key`.
    pub fn write_certificate(&self, lab: &Lab) -> Result {
        if self.tls.is_some() {
            let made = rcgen::generate_simple_self_signed([TLS_NAME.to_owned()])?;
            fs::write(lab.directory().join("shop.pem"), made.cert.pem())?;
            fs::write(lab.directory().join("shop.key"), made.signing_key.serialize_pem())?;
        }
        Ok(())
    }

    /// A node's address, as the configuration gives it.
    pub fn address(&self, lab: &Lab, node: usize) -> IpAddr {
        let host = lab.node(node);
        if self.ipv6_nodes.contains(&node) { host.ipv6().into() } else { host.ipv4().into() }
    }
}

fn start_server(lab: &Lab, plan: &Plan, node: usize) -> Result<Option<Server>> {
    if let Some(options) = &plan.slow_servers {
        lab.node(node).slow_server(options)?;
        return Ok(None);
    }
    if let Some(&kind) = plan.session_servers.get(node) {
        let (cookie, img_cookie) = plan.session_cookies;
        let options = SessionServerOptions {
            cookie: cookie.map(str::to_owned),
            img_cookie: img_cookie.map(str::to_owned),
            ..Default::default()
        };
        return Ok(Some(lab.node(node).session_server(kind, &options)?));
    }
    let own = plan.node_extra.iter().filter(|(index, _)| *index == node).map(|(_, extra)| *extra);
    let extra = [plan.server_extra].into_iter().chain(own).collect::<Vec<_>>().join("\n");
    let mut options = ServerOptions { extra, access_log: plan.server_logs, ..ServerOptions::default() };
    if let Some((_, listen)) = plan.listen.iter().find(|(index, _)| *index == node) {
        options.listen.clone_from(listen);
    }
    Ok(Some(lab.node(node).server(plan.servers[node], &options)?))
}

/// A running cluster. Dropping it takes everything down; [`down`](Self::down) also checks how it ends.
pub struct Cluster {
    /// The program of switch and agents that are started from now on.
    program: Mutex<PathBuf>,
    pub lab: Lab,
    pub plan: Plan,
    pub config: PathBuf,
    switch: Option<Process>,
    agents: Vec<Option<Process>>,
    /// None where there is a slow one.
    servers: Mutex<Vec<Option<Server>>>,
    _alone: MutexGuard<'static, ()>,
}

/// A test that fails with an error leaves a cluster that runs.
impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.lab.print_logs();
        }
    }
}

impl Cluster {
    /// nginx on two nodes, each of them a pool.
    pub fn start() -> Result<Cluster> {
        Cluster::start_with(Plan::default())
    }

    /// Everything, running.
    pub fn start_with(plan: Plan) -> Result<Cluster> {
        let mut cluster = Cluster::prepare(plan)?;
        cluster.start_daemons()?;
        Ok(cluster)
    }

    /// Starts the agents of the pools' nodes, and the switch when they are ready.
    pub fn start_daemons(&mut self) -> Result {
        let used = |node: &usize| self.plan.pools.iter().any(|(_, nodes)| nodes.contains(node));
        let nodes = (0..self.plan.servers.len()).filter(used);
        let agents = nodes.map(|node| Ok((node, self.spawn_node(node)?))).collect::<Result<Vec<_>>>()?;
        for (node, agent) in agents {
            agent.wait_for_log("ready", PATIENCE)?;
            self.agents[node] = Some(agent);
        }
        self.start_switch()
    }

    /// The lab, its servers and the configuration, but none of our processes.
    pub fn prepare(plan: Plan) -> Result<Cluster> {
        let alone = alone();
        let mut lab =
            Lab::builder().topology(plan.topology).clients(plan.clients_len).nodes(plan.servers.len());
        if plan.generic_xdp {
            lab = lab.generic_xdp(Role::Switch);
        }
        let lab = lab.up()?;
        // The default of some machines is BBR, whose uploads in chunks can stand still for ten seconds after a loss
        // (docs/requests.md#bodies).
        lab.use_reno()?;
        lab.add_document("img/small", &[b'#'; 200])?;
        lab.add_document("img/1m", &block(1))?;
        let servers = (0..plan.servers.len()).map(|index| start_server(&lab, &plan, index));
        let servers = Mutex::new(servers.collect::<Result<_>>()?);
        plan.write_certificate(&lab)?;
        let config = lab.write_config_text(&plan.config(&lab))?;
        let agents = plan.servers.iter().map(|_| None).collect();
        let program = Mutex::new(PROGRAM.into());
        Ok(Cluster { program, lab, plan, config, switch: None, agents, servers, _alone: alone })
    }

    /// Writes a changed configuration; nobody reads it until told.
    pub fn write_config(&self, plan: &Plan) -> Result {
        self.lab.write_config_text(&plan.config(&self.lab))?;
        Ok(())
    }

    fn program(&self) -> PathBuf {
        self.program.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts switch and agents with this program from now on.
    pub fn use_program(&self, program: &Path) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = program.to_owned();
    }

    /// `switchback switch`, whatever comes of it.
    pub fn spawn_switch(&self) -> Result<Process> {
        let mut command = Command::new(self.program());
        command.arg("switch").arg("--config").arg(&self.config);
        for (name, ..) in self.lab.switch(0).interfaces() {
            command.args(["--interface", name]);
        }
        command.env("STATE_DIRECTORY", self.lab.directory().join("state-switch"));
        // `make test` runs suites a second time with several threads.
        if let Ok(threads) = std::env::var("SWITCHBACK_THREADS") {
            command.args(["--threads", &threads]);
        }
        Ok(self.lab.switch(0).spawn("switch", command)?)
    }

    /// `switchback node`, whatever comes of it.
    pub fn spawn_node(&self, node: usize) -> Result<Process> {
        let host = self.lab.node(node);
        let mut command = Command::new(self.program());
        command.args(["node", "--interface", "eth0", "--name", host.name(), "--config"]).arg(&self.config);
        if self.plan.tls.is_some() {
            command.args(["--log-level", "debug"]);
        }
        command.env("STATE_DIRECTORY", self.state_directory(node));
        Ok(host.spawn("agent", command)?)
    }

    /// Where a node's agent keeps its state; it makes the directory itself.
    pub fn state_directory(&self, node: usize) -> PathBuf {
        self.lab.directory().join(format!("state-{node}"))
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Option<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, node: usize) -> Result<Server> {
        self.servers()[node].clone().ok_or_else(|| format!("node {node} has a slow server").into())
    }

    /// What a node's server has logged of all that it has answered. It logs what it has sent, so a client may have a response
    /// before; but one worker deals with one request after the other, so a last one shows that the others are there.
    pub fn server_log(&self, node: usize) -> Result<String> {
        const LAST: &str = "/the-last-of-the-log-";
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let target = format!("{LAST}{}.", NEXT.fetch_add(1, Ordering::Relaxed));
        let host = self.lab.node(node);
        let mut stream = host.tcp_connect((host.ipv4(), 80).into(), PATIENCE)?;
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        Responses::new(&stream, PATIENCE)?.next(false)?.ok_or("the server does not answer")?;
        let path = self.server(node)?.access_log();
        let read = || Ok(std::fs::read_to_string(&path)?);
        let log = wait_until("the server's log", PATIENCE, read, |log: &String| log.contains(&target))?;
        Ok(log.split_inclusive('\n').filter(|line| !line.contains(LAST)).collect())
    }

    /// Ends a node's server in order.
    pub fn stop_server(&self, node: usize) -> Result {
        Ok(self.server(node)?.stop()?)
    }

    /// What the client has sent again because nothing came, while this was done: handshakes, and anything else.
    pub fn sent_again(&self, work: impl FnOnce() -> Result) -> Result<[u64; 2]> {
        let counts = || -> Result<[u64; 2]> {
            let count = |name| self.client().tcp_counter(name);
            Ok([count("TCPSynRetrans")?, count("TCPTimeouts")?])
        };
        let before = counts()?;
        work()?;
        let after = counts()?;
        Ok([after[0] - before[0], after[1] - before[1]])
    }

    /// Kills a node's server with all its processes, of which the first may not be the one that serves.
    pub fn kill_server(&self, node: usize) -> Result {
        Ok(self.server(node)?.kill()?)
    }

    /// Starts a node's server again.
    pub fn start_server(&self, node: usize) -> Result {
        let server = start_server(&self.lab, &self.plan, node)?;
        self.servers()[node] = server;
        Ok(())
    }

    /// Starts the switch and waits until it is ready.
    pub fn start_switch(&mut self) -> Result {
        let switch = self.spawn_switch()?;
        switch.wait_for_log("ready", PATIENCE)?;
        self.switch = Some(switch);
        Ok(())
    }

    /// From here on the switch is this process, which somebody else has started.
    pub fn replace_switch(&mut self, process: Process) {
        self.switch = Some(process);
    }

    /// From here on a node's agent is this process, which somebody else has started.
    pub fn replace_agent(&mut self, node: usize, process: Process) {
        self.agents[node] = Some(process);
    }

    /// Starts a node's agent and waits until it is ready.
    pub fn start_node(&mut self, node: usize) -> Result {
        let agent = self.spawn_node(node)?;
        agent.wait_for_log("ready", PATIENCE)?;
        self.agents[node] = Some(agent);
        Ok(())
    }

    /// The process of the switch.
    pub fn switch(&self) -> &Process {
        self.switch.as_ref().expect("the switch runs")
    }

    /// The process of a node's agent.
    pub fn agent(&self, node: usize) -> &Process {
        self.agents[node].as_ref().expect("the agent runs")
    }

    pub fn kill_switch(&mut self) -> Result {
        self.switch.take().expect("the switch runs").kill()?;
        Ok(())
    }

    pub fn kill_node(&mut self, node: usize) -> Result {
        self.agents[node].take().expect("the agent runs").kill()?;
        Ok(())
    }

    /// SIGTERM, and status 0 soon after.
    pub fn stop_switch(&mut self) -> Result {
        stop(&self.switch.take().expect("the switch runs"))
    }

    /// SIGTERM, and status 0 soon after; connections that the node has break.
    pub fn stop_node(&mut self, node: usize) -> Result {
        stop(&self.agents[node].take().expect("the agent runs"))
    }

    /// Stops everything that runs, checks that nothing is left of it, and takes the lab down.
    pub fn down(mut self) -> Result {
        self.stop_all()?;
        self.assert_no_trace()?;
        self.lab.down()?;
        Ok(())
    }

    pub fn stop_all(&mut self) -> Result {
        if self.switch.is_some() {
            self.stop_switch()?;
        }
        for node in 0..self.agents.len() {
            if self.agents[node].is_some() {
                self.stop_node(node)?;
            }
        }
        Ok(())
    }

    /// Nothing of ours on the switch and the nodes.
    pub fn assert_no_trace(&self) -> Result {
        for host in self.lab.switches().chain(self.lab.nodes()) {
            let traces = traces::of(host)?;
            assert!(traces.is_empty(), "left on {}: {traces:#?}", host.name());
        }
        Ok(())
    }

    pub fn client(&self) -> &Host {
        self.lab.client(0)
    }

    pub fn url4(&self, path: &str) -> String {
        format!("http://{}{path}", self.lab.vip4())
    }

    pub fn url6(&self, path: &str) -> String {
        format!("http://[{}]{path}", self.lab.vip6())
    }

    pub fn switch_status(&self) -> Result<Value> {
        status(self.lab.switch(0))
    }

    pub fn node_status(&self, node: usize) -> Result<Value> {
        status(self.lab.node(node))
    }

    /// This field of each of the first node's listeners.
    pub fn listeners(&self, field: &str) -> Result<Vec<String>> {
        let status = self.node_status(0)?;
        let listeners = status["listeners"].as_array().ok_or("no listeners")?;
        Ok(listeners.iter().filter_map(|listener| listener[field].as_str()).map(str::to_owned).collect())
    }

    /// Until all of them are in this state.
    pub fn wait_for_listeners(&self, state: &str) -> Result {
        let are = |states: &Vec<String>| !states.is_empty() && states.iter().all(|found| found == state);
        wait_until(state, PATIENCE, || self.listeners("state"), are)?;
        Ok(())
    }

    /// A counter of the switch's program.
    pub fn switch_counter(&self, name: &str) -> Result<u64> {
        counter(&self.switch_status()?, name)
    }

    /// A counter of a node's programs.
    pub fn node_counter(&self, node: usize, name: &str) -> Result<u64> {
        counter(&self.node_status(node)?, name)
    }

    /// Flow entries of the switch.
    pub fn flows(&self) -> Result<u64> {
        Ok(self.switch_status()?["flows"].as_u64().ok_or("no number of flows")?)
    }

    /// Runs `switchback` on a host to its end.
    pub fn run(&self, host: &Host, arguments: &[&str]) -> Result<switchback_lab::Output> {
        Ok(host.run([&[PROGRAM], arguments].concat())?)
    }
}
