//! `test`: whether the machines of a cluster work together, asked of each of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::SignedDuration;
use serde_json::{Value, json};
use switchback_config::Cluster;
use switchback_runtime::control::find_sockets;
use switchback_runtime::interface;
use switchback_status::Status;
use switchback_survey::{Asker, Machine, Server, Silence, VipListener};
use switchback_wire::SB_GENEVE_PORT;

use crate::config::Config;
use crate::failure::Failure;
use crate::files::CLUSTER_FILE;
use crate::table::{Align, Table};

/// Time that a daemon on this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for packets from VIPs to arrive after they were sent.
const ON_THE_WAY: Duration = Duration::from_secs(1);
/// Difference of clocks that is a warning, and one that is a failure, in milliseconds.
const CLOCKS_DIFFER: u64 = 2_000;
const CLOCKS_FAIL: u64 = 60_000;
/// Machines that are asked at a time.
const AT_A_TIME: usize = 16;
/// Pause between two rounds of `--wait`.
const PAUSE: Duration = Duration::from_millis(500);

/// Test whether the machines of a cluster work together
///
/// Run it as root on a switch or a node while the daemons run. It asks this machine and every other one of the file:
/// whether UDP port 6081 gets through, keys, clocks, configurations and versions agree, the longest packets pass,
/// packets from the VIPs arrive here, the servers listen and answer, and what the machine lacks. Exit status 2 if
/// something has failed.
#[derive(Args)]
pub struct Test {
    /// The cluster.toml
    #[arg(long, value_name = "FILE", default_value = CLUSTER_FILE)]
    config: Config,
    /// Try again until nothing fails, for so long, such as 30s
    #[arg(long, value_name = "TIME")]
    wait: Option<SignedDuration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Test {
    pub fn run(self) -> Result<(), Failure> {
        let cluster = self.config.cluster()?;
        let wait = self.wait.and_then(|wait| Duration::try_from(wait).ok()).unwrap_or_default();
        let deadline = Instant::now() + wait;
        let rows = loop {
            let rows = survey(&cluster);
            if !has_failed(&rows) || Instant::now() >= deadline {
                break rows;
            }
            thread::sleep(PAUSE);
        };
        if self.json {
            println!("{}", Value::from(rows.iter().map(Row::json).collect::<Vec<_>>()));
        } else {
            print!("{}", render(&rows));
        }
        if has_failed(&rows) { Err(Failure::silent(Failure::SYSTEM)) } else { Ok(()) }
    }
}

pub fn has_failed(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.result == Outcome::Failed)
}

/// The result of one check of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    machine: String,
    check: &'static str,
    result: Outcome,
    what: String,
    remedy: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ok,
    Warning,
    Failed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warning => "warning",
            Outcome::Failed => "failed",
        }
    }
}

impl Row {
    pub fn json(&self) -> Value {
        json!({
            "machine": self.machine,
            "check": self.check,
            "result": self.result.name(),
            "what": self.what,
            "remedy": if self.remedy.is_empty() { Value::Null } else { self.remedy.clone().into() },
        })
    }
}

/// The rows of one machine.
struct Rows {
    machine: String,
    rows: Vec<Row>,
}

impl Rows {
    fn of(machine: &str) -> Rows {
        Rows { machine: machine.to_owned(), rows: Vec::new() }
    }

    fn add(
        &mut self,
        check: &'static str,
        result: Outcome,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (machine, what, remedy) = (self.machine.clone(), what.into(), remedy.into());
        self.rows.push(Row { machine, check, result, what, remedy });
    }

    fn ok(&mut self, check: &'static str, what: impl Into<String>) {
        self.add(check, Outcome::Ok, what, "");
    }

    fn failed(&mut self, check: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, Outcome::Failed, what, remedy);
    }
}

/// Tests this machine, the nodes of the file, and the switches that they hear.
pub fn survey(cluster: &Cluster) -> Vec<Row> {
    let own = own_addresses();
    let (mut rows, heard) = here(cluster);
    let mut switches = BTreeSet::new();
    // Nodes that share an address are one machine.
    let mut seen = own.clone();
    let nodes: Vec<_> = cluster.nodes.iter().filter(|node| seen.insert(node.address)).collect();
    for batch in nodes.chunks(AT_A_TIME) {
        let ask = |node: &&switchback_config::Node| {
            let is_heard = heard.contains(&node.name);
            let of = Subject { name: &node.name, address: node.address, is_node: true, is_heard };
            test_machine(cluster, &of)
        };
        for (found, hears) in at_once(batch, ask) {
            rows.extend(found);
            switches.extend(hears);
        }
    }
    let switches: Vec<IpAddr> = switches.into_iter().filter(|address| !own.contains(address)).collect();
    for batch in switches.chunks(AT_A_TIME) {
        let ask = |address: &IpAddr| {
            let name = format!("switch {address}");
            test_machine(
                cluster,
                &Subject { name: &name, address: *address, is_node: false, is_heard: false },
            )
            .0
        };
        rows.extend(at_once(batch, ask).into_iter().flatten());
    }
    rows
}

/// The results for all items, each found in a thread of its own.
fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, R>| thread.join().expect("no check panics");
        threads.into_iter().map(join).collect()
    })
}

fn own_addresses() -> BTreeSet<IpAddr> {
    let names = interface::names().unwrap_or_default().into_iter();
    names.flat_map(|name| interface::addresses(&name).unwrap_or_default()).collect()
}

/// Tests this machine; also the names of the nodes that its switch hears.
fn here(cluster: &Cluster) -> (Vec<Row>, BTreeSet<String>) {
    let mut rows = Rows::of("this machine");
    let mut heard = BTreeSet::new();
    let daemons = find_sockets().unwrap_or_default();
    if daemons.is_empty() {
        rows.add(
            "daemons",
            Outcome::Warning,
            "neither a switch nor a node agent runs here",
            "run the test where one runs, or start it: systemctl start switchback-node or switchback-switch",
        );
    }
    for daemon in &daemons {
        match Status::ask(&daemon.path, PATIENCE) {
            Ok(Status::Switch(status)) => {
                let nodes = status.nodes.iter().filter(|node| node.load.is_some() && !node.silent);
                heard.extend(nodes.map(|node| node.name.clone()));
            }
            Ok(_) => {}
            Err(error) => rows.failed(
                "daemons",
                format!("the {} on {} does not answer: {error}", daemon.role, daemon.interface),
                format!("systemctl restart switchback-{}", daemon.role),
            ),
        }
    }
    check_described(cluster, &mut rows, &Machine::here());
    (rows.rows, heard)
}

/// A machine to test.
struct Subject<'a> {
    name: &'a str,
    address: IpAddr,
    is_node: bool,
    /// Whether the switch of this machine hears it.
    is_heard: bool,
}

/// Tests another machine; also the switches that it hears.
fn test_machine(cluster: &Cluster, of: &Subject<'_>) -> (Vec<Row>, Vec<IpAddr>) {
    let mut rows = Rows::of(of.name);
    let keys = cluster.key_bytes();
    let key = keys.first().expect("a valid file has a key");
    let asker = match Asker::new(of.address, key) {
        Ok(asker) => asker,
        Err(error) => {
            rows.failed("network", error.to_string(), "give this machine a route to it");
            return (rows.rows, Vec::new());
        }
    };
    let ahead = match asker.clock() {
        Ok(ahead) => ahead,
        Err(silence) => {
            add_silence(&mut rows, of, silence);
            return (rows.rows, Vec::new());
        }
    };
    rows.ok("network", format!("UDP port {SB_GENEVE_PORT} passes"));
    rows.ok("key", "the same");
    check_clock(&mut rows, ahead);
    check_path_mtu(&mut rows, &asker, of.address);
    let machine = match asker.describe() {
        Ok(machine) => machine,
        Err(_) => {
            rows.failed("daemons", "it does not tell how it is", "look at its log");
            return (rows.rows, Vec::new());
        }
    };
    check_described(cluster, &mut rows, &machine);
    if of.is_node {
        check_vip_sources(&mut rows, &asker, of.address, &machine.servers);
    }
    (rows.rows, machine.switches)
}

fn add_silence(rows: &mut Rows, of: &Subject<'_>, silence: Silence) {
    let Subject { address, .. } = of;
    match silence {
        Silence::WrongKey => rows.failed(
            "key",
            format!("{address} has another cluster key"),
            "copy the key file of this machine to it, mode 0600, and there: switchback reload",
        ),
        Silence::NobodyThere => rows.failed(
            "daemons",
            format!("no daemon of Switchback runs on {address}"),
            "start it there: systemctl start switchback-node; if it does not start: switchback doctor",
        ),
        Silence::Unreachable => rows.failed(
            "network",
            format!("{address} cannot be reached"),
            "start the machine, or correct its address in the file and the routes",
        ),
        Silence::NoAnswer if of.is_heard => rows.add(
            "network",
            Outcome::Warning,
            format!("{address} reports, but does not answer questions: its own firewall drops them, or its version is older"),
            format!("let UDP port {SB_GENEVE_PORT} in there; handoff packets pass in any case"),
        ),
        Silence::NoAnswer => rows.failed(
            "network",
            format!("UDP port {SB_GENEVE_PORT} does not get to {address} and back"),
            format!(
                "let UDP port {SB_GENEVE_PORT} pass in both directions between the machines; is {address} up?"
            ),
        ),
    }
}

fn check_clock(rows: &mut Rows, ahead: i64) {
    let result = match ahead.unsigned_abs() {
        0..CLOCKS_DIFFER => return rows.ok("clock", "agrees with this machine's"),
        CLOCKS_DIFFER..CLOCKS_FAIL => Outcome::Warning,
        _ => Outcome::Failed,
    };
    let (seconds, way) =
        (ahead.unsigned_abs() as f64 / 1000.0, if ahead > 0 { "ahead of" } else { "behind" });
    rows.add(
        "clock",
        result,
        format!("{seconds:.0} s {way} this machine's: SYN cookies and TLS sessions of one are not valid at the other"),
        "synchronise the clocks of all machines, with chrony for example",
    );
}

fn check_path_mtu(rows: &mut Rows, asker: &Asker, address: IpAddr) {
    match asker.path_mtu() {
        Ok((mtu, Some(longest))) if longest == mtu => {
            rows.ok("path MTU", format!("packets of {mtu} bytes pass"));
        }
        Ok((mtu, longest)) => {
            let longest = longest.map_or("long packets do not pass".to_owned(), |longest| {
                format!("packets of more than {longest} bytes do not pass")
            });
            rows.failed(
                "path MTU",
                format!("{longest} between here and {address}, and this interface sends up to {mtu}"),
                format!(
                    "set an MTU of {mtu} or more on all that is between, or the lower one on the switches"
                ),
            );
        }
        Err(error) => rows.failed("path MTU", error.to_string(), "switchback doctor"),
    }
}

/// Checks what a machine says of itself.
fn check_described(cluster: &Cluster, rows: &mut Rows, machine: &Machine) {
    let own = format!("{:08x}", cluster.hash);
    for (role, config) in &machine.configs {
        if *config == own {
            rows.ok("configuration", "the same");
        } else {
            let (names, remedy) = match cluster.names().is_empty() {
                true => ("", "copy the file to it, and there: switchback reload"),
                false => (
                    ", or other addresses of names",
                    "see whether that stays when TTL and hold are over; if the file differs, copy it to it, and there: \
                     switchback reload",
                ),
            };
            rows.failed(
                "configuration",
                format!("its {role} runs with another file{names} ({config}, here {own})"),
                remedy,
            );
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    if machine.version == version {
        rows.ok("version", version);
    } else {
        let what = format!("{}, here {version}", machine.version);
        rows.add("version", Outcome::Warning, what, "upgrade what is older");
    }
    machine.servers.iter().for_each(|server| check_server(rows, server));
    for flaw in &machine.flaws {
        let result = if flaw.fatal { Outcome::Failed } else { Outcome::Warning };
        rows.add("machine", result, &flaw.what, &flaw.remedy);
    }
    if machine.flaws.is_empty() {
        rows.ok("machine", "lacks nothing");
    }
}

fn check_server(rows: &mut Rows, server: &Server) {
    let at = server.address.map_or(String::new(), |address| format!(" at {address}"));
    let what = format!("pool {}{at}", server.pool);
    match (&server.ill, server.answers) {
        (Some(ill), _) => {
            rows.failed("servers", format!("{what}: {ill}"), remedy_of(ill));
        }
        (None, Some(false)) => rows.failed(
            "servers",
            format!("{what}: the server listens, and does not answer a request"),
            "restart the server; a health check in the pool takes it out of service by itself",
        ),
        (None, _) => rows.ok("servers", what),
    }
}

/// What ends the state of a listener.
fn remedy_of(state: &str) -> &'static str {
    match state {
        "nobody listens" => "start the server, on this address or on all (0.0.0.0, [::])",
        "listens with MPTCP" => {
            "start the server again after plain_tcp = true for the node, or with GODEBUG=multipathtcp=0 (Go)"
        }
        "draining" => "switchback undrain, when the node is to serve again",
        _ => "switchback status on that machine shows the last error of the health check",
    }
}

/// Checks that packets with a VIP as their source, as all responses, arrive here.
fn check_vip_sources(rows: &mut Rows, asker: &Asker, address: IpAddr, servers: &[Server]) {
    const CHECK: &str = "VIP source";
    let vips = servers.iter().filter_map(|server| server.address);
    let vips: BTreeSet<SocketAddr> = vips.filter(|vip| vip.is_ipv4() == address.is_ipv4()).collect();
    if vips.is_empty() {
        return;
    }
    let (port, number) = switchback_survey::unused();
    let sources = VipListener::open().map(|listener| {
        let all = |sources: &[SocketAddr]| sources.len() >= vips.len();
        asker.send_from_vips(port, number).map(|()| listener.sources((port, number), ON_THE_WAY, all))
    });
    let sources = match sources {
        Ok(Ok(sources)) => sources,
        Ok(Err(_)) => return rows.failed(CHECK, "it does not send packets from its VIPs", "look at its log"),
        Err(error) => return rows.failed(CHECK, error.to_string(), "run the test as root"),
    };
    let missing: Vec<String> =
        vips.iter().filter(|vip| !sources.contains(vip)).map(ToString::to_string).collect();
    if missing.is_empty() {
        return rows.ok(CHECK, "packets from its VIPs arrive here");
    }
    rows.failed(
        CHECK,
        format!("packets from {} that {address} sends do not arrive here: responses would not either", missing.join(", ")),
        "turn off filters by source between them: source/destination checks of clouds, allowed address pairs, rp_filter \
         and uRPF of routers, nftables",
    );
}

/// A line for each machine, then what is wrong with its remedy.
pub fn render(rows: &[Row]) -> String {
    let mut machines: Vec<&str> = Vec::new();
    for row in rows {
        if machines.last() != Some(&&row.machine[..]) {
            machines.push(&row.machine);
        }
    }
    let mut table =
        Table::new(&[("MACHINE", Align::Left), ("RESULT", Align::Left), ("CHECKS THAT ARE OK", Align::Left)]);
    for machine in machines {
        let own = || rows.iter().filter(|row| row.machine == machine);
        let worst = own().map(|row| row.result).max().unwrap_or(Outcome::Ok);
        let mut fine: Vec<&str> = Vec::new();
        for row in own().filter(|row| row.result == Outcome::Ok) {
            if !fine.contains(&row.check)
                && own().all(|other| other.check != row.check || other.result == Outcome::Ok)
            {
                fine.push(row.check);
            }
        }
        table.row([machine.to_owned(), worst.name().to_owned(), fine.join(", ")]);
    }
    let mut text = table.render(0);
    for row in rows.iter().filter(|row| row.result != Outcome::Ok) {
        let Row { machine, check, result, what, remedy } = row;
        text += &format!("\n{}: {machine}, {check}: {what}\n  mend it: {remedy}\n", result.name());
    }
    let count = |outcome| rows.iter().filter(|row| row.result == outcome).count();
    let [ok, warnings, failed] = [Outcome::Ok, Outcome::Warning, Outcome::Failed].map(count);
    let plural = if warnings == 1 { "" } else { "s" };
    text + &format!("\n{ok} ok, {warnings} warning{plural}, {failed} failed\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let mut one = Rows::of("n1");
        one.ok("key", "the same");
        one.ok("servers", "pool web");
        one.ok("servers", "pool img");
        let mut two = Rows::of("n2");
        two.ok("key", "the same");
        two.ok("servers", "pool web");
        two.failed("servers", "pool img: nobody listens", "start the server");
        check_clock(&mut two, -3_000);
        [one.rows, two.rows].concat()
    }

    #[test]
    fn a_machine_is_a_line_and_a_failure_has_its_remedy() {
        assert_eq!(
            render(&rows()),
            "MACHINE  RESULT  CHECKS THAT ARE OK\n\
             n1       ok      key, servers\n\
             n2       failed  key\n\
             \n\
             failed: n2, servers: pool img: nobody listens\n  mend it: start the server\n\
             \n\
             warning: n2, clock: 3 s behind this machine's: SYN cookies and TLS sessions of one are not valid at the other\n  \
             mend it: synchronise the clocks of all machines, with chrony for example\n\
             \n\
             5 ok, 1 warning, 1 failed\n"
        );
    }

    #[test]
    fn five_minutes_are_a_failure() {
        let result = |ahead| {
            let mut rows = Rows::of("n1");
            check_clock(&mut rows, ahead);
            rows.rows[0].result
        };
        assert_eq!(
            [0, -1_999, 2_000, 59_999].map(result),
            [Outcome::Ok, Outcome::Ok, Outcome::Warning, Outcome::Warning]
        );
        assert_eq!([300_000, -300_000].map(result), [Outcome::Failed, Outcome::Failed]);
    }
}
