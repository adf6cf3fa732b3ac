//! The tables of the experiment.

use std::time::Duration;

use super::super::report::{Report, header, row, shown, thousands};
use super::faults::Event;
use super::load::{Kind, TIMEOUT};
use super::{Pauses, Results, Sample, System};

/// Most broken connections that the report describes one by one.
const DESCRIBED: usize = 40;

/// The line of a run's end.
pub(super) fn describe(samples: &[Sample]) -> String {
    let sum = |value: fn(&Sample) -> u64| samples.iter().map(value).sum::<u64>();
    let Some(Sample { repetition, system, seed, .. }) = samples.first() else { return String::new() };
    format!(
        "round {repetition}  {system:<22} seed {seed}  {:>8} requests  {} broken connections, {} with wrong bytes, {} requests twice",
        sum(|sample| sample.requests),
        sum(Sample::broken),
        sum(|sample| sample.wrong),
        sum(|sample| sample.twice)
    )
}

/// The columns of the first table, with true for numbers.
const COLUMNS: [(&str, bool); 12] = [
    ("Load", false),
    ("System", false),
    ("Connections", true),
    ("Requests", true),
    ("Broken connections", true),
    ("Wrong bytes", true),
    ("Served twice", true),
    ("on two nodes", true),
    ("Longest pause without faults, ms", true),
    ("p50 with faults", true),
    ("p99", true),
    ("longest", true),
];

/// The columns of the second table: broken connections by event and kind, and the longest pause of all kinds.
const BY_EVENT: [(&str, bool); 12] = [
    ("System", false),
    ("Last event", false),
    ("How often", true),
    ("keep-alive", true),
    ("downloads", true),
    ("uploads", true),
    ("WebSockets", true),
    ("TLS, HTTP/1.1", true),
    ("TLS, HTTP/2", true),
    ("pipelined", true),
    ("all", true),
    ("Longest pause, ms", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,system,load,seed,connections,requests,broken,wrong,twice,on_two_nodes,\
        unlogged,unconnected,questions,quiet_p50_us,quiet_p99_us,quiet_max_us,p50_us,p99_us,max_us,\
        broken_without,broken_killed,broken_added_back,broken_cut_off,broken_mended,broken_restarted,\
        broken_withdrawn,broken_back";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, system, kind, seed, connections, .. } = sample;
        let mut cells = vec![repetition.to_string(), system.to_string(), format!("\"{kind}\"")];
        cells.extend([seed.to_string(), connections.to_string(), sample.requests.to_string()]);
        let counts = [
            sample.broken(),
            sample.wrong,
            sample.twice,
            sample.on_two_nodes,
            sample.unlogged,
            sample.unconnected,
            sample.questions,
        ];
        cells.extend(counts.map(|count| count.to_string()));
        for pauses in [sample.quiet, sample.pauses] {
            let times = pauses.map(|Pauses { p50, p99, max }| [p50, p99, max].map(|time| time.as_micros()));
            cells.extend(times.map_or_else(Default::default, |times| times.map(|time| time.to_string())));
        }
        cells.extend(sample.broken[..Event::BETWEEN].iter().map(u64::to_string));
        cells
    }

    /// A line for each kind of load and system, and the broken connections by event.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for kind in Kind::ALL {
            for system in System::ALL {
                text += &row(&self.cells(kind, system));
            }
        }
        text += "\n";
        text += &header(&BY_EVENT);
        for system in System::ALL {
            for event in &Event::ALL[..Event::BETWEEN] {
                text += &row(&self.cells_of_event(system, *event));
            }
        }
        text
    }

    fn how(&self) -> String {
        let seeds = self.first_of_runs().filter(|sample| sample.system == System::Switchback);
        let seeds: Vec<String> = seeds.map(|sample| sample.seed.to_string()).collect();
        let unlogged: u64 = self.samples.iter().map(|sample| sample.unlogged).sum();
        let unconnected = System::ALL.map(|system| {
            let of_system = self.samples.iter().filter(|sample| sample.system == system);
            format!("{} with {system}", count(of_system.map(|sample| sample.unconnected).sum()))
        });
        let mut text = format!(
            "Each fault once, then faults in random order for {} s; seed {}. Repetitions: {}; sums and extremes of all. A \
             connection is broken if it ends before its client wants it, or if its client waits for {} s. A pause is the longest \
             time in which a client waits and no byte comes, in a short request, or in a second of a transfer. Attempts to \
             connect that failed: {}. Answered requests in no log: {unlogged}.\n",
            self.seconds,
            seeds.join(", "),
            self.repetitions,
            TIMEOUT.as_secs(),
            unconnected.join(", ")
        );
        let questions = self.samples.iter().map(|sample| sample.questions).max().unwrap_or_default();
        if questions > 0 {
            text += &format!(
                "\nMost questions about unknown flows to a node in a second: {}.\n",
                count(questions)
            );
        }
        let is_ours = |sample: &&Sample| sample.system.is_ours();
        let breaks: Vec<&String> =
            self.samples.iter().filter(is_ours).flat_map(|sample| &sample.breaks).collect();
        if !breaks.is_empty() {
            text += &format!("\nBroken with Switchback, {} in all:\n\n", breaks.len());
            text.extend(breaks.iter().take(DESCRIBED).map(|line| format!("- {line}\n")));
        }
        text
    }
}

impl Results {
    fn of(&self, system: System, kind: Kind) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.system == system && sample.kind == kind)
    }

    /// A sample of each run.
    fn first_of_runs(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.kind == Kind::ALL[0])
    }

    fn cells(&self, kind: Kind, system: System) -> [String; COLUMNS.len()] {
        let samples = || self.of(system, kind);
        let sum = |value: fn(&Sample) -> u64| count(samples().map(value).sum());
        let most = |value: fn(&Sample) -> Option<Duration>| shown(samples().filter_map(value).max(), ms);
        [
            kind.to_string(),
            system.to_string(),
            count(samples().next().map_or(0, |sample| sample.connections.into())),
            sum(|sample| sample.requests),
            sum(Sample::broken),
            sum(|sample| sample.wrong),
            sum(|sample| sample.twice),
            sum(|sample| sample.on_two_nodes),
            most(|sample| sample.quiet.map(|pauses| pauses.max)),
            most(|sample| sample.pauses.map(|pauses| pauses.p50)),
            most(|sample| sample.pauses.map(|pauses| pauses.p99)),
            most(|sample| sample.pauses.map(|pauses| pauses.max)),
        ]
    }

    fn cells_of_event(&self, system: System, event: Event) -> [String; BY_EVENT.len()] {
        let broken = |kind| self.of(system, kind).map(|sample| sample.broken[event.index()]).sum::<u64>();
        let runs = self.first_of_runs().filter(|sample| sample.system == system);
        let times: u32 = runs.map(|sample| sample.events[event.index()]).sum();
        let often = if event == Event::Nothing { String::new() } else { times.to_string() };
        let [a, b, c, d, e, f, g] = Kind::ALL.map(|kind| count(broken(kind)));
        let all = count(Kind::ALL.into_iter().map(broken).sum());
        let of_system = self.samples.iter().filter(|sample| sample.system == system);
        let longest = of_system.map(|sample| sample.longest[event.index()]).max().unwrap_or_default();
        [system.to_string(), event.to_string(), often, a, b, c, d, e, f, g, all, ms(longest)]
    }
}

pub(super) fn count(value: u64) -> String {
    if value < 1000 { value.to_string() } else { thousands(value as f64) }
}

/// Milliseconds, with tenths where they say something.
pub(super) fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.1}") } else { count(ms.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn sample(repetition: u32, system: System, kind: Kind, broken: u64) -> Sample {
        let pauses = |max| Pauses {
            p50: Duration::from_micros(400),
            p99: Duration::from_millis(3),
            max: Duration::from_millis(max),
        };
        let mut by_event = [0; Event::ALL.len()];
        by_event[Event::CutOff.index()] = broken;
        Sample {
            repetition,
            system,
            kind,
            seed: 7,
            connections: 20_000,
            requests: 1_000,
            broken: by_event,
            wrong: 0,
            twice: 1,
            on_two_nodes: 0,
            unlogged: 0,
            unconnected: 3,
            questions: 0,
            quiet: Some(pauses(5)),
            pauses: Some(pauses(1_230)),
            longest: [Duration::from_millis(700); Event::ALL.len()],
            events: [0, 1, 1, 2, 2, 1, 1, 1, 0, 0, 0],
            breaks: (0..broken).map(|number| format!("number {number}")).collect(),
        }
    }

    #[test]
    fn all_systems_are_beside_each_other_and_broken_ones_have_an_event() {
        let samples = (1..=2).flat_map(|repetition| {
            let sample = move |system, broken| move |kind| sample(repetition, system, kind, broken);
            let samples = [(System::Switchback, 0), (System::Pair, 0), (System::Haproxy, 40)];
            samples.into_iter().flat_map(move |(system, broken)| Kind::ALL.map(sample(system, broken)))
        });
        let results = fixtures::results(2, samples.collect());
        let table = results.table();
        let ours = "| downloads | Switchback | 20,000 | 2,000 | 0 | 0 | 2 | 0 | 5.0 | 0.4 | 3.0 | 1,230 |\n";
        let pair = ours.replace("Switchback", "Switchback+keepalived");
        let theirs = "| downloads | HAProxy | 20,000 | 2,000 | 80 | 0 | 2 | 0 | 5.0 | 0.4 | 3.0 | 1,230 |\n";
        assert!(table.contains(&format!("{ours}{pair}{theirs}")), "{table}");
        assert!(
            table.contains("| HAProxy | cut off | 4 | 80 | 80 | 80 | 80 | 80 | 80 | 80 | 560 | 700 |\n"),
            "{table}"
        );
        assert!(
            table.contains("| Switchback | killed | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 700 |\n"),
            "{table}"
        );
        let csv = results.csv();
        let columns = Results::CSV_TITLES.split(',').count();
        assert!(
            csv.lines().skip(1).all(|line| line.replace(", ", " ").split(',').count() == columns),
            "{csv}"
        );
        assert!(!results.how().contains("number 0"), "only ours are described");
    }
}
