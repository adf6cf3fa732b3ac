//! The experiments of "Direct Web Switch Routing with State Migration, TCP Masquerade, and Cookie Name Rewriting" (Lin,
//! Tsai, Lin and Ming): its three tables.
//!
//! The paper's servers sent 85 Mbit/s in 1,700 responses a second, which makes 6.6 KB for each of the requests of its
//! table I, all heads included. It says neither whether each request had a connection of its own nor what the clients were.
//! Here responses are as long, and connections are kept, which is what the paper's mechanism is for. Its servers were slow;
//! here their links are: two cores fill twelve links of 100 Mbit/s, but cannot be twelve servers.

mod envoy;
mod table1;
mod table2;
mod table3;

pub use table1::DwsrTable1;
pub use table2::DwsrTable2;
pub use table3::DwsrTable3;

use super::cpu::CpuTimes;
use super::report::micros;
use super::systems::{self, Programs, Running, System};
use super::wrk::{Load, LoadResult};

/// Of each node, and where it is said so of the switch.
const LINK_BITS_PER_S: u64 = 100_000_000;
const CONNECTIONS_PER_NODE: u32 = 8;
const WARM_UP_SECONDS: u32 = 1;
/// Nodes are to be no limit: files stay open, and head and body are written in one piece.
const NODE_OPTIONS: &str = "sendfile off; open_file_cache max=16; open_file_cache_valid 1h;";
/// What most machines have (BBR) paces by timers, which cost the lab's CPUs a tenth of what they can do.
const CONGESTION_CONTROL: &[(&str, &str)] = &[("ipv4/tcp_congestion_control", "reno")];
const PROGRAMS: &[(&str, &str)] = &[("haproxy", "-v"), ("nginx", "-v"), ("wrk", "-v")];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    name: &'static str,
    kib: usize,
}

impl Document {
    /// As long as the paper's responses: with its head and those of TCP, IP and Ethernet some 6.7 KB.
    const PAPER: Document = Document { name: "6k", kib: 6 };
    /// Longer, so that twelve links are full before two cores are busy.
    const LONGER: Document = Document { name: "16k", kib: 16 };
}

/// One load on one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// On what.
    pub system: System,
    /// How many nodes shared it.
    pub nodes: usize,
    /// As the client saw it.
    pub load: LoadResult,
    /// What the host between client and nodes used, if there is one.
    pub cpu: Option<CpuTimes>,
    /// What went over its link, both ways.
    pub link_bytes: Option<u64>,
}

/// The titles of [`Measured::csv_cells`], behind others.
macro_rules! csv_titles {
    ($first:literal) => {
        concat!(
            $first,
            ",system,nodes,requests,requests_per_s,bytes_per_s,p50_us,p99_us,errors,",
            "switch_process_us,switch_receive_us,switch_link_bytes"
        )
    };
}
use csv_titles;
use switchback_lab::{Lab, Result, ServerOptions};

impl Measured {
    fn csv_cells(&self) -> Vec<String> {
        let Measured { system, nodes, load, cpu, link_bytes } = self;
        let mut cells = vec![system.to_string(), nodes.to_string(), load.requests.to_string()];
        cells.extend([format!("{:.2}", load.requests_per_s), format!("{:.0}", load.bytes_per_s)]);
        cells.extend([load.p50, load.p99].map(|time| time.as_micros().to_string()));
        cells.push(load.errors.total().to_string());
        let cpu = cpu.map(|cpu| [cpu.process, cpu.receive].map(|time| time.as_micros().to_string()));
        cells.extend(cpu.unwrap_or_default());
        cells.push(link_bytes.map(|bytes| bytes.to_string()).unwrap_or_default());
        cells
    }

    fn per_request(&self, value: Option<f64>) -> Option<f64> {
        value.filter(|_| self.load.requests > 0).map(|value| value / self.load.requests as f64)
    }

    /// CPU time of the host in between, in microseconds: of the program, of receiving, together.
    fn cpu_us_each(&self) -> Option<[f64; 3]> {
        let CpuTimes { process, receive } = self.cpu?;
        let each = |time| self.per_request(Some(micros(time)));
        Some([each(process)?, each(receive)?, each(process + receive)?])
    }

    fn link_bytes_each(&self) -> Option<f64> {
        self.per_request(self.link_bytes.map(|bytes| bytes as f64))
    }

    /// Heads and bodies.
    fn mbit_per_s(&self) -> f64 {
        self.load.bytes_per_s * 8.0 / 1e6
    }
}

/// Makes the hosts alike, puts the documents on the nodes, and starts servers and systems, with a service for each of
/// these numbers of nodes.
fn start(
    lab: &Lab,
    programs: &Programs<'_>,
    documents: &[Document],
    nodes: &[usize],
) -> Result<Vec<Running>> {
    lab.hosts().iter().try_for_each(|host| host.sysctl(CONGESTION_CONTROL))?;
    // The proxies have no XDP program; one on the other end of their cable would take offloads from them.
    lab.switch(1).set_xdp_port(false)?;
    for Document { name, kib } in documents {
        lab.add_document(name, &vec![b'#'; kib << 10])?;
    }
    let server = ServerOptions { extra: NODE_OPTIONS.to_owned(), ..ServerOptions::default() };
    systems::start(lab, programs, nodes, &server)
}

fn load(lab: &Lab, running: &Running, nodes: usize, document: Document, seconds: u32) -> Result<Measured> {
    let system = running.system;
    let url = format!("http://{}/{}", running.address(nodes), document.name);
    let connections = CONNECTIONS_PER_NODE * nodes as u32;
    let link_bytes = || {
        let host = system.host(lab);
        let counters = host.map(|host| host.interface_counters("eth0")).transpose()?;
        Result::Ok(counters.map(|counters| counters.rx.bytes + counters.tx.bytes))
    };
    let before = (running.cpu_times()?, link_bytes()?);
    let load = Load { url: &url, connections, close: false, fields: &[], seconds }.run(lab.client(0))?;
    let after = (running.cpu_times()?, link_bytes()?);
    Ok(Measured {
        system,
        nodes,
        load,
        cpu: after.0.zip(before.0).map(|(after, before)| after - before),
        link_bytes: after.1.zip(before.1).map(|(after, before)| after - before),
    })
}

#[cfg(test)]
mod fixtures {
    use std::time::Duration;

    use super::*;
    use crate::fixtures;

    /// 1,000 requests in two seconds for each node that is not behind a proxy; a proxy uses 50 us and 13,000 bytes for each.
    pub(super) fn measured(system: System, nodes: usize) -> Measured {
        let requests = match system {
            System::Direct | System::Switchback => 1000 * nodes as u64,
            _ => 950,
        };
        let (us, bytes) = if system == System::Switchback { (5, 500) } else { (50, 13_000) };
        let cpu = CpuTimes { process: Duration::ZERO, receive: Duration::from_micros(us * requests) };
        let between = system != System::Direct;
        Measured {
            system,
            nodes,
            load: fixtures::load(requests, requests as f64 / 2.0),
            cpu: between.then_some(cpu),
            link_bytes: between.then_some(bytes * requests),
        }
    }
}
