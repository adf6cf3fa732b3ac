//! Clients at ten times their limit, beside clients that keep to theirs.
//!
//! Services differ in the limit and in what becomes of clients over it. Each is loaded by the polite clients alone, and by
//! them and the greedy ones. The greedy ones ask at a steady rate whether they are answered or not, so the load is the same
//! in each round and leaves some of the machine's CPUs idle, which also carry clients, switch and node: what polite clients
//! wait for is not the machine.
//!
//! The server behind the first two services answers 2,000 requests/s by sleeping, which takes no CPU time: without a limit the
//! greedy clients ask more than that, with one they do not.

mod load;
mod report;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use switchback_lab::{Builder, Doing, Lab, Result, ServerOptions, ServiceTime, SlowServerOptions};

use super::systems;
use super::tls_load::{self, Certificate, KeyKind, Version};
use super::{Experiment, Options, Progress, in_turn};
pub use load::Requests;
use load::{Outcome, Sources};

const GREEDY_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
const POLITE: u32 = 128;
const POLITE_NETWORK: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Rates of the clients, by the limit.
const GREEDY_RATE: f64 = 10.0;
const POLITE_RATE: f64 = 0.5;
/// Processes of the server that sleeps, and for how long each does.
const WORKERS: u32 = 8;
const SERVICE_TIME: Duration = Duration::from_millis(4);
/// For how long greedy clients are there before polite ones come, besides the time in which they begin and use up bursts.
const AHEAD: Duration = Duration::from_millis(250);
/// How long requests wait for their turn.
const TURN: Duration = Duration::from_secs(1);
/// How long polite clients wait for an answer, and greedy ones for more than a turn.
const PATIENCE: Duration = Duration::from_secs(5);
const IMPATIENCE: Duration = Duration::from_millis(500);
/// Port of nginx behind nodes that end TLS.
const CLEARTEXT: u16 = 8099;

/// A service, and how clients use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Requests over the limit are answered 429. The server is slow.
    Refused,
    /// There is no limit. The server is slow.
    Unlimited,
    /// Requests over the limit are answered 429. Clients keep their connections, which end with that answer.
    RefusedKept,
    /// Requests over the limit wait.
    Queued,
    /// The limit is of connections.
    Dropped,
    /// As [`RefusedKept`](Mode::RefusedKept), over TLS.
    TlsRefusedKept,
    /// As [`Dropped`](Mode::Dropped), over TLS.
    TlsDropped,
}

impl Mode {
    /// All values, in the order of the table.
    pub const ALL: [Mode; 7] = [
        Mode::Refused,
        Mode::Unlimited,
        Mode::RefusedKept,
        Mode::Queued,
        Mode::Dropped,
        Mode::TlsRefusedKept,
        Mode::TlsDropped,
    ];

    fn name(self) -> &'static str {
        match self {
            Mode::Refused => "429, new connections",
            Mode::Unlimited => "no limit, new connections",
            Mode::RefusedKept => "429, kept connections",
            Mode::Queued => "queued, new connections",
            Mode::Dropped => "dropped SYN, new connections",
            Mode::TlsRefusedKept => "429, kept connections, TLS",
            Mode::TlsDropped => "dropped SYN, new connections, TLS",
        }
    }

    fn port(self) -> u16 {
        8000 + self as u16
    }

    fn is_tls(self) -> bool {
        matches!(self, Mode::TlsRefusedKept | Mode::TlsDropped)
    }

    fn has_slow_server(self) -> bool {
        matches!(self, Mode::Refused | Mode::Unlimited)
    }

    fn keeps(self) -> bool {
        matches!(self, Mode::RefusedKept | Mode::TlsRefusedKept)
    }

    /// Events in [`period`](Self::period), by the limit, which is also the burst; where there is none, what the polite clients
    /// keep to. A request over TLS that is refused takes a handshake, so there are fewer.
    fn events(self) -> u32 {
        if self.is_tls() { 1 } else { 4 }
    }

    fn period(self) -> Duration {
        Duration::from_secs(if self.is_tls() { 2 } else { 1 })
    }

    /// Events in a second.
    fn limit(self) -> f64 {
        f64::from(self.events()) / self.period().as_secs_f64()
    }

    /// Time in which a bucket gains a token, and the greedy clients begin: those that come independently of each other do not
    /// gain tokens at the same moments.
    fn interval(self) -> Duration {
        self.period() / self.events()
    }

    /// The line of the service.
    fn limit_line(self) -> String {
        let (events, period) = (self.events(), self.period().as_secs());
        let rate = format!("rate = {events}, period = \"{period}s\", burst = {events}");
        match self {
            Mode::Unlimited => String::new(),
            Mode::Refused | Mode::RefusedKept | Mode::TlsRefusedKept => {
                format!("limit.client.requests = {{ {rate} }}\n")
            }
            Mode::Queued => format!("limit.client.requests = {{ {rate}, over = \"wait\" }}\n"),
            Mode::Dropped | Mode::TlsDropped => format!("limit.client.connections = {{ {rate} }}\n"),
        }
    }

    /// Most requests that a client may get answered of those that it sends in this time; None if there is no limit.
    fn allowed(self, time: Duration) -> Option<f64> {
        let waiting = if self == Mode::Queued { TURN } else { Duration::ZERO };
        let gained = || self.limit() * (time + waiting).as_secs_f64();
        (self != Mode::Unlimited).then(|| (f64::from(self.events()) + gained()).floor())
    }

    fn service(self) -> String {
        let (port, limit) = (self.port(), self.limit_line());
        let tls = if self.is_tls() {
            tls_load::service_table(SocketAddr::from(([127, 0, 0, 1], CLEARTEXT)), "")
        } else {
            String::new()
        };
        format!(
            "[[service]]\nname = \"s{port}\"\nlisten = [\"{{vip4}}:{port}\"]\nroute = [{{ pool = \"web\" }}]\n{limit}\n{tls}"
        )
    }
}

/// What the greedy clients got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Greedy {
    /// Their requests.
    pub requests: Requests,
    /// Of each client's passed requests by those that the limit allows, the least and the greatest; None without a limit.
    pub by_limit: Option<(f64, f64)>,
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The service.
    pub mode: Mode,
    /// The requests of the polite clients.
    pub polite: Requests,
    /// How long half of them, and 99 %, took at most, in milliseconds.
    pub times_ms: Option<(f64, f64)>,
    /// The greedy clients; None: they were not there.
    pub greedy: Option<Greedy>,
    /// Share of the time that the machine's CPUs had something to do.
    pub busy: f64,
}

/// Greedy clients beside polite ones.
#[derive(Clone, Copy, Debug)]
pub struct GreedyClients {
    /// Number of greedy clients.
    pub greedy: u32,
}

impl GreedyClients {
    /// Default of [`greedy`](Self::greedy).
    pub const GREEDY: u32 = 100;
}

impl Default for GreedyClients {
    fn default() -> Self {
        GreedyClients { greedy: Self::GREEDY }
    }
}

impl Experiment for GreedyClients {
    type Sample = Sample;
    const NAME: &'static str = "greedy-clients";
    const SECONDS: u32 = 8;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("apache2", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        1
    }

    fn builder(&self) -> Builder {
        Lab::builder().clients(2).nodes(self.nodes())
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        add_clients(lab)?;
        start_servers(lab)?;
        let certificate = Certificate::create(lab, KeyKind::Ecdsa)?;
        let services: String = Mode::ALL.map(Mode::service).concat();
        let config = lab.write_config_text(&format!(
            "[cluster]\nkey_file = \"{{key_file}}\"\n\n[limits]\nwait_timeout = \"{}s\"\n\n{{nodes}}\n\
             [[pool]]\nname = \"web\"\nnodes = [\"node0\"]\npolicy = \"round-robin\"\n\n{services}",
            TURN.as_secs()
        ))?;
        systems::start_switchback(lab, &options.program, &config)?;
        let client = |_| certificate.client(Version::Tls13, true);
        let clients = (0..self.greedy + POLITE).map(client).collect::<Result<Vec<_>>>()?;
        let duration = Duration::from_secs(options.seconds.into());
        let measuring = Measuring { lab, greedy: self.greedy, clients, duration };
        progress.expect(2 * Mode::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &mode in in_turn(&Mode::ALL, repetition) {
                for is_beside in [false, true] {
                    let sample = measuring.sample(repetition, mode, is_beside)?;
                    progress.loaded(&report::describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

/// Makes all addresses of two networks those of the clients.
fn add_clients(lab: &Lab) -> Result<()> {
    for (client, network) in lab.clients().zip([GREEDY_NETWORK, POLITE_NETWORK]) {
        tls_load::prepare(client)?;
        let network = format!("{network}/24");
        client.run(["ip", "route", "add", "local", &network, "dev", "lo"])?.success()?;
        let via = client.ipv4().to_string();
        for host in lab.nodes().chain(lab.switches()) {
            host.run(["ip", "route", "add", &network, "via", &via])?.success()?;
        }
    }
    Ok(())
}

fn start_servers(lab: &Lab) -> Result<()> {
    let (slow, fast): (Vec<Mode>, Vec<Mode>) = Mode::ALL.iter().partition(|mode| mode.has_slow_server());
    let listen = |port: u16| SocketAddr::from(([0, 0, 0, 0], port));
    let slow = slow.iter().map(|mode| listen(mode.port())).collect();
    let slow = SlowServerOptions {
        listen: slow,
        ..SlowServerOptions::new(WORKERS, 511, ServiceTime::Fixed(SERVICE_TIME))
    };
    lab.node(0).slow_server(&slow)?;
    let fast = fast.iter().filter(|mode| !mode.is_tls()).map(|mode| listen(mode.port()));
    let listen = fast.chain([listen(CLEARTEXT)]).collect();
    let extra = "keepalive_requests 1000000000;".to_owned();
    lab.node(0).nginx(&ServerOptions { listen, extra, ..ServerOptions::default() }).map(drop)
}

struct Measuring<'a> {
    lab: &'a Lab,
    /// Number of greedy clients.
    greedy: u32,
    /// TLS clients: the greedy ones, then the polite ones.
    clients: Vec<tls_load::Client>,
    duration: Duration,
}

impl Measuring<'_> {
    fn sample(&self, repetition: u32, mode: Mode, is_beside: bool) -> Result<Sample> {
        let (greedy, polite) = self.clients.split_at(self.greedy as usize);
        let of = |clients| if mode.is_tls() { clients } else { &[][..] };
        let patience = if mode == Mode::Queued { TURN + IMPATIENCE } else { IMPATIENCE };
        let greedy = Sources {
            network: GREEDY_NETWORK,
            count: self.greedy,
            rate: GREEDY_RATE * mode.limit(),
            begin_within: mode.interval(),
            keeps: mode.keeps(),
            tls: of(greedy),
            patience,
        };
        let polite = Sources {
            network: POLITE_NETWORK,
            count: POLITE,
            rate: POLITE_RATE * mode.limit(),
            begin_within: Duration::ZERO,
            keeps: mode.keeps(),
            tls: of(polite),
            patience: PATIENCE,
        };
        let server = SocketAddrV4::new(self.lab.vip4(), mode.port());
        let run = |sources: Sources<'_>, client, time| sources.run(self.lab.client(client), server, time);
        let before = Jiffies::read()?;
        let (greedy, polite) = thread::scope(|scope| {
            let greedy = is_beside.then(|| {
                let ahead = mode.interval() + AHEAD;
                let greedy = scope.spawn(move || run(greedy, 0, ahead + self.duration));
                thread::sleep(ahead);
                greedy
            });
            let polite = run(polite, 1, self.duration);
            let greedy = greedy.map(|thread| thread.join().expect("it does not panic")).transpose();
            (greedy, polite)
        });
        let busy = Jiffies::read()?.busy_since(before);
        let (greedy, polite) = (greedy?, polite?);
        let greedy = greedy.map(|outcome| greedy_of(mode, &outcome));
        let times_ms = polite.quantile_ms(0.5).zip(polite.quantile_ms(0.99));
        Ok(Sample { repetition, mode, polite: all(&polite), times_ms, greedy, busy })
    }
}

/// What the clients got of what the limit allows.
fn greedy_of(mode: Mode, outcome: &Outcome) -> Greedy {
    let ratios =
        || outcome.clients().filter_map(|(client, time)| Some(client.passed as f64 / mode.allowed(time)?));
    let (least, most) = (ratios().min_by(f64::total_cmp), ratios().max_by(f64::total_cmp));
    Greedy { requests: all(outcome), by_limit: least.zip(most) }
}

fn all(outcome: &Outcome) -> Requests {
    Requests {
        asked: outcome.sum(|client| client.asked),
        passed: outcome.sum(|client| client.passed),
        refused: outcome.sum(|client| client.refused),
        failed: outcome.sum(|client| client.failed),
    }
}

/// Time of the machine's CPUs, in clock ticks (`/proc/stat`).
#[derive(Clone, Copy)]
struct Jiffies {
    idle: u64,
    all: u64,
}

impl Jiffies {
    fn read() -> Result<Jiffies> {
        let text = fs::read_to_string("/proc/stat").doing(|| "read /proc/stat".to_owned())?;
        let line = text.lines().next().unwrap_or_default();
        // User, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen; guests are part of user.
        let ticks = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok());
        let ticks: Vec<u64> = ticks.collect();
        Ok(Jiffies { idle: ticks.iter().skip(3).take(2).sum(), all: ticks.iter().sum() })
    }

    fn busy_since(self, before: Jiffies) -> f64 {
        let (idle, all) = (self.idle - before.idle, self.all - before.all);
        1.0 - idle as f64 / all.max(1) as f64
    }
}
