//! The cost of reports: what a thousand nodes take of the switch.
//!
//! There are no such nodes: one host of the lab sends their reports, evenly over time, as nodes do that were not started at
//! the same moment. No client has a request meanwhile.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde::de::IgnoredAny;
use switchback_lab::{Doing, Error, Lab, Result};
use switchback_wire::clock::NodeClock;
use switchback_wire::handoff::Peers;
use switchback_wire::report::{Report as NodeReport, pool_id};
use switchback_wire::switches::Software;
use switchback_wire::{SB_VERSION, keys, sb_key};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems;
use super::{Experiment, Options, Progress, in_turn};

/// Nodes of the configuration.
const NODES: u32 = 1000;
/// Numbers of those that report.
const REPORTING: [u32; 3] = [0, 100, NODES];
/// Network of the nodes, which are not in the lab.
const NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 5, 0, 0, 0, 0, 0);
const POOL: &str = "web";
const PORT: u16 = 80;
const WARM_UP: Duration = Duration::from_millis(1500);
const TICK: Duration = Duration::from_millis(1);

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Number of nodes that report.
    pub nodes: u32,
    /// Reports sent.
    pub reports: u64,
    /// Duration of the measurement.
    pub time: Duration,
    /// CPU time of the switch.
    pub switch: CpuTimes,
}

impl Sample {
    /// Share of one core, in percent.
    fn percent(&self, time: Duration) -> f64 {
        100.0 * time.as_secs_f64() / self.time.as_secs_f64()
    }

    fn reports_per_s(&self) -> f64 {
        self.reports as f64 / self.time.as_secs_f64()
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Reports of a thousand nodes.
#[derive(Clone, Copy, Debug)]
pub struct ReportCost;

impl Experiment for ReportCost {
    type Sample = Sample;
    const NAME: &'static str = "report-cost";
    const SECONDS: u32 = 3;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[];
    const PLOTTED: bool = false;

    /// The host that sends the reports.
    fn nodes(&self) -> usize {
        1
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let path = lab.write_config_text(&config())?;
        let cluster = switchback_config::load(&path).map_err(|error| Error::Invalid(error.to_string()))?;
        let interval = cluster.reports.interval;
        let key = keys::handoff_key(cluster.keys[0].as_bytes());
        let (sender, network) = (lab.node(0), format!("{NETWORK}/64"));
        sender.run(["ip", "-6", "route", "add", "blackhole", &network])?.success()?;
        let next_hop = sender.ipv6().to_string();
        lab.switch(0).run(["ip", "-6", "route", "add", &network, "via", &next_hop])?.success()?;
        let switch = systems::start_switch(lab, &options.program, &path)?;
        let meter = CpuMeter::new(lab.switch(0), &switch)?;
        progress.expect(REPORTING.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &nodes in in_turn(&REPORTING, repetition) {
                let (to, vip) = (lab.switch(0).ipv6(), lab.vip4().into());
                let reporting = Reporting { to, vip, nodes, interval, key };
                let sample = reporting.beside(lab, || {
                    thread::sleep(WARM_UP);
                    expect_heard(lab, options, nodes)?;
                    let (start, before) = (Instant::now(), meter.read()?);
                    thread::sleep(Duration::from_secs(options.seconds.into()));
                    let (switch, time) = (meter.read()? - before, start.elapsed());
                    let reports = reporting.due(time);
                    Ok(Sample { repetition, nodes, reports, time, switch })
                })?;
                progress.loaded(&format!(
                    "round {repetition}  {nodes:>4} nodes  {:>6.0} reports/s  {:.2} % of a core",
                    sample.reports_per_s(),
                    sample.percent(sample.switch.total())
                ));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn address(node: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(NETWORK.to_bits() | u128::from(node + 1))
}

fn config() -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n".to_owned();
    let mut add = |part: String| text.write_str(&part).expect("writing to a string does not fail");
    let mut names = Vec::new();
    for node in 0..NODES {
        add(format!("[[node]]\nname = \"n{node}\"\naddress = \"{}\"\n", address(node)));
        names.push(format!("\"n{node}\""));
    }
    let names = names.join(", ");
    add(format!("\n[[pool]]\nname = \"{POOL}\"\nnodes = [{names}]\npolicy = \"two-choices\"\n"));
    add(format!(
        "\n[[service]]\nname = \"shop\"\nlisten = [\"{{vip4}}:{PORT}\"]\nroute = [{{ pool = \"{POOL}\" }}]\n"
    ));
    text
}

/// Fails unless the switch hears so many nodes.
fn expect_heard(lab: &Lab, options: &Options, nodes: u32) -> Result<()> {
    #[derive(Deserialize)]
    struct Status {
        nodes: Vec<Node>,
    }
    #[derive(Deserialize)]
    struct Node {
        load: Option<IgnoredAny>,
        silent: bool,
    }
    let status: Status = systems::status(lab.switch(0), &options.program)?;
    let heard = status.nodes.iter().filter(|node| node.load.is_some() && !node.silent).count();
    if heard == nodes as usize {
        return Ok(());
    }
    Err(Error::Invalid(format!("the switch hears {heard} nodes, not {nodes}")))
}

/// Nodes that report to a switch.
#[derive(Clone, Copy)]
struct Reporting {
    to: Ipv6Addr,
    vip: IpAddr,
    nodes: u32,
    /// Of a node's reports.
    interval: Duration,
    key: sb_key,
}

impl Reporting {
    /// Number of reports in this time.
    fn due(&self, time: Duration) -> u64 {
        (time.as_secs_f64() / self.interval.as_secs_f64() * f64::from(self.nodes)) as u64
    }

    /// Sends their reports while `work` runs.
    fn beside<T>(self, lab: &Lab, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let sending = scope.spawn(|| lab.node(0).enter(|| self.send(&over)));
            let worked = work();
            over.store(true, Ordering::Relaxed);
            let sent = sending.join().expect("it does not panic")?;
            sent.doing(|| "send reports".to_owned())?;
            worked
        })
    }

    fn send(self, over: &AtomicBool) -> io::Result<()> {
        let socket = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
        let to: SockaddrStorage = SocketAddrV6::new(self.to, 0, 0, 0).into();
        let (start, mut sent) = (Instant::now(), 0u64);
        while !over.load(Ordering::Relaxed) {
            let due = self.due(start.elapsed());
            for number in sent..due {
                sendto(socket.as_raw_fd(), &self.packet(number)?, &to, MsgFlags::empty())?;
            }
            sent = due;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// The report with this number among those of all nodes.
    fn packet(&self, number: u64) -> io::Result<Vec<u8>> {
        let (node, number) = (number % u64::from(self.nodes), number / u64::from(self.nodes));
        let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
        let peers = Peers {
            node: IpAddr::from(address(node as u32)).into(),
            switch: self.to.into(),
            epoch: NodeClock::default().epoch(now),
        };
        let report = NodeReport {
            listener: SocketAddr::new(self.vip, PORT),
            pool: pool_id(POOL),
            number: number as u16,
            reason: None,
            queue: ((number % 8) as u16, 511),
            in_flight: (number % 16) as u32,
            flows: 1000,
            first_byte: Some(Duration::from_micros(900)),
            cpu: 500,
            newest: SB_VERSION,
            software: Software::with(0),
        };
        let mut packet = Vec::new();
        report.encode(&mut packet, &self.key, peers);
        Ok(packet)
    }
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 5] = [
    ("Nodes that report", true),
    ("Reports/s", true),
    ("Switch: % of a core (min–max)", true),
    ("process", true),
    ("receiving, with XDP", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,nodes,reports,time_us,switch_process_us,switch_receive_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, nodes, reports, time, switch } = sample;
        let mut cells = vec![repetition.to_string(), nodes.to_string(), reports.to_string()];
        cells.extend([*time, switch.process, switch.receive].map(|time| time.as_micros().to_string()));
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for nodes in REPORTING {
            let each = |of: fn(&Sample) -> f64| {
                Spread::of(self.samples.iter().filter(|sample| sample.nodes == nodes).map(of))
            };
            let median = |spread: Option<Spread>| shown(spread, |spread| format!("{:.2}", spread.median));
            text += &row(&[
                nodes.to_string(),
                shown(each(Sample::reports_per_s), |spread| format!("{:.0}", spread.median)),
                with_extremes(each(|sample| sample.percent(sample.switch.total())), |value| {
                    format!("{value:.2}")
                }),
                median(each(|sample| sample.percent(sample.switch.process))),
                median(each(|sample| sample.percent(sample.switch.receive))),
            ]);
        }
        text
    }

    fn how(&self) -> String {
        repeated(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn the_table_has_shares_of_a_core() {
        let sample = |repetition, process| Sample {
            repetition,
            nodes: 1000,
            reports: 40_000,
            time: Duration::from_secs(2),
            switch: CpuTimes { process: Duration::from_millis(process), receive: Duration::from_millis(20) },
        };
        let results = fixtures::results(2, vec![sample(1, 20), sample(2, 40)]);
        let table = results.table();
        let expected = "| 1000 | 20000 | 2.50 (2.00–3.00) | 1.50 | 1.00 |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert!(results.csv().contains("2,1000,40000,2000000,40000,20000"));
    }
}
