//! The tables of the run, and the verdict.

use super::super::super::Results;
use super::super::super::report::{Report, header, row};
use super::super::faults::Event;
use super::super::load::TIMEOUT;
use super::super::report::{count, ms};
use super::super::{Pauses, Sample};
use super::usage::{Daemon, Role, Usage};
use super::{LIFE, Soaked};

/// What must not grow, with the tolerance: a part of what there was, and an amount.
struct Quantity {
    name: &'static str,
    of: fn(&Usage) -> u64,
    percent: u64,
    amount: u64,
}

/// Measured for each daemon, and judged for all of a role together: how the connections spread over machines changes
/// with each fault.
const QUANTITIES: [Quantity; 4] = [
    Quantity { name: "Memory, KiB", of: |usage| usage.memory_kib, percent: 10, amount: 6 * 1024 },
    Quantity { name: "Open files", of: |usage| usage.files, percent: 10, amount: 30 },
    Quantity { name: FLOWS, of: |usage| usage.flows, percent: 10, amount: 300 },
    Quantity { name: "In its memory", of: |usage| usage.own, percent: 10, amount: 100 },
];

const FLOWS: &str = "Flows";

const ROLES: [(Role, &str); 2] = [(Role::Switch, "switches"), (Role::Agent, "agents")];

/// A name, and a number of a sample.
type Loss = (&'static str, fn(&Sample) -> u64);

/// What a run has lost.
const LOSSES: [Loss; 4] = [
    ("broken connections", Sample::broken),
    ("connections with wrong bytes", |load| load.wrong),
    ("requests served twice", |load| load.twice),
    ("connections that could not be made", |load| load.unconnected),
];

impl Soaked {
    /// A quantity of all daemons of a role, at each reading.
    fn sums(&self, role: Role, quantity: &Quantity) -> [u64; 2] {
        let daemons = || self.daemons.iter().filter(|daemon| daemon.role == role);
        [0, 1].map(|at| daemons().map(|daemon| (quantity.of)(&daemon.usages[at])).sum())
    }

    /// The most of a quantity that may be there at the end. Each switch may know the flows of all agents.
    fn most(&self, role: Role, quantity: &Quantity) -> u64 {
        let [before, _] = self.sums(role, quantity);
        let is_known_to_all = role == Role::Switch && quantity.name == FLOWS;
        let switches = self.daemons.iter().filter(|daemon| daemon.role == Role::Switch).count() as u64;
        let known = if is_known_to_all { self.sums(Role::Agent, quantity)[1] * switches } else { 0 };
        let before = before.max(known);
        before + before * quantity.percent / 100 + quantity.amount
    }

    /// What it shows and must not.
    fn faults(&self) -> Vec<String> {
        let lost = LOSSES.iter().map(|(name, value)| (name, self.sum(value)));
        let lost = lost.filter(|(_, lost)| *lost > 0).map(|(name, lost)| format!("{lost} {name}"));
        let roles = ROLES.iter().flat_map(|role| QUANTITIES.iter().map(move |quantity| (role, quantity)));
        let grown = roles.filter_map(|((role, name), quantity)| {
            let [before, after] = self.sums(*role, quantity);
            let has_grown = after > self.most(*role, quantity);
            has_grown.then(|| format!("{} of the {name}: {before}, later {after}", quantity.name))
        });
        lost.chain(grown).collect()
    }
}

/// The line of a run's end.
pub(super) fn describe(soaked: &Soaked) -> String {
    let Soaked { repetition, seed, .. } = soaked;
    let requests = soaked.sum(|load| load.requests);
    let faults = soaked.faults();
    let verdict =
        if faults.is_empty() { "nothing lost, nothing grown".to_owned() } else { faults.join("; ") };
    format!("round {repetition}  seed {seed}  {requests:>8} requests  {verdict}")
}

impl Report for Results<Soaked> {
    type Sample = Soaked;
    const CSV_TITLES: &'static str = "repetition,seed,requests,broken,wrong,twice,unconnected,\
        switches_kib,switches_kib_end,switches_files,switches_files_end,switches_flows,switches_flows_end,\
        switches_own,switches_own_end,agents_kib,agents_kib_end,agents_files,agents_files_end,\
        agents_flows,agents_flows_end,agents_own,agents_own_end";

    fn csv_cells(soaked: &Soaked) -> Vec<String> {
        let numbers = [soaked.repetition.into(), soaked.seed, soaked.sum(|load| load.requests)];
        let losses = LOSSES.iter().map(|(_, value)| soaked.sum(value));
        let roles =
            ROLES.iter().flat_map(|(role, _)| QUANTITIES.iter().map(move |quantity| (*role, quantity)));
        let sums = roles.flat_map(|(role, quantity)| soaked.sums(role, quantity));
        numbers.into_iter().chain(losses).chain(sums).map(|number| number.to_string()).collect()
    }

    /// For each run, a line for each kind of load, for each event, and for each daemon.
    fn table(&self) -> String {
        let tables = self.samples.iter().flat_map(|soaked| [loads(soaked), events(soaked), daemons(soaked)]);
        tables.collect::<Vec<_>>().join("\n")
    }

    fn how(&self) -> String {
        let seeds: Vec<String> = self.samples.iter().map(|soaked| soaked.seed.to_string()).collect();
        let times: Vec<String> = self
            .samples
            .iter()
            .map(|soaked| {
                let [first, last] = soaked.times.map(|time| time.as_secs());
                format!("{first} s and {last} s")
            })
            .collect();
        let tolerances: Vec<String> = QUANTITIES
            .iter()
            .map(|Quantity { name, percent, amount, .. }| format!("{name} {percent} % and {amount}"))
            .collect();
        let breaks = self.samples.iter().flat_map(|soaked| &soaked.loads).flat_map(|load| &load.breaks);
        format!(
            "Each fault once, then faults in random order for {} s (seed {}), one at a time. Clients end their \
             connections after {} s on average, when they are idle, and make new ones. A connection is broken if it ends \
             before its client wants it, or if its client waits on it for {} s. The daemons are read after each fault has \
             happened once, and at the end, {} after the load has begun. Memory is what a process has of its own \
             (`RssAnon`). Flows are entries of its maps; those in its memory wait for something in a switch, or have \
             their TLS ended by an agent. A switch may know the flows of all \
             agents. All daemons of a role together may have more at the end by: {}.\n{}",
            self.seconds,
            seeds.join(", "),
            LIFE.as_secs(),
            TIMEOUT.as_secs(),
            times.join("; "),
            tolerances.join(", "),
            breaks.map(|line| format!("\n- {line}")).collect::<String>(),
        )
    }

    fn failure(&self) -> Option<String> {
        let faults: Vec<String> = self.samples.iter().flat_map(Soaked::faults).collect();
        (!faults.is_empty()).then(|| format!("soak: {}", faults.join("; ")))
    }
}

const LOADS: [(&str, bool); 9] = [
    ("Load", false),
    ("Connections at a time", true),
    ("Requests", true),
    ("Broken connections", true),
    ("Wrong bytes", true),
    ("Served twice", true),
    ("Not connected", true),
    ("Pauses: p99, ms", true),
    ("longest", true),
];

fn loads(soaked: &Soaked) -> String {
    let line = |load: &Sample| {
        let pause = |of: fn(&Pauses) -> std::time::Duration| {
            load.pauses.as_ref().map(of).map_or_else(String::new, ms)
        };
        let counts =
            [load.connections.into(), load.requests, load.broken(), load.wrong, load.twice, load.unconnected];
        let [a, b, c, d, e, f] = counts.map(count);
        row(&[
            load.kind.to_string(),
            a,
            b,
            c,
            d,
            e,
            f,
            pause(|pauses| pauses.p99),
            pause(|pauses| pauses.max),
        ])
    };
    header(&LOADS) + &soaked.loads.iter().map(line).collect::<String>()
}

fn events(soaked: &Soaked) -> String {
    let columns = [
        ("Last event", false),
        ("How often", true),
        ("Broken connections", true),
        ("Longest pause, ms", true),
    ];
    let line = |event: Event| {
        let broken = soaked.sum(|load| load.broken[event.index()]);
        let longest = soaked.loads.iter().map(|load| load.longest[event.index()]).max().unwrap_or_default();
        row(&[event.to_string(), soaked.times_of(event).to_string(), count(broken), ms(longest)])
    };
    header(&columns) + &Event::ALL.into_iter().map(line).collect::<String>()
}

/// Each quantity after the first faults, and at the end.
fn daemons(soaked: &Soaked) -> String {
    let columns = [("Daemon", false), ("Same process", false)];
    let quantities = QUANTITIES.each_ref().map(|quantity| (quantity.name, true));
    let [memory, files, flows, own] = quantities;
    let later = ("at the end", true);
    let mut text = header(&[columns[0], columns[1], memory, later, files, later, flows, later, own, later]);
    let line = |name: &str, same: &str, values: [[u64; 2]; QUANTITIES.len()]| {
        let [[a, b], [c, d], [e, f], [g, h]] = values.map(|pair| pair.map(count));
        row(&[name.to_owned(), same.to_owned(), a, b, c, d, e, f, g, h])
    };
    for Daemon { host, is_same, usages, .. } in &soaked.daemons {
        let values = QUANTITIES.each_ref().map(|quantity| usages.each_ref().map(quantity.of));
        text += &line(host, if *is_same { "yes" } else { "no" }, values);
    }
    for (role, name) in ROLES {
        let values = QUANTITIES.each_ref().map(|quantity| soaked.sums(role, quantity));
        text += &line(&format!("all {name}"), "", values);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::System;
    use super::super::super::load::Kind;
    use super::*;
    use crate::fixtures;

    fn daemon(role: Role, host: &str, usages: [Usage; 2]) -> Daemon {
        Daemon { role, host: host.to_owned(), is_same: true, usages }
    }

    fn soaked(last: Usage) -> Soaked {
        let first = Usage { memory_kib: 4_000, files: 40, flows: 1_000, own: 0 };
        let load = Sample {
            repetition: 1,
            system: System::Switchback,
            kind: Kind::KeepAlive,
            seed: 1,
            connections: 1_000,
            requests: 10_000,
            broken: [0; Event::ALL.len()],
            wrong: 0,
            twice: 0,
            on_two_nodes: 0,
            unlogged: 0,
            unconnected: 0,
            questions: 0,
            quiet: None,
            pauses: None,
            longest: [Duration::ZERO; Event::ALL.len()],
            events: [1; Event::ALL.len()],
            breaks: Vec::new(),
        };
        let daemons =
            vec![daemon(Role::Switch, "switch0", [first, last]), daemon(Role::Agent, "node0", [first; 2])];
        Soaked { repetition: 1, seed: 1, loads: vec![load], times: [Duration::ZERO; 2], daemons }
    }

    #[test]
    fn what_is_lost_or_grows_is_a_failure() {
        let same = Usage { memory_kib: 4_100, files: 41, flows: 1_200, own: 3 };
        let failure = |soaked: Soaked| fixtures::results(1, vec![soaked]).failure();
        assert_eq!(failure(soaked(same)), None);
        let grown = failure(soaked(Usage { flows: 1_500, ..same }));
        assert_eq!(grown.as_deref(), Some("soak: Flows of the switches: 1000, later 1500"));
        let mut lost = soaked(same);
        lost.loads[0].broken[Event::Killed.index()] = 2;
        assert_eq!(failure(lost).as_deref(), Some("soak: 2 broken connections"));
        let results = fixtures::results(1, vec![soaked(same)]);
        assert!(
            results.table().contains("| switch0 | yes | 4,000 | 4,100 | 40 | 41 |"),
            "{}",
            results.table()
        );
        let columns = Results::<Soaked>::CSV_TITLES.split(',').count();
        assert_eq!(results.csv().lines().nth(1).map(|line| line.split(',').count()), Some(columns));
    }
}
