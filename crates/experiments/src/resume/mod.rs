//! Downloads whose node dies: behind Switchback another node goes on with them, behind proxies nobody can.
//!
//! All downloads begin at once, at a pace that has each of them in its middle when something happens to the first node.
//! Their clients have small receive buffers, because what is in a buffer would hide a pause. The proxies' servers are the
//! same ones, and the same happens to the same machine; nginx has to keep what its client has not taken yet in memory,
//! since a proxy that has a whole response in a file does not need the server any more.

mod download;
mod fault;
mod report;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use switchback_lab::{Error, Lab, Result, ServerOptions, pseudo_random};

pub use download::End;
use download::{Download, Fetched};
pub use fault::Fault;
use fault::Victim;

use super::systems::{self, Service, System};
use super::waiting::{wait, wait_until};
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 3;
/// The node to which something happens.
const VICTIM: usize = 0;
/// In the order of the table.
const SYSTEMS: [System; 3] = [System::Switchback, System::Haproxy, System::Nginx];
const DOCUMENT: &str = "file";
/// As [`proxies`](super::proxies) has them.
const NODE_OPTIONS: &str = "tcp_nopush on;";
/// The clients' receive buffer, of which half is window: least, first and greatest size in bytes.
const RECEIVE_BUFFER: &str = "4096 131072 262144";
/// Each part of the document of this size has its own number in it, so that none can be taken for another one.
const NUMBERED: usize = 4096;
/// The part of a download's course that is kept for the picture.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(8);
/// The least time between two points of the picture.
const STEP: Duration = Duration::from_millis(40);

/// One download.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// What is between client and nodes.
    pub system: System,
    /// What happens.
    pub fault: Fault,
    /// The node with which the response began.
    pub node: String,
    /// Whether that node's response was under way when it happened.
    pub is_struck: bool,
    /// How it ended.
    pub end: End,
    /// Bytes of the body that came.
    pub received: u64,
    /// The longest wait for a byte.
    pub pause: Duration,
    /// From the fault to its end, negative if that was earlier, in seconds.
    pub ended_s: f64,
    /// Bytes over time, since two seconds before the fault.
    pub course: Vec<(Duration, u64)>,
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Downloads whose node dies, beside proxies.
#[derive(Clone, Copy, Debug)]
pub struct Resume {
    /// Downloads at a time.
    pub downloads: u32,
    /// Size of each, in megabytes.
    pub megabytes: u32,
}

impl Resume {
    /// Default of [`downloads`](Self::downloads).
    pub const DOWNLOADS: u32 = 100;
    /// Default of [`megabytes`](Self::megabytes).
    pub const MEGABYTES: u32 = 100;
}

impl Default for Resume {
    fn default() -> Self {
        Resume { downloads: Self::DOWNLOADS, megabytes: Self::MEGABYTES }
    }
}

impl Experiment for Resume {
    type Sample = Sample;
    const NAME: &'static str = "resume";
    const SECONDS: u32 = 60;
    const REPETITIONS: u32 = 1;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("haproxy", "-v"), ("nginx", "-v")];

    fn nodes(&self) -> usize {
        NODES
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        let what = format!("{} of {} MB each, of three nodes", self.downloads, self.megabytes);
        Ok(vec![("Downloads".to_owned(), what)])
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let document = document(self.megabytes as usize * 1_000_000);
        lab.add_document(DOCUMENT, &document)?;
        lab.client(0).sysctl(&[("ipv4/tcp_rmem", RECEIVE_BUFFER)])?;
        let listen = vec![([0, 0, 0, 0], System::Direct.port(NODES)).into()];
        let server = ServerOptions { listen, extra: NODE_OPTIONS.to_owned(), ..ServerOptions::default() };
        let mut servers = lab.nodes().map(|node| node.nginx(&server)).collect::<Result<Vec<_>>>()?;
        let pool = "resume = \"range\"\n".to_owned();
        let service = Service { pool, ..Service::new(System::Switchback.port(NODES), NODES) };
        let config = lab.write_config_text(&systems::config(&[service]))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let address = |&system: &System| match system {
            System::Switchback => Ok((system, (lab.vip4(), system.port(NODES)).into())),
            _ => Ok((system, systems::start_download_proxy(lab, system, NODES)?)),
        };
        let systems = SYSTEMS.iter().map(address).collect::<Result<Vec<(System, SocketAddr)>>>()?;
        let mut victim = Victim {
            host: lab.node(VICTIM),
            server: servers.swap_remove(VICTIM),
            agent: daemons.agents()[VICTIM].clone(),
            options: server,
            program: &options.program,
            config: &config,
        };
        let run = Run { lab, document: &document, downloads: self.downloads, seconds: options.seconds };
        progress.expect(systems.len() * Fault::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for fault in Fault::ALL {
                for &(system, address) in in_turn(&systems, repetition) {
                    wait_until(lab, "answers of all nodes", || all_answer(lab, address))?;
                    let before = dispatched(lab, &options.program)?;
                    let (fetched, struck) = run.run(address, &victim, fault)?;
                    let after = dispatched(lab, &options.program)?;
                    victim.restore(fault)?;
                    let of = |fetched| sample(repetition, system, fault, fetched, struck, lab);
                    let new: Vec<Sample> = fetched.into_iter().map(of).collect();
                    let resumed = [0, 1].map(|index| after[index] - before[index]);
                    progress.loaded(&report::describe(&new, resumed));
                    samples.extend(new);
                }
            }
        }
        Ok(samples)
    }
}

/// What all runs have in common.
struct Run<'a> {
    lab: &'a Lab,
    document: &'a [u8],
    downloads: u32,
    seconds: u32,
}

impl Run<'_> {
    /// All downloads, and when the fault happened in their middle.
    fn run(&self, server: SocketAddr, victim: &Victim<'_>, fault: Fault) -> Result<(Vec<Fetched>, Instant)> {
        let (begun, over) = (AtomicU32::new(0), AtomicBool::new(false));
        let download = Download {
            client: self.lab.client(0),
            server,
            path: &format!("/{DOCUMENT}"),
            document: self.document,
            bytes_per_s: self.document.len() as u64 / u64::from(self.seconds),
            begun: &begun,
            over: &over,
        };
        thread::scope(|scope| {
            let fetch = || download.run().inspect_err(|_| over.store(true, Ordering::Relaxed));
            let running: Vec<_> = (0..self.downloads).map(|_| scope.spawn(fetch)).collect();
            let strike = || {
                let has_failed = || over.load(Ordering::Relaxed);
                let all = || Ok(has_failed() || begun.load(Ordering::Relaxed) == self.downloads);
                wait_until(self.lab, "a beginning of all downloads", all)?;
                if has_failed() {
                    return Err(Error::Invalid("a download has not begun".to_owned()));
                }
                wait(self.lab, Duration::from_secs(self.seconds.into()) / 2)?;
                let struck = Instant::now();
                victim.strike(fault)?;
                while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
                    wait(self.lab, Duration::from_millis(100))?;
                }
                Ok(struck)
            };
            let struck = strike();
            over.fetch_or(struck.is_err(), Ordering::Relaxed);
            let fetched = running.into_iter().map(|download| download.join().expect("no panic"));
            let fetched = fetched.collect::<Result<Vec<_>>>();
            Ok((fetched?, struck?))
        })
    }
}

fn sample(
    repetition: u32,
    system: System,
    fault: Fault,
    fetched: Fetched,
    struck: Instant,
    lab: &Lab,
) -> Sample {
    let Fetched { node, end, ended, received, pause, points } = fetched;
    let ended_s = match ended.checked_duration_since(struck) {
        Some(after) => after.as_secs_f64(),
        None => -struck.duration_since(ended).as_secs_f64(),
    };
    let is_struck = node == lab.node(VICTIM).name() && ended > struck;
    let course = course(&points, ended, struck);
    Sample { repetition, system, fault, node, is_struck, end, received, pause, ended_s, course }
}

/// The points around the fault, as time and bytes since the first of them. Of points that are close to each other only some
/// are kept, but always both ends of a pause.
fn course(points: &[(Instant, u64)], ended: Instant, struck: Instant) -> Vec<(Duration, u64)> {
    let begin = struck.checked_sub(BEFORE).unwrap_or(struck);
    let end = ended.min(begin + BEFORE + AFTER);
    let near = points.iter().filter(|(at, _)| (begin..end).contains(at)).copied();
    let mut near: Vec<(Instant, u64)> = near.collect();
    let (Some((_, first)), Some((_, last))) = (near.first().copied(), near.last().copied()) else {
        return Vec::new();
    };
    near.push((end, last));
    let mut kept: Vec<(Instant, u64)> = Vec::new();
    for (index, point) in near.iter().enumerate() {
        let is_far = |from: &(Instant, u64), to: &(Instant, u64)| to.0 - from.0 >= STEP;
        let is_next_far = near.get(index + 1).is_none_or(|next| is_far(point, next));
        if is_next_far || kept.last().is_none_or(|before| is_far(before, point)) {
            kept.push(*point);
        }
    }
    kept.into_iter().map(|(at, bytes)| (at - begin, bytes - first)).collect()
}

/// Pseudorandom bytes, no part of which is like another one.
fn document(len: usize) -> Vec<u8> {
    let part = pseudo_random(len.min(1 << 20));
    let mut document = part.repeat(len.div_ceil(part.len()));
    document.truncate(len);
    for (number, part) in document.chunks_exact_mut(NUMBERED).enumerate() {
        part[..8].copy_from_slice(&(number as u64).to_be_bytes());
    }
    document
}

/// Whether all nodes answer at this address, which they do in turn.
fn all_answer(lab: &Lab, address: SocketAddr) -> Result<bool> {
    let url = format!("http://{address}/node");
    let mut names: Vec<String> = Vec::new();
    for _ in 0..2 * NODES {
        let output = lab.client(0).run(["curl", "-s", "--max-time", "2", &url])?;
        names.push(output.stdout);
    }
    Ok(lab.nodes().all(|node| names.iter().any(|name| name == node.name())))
}

/// Responses with which the switch has had other nodes go on, and those that did not.
fn dispatched(lab: &Lab, program: &Path) -> Result<[u64; 2]> {
    let status: Value = systems::status(lab.switch(0), program)?;
    Ok(["resumed", "not_resumed"].map(|key| status["dispatch"][key].as_u64().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_document_differ() {
        let document = document(3 << 20);
        let (first, second) = (&document[..1 << 20], &document[1 << 20..2 << 20]);
        assert!(std::iter::zip(first.chunks(NUMBERED), second.chunks(NUMBERED)).all(|(a, b)| a != b));
        assert_eq!(document.len(), 3 << 20);
    }

    #[test]
    fn a_course_has_both_ends_of_a_pause() {
        let struck = Instant::now() + Duration::from_secs(60);
        let at = |ms: i64| match u64::try_from(ms) {
            Ok(ms) => struck + Duration::from_millis(ms),
            Err(_) => struck - Duration::from_millis(ms.unsigned_abs()),
        };
        let points: Vec<_> =
            [(-5000, 10), (-2000, 100), (-1990, 110), (5, 300), (1005, 310), (1010, 320), (11000, 900)]
                .map(|(ms, bytes)| (at(ms), bytes))
                .to_vec();
        let course = course(&points, at(11001), struck);
        let ms: Vec<_> = course.iter().map(|(at, bytes)| (at.as_millis(), *bytes)).collect();
        assert_eq!(ms, [(0, 0), (10, 10), (2005, 200), (3005, 210), (3010, 220), (10000, 220)]);
    }
}
