//! The experiments of "Direct Web Switch Routing with State Migration, TCP Masquerade, and Cookie Name Rewriting" (Lin,
//! Tsai, Lin and Ming): its three tables.
//!
//! The paper's servers sent 85 Mbit/s in 1,700 responses a second, or 6.6 KB for each request of its table I, with all
//! heads. It says neither whether each request had a connection of its own nor what the clients were. Here responses
//! are as long, and connections are kept, which is the case for which the paper's mechanism is meant. The paper's
//! servers were slow; here the links are: two cores fill twelve links of 100 Mbit/s, but cannot do the work of twelve
//! servers.

mod envoy;
mod table1;
mod table2;
mod table3;

pub use table1::DwsrTable1;
pub use table2::DwsrTable2;
pub use table3::DwsrTable3;

use std::path::{Path, PathBuf};

use super::cpu::CpuTimes;
use super::report::micros;
use super::systems::{self, Proxy, Running, System};
use super::wrk::{Load, LoadResult};

/// Rate of each node's link, and of the switch's where stated.
const LINK_BITS_PER_S: u64 = 100_000_000;
const CONNECTIONS_PER_NODE: u32 = 8;
const WARM_UP_SECONDS: u32 = 1;
/// Options that keep nodes from being the limit: files stay open, and head and body are written together.
const NODE_OPTIONS: &str = "sendfile off; open_file_cache max=16; open_file_cache_valid 1h;";
const PROGRAMS: &[(&str, &str)] = &[("haproxy", "-v"), ("nginx", "-v"), ("wrk", "-v")];

/// A requested document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    name: &'static str,
    kib: usize,
}

impl Document {
    /// As long as the paper's responses: some 6.7 KB with HTTP, TCP, IP and Ethernet headers.
    const PAPER: Document = Document { name: "6k", kib: 6 };
    /// Longer, so that twelve links are full before two cores are busy.
    const LONGER: Document = Document { name: "16k", kib: 16 };
}

/// The measurement of one load on one system.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The measured system.
    pub system: System,
    /// Number of nodes.
    pub nodes: usize,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the host between client and nodes, if any.
    pub cpu: Option<CpuTimes>,
    /// Bytes over that host's link, in both directions.
    pub link_bytes: Option<u64>,
}

/// The titles of [`Measured::csv_cells`], after other titles.
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
        self.load.per_request(value?)
    }

    /// CPU time per request at the host between client and nodes, in microseconds: program, receive work, sum.
    fn cpu_us_each(&self) -> Option<[f64; 3]> {
        let CpuTimes { process, receive } = self.cpu?;
        let each = |time| self.per_request(Some(micros(time)));
        Some([each(process)?, each(receive)?, each(process + receive)?])
    }

    fn link_bytes_each(&self) -> Option<f64> {
        self.per_request(self.link_bytes.map(|bytes| bytes as f64))
    }

    /// The rate of heads and bodies.
    fn mbit_per_s(&self) -> f64 {
        self.load.bytes_per_s * 8.0 / 1e6
    }
}

/// Makes the hosts alike, puts the documents on the nodes, and starts servers and systems, with Envoy if there is one, and
/// with a service for each of these numbers of nodes.
fn start(
    lab: &Lab,
    program: &Path,
    envoy: Option<PathBuf>,
    documents: &[Document],
    nodes: &[usize],
) -> Result<Vec<Running>> {
    // The pacing timers of BBR, the default of some machines, cost a tenth of the lab's CPU time.
    lab.use_reno()?;
    // The proxies have no XDP program; one at the other end of their cable would disable offloads.
    lab.switch(1).set_xdp_port(false)?;
    for Document { name, kib } in documents {
        lab.add_document(name, &vec![b'#'; kib << 10])?;
    }
    let server = ServerOptions { extra: NODE_OPTIONS.to_owned(), ..ServerOptions::default() };
    let mut proxies = Proxy::all_installed();
    proxies.extend(envoy.map(|program| Proxy { system: System::Envoy, program }));
    systems::start(lab, program, &proxies, nodes, &server)
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

    /// 1,000 requests per node in two seconds, without a proxy; a proxy uses 50 us and 13,000 bytes per request.
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
