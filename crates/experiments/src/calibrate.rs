//! Costs of packets, requests, handshakes and hand-overs on this machine, for the simulator.
//!
//! Loads that differ in one thing run in turn on one cluster of two nodes. The cost of that thing is the difference in
//! their CPU time, at the switch and at both nodes together, servers included.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use switchback_lab::{Host, Lab, ONE_MIB, Result, SMALL, ServerOptions, pseudo_random};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, cpu_time, header, micros, repeated, row, shown};
use super::statistics::Spread;
use super::systems;
use super::tls_load::{self, Certificate, Client, Document, KeyKind, Requests, Version, closed};
use super::wrk::Load;
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 2;
const CONNECTIONS: u32 = 16;
const WARM_UP: Duration = Duration::from_secs(1);
/// Port of the servers behind the agents, which listen on the services' ports.
const SERVER: u16 = 9000;
/// Requests of a conversation over TLS.
const REQUESTS: usize = 10;
const KIB_OF_LARGE: f64 = 1024.0;
const SMALL_PATH: &str = "/tls-small";
/// A path of another pool.
const OTHER_PATH: &str = "/other-small";
const LARGE_PATH: &str = "/tls-large";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// 100 bytes on a kept connection.
    Kept,
    /// 100 bytes on a kept connection; each request is dispatched.
    Dispatched,
    /// 100 bytes on a new connection.
    New,
    /// 1 MiB on a kept connection.
    Large,
    /// 100 bytes on a new connection over TLS, with a full handshake.
    Full,
    /// 100 bytes on a new connection over TLS, with a resumed session.
    Resumed,
    /// Ten times 100 bytes on a connection over TLS.
    Ten,
    /// Ten times 100 bytes on a connection over TLS, from two pools in turn: nine moves.
    Moves,
    /// Ten times 100 bytes from a busy node, which relays the requests to another one.
    Relays,
    /// 1 MiB over TLS on a kept connection.
    LargeTls,
}

impl Workload {
    /// All workloads, in the order of the loads.
    pub const ALL: [Workload; 10] = [
        Workload::Kept,
        Workload::Dispatched,
        Workload::New,
        Workload::Large,
        Workload::Full,
        Workload::Resumed,
        Workload::Ten,
        Workload::Moves,
        Workload::Relays,
        Workload::LargeTls,
    ];

    fn name(self) -> &'static str {
        match self {
            Workload::Kept => "100 B, kept",
            Workload::Dispatched => "100 B, kept, each dispatched",
            Workload::New => "100 B, new connection",
            Workload::Large => "1 MiB, kept",
            Workload::Full => "TLS, full handshake",
            Workload::Resumed => "TLS, resumed",
            Workload::Ten => "TLS, ten requests",
            Workload::Moves => "TLS, ten requests, nine moves",
            Workload::Relays => "TLS, ten requests, relayed",
            Workload::LargeTls => "TLS, 1 MiB, kept",
        }
    }

    fn port(self) -> u16 {
        match self {
            Workload::Dispatched => 8081,
            Workload::Kept | Workload::New | Workload::Large => 8080,
            Workload::Moves => 8444,
            Workload::Relays => 8445,
            _ => 8443,
        }
    }

    /// The requests of a TLS workload; None without TLS.
    fn requests(self) -> Option<Requests> {
        let document = |path: &str, len| Document { path: path.to_owned(), len };
        let small = |path| document(path, SMALL);
        Some(match self {
            Workload::Kept | Workload::Dispatched | Workload::New | Workload::Large => return None,
            Workload::Full | Workload::Resumed => Requests::Each(vec![small(SMALL_PATH)]),
            Workload::Ten | Workload::Relays => Requests::Each(vec![small(SMALL_PATH); REQUESTS]),
            Workload::Moves => {
                let paths = [SMALL_PATH, OTHER_PATH].into_iter().cycle();
                Requests::Each(paths.take(REQUESTS).map(small).collect())
            }
            Workload::LargeTls => Requests::ForEver(document(LARGE_PATH, ONE_MIB)),
        })
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The kind of load.
    pub workload: Workload,
    /// Answered requests.
    pub requests: u64,
    /// Successful conversations over TLS.
    pub conversations: u64,
    /// Connections or requests that a node handed over to the other one.
    pub handed_over: u64,
    /// Errors of all kinds.
    pub errors: u64,
    /// CPU time of the switch.
    pub switch: CpuTimes,
    /// CPU time of all nodes, agents and servers.
    pub nodes: CpuTimes,
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// The costs that the simulator counts with.
#[derive(Clone, Copy, Debug)]
pub struct Calibrate;

impl Experiment for Calibrate {
    type Sample = Sample;
    const NAME: &'static str = "calibrate";
    const SECONDS: u32 = 3;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let text = pseudo_random(ONE_MIB);
        for (path, len) in [(SMALL_PATH, SMALL), (OTHER_PATH, SMALL), (LARGE_PATH, ONE_MIB)] {
            lab.add_document(path.trim_start_matches('/'), &text[..len])?;
        }
        let certificate = Certificate::create(lab, KeyKind::Ecdsa)?;
        tls_load::prepare(lab.client(0))?;
        let cluster = Cluster::start(lab, options)?;
        progress.expect(Workload::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &workload in in_turn(&Workload::ALL, repetition) {
                let returns = workload != Workload::Full;
                let clients = (0..CONNECTIONS).map(|_| certificate.client(Version::Tls13, returns));
                let clients = clients.collect::<Result<Vec<_>>>()?;
                cluster.load(workload, &clients, &text, WARM_UP)?;
                let before = cluster.read()?;
                let seconds = Duration::from_secs(options.seconds.into());
                let (requests, conversations, errors) = cluster.load(workload, &clients, &text, seconds)?;
                let after = cluster.read()?;
                let sample = Sample {
                    repetition,
                    workload,
                    requests,
                    conversations,
                    handed_over: after.2 - before.2,
                    errors,
                    switch: after.0 - before.0,
                    nodes: after.1 - before.1,
                };
                progress.loaded(&describe(&sample));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

struct Cluster<'a> {
    lab: &'a Lab,
    program: &'a std::path::Path,
    switch: CpuMeter,
    /// For each node, its agent and its server.
    nodes: Vec<CpuMeter>,
}

/// The relevant part of `switchback status --json` on a node.
#[derive(Deserialize)]
struct NodeStatus {
    tls: Vec<ServiceStatus>,
}

#[derive(Deserialize)]
struct ServiceStatus {
    given: u64,
    requests_given: u64,
}

impl<'a> Cluster<'a> {
    fn start(lab: &'a Lab, options: &'a Options) -> Result<Cluster<'a>> {
        let servers = lab.nodes().map(|node| {
            let everywhere = |port| SocketAddr::from(([0, 0, 0, 0], port));
            let listen = [8080, 8081, SERVER].map(everywhere).to_vec();
            let extra = "tcp_nopush on; keepalive_requests 1000000000;".to_owned();
            node.nginx(&ServerOptions { listen, extra, ..ServerOptions::default() })
        });
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let daemons = systems::start_switchback(lab, &options.program, &lab.write_config_text(&config())?)?;
        let nodes = lab.nodes().zip(daemons.agents().iter().zip(&servers));
        let nodes = nodes.map(|(node, (agent, server))| CpuMeter::of_all(node, [agent, server.process()]));
        Ok(Cluster {
            lab,
            program: &options.program,
            switch: CpuMeter::new(lab.switch(0), daemons.switch())?,
            nodes: nodes.collect::<Result<_>>()?,
        })
    }

    /// Requests, conversations and errors.
    fn load(
        &self,
        workload: Workload,
        clients: &[Client],
        text: &[u8],
        limit: Duration,
    ) -> Result<(u64, u64, u64)> {
        let address = SocketAddr::from((self.lab.vip4(), workload.port()));
        let client = self.lab.client(0);
        if let Some(requests) = workload.requests() {
            let done = closed::run(client, address, text, clients, || requests.clone(), limit)?;
            return Ok((done.responses, done.conversations, done.errors));
        }
        let path = if workload == Workload::Large { LARGE_PATH } else { SMALL_PATH };
        let (url, close) = (format!("http://{address}{path}"), workload == Workload::New);
        let seconds = limit.as_secs() as u32;
        let load = Load { url: &url, connections: CONNECTIONS, close, fields: &[], seconds }.run(client)?;
        Ok((load.requests, 0, load.errors.total()))
    }

    /// CPU time of the switch and of the nodes, and the number of hand-overs by nodes.
    fn read(&self) -> Result<(CpuTimes, CpuTimes, u64)> {
        let nodes = self.nodes.iter().map(CpuMeter::read).sum::<Result<CpuTimes>>()?;
        let handed_over = self.lab.nodes().map(|node| self.handed_over(node)).sum::<Result<u64>>()?;
        Ok((self.switch.read()?, nodes, handed_over))
    }

    fn handed_over(&self, node: &Host) -> Result<u64> {
        let status: NodeStatus = systems::status(node, self.program)?;
        Ok(status.tls.iter().map(|service| service.given + service.requests_given).sum())
    }
}

fn config() -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n{nodes}\n".to_owned();
    let pool = |name: &str, nodes: &str, lines: &str| {
        format!("[[pool]]\nname = \"{name}\"\nnodes = [{nodes}]\n{lines}\n\n")
    };
    text += &pool("web", "{node_names}", "policy = \"round-robin\"");
    text += &pool("each", "{node_names}", "policy = \"round-robin\"\nbalance = \"request\"");
    text += &pool("first", "\"node0\"", "policy = \"round-robin\"");
    text += &pool("other", "\"node1\"", "policy = \"round-robin\"");
    text += &pool("fill", "{node_names}", "policy = \"fill\"");
    let service = |port: u16, routes: &str| {
        format!("[[service]]\nname = \"s{port}\"\nlisten = [\"{{vip4}}:{port}\"]\nroute = [{routes}]\n\n")
    };
    let tls = |lines: &str| tls_load::service_table(format!("127.0.0.1:{SERVER}"), lines);
    text += &service(8080, "{ pool = \"web\" }");
    text += &service(8081, "{ pool = \"each\" }");
    text += &(service(8443, "{ pool = \"web\" }") + &tls(""));
    let by_path = format!("{{ path = \"{OTHER_PATH}\", pool = \"other\" }}, {{ pool = \"first\" }}");
    text += &(service(8444, &by_path) + &tls(""));
    let relay = "sessions = \"forwarding\"\nhand_over = \"relay\"\nbusy_connections = 8\nbusy_cpu = \"100%\"";
    text += &(service(8445, "{ pool = \"fill\" }") + &tls(relay));
    text
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, workload, requests, handed_over, errors, .. } = sample;
    let each = |cpu: &CpuTimes| micros(cpu.total()) / (*requests).max(1) as f64;
    format!(
        "round {repetition}  {:<29} {requests:>7} requests  {:>7.1} us of the switch's CPU each, {:>7.1} of the nodes'  \
         {handed_over} handed over  {errors} errors",
        workload.name(),
        each(&sample.switch),
        each(&sample.nodes),
    )
}

impl Results {
    /// The median of a value over the samples of a workload.
    fn median(&self, workload: Workload, number: impl Fn(&Sample) -> f64) -> Option<f64> {
        let samples = self.samples.iter().filter(|sample| sample.workload == workload && sample.requests > 0);
        Spread::of(samples.map(number)).map(|spread| spread.median)
    }

    fn switch_us(&self, workload: Workload) -> Option<f64> {
        self.median(workload, |sample| micros(sample.switch.total()) / sample.requests as f64)
    }

    fn nodes_us(&self, workload: Workload) -> Option<f64> {
        self.median(workload, |sample| micros(sample.nodes.total()) / sample.requests as f64)
    }

    /// The cost of a hand-over at each of two nodes: the additional time of such requests, divided by hand-overs.
    fn hand_over_us(&self, workload: Workload) -> Option<f64> {
        let without = self.nodes_us(Workload::Ten)?;
        let more = |sample: &Sample| {
            (micros(sample.nodes.total()) - without * sample.requests as f64)
                / sample.handed_over.max(1) as f64
        };
        Some(self.median(workload, more)? / 2.0)
    }

    /// The costs as in `[costs]` of a scenario, with their derivation. Values that chance makes negative are zero.
    fn costs(&self) -> Vec<(&'static str, Option<f64>, &'static str)> {
        use Workload::{Dispatched, Full, Kept, Large, LargeTls, Moves, New, Relays, Resumed};
        let less = |a: Option<f64>, b: Option<f64>| Some((a? - b?).max(0.0));
        let (switch, nodes) = (|workload| self.switch_us(workload), |workload| self.nodes_us(workload));
        // The request, and the acknowledgment of the previous response.
        let packet = switch(Kept).map(|us| us / 2.0);
        let dispatched = less(switch(Dispatched), packet);
        let plain_kib = less(nodes(Large), nodes(Kept)).map(|us| us / KIB_OF_LARGE);
        let tls_kib = less(nodes(LargeTls), nodes(Large)).map(|us| us / KIB_OF_LARGE);
        vec![
            (
                "switch_connection_us",
                less(less(switch(New), dispatched), packet),
                "new connection, less a request that is dispatched and a packet",
            ),
            ("switch_request_us", dispatched, "kept, each dispatched, less a packet"),
            ("switch_packet_us", packet, "half of a request that is kept: its packet and an acknowledgment"),
            ("node_connection_us", less(nodes(New), nodes(Kept)), "new connection, less kept"),
            ("node_request_us", nodes(Kept), "kept, with the server"),
            ("node_kib_us", plain_kib, "1 MiB, less 100 B"),
            (
                "tls_full_us",
                less(nodes(Full), nodes(New)),
                "full handshake and a request, less a new connection without TLS",
            ),
            ("tls_resumed_us", less(nodes(Resumed), nodes(New)), "resumed, likewise"),
            ("tls_kib_us", tls_kib, "1 MiB over TLS, less 1 MiB without"),
            ("move_us", self.hand_over_us(Moves), "nine moves, for each of both nodes"),
            ("relay_us", self.hand_over_us(Relays), "relayed, for each of both nodes"),
        ]
    }
}

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,workload,requests,conversations,handed_over,errors,switch_process_us,\
        switch_receive_us,nodes_process_us,nodes_receive_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, workload, requests, conversations, handed_over, errors, switch, nodes } =
            sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", workload.name())];
        cells.extend([requests, conversations, handed_over, errors].map(|count| count.to_string()));
        let times = |cpu: &CpuTimes| [cpu.process, cpu.receive].map(|time| time.as_micros().to_string());
        cells.extend(times(switch));
        cells.extend(times(nodes));
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&[("Cost", false), ("µs", true), ("How", false)]);
        for (name, us, how) in self.costs() {
            text += &row(&[format!("`{name}`"), shown(us, cpu_time), how.to_owned()]);
        }
        text
    }

    fn how(&self) -> String {
        format!("{} Two nodes with nginx, {CONNECTIONS} connections at a time.\n", repeated(self))
    }

    /// The file for `switchback sim --costs`.
    fn toml(&self) -> Option<String> {
        let lines =
            self.costs().into_iter().filter_map(|(name, us, _)| Some(format!("{name} = {:.3}\n", us?)));
        Some(format!("[costs]\n{}", lines.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::results;

    #[test]
    fn costs_are_differences() {
        let sample = |workload, requests, switch, nodes, handed_over| {
            let cpu = |micros| CpuTimes { process: Duration::from_micros(micros), receive: Duration::ZERO };
            let (switch, nodes) = (cpu(switch), cpu(nodes));
            Sample {
                repetition: 1,
                workload,
                requests,
                conversations: 0,
                handed_over,
                errors: 0,
                switch,
                nodes,
            }
        };
        let all = vec![
            sample(Workload::Kept, 100, 400, 1000, 0),
            sample(Workload::Dispatched, 100, 1200, 2000, 0),
            sample(Workload::New, 100, 2500, 3000, 0),
            sample(Workload::Large, 10, 0, 10_340, 0),
            sample(Workload::Full, 10, 0, 6300, 0),
            sample(Workload::Resumed, 10, 0, 4300, 0),
            sample(Workload::Ten, 10, 0, 1000, 0),
            sample(Workload::Moves, 10, 0, 10_000, 9),
            sample(Workload::Relays, 10, 0, 2000, 5),
            sample(Workload::LargeTls, 10, 0, 30_820, 0),
        ];
        let toml = results(1, all).toml().unwrap();
        let expected = "[costs]\nswitch_connection_us = 13.000\nswitch_request_us = 10.000\nswitch_packet_us = 2.000\n\
            node_connection_us = 20.000\nnode_request_us = 10.000\nnode_kib_us = 1.000\ntls_full_us = 600.000\n\
            tls_resumed_us = 400.000\ntls_kib_us = 2.000\nmove_us = 500.000\nrelay_us = 100.000\n";
        assert_eq!(toml, expected);
    }
}
