//! What clients see when the machines between them and the nodes die, are cut off, and come back: three switches behind
//! a router with ECMP, and, under the same load and the same faults, two switches with keepalived, and two machines with
//! HAProxy and keepalived.
//!
//! Each fault happens once, then they come in random order. Clients forgive nothing: a connection that ends before its
//! client wants it is broken, whatever the client could do about it. Every request has a number, by which the nodes'
//! logs tell whether it was served twice.

mod balancers;
mod faults;
mod flood;
mod keepalived;
mod load;
mod origin;
mod pair;
mod report;
mod soak;
mod switches;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use switchback_lab::{Builder, Doing, Error, Lab, Result, Routing, Topology, pseudo_random};

use super::tls_load::{Certificate, KeyKind, Version};
use super::waiting::wait;
use super::{Experiment, Options, Progress};
use balancers::Balancers;
use faults::{Event, Fault, History, Machines, strike_at_random, strike_each};
use load::{Kind, Plan, Seen, Signal, kind_of};
use origin::{Origin, Sightings};
use pair::Pair;
use report::describe;
pub use soak::Soak;
use switches::Switches;

const NODES: usize = 3;
const SWITCHES: usize = 3;
/// Client machines, each with a part of every kind of load.
const CLIENTS: usize = 4;
/// Connections that begin in a second.
const BEGIN_PER_S: u32 = 2000;
/// Time before the first fault, with all connections.
const QUIET: Duration = Duration::from_secs(5);
/// Bytes of an upload.
const UPLOAD: usize = 1_000_000;

/// What is between clients and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Three switches, all of which serve.
    Switchback,
    /// Two switches, of which the one that keepalived chooses serves.
    Pair,
    /// HAProxy on two machines, of which the one with the VIP serves.
    Haproxy,
}

impl System {
    /// All systems, in the order of the tables.
    pub const ALL: [System; 3] = [System::Switchback, System::Pair, System::Haproxy];

    /// Whether its connections have to survive.
    fn is_ours(self) -> bool {
        self != System::Haproxy
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Switchback => "Switchback",
            System::Pair => "Switchback+keepalived",
            System::Haproxy => "HAProxy",
        })
    }
}

/// Median, 99th percentile and greatest of the pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Pauses {
    /// None without any.
    fn of(mut pauses: Vec<Duration>) -> Option<Pauses> {
        pauses.sort_unstable();
        let at = |part: f64| {
            let rank = (part * pauses.len() as f64).ceil() as usize;
            pauses.get(rank.saturating_sub(1)).copied()
        };
        Some(Pauses { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

/// One kind of load on one system.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The system.
    pub system: System,
    /// The kind of load.
    pub kind: Kind,
    /// The seed of the faults in random order.
    pub seed: u64,
    /// Number of connections.
    pub connections: u32,
    /// Number of answered requests.
    pub requests: u64,
    /// Broken connections by the event before, in the order of [`Event::ALL`]; those with wrong bytes are counted
    /// elsewhere.
    pub broken: [u64; Event::ALL.len()],
    /// Connections on which wrong bytes came.
    pub wrong: u64,
    /// Requests that a node has served more than once.
    pub twice: u64,
    /// Requests that several nodes have served.
    pub on_two_nodes: u64,
    /// Answered requests that no node has in its log, which shows that the count by the logs is complete.
    pub unlogged: u64,
    /// New connections that could not be made.
    pub unconnected: u64,
    /// The most questions about unknown flows that a node got in a second; 0 without a flood.
    pub questions: u64,
    /// Pauses before the first fault.
    pub quiet: Option<Pauses>,
    /// Pauses from then on.
    pub pauses: Option<Pauses>,
    /// The longest pause by the event before it, in the order of [`Event::ALL`].
    pub longest: [Duration; Event::ALL.len()],
    /// How often each event has happened, in the order of [`Event::ALL`].
    pub events: [u32; Event::ALL.len()],
    /// The broken connections in words.
    pub breaks: Vec<String>,
}

impl Sample {
    /// Broken connections, but not those with wrong bytes.
    pub fn broken(&self) -> u64 {
        self.broken.iter().sum()
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Faults of switches under load, and the numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct SwitchFailover {
    /// Connections with a short request every ten seconds.
    pub connections: u32,
    /// Downloads at a time.
    pub downloads: u32,
    /// Size of a download, in megabytes.
    pub megabytes: u32,
    /// Uploads at a time.
    pub uploads: u32,
    /// WebSockets.
    pub websockets: u32,
    /// TLS connections, half of them with HTTP/2.
    pub tls: u32,
    /// Pipelining clients.
    pub pipelines: u32,
    /// Packets of unknown flows in a second, from spoofed addresses.
    pub flood: u32,
    /// The seed of the faults in random order; further repetitions have the next ones.
    pub seed: u64,
}

impl SwitchFailover {
    /// Default of [`connections`](Self#structfield.connections).
    pub const CONNECTIONS: u32 = 20_000;
    /// Default number of downloads, uploads, WebSockets and TLS connections.
    pub const OTHERS: u32 = 200;
    /// Default of [`pipelines`](Self#structfield.pipelines).
    pub const PIPELINES: u32 = 20;
    /// Default of [`megabytes`](Self#structfield.megabytes).
    pub const MEGABYTES: u32 = 20;
    /// Default of [`seed`](Self#structfield.seed).
    pub const SEED: u64 = 1;

    /// Number of connections of each kind, in the order of [`Kind::ALL`].
    fn counts(&self) -> [u32; Kind::ALL.len()] {
        let SwitchFailover { connections, downloads, uploads, websockets, tls, pipelines, .. } = *self;
        [connections, downloads, uploads, websockets, tls.div_ceil(2), tls / 2, pipelines]
    }
}

impl Default for SwitchFailover {
    fn default() -> Self {
        SwitchFailover {
            connections: Self::CONNECTIONS,
            downloads: Self::OTHERS,
            megabytes: Self::MEGABYTES,
            uploads: Self::OTHERS,
            websockets: Self::OTHERS,
            tls: Self::OTHERS,
            pipelines: Self::PIPELINES,
            flood: 0,
            seed: Self::SEED,
        }
    }
}

impl Experiment for SwitchFailover {
    type Sample = Sample;
    const NAME: &'static str = "switch-failover";
    const SECONDS: u32 = 120;
    const REPETITIONS: u32 = 1;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("nginx", "-v"), ("bird", "--version"), ("haproxy", "-v"), ("keepalived", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn builder(&self) -> Builder {
        let lab = Lab::builder().topology(Topology::Routed).routing(Routing::Bird);
        lab.clients(CLIENTS).switches(SWITCHES).nodes(NODES)
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let counts = self.counts();
        let plan = plan(lab, counts, self.megabytes as usize * 1_000_000, UPLOAD)?;
        progress.expect(System::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            let seed = self.seed + u64::from(repetition - 1);
            for system in System::ALL {
                let run = run(lab, options, system, &plan, (seed, self.flood))?;
                let new = samples_of(repetition, system, seed, &counts, &run);
                progress.loaded(&describe(&new));
                samples.extend(new);
            }
        }
        Ok(samples)
    }
}

/// What has happened in a run.
struct Run {
    seen: Seen,
    history: History,
    sightings: Sightings,
    /// When all connections had begun.
    ramp: Duration,
    /// The most questions that a node got in a second.
    questions: u64,
}

/// The plan of a load with these connections, and with the document for downloads in the lab.
fn plan(lab: &Lab, counts: [u32; Kind::ALL.len()], download: usize, upload: usize) -> Result<Plan> {
    let text: Arc<[u8]> = pseudo_random(download).into();
    lab.add_document("long", &text)?;
    Ok(Plan {
        vips: [lab.vip4().into(), lab.vip6().into()],
        counts,
        text,
        upload,
        tls: Certificate::create(lab, KeyKind::Ecdsa)?.client(Version::Tls13, false)?,
        client: 0,
        clients: CLIENTS,
        start: Instant::now(),
        ramp: Duration::from_secs(1) * counts.iter().sum::<u32>() / BEGIN_PER_S,
        life: None,
    })
}

/// Puts the load on a system, and the faults under it.
fn run(lab: &Lab, options: &Options, system: System, plan: &Plan, (seed, per_s): (u64, u32)) -> Result<Run> {
    let random_for = Duration::from_secs(options.seconds.into());
    let mut questions = 0;
    let mut strike = |machines: &mut dyn Machines, note: &mut dyn FnMut(Event)| {
        ((), questions) = flood::beside(lab, per_s, || {
            strike_each(lab, machines, &Fault::BETWEEN, note)?;
            strike_at_random(lab, machines, &Fault::BETWEEN, seed, random_for, note)
        })?;
        Ok(())
    };
    let run = run_on_origins(lab, plan, || match system {
        System::Switchback => {
            let mut switches = Switches::start(lab, &options.program, 0)?;
            let ran = load(lab, plan, |note| strike(&mut switches, note))?;
            switches.stop()?;
            Ok(ran)
        }
        System::Pair => {
            let mut pair = Pair::start(lab, &options.program)?;
            let ran = load(lab, plan, |note| strike(&mut pair, note))?;
            pair.stop()?;
            Ok(ran)
        }
        System::Haproxy => {
            let mut balancers = Balancers::start(lab)?;
            let ran = load(lab, plan, |note| strike(&mut balancers, note))?;
            balancers.stop()?;
            Ok(ran)
        }
    })?;
    Ok(Run { questions, ..run })
}

/// Runs `work` while the nodes have servers, and reads their logs.
fn run_on_origins(lab: &Lab, plan: &Plan, work: impl FnOnce() -> Result<(Seen, History)>) -> Result<Run> {
    let origins = lab.nodes().map(|node| Origin::start(node, &plan.text)).collect::<Result<Vec<_>>>()?;
    let (seen, history) = work()?;
    let mut sightings = Sightings::default();
    for (node, origin) in origins.into_iter().enumerate() {
        origin.stop(node, &mut sightings)?;
    }
    Ok(Run { seen, history, sightings, ramp: plan.ramp, questions: 0 })
}

/// Runs `strike` under the load, which begins before and ends after it.
fn load(
    lab: &Lab,
    plan: &Plan,
    strike: impl FnOnce(&mut dyn FnMut(Event)) -> Result<()>,
) -> Result<(Seen, History)> {
    let start = Instant::now();
    let signal = Signal::default();
    let (ready, are_ready) = mpsc::channel();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (ready, signal) = (ready.clone(), &signal);
                let counts = plan.counts.map(|count| part(count, client));
                let plan = Plan { client, counts, start, ..plan.clone() };
                scope.spawn(move || lab.client(client).enter(move || load::run(&plan, signal, ready)))
            })
            .collect();
        drop(ready);
        // Each has a copy of the file descriptors by then, or has failed.
        are_ready.iter().for_each(drop);
        let mut history = History::default();
        let struck = wait(lab, plan.ramp + QUIET)
            .and_then(|()| strike(&mut |event| history.note(start.elapsed(), event)));
        let word = if struck.is_ok() { &signal.end } else { &signal.abort };
        word.store(true, Ordering::Relaxed);
        let mut seen = Seen::default();
        let mut failed = None;
        for client in clients {
            match client
                .join()
                .expect("no load panics")
                .map(|seen| seen.doing(|| "load the service".to_owned()))
            {
                Ok(Ok(one)) => seen.add(one),
                Ok(Err(error)) | Err(error) => failed = Some(error),
            }
        }
        struck?;
        failed.map_or(Ok((seen, history)), Err::<_, Error>)
    })
}

/// A client's part of a number of connections.
fn part(count: u32, client: usize) -> u32 {
    let (clients, client) = (CLIENTS as u32, client as u32);
    count / clients + u32::from(client < count % clients)
}

fn samples_of(
    repetition: u32,
    system: System,
    seed: u64,
    counts: &[u32; Kind::ALL.len()],
    run: &Run,
) -> Vec<Sample> {
    let Run { seen, history, sightings, ramp, questions } = run;
    let first = history.first().unwrap_or(Duration::MAX);
    let sample = |(kind, connections): (Kind, u32)| {
        let answers = || seen.answers.iter().filter(move |answer| kind_of(answer.number) == kind);
        let slices = seen.slices.iter().filter(|slice| slice.kind == kind);
        let pauses: Vec<(Duration, Duration)> = if kind.is_transfer() {
            slices.map(|slice| (slice.at, slice.pause)).collect()
        } else {
            answers().map(|answer| (answer.at, answer.pause)).collect()
        };
        let mut longest = [Duration::ZERO; Event::ALL.len()];
        for (at, pause) in &pauses {
            let (event, _) = history.cause(*at, *pause);
            longest[event.index()] = longest[event.index()].max(*pause);
        }
        let (quiet, later): (Vec<_>, Vec<_>) =
            pauses.into_iter().filter(|(at, _)| at > ramp).partition(|(at, _)| *at < first);
        let pauses =
            |all: Vec<(Duration, Duration)>| Pauses::of(all.into_iter().map(|(_, pause)| pause).collect());
        let all_breaks = || seen.breaks.iter().filter(move |one| one.kind == kind);
        let mut broken = [0; Event::ALL.len()];
        let mut breaks = Vec::new();
        for one in all_breaks() {
            // Who gives up has begun to wait long before.
            let waited = if one.how == load::How::Timeout { one.waited } else { Duration::ZERO };
            let (event, after) = history.cause(one.at, waited);
            if one.how != load::How::Wrong {
                broken[event.index()] += 1;
            }
            breaks.push(format!(
                "{system}, {kind}: {:?} at {:.2} s, {:.2} s after the event \"{event}\", having waited for {:.2} s, port {}",
                one.how,
                one.at.as_secs_f64(),
                after.as_secs_f64(),
                one.waited.as_secs_f64(),
                one.port,
            ));
        }
        // Of a WebSocket's messages servers log nothing.
        let is_logged = kind != Kind::WebSocket;
        let unlogged = answers().filter(|answer| is_logged && !sightings.has(answer.number)).count() as u64;
        let repeated = || sightings.repeated().filter(move |(number, _)| kind_of(*number) == kind);
        Sample {
            repetition,
            system,
            kind,
            seed,
            connections,
            requests: answers().count() as u64,
            broken,
            wrong: all_breaks().filter(|one| one.how == load::How::Wrong).count() as u64,
            twice: repeated().count() as u64,
            on_two_nodes: repeated().filter(|(_, several)| *several).count() as u64,
            unlogged,
            unconnected: seen.unconnected[kind.index()],
            questions: *questions,
            quiet: pauses(quiet),
            pauses: pauses(later),
            longest,
            events: Event::ALL.map(|event| history.count(event)),
            breaks,
        }
    };
    Kind::ALL.into_iter().zip(*counts).map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_parts_are_all() {
        for count in [0, 1, 7, 20_000] {
            assert_eq!((0..CLIENTS).map(|client| part(count, client)).sum::<u32>(), count);
        }
    }

    #[test]
    fn pauses_are_summed_up_by_rank() {
        let ms = Duration::from_millis;
        let pauses = Pauses::of((1..=200).rev().map(ms).collect());
        assert_eq!(pauses, Some(Pauses { p50: ms(100), p99: ms(198), max: ms(200) }));
        assert_eq!(Pauses::of(Vec::new()), None);
    }
}
